"""Compiled graphs on disk: a second process that captures the same graph compiles nothing.

In: a graph. Out: its program from an earlier compile, and the events of that compile; or None.
Captured graphs have entries with all that a call needs: one, or where gradients are wanted two, for
forward and backward. The ATen graphs of captured ones that have no key have entries of their own.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from tc import trace
from tc.compiler import aot
from tc.compiler.cache.graph_key import (
    DEVICES,
    SMALL,
    Key,
    Uncached,
    attribute,
    key_of,
    tensor_bytes,
)
from tc.compiler.capture import hook
from tc.compiler.core import ahead
from tc.compiler.core.artifacts import KernelSpec, Program, StepCost
from tc.compiler.core.conditions import Condition
from tc.compiler.core.frozen import NotPlain, dumps, loads
from tc.compiler.core.frozen_graph import CLASSES as GRAPH_CLASSES
from tc.compiler.core.frozen_graph import restored, written
from tc.compiler.core.gpu import GpuProgram
from tc.compiler.core.graphtext import PLACE, UNREPORTED
from tc.compiler.runtime import carried, claims, store
from tc.compiler.runtime.load import load
from tc.compiler.runtime.triton import load as load_gpu
from tc.compiler.telemetry.profile import programs

Boxed = Callable[[list[Any]], tuple[Any, ...]]

#: folder of the entries
KIND = "graph"


@dataclass(frozen=True)
class Held:
    """A constant of a program that its graph holds under a path."""

    path: str


@dataclass(frozen=True)
class Written:
    """A small constant that compiling made, by its elements, and where it was."""

    dtype: str
    size: tuple[int, ...]
    elements: str
    device: str


@dataclass(frozen=True)
class Kept:
    """An entry.

    Attributes:
        program: without its constants.
        constants: name -> where the value is found.
        contract: how the program is called; None for graphs of ATen operations.
        events: the events of its compile, its code last; on disk they are separate.
        pair: identifies the partition that forward and backward belong to.
        operations: backward as operations, with forward's entry: a `PlainGraph` as text, which is
            read where it is asked for.
        conditions: on symbolic sizes, for which it is right.
    """

    program: Program
    constants: tuple[tuple[str, Held | Written], ...]
    contract: aot.Contract | aot.TrainingContract | None
    events: tuple[trace.Remembered, ...]
    pair: str = ""
    operations: str = ""
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class Trained:
    """A captured graph with gradients, as found.

    Attributes:
        backward: loads what runs backward without some tangents, and its contract, which is None
            if there are all; None: nobody has compiled that yet.
        operations: returns backward as a graph of ATen operations.
        key, later, pair: of its entries.
    """

    contract: aot.TrainingContract
    forward: Boxed
    backward: Callable[[tuple[int, ...]], tuple[aot.Contract | None, Boxed] | None]
    operations: Callable[[], fx.GraphModule]
    key: Key
    later: Key
    pair: str


@dataclass(frozen=True)
class Cut:
    """How a captured graph that was looked for has been cut.

    Attributes:
        key: of its first entry.
        events: those before forward's program, and those before backward's.
        later: of its second entry, once forward is compiled.
    """

    key: Key
    gm: fx.GraphModule
    contract: aot.TrainingContract
    operations: str
    pair: str
    events: Mapping[str, tuple[trace.Event, ...]]
    later: Key | None = None


@dataclass(frozen=True)
class Part:
    """What a backward without some tangents is, beside its graph: under `PART` in its module.

    Attributes:
        missing: positions of these tangents.
        events: those before the events of its program.
    """

    missing: tuple[int, ...]
    contract: aot.Contract
    events: tuple[trace.Event, ...]


PART = "tc_part"

CLASSES = (
    *(Held, Written, Kept, Program, GpuProgram, KernelSpec, StepCost, aot.Contract, *aot.OUTPUTS),
    *(aot.TrainingContract, aot.RerunPlan, Condition, *GRAPH_CLASSES),
)


class GraphCache:
    """The entries that one compile looks for and leaves.

    Args:
        settings: what its result depends on besides graph and inputs, by name.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        # Entries made without a trace lack the events of their compile.
        self.settings = {**settings, "traced": trace.enabled()}
        self._missed: Key | None = None
        self._made: tuple[Program, tuple[trace.Event, ...]] | None = None
        self._cut: Cut | None = None
        self._claims: list[list[claims.Claim]] = []

    def __enter__(self) -> None:
        """Begin a compile: what it claims is its own until it ends."""
        self._claims.append([])

    def __exit__(self, *raised: object) -> None:
        for claim in self._claims.pop():
            claim.release()

    # -- captured graphs -------------------------------------------------------------------------
    def find(self, gm: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any] | None:
        """Return what runs a captured graph, None if it has to be compiled."""
        self._missed, kept = self._look("captured", gm, examples)
        if kept is None or not isinstance(kept.contract, aot.Contract):
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
            events: the events before its program was made.
        """
        if self._missed is None or self._made is None:
            return
        program, more = self._made
        self._write(self._missed, gm, program, contract, (*events, *more))

    # -- captured graphs with gradients ------------------------------------------------------------
    def find_training(self, gm: fx.GraphModule, examples: Sequence[Any]) -> Trained | None:
        """Return what runs a captured graph with its gradients, None if it is to be compiled."""
        key = self._key("training", gm, examples)
        if key is None:
            return None
        with trace.stage("graph_cache.look"):
            first, waited = self._read_or_claim(key)
            later = key.of_backward()  # guards are made before backward is compiled
            second = None if first is None else _read(later)
        found = first is not None and (second is None or second.pair == first.pair)
        _report_lookup(found, key, gm, waited)
        if (
            not found
            or first is None
            or not isinstance(first.contract, aot.TrainingContract)
            or not first.operations
        ):
            self._missed = key
            return None
        pair, operations = first.pair, first.operations

        def backward(missing: tuple[int, ...]) -> tuple[aot.Contract | None, Boxed] | None:
            own = later.without(missing)
            kept = _fitting(own, pair)
            if kept is None or isinstance(kept.contract, aot.TrainingContract):
                return None
            if (kept.contract is None) == bool(missing):
                return None
            _note(own, gm)
            return kept.contract, run_kept(kept, gm)

        return Trained(
            first.contract,
            run_kept(first, gm),
            backward,
            functools.cache(lambda: restored(loads(operations.encode(), CLASSES))),
            key,
            later,
            pair,
        )

    def cut_again(
        self, found: Trained, gm: fx.GraphModule, contract: aot.TrainingContract,
        backward: fx.GraphModule, events: Sequence[trace.Event],
    ) -> bool:  # fmt: skip
        """Note that a graph that was found has been cut again, as nobody has compiled its backward.

        Returns:
            Whether it was cut as before, so that this backward fits the forward that was found.
        """
        self._missed = found.key
        self.cut(gm, contract, backward, {"forward": (), "backward": events})
        if self._cut is not None:
            fits = self._cut.pair == found.pair
            self._cut = replace(self._cut, later=found.later) if fits else None
        return self._cut is not None

    def cut(
        self, gm: fx.GraphModule, contract: aot.TrainingContract, backward: fx.GraphModule,
        events: Mapping[str, Sequence[trace.Event]],
    ) -> None:  # fmt: skip
        """Note how the captured graph that was looked for has been cut, before that is compiled.

        Args:
            backward: its operations; compiling changes them.
            events: ``forward`` and ``backward`` -> the events before its program was made.
        """
        key, self._missed = self._missed, None
        if key is None:
            return
        try:
            operations = dumps(written(backward.graph)).decode()
            pair = hashlib.sha256(dumps((contract, operations))).hexdigest()
        except NotPlain as why:
            _report_bypass(f"training graph: {why}")
            return
        before = {kind: tuple(of) for kind, of in events.items()}
        self._cut = Cut(key, gm, contract, operations, pair, before)

    def _cut_program(
        self, cut: Cut, kind: str, make: Callable[[], tuple[Program, Any]], part: Part | None
    ) -> Boxed:
        """Make the program of forward or backward, and leave its entry.

        Another process may have made backward's since forward was.
        """
        if kind == "forward":
            program, events = make()
            self._cut = replace(cut, later=cut.key.of_backward())
            events = (*cut.events[kind], *events)
            more = (cut.contract, events, cut.pair, cut.operations)
            self._write(cut.key, cut.gm, program, *more)
            return run(program)
        later = cut.later or cut.key.of_backward()
        contract, before = None, cut.events[kind]
        if part is not None:
            later, contract, before = later.without(part.missing), part.contract, part.events
        with self:
            kept, _ = self._read_or_claim(later, lambda: _fitting(later, cut.pair))
            if kept is not None:
                _note(later, cut.gm)
                return run_kept(kept, cut.gm)
            program, events = make()
            self._write(later, cut.gm, program, contract, (*before, *events), cut.pair)
        return run(program)

    # -- graphs of ATen operations -----------------------------------------------------------------
    def program(
        self, kind: str, module: fx.GraphModule, make: Callable[[], tuple[Program, Any]]
    ) -> Boxed:
        """Return what runs a graph, from its entry or made now.

        Args:
            kind: ``forward`` or ``backward``.
            make: returns the program and its events.
        """
        if self._cut is not None:
            return self._cut_program(self._cut, kind, make, module.meta.get(PART))
        examples = [node.meta["val"] for node in module.graph.find_nodes(op="placeholder")]
        with self if kind == "backward" else nullcontext():  # forward is part of a compile
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
        key = self._key(kind, gm, examples)
        if key is None:
            return None, None
        with trace.stage("graph_cache.look"):
            kept, waited = self._read_or_claim(key)
        _report_lookup(kept is not None, key, gm, waited)
        return key, kept

    def _read_or_claim(
        self, key: Key, look: Callable[[], Kept | None] | None = None
    ) -> tuple[Kept | None, bool]:
        """Return an entry, None if it is to be made here, and whether it was not there at first.

        What is not there at first may be made by another process at this moment.
        """
        look = look or functools.partial(_read, key)
        found = look()
        missing = found is None
        if missing:
            name = store.name_of(KIND, key.digest)
            waiting = trace.stage("graph_cache.wait")
            found, claim = claims.turn(store.store().place, name, look, waiting)
            if claim is not None:
                self._claims[-1].append(claim)
        return found, missing

    def _key(self, kind: str, gm: fx.GraphModule, examples: Sequence[Any]) -> Key | None:
        with trace.stage("graph_cache.key"):
            try:
                settings = {"kind": kind, **self.settings}
                return key_of(gm, examples, settings, with_lines=UNREPORTED in gm.meta)
            except (Uncached, NotPlain) as why:
                _report_bypass(f"{kind} graph: {why}")
            except Exception as error:  # a compile does not fail for want of a key
                _report_bypass(f"{kind} graph: {type(error).__name__}: {error}")
        return None

    def _write(
        self,
        key: Key,
        gm: fx.GraphModule,
        program: Program,
        contract: aot.Contract | aot.TrainingContract | None,
        events: tuple[trace.Event, ...],
        pair: str = "",
        operations: str = "",
    ) -> None:
        with trace.stage("graph_cache.keep"):
            try:
                constants = _places(gm, program)
                asked = key.sizes.asked() if key.sizes is not None else ()
                if asked and "backward" in key.parts["kind"]:
                    raise Uncached(
                        "its cache entry needs guards on sizes after the guards are final"
                    )
                plain = replace(program, constants=())
                kept = Kept(plain, constants, contract, (), pair, operations, asked)
                content, reported = dumps(kept), b""
                if self.settings["traced"]:
                    reported = _packed(events, program)
            except (NotPlain, Uncached) as why:
                _report_bypass(f"not kept: {why}")
                return
            store.write(KIND, key.digest, content, reported)
            _note(key, gm)


@trace.reports(bytes)
def _packed(events: Sequence[trace.Event], program: Program) -> bytes:
    return trace.packed((*events, trace.OutputCode(str(program), "")))


def _fitting(later: Key, pair: str) -> Kept | None:
    """Return backward's entry, if it was cut as forward's was."""
    kept = _read(later)
    return kept if kept is not None and kept.pair == pair else None


def _report_lookup(found: bool, key: Key, gm: fx.GraphModule, waited: bool) -> None:
    if trace.enabled():
        _emit_lookup(found, key, waited)
    if (noted := ahead.noted()) is not None:
        noted.lookups.append(found)
    if found:
        _note(key, gm)
    else:
        _warn_of_near(key, gm)


@trace.reports(trace.nothing)
def _emit_lookup(found: bool, key: Key, waited: bool) -> None:
    trace.emit(trace.Cache(found, key.digest, key.parts, found and waited))


@trace.reports(trace.nothing)
def _warn_of_near(key: Key, gm: fx.GraphModule) -> None:
    """Warn of the entry of a saved file that is nearly the one."""
    place = gm.meta.get(PLACE)
    near = None if place is None else carried.differing(key.carried_parts, place.name)
    if near is not None:
        label, names = near
        trace.warn(
            f"a graph of {place} is not in {label}, where the most similar one differs in "
            f"{', '.join(names) or 'conditions on sizes'}: it is compiled here"
        )


def _report_bypass(why: str) -> None:
    trace.emit(trace.Artifact("tc_graph_cache_bypass", why))


def run(program: Program, code: trace.Remembered | None = None) -> Boxed:
    """Build and load a program, and emit its code.

    Args:
        code: the events of its compile.
    """
    with trace.stage("runtime.build"):
        call = load_gpu(program) if isinstance(program, GpuProgram) else load(program)
    if trace.enabled():
        path = inspect.unwrap(call).__code__.co_filename
        _emit_code(program, path, code)
        call = programs.add(call, program)
    return hook.never_trace(call)  # backward may be called where frames are captured


@trace.reports(trace.nothing)
def _emit_code(program: Program, path: str, code: trace.Remembered | None) -> None:
    again = None if code is None else replace(code, filename=path)
    trace.emit(again or trace.OutputCode(str(program), path))


def run_kept(kept: Kept, gm: fx.GraphModule) -> Boxed:
    """Load an entry's program, with the constants of this process's graph, and emit its events."""
    *events, code = kept.events or (None,)
    if events and events[0].name == trace.OutputGraph.wire and not gm.meta.pop(UNREPORTED, False):
        del events[0]
    trace.emit_all(events)
    constants = tuple((name, _constant(place, gm)) for name, place in kept.constants)
    return run(replace(kept.program, constants=constants), code)


def _read(key: Key) -> Kept | None:
    """Return an entry, from a file that was loaded or from disk."""
    entry = carried.entry(key.portable) or store.entry(KIND, key.digest)
    if entry is None:
        return None
    try:
        kept = loads(entry.content, CLASSES)
        if not isinstance(kept, Kept):
            return None
        if entry.events:  # none where no sink was open
            kept = replace(kept, events=trace.unpacked(entry.events))
    except (ValueError, KeyError, TypeError):
        return None
    if kept.conditions and (key.sizes is None or not key.sizes.ask(kept.conditions)):
        return None
    return kept


def readable(content: bytes) -> str:
    """Return the Python of an entry's program, for people."""
    return str(loads(content, CLASSES).program.wrapper_source)


