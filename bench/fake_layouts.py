"""Layouts of fake tensors and of eager's results, over PyTorch's database of operators.

    PYTHONPATH=$WITH_EXPECTTEST python bench/fake_layouts.py --seed 7 --samples 10

Each operator's sample inputs are laid out in other ways (permuted, channels last, with gaps,
expanded, odd strides of dimensions of size 1), and called in eager and on fake tensors. Programs
read strides, so that a difference is a wrong fact in a compiled one. What is printed, by operator:
how many results differ, and the first of them.
"""

from __future__ import annotations

import argparse
import random
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from tc.compiler.core.fakes import EagerLayouts

Change = Callable[[torch.Tensor, random.Random], torch.Tensor]


def permuted(x: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """Return a tensor whose dimensions lie in memory in another order."""
    order = rng.sample(range(x.dim()), x.dim())
    return x.permute(order).contiguous().permute([order.index(at) for at in range(x.dim())])


def channels_last(x: torch.Tensor, _: random.Random) -> torch.Tensor:
    """Return a tensor with the channels last, or the first dimension where it is no image."""
    form = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    if form is None:
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    return x.contiguous(memory_format=form)


def with_gaps(x: torch.Tensor, _: random.Random) -> torch.Tensor:
    """Return a part of a larger tensor."""
    larger = torch.zeros([size + 1 for size in x.shape], dtype=x.dtype, device=x.device)
    part = larger[tuple(slice(0, size) for size in x.shape)]
    return part.copy_(x)


def expanded(x: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """Return a tensor that repeats along one dimension."""
    dim = rng.randrange(x.dim())
    return x.select(dim, 0).unsqueeze(dim).expand(x.shape) if x.shape[dim] else x


def odd_ones(x: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """Return a tensor with any strides of dimensions of size 1."""
    pairs = zip(x.shape, x.stride(), strict=True)
    steps = [rng.choice([0, 1, 7, step]) if size == 1 else step for size, step in pairs]
    return x.as_strided(x.shape, steps)


CHANGES: tuple[Change, ...] = (permuted, channels_last, with_gaps, expanded, odd_ones)


def changed(value: Any, change: Change, rng: random.Random) -> Any:
    """Return a tensor in another layout; other values, and those of one dimension, as they are."""
    if not isinstance(value, torch.Tensor) or value.dim() < 2 or value.layout != torch.strided:
        return value
    return change(value.detach(), rng)


def differences(real: Any, fake: Any) -> Iterator[str]:
    """Yield what programs see of results that differs."""
    for one, other in zip(pytree.tree_leaves(real), pytree.tree_leaves(fake), strict=False):
        if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
            continue
        sizes = [*other.shape, *other.stride(), other.storage_offset()]
        if one.layout != torch.strided or any(isinstance(size, torch.SymInt) for size in sizes):
            continue
        for name in ("shape", "stride", "storage_offset", "dtype"):
            pair = [getattr(each, name) for each in (one, other)]
            eager, fakes = [each() if callable(each) else each for each in pair]
            if eager != fakes:
                yield f"{name} of {tuple(one.shape)}: eager {eager}, fake {fakes}"


def compared(op: Any, sample: Any, change: Change, rng: random.Random) -> list[str] | None:
    """Return how a call's results differ, or None where one of the two calls raises."""

    def other_layout(value: Any) -> Any:
        return changed(value, change, rng)

    def as_fake(value: Any) -> Any:
        is_tensor = isinstance(value, torch.Tensor)
        return mode.from_tensor(value, static_shapes=True) if is_tensor else value

    mode = EagerLayouts(shape_env=ShapeEnv(), allow_non_fake_inputs=False)
    try:
        args = pytree.tree_map(other_layout, (sample.input, *sample.args))
        kwargs = pytree.tree_map(other_layout, sample.kwargs)
        with torch.no_grad():
            real = op.op(*args, **kwargs)
        with torch.no_grad(), mode:
            fake = op.op(*pytree.tree_map(as_fake, args), **pytree.tree_map(as_fake, kwargs))
    except Exception:
        return None
    tensors = [one for one in pytree.tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
    given = ", ".join(f"{tuple(one.shape)} {one.stride()}" for one in tensors[:3])
    return [f"{change.__name__}: {text}; given {given}" for text in differences(real, fake)]


def main() -> int:
    """Print the operators whose layouts differ; 1 if there are some."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--samples", type=int, default=10, help="of each operator, drawn")
    parser.add_argument("--only", default="", help="a part of the operators' names")
    options = parser.parse_args()
    # it needs ``expecttest``, and takes seconds
    from torch.testing._internal.common_methods_invocations import op_db

    warnings.simplefilter("ignore")
    rng, calls = random.Random(options.seed), 0
    torch.manual_seed(options.seed)
    found: dict[str, list[str]] = defaultdict(list)
    for op in op_db:
        if torch.float32 not in op.dtypes or options.only not in op.name:
            continue
        samples = list(op.sample_inputs("cpu", torch.float32))
        for sample in rng.sample(samples, min(options.samples, len(samples))):
            for change in CHANGES:
                texts = compared(op, sample, change, rng)
                calls += texts is not None
                found[f"{op.name} {op.variant_test_name}".strip()] += texts or []
    wrong = {name: texts for name, texts in found.items() if texts}
    print(f"seed {options.seed}: {calls} calls, {len(wrong)} operators differ")
    for name, texts in wrong.items():
        print(f"  {name}: {len(texts)} results; {texts[0]}")
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
