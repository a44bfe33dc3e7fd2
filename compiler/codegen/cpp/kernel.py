"""C for kernels: loops, accumulators and statements.

In: a `Kernel` of the plan. Out: a C function and the arguments it takes (`CKernel`).

Rows run in parallel; the innermost loop (or the lane) is vectorised. Float sums are taken in blocks
of `BLOCK` elements whose partial sums are added, which bounds their error; with `LANES` columns at
a time where the reduction runs across rows of memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from tc.compiler.codegen.printer import ExprPrinter, c_convert, c_index, c_type
from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, load, transform, walk
from tc.compiler.loops.index import Atom, Index
from tc.compiler.loops.ops import compute_dtype
from tc.compiler.schedule.plan import Accumulate, Kernel, Let, Section, Statement, Store

BLOCK = 4096
LANES = 256
WIDE = 64
WIDE_COST = 6
TILE = 16
PARALLEL_WORK = 65536
INT_LIMITS = {
    torch.int64: ("(-9223372036854775807LL - 1)", "9223372036854775807LL"),
    torch.int32: ("(-2147483647 - 1)", "2147483647"),
    torch.int16: ("-32768", "32767"),
    torch.int8: ("-128", "127"),
    torch.uint8: ("0", "255"),
    torch.bool: ("0", "1"),
}
OMP = {"sum": "+", "prod": "*", "max": "max", "min": "min", "any": "|", "all": "&"}


@dataclass(frozen=True)
class Argument:
    """One parameter of a kernel: a buffer's pointer, a size, or a number."""

    kind: str
    name: str


@dataclass(frozen=True)
class CKernel:
    """A printed kernel: ``source`` is parameters and body, without the name."""

    name: str
    arguments: tuple[Argument, ...]
    source: str


@dataclass(frozen=True)
class Accumulator:
    """A running reduction: its C variables and how it starts, steps and ends."""

    name: str
    kind: str
    dtype: torch.dtype

    @property
    def wide(self) -> torch.dtype:
        """The type it runs in."""
        return compute_dtype(self.dtype)

    def variables(self, prefix: str = "a") -> list[tuple[str, str, str, str]]:
        """(C type, name, start value, OpenMP operator) of each variable; "" if it has none.

        A second one tells whether a NaN was met. ``prefix`` is ``a`` for the running result, ``s``
        for that of a block.
        """
        kind, wide = self.kind, self.wide
        main = (c_type(wide), f"{prefix}_{self.name}", self.start(), OMP.get(kind, ""))
        if kind in ("max", "min") and wide.is_floating_point:
            return [main, ("int", f"{prefix}n_{self.name}", "0", "|")]
        return [main]

    def start(self) -> str:
        """The neutral element."""
        if self.kind in ("sum", "any", "prod", "all"):
            return "0" if self.kind in ("sum", "any") else "1"
        if self.wide.is_floating_point:
            sign = "-" if "max" in self.kind else ""
            return f"{sign}__builtin_inf{'' if self.wide is torch.float64 else 'f'}()"
        return INT_LIMITS[self.wide][0 if "max" in self.kind else 1]

    def step(self, value: str, prefix: str, at: str = "") -> list[str]:
        """Statements taking one value in."""
        a, n = f"{prefix}_{self.name}{at}", f"{prefix}n_{self.name}{at}"
        if self.kind in ("sum", "prod"):
            return [f"{a} {'+' if self.kind == 'sum' else '*'}= {value};"]
        if self.kind in ("any", "all"):
            return [f"{a} {'|' if self.kind == 'any' else '&'}= {value};"]
        sign = ">" if self.kind == "max" else "<"
        lines = [f"{a} = {value} {sign} {a} ? {value} : {a};"]
        if self.wide.is_floating_point:
            lines.append(f"{n} |= {value} != {value};")
        return lines

    def result(self, at: str = "") -> str:
        """The final value."""
        a, n = f"a_{self.name}{at}", f"an_{self.name}{at}"
        if self.kind in ("max", "min") and self.wide.is_floating_point:
            tail = "" if self.wide is torch.float64 else "f"
            return c_convert(f'({n} ? __builtin_nan{tail}("") : {a})', self.wide, self.dtype)
        return c_convert(a, self.wide, self.dtype) if self.wide is not self.dtype else a


