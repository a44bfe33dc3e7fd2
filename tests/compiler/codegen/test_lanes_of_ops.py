"""Every scalar op makes vectors of as many lanes as its operands have in a register.

gcc gives a loop as many lanes as its narrowest type has: an op that keeps a step or a sign in a
byte makes a loop over float64 eight times as wide, which in a row of 8 or 16 elements are no
vectors at all.
"""

from __future__ import annotations

import re
import subprocess

import pytest
import torch

from tc.compiler import codegen, schedule
from tc.compiler.core.gate import Gate
from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, load
from tc.compiler.loops.index import Index
from tc.compiler.loops.ir import Buffer, Input, LoopGraph, Pointwise, View
from tc.compiler.loops.ops import SCALAR_OPS, ScalarOp
from tc.compiler.runtime.build import find_compiler, kernel_flags

#: the types that an op is tried on: those whose lanes a narrower one would multiply
TYPES = {"float": (torch.float32, torch.float64), "int": (torch.int32, torch.int64)}
TYPES |= {"any": TYPES["float"] + TYPES["int"], "number": TYPES["float"] + TYPES["int"]}
TYPES |= {"wide": (torch.int64,), "bool": ()}
#: powers of integers are a loop of their own
SCALAR = frozenset({"ipow"})
CASES = [
    (op, dtype)
    for name, op in SCALAR_OPS.rows()
    if name not in SCALAR
    for dtype in TYPES[op.operands]
]


def value(op: ScalarOp, dtype: torch.dtype, i: Index) -> Expr:
    """Return an op of what is read; one that is a condition, together with another, chooses."""
    read = [load(f"in{k}", i, dtype) for k in range(max(op.arity, 2))]
    if op.result != "bool":
        return Expr(op.name, tuple(read[: op.arity]), dtype)
    condition = Expr(op.name, tuple(read[: op.arity]), torch.bool)
    third = load("in2", i, dtype)
    both = Expr("or", (condition, Expr("lt", (third, read[0]), torch.bool)), torch.bool)
    return Expr("select", (both, Expr("add", (read[0], third), dtype), read[1]), dtype)


def source(op: ScalarOp, dtype: torch.dtype, count: int) -> str:
    """Return C of a loop of so many iterations."""
    i = ix.var("i0", count)
    shape = ((ix.const(count),), (ix.ONE,))
    body = value(op, dtype, i)
    inputs = [
        Buffer(name, dtype, *shape) for name in dict.fromkeys(n.data[0] for n in body.loads())
    ]
    out = Buffer("buf0", dtype, *shape)
    graph = LoopGraph(
        tuple(Input(b.name, b) for b in inputs),
        (Pointwise(out, (i,), i, body),),
        (View("buf0", dtype, *shape, ix.ZERO),),
    )
    return codegen.generate(schedule.plan(graph, Gate()), threads=1).c_source


@pytest.mark.sample(4)
@pytest.mark.parametrize(("op", "dtype"), CASES, ids=lambda item: getattr(item, "name", str(item)))
def test_one_register_of_elements_is_one_vector(op: ScalarOp, dtype: torch.dtype) -> None:
    compiler = find_compiler()
    if compiler.is_clang:
        pytest.skip("asks gcc what it did")
    flags = kernel_flags(compiler)
    preferred = [int(flag.rpartition("=")[2]) for flag in flags if "vector-width" in flag]
    width = (preferred or [256])[0] // 8
    text = source(op, dtype, width // dtype.itemsize)
    command = [*compiler.command, *flags, "-fopt-info-vec", "-x", "c", "-", "-o", "/dev/null"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    kernel = 1 + text[: text.index(" k0_")].count("\n")
    found = re.findall(r"stdin>:(\d+):\d+: optimized: loop vectorized using (\d+)", done.stderr)
    assert width in [int(size) for line, size in found if int(line) >= kernel], done.stderr
