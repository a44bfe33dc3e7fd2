"""Errors that kernels find in the values of tensors reach the `except` clause around the call."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tc

SEEN: list[str] = []


def jittered(a):
    for jitter in (0.0, 1.0, 5.0):
        try:
            factor = torch.linalg.cholesky(a + jitter * torch.eye(2))
            break
        except torch.linalg.LinAlgError:
            SEEN.append("jitter")
            continue
    return factor * 2


def second_clause(a):
    try:
        found = torch.linalg.inv(a)
    except KeyError:
        found = a
    except (ValueError, RuntimeError) as error:
        SEEN.append(type(error).__name__)
        found = a - 1
    return found * 2


def bare(i):
    try:
        found = torch.ones(3, 2)[i] * 2
    except:  # noqa: E722 - this one too
        found = torch.zeros(1)
    return found + 1


def inverse(a):
    return torch.linalg.inv(a) + 1


def from_a_call(a):
    try:
        found = inverse(a)
    except Exception:
        found = a * 7
    finally:
        SEEN.append("finally")
    return found + a


def suppressed(i):
    found = i
    with contextlib.suppress(RuntimeError):
        found = 5 // i
    return found + 1


class Noting:
    def __enter__(self) -> None:
        SEEN.append("enter")

    def __exit__(self, kind: Any, *error: object) -> bool:
        SEEN.append(kind.__name__ if kind else "none")
        return True


def in_context(a):
    found = a
    with Noting():
        found = torch.linalg.cholesky(a)
    return found + 1


def drawn(a):
    try:
        return torch.multinomial(a, 1)
    except RuntimeError:
        return a + 1


def unused(i):
    try:
        F.one_hot(i, 2)
        F.embedding(i, torch.ones(3, 2))
    except (RuntimeError, IndexError):
        return i + 1
    return i


def of_integers(x):
    found = x
    either, both = lambda: 2 | x, lambda: x & x
    shifted, divisor = lambda: 2 << x, lambda: torch.gcd(x, x)
    for call in (either, both, shifted, divisor, lambda: torch.bitwise_not(x)):
        try:
            found = found + call()
        except NotImplementedError:
            found = found + 7
    return found


CASES = [
    (of_integers, torch.ones(3), torch.tensor([4, 6])),
    (jittered, -torch.eye(2), torch.eye(2)), (second_clause, torch.zeros(2, 2), torch.eye(2)),
    (bare, torch.tensor([9]), torch.tensor([1])), (from_a_call, torch.zeros(2, 2), torch.eye(2)),
    (suppressed, torch.tensor([0]), torch.tensor([2])), (in_context, -torch.eye(2), torch.eye(2)),
    (drawn, torch.zeros(3), torch.tensor([0.0, 1.0])),
    (unused, torch.tensor([7]), torch.tensor([1])),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].__name__)
def test_the_program_handles_what_a_kernel_refuses(case):
    function, *inputs = case
    compiled = tc.compile(function)
    for given in (*inputs, *inputs):
        SEEN.clear()
        expected, seen = function(given), [*SEEN]
        SEEN.clear()
        torch.testing.assert_close(compiled(given), expected)
        assert seen == SEEN


def unrelated(x, table, i):
    try:
        scale = table["scale"]
        rows = x[i] * scale
    except KeyError:
        rows = x
    with torch.no_grad():
        other = torch.linalg.inv(x)
    return rows.sum() + other.sum()


def test_other_clauses_and_contexts_break_nothing():
    x, i = torch.eye(3) * 2, torch.tensor([0, 2])
    found = tc.compile(unrelated, fullgraph=True)(x, {"scale": 2.0}, i)
    torch.testing.assert_close(found, unrelated(x, {"scale": 2.0}, i))
