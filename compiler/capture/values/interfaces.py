"""The interfaces of the tracer and its parts, as protocols that values and handlers use.

Modules below the tracer import these and never the tracer, so that no import cycle arises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from types import CellType, CodeType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import torch

if TYPE_CHECKING:
    from tc.compiler.capture import hook
    from tc.compiler.capture.bytecode.emitter import Emitter
    from tc.compiler.capture.bytecode.instructions import Instruction
    from tc.compiler.capture.dynamism import DynamicSizes
    from tc.compiler.capture.guards.definitions import Definitions
    from tc.compiler.capture.guards.guard_list import GuardList
    from tc.compiler.capture.scopes import Scope
    from tc.compiler.capture.shapes import Shapes
    from tc.compiler.capture.values.base import Args, HandlingValue, Kwargs, Slot, Value
    from tc.compiler.capture.values.containers import ListValue, TupleValue
    from tc.compiler.capture.values.dicts import DictValue
    from tc.compiler.capture.values.effects import Effects
    from tc.compiler.capture.values.functions import CellValue, FunctionValue
    from tc.compiler.capture.values.objects import Attributed, ClassValue, ObjectValue
    from tc.compiler.capture.values.subclasses import DerivedTensors
    from tc.compiler.capture.values.tensor import NodeValue, TensorValue
    from tc.compiler.core.sources import DrawnSource, Source
    from tc.trace.places import StackFrame


class FrameInterface(Protocol):
    """The interface of an interpreted frame for values."""

    depth: int  # of calls below the frame under capture

    @property
    def code(self) -> CodeType:
        """Its code object."""

    @property
    def cells(self) -> Mapping[str, CellValue]:
        """Own and free variables kept in cells."""

    @property
    def module_globals(self) -> dict[str, Any]:
        """Globals of its module."""

    @property
    def parent(self) -> FrameInterface | None:
        """The calling frame."""

    @property
    def started(self) -> bool:
        """Whether a generator has started."""

    @property
    def returned(self) -> Value | None:
        """Its return value."""

    @property
    def runs_code_if_closed(self) -> bool:
        """Whether closing or dropping a generator where it is suspended runs code of its own."""

    @property
    def may_run_code_if_closed(self) -> bool:
        """Whether a generator of this code runs code of its own if it is closed at some yield."""

    def local(self, name: str) -> Value:
        """Return a local; an unbound one raises into the traced code."""

    def is_bound(self, name: str) -> bool:
        """Return whether a local that is not kept in a cell has a value."""

    def place(self) -> StackFrame:
        """Return this frame's current place in the user's source."""

    def next_instruction(self) -> Instruction:
        """Return the instruction after the current one."""

    def places(self) -> list[StackFrame]:
        """Return the stack of frames, the frame under capture first."""

    def run_to_yield(self, sent: Value | None, error: Value | None = None) -> Value:
        """Interpret a generator's frame up to its next yield."""

    def calling(self) -> AbstractContextManager[None]:
        """Let what is running call this generator's frame."""

    def delegate(self) -> Value | None:
        """Return what a suspended generator yields from."""

    def end_delegate(self, result: Value) -> Value:
        """Interpret from the end of a ``yield from`` that has a result up to the next yield."""


class ResidualInterface(Protocol):
    """The interface of residual code, which rebuilds values."""

    @property
    def e(self) -> Emitter:
        """The emitter."""

    @property
    def t(self) -> Interpreter:
        """The tracer."""

    def push(self, value: Value) -> None:
        """Emit code that pushes a value."""

    def push_slots(self, slots: list[Slot]) -> None:
        """Push the items of a container."""

    def load_output(self, value: NodeValue) -> None:
        """Push an output of the graph."""

    def load_object(self, obj: Any) -> None:
        """Push any Python object, through a generated global."""

    def load_callable(self, obj: Any) -> None:
        """Push a Python object that will be called."""

    def call_method(
        self,
        owner: Value,
        name: str,
        argument: Callable[[], None] | None = None,
        keep: bool = False,
    ) -> None:
        """Emit ``owner.name(argument)``."""

    def store_new(self) -> str:
        """Pop the top into a new local and return its name."""

    def replay_attribute(self, owner: Value, name: str, value: Value | None) -> None:
        """Emit ``owner.name = value``, bypassing a ``__setattr__`` that was traced already."""

    def replay_global(self, space: dict[str, Any], name: str, value: Value) -> None:
        """Emit a store to a global."""


