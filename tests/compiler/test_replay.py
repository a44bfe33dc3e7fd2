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


@pytest.mark.sample(1)
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
        def allow(self, kind: str, at: Any = "", lines: Any = tuple) -> bool:
            kinds.append(kind)
            return super().allow(kind, at, lines)

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


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(self.second(F.gelu(self.first(x))).softmax(-1), 0.5, True)


OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"fallback_random": False},
    {"cpp.threads": 2},
    {"max_autotune": True},
    {"freezing": True},
    {"freezing": True, "max_autotune": True, "fallback_random": False},
)


@pytest.mark.sample(1)
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "+".join(options) or "none")
def test_each_stage_computes_what_the_whole_does_with_the_same_options(
    options: dict[str, Any],
) -> None:
    torch.manual_seed(0)
    module, x = Layers(), torch.randn(5, 8)
    training = "freezing" not in options
    seen = []
    for stage in ("program", "kernels", "schedule", "loops"):
        tc.reset()
        backend = "inductor" if stage == "program" else api.replaying(stage)
        compiled = tc.compile(module, backend=backend, options=options)
        torch.manual_seed(7)
        with torch.set_grad_enabled(training):
            out = compiled(x)
        grads = torch.autograd.grad(out.sin().sum(), list(module.parameters())) if training else ()
        seen.append([out.detach(), *grads])
    for other in seen[1:]:
        torch.testing.assert_close(other, seen[0])


def test_a_replay_asks_for_the_steps_that_its_options_bring() -> None:
    module, x = Layers(), torch.randn(5, 8)
    asked: dict[str, set[str]] = {}

    class Asked(api.Gate):
        def allow(self, kind: str, at: Any = "", lines: Any = tuple) -> bool:
            kinds.add(kind)
            return super().allow(kind, at, lines)

    for stage in ("schedule", "program"):
        for name in ("plain", "freezing"):
            kinds: set[str] = set()
            tc.reset()
            options = {"freezing": name == "freezing"}
            with torch.no_grad():
                tc.compile(module, backend=api.replaying(stage, Asked()), options=options)(x)
            asked[f"{stage} {name}"] = kinds
    assert asked["schedule freezing"] == asked["program freezing"] != asked["program plain"]
    assert asked["schedule plain"] == asked["program plain"]
