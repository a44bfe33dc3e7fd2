"""Tiles that are transposed read only what the program needs: checked by AddressSanitizer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = """
import sys
import torch
import tc

dtype = getattr(torch, sys.argv[1])

def flipped_parts(x):
    return torch.cat([x.flip(1), x], 1).transpose(1, 2).contiguous()

def padded(x):
    return torch.nn.functional.pad(x.transpose(1, 2), (3, 5, 2, 1)) + 1

def stacked(x):
    return torch.cat([x.transpose(1, 2), x.transpose(1, 2) * 2], 2)

def nested(x):
    t = torch.nn.functional.pad(x.transpose(1, 2), (7, 0))
    return torch.cat([t, x.transpose(1, 2)[:, :, 5:]], 2)

for program in (flipped_parts, padded, stacked, nested):
    compiled = tc.compile(program, fullgraph=True, dynamic=True)
    for sizes in ((2, 33, 40), (1, 48, 17), (3, 16, 64)):
        x = torch.randn(sizes).to(dtype)
        assert torch.equal(compiled(x), program(x)), (program, dtype, sizes)
print("all read")
"""


def _library(name: str) -> str:
    found = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True)
    return found.stdout.strip()


@pytest.mark.slow  # Python under AddressSanitizer, of which `make sanitize` has more
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_a_tile_reads_only_what_is_needed(dtype: str, tmp_path: Path) -> None:
    preload = [_library("libasan.so"), _library("libstdc++.so")]
    if not all(os.path.isabs(path) for path in preload):
        pytest.skip("gcc has no AddressSanitizer here")
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(preload),
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(ROOT),
        "TC_SANITIZE": "1",
        "TC_CACHE_DIR": str(tmp_path),
    }
    (tmp_path / "programs.py").write_text(PROGRAMS)
    command = [sys.executable, str(tmp_path / "programs.py"), dtype]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.stdout.strip() == "all read", run.stderr[-3000:]
