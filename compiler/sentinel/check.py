"""Compares one call of a compiled graph with eager: the captured graph on copies of its inputs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.autograd.graph import get_gradient_edge
from torch.utils._pytree import tree_leaves

from tc.compiler.core.levels import Autocast
from tc.compiler.core.memory import storage_id
from tc.compiler.sentinel import rounding
from tc.compiler.sentinel.copies import RandomState, Skipped, copied, unseen
from tc.compiler.sentinel.graph import Graph
from tc.compiler.sentinel.rounding import Difference, Reference, is_equal, same_layout

Program = Callable[..., Any]
#: seeds of runs that explain a difference as rounding, asked for in groups: even ones move inputs
#: and every result on the way, odd ones inputs only
SEEDS = ((1, 2, 3), tuple(range(4, 16)))
#: why calls with random numbers are not compared
OTHERWISE = "random numbers differ from those of eager"
REPEATS = 3  # calls that show whether a difference is there each time


@dataclass(frozen=True)
class Written:
    """Reports whether memory that a backward may read was written to past autograd (``.data``).

    Eager's gradients are then those of the new values, and so may be compiled code's. A write that
    autograd notices is an error of both, or matters to neither.
    """

    rows: tuple[tuple[torch.Tensor, torch.Tensor, int], ...]

    @classmethod
    def since(cls, results: Sequence[Any], inputs: Sequence[Any], call: Call) -> Written:
        """Note results and inputs as they are behind a call; the call has copies of most."""
        known = dict(zip(map(id, inputs), call.inputs, strict=True))
        rows = []
        with torch.no_grad():
            for value in (*results, *inputs):
                if not isinstance(value, torch.Tensor):
                    continue
                copy = known.get(id(value))
                if copy is None or not is_equal(copy.detach(), value.detach()):
                    copy = same_layout(value)
                rows.append((value.detach(), copy.detach(), _version(value)))
        return cls(tuple(rows))

    def unnoticed(self) -> bool:
        """Return whether one has other values, and autograd does not know."""
        return any(
            _version(now) == version and not is_equal(before, now)
            for now, before, version in self.rows
        )


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


@dataclass
class Call:
    """One call, as it was before it was made.

    Attributes:
        eager: runs the captured graph.
        inputs: copies of what it was given.
        random: the state of the generators before it.
        may_draw: whether the graph has an operation that draws random numbers.
        draws: whether it has drawn random numbers. Where it has not, the generators, which all
            threads share, are left alone.
        draws_as_eager: whether compiled code draws the random numbers that eager draws.
    """

    eager: Program
    inputs: list[Any]
    random: RandomState
    autocast: Autocast
    draws_as_eager: bool = True
    may_draw: bool = True
    draws: bool = True
    written: Written | None = None

    @classmethod
    def before(cls, graph: Graph, inputs: Sequence[Any]) -> Call:
        """Copy what a call of a graph is given."""
        state, own = RandomState.now(inputs), copied(inputs)
        known = graph.draws_as_eager, graph.may_draw
        return cls(graph.eager, own, state, Autocast.now(), *known)

    # -- forward -----------------------------------------------------------------------------
    def difference(self, result: Any, inputs: Sequence[Any]) -> Difference | None:
        """Compare results, and inputs that may have been written to, with eager's.

        The random state is left as the compiled call has set it.

        Raises:
            Skipped: they cannot be compared.
        """
        after = RandomState.now(inputs)
        self.draws = self.may_draw and not _same(after, self.random)
        if self.draws and not self.draws_as_eager:
            raise Skipped(OTHERWISE)
        try:
            with unseen(), torch.no_grad():
                found = self._results(result, inputs)
                return self._judged(found, self._forward, after)
        finally:
            self.leave(after)

    def rewind(self) -> None:
        """Set the generators back to what they were before the call, if it has drawn."""
        if self.draws:
            self.random.restore()

    def leave(self, after: RandomState) -> None:
        """Leave the generators as the call has; other threads' numbers stay drawn if it has not."""
        if self.draws or (threading.active_count() == 1 and not after.is_now()):
            after.restore()

    def _results(self, result: Any, inputs: Sequence[Any]) -> list[Any]:
        """Return what is compared: the leaves of results, then the tensors among inputs."""
        found = [*tree_leaves(result), *(v for v in inputs if isinstance(v, torch.Tensor))]
        return [v.detach() if isinstance(v, torch.Tensor) else v for v in found]

    def _forward(self, inputs: Sequence[Any]) -> list[Any]:
        return self._results(self.eager(*inputs), inputs)

    # -- backward ----------------------------------------------------------------------------
    def gradient_difference(
        self, outputs: Sequence[int], tangents: Sequence[Any], groups: Groups, found: Sequence[Any]
    ) -> Difference | None:
        """Compare gradients that a backward returned with eager's.

        Args:
            outputs: places of results that gradients came for; ``tangents`` are these.
            groups: inputs whose gradients are one.
            found: the gradients, one a group; None for zeros.

        Raises:
            Skipped: they cannot be compared.
        """
        if self.written is not None and self.written.unnoticed():
            raise Skipped("data was written between forward and backward, unseen by autograd")
        after = RandomState.now(self.inputs)

        def backward(inputs: Sequence[Any]) -> list[Any]:
            results = tree_leaves(self.eager(*inputs))
            return _gradients(results, outputs, tangents, groups, inputs)

        try:
            with unseen(), torch.enable_grad(), self.autocast.again():
                return self._judged(list(found), backward, None)
        finally:
            self.leave(after)

    # -- both --------------------------------------------------------------------------------
    def _judged(
        self, found: list[Any], program: Callable[[Sequence[Any]], list[Any]],
        after: RandomState | None,
    ) -> Difference | None:  # fmt: skip
        """Compare values with those of a program over copies of the inputs.

        Args:
            after: the state of the generators that compiled code has left; None: values are
                gradients.
        """
        eager = self._run(program, copied(self.inputs))
        ended = RandomState.now(self.inputs)
        if self.draws and after is not None and not _same(after, ended):
            raise Skipped(OTHERWISE)
        if after is None:
            found = [_or_zeros(mine, theirs) for mine, theirs in zip(found, eager, strict=True)]

        def double() -> list[Any] | None:
            return self._in_double(program, ended)

        def moved(seed: int) -> list[Any]:
            return self._moved(program, seed)

        reference = Reference(eager, double, moved, SEEDS)
        if not rounding.are_close(eager, found):
            again = self._run(program, copied(self.inputs))
            if not rounding.are_close(eager, again):
                raise Skipped("eager itself gives other results when it is repeated")
        return rounding.compare(reference, found)[1]

    def _run(self, program: Callable[[Sequence[Any]], list[Any]], inputs: list[Any]) -> list[Any]:
        self.rewind()
        try:
            return program(inputs)
        except torch.OutOfMemoryError as error:
            raise Skipped("eager ran out of memory") from error
        except Exception as error:
            raise Skipped(f"eager raises {type(error).__name__}") from error

    def _in_double(
        self, program: Callable[[Sequence[Any]], list[Any]], ended: RandomState
    ) -> list[Any] | None:
        """Return the results in float64; None if it cannot run so, or draws other numbers."""
        memory = [storage_id(v) for v in self.inputs if isinstance(v, torch.Tensor)]
        if len(set(memory)) < len(memory):  # writes to one are seen through others
            return None
        self.rewind()
        try:
            wide = list(map(_widened, self.inputs))
            with rounding.InDouble():
                found = program(wide)
        except Exception:
            return None
        return found if not self.draws or _same(ended, RandomState.now(self.inputs)) else None

    def _moved(self, program: Callable[[Sequence[Any]], list[Any]], seed: int) -> list[Any]:
        generator = torch.Generator().manual_seed(seed)
        inputs = [rounding.jittered(value, generator) for value in copied(self.inputs)]
        try:
            if seed % 2 or seed < SEEDS[1][0]:
                return self._run(program, inputs)
            with rounding.Perturbed(seed):
                return self._run(program, inputs)
        except Skipped:
            return []  # a run that says nothing

    def repeats(self, compiled: Program) -> int:
        """Return how many of `REPEATS` more calls of compiled code differ from eager as well."""
        count = 0
        for _ in range(REPEATS):
            self.rewind()
            inputs = copied(self.inputs)
            try:
                with unseen(), torch.no_grad():
                    count += self.difference(compiled(*inputs), inputs) is not None
            except Exception:
                return count
        return count


