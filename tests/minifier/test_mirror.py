"""Programs in a mirror of a folder see what is in it, and change nothing of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tc.minifier import mirror
from tc.minifier.mirror import Mirror


@pytest.fixture
def user(tmp_path: Path) -> Path:
    folder = tmp_path / "user"
    for name in ("out/deep", ".hidden", "kept.history", "empty"):
        (folder / name).mkdir(parents=True)
    for name in ("script.py", "log.txt", "out/a.txt", "out/deep/b.txt", ".hidden/c.txt"):
        (folder / name).write_text(name)
    (folder / "kept.history" / "subject.json").write_text("1")
    (folder / "link.txt").symlink_to(folder / "log.txt")
    (folder / "nowhere").symlink_to(folder / "not there")
    os.mkfifo(folder / "pipe")
    return folder


def texts(folder: Path) -> dict[str, str]:
    found = {}
    for place, _, names in os.walk(folder, followlinks=True):
        for path in (Path(place, name) for name in names):
            if path.is_file():
                found[str(path.relative_to(folder))] = path.read_text()
    return found


WRITES: dict[str, Callable[[Path], object]] = {
    "over": lambda made: (made / "log.txt").write_text("new"),
    "as long": lambda made: (made / "log.txt").write_text("gol.txt"),
    "append": lambda made: (made / "out/a.txt").open("a").write("more"),
    "below": lambda made: (made / "out/deep/new.txt").write_text("new"),
    "beside": lambda made: (made / "new.txt").write_text("new"),
    "through a link": lambda made: (made / "link.txt").write_text("new"),
    "new folder": lambda made: (made / "empty/x/y").mkdir(parents=True),
    "remove": lambda made: (made / "log.txt").unlink(),
    "remove a folder": lambda made: shutil.rmtree(made / "out"),
    "rename": lambda made: (made / "out").rename(made / "other"),
    "its own file": lambda made: (made / "script.py").write_text("candidate"),
    "all": shutil.rmtree,
}


@pytest.mark.parametrize("write", WRITES)
def test_what_is_written_is_gone_afterwards(write: str, user: Path, tmp_path: Path) -> None:
    before = texts(user)
    made = Mirror(tmp_path / "made", user, "script.py")
    shown = {name: text for name, text in before.items() if name != "script.py"}
    for _ in range(2):
        assert texts(made.ready()) == shown
        WRITES[write](made.made)
    assert texts(user) == before
    assert (user / "out").is_dir() and list((user / "empty").iterdir()) == []


def test_what_the_user_changes_is_seen(user: Path, tmp_path: Path) -> None:
    made = Mirror(tmp_path / "made", user)
    made.ready()
    (user / "out" / "a.txt").write_text("later")
    (user / "log.txt").unlink()
    assert (made.ready() / "out" / "a.txt").read_text() == "later"
    assert not (made.made / "log.txt").exists()
    facts = made.made.stat().st_ino
    assert made.ready().stat().st_ino == facts  # nothing has changed since


def test_only_what_has_changed_is_made_again(user: Path, tmp_path: Path) -> None:
    made = Mirror(tmp_path / "made", user)
    made.ready()
    kept = (made.made / "out" / "a.txt").stat().st_ino
    left = made.left.copy()
    for number in range(3):  # another program writes its log all the time
        (user / "log.txt").write_text("x" * (number + 7))
        assert (made.ready() / "log.txt").read_text() == (user / "log.txt").read_text()
    assert (made.made / "out" / "a.txt").stat().st_ino == kept
    assert made.left["entries"] == left["entries"]
    assert made.left["bytes"] == left["bytes"] - 2


def test_a_mirror_below_the_folder_that_it_shows_does_not_show_itself(tmp_path: Path) -> None:
    (tmp_path / "work" / "deep").mkdir(parents=True)
    (tmp_path / "script.py").write_text("script")
    made = Mirror(tmp_path / "work" / "deep" / "made", tmp_path)
    assert (made.ready() / "script.py").read_text() == "script"
    assert (made.made / "work").is_symlink()
    inode = (made.made / "script.py").stat().st_ino
    assert (made.ready() / "script.py").stat().st_ino == inode


@pytest.mark.parametrize("limit", ["ENTRIES", "BYTES"])
@pytest.mark.parametrize("most", [0, 1, 7, 20])
def test_what_is_too_large_is_a_link(
    limit: str, most: int, user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, limit, most)
    made = Mirror(tmp_path / "made", user).ready()
    for name in texts(user):
        assert (made / name).read_text() == (user / name).read_text()
    assert Mirror(tmp_path / "again", user).ready().joinpath("log.txt").exists()
