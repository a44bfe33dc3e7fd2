"""Writes between forward and backward to what eager saved: an error, whoever looks at the value.

Random programs, each compiled and run eagerly with the same writes.
"""

from __future__ import annotations

import random

import pytest
import torch

import tc

ONE = {
    "exp": torch.exp, "sin": torch.sin, "relu": torch.relu, "sigmoid": torch.sigmoid,
    "double": lambda t: t * 2, "square": lambda t: t * t, "tanh": torch.tanh,
    "sum": lambda t: t + t.sum(), "softmax": lambda t: t.softmax(-1),
    "root": lambda t: (t * t + 1).sqrt(), "clone": lambda t: t.clone(),
    "detach": lambda t: t.detach(), "view": lambda t: t.view(-1).view(2, 3),
    "cat": lambda t: torch.cat([t[:1], t[1:]]), "turn": lambda t: t.t().contiguous().t(),
}  # fmt: skip
TWO = {
    "add": torch.add, "mul": torch.mul, "sub": torch.sub, "div": lambda a, b: a / (b * b + 1),
    "mm": lambda a, b: a @ b.t() @ b, "max": torch.maximum,
    "where": lambda a, b: torch.where(a > 0, b, a),
}  # fmt: skip
RETURNED = {
    "value": lambda t: t,
    "row": lambda t: t[0],
    "flat": lambda t: t.view(-1) if t.is_contiguous() else t,
}
WRITES = {
    "add": lambda t: t.add_(1),
    "zero": lambda t: t.zero_(),
    "copy": lambda t: t.copy_(torch.ones_like(t)),
}
SEEN_AS = {
    "itself": lambda t: t,
    "row": lambda t: t[0],
    "detached": lambda t: t.detach(),
    "data": lambda t: t.data,  # not noticed
}


def program(rng):
    """Return a function of three matrices that returns a few values of its own."""
    steps, count = [], 3
    for _ in range(rng.randint(1, 5)):
        one = rng.random() < 0.5
        op = rng.choice(list(ONE if one else TWO))
        steps.append((op, *(rng.randrange(count) for _ in range(1 if one else 2))))
        count += 1
    picked = rng.sample(range(3, count), min(rng.randint(1, 3), count - 3))
    returned = [("value", i) for i in picked]
    if rng.random() < 0.4:
        returned.append((rng.choice(["row", "flat"]), rng.randrange(count)))

    def function(x, y, z):
        values = [x, y, z]
        for op, *operands in steps:
            function = ONE.get(op) or TWO[op]
            values.append(function(*(values[i] for i in operands)))
        return tuple(RETURNED[kind](values[i]) for kind, i in returned)

    return function, f"{steps} {returned}"


def run(function, rng):
    """Run it, write to something, and go backward: how it ended, and the gradients."""
    torch.manual_seed(0)
    wanting = (True, rng.random() < 0.7, rng.random() < 0.5)
    leaves = [torch.randn(2, 3, dtype=torch.float64).requires_grad_(wants) for wants in wanting]
    inputs = [t * 1 if rng.random() < 0.5 and t.requires_grad else t for t in leaves]
    try:
        outputs = function(*inputs)
    except RuntimeError:  # a view of what it cannot be a view of
        return "cannot be run", []
    target = rng.choice([*inputs, *outputs])
    seen_as, write = rng.choice(list(SEEN_AS)), rng.choice(list(WRITES))
    writes, all_of_them, under_grad = rng.random() < 0.8, rng.random() < 0.7, rng.random() < 0.3
    try:
        with torch.set_grad_enabled(under_grad):
            if writes:
                WRITES[write](SEEN_AS[seen_as](target))
    except RuntimeError:
        return "cannot be written to", []
    used = [t for t in outputs if t.requires_grad]
    used = used if all_of_them else used[:1]
    if not used:
        return "no gradients", []
    try:
        gradients = torch.autograd.grad(
            sum(t.sum() for t in used), [t for t in leaves if t.requires_grad], allow_unused=True
        )
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error), error
        return "modified", []
    partly = "" if all_of_them else " of some outputs"
    unnoticed = " after an unseen write" if writes and seen_as == "data" else ""
    return f"gradients{partly}{unnoticed}", gradients


