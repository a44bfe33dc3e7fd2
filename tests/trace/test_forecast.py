"""What would help is foretold from all that guards hold, and said beside its own finding."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tc_log import Compiler
from torch_log import artifact, ids, start, torch_log

from tc.tlparse.summary import text
from tc.trace import events as ev
from tc.trace.findings.forecast import plan
from tc.trace.guardtext import values
from tc.trace.ids import CompileId

TESTED = "def g(x, flag):\n    return x * flag if flag > 2 else x + flag\n"


def test_modes_and_keys_are_part_of_what_is_played_through() -> None:
    state = (
        "GLOBAL_STATE: global_state() == "
        "{{'autocast_state': {{'enabled': [{}]}}, 'grad_mode': {}}}\n"
    )
    rows = [
        values(state.format(cast, grad) + f"EQUALS: same(L['n'], {n})\n"
               f"DICT_KEYS: same_keys(L['extra'], ('k{n // 2}',))\n")
        for n, (cast, grad) in enumerate([(False, True), (True, True), (False, False)])
    ]  # fmt: skip
    steps = plan(rows, ["n", "autocast_state", "grad_mode", "list(extra)"])
    assert steps[0].sources != ("n",) and steps[-1].after == 0
    torch = '+- GLOBAL_STATE: ___check_global_state() against {"autocast_state":{"enabled":[false]}'
    assert values(torch + ',"grad_mode":true}')["grad_mode"] == "True"
    assert values("DEFAULT_DEVICE: default_device() == 'cpu'")["default device"] == "'cpu'"


@pytest.mark.parametrize(("values_seen", "reported"), [(3, True), (6, False)])
def test_a_number_that_counts_does_not_take_few_values(
    tmp_path: Path, values_seen: int, reported: bool
) -> None:
    file = tmp_path / "m.py"
    file.write_text(TESTED)
    log = Compiler(tmp_path).start()
    for n in range(1, values_seen):
        cause = ev.RecompileCause(
            "flag", f"same(L['flag'], {n})", f"{n}", f"{n + 1}", "a constant", False,
            str(file), 2,
        )  # fmt: skip
        log.say(ev.Recompile("g", str(file), 1, CompileId(0, n - 1), (cause,)), n).start(n)
    (found,) = [one for one in log.end().findings if one.code == "TC201"]
    assert found.fix[0].startswith("nothing to do if it takes few values") is reported
    assert any("torch.where(flag" in one for one in found.fix)


def artifacts(number: int, source: dict[str, str], row: tuple[str, ...]) -> list[Any]:
    tree = "\n".join(one.format(value) for one, value in zip(source.values(), row, strict=True))
    return [({"dynamo_cpp_guards_str": {}, **ids(0, number)}, tree)]


def test_each_finding_of_a_function_has_its_own_step_in_the_summary(tmp_path: Path) -> None:
    rows = [("1", "'a'"), ("2", "'a'"), ("3", "'a'"), ("3", "'b'")]
    source = {"n": "EQUALS: same(L['n'], {})", "name": "EQUALS: same(L['name'], {})"}
    log = artifacts(0, source, rows[0])
    for number, (old, new) in enumerate(pairwise(rows), 1):
        name, at = ("n", 0) if old[0] != new[0] else ("name", 1)
        data = {
            "of": f"0/{number - 1}",
            "causes": [
                {"source": f"L['{name}']", "guard": "", "old": old[at], "new": new[at], "kind": "a"}
            ],
        }
        log += [artifact(0, "tc_recompile", json.dumps(data), number), start(0, number),
                *artifacts(number, source, new)]  # fmt: skip
    said = text(torch_log(tmp_path, start(0), *log), "trace")
    assert "      without n: 3 → 1 recompiles (predicted)" in said
    assert "      then without name: 1 → 0 recompiles (predicted)" in said
