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

from tc.trace.words import INDEX


class Kind(enum.Enum):
    """What changed."""

    SIZE = "size"
    ONE = "a size to or from 0 or 1"
    TWIN = "a size that was as long as another one on the first call"
    EQUAL = "whether two sizes are equal"
    GROWS = "a size that grows from call to call"
    NUMBER = "number"
    ONE_NUMBER = "a number to or from 0 or 1"
    TESTED = "a number that the code tests"
    LEAST = "a number that the code gives to min or max"
    READ = "a number that is read out of a tensor"
    SIDES = "a dynamic number that the code tests"
    REPORTED = "a number or bool by which the code only reports or collects something"
    DYNAMIC = "a number that is dynamic from now on"
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
    STRIDE_OF_ONE = "stride of a dimension of size 1"
    DEVICE = "device"
    REQUIRES_GRAD = "requires_grad"
    INFERENCE = "inference mode of a tensor"
    KEYS_OF_TENSOR = "dispatch keys of a tensor"
    FROZEN = "requires_grad of a parameter"
    CAST = "dtype of a parameter"
    LENGTH = "length"
    COUNT = "length of what holds no tensors"
    CONTENTS = "numbers in a container that the code asks for all of them"
    APPENDED = "length of a list that the code appends to"
    READ_BACK = "length of a list that the code appends to and reads"
    KEYS = "keys of a dict"
    TYPE = "type"
    STRUCTURE = "what a module is made of"
    OBJECT = "which object"
    ATTACHED = "whether an attribute is set"
    DIMENSION = "a number that names a dimension"
    EACH_ITEM = "length of what the code goes through, which holds no tensors"
    SURROUNDINGS = "modes or transforms around the call"
    HOOKS = "hooks of a module"
    HOOKS_PASSED = "hooks of a module that is passed on behind a graph break"
    GRAD_MODE = "grad mode"
    AUTOCAST = "autocast"
    BACKEND = "backend"
    STATE = "a switch of the process"
    HELD = "a size held to one number"
    HELD_NUMBER = "a number held to one value"
    SMALL_NUMBER = "a dynamic number that becomes 0 or 1"
    TURNS = "a number of turns of a loop"
    SETTING = "a number that a module of torch's reads"
    INTERNAL = "what an object of torch's keeps for itself"
    MADE = "what an object of torch's makes when it is first used"
    CONDITION = "a condition on sizes"
    IMPLIED = "a condition on sizes that no test of the code asks"
    MULTIPLE = "whether a size is a multiple"
    RANGE = "a range of a dynamic number"
    LEARNING_RATE = "learning rate of an optimizer"
    GROUPS = "groups of parameters of an optimizer"
    FILLED = "keys of a dict that the code adds to"
    CALLED = "an input of library code that is compiled by itself"
    ALIASED = "whether it is the same object as another input"
    RACED = "nothing that can be seen"
    ACROSS_BREAK = "a value from before a graph break"
    OTHER = "something else"


class Place(enum.Enum):
    """Where it was found."""

    LOCAL = "argument, or variable of an outer function"
    AFTER_BREAK = "variable that a graph break has passed on"
    MODULE = "attribute of a module"
    ATTRIBUTE = "attribute"
    ITEM = "item of a container"
    FIELD = "attribute or item of an argument"
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


