"""A compiled inference leaves no trace of what tc replaces in `sys.modules`."""

from __future__ import annotations

import pytest
from support import own_cache, succeed

# Creating fake tensors makes torch itself load `torch._dynamo`; these two nothing should load.
PROGRAM = """
import sys
import torch
import tc

model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.LayerNorm(8)).eval()
compiled = tc.compile(model)
x = torch.randn(4, 8)
with torch.no_grad():
    torch.testing.assert_close(compiled(x), model(x))
for name in ("torch._inductor.compile_fx", "torch._functorch.aot_autograd"):
    assert name not in sys.modules, name
assert "tc.trace.events" not in sys.modules, "nobody listens"
assert "tc.compiler.frames" in sys.modules
print("right, and neither is loaded")
"""


WARM = (
    PROGRAM
    + """
if sys.argv[1:] == ["warm"]:
    stages = ("aot.decompositions", "aot.inference", "aot.training", "loops", "schedule", "codegen")
    for name in stages:
        assert f"tc.compiler.{name}" not in sys.modules, name
    print("no later stage is loaded")
"""
)


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What two processes with one cache say, one after the other."""
    folder = tmp_path_factory.mktemp("modules")
    program = folder / "program.py"
    program.write_text(WARM)
    variables = {"TC_CACHE_DIR": own_cache(folder / "cache"), "TC_FX_GRAPH_CACHE": "1"}
    # What they load of tc and of these parts of torch is no other in a fork that has torch.
    return [
        succeed(str(program), name, variables=variables, warm=True) for name in ("cold", "warm")
    ]


def test_a_second_process_loads_no_stage_that_it_does_not_run(said: list[str]) -> None:
    assert "no later stage is loaded" in said[1]


def test_compiled_inference_loads_neither_inductor_nor_aot_autograd(said: list[str]) -> None:
    assert said[0] == "right, and neither is loaded\n"
