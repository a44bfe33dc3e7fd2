"""From the user's lines to the nodes and kernels of forward and backward, and back."""

from __future__ import annotations

import json
import re
import sys

import pytest
import torch
import torch.nn.functional as F
from aot_harness import training_of
from support import ROOT
from torch import nn

import tc
from tc import trace
from tc.compiler.core.origins import line_of

sys.path.insert(0, str(ROOT / "examples"))
import gpt


class Events:
    """Collects what is reported while a block runs."""

    def __init__(self):
        self.events = []

    def write(self, stamped):
        self.events.append(stamped.event)

    def __enter__(self):
        trace.add_sink(self)
        return self

    def __exit__(self, *_):
        trace.remove_sink(self)

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]


def test_all_nodes_of_the_demo_know_their_line():
    graphs = training_of(gpt.GPT(32, 2, 2), torch.randint(256, (2, 16)))
    for graph in (graphs.forward, graphs.backward):
        lines = {n.name: line_of(n) for n in graph.module.graph.nodes if n.op == "call_function"}
        here = str(ROOT / "examples/gpt.py")
        assert {line.rpartition(":")[0] for line in lines.values()} == {here}, lines


def test_the_demo_keeps_less_than_eager():
    model, tokens = gpt.GPT(64, 4, 1), torch.randint(256, (2, 32))
    storages = {}

    def note(tensor):
        storages[tensor.untyped_storage()._cdata] = tensor
        return tensor

    given = {value.untyped_storage()._cdata for value in (*model.parameters(), tokens)}
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        logits = model(tokens)
    kept = sum(t.untyped_storage().nbytes() for key, t in storages.items() if key not in given)
    partition = training_of(model, tokens).partition
    assert partition.facts()["bytes"] < 0.75 * kept and logits.requires_grad


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(140, 140), nn.Linear(140, 140)

    def forward(self, x):
        x = F.gelu(self.first(x))
        x = self.second(x).sin()
        return x.sum()


FIRST = Two.forward.__code__.co_firstlineno + 1


@pytest.fixture(scope="module")
def reported():
    with Events() as events:
        tc.compile(Two(), fullgraph=True)(torch.randn(160, 140)).backward()
    return events


def test_a_line_leads_to_its_kernels_in_both_graphs(reported):
    maps = {event.facts["graph"]: event.facts["lines"] for event in reported.of(trace.Provenance)}
    assert set(maps) == {"forward", "backward"}
    for kind, lines in maps.items():
        for line, op in ((FIRST, "gelu"), (FIRST + 1, "sin" if kind == "forward" else "mul")):
            entry = lines[f"{__file__}:{line}"]
            assert any(op in kernel for kernel in entry["kernels"]), (kind, entry)
            products = [
                *entry["calls"],
                *entry["kernels"],
            ]  # ATen's, or a routine of tc where the CPU has one
            assert entry["nodes"] and any(re.search("mm|linear", name) for name in products), entry


def test_kernels_lead_back_to_lines_and_nodes(reported):
    programs = reported.of(trace.OutputCode)
    for event, program in zip(reported.of(trace.Provenance), programs, strict=True):
        graph = next(g for g in reported.of(trace.AtenGraph) if g.kind == event.facts["graph"])
        for entry in event.facts["lines"].values():
            assert all(f"void {kernel}(" in program.code for kernel in entry["kernels"])
            assert all(f"  {node}: " in graph.code for node in entry["nodes"])


def test_the_partition_is_reported_with_lines_and_reasons(reported):
    (event,) = reported.of(trace.Partition)
    facts = json.loads(json.dumps(event.facts))
    extra = [value for value in facts["kept"] if value["kind"] == "extra"]
    assert facts["bytes"] == sum(value["bytes"] for value in extra) > 0
    assert {value["line"] for value in extra} <= {f"{__file__}:{FIRST + i}" for i in range(3)}
    assert all(value["reason"] and value["type"] for value in facts["kept"])
    gelu = next(value for value in facts["again"] if value["op"] == "aten.gelu")
    assert gelu["line"] == f"{__file__}:{FIRST}" and gelu["bytes"] == 160 * 140 * 4
