"""Random programs of views, in-place writes and returns do what eager does, or fall back."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from aot_harness import check, check_training, gradients, with_grad
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tc
from tc.compiler import aot

VIEWS = (
    lambda v: v.t() if v.dim() == 2 else v.unsqueeze(0),
    lambda v: v[0] if v.dim() else v.view(1),
    lambda v: v[1:] if v.dim() else v,
    lambda v: v[::2] if v.dim() else v,
    lambda v: v.view(-1) if v.is_contiguous() else v.reshape(-1),
    lambda v: v.unsqueeze(-1),
    lambda v: v.squeeze(),
    lambda v: v.chunk(2)[0] if v.dim() and v.shape[0] > 1 else v,
    lambda v: v.unbind(0)[-1] if v.dim() and v.shape[0] else v,
    lambda v: v.detach(),
    lambda v: v.diagonal() if v.dim() == 2 else v,
    lambda v: v.expand(2, *v.shape),
    lambda v: v.as_strided(v.shape, v.stride(), v.storage_offset()),
)
NEW = (
    lambda v: v + 1,
    lambda v: v.exp().clamp(max=3),
    lambda v: v.clone(),
    lambda v: v.sum(0, keepdim=True) if v.dim() else v * 2,
    lambda v: v.contiguous(),
    lambda v: torch.zeros_like(v),
)
WRITES = (
    lambda v: v.add_(1),
    lambda v: v.mul_(0.5),
    lambda v: v.zero_(),
    lambda v: v.copy_(v.new_ones(()).expand(v.shape)),
    lambda v: v.clamp_(min=0),
    lambda v: v.masked_fill_(v > 0, -1.0),
    lambda v: v.fill_(2.5),
    lambda v: v.__setitem__(0, 3.0) if v.dim() and v.shape[0] else None,
    lambda v: torch.sub(v.clone(), 1, out=v),
)

step = st.one_of(
    st.tuples(st.just("view"), st.integers(0, len(VIEWS) - 1), st.integers(0, 30)),
    st.tuples(st.just("write"), st.integers(0, len(WRITES) - 1), st.integers(0, 30)),
    st.tuples(st.just("new"), st.integers(0, len(NEW) - 1), st.integers(0, 30)),
)


def overlaps_itself(value):
    return any(
        stride == 0 and size > 1 for size, stride in zip(value.shape, value.stride(), strict=True)
    )


def program(steps, returned):
    def run(x, y):
        pool = [x, y]
        for kind, which, on in steps:
            value = pool[on % len(pool)]
            if kind == "view":
                pool.append(VIEWS[which](value))
            elif kind == "new":
                pool.append(NEW[which](value))
            elif not overlaps_itself(value):
                WRITES[which](value)
        return tuple(pool[i % len(pool)] for i in returned)

    return run


ANY = given(st.lists(step, min_size=1, max_size=8), st.lists(st.integers(0, 30), max_size=4))


@settings(max_examples=15, deadline=None)
@ANY
def test_random_programs(steps, returned):
    function = program(steps, returned)
    args = (torch.arange(16.0).view(4, 4) - 8, torch.arange(6.0).view(3, 2).t())
    try:
        check(function, args)
    except aot.Fallback as fallback:
        assert fallback.reason.startswith(KNOWN), fallback.reason


WHOLE = {"deadline": None, "derandomize": True}
test_many_programs = pytest.mark.slow(
    settings(max_examples=150, **WHOLE)(ANY(test_random_programs.hypothesis.inner_test))
)


KNOWN = (
    "its in-place operations have no functional form: During torch.compile, encountered a "
    "mutation on a view",
    "outputs share memory that is larger than any value of the graph",
    "two traces disagree on which inputs are written to",
    "a write changes a layout on which later views depend",
    "as_strided addresses memory whose layout differs from the recorded one",
    "a tensor is written to through as_strided or unfold, which may leave gaps",
    "as_strided shows elements that its tensor has not, which is written to",
)


TRAINED = given(
    st.lists(step, min_size=1, max_size=7), st.lists(st.integers(0, 30), min_size=1, max_size=4)
)


@settings(max_examples=12, deadline=None)
@TRAINED
def test_random_programs_with_gradients(steps, returned):
    function = program(steps, returned)
    x = (torch.arange(16.0).view(4, 4) / 8 - 1).requires_grad_()
    args = (x, torch.arange(6.0).view(3, 2).t())
    try:
        own = [with_grad(arg) for arg in args]
        gradients(own, function(*own))
    except RuntimeError:
        assume(False)  # eager refuses the program
    try:
        check_training(function, args)
    except aot.Fallback as fallback:
        assert fallback.reason.startswith((*KNOWN, *KNOWN_WITH_GRADIENTS)), fallback.reason


test_many_programs_with_gradients = pytest.mark.slow(
    settings(max_examples=100, **WHOLE)(
        TRAINED(test_random_programs_with_gradients.hypothesis.inner_test)
    )
)
KNOWN_WITH_GRADIENTS = ("a view carries gradients that what it views does not",)


def _rows(x):
    result = torch.empty_strided((4, 8), (16, 1))
    result[:] = x + x
    return result


GAPS = {
    "rows": _rows,
    "columns": lambda x: x.new_empty_strided((4, 8), (1, 6)).copy_(x),
    "elements": lambda x: torch.empty_strided((4, 8), (24, 3)).copy_(x * 2),
    "a view": lambda x: torch.empty_strided((4, 8), (24, 3)).copy_(x * 2).t(),
    "two views": lambda x: (r := torch.empty_strided((4, 8), (16, 1)).copy_(x), r[1:], r[:, :3])[
        1:
    ],
    "symbolic": lambda x: x.new_empty_strided(x.shape, (x.size(1) * 2, 1)).copy_(x),
}


@pytest.mark.sample(8)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", GAPS)
def test_outputs_keep_gaps_in_their_memory(name, gradients, dynamic):
    fn, x = GAPS[name], torch.randn(4, 8, requires_grad=gradients)
    wanted, found = fn(x), tc.compile(fn, dynamic=dynamic)(x)
    both = (wanted, found) if isinstance(wanted, tuple) else ((wanted,), (found,))
    for want, got in zip(*both, strict=True):
        assert got.stride() == want.stride()
        torch.testing.assert_close(got, want)


#: equal values of which at least one is returned through a view; eager makes each of them
EQUAL = {
    "view": lambda x: (x.sin(), x.sin()[0]),
    "both views": lambda x: (x.sin().t(), x.sin()[0]),
    "products": lambda x: (x @ x.t(), (x @ x.t())[0]),
    "of nothing": lambda x: (torch.zeros(2, 2), torch.zeros(2, 2).t()),
    "copies": lambda x: (x.t().contiguous(), x.t().reshape(6)),
    "concatenated": lambda x: (torch.stack([x])[0], torch.cat([x])),
    "complex": lambda x: (torch.fft.fft(x), torch.fft.fft(x).conj()),
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("wants_grad", [False, True])
@pytest.mark.parametrize("name", EQUAL)
def test_equal_values_that_are_returned_share_no_memory(name, wants_grad):
    function = EQUAL[name]
    x = torch.arange(6.0).view(2, 3).requires_grad_(wants_grad)
    first, second = tc.compile(function)(x)
    with torch.no_grad():
        first.add_(100)
    torch.testing.assert_close(second, function(x)[1])


@pytest.mark.parametrize("first", [False, True])
def test_detached_outputs_require_no_gradients_where_gradients_are_off(first):
    def function(x):
        return x.detach(), x.data, x.detach()[0], x.view(-1), x * 2

    compiled = tc.compile(function)
    for wants_grad in (first, not first):
        for x in (torch.ones(2, 3).requires_grad_(wants_grad), (with_history(wants_grad))):
            with torch.no_grad():
                got, wanted = compiled(x), function(x)
            assert [t.requires_grad for t in got] == [t.requires_grad for t in wanted]


def with_history(wants_grad: bool) -> torch.Tensor:
    return torch.ones(2, 3).requires_grad_(wants_grad) * 2


#: calls that have nothing to move, and views of a tensor whose rows are one place in memory
MEMORY = {
    "shuffled": lambda x: F.channel_shuffle(x, 1),
    "shuffled one by one": lambda x: F.channel_shuffle(x, 4),
    "windows": lambda x: F.unfold(x, 1),
    "slice": lambda x: x[:],
    "row": lambda x: x[0],
    "new and view": lambda x: (x.sin(), x.unsqueeze(1)),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("expanded", [False, True])
@pytest.mark.parametrize("name", MEMORY)
def test_results_share_memory_and_gradients_with_inputs_as_eagers_do(name, expanded, dynamic):
    function, seen = MEMORY[name], []
    torch.manual_seed(0)
    x = torch.randn(1, 4, 3, 5).expand(3, 4, 3, 5)
    for call in (function, tc.compile(function, dynamic=dynamic)):
        own = (x if expanded else x.clone()).detach().requires_grad_()
        results = results if isinstance(results := call(own), tuple) else (results,)
        torch.manual_seed(1)
        torch.autograd.backward(results, [torch.randn(result.shape) for result in results])
        shared = [r.untyped_storage()._cdata == own.untyped_storage()._cdata for r in results]
        seen.append(([*results], own.grad, shared))
    torch.testing.assert_close(*seen)
