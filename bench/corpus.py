"""tc-minify on faults drawn at random in ordinary programs drawn at random.

    python bench/corpus.py --count 60 --seed 7      # a line each, a summary at the end
    python bench/corpus.py --only 12 --seed 7       # one of them; --show prints its program

A host is put together from a model, a source of data and a use (inference, training, autocast,
sizes that change), in one file or several. It compares compiled code with eager at each step. Half
of the faults are kinds of failures (`faults/sitecustomize.py`); the other half breaks one step of
the compiler, drawn from those that a sound compile of that very host takes: rules,
decompositions, lowerings, passes, fusions, kernels and guards (`faults/steps.py`). Steps whose
fault does not show in the host's own comparison are drawn again.

A result counts if it fails with the same identity in every verification run, holds what the fault
needs, has no more calls than that, and no file is left behind.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from blame import facts_of
from faultbench import run
from host_parts import DATA, MODELS, ROWS, USES, VARY, files_of
from hosts import LIBRARY, OPCODES, OPS, SCALAR, holds

KINDS = ("wrong", "kernel", "crash", "third", "nan", "die", "flaky", "gcc", "opcode", "hang")
STEPS = ("lower", "rule", "guard", "decompose", "kernel", "fuse", "pass")
#: calls that a minimal graph may have, by the kind of the step that is broken
CALLS = {"lower": 2, "decompose": 2, "rule": 4, "fuse": 4, "pass": 4}
LINES, LINES_OF_SCRIPTS = 20, 25  # of a kernel of many operations: one more for each
#: operation -> those of hosts that are decomposed into it, or lowered to it, besides its own
ALSO_OF = {
    "exp": ("sigmoid", "softmax", "silu", "softplus"), "tanh": ("gelu",), "erf": ("gelu",),
    "log1p": ("softplus",),
}  # fmt: skip
DRAWS = 6  # of one kind in one host, until one shows


@dataclass(frozen=True)
class Place:
    """A host: which parts it is made of.

    Attributes:
        varies: the source of what it changes between steps; nothing: nothing is.
    """

    model: str
    data: str
    use: str
    layout: int
    varies: str = ""

    def __str__(self) -> str:
        return f"{self.model}, {self.data}, {self.use}, {self.layout + 1} files"

    def write(self, folder: Path, op: str) -> None:
        """Write its files."""
        texts = files_of(self.model, self.data, self.use, self.layout, self.varies, op)
        for name, text in {**texts, "rows.csv": ROWS}.items():
            (folder / name).write_text(text)


@dataclass(frozen=True)
class Planted:
    """A fault in a host.

    Attributes:
        fault: as `TC_TEST_FAULT` names it.
        word: what the result has to hold: one of several separated by bars.
        calls: how many calls a graph may have; 0: it is not asked.
        lines: how long the result may be.
    """

    place: Place
    fault: str
    op: str
    word: str = ""
    calls: int = 0
    lines: int = LINES
    options: tuple[str, ...] = ()


@dataclass
class Drawing:
    """A random choice of hosts and faults.

    Attributes:
        hidden: steps that were drawn and did not show.
    """

    source: random.Random
    hidden: int = 0
    places: list[Place] = field(default_factory=list)

    def place(self, varies: str = "") -> Place:
        """Return a host; all parts come up before one is used again."""
        if not self.places:
            every = [Place(m, d, u, n % 3) for n, (m, d, u) in enumerate(
                (m, d, u) for m in MODELS for d in DATA for u in USES)]  # fmt: skip
            self.places = self.source.sample(every, len(every))
        found = self.places.pop()
        return Place(found.model, found.data, found.use, found.layout, varies)

    def kind(self, kind: str) -> Planted:
        """Return a fault of a kind of failure."""
        place = self.place()
        op = self.source.choice(SCALAR if kind in ("gcc", "kernel") else OPS)
        if kind == "opcode":
            name = self.source.choice(sorted(OPCODES))
            return Planted(place, f"tc:opcode:{name}", op, OPCODES[name])
        more = {"flaky": ("--runs", "20"), "hang": ("--seconds", "60")}.get(kind, ())
        lines = LINES_OF_SCRIPTS if kind == "third" else LINES
        calls = 1 if kind in ("wrong", "nan", "kernel", "gcc", "crash") else 0
        if kind == "third":
            place = Place(place.model, place.data, "new graphs", place.layout)
        broken = (op, *ALSO_OF.get(op, ()))
        return Planted(place, f"tc:{kind}:{op}", op, "|".join(broken), calls, lines, more)

    def step(self, kind: str) -> Planted | None:
        """Return a fault of a step of the compiler that shows in a host; None: none showed."""
        varied = self.source.choice(sorted(VARY)) if kind == "guard" else ""
        place, op = self.place(varied), self.source.choice(OPS)
        names = [name for name in steps_of(place, op).get(kind, []) if name.endswith(varied)]
        self.source.shuffle(names)
        for name in names[:DRAWS]:
            if not shows(place, op, f"tc-step:{kind}:{name}"):
                self.hidden += 1
                continue
            calls = name.count("+") + 2 if kind == "kernel" else CALLS.get(kind, 0)
            lines = LINES_OF_SCRIPTS if kind == "guard" else LINES + max(calls - 5, 0)
            return Planted(place, f"tc-step:{kind}:{name}", op, "", calls, lines)
        return None


def steps_of(place: Place, op: str) -> dict[str, list[str]]:
    """Every step that a sound compile of a host takes, by kind."""
    with tempfile.TemporaryDirectory(prefix="tc-bench-") as name:
        folder, log = Path(name), Path(name, "log")
        place.write(folder, op)
        done = run(["script.py"], folder, "tc-step:list:", {"TC_TEST_FAULT_LOG": str(log)})
        assert done.code == 0, f"{place}: {done.err}"
        steps: dict[str, set[str]] = {}
        for kind, step in facts_of(log):
            steps.setdefault(str(kind), set()).add(str(step))
    return {kind: sorted(names) for kind, names in steps.items()}


def shows(place: Place, op: str, fault: str) -> bool:
    """Return whether a host's own comparison finds a fault, and the step was taken."""
    with tempfile.TemporaryDirectory(prefix="tc-bench-") as name:
        folder, log = Path(name), Path(name, "log")
        place.write(folder, op)
        done = run(["script.py"], folder, fault, {"TC_TEST_FAULT_LOG": str(log)})
        return "AssertionError" in done.err and any(one[0] == "fired" for one in facts_of(log))


