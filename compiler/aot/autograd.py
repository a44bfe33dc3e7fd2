"""Runs a compiled forward and backward as one node of eager's autograd graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch._C._dynamo import guards as _c
from torch.autograd.function import BackwardCFunction

from tc.compiler.aot.artifact import Fresh, Output, SameInput, TrainingContract, aten
from tc.compiler.aot.double_backward import Rerun
from tc.compiler.aot.layouts import dim_key
from tc.compiler.aot.wrap import Compiled, wrap, wrap_backward, wrap_contract
from tc.compiler.core import levels
from tc.compiler.core.frozen_graph import ADDRESSING
from tc.compiler.core.memory import share_storage

if TYPE_CHECKING:
    from tc.compiler.aot.training import Training

hooks_of_saved = torch._C._autograd._top_saved_tensors_default_hooks
EMPTY = torch.empty(0, device="cpu")
keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph
TensorGuards: Any = getattr(_c, "TensorGuards", None)
is_batched = torch._C._functorch.is_legacy_batchedtensor
is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor


def wrap_training(
    graphs: Training,
    forward: Compiled,
    backward: Compiled | None,
    by_operations: Compiled | None = None,
    draws_as_eager: bool = True,
) -> Callable[..., list[Any]]:
    """Return a function from the captured graph's inputs to its outputs that supports autograd.

    Args:
        graphs: the graphs that were compiled.
        forward: runs ``graphs.forward``; takes a list, returns the user's and the saved values.
        backward: runs ``graphs.backward``; None if there is none.
        by_operations: runs backward by calls of torch, for gradients that are batched by vmap or of
            a tensor subclass, and if backward is itself traced; `one_by_one` if omitted.
        draws_as_eager: whether forward draws the same random numbers as the captured graph.
    """
    if graphs.backward is None or backward is None:
        return wrap(graphs.forward, torch.no_grad()(forward))
    by_operations = by_operations or one_by_one(graphs.backward.module)
    eager = graphs.forward.eager
    return wrap_training_contract(
        graphs.contract, eager, forward, backward, by_operations, draws_as_eager
    )


def wrap_training_contract(
    contract: TrainingContract,
    eager: Callable[..., Any] | None,
    forward: Compiled,
    backward: Compiled,
    by_operations: Compiled,
    draws_as_eager: bool = True,
) -> Callable[..., list[Any]]:
    """Do as `wrap_training`, with only the contract of the graphs.

    ``eager`` runs in their place.
    """
    rerun = None
    if not contract.again.by_operations:
        rerun = Rerun(contract, eager, draws_as_eager)
    function = autograd_function(contract, forward, backward, by_operations, rerun)
    # Bypasses Function.apply, whose checks matter only under functorch's transforms.
    apply: Callable[..., Any] = super(torch.autograd.Function, function).apply  # type: ignore[misc]

    unconnected = contract.unconnected

    def call(args: list[Any]) -> tuple[Any, ...]:
        for i in unconnected:
            args[i] = args[i].detach()
        result: tuple[Any, ...] = apply(*args)
        return result

    return wrap_contract(contract.forward, call, eager)


def autograd_function(
    contract: TrainingContract,
    forward: Compiled,
    backward: Compiled,
    by_operations: Compiled,
    rerun: Rerun | None = None,
) -> type[torch.autograd.Function]:
    """Return the `torch.autograd.Function` of one graph.

    Autograd checks saved tensors: a write to one before backward is an error there, as in eager.
    For the arguments see `wrap_training`; ``rerun`` computes differentiable gradients, and if it is
    omitted the operations of backward do.
    """
    run_forward = _forward_of(contract, forward, rerun)
    run_backward = _backward_of(contract, backward, by_operations, rerun)

    class CompiledFunction(torch.autograd.Function):
        """A compiled graph in eager's autograd graph."""

        forward: Any = staticmethod(run_forward)
        backward: Any = staticmethod(run_backward)

        @staticmethod
        def _compiled_autograd_key(ctx: Any) -> tuple[int]:
            """Have PyTorch record calls of `by_operations` as they are, before it traces backward.

            Compiled autograd asks each node for this key; PyTorch's compiler is loaded then.
            """
            allow: Any = torch.compiler.allow_in_graph
            allow(by_operations)
            return (ctx._autograd_function_id,)

    return CompiledFunction


