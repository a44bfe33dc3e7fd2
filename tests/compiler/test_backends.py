"""Backends by name: how they are registered, listed, called; the ones for debugging."""

from __future__ import annotations

import sys

import pytest
import torch

import tc
from tc.compiler import api
from tc.compiler.backends.debug import DEBUG_BACKENDS
from tc.compiler.backends.registry import BACKENDS
from tc.compiler.options import InductorOptions


def relu_sum(x):
    return torch.relu(x).sum()


@pytest.fixture(autouse=True)
def fresh():
    tc.reset()


def test_names_and_tags():
    assert tc.list_backends() == ["cudagraphs", "inductor", "tc"]
    everything = tc.list_backends(None)
    assert {"eager", "aot_eager", "inductor", *DEBUG_BACKENDS} <= set(everything)
    assert set(tc.list_backends(("debug",))) == {"cudagraphs", "inductor", "tc"}
    assert tc.lookup_backend("tc") is tc.lookup_backend("inductor")


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, InductorOptions(triton_cudagraphs=True)),
        ({"options": {"freezing": True}}, InductorOptions(triton_cudagraphs=True, freezing=True)),
        ({"options": {"triton.cudagraphs": False}}, InductorOptions()),
        ({"mode": "max-autotune-no-cudagraphs"}, InductorOptions(max_autotune=True)),
    ],
)
def test_cudagraphs_is_the_default_backend_with_an_option(settings, wanted):
    chosen = api.with_settings("cudagraphs", settings.get("mode"), settings.get("options"))
    assert chosen.func is tc.lookup_backend("inductor") and chosen.keywords["options"] == wanted
    compiled = tc.compile(relu_sum, backend="cudagraphs", **settings)
    torch.testing.assert_close(compiled(torch.ones(3)), torch.tensor(3.0))


def test_a_name_is_registered_once():
    @tc.register_backend(name="mine", tags=("experimental",))
    def backend(gm, example_inputs):
        return gm.forward

    try:
        assert tc.lookup_backend("mine") is backend
        assert "mine" not in tc.list_backends() and "mine" in tc.list_backends(("debug",))
        for name in ("mine", "inductor"):
            with pytest.raises(ValueError, match=name):
                tc.register_backend(backend, name)
    finally:
        del BACKENDS._rows["mine"]


def test_backends_of_other_packages_are_found_by_their_entry_points(tmp_path, monkeypatch):
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[torch_dynamo_backends]\ntheirs = their_backend:run\nlost = their_backend:none\n"
    )
    (tmp_path / "their_backend.py").write_text(
        "seen = []\ndef run(gm, inputs, **settings):\n    seen.append(settings)\n"
        "    return gm.forward\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    x = torch.randn(5)
    try:
        assert {"theirs", "lost"} <= set(tc.list_backends())
        compiled = tc.compile(relu_sum, backend="theirs", options={"level": 3})
        torch.testing.assert_close(compiled(x), relu_sum(x))
        assert sys.modules["their_backend"].seen == [{"options": {"level": 3}}]
        with pytest.raises(tc.exc.OptionError, match="'lost' of their_backend:none does not load"):
            tc.compile(relu_sum, backend="lost")
        with pytest.raises(tc.exc.OptionError, match="did you mean 'theirs'"):
            tc.compile(relu_sum, backend="their")
    finally:
        BACKENDS._rows.pop("theirs", None)


def test_backends_of_torch_itself_do_not_replace_those_of_tc():
    got = tc.lookup_backend("inductor")

    def inductor(gm, example_inputs):
        raise AssertionError

    inductor.__module__ = "torch._somewhere"
    assert tc.register_backend(inductor) is inductor
    assert tc.lookup_backend("inductor") is got


@pytest.mark.parametrize(
    "name", ["eager", "eager_noexcept", "eager_debug", "pre_dispatch_eager", "aot_eager", "ts"]
)
def test_debug_backends_give_the_same(name):
    x = torch.randn(5)
    compiled = tc.compile(relu_sum, backend=name, fullgraph=True)
    torch.testing.assert_close(compiled(x), relu_sum(x))


def test_backends_that_fail_do_so_where_a_relu_is():
    x = torch.randn(5)
    with pytest.raises(tc.exc.BackendCompilerFailed, match="ReluCompileError"):
        tc.compile(relu_sum, backend="relu_compile_error_TESTING_ONLY")(x)
    with pytest.raises(RuntimeError, match="a relu"):
        tc.compile(relu_sum, backend="relu_runtime_error_TESTING_ONLY")(x)
    wrong = tc.compile(relu_sum, backend="relu_accuracy_error_TESTING_ONLY")(x)
    assert not torch.equal(wrong, relu_sum(x))
    for name in DEBUG_BACKENDS:
        if name.startswith("relu"):
            tc.reset()
            torch.testing.assert_close(tc.compile(torch.sin, backend=name)(x), x.sin())
    with pytest.raises(tc.exc.BackendCompilerFailed, match="NonLeafCompileError"):
        y = x.requires_grad_() * 1
        tc.compile(lambda y: torch.sin(y), backend="non_leaf_compile_error_TESTING_ONLY")(y)


def test_verify_correctness_compares_with_the_captured_graph():
    x = torch.randn(5)
    with tc.config.patch(verify_correctness=True):
        torch.testing.assert_close(tc.compile(relu_sum, backend="ts")(x), relu_sum(x))
        with pytest.raises(RuntimeError, match="another result"):
            tc.reset()
            tc.compile(relu_sum, backend="relu_accuracy_error_TESTING_ONLY")(x)


def test_mode_and_options_reach_a_backend_of_the_users():
    got = {}

    def backend(gm, example_inputs, **settings):
        got.update(settings)
        return gm.forward

    tc.compile(relu_sum, backend=backend)(torch.ones(2))
    assert got == {}
    tc.compile(relu_sum, backend=backend, mode="max-autotune", options={"a": 1})(torch.ones(2))
    assert got == {"mode": "max-autotune", "options": {"a": 1}}


def test_default_backend():
    graphs = []
    assert tc.get_default_backend() == "inductor"
    tc.set_default_backend(lambda gm, example_inputs: graphs.append(gm) or gm.forward)
    try:
        tc.compile(relu_sum)(torch.ones(2))
        assert len(graphs) == 1
        with pytest.raises(tc.exc.OptionError):
            tc.set_default_backend("no such")
    finally:
        tc.set_default_backend(None)
    assert tc.get_default_backend() == "inductor"
