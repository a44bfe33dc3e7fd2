"""Recurrent networks of several layers draw the dropout between them as eager does."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tc
from tc.trace.emit import capture_events
from tc.trace.events import GraphBreak

NETWORKS = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "tanh": nn.RNN,
    "relu": lambda *args, **kwargs: nn.RNN(*args, nonlinearity="relu", **kwargs),
}
KINDS = [
    {},
    {"batch_first": True},
    {"bidirectional": True},
    {"bias": False, "batch_first": True, "bidirectional": True},
]


def run(network, function, *args):
    """Return what a function gives, the gradients, and where the random stream is afterwards."""
    torch.manual_seed(3)
    out, last = function(*args)
    ends = last if isinstance(last, tuple) else (last,)
    loss = sum((value * value).sum() for value in (out, *ends))
    grads = torch.autograd.grad(loss, [*network.parameters()])
    return [out, *ends, *grads, torch.rand(1)]


def same(network, function, *args):
    tc.reset()
    expected = run(network, function, *args)
    found = run(network, tc.compile(function, fullgraph=True), *args)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_dropout_between_layers(name, kind):
    network = NETWORKS[name](3, 4, 2, dropout=0.5, **kind)
    same(network, network.forward, torch.randn(2, 2, 3))


@pytest.mark.parametrize("name", ("lstm", "gru"))
def test_packed_sequences(name):
    network = NETWORKS[name](3, 4, 2, dropout=0.5)

    def packed(x):
        sequence = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([2, 1]))
        out, last = network(sequence)
        return out.data, last

    tc.reset()
    x = torch.randn(2, 2, 3)
    found, expected = run(network, tc.compile(packed), x), run(network, packed, x)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("apart", [False, True])
def test_a_break_at_packed_sequences_names_no_error_of_eager_and_its_way_out_works(apart):
    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = nn.GRU(3, 4, batch_first=True)

        def read(self, x, lengths):
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
            return nn.utils.rnn.pad_packed_sequence(self.network(packed)[0], batch_first=True)[0]

        def forward(self, x, lengths):
            return self.read(x.sin(), lengths).exp()

    if apart:
        Reads.read = torch.compiler.disable(Reads.read)
    module, given = Reads(), (torch.randn(2, 3, 3), torch.tensor([3, 2]))
    with capture_events() as events:
        torch.testing.assert_close(tc.compile(module)(*given), module(*given))
    broken = [one for one in events if isinstance(one, GraphBreak)]
    if apart:
        assert {one.code for one in broken} == {"TC106"}
    else:
        assert {one.code for one in broken} == {"TC101", "TC102"}
        assert {one.fix for one in broken} == {broken[0].fix} and "disable" in broken[0].fix[0]


def test_given_states_and_evaluation():
    network = nn.LSTM(3, 4, 2, dropout=0.5, proj_size=2)
    states = (torch.randn(2, 2, 2), torch.randn(2, 2, 4))
    same(network, network.forward, torch.randn(2, 2, 3), states)
    network.eval()
    same(network, network.forward, torch.randn(2, 2, 3), states)


def test_gradients_of_both_directions_at_symbolic_sizes():
    torch.manual_seed(0)
    module = nn.RNN(4, 6, bidirectional=True, batch_first=True)
    compiled = tc.compile(lambda x: module(x)[0], dynamic=True)
    for batch, length in ((4, 2), (7, 2)):
        start, found = torch.randn(batch, length, 4), []
        for call in (lambda x: module(x)[0], compiled):
            x = start.clone().requires_grad_()
            out = call(x)
            (out * torch.arange(out.numel()).reshape(out.shape).cos()).sum().backward()
            found.append([x.grad, *(p.grad.clone() for p in module.parameters())])
            module.zero_grad()
        torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)


class Tagger(nn.Module):
    """A network between other layers, over a sequence of any length."""

    def __init__(self, make, kind):
        super().__init__()
        self.embed = nn.Embedding(7, 3)
        self.network = make(3, 4, **kind)
        self.head = nn.Linear(8 if kind.get("bidirectional") else 4, 2)

    def forward(self, index):
        x = self.embed(index) * 2
        return torch.relu(self.head(self.network(x)[0]))


@pytest.mark.sample(2)
@pytest.mark.parametrize("train", (False, True))
@pytest.mark.parametrize("kind", [{}, {"num_layers": 2, "dropout": 0.5}, KINDS[2]], ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_changing_length_is_compiled_once(name, kind, train):
    tc.reset()
    torch.manual_seed(5)
    module, graphs = Tagger(NETWORKS[name], kind), []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    def run(function, length):
        torch.manual_seed(length)
        index = torch.randint(7, (length, 2))
        with torch.set_grad_enabled(train):
            out = function(index)
        return [out, *(torch.autograd.grad(out.sum(), [*module.parameters()]) if train else ())]

    functions = [tc.compile(module, backend=backend)]
    if name == "gru" and not kind:
        functions.append(tc.compile(module))
    for length in (2, 3, 4, 5, 6, 7):
        expected = run(module, length)
        for function in functions:
            for one, other in zip(run(function, length), expected, strict=True):
                torch.testing.assert_close(one, other)
        if length == 4:  # each part has had two lengths
            known = len(graphs)
    assert len(graphs) == known
