"""Ordinary programs with faults drawn at random reach a minimum, verified by identity."""

from __future__ import annotations

import random

import hosts
import pytest

from tc.minifier.passes import rendering


@pytest.mark.parametrize("kind", hosts.KINDS)
def test_what_is_drawn_is_a_program_of_some_length(kind: str) -> None:
    for seed in range(8):
        host = hosts.drawn(random.Random(seed), kind)
        assert all(map(rendering.is_program, host.files.values()))
        assert 50 <= sum(text.count("\n") for text in host.files.values()) <= 150


@pytest.mark.slow
def test_a_program_without_a_compiler_reaches_its_minimum() -> None:
    seed = random.SystemRandom().randrange(10**6)
    host = hosts.drawn(random.Random(seed), "program")
    counts, why, _ = hosts.reduced_in_forks(host)
    assert counts, f"seed {seed}, {host.fault}: {why}"


@pytest.mark.slow
@pytest.mark.parametrize("kind", hosts.KINDS)
def test_a_program_drawn_at_random_reaches_its_minimum(kind: str) -> None:
    seed = random.SystemRandom().randrange(10**6)
    host = hosts.drawn(random.Random(seed), kind)
    counts, why, _ = hosts.judged(host)
    assert counts, f"seed {seed}, {host.fault}: {why}"
