"""Generators that do not run to their end, and those that raise StopIteration."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import pytest
import torch

import tc

log: list[str] = []


def raises_stop(x):
    def g():
        yield x
        raise StopIteration

    try:
        return list(g())
    except RuntimeError as e:
        return str(e)


def next_of_nothing(x):
    log.append("a")

    def g():
        yield x
        next(iter([]))

    try:
        return [t + 0 for t in g()]
    except RuntimeError as e:
        return str(e)


def left_by_break(x):
    def g():
        try:
            yield x
            yield x + 1
        finally:
            log.append("fin")

    for t in g():
        x = t + 2
        break
    log.append("after")
    return x + 1


def closed(x):
    def g():
        try:
            yield x
            yield x + 1
        finally:
            log.append("fin")

    i = g()
    a = next(i)
    i.close()
    log.append("after")
    return a + 1


def closed_without_cleanup(x):
    def g():
        yield x
        yield x + 1

    i = g()
    a = next(i)
    i.close()
    return a + 1, list(i)


def dropped(x):
    def g():
        try:
            yield x
        except GeneratorExit:
            log.append("ge")
            raise

    i = g()
    a = next(i)
    del i
    log.append("z")
    return a + 1


def outcome(f: Any) -> Any:
    log.clear()
    try:
        return str(f(torch.ones(2))), list(log)
    except Exception as e:
        return type(e), str(e), list(log)


@pytest.mark.parametrize(
    "f", [raises_stop, next_of_nothing, left_by_break, closed, closed_without_cleanup, dropped]
)
def test_as_eager(f: Any) -> None:
    want = outcome(f)
    assert outcome(tc.compile(f, backend="eager")) == want
    tc.reset()


class Numbers(Sequence):
    """Its `__iter__`, Python's own, yields inside of ``try … except IndexError``."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        return range(3)[index]


def membership(x):
    return x * (2 if 1 in NUMBERS else 3)


def handled_otherwise(x):
    def g():
        try:
            try:
                yield x
                yield x + 1
            except (ValueError, KeyError) as error:
                log.append(str(error))
        except IndexError:
            log.append("index")

    return next(g()) + 1


NUMBERS = Numbers()


@pytest.mark.parametrize("f", [membership, handled_otherwise])
def test_handlers_of_other_exceptions_leave_nothing_to_run(f: Any) -> None:
    want = outcome(f)
    assert outcome(tc.compile(f, backend="eager", fullgraph=True)) == want


def own_name(x):
    def g():
        try:
            yield x
            yield x + 1
        except ValueError:
            log.append("any")
            raise

    i = g()
    a = next(i)
    del i
    return a + 1


def test_a_name_that_the_module_defines_may_be_any_exception(monkeypatch: Any) -> None:
    monkeypatch.setitem(globals(), "ValueError", BaseException)
    assert outcome(tc.compile(own_name, backend="eager")) == outcome(own_name)
    assert log == ["any"]


def resumed(value):
    """Yield a value for what is sent, and notes of exceptions, until it is closed."""
    try:
        while True:
            try:
                got = yield value
                log.append(f"got {got}")
            except KeyError as error:
                log.append(f"key {error}")
    finally:
        log.append("end")


def delegating(value):
    try:
        yield from resumed(value)
    except ValueError as error:
        log.append(f"value {error} {error.__context__!r}")
        yield value + 1
    return 5


def thrown_into(x):
    i = delegating(x)
    found = [next(i), i.throw(KeyError("q")), i.send(7), i.throw(ValueError, "w")]
    try:
        next(i)
    except StopIteration as end:
        log.append(str(end.value))
    return sum(found)


def thrown_before_the_start_and_after_the_end(x):
    i = delegating(x)
    for error in (TypeError("t"), KeyError("k")):
        try:
            i.throw(error)
        except (TypeError, KeyError) as found:
            log.append(repr(found))
    i.close()
    return x + len(list(i))


def closed_while_delegating(x):
    i = delegating(x)
    found = next(i)
    i.close()
    i.close()
    log.append(str(i.gi_frame) + i.__name__ + str(i.gi_running))
    return found + 1


def ended_by_an_error(x):
    def g():
        yield x
        raise ValueError("once")
        yield x

    i = g()
    found = next(i)
    for _ in range(3):
        try:
            next(i)
        except (ValueError, StopIteration) as error:
            log.append(repr(error))
    return found + 1


def close_is_refused(x):
    def ignores():
        try:
            yield x
        except GeneratorExit:
            yield x

    def raises():
        try:
            yield x
        finally:
            raise ValueError("in finally")

    for i in (ignores(), raises()):
        x = next(i) + x
        try:
            i.close()
        except (RuntimeError, ValueError) as error:
            log.append(f"{error} {error.__context__!r}")
    return x


def entered_while_running(x):
    def g():
        yield x
        try:
            next(i)
        except ValueError as error:
            log.append(str(error))
        yield x + 1

    i = g()
    return next(i) + next(i)


def sent_before_the_start(x):
    i = resumed(x)
    try:
        i.send(3)
    except TypeError as error:
        log.append(str(error))
    found = next(i)
    i.close()
    return found + 1


def suspended_in_a_handler(x):
    def g():
        try:
            raise KeyError("inside")
        except KeyError:
            yield x
            try:
                raise
            except KeyError as error:
                log.append(repr(error))
        yield x + 1

    i = g()
    found = next(i)
    try:
        raise ValueError("outside")
    except ValueError as error:
        log.append(repr(error.__context__))
        found = found + next(i)
        try:
            raise
        except ValueError as again:
            log.append(repr(again))
    return found


@contextlib.contextmanager
def noting(n):
    log.append(f"in {n}")
    try:
        yield n
    except ValueError as error:
        log.append(f"{n} {error} {error.__context__!r}")
        if n > 1:
            raise KeyError(n) from error
    finally:
        log.append(f"out {n}")


def contexts_that_swallow(x):
    with noting(0):
        raise ValueError("a")
    for i in range(3):
        with noting(1) as n:
            if i == 1:
                continue
            x = x + n
    return x


def contexts_that_raise(x):
    try:
        with noting(2), noting(1):
            raise LookupError("b")
    except LookupError as error:
        log.append(repr(error))
    try:
        with noting(3):
            raise ValueError("c")
    except KeyError as error:
        log.append(f"{error!r} {error.__cause__!r}")
    return x + 1


def contexts_on_a_stack(x):
    try:
        with contextlib.ExitStack() as stack:
            x = sum((stack.enter_context(noting(n)) for n in range(2, 4)), x)
            raise ValueError("d")
    except KeyError as error:
        log.append(f"{error!r} {error.__context__!r}")
    return x


def contexts_that_raise_what_ends_generators(x):
    for error in (StopIteration("s"), RuntimeError("r")):
        try:
            with noting(0):
                raise error
        except (StopIteration, RuntimeError) as found:
            log.append(str(found is error))
    return x + 1


THROWN = [
    thrown_into,
    thrown_before_the_start_and_after_the_end,
    closed_while_delegating,
    ended_by_an_error,
    close_is_refused,
    entered_while_running,
    sent_before_the_start,
    suspended_in_a_handler,
    contexts_that_swallow,
    contexts_that_raise,
    contexts_on_a_stack,
    contexts_that_raise_what_ends_generators,
    closed,
]


@pytest.mark.parametrize("f", THROWN)
def test_exceptions_are_thrown_into_generators_without_a_break(f: Any) -> None:
    want = outcome(f)
    assert outcome(tc.compile(f, backend="eager", fullgraph=True)) == want
