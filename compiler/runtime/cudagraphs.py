"""CUDA graphs: a program's launches are recorded once, then replayed as one launch.

In: the function that runs a program, and the device's `Recorder`. Out: a function of the same
inputs that replays (`Replayed`). The first call of each set of sizes runs normally (kernels are
compiled, libraries set up), the second one records, later ones replay.

A recording has fixed addresses of inputs and results. So inputs at other addresses are copied
there, and a result that the program still references is never overwritten by a replay: such results
are returned as copies from then on. All recordings of a program share one memory pool. A program
that cannot be replayed runs normally, and that is reported.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch

from tc import trace
from tc.compiler.core.gpu import WARMUP
from tc.compiler.core.table import Table

if TYPE_CHECKING:
    from tc.compiler.core.gpu import GpuProgram

Launch = Callable[[list[Any]], tuple[Any, ...]]
Key = tuple[Any, ...]

#: recordings that one program may have, each of other sizes or numbers
MOST_RECORDINGS = 16
#: the number of times that one recording is repeated because inputs moved
MOST_MOVES = 3


class Recorder(Protocol):
    """Records and replays the launches of a device."""

    device: torch.device

    def pool(self) -> Any:
        """Return a memory pool for recordings to share."""

    def join(self) -> None:
        """Make the caller's stream wait for other streams' work on the recordings' memory."""

    def record(
        self, launch: Callable[[], tuple[Any, ...]], pool: Any
    ) -> tuple[Callable[[], None], tuple[Any, ...]]:
        """Return the replay function, and the results, which each replay overwrites.

        Raises:
            RuntimeError: an operation cannot be recorded.
        """


