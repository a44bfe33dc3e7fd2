"""Builds the graph: torch calls of traced code become fx nodes with fake results."""

from __future__ import annotations

import enum
import operator
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from tc.compiler.capture import breaks
from tc.compiler.capture.parts import symbolic_numbers
from tc.compiler.capture.parts.handled_errors import break_where_handled
from tc.compiler.capture.parts.printed_names import by_name, by_place
from tc.compiler.capture.parts.reads import (
    guard_answer,
    guard_memory,
    refuse_sparse_elements,
)
from tc.compiler.capture.parts.unrolled import break_where_unrolled, symbolic_sizes
from tc.compiler.capture.scopes import Scope
from tc.compiler.capture.torch_api.fake_calls import run_fake, writes_first
from tc.compiler.capture.values.array_operands import refuse_arrays, refuse_scalars
from tc.compiler.capture.values.arrays import ArrayValue
from tc.compiler.capture.values.base import Args, Kwargs, NotConstant, Value
from tc.compiler.capture.values.const import ConstValue, is_constant_object
from tc.compiler.capture.values.containers import ListValue, SequenceValue, TupleValue
from tc.compiler.capture.values.dicts import DictValue
from tc.compiler.capture.values.hooks import break_before_write
from tc.compiler.capture.values.lookup import MISSING, is_frozen_dataclass, users_slot
from tc.compiler.capture.values.number_objects import NumberObjectValue
from tc.compiler.capture.values.objects import ObjectValue
from tc.compiler.capture.values.records import StorageValue
from tc.compiler.capture.values.slices import SliceValue
from tc.compiler.capture.values.subclasses import FAKED, DerivedTensors, tensor_value
from tc.compiler.capture.values.tensor import NodeValue, SymValue, TensorValue, calling
from tc.compiler.core.modes import SETS_MODES
from tc.compiler.core.sources import DrawnSource
from tc.compiler.core.symbolic import SYMBOLIC, as_computed

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter

#: Python types that torch accepts as a dtype; a printed graph cannot name them
PYTHON_DTYPES: dict[type, torch.dtype] = {
    bool: torch.bool,
    int: torch.int64,
    float: torch.float64,
    complex: torch.complex128,
}
#: quantized dtypes: torch's fakes of such tensors are plain, and give other results
QUANTIZED = (torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4)
#: key of a placeholder's `meta`: whether its input required gradients before the graph
WANTS_GRAD = "tc_wants_grad"
#: key of a node's ``meta``: the call of a marked function that it belongs to
REGION_CALL = "tc_region_call"


def is_record(cls: type) -> bool:
    """Return whether a class is a frozen dataclass, whose objects keep their fields by name."""
    return is_frozen_dataclass(cls) and not hasattr(cls, "__slots__")


class Record:
    """Makes objects of a class from their attributes, past its ``__init__``; called from graphs."""

    def __init__(self, cls: type, names: tuple[str, ...]) -> None:
        self.cls = cls
        self.names = names
        self.__name__ = self.__qualname__ = cls.__name__

    def __call__(self, *attributes: Any) -> Any:
        made: Any = object.__new__(self.cls)
        made.__dict__.update(zip(self.names, attributes, strict=True))
        return made


@dataclass(frozen=True)
class RegionCall:
    """A call of a function that `nested_compile_region` marks; inside another it is part of that.

    Attributes:
        number: which call of marked functions it is in its graph, from 1.
    """

    name: str
    number: int


@dataclass
class GraphInput:
    """One input of the captured graph: its placeholder and the value of that."""

    node: fx.Node
    value: NodeValue


