"""Collectives of this process, seen before they are issued, whoever issues them.

In: a listener. Out: a call of it for each collective: of `torch.distributed`, of DDP's reducer and
of FSDP in C++, of compiled graphs. All of them go through the operators ``c10d::*`` of PyTorch's
dispatcher, whose kernels are wrapped here.
"""

from __future__ import annotations

import functools
import itertools
import sysconfig
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from tc.compiler.errors import in_library

#: operator -> its name in messages, and the argument whose size is the same on all ranks ("": none)
OPERATORS = {
    "allreduce_": ("all_reduce", "tensors"),
    "allreduce_coalesced_": ("all_reduce", "tensors"),
    "broadcast_": ("broadcast", "tensors"),
    "reduce_": ("reduce", "tensors"),
    "allgather_": ("all_gather", ""),
    "_allgather_base_": ("all_gather", "input_tensor"),
    "allgather_coalesced_": ("all_gather", ""),
    "allgather_into_tensor_coalesced_": ("all_gather", "inputs"),
    "reduce_scatter_": ("reduce_scatter", ""),
    "_reduce_scatter_base_": ("reduce_scatter", "output_tensor"),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", "outputs"),
    "gather_": ("gather", ""),
    "scatter_": ("scatter", ""),
    "alltoall_": ("all_to_all", ""),
    "alltoall_base_": ("all_to_all", ""),
    "barrier": ("barrier", ""),
}
KEYS = ("CPU", "CUDA")
#: of the user's frames that a collective is in, as many are kept
MOST_FRAMES = 6
STANDARD = sysconfig.get_paths()["stdlib"]


@dataclass(frozen=True)
class Seen:
    """A collective that is about to be issued.

    Attributes:
        what: see `Collective`.
        polled: whether its end may be asked for from another thread; on a GPU that is left alone,
            since a stream may be under capture.
    """

    group: dist.ProcessGroup
    what: str
    polled: bool


#: gets what is about to be issued; returns what is given its `Work`
Listener = Callable[[Seen], Callable[[Any], None] | None]


class Observer:
    """The wrapped kernels, and who listens."""

    def __init__(self) -> None:
        self.listener: Listener | None = None
        self._library: Any = torch.library.Library("c10d", "IMPL")  # type: ignore[no-untyped-call]

    def install(self) -> None:
        """Wrap the kernels of all collectives."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a kernel is put in place of another
            for name, key in itertools.product(OPERATORS, KEYS):
                operator = f"c10d::{name}"
                if torch._C._dispatch_has_kernel_for_dispatch_key(operator, key):
                    self._wrap(name, key, torch.library.get_kernel(operator, key))

    def _wrap(self, name: str, key: str, kernel: Any) -> None:
        schema = getattr(torch.ops.c10d, name).default._schema
        places = {argument.name: at for at, argument in enumerate(schema.arguments)}

        def call(keys: Any, *args: Any) -> Any:
            seen = self._see(name, places, args, key)
            after = None
            if seen is not None and self.listener is not None:
                after = self.listener(seen)
            try:
                results = kernel.call_boxed(keys, *args)
            except BaseException as error:
                if after is not None:
                    after(error)
                raise
            if after is not None:
                after(results[-1] if isinstance(results, (tuple, list)) else results)
            return results

        self._library.impl(name, call, key, with_keyset=True, allow_override=True)

    def _see(self, name: str, places: dict[str, int], args: Sequence[Any], key: str) -> Seen | None:
        if self.listener is None:
            return None
        group = dist.ProcessGroup.unbox(args[places["process_group"]])
        verb, sized = OPERATORS[name]
        what = verb
        if "root_rank" in places:
            what += f" (root {args[places['root_rank']]})"
        if sized:
            tensors = args[places[sized]]
            tensors = [tensors] if isinstance(tensors, torch.Tensor) else tensors
            sizes = ", ".join(f"{t.numel()} × {str(t.dtype)[6:]}" for t in tensors)
            what += f" of {sizes}"
        return Seen(group, what, key == "CPU")


@functools.cache
def observer() -> Observer:
    """Return the observer of this process, with its kernels in place."""
    made = Observer()
    made.install()
    return made


def user_lines(frame: FrameType | None) -> list[tuple[str, int, str]]:
    """Return file, line and function of the user's frames from one on, the innermost first."""
    found: list[tuple[str, int, str]] = []
    while frame is not None and len(found) < MOST_FRAMES:
        code = frame.f_code
        file = code.co_filename
        if not in_library(file) and not file.startswith("<") and not file.startswith(STANDARD):
            found.append((file, frame.f_lineno or code.co_firstlineno, code.co_qualname))
        frame = frame.f_back
    return found
