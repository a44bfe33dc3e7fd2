"""A call that went wrong, as a script with its inputs on disk, for people and for `tc-bisect`."""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx

from tc.compiler.core.graphtext import python_text
from tc.compiler.runtime.store import cache_dir
from tc.compiler.sentinel.check import Backward, Call
from tc.compiler.sentinel.graph import Graph
from tc.compiler.sentinel.rounding import Difference

SCRIPT = "repro.py"
DATA = "inputs.pt"

TEXT = """\
# {kind}: {message}
# from {file}:{line} in {function}
# found by tc's sentinel in call {number} of the graph{gradients}; {versions}
from math import inf, nan  # names that the graph may use
from pathlib import Path

import torch
from torch import device
from torch.utils._pytree import tree_leaves

{imports}


{graph}

DATA = Path(__file__).with_name("inputs.pt")
torch.set_num_threads({threads}){dtype}
{maker}graph = {make}
for path, value in torch.load(DATA)["attributes"].items():
    owner, _, attribute = path.rpartition(".")
    setattr(graph.get_submodule(owner), attribute, value)


def run(program):
    data = torch.load(DATA)
    inputs = data["inputs"]
    torch.set_rng_state(data["random"])
    with {modes}:
        outputs = tree_leaves(program(*inputs))
{backward}    return outputs, inputs{grads}


torch.testing.assert_close(run({compiled}), run(graph), equal_nan=True)
"""
MAKER = """

def made(kind):
    for name, inner in list(vars(kind).items()):
        if isinstance(inner, type):  # a branch, whose class is inside of the graph's
            setattr(kind, name, made(inner))
    return kind()


"""
BACKWARD = """\
    tangents = data["tangents"]
    torch.autograd.backward([outputs[place] for place in {places}], tangents)
"""
GRADS = ", [x.grad for x in inputs if isinstance(x, torch.Tensor)]"


class Unwritable(Exception):
    """A graph has no text; the sentence says why."""


def write(
    graph: Graph, call: Call, difference: Difference, number: int,
    backward: Backward | None = None, tangents: Sequence[Any] = (),
) -> Path:  # fmt: skip
    """Write a call and return the folder; one that is there already is of the same graph.

    Args:
        backward: given if gradients differ; ``tangents`` are those it was given.

    Raises:
        Unwritable: it has no text.
        OSError: the folder cannot be written.
    """
    text, attributes = graph_text(graph.module)
    name = re.sub(r"\W+", "_", graph.place.name).strip("_") or "graph"
    key = hashlib.sha256(f"{text}{graph.compile_call}{difference.kind}".encode()).hexdigest()
    folder = cache_dir() / "sentinel" / f"{name}-{key[:12]}"
    if (folder / SCRIPT).exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    came: list[Any] = []
    places: list[int] = []
    if backward is not None:
        rows = [(p, tangents[n]) for n, p in backward.outputs.items() if tangents[n] is not None]
        places, came = [place for place, _ in rows], [value.detach() for _, value in rows]
    torch.save(
        {"inputs": call.inputs, "attributes": attributes, "random": call.random.cpu,
         "tangents": came},
        folder / DATA,
    )  # fmt: skip
    inner = any(isinstance(child, fx.GraphModule) for child in graph.module.children())
    name_of_class = type(graph.module).__name__
    compiler = graph.compile_call or "BACKEND_OF_YOURS(graph)"
    script = TEXT.format(
        kind=difference.kind,
        message=difference.message,
        file=graph.place.file,
        line=graph.place.line,
        function=graph.place.name,
        number=number,
        gradients="" if backward is None else ", in its gradients",
        versions=f"torch {torch.__version__}, Python {platform.python_version()}",
        imports="import tc" if compiler.startswith("tc.") else "",
        graph=text,
        threads=torch.get_num_threads(),
        dtype="" if torch.get_default_dtype() is torch.float32
        else f"\ntorch.set_default_dtype({torch.get_default_dtype()})",
        maker=MAKER if inner else "",
        make=f"made({name_of_class})" if inner else f"{name_of_class}()",
        modes=_modes(call, backward is not None),
        backward=BACKWARD.format(places=places) if backward is not None else "",
        grads=GRADS if backward is not None else "",
        compiled=compiler,
    )  # fmt: skip
    (folder / SCRIPT).write_text(re.sub(r"\n{4,}", "\n\n\n", script))
    return folder


def _modes(call: Call, gradients: bool) -> str:
    rows = [f"torch.set_grad_enabled({gradients})"]
    for device, on, dtype in call.autocast.settings:
        rows += [f"torch.autocast({device!r}, {dtype})"] if on else []
    return ", ".join(rows)


def graph_text(module: fx.GraphModule) -> tuple[str, dict[str, torch.Tensor]]:
    """Return a captured graph as a class, and the tensors that it holds.

    Raises:
        Unwritable: it holds something else.
    """
    attributes = dict(_attributes(module, ""))
    text = python_text(module)
    try:
        compile(text, SCRIPT, "exec")
    except SyntaxError as error:
        raise Unwritable("an argument of the graph has no text") from error
    return text, attributes


def _attributes(module: fx.GraphModule, prefix: str) -> Iterator[tuple[str, torch.Tensor]]:
    for node in module.graph.nodes:
        if node.op == "call_module":
            raise Unwritable(f"the graph calls the module {node.target}")
        if node.op != "get_attr":
            continue
        held: Any = module
        for part in str(node.target).split("."):
            held = getattr(held, part)
        if isinstance(held, torch.Tensor) and "." not in node.target:
            yield f"{prefix}{node.target}", held.detach()
        elif isinstance(held, fx.GraphModule) and "." not in node.target:
            yield from _attributes(held, f"{prefix}{node.target}.")
        else:
            raise Unwritable(f"the graph holds a {type(held).__name__} ({node.target})")
