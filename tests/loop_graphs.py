"""Random loop graphs over symbolic sizes: layouts without the cost of tracing.

A graph is drawn from a number: buffers whose sizes and strides hold products, quotients, rests,
minima and maxima of symbols, read through views (transposed, cut, stepped, mirrored, spread,
reshaped) by chains of pointwise nodes, reductions and scans. `tests/layout_programs.py` draws whole
programs; these take a hundredth of their time, so that there can be a hundred times as many.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, constant, index_value, load
from tc.compiler.loops.index import Index
from tc.compiler.loops.ir import (
    Buffer,
    Input,
    LoopGraph,
    Node,
    Pointwise,
    Reduction,
    Scan,
    View,
    contiguous,
)

Sizes = tuple[Index, ...]
#: The largest sizes that the graphs are run at, and the elements that a tensor has there at most.
LARGEST = {"s0": 33, "s1": 64, "s2": 5}
MOST = 4_000_000
F32, I64, BOOL = torch.float32, torch.int64, torch.bool
S0, S1, S2 = (ix.size(f"s{k}") for k in range(3))


@dataclass(frozen=True)
class Window:
    """Elements of a buffer as a tensor of some sizes; ``at`` says where each of them lies."""

    buffer: Buffer
    sizes: Sizes
    at: Callable[[Sizes], Index]


@dataclass
class Drawing:
    """A graph being drawn."""

    rng: random.Random
    buffers: list[Buffer] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)

    def extent(self) -> Index:
        """A size: known, a symbol, or made of symbols; never below zero."""
        return self.rng.choice((
            S0, S1, S0, S1, S2, ix.ONE, ix.const(3), ix.const(16), ix.const(64), S0 + 1, S1 * 2,
            S0 * S1, (S0 + 7) // 8, S0 // 2, ix.maximum(S0 - 2, ix.ONE), ix.minimum(S0, S1),
            (8 - S1 % 8) % 8 + S1, S1 % 4 + 1, ix.maximum(S1 // 3, ix.ONE) * 2, ix.const(300),
        ))  # fmt: skip

    def strides(self, sizes: Sizes) -> Sizes:
        """Strides of memory without overlap, in any order of dimensions, dense or with gaps."""
        order = list(range(len(sizes)))
        if self.rng.random() < 0.4:
            self.rng.shuffle(order)
        steps, step = [ix.ONE] * len(sizes), ix.ONE
        if self.rng.random() < 0.15:
            step = self.rng.choice((ix.const(2), S2, ix.maximum(S2 - 1, ix.ONE)))
        for d in reversed(order):
            steps[d] = step
            step = step * ix.maximum(sizes[d], ix.ONE)
            if self.rng.random() < 0.1:
                step = step + self.rng.choice((ix.ONE, S1))
        return tuple(steps)

    def window(self, buffer: Buffer) -> Window:
        """A buffer seen through some views."""
        steps = buffer.strides

        def at(place: Sizes) -> Index:
            return sum((p * s for p, s in zip(place, steps, strict=True)), ix.ZERO)

        window = Window(buffer, buffer.sizes, at)
        for _ in range(self.rng.choice((0, 1, 1, 2, 2, 3))):
            changed = self.rng.choice(VIEWS)(self, window)
            window = changed if _fits(changed.sizes) else window
        return window


def _fits(sizes: Sizes) -> bool:
    """Whether a tensor of these sizes has no more elements than a test has memory for."""
    return int(ix.evaluate(ix.product(sizes), LARGEST)) <= MOST


def _permuted(d: Drawing, w: Window) -> Window:
    order = list(range(len(w.sizes)))
    d.rng.shuffle(order)
    back = [order.index(k) for k in range(len(order))]
    sizes = tuple(w.sizes[k] for k in order)
    return Window(w.buffer, sizes, lambda p: w.at(tuple(p[k] for k in back)))


def _filled(d: Drawing, w: Window) -> int | None:
    """A dimension that has an element at any size, if the one drawn has."""
    k = d.rng.randrange(len(w.sizes)) if w.sizes else None
    return k if k is not None and ix.is_at_least(w.sizes[k], 1) else None


def _changed(
    d: Drawing, w: Window, change: Callable[[Index], tuple[Index, Callable[[Index], Index]]]
) -> Window:
    """One dimension in another size, read at other places; one that may be empty stays."""
    k = _filled(d, w)
    if k is None:
        return w
    size, place = change(w.sizes[k])
    sizes = (*w.sizes[:k], size, *w.sizes[k + 1 :])
    return Window(w.buffer, sizes, lambda p: w.at((*p[:k], place(p[k]), *p[k + 1 :])))


def _cut(d: Drawing, w: Window) -> Window:
    def cut(size: Index) -> tuple[Index, Callable[[Index], Index]]:
        # Without the first, with every other, one half, a few of them.
        return d.rng.choice((
            (size - 1, lambda p: p + 1),
            ((size + 1) // 2, lambda p: p * 2),
            (size // 2, lambda p: p + size // 2),
            (ix.minimum(size, ix.const(5)), lambda p: p),
            (ix.maximum(size - 3, ix.ONE), lambda p: p),
        ))  # fmt: skip

    return _changed(d, w, cut)


def _mirrored(d: Drawing, w: Window) -> Window:
    return _changed(d, w, lambda size: (size, lambda p: size - 1 - p))


def _rolled(d: Drawing, w: Window) -> Window:
    return _changed(d, w, lambda size: (size, lambda p: (p + 1) % size))


def _spread(d: Drawing, w: Window) -> Window:
    if len(w.sizes) > 3:
        return w
    k, size = d.rng.randint(0, len(w.sizes)), d.extent()
    return Window(
        w.buffer, (*w.sizes[:k], size, *w.sizes[k:]), lambda p: w.at((*p[:k], *p[k + 1 :]))
    )


def _picked(d: Drawing, w: Window) -> Window:
    k = _filled(d, w)
    if k is None:
        return w
    sizes = (*w.sizes[:k], *w.sizes[k + 1 :])
    return Window(w.buffer, sizes, lambda p: w.at((*p[:k], ix.ZERO, *p[k:])))


def _reshaped(d: Drawing, w: Window) -> Window:
    sizes = list(w.sizes)
    kind = d.rng.random()
    if len(sizes) > 1 and kind < 0.5:
        k = d.rng.randrange(len(sizes) - 1)
        sizes[k : k + 2] = [sizes[k] * sizes[k + 1]]
    elif len(sizes) > 1 and kind < 0.8:
        d.rng.shuffle(sizes)
    else:
        sizes = [ix.product(sizes)]
    new = tuple(sizes)
    return Window(w.buffer, new, lambda p: w.at(tuple(ix.regrouped(w.sizes, new, p))))


VIEWS = (_permuted, _permuted, _cut, _cut, _mirrored, _rolled, _spread, _picked, _reshaped)
VIEWS += (_reshaped,)


def _variables(sizes: Sizes, start: int = 0) -> Sizes:
    return tuple(
        ix.ZERO if size is ix.ONE else ix.var(f"i{start + k}", size) for k, size in enumerate(sizes)
    )


def _read(w: Window, place: Sizes) -> Expr:
    value = load(w.buffer.name, w.at(place), w.buffer.dtype)
    return value if value.dtype is F32 else Expr("to", (value,), F32)


def _picked_by_value(d: Drawing, w: Window, place: Sizes) -> Expr:
    """An element at a position along one dimension that is a computed value, as in indexing."""
    k = _filled(d, w)
    if k is None:
        return _read(w, place)
    computed = ix.var("x0", w.sizes[k])
    position = index_value(ix.mod(place[k] * 3 + 1, w.sizes[k]))
    index = w.at((*place[:k], computed, *place[k + 1 :]))
    data = (w.buffer.name, index, (w.sizes[k],), d.rng.random() < 0.5)
    value = Expr("at", (position,), w.buffer.dtype, data)
    return value if value.dtype is F32 else Expr("to", (value,), F32)


def _value(d: Drawing, w: Window, place: Sizes) -> Expr:
    """Something computed of an element, and of others where sizes allow."""
    value = _read(w, place) if d.rng.random() < 0.8 else _picked_by_value(d, w, place)
    if d.rng.random() < 0.5:
        other = d.window(d.rng.choice(d.buffers))
        if len(other.sizes) <= len(w.sizes):
            tail = w.sizes[len(w.sizes) - len(other.sizes) :]
            if all(a is b for a, b in zip(tail, other.sizes, strict=True)):
                beside = _read(other, place[len(w.sizes) - len(other.sizes) :])
                value = Expr("add", (value, beside), F32)
    kind = d.rng.random()
    if kind < 0.2:
        value = Expr("mul", (value, value), F32)
    elif kind < 0.35 and place:
        number = Expr("to", (index_value(d.rng.choice(place)),), F32)
        value = Expr("sub", (value, number), F32)
    elif kind < 0.5:
        value = Expr("add", (value, constant(0.5, F32)), F32)
    return value


def _padded(d: Drawing, w: Window) -> tuple[Sizes, Expr]:
    """A window with a border around one dimension."""
    k = d.rng.randrange(len(w.sizes))
    wider = w.sizes[k] + d.rng.choice((ix.const(2), 1 + S1 % 4))
    sizes = (*w.sizes[:k], wider, *w.sizes[k + 1 :])
    place = _variables(sizes)
    inside = index_value(place[k] - 1)
    low = Expr("ge", (inside, constant(0, I64)), BOOL)
    high = Expr("lt", (inside, index_value(w.sizes[k])), BOOL)
    read = _read(w, (*place[:k], place[k] - 1, *place[k + 1 :]))
    if d.rng.random() < 0.5:
        read = Expr("mul", (read, read), F32)
    both = Expr("and", (low, high), BOOL)
    return sizes, Expr("select", (both, read, constant(0.0, F32)), F32)


def _new_buffer(d: Drawing, sizes: Sizes, dtype: torch.dtype = F32) -> Buffer:
    steps = d.strides(sizes) if d.rng.random() < 0.3 else contiguous(sizes)
    made = Buffer(f"buf{len(d.nodes)}", dtype, sizes, steps)
    d.buffers.append(made)
    return made


def _place_in(made: Buffer, place: Sizes) -> Index:
    return sum((p * s for p, s in zip(place, made.strides, strict=True)), ix.ZERO)


def _loops(place: Sizes, but: int | None = None) -> Sizes:
    return tuple(v for k, v in enumerate(place) if v is not ix.ZERO and k != but)


def _add_node(d: Drawing) -> None:
    """Draw a node over a window of a buffer made lately."""
    w = d.window(d.rng.choice(d.buffers[-3:]))
    kind = d.rng.random()
    if kind < 0.5 or not w.sizes:
        _add_pointwise(d, w)
    elif kind < 0.85:
        _add_reduction(d, w)
    else:
        _add_scan(d, w)


def _add_pointwise(d: Drawing, w: Window) -> None:
    dtype = torch.bfloat16 if d.rng.random() < 0.1 else F32
    if w.sizes and d.rng.random() < 0.25:
        sizes, value = _padded(d, w)
    else:
        sizes, value = w.sizes, _value(d, w, _variables(w.sizes))
    place = _variables(sizes)
    made = _new_buffer(d, sizes, dtype)
    value = value if dtype is F32 else Expr("to", (value,), dtype)
    d.nodes.append(Pointwise(made, _loops(place), _place_in(made, place), value))


def _add_reduction(d: Drawing, w: Window) -> None:
    place = _variables(w.sizes)
    dims = set(d.rng.sample(range(len(place)), d.rng.randint(1, len(place))))
    inner = tuple(place[k] for k in sorted(dims) if place[k] is not ix.ZERO)
    if not inner:
        return
    value = _value(d, w, place)
    kept = [k for k in range(len(place)) if k not in dims]
    kind = d.rng.choice(("sum", "sum", "max", "min", "argmax"))
    sizes = tuple(w.sizes[k] for k in kept)
    made = _new_buffer(d, sizes, I64 if kind == "argmax" else F32)
    outer = tuple(place[k] for k in kept)
    index = _place_in(made, outer)
    d.nodes.append(Reduction(made, _loops(outer), inner, index, kind, value))


def _add_scan(d: Drawing, w: Window) -> None:
    place = _variables(w.sizes)
    k = d.rng.randrange(len(place))
    if place[k] is ix.ZERO:
        return
    value = _value(d, w, place)
    made = _new_buffer(d, w.sizes)
    kind = d.rng.choice(("sum", "max"))
    index = _place_in(made, place)
    d.nodes.append(Scan(made, _loops(place, k), place[k], index, kind, value))


def draw_graph(seed: int) -> LoopGraph:
    """The graph of a number."""
    d = Drawing(random.Random(seed))
    inputs = [Input(f"s{k}", None, f"s{k}") for k in range(3)]
    for k in range(d.rng.choice((1, 2, 3))):
        sizes: Sizes = tuple(d.extent() for _ in range(d.rng.choice((1, 2, 2, 3, 3, 4))))
        while not _fits(sizes):
            sizes = sizes[1:]
        dtype = d.rng.choice((F32, F32, F32, torch.bfloat16, I64))
        made = Buffer(f"x{k}", dtype, sizes, d.strides(sizes))
        d.buffers.append(made)
        inputs.append(Input(made.name, made))
    for _ in range(d.rng.randint(1, 6)):
        _add_node(d)
    made = [b for b in d.buffers if b.name.startswith("buf")]
    outputs = tuple(View(b.name, b.dtype, b.sizes, b.strides, ix.ZERO) for b in made)
    return LoopGraph(tuple(inputs), tuple(d.nodes), outputs)


def arguments(graph: LoopGraph, sizes: tuple[int, int, int]) -> list[object]:
    """What a graph is called with: small halves, so that sums are exact."""
    names = {f"s{k}": n for k, n in enumerate(sizes)}
    rng = torch.Generator().manual_seed(sum(sizes))
    given: list[object] = []
    for item in graph.inputs:
        if item.buffer is None:
            given.append(names[item.name])
            continue
        shape = [int(ix.evaluate(size, names)) for size in item.buffer.sizes]
        steps = [int(ix.evaluate(step, names)) for step in item.buffer.strides]
        values = torch.randint(-3, 4, shape, generator=rng)
        dtype = item.buffer.dtype
        values = values / 2 if dtype.is_floating_point else values
        given.append(torch.empty_strided(shape, steps, dtype=dtype).copy_(values))
    return given
