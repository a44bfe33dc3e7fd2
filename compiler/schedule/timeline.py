"""The memory of a plan, step by step: what is alive while each of its steps runs, and whose it is.

In: a `Plan`. Out: a `MemoryPlan` event. It follows the plan's own `Allocate` and `Free`. Memory
that a call of ATen takes for itself and gives back before it returns is not in the plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from tc import trace
from tc.compiler.loops import index as ix
from tc.compiler.loops.ir import Buffer, CopyInto, Extern, Origin, views_in
from tc.compiler.schedule.plan import Allocate, Free, Kernel, Plan, Step

#: the number of holders of the peak that are reported, the largest
HOLDERS = 12


def timeline(plan: Plan, kind: str, hints: Mapping[str, int]) -> trace.MemoryPlan:
    """Return what a plan holds while each of its steps runs.

    Args:
        kind: ``inference``, ``forward`` or ``backward``.
        hints: symbolic size -> its value at capture; what has others counts nothing.
    """
    run = _Run(hints)
    given = [item.buffer for item in plan.inputs if item.buffer is not None]
    inputs = [trace.MemoryInput(b.name, run.size(b)) for b in given]
    places = {b.name: at for at, b in enumerate(given)}
    names, places_of, alive = list[str](), list[str](), list[int]()
    peak = through = 0  # the most that is alive, and the steps until then
    for number, step in enumerate(plan.steps, 1):
        run.take(step)
        if isinstance(step, Kernel | Extern | CopyInto):
            names.append(_name(step))
            places_of.append(_place(getattr(step, "origins", ())))
            alive.append(run.total)
            if run.total >= peak:
                peak, through = run.total, number
        elif isinstance(step, Free):
            for name in step.names:
                if name in places:  # alive until here, if nobody else has it
                    at = places[name]
                    inputs[at] = trace.MemoryInput(name, inputs[at].bytes, len(names))
    again = _Run(hints)
    for step in plan.steps[:through]:
        again.take(step)
    most = sorted(again.holders().items(), key=lambda row: -row[1][2])[:HOLDERS]
    holders = [trace.MemoryHolder(name, *row) for name, row in most]
    kept = run.kept(view.buffer for view in views_in(plan.outputs))
    return trace.MemoryPlan(
        kind, tuple(names), tuple(places_of), tuple(alive), tuple(inputs), tuple(holders), kept
    )


class _Run:
    """What is alive after the steps so far."""

    def __init__(self, hints: Mapping[str, int]) -> None:
        self.hints = hints
        self.total = 0
        self._bytes: dict[str, int] = {}  # memory, by the buffer that it was allocated for
        self._of: dict[str, str] = {}  # buffer -> the memory it is in
        self._users: Counter[str] = Counter()  # buffers in a memory
        self._made: dict[str, tuple[str, str]] = {}  # memory -> step and line that fill it
        self._waiting: list[str] = []  # allocated for the kernel to come

    def size(self, buffer: Buffer) -> int:
        """Return the bytes of a buffer; 0 if a size of it is unknown."""
        constant = buffer.numel.constant
        try:
            elements = constant if constant is not None else ix.evaluate(buffer.numel, self.hints)
        except KeyError:
            return 0
        return int(elements) * buffer.dtype.itemsize

    def take(self, step: Step) -> None:
        """Advance by one step."""
        if isinstance(step, Allocate):
            self._allocate(step.buffer, step.reuse)
            self._waiting.append(step.buffer.name)
        elif isinstance(step, Free):
            for name in step.names:
                self._release(name)
        elif isinstance(step, Extern):
            over = step.takes_over[0] if step.takes_over else None
            made = [buffer for buffer in step.results if buffer is not None]
            for buffer in made:
                self._allocate(buffer, over, shared=True)
            self._fill([buffer.name for buffer in made], step)
        elif isinstance(step, Kernel):
            self._fill(self._waiting, step)
            self._waiting = []

    def holders(self) -> dict[str, tuple[str, str, int]]:
        """Return memory -> the step and the line that filled it, and its bytes."""
        return {name: (*self._made.get(name, ("", "")), size) for name, size in self._bytes.items()}

    def kept(self, buffers: Iterable[str]) -> int:
        """Return the bytes of the memories that buffers are in; what is left goes at the end."""
        return sum(self._bytes.get(one, 0) for one in {self._of.get(b, b) for b in buffers})

    def _allocate(self, buffer: Buffer, over: str | None, *, shared: bool = False) -> None:
        """Put a buffer into memory of its own, or in that of another, which dies unless shared."""
        if over is None:
            memory = buffer.name
            self._bytes[memory] = self.size(buffer)
            self.total += self._bytes[memory]
        else:
            memory = self._of.get(over, over)
            if not shared:
                self._users[memory] -= self._of.pop(over, None) is not None
        self._of[buffer.name] = memory
        self._users[memory] += 1

    def _release(self, name: str) -> None:
        memory = self._of.pop(name, None)
        if memory is not None:
            self._users[memory] -= 1
            if self._users[memory] <= 0:
                self.total -= self._bytes.pop(memory, 0)

    def _fill(self, buffers: Iterable[str], step: Kernel | Extern) -> None:
        for name in buffers:
            self._made[self._of.get(name, name)] = _name(step), _place(step.origins)


def _name(step: Kernel | Extern | CopyInto) -> str:
    if isinstance(step, Kernel):
        return step.name
    return step.target if isinstance(step, Extern) else "copy_"


def _place(origins: Iterable[Origin]) -> str:
    return next((origin.place for origin in origins if origin.line), "")
