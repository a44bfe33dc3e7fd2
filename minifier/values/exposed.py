"""Records what compiled code computes: each graph is compiled again, and returns every value.

The graph is compiled by the same backend. Beside its outputs it returns what each call of it
computes, and each value that takes part in gradients has a zero added to it, whose gradient is the
value's. This keeps more in memory and fuses less, so that what goes wrong only in fused code may
be right here: ``outputs`` records what the graph as it is takes in and returns, and no more.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import torch
from torch import fx
from torch.overrides import TorchFunctionMode

from tc.compiler import api
from tc.minifier import graphs, runner
from tc.minifier.case import Call
from tc.minifier.own_backend import OwnBackend
from tc.minifier.values.recorder import (
    GRADIENT,
    VALUE,
    VJP,
    Recorder,
    operation,
    plain_name,
    tensors,
)

CHECKPOINTS: Final = ("tag_activation_checkpoint", "checkpoint")
EXPOSED: Final = 1000  # values of one graph that are returned
FRAME: Final = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


def install(recorder: Recorder, how: str) -> None:
    """Put recording compilers in place of `tc.compile` and `torch.compile`.

    Args:
        how: ``compiled``: graphs return every value; ``outputs``: they are as they are.
    """
    compilers = {"tc": api.compile, "torch": torch.compile}
    runner.install(Exposing(recorder, how == "compiled", compilers))  # type: ignore[arg-type]


@contextmanager
def without(mode: TorchFunctionMode) -> Iterator[None]:
    """Leave a mode out: compilers would trace it."""
    above = []
    while torch._C._len_torch_function_stack():
        top = torch._C._pop_torch_function_stack()
        if top is mode:
            break
        above.append(top)
    else:
        mode = None  # type: ignore[assignment]
    for one in reversed(above):
        torch._C._push_on_torch_function_stack(one)
    try:
        yield
    finally:
        above = [torch._C._pop_torch_function_stack() for _ in above]
        for one in ([mode] if mode is not None else []) + above[::-1]:
            torch._C._push_on_torch_function_stack(one)


@dataclass
class Exposing:
    """What `runner.install` asks: which backend to use, and what to do around each call."""

    recorder: Recorder
    exposes: bool
    compilers: dict[str, Callable[..., Any]]
    compiles: int = 0
    compiler: str = ""

    def note_begin(self) -> None:
        """Nothing is left behind."""

    @property
    def limit(self) -> Exposing:
        """Who wraps what is compiled."""
        return self

    def on(self, compiled: Any, model: Any, forget: Callable[[], None]) -> Any:
        """Return what replaces a compiled function or module: it runs without the mode."""
        is_module = isinstance(compiled, torch.nn.Module)
        place = "_call" if "_call" in vars(compiled) else "forward"
        target = getattr(compiled, place) if is_module else compiled

        def call(*args: Any, **kwargs: Any) -> Any:
            with without(self.recorder):
                return target(*args, **kwargs)

        if not is_module:
            return call
        vars(compiled)[place] = call
        return compiled

    def noted(self, backend: Any) -> OwnBackend:
        """Return what is known of a backend of the script's own."""
        return OwnBackend.of(backend, "")

    def backend(
        self, real: Callable[..., Any], call: Call, own: OwnBackend | None = None
    ) -> Callable[..., Any]:
        """Return a backend that records what the real one's code computes."""

        def recording(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
            graph = Graph.of(graphs.copied(gm), self.exposes)
            symbolic = "dynamic" in dict(runner.with_dynamic(gm, call).options)
            options = {"dynamic": True} if symbolic else {}
            compile = self.compilers[call.compiler]
            if hasattr(real, "config"):  # Inductor's kernels would draw other numbers than eager
                real.config["fallback_random"] = True

            def compiled(module: fx.GraphModule) -> Callable[..., Any]:
                def counting(inner: fx.GraphModule, examples: Sequence[Any]) -> Any:
                    watched.compiles += 1
                    return real(inner, examples)

                def run(*inputs: Any) -> Any:  # torch.compile leaves modules of fx alone
                    return module.forward(*inputs)

                target = module if call.compiler == "tc" else run
                made: Callable[..., Any] = compile(target, backend=counting, **options)
                return made

            watched = Recorded(self.recorder, graph, compiled)
            return runner.uncompiled(watched) if call.compiler == "torch" else watched

        return recording


Row = tuple[int, int, str, int, int]  # kind, line, name, part and event of a gradient
Use = tuple[fx.Node, int]  # a call, and which of the tensors that it takes


@dataclass(frozen=True)
class Tap:
    """A zero that is added to a value; its gradient is the value's.

    Attributes:
        of_value: it is added for all that use the value.
        uses: calls whose contribution to the gradient it shows.
    """

    node: fx.Node
    of_value: bool
    uses: list[Use]


class Taps(torch.autograd.Function):
    """Zeros whose gradients are recorded by whatever backward passes their graph.

    They depend on all inputs of the graph, and pass nothing back to them. So the engine comes to
    them where only some gradients are asked for (``torch.autograd.grad``), which leaves are not.
    """

    @staticmethod
    def forward(ctx: Any, record: Any, zeros: list[torch.Tensor], *inputs: torch.Tensor) -> Any:
        ctx.record = record
        ctx.set_materialize_grads(False)
        return tuple(zeros)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        ctx.record(gradients)
        return (None,) * len(ctx.needs_input_grad)


@dataclass
class Graph:
    """A captured graph that returns its values beside its outputs.

    Attributes:
        calls: those that compute a tensor, in their order.
        values: of these, those whose values are returned.
        taps: where zeros are added; they are inputs behind the graph's own.
        plain: the graph as it was captured.
    """

    module: fx.GraphModule
    plain: fx.GraphModule
    calls: list[fx.Node]
    values: list[fx.Node]
    taps: list[Tap] = field(default_factory=list)

    @classmethod
    def of(cls, gm: fx.GraphModule, exposes: bool) -> Graph:
        """Return a graph with all its values, or with those alone that it returns."""
        found: list[fx.Node] = []
        if not exposes:
            fx.map_arg(gm.graph.output_node().args, found.append)
            calls, written = _calls(gm), _written(gm.graph)
            kept = [node for node in calls if node in found]
            # what is returned of memory that is written later is not what the call computed
            kept = [node for node in kept if _memory(graphs._fake(node)) not in written]
            return cls(gm, gm, calls, kept)
        gm = inlined(graphs.copied(gm))
        exposed = graphs.copied(gm)
        calls = _calls(exposed)
        found_graph = cls(exposed, gm, calls, calls[:EXPOSED])
        found_graph._expose()
        return found_graph

    def _expose(self) -> None:
        """Add the taps, and return every value."""
        graph, output = self.module.graph, self.module.graph.output_node()
        written = _written(graph)
        uses: dict[fx.Node, list[Use]] = defaultdict(list)
        for call in graph.nodes:
            if call.op.startswith("call_"):
                for number, node in enumerate(_arguments(call)):
                    uses[node].append((call, number))
        returned = set(output.all_input_nodes)
        passing = {_source(node)[0] for node in self.values if _needs_gradient(node)}
        found = [*graph.find_nodes(op="placeholder"), *self.values]
        for node in found:
            if not _is_tappable(node) or _memory(graphs._fake(node)) in written:
                continue
            own = [use for use in uses[node] if use[0] in passing and _is_new(use[0])]
            if node in self.values and _is_new(node):
                lone = own if len(uses[node]) == 1 and node not in returned else []
                self._tap_value(Tap(node, True, lone))
                own = [use for use in own if use not in lone]
            for use in own:
                self._tap_use(Tap(node, False, [use]))
        copies = []
        for node in self.values:
            with graph.inserting_after(self._shown.get(node, node)):
                copy = graph.call_method("detach", (self._shown.get(node, node),))
            if _memory(graphs._fake(node)) in written:
                with graph.inserting_after(copy):
                    copy = graph.call_method("clone", (copy,))
            copies.append(copy)
        outputs = output.args[0]
        outputs = tuple(outputs) if isinstance(outputs, tuple | list) else (outputs,)
        self.own = len(outputs)
        output.args = ((*outputs, *copies),)
        self.module.recompile()

    def _tap_value(self, tap: Tap) -> None:
        """Add a zero to a value, for all that use it."""
        shown = self._added(tap, tap.node, tap.node)
        tap.node.replace_all_uses_with(shown)
        shown.update_arg(0, tap.node)
        self._shown[tap.node] = shown

    def _tap_use(self, tap: Tap) -> None:
        """Add a zero to a value for one call that takes it."""
        call, place = tap.uses[0]
        shown = self._added(tap, self._shown.get(tap.node, tap.node), call.prev)
        number = itertools.count()

        def put(node: fx.Node) -> fx.Node:
            return shown if _is_tensor(node) and next(number) == place else node

        call.args, call.kwargs = fx.map_arg((call.args, call.kwargs), put)

    def _added(self, tap: Tap, node: fx.Node, after: fx.Node) -> fx.Node:
        graph = self.module.graph
        last = graph.find_nodes(op="placeholder")
        with graph.inserting_after(last[-1]) if last else graph.inserting_before():
            zero = graph.placeholder(f"tap_{len(self.taps)}")
        if after.op == "placeholder":  # the new one comes behind it
            after = zero
        with graph.inserting_after(after):
            shown = graph.call_function(torch.add, (node, zero))
        shown.meta = dict(tap.node.meta)
        self.taps.append(tap)
        return shown

    own: int = -1  # how many outputs are the graph's; -1: all of them
    _shown: dict[fx.Node, fx.Node] = field(default_factory=dict)  # value -> itself and its zero

    def zeros(self, inputs: Sequence[Any]) -> list[torch.Tensor]:
        """Return the zeros to add."""
        sizes: dict[Any, int] = {}
        for node, value in zip(self.plain.graph.find_nodes(op="placeholder"), inputs, strict=True):
            fake = graphs._fake(node)
            pairs = zip(fake.shape, value.shape, strict=True) if isinstance(
                fake, torch.Tensor) else [(fake, value)]  # fmt: skip
            for size, real in pairs:
                if isinstance(size, torch.SymInt) and size.node.expr.is_symbol:
                    sizes[size.node.expr] = int(real)

        def number(size: Any) -> int:
            return int(size.node.expr.subs(sizes)) if isinstance(size, torch.SymInt) else int(size)

        made = []
        for tap in self.taps:
            fake = graphs._fake(tap.node)
            shape, stride = map(number, fake.shape), map(number, fake.stride())
            zero = torch.empty_strided(
                tuple(shape), tuple(stride), dtype=fake.dtype, device=fake.device
            )
            made.append(zero.zero_())
        return made


def _calls(gm: fx.GraphModule) -> list[fx.Node]:
    """Return the calls of a graph that compute a tensor."""
    calls = [node for node in gm.graph.nodes if node.op.startswith("call_")]
    return [node for node in calls if isinstance(graphs._fake(node), torch.Tensor)]


def _written(graph: fx.Graph) -> set[Any]:
    """Return the memories that some call of a graph writes to."""
    return {_memory(graphs._fake(node.args[0])) for node in graph.nodes
            if node.op.startswith("call_") and node.args and isinstance(node.args[0], fx.Node)
            and graphs.mutates(node)}  # fmt: skip


def _memory(fake: Any) -> Any:
    try:
        return fake.untyped_storage()._cdata
    except (AttributeError, RuntimeError, NotImplementedError):
        return None


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(graphs._fake(node), torch.Tensor)


def _needs_gradient(node: fx.Node) -> bool:
    return _is_tensor(node) and bool(graphs._fake(node).requires_grad)


def _is_tappable(node: fx.Node) -> bool:
    """Whether a zero can be added to a value, and has a gradient then."""
    fake = graphs._fake(node)
    return (
        _needs_gradient(node)
        and fake.is_floating_point()
        and fake.layout is torch.strided
        and 0 not in fake.stride()
    )


def _arguments(call: fx.Node) -> list[fx.Node]:
    """Return the tensors that a call takes, each as often as it does."""
    given: list[fx.Node] = []
    fx.map_arg((call.args, call.kwargs), given.append)
    return [node for node in given if _is_tensor(node)]


def _is_new(call: fx.Node) -> bool:
    """Whether what a call makes lies in memory of its own."""
    made = {_memory(one) for one in tensors(graphs._fake(call))}
    return bool(made) and made.isdisjoint(_memory(graphs._fake(one)) for one in _arguments(call))


def inlined(gm: fx.GraphModule) -> fx.GraphModule:
    """Put the bodies of checkpoints in their place: they are recomputed, and no value changes."""
    for node in list(gm.graph.nodes):
        if node.op != "call_function" or name_of(node) not in CHECKPOINTS:
            continue
        body = getattr(gm, str(node.args[0].target), None)
        if not isinstance(body, fx.GraphModule):
            continue
        holders = inlined(body).graph.find_nodes(op="placeholder")
        names = dict(zip(holders, node.args[1:], strict=True))
        with gm.graph.inserting_before(node):
            made = gm.graph.graph_copy(body.graph, names)
        for user in list(node.users):
            if isinstance(made, tuple | list) and name_of(user) == "getitem":
                user.replace_all_uses_with(made[user.args[1]])
                gm.graph.erase_node(user)
        if node.users:
            node.replace_all_uses_with(made)
        gm.graph.erase_node(node)
    return gm


class Recorded:
    """A compiled graph that records what it computes.

    Attributes:
        compiles: how often a backend got it; -1: never, which the log says.
    """

    def __init__(
        self, recorder: Recorder, graph: Graph, compiled: Callable[[fx.GraphModule], Any]
    ) -> None:
        self.recorder = recorder
        self.graph = graph
        self.make = compiled
        self.places = {node: self.place_of(node) for node in graph.calls}
        self.compiled: Callable[..., Any] | None = None
        self.compiles = 0

    def __call__(self, *inputs: Any) -> Any:
        plain = [graphs.plain(value) for value in inputs]
        events = self.enter(plain)
        zeros = self.graph.zeros(plain) if self.graph.taps else []
        rows: list[list[Row]] = [[] for _ in zeros]
        needs = [one for one in [*plain, *self.graph.module.parameters()]
                 if isinstance(one, torch.Tensor) and one.requires_grad]  # fmt: skip
        taps: Sequence[torch.Tensor] = zeros
        if zeros and needs and torch.is_grad_enabled():
            taps = Taps.apply(partial(self.passed, rows), zeros, *needs)  # type: ignore[no-untyped-call]
        if self.compiled is None:
            self.compiled = self.make(self.graph.module)
        made = self.compiled(*plain, *taps)
        if not self.compiles:
            lines = sorted({str(node.meta.get("stack_trace")) for node in self.graph.values})[:1]
            self.recorder.log.note(f"a graph was run, and not compiled: {' '.join(lines)[-200:]}")
            self.compiles = -1
        made = tuple(made) if isinstance(made, tuple | list) else (made,)
        own = made if self.graph.own < 0 else made[: self.graph.own]
        self.record(own, made, events)
        for tap, of_tap in zip(self.graph.taps, rows, strict=True):
            of_tap += self.rows_of(tap, events)
        return own

    def rows_of(self, tap: Tap, events: dict[str, int]) -> list[Row]:
        """Return what the gradient of a tap is to be recorded as."""
        whose = [(GRADIENT, tap.node, _source(tap.node)[1])] if tap.of_value else []
        whose += [(VJP, *use) for use in tap.uses]
        found: list[Row] = []
        for kind, node, part in whose:
            place, number = self.place_of(node), events.get(node.name, -1)
            if place is not None and number >= 0:
                found.append((kind, place, name_of(_source(node)[0]), part, number))
        return found

    def passed(self, rows: list[list[Row]], gradients: Sequence[torch.Tensor | None]) -> None:
        """Record the gradients of the taps."""
        for of_tap, gradient in zip(rows, gradients, strict=True):
            if gradient is None:  # nothing that was asked for depends on it
                continue
            for kind, place, name, part, number in of_tap:
                self.recorder.event(kind, place, name, part, gradient, (number,))

    def enter(self, inputs: Sequence[Any]) -> dict[str, int]:
        """Record what comes in, on the line that uses it first."""
        events: dict[str, int] = {}
        holders = self.graph.plain.graph.find_nodes(op="placeholder")
        for node, value in zip(holders, inputs, strict=True):
            user = next((one for one in node.users if one.op.startswith("call_")), None)
            if isinstance(value, torch.Tensor) and user is not None:
                place = self.place_of(user)
                name = f"{name_of(user)}, argument {user.all_input_nodes.index(node)}"
                if place is not None:
                    events[node.name] = self.recorder.enter(value, place, name)
        return events

    def record(self, own: Sequence[Any], made: Sequence[Any], events: dict[str, int]) -> None:
        """Record what was computed."""
        recorder = self.recorder
        values: Sequence[Any] = made[len(own) :]
        if self.graph.own < 0:
            values = self._outputs(own)
        known = dict(zip(self.graph.values, values, strict=True))
        for node in self.graph.calls:
            place, value = self.places[node], known.get(node)
            if place is None:
                continue
            source, part = _source(node)
            name = name_of(source)
            if not isinstance(value, torch.Tensor):
                recorder.unseen(place, name, part)
                continue
            enters = [events[one.name] for one in source.all_input_nodes if one.name in events]
            if self.graph.own < 0:
                events[node.name] = recorder.result(value, place, name, part, enters)
                continue
            events[node.name] = recorder.event(VALUE, place, name, part, value, enters)
            if source is not node and part == 0:
                events[source.name] = events[node.name]
        for node, value in zip(self._returned(), own, strict=False):
            if isinstance(value, torch.Tensor) and isinstance(node, fx.Node) \
                    and node.name in events:  # fmt: skip
                recorder.keep(value, events[node.name])

    def _returned(self) -> list[Any]:
        outputs = self.graph.plain.graph.output_node().args[0]
        return list(outputs) if isinstance(outputs, tuple | list) else [outputs]

    def _outputs(self, own: Sequence[Any]) -> list[Any]:
        """Return what each of the values is among the outputs."""
        held = dict(zip(self._returned(), own, strict=False))
        return [held.get(node) for node in self.graph.values]

    def place_of(self, node: fx.Node) -> int | None:
        """Return the user's line of a call."""
        found = FRAME.findall(node.meta.get("stack_trace") or "")
        mine = [one for one in found if "/torch/" not in one[0]]
        if not mine:
            return None
        file, line, function = mine[-1]
        return self.recorder.places.number(file, int(line), function)


def _source(node: fx.Node) -> tuple[fx.Node, int]:
    """Return the call that a value comes from, and which of its results it is."""
    first = node.args[0] if node.args else None
    if name_of(node) == "getitem" and isinstance(first, fx.Node) and not isinstance(
            graphs._fake(first), torch.Tensor) and isinstance(node.args[1], int):  # fmt: skip
        return first, node.args[1]
    return node, 0


def name_of(node: fx.Node) -> str:
    """Return the name of what a node calls, as `recorder.operation` names it."""
    if node.op == "call_method":
        return plain_name(str(node.target))
    target = node.target
    if getattr(target, "__module__", "") in ("_operator", "operator"):
        name = str(target.__name__).strip("_")  # type: ignore[union-attr]
        return plain_name(f"__{name}__")
    if target is getattr:
        return str(node.args[1])
    return operation(target)
