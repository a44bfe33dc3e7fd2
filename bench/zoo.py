"""The zoo: hundreds of public architectures, tiny and random, compiled and compared with eager.

    make zoo                          a random sample of 60; its seed is drawn and printed
    python bench/zoo.py --all         everything (hours)
    python bench/zoo.py --family timm --sample 20 --seed 7
    python bench/zoo.py --only transformers:gpt2

Models come from walking what transformers, timm, torchvision and diffusers export; configurations
and inputs are made by rules (`zoo_configs.py`, `zoo_inputs.py`), not by hand. A model runs in a
process of its own with a limit on time and memory, four steps each (`zoo_judge.py`), under
tc.compile and, where that broke or failed, under torch.compile with its eager backend.
Rows go to a file of JSON lines; what is in it is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FAMILIES = ("transformers", "timm", "torchvision", "diffusers")
Row = dict[str, Any]
#: outcomes that are as they should be
GOOD = ("equal", "same error", "no specimen")


class Server:
    """A warm process that forks a child for each model."""

    def __init__(self, compiler: str, family: str, backend: str, cache: Path) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "bench"), *sys.path]),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            "TC_CACHE_DIR": str(cache),
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "bench" / "zoo_server.py"), compiler, family, backend],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def ask(self, request: Row) -> Row:
        """Return what the server answers to a request."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("zoo: the server died; its error is above")
        answer: Row = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def judged(tc: Row, torch: Row) -> str:
    """Name the outcome of a model from the two answers."""
    kind = tc["kind"]
    if kind == "crash" and torch["kind"] == "crash" and tc["clear"]:
        return "same error"
    return str(kind)


def row_of(family: str, name: str, tc: Row, torch: Row) -> Row:
    """Join the answers of both compilers to a row of the table."""
    return {
        "family": family,
        "name": name,
        "outcome": judged(tc, torch),
        "graphs": tc.get("graphs"),
        "breaks": tc.get("breaks"),
        "captured": tc.get("captured"),
        "torch_graphs": torch.get("graphs"),
        "torch_breaks": torch.get("breaks"),
        "torch_captured": torch.get("captured"),
        "seconds": tc.get("seconds"),
        "detail": tc.get("detail", ""),
        "reasons": tc.get("reasons", {}),
        "torch_reasons": torch.get("reasons", {}),
        "torch_detail": torch.get("detail", ""),
        "recipe": tc.get("recipe"),
    }


def more_breaks(row: Row) -> bool:
    """Return whether tc broke more often than torch.compile."""
    return row["torch_breaks"] is not None and (row["breaks"] or 0) > row["torch_breaks"]


class Zoo:
    """Runs models and keeps their rows."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.out = Path(options.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.file = self.out / f"rows-{options.backend}.jsonl"
        self.rows = {(row["family"], row["name"]): row for row in self._read(self.file)}
        self.torch_file = self.out / "torch.jsonl"
        self.torch = {(row["family"], row["name"]): row for row in self._read(self.torch_file)}
        self.servers: dict[tuple[str, str], Server] = {}

    @staticmethod
    def _read(file: Path) -> Iterator[Row]:
        if file.exists():
            yield from (json.loads(line) for line in file.read_text().splitlines() if line)

    def server(self, compiler: str, family: str) -> Server:
        """Return the warm process of a compiler and family; at most one family is warm."""
        for key in [key for key in self.servers if key[1] != family]:
            self.servers.pop(key).close()
        key = (compiler, family)
        if key not in self.servers:
            self.servers[key] = Server(
                compiler, family, self.options.backend, self.out.resolve() / "cache"
            )
        return self.servers[key]

    def names(self, family: str) -> list[str]:
        """Return the names of a family's models."""
        file = self.out / f"names-{family}.json"
        if not file.exists():
            file.write_text(json.dumps(self.server("tc", family).ask({"list": True})["names"]))
        return list(json.loads(file.read_text()))

    def run(self, family: str, name: str) -> Row:
        """Run one model under both compilers, and keep its row."""
        limits = {"seconds": self.options.seconds, "gigabytes": self.options.gigabytes}
        limits |= {"steps": self.options.steps, "device": self.options.device}
        request = {"name": name, "backend": self.options.backend, **limits}
        tc = self.server("tc", family).ask(request)
        torch = self.torch.get((family, name))
        if torch is None or torch.get("recipe") != tc.get("recipe"):
            torch = {"kind": "not run"}
            # where tc neither broke nor failed, torch.compile can do no better
            if self.options.torch or tc["kind"] == "crash" or tc.get("breaks"):
                ask = {**request, "recipe": tc.get("recipe")}
                torch = self.server("torch", family).ask(ask)
                self._append(self.torch_file, {"family": family, "name": name, **torch})
        row = row_of(family, name, tc, torch) | {"steps": self.options.steps}
        self.rows[family, name] = row
        self._append(self.file, row)
        return row

    @staticmethod
    def _append(file: Path, row: Row) -> None:
        with file.open("a") as lines:
            lines.write(json.dumps(row) + "\n")

    def close(self) -> None:
        """End all processes."""
        for server in self.servers.values():
            server.close()
        self.servers.clear()


