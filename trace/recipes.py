"""What changed between two compiles goes in; the edits that are known to fix it come out.

A recompile is reported under one changed input. Its *kind* (a number, a string, a size, ...) and
its *place* (an argument, an attribute, a global, ...) choose a row of `TABLE`. Each recipe of each
row is applied to a program, run and compared by ``tests/trace/test_recipes.py``: advice that cannot
be followed has no place here, and "no edit is known" is an answer.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tc.trace.ids import plain_function


class Kind(enum.Enum):
    """What changed."""

    SIZE = "size"
    ONE = "a size to or from 0 or 1"
    GROWS = "a size that grows from call to call"
    NUMBER = "number"
    ONE_NUMBER = "a number to or from 0 or 1"
    TESTED = "a number that the code tests"
    SIDES = "a dynamic number that the code tests"
    INDEXES = "a number that the code indexes or counts with"
    INDEXED = "a dynamic number that the code indexes or counts with"
    BOOL = "bool"
    STRING = "string"
    CONSTANT = "another constant"
    NONE = "None, or something"
    GONE = "something, then None"
    NO_TENSOR = "None, or a value that is no tensor"
    TRAINING = "training or evaluation"
    DTYPE = "dtype"
    NDIM = "number of dimensions"
    STRIDE = "stride"
    DEVICE = "device"
    REQUIRES_GRAD = "requires_grad"
    INFERENCE = "inference mode of a tensor"
    KEYS_OF_TENSOR = "dispatch keys of a tensor"
    LENGTH = "length"
    COUNT = "length of what holds no tensors"
    KEYS = "keys of a dict"
    TYPE = "type"
    STRUCTURE = "what a module is made of"
    OBJECT = "which object"
    HOOKS = "hooks of a module"
    GRAD_MODE = "grad mode"
    AUTOCAST = "autocast"
    BACKEND = "backend"
    STATE = "a switch of the process"
    HELD = "a size held to one number"
    HELD_NUMBER = "a number held to one value"
    CONDITION = "a condition on sizes"
    RANGE = "a range of a dynamic number"
    CALLED = "an input of library code that is compiled by itself"
    RACED = "nothing that can be seen"
    HANDED_ON = "a value from before a graph break"
    OTHER = "something else"


class Place(enum.Enum):
    """Where it was found."""

    LOCAL = "argument, or variable of an outer function"
    AFTER_BREAK = "variable that a graph break has passed on"
    MODULE = "attribute of a module"
    ATTRIBUTE = "attribute"
    ITEM = "item of a container"
    GLOBAL = "global variable"
    DEFAULT = "default of a parameter"
    CLOSURE = "variable of an outer function"
    PROCESS = "process"


@dataclass(frozen=True, slots=True)
class Subject:
    """One changed input: what and where, as the user writes it.

    Attributes:
        source: the whole of it, `x.shape[0]`.
        name: what the edit is made to: `x`.
        index: the dimension, of sizes and strides.
        marked: (name, dimension) of all sizes that change together; empty if it is this one alone.
    """

    kind: Kind
    place: Place
    source: str
    name: str
    old: str
    new: str
    index: str = "0"
    marked: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """One edit, as a sentence with places for the names of a program.

    Attributes:
        kind: call, config or rewrite, as `tc.trace.fixes.Fix` has it.
        safe: what the program computes stays as it is; else a person has to review it.
        settles: once it is made, this input forces no recompile any more.
        producer: `tc` or `torch` where only one of them has it.
    """

    text: str
    kind: str = "rewrite"
    safe: bool = False
    settles: bool = False
    producer: str = ""


MARK: Final = Recipe("{api}.mark_dynamic({marked}) before the first call", "call", True, True)
MARK_MADE: Final = Recipe(
    "{api}.mark_dynamic({name}, {index}) where {name} is made, before the first call",
    "call",
    True,
    True,
)
DYNAMIC: Final = Recipe("{make}(..., dynamic=True) makes all sizes dynamic", "call", True, True)
DYNAMIC_NUMBERS: Final = Recipe(
    "{make}(..., dynamic=True) makes numbers dynamic from the first call on", "call", True, True
)
PAD: Final = Recipe("pad or batch so that {source} takes few values")
ALLOCATE: Final = Recipe(
    "allocate {name} once at its largest size, and write each step's part into it", settles=True
)
SMALL: Final = Recipe(
    "nothing to do: sizes 0 and 1 have graphs of their own, each compiled once", "call", True
)
AT_LEAST_TWO: Final = Recipe("keep {source} at 2 or more, by padding or batching", settles=True)
ZERO_D: Final = Recipe(
    "make {name} a 0-d tensor where it is set: torch.tensor({old})", settles=True
)
BUFFER: Final = Recipe(
    "make {source} a 0-d tensor: {owner}.register_buffer({attr!r}, torch.tensor({old}), "
    "persistent=False) where it is set",
    settles=True,
)
WHERE: Final = Recipe(
    "make {name} a 0-d tensor where it is set, and choose with torch.where({name}, a, b)",
    settles=True,
)
FEW: Final = Recipe(
    "nothing to do if it takes few values: each has a graph of its own, compiled once", "call", True
)
SIDES: Final = Recipe(
    "nothing to do: each side of the test has a graph of its own, compiled once", "call", True
)
BRANCHES: Final = Recipe("choose outside: write and compile a function for each value of {name}")
NEUTRAL: Final = Recipe(
    "give {name} a tensor on every call: a neutral one (zeros, ones) in place of None", settles=True
)
BEFORE: Final = Recipe(
    "make {name} before the first call, in the form that it has later", settles=True
)
ONE_DTYPE: Final = Recipe("pass {name}.to({dtype}): one dtype on every call", settles=True)
ONE_NDIM: Final = Recipe(
    "bring {name} to one number of dimensions before the call: unsqueeze, flatten", settles=True
)
CONTIGUOUS: Final = Recipe("pass {name}.contiguous(): one layout on every call", settles=True)
ONE_DEVICE: Final = Recipe("move {name} to one device before the call", settles=True)
DETACH: Final = Recipe("pass {name}.detach() where its gradient is not needed", settles=True)
BOTH_GRADS: Final = Recipe(
    "nothing to do if both are needed: one graph with gradients, one without", "call", True
)
NO_GRAD: Final = Recipe(
    "use torch.no_grad() in place of torch.inference_mode(), whose tensors need graphs of their "
    "own",
    settles=True,
)
PAD_LIST: Final = Recipe("pad {name} to one length", settles=True)
STACK: Final = Recipe("pass torch.stack({name}), whose length is a size that can be dynamic")
SAME_KEYS: Final = Recipe(
    "give {name} the same keys on every call, with neutral values where there are none",
    settles=True,
)
ONE_TYPE: Final = Recipe("pass one type of {name} on every call", settles=True)
STRUCTURES: Final = Recipe(
    "nothing to do: a module that is made of other parts is another program, compiled once",
    "call",
    True,
)
HOOKS_FIRST: Final = Recipe("add hooks before the first call", settles=True)
MODES: Final = Recipe(
    "nothing to do: one graph with gradients, one without, each compiled once", "call", True
)
TRAIN_EVAL: Final = Recipe(
    "nothing to do: one graph for training, one for evaluation, each compiled once", "call", True
)
CASTS: Final = Recipe(
    "nothing to do: one graph with autocast, one without, each compiled once", "call", True
)
AROUND: Final = Recipe("if it repeats: enter the context once, around all calls", settles=True)
BACKENDS: Final = Recipe(
    "nothing to do: one graph for each backend, each compiled once", "call", True
)
ONE_BACKEND: Final = Recipe(
    "if it repeats: make the backend once, and pass the same object on every call", settles=True
)
SET_FIRST: Final = Recipe("set it once, before the first call", settles=True)
ASKED: Final = Recipe("the code asks whether {old}: take the test out of the compiled function")
COMPUTE: Final = Recipe(
    "compute what needs {source} as plain Python (text, a count, an index, a test) before the "
    "call, and pass the result as a tensor",
    settles=True,
)
WARM_UP: Final = Recipe("call the compiled function once before the threads start")
LOCK: Final = Recipe("compile in one thread at a time: a lock around the first call")
MEND_BREAK: Final = Recipe("fix the graph break before it: then no value is passed across it")
ARGUMENT: Final = Recipe(
    "pass {source} as an argument of the compiled function: an argument that changes becomes "
    "dynamic"
)
DYNAMIC_NOW: Final = Recipe(
    "nothing to do: it is dynamic from the second compile on, which takes every value", "call", True
)
RANGES: Final = Recipe(
    "nothing to do: each range of it has a graph of its own, compiled once", "call", True
)
CALLER: Final = Recipe(
    "fix what makes its caller run in Python (see the findings of the caller): then this is a part "
    "of the caller's graph",
    settles=True,
)
UNSPEC_INT: Final = Recipe(
    "torch._dynamo.config.allow_unspec_int_on_nn_module = True, for ints of modules",
    "config",
    True,
    producer="torch",
)

_EACH_VALUE: Final = (FEW, BRANCHES)
ANY: Final = None
TABLE: Final[Mapping[tuple[Kind, Place | None], tuple[Recipe, ...]]] = {
    (Kind.SIZE, Place.LOCAL): (MARK, DYNAMIC, PAD),
    (Kind.SIZE, Place.AFTER_BREAK): (DYNAMIC, MEND_BREAK, PAD),
    (Kind.SIZE, ANY): (DYNAMIC, MARK_MADE, PAD),
    (Kind.ONE, ANY): (SMALL, AT_LEAST_TWO),
    (Kind.GROWS, ANY): (DYNAMIC, ALLOCATE),
    (Kind.NUMBER, Place.LOCAL): (DYNAMIC_NUMBERS, ZERO_D),
    (Kind.NUMBER, Place.MODULE): (BUFFER, UNSPEC_INT),
    (Kind.NUMBER, ANY): (ZERO_D,),
    (Kind.ONE_NUMBER, Place.MODULE): (BUFFER, UNSPEC_INT),
    (Kind.ONE_NUMBER, ANY): (ZERO_D,),
    (Kind.TESTED, ANY): (FEW, WHERE),
    (Kind.SIDES, ANY): (SIDES, WHERE),
    (Kind.INDEXES, Place.LOCAL): (DYNAMIC_NUMBERS,),
    (Kind.INDEXES, ANY): (ARGUMENT,),
    (Kind.INDEXED, Place.LOCAL): (DYNAMIC_NUMBERS,),
    (Kind.INDEXED, ANY): (DYNAMIC_NOW,),
    (Kind.BOOL, ANY): (FEW, WHERE),
    (Kind.STRING, ANY): _EACH_VALUE,
    (Kind.CONSTANT, ANY): _EACH_VALUE,
    (Kind.NONE, Place.LOCAL): (NEUTRAL,),
    (Kind.NONE, ANY): (BEFORE,),
    (Kind.GONE, Place.LOCAL): (NEUTRAL,),
    (Kind.GONE, ANY): (FEW,),
    (Kind.NO_TENSOR, ANY): _EACH_VALUE,
    (Kind.TRAINING, ANY): (TRAIN_EVAL,),
    (Kind.DTYPE, ANY): (ONE_DTYPE,),
    (Kind.NDIM, ANY): (ONE_NDIM,),
    (Kind.STRIDE, ANY): (CONTIGUOUS,),
    (Kind.DEVICE, ANY): (ONE_DEVICE,),
    (Kind.REQUIRES_GRAD, ANY): (DETACH, BOTH_GRADS),
    (Kind.INFERENCE, ANY): (NO_GRAD,),
    (Kind.KEYS_OF_TENSOR, ANY): (),
    (Kind.LENGTH, ANY): (PAD_LIST, STACK, FEW),
    (Kind.COUNT, ANY): _EACH_VALUE,
    (Kind.KEYS, ANY): (SAME_KEYS,),
    (Kind.TYPE, ANY): (ONE_TYPE,),
    (Kind.STRUCTURE, ANY): (STRUCTURES,),
    (Kind.OBJECT, ANY): _EACH_VALUE,
    (Kind.HOOKS, ANY): (HOOKS_FIRST,),
    (Kind.GRAD_MODE, ANY): (MODES, AROUND),
    (Kind.AUTOCAST, ANY): (CASTS, AROUND),
    (Kind.BACKEND, ANY): (BACKENDS, ONE_BACKEND),
    (Kind.STATE, ANY): (SET_FIRST,),
    (Kind.HELD, ANY): (PAD, FEW),
    (Kind.HELD_NUMBER, ANY): (COMPUTE, FEW),
    (Kind.CONDITION, ANY): (ASKED,),
    (Kind.RANGE, ANY): (RANGES,),
    (Kind.CALLED, ANY): (CALLER,),
    (Kind.RACED, ANY): (WARM_UP, LOCK),
    (Kind.HANDED_ON, ANY): (MEND_BREAK,),
    (Kind.OTHER, ANY): (),
}  # fmt: skip


def recipes(kind: Kind, place: Place) -> tuple[Recipe, ...]:
    """Return the row of what changed and where."""
    row = TABLE.get((kind, place))
    if row is None and place is Place.AFTER_BREAK:
        row = TABLE.get((kind, Place.LOCAL))
    return TABLE[kind, ANY] if row is None else row


def advice(subject: Subject, producer: str, made: bool = False) -> tuple[str, ...]:
    """Return the edits that are known for a changed input; `producer` is `tc` or `torch`.

    Args:
        made: the function itself made the input, before a graph break. Nothing can be done to it
            before the call; what holds for all inputs, or is no edit, is advised still.
    """
    side = "tc" if producer == "tc" else "torch"
    api = "tc" if side == "tc" else "torch._dynamo"
    marked = (f"{name}, {at}" for name, at in subject.marked or ((subject.name, subject.index),))
    words = {
        "api": api,
        "marked": f"), {api}.mark_dynamic(".join(marked),
        "make": "tc.compile" if side == "tc" else "torch.compile",
        "source": subject.source,
        "name": subject.name,
        "index": subject.index,
        "old": subject.old or "...",
        "dtype": subject.old if subject.old.startswith("torch.") else f"torch.{subject.old}",
        "owner": subject.source.rpartition(".")[0],
        "attr": subject.source.rpartition(".")[2],
    }
    row = [one for one in recipes(subject.kind, subject.place) if one.producer in ("", side)]
    of_all = [one for one in row if not _OF_INPUT.search(one.text)]
    if made and len(of_all) < len(row):
        row = [*of_all, MEND_BREAK]
    return tuple(dict.fromkeys(one.text.format_map(words) for one in row))


#: recipes for an input that is at hand before the call
_OF_INPUT: Final = re.compile(r"\{(?:marked|name|source|owner|old)\b")


@lru_cache(1)
def _patterns() -> tuple[tuple[re.Pattern[str], Recipe], ...]:
    """A pattern for each recipe; the names of a program may stand at its places."""
    found = {one.text: one for row in TABLE.values() for one in row}
    return tuple(
        (re.compile(re.sub(r"\\\{\w+(?:!r)?\\\}", ".+?", re.escape(text)) + r"\Z", re.DOTALL), one)
        for text, one in sorted(found.items(), key=lambda row: -len(row[0]))
    )


def recipe_of(text: str) -> Recipe | None:
    """Return the recipe that a sentence was made from, None for any other sentence."""
    return next((one for pattern, one in _patterns() if pattern.match(text)), None)


# --------------------------------------------------------------------------- what changed, where

_ARGUMENT: Final = re.compile(r"^(?:args|kwargs)\[[^\]]+\]$")  # of a wrapper of the user's module
_PART: Final = re.compile(
    r"^(?P<name>.+?)\.(?P<what>shape|stride)(?:\[(?P<i>\d+)\]|\((?P<j>\d+)\))$"
)
_PROPERTIES: Final = {
    "dtype": Kind.DTYPE, "ndim": Kind.NDIM, "device": Kind.DEVICE,
    "requires_grad": Kind.REQUIRES_GRAD,
}  # fmt: skip
_UNNAMED: Final = re.compile(r"\b___\w")  # names that compilers make up
_PARAMETER: Final = re.compile(r"\b_parameters\b|nn\.parameter\.Parameter|failed on a parameter")
_IN: Final = re.compile(r"^.+ in (?P<of>[^'\" ]+)$")  # `'k' in d`, as a source
_THERE: Final = frozenset(("absent", "present"))
_KEYS: Final = re.compile(r"^(?:dispatch keys of (?P<a>.+)|(?P<b>.+)\.dispatch keys)$")
_OF_CALL: Final = re.compile(r"^(?P<what>len|list|type)\((?P<name>.+)\)$")
_GLOBALS: Final = re.compile(r"\bG\[['\"]")
_SOME_TENSOR: Final = re.compile(r"^(?:a tensor|something|Tensor\b|<class 'torch\.)")
_NUMBER: Final = re.compile(r"^-?(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?|inf|nan)$")
_STRING: Final = re.compile(r"^[bru]?['\"]")
_HOOKS: Final = re.compile(
    r"_(?:forward|backward|full_backward|state_dict|load_state_dict)\w*hooks"
)
_STATES: Final = {"grad_mode": Kind.GRAD_MODE, "autocast": Kind.AUTOCAST,
                  "autocast_state": Kind.AUTOCAST, "backend": Kind.BACKEND}  # fmt: skip
NOTHING: Final = ("None", "NoneType", "<class 'NoneType'>")
_DEVICES: Final = frozenset(("CPU", "CUDA", "Meta", "MPS", "XPU", "HPU", "MTIA", "PrivateUse1"))
_MODES: Final = ("ADInplaceOrView", "Autograd")
_MADE_OF: Final = re.compile(r"_(?:parameters|modules|buffers)['\"]?\]?")


_SWITCHES: Final = ("grad_mode", "autocast_state", "default_dtype", "deterministic_algorithms")
_OF_TENSORS: Final = (".dtype", ".requires_grad", ".device", ".ndim")
_STATES_OUTSIDE: Final = ("state of torch", "state of the process")  # as tc reports them
CONDITION: Final = "a condition on sizes"


def sort_of(source: str, reported: str = "") -> str:
    """Return what sort of input a source is, by its name and by the kind that tc reported."""
    if reported == CONDITION:
        return "shape"
    if reported in _STATES_OUTSIDE or source in _SWITCHES:
        return "global"
    if part := _PART.match(source):
        return "size" if part["what"] == "shape" else "tensor"
    if source.startswith("dispatch keys of ") or source.endswith(_OF_TENSORS):
        return "tensor"
    if source.startswith("len("):
        return "length"
    return "type" if source.startswith("type(") else "constant"


def subject_of(
    source: str, old: str, new: str, kind: str = "", guard: str = "", function: str = ""
) -> Subject:
    """Return what changed and where.

    Args:
        source: as the user writes it, `self.step`.
        kind: the sort of input that readers of guards tell apart (`size`, `global`, `raced`, ...).
        guard: the guard that failed, as the compiler prints it.
        function: the compiled function; inside of a `forward`, `self` is a module.
    """
    what, name, index = _what(source, old, new, kind, guard)
    return Subject(what, _place(name, guard, function, what), source, name, old, new, index)


def _what(source: str, old: str, new: str, kind: str, guard: str) -> tuple[Kind, str, str]:
    if kind == "raced":
        return Kind.RACED, source, "0"
    if _HOOKS.search(source) or _HOOKS.search(guard.partition(" #")[0]):
        return Kind.HOOKS, source, "0"
    if _UNNAMED.search(source):
        return Kind.HANDED_ON, source, "0"
    if _PARAMETER.search(guard) and (part := _PART.match(source)):
        return Kind.STRUCTURE, part["name"], "0"
    if kind == "shape":
        return _asked(source, old)
    if kind == "global":
        return _STATES.get(source, Kind.STATE), source, "0"
    if part := _PART.match(source):
        index = part["i"] or part["j"]
        what = _size(part["name"], old, new) if part["what"] == "shape" else Kind.STRIDE
        return what, part["name"], index
    if keys := _KEYS.match(source):
        return _of_keys(old, new), keys["a"] or keys["b"], "0"
    head, _, last = source.rpartition(".")
    if head and last in _PROPERTIES and kind == "tensor":
        return _PROPERTIES[last], head, "0"
    if call := _OF_CALL.match(source):
        return _of_call(call["what"], old, new, guard), call["name"], "0"
    if (key := _IN.match(source)) and _THERE.intersection((old, new)):
        return Kind.KEYS, key["of"], "0"
    return _value(source, old, new, guard), source, "0"


def _asked(source: str, condition: str) -> tuple[Kind, str, str]:
    """What a condition on a size stands for: only some are a question of the user's."""
    part = _PART.match(source)
    name, index = (part["name"], part["i"] or part["j"]) if part else (source, "0")
    if condition == f"2 <= {source}":  # sizes of 0 and 1 have graphs of their own
        return Kind.ONE, name, index
    if _held(source, condition):
        is_size = part is not None or source.startswith("len(")
        return Kind.HELD if is_size else Kind.HELD_NUMBER, name, index
    if part is None and _RANGE.match(condition):
        return Kind.RANGE, name, index
    return Kind.CONDITION, source, "0"


