"""Symbolic sizes: real tensors in; fake tensors with symbols, and guards over those, out.

The boundary to `ShapeEnv` and sympy; beyond it sources are tc's and guards are Python text. Making
the first `Shapes` of a process makes torch load `torch._dynamo` (about a second).
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from operator import methodcaller
from typing import Any

import torch
from torch import fx
from torch._guards import GuardSource
from torch._guards import Source as TorchSource
from torch._subclasses.fake_tensor import UnsupportedFakeTensorException
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves
from torch.utils._sympy.functions import Identity

from tc.compiler.capture import breaks
from tc.compiler.capture.contexts import Dynamic, Sizes, plain_context, wrapper_context
from tc.compiler.capture.dynamism import Mark
from tc.compiler.capture.guards.shape_guards import (
    Operand,
    ShapeGuard,
    ShapeGuards,
    UserLine,
    operands_in,
)
from tc.compiler.capture.number_ranges import LARGEST_FLOAT, Ranges
from tc.compiler.capture.questions import asking
from tc.compiler.core import ahead
from tc.compiler.core.fakes import EagerLayouts
from tc.compiler.core.sources import (
    AttrSource,
    CallSource,
    GlobalSource,
    ItemSource,
    Source,
)
from tc.compiler.core.symbolic import hint, scalars_allowed
from tc.compiler.errors import ConstraintViolationError


@dataclass(frozen=True)
class SymbolEvent:
    """A symbol made for a size or number of an input."""

    symbol: str
    hint: int
    range: str
    source: str
    user_line: UserLine | None


@dataclass(frozen=True)
class _WrappedSource(TorchSource):
    """One of tc's sources, as torch's own classes take them."""

    source: Source

    @cached_property
    def guard_source(self) -> GuardSource:
        is_global = isinstance(self.source.root, GlobalSource)
        return GuardSource.GLOBAL if is_global else GuardSource.LOCAL

    @property
    def _name_template(self) -> str:
        return self.source.name.replace("{", "{{").replace("}", "}}")

    if isinstance(TorchSource.__dict__["name"], cached_property | property):

        @cached_property
        def name(self) -> str:
            return self.source.name

    else:  # a method before torch 2.11

        def name(self) -> str:
            return self.source.name


class UnreadableSize(Exception):
    """A condition is on a size that no input has."""


class Shapes:
    """Fake tensors and symbolic integers of one compilation.

    Attributes:
        mode: the `FakeTensorMode` that all fakes belong to.
        env: its `ShapeEnv`.
        derived: there are classes or modes that reading a size must not ask.
        drawn: symbol of a random number of Python -> the call that draws it.
    """

    def __init__(
        self,
        *,
        user_line: Callable[[], UserLine | None] = lambda: None,
        data_dependent: bool = False,
        scalars: bool | None = None,
        allow_non_fake_inputs: bool = False,
    ) -> None:
        """Start a compilation.

        Args:
            user_line: asked for the user's place whenever a condition on a size is decided.
            data_dependent: make symbols for ``nonzero`` and the like; if not, they raise
                `DynamicOutputShapeException`.
            scalars: the same for ``.item()`` (`DataDependentOutputException`); None: as above.
            allow_non_fake_inputs: let real tensors mix with fake ones.
        """
        self._user_line = user_line
        self._lines: dict[frozenset[str], UserLine] = {}
        self._created: dict[str, UserLine | None] = {}
        self._inputs: dict[str, tuple[Any, _WrappedSource, Source]] = {}
        self.drawn: dict[Any, str] = {}
        self._demanded: dict[str, Any] = {}
        self.derived = False
        self.ranges = Ranges()
        self._parts: set[str] = set()
        noted = ahead.noted()
        env_class = (
            asking(_env_class()) if noted is not None and noted.asks else _env_class()
        )
        self.env = env_class(
            weakref.WeakMethod(self._on_guard),
            allow_scalar_outputs=data_dependent if scalars is None else scalars,
            allow_dynamic_output_shape_ops=data_dependent,
        )
        self.mode = EagerLayouts(
            shape_env=self.env, allow_non_fake_inputs=allow_non_fake_inputs
        )
        # an operation that asks breaks the graph
        self.mode._allow_unsafe_data_ptr_access = False

    def fake(
        self,
        tensor: torch.Tensor,
        source: Source,
        dynamic: Dynamic = "none",
        duck: bool = True,
        demands: Mapping[int, Mark] | None = None,
        strides: Collection[int] = (),
    ) -> Any:
        """Return the fake of an input, the same one for the same tensor.

        Keeps class, ``requires_grad``, leaf-ness and view relation; ``grad`` is not followed.

        Args:
            tensor: the live input.
            source: where it comes from.
            dynamic: dimensions that get a symbol; sizes 0 and 1 stay numbers all the same.
            duck: let dimensions of equal size share one symbol, guarded by an equality.
            demands: dimensions whose symbol no other one shares. All but those of the kind
                "maybe" have to keep it, which `guards` checks.
            strides: dimensions whose stride gets a symbol even where no size does.

        Raises:
            ConstraintViolationError: a size is outside the bounds demanded.
        """
        if source.name in self._parts:
            # made with its wrapper
            return self.mode.from_tensor(tensor, static_shapes=True)
        if not strides and (dynamic == "none" or not dynamic or not tensor.dim()):
            # Without source, lest torch make a symbol for ``.item()`` of a number in a tensor.
            return _without_grad(self._stand_in(tensor, static_shapes=True))
        self.derived |= type(tensor) not in (torch.Tensor, torch.nn.Parameter)
        torch_source = _WrappedSource(source)
        context = plain_context(tensor, dynamic, duck, demands or {}, strides)
        with violations():
            fake = self._stand_in(tensor, source=torch_source, symbolic_context=context)
        _without_grad(fake)
        if any(context.constraint_sizes):
            self._demanded[source.name] = context
        if any(isinstance(n, torch.SymInt) for n in (*fake.shape, *_strides(fake))):
            self._track(fake, torch_source, source)
        return fake

    def release_inputs(self) -> None:
        """Drop the weak references to inputs that torch's fake mode keeps as long as it lives.

        ``torch.utils.swap_tensors`` refuses tensors that something refers to weakly.
        """
        describer = self.mode.fake_tensor_converter.meta_converter.describer
        describer.lookup_tensor.clear()
        describer.lookup_storage.clear()

    def _stand_in(self, tensor: torch.Tensor, **settings: Any) -> Any:
        base = tensor._base
        if base is not None and base.layout is not torch.strided:
            what = f"a view of the memory of a tensor with layout {base.layout}"
            raise breaks.GraphBreak(breaks.UNSUPPORTED_VALUE, what)
        try:
            return self.mode.from_tensor(tensor, **settings)
        except AssertionError as error:  # what it views has been written to by now
            what = "a view of memory for which traced code enabled gradients"
            raise breaks.GraphBreak(breaks.UNSUPPORTED_VALUE, what) from error
        except UnsupportedFakeTensorException as error:
            what = f"a tensor that has no fake: {error}"
            raise breaks.GraphBreak(breaks.UNSUPPORTED_VALUE, what) from error
        except RuntimeError as error:
            if tensor.grad is None or tensor.grad.shape == tensor.shape:
                raise
            what = "a tensor whose shape changed in place since it got a gradient"
            raise breaks.GraphBreak(breaks.UNSUPPORTED_VALUE, what) from error

    def fake_wrapper(
        self, tensor: torch.Tensor, source: Source, dynamic: Dynamic, sizes: Sizes
    ) -> Any:
        """Return the fake of a tensor that wraps others, made by its own class around their fakes.

        Args:
            tensor: the live input.
            source: where it comes from.
            dynamic: dimensions of the wrapper, and of wrapped tensors of its shape, with symbols.
            sizes: asked for the dynamic dimensions of each wrapped tensor.
        """
        self.derived = True
        torch_source = _WrappedSource(source)
        context, symbolic = wrapper_context(
            tensor, source, dynamic, sizes, _WrappedSource
        )
        if not symbolic:
            fake = self.mode.from_tensor(
                tensor, static_shapes=True, source=torch_source
            )
            return _without_grad(fake)
        fake = self.mode.from_tensor(
            tensor, source=torch_source, symbolic_context=context
        )
        self._track_wrapper(fake, source)
        return _without_grad(fake)

    def _track_wrapper(self, fake: Any, source: Source) -> None:
        """Make known the symbols of a wrapper's own sizes, and of all that it wraps."""
        for what, numbers in ("size", fake.shape), ("stride", _strides(fake)):
            read = CallSource(source, methodcaller(what), f"{{}}.{what}()")
            for i, number in enumerate(numbers):
                self._track_number(number, ItemSource(read, i))
        offset = CallSource(
            source, methodcaller("storage_offset"), "{}.storage_offset()"
        )
        self._track_number(fake.storage_offset(), offset)
        names = (
            fake.__tensor_flatten__()[0] if is_traceable_wrapper_subclass(fake) else ()
        )
        for name in [*names, *(["_base"] if fake._is_view() else [])]:
            inner, held = getattr(fake, name), AttrSource(source, name)
            self._parts.add(held.name)
            if is_traceable_wrapper_subclass(inner):
                self._track_wrapper(inner, held)
            elif any(
                isinstance(n, torch.SymInt) for n in (*inner.shape, *_strides(inner))
            ):
                self._track(inner, _WrappedSource(held), held)

    def _track_number(self, number: Any, source: Source) -> None:
        if isinstance(number, torch.SymInt) and number.node.is_symbolic():
            self._track(number, _WrappedSource(source), source)

    def note_symbols(self, node: fx.Node, example: Any) -> None:
        """Note on a node which symbols of data it makes, where it makes any."""
        if not self.env.pending_fresh_unbacked_symbols:
            return
        from torch.fx.experimental.symbolic_shapes import compute_unbacked_bindings

        try:
            made = compute_unbacked_bindings(self.env, example)
        except Exception:  # symbols of a run whose result was not used
            self.env.pending_fresh_unbacked_symbols.clear()
            return
        if made:
            node.meta["unbacked_bindings"] = made

    def add_assertions(self, module: fx.GraphModule) -> None:
        """Add to a graph the checks of data that its sizes rest on."""
        from torch.fx.passes.runtime_assert import insert_deferred_runtime_asserts

        # fx cannot write an `Identity`
        for some in self.env.deferred_runtime_asserts.values():
            plain = [a.expr.replace(Identity, lambda x: x) for a in some]
            some[:] = [
                replace(a, expr=expr) for a, expr in zip(some, plain, strict=True)
            ]
        with torch._C._EnableTorchFunction():  # by which fx records calls of functions
            insert_deferred_runtime_asserts(module, self.env, "the captured graph")

    def scalars_allowed(self) -> AbstractContextManager[None]:
        """Let ``.item()`` make symbols for the length of a block."""
        return scalars_allowed(self.env)

    def symint(self, value: int, source: Source, bits: int) -> Any:
        """Return the one symbol of an integer input of so many bits; 0 and 1 are not special."""
        from torch.fx.experimental.symbolic_shapes import DimDynamic

        if source.name in self._inputs:
            return self._inputs[source.name][0]
        given = _WrappedSource(source)
        number = self.env.create_unspecified_symint_and_symbol(
            value, given, DimDynamic.DYNAMIC
        )
        self._track(number, given, source)
        if isinstance(number, torch.SymInt):
            self.ranges.note(number, bits)
        return number

    def symfloat(self, value: float, source: Source) -> Any:
        """Return a symbol for a float input, which is neither zero nor infinite nor NaN.

        Those have rules of their own (``-0.0 * 2``, ``inf * 0``) that symbols do not follow. Nor is
        it larger than float32 has numbers: tensors of that type refuse such a number.
        """
        from torch.fx.experimental.symbolic_shapes import DimDynamic

        if source.name in self._inputs:
            return self._inputs[source.name][0]
        torch_source = _WrappedSource(source)
        symbol = self.env.create_unspecified_symbol(
            value, torch_source, DimDynamic.DYNAMIC
        )
        number = self.env.create_symfloatnode(symbol, hint=value, source=torch_source)
        self._track(number, torch_source, source)
        for condition in (
            number != 0,
            number >= -LARGEST_FLOAT,
            number <= LARGEST_FLOAT,
        ):
            self.guarded(bool, condition)
        return number

    def shorten(self, result: Any) -> None:
        """Make constants of the symbols of a size whose expression is too long to compute with.

        Padding to the same size, in a network that halves it again and again, has the size three
        times in its next one: after six such layers each question takes sympy a second.
        """
        tensors = [one for one in tree_leaves(result) if isinstance(one, torch.Tensor)]
        sizes: list[Any] = [size for tensor in tensors for size in tensor.shape]
        for size in sizes:
            known = isinstance(size, torch.SymInt) and size.node.hint is not None
            if known and not self.ranges.is_short(size):
                for symbol in size.node.expr.free_symbols:
                    value = self._value(symbol)
                    self.guarded(
                        int, self.env.create_symintnode(symbol, hint=int(value))
                    )

    def specialise(self, number: Any) -> int:
        """Return a symbolic integer's value, and guard that it stays so."""
        return int(number)

    def guarded(self, function: Callable[[Any], Any], symbol: Any) -> Any:
        """Evaluate a symbolic number for good; the shape environment takes the guard."""
        try:
            return function(symbol)
        except GuardOnDataDependentSymNode as error:
            what = "a comparison" if isinstance(symbol, torch.SymBool) else ""
            raise self.unknown(what, error) from None

    def unknown(
        self, what: str, error: GuardOnDataDependentSymNode
    ) -> breaks.GraphBreak:
        """Return the break where something, or Python itself, asks what only a run knows."""
        asked = set(error.cond.free_symbols)
        if asked and asked <= self.drawn.keys():
            called = self.drawn[min(asked, key=str)]
            return breaks.GraphBreak(breaks.OUTSIDE_VALUE, called)
        row = breaks.DATA_GUARD if what else breaks.DATA_NUMBER
        return breaks.GraphBreak(row, what, str(error))

    def _track(self, value: Any, torch_source: _WrappedSource, source: Source) -> None:
        if isinstance(value, torch.Tensor):
            # keeps the sizes of the input, whatever `transpose_` does to it
            value = value.detach()
        self._inputs.setdefault(source.name, (value, torch_source, source))
        for symbol in self.env.var_to_sources:
            self._created.setdefault(str(symbol), self._user_line())

    def _on_guard(self, condition: Any) -> None:
        if (line := self._user_line()) is not None:
            symbols = frozenset(map(str, getattr(condition, "free_symbols", ())))
            self._lines.setdefault(symbols, line)

    def guards(self) -> ShapeGuards:
        """Return all conditions that traced code relies on: ranges, equalities, decided tests.

        Raises:
            ConstraintViolationError: a dimension is not as free as was demanded.
            UnreadableSize: a condition is on a size that no input has.
        """
        if not self._inputs:
            return ShapeGuards()
        values = [value for value, _, _ in self._inputs.values()]
        torch_sources = [torch_source for _, torch_source, _ in self._inputs.values()]
        contexts = (
            [self._demanded.get(name) for name in self._inputs]
            if self._demanded
            else None
        )
        with violations():
            texts = list(self._texts(values, torch_sources, contexts))
        texts += [text for text in self._specialised() if text not in texts]
        operands = self._operands()
        guards = tuple(self._guard(text, operands) for text in texts)
        return ShapeGuards(guards, self.derived)

    def _texts(
        self, values: list[Any], torch_sources: list[_WrappedSource], contexts: Any
    ) -> list[str]:
        try:
            found = self.env.produce_guards(
                values,
                torch_sources,
                guards=[
                    one for one in self.env.guards if not self._is_of_a_ragged_size(one)
                ],
                input_contexts=contexts,
            )
        except (AssertionError, IndexError) as error:  # no source at all
            raise UnreadableSize(str(error)) from error
        texts: list[str] = list(found)
        for text in texts:
            # as torch calls what exists only while fakes are made
            if "<ephemeral" in text:
                raise UnreadableSize(text)
        return texts

    def _is_of_a_ragged_size(self, condition: Any) -> bool:
        """Return whether a condition compares one ragged size with numbers.

        Such a size equals none, whichever offsets it is of, so this needs no guard,
        and cannot have one where the offsets are made inside of the graph.
        """
        symbols = condition.expr.free_symbols
        return len(symbols) == 1 and self._is_ragged(*symbols)

    def _guard(self, text: str, operands: Mapping[str, Operand]) -> ShapeGuard:
        numbers = {name for name in operands if name in self._inputs}
        used = [operands[name] for name in operands_in(text, operands, numbers)]
        line = self._lines.get(frozenset().union(*map(self._symbols_of, used)))
        hints = (replace(operand, hint=hint(operand.hint)) for operand in used)
        return ShapeGuard(text, tuple(hints), line)

    def _operands(self) -> dict[str, Operand]:
        """Return everything that a guard may read, by the text it is read with.

        The hints are the symbolic numbers.
        """
        found: list[Operand] = []
        for value, _, source in self._inputs.values():
            if isinstance(value, torch.SymInt | torch.SymFloat):
                found.append(Operand(source, value))
                continue
            for method, numbers in ("size", value.shape), ("stride", _strides(value)):
                found += (Operand(source, n, method, i) for i, n in enumerate(numbers))
            found.append(Operand(source, value.storage_offset(), "storage_offset"))
        return {operand.text: operand for operand in found}

    @staticmethod
    def _symbols_of(operand: Operand) -> frozenset[str]:
        number = operand.hint
        if not isinstance(number, torch.SymInt | torch.SymFloat):
            return frozenset()
        return frozenset(map(str, number.node._expr.free_symbols))

    def _specialised(self) -> Iterator[str]:
        """Yield equalities for symbols that became numbers: tensor guards leave them open."""
        for value, _, source in self._inputs.values():
            if isinstance(value, torch.SymInt | torch.SymFloat):
                kind = int if isinstance(value, torch.SymInt) else float
                if value.node.expr.is_number:
                    yield f"{source.name} == {kind(value.node.expr)}"
                continue
            for what, numbers in ("size", value.shape), ("stride", _strides(value)):
                for i, n in enumerate(numbers):
                    if isinstance(n, torch.SymInt) and n.node.expr.is_number:
                        yield f"{source.name}.{what}()[{i}] == {int(n.node.expr)}"

    def events(self) -> list[SymbolEvent]:
        """Return one event a symbol, in order of creation."""
        return [
            SymbolEvent(
                str(symbol),
                self._hint(symbol),
                str(self.env.var_to_range.get(symbol, "")),
                _name(sources[0]),
                self._created.get(str(symbol)),
            )
            for symbol, sources in self._symbols()
        ]

    def _symbols(self) -> Iterator[tuple[Any, list[Any]]]:
        """Yield the symbols of numbers (not for ragged sizes), with their sources."""
        for symbol, sources in self.env.var_to_sources.items():
            if sources and not self._is_ragged(symbol):
                yield symbol, sources

    def _is_ragged(self, symbol: Any) -> bool:
        from torch.utils._sympy.singleton_int import SingletonInt

        return isinstance(self._value(symbol), SingletonInt)

    def _value(self, symbol: Any) -> Any:
        table = getattr(self.env, "backed_var_to_val", None)  # since torch 2.12
        return (self.env.var_to_val if table is None else table).get(symbol)

    def _hint(self, symbol: Any) -> int:
        return int(self._value(symbol))


