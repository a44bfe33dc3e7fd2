"""Every name of TORCH_LOGS switches something on, or is answered with what to use."""

from __future__ import annotations

import logging

import pytest

from tc.trace import logs
from tc.trace.lognames import INSTEAD, OF_BACKEND, OF_TORCH, SAME_AS
from tc.trace.logs import TOPICS, read_switches, set_logs, setup_from_text


def test_every_name_of_torch_logs_is_understood() -> None:
    registry = pytest.importorskip("torch._logging._internal").log_registry
    names = {*registry.log_alias_to_log_qnames, *registry.artifact_names}
    assert len(names) > 40
    for name in names:
        levels, unknown, _ = read_switches(name)
        assert bool(levels) != bool(unknown)
        assert name in TOPICS or len({name} & {*SAME_AS} | {name} & {*INSTEAD, *OF_TORCH}) == 1
    assert read_switches("+dynamo")[0] == {"graph_breaks": 2, "recompiles": 2}
    assert {part.removeprefix("+") for one in SAME_AS.values() for part in one.split(",")} <= {
        *TOPICS
    }


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("c10d", "which is about PyTorch itself; use TORCH_LOGS=c10d"),
        ("trace_call", "as TORCH_LOGS has; TC_LOGS=+graph_breaks shows the calls"),
        ("torch.nn", "which is about the logger of a module; use TORCH_LOGS=torch.nn"),
    ],
)
def test_names_that_only_torch_logs_has(
    name: str, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    setup_from_text(name)
    assert says in caplog.text and "did you mean" not in caplog.text
    caplog.clear()
    set_logs(**{name: True})
    assert f"set_logs has no {name!r}, {says}" in caplog.text


def test_levels_and_modules_as_the_function_of_torch_takes_them(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[dict[str, int]] = []
    monkeypatch.setattr("tc.trace.logs._switch", lambda levels, *_: chosen.append(levels))
    set_logs(dynamo=logging.DEBUG, guards=logging.INFO, cache=logging.ERROR)
    assert chosen == [read_switches("+dynamo,guards,-cache")[0]]
    set_logs(modules={"torch.nn": logging.INFO})
    assert "use torch._logging.set_logs(modules=...)" in caplog.text


def test_what_torch_logs_asks_of_a_backend_is_a_topic() -> None:
    assert not [name for name in OF_BACKEND if name not in (*TOPICS, *SAME_AS)]


def test_torch_logs_are_followed_unless_the_program_chose() -> None:
    board = logs._board
    set_logs()
    try:
        logs.follow(["graph_breaks", "aot_graphs"])
        assert board.sink is not None and board.sink.levels == {"aot_graphs": 1}
        logs.follow(["fusion", "post_grad_graphs"])
        assert board.sink.levels == {"fusion": 1, "aot_graphs": 1}
        logs.follow([])
        assert board.sink is None
        set_logs(recompiles=True)
        logs.follow(["aot_graphs"])
        assert board.sink is not None and board.sink.levels == {"recompiles": 1}
    finally:
        set_logs()
