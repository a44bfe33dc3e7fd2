"""Edits that put what a name is bound to in its place: functions, values, zipped loops.

They are made as those of `edits` are: edit the tree, yield, take the edit back.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from typing import Any, Final

from tc.minifier.passes.edits import SMALL, blocks, called, places, put

Function = ast.FunctionDef | ast.AsyncFunctionDef
PROPERTIES: Final = ("property", "cached_property")  # decorators of what is read as an attribute
SEVERAL: Final = 2  # items of a list that takes the place of an object of the program's own class


def function_bodies(tree: ast.Module) -> Iterator[None]:
    """Put the body of a function in place of the one statement that calls it."""
    functions = _functions(tree)
    for name, (function, home) in functions.items():
        if _references(tree, name) != 1:
            continue
        for block in blocks(tree):
            for number, statement in enumerate(list(block)):
                call = getattr(statement, "value", None)
                if not isinstance(call, ast.Call) or called(call) != name:
                    continue
                before, was = list(block), list(home)
                block[number : number + 1] = _body(function, call, statement)
                _leave_out(home, function)
                yield
                home[:] = was
                block[:] = before


def _body(function: Function, call: ast.Call, statement: ast.stmt) -> list[ast.stmt]:
    """Return what a statement that calls a function does, without the function."""
    made: list[ast.stmt] = [
        ast.Assign([ast.Name(name, ast.Store())], value)
        for name, value in _given(function, call).items()
        if not (isinstance(value, ast.Name) and value.id == name)
    ]
    *body, last = copy.deepcopy(function.body)
    if isinstance(last, ast.Return):
        instead = copy.copy(statement)
        instead.value = last.value or ast.Constant(None)  # type: ignore[attr-defined]
        last = instead
    return [*made, *body, last]


def function_values(tree: ast.Module) -> Iterator[None]:
    """Put what a function of the program returns, or yields in a loop, in place of a call of it."""
    functions = _functions(tree)
    for holder, field, number, node in places(tree):
        if not isinstance(node, ast.Call) or called(node) not in functions:
            continue
        function, home = functions[called(node)]
        value = _value(function)
        if value is None:
            continue
        was = list(home)
        put(holder, field, number, _Given(_given(function, node)).visit(copy.deepcopy(value)))
        if _references(tree, function.name) == 0:
            _leave_out(home, function)
        yield
        home[:] = was
        put(holder, field, number, node)


def properties(tree: ast.Module) -> Iterator[None]:
    """Put what a property computes in place of a read of it."""
    made = {
        name: (function, home)
        for name, (function, home) in _functions(tree).items()
        if any(_last_name(one) in PROPERTIES for one in function.decorator_list)
    }
    for holder, field, number, node in places(tree):
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
            continue
        if node.attr not in made:
            continue
        function, home = made[node.attr]
        value, parameters = _value(function), function.args.args
        if value is None or len(parameters) != 1:
            continue
        was = list(home)
        given = {parameters[0].arg: node.value}
        put(holder, field, number, _Given(given).visit(copy.deepcopy(value)))
        if _references(tree, function.name) == 0:
            _leave_out(home, function)
        yield
        home[:] = was
        put(holder, field, number, node)


def _last_name(node: ast.expr) -> str:
    """Return the last part of a dotted name."""
    return str(getattr(node, "attr", getattr(node, "id", "")))


def values_of_classes(tree: ast.Module) -> Iterator[None]:
    """Let a class hold a value that its constructor gives to each object."""
    for home in [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]:
        for function in home.body:
            if not isinstance(function, ast.FunctionDef) or function.name != "__init__":
                continue
            for statement in function.body:
                target = statement.targets[0] if isinstance(statement, ast.Assign) else None
                if not isinstance(target, ast.Attribute) or not isinstance(statement, ast.Assign):
                    continue
                before, was = list(home.body), list(function.body)
                value = ast.Assign([ast.Name(target.attr, ast.Store())], statement.value)
                _leave_out(function.body, statement)
                if all(isinstance(one, ast.Pass) for one in function.body):
                    home.body.remove(function)
                home.body.insert(0, value)
                yield
                home.body[:], function.body[:] = before, was


def _value(function: Function) -> ast.expr | None:
    """Return the expression that a function consists of, or None."""
    body = [one for one in function.body if not isinstance(one, ast.Pass)]
    if len(body) != 1:
        return None
    only = body[0]
    if isinstance(only, ast.Return | ast.Expr):
        return None if isinstance(only.value, ast.Yield | ast.YieldFrom) else only.value
    if not isinstance(only, ast.For) or len(only.body) != 1 or only.orelse:
        return None
    inner = only.body[0]
    if not isinstance(inner, ast.Expr) or not isinstance(inner.value, ast.Yield):
        return None
    loop = ast.comprehension(only.target, only.iter, [], 0)
    return ast.GeneratorExp(inner.value.value or ast.Constant(None), [loop])


def own_objects(tree: ast.Module) -> Iterator[None]:
    """Put a list in place of a call of what the program itself defines."""
    own = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }
    for holder, field, number, node in places(tree):
        if isinstance(node, ast.Call) and called(node) in own:
            items: list[ast.expr] = [ast.Constant(SMALL) for _ in range(SEVERAL)]
            put(holder, field, number, ast.List(items, ast.Load()))
            yield
            put(holder, field, number, node)


def loops_over_parts(tree: ast.Module) -> Iterator[None]:
    """Loop over one of several things that are looped over together, as `zip` does it."""
    for node in list(ast.walk(tree)):
        if not isinstance(node, ast.For | ast.comprehension):
            continue
        target, source = node.target, node.iter
        if not isinstance(target, ast.Tuple) or not isinstance(source, ast.Call):
            continue
        for name in target.elts:
            for part in source.args:
                node.target, node.iter = name, part
                yield
        node.target, node.iter = target, source


def next_values(tree: ast.Module) -> Iterator[None]:
    """Put a value in place of its name in the next statement, if that reads it once."""
    for block in blocks(tree):
        for number, statement in enumerate(list(block)[:-1]):
            if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
                continue
            target, following = statement.targets[0], block[number + 1]
            reads = [
                place
                for place in places(following)
                if isinstance(place[3], ast.Name)
                and isinstance(place[3].ctx, ast.Load)
                and isinstance(target, ast.Name)
                and place[3].id == target.id
            ]
            if len(reads) != 1:
                continue
            holder, field, at, node = reads[0]
            put(holder, field, at, statement.value)
            del block[number]
            yield
            block.insert(number, statement)
            put(holder, field, at, node)


def statements_of_tests(tree: ast.Module) -> Iterator[None]:
    """Put what a statement tests in its place, and an assignment in place of a named expression."""
    for block in blocks(tree):
        for number, statement in enumerate(list(block)):
            instead: ast.stmt | None = None
            if isinstance(statement, ast.If | ast.While):
                instead = ast.Expr(statement.test)
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.NamedExpr):
                instead = ast.Assign([statement.value.target], statement.value.value)
            if instead is not None:
                block[number] = instead
                yield
                block[number] = statement


def _functions(tree: ast.Module) -> dict[str, tuple[Function, list[ast.stmt]]]:
    """Return the functions that have a name of their own, each with the block it stands in."""
    found: dict[str, list[tuple[Function, list[ast.stmt]]]] = {}
    for block in blocks(tree):
        for node in block:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.setdefault(node.name, []).append((node, block))
    return {name: ones[0] for name, ones in found.items() if len(ones) == 1}


def _references(tree: ast.Module, name: str) -> int:
    """Return how often a program reads a name."""
    return sum(name in (getattr(n, "id", ""), getattr(n, "attr", "")) for n in ast.walk(tree))


def _leave_out(block: list[ast.stmt], statement: ast.stmt) -> None:
    block.remove(statement)
    if not block:
        block.append(ast.Pass())


def _given(function: Function, call: ast.Call) -> dict[str, ast.expr]:
    """Return what a call gives to each parameter; of those that it leaves out, the default."""
    parameters = [*function.args.posonlyargs, *function.args.args]
    given: list[Any] = list(call.args)
    if isinstance(call.func, ast.Attribute) and parameters and parameters[0].arg == "self":
        given.insert(0, call.func.value)
    defaults = function.args.defaults
    known = dict(zip((one.arg for one in parameters[::-1]), defaults[::-1], strict=False))
    known |= {
        one.arg: value
        for one, value in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
        if value is not None
    }
    known |= dict(zip((one.arg for one in parameters), given, strict=False))
    known |= {word.arg: word.value for word in call.keywords if word.arg is not None}
    return known


class _Given(ast.NodeTransformer):
    """Writes what is given to a parameter in place of its name."""

    def __init__(self, given: dict[str, ast.expr]) -> None:
        self.given = given

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self.given.get(node.id) if isinstance(node.ctx, ast.Load) else None
        return copy.deepcopy(value) if value is not None else node
