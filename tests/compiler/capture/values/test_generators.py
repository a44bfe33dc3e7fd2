"""Generators that do not run to their end, and those that raise StopIteration."""

from __future__ import annotations

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
