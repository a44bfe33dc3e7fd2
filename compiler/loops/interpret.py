"""The reference interpreter: runs a loop graph on torch tensors, one node at a time.

In: `LoopGraph` and its inputs. Out: what the compiled graph must return. It evaluates each value
expression over the whole iteration space with the `python` spelling of the scalar-op table, so it
shares nothing with the code generators. `schedule/interpret.py` runs plans with parts of it.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import READS, Expr
from tc.compiler.loops.index import Index
from tc.compiler.loops.ir import (
    Buffer,
    CopyInto,
    Extern,
    Input,
    LoopGraph,
    Nest,
    Reduction,
    Ref,
    ScalarNode,
    Scan,
    Scatter,
    SymValue,
    View,
    inner_loops,
)
from tc.compiler.loops.ops import SCALAR_OPS
from tc.compiler.loops.scans import SCANS
from tc.compiler.routines import ROUTINES

Env = dict[str, Any]

NAMES = {
    "aten": torch.ops.aten,
    "builtins": builtins,
    "torch": torch,
    "math": math,
    "operator": operator,
    **{name: SimpleNamespace(**row.reference) for name, row in ROUTINES.rows()},
}

REDUCE: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "sum": lambda x, d: x.sum(d, dtype=x.dtype),
    "dot": lambda x, d: x.sum(d, dtype=x.dtype),
    "prod": lambda x, d: x.prod(d, dtype=x.dtype),
    "max": lambda x, d: x.amax(d),
    "min": lambda x, d: x.amin(d),
    "any": lambda x, d: x.any(d),
    "all": lambda x, d: x.all(d),
    "argmax": lambda x, d: x.argmax(d),
    "argmin": lambda x, d: x.argmin(d),
}


def interpret(graph: LoopGraph, args: Sequence[Any]) -> tuple[Any, ...]:
    """Run a loop graph and return its outputs."""
    env = bound(graph.inputs, graph.constants, args)
    for node in graph.nodes:
        if isinstance(node, Nest):
            env[node.buffer.name] = _loop_nest(node, env)
        else:
            call(node, env)
    return tuple(read_value(item, env) for item in graph.outputs)


def bound(
    inputs: Sequence[Input], constants: Sequence[tuple[str, Any]], args: Sequence[Any]
) -> Env:
    """Return name -> value of the graph's constants, inputs, and the sizes that these define."""
    env: Env = dict(constants)
    for item, value in zip(inputs, args, strict=True):
        env[item.name] = value
        if item.symbol is not None:
            env[item.symbol] = value
        if item.buffer is not None:
            _learn_sizes(item.buffer, value, env)
    return env


def call(node: Extern | ScalarNode | CopyInto, env: Env) -> None:
    """Run a step of the wrapper: call ATen, compute a number, or write into an input."""
    if isinstance(node, Extern):
        _extern(node, env)
    elif isinstance(node, ScalarNode):
        env[node.name] = _named(node.function)(*(read_value(a, env) for a in node.args))
    else:
        env[node.input].copy_(read_value(node.source, env))


def _learn_sizes(buffer: Buffer, tensor: torch.Tensor, env: Env) -> None:
    for index, value in (
        *zip(buffer.sizes, tensor.shape, strict=True),
        *zip(buffer.strides, tensor.stride(), strict=True),
    ):
        atom = ix.atom_of(index)
        if atom is not None and atom.kind in ix.SYMBOLS:
            env.setdefault(atom.name, value)


def ints(indices: Sequence[Index], env: Env) -> list[int]:
    """Return the values of indices."""
    return [int(ix.evaluate(index, env)) for index in indices]


def _loop_nest(node: Nest, env: Env) -> torch.Tensor:
    buffer = node.buffer
    sizes, strides = ints(buffer.sizes, env), ints(buffer.strides, env)
    result = torch.empty_strided(sizes, strides, dtype=buffer.dtype, device="cpu")
    loops = (*node.vars, *inner_loops(node))
    shape = ints([ix.extent(v) for v in loops], env)
    if 0 in shape[: len(node.vars)]:
        return result
    scope = dict(env)
    for position, variable in enumerate(loops):
        scope[str(variable)] = grid(
            len(shape), position, torch.arange(shape[position], device="cpu")
        )
    if isinstance(node, Scatter):
        return scattered(env[node.base].clone(), node.kind, node.index, node.body, scope, shape)
    value = evaluate(node.body, scope, {}, checked=0 not in shape)  # no iterations: no reads
    value = value.expand(shape) if value.dim() else value.new_full(shape, value.item())
    if isinstance(node, Reduction):
        value = value.reshape([*shape[: len(node.vars)], -1])
        value = REDUCE[node.kind](value, -1).to(buffer.dtype)
    elif isinstance(node, Scan):
        value = SCANS[node.kind].python(value, -1)
    written = loops if isinstance(node, Scan) else node.vars
    outer = shape[: len(written)]
    for position, variable in enumerate(written):
        scope[str(variable)] = grid(
            len(outer), position, torch.arange(outer[position], device="cpu")
        )
    where = torch.as_tensor(ix.evaluate(node.index, scope), device="cpu").expand(outer)
    store(result, where, value)
    return result


def store(memory: torch.Tensor, where: torch.Tensor, value: torch.Tensor) -> None:
    """Write values to the elements of a tensor's memory at flat positions."""
    flat = _whole(memory)
    flat[where.reshape(-1)] = value.to(memory.dtype).reshape(-1)


