"""Runs a captured graph over fake tensors, under a dispatch mode that observes its operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import fx
from torch._C._functorch import is_functorch_wrapped_tensor as is_wrapped
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

from tc.compiler.aot.artifact import ORIGIN_KEYS, Fallback
from tc.compiler.aot.checks import name_as_captured
from tc.compiler.aot.decompositions import STAND_INS, is_composite
from tc.compiler.aot.layouts import elements_apart, extent, holds, layout_key
from tc.compiler.aot.regions import CHECKPOINTS, REGION, Region, region_of
from tc.compiler.aot.reshaped import as_view, put_in_place
from tc.compiler.core import levels, modes
from tc.compiler.core.memory import count_writes_to_list, storage_id
from tc.compiler.core.origins import line_in
from tc.compiler.core.symbolic import SYMBOLIC, as_computed, scalars_allowed
from tc.compiler.errors import TcError

aten = torch.ops.aten
#: what a run cannot know; that makes no statement about what eager does
UNTRACEABLE = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
    GuardOnDataDependentSymNode,
)
#: not a RuntimeError: handlers of those treat torch's errors as properties of the graph
PASSED_ON = (*UNTRACEABLE, TcError)
#: what torch raises where a program, or torch's own function for fake tensors, does not fit
RAISED = (RuntimeError, ValueError, IndexError, TypeError)
#: reductions undefined for zero elements, whose shape functions accept these all the same
REDUCE_SOMETHING = frozenset((aten.max.default, aten.min.default, aten.max.dim, aten.min.dim))


def storage_key(tensor: torch.Tensor) -> int:
    """Return an id of a tensor's storage: equal for two live tensors exactly if they share it.

    Raises:
        Fallback: the tensor is sparse and has no storage.
    """
    if tensor.layout != torch.strided:
        raise Fallback(f"a tensor with layout {tensor.layout} appears")
    return storage_id(tensor)


def reads_what_it_wrote(func: torch._ops.OpOverload, args: tuple[Any, ...]) -> bool:
    """Whether an op over lists writes to a tensor and takes its memory again at another place.

    Such an op goes through its lists in order, and sees at one place what it wrote at an earlier
    one; the functional op reads all of them before.
    """
    lists = [arg for arg in args if isinstance(arg, list | tuple)]
    tensors = [(n, t) for row in lists for n, t in enumerate(row) if isinstance(t, torch.Tensor)]
    if not str(func).startswith("aten._foreach_") or len(tensors) < 2:
        return False
    single = [(-1, arg) for arg in args if isinstance(arg, torch.Tensor)]
    written = [(n, t) for n, t in enumerate(lists[0]) if isinstance(t, torch.Tensor)]
    others: dict[int, list[tuple[int, torch.Tensor]]] = {}
    for n, t in (*tensors, *single):
        others.setdefault(storage_key(t), []).append((n, t))
    return any(
        n != m and may_overlap(one, other)
        for n, one in written
        for m, other in others[storage_key(one)]
    )


def may_overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one storage may share an element; true where sizes are symbols."""
    ends = []
    for tensor in (one, other):
        numbers = [tensor.storage_offset(), *tensor.shape, *tensor.stride()]
        if one.dtype != other.dtype or any(not isinstance(number, int) for number in numbers):
            return True
        if tensor.numel() == 0:
            return False
        ends.append((numbers[0], numbers[0] + extent(tensor)))
    return bool(ends[0][0] < ends[1][1] and ends[1][0] < ends[0][1])


class Watcher(Protocol):
    """A dispatch mode under which a captured graph is run."""

    fake_mode: FakeTensorMode
    origin: dict[str, Any]
    origins_by_sequence: list[tuple[int, dict[str, Any]]]

    def fake_constant(self, real: torch.Tensor) -> torch.Tensor:
        """Return the fake of a real tensor that is a constant of the graph."""
        ...

    def node_done(self, makes_symbols: bool) -> None:
        """Handle the end of a node of the captured graph, which may have made unbacked symbols."""
        ...


