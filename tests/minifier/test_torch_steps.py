"""torch.compile's steps are numbered, and refused from one on."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from minifier_scripts import tool

from tc.minifier.ladder import Rung
from tc.minifier.torch_steps import made, plain

SCRIPT = """\
import torch
def f(x, w):
    y = torch.nn.functional.silu(x @ w)
    return torch.tanh(y).sum(1)
torch.manual_seed(0)
torch.compile(f)(torch.randn(8, 16), torch.randn(16, 16))
"""


def test_names_are_those_of_operations() -> None:
    assert plain("<OpOverload(op='aten.silu', overload='default')>") == "aten.silu"
    assert plain("<OpOverload(op='aten.add', overload='Tensor')>") == "aten.add.Tensor"
    assert plain("remove_noop ops") == "remove_noop_ops"


def test_a_node_is_called_by_what_it_computes() -> None:
    def part(*names: str) -> Any:
        return SimpleNamespace(
            node=SimpleNamespace(origins=[SimpleNamespace(name=n) for n in names])
        )

    node = SimpleNamespace(
        get_nodes=lambda: [part("mul", "add"), part("add")], get_name=lambda: "op1"
    )
    assert made(node) == "add_mul"
    assert made(SimpleNamespace(get_nodes=lambda: [], get_name=lambda: "op1")) == "op1"


def test_where_no_step_is_to_blame_the_stage_is_named() -> None:
    answer: Any = None
    assert Rung("aot_eager_decomp_partition", answer).without_step == "the partitioner"
    assert Rung("eager", answer).without_step == "capture (TorchDynamo)"


@pytest.mark.slow
def test_a_wrong_lowering_of_torch_is_named(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(SCRIPT)
    done = tool("tc.minifier.bisect", "s.py", "--json", fault="torch:wrong:tanh", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert (done.returncode, found["step"]) == (1, "lowering.tanh")
    assert found["lines"][0].endswith("s.py:4")
