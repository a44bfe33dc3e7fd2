"""Random edits of other people's Python files: no edit may end in an exception of the reducer's.

    python bench/fuzzedits.py --edits 10000            # a seed is drawn, and printed
    python bench/fuzzedits.py --edits 10000 --seed 7

Files are drawn from the standard library and from installed packages, edits from the reducer's own
table, a few in a row. Each makes a candidate that compiles and can be edited further, or none; the
tree is afterwards what it was. A few files are then reduced whole by `source.reduced`, with an
oracle that accepts at random. The exit code is 1 if there was an internal error.
"""

from __future__ import annotations

import argparse
import ast
import functools
import itertools
import random
import sys
import sysconfig
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tc.minifier.passes import edits, rendering, source

IN_A_ROW = 12  # edits of a file before the next is drawn
LINES = 150  # of a file, at most
SHORT = 120  # lines of a file that is reduced whole
TRIES = 150  # of the oracle, for one such file
COMPARED = 0.2  # share of the edits after which the whole tree is looked at
ACCEPTS = 0.3  # share of candidates that it accepts


@functools.cache
def files(seed: int) -> list[Path]:
    """All Python files of the standard library and of what is installed, in a random order."""
    folders = [sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")]
    found = sorted({path for folder in folders for path in Path(folder).rglob("*.py")})
    random.Random(seed).shuffle(found)
    return found


@dataclass
class Fuzz:
    """One run.

    Attributes:
        became: what became of the edits, by name.
        errors: exceptions of the reducer's, with the file and the edit.
    """

    seed: int
    became: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.source = random.Random(self.seed)

    def texts(self, least: int, most: int) -> itertools.cycle[tuple[Path, str]]:
        """Yield files of so many lines, over and over."""
        return itertools.cycle(
            (path, text)
            for path in files(self.seed)
            if least <= (text := path.read_text(errors="replace")).count("\n") <= most
        )

    def edits(self, count: int) -> None:
        """Make so many edits."""
        for path, text in self.texts(5, LINES):
            self.became["files"] += 1
            made = rendering.normal_form(text)
            if made is None:
                self.became["files by lines"] += 1
                continue
            for _ in range(IN_A_ROW):
                if self.became["edits"] >= count:
                    return
                table = self.source.choice(source.TABLE)
                try:
                    made = self.edited(made, table)
                except Exception:
                    self.errors.append(f"{path}, {table.__name__}:\n{traceback.format_exc()}")

    def edited(self, text: str, table: edits.Edits) -> str:
        """Apply one random edit; returns the new text, or the old where there is no candidate."""
        tree = ast.parse(text)
        count = sum(1 for _ in table(tree))
        if self.source.random() < COMPARED and ast.unparse(tree) != text:
            raise AssertionError("an edit was not taken back")
        if not count:
            return text
        self.became["edits"] += 1
        self.became[table.__name__] += 1
        number = self.source.randrange(count)
        next(itertools.islice(table(tree), number, None))
        candidate = rendering.rendered(tree)
        if candidate is None:
            self.became["no candidate"] += 1
            return text
        check(candidate)
        if ast.unparse(ast.parse(candidate)) != candidate:
            raise AssertionError("a candidate is printed otherwise when it is read again")
        self.became["candidates"] += 1
        return candidate

    def reductions(self, count: int) -> None:
        """Reduce so many files whole; candidates are accepted at random."""
        for path, text in itertools.islice(self.texts(30, SHORT), count):
            tries = 0

            def fails(candidate: str) -> bool:
                nonlocal tries
                tries += 1
                check(candidate)
                return tries < TRIES and self.source.random() < ACCEPTS

            try:
                source.reduced(text, fails, lambda candidate: None)
            except Exception:
                self.errors.append(f"{path}, as a whole:\n{traceback.format_exc()}")
            self.became["files reduced"] += 1
            self.became["candidates of reductions"] += tries


def check(candidate: str) -> None:
    """See that a candidate parses, compiles, and can be edited further."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ast.unparse(ast.parse(candidate))
        compile(candidate, "candidate", "exec")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--edits", type=int, default=10_000)
    parser.add_argument("--reductions", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    start, run = time.monotonic(), Fuzz(options.seed)
    run.edits(options.edits)
    run.reductions(options.reductions)
    for name, number in run.became.most_common():
        print(f"{number:>7} {name}")
    print(f"{len(run.errors):>7} internal errors")
    print(f"{time.monotonic() - start:7.0f} s")
    for error in run.errors[:5]:
        print(f"\n{error}")
    return 1 if run.errors else 0


if __name__ == "__main__":
    sys.exit(main())