def _forward_of(
    contract: TrainingContract, forward: Compiled, rerun: Rerun | None
) -> Callable[..., Any]:
    """Return the function that runs forward and saves values for backward."""
    count, places = contract.returned, contract.saved_from
    tensors, sizes = places[: contract.saved_tensors], places[contract.saved_tensors :]
    diffs, watched = contract.differentiable, contract.watched
    plain = tuple(i for i in range(count) if i not in diffs)
    strided = tuple(zip(diffs, contract.strided, strict=True))
    keep = None if rerun is None or rerun.keeps_nothing else rerun.keep

    def run_forward(ctx: Any, *args: Any) -> Any:
        if keep is not None:
            ctx.again = keep(args)
        results = forward(list(args))
        kept: Sequence[Any] = ()
        ctx.kept, ctx.sizes = None, ()
        if tensors:
            kept = [args[i] if where == "input" else results[i] for where, i in tensors]
            ctx.save_for_backward(*kept)
            if hooks_of_saved(False) is not None:
                ctx.kept = layouts(kept)
        if sizes:
            ctx.sizes = [args[i] if where == "input" else results[i] for where, i in sizes]
        ctx.strides = [results[i].stride() if own else None for i, own in strided]
        ctx.set_materialize_grads(False)
        if len(diffs) > 1:
            ctx.shapes = [results[i].shape for i in diffs]
        outputs = [
            on_its_own(value, kept) if isinstance(value, torch.Tensor) and value._is_view()
            else value for value in results[:count]
        ]  # fmt: skip
        if watched:
            ctx.watched = [
                writes_of(args[i] if where == "input" else outputs[i]) for where, i in watched
            ]
        if plain:
            ctx.mark_non_differentiable(
                *[outputs[i] for i in plain if isinstance(outputs[i], torch.Tensor)]
            )
        return tuple(outputs)

    return run_forward


def _backward_of(
    contract: TrainingContract, backward: Compiled, by_operations: Compiled, rerun: Rerun | None
) -> Callable[..., Any]:
    """Return the function that runs backward on the saved values."""
    plan, watched = contract.gradients, contract.watched
    whole, in_parts = (wrap_backward(plan, run) for run in (backward, by_operations))
    dtypes: tuple[torch.dtype, ...] = tuple(getattr(torch, name) for name in contract.dtypes)
    saves = contract.saved_tensors > 0
    as_before = SeenGradients()
    keeps = rerun is not None and not rerun.keeps_nothing

    def run_backward(ctx: Any, *gradients: Any) -> Any:
        if not isinstance(ctx, BackwardCFunction):  # a compiler's: it traces backward
            return gradients_by(traced_gradients, contract, ctx, gradients)
        return engine_calls(ctx, gradients)

    def engine_calls(ctx: Any, gradients: Sequence[Any]) -> Any:
        return gradients_by(gradients_of, contract, ctx, gradients)

    def traced_gradients(ctx: Any, tangents: list[Any]) -> Sequence[Any]:
        tangents = list(map(traced_layout, tangents, ctx.strides, dtypes))
        return traced(ctx, tangents, plan, by_operations)

    def gradients_of(ctx: Any, tangents: list[Any]) -> Sequence[Any]:
        if watched and any(counter._version != count for counter, count in ctx.watched):
            raise RuntimeError(WRITTEN)
        # as in eager, a graph that saves nothing can run backward again
        saved = ctx.saved_tensors if saves else ()
        if ctx.kept is not None:
            saved = [laid_out(t, *layout) for t, layout in zip(saved, ctx.kept, strict=True)]
        program: Callable[[list[Any]], Sequence[Any]] = whole
        if not as_before(tangents, ctx.strides):
            if any(map(is_many, tangents)):
                program = in_parts
            else:
                given, tangents = tangents, list(map(laid_out, tangents, ctx.strides, dtypes))
                as_before.remember(given, tangents, ctx.strides)
        if torch.is_grad_enabled():  # create_graph=True
            if rerun is not None:
                return rerun.gradients(ctx.again if keeps else None, saved, tangents)
            program = in_parts
        args = [*saved, *ctx.sizes, *tangents]
        del saved
        if saves:
            ctx.maybe_clear_saved_tensors()  # unless retain_graph is set, the program frees them
            if keeps and not keeps_graph():
                ctx.again = None
        results: Sequence[Any] = without_autocast(program)(args)
        return results

    # The engine may call it in a region of PyTorch's compiler: a whole training step.
    levels.never_traced(engine_calls)
    return run_backward


