"""Disassembling and assembling again changes nothing, on this Python and on the others.

The test files of the bytecode layer import no pytest and no torch at the top, so that the last
test here can run all of them under Pythons that have neither.
"""

import argparse
import ast
import contextlib
import dataclasses
import dis
import enum
import inspect
import os
import random
import subprocess
import sys
import tarfile
import typing
from asyncio import base_events, tasks
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any
from unittest import TestCase

from tc.compiler.capture.bytecode.assembler import assemble, const_key
from tc.compiler.capture.bytecode.instructions import (
    Handler,
    Instruction,
    disassemble,
    jump_opnames,
    stack_depths,
)
from tc.compiler.capture.bytecode.linetable import decode_exceptions, encode_exceptions

check = TestCase()

#: a table, and how many of its rows the usual run draws (see `drawn` in conftest.py)
Draw = Callable[[Iterable[Any], int], list[Any]]

MODULES = (
    argparse, ast, base_events, contextlib, dataclasses, dis, enum, inspect, tarfile, tasks, typing,
)  # fmt: skip


def codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def library(modules: Iterable[Any]) -> Iterator[CodeType]:
    for module in modules:
        path = str(module.__file__)
        for code in codes(compile(Path(path).read_text("utf-8"), path, "exec")):
            # The compiler forgets to count the parameters of these.
            if not code.co_name.startswith("<generic parameters of"):
                yield code


def described(code: CodeType) -> list[tuple[Any, ...]]:
    """The code as text and numbers that do not depend on the order of constants."""
    body = disassemble(code)
    index = {one: i for i, one in enumerate(body)}
    flagged = {"LOAD_GLOBAL", "LOAD_ATTR", "LOAD_SUPER_ATTR"}
    rows: list[tuple[Any, ...]] = []
    for one in body:
        plain = one.argval is None and one.target is None and one.opname not in ("LOAD_CONST",)
        handler = one.handler
        rows.append(
            (
                one.opname,
                one.offset,
                one.arg if plain or one.opname == "COMPARE_OP" else None,
                (one.arg or 0) & 1 if one.opname in flagged else None,
                const_key(one.argval) if "CONST" in one.opname else one.argval,
                one.target and index[one.target],
                one.positions,
                handler and (index[handler.target], handler.depth, handler.lasti),
            )
        )
    return rows


def test_the_library_survives(drawn: Draw) -> None:
    count = 0
    for code in drawn(library(drawn(MODULES, 3)), 400):
        again = assemble(disassemble(code), code)
        where = f"{code.co_filename}:{code.co_firstlineno} {code.co_name}"
        check.assertEqual(described(again), described(code), where)
        for name in (
            "co_varnames", "co_cellvars", "co_freevars", "co_names", "co_flags", "co_argcount",
            "co_posonlyargcount", "co_kwonlyargcount", "co_firstlineno", "co_name", "co_qualname",
            "co_linetable", "co_exceptiontable",
        ):  # fmt: skip
            check.assertEqual(getattr(again, name), getattr(code, name), f"{where} {name}")
        if set(map(const_key, again.co_consts)) == set(map(const_key, code.co_consts)):
            check.assertEqual(again.co_code, code.co_code, where)
        check.assertEqual(again.co_stacksize, max(code.co_stacksize, 1), where)
        count += 1
    check.assertGreater(count, 30)


def test_depths_agree_wherever_ways_meet(drawn: Draw) -> None:
    for code in drawn(library(drawn(MODULES, 3)), 400):
        for one, depth in stack_depths(disassemble(code)).items():
            check.assertLessEqual(depth, code.co_stacksize, f"{code.co_name} {one}")


def compiled(source: str) -> FunctionType:
    space: dict[str, Any] = {}
    exec(source, space)
    function = space["f"]
    assert isinstance(function, FunctionType)
    return function


def reassembled(function: FunctionType, body: list[Instruction], **overrides: Any) -> FunctionType:
    code = assemble(body, function.__code__, **overrides)
    return FunctionType(code, function.__globals__, "f", function.__defaults__)


def test_specialised_code_is_read_as_written() -> None:
    function = compiled(
        "def f(n):\n    t = 0\n    for i in range(n):\n        t += i\n    return t"
    )
    cold = described(function.__code__)
    for _ in range(100):
        function(50)
    check.assertEqual(described(function.__code__), cold)
    check.assertEqual(reassembled(function, disassemble(function.__code__))(5), 10)


def test_far_jumps_and_many_names() -> None:
    lines = [f"    total += g{i} * {i + 1000} if n > {i} else v{i - 1}" for i in range(1, 400)]
    assigns = [f"    v{i} = {i}" for i in range(400)]
    source = "def f(n):\n    total = 0\n" + "\n".join(assigns)
    source += "\n    for k in range(n):\n" + "\n".join("    " + line for line in lines)
    source += "\n    return total\n"
    function = compiled(source)
    function.__globals__.update({f"g{i}": i for i in range(400)})
    body = disassemble(function.__code__)
    check.assertTrue(any((one.arg or 0) > 0xFF for one in body if one.target))
    check.assertEqual(reassembled(function, body)(7), function(7))
    # Instructions that were not there push the targets further away.
    for i in range(len(body) - 1, 2, -3):
        body.insert(i, Instruction("NOP"))
    check.assertEqual(reassembled(function, body)(7), function(7))


def test_locals_change_places() -> None:
    names = ", ".join(f"a{i}" for i in range(20))
    function = compiled(f"def f({names}):\n    x = a0\n    y = x\n    x = y\n    return x, y, a19")
    code = function.__code__
    more = [f"b{i}" for i in range(40)]
    moved = reassembled(function, disassemble(code), args=[*more, *code.co_varnames[:20]])
    check.assertEqual(moved(*range(60)), (40, 40, 59))


