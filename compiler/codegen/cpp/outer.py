"""Outer-product GEMM microkernel: tile sizes for few rows times a row-major matrix, ``x @ w``.

In: rows, columns and threads. Out: `Tiles`, which ``tc_outer_f32`` (`helpers/products.h`) computes.
"""

from __future__ import annotations

from dataclasses import dataclass

from tc.compiler.routines.products import LANES

# A tile holds its results, a row of the matrix and one element of x in 32 registers.
REGISTERS = 32
MOST_TALL, MOST_VECTORS = 14, 8
# A tile of at least this many rows leaves time to prefetch the next block of the matrix.
LEAST_FETCHING = 7


@dataclass(frozen=True)
class Tiles:
    """The tiling of a product: blocks of columns, each in tiles of rows.

    Attributes:
        tall: rows of a tile; the last ones may have one less.
        vectors: vectors in a row of a block.
        rest: vectors of a narrower or partial last block; 0 if there is none.
        fetched: whether the first tile of a block prefetches the next block.
    """

    tall: int
    vectors: int
    rest: int
    fetched: bool


def tiles_of(rows: int, width: int, threads: int) -> Tiles:
    """Return tiles as large as the registers allow, in blocks of equal width for all threads."""
    tall = _ceil(rows, _ceil(rows, MOST_TALL))
    most = min((REGISTERS - 1) // (tall + 1), MOST_VECTORS)
    whole = _ceil(width, LANES)
    blocks = min(_ceil(_ceil(whole, most), threads) * threads, whole)
    vectors = _ceil(whole, blocks)
    rest = _ceil(width % (LANES * vectors), LANES)
    return Tiles(tall, vectors, rest, tall >= LEAST_FETCHING and blocks > 1)


def _ceil(count: int, by: int) -> int:
    return -(-count // by)
