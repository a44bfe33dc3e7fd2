"""A session goes in; its recompiles come out, each with the inputs that changed since the compile
it is nearest to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, Final

from tc.trace import guardtext
from tc.trace.compiles import LIBRARY, Compile
from tc.trace.findings.apart import (
    calls_of,
    functions_above,
    functions_of,
    gave_up,
    has_caller_in,
    is_apart,
    is_called,
    other_than,
)
from tc.trace.findings.changing import (
    NUMBERS,
    Input,
    as_guarded,
    at_limit,
    counting,
    dicts_in,
    first_values,
    in_vain,
    inputs_of,
    is_of_torch,
    is_plain_object,
    marks,
    of_input,
    of_many_values,
    static_sizes,
)
from tc.trace.findings.codes import Code
from tc.trace.findings.model import Cause, Event, Recompile, Where
from tc.trace.findings.reasons import COMMENT, parse_reason
from tc.trace.findings.remedies import remedy, subject_about
from tc.trace.findings.rows import Facts, finding
from tc.trace.findings.sites import named_by, read_at, stack_of, where_of
from tc.trace.ids import MODES, changed_apart, free_inputs, resets_before
from tc.trace.naming import with_argument_named
from tc.trace.parsed import parse_json
from tc.trace.recipes import (
    CLONED,
    MARK,
    Kind,
    recipe_of,
)
from tc.trace.session import Session, all_compiles
from tc.trace.subjects import (
    CONDITION,
    SPECIAL,
    Changed,
    aliased_by,
    is_of_presence,
    leading,
    of_module,
    part_of,
    reason_of,
    sort_of,
    sort_of_value,
)

_REASON: Final = re.compile(r"^(?P<of>!?[\d/\-!]+): (?P<text>.*)$", re.DOTALL)
_TC_NOTES: Final = ("tc_recompile", "tc_recompile_limit")


def recompiles(session: Session) -> list[Recompile]:
    """Return every recompile of the run, and every refusal to compile again."""
    found: list[Recompile] = []
    earlier: dict[tuple[int, str], list[Recompile]] = {}
    for compiled in sorted(all_compiles(session), key=lambda c: (c.lane.index, c.order)):
        before = earlier.setdefault((compiled.lane.index, compiled.frame_id), [])
        reasons = compiled.noted("recompile_reasons", *_TC_NOTES[: 1 if compiled.started else 2])
        this = Recompile(compiled, refused=not compiled.started)
        if before or reasons:
            this.values = guard_values(session, compiled)
        if reasons and not _is_beside_tc(compiled, before):
            _explain(session, this, before)
            found.append(this)
        if compiled.started:
            before.append(this)
    return found


def _is_beside_tc(compiled: Compile, before: Sequence[Recompile]) -> bool:
    """Return whether PyTorch's first compile of a function is called one because tc had its own.

    Both keep what they compile with the code object: PyTorch finds tc's entry, of another backend.
    """
    notes = compiled.noted("recompile_reasons")
    if before or not notes or compiled.noted(*_TC_NOTES) or compiled.id.rpartition("/")[2] != "0":
        return False
    return all("BACKEND_MATCH" in text for _, text in map(_split, _rows(str(notes[-1].data))))


def guard_values(session: Session, compiled: Compile) -> dict[str, str]:
    """Return what a compile holds each of its inputs to, from its recorded guards."""
    return guardtext.held(_guards_of(session, compiled), compiled.symbols)


def _guards_of(session: Session, compiled: Compile) -> str:
    trees = [one for one in compiled.artifacts if one.name == "dynamo_cpp_guards_str"]
    return session.text(trees[-1]) if trees else ""


def _explain(session: Session, this: Recompile, before: Sequence[Recompile]) -> None:
    notes = this.compiled.noted(*_TC_NOTES)
    if notes:
        data = notes[-1].data
        this.of = str(data.get("of") or "")
        of = next((one.values for one in before if one.compiled.id == this.of), {})
        held = this.held = {**this.values, **of}
        lines = guardtext.sizes_held(_guards_of(session, this.compiled))
        causes = _without_numbers(this.compiled, _tc_causes(data.get("causes")), lines)
        this.causes = tuple(_with_items(one, held) for one in causes)
        this.reasons = tuple((this.of, cause.guard) for cause in this.causes)
        return
    text = str(this.compiled.noted("recompile_reasons")[-1].data)
    this.reasons = tuple(_split(row) for row in _rows(text))
    for one in before:
        if not one.values:  # the first compile: its guards matter only now
            one.values = guard_values(session, one.compiled)
    nearest = _nearest(this, before)
    this.of = nearest.compiled.id if nearest else (this.reasons[0][0] if this.reasons else "")
    named = [parse_reason(text) for of, text in this.reasons if of == this.of]
    named = named or [parse_reason(text) for _, text in this.reasons[:1]]
    this.held = {**this.values, **(nearest.values if nearest else {})}
    changed = _changes(nearest, this) if nearest else {}
    this.causes = _merge(named, changed, nearest.values if nearest else {}, this.values)


def _nearest(this: Recompile, before: Sequence[Recompile]) -> Recompile | None:
    """Return the earlier compile that this one differs least from, the newest of equals.

    Each that refused differs by what it refused, though its guards hold no value of that: that a
    dict has no such key, say.
    """
    refused = {of: parse_reason(text) for of, text in this.reasons}

    def differing(one: Recompile) -> int:
        cause = refused.get(one.compiled.id)
        named = {cause.source: (cause.old, cause.new)} if cause is not None else {}
        return changed_apart({**named, **_changes(one, this)})

    rivals = [one for one in before if one.compiled.id in refused] or list(before)
    return min(rivals, key=lambda one: (differing(one), -one.compiled.order), default=None)


def _changes(old: Recompile, new: Recompile) -> dict[str, tuple[str, str]]:
    """Return source -> (old, new) of what the older compile fixed and the newer one has not."""
    return {
        source: (was, new.values[source])
        for source, was in old.values.items()
        if source in new.values and not fits(was, new.values[source])
    }


_CONSTANT_SIZES: Final = ("0", "1")  # where other sizes are dynamic, these are constants still
_SIZE: Final = re.compile(r"\.shape\[\d+\]$")


def apart(source: str, was: str, now: str) -> bool:
    """Whether two sizes need a graph each, even if the input is dynamic."""
    if not _SIZE.search(source):
        return False
    sizes = [plain(one) for one in (was, now)]
    special = [one for one in sizes if one in _CONSTANT_SIZES]
    return bool(special) and sizes[0] != sizes[1] and "dynamic" not in sizes


def fits(was: str, now: str) -> bool:
    """Whether a compile made for one value serves the other."""
    if was.startswith("dynamic"):
        return True
    if now.startswith("dynamic ("):
        return was == now[len("dynamic (") : -1]
    return was == now


def _merge(
    named: Sequence[Cause],
    changed: Mapping[str, tuple[str, str]],
    before: Mapping[str, str],
    after: Mapping[str, str],
) -> tuple[Cause, ...]:
    """The causes the compiler names, their missing values filled in, then the rest."""
    causes: dict[str, Cause] = {}
    for cause in named:
        now = after.get(cause.source, "")
        causes[cause.source] = Cause(
            source=cause.source,
            old=cause.old or plain(before.get(cause.source, "")),
            new=cause.new or plain(now),
            kind=cause.kind,
            guard=cause.guard,
            now_dynamic=now.startswith("dynamic"),
        )
    tensors = {source for source, value in before.items() if value == guardtext.A_TENSOR}
    for source, (was, now) in changed.items():
        of_layout = part_of(source, "stride")  # the first stride has the layout of a tensor
        if of_layout and any(cause.source.startswith(f"{of_layout[0]}.stride") for cause in named):
            continue
        if source not in causes and f"type({source})" not in causes:
            dynamic = now.startswith("dynamic")
            name = source.rpartition(".")[0]
            guard = "torch.nn.parameter.Parameter" if name + guardtext.PARAMETER in after else ""
            sort = sort_of_value(source, tensors)
            causes[source] = Cause(source, was, plain(now), sort, guard, dynamic)
    return tuple(_with_items(cause, {**before, **after}) for cause in causes.values())


def _with_items(cause: Cause, values: Mapping[str, str]) -> Cause:
    """Record of a length whether it is that of a dict, and whether there are tensors in it.

    Args:
        values: what the guards of both compiles hold.
    """
    if cause.kind != "length" or not cause.source.startswith("len("):
        return cause
    name = cause.source[len("len(") : -1]
    if any(one.startswith((f"list({name})", f"list({name}.values()")) for one in values):
        keys = f"{cause.old} keys" if cause.old.isdigit() else cause.old
        return replace(cause, source=f"list({name})", old=keys, kind="constant")
    an_item = re.compile(re.escape(name) + r"\[[^\].]*\]")
    items = [value for one, value in values.items() if an_item.fullmatch(one)]
    if values and guardtext.A_TENSOR not in items:
        return replace(cause, of_tensors=False)
    return cause


def _without_numbers(
    compiled: Compile, causes: Sequence[Cause], lines: Mapping[str, tuple[str, int]]
) -> list[Cause]:
    """Mark the sizes that were to become dynamic but that the code held to a number after all.

    Inputs of one size share a symbol: what holds one of them holds the others.

    Args:
        lines: size that is held -> the user's line that does.
    """
    fixed = {guardtext.readable(one) for one in compiled.fixed}
    values = {(one.old, one.new) for one in causes if one.source in fixed}
    places = {(one.old, one.new): lines[one.source] for one in causes if one.source in lines}
    found = []
    for one in causes:
        if one.kind == "size" and (one.old, one.new) in values:
            file, line = places.get((one.old, one.new), (one.file, one.line))
            one = replace(
                one, kind="shape", old=f"{one.source} == {one.old}", now_dynamic=False,
                file=file, line=line,
            )  # fmt: skip
        found.append(one)
    return found


def plain(value: str) -> str:
    """`dynamic (18)` -> `18`: what the input was, however it is held."""
    return value[len("dynamic (") : -1] if value.startswith("dynamic (") else value


def _tc_causes(raw: Any) -> tuple[Cause, ...]:
    """Read the causes of a tc_recompile artifact."""
    causes: list[Cause] = []
    rows = raw if isinstance(raw, list) else []
    for row in (row for row in rows if isinstance(row, dict)):
        source = guardtext.readable(str(row.get("source") or ""))
        guard = str(row.get("guard") or "")
        kind = str(row.get("kind"))
        if kind == CONDITION:
            place = _place(row)
            new, guard = str(row.get("new", "")), guardtext.tidied(guard)
            causes.append(Cause(source, guard, new, "shape", guard, False, *place))
            continue
        causes.append(
            Cause(
                source=source,
                old=guardtext.mode_value(source, _value(row.get("old", ""))),
                new=guardtext.mode_value(source, _value(row.get("new", ""))),
                kind=sort_of(source, kind),
                guard=guard,
                now_dynamic=bool(row.get("now_dynamic")),
                file=_place(row)[0],
                line=_place(row)[1],
            )
        )
    valued = {one.source for one in causes if not is_of_presence(one.old, one.new)}
    return tuple(
        one for one in causes if one.source not in valued or not is_of_presence(one.old, one.new)
    )


def advised(row: Mapping[str, Any], function: str, begins: tuple[str, int]) -> str:
    """Return the first fix for an input that changed, as tc reports it while a program runs.

    Args:
        begins: file and first line of the function that is compiled again.
    """
    (cause,) = _tc_causes([row])
    at = (cause.file, cause.line) if cause.line else begins
    return next(iter(remedy(cause, "tc", function, at=at, begins=begins)[2]), "")


_ENUM: Final = re.compile(r"^<([A-Za-z_]\w*(?:\.\w+)+): .*>$", re.DOTALL)


def _value(raw: object) -> str:
    """Return a value as a program writes it: `float32`, `Mode.FAST`."""
    return _ENUM.sub(r"\1", str(raw)).removeprefix("torch.")


def _place(row: Mapping[str, Any]) -> tuple[str, int]:
    """The line of the user's that made the guard matter."""
    line = row.get("line")
    return str(row.get("file") or ""), line if isinstance(line, int) else 0


