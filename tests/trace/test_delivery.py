"""Output that does not arrive: one sentence and exit code 2 in every tool, no request to report."""

from __future__ import annotations

import errno
import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import ROOT

from tc.trace import delivery
from tc.trace.delivery import USAGE, Undelivered, complain, crash_report, delivered, run_tool

TOOLS = ("tc.tlparse", "tc.tui", "tc.minifier", "tc.minifier.bisect", "tc.compiler.ahead")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
LOG = """V1120 09:14:22.968000 1 torch/x.py:1] {"dynamo_start": {"stack": []}, "frame_id": 0, \
"frame_compile_id": 0, "attempt": 0}
"""


def shell(command: str, *words: str) -> Any:
    """Run a tool with its streams put somewhere else; `tool` in the command is Python -m."""
    tool = f"'{sys.executable}' -m "
    return subprocess.run(
        ["sh", "-c", command.replace("tool ", tool), "sh", *words],
        env=ENVIRONMENT, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "a.log"
    path.write_text(LOG)
    return str(path)


def is_one_sentence(done: Any, word: str) -> None:
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1 and word in done.stderr, done.stderr
    assert "report it" not in done.stderr and "Traceback" not in done.stderr


full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")


@pytest.mark.sample(1)
@full
@pytest.mark.parametrize("tool", TOOLS)
def test_help_on_a_full_disk(tool: str) -> None:
    is_one_sentence(shell(f"tool {tool} --help > /dev/full"), "no space left")
    is_one_sentence(shell(f"tool {tool} --version > /dev/full"), "no space left")


@pytest.mark.sample(2)
@full
@pytest.mark.parametrize(
    "command",
    [
        "tc.tlparse summary $1", "tc.tlparse summary $1 --json", "tc.tlparse check $1",
        "tc.tlparse summary $1 --format brief", "tc.tlparse $1", "tc.tlparse diff $1 $1",
        "tc.tlparse explain TC101", "tc.tlparse explain TC101 --json", "tc.tui $1",
        "tc.tui --split $1 $1",
    ],
)  # fmt: skip
def test_results_on_a_full_disk(command: str, log: str) -> None:
    is_one_sentence(shell(f"tool {command} > /dev/full", log), "no space left")


@pytest.mark.sample(2)
@pytest.mark.parametrize("tool", TOOLS)
def test_a_closed_stdout(tool: str) -> None:
    is_one_sentence(shell(f"tool {tool} --help >&-"), "stdout is closed")
    is_one_sentence(shell(f"tool {tool} --help 1< /dev/null"), "cannot write the output")


@pytest.mark.sample(2)
@pytest.mark.parametrize("tool", TOOLS)
def test_a_reader_that_has_seen_enough(tool: str) -> None:
    done = shell(f"(tool {tool} --help; echo $? >&2) | true")
    assert done.stderr == "0\n"


@pytest.mark.sample(2)
@full
@pytest.mark.parametrize("where", ["/dev/full", "&-"])
@pytest.mark.parametrize(
    "command, code",
    [
        ("tc.tlparse nowhere", 2), ("tc.tui nowhere", 2), ("tc.minifier nowhere.py", 2),
        ("tc.compiler.ahead nothing", 2), ("tc.tlparse check $1 --max-graph-breaks 0", 0),
    ],
)  # fmt: skip
def test_a_stderr_that_takes_nothing_leaves_the_exit_code(
    command: str, code: int, where: str, log: str
) -> None:
    assert shell(f"tool {command} 2>{where}", log).returncode == code


def raising(error: BaseException) -> Any:
    def work() -> int:
        raise error

    return work


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_what_stdout_cannot_encode_is_written_as_an_escape(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    text = "196 → 1 call: é \ud800"
    assert run_tool("tc-x", lambda: print(text) or 0, {}) == 0
    assert raw.getvalue() == f"{text}\n".encode(encoding, "backslashreplace")


def test_errors_that_are_not_of_output_stay_what_they_are() -> None:
    for error in (OSError(errno.EACCES, "no"), FileNotFoundError(2, "none", "x"), ValueError("x")):
        with pytest.raises(type(error)):
            delivered(raising(error))
    with pytest.raises(Undelivered, match=r"cannot write big\.log: no space"):
        delivered(raising(OSError(errno.ENOSPC, "No space left on device", "big.log")))
    assert delivered(lambda: 7) == 7


def test_a_crash_report_without_space(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(delivery.tempfile, "NamedTemporaryFile", none)
    assert crash_report("tc-x", KeyError("odd")).endswith("please report it")
    monkeypatch.setattr(sys, "stderr", None)
    complain("nobody reads this")
    monkeypatch.setattr(sys, "stderr", closed := io.StringIO())
    closed.close()
    complain("nor this")


class Wrong(Exception):
    pass


@pytest.mark.parametrize(
    ("work", "code", "said"),
    [
        (lambda: 7, 7, ""),
        (raising(Wrong("no such\n  option")), 2, "tc-x: no such option; try tc-x --help\n"),
        (raising(LookupError("nothing")), 3, "tc-x: nothing\n"),
        (raising(KeyError("tc-x has nothing")), 3, "tc-x: 'tc-x has nothing'\n"),
        (raising(LookupError("tc-x: nothing")), 3, "tc-x: nothing\n"),
        (raising(KeyboardInterrupt()), 130, "tc-x: stopped; half is written\n"),
        (raising(OSError(errno.ENOSPC, "full", "big.log")), 2, "tc-x: cannot write big.log: "),
        (raising(ValueError("odd")), 4, "tc-x: internal error (ValueError: odd); "),
    ],
)  # fmt: skip
def test_what_ends_a_tool_is_a_sentence_and_an_exit_code(
    work: Any, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    codes = {Wrong: USAGE, LookupError: 3}
    assert run_tool("tc-x", work, codes, "stopped; half is written") == code
    text = capsys.readouterr().err
    assert text.startswith(said) and text.count("\n") == (code != 7)
    for path in re.findall(r"\S+crash\S+", text):
        assert "ValueError: odd" in Path(path).read_text()
        Path(path).unlink()


def test_sigterm_ends_a_tool_like_ctrl_c(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def work() -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        return 0

    assert run_tool("tc-x", work, {}, "stopped") == delivery.INTERRUPTED
    assert capsys.readouterr().err == "tc-x: stopped\n"
    assert signal.getsignal(signal.SIGTERM) == before


def test_the_program_under_a_tool_gets_its_sigterm(tmp_path: Path) -> None:
    program = "import os, signal; os.kill(os.getppid(), signal.SIGTERM); signal.pause()"
    done = subprocess.run(
        [sys.executable, "-m", "tc.tlparse", "run", "--", sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    assert "it compiled nothing" in done.stderr


def test_no_tool_has_a_ladder_of_its_own() -> None:
    parts = ("compiler", "trace", "tlparse", "tui", "minifier")
    files = [path for part in parts for path in (ROOT / part).rglob("*.py")]
    having = [path.name for path in files if "crash_report(" in path.read_text()]
    assert having == ["delivery.py"]
    assert sum("run_tool(" in path.read_text() for path in files) == len(TOOLS) + 1
