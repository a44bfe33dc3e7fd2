"""Runs a compiled forward and backward as one node of eager's autograd graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch._C._dynamo import guards as _c
from torch.autograd.function import BackwardCFunction

from tc.compiler.aot.artifact import Contract, Fresh, Output, SameInput, TrainingContract, aten
from tc.compiler.aot.double_backward import ENDED, Rerun
from tc.compiler.aot.layouts import dim_key
from tc.compiler.aot.wrap import Compiled, wrap, wrap_backward, wrap_contract
from tc.compiler.core import levels
from tc.compiler.core.frozen_graph import ADDRESSING
from tc.compiler.core.memory import share_storage

if TYPE_CHECKING:
    from tc.compiler.aot.training import Training

#: finds what runs backward without some tangents, and its contract (see `undefined`), by their
#: positions; what runs takes None for those that it does not use. None: there is no such program
Partial = Callable[[tuple[int, ...]], tuple[Contract, Callable[[list[Any]], Sequence[Any]]] | None]
hooks_of_saved = torch._C._autograd._top_saved_tensors_default_hooks
EMPTY = torch.empty(0, device="cpu")
is_grad_enabled = torch.is_grad_enabled
is_tensor = torch.is_tensor
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
    partial: Partial | None = None,
) -> Callable[..., list[Any]]:
    """Return a function from the captured graph's inputs to its outputs that supports autograd.

    Args:
        graphs: the graphs that were compiled.
        forward: runs ``graphs.forward``; takes a list, returns the user's and the saved values.
        backward: runs ``graphs.backward``; None if there is none.
        by_operations: runs backward by calls of torch, for gradients that are batched by vmap or of
            a tensor subclass, and if backward is itself traced; `one_by_one` if omitted.
        draws_as_eager: whether forward draws the same random numbers as the captured graph.
        partial: finds backward for calls where some outputs have no gradient; if omitted they get
            zeros.
    """
    if graphs.backward is None or backward is None:
        return wrap(graphs.forward, torch.no_grad()(forward))
    by_operations = by_operations or one_by_one(graphs.backward.module)
    eager = graphs.forward.eager
    return wrap_training_contract(
        graphs.contract, eager, forward, backward, by_operations, draws_as_eager, partial
    )


def wrap_training_contract(
    contract: TrainingContract,
    eager: Callable[..., Any] | None,
    forward: Compiled,
    backward: Compiled,
    by_operations: Compiled,
    draws_as_eager: bool = True,
    partial: Partial | None = None,
) -> Callable[..., list[Any]]:
    """Do as `wrap_training`, with only the contract of the graphs.

    ``eager`` runs in their place.
    """
    rerun = None
    if not contract.again.by_operations:
        rerun = Rerun(contract, eager, draws_as_eager)
    function = autograd_function(contract, forward, backward, by_operations, rerun, partial)
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
    partial: Partial | None = None,
) -> type[torch.autograd.Function]:
    """Return the `torch.autograd.Function` of one graph.

    Autograd checks saved tensors: a write to one before backward is an error there, as in eager.
    For the arguments see `wrap_training`; ``rerun`` computes differentiable gradients, and if it is
    omitted the operations of backward do.
    """
    run_forward = _forward_of(contract, forward, rerun)
    runs = Backward(contract, backward, by_operations, rerun, partial)
    run_backward = _backward_of(contract, by_operations, runs.engine_calls)

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
    """Return the function that runs forward and saves values for backward.

    As the wrapper around it, it is Python source that is generated for each graph.
    """
    names: dict[str, Any] = {**globals(), "forward": forward}
    given = [f"a{i}" for i in range(len(contract.forward.tensors))]
    made = [f"r{i}" for i in range(max((contract.returned, *_outputs_saved(contract))))]

    def at(place: tuple[str, int]) -> str:
        where, i = place
        return (given if where == "input" else made)[i]

    lines = []
    if rerun is not None and not rerun.keeps_nothing:
        names["keep"] = rerun.keep
        lines.append(f"ctx.again = keep({_tuple(given)})")
    lines += [
        f"{_tuple(made)} = forward([{', '.join(given)}])[:{len(made)}]",  # Python bounds a *
        "ctx.set_materialize_grads(False)",
    ]
    lines += _saving(contract, [at(place) for place in contract.saved_from])
    diffs = contract.differentiable
    strides = [f"{made[i]}.stride()" if own else "None"
               for i, own in zip(diffs, contract.strided, strict=True)]  # fmt: skip
    lines.append(f"ctx.strides = [{', '.join(strides)}]")
    if len(diffs) > 1:
        lines.append(f"ctx.shapes = {_tuple([f'{made[i]}.shape' for i in diffs])}")
    outputs = made[: contract.returned]
    for i, name in enumerate(outputs):
        tensor = "" if i in diffs else f"isinstance({name}, torch.Tensor) and "
        lines.append(f"if {tensor}{name}._is_view(): {name} = on_its_own({name}, kept)")
    if contract.watched:
        counters = [f"writes_of({at(place)})" for place in contract.watched]
        lines.append(f"ctx.watched = {_tuple(counters)}")
    if contract.run_once:
        lines.append("ctx.ended = ()")
    plain = [name for i, name in enumerate(outputs) if i not in diffs]
    if plain:
        lines.append(f"ctx.mark_non_differentiable(*filter(is_tensor, {_tuple(plain)}))")
    lines.append(f"return {_tuple(outputs)}")
    body = "".join(f"    {line}\n" for line in lines)
    source = f"def run_forward(ctx, {', '.join(given)}):\n{body}"
    exec(compile(source, "<tc forward wrapper>", "exec"), names)
    run_forward: Callable[..., Any] = names["run_forward"]
    return run_forward


def _outputs_saved(contract: TrainingContract) -> list[int]:
    """Return how many outputs of forward there are at least, by each that is saved."""
    return [i + 1 for where, i in contract.saved_from if where == "output"]


def _saving(contract: TrainingContract, saved: list[str]) -> list[str]:
    """Emit the lines that save values for backward."""
    tensors, sizes = saved[: contract.saved_tensors], saved[contract.saved_tensors :]
    lines = [f"kept = {_tuple(tensors)}", f"ctx.sizes = {_tuple(sizes)}"]
    if tensors:
        lines += [
            "ctx.save_for_backward(*kept)",
            "ctx.kept = None if hooks_of_saved(False) is None else layouts(kept)",
        ]
    return lines


def _tuple(names: Iterable[str]) -> str:
    return f"({''.join(f'{name}, ' for name in names)})"


class Backward:
    """Runs backward on the values that a call saved.

    For the arguments see `wrap_training`; ``rerun`` is as in `autograd_function`.
    """

    def __init__(
        self,
        contract: TrainingContract,
        backward: Compiled,
        by_operations: Compiled,
        rerun: Rerun | None,
        partial: Partial | None,
    ) -> None:
        self.contract, self.by_operations = contract, by_operations
        self.rerun, self.partial = rerun, partial
        self.whole = wrap_backward(contract.gradients, backward)
        self.in_parts = wrap_backward(contract.gradients, by_operations)
        self.dtypes = tuple(getattr(torch, name) for name in contract.dtypes)
        self.saves, self.watched = contract.saved_tensors > 0, bool(contract.watched)
        self.keeps = rerun is not None and not rerun.keeps_nothing
        self.as_before = SeenGradients(contract.differentiable, self.dtypes)

    def engine_calls(self, ctx: Any, gradients: Sequence[Any]) -> tuple[Any, ...]:
        """Return gradients where eager's engine asks for them.

        Raises:
            RuntimeError: eager's graph would have been freed.
        """
        if self.contract.run_once:
            self._end(ctx, gradients)
        taken = self.as_before.taken(gradients, ctx.strides)
        if taken is not None:
            return tuple(self._run(ctx, taken, self.whole))
        tangents, missing = tangents_of(self.contract, gradients)
        if len(missing) == len(tangents):
            return (None,) * len(self.contract.gradients)
        many = any(is_many(tangent) for tangent in tangents if tangent is not None)
        if missing:
            found = self._without(ctx, tangents, missing, many)
            return only_defined(self.contract, missing, found)
        if many:
            return tuple(self._run(ctx, tangents, self.in_parts))
        return tuple(self._run(ctx, self.as_before.remember(tangents, ctx.strides), self.whole))

    def _end(self, ctx: Any, gradients: Sequence[Any]) -> None:
        """Refuse a second gradient for an output, unless the graph is retained."""
        given = [i for i in self.contract.run_once if gradients[i] is not None]
        if not {*given}.isdisjoint(ctx.ended):
            raise RuntimeError(ENDED)
        if not keeps_graph():
            ctx.ended = (*ctx.ended, *given)

    def _without(
        self, ctx: Any, tangents: list[Any], missing: tuple[int, ...], many: bool
    ) -> Sequence[Any]:
        """Return gradients where some outputs have none, see `undefined`."""
        again = is_grad_enabled()  # create_graph=True
        found = None if many or again or self.partial is None else self.partial(missing)
        if found is not None:
            own, program = found
            first = len(own.tensors) - len(tangents)
            taken = [at for at in missing if own.tensors[first + at]]
            with_zeros(self.contract, ctx, tangents, taken)
            return self._run(ctx, self._laid_out(ctx, tangents), program)
        if self.rerun is not None and self.rerun.can_run and not many:
            with torch.enable_grad():
                results = self._run(ctx, self._laid_out(ctx, tangents), self.whole)
            return results if again else [None if one is None else one.detach() for one in results]
        with_zeros(self.contract, ctx, tangents, missing)
        if many:
            return self._run(ctx, tangents, self.in_parts)
        return self._run(ctx, self._laid_out(ctx, tangents), self.whole)

    def _laid_out(self, ctx: Any, tangents: list[Any]) -> list[Any]:
        return [
            None if one is None else laid_out(one, *layout)
            for one, *layout in zip(tangents, ctx.strides, self.dtypes, strict=True)
        ]

    def _run(
        self, ctx: Any, tangents: list[Any], program: Callable[[list[Any]], Sequence[Any]]
    ) -> Sequence[Any]:
        """Run a program on saved values and tangents, or the graph again for double backward."""
        if self.watched and any(counter._version != count for counter, count in ctx.watched):
            raise RuntimeError(WRITTEN)
        saved = ctx.saved_tensors if self.saves else ()
        if self.saves and ctx.kept is not None:
            saved = [laid_out(t, *layout) for t, layout in zip(saved, ctx.kept, strict=True)]
        if is_grad_enabled():
            if self.rerun is not None:
                return self.rerun.gradients(ctx.again if self.keeps else None, saved, tangents)
            program = self.in_parts
        args = [*saved, *ctx.sizes, *tangents]
        del saved, tangents
        if self.saves:
            ctx.maybe_clear_saved_tensors()  # unless retain_graph is set, the program frees them
            if self.keeps and not keeps_graph():
                ctx.again = None
        results: Sequence[Any] = without_autocast(program)(args)
        return results


# The engine may call it in a region of PyTorch's compiler: a whole training step.
levels.never_traced(Backward.engine_calls)


def _backward_of(
    contract: TrainingContract, by_operations: Compiled, engine_calls: Callable[..., Any]
) -> Callable[..., Any]:
    """Return the function that autograd calls: eager's engine, or a compiler that traces it."""

    def run_backward(ctx: Any, *gradients: Any) -> Any:
        if isinstance(ctx, BackwardCFunction):
            return engine_calls(ctx, gradients)
        tangents, missing = tangents_of(contract, gradients)
        if len(missing) == len(tangents):
            return (None,) * len(contract.gradients)
        with_zeros(contract, ctx, tangents, missing)
        tangents = list(map(traced_layout, tangents, ctx.strides, dtypes))
        found = traced(ctx, tangents, contract.gradients, by_operations)
        return only_defined(contract, missing, found) if missing else found

    dtypes = tuple(getattr(torch, name) for name in contract.dtypes)
    return run_backward


