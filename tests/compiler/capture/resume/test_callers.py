"""Code that looks at its callers sees the frames of eager execution, wherever a graph breaks.

The table: each way of looking, by each place where a graph breaks around it.
"""

import collections
import inspect
import logging
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tc

Seen = list[Any]


# -- ways of looking -----------------------------------------------------------------------------
def getframe() -> Seen:
    found: Seen = []
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "observed":
        found.append((frame.f_code.co_filename, frame.f_code.co_name, frame.f_lineno))
        frame = frame.f_back
    return found


def current() -> Seen:
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return [frame.f_back.f_code.co_name, frame.f_back.f_lineno]


def stack() -> Seen:
    return until_observed([(one.filename, one.function, one.lineno) for one in inspect.stack()])


def extracted() -> Seen:
    lines = traceback.extract_stack()
    return until_observed([(one.filename, one.name, one.lineno) for one in reversed(lines)])


def until_observed(rows: Seen) -> Seen:
    return rows[: [row[1] for row in rows].index("observed")]


def warned() -> Seen:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for level in (1, 2, 3, 4):
            warnings.warn("careful", stacklevel=level)
    return [(one.filename, one.lineno) for one in caught]


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.seen: Seen = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append((record.pathname, record.funcName, record.lineno))


LOG, KEPT = logging.getLogger(__name__), Kept()
LOG.addHandler(KEPT)
LOG.propagate = False


def logged() -> Seen:
    KEPT.seen = []
    for level in (1, 2, 3):
        LOG.warning("careful", stacklevel=level)
    return KEPT.seen


def named() -> Seen:
    return [collections.namedtuple("Pair", "a b").__module__]


def raised() -> Seen:
    raise KeyError("k")


WAYS = (getframe, current, stack, extracted, warned, logged, named, raised)
LOOK: Callable[[], Seen] = getframe


# -- places --------------------------------------------------------------------------------------
def no_break(x):
    x = x + 1
    return x * 2, LOOK()


def in_frame(x):
    x = x + 1
    print(end="")
    x = x * 2
    return x + 1, LOOK()


def inner(x):
    x = x + 1
    print(end="")
    x = x * 2
    found = LOOK()
    return x + 1, found


def in_callee(x):
    x = x + 1
    y, found = inner(x)
    return y * 2, found


def looks_only(x):
    return x + 1, LOOK()


def after_break_in_caller(x):
    print(end="")
    y, found = looks_only(x * 2)
    return y * 2, found


def between(x):
    y, found = inner(x * 3)
    return y + 1, found


def two_deep(x):
    y, found = between(x + 1)
    return y * 2, found


def in_loop(x):
    for _ in range(3):
        x = x + 1
        print(end="")
        found = LOOK()
    return x, found


class Quiet:
    def __enter__(self):
        return self

    def __exit__(self, *raised):
        return False


def in_with(x):
    with Quiet():
        x = x + 1
        print(end="")
        found = LOOK()
    return x, found


def in_try(x):
    try:
        x = x + 1
        print(end="")
        found = LOOK()
    except ZeroDivisionError:
        found = []
    return x, found


def in_except(x):
    try:
        x = x + 1
        raise IndexError
    except IndexError:
        print(end="")
        found = LOOK()
    return x, found


def in_finally(x):
    try:
        x = x + 1
        print(end="")
    finally:
        found = LOOK()
    return x * 2, found


def generated(x):
    x = x + 1
    print(end="")
    yield x
    yield LOOK()


def in_generator(x):
    first, second = list(generated(x))
    return first + 1, second


class Looks:
    def method(self, x):
        x = x + 1
        print(end="")
        found = LOOK()
        return x + 1, found

    @property
    def seen(self):
        print(end="")
        return LOOK()

    def __add__(self, other):
        print(end="")
        return LOOK()


def in_method(x):
    return Looks().method(x * 2)


def reads(owner, x):
    return x + 1, owner.seen


def in_property(x):
    return reads(Looks(), x * 2)


def adds(owner, x):
    return x + 1, owner + 1


