"""In-place writes: kernels overwrite a graph's inputs, or operands after their last use.

In: kernels and ATen calls in order, the writes to inputs at their end. Out: the same steps, where
results take over the memory of the inputs to which they would be copied (`BumpVersions` reports
that to autograd), or that of an operand after its last use. The caller guarantees that a written
input shares no memory with another input.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tc.compiler.core.artifacts import Decision
from tc.compiler.core.gate import Gate
from tc.compiler.loops.expr import Expr, can_fail, transform, walk
from tc.compiler.loops.index import ZERO
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
from tc.compiler.schedule.memory import Work, read_later
from tc.compiler.schedule.plan import (
    Atomic,
    BumpVersions,
    Kernel,
    Let,
    Product,
    Section,
    Statement,
    Store,
)

# ATen ops whose results never share memory with their arguments.
FRESH = (
    *(f"aten.{name}." for name in ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "convolution")),
    *("torch.ops.mkldnn._linear_pointwise.", "torch.ops.mkldnn._convolution_pointwise."),
)


def in_place(
    steps: Sequence[Work],
    inputs: Sequence[Input],
    outputs: Sequence[Any],
    buffers: Mapping[str, Buffer],
    gate: Gate,
) -> tuple[list[Work], dict[str, str], list[Decision]]:
    """Let kernels write to inputs directly where that is not observable.

    Returns:
        The steps; buffer -> the input whose memory it takes over; the decisions.
    """
    found = list(steps)
    users = _users(steps)
    known = {i.buffer.name: i.buffer for i in inputs if i.buffer is not None}
    returned = {v.buffer for v in views_in(tuple(outputs))}
    returned |= {o.name for o in outputs if isinstance(o, Ref)}
    shared = {n for s in steps if isinstance(s, Extern) for n in s.takes_over}
    shared |= {name for step in steps for name in read_later(step)}
    safe_from = _nothing_fails_from(steps)
    over: dict[str, str] = {}
    copies = [at for at, step in enumerate(steps) if isinstance(step, CopyInto)]
    for at in copies:
        copy = steps[at]
        assert isinstance(copy, CopyInto)
        name, target = copy.source.buffer, known.get(copy.input)
        if target is None or not {name, copy.input}.isdisjoint({*returned, *shared, *over}):
            continue
        maker = next((k for k in users.get(name, ()) if _stores(found[k], name)), None)
        if maker is None or maker < safe_from or not _same_memory(copy.source, target, buffers):
            continue
        if any(user > maker and user != at for user in users[copy.input]):
            continue
        # What a kernel reads is on the kernels' device.
        read = any(isinstance(steps[k], Kernel) for k in users[copy.input])
        changed = _onto(found[maker], name, copy.input) if read else None
        if changed is not None and gate.allow("schedule.in_place", name):
            found[maker] = changed
            over[name] = copy.input
    copied = [step for step in found if not (isinstance(step, CopyInto) and _done(step, over))]
    if over:
        copied.append(BumpVersions(tuple(over)))
    reason = "the input is not read again"
    return copied, over, [Decision("in_place", pair, True, reason) for pair in over.items()]


def over_dead(
    steps: Sequence[Work],
    outputs: Sequence[Any],
    buffers: Mapping[str, Buffer],
    taken: Mapping[str, str],
    gate: Gate,
) -> tuple[list[Work], dict[str, str], list[Decision]]:
    """Let kernels write results over operands after their last use, as that memory is in the cache.

    Args:
        taken: buffer -> the memory that it takes over already.

    Returns:
        The steps; buffer -> the operand whose memory it takes over; the decisions.
    """
    found = list(steps)
    users = _users(steps)
    busy = {*taken, *taken.values(), *(v.buffer for v in views_in(tuple(outputs)))}
    dead: dict[str, str] = {}
    temporaries: dict[str, str] = {}
    for at, step in enumerate(steps):
        if not isinstance(step, Kernel):
            continue
        changed: Kernel = step
        for name in step.stored:
            if name in taken or name in step.bases():
                continue
            for old in changed.loaded:
                if (
                    old in busy
                    or not _dies(old, at, users, found)
                    or not _alike(name, old, buffers)
                ):
                    continue
                onto = _onto(changed, name, old)
                if onto is not None and gate.allow("schedule.over_dead", name):
                    changed, dead[name] = onto, old
                    busy.add(old)
                    break
        own = [old for old in step.stored if users[old] == [at] and old not in busy]
        found[at], over = _over_temporaries(changed, own, (*taken, *dead), buffers, gate)
        temporaries |= over
    reason = "its last use is where the result is written"
    pairs = [*dead.items(), *temporaries.items()]
    return found, dead, [Decision("over_dead", pair, True, reason) for pair in pairs]


def _over_temporaries(
    kernel: Kernel,
    temporaries: Sequence[str],
    taken: Collection[str],
    buffers: Mapping[str, Buffer],
    gate: Gate,
) -> tuple[Kernel, dict[str, str]]:
    """Let a kernel write results over its own temporaries, which then need no memory.

    Args:
        temporaries: buffers that only this kernel uses.
        taken: results that take over memory already.

    Returns:
        The kernel; result -> the temporary that it is written over.
    """
    found: dict[str, str] = {}
    for old in temporaries:
        for name in kernel.stored:
            if name in (old, *taken, *found) or not _alike(name, old, buffers):
                continue
            onto = _onto_temporary(kernel, name, old)
            if onto is not None and gate.allow("schedule.over_dead", name):
                kernel, found[name] = onto, old
                break
    return kernel, found


def _onto_temporary(kernel: Kernel, name: str, old: str) -> Kernel | None:
    """Return a kernel where a result is stored where a temporary was; None if that is read later.

    Each element of the temporary has to be read only in the iteration that stores the result's
    element of the same place, before it does.
    """
    if isinstance(kernel, Product) or kernel.tile is not None:
        return None
    stores = [s for s in kernel.statements() if isinstance(s, Store) and s.buffer in (name, old)]
    [place, *others] = [s for s in stores if s.buffer == name]
    if others or any(isinstance(s, Atomic) for s in stores):
        return None
    for section in kernel.sections:
        ready = place in section.statements
        for statement in section.statements:
            uses = [use for use in statement.value.loads() if use.data[0] == old]
            same = all(use.op == "load" and use.data[1] is place.index for use in uses)
            if uses and not (ready and same):
                return None
            ready = ready and statement is not place

    def renamed(statement: Statement) -> Statement:
        changed = replace(statement, value=_reading(statement.value, old, name))
        if isinstance(changed, Store) and changed.buffer == old:
            return replace(changed, buffer=name)
        return changed

    sections = tuple(
        replace(section, statements=tuple(map(renamed, section.statements)))
        for section in kernel.sections
    )
    return replace(kernel, sections=sections)


def _dies(name: str, at: int, users: Mapping[str, list[int]], steps: Sequence[Work]) -> bool:
    """Return whether a step is the last use of a buffer that owns its memory.

    All other users are kernels: what an ATen op returns could share the buffer's memory.
    """
    maker, *others = users.get(name, [at])
    step = steps[maker]
    own = _stores(step, name) if isinstance(step, Kernel) else _makes(step, name)
    return own and others[-1:] == [at] and all(isinstance(steps[k], Kernel) for k in others)


def _makes(step: Work, name: str) -> bool:
    """Return whether an ATen op allocates the memory of a buffer."""
    if not isinstance(step, Extern) or not step.target.startswith(FRESH) or step.takes_over:
        return False
    return any(b is not None and b.name == name for b in step.results)


def _alike(name: str, old: str, buffers: Mapping[str, Buffer]) -> bool:
    one, other = buffers.get(name), buffers.get(old)
    if one is None or other is None:
        return False
    return (one.dtype, one.sizes, one.strides) == (other.dtype, other.sizes, other.strides)


def _done(copy: CopyInto, over: Mapping[str, str]) -> bool:
    return over.get(copy.source.buffer) == copy.input


def _users(steps: Sequence[Work]) -> dict[str, list[int]]:
    """Return buffer -> the steps that use it, in order."""
    users: dict[str, list[int]] = {}
    for at, step in enumerate(steps):
        if isinstance(step, Kernel):
            names = [*step.loaded, *step.stored, *step.bases().values()]
        elif isinstance(step, CopyInto):
            names = [step.source.buffer, step.input]
        elif isinstance(step, Extern):
            names = [view.buffer for view in views_in((step.args, step.kwargs))]
            names += [*step.takes_over, *(b.name for b in step.results if b is not None)]
        else:
            names = reads(step) if isinstance(step, ScalarNode) else []
        for name in dict.fromkeys(names):
            users.setdefault(name, []).append(at)
    return users


def _nothing_fails_from(steps: Sequence[Work]) -> int:
    """Return the first step after which none can raise, which would leave inputs half written."""
    for at in range(len(steps) - 1, -1, -1):
        if _can_fail(steps[at]):
            return at + 1
    return 0


def _can_fail(step: Work) -> bool:
    if isinstance(step, Kernel):
        return any(can_fail(node) for s in step.statements() for node in walk(s.value))
    return isinstance(step, Extern | ScalarNode)


def _stores(step: Work, name: str) -> bool:
    return isinstance(step, Kernel) and name in step.stored and name not in step.bases()


def _same_memory(source: View, target: Buffer, buffers: Mapping[str, Buffer]) -> bool:
    """Return whether a view covers a buffer that has the input's layout."""
    buffer = buffers.get(source.buffer)
    if buffer is None or source.offset is not ZERO:
        return False
    theirs = (buffer.dtype, buffer.sizes, buffer.strides)
    layouts = [(x.dtype, x.sizes, x.strides) for x in (source, target)]
    return layouts == [theirs, theirs]


