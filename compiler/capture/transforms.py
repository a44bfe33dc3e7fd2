"""torch.func transforms: vmap, grad, jvp … of traced functions, as nodes that take a body.

The real transform is run once over fake tensors with the tracer in the place of the function, so
that all it does with its arguments is PyTorch's own; at run time it is applied to the body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from tc.compiler.capture import breaks
from tc.compiler.capture.subgraphs import new_scope
from tc.compiler.capture.torchfns import Handler, handles
from tc.compiler.capture.values.base import Args, Kwargs, LambdaValue, Value
from tc.compiler.capture.values.containers import ListValue, TupleValue
from tc.compiler.capture.values.tensor import TensorValue

if TYPE_CHECKING:
    from torch import fx

    from tc.compiler.capture.subgraphs import Scope
    from tc.compiler.capture.tracer import Tracer

#: transforms that take a function and return one
MAKERS = ("vmap", "grad", "grad_and_value", "jacrev", "jacfwd", "hessian")


def transform(name: str, options: Any, body: Any, lifted: Any, args: Any, kwargs: Any) -> Any:
    """Apply a transform of torch.func to a captured body; called from graphs."""
    run = on_tensors(body, lifted)
    if name == "jvp":
        return torch.func.jvp(run, *args, **options)
    if name == "pullback":
        return torch.func.vjp(run, *args[0], **options)[1](*args[1])
    if name == "vjp":
        found = torch.func.vjp(run, *args, **options)
        return (found[0], *found[2:])
    return getattr(torch.func, name)(run, **options)(*args, **kwargs)


def on_tensors(body: Any, lifted: Any) -> Any:
    """Return a function of nested arguments that calls a body with the tensors in them."""

    def run(*args: Any, **kwargs: Any) -> Any:
        leaves = pytree.tree_leaves((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        return body(*tensors, *lifted)

    return run


class Transformed(LambdaValue):
    """What a transform made of a traced function: calling it records a node."""

    def __init__(self, name: str, function: Value, options: dict[str, Any]) -> None:
        super().__init__(self._apply, f"torch.func.{name}({function.describe()})")
        self.name = name
        self.transformed = function
        self.options = options

    def _apply(self, t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        return record(t, self.name, self.transformed, self.options, args, kwargs)


def record(
    t: Tracer, name: str, function: Value, options: dict[str, Any], args: Args, kwargs: Kwargs
) -> Value:
    """Record the application of a transform to a traced function."""
    nodes, fakes = t.graphable(TupleValue(list(args)), f"torch.func.{name}")
    named_nodes, named_fakes = t.graphable(t.dict_of(kwargs.items()), f"torch.func.{name}")
    writes = t.effects.outer_writes
    bodies: list[Scope] = []

    def traced(*inner: Any, **named: Any) -> Any:
        with new_scope(t) as scope:
            values = [_value(t, scope, item) for item in inner]
            keywords = {key: _value(t, scope, item) for key, item in named.items()}
            result = function.call(t, values, keywords)
            output, examples = t.graphable(result, f"the function given to torch.func.{name}")
            scope.graph.output(output)
        bodies.append(scope)
        return examples

    result = _run(t, name, traced, options, fakes, named_fakes)
    once = len(bodies) == 1 and name != "pullback"
    if not bodies or (t.effects.outer_writes != writes and not once):
        raise breaks.GraphBreak(breaks.BODY_EFFECT, f"torch.func.{name}")
    body = bodies[0]  # with chunks or several bases the function is traced more than once
    read = t.scopes[-1].add_body(f"{name}_body", body.module())
    lifted = tuple(outer for outer in body.lifted)
    node = t.graph.call_function(transform, (name, options, read, lifted, nodes, named_nodes))
    t.annotate(node, result)
    t.calls += 1
    return t.result_of(result, node)


def _run(t: Tracer, name: str, traced: Any, options: Any, args: Any, kwargs: Any) -> Any:
    try:
        with t.shapes.mode:
            if name == "jvp":
                return torch.func.jvp(traced, *args, **options)
            if name == "pullback":
                return torch.func.vjp(traced, *args[0], **options)[1](*args[1])
            if name == "vjp":
                found = torch.func.vjp(traced, *args, **options)
                return (found[0], *found[2:])
            return getattr(torch.func, name)(traced, **options)(*args, **kwargs)
    except (RuntimeError, ValueError, TypeError, AssertionError) as error:
        note = f"{type(error).__name__}: {error}"
        raise breaks.GraphBreak(breaks.OP_FAILED, f"torch.func.{name}", note) from error


def _value(t: Tracer, scope: Scope, item: Any) -> Value:
    """Return the value of an argument that a transform hands to the function."""
    if isinstance(item, torch.Tensor):
        node: fx.Node = scope.placeholder("arg")
        node.meta["example_value"] = item
        return TensorValue(node, item)
    if type(item) is list:
        return ListValue([_value(t, scope, part) for part in item])
    if isinstance(item, tuple):
        return TupleValue([_value(t, scope, part) for part in item], kind=type(item))
    if type(item) is dict:
        return t.dict_of((key, _value(t, scope, part)) for key, part in item.items())
    return t.known(item)


def _maker(name: str) -> Handler:
    def handler(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        options = {key: t.concrete(value) for key, value in kwargs.items() if key != "func"}
        function = kwargs.get("func", args[0] if args else None)
        assert function is not None
        names = {"vmap": ("in_dims", "out_dims", "randomness")}.get(name, ("argnums",))
        options.update(
            (key, t.concrete(value)) for key, value in zip(names, args[1:], strict=False)
        )
        return Transformed(name, function, options)

    return handler


def _functions(name: str) -> list[Any]:
    import torch._functorch.apis as apis
    import torch._functorch.eager_transforms as eager

    homes = (torch.func, apis, eager)
    return [getattr(home, name) for home in homes if hasattr(home, name)]


for _name in MAKERS:
    handles(*_functions(_name))(_maker(_name))


@handles(*_functions("jvp"))
def _jvp(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    options = {key: t.concrete(v) for key, v in kwargs.items() if key in ("strict", "has_aux")}
    rest = [*args[1:], *(kwargs[key] for key in ("primals", "tangents") if key in kwargs)]
    return record(t, "jvp", args[0], options, rest, {})


@handles(*_functions("vjp"))
def _vjp(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    function, primals = args[0], list(args[1:])
    options = {key: t.concrete(value) for key, value in kwargs.items()}
    outputs = record(t, "vjp", function, options, primals, {}).unpack(t)

    def pull(t: Tracer, cotangents: Args, kwargs: Kwargs) -> Value:
        both = [TupleValue(list(primals)), TupleValue(list(cotangents))]
        return record(t, "pullback", function, options, both, {})

    return t.new_tuple(
        [outputs[0], t.lambda_value(pull, "the function of torch.func.vjp"), *outputs[1:]]
    )