def tangents_of(
    contract: TrainingContract, gradients: Sequence[Any]
) -> tuple[list[Any], tuple[int, ...]]:
    """Return the gradients of differentiable outputs, and which of them are undefined."""
    tangents = [gradients[i] for i in contract.differentiable]
    return tangents, tuple(at for at, tangent in enumerate(tangents) if tangent is None)


class SeenGradients:
    """How gradients of outputs lay, and how they were laid out as backward was compiled for.

    Torch's guards compare type, dispatch keys, dtype, device, sizes and strides in one call, where
    `is_many` and `laid_out` ask each tensor ten questions.

    Args:
        places: where gradients of differentiable outputs are among those of all outputs.
        dtypes: of the gradients that backward takes.
    """

    #: after so many changes of layouts none are remembered any more
    MOST = 8

    def __init__(self, places: Sequence[int], dtypes: Sequence[torch.dtype]) -> None:
        self._places, self._dtypes = places, dtypes
        #: the strides that backward takes; whether gradients lie as those that were seen; what
        #: lays each of them out, None if nothing has to
        self._seen: tuple[list[Any], Callable[..., bool], list[Any] | None] | None = None
        self._changes = 0

    def taken(self, gradients: Sequence[Any], strides: list[Any]) -> list[Any] | None:
        """Return gradients as backward takes them, if they lie as those that are remembered."""
        seen = self._seen  # once: another thread may remember others meanwhile
        if seen is None or strides != seen[0]:
            return None
        given = [gradients[i] for i in self._places]
        if not seen[1](*given):
            return None
        ways = seen[2]
        if ways is None:
            return given
        return [one if way is None else way(one) for one, way in zip(given, ways, strict=True)]

    def remember(self, given: list[Any], strides: list[Any]) -> list[Any]:
        """Return gradients, plain tensors, as backward takes them, and remember how they lay."""
        taken = list(map(laid_out, given, strides, self._dtypes))
        if TensorGuards is not None and given and self._changes < self.MOST:
            self._changes += 1
            guards = TensorGuards(*given, dynamic_dims_sizes=None, dynamic_dims_strides=None)
            ways = list(map(_way, given, taken, strides, self._dtypes))
            self._seen = list(strides), guards.check, ways if any(ways) else None
        return taken


