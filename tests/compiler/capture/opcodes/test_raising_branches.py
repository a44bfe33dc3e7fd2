"""Branches on data that only raise are no graph breaks, and the program's own error is raised."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
import torch
import torch.distributions as D
import torch.nn.functional as F

import tc
from tc.compiler import api

SEEN: list[object] = []
PROGRAM = """
def program(x, state):
    {before}
    y = x * 2
    {block}
        {check}
        SEEN.append("passed")
        z = y + 1
    {after}
    return z, y.sum()
"""
CHECKS = (
    "assert (x < 50).all()",
    "assert not (y > 50).any(), f'{{x.max():.1f}} of {{tuple(x.shape)}}'",
    "assert x.sum(), 'zero'",
    "assert y.abs().sum(dim=1, keepdim=True).max().reshape(1, 1)",
    "if x.isnan().any() or (x > 50).any(): raise ValueError([v.item() for v in x.flatten()[:2]])",
    "if x.shape[0] > 1 and x.max() > 50: raise KeyError(x.shape) from TypeError('why')",
    "if (x > 50).any():\n            state.append([i for i in x.shape])\n            raise OSError",
    "inner(x)",
    "[inner(part) for part in x.split(1)]",
)
BLOCKS = {
    "if True:": "",
    "with torch.no_grad():": "",
    "for _ in range(2):": "",
    "try:": "finally:\n        SEEN.append('finally')",
}
BEFORE = ("pass", "state.append(1)", "SEEN.append(x.shape)", "global COUNT; COUNT += 1")
INPUTS = (
    lambda: torch.linspace(1, 3, 6).reshape(2, 3),
    lambda: torch.linspace(1, 99, 6).reshape(2, 3),
    lambda: torch.zeros(2, 3),
    lambda: torch.full((2, 3), torch.nan),
    lambda: torch.linspace(1, 3, 8).reshape(2, 4).requires_grad_(),
    lambda: torch.linspace(1, 99, 8).reshape(2, 4).requires_grad_(),
)
COUNT = 0


def inner(x):
    if (x > 50).any():
        SEEN.append("too large")
        raise ValueError("too large")


def outcome(function, x, space):
    SEEN.clear()
    space["COUNT"], state = 0, []
    try:
        result = function(x, state)
    except Exception as error:
        shown = [type(error), str(error), type(error.__cause__), type(error.__context__)]
    else:
        shown = [one.tolist() for one in result]
        if result[0].requires_grad:
            result[0].sum().backward()
    return shown, list(SEEN), state, space["COUNT"], x.grad is not None and x.grad.tolist()


@pytest.mark.sample(4)
@pytest.mark.parametrize("backend", ["inductor", "eager"])
@pytest.mark.parametrize("check", CHECKS)
def test_one_graph_and_eagers_error(check, backend):
    rng = random.Random()
    block, before = rng.choice(list(BLOCKS)), rng.choice(BEFORE)
    space = globals().copy()
    text = PROGRAM.format(before=before, block=block, check=check.format(), after=BLOCKS[block])
    exec(text, space)
    program = space["program"]
    compiled = tc.compile(program, backend=backend, fullgraph=True)
    for make in INPUTS:
        assert repr(outcome(compiled, make(), space)) == repr(outcome(program, make(), space)), text


def handled(x):
    try:
        if (x > 50).any():
            raise ValueError("too large")
        return x + 1
    except ValueError:
        return x - 1


def handled_outside(x):
    with suppress(ValueError):
        inner(x)
        return x + 1
    return x - 1


def written(x):
    if (x > 50).any():
        raise ValueError("too large")
    x.add_(1)
    return x * 2


def written_before(x):
    x.add_(1)
    inner(x)
    return x * 2


def drawn(x):
    inner(x)
    return x + torch.rand(3)


def suspended(x):
    inner(x)
    yield x * 2


def of_many(x):
    if x > 50:
        raise ValueError("too large")
    return x


def either(x):
    if (x > 50).any():
        raise ValueError("too large")
    raise KeyError("small")


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "function", [handled, handled_outside, written, written_before, drawn, of_many, either]
)
def test_where_python_cannot_run_again_the_graph_breaks(function):
    compiled = tc.compile(function)
    api.counters["graph_break"].clear()
    for top in (3.0, 99.0, 4.0):
        results = []
        for call in (function, compiled):
            torch.manual_seed(0)
            x = torch.linspace(1, top, 3)
            try:
                results.append((call(x).tolist(), x.tolist()))
            except Exception as error:
                results.append((type(error), str(error), x.tolist()))
        assert results[0] == results[1]
    assert api.counters["graph_break"]


def test_a_generator_breaks_the_graph():
    compiled = tc.compile(suspended)
    assert torch.equal(next(compiled(torch.ones(3))), torch.full((3,), 2.0))
    with pytest.raises(ValueError, match="too large"):
        next(compiled(torch.full((3,), 99.0)))


def test_each_break_is_counted_once():
    norm, counted = torch.nn.BatchNorm1d(3), api.counters["graph_break"]
    counted.clear()

    def step(x):
        inner(x)
        y = norm(x)
        tc.graph_break()
        return y + 1

    tc.compile(step)(torch.randn(4, 3))
    assert sum(counted.values()) == 2
    tc.reset()
    counted.clear()
    norm.eval()  # it writes nothing now
    tc.compile(step)(torch.randn(4, 3))
    assert sum(counted.values()) == 1


def test_a_sum_that_python_rounds_otherwise_takes_pythons_side():
    x = torch.full((1000,), 0.1)

    def check(x):
        total = x.sum() - torch.compiler.is_compiling() * 1000  # as if rounded otherwise
        if total < 0:
            raise ValueError("negative")
        return total

    assert torch.equal(tc.compile(check, fullgraph=True)(x), x.sum())


DISTRIBUTIONS = {
    "normal": lambda x: D.Normal(x, x).log_prob(x),
    "sample out of support": lambda x: D.Gamma(x.abs(), x.abs()).log_prob(x),
    "bernoulli": lambda x: D.Bernoulli(probs=x).entropy(),
    "categorical": lambda x: D.Categorical(probs=x).log_prob(torch.tensor(1)),
    "logits": lambda x: D.Categorical(logits=x).log_prob(torch.tensor(1)),
    "divergence": lambda x: D.kl_divergence(D.Normal(0.0, x), D.Normal(x, 1.0)),
    "matrix": lambda x: D.MultivariateNormal(x, torch.eye(3) * x.sum()).log_prob(x),
    "gaussian loss": lambda x: F.gaussian_nll_loss(x, x + 1, x),
    "asked for": lambda x: D.Normal(x, x, validate_args=True).mean,
    "not asked for": lambda x: D.Normal(x, x, validate_args=False).log_prob(x),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_arguments_of_distributions_are_checked(name, monkeypatch):
    monkeypatch.setattr(D.Distribution, "_validate_args", True)  # torch.compile sets it off
    function = DISTRIBUTIONS[name]
    compiled = tc.compile(function, fullgraph=True)
    for x in (torch.tensor([0.1, 0.7, 0.4]), torch.tensor([-0.1, 0.7, 0.4])):
        try:
            wanted = function(x)
        except ValueError as error:
            with pytest.raises(ValueError) as raised:
                compiled(x)
            assert str(raised.value) == str(error)
        else:
            torch.testing.assert_close(compiled(x), wanted, equal_nan=True)


def test_the_check_of_a_distribution_that_is_drawn_from_is_omitted():
    def step(mean, scale):
        drawn = D.Normal(mean, scale)
        return drawn.log_prob(drawn.rsample())

    assert tc.compile(step, fullgraph=True)(torch.zeros(3), torch.ones(3)).shape == (3,)


def test_another_break_leaves_the_check_of_a_distribution(monkeypatch):
    monkeypatch.setattr(D.Distribution, "_validate_args", True)  # torch.compile sets it off

    def step(x):
        scale = D.Normal(x, x).scale
        try:
            if x.sum() > 50:
                raise KeyError
        except KeyError:
            scale = scale * 2
        return scale

    compiled = tc.compile(step)
    assert torch.equal(compiled(torch.ones(3)), torch.ones(3))
    assert torch.equal(compiled(torch.full((3,), 50.0)), torch.full((3,), 100.0))
    with pytest.raises(ValueError, match="Expected parameter scale"):
        compiled(-torch.ones(3))
