"""Guards and compiles keep nothing alive, and what dies takes its guards along."""

from __future__ import annotations

import contextlib
import gc
import types
import weakref

import pytest
import torch

import tc
from tc.compiler.capture import hook
from tc.compiler.capture.guards import guard_list
from tc.compiler.capture.guards.guard_list import GuardList
from tc.compiler.core.sources import ItemSource, LocalSource

A, B = LocalSource("a"), LocalSource("b")


def frame(a, b=None):
    """Stand in for the code of a compiled frame."""


class Plain:
    """An object of a class of the user's."""


@pytest.mark.usefixtures("only_new_garbage")
def test_nothing_known_by_identity_is_kept_alive_and_death_fails_the_guard():
    target = types.FunctionType(frame.__code__.replace(co_name="target"), {})
    thing, kind = Plain(), type("Kind", (), {})
    made = []

    def callback(frame, cache, state):
        wanted = GuardList()
        wanted.add("ID", A, frame.locals["a"])
        checked = guard_list.build(wanted, None, frame.code, frame.locals, frame.globals, "0/0")
        made.append(checked)
        return hook.Compiled(frame.code, checked, "0/0")

    run = hook.wrap(target, callback)
    for value in (thing, kind):
        run(value, 0)
    assert len(hook.cache_entries(target.__code__)) == 2
    watch = weakref.ref(thing), weakref.ref(kind)
    del thing, kind, value
    gc.collect()
    assert watch[0]() is None and watch[1]() is None
    assert [checked.alive for checked in made] == [False, False]
    assert hook.cache_entries(target.__code__) == [], "dead entries leave the cache"
    (failure,) = made[0].explain({"a": Plain(), "b": 0}, {})[:1]
    assert failure.source == "a"


@pytest.mark.usefixtures("only_new_garbage")
def test_tensors_are_not_kept_alive():
    target = types.FunctionType(frame.__code__.replace(co_name="target"), {})
    checks = []

    def callback(frame, cache, state):
        wanted = GuardList()
        wanted.add("TENSOR", A, frame.locals["a"])
        wanted.add("TENSOR", ItemSource(B, "t"), frame.locals["b"]["t"])
        wanted.add("NO_ALIASING", A, (ItemSource(B, "t"),))
        wanted.add("DICT_KEYS", B, frame.locals["b"])
        checked = guard_list.build(wanted, None, frame.code, frame.locals, frame.globals, "0/0")
        checks.append(checked)
        return hook.Compiled(frame.code, checked, "0/0")

    run = hook.wrap(target, callback)
    x, y = torch.ones(2), torch.ones(3)
    run(x, {"t": y})
    run(x, {"t": y})
    assert len(checks) == 1
    watch = weakref.ref(x), weakref.ref(y)
    del x, y
    gc.collect()
    assert watch[0]() is None and watch[1]() is None
    assert checks[0].alive and checks[0].check({"a": torch.ones(2), "b": {"t": torch.ones(3)}})


@pytest.mark.usefixtures("only_new_garbage")
def test_guards_die_with_the_code():
    target = types.FunctionType(compile("def t(a, b): pass", "x", "exec").co_consts[0], {})
    checks = []

    def callback(frame, cache, state):
        checked = guard_list.build(GuardList(), None, frame.code, frame.locals, {}, "0/0")
        checks.append(weakref.ref(checked))
        return hook.Compiled(frame.code, checked, "0/0")

    hook.wrap(target, callback)(1, 2)
    gc.collect()
    assert checks[0]() is not None
    del target
    gc.collect()
    assert checks[0]() is None


def handled(x):
    try:
        raise ValueError(1)
    except ValueError:
        return x + 1


def raising(x):
    raise KeyError("k")


def broken(x):
    y = x + 1
    print(end="")
    return y * 2


def branching(x):
    return x + 1 if x.sum() > 0 else x - 1


def refused(x):
    return x.view(7)


def left_open(x):
    def numbers():
        try:
            yield x
        finally:
            print(end="")

    for number in numbers():
        return number


def missing(x):
    return x.nothing


@pytest.mark.usefixtures("only_new_garbage")
@pytest.mark.parametrize("options", [{}, {"fullgraph": True}, {"dynamic": True}], ids=str)
@pytest.mark.parametrize(
    "program", [handled, raising, broken, branching, refused, left_open, missing]
)
def test_a_compile_keeps_no_frame_of_the_program(program, options):
    """What a caller holds dies where it does in eager, not at a pass of the garbage collector."""
    tc.compile(handled, backend="eager")(torch.ones(3))  # loads what is loaded late
    tc.reset()
    compiled = tc.compile(program, backend="eager", **options)

    def caller():
        held = Plain()
        with contextlib.suppress(Exception):
            compiled(torch.ones(3))
        return weakref.ref(held)

    gc.disable()
    try:
        assert caller()() is None
    finally:
        gc.enable()
