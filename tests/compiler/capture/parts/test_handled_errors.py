"""Errors that kernels find in the values of tensors reach the `except` clause around the call."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tc
from tc.trace.emit import capture_events
from tc.trace.events import GraphBreak

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


@pytest.mark.sample(3)
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


def looked_up(i, table):
    SEEN.append("before")
    try:
        rows = F.embedding(i, table)
    except IndexError as error:
        raise IndexError("words are numbers from 0 to 2") from error
    return rows * 2


def raised_again(i, table):
    SEEN.append("before")
    try:
        with contextlib.nullcontext():
            found = table.gather(0, i[:, None]).sum() / (i // (i + 1)).sum()
    except (RuntimeError, IndexError):
        SEEN.append("clause")
        raise
    finally:
        SEEN.append("finally")
    return found


def in_a_call(i, table):
    def row():
        return table[i]

    try:
        found = row().exp()
    except Exception as error:
        if isinstance(error, IndexError):
            raise IndexError("no such row") from None
        raise
    return found.sum(0)


SELDOM = (looked_up, raised_again, in_a_call)


def _outcome(function, *given):
    SEEN.clear()
    try:
        return function(*given), [*SEEN], None
    except (IndexError, RuntimeError) as error:
        return None, [*SEEN], (str(error), type(error.__cause__))


@pytest.mark.sample(3)
@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("function", SELDOM)
def test_mistakes_of_indices_break_nothing_and_are_handled(function, trains):
    """The graph holds the call; where it raises, Python runs the frame from its start."""
    table = torch.rand(3, 2, requires_grad=trains)
    compiled = tc.compile(function)
    with capture_events() as events:
        for numbers in ([0, 2], [7, 1], [1, 1], [2, 5], [0, 1]):
            i = torch.tensor(numbers)
            found, expected = _outcome(compiled, i, table), _outcome(function, i, table)
            assert found[1:] == expected[1:]
            torch.testing.assert_close(found[0], expected[0])
            if trains and expected[0] is not None:
                given, wanted = (
                    torch.autograd.grad(one[0].sum(), table) for one in (found, expected)
                )
                torch.testing.assert_close(given, wanted)
    assert not any(isinstance(one, GraphBreak) for one in events)


def left_unused(i, table):
    try:
        F.embedding(i, table)
        torch.gather(table, 0, i[:, None])
    except (RuntimeError, IndexError):
        return table + 1
    return table * 2


def scattered(i, table):
    total = torch.zeros(3)
    try:
        total = total.scatter(0, i, 1.0)
        total = total / (i // i).sum()
    except RuntimeError:
        SEEN.append("handled")
        total = total - 1
    finally:
        SEEN.append("finally")
    return table.sum() * total


def taken_back(i, table):
    while True:
        try:
            return table[i] + 1
        except IndexError:
            i = i - 1


def dropped(i, table):
    x = F.dropout(table, 0.5)
    try:
        return x[i] + 1
    except IndexError:
        raise IndexError("no such row") from None


@pytest.mark.parametrize("function", [left_unused, scattered, taken_back, dropped])
def test_elsewhere_the_graph_breaks(function):
    """A clause gives another result, or Python would draw other numbers in the second run."""
    compiled, table = tc.compile(function), torch.rand(3, 2)
    for numbers in ([0, 2], [3, 1], [1, 1]):
        i = torch.tensor(numbers)
        torch.manual_seed(0)
        expected = _outcome(function, i, table)
        torch.manual_seed(0)
        found = _outcome(compiled, i, table)
        torch.testing.assert_close(found[0], expected[0])
        assert found[1:] == expected[1:]


DIVISIONS = [
    "n // 3",
    "n % 3",
    "30 // n",
    "30 % n",
    "divmod(n, 3)[1]",
    "n.__floordiv__(2)",
    "x.long() // 3",
    "x.long() % 3",
    "torch.div(x.long(), 3, rounding_mode='floor')",
    "x.long().remainder(2)",
    "x // n",
]


def _tries(text, errors):
    """Return a function that adds an expression of a size to its argument, unless that raises."""
    space = {"torch": torch}
    exec(
        "def f(x):\n"
        "    n = x.shape[0]\n"
        "    try:\n"
        f"        return x + {text}\n"
        f"    except {errors}:\n"
        "        return x\n",
        space,
    )
    return space["f"]


@pytest.mark.sample(4)
@pytest.mark.parametrize("text", DIVISIONS)
def test_divisions_by_what_is_not_zero_break_nothing(text):
    f = _tries(text, "Exception")
    compiled = tc.compile(f, backend="eager")
    with capture_events() as events:
        for n in (4, 5, 6):
            x = torch.arange(3.0 * n).view(n, 3)
            assert compiled(x).equal(f(x))
    assert not events.of(GraphBreak)


@pytest.mark.parametrize(
    "text", ["n // (n - 5)", "n % (n - 5)", "n / (n - 5)", "x.long() // (n - 5)"]
)
def test_a_size_that_becomes_zero_is_divided_by_as_in_eager(text):
    f = _tries(text, "(ZeroDivisionError, RuntimeError)")
    compiled = tc.compile(f, backend="eager")
    for n in (4, 6, 7, 5, 8):
        x = torch.arange(3.0 * n).view(n, 3)
        assert compiled(x).equal(f(x))


def test_a_mask_with_more_elements_than_there_are_is_handled():
    def program(x):
        try:
            return torch.zeros(2, 2).masked_scatter(x > 0, torch.ones(2)) + x
        except RuntimeError:
            return x + 5

    compiled = tc.compile(program, backend="eager")
    for x in (torch.eye(2), torch.ones(2, 2), torch.eye(2)):
        assert compiled(x).equal(program(x))


@pytest.mark.parametrize("shape", [(4, 4), (3, 0)])
@pytest.mark.parametrize("index", ["x[:, [0, 1]]", "x[[0, 9]]", "x[..., [7]]"])
def test_lists_of_indices_are_handled_as_tensors_of_them(index, shape):
    names = {}
    exec(
        f"def function(x):\n  try:\n    return {index}\n  except IndexError:\n    return x + 1\n",
        names,
    )
    x = torch.ones(shape, device="cpu")
    found = tc.compile(names["function"], backend="eager")(x)
    assert torch.equal(found, names["function"](x))
