"""A session goes in; its failed compiles, and the damage of the trace itself, come out."""

from __future__ import annotations

import re
from typing import Final

from tc.trace.branches import function_at, is_in_try
from tc.trace.breakfixes import ASK_FIRST, fixes_at
from tc.trace.compiles import LIBRARY, Compile, Failure
from tc.trace.findings.advice import REFUSED, advise, gb_id
from tc.trace.findings.codes import Code, Order
from tc.trace.findings.hints import NO_FAKE, first_of, remedies_in, without_fake
from tc.trace.findings.model import Event, Finding, Occurrence, Where
from tc.trace.findings.rows import Facts, finding
from tc.trace.ids import cause_id
from tc.trace.session import all_compiles
from tc.trace.words import INDEX

_USER_FRAME: Final = re.compile(
    r'^\s*File "(.+)", line (\d+), in (\S+)[ \t]*$(?:\n[ \t]+(?!File "|\^)(\S.*))?', re.MULTILINE
)

_FULLGRAPH: Final = "fullgraph=True refuses graph breaks: fix the break, or drop fullgraph=True"
_OF_SHAPES: Final = "check the shapes, dtypes and devices of this call"
_FIXES: Final = (
    (
        re.compile(r"^BackendCompilerFailed [\s\S]*GuardOnData[\s\S]*target=operator\.getitem\]"),
        (INDEX, *REFUSED.fix),
    ),
    (re.compile(r"^BackendCompilerFailed [\s\S]*GuardOnDataDependent"), REFUSED.fix),
    (
        re.compile(r"BackendCompilerFailed|BackendError"),
        (
            "the backend is at fault, not the program: run with backend='aot_eager' to make sure",
            "report the error to the authors of the backend; the record of it is linked below",
        ),
    ),
    (
        re.compile(r"[Oo]bserved exception"),
        ("the code raises here: run it in eager mode to see which exception, and why",),
    ),
    (
        re.compile(r"AsPythonConstantNotImplementedError[\s\S]*SymNode"),
        (
            "compute it before the call, and pass what is needed there as a bool or a string: the "
            "number it is computed from has become dynamic, and this place needs a constant",
            "torch._dynamo.config.specialize_int = True: each number has a graph of its own",
        ),
    ),
    (
        re.compile(r"Cannot generate resume function for generator"),
        ("compile the functions that it calls, which run without `await` and `yield`",),
    ),
    (
        re.compile(r"Could not guard on data-dependent expression"),
        (
            "if it always holds: torch._check(condition), before it is asked",
            "compute both sides: torch.where(condition, a, b), or torch.cond",
        ),
    ),
    (
        re.compile(r"functorch tracing attempt"),
        (
            "fix the graph break in the function that calls torch.func.vmap, grad or the like: "
            "without it, what these are given is a part of the caller's graph",
            "compile the function that calls vmap, not the one that is passed to it",
        ),
    ),
    (
        re.compile(r"Unsupported|GraphBreak|FailOnRecompileLimitHit"),
        (_FULLGRAPH,),
    ),
    (
        re.compile(r"TorchRuntimeError|FakeTensor"),
        (_OF_SHAPES,),
    ),
    (
        re.compile(r"CppCompileError|InvalidCxxCompiler|CalledProcessError"),
        ("check that a working C++ compiler is installed: g++ --version, or set CXX",),
    ),
    (
        re.compile(r"^TracingFailed .*depends on tensor data", re.DOTALL),
        (
            "compute both sides: torch.where(condition, a, b), or torch.cond",
            "if it always holds: torch._check(condition), before it is asked",
        ),
    ),
    (re.compile(r"OutOfMemory|out of memory"), ("use a smaller batch, or free memory first",)),
)  # fmt: skip

_DAMAGE: Final = {
    "truncated": ("TC901", "the trace was cut off", "the program ended while it wrote"),
    "bad_json": ("TC902", "records that cannot be parsed", "their JSON is broken"),
    "payload_md5": ("TC903", "altered contents", "the checksum of a payload does not match"),
    "payload_missing": ("TC903", "missing contents", "a payload is announced, but not there"),
    "no_header": ("TC904", "lines that are no records", "other output was mixed in"),
    "orphan_payload": ("TC904", "contents without a record", "the record above them is damaged"),
    "bad_utf8": ("TC905", "bytes that are no UTF-8", "they are shown as U+FFFD"),
    "bad_number": ("TC906", "numbers that are not finite", "they are read as missing"),
    "bad_record": ("TC906", "records of an unexpected form", "they are left out of the report"),
    "no_event": ("TC906", "records without an event", "they are counted and left out"),
    "many_events": ("TC906", "records with several events", "only the first was read"),
    "unknown_string": ("TC907", "strings defined in another log", "give the whole folder"),
}


@finding(
    Code(
        "TC900",
        "a compile failed",
        "the message names the stage and the command that repeats it",
        "error",
    ),
    order=Order.FAILURES,
)
def failures(facts: Facts) -> list[Event]:
    """Return each failed compile of the run."""
    events = []
    for compiled in all_compiles(facts.session):
        failure = compiled.failure
        if failure is None:
            continue
        notes = compiled.noted("tc_error", "dynamo_error")
        note = notes[-1] if notes else None
        text = str(note.data) if note is not None and note.name == "dynamo_error" else ""
        mine = Where(compiled.file, compiled.line, function=compiled.function)
        where = _where(failure, text) or mine
        if (where.file, where.line, where.function) == (mine.file, mine.line, ""):
            where = mine
        reason = _last_reason(failure.reason)
        stage = failure.stage or failure.type
        lacks = without_fake(failure.reason)
        events.append(
            Event(
                code="TC900",
                title=f"{lacks} has no fake kernel" if lacks else _title(compiled, failure),
                why=NO_FAKE if lacks else reason or failure.type,
                fix=remedies_in(failure.reason) if lacks else _fix(failure, bool(compiled.call)),
                where=where,
                reason=failure.reason if failure.stage else f"{stage} {reason}",
                compiled=compiled,
                place=note.place if note else "",
                time=note.time if note else "",
                artifact=note.artifact if note else -1,
                evidence=failure.reason.strip(),
            )
        )  # fmt: skip
    return events


