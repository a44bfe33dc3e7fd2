"""Prints kernels in Triton: positions, masks, loops and statements.

In: a `Kernel` of the GPU schedule. Out: a Triton function with its launch (`TritonKernel`).

A block of threads processes ``XBLOCK`` rows, and ``RBLOCK`` elements of each row at a time: all of
them if a row fits (then it is read once), else in a loop for each pass. If some loads run along
another loop than the stores, a block processes a tile of ``YBLOCK`` by ``XBLOCK`` elements, so that
both access adjacent memory; Triton transposes the tile in shared memory.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from tc.compiler.codegen.printer import spelling
from tc.compiler.codegen.triton.blocks import Blocks, choose
from tc.compiler.codegen.triton.ops import TRITON_TYPES, convert, literal
from tc.compiler.codegen.triton.printer import (
    Axis,
    BlockPrinter,
    Space,
    masked,
    neutral_of,
    spread,
    triton_atom,
    triton_index,
    triton_operation,
)
from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, extents, neutral, walk
from tc.compiler.loops.index import Index
from tc.compiler.loops.ir import Buffer
from tc.compiler.loops.ops import compute_dtype
from tc.compiler.loops.scans import SCANS
from tc.compiler.schedule.plan import (
    Accumulate,
    Atomic,
    Kernel,
    Let,
    Running,
    Section,
    Statement,
    Store,
)

INT32_MOST = 2**31 - 2**16
ATOMIC = {"sum": "add", "max": "max", "min": "min"}
INFINITY = 2**31 - 1  # a position that no element has
_NAN = "propagate_nan=tl.PropagateNan.ALL"
COMBINE = {
    "sum": ("{0} + {1}",) * 2,
    "prod": ("{0} * {1}",) * 2,
    "max": (f"tl.maximum({{0}}, {{1}}, {_NAN})", "tl.maximum({0}, {1})"),
    "min": (f"tl.minimum({{0}}, {{1}}, {_NAN})", "tl.minimum({0}, {1})"),
    "any": ("{0} | {1}",) * 2,
    "all": ("{0} & {1}",) * 2,
}
#: position reduction -> the function that compares an element with the best so far
BETTER = {"argmax": "better_max", "argmin": "better_min"}


@dataclass(frozen=True)
class Argument:
    """One parameter of a kernel: a buffer (``p``), a size (``i64``) or a number (``f64``)."""

    kind: str
    name: str

    @property
    def spelled(self) -> str:
        """The parameter in the kernel's head."""
        if self.kind == "p":
            return f"{self.name}_ptr"
        # By default Triton passes small sizes in 32 bits, and products of them overflow.
        return f'{self.name}: "{"i64" if self.kind == "i64" else "fp64"}"'


@dataclass(frozen=True)
class TritonKernel:
    """A printed kernel.

    Attributes:
        rows: how many rows it is launched for, as Python: see `launched`.
        constants: the parameters that are known when it is compiled, and their values.
        settings: what else its launch is given.
        body: lines of the function.
    """

    name: str
    arguments: tuple[Argument, ...]
    blocks: Blocks
    rows: str
    constants: tuple[tuple[str, int], ...]
    settings: str
    body: tuple[str, ...]

    @property
    def source(self) -> str:
        """The Triton function with its launch: a block of threads for each ``XBLOCK`` rows."""
        given = "".join(f", {constant}={size}" for constant, size in self.constants)
        head = [a.spelled for a in self.arguments]
        head += [f"{constant}: tl.constexpr" for constant, _ in self.constants]
        return (
            f"@launch({self.rows}{given}, {self.settings})\n@triton.jit\n"
            f"def {self.name}({', '.join(head)}):\n" + "".join(f"{line}\n" for line in self.body)
        )


