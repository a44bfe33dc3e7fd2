"""What a compile is called."""

from __future__ import annotations

import linecache

import torch

import tc
from tc.trace import CompileId, Reset
from tc.trace.emit import capture_events
from tc.trace.events import FrameStart
from tc.trace.ids import Numbering


def test_no_id_begins_twice_however_a_compile_ends() -> None:
    def f(x: torch.Tensor, use: bool) -> object:
        return x + 1 if use else use

    compiled = tc.compile(f)
    with capture_events() as events:
        for use in (False, False, True, False):  # nothing to compile: asked again at each call
            compiled(torch.ones(2), use)
    began = [one.compile_id for one in events.stamped if isinstance(one.event, FrameStart)]
    assert len(began) == len(set(began)) > 2
    names = Numbering()
    for one in began:
        assert isinstance(one, CompileId)
        names.begin(1, str(one))
        assert names.name(1, str(one)) == str(one), "taken for a reset"


def test_a_reset_names_the_line_that_asked_for_it() -> None:
    with capture_events() as events:
        tc.reset()
    (asked,) = events.of(Reset)
    assert asked.file == __file__ and "tc.reset()" in linecache.getline(__file__, asked.line)
