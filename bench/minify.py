"""tc-minify on twenty broken compilers; beside PyTorch's minifier where the fault is in its own.

    python bench/minify.py                     # all, of tc only
    python bench/minify.py --beside torch      # the faults of torch.compile, both tools in turn

PyTorch's is driven as its users do: the script once with TORCHDYNAMO_REPRO_AFTER=aot, then
``minifier_launcher.py minify --no-isolate`` (its cheaper way; by default each of its questions is
a process of its own). Seconds are CPU seconds of all processes, from the script to the result;
tc's hold the five runs that verify it. Nodes are inputs, calls and the output.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from faultbench import MINIFY, Fault, run

HEADER = (
    f"{'fault':30} {'nodes':>9} {'floor':>5} {'tries':>5} {'lines':>5} {'alike':>5} {'CPU s':>7}"
)


@dataclass(frozen=True)
class Result:
    """What a tool made of a fault; nodes 0: nothing that fails."""

    before: int = 0
    nodes: int = 0
    tries: int = 0
    lines: int = 0
    alike: bool = False
    cpu: float = 0.0
    note: str = ""

    def row(self, name: str, floor: int) -> str:
        size = f"{self.before}→{self.nodes}"
        alike = "yes" if self.alike else "no"
        return (
            f"{name:30} {size:>9} {floor:>5} {self.tries:>5} {self.lines:>5} {alike:>5} "
            f"{self.cpu:>7.1f} {self.note}"
        )


def got(fault: Fault) -> Result:
    """Run tc-minify."""
    with tempfile.TemporaryDirectory(prefix="tc-bench-") as name:
        folder = Path(name)
        fault.script(folder)
        done = run(["-m", "tc.minifier", "script.py", "--json"], folder, fault.name)
        if not done.out:
            return Result(cpu=done.cpu, note=(done.err.splitlines() or [""])[-1][:120])
        found = json.loads(done.out)
        text = (folder / "minified.py").read_text()
    right = all(word in text for word in fault.words) and found["self_contained"]
    nodes = found["calls"] + found["inputs"] + 1
    return Result(
        found["nodes_before"], nodes, found["tries"], found["lines"],
        right and found["verified"] == 5, done.cpu,
    )  # fmt: skip


def theirs(fault: Fault) -> Result:
    """Run PyTorch's minifier: the failing script, then the launcher it wrote."""
    level = "2" if fault.fault.startswith(("crash", "symbolic")) else "4"
    settings = {"TORCHDYNAMO_REPRO_AFTER": "aot", "TORCHDYNAMO_REPRO_LEVEL": level}
    with tempfile.TemporaryDirectory(prefix="tc-bench-") as name:
        folder = Path(name)
        fault.script(folder)
        first = run(["script.py"], folder, fault.name, settings)
        launchers = sorted(folder.glob("torch_compile_debug/**/minifier_launcher.py"))
        if not launchers:
            return Result(cpu=first.cpu, note="it writes no launcher")
        second = run(
            [str(launchers[-1]), "minify", "--no-isolate"], launchers[-1].parent, fault.name
        )
        cpu = first.cpu + second.cpu
        before = graph_size(launchers[-1].read_text())
        result = launchers[-1].parent / "repro.py"
        if not result.exists():
            last = (second.err.strip().splitlines() or ["?"])[-1]
            return Result(before, cpu=cpu, note=last[:80])
        text = result.read_text()
        again = run([str(result), "run"], result.parent, fault.name)
        tries = len(re.findall(r"^Trying granularity|^Strategy:", second.err, re.M))
        return Result(
            before, graph_size(text), tries, len(text.splitlines()), again.code != 0, cpu
        )  # fmt: skip


def graph_size(text: str) -> int:
    """Inputs, calls and the output of the graph printed in a repro."""
    head = re.search(r"def forward\(self,?([^)]*)\)", text)
    inputs = len([part for part in head[1].split(",") if part.strip()]) if head else 0
    body = text[head.end() :].partition("\n\n")[0] if head else ""
    return inputs + len(re.findall(r"^        \w+.* = (?!None)", body, re.M)) + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--beside", choices=("torch",), help="run PyTorch's minifier too")
    parser.add_argument("only", nargs="*", help="words that a fault's name holds")
    options = parser.parse_args()
    chosen = [f for f in MINIFY if all(word in f.name for word in options.only)]
    if options.beside:
        chosen = [fault for fault in chosen if fault.compiler == "torch"]
    print(HEADER)
    good = 0
    for fault in chosen:
        mine = got(fault)
        good += mine.alike and mine.nodes <= fault.nodes
        print(mine.row(fault.name, fault.nodes), flush=True)
        if options.beside:
            print(theirs(fault).row("   PyTorch's minifier", fault.nodes), flush=True)
    print(f"at the floor and alike: {good} of {len(chosen)}")


if __name__ == "__main__":
    main()