def _held(source: str, condition: str) -> bool:
    """Whether a condition is true of one value of a number: `n == 3`, `(1.0 + n) == 1.5`."""
    of, equal, value = condition.rpartition(" == ")
    rest = of.replace(source, "")
    return bool(equal and source in of and _NUMBER.match(value) and not re.search(r"[a-z]", rest))


_RANGE: Final = re.compile(r"^-?[\d.]+ <=? \S+ <=? -?[\d.]+$")


def _size(name: str, old: str, new: str) -> Kind:
    if old in ("0", "1") or new in ("0", "1"):
        return Kind.ONE
    reached = not name.isidentifier() and not name.startswith(("args[", "kwargs["))
    grows = old.isdigit() and new.isdigit() and int(new) > int(old)
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


def _of_call(what: str, old: str, new: str, guard: str) -> Kind:
    if what == "len":
        return Kind.KEYS if "dict" in guard else Kind.LENGTH
    if what == "list":
        return Kind.KEYS
    if old in NOTHING or new in NOTHING:
        known = Kind.GONE if new in NOTHING else Kind.NONE
        return Kind.STRUCTURE if _MADE_OF.search(guard) else known
    return Kind.TYPE


def _value(source: str, old: str, new: str, guard: str) -> Kind:
    """The sort of a constant, by its values before and after."""
    known = [one for one in (old, new) if one]
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
        return _number(known)
    if known and all(_STRING.match(one) for one in known):
        return Kind.STRING
    if "another object" in known or (not known and "_id(" in guard):
        return Kind.OBJECT
    if any("<function" in one or "<bound method" in one for one in known):
        return Kind.OBJECT
    return Kind.CONSTANT if known else Kind.OTHER


