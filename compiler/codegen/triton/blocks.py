"""Block sizes: the rows, and elements of a row, that a block of threads processes at a time.

In: a `Kernel` of the plan. Out: `Blocks`. Numbers are powers of two, as Triton wants them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tc.compiler.loops import index as ix
from tc.compiler.schedule.plan import Kernel

POINTWISE = 1024  # elements of a pointwise block: 8 a thread
HELD = 4096  # elements of a reduction that a block holds in registers
TRANSPOSED = 64  # elements of a transposed tile along each loop: runs of 128 bytes and more
COLUMNS = 64  # rows of a block if adjacent rows are adjacent in memory


@dataclass(frozen=True)
class Blocks:
    """The block sizes of a kernel.

    Attributes:
        rows: rows of a block (elements, for pointwise kernels).
        elements: of a row at a time; 0 for pointwise kernels.
        across: elements of a transposed tile along the other loop; 0 without a transpose.
        persistent: whether a whole row fits, so that it is read once and there is no loop.
        warps: threads of a block, in groups of 32.
    """

    rows: int
    elements: int = 0
    persistent: bool = False
    warps: int = 4
    across: int = 0

    def __str__(self) -> str:
        held = ", held" if self.persistent else ""
        by = f"x{self.elements or self.across}" if self.elements or self.across else ""
        return f"{self.rows}{by}{held}, {self.warps} warps"

    def constants(self) -> dict[str, int]:
        """Return the kernel's compile-time parameters."""
        others = {"RBLOCK": self.elements, "YBLOCK": self.across}
        return {"XBLOCK": self.rows} | {name: size for name, size in others.items() if size}


def power_of_two(count: int) -> int:
    """Return the smallest power of two that is not less."""
    return 1 << max(count - 1, 0).bit_length()


def choose(kernel: Kernel) -> Blocks:
    """Return block sizes for a kernel."""
    if kernel.tile is not None:
        return _tile(kernel, TRANSPOSED, TRANSPOSED)
    rows = ix.product([ix.extent(v) for v in kernel.outer]).constant
    if not kernel.inner:
        size = POINTWISE if rows is None else min(POINTWISE, power_of_two(max(rows, 1)))
        return Blocks(size, warps=4 if size > 256 else max(size // 64, 1))
    length = ix.product([ix.extent(v) for v in kernel.inner]).constant
    along_rows = kernel.lane is not None
    held = COLUMNS if along_rows else HELD
    persistent = length is not None and length <= held
    if persistent:
        assert length is not None
        elements = power_of_two(max(length, 1))
    else:
        elements = 32 if along_rows else 2048
    most = COLUMNS if along_rows else max(1024 // elements, 1)
    count = most if rows is None else min(most, power_of_two(max(rows, 1)))
    return Blocks(count, elements, persistent, _warps(count * elements))


def candidates(kernel: Kernel) -> list[Blocks]:
    """Return block sizes worth trying, the usual ones first."""
    usual = choose(kernel)
    rows = ix.product([ix.extent(v) for v in kernel.outer]).constant
    most = 1 << 30 if rows is None else power_of_two(max(rows, 1))
    found = [usual]
    if kernel.tile is not None:
        sizes = [
            (TRANSPOSED // 2, TRANSPOSED // 2),
            (TRANSPOSED // 2, TRANSPOSED),
            (TRANSPOSED, TRANSPOSED // 2),
        ]
        found += [_tile(kernel, *size) for size in (*sizes, (2 * TRANSPOSED, TRANSPOSED))]
        return list(dict.fromkeys(found))
    if not kernel.inner:
        sizes = [(size, warps) for size in (256, 512, 1024, 2048, 4096) for warps in (4, 8)]
        found += [Blocks(min(size, most), warps=warps) for size, warps in sizes]
        return list(dict.fromkeys(found))
    lengths = [usual.elements]
    length = ix.product([ix.extent(v) for v in kernel.inner]).constant
    if usual.persistent:  # a loop needs fewer registers
        lengths += [n for n in (512, 1024, 2048) if length is not None and n < length]
    else:
        lengths += [max(usual.elements // 2, 16), usual.elements * 2]
    for elements in lengths:
        for count in (usual.rows // 2, usual.rows, usual.rows * 2, usual.rows * 4):
            if not 0 < count <= most or count * elements > 4 * HELD:
                continue
            persistent = usual.persistent and elements == usual.elements
            warps = _warps(count * elements)
            found += [Blocks(count, elements, persistent, w) for w in (warps, 2 * warps) if w <= 16]
    return list(dict.fromkeys(found))


def _tile(kernel: Kernel, rows: int, across: int) -> Blocks:
    """Return a tile no larger than the loops need, 16 elements a thread."""
    assert kernel.tile is not None
    along, last = (ix.extent(variable).constant for variable in kernel.tile)
    rows = rows if last is None else min(rows, power_of_two(last))
    across = across if along is None else min(across, power_of_two(along))
    return Blocks(rows, across=across, warps=_warps(rows * across // 2))


def _warps(elements: int) -> int:
    """Return the number of warps for about 8 elements a thread, at most 16."""
    return min(max(power_of_two(elements // 256), 1), 16)