def _clause(sums: list[Accumulator], prefix: str) -> str:
    return "".join(f" reduction({op}:{n})" for a in sums for _, n, _, op in a.variables(prefix))


def generate(kernel: Kernel, dtypes: Mapping[str, torch.dtype], threads: int) -> CKernel:
    """Print one kernel; ``dtypes`` are those of its buffers."""
    writer = _CWriter(kernel, threads)
    body = writer.run()
    stored, loaded = kernel.stored(), kernel.loaded()
    arguments = [Argument("p", name) for name in (*loaded, *stored)]
    arguments += [Argument("i64", name) for name in _sizes(kernel)]
    arguments += [Argument("f64", name) for name in _scalars(kernel)]
    spelled = []
    for argument in arguments:
        if argument.kind == "p":
            const = "" if argument.name in stored else "const "
            spelled.append(f"{const}{c_type(dtypes[argument.name])}* restrict {argument.name}")
        else:
            spelled.append(f"{'long long' if argument.kind == 'i64' else 'double'} {argument.name}")
    return CKernel(
        kernel.name, tuple(arguments), f"({', '.join(spelled) or 'void'}) {{\n{body}}}\n"
    )


def _indices(kernel: Kernel) -> Iterable[Index]:
    for variable in (*kernel.outer, *kernel.inner):
        yield ix.extent(variable)
    for statement in kernel.statements():
        if isinstance(statement, Store):
            yield statement.index
        for node in walk(statement.value):
            if node.op in ("load", "at"):
                yield node.data[1]
                yield from node.data[2] if node.op == "at" else ()
            elif node.op == "index":
                yield node.data[0]


def _sizes(kernel: Kernel) -> list[str]:
    names = {
        atom.name for index in _indices(kernel) for atom in index.atoms() if atom.kind == "size"
    }
    return sorted(names)


def _scalars(kernel: Kernel) -> list[str]:
    names = {
        node.data[0] for s in kernel.statements() for node in walk(s.value) if node.op == "scalar"
    }
    return sorted(names)


def _joined(total: str, part: str, op: str) -> str:
    """C that takes a partial result into a total."""
    if op in ("max", "min"):
        sign = ">" if op == "max" else "<"
        return f"{total} = {part} {sign} {total} ? {part} : {total};"
    return f"{total} = {total} {op} {part};"


def _at_least(variable: Index, count: int) -> bool:
    known = ix.extent(variable).constant
    return known is None or known >= count


def _atom(variable: Index) -> Atom:
    atom = ix.atom_of(variable)
    assert atom is not None
    return atom


