"""Random worlds: whatever changes between two calls, compiled code does what eager code does."""

from __future__ import annotations

import random

import pytest
import world_parts
import worlds
from facts import KNOWN_STALE

import tc

FACTS = world_parts.facts(KNOWN_STALE)


def compile_eagerly(program):
    return tc.compile(program, backend="eager")


def differences(seeds, compile=compile_eagerly):
    for seed in seeds:
        plan = worlds.draw(random.Random(seed), FACTS)
        if (found := worlds.compare(plan, compile, tc.reset)) is not None:
            yield seed, found


def assert_none(seeds, compile=compile_eagerly):
    for seed, found in differences(seeds, compile):
        small = worlds.minimise(found, compile, tc.reset, tries=60)
        pytest.fail(f"world {seed}\n{small}", pytrace=False)


def test_worlds():
    start = random.SystemRandom().randrange(10**6)
    assert_none(range(start, start + 10))


@pytest.mark.slow
def test_many_worlds():
    assert_none([*range(200), *range(1000, 3000)])


@pytest.mark.slow
def test_many_worlds_with_kernels():
    assert_none(range(3000, 3200), tc.compile)


def test_a_compiler_that_never_looks_again_is_found_and_the_program_made_small():
    def frozen(program):
        seen = []

        def call(*args):
            seen[1:] = []
            if not seen:
                seen.append(program(*args))
            return seen[0]

        return call

    found = [
        found for seed in range(12)
        if (found := worlds.compare(worlds.draw(random.Random(seed), FACTS), frozen, lambda: None))
    ]  # fmt: skip
    assert len(found) > 6
    small = worlds.minimise(found[0], frozen, lambda: None)
    assert len(small.plan.parts) == 1
    assert len(small.plan.steps) <= len(found[0].plan.steps)
    assert "# -- differs at step" in str(small)