def _title(compiled: Compile, failure: Failure) -> str:
    if compiled.call:  # an export, say
        return f"{compiled.title} failed"
    if failure.stage:
        return f"{failure.stage} failed: {failure.type}"
    return f"compile failed: {failure.type}"


def _last_reason(text: str) -> str:
    lines = [line.strip().removeprefix("- ") for line in text.splitlines() if line.strip()]
    return next((line for line in lines if not _HEADING.search(line)), lines[0] if lines else "")


#: a line that only announces the reason below it
_HEADING: Final = re.compile(r"raised:$|^Constraints violated \(")


def _fix(failure: Failure, exported: bool) -> tuple[str, ...]:
    if failure.command and failure.stage != "backend":
        return (f"reproduce it with: {failure.command}",)
    text = f"{failure.type} {failure.reason}"
    known: tuple[str, ...] = next((fixes for pattern, fixes in _FIXES if pattern.search(text)), ())
    if _FULLGRAPH in known:
        known = (*_ways_out(failure), *known)
    if exported:
        known = tuple(fix for fix in known if fix != _FULLGRAPH)
    if _OF_SHAPES in known and is_in_try(failure.file, failure.line):
        known = (ASK_FIRST, *known)
    return tuple(dict.fromkeys(known)) if _FULLGRAPH in known else first_of(failure.reason, known)


def _ways_out(failure: Failure) -> tuple[str, ...]:
    """Return the ways out of the graph break that `fullgraph=True` makes an error of."""
    row, title = advise(gb_id(failure.reason), failure.reason)
    fix = first_of(failure.reason, row.fix)
    return fixes_at(row.code, failure.file, failure.line, "", fix, title)


def _where(failure: Failure, traceback: str) -> Where | None:
    """The innermost place of the user's own, of all that the failure names."""
    named = f"{traceback}\n{failure.reason}"
    frames = [Where(m[1], int(m[2]), function=m[3], source=(m[4] or "").strip())
              for m in _USER_FRAME.finditer(named)]  # fmt: skip
    texts = {(one.file, one.line): one.source for one in frames if one.source}
    around = function_at(failure.file, failure.line) if failure.file else None
    function = around.name if around is not None else ""
    source = texts.get((failure.file, failure.line), "")
    failed = [Where(failure.file, failure.line, function=function, source=source)]
    failed = failed if failure.file else []
    if failed and not LIBRARY.search(failure.file):
        return failed[0]
    mine = [one for one in frames if not LIBRARY.search(one.file)]
    return next(iter((*mine[-1:], *failed)), None)


@finding(
    Code(
        "TC909",
        "a compile has no end: the program was ended, or ended itself, while it compiled",
        "`tc-bisect PROGRAM` says where it hangs or dies, and at which line of yours",
        "error",
    ),
    order=Order.FAILURES,
)
def without_end(facts: Facts) -> list[Event]:
    """Return each compile that a program which has ended left unfinished."""
    cut = "truncated" in facts.session.defects.counts
    perhaps = ", or the log is not whole (TC901)" if cut else ""
    return [
        Event(
            code="TC909",
            title=f"{one.title} was never compiled to the end",
            why=f"the log ends in the step {one.left_in}: it hung, or the process died{perhaps}",
            fix=("tc-bisect on the program says where it hangs or dies",
                 "backend='aot_eager', or TC_DISABLE=1: see that the program runs without it"),
            where=Where(one.file, one.line, function=one.function),
            reason=one.left_in,
            compiled=one,
        )
        for one in all_compiles(facts.session)
        if one.under_way and one.left_in
    ]  # fmt: skip


@finding(
    Code("TC901", "the trace was cut off", "trace again and let the program run to its end"),
    Code(
        "TC902",
        "records that cannot be parsed: their JSON is broken",
        "give the log as it was written",
    ),
    Code(
        "TC903",
        "contents that do not match their checksum, or are missing",
        "give the log as it was written",
    ),
    Code(
        "TC904",
        "lines that are no records: other output was mixed in",
        "nothing: they are counted and left out",
    ),
    Code("TC905", "bytes that are no UTF-8", "nothing: they are shown as U+FFFD"),
    Code("TC906", "records of an unexpected form", "nothing: they are counted and left out"),
    Code(
        "TC907",
        "strings defined in another log",
        "give the folder that holds all logs of the run",
    ),
    order=Order.DAMAGE,
)
def damage(facts: Facts) -> list[Finding]:
    """Return what is wrong with the trace itself: one finding a kind."""
    found = []
    session = facts.session
    for kind, count in sorted(session.defects.counts.items()):
        code, title, why = _DAMAGE.get(kind, ("TC906", kind.replace("_", " "), "see the places"))
        places = session.defects.places[kind]
        fix = ("trace again and let the program run to its end",) if kind == "truncated" else ()
        if kind == "unknown_string":
            fix = ("give tc-report the folder that holds all logs of the run",)
        name = cause_id(code, "", kind, "")
        found.append(
            Finding(
                code=code,
                id=name,
                title=f"the trace: {title}",
                where=Where(),
                why=why,
                fix=fix,
                count=count,
                cost="",
                seconds=0.0,
                occurrences=tuple(Occurrence("", "", "", place, -1) for place in places),
            )
        )
    return found
