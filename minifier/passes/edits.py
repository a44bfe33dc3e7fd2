"""Edits of a syntax tree, made from Python's own grammar: what a node may lose, and become.

Each function edits the tree, yields, takes the edit back, and continues with the next. An edit need
not make sense: `rendering.rendered` decides what is a candidate.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any, Final

Edits = Callable[[ast.Module], Iterator[None]]
Place = tuple[ast.AST, str, int | None, ast.expr]  # a parent, its field, where in a list, a node

SMALL: Final = 2  # what larger numbers are replaced by
BLOCKS: Final = ("body", "orelse", "finalbody")
#: lists of a node that belong together, item by item
PAIRS: Final[dict[type[ast.AST], tuple[tuple[str, str], ...]]] = {
    ast.Dict: (("keys", "values"),),
    ast.Compare: (("ops", "comparators"),),
    ast.MatchMapping: (("keys", "patterns"),),
    ast.MatchClass: (("kwd_attrs", "kwd_patterns"),),
    ast.arguments: (("kwonlyargs", "kw_defaults"),),
}
PLAIN: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.AsyncFunctionDef: ast.FunctionDef,
    ast.AsyncFor: ast.For,
    ast.AsyncWith: ast.With,
}


def blocks(tree: ast.AST) -> list[list[ast.stmt]]:
    """Return all lists of statements, outer ones first."""
    found: list[list[ast.stmt]] = []
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop(0)
        found += own_blocks(node)
        todo.extend(ast.iter_child_nodes(node))
    return found


def own_blocks(node: ast.AST) -> list[list[ast.stmt]]:
    """Return a node's lists of statements."""
    held = (getattr(node, name, None) for name in BLOCKS)
    return [block for block in held if isinstance(block, list) and block]


def unwrapped(tree: ast.Module) -> Iterator[None]:
    """Put what a statement holds in its place; calls of a function that are statements go too."""
    for block in blocks(tree):
        for place, statement in enumerate(list(block)):
            inner = own_blocks(statement)
            for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
                inner += own_blocks(part)
            for body in inner:
                before = list(block)
                block[place : place + 1] = body
                if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
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
            if isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign):
                if statement.value is None:
                    continue
                block[place] = ast.Expr(statement.value)
                yield
                block[place] = statement


def inlined(tree: ast.Module) -> Iterator[None]:
    """Put a value in place of the one use of its name."""
    reads: dict[str, list[Place]] = {}
    for place in places(tree):
        node = place[3]
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            reads.setdefault(node.id, []).append(place)
    for block in blocks(tree):
        for number, statement in enumerate(list(block)):
            if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
                continue
            target = statement.targets[0]
            uses = reads.get(target.id, []) if isinstance(target, ast.Name) else []
            if len(uses) != 1:
                continue
            holder, name, at, node = uses[0]
            before = list(block)
            put(holder, name, at, statement.value)
            block[number : number + 1] = [] if len(block) > 1 else [ast.Pass()]
            yield
            block[:] = before
            put(holder, name, at, node)


def hoisted(tree: ast.Module) -> Iterator[None]:
    """Put a part of an expression in place of the whole."""
    for holder, name, number, node in places(tree):
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.expr):
                put(holder, name, number, part)
                yield
        put(holder, name, number, node)


def constants(tree: ast.Module) -> Iterator[None]:
    """Put a small number in place of an expression."""
    for holder, name, number, node in places(tree):
        if isinstance(node, ast.Constant) or isinstance(getattr(node, "ctx", None), ast.Store):
            continue
        put(holder, name, number, ast.Constant(SMALL))
        yield
        put(holder, name, number, node)


def small_values(tree: ast.Module) -> Iterator[None]:
    """Make whole numbers small, and leave strings empty."""
    for _, _, _, node in places(tree):
        if not isinstance(node, ast.Constant):
            continue
        smaller: dict[type, Any] = {int: SMALL, str: "", bytes: b""}
        small = smaller.get(type(node.value))
        if small is not None and node.value and node.value not in (0, 1, SMALL):
            before, node.value = node.value, small
            yield
            node.value = before


def fewer_items(tree: ast.Module) -> Iterator[None]:
    """Leave out one item, or all, of any list that is no block: arguments, cases, bases, parts."""
    for node in list(ast.walk(tree)):
        pairs = PAIRS.get(type(node), ())
        paired = {name for pair in pairs for name in pair}
        single = [
            (name,)
            for name, value in ast.iter_fields(node)
            if isinstance(value, list) and name not in (*BLOCKS, *paired)
        ]
        for names in (*pairs, *single):
            yield from _shortened([getattr(node, name) for name in names])


def _shortened(lists: list[list[Any]]) -> Iterator[None]:
    before = [list(items) for items in lists]
    count = min(map(len, before))
    if count > 1:
        for items in lists:
            items.clear()
        yield
    for place in range(count):
        for items, old in zip(lists, before, strict=True):
            items[:] = old[:place] + old[place + 1 :]
        yield
    for items, old in zip(lists, before, strict=True):
        items[:] = old


def fewer_options(tree: ast.Module) -> Iterator[None]:
    """Leave out what a node can be without: annotations, results, bounds, guards, messages."""
    for node in list(ast.walk(tree)):
        for name, value in list(ast.iter_fields(node)):
            if isinstance(value, ast.expr | ast.arg | ast.pattern):
                setattr(node, name, None)
                yield
                setattr(node, name, value)


def fewer_parameters(tree: ast.Module) -> Iterator[None]:
    """Leave out a parameter together with the arguments that calls by the function's name give."""
    calls = [call for call in ast.walk(tree) if isinstance(call, ast.Call)]
    for holder in list(ast.walk(tree)):
        for node in ast.iter_child_nodes(holder):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            name, skipped = node.name, 0
            if isinstance(holder, ast.ClassDef):
                name, skipped = holder.name if name == "__init__" else name, 1
            mine = [call for call in calls if called(call) == name]
            for place in range(skipped, len(node.args.args)):
                yield from _without_parameter(node.args, place, mine, place - skipped)


def _without_parameter(
    taken: ast.arguments, place: int, calls: list[ast.Call], at: int
) -> Iterator[None]:
    """Leave out a parameter, its default, and what calls give to it.

    Args:
        at: its place among the arguments of calls.
    """
    name = taken.args[place].arg
    lists: list[list[Any]] = [taken.args, taken.defaults]
    lists += [items for call in calls for items in (call.args, call.keywords)]
    before = [list(items) for items in lists]
    of_default = place - len(taken.args) + len(taken.defaults)
    if of_default >= 0:
        del taken.defaults[of_default]
    del taken.args[place]
    for call in calls:
        named = [word for word in call.keywords if word.arg != name]
        if len(named) == len(call.keywords):
            del call.args[at : at + 1]
        call.keywords[:] = named
    yield
    for items, old in zip(lists, before, strict=True):
        items[:] = old


def called(call: ast.Call) -> str:
    """Return the last name of what is called."""
    return str(getattr(call.func, "id", getattr(call.func, "attr", "")))


def not_async(tree: ast.Module) -> Iterator[None]:
    """Make an asynchronous statement a plain one."""
    for block in blocks(tree):
        for place, statement in enumerate(list(block)):
            plain = PLAIN.get(type(statement))
            if plain is not None:
                fields = dict(ast.iter_fields(statement))
                made = plain(**fields)
                assert isinstance(made, ast.stmt)
                block[place] = made
                yield
                block[place] = statement


def places(tree: ast.AST) -> list[Place]:
    """Return where each expression hangs: its parent, the field, the place in a list, itself."""
    found: list[Place] = []
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
