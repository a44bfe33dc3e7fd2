"""An input of a program goes in; whether its code counts, indexes or goes along dimensions with it
comes out.

Where it does, a tensor in place of the number would have to be read at that point, and which edit
is advised depends on that. The source is read where the program's files are available.
"""

from __future__ import annotations

import ast
from collections.abc import Set
from typing import Final

from tc.trace.branches import (
    REPORTING,
    as_written,
    called_name,
    calls_at,
    function_at,
    names_of,
    reads,
    tree_at,
)

#: functions and methods that need a number itself: sizes, counts, positions
COUNTING: Final = frozenset((
    "zeros", "ones", "empty", "full", "arange", "rand", "randn", "eye", "linspace", "view",
    "reshape", "expand", "repeat", "narrow", "split", "chunk", "topk", "unflatten", "new_zeros",
    "new_ones", "new_empty", "one_hot",
))  # fmt: skip
#: functions and methods that take a dimension, which is a number; what else they take may be a
#: tensor that was computed with one
_BY_DIMENSION: Final = frozenset((
    "softmax", "log_softmax", "cumsum", "cumprod", "flip", "roll", "transpose", "swapaxes",
    "permute", "movedim", "unsqueeze", "squeeze", "select", "unfold", "flatten", "argmax", "argmin",
    "cat", "stack", "tile",
))  # fmt: skip
#: parameters of torch's that take numbers alone, whatever the function
_OF_NUMBERS: Final = frozenset((
    "dim", "dims", "axis", "k", "size", "chunk_size", "num_classes", "kernel_size", "stride",
    "padding", "dilation", "groups", "shifts", "repeats", "output_size", "diagonal", "offset",
))  # fmt: skip


def is_used_as_index(file: str, line: int, name: str) -> bool:
    """Return whether the function at a line indexes, slices or counts with an input of that name.

    Where it does, a tensor in place of the number would have to be read at that point.
    """
    function = function_at(file, line)
    names = names_of(as_written(name))
    operators = _operators(as_written(file))
    for node in ast.walk(function) if function is not None else ():
        parts: list[ast.AST] = []
        if isinstance(node, ast.Subscript):
            parts = [node.slice]
        elif isinstance(node, ast.Call) and called_name(node) in COUNTING:
            parts = [*node.args, *(one.value for one in node.keywords)]
        elif isinstance(node, ast.Return) and function is not None:
            parts = [node] if function.name in ("__len__", "__index__") else []
        if any(reads(part, names) for part in parts):
            return True
        plain = _numbers(node, operators) if isinstance(node, ast.Call) else ()
        if any(ast.unparse(one) in names for one in plain):
            return True
    return False


def is_exponent(file: str, line: int, name: str) -> bool:
    """Return whether the function at a line has a power of an int with an exponent of that name.

    Such a power is a count (`2 ** bits`), of its own for each exponent, whatever is dynamic.
    """
    function = function_at(file, line)
    names = names_of(as_written(name))
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Pow)
        and isinstance(node.left, ast.Constant)
        and isinstance(node.left.value, int)
        and ast.unparse(node.right) in names
        for node in (ast.walk(function) if function is not None else ())
    )


#: functions and methods that take a dimension by its place; parameters that do by their name
_ALONG: Final = frozenset((
    "softmax", "log_softmax", "cumsum", "cumprod", "flip", "transpose", "swapaxes", "permute",
    "movedim", "unsqueeze", "squeeze", "argmax", "argmin", "cat", "stack", "sum", "mean", "amax",
    "amin", "prod", "std", "var", "any", "all", "logsumexp", "median", "sort", "argsort", "unbind",
))  # fmt: skip
_DIMENSIONS: Final = frozenset(("dim", "dims", "axis", "in_dims", "out_dims"))


#: methods that ask a dict for one of its items
_OF_ONE_KEY: Final = frozenset(("get", "setdefault", "pop"))