class Observer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Observes which storages are written to, and records no ops.

    Attributes:
        written: storages that some op wrote to -> the user's line of the first.
        count: how many ops have run.
        last_write: storage -> the number of the last op that wrote to it.
    """

    supports_higher_order_operators = True  # they are dispatched here to be refused

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch wraps the dispatch, to disable a compiler that does not run

    def __init__(self, fake_mode: FakeTensorMode) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.fake_mode = fake_mode
        self.origin: dict[str, Any] = {}
        self.origins_by_sequence: list[tuple[int, dict[str, Any]]] = []
        self.written: dict[int, str] = {}
        self.count = 0
        self.last_write: dict[int, int] = {}
        self.constants: dict[int, torch.Tensor] = {}
        self._kept: list[Any] = []
        self._beyond: dict[int, Any] = {}  # storage -> view of elements that its tensor has not
        self._windows: dict[int, Any] = {}  # views of elements more than once, alive for their ids

    def fake_constant(self, real: torch.Tensor) -> torch.Tensor:
        """Return the fake of a real tensor that is a constant of the graph."""
        if id(real) not in self.constants:
            self.constants[id(real)] = self.fake_mode.from_tensor(real, static_shapes=True)
        return self.constants[id(real)]

    def node_done(self, makes_symbols: bool) -> None:
        """Discard the symbols of this run: the recording makes its own."""
        if makes_symbols and self.fake_mode.shape_env is not None:
            self.fake_mode.shape_env.pending_fresh_unbacked_symbols.clear()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run one op and record the storages that it writes to."""
        kwargs = kwargs or {}
        self.count += 1
        if not isinstance(func, torch._ops.OpOverload):
            raise Fallback(f"the operator {func} takes functions as arguments")
        if func._schema.is_mutable:
            for tensor in written_arguments(func, args, kwargs):
                if not elements_apart(tensor):
                    raise Fallback("a tensor whose elements overlap in memory is written to")
                if id(tensor) in self._windows:
                    raise Fallback(
                        "a tensor is written to through as_strided or unfold, which may leave gaps"
                    )
                key = storage_key(tensor)
                self.written.setdefault(key, line_in(self.origin))
                self._check_beyond(key)
                self.last_write[key] = self.count
                self._kept.append(tensor)
            if reads_what_it_wrote(func, args):
                raise Fallback("an op over lists writes to memory that it takes twice")
        if func in REDUCE_SOMETHING:
            check_something_is_reduced(func, args, kwargs)
        if is_composite(func):  # in inference mode it comes whole, and its writes are inside
            with self:
                return func.decompose(*args, **kwargs)
        result = func(*args, **kwargs)
        self._note_windows(func, args, result)
        return result

    def _note_windows(
        self, func: torch._ops.OpOverload, args: tuple[Any, ...], result: Any
    ) -> None:
        """Record views made by `unfold`, and those by `as_strided` that are no selection.

        Those see an element twice, or elements that the tensor itself has not. A write through one
        by functionalisation leaves zeros at elements outside of all windows, writes an element
        again, with its old value, or loses elements that the tensor has not.
        """
        strided = False
        if func is aten.as_strided.default:
            held = holds(args[0], result)
            strided = not (elements_apart(result) and held)
            if not held:
                self._beyond[storage_key(result)] = result
                self._check_beyond(storage_key(result))
        if func is aten.unfold.default or strided or (args and id(args[0]) in self._windows):
            if not any(out.alias_info for out in func._schema.returns):
                return
            for view in result if isinstance(result, (list, tuple)) else [result]:
                self._windows[id(view)] = view

    def _check_beyond(self, key: int) -> None:
        """Fall back if a storage is written to of which `as_strided` shows elements of no tensor.

        By functionalisation the view is one of the value that the write makes, which has none.
        """
        if key in self._beyond and key in self.written:
            raise Fallback("as_strided shows elements that its tensor has not, which is written to")