def _name(source: Any) -> str:
    name = source.name
    return str(name() if callable(name) else name)


def _without_grad(fake: Any) -> Any:
    """Drop the gradient that torch faked along: capture makes that one from its own source."""
    if fake.is_leaf and fake.grad is not None:
        fake.grad = None
    return fake


def _strides(tensor: Any) -> tuple[Any, ...]:
    return tuple(tensor.stride()) if tensor.layout is torch.strided else ()


def free_size(fake: torch.Tensor) -> tuple[int | None, ...]:
    """Return a fake tensor's sizes with None for symbols, as `TensorSpec` takes them."""
    return tuple(None if isinstance(n, torch.SymInt) else n for n in fake.shape)


def free_stride(fake: torch.Tensor) -> tuple[int | None, ...]:
    """Return a fake tensor's strides with None for symbols, and for all of a ragged tensor's."""
    if fake.layout is torch.jagged:
        return (None,) * fake.dim()
    return tuple(None if isinstance(n, torch.SymInt) else n for n in _strides(fake))


@contextmanager
def violations() -> Iterator[None]:
    """Raise torch's errors of unmet demands as tc's, which torch's programs catch too."""
    from torch.fx.experimental import symbolic_shapes

    try:
        yield
    except symbolic_shapes.ConstraintViolationError as error:
        raise _violation()(
            f"a dimension marked dynamic cannot stay dynamic: {error}\n"
            "tc.maybe_mark_dynamic allows it to become a constant"
        ) from None


