"""The debug folder of a compile: each stage's text as a file, and pictures of the graphs.

In: the artifacts of a graph's passes. Out: files under the names that PyTorch's documentation gives
them, for ``options={"trace.enabled": True}``; with ``trace.graph_diagram`` also SVGs. The folder is
``torch_compile_debug/run_…`` in the current one, or in ``$TORCH_COMPILE_DEBUG_DIR``.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import fx

from tc import trace
from tc.compiler.core.diagram import Box, svg
from tc.compiler.core.nodetext import describe

#: pass -> the file that holds what it made
FILES = {
    "library": "fx_graph_transformed.py",
    "loops.lower": "ir_pre_fusion.txt",
    "schedule": "ir_post_fusion.txt",
    "codegen": "output_code.py",
}
_numbers = itertools.count()
_NAME = re.compile(r"[A-Za-z_]\w*")


class DebugFolder:
    """Where the files of one graph go.

    Attributes:
        diagrams: whether there are to be pictures.
    """

    def __init__(self, module: fx.GraphModule, kind: str, diagrams: bool) -> None:
        compile_id = trace.current_compile()
        frame = 0 if compile_id is None else compile_id.frame
        again = 0 if compile_id is None else compile_id.compile
        name = f"model__{frame}_{kind}_{next(_numbers)}.{again}"
        self.path = run_folder() / "torchinductor" / name
        self.path.mkdir(parents=True, exist_ok=True)
        self.diagrams = diagrams
        self._begin(module)

    def _begin(self, module: fx.GraphModule) -> None:
        """Write the ATen graph as it comes in, and a program that runs it."""
        readable = module.print_readable(print_output=False)
        self._write("fx_graph_readable.py", readable)
        self._write("fx_graph_runnable.py", runnable(module))
        if self.diagrams:
            title = f"ATen graph, {self.path.name}"
            self._write("orig_fx_graph_diagram.svg", svg(*graph_boxes(module.graph), title))

    def after(self, name: str, artifact: Any) -> None:
        """Write what a pass made."""
        if name not in FILES:
            return
        made = artifact[0] if name == "codegen" else artifact
        text = (
            made.print_readable(print_output=False)
            if isinstance(made, fx.GraphModule)
            else f"{made}\n"
        )
        self._write(FILES[name], text)
        if name == "codegen":
            self._write("output_code.py", made.wrapper_source)
            self._write("output_kernels.c", made.c_source)
        if name == "schedule" and self.diagrams:
            title = f"after fusion, {self.path.name}"
            self._write("graph_diagram.svg", svg(*plan_boxes(made), title))

    def _write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text)


@functools.cache
def run_folder() -> Path:
    """Return the folder of this process, and say once where it is."""
    root = Path(os.environ.get("TORCH_COMPILE_DEBUG_DIR") or Path.cwd())
    stamp = time.strftime("%Y_%m_%d_%H_%M_%S")
    path = root / "torch_compile_debug" / f"run_{stamp}-pid_{os.getpid()}"
    trace.warn(f"trace.enabled: the graphs and code of each stage are in {path}")
    return path


def runnable(module: fx.GraphModule) -> str:
    """Return a program that calls a graph with random inputs of its sizes."""
    inputs = module.graph.find_nodes(op="placeholder")
    given = "".join(f"    {_random(node.meta.get('val'))},  # {node.name}\n" for node in inputs)
    constants = {
        str(node.target): getattr(module, str(node.target), None)
        for node in module.graph.find_nodes(op="get_attr")
    }
    sets = "".join(f"graph.{name} = {_random(value)}\n" for name, value in constants.items())
    code = module.print_readable(print_output=False)
    name = re.search(r"^class (.+?)\(", code, re.M)
    code = code.replace(f"class {name[1]}(", "class Graph(", 1) if name else code
    return (
        f"import torch\nfrom math import inf, nan\nfrom torch import device\n\n\n{code}\n\n"
        f"graph = Graph()\n{sets}inputs = [\n{given}]\nprint(graph(*inputs))\n"
    )


def _random(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(getattr(getattr(value, "node", None), "hint", value))
    sizes = [int(getattr(getattr(s, "node", None), "hint", s) or 2) for s in value.shape]
    how = f"dtype={value.dtype}, device={str(value.device)!r}"
    if value.dtype.is_floating_point or value.dtype.is_complex:
        return f"torch.randn({sizes}, {how})"
    return f"torch.randint(0, 2, {sizes}, {how})"


def graph_boxes(graph: fx.Graph) -> tuple[list[Box], list[tuple[str, str]]]:
    """Return the boxes and edges of an ATen graph."""
    kinds = {"placeholder": "input", "get_attr": "input", "output": "output"}
    boxes, edges = [], []
    for node in graph.nodes:
        value = node.meta.get("val")
        shape = f": {describe(value)}" if isinstance(value, torch.Tensor) else ""
        called = getattr(node.target, "__name__", node.target)
        if isinstance(node.target, torch._ops.OpOverload):
            called = str(node.target).removesuffix(".default")
        label = f"{node.name}{'' if node.op in kinds else f' = {called}'}{shape}"
        boxes.append(Box(node.name, label, kinds.get(node.op, "call"), node.format_node() or label))
        edges += [(one.name, node.name) for one in node.all_input_nodes]
    return boxes, edges


def plan_boxes(plan: Any) -> tuple[list[Box], list[tuple[str, str]]]:
    """Return the boxes and edges of a plan: inputs, kernels, calls and the results."""
    maker: dict[str, str] = {}  # buffer -> the box that wrote it last
    boxes, edges = [], []
    for one in plan.inputs:
        name = one.buffer.name if one.buffer is not None else str(one)
        maker[name] = name
        boxes.append(Box(name, str(one).removeprefix("input "), "input"))
    for number, step in enumerate(plan.steps):
        reads, writes = _uses(step, maker)
        if not writes:
            continue
        name = f"step {number}"
        label = getattr(step, "name", None) or getattr(step, "target", type(step).__name__)
        kind = "kernel" if hasattr(step, "stored") else "call"
        boxes.append(Box(name, str(label), kind, str(step)))
        edges += [(maker[one], name) for one in reads if one in maker]
        maker |= dict.fromkeys(writes, name)
    boxes.append(Box("results", "return " + ", ".join(map(str, plan.outputs)), "output"))
    used = {one for value in plan.outputs for one in _NAME.findall(str(value))}
    edges += [(maker[one], "results") for one in sorted(used) if one in maker]
    return boxes, edges


def _uses(step: Any, known: dict[str, str]) -> tuple[list[str], list[str]]:
    """Return the buffers that a step reads and those it writes: none if it computes nothing."""
    if hasattr(step, "stored"):
        return step.loaded, step.stored
    if hasattr(step, "results"):
        made = [one.name for one in step.results if one is not None]
        writes = made or [f"effect of {step.target}"]
        _, _, given = str(step).partition(" = ")
        return list(_names(given, known)), writes
    if type(step).__name__ == "CopyInto":
        names = list(_names(str(step), known))
        return names, names[:1]
    return [], []


def _names(text: str, known: dict[str, str]) -> Iterator[str]:
    return (name for name in dict.fromkeys(_NAME.findall(text)) if name in known)
