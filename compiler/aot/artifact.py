"""The artifact of this stage: a functional ATen graph, and the plan of the user's outputs."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule

from tc.compiler.core.artifacts import Artifact
from tc.compiler.core.nodetext import describe, node_line
from tc.compiler.errors import VerifyError

aten = torch.ops.aten
#: mark of nodes that stay calls of ATen, which backward does not repeat
CALLED = "tc_called"

ORIGIN_KEYS = ("tc_origin", "stack_trace", "nn_module_stack", "source_fn_stack")


class Fallback(Exception):
    """Control flow: this graph is not compiled; the captured graph runs instead.

    It is no TcError, as these are RuntimeErrors, and handlers of torch's RuntimeErrors must not
    catch it.

    Attributes:
        reason: the property that could not be proven, as one clause.
        line: the user's line (``file:line``) that it is about; empty where it is about no one line.
    """

    def __init__(self, reason: str, line: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line

    def __str__(self) -> str:
        # Not in the arguments, as torch.fx adds "While executing ..." to those of any exception.
        return f"This graph runs uncompiled, because {self.reason}."


def first_line(error: BaseException) -> str:
    """Return the first sentence of an error's message, or its type if it has none."""
    lines = str(error).strip().splitlines()
    return _SENTENCE_END.split(lines[0], maxsplit=1)[0] if lines else type(error).__name__


_SENTENCE_END: Final = re.compile(r"(?<=[\w)\]'\"])\. +(?=[A-Z])|\.$")


@dataclass(frozen=True)
class Fresh:
    """A user's output that is output ``index`` of the compiled graph."""

    index: int

    def __str__(self) -> str:
        return f"out[{self.index}]"


@dataclass(frozen=True)
class SameInput:
    """A user's output that is the same object as input ``index``."""

    index: int

    def __str__(self) -> str:
        return f"in[{self.index}]"


@dataclass(frozen=True)
class SameOutput:
    """A user's output that is the same object as output ``index``."""

    index: int

    def __str__(self) -> str:
        return f"result[{self.index}]"


Dim = int | Fresh


@dataclass(frozen=True)
class View:
    """A user's output that is a view of an input or of an output of the compiled graph.

    Attributes:
        of: the viewed tensor.
        offset: storage offset relative to that of the viewed tensor.
        detached: whether gradients do not flow through it.
        is_view: whether autograd takes it for a view; False for the result of ``detach()``.
    """

    of: SameInput | Fresh
    size: tuple[Dim, ...]
    stride: tuple[Dim, ...]
    offset: Dim
    detached: bool = False
    is_view: bool = True

    def __str__(self) -> str:
        size, stride = (", ".join(map(str, dims)) for dims in (self.size, self.stride))
        of = f"{self.of}.detach()" if self.detached else str(self.of)
        end = "" if self.is_view else ".detach()"
        return f"{of}.as_strided([{size}], [{stride}], +{self.offset}){end}"


@dataclass(frozen=True)
class Constant:
    """A user's output that is known at compile time."""

    value: Any

    def __str__(self) -> str:
        return repr(self.value)


Output = Fresh | SameInput | SameOutput | View | Constant
OUTPUTS = (Fresh, SameInput, SameOutput, View, Constant)


@dataclass(frozen=True)
class Contract:
    """The calling contract of a compiled graph.

    Attributes:
        tensors: for each input, whether it is a tensor.
        outputs: how each output of the captured graph is made.
        mutated: inputs that the graph writes to.
        rewritten: inputs that the caller writes to after the graph, so that autograd records it,
            each with the output that is its new value.
        autocast: device types with autocast on during capture, whose casts are in the graph.
    """

    tensors: tuple[bool, ...]
    outputs: tuple[Output, ...]
    mutated: tuple[int, ...] = ()
    rewritten: tuple[tuple[int, int], ...] = ()
    autocast: tuple[str, ...] = ()

    @property
    def fresh(self) -> bool:
        """Whether the outputs of the compiled graph are the user's outputs."""
        return not self.rewritten and all(out == Fresh(i) for i, out in enumerate(self.outputs))

    @property
    def written(self) -> tuple[int, ...]:
        """All inputs that a call writes to."""
        return (*self.mutated, *(i for i, _ in self.rewritten))


@dataclass(frozen=True)
class RerunPlan:
    """How the captured graph is run again to compute differentiable gradients (double backward).

    Attributes:
        outputs: for each differentiable output the name of the captured graph's node with its
            value, and the index of its item; None if it is inside of a checkpointed region.
        draws: device types of the random generators that forward uses.
        originals: inputs that are written to, each with the saved value that it had before.
        lost: inputs that are written to and whose earlier value, which gradients depend on, is
            not saved for backward: a call copies it.
        by_operations: whether backward saves no differentiable value, so that its own operations
            are differentiated and nothing runs again.
    """

    outputs: tuple[tuple[str, int | None] | None, ...]
    draws: tuple[str, ...] = ()
    originals: tuple[tuple[int, int], ...] = ()
    lost: tuple[int, ...] = ()
    by_operations: bool = False