def _way(
    given: torch.Tensor, taken: torch.Tensor, stride: Any, dtype: torch.dtype
) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """Return what lays out gradients that lie as one that was laid out; None if nothing has to."""
    if given is taken:
        return None
    plain = given.layout == torch.strided and not (given.is_neg() or given._is_zerotensor())
    if plain and given.dtype == dtype and given.contiguous().stride() == stride:
        return torch.Tensor.contiguous  # one call in place of two: `sum` gives such gradients
    return lambda gradient: laid_out(gradient, stride, dtype)


def with_zeros(
    contract: TrainingContract, ctx: Any, tangents: list[Any], missing: Sequence[int]
) -> None:
    """Put zeros in the place of gradients that are undefined."""
    for at in missing:
        dtype: torch.dtype = getattr(torch, contract.dtypes[at])
        tangents[at] = torch.zeros(ctx.shapes[at], dtype=dtype, device=contract.devices[at])


def only_defined(
    contract: TrainingContract, missing: Sequence[int], found: Sequence[Any]
) -> tuple[Any, ...]:
    """Return gradients of inputs, None where they lead from undefined ones alone, as in eager."""
    undefined = contract.undefined(missing)
    return tuple(None if i in undefined else value for i, value in enumerate(found))


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
    empty = EMPTY if tensor.dtype == EMPTY.dtype else EMPTY.to(tensor.dtype)
    if not torch._has_compatible_shallow_copy_type(counter, empty):
        empty = empty.to(tensor.device)  # a device such as "meta" takes no memory of another
    counter.data = empty
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
