"""Runs a compiled forward and backward as one node of eager's autograd graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from tc.compiler.aot.artifact import aten
from tc.compiler.aot.training import Training
from tc.compiler.aot.wrap import Compiled, wrap, wrap_backward

Layout = tuple[tuple[int, ...], torch.dtype]


def wrap_training(
    graphs: Training, forward: Compiled, backward: Compiled | None
) -> Callable[..., list[Any]]:
    """Return a function over the captured graph's inputs that returns its outputs, with gradients.

    Args:
        graphs: what was compiled.
        forward: runs ``graphs.forward``; takes a list, returns the user's values and kept ones.
        backward: runs ``graphs.backward``, None if there is none.
    """
    if graphs.backward is None or backward is None:
        return wrap(graphs.forward, torch.no_grad()(forward))
    function = autograd_function(
        graphs,
        forward,
        wrap_backward(graphs.backward, backward),
        wrap_backward(graphs.backward, one_by_one(graphs.backward.module)),
    )
    # Past Function.apply, which looks at what only matters under functorch's transforms.
    apply: Callable[..., Any] = super(torch.autograd.Function, function).apply  # type: ignore[misc]

    def call(args: list[Any]) -> tuple[Any, ...]:
        result: tuple[Any, ...] = apply(*args)
        return result

    return wrap(graphs.forward, call)


Backward = Callable[[list[Any]], list[Any]]


def autograd_function(
    graphs: Training, forward: Compiled, backward: Backward, by_operations: Backward
) -> type[torch.autograd.Function]:
    """Return the autograd function of one graph.

    Saved tensors are checked by autograd: one that was written to before backward is an error
    there, as in eager.

    Args:
        backward: runs the compiled program.
        by_operations: does the same with calls of torch, for gradients of which there are many in
            one, or that are of a class of their own.
    """
    assert graphs.partition is not None
    count, places = graphs.returned, graphs.partition.saved_from
    tensors, sizes = (
        places[: graphs.partition.saved_tensors],
        places[graphs.partition.saved_tensors :],
    )
    diffs = graphs.differentiable
    plain = tuple(i for i in range(count) if i not in diffs)

    class CompiledFunction(torch.autograd.Function):
        """A compiled graph in eager's autograd graph."""

        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            results = forward(list(args))
            kept = [args[i] if where == "input" else results[i] for where, i in tensors]
            ctx.save_for_backward(*kept)
            ctx.kept = layouts(kept) if packed() else None
            ctx.sizes = [args[i] if where == "input" else results[i] for where, i in sizes]
            ctx.layouts = layouts([results[i] for i in diffs])
            outputs = results[:count]
            ctx.mark_non_differentiable(
                *[outputs[i] for i in plain if isinstance(outputs[i], torch.Tensor)]
            )
            return outputs

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            saved = ctx.saved_tensors
            if ctx.kept is not None:
                saved = [laid_out(*pair) for pair in zip(saved, ctx.kept, strict=True)]
            tangents = [gradients[i] for i in diffs]
            program = backward
            if any(map(is_many, tangents)):
                program = by_operations
            else:
                tangents = [laid_out(*pair) for pair in zip(tangents, ctx.layouts, strict=True)]
            args = [*saved, *ctx.sizes, *tangents]
            del saved
            ctx.maybe_clear_saved_tensors()  # unless retain_graph: the program frees what it used
            if torch.is_grad_enabled():  # create_graph=True
                refuse_transforms(tangents)
                again: Callable[..., Any] = OnceDifferentiable.apply
                return again(without_autocast(program), *args)
            return tuple(without_autocast(program)(args))

    return CompiledFunction


def one_by_one(module: fx.GraphModule) -> Compiled:
    """Return a function that runs a graph by calls of torch, on any tensors that torch takes."""
    return lambda args: tuple(OneByOne(module).run(*args))


class OneByOne(fx.Interpreter):
    """Runs a graph once, on tensors that may be laid out otherwise than the graph says.

    What it views may have to be copied then.
    """

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Call an operation."""
        if target in (aten.view.default, aten._unsafe_view.default):
            target = torch.reshape
        return super().call_function(target, args, kwargs)


def is_many(gradient: Any) -> bool:
    """Whether a gradient is not one plain tensor: wrapped for a level of vmap, or a subclass."""
    functorch = torch._C._functorch
    return (
        type(gradient) is not torch.Tensor
        or functorch.is_legacy_batchedtensor(gradient)
        or functorch.is_functorch_wrapped_tensor(gradient)
    )


def packed() -> bool:
    """Whether hooks of the user's are given the tensors that are saved now."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None


def without_autocast(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs with autocast off: the casts are in the graph already."""
    if not torch.is_autocast_enabled("cpu"):
        return function

    def call(*args: Any) -> Any:
        with torch.autocast("cpu", enabled=False):
            return function(*args)

    return call


def refuse_transforms(gradients: Sequence[Any]) -> None:
    """Raise RuntimeError if gradients that are to have gradients are in a torch.func transform."""
    if any(map(torch._C._functorch.is_functorch_wrapped_tensor, gradients)):
        raise RuntimeError(TWICE)


TWICE = (
    "tc does not differentiate a compiled function twice. Call tc.disable on the part whose second "
    "derivative you need, or compile it with backend='eager'."
)


class OnceDifferentiable(torch.autograd.Function):
    """A compiled backward whose own gradients are asked for: they are refused, not left out."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Any], *args: Any) -> Any:
        """Run the compiled backward."""
        return tuple(function(list(args)))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Refuse."""
        raise RuntimeError(TWICE)


def layouts(tensors: Sequence[torch.Tensor]) -> list[Layout]:
    """Return how tensors are laid out."""
    return [(tensor.stride(), tensor.dtype) for tensor in tensors]


def laid_out(tensor: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Return a tensor in the layout that backward was compiled for."""
    stride, dtype = layout
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if (
        tensor.stride() == stride
        and tensor.dtype == dtype
        and not (tensor.is_neg() or tensor.is_conj() or tensor._is_zerotensor())
    ):
        return tensor
    result = torch.empty_strided(tensor.shape, stride, dtype=dtype, device=tensor.device)
    return result.copy_(tensor)