def _rows(text: str) -> list[str]:
    """One reason is a plain string, several are a JSON list (PyTorch writes both as `json`)."""
    if text.lstrip().startswith("["):
        try:
            rows = parse_json(text)
        except ValueError:
            return [text]
        return [str(row) for row in rows] if isinstance(rows, list) else [text]
    return [text]


def _split(row: str) -> tuple[str, str]:
    match = _REASON.match(row.strip())
    return (match["of"], match["text"]) if match else ("", row.strip())


@finding(
    Code(
        "TC201",
        "an input changed, so the function was compiled again",
        "the title names the input; the table above has what to do for each kind",
        "recompile",
        page="recompiles.md",
    )
)
def recompiled(facts: Facts) -> list[Event]:
    """Turn recompiles into events, each under the cause that leads its function's recompiles."""
    made = []
    found, producer = facts.recompiles, facts.session.producer
    shared, vain = _shared(found), in_vain(found)
    held, special = inputs_of(found, Kind.HELD) | static_sizes(found), inputs_of(found, Kind.ONE)
    many, holding, first = counting(found), _holding(found), first_values(found)
    compiled_here = functions_of(all_compiles(facts.session))
    given_up = [c for c in all_compiles(facts.session) if gave_up(c)]
    limited = {(one.compiled.lane.index, one.compiled.frame_id) for one in found if one.refused}
    for one in found:
        if one.refused:
            continue
        note = one.compiled.noted("tc_recompile", "recompile_reasons")[-1]
        lead = _lead(one, shared)
        reason = reason_of(_changed(lead))
        lead = _as_found_later(one, replace(lead, first=first.get(of_input(one, lead), "")), vain,
                               held, holding)  # fmt: skip
        resumed = one.compiled.function if one.compiled.line_of_resume else ""
        named_so = resumed or one.compiled.alias or one.compiled.function
        sizes = [cause.source for cause in one.causes if cause.kind == "size"]
        at = (lead.file, lead.line) if lead.line else (one.compiled.file, one.compiled.line)
        called = is_called(one.compiled, compiled_here, given_up)
        in_python = other_than(one.compiled, given_up)
        called = called or is_apart(one, lead, in_python)
        marked = marks(one, lead)
        reason = _as_found(reason, lead, producer)
        title, why, fix = remedy(
            as_passed(one, lead), producer, named_so, sizes, at,
            (one.compiled.file, one.compiled.line), called,
            tuple((_named_argument(one, name), index) for name, index in marked),
            is_of_torch(one, lead), dicts_in(one.held), is_plain_object(one, lead),
        )  # fmt: skip
        if (one.compiled.lane.index, one.compiled.frame_id) in limited:
            fix = at_limit(fix, one, lead)
        fix = of_many_values(fix, lead) if of_input(one, lead) in many else fix
        can_mark = bool(marked) and of_input(one, lead) not in special
        can_mark = can_mark and not has_caller_in(one, in_python)
        fix = _that_can_be_made(fix, one, lead, can_mark)
        made.append(
            Event(
                code="TC201",
                title=title,
                why=why,
                fix=fix,
                where=where_of(one, note.data, lead),
                stack=stack_of(one),
                named=named_by(one, note.data),
                reason=reason,
                compiled=one.compiled,
                place=note.place,
                time=note.time,
                artifact=note.artifact,
                detail="; ".join(str(cause) for cause in one.causes),
                evidence="\n".join(f"[{of}] {_first(text)}" for of, text in one.reasons),
                causes=one.causes,
                seconds=one.compiled.seconds,
            )
        )
    return _of_one_switch(_at_one_place(made))


