"""Programs over Python's own semantics do as in Python, wherever the graph breaks.

`python_programs.txt` has a program a paragraph; each leaves its results in `r` and what it did, in
order, in `log`. A run breaks the graph at statements that it draws: at the top, or in functions.
"""

from __future__ import annotations

import ast
import bisect
import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import heapq
import itertools
import json
import math
import operator
import random
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

import tc

PROGRAMS = (Path(__file__).parent / "python_programs.txt").read_text().split("\n---\n")
MODULES = (
    bisect, collections, contextlib, copy, dataclasses, enum, functools, heapq, itertools, json,
    math, operator, re, sys, types,
)  # fmt: skip


def attempt(call):
    try:
        return call()
    except Exception as error:
        return type(error).__name__, str(error)


class Pt:
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y


def _context(log: list) -> type:
    class Context:
        def __init__(self, name, swallow=False):
            self.name, self.swallow = name, swallow

        def __enter__(self):
            log.append(("enter", self.name))
            return self.name

        def __exit__(self, kind, *error):
            log.append(("exit", self.name, kind and kind.__name__))
            return self.swallow

    return Context


class Breaks(ast.NodeTransformer):
    """Puts calls that break the graph before statements, which are drawn."""

    def __init__(self, rng: random.Random, inside: bool) -> None:
        self.rng, self.inside = rng, inside

    def body(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for at, one in enumerate(statements):
            fixed = isinstance(one, ast.Nonlocal | ast.Global)
            text = at == 0 and isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
            if not fixed and not text and self.rng.random() < 0.45:
                found += ast.parse("print(end='')").body
            found.append(one)
        return found

    def visit_Module(self, node: ast.Module) -> ast.Module:
        if self.inside:
            self.generic_visit(node)
        else:
            node.body = self.body(node.body)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        node.body = self.body(node.body)
        return node


def _function(program: str, where: str, seed: int) -> Any:
    tree = ast.parse(program)
    if where != "nowhere":
        tree = Breaks(random.Random(seed), where == "inside").visit(tree)
    body = ast.unparse(ast.fix_missing_locations(tree)).replace("\n", "\n    ")
    source = f"def f(x, log, cm):\n    y0 = x * 2\n    {body}\n    return x + 1 + y0, r, log\n"
    space = {m.__name__: m for m in MODULES} | {"attempt": attempt, "Pt": Pt, "GG": 0}
    space["__name__"] = "programs"
    exec(compile(source, "program", "exec"), space)
    return space["f"]


def _outcome(function: Any) -> str:
    log: list = []
    try:
        found = repr(function(torch.ones(2), log, _context(log))[1:])
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    return re.sub(r" at 0x[0-9a-f]+", "", found)


@pytest.mark.sample(12)
@pytest.mark.parametrize("where", ["nowhere", "between", "inside"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.splitlines()[0][:40])
def test_a_program_is_pythons(program, where):
    seed = len(program)
    expected = _outcome(_function(program, where, seed))
    assert _outcome(tc.compile(_function(program, where, seed), backend="eager")) == expected
