"""Lowers an ATen graph node by node: into loops, or into a call of ATen.

In: `fx.GraphModule` of ATen calls with fake values in ``meta["val"]``. Out: `LoopGraph`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from tc.compiler.core.artifacts import Decision
from tc.compiler.core.gate import Gate
from tc.compiler.core.machine import caches
from tc.compiler.core.origins import OF_CHECK, STANDS_FOR, place_of
from tc.compiler.core.symbolic import SYMBOLIC
from tc.compiler.errors import StageError, TcError
from tc.compiler.loops import index as ix
from tc.compiler.loops.index import Index
from tc.compiler.loops.ir import (
    Buffer,
    CopyInto,
    Extern,
    Input,
    LoopGraph,
    Nest,
    Node,
    Origin,
    Ref,
    ScalarNode,
    SymValue,
    View,
    reads,
    views_in,
)
from tc.compiler.loops.lower.builder import Builder, Cell, NotLowered, Tensor
from tc.compiler.loops.lower.registry import (
    LOWERINGS,
    ROUTINE,
    SCATTERS,
    VIEWS,
    Call,
    made_of_loops,
    readers,
)
from tc.compiler.loops.lower.sympy_boundary import SizeReader, UnsupportedSizeExpr
from tc.compiler.loops.refine import refine
from tc.compiler.loops.rules import simplify

# Ops that check properties which capture has guarded already.
IGNORED = ("aten._assert_tensor_metadata.default",)
FEW_PART = 1 / 4  # of the last cache: a concatenation that loops make as fast as ATen
LONG_RUN = 64  # elements; shorter pieces of a concatenation are interleaved faster by loops
# Ops that write part of a tensor: done in place on a copy, which loops make as they make values.
IN_PLACE = frozenset(
    f"aten.{name}"
    for name in (
        "index_put.default",
        "index_add.default",
        "index_copy.default",
        "scatter.src",
        "scatter.value",
        "scatter_add.default",
        "scatter_reduce.two",
        "masked_scatter.default",
    )
)


CPU = torch.device("cpu")


def lower(
    graph: fx.GraphModule, gate: Gate, device: torch.device = CPU, randoms: bool = False
) -> LoopGraph:
    """Lower a functional ATen graph; the wrapper calls the ops that cannot or must not be lowered.

    Args:
        graph: ATen calls with fake values in ``meta["val"]``.
        gate: asked before each op is lowered, inlined, done in place.
        device: the device that loops run on; tensors elsewhere are left to ATen.
        randoms: whether loops draw random numbers, in another order than eager's.
    """
    walk = _Walk(graph, gate, device, randoms)
    with gate.counting("loops.lower", len(graph.graph.nodes)) as after:
        for node in graph.graph.nodes:
            try:
                walk.visit(node)
            except TcError:
                raise
            except Exception as error:
                message = f"lowering {node.format_node()} failed: {type(error).__name__}: {error}"
                raise StageError("loops.lower", message) from error
        nodes = tuple(alive(walk.builder.nodes, walk.outputs))
        after.append(len(nodes))
    constants = tuple(walk.builder.constants.items())
    decisions = tuple(walk.decisions)
    made = LoopGraph(tuple(walk.inputs), nodes, walk.outputs, constants, decisions)
    # A GPU fuses products with sums, which the ranges of floats do not cover.
    return simplify(refine(made, gate) if device.type == "cpu" else made, gate)


def alive(nodes: list[Node], outputs: tuple[Any, ...]) -> list[Node]:
    """Return the nodes without unused loop nests (dead code elimination)."""
    read = {view.buffer for view in views_in(outputs)}
    kept: list[Node] = []
    for node in reversed(nodes):
        if not isinstance(node, Nest) or node.buffer.name in read:
            read.update(reads(node))
            kept.append(node)
    return kept[::-1]


class _Walk:
    """The lowering of one graph, with the values of the fx nodes so far."""

    def __init__(
        self, graph: fx.GraphModule, gate: Gate, device: torch.device, randoms: bool
    ) -> None:
        self.module = graph
        self.device = device
        self.gate = gate
        self.reader = SizeReader()
        self.builder = Builder(gate, device, randoms, self.reader)
        self.values: dict[fx.Node, Any] = {}
        self.inputs: list[Input] = []
        self.input_of: dict[fx.Node, Input] = {}
        self.outputs: tuple[Any, ...] = ()
        self.uses = _count_uses(graph)
        self.decisions: list[Decision] = []
        self.returned: dict[str, Cell] = {}
        self.copies: list[tuple[str, fx.Node]] = []
        self.items: dict[Any, Ref] = {}
        self.symbols: set[str] = set()

    def visit(self, node: fx.Node) -> None:
        """Lower one node."""
        self.builder.begin(origin_of(node))
        self.builder.uses = self.uses.get(node, 0)
        kinds: dict[str, Callable[[fx.Node], Any]] = {
            "placeholder": self._placeholder,
            "get_attr": self._constant,
            "call_function": self._call,
            "output": self._output,
        }
        if node.op not in kinds:
            raise StageError(
                "loops.lower", f"a node of kind {node.op} has no place in an ATen graph"
            )
        self.values[node] = kinds[node.op](node)

    def _placeholder(self, node: fx.Node) -> Any:
        fake, name = node.meta.get("val"), str(node.target)
        if isinstance(fake, torch.Tensor):
            found = Input(
                name,
                Buffer(
                    name,
                    fake.dtype,
                    self.reader.sizes(fake),
                    self.reader.strides(fake),
                ),
            )
            value: Any = self.builder.memory(found.buffer) if found.buffer else None
        elif isinstance(fake, torch.SymInt):
            index = self.reader.number(fake)
            atom = ix.atom_of(index)
            symbol = atom.name if atom is not None and atom.kind in ix.SYMBOLS else None
            found, value = Input(name, None, symbol), index
        else:
            found = Input(name, None)
            value = Ref(name) if isinstance(fake, torch.SymFloat) or fake is None else fake
        self.inputs.append(found)
        self.input_of[node] = found
        values = (value,) if found.buffer is None else (*found.buffer.sizes, *found.buffer.strides)
        self.symbols.update(a.name for i in values if isinstance(i, Index) for a in i.atoms())
        return value

    def _constant(self, node: fx.Node) -> Any:
        held: Any = self.module
        for part in str(node.target).split("."):
            held = getattr(held, part)
        if not isinstance(held, torch.Tensor):
            raise NotLowered(f"{node.target} is no tensor")
        name = str(node.target).replace(".", "_")
        self.builder.constants[name] = held
        if held.layout is not torch.strided:
            held = node.meta["val"]  # packed: the library that reads it knows how it lies
        buffer = Buffer(name, held.dtype, self.reader.sizes(held), self.reader.strides(held))
        return self.builder.memory(buffer)

    # ------------------------------------------------------------ calls

    def _call(self, node: fx.Node) -> Any:
        fake, target = node.meta.get("val"), node.target
        if target is operator.getitem:
            container = self.values[node.args[0]]  # type: ignore[index]
            return container[node.args[1]]
        if node.meta.get(OF_CHECK):
            return self._number(node)
        if target is torch.ops.aten._local_scalar_dense.default:
            return self._item(node)
        if isinstance(fake, int | float | bool) and not isinstance(fake, torch.Tensor):
            return ix.const(fake) if type(fake) is int else fake
        if isinstance(fake, torch.SymInt):
            return self._size(node, fake)
        if isinstance(fake, SYMBOLIC):
            return self._number(node)
        if str(target) in IGNORED:
            return None
        if str(target) == "aten.copy_.default":
            return self._copy_into(node)
        return self._lowered(node)

    def _size(self, node: fx.Node, fake: torch.SymInt) -> Index:
        """Return an integer over sizes; if it is no `Index`, the wrapper computes it."""
        try:
            return self.reader.number(fake)
        except UnsupportedSizeExpr:
            number = ix.number(self._number(node).name)
            self.reader.computed[fake.node.expr] = number
            return number

    def _number(self, node: fx.Node) -> Ref:
        values = self.items if node.meta.get(OF_CHECK) else {}
        args = tuple(self._plain(values.get(a, a)) for a in node.args)
        target = node.target
        if target is torch.ops.aten.sym_size.int:
            function = "torch.Tensor.size"
        else:
            module = getattr(target, "__module__", "")
            prefix = "operator" if module in ("_operator", "operator") else module
            function = f"{prefix}.{getattr(target, '__name__', target)}"
        self.builder.nodes.append(ScalarNode(node.name, function, args))
        return Ref(node.name)

    def _item(self, node: fx.Node) -> Any:
        """Return a number read from a tensor: by its own name for checks, else by its symbol."""
        fake, nodes = node.meta["val"], self.builder.nodes
        nodes.append(ScalarNode(node.name, "torch.Tensor.item", (self._plain(node.args[0]),)))
        self.items[node] = Ref(node.name)
        if not isinstance(fake, torch.SymInt):
            return self.items[node]
        value = self.reader.number(fake)
        atom = ix.atom_of(value)
        if atom is not None and atom.kind in ix.SYMBOLS and atom.name not in self.symbols:
            self.symbols.add(atom.name)
            nodes.append(ScalarNode(atom.name, "int", (Ref(node.name),)))
        return value

    def _lowered(self, node: fx.Node) -> Any:
        target = node.target
        row = LOWERINGS.get(target) if made_of_loops(node) else None
        fakes = node.meta.get("val")
        if not _dense(fakes, self.device) or not self._arguments_dense(node):
            return self._extern(node)
        if target in SCATTERS:
            row = SCATTERS[target]
        elif self._allows_in_place(node):
            return self._in_place(node)
        if row is None or self._only_copies(node):
            return self._extern(node)
        kind = str(target).removeprefix("aten.").removesuffix(".default")
        if target not in VIEWS and not self.gate.allow(f"loops.lower.{kind}", node.name):
            return self._refused(node, "refused by the gate")
        call = Call(target, _named(target, node, self.values), fakes, self.reader)
        first: Any = fakes[0] if isinstance(fakes, tuple | list) else fakes
        self.builder.strides = self.reader.strides(first)
        try:
            result = row(self.builder, call)
            self._check(result, fakes)
            return result
        except NotLowered as why:
            return self._refused(node, str(why))
        except Exception as error:
            return self._refused(node, f"its lowering failed: {type(error).__name__}: {error}")

    def _check(self, result: Any, fakes: Any) -> None:
        """Raise NotLowered if a lowering's result has another shape or type than torch's."""
        if isinstance(fakes, tuple | list):
            for one, fake in zip(result, fakes, strict=True):
                self._check(one, fake)
            return
        if not (isinstance(result, Tensor) and isinstance(fakes, torch.Tensor)):
            return
        wanted = self.reader.sizes(fakes)
        same = len(wanted) == len(result.sizes) and not any(
            (a - b).constant for a, b in zip(result.sizes, wanted, strict=True) if a is not b
        )
        if not same or result.dtype is not fakes.dtype:
            raise NotLowered(
                f"it would give {result.dtype}{list(result.sizes)}, not {fakes.dtype}{list(wanted)}"
            )

    def _only_copies(self, node: fx.Node) -> bool:
        """Return whether a call only copies long runs of memory, and no loop reads its result.

        ATen copies long runs as fast as loops do, and contiguous pieces in one go; for short runs a
        loop saves the call.
        """
        if str(node.target) != "aten.cat.default" or any(map(made_of_loops, readers(node))):
            return False
        pieces, dim = node.all_input_nodes, node.args[1] if len(node.args) > 1 else 0
        fake = node.meta["val"]
        size, runs_each = math.prod(fake.shape) * fake.itemsize, math.prod(fake.shape[:dim])
        known = type(size) is int and type(runs_each) is int
        if known and size <= FEW_PART * caches().last and runs_each > 1:
            return False
        runs = [math.prod(piece.meta["val"].shape[dim:]) for piece in pieces]
        if not all(type(run) is int and run >= LONG_RUN for run in runs):
            return False
        values = [self.values[piece] for piece in pieces]
        return all(isinstance(v, Tensor) and v.cell.buffer is not None for v in values)

    def _refused(self, node: fx.Node, reason: str) -> Any:
        """Call ATen instead, and record the reason."""
        self.decisions.append(Decision("lower", (node.name, str(node.target)), False, reason))
        self.builder.uses = self.uses.get(node, 0)
        return self._in_place(node) if self._allows_in_place(node) else self._extern(node)

    def _allows_in_place(self, node: fx.Node) -> bool:
        named = str(node.target) in IN_PLACE
        return named and self.gate.allow("loops.in_place", node.name)

    def _arguments_dense(self, node: fx.Node) -> bool:
        fakes = [a.meta.get("val") for a in node.all_input_nodes]
        return all(_dense(fake, self.device) for fake in fakes)

    def _in_place(self, node: fx.Node) -> Any:
        """Call ATen's in-place op on a copy of the first argument, which a loop makes."""
        builder = self.builder
        first = node.args[0]
        assert isinstance(first, fx.Node)
        base, fake = self.values[first], node.meta["val"]
        if not isinstance(base, Tensor) or base.sizes != self.reader.sizes(fake):  # it broadcasts
            return self._extern(node)
        args = [self._plain(a, node) for a in node.args[1:]]
        kwargs = tuple((k, self._plain(v, node)) for k, v in node.kwargs.items())
        copy = builder.copy(base, self.reader.strides(fake))
        buffer = Buffer(
            builder.name(),
            fake.dtype,
            self.reader.sizes(fake),
            self.reader.strides(fake),
        )
        target = spelled(node.target, in_place=True)
        found = Extern(
            target, (copy, *args), kwargs, (buffer,), False, (builder.origin,), (copy.buffer,)
        )
        builder.nodes.append(found)
        return builder.memory(buffer)

    def _extern(self, node: fx.Node) -> Any:
        """Call ATen in the wrapper."""
        builder, fake = self.builder, node.meta.get("val")
        builder.strides = None
        args = tuple(self._plain(a, node) for a in node.args)
        kwargs = tuple((k, self._plain(v, node)) for k, v in node.kwargs.items())
        unpack = isinstance(fake, tuple | list)
        results: list[Buffer | None] = []
        values: list[Any] = []
        for item in fake if isinstance(fake, tuple | list) else (fake,):
            if isinstance(item, torch.Tensor):
                buffer = Buffer(
                    builder.name(),
                    item.dtype,
                    self.reader.sizes(item),
                    self.reader.strides(item),
                )
                results.append(buffer)
                values.append(
                    builder.memory(buffer)
                    if _dense(item, self.device)
                    else View(buffer.name, buffer.dtype, buffer.sizes, buffer.strides, ix.ZERO)
                )
            else:
                results.append(None)
                values.append(
                    self.reader.number(item) if isinstance(item, int | torch.SymInt) else None
                )
        target = node.meta.get(ROUTINE) or spelled(node.target)
        origins = (builder.origin,)
        shared = tuple(view.buffer for view in views_in(self._aliased(node, args)))
        builder.nodes.append(Extern(target, args, kwargs, tuple(results), unpack, origins, shared))
        return values if unpack else values[0]

    @staticmethod
    def _aliased(node: fx.Node, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments whose memory the results share (a view op that is not lowered)."""
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            return args
        pairs = zip(args, schema.arguments, strict=False)
        return tuple(arg for arg, declared in pairs if declared.alias_info is not None)

    def _plain(self, value: Any, node: fx.Node | None = None) -> Any:
        """Return an argument as the wrapper passes it."""
        if isinstance(value, fx.Node):
            held = self.values[value]
            if isinstance(held, Tensor):
                return self.builder.view(held, self.reader.strides(value.meta["val"]))
            return self._plain(held)
        if isinstance(value, Index):
            return SymValue(value) if value.constant is None else value.constant
        if isinstance(value, tuple | list):
            return [self._plain(item) for item in value]
        if isinstance(value, slice):
            raise StageError("loops.lower", f"a slice object among the arguments of {node}")
        return value

    # ------------------------------------------------------------ ends

    def _copy_into(self, node: fx.Node) -> Any:
        into, source = node.args[0], node.args[1]
        assert isinstance(into, fx.Node) and isinstance(source, fx.Node)
        found = self.input_of.get(into)
        if found is None:
            raise StageError("loops.lower", f"copy_ into {into}, which is no input of the graph")
        self.copies.append((found.name, source))
        return self.values[into]

    def _output(self, node: fx.Node) -> None:
        results = node.args[0]
        listed = results if isinstance(results, tuple | list) else (results,)
        self.outputs = tuple(self._result(item) for item in listed)
        self.builder.nodes += self._copies()

    def _copies(self) -> list[CopyInto]:
        """Return the writes to inputs, after everything that reads them."""
        written = {name for name, _ in self.copies}
        found: list[CopyInto] = []
        for name, source in self.copies:
            view = self._plain(source)
            if isinstance(view, View) and view.buffer in written - {name}:
                view = self.builder.copy(self.values[source])
            found.append(CopyInto(name, view))
        return found

    def _result(self, item: Any) -> Any:
        if not isinstance(item, fx.Node):
            return item
        while str(item.target) == "aten.copy_.default":
            item = item.args[0]
        if item in self.input_of:
            return Ref(self.input_of[item].name)
        held = self.values[item]
        if isinstance(held, Tensor):
            name = self.builder.realize(held.cell)
            if self.returned.setdefault(name, held.cell) is not held.cell:
                # Two results in one buffer, which are separate in eager.
                return self.builder.copy(held, self.reader.strides(item.meta["val"]))
        return self._plain(item)


def _dense(fake: Any, device: torch.device) -> bool:
    """Return whether loops can read and write it: a plain strided tensor there, of a known type."""
    if isinstance(fake, tuple | list):
        return all(_dense(item, device) for item in fake)
    if not isinstance(fake, torch.Tensor):
        return True
    plain = fake.layout is torch.strided and fake.device == device and not fake.is_quantized
    return plain and not fake.dtype.is_complex and not fake.is_conj() and not fake.is_neg()


def _named(target: Any, node: fx.Node, values: dict[fx.Node, Any]) -> dict[str, Any]:
    """Arguments by name, with defaults."""

    def held(value: Any) -> Any:
        if isinstance(value, fx.Node):
            return values[value]
        if isinstance(value, tuple | list):
            return [held(item) for item in value]
        return value

    found: dict[str, Any] = {}
    for position, argument in enumerate(target._schema.arguments):
        if position < len(node.args):
            found[argument.name] = held(node.args[position])
        elif argument.name in node.kwargs:
            found[argument.name] = held(node.kwargs[argument.name])
        elif argument.has_default_value():
            found[argument.name] = argument.default_value
    return {
        k: v.constant if isinstance(v, Index) and v.constant is not None else v
        for k, v in found.items()
    }


def spelled(target: Any, in_place: bool = False) -> str:
    """Return a call's target, or its in-place variant, as Python for the wrapper."""
    if isinstance(target, torch._ops.OpOverload):
        namespace, _, name = target._schema.name.partition("::")
        prefix = "aten" if namespace == "aten" else f"torch.ops.{namespace}"
        return f"{prefix}.{name}{'_' if in_place else ''}.{target._overloadname}"
    if isinstance(target, torch._ops.OpOverloadPacket):
        return f"torch.ops.{target._qualified_op_name.replace('::', '.')}"
    module = getattr(target, "__module__", "")
    if module.split(".")[0] in ("torch", "math", "_operator"):
        return f"{module.replace('_operator', 'operator')}.{target.__name__}"
    raise StageError("loops.lower", f"{target} cannot be named in the wrapper")


def origin_of(node: fx.Node) -> Origin:
    """Return provenance of an fx node."""
    place = place_of(node)
    line = "" if place is None else str(place)
    if not line and node.meta.get("stack_trace"):
        lines = [text.strip() for text in str(node.meta["stack_trace"]).strip().splitlines()]
        files = [text for text in lines if text.startswith("File")]
        line = files[-1] if files else ""
    return Origin(node.meta.get(STANDS_FOR, node.name), str(node.target), line)


def _count_uses(graph: fx.GraphModule) -> dict[fx.Node, int]:
    """Return the number of calls that read each node, directly or through views."""
    uses: dict[fx.Node, int] = {}
    for node in reversed(graph.graph.nodes):
        total = 0
        for user in node.users:
            through = user.target in VIEWS or user.target is operator.getitem
            total += uses.get(user, 0) if user.op == "call_function" and through else 1
        uses[node] = total
    return uses
