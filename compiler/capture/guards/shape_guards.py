"""Guards on sizes, strides, offsets and numbers: conditions in, one function of a frame out.

A condition names what it reads as `Source.name` prints it, which is for people and need not be
Python: a key of a dictionary may be a member of an enumeration, an access a function of capture.
The function reads its operands by `Source.code` first, and has variables in their places. Where
conditions are arithmetic of whole numbers, C checks them (`core/relations.py`).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import methodcaller
from typing import Any

import torch

from tc.compiler.core.relations import Read, program_of
from tc.compiler.core.sources import Scope, Source

UserLine = tuple[str, int]
Check = Callable[..., bool]
MakeRelation = Callable[[int, Sequence[int], Check], Check]
"""Makes a check of a number of values, of its program and of the same check in Python."""

#: what relations read, by the method of a tensor; without one it is the number itself
_READS = {"": "number", "storage_offset": "offset"}
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
    """All shape guards of a frame, checked by one function.

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

    def bind(
        self, globals: dict[str, Any], check: Check
    ) -> Callable[[dict[str, Any]], bool]:
        """Make a function of the frame's locals of one of the values of `sources`."""
        names: dict[str, Any] = {"G": globals, "check": check}

        def hold(value: Any) -> str:
            name = f"k{len(names)}"
            names[name] = value
            return name

        codes = ", ".join(source.code(hold) for source in self.sources)
        read = eval(f"lambda L: check({codes})", names)
        return _unasked(read) if self.derived else read

    def over_values(self, relation: MakeRelation | None = None) -> Check:
        """Compile the conditions to a function of the values of `sources`.

        Args:
            relation: makes one that C runs.
        """
        places = {source: n for n, source in enumerate(self.sources)}
        operands = {o.call: o for guard in self.guards for o in guard.operands}
        calls = sorted(operands, key=lambda call: (-len(call), call))
        body, reads = self.text, dict[str, Read]()
        lines = [f"def check({', '.join(f'p{n}' for n in places.values())}):"]
        for i, call in enumerate(calls):  # each is read once, however often it is used
            operand = operands[call]
            at = places[operand.source]
            lines.append(f"    v{i} = {operand.code(f'p{at}')}")
            body = body.replace(call, f"v{i}")
            reads[f"v{i}"] = at, _READS.get(operand.method, operand.method)
        names: dict[str, Any] = {}
        if self.guards:
            from torch.fx.experimental.symbolic_shapes import SYMPY_INTERP

            names.update(SYMPY_INTERP)
        exec("\n".join([*lines, f"    return {body}"]), names)
        check: Check = names["check"]
        program = relation and program_of(body, reads)
        return relation(len(places), program, check) if relation and program else check

    def failures(
        self, scope: Scope
    ) -> Iterator[tuple[str, str, str, str, UserLine | None]]:
        """Yield (what, guard, old, new, user line) of each condition that fails. Never raises."""
        with contextlib.suppress(Exception):
            if self.bind(scope.globals, self.over_values())(scope.locals):
                return
        for guard in self.guards:
            try:
                alone = ShapeGuards((guard,), self.derived)
                if alone.bind(scope.globals, alone.over_values())(scope.locals):
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
