"""Lane kernels: reductions across rows of memory, a block of columns at a time.

In: kernels with a lane. Out: C loops whose accumulators are arrays of `LANES` columns.
"""

from __future__ import annotations

from collections.abc import Sequence

from tc.compiler.codegen.cpp.block import call
from tc.compiler.codegen.cpp.rests import VECTOR, Run, in_vectors
from tc.compiler.codegen.cpp.runs import narrow, runs_of, widen
from tc.compiler.codegen.cpp.writer import Writer
from tc.compiler.codegen.printer import c_index, c_type
from tc.compiler.loops import index as ix
from tc.compiler.schedule.plan import Accumulate, Let, Running, Section, Statement

LANES = 256


class LaneWriter(Writer):
    """Prints loops over blocks of columns in parallel, whose lanes are vectorised."""

    def body(self) -> None:
        """Print reductions across rows of memory: a block of columns at a time, sums in arrays."""
        kernel, lane = self.kernel, self.kernel.lane
        assert lane is not None
        outer = [v for v in kernel.outer if v is not lane]
        extent = c_index(ix.extent(lane))
        collapse = len(outer) + 1
        self.parallel(collapse=collapse)
        for variable in outer:
            self.loop(variable)
        self.count(f"{lane}_from", "0", extent, str(LANES))
        left = call("tc_min", str(LANES), f"{extent} - {lane}_from")
        self.declare("const long long", "lanes", left)
        self.arrays = {
            s.name
            for section in kernel.sections
            for s in section.statements
            if isinstance(s, Accumulate) or (isinstance(s, Let) and section.level == "row")
        }
        types = {s.name: s.value.dtype for s in kernel.statements() if isinstance(s, Let)}
        types.update({a.name: a.result_dtype for a in self.accumulators.values()})
        for name in sorted(self.arrays):
            self.declare(c_type(types[name]), name, length=f"[{LANES}]")
        for section in kernel.sections:
            if section.level == "row":
                self._lanes(section.statements)
            else:
                self._lane_pass(section)
        self.close(collapse)

    def _lanes(self, statements: Sequence[Statement]) -> None:
        """Print a loop over the lanes; the last vector of a block that is not whole is masked."""
        lane = self.kernel.lane
        assert lane is not None
        first = f"{lane}_from"
        in_vectors(
            self,
            statements,
            lane,
            first,
            f"{first} + lanes",
            self.simd,
            any(isinstance(s, Running) for s in statements),
            Run("lanes", ix.extent(lane).constant),
            lambda: self.declare("const long long", "j", f"{lane} - {first}"),
        )

    def _lines(self, lines: Sequence[str]) -> None:
        """Print a loop over the lanes, and over what fills up their last vector."""
        self.simd()
        self.count("j", "0", f"((lanes + {VECTOR - 1}) & -{VECTOR}LL)")
        for line in lines:
            self.emit(line)
        self.close()

    def _lane_pass(self, section: Section) -> None:
        sums = [self.accumulators[s.name] for s in section.statements if isinstance(s, Accumulate)]
        self.open("")
        starts: list[str] = []
        for accumulator in sums:
            for kind, name, start, _ in accumulator.variables():
                self.declare(kind, name, length=f"[{LANES}]")
                starts.append(f"{name}[j] = {start};")
        self.totals(section.statements, f"[{LANES}]")
        for scan in section.statements:
            if isinstance(scan, Running):
                starts += self.total_starts(scan)
        if starts:
            self._lines(starts)
        for variable in self.kernel.inner:
            self.loop(variable)
        assert self.kernel.lane is not None
        self.hoist(section.statements, self.kernel.lane, frozenset())
        runs = runs_of(section.statements, self.kernel.lane)
        first = ix.counter(f"{self.kernel.lane}_from")
        statements = widen(self, runs, section.statements, self.kernel.lane, first, "lanes", LANES)
        self._lanes(statements)
        narrow(self, runs, self.kernel.lane, first, "lanes")
        self.hoisted = {}
        self.close(len(self.kernel.inner))
        if sums:
            self._lines([f"{a.name}[j] = {a.result('[j]')};" for a in sums])
        self.close()