def _onto(kernel: Work, name: str, target: str) -> Kernel | None:
    """Return a kernel that reads an input only where it writes; None if it reads elsewhere.

    All values are computed before any is written.
    """
    assert isinstance(kernel, Kernel)
    if isinstance(kernel, Product):
        return None
    plain = not kernel.inner and kernel.tile is None and kernel.lane is None
    if not plain or len(kernel.sections) != 1 or kernel.sections[0].over is not None:
        return None
    [section] = kernel.sections
    stores = [s for s in section.statements if isinstance(s, Store)]
    lets = [s for s in section.statements if isinstance(s, Let)]
    places = [s.index for s in stores if s.buffer == name]
    uses = [use for s in section.statements for use in s.value.loads() if use.data[0] == target]
    if len(places) != 1 or any(use.op != "load" or use.data[1] is not places[0] for use in uses):
        return None
    if any(s.value.loads() for s in stores):
        return None

    read_first = [replace(s, value=_reading(s.value, target, name)) for s in lets]
    return replace(kernel, sections=(Section(section.level, (*read_first, *stores)),))


def _reading(value: Expr, old: str, name: str) -> Expr:
    """Return a value with loads of one buffer in place of those of another."""

    def change(node: Expr) -> Expr:
        if node.op != "load" or node.data[0] != old:
            return node
        return Expr("load", (), node.dtype, (name, *node.data[1:]))

    return transform(value, change)
