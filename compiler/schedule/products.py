"""Matrix products as kernels of ours, with the pointwise kernel that follows as their epilogue.

In: kernels and ATen calls in order, and who chooses. Out: the same with products in the place of
calls and their followers where that was chosen. A product is computed where its epilogue was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from tc.compiler.core.artifacts import Decision
from tc.compiler.core.gate import Gate
from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr
from tc.compiler.loops.index import Index
from tc.compiler.loops.ir import Buffer, Extern, View, contiguous, views_in
from tc.compiler.schedule.memory import Work, used
from tc.compiler.schedule.plan import Kernel, Product, Section, Store

#: takes the call and its follower, and the product that does both; returns the product as it is to
#: be computed, or None where the call is quicker
Choose = Callable[[Extern, Kernel | None, Product, Mapping[str, Buffer]], Product | None]

TARGET = "aten.mm.default"
TYPES = (torch.float32, torch.float16, torch.bfloat16)


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
        follower = _follower(call, made, result)
        kept = made.result in returned or any(
            made.result in used(step) for step in result if step not in (call, follower)
        )
        whole = made if follower is None else _joined(made, follower, kept)
        found = choose(call, follower, whole, buffers)
        reason = "measured: quicker than the call" if found else "measured: the call is quicker"
        if found is not None and not gate.allow("schedule.product"):
            found, reason = None, "refused by the gate"
        names = (made.result, *(follower.members if follower is not None else ()))
        decisions.append(Decision("product", names, found is not None, reason))
        if found is not None:
            result[result.index(call if follower is None else follower)] = found
            if follower is not None:
                result.remove(call)
    return result, decisions


def _product(call: Extern) -> Product | None:
    """A call as a kernel by itself, if it is a product that can be one."""
    if call.target != TARGET or call.kwargs or len(call.results) != 1:
        return None
    left, right = call.args
    buffer = call.results[0]
    if not isinstance(left, View) or not isinstance(right, View) or buffer is None:
        return None
    numbers = (*left.sizes, *left.strides, *right.sizes, *right.strides, left.offset, right.offset)
    if any(n.constant is None for n in numbers) or ix.product(buffer.sizes).constant == 0:
        return None
    if buffer.dtype not in TYPES or left.sizes[1].constant == 0:
        return None
    if buffer.strides != contiguous(buffer.sizes):
        return None
    space = ix.var("p0", ix.product(buffer.sizes))
    value = Expr("load", (), buffer.dtype, (buffer.name, space))
    return Product(
        f"k_mm_{buffer.name}",
        (space,),
        (),
        (Section("row", (Store(buffer.name, space, value),)),),
        members=(buffer.name,),
        origins=call.origins,
        result=buffer.name,
        left=left,
        right=right,
    )


def _follower(call: Extern, made: Product, work: Sequence[Work]) -> Kernel | None:
    """The pointwise kernel that reads the result, element by element, before all others do."""
    for step in work[list(work).index(call) + 1 :]:
        if isinstance(step, Extern) and set(step.takes_over) & set(made.loaded()):
            return None  # what is multiplied does not live longer
        if made.result not in used(step):
            continue
        if not isinstance(step, Kernel) or isinstance(step, Product) or step.inner:
            return None
        place = flat(step.outer)
        reads = [use for s in step.statements() for use in s.value.loads()]
        same = all(u.op == "load" and u.data[1] is place for u in reads if u.data[0] == made.result)
        whole = ix.product([ix.extent(v) for v in step.outer]) is ix.extent(made.outer[0])
        ranges = any(section.over is not None for section in step.sections)
        return step if same and whole and not ranges else None
    return None


def flat(variables: Sequence[Index]) -> Index:
    """The position of loop variables, the last one running fastest."""
    place = ix.ZERO
    for variable in variables:
        place = place * ix.extent(variable) + variable
    return place


def _joined(made: Product, follower: Kernel, kept: bool) -> Product:
    """The product with its follower; ``kept`` if others read the product itself."""
    sections = follower.sections
    if kept:
        place = flat(follower.outer)
        value = Expr("load", (), made.sections[0].statements[0].value.dtype, (made.result, place))
        sections = (Section("row", (Store(made.result, place, value),)), *sections)
    return Product(
        f"{follower.name}_of_mm",
        follower.outer,
        (),
        sections,
        members=(made.result, *follower.members),
        origins=(*made.origins, *(o for o in follower.origins if o not in made.origins)),
        result=made.result,
        left=made.left,
        right=made.right,
    )