class SeenGradients:
    """Gradients of outputs that lay as backward was compiled for, and were plain tensors.

    Torch's guards compare type, dispatch keys, dtype, device, sizes and strides in one call, where
    `is_many` and `laid_out` ask each tensor ten questions.
    """

    #: after so many changes of layouts none are remembered any more
    MOST = 8

    def __init__(self) -> None:
        self.seen: tuple[list[Any], Callable[..., bool]] | None = None
        self.changes = 0

    def __call__(self, tangents: Sequence[Any], strides: list[Any]) -> bool:
        """Return whether gradients are as those that are remembered."""
        seen = self.seen  # once: another thread may remember others meanwhile
        return seen is not None and strides == seen[0] and seen[1](*tangents)

    def remember(self, given: Sequence[Any], taken: Sequence[Any], strides: list[Any]) -> None:
        """Remember gradients, if they were taken as they were given."""
        same = bool(given) and all(one is other for one, other in zip(given, taken, strict=True))
        if TensorGuards is None or not same or self.changes == self.MOST:
            return
        self.changes += 1
        guards = TensorGuards(*given, dynamic_dims_sizes=None, dynamic_dims_strides=None)
        self.seen = list(strides), guards.check


def gradients_by(
    find: Callable[[Any, list[Any]], Sequence[Any]],
    contract: TrainingContract,
    ctx: Any,
    gradients: Sequence[Any],
) -> tuple[Any, ...]:
    """Return gradients of inputs, zeros in the place of gradients of outputs that are not used."""
    diffs = contract.differentiable
    tangents = [gradients[i] for i in diffs]
    missing = [at for at, tangent in enumerate(tangents) if tangent is None]
    if len(missing) == len(diffs):
        return (None,) * len(contract.gradients)
    for at in missing:
        dtype: torch.dtype = getattr(torch, contract.dtypes[at])
        tangents[at] = torch.zeros(ctx.shapes[at], dtype=dtype, device=contract.devices[at])
    found = find(ctx, tangents)
    if missing:
        undefined = contract.undefined(missing)
        found = [None if i in undefined else value for i, value in enumerate(found)]
    return tuple(found)


WRITTEN = (
    "one of the variables needed for gradient computation has been modified by an inplace "
    "operation: an input or output of a compiled function was written to between its call and its "
    "backward. (The compiled backward does not use it, but eager's would.)"
)


