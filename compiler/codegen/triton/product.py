"""Triton for matrix products with what follows them element by element.

In: a `Product` of the plan and a `Tile`. Out: a Triton function with its launch. A block of threads
computes a tile of the result, summed in float32, and then the follower's statements on it; tiles
are taken in groups of rows, so that what is read stays in the second-level cache.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tc.compiler.codegen.triton.blocks import Blocks, power_of_two
from tc.compiler.codegen.triton.kernel import (
    KernelWriter,
    TritonKernel,
    arguments_of,
    fits_32_bits,
    printed,
)
from tc.compiler.codegen.triton.ops import convert
from tc.compiler.codegen.triton.printer import Axis, BlockPrinter, Space
from tc.compiler.loops.ir import Buffer, View
from tc.compiler.loops.ops import compute_dtype
from tc.compiler.schedule.plan import Product

GROUP = 8
LEAST = 16  # what Triton's dot takes


@dataclass(frozen=True)
class Tile:
    """How a product is cut.

    Attributes:
        rows, columns: of the result that a block computes.
        depth: elements of a row and a column multiplied at a time.
        warps: threads of a block, in groups of 32.
        stages: loads under way at a time.
    """

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int

    def __str__(self) -> str:
        size = f"{self.rows}x{self.columns}x{self.depth}"
        return f"triton {size}, {self.warps} warps, {self.stages} stages"


TILES = (
    Tile(128, 128, 32, 8, 3),
    Tile(128, 128, 64, 8, 3),
    Tile(128, 256, 64, 8, 3),
    Tile(128, 64, 32, 4, 4),
    Tile(64, 128, 32, 4, 4),
    Tile(64, 64, 64, 4, 3),
    Tile(64, 32, 64, 4, 4),
    Tile(32, 64, 64, 4, 4),
    Tile(16, 128, 64, 4, 4),
)


def tiles(product: Product) -> list[Tile]:
    """The tiles worth trying, none larger than the matrices need."""
    (m, k), (_, n) = (_numbers(view.sizes) for view in (product.left, product.right))
    most = [max(power_of_two(extent), LEAST) for extent in (m, n, k)]
    cut = [
        replace(
            tile,
            rows=min(tile.rows, most[0]),
            columns=min(tile.columns, most[1]),
            depth=min(tile.depth, most[2]),
        )
        for tile in TILES
    ]
    return list(dict.fromkeys(cut))


def generate(product: Product, buffers: dict[str, Buffer], tile: Tile) -> TritonKernel:
    """Print a product."""
    writer = _ProductWriter(product, buffers, tile)
    writer.run()
    (m, _), (_, n) = (_numbers(view.sizes) for view in (product.left, product.right))
    count = -(-m // tile.rows) * -(-n // tile.columns)
    constants = {
        "XBLOCK": 1,
        "MBLOCK": tile.rows,
        "NBLOCK": tile.columns,
        "KBLOCK": tile.depth,
    }
    settings = f"num_warps={tile.warps}, num_stages={tile.stages}"
    arguments = arguments_of(product)
    source = printed(product.name, str(count), arguments, constants, settings, writer.lines)
    return TritonKernel(product.name, arguments, Blocks(1, warps=tile.warps), source)


def _numbers(indices: tuple[object, ...]) -> list[int]:
    return [index.constant for index in indices]  # type: ignore[attr-defined]


class _ProductWriter(KernelWriter):
    """The body of one product."""

    def __init__(self, product: Product, buffers: dict[str, Buffer], tile: Tile) -> None:
        wide = not fits_32_bits(product, buffers)
        super().__init__(product, Blocks(1, warps=tile.warps), wide)
        self.product, self.buffers = product, buffers
        self.x = Axis("x", product.outer, "xmask")
        self.rows_printer = BlockPrinter(self.emit, self.fresh, Space((self.x,)), {})

    def _positions(self) -> None:
        product = self.product
        (m, k), (_, n) = (_numbers(view.sizes) for view in (product.left, product.right))
        self.emit(f"tiles_m, tiles_n = tl.cdiv({m}, MBLOCK), tl.cdiv({n}, NBLOCK)")
        self.emit(f"first = tl.program_id(0) // ({GROUP} * tiles_n) * {GROUP}")
        self.emit(f"place = tl.program_id(0) % ({GROUP} * tiles_n)")
        self.emit(f"high = tl.minimum(tiles_m - first, {GROUP})")
        kind = ".to(tl.int64)" if self.wide else ""
        tile_m, tile_n = f"(first + place % high){kind}", f"(place // high){kind}"
        self.emit(f"m = {tile_m} * MBLOCK + tl.arange(0, MBLOCK)[:, None]")
        self.emit(f"n = {tile_n} * NBLOCK + tl.arange(0, NBLOCK)[None, :]")
        self.emit("total = tl.zeros([MBLOCK, NBLOCK], tl.float32)")
        self.emit(f"for start in range(0, {k}, KBLOCK):")
        self.depth += 1
        self.emit("along = start + tl.arange(0, KBLOCK)[None, :]")
        self.emit("down = start + tl.arange(0, KBLOCK)[:, None]")
        self._factor("left", product.left, ("m", "along"), (m, k))
        self._factor("right", product.right, ("down", "n"), (k, n))
        self.emit('total = tl.dot(left, right, total, input_precision="ieee")')
        self.depth -= 1
        self.emit(f"x = m * {n} + n")
        self.emit(f"xmask = (m < {m}) & (n < {n})")
        self._split("x", product.outer)
        for statement in product.statements():
            for use in statement.value.loads():
                if use.data[0] == product.result:
                    made = convert("total", compute_dtype(use.dtype), use.dtype)
                    self.rows_printer.known[use] = made

    def _factor(
        self, name: str, view: View, positions: tuple[str, str], ends: tuple[int, int]
    ) -> None:
        steps = _numbers(view.strides)
        offset = view.offset.constant
        start = f"{view.buffer}_ptr + {offset}" if offset else f"{view.buffer}_ptr"
        place = " + ".join(f"{p} * {step}" for p, step in zip(positions, steps, strict=True))
        mask = " & ".join(f"({p} < {end})" for p, end in zip(positions, ends, strict=True))
        self.emit(f"{name} = tl.load({start} + {place}, mask={mask}, other=0.0)")
