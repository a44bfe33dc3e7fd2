"""What a compile is called."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable

import pytest
import torch

import tc
from tc.trace import CompileId, Reset
from tc.trace.emit import capture_events
from tc.trace.events import FrameStart, Recompile
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


def _reasons(run: Callable[[], None]) -> list[tuple[str, str, str]]:
    """Return (input, old, new) of each reason to compile again that a run reports."""
    with capture_events() as events:
        run()
    again = [one for one in events if isinstance(one, Recompile)]
    return [(cause.source, cause.old, cause.new) for one in again for cause in one.causes]


def test_code_that_ended_with_an_object_is_compiled_again_for_a_reason() -> None:
    """A function that is defined again takes the old one with it, and the code made for that."""
    space = {"torch": torch}
    exec("def act(x):\n    return x.relu()\ndef f(x):\n    return act(x) + 1\n", space)
    run = tc.compile(space["f"], backend="eager")
    x = torch.ones(3)

    def program() -> None:
        run(x)
        exec("def act(x):\n    return x * 3\n", space)
        assert torch.equal(run(x), x * 3 + 1)
        space["act"] = torch.tanh
        assert torch.equal(run(x), torch.tanh(x) + 1)
        run(x)

    assert [source for source, _, _ in _reasons(program)] == ["act", "act"]


def test_what_ended_long_ago_is_no_reason() -> None:
    def make(k: float) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: x * k

    run = tc.compile(lambda x, f: f(x) + 1, backend="eager")
    x, kept = torch.ones(3), make(2.0)

    def program() -> None:
        run(x, make(3.0))
        run(x, kept)

    found = _reasons(program)
    assert len(found) <= 1 and all("gone" not in old + new for _, old, new in found)


def test_what_ended_with_a_reset_is_no_reason() -> None:
    space = {"torch": torch}
    exec("def act(x):\n    return x.relu()\ndef f(x):\n    return act(x) + 1\n", space)
    run = tc.compile(space["f"], backend="eager")
    x = torch.ones(3)
    run(x)

    def program() -> None:
        tc.reset()
        exec("def act(x):\n    return x * 3\n", space)
        run(x)
        exec("def act(x):\n    return x * 4\n", space)
        tc.reset()
        assert torch.equal(run(x), x * 4 + 1)

    assert not _reasons(program)
