"""Finds the stage and the step of a compiler that make a graph go wrong.

In: a failing case and the server that judges. Out: the first stage whose artifact is wrong, and the
first optional step without which all is right, by binary search over the gate's numbers.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tc.minifier.answer import Answer
from tc.minifier.case import Call, Case
from tc.minifier.crash_site import LEVELS, Site, site_in
from tc.minifier.oracle import Oracle

STAGES = ("capture", "aot", "loops", "schedule", "kernels", "program")
DEFAULT = ("'inductor'", '"inductor"', "None")  # the backend whose options the stages take
KERNELS = "kernel"  # kind of the steps "this kernel is compiled", asked at stage kernels
BACKENDS = ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor")
STEPPED = BACKENDS[2:]  # those whose steps torch can refuse
MEANING = {
    "eager": "capture (TorchDynamo)",
    "aot_eager": "AOTAutograd",
    "aot_eager_decomp_partition": "decompositions or partitioner",
    "inductor": "Inductor",
}
#: the same, where all optional steps were refused
NO_STEP = {
    "aot_eager_decomp_partition": "the partitioner",
    "inductor": "Inductor's code generation",
}


@dataclass(frozen=True)
class Rung:
    """One stage, and how the case fares when compiled so far.

    Attributes:
        steps: kind of each optional step, and the lines of the program that it works for.
    """

    name: str
    answer: Answer
    steps: tuple[tuple[str, Sequence[str]], ...] = ()

    @classmethod
    def of(cls, name: str, row: Mapping[str, Any]) -> Rung:
        """Return the rung in a line of the server's."""
        steps = tuple((kind, tuple(lines)) for kind, lines in row.get("steps", ()))
        return cls(name, Answer.of(row), steps)

    @property
    def who(self) -> str:
        """Return who is to blame where this is the first that fails."""
        return self.name if self.name in STAGES else MEANING.get(self.name, f"backend {self.name}")

    @property
    def without_step(self) -> str:
        """Return who is to blame where no optional step is."""
        return NO_STEP.get(self.name, self.who)


@dataclass(frozen=True)
class Step:
    """An optional step of the compiler, found to be the cause.

    Attributes:
        number: its running number among all steps of the graph.
        of: how many steps there are.
        kind: e.g. ``loops.lower.tanh``, or ``kernel.`` and its name.
        among: its running number among steps of its kind.
        lines: of the program, that it works for; empty where it does not say so.
    """

    number: int
    of: int
    kind: str
    among: int
    lines: Sequence[str] = ()

    @property
    def kernel(self) -> str:
        """The kernel's name, if it is one."""
        return self.kind.partition(f"{KERNELS}.")[2] if self.kind.startswith(KERNELS) else ""

    @property
    def switch(self) -> str:
        """Kind of the steps to refuse to do without it; kernels only fused ones can be."""
        return "schedule.fuse" if self.kernel else self.kind


