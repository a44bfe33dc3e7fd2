"""Compiled graphs on disk: a second process that captures the same graph compiles nothing.

In: a graph. Out: its program from an earlier compile, and what was told of that one; or None. Two
kinds of graph have entries: captured ones that need no gradients, with all that a call needs, and
the ATen graphs of forward and backward, whose cut is made anew.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from tc import trace
from tc.compiler import aot
from tc.compiler.capture import hook
from tc.compiler.core.artifacts import KernelSpec, Program
from tc.compiler.core.frozen import NotPlain, dumps, loads
from tc.compiler.core.gpu import GpuProgram
from tc.compiler.graph_key import SMALL, Key, Uncached, attribute, key_of, tensor_bytes
from tc.compiler.runtime import store
from tc.compiler.runtime.load import load
from tc.compiler.runtime.triton import load as load_gpu

Boxed = Callable[[list[Any]], tuple[Any, ...]]

#: folder of the entries
KIND = "graph"


@dataclass(frozen=True)
class Held:
    """A constant of a program that its graph holds under a path."""

    path: str


@dataclass(frozen=True)
class Written:
    """A small constant that compiling made, by its elements."""

    dtype: str
    size: tuple[int, ...]
    elements: str


@dataclass(frozen=True)
class Kept:
    """An entry.

    Attributes:
        program: without its constants.
        constants: name -> where the value is found.
        contract: how the program is called; None for graphs of ATen operations.
        events: what was told when it was compiled.
    """

    program: Program
    constants: tuple[tuple[str, Held | Written], ...]
    contract: aot.Contract | None
    events: tuple[trace.Remembered, ...]


CLASSES = (
    trace.Remembered,
    *(Held, Written, Kept, Program, GpuProgram, KernelSpec, aot.Contract, *aot.OUTPUTS),
)


class GraphCache:
    """The entries that one compile looks for and leaves.

    Args:
        settings: what its result depends on besides graph and inputs, by name.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        # Entries made untold lack what was to tell.
        self.settings = {**settings, "told": trace.enabled()}
        self._missed: Key | None = None
        self._made: tuple[Program, tuple[trace.Event, ...]] | None = None

    # -- captured graphs -------------------------------------------------------------------------
    def find(self, gm: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any] | None:
        """Return what runs a captured graph, None if it has to be compiled."""
        self._missed, kept = self._look("captured", gm, examples)
        if kept is None or kept.contract is None:
            return None
        self._missed = None
        return aot.wrap_contract(kept.contract, run_kept(kept, gm), gm)

    def made(self, program: Program, events: Sequence[trace.Event]) -> None:
        """Note what the graph that was looked for has become."""
        self._made = program, tuple(events)

    def keep(
        self, gm: fx.GraphModule, contract: aot.Contract, events: Sequence[trace.Event]
    ) -> None:
        """Leave an entry for the captured graph that was looked for, if that can be done.

        Args:
            events: what was told before its program was made.
        """
        if self._missed is None or self._made is None:
            return
        program, more = self._made
        self._write(self._missed, gm, program, contract, (*events, *more))

    # -- graphs of ATen operations -----------------------------------------------------------------
    def program(
        self, kind: str, module: fx.GraphModule, make: Callable[[], tuple[Program, Any]]
    ) -> Boxed:
        """Return what runs a graph, from its entry or made now.

        Args:
            kind: ``forward`` or ``backward``.
            make: returns the program and the events that tell of it.
        """
        examples = [node.meta["val"] for node in module.graph.find_nodes(op="placeholder")]
        key, kept = self._look(kind, module, examples)
        if kept is not None:
            return run_kept(kept, module)
        program, events = make()
        if key is not None:
            self._write(key, module, program, None, tuple(events))
        return run(program)

    # -- entries -----------------------------------------------------------------------------------
    def _look(
        self, kind: str, gm: fx.GraphModule, examples: Sequence[Any]
    ) -> tuple[Key | None, Kept | None]:
        with trace.stage("graph_cache.look"):
            try:
                key = key_of(gm, examples, {"kind": kind, **self.settings})
            except Uncached as why:
                _tell_bypass(f"{kind} graph: {why}")
                return None, None
            except Exception as error:  # a compile does not fail for want of a key
                _tell_bypass(f"{kind} graph: {type(error).__name__}: {error}")
                return None, None
            kept = _read(key, gm)
        trace.emit(trace.Cache(kept is not None, key.digest, key.parts))
        return key, kept

    def _write(
        self,
        key: Key,
        gm: fx.GraphModule,
        program: Program,
        contract: aot.Contract | None,
        events: tuple[trace.Event, ...],
    ) -> None:
        with trace.stage("graph_cache.keep"):
            try:
                constants = _places(gm, program)
                told = tuple(map(trace.Remembered.of, events))
                kept = Kept(replace(program, constants=()), constants, contract, told)
                content = dumps(kept)
            except (NotPlain, Uncached) as why:
                _tell_bypass(f"not kept: {why}")
                return
            store.write(KIND, key.digest, content)


def _tell_bypass(why: str) -> None:
    trace.emit(trace.Artifact("tc_graph_cache_bypass", why))


def run(program: Program) -> Boxed:
    """Build and load a program, and tell its code."""
    with trace.stage("runtime.build"):
        call = load_gpu(program) if isinstance(program, GpuProgram) else load(program)
    if trace.enabled():
        path = inspect.unwrap(call).__code__.co_filename
        trace.emit(trace.OutputCode(str(program), path))
    return hook.never_trace(call)  # backward may be called where frames are captured


def run_kept(kept: Kept, gm: fx.GraphModule) -> Boxed:
    """Load an entry's program, with the constants of this process's graph, and tell all of it."""
    for event in kept.events:
        trace.emit(event)
    constants = tuple((name, _constant(place, gm)) for name, place in kept.constants)
    return run(replace(kept.program, constants=constants))


def _read(key: Key, gm: fx.GraphModule) -> Kept | None:
    content = store.read(KIND, key.digest)
    if content is None:
        return None
    try:
        kept = loads(content, CLASSES)
    except (ValueError, KeyError, TypeError):
        return None
    return kept if isinstance(kept, Kept) else None


def _places(gm: fx.GraphModule, program: Program) -> tuple[tuple[str, Held | Written], ...]:
    """Say where each constant of a program is found.

    Raises:
        Uncached: one is nowhere, and too large to be written down.
    """
    held = {}
    for node in gm.graph.find_nodes(op="get_attr"):
        held[id(attribute(gm, str(node.target)))] = str(node.target)
    return tuple(
        (name, Held(held[id(value)]) if id(value) in held else _written(value))
        for name, value in program.constants
    )


def _written(value: Any) -> Written:
    if (
        type(value) is not torch.Tensor
        or value.device.type != "cpu"
        or value.requires_grad
        or not value.is_contiguous()
        or value.numel() * value.itemsize > SMALL
    ):
        raise Uncached(f"a constant that compiling made is a {type(value).__name__}")
    dtype = str(value.dtype).removeprefix("torch.")
    return Written(dtype, tuple(value.shape), tensor_bytes(value).hex())


def _constant(place: Held | Written, gm: fx.GraphModule) -> Any:
    if isinstance(place, Held):
        return attribute(gm, place.path)
    elements = bytearray.fromhex(place.elements)
    dtype: torch.dtype = getattr(torch, place.dtype)
    if not elements:
        return torch.empty(place.size, dtype=dtype)
    return torch.frombuffer(elements, dtype=dtype).reshape(place.size).clone()  # aligned as usual
