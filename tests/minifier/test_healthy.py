"""Sound programs, some of which fail now and then by themselves, are blamed on no compiler."""

from __future__ import annotations

import ast
import random

import healthy
import pytest

from tc.minifier.verdict import BUG


def test_what_is_drawn_is_a_program_and_the_same_for_its_number() -> None:
    texts = [healthy.drawn(number, 5, 0.5).text for number in range(200)]
    assert all(map(ast.parse, texts)) and len(set(texts)) == 200
    assert healthy.drawn(7, 5, 0.5).text == texts[7]
    flaky = sum(bool(healthy.drawn(number, 5, 0.3).flake) for number in range(400))
    assert 80 <= flaky <= 160


@pytest.mark.slow
def test_no_sound_program_is_accused() -> None:
    seed = random.SystemRandom().randrange(10**6)
    found = healthy.judged(range(4), seed, 0.5)
    accused = [program.text for program, verdict in found if verdict.code == BUG]
    assert not accused, f"seed {seed}"
