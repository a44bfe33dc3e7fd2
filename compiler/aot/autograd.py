"""Runs a compiled forward and backward as one node of eager's autograd graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tc.compiler.aot.training import Training
from tc.compiler.aot.wrap import Compiled, wrap, wrap_backward


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
    function = autograd_function(graphs, forward, wrap_backward(graphs.backward, backward))
    # Past Function.apply, which looks at what only matters under functorch's transforms.
    apply: Callable[..., Any] = super(torch.autograd.Function, function).apply  # type: ignore[misc]

    def call(args: list[Any]) -> tuple[Any, ...]:
        result: tuple[Any, ...] = apply(*args)
        return result

    return wrap(graphs.forward, call)


def autograd_function(
    graphs: Training, forward: Compiled, backward: Callable[[list[Any]], list[Any]]
) -> type[torch.autograd.Function]:
    """Return the autograd function of one graph.

    Saved tensors are checked by autograd: one that was written to before backward is an error
    there, as in eager.
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
            ctx.save_for_backward(
                *[args[i] if where == "input" else results[i] for where, i in tensors]
            )
            ctx.sizes = [args[i] if where == "input" else results[i] for where, i in sizes]
            ctx.strides = [results[i].stride() for i in diffs]
            outputs = results[:count]
            ctx.mark_non_differentiable(
                *[outputs[i] for i in plain if isinstance(outputs[i], torch.Tensor)]
            )
            return outputs

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            refuse_wrapped(gradients)
            tangents = [
                laid_out(gradients[i], stride) for i, stride in zip(diffs, ctx.strides, strict=True)
            ]
            args = [*ctx.saved_tensors, *ctx.sizes, *tangents]
            ctx.maybe_clear_saved_tensors()  # unless retain_graph: the program frees what it used
            if torch.is_grad_enabled():  # create_graph=True
                again: Callable[..., Any] = OnceDifferentiable.apply
                return again(without_autocast(backward), *args)
            return tuple(without_autocast(backward)(args))

    return CompiledFunction


def without_autocast(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs with autocast off: the casts are in the graph already."""
    if not torch.is_autocast_enabled("cpu"):
        return function

    def call(*args: Any) -> Any:
        with torch.autocast("cpu", enabled=False):
            return function(*args)

    return call


def refuse_wrapped(gradients: Sequence[Any]) -> None:
    """Raise RuntimeError if gradients are wrapped for a level of a torch.func transform."""
    if torch._C._functorch.peek_interpreter_stack() is None:
        return
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    if any(isinstance(g, torch.Tensor) and wrapped(g) for g in gradients):
        raise RuntimeError(
            "the backward of a compiled function is called inside a transform of torch.func "
            "(vmap, grad, vjp), which it cannot follow. Compile what calls the transform, or "
            "compile the function with backend='eager'."
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
        raise RuntimeError(
            "tc does not differentiate a compiled function twice. Call tc.disable on the part "
            "whose second derivative you need, or compile it with backend='eager'."
        )


def laid_out(gradient: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    """Return a gradient in the layout backward was compiled for, which is the output's."""
    if gradient.stride() == stride and not gradient.is_neg() and not gradient.is_conj():
        return gradient
    result = torch.empty_strided(
        gradient.shape, stride, dtype=gradient.dtype, device=gradient.device
    )
    return result.copy_(gradient)
