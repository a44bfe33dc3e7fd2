"""Drives the reductions: a case and an oracle in, the smallest case that fails alike out."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tc.minifier.answer import Answer
from tc.minifier.case import Case, Input
from tc.minifier.oracle import Oracle
from tc.minifier.passes import branches, context, inputs, localise, nodes

Fails = Callable[[Case], bool]
Pass = Callable[[Case, Fails], Iterator[Case]]

CALLS: tuple[Pass, ...] = (nodes.needed_steps, nodes.delta_debugging, nodes.singles)
PASSES: tuple[Pass, ...] = (
    *CALLS,
    branches.inline,
    branches.shorten,
    nodes.fewer_outputs,
    inputs.no_gradients,
    inputs.made_values,
    inputs.smaller_shapes,
    inputs.contiguous_layout,
    inputs.common_types,
    inputs.merged,
    nodes.bypass,
    context.no_setup,
    context.fewer_options,
    context.fewer_settings,
)
ROUNDS = 3


@dataclass
class Reduction:
    """A running reduction.

    Attributes:
        best: the smallest case so far.
        report: takes each improvement, and the pass that made it.
        passes_done: name -> improvements.
    """

    oracle: Oracle
    best: Case
    report: Callable[[Case, str], None] = lambda case, name: None
    passes_done: dict[str, int] = field(default_factory=dict)

    def run(self) -> Case:
        """Apply all passes until none helps."""
        for _ in range(ROUNDS):
            before = self.best
            for one in PASSES:
                self._apply(one)
            if self.best == before or self.best.cost == before.cost:
                break
        self.embed()
        return self.best

    def calls_only(self, answer: Answer) -> Case:
        """Leave out calls, and nothing else."""
        self.guess(answer)
        self.forward_first(answer)
        for one in CALLS:
            self._apply(one)
        return self.best

    def forward_first(self, answer: Answer) -> None:
        """Compute no gradients where it fails before they are; another op may fail in backward."""
        if answer.detail.get("forward"):
            self._apply(inputs.forward_alone)

    def guess(self, answer: Answer) -> bool:
        """Try the likely cause at once; return whether it is to blame.

        Args:
            answer: how it failed.
        """
        before = self.best
        error_text = str(answer.detail.get("text", ""))
        one: Pass = functools.partial(self._named, error_text=error_text)
        if self.oracle.target is not None and self.oracle.target.kind in ("wrong", "nan"):
            one = self._localise
        elif not error_text:
            return False
        if before.backward and answer.detail.get("forward"):  # cheaper to compile, and likely
            self._apply(one, inputs.forward_only(before))
        if self.best == before:
            self._apply(one)
        return self.best != before

    def _named(self, case: Case, fails: Fails, error_text: str) -> Iterator[Case]:
        """See `localise.named_steps`."""
        yield from localise.named_steps(case, fails, error_text)

    def _localise(self, case: Case, fails: Fails) -> Iterator[Case]:
        """See `localise.first_wrong_steps`."""

        def differing(exposed: Case) -> list[int]:
            return list(self.oracle.judge(exposed).detail.get("outputs", ()))

        yield from localise.first_wrong_steps(case, fails, differing)

    def _apply(self, one: Pass, case: Case | None = None) -> None:
        for smaller in one(case or self.best, self.oracle.fails):
            if any(step.name not in smaller.facts for step in smaller.steps):
                smaller = self.oracle.learn(smaller)
            self._take(smaller, getattr(one, "__name__", "named").strip("_"))

    def _take(self, case: Case, name: str) -> None:
        if case != self.best:
            self.best = case
            self.passes_done[name] = self.passes_done.get(name, 0) + 1
            self.report(case, name)

    def embed(self) -> None:
        """Write what is left of the recorded values into the text."""
        embedded = dataclasses.replace(
            self.best, inputs=tuple(self._embedded(item) for item in self.best.inputs)
        )
        if embedded.inputs != self.best.inputs and self.oracle.fails(embedded):
            self._take(embedded, "embed")

    def _embedded(self, item: Input) -> Input:
        if item.fill != "recorded":
            return item
        row = self.oracle.server.ask({"do": "text", "key": item.key, "shape": item.shape})
        if row["kind"] != "ok":
            return item
        return dataclasses.replace(item, fill="text", text=row["text"], stride=())
