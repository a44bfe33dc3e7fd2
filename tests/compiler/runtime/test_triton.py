"""Programs of a GPU run with their device as the current one, where there are several."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tc.compiler.core.gpu import GpuProgram
from tc.compiler.runtime.triton import load

ENTERED: list[int] = []


class Entered:
    """Stands for `torch.cuda.device`."""

    def __init__(self, index: int) -> None:
        self.index = index

    def __enter__(self) -> None:
        ENTERED.append(self.index)

    def __exit__(self, *_: Any) -> None:
        ENTERED.append(-1)


@pytest.mark.parametrize(("count", "device", "entered"), [
    (2, "cuda:1", [1, -1]), (2, "cuda:0", [0, -1]), (1, "cuda:0", []), (2, "cpu", []),
])  # fmt: skip
def test_the_device_is_current_while_a_program_runs(
    count: int, device: str, entered: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "device", Entered)
    ENTERED.clear()
    wrapper = "def call(args):\n    return (args[0] + 1,)\n"
    call = load(GpuProgram("", (), wrapper, device=device))
    assert call([2]) == (3,)
    assert entered == ENTERED
