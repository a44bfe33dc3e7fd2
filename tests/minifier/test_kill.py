"""However a reduction ends, the best is on disk, no process is left, and no file elsewhere."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from faultbench import environment

from tc.minifier.workplace import MARK

PROGRAM = "\n".join(
    [f"def f{n}(x):\n    y = [x, {n}]\n    return f'{{y!r}} {{x:>3}}'" for n in range(6)]
    + ["found = [f0(1), f3(2)]", "print(found[5 - 3])", ""]
)
CHECK = f"{sys.executable} {{}} 2>&1 | grep -q IndexError"
BIG = (
    "import torch, tc\n"
    + PROGRAM.replace("print(found[5 - 3])", "")
    + """
def g(x):
    y = torch.sin(x)
    for _ in range(8):
        y = torch.cos(y) + 1
    return torch.tanh(y) * 2
torch.manual_seed(0)
tc.compile(g)(torch.randn(4, 4))
"""
)


def started(folder: Path, *options: str, fault: str = "") -> subprocess.Popen[str]:
    """Start a reduction whose temporary files are in a folder of the test's."""
    (folder / "work").mkdir(exist_ok=True)
    (folder / "tmp").mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "tc.minifier", "script.py", *options],
        cwd=folder / "work",
        env={**environment(fault, folder), "TMPDIR": str(folder / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def marked(folder: Path) -> list[int]:
    """Processes that belong to a run whose temporary files are in a folder."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                text = Path(f"/proc/{name}/environ").read_bytes()
            except OSError:
                continue
            if f"{MARK}=".encode() in text and str(folder).encode() in text:
                found.append(int(name))
    return found


def is_clean(folder: Path, seconds: float = 20) -> bool:
    """Whether nothing runs any more, and nothing lies where temporary files are."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not marked(folder) and not list((folder / "tmp").iterdir()):
            return True
        time.sleep(0.1)
    return False


def ended(folder: Path, process: subprocess.Popen[str], number: signal.Signals) -> str:
    """Send a signal, and see that the folder is as it has to be; returns what was said."""
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert is_clean(folder), (marked(folder), list((folder / "tmp").rglob("*"))[:5])
    left = {path.name for path in (folder / "work").iterdir()}
    assert left <= {"script.py", "minified.py", "minified.history", "minified.pt"}, left
    output = folder / "work" / "minified.py"
    if output.exists():
        compile(output.read_text(), "minified.py", "exec")
    return errors


def wait_for(path: Path, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)


@pytest.mark.sample(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_reduction_that_is_ended_keeps_its_best(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "script.py").write_text(PROGRAM)
    process = started(tmp_path, "--check", CHECK)
    wait_for(tmp_path / "work" / "minified.py")
    errors = ended(tmp_path, process, number)
    output = tmp_path / "work" / "minified.py"
    assert output.exists()
    if process.returncode not in (0, -signal.SIGKILL):
        assert process.returncode == 130 and "Traceback" not in errors
        assert "--resume" in errors
    done = subprocess.run([sys.executable, str(output)], capture_output=True, text=True)
    assert "IndexError" in done.stderr


@pytest.mark.slow
def test_continuing_gives_what_an_uninterrupted_run_gives(tmp_path: Path) -> None:
    source = random.Random(time.time_ns())
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "script.py").write_text(PROGRAM)
    whole = started(tmp_path, "--check", CHECK, "-o", "opaque_call.py")
    assert whole.wait(timeout=300) == 0
    process = started(tmp_path, "--check", CHECK)
    wait_for(folder / "minified.history" / "answers.jsonl")
    time.sleep(source.uniform(0, 2))
    process.kill()
    process.communicate()
    again = started(tmp_path, "--check", CHECK, "--resume")
    _, errors = again.communicate(timeout=300)
    if "nothing to continue" in errors:
        pytest.skip("it had ended before")
    assert again.returncode == 0, errors
    assert (folder / "minified.py").read_text() == (folder / "opaque_call.py").read_text()
    assert not (folder / "minified.history").exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_reduction_of_a_graph_is_ended_at_a_random_time(
    number: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "script.py").write_text(BIG)
    for _ in range(3):
        process = started(tmp_path, fault="tc:crash:tanh")
        time.sleep(random.SystemRandom().uniform(0.2, 25))
        errors = ended(tmp_path, process, number)
        assert "Traceback" not in errors


@pytest.mark.slow
def test_a_graph_is_continued_to_the_same_result(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "script.py").write_text(BIG)
    whole = started(tmp_path, "-o", "opaque_call.py", fault="tc:crash:cos+tanh")
    assert whole.wait(timeout=600) == 0
    process = started(tmp_path, fault="tc:crash:cos+tanh")
    wait_for(folder / "minified.py", 300)
    process.kill()
    process.communicate()
    again = started(tmp_path, "--resume", fault="tc:crash:cos+tanh")
    _, errors = again.communicate(timeout=600)
    assert again.returncode == 0, errors
    assert (folder / "minified.py").read_text() == (folder / "opaque_call.py").read_text()