@functools.cache
def _env_class() -> Any:
    """Return a `ShapeEnv` that reports each condition it guards on.

    Weakly: torch's caches keep an environment for long after its compilation.
    """
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    class ReportingShapeEnv(ShapeEnv):
        def __init__(self, on_guard: weakref.WeakMethod[Any], **settings: Any) -> None:
            super().__init__(should_record_events=False, **settings)
            self._on_guard = on_guard

        def _log_guard(self, prefix: str, g: Any, forcing_spec: bool) -> None:
            if (report := self._on_guard()) is not None:
                report(g)
            super()._log_guard(prefix, g, forcing_spec)

        def evaluate_expr(
            self, orig_expr: Any, hint: Any = None, *args: Any, **kwargs: Any
        ) -> Any:
            """Return the value of an expression, and guard it."""
            # Once its symbols are constants torch compares it with its value, which sympy cannot.
            if hint is not None and orig_expr.is_number and orig_expr.has(Identity):
                return hint
            return super().evaluate_expr(orig_expr, hint, *args, **kwargs)

    return ReportingShapeEnv


@functools.cache
def _violation() -> type[ConstraintViolationError]:
    """Return a class that is torch's error of unmet demands as well as tc's."""
    from torch.fx.experimental import symbolic_shapes

    bases = (ConstraintViolationError, symbolic_shapes.ConstraintViolationError)
    return type("ConstraintViolationError", bases, {})
