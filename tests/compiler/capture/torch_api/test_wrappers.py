"""Tensors that wrap other tensors (``__tensor_flatten__``), in, inside and out of captured code."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from capture_harness import same
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.nested import nested_tensor
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    is_traceable_wrapper_subclass,
    return_and_correct_aliasing,
)

import tc
from tc import trace
from tc.compiler import api
from tc.compiler.errors import StageError, Unsupported

FLAGS = ("strides", "storage_offset", "dtype", "layout", "device", "requires_grad")


class Wrapper(torch.Tensor):
    """One tensor and a note that all results carry on."""

    @staticmethod
    def __new__(cls, inner, note=None):
        plain = (inner.stride(), inner.storage_offset(), inner.dtype, inner.layout, inner.device)
        flags = dict(zip(FLAGS, (*plain, inner.requires_grad), strict=True))
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, **flags)

    def __init__(self, inner, note=None):
        self.inner = inner
        self.note = note

    def __repr__(self):
        return f"{type(self).__name__}({self.inner!r}, {self.note!r})"

    def noted(self):
        return self.inner + (self.note or 0)

    @property
    def half(self):
        return self / 2

    def __tensor_flatten__(self):
        return ["inner"], self.note

    @classmethod
    def __tensor_unflatten__(cls, inner, note, size, stride):
        return cls(inner["inner"], note)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        notes = [x.note for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, Wrapper)]
        plain = pytree.tree_map_only(Wrapper, lambda x: x.inner, (args, kwargs or {}))
        out = func(*plain[0], **plain[1])
        out = pytree.tree_map_only(torch.Tensor, lambda x: cls(x, notes[0]), out)
        return return_and_correct_aliasing(func, args, kwargs or {}, out)


class Asked(Wrapper):
    """Triples what is added."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            out = func(*args, **(kwargs or {}))
            return out * 3 if func is torch.Tensor.add else out


@dataclasses.dataclass(frozen=True)
class Note:
    size: Any
    more: Any = None


def flat(value):
    """Return a value with wrappers taken apart, for comparing."""
    if isinstance(value, torch.Tensor) and value.is_nested:
        return [type(value), [x.detach() for x in value.unbind()], value.requires_grad]
    if is_traceable_wrapper_subclass(value):
        names, note = value.__tensor_flatten__()
        parts = [flat(getattr(value, name)) for name in names]
        return [type(value), note, parts, value.shape, value.requires_grad, value.is_leaf]
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return type(value)(map(flat, value))
    return value


def graphs_of(fn, *calls, **options):
    """Return the number of graphs after each call, checking each against eager."""
    tc.reset()
    compiled = tc.compile(fn, **{"backend": "eager", "fullgraph": True, **options})
    counts = []
    for make in calls:
        args, others = make(), make()
        want, got = fn(*args), compiled(*others)
        same(flat((got, *others)), flat((want, *args)), "result")
        counts.append(api.graph_stats()["graphs"])
    return counts


def numbers(*shape, start=0.0):
    return torch.arange(start, start + torch.Size(shape).numel()).reshape(shape)


def wrapped(*shape, note=2, kind=Wrapper):
    return lambda: (kind(numbers(*shape), note),)


def two(*shape):
    return lambda: (TwoTensor(numbers(*shape), numbers(*shape, start=1.0)),)


# -- operations ------------------------------------------------------------------------------
def operations(x):
    y = x * 2 + 1
    return y, y.sum(), y[0], torch.cat([x, y]), y.view(-1), x.t() @ y, y.shape, y.dtype, type(y)


def parts(x):
    y = x.sin()
    return x.inner + 1, y.inner + y.note, x.noted(), y.noted(), x.half, y.half.inner, y


def identities(x):
    y = Wrapper(x.inner, 5)
    return y.inner is x.inner, x.inner is x.inner, y.note, isinstance(y, Wrapper), y


def in_place(x):
    x.mul_(2)
    x.inner.add_(1)
    return x + x.inner.sum()


def views_and_writes(x):
    y = x.view(-1)
    y.add_(1)
    return y, x


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("fn", [operations, parts, identities, in_place, views_and_writes])
def test_as_eager(fn, dynamic):
    assert graphs_of(fn, wrapped(2, 3), wrapped(2, 3), dynamic=dynamic) == [1, 1]


@pytest.mark.parametrize("dynamic", [None, True])
def test_two_tensors(dynamic):
    def fn(x):
        y = x.clone()
        return y.a, y.view(-1), y.b, x.a is x.b, y.size(0) * y

    assert graphs_of(fn, two(3, 4), two(3, 4), dynamic=dynamic) == [1, 1]


def test_wrappers_of_wrappers():
    def make():
        inner = TwoTensor(numbers(2, 3), numbers(2, 3))
        return TwoTensor(inner, TwoTensor(numbers(2, 3), Wrapper(numbers(2, 3), 1))), inner

    def fn(x, y):
        return x * 2, x.b.a + 1, (x + 1).b.b.inner, x.a, y.sin()

    assert graphs_of(fn, make, make) == [1, 1]
    assert graphs_of(fn, make, make, dynamic=True) == [1, 1]