@dataclass
class Ladder:
    """Climbs the stages of a compiler with one case.

    Attributes:
        failure: how the case fails when compiled whole.
        report: takes a line about each rung.
        probes: questions asked.
    """

    oracle: Oracle
    case: Case
    failure: Answer
    report: Callable[[str], None] = lambda text: None
    probes: int = 0
    rungs: list[Rung] = field(default_factory=list)

    def climb(self) -> Rung | None:
        """Return the first rung that fails in the way that is looked for."""
        for name in self.names():
            rung = self.stage(name) if name in STAGES else self.backend(name)
            self.rungs.append(rung)
            self.report(f"{name} {'✗' if self.is_failure(rung) else '✓'}")
            if self.is_failure(rung):
                return rung
        return None

    def names(self) -> Sequence[str]:
        """Return the stages to try, in order; another backend than the built-in one is one."""
        backend = dict(self.case.call.options).get("backend", "None")
        is_tc = self.case.call.compiler == "tc"
        if backend in DEFAULT:
            return STAGES if is_tc else BACKENDS
        name = _named(backend)
        if name in BACKENDS and not is_tc:
            return BACKENDS[: BACKENDS.index(name) + 1]
        return ("capture" if is_tc else "eager", name)

    def is_failure(self, rung: Rung) -> bool:
        """Whether a rung fails as the whole does; what else goes wrong there is another fault."""
        return rung.answer.is_like(self.failure.identity)

    def backend(self, name: str, refuse: Mapping[str, int] | None = None) -> Rung:
        """Compile with a backend known by name; torch's may have some of its steps refused."""
        options = tuple((n, v) for n, v in self.case.call.options if n == "dynamic")
        own = dict(self.case.call.options).get("backend", "")
        written = own if name == _named(own) else repr(name)  # a function goes by what it is called
        call = Call(self.case.call.compiler, (("backend", written), *options))
        has_steps = self.case.call.compiler == "torch" and name in STEPPED
        more = {"call": str(call), **({"refuse": dict(refuse or {})} if has_steps else {})}

        def ask() -> Rung:
            row = self._ask("backend" if has_steps else "judge", more)
            return Rung.of(name, row)

        return self._decided(ask)

    def stage(self, name: str, refuse: Mapping[str, int] | None = None) -> Rung:
        """Compile up to a stage of tc, refusing some steps."""
        more = {"call": self._replayed(), "stage": name, "refuse": dict(refuse or {})}

        def ask() -> Rung:
            row = self._ask("stage", more)
            return Rung.of(name, row)

        return self._decided(ask)

    def _replayed(self) -> str:
        """Return the call that compiles up to a stage."""
        given = dict(self.case.call.options)
        names = given.keys() if given.get("backend", DEFAULT[0]) in DEFAULT else ("dynamic",)
        options = tuple((n, v) for n, v in given.items() if n in names and n != "backend")
        return str(Call("tc", (("backend", "replayed"), *options)))

    def site(self, rung: Rung, step: Step | None) -> Site | None:
        """Return the generated statement at which a program dies, if it is found."""
        more: dict[str, Any] = {"call": str(self.case.call)}
        if rung.name in STAGES:
            kernel = step.number if step and step.kernel else None
            refuse = {KERNELS: kernel + 1} if kernel else {}
            more = {"call": self._replayed(), "stage": rung.name, "refuse": refuse}
        for level in LEVELS:
            self._ask("die", {**more, "level": level})
            if site := site_in(self.oracle.server.folder):
                return site
        return None

    def _decided(self, ask: Callable[[], Rung]) -> Rung:
        """Ask as often as a failure that does not always show has to be looked for."""
        return self.oracle.rule.decided(ask, self.is_failure)

    def _ask(self, action: str, more: Mapping[str, Any]) -> dict[str, Any]:
        case = self.case
        self.probes += 1
        return self.oracle.server.ask(
            {"do": action, "program": case.program(), "arguments": case.arguments,
             "backward": case.backward, "seconds": self.oracle.seconds, **more}
        )  # fmt: skip

    def step(self, rung: Rung) -> Step | None:
        """Return the step that a stage needs in order to fail; None if it fails without any.

        Refusing all steps from N on: the largest N that passes, its own step being the first that
        the failure needs. Where the plan is right and its kernels are not, the steps are the
        kernels: one that is refused is interpreted.
        """
        kind = KERNELS if rung.name == "kernels" else "*"
        steps = [one for one in rung.steps if kind == "*" or one[0].startswith(f"{kind}.")]
        total = len(steps)
        refusing = self.stage if rung.name in STAGES else self.backend
        if not total or self.is_failure(refusing(rung.name, {kind: 1})):
            return None
        low, high = 1, total + 1  # refused from `low` on it passes, from `high` on it fails
        last = steps
        while high - low > 1:
            middle = (low + high) // 2
            tried = refusing(rung.name, {kind: middle})
            self.report(f"step {middle} of {total}")
            if self.is_failure(tried):
                high = middle
                last = steps if kind == KERNELS else list(tried.steps)
            else:
                low = middle
        found, lines = last[low - 1]
        among = sum(name == found for name, _ in last[:low])
        return Step(low, total, found, among, lines)


def _named(backend: str) -> str:
    """Return the name of a backend as it is written in a call: that of a string, else the text."""
    try:
        return str(ast.literal_eval(backend))
    except (ValueError, SyntaxError):
        return backend
