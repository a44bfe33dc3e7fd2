"""Traces operations that run a body many times: map, scan, associative_scan, while_loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._higher_order_ops.associative_scan import associative_scan_op
from torch._higher_order_ops.map import map_impl
from torch._higher_order_ops.scan import scan_op
from torch._higher_order_ops.while_loop import while_loop_op

from tc.compiler.capture import breaks
from tc.compiler.capture.torch_api.higher_order import call, read, reject
from tc.compiler.capture.torch_api.subgraphs import (
    Body,
    capture_body,
    leaves,
    same_operands,
)
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.handlers import handles
from tc.compiler.capture.values.tensor import TensorValue

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter


def _tensors(t: Interpreter, name: str, value: Value) -> list[TensorValue]:
    """Return the tensors of a flat list; numbers in it break the graph."""
    found = value.unpack(t)
    if not all(isinstance(one, TensorValue) for one in found):
        raise breaks.GraphBreak(
            breaks.UNSUPPORTED_CALL, f"{name} over inputs that are not all tensors"
        )
    return found  # type: ignore[return-value]


def _returned(t: Interpreter, name: str, body: Body) -> list[TensorValue]:
    returned = leaves(t, body.result)
    if not returned or not all(isinstance(leaf, TensorValue) for leaf in returned):
        raise reject(name, "its function must return tensors")
    return returned  # type: ignore[return-value]


def _form(tensors: list[TensorValue]) -> list[tuple[Any, ...]]:
    return [(tuple(one.example.shape), one.example.dtype) for one in tensors]


def _slices(
    t: Interpreter, tensors: list[TensorValue], name: str
) -> list[tuple[str, Any]]:
    """Return placeholders for the slices along axis 0 that a body gets of tensors."""
    with t.shapes.mode:
        return [(name, torch.select_copy(one.example, 0, 0)) for one in tensors]


def _carried(tensors: list[TensorValue]) -> list[tuple[str, Any]]:
    """Return placeholders for the tensors that a loop carries from one iteration to the next."""
    return [("carried", one.example) for one in tensors]


def _nodes(t: Interpreter, tensors: list[TensorValue]) -> list[Any]:
    return [one.node(t) for one in tensors]


def _stacked(t: Interpreter, leaf: TensorValue, count: Any) -> Any:
    """Return an example of ``count`` results of a body, stacked along axis 0."""
    with t.shapes.mode:
        made = leaf.example.new_empty((count, *leaf.example.shape))
        return made.requires_grad_() if leaf.example.requires_grad else made


@handles(map_impl)
def _map(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    mapped = _tensors(t, "map", args[1])
    rest = args[2].unpack(t)
    operation = ("map_impl", map_impl)
    first = _slices(t, mapped, "child")
    body = capture_body(t, operation, args[0], rest, {}, first)
    returned = _returned(t, "map", body)
    function = read(t, "map_body", body)
    operands = (function, _nodes(t, mapped), body.lifted)
    count = mapped[0].example.shape[0]
    examples = [_stacked(t, leaf, count) for leaf in returned]
    return call(t, map_impl, operands, {}, body, examples)


@handles(scan_op)
def _scan(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    names = ("combine_fn", "init", "xs", "additional_inputs")
    given = dict(zip(names, args, strict=False)) | kwargs
    init = _tensors(t, "scan", given["init"])
    xs = _tensors(t, "scan", given["xs"])
    first = _carried(init) + _slices(t, xs, "x")
    rest = given["additional_inputs"].unpack(t)
    operation = ("scan", scan_op)
    body = capture_body(t, operation, given["combine_fn"], rest, {}, first)
    returned = _returned(t, "scan", body)
    carried, out = returned[: len(init)], returned[len(init) :]
    if _form(carried) != _form(init):
        raise reject(
            "scan", f"its function takes {_form(init)} and returns {_form(carried)}"
        )
    function = read(t, "scan_body", body)
    operands = (function, _nodes(t, init), _nodes(t, xs), tuple(body.lifted))
    count = xs[0].example.shape[0]
    examples = [one.example for one in carried] + [
        _stacked(t, leaf, count) for leaf in out
    ]
    return call(t, scan_op, operands, {}, body, examples)


@handles(associative_scan_op)
def _associative_scan(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    names = ("combine_fn", "xs", "additional_inputs")
    given = dict(zip(names, args, strict=False)) | kwargs
    xs = _tensors(t, "associative_scan", given["xs"])
    rest = given["additional_inputs"].unpack(t)
    first = _slices(t, xs, "left") + _slices(t, xs, "right")
    operation = ("associative_scan", associative_scan_op)
    body = capture_body(t, operation, given["combine_fn"], rest, {}, first)
    returned = _returned(t, "associative_scan", body)
    slices = [(shape[1:], dtype) for shape, dtype in _form(xs)]
    if _form(returned) != slices:
        raise reject(
            "associative_scan",
            "its function must return values of the type that it takes",
        )
    function = read(t, "associative_scan_body", body)
    operands = (function, _nodes(t, xs), tuple(body.lifted))
    examples = [one.example for one in xs]
    return call(t, associative_scan_op, operands, {}, body, examples)


@handles(while_loop_op)
def _while_loop(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    carried = _tensors(t, "while_loop", args[2])
    rest = args[3].unpack(t)
    first = _carried(carried)
    operation = ("while_loop", while_loop_op)
    condition = capture_body(t, operation, args[0], rest, {}, first)
    body = capture_body(t, operation, args[1], rest, {}, first)
    decided = condition.result
    if not isinstance(decided, TensorValue) or decided.example.numel() != 1:
        raise reject("while_loop", "its condition must return a tensor of one element")
    (output,) = (node for node in condition.scope.graph.nodes if node.op == "output")
    output.args = output.args[0]  # the operation wants the tensor itself
    found = _form(_returned(t, "while_loop", body))
    if found != _form(carried):
        raise reject(
            "while_loop", f"its body takes {_form(carried)} and returns {found}"
        )
    additional = same_operands([condition, body])
    test = read(t, "while_cond", condition)
    step = read(t, "while_body", body)
    operands = (test, step, tuple(_nodes(t, carried)), tuple(additional))
    return call(t, while_loop_op, operands, {}, body)
