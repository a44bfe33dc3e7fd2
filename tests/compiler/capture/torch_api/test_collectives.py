"""Process groups and collectives in traced code: results as eager's, graphs as torch.compile's."""

from __future__ import annotations

import re
import warnings

import pytest
import torch
import torch.distributed as dist
from support import ROOT, succeed

import tc

warnings.filterwarnings("ignore", category=FutureWarning)
PROGRAM = ROOT / "tests/compiler/capture/torch_api/collective_programs.py"
#: name -> graphs under torch.compile
EXPECTED = {
    name: int(graphs or 1)
    for graphs, name in re.findall(r"@program\((\d*)\)\ndef (\w+)", PROGRAM.read_text())
}
BY_TC_ALONE = ("gradient_is_not_seen", "functional_gradient", "output_does_not_fit")


def graphs(entrance: str, *names: str) -> dict[str, int]:
    out = succeed(str(PROGRAM), entrance, *names, timeout=250, warm=True)
    found = re.findall(r"(\w+) rank \d: (\d+)", out)
    assert len(found) == 2 * len(names), out
    return {name: int(number) for name, number in found}


def test_two_ranks_capture_what_torch_compile_captures():
    assert graphs("tc", *EXPECTED) == EXPECTED


@pytest.mark.slow
def test_two_ranks_compute_what_eager_computes():
    graphs("full", *EXPECTED, *BY_TC_ALONE)


@pytest.mark.slow
def test_the_expected_graphs_are_those_of_torch_compile():
    assert graphs("torch", *EXPECTED) == EXPECTED


@pytest.mark.slow
def test_two_ranks_compute_what_eager_computes_for_all_sizes():
    graphs("sizes", *EXPECTED, *BY_TC_ALONE)


def test_a_job_that_starts_or_ends_is_seen(tmp_path):
    compiled = tc.compile(lambda x: x + (dist.get_world_size() if dist.is_initialized() else 10),
                          fullgraph=True)  # fmt: skip
    x = torch.zeros(1)
    assert compiled(x) == 10
    for number in range(2):
        store = dist.FileStore(str(tmp_path / str(number)), 1)
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        try:
            assert compiled(x) == 1
        finally:
            dist.destroy_process_group()
        assert compiled(x) == 10


def test_collectives_of_one_rank_capture_as_one_graph(tmp_path):
    def summed(x):
        y = x.sin()
        dist.all_reduce(y)
        return y * dist.get_world_size()

    x = torch.ones(3)
    with pytest.raises(ValueError, match="process group"):
        tc.compile(summed)(x)
    dist.init_process_group(
        "gloo", store=dist.FileStore(str(tmp_path / "s"), 1), rank=0, world_size=1
    )
    try:
        torch.testing.assert_close(tc.compile(summed, fullgraph=True)(x), summed(x))
    finally:
        dist.destroy_process_group()
