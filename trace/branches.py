"""A line that asks for a value of a tensor goes in; what is done with the answer comes out.

Which edit removes a graph break at a branch depends on what the branch does: values of two sides
can be chosen by `torch.where`, a line that only prints cannot. The source is read where the
program's files are available, as they are on the machine that wrote the trace.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from functools import lru_cache
from itertools import pairwise
from pathlib import PurePath
from typing import Final

from tc.trace.ids import is_resumed
from tc.trace.lines import line_of, lines_of
from tc.trace.syntax import tree_of
from tc.trace.words import REDACTED


class Does(Enum):
    """What a branch does with its condition."""

    REPORTS = "reports"
    COLLECTS = "collects"
    RAISES = "raises"
    CATCHES = "raises what the function catches"
    LOOPS = "loops"
    LEAVES = "leaves"
    CHOOSES = "chooses"


#: methods that make a list or a set longer
LONGER: Final = frozenset(("append", "extend", "insert", "appendleft", "add"))
#: methods and functions that only report something, and whose result nobody uses
REPORTING: Final = frozenset((
    "print", "debug", "info", "warning", "warn", "error", "exception", "critical", "log", "write",
    "add_scalar",
))  # fmt: skip
_original: Final[ContextVar[Callable[[str], str]]] = ContextVar("original", default=str)


@contextmanager
def seen_through(original: Callable[[str], str]) -> Iterator[None]:
    """Look at the files that the paths of a redacted trace are written in place of.

    Otherwise a redacted report would advise other things than the one it is a copy of.

    Args:
        original: gives back a path, a name or a line.
    """
    token = _original.set(original)
    try:
        yield
    finally:
        _original.reset(token)


def as_written(text: str) -> str:
    """Return a path, a name or a line as the program has it, where its trace is redacted."""
    return _original.get()(text)


def what_it_does(file: str, line: int, source: str = "", numbers: bool = False) -> Does | None:
    """Return what the branch at a line does; None if there is none, or its source is not known.

    Args:
        numbers: a number is read out of a tensor at the line: only a test that does so counts.
    """
    file, source = map(_original.get(), (file, source))
    text = line_of(file, line).strip()
    if not text or (source.strip() and source.strip() not in text):
        return None
    return _found(file, line, len(lines_of(file)), numbers)


@lru_cache(1024)
def _found(file: str, line: int, _length: int, numbers: bool) -> Does | None:
    tree = _tree(file, _length)
    found = None
    for parents in branches_of(tree) if tree is not None else ():
        test = getattr(parents[-1], "test", None)
        if test is not None and test.lineno <= line <= (test.end_lineno or line):
            found = does_of(parents) if not numbers or _has_number(test) else found
    return found


READING: Final = frozenset(("item", "tolist", "int", "float", "bool", "complex", "numpy"))


def _has_number(test: ast.AST) -> bool:
    return any(isinstance(one, ast.Call) and called_name(one) in READING for one in ast.walk(test))


def tree_at(file: str) -> ast.AST | None:
    """Return the syntax tree of a file, None where its source is not available."""
    return _tree(file, len(lines_of(file)))


@lru_cache(32)
def _tree(file: str, _length: int) -> ast.AST | None:
    return tree_of("".join(lines_of(file)))


def branches_of(node: ast.AST, above: tuple[ast.AST, ...] = ()) -> Iterator[tuple[ast.AST, ...]]:
    """Yield the branches below a node, outer ones first, each with all that is around it."""
    here = (*above, node)
    if isinstance(node, ast.If | ast.While | ast.Assert | ast.IfExp):
        yield here
    for child in ast.iter_child_nodes(node):
        yield from branches_of(child, here)


def does_of(parents: tuple[ast.AST, ...]) -> Does:
    """Return what a branch does, which is the last of these: it is given with all around it."""
    node = parents[-1]
    if isinstance(node, ast.While):
        return Does.LOOPS
    if isinstance(node, ast.Assert):
        return Does.CATCHES if _is_caught("AssertionError", parents) else Does.RAISES
    if not isinstance(node, ast.If):
        return Does.CHOOSES
    bodies = [body for body in (node.body, node.orelse) if body]
    if all(isinstance(body[-1], ast.Raise) for body in bodies):
        raised = {_exception(body[-1].exc) for body in bodies if isinstance(body[-1], ast.Raise)}
        caught = all(_is_caught(name, parents) for name in raised)
        return Does.CATCHES if caught else Does.RAISES
    if all(_only_reports(one) for body in bodies for one in body):
        return Does.REPORTS
    if all(_only_reports(one, LONGER) for body in bodies for one in body):
        return Does.COLLECTS
    ends = [body[-1] for body in bodies]
    if any(isinstance(end, ast.Break | ast.Continue) for end in ends):
        around = [one for one in parents if isinstance(one, ast.For | ast.While)]
        endless = around and isinstance(around[-1], ast.While)
        return Does.LOOPS if endless or isinstance(ends[0], ast.Break) else Does.CHOOSES
    if any(isinstance(end, ast.Return) for end in ends):
        return Does.LOOPS if _in_loop(parents) else Does.LEAVES
    return Does.CHOOSES


def _in_loop(parents: tuple[ast.AST, ...]) -> bool:
    """Whether a branch is in a loop of the function: to return there ends the loop as well."""
    inner = [n for n, one in enumerate(parents) if isinstance(one, ast.FunctionDef | ast.Lambda)]
    here = parents[max(inner, default=0) :]
    return any(isinstance(one, ast.For | ast.While) for one in here)


def _exception(node: ast.expr | None) -> str:
    """Return the name of an exception or its class as it is written; empty for any other value."""
    if isinstance(node, ast.Call):
        node = node.func
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""


def _is_caught(raised: str, parents: tuple[ast.AST, ...]) -> bool:
    """Whether the function itself handles what a branch raises, by a `try` around it."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    first = max((n for n, one in enumerate(parents) if isinstance(one, functions)), default=0)
    for around, below in pairwise(parents[first:]):
        if isinstance(around, ast.Try) and any(below is one for one in around.body):
            for handler in around.handlers:
                if _takes(handler, raised):
                    return not any(isinstance(one, ast.Raise) for one in ast.walk(handler))
    return False


