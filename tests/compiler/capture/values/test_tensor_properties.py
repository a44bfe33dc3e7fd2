"""What code reads of a tensor is what eager gives: all properties, tensors and places there are.

A place is a kind of code that a property is read in: under a mode, in the forward of an
autograd.Function, of what that returned, in a checkpoint, in a transform.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import tc

Function = Callable[[Any], Any]

NAMES = (
    "requires_grad", "is_leaf", "retains_grad", "output_nr", "layout", "dtype", "nbytes",
    "itemsize", "ndim", "shape", "device", "is_sparse", "is_cpu", "is_meta", "is_quantized",
    "_version",
)  # fmt: skip
PROPERTIES: dict[str, Function] = {
    **{name: lambda a, name=name: getattr(a, name) for name in NAMES},  # type: ignore[misc]
    "grad_fn": lambda a: a.grad_fn.name() if a.grad_fn is not None else None,
    "grad": lambda a: a.grad is None,
    "is_contiguous": lambda a: a.is_contiguous(),
    "stride": lambda a: a.stride(),
    "storage_offset": lambda a: a.storage_offset(),
    "is_view": lambda a: a._is_view(),
    "base": lambda a: a._base is None,
    "is_inference": lambda a: a.is_inference(),
    "is_conj": lambda a: a.is_conj(),
    "is_neg": lambda a: a.is_neg(),
    "numel": lambda a: a.numel(),
    "len": lambda a: len(a),
    "type": lambda a: type(a).__name__,
    "parameter": lambda a: isinstance(a, torch.nn.Parameter),
    "dim_order": lambda a: a.dim_order(),
    "is_floating_point": lambda a: a.is_floating_point(),
    "grad_enabled": lambda a: torch.is_grad_enabled(),
    "inference_enabled": lambda a: torch.is_inference_mode_enabled(),
}
MAKERS: dict[str, Function] = {
    "argument": lambda x: x,
    "clone": lambda x: x.clone(),
    "transpose": lambda x: x.t(),
    "slice": lambda x: x[1:],
    "detach": lambda x: x.detach(),
    "expand": lambda x: x[:1].expand(3, 3),
    "view_as": lambda x: x.view_as(x),
    "written": lambda x: x.clone().mul_(2),
    "chunk": lambda x: x.chunk(3)[1],
    "fresh": lambda x: torch.ones(3, 3),
    "fresh_with_gradient": lambda x: torch.ones(3, 3, requires_grad=True),
    "contiguous": lambda x: (x * 2).t().contiguous(),
}


def mode(enter: Any) -> Any:
    def place(make: Function, read: Function) -> Function:
        def f(x: Any) -> Any:
            with enter():
                reported = read(make(x))
            return x * 1, reported

        return f

    return place


def plain(make: Function, read: Function) -> Function:
    def f(x: Any) -> Any:
        made = make(x)
        return made * 1, read(made)

    return f


def function_of(forward: Any) -> Any:
    return type("F", (torch.autograd.Function,), {
        "forward": staticmethod(forward), "backward": staticmethod(lambda ctx, *g: g[0]),
    })  # fmt: skip


def in_forward(make: Function, read: Function) -> Function:
    reported: list[Any] = []

    def forward(ctx: Any, x: Any) -> Any:
        reported.append(read(make(x)))
        return x * 2

    function = function_of(forward)

    def f(x: Any) -> Any:
        reported.clear()
        return function.apply(x.sin()), reported[0]

    return f


def returned(result: Any) -> Any:
    """Of what a forward returns, and whether that is what it was given."""

    def place(make: Function, read: Function) -> Function:
        function = function_of(result(make))

        def f(x: Any) -> Any:
            given = x.sin()
            made = function.apply(given)
            return made, read(given), read(made), made is given

        return f

    return place


def changed(make: Function) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x)
        return x.mul_(2)

    return forward


def unwanted(make: Function) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        made = x * 2
        ctx.mark_non_differentiable(made)
        return made

    return forward


def in_checkpoint(make: Function, read: Function) -> Function:
    def body(x: Any) -> Any:
        made = make(x)
        return made * 2, read(made)

    return lambda x: checkpoint(body, x, use_reentrant=False)


PLACES: dict[str, Any] = {
    "plain": plain,
    "no_grad": mode(torch.no_grad),
    "inference_mode": mode(torch.inference_mode),
    "enable_grad": mode(torch.enable_grad),
    "forward": in_forward,
    "result": returned(lambda make: lambda ctx, x: make(x) * 2),
    "result_is_argument": returned(lambda make: lambda ctx, x: x),
    "result_is_view": returned(lambda make: lambda ctx, x: x.view_as(x)),
    "result_is_changed": returned(changed),
    "result_is_unwanted": returned(unwanted),
    "checkpoint": in_checkpoint,
}


def known(place: str, maker: str, name: str, wants: bool) -> bool:
    """Return whether a property is promised; docs/soundness.md has the count that is not."""
    return (place, name, wants) != ("result_is_changed", "_version", False)


def cases() -> tuple[list[Any], list[Any]]:
    """All of them; those of the default suite are drawn again each time."""
    every = [case for case in product(PLACES, MAKERS, PROPERTIES, (False, True)) if known(*case)]
    chosen = set(random.Random().sample(range(len(every)), 40))
    slow = [case for number, case in enumerate(every) if number not in chosen]
    return [every[number] for number in chosen], slow


DEFAULT, REST = cases()


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    yield
    tc.reset()


def outcome(f: Function, wants: bool) -> Any:
    x = torch.ones(3, 3, requires_grad=wants)
    try:
        made, *reported = f(x)
    except (RuntimeError, AttributeError) as error:
        return type(error), str(error)
    return reported, made.requires_grad, made.is_leaf, made.tolist()


def check(place: str, maker: str, name: str, wants: bool) -> None:
    f = PLACES[place](MAKERS[maker], PROPERTIES[name])
    want = outcome(f, wants)
    assert outcome(tc.compile(f, backend="eager"), wants) == want, (place, maker, name, wants)


def test_a_property_is_eagers() -> None:
    for case in DEFAULT:
        check(*case)
        tc.reset()


@pytest.mark.slow
def test_every_property_is_eagers() -> None:
    for case in REST:
        check(*case)
        tc.reset()


def test_what_this_torch_does_not_have_raises() -> None:
    if hasattr(torch.Tensor, "names"):
        pytest.skip("tensors of this torch have names")
    with pytest.raises(AttributeError, match="names"):
        tc.compile(lambda x: x.names)(torch.ones(2))
