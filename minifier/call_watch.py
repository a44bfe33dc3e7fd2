"""What runs in one call of a compiled function, and what its lines read, for `missing_guard`.

In: the graphs of a call, and the function with its arguments, in the process that runs the program.
Out: the calls of the graphs as text, each with its line, and the plain values that the lines read.
"""

from __future__ import annotations

import ast
import enum
import inspect
import linecache
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import fx

from tc.minifier import graphs
from tc.minifier.missing_guard import TENSOR, Row, branches
from tc.trace.syntax import tree_of

NUMBERS: Final = (torch.SymInt, torch.SymFloat, torch.SymBool)
PLAIN: Final = (int, float, bool, str, type(None), torch.dtype, torch.device, enum.Enum)
DEEP: Final = 4  # properties that read properties


def rows_of(gm: fx.GraphModule) -> list[Row]:
    """Return the inputs and calls of a graph as text; sizes are computed in their places.

    Results are named by what is called, so that graphs with more sizes have the same names.
    """
    found: list[Row] = []
    names: dict[fx.Node, Any] = {}
    called: Counter[str] = Counter()

    def named(node: fx.Node) -> Any:
        return Named(names[node])

    for node in gm.graph.nodes:
        fake = graphs._fake(node)
        names[node] = fake if isinstance(fake, NUMBERS) else node.name
        if node.op == "placeholder":
            user = next((one for one in node.users if one.op.startswith("call_")), None)
            if user is not None and isinstance(fake, torch.Tensor):
                form = f"{TENSOR} {fake.dtype}{list(fake.shape)} {list(fake.stride())}"
                found.append((node.name + form, _where(user)))
        elif node.op.startswith("call_") and not isinstance(fake, NUMBERS):
            target = str(getattr(node.target, "__name__", node.target))
            args, kwargs = fx.map_arg((node.args, node.kwargs), named)
            given = [*map(str, args), *(f"{k}={v}" for k, v in kwargs.items())]
            found.append((f"{target}({', '.join(given)})", _where(node)))
            number = called[target]
            called[target] += 1
            names[node] = f"{target}_{number}" if number else target
    return found


@dataclass(frozen=True)
class Named:
    """A value in the text of a call."""

    name: Any

    def __repr__(self) -> str:
        return str(self.name)


def _where(node: fx.Node) -> str:
    return graphs.user_line(node).partition("\t")[0]


@dataclass
class Space:
    """The names that a function sees at a call, each with how guards spell it."""

    names: dict[str, tuple[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Space:
        """Return what a function or module is called with, and what it finds around it."""
        function = model.forward if isinstance(model, torch.nn.Module) else model
        plain = inspect.unwrap(getattr(function, "__func__", function))
        space = cls()
        for name, value in getattr(plain, "__globals__", {}).items():
            space.names[name] = (f"G[{name!r}]", value)
        free = getattr(getattr(plain, "__code__", None), "co_freevars", ())
        for name, cell in zip(free, getattr(plain, "__closure__", None) or (), strict=False):
            space.names[name] = (f"L[{name!r}]", cell.cell_contents)
        if owner := getattr(function, "__self__", None):
            space.names["self"] = ("L['self']", owner)
        try:
            given = inspect.signature(function).bind(*args, **kwargs)
        except (TypeError, ValueError):
            return space
        given.apply_defaults()
        for name, value in given.arguments.items():
            space.names[name] = (f"L[{name!r}]", value)
        return space

    def reads(self, lines: Sequence[str]) -> dict[str, list[tuple[str, str, str]]]:
        """Return what lines read of plain values: its text, its source, its value."""
        found: dict[str, list[tuple[str, str, str]]] = {}
        for line in dict.fromkeys(lines):
            file, _, number = line.rpartition(":")
            text = linecache.getline(file, int(number)).strip() if number.isdigit() else ""
            found[line] = list(self._reads_of(text))
        return found

    def _reads_of(self, text: str) -> Iterator[tuple[str, str, str]]:
        tree = tree_of(text + " pass" if text.endswith(":") else text)
        if tree is not None:  # else a part of a statement
            yield from self._reads_in(tree)

    def _reads_in(self, tree: ast.AST, deep: int = DEEP) -> Iterator[tuple[str, str, str]]:
        for node in ast.walk(tree):
            if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
                found = self._value(node)
                if found is not None and isinstance(found[1], PLAIN):
                    yield ast.unparse(node), found[0], repr(found[1])[:80]
                elif isinstance(node, ast.Attribute) and deep:
                    yield from self._reads_of_property(node, deep)

    def _reads_of_property(self, node: ast.Attribute, deep: int) -> Iterator[tuple[str, str, str]]:
        """Yield what a property reads, which takes the name of its owner where that is read."""
        home = self._value(node.value)
        held = inspect.getattr_static(home[1], node.attr, None) if home is not None else None
        getter = held.fget if isinstance(held, property) else None
        try:
            tree = tree_of(textwrap.dedent(inspect.getsource(getter))) if getter else None
        except (OSError, TypeError):
            return
        function = tree.body[0] if tree is not None else None
        if not isinstance(function, ast.FunctionDef) or home is None or not function.args.args:
            return
        own, name = function.args.args[0].arg, ast.unparse(node.value)
        inner = Space({**Space.of(getter, (), {}).names, own: home})
        for statement in function.body:
            for text, source, value in inner._reads_in(statement, deep - 1):
                shown = f"{name}{text.removeprefix(own)}" if text.startswith(f"{own}.") else text
                yield shown, source, value

    def _value(self, node: ast.expr) -> tuple[str, Any] | None:
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if not isinstance(node, ast.Attribute | ast.Subscript):
            return None
        home = self._value(node.value)
        if home is None:
            return None
        if isinstance(node, ast.Attribute):
            held = inspect.getattr_static(home[1], node.attr, None)
            if isinstance(held, property):
                return None  # code of the user's
            return f"{home[0]}.{node.attr}", getattr(home[1], node.attr, None)
        if not isinstance(node.slice, ast.Constant) or type(home[1]) not in (dict, list, tuple):
            return None
        key: Any = node.slice.value
        try:
            return f"{home[0]}[{key!r}]", home[1][key]
        except (LookupError, TypeError):
            return None


@dataclass
class Watch:
    """What runs in one call of a compiled function.

    Attributes:
        rows: of each graph that runs, in order.
        reads: line -> what it reads, as it is when the graph runs; so for branches above.
    """

    rows: list[Row] = field(default_factory=list)
    reads: dict[str, list[tuple[str, str, str]]] = field(default_factory=dict)
    space: Space = field(default_factory=Space)

    def begin(self, model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """A call begins."""
        self.rows.clear()
        self.reads.clear()
        self.space = Space.of(model, args, kwargs)

    def add(self, rows: Sequence[Row]) -> None:
        """A graph runs."""
        self.rows += rows
        lines = [line for line in dict.fromkeys(line for _, line in rows) if line]
        tests = [
            f"{line.rpartition(':')[0]}:{test}" for line in lines for test, _ in branches(line)
        ]
        self.reads |= self.space.reads(lines + tests)

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"rows": self.rows, "reads": self.reads}
