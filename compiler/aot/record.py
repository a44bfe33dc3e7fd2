"""Runs a function over fake tensors and records the ATen ops that reach the dispatcher.

A dispatch mode of tc in place of torch's general-purpose tracer: it records tensors, symbolic sizes
and constants, which is all that a captured graph has, in a third of the time.
"""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.node import map_aggregate
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from tc.compiler.aot.artifact import Fallback, first_line
from tc.compiler.aot.checks import Checks
from tc.compiler.aot.decompositions import Chosen, decomposition_of, is_query
from tc.compiler.aot.layouts import differ_in_layout_alone, form_of, is_row_major
from tc.compiler.aot.regions import KEEP, REGION, Region
from tc.compiler.aot.run import storage_key
from tc.compiler.aot.symbols import SizeNodes
from tc.compiler.core import levels
from tc.compiler.core.gate import Gate
from tc.compiler.core.origins import line_in
from tc.compiler.core.symbolic import SYMBOLIC

aten = torch.ops.aten


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records every op that reaches it, below autograd, functionalisation and composite ops.

    Attributes:
        graph: the recorded graph.
        origin: metadata for the nodes being recorded; set by the caller that runs the function.
        origins_by_sequence: sequence number of the first autograd node of an origin, and the
            origin, ascending: the ops that autograd runs in backward belong to the same user lines.
        decomposed: op -> the number of its decomposed calls.
        constants: real tensors that the function uses, by their names in the graph.
    """

    supports_higher_order_operators = True  # they are dispatched here to be refused

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch wraps the dispatch, to disable a compiler that does not run

    def __init__(
        self, fake_mode: FakeTensorMode, gate: Gate, decompositions: Chosen | None = None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.fake_mode = fake_mode
        self.gate = gate
        self.decompositions = decompositions
        self.graph = fx.Graph()
        self.sizes = SizeNodes(self.graph, fake_mode.shape_env)
        self.checks = Checks(self.graph, self.sizes)
        self.origin: dict[str, Any] = {}
        self.origins_by_sequence: list[tuple[int, dict[str, Any]]] = []
        self.decomposed: Counter[str] = Counter()
        self.constants: dict[str, torch.Tensor] = {}
        self._nodes: dict[int, fx.Node] = {}
        self._default_dtype = torch.get_default_dtype()  # the one under which the graph will run
        self._inside = False  # an op that is being decomposed
        self._kept: list[Any] = []  # objects are identified by id: none may die while recording

    def placeholder(self, name: str, value: Any, *, defines_sizes: bool = True) -> fx.Node:
        """Add an input of the graph; an input that forward lacks defines no size symbols."""
        node = self.graph.placeholder(name)
        node.meta["val"] = value
        if isinstance(value, torch.Tensor):
            self._remember(value, node)
        if defines_sizes:
            self.sizes.add_input(node, value)
        return node

    def constant(self, real: torch.Tensor) -> fx.Node:
        """Return the node of a real tensor, which becomes a constant of the graph."""
        if id(real) not in self._nodes:
            name = f"constant{len(self.constants)}"
            self.constants[name] = real
            node = self.graph.create_node("get_attr", name, (), {}, name)
            node.meta["val"] = self.fake_mode.from_tensor(real, static_shapes=True)
            self._remember(real, node)
        return self._nodes[id(real)]

    def fake_constant(self, real: torch.Tensor) -> torch.Tensor:
        """Return the fake of a real tensor that is a constant of the graph."""
        node = self.constant(real)
        fake: torch.Tensor = node.meta["val"]
        self._remember(fake, node)
        return fake

    def node_of(self, value: Any) -> Any:
        """Return the node that computes a value, or the value itself if it is a constant.

        Raises:
            Fallback: a graph cannot contain the value.
        """
        if isinstance(value, torch.Tensor):
            node = self._nodes.get(id(value))
            if node is None:
                if isinstance(value, FakeTensor):
                    raise Fallback("a tensor appears that was not made by a recorded op")
                node = self.constant(value)
            return node
        if isinstance(value, SYMBOLIC):
            return self.sizes.node_for(value)
        if isinstance(value, torch.Generator):
            raise Fallback("an op draws from its own random generator")
        return value

    def finish(self, outputs: Iterable[Any]) -> fx.Graph:
        """End the graph with these outputs (nodes or constants) and return it.

        Raises:
            Fallback: an assumption about data cannot be checked.
        """
        self.checks.add(last=True)
        self.graph.output(list(outputs))
        return self.graph

    def __torch_dispatch__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Record one op, or run its decomposition and record that."""
        kwargs = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload):
            raise Fallback(f"the operator {func} takes functions as arguments")
        if is_query(func):
            return func(*args, **kwargs)
        asked = None if self._inside else self._region_now()
        inside, self._inside = self._inside, True
        try:
            with levels.own_tensors():  # decompositions may make new tensors
                result = self._simplest(func, args, kwargs)
        finally:
            self._inside = inside
        if asked is not None and asked.keeps(func, args, kwargs, result):
            for tensor in result if isinstance(result, (list, tuple)) else [result]:
                if id(tensor) in self._nodes:
                    self._nodes[id(tensor)].meta[KEEP] = True
        return result

    def _region_now(self) -> Region | None:
        """Return the checkpointed region whose forward is running."""
        forward = torch._C._current_autograd_node() is None
        return self.origin.get(REGION) if forward else None

    def _simplest(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        simpler = decomposition_of(func, self.gate, self.decompositions, self._line_now)
        if simpler is not None:
            with self:
                result = _decomposed(func, simpler, args, kwargs)
            if result is not NotImplemented:
                self.decomposed[str(func)] += 1
                composite = simpler == func.decompose  # eager runs the same
                return result if composite else self._laid_out(result, func, args, kwargs)
        if func is aten.lift_fresh.default:
            func = aten.lift_fresh_copy.default  # each call of the program makes a new tensor
        return self._record(func, args, kwargs)

    def _laid_out(
        self, result: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Give the results of a decomposition the layouts of the op's, in which eager has them.

        Programs see layouts by strides, and by the order in which random numbers are drawn. From
        row-major operands decompositions make row-major results, as kernels do. They see memory,
        too: where a decomposition has nothing to move, its result is a view of an operand.
        """
        given = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        strided = all(value.layout is torch.strided for value in given)
        if func._schema.is_mutable or not strided:
            return result
        memory = {storage_key(value) for value in given}
        is_view = not memory.isdisjoint(_storages(result))
        if not is_view and all(map(is_row_major, given)):
            return result
        wanted = func(*args, **kwargs)
        if is_view and memory.isdisjoint(_storages(wanted)):
            with self:
                result = tree_map_only(torch.Tensor, aten.clone.default, result)
        if isinstance(result, torch.Tensor):
            return self._in_layout_of(wanted, result)
        if not isinstance(result, (list, tuple)):
            return result
        pairs = zip(wanted, result, strict=True)
        laid_out = [self._in_layout_of(like, one) for like, one in pairs]
        return laid_out if isinstance(result, list) else tuple(laid_out)

    def _in_layout_of(self, like: Any, value: Any) -> Any:
        if not isinstance(like, torch.Tensor) or not isinstance(value, torch.Tensor):
            return value
        form = form_of(like)
        if form is None or not differ_in_layout_alone(like, value):
            return value
        with self:
            return aten.clone.default(value, memory_format=form)

    def _record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        fx_args = map_aggregate(args, self.node_of)
        fx_kwargs = map_aggregate(kwargs, self.node_of)
        result = func(*args, **kwargs)
        if torch.get_default_dtype() is not self._default_dtype:
            fx_kwargs = _with_dtype(func, fx_args, fx_kwargs, result)
        if func is aten._efficientzerotensor.default:  # it has no memory, which kernels read
            func, fx_args = aten.full.default, (*fx_args, 0)
            fx_kwargs = {**fx_kwargs, "dtype": result.dtype, "device": result.device}
        name = func._schema.name.rpartition("::")[2]
        node = self.graph.create_node("call_function", func, fx_args, fx_kwargs, name)
        node.meta.update(self._origin_now())
        node.meta["val"] = result
        if isinstance(result, torch.Tensor):
            self._remember(result, node)
        elif isinstance(result, (list, tuple)):
            self._record_items(node, result)
        elif isinstance(result, SYMBOLIC):
            self.sizes.nodes.setdefault(result.node.expr, node)
        self._note_data(node, result)
        return result

    def _note_data(self, node: fx.Node, result: Any) -> None:
        """Record the unbacked symbols that an op has made."""
        if isinstance(result, SYMBOLIC):
            self.checks.made([result], lambda _: node)
        else:
            several = isinstance(result, (list, tuple))
            self.checks.made(result if several else [result], lambda made: self._nodes[id(made)])

    def node_done(self, makes_symbols: bool) -> None:
        """Add checks of the assumptions so far, if a node of the captured graph made symbols."""
        if makes_symbols:
            self.checks.add()

    def _origin_now(self) -> dict[str, Any]:
        """Return the origin of the op being recorded; in backward that of the op it is for."""
        autograd_node = torch._C._current_autograd_node()
        if autograd_node is None:
            return self.origin
        number = autograd_node._sequence_nr()
        at = bisect_right(self.origins_by_sequence, number, key=lambda pair: pair[0])
        origin = self.origins_by_sequence[at - 1][1] if at else {}
        return {**origin, "tc_backward": autograd_node.name()}

    def _line_now(self) -> str:
        return line_in(self._origin_now())

    def _record_items(self, node: fx.Node, result: Iterable[Any]) -> None:
        tensors = [id(item) for item in result if isinstance(item, torch.Tensor)]
        if len(set(tensors)) != len(tensors):
            raise Fallback(f"{node.target} returns one tensor twice")
        for i, item in enumerate(result):
            if not isinstance(item, torch.Tensor):
                continue
            part = self.graph.create_node(
                "call_function", operator.getitem, (node, i), {}, f"{node.name}_part{i}"
            )
            part.meta.update({key: value for key, value in node.meta.items() if key != "val"})
            part.meta["val"] = item
            self._remember(item, part)

    def _remember(self, value: torch.Tensor, node: fx.Node) -> None:
        if value.layout != torch.strided:  # gradients of sparse embeddings
            raise Fallback(f"a tensor with layout {value.layout} appears")
        self._nodes[id(value)] = node
        self._kept.append(value)


def _storages(result: Any) -> list[int]:
    """Return the memory of each strided tensor of an op's result."""
    values = result if isinstance(result, (list, tuple)) else [result]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    return [storage_key(value) for value in tensors if value.layout is torch.strided]


def _decomposed(func: Any, simpler: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return simpler(*args, **kwargs)
    except ZeroDivisionError:  # a mean over no elements, taken in Python: the op knows what that is
        return NotImplemented
    except (AssertionError, IndexError, TypeError, ValueError) as error:
        why = f"the decomposition of {func} refuses its arguments: {first_line(error)}"
        raise Fallback(why) from error
    except RuntimeError as error:
        if type(error) not in (RuntimeError, NotImplementedError) or simpler == func.decompose:
            raise  # of a size that depends on data; or what eager says, too
        return NotImplemented  # a dtype that the op may know: complex numbers, mostly


def _with_dtype(func: Any, args: Any, kwargs: Any, result: Any) -> dict[str, Any]:
    """Return the keyword arguments under which an op has its dtype whatever the default one is.

    The program has set the default dtype for this op, which the graph does not do when it runs.

    Raises:
        Fallback: no argument of the op says the dtype.
    """
    given = [*args, *kwargs.values()]
    if not isinstance(result, torch.Tensor) or any(isinstance(a, torch.dtype) for a in given):
        return {**kwargs}
    default = torch.get_default_dtype()
    operands: list[Any] = []
    map_aggregate(given, lambda a: operands.append(a.meta["val"]) if isinstance(a, fx.Node) else a)
    known = any(isinstance(a, torch.Tensor) and a.dtype is result.dtype for a in operands)
    if known or result.dtype not in (default, default.to_complex()):
        return {**kwargs}
    if any(argument.name == "dtype" for argument in func._schema.arguments):
        return {**kwargs, "dtype": result.dtype}
    raise Fallback(f"{func} has the dtype that the program set as the default one")
