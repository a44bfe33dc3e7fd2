"""Random layouts, compiled and compared with eager: how many programs, how many differences.

    python bench/layouts.py --programs 20000 --seed 1

Without ``--seed`` one is drawn and printed. Each failure is printed with its program as it is
found; the last line counts. ``--seconds`` ends the run at a time, whatever is left.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import os
import random
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOGETHER = 8
# Seconds after which a batch shows where it is.
SLOW = 60


def main() -> int:
    """Run the programs; 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--together", type=int, default=TOGETHER, help="programs of a function")
    parser.add_argument("--one", type=int, help="the number of a single batch to run again")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    with tempfile.TemporaryDirectory(prefix="tc-layouts-") as cache:
        os.environ["TC_CACHE_DIR"] = cache
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    from layout_check import check_batch

    from tc import config

    warnings.simplefilter("ignore")
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(
        logging.CRITICAL
    )  # errors are asked for
    config.fx_graph_cache = False
    start, done, kinds = time.time(), 0, Counter[str]()
    rng = random.Random(options.seed)
    while done < options.programs and time.time() - start < options.seconds:
        seed = rng.getrandbits(40) if options.one is None else options.one
        began = time.time()
        faulthandler.dump_traceback_later(SLOW, repeat=True)
        count, failures = check_batch(seed, options.together)
        faulthandler.cancel_dump_traceback_later()
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
