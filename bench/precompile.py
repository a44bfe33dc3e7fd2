"""Programs compiled ahead, then called: what calls compile, and CPU seconds of both ways.

    python bench/precompile.py
    python bench/precompile.py --only "GPT, decoding"

Each program of `tests/ahead_programs.py` runs in two processes with empty caches: one calls it (and
backward, where it trains), one precompiles it and then makes the same calls. Counted at the calls
are frames that are compiled, graphs, and backwards compiled at their first use. Seconds are CPU of
the process and its C compiler, without imports. What precompiling must not change is compared:
random states, parameters, buffers, gradients, attributes. The exit status is 1 if calls of a
program whose result says that it is complete compile anything, results differ from eager's, or
anything changed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def cpu() -> float:
    """Return CPU seconds of this process and of those that it waited for."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


def state_of(function: Any) -> dict[str, Any]:
    """Return what must not change, as text."""
    import torch

    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    owners = [function, getattr(function, "__self__", None), *cells]
    found: dict[str, Any] = {"random": random.getstate(), "torch": torch.get_rng_state().tolist()}
    for number, owner in enumerate(owners):
        if isinstance(owner, torch.nn.Module):
            for name, module in owner.named_modules():
                found[f"{number}.{name}"] = {
                    key: str(value) for key, value in vars(module).items() if key[0] != "_"
                }
            for name, one in [*owner.named_parameters(), *owner.named_buffers()]:
                found[f"{number}.{name}"] = (one._version, str(one.grad), str(one.detach()))
        elif isinstance(owner, torch.optim.Optimizer):
            found[f"{number}.state"] = str(owner.state_dict())
        elif hasattr(owner, "__dict__"):
            found[f"{number}"] = str({k: v for k, v in vars(owner).items() if k[:4] != "_tc_"})
    return found


def one(name: str, ahead: bool) -> dict[str, Any]:
    """Run a program in this process."""
    sys.path.insert(0, str(ROOT / "tests"))
    import torch
    from ahead_programs import PROGRAMS

    import tc
    from tc.compiler import deferred

    torch.set_num_threads(1)
    torch.manual_seed(0)
    program = PROGRAMS[name]
    function = program.make()
    backwards = 0
    real: Callable[..., Any] = deferred._built

    def built(work: Any) -> Any:
        nonlocal backwards
        backwards += 1
        return real(work)

    deferred._built = built
    run = tc.compile(function)
    found: dict[str, Any] = {}
    started = cpu()
    if ahead:
        before = state_of(function)
        result = tc.precompile(run, program.inputs, sizes=dict(program.sizes) or None)
        found["ahead"] = cpu() - started
        found |= {"complete": result.complete, "cases": len(result.cases)}
        found["remains"] = [*result.remains, *result.errors]
        found["changed"] = [k for k, v in state_of(function).items() if before.get(k) != v]
        found["backwards ahead"] = backwards
    backwards = 0
    counters = dict(tc.counters["frames"]), dict(tc.counters["stats"])
    started = cpu()
    results = []
    torch.manual_seed(0)
    given = list(program.calls())
    for number, inputs in enumerate(given):
        torch.manual_seed(number)
        results.append(called(run, inputs, program.train))
    found["calls"] = cpu() - started
    found["frames"] = tc.counters["frames"]["total"] - counters[0].get("total", 0)
    found["graphs"] = tc.counters["stats"]["unique_graphs"] - counters[1].get("unique_graphs", 0)
    found["backwards"] = backwards
    torch.manual_seed(0)
    twin = program.make()
    torch.manual_seed(0)
    given = list(program.calls())
    found["equal"] = True
    for number, inputs in enumerate(given):
        torch.manual_seed(number)
        found["equal"] &= is_close(results[number], called(twin, inputs, program.train))
    return found


def called(function: Any, inputs: Any, train: bool) -> list[Any]:
    """Return what a call returns, and the gradients that it leaves."""
    import torch
    from torch.utils import _pytree as pytree

    found = [one for one in pytree.tree_leaves(function(*inputs)) if isinstance(one, torch.Tensor)]
    if train:
        found[0].float().sum().backward()
        found += [one.grad.clone() for one in function.parameters() if one.grad is not None]
    return [one.detach().clone() for one in found]


def is_close(mine: list[Any], theirs: list[Any]) -> bool:
    """Return whether results are equal up to rounding."""
    import torch

    if len(mine) != len(theirs):
        return False
    pairs = zip(mine, theirs, strict=True)
    return all(torch.allclose(a, b, rtol=1e-3, atol=1e-5) for a, b in pairs)


def in_process(name: str, ahead: bool) -> dict[str, Any]:
    """Run a program in a process of its own, with empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--one", name, *(["--ahead"] if ahead else [])]
        environment = {**os.environ, "TC_CACHE_DIR": folder, "OMP_NUM_THREADS": "1"}
        ended = subprocess.run(
            command, capture_output=True, text=True, env=environment, check=False
        )
    if ended.returncode:
        raise SystemExit(f"{name}: {ended.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return answer


def main() -> int:
    """Print a line for each program, and one with all of it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--one")
    parser.add_argument("--ahead", action="store_true")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.one, options.ahead)))
        return 0
    sys.path.insert(0, str(ROOT / "tests"))
    from ahead_programs import PROGRAMS

    rows, failed = {}, False
    for name in PROGRAMS:
        if options.only and options.only != name:
            continue
        plain, ahead = in_process(name, False), in_process(name, True)
        compiled = ahead["frames"] + ahead["graphs"] + ahead["backwards"]
        bad = (ahead["complete"] and compiled) or ahead["changed"]
        bad = bad or not (plain["equal"] and ahead["equal"])
        bad = bad or ahead["complete"] != PROGRAMS[name].complete
        failed |= bool(bad)
        rows[name] = {"without": plain, "ahead": ahead}
        print(
            f"{'BAD' if bad else 'ok ':3} {name:18} cases {ahead['cases']}  compiled at calls: "
            f"{plain['frames']} frames {plain['graphs']} graphs {plain['backwards']} backwards -> "
            f"{ahead['frames']} {ahead['graphs']} {ahead['backwards']}  CPU s: calls "
            f"{plain['calls']:.2f} -> {ahead['calls']:.2f}, ahead {ahead['ahead']:.2f}  "
            f"{'complete' if ahead['complete'] else ahead['remains'][:1]} "
            f"{'CHANGED ' + str(ahead['changed']) if ahead['changed'] else ''}",
            flush=True,
        )
    print(json.dumps(rows))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
