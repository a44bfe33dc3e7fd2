"""Random edits of other people's Python files: no edit may end in an exception of the reducer's.

    python bench/fuzzedits.py --edits 10000 --seed 1

Files are drawn from the standard library and from installed packages, edits from the reducer's own
table, a few in a row. Each makes a candidate that compiles and can be edited further, or none.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import random
import sysconfig
import time
import warnings
from collections import Counter
from pathlib import Path

from tc.minifier.passes import edits, rendering

IN_A_ROW = 12  # edits of a file before the next is drawn
LINES = 400  # of a file, at most


def files(seed: int) -> list[Path]:
    """All Python files of the standard library and of what is installed, in a random order."""
    folders = [sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")]
    found = sorted({path for folder in folders for path in Path(folder).rglob("*.py")})
    random.Random(seed).shuffle(found)
    return found


def fuzz(count: int, seed: int) -> Counter[str]:
    """Make so many edits; returns what became of them."""
    source = random.Random(seed)
    became: Counter[str] = Counter()
    for path in itertools.cycle(files(seed)):
        text = path.read_text(errors="replace")
        if text.count("\n") > LINES:
            continue
        became["files"] += 1
        made = rendering.normal_form(text)
        if made is None:
            became["files by lines"] += 1
            continue
        for _ in range(IN_A_ROW):
            if became["edits"] >= count:
                return became
            made = edited(made, source, became)
    return became


def edited(text: str, source: random.Random, became: Counter[str]) -> str:
    """Apply one random edit; returns the new text, or the old where there is no candidate."""
    tree = ast.parse(text)
    table = source.choice(edits.TABLE)
    number = source.randrange(60)
    for place, _ in enumerate(table(tree)):
        if place == number:
            break
    else:
        return text
    became["edits"] += 1
    became[table.__name__] += 1
    candidate = rendering.rendered(tree)
    if candidate is None:
        became["no candidate"] += 1
        return text
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compile(candidate, "candidate", "exec")
    became["candidates"] += 1
    return candidate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--edits", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    start = time.monotonic()
    for name, number in fuzz(options.edits, options.seed).most_common():
        print(f"{number:>7} {name}")
    print(f"{time.monotonic() - start:7.0f} s")


if __name__ == "__main__":
    main()
