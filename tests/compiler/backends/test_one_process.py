"""Both compilers in one process: their entries, their limits, their logs."""

from __future__ import annotations

import pytest
import torch

import tc
from tc.tlparse.pytest_plugin import diagnoses, recording


@pytest.fixture(autouse=True)
def fresh():
    torch.compiler.reset()
    tc.reset()
    yield
    torch.compiler.reset()


def test_what_tc_compiles_does_not_count_for_torch_compile(tmp_path):
    """One function under both compilers: neither the limit nor the report takes it for a storm."""

    def step(x):
        return x.sin() + 1

    graphs = []

    def counting(gm, inputs):
        graphs.append(gm)
        return gm.forward

    x = torch.ones(3)
    torch.compile(lambda x: x, backend="eager")  # loads PyTorch's compiler
    for _ in range(10):
        tc.reset()
        tc.compile(step, backend="eager")(x)
    with recording(tmp_path):
        torch.compile(step, backend=counting)(x)
    assert len(graphs) == 1
    assert [(one.recompile_count, one.findings) for one in diagnoses(tmp_path)] == [(0, [])]


def test_torch_logs_of_what_tc_does_are_printed(capsys):
    asked = torch._logging.set_logs
    try:
        asked(aot_graphs=True, output_code=True)
        torch.compile(lambda x: x.sin() + 1, backend="tc")(torch.ones(3))
        said = capsys.readouterr().err
        assert "aten.sin" in said and "def call(args)" in said
    finally:
        asked()
    torch.compiler.reset()
    torch.compile(lambda x: x.cos() + 1, backend="tc")(torch.ones(3))
    assert "aten.cos" not in capsys.readouterr().err
