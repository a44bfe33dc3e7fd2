"""The guard over ranks, measured: divergences planted at random, and jobs without any.

    python bench/rank_guard.py --trials 20 --healthy 10 --ranks 2,3,4

Each job is a random program: compiled functions over data of other sizes on each rank (they
recompile at other times), a function that only rank 0 compiles, pauses, collectives of the world
and of a smaller group. In a planted one a random rank leaves a collective out, issues one more,
another one, one of another size, or ends. Printed: seconds to the first report, from the fault
and from when the rank that reports came to its collective (a fault may show many steps later),
how often it names the rank and the line that was planted, and false alarms of the healthy jobs. A
job whose fault does no harm (a collective that nobody waits for is left out) is drawn again.
A report of any rank counts; a rank that only waits is not a report.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import tc
from tc import trace

LIMIT: Final = 2.0  # seconds, TC_RANK_CHECK
GIVEN_UP: Final = 40.0
FAULTS: Final = ("leaves out", "one more", "another", "other size", "ends")
KINDS: Final = ("step", "step", "all_reduce", "all_gather", "broadcast", "barrier", "small group",
                "log", "pause")  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """A job: what each step does, and what one rank does otherwise (rank -1: none)."""

    seed: int
    ranks: int
    steps: tuple[str, ...]
    rank: int = -1
    at: int = -1
    fault: str = ""


def draw(seed: int, ranks: int, planted: bool) -> Plan:
    """Draw a job."""
    dice = random.Random(seed)
    steps = ["step", *dice.choices(KINDS, k=dice.randrange(10, 30)), "step", "all_reduce"]
    plan = Plan(seed, ranks, tuple(steps))
    if not planted:
        return plan
    places = [n for n, kind in enumerate(steps) if kind in ("all_reduce", "all_gather", "barrier")]
    return Plan(seed, ranks, plan.steps, dice.randrange(ranks), dice.choice(places),
                dice.choice(FAULTS))  # fmt: skip


class Job:
    """One rank of a job."""

    def __init__(self, plan: Plan, rank: int, folder: Path) -> None:
        self.plan, self.rank = plan, rank
        self.dice = random.Random(f"{plan.seed} {rank}")
        self.small = dist.new_group([0, 1])
        self.out = (folder / f"rank{rank}").open("a", buffering=1)
        self.step = tc.compile(lambda x: (x.sin() * 2).sum(), backend="eager")
        self.log = tc.compile(lambda x: x.mean() + 1, backend="eager")

    def note(self, kind: str, **facts: Any) -> None:
        """Write a line at once: the process may end without warning."""
        self.out.write(
            json.dumps({"kind": kind, "rank": self.rank, "time": time.time(), **facts}) + "\n"
        )

    def write(self, stamped: trace.Stamped) -> None:
        """See `Sink`."""
        if isinstance(stamped.event, trace.RanksApart):
            self.note(stamped.event.kind, event=asdict(stamped.event))

    def run(self) -> None:
        """Go through the steps."""
        for number, kind in enumerate(self.plan.steps):
            faulty = self.rank == self.plan.rank and number == self.plan.at
            if faulty:
                self.note("fault")
                kind = self.otherwise(kind)
            if kind == "end":
                return
            self.do(kind)
        self.note("done")

    def otherwise(self, kind: str) -> str:
        """Return the step that a rank with a fault takes in place of another."""
        if self.plan.fault == "one more":
            dist.all_reduce(torch.ones(7))
            return kind
        other = "all_gather" if kind == "all_reduce" else "all_reduce"
        return {"leaves out": "nothing", "another": other, "other size": "all_reduce of 9",
                "ends": "end"}[self.plan.fault]  # fmt: skip

    def do(self, kind: str) -> None:
        """Take one step."""
        self.note("step", of=kind)
        match kind:
            case "step":
                self.step(torch.ones(self.dice.randrange(2, 6), self.dice.choice((1, 3))))
            case "log":
                if self.rank == 0:
                    self.log(torch.ones(self.dice.randrange(2, 9)))
            case "pause":
                time.sleep(self.dice.random() * 0.5)
            case "all_reduce":
                dist.all_reduce(torch.ones(4))
            case "all_reduce of 9":
                dist.all_reduce(torch.ones(9))
            case "all_gather":
                dist.all_gather_into_tensor(torch.empty(2 * self.plan.ranks), torch.ones(2))
            case "broadcast":
                dist.broadcast(torch.ones(3), self.plan.ranks - 1)
            case "barrier":
                dist.barrier()
            case "small group" if self.rank < 2:
                dist.all_reduce(torch.ones(2), group=self.small)


def work(rank: int, plan: Plan, port: int, folder: Path) -> None:
    """Be one rank."""
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCHELASTIC_USE_AGENT_STORE="True"
    )
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=plan.ranks)
    job = Job(plan, rank, folder)
    trace.add_sink(job)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    job.run()


def measure(plan: Plan) -> list[dict[str, Any]]:
    """Run a job, end it if it hangs, and return the lines of all ranks."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as scratch:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        # As torchrun does, so that the store outlives the ranks.
        store = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
        folder = Path(scratch)
        began = time.monotonic()
        context = mp.start_processes(
            work, (plan, port, folder), plan.ranks, join=False, start_method="fork"
        )
        assert context is not None
        processes = context.processes
        while any(p.is_alive() for p in processes) and time.monotonic() - began < GIVEN_UP:
            if any(p.exitcode for p in processes):
                time.sleep(2)  # others may report as well
                break
            time.sleep(0.05)
        for process in processes:
            process.kill()
        del store
        rows = [json.loads(row) for file in folder.iterdir() for row in file.open()]
        return sorted(rows, key=lambda row: row["time"])


