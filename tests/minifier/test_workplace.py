"""A run has its own folder and caches, and leaves neither files nor processes nor variables."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tc.minifier.workplace import CACHES, Workplace


def test_everything_is_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TC_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    before = dict(os.environ)
    with Workplace("test") as place:
        assert place.own_caches["TC_CACHE_DIR"] == str(tmp_path)
        assert all(Path(os.environ[name]).is_relative_to(place.folder) for name in CACHES)
        assert Path(tempfile.mkdtemp()).is_relative_to(place.folder)
        sleeper = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
        )
        time.sleep(0.3)
    assert sleeper.wait(timeout=20) == -9
    assert not place.folder.exists() and dict(os.environ) == before


def test_caches_may_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TC_CACHE_DIR", "/own")
    with Workplace("test", keep_caches=True):
        assert os.environ["TC_CACHE_DIR"] == "/own"


def test_programs_see_the_folder_and_do_not_change_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data.txt").write_text("7")
    monkeypatch.chdir(tmp_path)
    with Workplace("test") as place:
        made = place.scratch("scratch")
        assert (made / "data.txt").read_text() == "7"
        (made / "new.txt").write_text("1")
        assert not (tmp_path / "new.txt").exists()
        assert [path.name for path in place.scratch("scratch").iterdir()] == ["data.txt"]
    assert (tmp_path / "data.txt").read_text() == "7"
