"""A cache behind an address of fsspec: as a folder, and as harmless when it cannot be reached."""

from __future__ import annotations

import os
import sys

import pytest
import torch

import tc
from tc.compiler.runtime import bounded, claims, store
from tc.compiler.runtime.build import build_kernels
from tc.compiler.runtime.places import Folder, Memory
from tc.compiler.runtime.remote import Remote

pytest.importorskip("fsspec")
KEY = "ab" + "0" * 62
SOURCE = "int answer(void) { return 42; }\n"


@pytest.fixture(params=["memory://{}", "file://{}"])
def address(request, tmp_path, monkeypatch):
    found = request.param.format(tmp_path / "cache")
    monkeypatch.setenv("TC_CACHE_DIR", found)
    monkeypatch.delenv("TC_FORCE_DISABLE_CACHES", raising=False)
    store._Current.found = None
    return found


@pytest.mark.parametrize("kind", [Folder, Memory, Remote])
def test_all_places_do_the_same(kind, tmp_path):
    made = {Folder: lambda: Folder(tmp_path), Memory: Memory,
            Remote: lambda: Remote(f"file://{tmp_path}")}  # fmt: skip
    place = made[kind]()
    for ask in (place.read, lambda name: place.rewrite(name, b"x")):
        with pytest.raises(FileNotFoundError):
            ask("a/b")
    place.remove("a/b")
    assert place.files("a") == []
    place.write("a/b", b"one")
    assert not place.create("a/b", b"two") and place.create("a/c", b"three")
    assert place.read("a/b") == b"one"
    place.write("a/b", b"new")
    place.rewrite("a/c", b"other")
    place.touch("a/b")
    held = sorted(place.files("a"), key=lambda file: file.name)
    assert [(file.name, file.size) for file in held] == [("a/b", 3), ("a/c", 5)]
    assert all(file.used > 1e18 for file in held)
    assert place.files("tmp") == []
    place.remove("a/c")
    assert [file.name for file in place.files("a")] == ["a/b"]


def test_libraries_and_entries(address):
    for _ in range(2):
        library = build_kernels(SOURCE)
        assert library.path is None and library.open().answer() == 42
        assert store.write("kind", KEY, b"content", b"events")
        store._Current.found = None
        assert store.entry("kind", KEY) == (b"content", b"events")
    found, claim = claims.turn(store.store().place, "name", lambda: None)
    assert found is None and claim is not None
    claim.release()


def test_damaged_and_renamed_files_are_refused(address):
    store.write("kind", KEY, b"content")
    place = store.store().place
    content = place.read(store.name_of("kind", KEY))
    other = "ab" + "1" * 62
    place.write(store.name_of("kind", other), content)
    assert store.entry("kind", other) is None
    place.write(store.name_of("kind", KEY), content[:-1])
    assert store.entry("kind", KEY) is None


def test_it_is_bounded(address, monkeypatch):
    monkeypatch.setattr(bounded, "LIMIT", 3000 * bounded.FOLDERS)
    monkeypatch.setattr(bounded, "YOUNG_SECONDS", -1)
    for i in range(5):
        store.write("kind", f"ab{i}", bytes(900))
    assert sum(file.size for file in store.store().place.files("kind/ab")) <= 3000


def test_graphs_are_found_there(address):
    x = torch.randn(8)
    with tc.config.patch(fx_graph_cache=True):
        for hit in (False, True):
            tc.reset()
            store._Current.found = None
            with tc.trace.capture_events() as events:
                torch.testing.assert_close(tc.compile(torch.tanh)(x), torch.tanh(x))
            assert [e.hit for e in events if isinstance(e, tc.trace.Cache)] == [hit]


@pytest.mark.parametrize("address", ["no-such-thing://x", "s3://bucket/x", "memory://x"])
def test_an_address_that_cannot_be_reached_costs_the_cache_and_one_warning(
    address, monkeypatch, caplog
):
    monkeypatch.setenv("TC_CACHE_DIR", address)
    monkeypatch.setitem(sys.modules, "s3fs", None)
    if address.startswith("memory"):
        monkeypatch.setitem(sys.modules, "fsspec", None)
    store._Current.found = None
    for _ in range(2):
        assert build_kernels(SOURCE).open().answer() == 42
    assert len(caplog.records) == 1 and "cannot write to its cache" in caplog.text


def test_whatever_a_library_raises_is_an_oserror(address, monkeypatch, caplog):
    place = store.store().place
    monkeypatch.setattr(
        type(place._system), "pipe_file", lambda *a, **k: (_ for _ in ()).throw(ValueError("no"))
    )
    assert not store.write("kind", KEY, b"content")
    assert "ValueError: no" in caplog.text
    assert store.entry("kind", KEY) == (b"content", b"")


# -- a secret of those who share a cache -----------------------------------------------------------
@pytest.mark.parametrize("reader", ["", "another"])
def test_entries_made_without_the_secret_are_refused(tmp_path, monkeypatch, reader):
    monkeypatch.setenv("TC_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TC_CACHE_KEY", "secret")
    store.write("kind", KEY, b"content")
    assert store.entry("kind", KEY) is not None
    monkeypatch.setenv("TC_CACHE_KEY", reader)
    assert store.entry("kind", KEY) is None
    store.write("kind", KEY, b"poison")
    monkeypatch.setenv("TC_CACHE_KEY", "secret")
    assert store.entry("kind", KEY) is None


def test_files_can_be_read_by_those_who_share_the_folder(tmp_path):
    before = os.umask(0o022)
    try:
        Folder(tmp_path).write("a/b", b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o644
