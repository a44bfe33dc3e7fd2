"""Each test session compiles into a cache of its own, and neither logs nor traces unasked."""

from __future__ import annotations

import compileall
import gc
import os
import random
import signal
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# How long examples take says how loaded the machine is, of which no test fails.
settings.register_profile("tc", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tc")
# Before any test module imports tc: some of these are read once.
for _name in ("TC_LOGS", "TC_TRACE", "TC_BISECT", "TC_DISABLE", "TORCH_LOGS", "TORCH_TRACE"):
    os.environ.pop(_name, None)
# A test compiles what it tests; those of the cache of graphs turn it on.
os.environ["TC_FX_GRAPH_CACHE"] = "0"
# Triton asks for it where its own functions are defined, and some test modules load triton.
os.environ.setdefault("TRITON_INTERPRET", "1")
# Threads that wait for a kernel sleep: beside other workers they would spin in their way, for
# more processor time than some tests need. Read when torch is loaded, here and in children.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# `nohup make test &` and scripts start tests with Ctrl-C ignored, which all children inherit: tests
# that send it to one would wait in vain.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Tables of thousands of cases are sampled; all of them run where that is asked for."""
    parser.addoption("--every-case", action="store_true", help="run all cases of sampled tables")


#: what processes that tests start load, beside torch
LOADED = ("tc", "tc/compiler", "tc/trace", "tc/tlparse", "tc/tui", "tc/minifier", "bench", "tests")


def pytest_configure(config: pytest.Config) -> None:
    """Draw the seed of the samples once for all workers, which inherit it; compile our modules.

    As tc has a plugin of pytest's, what this process loads of tc has its assertions rewritten, and
    is kept apart. Processes that tests start would compile all of it again, each for most of a
    second, if the surroundings say that they keep nothing.
    """
    os.environ.setdefault("TC_TEST_SEED", str(random.SystemRandom().randrange(1 << 20)))
    if not hasattr(config, "workerinput"):
        for name in LOADED:
            folder = config.rootpath / name
            compileall.compile_dir(folder, maxlevels=0 if name == "tests" else None, quiet=2)


def pytest_report_header() -> str:
    """Report how to draw the same cases again."""
    return f"cases of sampled tables: TC_TEST_SEED={os.environ['TC_TEST_SEED']}"


#: files that take longest, most of them because they start processes: a worker that began with one
#: last would keep the others waiting
LONGEST = frozenset(
    f"test_{name}.py"
    for name in (
        "background", "bisect", "command", "fakes", "flows", "gpt", "graph_cache_sizes", "guard",
        "instructions", "main", "modules_loaded", "pytest_plugin", "server", "short_rows",
        "subject", "torch_compile", "tutorials",
    )
)  # fmt: skip


def runs_every_case(config: pytest.Config) -> bool:
    """Return whether tables are run whole: as asked for, or as a file is named."""
    return config.getoption("--every-case") or any(".py" in one for one in config.args)


@pytest.hookimpl(trylast=True)  # of what `-m` and `-k` leave
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the longest files first, and as many cases of a test as its mark `sample` says.

    The cases are drawn by the seed of the run.

    A file or a test that is named on the command line keeps all of its cases.
    """
    items.sort(key=lambda item: item.path.name not in LONGEST)
    if runs_every_case(config):
        return
    tables: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sample") is not None:
            tables.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left: set[pytest.Item] = set()
    for name, cases in tables.items():
        mark = cases[0].get_closest_marker("sample")
        assert mark is not None
        source = random.Random(f"{os.environ['TC_TEST_SEED']} {name}")
        left |= set(cases) - set(source.sample(cases, min(mark.args[0], len(cases))))
    if left:
        config.hook.pytest_deselected(items=[item for item in items if item in left])
        items[:] = [item for item in items if item not in left]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without passes of the garbage collector, which would take a quarter of the time.

    What is compiled of test modules and of tc is kept beside them, even if the surroundings say
    otherwise: it is half of the time of the next collection, and of what each process loads of tc.
    """
    gc.disable()
    as_asked, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    try:
        return (yield)
    finally:
        sys.dont_write_bytecode = as_asked
        gc.collect()  # what was not selected
        gc.enable()


def pytest_sessionfinish() -> None:
    """Leave nothing to the five passes with which pytest ends, each over all there is."""
    gc.freeze()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what was skipped as a table: how many tests, and for which reason."""
    reasons: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", ()):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[reason.removeprefix("Skipped: ")] += 1
    if reasons:
        terminalreporter.section("skipped", sep="-")
        for reason, count in reasons.most_common():
            terminalreporter.line(f"{count:5}  {reason}")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    cache: Path = tmp_path_factory.mktemp("tc_cache")
    os.environ["TC_CACHE_DIR"] = os.environ["TC_TEST_CACHE"] = str(cache)


@pytest.fixture(scope="session", autouse=True)
def _lost_events_are_failures() -> None:
    """Let what is only reported for users, an event that could not be made, fail a test."""

    def fail(name: str, error: Exception) -> None:
        raise error

    emit: Any = import_module("tc.trace.emit")  # not before the environment is set
    emit.report_loss = fail


@pytest.fixture(autouse=True)
def _own_numbers(request: pytest.FixtureRequest) -> None:
    """Draw a test's random tensors alike in each run: of thousands, some would be unlucky.

    `torch.manual_seed` would write down the stack for each kind of device, in case one is used.
    """
    if "torch" in sys.modules:
        generator = sys.modules["torch"].default_generator
        generator.manual_seed(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture
def drawn(request: pytest.FixtureRequest) -> Callable[[Iterable[Any], int], list[Any]]:
    """Draw some rows of a table that one test walks through, by the seed of the run.

    They keep their order, and all of them are taken where `sample` takes all cases.
    """
    source = random.Random(f"{os.environ['TC_TEST_SEED']} {request.node.nodeid}")

    def draw(table: Iterable[Any], count: int) -> list[Any]:
        rows = list(table)
        if not runs_every_case(request.config) and count < len(rows):
            rows = [rows[place] for place in sorted(source.sample(range(len(rows)), count))]
        return rows

    return draw


@pytest.fixture
def only_new_garbage() -> Iterator[None]:
    """Let a test's `gc.collect()` leave out what is older than the test.

    With torch and the whole suite loaded, a pass over everything takes a quarter of a second.
    """
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def no_passes() -> Iterator[None]:
    """Make millions of objects, as trees of programs are, without passes of the collector."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def one_thread() -> Iterator[None]:
    """A fork has none of OpenMP's other threads; with them, ATen leaves orders to chance."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, Any]:
    """Where a browser is required (TC_REQUIRE_BROWSER=1, as in CI), a test may not skip for it."""
    report = yield
    reason = str(report.longrepr).lower()
    wanting = "chromium" in reason or "selenium" in reason
    if report.skipped and wanting and os.environ.get("TC_REQUIRE_BROWSER") == "1":
        report.outcome, report.longrepr = "failed", f"TC_REQUIRE_BROWSER=1, but: {reason}"
    return report
