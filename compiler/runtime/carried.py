"""Compiled code that came in a file (`tc.load`), and notes of what this process could save.

In: parts of a verified file. Out: entries and libraries by keys that do not depend on the machine.
Of each library there is code for several levels of CPUs; the best one that this CPU has is taken.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field

from tc import trace
from tc.compiler.core.once import once
from tc.compiler.errors import OptionError
from tc.compiler.runtime.mapping import Library
from tc.compiler.runtime.store import Entry

#: level of code that every CPU of this kind runs
ANY = "any"
#: name -> flags of the compiler, and what /proc/cpuinfo lists where a CPU has it; the best last
LEVELS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "x86-64": (("-march=x86-64",), ()),
    "avx2": (
        ("-march=x86-64-v3",),
        ("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"),
    ),
    "avx512": (
        ("-march=x86-64-v4", "-mprefer-vector-width=512"),
        ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    ),
}


@dataclass(frozen=True)
class Source:
    """A library that this process has built or found.

    Attributes:
        text: its C.
        salt: what else it depends on.
        flags: to build it; None for kernels and routines, whose flags depend on the level.
        of_graph: kernels of one graph, which nothing but that graph's entry asks for.
    """

    text: str = field(repr=False)
    salt: str
    libraries: tuple[str, ...]
    flags: tuple[str, ...] | None
    of_graph: bool = False


@dataclass(frozen=True)
class Graph:
    """A graph that this process has compiled or found.

    Attributes:
        digest: of its entry in the cache.
        portable: of its entry in a file.
        place: of the user's function that it is of.
    """

    digest: str
    portable: str
    parts: Mapping[str, str]
    place: str
    file: str


@dataclass(frozen=True)
class Bundle:
    """What one file brought.

    Attributes:
        label: how people call it.
        graphs: portable key -> entry.
        parts: portable key -> what the graph depends on.
        places: portable key -> the user's function.
        libraries: key -> level -> shared library.
    """

    label: str
    graphs: Mapping[str, Entry]
    parts: Mapping[str, Mapping[str, str]]
    places: Mapping[str, str]
    libraries: Mapping[str, Mapping[str, bytes]]


@dataclass
class _Process:
    """What this process has loaded, and could save. Tables only grow, and bundles are replaced."""

    bundles: tuple[Bundle, ...] = ()
    sources: dict[tuple[str, str], Source] = field(default_factory=dict)
    graphs: dict[str, Graph] = field(default_factory=dict)


_PROCESS = _Process()


# -- what was loaded -------------------------------------------------------------------------------
def install(bundle: Bundle) -> None:
    """Take entries and libraries of a file from now on."""
    level()  # an impossible one is refused here
    _PROCESS.bundles = (*_PROCESS.bundles, bundle)


def remove_all() -> None:
    """Forget all files."""
    _PROCESS.bundles = ()


def entry(portable: str) -> Entry | None:
    """Return the entry of a graph."""
    return next((b.graphs[portable] for b in _PROCESS.bundles if portable in b.graphs), None)


def library(source: str, salt: str = "") -> Library | None:
    """Return a library made of a C file, with the best code for this CPU."""
    if not _PROCESS.bundles or os.environ.get("TC_SANITIZE") == "1":
        return None
    key = key_of(source, salt)
    for bundle in _PROCESS.bundles:
        code = bundle.libraries.get(key, {})
        for name in (ANY, *reversed(levels())):
            if name in code and (found := _opened(bundle.label, key, name, code[name])):
                return found
    return None


@once
def _opened(label: str, key: str, level: str, content: bytes) -> Library | None:
    """Return a library, if this system can map it: another one may lack what it is linked to."""
    found = Library(f"{key}.{level}.so", content, None)
    try:
        found.open()
    except OSError as error:
        trace.warn(f"the code for {level} in {label} does not load here ({error})")
        return None
    return found


def differing(parts: Mapping[str, str], function: str) -> tuple[str, tuple[str, ...]] | None:
    """Return which file has the graph that is most like one that no file has, and what differs.

    None: no file has a graph of that function.
    """
    kind = [
        (sum(known.get(name) == part for name, part in parts.items()), bundle.label, known)
        for bundle in _PROCESS.bundles
        for graph, known in bundle.parts.items()
        if bundle.places[graph].endswith(f" in {function}")
        and known.get("kind") == parts.get("kind")
    ]
    if not kind:
        return None
    _, label, known = max(kind, key=lambda row: row[0])
    return label, tuple(name for name, part in parts.items() if known.get(name) != part)


def key_of(source: str, salt: str = "") -> str:
    """Return the key of a library: its C, and what else it depends on besides the CPU."""
    return hashlib.sha256(f"{salt}\0{source}".encode()).hexdigest()[:40]


# -- levels of CPUs --------------------------------------------------------------------------------
def levels() -> tuple[str, ...]:
    """Return the levels that may be used here, the best last; see `level`."""
    names = list(LEVELS) if platform.machine() == "x86_64" else []
    return tuple(names[: names.index(level()) + 1]) if names else ()


def level() -> str:
    """Return the level of this CPU, or the one that ``TC_CPU_LEVEL`` asks for.

    Raises:
        OptionError: there is no such level, or this CPU does not have it.
    """
    here = _level_here()
    asked = os.environ.get("TC_CPU_LEVEL")
    if not asked:
        return here
    if asked not in LEVELS:
        raise OptionError(f"TC_CPU_LEVEL is {asked!r}; it can be {', '.join(LEVELS)}")
    names = list(LEVELS)
    if names.index(asked) > names.index(here):
        raise OptionError(f"TC_CPU_LEVEL asks for {asked}, and this CPU has {here}")
    return asked


@functools.cache
def _level_here() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = file.read(8192).splitlines()
    except OSError:
        return next(iter(LEVELS))
    flags = next((set(line.split()) for line in lines if line.startswith("flags")), set())
    found = next(iter(LEVELS))
    for name, (_, needed) in LEVELS.items():
        if not flags.issuperset(needed):
            break
        found = name
    return found


# -- what could be saved ---------------------------------------------------------------------------
def note_library(source: Source) -> None:
    """Note that this process uses a library."""
    _PROCESS.sources.setdefault((source.text, source.salt), source)


def note_graph(graph: Graph) -> None:
    """Note that this process uses a graph."""
    _PROCESS.graphs.setdefault(graph.digest, graph)


def noted() -> tuple[tuple[Source, ...], tuple[Graph, ...]]:
    """Return the libraries and the graphs that this process uses."""
    return tuple(_PROCESS.sources.values()), tuple(_PROCESS.graphs.values())
