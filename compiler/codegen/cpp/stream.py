"""Streaming: which results of a kernel are written past the caches.

In: a `Kernel`. Out: names of buffers. A cache line that is written in parts is read first; one that
is written whole by non-temporal stores is not. That pays if a kernel accesses more memory than fits
in the caches: plain loops are 1.3 times as fast, transposing tiles 3 times.
"""

from __future__ import annotations

from tc.compiler.core.machine import caches
from tc.compiler.loops import index as ix
from tc.compiler.schedule.plan import Kernel, Store

# Part of the last cache that a kernel may touch before its results no longer stay there. Measured
# with 32 MiB of cache: break-even between 16 and 32 MB, at 29 MB GELU of bfloat16 is 1.3 times as
# fast, at 37 MB bytes made floats twice.
KEPT_PART = 3 / 4
LINE = 64


def beyond_caches(kernel: Kernel) -> bool:
    """Return whether a kernel is known to access more memory than fits in the caches."""
    loops = (*kernel.outer, *kernel.inner)
    count = ix.product([ix.extent(v) for v in loops]).constant
    if count is None:
        return False
    stores = {s.buffer: s for s in kernel.statements() if isinstance(s, Store)}
    uses = {use for s in kernel.statements() for use in s.value.loads()}
    touched = sum(s.value.dtype.itemsize for s in stores.values())
    touched += sum(
        use.dtype.itemsize
        for use in uses
        if use.op == "load" and all(ix.coefficient(use.data[1], v) is not ix.ZERO for v in loops)
    )
    return count * touched > KEPT_PART * caches().last


def streamed(kernel: Kernel) -> frozenset[str]:
    """Return the buffers that a kernel writes by non-temporal stores; it must not read them."""
    if not beyond_caches(kernel):
        return frozenset()
    private = {s.name for s in kernel.scratch}
    private |= {use.data[0] for s in kernel.statements() for use in s.value.loads()}
    return frozenset(s.buffer for s in kernel.statements() if isinstance(s, Store)) - private
