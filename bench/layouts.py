"""Random layouts, compiled and compared with eager: how many programs, how many differences.

    python bench/layouts.py --programs 20000 --seed 1

    python bench/layouts.py --graphs 20000 --values 10

With ``--graphs`` they are loop graphs over symbolic sizes, drawn without a program: each is
printed, and what is printed goes through the C compiler's front end; one in ``--values`` is built
and run at three sizes against the reference interpreter.

Without ``--seed`` one is drawn and printed. Each failure is printed with its program as it is
found. A process runs `FRESH` programs at most, and its last line counts them; that of a longer run
counts the processes with failures. ``--seconds`` ends the run at a time, whatever is left.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOGETHER = 8
# Sources that one run of the C compiler's front end looks at.
FILES = 40
# Seconds after which a batch shows where it is.
SLOW = 60
# Programs of a process: what is compiled stays loaded, so that one grows.
FRESH = 1000
# Bytes of memory that a program may take: one that needs more is left out.
MEMORY = 8 << 30


def main() -> int:
    """Run the programs; 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--graphs", type=int, help="so many loop graphs in place of programs")
    parser.add_argument("--values", type=int, default=10, help="run one in so many graphs")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--together", type=int, default=TOGETHER, help="programs of a function")
    parser.add_argument("--device", default="cpu", help="where tensors are made: cpu, cuda")
    parser.add_argument("--one", type=int, help="the number of a single batch to run again")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    if options.graphs is None and options.one is None and options.programs > FRESH:
        return _in_processes(options)
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    with tempfile.TemporaryDirectory(prefix="tc-layouts-") as cache:
        os.environ["TC_CACHE_DIR"] = cache
        return _run(options) if options.graphs is None else _run_graphs(options, Path(cache))


def _in_processes(options: argparse.Namespace) -> int:
    """Run the programs in one process after another."""
    end, rng, failed = time.time() + options.seconds, random.Random(options.seed), 0
    for done in range(0, options.programs, FRESH):
        left = end - time.time()
        if left < 0:
            break
        count = min(FRESH, options.programs - done)
        numbers = {"programs": count, "seed": rng.getrandbits(30), "together": options.together}
        words = [f"--{name}={value}" for name, value in numbers.items()]
        words += [f"--seconds={left}", f"--device={options.device}"]
        failed += subprocess.run([sys.executable, __file__, *words], check=False).returncode != 0
    print(f"processes with failures: {failed}")
    return int(bool(failed))


def _run_graphs(options: argparse.Namespace, folder: Path) -> int:
    from layout_check import check_graph
    from loop_graphs import draw_graph
    from loop_harness import planned

    from tc.compiler.codegen.stage import generate

    start, failures, done, waiting = time.time(), 0, 0, {}
    ran = 0
    for number in range(options.graphs):
        seed = options.seed + number
        try:
            waiting[seed] = generate(planned(draw_graph(seed)), threads=2).c_source
            found = ""
            if number % options.values == 0:
                ran += 1
                found = check_graph(seed)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        done += 1
        late = time.time() - start > options.seconds
        if len(waiting) >= FILES or late or done == options.graphs:
            found += _refused(waiting, folder)
            waiting = {}
        if found:
            failures += 1
            print(f"graph {seed}: {found}", flush=True)
        if late:
            break
    took = time.time() - start
    print(
        f"{done} loop graphs (seeds from {options.seed}) in {took:.0f} s, {ran} of them run: "
        f"{failures} failures"
    )
    return int(bool(failures))


def _refused(sources: dict[int, str], folder: Path) -> str:
    """Return what the C compiler's front end says against generated sources; "" if nothing."""
    from tc.compiler.runtime.build import find_compiler, kernel_flags

    compiler = find_compiler()
    paths = []
    for seed, source in sources.items():
        if source:
            paths.append(folder / f"graph_{seed}.c")
            paths[-1].write_text(source)
    flags = [flag for flag in kernel_flags(compiler) if flag not in ("-O3", "-shared")]
    done = subprocess.run(
        [*compiler.command, *flags, "-w", "-fsyntax-only", *map(str, paths)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    for path in paths:
        path.unlink()
    return done.stderr if done.returncode else ""


def _run(options: argparse.Namespace) -> int:
    import torch
    from layout_check import check_batch

    from tc import config

    torch.set_default_device(options.device)
    warnings.simplefilter("ignore")
    config.fx_graph_cache = False
    # Python's own watchdog reads the frames of a thread that runs on, and may crash.
    faulthandler.register(signal.SIGALRM, all_threads=False)
    start, done, kinds = time.time(), 0, Counter[str]()
    rng = random.Random(options.seed)
    while done < options.programs and time.time() - start < options.seconds:
        seed = rng.getrandbits(40) if options.one is None else options.one
        began = time.time()
        signal.setitimer(signal.ITIMER_REAL, SLOW, SLOW)
        count, failures = check_batch(seed, options.together)
        signal.setitimer(signal.ITIMER_REAL, 0)
        done += count
        if time.time() - began > SLOW:
            print(f"batch {seed} took {time.time() - began:.0f} s", flush=True)
        kinds.update(failure.kind for failure in failures)
        for failure in failures:
            print(f"batch {seed}\n{failure}", flush=True)
        if options.one is not None:
            break
    took = time.time() - start
    found = ", ".join(f"{n} {kind}" for kind, n in kinds.items()) or "none"
    print(f"{done} programs (seed {options.seed}) in {took:.0f} s; failures: {found}")
    return int(bool(kinds))


if __name__ == "__main__":
    raise SystemExit(main())
