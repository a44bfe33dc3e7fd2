"""An input that changed between two compiles goes in; what it is, and where, comes out.

`subject_of` reads the name of the input, its two values and the guard that failed. The kind and the
place that it returns choose the edits of `tc.trace.recipes`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from tc.trace.ids import leading_source, plain_function
from tc.trace.recipes import MULTIPLE_OF, Kind, Place, Subject

_ARGUMENT: Final = re.compile(r"^(?:args|kwargs)\[[^\]]+\]$")  # of a wrapper of the user's module
_PART: Final = re.compile(
    r"^(?P<name>.+?)\.(?P<what>shape|stride)(?:\[(?P<i>\d+)\]|\((?P<j>\d+)\))$"
)
_PROPERTIES: Final = {
    "dtype": Kind.DTYPE, "ndim": Kind.NDIM, "device": Kind.DEVICE,
    "requires_grad": Kind.REQUIRES_GRAD,
}  # fmt: skip
_OF_PARAMETERS: Final = {"dtype": Kind.CAST, "requires_grad": Kind.FROZEN}
_PASSED_ON: Final = "a value from before the break"
_UNNAMED: Final = re.compile(
    r"\b___\w|\ba value from before\b|^<\w+>\."
)  # names that compilers make up
_PARAMETER: Final = re.compile(r"\b_parameters\b|nn\.parameter\.Parameter|failed on a parameter")
_IN: Final = re.compile(r"^.+ in (?P<of>[^'\" ]+)$")  # `'k' in d`, as a source
_SAME: Final = "the same object as "
_THERE: Final = frozenset(("absent", "present"))
_KEY_AT: Final = re.compile(
    r"^(?:list\(dict\.keys\((?P<of>.+)\)\)\[\d+\]|tuple\(dict\.keys\((?P<all>.+)\)\))$"
)
_KEYS: Final = re.compile(r"^(?:dispatch keys of (?P<a>.+)|(?P<b>.+)\.dispatch keys)$")
_OF_CALL: Final = re.compile(r"^(?P<what>len|list|type)\((?P<name>.+)\)$")
OF_OPTIMIZER: Final = re.compile(r"\bparam_groups\b")
_LEARNING_RATE: Final = re.compile(r"\bparam_groups\[\d+\]\['lr'\]$")
_ENVIRONMENT: Final = "os.environ["
_OF_SLICE: Final = re.compile(r"^(?!self\b).+\.(?:start|stop)$")
_ROOT: Final = re.compile(r"^[A-Za-z_]\w*")
GLOBALS: Final = re.compile(r"\bG\[['\"]")
_SOME_TENSOR: Final = re.compile(
    r"^(?:a tensor|something|[(\[]?(?:torch\.)?Tensor\b|(?:torch\.)?nn\.parameter\."
    r"|<class 'torch\.(?!_C))"
)
_SOME_FUNCTION: Final = re.compile(
    r"<function|<bound method|^(?:function|method|builtin_function_or_method) "
    r"|^a (?:property|partial)$"
)
_NUMBER: Final = re.compile(r"^-?(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?|inf|nan)$")
_STRING: Final = re.compile(r"^[bru]?['\"]")
_HOOKS: Final = re.compile(
    r"_(?:forward|backward|full_backward|state_dict|load_state_dict)\w*hooks"
)
#: what a hook that stays there reads is an input as any other
_IN_HOOK: Final = re.compile(r"hooks(?:\.values\(\)\))?\[[^\]]*\]\)?[.\[]")
_STATES: Final = {"grad_mode": Kind.GRAD_MODE, "autocast": Kind.AUTOCAST,
                  "autocast_state": Kind.AUTOCAST, "backend": Kind.BACKEND,
                  "torch function modes": Kind.SURROUNDINGS,
                  "transforms around the call": Kind.SURROUNDINGS}  # fmt: skip
NOTHING: Final = ("None", "NoneType", "<class 'NoneType'>")
_DEVICES: Final = frozenset(("CPU", "CUDA", "Meta", "MPS", "XPU", "HPU", "MTIA", "PrivateUse1"))
_MODES: Final = ("ADInplaceOrView", "Autograd")
_PARTS: Final = ("_parameters", "_modules", "_buffers")
_MADE_OF: Final = re.compile(r"_(?:parameters|modules|buffers)['\"]?\]?")


def part_of(source: str, what: str) -> tuple[str, str] | None:
    """Return the tensor and the dimension of a source that is a size or a stride of it."""
    part = _PART.match(source)
    found = part is not None and part["what"] == what
    return (part["name"], part["i"] or part["j"]) if part is not None and found else None


_SWITCHES: Final = ("grad_mode", "autocast_state", "default_dtype", "deterministic_algorithms")
_OF_TENSORS: Final = (".dtype", ".requires_grad", ".device", ".ndim")
#: as tc reports them
_STATES_OUTSIDE: Final = ("state of torch", "state of the process", "torch function modes")
CONDITION: Final = "a condition on sizes"
_PLAIN: Final = "a constant in the graph"


def sort_of(source: str, reported: str = "") -> str:
    """Return what sort of input a source is, by its name and by the kind that tc reported."""
    if reported == CONDITION:
        return "shape"
    if reported in _STATES_OUTSIDE or source in _SWITCHES:
        return "global"
    if reported == _PLAIN:  # an attribute of another object may have the name of a tensor's
        return "constant"
    if part := _PART.match(source):
        return "size" if part["what"] == "shape" else "tensor"
    if source.startswith("dispatch keys of ") or source.endswith(_OF_TENSORS):
        return "tensor"
    if source.startswith("len("):
        return "length"
    return "type" if source.startswith("type(") else "constant"


def sort_of_value(source: str, tensors: Collection[str] = ()) -> str:
    """Return what sort of input a source is whose value a guard holds.

    An attribute of what is no tensor may have the name of a property of tensors: `self.dtype`.

    Args:
        tensors: the sources that are tensors.
    """
    sort = sort_of(source)
    is_tensors = not source.endswith(_OF_TENSORS) or source.rpartition(".")[0] in tensors
    return sort if sort != "tensor" or is_tensors else "constant"


class Changed(NamedTuple):
    """An input that changed, as tc reports it; ``kind`` is the sort of input."""

    source: str
    old: str
    new: str
    kind: str
    guard: str
    now_dynamic: bool


def changed_of(
    source: str, old: str, new: str, reported: str, guard: str, now_dynamic: bool
) -> Changed:
    """Return an input that changed.

    Args:
        reported: what sort of input tc says it is, ``a constant in the graph``.
    """
    if reported == CONDITION:
        return Changed(source, guard, new, "shape", guard, False)
    return Changed(source, old, new, sort_of(source, reported), guard, now_dynamic)


#: the dtypes and sizes of inputs follow those of the module's parts and parameters
_OF_MODULES: Final = (Kind.STRUCTURE, Kind.CAST)


def of_module(one: Changed) -> bool:
    """Return whether an input that changed is a part of a module, or the dtype of one."""
    return subject_of(*one[:5]).kind in _OF_MODULES


def leading(changed: Sequence[Changed]) -> str:
    """Return the source of the input under which a recompile of tc's is reported."""
    parts = (one.source for one in changed if of_module(one))
    return next(parts, "") or leading_source(
        (one.source, one.new, one.now_dynamic) for one in changed
    )


