"""Entries on disk: whole or absent, whatever happens to who writes them; bounded."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from kills import killed_at, together

from tc.compiler.runtime import bounded, store

KEY = "ab" + "0" * 62
OTHER = "ab" + "1" * 62


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TC_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TC_FORCE_DISABLE_CACHES", raising=False)
    return tmp_path


def path_of(folder: Path, key: str = KEY) -> Path:
    return folder / "kind" / key[:2] / key


def test_what_was_written_is_read():
    assert store.entry("kind", KEY) is None
    assert store.write("kind", KEY, b"content")
    assert store.entry("kind", KEY) == (b"content", b"")
    assert store.write("kind", KEY, b"content", b"events")
    assert store.entry("kind", KEY) == (b"content", b"events")
    assert store.read("kind", KEY) == b"content"
    assert store.entry("other", KEY) is None and store.read("other", KEY) is None


@pytest.mark.parametrize("reported", [b"", b"events" * 50])
@pytest.mark.parametrize("damage", ["cut", "empty", "flip", "flip end", "longer", "folder"])
def test_damaged_entries_are_absent_and_can_be_written_again(folder, damage, reported):
    store.write("kind", KEY, bytes(range(256)), reported)
    path = path_of(folder)
    content = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
        assert store.entry("kind", KEY) is None
        assert not store.write("kind", KEY, b"x")
        return
    path.write_bytes(
        {
            "cut": content[:100],
            "empty": b"",
            "flip": content[:7] + bytes([content[7] ^ 8]) + content[8:],
            "flip end": content[:-60] + bytes([content[-60] ^ 8]) + content[-59:],
            "longer": content + b"\n",
        }[damage]
    )
    assert store.entry("kind", KEY) is None
    assert store.write("kind", KEY, b"new")
    assert store.entry("kind", KEY) == (b"new", b"")


def test_a_page_that_a_crash_lost_is_found(folder):
    reported = bytes(range(1, 256)) * 1000
    assert store.write("kind", KEY, b"content", reported)
    assert store.entry("kind", KEY) == (b"content", reported)
    path = path_of(folder)
    content = path.read_bytes()
    for page in range(0, len(reported) - 4096, 4096):
        path.write_bytes(content[:page] + bytes(4096) + content[page + 4096 :])
        assert store.entry("kind", KEY) is None


@pytest.mark.sample(1)
@pytest.mark.parametrize("before", [None, (b"before", b"then")])
def test_killed_at_every_step(folder, before):
    after = (b"after", b"events")
    if before is not None:
        store.write("kind", KEY, *before)
    step = 0
    while killed_at(step, str(folder), lambda: store.write("kind", KEY, *after)):
        assert store.entry("kind", KEY) in (before, after)
        step += 1
    assert step >= 3
    assert store.entry("kind", KEY) == after


def test_a_full_disk_leaves_no_entry(folder):
    store.write("kind", OTHER, b"x")

    def write() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        assert not store.write("kind", KEY, bytes(5000))

    assert together(1, write) == [0]
    assert store.entry("kind", KEY) is None


def test_many_writers_at_once(folder):
    contents = [(bytes([i]) * 50_000, bytes([i]) * 50_000) for i in range(4)]

    def write() -> None:
        for content in contents * 5:
            store.write("kind", KEY, *content)
            assert store.entry("kind", KEY) in contents

    assert together(4, write) == [0] * 4
    assert store.entry("kind", KEY) in contents
    assert not list((folder / "tmp").iterdir())


def test_the_entry_used_least_recently_goes_first(folder, monkeypatch):
    monkeypatch.setattr(bounded, "LIMIT", 3000 * bounded.FOLDERS)
    keys = [f"ab{i}" for i in range(4)]
    for age, key in enumerate(keys[:3]):
        store.write("kind", key, bytes(900))
        os.utime(path_of(folder, key), (1000 + age, 1000 + age))
    assert store.entry("kind", "ab0") is not None  # used just now
    store.write("kind", keys[3], bytes(900))
    assert [store.entry("kind", key) is not None for key in keys] == [True, False, True, True]


def test_too_large_for_the_bound(folder, monkeypatch):
    monkeypatch.setattr(bounded, "LIMIT", 1000 * bounded.FOLDERS)
    assert not store.write("kind", KEY, bytes(1000))
    assert not path_of(folder).exists()