def judge(plan: Plan, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return what a planted job shows; None: the fault did no harm."""
    done = sum(row["kind"] == "done" for row in rows)
    reports = [row for row in rows if row["kind"] == "diverged"]
    fault = next(row["time"] for row in rows if row["kind"] == "fault")
    if not reports:
        return None if done == plan.ranks else {"seconds": None, "plan": plan}
    event = reports[0]["event"]
    came = [row["time"] for row in rows if row["kind"] == "step"
            and row["rank"] == event["rank"] and row["time"] <= reports[0]["time"]]  # fmt: skip
    return {
        "seconds": reports[0]["time"] - fault,
        "waited": reports[0]["time"] - max(came),
        "names_rank": plan.rank in (event["rank"], event["other"]),
        "names_line": event["file"] == __file__ and event["function"].startswith("Job."),
        "plan": plan,
        "message": event["message"],
    }


def main() -> None:
    """Plant, measure, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--healthy", type=int, default=10)
    parser.add_argument("--ranks", default="2,3,4")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    tc.config.rank_check = LIMIT
    torch.set_num_threads(1)
    tc.compile(lambda x: x + 1, backend="eager")(torch.ones(2))  # what all ranks load, once
    ranks = [int(one) for one in options.ranks.split(",")]
    found: list[dict[str, Any]] = []
    seed = options.seed
    while len(found) < options.trials:
        plan = draw(seed, ranks[seed % len(ranks)], planted=True)
        seed += 1
        result = judge(plan, measure(plan))
        if result is not None:
            found.append(result)
            print(f"{plan.ranks} ranks, rank {plan.rank} {plan.fault!r} at step {plan.at}: "
                  f"{result.get('message', 'NOT REPORTED')}", flush=True)  # fmt: skip
    alarms = late = hung = 0
    for number in range(options.healthy):
        plan = draw(10_000 + seed + number, ranks[number % len(ranks)], planted=False)
        rows = measure(plan)
        alarms += any(row["kind"] == "diverged" for row in rows)
        late += any(row["kind"] == "waits" for row in rows)
        hung += sum(row["kind"] == "done" for row in rows) != plan.ranks
    reported = [one for one in found if one["seconds"] is not None]
    print(f"{len(reported)} of {len(found)} planted divergences reported")
    for key, since in (("seconds", "the fault"), ("waited", "the rank came to the collective")):
        seconds = sorted(one[key] for one in reported)
        print(f"  after {since}: median {statistics.median(seconds):.2f} s, "
              f"last {seconds[-1]:.2f} s")  # fmt: skip
    for key in ("names_rank", "names_line"):
        print(f"{key.replace('_', ' the ')}: {sum(bool(one.get(key)) for one in found)}")
    print(f"{options.healthy} healthy jobs: {alarms} false alarms, {late} that say that a rank is "
          f"late, {hung} that did not end well")  # fmt: skip


if __name__ == "__main__":
    main()