@dataclass(frozen=True)
class TrainingContract:
    """The calling contract of a compiled forward and backward.

    Attributes:
        forward: the contract of forward.
        gradients: how each gradient is made of backward's results.
        saved_from: where to find each saved value: an ``input``'s number, or an ``output`` of
            forward; tensors, then sizes.
        saved_tensors: the number of tensors among those.
        returned: the number of forward's outputs that are the user's.
        differentiable: which of these have gradients; their types are in `dtypes`, and where they
            lie in `devices`.
        strided: for each of these whether its gradient comes with its strides; else contiguous.
        again: how differentiable gradients are computed.
        watched: inputs and outputs that eager autograd would save and backward does not: a write
            to one before backward is an error.
        computed_from: for each gradient the positions in `differentiable` whose gradients it is
            computed from. Where all of these are undefined, so is it, as in eager.
        unconnected: inputs that require gradients and get none, as nothing differentiable is
            computed from them. Eager's graph does not lead to what made them.
        run_once: outputs from which each backward of eager frees tensors, where this one saves
            none: a second is an error all the same, unless the graph is retained.
    """

    forward: Contract
    gradients: tuple[Output, ...]
    saved_from: tuple[tuple[str, int], ...]
    saved_tensors: int
    returned: int
    differentiable: tuple[int, ...]
    dtypes: tuple[str, ...]
    devices: tuple[str, ...]
    strided: tuple[bool, ...]
    again: RerunPlan
    watched: tuple[tuple[str, int], ...]
    computed_from: tuple[tuple[int, ...], ...]
    unconnected: tuple[int, ...]
    run_once: tuple[int, ...]

    def undefined(self, missing: Sequence[int]) -> tuple[int, ...]:
        """Return which gradients are undefined where those of some outputs are.

        Args:
            missing: positions in `differentiable`.
        """
        return tuple(
            i for i, found in enumerate(self.computed_from) if found and set(found) <= set(missing)
        )


@dataclass(frozen=True)
class AotGraph(Artifact):
    """A functional graph of ATen ops with its calling contract.

    Attributes:
        kind: ``inference``, ``forward`` or ``backward``.
        module: the graph. ``node.meta["val"]`` holds a fake value, ``meta["tc_origin"]`` the user
            lines. Writes to inputs are ``aten.copy_`` nodes after everything else.
        outputs: how each output of the captured graph is made.
        mutated: inputs that the graph writes to.
        rewritten: inputs that are written to after it, where autograd sees it, each with the
            output that is their new value.
        eager: the captured graph, for calls that the compiled one does not support.
        autocast: device types for which autocast was on and its casts are now in the graph.
        decomposed: op -> how often it was decomposed.
    """

    kind: str
    module: fx.GraphModule
    outputs: tuple[Output, ...]
    mutated: tuple[int, ...] = ()
    rewritten: tuple[tuple[int, int], ...] = ()
    eager: Callable[..., Any] | None = field(default=None, repr=False)
    autocast: tuple[str, ...] = ()
    decomposed: tuple[tuple[str, int], ...] = ()

    @property
    def contract(self) -> Contract:
        """The calling contract."""
        inputs = self.module.graph.find_nodes(op="placeholder")
        tensors = tuple(isinstance(node.meta.get("val"), torch.Tensor) for node in inputs)
        return Contract(tensors, self.outputs, self.mutated, self.rewritten, self.autocast)

    def verify(self) -> None:
        """Check that the graph is valid, functional but for trailing writes, with fake values."""
        self.module.graph.lint()
        inputs = self.module.graph.find_nodes(op="placeholder")
        written = []
        for node in self.module.graph.nodes:
            if node.op in ("placeholder", "get_attr", "output"):
                continue
            if node.target is aten.copy_.default:
                written.append(inputs.index(node.args[0]) if node.args[0] in inputs else -1)
            elif written:
                raise VerifyError(f"AotGraph: {node} comes after a write to an input")
            elif is_mutable(node.target):
                raise VerifyError(f"AotGraph: {node} ({node.target}) writes to its arguments")
            if "val" not in node.meta:
                raise VerifyError(f"AotGraph: {node} has no value")
        if set(written) != set(self.mutated):
            raise VerifyError(f"AotGraph: writes to inputs {written}, declared {self.mutated}")

    def __str__(self) -> str:
        lines = [f"{self.kind} graph"]
        contract = self.contract
        for i, node in enumerate(self.module.graph.find_nodes(op="placeholder")):
            written = "  (written to)" if i in contract.written else ""
            lines.append(f"  in[{i}]  {node.name}: {describe(node.meta.get('val'))}{written}")
        for node in self.module.graph.nodes:
            if node.op != "placeholder":
                lines.append(node_line(node))
        if not contract.fresh:
            results = ", ".join(str(out) for out in self.outputs)
            lines.append(f"results: {results}")
        lines += [f"in[{i}] becomes out[{place}]" for i, place in self.rewritten]
        return "\n".join(lines)


def as_module(
    graph: fx.Graph, constants: dict[str, torch.Tensor] | fx.GraphModule
) -> fx.GraphModule:
    """Return a graph as a module with the given constants, or those of another module.

    Its Python code is generated on first use.
    """
    return _LazyGraphModule(constants, graph)


def is_mutable(target: Any) -> bool:
    """Return whether an op writes to one of its arguments."""
    return isinstance(target, torch._ops.OpOverload) and bool(target._schema.is_mutable)


def is_view(node: fx.Node) -> bool:
    """Return whether a node's value is a view of its argument."""
    target = node.target
    if target is operator.getitem:
        source = node.args[0]
        return isinstance(source, fx.Node) and is_view(source)
    if not isinstance(target, torch._ops.OpOverload) or is_mutable(target):
        return False
    if target is aten._unsafe_view.default:
        return True
    returns = target._schema.returns
    return any(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def memory_of(node: fx.Node) -> fx.Node:
    """Return the node whose memory a node's value lies in: itself, or what it is a view of."""
    while is_view(node) and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node
