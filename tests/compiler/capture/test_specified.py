"""``shapes_spec``: what is dynamic is said once for all calls of a function."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import pickle

import pytest
import torch

import tc
from tc.compiler import api
from tc.compiler.errors import ConstraintViolationError, OptionError

specs = pytest.importorskip("torch.fx.experimental.dynamic_spec")
A, B, N = specs.ShapeVar("a", max=64), specs.ShapeVar("b"), specs.IntVar("n")
ROWS = specs.TensorSpec([A, None])
r = torch.randn


def added(x, y):
    return x.sin() + y


def first(x, n):
    return x[:n] * n


def of_all(x, *args, **kw):
    return x.sum() + args[0].sum() + kw["k"].sum()


def broken(x, y):
    z, n = x * 2, x.shape[0] + 1
    print(end="")
    return z + y * n


class Held(torch.nn.Module):
    def forward(self, d, values):
        return d["a"].sum() * values[1].cos()


def graphs_of(function, spec, *calls):
    """Return how many graphs each call compiles; results are eager's."""
    tc.reset()
    compiled = tc.compile(function, shapes_spec=spec)
    found = []
    for args in calls:
        kwargs = args[-1] if isinstance(args[-1], dict) and function is of_all else {}
        args = args[:-1] if kwargs else args
        before = api.graph_stats()["graphs"]
        expected = function(*copy.deepcopy(args), **kwargs)
        torch.testing.assert_close(compiled(*args, **kwargs), expected)
        found.append(api.graph_stats()["graphs"] - before)
    return found


def test_specified_sizes_are_dynamic_at_once_and_others_are_not():
    pairs = [(r(n, m), r(n, m)) for n, m in ((4, 3), (5, 3), (5, 4), (9, 4), (1, 3))]
    assert graphs_of(added, {"x": ROWS, "y": ROWS}, *pairs) == [1, 0, 1, 0, 1]
    both = specs.ShapesSpec({"x": ROWS, "n": N})
    assert graphs_of(first, both, (r(9, 3), 4), (r(8, 3), 6)) == [1, 0]
    assert graphs_of(first, {"x": ROWS}, (r(9, 3), 4), (r(8, 3), 4), (r(8, 3), 5)) == [1, 0, 1]


def test_inputs_in_containers_and_the_rest_of_arguments():
    spec = {
        "d": specs.DictSpec({"a": ROWS}),
        "values": specs.SeqSpec([None, specs.TensorSpec([B])]),
    }
    calls = [({"a": r(4, 3)}, [1, r(5)]), ({"a": r(5, 3)}, [1, r(6)])]
    assert graphs_of(Held(), spec, *calls) == [1, 0]
    rest = {"*args": [specs.TensorSpec([A + 1])], "**kwargs": {"k": specs.TensorSpec([A * B])}}
    calls = [(r(4, 3), r(5), {"k": r(12)}), (r(6, 3), r(7), {"k": r(12)})]
    assert graphs_of(of_all, specs.ParamsSpec({"x": ROWS, **rest}), *calls) == [1, 0]


def test_what_is_computed_before_a_break_stays_dynamic():
    calls = [(r(n, 3), r(n, 3)) for n in (4, 5, 6)]
    assert graphs_of(broken, {"x": ROWS, "y": ROWS}, *calls) == [2, 0, 0]


def assigned(x, n):
    x, n = torch.cat([x.t(), x.t()]), n + 1
    print(end="")
    return x * n


def replaced(d, *args):
    d["a"] = d["a"].sum(0)
    print(end="")
    return d["a"] * args[0].sum()


def nonlocally(x):
    def change():
        nonlocal x
        x = x.sum(0)

    change()
    print(end="")
    return x * 2


def enclosed(x):
    def double():
        return x * 2

    print(end="")
    return double()


def test_what_code_before_a_break_replaces_is_not_held_against_the_spec():
    three = specs.TensorSpec([A, 3])
    calls = [(r(n, 3), 2) for n in (40, 41)]
    assert graphs_of(assigned, {"x": three, "n": 2}, *calls) == [2, 0]
    calls = [({"a": r(n, 3)}, r(n + 1)) for n in (4, 5)]
    spec = {"d": specs.DictSpec({"a": three}), "*args": [specs.TensorSpec([A + 1])]}
    assert graphs_of(replaced, specs.ParamsSpec(spec), *calls) == [2, 0]
    assert graphs_of(nonlocally, {"x": three}, (r(4, 3),), (r(5, 3),)) == [2, 0]
    assert graphs_of(enclosed, {"x": three}, (r(4, 3),), (r(5, 3),)) == [1, 0]


