"""What `bench/corpus.py` draws is what it says; a fault drawn at random is reduced."""

from __future__ import annotations

import itertools
import random

import corpus
import host_parts
import pytest

from tc.minifier.passes import rendering


@pytest.mark.sample(4)
@pytest.mark.parametrize("model", host_parts.MODELS)
@pytest.mark.parametrize("varies", ["", *host_parts.VARY])
def test_hosts_are_programs_of_some_length(model: str, varies: str) -> None:
    uses = (*host_parts.USES, "new graphs")
    for data, use, layout in itertools.product(host_parts.DATA, uses, range(3)):
        files = host_parts.files_of(model, data, use, layout, varies, "tanh")
        assert len(files) == layout + 1 and next(iter(files)) == "script.py"
        assert all(map(rendering.is_program, files.values()))
        assert 50 <= sum(text.count("\n") for text in files.values()) <= 300
        assert any("torch.tanh(y)" in text for text in files.values())


def test_each_fault_has_another_host() -> None:
    places = {corpus.Drawing(random.Random(number)).place() for number in range(60)}
    assert len(places) >= 20
    drawn = [corpus.fault_of(corpus.Drawing(random.Random(7)), 0) for _ in range(2)]
    assert drawn[0] == drawn[1] and drawn[0].fault.startswith("tc:wrong:")


@pytest.mark.slow
def test_a_fault_drawn_at_random_reaches_its_minimum() -> None:
    seed = random.SystemRandom().randrange(10**6)
    planted = corpus.fault_of(corpus.Drawing(random.Random(seed)), seed % 60)
    found = corpus.minified(planted)
    assert found.minimal, f"seed {seed}, {planted}: {found.why}"
