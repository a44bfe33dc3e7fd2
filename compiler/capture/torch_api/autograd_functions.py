"""Traces torch.autograd.Function: ``apply`` becomes a node with a forward and a backward body."""

from __future__ import annotations

import operator
import types
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _functorch

from tc.compiler.capture import breaks
from tc.compiler.capture.scopes import Scope
from tc.compiler.capture.torch_api.modes import modes_kept
from tc.compiler.capture.torch_api.subgraphs import leaves, map_leaves, new_scope
from tc.compiler.capture.values.base import Args, Kwargs, LambdaValue, Raised, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import ListValue, TupleValue
from tc.compiler.capture.values.dicts import DictValue
from tc.compiler.capture.values.functions import FunctionValue
from tc.compiler.capture.values.lookup import type_lookup
from tc.compiler.capture.values.objects import ClassValue, ObjectValue
from tc.compiler.capture.values.sets import SetValue
from tc.compiler.capture.values.subclasses import SubclassValue, twin
from tc.compiler.capture.values.tensor import NodeValue, SymValue, TensorValue

if TYPE_CHECKING:
    from torch import fx

    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface


BASE: Any = torch.autograd.Function
_CACHED = "_tc_autograd_function"


Places = tuple[int, ...]
"""The outputs of a forward that it marked (as non-differentiable, say)."""


def apply_function(
    forward: Any,
    backward: Any,
    name: str,
    dirty: Places,
    non_differentiable: Places,
    *operands: Any,
) -> Any:
    """Run a captured autograd.Function and return the tuple of its outputs; called from graphs.

    Args:
        name: name of the user's class, from which autograd names its node (``ScaleBackward``).
    """
    function = getattr(forward, _CACHED, None)
    if function is None:
        function = _function_of(forward, backward, name, dirty, non_differentiable)
        object.__setattr__(forward, _CACHED, function)
    outputs = function.apply(*operands)
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _function_of(
    forward_body: Any,
    backward_body: Any,
    name: str,
    dirty: Places,
    non_differentiable: Places,
) -> Any:
    """Make an autograd.Function of two captured bodies.

    Sizes that forward returns come after its tensors; backward's body takes no gradients of them.
    """

    def forward(ctx: Any, *operands: Any) -> Any:
        outputs, saved = forward_body(*operands)
        ctx.numbers = [None if isinstance(s, torch.Tensor) else s for s in saved]
        ctx.save_for_backward(*[s for s in saved if isinstance(s, torch.Tensor)])
        ctx.mark_dirty(*[outputs[i] for i in dirty])
        ctx.mark_non_differentiable(*[outputs[i] for i in non_differentiable])
        ctx.differentiated = sum(isinstance(output, torch.Tensor) for output in outputs)
        return outputs

    def backward(ctx: Any, *gradients: Any) -> Any:
        tensors = iter(ctx.saved_tensors)
        saved = [next(tensors) if number is None else number for number in ctx.numbers]
        return backward_body(*gradients[: ctx.differentiated], *saved)

    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return types.new_class(name, (BASE,), exec_body=lambda body: body.update(members))


#: what may hold something else when backward runs
_MUTABLE = (ListValue, DictValue, SetValue, ObjectValue)


