"""Programs of a GPU run with their device as the current one, where there are several."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from tc.compiler.core.gpu import GpuProgram
from tc.compiler.runtime import bounded
from tc.compiler.runtime.store import keep_source
from tc.compiler.runtime.triton import load

ENTERED: list[int] = []


class Entered:
    """A placeholder for `torch.cuda.device`."""

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


def test_kept_modules_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TC_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TC_FORCE_DISABLE_CACHES", raising=False)
    monkeypatch.setattr(bounded, "LIMIT", 250 * bounded.FOLDERS)
    same = [s for s in (f"# {i:0100}\n" for i in range(5000)) if _folder_of(s) == "00"][:4]
    paths = [Path(keep_source("triton", source)) for source in same[:2]]
    for age, path in enumerate(paths):
        os.utime(path, (1000 + age, 1000 + age))
    keep_source("triton", same[0])  # used again: the other one is older now
    paths.append(Path(keep_source("triton", same[2])))
    assert [path.exists() for path in paths] == [True, False, True]
    assert Path(keep_source("triton", same[1])).read_text() == same[1]


def _folder_of(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()[:2]
