"""What is wrong with printed C is found as it is printed, by name of kernel and line."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from loop_harness import lowered, planned

from tc.compiler.codegen.cpp.block import Block, arity, between, call
from tc.compiler.codegen.cpp.kernel import writer_for
from tc.compiler.codegen.cpp.pointwise import TileWriter
from tc.compiler.core.c_helpers import helpers, helpers_for
from tc.compiler.errors import StageError


def fresh() -> Block:
    return Block("kernel k", ["in0", "s0"])


WRONG: dict[str, tuple[Callable[[Block], object], str]] = {
    "unknown name": (lambda b: b.emit("in0[i2] = 1;"), "'i2' is used where it is not declared"),
    "value of a declaration": (lambda b: b.declare("int", "a", "a + 1"), "'a' is used"),
    "after its loop": (
        lambda b: (b.count("i", "0", "s0"), b.close(), b.emit("in0[i] = 1;")),
        "'i' is used",
    ),
    "in a pragma": (lambda b: b.emit("#pragma omp simd reduction(+:a_v0)"), "'a_v0' is used"),
    "twice in a block": (
        lambda b: (b.declare("int", "a"), b.declare("int", "a")),
        "'a' is declared twice",
    ),
    "too few arguments": (lambda b: b.emit("in0[tc_max(1)] = 1;"), "takes 2 arguments, not 1"),
    "none": (lambda b: b.emit("in0[tc_min()] = 1;"), "takes 2 arguments, not 0"),
    "a comma too many": (
        lambda b: b.emit("in0[tc_max(1, tc_min(s0, 2), s0)] = 1;"),
        "'tc_max' takes 2 arguments, not 3",
    ),
    "no helper": (lambda b: b.emit("tc_nothing(1);"), "there is no helper 'tc_nothing'"),
    "bracket open": (lambda b: b.emit("in0[(s0 + 1] = 1;"), "']' closes nothing"),
    "bracket left": (lambda b: b.emit("in0[s0 = 1;"), "no ']' follows"),
    "block open": (lambda b: (b.open("if (s0)"), b.text()), "1 blocks are open"),
    "block closed": (lambda b: b.close(), "closes a block more"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_code_is_refused(name: str) -> None:
    print_it, message = WRONG[name]
    with pytest.raises(StageError) as found:
        print_it(fresh())
    assert message in str(found.value) and "kernel k" in str(found.value)


def test_right_code_is_printed() -> None:
    block = fresh()
    block.declare("const long long", "n", call("tc_min", "s0", call("tc_max", "1", "2")))
    block.count("i", "0", "n", "4")
    block.emit("in0[i] = 1.5e-05f + 0x1p3f;")
    block.close()
    block.open("if (s0 > 1)")
    block.emit("tc_stream_end();")
    block.otherwise()
    block.declare("float", "i", length="[4]")
    block.emit('i[0] = __builtin_nanf("");')
    block.close()
    assert block.text() == (
        "  const long long n = tc_min(s0, tc_max(1, 2));\n"
        "  for (long long i = 0; i < n; i += 4) {\n    in0[i] = 1.5e-05f + 0x1p3f;\n  }\n"
        "  if (s0 > 1) {\n    tc_stream_end();\n  } else {\n    float i[4];\n"
        '    i[0] = __builtin_nanf("");\n  }\n'
    )
    assert list(block.helpers) == ["tc_max", "tc_min", "tc_stream_end"]


def test_every_helper_reports_its_arguments() -> None:
    functions = [name for name in helpers().names() if f"{name}(" in helpers().source([name])]
    assert len(functions) > 180
    assert all(arity(name) is not None for name in functions)


def test_helpers_bring_those_they_call() -> None:
    text = helpers_for(["tc_sinh_f32"])
    assert text.index("tc_expm1_f32(float") < text.index("tc_sinh_f32(float")


def test_kernels_name_helper_and_line_of_a_planted_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(self: TileWriter) -> None:
        self.emit("out0[i0] = 1;")

    kernel = planned(lowered(lambda x: x.t() + 1, [torch.randn(64, 64)])).kernels()[0]
    monkeypatch.setattr(type(writer_for(kernel, 1)), "body", body)
    with pytest.raises(StageError, match=r"'(out0|i0)' is used where it is not declared"):
        writer_for(kernel, 1).run()


def test_a_length_is_what_it_is_where_a_range_starts_at_a_sum() -> None:
    assert between("0", "n") == "n - 0"
    assert between("from", "n + 1") == "n + 1 - from"
    assert between("a + b", "a + 2*b") == "a + 2*b - (a + b)"
