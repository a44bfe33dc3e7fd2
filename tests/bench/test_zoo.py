"""The zoo judges by distance from float64, makes configurations tiny by rules, and keeps rows."""

from __future__ import annotations

import functools
import json
import types
from pathlib import Path
from typing import Any

import pytest
import torch
import zoo
import zoo_judge
import zoo_operators
import zoo_specimen
from zoo_judge import Judge
from zoo_specimen import NoSpecimen, Specimen, first_that_works


class Net(torch.nn.Module):
    """Two layers, a buffer, and what a test breaks."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
        self.norm = torch.nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        y = self.norm(self.layer(x))
        return {"y": y, "more": (y.relu(), [y.argmax(1)])}


def inputs(index: int) -> dict[str, Any]:
    return {"x": zoo_specimen.numbers(5 + index, 4)}


class OneModel:
    """A family of one model."""

    def names(self) -> list[str]:
        return ["net"]

    def build(self, name: str, recipe: Any) -> Specimen:
        torch.manual_seed(0)
        return Specimen(Net(), inputs, [name])


def seen(net: torch.nn.Module, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    given = zoo_judge.as_double(inputs(0)) if dtype is torch.float64 else inputs(0)
    return zoo_judge.step(net, net, given, "train")


def judge() -> tuple[Judge, dict[str, torch.Tensor]]:
    net = OneModel().build("net", None).model
    import copy

    double = copy.deepcopy(net).double()
    eager = seen(copy.deepcopy(net))
    return Judge(eager, seen(double, torch.float64)), dict(eager)


def test_equal_results_pass() -> None:
    judged, found = judge()
    assert {"result.y", "result.more[0]", "grad of layer.weight", "grad of input x"} <= set(found)
    assert judged.difference(found) == ""


@pytest.mark.parametrize(
    "name", ["result.y", "result.more[1][0]", "grad of layer.weight", "grad of input x",
             "buffer norm.running_mean"],
)  # fmt: skip
def test_a_wrong_value_is_found(name: str) -> None:
    judged, found = judge()
    value = found[name].clone()
    value.view(-1)[1] += 1 if not value.is_floating_point() else 1e-2 * (1 + value.abs().max())
    found[name] = value
    assert name in judged.difference(found)


def test_another_type_and_a_missing_value_are_found() -> None:
    judged, found = judge()
    assert "float64" in judged.difference({**found, "result.y": found["result.y"].double()})
    del found["grad of layer.bias"]
    assert "grad of layer.bias" in judged.difference(found)


def test_nan_in_one_only_is_found() -> None:
    judged, found = judge()
    found["result.y"] = found["result.y"].clone()
    found["result.y"][0, 0] = float("nan")
    assert judged.difference(found)


def test_values_without_elements_are_no_distance_apart() -> None:
    assert zoo_judge.distance(torch.ones(0, 3), torch.ones(0, 3)) == 0.0


def test_a_model_runs_under_the_compiler() -> None:
    found = zoo_judge.run("tc", OneModel(), {"name": "net", "backend": "eager"})
    assert found["kind"] == "equal" and found["recipe"] == ["net"]


def test_an_error_of_the_compiler_alone_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(model: torch.nn.Module, backend: str) -> Any:
        def call(**given: Any) -> Any:
            raise RuntimeError("boom")

        return call

    monkeypatch.setitem(zoo_judge.COMPILERS, "tc", (start, dict))
    found = zoo_judge.run("tc", OneModel(), {"name": "net", "backend": "eager"})
    assert found["kind"] == "crash" and "boom" in found["detail"]


def test_the_first_way_that_works_is_taken_and_found_again() -> None:
    def fails() -> Any:
        raise ValueError("not like this")

    ways = [("a", fails), ("b", lambda: (Net(), inputs)), ("c", lambda: (Net(), inputs))]
    assert first_that_works(ways, None).recipe == "b"
    assert first_that_works(ways, "c").recipe == "c"
    with pytest.raises(NoSpecimen, match="not like this"):
        first_that_works(ways[:1], None)


def row(**changes: Any) -> zoo.Row:
    tc = {"kind": "equal", "graphs": 3, "breaks": 0, "seconds": 1.0, **changes}
    torch_answer = {"kind": changes.pop("torch", "equal"), "graphs": 3, "breaks": 1}
    return zoo.row_of("timm", "a_model", tc, torch_answer)


def test_rows_are_judged() -> None:
    assert row()["outcome"] == "equal"
    assert not zoo.more_breaks(row(breaks=1)) and zoo.more_breaks(row(breaks=2))
    assert row(kind="crash", clear=True)["outcome"] == "crash"
    assert row(kind="crash", clear=True, torch="crash")["outcome"] == "same error"
    text = zoo.table([row(), row(kind="differs"), row(breaks=2)])
    assert text.count("a_model") == 2 and "timm: 3 models: 2 equal, 1 differs; 1 break more" in text


def test_what_has_a_row_is_not_run_again(tmp_path: Path) -> None:
    rows = tmp_path / "rows-eager.jsonl"
    rows.write_text(json.dumps(row()) + "\n")
    (tmp_path / "names-timm.json").write_text('["a_model"]')
    import sys
    from unittest import mock

    arguments = ["zoo.py", "--family", "timm", "--out", str(tmp_path), "--backend", "eager"]
    with mock.patch.object(sys, "argv", arguments), mock.patch.object(zoo.Zoo, "run") as run:
        zoo.main()
    run.assert_not_called()


def test_operators_in_python_reach_modules_that_took_the_check_by_name() -> None:
    """Detection models of torchvision had no specimen: `boxes` holds the check under its name."""

    def refuse() -> None:
        raise RuntimeError("no extension")

    @functools.wraps(refuse)
    def compiled() -> None: ...

    boxes, align = types.ModuleType("boxes"), types.ModuleType("align")
    boxes._assert_has_ops = refuse  # type: ignore[attr-defined]
    align._roi_align = compiled  # type: ignore[attr-defined]
    zoo_operators.allow([boxes, align])
    boxes._assert_has_ops()
    assert align._roi_align is refuse
    assert not hasattr(align, "_assert_has_ops")
