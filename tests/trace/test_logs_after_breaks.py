"""What logs call the functions and values that continue after a graph break."""

from __future__ import annotations

import pytest

from tc import trace
from tc.trace import Recompile, RecompileCause
from tc.trace.ids import CompileId
from tc.trace.logs import set_logs


def test_a_recompile_after_a_break_is_reported_in_the_words_of_the_program(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "M.torch_dynamo_resume_in_forward_at_13"
    cause = RecompileCause("___stack2", "___stack2 == 1", "1", "2", "a constant in the graph")
    set_logs(recompiles=True)
    with caplog.at_level("DEBUG", logger="tc"):
        trace.emit(Recompile(name, "m.py", 5, CompileId(1, 0), (cause,)))
        set_logs()
    said = capsys.readouterr().err
    assert "recompiling M.forward (resumed at 13)" in said
    assert "a value from before the break  1 → 2" in said
    assert "tc: M.forward (resumed at 13)  1 recompile" in said
    assert "torch_dynamo" not in said and "___" not in said
