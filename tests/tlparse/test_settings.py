"""Settings that are not at their defaults, of PyTorch's traces and of tc's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import make_defaults
import pytest
from real_traces import unpacked
from tc_log import Compiler
from torch_log import IDS, START, artifact, ids, start, torch_log

from tc.tlparse.settings import Setting, configured, defaults, settings
from tc.tlparse.summary import text
from tc.trace import events as ev
from tc.trace.session import load

TRACES = unpacked()


def metrics(frame: int = 0, **configs: dict[str, Any]) -> tuple[dict[str, Any], None]:
    """A record of what a compile was set to; settings that are left out are not recorded."""
    reported = {f"{owner}_config": json.dumps(values) for owner, values in configs.items()}
    return {
        "compilation_metrics": {"pytorch_version": "2.13.0+cpu", **reported},
        **ids(frame),
    }, None


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("simple", []),
        ("train", []),
        ("two_rank", []),
        ("recompile", ["dynamo.automatic_dynamic_shapes = False"]),
        ("dynamic", ["dynamo.capture_scalar_outputs = True"]),
    ],
)
def test_real_traces(name: str, changed: list[str]) -> None:
    found = settings(load(TRACES / name))
    assert (found.known, found.exact) == ("torch 2.13", True)
    assert list(map(str, found.rows)) == changed


def test_what_was_asked_for_one_compile_is_reported_with_its_graph(tmp_path: Path) -> None:
    runnable = (
        "import torch\ntorch._inductor.config.max_autotune = True\n"
        "torch._inductor.config.epilogue_fusion = True\n"  # as it is by default
        "torch._inductor.config.cpp.simdlen = <object>\n"
    )
    found = torch_log(
        tmp_path, START, artifact(0, "fx_graph_runnable", runnable),
        metrics(inductor={"max_autotune": False}), start(1),
        metrics(1, inductor={"epilogue_fusion": False, "compile_threads": 77}),
    )  # fmt: skip
    assert settings(found.session).rows == (
        Setting("inductor.epilogue_fusion", "False", "True", ("1/0",)),
        Setting("inductor.max_autotune", "True", "False", ("0/0",)),
    )
    shown = settings(found.session, found.session.compiles[1:]).rows
    assert [one.name for one in shown] == ["inductor.epilogue_fusion"]
    assert shown[0].compiles == ()  # all that were looked at
    assert "\nsettings: 2 not at the defaults of torch 2.13: " in text(found, "t")


@pytest.mark.parametrize(
    ("version", "known", "exact"),
    [("2.13.1", "2.13", True), ("2.14.0", "2.13", False), ("3.0.0", "2.15", False),
     ("2.1.0", "2.13", False), ("", "2.13", False)],
)  # fmt: skip
def test_of_an_unknown_version_the_nearest_is_named(
    tmp_path: Path, version: str, known: str, exact: bool
) -> None:
    record = {"compilation_metrics": {"dynamo_config": '{"recompile_limit": 9, "new": 1}'}, **IDS}
    found = torch_log(tmp_path, START, (record, None))
    found.session.environment["pytorch_version"] = version
    reported = settings(found.session)
    assert (reported.known, reported.exact) == (f"torch {known}", exact)
    assert reported.rows == (Setting("dynamo.recompile_limit", "9", "8"),)


def test_a_trace_that_does_not_record_its_settings(tmp_path: Path) -> None:
    broken = {"compilation_metrics": {"dynamo_config": "{", "inductor_config": 3}, **IDS}
    found = settings(torch_log(tmp_path, START, (broken, None)).session)
    assert found.to_json() == {"known": "", "exact": True, "changed": []}


def test_tc_records_its_own_defaults(tmp_path: Path) -> None:
    log = Compiler(tmp_path).start().say(ev.Metrics(
        config={"backend": "inductor", "config.recompile_limit": 4},
        config_defaults={"config.recompile_limit": 8},
    )).start(frame=1).say(ev.Metrics(config={"backend": "inductor"}), frame=1)  # fmt: skip
    found = settings(log.end().session)
    assert (found.known, found.rows) == (
        "tc", (Setting("config.recompile_limit", "4", "8", ("0/0",)),)
    )  # fmt: skip


def test_defaults_are_kept_as_changes_from_version_to_version() -> None:
    versions = {"1.0": {"a": 1, "b": 2}, "1.1": {"a": 1, "c": 3}}
    assert make_defaults.changes(versions) == {
        "1.0": {"set": {"a": 1, "b": 2}, "gone": []},
        "1.1": {"set": {"c": 3}, "gone": ["b"]},
    }
    known = defaults()
    assert make_defaults.changes(known) == json.loads(make_defaults.TARGET.read_text("utf-8"))
    assert known["2.13"]["dynamo.recompile_limit"] == 8


def test_every_setting_of_a_real_trace_is_known() -> None:
    found = configured(load(TRACES / "simple").compiles[0].metrics)
    assert found.keys() - defaults()["2.13"].keys() <= make_defaults.LOCAL


@pytest.mark.parametrize("value", ["{1, 'a'}", "{[]}", "-" * 3000 + "1", "(" * 999, "\0", "f()"])
def test_values_that_are_none_are_left_out(tmp_path: Path, value: str) -> None:
    runnable = f"torch._inductor.config.max_autotune = {value}\n"
    found = torch_log(
        tmp_path, START, artifact(0, "fx_graph_runnable", runnable),
        metrics(inductor={"max_autotune": False}),
    )  # fmt: skip
    assert settings(found.session).rows == ()


@pytest.mark.parametrize(("config", "default"), [(3, {"a": 1}), ({"a": 1}, 3), ({}, {"a": 1})])
def test_odd_records_of_tc_hold_no_settings(tmp_path: Path, config: Any, default: Any) -> None:
    odd = ev.Metrics(config=config, config_defaults=default)
    session = Compiler(tmp_path).start().say(odd).end().session
    assert settings(session).rows == ()
