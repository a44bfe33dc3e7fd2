"""Numbers and sizes that come out of tensors' values: compiled, checked, and as in eager."""

from __future__ import annotations

import pytest
import torch

import tc
from tc import trace
from tc.compiler.loops.ir import Extern
from tc.compiler.schedule.fuse import Group

W = torch.tensor([0.5, -1.0, 2.0, 0.0, 3.0, -2.5, 1.0, 4.0])


def run(function, args):
    """Results, gradients and inputs after a call, or whether it fails."""
    given = [a.clone().requires_grad_(a.requires_grad) for a in args]
    try:
        found = function(*given)
    except RuntimeError:
        return [False]
    flat = list(found) if isinstance(found, tuple | list) else [found]
    losses = [t.sin().sum() for t in flat if isinstance(t, torch.Tensor) and t.requires_grad]
    if losses:
        sum(losses).backward()
    return flat, [a.grad for a in given], given


@pytest.fixture
def events():
    tc.reset()
    with trace.capture_events() as found:
        yield found


def sliced(w, i):
    n = i.item()
    torch._check(n >= 0)
    torch._check(n <= 8)
    return w[:n].exp(), w * n


def a_constant(w, i):
    n = i.item()
    torch._check(n == 3)
    return torch.zeros(n) + w[:3].sin()


def two_alike(w, i, j):
    n, m = i.item(), j.item()
    torch._check(n == m)
    return w * n + m


def like_a_size(w, i):
    n = i.item()
    torch._check(n == w.shape[0])
    return w * n


def in_three(w, sizes):
    a, b, c = sizes.tolist()
    for n in (a, b, c):
        torch._check(n >= 2)
    torch._check(a + b + c == 8)
    return [part.cumsum(0) for part in w.split([a, b, c])]


def a_float(w, i):
    top = w.max().item()
    torch._check(top > 1.5)
    return w / top, top + 1


def a_truth(w, i):
    fine = (i > 2).item()
    torch._check(fine)
    return w + 1, fine


def written(w, i):
    v = w.detach().clone()
    i.mul_(2)
    n = i.item()
    torch._check(n < 10)
    i.add_(n)
    return v * n, i


def no_negative(w, i):
    n = i.item()
    torch._check(n >= 0)
    return torch.arange(n).float().sum() / torch.sym_max(n, 1), torch.full((3, n), 2.0) * n


def picked(w, i):
    return w[w > 0.25] * 2, torch.masked_select(w, w < 0).exp()


def counted(w, i):
    where = torch.nonzero(w)
    return where.shape[0], where.sum(1), torch.ones(where.shape[0], 4).softmax(1)


def repeated(w, i):
    return torch.repeat_interleave(w, (w > 0).int() * i).exp()


def asserted(w, i):
    torch._assert_async((w * i < 30).all(), "too large")
    return w.sin()


def number(n):
    return torch.tensor(n)


CASES = [
    *((sliced, number(n)) for n in (0, 1, 3, 8, 9, -1)),
    *((a_constant, number(n)) for n in (3, 4)),
    *((two_alike, number(3), number(n)) for n in (3, 4)),
    *((like_a_size, number(n)) for n in (8, 7)),
    *((in_three, torch.tensor(n)) for n in ([2, 3, 3], [4, 2, 2], [4, 4, 2], [1, 4, 3])),
    (a_float, number(1)),
    *((a_truth, number(n)) for n in (3, 1)),
    *((written, number(n)) for n in (3, 7)),
    *((no_negative, number(n)) for n in (0, 1, 5, -2)),
    (picked, number(1)),
    (counted, number(1)),
    *((repeated, number(n)) for n in (0, 1, 2)),
    *((asserted, number(n)) for n in (1, 10)),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0].__name__}-{c[1].tolist()}")
def test_as_in_eager(case, gradients, events) -> None:
    function, *numbers = case
    args = [W.clone().requires_grad_(gradients), *numbers]
    expected = run(function, args)
    compiled = tc.compile(function, fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(run(compiled, args), expected)
    assert not [e.payload for e in events.of(trace.Artifact) if e.name == "tc_graph_runs_eagerly"]


@pytest.mark.parametrize("size", [8, 5])
def test_one_code_for_several_sizes(size, events) -> None:
    compiled = tc.compile(like_a_size, fullgraph=True, dynamic=True)
    args = [W[:size].clone(), number(size)]
    torch.testing.assert_close(run(compiled, args), run(like_a_size, args))
    assert run(compiled, [W[:size].clone(), number(7)]) == [False]


def test_a_failed_check_leaves_inputs_alone() -> None:
    def function(x, i):
        n = i.item()
        torch._check(n == 2)
        x.add_(n)
        return x * 2

    compiled = tc.compile(function, fullgraph=True)
    x = W.clone()
    compiled(x, number(2))
    kept = x.clone()
    with pytest.raises(RuntimeError, match=r"Eq\(u0, 2\)"):
        compiled(x, number(3))
    torch.testing.assert_close(x, kept)


def test_what_rests_on_a_check_stays_behind_it(monkeypatch) -> None:
    from tc.compiler.schedule import stage

    seen = []

    def fuse(*given, **named):
        found = stage_fuse(*given, **named)
        seen.append(found[0])
        return found

    stage_fuse = stage.fuse
    monkeypatch.setattr(stage, "fuse", fuse)

    def function(x, i):
        torch._assert_async((x < 100).all())
        return x.sin(), x.cos()

    tc.reset()
    with tc.config.patch(fx_graph_cache=False):
        tc.compile(function)(W.clone(), number(1))
    [slots] = seen
    check = next(k for k, s in enumerate(slots) if isinstance(s, Extern) and not s.results[0])
    assert check == 1
    assert all(isinstance(slot, Group) for slot in slots[2:])
    assert sum(len(slot.members) for slot in slots[2:]) == 2


@pytest.mark.parametrize("is_trained", [False, True])
def test_a_slice_whose_size_only_its_result_has(is_trained: bool) -> None:
    def sliced_behind(w, i):
        kept = w[: 2 + int(i.sum())]
        return torch.cat([kept, kept[:1]])

    def run(function, n):
        w = W.clone().requires_grad_(is_trained)
        result = function(w, torch.tensor(n))
        if is_trained:
            result.square().sum().backward()
        return result, w.grad

    with tc.config.patch(capture_scalar_outputs=True):
        compiled = tc.compile(sliced_behind, fullgraph=True)
        for n in (0, 3, 9, -1):
            torch.testing.assert_close(run(compiled, n), run(sliced_behind, n))
