"""A graph compiled up to any stage, the rest interpreted, computes what eager does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tc
from tc.compiler import api
from tc.compiler.codegen import stage as codegen_stage


def model(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = F.layer_norm(x @ w, (w.shape[1],)) * x.shape[0]
    return torch.cat([torch.softmax(y, -1), y.cumsum(0)[:, :3]], dim=1)


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(5, 8, requires_grad=True), torch.randn(8, 6, requires_grad=True)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("stage", api.REPLAYED)
def test_each_stage_computes_what_eager_does(stage: str, dynamic: bool) -> None:
    x, w = inputs()
    compiled = tc.compile(model, backend=api.replaying(stage), dynamic=dynamic)
    got, want = compiled(x, w), model(x, w)
    torch.testing.assert_close(got, want)
    gradients = [torch.autograd.grad(out.sin().sum(), (x, w)) for out in (got, want)]
    torch.testing.assert_close(*gradients)


def test_kernels_are_optional_steps_of_their_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    class Asked(api.Gate):
        def allow(self, kind: str, at: Any = "") -> bool:
            kinds.append(kind)
            return super().allow(kind, at)

    printed: list[str] = []
    real = codegen_stage.print_kernel

    def print_kernel(kernel, *rest):  # type: ignore[no-untyped-def]
        printed.append(kernel.name)
        return real(kernel, *rest)

    monkeypatch.setattr(codegen_stage, "print_kernel", print_kernel)
    for refused in (1, 2, 99):
        kinds: list[str] = []
        printed.clear()
        x, w = (value.detach() for value in inputs())
        backend = api.replaying("kernels", Asked({"kernel": refused}))
        torch.testing.assert_close(tc.compile(model, backend=backend)(x, w), model(x, w))
        names = [kind.removeprefix("kernel.") for kind in kinds if kind.startswith("kernel.")]
        assert len(names) > 1
        assert printed == names[: refused - 1]
