"""Guards on sizes, strides, offsets and numbers: conditions in, one Python function of a frame out.

A condition names what it reads as `Source.name` prints it, which is for people and need not be
Python: a key of a dictionary may be a member of an enumeration, an access a function of capture.
The function reads its operands by `Source.code` first, and has variables in their places.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import methodcaller
from typing import Any

import torch

from tc.compiler.core.sources import Scope, Source

UserLine = tuple[str, int]

_READ = re.compile(r"\.(?:size|stride)\(\)\[\d+\]|\.storage_offset\(\)")


@dataclass(frozen=True)
class Operand:
    """A size, stride, offset or number that a shape guard reads, with its value at compile time.

    Attributes:
        source: of the tensor, or of the number.
        method: of a tensor, whose result is read: ``size``, ``stride``, ``storage_offset``.
        index: which item of that result.
    """

    source: Source
    hint: Any
    method: str = ""
    index: int | None = None

    @property
    def call(self) -> str:
        """What is read once for all items, as guards print it."""
        return (
            f"{self.source.name}.{self.method}()" if self.method else self.source.name
        )

    @cached_property
    def text(self) -> str:
        """The operand as guards print it."""
        return self.call if self.index is None else f"{self.call}[{self.index}]"

    @property
    def pretty(self) -> str:
        """The operand as the user would write it."""
        if self.method == "size":
            return f"{self.source.pretty}.shape[{self.index}]"
        if self.method == "stride":
            return f"{self.source.pretty}.stride({self.index})"
        return (
            f"{self.source.pretty}.{self.method}()"
            if self.method
            else self.source.pretty
        )

    def code(self, read: str) -> str:
        """Return Python that makes the call on what the Python in ``read`` gives."""
        return f"{read}.{self.method}()" if self.method else read

    def value(self, scope: Scope) -> Any:
        """Return what a live frame has. Raises what the access raises."""
        found = self.source.evaluate(scope)
        found = methodcaller(self.method)(found) if self.method else found
        return found if self.index is None else found[self.index]


def operands_in(
    text: str, known: Mapping[str, Operand], numbers: set[str]
) -> list[str]:
    """Return the operands that a condition reads, in order.

    Args:
        text: the condition.
        known: all operands, by their text.
        numbers: texts of those that are numbers themselves.
    """
    lengths = sorted({len(name) for name in known}, reverse=True)
    found: set[str] = set()
    for match in _READ.finditer(text):
        end = match.end()
        ends = (text[max(end - n, 0) : end] for n in lengths)
        found.update([name for name in ends if name in known][:1])
    found |= {name for name in numbers if name in text}
    whole = {name for name in found if not any(name != o and name in o for o in found)}
    return sorted(whole, key=text.index)


@dataclass(frozen=True)
class ShapeGuard:
    """One condition on sizes, as people read it."""

    text: str
    operands: tuple[Operand, ...]
    user_line: UserLine | None = None

    @property
    def pretty(self) -> str:
        """The condition as the user would write it."""
        text = self.text
        for operand in sorted(self.operands, key=lambda o: -len(o.text)):
            text = text.replace(operand.text, operand.pretty)
        return text

    def __str__(self) -> str:
        place = f"  # {self.user_line[0]}:{self.user_line[1]}" if self.user_line else ""
        return self.text + place


@dataclass(frozen=True)
class ShapeGuards:
    """All shape guards of a frame, checked by one Python function.

    Attributes:
        derived: there are classes or modes whose ``__torch_function__`` must not be asked.
    """

    guards: tuple[ShapeGuard, ...] = ()
    derived: bool = False

    @property
    def text(self) -> str:
        """All conditions as one expression."""
        return " and ".join(f"({guard.text})" for guard in self.guards) or "True"

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """The tensors and numbers whose sizes, strides, offsets and values are read."""
        read = (operand.source for guard in self.guards for operand in guard.operands)
        return tuple(dict.fromkeys(read))

    def bind(self, globals: dict[str, Any]) -> Callable[[dict[str, Any]], bool]:
        """Compile the conditions to a function of the frame's locals."""
        names: dict[str, Any] = {"G": globals}

        def hold(value: Any) -> str:
            name = f"k{len(names)}"
            names[name] = value
            return name

        codes = {source: source.code(hold) for source in self.sources}
        check: Callable[[dict[str, Any]], bool] = self._compiled("L", codes, names)
        return check

    def over_values(self) -> Callable[..., bool]:
        """Compile the conditions to a function of the values of `sources`."""
        codes = {source: f"p{n}" for n, source in enumerate(self.sources)}
        return self._compiled(", ".join(codes.values()), codes, {})

    def _compiled(
        self, parameters: str, codes: Mapping[Source, str], names: dict[str, Any]
    ) -> Callable[..., bool]:
        """Compile the conditions.

        Args:
            parameters: of the function.
            codes: Python of each source.
            names: what that refers to besides parameters.
        """
        if self.guards:
            from torch.fx.experimental.symbolic_shapes import SYMPY_INTERP

            names.update(SYMPY_INTERP)
        body, lines = self.text, [f"def check({parameters}):"]
        reads = {
            operand.call: operand for guard in self.guards for operand in guard.operands
        }
        for i, call in enumerate(sorted(reads, key=lambda call: (-len(call), call))):
            # once, however often it is used
            lines.append(f"    v{i} = {reads[call].code(codes[reads[call].source])}")
            body = body.replace(call, f"v{i}")
        exec("\n".join([*lines, f"    return {body}"]), names)
        check: Callable[..., bool] = names["check"]
        return _unasked(check) if self.derived else check

    def failures(
        self, scope: Scope
    ) -> Iterator[tuple[str, str, str, str, UserLine | None]]:
        """Yield (what, guard, old, new, user line) of each condition that fails. Never raises."""
        for guard in self.guards:
            try:
                if ShapeGuards((guard,), self.derived).bind(scope.globals)(
                    scope.locals
                ):
                    continue
                read = _unasked(lambda operand: operand.value(scope))
                new = ", ".join(str(read(operand)) for operand in guard.operands)
            except Exception as error:
                new = f"cannot be read: {type(error).__name__}: {error}"
            what = (
                ", ".join(operand.pretty for operand in guard.operands) or guard.pretty
            )
            old = ", ".join(str(operand.hint) for operand in guard.operands)
            yield what, guard.pretty, old, new, guard.user_line

    def __str__(self) -> str:
        return "\n".join(map(str, self.guards))


def _unasked(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that leaves ``__torch_function__`` of classes and modes aside."""

    def run(given: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return read(given)

    return run
