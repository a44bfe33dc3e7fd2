"""Files that users name: replaced in one step, or written to where nothing can be replaced."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import ROOT

from tc.trace.files import descriptor_of, is_replaceable, is_stdout, replace_file

WRITES = "import sys; from pathlib import Path; from tc.trace.files import replace_file; "


def test_a_regular_file_is_replaced_at_once(tmp_path: Path) -> None:
    target = tmp_path / "a.html"
    target.write_text("old")
    kept = target.open()
    replace_file(target, [b"new", b"er"])
    assert (target.read_bytes(), kept.read()) == (b"newer", "old")

    def broken() -> Iterator[bytes]:
        yield b"half"
        raise RuntimeError("odd")

    with pytest.raises(RuntimeError):
        replace_file(target, broken())
    assert target.read_bytes() == b"newer" and os.listdir(tmp_path) == ["a.html"]


def test_a_link_stays_and_what_it_names_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    real, link, again = tmp_path / "far" / "real", tmp_path / "link", tmp_path / "again"
    real.write_text("old")
    link.symlink_to(Path("far", "real"))
    again.symlink_to("link")
    replace_file(again, [b"new"])
    assert again.is_symlink() and link.is_symlink() and real.read_text() == "new"
    assert os.listdir(real.parent) == ["real"]
    real.unlink()
    replace_file(link, [b"first"])  # a link to what is not there yet
    assert link.is_symlink() and real.read_text() == "first"


def test_links_in_a_circle_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        replace_file(tmp_path / "a", [b"x"])
    assert (tmp_path / "a").is_symlink()


def test_a_folder_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError):
        replace_file(tmp_path / "a", [b"x"])
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("linked", [False, True])
def test_a_pipe_is_written_to(tmp_path: Path, linked: bool) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    replace_file(link if linked else pipe, [b"a", b"b"])
    reader.join(30)
    assert got == [b"ab"] and stat.S_ISFIFO(pipe.stat().st_mode)
    assert not is_replaceable(pipe) and not is_replaceable(link)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc here")
@pytest.mark.parametrize("regular", [False, True])
def test_a_descriptor_is_written_to_where_it_stands(tmp_path: Path, regular: bool) -> None:
    """Through a link of the test's own: entries of /dev are never written in a test."""
    link = tmp_path / "out"
    link.symlink_to("/proc/self/fd/1")
    code = f"{WRITES}print('before'); replace_file(Path({str(link)!r}), [b'in']); print('after')"
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if regular:
        with open(tmp_path / "file", "wb") as out:
            subprocess.run(command, env=environment, check=True, stdout=out)
        found = (tmp_path / "file").read_text()
    else:
        done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
        found = done.stdout.decode()
    assert found == "before\ninafter\n" and link.is_symlink()


def test_names_of_descriptors(tmp_path: Path) -> None:
    (tmp_path / "1").write_text("")
    assert descriptor_of(tmp_path / "1") is None and descriptor_of(tmp_path / "none") is None
    assert descriptor_of("/dev/fd/17") == descriptor_of(f"/proc/{os.getpid()}/fd/17") == 17
    assert descriptor_of("/proc/1/fd/17") is None  # another process's
    if os.path.islink("/dev/stdout"):
        assert descriptor_of("/dev/stdout") == 1 and is_stdout("/dev/stdout")
        assert descriptor_of("/dev/stderr") == 2 and not is_stdout("/dev/stderr")