def _takes(handler: ast.ExceptHandler, raised: str) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = [_exception(one) for one in kinds if one is not None]
    if not names or raised in names:
        return True
    known = [vars(builtins).get(name) for name in names]
    what = vars(builtins).get(raised, Exception)
    return isinstance(what, type) and any(
        isinstance(k, type) and issubclass(what, k) for k in known
    )


def _only_reports(statement: ast.stmt, also: Set[str] = frozenset()) -> bool:
    if isinstance(statement, ast.Pass):
        return True
    if not isinstance(statement, ast.Expr):
        return False
    call = statement.value
    if isinstance(call, ast.Constant):
        return True
    if not isinstance(call, ast.Call):
        return False
    return called_name(call) in REPORTING | also


def is_tested(file: str, line: int, name: str) -> bool:
    """Return whether the function at a line goes one way or the other by an input of that name.

    Args:
        name: as the user writes it, `self.scale`. Only where the source is available.
    """
    return bool(_tests_of(file, line, name))


def only_reports(file: str, line: int, name: str) -> bool:
    """Return whether all that the function at a line does by an input of that name is to report.

    Or to collect something, or to raise: then there is nothing to choose between.
    """
    found = [_does_by_number(one) for one in _tests_of(file, line, name)]
    return bool(found) and not {Does.CHOOSES, Does.LEAVES, Does.CATCHES, Does.LOOPS} & set(found)


def is_made_when_missing(file: str, line: int, name: str) -> bool:
    """Return whether the function at a line sets an input of that name in a branch that tests it.

    `if self.table is None: self.table = …`: then it may as well be there before, as the value may
    that an expression has in its place.
    """
    names = names_of(_original.get()(name))
    tests = _tests_of(file, line, name)
    return any(isinstance(parents[-1], ast.IfExp) for parents in tests) or any(
        isinstance(one, ast.Attribute | ast.Subscript)
        and isinstance(one.ctx, ast.Store)
        and ast.unparse(one) in names
        for parents in tests
        for one in ast.walk(parents[-1])
    )


def branch_at(file: str, line: int) -> ast.If | None:
    """Return the innermost `if` statement whose condition is at a line."""
    tree = tree_at(_original.get()(file))
    found = None
    for parents in branches_of(tree) if tree is not None else ():
        node = parents[-1]
        if isinstance(node, ast.If) and node.test.lineno <= line <= (node.test.end_lineno or line):
            found = node
    return found


