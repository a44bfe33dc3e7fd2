"""Numbers in an index become dynamic: views at symbolic numbers, in reads and in writes."""

from __future__ import annotations

import random

import pytest
import torch

import tc
from tc.compiler import api

PARTS = ("i", "j", "i - 1", "-j", "i - 4", "0", "-1", "i:", "1:i + 1", ":-1", "::2", ":", "None")
BODIES = {
    "read": "return x[{key}] + 1",
    "written": "x[{key}] = 2.5\n    return x + 1",
    "copied": "x[{key}] = x[{key}].clone() * 3\n    return x * 2",
    "differentiated": "y = x * 2\n    y[{key}] = x[{key}].cos()\n    return y.sin()",
}


def index(draw: random.Random, rank: int) -> str:
    parts = draw.choices(PARTS, k=draw.randint(1, rank))
    if draw.random() < 0.4:
        parts.insert(draw.randint(0, len(parts)), "...")
    return ", ".join(parts)


def program(key: str, kind: str):
    made: dict = {}
    text = f"def f(x, i, j):\n    {BODIES[kind].format(key=key)}\n"
    exec(compile(text, f"/programs/{kind} at {key}.py", "exec"), made)
    return made["f"]


def outcome(function, x, i, j, kind):
    try:
        result = function(x, i, j)
    except (IndexError, RuntimeError) as error:
        return type(error).__name__
    if kind == "differentiated":
        result.sum().backward()
        return [result.detach(), x.grad]
    return [result.clone(), x.clone()]


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_any_index_of_numbers_that_change(kind, rank):
    draw = random.Random(f"{kind} {rank}")
    for _ in range(4):
        function = program(index(draw, rank), kind)
        compiled = tc.compile(function, backend="eager")
        for i, j in ((2, 3), (3, 2), (1, 3), (3, 3)):
            x = torch.randn([5] * rank)
            inputs = [x.clone().requires_grad_(kind == "differentiated") for _ in range(2)]
            want = outcome(function, inputs[0], i, j, kind)
            got = outcome(compiled, inputs[1], i, j, kind)
            assert type(want) is type(got), function.__code__.co_filename
            if isinstance(want, str):
                assert want == got
                continue
            for a, b in zip(want, got, strict=True):
                torch.testing.assert_close(a, b)
                assert a.stride() == b.stride()


@pytest.mark.sample(5)
@pytest.mark.parametrize("key", ["i", "-i", "i - 9", ":, i", "..., i", "i, None, i", "i, 1:3"])
@pytest.mark.parametrize("kind", ["read", "written"])
def test_an_index_is_compiled_twice_at_most(key, kind):
    tc.reset()
    compiled = tc.compile(program(key, kind), backend="eager")
    before = api.graph_stats()["graphs"]
    for i in range(2, 8):
        compiled(torch.randn(9, 9), i, 0)
    assert api.graph_stats()["graphs"] - before == 2
