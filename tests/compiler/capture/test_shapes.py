"""Symbolic sizes: symbols, the guards over them, and what fake tensors keep of real ones."""

import gc
import time
import weakref

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor
from torch.fx.experimental.symbolic_shapes import SYMPY_INTERP

import tc
from tc.compiler.capture.guards import guard_list
from tc.compiler.capture.guards.guard_list import GuardList, TensorSpec
from tc.compiler.capture.shapes import Shapes, free_size, free_stride
from tc.compiler.core.sources import AttrSource, GlobalSource, ItemSource, LocalSource, Scope

X, Y, N = LocalSource("x"), LocalSource("y"), LocalSource("n")
A = torch.randn(4, 6)


def frame(x=None, y=None, n=None):
    """Stand in for the code of a compiled frame."""


def texts(shapes):
    return [guard.text for guard in shapes.guards().guards]


def bindings(shapes):
    """Symbol -> (the text that reads it, its value now), in order of creation."""
    return {e.symbol: (e.source, e.hint) for e in shapes.events()}


def build(shapes, fakes, globals=None, **locals):
    """Guard the given fakes of real locals as a compilation would."""
    wanted = GuardList()
    for name, fake in fakes.items():
        if isinstance(fake, torch.Tensor):
            spec = TensorSpec.of(locals[name], free_size(fake), free_stride(fake))
            wanted.add("TENSOR", LocalSource(name), spec)
    given = {"x": None, "y": None, "n": None, **locals}
    checked = guard_list.build(
        wanted, shapes.guards(), frame.__code__, given, globals or {"__builtins__": {}}, "0/0"
    )

    def holds(**changed):
        return checked.check({**given, **changed})

    return checked, holds


def test_static_by_default():
    shapes = Shapes()
    fake = shapes.fake(A, X)
    assert type(fake) is FakeTensor and fake.fake_mode is shapes.mode
    assert fake.shape == (4, 6) and all(type(n) is int for n in (*fake.shape, *fake.stride()))
    assert shapes.guards().guards == () and bindings(shapes) == {} and shapes.events() == []
    assert shapes.fake(A, X) is fake


def test_a_number_in_a_tensor_gets_no_symbol():
    shapes = Shapes()
    fake = shapes.fake(torch.tensor(3), X, "all")
    assert bindings(shapes) == {}
    with pytest.raises(DataDependentOutputException):
        fake.item()


def test_dynamic_dimensions_get_symbols_and_contiguous_strides_follow():
    shapes = Shapes()
    fake = shapes.fake(A, X, "all")
    assert all(isinstance(n, torch.SymInt) for n in fake.shape)
    assert list(bindings(shapes).values()) == [("L['x'].size()[0]", 4), ("L['x'].size()[1]", 6)]
    assert fake.is_contiguous() and fake.stride()[1] == 1
    assert texts(shapes) == [
        "L['x'].stride()[0] == L['x'].size()[1]",
        "2 <= L['x'].size()[0]",
        "2 <= L['x'].size()[1]",
    ]
    assert free_size(fake) == (None, None) and free_stride(fake) == (None, 1)


def test_one_dimension_dynamic():
    shapes = Shapes()
    fake = shapes.fake(A, X, frozenset([0]))
    assert free_size(fake) == (None, 6) and free_stride(fake) == (6, 1)
    _, holds = build(shapes, {"x": fake}, x=A)
    assert holds(x=torch.randn(9, 6))
    assert not holds(x=torch.randn(4, 7))
    assert not holds(x=torch.randn(1, 6)), "1 is special"
    assert not holds(x=torch.randn(9, 12)[:, ::2]), "strides are guarded"


@pytest.mark.parametrize("size", [0, 1])
def test_zero_and_one_stay_numbers(size):
    shapes = Shapes()
    fake = shapes.fake(torch.randn(size, 5), X, "all")
    assert fake.shape[0] == size and type(fake.shape[0]) is int
    assert free_size(fake) == (size, None)


