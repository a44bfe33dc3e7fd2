"""Twenty broken compilers: each failure is reduced to the calls it needs, and to nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from minifier_scripts import BLOCKS, CONDITION, CUSTOM, DYNAMIC, TRAINING, tool, written

CASES = [
    # compiler, fault, script, calls that are needed, words the result holds
    ("tc", "wrong:tanh", BLOCKS, 1, ["tanh"]),
    ("tc", "nan:tanh", BLOCKS, 1, ["tanh"]),
    ("tc", "crash:tanh", BLOCKS, 1, ["tanh"]),
    ("tc", "crash:log1p+relu", BLOCKS, 2, ["log1p", "relu"]),
    ("tc", "wrong:log1p+relu", BLOCKS, 2, ["log1p", "relu"]),
    ("tc", "gcc:tanh", BLOCKS, 1, ["tanh"]),
    ("tc", "kernel:tanh", BLOCKS, 1, ["tanh"]),
    ("tc", "fused:tanh", BLOCKS, 2, ["tanh"]),
    ("tc", "symbolic:relu", DYNAMIC, 1, ["relu", "dynamic=True"]),
    ("tc", "wrong:log", CUSTOM, 1, ["log"]),
    ("tc", "crash:mine.twice", CUSTOM, 1, ["mine.twice", "custom_op"]),
    ("tc", "decomposition:silu_backward", TRAINING, 1, ["silu", "backward"]),
    ("torch", "wrong:tanh", BLOCKS, 1, ["tanh"]),
    ("torch", "nan:tanh", BLOCKS, 1, ["tanh"]),
    ("torch", "crash:tanh", BLOCKS, 1, ["tanh"]),
    ("torch", "crash:log1p+relu", BLOCKS, 2, ["log1p", "relu"]),
    ("torch", "symbolic:relu", DYNAMIC, 1, ["relu", "dynamic=True"]),
    ("torch", "wrong:log", CUSTOM, 1, ["log"]),
    ("torch", "crash:relu", CONDITION, 1, ["relu"]),
    ("torch", "wrong:sigmoid", TRAINING, 1, ["sigmoid"]),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "compiler, fault, script, calls, words", CASES, ids=[f"{c}:{f}" for c, f, *_ in CASES]
)
def test_only_what_is_needed_remains(
    compiler: str, fault: str, script: str, calls: int, words: list[str], tmp_path: Path
) -> None:
    written(tmp_path, script, compiler)
    done = tool("tc.minifier", "script.py", "--json", fault=f"{compiler}:{fault}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    text = (tmp_path / "minified.py").read_text()
    assert found["calls"] <= calls, text
    assert found["verified"] == 5 and found["self_contained"], text
    assert found["lines"] <= 30
    assert calls > 1 or found["tries"] <= 20
    assert all(word in text for word in words), text
