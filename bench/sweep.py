"""Speed as a distribution: random programs, timed against eager and torch.compile.

    python bench/sweep.py --minutes 20
    python bench/sweep.py --seed 7 --programs 300 --out sweep.jsonl      # resumes a run
    python bench/sweep.py --again sweep.jsonl                            # tc alone, same programs
    python bench/sweep.py --show 7:12                                    # the text of one program

Programs are drawn by `sweep_programs.py`, from a seed that is drawn itself unless given, and
printed. Each is compiled, compared with eager and timed by `sweep_worker.py` in two processes, tc
in one and torch.compile in the other, in turns; times are CPU time of one thread, the least of
many batches. ``ratio`` is the other's time by tc's: above 1, tc is faster. The report has
percentiles against torch.compile and against the better of torch.compile and eager, for all and
by family, and the worst programs with what the trace says about them. Results that differ from
eager's by more than rounding are listed and make the exit code 1.

With ``--again`` torch.compile is not run: its times are those of the file, scaled by eager's time
then and now.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from sweep_programs import FAMILIES, draw  # noqa: E402

#: seconds in which one program is compiled, and CPU seconds for which one call is timed at a time
PATIENCE, SPAN = 150, 0.02
#: turns of the two processes at timing a program
TURNS = 3
#: programs after which the processes are begun again, so that their memory stays small
FRESH = 60
QUANTILES = (0, 1, 5, 10, 25, 50, 75, 95)


class Side:
    """A worker process of one compiler, begun again when it dies or has run long."""

    def __init__(self, which: str, cache: str) -> None:
        self.which, self.cache, self.served = which, cache, 0
        self.process: subprocess.Popen[str] | None = None

    def send(self, **request: Any) -> None:
        """Ask for something; `answer` waits for the result."""
        if self.process is None or self.process.poll() is not None:
            environment = {
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "OMP_NUM_THREADS": "1",
                "TC_CACHE_DIR": f"{self.cache}/tc",
                "TORCHINDUCTOR_CACHE_DIR": f"{self.cache}/inductor",
                "TORCHINDUCTOR_COMPILE_THREADS": "1",
            }
            command = [sys.executable, str(ROOT / "bench" / "sweep_worker.py"), self.which]
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
            self.served = 0
        self.served += request["do"] == "compile"
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def answer(self, seconds: float = PATIENCE) -> dict[str, Any]:
        """Return the result of the last request, or an error if there is none in time."""
        import select

        assert self.process is not None and self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        line = self.process.stdout.readline() if ready else ""
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        why = "died" if ready else f"took more than {seconds:.0f} s"
        self.stop()
        return {"error": f"the process {why}"}

    def ask(self, **request: Any) -> dict[str, Any]:
        self.send(**request)
        return self.answer()

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.process = None


def accepted(name: str, folder: Path) -> tuple[str, Any]:
    """Return the path and description of a program; trials that eager refuses are drawn again."""
    for trial in range(50):
        drawn = draw(f"{name}:{trial}")
        path = folder / "program.py"
        path.write_text(drawn.source)
        if _runs(drawn):
            return str(path), drawn
    raise SystemExit(
        f"sweep: no program of seed {name} runs in eager; mend the tables of its family"
    )


def _runs(drawn: Any) -> bool:
    import torch
    from sweep_worker import Case

    torch.set_num_threads(1)
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(drawn.source)
        file.flush()
        try:
            case = Case(file.name, drawn.trained)
            case.caller(case.function, case.arguments)()
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
            return False
    return True


def measured(name: str, folder: Path, sides: Sequence[Side]) -> dict[str, Any]:
    """Return the record of one program: times of each side, in microseconds."""
    path, drawn = accepted(name, folder)
    record: dict[str, Any] = {"name": name, "family": drawn.family, "source": drawn.source,
                              "symbolic": drawn.symbolic, "trained": drawn.trained}  # fmt: skip
    for side in sides:
        if side.served >= FRESH:
            side.stop()
    request = {"do": "compile", "path": path, "symbolic": drawn.symbolic, "trained": drawn.trained}
    for side in sides:
        side.send(**request)
    for side in sides:
        record[side.which] = side.answer()
    able = [side for side in sides if "error" not in record[side.which]]
    for _ in range(TURNS if len(able) == len(sides) else 0):
        for side in able:
            found = side.ask(do="time", seconds=SPAN)
            kept = record[side.which]
            if "error" in found:
                kept["error"] = found["error"]
                return record
            for key, value in found.items():
                kept[key] = min(value, kept.get(key, math.inf))
    return record


def ratios(record: dict[str, Any]) -> tuple[float, float] | None:
    """Return torch.compile's time by tc's, and that of the better of it and eager."""
    mine, theirs = record.get("tc", {}), record.get("torch", {})
    if "compiled" not in mine or "compiled" not in theirs:
        return None
    # the unit of both processes is eager's time in them
    inductor = theirs["compiled"] / theirs["eager"] * mine["eager"]
    return inductor / mine["compiled"], min(inductor, mine["eager"]) / mine["compiled"]


def mean(values: Sequence[float]) -> float:
    """Return the geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def at(values: Sequence[float], percent: float) -> float:
    """Return a percentile, between neighbours by interpolation."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def line(title: str, values: Sequence[float]) -> str:
    shown = "  ".join(f"p{q} {at(values, q):.2f}" for q in QUANTILES)
    return f"{title:28} n {len(values):4}  mean {mean(values):.2f}  {shown}"


def report(records: Sequence[dict[str, Any]], worst: int, folder: Path) -> int:
    """Print the distribution and the worst programs; 1 if a result of tc was wrong."""
    timed = [(r, *found) for r in records if (found := ratios(r))]
    if timed:
        print(line("by torch.compile's time", [a for _, a, _ in timed]))
        print(line("by the better of the two", [b for _, _, b in timed]))
        eager = [r["tc"]["eager"] / r["tc"]["compiled"] for r, _, _ in timed]
        print(line("by eager's time", eager))
        costs = [sum(r[w]["compile_s"] for r, _, _ in timed) for w in ("tc", "torch")]
        print(f"CPU seconds of compiling: tc {costs[0]:.1f}, torch.compile {costs[1]:.1f}")
        print("\nby family, against the better of the two:")
        for name, _ in FAMILIES.rows():
            found = [b for r, _, b in timed if r["family"] == name]
            if found:
                print(line(f"  {name}", found))
    _worst(sorted(timed, key=lambda row: row[2])[:worst], folder)
    wrong = 0
    for record in records:
        for which in ("tc", "torch"):
            found = record.get(which, {})
            fault = found.get("error") or found.get("differs")
            if fault:
                wrong += which == "tc"
                print(f"\n{record['name']} {record['family']}: {which}: {fault}\n{body(record)}")
    return int(bool(wrong))


def body(record: dict[str, Any]) -> str:
    """Return what of a program's text is its own."""
    text: str = record["source"]
    return text[text.index("def make()") :].rstrip()