def scattered(
    memory: torch.Tensor, kind: str, index: Index, body: Expr, scope: Env, shape: Sequence[int]
) -> torch.Tensor:
    """Combine values into the elements of a tensor at computed positions (see `Scatter`)."""
    value, *places = (evaluate(arg, scope, {}, checked=True).expand(shape) for arg in body.args)
    places = [place.long() for place in places]
    for place, bound in zip(places, body.data[0], strict=True):
        if bound is None:
            continue
        [extent] = ints((bound,), scope)
        if bool(((place < 0) | (place >= extent)).any()):
            raise IndexError(f"a place to write to is outside of {extent}")
    named = {f"x{k}": place for k, place in enumerate(places)}
    where = (
        torch.as_tensor(ix.evaluate(index, {**scope, **named}), device="cpu")
        .expand(shape)
        .reshape(-1)
    )
    flat = _whole(memory)
    value = value.to(memory.dtype).reshape(-1)
    if kind in ("max", "min"):
        flat.scatter_reduce_(0, where, value, f"a{kind}")
    else:
        flat.index_put_((where,), value, accumulate=kind == "sum")
    return memory


def _whole(memory: torch.Tensor) -> torch.Tensor:
    """Return a tensor's memory from its first element to the end of the storage."""
    count = memory.untyped_storage().nbytes() // memory.dtype.itemsize - memory.storage_offset()
    return memory.as_strided((count,), (1,))


def grid(rank: int, position: int, values: torch.Tensor) -> torch.Tensor:
    """Return the values of one of several loop variables, along its own dimension."""
    return values.view([-1 if d == position else 1 for d in range(rank)])


def evaluate(node: Expr, scope: Env, done: dict[Expr, Any], checked: bool) -> torch.Tensor:
    """Return value of an expression on the whole grid; reads clamp where not every element is used.

    Args:
        done: values of shared subexpressions computed so far.
        checked: whether all elements are used, so that reading out of bounds is an error.
    """
    if node in done:
        found: torch.Tensor = done[node]
        return found
    if node.op == "select":
        condition = evaluate(node.args[0], scope, done, checked)
        yes, no = (evaluate(arg, scope, {}, checked=False) for arg in node.args[1:])
        result = torch.where(condition, yes, no)
    elif node.op == "const":
        result = torch.tensor(node.data[0], dtype=node.dtype, device="cpu")
    elif node.op == "index":
        result = torch.as_tensor(ix.evaluate(node.data[0], scope), device="cpu")
    elif node.op == "local":
        result = scope[node.data[0]]
    elif node.op == "scalar":
        result = torch.tensor(scope[node.data[0]], dtype=torch.float64, device="cpu")
    elif node.op in READS:
        args = [evaluate(arg, scope, done, checked).long() for arg in node.args]
        result = _read(node, args, scope, checked)
    else:
        args = [evaluate(arg, scope, done, checked) for arg in node.args]
        result = _apply(node, args)
    done[node] = result
    return result


def _apply(node: Expr, args: list[torch.Tensor]) -> torch.Tensor:
    if node.op == "to":
        return args[0].to(node.dtype)
    if node.op == "bits":
        return args[0].contiguous().view(node.dtype)
    if node.op == "where":
        return torch.where(args[0], args[1], args[2])
    result: torch.Tensor = SCALAR_OPS[node.op].python(*args)
    return result.to(node.dtype)


def _read(node: Expr, args: list[torch.Tensor], scope: Env, checked: bool) -> torch.Tensor:
    tensor: torch.Tensor = scope[node.data[0]]
    scope = {**scope, **{f"x{k}": arg for k, arg in enumerate(args)}}
    try:
        where = torch.as_tensor(ix.evaluate(node.data[1], scope), device="cpu")
    except (ZeroDivisionError, RuntimeError):  # tensors raise the latter
        if checked:
            raise
        where = torch.zeros(
            (), dtype=torch.int64, device="cpu"
        )  # positions in an empty view, which are not used
    elements = tensor.untyped_storage().nbytes() // tensor.dtype.itemsize - tensor.storage_offset()
    flat = torch.as_strided(tensor, (max(elements, 0),), (1,), tensor.storage_offset())
    if not checked:
        where = where.clamp(0, max(int(elements) - 1, 0))
    if elements == 0:
        return torch.zeros(where.shape, dtype=tensor.dtype, device="cpu")
    return flat[where]


def _extern(node: Extern, env: Env) -> None:
    args = [read_value(arg, env) for arg in node.args]
    kwargs = {name: read_value(arg, env) for name, arg in node.kwargs}
    made = _named(node.target)(*args, **kwargs)
    for buffer, value in zip(node.results, made if node.unpack else [made], strict=True):
        if buffer is not None:
            sizes, strides = ints(buffer.sizes, env), ints(buffer.strides, env)
            fresh = torch.empty_strided(sizes, strides, dtype=buffer.dtype, device="cpu")
            env[buffer.name] = fresh.copy_(value)


def _named(target: str) -> Callable[..., Any]:
    first, *rest = target.split(".")
    found: Any = NAMES[first]
    for part in rest:
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]


def read_value(value: Any, env: Env) -> Any:
    """Return an argument or output, its views, sizes and references looked up."""
    if isinstance(value, View):
        tensor: torch.Tensor = env[value.buffer]
        if tensor.layout is not torch.strided:
            return tensor  # a packed constant, read by the library that packed it
        start = int(ix.evaluate(value.offset, env)) + tensor.storage_offset()
        return torch.as_strided(tensor, ints(value.sizes, env), ints(value.strides, env), start)
    if isinstance(value, SymValue):
        return int(ix.evaluate(value.index, env))
    if isinstance(value, Ref):
        return env[value.name]
    if isinstance(value, list | tuple):
        return [read_value(item, env) for item in value]
    return value
