"""The debug folder of ``trace.enabled``: a file a stage for each graph, and programs that run."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from support import python

import tc
from tc.compiler.telemetry import debug_folder

TEXTS = {"fx_graph_readable.py", "fx_graph_runnable.py", "fx_graph_transformed.py",
         "ir_pre_fusion.txt", "ir_post_fusion.txt", "output_code.py",
         "output_kernels.c"}  # fmt: skip
PICTURES = {"orig_fx_graph_diagram.svg", "graph_diagram.svg"}


@pytest.fixture
def folders(monkeypatch, tmp_path):
    """Compile with options, and return the folder of each graph by its kind."""
    said: list[str] = []
    monkeypatch.setenv("TORCH_COMPILE_DEBUG_DIR", str(tmp_path))
    monkeypatch.setattr("tc.trace.warn", said.append)
    debug_folder.run_folder.cache_clear()

    def compiled(function, *args, **options) -> dict[str, Path]:
        result = tc.compile(function, options={f"trace.{k}": v for k, v in options.items()})(*args)
        if result.requires_grad:
            result.sum().backward()
        found = tmp_path.glob("torch_compile_debug/run_*-pid_*/torchinductor/model__*")
        assert len(said) == 1 and str(tmp_path) in said[0], "where it is is said once"
        return {one.name.split("_")[3]: one for one in found}

    yield compiled
    debug_folder.run_folder.cache_clear()


def names(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}


def test_a_graph_without_gradients(folders):
    for _ in range(2):  # found again, not on disk
        tc.reset()
        found = folders(lambda x: torch.relu(x).sum(-1), torch.randn(4, 5), enabled=True)
        assert names(found["inference"]) == TEXTS
        assert "aten.relu" in (found["inference"] / "fx_graph_readable.py").read_text()
        assert "maximum" in (found["inference"] / "ir_post_fusion.txt").read_text()


def test_forward_and_backward_with_pictures(folders):
    w = torch.randn(5, 3, requires_grad=True)
    found = folders(lambda x, w: (x @ w).tanh(), torch.randn(4, 5), w, enabled=True,
                    graph_diagram=True)  # fmt: skip
    assert set(found) == {"forward", "backward"}
    for folder in found.values():
        assert names(folder) == TEXTS | PICTURES
        for name in PICTURES:
            picture = ElementTree.parse(folder / name).getroot()
            assert len(list(picture.iter("{http://www.w3.org/2000/svg}rect"))) > 3


def test_the_runnable_program_runs(folders):
    def f(x, index):
        return torch.softmax(x, -1).index_select(0, index).clone().topk(2)[0]

    found = folders(f, torch.randn(4, 5), torch.tensor([1, 0, 1]), enabled=True)
    done = python(str(found["inference"] / "fx_graph_runnable.py"), warm=True)
    assert done.returncode == 0, done.stderr
    assert "tensor" in done.stdout


def test_without_the_option_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tc.compile(lambda x: x + 3)(torch.ones(2))
    assert not list(tmp_path.iterdir())