def chosen(zoo: Zoo, options: argparse.Namespace) -> list[tuple[str, str]]:
    """Return the models to run: those named, all, or a sample."""
    if options.only:
        named = [name.partition(":") for name in options.only.split(",")]
        if unknown := [family for family, _, _ in named if family not in FAMILIES]:
            raise SystemExit(f"--only takes family:name; no family is named {unknown[0]!r}")
        return [(family, name) for family, _, name in named]
    families = options.family.split(",") if options.family else FAMILIES
    known = {family: zoo.names(family) for family in families}
    if options.all:
        return [(family, name) for family, names in known.items() for name in names]
    generator = random.Random(options.seed)
    share = -(-options.sample // len(known))
    return [
        (family, name)
        for family, names in known.items()
        for name in generator.sample(names, min(share, len(names)))
    ]


def line_of(row: Row) -> str:
    """Return a row of the table as text."""
    cells = f"{row['graphs']!s:>5}{row['breaks']!s:>4}{row['torch_graphs']!s:>6}"
    more = ""
    if more_breaks(row):  # torch.compile counts none in what it leaves to Python as a whole
        ops = f"{row.get('captured')} operations, torch.compile {row.get('torch_captured')}"
        more = f" MORE BREAKS, captured {ops}"
    return (
        f"{row['family'][:12]:13}{row['name'][:44]:45}{row['outcome']:12}{cells}"
        f"{row['torch_breaks']!s:>4}{row['seconds'] or 0:8.1f}{more} {row['detail'][:150]}"
    )


def table(rows: list[Row]) -> str:
    """Return all rows that are not as they should be, and the counts."""
    wrong = [row for row in rows if row["outcome"] not in GOOD or more_breaks(row)]
    lines = [line_of(row) for row in wrong]
    for family in FAMILIES:
        found = Counter(row["outcome"] for row in rows if row["family"] == family)
        if found:
            counts = ", ".join(f"{count} {kind}" for kind, count in found.most_common())
            breaks = sum(more_breaks(row) for row in rows if row["family"] == family)
            lines.append(f"{family}: {sum(found.values())} models: {counts}; {breaks} break more")
    ran = [row for row in rows if row["outcome"] != "no specimen"]
    right = sum(row["outcome"] in GOOD for row in ran)
    lines.append(f"all: {right} of {len(ran)} equal, or fail clearly as torch.compile does")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--family", help="some of " + ",".join(FAMILIES))
    parser.add_argument("--sample", type=int, default=60, help="models, shared by the families")
    parser.add_argument("--seed", type=int, help="drawn where none is given")
    parser.add_argument("--only", help="family:name,...")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--again", action="store_true", help="run what has a row, too")
    parser.add_argument("--wrong", action="store_true", help="run again what went wrong")
    parser.add_argument("--torch", action="store_true", help="always run torch.compile, too")
    parser.add_argument("--table", action="store_true", help="only print what was found")
    parser.add_argument("--backend", default="inductor", help="of tc.compile; %(default)s")
    parser.add_argument("--seconds", type=int, default=300, help="a model; %(default)s")
    parser.add_argument("--gigabytes", type=int, default=8, help="a model; %(default)s")
    parser.add_argument("--steps", type=int, default=4, help="of a model; %(default)s")
    parser.add_argument("--device", default="cpu", help="where models are; %(default)s")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--out", default="zoo_out", help="folder; %(default)s")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(10**6)
    zoo = Zoo(options)
    try:
        if not options.table:
            work(zoo, options)
    finally:
        zoo.close()
    print(table(list(zoo.rows.values())))


def work(zoo: Zoo, options: argparse.Namespace) -> None:
    """Run what was asked for, row by row."""
    import time

    began = time.monotonic()
    print(f"zoo: seed {options.seed}, backend {options.backend}", flush=True)
    families = (*(options.family or "").split(","), *FAMILIES)
    if options.wrong:
        models = [
            key for key, row in zoo.rows.items() if row["outcome"] not in GOOD or more_breaks(row)
        ]
    else:
        models = chosen(zoo, options)
        if not (options.again or options.only):
            models = [key for key in models if key not in zoo.rows]
    models.sort(key=lambda key: families.index(key[0]))
    print(f"zoo: {len(models)} to run")
    for family, name in models:
        if time.monotonic() - began > 60 * options.minutes:
            print("zoo: out of time")
            break
        print(line_of(zoo.run(family, name)), flush=True)


if __name__ == "__main__":
    main()
