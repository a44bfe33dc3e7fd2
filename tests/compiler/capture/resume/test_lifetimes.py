"""Generators are closed where Python closes them, wherever the graph breaks around them.

Each program makes a generator whose end runs code, holds it somewhere, takes items out of it, and
drops it; the graph breaks in the generator and at statements that are drawn.
"""

from __future__ import annotations

import contextlib
import itertools
import random

import pytest
import torch

import tc

BREAK = "print(end='')"
TRIED = """
def gen():
    {0}
    try:
        yield 1
        {1}
        yield 2
"""
BODIES = {
    "finally": TRIED + "    finally:\n        log.append('closed')\n",
    "with": """
def gen():
    {0}
    with note("g"):
        yield 1
        {1}
        yield 2
""",
    "handler": TRIED + "    except BaseException:\n        log.append('caught')\n        raise\n",
    "plain": """
def gen():
    {0}
    yield 1
    {1}
    yield 2
""",
}
HOLDERS = (
    "gen()", "enumerate(gen())", "zip(gen(), [10])", "(v for v in gen())", "map(str, gen())",
    "itertools.chain([0], gen())", "itertools.islice(gen(), 1)", "filter(None, gen())",
    "zip(gen(), gen())",
)  # fmt: skip
USES = {
    "loop left": "for v in {}:\n    log.append(v)\n    break",
    "loop ended": "for v in {}:\n    log.append(v)",
    "list": "log.append(list({}))",
    "next": "log.append(next({}))",
    "unpacked": "first, *rest = {}\nlog.append(first)",
    "any": "log.append(any({}))",
    "in": "log.append(1 in {})",
    "error": "try:\n    for v in {}:\n        raise KeyError(v)\n"
    "except KeyError as e:\n    log.append(str(e))",
    "not started": "held = {}\nheld = None",
    "in a function": "def take(it):\n    for v in it:\n        return v\nlog.append(take({}))",
    "in a tuple": "held = ({}, 1)\nlog.append(next(held[0]))\nheld = None",
}


def _program(body: str, holder: str, use: str, rng: random.Random):
    def cut() -> str:
        return BREAK if rng.random() < 0.5 else "pass"

    lines = [BODIES[body].format(cut(), cut()), USES[use].format(holder)]
    lines += ["log.append('after')", USES[use].format(holder), "log.append('end')"]
    text = "\n".join(part for line in lines for part in (line, cut()))
    indented = text.replace("\n", "\n    ")
    source = f"def f(x, log, note):\n    y = x * 2\n    {indented}\n    return x + y\n"
    space = {"itertools": itertools}
    exec(source, space)
    return space["f"]


def _outcome(function):
    log: list = []

    @contextlib.contextmanager
    def note(name):
        log.append(("enter", name))
        try:
            yield
        finally:
            log.append(("exit", name))

    try:
        return function(torch.ones(2), log, note), log
    except Exception as error:
        return type(error), log


@pytest.mark.sample(12)
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("body", BODIES)
def test_a_generator_is_closed_where_python_closes_it(body, holder, use):
    rng = random.Random(f"{body} {holder} {use}")
    function = _program(body, holder, use, rng)
    (want, expected), (got, found) = (
        _outcome(function),
        _outcome(tc.compile(backend="eager")(function)),
    )
    assert found == expected
    assert torch.equal(got, want) if isinstance(want, torch.Tensor) else got is want
