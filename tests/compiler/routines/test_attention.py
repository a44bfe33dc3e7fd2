"""Our routine for attention gives what ATen's does, in the same layout."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tc.compiler.routines import attention

aten = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
pytestmark = pytest.mark.skipif(
    attention.ROUTINE.kernel(torch.float32) is None, reason="no vectors of 512 bits"
)

LAYOUTS = {
    "plain": lambda b, h, t, d: torch.randn(b, h, t, d),
    "heads inside": lambda b, h, t, d: torch.randn(b, t, h, d).transpose(1, 2),
    "part of a product": lambda b, h, t, d: torch.randn(b, t, 3, h, d)[:, :, 1].transpose(1, 2),
    "queries first": lambda b, h, t, d: torch.randn(t, b, h, d).permute(1, 2, 0, 3),
}
MASKS = {
    "none": lambda b, h, t, s: None,
    "full": lambda b, h, t, s: torch.randn(b, h, t, s),
    "of batches": lambda b, h, t, s: torch.randn(b, 1, t, s),
    "of keys": lambda b, h, t, s: torch.randn(b, 1, 1, s),
    "spread": lambda b, h, t, s: torch.randn(1, 1, t, s).expand(b, h, t, s),
    "two dimensions": lambda b, h, t, s: torch.randn(t, s),
    "hidden": lambda b, h, t, s: torch.randn(b, 1, t, s).masked_fill(
        torch.rand(b, 1, t, s) < 0.5, -math.inf
    ),
}


def called(monkeypatch):
    """Count calls that the routine forwards to ATen."""
    handed = []
    original = attention._by_torch
    monkeypatch.setattr(attention, "_by_torch", lambda *a: handed.append(1) or original(*a))
    return handed


def check(query, key, value, causal=False, mask=None, scale=None):
    given, options = (query, key, value, 0.0, causal), {"attn_mask": mask, "scale": scale}
    wanted, found = aten(*given, **options), attention.flash(*given, **options)
    for a, b in zip(wanted, found, strict=True):
        assert a.stride() == b.stride() and a.shape == b.shape
        torch.testing.assert_close(b, a, rtol=2e-5, atol=2e-5)
    alone, none = attention.flash_alone(*given, **options)
    assert alone.equal(found[0]) and none is None


@settings(max_examples=30, deadline=None)
@given(
    st.tuples(*[st.integers(1, 3)] * 2, st.integers(16, 90), st.integers(1, 90)),
    st.sampled_from((16, 32, 48, 64, 96, 128)),
    st.sampled_from(sorted(LAYOUTS)),
    st.sampled_from(sorted(MASKS)),
    st.booleans(),
    st.sampled_from((None, 0.3)),
)
def test_it_gives_what_aten_does(sizes, depth, layout, mask, causal, scale):
    torch.manual_seed(0)
    b, h, t, s = sizes
    causal = causal and mask == "none"  # ATen takes one of them
    query, key, value = (LAYOUTS[layout](b, h, n, depth) for n in (t, s, s))
    check(query, key, value, causal, MASKS[mask](b, h, t, s), scale)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("t, s", [(16, 16), (33, 700), (300, 300), (31, 1), (64, 129)])
def test_blocks_and_rests(t, s, causal, monkeypatch):
    handed = called(monkeypatch)
    query, key, value = (torch.randn(2, 2, n, 80) for n in (t, s, s))
    check(query, key, value, causal)
    assert not handed


def test_queries_that_see_no_key(monkeypatch):
    handed = called(monkeypatch)
    mask = torch.zeros(2, 1, 40, 50)
    mask[1, 0, 7] = -math.inf
    query, key, value = (torch.randn(2, 2, n, 32) for n in (40, 50, 50))
    check(query, key, value, mask=mask)
    found, lse = attention.flash(query, key, value, attn_mask=mask)
    assert found[1, :, 7].eq(0).all() and lse[1, :, 7].eq(0).all() and not handed


@pytest.mark.parametrize("at", ["query", "key", "value"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_no_number_goes_where_it_goes_in_eager(at, bad):
    parts = {name: torch.randn(1, 2, 40, 32) for name in ("query", "key", "value")}
    parts[at][0, 1, 20, 5] = bad
    wanted = aten(*parts.values())[0]
    found = attention.flash(*parts.values())[0]
    assert found.isnan().equal(wanted.isnan())
    assert torch.equal(found[0, 0].isfinite(), wanted[0, 0].isfinite())


def test_large_scores_do_not_overflow():
    query, key, value = (torch.randn(1, 2, 64, 32) * 40 for _ in range(3))
    check(query, key, value, scale=1.0)


def test_keys_shared_by_heads(monkeypatch):
    handed = called(monkeypatch)
    query, key, value = (
        torch.randn(2, 6, 40, 32),
        torch.randn(2, 2, 40, 32),
        torch.randn(2, 2, 40, 32),
    )
    found = attention.flash(query, key, value)[0]
    wanted = aten(query, *(part.repeat_interleave(3, 1) for part in (key, value)))[0]
    torch.testing.assert_close(found, wanted, rtol=2e-5, atol=2e-6)
    assert not handed


ATENS = {
    "few queries": lambda: (torch.randn(1, 2, 8, 32),) * 3,
    "an odd depth": lambda: (torch.randn(1, 2, 40, 20),) * 3,
}


@pytest.mark.parametrize("name", ATENS)
def test_what_it_does_no_earlier_goes_to_aten(name, monkeypatch):
    handed = called(monkeypatch)
    parts = ATENS[name]()
    found, wanted = attention.flash(*parts), aten(*parts)
    assert handed and all(a.equal(b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads_gives_the_same(threads):
    before = torch.get_num_threads()
    query, key, value = (torch.randn(3, 4, 130, 64) for _ in range(3))
    wanted = attention.flash(query, key, value, 0.0, True)
    try:
        torch.set_num_threads(threads)
        found = attention.flash(query, key, value, 0.0, True)
    finally:
        torch.set_num_threads(before)
    assert all(a.equal(b) for a, b in zip(found, wanted, strict=True))