_ASKED: Final = (Kind.CONDITION, Kind.MULTIPLE)


def reason_of(one: Changed) -> str:
    """Return what distinguishes the causes of tc's recompiles: an input, or a condition on it.

    Which keys a dict has is one cause, whether the guard is on all of them or on one.
    """
    asked = one.kind == "shape" and one.old == one.guard
    subject = subject_of(*one[:5])
    if subject.kind is Kind.KEYS:
        return f"keys of {subject.name}"
    is_condition = asked and subject.kind in _ASKED
    if subject.kind is Kind.ACROSS_BREAK and _UNNAMED.search(one.source):
        return _PASSED_ON  # whichever the compiler counts them as
    return f"branch on {one.source}" if is_condition else one.source


def subject_of(
    source: str, old: str, new: str, kind: str = "", guard: str = "", function: str = ""
) -> Subject:
    """Return what changed and where.

    Args:
        source: as the user writes it, `self.step`.
        kind: the sort of input that readers of guards distinguish (`size`, `global`, `raced`, ...).
        guard: the guard that failed, as the compiler prints it.
        function: the compiled function; inside of a `forward`, `self` is a module.
    """
    what, name, index = _what(source, old, new, kind, guard)
    return Subject(what, _place(name, guard, function, what), source, name, old, new, index)


#: what objects of torch's own keep for themselves, and what a container holds
_KNOWN_SORTS: Final = {
    "internal": Kind.INTERNAL, "made": Kind.MADE, "contents": Kind.CONTENTS, "read": Kind.READ,
}  # fmt: skip