def passing_on(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


class Scaling:
    factor = 3

    def __call__(self, x, n):
        return x * n

    @passing_on
    def decorated(self, x, n):
        return x * n * self.factor

    def scale(self, x, n):
        return x * n * self.factor


class Forward(torch.nn.Module):
    def forward(self, x, n):
        return x * n


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "function",
    [
        passing_on(first),
        passing_on(passing_on(first)),
        Scaling(),
        Scaling().scale,
        Scaling().decorated,
        functools.partial(lambda y, x, n: x * n + y, r(3)),
        functools.partial(lambda x, n, y: x * n + y, y=r(3)),
        functools.partial(Forward()),
        torch.no_grad()(first),
    ],
)
def test_names_are_those_of_the_innermost_function(function):
    assert graphs_of(function, {"x": ROWS, "n": N}, (r(9, 3), 4), (r(8, 3), 6)) == [1, 0]


def swapping(function):
    @functools.wraps(function)
    def wrapper(a, b):
        return function(b, a)

    return wrapper


def test_a_decorator_that_changes_the_arguments_is_not_held_to_the_spec():
    assert graphs_of(swapping(first), {"x": ROWS, "n": N}, (4, r(9, 3))) == [1]


class Weighted(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = torch.nn.Parameter(r(size, 3))
        self.register_buffer("bias", r(size))

    def forward(self, x):
        return x @ self.weight.t() + self.bias


def test_parameters_of_a_module_that_is_an_argument():
    def call(module, x):
        return module(x)

    held = specs.ObjectSpec({"weight": ROWS, "bias": specs.TensorSpec([A])})
    spec = {"module": held, "x": specs.TensorSpec([B, None])}
    calls = [(Weighted(n), r(n + 1, 3)) for n in (4, 5, 6)]
    assert graphs_of(call, spec, *calls) == [1, 0, 0]


@dataclasses.dataclass
class Pair:
    a: torch.Tensor
    n: int


Named = collections.namedtuple("Named", "a n")


@pytest.mark.parametrize("kind", [Pair, Named])
def test_fields_of_objects(kind):
    spec = {"d": specs.ObjectSpec({"a": ROWS, "n": N})}
    calls = [(kind(r(4, 3), 5),), (kind(r(5, 3), 6),)]
    assert graphs_of(lambda d: d.a * d.n, spec, *calls) == [1, 0]
    if kind is Named:
        spec = {"d": specs.SeqSpec([ROWS, N])}
        assert graphs_of(lambda d: d.a * d.n, spec, *calls) == [1, 0]


def test_attributes_of_self():
    scaling = Scaling()
    compiled = tc.compile(scaling.scale, shapes_spec={"self": specs.ObjectSpec({"factor": N})})
    before = api.graph_stats()["graphs"]
    for factor in (3, 4, 5):
        scaling.factor = factor
        torch.testing.assert_close(compiled(torch.ones(2), 2), torch.ones(2) * 2 * factor)
    assert api.graph_stats()["graphs"] - before == 1


def test_parameters_of_a_module_are_constants():
    assert graphs_of(torch.nn.Linear(3, 2), {"input": ROWS}, (r(4, 3),), (r(5, 3),)) == [1, 0]
    linear = torch.nn.Linear(3, 2)
    tc.compile_in_place(linear, shapes_spec={"input": ROWS})
    before = api.graph_stats()["graphs"]
    for size in (4, 5):
        linear(r(size, 3))
    assert api.graph_stats()["graphs"] - before == 1
    with pytest.raises(ConstraintViolationError, match="a <= 64"):
        linear(r(65, 3))


@pytest.mark.parametrize(
    "function, spec, calls, says",
    [
        (added, {"x": ROWS, "y": ROWS}, [(r(65, 3), r(65, 3))], "a <= 64, but a is 65"),
        (added, {"x": ROWS, "y": ROWS}, [(r(4, 3), r(4, 3)), (r(70, 3), r(70, 3))], "<= 64"),
        (added, {"x": ROWS, "y": ROWS}, [(r(4, 3), r(1, 3))], "a in y, but a is 4, size of y is 1"),
        (added, {"x": specs.TensorSpec([A])}, [(r(4, 3), r(4, 3))], "x has 1 dimensions"),
        (first, {"x": specs.TensorSpec([A, 3])}, [(r(4, 5), 2)], "x has size 3 in dimension 1"),
        (first, {"n": N}, [(r(4, 5), r(2))], "n is n, but this call has a tensor"),
        (first, {"n": 3}, [(r(4, 5), 2)], "n is 3, but this call has 2"),
        (lambda x: x + torch.ones(5, 3), {"x": ROWS}, [(r(5, 3),)], "cannot stay dynamic"),
        (
            added,
            specs.ShapesSpec(
                {"x": ROWS, "y": specs.TensorSpec([B, None])}, assumptions=[2 * A < B]
            ),
            [(r(1, 3), r(4, 3)), (r(4, 3), r(4, 3))],
            "shapes_spec asks for",
        ),
    ],
)
def test_calls_that_are_not_as_specified_raise(function, spec, calls, says):
    tc.reset()
    compiled = tc.compile(function, shapes_spec=spec)
    *fine, wrong = calls
    for args in fine:
        torch.testing.assert_close(compiled(*args), function(*args))
    with pytest.raises(ConstraintViolationError, match=says):
        compiled(*wrong)


@pytest.mark.parametrize(
    "spec, more, says",
    [
        ({"z": ROWS}, {}, "names z, and the parameters are x, y"),
        ({"*args": [ROWS]}, {}, r"\*args, which the function does not take"),
        ({"x": ROWS}, {"dynamic": True}, "dynamic or a shapes_spec, not both"),
        (5, {}, "cannot be read"),
    ],
)
def test_specs_that_cannot_be_followed(spec, more, says):
    with pytest.raises(OptionError, match=says):
        tc.compile(added, shapes_spec=spec, **more)


class Doubled(torch.nn.Module):
    def forward(self, x):
        return x * 2


def test_pickles_are_refused_with_a_sentence_and_copies_are_as_specified():
    tc.reset()
    compiled = tc.compile(Doubled(), shapes_spec={"x": ROWS})
    with pytest.raises(pickle.PicklingError, match="compiled with a shapes_spec cannot be pickled"):
        pickle.dumps(compiled)
    copied = copy.deepcopy(compiled)
    torch.testing.assert_close(copied(torch.ones(3, 2)), torch.full((3, 2), 2.0))
    with pytest.raises(ConstraintViolationError):
        copied(torch.ones(65, 2))


def test_calls_that_run_as_python_are_not_held_against_a_spec():
    tc.reset()
    compiled = tc.compile(Doubled(), shapes_spec={"x": ROWS})
    with tc.set_stance("force_eager"):
        assert compiled(torch.ones(65, 2)).shape == (65, 2)
    with pytest.raises(ConstraintViolationError):
        compiled(torch.ones(65, 2))


def test_the_name_of_torch_214_says_the_same():
    tc.reset()
    compiled = tc.compile(Doubled(), dynamic_shapes={"x": ROWS})
    torch.testing.assert_close(compiled(torch.ones(3, 2)), torch.full((3, 2), 2.0))
    with pytest.raises(ConstraintViolationError):
        compiled(torch.ones(65, 2))
    with pytest.raises(OptionError, match="give shapes_spec or dynamic_shapes, not both"):
        tc.compile(Doubled(), dynamic_shapes={"x": ROWS}, shapes_spec={"x": ROWS})


@pytest.mark.parametrize("kind", ["function", "module", "in place"])
def test_what_the_decorator_of_torch_214_says_of_a_function(kind, monkeypatch):
    """On torch 2.13 this stands in for ``dynamic_spec``, which sets the same attribute."""
    tc.reset()
    attribute = "_dynamic_spec"
    monkeypatch.setattr(specs, "_DYNAMIC_SPEC_ATTR", attribute, raising=False)

    class Tripled(torch.nn.Module):
        def forward(self, x):
            return x * 3

    def tripled(x):
        return x * 3

    spec = specs.ShapesSpec({"x": ROWS})
    setattr(tripled if kind == "function" else Tripled.forward, attribute, spec)
    model = tripled if kind == "function" else Tripled()
    if kind == "in place":
        tc.compile_in_place(model)
    else:
        compiled = tc.compile(model)
        with pytest.raises(OptionError, match="give dynamic_shapes or @dynamic_spec, not both"):
            tc.compile(model, dynamic_shapes=spec)
        model = compiled
    torch.testing.assert_close(model(torch.ones(3, 2)), torch.full((3, 2), 3.0))
    with pytest.raises(ConstraintViolationError):
        model(torch.ones(65, 2))