def _widened(value: Any) -> Any:
    """Return an input in float64, in memory of its own."""
    wide = rounding.widened(value)
    own = not isinstance(value, torch.Tensor) or wide.dtype != value.dtype
    return wide if own else same_layout(wide).requires_grad_(wide.requires_grad)


def _same(one: RandomState, other: RandomState) -> bool:
    rows = zip((one.cpu, *(s for _, s in one.gpus)), (other.cpu, *(s for _, s in other.gpus)),
               strict=True)  # fmt: skip
    return all(torch.equal(mine, theirs) for mine, theirs in rows)


def _or_zeros(found: Any, eager: Any) -> Any:
    """Return a gradient, zeros where a backward returned none."""
    return torch.zeros_like(eager) if found is None else found


# -- gradients ---------------------------------------------------------------------------------
#: places of inputs whose gradients go to one edge of autograd's graph, and are added up there
Groups = list[list[int]]


def _gradients(
    results: Sequence[Any], outputs: Sequence[int], tangents: Sequence[Any], groups: Groups,
    inputs: Sequence[Any],
) -> list[Any]:  # fmt: skip
    """Return the gradients of eager's results, one a group."""
    chosen = [results[place] for place in outputs]
    given = [
        t.to(r.dtype) if r.dtype != t.dtype else t for r, t in zip(chosen, tangents, strict=True)
    ]
    wanted = [place for group in groups for place in group]
    leaves = [inputs[place] for place in wanted]
    made = torch.autograd.grad(chosen, leaves, given, allow_unused=True)
    of = dict(zip(wanted, made, strict=True))
    found = []
    for group in groups:
        total = torch.zeros_like(inputs[group[0]])
        for place in group:
            if of[place] is not None:
                total = total + of[place]
        found.append(total.detach())
    return found