def _worst(rows: Sequence[tuple[dict[str, Any], float, float]], folder: Path) -> None:
    """Print programs with what the trace says about them."""
    side = Side("tc", str(folder))
    for record, theirs, better in rows:
        path = folder / "program.py"
        path.write_text(record["source"])
        kind = "".join(f", {k}" for k in ("trained", "symbolic") if record[k])
        mine = record["tc"]
        times = f"tc {mine['compiled']:.1f} us, eager {mine['eager']:.1f} us"
        ratio = f"{better:.2f} of the better, {theirs:.2f} of torch.compile"
        print(f"\n{record['name']} {record['family']}{kind}: {ratio}; {times}")
        print(body(record))
        why = side.ask(do="explain", path=str(path), symbolic=record["symbolic"],
                       trained=record["trained"])  # fmt: skip
        for key in ("error", "calls", "refused", "kernels"):
            if why.get(key):
                text = why[key] if isinstance(why[key], str) else "; ".join(why[key])
                print(f"  {key}: {text}")
    side.stop()


def _read(path: Path | None) -> list[dict[str, Any]]:
    if path is None or not path.exists():
        return []
    return [json.loads(text) for text in path.read_text().splitlines()]


def _sweep(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Measure programs until the time is over; return all records of the file."""
    old = {r["name"]: r for r in _read(options.again)}
    done = {r["name"]: r for r in _read(options.out)}
    names = list(old) or [f"{options.seed}:{k}" for k in range(options.programs)]
    if options.family:
        names = [n for n in names if n not in old or old[n]["family"] in options.family]
    sides = [Side(which, str(folder)) for which in (("tc",) if old else ("tc", "torch"))]
    until = time.monotonic() + 60 * options.minutes
    for name in names:
        if name in done:
            continue
        if time.monotonic() > until:
            print(f"{len(done)} of {len(names)} programs in {options.minutes} minutes")
            break
        record = measured(name, folder, sides)
        if name in old:
            record["torch"] = old[name].get("torch", {})
        done[name] = record
        if options.out:
            with open(options.out, "a") as file:
                file.write(json.dumps(record) + "\n")
        found = ratios(record)
        shown = "not timed" if found is None else f"{found[0]:.2f} {found[1]:.2f}"
        print(f"{name} {record['family']} {shown}", file=sys.stderr, flush=True)
    for side in sides:
        side.stop()
    return [done[name] for name in names if name in done]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, help="by default a new one, which is printed")
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--out", type=Path, help="JSON lines; what it has is not run again")
    parser.add_argument("--again", type=Path, help="JSON lines of another run, for tc alone")
    parser.add_argument("--family", action="append", help="of --again, only these families")
    parser.add_argument("--worst", type=int, default=20)
    parser.add_argument("--show", metavar="SEED:NUMBER", help="print one program")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1 << 20)
    with tempfile.TemporaryDirectory(prefix="tc-sweep-") as folder:
        if options.show:
            print(accepted(options.show, Path(folder))[1].source)
            return 0
        print(f"seed {options.seed}", flush=True)
        return report(_sweep(options, Path(folder)), options.worst, Path(folder))


if __name__ == "__main__":
    raise SystemExit(main())
