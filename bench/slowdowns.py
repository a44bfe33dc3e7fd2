"""Programs with one planted slowdown, drawn at random: is it the first finding, at its line?

    python bench/slowdowns.py --count 40
    python bench/slowdowns.py --seed 7 --families item,layout --keep FOLDER
    python bench/slowdowns.py --families sound --count 20      programs with nothing planted
    python bench/slowdowns.py --compiler torch --count 20      under torch.compile, by TORCH_TRACE

A program is a small model, called some hundred times (thousands where a call takes microseconds),
with one thing in it that makes its steps slow: family, host, names, sizes and place are drawn from
the seed, which is printed (`slowdown_programs.py`, `slowdown_hosts.py`). Each runs in a process of
its own with a trace, which `tc-report summary --json` reads. It counts as named right if the first
finding has a code of the family and one of the planted lines, which are marked in the program.
``--keep`` leaves programs and traces in a folder.

A sound program counts as right if it has no finding that code hosts show as a warning or an error:
what only took time is a note. Notes are printed. The findings of `TIMED` families rest on times and
on shares of what the machine can do, as it was measured at rest: other processes on its cores or
its memory may take a verdict away. What comes out wrong there runs again, and the second
outcome is printed beside the first, which counts.

Exit code 1 if fewer than nine of ten are named right.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from slowdown_hosts import COMPILERS, Draw, Planted
from slowdown_programs import FAMILIES, sound

ROOT: Final = Path(__file__).resolve().parent.parent
NEEDED: Final = 0.9
#: seconds after which a program counts as failed
LIMIT: Final = 300
SOUND: Final = "sound"
#: families whose findings rest on times that were measured in the run
TIMED: Final = ("layout", "memory", "tiny", "guards", "double", "grown", SOUND)
#: families that torch.compile's log can show: it has no times of steps, and no line of a reset
IN_TORCH: Final = tuple(name for name in FAMILIES if name not in (*TIMED, "fallback", "remade"))
_TRACES: Final = {"tc": "TC_TRACE", "torch": "TORCH_TRACE"}


@dataclass(frozen=True)
class Named:
    """A finding: what it says first; ``level`` is that of code hosts, "" if nobody asked."""

    code: str
    line: int
    level: str
    text: str
    fix: str

    def __str__(self) -> str:
        return f"{self.code} :{self.line} {self.text}"


def run(planted: Planted, folder: Path, compiler: str) -> None:
    """Run a program with a trace; both stand in a folder.

    Raises:
        RuntimeError: it failed.
    """
    folder.mkdir(parents=True)
    script = folder / "program.py"
    script.write_text(planted.text)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TC_LOGS": ""}
    environment[_TRACES[compiler]] = str(folder / "trace")
    done = _python(environment, str(script))
    if done.returncode:
        raise RuntimeError(f"{script} failed:\n{done.stderr[-2000:]}")


def _python(environment: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**environment, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=environment, timeout=LIMIT
    )


def findings(folder: Path, with_levels: bool = False) -> list[Named]:
    """Return what `tc-report` finds in the trace of a program, in its order.

    Args:
        with_levels: ask for the levels of code hosts, too, which takes another run of it.

    Raises:
        RuntimeError: it failed.
    """
    found: list[dict[str, Any]] = _report(folder, "--json")["findings"]
    levels: dict[str, str] = {}
    if with_levels:
        shown = _report(folder, "--format=sarif")["runs"][0]["results"]
        levels = {one["properties"]["id"]: one["level"] for one in shown}
    return [
        Named(
            one["code"], one["where"]["line"], levels.get(one["id"], ""),
            f"{one['title']}  {one['cost']}", (one["fix"] or ["no edit is known"])[0],
        )
        for one in found
    ]  # fmt: skip


def _report(folder: Path, how: str) -> Any:
    command = ("-m", "tc.tlparse", "summary", str(folder / "trace"), how)
    done = _python(dict(os.environ), *command)
    if done.returncode:
        raise RuntimeError(f"tc-report of {folder} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def is_right(planted: Planted, found: Sequence[Named]) -> bool:
    """Return whether the first finding names the planted cause and a line of it.

    Of a sound program: whether there is nothing above a note.
    """
    if not planted.codes:
        return all(one.level == "note" for one in found)
    if not found or not found[0].code.startswith(planted.codes):
        return False
    return found[0].line in planted.lines and planted.word in found[0].fix


def drawn(name: str, draw: Draw) -> Planted:
    """Return a program of a family."""
    return (FAMILIES | {SOUND: sound})[name](draw)


def _verdict(planted: Planted, folder: Path, compiler: str) -> tuple[str, list[Named]]:
    try:
        run(planted, folder, compiler)
        found = findings(folder, with_levels=not planted.codes)
    except subprocess.TimeoutExpired:
        return f"no end after {LIMIT} s", []
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return "FAILED", []
    return "right" if is_right(planted, found) else "WRONG", found


def main() -> None:
    options = _options()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    draw, right, tried = Draw(seed), Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="tc-slowdowns-") as temporary:
        place = Path(options.keep or temporary)
        for number in range(options.count):
            name = options.names[number % len(options.names)]
            planted = drawn(name, draw).under(options.compiler, number)
            folder = place / f"{number:02}-{name}"
            if options.only is not None and number != options.only:
                continue
            verdict, found = _verdict(planted, folder, options.compiler)
            tried[name] += 1
            if verdict != "right" and name in TIMED:
                second = folder.with_name(f"{folder.name}-again")
                verdict += f" (again: {_verdict(planted, second, options.compiler)[0]})"
            right[name] += verdict == "right"
            first = "; ".join(map(str, found[:2])) or "no finding"
            print(f"{folder.name:14} {verdict}  planted {planted.lines}  {first}", flush=True)
            if found and options.fixes:
                print(f"{'':16}{found[0].fix}", flush=True)
    for name, times in tried.items():
        print(f"{name:10} {right[name]} of {times}{'  (timed)' if name in TIMED else ''}")
    share = right.total() / max(tried.total(), 1)
    print(f"named right as the first finding: {right.total()} of {tried.total()} ({share:.0%})")
    sys.exit(share < NEEDED)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=40, help="programs (%(default)s)")
    parser.add_argument("--seed", type=int, help="(drawn, and printed)")
    parser.add_argument("--only", type=int, help="run the one of this number alone")
    parser.add_argument("--families", help=f"comma-separated (all); {SOUND}: nothing planted")
    parser.add_argument("--compiler", choices=COMPILERS, default="tc")
    parser.add_argument("--fixes", action="store_true", help="print what the first finding advises")
    parser.add_argument("--keep", help="leave programs and traces in this new folder")
    options = parser.parse_args()
    every = FAMILIES if options.compiler == "tc" else IN_TORCH
    options.names = (options.families or ",".join(every)).split(",")
    if unknown := set(options.names) - {*FAMILIES, SOUND}:
        known = ", ".join((*FAMILIES, SOUND))
        parser.error(f"families are {known}, not {', '.join(sorted(unknown))}")
    if options.keep and Path(options.keep).exists():
        parser.error(f"{options.keep} exists already")
    return options


if __name__ == "__main__":
    main()
