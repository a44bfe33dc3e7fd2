"""Which ops have fake results in other strides than eager's, over inputs in several layouts.

    python bench/fakes.py                     PyTorch's op database; takes some minutes
    python bench/fakes.py --only roll,divide  ops whose names contain one of these
    python bench/fakes.py --torch             torch's own fake tensors, without our corrections

Needs expecttest, which PyTorch's op database imports. Exit code 1 if there are any.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensorMode

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
#: samples of an op
SAMPLES = 5


def channels_last(x: torch.Tensor) -> torch.Tensor:
    """Channels last where there are channels."""
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else transposed(x)


def transposed(x: torch.Tensor) -> torch.Tensor:
    """The first and the last dimension exchanged in memory."""
    return x.transpose(0, -1).contiguous().transpose(0, -1) if x.dim() > 1 else x


def permuted(x: torch.Tensor) -> torch.Tensor:
    """The first dimension innermost."""
    return x.movedim(0, -1).contiguous().movedim(-1, 0) if x.dim() > 1 else x


def with_gaps(x: torch.Tensor) -> torch.Tensor:
    """Every other element of memory is left out."""
    return torch.stack([x, x], -1)[..., 0]


def narrow(x: torch.Tensor) -> torch.Tensor:
    """The last dimension has size 1, and comes first."""
    return x[..., :1].contiguous().transpose(0, -1) if x.dim() > 1 else x


def narrow_with_gaps(x: torch.Tensor) -> torch.Tensor:
    """The first dimension is cut to size 1."""
    return transposed(x)[:1] if x.dim() > 1 else x


def empty(x: torch.Tensor) -> torch.Tensor:
    """The last dimension has size 0, and comes first."""
    return x[..., :0].transpose(0, -1) if x.dim() > 1 else x


def repeated(x: torch.Tensor) -> torch.Tensor:
    """The first dimension repeats what is at its first position."""
    return x[:1].expand_as(x) if x.dim() > 1 else x


LAYOUTS = (
    *(channels_last, transposed, permuted, with_gaps),
    *(narrow, narrow_with_gaps, empty, repeated),
)


def differences(op: Any, mode_of: type[FakeTensorMode]) -> Iterator[str]:
    """Yield where the fake results of an op lie otherwise than the real ones."""
    for sample in list(op.sample_inputs("cpu", torch.float32))[:SAMPLES]:
        for layout in LAYOUTS:
            given = pytree.tree_map_only(
                torch.Tensor,
                lambda x, layout=layout: layout(x.detach()) if x.layout is torch.strided else x,
                (sample.input, *sample.args, sample.kwargs),
            )
            *args, kwargs = given
            mode = mode_of(allow_non_fake_inputs=True)
            *fakes, named = pytree.tree_map_only(torch.Tensor, mode.from_tensor, given)
            try:
                real = op.op(*args, **kwargs)
                with mode:
                    fake = op.op(*fakes, **named)
            except Exception:  # not every layout is taken, nor has every op a shape function
                continue
            pairs = zip(pytree.tree_leaves(real), pytree.tree_leaves(fake), strict=False)
            for mine, theirs in pairs:
                both = isinstance(mine, torch.Tensor) and isinstance(theirs, torch.Tensor)
                plain = both and mine.layout is torch.strided
                if plain and mine.shape == theirs.shape and mine.stride() != theirs.stride():
                    what = f"{layout.__name__} {tuple(mine.shape)}"
                    yield f"{what}: {theirs.stride()}, not {mine.stride()}"


def main() -> int:
    """Compare; print the first difference of each op."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--torch", action="store_true", help="torch's own fake tensors")
    options = parser.parse_args()
    from torch.testing._internal.common_methods_invocations import op_db

    from tc.compiler.core.fakes import EagerLayouts

    warnings.simplefilter("ignore")
    mode_of = FakeTensorMode if options.torch else EagerLayouts
    wanted, found, asked = options.only.split(","), 0, 0
    for op in op_db:
        if not any(part in op.name for part in wanted) or torch.float32 not in op.dtypes:
            continue
        asked += 1
        first = next(differences(op, mode_of), None)
        if first is not None:
            found += 1
            print(f"{op.name}{op.variant_test_name}: {first}", flush=True)
    print(f"{asked} ops: {found} have fake results in other strides than eager's")
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main())
