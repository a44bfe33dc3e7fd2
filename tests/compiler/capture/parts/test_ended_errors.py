"""Programs drawn at random in which blocks around a call may end its error, one in another."""

from __future__ import annotations

import contextlib
import os
import random
import textwrap
import unittest
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: F401 -- programs name it

import tc

#: what is called: kernels refuse some values of ``x``
CALLS = (
    "F.binary_cross_entropy(x, x.detach())",
    "x[(x * 2).long()].sum()",
    "F.embedding(x.long(), x[:, None]).sum()",
    "torch.linalg.cholesky(x[:, None] * x[None] - 1).sum()",
)
#: a block around others: ``{body}`` is indented as it stands, ``{n}`` is another number in each
BLOCKS = (
    "try:\n    {body}\nexcept RuntimeError:\n    y = y + 1",
    "try:\n    {body}\nexcept (KeyError, IndexError) as error:\n    y = y + 2",
    "try:\n    {body}\nexcept:\n    y = y + 3",
    "try:\n    {body}\nexcept Exception as error:\n    raise ValueError('renamed') from error",
    "try:\n    {body}\nfinally:\n    y = y * 2",
    "try:\n    {body}\nfinally:\n    if y.dim() == 1: return y + 5",
    "for i{n} in range(2):\n    try:\n        {body}\n    finally:\n        break",
    "for i{n} in range(2):\n    try:\n        {body}\n    finally:\n        if i{n} < 1: continue",
    "with contextlib.suppress(RuntimeError, IndexError):\n    {body}",
    "with ending(log):\n    {body}",
    "with renaming():\n    {body}",
    "with cleaning(log):\n    {body}",
    "with Ends():\n    {body}",
    "with Leaves():\n    {body}",
    "with contextlib.ExitStack() as s{n}:\n    s{n}.enter_context(ending(log))\n    {body}",
    "with contextlib.ExitStack() as s{n}:\n    s{n}.enter_context(torch.no_grad())\n"
    "    s{n}.callback(log.append, 4)\n    {body}",
    "with contextlib.ExitStack() as s{n}:\n    s{n}.push(lambda *error: True)\n    {body}",
    "with CASE.assertRaises(Exception):\n    {body}",
    "with pytest.raises(Exception):\n    {body}",
    "with torch.no_grad():\n    {body}",
    "def inner{n}(y):\n    {body}\n    return y\n"
    "try:\n    y = inner{n}(y)\nexcept RuntimeError:\n    y = y - 1",
    "def made{n}(y):\n    try:\n        {body}\n    except IndexError:\n        y = y - 2\n"
    "    yield y\ny = next(made{n}(y), y - 3)",
    "@ending(log)\ndef inner{n}(y):\n    {body}\n    return y\n"
    "y = y if inner{n}(y) is None else y + 6",
)
CASE = unittest.TestCase()


@contextlib.contextmanager
def ending(log: list[int]) -> Iterator[None]:
    try:
        yield
    except Exception:
        log.append(1)


@contextlib.contextmanager
def renaming() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise KeyError("renamed") from error


@contextlib.contextmanager
def cleaning(log: list[int]) -> Iterator[None]:
    try:
        yield
    finally:
        log.append(2)


class Ends:
    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, *error: object) -> bool:
        return kind is not None


class Leaves(Ends):
    def __exit__(self, kind: Any, *error: object) -> bool:
        return False


def drawn_program(dice: random.Random) -> str:
    """Return a function of ``x`` and ``log``: a call in one to three blocks."""
    text = f"y = y + {dice.choice(CALLS)}"
    for number in range(dice.randint(1, 3)):
        before, body, after = dice.choice(BLOCKS).partition("{body}")
        indent = before.rpartition("\n")[2]
        block = before + textwrap.indent(text, indent).removeprefix(indent) + body + after
        text = block.replace("{body}", "").replace("{n}", str(number))
    return f"def program(x, log):\n  y = x\n{textwrap.indent(text, '  ')}\n  return y + len(log)\n"


def outcome(function: Any, x: torch.Tensor) -> tuple[Any, list[int]]:
    """Return what a call gives, or the type of what it raises, and the log."""
    log: list[int] = []
    try:
        return function(x, log), log
    except (Exception, pytest.fail.Exception) as error:
        return type(error), log


def test_errors_end_where_they_do_in_eager():
    dice = random.Random(f"{__name__} {os.environ['TC_TEST_SEED']}")
    for _ in range(8):
        text = drawn_program(dice)
        names = {**globals()}
        exec(text, names)
        tc.reset()
        compiled = tc.compile(names["program"], backend="eager")
        inputs = [torch.tensor(two, device="cpu") for two in ([0.5, 0.2], [3.0, 4.0], [0.4, 0.1])]
        for x in dice.sample(inputs, 3):
            expected, seen = outcome(names["program"], x)
            found, noted = outcome(compiled, x)
            if isinstance(expected, torch.Tensor) and isinstance(found, torch.Tensor):
                assert torch.allclose(found, expected, equal_nan=True), (text, x)
            else:
                assert found == expected, (text, x)
            assert noted == seen, (text, x)
