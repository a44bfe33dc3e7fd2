"""A file of the user's and a place in it go in; the edit that a fix asks for comes out."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from tc.trace.syntax import tree_of

_TORCH: Final = "torch"


class NoEdit(Exception):
    """The fix cannot be written by a machine here; the message says why, in few words."""


@dataclass(frozen=True, slots=True)
class Splice:
    """Bytes `start:stop` of a source become `text`."""

    start: int
    stop: int
    text: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where a finding is.

    Attributes:
        line: counted from 1.
        name: the attribute that the finding is about, `step` of `self.step`.
    """

    line: int
    name: str = ""


@dataclass(slots=True)
class Source:
    """A parsed file.

    Raises:
        NoEdit: this Python cannot parse it.
    """

    data: bytes
    tree: ast.Module = field(init=False)
    _starts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        """Parse it, and note where its lines begin."""
        tree = tree_of(self.data)
        if tree is None:
            raise NoEdit("its file cannot be parsed")
        self.tree = tree
        self._starts = [0]
        for row in self.data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(row))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Return the bytes a node takes up."""
        end_line, end_col = node.end_lineno or node.lineno, node.end_col_offset or 0
        start = self._starts[node.lineno - 1] + node.col_offset
        return start, self._starts[end_line - 1] + end_col

    def of(self, node: ast.expr) -> str:
        """Return the text of an expression."""
        start, stop = self.span(node)
        return self.data[start:stop].decode()

    def put(self, node: ast.expr | ast.stmt, text: str) -> Splice:
        """Write something in the place of a node."""
        return Splice(*self.span(node), text)

    def statements(self, line: int) -> Iterator[tuple[ast.stmt, ast.stmt | None]]:
        """Yield the statements that begin on a line, each with the one after it in its block."""
        for node in ast.walk(self.tree):
            for name in ("body", "orelse", "finalbody"):
                block = getattr(node, name, None)
                if isinstance(block, list):
                    for one, after in pairwise([*block, None]):
                        if one.lineno == line:
                            yield one, after

    def around(self, line: int, kind: type[ast.stmt]) -> Iterator[ast.stmt]:
        """Yield the statements of a kind that a line is in, innermost last."""
        for node in ast.walk(self.tree):
            if isinstance(node, kind) and node.lineno <= line <= (node.end_lineno or 0):
                yield node

    def need_torch(self) -> None:
        """Check that the file calls torch by that name.

        Raises:
            NoEdit: it does not.
        """
        imports = [node.names for node in ast.walk(self.tree) if isinstance(node, ast.Import)]
        names = {(one.asname or one.name).partition(".")[0] for some in imports for one in some}
        if _TORCH not in names:
            raise NoEdit("its file does not import torch under that name")


def apply(data: bytes, splices: Sequence[Splice]) -> bytes:
    """Return the source with these edits, which must not overlap."""
    for one in sorted(splices, key=lambda one: one.start, reverse=True):
        data = data[: one.start] + one.text.encode() + data[one.stop :]
    return data


def overlap(splices: Sequence[Splice]) -> bool:
    """Whether two edits touch the same bytes."""
    ordered = sorted(splices, key=lambda one: (one.start, one.stop))
    return any(a.stop > b.start or a == b for a, b in pairwise(ordered))


# ------------------------------------------------------------------------------------ the edits


def _call_alone(source: Source, line: int) -> ast.stmt:
    for node, _ in source.statements(line):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            return node
    raise NoEdit("the call is part of a larger statement")


def without_call(source: Source, place: Place) -> list[Splice]:
    """`graph_break()` → `pass`."""
    return [source.put(_call_alone(source, place.line), "pass")]


def guarded(source: Source, place: Place) -> list[Splice]:
    """`f(x)` → `if not torch.compiler.is_compiling(): f(x)`."""
    source.need_torch()
    start, _ = source.span(_call_alone(source, place.line))
    return [Splice(start, start, "if not torch.compiler.is_compiling(): ")]


def without_item(source: Source, place: Place) -> list[Splice]:
    """`x.item()` → `x`, wherever the line has it."""
    found = [
        Splice(source.span(node.func.value)[1], source.span(node)[1], "")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "item"
        and not node.args
        and node.lineno <= place.line <= (node.end_lineno or 0)
    ]
    if not found:
        raise NoEdit("the line has no .item() that could be left out")
    return found


def asynchronous(source: Source, place: Place) -> list[Splice]:
    """`assert c` → `torch._assert_async(c)`."""
    source.need_torch()
    for node, _ in source.statements(place.line):
        if isinstance(node, ast.Assert):
            parts = [source.of(one) for one in (node.test, node.msg) if one is not None]
            return [source.put(node, f"torch._assert_async({', '.join(parts)})")]
    raise NoEdit("the line is no assertion")


def chosen_by_where(source: Source, place: Place) -> list[Splice]:
    """`if c: return a`, `return b` → `return torch.where(c, a, b)`; likewise `a if c else b`."""
    return _chosen(source, place.line, "torch.where({}, {}, {})")


def chosen_by_cond(source: Source, place: Place) -> list[Splice]:
    """The same with `torch.cond(c, lambda: a, lambda: b)`."""
    return _chosen(source, place.line, "torch.cond({}, lambda: {}, lambda: {})")


def _chosen(source: Source, line: int, form: str) -> list[Splice]:
    source.need_torch()
    for node, after in source.statements(line):
        if isinstance(node, ast.If):
            return [_of_if(source, node, after, form)]
    for inner in ast.walk(source.tree):
        if isinstance(inner, ast.IfExp) and inner.lineno <= line <= (inner.end_lineno or 0):
            return [source.put(inner, _choice(source, inner.test, inner.body, inner.orelse, form))]
    raise NoEdit("the branch is neither an if nor a conditional expression")


def _of_if(source: Source, node: ast.If, after: ast.stmt | None, form: str) -> Splice:
    start, stop = source.span(node)
    if source.data[start:].startswith(b"elif"):
        raise NoEdit("the branch is one of several")
    other = node.orelse or ([after] if after is not None else [])
    match node.body, other:
        case [ast.Return(value=ast.expr() as one)], [ast.Return(value=ast.expr() as two) as last]:
            text = f"return {_choice(source, node.test, one, two, form)}"
            return Splice(start, max(stop, source.span(last)[1]), text)
        case [ast.Assign(targets=[ast.Name(id=name)], value=one)], _:
            otherwise = _assigned(name, node.orelse) or name
            text = f"{name} = {_choice(source, node.test, one, otherwise, form)}"
            return Splice(start, stop, text)
    raise NoEdit("its sides are more than one value each")


def _assigned(name: str, block: Sequence[ast.stmt]) -> ast.expr | None:
    """What the other side gives the name, None if there is no other side."""
    match block:
        case []:
            return None
        case [ast.Assign(targets=[ast.Name(id=other)], value=value)] if other == name:
            return value
    raise NoEdit("its sides do not set the same name")


def _choice(source: Source, test: ast.expr, one: ast.expr, two: ast.expr | str, form: str) -> str:
    if isinstance(one, ast.Tuple) or isinstance(two, ast.Tuple):
        raise NoEdit("its sides are several values")
    condition = source.of(test)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        condition = f"torch.logical_not({source.of(test.operand)})"
    return form.format(condition, source.of(one), two if isinstance(two, str) else source.of(two))


def without_mark(source: Source, place: Place) -> list[Splice]:
    """Leave the decorator `disable` (or `disallow_in_graph`) of the function called there out."""
    called = {
        node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and node.lineno <= place.line <= (node.end_lineno or 0)
    }
    found = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef) and node.name in called:
            for mark in node.decorator_list:
                named = mark.func if isinstance(mark, ast.Call) else mark
                if source.of(named).rpartition(".")[2] in ("disable", "disallow_in_graph"):
                    start, stop = source.span(mark)
                    found.append(Splice(source.data.rindex(b"@", 0, start), stop, ""))
    if not found:
        raise NoEdit("the mark is not in the file that calls it")
    return found


def as_buffer(source: Source, place: Place) -> list[Splice]:
    """`self.step = 0` in `__init__` → `self.register_buffer("step", torch.tensor(0), ...)`."""
    source.need_torch()
    for owner in reversed(list(source.around(place.line, ast.ClassDef))):
        for node in ast.walk(owner):
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                found = [one for one in ast.walk(node) if _sets(one, place.name)]
                if len(found) == 1 and isinstance(found[0], ast.Assign):
                    value = source.of(found[0].value)
                    text = f'self.register_buffer("{place.name}", torch.tensor({value}), '
                    text += "persistent=False)"
                    return [source.put(found[0], text)]
    raise NoEdit("no __init__ of its class sets it to a number")


def _sets(node: ast.AST, name: str) -> bool:
    match node:
        case ast.Assign(
            targets=[ast.Attribute(value=ast.Name(id="self"), attr=attr)],
            value=ast.Constant(value=int() | float()) | ast.UnaryOp(operand=ast.Constant()),
        ):
            return attr == name
    return False


Edit = Callable[[Source, Place], list[Splice]]