def _tests_of(file: str, line: int, name: str) -> list[tuple[ast.AST, ...]]:
    """Return the branches of the function at a line that read an input of that name in their test.

    Each with all that is around it.
    """
    file, name = map(_original.get(), (file, name))
    tree = tree_at(file)
    names = names_of(name)
    if tree is not None:
        names = (*names, *_compared_by(tree, name))
        names = (*names, *_compared_as(file, line, names))
    found = []
    for parents in branches_of(tree) if tree is not None else ():
        test = getattr(parents[-1], "test", None)
        around = [one for one in parents if isinstance(one, ast.FunctionDef)]
        if test is None or not any(_first(one) <= line <= (one.end_lineno or 0) for one in around):
            continue
        here = test.lineno <= line <= (test.end_lineno or line)  # an item has another name there
        if reads(test, names) or (here and _has_attribute(test, name)):
            found.append(parents)
    return found


@lru_cache(256)
def _compared_by(tree: ast.AST, name: str) -> tuple[str, ...]:
    """Return what compares an attribute: who tests the property tests that as well."""
    return tuple(_comparing(tree, name))


def _comparing(tree: ast.AST, name: str) -> Iterator[str]:
    owner, _, attribute = name.rpartition(".")
    for one in ast.walk(tree) if owner else ():
        marks = one.decorator_list if isinstance(one, ast.FunctionDef) else []
        is_length = isinstance(one, ast.FunctionDef) and one.name == "__len__"
        if is_length and reads(one, (f"self.{attribute}",)):
            yield from (f"len({owner})", "len(self)")
        if isinstance(one, ast.FunctionDef) and any("property" in ast.unparse(m) for m in marks):
            compared = (node for node in ast.walk(one) if isinstance(node, ast.Compare))
            if any(reads(node, (f"self.{attribute}",)) for node in compared):
                yield from (f"{owner}.{one.name}", f"self.{one.name}")


def _compared_as(file: str, line: int, names: Sequence[str]) -> Iterator[str]:
    """Yield the variables that hold what a comparison of an input gave: `last = n >= len(rows)`."""
    function = function_at(file, line)
    for one in ast.walk(function) if function is not None else ():
        target = one.targets[0] if isinstance(one, ast.Assign) else None
        if isinstance(one, ast.Assign) and isinstance(target, ast.Name):
            compared = (node for node in ast.walk(one.value) if isinstance(node, ast.Compare))
            if any(reads(node, names) for node in compared):
                yield target.id


def _has_attribute(node: ast.AST, name: str) -> bool:
    attributes = {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}
    return "." in name and name.rpartition(".")[2] in attributes


def _does_by_number(parents: tuple[ast.AST, ...]) -> Does:
    """What a branch on a plain number does: the next turn after it is no choice."""
    node = parents[-1]
    bodies = [node.body, node.orelse] if isinstance(node, ast.If) else []
    rows = [one for body in bodies for one in body]
    if rows and all(isinstance(one, ast.Continue) or _only_reports(one, LONGER) for one in rows):
        return Does.COLLECTS
    return does_of(parents)


_SIZE: Final = re.compile(r"(?P<of>.+)\.shape\[(?P<index>\d+)\]")


def names_of(name: str) -> tuple[str, ...]:
    """What an input may be called where it is read: an attribute is one of `self` in a method."""
    if part := _SIZE.match(name):
        of, index = part["of"], part["index"]
        first = (f"len({of})",) if index == "0" else ()
        return name, f"{of}.size({index})", f"{of}.shape[-", f"{of}.size(-", *first
    owner, _, attribute = name.rpartition(".")
    return (name, f"self.{attribute}") if owner else (name,)


def reads(node: ast.AST, names: Sequence[str]) -> bool:
    """Whether an expression is in a node; a name that ends in a minus is what one begins with."""
    texts = [ast.unparse(one) for one in ast.walk(node) if isinstance(one, ast.expr)]
    begins = tuple(name for name in names if name.endswith("-"))
    return any(text in names or (begins and text.startswith(begins)) for text in texts)


