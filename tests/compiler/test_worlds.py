"""Random worlds: whatever changes between two calls, compiled code does what eager code does."""

from __future__ import annotations

import random

import pytest
import world_parts
import worlds

import tc

#: worlds, by their seeds, in which compiled code misses a change today
KNOWN_STALE: frozenset[int] = frozenset((
    3, 11, 16, 22, 25, 31, 36, 48, 60, 71, 74, 76, 77, 81, 82, 103,
    109, 116, 119, 123, 130, 132, 138, 145, 176, 179, 190, 192, 193, 198,
))  # fmt: skip
WORLDS = 200
CHUNK = 50
FACTS = world_parts.facts(frozenset())


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


@pytest.mark.parametrize("start", range(0, WORLDS, CHUNK))
def test_worlds(start):
    assert_none(sorted(set(range(start, start + CHUNK)) - KNOWN_STALE))


@pytest.mark.parametrize("seed", [
    pytest.param(s, marks=pytest.mark.xfail(strict=True, reason="known to be stale"))
    for s in sorted(KNOWN_STALE)
])  # fmt: skip
def test_known_stale_world(seed):
    assert not list(differences([seed]))


@pytest.mark.slow
@pytest.mark.xfail(bool(KNOWN_STALE), strict=True, reason="some changes are missed today")
def test_many_worlds():
    assert_none(range(1000, 3000))


@pytest.mark.slow
@pytest.mark.xfail(bool(KNOWN_STALE), strict=True, reason="some changes are missed today")
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