class OutputGraph:
    """Records torch calls into a graph.

    Attributes:
        scopes: the captured graph, and the bodies of operations under construction inside it.
        inputs: placeholders of the captured graph, and their values.
        calls: the number of recorded calls.
        marks: keys of the graph's ``meta`` that describe it to backends.
        derived: the tensor subclasses among the values.
        whole: whether the user asked for one graph.
        handled: whether the program may handle an error that a call of the graph raises.
        may_assume: whether branches on data that only raise may become assertions.
        assumes: whether one did.
        distribution_checks: code that checks the arguments of distributions; it may break.
        asks_if_compiling: whether the program does; then it is compiled, without a graph too.
        region: the call of a marked function that is traced, if any.
        exits: what leaves the ``with`` blocks in which resume functions began, innermost last.
        counts_writes: whether the fakes were written to as often as the tensors will be; a body is
            traced on them and then run on them as a whole.
        drawn: the random numbers of Python that residual code draws before the graph runs.
    """

    def __init__(self, t: Interpreter) -> None:
        self.t = t
        self.scopes = [Scope()]
        self.inputs: list[GraphInput] = []
        self.calls = 0
        self.marks: set[str] = set()
        self.derived = DerivedTensors()
        self.whole = False
        self.handled = False
        self.may_assume = True
        self.assumes = False
        self.distribution_checks: list[CodeType] = []
        self.asks_if_compiling = False
        self.exits: list[Value] = []
        self.counts_writes = True
        self.drawn: list[DrawnSource] = []
        self.region: RegionCall | None = None
        self._regions = 0
        self._names: set[str] = set()  # of inputs
        #: id of a fake -> the fake, which stays alive, and its id its own, and the tensor
        self._by_example: dict[int, tuple[torch.Tensor, TensorValue]] = {}

    @property
    def graph(self) -> fx.Graph:
        """The graph that calls are recorded into: the captured one, or that of a body in it."""
        return self.scopes[-1].graph

    def in_scope(self, node: fx.Node, example: Any) -> fx.Node:
        """Return a node, or its placeholder in the body that is being captured."""
        if node.graph is self.graph:
            return node
        graphs = [scope.graph for scope in self.scopes]
        if node.graph not in graphs:
            raise breaks.GraphBreak(breaks.LEAKED_BODY, node.name)
        for scope in self.scopes[graphs.index(node.graph) + 1 :]:
            node = scope.lift(node, example)
        return node

    @contextmanager
    def region_call(self, name: str) -> Iterator[None]:
        """Mark the operations recorded inside as one call of a marked function."""
        outer = self.region
        if outer is None:
            self._regions += 1
            self.region = RegionCall(name, self._regions)
        try:
            yield
        finally:
            self.region = outer

    # -- inputs --------------------------------------------------------------------------------
    def add_input(self, value: NodeValue) -> fx.Node:
        """Make the placeholder of a sourced tensor or number, before all calls."""
        assert value.source is not None
        path = value.source.name.replace(".__dict__", "")
        name = re.sub(r"[\W_]+", "_", path).strip("_") + "_"
        # different sources may differ only in what is no part of a name
        if name in self._names:
            name = f"{name}{len(self._names)}_"
        self._names.add(name)
        node = self.scopes[0].placeholder(name)
        node.meta["example_value"] = value.example
        if isinstance(value.example, torch.Tensor):
            node.meta[WANTS_GRAD] = value.example.requires_grad
        node.meta["tc_source"] = value.source
        self.inputs.append(GraphInput(node, value))
        return node

    # -- calls ---------------------------------------------------------------------------------
    def call_torch(
        self, target: Any, args: Args, kwargs: Kwargs, method: bool = False
    ) -> Value:
        """Record a call and return the value of its result.

        Args:
            target: a function, or the name of a tensor method.
            method: whether the target is a method of the first argument.
        """
        numbers = not kwargs and symbolic_numbers.are_numbers(target, args)
        if not numbers or target in symbolic_numbers.OVERRIDABLE:
            called = calling(target) if method else target
            found = self.t.intercept(called, args, kwargs)
            if found is not None:
                return found
        if numbers:
            return self.call_on_numbers(target, args)
        return self._recorded(target, args, kwargs, method)

    def call_on_numbers(self, function: Any, args: Args) -> Value:
        """Record an operation of Python on numbers, one of them symbolic: nothing overrides it."""
        return symbolic_numbers.apply(
            self.t, function, args, lambda: self._recorded(function, args, {})
        )

    def _recorded(
        self, target: Any, args: Args, kwargs: Kwargs, method: bool = False
    ) -> Value:
        text = (
            target
            if isinstance(target, str)
            else getattr(target, "__name__", str(target))
        )
        self.derived.forget(making=isinstance(target, type))
        args, kwargs = by_place(args, _without_default_generator(kwargs))
        refuse_arrays([*args, *kwargs.values()], target, text)
        nodes, named, fakes, fake_named = self._operands(args, kwargs, text)
        refuse_sparse_elements(text, fakes)
        if self.derived.making:
            held = [*args, *kwargs.values()]
            held_fakes = [*fakes, *fake_named.values()]
            self.derived.hold(zip(held, held_fakes, strict=True))
        in_place = writes_first(text) or "out" in kwargs
        outs = self._given_outs(kwargs)
        shapes = [value.example.shape for value in outs]
        lengths = [] if self.whole else symbolic_sizes(target, fakes)
        result = run_fake(self.t, target, text, fakes, fake_named, method)
        operands = [*fakes, *fake_named.values()]
        self.t.effects.stored_data.check(operands, result, text)
        break_before_write(self.t, text)
        self.t.shapes.shorten(result)
        break_where_unrolled(target, lengths)
        if [value.example.shape for value in outs] != shapes:
            raise breaks.GraphBreak(
                breaks.UNSUPPORTED_CALL, f"{text} (it resizes an input or a view)"
            )
        self.t.guards.aliasing_matters |= in_place
        break_where_handled(self.t.top, text, operands)
        known = self._plain_result(result)
        if known is not None and result is not None and not in_place:
            guard_answer(self.t, target, text, args, kwargs, result)
            return known  # a call that returns None is made for its side effects
        guard_memory(self.t, text)
        kind = "call_method" if method else "call_function"
        called = target if method else by_name(target, self.t.guards.definitions)
        if (
            target is operator.pow
            and isinstance(nodes[0], int | float)
            and nodes[0] < 0
        ):
            # FX prints the operator without brackets: -2 ** x is -(2 ** x)
            called = pow
        node = self.graph.create_node(kind, called, nodes, named)
        self.calls += 1
        self.annotate(node, result)
        if known is not None:
            return known
        return self._result(result, node, [*args, *kwargs.values()])

    def _given_outs(self, kwargs: Kwargs) -> list[TensorValue]:
        """Return the inputs, and views, that a call is given as ``out=``.

        It may resize them for good, and with a view the memory that others see as well.
        """
        out = kwargs.get("out")
        outs = out.values(self.t) if isinstance(out, SequenceValue) else [out]
        tensors = [one for one in outs if isinstance(one, TensorValue)]
        return [
            one for one in tensors if one.source is not None or one.example._is_view()
        ]

    def call_state(self, target: Any, args: Args, kwargs: Kwargs) -> Value:
        """Record a call that changes a state of torch, and apply it to the rest of the trace."""
        text = target.__name__
        self.derived.forget()
        nodes, named, fakes, fake_named = self._operands(args, kwargs, text)
        result = run_fake(self.t, target, text, fakes, fake_named, False)
        node = self.graph.call_function(target, nodes, named)
        self.annotate(node, result)
        return self.t.values.known(result)

    def set_mode(
        self, function: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> fx.Node:
        """Record a call that sets a mode of torch for the nodes after it, and return its node."""
        node = self.graph.call_function(function, args, kwargs)
        node.meta[SETS_MODES] = True
        self.marks.add(SETS_MODES)
        self._mark_region(node)
        return node

    def _mark_region(self, node: fx.Node) -> None:
        if self.region is not None:
            node.meta[REGION_CALL] = self.region

    def _operands(
        self, args: Args, kwargs: Kwargs, text: str
    ) -> tuple[tuple[Any, ...], dict[str, Any], list[Any], dict[str, Any]]:
        """Return arguments and keywords as the graph holds them, and as fakes."""
        pairs = [self.graphable(a, text) for a in args]
        named = {k: self.graphable(v, text) for k, v in kwargs.items()}
        refuse_scalars(self.t, [*args, *kwargs.values()], text)
        for _, fake in (*pairs, *named.values()):
            quantized = isinstance(fake, torch.dtype) and fake in QUANTIZED
            # torch would call it here, and again where the graph runs
            indexes = users_slot(type(fake), "__index__") is not MISSING
            if quantized or indexes:
                raise breaks.GraphBreak(
                    breaks.UNSUPPORTED_CALL, f"{text} (with {fake})"
                )
        return (
            tuple(node for node, _ in pairs),
            {k: node for k, (node, _) in named.items()},
            [fake for _, fake in pairs],
            {k: fake for k, (_, fake) in named.items()},
        )

    def _plain_result(self, result: Any) -> Value | None:
        """Return the value of a result that holds neither tensors nor symbols, else None."""
        if isinstance(result, (torch.Tensor, dict, *SYMBOLIC)):
            return None
        if isinstance(result, tuple | list):
            flat = [self._plain_result(item) for item in result]
            if not result or any(item is None for item in flat):
                return None if result else TupleValue([], kind=type(result))
            items = [item for item in flat if item is not None]
            if isinstance(result, list):
                return ListValue(list(items))
            return TupleValue(list(items), kind=type(result))
        if is_constant_object(result):
            return ConstValue(result)
        return None

    def _result(self, result: Any, node: fx.Node, args: list[Value]) -> Value:
        if isinstance(result, torch.Tensor):
            for arg in args:
                if isinstance(arg, TensorValue) and arg.example is result:
                    return arg
            _, known = self._by_example.get(id(result), (None, None))
            if known is not None and self._is_sibling(known, node):
                return tensor_value(node, result)  # one call returned it twice
            if known is not None:  # the call returned an object that was stored before
                return known
            value = self.known_by_example(tensor_value(node, result))
            if FAKED in self.marks and value.kind is torch.Tensor:
                value.kind = FakeTensor
            return value
        if isinstance(result, SYMBOLIC):
            return self.number(node, result)
        if isinstance(result, dict):
            named = (
                (key, self._item(item, node, key, args)) for key, item in result.items()
            )
            return self.t.values.dict_of(named)
        if isinstance(result, tuple | list):
            items = [
                self._item(item, node, index, args) for index, item in enumerate(result)
            ]
            if isinstance(result, list):
                return ListValue(list(items))
            return TupleValue(list(items), kind=type(result))
        name = type(result).__name__
        raise breaks.GraphBreak(
            breaks.UNSUPPORTED_CALL, f"{node.target} (it returns {name})"
        )

    def _is_sibling(self, value: TensorValue, node: fx.Node) -> bool:
        """Return whether a value is another item of the same call's result."""
        other = value.node(self.t)
        picked = node.target is operator.getitem and other.target is operator.getitem
        return picked and other.args[0] is node.args[0]

    def known_by_example(self, value: TensorValue) -> TensorValue:
        """Record the fake of a tensor: a call that returns this fake returns this tensor."""
        fake = value.example
        return self._by_example.setdefault(id(fake), (fake, value))[1]

    def result_of(self, result: Any, node: fx.Node) -> Value:
        """Return the value of a node's result: a tensor, a number, or a nest of these."""
        plain = self._plain_result(result)
        return plain if plain is not None else self._result(result, node, [])

    def _item(self, item: Any, node: fx.Node, index: Any, args: list[Value]) -> Value:
        plain = self._plain_result(item)
        if plain is not None:
            return plain
        picked = self.graph.call_function(operator.getitem, (node, index))
        self.annotate(picked, item)
        return self._result(item, picked, args)

    def number(self, node: fx.Node, symbol: Any) -> Value:
        """Return the value of a symbolic number: a constant if it has only one value."""
        if isinstance(symbol, SYMBOLIC) and symbol.node.expr.is_number:
            # sympy may keep a quotient of integers, in a bracket, as it is
            plain = symbol.node.expr.expand(identity=True)
            found = sympy_interp(PythonReferenceAnalysis, {}, plain)
            return ConstValue(symbol.node.pytype(found))
        return SymValue(node, as_computed(symbol))

    def number_from(
        self, tensor: TensorValue, method: str, found: Any, *args: int
    ) -> Value:
        """Return the value of an integer read off a tensor; a node only if it is symbolic."""
        if not isinstance(found, SYMBOLIC):
            return ConstValue(found)
        if found.node.expr.is_number:
            return ConstValue(int(found))
        node = self.graph.call_method(method, (tensor.node(self.t), *args))
        self.annotate(node, found)
        return SymValue(node, found)

    def tensor_size(self, tensor: TensorValue) -> TupleValue:
        """Return the value of ``tensor.shape``."""
        sizes = [
            self.number_from(tensor, "size", size, dim)
            for dim, size in enumerate(tensor.example.shape)
        ]
        return TupleValue(list(sizes), kind=torch.Size)

    # -- arguments -----------------------------------------------------------------------------
    def graphable(self, value: Value, text: str) -> tuple[Any, Any]:
        """Return a value as an argument of a node, and as a fake argument."""
        if isinstance(value, NodeValue):
            return value.node(self.t), value.example
        if (
            isinstance(value, ArrayValue)
            and (number := value.number(self.t)) is not None
        ):
            return self.graphable(number, text)
        if isinstance(value, ArrayValue | StorageValue):
            return self.graphable(value.tensor, text)
        if isinstance(value, SequenceValue):
            pairs = [self.graphable(item, text) for item in value.values(self.t)]
            kind = list if isinstance(value, ListValue) else tuple
            if self.derived.making and hasattr(value.python_type(), "_fields"):
                return self._made(value.python_type(), pairs)
            return kind(n for n, _ in pairs), kind(f for _, f in pairs)
        if (
            isinstance(value, ObjectValue)
            and is_record(value.cls)
            and value.source is None
        ):
            return self._record_of(value, text)
        if isinstance(value, SliceValue):
            parts = [self.graphable(part, text) for part in value.parts]
            return slice(*[n for n, _ in parts]), slice(*[f for _, f in parts])
        if isinstance(value, DictValue):
            keys = [self.graphable(key, text)[0] for key in value.keys(self.t)]
            pairs = [self.graphable(item, text) for item in value.values(self.t)]
            nodes = {k: n for k, (n, _) in zip(keys, pairs, strict=True)}
            return nodes, {k: f for k, (_, f) in zip(keys, pairs, strict=True)}
        try:
            constant = (
                value.contents()
                if isinstance(value, NumberObjectValue)
                else value.constant()
            )
        except NotConstant:
            constant = None
            callable_or_object = True
        else:
            callable_or_object = callable(constant) and not isinstance(constant, type)
        if isinstance(constant, type):
            constant = PYTHON_DTYPES.get(constant, constant)
        if isinstance(constant, enum.IntFlag) and not _is_member(constant):
            constant = int(constant)  # printed graphs name members alone
        if callable_or_object:
            what = f"{text} with {value.describe()} as an argument"
            raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, what)
        return constant, constant

    def _record_of(self, value: ObjectValue, text: str) -> tuple[Any, Any]:
        """Return the node that makes an object of a frozen dataclass, and a fake of the object."""
        held = self.t.effects.attributes_of(value)
        pairs = [self.graphable(item, text) for item in held.values()]
        make = Record(value.cls, tuple(held))
        return self._made(make, pairs)

    def _made(self, make: Any, pairs: list[tuple[Any, Any]]) -> tuple[Any, Any]:
        """Return the node of a call with these arguments, and its fake result.

        Args:
            pairs: each argument as the graph holds it, and as a fake.
        """
        nodes = tuple(node for node, _ in pairs)
        fakes = [fake for _, fake in pairs]
        fake = make(*fakes)
        node = self.graph.call_function(make, nodes)
        self.annotate(node, fake)
        return node, fake

    # -- notes on nodes ------------------------------------------------------------------------
    def annotate(self, node: fx.Node, example: Any) -> None:
        node.meta["example_value"] = example
        self.t.shapes.note_symbols(node, example)
        self._mark_region(node)
        node.meta["source_fn_stack"] = [
            *self.scopes[-1].operations,
            (node.name, node.target),
        ]
        if self.t.top is None:
            return
        places = self.t.top.places()
        node.meta["tc_origin"] = tuple(places)
        node.meta["stack_trace"] = "\n".join(
            f'  File "{p.file}", line {p.line}, in {p.name}\n    {p.loc or ""}'
            for p in places
        )


def _is_member(flag: enum.IntFlag) -> bool:
    """Return whether a value of flags is one of them, or has a name of its own."""
    return flag.name in type(flag).__members__


def _without_default_generator(kwargs: Kwargs) -> Kwargs:
    """Leave out ``generator=None``: with it torch picks overloads that take no symbolic sizes."""
    given = kwargs.get("generator")
    if given is None or not given.is_constant() or given.constant() is not None:
        return kwargs
    return {name: value for name, value in kwargs.items() if name != "generator"}