def test_constants_that_compare_equal_stay_apart() -> None:
    values: list[object] = [1, 1.0, True, 0.0, -0.0, 0, False, "a", b"a", None, ...]
    values += [(1,), (1.0,), (True,), ((0.0,),), ((-0.0,),)]
    values += [1j, complex(-0.0, 1), frozenset({1}), frozenset({1.0})]
    function = compiled("def f(): return None")
    body = [one for one in disassemble(function.__code__) if one.opname == "RESUME"]
    # Twice, so that each finds its own again.
    body += [Instruction("LOAD_CONST", argval=value) for value in values * 2]
    body += [Instruction("BUILD_TUPLE", len(values) * 2), Instruction("RETURN_VALUE")]
    made = reassembled(function, body)
    check.assertEqual(repr(made()), repr(tuple(values * 2)))
    check.assertLessEqual(len(made.__code__.co_consts), len(values) + 1)


def test_any_object_can_be_a_constant() -> None:
    things: list[object] = [[], {}, object()]
    function = compiled("def f(): return None")
    body = [one for one in disassemble(function.__code__) if one.opname == "RESUME"]
    body += [Instruction("LOAD_CONST", argval=thing) for thing in things]
    body += [Instruction("BUILD_TUPLE", 3), Instruction("RETURN_VALUE")]
    for got, thing in zip(reassembled(function, body)(), things, strict=True):
        check.assertIs(got, thing)


def test_jumps_have_targets_and_directions() -> None:
    function = compiled("def f(n):\n    while n:\n        n -= 1\n        g(n)\n    return n")
    body = disassemble(function.__code__)
    jumps = [one for one in body if one.opname in jump_opnames]
    check.assertTrue(jumps and all(jump.target in body for jump in jumps))
    stranger = Instruction("NOP")
    old = jumps[0].target
    for one in body:
        one.target = stranger if one.target is old and old is not None else one.target
    with check.assertRaisesRegex(ValueError, "not among the instructions"):
        assemble(body, function.__code__)
    body.append(stranger)
    body += [Instruction("LOAD_CONST", argval="elsewhere"), Instruction("RETURN_VALUE")]
    check.assertEqual(reassembled(function, body)(0), "elsewhere")


def test_handlers_can_be_added() -> None:
    function = compiled("def f(n):\n    return 1 // n")
    body = disassemble(function.__code__)
    caught = Instruction("PUSH_EXC_INFO")
    for one in body:
        if one.opname == "BINARY_OP":
            one.handler = Handler(caught, 0, lasti=False)
    tail = [Instruction("POP_TOP"), Instruction("POP_EXCEPT")]
    body += [caught, *tail, Instruction("LOAD_CONST", argval="x"), Instruction("RETURN_VALUE")]
    made = reassembled(function, body)
    check.assertEqual((made(1), made(0)), (1, "x"))


def test_what_does_not_add_up_is_refused() -> None:
    function = compiled("def f(n):\n    return n")
    body = disassemble(function.__code__)
    with check.assertRaisesRegex(ValueError, "stack is -1 deep"):
        assemble([body[0], Instruction("POP_TOP"), *body[1:]], function.__code__)
    with check.assertRaisesRegex(ValueError, "'q' is no cell"):
        assemble([Instruction("LOAD_DEREF", argval="q"), *body], function.__code__)
    join = Instruction("NOP")
    fork = [Instruction("LOAD_FAST", argval="n"), Instruction("POP_JUMP_IF_NONE", target=join)]
    uneven = [body[0], *fork, Instruction("LOAD_CONST", argval=1), join, *body[1:]]
    with check.assertRaisesRegex(ValueError, "depth 0 or 1|depth 1 or 0"):
        assemble(uneven, function.__code__)


def test_exception_tables_of_any_size(drawn: Draw) -> None:
    for code in library(drawn(MODULES, 3)):
        table = code.co_exceptiontable
        check.assertEqual(encode_exceptions(decode_exceptions(table)), table)


def other_pythons() -> list[str]:
    """Interpreters of the other supported versions, from TC_PYTHONS or pyenv."""
    found = os.environ.get("TC_PYTHONS", "").split()
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in (11, 12, 13):
        if minor != sys.version_info[1]:
            found += [str(path) for path in root.glob(f"3.{minor}.*/bin/python")][:1]
    return found


RUN = """
import random, runpy, sys
seed, *paths = sys.argv[1:]
def drawn(table, count):
    rows = list(table)
    return random.Random(seed).sample(rows, min(count, len(rows))) if seed else rows
for path in paths:
    for name, test in runpy.run_path(path).items():
        if name.startswith("test_") and name != "test_on_other_pythons":
            test(drawn) if test.__code__.co_argcount else test()
            print(name)
"""


def test_on_other_pythons(request: Any) -> None:
    """The usual run draws one of them."""
    import pytest

    here = Path(__file__).parent
    files = [
        str(here / f"test_{x}.py")
        for x in ("instructions", "emitter", "hidden", "liveness", "resume_functions")
    ]
    pythons = other_pythons()
    if not pythons:
        pytest.skip("no other Python here; name some in TC_PYTHONS")
    seed = "" if request.config.getoption("--every-case") else os.environ["TC_TEST_SEED"]
    if seed:
        pythons = [random.Random(seed).choice(pythons)]
    for python in pythons:
        done = subprocess.run(
            [python, "-X", "faulthandler", "-c", RUN, seed, *files],
            cwd=here.parents[3],
            env={**os.environ, "PYTHONPATH": str(here.parents[3])},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, f"{python}\n{done.stdout}{done.stderr}"
        assert "test_every_split_behaves_like_the_whole" in done.stdout