def in_operator(x):
    return adds(Looks(), x * 2)


def in_comprehension(x):
    found = [(print(end=""), LOOK())[1] for _ in range(2)]
    return x * 2, found


def in_lambda(x):
    call = lambda v: (v + 1, LOOK())  # noqa: E731
    print(end="")
    return call(x + 1)


@tc.disable
def kept_out():
    return LOOK()


def calls_disabled(x):
    x = x + 1
    found = kept_out()
    return x * 2, found


def in_disabled(x):
    return calls_disabled(x * 2)


class Net(torch.nn.Module):
    def forward(self, x):
        x = x + 1
        print(end="")
        found = LOOK()
        return x * 2, found


class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Net()

    def forward(self, x):
        return self.inner(x + 1)


PLACES = (
    no_break, in_frame, in_callee, after_break_in_caller, two_deep, in_loop, in_with, in_try,
    in_except, in_finally, in_generator, in_method, in_property, in_operator, in_comprehension,
    in_lambda, in_disabled, Net(),
)  # fmt: skip


def observed(function: Any, size: int) -> tuple[Any, Any]:
    """Return the result and what was seen, or the exception and the lines it has passed."""
    try:
        return function(torch.ones(size))
    except KeyError as error:
        at, lines = error.__traceback__, []
        while at is not None:
            lines.append((at.tb_frame.f_code.co_filename, at.tb_frame.f_code.co_name, at.tb_lineno))
            at = at.tb_next
        return torch.ones(()), lines


def name_of(place: Any) -> str:
    return getattr(place, "__name__", type(place).__name__)


@pytest.mark.sample(1)
@pytest.mark.parametrize("place", PLACES, ids=name_of)
def test_callers_are_those_of_eager(place, monkeypatch):
    for way in WAYS:
        monkeypatch.setattr(sys.modules[__name__], "LOOK", way)
        tc.reset()
        compiled = tc.compile(place, backend="eager")
        for size in (3, 3, 4):
            (want, seen), (got, shown) = [observed(one, size) for one in (place, compiled)]
            torch.testing.assert_close(got, want)
            assert shown == seen, way.__name__


@pytest.mark.sample(2)
@pytest.mark.parametrize("way", [getframe, stack, extracted, raised], ids=name_of)
def test_callers_in_modules_are_those_of_eager_but_for_frames_of_torch(way, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "LOOK", way)
    tc.reset()
    outer = Outer()
    compiled = tc.compile(outer, backend="eager")
    for size in (3, 3, 4):
        want, got = [
            [row for row in observed(one, size)[1] if row[0] == __file__]
            for one in (outer, compiled)
        ]
        assert got == want and len(got) > 1


def holds(x):
    dead = 3
    x = x + dead
    return sorted(n for n in outer_locals() if not n.startswith("___")), x


def outer_locals():
    return sys._getframe(2).f_locals


def test_locals_of_waiting_frames_are_there():
    def f(x):
        early = 5
        names, x = holds(x + early)
        return names, x

    compiled = tc.compile(f, backend="eager")
    for size in (2, 3):
        assert compiled(torch.ones(size))[0] == f(torch.ones(size))[0] == ["early", "x"]


def test_a_break_is_reported_once_though_two_frames_meet_it():
    def f(x):
        return calls_disabled(x * 2)

    tc.reset()
    explained = tc.explain(f)(torch.ones(3))
    assert explained.graph_break_count == 1


def test_frames_of_tc_are_on_no_stack_under_a_compiled_call():
    def f(x):
        print(end="")
        return x + 1, [one.filename for one in traceback.extract_stack()]

    compiled = tc.compile(f, backend="eager")
    want, got = f(torch.ones(2))[1], compiled(torch.ones(2))[1]
    assert got == want


def test_uses_of_compiled_code_are_counted_by_hidden_frames():
    from tc.compiler.capture import entries

    seen: list[bool] = []

    @tc.compile(backend="eager")
    def f(x):
        seen.append(entries.nobody_inside())
        return x + 1

    f(torch.ones(2))
    assert seen == [False] and entries.nobody_inside()
