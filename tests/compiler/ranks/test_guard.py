"""Jobs of real processes under the guard: divergences are reported, healthy jobs are left alone."""

from __future__ import annotations

import re

import pytest
from support import ROOT, python, succeed

PROGRAM = str(ROOT / "tests/compiler/ranks/rank_program.py")
TRAINING = str(ROOT / "tests/compiler/ranks/training_program.py")


def run(*arguments: str) -> dict[str, str]:
    """Return what the ranks of each plan print."""
    out = succeed(PROGRAM, *arguments, timeout=250, warm=True)
    found: dict[str, str] = {}
    for row in out.splitlines():
        plan = re.match(r"(\w+)(?: rank \d+)?: ", row)
        if plan:
            found[plan[1]] = found.get(plan[1], "") + row + "\n"
    return found


def test_jobs_of_two_ranks():
    plans = ("healthy", "other_collective", "in_backward")
    found = run("2", "tc", *plans)
    assert "healthy: ended well" in found["healthy"] and "diverged" not in found["healthy"]
    diverged = found["other_collective"]
    assert "where rank 0 issued all_reduce of 4 × float32 (rank_program.py:" in diverged
    assert "for the 2nd time because x.shape[0]: 4 -> 5; rank 0 did not" in diverged
    assert "other_collective rank 1: raised RanksDiverged" in diverged
    assert "number" in found["in_backward"] and "where rank 1 has ended" in found["in_backward"]
    assert not any("hung" in text for text in found.values())


@pytest.mark.slow
def test_a_peer_that_is_gone_is_named_however_the_failure_comes():
    plans = ("again", "unwaited", "silent", "caught", "left")
    found = run("2", "tc", *plans)
    for plan in ("again", "unwaited"):
        assert f"{plan}: ended well" in found[plan] and "diverged" not in found[plan], plan
    assert "where rank 1 no longer answers; by its last word it is at" in found["silent"]
    assert "where rank 1 has ended" in found["caught"]
    assert "where rank 1 has ended" in found["left"]
    assert not any("hung" in text for text in found.values())


@pytest.mark.slow
@pytest.mark.parametrize("entrance", ["full", "torch"])
def test_jobs_of_three_ranks(entrance: str):
    plans = ("healthy", "training", "late", "other_collective", "missing_collective",
             "in_a_graph", "without_compile")  # fmt: skip
    found = run("3", entrance, *plans)
    for plan in ("healthy", "training", "late"):
        assert f"{plan}: ended well" in found[plan] and "diverged" not in found[plan]
    assert "late rank 0: waits" in found["late"]
    for plan in ("other_collective", "missing_collective", "in_a_graph", "without_compile"):
        assert "ranks diverged: rank" in found[plan], plan
    assert "outside of compiled functions" in found["without_compile"]
    assert not any("hung" in text for text in found.values())


GRAPHS = {"ddp": 4, "ddp_inside": 4, "ddp_normed": 2, "ddp_broken": 3, "ddp_dynamic": 4,
          "ddp_static": 4, "fsdp": 1, "fsdp_in_place": 1, "fsdp_one_by_one": 1,
          "fsdp_normed": 1}  # fmt: skip


def check_training(ranks: int, *kinds: str) -> None:
    out = succeed(TRAINING, str(ranks), *kinds, timeout=250, warm=True)
    for kind in kinds:
        for rank in range(ranks):
            assert f"{kind} rank {rank}: {GRAPHS[kind]} graphs" in out


@pytest.mark.slow
def test_ranks_train_as_eager_under_ddp_and_fsdp2():
    check_training(2, "ddp", "fsdp", "fsdp_one_by_one")


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_all_ways_to_spread_a_model(ranks: int):
    check_training(ranks, *GRAPHS)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("entrance", ["tc", "backend"])
def test_training_under_torchrun(entrance: str, ranks: int):
    program = str(ROOT / "tests/compiler/ranks/torchrun_program.py")
    launcher = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}")
    done = python(*launcher, program, entrance, timeout=250, variables={"OMP_NUM_THREADS": "1"})
    assert done.stdout.count(f" of {ranks}: equal") == ranks, done.stderr
