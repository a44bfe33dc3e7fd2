"""What the emitter builds must run, and do what its methods say."""

import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any
from unittest import TestCase

from tc.compiler.capture.bytecode.emitter import TRAITS, Emitter

check = TestCase()
GLOBALS: dict[str, Any] = {}


def template(*args: Any, **kwargs: Any) -> None:
    """Parameters and flags are taken from here unless given."""


def made(build: Callable[[Emitter], None], args: tuple[str, ...] = (), **more: Any) -> FunctionType:
    emitter = Emitter()
    emitter.prologue(more.get("cellvars", ()), more.get("freevars", ()))
    build(emitter)
    emitter.return_value()
    code = emitter.assemble(template.__code__, name="made", args=args, **more)
    return FunctionType(code, GLOBALS)


def result(build: Callable[[Emitter], None], **values: Any) -> Any:
    return made(build, tuple(values))(*values.values())


def target(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


class Box:
    attribute: Any = 1

    def method(self, *args: Any, **kwargs: Any) -> Any:
        return "method", args, kwargs


def test_calls() -> None:
    GLOBALS["target"] = target

    def of_global(e: Emitter) -> None:
        e.load_global("target", call=True)
        e.load_const(1)
        e.load_const(2)
        e.call(1, ("key",))

    def announced(e: Emitter) -> None:
        e.before_callable()
        e.load_fast("f")
        e.after_callable()
        e.load_const(1)
        e.call(1)

    def by_keywords(e: Emitter) -> None:
        e.before_callable()
        e.load_fast("f")
        e.after_callable()
        e.load_const(1)
        e.load_const(2)
        e.call(0, ("a", "b"))

    def of_method(e: Emitter) -> None:
        e.load_fast("box")
        e.load_method("method")
        e.load_const(1)
        e.load_const(2)
        e.call(1, ("k",))

    check.assertEqual(result(of_global), ((1,), {"key": 2}))
    check.assertEqual(result(announced, f=target), ((1,), {}))
    check.assertEqual(result(by_keywords, f=target), ((), {"a": 1, "b": 2}))
    check.assertEqual(result(of_method, box=Box()), ("method", (1,), {"k": 2}))
    box = Box()
    box.method = target  # type: ignore[method-assign]
    check.assertEqual(result(of_method, box=box), ((1,), {"k": 2}))


def test_stack_shuffles() -> None:
    def shuffled(step: Callable[[Emitter], None]) -> Any:
        def build(e: Emitter) -> None:
            for value in "abcd":
                e.load_const(value)
            step(e)
            e.build_tuple(4)

        return "".join(result(build))

    check.assertEqual(shuffled(lambda e: e.swap(3)), "adcb")
    check.assertEqual(shuffled(lambda e: (e.pop_top(), e.copy(3))[0]), "abca")


def test_variables() -> None:
    def build(e: Emitter) -> None:
        e.load_fast("x")
        e.store_fast("y")
        e.load_fast("y")
        e.store_global("made_global")
        e.load_global("made_global")
        e.delete_fast("y")

    check.assertEqual(result(build, x=5), 5)
    check.assertEqual(GLOBALS.pop("made_global"), 5)
    with check.assertRaises(UnboundLocalError):
        result(lambda e: e.load_fast("nothing", checked=True))


def test_attributes_and_items() -> None:
    def build(e: Emitter) -> None:
        e.load_const(7)
        e.load_fast("box")
        e.store_attr("attribute")
        e.load_fast("box")
        e.load_attr("attribute")
        e.load_fast("items")
        e.load_const("k")
        e.store_subscr()
        e.load_fast("items")
        e.load_const("k")
        e.load_subscr()
        e.load_fast("box")
        e.delete_attr("attribute")

    items: dict[str, int] = {}
    check.assertEqual(result(build, box=Box(), items=items), 7)
    check.assertEqual(items, {"k": 7})


def test_containers() -> None:
    def build(e: Emitter) -> None:
        for value in (1, 2):
            e.load_const(value)
        e.build_list(2)
        e.load_const(1)
        e.build_set(1)
        for value in ("a", 1):
            e.load_const(value)
        e.build_map(1)
        for value in (1, 5):
            e.load_const(value)
        e.build_slice(2)
        e.build_tuple(4)

    check.assertEqual(result(build), ([1, 2], {1}, {"a": 1}, slice(1, 5)))


def test_unpacking() -> None:
    def build(e: Emitter) -> None:
        e.load_fast("seq")
        e.copy(1)
        e.unpack_sequence(4)
        e.build_tuple(4)
        e.swap(2)
        e.get_iter()
        e.unpack_sequence(4)
        e.build_tuple(4)
        e.build_tuple(2)

    check.assertEqual(result(build, seq=(1, 2, 3, 4)), ((4, 3, 2, 1), (4, 3, 2, 1)))


def test_functions_and_cells() -> None:
    def inner(e: Emitter) -> None:
        for name in "abk":
            e.load_fast(name)
        e.load_deref("cell")
        e.load_const(10)
        e.store_deref("cell")
        e.build_tuple(4)

    def outer(e: Emitter) -> None:
        e.load_const(1)
        e.store_deref("cell")
        e.before_callable()
        e.make_function(code, ("cell",), defaults=(2, 3), kwdefaults=None)
        e.after_callable()
        e.load_const("given")
        e.call(1)
        e.load_deref("cell")
        e.build_tuple(2)

    emitter = Emitter()
    emitter.prologue(freevars=("cell",))
    inner(emitter)
    emitter.return_value()
    code = emitter.assemble(template.__code__, args=("a", "b", "k"), freevars=("cell",))
    check.assertEqual(made(outer, cellvars=("cell",))(), (("given", 2, 3, 1), 10))


def test_keyword_only_defaults() -> None:
    def example(*, k: int) -> int:
        return k

    def build(e: Emitter) -> None:
        e.make_function(example.__code__, kwdefaults={"k": 9})

    check.assertEqual(result(build)(), 9)
    check.assertEqual(result(build)(k=2), 2)


def test_jumps() -> None:
    def build(e: Emitter) -> None:
        end = e.label()
        e.jump(end)
        e.load_const("stepped over")
        e.return_value()
        e.place(end)
        e.load_const("jumped")

    check.assertEqual(result(build), "jumped")


def test_there_is_a_row_for_this_python() -> None:
    check.assertIn(sys.version_info[:2], TRAITS)


def test_constants_that_a_program_can_distinguish_stay_apart() -> None:
    nan, other = float("nan"), float("nan")
    given: tuple[Any, ...] = (
        nan, other, complex(nan, 0), complex(nan, 0), (nan,), (other,), frozenset({nan}),
        frozenset({other}), 0.0, -0.0, 0, False, 1, True, 1.0, (0.0,), (-0.0,), "a", b"a",
        complex(0.0, -0.0), complex(-0.0, 0.0), [], [],
    )  # fmt: skip

    def build(emitter: Emitter) -> None:
        for value in given:
            emitter.load_const(value)
        emitter.build_tuple(len(given))

    found = result(build)
    for one, kept in zip(given, found, strict=True):
        check.assertEqual((type(one), repr(one)), (type(kept), repr(kept)))
    check.assertEqual(len({nan: 1, other: 2, found[0]: 3, found[1]: 4}), 2)
    check.assertEqual({(nan,): 1, (other,): 2}[found[5]], 2)
