"""Ops that no kernel computes are called by Python bindings, which take what their schemas say."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

import pytest
import torch
from loop_harness import lowered, program
from loop_programs import r

import tc
from tc.compiler.codegen.wrapper import FASTER, _binding

SCHEMAS = {
    s.name.removeprefix("aten::"): s
    for s in torch._C._jit_get_all_schemas()
    if s.name.startswith("aten::") and not s.overload_name
}


#: bindings with arguments of other names
OTHERWISE = ("ldexp", "frexp")


def path_of(name: str, overload: str = "default") -> tuple[str, ...]:
    return ("aten", name, overload)


def given(name: str) -> str:
    return {"self": "input"}.get(name, name)


def test_bindings_take_the_arguments_of_their_schemas() -> None:
    """A call without arguments names those that are missing, in order."""
    compared = 0
    for name, schema in SCHEMAS.items():
        spelled = _binding(path_of(name), len(schema.arguments))
        if spelled is None or f"aten.{name}.default" in FASTER or name in OTHERWISE:
            continue
        wanted = [a.name for a in schema.arguments if not a.has_default_value()]
        try:
            operator.attrgetter(spelled.removeprefix("torch."))(torch)()
        except TypeError as error:
            found = re.search(r"missing \d+ required positional arguments?: (.*)", str(error))
            if found is not None:  # else it has several signatures, deprecated ones among them
                named = [given(n) for n in re.findall(r'"(\w+)"', found[1])]
                compared += 1
                assert named == [given(n) for n in wanted][: len(named)], name
    assert compared > 400


def test_an_op_with_a_rival_overload_has_none() -> None:
    assert _binding(path_of("upsample_bilinear2d"), 9) is None
    assert _binding(path_of("kthvalue", "values"), 9) is None
    assert _binding(path_of("index_reduce_"), 9) is None
    assert _binding(("prims", "add", "default"), 9) is None


def test_defaults_of_a_binding_are_not_relied_on() -> None:
    """The binding of a loss takes the mean for 0, which is none."""
    assert _binding(path_of("mse_loss"), 2) is None
    assert _binding(path_of("mse_loss"), 3) == "torch._C._nn.mse_loss"
    assert _binding(path_of("mse_loss"), 2, frozenset(("reduction",))) is not None
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    assert torch._C._nn.mse_loss(x, y).shape != torch.ops.aten.mse_loss(x, y).shape


PROGRAMS: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "arithmetic": lambda x, z: (z + z.flip(0), torch.sub(z, z * z, alpha=2), z / (z + 3)),
    "reductions": lambda x, z: (z.mean(0), z.sum((0, 1), keepdim=True), z.sum(1)),
    "pools": lambda x, z: torch.nn.functional.adaptive_max_pool2d(x[None], 2, return_indices=True),
    "special": lambda x, z: (torch.polygamma(2, x.abs() + 1), torch.special.i0(x)),
    "transforms": lambda x, z: (torch.fft.fft(z), torch.fft.rfft(x)),
    "chosen": lambda x, z: (*x.mode(0), *x.cummax(1), x.logcumsumexp(0)),
}


def test_wrappers_call_them() -> None:
    def function(x: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.fft.fft(z), x.mode(0)[0], torch.polygamma(2, x)

    source = program(lowered(function, (r(3, 7), r(3, 4).to(torch.complex64)))).wrapper_source
    for name in ("_fft_c2c", "mode", "polygamma"):
        assert f" = torch.{name}(" in source, name


@pytest.mark.parametrize("name", PROGRAMS)
def test_calls_by_bindings_agree_with_eager(name: str) -> None:
    torch.manual_seed(0)
    x, z = torch.randn(3, 7, 5), torch.randn(3, 4, dtype=torch.complex64)
    tc.reset()
    function = PROGRAMS[name]
    torch.testing.assert_close(tc.compile(function)(x, z), function(x, z))
