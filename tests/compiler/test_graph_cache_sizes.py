"""The cache of graphs where sizes are symbols: entries hold for other sizes of the same kind, are
refused where a condition on sizes does not hold, and bring their conditions along as guards."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from kills import killed_at, together
from support import own_cache, succeed

import tc
from tc import trace
from tc.compiler.cache import graph_cache
from tc.compiler.core.conditions import Condition


@pytest.fixture(autouse=True)
def folder(one_thread, tmp_path, monkeypatch):
    monkeypatch.setenv("TC_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TC_FORCE_DISABLE_CACHES", raising=False)
    with tc.config.patch(fx_graph_cache=True):
        tc.reset()
        yield tmp_path


def pooled(x):
    return F.max_pool2d(x, 2) * 3


def normed(x, w):
    return F.gelu(F.layer_norm(x @ w, w.shape[1:])) * x.shape[0]


def joined(x, y):
    return torch.cat([x, y]).sum(0), x.t()


def compiled_again(function, *args, **settings):
    """Compile as another process would; returns what runs it, and whether entries were found."""
    tc.reset()
    run = tc.compile(function, **{"dynamic": True, **settings})
    with trace.capture_events() as events:
        torch.testing.assert_close(run(*args), function(*args))
    return run, [event.hit for event in events if isinstance(event, trace.Cache)]


def matrices(rows):
    return torch.randn(rows, 8), torch.randn(8, 11)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (pooled, lambda n: (torch.randn(2, 3, n, n),)),
        (normed, matrices),
        (joined, lambda n: (torch.randn(n, 5), torch.randn(n + 1, 5))),
    ],
)
def test_entries_hold_for_other_sizes(function, arguments):
    assert compiled_again(function, *arguments(6))[1] == [False]
    run, looks = compiled_again(function, *arguments(10))
    assert looks == [True]
    for size in (6, 7, 12):
        args = arguments(size)
        torch.testing.assert_close(run(*args), function(*args))


def test_numbers_that_are_symbols():
    def scaled(x, by, plus):
        return x * by + plus

    assert compiled_again(scaled, torch.randn(6), 3, 0.5)[1] == [False]
    run, looks = compiled_again(scaled, torch.randn(7), 5, 1.5)
    assert looks == [True]
    x = torch.randn(8)
    torch.testing.assert_close(run(x, 7, 2.5), x * 7 + 2.5)


def test_an_entry_whose_condition_fails_is_none():
    small, large = torch.randn(2, 3, 2, 2), torch.randn(2, 3, 8, 8)
    assert compiled_again(pooled, large)[1] == [False]
    assert compiled_again(pooled, small)[1] == [False]


def test_conditions_of_an_entry_become_guards():
    x = torch.randn(2, 3, 8, 8)
    made = guards_of(*compiled_again(pooled, x)[:1], x)
    found, looks = compiled_again(pooled, x)
    assert looks == [True]
    assert guards_of(found, x) == made
    with trace.capture_events() as events:  # pooled to one element: not what was asked
        small = torch.randn(2, 3, 2, 2)
        torch.testing.assert_close(found(small), pooled(small))
    assert [event for event in events if isinstance(event, trace.Cache)]


def guards_of(run, *args):
    """Return the guards on sizes of a compile of the same function."""
    tc.reset()
    with trace.capture_events() as events:
        run(*args)
    return [str(event) for event in events if type(event).__name__ == "Guards"]


def test_gradients():
    def loss(x, w):
        return normed(x, w).sum()

    for rows, expected in ((5, [False]), (9, [True])):
        x, w = matrices(rows)
        got, theirs = (w.clone().requires_grad_() for _ in range(2))
        run, looks = compiled_again(loss, x, got)
        assert looks == expected
        run(x, got).backward()
        loss(x, theirs).backward()
        torch.testing.assert_close(got.grad, theirs.grad)


def test_ranges_are_distinguished():
    def marked(**bounds):
        x = torch.randn(6, 4)
        tc.mark_dynamic(x, 0, **bounds)
        return compiled_again(torch.sin, x, dynamic=None)[1]

    assert marked(max=100) == [False]
    assert marked(max=200) == [False]
    assert marked(max=100) == [True]


def test_sizes_out_of_data_are_not_looked_for():
    def chosen(x):
        return x[x > 0] * 2

    with tc.config.patch(capture_dynamic_output_shape_ops=True):
        assert compiled_again(chosen, torch.randn(9))[1] == []


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "expression",
    ["s_other", ("StrictGreaterThan", "s_other", 1), ("exec", 1), ("Add",), (), 0],
    ids=str,
)
def test_damaged_conditions_are_misses(expression, monkeypatch):
    x = torch.randn(2, 3, 8, 8)
    compiled_again(pooled, x)
    read = graph_cache.loads

    def damaged(content, classes):
        kept = read(content, classes)
        return graph_cache.replace(kept, conditions=(*kept.conditions, Condition(expression)))

    monkeypatch.setattr(graph_cache, "loads", damaged)
    assert compiled_again(pooled, x)[1] == [False]


PROGRAM = """
import sys
import torch
import tc
from tc import trace

for size in map(int, sys.argv[1:]):
    tc.reset()
    compiled = tc.compile(lambda x: torch.nn.functional.max_pool2d(x, 2) * 3, dynamic=True)
    with trace.capture_events() as events:
        for n in (size, size + 4):
            x = torch.randn(2, 3, n, n)
            torch.testing.assert_close(compiled(x), torch.nn.functional.max_pool2d(x, 2) * 3)
    print([event.hit for event in events if isinstance(event, trace.Cache)])
"""


def test_a_second_process_compiles_nothing(folder):
    variables = {"TC_CACHE_DIR": own_cache(folder), "TC_FX_GRAPH_CACHE": "1"}
    (folder / "program.py").write_text(PROGRAM)
    program = str(folder / "program.py")
    assert succeed(program, "8", variables=variables, warm=True) == "[False]\n"
    found, other = succeed(program, "12", "2", variables=variables, warm=True).splitlines()
    assert found == "[True]"
    assert other.startswith("[False")  # pooled to one element: another condition


def checked():
    for size in (8, 11):
        compiled_again(pooled, torch.randn(2, 3, size, size))


def test_processes_that_compile_the_same_at_once(folder):
    assert together(3, checked) == [0, 0, 0]
    assert compiled_again(pooled, torch.randn(2, 3, 9, 9))[1] == [True]


@pytest.mark.slow
def test_killed_at_every_step_of_a_compile(folder):
    compiled_again(torch.sin, torch.randn(3))  # what forks share: tc's extensions
    step = 0
    while killed_at(step, str(folder), checked):
        compiled_again(pooled, torch.randn(2, 3, 7, 7))
        for path in (folder / graph_cache.KIND).rglob("*"):
            if path.is_file():
                path.unlink()
        step += 1
    assert step > 3