def test_own_torch_function_is_traced():
    def fn(x):
        return x + 1, x * 2, (x + 1).inner

    assert graphs_of(fn, wrapped(2, 3, kind=Asked), wrapped(2, 3, kind=Asked)) == [1, 1]


def test_both_kinds_in_one_graph_run_eagerly():
    """Traced overrides must not run again, and those of PyTorch have to run with the graph."""

    def make():
        return Asked(numbers(2, 3), 1), Wrapper(numbers(2, 3), 1)

    graphs_of(lambda x, y: (x + 1, y + 1), make, make, fullgraph=False)


# -- construction ----------------------------------------------------------------------------
def test_constructed_inside():
    def fn(x):
        y = Wrapper(x * 2, note=4)
        return y + y, y.inner, y.note, TwoTensor(x, x + 1).sum()

    make = lambda: (numbers(2, 3),)  # noqa: E731
    assert graphs_of(fn, make, make) == [1, 1]


def test_constructed_with_sizes_in_the_metadata():
    def fn(x):
        y = Wrapper(x * 2, Note(x.shape, Note(x.shape[0])))
        return y.inner, y.note.size, y.note.more.size, (y + 1).inner

    calls = [lambda n=n: (numbers(n, 3),) for n in (2, 3, 4)]
    assert graphs_of(fn, *calls) == [1, 2, 2]


def test_returned_parameter():
    layer = torch.nn.Linear(3, 3)
    layer.weight = torch.nn.Parameter(TwoTensor(numbers(3, 3), numbers(3, 3)))

    def fn():
        return layer.weight + (1 if isinstance(layer.weight, torch.nn.Parameter) else 2)

    assert graphs_of(fn, tuple, tuple) == [1, 1]


