"""Locals that matter at a place, on small functions whose answer is plain to see."""

from collections.abc import Callable
from typing import Any
from unittest import TestCase

from tc.compiler.capture.bytecode.instructions import Instruction, disassemble
from tc.compiler.capture.bytecode.liveness import live_at

check = TestCase()


def place(function: Callable[..., Any], name: str) -> tuple[list[Instruction], Instruction]:
    """Where the function loads the global `name`."""
    body = disassemble(function.__code__)
    return body, next(x for x in body if x.opname == "LOAD_GLOBAL" and x.argval == name)


def here(*args: Any) -> None: ...


def live(function: Callable[..., Any], **more: Any) -> set[str]:
    return live_at(*place(function, "here"), **more)


def test_what_is_read_later_is_live() -> None:
    def f(a: int, b: int, c: int) -> int:
        d = a
        here()
        b = 5
        return b + c + d

    check.assertEqual(live(f), {"c", "d"})


def test_loops_bring_reads_back() -> None:
    def f(a: int, b: int) -> int:
        c = 0
        for i in range(a):
            here()
            c = i + b
            b = c
        return c

    check.assertEqual(live(f), {"i", "b"})


def test_handlers_read_too() -> None:
    def f(a: int, b: int) -> int:
        try:
            here()
            a = g()  # type: ignore[name-defined] # noqa: F821
        except ValueError:
            return a
        return b

    check.assertEqual(live(f), {"a", "b"})


def test_handlers_see_what_was_bound_before() -> None:
    def f(a: int) -> object:
        try:
            x = 1
            y = a
        except ValueError:
            here()
            x = y = 2
        return x, y

    check.assertEqual(live(f), set())


def test_branches_must_agree_to_bind() -> None:
    def f(a: int) -> object:
        if a:
            x = y = 1
        else:
            x = 2
        here()
        return x, y

    check.assertEqual(live(f), {"x", "y"})


def test_deleting_unbinds_and_needs() -> None:
    def f(a: int, b: int) -> None:
        del a
        here()
        del b

    check.assertEqual(live(f), {"b"})


def test_cells_are_always_live() -> None:
    def f(a: int) -> Any:
        here()
        b = 1
        return lambda: a + b

    check.assertEqual(live(f), {"a", "b"})


def test_readers_of_the_frame_need_everything() -> None:
    def f(a: int, b: int) -> Any:
        here()
        return locals()

    check.assertEqual(live(f), set())
    check.assertEqual(live(f, frame_locals=f.__code__.co_varnames), {"a", "b"})


def test_borrowed_locals_are_not_sure() -> None:
    def f(n: int) -> Any:
        squares = [k * k for k in range(n)]
        here()
        return squares

    check.assertEqual(live(f), {"squares"})
