"""Which facts about the world compiled code does not notice when they change.

    python bench/facts.py
    python bench/facts.py --torch --only identity
    python bench/facts.py --default-backend --variants 1

A row of the table is a program that reads something outside of its frame, called, the world
changed, called again. It is run in several ways (`fact_runner.VARIANTS`): compiled itself or
inlined into a function of another module, with arguments or globals, changed after one call or
sixty, in this thread or in another one. With ``--torch`` a process of its own asks the same of
torch.compile.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
Row = dict[str, Any]


def measure(compiler: str, only: str, variants: int, backend: str | None) -> list[Row]:
    """Judge the facts whose names contain a text under a compiler, ``tc`` or ``torch``."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    import fact_runner
    import torch
    from facts import FACTS

    torch.set_num_threads(1)
    if compiler == "tc":
        import tc

        module: Any = tc
        reset: Any = tc.reset
    else:
        module, reset = torch, torch.compiler.reset

    def compile(program: Any) -> Any:
        return module.compile(program, **({"backend": backend} if backend else {}))

    rows = []
    for fact in FACTS.values():
        if only in fact.name:
            verdict = fact_runner.judge(fact, compile, reset, fact_runner.VARIANTS[:variants])
            rows.append(dataclasses.asdict(verdict) | {"family": fact.family})
            if verdict.status != "ok":
                print(verdict, file=sys.stderr, flush=True)
    return rows


def in_process(arguments: list[str]) -> list[Row]:
    """Judge facts in a process of its own."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        stdout=subprocess.PIPE,
        stderr=None if sys.stderr.isatty() else subprocess.DEVNULL,
        text=True, env=environment, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"facts.py {' '.join(arguments)}: exit code {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def table(columns: dict[str, list[Row]]) -> str:
    """Return the rows that are not ok anywhere, and counts a family."""
    lines = []
    names = list(columns)
    for rows in zip(*columns.values(), strict=True):
        if any(row["status"] != "ok" for row in rows):
            statuses = [f"{row['status']:8}" for row in rows]
            first = rows[0]
            detail = f"{first['variant']}: {first['detail']}" if first["status"] != "ok" else ""
            lines.append(f"{first['fact']:52} {' '.join(statuses)} {detail}"[:160])
    lines.append("")
    for name in names:
        count = collections.Counter(row["status"] for row in columns[name])
        counts = ", ".join(f"{number} {status}" for status, number in sorted(count.items()))
        lines.append(f"{name}: {len(columns[name])} facts: {counts}")
    families = dict.fromkeys(row["family"] for row in columns[names[0]])
    for family in families:
        bad = [
            sum(row["family"] == family and row["status"] != "ok" for row in columns[name])
            for name in names
        ]
        total = sum(row["family"] == family for row in columns[names[0]])
        by_name = ", ".join(f"{name} {number}" for name, number in zip(names, bad, strict=True))
        lines.append(f"  {family:14} {total:4} facts, not ok: {by_name}")
    return "\n".join(lines)


def programs(rows: list[Row]) -> str:
    """Return the programs of rows that are not ok, a family at a time, as Markdown."""
    from facts import FACTS

    lines: list[str] = []
    family = ""
    for row in rows:
        if row["status"] == "ok":
            continue
        if row["family"] != family:
            family = row["family"]
            lines.append(f"\n## {family}")
        lines.append(f"\n{row['fact']}: {row['status']} ({row['variant']}): {row['detail']}")
        fact = FACTS[row["fact"]]
        lines.append(f"```python\n{fact.setup}\n# change\n{fact.change}\n```")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Print the table; the exit code says whether all rows of tc are ok."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--torch", action="store_true", help="ask torch.compile as well")
    parser.add_argument("--only", default="", help="facts whose names contain this")
    parser.add_argument("--variants", type=int, default=99, help="so many ways to run each")
    parser.add_argument("--default-backend", action="store_true", help="kernels, not eager's")
    parser.add_argument("--programs", action="store_true", help="print those that are not ok")
    parser.add_argument("--json", type=Path, help="write all rows there")
    parser.add_argument("--child", choices=("tc", "torch"), nargs="?", const="tc")
    chosen = parser.parse_args(arguments)
    backend = None if chosen.default_backend else "eager"
    if chosen.child:
        print(json.dumps(measure(chosen.child, chosen.only, chosen.variants, backend)))
        return 0
    columns = {"tc": measure("tc", chosen.only, chosen.variants, backend)}
    if chosen.torch:
        rest = ["--only", chosen.only, "--variants", str(chosen.variants), "--child", "torch"]
        columns["torch.compile"] = in_process(rest)
    print(table(columns))
    if chosen.programs:
        print(programs(columns["tc"]))
    if chosen.json:
        chosen.json.write_text(json.dumps(columns, indent=1))
    return int(any(row["status"] != "ok" for row in columns["tc"]))


if __name__ == "__main__":
    raise SystemExit(main())