class GraphInterface(Protocol):
    """The interface of the graph under construction."""

    calls: int
    may_assume: bool
    distribution_checks: list[CodeType]
    asks_if_compiling: bool
    drawn: list[DrawnSource]
    counts_writes: bool

    @property
    def scopes(self) -> list[Scope]:
        """The captured graph, and the bodies under construction inside it."""

    @property
    def marks(self) -> set[str]:
        """Keys of the graph's ``meta`` that describe it to backends."""

    @property
    def derived(self) -> DerivedTensors:
        """The tensor subclasses among the values."""

    @property
    def graph(self) -> torch.fx.Graph:
        """The graph that calls are recorded into: the captured one, or that of a body in it."""

    def region_call(self, name: str) -> AbstractContextManager[None]:
        """Mark the operations recorded inside as one call of a marked function."""

    def in_scope(self, node: torch.fx.Node, example: Any) -> torch.fx.Node:
        """Return a node, or its placeholder in the body that is being captured."""

    def add_input(self, value: NodeValue) -> torch.fx.Node:
        """Make the placeholder of a sourced tensor or number, before all calls."""

    def call_torch(
        self, target: Any, args: Args, kwargs: Kwargs, method: bool = False
    ) -> Value:
        """Record a call and return the value of its result."""

    def call_on_numbers(self, function: Any, args: Args) -> Value:
        """Record an operation of Python on numbers, one of them symbolic: nothing overrides it."""

    def call_state(self, target: Any, args: Args, kwargs: Kwargs) -> Value:
        """Record a call that changes a state of torch, and apply it to the rest of the trace."""

    def set_mode(self, function: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
        """Record a call that sets a mode of torch for the nodes after it, and return its node."""

    def known_by_example(self, value: TensorValue) -> TensorValue:
        """Record the fake of a tensor: a call that returns this fake returns this tensor."""

    def result_of(self, result: Any, node: torch.fx.Node) -> Value:
        """Return the value of a node's result: a tensor, a number, or a nest of these."""

    def number_from(
        self, tensor: TensorValue, method: str, found: Any, *args: int
    ) -> Value:
        """Return the value of an integer read off a tensor; a node only if it is symbolic."""

    def tensor_size(self, tensor: TensorValue) -> TupleValue:
        """Return the value of ``tensor.shape``."""

    def annotate(self, node: torch.fx.Node, example: Any) -> None:
        """Record on a node its fake result, and the user's stack."""


class IdentityInterface(Protocol):
    """The interface of the record of objects that have to be distinct."""

    def differ(self, left: Value, right: Value) -> None:
        """Record that two values were compared and are distinct objects."""

    def hashed(self, key: Value) -> None:
        """Record that a value was a key that is hashed by identity."""

    def reads(self, table: Any, source: Source, name: str) -> None:
        """Record that an entry of a module's table was read, or found absent."""


class GuardInterface(Protocol):
    """The interface of the guard recorder."""

    aliasing_matters: bool
    gradients_matter: bool

    @property
    def recorded(self) -> GuardList:
        """The guards so far."""

    @property
    def definitions(self) -> Definitions:
        """Classes, modules and functions that the result depends on."""

    @property
    def identities(self) -> IdentityInterface:
        """The objects that are assumed to be distinct."""

    @property
    def guarded_by_code(self) -> set[int]:
        """Ids of functions whose guard is on their code."""

    def add(self, kind: str, source: Source, value: Any = None) -> None:
        """Guard a fact about a source; global aliases that tc itself made need no guard."""

    def identity(self, source: Source, obj: Any) -> None:
        """Guard which object is found at a source, even one that something else already guards."""

    def tensor_property(
        self, tensor: TensorValue, name: str, method: bool = False
    ) -> None:
        """Guard an attribute, or a method's result, that the TENSOR guard does not cover."""

    def ask_process_again(
        self, function: Callable[[], Any], name: str, answer: Any
    ) -> None:
        """Guard the result of a function without arguments that reads the state of the process."""

    def keys(self, value: DictValue) -> None:
        """Guard on all keys of a dict."""

    def contains(self, value: DictValue, key: Value, there: bool) -> None:
        """Guard on a key being in a dict or not."""

    def absent(self, owner: Attributed, name: str) -> None:
        """Guard that an object's instance dictionary lacks an attribute."""

    def same(self, obj: Any, source: Source, first: Source | None) -> None:
        """Guard that a source leads to an object seen before, where no guard fixes its identity."""

    def look_up(self, namespace: dict[str, Any], name: str, source: Source) -> None:
        """Let the guard on definitions cover a name of a module; record the lookup."""


class ValueInterface(Protocol):
    """The interface of the value factory."""

    aliases: dict[Source, Any]  # globals that the residual code needs, and makes
    tensors: list[TensorValue]  # those that are inputs
    owners: dict[int, tuple[Any, Source | None]]  # by the ids of their `__dict__`

    @property
    def made_inside(self) -> set[int]:
        """Ids of objects that live only as long as the trace."""

    def new_tuple(self, values: Iterable[Value]) -> TupleValue:
        """Return a new tuple."""

    def list_of(self, values: Iterable[Value]) -> ListValue:
        """Return a new list."""

    def dict_of(self, pairs: Iterable[tuple[Any, Value]]) -> DictValue:
        """Return a new dict; keys are values or plain constants."""

    def set_of(self, values: Iterable[Value], kind: type = set) -> Value:
        """Return a new set."""

    def known(self, obj: Any) -> Value:
        """Return the value of an object that traced code made or that needs no guard."""

    def wrap(self, obj: Any, source: Source) -> Value:
        """Return the value of a live object; one object, one value."""

    def wrap_tensor(self, tensor: torch.Tensor, source: Source) -> TensorValue:
        """Return the value of a tensor made from a sourced object."""

    def wrap_kept(self, obj: Any) -> Value:
        """Return the value of an object that compiled code keeps, unreachable from the frame."""

    def lazy_slots(self, items: Any, source: Source) -> list[Slot]:
        """Return the items of a sequence, to be wrapped when looked at."""

    def find(self, obj: Any) -> Value | None:
        """Return the value of an object that was wrapped before, or None."""

    def wrapped(self) -> list[Value]:
        """Return the values of all objects that were wrapped, and of cells."""

    def function_of_class(self, raw: Any) -> Value:
        """Return the value of a function found in a class."""

    def make_inside(self, obj: Any, value: Value) -> None:
        """Register an object that lives only as long as the trace as the object of a value."""

    def keep(self, obj: Any) -> None:
        """Keep an object alive as long as the trace."""

    def cell(self, cell: CellType, source: Source, name: str) -> CellValue:
        """Return the value of a real cell."""

    def number_is_dynamic(self, obj: float, source: Source) -> bool:
        """Return whether a number gets a symbol."""

    def object_source(self, obj: Any) -> Source:
        """Return a source for an object that was not reached from the frame."""

    def source_of(self, value: Any) -> Source:
        """Return a value's source, making one for classes and modules reached otherwise."""

    def has_rule(self, obj: Any) -> bool:
        """Return whether a function is torch's, or annotated by users."""


class AttributeInterface(Protocol):
    """The interface of the lookup of class attributes."""

    def builtin_method(self, owner: Value, name: str) -> Value:
        """Return a bound method of a list, dict, set … as a value."""

    def bind_descriptor(
        self, owner: Value, cls: type, raw: Any, name: str, inherited: bool = False
    ) -> Value:
        """Read a class attribute through an instance."""

    def bind_class_attr(self, owner: ClassValue, raw: Any, name: str) -> Value:
        """Read a class attribute through the class."""

    def class_attr(self, owner: Value, cls: type, name: str) -> Value | None:
        """Read an attribute of an instance's class, or return None."""

    def attributes_of(self, owner: Attributed | DictValue) -> Value:
        """Return ``vars(owner)``, the same value each time."""

    def slot_method(self, owner: Value, raw: Any) -> Value:
        """Return a method of a builtin type bound to an object."""


class PythonInterface(Protocol):
    """The interface of Python's operators, conversions and comparisons."""

    def fold(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run a pure function on Python objects; its exceptions are raised into the traced code."""

    def run_now(
        self, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        """Run a function once per capture; its exceptions are raised into the traced code."""

    def folded(
        self, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Value:
        """Return the result of `fold` as a value."""

    def raise_(self, cls: type[BaseException], *args: Any) -> NoReturn:
        """Raise into the traced code."""

    def concrete(self, value: Value) -> Any:
        """Return the Python object of a value, giving up the generality of symbolic numbers."""

    def concrete_list(self, values: Iterable[Value]) -> list[Any]:
        """Return the Python objects of several values; see `concrete`."""

    def concrete_dict(self, values: Mapping[str, Value]) -> dict[str, Any]:
        """Return the Python objects of keyword arguments; see `concrete`."""

    def key(self, value: Value) -> Any:
        """Return the token of a dictionary key: equal keys have equal tokens."""

    def hashed(self, value: Value) -> Value:
        """Apply ``hash``."""

    def is_none(self, value: Value) -> bool:
        """Return whether a value is None."""

    def identical(self, left: Value, right: Value) -> bool:
        """Return whether two values are the same object."""

    def logical_not(self, value: Value) -> Value:
        """Return ``not value``."""

    def contains(self, container: Value, item: Value) -> Value:
        """Return ``item in container``."""

    def equal(self, left: Value, right: Value) -> bool:
        """Return ``left is right or left == right`` as a Python bool, as containers compare."""

    def index(self, value: Value) -> Value:
        """Apply ``operator.index``."""

    def unary(self, name: str, value: Value) -> Value:
        """Apply ``operator.<name>``."""

    def binary(self, name: str, left: Value, right: Value) -> Value:
        """Apply ``operator.<name>``: constants fold, tensors record, objects call their methods."""

    def divmod(self, left: Value, right: Value) -> Value:
        """Apply ``divmod``."""

    def convert_text(self, function: Callable[[Any], str], value: Value) -> Value:
        """Apply str, repr or ascii."""

    def format(self, value: Value, spec: str) -> Value:
        """Apply ``format(value, spec)``."""

    def slot_result(self, kind: type, name: str, result: Value) -> Value:
        """Return what Python makes of the result of a class's special method."""

    def iterate_by_index(self, owner: Value) -> Value:
        """Iterate over an object that only has ``__getitem__``."""

    def constant_iterator(self, obj: Any) -> Value:
        """Iterate over a known object."""

    def advance_by_next(self, call: Callable[[], Value]) -> Value:
        """Call a ``__next__`` written by users; StopIteration ends the iteration."""

    def classes(self, value: Value) -> Any:
        """Return a class, or a tuple of classes, for isinstance and except."""

    def real_object(self, value: Value) -> Any:
        """Return the object behind a value: a constant, or one that was there before the frame."""


class StateInterface(Protocol):
    """The interface of the state of torch at the start of the frame."""

    @property
    def grad_before(self) -> bool:
        """Whether gradients were recorded."""

    def as_at_entry(self) -> AbstractContextManager[None]:
        """Dispatch as at the start of the frame, outside of later transforms and modes."""


class ModeInterface(Protocol):
    """The interface of torch's global modes."""

    inference: list[tuple[Any, bool]]
    mixed: bool

    def value_before(self, name: str) -> Any:
        """Return the value of a mode at the start of the frame."""

    def open_inference(self, guard: Any) -> None:
        """Record that an inference mode was entered: gradients are off in it, else on."""

    def close_inference(self) -> None:
        """Record that the innermost inference mode was left."""

    def restore(self) -> None:
        """Restore all modes."""


class OverrideInterface(Protocol):
    """The interface of ``__torch_function__`` overrides."""

    level: int
    modes: list[Value]
    outer_modes: tuple[Value, ...]
    device_modes: int

    def aside(self) -> AbstractContextManager[None]:
        """Switch overrides off for the tracer's own calls of torch."""

    def at_least(self, level: int) -> AbstractContextManager[None]:
        """Switch off at least the overrides of a level."""


class Interpreter(Protocol):
    """The interface of the tracer: it drives frames, its parts do the rest."""

    strict: bool | None
    leave_classes: bool
    calling: Value | None  # what was called last
    item_of_tensor: Callable[[Interpreter, Value, Value], Value | None] | None

    @property
    def output(self) -> GraphInterface:
        """The graph under construction."""

    @property
    def guards(self) -> GuardInterface:
        """Records guards."""

    @property
    def values(self) -> ValueInterface:
        """Makes the values of objects."""

    @property
    def attributes(self) -> AttributeInterface:
        """Looks up class attributes."""

    @property
    def python(self) -> PythonInterface:
        """Operators, conversions and comparisons."""

    @property
    def state(self) -> StateInterface:
        """The state of torch at the start of the frame."""

    @property
    def modes(self) -> ModeInterface:
        """Global modes of torch as traced code sets them."""

    @property
    def overrides(self) -> OverrideInterface:
        """The active ``__torch_function__`` overrides."""

    @property
    def effects(self) -> Effects:
        """The side effects of traced code."""

    @property
    def shapes(self) -> Shapes:
        """Fake tensors and symbolic sizes."""

    @property
    def sizes(self) -> DynamicSizes:
        """Decides which sizes and numbers are dynamic."""

    @property
    def frame(self) -> hook.Frame:
        """The frame under capture."""

    @property
    def top(self) -> FrameInterface | None:
        """The innermost running frame."""

    @property
    def handled(self) -> list[HandlingValue]:
        """Exceptions being handled, innermost last."""

    def user_line(self) -> tuple[str, int] | None:
        """Return file and line of the current traced code, outside of libraries if possible."""

    def inline(self, function: FunctionValue, args: Args, kwargs: Kwargs) -> Value:
        """Interpret a call of a Python function as part of this frame."""

    def inline_object(
        self, obj: Any, args: Args, kwargs: Kwargs | None = None
    ) -> Value:
        """Interpret a call of a real Python function."""

    def interpret(
        self,
        function: FunctionValue,
        args: Args,
        kwargs: Kwargs,
        is_tail_call: bool = False,
    ) -> Value:
        """Interpret a call of a Python function, whatever handler there is for it."""

    def instantiate(self, cls: ClassValue, args: Args, kwargs: Kwargs) -> Value:
        """Call a class."""

    def names_bound_by(self, body: FunctionValue) -> dict[str, Value]:
        """Interpret the body of a class and return what it binds."""

    def intercept(
        self, operation: Callable[..., Any], args: Args, kwargs: Kwargs | None = None
    ) -> Value | None:
        """Return the result of what overrides an operation of torch, or None."""

    def initialise_lazy(self, module: ObjectValue, args: Args, kwargs: Kwargs) -> None:
        """Initialise a lazy module for its first input; the frame is then traced again."""
