"""Cases are cut, printed and reduced; the oracles here need no compiler."""

from __future__ import annotations

import json
from collections.abc import Collection

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from minifier_scripts import TENSOR, chain

from tc.minifier.case import Call, Case, Fact, Input, Step, from_json, to_json
from tc.minifier.passes import inputs, localise, nodes


def values(case: Case) -> list[torch.Tensor]:
    recorded = {"recorded": lambda key, shape=(): torch.ones(shape)}
    exec(case.program(), recorded)
    found = recorded["f"](*(recorded[name] for name in case.arguments))  # type: ignore[operator]
    return list(found) if isinstance(found, tuple) else [found]


def test_a_cut_case_is_a_program_of_its_own() -> None:
    cut = chain(9).keep(["v2", "v3", "v7"])
    assert [step.name for step in cut.steps] == ["v2", "v3", "v7"]
    assert [item.key for item in cut.inputs] == ["v0", "v1", "v6"]
    assert cut.outputs == ("v3", "v7"), "what no kept step uses is returned"
    assert all(value.shape == (2, 3) for value in values(cut))


def test_makers_of_what_cannot_be_an_input_are_kept() -> None:
    pair = Step("pair", "torch.chunk($0, 2)", ("x",))
    first = Step("first", "$0[0]", ("pair",))
    facts = {"x": TENSOR, "first": TENSOR, "pair": Fact("other")}
    case = Case((Input("x", "ones", "x", (2, 3)),), (pair, first), ("first",), facts=facts)
    cut = case.keep(["first"])
    assert [step.name for step in cut.steps] == ["pair", "first"]
    assert values(cut)[0].shape == (1, 3)


def test_a_case_survives_json() -> None:
    case = chain(4).keep(["v1", "v2"])
    again = from_json(json.loads(json.dumps(to_json(case))))
    assert again == case
    assert again.program() == case.program()
    assert again.facts == case.facts


def test_equal_programs_have_equal_text() -> None:
    case = chain(12)
    assert case.keep(["v3"]).program().replace("'v2'", "") == case.keep(["v6"]).program().replace(
        "'v5'", ""
    )


def test_the_compile_call_is_printed() -> None:
    assert str(Call("tc", (("dynamic", "True"),))) == "tc.compile(f, dynamic=True)"


@pytest.mark.parametrize(
    "item",
    [
        Input("x", "randn", shape=(2, 3), stride=(1, 2)),
        Input("x", "randn", shape=(), dtype="torch.float64"),
        Input("x", "randn", shape=(4,), dtype="torch.bool"),
        Input("x", "randn", shape=(2, 3), dtype="torch.int32", stride=(0, 1)),
        Input("x", "rand", shape=(3,), dtype="torch.bfloat16", requires_grad=True),
        Input("x", "ones", shape=(2,), dtype="torch.complex64"),
    ],
    ids=lambda item: item.expression(),
)
def test_inputs_are_made_as_described(item: Input) -> None:
    made = eval(item.expression(), {"torch": torch})
    assert tuple(made.shape) == item.shape
    assert str(made.dtype) == item.dtype
    assert made.requires_grad == item.requires_grad
    assert not item.stride or made.stride() == item.stride


# -- reductions, with an oracle that needs no compiler -----------------------------------------
def reduced(case: Case, culprits: Collection[str]) -> tuple[Case, int]:
    """Reduce with an oracle that looks for steps; returns what is left and the questions asked."""
    answers: dict[str, bool] = {}

    def fails(candidate: Case) -> bool:
        names = {step.name for step in candidate.steps}
        return answers.setdefault(",".join(sorted(names)), set(culprits) <= names)

    for one in (nodes.needed_steps, nodes.delta_debugging):
        for smaller in one(case, fails):
            assert fails(smaller)
            case = smaller
    return case, len(answers)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 120), st.data())
def test_exactly_the_culprits_remain(length: int, data: st.DataObject) -> None:
    case = chain(length)
    names = [step.name for step in case.steps]
    culprits = data.draw(st.sets(st.sampled_from(names), min_size=1, max_size=3))
    left, _ = reduced(case, culprits)
    assert {step.name for step in left.steps} == culprits


def test_one_culprit_among_600_takes_few_questions() -> None:
    _, one = reduced(chain(600), {"v400"})
    assert one <= 12
    _, two = reduced(chain(600), {"v10", "v590"})
    assert two <= 24


def test_a_failure_that_comes_and_goes_is_still_reduced() -> None:
    """Shows with an odd number of steps only: no prefix search is right about it."""

    def fails(candidate: Case) -> bool:
        names = {step.name for step in candidate.steps}
        return "v17" in names and (len(names) == 40 or len(names) % 2 == 1)

    case = chain(40)
    for one in (nodes.needed_steps, nodes.delta_debugging, nodes.singles):
        for smaller in one(case, fails):
            assert fails(smaller)
            case = smaller
    assert [step.name for step in case.steps] == ["v17"]


def test_shapes_shrink_together_with_the_numbers_that_name_them() -> None:
    facts = {"x": Fact("tensor", (64, 48), (48, 1), "torch.float32")}
    step = Step("n", "torch.nn.functional.layer_norm($0, (48,), None, None, 1e-05)", ("x",))
    case = Case((Input("x", "randn", "x", (64, 48)),), (step,), ("n",), facts=facts)

    def fails(candidate: Case) -> bool:
        try:
            values(candidate)
        except RuntimeError:
            return False
        return candidate.inputs[0].shape[-1] >= 3

    for smaller in inputs.smaller_shapes(case, fails):
        case = smaller
    assert case.inputs[0].shape == (3,)
    assert "(3,)" in case.steps[0].form


@pytest.mark.parametrize(
    "reported, left", [("no room for sin in buf", ["v0"]), ("cos is bad", []), ("", [])]
)
def test_what_an_error_names_is_tried_first(reported: str, left: list[str]) -> None:
    case = chain(9)
    asked: list[list[str]] = []

    def fails(candidate: Case) -> bool:
        asked.append([step.name for step in candidate.steps])
        return True

    found = [[s.name for s in one.steps] for one in localise.named_steps(case, fails, reported)]
    assert found == asked == ([left] if left else [])
