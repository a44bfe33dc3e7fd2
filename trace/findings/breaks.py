"""A session goes in; its graph breaks, of PyTorch's traces and of tc's, come out as events."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace
from typing import Any, Final

from tc.trace.branches import is_with_header
from tc.trace.breakfixes import fixes_at, is_of_context
from tc.trace.compiles import LIBRARY, Compile, Note, own
from tc.trace.findings.advice import (
    CONTEXT,
    INSTEAD,
    OF_LIBRARY,
    OPTIMIZER_STEP,
    OTHER,
    PLACE,
    REFUSED,
    ROWS,
    advise,
    gb_id,
    row_of,
)
from tc.trace.findings.apart import functions_of, gave_up, is_called, last_name
from tc.trace.findings.codes import OTHER_BREAK, Code
from tc.trace.findings.hints import NO_FAKE, first_of, remedies_in, without_fake
from tc.trace.findings.model import Event, Where, here
from tc.trace.findings.rows import Facts, finding
from tc.trace.ids import is_resumed, plain_function, resume_names
from tc.trace.recipes import CALLER, MEND_BREAK
from tc.trace.session import Session, all_compiles

_REASON: Final = re.compile(r"^(?:Graph Break )?Reason: (.*)$", re.MULTILINE)
_OUTER: Final = re.compile(
    r"^Encountered graph break|^Failed to handle graph break|^Graph break .*:$"
)
_EXPLAIN: Final = re.compile(r"^\s*Explanation: (.*)$", re.MULTILINE)
_FRAME: Final = re.compile(r'^\s*File "(.+)", line (\d+), in (\S+)\s*$')
#: PyTorch writes the error of a backend under the same name, before the break that it makes of it
_ANNOUNCED: Final = re.compile(r"WON'T CONVERT \S")
_CARETS: Final = re.compile(r"^\s*\^+\s*$")
_TRAIL: Final = re.compile(r"\s*:?\s+#[^'\"]*$")
_LOOKS_LIKE_BREAK: Final = re.compile(r"Explanation:|^call_function|^builtin|generic_jump", re.M)
PHRASES: Final = (PLACE, _REASON, _OUTER, _EXPLAIN, _LOOKS_LIKE_BREAK)  # PyTorch's, read here


def _codes() -> Iterator[Code]:
    """The codes of breaks, as the table of advice has them.

    The compiler has rows of its own (`compiler/capture/breaks.py`): a log brings their codes.
    """
    first = {row.code: row for row in (OTHER, *reversed(ROWS))}
    for name in sorted(first.keys() - {"TC209"}):  # the recompile limit is a finding of its own
        row = first[name]
        title = row.title.replace("{}", "…")
        yield Code(name, title, "; ".join(row.fix), "break", page="graph-breaks.md")


@finding(*_codes())
def graph_breaks(facts: Facts) -> list[Event]:
    """Return each graph break of the run once."""
    compiles = list(all_compiles(facts.session))
    known = functions_of(compiles)
    given_up = [one for one in compiles if gave_up(one)]
    found = [_known_by(event, known, given_up) for compiled in compiles for event in _of(compiled)]
    spent = _spawned(found, compiles)
    passed, times = _between(found, facts.session)
    return [
        replace(event, seconds=spent[n], between=passed[n], times=times[n])
        for n, event in enumerate(found)
    ]


def _between(events: Sequence[Event], session: Session) -> tuple[list[float], list[int]]:
    """The running time that passes at each break, outside of programs, and how often.

    It passes between the graph that the break ends and that of the function which continues after
    it: the line that broke, guards and dispatch; and in backward between the same two graphs, the
    other way round. The resume function's name identifies the break where the trace has it, else
    the program before; what several breaks lead to the same counts for the first of them.
    """
    ended: dict[tuple[int, str], int] = {}
    named: dict[tuple[int, str, str], int] = {}
    for number, event in enumerate(events):
        lane, file = event.compiled.lane.index, event.compiled.file
        ended[lane, event.compiled.id] = number
        for name in _resumed(event):
            named.setdefault((lane, file, name), number)
    passed, times = [0.0] * len(events), [0] * len(events)
    for owner, cost in session.step_costs:
        lane, pairs = owner.index, {}
        for row in cost.rows:
            if row.between and row.graph != "backward" and is_resumed(row.function):
                name = row.function.rpartition(".")[2]
                at = named.get((lane, row.file, name), ended.get((lane, row.after[0])))
                if at is not None:
                    passed[at] += row.steady
                    times[at] += row.calls
                    pairs[row.compile, row.after[0]] = at
        for row in cost.rows:
            at = pairs.get((row.after[0], row.compile))
            if row.between and row.graph == row.after[1] == "backward" and at is not None:
                passed[at] += row.steady
    return passed, times


def _spawned(events: Sequence[Event], compiles: Iterable[Compile]) -> list[float]:
    """The compile time of the resume functions that exist because of each break.

    A resume function that several breaks lead to counts for the last of them before it.
    """
    awaited: dict[tuple[int, str, str], list[int]] = {}
    for number, event in enumerate(events):
        for name in _resumed(event):
            key = event.compiled.lane.index, event.compiled.file, name
            awaited.setdefault(key, []).append(number)
    spent = [0.0] * len(events)
    for one in compiles:
        by = awaited.get((one.lane.index, one.file, one.function), ())
        before = [n for n in by if events[n].compiled.order < one.order]
        if before:
            spent[max(before, key=lambda n: (events[n].compiled.order, n))] += one.seconds
    return spent


def _resumed(event: Event) -> set[str]:
    frames = [(frame.function, frame.line) for frame in event.stack or (event.where,)]
    return resume_names(event.compiled.function, frames, event.resume)


def _of(compiled: Compile) -> Iterator[Event]:
    notes = compiled.noted("tc_graph_break")
    if notes:  # each has a twin in PyTorch's form, for other readers
        for note in notes:
            yield from_tc(compiled, note)
        return
    every = compiled.noted("dynamo_graph_break_reason")
    notes = [note for note in every if not _ANNOUNCED.match(str(note.data))]
    each: dict[tuple[str, Where], Event] = {}  # capture that starts over may report a break again
    for event in (from_torch(compiled, note) for note in notes or every):
        each.setdefault((event.reason, event.where), event)
    yield from each.values()
    yield from _restarts(compiled, [str(note.data) for note in notes])


def _restarts(compiled: Compile, notes: list[str]) -> Iterator[Event]:
    """Breaks of old PyTorch versions, seen only as the reason of an analysis restart."""
    reasons = compiled.metrics.get("restart_reasons")
    for reason in reasons if isinstance(reasons, list) else ():
        text = str(reason)
        head = text.strip().partition("\n")[0]
        if not _LOOKS_LIKE_BREAK.search(text) or any(head in other for other in notes):
            continue
        advice, title = advise(gb_id(text), text)
        yield Event(
            code=advice.code,
            title=title if advice.code != OTHER_BREAK else _sentence(head),
            why=advice.why,
            fix=advice.fix,
            where=Where(*compiled.home, function=compiled.alias or compiled.function),
            reason=head,
            compiled=compiled,
            evidence=text,
            detail="seen as an analysis restart",
        )


def from_tc(compiled: Compile, note: Note) -> Event:
    """Turn a tc_graph_break artifact into an event."""
    data: dict[str, Any] = note.data
    where = Where(
        file=str(data.get("file") or ""),
        line=_int(data.get("line")) or 0,
        col=_int(data.get("col")),
        end_col=_int(data.get("end_col")) if data.get("end_line") in (None, data.get("line"))
        else None,
        function=str(data.get("function") or ""),
        source=str(data.get("source_line") or ""),
    )  # fmt: skip
    detail = str(data.get("detail") or "")
    title = str(data.get("title") or "graph break")
    lacks = without_fake(detail)
    stack = tuple(_stack(data.get("stack")))
    named = where.file, where.function
    if LIBRARY.search(where.file):
        theirs = here(compiled)
        where = own(stack) or (theirs if not LIBRARY.search(theirs.file) else where)
    code, reason, at = str(data.get("code") or OTHER_BREAK), title, (where.file, where.line)
    why, fix = str(data.get("why") or ""), _texts(data.get("fix"))
    if lacks:
        title, why, fix = f"{lacks} has no fake kernel", NO_FAKE, remedies_in(detail)
    elif code != CONTEXT.code and (_enters(where, stack) or is_of_context(title, *at, False)):
        code, why, fix = CONTEXT.code, f"{CONTEXT.why}: {title}", CONTEXT.fix
        reason = title = CONTEXT.title
    return Event(
        code=code,
        title=title,
        why=why,
        fix=fix,
        where=where,
        reason=reason,
        compiled=compiled,
        place=note.place,
        time=note.time,
        artifact=note.artifact,
        detail=detail,
        evidence=detail,
        stack=stack,
        named=named,
        resume=str(data.get("resume") or ""),
    )


def from_torch(compiled: Compile, note: Note) -> Event:
    """Turn a dynamo_graph_break_reason artifact into an event."""
    text = str(note.data)
    stack = _user_stack(text)
    place = PLACE.search(text)
    reason = _reason(text)
    number = gb_id(text)
    advice, title = advise(number, text)
    own_home = here(compiled)
    where = own(stack) or (stack[-1] if stack and not compiled.frames else own_home)
    if place and not stack:
        where = Where(place[1], int(place[2]), function=compiled.original)
    explained = _EXPLAIN.search(text)
    why = advice.why
    ways = _for_torchs(advice.fix) if _OF_TORCH.search(text) else advice.fix
    fix = first_of(text.partition("\nTraceback (most recent")[0], ways)
    if any(_SUBGRAPHS.search(f"{at.file} {at.source}") for at in stack):
        fix = tuple(one for one in fix if not _OF_LOGS.search(one))
    within = stack[-1].file if stack else ""
    callers = [(at.file, at.line) for at in _inlined(stack, compiled)[:-1]]
    fix = fixes_at(advice.code, where.file, where.line, where.source, fix, title, within, callers)
    if lacks := without_fake(text):
        title, why, fix = f"{lacks} has no fake kernel", NO_FAKE, remedies_in(text)
    unknown = advice.code == OTHER_BREAK and is_with_header(where.file, where.line)
    if unknown or _enters(where, stack):
        advice, fix, title = CONTEXT, CONTEXT.fix, CONTEXT.title
        why = f"{CONTEXT.why}: {_sentence(reason)}"
    if advice in (OPTIMIZER_STEP, OF_LIBRARY):  # no hint of PyTorch's knows whose code it is
        fix = advice.fix
    rows = (row for row in text.splitlines() if not _FRAME.match(row))  # they only lead there,
    said = "\n".join((*rows, within))  # all but the innermost
    known_as = title if advice is OPTIMIZER_STEP else f"{number or ''} {reason}".strip()
    if special := [say for pattern, say in INSTEAD if pattern.search(said)]:
        fix, known_as = (special[0],), special[0]
    if advice.code == OTHER_BREAK:
        title = _sentence(reason)
        why = explained[1].strip() if explained else why
    return Event(
        code=advice.code,
        title=title,
        why=why,
        fix=fix,
        where=where,
        reason=known_as,
        compiled=compiled,
        place=note.place,
        time=note.time,
        artifact=note.artifact,
        evidence=_evidence(text),
        reference=f"GB{number:04}" if number is not None else "",
        stack=tuple(stack),
        named=(stack[-1].file, stack[-1].function) if stack else None,
    )


def _inlined(stack: Sequence[Where], compiled: Compile) -> Sequence[Where]:
    """Return the frames of a break from that of the compiled function on, without its callers."""
    mine = compiled.file, last_name(plain_function(compiled.original))
    at = [n for n, one in enumerate(stack)
          if (one.file, last_name(plain_function(one.function))) == mine]  # fmt: skip
    return stack[at[-1] :] if at else ()


#: a function of torch's that PyTorch itself does not trace: no program can register it
_OF_TORCH: Final = re.compile(r"that the function `[^`]*` in file `[^`]*[/\\]torch[/\\]")
_REGISTERS: Final = re.compile(r"custom_op|allow_in_graph")


def _for_torchs(ways: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(one for one in ways if not _REGISTERS.search(one))


#: frames whose callees torch.compile traces into a graph within the graph, out of which it loses
#: the calls that it was to make later: transforms, checkpoints, functions with a backward
_SUBGRAPHS: Final = re.compile(
    r"[/\\]torch[/\\](?:_functorch[/\\]|utils[/\\]checkpoint\.py)|\w\.apply\("
)
_OF_LOGS: Final = re.compile(r"\breorderable_logging_functions\b")


#: code that is compiled where the program compiles an optimizer's step
_OPTIMIZERS: Final = re.compile(r"[/\\]torch[/\\](?:optim|_dynamo)[/\\]")
#: for a library function that is compiled by itself: settings for calls that are traced do nothing
_MOVE_OUT: Final = "move the call out of the compiled function"
_STEP_ALONE: Final = ("nothing to do: the step is what is compiled, as a graph of its own",)


def _known_by(event: Event, known: Set[tuple[str, str]], given_up: Sequence[Compile]) -> Event:
    """Return a break with the way out that is known by what else was compiled.

    Args:
        known: (file, function) of all that was compiled.
        given_up: what runs in Python because of a break; a library that it calls is compiled apart.
    """
    if _is_step_itself(event, known):
        return replace(event, fix=_STEP_ALONE)
    if _OF_CONTEXT.search(event.title):
        return replace(event, fix=(CALLER.text,))
    if _METHOD.search(event.title) and event.compiled.line_of_resume == event.where.line:
        return replace(event, fix=(MEND_BREAK.text,))
    mine = event.compiled
    calls = [(at.file, last_name(at.function)) for at in event.stack]
    at = next((n for n, one in enumerate(calls) if one in functions_of([mine])), 0)
    within = [file for file, _ in calls[at:]]
    if not within or not all(map(LIBRARY.search, within)) or event.code == OPTIMIZER_STEP.code:
        return event
    above = any(one in known and not LIBRARY.search(one[0]) for one in calls[:at])
    is_apart = above or is_called(mine, known, given_up)
    return replace(event, fix=(_MOVE_OUT, CALLER.text)) if is_apart else event


#: what `forward` of an autograd.Function does to its context, which only `apply` gives it: it is
#: compiled by itself where `apply` runs in Python
_OF_CONTEXT: Final = re.compile(r"^store to ctx\.\w+ cannot be replayed")
#: a method of a tensor that a break on the same line has passed on, before it was called
_METHOD: Final = re.compile(r"^call of Tensor\.\w+ that the tracer cannot look into")


def _is_step_itself(event: Event, known: Set[tuple[str, str]]) -> bool:
    """Whether the break is the one around an optimizer's step that the program compiles itself.

    Args:
        known: (file, function) of all that was compiled.
    """
    of_step = event.code == OPTIMIZER_STEP.code and _OPTIMIZERS.search(event.compiled.file)
    return bool(of_step) and not is_called(event.compiled, known)


def _enters(where: Where, stack: Sequence[Where]) -> bool:
    """Whether the break is in a context manager of a library that the user's line enters."""
    in_library = bool(stack) and LIBRARY.search(stack[-1].file) is not None
    return in_library and is_with_header(where.file, where.line)


