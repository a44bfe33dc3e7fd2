"""Reduces a script as Python text, where no graph exists: the statements it needs remain.

In: a script and an oracle. Out: the smallest script that fails alike. Hierarchical delta debugging
(Misherghi and Su, 2006): blocks from the outside inwards, then expressions in place of what holds
them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Fails = Callable[[str], bool]
Tell = Callable[[str], None]
HOLDERS = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.FunctionDef, ast.ClassDef)
SMALL = 2  # what larger numbers are replaced by


def reduced(text: str, fails: Fails, tell: Tell) -> str:
    """Return the smallest script found; ``tell`` is given each that is smaller than the last.

    Raises:
        SyntaxError: the script is none.
    """
    reducer = _Reducer(ast.unparse(ast.parse(text)), fails, tell)
    reducer.run()
    return reducer.text


@dataclass
class _Reducer:
    text: str
    fails: Fails
    tell: Tell

    def run(self) -> None:
        before = ""
        while self.text != before:
            before = self.text
            self._statements()
            for edits in (unwrapped, unnamed, hoisted, small_numbers, fewer_parameters):
                self._edits(edits)

    def _take(self, tree: ast.Module) -> bool:
        """Go on with a tree if it fails alike."""
        text = ast.unparse(ast.fix_missing_locations(tree))
        if text == self.text or not self.fails(text):
            return False
        self.text = text
        self.tell(text)
        return True

    def _statements(self) -> None:
        """Leave out ever smaller runs of statements, block by block."""
        place = 0
        while place < len(blocks(ast.parse(self.text))):
            size = len(blocks(ast.parse(self.text))[place])
            while size:
                self._runs(place, size)
                size //= 2
            place += 1

    def _runs(self, place: int, size: int) -> None:
        start = 0
        while True:
            tree = ast.parse(self.text)
            found = blocks(tree)
            if place >= len(found) or start >= len(found[place]):
                return
            block = found[place]
            del block[start : start + size]
            if not block:
                block.append(ast.Pass())
            if not self._take(tree):
                start += size

    def _edits(self, edits: Callable[[ast.Module], Iterator[None]]) -> None:
        """Make one edit at a time; each is tried on a tree of its own."""
        place = 0
        while True:
            tree = ast.parse(self.text)
            for number, _ in enumerate(edits(tree)):
                if number == place:
                    break
            else:
                return
            if not self._take(tree):
                place += 1


def blocks(tree: ast.AST) -> list[list[ast.stmt]]:
    """All lists of statements, outer ones first."""
    found: list[list[ast.stmt]] = []
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop(0)
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block:
                found.append(block)
        todo.extend(ast.iter_child_nodes(node))
    return found


# Each of these edits the tree, yields, takes the edit back, and goes on to the next.
def unwrapped(tree: ast.Module) -> Iterator[None]:
    """Put what a statement holds in its place; calls of a function that are statements go too."""
    for block in blocks(tree):
        for place, statement in enumerate(list(block)):
            if isinstance(statement, HOLDERS):
                before = list(block)
                block[place : place + 1] = statement.body
                if isinstance(statement, ast.FunctionDef):
                    block[:] = [one for one in block if not _calls(one, statement.name)]
                yield
                block[:] = before


def _calls(statement: ast.stmt, name: str) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == name


def unnamed(tree: ast.Module) -> Iterator[None]:
    """Compute a value and give it no name."""
    for block in blocks(tree):
        for place, statement in enumerate(list(block)):
            if isinstance(statement, ast.Assign | ast.AugAssign):
                block[place] = ast.Expr(statement.value)
                yield
                block[place] = statement


def hoisted(tree: ast.Module) -> Iterator[None]:
    """Put a part of an expression in place of the whole."""
    for holder, name, number, node in places(tree):
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.expr):
                put(holder, name, number, part)
                yield
        put(holder, name, number, node)


def small_numbers(tree: ast.Module) -> Iterator[None]:
    """Make whole numbers small."""
    for _, _, _, node in places(tree):
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value > SMALL:
            before, node.value = node.value, SMALL
            yield
            node.value = before


def fewer_parameters(tree: ast.Module) -> Iterator[None]:
    """Leave out a parameter, a decorator, a base class, or an argument of a call."""
    for node in ast.walk(tree):
        for name in ("args", "decorator_list", "bases", "keywords", "defaults"):
            items = getattr(node, name, None)
            for place in range(len(items) if isinstance(items, list) else 0):
                assert isinstance(items, list)
                item = items.pop(place)
                yield
                items.insert(place, item)


def places(tree: ast.AST) -> list[tuple[ast.AST, str, int | None, ast.expr]]:
    """Where each expression hangs: its parent, the field, the place in a list, itself."""
    found: list[tuple[ast.AST, str, int | None, ast.expr]] = []
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if isinstance(value, ast.expr):
                found.append((parent, name, None, value))
            elif isinstance(value, list):
                found += [
                    (parent, name, number, item)
                    for number, item in enumerate(value)
                    if isinstance(item, ast.expr)
                ]
    return found


def put(holder: ast.AST, name: str, number: int | None, value: Any) -> None:
    """Hang an expression up at a place."""
    if number is None:
        setattr(holder, name, value)
    else:
        getattr(holder, name)[number] = value
