"""Rows that are joined, chosen or moved, and then reduced, drawn at random, beside float64.

Such loops copy one value, read another under a condition, and keep a third for later. Freed memory
is full of NaN, so that what no store has written shows.
"""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F

import tc

ROWS = (
    "torch.cat((a, b), -1)",
    "torch.cat((b, a), -1)",
    "torch.cat((a, c, a), -1)",
    "torch.where(q, b, c)",
    "torch.where(q, c, w)",
    "b.masked_fill(q, 0.5)",
    "F.pad(c, (3, 1))",
    "F.pad(b, (0, 5), value=-1.0)",
    "c.roll(2, 1)",
)
RESULTS = (
    "{}.softmax(-1)",
    "{}.log_softmax(-1)",
    "{}.logsumexp(-1)",
    "{}.max(-1)[0]",
    "{0}.amax(-1, keepdim=True) - {0}",
    "{}.amin(-1)",
    "{}.argmax(-1)",
    "{}.sum(-1)",
    "{}.var(-1)",
    "{0}.cumsum(-1)",
    "F.layer_norm({0}, {0}.shape[-1:])",
    "{}.clone()",
    "{}.exp()",
)


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", range(60))
def test_rows_that_are_chosen_agree_with_eager(seed: int) -> None:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    rows, length = draw.choice((1, 3, 16, 128)), draw.choice((8, 17, 31, 64, 100, 256, 260, 300))
    lines = [f"x{n} = {text}" for n, text in enumerate(draw.sample(ROWS, 3))]
    results = [draw.choice(RESULTS).format(f"x{draw.randrange(3)}") for _ in range(4)]
    body = "\n    ".join([*lines, f"return {', '.join(results)}"])
    names: dict[str, object] = {"torch": torch, "F": F}
    exec(f"def program(a, b, c, q, w):\n    {body}", names)
    program = names["program"]
    assert callable(program)
    a, w = torch.randn(rows, draw.choice((1, 2, 3, 4, 8, 16))), torch.randn(length)
    b, c = torch.randn(2, rows, length)
    given = (a, b, c, torch.rand(rows, length) < 0.5, w)
    exact = program(*(one.double() if one.is_floating_point() else one for one in given))
    threads = torch.get_num_threads()
    torch.set_num_threads(draw.choice((1, threads)))
    try:
        compiled = tc.compile(program, dynamic=draw.choice((False, True)))
        freed = [torch.full((size,), torch.nan) for size in (64, 300, 2000, 9000, 40000) * 6]
        del freed
        found = compiled(*given)
    finally:
        torch.set_num_threads(threads)
    for one, wanted in zip(found, exact, strict=True):
        torch.testing.assert_close(one, wanted.to(one.dtype), rtol=1e-4, atol=1e-4, msg=body)