def is_used_whole(file: str, line: int, name: str) -> bool:
    """Return whether a line asks a container of that name for all that it holds, not for an item.

    `counts.most_common(1)`, `sum(rows)`, `sorted(scores.items())`.
    """
    function = function_at(file, line)
    names = names_of(as_written(name))
    nodes = list(ast.walk(function)) if function is not None else []
    parts = [one.value for one in nodes if isinstance(one, ast.Subscript)]
    called = {id(one.func) for one in nodes if isinstance(one, ast.Call)}
    parts += [  # a field of a named tuple, not a method
        one.value for one in nodes if isinstance(one, ast.Attribute) and id(one) not in called
    ]
    calls = [one.func for one in nodes if isinstance(one, ast.Call)]
    parts += [
        one.value for one in calls if isinstance(one, ast.Attribute) and one.attr in _OF_ONE_KEY
    ]
    uses = [
        one
        for one in nodes
        if isinstance(one, ast.Name | ast.Attribute)
        and one.lineno <= line <= (one.end_lineno or line)
        and ast.unparse(one) in names
    ]
    return bool(uses) and not any(one is part for one in uses for part in parts)


def is_stored(file: str, line: int, name: str) -> bool:
    """Return whether the function at a line sets an attribute or item of that name itself."""
    function = function_at(file, line)
    names = names_of(as_written(name))
    return any(
        isinstance(one, ast.Attribute | ast.Subscript)
        and isinstance(one.ctx, ast.Store)
        and ast.unparse(one) in names
        for one in (ast.walk(function) if function is not None else ())
    )


def is_dimension(file: str, line: int, name: str) -> bool:
    """Return whether the function at a line passes an input of that name as a dimension."""
    names = names_of(as_written(name))
    for call in calls_at(file, line):
        taken = [one.value for one in call.keywords if one.arg in _DIMENSIONS]
        if isinstance(call.func, ast.Attribute) and call.func.attr in _ALONG:
            taken += call.args
        if any(ast.unparse(one) in names for one in taken):
            return True
    return False


#: functions and methods that make text of what they are given
_SPELLING: Final = frozenset(("str", "repr", "format", "hex", "bin", "oct", "ascii"))


def is_spelled_out(file: str, line: int, name: str) -> bool:
    """Return whether the function at a line makes text of an input of that name, and uses it.

    Text of a tensor is another one. What only an error or a message to somebody says is no use.
    """
    function = function_at(file, line)
    names = names_of(as_written(name))
    waiting: list[ast.AST] = [function] if function is not None else []
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Raise | ast.Assert):
            continue
        if isinstance(node, ast.Call) and called_name(node) in REPORTING:
            continue
        texts: list[ast.AST] = []
        if isinstance(node, ast.JoinedStr):
            texts = [one for one in node.values if isinstance(one, ast.FormattedValue)]
        elif isinstance(node, ast.Call) and called_name(node) in _SPELLING:
            texts = [*node.args, *(one.value for one in node.keywords)]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            is_text = isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)
            texts = [node.right] if is_text else []
        if any(reads(one, names) for one in texts):
            return True
        waiting += ast.iter_child_nodes(node)
    return False


def is_gone_through(file: str, line: int, name: str) -> bool:
    """Return whether the function at a line loops over an input of that name, item by item."""
    function = function_at(file, line)
    names = names_of(as_written(name))
    return any(
        ast.unparse(node.iter) in names
        for node in (ast.walk(function) if function is not None else ())
        if isinstance(node, ast.For | ast.comprehension)
    )


def _numbers(call: ast.Call, operators: Set[str]) -> list[ast.expr]:
    """Return the arguments of a call that have to be numbers, where an input is passed alone.

    The schema of a custom operator has the type of each: a number is no tensor there.
    """
    named = [one.value for one in call.keywords if one.arg in _OF_NUMBERS]
    by_schema = ast.unparse(call.func).startswith("torch.ops.") or called_name(call) in operators
    taken = by_schema or called_name(call) in _BY_DIMENSION
    return [*named, *(call.args if taken else ())]


def _operators(file: str) -> frozenset[str]:
    """Return the names of the functions of a file that are custom operators."""
    tree = tree_at(file)
    return frozenset(
        one.name
        for one in (ast.walk(tree) if tree is not None else ())
        if isinstance(one, ast.FunctionDef)
        and any("custom_op(" in ast.unparse(mark) for mark in one.decorator_list)
    )
