"""Autotuning: chooses between equivalent kernels by measurement (``max_autotune``).

In: kernels of the plan, and a tuner that measures. Out: each kernel, printed in the fastest way.
Timed kernels run on memory of the current sizes. Symbolic sizes are grouped in classes: a kernel is
timed, and the result stored, for the power of two that is not less than the size at compile time.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from tc.compiler.codegen.canonical import canonical
from tc.compiler.codegen.triton import product as products
from tc.compiler.codegen.triton.blocks import candidates, power_of_two
from tc.compiler.codegen.triton.kernel import TritonKernel, generate
from tc.compiler.codegen.triton.module import module_of
from tc.compiler.core.artifacts import KernelSpec
from tc.compiler.core.tune import Tuner, Way
from tc.compiler.loops import index as ix
from tc.compiler.loops.index import Index
from tc.compiler.loops.ir import Buffer, Extern, View
from tc.compiler.schedule.plan import Kernel, Product, Proposal

Open = Callable[[str, Sequence[KernelSpec]], Mapping[str, Callable[..., None]]]
#: suffix of the names of ways with fused prologues
INSIDE = ", factors inside"


@dataclass
class Tuning:
    """Chooses between ways to print kernels.

    Attributes:
        tuner: the tuner of the device.
        open: makes kernels of a module's source.
        device: the device that they run on.
        asked: whether the user asked for autotuning; else defaults are used, and ATen multiplies.
        hints: symbolic size -> its value at compile time.
    """

    tuner: Tuner
    open: Open
    device: torch.device
    asked: bool = True
    hints: Mapping[str, int] = field(default_factory=dict)

    @property
    def choose(self) -> Callable[..., Product | None] | None:
        """What decides which matrix products become kernels; None if nothing is to be timed."""
        return self.product if self.asked else None

    def kernel(self, kernel: Kernel, buffers: dict[str, Buffer]) -> TritonKernel:
        """Print a kernel with the fastest block sizes."""
        if isinstance(kernel, Product):
            return products.generate(kernel, buffers)
        ways = {str(blocks): blocks for blocks in candidates(kernel)}
        trial = self._trial([kernel], buffers)
        if not self.asked or len(ways) == 1 or trial is None:
            return generate(kernel, buffers)
        printed = functools.cache(lambda name: generate(kernel, buffers, ways[name]))

        def launches() -> Mapping[str, Way]:
            return that_run({name: trial.launch(printed(name)) for name in ways})

        question = trial.named(_text(kernel, buffers))
        return printed(self.tuner.fastest(f"{question}; {' or '.join(ways)}", launches))

    def product(self, proposal: Proposal, known: Mapping[str, Buffer]) -> Product | None:
        """Return the product with the fastest tile sizes; None if ATen's routine is faster."""
        buffers, follower = dict(known), proposal.follower
        around = [*proposal.producers, *([] if follower is None else [follower])]
        trial = self._trial([*around, *proposal.ways], buffers)
        if trial is None:
            return None
        tiles = products.tiles(proposal.ways[0], trial.sizes)
        cut = {
            f"{tile}{INSIDE if inside else ''}": replace(way, cut=tile)
            for inside, way in enumerate(proposal.ways)
            for tile in tiles
        }

        def launches() -> Mapping[str, Way]:
            made = {k.name: trial.launch(generate(k, buffers)) for k in around}
            ways: dict[str, Way] = {}
            call = trial.call(proposal.call)
            before = [made[k.name] for k in proposal.producers]
            after = [] if follower is None else [made[follower.name]]
            ways["aten"] = in_turn([*before, call, *after])
            for name, way in cut.items():
                needed = [made[k.name] for k in proposal.left_over(way)]
                ways[name] = in_turn([*needed, trial.launch(products.generate(way, buffers))])
            return that_run(ways)

        asked = [_text(way, buffers) for way in proposal.ways]
        question = trial.named(f"{proposal.call.path[1]} {'; '.join(asked)}")
        best = self.tuner.fastest(f"{question}; {' or '.join(cut)}", launches)
        return None if best == "aten" else cut[best]

    def _trial(self, kernels: Sequence[Kernel], buffers: Mapping[str, Buffer]) -> _Trial | None:
        """Return memory to run kernels on; None where some size is not known."""
        names = {name for k in kernels for name in (*k.loaded, *k.stored)}
        if not names <= buffers.keys():
            return None
        indices = [i for n in names for i in (*buffers[n].sizes, *buffers[n].strides)]
        indices += [ix.extent(variable) for kernel in kernels for variable in kernel.loops()]
        atoms = sorted({a.name for i in indices for a in i.atoms() if a.kind in ix.SYMBOLS})
        if not all(name in self.hints for name in atoms):
            return None
        sizes = {name: power_of_two(self.hints[name]) for name in atoms}
        if any(ix.evaluate(index, sizes) < 0 for index in indices):  # such as 100 - s0
            return None
        return _Trial(self, buffers, sizes)


