"""Inputs of a call, copied before it, with the random state: what a second run begins with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from tc.compiler.core import levels
from tc.compiler.core.memory import storage_id
from tc.compiler.sentinel.rounding import same_layout

#: bytes that a check needs for each byte of inputs: two copies, one of them in float64
COPIES = 4
PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


class Skipped(Exception):
    """A call that cannot be compared; the text is the reason, the same for calls of a kind."""


def require_comparable(inputs: Sequence[Any], limit: int) -> None:
    """Refuse a call that cannot be repeated, or whose copies would take too much memory.

    Args:
        limit: bytes that all copies of the inputs may take together.

    Raises:
        Skipped: it cannot.
    """
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    for value in tensors:
        if type(value) not in PLAIN or torch._C._functorch.is_functorch_wrapped_tensor(value):
            raise Skipped("an input is a subclass of Tensor or wrapped by a transform")
        if value.layout != torch.strided or value.is_quantized or value.is_meta:
            raise Skipped("an input is not a plain dense tensor")
    taken = COPIES * sum(value.numel() * value.element_size() for value in tensors)
    if taken > limit:
        raise Skipped("copies of the inputs would exceed tc.config.sentinel_memory")
    for device in {value.device for value in tensors if value.is_cuda}:
        if torch.cuda.is_current_stream_capturing():
            raise Skipped("a CUDA graph is being recorded")
        if taken > torch.cuda.mem_get_info(device)[0]:
            raise Skipped("the GPU has too little free memory for copies of the inputs")


def copied(inputs: Sequence[Any]) -> list[Any]:
    """Return inputs with the same layouts, in memory of their own; shared memory stays shared."""
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    users = Counter(map(storage_id, tensors))
    storages: dict[int, torch.UntypedStorage] = {}

    def copy(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        memory = storage_id(value)
        if users[memory] == 1 or value.is_conj() or value.is_neg():
            made = same_layout(value)
        else:
            if memory not in storages:
                storages[memory] = value.untyped_storage().clone()  # type: ignore[no-untyped-call]
            empty = torch.empty(0, dtype=value.dtype, device=value.device)
            place = value.storage_offset(), value.shape, value.stride()
            made = empty.set_(storages[memory], *place)
        return made.requires_grad_(value.requires_grad)

    with torch.no_grad():
        return list(map(copy, inputs))


@dataclass(frozen=True)
class RandomState:
    """The generators of the CPU and of the GPUs that inputs are on."""

    cpu: torch.Tensor
    gpus: tuple[tuple[torch.device, torch.Tensor], ...] = ()

    @classmethod
    def now(cls, inputs: Sequence[Any]) -> RandomState:
        """Return the state as it is."""
        devices = {v.device for v in inputs if isinstance(v, torch.Tensor) and v.is_cuda}
        gpus = [(device, torch.cuda.get_rng_state(device)) for device in devices]
        return cls(torch.get_rng_state(), tuple(gpus))

    def restore(self) -> None:
        """Set it."""
        torch.set_rng_state(self.cpu)
        for device, state in self.gpus:
            torch.cuda.set_rng_state(state, device)

    def is_now(self) -> bool:
        """Return whether nothing was drawn since."""
        if not torch.equal(self.cpu, torch.get_rng_state()):
            return False
        return all(torch.equal(torch.cuda.get_rng_state(at), state) for at, state in self.gpus)


@contextmanager
def unseen() -> Iterator[None]:
    """Run a block without the user's modes and hooks, and without the frame hook."""
    with levels.frames_unseen(), _disable_current_modes(), levels.autograd_unseen():
        yield
