"""Saves what this process has compiled to one file, and takes such a file into another process.

In: the notes of `carried`, the entries of the cache. Out: the bytes of a file (`cache.saved`), with
code for every level of CPUs; and the way back, which checks what the file was made for.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import os
import platform
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tc import trace
from tc.compiler.cache import saved
from tc.compiler.cache.graph_cache import KIND, kernels_of, readable
from tc.compiler.cache.graph_key import own_code
from tc.compiler.cache.saved import Manifest, SavedFile, SavedGraph, SavedLibrary
from tc.compiler.core.machine import cores
from tc.compiler.errors import SavedFileError, StageError
from tc.compiler.runtime import carried, store
from tc.compiler.runtime.build import build, build_for
from tc.compiler.runtime.mapping import Library
from tc.trace.files import replace_file
from tc.trace.words import count


@dataclass(frozen=True)
class Saved:
    """What a file of compiled code holds.

    Attributes:
        graphs: functions of the user's, a line for each graph.
        libraries: how many libraries of kernels.
        levels: of CPUs that there is code for, the best last.
        sha256: of the file, for `load`.
        left_out: what could not be saved, and why.
    """

    graphs: tuple[str, ...]
    libraries: int
    levels: tuple[str, ...]
    sha256: str
    left_out: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"{count(len(self.graphs), 'graph')}, {count(self.libraries, 'library')} for "
            f"{', '.join(self.levels) or 'any CPU'}; sha256 {self.sha256}"
        )


# -- out -------------------------------------------------------------------------------------------
def pack(function: Any, key: bytes | None = None) -> tuple[bytes, Saved]:
    """Return a file with the graphs and kernels that this process has compiled or loaded.

    Args:
        function: the one that the file is named after; None for all.
        key: see `saved.packed`.

    Raises:
        SavedFileError: there is none.
    """
    sources, graphs = carried.noted()
    parts: dict[str, bytes] = {}
    left_out: list[str] = []
    rows = [row for graph in graphs if (row := _graph(graph, parts, left_out)) is not None]
    if not rows:
        raise SavedFileError(
            "there is no compiled graph to save: call the compiled function first, with its "
            "backward if it is to train, and leave config.fx_graph_cache on"
        )
    kernels = {kernels_of(parts[row.entry]) for row in rows}
    needed = [one for one in sources if not one.of_graph or one.text in kernels]
    with ThreadPoolExecutor(cores()) as pool:
        made = list(pool.map(_library, needed))
    for _, code, why in made:
        left_out += why
        parts |= code
    files = {graph.file: _sha256_of(graph.file) for graph in graphs}
    manifest = Manifest(
        saved.FORMAT,
        _name(function),
        needs(),
        {file: digest for file, digest in files.items() if digest},
        tuple(rows),
        tuple(library for library, _, _ in made),
    )
    content = saved.packed(manifest, parts, key)
    sha256 = hashlib.sha256(content).hexdigest()
    return content, _described(manifest, sha256, tuple(left_out))


def save(path: str | os.PathLike[str], function: Any, key: bytes | None = None) -> Saved:
    """Write a file; see `tc.save`."""
    content, found = pack(function, key)
    target = Path(path)
    try:
        replace_file(target, [content])
    except OSError as error:
        raise SavedFileError(f"{target} cannot be written: {error.strerror}") from error
    for why in found.left_out:
        trace.warn(f"tc.save leaves out {why}")
    return found


def needs() -> dict[str, str]:
    """Return what has to be the same where a file is saved and loaded, by name."""
    return {
        "tc": own_code(),
        "torch": f"{torch.__version__} {torch.version.git_version}",
        "Python": sys.version,
        "system": f"{platform.system()} {platform.machine()}",
    }


def _graph(graph: carried.Graph, parts: dict[str, bytes], left_out: list[str]) -> SavedGraph | None:
    entry = carried.entry(graph.portable) or store.entry(KIND, graph.digest)
    if entry is None:
        left_out.append(f"a graph of {graph.place}: the cache does not have it any more")
        return None
    name = f"graphs/{graph.portable[:40]}"
    parts[f"{name}.json"] = entry.content
    parts[f"{name}.py"] = readable(entry.content).encode()
    if entry.events:
        parts[f"{name}.events"] = bytes(entry.events)
    return SavedGraph(
        graph.portable, dict(graph.parts), graph.place, f"{name}.json",
        f"{name}.events" if entry.events else "", f"{name}.py",
    )  # fmt: skip


def _library(source: carried.Source) -> tuple[SavedLibrary, dict[str, bytes], list[str]]:
    """Build a library for all levels; one that cannot be built for a level is left out there."""
    key, text = carried.key_of(source.text, source.salt), source.text
    name = f"kernels/{key}"
    parts, code, left_out = {f"{name}.c": text.encode()}, {}, []
    wanted = carried.LEVELS if platform.machine() == "x86_64" else {}
    makers: dict[str, Callable[[], Library]] = {
        level: functools.partial(build_for, text, level) for level in wanted
    }
    if source.flags is not None or not wanted:
        flags = source.flags or ("-O3", "-fPIC", "-shared")
        make_any = functools.partial(build, text, flags, source.libraries, salt=source.salt)
        makers = {carried.ANY: make_any}
    for level, make in makers.items():
        try:
            parts[f"{name}.{level}.so"] = make().content
            code[level] = f"{name}.{level}.so"
        except StageError as error:
            left_out.append(f"code for {level} of {name}.c: {error}")
    return SavedLibrary(key, f"{name}.c", code), parts, left_out


def _name(function: Any) -> str:
    """Return how another process finds a function: ``module:name``; only its class for modules."""
    if function is None:
        return ""
    function = getattr(function, "_orig_mod", function)
    named = inspect.unwrap(function) if callable(function) else function
    if not hasattr(named, "__qualname__"):
        named = type(named)
    return f"{named.__module__}:{named.__qualname__}"


def _sha256_of(file: str) -> str:
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:  # code without a file
        return ""


def _described(manifest: Manifest, sha256: str, left_out: tuple[str, ...] = ()) -> Saved:
    known = {level for library in manifest.libraries for level in library.code}
    return Saved(
        tuple(graph.place for graph in manifest.graphs),
        len(manifest.libraries),
        tuple(level for level in carried.LEVELS if level in known),
        sha256,
        left_out,
    )


# -- in --------------------------------------------------------------------------------------------
def unpack(
    content: bytes, label: str, key: bytes | None = None, sha256: str | None = None
) -> tuple[Saved, SavedFile]:
    """Verify a file and use it from now on, where it fits this process; else say what differs.

    Raises:
        SavedFileError: it is not valid; nothing of it is used.
    """
    try:
        found = saved.opened(content, key, sha256)
    except SavedFileError as error:
        raise SavedFileError(f"{label} cannot be loaded: {error}") from error
    manifest, here = found.manifest, needs()
    differ = [name for name, value in here.items() if manifest.needs.get(name) != value]
    if differ:
        trace.warn(
            f"{label} was saved for {_differences(differ, manifest.needs, here)}: it is not used, "
            "and everything is compiled here"
        )
    else:
        _report_changed_files(label, manifest)
        carried.install(_bundle(label, found))
    return _described(manifest, found.sha256), found


def load(
    path: str | os.PathLike[str], key: bytes | None, sha256: str | None
) -> tuple[Saved, SavedFile]:
    """Read a file; see `tc.load`."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise SavedFileError(f"{path} cannot be read: {error.strerror}") from error
    return unpack(content, str(path), key, sha256)


