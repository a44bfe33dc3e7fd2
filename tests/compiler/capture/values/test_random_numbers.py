"""Python's random numbers in compiled code: eager's numbers, and eager's state afterwards."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

import tc

KEPT = random.Random(7)


def uniform(x):
    return x * random.uniform(1, 3) + random.random()


def whole(x):
    return x * random.randint(1, 30) + random.randrange(1, 30, 2) + random.getrandbits(5)


def distributions(x):
    drawn = [random.gauss(0, 1), random.triangular(1, 3, 2), random.betavariate(1, 2)]
    return x + sum(drawn), drawn, random.expovariate(2.0), random.normalvariate(mu=1, sigma=2)


def of_a_size(x):
    return x + random.uniform(0, x.shape[0]), random.randint(0, x.shape[0])


def arithmetic(x):
    number = random.random()
    return x * (number * 2 + 1) / 3, number - 0.5


def in_a_loop(x):
    for _ in range(3):
        x = x * random.random()
    return x


def unused(x):
    random.random()
    return x + 1


def of_a_kept_generator(x):
    return x + KEPT.random() + KEPT.uniform(1, 2), KEPT.randint(0, 9)


def of_an_argument(x, rng=random):
    return x + rng.uniform(0, 1)


def refused(x):
    try:
        return x * random.randint(3, 1)
    except ValueError as error:
        return x, str(error)


def of_a_seed(x):
    made = random.Random(3)
    return x * made.random() + made.randint(1, 5), made.uniform(0, 1), made.gauss(0, 1)


def of_a_seed_with_values(x):
    made = random.Random(str(x.dtype))
    held = [x, x + 1, x + 2]
    made.shuffle(held)
    return made.choice(held), made.sample(held, 2), made.choices([1, 2, 3], k=2), held


def given_back(x):
    made = random.Random(5)
    number = made.random()
    return x + number, made


def seeded_again(x):
    made = random.Random(5)
    state = made.getstate()
    first = made.random()
    made.seed(6)
    second = made.random()
    made.setstate(state)
    return x, first, second, made.random() == first


WHOLE = [
    uniform, whole, distributions, of_a_size, arithmetic, in_a_loop, unused, of_a_kept_generator,
    of_an_argument, refused, of_a_seed, of_a_seed_with_values, given_back, seeded_again,
]  # fmt: skip


def branched(x):
    first = random.random()
    x = x + 1 if first < 0.5 else x - 1
    return x * random.random(), first


def with_a_choice(x):
    y = x * random.random()
    return y * random.choice([2, 3, 4]) + random.random()


def shuffled(x):
    held = [1, 2, 3]
    number = random.random()
    random.shuffle(held)
    return x * number, held, random.random()


def seeded(x):
    first = random.random()
    random.seed(first)
    return x * first, random.random(), random.getstate()[1][:3]


def made_before_a_break(x):
    made = random.Random(3)
    first = made.random()
    number = random.choice([1, 2])
    return x * first + number, made.random()


def raises(x):
    number = random.random()
    x = x + number
    if not (x > 100).all():
        raise AssertionError("small")
    return x


BROKEN = [branched, with_a_choice, shuffled, seeded, made_before_a_break, raises]


def _shown(found: Any) -> Any:
    if isinstance(found, torch.Tensor):
        return found.dtype, found.tolist()
    if isinstance(found, random.Random):
        return found.getstate()
    if isinstance(found, list | tuple):
        return type(found), [_shown(one) for one in found]
    return type(found), found


def _run(function: Any, seed: int) -> Any:
    random.seed(seed)
    KEPT.seed(seed)
    try:
        found = _shown(function(torch.arange(2.0 + seed % 2)))
    except AssertionError as error:
        found = str(error)
    return found, random.getstate(), KEPT.getstate()


@pytest.mark.parametrize("function", WHOLE)
@pytest.mark.parametrize("backend", ["eager", "tc"])
def test_numbers_are_in_one_graph(function, backend):
    compiled = tc.compile(function, fullgraph=True, backend=backend)
    for seed in (1, 1, 2, 3):
        got, expected = _run(compiled, seed), _run(function, seed)
        assert got[1:] == expected[1:]
        assert (
            str(got[0]) == str(expected[0]) if backend == "eager" else _close(got[0], expected[0])
        )


def _close(got: Any, expected: Any) -> bool:
    if type(got) is not type(expected):
        return False
    if isinstance(expected, list | tuple):
        return len(got) == len(expected) and all(map(_close, got, expected))
    if isinstance(expected, float):
        return got == pytest.approx(expected, rel=1e-5)
    return got == expected


@pytest.mark.parametrize("function", BROKEN)
def test_numbers_around_graph_breaks(function):
    compiled = tc.compile(function, backend="eager")
    for seed in (1, 1, 2, 3, 4):
        assert _run(compiled, seed) == _run(function, seed)


def test_another_generator_is_drawn_from():
    def drawn(x, rng):
        return x + rng.random()

    compiled = tc.compile(drawn, fullgraph=True, backend="eager")
    for seed in (1, 2):
        rng, same = random.Random(seed), random.Random(seed)
        assert compiled(torch.zeros(2), rng).equal(drawn(torch.zeros(2), same))
        assert rng.getstate() == same.getstate()

    class Half(random.Random):
        def random(self):
            return 0.5

    found = tc.compile(drawn, backend="eager")(torch.zeros(2), Half())
    assert found.equal(torch.full((2,), 0.5))


def test_a_replaced_function_is_called(monkeypatch):
    compiled = tc.compile(uniform, backend="eager")
    _run(compiled, 1)
    monkeypatch.setattr(random, "uniform", lambda a, b: 100.0)
    assert _run(compiled, 2) == _run(uniform, 2)
    monkeypatch.setattr(random, "uniform", random.Random(9).uniform)
    random.seed(1)
    got = compiled(torch.ones(2))
    monkeypatch.setattr(random, "uniform", random.Random(9).uniform)
    random.seed(1)
    assert got.equal(uniform(torch.ones(2)))


def test_gradients_and_modes():
    def scaled(x):
        return (x * random.uniform(1, 2)).sin().sum() * random.randint(1, 3)

    compiled = tc.compile(scaled, fullgraph=True)
    for seed in (1, 2):
        grads = []
        for function in (compiled, scaled):
            x = torch.arange(3.0, requires_grad=True)
            random.seed(seed)
            function(x).backward()
            grads.append(x.grad)
        torch.testing.assert_close(*grads)
    with torch.device("meta"):
        assert compiled(torch.ones(2, device="cpu")).device.type == "cpu"