MARK: Final = Recipe("{api}.maybe_mark_dynamic({marked}) before the first call", "call", True, True)
MARK_MADE: Final = Recipe(
    "{api}.maybe_mark_dynamic({marked}) where {name} is made, before the first call",
    "call",
    True,
    True,
)
DYNAMIC: Final = Recipe("{make}(..., dynamic=True) makes all sizes dynamic", "call", True, True)
APART: Final = Recipe(
    "torch.fx.experimental._config.use_duck_shape = False, if the two are equal by chance: each is "
    "a size of its own then",
    "config",
    True,
    True,
)
DYNAMIC_APART: Final = Recipe(
    "{make}(..., dynamic=True) with torch.fx.experimental._config.use_duck_shape = False: it is as "
    "long as another size on the first call, and would be taken for it",
    "call",
    True,
    True,
)
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
LEAST: Final = Recipe(
    "make {name} a 0-d tensor where it is set, with torch.minimum and torch.maximum in place of "
    "min(), max() and clamp()",
    settles=True,
)
SELECT: Final = Recipe(INDEX, settles=True)
FEW: Final = Recipe(
    "nothing to do if it takes few values: each has a graph of its own, compiled once", "call", True
)
SIDES: Final = Recipe(
    "nothing to do: each side of the test has a graph of its own, compiled once", "call", True
)
TEST_OUTSIDE: Final = Recipe(
    "take {name}, and what the code does by it, out of the compiled function: act on it before or "
    "after the call",
    settles=True,
)
BRANCHES: Final = Recipe("choose outside: write and compile a function for each value of {name}")
NEUTRAL: Final = Recipe(
    "give {name} a tensor on every call: a neutral one (zeros, ones) in place of None", settles=True
)
WITHOUT: Final = Recipe(
    "nothing to do: one graph with {name}, one without, each compiled once", "call", True
)
BEFORE: Final = Recipe(
    "make {name} before the first call, in the form that it has later", settles=True
)
ONE_DTYPE: Final = Recipe("pass {name}.to({dtype}): one dtype on every call", settles=True)
DTYPE_SET: Final = Recipe(
    "convert {name} to {dtype} where it is set: one dtype on every call", settles=True
)
ONE_NDIM: Final = Recipe(
    "bring {name} to one number of dimensions before the call: unsqueeze, flatten", settles=True
)
CONTIGUOUS: Final = Recipe("pass {name}.contiguous(): one layout on every call", settles=True)
CONTIGUOUS_SET: Final = Recipe(
    "make {name} contiguous() where it is set: one layout on every call", settles=True
)
CLONE: Final = Recipe(
    "pass {name}.clone(memory_format=torch.contiguous_format): contiguous() leaves the stride of a "
    "dimension of size 1 as it is",
    settles=True,
)
CLONE_SET: Final = Recipe(
    "set {name} to a clone(memory_format=torch.contiguous_format): contiguous() leaves the stride "
    "of a dimension of size 1 as it is",
    settles=True,
)
ONE_DEVICE: Final = Recipe("move {name} to one device before the call", settles=True)
DETACH: Final = Recipe("pass {name}.detach() where its gradient is not needed", settles=True)
DETACH_SET: Final = Recipe(
    "detach {name} where it is set, if its gradient is not needed", settles=True
)
BOTH_GRADS: Final = Recipe(
    "nothing to do if both are needed: one graph with gradients, one without", "call", True
)
LEARNING: Final = Recipe(
    "nothing to do: one graph for each choice of parameters that learn, compiled once", "call", True
)
FREEZE_FIRST: Final = Recipe("call requires_grad_() before the first call", settles=True)
CASTED: Final = Recipe(
    "nothing to do if both are needed: a module of another dtype is another program, compiled once",
    "call",
    True,
)
CAST_FIRST: Final = Recipe("cast the module once, before the first call", settles=True)
NO_GRAD: Final = Recipe(
    "use torch.no_grad() in place of torch.inference_mode(), whose tensors need graphs of their "
    "own",
    settles=True,
)
PAD_LIST: Final = Recipe("pad {name} to one length, with a mask of what was added", settles=True)
STACK: Final = Recipe("pass torch.stack({name}), whose length is a size that can be dynamic")
APPEND_OUTSIDE: Final = Recipe(
    "append to {name} outside of the compiled function, which returns what is to be added",
    settles=True,
)
KEPT_OUTSIDE: Final = Recipe(
    "append to {name}, and compute what the code needs of it, outside of the compiled function: "
    "pass in the result",
    settles=True,
)
SAME_KEYS: Final = Recipe(
    "give {name} the same keys in the same order on every call, with neutral values where there "
    "are none",
    settles=True,
)
ONE_TYPE: Final = Recipe("pass one type of {name} on every call", settles=True)
STRUCTURES: Final = Recipe(
    "nothing to do: a module that is made of other parts is another program, compiled once",
    "call",
    True,
)
HOOKS_FIRST: Final = Recipe("add hooks before the first call, and leave them there", settles=True)
MODES: Final = Recipe(
    "nothing to do: one graph with gradients, one without, each compiled once", "call", True
)
ONE_OR_TWO: Final = Recipe(
    "nothing to do: one graph where both are one object, one where they are two, each compiled "
    "once",
    "call",
    True,
)
CLONED: Final = Recipe(
    "pass {name}.clone() where it would be the same tensor as another input: then it never is",
    settles=True,
)
TRAIN_EVAL: Final = Recipe(
    "nothing to do: one graph for training, one for evaluation, each compiled once", "call", True
)
CASTS: Final = Recipe(
    "nothing to do: one graph with autocast, one without, each compiled once", "call", True
)
AROUND: Final = Recipe("if it repeats: enter the context once, around all calls", settles=True)
SURROUNDED: Final = Recipe(
    "nothing to do: one graph for each mode or transform that it is called under, compiled once",
    "call",
    True,
)
SET_ALIKE: Final = Recipe(
    "set {source} before the first call, on every object that is passed", settles=True
)
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
LOOP_OUTSIDE: Final = Recipe(
    "loop outside: compile a function that does one turn, and call it {name} times", settles=True
)
SMALL_NUMBERS: Final = Recipe(
    "nothing to do: 0 and 1 are constants of a graph even where other numbers are dynamic, each "
    "compiled once",
    "call",
    True,
)
PAD_MULTIPLE: Final = Recipe(
    "pad {source} to a multiple of {multiple} before the call", settles=True
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

RATE_TENSOR: Final = Recipe(
    "make the optimizer with a tensor: lr=torch.tensor({old}), which schedulers write to in place",
    settles=True,
)
OTHER_GROUPS: Final = Recipe(
    "nothing to do: an optimizer that has other groups of parameters is another program, compiled "
    "once",
    "call",
    True,
)
GROUPS_FIRST: Final = Recipe("add groups of parameters before the first call", settles=True)
FILL_FIRST: Final = Recipe(
    "fill {name} outside of the compiled function, before the first call", settles=True
)
CALL_OUTSIDE: Final = Recipe(
    "{source} is torch's own: call what reads it outside of the compiled function", settles=True
)

_EACH_VALUE: Final = (FEW, BRANCHES)
ANY: Final = None
_Row = tuple[Recipe, ...]
#: what no call passes by itself: it is set somewhere else
_SET: Final = (
    Place.MODULE, Place.ATTRIBUTE, Place.ITEM, Place.FIELD,
    Place.GLOBAL, Place.DEFAULT, Place.CLOSURE,
)  # fmt: skip


def _passed(kind: Kind, row: _Row, where_set: _Row) -> dict[tuple[Kind, Place | None], _Row]:
    """Return the rows of a kind of which the edit is made to a call, or where the input is set."""
    return {(kind, ANY): row} | {(kind, place): where_set for place in _SET}


TABLE: Final[Mapping[tuple[Kind, Place | None], tuple[Recipe, ...]]] = {
    (Kind.SIZE, Place.LOCAL): (MARK, DYNAMIC, PAD),
    (Kind.SIZE, Place.AFTER_BREAK): (DYNAMIC, MEND_BREAK, PAD),
    (Kind.SIZE, ANY): (DYNAMIC, MARK_MADE, PAD),
    (Kind.TWIN, Place.AFTER_BREAK): (DYNAMIC_APART, MEND_BREAK, PAD),
    (Kind.TWIN, Place.LOCAL): (MARK, DYNAMIC_APART, PAD),
    (Kind.TWIN, ANY): (DYNAMIC_APART, PAD),
    (Kind.EQUAL, ANY): (APART, RANGES),
    (Kind.ONE, ANY): (SMALL, AT_LEAST_TWO),
    (Kind.GROWS, ANY): (DYNAMIC, ALLOCATE),
    (Kind.NUMBER, Place.LOCAL): (DYNAMIC_NUMBERS, ZERO_D),
    (Kind.NUMBER, Place.MODULE): (BUFFER, UNSPEC_INT),
    (Kind.NUMBER, ANY): (ZERO_D,),
    (Kind.DYNAMIC, ANY): (DYNAMIC_NOW, ZERO_D),
    (Kind.DYNAMIC, Place.MODULE): (DYNAMIC_NOW, BUFFER),
    (Kind.ONE_NUMBER, Place.MODULE): (BUFFER, UNSPEC_INT),
    (Kind.ONE_NUMBER, ANY): (ZERO_D,),
    (Kind.TESTED, ANY): (FEW, WHERE),
    (Kind.LEAST, ANY): (LEAST,),
    (Kind.READ, ANY): (SELECT, MEND_BREAK),
    (Kind.SIDES, ANY): (SIDES, WHERE),
    (Kind.REPORTED, ANY): (FEW, TEST_OUTSIDE),
    (Kind.INDEXES, Place.LOCAL): (DYNAMIC_NUMBERS,),
    (Kind.INDEXES, ANY): (ARGUMENT,),
    (Kind.INDEXED, Place.LOCAL): (DYNAMIC_NUMBERS,),
    (Kind.INDEXED, ANY): (DYNAMIC_NOW,),
    (Kind.BOOL, ANY): (FEW, WHERE),
    (Kind.STRING, ANY): _EACH_VALUE,
    (Kind.CONSTANT, ANY): _EACH_VALUE,
    (Kind.NONE, Place.LOCAL): (NEUTRAL, WITHOUT),
    (Kind.NONE, Place.FIELD): (NEUTRAL, WITHOUT),
    (Kind.NONE, ANY): (BEFORE,),
    (Kind.GONE, Place.LOCAL): (NEUTRAL,),
    (Kind.GONE, ANY): (FEW,),
    (Kind.NO_TENSOR, ANY): _EACH_VALUE,
    (Kind.TRAINING, ANY): (TRAIN_EVAL,),
    **_passed(Kind.DTYPE, (ONE_DTYPE,), (DTYPE_SET,)),
    (Kind.NDIM, ANY): (ONE_NDIM,),
    **_passed(Kind.STRIDE, (CONTIGUOUS,), (CONTIGUOUS_SET,)),
    **_passed(Kind.STRIDE_OF_ONE, (CLONE,), (CLONE_SET,)),
    (Kind.DEVICE, ANY): (ONE_DEVICE,),
    **_passed(Kind.REQUIRES_GRAD, (DETACH, BOTH_GRADS), (DETACH_SET, BOTH_GRADS)),
    (Kind.FROZEN, ANY): (LEARNING, FREEZE_FIRST),
    (Kind.CAST, ANY): (CASTED, CAST_FIRST),
    (Kind.INFERENCE, ANY): (NO_GRAD,),
    (Kind.KEYS_OF_TENSOR, ANY): (),
    (Kind.LENGTH, ANY): (PAD_LIST, FEW),
    (Kind.LENGTH, Place.LOCAL): (PAD_LIST, STACK, FEW),
    (Kind.LENGTH, Place.FIELD): (PAD_LIST, STACK, FEW),
    (Kind.CONTENTS, ANY): (COMPUTE, FEW),
    (Kind.COUNT, ANY): (FEW, COMPUTE, BRANCHES),
    (Kind.APPENDED, ANY): (APPEND_OUTSIDE,),
    (Kind.READ_BACK, ANY): (KEPT_OUTSIDE,),
    (Kind.KEYS, ANY): (SAME_KEYS,),
    (Kind.TYPE, ANY): (ONE_TYPE,),
    (Kind.STRUCTURE, ANY): (STRUCTURES,),
    (Kind.OBJECT, ANY): _EACH_VALUE,
    (Kind.HOOKS, ANY): (HOOKS_FIRST,),
    (Kind.HOOKS_PASSED, ANY): (MEND_BREAK, HOOKS_FIRST),
    (Kind.GRAD_MODE, ANY): (MODES, AROUND),
    (Kind.AUTOCAST, ANY): (CASTS, AROUND),
    (Kind.BACKEND, ANY): (BACKENDS, ONE_BACKEND),
    (Kind.STATE, ANY): (SET_FIRST,),
    (Kind.SURROUNDINGS, ANY): (SURROUNDED, AROUND),
    (Kind.ATTACHED, ANY): (SET_ALIKE,),
    (Kind.DIMENSION, ANY): _EACH_VALUE,
    (Kind.EACH_ITEM, ANY): (FEW,),
    (Kind.HELD, ANY): (FEW, PAD),
    (Kind.HELD_NUMBER, ANY): (COMPUTE, FEW),
    (Kind.SMALL_NUMBER, ANY): (SMALL_NUMBERS,),
    (Kind.TURNS, ANY): (FEW, LOOP_OUTSIDE),
    (Kind.SETTING, ANY): (FEW, SET_FIRST),
    (Kind.INTERNAL, ANY): (CALL_OUTSIDE,),
    (Kind.MADE, ANY): (WITHOUT, CALL_OUTSIDE),
    (Kind.CONDITION, ANY): (ASKED, RANGES),
    (Kind.IMPLIED, ANY): (RANGES, PAD),
    (Kind.MULTIPLE, ANY): (PAD_MULTIPLE, SIDES),
    (Kind.RANGE, ANY): (RANGES,),
    (Kind.LEARNING_RATE, ANY): (RATE_TENSOR,),
    (Kind.GROUPS, ANY): (OTHER_GROUPS, GROUPS_FIRST),
    (Kind.FILLED, ANY): (FILL_FIRST,),
    (Kind.CALLED, ANY): (CALLER,),
    (Kind.ALIASED, ANY): (ONE_OR_TWO, CLONED),
    (Kind.RACED, ANY): (WARM_UP, LOCK),
    (Kind.ACROSS_BREAK, ANY): (MEND_BREAK,),
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
        "marked": f"), {api}.maybe_mark_dynamic(".join(marked),
        "make": "tc.compile" if side == "tc" else "torch.compile",
        "source": subject.source,
        "name": subject.name,
        "index": subject.index,
        "old": _NAMELESS.get(subject.old, subject.old) or "...",
        "dtype": subject.old if subject.old.startswith("torch.") else f"torch.{subject.old}",
        "owner": subject.source.rpartition(".")[0],
        "attr": subject.source.rpartition(".")[2],
        "multiple": found["of"] if (found := MULTIPLE_OF.match(subject.old)) else "...",
    }
    row = [one for one in recipes(subject.kind, subject.place) if one.producer in ("", side)]
    if subject.kind is Kind.IMPLIED and ".shape[" not in subject.source:
        row.remove(PAD)  # a number is no size
    if UNSPEC_INT in row and not _is_kept_as_int(subject):
        row.remove(UNSPEC_INT)
    of_all = [one for one in row if not _OF_INPUT.search(one.text) and one is not DYNAMIC_NUMBERS]
    if made and len(of_all) < len(row):
        row = [*of_all, MEND_BREAK]
    return tuple(dict.fromkeys(one.text.format_map(words) for one in row))


def _is_kept_as_int(subject: Subject) -> bool:
    """Whether a setting for ints serves a number: 0 and 1 are constants of a graph even so."""
    ints = all(one.lstrip("-").isdigit() for one in (subject.old, subject.new) if one)
    return ints and not (subject.new in ("0", "1") and subject.old not in ("0", "1"))


#: numbers that Python prints by names that it does not have
_NAMELESS: Final = {one: f"float('{one}')" for one in ("inf", "-inf", "nan")}
#: a condition that holds for all multiples of a number
MULTIPLE_OF: Final = re.compile(r"^\(?\S+ % (?P<of>\d+)\)? == 0$")
#: recipes for an input that exists before the call
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
