"""Exceptions that pass graph breaks: lines, context, cause, notes and groups are those of eager."""

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tc

PROGRAMS: list[Callable[..., Any]] = []


def program(function: Callable[..., Any]) -> Callable[..., Any]:
    PROGRAMS.append(function)
    return function


@program
def in_finally(x):
    try:
        try:
            x = x + 1
            raise KeyError("a")
        finally:
            print(end="")
            x = x * 2
    except KeyError as e:
        return x, e


@program
def finally_callee(x):
    def g(x):
        try:
            x = x + 1
            raise KeyError("a")
        finally:
            print(end="")

    try:
        g(x)
    except KeyError as e:
        return x + 1, e


@program
def finally_real(x):
    def g(x):
        try:
            x = x + 1
            int("z")
        finally:
            print(end="")

    try:
        g(x)
    except ValueError as e:
        return x + 1, e


@program
def in_with(x):
    class C:
        def __enter__(s):
            return s

        def __exit__(s, *a):
            print(end="")
            return False

    try:
        with C():
            x = x + 1
            raise KeyError("b")
    except KeyError as e:
        return x, e


@program
def ctxmgr(x):
    @contextlib.contextmanager
    def c():
        try:
            yield
        finally:
            print(end="")

    try:
        with c():
            x = x + 1
            raise KeyError("b")
    except KeyError as e:
        return x, e


@program
def context(x):
    try:
        try:
            x = x + 1
            raise KeyError("a")
        except KeyError:
            print(end="")
            raise ValueError("b")  # noqa: B904
    except ValueError as e:
        return x, e


@program
def cause(x):
    try:
        try:
            x = x + 1
            raise KeyError("a")
        except KeyError as k:
            print(end="")
            raise ValueError("b") from k
    except ValueError as e:
        print(end="")
        return x, e


@program
def in_none(x):
    try:
        try:
            x = x + 1
            raise KeyError("a")
        except KeyError:
            print(end="")
            raise ValueError("b") from None
    except ValueError as e:
        print(end="")
        return x, e


@program
def reraise(x):
    try:
        try:
            x = x + 1
            raise KeyError("a")
        except KeyError:
            print(end="")
            raise
    except KeyError as e:
        print(end="")
        return x, e


@program
def reraise_name(x):
    try:
        try:
            x = x + 1
            raise KeyError("a")
        except KeyError as k:
            print(end="")
            raise k
    except KeyError as e:
        print(end="")
        return x, e


@program
def notes(x):
    try:
        try:
            x = x + 1
            raise KeyError("a")
        except KeyError as k:
            print(end="")
            k.add_note("n1")
            print(end="")
            raise
    except KeyError as e:
        e.add_note("n2")
        return x, e


@program
def out(x):
    x = x + 1
    print(end="")
    x = x * 2
    raise KeyError(int(x.shape[0]))


@program
def out_callee(x):
    def g(x):
        x = x + 1
        print(end="")
        raise KeyError("q")

    return g(x * 2)


@program
def out_ctx(x):
    try:
        x = x + 1
        print(end="")
        {}["a"]
    except KeyError:
        print(end="")
        raise ValueError(3)  # noqa: B904


@program
def loop(x):
    es = []
    for i in range(3):
        try:
            x = x + 1
            print(end="")
            if i % 2:
                raise KeyError(i)
            raise ValueError(i)
        except (KeyError, ValueError) as e:
            es.append(e)
        finally:
            print(end="")
    return x, es[-1]


@program
def group(x):
    try:
        x = x + 1
        print(end="")
        raise ExceptionGroup("g", [KeyError(1), ValueError(2)])
    except* KeyError as e:
        k = e
        print(end="")
    except* ValueError as e:
        print(end=repr(type(e).__name__)[:0])
    return x, k


@program
def group_rest(x):
    try:
        try:
            x = x + 1
            print(end="")
            raise ExceptionGroup("g", [KeyError(1), ValueError(2)])
        except* KeyError:
            print(end="")
    except ExceptionGroup as e:
        return x, e


@program
def item(x):
    try:
        x = x + 1
        if x.sum().item() > 0:
            raise KeyError("pos")
    except KeyError as e:
        return x, e


@program
def item_callee(x):
    def g(x):
        if x.sum() > 0:
            raise KeyError("pos")
        return x

    try:
        g(x + 1)
    except KeyError as e:
        return x, e


@program
def in_assert(x):
    def g(x):
        assert x.sum() < 0, "bad"
        return x

    try:
        g(x + 1)
    except AssertionError as e:
        return x, e


