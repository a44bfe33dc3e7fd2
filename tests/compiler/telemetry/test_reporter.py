"""What a compile is called."""

from __future__ import annotations

import linecache
import sys

import pytest
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


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "module, name",
    [
        ("telemetry.reporter", "traced_name"),
        ("telemetry.reporter", "cause_of"),
        ("telemetry.reporter", "break_event"),
        ("pipeline", "emit_plan"),
        ("core.notes", "Notes.to_events"),
    ],
)
def test_what_the_trace_lacks_costs_the_program_nothing(
    module: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def f(x: torch.Tensor, scale: int) -> torch.Tensor:
        y = x.sin() * scale
        if y.sum() > 100:
            y = y + 1
        return y.exp()

    def fails(*_args: object, **_options: object) -> object:
        raise RecursionError("no event can be made")

    lost: list[str] = []
    emit = sys.modules["tc.trace.emit"]
    monkeypatch.setattr(emit, "report_loss", lambda name, error: lost.append(name))
    monkeypatch.setattr(f"tc.compiler.{module}.{name}", fails)
    tc.reset()  # the code is that of the cases before
    compiled = tc.compile(f)
    x = torch.linspace(0, 1, 5, requires_grad=True)
    with capture_events():
        for scale in (2, 3):
            result = compiled(x, scale)
            torch.testing.assert_close(result, f(x, scale))
            given, wanted = (torch.autograd.grad(y.sum(), x) for y in (result, f(x, scale)))
            torch.testing.assert_close(given, wanted)
    assert lost