def generate(
    kernel: Kernel, buffers: dict[str, Buffer], blocks: Blocks | None = None
) -> TritonKernel:
    """Print one kernel; ``blocks`` says how it is cut, if not as usual."""
    arguments = arguments_of(kernel)
    blocks = blocks or choose(kernel)
    writer = KernelWriter(kernel, blocks, wide=not fits_32_bits(kernel, buffers))
    writer.run()
    extents = [ix.extent(v) for v in kernel.outer]
    if blocks.across:  # as many blocks as tiles
        sizes = (blocks.across, blocks.rows)
        tiles = [(n + (size - 1)) // size for n, size in zip(extents[-2:], sizes, strict=True)]
        extents = [*extents[:-2], *tiles, ix.const(blocks.rows)]
    rows = launched(ix.product(extents), arguments)
    constants, body = tuple(blocks.constants().items()), tuple(writer.lines)
    settings = f"num_warps={blocks.warps}"
    return TritonKernel(kernel.name, arguments, blocks, rows, constants, settings, body)


def launched(count: Index, arguments: Sequence[Argument]) -> str:
    """Return a count as Python: a number, or a function of a kernel's arguments."""
    text = ix.render(count)
    sizes = any(a.kind == "i64" for a in arguments)
    return f"lambda {', '.join(a.name for a in arguments)}: {text}" if sizes else text


def arguments_of(kernel: Kernel) -> tuple[Argument, ...]:
    """Return the parameters of a kernel: buffers read, buffers written, sizes, numbers."""
    sizes = {a.name for i in _indices(kernel) for a in i.atoms() if a.kind in ix.SYMBOLS}
    numbers = {n.data[0] for value in kernel.values() for n in walk(value) if n.op == "scalar"}
    arguments = [Argument("p", name) for name in (*kernel.loaded, *kernel.stored)]
    arguments += [Argument("i64", name) for name in sorted(sizes)]
    return (*arguments, *(Argument("f64", name) for name in sorted(numbers)))


def fits_32_bits(kernel: Kernel, buffers: dict[str, Buffer]) -> bool:
    """Return whether all sizes are known, and every position fits in 32 bits."""
    return all(a.kind != "i64" for a in arguments_of(kernel)) and _small(kernel, buffers)


def _indices(kernel: Kernel) -> Iterable[Index]:
    for variable in kernel.loops():
        yield ix.extent(variable)
    for statement in kernel.statements():
        if isinstance(statement, Store):
            yield statement.index
    for value in kernel.values():
        for node in walk(value):
            if node.op in ("load", "at"):
                yield node.data[1]
            elif node.op == "index":
                yield node.data[0]
            yield from extents(node)


def _small(kernel: Kernel, buffers: dict[str, Buffer]) -> bool:
    """Return whether every position fits in 32 bits."""
    counts = [ix.product([ix.extent(v) for v in (*kernel.outer, *kernel.inner)])]
    for name in (*kernel.loaded, *kernel.stored):
        buffer = buffers[name]
        pairs = zip(buffer.sizes, buffer.strides, strict=True)
        counts.append(sum(((size - 1) * step for size, step in pairs), ix.ONE))
    return all(c.constant is not None and c.constant < INT32_MOST for c in counts)


class KernelWriter:
    """The body of one kernel."""

    def __init__(self, kernel: Kernel, blocks: Blocks, wide: bool) -> None:
        self.kernel, self.blocks, self.wide = kernel, blocks, wide
        self.lines: list[str] = []
        self.depth = 1
        self.count = 0
        self.scanned: set[str] = set()
        self.rows = ix.product([ix.extent(v) for v in kernel.outer])
        self.length = ix.product([ix.extent(v) for v in kernel.inner])
        self.x = Axis("x", kernel.outer, self._needs("xmask", self.rows, blocks.rows))
        self.r = Axis("r", kernel.inner, self._needs("rmask", self.length, blocks.elements))
        axes: tuple[Axis, ...] = (self.x,)
        if blocks.across:
            assert kernel.tile is not None
            sizes = (blocks.across, blocks.rows)
            axes = tuple(
                Axis(name, (v,), self._needs(f"{name}mask", ix.extent(v), size))
                for name, v, size in zip("yx", kernel.tile, sizes, strict=True)
            )
        self.rows_printer = BlockPrinter(self.emit, self.fresh, Space(axes), {})

    @staticmethod
    def _needs(mask: str, total: Index, block: int) -> str:
        known = total.constant
        exact = block and known is not None and known % block == 0 and known > 0
        return "" if exact else mask

    def emit(self, line: str) -> None:
        """Add a line."""
        self.lines.append("    " * self.depth + line)

    def fresh(self) -> str:
        """Return an unused name."""
        self.count += 1
        return f"t{self.count}"

    def run(self) -> None:
        """Print everything."""
        kernel, blocks = self.kernel, self.blocks
        self._positions()
        if blocks.persistent:
            self._row_elements()
        elements = self._elements()
        for section in kernel.sections:
            if section.level == "row":
                self._statements(section.statements, self.rows_printer)
            elif blocks.persistent:
                self._statements(section.statements, elements)
            else:
                self._loop(section)

    def _elements(self) -> BlockPrinter:
        """Return a printer for the elements of rows, which reuses the values of the rows."""
        known = ChainMap[Expr, str]({}, self.rows_printer.known)
        return BlockPrinter(self.emit, self.fresh, Space((self.x, self.r)), known)

    # ------------------------------------------------------------ positions

    def _tile_positions(self) -> None:
        """Print the tile of this block, and its position in the loops around the tiles."""
        *around, along, last = self.kernel.outer
        high, wide = (triton_index(ix.extent(variable)) for variable in (along, last))
        self.emit(f"tiles_y, tiles_x = tl.cdiv({high}, YBLOCK), tl.cdiv({wide}, XBLOCK)")
        self.emit(f"tile = tl.program_id(0){'.to(tl.int64)' if self.wide else ''}")
        self.emit("x = tile % tiles_x * XBLOCK + tl.arange(0, XBLOCK)[None, :]")
        self.emit("y = tile // tiles_x % tiles_y * YBLOCK + tl.arange(0, YBLOCK)[:, None]")
        for axis, size in zip(self.rows_printer.space.axes, (high, wide), strict=True):
            if axis.mask:
                self.emit(f"{axis.mask} = {axis.name} < {size}")
        if around:
            self.emit("z = tile // (tiles_x * tiles_y)")
            self._split("z", tuple(around))
        self.emit(f"{along} = y")
        self.emit(f"{last} = x")

    def _positions(self) -> None:
        if self.blocks.across:
            self._tile_positions()
            return
        program = "tl.program_id(0).to(tl.int64)" if self.wide else "tl.program_id(0)"
        shape = "[:, None]" if self.kernel.inner else ""
        block = f"tl.arange(0, XBLOCK){shape}"
        self.emit(f"x = {program} * XBLOCK + {block}")
        if self.x.mask:
            self.emit(f"xmask = x < {triton_index(self.rows)}")
        self._split("x", self.kernel.outer)
        if self.kernel.inner:
            kind = ".to(tl.int64)" if self.wide else ""
            start = "r" if self.blocks.persistent else "rs"
            self.emit(f"{start} = tl.arange(0, RBLOCK)[None, :]{kind}")

    def _row_elements(self) -> None:
        if self.r.mask:
            self.emit(f"rmask = r < {triton_index(self.length)}")
        self._split("r", self.kernel.inner)

    def _split(self, flat: str, variables: tuple[Index, ...]) -> None:
        """Name the loop variables of a flat position, the last one running fastest."""
        below = ix.ONE
        for number, variable in enumerate(reversed(variables)):
            text = flat if below is ix.ONE else f"{flat} // {ix.factor(below, triton_atom)}"
            if number < len(variables) - 1:
                size = ix.factor(ix.extent(variable), triton_atom)
                text = f"{text} % {size}"
            self.emit(f"{variable} = {text}")
            below = below * ix.extent(variable)

    # ------------------------------------------------------------ statements

    def _statements(self, statements: Iterable[Statement], printer: BlockPrinter) -> None:
        for statement in statements:
            if isinstance(statement, Atomic):
                self._atomic(statement, printer)
                continue
            text = printer.operand(statement.value)
            if isinstance(statement, Let):
                self.emit(f"{statement.name} = {text}")
                printer.known[statement.value] = statement.name
            elif isinstance(statement, Store):
                self._store(statement, text, printer.space)
            elif isinstance(statement, Running):
                self._running_total(statement, text)
            else:
                self._whole_row(statement, text)

    def _store(self, statement: Store, text: str, space: Space) -> None:
        mask = " & ".join(space.mask())
        place = f"{statement.buffer}_ptr + {space.spread(statement.index)}"
        self.emit(f"tl.store({place}, {text}{', ' + mask if mask else ''})")

    def _atomic(self, statement: Atomic, printer: BlockPrinter) -> None:
        """Print an atomic update of memory, masked for positions out of range."""
        value, *places = (printer.operand(arg) for arg in statement.value.args)
        space, text_of = printer.space, {}
        mask = space.mask()
        for k, (place, bound) in enumerate(zip(places, statement.value.data[0], strict=True)):
            name = place if place.isidentifier() else printer.named(place)
            text_of[f"x{k}"] = name
            if bound is not None:
                mask.append(f"({name} >= 0) & ({name} < {triton_index(bound)})")
        spell = spelling(triton_operation, text_of)
        text = spread(ix.render(statement.index, spell), statement.index, space.axes)
        function = "tl.store" if statement.kind == "set" else f"tl.atomic_{ATOMIC[statement.kind]}"
        order = "" if statement.kind == "set" else ', sem="relaxed"'
        place = f"{statement.buffer}_ptr + {text}"
        masks = f", mask={' & '.join(mask)}" if mask else ""
        self.emit(f"{function}({place}, {value}{masks}{order})")

    def _whole_row(self, statement: Accumulate, text: str) -> None:
        """Print a reduction over a row in registers."""
        dtype = _running(statement)
        value = f"tl.broadcast_to({text}, [XBLOCK, RBLOCK])"
        value = masked(value, self.r.mask, neutral_of(statement.kind, dtype))
        if statement.kind.startswith("arg"):
            place = f"tl.broadcast_to({masked('r', self.r.mask, str(INFINITY))}, [XBLOCK, RBLOCK])"
            value = f"{value}, {place}"
        self._result(statement, value)

    def _result(self, statement: Accumulate, value: str) -> None:
        source = torch.int32 if statement.kind.startswith("arg") else _running(statement)
        text = convert(f"reduce_{statement.kind}({value})", source, statement.dtype)
        self.emit(f"{statement.name} = {text}")

    # ------------------------------------------------------------ loops

    def _loop(self, section: Section) -> None:
        """Print a pass over rows that are too long for registers."""
        sums = [s for s in section.statements if isinstance(s, Accumulate)]
        for each in sums:
            kind = TRITON_TYPES[_running(each)]
            start = literal(neutral(each.kind, _running(each)).data[0], _running(each))
            self.emit(f"a_{each.name} = tl.full([XBLOCK, RBLOCK], {start}, {kind})")
            if each.kind.startswith("arg"):
                place = f"tl.full([XBLOCK, RBLOCK], {INFINITY}, {self._place_type()})"
                self.emit(f"p_{each.name} = {place}")
        self._start_totals(section.statements)
        self.emit(f"for start in range(0, {triton_index(self.length)}, RBLOCK):")
        self.depth += 1
        self.emit("r = start + rs")
        self._row_elements()
        printer = self._elements()
        printer.evict = self._evictions(section)
        for statement in section.statements:
            if isinstance(statement, Accumulate):
                self._accumulate(statement, printer.operand(statement.value))
            else:
                self._statements([statement], printer)
        self.depth -= 1
        for each in sums:
            place = f", p_{each.name}" if each.kind.startswith("arg") else ""
            self._result(each, f"a_{each.name}{place}")

    def _evictions(self, section: Section) -> dict[str, str]:
        """Return the eviction policies: data that a later pass reads again stays in the caches."""
        passes = [s for s in self.kernel.sections if s.level == "inner"]
        at = next(k for k, one in enumerate(passes) if one is section)
        read = [set(self._of_rows(one)) for one in passes]
        before, after = set().union(*read[:at]), set().union(*read[at + 1 :])
        return {
            name: "evict_last" if name in after else "evict_first"
            for name in sorted(read[at] & (before | after))
        }

    def _of_rows(self, section: Section) -> Iterable[str]:
        """Return the buffers that each row reads at another position."""
        for statement in section.statements:
            for use in statement.value.loads():
                if self.x.runs_in(use.data[1]):
                    yield use.data[0]

    def _start_totals(self, statements: Iterable[Statement]) -> None:
        """Print the initial accumulators of scans in a row."""
        for scan in statements:
            if isinstance(scan, Running):
                row = SCANS[scan.kind]
                dtype = scan.value.dtype
                start = literal(row.start(dtype).data[0], dtype)
                kind = TRITON_TYPES[dtype]
                self.emit(f"c_{scan.name} = tl.full([XBLOCK, 1], {start}, {kind})")
                if row.position:
                    self.emit(f"p_{scan.name} = tl.full([XBLOCK, 1], 0, {self._place_type()})")

    def _running_total(self, scan: Running, text: str) -> None:
        """Print the scan of a block, combined with the total of earlier blocks.

        A full row needs one.
        """
        if scan.name in self.scanned:
            return
        total, place = f"c_{scan.name}", f"p_{scan.name}"
        value = f"tl.broadcast_to({text}, [XBLOCK, RBLOCK])"
        if self.blocks.persistent:
            self.scanned.add(scan.name)
            self._start_totals([scan])
        found = f"s_{scan.name}"
        names = {total: found}
        if SCANS[scan.kind].position:
            names[place] = f"q_{scan.name}"
            value = f"{value}, tl.broadcast_to(r, [XBLOCK, RBLOCK])"
        made = ", ".join(names.values())
        self.emit(f"{made} = scan_{scan.kind}({value}, {', '.join(names)})")
        if not self.blocks.persistent:
            for old, new in names.items():
                self.emit(f"{old} = last_of({new}, rs, RBLOCK)")
        source = scan.value.dtype
        if SCANS[scan.kind].position:
            found, source = f"q_{scan.name}", torch.int32
        self.emit(f"{scan.name} = {convert(found, source, scan.dtype)}")

    def _place_type(self) -> str:
        return "tl.int64" if self.wide else "tl.int32"

    def _accumulate(self, statement: Accumulate, text: str) -> None:
        total = f"a_{statement.name}"
        if not statement.kind.startswith("arg"):
            floats, others = COMBINE[statement.kind]
            pattern = floats if _running(statement).is_floating_point else others
            new = pattern.format(total, text)
            self.emit(f"{total} = {masked(new, self.r.mask, total)}")
            return
        place = f"p_{statement.name}"
        value = f"v{self.fresh()}"
        self.emit(f"{value} = tl.broadcast_to({text}, [XBLOCK, RBLOCK])")
        test = f"{BETTER[statement.kind]}({value}, r, {total}, {place})"
        take = f"{self.r.mask} & {test}" if self.r.mask else test
        better = f"take_{statement.name}"
        self.emit(f"{better} = {take}")
        self.emit(f"{total} = tl.where({better}, {value}, {total})")
        self.emit(f"{place} = tl.where({better}, r, {place})")


def _running(statement: Accumulate) -> torch.dtype:
    """Return the accumulator type of a reduction."""
    if statement.kind.startswith("arg"):
        return statement.value.dtype
    return compute_dtype(statement.dtype)
