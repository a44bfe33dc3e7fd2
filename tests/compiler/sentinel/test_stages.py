"""`TC_CHECK` names the stage, or the kernel, that is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import tc
from tc.compiler.errors import SentinelError
from tc.compiler.loops.lower.registry import LOWERINGS
from tc.compiler.loops.ops import SCALAR_OPS
from tc.compiler.options import config

aten = torch.ops.aten
X = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TC_CACHE_DIR", str(tmp_path))
    tc.reset()
    tc.counters["sentinel"].clear()
    with config.patch(sentinel_bisect=False):
        yield


def program(x: Any) -> Any:
    return (torch.tanh(x) * 2).softmax(-1) @ x.T


@pytest.mark.sample(1)
@pytest.mark.parametrize("check", ["graphs", "stages", "kernels"])
@pytest.mark.parametrize("trains", [False, True])
def test_every_call_is_compared_and_what_is_right_passes(check: str, trains: bool) -> None:
    with config.patch(check=check):
        compiled = tc.compile(program)
        for size in (4, 4, 3, 6):
            x = torch.randn(size, 5, requires_grad=trains)
            result = compiled(x)
            if trains:
                result.sum().backward()
    expected = {"compared": 4, **({"compared backward": 4} if trains else {})}
    assert dict(tc.counters["sentinel"]) == expected


def broken_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = replace(SCALAR_OPS["tanh"], c=SCALAR_OPS["sin"].c)
    monkeypatch.setitem(SCALAR_OPS._rows, "tanh", wrong)


def broken_lowering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOWERINGS._rows, aten.tanh.default, LOWERINGS[aten.sin.default])


@pytest.mark.sample(1)
@pytest.mark.parametrize("check", ["graphs", "stages", "kernels"])
def test_a_wrong_kernel_is_found(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken_kernel(monkeypatch)
    with config.patch(check=check), pytest.raises(SentinelError, match="results differ"):
        tc.compile(program)(X)


def test_the_wrong_kernel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    broken_kernel(monkeypatch)
    with config.patch(check="kernels"), pytest.raises(SentinelError) as caught:
        tc.compile(program)(X)
    assert "kernel k0_tanh" in str(caught.value)
    assert "test_stages.py:" in str(caught.value)


@pytest.mark.parametrize(
    ("fault", "stage"), [(broken_lowering, "loops"), (broken_kernel, "kernels")]
)
def test_the_first_wrong_stage_is_named(
    fault: Any, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    with config.patch(check="stages"), pytest.raises(SentinelError, match=f"after stage {stage}:"):
        tc.compile(program)(X)
