"""Numbers and names go in; the words that every surface says of them come out."""

from __future__ import annotations

import keyword
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

#: modules and classes whose functions return what comes from outside of the program
FROM_OUTSIDE: Final = ("random", "Random", "time", "datetime", "uuid", "secrets", "os")
#: what to do about a graph break at random numbers of a generator that a program has made
RANDOM_OUTSIDE: Final = "make the random numbers outside of the compiled function, and pass them in"
#: what to do about a graph break at a call of one of FROM_OUTSIDE
#: what to do about a module with a backward hook
COMPILE_BELOW: Final = (
    "in place of the whole, compile the forward of the module that has the backward hook, and the "
    "modules beside it"
)
CALL_OUTSIDE: Final = (
    "call it outside of the compiled function, and pass in what it returns where that is needed"
)
#: what to do about a graph break at something that can be gone through once only
LIST_INSTEAD: Final = "pass a list of its items in place of the iterator: list(...)"
#: what to do about `x[i]`, which asks a tensor without dimensions for its number
INDEX: Final = (
    "torch.index_select(x, 0, i) in place of x[i], where i is a tensor without dimensions"
)
#: what a line or a literal of a redacted trace begins with, and the whole of it, with its number
HIDDEN: Final = "…"
REDACTED: Final = re.compile(rf"{HIDDEN}(\d+)\b")
_ONE_OF_MANY: Final = re.compile(r"\[(?:\d+|'[^']*'|\"[^\"]*\")\](?!$)|\.\d+(?=\.)")
_SWITCHED: Final = re.compile(r"^.+\.training$")
_HISSING: Final = ("s", "x", "ch", "sh")


def plural(noun: str) -> str:
    """Return the plural of a regular noun; of several words the last one takes the ending."""
    if noun.endswith(_HISSING):
        return f"{noun}es"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}s"


def count(number: int, noun: str, group: str = "") -> str:
    """`1 process`, `2 processes`; `group` sets digits apart: `1,234 calls` with a comma."""
    return f"{number:{group}} {noun if number == 1 else plural(noun)}"


def grouped(sources: Sequence[str]) -> str:
    """`past[0].shape[1], past[1].shape[1]` -> `past[*].shape[1] (2 inputs)`: like ones together.

    `eval()` switches all modules of one at the same time. Of many that are unlike, the first.
    """
    like: dict[str, list[str]] = {}
    for source in sources:
        pattern = _SWITCHED.sub("*.training", _ONE_OF_MANY.sub("[*]", source))
        like.setdefault(pattern, []).append(source)
    groups = [
        some[0] if len(some) == 1 else f"{pattern} ({count(len(some), 'input')})"
        for pattern, some in like.items()
    ]
    rest = sum(map(len, list(like.values())[_MOST_GROUPS:]))
    if len(groups) <= _MOST_GROUPS + 1:
        return ", ".join(groups)
    return f"{', '.join(groups[:_MOST_GROUPS])} and {count(rest, 'more input')}"


_MOST_GROUPS: Final = 3


_NUMBERED: Final = re.compile(r"\[\d+\]")


def alike(names: Sequence[str]) -> list[str]:
    """`keys[0], keys[1], values[0]` -> `keys[*], values[0]`: one name for those that are alike."""
    like: dict[str, list[str]] = {}
    for name in names:
        like.setdefault(_NUMBERED.sub("[*]", name), []).append(name)
    return [pattern if len(set(some)) > 1 else some[0] for pattern, some in like.items()]


def distinct(names: Sequence[str]) -> list[str]:
    """`graph, loss, graph` -> `graph 1, loss, graph 2`: names that stand side by side differ."""
    shared = Counter(names)
    numbers: Counter[str] = Counter()
    found = []
    for name in names:
        unique = name
        while shared[name] > 1 and unique in shared:
            numbers[name] += 1
            unique = f"{name} {numbers[name]}"
        found.append(unique)
    return found


def did_you_mean(name: str, names: Iterable[str], cutoff: float = 0.5) -> str:
    """Return the name that was probably meant, empty where none is near."""
    import difflib  # here, because few processes need it

    return next(iter(difflib.get_close_matches(name, list(names), n=1, cutoff=cutoff)), "")


def spelled(target: str) -> str:
    """Return an op's dotted name as Python takes it: ``aten.random.from`` holds a keyword."""
    text, *names = target.split(".")
    for name in names:
        text = f"getattr({text}, {name!r})" if keyword.iskeyword(name) else f"{text}.{name}"
    return text


def file_size(size: int) -> str:
    """`512 B`, `1.5 kB`, `3.2 MB`, `1.1 GB`."""
    if size < 1000:
        return f"{size} B"
    for unit, scale in (("kB", 1e3), ("MB", 1e6)):
        if size < 1000 * scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size / 1e9:.1f} GB"
