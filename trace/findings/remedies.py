"""The cause of a recompile goes in; a title, the reason in plain words, and fixes come out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Final

from tc.trace.branches import (
    containers_of_key,
    is_appended_to,
    is_appended_to_in_module,
    is_filled,
    is_keywords,
    is_looped_over,
    is_made_before_break,
    is_made_when_missing,
    is_read,
    is_tested,
    only_reports,
)
from tc.trace.decisions import is_given_to_least, is_given_to_math, is_read_back
from tc.trace.findings.model import Cause
from tc.trace.ids import is_resumed
from tc.trace.naming import with_cell_named, with_field_named
from tc.trace.positions import (
    is_dimension,
    is_exponent,
    is_gone_through,
    is_spelled_out,
    is_stored,
    is_used_as_index,
)
from tc.trace.recipes import (
    BUFFER,
    COMPUTE,
    LEAST,
    MARK_MADE,
    TEST_OUTSIDE,
    WHERE,
    ZERO_D,
    Kind,
    Place,
    Recipe,
    Subject,
    advice,
    recipe_of,
)
from tc.trace.subjects import GLOBALS, OF_OPTIMIZER, is_number, subject_of
from tc.trace.words import alike, grouped

Words = tuple[str, str, tuple[str, ...]]


def remedy(
    cause: Cause,
    producer: str,
    function: str = "",
    together: Sequence[str] = (),
    at: tuple[str, int] = ("", 0),
    begins: tuple[str, int] = ("", 0),
    called: bool = False,
    marked: tuple[tuple[str, str], ...] = (),
    of_torch: bool = False,
    dicts: Set[str] = frozenset(),
    of_object: bool = False,
) -> Words:
    """Return (title, why, fixes).

    Args:
        producer: whose functions the fixes name.
        function: the compiled function.
        together: the inputs of this kind that changed at the same time.
        at: file and line of the function, or of a line in it.
        begins: file and first line of the function that was compiled.
        called: it is library code, whose caller runs in Python.
        marked: (input, dimension) of the sizes that would have to be marked dynamic.
        of_torch: it is an attribute of a module of torch's own.
        dicts: last names of what is known to be a dict.
        of_object: it is an attribute of an object that is known to be no module.
    """
    subject, cause = _named(subject_about(cause, function), cause, at)
    if of_object and subject.place is Place.MODULE:  # which has no buffers
        subject = replace(subject, place=Place.ATTRIBUTE)
    of_one_sort = is_number(cause.first) == is_number(subject.old)  # None, then numbers
    if cause.first and cause.kind == "constant" and of_one_sort:
        subject = replace(subject, old=cause.first)
    if subject.kind in _NUMBERS and dicts & containers_of_key(*at, subject.name):
        subject = replace(subject, kind=Kind.HELD_NUMBER)
    subject = replace(subject, kind=_by_use(subject, cause, at, of_torch))
    if subject.kind in _LISTS and is_appended_to_in_module(begins[0], subject.name):
        subject = replace(subject, kind=Kind.APPENDED)
    if subject.kind is Kind.APPENDED and is_read_back(*at, subject.name):
        subject = replace(subject, kind=Kind.READ_BACK)
    if subject.kind is Kind.INTERNAL:  # of a dict of torch's, its name and not the keys
        subject = replace(subject, source=subject.name)
        cause = replace(cause, source=subject.name)
    in_step = OF_OPTIMIZER.search(subject.source)  # which is a graph of its own, whoever calls it
    if called and subject.place is not Place.PROCESS and not in_step:
        subject = replace(subject, kind=Kind.CALLED)
    named = _passed(together)
    if subject.kind is Kind.SIZE and not marked and len(named) <= _MOST_MARKS:
        marked = tuple((one.name, one.index) for one in named)
    subject = replace(subject, marked=marked)
    made = _is_made_inside(subject, cause, function, begins)
    title, why = _ROWS[subject.kind](subject, cause)
    if made and subject.kind is Kind.STRUCTURE:  # the parameter of this turn, not other modules
        subject = replace(subject, kind=Kind.ACROSS_BREAK)
    if subject.kind is Kind.GROWS and len(named) > 1:
        title = f"{grouped([one.source for one in named])} grow together"
        subject = replace(subject, name=", ".join(alike([one.name for one in named])))
    return title, why, _that_hold(advice(subject, producer, made), subject, at)


def _that_hold(fixes: tuple[str, ...], subject: Subject, at: tuple[str, int]) -> tuple[str, ...]:
    """Return the fixes of an input that hold in view of what the code at a line does with it."""
    kind, name = subject.kind, subject.name
    stored = is_stored(*at, name)  # by the function: there is no place before the first call
    instead: dict[Recipe | None, Recipe] = {}
    if kind in _BY_TEST and is_used_as_index(*at, name):  # a tensor is no position
        instead[WHERE] = TEST_OUTSIDE
    if is_given_to_least(*at, name):
        instead |= dict.fromkeys((ZERO_D, BUFFER), LEAST)
    if is_given_to_math(*at, name):  # which takes no tensors
        instead |= dict.fromkeys((ZERO_D, BUFFER, WHERE), COMPUTE)
    if stored and kind is Kind.HELD_NUMBER and is_tested(*at, name):
        instead[COMPUTE] = TEST_OUTSIDE
    fixes = tuple(text for text in fixes if not stored or recipe_of(text) is not MARK_MADE)
    words = {"name": name, "source": subject.source}
    return tuple(
        other.text.format_map(words) if (other := instead.get(recipe_of(text))) else text
        for text in fixes
    )


def _named(subject: Subject, cause: Cause, at: tuple[str, int]) -> tuple[Subject, Cause]:
    """Return an input by the name that the code at a line has for it."""
    if cause.line and subject.place is Place.CLOSURE:  # the line is of the function that has it
        cause = replace(cause, source=with_cell_named(*at, cause.source))
        name = with_cell_named(*at, subject.name)
        subject = replace(subject, source=cause.source, name=name)
    if field := _field_named(at, subject.name):
        cause = replace(cause, source=cause.source.replace(subject.name, field))
        subject = replace(subject, source=subject.source.replace(subject.name, field), name=field)
    return subject, cause


def _field_named(at: tuple[str, int], name: str) -> str:
    """Return the name of a field of a named tuple, where the code reads it so; else nothing."""
    named = with_field_named(*at, name)
    return named if named != name else ""


def _passed(sizes: Sequence[str]) -> list[Subject]:
    """Return the sizes of what a program passes: no value from before a graph break has a name."""
    found = (subject_about(Cause(one, "", "", "size")) for one in sizes)
    return [one for one in found if one.kind is not Kind.ACROSS_BREAK]


def _is_made_inside(subject: Subject, cause: Cause, function: str, begins: tuple[str, int]) -> bool:
    """Return whether the function itself made an input, before a graph break."""
    is_global = GLOBALS.search(cause.guard)
    if not is_global and is_made_before_break(function, *begins, subject.name):
        return True
    held = is_resumed(function) and subject.kind is Kind.HELD_NUMBER
    return held and is_used_as_index(*begins, subject.name)


#: inputs that one edit marks, at most
_MOST_MARKS: Final = 4
_NUMBERS: Final = (Kind.NUMBER, Kind.ONE_NUMBER)
#: places of which no setting makes a number dynamic at once
_OTHERS: Final = (
    Place.FIELD, Place.ITEM, Place.ATTRIBUTE, Place.MODULE, Place.GLOBAL, Place.CLOSURE,
)  # fmt: skip
_BY_TEST: Final = (Kind.TESTED, Kind.SIDES)
_LISTS: Final = (Kind.LENGTH, Kind.COUNT)
_ITEMS: Final = (Kind.LENGTH, Kind.COUNT, Kind.KEYS)
#: a module's attribute as guards name it, which no program passes
_OF_TORCHS_OWN: Final = re.compile(r"^torch\.[\w.]+$")


def _by_use(subject: Subject, cause: Cause, at: tuple[str, int], of_torch: bool) -> Kind:
    """Return the kind of a changed input in view of what the code at a line does with it."""
    kind, name = subject.kind, subject.name
    if of_torch and kind in (*_NUMBERS, Kind.HELD_NUMBER):
        return Kind.SETTING
    if subject.place is not Place.PROCESS and _OF_TORCHS_OWN.match(name):
        return Kind.INTERNAL if kind in _ITEMS else Kind.SETTING
    if kind in (*_NUMBERS, Kind.HELD_NUMBER, Kind.SMALL_NUMBER) and is_dimension(*at, name):
        return Kind.DIMENSION
    if kind in _NUMBERS and is_exponent(*at, name):
        return Kind.SETTING
    if kind in (*_NUMBERS, Kind.BOOL) and only_reports(*at, name):
        return Kind.REPORTED
    if kind in _NUMBERS and is_given_to_least(*at, name) and not cause.now_dynamic:
        return Kind.LEAST
    if kind in _NUMBERS and is_tested(*at, name):
        return Kind.SIDES if cause.now_dynamic else Kind.TESTED
    if kind in (*_NUMBERS, Kind.HELD_NUMBER) and is_looped_over(*at, name):
        return Kind.TURNS
    if kind in _NUMBERS and is_spelled_out(*at, name):
        return Kind.HELD_NUMBER
    if kind in _NUMBERS and is_used_as_index(*at, name):
        return Kind.INDEXED if cause.now_dynamic else Kind.INDEXES
    if kind is Kind.NUMBER and cause.now_dynamic and subject.place in _OTHERS:
        return Kind.DYNAMIC
    if kind is Kind.INDEXES and cause.now_dynamic:
        return Kind.INDEXED
    if kind in _LISTS and is_appended_to(*at, name):
        return Kind.APPENDED
    if kind in _ITEMS and is_keywords(*at, name):
        return Kind.KEYS
    if kind in _ITEMS and is_filled(*at, name):
        return Kind.FILLED
    if kind is Kind.NONE and is_stored(*at, name) and not is_made_when_missing(*at, name):
        return Kind.NO_TENSOR  # what the last call left: there is no value of before the first
    if kind is Kind.COUNT and is_gone_through(*at, name):
        return Kind.EACH_ITEM
    if kind is Kind.EQUAL and any(is_tested(*at, one) for one in name.split(", ")):
        return Kind.CONDITION
    if kind is Kind.CONDITION and is_read(*at) and not is_tested(*at, name):
        return Kind.IMPLIED
    return kind


def subject_about(cause: Cause, function: str = "") -> Subject:
    """Return what changed, and where."""
    subject = subject_of(cause.source, cause.old, cause.new, cause.kind, cause.guard, function)
    if subject.kind is Kind.LENGTH and not cause.of_tensors:
        return replace(subject, kind=Kind.COUNT)
    return subject


def _size(subject: Subject, cause: Cause) -> tuple[str, str]:
    if cause.now_dynamic:
        why = (
            f"the first compile was made for {cause.source} = {cause.old}; the new one is "
            "dynamic, so later sizes reuse it: making it dynamic at once saves this one compile"
        )
    else:
        why = f"the graph was compiled for {cause.source} = {cause.old} only"
    return f"{cause.source} changes", why


def _grows(subject: Subject, cause: Cause) -> tuple[str, str]:
    _, why = _size(subject, cause)
    return f"{cause.source} grows", f"{why}; it grows from call to call, as a cache does"


def _one(subject: Subject, cause: Cause) -> tuple[str, str]:
    change = _change(cause).strip(" ()").replace("was", "it was", 1) or "it differs"
    return (
        f"{cause.source} changes",
        f"{change}: sizes 0 and 1 are constants in a graph even where other sizes are dynamic",
    )


def _constant(subject: Subject, cause: Cause) -> tuple[str, str]:
    change = f" (was {cause.old}, then {cause.new})" if cause.new else ""
    if cause.now_dynamic:
        saves = ": making it dynamic at once saves this one compile"
        return (
            f"{cause.source} was a constant in the graph",
            f"its first value was built into the compiled code{change}; the new compile takes it "
            f"as it comes{'' if subject.kind is Kind.DYNAMIC else saves}",
        )
    return (
        f"{cause.source} is a constant in the graph",
        f"{cause.source} is a Python value, so its value is built into the compiled code{change}",
    )


def _tested(subject: Subject, cause: Cause) -> tuple[str, str]:
    change = f" (was {cause.old}, then {cause.new})" if cause.new else ""
    return (
        f"{cause.source} is a constant in the graph",
        f"a test in the code goes one way or the other by it, so its value counts{change}",
    )


def _sides(subject: Subject, cause: Cause) -> tuple[str, str]:
    change = f" (was {cause.old}, then {cause.new})" if cause.new else ""
    return (
        f"{cause.source} was a constant in the graph",
        f"its first value was built into the compiled code{change}; the new compile takes every "
        "value by which the test in the code goes the same way",
    )


def _none(subject: Subject, cause: Cause) -> tuple[str, str]:
    change = f" (was {cause.old}, then {cause.new})" if cause.new else ""
    return (
        f"{subject.name} is None on some calls only",
        f"with and without it are different graphs{change}",
    )


def _change(cause: Cause) -> str:
    """Return the two values of an input in parentheses; nothing if one is unknown."""
    old = cause.old.removeprefix(f"{cause.source} == ")  # as a condition that held
    old = "2 or more" if old.startswith("2 <= ") else old
    return f" (was {old}, then {cause.new})" if old and cause.new else ""


def _tensor(subject: Subject, cause: Cause) -> tuple[str, str]:
    what = {
        Kind.NDIM: "number of dimensions",
        Kind.STRIDE: "layout",
        Kind.STRIDE_OF_ONE: "layout",
        Kind.REQUIRES_GRAD: "setting of requires_grad",
    }.get(subject.kind, subject.kind.value)
    return f"{cause.source} changes", f"kernels are generated for one {what} of it{_change(cause)}"


def _mode(subject: Subject, cause: Cause) -> tuple[str, str]:
    return (
        f"{subject.name} was made, or is used, in another mode",
        "tensors of torch.inference_mode() are of another sort than those of torch.no_grad(), and "
        "each sort has its own graph",
    )


def _global(subject: Subject, cause: Cause) -> tuple[str, str]:
    change = f" (was {cause.old}, then {cause.new})" if 0 < len(cause.old) < 20 else ""
    why = {
        Kind.GRAD_MODE: "forward-only and differentiable code are different programs, so each "
        "mode compiles once",
        Kind.AUTOCAST: "with and without autocast, operations have other dtypes, so each compiles "
        "once",
        Kind.BACKEND: f"each backend compiles for itself{change}",
        Kind.SURROUNDINGS: "what an operation does depends on them, so each compiles once",
    }.get(subject.kind, f"the graph was compiled for one setting of it{change}")
    verb = "were" if subject.kind is Kind.SURROUNDINGS else "was"
    return f"{cause.source} {verb} switched", why


def _training(subject: Subject, cause: Cause) -> tuple[str, str]:
    return (
        f"{cause.source} was switched",
        "dropout, batch norm and the like do something else in training, so each mode compiles "
        "once",
    )


def _type(subject: Subject, cause: Cause) -> tuple[str, str]:
    return (
        f"{cause.source} changes",
        f"the compiled code was made for this very type or object{_change(cause)}",
    )


def _shape(subject: Subject, cause: Cause) -> tuple[str, str]:
    return (
        f"a branch on {cause.source} took the other side",
        f"the compiled code holds only where {cause.old}",
    )


def _range(subject: Subject, cause: Cause) -> tuple[str, str]:
    return (
        f"{cause.source} left its range",
        f"the compiled code holds only where {cause.old}: what it indexes is so long",
    )


def _called(subject: Subject, cause: Cause) -> tuple[str, str]:
    return (
        f"{cause.source} changes",
        f"code whose caller runs in Python is compiled by itself, once for each of its users that "
        f"differ{_change(cause)}",
    )


def _held(subject: Subject, cause: Cause) -> tuple[str, str]:
    return (
        f"{cause.source} is held to one number",
        f"the compiled code holds only where {cause.old}: a loop over this size, an RNN, or a test "
        "of it needs the number, so each has its own graph",
    )


def _held_number(subject: Subject, cause: Cause) -> tuple[str, str]:
    holds = cause.old if cause.source in cause.old else f"{cause.source} == {cause.old}"
    return (
        f"{cause.source} is held to one number",
        f"the compiled code holds only where {holds}: what this line makes of it (text, a "
        "count, an index, a test) needs the number itself, so each has its own graph",
    )


def _small(subject: Subject, cause: Cause) -> tuple[str, str]:
    return (
        f"{cause.source} is 0 or 1 on some calls",
        f"0 and 1 are constants of a graph even where other numbers are dynamic{_change(cause)}",
    )


def _turns(subject: Subject, cause: Cause) -> tuple[str, str]:
    return (
        f"{cause.source} is a constant in the graph",
        f"a loop over it is unrolled, so each number of turns is its own graph{_change(cause)}",
    )


def _setting(subject: Subject, cause: Cause) -> tuple[str, str]:
    return (
        f"{cause.source} is a constant in the graph",
        f"what reads it needs a Python value, which is built into the graph{_change(cause)}",
    )


def _groups(subject: Subject, cause: Cause) -> tuple[str, str]:
    return (
        f"{cause.source} changes",
        f"a step is compiled for the parameters that the optimizer has{_change(cause)}",
    )


def _internal(subject: Subject, cause: Cause) -> tuple[str, str]:
    return (
        f"{cause.source} is a constant in the graph",
        "torch's own code, which changes it, is compiled into the graph, and reads it as plain "
        f"Python{_change(cause)}",
    )


def _contents(subject: Subject, cause: Cause) -> tuple[str, str]:
    return (
        f"what {cause.source} holds changes",
        "the code asks for all of it, so each number in it is built into the compiled "
        f"code{_change(cause)}",
    )


def _appended(subject: Subject, cause: Cause) -> tuple[str, str]:
    return (
        f"{cause.source} grows",
        "the code appends to it: each call leaves a longer list, and each length is its own graph",
    )


def _rate(subject: Subject, cause: Cause) -> tuple[str, str]:
    return (
        "the learning rate is a constant in the graph",
        "the optimizer has it as a Python number, whose value is built into the compiled "
        f"step{_change(cause)}",
    )


def _filled(subject: Subject, cause: Cause) -> tuple[str, str]:
    return (
        f"{subject.name} gets new keys",
        "the code adds to it, and each set of keys is its own graph",
    )


def _keys(subject: Subject, cause: Cause) -> tuple[str, str]:
    all_of_it = f"list({subject.name})", f"len({subject.name})"
    listed = cause.source in all_of_it or cause.source.startswith(_OF_ALL_KEYS)
    return (
        f"the keys of {subject.name} change" if listed else f"{cause.source} changes",
        f"a dict is compiled for the keys that it has{_change(cause)}",
    )


_OF_ALL_KEYS: Final = ("list(dict.keys(", "tuple(dict.keys(")


def _attached(subject: Subject, cause: Cause) -> tuple[str, str]:
    return (
        f"{cause.source} is set on some calls only",
        f"with and without it, code looks it up in another place{_change(cause)}",
    )


def _dimension(subject: Subject, cause: Cause) -> tuple[str, str]:
    return (
        f"{cause.source} is a constant in the graph",
        f"it says along which dimension, so each has its own graph{_change(cause)}",
    )


def _implied(subject: Subject, cause: Cause) -> tuple[str, str]:
    others = "sizes" if ".shape[" in cause.source else "values"
    return (
        f"a condition on {cause.source} does not hold",
        f"the compiled code holds only where {cause.old}: an operation here does something else "
        f"for other {others}",
    )


def _equal(subject: Subject, cause: Cause) -> tuple[str, str]:
    return (
        f"two sizes are not equal any more: {cause.old}",
        "they were on the first call, so the compiled code has one number for both",
    )


def _parameter(subject: Subject, cause: Cause) -> tuple[str, str]:
    what = "dtype" if subject.kind is Kind.CAST else "choice of what learns"
    return (
        f"{cause.source} changes",
        f"the module's code is compiled for one {what}{_change(cause)}",
    )


def _length(subject: Subject, cause: Cause) -> tuple[str, str]:
    return f"{cause.source} changes", "a loop over it is unrolled, so each length is its own graph"


_HOOKED: Final = re.compile(r"([A-Za-z_][\w.\[\]'\"]*)\._\w*hooks\b")


def _hooks(subject: Subject, cause: Cause) -> tuple[str, str]:
    found = _HOOKED.search(cause.source)
    name = found[1] if found and not found[1].startswith("___") else "a module"
    return (
        f"hooks of {name} were added or removed",
        "hooks are compiled into the graph, so it holds for those that were there",
    )


def _aliased(subject: Subject, cause: Cause) -> tuple[str, str]:
    return (
        f"{cause.source} is the same object as another input on some calls only",
        "what is written to one is read from the other then, so a graph holds for one of the two: "
        f"it was {cause.old}{f', then {cause.new}' if cause.new else ''}",
    )


def _raced(subject: Subject, cause: Cause) -> tuple[str, str]:
    return (
        "compiled again although its checks hold",
        "by the time the compiler looked at them, the checks of an earlier compile held: another "
        "thread had compiled it meanwhile, or a check depends on the moment",
    )


def _across_break(subject: Subject, cause: Cause) -> tuple[str, str]:
    named = "___" in f"{cause.old} {cause.new}"  # by the compiler, in its own words
    change = "" if named else _change(cause)
    return (
        "a value from before a graph break changes",
        f"what follows the break is compiled for what the code before it left behind{change}",
    )


def _read(subject: Subject, cause: Cause) -> tuple[str, str]:
    return (
        f"the number in {subject.name} is a constant in the graph",
        f"what the code does with it (an index, a size) needs the number itself{_change(cause)}",
    )


def _other(subject: Subject, cause: Cause) -> tuple[str, str]:
    return (
        f"{cause.source or 'an input'} changed",
        "a check that the compiled code relies on failed",
    )


_ROWS: Final[Mapping[Kind, Callable[[Subject, Cause], tuple[str, str]]]] = {
    Kind.SIZE: _size, Kind.TWIN: _size, Kind.EQUAL: _equal, Kind.ONE: _one, Kind.GROWS: _grows,
    Kind.NUMBER: _constant, Kind.ONE_NUMBER: _constant,
    Kind.TESTED: _tested, Kind.LEAST: _tested, Kind.REPORTED: _tested, Kind.SIDES: _sides,
    Kind.BOOL: _constant, Kind.STRING: _constant,
    Kind.CONSTANT: _constant, Kind.NONE: _none, Kind.TRAINING: _training,
    Kind.DTYPE: _tensor, Kind.NDIM: _tensor, Kind.STRIDE: _tensor,
    Kind.STRIDE_OF_ONE: _tensor, Kind.DEVICE: _tensor,
    Kind.REQUIRES_GRAD: _tensor, Kind.INFERENCE: _mode, Kind.KEYS_OF_TENSOR: _tensor,
    Kind.DYNAMIC: _constant,
    Kind.INDEXES: _constant, Kind.INDEXED: _constant, Kind.NO_TENSOR: _none, Kind.COUNT: _length,
    Kind.CONTENTS: _contents,
    Kind.GONE: _none, Kind.RANGE: _range, Kind.CALLED: _called,
    Kind.LENGTH: _length, Kind.KEYS: _keys, Kind.FILLED: _filled, Kind.LEARNING_RATE: _rate,
    Kind.GROUPS: _groups,
    Kind.TYPE: _type, Kind.STRUCTURE: _type,
    Kind.OBJECT: _type, Kind.HOOKS: _hooks, Kind.HOOKS_PASSED: _hooks,
    Kind.GRAD_MODE: _global, Kind.AUTOCAST: _global, Kind.BACKEND: _global,
    Kind.STATE: _global, Kind.SURROUNDINGS: _global, Kind.ATTACHED: _attached,
    Kind.DIMENSION: _dimension, Kind.EACH_ITEM: _length,
    Kind.FROZEN: _parameter, Kind.CAST: _parameter, Kind.APPENDED: _appended,
    Kind.READ_BACK: _appended,
    Kind.SMALL_NUMBER: _small, Kind.TURNS: _turns, Kind.SETTING: _setting,
    Kind.INTERNAL: _internal, Kind.MADE: _none,
    Kind.IMPLIED: _implied, Kind.MULTIPLE: _shape,
    Kind.HELD: _held, Kind.HELD_NUMBER: _held_number, Kind.CONDITION: _shape,
    Kind.ALIASED: _aliased, Kind.RACED: _raced, Kind.ACROSS_BREAK: _across_break,
    Kind.READ: _read, Kind.OTHER: _other,
}  # fmt: skip
