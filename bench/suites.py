"""Tests that others wrote, each compiled as a whole: those that pass in eager and fail compiled.

    python bench/suites.py test.test_dict test.test_set         # CPython's own, by module
    PYTHONPATH=$PT_SRC/test python bench/suites.py test_autograd --backend eager
    python bench/suites.py test.test_enum --only test_flag --traceback
    python bench/suites.py test_reductions --backend tc --share 0.05 --seed 7 --limit 10

A module is run twice, each time in a process of its own: as it is, and with each test method
compiled. Tests of CPython call no torch, so that their frames would be left to Python: each is
called from a compiled function with an operation before and one after it. A process that dies, or
is silent for `SILENT` seconds, is started again past the test that it was in.

PyTorch's tests need ``expecttest``; see shared/conformance for where they come from.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import types
import unittest
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: seconds without a word after which a process is stopped
SILENT = 100
#: processes that are started for a module at most
STARTS = 12
Row = dict[str, Any]


class OutOfTime(BaseException):
    """A test took longer than ``--limit``."""


def stop(*_: Any) -> None:
    """Raise out of what a test does."""
    raise OutOfTime


# -- one process -----------------------------------------------------------------------------------
def tests_of(suite: Any) -> Iterator[unittest.TestCase]:
    """Yield the tests of a suite and of those in it."""
    for one in suite:
        yield from tests_of(one) if isinstance(one, unittest.TestSuite) else (one,)


def compile_method(test: Any, module: str, backend: str) -> None:
    """Put a compiled method in the place of a test's."""
    import torch

    import tc

    method = getattr(test, test._testMethodName)
    function = getattr(method, "__func__", method)
    if not isinstance(function, types.FunctionType):
        return
    if module.startswith("test.") and isinstance(method, types.MethodType):
        inner, ones = function, torch.ones(2, device="cpu")

        def between(self: Any) -> None:
            made = ones + 1
            inner(self)
            assert made.sum().item() == 4

        function = between
    compiled = tc.compile(function, backend=backend)
    bound = isinstance(method, types.MethodType)
    setattr(test, test._testMethodName, types.MethodType(compiled, test) if bound else compiled)


def outcome_of(test: unittest.TestCase, limit: int) -> tuple[str, str]:
    """Run a test for so many seconds, and return what became of it, and its traceback."""
    result = unittest.TestResult()
    try:
        signal.alarm(limit)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            test.run(result)
    except OutOfTime:
        return "out of time", ""
    except BaseException:
        return "raised", traceback.format_exc()
    finally:
        signal.alarm(0)
    failed = [*result.errors, *result.failures]
    if failed:
        late = any(text.rstrip().endswith(OutOfTime.__name__) for _, text in failed)
        return "out of time" if late else "failed", failed[0][1]
    return "skipped" if result.skipped else "passed", ""


def is_drawn(name: str, options: argparse.Namespace) -> bool:
    """Return whether a test is among those asked for."""
    drawn = options.share >= 1 or random.Random(f"{options.seed} {name}").random() < options.share
    return drawn and options.only in name


def run_here(module: str, options: argparse.Namespace) -> None:
    """Run the tests of a module that its file of rows lacks, and append a row for each."""
    rows, backend = options.rows, options.backend
    signal.signal(signal.SIGALRM, stop)
    change: Callable[[Any], None] | None = None
    if backend:
        import tc

        def change(test: Any) -> None:
            tc.reset()
            compile_method(test, module, backend)

    known = {row["test"] for row in read(rows)}
    holder = importlib.import_module(module)
    if getattr(getattr(holder, "load_tests", None), "__module__", "").startswith("torch."):
        del holder.load_tests  # it refuses a process that another script has started
    loaded = unittest.defaultTestLoader.loadTestsFromModule(holder)
    before: type | None = None
    for test in tests_of(loaded):
        name, kind = test.id(), type(test)
        if name in known or not is_drawn(name, options) or not hasattr(test, "_testMethodName"):
            continue
        append(rows, {"test": name, "outcome": "died"})  # unless another row follows
        if before is not kind:
            if before is not None:
                before.tearDownClass()  # type: ignore[attr-defined]
            before = kind
            with suppress(Exception):  # the tests will say
                kind.setUpClass()
        if change is not None:
            change(test)
        outcome, text = outcome_of(test, options.limit)
        append(rows, {"test": name, "outcome": outcome, "text": text[-4000:]})


def append(rows: Path, row: Row) -> None:
    """Add a row to a file of rows."""
    with rows.open("a") as file:
        file.write(json.dumps(row) + "\n")


def read(rows: Path) -> list[Row]:
    """Return the rows of a file, of each test the last."""
    lines = rows.read_text().splitlines() if rows.exists() else []
    return list({row["test"]: row for row in map(json.loads, lines)}.values())


# -- all of them -----------------------------------------------------------------------------------
def run_module(
    module: str, backend: str, options: argparse.Namespace, folder: Path
) -> dict[str, Row]:
    """Run the tests of a module in processes of their own, and return a row for each."""
    rows = folder / f"{module}-{backend or 'plain'}.jsonl"
    command = [sys.executable, __file__, module, "--backend", backend, "--only", options.only]
    for name in ("share", "seed", "limit"):
        command += [f"--{name}", str(getattr(options, name))]
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    for _ in range(STARTS):
        with (folder / "log").open("a") as log:
            process = subprocess.Popen(
                [*command, "--rows", str(rows)],
                env={**os.environ, "PYTHONPATH": paths},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
            )
            size, since = -1, time.monotonic()
            while process.poll() is None:
                time.sleep(0.5)
                now = rows.stat().st_size if rows.exists() else 0
                size, since = (now, time.monotonic()) if now != size else (size, since)
                if time.monotonic() - since > SILENT:
                    process.kill()
        if process.returncode == 0:
            break
    return {row["test"]: row for row in read(rows)}


def main() -> int:
    """Print the tests that pass in eager and fail compiled; 1 if there are some."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("modules", nargs="+", help="modules of tests, as they are imported")
    parser.add_argument("--backend", default="eager", help="of tc.compile (default: eager)")
    parser.add_argument("--only", default="", help="a part of the names of the tests to run")
    parser.add_argument("--share", type=float, default=1.0, help="of the tests, drawn by --seed")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--limit", type=int, default=40, help="seconds of a test (default: 40)")
    parser.add_argument("--traceback", action="store_true", help="print what failed whole")
    parser.add_argument("--rows", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rows is not None:
        run_here(options.modules[0], options)
        return 0
    if options.share < 1:
        print(f"seed {options.seed}", flush=True)
    differences = 0
    with tempfile.TemporaryDirectory() as made:
        for module in options.modules:
            plain = run_module(module, "", options, Path(made))
            found = run_module(module, options.backend, options, Path(made))
            passed = [name for name, row in plain.items() if row["outcome"] == "passed"]
            outcomes = Counter(found[name]["outcome"] for name in passed if name in found)
            print(f"{module}: {len(passed)} pass in eager; compiled: {dict(outcomes)}", flush=True)
            for name in passed:
                row = found.get(name, {"outcome": "not run"})
                if row["outcome"] in ("passed", "skipped"):
                    continue
                differences += 1
                text = row.get("text", "").rstrip() or "-"
                shown = text if options.traceback else text.splitlines()[-1][:160]
                print(f"  {row['outcome']:11} {name}: {shown}", flush=True)
    return int(differences > 0)


if __name__ == "__main__":
    raise SystemExit(main())
