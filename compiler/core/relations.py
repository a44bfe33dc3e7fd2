"""Compiles conditions on sizes, as Python text, to programs that C runs (``runtime/relation.c``).

In: an expression over variables. Out: integers in postfix order. Conditions are written as sympy
prints them; one with anything but arithmetic of whole numbers has no program, and Python checks it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Final

OPS: Final = {
    name: number
    for number, name in enumerate(
        (
            *("constant", "number", "size", "stride", "offset", "holds"),
            *("+", "-", "*", "//", "%", "min", "max"),
            *("==", "!=", "<", "<=", ">", ">=", "and", "or", "negative", "not"),
        )
    )
}
"""What a program consists of. Operands follow: of ``constant`` the constant, of ``number`` and
``offset`` the position of a value, of ``size`` and ``stride`` that and the item."""
Read = tuple[int, str]
"""A variable: the position of a value, and what is read of it: ``number``, ``size``, ``stride`` or
``offset``."""

_OPERATORS: Final[dict[type[ast.AST], str]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.And: "and",
    ast.Or: "or",
    ast.USub: "negative",
    ast.Not: "not",
}
#: functions that sympy prints, as torch names them
_FUNCTIONS: Final = {
    "Max": "max",
    "Min": "min",
    "FloorDiv": "//",
    "Mod": "%",
    "PythonMod": "%",
}


class _Unknown(Exception):
    """Control flow: an expression has no program."""


def program_of(body: str, reads: Mapping[str, Read]) -> list[int] | None:
    """Return the program of a conjunction, or None if it has none.

    Args:
        body: Python, an expression.
        reads: what its variables are.
    """
    expression = ast.parse(body, mode="eval").body
    parts = [expression]
    if isinstance(expression, ast.BoolOp) and isinstance(expression.op, ast.And):
        parts = expression.values
    try:
        return [step for one in parts for step in (*_steps(one, reads), OPS["holds"])]
    except _Unknown:
        return None


def _steps(node: ast.expr, reads: Mapping[str, Read]) -> Iterator[int]:
    match node:
        case ast.Constant(bool() | int() as value) if abs(value) < 2**63:
            yield from (OPS["constant"], int(value))
        case ast.Name(name) if name in reads:
            at, kind = reads[name]
            if kind not in ("number", "offset"):
                raise _Unknown
            yield from (OPS[kind], at)
        case ast.Subscript(ast.Name(name), ast.Constant(int() as item)):
            at, kind = reads[name]
            if kind not in ("size", "stride") or item < 0:
                raise _Unknown
            yield from (OPS[kind], at, item)
        case ast.BoolOp(op, values):
            yield from _folded(_OPERATORS[type(op)], values, reads)
        case ast.BinOp(left, op, right):
            yield from _folded(_operator(op), [left, right], reads)
        case ast.UnaryOp(op, operand):
            yield from (*_steps(operand, reads), OPS[_operator(op)])
        case ast.Compare(left, ops, others):
            sides = [left, *others]
            for n, comparison in enumerate(ops):
                yield from _folded(_operator(comparison), sides[n : n + 2], reads)
                if n:
                    yield OPS["and"]
        case ast.Call(ast.Name(name), [_, *_] as given, []) if name in _FUNCTIONS:
            yield from _folded(_FUNCTIONS[name], given, reads)
        case _:
            raise _Unknown


def _folded(operator: str, values: list[ast.expr], reads: Mapping[str, Read]) -> Iterator[int]:
    """Yield the steps of an operator between values, from the left."""
    for n, value in enumerate(values):
        yield from _steps(value, reads)
        if n:
            yield OPS[operator]


def _operator(op: ast.AST) -> str:
    if type(op) not in _OPERATORS:
        raise _Unknown
    return _OPERATORS[type(op)]
