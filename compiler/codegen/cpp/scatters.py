"""Scatter kernels: values are combined into memory at computed positions, one by one.

In: kernels without inner loops whose one statement is an `Atomic`. Out: C loops. A loop whose
iterations provably write to distinct positions is parallelised and vectorised.
"""

from __future__ import annotations

from tc.compiler.codegen.cpp.writer import PARALLEL_WORK, Writer
from tc.compiler.codegen.printer import ExprPrinter, c_index, c_type
from tc.compiler.loops import index as ix
from tc.compiler.loops.index import Index
from tc.compiler.schedule.plan import Atomic, Statement

#: the fewest elements of a thread's part of a row
PART = 32
#: iterations of a loop of scattered elements that run at a time
UNROLLED = 4


class ScatterWriter(Writer):
    """Prints loops over the scattered values."""

    scattered = False  # iterations of the innermost loop may write to one position

    def body(self) -> None:
        """Print the loops over all values, with those for one position in order."""
        outer, statements = self.kernel.outer, self.kernel.statements()
        own = [v for v in outer if all(_apart(s, v) for s in statements)]
        self.scattered = bool(outer) and outer[-1] not in own
        bounds = {v: ("0", c_index(ix.extent(v))) for v in outer}
        parted = None if outer and outer[0] in own else self._parted(own)
        if parted is not None:
            self.parallel()
            self.count("part", "0", str(self.threads))
            size = c_index(ix.extent(parted))
            last = f"{size} * (part + 1) / {self.threads}"
            bounds[parted] = (f"{size} * part / {self.threads}", last)
        for position, variable in enumerate(outer):
            if position == 0 and parted is None and variable in own:
                self.parallel()
            if position == len(outer) - 1:
                if position:
                    self.hoist(statements, variable, frozenset(), bounds[variable])
                if variable in own and (position or not self._shared()):
                    self.simd()
                if self.scattered:
                    self.pragma(f"GCC unroll {UNROLLED}")
            self.loop(variable, *bounds[variable])
        self.statements(statements)
        self.close(len(outer) + (parted is not None))
        self.hoisted = {}

    def _shared(self) -> bool:
        """Return whether there may be enough work for several threads."""
        known = self.work().constant
        return self.threads > 1 and (known is None or known >= PARALLEL_WORK)

    def _parted(self, own: list[Index]) -> Index | None:
        """Return the inner loop of which each thread takes a part, running through all others."""
        if not self._shared():
            return None
        long = [v for v in own if (ix.extent(v).constant or 0) >= PART * self.threads]
        return long[-1] if long else None

    def statement(self, statement: Statement, printer: ExprPrinter) -> None:
        assert isinstance(statement, Atomic)
        value = statement.value.args[0]
        text = printer.value(value)
        if self.scattered:
            printer.skip_outside(statement.value)
        place = printer.element(statement.buffer, statement.index, statement.value)
        if statement.kind in ("sum", "set"):
            self.emit(f"{place} {'+=' if statement.kind == 'sum' else '='} {text};")
            return
        name = printer.fresh()
        self.declare(f"const {c_type(value.dtype)}", name, text)
        sign = ">" if statement.kind == "max" else "<"
        nan = f" || {name} != {name}" if value.dtype.is_floating_point else ""
        self.emit(f"{place} = {name} {sign} {place}{nan} ? {name} : {place};")


def _apart(statement: Statement, variable: Index) -> bool:
    """Return whether different iterations of a loop never write to the same position."""
    assert isinstance(statement, Atomic)
    return ix.coefficient(statement.index, variable) not in (None, ix.ZERO)
