"""A session goes in; functions that were not captured, graphs that were not compiled, come out."""

from __future__ import annotations

import re
from typing import Final

from tc.trace.branches import is_context_manager, is_in_block
from tc.trace.compiles import LIBRARY, Calls, Compile, Failure, calls_in_python
from tc.trace.findings.advice import REFUSED, ROWS, advise, gb_id, row_of
from tc.trace.findings.codes import Code
from tc.trace.findings.hints import named_in
from tc.trace.findings.model import Event, Where, here
from tc.trace.findings.rows import Facts, finding
from tc.trace.lines import line_of
from tc.trace.recipes import CALLER
from tc.trace.session import all_compiles
from tc.trace.words import CALL_OUTSIDE, FROM_OUTSIDE

_TITLE = "{} runs in Python"
_IN_LOOP: Final = re.compile(r"graph break in loop|for/while loop")
_RAISES: Final = "TC131"
_LITTLE: Final = "nothing to do if it computes little: it runs as it does without the compiler"
#: words of a reason -> what to do about a function, or a graph, that runs in Python
_SKIPPED: Final = (
    ("<genexpr> is a generator", ("write a list in place of the generator expression",)),
    ("generator", ("build a list in place of yielding",)),
    ("coroutine", ("compile the functions that it calls",)),
)
_UNCOMPILED: Final = (
    ("a size is computed with", ("compute the size in integers, n * 3 // 4 in place of "
                                 "int(n * 0.75), or before the call",)),
    ("has a hook", ("register the hook outside of the compiled function, on what it returns",
                    "in place of the hook: a torch.autograd.Function, whose backward does what the "
                    "hook does, is a part of the graph")),
    ("alias annotations", ("return the new value from the operator, in place of writing to its "
                           "argument",)),
)  # fmt: skip
_OF_CONTEXT: Final = (
    "fix the graph break in it, or at the `with` that enters it: then it is a part of its caller",
    _LITTLE,
)
_COMPREHENSIONS: Final = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
#: a call of a module that gives random numbers, or the time
_FROM_OUTSIDE: Final = re.compile(rf"(?<![\w.])(?:{'|'.join(FROM_OUTSIDE)})\.\w+\(")
_BY_CALLER: Final = (CALLER.text,)
_APART: Final = "take this line out of the compiled function: what is left of it has kernels then"


@finding(
    Code(
        "TC190",
        "a function runs in Python altogether",
        "the reason is reported, with a fix where one is known",
        "skipped",
        eager=True,
    )
)
def skips(facts: Facts) -> list[Event]:
    """Return each skipped frame of the run."""
    return [event for one in all_compiles(facts.session) for event in _of(one)]


@finding(
    Code(
        "TC701",
        "a graph was captured, but runs op by op, without kernels of its own",
        "the reason is reported: a limit of the compiler, or a machine without a C compiler",
        eager=True,
    )
)
def eager_graphs(facts: Facts) -> list[Event]:
    """Return each captured graph that runs op by op, without kernels of its own."""
    events = []
    for compiled in facts.session.compiles:
        for note in compiled.noted("tc_graph_runs_eagerly"):
            why, _, place = str(note.data).partition("\n")
            file, _, line = place.rpartition(":")
            calls = compiled.calls if compiled.calls is not None else Calls()
            function = compiled.alias or compiled.function
            at = file, int(line) if line.isdigit() else 0
            events.append(
                Event(
                    code="TC701",
                    title=f"the graph of {compiled.title} is not compiled",
                    why=f"it was captured, but runs in eager mode: {why}",
                    fix=(*named_in(why, _UNCOMPILED, (_APART,) if file else ()), _LITTLE),
                    where=Where(*(at if file else compiled.own_place), function=function),
                    reason=why,
                    running=(calls.each or 0.0) * calls.eager,
                    times=calls.eager,
                    named=(compiled.own_place[0], function),
                    compiled=compiled,
                    place=note.place,
                    time=note.time,
                    artifact=note.artifact,
                )
            )
    return events


_REPLAY_FIXES: Final = {
    "mutation": "write to a tensor that stays where it is, such as a module's buffer",
    "dynamic": "give inputs of few sizes, or mode='default' for this function",
    "elsewhere": "move all inputs to the GPU before the call",
    "synchronises": "take .item() and the like out of the function",
    "alias": "return a clone of what shares memory with an input",
    "overlap": "give a contiguous input",
    "held": "drop results before the next call, or clone what is kept",
}


