"""Slice objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tc.compiler.capture.values.base import Args, Kwargs, Value

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface


class SliceValue(Value):
    """A slice whose bounds may be symbolic."""

    noun = "a slice"

    def __init__(self, parts: list[Value]) -> None:
        self.parts = parts

    def python_type(self) -> type:
        return slice

    def constant(self) -> Any:
        return slice(*[part.constant() for part in self.parts])

    def attr(self, t: Interpreter, name: str) -> Value:
        names = ("start", "stop", "step")
        if name in names:
            return self.parts[names.index(name)]
        return t.attributes.builtin_method(self, name)

    def method(self, t: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        plain = t.python.concrete_list(args)
        real = slice(*t.python.concrete_list(self.parts))
        return t.python.folded(getattr(real, name), *plain)

    def children(self, t: Interpreter) -> list[Value]:
        return self.parts

    def rebuild(self, r: ResidualInterface) -> None:
        for part in self.parts:
            r.push(part)
        r.e.build_slice(3)