@program
def nested_fin(x):
    try:
        try:
            try:
                x = x + 1
                raise KeyError(1)
            finally:
                print(end="")
                x = x + 1
        finally:
            x = x * 2
            print(end="")
    except KeyError as e:
        return x, e


@program
def fin_raises(x):
    try:
        try:
            x = x + 1
            raise KeyError(1)
        finally:
            print(end="")
            raise ValueError(2)
    except ValueError as e:
        return x, e


@program
def gen(x):
    def g():
        try:
            yield x + 1
        finally:
            print(end="")

    it = g()
    a = next(it)
    try:
        it.throw(KeyError("t"))
    except KeyError as e:
        return a, e


@program
def gen2(x):
    def g():
        print(end="")
        yield x + 1
        raise KeyError("in")

    try:
        for v in g():
            x = v
    except KeyError as e:
        return x, e


@program
def suppress(x):
    with contextlib.suppress(KeyError):
        x = x + 1
        print(end="")
        raise KeyError(1)
    try:
        raise ValueError(1)
    except ValueError as e:
        return x, e


@program
def info(x):
    try:
        x = x + 1
        raise KeyError(1)
    except KeyError:
        print(end="")
        e = sys.exc_info()[1]
    return x, e


@program
def three(x):
    def a(x):
        x = x + 1
        b(x)

    def b(x):
        c(x * 2)

    def c(x):
        print(end="")
        x = x + 1
        d(x)

    def d(x):
        print(end="")
        raise KeyError("d")

    try:
        a(x)
    except KeyError as e:
        return x, e


@program
def tensor_err(x):
    def g(x):
        return x @ torch.ones(7, 7)

    try:
        print(end="")
        g(x + 1)
    except RuntimeError as e:
        return x, e


@program
def in_handler_call(x):
    def g(x):
        print(end="")
        raise ValueError("v")

    try:
        try:
            raise KeyError(1)
        except KeyError:
            g(x + 1)
    except ValueError as e:
        return x, e


@program
def in_while(x):
    n = 0
    while True:
        try:
            n += 1
            x = x + 1
            print(end="")
            if n > 2:
                raise StopIteration(n)
        except StopIteration as e:
            return x, e
        finally:
            print(end="")


@tc.disable
def off(m):
    raise KeyError(m)


@program
def disabled_callee(x):
    def g(x):
        x = x + 1
        off("z")
        return x

    try:
        g(x * 2)
    except KeyError as e:
        return x + 1, e


@program
def disabled_callee2(x):
    def g(x):
        x = x + 1
        off("z")
        return x

    def h(x):
        return g(x * 3)

    try:
        h(x * 2)
    except KeyError as e:
        print(end="")
        return x + 1, e


@program
def finally_callee2(x):
    def g(x):
        try:
            x = x + 1
            off("a")
        finally:
            print(end="")

    def h(x):
        try:
            g(x)
        except KeyError as k:
            print(end="")
            raise k

    try:
        h(x)
    except KeyError as e:
        return x + 1, e


@program
def raise_held(x):
    held = []

    def g(x):
        try:
            off("a")
        except KeyError as k:
            held.append(k)
        print(end="")
        return x + 1

    x = g(x)
    try:
        raise held[0]
    except KeyError as e:
        return x, e


def described(error: BaseException | None, seen: tuple[int, ...] = ()) -> Any:
    """Return all that a program can see of an exception, and of those it refers to."""
    if error is None or id(error) in seen:
        return None
    seen = (*seen, id(error))
    at, lines = error.__traceback__, []
    while at is not None:
        lines.append((at.tb_frame.f_code.co_filename, at.tb_frame.f_code.co_name, at.tb_lineno))
        at = at.tb_next
    return (
        type(error),
        None if isinstance(error, RuntimeError | AssertionError) else str(error),
        lines,
        described(error.__context__, seen),
        described(error.__cause__, seen),
        error.__suppress_context__,
        getattr(error, "__notes__", None),
        [described(one, seen) for one in getattr(error, "exceptions", ())],
    )


def outcome(function: Callable[..., Any], size: int) -> Any:
    try:
        result, error = function(torch.ones(size))
        return result.tolist(), described(error)
    except Exception as error:
        return "raised", described(error)


@pytest.mark.sample(6)
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda one: one.__name__)
def test_exceptions_are_those_of_eager(function):
    compiled = tc.compile(function, backend="eager")
    for size in (3, 3, 4):
        want, got = [outcome(one, size) for one in (function, compiled)]
        assert got == want
