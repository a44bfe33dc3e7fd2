"""The Triton spelling of every scalar op equals its Python spelling, under Triton's interpreter."""

from __future__ import annotations

import ast
import math

import pytest
import torch

from tc.compiler.codegen.triton.kernel import generate
from tc.compiler.codegen.triton.ops import TRITON_TYPES, constant, convert, spell
from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, load
from tc.compiler.loops.ir import Buffer
from tc.compiler.loops.ops import SCALAR_OPS, ScalarOp
from tc.compiler.schedule.plan import Kernel, Section, Store

F32, F64, I64, I32, I16, I8 = (
    torch.float32,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
)
TYPES = {
    "float": (F32, F64),
    "int": (I64, I32, I8, torch.uint8, torch.bool),
    "number": (F32, F64, I64, I32, I16, torch.uint8),
    "any": (F32, F64, I64, I16, torch.uint8, torch.bool),
    "bool": (torch.bool,),
    "wide": (I64,),
}
NOT_ON_BOOLS = ("truncdiv", "shl", "shr", "ipow")
FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    math.inf,
    -math.inf,
    math.nan,
    0.5,
    -2.5,
    1.5,
    3.7,
    -88.0,
    1e30,
    7.0,
]
INTEGERS = [0, 1, 2, -1, 3, -3, 7, -8, 100, -100]
CASES = [
    (name, dtype)
    for name, row in SCALAR_OPS.rows()
    for dtype in TYPES[row.operands]
    if dtype is not torch.bool or name not in NOT_ON_BOOLS
]
NAMES = [f"{name}-{TRITON_TYPES[dtype].removeprefix('tl.')}" for name, dtype in CASES]


def operands(op: ScalarOp, dtype: torch.dtype) -> list[torch.Tensor]:
    """Values, or all pairs of values, that the op is defined on."""
    if dtype is torch.bool:
        values = torch.tensor([False, True])
    elif dtype.is_floating_point:
        values = torch.cat(
            [torch.tensor(FLOATS, dtype=dtype), torch.linspace(-4, 4, 33, dtype=dtype)]
        )
    else:
        values = torch.tensor(INTEGERS).to(dtype)
    if op.arity == 1:
        return [values]
    left, right = (t.reshape(-1) for t in torch.meshgrid(values, values, indexing="ij"))
    if op.name in ("truncdiv", "floordiv", "remainder", "fmod") and not dtype.is_floating_point:
        left, right = left[right != 0], right[right != 0]
    if op.name == "ipow":
        left, right = left[right >= 0], right[right >= 0]
    return [left, right]


def written(op: str, dtype: torch.dtype, result: torch.dtype, count: int) -> str:
    """A kernel that computes one op."""
    i = ix.var("p0", count)
    arity = SCALAR_OPS[op].arity
    inputs = [Buffer(f"in{k}", dtype, (ix.const(count),), (ix.ONE,)) for k in range(arity)]
    out = Buffer("out", result, (ix.const(count),), (ix.ONE,))
    body = Expr(op, tuple(load(b.name, i, dtype) for b in inputs), result)
    kernel = Kernel("k0", (i,), (), (Section("row", (Store("out", i, body),)),))
    return generate(kernel, {b.name: b for b in (*inputs, out)}).source


def test_every_scalar_op_has_a_spelling_for_each_type_it_takes() -> None:
    assert all(SCALAR_OPS[name].triton.spelling(dtype) for name, dtype in CASES)


@pytest.mark.parametrize("op, dtype", CASES, ids=NAMES)
def test_row_is_valid_python(op: str, dtype: torch.dtype) -> None:
    ast.parse(spell(op, dtype, ["a", "b"][: SCALAR_OPS[op].arity]), mode="eval")


@pytest.mark.sample(35)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("op, dtype", CASES, ids=NAMES)
def test_row_means_what_torch_means(op: str, dtype: torch.dtype, interpreter: None) -> None:
    from tc.compiler.codegen.triton.module import module_of
    from tc.compiler.core.artifacts import KernelSpec
    from tc.compiler.runtime.triton import open_kernels

    row = SCALAR_OPS[op]
    args = operands(row, dtype)
    want = row.python(*args)
    result = torch.bool if row.result == "bool" else dtype
    source = module_of([written(op, dtype, result, args[0].numel())])
    got = torch.empty_like(args[0], dtype=result)
    kernel = open_kernels(source, [KernelSpec("k0", ("p",) * (row.arity + 1))])["k0"]
    kernel(*args, got)
    torch.testing.assert_close(got, want.to(result), equal_nan=True, rtol=2e-6, atol=0)
    if op in ("neg", "copysign", "round", "trunc", "add", "mul"):
        finite = ~got.isnan() if dtype.is_floating_point else torch.ones_like(got, dtype=torch.bool)
        assert torch.equal(got.signbit()[finite], want.signbit()[finite])


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, 1e-42, 1e-300])
@pytest.mark.parametrize("dtype", [F32, F64])
def test_constants_have_their_type(value: float, dtype: torch.dtype) -> None:
    text = constant(value, dtype)
    plain = not text.startswith("tl.full")
    # What Triton makes of a bare literal is a float32 only if that holds it as a normal number.
    assert plain == (dtype is F32 and not 0 < abs(value) < 2**-126)


def test_conversions_go_by_way_of_float32() -> None:
    assert convert("a", I64, torch.bfloat16) == "a.to(tl.float32).to(tl.bfloat16)"
    assert convert("a", torch.float16, F64) == "a.to(tl.float32).to(tl.float64)"
    assert convert("a", F32, torch.uint8) == "a.to(tl.int64).to(tl.uint8)"
    assert convert("a", F32, torch.bool) == "(a != 0)"
    assert convert("a", F32, F32) == "a"