def _as_found(reason: str, lead: Cause, producer: str) -> str:
    """Return what distinguishes a cause in view of what is known of it after all."""
    if lead.kind == "contents":
        return f"items of {lead.source}"
    return f"branch on {lead.source}" if producer != "tc" and lead.kind == "shape" else reason


def _that_can_be_made(
    fix: tuple[str, ...], one: Recompile, lead: Cause, marked: bool
) -> tuple[str, ...]:
    """Return the fixes without those that cannot be made to an input.

    Args:
        marked: whether its size can be marked; to mark one of 0 or 1 is an error.
    """
    if one.compiled.id.startswith("!"):  # its inputs are no names of the user's
        return ()
    objects = any(f"type({name})" in one.held for name in (lead.source, aliased_by(lead.old)))
    no = [recipe for recipe, is_one in ((CLONED, objects), (MARK, not marked)) if is_one]
    return tuple(text for text in fix if recipe_of(text) not in no)


def _of_one_switch(events: Sequence[Event]) -> list[Event]:
    """Give a mode that was switched one place, though callees were compiled again as well.

    They are compiled by themselves because their caller runs in Python where it calls them.
    """
    first: list[Event] = []
    placed = []
    for one in events:
        if one.reason in MODES:
            root = next((of for of in first if _is_of_call(one, of)), one)
            first += [one] if root is one else []
            one = replace(one, where=root.where, stack=root.stack, named=root.named)
        placed.append(one)
    return placed


