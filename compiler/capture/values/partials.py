"""Partial functions: ``functools.partial``."""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

from tc.compiler.capture.values.base import Args, Kwargs, NotConstant, Value
from tc.compiler.capture.values.builtins import builtin
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import SequenceValue, TupleValue
from tc.compiler.capture.values.dicts import DictValue
from tc.compiler.core.sources import AttrSource, Source

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface


class PartialValue(Value):
    """A functools.partial.

    Attributes:
        arguments: its tuple of positional arguments.
        keywords: its dict, which the program may change.
    """

    noun = "a partial function"

    def __init__(
        self,
        function: Value,
        arguments: SequenceValue,
        keywords: DictValue,
        obj: functools.partial[Any] | None = None,
        source: Source | None = None,
    ) -> None:
        self.function = function
        self.arguments = arguments
        self.keywords = keywords
        self.obj: functools.partial[Any] | None = obj
        self.source = source

    def python_type(self) -> type:
        return functools.partial

    def truth(self, t: Interpreter) -> bool:
        return True

    def describe(self) -> str:
        return f"partial({self.function.describe()})"

    def named(self, t: Interpreter) -> dict[str, Value]:
        """Return the keyword arguments by name."""
        names = t.python.concrete_list(self.keywords.keys(t))
        if not all(isinstance(name, str) for name in names):
            t.python.raise_(TypeError, "keywords must be strings")
        return dict(zip(names, self.keywords.values(t), strict=True))

    @property
    def has_attributes(self) -> bool:
        """Whether it has attributes of its own; to ask for its ``__dict__`` would make one."""
        return self.obj is not None and self.obj.__reduce__()[2][3] is not None

    def call(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        given = [*self.arguments.values(t), *args]
        return self.function.call(t, given, {**self.named(t), **kwargs})

    def tail_call_codes(self) -> tuple[types.CodeType, ...]:
        return self.function.tail_call_codes()

    def attr(self, t: Interpreter, name: str) -> Value:
        if name == "func":
            return self.function
        if name == "args":
            return self.arguments
        if name == "keywords":
            return self.keywords
        if name in functools.partial.__dict__ or name in object.__dict__:
            return super().attr(t, name)
        if self.obj is not None and self.source is not None:
            if hasattr(self.obj, name):
                return t.values.wrap(
                    getattr(self.obj, name), AttrSource(self.source, name)
                )
            t.guards.add("NO_ATTR", self.source, name)
        text = f"'functools.partial' object has no attribute '{name}'"
        return t.python.raise_(AttributeError, text)

    def children(self, t: Interpreter) -> list[Value]:
        return [
            self.function,
            *self.arguments.values(t),
            *self.named(t).values(),
        ]

    def rebuild(self, r: ResidualInterface) -> None:
        named = self.named(r.t)
        arguments = self.arguments.values(r.t)
        r.load_callable(functools.partial)
        r.push(self.function)
        r.push_slots([*arguments, *named.values()])
        r.e.call(1 + len(arguments), tuple(named))


class PartialKeywords(DictValue):
    """The keywords of a partial function made by traced code: residual code reads them off it."""

    noun = "keywords of a partial function"
    owner: PartialValue

    def constant(self) -> Any:
        raise NotConstant(self.describe())

    def children(self, t: Interpreter) -> list[Value]:
        return [self.owner]

    def rebuild(self, r: ResidualInterface) -> None:
        r.push(self.owner)
        r.e.load_attr("keywords")


@builtin(functools.partial)
def _partial(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    function, *given = args
    if function.is_constant() and not callable(function.constant()):
        t.python.fold(functools.partial, function.constant())  # Python's own error
    if isinstance(function, PartialValue) and not function.has_attributes:
        given = [*function.arguments.values(t), *given]
        kwargs = {**function.named(t), **kwargs}
        function = function.function
    keywords = PartialKeywords(
        {name: (ConstValue(name), kwargs[name]) for name in kwargs}
    )
    keywords.owner = PartialValue(function, TupleValue([*given]), keywords)
    return keywords.owner


def wrap_partial(t: Interpreter, obj: functools.partial[Any], source: Source) -> Value:
    """Return the value of an existing partial function."""
    function = t.values.wrap(obj.func, AttrSource(source, "func"))
    arguments = t.values.wrap(obj.args, AttrSource(source, "args"))
    keywords = t.values.wrap(obj.keywords, AttrSource(source, "keywords"))
    assert isinstance(arguments, SequenceValue)
    assert isinstance(keywords, DictValue)
    return PartialValue(function, arguments, keywords, obj, source)