def _reason(text: str) -> str:
    """Return the innermost reason: the outer one only says that something inside broke."""
    match = _REASON.search(text)
    if match is None:
        return next((line.strip() for line in text.splitlines() if line.strip()), "graph break")
    lines = [match[1], *text[match.end() :].splitlines()]
    said = [line.strip() for line in lines if line.strip()]
    if said and _OUTER.match(said[0]) and len(said) > 1:
        return said[1]
    return said[0] if said else "graph break"


def _user_stack(text: str) -> list[Where]:
    """The calls that led to the break, the operation in the graph that a backend refused last."""
    stack = _frames(text.partition("User code traceback:")[2])
    _, found, rest = text.partition("Original traceback:\n")
    is_refused = found and row_of(gb_id(text), text) is REFUSED
    refused = _frames(rest.partition("\n\n")[0]) if is_refused else []
    return [*(one for one in stack if one not in refused), *refused]


def _frames(text: str) -> list[Where]:
    rows = text.splitlines()
    stack: list[Where] = []
    for number, row in enumerate(rows):
        if row.startswith("Traceback (most recent"):
            break
        match = _FRAME.match(row)
        if match is None:
            continue
        source, col, end_col = _source_at(rows, number + 1)
        stack.append(Where(match[1], int(match[2]), col, end_col, match[3], source))
    return stack


