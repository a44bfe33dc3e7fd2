"""Facts about the world: compiled code notices each change that eager code notices.

The default suite takes every third fact, the slow one all of them in all ways of running.
"""

from __future__ import annotations

import fact_runner
import pytest
from fact_runner import DIRECT, INLINED, REVERSED
from facts import FACTS, KNOWN_STALE

import tc


def compile_eagerly(program):
    return tc.compile(program, backend="eager")


def cases(names):
    mark = pytest.mark.xfail(strict=True, reason="known to be stale")
    return [pytest.param(name, marks=[mark] * (name in KNOWN_STALE), id=name) for name in names]


def assert_ok(name, compile=compile_eagerly, variants=fact_runner.VARIANTS):
    verdict = fact_runner.judge(FACTS[name], compile, tc.reset, variants)
    if verdict.status != "ok":
        pytest.fail(f"{verdict}\n{FACTS[name].program()}", pytrace=False)


@pytest.mark.sample(30)
@pytest.mark.parametrize("name", cases(list(FACTS)[::3]))
def test_change_is_noticed(name):
    assert_ok(name, variants=[DIRECT])


@pytest.mark.sample(30)
@pytest.mark.parametrize("name", cases(list(FACTS)[2::5]))
def test_a_change_that_is_undone_is_noticed(name):
    assert_ok(name, variants=[REVERSED])


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", cases(list(FACTS)[1::9]))
def test_change_is_noticed_by_inlined_code(name):
    assert_ok(name, variants=[INLINED])


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(FACTS))
def test_change_is_noticed_in_all_variants(name):
    assert_ok(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(list(FACTS)[::16]))
def test_change_is_noticed_by_kernels(name):
    assert_ok(name, tc.compile, [DIRECT, fact_runner.Variant(60)])


def test_known_ones_exist():
    assert set(FACTS) >= KNOWN_STALE


def test_every_family_has_its_facts():
    families = {fact.family for fact in FACTS.values()}
    assert len(families) == 10
    assert all(sum(f.family == name for f in FACTS.values()) >= 50 for name in families)


def test_a_fact_that_tests_nothing_is_called_so():
    fact = fact_runner.Fact("nothing", "none", "def f(x): return x\nargs = t(),", "K = 5")
    assert fact_runner.judge(fact, compile_eagerly, tc.reset).status == "vacuous"


def test_a_compiler_that_never_looks_again_is_stale():
    def frozen(program):
        kept = []
        return lambda *args: kept[0] if kept else kept.append(program(*args)) or kept[0]

    verdicts = [
        fact_runner.judge(fact, frozen, lambda: None, [DIRECT]).status
        for fact in list(FACTS.values())[::10]
    ]
    assert verdicts.count("ok") < 3
