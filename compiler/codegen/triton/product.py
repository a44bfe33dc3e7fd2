"""Prints matrix products in Triton, with fused prologues and epilogues.

In: a `Product` of the plan, with tile sizes. Out: a Triton function with its launch. A block of
threads computes a tile of the result, summed in float32, and then the statements on it. Tiles are
ordered in groups of rows, so that their operands stay in the L2 cache. The pairs of a batch follow
one another. Factors in float32 are multiplied exactly, or in TF32 if torch's ``fp32_precision`` of
products allows that. Sums always have at least float32 precision, whatever
``allow_fp16_reduced_precision_reduction`` and its like permit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tc.compiler.codegen.triton.blocks import Blocks, power_of_two
from tc.compiler.codegen.triton.kernel import (
    KernelWriter,
    TritonKernel,
    arguments_of,
    fits_32_bits,
    launched,
)
from tc.compiler.codegen.triton.ops import typed_constant
from tc.compiler.codegen.triton.printer import (
    Axis,
    BlockPrinter,
    Space,
    masked,
    triton_index,
)
from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr
from tc.compiler.loops.ir import Buffer
from tc.compiler.schedule.plan import Product, Tile

GROUP = 8
LEAST = 16  # operand types of Triton's dot

TILES = (
    Tile(128, 128, 32, 8, 3),
    Tile(128, 128, 64, 8, 3),
    Tile(128, 256, 64, 8, 3),
    Tile(256, 128, 64, 8, 3),
    Tile(128, 64, 32, 4, 4),
    Tile(64, 128, 32, 4, 4),
    Tile(64, 64, 64, 4, 3),
    Tile(64, 32, 64, 4, 4),
    Tile(32, 64, 64, 4, 4),
    Tile(16, 128, 64, 4, 4),
)


def tiles(product: Product, sizes: Mapping[str, int]) -> list[Tile]:
    """Return the tile sizes worth timing, none larger than the matrices need.

    Args:
        sizes: estimates of symbolic sizes.
    """
    _, row, column, along, _ = product.space
    counts = [ix.evaluate(ix.extent(v), sizes) for v in (row, column, along)]
    most = [max(power_of_two(count), LEAST) for count in counts]
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


def generate(product: Product, buffers: dict[str, Buffer]) -> TritonKernel:
    """Print a product with tile sizes."""
    tile = product.cut
    assert tile is not None, product.name
    writer = _ProductWriter(product, buffers, tile)
    writer.run()
    sizes = (1, tile.rows, tile.columns, tile.depth)
    constants = tuple(zip(("XBLOCK", "MBLOCK", "NBLOCK", "KBLOCK"), sizes, strict=True))
    one, row, column, *_ = map(ix.extent, product.space)
    up = ((row + (tile.rows - 1)) // tile.rows, (column + (tile.columns - 1)) // tile.columns)
    settings = f"num_warps={tile.warps}, num_stages={tile.stages}"
    arguments = arguments_of(product)
    rows = launched(ix.product((one, *up)), arguments)
    blocks, body = Blocks(1, warps=tile.warps), tuple(writer.lines)
    return TritonKernel(product.name, arguments, blocks, rows, constants, settings, body)


class _ProductWriter(KernelWriter):
    """The body of one product."""

    def __init__(self, product: Product, buffers: dict[str, Buffer], tile: Tile) -> None:
        wide = not fits_32_bits(product, buffers)
        super().__init__(product, Blocks(1, warps=tile.warps), wide)
        self.product, self.cut = product, tile
        self.kind = ".to(tl.int64)" if wide else ""
        blocks = (tile.rows, tile.columns, tile.depth, tile.depth)
        names = ("m", "n", "along", "down")
        self.m, self.n, self.along, self.down = (
            Axis(name, (variable,), self._needs(f"{name}_mask", ix.extent(variable), block))
            for name, variable, block in zip(names, product.space[1:], blocks, strict=True)
        )
        self.rows_printer = BlockPrinter(self.emit, self.fresh, Space((self.m, self.n)), {})

    def _positions(self) -> None:
        self._tile()
        product, kind = self.product, self.kind
        depth = triton_index(ix.extent(product.space[3]))
        self.emit("total = tl.zeros([MBLOCK, NBLOCK], tl.float32)")
        self.emit(f"for start in range(0, {depth}, KBLOCK):")
        self.depth += 1
        self.emit(f"along = start + tl.arange(0, KBLOCK)[None, :]{kind}")
        self.emit(f"down = start + tl.arange(0, KBLOCK)[:, None]{kind}")
        for axis in (self.along, self.down):
            if axis.mask:
                self.emit(f"{axis.mask} = {axis.name} < {depth}")
        left = self._factor(product.left, (self.m, self.along), "[MBLOCK, KBLOCK]")
        right = self._factor(product.right, (self.down, self.n), "[KBLOCK, NBLOCK]")
        precision = f'input_precision="{product.precision}"'
        self.emit(f"total = tl.dot({left}, {right}, total, {precision})")
        self.depth -= 1

    def _tile(self) -> None:
        """Print the pair of matrices, and the rows and columns of its product, of this block."""
        one, row, column, *_ = (triton_index(ix.extent(v)) for v in self.product.space)
        self.emit(f"tiles_m, tiles_n = tl.cdiv({row}, MBLOCK), tl.cdiv({column}, NBLOCK)")
        self.emit("tile = tl.program_id(0)")
        if one != "1":
            self.emit(f"z = (tile // (tiles_m * tiles_n)){self.kind}")
            self.emit("tile = tile % (tiles_m * tiles_n)")
        self.emit(f"first = tile // ({GROUP} * tiles_n) * {GROUP}")
        self.emit(f"place = tile % ({GROUP} * tiles_n)")
        self.emit(f"high = tl.minimum(tiles_m - first, {GROUP})")
        tile_m, tile_n = f"(first + place % high){self.kind}", f"(place // high){self.kind}"
        self.emit(f"m = {tile_m} * MBLOCK + tl.arange(0, MBLOCK)[:, None]")
        self.emit(f"n = {tile_n} * NBLOCK + tl.arange(0, NBLOCK)[None, :]")
        for axis, size in ((self.m, row), (self.n, column)):
            if axis.mask:
                self.emit(f"{axis.mask} = {axis.name} < {size}")

    def _factor(self, value: Expr, axes: tuple[Axis, Axis], shape: str) -> str:
        """Return a tile of a factor, zero outside of the matrix along the depth."""
        space = Space(axes)
        if value.op == "load":
            buffer, index = value.data
            masks = " & ".join(space.mask())
            other = f", mask={masks}, other=0.0" if masks else ""
            return self._named(f"tl.load({buffer}_ptr + {space.spread(index)}{other})")
        printer = BlockPrinter(self.emit, self.fresh, space, {})
        constant = value.op == "const"
        text = typed_constant(value.data[0], value.dtype) if constant else printer.value(value)
        along = next(axis for axis in axes if axis.name in ("along", "down"))
        zero = typed_constant(0, value.dtype)
        return self._named(masked(f"tl.broadcast_to({text}, {shape})", along.mask, zero))

    def _named(self, text: str) -> str:
        name = self.fresh()
        self.emit(f"{name} = {text}")
        return name
