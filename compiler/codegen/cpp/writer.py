"""The base of all kernel writers: lines and blocks, statements, accumulators, hoisting.

In: a `Kernel`. Out: `Writer`, whose subclasses print the loops of one kind of kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch

from tc.compiler.codegen.cpp.accumulators import POSITIONS, Accumulator
from tc.compiler.codegen.cpp.block import Block, between, call
from tc.compiler.codegen.cpp.parameters import parameters
from tc.compiler.codegen.cpp.positions import (
    Offset,
    always,
    branches,
    moved,
    offsets,
    replaced,
)
from tc.compiler.codegen.cpp.stream import LINE, streamed
from tc.compiler.codegen.printer import (
    ExprPrinter,
    c_constant,
    c_convert,
    c_index,
    c_type,
    has_short_nans,
)
from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, can_fail, load, walk
from tc.compiler.loops.index import Atom, Index
from tc.compiler.loops.ir import row_major
from tc.compiler.loops.ops import LOW_PRECISION
from tc.compiler.loops.scans import SCANS
from tc.compiler.schedule.plan import Accumulate, Kernel, Let, Running, Statement, Store

PARALLEL_WORK = 65536
# Elements computed before they are written past the caches.
STREAM = 256
# Operations of an element up to which its computation is cheap beside its loads.
WIDE_COST = 6
# Operations that choose a value and its position: comparisons, tests for NaN, selections.
CHOICE = 7
# Rows of at most so many elements are unrolled, and the loop over rows is vectorised instead. gcc
# makes vectors of rows of 3 or a power of two elements by shuffles; of others it reads element by
# element, which pays only if little is computed of each. Results of each element are shuffled back,
# which pays up to `BACK` bytes.
SHORT = 16
LEAST_ROWS = 16
BACK = 32
# Operations of an unrolled row; more would cost time to compile.
UNROLLED = 1500
# Elements that a loop with branches reads at a time.
UNROLLED_READS = 4
#: a loop variable, its first value, and the value after its last one
Bounds = tuple[Index, str, str]


def at_least(variable: Index, count: int) -> bool:
    """Return whether a loop may have that many iterations."""
    known = ix.extent(variable).constant
    return known is None or known >= count


def atom_of(variable: Index) -> Atom:
    """Return the atom of a loop variable."""
    atom = ix.atom_of(variable)
    assert atom is not None
    return atom


def described(kernel: Kernel) -> str:
    """Return a kernel's name, with the user's operations and lines that it comes from."""
    made = [f"{o.op} ({o.node}){f' {o.line}' if o.line else ''}" for o in kernel.origins]
    return f"kernel {kernel.name}" + (f", made of {'; '.join(made)}" if made else "")


class Writer(Block):
    """Emits the body of one kernel; each kind of kernel has a subclass."""

    def __init__(self, kernel: Kernel, threads: int) -> None:
        self.parameters = parameters(kernel)
        super().__init__(described(kernel), (p.name for p in self.parameters))
        self.kernel, self.threads = kernel, threads
        self.names = [0]
        self.arrays: set[str] = set()
        self.hoisted: dict[Expr, str] = {}
        self.branching, self.mask, self.interleaved = False, "", ""
        self.widened = {
            node
            for statement in kernel.statements()
            for node in walk(statement.value)
            if node.op == "to" and node.args[0].op == "local" and node.dtype is torch.float32
            if node.args[0].dtype in LOW_PRECISION
        }
        self.running = "a"
        self.at = "[j]" if kernel.lane is not None else ""
        self.short_nans = all(has_short_nans(s.value) for s in kernel.statements())
        self.guards_loads = _guards_loads(kernel.statements())
        self.streamed = streamed(kernel)
        self.waiting: dict[str, str] = {}
        self.checked = any(can_fail(n) for s in kernel.statements() for n in walk(s.value))
        self.accumulators = {
            s.name: self._accumulator(s) for s in kernel.statements() if isinstance(s, Accumulate)
        }

    def _accumulator(self, statement: Accumulate) -> Accumulator:
        if statement.kind not in POSITIONS:
            return Accumulator(statement.name, statement.kind, statement.dtype)
        length = ix.product([ix.extent(v) for v in self.kernel.inner]).constant
        is_short = length is not None and length <= torch.iinfo(torch.int32).max
        places = torch.int32 if is_short else torch.int64
        return Accumulator(statement.name, statement.kind, statement.value.dtype, places)

    def run(self) -> str:
        """Print everything."""
        if self.checked:
            self.declare("long long", "fault", "0")
        self.body()
        if "tc_stream" in self.helpers:
            self.emit("tc_stream_end();")
        if self.checked:
            self.emit("return fault;")
        return self.text()

    def body(self) -> None:
        """Print the loops of this kind of kernel."""
        raise NotImplementedError

    def loop(self, variable: Index, start: str = "0", stop: str = "") -> None:
        """Open a loop."""
        self.count(str(variable), start, stop or c_index(ix.extent(variable)))

    def to_stream(self, statements: Iterable[Statement], along: Index) -> list[Store]:
        """Return the stores that bypass the caches (non-temporal) in a loop along memory.

        In rows shorter than what is buffered, the buffers would cost more than they save.
        """
        length = ix.extent(along).constant
        if length is not None and length < STREAM:
            return []
        return [
            s
            for s in statements
            if isinstance(s, Store)
            and s.buffer in self.streamed
            and ix.coefficient(s.index, along) is ix.ONE
        ]

    def stream_loop(
        self,
        statements: Sequence[Statement],
        stores: Sequence[Store],
        variable: Index,
        start: str,
        stop: str,
        clause: str = "",
    ) -> None:
        """Print a vectorised loop that buffers `STREAM` elements of each store and streams them."""
        base = f"{variable}_by"
        self.count(base, start, stop, str(STREAM))
        left = call("tc_min", str(STREAM), between(base, stop))
        self.declare("const long long", f"n_{variable}", left)
        self.lines_for(stores, STREAM, f"d_{variable}")
        self.fetch_ahead(statements, variable, base, STREAM, STREAM)
        statements = self.offsets_of_block(statements, variable, base)
        self.vectors(statements, variable, clause)
        self.count(f"d_{variable}", "0", f"n_{variable}")
        self.declare("const long long", str(variable), f"{base} + d_{variable}")
        self.statements(statements)
        self.close()
        self.branching = False
        self.stream(stores, variable, base, f"n_{variable}")
        self.close()

    def fetch_ahead(
        self, statements: Iterable[Statement], variable: Index, base: str, after: int, count: int
    ) -> None:
        """Prefetch the operands of ``count`` elements, at a distance of ``after`` elements."""
        private = {scratch.name for scratch in self.kernel.scratch}
        uses = dict.fromkeys(use for s in statements for use in s.value.loads())
        for use in uses:
            along = use.op == "load" and ix.coefficient(use.data[1], variable) is ix.ONE
            if not along or use.data[0] in private:
                continue
            ahead = ix.counter(base) + ix.counter("ahead")
            index = c_index(ix.substitute(use.data[1], {atom_of(variable): ahead}))
            step = LINE // use.dtype.itemsize
            line = f"__builtin_prefetch({use.data[0]} + {index});"
            self.each("ahead", str(after), str(after + count), str(step), line)

    def lines_for(self, stores: Sequence[Store], count: int, at: str) -> None:
        """Declare the buffers in which stores collect elements before these are streamed."""
        for store in stores:
            name = f"line_{store.buffer}"
            kind = c_type(store.value.dtype)
            note = f" __attribute__((aligned({LINE})))"
            self.declare(kind, name, length=f"[{count}]", note=note)
            self.waiting[store.buffer] = f"{name}[{at}]"

    def stream(self, stores: Sequence[Store], variable: Index, base: str, count: str) -> None:
        """Stream the buffered elements of stores to memory, from ``base`` on."""
        for store in stores:
            index = ix.substitute(store.index, {atom_of(variable): ix.counter(base)})
            size = store.value.dtype.itemsize
            place = f"{store.buffer} + {c_index(index)}"
            self.emit(call("tc_stream", place, f"line_{store.buffer}", f"{count} * {size}") + ";")
        self.waiting = {}

    def vectors(self, statements: Sequence[Statement], variable: Index, clause: str = "") -> None:
        """Mark the next loop for vectorisation, or, if little but reads is in it, for branches."""
        self.branching = branches(statements, offsets(statements, atom_of(variable)))
        if self.branching:
            self.pragma(f"GCC unroll {UNROLLED_READS}")
        else:
            self.simd(clause)

    def offsets_of_block(
        self, statements: Sequence[Statement], variable: Index, base: str
    ) -> Sequence[Statement]:
        """Compute the offsets of a block of ``n_…`` elements first; return what reads by them."""
        found = offsets(statements, atom_of(variable))
        if not found or branches(statements, found):
            return statements
        loops = [(variable, base, f"{base} + n_{variable}")]
        return self.tabulate(statements, found, loops, str(STREAM), variable - ix.counter(base))

    def tabulate(
        self,
        statements: Sequence[Statement],
        found: Mapping[Expr, Offset],
        loops: Sequence[Bounds],
        length: str,
        at: Index,
    ) -> list[Statement]:
        """Compute offsets into arrays, and return the statements that read by these.

        Args:
            statements: those that read.
            found: their indirect reads, with the offsets.
            loops: the loops along which these change.
            length: of the arrays.
            at: where in the arrays the offsets of an iteration are.
        """
        names: dict[Offset, str] = {}
        for offset in found.values():
            if offset not in names:
                self.names[0] += 1
                names[offset] = f"q{self.names[0]}"
                self.declare(c_type(offset.kind), names[offset], length=f"[{length}]")
        for position, (variable, start, stop) in enumerate(loops):
            if position == len(loops) - 1:
                self.simd()
            self.loop(variable, start, stop)
        printer = self.printer()
        for offset, name in names.items():
            self.emit(
                f"{name}[{c_index(at)}] = {printer.offset(offset.positions(), offset.index)};"
            )
        self.close(len(loops))
        values = {
            node: moved(node, offset, load(names[offset], at, offset.kind))
            for node, offset in found.items()
        }
        return replaced(statements, values)

    def printer(self) -> ExprPrinter:
        """Return a printer for a block."""
        made = ExprPrinter(self, self.local, self.names, self.short_nans)
        made.known.update(self.hoisted)
        return made

    def hoist(
        self,
        statements: Sequence[Statement],
        variable: Index,
        locals_: frozenset[str],
        bounds: tuple[str, str] | None = None,
    ) -> None:
        """Hoist loop-invariant values out of the next loop, which runs through all of a variable's
        values or between bounds."""
        atom = atom_of(variable)
        whole = "0", c_index(ix.extent(variable))
        start, stop = bounds or whole
        runs = (start, stop) == whole and ix.is_at_least(ix.extent(variable), 1)

        def fixed(node: Expr) -> bool:
            if node.op == "local":
                return node.data[0] in locals_
            if node.op in ("load", "at", "index"):
                index: Index = node.data[1 if node.op != "index" else 0]
                return atom not in index.atoms()
            return True

        printer = self.printer()
        printer.runs = "" if runs else f"{start} < {stop}"
        for statement in statements:
            printer.hoist(statement.value, fixed)
        self.hoisted = printer.known

    def local(self, name: str) -> str:
        return f"{name}[j]" if name in self.arrays else name

    # ------------------------------------------------------------ parallelism

    def work(self) -> Index:
        """Rough number of operations."""
        cost = sum(min(s.value.cost(), 64) for s in self.kernel.statements())
        loops = (*self.kernel.outer, *self.kernel.inner)
        return ix.product([ix.extent(v) for v in loops]) * max(cost // 4, 1)

    def simd(self, clause: str = "") -> None:
        """Mark the next loop for vectorisation."""
        interleaved = f" reduction(|:{self.interleaved})" if self.interleaved else ""
        self.pragma(f"omp simd{clause}{interleaved}{self._faults()}")

    def before_loop(self) -> None:
        """Keep gcc from vectorising the loop around the next one, where loads are guarded."""
        if self.guards_loads and self.depth > 1 and not self.marked:
            self.emit("tc_scalar_loop();")

    def _faults(self) -> str:
        return " reduction(|:fault)" if self.checked else ""

    def unrolls(self, over: Index, short: Sequence[Index], statements: Sequence[Statement]) -> bool:
        """Return whether loops are so short that the one around them is the one to vectorise.

        Args:
            over: the loop around.
            short: the short loops.
            statements: those in them, whose stores go to each element.
        """
        length = ix.product([ix.extent(v) for v in short]).constant
        if length is None or length > SHORT or not at_least(over, LEAST_ROWS):
            return False
        if not self.apart() or self.guards_loads:
            return False
        cost = self.cost()
        stored = [s.value.dtype.itemsize for s in statements if isinstance(s, Store)]
        if length * cost > UNROLLED or any(size * length > BACK for size in stored):
            return False
        return cost <= WIDE_COST or length == 3 or length & (length - 1) == 0

    def apart(self) -> bool:
        """Return whether no buffer that is stored to is read, or stored to by several statements.

        Otherwise the order of stores and loads of one iteration would have to be kept.
        """
        private = {scratch.name for scratch in self.kernel.scratch}
        statements = self.kernel.statements()
        stored = [s.buffer for s in statements if isinstance(s, Store)]
        # `Kernel.loaded` lacks what the kernel itself stores before it reads it.
        read = {use.data[0] for s in statements for use in s.value.loads()}
        shared = (set(stored) - private) & read
        return not shared and len(set(stored)) == len(stored)

    def cost(self) -> int:
        """Return about how many operations an element takes, beside loads and sums."""
        values = sum(s.value.cost() for s in self.kernel.statements())
        choices = sum(a.is_position for a in self.accumulators.values())
        return values + self.conversions() + CHOICE * choices

    def conversions(self) -> int:
        """Return about how many operations widen operands of low precision."""
        return WIDE_COST * sum(
            use.dtype in LOW_PRECISION for s in self.kernel.statements() for use in s.value.loads()
        )

    def side_by_side(self, outer: Sequence[Index]) -> None:
        """Open loops of which the last is vectorised."""
        *around, last = outer
        if around:
            self.parallel(collapse=len(around))
            for variable in around:
                self.loop(variable)
            self.simd()
        else:
            self.parallel(simd=True)
        self.loop(last)

    def is_parallel(self) -> bool:
        """Return whether threads may share the loops."""
        known = self.work().constant
        return self.threads > 1 and (known is None or known >= PARALLEL_WORK)

    def parallel(self, clause: str = "", simd: bool = False, collapse: int = 1) -> None:
        """Mark the next loop, or so many that stand in each other, parallel if there is work."""
        total = self.work()
        known = total.constant
        vector = " simd" if simd else ""
        if self.is_parallel():
            guard = f" if({c_index(total)} >= {PARALLEL_WORK})" if known is None else ""
            if simd and guard:
                guard = f" if(parallel: {c_index(total)} >= {PARALLEL_WORK})"
            threads = f" num_threads({self.threads}) schedule(static)"
            clause += self._faults() + (f" collapse({collapse})" if collapse > 1 else "")
            self.pragma(f"omp parallel for{vector}{clause}{threads}{guard}", collapse)
        elif simd:
            self.simd(clause)

    def statements(self, statements: Iterable[Statement]) -> None:
        printer = self.printer()
        for statement in statements:
            self.statement(statement, printer)

    def statement(self, statement: Statement, printer: ExprPrinter) -> None:
        for node in always(statement.value) if self.branching else ():
            if node.op == "at" and can_fail(node):
                printer.skip_outside(node)
        text = printer.value(statement.value)
        if isinstance(statement, Store):
            plain = f"{statement.buffer}[{c_index(statement.index)}]"
            inside = f"if ({self.mask}) " if self.mask else ""
            self.emit(f"{inside}{self.waiting.get(statement.buffer, plain)} = {text};")
        elif isinstance(statement, Let):
            if statement.name in self.arrays:
                self.emit(f"{statement.name}[j] = {text};")
            else:
                self.declare(f"const {c_type(statement.value.dtype)}", statement.name, text)
                self._keep_wide(statement, printer)
        elif isinstance(statement, Running):
            self.run_on(statement, text)
        else:
            self.accumulate(statement, text)

    def _keep_wide(self, statement: Let, printer: ExprPrinter) -> None:
        """Round a value to 16 bits and back where it is read so: that is cheaper than twice."""
        value = statement.value
        wide = Expr("to", (Expr("local", (), value.dtype, (statement.name,)),), torch.float32)
        if wide in self.widened and value.op == "to" and value.args[0].dtype is torch.float32:
            name = f"w_{statement.name}"
            self.declare("const float", name, printer.value(Expr("to", (value,), torch.float32)))
            printer.known[wide] = name

    def run_on(self, scan: Running, text: str) -> None:
        """Print a step of a scan; choices are made without branches."""
        total, place, value = f"c_{scan.name}{self.at}", f"p_{scan.name}{self.at}", f"x_{scan.name}"
        self.declare(f"const {c_type(scan.value.dtype)}", value, text)
        if SCANS[scan.kind].position:
            self.declare("const int", f"newer_{scan.name}", self.takes(scan, total, value))
            self.emit(f"{place} = newer_{scan.name} ? {c_index(self.kernel.inner[-1])} : {place};")
        self.emit(f"{total} = {self.combined(scan, total, value)};")
        result = c_convert(total, scan.value.dtype, scan.dtype)
        shown = place if SCANS[scan.kind].position else result
        self.declare(f"const {c_type(scan.dtype)}", scan.name, shown)

    def totals(self, statements: Iterable[Statement], length: str = "") -> None:
        """Declare the accumulators of scans, or arrays of them."""
        scans = [s for s in statements if isinstance(s, Running)]
        for scan in scans:
            self.declare(c_type(scan.value.dtype), f"c_{scan.name}", length=length)
        for scan in scans:
            if SCANS[scan.kind].position:
                self.declare("long long", f"p_{scan.name}", length=length)

    def total_starts(self, scan: Running) -> list[str]:
        """Return C of the initial accumulator of a scan."""
        start = SCANS[scan.kind].start(scan.value.dtype)
        lines = [f"c_{scan.name}{self.at} = {c_constant(start.data[0], start.dtype)};"]
        if SCANS[scan.kind].position:
            lines.append(f"p_{scan.name}{self.at} = 0;")
        return lines

    def combined(self, scan: Running, total: str, value: str) -> str:
        """C of the total after one more value."""
        return self._over(SCANS[scan.kind].combine, scan, total, value)

    def takes(self, scan: Running, total: str, value: str) -> str:
        """C of whether a newer value is chosen."""
        takes = SCANS[scan.kind].takes
        assert takes is not None
        return self._over(takes, scan, total, value)

    def _over(
        self, made: Callable[[Expr, Expr], Expr], scan: Running, total: str, value: str
    ) -> str:
        dtype = scan.value.dtype
        one, two = (Expr("local", (), dtype, (name,)) for name in (total, value))
        return self.printer().value(made(one, two))

    def accumulate(self, statement: Accumulate, text: str) -> None:
        """Print that a value is added to its accumulator."""
        accumulator = self.accumulators[statement.name]
        name = f"x_{statement.name}"
        kind = f"const {c_type(statement.value.dtype)}"
        if self.mask:
            self.declare(kind, f"all_{statement.name}", text)
            text = f"{self.mask} ? all_{statement.name} : {accumulator.start()}"
        self.declare(kind, name, text)
        if accumulator.is_position:
            better = f"newer_{statement.name}"
            self.declare("const int", better, accumulator.better(name, self.running, self.at))
            place = c_index(row_major(self.kernel.inner))
            lines = accumulator.choose(better, name, place, self.running, self.at)
        else:
            lines = accumulator.step(name, self.running, self.at)
        for line in lines:
            self.emit(line)


def _guards_loads(statements: Iterable[Statement]) -> bool:
    """Return whether elements are read only where a condition holds, as they may not exist.

    gcc 12 gives lanes of other rows where it vectorises a loop whose iterations hold several such
    reads side by side: unrolled rows, and inner loops that it unrolls itself.
    """
    chosen = (n for s in statements for n in walk(s.value) if n.op == "select")
    return any(arm.loads() for node in chosen for arm in node.args[1:])
