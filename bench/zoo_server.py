"""A warm process of the zoo: a family's library is loaded once, each model runs in a fork.

    python bench/zoo_server.py tc|torch FAMILY BACKEND

In: requests as JSON lines on stdin. Out: answers as JSON lines on stdout.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
import warnings
from typing import Any

import torch
import zoo_families
import zoo_judge

Row = dict[str, Any]


DEATH_SIGNAL = 1  # of prctl


def die_with_parent() -> None:
    """End this process when the one that started it ends, however that happens."""
    ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)


def answer(compiler: str, family: zoo_families.Family, request: Row) -> Row:
    """Run a model in a fork of this process, within its limits."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        os.setpgid(0, 0)
        die_with_parent()
        found = _in_child(compiler, family, request)
        with os.fdopen(write, "w") as stream:
            stream.write(json.dumps(found))
        os._exit(0)
    os.close(write)
    text, late = _read(read, request["seconds"])
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if text:
        found: Row = json.loads(text)
        return found
    if late:
        return {"kind": "timeout", "detail": f"over {request['seconds']} s"}
    return {"kind": "crash", "clear": False, "detail": f"the process died, status {status}"}


def _read(descriptor: int, seconds: float) -> tuple[str, bool]:
    """Return what a child writes until it closes its end, and whether time ran out."""
    end = time.monotonic() + seconds
    parts = []
    with os.fdopen(descriptor, "rb", 0) as stream:
        while True:
            ready, _, _ = select.select([stream], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                return "", True
            part = stream.read(1 << 16)
            if not part:
                return b"".join(parts).decode(), False
            parts.append(part)


def _in_child(compiler: str, family: zoo_families.Family, request: Row) -> Row:
    limit = int(request["gigabytes"]) << 30
    resource.setrlimit(resource.RLIMIT_AS, (limit + (16 << 30), limit + (16 << 30)))
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    try:
        return zoo_judge.run(compiler, family, request)
    except BaseException as error:  # an answer, whatever it is
        text = "".join(traceback.format_exception(error)[-3:])
        return {"kind": "crash", "clear": False, "detail": f"in the zoo itself: {text}"}


class _Little(torch.nn.Module):
    """A model that uses what most models use."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)
        self.convolution = torch.nn.Conv2d(1, 2, 3, padding=1)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return a value and one computed of an image."""
        y = self.norm(self.linear(x))
        y = torch.nn.functional.scaled_dot_product_attention(y, y, y).transpose(1, 2)
        image = self.convolution(y[:, None].expand(-1, 1, -1, -1))
        return {"y": torch.nn.functional.gelu(y), "image": image.mean((2, 3))}


def warm_up(compiler: str, backend: str) -> None:
    """Load what every compile needs, so that no child has to."""
    start, _ = zoo_judge.COMPILERS[compiler]
    model = _Little()
    # Before the first fake tensor, after which a CUDA build of PyTorch counts a GPU where there is
    # none, starts a thread for its gradients, and refuses a backward in any fork.
    zoo_judge.step(model, model, {"x": torch.randn(2, 6, 8)}, zoo_judge.STEPS[0][0])
    compiled = start(model, backend)
    for mode, index in zoo_judge.STEPS:
        zoo_judge.step(model, compiled, {"x": torch.randn(2 + index, 6, 8)}, mode)
    if compiler == "torch":
        torch.compiler.reset()
        zoo_judge.torch_counters().clear()
    else:
        from tc.compiler import api

        api.reset()
        api.counters["graph_break"].clear()


def main() -> None:
    die_with_parent()
    warnings.simplefilter("ignore")
    compiler, family_name, backend = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    family = zoo_families.FAMILIES[family_name]()
    warm = False
    for line in sys.stdin:
        request = json.loads(line)
        if "list" in request:
            found: Row = {"names": family.names()}
        else:
            warm = warm or warm_up(compiler, backend) is None
            if request["device"] == "cpu":
                found = answer(compiler, family, request)
            else:  # a GPU cannot be used in a fork of a process that may have used it
                found = zoo_judge.run(compiler, family, request)
        answers.write(json.dumps(found) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
