"""Steps of optimizers under ``torch.compile(..., backend="tc")``."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from tc import trace

OPTIMIZERS = {
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.1),
    "rate in a tensor": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.1), amsgrad=True),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "one by one": lambda p: torch.optim.RMSprop(p, momentum=0.5, centered=True, foreach=False),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_step(name):
    """PyTorch's graph holds parameters and state, and writes to them."""
    theirs = nn.Linear(4, 4)
    got = copy.deepcopy(theirs)
    pairs = [(m, OPTIMIZERS[name](m.parameters())) for m in (theirs, got)]
    step = torch.compile(lambda: pairs[1][1].step(), backend="tc")
    with trace.capture_events() as events:
        for _ in range(3):
            x = torch.randn(3, 4)
            for model, optimizer in pairs:
                optimizer.zero_grad()
                model(x).sum().backward()
            pairs[0][1].step()
            step()
    assert [e for e in events.of(trace.Artifact) if e.name == "tc_graph_runs_eagerly"] == []
    assert "prims.fma" not in "".join(one.code for one in events.of(trace.OutputCode))
    torch.testing.assert_close(got.state_dict(), theirs.state_dict())
