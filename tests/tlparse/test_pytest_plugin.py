"""The pytest plugin, in processes of pytest: limits, baselines, traces, and xdist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support import ROOT, python

FUNCTIONS = """

def functions():
    def sized(x):
        return x.sin() + 1

    def broken(x):
        y = x.sin()
        print(end="")
        return y + 1

    return sized, broken
"""
TESTS = """
import pytest
import torch
import tc


@pytest.fixture(params=["tc", "torch"])
def compiled(request):
    compiler = {"tc": tc, "torch": torch}[request.param]
    return [compiler.compile(f, dynamic=False, backend="eager") for f in functions()]


@pytest.mark.tc(max_graph_breaks=0, max_recompiles=0)
def test_within(compiled):
    compiled[0](torch.ones(3))


@pytest.mark.tc(max_graph_breaks=0)
def test_breaks(compiled):
    compiled[1](torch.ones(3))


@pytest.mark.tc(max_recompiles=1)
def test_recompiles(compiled):
    for size in (2, 3, 4):
        compiled[0](torch.ones(size))


@pytest.mark.tc(max_recompiles=1)
class TestClass:
    @pytest.mark.tc(max_recompiles=2)
    def test_nearest_mark_counts(self, compiled):
        for size in (2, 3, 4):
            compiled[0](torch.ones(size))


def test_unmarked(compiled):
    compiled[1](torch.ones(3))
"""
TESTS += FUNCTIONS


FAILING = """
import pytest, torch, tc

def broken(gm, inputs):
    raise KeyError("no kernel for it")

@pytest.mark.tc(max_failures=0)
@pytest.mark.parametrize("compiler", [tc.compile, torch.compile])
def test_failure(compiler):
    def step(x):
        return x + 1

    with pytest.raises(Exception):
        compiler(step, backend=broken)(torch.ones(3))

@pytest.mark.tc(max_graph_breaks=0)
def test_reason_of_its_own():
    def step(x):
        print(end="")
        return x + 1

    tc.compile(step, backend="eager")(torch.ones(3))
    raise ValueError("mine")
"""


def run(folder: Path, *options: str, tests: str = TESTS, warm: bool = False) -> tuple[int, str]:
    (folder / "test_program.py").write_text(tests)
    # At its end pytest looks five times at all objects, most of which are torch's.
    done = python(
        "-m", "pytest", "-p", "tc.tlparse.pytest_plugin", "-p", "no:cacheprovider",
        "-p", "no:unraisableexception", "-p", "xdist", "-q", "-rA", *options, "test_program.py",
        cwd=folder, timeout=300, warm=warm,
        variables={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def outcomes(text: str) -> dict[str, str]:
    lines = re.findall(r"(?m)^(PASSED|FAILED) test_program\.py::(\S+)", text)
    return {name: word for word, name in lines}


WANTED = {
    **{f"test_within[{name}]": "PASSED" for name in ("tc", "torch")},
    **{f"test_breaks[{name}]": "FAILED" for name in ("tc", "torch")},
    **{f"test_recompiles[{name}]": "FAILED" for name in ("tc", "torch")},
    **{f"TestClass::test_nearest_mark_counts[{name}]": "PASSED" for name in ("tc", "torch")},
    **{f"test_unmarked[{name}]": "PASSED" for name in ("tc", "torch")},
}


def test_limits_baselines_and_traces(tmp_path: Path) -> None:
    baseline = tmp_path / "known.json"
    code, text = run(tmp_path, f"--tc-write-baseline={baseline}", "--tc-trace=traces", warm=True)
    assert (code, outcomes(text)) == (1, WANTED), text
    assert "tc: 1 graph break, allowed 0" in text and "tc: 2 recompiles, allowed 1" in text
    assert 'print(end="")' in text and "fix: " in text and "x.shape[0]" in text
    kept = {path.name for path in (tmp_path / "traces").iterdir()}
    assert "test_program.py_test_breaks_torch_" in kept
    known = json.loads(baseline.read_text())["findings"]
    assert len(known) >= 3
    code, text = run(
        tmp_path, f"--tc-baseline={baseline}", "-k", "unmarked and not torch", warm=True
    )
    assert code == 0, text
    baseline.write_text(json.dumps({"findings": known[:0]}))
    code, text = run(
        tmp_path, f"--tc-baseline={baseline}", "-k", "unmarked and not torch", warm=True
    )
    assert code == 1 and "that the baseline does not know: TC" in text


@pytest.mark.slow
def test_a_failure_shows_what_failed_once(tmp_path: Path) -> None:
    code, text = run(tmp_path, tests=FAILING)
    assert code == 1 and text.count("tc: 1 failed compile, allowed 0") == 2, text
    assert text.count("raised KeyError: 'no kernel for it'") == 1  # tc's words
    assert text.count("\n    KeyError: 'no kernel for it'") == 1  # PyTorch's
    assert text.count("the backend is at fault") == 2 and "__main__.py" not in text
    assert "ValueError: mine" in text and text.count("call of print()") == 1


def test_workers_of_xdist_record_and_report(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    code, text = run(tmp_path, "-n", "2", "--tc-write-baseline=known.json", "-k", "not torch")
    assert (code, outcomes(text)) == (1, {k: WANTED[k] for k in WANTED if "torch" not in k}), text
    assert len(json.loads((tmp_path / "known.json").read_text())["findings"]) >= 2


AWKWARD = """
import pytest
import torch
import tc


