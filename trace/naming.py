"""A changed input goes in as guards name it; it comes out as the program names it.

A guard counts what has a name: the cells of a function, the arguments of a wrapper, the fields of a
named tuple. The source is read where the program's files are available.
"""

from __future__ import annotations

import ast
import re
import symtable
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from tc.trace.branches import as_written, function_at, nodes_around, tree_at
from tc.trace.lines import lines_of

_CELL: Final = re.compile(
    r"(?:list\([\w.\[\]'\"]+\.values\(\)\))?[\w.\[\]'\"]+\.__closure__\[(\d+)\]\.cell_contents"
)


def with_cell_named(file: str, line: int, source: str) -> str:
    """Return a source with a variable of an outer function by its name: `len(history)`.

    A guard names the cell by its number among those of the function that reads it, at the line.
    The source stays as it is where that function is not available, or is a lambda.
    """
    found = _CELL.search(source)
    function = function_at(file, line) if found is not None else None
    if found is None or function is None:
        return source
    lambdas = (one for one in ast.walk(function) if isinstance(one, ast.Lambda))
    if any(one.lineno <= line <= (one.end_lineno or line) for one in lambdas):
        return source
    file = as_written(file)
    names = _cells(file, function.name, function.lineno, len(lines_of(file)))
    index = int(found[1])
    return source.replace(found[0], names[index]) if index < len(names) else source


@lru_cache(256)
def _cells(file: str, function: str, line: int, _length: int) -> tuple[str, ...]:
    """Return the variables of outer functions that a function uses, as `co_freevars` has them."""
    waiting = [symtable.symtable("".join(lines_of(file)), file, "exec")]
    while waiting:
        table = waiting.pop()
        if isinstance(table, symtable.Function) and (table.get_name(), table.get_lineno()) == (
            function, line,
        ):  # fmt: skip
            return tuple(sorted(table.get_frees()))
        waiting += table.get_children()
    return ()


_ARGUMENT: Final = re.compile(r"(?<![\w.])(?:args\[(\d+)\]|kwargs\['(\w+)'\])")


def with_argument_named(file: str, line: int, source: str) -> str:
    """Return a source with an argument of a wrapper as the call at the user's line passes it.

    `args[0].shape[1]` is `x.shape[1]` where the line is `loss = net(x)`. The source stays as it is
    where the line has several calls that pass something there, or passes what has no name.
    """
    found = _ARGUMENT.search(source)
    file = as_written(file)
    tree = tree_at(file) if found is not None else None
    passed: set[str] = set()
    for node in nodes_around(tree, line):
        if isinstance(node, ast.Call):
            value = _passed(node, found[1], found[2]) if found is not None else None
            passed |= {ast.unparse(value)} if value is not None else set()
    name = min(passed, default="")
    is_name = len(passed) == 1 and _NAME.fullmatch(name)
    return source.replace(found[0], name) if found is not None and is_name else source


_NAME: Final = re.compile(r"[A-Za-z_][\w.]*")


def _passed(call: ast.Call, index: str | None, keyword: str | None) -> ast.expr | None:
    """Return what a call passes at a position, or by a keyword; what it unpacks may be there."""
    if index is None:
        unpacked = [ast.Starred(one.value) for one in call.keywords if one.arg is None]
        named = [one.value for one in call.keywords if one.arg == keyword]
        return next(iter((*named, *unpacked)), None)
    before = call.args[: int(index) + 1]
    unpacked = [one for one in before if isinstance(one, ast.Starred)]
    return unpacked[0] if unpacked else dict(enumerate(call.args)).get(int(index))


_FIELD: Final = re.compile(r"(?P<of>[A-Za-z_][\w.]*)\[(?P<index>\d+)\](?=$|\.|\))")
_ANNOTATED: Final = ("NamedTuple", "typing.NamedTuple")


def with_field_named(file: str, line: int, source: str) -> str:
    """Return a source with a field of a named tuple by its name: `rays.origin.shape[0]`.

    A guard names it by its number. It is the field of a class of the file, by that number, that
    the function at the line reads by its name.
    """
    found = _FIELD.search(source)
    function = function_at(file, line) if found is not None else None
    tree = tree_at(as_written(file)) if function is not None else None
    if found is None or function is None or tree is None:
        return source
    read = {
        one.attr
        for one in ast.walk(function)
        if isinstance(one, ast.Attribute) and ast.unparse(one.value) == found["of"]
    }
    index = found["index"]
    named = (dict(enumerate(some)) for some in _named_tuples(tree))
    names = {name for some in named for n, name in some.items() if str(n) == index} & read
    name = f"{found['of']}.{next(iter(names))}" if len(names) == 1 else found[0]
    return source[: found.start()] + name + source[found.end() :]


@lru_cache(32)
def _named_tuples(tree: ast.AST) -> tuple[tuple[str, ...], ...]:
    """Return the fields of each named tuple that a file defines."""
    return tuple(_defined_in(tree))


def _defined_in(tree: ast.AST) -> Iterator[tuple[str, ...]]:
    for one in ast.walk(tree):
        if isinstance(one, ast.ClassDef) and any(ast.unparse(b) in _ANNOTATED for b in one.bases):
            yield tuple(
                row.target.id
                for row in one.body
                if isinstance(row, ast.AnnAssign) and isinstance(row.target, ast.Name)
            )
        elif isinstance(one, ast.Call) and ast.unparse(one.func).endswith("namedtuple"):
            yield _fields(one)


def _fields(call: ast.Call) -> tuple[str, ...]:
    """Return the fields that a call of `namedtuple` names, as text or one by one."""
    fields = call.args[1] if len(call.args) > 1 else None
    if isinstance(fields, ast.Constant) and isinstance(fields.value, str):
        return tuple(fields.value.replace(",", " ").split())
    parts = fields.elts if isinstance(fields, ast.List | ast.Tuple) else []
    return tuple(str(one.value) for one in parts if isinstance(one, ast.Constant))
