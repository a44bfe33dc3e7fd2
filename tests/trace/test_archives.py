"""Logs in archives."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from real_traces import unpacked
from support import ROOT

from tc.trace.reader import Unreadable, find_logs
from tc.trace.session import load

NAME = "dedicated_log_torch_trace_a.log"
START = {"dynamo_start": {"stack": [{"line": 3, "name": "f", "filename": -1}]}}
IDS = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
LOG = ("V1120 09:14:22.968000 1 torch/x.py:1] " + json.dumps({**START, **IDS}) + "\n").encode()


def zipped(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def tarred(path: Path, files: dict[str, bytes]) -> Path:
    mode = "w:gz" if path.name.endswith("gz") else "w"
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


@pytest.mark.parametrize("name", ["t.zip", "t.tar", "t.tar.gz", "t.tgz"])
@pytest.mark.parametrize(
    "files",
    [
        {NAME: LOG},
        {"a/b/" + NAME: LOG, "a/notes.txt": b"x", "a/other.log": b"noise"},
        {"tl_out/raw.log": LOG, "tl_out/index.html": b"x"},
        {"../../" + NAME: LOG},
        {NAME + ".gz": gzip.compress(LOG)},
    ],
)
def test_logs_are_found_in_archives(tmp_path: Path, name: str, files: dict[str, bytes]) -> None:
    make = zipped if name.endswith("zip") else tarred
    session = load(make(tmp_path / name, files))
    assert [one.function for one in session.compiles] == ["f"]
    assert session.defects.counts == {}
    assert [one.name for one in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["t.zip", "t.tar.gz"])
def test_archives_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    make = zipped if name.endswith("zip") else tarred
    good = make(tmp_path / name, {NAME: LOG * 50}).read_bytes()
    for cut in range(0, len(good), max(1, len(good) // 12)):
        (tmp_path / name).write_bytes(good[:cut])
        try:
            load(tmp_path / name)
        except Unreadable as error:
            assert name in str(error)
    make(tmp_path / name, {"x.txt": b""})
    with pytest.raises(Unreadable, match="no trace log in"):
        load(tmp_path / name)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_stdin_may_be_packed(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    log = next((unpacked() / "simple").glob("*.log"))
    done = subprocess.run(
        [sys.executable, "-m", "tc.tlparse", "summary", "-", "--json"],
        input=pack(log.read_bytes()),
        capture_output=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert json.loads(done.stdout)["records"] == 151


def test_a_pattern_names_logs(tmp_path: Path) -> None:
    text = next((unpacked() / "simple").glob("*.log")).read_bytes()
    for name in ("a.log", "b.log", "c.txt"):
        (tmp_path / name).write_bytes(text)
    assert find_logs(tmp_path / "*.log") == [str(tmp_path / "a.log"), str(tmp_path / "b.log")]
    with pytest.raises(Unreadable, match=r"no file matches .*\*\.zip"):
        find_logs(tmp_path / "*.zip")