class Adding(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return Wrapper(x.inner + x.note, x.note).inner

    @staticmethod
    def backward(ctx, grad):
        return grad


def test_inside_an_autograd_function():
    fn = lambda x: Adding.apply(Wrapper(x, 3)) * 2  # noqa: E731
    make = lambda: (numbers(2, 3),)  # noqa: E731
    assert graphs_of(fn, make, make) == [1, 1]


# -- guards ----------------------------------------------------------------------------------
def test_metadata_is_guarded():
    calls = [wrapped(2, 3, note=note) for note in (1, 1, 2, {"a": 1}, {"a": 1}, {"a": 2})]
    assert graphs_of(lambda x: x * 2, *calls) == [1, 1, 2, 3, 3, 4]


def test_metadata_of_inner_wrappers_is_guarded():
    calls = [lambda n=n: (TwoTensor(numbers(2), Wrapper(numbers(2), n)),) for n in (1, 1, 2)]
    assert graphs_of(lambda x: x * 2, *calls) == [1, 1, 2]


def test_own_comparison_of_metadata():
    class Lenient(Wrapper):
        @classmethod
        def __metadata_guard__(cls, old, new):
            return old <= new

    calls = [wrapped(2, note=note, kind=Lenient) for note in (2, 3, 1)]
    assert graphs_of(lambda x: x.detach().inner * 2, *calls) == [1, 1, 2]


@pytest.mark.parametrize("guard", [lambda self, a, b: True, classmethod(lambda cls, a: True)])
def test_comparison_of_the_wrong_form(guard):
    kind = type("Wrong", (Wrapper,), {"__metadata_guard__": guard})
    with pytest.raises(StageError, match="__metadata_guard__ has to be a classmethod"):
        tc.compile(lambda x: x * 2, backend="eager")(kind(numbers(2), 1))


def test_wrapped_tensors_are_guarded():
    calls = [
        two(2, 3),
        lambda: (TwoTensor(numbers(2, 3).double(), numbers(2, 3).double()),),
        lambda: (TwoTensor(numbers(2, 3), Wrapper(numbers(2, 3))),),
        lambda: (numbers(2, 3),),
    ]
    assert graphs_of(lambda x: x * 2, *calls, *calls) == [1, 2, 3, 4, 4, 4, 4, 4]


def test_sizes_become_dynamic():
    calls = [two(n, 3) for n in (2, 3, 4, 5)]
    assert graphs_of(lambda x: x * x.shape[0], *calls) == [1, 2, 2, 2]
    assert graphs_of(lambda x: x * x.shape[0], *calls, dynamic=True) == [1, 1, 1, 1]


def test_views_as_inputs():
    for change in (lambda x: x.t(), lambda x: x.view(-1), lambda x: x[0], lambda x: x.detach()):
        make = lambda change=change: (change(two(4, 3)()[0]),)  # noqa: E731
        assert graphs_of(lambda x: x * 2, make, make) == [1, 1]
        assert graphs_of(lambda x: x * 2, make, make, dynamic=True) == [1, 1]


def test_views_with_a_size_that_no_input_has():
    make = lambda: (two(4, 15)()[0][2:3, 5:9],)  # noqa: E731
    graphs_of(lambda x: x * 2, make, dynamic=True, fullgraph=False)
    with pytest.raises(Unsupported, match="TC136"):
        graphs_of(lambda x: x * 2, make, dynamic=True)


# -- gradients and backends ------------------------------------------------------------------
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_gradients(backend):
    def run(f):
        leaf = TwoTensor(numbers(2, 3), numbers(2, 3)).requires_grad_()
        out = f(leaf)
        out.sum().backward()
        return flat(out), flat(leaf.grad)

    fn = lambda x: (x.sin() * 2).cos()  # noqa: E731
    same(list(run(tc.compile(fn, backend=backend))), list(run(fn)), "gradients")


def reported_by(fn, *args):
    with trace.capture_events() as events:
        got = tc.compile(fn, fullgraph=True)(*args)
    same(flat(got), flat(fn(*args)), "result")
    return [e.payload for e in events.of(trace.Artifact) if e.name == "tc_graph_runs_eagerly"]


@pytest.mark.parametrize("grad", [False, True])
def test_kernels_are_refused_and_reported(grad):
    x = numbers(2, 3).requires_grad_(grad)
    (reported,) = reported_by(lambda x: x * 2, TwoTensor(x, x))
    assert "TwoTensor, not a plain tensor" in reported
    (reported,) = reported_by(lambda x: TwoTensor(x * 2, x * 3).sin().a, x)
    assert "TwoTensor, not a plain tensor" in reported


# -- ragged tensors --------------------------------------------------------------------------
def ragged(lengths, width=5):
    return nested_tensor([numbers(n, width) for n in lengths], layout=torch.jagged)


def test_ragged():
    def fn(x):
        y = x * 2 + x.sin()
        return y, x.is_nested, y.values() + 1, y.offsets(), x.size(0), y.dim(), y.sum(-1)

    calls = [lambda: (ragged((2, 3, 4)),), lambda: (ragged((2, 4, 6)),)]
    assert graphs_of(fn, *calls, dynamic=True) == [1, 1]


def test_ragged_sizes_are_compared():
    def fn(x, y):
        return x + y if x.shape == y.shape else x.sin()

    def equal():
        x = ragged((2, 3, 4))
        return x, x.clone()

    def other():
        return ragged((2, 3, 4)), ragged((2, 3, 4))

    assert graphs_of(fn, equal, equal, other, other, dynamic=True) == [1, 1, 2, 2]


def test_ragged_constructed_inside():
    def fn(values, offsets):
        x = torch.nested.nested_tensor_from_jagged(values * 2, offsets)
        return x.sin(), x.values()

    make = lambda: (numbers(9, 5), torch.tensor([0, 2, 5, 9]))  # noqa: E731
    assert graphs_of(fn, make, make) == [1, 1]


def test_ragged_sizes_of_the_graph_are_compared_with_numbers():
    def fn(x, queries):
        y = nested_tensor(queries, layout=torch.jagged)
        y = torch.nn.functional.layer_norm(y.unflatten(-1, (2, 3)), (3,)).transpose(1, 2)
        return y.transpose(1, 2).flatten(-2).values(), x * 2

    def calls(*lengths):
        return lambda: (ragged(lengths, 6), [numbers(1, 6) for _ in lengths])

    assert graphs_of(fn, calls(2, 3, 4), calls(2, 4, 6)) == [1, 1]


# -- fake tensors ----------------------------------------------------------------------------
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_fake_tensors_of_the_user(backend):
    def fn(x):
        y = x @ x.t()
        return y, type(y), isinstance(y, FakeTensor), x.shape

    tc.reset()
    mode = FakeTensorMode()
    make = lambda n: mode.from_tensor(numbers(n, 3))  # noqa: E731
    compiled = tc.compile(fn, backend=backend, fullgraph=True)
    for n in (2, 2, 4, 5):
        got, want = compiled(make(n)), fn(make(n))
        assert type(got[0]) is FakeTensor
        assert (got[0].shape, *got[1:]) == (want[0].shape, *want[1:])
    assert api.graph_stats()["graphs"] == 2
    torch.testing.assert_close(compiled(numbers(2, 3))[0], fn(numbers(2, 3))[0])


def test_fake_tensors_with_symbolic_sizes():
    tc.reset()
    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env)
    dynamic = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * 2)
    compiled = tc.compile(lambda x: x.sin() * x.shape[0], backend="eager", fullgraph=True)
    for n in (3, 4):
        x = mode.from_tensor(numbers(n, 5), symbolic_context=dynamic)
        assert compiled(x).shape == x.shape
    assert api.graph_stats()["graphs"] == 1


# -- dispatch modes --------------------------------------------------------------------------
class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.ops = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.ops.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("grad", [False, True])
def test_active_modes_see_what_runs_and_nothing_else(backend, grad):
    fn = lambda x: x.sin() * 2  # noqa: E731
    x = numbers(3).requires_grad_(grad)
    compiled = tc.compile(fn, backend=backend)
    for warm in (False, True, True):
        if warm:
            compiled(x)
        with Seen() as seen:
            got = compiled(x)
        assert seen.ops == ["aten.sin.default", "aten.mul.Tensor"]
        torch.testing.assert_close(got, fn(x))