def containers_of_key(file: str, line: int, name: str) -> set[str]:
    """Return the last names of what the function at a line looks an input of that name up in."""
    function = function_at(file, line)
    names = names_of(_original.get()(name))
    return {
        ast.unparse(node.value).rpartition(".")[2]
        for node in (ast.walk(function) if function is not None else ())
        if isinstance(node, ast.Subscript) and ast.unparse(node.slice) in names
    }


def is_looped_over(file: str, line: int, name: str) -> bool:
    """Return whether a loop of the function at a line takes as many iterations as an input says.

    A function that calls itself with what is left of the input is such a loop.
    """
    names = names_of(_original.get()(name))
    function = function_at(file, line)
    itself = (function.name, f"self.{function.name}") if function is not None else ()
    return any(
        (called_name(one) == "range" and any(reads(part, names) for part in one.args))
        or (ast.unparse(one.func) in itself and any(_is_less(part, names) for part in one.args))
        for one in calls_at(file, line)
    )


def _is_less(node: ast.AST, names: Sequence[str]) -> bool:
    """Whether an expression is one of these, made smaller."""
    smaller = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub | ast.FloorDiv)
    return isinstance(node, ast.BinOp) and smaller and ast.unparse(node.left) in names


def is_appended_to(file: str, line: int, name: str) -> bool:
    """Return whether the function at a line makes a list of that name longer.

    That of an object may be made longer by any method or function; what a program does outside of
    all functions is outside of the compiled one already.
    """
    path, name = map(_original.get(), (file, name))
    tree = tree_at(path) if "." in name else None
    names = names_of(name)
    return any(
        isinstance(one, ast.Call)
        and isinstance(one.func, ast.Attribute)
        and one.func.attr in LONGER
        and _item(one.func.value) in names
        for one in (calls_at(file, line) if tree is None else _in_functions(tree))
    )


def _in_functions(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield what is in functions of a module, and not among the statements that run when it is."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from ast.walk(node)
        else:
            yield from _in_functions(node)


def is_appended_to_in_module(file: str, name: str) -> bool:
    """Return whether the module that a list belongs to makes it longer: `shop.metrics.rows`.

    The module is looked for in the folders above a file of the program.
    """
    *module, last = as_written(name).split(".")
    folders = PurePath(as_written(file)).parents[:_MOST_FOLDERS] if module else ()
    paths = (str(one.joinpath(*module).with_suffix(".py")) for one in folders)
    tree = next(filter(None, map(tree_at, (path for path in paths if lines_of(path)))), None)
    return tree is not None and any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in LONGER
        and ast.unparse(node.func.value) == last
        for node in ast.walk(tree)
    )


_MOST_FOLDERS: Final = 4


