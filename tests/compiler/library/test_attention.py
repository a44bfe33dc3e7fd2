"""Attention on the CPU goes to tc's routine where that is faster, and the choice is reported."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from loop_harness import externs, trace

import tc
from tc.compiler import library
from tc.compiler.core.gate import Gate
from tc.compiler.loops.lower.graph import lower
from tc.compiler.routines import attention

pytestmark = pytest.mark.skipif(
    attention.ROUTINE.kernel(torch.float32) is None, reason="no vectors of 512 bits"
)


@pytest.fixture(autouse=True)
def fresh():
    tc.reset()
    yield
    tc.reset()


@pytest.fixture
def calls(monkeypatch):
    """Names of the routines called, as the wrappers look them up when they are loaded."""
    made = []

    def counted(name):
        original = getattr(attention, name)

        def call(*args, **kwargs):
            made.append(name)
            return original(*args, **kwargs)

        return call

    for name in ("flash", "flash_alone"):
        monkeypatch.setattr(attention, name, counted(name))
    return made


def attend(q, k, v, **options):
    return F.scaled_dot_product_attention(q, k, v, **options) * 2


def parts(t=64, d=32, **options):
    return [torch.randn(2, 4, t, d, **options) for _ in range(3)]


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.5}], ids=str)
def test_inference_computes_no_logarithm(options, calls):
    given = parts()
    found = tc.compile(attend)(*given, **options)
    torch.testing.assert_close(found, attend(*given, **options), rtol=2e-5, atol=5e-6)
    assert calls == ["flash_alone"]


def test_a_mask_of_bools(calls):
    given, mask = parts(), torch.rand(2, 1, 64, 64) < 0.7
    found = tc.compile(attend)(*given, attn_mask=mask)
    torch.testing.assert_close(found, attend(*given, attn_mask=mask), rtol=2e-5, atol=5e-6)
    assert calls == ["flash_alone"]


def test_gradients(calls):
    given = parts(requires_grad=True)
    twins = [part.detach().clone().requires_grad_() for part in given]
    tc.compile(attend)(*given, is_causal=True).sin().sum().backward()
    attend(*twins, is_causal=True).sin().sum().backward()
    for part, twin in zip(given, twins, strict=True):
        torch.testing.assert_close(part.grad, twin.grad, rtol=1e-4, atol=1e-5)
    assert calls == ["flash"]


def test_a_model_whose_length_varies(calls):
    compiled = tc.compile(attend, dynamic=True)
    for t in (64, 80, 8):
        given = parts(t)
        found = compiled(*given, is_causal=True)
        torch.testing.assert_close(found, attend(*given, is_causal=True), rtol=2e-5, atol=5e-6)
    assert len(calls) == 3


@pytest.mark.parametrize("given", [parts(8), parts(64, 20), parts(dtype=torch.float64)])
def test_the_rest_stays_with_aten(given, calls):
    found = tc.compile(attend)(*given)
    torch.testing.assert_close(found, attend(*given), rtol=2e-5, atol=5e-6)
    assert not calls


def test_the_choice_is_reported_and_the_gate_can_refuse_it():
    aten = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu

    def made(gate):
        module = trace(lambda q, k, v: aten(q, k, v)[0], tuple(parts()))
        decisions = library.arrange(module, gate)
        (reported,) = [d for d in decisions if d.kind == "attention"]
        return reported, externs(lower(module, gate))

    reported, called = made(Gate())
    assert reported.taken and called == ["attention.flash_alone"]
    reported, called = made(Gate({"library.attention": 1}))
    assert not reported.taken and called == [
        "aten._scaled_dot_product_flash_attention_for_cpu.default"
    ]