def test_equal_sizes_share_a_symbol_under_a_guard():
    shapes = Shapes()
    x, y = torch.randn(4, 5), torch.randn(5, 3)
    fakes = {"x": shapes.fake(x, X, "all"), "y": shapes.fake(y, Y, frozenset([0]))}
    with shapes.mode:
        assert (fakes["x"] @ fakes["y"]).shape[1] == 3
    assert "L['y'].size()[0] == L['x'].size()[1]" in texts(shapes)
    checked, holds = build(shapes, fakes, x=x, y=y)
    assert holds(x=torch.randn(2, 7), y=torch.randn(7, 3))
    assert not holds(x=torch.randn(2, 7), y=torch.randn(8, 3))
    changed = {"x": torch.randn(2, 7), "y": torch.randn(8, 3)}
    assert [str(f) for f in checked.explain(changed, {})] == [
        "y.shape[0], x.shape[1]: 5, 5 -> 8, 7"
    ]


def test_no_duck():
    shapes = Shapes()
    fake = shapes.fake(torch.randn(5, 5), X, "all", duck=False)
    assert len(bindings(shapes)) == 2
    assert bool(fake.shape[0] == fake.shape[1])
    assert "L['x'].size()[1] == L['x'].size()[0]" in texts(shapes)


def test_decided_conditions_become_guards_with_the_users_line():
    place = [("user.py", 1)]
    shapes = Shapes(user_line=lambda: place[0])
    fake = shapes.fake(A, X, "all")
    place[0] = ("user.py", 5)
    assert bool(fake.shape[0] > 3)
    place[0] = ("user.py", 6)
    assert bool(fake.shape[1] % 2 == 0)
    found = {guard.text: guard for guard in shapes.guards().guards}
    assert found["4 <= L['x'].size()[0]"].user_line == ("user.py", 5)
    assert found["(L['x'].size()[1] % 2) == 0"].user_line == ("user.py", 6)
    assert found["(L['x'].size()[1] % 2) == 0"].pretty == "(x.shape[1] % 2) == 0"
    assert {event.user_line for event in shapes.events()} == {("user.py", 1)}
    checked, holds = build(shapes, {"x": fake}, x=A)
    assert holds(x=torch.randn(5, 8)) and not holds(x=torch.randn(5, 7))
    (failure,) = checked.explain({"x": torch.randn(3, 8)}, {})
    assert str(failure) == "x.shape[0]: 4 -> 3" and failure.user_line == ("user.py", 5)


def test_specialised_sizes_are_guarded_with_their_strides():
    shapes = Shapes()
    x = torch.randn(3, 4, 6)
    fake = shapes.fake(x, X, "all")
    spec = TensorSpec.of(x, free_size(fake), free_stride(fake))
    assert shapes.specialise(fake.shape[1]) == 4 and shapes.specialise(fake.shape[2]) == 6
    wanted = GuardList()
    wanted.add("TENSOR", X, spec)
    locals = {"x": x, "y": None, "n": None}
    checked = guard_list.build(wanted, shapes.guards(), frame.__code__, locals, {}, "0/0")
    assert checked.check({**locals, "x": torch.randn(9, 4, 6)})
    assert not checked.check({**locals, "x": torch.randn(9, 5, 6)})
    assert not checked.check({**locals, "x": torch.randn(9, 6, 4).transpose(1, 2)})


def test_integers():
    shapes = Shapes()
    number = shapes.symint(7, N, 48)
    assert isinstance(number, torch.SymInt) and bool(number > 3)
    assert bindings(shapes) == {str(number): ("L['n']", 7)}
    checked, holds = build(shapes, {}, n=7)
    assert holds(n=4) and not holds(n=3)
    assert [str(f) for f in checked.explain({"n": 3}, {})] == ["n: 7 -> 3"]
    assert shapes.specialise(number) == 7
    assert texts(shapes) == ["L['n'] == 7"]


def test_an_integer_that_meets_a_size():
    shapes = Shapes()
    fake, number = shapes.fake(A, X, "all"), shapes.symint(24, N, 48)
    with shapes.mode:
        assert fake.reshape(number).shape[0] == number
    _, holds = build(shapes, {"x": fake}, x=A, n=24)
    assert holds(x=torch.randn(5, 6), n=30) and not holds(x=torch.randn(5, 6), n=24)


