"""Texts made of symbolic numbers, and the fields of format strings.

Like Python, `formatted` and `percent` take the fields one after the other: what the program defines
(``__format__``, ``__str__``, ``__getitem__`` of a mapping) is traced, and a number that is symbolic
stays so. Where a format string and its operands do not fit, Python is asked for its error, with
stand-ins as operands.
"""

from __future__ import annotations

import _string  # type: ignore[import-not-found]
import collections
import operator
import re
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeGuard

import torch

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import Args, Kwargs, Raised, Value
from tc.compiler.capture.values.const import (
    LITERALS,
    METHODS_OF_CONSTANTS,
    ConstValue,
)
from tc.compiler.capture.values.containers import ListValue, TupleValue
from tc.compiler.capture.values.dicts import DictValue
from tc.compiler.capture.values.lookup import (
    ITERABLE,
    MISSING,
    has_any,
    replaced_slot,
    type_lookup,
)
from tc.compiler.capture.values.tensor import SymValue, TensorValue, decided
from tc.compiler.core.symbolic import hint

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface

CONVERSIONS: Final[dict[str, Callable[[Any], str]]] = {
    "s": str,
    "r": repr,
    "a": ascii,
}
#: how deep fields may be nested: in a field's specification, and no deeper
DEPTH: Final = 2
#: a field of ``%``: key, flags, width, precision, length (which means nothing), conversion
_PERCENT = re.compile(
    r"%(?:\((?P<key>[^()]*)\))?(?P<spec>[-+ #0]*(?:\*|\d+)?(?:\.(?:\*|\d*))?)[hlL]?(?P<kind>[^(])",
    re.DOTALL,
)
#: conversions of ``%`` whose result exists for every number of these kinds
_OF_ANY: Final[dict[str, tuple[type, ...]]] = {
    **dict.fromkeys("diuoxX", (int,)),
    **dict.fromkeys("eEfFgG", (int, float)),
}
#: what ``format`` makes of a number's value as a character, which may be too large
_CHARACTER: Final = "c"


class TextValue(ConstValue):
    """A text that symbolic numbers are written in, made after the graph.

    To all that looks at the text it is the constant that it is now, and the numbers are guarded.

    Attributes:
        pieces: texts, and functions with their arguments that return one.
    """

    noun = "a text"

    def __init__(self, t: Interpreter, pieces: list[str | Written]) -> None:
        self.pieces = pieces
        self._t = t
        self._text = ""
        self.undecided = True

    def _decide(self) -> str:
        if self.undecided:
            self._text = self.with_calls(lambda call: call.decided(self._t))
            self.undecided = False
        return self._text

    #: the text; who reads it decides the numbers in it
    obj = property(_decide)

    def sample(self) -> str:
        """Return a text that it may be; nothing is guarded."""
        return self.with_calls(Written.sample)

    def with_calls(self, call: Callable[[Written], str]) -> str:
        """Return the text in which a function makes the calls."""
        texts = []
        for piece in self.pieces:
            if isinstance(piece, str):
                texts.append(piece)
            else:
                texts.append(call(piece))
        return "".join(texts)

    def python_type(self) -> type:
        return str

    def describe(self) -> str:
        return self.noun

    def own_special(self, name: str) -> Any:
        return MISSING

    def truth(self, t: Interpreter) -> bool:
        for piece in self.pieces:
            # it is not empty, whatever the numbers are
            if isinstance(piece, str) and piece:
                return True
        return super().truth(t)

    def children(self, t: Interpreter) -> list[Value]:
        numbers: list[Value] = []
        if not self.undecided:
            return numbers
        for piece in self.pieces:
            if isinstance(piece, Written):
                numbers += piece.args
        return numbers

    def rebuild(self, r: ResidualInterface) -> None:
        if not self.undecided:
            r.e.load_const(self.obj)
            return
        for piece in self.pieces:
            if isinstance(piece, str):
                r.e.load_const(piece)
                continue
            r.load_callable(piece.function)
            for arg in piece.args:
                r.push(arg)
            r.e.call(len(piece.args))
        r.e.emit("BUILD_STRING", len(self.pieces))


class Written:
    """A call that writes a symbolic number, or a text of such."""

    def __init__(self, function: Callable[..., str], args: Args) -> None:
        self.function = function
        self.args = args

    def decided(self, t: Interpreter) -> str:
        """Return the text that it is now; the number is guarded."""
        plain = t.python.concrete_list(self.args)
        text: str = t.python.fold(self.function, *plain)
        return text

    def sample(self) -> str:
        """Return a text that it may be; nothing is guarded."""
        return self.function(*map(_sample, self.args))

    def may_fail(self) -> bool:
        """Return whether numbers may be too large for it: those that are written as characters."""
        if self.function is not format:
            return False
        spec: str = _sample(self.args[1])
        return spec.endswith(_CHARACTER)