def is_many(gradient: torch.Tensor) -> bool:
    """Return whether a gradient is not one plain tensor: of a level of vmap, or of a subclass."""
    of_vmap = torch._C._functorch
    return (
        type(gradient) is not torch.Tensor
        or of_vmap.is_legacy_batchedtensor(gradient)
        or of_vmap.is_functorch_wrapped_tensor(gradient)
    )


@dataclass
class Backward:
    """The backward of one compiled call: which of its node's gradients belong to which input.

    Attributes:
        node: of autograd's graph; compiled forward and backward are one node.
        outputs: places of results that are the node's, by the number of its output.
        groups: see `Groups`; ``slots`` are the places of their gradients among the node's.
    """

    node: Any
    outputs: dict[int, int]
    groups: Groups
    slots: list[list[int]]

    @classmethod
    def of(cls, result: Any, inputs: Sequence[Any]) -> Backward | None:
        """Find the node that computes results from inputs; None if there is no gradient.

        Raises:
            Skipped: it is more than one node.
        """
        leaves = tree_leaves(result)
        made = [(n, v) for n, v in enumerate(leaves) if isinstance(v, torch.Tensor) and v.grad_fn]
        given = {v.grad_fn for v in inputs if isinstance(v, torch.Tensor) and v.grad_fn}
        made = [(n, v) for n, v in made if v.grad_fn not in given]  # inputs that are returned
        if not made:
            return None
        node: Any = made[0][1].grad_fn
        if any(value.grad_fn is not node for _, value in made):
            raise Skipped("gradients flow through several autograd nodes")
        edges: dict[Any, list[int]] = {}
        for place, value in enumerate(inputs):
            if isinstance(value, torch.Tensor) and value.requires_grad:
                edges.setdefault(tuple(get_gradient_edge(value)[:2]), []).append(place)
        slots: dict[Any, list[int]] = {}
        for slot, edge in enumerate(node.next_functions):
            if edge[0] is None:
                continue
            if edge not in edges:
                raise Skipped("gradients flow through several autograd nodes")
            slots.setdefault(edge, []).append(slot)
        outputs: dict[int, int] = {}
        for place, value in made:
            outputs.setdefault(value.output_nr, place)
        return cls(node, outputs, [edges[edge] for edge in slots], list(slots.values()))

    def difference(self, call: Call, gradients: Any, tangents: Any) -> Difference | None:
        """Compare what the node computed with eager's gradients.

        Raises:
            Skipped: they cannot be compared.
        """
        came = [(place, tangents[number]) for number, place in self.outputs.items()
                if tangents[number] is not None]  # fmt: skip
        if len(came) < sum(tangent is not None for tangent in tangents):
            raise Skipped("gradients flow through several autograd nodes")
        if not came:
            return None
        if any(is_many(t) for t in (*gradients, *tangents) if t is not None):
            raise Skipped("gradients are batched (vmap), or of a subclass of Tensor")
        found = []
        for slots in self.slots:
            parts = [gradients[slot] for slot in slots if gradients[slot] is not None]
            found.append(sum(parts[1:], parts[0]).detach() if parts else None)
        outputs, given = zip(*came, strict=True)
        return call.gradient_difference(
            outputs, [t.detach() for t in given], self.groups, found
        )  # fmt: skip


def guard_difference(module: fx.GraphModule, inputs: Sequence[Any]) -> Difference | None:
    """Compare inputs with what a graph was captured for: dtype, device and fixed sizes."""
    nodes = module.graph.find_nodes(op="placeholder")
    for node, value in zip(nodes, inputs, strict=False):
        example = node.meta.get("example_value")
        if not isinstance(example, torch.Tensor) or not isinstance(value, torch.Tensor):
            continue
        sizes = zip(example.shape, value.shape, strict=False)
        fits = (
            example.dtype == value.dtype
            and example.device.type == value.device.type
            and example.dim() == value.dim()
            and all(type(wanted) is not int or wanted == size for wanted, size in sizes)
        )
        if not fits:
            text = (
                f"{node.target} is {_form(value)}, and the graph is compiled for {_form(example)}"
            )
            return Difference("guard", text)
    return None


def _form(value: torch.Tensor) -> str:
    sizes = ", ".join(map(str, value.shape))
    return f"{str(value.dtype).removeprefix('torch.')}[{sizes}] on {value.device.type}"