class _CWriter:
    """The body of one kernel."""

    def __init__(self, kernel: Kernel, threads: int) -> None:
        self.kernel, self.threads = kernel, threads
        self.lines: list[str] = []
        self.depth = 1
        self.names = [0]
        self.arrays: set[str] = set()
        self.hoisted: dict[Expr, str] = {}
        self.running = "a"
        self.at = "[j]" if kernel.lane is not None else ""
        self.accumulators = {
            s.name: Accumulator(s.name, s.kind, s.dtype)
            for s in kernel.statements()
            if isinstance(s, Accumulate)
        }

    def run(self) -> str:
        """Print everything."""
        kernel = self.kernel
        if kernel.lane is not None:
            self._lanes()
        elif kernel.tile is not None:
            self._tiles(*kernel.tile)
        elif not kernel.inner:
            self._pointwise()
        else:
            self._rows()
        return "".join(f"{line}\n" for line in self.lines)

    def emit(self, line: str) -> None:
        """Add a line."""
        self.lines.append("  " * self.depth + line)

    def open(self, line: str) -> None:
        """Start a block."""
        self.emit(line + " {")
        self.depth += 1

    def close(self, count: int = 1) -> None:
        """End blocks."""
        for _ in range(count):
            self.depth -= 1
            self.emit("}")

    def loop(self, variable: Index, start: str = "0", stop: str = "") -> None:
        """Open a loop."""
        stop = stop or c_index(ix.extent(variable))
        self.open(f"for (long long {variable} = {start}; {variable} < {stop}; {variable}++)")

    def printer(self) -> ExprPrinter:
        """A printer for a block."""
        made = ExprPrinter(self.emit, self._local, self.names)
        made.known.update(self.hoisted)
        return made

    def _hoist(
        self, statements: Sequence[Statement], variable: Index, locals_: frozenset[str]
    ) -> None:
        """Compute before the next loop what does not change in it."""
        atom = _atom(variable)

        def fixed(node: Expr) -> bool:
            if node.op == "local":
                return node.data[0] in locals_
            if node.op in ("load", "at", "index"):
                index: Index = node.data[1 if node.op != "index" else 0]
                return atom not in index.atoms()
            return True

        printer = self.printer()
        for statement in statements:
            printer.hoist(statement.value, fixed)
        self.hoisted = printer.known

    def _local(self, name: str) -> str:
        return f"{name}[j]" if name in self.arrays else name

    # ------------------------------------------------------------ parallelism

    def work(self) -> Index:
        """Rough number of operations."""
        cost = sum(min(s.value.cost(), 64) for s in self.kernel.statements())
        loops = (*self.kernel.outer, *self.kernel.inner)
        return ix.product([ix.extent(v) for v in loops]) * max(cost // 4, 1)

    def parallel(self, clause: str = "", simd: bool = False) -> None:
        """Mark the next loop parallel if there is enough to do."""
        total = self.work()
        known = total.constant
        vector = " simd" if simd else ""
        if self.threads > 1 and (known is None or known >= PARALLEL_WORK):
            guard = f" if({c_index(total)} >= {PARALLEL_WORK})" if known is None else ""
            if simd and guard:
                guard = f" if(parallel: {c_index(total)} >= {PARALLEL_WORK})"
            threads = f" num_threads({self.threads}) schedule(static)"
            self.emit(f"#pragma omp parallel for{vector}{clause}{threads}{guard}")
        elif simd:
            self.emit("#pragma omp simd" + clause.replace(" collapse", " collapse"))

    # ------------------------------------------------------------ shapes of kernels

    def _pointwise(self) -> None:
        sections = self.kernel.sections
        if any(section.over is not None for section in sections):
            for section in sections:
                self._nest(section.statements, section.over)
        else:
            self._nest([s for section in sections for s in section.statements])

    def _nest(
        self, statements: Sequence[Statement], over: tuple[Index, Index, Index] | None = None
    ) -> None:
        """Nested loops around pointwise statements, one of them over a range if so asked."""
        outer = self.kernel.outer
        bounds = dict.fromkeys(outer, ("0", ""))
        if over is not None:
            bounds[over[0]] = (c_index(over[1]), c_index(over[2]))
        if len(outer) == 1:
            self.parallel(simd=True)
        for position, variable in enumerate(outer):
            if position == 0 and len(outer) > 1:
                collapse = len(outer) - 1
                self.parallel(f" collapse({collapse})" if collapse > 1 else "")
            if position == len(outer) - 1 and position:
                self._hoist(statements, variable, frozenset())
                self.emit("#pragma omp simd")
            self.loop(variable, *bounds[variable])
        self._statements(statements)
        self.close(len(outer))
        self.hoisted = {}

    def _statements(self, statements: Iterable[Statement]) -> None:
        printer = self.printer()
        for statement in statements:
            self._statement(statement, printer)

    def _statement(self, statement: Statement, printer: ExprPrinter) -> None:
        text = printer.value(statement.value)
        if isinstance(statement, Store):
            self.emit(f"{statement.buffer}[{c_index(statement.index)}] = {text};")
        elif isinstance(statement, Let):
            if statement.name in self.arrays:
                self.emit(f"{statement.name}[j] = {text};")
            else:
                self.emit(f"const {c_type(statement.value.dtype)} {statement.name} = {text};")
        else:
            self._accumulate(statement, text)

    def _accumulate(self, statement: Accumulate, text: str) -> None:
        accumulator = self.accumulators[statement.name]
        at = self.at
        name = f"x_{statement.name}"
        self.emit(f"const {c_type(statement.value.dtype)} {name} = {text};")
        if statement.kind in ("argmax", "argmin"):
            self._arg(accumulator, name, at)
            return
        for line in accumulator.step(name, self.running, at):
            self.emit(line)

    def _arg(self, accumulator: Accumulator, value: str, at: str) -> None:
        best, place = f"b_{accumulator.name}{at}", f"a_{accumulator.name}{at}"
        sign = ">" if accumulator.kind == "argmax" else "<"
        flat = ix.ZERO
        for variable in self.kernel.inner:
            flat = flat * ix.extent(variable) + variable
        position = c_index(flat)
        test = f"{value} {sign} {best} || ({value} != {value} && {best} == {best}) || {place} < 0"
        self.open(f"if ({test})")
        self.emit(f"{best} = {value};")
        self.emit(f"{place} = {position};")
        self.close()

    def _rows(self) -> None:
        kernel = self.kernel
        if kernel.outer:
            collapse = len(kernel.outer)
            self.parallel(f" collapse({collapse})" if collapse > 1 else "")
            for variable in kernel.outer:
                self.loop(variable)
        for scratch in kernel.scratch:
            extent = c_index(scratch.extent)
            self.emit(f"{c_type(scratch.dtype)} {scratch.name}[{extent}];")
        for section in kernel.sections:
            if section.level == "row":
                self._statements(section.statements)
            else:
                self._pass(section)
        self.close(len(kernel.outer))

    def _pass(self, section: Section) -> None:
        """One run over a row; long or nested runs sum block by block."""
        inner = self.kernel.inner
        sums = [self.accumulators[s.name] for s in section.statements if isinstance(s, Accumulate)]
        self._declare(sums)
        extent = ix.extent(inner[-1]).constant
        plain = all(a.kind in OMP for a in sums)
        blocked = plain and bool(sums) and (extent is None or extent > BLOCK)
        partial = plain and bool(sums) and (blocked or len(inner) > 1)
        passes = sum(s.level == "inner" for s in self.kernel.sections)
        whole = not self.kernel.outer and passes == 1 and plain
        opened = self._outer_loops(inner[:-1], inner[-1] if blocked else None, sums, whole)
        self.running = "s" if partial else "a"
        if partial:
            for accumulator in sums:
                for kind, name, start, _ in accumulator.variables("s"):
                    self.emit(f"{kind} {name} = {start};")
        self._vector_loop(section, inner[-1], sums, blocked, plain)
        if partial:
            self._join_partials(sums)
        self.running = "a"
        self.close(opened)
        for accumulator in sums:
            kind = c_type(accumulator.dtype)
            self.emit(f"const {kind} {accumulator.name} = {accumulator.result()};")

    def _outer_loops(
        self, loops: tuple[Index, ...], blocked: Index | None, sums: list[Accumulator], whole: bool
    ) -> int:
        """Loops around the vectorised one; a lone full reduction is split among threads here."""
        opened = 0
        if whole and (loops or blocked is not None):
            clause = _clause(sums, "a")
            self.parallel(clause)
        for variable in loops:
            self.loop(variable)
            opened += 1
        if blocked is not None:
            stop = c_index(ix.extent(blocked))
            base = f"{blocked}_from"
            self.open(f"for (long long {base} = 0; {base} < {stop}; {base} += {BLOCK})")
            opened += 1
        return opened

    def _vector_loop(
        self, section: Section, last: Index, sums: list[Accumulator], blocked: bool, plain: bool
    ) -> None:
        clause = _clause(sums, self.running)
        start, stop = "0", c_index(ix.extent(last))
        if blocked:
            start = f"{last}_from"
            self.emit(f"const long long {last}_to = tc_min({start} + {BLOCK}, {stop});")
            stop = f"{last}_to"
        self._hoist(section.statements, last, self._row_locals())
        cheap = sum(s.value.cost() for s in section.statements) <= WIDE_COST
        if sums and plain and cheap and _at_least(last, 16 * WIDE):
            start = self._wide_loop(section, last, sums, start, stop)
            extent = ix.extent(last).constant
            if not blocked and extent is not None and extent % WIDE == 0:
                self.hoisted = {}
                return
        if plain:
            self.emit(f"#pragma omp simd{clause}")
        self.loop(last, start, stop)
        self._statements(section.statements)
        self.close()
        self.hoisted = {}

    def _row_locals(self) -> frozenset[str]:
        """Names that hold one value a row."""
        rows = [
            s
            for section in self.kernel.sections
            if section.level == "row"
            for s in section.statements
        ]
        return frozenset([s.name for s in rows if isinstance(s, Let)]) | frozenset(
            self.accumulators
        )

    def _wide_loop(
        self, section: Section, last: Index, sums: list[Accumulator], start: str, stop: str
    ) -> str:
        """A cheap reduction in `WIDE` sums side by side, so that additions do not wait.

        Returns where the rest, shorter than `WIDE`, begins.
        """
        self.names[0] += 1
        base = f"{last}_at{self.names[0]}"
        self.emit(f"long long {base} = {start};")
        pairs = [
            pair
            for a in sums
            for pair in zip(a.variables(self.running), a.variables("l"), strict=True)
        ]
        for _, (kind, name, _, _) in pairs:
            self.emit(f"{kind} {name}[{WIDE}];")
        self.open(f"for (int j = 0; j < {WIDE}; j++)")
        for _, (_, name, first, _) in pairs:
            self.emit(f"{name}[j] = {first};")
        self.close()
        self.open(f"for (; {base} + {WIDE} <= {stop}; {base} += {WIDE})")
        self.emit("#pragma omp simd")
        self.open(f"for (int j = 0; j < {WIDE}; j++)")
        self.emit(f"const long long {last} = {base} + j;")
        running, self.running, self.at = self.running, "l", "[j]"
        self._statements(section.statements)
        self.running, self.at = running, ""
        self.close(2)
        self.emit(f"#pragma omp simd{_clause(sums, self.running)}")
        self.open(f"for (int j = 0; j < {WIDE}; j++)")
        for (_, total, _, op), (_, name, _, _) in pairs:
            self.emit(_joined(total, f"{name}[j]", op))
        self.close()
        return base

    def _declare(self, sums: list[Accumulator]) -> None:
        for accumulator in sums:
            if accumulator.kind in ("argmax", "argmin"):
                source = self._source_type(accumulator.name)
                best = Accumulator(accumulator.name, accumulator.kind, source)
                self.emit(f"{c_type(best.wide)} b_{accumulator.name} = {best.start()};")
                self.emit(f"long long a_{accumulator.name} = -1;")
                continue
            for kind, name, start, _ in accumulator.variables():
                self.emit(f"{kind} {name} = {start};")

    def _source_type(self, name: str) -> torch.dtype:
        return next(
            s.value.dtype
            for s in self.kernel.statements()
            if isinstance(s, Accumulate) and s.name == name
        )

    def _join_partials(self, sums: list[Accumulator]) -> None:
        for accumulator in sums:
            pairs = zip(accumulator.variables("a"), accumulator.variables("s"), strict=True)
            for (_, total, _, op), (_, part, _, _) in pairs:
                self.emit(_joined(total, part, op))

    # ------------------------------------------------------------ tiles

    def _tiles(self, along: Index, last: Index) -> None:
        """Pointwise loops where some loads run along ``along`` and the stores along ``last``."""
        outer = [v for v in self.kernel.outer if v not in (along, last)]
        self.parallel(f" collapse({len(outer) + 2})")
        for variable in outer:
            self.loop(variable)
        for variable in (along, last):
            stop = c_index(ix.extent(variable))
            start = f"{variable}_from"
            self.open(f"for (long long {start} = 0; {start} < {stop}; {start} += {TILE})")
        for variable in (along, last):
            stop = c_index(ix.extent(variable))
            self.emit(f"const long long n_{variable} = tc_min({TILE}, {stop} - {variable}_from);")
        tiles = self._fill_tiles(along, last)
        self.open(f"for (long long d_{along} = 0; d_{along} < n_{along}; d_{along}++)")
        self.emit(f"const long long {along} = {along}_from + d_{along};")
        self.emit("#pragma omp simd")
        self.open(f"for (long long d_{last} = 0; d_{last} < n_{last}; d_{last}++)")
        self.emit(f"const long long {last} = {last}_from + d_{last};")
        inside = ix.var(f"d_{along}", TILE) * TILE + ix.var(f"d_{last}", TILE)
        statements = [s for section in self.kernel.sections for s in section.statements]

        def turned(node: Expr) -> Expr:
            return load(tiles[node], inside, node.dtype) if node in tiles else node

        self._statements([replace(s, value=transform(s.value, turned)) for s in statements])
        self.close(len(outer) + 4)

    def _fill_tiles(self, along: Index, last: Index) -> dict[Expr, str]:
        """Read a tile for each load that runs along ``along``."""
        tiles: dict[Expr, str] = {}
        for statement in self.kernel.statements():
            for use in statement.value.loads():
                step = ix.coefficient(use.data[1], last) if use.op == "load" else None
                one = ix.coefficient(use.data[1], along)
                if step is None or step in (ix.ZERO, ix.ONE) or one is not ix.ONE or use in tiles:
                    continue
                name = tiles[use] = f"tile{len(tiles)}"
                kind = c_type(use.dtype)
                self.emit(f"{kind} {name}[{TILE * TILE}];")
                corner = {_atom(v): ix.size(f"{v}_from") for v in (along, last)}
                first = c_index(ix.substitute(use.data[1], corner))
                source = f"{use.data[0]} + {first}, {c_index(step)}"
                if use.dtype.itemsize == 4:
                    self.open(f"if (n_{along} == {TILE} && n_{last} == {TILE})")
                    self.emit(
                        f"tc_turn_16((const int*)({source.replace(', ', '), ', 1)}, (int*){name});"
                    )
                    self.depth -= 1
                    self.emit("} else")
                self.depth += 1
                self.emit(f"for (long long v = 0; v < n_{last}; v++)")
                self.emit(f"  for (long long u = 0; u < n_{along}; u++)")
                self.emit(
                    f"    {name}[u * {TILE} + v] = "
                    f"{use.data[0]}[{first} + v * ({c_index(step)}) + u];"
                )
                self.depth -= 1
        return tiles

    # ------------------------------------------------------------ lanes

    def _lanes(self) -> None:
        """Reductions across rows of memory: a block of columns at a time, sums in arrays."""
        kernel, lane = self.kernel, self.kernel.lane
        assert lane is not None
        outer = [v for v in kernel.outer if v is not lane]
        extent = c_index(ix.extent(lane))
        collapse = len(outer) + 1
        self.parallel(f" collapse({collapse})" if collapse > 1 else "")
        for variable in outer:
            self.loop(variable)
        self.open(
            f"for (long long {lane}_from = 0; {lane}_from < {extent}; {lane}_from += {LANES})"
        )
        self.emit(f"const long long lanes = tc_min({LANES}, {extent} - {lane}_from);")
        self.arrays = {
            s.name
            for section in kernel.sections
            for s in section.statements
            if isinstance(s, Accumulate) or (isinstance(s, Let) and section.level == "row")
        }
        types = {s.name: s.value.dtype for s in kernel.statements() if isinstance(s, Let)}
        types.update({a.name: a.dtype for a in self.accumulators.values()})
        for name in sorted(self.arrays):
            self.emit(f"{c_type(types[name])} {name}[{LANES}];")
        for section in kernel.sections:
            if section.level == "row":
                self._lane_loop(section.statements)
            else:
                self._lane_pass(section)
        self.close(collapse)

    def _lane_loop(self, body: Sequence[Statement | str], simd: bool = True) -> None:
        """A loop over the lanes, of statements or lines of C."""
        lane = self.kernel.lane
        if simd:
            self.emit("#pragma omp simd")
        self.open("for (long long j = 0; j < lanes; j++)")
        self.emit(f"const long long {lane} = {lane}_from + j;")
        self.emit(f"(void){lane};")
        printer = self.printer()
        for item in body:
            if isinstance(item, str):
                self.emit(item)
            else:
                self._statement(item, printer)
        self.close()

    def _lane_pass(self, section: Section) -> None:
        sums = [self.accumulators[s.name] for s in section.statements if isinstance(s, Accumulate)]
        self.open("")
        starts: list[str] = []
        for accumulator in sums:
            if accumulator.kind in ("argmax", "argmin"):
                best = Accumulator(
                    accumulator.name, accumulator.kind, self._source_type(accumulator.name)
                )
                self.emit(f"{c_type(best.wide)} b_{accumulator.name}[{LANES}];")
                self.emit(f"long long a_{accumulator.name}[{LANES}];")
                starts += [
                    f"b_{accumulator.name}[j] = {best.start()};",
                    f"a_{accumulator.name}[j] = -1;",
                ]
                continue
            for kind, name, start, _ in accumulator.variables():
                self.emit(f"{kind} {name}[{LANES}];")
                starts.append(f"{name}[j] = {start};")
        if starts:
            self._lane_loop(starts)
        for variable in self.kernel.inner:
            self.loop(variable)
        self._lane_loop(section.statements, all(a.kind in OMP for a in sums))
        self.close(len(self.kernel.inner))
        if sums:
            self._lane_loop([f"{a.name}[j] = {a.result('[j]')};" for a in sums])
        self.close()
