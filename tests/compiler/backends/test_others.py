"""Backends of other packages: what is between them and tc's capture makes their results right."""

from __future__ import annotations

import copy
import logging
import sys
from importlib.metadata import EntryPoint

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import tc
import tc.compiler.api  # fills the tables that are replaced here
from tc.compiler.backends import others, registry

NAME = "bakes"


def bakes(gm, example_inputs, options=None):
    """Trace the graph on its inputs, so that sizes become constants; give results in old memory."""
    assert all(type(one) in (torch.Tensor, nn.Parameter) for one in example_inputs)
    traced = make_fx(gm)(*example_inputs)
    kept = []
    SEEN.append((len(traced.graph.nodes), options))

    def call(*args):
        with torch.no_grad():
            made = traced(*args)
        if not kept:
            kept.extend(one.clone() for one in made)
        return [old.copy_(new) for old, new in zip(kept, made, strict=True)]

    return call


SEEN: list[object] = []


@pytest.fixture
def backend(monkeypatch):
    """A package's backend of the name `bakes`, that needs what OpenVINO's needs."""
    point = EntryPoint(NAME, f"{__name__}:bakes", registry.TORCH_BACKENDS)
    monkeypatch.setattr(EntryPoint, "load", lambda self: bakes)
    monkeypatch.setattr(registry, "installed_backends", lambda: {NAME: point})
    monkeypatch.setattr(
        registry, "ADAPTERS", type("T", (dict,), {"rows": dict.items})({NAME: others.pure})
    )
    monkeypatch.setattr(registry, "BACKENDS", _without(registry.BACKENDS, NAME))
    SEEN.clear()
    tc.reset()
    return NAME


def _without(table, name):
    made = type(table)("backends")
    for key, row in table.rows():
        if key != name:
            made.add(key, row)
    return made


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.last = nn.Conv2d(3, 8, 3), nn.Linear(8, 4)

    def forward(self, x):
        return self.last(torch.relu(self.conv(x)).mean((2, 3)))


def close(got, theirs):
    torch.testing.assert_close(got, theirs, rtol=5e-2, atol=5e-2)  # OpenVINO rounds to bfloat16


def check(name):
    """Inference at several sizes, results that stay, writes, sizes as numbers, and training."""
    torch.manual_seed(0)
    model, x = Net().eval(), torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        f = tc.compile(model, backend=name)
        first, want = f(x), model(x)
        for size in (2, 1, 5):
            other = torch.randn(size, 3, 16, 16)
            close(f(other), model(other))
        close(first, want)

    def writes(x):
        x.add_(1)
        return x * 2

    got, theirs = torch.ones(3), torch.ones(3)
    close(tc.compile(writes, backend=name)(got), writes(theirs))
    close(got, theirs)

    def sized(x):
        return (x * 2).sum(-1) + x.shape[0]

    g = tc.compile(sized, backend=name)
    for size in (3, 4, 5):
        close(g(torch.ones(size, 2)), sized(torch.ones(size, 2)))

    twin = copy.deepcopy(model)
    trained = tc.compile(twin, backend=name)
    for _ in range(2):  # gradients add up
        trained(x).sum().backward()
        model(x).sum().backward()
    for mine, other in zip(twin.parameters(), model.parameters(), strict=True):
        close(mine.grad, other.grad)


def test_a_backend_that_traces_on_its_inputs(backend):
    check(backend)
    assert len(SEEN) >= 8


def test_settings_reach_it(backend):
    tc.compile(lambda x: x + 1, backend=backend, options={"device": "CPU"})(torch.ones(2))
    assert SEEN == [(3, {"device": "CPU"})]


def test_dynamic_sizes_are_declined(backend, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr("tc.trace.warn", said.append)
    f = tc.compile(lambda x: x * x.shape[0], backend=backend, dynamic=True)
    for size in (2, 3):
        close(f(torch.ones(size)), torch.ones(size) * size)
    assert len(said) == 1 and "fixed sizes" in said[0]


@pytest.mark.parametrize("name", ["onnxrt", "tvm", "openxla"])
def test_names_of_torch_alone_say_what_to_use(name):
    with pytest.raises(tc.exc.OptionError, match=f"no backend '{name}': "):
        tc.compile(torch.sin, backend=name)


def test_openvino(caplog):
    pytest.importorskip("openvino")
    with caplog.at_level(logging.DEBUG, "openvino.frontend.pytorch.torchdynamo.execute"):
        check("openvino")
    said = [record.getMessage() for record in caplog.records]
    assert "OpenVINO graph execution successful" in said
    assert not [one for one in said if "Falling back" in one]


def test_a_backend_that_the_program_registered_with_torch():
    torch.compile(lambda x: x, backend="eager")  # loads PyTorch's registry
    known = sys.modules["torch._dynamo.backends.registry"]
    seen, x = [], torch.ones(3)

    def sine(x):
        return x.sin()

    def counted(gm, inputs):
        seen.append(gm)
        return gm.forward

    known.register_backend(counted, name="of_a_test")
    try:
        tc.reset()
        assert torch.equal(tc.compile(sine, backend="of_a_test")(x), x.sin())
        assert len(seen) == 1
        with pytest.raises(tc.exc.InvalidBackend, match="there is no backend"):
            tc.compile(sine, backend="of_no_test")(x)
    finally:
        del known._COMPILER_FNS["of_a_test"], known._BACKENDS["of_a_test"]