def kernels_of(content: bytes) -> str:
    """Return the C of an entry's kernels; empty if there is none."""
    return str(loads(content, CLASSES).program.c_source)


def _note(key: Key, gm: fx.GraphModule) -> None:
    """Note that this process uses an entry, which `tc.save` writes to a file."""
    place = gm.meta.get(PLACE)
    where, file = ("", "") if place is None else (str(place), place.file)
    parts = key.carried_parts
    carried.note_graph(carried.Graph(key.digest, key.portable, parts, where, file))


def _places(gm: fx.GraphModule, program: Program) -> tuple[tuple[str, Held | Written], ...]:
    """Return where each constant of a program is found.

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
        or value.device.type not in DEVICES
        or value.requires_grad
        or not value.is_contiguous()
        or value.numel() * value.itemsize > SMALL
    ):
        raise Uncached(f"a constant created by the compiler is a {type(value).__name__}")
    dtype = str(value.dtype).removeprefix("torch.")
    elements = tensor_bytes(value).hex()
    return Written(dtype, tuple(value.shape), elements, str(value.device))


def _constant(place: Held | Written, gm: fx.GraphModule) -> Any:
    if isinstance(place, Held):
        return attribute(gm, place.path)
    elements = bytearray.fromhex(place.elements)
    dtype: torch.dtype = getattr(torch, place.dtype)
    if not elements:
        return torch.empty(place.size, dtype=dtype, device=place.device)
    made = torch.frombuffer(elements, dtype=dtype).reshape(place.size)
    return torch.empty_like(made, device=place.device).copy_(made)  # aligned as usual
