"""Exceptions of users: made, shown, compared and passed on as Python does it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tc


class E(Exception):
    def __init__(s, a, b):
        super().__init__(f"{a}/{b}")


class MyE(ValueError):
    def __init__(s, a, *, b=0):
        super().__init__(a)
        s.b = b

    def __str__(s):
        return f"MyE{s.b}"


class R(Exception):
    def __init__(s, a, b):
        s.a, s.b = a, b

    def __repr__(s):
        return f"R({s.a},{s.b})"

    def __str__(s):
        return "R!"


class T(Exception):
    def __init__(s, t, n):
        super().__init__("t")
        s.t = t
        s.n = n


def text_of_own_init(x):
    try:
        raise E(1, 2)
    except E as e:
        return x + 1, str(e), repr(e), f"{e}", e.args


def own_init_leaves(x):
    raise E(1, x.shape[0])


def attribute_in_str(x):
    try:
        raise MyE("q", b=3)
    except ValueError as e:
        return x + 1, str(e), e.b, repr(e), f"{e!r}"


def own_repr(x):
    try:
        raise R(1, 2)
    except R as e:
        return x + 1, repr(e), f"{e}", str(e)


def attribute_leaves(x):
    raise MyE("q", b=x.shape[0])


def holds_a_tensor(x):
    try:
        raise T(x * 2, 3)
    except T as e:
        return e.t + e.n, str(e)


def tensor_leaves(x):
    raise T(x * 2, 3)


def context_of_finally(x):
    try:
        try:
            raise ValueError("v")
        finally:
            raise KeyError("k")
    except KeyError as e:
        return x + 1, repr(e.__context__)


def context_of_from(x):
    try:
        try:
            raise ValueError("v")
        except ValueError as e:
            raise RuntimeError("rt") from e
    except RuntimeError as e:
        return x + 1, repr(e.__context__), repr(e.__cause__)


def equality_that_does_not_know(x):
    class A:
        def __eq__(s, o):
            return NotImplemented

    class B:
        def __eq__(s, o):
            return o == 5

    a = A()
    return x + 1, A() != 3, a != 3, a == 3, a != a, B() != 5, B() != 5, B() != 4, A() != B()


def text_of_key_error(x):
    try:
        raise KeyError("k")
    except KeyError as e:
        return x, str(e), repr(e), f"{e}"


def text_of_a_method(x):
    try:
        [].pop()
    except IndexError as e:
        return x, str(e), repr(e)


def outcome(f: Any) -> Any:
    """What it returns, or all that can be seen of what it raises."""
    try:
        return str(f(torch.ones(2)))
    except Exception as e:
        held = {name: str(value) for name, value in vars(e).items()}
        return type(e), str(e), repr(e), held, e.args, repr(e.__cause__), type(e.__context__)


@pytest.mark.parametrize(
    "f",
    [
        text_of_own_init,
        own_init_leaves,
        attribute_in_str,
        own_repr,
        attribute_leaves,
        holds_a_tensor,
        tensor_leaves,
        context_of_finally,
        context_of_from,
        equality_that_does_not_know,
        text_of_key_error,
        text_of_a_method,
    ],
)
def test_as_eager(f: Any) -> None:
    want = outcome(f)
    assert outcome(tc.compile(f, backend="eager")) == want
    tc.reset()


def context_of_each_raise(x):
    error, found = ValueError("e"), []
    for kind in (KeyError, TypeError):
        try:
            try:
                raise kind("k")
            except kind:
                raise error  # noqa: B904
        except ValueError as caught:
            found.append(repr(caught.__context__))
    try:
        raise error
    except ValueError as caught:
        found.append(repr(caught.__context__))
    return x, found


def context_of_none(x):
    error = ValueError("f")
    found = [error.__context__]
    try:
        raise error
    except ValueError as caught:
        found.append(caught.__context__)
    return x, found


def contexts_in_a_circle(x):
    first, second = ValueError("a"), KeyError("b")
    try:
        try:
            raise first
        except ValueError:
            try:
                raise second
            except KeyError:
                raise first  # noqa: B904
    except ValueError as caught:
        return x, repr(caught.__context__), caught.__context__.__context__


@pytest.mark.parametrize("program", [context_of_each_raise, context_of_none, contexts_in_a_circle])
def test_the_context_is_that_of_the_last_raise(program):
    x = torch.ones(2)
    assert tc.compile(program, backend="eager", fullgraph=True)(x)[1:] == program(x)[1:]


def test_the_context_is_a_callers_where_it_handles_an_error():
    def f(x):
        try:
            raise ValueError("v")
        except ValueError as error:
            return x + 1, repr(error.__context__)

    compiled = tc.compile(f, backend="eager")
    for _ in range(2):
        assert compiled(torch.ones(2))[1] == "None"
        try:
            raise KeyError("k")
        except KeyError:
            assert compiled(torch.ones(2))[1] == "KeyError('k')"


def the_arguments(x):
    error = ValueError(1, 2)
    held = error.args
    try:
        raise KeyError("a")
    except KeyError as other:
        same = other.args is other.args
    return x + 1, held is error.args, same, error.args == (1, 2)


def other_arguments(x):
    error = KeyError(1, x)
    before = error.args
    error.args = [3, "b"]
    return x + 1, before is error.args, error.args, str(error), repr(error)


def given_back(x):
    error = ValueError(x.shape[0], 2)
    return x + 1, error.args, error, f"{error}"


@pytest.mark.parametrize("f", [the_arguments, other_arguments, given_back])
def test_arguments_are_one_tuple(f: Any) -> None:
    x = torch.ones(2)
    assert repr(tc.compile(f, fullgraph=True, backend="eager")(x)) == repr(f(x))
    found = tc.compile(given_back, backend="eager")(x)
    assert found[1] is found[2].args
