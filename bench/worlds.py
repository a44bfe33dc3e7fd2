"""Random worlds: programs, calls, and changes between the calls; compiled against eager.

    python bench/worlds.py --worlds 1000
    python bench/worlds.py --worlds 1 --seed 1234 --default-backend

Prints the seed, and for each difference a program made as small as it gets. World number N of seed
S is drawn from ``S + N``, so that a single one is run again with ``--worlds 1 --seed S+N``.
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]


def main(arguments: list[str] | None = None) -> int:
    """Run worlds; the exit code says whether there was a difference."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--worlds", type=int, default=200)
    parser.add_argument("--seed", type=int, help="drawn at random unless given")
    parser.add_argument("--seconds", type=float, help="stop after these")
    parser.add_argument("--most", type=int, default=10, help="stop after these differences")
    parser.add_argument("--default-backend", action="store_true", help="kernels, not eager's")
    parser.add_argument("--sound", action="store_true", help="leave out facts known to be stale")
    parser.add_argument("--parts", default="", help="only strategies whose names contain this")
    parser.add_argument("--statements", action="store_true", help="only lists of statements")
    parser.add_argument("--torch", action="store_true", help="torch.compile, not tc")
    chosen = parser.parse_args(arguments)
    seed = chosen.seed if chosen.seed is not None else random.SystemRandom().randrange(10**9)
    print(f"seed {seed}", flush=True)
    return run(chosen, seed)


def run(chosen: argparse.Namespace, seed: int) -> int:
    """Run the worlds that the arguments ask for."""
    import torch
    import world_parts
    import world_statements
    import worlds
    from facts import KNOWN_STALE

    torch.set_num_threads(1)
    compile, reset = compiler(chosen)
    facts = world_parts.facts(KNOWN_STALE if chosen.sound else frozenset())
    if chosen.statements:
        world_parts.STRATEGIES, facts = (world_statements.statements,), []
    if chosen.parts:
        world_parts.STRATEGIES = tuple(
            s for s in world_parts.STRATEGIES if chosen.parts in s.__name__
        )
        facts = [f for f in facts if chosen.parts in f.name]
    found: list[worlds.Difference] = []
    start = time.monotonic()
    number = -1
    for number in range(chosen.worlds):
        plan = worlds.draw(random.Random(seed + number), facts)
        difference = worlds.compare(plan, compile, reset)
        if difference is not None:
            difference = worlds.minimise(difference, compile, reset)
            found.append(difference)
            print(f"\n===== world {seed + number}\n{difference}", flush=True)
        late = chosen.seconds and time.monotonic() - start > chosen.seconds
        if late or len(found) >= chosen.most:
            break
    names = collections.Counter(part.name for one in found for part in one.plan.parts)
    spent = time.monotonic() - start
    print(f"\n{number + 1} worlds in {spent:.0f} s: {len(found)} differences {dict(names)}")
    return int(bool(found))


def compiler(chosen: argparse.Namespace) -> tuple[Any, Any]:
    """Return what compiles a program, and what forgets all that was compiled."""
    options: dict[str, Any] = {} if chosen.default_backend else {"backend": "eager"}
    if chosen.torch:
        import torch

        return (lambda program: torch.compile(program, **options)), torch.compiler.reset
    import tc

    return (lambda program: tc.compile(program, **options)), tc.reset


if __name__ == "__main__":
    raise SystemExit(main())
