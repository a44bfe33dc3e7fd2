"""Folders of a process: they end with it, or with the next one if it was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT

from tc.compiler.runtime import scratch

HOLDS = """
import os, sys
from tc.compiler.runtime import scratch
folder = scratch.folder()
(folder / "file").write_text("x")
print(folder, flush=True)
if "fork" in sys.argv and os.fork():
    os._exit(0)
sys.stdin.read()
"""


def holder(base: Path, *arguments: str) -> tuple[subprocess.Popen[str], Path]:
    """Start a process that has a folder in ``base``."""
    variables = {**os.environ, "TMPDIR": str(base), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", HOLDS, *arguments]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=variables)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_process_that_ends_removes_its_folder(tmp_path):
    process, folder = holder(tmp_path)
    assert (folder / "file").exists()
    process.communicate("")
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_killed_process_is_removed_by_the_next(tmp_path):
    (killed, left), (alive, used) = holder(tmp_path), holder(tmp_path)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert (left / "file").exists()
    other, _ = holder(tmp_path)
    assert not left.exists() and (used / "file").exists()
    for process in (alive, other):
        process.communicate("")
    assert list(tmp_path.iterdir()) == []


def test_folders_that_forked_children_may_use_stay(tmp_path):
    """The parent is gone without its clean-up, and a child lives on."""
    parent, folder = holder(tmp_path, "fork")
    parent.wait()
    scratch.remove_abandoned(tmp_path)
    assert (folder / "file").exists()
    assert parent.stdin is not None and parent.stdout is not None
    parent.stdin.close()
    assert parent.stdout.read() == ""  # the child has ended
    scratch.remove_abandoned(tmp_path)
    assert not folder.exists()


@pytest.mark.parametrize("name", ["tc-report-abc", "tc-", "other"])
def test_folders_of_others_stay(tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / "file").write_text("x")
    scratch.remove_abandoned(tmp_path)
    assert (tmp_path / name / "file").exists()
