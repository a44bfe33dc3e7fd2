"""The recompiles of a run go in; what they show together of inputs that keep changing comes out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from tc.trace.branches import is_made_before_break
from tc.trace.decisions import is_plain_class
from tc.trace.findings.model import Cause, Recompile
from tc.trace.findings.remedies import subject_about
from tc.trace.guardtext import PARAMETER
from tc.trace.positions import is_used_whole
from tc.trace.recipes import (
    BRANCHES,
    COMPUTE,
    FEW,
    MEND_BREAK,
    RANGES,
    SIDES,
    STRUCTURES,
    Kind,
    Place,
    recipe_of,
    recipes,
)
from tc.trace.subjects import SPECIAL, part_of

Input = tuple[int, str, str]
"""(rank, frame, source) of an input."""
NUMBERS: Final = (Kind.NUMBER, Kind.ONE_NUMBER)


def of_input(one: Recompile, cause: Cause) -> Input:
    """Return which input of which frame a cause is about."""
    return one.compiled.lane.index, one.compiled.frame_id, cause.source


#: classes of torch's whose objects keep numbers for themselves; those of modules are settings
_KEEPER: Final = re.compile(r"torch\.(?!nn\.|_C\.)\w+\.")


def first_values(found: Sequence[Recompile]) -> dict[Input, str]:
    """Return the values that constants had when their functions were compiled first."""
    first: dict[Input, str] = {}
    for one in found:
        for cause in one.causes:
            if cause.kind == "constant" and cause.old:
                first.setdefault(of_input(one, cause), cause.old)
    return first


def as_guarded(one: Recompile, lead: Cause) -> Cause:
    """Return a cause in view of what the guards hold beside it.

    `contiguous()` changes no stride of a dimension of size 1, and what an object of torch's own
    counts is set nowhere in the program.
    """
    if lead.kind == "tensor" and (part := part_of(lead.source, "stride")):
        name, index = part
        if one.values.get(f"{name}.shape[{index}]") == "1":
            return replace(lead, kind="stride of one")
    if lead.kind == "size" and subject_about(lead).kind is Kind.SIZE and _is_twin(one, lead):
        return replace(lead, kind="twin")
    item = _ITEM.fullmatch(lead.source)
    of_numbers = item is not None and lead.line and subject_about(lead).kind in NUMBERS
    if item is not None and of_numbers and is_used_whole(lead.file, lead.line, item[1]):
        return replace(lead, source=item[1], kind="contents")
    lead = _with_types(one, lead)
    owner = one.held.get(f"type({lead.source.rpartition('.')[0]})", "")
    kind = subject_about(lead).kind
    if _KEEPER.match(owner) and kind in (*NUMBERS, Kind.NONE):
        return replace(lead, kind="internal" if kind in NUMBERS else "made")
    return lead


#: an item of a container, as guards name it
_ITEM: Final = re.compile(r"(.+)\[[^\[\]]+\]")


def _is_twin(one: Recompile, lead: Cause) -> bool:
    """Whether a size was as long as another one, which both compiles hold to that number.

    Sizes that are equal on the first call are one number to a compiler.
    """
    return any(
        source != lead.source
        and value == lead.old == one.values.get(source)
        and (size := _SIZE.fullmatch(source)) is not None
        and f"{size[1]}{PARAMETER}" not in one.held  # whose sizes are plain numbers in any case
        for source, value in one.held.items()
    )


_SIZE: Final = re.compile(r"(.+)\.shape\[\d+\]")


def _with_types(one: Recompile, lead: Cause) -> Cause:
    """Return a cause with what the guards know of a value that is None on some calls."""
    if lead.old == "None" and not lead.new:
        return replace(lead, new=one.values.get(f"type({lead.source})", ""))
    name = lead.source[len("type(") : -1] if lead.source.startswith("type(") else ""
    if name and one.values.get(name) == "None":
        return replace(lead, new="NoneType")
    return lead


def in_vain(found: Sequence[Recompile]) -> dict[Input, bool]:
    """Return the inputs that were made dynamic and are compiled for again all the same.

    Not those of which a condition failed: they stay dynamic, on the other side of it. True of those
    that changed from one number to another where neither is a constant of each graph, as 0 and 1.
    """
    dynamic: set[Input] = set()
    again: dict[Input, bool] = {}
    for one in found:
        for cause in one.causes:
            of = of_input(one, cause)
            if of in dynamic and subject_about(cause).kind not in _STAY_DYNAMIC:
                plain = SPECIAL.isdisjoint((cause.old, cause.new))
                again[of] = again.get(of, False) or plain
        dynamic |= {of_input(one, cause) for cause in one.causes if cause.now_dynamic}
    return again


_STAY_DYNAMIC: Final = (Kind.CONDITION, Kind.MULTIPLE, Kind.RANGE)


def inputs_of(found: Sequence[Recompile], kind: Kind) -> set[Input]:
    """Return the inputs that any recompile of their frames shows to be of a kind."""
    causes = ((one, cause) for one in found for cause in one.causes)
    return {of_input(one, cause) for one, cause in causes if subject_about(cause).kind is kind}


def static_sizes(found: Sequence[Recompile]) -> set[Input]:
    """Return the sizes that torch.compile could not make dynamic, as it does when one changes.

    A size that a second recompile finds held to a number was made dynamic in the first, and what
    the code does with it needs the number. The log has the settings by which it would not try.
    """
    changed: Counter[Input] = Counter()
    for one in found:
        settings = str(one.compiled.metrics.get("dynamo_config") or "")
        if _TRIES.search(settings) and not one.compiled.noted("tc_recompile"):
            changed.update({of_input(one, cause) for cause in one.causes
                            if not cause.now_dynamic and cause.new == one.values.get(cause.source)
                            and subject_about(cause).kind is Kind.SIZE})  # fmt: skip
    return {of for of, times in changed.items() if times > 1}


_TRIES: Final = re.compile(r'"automatic_dynamic_shapes": true')


#: half of the limit of recompiles: what took more values is no switch, a number counts
_FEW_VALUES: Final = 4


def counting(found: Sequence[Recompile]) -> set[Input]:
    """Return the inputs that took more values than what is worth a graph each."""
    taken: dict[Input, set[str]] = {}
    for one in found:
        for cause in one.causes:
            subject = subject_about(cause)
            if subject.kind in NUMBERS or FEW in recipes(subject.kind, subject.place):
                taken.setdefault(of_input(one, cause), set()).update((cause.old, cause.new))
    return {of for of, some in taken.items() if len(some) > _FEW_VALUES}


def marks(one: Recompile, lead: Cause) -> tuple[tuple[str, str], ...]:
    """Return (input, dimension) of all that has to be marked so that a recompile does not happen.

    A size that changed along with others may have to be equal to one of them, and marking it alone
    is an error then. Empty where one of them cannot be marked: it is made by the function itself,
    is no argument or a NumPy array, or was 0 or 1.
    """
    function = one.compiled.alias or one.compiled.function
    begins = one.compiled.file, one.compiled.line
    found = []
    for cause in (lead, *(other for other in one.causes if other.source != lead.source)):
        if cause.kind not in _OF_SIZES:
            continue
        subject = subject_about(cause, function)
        made = is_made_before_break(function, *begins, subject.name)
        an_array = _AN_ARRAY.search(cause.guard)
        can = subject.kind in (Kind.SIZE, Kind.TWIN) and subject.place is Place.LOCAL
        if not can or made or an_array:
            return ()
        found.append((subject.name, subject.index))
    return tuple(found) if len(found) <= _MOST_MARKS else ()


_MOST_MARKS: Final = 4
_OF_SIZES: Final = ("size", "twin")
_AN_ARRAY: Final = re.compile(r"\b(?:___from_numpy|as_tensor)\(")


def dicts_in(values: Mapping[str, str]) -> set[str]:
    """Return the last names of the inputs that guards hold to be dicts, or to have keys."""
    typed = (one[len("type(") : -1] for one, value in values.items()
             if one.startswith("type(") and _A_DICT.search(value))  # fmt: skip
    keyed = (one[len("list(") : -1] for one in values if _KEYS_OF.fullmatch(one))
    return {one.rpartition(".")[2] for one in (*typed, *keyed)}


_A_DICT: Final = re.compile(r"[dD]ict\b")
_KEYS_OF: Final = re.compile(r"list\([\w.\[\]']+\)")


def of_many_values(fix: tuple[str, ...], lead: Cause) -> tuple[str, ...]:
    """Return the fixes of an input that takes more values than what is worth a graph each."""
    left = tuple(text for text in fix if recipe_of(text) is not FEW)
    if BRANCHES in map(recipe_of, left) and subject_about(lead).kind in _PLAIN:
        return (COMPUTE.text.format(source=lead.source), *left)
    return left


#: kinds of which plain Python can make a number or a tensor before the call
_PLAIN: Final = (Kind.STRING, Kind.CONSTANT, Kind.NO_TENSOR, Kind.COUNT)


def at_limit(fix: tuple[str, ...], one: Recompile, lead: Cause) -> tuple[str, ...]:
    """Return the fixes of an input of a function that reached the limit: there is something to do.

    What continues after a graph break has no inputs, if nothing breaks.
    """
    left = tuple(text for text in fix if recipe_of(text) not in _NOT_AT_LIMIT)
    if left or one.compiled.line_of_resume:
        return left or (MEND_BREAK.text,)
    counted = lead.kind == "length" and not lead.of_tensors
    return (COMPUTE.text.format(source=lead.source),) if counted else ()


#: there is something to do where a function reached the limit
_NOT_AT_LIMIT: Final = (FEW, SIDES, STRUCTURES, RANGES)
_TORCHS: Final = "torch.nn.modules."


def is_plain_object(one: Recompile, lead: Cause) -> bool:
    """Whether an input is an attribute of an object whose class, of the same file, is no module."""
    held = one.held.get(f"type({lead.source.rpartition('.')[0]})", "")
    return is_plain_class(one.compiled.file, held.rpartition(".")[2])


def is_of_torch(one: Recompile, lead: Cause) -> bool:
    """Whether an input is an attribute of a module of torch's, whose code reads it as it is."""
    return one.held.get(f"type({lead.source.rpartition('.')[0]})", "").startswith(_TORCHS)