@finding(
    Code(
        "TC702",
        'launches were to be replayed as one CUDA graph (`mode="reduce-overhead"`), and are not',
        "the reason is reported: an input that is written to and moves, sizes that change often, "
        "tensors on another device",
    ),
    Code(
        "TC703",
        "a CUDA graph returns copies of its results",
        "drop results before the next call, or clone what is kept",
    ),
)
def unreplayed(facts: Facts) -> list[Event]:
    """Return each program that launches one by one, or copies results, though asked to replay."""
    events = []
    for compiled in facts.session.compiles:
        for note in compiled.noted("tc_cudagraph"):
            action, cause, why = (str(note.data.get(key, "")) for key in ("action", "cause", "why"))
            if action == "recorded":
                continue
            what = "is not replayed" if action == "refused" else "is replayed with copies"
            fix = _REPLAY_FIXES.get(cause)
            events.append(
                Event(
                    code="TC702" if action == "refused" else "TC703",
                    title=f"the {note.data.get('graph') or 'program'} of {compiled.title} {what}",
                    why=f"its launches were to be one CUDA graph: {why}",
                    fix=(fix,) if fix else (),
                    where=here(compiled),
                    reason=cause,
                    compiled=compiled,
                    place=note.place,
                    time=note.time,
                    artifact=note.artifact,
                )
            )
    return events


def _of(compiled: Compile) -> list[Event]:
    if compiled.given_up is not None:
        return [_given_up(compiled, compiled.given_up)]
    events = []
    for note in compiled.noted("tc_frame_skipped"):
        if note.data.get("harmless"):
            continue
        function = str(note.data.get("function") or compiled.function)
        line = note.data.get("line")
        fix = str(note.data.get("fix") or "")
        reason = str(note.data.get("reason") or "")
        at = str(note.data.get("file") or compiled.file), line if isinstance(line, int) else 0
        known = (*named_in(reason, _SKIPPED), _LITTLE)
        known = _OF_CONTEXT if "generator" in reason and is_context_manager(*at) else known
        events.append(
            Event(
                code="TC190",
                title=_TITLE.format(function),
                why=reason,
                fix=(fix,) if fix else known,
                where=here(compiled)
                if LIBRARY.search(at[0]) and compiled.file
                else Where(at[0], at[1] or compiled.line, function=function),
                named=(at[0], function),
                reason=reason,
                compiled=compiled,
                place=note.place,
                time=note.time,
                artifact=note.artifact,
                python_calls=calls_in_python(compiled),
            )
        )
    if not events and compiled.skipped:
        events.append(
            Event(
                code="TC190",
                title=_TITLE.format(compiled.title),
                why=compiled.skipped.partition("\n")[0],
                fix=(*named_in(compiled.skipped, _SKIPPED), _LITTLE),
                where=here(compiled),
                reason=compiled.skipped.partition("\n")[0],
                compiled=compiled,
                evidence=compiled.skipped,
            )
        )
    return events


def _given_up(compiled: Compile, failure: Failure) -> Event:
    """A frame that runs in Python because of a break in a loop or a block, or an exception."""
    broke = next(iter(compiled.noted("dynamo_graph_break_reason")), None)
    function = compiled.alias or compiled.function
    row = next(row for row in ROWS if row.code == "TC109")
    text = f"{failure.reason}\n{broke.data if broke is not None else ''}"
    cause = row_of(gb_id(failure.reason), failure.reason)
    if _IN_LOOP.search(text):
        title, why, fix = "it breaks inside a loop", row.why, row.fix
    elif cause is REFUSED:
        title, why, fix = cause.title, cause.why, cause.fix
    elif cause is not None and cause.code == _RAISES:
        row, title, fix = cause, "", cause.fix
        why = f"{advise(gb_id(failure.reason), failure.reason)[1]}: {cause.why}"
    elif function.rpartition(".")[2] in _COMPREHENSIONS:
        title, fix = "it is compiled by itself", _BY_CALLER
        why = "the function that it stands in runs in Python, and gives it what it goes through"
    elif failure.file and _FROM_OUTSIDE.search(line_of(failure.file, failure.line)):
        title, fix = "it breaks where it cannot be entered again", (CALL_OUTSIDE,)
        why = "what the line calls comes from outside of the program, and differs each time"
    elif failure.file and not is_in_block(failure.file, failure.line):
        title, fix = "it breaks where it cannot be entered again", ("fix the break at this line",)
        why = "there is no place after the break at which compiled code can continue"
    else:
        title = "it breaks where it cannot be entered again"
        why = (
            "the break is inside a block (try, with, a generator expression), and the rest cannot "
            "be compiled apart"
        )
        fix = ("fix the break at this line", "move what breaks out of the block")
    return Event(
        code=row.code,
        title=_TITLE.format(compiled.title) + (f": {title}" if title else ""),
        why=why,
        fix=fix,
        where=Where(failure.file, failure.line, function=function) if failure.file
        else Where(*compiled.home, function=function),
        reason="compiled by itself" if fix == _BY_CALLER else "given up",
        compiled=compiled,
        place=broke.place if broke else "",
        time=broke.time if broke else "",
        artifact=broke.artifact if broke else -1,
        evidence=failure.reason.strip(),
        seconds=compiled.seconds,
    )  # fmt: skip
