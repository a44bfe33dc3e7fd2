"""A compiled inference leaves no trace of what tc replaces in `sys.modules`."""

from __future__ import annotations

from pathlib import Path

from support import succeed

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


def test_a_second_process_loads_no_stage_that_it_does_not_run(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(WARM)
    variables = {"TC_CACHE_DIR": str(tmp_path / "cache"), "TC_FX_GRAPH_CACHE": "1"}
    for argument in ("cold", "warm"):
        said = succeed(str(program), argument, variables=variables)
    assert "no later stage is loaded" in said


def test_compiled_inference_loads_neither_inductor_nor_aot_autograd() -> None:
    assert succeed("-c", PROGRAM) == "right, and neither is loaded\n"
