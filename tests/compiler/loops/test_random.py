"""Random numbers drawn in loops: their distributions, their seed, and what stays with eager."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from loop_harness import trace
from scipy import stats

import tc
from tc.compiler.core.gate import Gate
from tc.compiler.loops import lower
from tc.compiler.loops.ir import Extern
from tc.compiler.loops.lower.registry import LOWERINGS
from tc.compiler.loops.ops import philox

N = 20_000
DRAWS = {
    "rand": (lambda x: torch.rand(N), stats.uniform()),
    "rand_like": (torch.rand_like, stats.uniform()),
    "uniform": (lambda x: torch.empty(N).uniform_(-1, 3), stats.uniform(-1, 4)),
    "exponential": (lambda x: torch.empty_like(x).exponential_(0.5), stats.expon(scale=2)),
    "double": (lambda x: torch.rand(N, dtype=torch.float64), stats.uniform()),
}


@pytest.fixture(autouse=True)
def drawn_in_kernels():
    tc.reset()
    torch.manual_seed(0)
    with tc.config.patch(fallback_random=False):
        yield


@pytest.mark.parametrize("name", DRAWS)
def test_numbers_follow_their_distribution_and_the_seed(name):
    function, distribution = DRAWS[name]
    compiled = tc.compile(function, fullgraph=True)
    x = torch.zeros(N)
    first, second = compiled(x), compiled(x)
    assert stats.kstest(first.numpy(), distribution.cdf).pvalue > 1e-3
    assert abs(stats.pearsonr(first, second)[0]) < 0.03  # another call draws other numbers
    assert abs(stats.pearsonr(first[1:], first[:-1])[0]) < 0.03  # neighbours too
    torch.manual_seed(0)
    assert torch.equal(compiled(x), first)


def test_counted_numbers():
    compiled = tc.compile(lambda: torch.randint(-3, 4, (N,)), fullgraph=True)
    counts = (compiled() + 3).bincount()
    assert len(counts) == 7 and stats.chisquare(counts.numpy()).pvalue > 1e-3
    drawn = tc.compile(lambda: torch.empty(N).bernoulli_(0.3))()
    assert set(drawn.tolist()) == {0.0, 1.0}
    assert stats.binomtest(int(drawn.sum()), N, 0.3).pvalue > 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_numbers_of_each_type_stay_below_one(dtype):
    drawn = tc.compile(lambda: torch.rand(N, dtype=dtype), fullgraph=True)()
    assert drawn.dtype is dtype and drawn.min() >= 0 and drawn.max() < 1
    assert abs(drawn.double().mean() - 0.5) < 0.01


def test_draws_of_one_graph_are_apart():
    a, b, c = tc.compile(lambda x: (torch.rand(N), torch.rand(N), F.dropout(x, 0.5)))(torch.ones(N))
    assert abs(stats.pearsonr(a, b)[0]) < 0.03
    assert abs(stats.pearsonr(a, c)[0]) < 0.03


def test_dropout_keeps_one_mask_for_forward_and_backward():
    x = torch.linspace(1, 2, N).requires_grad_()
    compiled = tc.compile(lambda x: F.dropout(x, 0.2, True) * 3, fullgraph=True)
    out = compiled(x)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    dropped = out == 0
    assert stats.binomtest(int(dropped.sum()), N, 0.2).pvalue > 1e-3
    torch.testing.assert_close(out[~dropped], (x * 3 / 0.8)[~dropped])
    torch.testing.assert_close(gradient, torch.where(dropped, 0.0, 3 / 0.8))
    assert torch.equal(tc.compile(lambda x: F.dropout(x, 1.0, True))(x), torch.zeros(N))


def test_numbers_belong_to_positions_whatever_the_size():
    compiled = tc.compile(lambda x: F.dropout(x, 0.5, True), dynamic=True)
    found = []
    for size in (3000, 10, 200):
        torch.manual_seed(1)
        found.append(compiled(torch.ones(size)))
    assert torch.equal(found[0][:10], found[1]) and torch.equal(found[0][:200], found[2])


def externs(randoms, function, *args):
    """Operations other than the seed's that a graph leaves to ATen."""
    graph = lower(trace(function, args), Gate(), randoms=randoms)
    return [n.target for n in graph.nodes if isinstance(n, Extern) and "randint" not in n.target]


def test_every_lowering_of_a_random_operation_is_at_work():
    aten, x = torch.ops.aten, torch.ones(4)
    calls = {
        aten.rand.default: ([4],),
        aten.rand_like.default: (x,),
        aten.uniform.default: (x,),
        aten.exponential.default: (x,),
        aten.bernoulli.p: (x, 0.3),
        aten.native_dropout.default: (x, 0.5, True),
        aten.randint.default: (5, [4]),
        aten.randint.low: (1, 5, [4]),
    }
    assert set(calls) == {op for op in LOWERINGS if torch.Tag.nondeterministic_seeded in op.tags}
    for op, args in calls.items():
        given = [arg for arg in args if isinstance(arg, torch.Tensor)]
        call = functools.partial(lambda op, rest, *given: op(*given, *rest), op, args[len(given) :])
        assert externs(True, call, *given) == []
        # the kind of the seed itself is not recorded
        assert externs(False, call, *given) in ([str(op)], [])


def test_eagers_order_is_kept_where_asked_and_generators_always_are():
    x = torch.ones(4)
    dropout = torch.ops.aten.native_dropout
    assert externs(False, lambda x: dropout(x, 0.5, True), x) == ["aten.native_dropout.default"]
    assert externs(True, lambda x: dropout(x, 0.5, True), x) == []
    own = torch.Generator().manual_seed(3)
    with_own = tc.compile(lambda: torch.rand(4, generator=own))
    before = own.get_state()
    found = with_own()
    own.set_state(before)
    assert torch.equal(found, torch.rand(4, generator=own))
    tc.reset()
    torch.manual_seed(0)
    eager = F.dropout(torch.ones(100), 0.5, True)
    torch.manual_seed(0)
    with tc.config.patch(fallback_random=True):
        assert torch.equal(tc.compile(lambda x: F.dropout(x, 0.5, True))(torch.ones(100)), eager)


@pytest.mark.parametrize(
    ("key", "counter", "answer"),
    [
        (0, 0, 0xFF1DAE596CD10DF2),
        (0xFFFFFFFF, -1, 0x2C3F628BAB4FD7AD),
        (0x13198A2E, 0x85A308D3243F6A88 - 2**64, 0xDD7CE038F62A4C12),
    ],
)
def test_the_stream_is_that_of_philox(key, counter, answer):
    """The known answers that Random123 gives for ten rounds of Philox 2x32."""
    found = philox(torch.tensor(key), torch.tensor(counter))
    assert int(found) & (2**64 - 1) == answer