class ContextValue(Value):
    """The ``ctx`` of a forward or backward.

    Attributes:
        materializes: whether backward gets zeros in place of gradients that are not there.
        is_late: whether backward is traced, which runs when the caller has gone on.
    """

    noun = "the context of an autograd.Function"

    def __init__(self, name: str, needs: tuple[bool, ...]) -> None:
        self.name = name
        self.is_late = False
        self.start = self.next_creation_index()
        self.saved: list[Value] = []
        self.dirty: list[Value] = []
        self.non_differentiable: list[Value] = []
        self.materializes = True
        self.attributes: dict[str, Value] = {"needs_input_grad": ConstValue(needs)}

    def python_type(self) -> type:
        return torch.autograd.function.FunctionCtx

    def attr(self, t: Interpreter, name: str) -> Value:
        if name in self.attributes:
            self.check_read(self.attributes[name], f"ctx.{name}")
            return self.attributes[name]
        if name in ("saved_tensors", "saved_variables"):
            return t.values.new_tuple(self.saved)
        if name in ("save_for_backward", "mark_dirty", "mark_non_differentiable"):
            return LambdaValue(self._noting(name), f"ctx.{name}")
        # for forward-mode derivatives, where nothing is captured
        if name == "save_for_forward":
            return LambdaValue(lambda t, args, kwargs: ConstValue(None), f"ctx.{name}")
        if name == "set_materialize_grads":
            return LambdaValue(self._materialize, f"ctx.{name}")
        if hasattr(torch.autograd.function.BackwardCFunction, name):
            self.cannot(breaks.UNSUPPORTED_ATTR, f"ctx.{name}")
        return t.python.raise_(
            AttributeError, f"'FunctionCtx' object has no attribute '{name}'"
        )

    def check_read(self, found: Value, name: str) -> None:
        """Check that backward, where it is traced, finds in an object what it will find later.

        An object that forward made is trusted to stay what it is, and so are globals.

        Raises:
            GraphBreak: it does not: the object is the caller's, who may change it first.
        """
        is_outside = found.source is not None or found.creation_index < self.start
        if self.is_late and is_outside and isinstance(found, _MUTABLE):
            self.cannot(breaks.LATE_READ, f"{self.name}.backward reads {name}")
        for item in found.slots if isinstance(found, TupleValue) else ():
            if isinstance(item, Value):
                self.check_read(item, name)

    def _noting(self, name: str) -> Any:
        target = {"save_for_backward": "saved", "mark_dirty": "dirty"}.get(
            name, "non_differentiable"
        )

        def note(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
            setattr(self, target, list(args))
            return ConstValue(None)

        return note

    def _materialize(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        self.materializes = args[0].truth(t)
        return ConstValue(None)

    def set_attr(self, t: Interpreter, name: str, value: Value) -> None:
        self.attributes[name] = value

    def del_attr(self, t: Interpreter, name: str) -> None:
        self.attr(t, name)
        del self.attributes[name]


class ApplyValue(Value):
    """The ``apply`` of an autograd.Function."""

    noun = "the apply of an autograd.Function"

    def __init__(self, cls: ClassValue) -> None:
        self.cls = cls

    def python_type(self) -> type:
        return types.MethodType

    def describe(self) -> str:
        return f"{self.cls.obj.__name__}.apply"

    def call(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        return apply(t, self.cls, args, kwargs)

    def rebuild(self, r: ResidualInterface) -> None:
        r.push(self.cls)
        r.e.load_attr("apply")


@contextmanager
def without_grad() -> Iterator[None]:
    """Trace with gradients off, as autograd runs both methods; the graph records nothing."""
    before = torch.is_grad_enabled()
    torch._C._set_grad_enabled(False)
    try:
        yield
    finally:
        torch._C._set_grad_enabled(before)


@contextmanager
def _without_grad_in_graph(t: Interpreter) -> Iterator[None]:
    """Trace with gradients off; the graph switches them off around tensors that require them.

    Such a tensor is no argument: it comes from a closure or a module, or the body makes it.
    """
    enabled, graph = torch.is_grad_enabled(), t.output.graph
    last = next(iter(reversed(graph.nodes)), graph._root)
    with without_grad():
        yield
    made = []
    node = last.next
    while node is not graph._root:
        made += [node] if node.op != "placeholder" else []
        node = node.next
    if not enabled or not any(map(_has_gradient, made)):
        return
    switch = torch._C._set_grad_enabled
    with graph.inserting_before(made[0]):
        t.output.set_mode(switch, False)
    t.output.set_mode(switch, True)


def _has_gradient(node: fx.Node) -> bool:
    examples = [one.meta.get("example_value") for one in (node, *node.all_input_nodes)]
    return any(isinstance(one, torch.Tensor) and one.requires_grad for one in examples)


def _arguments_as_views(
    t: Interpreter, context: ContextValue, args: Args, result: Value
) -> Value:
    """Return forward's result; an argument in it becomes a view unless it was written to.

    Of an argument with a gradient it is a view that autograd knows nothing of.
    """

    def given(leaf: NodeValue) -> Value:
        same = any(leaf is arg for arg in args) and not any(
            leaf is one for one in context.dirty
        )
        if not same or not isinstance(leaf, TensorValue):
            return leaf
        if leaf.example.requires_grad:
            return t.output.call_torch("detach", [leaf], {}, method=True)
        return t.output.call_torch("view_as", [leaf, leaf], {}, method=True)

    return map_leaves(t, result, given)


def apply(t: Interpreter, cls: ClassValue, args: Args, kwargs: Kwargs) -> Value:
    """Trace ``cls.apply(*args)``."""
    flat = [arg for arg in args if isinstance(arg, TensorValue)]
    needs = tuple(isinstance(a, TensorValue) and a.example.requires_grad for a in args)
    context = ContextValue(cls.obj.__name__, needs)
    _check_levels(t, cls, flat)
    if not (torch.is_grad_enabled() and any(a.example.requires_grad for a in flat)):
        with _without_grad_in_graph(t):
            result = _forward(t, cls, context, args, kwargs)
        if context.dirty:  # eager counts each mark as a write, too
            t.output.counts_writes = False
        return _arguments_as_views(t, context, args, result)
    operands = [arg.node(t) for arg in flat]
    with new_scope(t) as scope:
        inner = [_inside(scope, arg) if arg in flat else arg for arg in args]
        with without_grad(), modes_kept(f"{cls.obj.__name__}.forward"):
            result = _forward(t, cls, context, inner, kwargs)
        results = _results(t, result)
        outputs = [one for one in results if isinstance(one, TensorValue)]
        if len(outputs) > 1 and not context.materializes:
            # Which of the gradients are None is known when backward runs; a single one is not.
            what = "ctx.set_materialize_grads(False) with several outputs"
            context.cannot(breaks.UNSUPPORTED_CALL, what)
        with new_scope(t) as backward:
            _backward(t, cls, context, results, flat, args, backward)
        saved = list(backward.lifted)
        sizes = [
            leaf
            for one in results
            for leaf in leaves(t, one)
            if isinstance(leaf, SymValue)
        ]
        used = tuple(output.node(t) for output in [*outputs, *sizes])
        scope.graph.output((used, tuple(saved)))
    operands += scope.lifted
    return _record(t, cls, context, scope, backward, operands, result, outputs, sizes)


def _check_levels(t: Interpreter, cls: ClassValue, operands: list[TensorValue]) -> None:
    """Check that transforms of torch.func go through forward and backward alone.

    Autograd calls the class's own ``jvp`` for tangents, and under `vmap` the class's own ``vmap``,
    unless the class asks for a rule made of its methods; where they are missing, it raises.

    Raises:
        GraphBreak: autograd would call one of the two.
    """
    levels = [level.key() for level in _functorch.get_interpreter_stack() or ()]
    batched = _functorch.TransformType.Vmap in levels
    batched = batched and not cls.attr(t, "generate_vmap_rule").truth(t)
    called = "vmap" if batched else "jvp"
    if batched or any(_has_tangent(operand.example) for operand in operands):
        detail = f"{cls.obj.__name__}.apply under a transform, which calls {called},"
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, detail)


def _has_tangent(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has a tangent at any level of torch.func, or at none."""
    with suppress(RuntimeError):  # a batch has no tangents of its own
        if torch._VF._unpack_dual(tensor, level=0)[1] is not None:
            return True
    is_wrapped = _functorch.is_functorch_wrapped_tensor(tensor)
    return is_wrapped and _has_tangent(_functorch.get_unwrapped(tensor))


def _inside(scope: Scope, arg: Value) -> Value:
    """Return an argument as forward gets it: autograd passes the caller's own tensors.

    It has the argument's example, so that `requires_grad`, `is_leaf` and the like are the same.
    """
    assert isinstance(arg, TensorValue)
    node = scope.placeholder("arg")
    node.meta["example_value"] = arg.example
    if isinstance(arg, SubclassValue):
        return twin(arg, node, arg.example)
    return TensorValue(node, arg.example)


def _forward(
    t: Interpreter, cls: ClassValue, context: ContextValue, args: Args, kwargs: Kwargs
) -> Value:
    forward = cls.attr(t, "forward")
    setup = type_lookup(cls.obj, "setup_context")
    if setup is type_lookup(
        torch.autograd.function._SingleLevelFunction, "setup_context"
    ):
        return forward.call(t, [context, *args], kwargs)
    result = forward.call(t, args, kwargs)
    setup = cls.attr(t, "setup_context")
    setup.call(t, [context, t.values.new_tuple(args), result], {})
    return result


def _results(t: Interpreter, result: Value) -> list[Value]:
    """Return what forward returns; backward gets a gradient of each, or None.

    Raises:
        GraphBreak: there are tensors in a container: autograd leaves them alone.
    """
    results = result.values(t) if isinstance(result, TupleValue) else [result]
    for one in results:
        inside = [] if isinstance(one, TensorValue) else leaves(t, one)
        if any(isinstance(leaf, TensorValue) for leaf in inside):
            raise breaks.GraphBreak(breaks.LEAKED_BODY, f"a tensor in {one.describe()}")
    return results


def _backward(
    t: Interpreter,
    cls: ClassValue,
    context: ContextValue,
    results: list[Value],
    flat: list[TensorValue],
    args: Args,
    scope: Scope,
) -> None:
    """Trace backward; its graph returns a gradient or None for each tensor argument.

    Raises:
        GraphBreak: it raises, which Python does only when gradients are computed, or returns what
            is no dense tensor.
    """
    gradients: list[Value] = []
    for output in results:
        if not isinstance(output, TensorValue):
            gradients.append(ConstValue(None))
            continue
        node = scope.placeholder("grad")
        with t.shapes.mode:
            example = torch.empty_like(output.example)
        node.meta["example_value"] = example
        gradients.append(TensorValue(node, example))
    writes = t.effects.outer_writes
    method = cls.attr(t, "backward")
    context.is_late = True
    for cell in method.closure if isinstance(method, FunctionValue) else ():
        context.check_read(cell.load(t), cell.name)
    with without_grad(), modes_kept(f"{cls.obj.__name__}.backward"):
        try:
            found = method.call(t, [context, *gradients], {})
        except Raised as raised:
            what = (
                f"{cls.obj.__name__}.backward, which raises {raised.value.describe()},"
            )
            context.cannot(breaks.UNSUPPORTED_CALL, what)
    if t.effects.outer_writes != writes:
        raise breaks.GraphBreak(breaks.BODY_EFFECT, f"{cls.obj.__name__}.backward")
    returned = found.values(t) if isinstance(found, TupleValue) else [found]
    if len(returned) < len(args):
        scope.graph.call_function(
            refuse_count, (f"{cls.obj.__name__}Backward", len(args), len(returned))
        )
        returned += [ConstValue(None)] * (len(args) - len(returned))
    chosen = [r for arg, r in zip(args, returned, strict=False) if arg in flat]
    for one in chosen:  # a sparse tensor is one that the graph cannot hold
        if not isinstance(one, NodeValue) and not t.python.is_none(one):
            what = f"{cls.obj.__name__}.backward, which returns {one.describe()},"
            context.cannot(breaks.UNSUPPORTED_CALL, what)
    nodes: list[Any] = [r.node(t) if isinstance(r, NodeValue) else None for r in chosen]
    scope.graph.output(tuple(nodes))


def refuse_count(name: str, wanted: int, given: int) -> None:
    """Raise as autograd does for a backward that returns too few gradients; called from graphs."""
    raise RuntimeError(
        f"function {name} returned an incorrect number of gradients "
        f"(expected {wanted}, got {given})"
    )


def _record(
    t: Interpreter,
    cls: ClassValue,
    context: ContextValue,
    forward: Scope,
    backward: Scope,
    operands: list[fx.Node],
    result: Value,
    outputs: list[TensorValue],
    sizes: list[SymValue],
) -> Value:
    def places(of: list[Value]) -> Places:
        return tuple(
            i for i, output in enumerate(outputs) if any(output is v for v in of)
        )

    name = cls.obj.__name__
    marks = places(context.dirty), places(context.non_differentiable)
    _pad(backward, len(operands))
    modules = forward.module(), backward.module()
    fakes = [node.meta["example_value"] for node in operands]
    try:
        with t.shapes.mode:
            examples = apply_function(*modules, name, *marks, *fakes)
    except (RuntimeError, TypeError, ValueError) as error:
        note = f"{type(error).__name__}: {error}"
        raise breaks.GraphBreak(
            breaks.OP_FAILED, "autograd.Function.apply", note
        ) from error
    t.output.counts_writes = False
    scope = t.output.scopes[-1]
    reads = (
        scope.add_body("autograd_forward", modules[0]),
        scope.add_body("autograd_backward", modules[1]),
    )
    node = t.output.graph.call_function(
        apply_function, (*reads, name, *marks, *operands)
    )
    t.output.annotate(node, examples)
    t.output.calls += 1
    made: dict[int, Value] = {}
    for index, (output, example) in enumerate(
        zip([*outputs, *sizes], examples, strict=True)
    ):
        picked = t.output.graph.call_function(operator.getitem, (node, index))
        t.output.annotate(picked, example)
        made[id(output)] = (
            twin(output, picked, example)
            if isinstance(output, TensorValue)
            else t.output.result_of(example, picked)
        )
    return map_leaves(t, result, lambda leaf: made[id(leaf)])


def _pad(backward: Scope, count: int) -> None:
    """Add a gradient of None for each tensor that forward uses without it being an argument."""
    output = next(node for node in backward.graph.nodes if node.op == "output")
    gradients = output.args[0]
    assert isinstance(gradients, tuple)
    output.args = ((*gradients, *[None] * (count - len(gradients))),)
