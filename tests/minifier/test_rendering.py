"""No edit of any file breaks the reducer: a candidate compiles, or there is none."""

from __future__ import annotations

import ast
import random
import sys
import textwrap

import fuzzedits
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tc.minifier.passes import edits, rendering, source

MODERN = r'''
# a comment
import asyncio, functools
from dataclasses import dataclass

@dataclass(frozen=True)
class Point:
    x: int = 1  # type: ignore
    def show(self, width=4, *rest, key=None, **more):
        """Says "it"."""
        return f"{self.x!r:>{width}} {'-'.join(map(str, rest))} {self.x=} {{}} {f'{key}'}"

class Scaled:
    def __init__(self, by):
        self.by = 2
        self.count = by
    @property
    def twice(self):
        return self.by * 2

wide = Scaled(3).twice

def logged(*names):
    def around(function):
        @functools.wraps(function)
        def inner(*args, **kwargs):
            print(f"{function.__name__}({args}, {kwargs})")
            return function(*args, **kwargs)
        return inner
    return around

@logged("a", "b")
def kind(value):
    match value:
        case {"x": int(x), **rest} if x > 3:
            return f"map {x:03d} {rest}"
        case [first, *_, last] | (first, last):
            return first
        case Point(x=0) | None:
            return lambda a, /, b=2, *, c: (yield)
        case _:
            return [y for x in range(30) if (y := x ** 2) > 7]

async def main():
    async with asyncio.Lock() as lock:
        async for item in other(*[1, 2], **{"a": 3}):
            await asyncio.sleep(0.25 if item else 1_000)
    try:
        first, *middle, (last, end) = [*range(7), (8, 9)]
        assert first, f"no {first}"
    except* (ValueError, TypeError) as group:
        raise RuntimeError from group
    else:
        del lock
    finally:
        global counted
        counted = first < last <= end

def half(value, by=2):
    return value / by

def halves(count):
    for one in range(count):
        yield half(one)

def shown(count):
    for number, value in zip(range(count), halves(count)):
        whole = value * 2
        text = str(whole)
        if (size := len(text)) > number:
            print(text)
    return size

total = shown(3)
'''
# what Python 3.11 reads and cannot print as a formatted string: quotes of each sort, a backslash
UNPRINTABLE = (
    'f\'{x}\\n\' f"""{\'a\' + "b"}"""',
    'f"{d["a"]}"',
    "f'{x!r:>{w}}\\t{\"q\"}' '''it's \"so\"'''",
)


@pytest.mark.sample(3)
@pytest.mark.parametrize("made", source.TABLE, ids=lambda made: made.__name__)
def test_every_edit_of_modern_python_is_a_program_or_no_candidate(made: edits.Edits) -> None:
    text = rendering.normal_form(MODERN)
    assert text is not None
    tree = ast.parse(text)
    candidates = [found for _ in made(tree) if (found := rendering.rendered(tree)) is not None]
    assert ast.unparse(tree) == text  # every edit was taken back
    assert candidates
    assert all(map(rendering.is_program, candidates))


@pytest.mark.parametrize(
    "count, reductions", [(30, 1), pytest.param(10_000, 20, marks=pytest.mark.slow)]
)
def test_random_edits_of_other_peoples_files(count: int, reductions: int, no_passes: None) -> None:
    run = fuzzedits.Fuzz(random.SystemRandom().randrange(10**6))
    run.edits(count)
    run.reductions(reductions)
    assert not run.errors, f"seed {run.seed}\n" + "\n".join(run.errors[:3])
    assert run.became["edits"] == count
    assert run.became["candidates"] > count / 3
    assert run.became["files reduced"] == reductions


@pytest.mark.parametrize("text", UNPRINTABLE)
def test_formatted_strings_without_a_text_become_calls(text: str) -> None:
    if rendering.parsed(text) is None:
        pytest.skip("this Python does not read it")
    made = rendering.normal_form(text)
    assert made is not None
    names = {"x": 7, "w": 5, "d": {"a": 3}}
    assert eval(made, dict(names)) == eval(text, dict(names))


def test_a_string_that_becomes_a_docstring_is_printed_as_one() -> None:
    tree = ast.parse("text = '<html>\\n<head>\\n'\nprint(2)")
    assign = tree.body[0]
    assert isinstance(assign, ast.Assign)
    assign.targets.clear()  # what is printed is an expression now
    made = rendering.rendered(tree)
    assert made is not None and ast.unparse(ast.parse(made)) == made
    assert made != ast.unparse(tree)


@given(st.text(max_size=80))
@settings(max_examples=50, deadline=None)
def test_texts_that_are_no_programs_are_none(text: str) -> None:
    made = rendering.normal_form(text)
    assert made is None or rendering.is_program(made)


@pytest.mark.parametrize("signs", [250, 700, 3000, 20_000])
@pytest.mark.parametrize("limit", [1000, 3000])
def test_deep_nesting_is_reduced_by_lines(signs: int, limit: int) -> None:
    """Also where other code has raised the limit on recursion, as Hypothesis does."""
    text = "x = 1\n" + "y = " + "-" * signs + "1\nculprit = 2\n"
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(limit)
    try:
        assert rendering.normal_form(text) is None
        left = source.reduced(text, lambda one: "culprit" in one, lambda one: None)
    finally:
        sys.setrecursionlimit(before)
    assert left == "culprit = 2"


def test_a_text_whose_comments_matter_keeps_them() -> None:
    text = textwrap.dedent("""
        x = 1
        # the reason
        y = 2
    """)
    assert source.reduced(text, lambda one: "reason" in one, lambda one: None) == "# the reason\n"