#: numbers that are constants of a graph even where others are dynamic
_SPECIAL: Final = frozenset(("0", "1", "0.0", "1.0"))


def _number(known: list[str]) -> Kind:
    if len({one.lstrip("-").isdigit() for one in known}) > 1:
        return Kind.TYPE  # an int, then a float
    return Kind.ONE_NUMBER if _SPECIAL.intersection(known) else Kind.NUMBER


def _place(name: str, guard: str, function: str, what: Kind) -> Place:
    if what in (Kind.GRAD_MODE, Kind.AUTOCAST, Kind.BACKEND, Kind.STATE, Kind.RACED):
        return Place.PROCESS
    if "__defaults__" in name or "__kwdefaults__" in name:
        return Place.DEFAULT
    if "__closure__" in name or "cell_contents" in name:
        return Place.CLOSURE
    if name.endswith("]") and not _ARGUMENT.match(name):
        return Place.ITEM
    if "." in name:
        called = plain_function(function).rpartition(".")[2]
        in_module = called == "forward" and name.startswith("self.")
        return Place.MODULE if in_module or _MADE_OF.search(guard) else Place.ATTRIBUTE
    if _GLOBALS.search(guard):
        return Place.GLOBAL
    # Most variables there are made inside of the function: nothing outside can mark them.
    return Place.LOCAL if plain_function(function) == function else Place.AFTER_BREAK
