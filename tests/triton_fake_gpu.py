"""Loads and calls a GPU program where there is no GPU: Triton compiles its kernels for an H200, and
a fake driver writes down each launch instead of making it. Prints the launches.

Run in a process of its own, without ``TRITON_INTERPRET``.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from loop_harness import lowered
from triton.backends.compiler import GPUTarget

from tc.compiler.codegen.triton.stage import generate
from tc.compiler.core.gate import Gate
from tc.compiler.runtime.triton import load
from tc.compiler.schedule import gpu


class Recorder:
    """What Triton calls a launcher."""

    launches: list[tuple[Any, ...]] = []  # noqa: RUF012 - a process makes one list

    def __init__(self, src: Any, metadata: Any) -> None:
        self.name, self.signature = metadata.name, src.signature

    def __call__(self, x: int, y: int, z: int, stream: int, function: int, *rest: Any) -> None:
        _packed, _metadata, _enter, _exit, *args = rest
        assert len(args) == len(self.signature), (args, self.signature)
        self.launches.append((self.name, (x, y, z), f"stream {stream}", *args))


class Utils:
    """Loads nothing."""

    def load_binary(self, *_: Any) -> tuple[int, ...]:
        return 1, 2, 32, 0, 1024

    def get_device_properties(self, _: int) -> dict[str, int]:
        return {"max_shared_mem": 232448}


class Driver:
    """A GPU that does nothing."""

    utils, launcher_cls = Utils(), Recorder
    stream = 7

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _: int) -> int:
        return self.stream


def is_pointer(value: Any) -> bool:
    """A tensor, as Triton's own launch is given, or an address."""
    return isinstance(value, torch.Tensor) or (isinstance(value, int) and value >= 1 << 32)


def main() -> None:
    """A graph of a size, called for two: launches with Triton's call, then with tc's."""
    triton.runtime.driver.set_active(Driver())
    graph = lowered(lambda x: x * x.shape[0] ** -0.5, (torch.randn(6, 40),), "symbolic")
    call = load(generate(gpu.plan(graph, Gate()), torch.device("cpu")))
    for rows in (6, 6, 700):
        Driver.stream = 7 if rows == 6 else 8
        call([torch.randn(rows, 40)])
    for name, grid, *args in Recorder.launches:
        print(name, grid, *("tensor" if is_pointer(a) else a for a in args))


if __name__ == "__main__":
    main()
