"""Context variables: read, set and set back in traced code as in eager."""

from __future__ import annotations

import contextlib
import contextvars
from contextvars import ContextVar

import pytest
import torch

import tc

V: ContextVar[int] = ContextVar("v", default=1)
U: ContextVar[object] = ContextVar("u")


@contextlib.contextmanager
def using(n):
    token = V.set(n)
    try:
        yield
    finally:
        V.reset(token)


def read(x):
    return x * V.get(), U.get(5), V.name


def set_and_reset(x):
    token = V.set(7)
    y = x * V.get()
    V.reset(token)
    return y * V.get()


def leave_set(x):
    V.set(x.shape[0])
    return x + 1


def holds_nothing(x):
    try:
        return x + U.get()
    except LookupError:
        return x - 1


def in_a_context_manager(x):
    with using(3):
        y = x * V.get()
    return y + V.get()


def several(x):
    a, b = V.set(2), V.set(3)
    V.reset(b)
    c = V.set(4)
    V.reset(c)
    V.reset(a)
    return x * V.get()


def out_of_order(x):
    a, _ = V.set(2), V.set(3)
    V.reset(a)
    return x * V.get()


def holds_a_tensor(x):
    U.set(x * 2)
    return U.get() + 1


def set_over_a_break(x):
    token = V.set(6)
    y = x * V.get()
    tc.graph_break()
    y = y + V.get()
    V.reset(token)
    return y * V.get()


def manager_over_a_break(x):
    with using(3):
        y = x * V.get()
        tc.graph_break()
        y = y + V.get()
    return y * V.get()


def reset_twice(x):
    token = V.set(2)
    V.reset(token)
    V.reset(token)
    return x


def run(function):
    """Return what a function gives in a context of its own, and what that holds afterwards."""

    def body():
        try:
            result = function(torch.ones(2))
        except RuntimeError as error:
            result = type(error)
        return result, V.get(), U.get("nothing")

    return contextvars.copy_context().run(body)


WHOLE = [
    read, set_and_reset, leave_set, holds_nothing, in_a_context_manager, several, out_of_order,
    holds_a_tensor,
]  # fmt: skip


@pytest.mark.parametrize("function", [*WHOLE, set_over_a_break, manager_over_a_break, reset_twice])
def test_as_eager(function):
    compiled = tc.compile(function, backend="eager", fullgraph=function in WHOLE)
    for _ in range(2):
        assert str(run(compiled)) == str(run(function))


def test_another_value_recompiles():
    compiled = tc.compile(read, backend="eager", fullgraph=True)

    def body():
        for n in (1, 2, 3):
            V.set(n)
            assert str(compiled(torch.ones(2))) == str(read(torch.ones(2)))
        U.set("text")
        assert compiled(torch.ones(2))[1] == "text"

    contextvars.copy_context().run(body)


def test_a_token_given_to_traced_code():
    def back(x, token):
        V.reset(token)
        return x * V.get()

    compiled = tc.compile(back, backend="eager")

    def body(function):
        results = []
        for n in (4, 5):
            V.set(n)
            results.append(function(torch.ones(1), V.set(9)).item())
        return results, V.get()

    expected = contextvars.copy_context().run(body, back)
    assert contextvars.copy_context().run(body, compiled) == expected


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_compile_leaves_no_variable_behind(backend):
    """Sympy makes a decimal context where it runs, and reads of torch's settings copy lists there;
    a program that counts its variables would see that it was compiled."""

    def body():
        compiled = tc.compile(lambda x, v: (x * v).sin().sum(), backend=backend)
        for n in (2, 3, 4):  # sizes and the number are symbolic after the first
            x = torch.randn(n, requires_grad=True)
            compiled(x, n * 0.5).backward()
        return list(contextvars.copy_context())

    assert contextvars.Context().run(body) == []
