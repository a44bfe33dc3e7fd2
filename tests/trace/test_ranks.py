"""Ranks of a job: who did the same, where the others first did otherwise, and why."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from real_traces import unpacked

from tc.trace.compiles import Lane
from tc.trace.findings import Diagnosis, diagnose
from tc.trace.ranks import aligned, estimates, names_of, steps_of
from tc.trace.session import load

GRAPH = (
    'def forward(self, L_x_: "f32[8]cuda:{rank}"):\n    x = L_x_\n    # File: m.py:3\n'
    "    y = x.{op}();  x = None\n"
)
REDUCE = "torch.ops._c10d_functional.all_reduce_.default"


def record(rank: int, second: int, name: str, payload: str | None, **ids: int) -> str:
    head = f"V1120 09:00:{second:02}.000000 {100 + rank} torch/x.py:1] "
    event: dict[str, object] = {"artifact": {"name": name, "encoding": "string"}}
    if name.startswith("dynamo_"):
        event = {name: {}}
    if name == "dynamo_start":
        event = {name: {"stack": [{"line": 3, "name": "step", "filename": -1}]}}
    envelope: dict[str, object] = {**event, **ids, "rank": rank}
    if payload is None:
        return head + json.dumps(envelope) + "\n"
    envelope["has_payload"] = hashlib.md5(payload.encode()).hexdigest()
    rows = "".join(f"\t{row}\n" for row in payload.split("\n"))
    return head + json.dumps(envelope) + "\n" + rows


def write_rank(
    folder: Path,
    rank: int,
    *,
    ops: Sequence[str] = ("sin",),
    cache: str = "miss",
    sends: int = 1,
    slow: float = 1.0,
    width: int = 8,
) -> None:
    text = ""
    for number, op in enumerate(ops):
        ids = {"frame_id": number, "frame_compile_id": 0, "attempt": 0}
        meta = {"ops": [{"name": "k", "type": "compute", "estimated_runtime_ns": slow * 1e6,
                         "outputs": [{"shape": [width]}]}]}  # fmt: skip
        for name, payload in (
            ("dynamo_start", None),
            ("dynamo_output_graph", GRAPH.format(rank=rank, op=op)),
            ("inductor_collective_schedule", json.dumps([REDUCE] * sends)),
            ("inductor_runtime_and_tensor_meta", json.dumps(meta)),
            (f"fx_graph_cache_{cache}", "{}"),
        ):
            text += record(rank, number, name, payload, **ids)
    (folder / f"dedicated_log_torch_trace_rank_{rank}_x.log").write_text(text)


def test_a_name_for_an_input_is_no_operation(tmp_path: Path) -> None:
    write_rank(tmp_path, 0)
    session = load(tmp_path)
    words = [step.words for one in session.compiles for step in steps_of(session, one)]
    assert "captured a graph of 1 operation" in words


def read(folder: Path) -> Diagnosis:
    return diagnose(load(folder))


def codes(diagnosis: Diagnosis) -> list[str]:
    return [one.code for one in diagnosis.findings]


def test_a_real_desynchronisation_is_explained() -> None:
    found = diagnose(load(unpacked() / "two_rank"))
    (one,) = found.ranks.divergences
    assert (one.most.name, one.group.name, one.of_most) == ("rank 0", "rank 1", None)
    assert one.of_group is not None and one.of_group.words == "compiled f [0/1]"
    assert one.chain[0] == "rank 1: x.shape[0]: 8 → 16"
    assert "all_reduce: compiled 2 times on rank 1, 1 on rank 0" in one.chain[-1]
    (finding,) = [f for f in found.findings if f.code == "TC601"]
    assert finding.fix[0].endswith("mark_dynamic(x, 0) before the first call")
    assert finding.where.short == "two_rank.py:6 in f"


def test_ranks_that_agree_are_one_group(tmp_path: Path) -> None:
    for rank in range(4):
        write_rank(tmp_path, rank, ops=("sin", "cos"))
    found = read(tmp_path)
    (group,) = found.ranks.groups
    assert (group.name, len(group.steps)) == ("ranks 0–3", 8)
    assert group.collectives == {"all_reduce": 2}
    assert "TC601" not in codes(found)


def test_most_ranks_are_the_measure_and_each_difference_has_its_words(tmp_path: Path) -> None:
    for rank in range(8):
        write_rank(tmp_path, rank)
    write_rank(tmp_path, 0, ops=("cos",))
    write_rank(tmp_path, 3, cache="hit")
    write_rank(tmp_path, 5, sends=2)
    write_rank(tmp_path, 6, ops=("sin", "tan"))
    found = read(tmp_path)
    titles = sorted(one.title for one in found.findings if one.code == "TC601")
    assert titles == [
        "rank 0 captured another graph than ranks 1–2, 4, 7",
        "rank 3 met another cache than ranks 1–2, 4, 7",
        "rank 5 has other collectives than ranks 1–2, 4, 7",
        "rank 6 compiled step [1/0], ranks 1–2, 4, 7 did not",
    ]
    by_name = {one.group.name: one for one in found.ranks.divergences}
    assert by_name["rank 3"].chain[:2] == (
        "ranks 1–2, 4, 7 missed the fx graph cache",
        "rank 3 hit the fx graph cache",
    )
    rows = aligned(by_name["rank 3"].most, by_name["rank 3"].group)
    assert [alike for alike, _, _ in rows] == [3]


def test_another_compile_comes_before_another_cache(tmp_path: Path) -> None:
    """Which of two ranks finds what the other has compiled is a race, its compiles are not."""
    for cache in ("miss", "hit"):
        folder = tmp_path / cache
        folder.mkdir()
        write_rank(folder, 0)
        write_rank(folder, 1, ops=("sin", "cos"), cache=cache)
        (finding,) = [one for one in diagnose(load(folder)).findings if one.code == "TC601"]
        assert finding.title == "rank 1 compiled step [1/0], rank 0 did not", cache


def test_what_a_rank_found_in_its_cache_counts_where_nothing_else_differs(tmp_path: Path) -> None:
    for rank in range(3):
        write_rank(tmp_path, rank)
    write_rank(tmp_path, 2, cache="hit", ops=("sin", "tan"))
    (one,) = (one for one in read(tmp_path).findings if one.code == "TC601")
    assert one.title == "rank 2 compiled step [1/0], ranks 0–1 did not"


def test_the_id_of_a_divergence_names_no_rank(tmp_path: Path) -> None:
    ids = set()
    for odd in (1, 3):
        folder = tmp_path / str(odd)
        folder.mkdir()
        for rank in range(4):
            write_rank(folder, rank, cache="hit" if rank == odd else "miss")
        ids |= {one.id for one in read(folder).findings if one.code == "TC601"}
    assert len(ids) == 1


def test_estimated_run_times_are_no_difference_of_tensors(tmp_path: Path) -> None:
    for rank in range(3):
        write_rank(tmp_path, rank, slow=1.0 + rank)
    (one,) = estimates(read(tmp_path).session)
    assert (one.compile, one.operations, one.same_tensors) == ("0/0", 1, True)
    assert sorted(one.seconds.values()) == [0.001, 0.002, 0.003]
    write_rank(tmp_path, 2, width=9)
    (one,) = estimates(read(tmp_path).session)
    assert not one.same_tensors


def test_one_process_has_no_ranks_to_compare() -> None:
    assert diagnose(load(unpacked() / "simple")).ranks.groups == ()


def test_many_runs_of_ranks_are_counted() -> None:
    lanes = [Lane(n, f"rank {n}") for n in range(100) if n % 10 != 9]
    assert names_of(lanes) == "90 ranks (0–8, 10–18, …)"
    assert names_of(lanes, len(lanes)).endswith(", 80–88, 90–98")
    assert names_of(lanes[:18]) == "ranks 0–8, 10–18"
