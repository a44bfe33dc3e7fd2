"""A scalar op is one row: evaluation and both code generators know one that a test adds."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tc.compiler import codegen, schedule
from tc.compiler.codegen.triton.kernel import generate
from tc.compiler.core import c_helpers
from tc.compiler.core.gate import Gate
from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, load
from tc.compiler.loops.interpret import evaluate
from tc.compiler.loops.ir import Buffer, Input, LoopGraph, Pointwise, View
from tc.compiler.loops.ops import SCALAR_OPS, ScalarOp, Triton
from tc.compiler.runtime.load import load as build
from tc.compiler.schedule.plan import Kernel, Section, Store

F32 = torch.float32
COUNT = 5
HELPER = """/* What a test plants. */

/* helper: tc_planted_f32 */
TC_INLINE float tc_planted_f32(float x) { return x * x + 1; }
"""


def planted(x: torch.Tensor) -> torch.Tensor:
    """What the op means."""
    return x * x + 1


@pytest.fixture
def _scratch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The two places: a row, and a C helper in a file of its own."""
    folder = tmp_path / "c_helpers"
    shutil.copytree(c_helpers.FOLDER, folder)
    (folder / "planted.h").write_text(HELPER)
    monkeypatch.setattr(c_helpers, "FOLDER", folder)
    c_helpers.helpers.cache_clear()
    row = ScalarOp("planted", 1, "float", "same", planted, "tc_planted_{t}({0})",
                   Triton("({0} * {0} + 1.0)"), cost=3)  # fmt: skip
    monkeypatch.setitem(SCALAR_OPS._rows, "planted", row)
    yield
    c_helpers.helpers.cache_clear()


I0 = ix.var("i0", COUNT)
SOURCE = Buffer("in0", F32, (ix.const(COUNT),), (ix.ONE,))
OUT = Buffer("buf0", F32, (ix.const(COUNT),), (ix.ONE,))
BODY = Expr("planted", (load("in0", I0, F32),), F32)


@pytest.mark.usefixtures("_scratch")
def test_a_new_op_is_evaluated_by_reference() -> None:
    x = torch.linspace(-2, 2, COUNT)
    got = evaluate(BODY, {"i0": torch.arange(COUNT), "in0": x}, {}, True)
    assert torch.equal(got, planted(x))
    assert Expr("planted", (load("in1", I0, F32),), F32).cost() >= 3


@pytest.mark.usefixtures("_scratch")
def test_a_new_op_is_printed_in_c_with_its_helper_and_runs() -> None:
    graph = LoopGraph(
        (Input("in0", SOURCE),),
        (Pointwise(OUT, (I0,), I0, BODY),),
        (View("buf0", F32, OUT.sizes, OUT.strides, ix.ZERO),),
    )
    graph.verify()
    x = torch.linspace(-2, 2, COUNT)
    call = build(codegen.generate(schedule.plan(graph, Gate()), threads=1))
    assert torch.equal(call([x])[0], planted(x))


@pytest.mark.usefixtures("_scratch")
def test_a_new_op_is_printed_in_triton() -> None:
    kernel = Kernel("k0", (I0,), (), (Section("row", (Store("buf0", I0, BODY),)),))
    text = generate(kernel, {"in0": SOURCE, "buf0": OUT}).source
    assert "* " in text and "+ 1.0)" in text
