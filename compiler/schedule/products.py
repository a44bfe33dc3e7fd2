"""Matrix products as generated kernels, fused with the pointwise kernels around them.

In: kernels and ATen calls in order, and a chooser. Out: the same with products in place of the
chosen calls: with the kernel that follows as epilogue, and kernels that only compute a factor as
prologues, inlined where the factor is read. A product takes the position of its epilogue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from tc.compiler.core.artifacts import Decision
from tc.compiler.core.gate import Gate
from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, can_fail, constant, load, substitute, transform, walk
from tc.compiler.loops.index import Index
from tc.compiler.loops.ir import Buffer, CopyInto, Extern, View, contiguous, row_major, views_in
from tc.compiler.schedule.memory import Work, used
from tc.compiler.schedule.plan import (
    TOTAL,
    Kernel,
    Let,
    Product,
    Proposal,
    Section,
    Statement,
    Store,
)

#: ATen's products, and whether a summand precedes the factors
TARGETS = {
    "aten.mm.default": False,
    "aten.bmm.default": False,
    "aten.addmm.default": True,
    "aten.baddbmm.default": True,
}
TYPES = (torch.float32, torch.float16, torch.bfloat16)


#: returns one of the ways with its tile sizes, or None if the call and the kernels are faster
Choose = Callable[[Proposal, Mapping[str, Buffer]], Product | None]


def with_products(
    work: Sequence[Work],
    outputs: Sequence[object],
    buffers: Mapping[str, Buffer],
    choose: Choose,
    gate: Gate,
) -> tuple[list[Work], list[Decision]]:
    """Replace calls that multiply matrices by kernels where these are chosen."""
    result = list(work)
    decisions: list[Decision] = []
    returned = {view.buffer for view in views_in(tuple(outputs))}
    for call in [step for step in work if isinstance(step, Extern)]:
        made = _product(call)
        if made is None:
            continue
        proposal, refused = _proposal(call, made, result, returned)
        decisions += refused
        found = choose(proposal, buffers)
        reason = "measured: faster than the call" if found else "measured: the call is faster"
        if found is not None and not gate.allow("schedule.product"):
            found, reason = None, "refused by the gate"
        follower = proposal.follower
        names = (made.result, *(follower.members if follower is not None else ()))
        decisions.append(Decision("product", names, found is not None, reason))
        if found is None:
            continue
        kept = proposal.left_over(found)
        for producer in proposal.producers:
            inside = producer not in kept
            reason = (
                "measured: faster inside" if inside else "measured: faster as a separate kernel"
            )
            names = (*producer.members, made.result)
            decisions.append(Decision("prologue", names, inside, reason))
            if inside:
                result.remove(producer)
        result[result.index(call if follower is None else follower)] = found
        if follower is not None:
            result.remove(call)
    return result, decisions


def _proposal(
    call: Extern, made: Product, work: Sequence[Work], returned: set[str]
) -> tuple[Proposal, list[Decision]]:
    """Return the proposal for a call, and the reasons why earlier kernels cannot be fused."""
    follower = _follower(call, made, work)
    kept = made.result in returned or any(
        made.result in used(step) for step in work if step not in (call, follower)
    )
    whole = made if follower is None else _joined(made, follower, kept)
    end = call if follower is None else follower
    producers: list[Kernel] = []
    decisions: list[Decision] = []
    computed = whole
    for name in dict.fromkeys(use.data[0] for use in (made.left, made.right)):
        producer = _producer(name, work)
        if producer is None:
            continue
        reason = _refusal(name, producer, call, end, work, returned)
        inside = None if reason else _with_prologue(computed, name, producer)
        if inside is None:
            reason = reason or "its indices would have to be split into coordinates"
            names = (*producer.members, made.result)
            decisions.append(Decision("prologue", names, False, reason))
            continue
        producers.append(producer)
        computed = inside
    ways = (whole, computed) if producers else (whole,)
    return Proposal(call, tuple(producers), follower, ways), decisions


# ---------------------------------------------------------------- the call


def _product(call: Extern) -> Product | None:
    """Return the kernel for a call, if it is a supported product."""
    if call.target not in TARGETS or len(call.results) != 1:
        return None
    summand, factors = (call.args[0], call.args[1:]) if TARGETS[call.target] else (None, call.args)
    buffer, scales = call.results[0], dict(call.kwargs)
    if not all(isinstance(v, View) for v in factors) or len(factors) != 2 or buffer is None:
        return None
    if not scales.keys() <= {"alpha", "beta"} or not all(map(_plain, scales.values())):
        return None
    if scales.get("alpha") == 0:  # then even NaNs of the factors are ignored
        return None
    if buffer.dtype not in TYPES or ix.product(buffer.sizes).constant == 0:
        return None
    if buffer.strides != contiguous(buffer.sizes) or any(v.dtype != buffer.dtype for v in factors):
        return None
    left, right = factors
    *batch, m, k = left.sizes
    n = right.sizes[-1]
    sizes = (*(batch or [ix.ONE]), m, n, k, k)
    names = ("z", "m", "n", "along", "down")
    space = tuple(ix.var(name, extent) for name, extent in zip(names, sizes, strict=True))
    one, row, column, along, down = space
    pair = tuple(one if size is not ix.ONE else ix.ZERO for size in batch)
    places = (*pair, row, column)
    outer = tuple(place for place in places if place is not ix.ZERO)
    value = _scaled(summand, scales, places, buffer)
    result = Expr("local", (), buffer.dtype, (f"v_{buffer.name}",))
    statements = (Let(result.data[0], value), Store(buffer.name, row_major(outer), result))
    precise = torch.backends.cuda.matmul.fp32_precision != "tf32"
    return Product(
        f"k_{call.target.split('.')[1]}_{buffer.name}",
        outer,
        (),
        (Section("row", statements),),
        members=(buffer.name,),
        origins=call.origins,
        result=buffer.name,
        space=space,
        left=_element(left, (*pair, row, along)),
        right=_element(right, (*pair, down, column)),
        precision="tf32" if buffer.dtype is torch.float32 and not precise else "ieee",
    )


def _plain(value: Any) -> bool:
    return type(value) in (int, float)


def _scaled(
    summand: View | None, scales: Mapping[str, Any], places: Sequence[Index], buffer: Buffer
) -> Expr:
    """``beta * summand + alpha * total`` in float32, rounded once as the libraries do."""
    value = _times(TOTAL, scales.get("alpha", 1))
    beta = scales.get("beta", 1)
    if summand is not None and beta != 0:  # else even its NaNs are ignored
        matching = zip(summand.sizes, places[len(places) - len(summand.sizes) :], strict=True)
        one_for_all = [ix.ZERO if size is ix.ONE else place for size, place in matching]
        added = _converted(_element(summand, one_for_all), torch.float32)
        value = Expr("add", (_times(added, beta), value), torch.float32)
    return _converted(value, buffer.dtype)


def _times(value: Expr, factor: float) -> Expr:
    if factor == 1:
        return value
    return Expr("mul", (value, constant(factor, value.dtype)), value.dtype)


def _converted(value: Expr, dtype: torch.dtype) -> Expr:
    return value if value.dtype is dtype else Expr("to", (value,), dtype)


def _element(view: View, places: Sequence[Index]) -> Expr:
    place = view.offset
    for position, step in zip(places, view.strides, strict=True):
        place = place + position * step
    return load(view.buffer, place, view.dtype)


# ---------------------------------------------------------------- epilogues


def _follower(call: Extern, made: Product, work: Sequence[Work]) -> Kernel | None:
    """Return the pointwise kernel that reads the result element by element, before other users."""
    for step in work[list(work).index(call) + 1 :]:
        if _overwritten(step) & set(made.loaded):
            return None  # the factors must not have to live longer
        if made.result not in used(step):
            continue
        if not isinstance(step, Kernel) or isinstance(step, Product):
            return None
        if step.inner or step.bases():
            return None
        place = row_major(step.outer)
        reads = [use for value in step.values() for use in value.loads()]
        same = all(u.op == "load" and u.data[1] is place for u in reads if u.data[0] == made.result)
        whole = _count(step) is _count(made)
        ranges = any(section.over is not None for section in step.sections)
        return step if same and whole and not ranges else None
    return None


def _overwritten(step: Work) -> set[str]:
    """Buffers whose memory a step writes to."""
    if isinstance(step, CopyInto):
        return {step.input}
    if isinstance(step, Kernel):
        return set(step.bases().values())
    return set(step.takes_over) if isinstance(step, Extern) else set()


def _count(kernel: Kernel) -> Index:
    return ix.product([ix.extent(v) for v in kernel.outer])


def _joined(made: Product, follower: Kernel, kept: bool) -> Product:
    """Return the product with its follower; ``kept`` if others read the product itself."""
    own, stored = made.sections[0].statements
    assert isinstance(stored, Store)
    old, new = (tuple(map(ix.extent, kernel.outer)) for kernel in (follower, made))
    places = ix.regrouped(old, new, made.outer)
    atoms = [atom for atom in map(ix.atom_of, follower.outer) if atom is not None]
    values = dict(zip(atoms, places, strict=True))

    def change(node: Expr) -> Expr:
        return stored.value if node.op == "load" and node.data[0] == made.result else node

    def moved(statement: Statement) -> Statement:
        value = substitute(transform(statement.value, change), values)
        if isinstance(statement, Store):
            return Store(statement.buffer, ix.substitute(statement.index, values), value)
        return replace(statement, value=value)

    first = (own, stored) if kept else (own,)
    sections = tuple(
        replace(s, statements=tuple(map(moved, s.statements))) for s in follower.sections
    )
    return replace(
        made,
        name=f"{follower.name}_of_{made.name.split('_')[1]}",
        sections=(Section("row", first), *sections),
        members=(made.result, *follower.members),
        origins=(*made.origins, *(o for o in follower.origins if o not in made.origins)),
    )


# ---------------------------------------------------------------- prologues


def _producer(name: str, work: Sequence[Work]) -> Kernel | None:
    """Return the kernel that computes a buffer."""
    makers = (step for step in work if isinstance(step, Kernel) and name in step.stored)
    return next(makers, None)


def _refusal(
    name: str, producer: Kernel, call: Extern, end: Work, work: Sequence[Work], returned: set[str]
) -> str:
    """Why a factor cannot be computed where it is multiplied; empty if it can."""
    if isinstance(producer, Product) or producer.inner:
        return "it sums up"
    if producer.bases():
        return "it writes at computed places"
    if len(producer.stored) > 1:
        return "it has several results"
    readers = [step for step in work if step is not producer and name in used(step)]
    if name in returned or readers != [call]:
        return "its result is read elsewhere, too"
    if any(section.over is not None for section in producer.sections):
        return "it is made of pieces"
    if any(node.op == "at" or can_fail(node) for v in producer.values() for node in walk(v)):
        return "it looks up positions that are data"
    steps = list(work)
    between = steps[steps.index(producer) + 1 : steps.index(end)]
    if any(_overwritten(step) & set(producer.loaded) for step in between):
        return "what it reads is written over before the product"
    return ""


def _with_prologue(product: Product, name: str, producer: Kernel) -> Product | None:
    """Return the product with a fused prologue; None if indices would need divisions."""
    store = next(s for s in producer.statements() if isinstance(s, Store))
    order = running(store.index, producer.outer)
    if order is None:
        return None
    value = _inlined(producer)
    extents = tuple(map(ix.extent, order))
    atoms = [atom for atom in map(ix.atom_of, order) if atom is not None]
    factors: list[Expr] = []
    for factor in (product.left, product.right):
        if factor.op != "load" or factor.data[0] != name:
            factors.append(factor)
            continue
        places = ix.regrouped(extents, (ix.product(extents),), (factor.data[1],))
        made = substitute(value, dict(zip(atoms, places, strict=True)))
        if quotients(made) > quotients(value):
            return None
        factors.append(made)
    origins = (*producer.origins, *(o for o in product.origins if o not in producer.origins))
    members = (*producer.members, *product.members)
    left, right = factors
    return replace(product, members=members, origins=origins, left=left, right=right)


def running(index: Index, variables: tuple[Index, ...]) -> tuple[Index, ...] | None:
    """Return the variables from the largest to the smallest stride of a dense index, else None."""
    if index is row_major(variables):
        return variables
    steps = [ix.coefficient(index, v) for v in variables]
    if not all(step is not None and step.constant for step in steps):
        return None
    order = sorted(
        range(len(steps)),
        key=lambda k: -int(steps[k].constant),  # type: ignore[union-attr,arg-type]
    )
    found = tuple(variables[k] for k in order)
    return found if row_major(found) is index else None


def _inlined(kernel: Kernel) -> Expr:
    """Return the value that a kernel stores, with its local names substituted."""
    known: dict[str, Expr] = {}

    def change(node: Expr) -> Expr:
        return known[node.data[0]] if node.op == "local" else node

    for statement in kernel.statements():
        value = transform(statement.value, change)
        if isinstance(statement, Store):
            return value
        known[statement.name] = value
    raise AssertionError(f"{kernel.name} stores nothing")


def quotients(value: Expr) -> int:
    """Return the number of divisions in the indices of a value."""
    indices = [use.data[1] for use in value.loads()]
    indices += [node.data[0] for node in walk(value) if node.op == "index"]
    return sum(str(index).count("//") + str(index).count("%") for index in indices)
