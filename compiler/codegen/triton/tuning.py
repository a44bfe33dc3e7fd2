"""Choices between kernels that compute the same, by measurement (``max_autotune``).

In: kernels of the plan, and who measures. Out: each printed in the quickest way. What is timed
runs on memory of the sizes at hand, so kernels of symbolic sizes are left as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from tc.compiler.codegen.canonical import canonical
from tc.compiler.codegen.triton import product as products
from tc.compiler.codegen.triton.blocks import candidates
from tc.compiler.codegen.triton.kernel import TritonKernel, generate
from tc.compiler.codegen.triton.module import module_of
from tc.compiler.core.artifacts import KernelSpec
from tc.compiler.core.tune import Tuner, Way
from tc.compiler.loops.index import Index
from tc.compiler.loops.ir import Buffer, Extern
from tc.compiler.schedule.plan import Kernel, Product

Open = Callable[[str, Sequence[KernelSpec]], Mapping[str, Callable[..., None]]]


@dataclass
class Tuning:
    """Chooses between ways to print kernels.

    Attributes:
        tuner: of the device.
        open: makes kernels of a module's source.
        device: where they run.
        asked: by the user; else all is printed as usual, and ATen multiplies.
    """

    tuner: Tuner
    open: Open
    device: torch.device
    asked: bool = True

    @property
    def choose(self) -> Callable[..., Product | None] | None:
        """What decides which matrix products become kernels; None if nothing is to be timed."""
        return self.product if self.asked else None

    def kernel(self, kernel: Kernel, buffers: dict[str, Buffer]) -> TritonKernel:
        """Print a kernel with the block sizes that are quickest."""
        if isinstance(kernel, Product):
            tile = next(t for t in products.tiles(kernel) if str(t) == kernel.tile_name)
            return products.generate(kernel, buffers, tile)
        ways = {str(blocks): blocks for blocks in candidates(kernel)}
        if not self.asked or len(ways) == 1 or not _static(kernel, buffers):
            return generate(kernel, buffers)
        printed = functools.cache(lambda name: generate(kernel, buffers, ways[name]))
        renamed = canonical(kernel)
        types = ", ".join(f"{new}: {buffers[old]}" for new, old in renamed.buffers.items())
        text = str(renamed.kernel).replace(f"{kernel.name}:", "kernel:", 1)

        def launches() -> Mapping[str, Way]:
            return self._that_run({name: self._launch(printed(name), buffers) for name in ways})

        best = self.tuner.quickest(f"{text} on {types}; {' or '.join(ways)}", launches)
        return printed(best)

    def product(
        self, call: Extern, follower: Kernel | None, whole: Product, known: Mapping[str, Buffer]
    ) -> Product | None:
        """The product cut in the quickest way; None where ATen's routine is quicker."""
        buffers = dict(known)
        kernels = [whole] if follower is None else [whole, follower]
        if not all(_static(kernel, buffers) for kernel in kernels):
            return None
        tiles = {str(tile): tile for tile in products.tiles(whole)}
        sizes = ", ".join(str(replace(v, buffer="")) for v in (whole.left, whole.right))
        dtype = whole.left.dtype
        after = "" if follower is None else f", then {canonical(follower).kernel}"
        if follower is not None:
            after = after.replace(follower.name, "follower")

        def launches() -> Mapping[str, Way]:
            ways: dict[str, Way] = {"aten": self._call(whole, follower, buffers)}
            for name, tile in tiles.items():
                ways[name] = self._launch(products.generate(whole, buffers, tile), buffers)
            return self._that_run(ways)

        best = self.tuner.quickest(f"mm {sizes} {dtype}{after}; {' or '.join(tiles)}", launches)
        return None if best == "aten" else replace(whole, tile_name=best)

    def _launch(self, kernel: TritonKernel, buffers: dict[str, Buffer]) -> Way:
        kinds = tuple(a.kind for a in kernel.arguments)
        opened = self.open(module_of([kernel.source]), [KernelSpec(kernel.name, kinds)])
        given = [self._memory(buffers[a.name]) if a.kind == "p" else 1 for a in kernel.arguments]
        return functools.partial(opened[kernel.name], *given)

    def _call(self, whole: Product, follower: Kernel | None, buffers: dict[str, Buffer]) -> Way:
        left, right = (
            self._memory(Buffer("", v.dtype, v.sizes, v.strides)) for v in (whole.left, whole.right)
        )
        after = None if follower is None else self._launch(generate(follower, buffers), buffers)

        def run() -> None:
            torch.mm(left, right)
            if after is not None:
                after()

        return run

    def _memory(self, buffer: Buffer) -> torch.Tensor:
        size, stride = (_numbers(x) for x in (buffer.sizes, buffer.strides))
        made = torch.empty_strided(size, stride, dtype=buffer.dtype, device=self.device)
        return made.zero_()  # positions read from it are good ones

    @staticmethod
    def _that_run(ways: dict[str, Way]) -> dict[str, Way]:
        """The ways without those that need more than the device has; the first one is kept."""
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


def _numbers(indices: tuple[Index, ...]) -> list[int]:
    return [int(index.constant or 0) for index in indices]


def _static(kernel: Kernel, buffers: dict[str, Buffer]) -> bool:
    """Whether all sizes are known."""
    names = (*kernel.loaded(), *kernel.stored())
    if not all(name in buffers for name in names):
        return False
    sizes: list[Any] = [n for name in names for n in (*buffers[name].sizes, *buffers[name].strides)]
    return all(size.constant is not None for size in sizes)
