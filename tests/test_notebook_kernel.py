"""A notebook with a graph break, run by a real kernel: what its outputs say, and of which cell."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from page_reader import Page
from support import ROOT

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

FAST = {
    "cells": "from tc.trace import GraphBreak, StackFrame",
    # IPython drops the empty lines at the start.
    "helper": "\n\ndef helper(x):\n    print('<b>')\n    return x.sin()",
    "shown": "code = helper.__code__\n"
    "GraphBreak('TC104', 'a print', 'why', code.co_filename, 2, 'helper', source_line='line')",
    "where": "from tc.trace.findings import Where\n"
    "print(Where(code.co_filename, 2, function='helper').short)\n"
    "print(Where(code.co_filename, 2).text)",
    "loaded": "import sys\n'torch' in sys.modules",
}
SLOW = {
    "setup": "import torch\nimport tc",
    "helper": "\n\ndef helper(x):\n    print('<b>')\n    return x.sin()",
    "explained": "def f(x):\n    return helper(x + 1) * 2\n\ntc.explain(f)(torch.ones(3))",
    "printed": "print(_)",
    "graph": "_.graphs[1]",
    "session": "from tc.trace.session import load\nsession = load(r'{trace}')\nsession",
    "findings": "from tc.trace.findings import diagnose\ndiagnose(session)",
    "logged": "tc.set_logs(graph_breaks=True)\n_ = tc.compile(f, backend='eager')(torch.ones(3))",
    "timed": "%%time\ndef g(x):\n    return x.sin()\nassert tc.explain(g)(torch.ones(3)).graphs",
}


def run(cells: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run cells in a fresh kernel of this Python; return the outputs of each by MIME type."""
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import AsyncKernelManager

    class Manager(AsyncKernelManager):  # type: ignore[misc]
        """Starts this Python, whatever kernels are installed."""

        @property
        def kernel_spec(self) -> KernelSpec:
            command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
            return KernelSpec(argv=command, language="python", display_name="tests")

    for name in [name for name in os.environ if name.startswith("TC_")]:
        monkeypatch.delenv(name)
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR", "TC_CACHE_DIR"):
        monkeypatch.setenv(name, str(folder / name))
    monkeypatch.setenv("TC_TRACE", str(folder / "trace"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    sources = [text.replace("{trace}", str(folder / "trace")) for text in cells.values()]
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, sources)))
    nbclient.NotebookClient(notebook, km=Manager(), timeout=60).execute(cwd=str(folder))
    outputs = {}
    for name, cell in zip(cells, notebook.cells, strict=True):
        found: dict[str, str] = {}
        for one in cell.outputs:
            found.update(one.get("data") or {"stdout": found.get("stdout", "") + one["text"]})
        outputs[name] = found
    return outputs


def test_a_kernel_names_cells_and_typed_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = run(FAST, tmp_path, monkeypatch)
    page = Page(said["shown"]["text/html"])
    assert not page.faults and "In [2], line 4 in helper" in page.text
    assert "In [2], line 4" in said["shown"]["text/plain"]
    assert said["where"]["stdout"] == "In [2], line 4 in helper\n    print('<b>')\n"
    assert said["loaded"]["text/plain"] == "False"


@pytest.mark.slow
def test_a_notebook_with_a_graph_break(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = run(SLOW, tmp_path, monkeypatch)
    for name in ("explained", "graph", "session", "findings"):
        page = Page(said[name]["text/html"])
        assert not page.faults, name
        assert "In [3], line" in page.text and "ipykernel_" not in page.text, name
        plain = said[name]["text/plain"]
        assert "In [" in plain and "ipykernel_" not in plain, name
    for name in ("explained", "findings"):  # of a function of another cell
        text = Page(said[name]["text/html"]).text
        assert "In [2], line 4 in helper print('<b>')" in text, name
    assert "call of print() while tracing In [2], line 4" in " ".join(
        said["printed"]["stdout"].split()
    )
    log = said["logged"]["stdout"]
    assert "In [2], line 4 in helper" in log and "4 |     print('<b>')" in log
    graph = Page(said["graph"]["text/html"]).text
    assert "In [2], line 5 return x.sin()" in graph
    assert "In [3], line 2 return helper(x + 1) * 2" in graph
