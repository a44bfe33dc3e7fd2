"""Definitions that a trace looked at: each change of one is noticed, other changes are not."""

from __future__ import annotations

import abc
import gc
import sys
import types
import weakref

import pytest
import torch

import tc
from tc.compiler.capture.guards.definitions import Definitions, PlainWatch, unchanged
from tc.compiler.runtime.watch import watch_type

MAKERS = [pytest.param(PlainWatch, id="python")]
if watch_type() is not None:
    MAKERS.append(pytest.param(watch_type(), id="c"))


def classes():
    class Base:
        data = 1

        def method(self):
            return 1

        @property
        def part(self):
            return 2

        @staticmethod
        def plain():
            return 3

    class Derived(Base):
        pass

    return Base, Derived


CHANGES = {
    "method replaced": lambda b, d: setattr(b, "method", lambda self: 9),
    "method deleted": lambda b, d: delattr(b, "method"),
    "method added below": lambda b, d: setattr(d, "method", lambda self: 9),
    "absent name added": lambda b, d: setattr(d, "absent", 1),
    "special method added": lambda b, d: setattr(d, "__len__", lambda self: 1),
    "property replaced": lambda b, d: setattr(b, "part", property(lambda self: 9)),
    "static method replaced": lambda b, d: setattr(b, "plain", staticmethod(lambda: 9)),
    "static became plain": lambda b, d: setattr(b, "plain", b.plain),
    "data became a property": lambda b, d: setattr(b, "data", property(lambda self: 9)),
    "bases changed": lambda b, d: setattr(d, "__bases__", (type("Other", (b,), {}),)),
}
HARMLESS = {
    "data": lambda b, d: setattr(b, "data", 2),
    "another name": lambda b, d: setattr(b, "elsewhere", 2),
    "the same again": lambda b, d: setattr(b, "method", b.method),
}


def watching(make, *objects):
    found = Definitions()
    found.names |= {"method", "part", "plain", "data", "absent"}
    for one in objects:
        found.meet(one)
    return found.watch((), make)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_changes_of_classes_are_noticed(make, change):
    base, derived = classes()
    guard = watching(make, derived())
    assert guard.watch() and guard.differences() == []
    change(base, derived)
    assert not guard.watch() and not guard.watch()
    assert guard.differences()


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("change", HARMLESS.values(), ids=list(HARMLESS))
def test_other_changes_of_classes_are_let_pass(make, change):
    base, derived = classes()
    guard = watching(make, derived())
    change(base, derived)
    assert guard.watch() and guard.watch() and guard.differences() == []


@pytest.mark.parametrize("make", MAKERS)
def test_a_change_undone_holds_again(make):
    base, derived = classes()
    guard, before = watching(make, derived()), base.method
    for _ in range(3):
        base.method = lambda self: 9
        assert not guard.watch()
        base.method = before
        assert guard.watch()


@pytest.mark.parametrize("make", MAKERS)
def test_what_modules_hold_and_lack(make):
    module = types.ModuleType("some_module")
    module.function, module.number = len, 1
    found = Definitions()
    for name in ("function", "number", "absent"):
        found.look_up(vars(module), name)
    guard = found.watch((), make)
    module.number, module.unrelated = 2, 3
    assert guard.watch()
    for name, value in (("function", abs), ("absent", len), ("number", len)):
        before = vars(module).get(name)
        setattr(module, name, value)
        assert not guard.watch(), name
        (row,) = guard.differences()
        assert row[0] == f"some_module.{name}"
        delattr(module, name) if before is None else setattr(module, name, before)
        assert guard.watch(), name


@pytest.mark.parametrize("make", MAKERS)
def test_code_of_functions(make):
    def function():
        return 1

    found = Definitions()
    found.interpret(function)
    guard = found.watch((), make)
    assert guard.watch()
    function.__code__ = (lambda: 2).__code__
    assert not guard.watch()
    assert guard.differences()[0][0].endswith("function.__code__")


@pytest.mark.parametrize("make", MAKERS)
def test_sizes_and_registries(make):
    class Abstract(abc.ABC):  # noqa: B024
        pass

    class Plain:
        pass

    hooks: dict = {}
    found = Definitions()
    found.count(hooks)
    found.register(Plain, Abstract, issubclass(Plain, Abstract))
    guard = found.watch((), make)
    type("Another", (abc.ABC,), {}).register(int)
    assert guard.watch(), "another registry"
    hooks[1] = 2
    assert not guard.watch()
    del hooks[1]
    assert guard.watch()
    Abstract.register(Plain)
    assert not guard.watch() and guard.differences()


@pytest.mark.usefixtures("only_new_garbage")
@pytest.mark.parametrize("make", MAKERS)
def test_nothing_of_a_user_is_kept_alive(make):
    base, derived = classes()

    def function():
        return 1

    found = Definitions()
    found.meet(derived())
    found.interpret(function)
    guard = found.watch((), make)
    refs = [weakref.ref(one) for one in (base, derived, function)]
    del found, base, derived, function
    gc.collect()
    assert [ref() for ref in refs] == [None] * 3
    assert not guard.watch()


def test_printed_guards_are_found_by_their_key():
    base, derived = classes()
    guard = watching(None, derived())
    assert unchanged(guard.key)
    base.method = None
    assert not unchanged(guard.key)
    assert not unchanged("00000000")


def test_a_thousand_stores_of_data_recompile_nothing():
    class Counter:
        count = 0

        def bump(self, x):
            return x + 1

    counter, graphs = Counter(), []
    run = tc.compile(lambda x: counter.bump(x), backend=lambda gm, _: graphs.append(gm) or gm)
    for step in range(1000):
        Counter.count = step
        sys.modules[__name__].__dict__["_some_global"] = step
        run(torch.zeros(1))
    assert len(graphs) == 1
