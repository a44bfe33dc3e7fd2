"""Runs of float16, converted as eager does each value, and of elements that are not adjacent."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import tc
from tc.compiler.codegen.cpp.runs import RUN, VECTOR
from tc.trace import capture_events


def event_of(item: object) -> object:
    """Return the event of what was captured."""
    return getattr(item, "event", item)


LENGTHS = (VECTOR - 1, VECTOR, VECTOR + 1, 100, 777, RUN, RUN + 1, 2 * RUN + VECTOR + 3)
PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "unary": torch.neg,
    "binary": lambda x: x + x.flip(0),
    "shared": lambda x: (x * 0.5).relu() + x,
    "amax": lambda x: x.amax(-1),
    "amax_first": lambda x: x.amax(0),
    "argmax": lambda x: x.argmax(-1),
    "widened": lambda x: x.float(),
}


def every_half() -> torch.Tensor:
    """Return all float16 numbers, NaN and infinities among them."""
    return torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.float16)


@pytest.mark.sample(6)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_runs_of_any_length_equal_eager(name: str, length: int) -> None:
    program = PROGRAMS[name]
    x = torch.randn(5, length, generator=torch.Generator().manual_seed(length)).half()
    torch.testing.assert_close(tc.compile(program)(x), program(x), rtol=0, atol=0)


@pytest.mark.sample(3)
@pytest.mark.parametrize("length", LENGTHS)
def test_sums_of_runs_equal_sums_in_float64(length: int) -> None:
    x = torch.rand(5, length, generator=torch.Generator().manual_seed(length)).half()
    found = tc.compile(lambda x: (x.sum(-1), x.sum(0), x.softmax(-1)))(x)
    wide = x.double()
    for mine, exact in zip(found, (wide.sum(-1), wide.sum(0), wide.softmax(-1)), strict=True):
        torch.testing.assert_close(mine.double(), exact, rtol=1e-3, atol=1e-6)


def test_every_number_is_widened_and_narrowed_as_eager_does() -> None:
    x = every_half()
    torch.testing.assert_close(
        tc.compile(lambda x: x.float())(x), x.float(), rtol=0, atol=0, equal_nan=True
    )
    wide = torch.cat([x.float(), x.float() * 1.0004882, x.float() * 1.0005, x.float() * 0.99951])
    torch.testing.assert_close(
        tc.compile(lambda x: x.half())(wide), wide.half(), rtol=0, atol=0, equal_nan=True
    )


def test_loops_along_memory_convert_in_runs() -> None:
    with capture_events() as events:
        tc.compile(lambda x: torch.relu(x * 3))(torch.randn(4, 300).half())
    code = "".join(e.code for e in map(event_of, events) if type(e).__name__ == "OutputCode")
    assert code.count("tc_f16_to_f32_run(") == 3  # the helper, a full run of an operand, the rest
    assert code.count("tc_f32_to_f16_run(") == 3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_signs_and_moves_of_16_bit_floats_convert_nothing(dtype: torch.dtype) -> None:
    def program(x: torch.Tensor) -> list[torch.Tensor]:
        return [-x, x.abs(), torch.cat([x.flip(0), x[3:]]), torch.where(x[:9] != 0, -x[:9], x[:9])]

    x = every_half().view(dtype)
    with capture_events() as events:
        found = tc.compile(program)(x)
    for mine, exact in zip(found, program(x), strict=True):
        torch.testing.assert_close(mine, exact, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(mine.signbit() | mine.isnan(), exact.signbit() | exact.isnan())
    code = "".join(e.code for e in map(event_of, events) if type(e).__name__ == "OutputCode")
    assert "_to_f16_run" not in code


OPPOSITE: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "chain": lambda x, y: F.selu(torch.logaddexp(x, y) * y).atan() + y,
    "sums": lambda x, y: (torch.logaddexp(x, y).sigmoid().sum(-1), (x * y).tanh().sum(0)),
    "softmax": lambda x, y: (x.sin() * y).softmax(-1),
    "best": lambda x, y: (torch.logaddexp(x, y) * y).argmax(-1),
    "other types": lambda x, y: torch.where(y.bfloat16() > 0, x.exp(), y.double().cos()),
    "chosen": lambda x, y: torch.cat([x.exp().log1p(), y.exp().log1p()], -1).tanh(),
    "in place": lambda x, y: y.copy_((x * y).sin().exp().log1p()),
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("columns", [5, 16, 32, 77, RUN + 3])
@pytest.mark.parametrize("name", OPPOSITE)
def test_operands_of_opposite_layouts_equal_eager(name: str, columns: int, dynamic: bool) -> None:
    torch.manual_seed(columns)
    compiled = tc.compile(OPPOSITE[name], dynamic=dynamic)
    for rows in (8, 3, 19):
        x, y = torch.randn(rows, columns), torch.randn(columns, rows).t()
        wanted = OPPOSITE[name](x, y.clone(memory_format=torch.preserve_format))
        found = compiled(x, y.clone(memory_format=torch.preserve_format))
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_elements_that_are_not_adjacent_are_gathered_if_much_is_computed_of_them() -> None:
    x, y = torch.randn(90, 8, 32), torch.randn(32, 8).t()
    for function, gathers in ((torch.logaddexp, True), (torch.mul, False)):
        with capture_events() as events:
            tc.compile(function)(x, y)
        code = "".join(e.code for e in map(event_of, events) if type(e).__name__ == "OutputCode")
        assert ("[of] = " in code) == gathers
