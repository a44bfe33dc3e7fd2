"""Makes `Relation`, which checks a condition on sizes without running Python (``relation.c``)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import torch

from tc.compiler.core.once import once
from tc.compiler.core.relations import OPS
from tc.compiler.runtime.extension import extension
from tc.compiler.runtime.launch import address_of

#: by which the functions of torch that read a tensor are exported
_READERS: Final = ("dim", "sizes", "strides", "storage_offset")


def make_relation(
    count: int, program: Sequence[int], fallback: Callable[..., bool]
) -> Callable[..., bool]:
    """Return a function of values that is true where the program's conditions hold.

    Args:
        count: of the values: tensors and numbers.
        program: in postfix order, see `core/relations.py`; each condition ends with ``holds``.
        fallback: the same function in Python, which is asked where the program cannot decide, and
            is returned where there is no C compiler, or where torch's tensors lie otherwise.
    """
    module = _module()
    if module is None:
        return fallback
    try:
        made: Callable[..., bool] = module.Relation(count, tuple(program), fallback)
    except ValueError:  # too many values, or too deep
        return fallback
    return made


@once
def _module() -> ModuleType | None:
    """Return the extension, or None where it cannot be built or does not read what is there."""
    module = extension("relation")
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    probe = torch.empty(64, device="cpu").as_strided((2, 3), (7, 2), 5)
    place = _place_of_tensor(probe)
    if module is None or place is None or not path.exists():
        return None
    library = ctypes.CDLL(str(path))
    try:
        readers = [address_of(library, f"aoti_torch_get_{name}") for name in _READERS]
    except AttributeError:
        return None
    module.setup(torch.Tensor, torch.nn.Parameter, place, *readers)
    return module if _reads(module, probe) else None


def _place_of_tensor(probe: torch.Tensor) -> int | None:
    """Return the offset of the C++ tensor, a pointer, in the Python object of a tensor."""
    step = ctypes.sizeof(ctypes.c_void_p)
    for place in range(object.__basicsize__, type(probe).__basicsize__, step):
        if ctypes.c_void_p.from_address(id(probe) + place).value == probe._cdata:
            return place
    return None


def _reads(module: ModuleType, probe: torch.Tensor) -> bool:
    """Return whether programs read the sizes, strides and offset that Python reads."""
    seen: list[tuple[str, tuple[int, ...], int]]
    seen = [("size", (item,), size) for item, size in enumerate(probe.size())]
    seen += [("stride", (item,), stride) for item, stride in enumerate(probe.stride())]
    seen.append(("offset", (), int(probe.storage_offset())))

    def undecided(value: Any) -> bool:
        return False

    for op, item, value in seen:
        program = (OPS[op], 0, *item, OPS["constant"], value, OPS["=="], OPS["holds"])
        if not module.Relation(1, program, undecided)(probe):
            return False
    return True
