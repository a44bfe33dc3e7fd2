"""Products of matrices that generated kernels compute: of few rows, of small matrices, tiny ones.

A product of few rows spends its time on reading the matrix. Where that is transposed in memory, as
the weight of a linear layer is, kernels that read it along memory and fetch it ahead are faster
than what ATen calls (figures: `core/c_helpers/products.h`), and compute what follows along with the
result. Small row-major matrices have kernels that are as fast as the library's, without the price
of its call (figures: there).
"""

from __future__ import annotations

from typing import Any

import torch

from tc.compiler.core.c_helpers import FOLDER
from tc.compiler.core.machine import caches
from tc.compiler.routines.row import Routine, routine

#: measured against MKL: 1.0 to 1.8 times as fast with 64 rows, where what the caches hold is other
#: work's 1.0 to 2.8; 0.9 to 1.6 with 96
MOST_ROWS = 64
LEAST_COLUMNS = 4
#: elements of a vector; other depths leave a rest, which is slow
LANES = 16
#: of row-major matrices: larger ones miss what the library gains by packing them, wider results
#: are written in too small pieces, and longer sums are less exact than its sums of blocks
#: (measured against MKL's own time within these bounds: 0.9 to 2 times as fast, warm or cold)
MOST_ROWS_OF_SMALL = 128
MOST_DEPTH, MOST_RESULTS = 1 << 10, 1 << 15
#: part of the second cache that such a matrix of float32 may take, and one whose rows are
#: multiplied with at most `BARELY_ROWS`
MOST_PART, MOST_PART_OF_BARELY = 1 / 4, 1
BARELY_ROWS = 4
#: results times depth; the reference interpreters hold as many numbers
MOST_WORK = 1 << 27
#: multiplications that loops make in less time than a call takes: on any device, and on a CPU
#: (measured against MKL: 0.9 to 1.9 times as fast, where the caches hold other work's 1.4 to 2.6).
#: Of few rows, kernels of products do better than loops above the first number.
TINY_WORK, TINY_WORK_ON_CPU = 1 << 10, 5 << 10

TRANSPOSED = f"at most {MOST_ROWS} rows, and a column-major matrix"
SMALL = f"at most {MOST_ROWS_OF_SMALL} rows of a small matrix"

Steps = tuple[int, ...] | None


def form(count: int, depth: int, width: int, across: Steps, down: Steps) -> str:
    """Return what of a product suits the kernels: `TRANSPOSED`, `SMALL`, or nothing.

    Args:
        count, depth, width: it is of (count, depth) and (depth, width) matrices.
        across, down: their strides; None if one is not of float32, or not on the CPU.
    """
    work = count * depth * width
    if across is None or down is None or work <= TINY_WORK:
        return ""
    if (across, down) == ((depth, 1), (1, depth)):
        small = count <= MOST_ROWS and work <= MOST_WORK
        return TRANSPOSED if small and depth % LANES == 0 and width >= LEAST_COLUMNS else ""
    in_rows = 1 in across and down[0] >= width and down[1] == 1
    return SMALL if in_rows and _is_small(count, depth, width) else ""


def _is_small(count: int, depth: int, width: int) -> bool:
    """Return whether a product with a row-major matrix is within what was measured."""
    part = MOST_PART_OF_BARELY if count <= BARELY_ROWS else MOST_PART
    most = int(part * caches().second) // torch.float32.itemsize
    fits = count <= MOST_ROWS_OF_SMALL and depth <= MOST_DEPTH and depth * width <= most
    return fits and count * width <= MOST_RESULTS and depth > 1 and width > 1


def is_tiny(count: int, depth: int, width: int, *, on_cpu: bool) -> bool:
    """Whether plain loops compute a product before a call of the library would have begun."""
    return 0 < count * depth * width <= (TINY_WORK_ON_CPU if on_cpu else TINY_WORK)


def refusal(count: int, depth: int, width: int, across: Steps, down: Steps) -> str:
    """Return why the library's product stays; see `form`."""
    return (
        ""
        if form(count, depth, width, across, down)
        else "sizes or layouts that no kernel of tc supports"
    )


def _by_torch(rows: torch.Tensor, matrix: torch.Tensor) -> Any:
    return torch.mm(rows, matrix)


ROUTINE = routine(
    Routine(
        "products",
        refusal,
        {},  # wrappers call no function of it: its C is part of generated kernels
        FOLDER / "products.h",
        {},
        signature=(),
        processors="AVX512",
    )
)
