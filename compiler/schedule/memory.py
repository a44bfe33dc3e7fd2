"""Memory: when buffers get and lose their memory, and which take over a dead one's.

In: kernels and ATen calls in order. Out: the same steps with `Allocate` and `Free` between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tc.compiler.core.artifacts import Decision
from tc.compiler.core.gate import Gate
from tc.compiler.loops.ir import Buffer, CopyInto, Extern, ScalarNode, View, reads, views_in
from tc.compiler.schedule.plan import Allocate, Free, Kernel, Step

Work = Kernel | Extern | ScalarNode | CopyInto


def used(step: Work) -> list[str]:
    """Buffers a step touches."""
    if isinstance(step, Kernel):
        return [*step.loaded(), *step.stored()]
    return reads(step)


def with_memory(
    steps: Sequence[Work], outputs: Sequence[Any], buffers: Mapping[str, Buffer], gate: Gate
) -> tuple[list[Step], list[Decision]]:
    """Allocate each kernel result before its kernel, free each buffer after its last use."""
    last: dict[str, int] = {}
    for at, step in enumerate(steps):
        last.update((name, at) for name in used(step))
    kept = {view.buffer for view in views_in(tuple(outputs)) if isinstance(view, View)}
    fresh = {name for step in steps if isinstance(step, Kernel) for name in step.stored()}
    fresh -= {name for step in steps if isinstance(step, Extern) for name in step.takes_over}
    pool: dict[tuple[Any, ...], list[str]] = {}
    result: list[Step] = []
    decisions: list[Decision] = []
    for at, step in enumerate(steps):
        if isinstance(step, Kernel):
            for name in step.stored():
                buffer = buffers[name]
                waiting = pool.get(_shape(buffer))
                reuse = None
                if waiting and gate.allow("schedule.reuse"):
                    reuse = waiting.pop()
                    reason = "same shape, no longer read"
                    decisions.append(Decision("reuse", (name, reuse), True, reason))
                result.append(Allocate(buffer, reuse))
        result.append(step)
        made = [b.name for b in step.results if b is not None] if isinstance(step, Extern) else []
        dead = [
            name
            for name in dict.fromkeys([*used(step), *made])
            if last.get(name, at) == at and name in buffers and name not in kept
        ]
        for name in dead:
            if name in fresh:
                pool.setdefault(_shape(buffers[name]), []).append(name)
        dead = [name for name in dead if name not in fresh or not _wanted(name, at, steps, buffers)]
        if dead:
            for name in dead:
                waiting = pool.get(_shape(buffers[name]), [])
                if name in waiting:
                    waiting.remove(name)
            result.append(Free(tuple(dead)))
    return result, decisions


def _wanted(name: str, at: int, steps: Sequence[Work], buffers: Mapping[str, Buffer]) -> bool:
    """Whether a later kernel makes a buffer of the same shape."""
    shape = _shape(buffers[name])
    return any(
        _shape(buffers[made]) == shape
        for step in steps[at + 1 :]
        if isinstance(step, Kernel)
        for made in step.stored()
    )


def _shape(buffer: Buffer) -> tuple[Any, ...]:
    return buffer.dtype, buffer.sizes, buffer.strides