def _is_of_call(one: Event, first: Event) -> bool:
    """Whether a function was compiled again for a mode in the call that an earlier one was."""
    mine, of = one.compiled, first.compiled
    if (mine.lane, one.reason) != (of.lane, first.reason):
        return False
    if resets_before(mine.id) != resets_before(of.id):  # a line that runs one program after another
        return False
    return calls_of(mine) == calls_of(of) or bool(functions_of([of]) & functions_above(mine))


def _holding(found: Sequence[Recompile]) -> dict[Input, tuple[str, int]]:
    """Return inputs that are held to a number -> the user's line that needs it.

    A failed guard of tc has it, and a record of PyTorch's that a symbol became a constant. The
    first recompile knows only of the line where the size was first seen.
    """
    places: dict[Input, tuple[str, int]] = {}
    for one in found:
        for cause in one.causes:
            if cause.line and _IS_NUMBER.fullmatch(cause.guard.removeprefix(cause.source)):
                places.setdefault(of_input(one, cause), (cause.file, cause.line))
        lane, frame = one.compiled.lane.index, one.compiled.frame_id
        for source, place in one.compiled.held.items():
            places.setdefault((lane, frame, guardtext.readable(source)), place)
    return places


def as_passed(one: Recompile, lead: Cause) -> Cause:
    """Return a cause that names an argument of a wrapper as the user's call passes it."""
    return replace(
        lead, source=_named_argument(one, lead.source), old=_named_argument(one, lead.old)
    )


