"""Inputs as users describe them: texts, torch's specs, live tensors; and what is refused."""

from __future__ import annotations

import pytest
import torch

import tc
from tc.compiler.ahead.inputs import spec_of
from tc.compiler.ahead.specs import Range
from tc.compiler.capture.dynamism import MARKS


def shapes(spec, sizes, case=None):
    with spec.inputs(sizes, case or spec.cases()[0]) as (args, kwargs):
        return [tuple(one.shape) for one in (*args, *kwargs.values()) if torch.is_tensor(one)]


def test_a_text_gives_sizes_ranges_names_and_values():
    spec = spec_of("x=B,4|8:int64 y=B,2..6/2!grad n:=[1,2]", sizes={"B": "1..3|16"})
    assert spec.kwargs["n"] == [1, 2]
    assert spec.variables == {
        "B": (Range(1, 3), 16), "x.shape[1]": (4, 8), "y.shape[1]": (Range(2, 6, 2),),
    }  # fmt: skip
    assert len(spec.cases()) == 4
    assert shapes(spec, {"B": 2, "x.shape[1]": 4, "y.shape[1]": 6}) == [(2, 4), (2, 6)]
    assert spec.text(spec.cases()[0]) == "x=(1..3,4):int64 y=(1..3,2..6/2) n=[1, 2]"


def test_looks_at_all_sizes_of_few_and_at_the_ends_of_many():
    assert Range(1, 64).looks() == list(range(1, 65))
    many = Range(2, 10_000).looks()
    assert {2, 3, 10_000, 9_999, 4096, 4097} <= set(many) and len(many) <= 64
    spec = spec_of("x=2..100,2..100,2..100")
    looks = spec.looks(spec.cases()[0])
    assert len(looks) <= 512
    assert {tuple(one.values()) for one in looks} >= {(2, 2, 2), (100, 100, 100), (2, 100, 2)}


@pytest.mark.parametrize(
    ("text", "sizes", "says"),
    [
        ("x", None, "names no input"),
        ("x=B", None, "nothing says what B may be"),
        ("x=,,4", None, "cannot be ''"),
        ("x=9..2", None, "no range"),
        ("x=4:flat32", None, "no dtype"),
        ("x=4@moon", None, "no device"),
        ("x=4:int64!grad", None, "has no gradients"),
        ("x=4 x=5", None, "given twice"),
        ("n:=open('f')", None, "no value"),
        ("x=4", {"B": 3}, "no dimension is called B"),
        ("x=B", {"B": -1}, "not -1"),
        ("x=B", {"B": []}, "is a size"),
        ("x=4", {"x": True}, "not True"),
    ],
)
def test_what_cannot_be_followed_is_said_in_one_sentence(text, sizes, says):
    with pytest.raises(tc.exc.OptionError, match=says) as found:
        spec_of(text, sizes=sizes)
    assert "\n" not in str(found.value)


def test_live_inputs_keep_their_marks_and_become_ranges_where_marked():
    x, y = torch.zeros(4, 3), torch.zeros(5)
    tc.mark_dynamic(x, 0, min=2, max=9)
    tc.mark_static(y, 0)
    before = dict(getattr(x, MARKS)), dict(getattr(y, MARKS))
    spec = spec_of((x, {"y": y}))
    assert list(spec.variables.values()) == [(Range(2, 9),)]
    case = spec.cases()[0]
    with spec.inputs({"input 0.shape[0]": 7}, case) as (args, _):
        assert args[0].shape == (7, 3) and args[1]["y"] is y
    assert (getattr(x, MARKS), getattr(y, MARKS)) == before
    plain = torch.zeros(2)
    with spec_of(plain).inputs({}, {}):
        assert hasattr(plain, MARKS)
    assert not hasattr(plain, MARKS)


def test_one_tensor_given_twice_is_made_once():
    x = torch.zeros(4)
    tc.mark_dynamic(x, 0, min=2, max=9)
    spec = spec_of((x, x))
    with spec.inputs({"input 0.shape[0]": 5}, spec.cases()[0]) as (args, _):
        assert args[0] is args[1]


dynamic_spec = pytest.importorskip("torch.fx.experimental.dynamic_spec", reason="torch 2.13")


def test_specs_of_torch_are_understood():
    b = dynamic_spec.ShapeVar("b", min=2, max=8)
    spec = spec_of(
        (torch.zeros(2, 3, dtype=torch.int64),),
        dynamic_spec.ShapesSpec(
            {
                "x": dynamic_spec.TensorSpec([b, None]),
                "rest": dynamic_spec.SeqSpec([dynamic_spec.TensorSpec([b * 2 + 1, 4]), 7]),
            },
            assumptions=[b < 6],
        ),
        names=("x",),
    )
    assert spec.variables == {"b": (Range(2, 8),)}
    assert [one["b"] for one in spec.looks(spec.cases()[0])] == [2, 3, 4, 5]
    with spec.inputs({"b": 3}, spec.cases()[0]) as ((x,), kwargs):
        assert x.shape == (3, 3) and x.dtype is torch.int64
        assert kwargs["rest"][0].shape == (7, 4) and kwargs["rest"][1] == 7


def test_open_dimensions_of_torch_need_an_example():
    with pytest.raises(tc.exc.OptionError, match="leaves dimension 1 of x open"):
        spec_of(None, {"x": dynamic_spec.TensorSpec([3, None])})
    with pytest.raises(tc.exc.OptionError, match="no tensor of 1 dim"):
        spec_of({"x": torch.zeros(2, 2)}, {"x": dynamic_spec.TensorSpec([3])})
    with pytest.raises(tc.exc.OptionError, match="n: tc precompiles for tensors"):
        spec_of(None, {"n": dynamic_spec.IntVar("n")})