def _item(node: ast.expr) -> str:
    """Return an expression as text; what a dict is asked for by a method as an item: `d['k']`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        of, key = ast.unparse(node.func.value), ast.unparse(node.args[0])
        return f"{of}[{key}]" if node.func.attr in ("setdefault", "get") else ast.unparse(node)
    return ast.unparse(node)


def is_in_block(file: str, line: int) -> bool:
    """Return whether a line is in a block that capture cannot enter again.

    True as well where the source is not available: then most functions are given up for this.
    """
    function = function_at(file, line)
    nodes = ast.walk(function) if function is not None else ()
    blocks = [one for one in nodes if isinstance(one, _BLOCKS)]
    around = (one.lineno <= line <= (one.end_lineno or line) for one in blocks)
    return function is None or any(around)


_BLOCKS: Final = (ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.GeneratorExp)


def is_in_try(file: str, line: int) -> bool:
    """Return whether a line is tried: what it raises is handled by the function itself."""
    function = function_at(file, line)
    tried = (
        (one.body[0].lineno, one.body[-1].end_lineno or 0)
        for one in (ast.walk(function) if function is not None else ())
        if isinstance(one, ast.Try) and one.handlers
    )
    return any(first <= line <= last for first, last in tried)


def is_with_header(file: str, line: int) -> bool:
    """Return whether a line enters a context manager: it is in the header of a `with` statement."""
    function = function_at(file, line)
    items = (item.context_expr for node in (ast.walk(function) if function is not None else ())
             if isinstance(node, ast.With) for item in node.items)  # fmt: skip
    return any(one.lineno <= line <= (one.end_lineno or line) for one in items)


def is_context_manager(file: str, line: int) -> bool:
    """Return whether the function at a line is a generator that `with` runs around a block."""
    function = function_at(file, line)
    marks = function.decorator_list if function is not None else ()
    return any("contextmanager" in ast.unparse(one) for one in marks)


def text_of(file: str, line: int, source: str = "") -> str:
    """Return a line of the program: as the trace has it, or as in its file; else nothing.

    What was written before a line was redacted is not known from a copy of a trace alone.
    """
    file, shown = map(_original.get(), (file, source.strip()))
    if shown and not REDACTED.fullmatch(shown):
        return shown.strip()
    return line_of(file, line).strip()


def is_read(file: str, line: int) -> bool:
    """Return whether the source of the function at a line is available."""
    return function_at(file, line) is not None


def calls_at(file: str, line: int) -> Iterator[ast.Call]:
    """Yield the calls of the function at a line; where no `def` is around it, of its lambdas."""
    function = function_at(file, line)
    tree = tree_at(_original.get()(file)) if function is None else None
    lambdas = [one for one in nodes_around(tree, line) if isinstance(one, ast.Lambda)]
    for around in [function] if function is not None else lambdas:
        for node in ast.walk(around):
            if isinstance(node, ast.Call):
                yield node


def is_filled(file: str, line: int, name: str) -> bool:
    """Return whether the function at a line stores items in a container of that name.

    An attribute may be stored in by any method.
    """
    path, name = map(_original.get(), (file, name))
    around = tree_at(path) if "." in name else function_at(file, line)
    return any(
        isinstance(one, ast.Subscript)
        and isinstance(one.ctx, ast.Store)
        and ast.unparse(one.value) in names_of(name)
        for one in (ast.walk(around) if around is not None else ())
    )


def is_keywords(file: str, line: int, name: str) -> bool:
    """Return whether the function at a line has a parameter `**name` of that name.

    Each call passes what is in there, whatever the function adds to it.
    """
    function = function_at(file, line)
    rest = function.args.kwarg if function is not None else None
    return rest is not None and rest.arg == _original.get()(name)


def is_made_before_break(compiled: str, file: str, line: int, name: str) -> bool:
    """Return whether an input of a resume function was made by the user's function itself.

    Then no caller could change it: it is a local variable, or one of a callee, whose name the
    function does not have. False where the source is not available.

    Args:
        compiled: the name of the compiled function.
        line: the first line of the user's function.
    """
    function = function_at(file, line) if is_resumed(compiled) else None
    root = _ROOT.search(_CONVERSION.sub("", _original.get()(name)))
    if function is None or root is None:
        return False
    uses = [one for one in ast.walk(function) if isinstance(one, ast.Name) and one.id == root[0]]
    if any(isinstance(one.ctx, ast.Store) for one in uses):
        return True
    spec = function.args
    known = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg]
    return not uses and root[0] not in [one.arg for one in known if one is not None]


_ROOT: Final = re.compile(r"^[A-Za-z_]\w*")
_CONVERSION: Final = re.compile(r"^(?:float|int|bool)\(")  # of what was converted: `float(hi)`


def called_name(call: ast.Call) -> str:
    """Return the name of a called function or method; empty for what has none."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def function_at(file: str, line: int) -> ast.FunctionDef | None:
    """Return the innermost function around a line, None where its source is not available."""
    file = _original.get()(file)
    tree = tree_at(file)
    functions = [one for one in nodes_around(tree, line) if isinstance(one, ast.FunctionDef)]
    return functions[-1] if functions else None


def nodes_around(node: ast.AST | None, line: int) -> Iterator[ast.AST]:
    """Yield what is at a line below a node, outer ones first; what has no place is looked into."""
    for child in ast.iter_child_nodes(node) if node is not None else ():
        if (last := getattr(child, "end_lineno", None)) is None:
            yield from nodes_around(child, line)
        elif _first(child) <= line <= last:
            yield child
            yield from nodes_around(child, line)


def _first(node: ast.AST) -> int:
    """The first line of what has a place, a function's decorators included, as code objects do."""
    return min(one.lineno for one in [node, *getattr(node, "decorator_list", ())])  # type: ignore
