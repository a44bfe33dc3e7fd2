"""Control flow captured whole: loops, iterators, generators, exceptions, contexts, patterns.

PYTEST_DONT_REWRITE: the assert statements in the programs are Python's own.
"""

# ruff: noqa: C417
from __future__ import annotations

import contextlib
import dataclasses
import itertools
import sys
from typing import NamedTuple

import pytest
import torch
from capture_harness import Programs, check

import tc

program = Programs()


class Pair(NamedTuple):
    a: torch.Tensor
    b: int = 3


@dataclasses.dataclass(frozen=True)
class Frozen:
    n: int
    scale: float = 2.0


class Ctx:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, *exc):
        self.log.append(exc[0].__name__ if exc[0] else "out")
        return exc[0] is KeyError


def whole(**options):
    return program(graphs=1, breaks=0, **options)


# -- control flow ----------------------------------------------------------------------------
@whole()
def loops(x, y):
    i = 0
    while i < 3:
        x = x + i
        i += 1
        if i == 2:
            continue
        y = y * 2
    else:
        y = y + 1
    for k in range(10):
        if k == 2:
            break
        x = x - k
    return x, y, i, k


@whole()
def iterators(x, y):
    it = iter([x, y, x])
    a = next(it)
    return (
        a, list(it), list(itertools.chain([1], [2])), list(itertools.product([1, 2], [3])),
        list(map(lambda t: t + 1, [x, y])), any([False, True]), all([]),
        list(itertools.islice(itertools.count(5), 2)), list(zip([1], [x], strict=False)),
        list(filter(None, [0, 1])), list(reversed([1, 2])), next(iter([]), "none"),
        list(itertools.accumulate([1, 2, 3])), list(enumerate("ab", 1)),
        list(itertools.zip_longest([1, 2], [x])),
    )  # fmt: skip


@whole()
def generators(x, y):
    def powers(n):
        for i in range(n):
            yield x * i

    return sum(powers(3)), list(powers(2)), sum(t * 2 for t in [x, y])


@whole()
def generator_send(x, y):
    def collect():
        total = x
        while True:
            got = yield total
            if got is None:
                return
            total = total + got

    g = collect()
    first = next(g)
    return first, g.send(y), g.send(3)


@whole()
def delegation(x, y):
    def inner():
        yield x
        return y

    def outer():
        r = yield from inner()
        yield r * 2

    return list(outer())


@whole()
def exceptions(x, y):
    try:
        z = x + 1
        raise ValueError("a")
    except ValueError as e:
        z = z * 2
        message = str(e)
    finally:
        w = y + 1
    return z, w, message


@whole()
def nested_exceptions(x, y):
    log = []
    try:
        try:
            {}["missing"]
        except KeyError as e:
            log.append(e.args)
            raise RuntimeError("b") from e
        finally:
            log.append("f")
    except (RuntimeError, TypeError) as e:
        log.append(str(e))
        log.append(type(e.__cause__).__name__)
    else:
        log.append("else")
    return x + len(log), log


@whole()
def caught_in_callee(x, y):
    def get(d, k):
        try:
            return d[k]
        except KeyError:
            return y

    return get({"a": x}, "a") + get({}, "b")


@whole()
def lookups_that_fail(x, y):
    out = []
    for f in (lambda: [][1], lambda: int("z"), lambda: None.q, lambda: 1 / 0, lambda: {}[1]):
        try:
            f()
        except Exception as e:
            out.append(type(e).__name__)
    return x + 1, out


@whole()
def return_in_finally(x, y):
    def f():
        try:
            return x + 1
        finally:
            log.append(1)

    log = []
    return f(), log


@whole()
def contexts(x, y):
    log = []
    with Ctx(log) as c, Ctx(log):
        z = x + len(c.log)
    with Ctx(log):
        raise KeyError("swallowed")
    return z, log


@whole()
def exit_sees_error(x, y):
    log = []
    try:
        with Ctx(log):
            raise ValueError("v")
    except ValueError:
        log.append("caught")
    return x * 2, log


@whole()
def assertions(x, y):
    assert x.shape == y.shape, "shapes"
    try:
        assert x.shape[0] == 17, "no"
    except AssertionError as e:
        return x + 1, str(e)


@whole()
def matching(x, y):
    found = []
    for subject in ((1, "a"), {"k": 2, "r": 1}, Pair(x), Frozen(3), [1, 2, 3], 7, "s", None):
        match subject:
            case {"k": int(v), **rest}:
                found.append((v, rest))
            case Pair(a=t, b=3):
                found.append(t * 2)
            case (1, str() as s):
                found.append(s)
            case Frozen(n, scale=k):
                found.append((n, k))
            case [first, *others]:
                found.append((first, others))
            case int() | float():
                found.append("number")
            case None:
                found.append("none")
            case _:
                found.append("other")
    return found


@pytest.mark.parametrize("case", program, ids=lambda case: case.name)
def test_program(case):
    check(case)


def same_as_eager(function, *arguments):
    """Compare the results of a function, or the errors and effects if it raises."""

    def seen(call):
        log = []
        try:
            return call(*arguments, log), log
        except Exception as error:
            return type(error), str(error), log

    tc.reset()
    assert seen(tc.compile(function, backend="eager")) == seen(function)


def test_an_argument_deleted_before_a_break_is_unbound_after_it():
    def f(x, n, log):
        if x.sum() > 0:
            del n
        log.append(1)
        log.append(n)

    same_as_eager(f, torch.ones(2), 3)


def test_an_empty_cell_of_the_frame_stays_empty():
    def f(x, n, log):
        log.append(1)
        for _ in range(2):
            x = x * n
            del n

            def inner():
                return n  # noqa: F821

    same_as_eager(f, torch.ones(2), 3)


def test_a_cell_cannot_be_deleted_twice():
    def f(x, n, log):
        log.append(len(x + n))
        del n
        del n  # noqa: F821
        return lambda: n  # noqa: F821

    same_as_eager(f, torch.ones(2), 3)


def test_exc_info_reports_this_frame_and_of_callers():
    def f(x, log):
        with contextlib.ExitStack() as stack:
            stack.callback(log.append, "left")
            x = x + 1
        try:
            raise KeyError("k")
        except KeyError:
            log.append(sys.exc_info()[:2][0])
        return x.tolist(), sys.exc_info()[0]

    tc.reset()
    compiled, x = tc.compile(f, backend="eager"), torch.ones(2)
    for _ in range(2):
        assert compiled(x, log := []) == f(x, [])
        assert log == ["left", KeyError]
        try:
            raise OSError
        except OSError:
            assert compiled(x, []) == f(x, []) == ([2, 2], OSError)


def test_a_break_in_an_exit_method_that_is_given_an_error():
    class Noted:
        def __init__(self, log):
            self.log = log

        def __enter__(self):
            return self

        def __exit__(self, kind, error, trace):
            print(end="")
            self.log.append((kind, error.args))
            return True

    def f(x, log):
        with Noted(log):
            x = x + 1
            raise ValueError(3)
        return x.tolist()

    same_as_eager(f, torch.ones(2))


def test_a_bound_method_kept_over_a_break_is_bound_to_the_same_object():
    def f(x, log):
        found = [x + 1]
        add = found.append
        print(end="")
        add(x)
        log.append(len(found))
        return [t.tolist() for t in found]

    same_as_eager(f, torch.ones(2))