def found_function(label: str, found: SavedFile) -> Any:
    """Import the function that a file is named after.

    Raises:
        SavedFileError: no import finds it.
    """
    module, _, name = found.manifest.function.partition(":")
    try:
        value: Any = importlib.import_module(module)
        for part in name.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError, ValueError):
        value = None
    value = inspect.unwrap(value) if callable(value) else value
    if value is None or isinstance(value, type):
        raise SavedFileError(
            f"{label} is of {found.manifest.function}, which no import finds as a function: "
            "pass the live function or module, tc.load(path, fn)"
        )
    return value


def _differences(names: list[str], there: Mapping[str, str], here: Mapping[str, str]) -> str:
    """Name what differs; versions of tc are hashes, which mean nothing to people."""
    rows = []
    for name in names:
        before, now = there.get(name, "nothing"), here[name]
        rows.append(
            "another version of tc" if name == "tc"
            else f"{name} {before.splitlines()[0]} (here: {now.splitlines()[0]})"
        )  # fmt: skip
    return ", ".join(rows)


def _report_changed_files(label: str, manifest: Manifest) -> None:
    changed = [
        file
        for file, digest in manifest.files.items()
        if (now := _sha256_of(file)) and now != digest
    ]
    if changed:
        trace.warn(
            f"{', '.join(changed)} changed since {label} was saved: graphs that differ are "
            "compiled here"
        )


def _bundle(label: str, found: SavedFile) -> carried.Bundle:
    parts, manifest = found.parts, found.manifest
    return carried.Bundle(
        label,
        {
            graph.key: store.Entry(parts[graph.entry], parts.get(graph.events, b""))
            for graph in manifest.graphs
        },
        {graph.key: graph.parts for graph in manifest.graphs},
        {graph.key: graph.place for graph in manifest.graphs},
        {
            library.key: {level: parts[name] for level, name in library.code.items()}
            for library in manifest.libraries
        },
    )