@pytest.mark.tc(max_graph_breaks=1)
@pytest.mark.parametrize("name", ["a/b", "a_b", "a b", "x" * 300])
def test_one_break(name, tmp_path, monkeypatch):
    def broken(x):
        print(end="")
        return x + 1

    monkeypatch.chdir(tmp_path)
    tc.compile(broken, backend="eager")(torch.ones(3))
"""


def test_each_test_has_a_folder_of_its_own_whatever_it_is_called(tmp_path: Path) -> None:
    code, text = run(tmp_path, "--tc-trace=traces", tests=AWKWARD, warm=True)
    assert code == 0, text
    folders = list((tmp_path / "traces").iterdir())
    assert len(folders) == 4 and all(any((one / "tc").iterdir()) for one in folders)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("options", "tests", "said"),
    [
        ((), "import pytest\n@pytest.mark.tc(max_breaks=0)\ndef test(): pass\n",
         "the mark tc takes max_graph_breaks, max_recompiles, max_failures, not max_breaks"),
        ((), "import pytest\n@pytest.mark.tc(max_recompiles='1')\ndef test(): pass\n",
         "max_recompiles of the mark tc is a number from 0 on, not '1'"),
        ((), "import pytest\n@pytest.mark.tc(0)\ndef test(): pass\n", "max_failures, not 0"),
        ((), "import pytest\n@pytest.mark.tc(max_failures=True)\ndef test(): pass\n",
         "max_failures of the mark tc is a number from 0 on, not True"),
        (("--tc-baseline=none.json",), "def test(): pass\n", "cannot read none.json"),
        (("--tc-trace=test_program.py",), "def test(): pass\n", "program.py: file exists; name"),
        (("--tc-trace=test_program.py/in",), "def test(): pass\n", "program.py/in: not a dir"),
        (("--tc-write-baseline=none/b.json",), "def test(): pass\n", "there is no folder"),
        (("--tc-write-baseline=.",), "def test(): pass\n", "is a folder, not a file; name another"),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence(
    tmp_path: Path, options: tuple[str, ...], tests: str, said: str
) -> None:
    code, text = run(tmp_path, *options, tests=tests)
    assert code and said in text
    # The test has failed, in one line, and nothing of the plugin is shown.
    assert "pytest_plugin.py" not in text and "def _limits" not in text
    assert options or ("1 failed" in text and len(text.splitlines()) < 15)


def test_a_baseline_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    code, text = run(
        tmp_path, "--tc-write-baseline=out/b.json",
        tests="import os\ndef test(): os.rmdir('out')\n",
    )  # fmt: skip
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "b.json: no such file or directory; choose another place" in text
    assert "Traceback" not in text and "pytest_plugin.py" not in text


def test_a_run_that_records_nothing_loads_nothing(tmp_path: Path) -> None:
    tests = (
        "import sys\ndef test():\n"
        "    assert not {'torch', 'tc.trace.session', 'tc.tlparse.gate'} & set(sys.modules)\n"
    )
    code, text = run(tmp_path, tests=tests)
    assert code == 0, text