def check_something_is_reduced(
    func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Fall back to eager for reductions over zero elements: eager raises, shape functions do not.

    If sizes are symbolic, a guard requires elements; if they depend on data, the graph checks that
    at run time.
    """
    source = args[0]
    if not source.dim():
        return
    dim = args[1] if len(args) > 1 else kwargs.get("dim")
    count = source.numel() if dim is None else source.size(dim)
    try:
        torch._check(count != 0, lambda: f"{func} needs at least one element")  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise Fallback(f"{func} has nothing to reduce") from error


def written_arguments(
    func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterable[torch.Tensor]:
    """Yield the tensors that an op's schema declares as written."""
    for i, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[i] if i < len(args) else kwargs.get(argument.name)
        for tensor in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(tensor, torch.Tensor):
                yield tensor


def run_watched(watcher: Watcher, function: Callable[..., Any], args: Iterable[Any]) -> Any:
    """Call a function with the watcher on top of its fake mode.

    Torch's Python dispatcher is on: only there some ops have variants for symbolic sizes, or with a
    correct declaration of their writes (batch normalisation). Modes that the function leaves set
    are set back: the next run begins as this one did.
    """
    mode: Any = watcher
    fake_mode = watcher.fake_mode
    with (
        modes.put_back(),
        levels.kept(),
        enable_python_dispatcher(),
        data_allowed(fake_mode),
        fake_mode,
        mode,
    ):
        return function(*args)


@contextmanager
def data_allowed(fake_mode: FakeTensorMode) -> Iterator[None]:
    """Allow ops to make new unbacked symbols inside a ``with`` block."""
    fake_mode.epoch += 1  # tensors cache the symbols of earlier runs
    with scalars_allowed(fake_mode.shape_env, shapes=True):
        yield


@dataclass(frozen=True)
class Made:
    """The first value of a captured graph in a storage, and its place in another run."""

    value: torch.Tensor
    node: fx.Node
    item: int | None


class Runner(fx.Interpreter):
    """Runs a captured graph, and sets for the watcher the node whose ops run.

    Attributes:
        made: storage -> the first value of the captured graph in it.
        layouts_differ: whether some value has other strides than in the earlier run.
        ends: node -> how many ops an `Observer` had seen when it was done.
        reshaped: node -> its first value, where that was reshaped in place later.
        region: the checkpointed region whose body this is.
        inner: node of a checkpoint call -> the run of its body.
    """

    def __init__(
        self, module: fx.GraphModule, watcher: Watcher, before: Runner | None = None
    ) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.watcher = watcher
        self.before = before
        self.made: dict[int, Made] = {}
        self.layouts_differ = False
        self.region: Region | None = None
        self.inner: dict[fx.Node, Runner] = {}
        self.ends: dict[fx.Node, int] = {}
        self.reshaped: dict[fx.Node, Any] = {}
        self._twins: dict[int, int] = {}
        self._first_twins: dict[int, int] = {}
        self._at: fx.Node | None = None
        self._inference: list[Any] = []  # the guards of inference modes that are open

    def run(self, *args: Any, **settings: Any) -> Any:
        """Run the graph; where it stops inside of an inference mode, leave that."""
        try:
            return super().run(*args, **settings)
        except BaseException:
            while self._inference:
                _exit_inference_mode(self._inference.pop())  # type: ignore[no-untyped-call]
            raise

    def run_node(self, n: fx.Node) -> Any:
        """Run one node of the captured graph."""
        try:
            return self._run_node(n)
        except Fallback as fallback:
            fallback.line = fallback.line or line_in(n.meta)
            raise

    def _run_node(self, n: fx.Node) -> Any:
        meta = {key: n.meta[key] for key in ORIGIN_KEYS if key in n.meta}
        meta["tc_from"] = n.name
        if self.region is not None:
            meta[REGION] = self.region
        self._at = n
        self.watcher.origin = meta
        first_autograd_node = torch._C._autograd._get_sequence_nr()
        self.watcher.origins_by_sequence.append((first_autograd_node, meta))
        with levels.default_device():
            result = self._reshaped(n)
            if result is None:
                result = as_computed(super().run_node(n))
        if n.op == "output":
            return result
        self.watcher.node_done(name_as_captured(n, result, self.watcher.fake_mode))
        for item, value in _tensors(result):
            if is_traceable_wrapper_subclass(value):
                raise Fallback(f"{n.name} is a {type(value).__name__}, not a plain tensor")
            self.made.setdefault(storage_key(value), Made(value, n, item))
        if isinstance(self.watcher, Observer):
            self.ends[n] = self.watcher.count
        if self.before is not None:
            self._compare(n, result, self.before)
        return result

    def _reshaped(self, n: fx.Node) -> torch.Tensor | None:
        """Return the view that takes the place of a tensor which a call reshapes, or None."""
        target = self.env.get(n.args[0]) if n.args and isinstance(n.args[0], fx.Node) else None
        if not isinstance(target, torch.Tensor) or (make := as_view(n, target)) is None:
            return None
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        view = make(*args, **kwargs)
        put_in_place(self.env, self.reshaped, target, view)
        return view

    def _compare(self, n: fx.Node, result: Any, before: Runner) -> None:
        """Check that values share memory exactly as in the earlier run, as far as writes show it.

        The result of a functional variant may have another layout than the target of the write.
        Then an op that copied may return a view instead, which later writes would change; or one
        that returned a view may copy, and miss writes after it.
        """
        assert isinstance(before.watcher, Observer)
        last_write = before.watcher.last_write
        for (_, here), (_, there) in zip(
            _tensors(result), _tensors(before._value_of(n)), strict=True
        ):
            key = storage_key(here)
            twin = storage_key(there)
            parted = self._first_twins.setdefault(twin, key) != key
            missed = parted and last_write.get(twin, 0) > before.ends[n]
            if self._twins.setdefault(key, twin) != twin or missed:
                raise Fallback("a write changes a layout on which later views depend")
            self.layouts_differ |= layout_key(here) != layout_key(there)

    def found(self, made: Made) -> Any:
        """Return the value of this run at the place of another run's ``made``."""
        value = self._value_of(made.node)
        return value if made.item is None else value[made.item]

    def _value_of(self, node: fx.Node) -> Any:
        """Return the value of a node of this graph or of a body in it."""
        if node in self.env:
            return self.reshaped.get(node, self.env[node])
        found = (inner._value_of(node) for inner in self.inner.values())
        return next((value for value in found if value is not None), None)

    def _checkpoint(self, body: fx.GraphModule, *operands: Any) -> Any:
        """Run the body of a checkpoint in place."""
        assert self._at is not None
        before = self.before.inner[self._at] if self.before is not None else None
        inner = self.inner[self._at] = Runner(body, self.watcher, before)
        inner.region = self.region or region_of(self._at.name, body)
        inner.made, inner._twins, inner._first_twins = self.made, self._twins, self._first_twins
        result = inner.run(*operands)
        self.layouts_differ |= inner.layouts_differ
        return result

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Call a torch function, or its replacement."""
        if target in CHECKPOINTS and isinstance(args[0], fx.GraphModule):
            return self._checkpoint(*args)
        if target is aten._assert_scalar.default and isinstance(args[0], SYMBOLIC):
            return None  # the environment has the assumption: see `aot.checks`
        result = super().call_function(STAND_INS.get(target) or target, args, kwargs)
        count_writes_to_list(target, args, kwargs)
        if target is _enter_inference_mode:
            self._inference.append(result)
        elif target is _exit_inference_mode:
            self._inference.remove(args[0])
        return result

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Return an attribute of the graph; tensors are constants."""
        value = super().get_attr(target, args, kwargs)
        if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
            return self.watcher.fake_constant(value)
        return value


def _tensors(result: Any) -> Iterable[tuple[int | None, torch.Tensor]]:
    """Yield the tensors of a node's value with their positions, None for the value itself.

    Tensors wrapped for a functorch level are left out: they have no memory that outlives the level.
    """
    if isinstance(result, torch.Tensor):
        if not is_wrapped(result):
            yield None, result
    elif isinstance(result, (list, tuple)):
        for i, item in enumerate(result):
            if isinstance(item, torch.Tensor) and not is_wrapped(item):
                yield i, item
