"""A fault goes in; a program that somebody might have written comes out, with the fault in it.

The program is drawn from the random numbers of the caller: a module or a function, the fault in the
forward pass itself, in a block or in a helper, before or behind layers, in training or inference;
the names, the sizes, and what stands above.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final

#: the end of the lines that are to be named
MARK: Final = "# planted"
Draw = random.Random

HEAD: Final = """\
import functools, hashlib, io, logging, math, random, sys, threading, time
import torch
import torch.nn.functional as F
import numpy as np
{compiler}

torch.manual_seed({seed})
QUIET = io.StringIO()
LOG = logging.getLogger("training")
"""
#: how a program gets its compiler; all else in it is the same
COMPILERS: Final = {
    "tc": "import tc",
    "torch": "import torch.compiler as tc\n"
    "from torch._dynamo import graph_break\ntc.graph_break = graph_break",
}
_FILLERS: Final = (
    'VERSION = "0.3"\n',
    "def count(net):\n    return sum(p.numel() for p in net.parameters())\n",
    "class Meter:\n    def __init__(self):\n        self.total = 0.0\n",
    "# What follows was moved here from the notebook.\n",
    "def rate(turn, most=0.1):\n    return most * min(1.0, (turn + 1) / 50)\n",
)
_NAMES: Final = (
    ("Net", "net", "x"), ("Encoder", "model", "h"), ("Mixer", "mixer", "inputs"),
    ("Head", "head", "features"), ("Policy", "policy", "obs"), ("Tagger", "tagger", "batch"),
)  # fmt: skip
_ACTS: Final = ("F.relu", "F.gelu", "torch.tanh", "F.silu", "torch.sigmoid")


@dataclass(frozen=True)
class Planted:
    """A program with a slowdown.

    Attributes:
        text: Python; the lines that are to be named end in `MARK`.
        codes: those of findings that name the cause, or how they begin; empty: it is sound.
        word: stands in the first advice, where the code alone does not name the cause.
    """

    text: str
    codes: tuple[str, ...]
    word: str = ""

    @property
    def lines(self) -> list[int]:
        """The numbers of the planted lines, from 1."""
        rows = self.text.splitlines()
        return [number for number, row in enumerate(rows, 1) if row.endswith(MARK)]

    def under(self, compiler: str, seed: int) -> Planted:
        """Return the whole program, for one of `COMPILERS`."""
        head = HEAD.format(seed=seed, compiler=COMPILERS[compiler])
        return replace(self, text=head + self.text)


@dataclass(frozen=True)
class Fault:
    """What is wrong, in parts.

    In all of them ``@x`` is the tensor that is worked on and ``@me`` an object that lives as long
    as the program: the module, or a namespace.

    Attributes:
        body: lines of the forward pass.
        top: text that stands above the model.
        init: lines that prepare ``@me``.
        loop: lines of each step, before the call; ``turn`` is the number of the step.
        given: the input, as Python. It is made once, with `fresh` in each step.
        width: of the layers around the fault; 0 for none.
        calls: fewest and most steps.
        train: it may be a training step.
    """

    body: tuple[str, ...]
    top: str = ""
    init: tuple[str, ...] = ()
    loop: tuple[str, ...] = ()
    given: str = ""
    fresh: bool = False
    width: int = 0
    calls: tuple[int, int] = (150, 300)
    train: bool = False


def program(draw: Draw, fault: Fault) -> str:
    """Return a program with a fault."""
    kind, variable, name = draw.choice(_NAMES)
    place = draw.choice(("forward", "forward", "helper", "block", "function"))
    body = list(fault.body)
    top = [*draw.sample(_FILLERS, draw.randint(0, 3)), *([fault.top] if fault.top else [])]
    me = "state" if place == "function" else "self"
    parts = {
        "forward": _module, "helper": _with_helper, "block": _with_block, "function": _function,
    }  # fmt: skip
    model = parts[place](draw, fault, body, kind)
    model += f"\n{variable} = tc.compile({'run' if place == 'function' else kind + '()'})\n"
    outside = me if place == "function" else f"{variable}.part" if place == "block" else variable
    train = fault.train and place != "function" and fault.width > 0 and draw.random() < 0.4
    text = "\n".join([*top, model]) + _loop(draw, fault, variable, outside, train)
    return text.replace("@me", me).replace("@x", name)


def _layers(draw: Draw, fault: Fault, holder: str) -> tuple[list[str], list[str]]:
    """Return the lines that make some layers, and those that call them, of a width."""
    if not fault.width:
        return [], []
    depth = draw.randint(1, 4)
    act = draw.choice(_ACTS)
    made = f"torch.nn.Linear({fault.width}, {fault.width}) for _ in range({depth})"
    calls = [f"@x = {act}({holder}.layers[{n}](@x))" for n in range(depth)]
    if draw.random() < 0.5:
        calls.append("@x = F.layer_norm(@x, @x.shape[-1:])")
    return [f"{holder}.layers = torch.nn.ModuleList({made})"], calls


def _mixed(draw: Draw, calls: list[str], body: list[str]) -> list[str]:
    place = draw.randint(0, len(calls))
    return [*calls[:place], *body, *calls[place:]]


def _class(kind: str, init: list[str], forward: list[str]) -> str:
    rows = [
        f"class {kind}(torch.nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        *(f"        {row}" for row in init),
        "",
        "    def forward(self, @x):",
        *(f"        {row}" for row in forward),
        "        return @x",
    ]
    return "\n".join(rows) + "\n"


def _module(draw: Draw, fault: Fault, body: list[str], kind: str) -> str:
    made, calls = _layers(draw, fault, "self")
    return _class(kind, [*made, *fault.init], _mixed(draw, calls, body))


def _with_helper(draw: Draw, fault: Fault, body: list[str], kind: str) -> str:
    name = draw.choice(("adjust", "mixed", "prepare", "_apply_rules"))
    helper = [f"def {name}(self, @x):", *(f"    {row}" for row in body), "    return @x", "", ""]
    made, calls = _layers(draw, fault, "self")
    forward = _mixed(draw, calls, [f"@x = {name}(self, @x)"])
    return "\n".join(helper) + _class(kind, [*made, *fault.init], forward)


def _with_block(draw: Draw, fault: Fault, body: list[str], kind: str) -> str:
    name = draw.choice(("Block", "Stage", "Part"))
    made, calls = _layers(draw, fault, "self")
    first = _class(name, list(fault.init), body)
    forward = _mixed(draw, calls, ["@x = self.part(@x)"])
    return f"{first}\n\n" + _class(kind, [*made, f"self.part = {name}()"], forward)


def _function(draw: Draw, fault: Fault, body: list[str], kind: str) -> str:
    made, calls = _layers(draw, fault, "state")
    rows = [
        "state = torch.nn.Module()",
        *made,
        *fault.init,
        "",
        "",
        "def run(@x):",
        *(f"    {row}" for row in _mixed(draw, calls, body)),
        "    return @x",
    ]
    return "\n".join(rows) + "\n"


def _loop(draw: Draw, fault: Fault, variable: str, outside: str, train: bool) -> str:
    given = fault.given or f"torch.randn({draw.randint(2, 16)}, {fault.width})"
    rows = [] if fault.fresh else [f"data = {given}"]
    if train:
        rows.append(f"sgd = torch.optim.SGD({variable}.parameters(), lr=1e-3)")
    rows.append(f"for turn in range({draw.randint(*fault.calls)}):")
    rows += [f"    {row.replace('@me', outside)}" for row in fault.loop]
    rows += [f"    data = {given}"] if fault.fresh else []
    if train:
        rows += [f"    loss = {variable}(data).square().mean()", "    loss.backward()"]
        rows += draw.choice((["    sgd.step()", "    sgd.zero_grad()"],
                             [f"    {variable}.zero_grad()"]))  # fmt: skip
    else:
        mode = draw.choice(("no_grad", "inference_mode"))
        rows += [f"    with torch.{mode}():", f"        {variable}(data)"]
    return "\n".join(rows) + "\n"
