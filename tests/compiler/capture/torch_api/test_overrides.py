"""`__torch_function__` of classes, objects and modes: traced as the Python that it is."""

from __future__ import annotations

import contextlib
import math

import pytest
import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from capture_harness import Programs, check
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

import tc
from tc.compiler import api

program = Programs()
log: list = []


class Base(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


class Plain(torch.Tensor):
    """Leaves everything to torch.Tensor."""

    note = "class"

    def twice(self):
        return self * 2

    @property
    def doubled_rows(self):
        return self.shape[0] * 2


class Logged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        log.append((getattr(func, "__name__", "?"), len(types), len(args), sorted(kwargs or {})))
        return super().__torch_function__(func, types, args, kwargs or {})


class Swapped(torch.Tensor):
    """Adds where it should subtract, has ten dimensions, counts its operations."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.Tensor.sub:
            func = torch.Tensor.add
        if func == torch.Tensor.ndim.__get__:
            return 10
        result = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(result, cls):
            result.steps = getattr(args[0], "steps", 0) + 1
        return result


class Unwrapped(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            out = func(*args, **(kwargs or {}))
            return out * 2 if func is torch.clone else out


class Narrow(Base):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in (torch.add, torch.Tensor.add):
            return NotImplemented
        return super().__torch_function__(func, types, args, kwargs)


class Holder:
    """Not a tensor at all."""

    def __init__(self, tensor):
        self.tensor = tensor

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        args, kwargs = pytree.tree_map_only(Holder, lambda h: h.tensor, (args, kwargs or {}))
        return Holder(func(*args, **kwargs))


class Scaling(TorchFunctionMode):
    def __init__(self, factor):
        self.factor = factor

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * self.factor if func in (torch.add, torch.Tensor.add) else result


def of(*kinds):
    def make():
        generator = torch.Generator().manual_seed(7)
        tensors = [torch.randn(3, 4, generator=generator) for _ in kinds]
        return tuple(x.as_subclass(kind) for x, kind in zip(tensors, kinds, strict=True))

    return make


def whole(*kinds, **options):
    return program(graphs=1, breaks=0, make=of(*kinds), **options)


# -- classes ---------------------------------------------------------------------------------
@whole(Base)
def results_keep_the_class(x):
    y = x + 1
    return y, 2 - y, y.sum(), y[0], torch.cat([x, y]), y.topk(2), F.relu(x, inplace=False), -x


@whole(Base, torch.Tensor)
def mixed_with_plain_tensors(x, y):
    return y + x, torch.maximum(y, x), y * 2, type(y * x) is Base, torch.where(x > 0, x, y)


@whole(Plain)
def without_an_override(x):
    return x.twice(), x.doubled_rows, x.note, x + 1, x.shape, x.T, isinstance(x + 1, Plain)


@whole(Plain, Base)
def subclass_constructed(x, y):
    plain = torch.ones(2)
    return Plain(plain), plain.as_subclass(Base), Base(y + 1), x.as_subclass(torch.Tensor)


@whole(Logged, Logged, watched=("log",))
def what_the_override_is_given(x, y):
    a = x + y
    b = 3 - torch.add(a, 1, alpha=2)
    b[0] = 1.0
    b.mul_(2)
    len(b), b.shape, b.size(0), b.T, b.dim(), b == a, b**2, a @ y.t(), abs(a), a.split(1)
    return b, torch.stack([a, b], dim=0), F.softmax(b, dim=-1), torch.einsum("ij,ij->i", a, b)


@whole(Swapped)
def rewritten(x):
    return x - 1, x.ndim, x.dim(), (x - 1).steps, ((x * 2) + 1).steps


@whole(Swapped)
def attributes_of_results(x):
    y = x + 1
    y.note = ["kept", y.steps]
    return y, y.note


@whole(Unwrapped)
def switched_off_inside(x):
    return torch.clone(x), x + 1


@whole(torch.Tensor, Swapped)
def in_place_on_a_plain_tensor(x, y):
    x.sub_(y)
    return x


@whole(Base)
def in_place(x):
    y = x.add_(1)
    x[0] = 0.0
    return y is x, y


@whole(Base)
def under_the_switch(x):
    with torch._C.DisableTorchFunctionSubclass():
        y = x + 1
        off = torch._C._is_torch_function_enabled()
        with torch._C.DisableTorchFunctionSubclass():
            pass
        still = torch._C._is_torch_function_enabled()
    return y, off, still, torch._C._is_torch_function_enabled(), x + 1


@program(make=of(Base))
def a_break_under_the_switch(x):
    with torch._C.DisableTorchFunctionSubclass():
        y = x + 1
        tc.graph_break()
        z = x * 2, torch._C._is_torch_function_enabled()
    return y, z, torch._C._is_torch_function_enabled()


@program(make=of(Narrow, torch.Tensor))
def refused(x, y):
    try:
        return torch.add(y, x)
    except TypeError:
        return y.sub(x), x * 2


@whole(Base, Narrow)
def the_more_derived_is_asked_first(x, y):
    return x - y, type(x * y) is Narrow, x / y


@whole(torch.Tensor, Base, torch.Tensor)
def what_torch_says_of_overrides(x, y, z):
    has = torch.overrides.has_torch_function
    return has((x, y)), has((x, z)), torch.overrides.has_torch_function_unary(y), x + z


class Overriding(Base):
    """Has own methods, operators and properties, which use those of torch.Tensor."""

    def __add__(self, other):
        return super().__add__(other) * 2

    def __getitem__(self, key):
        return torch.Tensor.__getitem__(self, key) + 1

    def __len__(self):
        return super().__len__() + 70

    def __iter__(self):
        return iter([self * 1, self * 2])

    def sum(self, *args):
        return super().sum(*args) + 1

    @property
    def T(self):
        return super().T * 3


@whole(Overriding)
def own_operators(x):
    return x + 1, x[0], len(x), list(x), x.sum(), x.T, torch.Tensor.add(x, 1), x - 1


@whole(Base)
def iterated(x):
    a, b, c = x
    return [row * 2 for row in x], a, b, c


@whole(Base)
def in_a_checkpoint(x):
    return checkpoint(lambda y: (y.sin() * 2, type(y)), x, use_reentrant=False)


class Doubling(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2, type(x)

    @staticmethod
    def backward(ctx, grad, _):
        return grad * 2


@whole(Base)
def in_an_autograd_function(x):
    return Doubling.apply(x)


# -- objects that are no tensors -------------------------------------------------------------
@program(graphs=1, breaks=0, make=lambda: (Holder(torch.ones(2, 3)), torch.ones(3)))
def objects(h, x):
    a = torch.add(h, 1.0, alpha=2.0)
    return a, torch.stack([h, a]), F.relu(h), torch.mul(x, h)


# -- modes -----------------------------------------------------------------------------------
@whole(torch.Tensor, torch.Tensor)
def a_mode_entered_inside(x, y):
    with Scaling(3.0):
        a = x + y
        with Scaling(2.0):
            b = x.add(y)
        c = x * y
    return a, b, c, x + y


@program(graphs=2, breaks=1, make=of(torch.Tensor, torch.Tensor))
def a_break_inside_a_mode(x, y):
    with Scaling(3.0):
        a = x + y
        tc.graph_break()
        b = a + y
    return a, b, x + y


@whole(Base)
def a_mode_before_a_class(x):
    with Scaling(3.0):
        return x + 1


@pytest.mark.sample(6)
@pytest.mark.parametrize("case", program, ids=lambda case: case.name)
def test_as_eager(case):
    check(case)


def count(fn, calls, **options):
    tc.reset()
    compiled = tc.compile(fn, backend="eager", fullgraph=True, **options)
    for call in calls:
        call(compiled)
    return api.graph_stats()["graphs"]


def test_modes_active_outside():
    def fn(x):
        return x + 1, torch.zeros(2) + 1

    x = torch.ones(2)

    def under(*modes):
        def call(f):
            expected = fn
            stack = list(modes)
            with contextlib.ExitStack() as entered:
                for mode in stack:
                    entered.enter_context(mode)
                torch.testing.assert_close(f(x), expected(x))

        return call

    assert count(fn, [under(Scaling(3.0)), under(Scaling(3.0))]) == 1
    assert count(fn, [under(Scaling(3.0)), under(Scaling(4.0))]) == 2  # its attribute was read
    assert count(fn, [under(), under(Scaling(4.0)), under(Scaling(4.0), Scaling(2.0))]) == 3


def test_class_is_guarded():
    x = torch.ones(2)
    calls = [lambda f: f(x), lambda f: f(x.as_subclass(Base)), lambda f: f(x.as_subclass(Plain))]
    assert count(lambda x: x + 1, [*calls, *calls]) == 3


def test_methods_of_the_class_are_guarded():
    class Local(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})

    x = torch.zeros(2).as_subclass(Local)
    compiled = tc.compile(lambda x: x.sigmoid(), backend="eager")
    torch.testing.assert_close(compiled(x), x.sigmoid())
    Local.sigmoid = lambda self: self + 7
    torch.testing.assert_close(compiled(x), x + 7)
    Local.sigmoid = False
    with pytest.raises(TypeError, match="'bool' object is not callable"):
        compiled(x)


def test_override_is_guarded():
    class Local(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})

    x = torch.zeros(2).as_subclass(Local)
    compiled = tc.compile(lambda x: torch.sigmoid(x), backend="eager")
    compiled(x)
    Local.__torch_function__ = classmethod(lambda cls, func, types, args=(), kwargs=None: 5)
    assert compiled(x) == 5


def test_attribute_on_the_instance_hides_the_class():
    x, y = torch.ones(2).as_subclass(Plain), torch.ones(2).as_subclass(Plain)
    y.note = "instance"
    compiled = tc.compile(lambda x: (x.note, x + 1), backend="eager", fullgraph=True)
    assert compiled(x)[0] == "class"
    assert compiled(y)[0] == "instance"


def test_override_runs_while_tracing_only():
    """The compiled graph does not ask the class again."""
    compiled = tc.compile(what_the_override_is_given, backend="eager")
    args = of(Logged, Logged)()
    compiled(*args)
    log.clear()
    compiled(*args)
    once = len(log)
    log.clear()
    what_the_override_is_given(*args)
    assert once == len(log)
    log.clear()


def test_gradients_and_kernels():
    leaf = torch.randn(3, 4, requires_grad=True)
    compiled = tc.compile(lambda x: (x.sin() * 2).sum())
    want = (leaf.sin() * 2).sum()
    got = compiled(leaf.as_subclass(Base))
    assert type(got) is Base
    torch.testing.assert_close(got.as_subclass(torch.Tensor), want)
    (expected,) = torch.autograd.grad(want, leaf)
    (found,) = torch.autograd.grad(got, leaf)
    torch.testing.assert_close(found.as_subclass(torch.Tensor), expected)


def test_dynamic_sizes_do_not_ask_the_class():
    compiled = tc.compile(lambda x: x * x.shape[0], backend="eager", dynamic=True)
    for n in (3, 4, 5):
        x = torch.ones(n).as_subclass(Logged)
        compiled(x)
        log.clear()
        compiled(x)
        assert [name for name, *_ in log] == ["__get__", "mul"]
        log.clear()


class Counting(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(getattr(func, "__name__", "?"))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_active_modes_see_what_is_written_and_nothing_of_the_compiler(backend):
    def fn(x):
        return x.sin(), torch.zeros(2), x[0], x.shape[0] * 2

    x = torch.rand(3, 4)
    compiled = tc.compile(fn, backend=backend, dynamic=True)
    for _ in range(2):
        with Counting() as actual:
            got = compiled(x)
        with Counting() as theirs:
            want = fn(x)
        torch.testing.assert_close(got, want)
        assert actual.seen == theirs.seen


def test_a_mode_left_after_a_break():
    def fn(x):
        with Counting() as mode:
            y = x.sin()
            tc.graph_break()
            z = y.cos()
        return z, mode.seen

    tc.graph_break()  # loads what it needs
    x = torch.rand(3)
    got, want = tc.compile(fn, backend="eager")(x), fn(x)
    torch.testing.assert_close(got[0], want[0])
    assert got[1] == want[1]


def test_what_a_transform_hands_back_is_the_same_tensor():
    def fn(x, y):
        a = x.clone()
        b, c = torch.vmap(lambda p, q: (p.acos_(), q.cos()))(a, y)
        return b is a, c is y, b, c, torch.vmap(torch.Tensor.sin_)(y) is y

    args = torch.rand(3, 2), torch.rand(3, 2)
    want = fn(*[x.clone() for x in args])
    got = tc.compile(fn, backend="eager", fullgraph=True)(*[x.clone() for x in args])
    assert got[:2] == want[:2] and got[4] == want[4]
    torch.testing.assert_close(got[2:4], want[2:4])


@pytest.mark.parametrize("use", [lambda x: x.t() @ x, lambda x: x.t().matmul(x)])
def test_a_method_that_a_program_put_in_place_of_torchs_runs_whole_under_a_mode(monkeypatch, use):
    class Passing(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    for name in ("__matmul__", "matmul"):
        monkeypatch.setattr(torch.Tensor, name, lambda a, b: torch.matmul(a, b) * 3)
    x = torch.ones(2, 2)
    with Passing():
        torch.testing.assert_close(tc.compile(use, backend="eager")(x), torch.full((2, 2), 6.0))


def test_a_mode_is_asked_for_what_torch_offers_and_not_for_numbers():
    class Counting(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            called.append(func.__name__)
            return func(*args, **(kwargs or {}))

    def f(x):
        with Counting():
            n = x.shape[0]
            numbers = n**0.5 + 1, math.sqrt(n), float(n) * 2, max(n, 2), min(n / 2, n), n // 2
            rows = sum(row for row in x)
        return x * numbers[0], numbers, rows, torch.sym_max(n, 2)

    results = []
    for run in (f, tc.compile(f, backend="eager", dynamic=True)):
        called: list[str] = []
        results.append((str(run(torch.ones(5, 4))), called))
    assert results[0] == results[1]


def test_operands_that_no_override_takes_are_left_to_python():
    class Refusing(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            log.append(func.__name__)
            return NotImplemented

    class Unit:
        __torch_function__ = Refusing.__torch_function__

        def __radd__(self, other):
            return "added"

    def attempt(call):
        try:
            return call()
        except TypeError as error:
            return str(error)

    calls = (
        lambda a, b: a + b,
        lambda a, b: a + Unit(),
        lambda a, b: a == b,
        lambda a, b: 3 * b,
        lambda a, b: torch.add(a, b),
        lambda a, b: F.relu(b),
        lambda a, b: b.shape,
        lambda a, b: len(b),
    )

    def f(x):
        pair = x.as_subclass(Base), x.as_subclass(Refusing)
        return x + 1, [attempt(lambda call=call: call(*pair)) for call in calls]

    results = []
    for run in (f, tc.compile(f, backend="eager")):
        log.clear()
        results.append((str(run(torch.ones(2))), list(log)))
    assert results[0] == results[1]
