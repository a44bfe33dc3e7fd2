"""Scan kernels: rows in parallel, in strips: sequential scans between vectorised loops.

In: row kernels with scans. Out: C loops. The values before a scan are computed for a strip in
vectors, then the strip is scanned, then the values after it are computed in vectors. Sums use
groups of elements whose own totals do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tc.compiler.codegen.cpp.accumulators import Accumulator, clause
from tc.compiler.codegen.cpp.block import between, call
from tc.compiler.codegen.cpp.rows import RowWriter
from tc.compiler.codegen.printer import c_convert, c_type
from tc.compiler.loops.expr import walk
from tc.compiler.loops.index import Index
from tc.compiler.loops.scans import SCANS
from tc.compiler.schedule.plan import Let, Running, Section, Statement

STRIP = 256
SUMS = 8
# Products of so many float32 neither overflow nor underflow in float64.
PRODUCTS = 4


class ScanWriter(RowWriter):
    """Prints loops over rows in parallel, whose elements are sequential in a scan."""

    def _run(self, section: Section) -> None:
        scans = [s for s in section.statements if isinstance(s, Running)]
        self.totals(scans)
        for line in (text for s in scans for text in self.total_starts(s)):
            self.emit(line)
        super()._run(section)

    def _vector_loop(
        self,
        section: Section,
        bounds: tuple[str, str],
        sums: list[Accumulator],
        blocked: bool,
        plain: bool,
    ) -> None:
        scans = [s for s in section.statements if isinstance(s, Running)]
        if not scans:
            super()._vector_loop(section, bounds, sums, blocked, plain)
            return
        last, (start, stop) = self.kernel.inner[-1], bounds
        self.hoist(section.statements, last, self._row_locals(), bounds)
        phases = _phases(section.statements)
        self.count(f"{last}_by", start, stop, str(STRIP))
        left = call("tc_min", str(STRIP), between(f"{last}_by", stop))
        self.declare("const long long", f"n_{last}", left)
        self.arrays = _kept(phases)
        types = {s.name: s.value.dtype for s in section.statements if isinstance(s, Let)}
        for name in sorted(self.arrays):
            self.declare(c_type(types[name]), name, length=f"[{STRIP}]")
        for scan in scans:
            self.declare(c_type(scan.value.dtype), f"x_{scan.name}", length=f"[{STRIP}]")
            self.declare(_result_type(scan), f"s_{scan.name}", length=f"[{STRIP}]")
        reductions = clause(sums, self.running) if plain else ""
        for vector, ordered in phases:
            self._vectors(last, vector, ordered, reductions, plain)
            for scan in ordered:
                self._in_order(scan, last)
        self.arrays = set()
        self.close()
        self.hoisted = {}

    def _vectors(
        self,
        last: Index,
        statements: Sequence[Statement],
        scans: Sequence[Running],
        reductions: str,
        plain: bool,
    ) -> None:
        """Print a vectorised loop over a strip, of statements that need no later scan."""
        if not statements and not scans:
            return
        if plain:
            self.simd(reductions)
        self.count("j", "0", f"n_{last}")
        self.declare("const long long", str(last), f"{last}_by + j")
        self.emit(f"(void){last};")
        needed = {name for s in (*statements, *scans) for name in _locals(s)}
        for scan in self._scans():
            if scan.name in needed:
                value = f"s_{scan.name}[j]"
                if not SCANS[scan.kind].position:
                    value = c_convert(value, scan.value.dtype, scan.dtype)
                self.declare(f"const {c_type(scan.dtype)}", scan.name, value)
        printer = self.printer()
        for statement in statements:
            self.statement(statement, printer)
        for scan in scans:
            self.emit(f"x_{scan.name}[j] = {printer.value(scan.value)};")
        self.close()

    def _scans(self) -> list[Running]:
        return [s for s in self.kernel.statements() if isinstance(s, Running)]

    # ------------------------------------------------------------ a strip in order

    def _in_order(self, scan: Running, last: Index) -> None:
        """Print the scan of a strip: whole groups, then the remainder one by one."""
        self.open("")
        self.declare("long long", "j", "0")
        group = _group(scan)
        if group:
            self.open(f"for (; j + {group} <= n_{last}; j += {group})")
            self._summed(scan, group)
            self.close()
        self.open(f"for (; j < n_{last}; j++)")
        self._one(scan, last, "j")
        self.close(2)

    def _one(self, scan: Running, last: Index, at: str) -> None:
        """Print the scan of one element."""
        value, total, place = f"x_{scan.name}[{at}]", f"c_{scan.name}", f"p_{scan.name}"
        kind = SCANS[scan.kind]
        if kind.takes is None:
            self.emit(f"{total} = {self.combined(scan, total, value)};")
        else:
            self.open(f"if ({self.takes(scan, total, value)})")
            self.emit(f"{total} = {value};")
            if kind.position:
                self.emit(f"{place} = {last}_by + {at};")
            self.close()
        self.emit(f"s_{scan.name}[{at}] = {place if kind.position else total};")

    def _summed(self, scan: Running, group: int) -> None:
        """Print the scan of a group by itself, to which the preceding total is then added."""
        kind, value, total = c_type(scan.value.dtype), f"x_{scan.name}", f"c_{scan.name}"
        self.declare(kind, "own", length=f"[{group}]")
        self.emit(f"own[0] = {value}[j];")
        for k in range(1, group):
            self.emit(f"own[{k}] = {self.combined(scan, f'own[{k - 1}]', f'{value}[j + {k}]')};")
        self.pragma("omp simd")
        self.count("k", "0", str(group), kind="int")
        self.emit(f"s_{scan.name}[j + k] = {self.combined(scan, total, 'own[k]')};")
        self.close()
        self.emit(f"{total} = s_{scan.name}[j + {group - 1}];")


def _group(scan: Running) -> int:
    """Return the number of elements in a group; 0 if the scan is one by one."""
    if scan.kind == "sum" and scan.value.dtype.is_floating_point:
        return SUMS
    widened = scan.value.dtype is torch.float64 and scan.dtype is not torch.float64
    return PRODUCTS if scan.kind == "prod" and widened else 0


def _result_type(scan: Running) -> str:
    return c_type(torch.int64 if SCANS[scan.kind].position else scan.value.dtype)


def _locals(statement: Statement) -> set[str]:
    return {node.data[0] for node in walk(statement.value) if node.op == "local"}


def _phases(statements: Sequence[Statement]) -> list[tuple[list[Statement], list[Running]]]:
    """Return statements by the number of scans that they depend on: vectorised ones, then scans."""
    phases: list[tuple[list[Statement], list[Running]]] = [([], [])]
    known: dict[str, int] = {}
    for statement in statements:
        number = max((known.get(name, 0) for name in _locals(statement)), default=0)
        while len(phases) <= number + 1:
            phases.append(([], []))
        if isinstance(statement, Running):
            phases[number][1].append(statement)
            known[statement.name] = number + 1
            continue
        phases[number][0].append(statement)
        if isinstance(statement, Let):
            known[statement.name] = number
    return phases


def _kept(phases: Sequence[tuple[list[Statement], list[Running]]]) -> set[str]:
    """Return the values that a later phase than their own reads."""
    made: dict[str, int] = {}
    kept: set[str] = set()
    for number, (vector, scans) in enumerate(phases):
        made.update((s.name, number) for s in vector if isinstance(s, Let))
        used = {name for s in (*vector, *scans) for name in _locals(s)}
        kept |= {name for name in used if made.get(name, number) < number}
    return kept
