"""Class statements in traced code: used inside whole, left to Python where the class gets out."""

from __future__ import annotations

import abc
import dataclasses

import pytest
import torch

import tc
from tc.compiler import api


def methods_of_all_kinds(x):
    class A:
        k = 3

        def __init__(self, v):
            self.v = v

        def get(self):
            return self.v * self.k + x

        @staticmethod
        def more(a):
            return a + 1

        @classmethod
        def make(cls, a):
            return cls(a)

        @property
        def less(self):
            return self.v - 1

        @less.setter
        def less(self, v):
            self.v = v

    a = A.make(x)
    a.less = A.more(a.less)
    return a.get(), isinstance(a, A), A.__name__, A.__qualname__


def inheritance(x):
    class A:
        def f(self, y):
            return y * 2

    class B(A):
        def f(self, y):
            return super().f(y) + x

    return B().f(x), issubclass(B, A), B.__mro__[1] is A


def module(x):
    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.k = 2

        def forward(self, y):
            return y * self.k

    return M()(x)


def closures(x):
    n = 2

    class A:
        m = n + 1

        def f(self):
            return x * self.m * n

    n = 5
    return A().f()


def operators(x):
    class A:
        def __call__(self, y):
            return y + x

        def __add__(self, other):
            return other * 2

        def __len__(self):
            return 3

    a = A()
    return a(x) + (a + x) * len(a)


def nested(x):
    class A:
        class B:
            k = 4

        t = (1, 2)
        note: int = 3
        del note

    return x * A.B.k * A.t[1]


def in_a_loop(x):
    for n in range(3):

        class A:
            def f(self):
                return x * n  # noqa: B023

        x = A().f() + 1
    return x


WHOLE = [
    methods_of_all_kinds, inheritance, module, closures, operators, nested, in_a_loop,
]  # fmt: skip


def class_gets_out(x):
    class A:
        def f(self):
            return x + 1

    return A().f(), A.__name__, A


def object_gets_out(x):
    class A:
        pass

    a = A()
    a.x = x + 1
    return a


def function_gets_out(x):
    class A:
        @staticmethod
        def f(y):
            return y + x

    return A.f(x), A.__dict__["f"].__func__(x)


def data_class(x):
    @dataclasses.dataclass
    class D:
        a: int = 3

    return x * D().a, D(4)


def over_a_break(x):
    class A:
        def f(self):
            return x + 1

    y = A().f()
    tc.graph_break()
    return y + A().f()


def binds_a_tensor(x):
    class A:
        w = x + 1

    return A.w


def metaclass(x):
    class A(metaclass=abc.ABCMeta):  # noqa: B024
        def f(self):
            return x

    return A().f() + 1


def body_raises(x):
    class A:
        raise ValueError("no")

    return x


def body_breaks(x):
    y = x + 1

    class A:
        tc.graph_break()

        def f(self):
            return y

    return A().f()


def with_init_subclass(x):
    class Base:
        def __init_subclass__(cls):
            cls.k = 7

    class A(Base):
        pass

    return x * A.k


PARTS = [
    class_gets_out, object_gets_out, function_gets_out, data_class, over_a_break, binds_a_tensor,
    metaclass, body_raises, body_breaks, with_init_subclass,
]  # fmt: skip


def shown(value):
    """Return a result in a form that compares equal for equal classes of two calls."""
    if isinstance(value, tuple):
        return tuple(map(shown, value))
    if isinstance(value, type):
        return value.__name__, sorted(vars(value))
    if hasattr(value, "__dict__") and not isinstance(value, torch.Tensor):
        return shown(type(value)), {k: shown(v) for k, v in vars(value).items()}
    return str(value)


def outcome(function):
    try:
        return shown(function(torch.ones(2)))
    except ValueError as error:
        return repr(error)


@pytest.mark.sample(5)
@pytest.mark.parametrize("function", [*WHOLE, *PARTS])
def test_as_eager(function):
    compiled = tc.compile(function, backend="eager", fullgraph=function in WHOLE)
    for _ in range(2):
        assert outcome(compiled) == outcome(function)


def test_autograd_function():
    def function(x):
        def helper(a):
            return a * 2

        class F(torch.autograd.Function):
            @staticmethod
            def forward(ctx, a):
                ctx.save_for_backward(a)
                return helper(a)

            @staticmethod
            def backward(ctx, g):
                return g * 5 + ctx.saved_tensors[0]

        return F.apply(x)

    x = torch.ones(2, requires_grad=True)
    out = tc.compile(function, backend="eager", fullgraph=True)(x)
    assert torch.equal(out, function(x))
    assert torch.autograd.grad(out.sum(), x)[0].tolist() == [6, 6]


def test_masked_reductions():
    def function(x, mask):
        return torch.masked.sum(x, 1, mask=mask), torch.masked.softmax(x, 1, mask=mask)

    x, mask = torch.randn(3, 4), torch.rand(3, 4) > 0.3
    found = tc.compile(function, fullgraph=True)(x, mask)
    torch.testing.assert_close(found, function(x, mask), equal_nan=True)


def test_a_class_that_gets_out_is_reported_once():
    tc.reset()
    before = tc.compiler.api.graph_stats()["graph_breaks"]
    tc.compile(object_gets_out, backend="eager")(torch.ones(2))
    assert tc.compiler.api.graph_stats()["graph_breaks"] - before == 1


def bound_size(x):
    class A:
        c = x.shape[0]
        h = c / 2
        s = f"{c}"
        shape = x.shape

        def m(self, k=c):
            return self.h * k

    return x * A.c + A().m(), A.s, A.shape[1], A().c


def bound_tensor(x):
    class A:
        t = x
        u = x * 2

    class B(A):
        d = A.u + 1

    return B.t + B().u, B.d, A.t is x


def bound_containers(x):
    class A:
        items = []  # noqa: RUF012
        named = {}  # noqa: RUF012

        def add(self, v):
            self.items.append(v)

    A().add(x)
    A().add(1)
    A.named["k"] = 2
    return A.items[0].sin(), len(A.items), A.named


def bound_by_name(x):
    class A:
        __slots__ = ("a",)
        __doc__ = "text"
        c = x.shape[0]

    a = A()
    a.a = 3
    return x * a.c * a.a, A.__doc__


def bound_abstract(x):
    class A(abc.ABC):
        def __init__(self):
            raise RuntimeError

        @property
        @abc.abstractmethod
        def p(self): ...

        @staticmethod
        @abc.abstractmethod
        def s(): ...

    class B(A):
        p = 2

        def __init__(self):
            pass

        @staticmethod
        def s():
            return 1

    try:
        A()
    except TypeError as error:
        return x * B().p + B.s(), str(error), A.__abstractmethods__


BOUND = [bound_size, bound_tensor, bound_containers, bound_by_name, bound_abstract]


@pytest.mark.parametrize("f", BOUND)
def test_a_class_body_binds_what_the_graph_computes(f):
    tc.reset()
    compiled = tc.compile(f, fullgraph=True, backend="eager")
    for n in (4, 5, 6, 7):
        x = torch.arange(3.0 * n).view(n, 3)
        found, wanted = compiled(x), f(x)
        torch.testing.assert_close(found[0], wanted[0])
        assert repr(found[1:]) == repr(wanted[1:])
    assert api.graph_stats()["graphs"] == 2
