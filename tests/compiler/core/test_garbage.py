"""The collector is off while compiling, and as it was afterwards."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest
import torch

import tc
from tc.compiler.core import garbage
from tc.compiler.core.garbage import paused


@pytest.fixture(autouse=True)
def nothing_was_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests before these may have frozen objects, which is remembered for some blocks."""
    monkeypatch.setattr(garbage._BLOCKS, "uncounted", 0)


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_off_inside_on_after() -> None:
    with paused():
        assert not gc.isenabled()
        with paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_on_after_an_error() -> None:
    with pytest.raises(KeyError), paused():
        raise KeyError
    assert gc.isenabled()


def test_left_off_where_the_user_has_it_off() -> None:
    gc.disable()
    with paused():
        pass
    assert not gc.isenabled()


def test_blocks_of_two_threads_overlap() -> None:
    begun, trampoline = threading.Event(), threading.Event()

    def other() -> None:
        with paused():
            begun.set()
            trampoline.wait(10)

    thread = threading.Thread(target=other)
    with paused():
        thread.start()
        assert begun.wait(10)
    assert not gc.isenabled()
    trampoline.set()
    thread.join()
    assert gc.isenabled()


def test_off_in_a_backend_and_on_after_the_call() -> None:
    seen = []

    def backend(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> object:
        seen.append(gc.isenabled())
        return gm.forward

    tc.compile(lambda x: x + 1, backend=backend)(torch.zeros(2))
    assert seen == [False]
    assert gc.isenabled()


def test_what_a_block_made_is_old_after_it() -> None:
    with paused():
        made: list[object] = []
        assert any(made is found for found in gc.get_objects(generation=0))
    assert any(made is found for found in gc.get_objects(generation=2))
    assert gc.get_freeze_count() == 0


def test_what_the_user_froze_stays_frozen() -> None:
    # Not by their number: what other threads hold may die meanwhile.
    held: list[object] = []
    gc.freeze()
    try:
        with paused():
            pass
        assert not any(held is found for found in gc.get_objects())
    finally:
        gc.unfreeze()


def test_frozen_objects_are_not_counted_at_each_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "COUNTED_AGAIN", 5)
    counted: list[int] = []
    count = gc.get_freeze_count
    monkeypatch.setattr(gc, "get_freeze_count", lambda: counted.append(1) or count())
    kept: list[object] = [[]]
    gc.freeze()
    try:
        for _ in range(garbage.COUNTED_AGAIN + 2):
            with garbage.paused():
                pass
        assert len(counted) == 2
        assert count() > len(kept)  # nothing has thawed
    finally:
        gc.unfreeze()
