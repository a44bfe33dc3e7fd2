"""Of a large job the page holds a rank of each kind; of a small one all."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from torch_log import job_of, torch_log

from tc.tlparse.kept import MOST_LANES, kept
from tc.tlparse.report import render
from tc.trace.findings import diagnose
from tc.trace.session import load


def index_of(page: str) -> dict[str, Any]:
    text = re.search(r'<script type="application/json" id="index">(.*?)</script>', page, re.S)
    assert text
    found: dict[str, Any] = json.loads(text[1])
    return found


def job(folder: Path, ranks: int, odd: tuple[int, ...] = ()) -> str:
    """Write small logs of many ranks; the odd ones break, the others do not. Return the page."""
    for rank in range(ranks):
        rows: list[tuple[dict[str, Any], str | None]] = [
            ({"dynamo_start": {"stack": [{"line": 3, "name": "f", "filename": -1}]},
              "frame_id": 0, "frame_compile_id": 0, "attempt": 0, "rank": rank}, None),
        ]  # fmt: skip
        if rank in odd:
            at = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0, "rank": rank}
            name = {"name": "dynamo_graph_break_reason", "encoding": "string"}
            rows.append(({"artifact": name, **at}, "Graph break: print"))
        torch_log(folder, *rows)
        log = folder / "dedicated_log_torch_trace_x.log"
        text = log.read_text().replace(" 1 torch/x.py", f" {rank + 1} torch/x.py")
        (folder / f"dedicated_log_torch_trace_rank_{rank}_x.log").write_text(text)
        log.unlink()
    return str(folder)


def test_a_rank_of_each_kind_of_many(tmp_path: Path) -> None:
    found = diagnose(load(job(tmp_path, 40, odd=(29, 39))))
    shown = kept(found)
    labels = [lane.label for lane in shown.lanes]
    assert (len(labels), labels[0], "rank 29" in labels) == (MOST_LANES, "rank 0", True)
    assert "rank 39" not in labels
    assert shown.left_out == 40 - MOST_LANES
    assert {one.lane for one in shown.compiles} == set(shown.lanes)
    index = index_of(b"".join(render(found)).decode())
    assert (index["laneCount"], index["totals"]["compiles"], index["raw"]["logs"]) == (40, 40, 40)
    assert len(index["compiles"]) == MOST_LANES
    (function,) = index["functions"]
    assert (function["compileCount"], len(function["compiles"])) == (40, MOST_LANES)
    assert [one["count"] for one in index["findings"] if one["code"] == "TC199"] == [2]


def test_all_of_a_few(tmp_path: Path) -> None:
    shown = kept(diagnose(load(job(tmp_path, MOST_LANES))))
    assert (len(shown.lanes), shown.left_out) == (MOST_LANES, 0)


@pytest.mark.slow
def test_a_page_does_not_grow_with_ranks_that_do_the_same(tmp_path: Path) -> None:
    sizes = []
    for ranks in (20, 300):
        folder = tmp_path / str(ranks)
        folder.mkdir()
        sizes.append(len(b"".join(render(diagnose(load(job_of(folder, ranks)))))))
    assert sizes[1] < sizes[0] * 1.2
