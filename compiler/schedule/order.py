"""Loop order: interchanges loops, chooses the vectorised one, and merges loops.

In: a fused group. Out: the same group over reordered and merged variables, with its lane. Sizes
that are symbolic count as `HINT` when strides are compared.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, substitute, varies
from tc.compiler.loops.index import Atom, Index
from tc.compiler.loops.ir import Reduction
from tc.compiler.schedule.fuse import Group, Member, Variables
from tc.compiler.schedule.plan import LONGEST_COPIED

HINT = 512
#: fewest elements of an outer loop that is vectorised
SHORTEST_LANE = 8
TILE = 16


@dataclass(frozen=True)
class Order:
    """An ordered group, with its special loops (see `Kernel`)."""

    group: Group
    lane: Index | None = None
    tile: tuple[Index, Index] | None = None


def ordered(group: Group, needed: Container[str] | None = None) -> Order:
    """Order the loops by stride, choose a lane or a tile, and merge loops.

    Args:
        needed: the buffers that are read outside of the group; None: all are. Others mostly stay in
            registers, whatever their layout.
    """
    if any(isinstance(m.node, Reduction) and m.node.kind == "dot" for m in group.members):
        return Order(group)
    indices = _by_weight(group, needed)
    outer = _sorted(group.outer, indices)
    inner = group.inner if _gives_positions(group) else _sorted(group.inner, indices)
    if inner:  # loops that are short alone may make a lane together
        outer, group = _merged(Group(outer, group.inner, group.members), outer, 0)
    lane = _lane(group, outer, inner)
    if lane is not None:
        outer = (*(v for v in outer if v is not lane), lane)
    group = Group(outer, inner, group.members)
    keep = 1 if lane is not None else 0
    outer, group = _merged(group, outer, keep)
    inner, group = _merged(group, group.inner, 0)
    group = Group(outer, inner, group.members)
    if lane is not None and lane in outer:
        return Order(group, lane)
    return _tiled(group)


def _gives_positions(group: Group) -> bool:
    """Return whether a result depends on the order of the inner loops (argmax and the like)."""
    kinds = (getattr(member.node, "kind", "") for member in group.members)
    return any(str(kind).startswith("arg") for kind in kinds)


def _tiled(group: Group) -> Order:
    """Return the tile of loads that run along another loop than the stores (a transpose)."""
    if group.inner or len(group.outer) < 2:
        return Order(group)
    last = group.outer[-1]
    for variable in group.outer[:-1]:
        transposed = any(_transposed(index, variable, last) for index in loads(group))
        if transposed and _long(variable) and _long(last):
            rest = [v for v in group.outer if v not in (variable, last)]
            outer = (*rest, variable, last)
            return Order(Group(outer, (), group.members), None, (variable, last))
    return Order(group)


def _transposed(index: Index, variable: Index, last: Index) -> bool:
    one = ix.coefficient(index, variable)
    across = ix.coefficient(index, last)
    return one is ix.ONE and across is not None and across not in (ix.ZERO, ix.ONE)


def _long(variable: Index) -> bool:
    count = ix.extent(variable).constant
    return count is None or count >= TILE


def loads(group: Group) -> list[Index]:
    """Return flat indices of all direct loads of a group."""
    return [use.data[1] for m in group.members for use in m.body.loads() if use.op == "load"]


def accesses(group: Group) -> list[Index]:
    """Return all flat indices of a group, stores first."""
    found = [member.index for member in group.members]
    for member in group.members:
        found += [use.data[1] for use in member.body.loads()]
    return list(dict.fromkeys(found))


def stride(index: Index, variable: Index) -> int:
    """Return the stride of a variable in elements, symbolic sizes estimated; 0 if it is absent."""
    step = ix.coefficient(index, variable)
    if step is None:
        return HINT * HINT
    names = {atom.name: HINT for atom in step.atoms()}
    return abs(int(ix.evaluate(step, names)))


def _by_weight(group: Group, needed: Container[str] | None) -> list[Index]:
    """Return all flat indices: of stores, of loads, and last of what may never be stored."""
    stored = {m.index for m in group.members if needed is None or m.name in needed}
    unstored = {m.index for m in group.members} - stored
    return sorted(accesses(group), key=unstored.__contains__)


def _sorted(variables: Variables, indices: Sequence[Index]) -> Variables:
    """Largest strides outermost, by the first of the indices that decides."""

    def key(variable: Index) -> tuple[int, ...]:
        steps = [stride(index, variable) for index in indices]
        return tuple(-step for step in steps if step) or (0,)

    position = {v: k for k, v in enumerate(variables)}
    return tuple(sorted(variables, key=lambda v: (key(v)[0], position[v])))


def _lane(group: Group, outer: Variables, inner: Variables) -> Index | None:
    """Return the outer variable to vectorise if loads run along it rather than along rows.

    Where they run along neither, their elements are nearer to each other along it.
    """
    long = [v for v in outer if (ix.extent(v).constant or SHORTEST_LANE) >= SHORTEST_LANE]
    if not inner or not long:
        return None
    last = inner[-1]
    read = [use for m in group.members if m.level == "inner" for use in m.body.loads()]
    read = [use for use in read if any(_step(use, v) for v in inner)]  # varying in a row
    score = {v: sum(_step(use, v) == 1 for use in read) for v in (*long, last)}
    along = score.pop(last)
    best = max(score, key=lambda v: (score[v], -_apart(read, v)[1]))
    if score[best] == along:  # as in a product of row-major matrices
        (count, far), (other, farther) = _apart(read, best), _apart(read, last)
        length = ix.product([ix.extent(v) for v in inner]).constant
        copied = length is not None and length <= LONGEST_COPIED
        nearer = far < farther if count == other and not copied else count < other
        return best if nearer else None
    return best if score[best] > along else None


def _apart(read: list[Expr], variable: Index) -> tuple[int, int]:
    """Return how many loads have elements that are not adjacent along a loop, and how far apart."""
    steps = [step for use in read if (step := _step(use, variable)) > 1]
    return len(steps), sum(steps)


def _step(use: Expr, variable: Index) -> int:
    """Return the stride of a load along a loop; a large one where its positions change."""
    moves = any(varies(position, _atom(variable)) for position in use.args)
    return HINT * HINT if moves else stride(use.data[1], variable)


def _merged(group: Group, variables: Variables, keep: int) -> tuple[Variables, Group]:
    """Merge adjacent loops if every index traverses both with one stride."""
    result = list(variables)
    position = len(result) - 2 - keep
    while position >= 0:
        first, second = result[position], result[position + 1]
        if all(_in_one_stride(index, first, second) for index in _all_indices(group)):
            name = ix.atom_of(second)
            assert name is not None
            joined = ix.var(name.name, ix.extent(first) * ix.extent(second))
            group = _renamed(group, {_atom(first): ix.ZERO, name: joined})
            result[position : position + 2] = [joined]
            outer = tuple(result) if variables is group.outer else group.outer
            group = Group(outer, group.inner, group.members)
        position -= 1
    return tuple(result), group


def _all_indices(group: Group) -> list[Index]:
    found = accesses(group)
    for member in group.members:
        found += index_values(member)
    return found


def index_values(member: Member) -> list[Index]:
    """Return indices used as values in a member."""
    from_walk: list[Index] = []
    seen = set()
    stack = [member.body]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op == "index":
            from_walk.append(node.data[0])
        stack.extend(node.args)
    return from_walk


def _in_one_stride(index: Index, first: Index, second: Index) -> bool:
    atoms = index.atoms()
    if _atom(first) not in atoms and _atom(second) not in atoms:
        return True
    outer, inner = ix.coefficient(index, first), ix.coefficient(index, second)
    return outer is not None and inner is not None and outer is inner * ix.extent(second)


def _renamed(group: Group, values: dict[Atom, Index]) -> Group:
    members = [
        replace(m, index=ix.substitute(m.index, values), body=substitute(m.body, values))
        for m in group.members
    ]
    return Group(group.outer, group.inner, members)


def _atom(variable: Index) -> Atom:
    atom = ix.atom_of(variable)
    assert atom is not None
    return atom
