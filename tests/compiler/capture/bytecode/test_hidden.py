"""Frames of hidden code: no stack and no traceback shows them, and tracers see whole calls.

Runs without pytest too, so that `test_instructions.py` can run it under other Pythons.
"""

import sys
import traceback
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any
from unittest import TestCase

from tc.compiler.capture.bytecode.emitter import Emitter
from tc.compiler.capture.bytecode.hidden import hidden, hidden_code

check = TestCase()


def stack() -> list[str]:
    """Return the names of the callers, up to the test."""
    names: list[str] = []
    frame = sys._getframe(1)
    while not (names and names[-1].startswith("test_")):
        names.append(frame.f_code.co_name)
        assert frame.f_back is not None
        frame = frame.f_back
    return names


def fail() -> None:
    raise KeyError("k")


def passing(function: Callable[..., Any], closed: list[str]) -> Callable[..., Any]:
    @hidden
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs) if kwargs else function(*args)
        finally:
            closed.append("closed")

    return call


def test_no_stack_shows_them() -> None:
    closed: list[str] = []
    twice = passing(passing(stack, closed), closed)
    check.assertEqual(twice(), ["test_no_stack_shows_them"])
    check.assertEqual(closed, ["closed"] * 2)
    check.assertEqual(passing(lambda a, b: (a, b), closed)(1, b=2), (1, 2))


def test_no_traceback_shows_them() -> None:
    closed: list[str] = []
    try:
        passing(passing(fail, closed), closed)()
    except KeyError as error:
        names = [one.name for one in traceback.extract_tb(error.__traceback__)]
        check.assertIsNone(error.__context__)
    check.assertEqual(names, ["test_no_traceback_shows_them", "fail"])
    check.assertEqual(closed, ["closed"] * 2)


def test_what_they_catch_is_caught() -> None:
    @hidden
    def quiet(function: Callable[[], Any]) -> str:
        try:
            function()
        except KeyError as error:
            return repr(error)
        return "nothing"

    check.assertEqual((quiet(fail), quiet(stack)), ("KeyError('k')", "nothing"))


def test_tracers_see_a_call_for_each_return() -> None:
    def events_of(function: Callable[[], Any]) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []

        def note(frame: Any, event: str, arg: Any) -> None:
            if event in ("call", "return"):
                found.append((event, frame.f_code.co_name))

        sys.setprofile(note)
        try:
            function()
        except KeyError:
            pass
        finally:
            sys.setprofile(None)
        return found

    for inner in (stack, fail):
        events = events_of(passing(inner, []))
        for name in ("call", inner.__name__):
            mine = [event for event, of in events if of == name]
            check.assertEqual(mine, ["call", "return"], f"{name}: {events}")


def test_code_is_made_once() -> None:
    check.assertIs(passing(fail, []).__code__, passing(stack, []).__code__)
    code = fail.__code__
    check.assertIs(hidden_code(code), hidden_code(code))


def returning_call_of(function: Callable[[], Any], shown: Callable[[], Any]) -> CodeType:
    """Return code that calls ``shown``, and returns what ``function`` returns, hidden."""

    def like() -> Any:
        pass

    e = Emitter()
    e.prologue()
    for called in (shown, function):
        e.before_callable()
        e.load_const(called)
        e.after_callable()
        if called is shown:
            e.call(0)
            e.pop_top()
    e.return_call(0)
    return e.assemble(like.__code__)


def test_a_returned_call_hides_its_frame() -> None:
    before: list[list[str]] = []
    code = returning_call_of(stack, lambda: before.append(stack()))
    name = "test_a_returned_call_hides_its_frame"
    check.assertEqual(FunctionType(code, {})(), [name])
    check.assertEqual(before, [["<lambda>", "like", name]])
    try:
        FunctionType(returning_call_of(fail, stack_of_nobody), {})()
    except KeyError as error:
        names = [one.name for one in traceback.extract_tb(error.__traceback__)]
    check.assertEqual(names, [name, "fail"])


def stack_of_nobody() -> None:
    """Do nothing."""
