"""Memory planning: allocates and frees buffers, and reuses the memory of dead ones.

In: kernels and ATen calls in order. Out: the same steps with `Allocate` and `Free` between them. A
dead buffer is kept for a later one of its shape only if that does not raise the peak.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tc.compiler.core.artifacts import Decision
from tc.compiler.core.gate import Gate
from tc.compiler.loops.ir import (
    Buffer,
    CopyInto,
    Extern,
    Input,
    Ref,
    ScalarNode,
    View,
    reads,
    views_in,
)
from tc.compiler.schedule.plan import Allocate, BumpVersions, Free, Kernel, Step

Work = Kernel | Extern | ScalarNode | CopyInto | BumpVersions


def used(step: Work) -> list[str]:
    """Buffers a step touches, and Python values it takes."""
    if isinstance(step, Kernel):
        return [*step.loaded, *step.bases().values(), *step.stored]
    if isinstance(step, CopyInto):
        return [*reads(step), step.input]
    if isinstance(step, BumpVersions):
        return list(step.names)
    values = (*step.args, *(step.kwargs if isinstance(step, Extern) else ()))
    return [*(reads(step)), *refs_in(values)]


#: a call in this namespace may read its operands until its result is waited for, or return them
COLLECTIVES = "torch.ops._c10d_functional."


def read_later(step: Work) -> list[str]:
    """Return the buffers that a call may still read after it has returned."""
    if not isinstance(step, Extern) or not step.target.startswith(COLLECTIVES):
        return []
    return list(reads(step))


def refs_in(value: Any) -> list[str]:
    """Return names of all `Ref` in a nested argument."""
    if isinstance(value, Ref):
        return [value.name]
    if isinstance(value, tuple | list):
        return [name for item in value for name in refs_in(item)]
    return []


def with_memory(
    steps: Sequence[Work],
    inputs: Sequence[Input],
    outputs: Sequence[Any],
    buffers: Mapping[str, Buffer],
    gate: Gate,
    over: Mapping[str, str] | None = None,
    over_dead: Mapping[str, str] | None = None,
) -> tuple[list[Step], list[Decision]]:
    """Allocate each kernel result before its kernel, free each buffer after its last use.

    Inputs are freed too: one that only this program still references, such as a value saved for
    backward, then returns its memory.

    Args:
        over: buffer -> the input whose memory it takes over, see `in_place`.
        over_dead: buffer -> the operand of its kernel whose memory it takes over, by the function
            of that name in `in_place`.
    """
    over = over or {}
    onto = {k: v for step in steps if isinstance(step, Kernel) for k, v in step.bases().items()}
    onto |= over_dead or {}
    lives = Lives(steps, inputs, outputs, buffers, over, onto)
    with gate.counting("schedule.reuse", len(buffers)) as after:
        reuse = lives.reuses(gate)
        after.append(len(buffers) - len(reuse))
    taken = {**over, **onto, **reuse}
    waiting = set(taken.values())
    result: list[Step] = []
    for at, step in enumerate(steps):
        if isinstance(step, Kernel):
            result += [Allocate(buffers[name], taken.get(name)) for name in step.stored]
        result.append(step)
        dead = tuple(name for name in lives.ending(at) if name not in waiting)
        if dead and at < len(steps) - 1:  # the last ones are freed at the end of the call
            result.append(Free(dead))
    reason = "same shape, no longer read"
    return result, [Decision("reuse", pair, True, reason) for pair in reuse.items()]


class Lives:
    """The live ranges of buffers, in steps.

    Attributes:
        onto: buffer that overwrites another, by a scatter or in place -> the other one.
        first: buffer -> the step that makes it.
        last: buffer -> the last step that uses it; absent for returned buffers.
        bytes: step -> live bytes during it, as far as sizes are known.
    """

    def __init__(
        self,
        steps: Sequence[Work],
        inputs: Sequence[Input],
        outputs: Sequence[Any],
        buffers: Mapping[str, Buffer],
        over: Mapping[str, str],
        onto: Mapping[str, str],
    ) -> None:
        self.steps = steps
        self.over, self.onto = over, onto
        self.buffers = {**buffers, **{i.buffer.name: i.buffer for i in inputs if i.buffer}}
        self.first: dict[str, int] = {i.name: 0 for i in inputs}
        self.last: dict[str, int] = {}
        for at, step in enumerate(steps):
            made = [b.name for b in step.results if b] if isinstance(step, Extern) else []
            for name in (*used(step), *made):
                self.first.setdefault(name, at)
                self.last[name] = at
        kept = {view.buffer for view in views_in(tuple(outputs)) if isinstance(view, View)}
        kept.update(refs_in(tuple(outputs)))
        for name in (*kept, *over, *over.values()):
            self.last.pop(name, None)
        self._keep_what_is_read_later()
        self._ending: list[list[str]] = [[] for _ in steps]
        for name, at in self.last.items():
            if name in self.buffers:
                self._ending[at].append(name)
        self.bytes = self._bytes()

    def _keep_what_is_read_later(self) -> None:
        """Let operands live as long as the results of the calls that read them later."""
        for step in reversed(self.steps):
            for name in read_later(step):
                assert isinstance(step, Extern)
                ends = [self.last.get(b.name) for b in step.results if b is not None]
                if None in ends:
                    self.last.pop(name, None)
                elif name in self.last:
                    self.last[name] = max([self.last[name], *(end for end in ends if end)])

    def ending(self, at: int) -> list[str]:
        """Return the buffers whose last use is a step."""
        return self._ending[at]

    def _bytes(self) -> list[int]:
        change = [0] * (len(self.steps) + 1)
        all_reused = set(self.onto.values())
        for name, start in self.first.items():
            if name in self.buffers and name not in self.over:
                size = size_in_bytes(self.buffers[name])
                change[start] += size
                reused = name in all_reused
                change[self.last.get(name, len(self.steps) - 1) + (not reused)] -= size
        alive, total = [], 0
        for amount in change[:-1]:
            total += amount
            alive.append(total)
        return alive

    def reuses(self, gate: Gate) -> dict[str, str]:
        """Return buffer -> the dead buffer of the same shape whose memory it takes over."""
        peak = max(self.bytes, default=0)
        taken_over = {n for s in self.steps if isinstance(s, Extern) for n in s.takes_over}
        taken_over |= set(self.onto.values())
        pool: dict[tuple[Any, ...], list[str]] = {}
        reuse: dict[str, str] = {}
        for at, step in enumerate(self.steps):
            if not isinstance(step, Kernel):
                continue
            for name in step.stored:
                if name in self.over or name in self.onto:
                    continue
                old = self._waiting(pool.get(_shape(self.buffers[name]), []), at, peak)
                if old is not None and gate.allow("schedule.reuse", name):
                    pool[_shape(self.buffers[old])].remove(old)
                    reuse[name] = old
                    size = size_in_bytes(self.buffers[old])
                    for between in range(self.last[old] + 1, at):
                        self.bytes[between] += size
            for name in step.stored:
                if name in self.last and name not in taken_over:
                    pool.setdefault(_shape(self.buffers[name]), []).append(name)
        return reuse

    def _waiting(self, pool: Sequence[str], at: int, peak: int) -> str | None:
        """Return the buffer that died last before a step, if it may be kept until then."""
        dead = [name for name in pool if self.last[name] < at]
        if not dead:
            return None
        found = max(dead, key=lambda name: self.last[name])
        between = self.bytes[self.last[found] + 1 : at]
        fits = max(between, default=0) + size_in_bytes(self.buffers[found]) <= peak
        return found if fits else None


def size_in_bytes(buffer: Buffer) -> int:
    """Return a buffer's size; 0 where it depends on symbols."""
    return (buffer.numel.constant or 0) * buffer.dtype.itemsize


def _shape(buffer: Buffer) -> tuple[Any, ...]:
    return buffer.dtype, buffer.sizes, buffer.strides