@pytest.mark.parametrize("dynamic", ["none", "all"])
def test_kinds_of_tensors_are_kept(dynamic):
    leaf = torch.randn(3, 4, requires_grad=True)
    for real in (nn.Parameter(A), leaf, leaf * 2, (leaf * 2)[:, 1:3], A.t(), A.detach()[1:]):
        fake = Shapes().fake(real, X, dynamic)
        for what in ("requires_grad", "is_leaf", "dtype", "device", "layout"):
            assert getattr(fake, what) == getattr(real, what)
        assert isinstance(fake, nn.Parameter) is isinstance(real, nn.Parameter)
        assert fake._is_view() is real._is_view()
        assert [int(n) for n in fake.shape] == list(real.shape)
        assert [int(n) for n in fake.stride()] == list(real.stride())


def test_grad_is_not_followed():
    weight = nn.Parameter(A)
    weight.grad = torch.zeros_like(weight)
    assert Shapes().fake(weight, X).grad is None


def test_autograd_over_fake_parameters():
    shapes = Shapes()
    layer = nn.Linear(6, 5)
    weight = shapes.fake(layer.weight, AttrSource(X, "weight"))
    x = shapes.fake(A, Y, frozenset([0]))
    with shapes.mode:
        out = nn.functional.linear(x, weight)
        (grad,) = torch.autograd.grad(out.sum(), weight)
    assert out.requires_grad and out.grad_fn is not None
    assert out.shape[0] == x.shape[0] and out.shape[1] == 5
    assert grad.shape == (5, 6)


def test_events_report_symbols():
    shapes = Shapes()
    shapes.fake(A, ItemSource(X, "key"), frozenset([1]))
    (event,) = shapes.events()
    assert (event.hint, event.source) == (6, "L['x']['key'].size()[1]")
    assert event.symbol in bindings(shapes) and event.range.startswith("VR[2")


def test_sources_with_braces_and_globals():
    shapes = Shapes()
    source = ItemSource(GlobalSource("g"), "{odd}")
    shapes.fake(A, source, "all")
    scope = {"g": {"{odd}": A}, "__builtins__": {}}
    checked, holds = build(shapes, {}, globals=scope)
    assert holds()
    scope["g"] = {"{odd}": torch.randn(4, 1)}
    assert not holds()
    assert checked.explain({}, scope)[0].source == "g['{odd}'].shape[1]"


def test_guards_agree_with_their_text():
    shapes = Shapes()
    fake = shapes.fake(torch.randn(3, 4, 6), X, "all")
    with shapes.mode:
        fake.reshape(-1, fake.shape[2] // 2)
    found = shapes.guards()
    assert len(found.guards) > 5
    check = found.bind({}, found.over_values())
    for sizes in ((3, 4, 6), (3, 4, 8), (1, 4, 6), (3, 3, 5), (6, 3, 4)):
        locals = {"x": torch.randn(sizes)}
        names = {**SYMPY_INTERP, "L": locals}
        assert check(locals) is all(eval(guard.text, names) for guard in found.guards)
        assert check(locals) is not bool(list(found.failures(Scope(locals, {}))))


@pytest.mark.usefixtures("only_new_garbage")
def test_guards_keep_no_tensor():
    x = torch.randn(4, 6)
    shapes = Shapes()
    fake = shapes.fake(x, X, "all")
    checked, _ = build(shapes, {"x": fake}, x=x)
    watch = weakref.ref(x), weakref.ref(fake)
    del _
    del x, fake, shapes
    assert watch[0]() is None
    gc.collect()
    assert watch[1]() is None and checked.alive


def test_making_shapes_is_cheap_after_the_first():
    Shapes()
    start = time.perf_counter()
    for _ in range(20):
        Shapes()
    assert (time.perf_counter() - start) / 20 < 0.01


@pytest.mark.parametrize("dynamic", [None, True])
def test_an_input_whose_own_sizes_are_changed(dynamic):
    def transposed(x):
        x.transpose_(0, 1)
        return x.shape, x * 2

    def summed(x):
        y = x.cumsum_(1)
        y.transpose_(0, 1)
        return y.unsqueeze_(0).squeeze_(0) * 1

    for f in (transposed, summed):
        compiled = tc.compile(f, dynamic=dynamic)
        for sizes in ((4, 5), (5, 6), (7, 9)):
            mine, theirs = torch.ones(sizes), torch.ones(sizes)
            assert str(compiled(mine)) == str(f(theirs))
            assert (mine.shape, mine.stride()) == (theirs.shape, theirs.stride())