def _named_argument(one: Recompile, source: str) -> str:
    file = one.compiled.file
    if not LIBRARY.search(file) or _OPTIMIZERS.search(file):  # whose wrapper has itself there
        return source
    return with_argument_named(*one.compiled.own_place, source)


_OPTIMIZERS: Final = re.compile(r"[/\\]torch[/\\]optim[/\\]")


_IS_NUMBER: Final = re.compile(r" == \d+")


def _as_found_later(
    one: Recompile,
    lead: Cause,
    vain: Mapping[Input, bool],
    held: Set[Input],
    holding: Mapping[Input, tuple[str, int]],
) -> Cause:
    """Return a cause in view of what all recompiles of the run show of its input.

    Args:
        vain: inputs that are compiled for again though they were made dynamic.
        held: sizes that the code holds to a number, and ``holding`` the lines that do, if known.
    """
    if of_input(one, lead) in vain:
        is_dynamic, lead = lead.now_dynamic, replace(lead, now_dynamic=False)
        sort = subject_about(lead).kind
        to_number = lead.source in map(guardtext.readable, one.compiled.held)
        to_number = to_number or vain[of_input(one, lead)]
        small = lead.new in SPECIAL or (is_dynamic and not to_number and lead.old in SPECIAL)
        if sort is Kind.ONE_NUMBER and small:
            return replace(lead, kind="small")
        if sort in NUMBERS:  # what the code does with it needs the value
            lead = replace(lead, kind="shape", old=f"{lead.source} == {lead.old}")
    if lead.kind == "size" and of_input(one, lead) in held:  # then nothing makes it dynamic
        lead = replace(lead, kind="shape", old=f"{lead.source} == {lead.old}")
    if lead.kind == "shape" and of_input(one, lead) in holding:
        file, line = holding[of_input(one, lead)]
        lead = replace(lead, file=file, line=line)
    return read_at(one, as_guarded(one, lead))


def _at_one_place(events: list[Event]) -> list[Event]:
    """Give events of one cause the line that any of them names; PyTorch may leave it out."""
    known: dict[tuple[str, str, str], Where] = {}
    for one in events:
        if one.where.source:
            known.setdefault((one.compiled.file, one.compiled.function, one.reason), one.where)
    return [
        one
        if one.where.source
        else replace(
            one, where=known.get((one.compiled.file, one.compiled.function, one.reason), one.where)
        )
        for one in events
    ]


def _shared(found: Sequence[Recompile]) -> dict[str, Counter[str]]:
    """Return how many recompiles of each frame, over all ranks, name each input."""
    shared: dict[str, Counter[str]] = {}
    for one in found:
        if not one.refused:
            named = shared.setdefault(one.compiled.frame_id, Counter())
            named.update(cause.source for cause in one.causes)
    return shared


def _changed(one: Cause) -> Changed:
    return Changed(one.source, one.old, one.new, one.kind, one.guard, one.now_dynamic)


def _lead(one: Recompile, shared: Mapping[str, Counter[str]]) -> Cause:
    """The cause that a recompile is reported under.

    Of tc's traces the one that its log names, of PyTorch's the one most recompiles share, a switch
    only if all that changed beside it is dynamic from now on.
    """
    if one.compiled.noted("tc_recompile") and one.causes:
        name = leading(list(map(_changed, one.causes)))
        return next(cause for cause in one.causes if cause.source == name)
    if not one.causes:
        return Cause("an input", "", "", "other")
    parts = [cause for cause in one.causes if of_module(_changed(cause))]
    if parts:
        return parts[0]
    named = shared[one.compiled.frame_id]
    are_free = free_inputs([(cause.source, cause.new) for cause in one.causes])
    free = [cause for cause, is_free in zip(one.causes, are_free, strict=True)
            if is_free and not cause.now_dynamic]  # fmt: skip
    return max(free or one.causes, key=lambda cause: named[cause.source])


def _first(text: str) -> str:
    return COMMENT.sub("", text.partition("\n")[0]).strip()
