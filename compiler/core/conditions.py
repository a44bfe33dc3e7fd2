"""What a compile asks of symbolic sizes, as plain data: another process asks the same (`frozen`).

In: torch's `ShapeEnv`, before and after. Out: conditions that were decided in between, and a text
of all that the environment knew before, on which results without a condition rest.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tc.compiler.core.frozen import NotPlain

#: classes of expressions: those of sympy, and torch's own
SYMPY = (
    "Add", "Mul", "Pow", "And", "Or", "Not", "Equality", "Unequality", "StrictLessThan", "LessThan",
    "StrictGreaterThan", "GreaterThan",
)  # fmt: skip
TORCH = (
    "FloorDiv", "CleanDiv", "Mod", "PythonMod", "PowByNatural", "Max", "Min", "CeilToInt",
    "FloorToInt", "TruncToInt", "IntTrueDiv", "FloatTrueDiv", "ToFloat", "ModularIndexing",
)  # fmt: skip


@dataclass(frozen=True)
class Condition:
    """A condition that was found to hold.

    Attributes:
        expression: a number, the name of a symbol, or a class and its arguments.
        oblivious: sizes that come out of data were taken for at least two.
    """

    expression: Any
    oblivious: bool = False


class Sizes:
    """The environment of symbolic sizes, at the moment when a graph is looked for.

    Attributes:
        known: text of what it knows.
    """

    def __init__(self, env: Any) -> None:
        self.env, self.before = env, len(env.guards)
        ranges = sorted(f"{symbol}: {known}" for symbol, known in env.var_to_range.items())
        same = sorted(f"{symbol}: {other}" for symbol, other in env.replacements.items())
        guards = [(str(guard.expr), guard.size_oblivious) for guard in env.guards]
        divisible = sorted(map(str, env.divisible))
        self.known = f"{ranges} {same} {divisible} {guards} {env.settings}"

    def asked(self) -> tuple[Condition, ...]:
        """Return the conditions decided since then.

        Raises:
            NotPlain: one has no form here, or sizes depend on data by now.
        """
        _check(self.env)
        guards = self.env.guards[self.before :]
        return tuple(Condition(_plain(g.expr), bool(g.size_oblivious)) for g in guards)

    def ask(self, conditions: Iterable[Condition]) -> bool:
        """Rest on conditions, as a compile would: those that do hold become guards.

        Returns:
            Whether all hold for the current sizes; if not, nothing rests on any.
        """
        symbols = {symbol.name: symbol for symbol in self.env.var_to_range}
        sizes = self.env.backed_var_to_val
        try:
            wanted = [(_expression(c.expression, symbols), c.oblivious) for c in conditions]
        except (KeyError, TypeError, ValueError):  # not of this program
            return False
        if any(expr.xreplace(sizes) != True for expr, _ in wanted):  # noqa: E712 - sympy's true
            return False
        return all(
            self.env.evaluate_expr(expr, size_oblivious=oblivious) == True  # noqa: E712
            for expr, oblivious in wanted
        )


def sizes_of(values: Iterable[Any]) -> Sizes | None:
    """Return the sizes that inputs bring symbols of; None if all their sizes are numbers.

    Raises:
        NotPlain: sizes depend on data, so that what is asked of them is checked by the graph.
    """
    for number in _numbers(values):
        if isinstance(number, torch.SymInt | torch.SymFloat | torch.SymBool):
            env = number.node.shape_env
            _check(env)
            return Sizes(env)
    return None


def text_of(number: Any) -> str:
    """Return a symbolic number as text, without deciding anything about it.

    Raises:
        NotPlain: it is no expression (a ragged size).
    """
    if not number.node.is_symbolic() or number.node.is_nested_int():
        raise NotPlain("a size is not a symbolic expression")
    return f"{type(number).__name__}({_printed(number.node.expr)})"


#: a size recurs in many shapes, and where a network halves it again and again its text is long
_printed = functools.lru_cache(1 << 12, typed=True)(str)


def _check(env: Any) -> None:
    """Refuse sizes that come out of data: what is asked of them is checked by the graph."""
    of_data = env.var_to_range.keys() - env.backed_var_to_val.keys()
    if of_data or env.deferred_runtime_asserts:
        raise NotPlain("sizes depend on data")


def _numbers(values: Iterable[Any]) -> Iterator[Any]:
    for value in pytree.tree_leaves(list(values)):
        if isinstance(value, torch.Tensor):
            yield from (*value.shape, *value.stride(), value.storage_offset())
        else:
            yield value


def _plain(expr: Any) -> Any:
    if expr.is_Integer:
        return int(expr)
    if expr.is_Symbol:
        return expr.name
    if expr.is_Float:
        return float(expr)
    name = type(expr).__name__
    if not expr.args or _classes().get(name) is not type(expr):
        raise NotPlain(f"a condition on sizes holds {expr}")
    return (name, *map(_plain, expr.args))


def _expression(plain: Any, symbols: dict[str, Any]) -> Any:
    import sympy  # type: ignore[import-untyped]

    if isinstance(plain, int):
        return sympy.Integer(plain)
    if isinstance(plain, float):
        return sympy.Float(plain)
    if isinstance(plain, str):
        return symbols[plain]
    name, *args = plain
    return _classes()[name](*(_expression(arg, symbols) for arg in args))


@functools.cache
def _classes() -> dict[str, Any]:
    """Return the classes of expressions by name; sympy is slow to import, and mostly not needed."""
    import sympy
    from torch.utils._sympy import functions

    own = {name: getattr(functions, name) for name in TORCH if hasattr(functions, name)}
    return {**{name: getattr(sympy, name) for name in SYMPY}, **own}