def writes_of(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return a tensor's version counter, which keeps none of its memory alive, and its count."""
    counter = tensor.detach()
    if counter.is_inference():
        return EMPTY, 0
    counter.data = EMPTY if tensor.dtype == EMPTY.dtype else EMPTY.to(tensor.dtype)
    return counter, counter._version


def on_its_own(value: torch.Tensor, kept: Sequence[Any]) -> torch.Tensor:
    """Return a view as a writable tensor: autograd forbids writes to views made in a Function.

    A view of memory that is saved for backward stays a view: a write to it has to be an error.
    """
    if any(isinstance(t, torch.Tensor) and share_storage(t, value) for t in kept):
        return value
    result: torch.Tensor = aten._unsafe_view.default(value, value.shape)
    strides = value.stride()
    if result.stride() != strides:  # it has its own for dimensions of size one
        result.as_strided_(value.shape, strides)
    return result


def one_by_one(module: fx.GraphModule) -> Compiled:
    """Return a function that runs a graph by calls of torch, on any tensors that torch supports."""
    return lambda args: tuple(OneByOne(module).run(*args))


def traced(
    ctx: Any, tangents: Sequence[Any], plan: Sequence[Output], by_operations: Compiled
) -> tuple[Any, ...]:
    """Return backward's result where its calls are traced (torch's compiled autograd)."""
    args = [*ctx.saved_tensors, *ctx.sizes, *tangents]
    results = by_operations(args)
    gradients = []
    for output in plan:
        if isinstance(output, Fresh):
            gradients.append(results[output.index])
        else:
            gradients.append(args[output.index] if isinstance(output, SameInput) else None)
    return tuple(gradients)


def traced_layout(
    tensor: torch.Tensor, stride: tuple[int, ...] | None, dtype: torch.dtype
) -> torch.Tensor:
    """Do as `laid_out`, by calls that compilers can record."""
    tensor = tensor.resolve_neg().resolve_conj()
    if stride is None:
        return tensor.contiguous().to(dtype)
    if tensor.stride() == stride and tensor.dtype == dtype:
        return tensor
    result = torch.empty_strided(tensor.shape, stride, dtype=dtype, device=tensor.device)
    return result.copy_(tensor)


class OneByOne(fx.Interpreter):
    """Runs a graph once, on tensors whose layouts may differ from those in the graph.

    Views may then have to become copies.
    """

    def run_node(self, n: fx.Node) -> Any:
        """Run one operation; positions in memory are valid only for the layouts in the graph.

        Raises:
            RuntimeError: a layout differs, and the operation uses positions in memory.
        """
        if n.target in ADDRESSING:
            strides = self.env[n.args[0]].stride()  # type: ignore[index]
            if list(map(dim_key, strides)) != list(map(dim_key, n.args[0].meta["val"].stride())):  # type: ignore[union-attr]
                raise RuntimeError(
                    f"the backward of a compiled function calls {n.target}, which does not support "
                    "batched gradients (vmap). Compile the function with backend='eager'."
                )
        return super().run_node(n)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Call an operation."""
        if target in (aten.view.default, aten._unsafe_view.default):
            target = torch.reshape
        return super().call_function(target, args, kwargs)


def is_many(gradient: Any) -> bool:
    """Return whether a gradient is no plain tensor: batched by vmap, or of a subclass."""
    return type(gradient) is not torch.Tensor or is_batched(gradient) or is_wrapped(gradient)


def without_autocast(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs with autocast off: the casts are in the graph already."""
    if not torch.is_autocast_enabled("cpu"):
        return function

    def call(*args: Any) -> Any:
        with torch.autocast("cpu", enabled=False):
            return function(*args)

    return call


def layouts(tensors: Sequence[torch.Tensor]) -> list[tuple[tuple[int, ...], torch.dtype]]:
    """Return the layouts of tensors."""
    return [(tensor.stride(), tensor.dtype) for tensor in tensors]


def laid_out(
    tensor: torch.Tensor, stride: tuple[int, ...] | None, dtype: torch.dtype
) -> torch.Tensor:
    """Return a tensor in the layout that backward was compiled for; contiguous if that is None."""
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if stride is None:
        tensor = tensor.contiguous()
        stride = tensor.stride()
    if (
        tensor.stride() == stride
        and tensor.dtype == dtype
        and not (tensor.is_neg() or tensor.is_conj() or tensor._is_zerotensor())
    ):
        return tensor
    result = torch.empty_strided(tensor.shape, stride, dtype=dtype, device=tensor.device)
    return result.copy_(tensor)