def _what(source: str, old: str, new: str, kind: str, guard: str) -> tuple[Kind, str, str]:
    if kind == "raced":
        return Kind.RACED, source, "0"
    if kind == "small":
        return Kind.SMALL_NUMBER, source, "0"
    if kind in _KNOWN_SORTS:
        return _KNOWN_SORTS[kind], source, "0"
    if kind == "twin" and (part := _PART.match(source)):
        return Kind.TWIN, part["name"], part["i"] or part["j"]
    if kind == "shape" and _TWO_SIZES.match(old):
        return Kind.EQUAL, source, "0"
    if _LEARNING_RATE.search(source):
        return Kind.LEARNING_RATE, source, "0"
    if OF_OPTIMIZER.search(source) and kind in ("length", "constant"):
        return Kind.GROUPS if kind == "length" else Kind.SETTING, source, "0"
    if source.startswith(_ENVIRONMENT):
        return Kind.STATE, source, "0"
    if _is_of_hooks(source, guard):
        return Kind.HOOKS_PASSED if _UNNAMED.search(source) else Kind.HOOKS, source, "0"
    if _UNNAMED.search(source):
        return Kind.ACROSS_BREAK, source, "0"
    if _PARAMETER.search(guard) and (part := _PART.match(source)):
        return Kind.STRUCTURE, part["name"], "0"
    if kind == "shape":
        return _asked(source, old, new)
    if kind == "global":
        return _STATES.get(source, Kind.STATE), source, "0"
    if part := _PART.match(source):
        index = part["i"] or part["j"]
        of_one = kind == "stride of one" or _held_size(guard, int(index)) == "1"
        stride = Kind.STRIDE_OF_ONE if of_one else Kind.STRIDE
        what = _size(part["name"], old, new) if part["what"] == "shape" else stride
        return what, part["name"], index
    if keys := _KEYS.match(source):
        return _of_keys(old, new), keys["a"] or keys["b"], "0"
    head, _, last = source.rpartition(".")
    if head and last in _PROPERTIES and kind == "tensor":
        known = _OF_PARAMETERS if _PARAMETER.search(guard) else _PROPERTIES
        return known.get(last, _PROPERTIES[last]), head, "0"
    if call := _OF_CALL.match(source):
        return _of_call(call["what"], call["name"], old, new, guard), call["name"], "0"
    if (key := _IN.match(source)) and _THERE.intersection((old, new)):
        return Kind.KEYS, key["of"], "0"
    if key := _KEY_AT.match(source):
        return Kind.KEYS, key["of"] or key["all"], "0"
    return _value(source, old, new, guard), source, "0"


def _is_of_hooks(source: str, guard: str) -> bool:
    """Whether an input is which hooks a module has, not what one of them reads."""
    if _IN_HOOK.search(source):
        return False
    return _HOOKS.search(source) is not None or _HOOKS.search(guard.partition(" #")[0]) is not None


_SIZES: Final = re.compile(r"\bsize=\[(?P<sizes>[^\]]*)\]")


def _held_size(guard: str, index: int) -> str:
    """Return the size of a dimension that a guard on a tensor holds; empty if it holds none."""
    found = _SIZES.search(guard)
    sizes = [one.strip() for one in found["sizes"].split(",")] if found else []
    return sizes[index] if index < len(sizes) else ""


def _asked(source: str, condition: str, new: str) -> tuple[Kind, str, str]:
    """What a condition on a size comes from: only some are a question of the user's."""
    part = _PART.match(source)
    name, index = (part["name"], part["i"] or part["j"]) if part else (source, "0")
    if part is not None and part["what"] == "stride":
        return Kind.STRIDE, name, index
    if condition == f"2 <= {source}":  # sizes of 0 and 1 have graphs of their own
        return Kind.ONE, name, index
    if MULTIPLE_OF.match(condition) and part is not None:
        return Kind.MULTIPLE, name, index
    if _held(source, condition):
        is_size = part is not None or source.startswith("len(")
        return Kind.HELD if is_size else Kind.HELD_NUMBER, name, index
    if _RANGE.match(condition):
        if part is None:
            return Kind.RANGE, name, index
        if new in ("0", "1"):
            return Kind.ONE, name, index
    return Kind.CONDITION, source, "0"


def _held(source: str, condition: str) -> bool:
    """Whether a condition is true of one value of a number: `n == 3`, `(1.0 + n) == 1.5`."""
    of, equal, value = condition.rpartition(" == ")
    rest = re.sub(rf"(?<!\w){re.escape(source)}(?!\w)", "", of).replace("float(", "(")
    many = re.search(r"[a-z]|%|//", rest)  # several numbers give one value
    return bool(equal and source in of and _NUMBER.match(value) and not many)


_TWO_SIZES: Final = re.compile(
    r"^\(?[\w.\[\]'\"]+\.(?:shape\[\d+\]|stride[\[(]\d+[\])]) == "
    r"[\w.\[\]'\"]+\.(?:shape\[\d+\]|stride[\[(]\d+[\])])\)?$"
)
_RANGE: Final = re.compile(r"^-?[\d.]+ <=? \S+ <=? -?[\d.]+$")


def _size(name: str, old: str, new: str) -> Kind:
    if old in ("0", "1") or new in ("0", "1"):
        return Kind.ONE
    reached = not name.isidentifier() and not name.startswith(("args[", "kwargs["))
    grows = old.isdigit() and new.isdigit() and int(new) == int(old) + 1
    return Kind.GROWS if reached and grows else Kind.SIZE