def written(t: Interpreter, function: Callable[..., str], *args: Value) -> Value:
    """Return what a function of text makes of constants, and a symbolic number or text."""
    args = tuple(decided(t, arg) for arg in args)
    call = Written(function, args)
    if not any(map(_is_symbolic, args)) or call.may_fail():
        plain = t.python.concrete_list(args)
        return t.python.folded(function, *plain)
    t.python.fold(function, *map(_sample, args))  # or Python's error
    return TextValue(t, [call])


def _is_symbolic(value: Value) -> TypeGuard[SymValue | TextValue]:
    """Return whether a value is a symbolic number, or a text of such."""
    if isinstance(value, TextValue):
        return value.undecided
    return isinstance(value, SymValue)


def _sample(arg: Value) -> Any:
    """Return a number or text of the kind of a symbolic one, or a constant."""
    if isinstance(arg, SymValue):
        number = hint(arg.example)
        return arg.python_type()(1) if number is None else number
    if isinstance(arg, TextValue):
        return arg.sample()
    return arg.constant()


def joined(t: Interpreter, texts: list[Value], between: str = "") -> Value:
    """Return texts put together; one alone is itself, of whatever class it is."""
    if len(texts) == 1:
        return texts[0]
    pieces: list[str | Written] = []
    for text in texts:
        if pieces and between:
            pieces.append(between)
        if isinstance(text, TextValue) and text.undecided:
            pieces += text.pieces
        else:
            pieces.append(t.python.concrete(text))
    made = TextValue(t, pieces)
    if made.children(t):
        return made
    return ConstValue(made.obj)


# -- str.format ------------------------------------------------------------------------------
class _Anything:
    """An operand that every field fits: Python is left with what is wrong in the format string."""

    def __getattr__(self, name: str) -> _Anything:
        return self

    def __getitem__(self, key: Any) -> _Anything:
        return self

    def __format__(self, spec: str) -> str:
        return ""


class _Fields:
    """The operands of one call of ``str.format`` or ``str.format_map``."""

    def __init__(
        self, t: Interpreter, text: str, args: Args, named: Kwargs | Value
    ) -> None:
        self.t = t
        self.text = text
        self.args = args
        self.named = named
        self._taken = 0
        self._numbered: bool | None = None

    def write(self, text: str, depth: int = DEPTH) -> Value:
        """Return a format string with its fields filled in."""
        if not depth:
            self.refuse()
        texts: list[Value] = []
        for literal, field, spec, conversion in self._each(
            _string.formatter_parser(text)
        ):
            if literal:
                texts.append(ConstValue(literal))
            if field is None:
                continue
            value = self._value(field)
            if conversion is not None:
                if conversion not in CONVERSIONS:
                    self.refuse()
                value = self.t.python.convert_text(CONVERSIONS[conversion], value)
            filled = (
                self.write(spec, depth - 1)
                if spec and "{" in spec
                else ConstValue(spec)
            )
            texts.append(self.t.python.format(value, self.t.python.concrete(filled)))
        return joined(self.t, texts)

    def refuse(self) -> NoReturn:
        """Raise Python's error for a format string that does not fit its operands."""
        if isinstance(self.named, Value):
            self.t.python.fold(str.format_map, self.text, _Anything())
        else:
            named = dict.fromkeys(self.named, _Anything())
            self.t.python.fold(
                str.format, self.text, *(_Anything() for _ in self.args), **named
            )
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, "str.format")

    def _each(self, parts: Iterator[Any]) -> Iterator[Any]:
        """Yield what Python reads of a format string, or raise its error where it finds one."""
        while (part := self.t.python.fold(next, parts, None)) is not None:
            yield part

    def _value(self, field: str) -> Value:
        """Return what a field names: an operand, or an attribute or item of one."""
        first, rest = self.t.python.fold(_string.formatter_field_name_split, field)
        value = self._first(first)
        for is_attribute, key in self._each(rest):
            name = ConstValue(key)
            if is_attribute:
                value = value.attr(self.t, self.t.python.concrete(name))
            else:
                value = value.item(self.t, name)
        return value

    def _first(self, name: int | str) -> Value:
        """Return the operand that a field begins with; one without a name is the next."""
        numbered = isinstance(name, int)
        if isinstance(self.named, Value):
            if numbered or not name:
                self.refuse()
            return self.named.item(self.t, ConstValue(name))
        if not numbered and name:
            return self.named[name] if name in self.named else self.refuse()
        if self._numbered not in (None, numbered):
            self.refuse()
        self._numbered = numbered
        if not isinstance(name, int):
            name = self._taken
            self._taken += 1
        return self.args[name] if name < len(self.args) else self.refuse()


