"""The wrapper: readable Python that allocates, calls kernels and ATen ops, and returns outputs.

In: a `Plan` and the arguments each kernel takes. Out: Python source defining ``call(args)``.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from tc.compiler.errors import StageError
from tc.compiler.loops import index as ix
from tc.compiler.loops.index import Index
from tc.compiler.loops.ir import (
    Buffer,
    CopyInto,
    Extern,
    Input,
    Ref,
    ScalarNode,
    SymValue,
    View,
    reads,
    views_in,
)
from tc.compiler.routines import ROUTINES
from tc.compiler.schedule.plan import Allocate, BumpVersions, Free, Kernel, Plan, Step
from tc.trace.words import spelled

LARGE_BYTES = 32 << 20
# ATen ops whose results always have the layout of the fake result.
EXACT = (
    *(f"aten.{name}." for name in ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot")),
    *(f"aten.{name}.default" for name in ("topk", "sort", "cumsum", "cumprod")),
    "aten._scaled_dot_product_flash_attention_for_cpu.default",
    "torch.ops.mkldnn._linear_pointwise.",
    *(call for _, row in ROUTINES.rows() for call in row.calls),
)

# Modules of Python bindings besides `torch` itself.
BINDINGS = ("_nn", "_special", "_linalg", "_fft")
# Python bindings that are faster than the same op called through `torch.ops`: by 1 microsecond,
# for convolutions by 4.
FASTER = {"aten.bernoulli.p": "torch.bernoulli"}
FASTER |= {f"aten.{name}.Tensor": f"torch.{name}" for name in ("add", "sub", "mul", "div")}
FASTER |= {"aten.sum.dim_IntList": "torch.sum", "aten.mean.dim": "torch.mean"}
FASTER |= {
    f"aten.{name}.default": f"torch.{name}"
    for name in (
        *("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "cat", "cumsum", "cumprod"),
        *("convolution", "native_dropout", "topk", "sort"),
        *("_scaled_dot_product_flash_attention_for_cpu", "_embedding_bag_forward_only"),
        *("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention"),
        "_scaled_dot_product_cudnn_attention",
    )
    if hasattr(torch, name)
} | {
    f"aten.{name}.{overload}": f"torch.Tensor.{name}"
    for name, overload in (
        *(("index_add_", "default"), ("index_copy_", "default"), ("index_put_", "default")),
        *(("scatter_", "src"), ("scatter_", "value"), ("scatter_add_", "default")),
        ("scatter_reduce_", "two"),
    )
}
REINTERPRET = "from torch._C._dynamo.guards import _reinterpret_tensor as window\n"
WRITTEN = "from torch._C import _increment_version as written\n"

# Ops that save values for their gradient only in grad mode, which compiled code runs without.
KEEPING = ("aten.mkldnn_rnn_layer.default",)
KEPT = '''\
def keeping(op, *args):
    """The op with what its gradient needs, outside of autograd."""
    with torch._C._AutoDispatchBelowAutograd(), torch.enable_grad():
        return op(*args)
'''

PINNED = '''\
def pinned(t, size, stride):
    """`t` as the compiler expects it to lie in memory."""
    if t is None or t.stride() == stride or t.shape != size:
        return t  # some ops give None or other shapes where shapes promised an empty tensor
    if t.numel() == 0 or all(n == 1 or a == b for n, a, b in zip(size, t.stride(), stride)):
        return window(t, size, stride)
    fresh = torch.empty_strided(size, stride, dtype=t.dtype, device=t.device)
    return fresh.copy_(t)
'''


class Argument(Protocol):
    """A parameter of a kernel."""

    @property
    def kind(self) -> str:
        """``p``, ``i64`` or ``f64``."""

    @property
    def name(self) -> str:
        """The buffer, size or number passed."""


class Callee(Protocol):
    """The interface of a printed kernel for the wrapper."""

    @property
    def name(self) -> str:
        """The function to call."""

    @property
    def arguments(self) -> Sequence[Argument]:
        """Its arguments."""


class Wrapper:
    """Lines of the wrapper.

    Attributes:
        at: steps that compute something -> the line that does it, counted from the first of the
            function's body; once printed, from the first of the source.
    """

    def __init__(self, plan: Plan, kernels: Mapping[str, Callee]) -> None:
        self.plan, self.kernels = plan, kernels
        self.lines: list[str] = []
        self.at: list[tuple[Kernel | Extern | CopyInto, int]] = []
        self.shapes = {b.name: b for b in plan.buffers}
        self.shapes.update((i.buffer.name, i.buffer) for i in plan.inputs if i.buffer is not None)
        self.constants = dict(plan.constants)
        self.uses_pinned = False
        self.bound: dict[str, str] = {}
        self.known_sizes: set[str] = set()
        self.read = self._read()
        self.returned = self._returned()

    def run(self) -> str:
        """Print everything."""
        self._arguments()
        for step in self.plan.steps:
            self.step(step)
        self.finish()
        results = ", ".join(self.result(item) for item in self.plan.outputs)
        self.emit(f"return ({results}{',' if len(self.plan.outputs) == 1 else ''})")
        body = "\n".join(f"    {line}" for line in self.lines)
        needed = [name for name in ("builtins", "math", "operator") if f"{name}." in body]
        head = "".join(f"import {name}\n" for name in needed)
        head += f"\n{REINTERPRET}" if "window(" in body or self.uses_pinned else ""
        head += f"\n{WRITTEN}" if "written((" in body else ""
        bound = "".join(f"{name} = {target}\n" for target, name in self.bound.items())
        head += f"\n{bound}" if bound else ""
        head += f"\n\n{KEPT}" if "keeping(" in body else ""
        head += f"\n\n{PINNED}" if self.uses_pinned else ""
        head += "\n\ndef call(args):\n"
        first = head.count("\n") + 1
        self.at = [(step, first + line) for step, line in self.at]
        return f"{head}{body}\n"

    def step(self, step: Step) -> None:
        """Print a step."""
        if isinstance(step, Kernel | Extern | CopyInto):
            self.at.append((step, len(self.lines)))
        if isinstance(step, Kernel):
            self._kernel(step)
        elif isinstance(step, Allocate):
            self.allocate(step)
        elif isinstance(step, Free):
            self.emit(f"del {', '.join(step.names)}")
        elif isinstance(step, Extern):
            self._extern(step)
        elif isinstance(step, ScalarNode):
            args = ", ".join(map(self.value, step.args))
            self.emit(f"{step.name} = {step.function}({args})")
        elif isinstance(step, CopyInto):
            self.emit(f"{step.input}.copy_({self.value(step.source)})")
        elif isinstance(step, BumpVersions):
            self.emit(f"written(({', '.join(step.names)},))")

    def finish(self) -> None:
        """Print what is still to be printed after the last step."""

    def emit(self, line: str) -> None:
        """Add a line."""
        self.lines.append(line)

    def _read(self) -> set[str]:
        """Return buffers that a step reads or the graph returns."""
        found = {view.buffer for view in views_in(tuple(self.plan.outputs))}
        for step in self.plan.steps:
            if isinstance(step, Kernel):
                found.update(step.loaded)
            elif isinstance(step, Extern | CopyInto):
                found.update(reads(step))
            elif isinstance(step, Allocate) and step.reuse is not None:
                found.add(step.reuse)  # the overwritten buffer may be read first
        return found

    def _arguments(self) -> None:
        inputs = self.plan.inputs
        if inputs:
            names = ", ".join(item.name for item in inputs)
            self.emit(f"{names}{',' if len(inputs) == 1 else ''} = args")
            self.emit("args.clear()")
        self._sizes(inputs)

    def _sizes(self, inputs: tuple[Input, ...]) -> None:
        """Name the symbolic sizes: from number inputs first, then from sizes of tensors."""
        known = self.known_sizes
        for item in inputs:
            if item.symbol is not None:
                if item.symbol != item.name:
                    self.emit(f"{item.symbol} = {item.name}")
                known.add(item.symbol)
        wanted = {atom.name for index in self._all_indices() for atom in index.atoms()}
        self._learn([item.buffer for item in inputs if item.buffer is not None], wanted)
        wanted -= {step.name for step in self.plan.steps if isinstance(step, ScalarNode)}
        missing = sorted(wanted - known - {b for b in wanted if b.startswith("u")})
        if missing:
            names = ", ".join(missing)
            raise StageError("codegen", f"no input of the graph has the sizes {names}")

    def _learn(self, buffers: Sequence[Buffer], wanted: set[str]) -> None:
        """Name the sizes that buffers define, once these exist."""
        known = self.known_sizes
        places: list[tuple[Index, str]] = []
        for buffer in buffers:
            places += [(s, f"{buffer.name}.size({d})") for d, s in enumerate(buffer.sizes)]
            places += [(s, f"{buffer.name}.stride({d})") for d, s in enumerate(buffer.strides)]
        for index, text in places:
            atom = ix.atom_of(index)
            if atom is not None and atom.kind in ix.SYMBOLS and atom.name not in known:
                known.add(atom.name)
                if atom.name in wanted:
                    self.emit(f"{atom.name} = {text}")
        for index, text in places:
            self._solve(index, text, known, wanted)

    def _solve(self, index: Index, text: str, known: set[str], wanted: set[str]) -> None:
        """Solve a linear expression such as ``2*s0 + s1`` for its one unknown size."""
        unknown = [a for a in index.atoms() if a.kind in ix.SYMBOLS and a.name not in known]
        if len(unknown) != 1:
            return
        atom = unknown[0]
        rest = ix.substitute(index, {atom: ix.ZERO})
        step = ix.substitute(index, {atom: ix.ONE}) - rest
        if step * ix.symbol(atom) + rest is index:
            known.add(atom.name)
            if atom.name in wanted:
                below = "" if rest is ix.ZERO else f" - ({rest})"
                self.emit(f"{atom.name} = ({text}{below}) // ({step})")

    def _all_indices(self) -> list[Index]:
        found: list[Index] = []

        def collect(value: Any) -> None:
            if isinstance(value, SymValue):
                found.append(value.index)
            elif isinstance(value, View):
                found.extend((*value.sizes, *value.strides, value.offset))
            elif isinstance(value, list | tuple):
                for item in value:
                    collect(item)

        for step in self.plan.steps:
            if isinstance(step, Allocate):
                found += [*step.buffer.sizes, *step.buffer.strides]
            elif isinstance(step, Extern):
                collect([*step.args, *(v for _, v in step.kwargs)])
            elif isinstance(step, ScalarNode):
                collect(step.args)
            elif isinstance(step, CopyInto):
                collect(step.source)
            elif isinstance(step, Kernel):
                names = [a.name for a in self.kernels[step.name].arguments if a.kind == "i64"]
                found += [ix.size(name) for name in names]
        collect(self.plan.outputs)
        return found

    # ------------------------------------------------------------ steps

    def _kernel(self, kernel: Kernel) -> None:
        called = self.kernels[kernel.name]
        self.emit(f"{called.name}({', '.join(a.name for a in called.arguments)})")

    def allocate(self, step: Allocate) -> None:
        """Take memory for a buffer."""
        buffer = step.buffer
        if step.reuse is not None:
            self.emit(
                f"{buffer.name} = {step.reuse}; del {step.reuse}  # same shape, not read again"
            )
            return
        size, stride = self.layout(buffer)
        count = buffer.numel.constant
        large = count is not None and count * buffer.dtype.itemsize >= LARGE_BYTES
        function = "empty_large" if large else "empty_strided_cpu"
        self.emit(f"{buffer.name} = {function}({size}, {stride}, {buffer.dtype})")

    def layout(self, buffer: Buffer) -> tuple[str, str]:
        """Spell the sizes and strides to allocate a buffer with."""
        shape = self.returned.get(buffer.name, buffer)
        return tuple_text(shape.sizes), tuple_text(shape.strides)

    def _returned(self) -> dict[str, View]:
        """Return the buffers that only kernels use and that are returned in another shape.

        Kernels take pointers, so such a buffer can have that shape from the start.
        """
        views = views_in(tuple(self.plan.outputs))
        counts = Counter(view.buffer for view in views)
        fresh = {s.buffer.name for s in self.plan.steps if isinstance(s, Allocate) and not s.reuse}
        others = {s.reuse for s in self.plan.steps if isinstance(s, Allocate)}
        for step in self.plan.steps:
            if isinstance(step, Extern | CopyInto):
                others.update(reads(step))
        return {
            view.buffer: view
            for view in views
            if counts[view.buffer] == 1
            and view.buffer in fresh - others
            and view.dtype == self.shapes[view.buffer].dtype
            and _covers(view, self.shapes[view.buffer])
        }

    def _extern(self, step: Extern) -> None:
        args = [self.value(arg) for arg in step.args]
        args += [f"{name}={self.value(arg)}" for name, arg in step.kwargs]
        called = self._bound(step)
        call = f"{called}({', '.join(args)})"
        kept = step.results[-1]
        if step.target in KEEPING and kept is not None and kept.name in self.read:
            call = f"keeping({', '.join([called, *args])})"
        names = ["_" if b is None else b.name for b in step.results]
        if all(name == "_" for name in names):
            self.emit(call)
            return
        left = f"{', '.join(names)}{',' if len(names) == 1 else ''}" if step.unpack else names[0]
        self.emit(f"{left} = {call}")
        made = [buffer for buffer in step.results if buffer is not None]
        self._learn(made, {a.name for b in made for s in (*b.sizes, *b.strides) for a in s.atoms()})
        if step.takes_over or step.target.startswith(EXACT):
            return
        for buffer in step.results:
            if buffer is not None and buffer.sizes and buffer.name in self.read:
                self.uses_pinned = True
                size, stride = tuple_text(buffer.sizes), tuple_text(buffer.strides)
                self.emit(f"{buffer.name} = pinned({buffer.name}, {size}, {stride})")

    def _bound(self, step: Extern) -> str:
        """Return the name of a global for an op, so that calls do not look the op up."""
        # The bindings accept no list with None in it.
        gaps = any(isinstance(value, list | tuple) and None in value for value in step.args)
        named = frozenset(name for name, _ in step.kwargs)
        parts = step.path[2:] if step.path[:2] == ("torch", "ops") else step.path
        faster = FASTER.get(step.target) or _binding(parts, len(step.args), named)
        if faster is not None and not gaps:
            return faster
        parts = parts[:-1] if parts[-1] == "default" else parts
        return self.bound.setdefault(spelled(step.target), "_".join(parts))

    # ------------------------------------------------------------ values

    def result(self, value: Any) -> str:
        """Spell an output: views are views to autograd, too."""
        if not isinstance(value, View):
            return self.value(value)
        if value.buffer in self.returned or (self._whole(value) and self._lies_so(value)):
            return value.buffer
        size, stride = tuple_text(value.sizes), tuple_text(value.strides)
        where = ""
        if value.offset is not ix.ZERO:
            where = f", {value.buffer}.storage_offset() + {ix.factor(value.offset)}"
        return f"torch.as_strided({value.buffer}, {size}, {stride}{where})"

    def value(self, value: Any) -> str:
        """Spell an argument or result as Python."""
        if isinstance(value, View):
            return self._view(value)
        if isinstance(value, SymValue):
            return python_index(value.index)
        if isinstance(value, Ref):
            return value.name
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(self.value, value))}]"
        if isinstance(value, float) and not math.isfinite(value):
            return f"float('{value}')"
        if isinstance(value, torch.device):
            return f"device({str(value)!r})"
        return repr(value)

    def _whole(self, view: View) -> bool:
        if view.buffer in self.constants:
            return _is_constant(view, self.constants[view.buffer])
        buffer = self.shapes.get(view.buffer)
        same = buffer is not None and view.offset is ix.ZERO and buffer.sizes == view.sizes
        return same and buffer is not None and _strides_agree(buffer, view)

    def _lies_so(self, view: View) -> bool:
        """Return whether the buffer has the strides of a view, also in dimensions of size one."""
        buffer = self.shapes.get(view.buffer)
        return buffer is None or buffer.strides == view.strides

    def _view(self, view: View) -> str:
        if self._whole(view):
            return view.buffer
        size, stride = tuple_text(view.sizes), tuple_text(view.strides)
        return f"window({view.buffer}, {size}, {stride}, {python_index(view.offset)})"


@functools.cache
def _binding(path: tuple[str, ...], given: int, named: frozenset[str] = frozenset()) -> str | None:
    """Return the Python binding that calls an op; None if it may compute something else.

    An op with one overload has a binding that is no other's. Of numbers that are left out the
    binding may know another value than the schema: ``at::Reduction::Mean`` is 0 there.

    Args:
        path: of the op: ``("aten", "cumsum", "default")``.
        given: the number of positional arguments.
        named: the names of the others.
    """
    if path[0] != "aten" or path[-1] != "default":
        return None
    name, packet = path[1], getattr(torch.ops.aten, path[1])
    schema = packet.default._schema
    omitted = [a for a in schema.arguments[given:] if a.name not in named]
    if schema.is_mutable or any(type(a.default_value) not in (type(None), bool) for a in omitted):
        return None
    schemas = [getattr(packet, other)._schema for other in packet.overloads()]
    taken = [s for s in schemas if any("Tensor" in str(a.type) for a in s.arguments)]
    if sum(not any(a.is_out for a in s.arguments) for s in taken) != 1:
        return None
    found = getattr(torch._C._VariableFunctions, name, None)
    if found is not None:
        return f"torch.{name}" if getattr(torch, name, None) is found else None
    homes = (home for home in BINDINGS if hasattr(getattr(torch._C, home), name))
    return next((f"torch._C.{home}.{name}" for home in homes), None)


def _strides_agree(buffer: Buffer, view: View) -> bool:
    pairs = zip(buffer.sizes, buffer.strides, view.strides, strict=True)
    return all(extent is ix.ONE or mine is yours for extent, mine, yours in pairs)


def _is_constant(view: View, held: torch.Tensor) -> bool:
    """Return whether a view is a constant as it lies; of a packed one, there is no other."""
    if held.layout is not torch.strided:
        return True
    sizes = tuple(n.constant for n in view.sizes)
    strides = tuple(n.constant for n in view.strides)
    same = sizes == tuple(held.shape) and strides == held.stride()
    return same and view.offset is ix.ZERO and view.dtype is held.dtype


def _covers(view: View, buffer: Buffer) -> bool:
    """Return whether a view of known sizes has each element of a buffer once."""
    pairs = [(n.constant, s.constant) for n, s in zip(view.sizes, view.strides, strict=True)]
    step = 1
    for stride, extent in sorted((s, n) for n, s in pairs if n is not None and s is not None):
        if extent != 1:
            if stride != step:
                return False
            step *= extent
    known = all(n is not None and s is not None for n, s in pairs)
    return known and view.offset is ix.ZERO and step == buffer.numel.constant


def python_index(index: Index) -> str:
    """Spell an index in Python."""
    return ix.render(index)


def tuple_text(indices: tuple[Index, ...]) -> str:
    """Spell sizes as a Python tuple."""
    inside = ", ".join(map(python_index, indices))
    return f"({inside}{',' if len(indices) == 1 else ''})"
