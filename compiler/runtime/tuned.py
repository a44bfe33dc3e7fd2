"""The tuner of this machine: where its results are stored, and what they depend on."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import time
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from tc.compiler.core.machine import caches
from tc.compiler.core.tune import KIND, ROUNDS, SAMPLE, WARM_UPS, Tuner, Way, measure
from tc.compiler.runtime import store
from tc.compiler.runtime.build import cpu_identity

#: cycles of a GPU's clock that take a second at least
CYCLES = 2.5e9
#: rows of a matrix product that is compute-bound
SQUARE = 512


def tuner(thorough: bool = False) -> Tuner:
    """Return the tuner of this machine; see `Tuner`."""
    machine = f"{cpu_identity()}\0{torch.__version__}\0{torch.get_num_threads()} threads"
    return Tuner(store, machine, thorough)


def machine_limits() -> tuple[float, float]:
    """Return this machine's memory bandwidth in bytes, and product speed in operations, a second.

    They are measured once for a processor, torch and a number of threads, and stored on disk: by a
    copy of memory larger than the caches, counting reads and writes, and by a float32 product of
    square matrices of `SQUARE` rows. The program's modes and random numbers are not affected.
    """
    key = hashlib.sha256(f"limits\0{tuner().machine}".encode()).hexdigest()
    kept = store.read(KIND, key)
    if kept is None:
        floats: dict[str, Any] = {"dtype": torch.float32, "device": "cpu"}
        with torch.no_grad(), _disable_current_modes(), torch._C.DisableTorchFunction():
            size = 2 * caches().last
            source = torch.zeros(size // 4, **floats)
            target, square = torch.empty_like(source), torch.ones(SQUARE, SQUARE, **floats)
            ways = {"copy": lambda: target.copy_(source), "product": lambda: square @ square}
            took = measure(ways, ROUNDS)
        kept = json.dumps([2 * size / took["copy"], 2 * SQUARE**3 / took["product"]]).encode()
        store.write(KIND, key, kept)
    bandwidth, arithmetic = json.loads(kept)
    return bandwidth, arithmetic


def gpu_tuner(device: torch.device) -> Tuner:
    """Return the tuner of a GPU, which times each question there."""
    known = device.type == "cuda" and torch.cuda.is_available()
    name = torch.cuda.get_device_name(device) if known else str(device)
    return Tuner(store, f"{name}\0{_versions()}", True, measure_launches)


def gpu_identity() -> str:
    """Return the facts about this process's GPUs that compiling depends on: models, libraries."""
    cuda: Any = torch.cuda
    models = [
        f"{cuda.get_device_name(n)} {cuda.get_device_capability(n)}"
        for n in range(cuda.device_count() if cuda.is_available() else 0)
    ]
    cudnn: Any = torch.backends.cudnn
    return f"{', '.join(models)}; {_versions()}, cudnn {cudnn.version()}"


def _versions() -> str:
    try:
        triton = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        triton = "missing"
    return f"torch {torch.__version__}, triton {triton}"


def measure_launches(ways: Mapping[str, Way], rounds: int) -> dict[str, float]:
    """Return the seconds of a call of each way on the current GPU: the minimum of several samples.

    The device's own clock is read, and the device is kept busy while calls are launched: where
    launching takes longer than computing, all ways would seem to take as long.
    """
    least = dict.fromkeys(ways, math.inf)
    launching = dict.fromkeys(ways, 0.0)
    for turn in range(rounds + 1):  # the first one warms up, and determines the calls of a sample
        for name, way in ways.items():
            took = least[name]
            count = WARM_UPS if turn == 0 else max(1, math.ceil(SAMPLE / max(took, 1e-7)))
            event: Any = torch.cuda.Event
            start, end = event(enable_timing=True), event(enable_timing=True)
            torch.cuda._sleep(int(CYCLES * count * launching[name]))  # type: ignore[no-untyped-call]
            start.record()
            began = time.perf_counter()
            for _ in range(count):
                way()
            launching[name] = (time.perf_counter() - began) / count
            end.record()
            end.synchronize()
            least[name] = min(took, start.elapsed_time(end) / 1e3 / count)
    return least