@dataclass(frozen=True)
class Outcome:
    """What tc-minify made of a fault; ``minimal`` only where it is verified, too."""

    minimal: bool
    verified: bool
    lines: int
    cpu: float
    why: str


def minified(planted: Planted) -> Outcome:
    """Run tc-minify on a fault."""
    with tempfile.TemporaryDirectory(prefix="tc-bench-") as name:
        folder = Path(name)
        planted.place.write(folder, planted.op)
        before = {path.name for path in folder.iterdir()}
        done = run(["-m", "tc.minifier", "script.py", "--json", *planted.options], folder,
                   planted.fault)  # fmt: skip
        left = {path.name for path in folder.iterdir()} - before
        if not done.out.startswith("{"):
            last = (done.err.splitlines() or ["no word"])[-1]
            return Outcome(False, False, 0, done.cpu, f"exit code {done.code}: {last[:150]}")
        found = json.loads(done.out)
        text = (folder / "minified.py").read_text()
    lines = found["lines"]
    always = found["rule"] == [1, 1]
    verified = done.code == 0 and found["verified"] >= (found["runs"] if always else 1)
    is_held = holds(text, planted.word) or LIBRARY in found["message"]
    wrong = [
        *([] if verified else ["not verified"]),
        *([] if is_held else [f"{planted.word} is missing"]),
        *(["too many calls"] if 0 < planted.calls < found.get("calls", 0) else []),
        *(["too long"] if lines > planted.lines else []),
        *(f"left {one}" for one in left - {"minified.py", "cache", "inductor", "__pycache__"}),
    ]
    why = (
        f"{found.get('calls_before', found.get('lines_before'))} → {found.get('calls', '-')} calls,"
        f" {lines} lines, {found['verified']} of {found['runs']}, {found['tries']} tries"
    )
    return Outcome(not wrong, verified, lines, done.cpu, "; ".join([*wrong, why]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--first", type=int, default=0, help="number of the first fault")
    parser.add_argument("--only", type=int, help="one fault by its number")
    parser.add_argument("--show", action="store_true", help="print each host's script")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    numbers = range(options.first, options.first + options.count)
    if options.only is not None:
        numbers = range(options.only, options.only + 1)
    outcomes, hosts, hidden = [], set(), 0
    for number in numbers:
        drawing = Drawing(random.Random(options.seed * 1_000_003 + number))
        planted = fault_of(drawing, number)
        if options.show:
            place = planted.place
            texts = files_of(place.model, place.data, place.use, place.layout, place.varies,
                             planted.op)  # fmt: skip
            print("\n".join(f"# -- {name}\n{text}" for name, text in texts.items()))
        found = minified(planted)
        outcomes.append(found)
        hosts.add(planted.place)
        hidden += drawing.hidden
        print(f"{'ok ' if found.minimal else 'NOT'} {number:3} {planted.fault[:46]:46} "
              f"({planted.place})  {found.why}, {found.cpu:.0f} CPU s", flush=True)  # fmt: skip
    minimal, verified = (sum(getattr(one, w) for one in outcomes) for w in ("minimal", "verified"))
    median = statistics.median(one.lines for one in outcomes)
    print(f"{len(outcomes)} faults in {len(hosts)} hosts ({hidden} draws did not show): minimum "
          f"{minimal}, verified {verified}, median {median:g} lines")  # fmt: skip


def fault_of(drawing: Drawing, number: int) -> Planted:
    """Return the fault of a number: even ones are kinds of failures, odd ones steps."""
    if number % 2 == 0:
        return drawing.kind(KINDS[number // 2 % len(KINDS)])
    planted = drawing.step(STEPS[number // 2 % len(STEPS)])
    while planted is None:  # this host takes no such step, or none that shows
        planted = drawing.step(drawing.source.choice(STEPS))
    return planted


if __name__ == "__main__":
    main()