def _source_at(rows: list[str], at: int) -> tuple[str, int | None, int | None]:
    """Return the source line a traceback shows, and the columns its carets mark."""
    if at >= len(rows) or _FRAME.match(rows[at]) or not rows[at].strip():
        return "", None, None
    source = rows[at].strip()
    if at + 1 < len(rows) and _CARETS.match(rows[at + 1]):
        shift = len(rows[at]) - len(rows[at].lstrip())
        carets = rows[at + 1]
        start = carets.index("^") - shift
        stop = len(carets.rstrip()) - shift
        if 0 <= start < len(source):
            trail = _TRAIL.search(source, start)  # carets of the last operand run to the end
            return source, start, min(stop, trail.start() if trail else len(source))
    return source, None, None


def _evidence(text: str) -> str:
    """The compiler's own words, without its own stack."""
    text = text.partition("\nTraceback (most recent call last)")[0].strip()
    return text.removesuffix("NoneType: None").strip()


def _stack(raw: object) -> Iterable[Where]:
    for frame in raw if isinstance(raw, list) else ():
        if isinstance(frame, dict):
            yield Where(
                file=str(frame.get("file") or frame.get("filename") or ""),
                line=_int(frame.get("line")) or 0,
                col=_int(frame.get("col")),
                end_col=_int(frame.get("end_col")),
                function=str(frame.get("name") or ""),
                source=str(frame.get("loc") or ""),
            )


def _texts(raw: object) -> tuple[str, ...]:
    if isinstance(raw, str):
        return (raw,) if raw else ()
    return tuple(str(item) for item in raw) if isinstance(raw, list) else ()


def _int(raw: object) -> int | None:
    return raw if isinstance(raw, int) and not isinstance(raw, bool) else None


def _sentence(text: str) -> str:
    return text[:120].rstrip(".: ") or "graph break"
