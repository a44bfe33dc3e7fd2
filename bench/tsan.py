"""Calls from many threads under ThreadSanitizer: the C of tc, routines and generated kernels alike.

    python bench/tsan.py [--threads 8] [--calls 200]

gcc's ThreadSanitizer is preloaded into Python, and all C is built with it (``CC``, in a cache of
its own). Python and torch are not: their accesses are unseen, but the mutexes by which the GIL is
passed on are seen, so that what runs with the GIL is known to be in order. Two planted functions
show that a race is found, and that the GIL counts. Kernels run with one OpenMP thread, as gcc's
OpenMP passes work in ways that ThreadSanitizer does not see.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PLANTED = """
#include <Python.h>
static long counter;
static PyObject *racy(PyObject *m, PyObject *none) {
    Py_BEGIN_ALLOW_THREADS
    for (int i = 0; i < 1000; i++) ((volatile long *)&counter)[0]++;
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}
static long guarded_counter;
static PyObject *guarded(PyObject *m, PyObject *none) {
    for (int i = 0; i < 1000; i++) ((volatile long *)&guarded_counter)[0]++;
    Py_RETURN_NONE;
}
static PyMethodDef methods[] = {{"racy", racy, METH_NOARGS, ""}, {"guarded", guarded, METH_NOARGS, ""}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "planted", "", -1, methods};
PyMODINIT_FUNC PyInit_planted(void) { return PyModule_Create(&module); }
"""  # noqa: E501 - C
FOUND = "WARNING: ThreadSanitizer"


def library() -> str | None:
    """Return where gcc keeps ThreadSanitizer's library; None if there is none."""
    try:
        done = subprocess.run(
            ["gcc", "-print-file-name=libtsan.so"], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    path = done.stdout.strip()
    return path if done.returncode == 0 and os.path.isabs(path) else None


def under_sanitizer(folder: Path, *arguments: str, timeout: float = 1800) -> tuple[int, str, str]:
    """Run this script under the sanitizer; return its exit status, output, and the reports."""
    log = folder / "reports"
    variables = {
        "LD_PRELOAD": library() or "",
        "CC": "gcc -fsanitize=thread -g",
        "OMP_NUM_THREADS": "1",
        "TC_CACHE_DIR": str(folder / "cache"),
        "TC_FX_GRAPH_CACHE": "0",
        "TSAN_OPTIONS": f"ignore_noninstrumented_modules=1 exitcode=0 log_path={log}",
    }
    root = str(Path(__file__).resolve().parent.parent)
    done = subprocess.run(
        ["setarch", "-R", sys.executable, __file__, *arguments],
        capture_output=True, text=True, timeout=timeout, check=False,
        env={**os.environ, "PYTHONPATH": root, **variables},
    )  # fmt: skip
    reports = "".join(path.read_text() for path in folder.glob("reports.*"))
    for path in folder.glob("reports.*"):
        path.unlink()
    return done.returncode, done.stdout + done.stderr, reports


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run a function in threads that start at one time; raise what one of them raises."""
    import threading
    from concurrent.futures import ThreadPoolExecutor

    start = threading.Barrier(count)

    def begin(number: int) -> None:
        start.wait()
        work(number)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(begin, range(count)))


def planted(name: str) -> None:
    """Call a planted function in two threads."""
    import importlib.util
    import sysconfig

    from tc.compiler.runtime.build import build

    include = sysconfig.get_path("include")
    library = build(PLANTED, ("-O1", "-fPIC", "-shared", f"-I{include}"), salt=sys.version)
    spec: Any = importlib.util.spec_from_file_location("planted", str(library))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    in_threads(2, lambda _: [getattr(module, name)() for _ in range(300)] and None)


def calls(threads: int, count: int) -> None:
    """Call functions that use all the C of tc, each result compared with eager's."""
    import torch
    from torch.nn import functional as nn

    import tc

    sys.setswitchinterval(1e-5)
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(6))).requires_grad_(False)

    def large(x: Any) -> Any:  # kernels that let other threads run
        return (x.repeat(400, 40) * 2).sin().sum(-1)

    def ordered(x: Any) -> Any:
        return x.sort(dim=-1)[0] + 1

    def attended(x: Any) -> Any:
        q = x.view(1, 2, -1, 8).repeat(1, 1, 32, 8)
        return nn.scaled_dot_product_attention(q, q, q)

    def short(x: Any) -> Any:  # the fast path
        return x + 1

    def modules(x: Any) -> Any:  # remembered guards
        return model(x)

    functions = (large, ordered, attended, short, modules)
    compiled = [tc.compile(function) for function in functions]
    data = [torch.randn(8, 8) for _ in range(threads)]
    expected = [[function(x) for function in functions] for x in data]

    def work(number: int) -> None:
        for turn in range(count):
            k = (turn + number) % len(functions)
            found = compiled[k](data[number])
            torch.testing.assert_close(found, expected[number][k], rtol=1e-3, atol=1e-3)
            if number == 0 and turn % 60 == 59:
                tc.reset()

    with torch.no_grad():
        in_threads(threads, work)
    print("calls", threads * count)


def main(arguments: Sequence[str] | None = None) -> int:
    """Show that races are found where there are some, and none in the C of tc."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--calls", type=int, default=200, help="of each thread")
    parser.add_argument("--here", choices=("racy", "guarded", "calls"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.here == "calls":
        calls(given.threads, given.calls)
        return 0
    if given.here:
        planted(given.here)
        return 0
    if library() is None:
        print("gcc has no ThreadSanitizer here (Debian: libtsan2, with gcc)")
        return 2
    wrong = 0
    with tempfile.TemporaryDirectory() as made:
        for name, races in (("racy", True), ("guarded", False), ("calls", False)):
            sizes = (f"--threads={given.threads}", f"--calls={given.calls}")
            status, output, reports = under_sanitizer(Path(made), "--here", name, *sizes)
            good = status == 0 and (FOUND in reports) is races
            wrong += not good
            print(f"{name}: exit {status}, {reports.count(FOUND)} reports, "
                  f"{'as it should be' if good else 'WRONG'}", flush=True)  # fmt: skip
            if not good:
                print(output[-4000:], reports[:8000], sep="\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
