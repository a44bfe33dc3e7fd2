"""One C file that several runs of the compiler may share: each compiles some of its functions.

The time a C compiler takes grows with the file, and it uses one core. A long file is therefore
printed in groups of functions, between lines of the preprocessor. Without definitions on the
command line the file is one translation unit, as any other; with `definitions` it is one of
several, whose objects are linked.
"""

from __future__ import annotations

from collections.abc import Iterable

#: characters of C from which on a group ends; gcc takes about a second for that many
GROUP = 32_000
_COUNT = "/* groups: "


def grouped(prelude: str, functions: Iterable[str]) -> str:
    """Print a file of functions that share what comes before them, and do not call each other."""
    groups: list[list[str]] = [[]]
    length = 0
    for function in functions:
        if length >= GROUP:
            groups.append([])
            length = 0
        groups[-1].append(function)
        length += len(function)
    if len(groups) == 1:
        return "\n".join([prelude, *groups[0]])
    lines = [f"{_COUNT}{len(groups)} */", prelude]
    for number, group in enumerate(groups):
        lines += [f"#if !defined(TC_PARTS) || {number} % TC_PARTS == TC_PART", *group, "#endif"]
    return "\n".join(lines) + "\n"


def groups_of(source: str) -> int:
    """Return in how many parts a file can be compiled."""
    if not source.startswith(_COUNT):
        return 1
    return int(source[len(_COUNT) : source.index(" */")])


def definitions(part: int, parts: int) -> tuple[str, str]:
    """Return the arguments that make a compiler compile one of ``parts`` parts of a file."""
    return f"-DTC_PARTS={parts}", f"-DTC_PART={part}"