@dataclass
class _Trial:
    """Memory to run kernels on, the same for all ways to compute something.

    Attributes:
        sizes: symbolic size -> its class.
    """

    tuning: Tuning
    buffers: Mapping[str, Buffer]
    sizes: Mapping[str, int]
    held: dict[str, torch.Tensor] = field(default_factory=dict)

    def named(self, question: str) -> str:
        """Return the key of a measurement: symbolic sizes renamed in order, and their classes."""
        order = dict.fromkeys(re.findall(r"\b\w+\b", question))
        classes = [name for name in order if name in self.sizes]
        for number, name in enumerate(classes):
            question = re.sub(rf"\b{name}\b", f"n{number}", question)
        about = [f", n{k} about {self.sizes[name]}" for k, name in enumerate(classes)]
        return question + "".join(about)

    def launch(self, kernel: TritonKernel) -> Way:
        """Return a kernel on that memory."""
        kinds = tuple(a.kind for a in kernel.arguments)
        opened = self.tuning.open(module_of([kernel.source]), [KernelSpec(kernel.name, kinds)])
        given: dict[str, Callable[[str], Any]] = {
            "i64": self.sizes.__getitem__,
            "f64": lambda _: 1.0,
            "p": self.memory,
        }
        arguments = [given[argument.kind](argument.name) for argument in kernel.arguments]
        return functools.partial(opened[kernel.name], *arguments)

    def call(self, step: Extern) -> Way:
        """Return a call of ATen on that memory."""
        op: Any = functools.reduce(getattr, step.path[1:], torch.ops.aten)
        given = [self.view(value) if isinstance(value, View) else value for value in step.args]
        return functools.partial(op, *given, **dict(step.kwargs))

    def view(self, view: View) -> torch.Tensor:
        """Return a window on that memory."""
        size, stride = (self.numbers(x) for x in (view.sizes, view.strides))
        (offset,) = self.numbers([view.offset])
        return self.memory(view.buffer).as_strided(size, stride, offset)

    def memory(self, name: str) -> torch.Tensor:
        """Return memory for a buffer; positions read from it are in range."""
        if name not in self.held:
            buffer = self.buffers[name]
            size, stride = (self.numbers(x) for x in (buffer.sizes, buffer.strides))
            device = self.tuning.device
            made = torch.empty_strided(size, stride, dtype=buffer.dtype, device=device)
            self.held[name] = made.zero_()
        return self.held[name]

    def numbers(self, indices: Iterable[Index]) -> list[int]:
        """Return indices of sizes, as numbers."""
        return [int(ix.evaluate(index, self.sizes)) for index in indices]


def in_turn(ways: Sequence[Way]) -> Way:
    """Return a function that calls all of them, one after the other."""
    if len(ways) == 1:
        return ways[0]

    def run() -> None:
        for way in ways:
            way()

    return run


def that_run(ways: Mapping[str, Way]) -> dict[str, Way]:
    """Return the ways that do not exceed the device's resources; the first one always stays."""
    found: dict[str, Way] = {}
    for name, way in ways.items():
        try:
            way()
        except Exception:
            if not found:
                raise
            continue
        found[name] = way
    return found


def _text(kernel: Kernel, buffers: Mapping[str, Buffer]) -> str:
    """Return the text of a kernel's computation, without its name."""
    renamed = canonical(kernel)
    given = [replace(buffers[old], name=new) for new, old in renamed.buffers.items()]
    types = ", ".join(map(str, given))
    return f"{replace(renamed.kernel, name='kernel')} on {types}"
