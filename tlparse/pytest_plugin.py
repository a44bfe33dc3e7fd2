"""The pytest plugin: tests go in; what compiling did in each is recorded, shown and limited.

    @pytest.mark.tc(max_graph_breaks=0, max_recompiles=1)
    def test_step(): ...

A test is recorded if it has the mark, or if one of the options ``--tc-trace``, ``--tc-baseline``
and ``--tc-write-baseline`` is given; code under `tc.compile` and under `torch.compile` alike.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:  # a run of pytest that records nothing loads none of it
    from tc.trace.findings import Diagnosis, Finding

#: what the mark may limit -> its name in messages
LIMITS = {
    "max_graph_breaks": "graph break",
    "max_recompiles": "recompile",
    "max_failures": "failed compile",
}
_PROPERTY = "tc_findings"
_SHOWN = 5
_LONGEST = 150  # characters of a folder's name


def _named(text: str) -> str:
    """Read an option that names something; an empty one is a variable that is not set."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty: name a place, or leave it out")
    return text


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("tc", "what compiling did in tests")
    group.addoption("--tc-trace", metavar="DIR", type=_named,
                    help="keep the traces of each test in a folder")  # fmt: skip
    group.addoption(
        "--tc-baseline",
        metavar="FILE",
        type=_named,
        help="fail tests with findings that are not in FILE",
    )
    group.addoption(
        "--tc-write-baseline",
        metavar="FILE",
        type=_named,
        help="write the findings of all tests to FILE",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, and read the baseline before any test runs."""
    names = ", ".join(LIMITS)
    config.addinivalue_line("markers", f"tc({names}): limits of what compiling does in a test")
    for option in ("tc_trace", "tc_write_baseline"):  # a test may change the current folder
        given = getattr(config.option, option)
        if given:
            place = config.invocation_params.dir / given
            setattr(config.option, option, str(place))
            _check_place(place, option)
    path = config.getoption("--tc-baseline")
    if path is not None:
        from tc.tlparse.gate import Baseline
        from tc.tlparse.usage import Usage

        try:
            config.stash[_BASELINE] = Baseline.read(path, "--tc-write-baseline")
        except Usage as error:
            raise pytest.UsageError(str(error)) from error
    if config.getoption("--tc-write-baseline") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_BaselineWriter(config), "tc-write-baseline")


def _check_place(place: Path, option: str) -> None:
    """Refuse a place that cannot be written to before any test has run."""
    folder = place if option == "tc_trace" else place.parent
    wrong = None
    if option == "tc_write_baseline" and place.is_dir():
        wrong = f"{place} is a folder, not a file"
    elif option == "tc_write_baseline" and not folder.is_dir():
        wrong = f"there is no folder {folder}"
    elif option == "tc_trace":
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            wrong = f"{folder}: {(error.strerror or str(error)).lower()}"
    if wrong is None and folder.is_dir() and not os.access(folder, os.W_OK):
        wrong = f"{folder} cannot be written to"
    if wrong is not None:
        name = option.replace("_", "-")
        raise pytest.UsageError(f"--{name}: {wrong}; name another place")


_BASELINE: pytest.StashKey[Any] = pytest.StashKey()
_RUNS: pytest.StashKey[Counter[str]] = pytest.StashKey()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Record a test, and fail it where compiling did more than is allowed."""
    limits = _limits(item)
    config = item.config
    asked = [config.getoption(f"--tc-{name}") for name in ("trace", "baseline", "write-baseline")]
    if limits is None and not any(asked):
        yield
        return
    with ExitStack() as stack:
        folder = _folder_of(item, asked[0], stack)
        try:
            with recording(folder):
                yield
        finally:
            found = diagnoses(folder)
            wrong = [*_over(limits or {}, found), *_new(config, found)]
            _report(item, found, shown=not wrong or sys.exc_info()[0] is not None)
        if wrong:
            kept = f"\ntrace: {folder}" if asked[0] else ""
            pytest.fail("\n".join(["tc: " + "; ".join(wrong), *_texts(found)]) + kept, False)


def _limits(item: pytest.Item) -> dict[str, int] | None:
    """Return what the marks of a test allow, the nearest first; None without a mark."""
    marks = list(item.iter_markers("tc"))
    limits: dict[str, int] = {}
    for mark in reversed(marks):
        unknown = sorted(set(mark.kwargs) - set(LIMITS))
        if mark.args or unknown:
            shown = ", ".join([*map(repr, mark.args), *unknown])
            _refuse(item, f"the mark tc takes {', '.join(LIMITS)}, not {shown}")
        for name, most in mark.kwargs.items():
            if type(most) is not int or most < 0:
                _refuse(item, f"{name} of the mark tc is a number from 0 on, not {most!r}")
        limits.update(mark.kwargs)
    return limits if marks else None


def _refuse(item: pytest.Item, why: str) -> NoReturn:
    """Fail a test with one line, without the source of this plugin."""
    pytest.fail(f"{item.nodeid}: {why}", pytrace=False)


def _folder_of(item: pytest.Item, kept: str | None, stack: ExitStack) -> Path:
    """Return the folder for the traces of a test; no other test, and no other run of it, has it."""
    if kept is None:
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tc_pytest_")))
    name = re.sub(r"[^\w.\-]+", "_", item.nodeid)
    parameters = item.nodeid.partition("[")[2].removesuffix("]")
    if len(name) > _LONGEST or re.search(r"[^\w.\-]", parameters):
        name = f"{name[:_LONGEST]}{sha256(item.nodeid.encode()).hexdigest()[:8]}"
    runs = item.config.stash.setdefault(_RUNS, Counter())
    runs[name] += 1
    folder = Path(kept) / (name if runs[name] == 1 else f"{name}-run{runs[name]}")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


# -- recording ---------------------------------------------------------------------------------
@contextmanager
def recording(folder: Path) -> Iterator[None]:
    """Write what tc and PyTorch compile in a block to two logs; both forget what they have."""
    from tc.trace.emit import add_sink, remove_sink
    from tc.trace.writer import TraceWriter

    for name in ("tc.compiler.api", "torch.compiler"):
        if name in sys.modules and (name != "torch.compiler" or "torch._dynamo" in sys.modules):
            sys.modules[name].reset()
    writer = TraceWriter(str(folder / "tc"))
    add_sink(writer)
    try:
        with _torch_log(folder / "torch"):
            yield
    finally:
        remove_sink(writer)
        writer.close()


@contextmanager
def _torch_log(folder: Path) -> Iterator[None]:
    """Let PyTorch write its own log to a folder, if it is loaded."""
    logging = sys.modules.get("torch._logging._internal")
    if logging is None:
        yield
        return
    structured = sys.modules.get("torch._logging.structured")
    if structured is not None:
        structured.INTERN_TABLE.clear()  # this log has to define the file names that it uses
    handler = logging.LazyTraceHandler(str(folder))
    handler.setFormatter(logging.TorchLogsFormatter(trace=True))
    logging.trace_log.addHandler(handler)
    try:
        yield
    finally:
        logging.trace_log.removeHandler(handler)
        handler.close()


def diagnoses(folder: Path) -> list[Diagnosis]:
    """Return what the logs of a test say; none where nothing was compiled."""
    from tc.trace.findings import diagnose
    from tc.trace.session import load

    return [
        diagnose(load(part))
        for part in (folder / "tc", folder / "torch")
        if part.is_dir() and any(part.iterdir())
    ]


# -- verdicts ----------------------------------------------------------------------------------
def _over(limits: dict[str, int], found: Sequence[Diagnosis]) -> list[str]:
    """Return what is more than allowed, one clause each."""
    from tc.trace.words import count

    counts = {
        "max_graph_breaks": sum(len(one.breaks) for one in found),
        "max_recompiles": sum(one.recompile_count for one in found),
        "max_failures": sum(len(one.failures) for one in found),
    }
    return [
        f"{count(counts[name], LIMITS[name])}, allowed {most}"
        for name, most in limits.items()
        if counts[name] > most
    ]


def _new(config: pytest.Config, found: Sequence[Diagnosis]) -> list[str]:
    """Return what the baseline does not know, in one clause."""
    from tc.trace.words import count

    baseline = config.stash.get(_BASELINE, None)
    if baseline is None:
        return []
    matched = baseline.match(_causes(found))
    ids = [one.id for one in matched.new]
    found_new = count(len(ids), "finding")
    return [f"{found_new} that the baseline does not know: {' '.join(ids)}"] if ids else []


def _causes(found: Sequence[Diagnosis]) -> list[Finding]:
    from tc.tlparse.gate import causes

    return [one for diagnosis in found for one in causes(diagnosis)]


def _texts(found: Sequence[Diagnosis]) -> list[str]:
    """Return the findings as lines: what, where, the source, how to fix it."""
    lines = []
    every = _causes(found)
    for one in every[:_SHOWN]:
        lines += ["", f"{one.id} ×{one.count}  {one.title}"]
        if one.where.file:
            lines.append(f"    {one.where.file}:{one.where.line} in {one.where.function}")
        if one.where.source:
            lines.append(f"        {one.where.source.strip()}")
        lines += [f"    {line}" for line in (one.failure, *one.causes) if line]
        lines += [f"    fix: {fix}" for fix in one.fix]
    if len(every) > _SHOWN:
        lines += ["", f"and {len(every) - _SHOWN} more"]
    return lines


def _report(item: pytest.Item, found: Sequence[Diagnosis], shown: bool) -> None:
    """Put the findings into the JUnit properties of a test, and into its report.

    Args:
        shown: no message of the plugin has them, because the test passes, or fails by itself.
    """
    from tc.trace.findings.matching import Row

    rows = [Row.of(one).to_json() for one in _causes(found)]
    if rows:
        item.user_properties.append((_PROPERTY, rows))
        if shown:
            item.add_report_section("call", "tc", "\n".join(_texts(found)).lstrip("\n"))


class _BaselineWriter:
    """Collects the findings of all tests, those of other processes too, and writes them."""

    def __init__(self, config: pytest.Config) -> None:
        self.path = Path(config.getoption("--tc-write-baseline"))
        self.rows: dict[str, Any] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the findings of one test."""
        for name, rows in report.user_properties:
            if name == _PROPERTY:
                self.rows.update((row["id"], row) for row in rows)  # type: ignore[attr-defined]

    def pytest_sessionfinish(self) -> None:
        """Write the baseline."""
        from tc.tlparse.gate import write_rows
        from tc.tlparse.usage import Usage

        rows = [self.rows[name] for name in sorted(self.rows)]
        try:
            write_rows(rows, str(self.path), "--tc-write-baseline")
        except Usage as error:  # a disk that has become full, a folder that has gone
            pytest.exit(str(error), pytest.ExitCode.USAGE_ERROR)
