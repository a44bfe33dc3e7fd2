"""A disk that fails at any operation costs the cache: results are right, and no run fails."""

from __future__ import annotations

import logging
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from disk_faults import Disk, Fault, faults, steps_of

import tc
from tc.compiler.runtime import claims, store
from tc.compiler.runtime.build import build_kernels
from tc.compiler.runtime.places import Folder

KEY = "ab" + "0" * 62
SOURCE = "int answer(void) { return 42; }\n"
#: compiles that the default suite does with a fault; the others are slow
SAMPLE = 5


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    cache = tmp_path / "cache"
    monkeypatch.setenv("TC_CACHE_DIR", str(cache))
    monkeypatch.delenv("TC_FORCE_DISABLE_CACHES", raising=False)
    with tc.config.patch(fx_graph_cache=True):
        tc.reset()
        yield cache


def another_process() -> None:
    """Forget what this process knows of its cache."""
    store._Current.found = None


def entries() -> None:
    """Write an entry, and read it as long as the disk gives it back."""
    another_process()
    assert store.entry("kind", KEY) in (None, (b"content", b"events"))
    store.write("kind", KEY, b"content", b"events")
    assert store.entry("kind", KEY) in (None, (b"content", b"events"))
    another_process()
    assert store.entry("kind", KEY) in (None, (b"content", b"events"))


def turns() -> None:
    """Take a turn, as somebody who makes an entry does."""
    place = store.store().place
    found, claim = claims.turn(place, "name", lambda: None)
    assert found is None
    if claim is not None:
        claim.release()


def builds() -> None:
    """Build a library, and find it."""
    for _ in range(2):
        another_process()
        assert build_kernels(SOURCE).open().answer() == 42


def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x @ y).cumsum(0)


X, Y = torch.randn(8, 8), torch.randn(8, 8, requires_grad=True)


def trains() -> None:
    """Compile a function with its gradient, as two processes one after the other would."""
    for _ in range(2):
        another_process()
        tc.reset()
        found, expected = tc.compile(function)(X, Y), function(X, Y)
        torch.testing.assert_close(found, expected)
        grads = [torch.autograd.grad(result.sum(), Y) for result in (found, expected)]
        torch.testing.assert_close(*grads)


def cases(folder: Path, work: Callable[[], None]) -> list[tuple[int, Fault]]:
    """Return every fault at every operation."""
    steps = steps_of(folder, work)
    shutil.rmtree(folder)
    return [(step, fault) for step in range(steps) for fault in faults()]


def goes_right(
    folder: Path,
    work: Callable[[], None],
    step: int,
    fault: Fault,
    warned: pytest.LogCaptureFixture,
) -> None:
    """Do something on a disk with a fault, and then on the same disk without it."""
    warned.clear()
    with Disk(folder, step, fault).at_work() as disk:
        work()
    texts = [record.getMessage() for record in warned.records if record.levelno >= logging.WARNING]
    at = f"{fault} at operation {step}: {disk.operations[step : step + 1]}"
    assert all("cannot write to its cache" in text for text in texts), at
    if folder.is_file():
        folder.unlink()
    work()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("work", [entries, turns])
def test_every_fault_at_every_operation(folder, work, caplog, monkeypatch):
    monkeypatch.setattr(claims, "SILENCE", 0.02)
    every = cases(folder, work)
    assert len(every) > 100
    for step, fault in every:
        goes_right(folder, work, step, fault, caplog)


@pytest.mark.slow
def test_every_fault_at_every_operation_of_a_build(folder, caplog, monkeypatch):
    monkeypatch.setattr(claims, "SILENCE", 0.02)
    for step, fault in cases(folder, builds):
        goes_right(folder, builds, step, fault, caplog)


@pytest.mark.parametrize("seed", [0, pytest.param(range(1, 100), marks=pytest.mark.slow)])
def test_compiles_on_a_disk_with_faults(folder, caplog, monkeypatch, seed):
    monkeypatch.setattr(claims, "SILENCE", 0.02)
    trains()  # what is made once a process
    shutil.rmtree(folder)
    every = cases(folder, trains)
    for one in seed if isinstance(seed, range) else [seed]:
        for step, fault in random.Random(one).sample(every, SAMPLE):
            goes_right(folder, trains, step, fault, caplog)


def test_one_warning_and_nothing_more_is_tried(folder, caplog):
    with Disk(folder, 0, Fault("EROFS", lasting=True)).at_work() as disk:
        trains()
        another = len(disk.operations)
        assert store.store().read("lib/ab/cd", lambda content, name: content) is None
    assert len(caplog.records) == 2  # one a process
    assert len(disk.operations) == another + 1


def test_a_folder_that_can_only_be_read_is_used_without_a_word(folder, caplog):
    trains()
    calls: list[str] = []
    refused = Fault("EROFS", lasting=True)

    class ReadOnly(Disk):
        def goes_wrong(self, name: str) -> bool:
            calls.append(name)
            if name in ("replace", "unlink", "mkdir", "write"):
                self.step = 0
                return super().goes_wrong(name)
            return False

    with ReadOnly(folder, 10**9, refused).at_work():
        trains()
    assert "read" in calls and not caplog.records


@pytest.mark.parametrize("home", ["missing", "a file"])
def test_no_home_and_no_folder(tmp_path, monkeypatch, caplog, home):
    monkeypatch.delenv("TC_CACHE_DIR")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    if home == "a file":
        (tmp_path / "home").write_text("")
    else:
        monkeypatch.delenv("HOME")
        monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    builds()
    assert "cannot write to its cache" in caplog.text


def test_a_pipe_in_the_place_of_an_entry_is_no_entry(folder):
    import os

    path = folder / store.name_of("kind", KEY)
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    assert store.entry("kind", KEY) is None


def test_temporary_files_do_not_stay_after_a_full_disk(folder):
    place = Folder(folder)
    with Disk(folder, 0, Fault("ENOSPC", lasting=True)).at_work(), pytest.raises(OSError):
        place.write("a/b", b"x")
    place.write("a/b", b"x")
    with Disk(folder).at_work() as disk:
        place.write("a/b", b"x")
    write = disk.operations.index("write")
    (folder / "a" / "b").unlink()
    with Disk(folder, write, Fault("ENOSPC")).at_work(), pytest.raises(OSError):
        place.write("a/b", b"x")
    assert not list((folder / "tmp").iterdir()) and not list((folder / "a").iterdir())