def _format(t: Interpreter, text: str, args: Args, kwargs: Kwargs) -> Value:
    """Apply ``str.format``."""
    if all(map(_is_plain, (*args, *kwargs.values()))):
        named = t.python.concrete_dict(kwargs)
        return t.python.folded(text.format, *t.python.concrete_list(args), **named)
    return _Fields(t, text, args, kwargs).write(text)


def _format_map(t: Interpreter, text: str, args: Args, kwargs: Kwargs) -> Value:
    """Apply ``str.format_map``."""
    if len(args) != 1 or kwargs:
        t.python.fold(text.format_map, *map(_stand_in, args), **dict.fromkeys(kwargs))
    return _Fields(t, text, (), args[0]).write(text)


def _stand_in(_: Value) -> _Anything:
    """Return what takes the place of an operand where Python is asked for its error."""
    return _Anything()


def _is_plain(value: Value) -> bool:
    """Return whether Python writes a value without code of the program."""
    if isinstance(value, TextValue):
        return not value.undecided
    return isinstance(value, ConstValue) and type(value.obj) in LITERALS


def _join(t: Interpreter, text: str, args: Args, kwargs: Kwargs) -> Value:
    """Apply ``str.join``."""
    if not has_any(args[0].python_type(), ITERABLE):
        return t.python.raise_(TypeError, "can only join an iterable")
    parts = args[0].unpack(t)
    if all(part.python_type() is str for part in parts):
        return joined(t, parts, text)
    return t.python.folded(text.join, t.python.concrete_list(parts))


METHODS_OF_CONSTANTS[str, "format"] = _format
METHODS_OF_CONSTANTS[str, "format_map"] = _format_map
METHODS_OF_CONSTANTS[str, "join"] = _join


# -- the operator % --------------------------------------------------------------------------
class _Operands:
    """What the right side of ``%`` gives to the fields."""

    def __init__(self, t: Interpreter, text: str, given: Value) -> None:
        self.t = t
        self.text = text
        self.given = given
        kind = given.python_type()
        self.is_tuple = issubclass(kind, tuple)
        has_items = type_lookup(kind, "__getitem__") is not MISSING
        # the items of which C code takes for those of a sequence
        sequence = replaced_slot(kind, "__getitem__") is MISSING
        sequence = sequence and issubclass(kind, collections.deque)
        sequence = sequence or issubclass(kind, tuple | str)
        self.is_mapping = has_items and not sequence
        self.rest = given.unpack(t) if self.is_tuple else [given]

    def take(self) -> Value:
        """Return the next operand."""
        return self.rest.pop(0) if self.rest else self.refuse()

    def look_up(self, key: str) -> None:
        """Have the next operand be that of a key."""
        if not self.is_mapping:
            self.refuse()
        self.rest = [self.given.item(self.t, ConstValue(key))]

    def refuse(self) -> NoReturn:
        """Raise Python's error for operands that do not fit the format string."""
        given: Any = 0
        if self.is_tuple:
            given = (0,) * len(self.given.unpack(self.t))
        elif self.is_mapping:
            given = collections.defaultdict(int)
        self.t.python.fold(operator.mod, self.text, given)
        raise breaks.GraphBreak(breaks.UNSUPPORTED_OP, "operator.mod of a text")


def percent(t: Interpreter, text: str, given: Value) -> Value:
    """Apply ``text % given``."""
    parts = given.unpack(t) if given.python_type() is tuple else [given]
    if all(map(_is_plain, parts)):
        return t.python.folded(operator.mod, text, t.python.concrete(given))
    operands = _Operands(t, text, given)
    texts: list[Value] = []
    end = 0
    for field in _PERCENT.finditer(text):
        texts += _literal(operands, text[end : field.start()])
        end = field.end()
        if field.group() == "%%":
            texts.append(ConstValue("%"))
            continue
        if field["key"] is not None:
            operands.look_up(field["key"])
        if field["kind"] == "%":
            operands.refuse()
        texts.append(_percent_field(t, operands, field["spec"], field["kind"]))
    texts += _literal(operands, text[end:])
    if operands.rest and not operands.is_mapping:
        operands.refuse()
    return joined(t, texts)


def _literal(operands: _Operands, text: str) -> list[Value]:
    """Return the text between two fields; none if it is empty."""
    if "%" in text:  # the beginning of a field that is none
        operands.refuse()
    return [ConstValue(text)] if text else []