def check(seed, worlds=12):
    function, text = program(random.Random(seed))
    compiled = tc.compile(function, backend="aot_eager")
    for world in range(worlds):
        want, theirs = run(function, random.Random(seed * 100 + world))
        got, actual = run(compiled, random.Random(seed * 100 + world))
        # A compiled backward checks all that it was given: what other outputs need, too, and
        # inputs that it computes from where eager saved a result.
        if got == "modified" and want.startswith("gradients"):
            continue
        assert got == want, (seed, world, text)
        if "unseen" in want:  # what is found there depends on what was kept
            continue
        for one, other in zip(actual, theirs, strict=True):
            zero = torch.zeros(2, 3, dtype=torch.float64)
            torch.testing.assert_close(
                zero if one is None else one, zero if other is None else other
            )


@pytest.mark.sample(5)
@pytest.mark.parametrize("seed", range(30))
def test_what_raises_in_eager_raises(seed):
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 3000, 200))
def test_what_raises_in_eager_raises_at_length(start):
    for seed in range(start, start + 200):
        tc.reset()
        check(seed)


def test_an_output_that_eagers_backward_needs():
    x = torch.randn(4, requires_grad=True)

    def f(x):
        y = x.exp()
        return y, (y * y).sum()

    y, loss = tc.compile(f)(x)
    with torch.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_what_is_watched_is_not_kept():
    x = torch.randn(4, requires_grad=True)
    compiled = tc.compile(lambda a: a.amax(0))  # eager saves the input, compiled code a mask
    inner = x * 1
    size = inner.untyped_storage().nbytes()
    loss = compiled(inner)
    counters = [counter for counter, _ in loss.grad_fn.watched]
    assert counters and all(c.untyped_storage().nbytes() < size for c in counters)
    with torch.no_grad():
        inner[0] = 3
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_where_nothing_is_watched_nothing_is_done():
    x = torch.randn(4, requires_grad=True)
    y = tc.compile(lambda x: x.sin())(x)
    assert not hasattr(y.grad_fn, "watched")


def _saves_its_result(x):
    made = x.exp()
    return made, [made]


def _saves_its_input(x):
    held = x * 1
    return held.sum() * held, [held, torch.ones(2)]


def _saves_its_base(x):
    held = x * 1
    return held.sin(), [held[1:]]


def _saves_nothing(x):
    made = x * 2
    return made, [made]


LIST_WRITES = {
    "add": lambda tensors: torch._foreach_add_(tensors, 1.0),
    "mul by name": lambda tensors: torch._foreach_mul_(self=tensors, scalar=2.0),
    "overload": lambda tensors: torch.ops.aten._foreach_mul_.Scalar(tensors, 2.0),
    "lerp": lambda tensors: torch._foreach_lerp_(
        tensors, [torch.ones_like(one) for one in tensors], 0.25
    ),
    "zero": lambda tensors: torch._foreach_zero_(tensors),
    "exp": lambda tensors: torch._foreach_exp_(tensors),
    "not written": lambda tensors: torch._foreach_add_([torch.ones_like(tensors[0])], tensors[:1]),
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("write", LIST_WRITES.values(), ids=list(LIST_WRITES))
@pytest.mark.parametrize(
    "save", (_saves_its_result, _saves_its_input, _saves_its_base, _saves_nothing)
)
def test_write_to_lists_in_a_graph_is_refused_where_eager_refuses_it(save, write):
    def program(x):
        made, written = save(x)
        write(written)
        return made

    def outcome(function, n):
        x = torch.arange(float(n)).requires_grad_()
        try:
            made = function(x)
            made.sum().backward()
        except RuntimeError as error:
            return str(error)[:50]
        return [value.detach().round(decimals=4).tolist() for value in (made, x.grad)]

    compiled = tc.compile(program)
    for n in (3, 3, 4):
        assert outcome(compiled, n) == outcome(program, n)


@torch.inference_mode()
def test_write_to_lists_of_inference_tensors():
    x = torch.ones(3)
    tc.compile(lambda x: torch._foreach_add_([x], 1.0))(x)
    assert x.tolist() == [2.0, 2.0, 2.0]