class CudaRecorder:
    """Records CUDA graphs by torch's classes."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.last: torch.cuda.Stream | None = None

    def pool(self) -> Any:
        """Return a handle of a memory pool of the caching allocator."""
        return torch.cuda.graph_pool_handle()

    def record(
        self, launch: Callable[[], tuple[Any, ...]], pool: Any
    ) -> tuple[Callable[[], None], tuple[Any, ...]]:
        """See `Recorder`."""
        graph = torch.cuda.CUDAGraph()
        # Other threads may allocate meanwhile: only this thread's launches are recorded.
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            results = launch()
        return graph.replay, results

    def join(self) -> None:
        """See `Recorder`."""
        stream = torch.cuda.current_stream(self.device)
        if self.last is not None and self.last != stream:
            stream.wait_stream(self.last)
        self.last = stream


#: device type -> its recorder; a device without a row launches one by one
RECORDERS: Table[str, Callable[[torch.device], Recorder]] = Table("recorders of launches")
RECORDERS.add("cuda", CudaRecorder)


@dataclass
class Recording:
    """The launches for one set of sizes.

    Attributes:
        places: position of an input -> its address in the last run.
        copies: position -> the memory into which the input is copied before a replay.
        memory: the distinct storages of the results.
        idle: the reference count of each storage without outside references.
        copied: storages that are returned as copies.
        moves: how often it was recorded again.
    """

    places: dict[int, int]
    replay: Callable[[], None] | None = None
    results: tuple[Any, ...] = ()
    copies: dict[int, torch.Tensor] = field(default_factory=dict)
    memory: list[torch.UntypedStorage] = field(default_factory=list)
    idle: list[int] = field(default_factory=list)
    copied: set[int] = field(default_factory=set)
    moves: int = 0

    def held(self) -> list[int]:
        """Return the storages with outside references."""
        pairs = enumerate(zip(self.memory, self.idle, strict=True))
        return [number for number, (memory, idle) in pairs if _references(memory) > idle]


class Cannot(Exception):
    """Why launches are not replayed; the first argument is the kind of reason."""


class Replayed:
    """A program whose launches are replayed.

    Args:
        launch: runs the program.
        recorder: the recorder of its device.
        written: positions of inputs that the program writes to.
        name: the program's name, for the trace.
    """

    def __init__(
        self, launch: Launch, recorder: Recorder, written: Sequence[int] = (), name: str = ""
    ) -> None:
        self.launch, self.recorder = launch, recorder
        self.written, self.name = frozenset(written), name
        self.compile_id = trace.current_compile()
        self.recordings: dict[Key, Recording] = {}
        self.refused: set[Key] = set()
        self.reported: set[str] = set()
        self._pool: Any = None
        self._lock = threading.RLock()  # all calls share the memory of inputs and results

    def __call__(self, args: list[Any]) -> tuple[Any, ...]:
        """Run the program; ``args`` is emptied. Calls of several threads run one after another."""
        with self._lock:
            return self._run(args)

    def _run(self, args: list[Any]) -> tuple[Any, ...]:
        key = tuple([_case(arg) for arg in args])
        if key in self.refused:
            return self.launch(args)
        if any(one.held() for one in self.recordings.values()):
            self._start_over()
        known = self.recordings.get(key)
        try:
            if known is None:
                return self._warm_up(key, args)
            self.recorder.join()
            moved = _moved(known, args)
            if known.replay is None or moved:
                self._record(known, args, moved)
        except Cannot as why:
            self._refuse(key, *why.args)
            return self.launch(args)
        return self._replay(known, args)

    # ---------------------------------------------------------------- the three kinds of a call

    def _warm_up(self, key: Key, args: list[Any]) -> tuple[Any, ...]:
        if len(self.recordings) >= MOST_RECORDINGS:
            why = f"its inputs have already had {MOST_RECORDINGS} sets of sizes and numbers"
            raise Cannot("dynamic", why)
        for arg in args:
            if isinstance(arg, torch.Tensor) and arg.device.type != self.recorder.device.type:
                raise Cannot(
                    "elsewhere", f"an input is on {arg.device}: the recording would keep its value"
                )
        places, WARMUP.incomplete = _places(args), False
        results = self.launch(args)
        if not WARMUP.incomplete:
            self.recordings[key] = Recording(places)
        return results

    def _record(self, known: Recording, args: Sequence[Any], moved: Sequence[int]) -> None:
        known.moves += known.replay is not None
        if known.moves > MOST_MOVES:  # inputs that may move are copied
            moved = [k for k in known.places if k not in self.written]
        for k in moved:
            known.copies.setdefault(k, self._fixed_memory(k, args[k]))
        given = list(args)
        for k, memory in known.copies.items():
            given[k] = memory.copy_(args[k])
        self._pool = self._pool or self.recorder.pool()
        try:
            replay, results = self.recorder.record(lambda: self.launch(list(given)), self._pool)
        except RuntimeError as error:
            raise Cannot("unrecordable", str(error).partition("\n")[0]) from error
        tensors = [r for r in results if isinstance(r, torch.Tensor)]
        if not all(r is None or isinstance(r, torch.Tensor | int | float) for r in results):
            raise Cannot("unrecordable", "a result is not a tensor")
        inputs = {_start(arg) for arg in given if isinstance(arg, torch.Tensor)}
        if any(_start(r) in inputs for r in tensors if r.numel()):
            raise Cannot("alias", "a result shares memory with an input")
        known.replay, known.results = replay, results
        storages = [r.untyped_storage() for r in tensors]
        known.memory = list({memory._cdata: memory for memory in storages}.values())
        del storages
        known.idle = [_references(memory) for memory in known.memory]
        copied = f"{len(known.copies)} of {len(args)} inputs are copied"
        self._report("recorded", "", f"{copied}, {len(known.copied)} results")

    def _fixed_memory(self, k: int, arg: torch.Tensor) -> torch.Tensor:
        """Return fixed memory for an input whose address changes."""
        if k in self.written:
            why = "it writes to an input whose address changes between calls"
            raise Cannot("mutation", why)
        if torch._debug_has_internal_overlap(arg) == 1:
            raise Cannot("overlap", "an input is expanded, so nothing can be copied into it")
        return torch.empty_strided(arg.size(), arg.stride(), dtype=arg.dtype, device=arg.device)

    def _replay(self, known: Recording, args: list[Any]) -> tuple[Any, ...]:
        for k, memory in known.copies.items():
            memory.copy_(args[k])
        for k in self.written:
            torch.autograd.graph.increment_version(args[k])
        args.clear()
        assert known.replay is not None
        known.replay()
        return self._results(known)

    def _results(self, known: Recording) -> tuple[Any, ...]:
        """Return the results: the memory itself, under new tensors, or copies of it."""
        number = {memory._cdata: k for k, memory in enumerate(known.memory)}
        fresh = {k: _copy(known.memory[k]) for k in known.copied}
        found: list[Any] = []
        for result in known.results:
            if not isinstance(result, torch.Tensor):
                found.append(result)
                continue
            memory = fresh.get(number[result.untyped_storage()._cdata])
            if memory is None:
                found.append(result.data)  # it has its own version counter
                continue
            empty = torch.empty(0, dtype=result.dtype, device=result.device)
            start, size, stride = result.storage_offset(), result.size(), result.stride()
            found.append(empty.set_(memory, start, size, stride))
        return tuple(found)

    def _start_over(self) -> None:
        """Give the old memory up to its users, and record again in new memory.

        A recording's results may be in memory that another recording of the pool uses temporarily.
        """
        for one in self.recordings.values():
            one.copied.update(one.held())
            one.replay, one.results, one.memory, one.idle = None, (), [], []
        self._pool = None
        why = "results of an earlier call are still in use: they are copied from now on"
        self._report("recorded anew", "held", why)

    # ---------------------------------------------------------------- reports

    def _refuse(self, key: Key, cause: str, why: str) -> None:
        self.refused.add(key)
        self.recordings.pop(key, None)
        self._report("refused", cause, why)

    @trace.reports(trace.nothing)
    def _report(self, action: str, cause: str, why: str) -> None:
        if action != "recorded" and why in self.reported:
            return
        self.reported.add(why)
        trace.emit(trace.CudaGraph(action, cause, why, self.name), self.compile_id)


@trace.reports(trace.nothing)
def _report_refusal(cause: str, why: str, kind: str) -> None:
    trace.emit(trace.CudaGraph("refused", cause, why, kind))


def replayed(launch: Launch, program: GpuProgram) -> Launch:
    """Return a function that replays a program's launches if possible."""
    device = torch.device(program.device)
    if device.type not in RECORDERS:
        return launch
    if program.unreplayable:
        _report_refusal(*program.unreplayable, program.kind)
        return launch
    runner = Replayed(launch, RECORDERS[device.type](device), program.written, program.kind)

    @functools.wraps(launch)
    def call(args: list[Any]) -> tuple[Any, ...]:
        return runner(args)

    return call


def _copy(memory: torch.UntypedStorage) -> torch.UntypedStorage:
    fresh = torch.empty(memory.nbytes(), dtype=torch.uint8, device=memory.device)
    return fresh.untyped_storage().copy_(memory)


def _references(memory: torch.UntypedStorage) -> int:
    count: int = torch._C._storage_Use_Count(memory._cdata)
    return count


def _start(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _case(arg: Any) -> Any:
    """Return the part of a recording's key for one input."""
    if isinstance(arg, torch.Tensor):
        return arg.size(), arg.stride(), arg.dtype
    return arg


def _moved(known: Recording, args: Sequence[Any]) -> list[int]:
    """Return the inputs at other addresses than in the first run that are not copied."""
    places = known.places.items()
    return [k for k, place in places if k not in known.copies and args[k].data_ptr() != place]


def _places(args: Sequence[Any]) -> dict[int, int]:
    return {k: arg.data_ptr() for k, arg in enumerate(args) if isinstance(arg, torch.Tensor)}