def _of_keys(old: str, new: str) -> Kind:
    """Which keys a tensor lost or got shows which mode it was made or used in."""
    sides = [set(re.findall(r"\w+", text.removeprefix("DispatchKeySet"))) for text in (old, new)]
    differing = sides[0] ^ sides[1]
    if differing & _DEVICES:
        return Kind.DEVICE
    if differing and all(one.startswith("Autocast") for one in differing):
        return Kind.AUTOCAST
    if differing and all(one.startswith(_MODES) for one in differing):
        return Kind.INFERENCE
    return Kind.KEYS_OF_TENSOR


def _of_call(what: str, name: str, old: str, new: str, guard: str) -> Kind:
    if what == "len":
        return Kind.KEYS if "dict" in guard else Kind.LENGTH
    if what == "list":
        return Kind.STRUCTURE if name.endswith(_PARTS) else Kind.KEYS
    if old in NOTHING or new in NOTHING:
        known = Kind.GONE if new in NOTHING else Kind.NONE
        other = old if new in NOTHING else new
        if other and other != "another object" and not _SOME_TENSOR.match(other):
            known = Kind.NO_TENSOR
        return Kind.STRUCTURE if _MADE_OF.search(guard) else known
    return Kind.STRUCTURE if _MADE_OF.search(guard) else Kind.TYPE


def _value(source: str, old: str, new: str, guard: str) -> Kind:
    """The sort of a constant, by its values before and after."""
    known = [one for one in (old, new) if one]
    if any(one.startswith(_SAME) for one in known):
        return Kind.ACROSS_BREAK if any(map(_UNNAMED.search, known)) else Kind.ALIASED
    if source.rpartition(".")[2] == "training":
        return Kind.TRAINING
    if "None" in known:
        other = next((one for one in known if one != "None"), "")
        if other and not _SOME_TENSOR.match(other):
            return Kind.NO_TENSOR
        return Kind.GONE if other and new == "None" else Kind.NONE
    if known and all(one in ("True", "False") for one in known):
        return Kind.BOOL
    if known and all(_NUMBER.match(one) for one in known):
        return Kind.INDEXES if _OF_SLICE.match(source) else _number(known)
    if known and all(_STRING.match(one) for one in known):
        return Kind.STRING
    if "another object" in known or (not known and "_id(" in guard):
        return Kind.OBJECT
    if any(_SOME_FUNCTION.search(one) for one in known):
        return Kind.OBJECT
    if "." in source and known and _THERE.issuperset(known):
        return Kind.ATTACHED
    return Kind.CONSTANT if known else Kind.OTHER


def aliased_by(value: str) -> str:
    """Return the input that another one is the same object as, by the value that guards hold."""
    return value.removeprefix(_SAME) if value.startswith(_SAME) else ""


def is_of_presence(old: str, new: str) -> bool:
    """Return whether two values say that an attribute or a key is there, and not what it is."""
    return bool(_THERE.intersection((old, new)))


def is_number(value: str) -> bool:
    """Return whether a value, as guards print it, is an int or a float."""
    return _NUMBER.match(value) is not None


#: numbers that are constants of a graph even where others are dynamic
SPECIAL: Final = frozenset(("0", "1", "0.0", "1.0"))


def _number(known: list[str]) -> Kind:
    if len({one.lstrip("-").isdigit() for one in known}) > 1:
        return Kind.TYPE  # an int, then a float
    return Kind.ONE_NUMBER if SPECIAL.intersection(known) else Kind.NUMBER


_OF_PROCESS: Final = (
    Kind.GRAD_MODE, Kind.AUTOCAST, Kind.BACKEND, Kind.STATE, Kind.SURROUNDINGS, Kind.RACED,
)  # fmt: skip


def _place(name: str, guard: str, function: str, what: Kind) -> Place:
    if what in _OF_PROCESS:
        return Place.PROCESS
    if "__defaults__" in name or "__kwdefaults__" in name:
        return Place.DEFAULT
    if "__closure__" in name or "cell_contents" in name:
        return Place.CLOSURE
    root = _ROOT.match(name)
    mine = root is not None and root[0] != "self" and not GLOBALS.search(guard)
    if name.endswith("]") and not _ARGUMENT.match(name):
        return Place.FIELD if mine else Place.ITEM
    if "." in name:
        called = plain_function(function).rpartition(".")[2]
        in_module = called == "forward" and name.startswith("self.")
        if in_module or _MADE_OF.search(guard):
            return Place.MODULE
        return Place.FIELD if mine else Place.ATTRIBUTE
    if GLOBALS.search(guard):
        return Place.GLOBAL
    # Most variables there are made inside of the function: nothing outside can mark them.
    return Place.LOCAL if plain_function(function) == function else Place.AFTER_BREAK
