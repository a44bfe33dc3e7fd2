"""Double backward: differentiable gradients, which backward computes under ``create_graph``.

The captured graph runs again by eager operations on the inputs of the call, and eager autograd
computes its gradients. So everything that affects derivatives of any order (detached values, custom
autograd functions, casts, random numbers) is as in eager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from torch import fx

from tc.compiler.aot.artifact import Constant, TrainingContract
from tc.compiler.core import levels

REFUSED = (
    "tc cannot differentiate the gradients of this compiled function: {why}. Call tc.disable on "
    "the part whose second derivative you need, or compile it with backend='eager'."
)
ENDED = (
    "Trying to backward through the graph a second time: what a compiled function kept of its call "
    "was freed by the first. Specify retain_graph=True there."
)
WRITTEN = (
    "one of the variables needed for gradient computation has been modified by an inplace "
    "operation: input {index} of a compiled function was written to between its call and "
    "a backward with create_graph=True, which runs the function again"
)
_version = attrgetter("_version")


@dataclass(slots=True)
class Kept:
    """The values that one call saves for double backward.

    Attributes:
        values: saved inputs, in the order of `Rerun.held`.
        versions: version counter of each of `Rerun.checked`; None if it has none.
        states: states of the random generators that forward uses.
    """

    values: list[Any]
    versions: tuple[int, ...] | None
    states: list[torch.Tensor]


class Rerun:
    """Computes differentiable gradients of one compiled graph.

    Attributes:
        held: inputs that a call saves in addition to those that backward saves anyway.
    """

    def __init__(
        self, contract: TrainingContract, eager: Callable[..., Any] | None, draws_as_eager: bool
    ) -> None:
        self._plan = contract.again
        self._eager = eager
        saved = contract.saved_from[: contract.saved_tensors]
        self._saved = {i: at for at, (where, i) in enumerate(saved) if where == "input"}
        self._written = set(contract.forward.written)
        self._saved.update(self._plan.originals)
        self._gets = [i for i, out in enumerate(contract.gradients) if out != Constant(None)]
        self._refused = self._why_not(draws_as_eager)
        count = len(contract.forward.tensors)
        self.held = [i for i in range(count) if i not in self._saved]
        self._rewritten = {i for i, _ in contract.forward.rewritten}
        lost = set(self._plan.lost)
        self._copied = [at for at, i in enumerate(self.held) if i in lost]
        # A leaf never depends on values computed from it. Any other tensor may, after a later
        # write, and then saving the tensor itself would make a cycle that is never freed.
        self._apart = [at for at, i in enumerate(self.held)
                       if (i in self._gets or i in self._rewritten) and i not in lost]  # fmt: skip
        self._checked = [at for at, i in enumerate(self.held)
                         if contract.forward.tensors[i] and i not in self._written]  # fmt: skip
        self._draws = bool(self._plan.draws)
        # autocast is off while compiled code runs, but its dtype stays
        self._autocast = [(device, torch.get_autocast_dtype(device))
                          for device in contract.forward.autocast]  # fmt: skip
        self._probe: fx.GraphModule | None = None

    @property
    def keeps_nothing(self) -> bool:
        """Whether a call has nothing to save."""
        return self._refused is not None or not (self.held or self._plan.draws)

    @property
    def can_run(self) -> bool:
        """Whether the graph can run again."""
        return self._refused is None

    def _why_not(self, draws_as_eager: bool) -> str | None:
        plan = self._plan
        if not isinstance(self._eager, fx.GraphModule):
            return "the graph it was captured as is not known"
        if plan.draws and not draws_as_eager:
            return "it draws other random numbers than eager (fallback_random=False)"
        if None in plan.outputs:
            return "an output is a view of a value inside of a checkpointed region"
        return None

    # -- in forward --------------------------------------------------------------------------
    def keep(self, args: Sequence[Any]) -> Kept:
        """Return the values of a call to save, before it runs."""
        values = [args[i] for i in self.held]
        try:
            versions = tuple([_version(values[at]) for at in self._checked])
        except RuntimeError:  # inference tensors have no version counter
            versions = None
        for at in self._apart:
            value = values[at]
            if not value.is_leaf:
                values[at] = apart(value)
            elif self.held[at] in self._rewritten:
                values[at] = value.detach()
        for at in self._copied:
            values[at] = copied(values[at])
        states = [generator.get_state() for generator in self._generators()] if self._draws else []
        return Kept(values, versions, states)

    def _generators(self) -> Iterator[torch.Generator]:
        for device in self._plan.draws:
            if device == "cpu":
                yield torch.default_generator
            else:
                yield torch.cuda.default_generators[torch.cuda.current_device()]

    # -- in backward -------------------------------------------------------------------------
    def gradients(
        self, kept: Kept | None, saved: Sequence[Any], tangents: Sequence[Any]
    ) -> tuple[Any, ...]:
        """Return a gradient or None for each input, connected to inputs and tangents.

        Raises:
            RuntimeError: the graph cannot run again, or an input was written to since the call.
        """
        if self._refused is not None:
            raise RuntimeError(REFUSED.format(why=self._refused))
        if kept is None and not self.keeps_nothing:
            raise RuntimeError(ENDED)
        args = self._arguments(kept or Kept([], (), []), saved)
        wanting = [i for i in self._gets if args[i].requires_grad]
        # gradients are those of the values before the graph's own writes
        given = [arg.clone() if i in self._written else arg for i, arg in enumerate(args)]
        outputs = self._run(given, kept.states if kept is not None else [])
        pairs = [(out, tangent) for out, tangent in zip(outputs, tangents, strict=True)
                 if out.requires_grad and tangent is not None]  # fmt: skip
        found: Sequence[Any] = [None] * len(wanting)
        if pairs:
            found = torch.autograd.grad(
                [out for out, _ in pairs],
                [args[i] for i in wanting],
                [tangent for _, tangent in pairs],
                create_graph=True,
                allow_unused=True,
            )
        results: list[Any] = [None] * len(args)
        for i, gradient in zip(wanting, found, strict=True):
            results[i] = gradient
        return tuple(results)

    def _arguments(self, kept: Kept, saved: Sequence[Any]) -> list[Any]:
        """Return the inputs of the call; differentiable ones as separate values equal to them.

        Separate ones, because one input may be computed from another, and the gradient of each
        alone is needed.
        """
        for at, version in zip(self._checked, kept.versions or (), strict=False):
            # a separate value shares the version counter of its tensor
            if _version(kept.values[at]) != version:
                raise RuntimeError(WRITTEN.format(index=self.held[at]))
        args: list[Any] = [None] * (len(self.held) + len(self._saved))
        for i, value in zip(self.held, kept.values, strict=True):
            args[i] = value
        for i, at in self._saved.items():
            args[i] = saved[at]
        for i in self._gets:
            if args[i].requires_grad:
                args[i] = args[i].view_as(args[i])
        return args

    def _run(self, args: Sequence[Any], states: Sequence[torch.Tensor]) -> list[Any]:
        """Run the captured graph as the call did, and return its differentiable outputs."""
        if self._probe is None:
            assert isinstance(self._eager, fx.GraphModule)
            self._probe = probe(self._eager, self._plan.outputs)
        with ExitStack() as stack:
            stack.enter_context(levels.popped_to(0))
            stack.enter_context(drawing_from(list(self._generators()), states))
            for device, dtype in self._autocast:
                stack.enter_context(torch.autocast(device, dtype, cache_enabled=False))
            # A compiled function may compute gradients. Capture must not trace into this call,
            # whose own gradients would need the same call again, and so on.
            stack.enter_context(levels.frames_unseen())
            return list(self._probe(*args))


def apart(value: torch.Tensor) -> torch.Tensor:
    """Return an equal tensor with the same memory and autograd history, unaffected by later writes.

    It shares the version counter of the tensor.
    """
    with torch.enable_grad():
        return Apart.apply(value)  # type: ignore[no-untyped-call, no-any-return]


def copied(value: torch.Tensor) -> torch.Tensor:
    """Return a copy with the same autograd history, unaffected by later writes."""
    with torch.enable_grad():
        return value.clone()


class Apart(torch.autograd.Function):
    """The identity, but not as a view: a write to a base changes the history of its views."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        """Return the same memory."""
        return value.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Return the gradient."""
        return gradients[0]


def probe(captured: fx.GraphModule, outputs: Sequence[tuple[str, int | None] | None]) -> Any:
    """Return the captured graph as a module that returns the given values."""
    graph = fx.Graph()
    known: dict[fx.Node, fx.Node] = {}
    graph.graph_copy(captured.graph, known)
    named = {node.name: copy for node, copy in known.items()}
    results = []
    for place in outputs:
        assert place is not None
        name, item = place
        value = named[name]
        results.append(value if item is None else graph.call_function(_item, (value, item)))
    graph.output(tuple(results))
    return fx.GraphModule(captured, graph)


def _item(values: Sequence[Any], index: int) -> Any:
    return values[index]


@contextmanager
def drawing_from(
    generators: Sequence[torch.Generator], states: Sequence[torch.Tensor]
) -> Iterator[None]:
    """Draw random numbers from the given generator states inside a ``with`` block."""
    before = [generator.get_state() for generator in generators]
    for generator, state in zip(generators, states, strict=True):
        generator.set_state(state)
    try:
        yield
    finally:
        for generator, state in zip(generators, before, strict=True):
            generator.set_state(state)