def _mod(t: Interpreter, text: str, args: Args, kwargs: Kwargs) -> Value:
    """Apply ``str.__mod__``."""
    if len(args) != 1 or kwargs:
        named = dict.fromkeys(kwargs)
        t.python.fold(str.__mod__, text, *map(_stand_in, args), **named)
    return percent(t, text, args[0])


METHODS_OF_CONSTANTS[str, "__mod__"] = _mod


#: kinds of fields that take a number, its type, what makes it of an object, and by which methods
_NUMBERS_OF: tuple[tuple[str, type, Any, tuple[str, ...]], ...] = (
    ("diu", int, int, ("__int__", "__index__")),
    ("oxX", int, operator.index, ("__index__",)),
    ("eEfFgG", float, float, ("__float__", "__index__")),
)


def _number(t: Interpreter, value: Value, convert: Any, kind: str) -> Value:
    """Return the number that an object gives for a field; of integers, errors are the field's."""
    try:
        return t.values.known(convert).call(t, [value], {})
    except Raised as raised:
        of_type = issubclass(raised.value.python_type(), TypeError)
        if convert is float or not of_type:
            raise
    wanted = "a real number" if convert is int else "an integer"
    given = value.python_type().__name__
    text = f"%{kind} format: {wanted} is required, not {given}"
    return t.python.raise_(TypeError, text)


def _percent_field(t: Interpreter, operands: _Operands, spec: str, kind: str) -> Value:
    """Return the text of one field of ``%``."""
    stars = t.python.concrete_list(operands.take() for _ in range(spec.count("*")))
    value = decided(t, operands.take())
    while stars and type(stars[0]) is int and stars[0] >= 0:
        spec = spec.replace("*", str(stars.pop(0)), 1)
    if kind in CONVERSIONS and not stars:
        value = t.python.convert_text(CONVERSIONS[kind], value)
        return (
            written(t, operator.mod, ConstValue(f"%{spec}s"), value) if spec else value
        )
    for kinds, number, convert, methods in _NUMBERS_OF:
        given_one = issubclass(value.python_type(), number)  # which is read as it is
        if kind in kinds and not given_one and value.has_own(*methods):
            value = _number(t, value, convert, kind)
    of_any = not stars and value.python_type() in _OF_ANY.get(kind, ())
    if of_any and isinstance(value, SymValue):
        return written(t, operator.mod, ConstValue(f"%{spec}{kind}"), value)
    if isinstance(value, TensorValue):
        raise breaks.GraphBreak(breaks.TENSOR_ITEM, "formatting a tensor")
    given = (*stars, t.python.concrete(value))
    return t.python.folded(operator.mod, f"%{spec}{kind}", given)


# -- containers ------------------------------------------------------------------------------
#: what stands around a place: of private use, since texts made in C may end at a zero
_AROUND = "\ue000"


class _Item:
    """An item of a container, whose text has a place in that of the container."""

    def __init__(self, place: int) -> None:
        self.place = place

    def __repr__(self) -> str:
        return f"{_AROUND}{self.place}{_AROUND}"


def text_of_items(t: Interpreter, value: Value) -> Value | None:
    """Return what ``repr`` makes of a container some of whose items are no plain constants.

    None for all other values.
    """
    if isinstance(value, DictValue) and value.kind in (dict, collections.OrderedDict):
        items = [
            part
            for pair in zip(value.keys(t), value.values(t), strict=True)
            for part in pair
        ]
    elif isinstance(value, TupleValue | ListValue):
        items = value.values(t)
    elif value.python_type() is types.SimpleNamespace:
        held = value.attr(t, "__dict__")
        names = [t.python.concrete(name) for name in held.unpack(t)]
        items = [held.item(t, ConstValue(name)) for name in names]
    else:
        return None
    if isinstance(value, TupleValue | ListValue) and all(map(_is_plain, items)):
        return None
    places = [_Item(place) for place in range(len(items))]
    if isinstance(value, DictValue):
        text = t.python.fold(
            repr, value.kind(zip(places[::2], places[1::2], strict=True))
        )
    elif not isinstance(value, TupleValue | ListValue):
        named = dict(zip(names, places, strict=True))
        text = t.python.fold(repr, types.SimpleNamespace(**named))
    elif value.kind is torch.Size:  # which takes numbers alone
        text = f"{torch.Size.__module__}.{torch.Size.__qualname__}({places!r})"
    else:
        text = t.python.fold(repr, value.make(places))
    parts = text.split(_AROUND)
    return joined(
        t,
        [
            t.python.convert_text(repr, items[int(part)])
            if at % 2
            else ConstValue(part)
            for at, part in enumerate(parts)
        ],
    )
