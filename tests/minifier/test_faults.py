"""Twenty broken compilers: each failure is reduced to the calls it needs, and to nothing else."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from faultbench import MINIFY, Fault
from minifier_scripts import tool


@pytest.mark.slow
@pytest.mark.parametrize("fault", MINIFY, ids=lambda fault: fault.name)
def test_only_what_is_needed_remains(fault: Fault, tmp_path: Path) -> None:
    fault.script(tmp_path)
    done = tool("tc.minifier", "script.py", "--json", fault=fault.name, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    text = (tmp_path / "minified.py").read_text()
    assert 76 <= found["nodes_before"] <= 620
    assert found["calls"] + found["inputs"] + 1 <= fault.nodes, text
    assert found["verified"] == 5 and found["self_contained"], text
    assert found["lines"] <= 30
    # a search by halves, and a few questions for each thing besides: inputs, sizes, text
    assert found["tries"] <= 4 * math.log2(found["nodes_before"]) or not fault.one_op
    assert all(word in text for word in fault.words), text
