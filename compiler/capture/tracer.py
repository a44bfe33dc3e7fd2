"""The tracer of one frame: wraps objects, inlines calls, keeps guards, effects and the graph."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from tc import trace
from tc.compiler.capture import (
    autograd_functions,
    breaks,
    flex,
    higher_order,
    lazy_modules,
    looping,
    optimizers,
    override_handlers,
    overrides,
    pytrees,
    reads,
    signatures,
    torchfns,
    transforms,
)
from tc.compiler.capture.continuation import trampoline
from tc.compiler.capture.definitions import Definitions, is_changeable, is_definition
from tc.compiler.capture.dynamism import DynamicSizes
from tc.compiler.capture.effects import Effects
from tc.compiler.capture.frame import Frame
from tc.compiler.capture.guards import GuardList
from tc.compiler.capture.hook import ORIGINAL, original_of
from tc.compiler.capture.identity import Identities
from tc.compiler.capture.instantiate import instantiate
from tc.compiler.capture.marked import constant_result
from tc.compiler.capture.modes import Modes
from tc.compiler.capture.opaque_call import is_apply
from tc.compiler.capture.semantics import Semantics
from tc.compiler.capture.shapes import Shapes
from tc.compiler.capture.skips import refuse_inlining
from tc.compiler.capture.traceable import breaks_are_errors
from tc.compiler.capture.values import class_checks, copies, hooks, iteration, pure
from tc.compiler.capture.values.attributes import AttributesValue
from tc.compiler.capture.values.base import Args, Kwargs, Lazy, Slot, Value
from tc.compiler.capture.values.binding import bind_class_attr, bind_descriptor
from tc.compiler.capture.values.builtins import slot_method
from tc.compiler.capture.values.const import ConstValue, is_constant_object
from tc.compiler.capture.values.containers import ListValue, TupleValue
from tc.compiler.capture.values.dicts import DictValue, set_of
from tc.compiler.capture.values.functions import (
    CellValue,
    FunctionValue,
    GeneratorValue,
    bind,
    refuse_coroutine,
    wrap_function,
)
from tc.compiler.capture.values.objects import (
    ClassValue,
    NNModuleValue,
    ObjectValue,
    is_library,
)
from tc.compiler.capture.values.tensor import TensorValue
from tc.compiler.capture.wrap import wrap_object, wrap_tensor
from tc.compiler.core.sources import (
    AttrSource,
    DictSource,
    GlobalSource,
    ItemSource,
    LocalSource,
    Source,
)
from tc.compiler.errors import in_library
from tc.trace.places import StackFrame

if TYPE_CHECKING:
    from tc.compiler.capture import hook
    from tc.compiler.capture.opcodes.blocks import HandlingValue

#: nesting of inlined calls; each takes about ten frames of the tracer's own
MAX_DEPTH = 80
#: hooks that run for modules of every kind
GLOBAL_HOOKS = (
    "_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks",
    "_global_backward_pre_hooks",
)  # fmt: skip
#: attribute by which `torch.compiler.assume_constant_result` marks functions
MARKED_CONSTANT = "_dynamo_marked_constant"


class Tracer(Semantics):
    """State of one translation of one frame.

    Attributes:
        guards: what the result rests on.
        definitions: classes, modules and functions that it rests on.
        identities: which objects it takes to be different ones.
        gradients_matter: traced code turned gradients on.
        guarded_by_code: ids of functions whose guard is on their code, so that others with the
            same code, which a caller makes at each call, pass it as well.
        effects: what traced code changed.
        aliases: globals that the residual code needs and the module does not have.
        looked_up: where modules were asked for a name, which the guard on definitions holds.
        tensors: values of the input tensors, in the order they were met.
        top: the frame at work.
        handled: exceptions being handled, innermost last.
        strict: whether a graph break is an error here; None leaves it to ``fullgraph``.
        steps: instructions interpreted so far, in all frames.
        item_of_tensor: asked first for what an index of a tensor gives.
        stop_at: the number of the instruction that ends the trace before it runs.
    """

    def __init__(self, frame: hook.Frame, sizes: DynamicSizes) -> None:
        shapes = Shapes(
            user_line=self.user_line,
            scalars=sizes.scalars,
            data_dependent=sizes.shapes,
            allow_non_fake_inputs=True,
        )
        super().__init__(shapes)
        self.frame = frame
        self.sizes = sizes
        self.guards = GuardList()
        self.effects = Effects()
        self.aliases: dict[Source, Any] = {}
        self.tensors: list[TensorValue] = []
        self.aliasing_matters = False
        self.looked_up: set[Source] = set()
        self.definitions = Definitions()
        self.identities = Identities()
        self.guarded_by_code: set[int] = set()
        self.modes = Modes()
        self.gradients_matter = False
        self.grad_before: bool = self.modes.value_before("grad")
        self.strict = self.strict_before = breaks_are_errors()
        self.top: Frame | None = None
        self.handled: list[HandlingValue] = []
        self.steps = 0
        self.walked: list[Frame] | None = [] if trace.enabled() else None
        self.stop_at: int | None = None
        self._answering: tuple[types.CodeType, ...] = ()
        self._calling: Value | None = None
        self._values: dict[int, tuple[Any, Value]] = {}
        self.made_inside: set[int] = set()
        self.leave_classes = False
        self.item_of_tensor: Callable[[Tracer, Value, Value], Value | None] | None = None
        self._kept: list[Any] = []
        self._cells: dict[int, tuple[types.CellType, CellValue]] = {}
        self._globals: dict[tuple[int, str], Value] = {}
        self._attributes: dict[int, AttributesValue] = {}
        self.overrides = overrides.Overrides.now(self)
        self.shapes.derived |= bool(self.overrides.outer_modes)

    # -- guards ----------------------------------------------------------------------------
    def user_line(self) -> tuple[str, int] | None:
        """Return file and line of the traced code at work, outside of libraries if it can be."""
        frame = self.top
        if frame is None:
            return None
        while frame.parent is not None and in_library(frame.code.co_filename):
            frame = frame.parent
        place = frame.place()
        return place.file, place.line

    def guard(self, kind: str, source: Source, value: Any = None) -> None:
        """Rest the result on a fact about a source; aliases of our own need no guard."""
        if self._is_held(kind, source, value):
            return
        if kind == "EQUALS_SET":
            kind, value = "EQUALS", frozenset(value)
            self.guards.add("LENGTH", source, set(value))
            for item in sorted(value, key=repr):
                self.guards.add("CONTAINS", source, item, self.user_line())
            return
        self.guards.add(kind, source, value, self.user_line())

    def guard_identity(self, source: Source, obj: Any) -> None:
        """Rest the result on which object is found at a source, whoever holds it."""
        self.guards.add("ID", source, obj, self.user_line())

    def _is_held(self, kind: str, source: Source, value: Any) -> bool:
        """Return whether a fact about what is found at a source holds without a guard of its own.

        The guard on definitions holds which classes, functions and modules the modules define, and
        the type of their data; that of an object made by a class statement can be set, though.
        Names of tc's own nobody else binds, and what a library keeps further down stays.
        """
        if kind not in ("ID", "TYPE", "CALLABLE_CODE"):
            return False
        fixed = not is_changeable(value) if kind == "TYPE" else is_definition(value)
        if source in self.looked_up and fixed:
            return True
        if source.root not in self.aliases:
            return False
        if source.parent is None:
            return fixed or kind != "TYPE"
        owner = self.aliases[source.root]
        if isinstance(owner, types.ModuleType):
            return is_library(owner.__name__)
        return is_library((owner if isinstance(owner, type) else type(owner)).__module__)

    def guard_property(self, tensor: TensorValue, name: str, method: bool = False) -> None:
        """Guard an attribute, or a method's answer, that the guard on tensors leaves out."""
        # Where gradients are off, the guard on tensors takes none of them to have any.
        held = self.grad_before if name == "requires_grad" else name in reads.OF_TENSOR_GUARD
        if not held:
            reads.guard_property(self, tensor, name, name if method else None)

    def ask_process_again(self, function: Callable[[], Any], name: str, answer: Any) -> None:
        """Guard the answer of a function of the process's state, which takes no arguments."""
        reads.ask_process_again(self, function, name, [], {}, answer)

    def guard_keys(self, value: DictValue) -> None:
        """Guard on all keys of a dict."""
        assert value.source is not None
        self.guard("DICT_KEYS", value.source, value.obj)

    def guard_contains(self, value: DictValue, key: Value, there: bool) -> None:
        """Guard on a key being in a dict or not."""
        assert value.source is not None
        if not is_constant_object(key.constant() if key.is_constant() else object()):
            value.whole(self)
            return
        self.guard("CONTAINS" if there else "NOT_CONTAINS", value.source, key.constant())

    def guard_absent(self, owner: ObjectValue, name: str) -> None:
        """Guard on an object not holding an attribute itself."""
        assert owner.source is not None
        if hasattr(owner.obj, "__dict__"):
            self.guard("NOT_CONTAINS", DictSource(owner.source), name)

    def number_is_dynamic(self, obj: float, source: Source) -> bool:
        """Say whether a number gets a symbol; attributes and defaults stay constants."""
        if not isinstance(source, LocalSource | ItemSource) or isinstance(
            source.root, GlobalSource
        ):
            return False
        if isinstance(source, ItemSource) and any(
            isinstance(step, AttrSource) for step in _chain(source)
        ):
            return False
        return self.sizes.number(source, obj)

    # -- wrapping --------------------------------------------------------------------------
    def wrap(self, obj: Any, source: Source) -> Value:
        """Return the value of a live object; one object, one value."""
        if is_constant_object(obj):
            return wrap_object(self, obj, source)
        known = self._values.get(id(obj))
        if known is not None:
            value = known[1]
            first = value.source
            if first is None or first.root in self.aliases:
                self._guard_same(obj, source, first)
            elif first != source:
                self.guard("DUPLICATE", source, first)
            return value
        value = wrap_object(self, obj, source)
        if not isinstance(obj, types.MethodType):
            self._values[id(obj)] = (obj, value)
        return value

    def make_inside(self, obj: Any, value: Value) -> None:
        """Let an object that lives only as long as the trace stand for a value."""
        self._values[id(obj)] = (obj, value)
        self.made_inside.add(id(obj))

    def names_bound_by(self, body: FunctionValue) -> dict[str, Value]:
        """Interpret the body of a class and return what it binds."""
        frame, caller = self._callee(body, {}), self.top
        try:
            frame.run()
        finally:
            self.top = caller
        return frame.locals

    def known_value(self, obj: Any) -> Value | None:
        """Return the value of an object that was wrapped before, or None."""
        known = self._values.get(id(obj))
        return known[1] if known is not None else None

    def values(self) -> list[Value]:
        """Return the values of all objects that were wrapped."""
        return [value for _, value in self._values.values()]

    def wrap_tensor(self, tensor: torch.Tensor, source: Source) -> TensorValue:
        """Return the value of a tensor made from a sourced object."""
        return wrap_tensor(self, tensor, source)

    def wrap_kept(self, obj: Any) -> Value:
        """Return the value of an object that compiled code keeps, not reached from the frame."""
        return self.wrap(obj, self.object_source(obj))

    def keep(self, obj: Any) -> None:
        """Keep an object alive as long as the trace."""
        self._kept.append(obj)

    def forget(self) -> None:
        """Let go of everything: the frame's objects are in cycles with this tracer."""
        vars(self).clear()

    def _guard_same(self, obj: Any, source: Source, first: Source | None) -> None:
        """Guard on an object that was met before where no guard says which object it is."""
        if first is None:
            if is_definition(obj):
                self.guard("ID", source, obj)
        elif first != source:
            same = is_definition(obj) or self._is_held("ID", first, obj)
            self.guard("ID" if same else "DUPLICATE", source, obj if same else first)

    def known(self, obj: Any) -> Value:
        """Return the value of an object that traced code made or that needs no guard."""
        if is_constant_object(obj):
            return ConstValue(obj)
        if type(obj) is list:
            return ListValue([self.known(item) for item in obj])
        if isinstance(obj, tuple):
            return TupleValue([self.known(item) for item in obj], kind=type(obj))
        if type(obj) is dict:
            return self.dict_of((k, self.known(v)) for k, v in obj.items())
        if type(obj) is set:
            return set_of(self, [self.known(item) for item in obj])
        if isinstance(obj, type):
            self.definitions.meet(obj)
            known = self._values.get(id(obj))
            return known[1] if known is not None else ClassValue(obj)
        return self.wrap(obj, self.object_source(obj))

    def lazy_slots(self, items: Any, source: Source) -> list[Slot]:
        """Return the items of a sequence, to be wrapped when looked at."""
        return [Lazy(item, ItemSource(source, index)) for index, item in enumerate(items)]

    def cell(self, cell: types.CellType, source: Source) -> CellValue:
        """Return the value of a real cell."""
        known = self._cells.get(id(cell))
        if known is None:
            known = self._cells[id(cell)] = (cell, CellValue(obj=cell, source=source))
        return known[1]

    def own_cell(self, cell: types.CellType, value: CellValue) -> None:
        """Make known a cell of the frame under capture."""
        self._cells[id(cell)] = (cell, value)

    # -- sources of what has none ----------------------------------------------------------
    def alias(self, name: str, obj: Any) -> GlobalSource:
        """Return a global under a name of our own that the residual code finds an object by."""
        source = GlobalSource(name)
        self.aliases[source] = obj
        return source

    def object_source(self, obj: Any) -> Source:
        """Return a source for an object that was not reached from the frame."""
        if isinstance(obj, types.ModuleType):
            name = "__import_" + obj.__name__.replace(".", "_dot_")
            if sys.modules.get(obj.__name__) is obj:
                return self.alias(name, obj)
        return self.alias(f"__tc_object_{id(obj):x}", obj)

    def source_of(self, value: Any) -> Source:
        """Return a value's source, making one for classes and modules reached otherwise."""
        return value.source if value.source is not None else self.object_source(value.obj)

    def load_global(self, module_globals: dict[str, Any], name: str) -> Value:
        """Return a global of a module, or a builtin."""
        stored = self.effects.global_value(module_globals, name)
        if stored is not None:
            return stored
        key = (id(module_globals), name)
        if key not in self._globals:
            self._globals[key] = self._find_global(module_globals, name)
        return self._globals[key]

    def _find_global(self, module_globals: dict[str, Any], name: str) -> Value:
        if name in module_globals:
            source = self.global_source(module_globals, name)
            if module_globals is not self.frame.globals:  # its own have guards of their own
                self.look_up(module_globals, name, source)
            return self.wrap(module_globals[name], source)
        builtins = module_globals.get("__builtins__", __builtins__)
        table = builtins if isinstance(builtins, dict) else vars(builtins)
        self.definitions.look_up(module_globals, name)
        self.definitions.look_up(table, name)
        if name not in table:
            return self.raise_(NameError, f"name {name!r} is not defined")
        return self.known(table[name])

    def look_up(self, namespace: dict[str, Any], name: str, source: Source) -> None:
        """Let the guard on definitions hold what a module has under a name, and be found there."""
        self.definitions.look_up(namespace, name)
        self.looked_up.add(source)

    def global_source(self, module_globals: dict[str, Any], name: str) -> Source:
        """Return the source of a global of any module."""
        if module_globals is self.frame.globals:
            return GlobalSource(name)
        module = sys.modules.get(module_globals.get("__name__", ""))
        if module is not None and module.__dict__ is module_globals:
            return AttrSource(self.object_source(module), name)
        return ItemSource(self.alias(f"__tc_globals_{id(module_globals):x}", module_globals), name)

    # -- calls -----------------------------------------------------------------------------
    def count_step(self, f: Frame) -> int:
        """Count an instruction that a frame begins. Raises Reached at the one to stop at."""
        self.steps += 1
        if self.steps == self.stop_at:
            f.step_number = self.steps
            raise breaks.Reached(f)
        return self.steps

    def call(self, f: Frame, function: Value, args: Args, kwargs: Kwargs) -> Value:
        """Call a value from a frame."""
        if isinstance(function, ClassValue) and function.obj is super and not args:
            return self._zero_argument_super(f)
        if isinstance(function, FunctionValue) and function.obj is trampoline:
            function, args = args[0], args[1:]
        self._answering = function.answering()
        self._calling = function
        return function.call(self, args, kwargs)

    @property
    def calling(self) -> str:
        """What was called last, in words."""
        return self._calling.describe() if self._calling is not None else ""

    def _zero_argument_super(self, f: Frame) -> Value:
        cls = f.cells["__class__"].load(self)
        first = f.code.co_varnames[0]
        return self.known(super).call(self, [cls, f.local(first)], {})

    def inline(self, function: FunctionValue, args: Args, kwargs: Kwargs) -> Value:
        """Interpret a call of a Python function as part of this frame."""
        answers, self._answering = function.code in self._answering, ()
        handler = torchfns.handler_of(function.obj) if function.obj is not None else None
        if handler is not None:
            return handler(self, args, kwargs)
        original = original_of(function.obj)
        if original is not None:  # compiled on its own: here it is a part of this frame
            inner = self._original(function, original)
            self._answering = inner.answering() if answers else ()
            return inner.call(self, args, kwargs)
        plain = optimizers.unpatched(function.obj)
        if plain is not function.obj:
            return self.inline_object(plain, args, kwargs)
        refuse_inlining(function)
        if function.obj is not None and getattr(function.obj, MARKED_CONSTANT, False):
            return constant_result(self, function.obj, args, kwargs)
        return self.interpret(function, args, kwargs, answers)

    def interpret(
        self, function: FunctionValue, args: Args, kwargs: Kwargs, answers: bool = False
    ) -> Value:
        """Interpret a call of a Python function, whatever handler there is for it."""
        refuse_coroutine(function.code)
        if function.obj is not None and id(function.obj) not in self.guarded_by_code:
            self.definitions.interpret(function.obj)
        if self.top is not None and self.top.depth > MAX_DEPTH:
            raise breaks.GraphBreak(
                breaks.UNSUPPORTED_CALL, f"{function.name} (calls nested {MAX_DEPTH} deep)"
            )
        frame = self._callee(function, bind(self, function, args, kwargs))
        if function.code.co_flags & inspect.CO_GENERATOR:
            return GeneratorValue(frame)
        frame.answers = answers
        caller = self.top
        try:
            return frame.run()
        finally:
            self.top = caller

    def real_object(self, value: Value) -> Any:
        """Return the object behind a value: a constant, or one that was there before the frame."""
        obj = getattr(value, "obj", None) if value.source is not None else None
        return self.concrete(value) if obj is None or self.effects.any() else obj

    def _original(self, function: FunctionValue, original: Any) -> Value:
        if function.source is None:
            return self.wrap_kept(original)
        return self.wrap(original, AttrSource(function.source, ORIGINAL))

    def _callee(self, function: FunctionValue, locals: dict[str, Value]) -> Frame:
        code = function.code
        cells = dict(zip(code.co_freevars, function.closure, strict=True))
        for name in code.co_cellvars:
            cells[name] = CellValue()
            if name in locals:
                cells[name].content = locals.pop(name)
            else:
                cells[name].content = None
        return Frame(self, code, locals, cells, function.module_globals, self.top)

    def inline_object(self, obj: Any, args: Args, kwargs: Kwargs | None = None) -> Value:
        """Interpret a call of a real Python function."""
        return self.known(obj).call(self, args, kwargs or {})

    def function_of_class(
        self, owner: Value, cls: type, raw: Any, name: str, inherited: bool
    ) -> Value:
        """Return the value of a function found in a class."""
        known = self._values.get(id(raw))
        if known is not None:
            return known[1]
        if not isinstance(raw, types.FunctionType):
            return self.known(raw)
        special = torchfns.classify(raw)
        if special is not None:
            return special(raw, None)
        value = wrap_function(self, raw, None)
        self._values[id(raw)] = (raw, value)
        return value

    def instantiate(self, cls: ClassValue, args: Args, kwargs: Kwargs) -> Value:
        """Call a class."""
        return instantiate(self, cls, args, kwargs)

    def bind_descriptor(
        self, owner: Value, cls: type, raw: Any, name: str, inherited: bool = False
    ) -> Value:
        """Read a class attribute through an instance."""
        if is_apply(cls, name):
            return autograd_functions.ApplyValue(ClassValue(cls))
        return bind_descriptor(self, owner, cls, raw, name, inherited)

    def bind_class_attr(self, owner: ClassValue, raw: Any, name: str) -> Value:
        """Read a class attribute through the class."""
        if is_apply(owner.obj, name):
            return autograd_functions.ApplyValue(owner)
        return bind_class_attr(self, owner, raw, name)

    def class_attr(self, owner: Value, cls: type, name: str) -> Value | None:
        """Read an attribute of an instance's class, or return None."""
        for base in cls.__mro__:
            if name in base.__dict__:
                return bind_descriptor(self, owner, cls, base.__dict__[name], name)
        return None

    def attributes_of(self, owner: ObjectValue) -> Value:
        """Return ``vars(owner)``, the same value each time."""
        if id(owner) not in self._attributes:
            self._attributes[id(owner)] = AttributesValue(owner)
        return self._attributes[id(owner)]

    def intercept(
        self, operation: Callable[..., Any], args: Args, kwargs: Kwargs | None = None
    ) -> Value | None:
        """Return what ``__torch_function__`` makes of an operation; None: nothing overrides it."""
        return overrides.intercept(self, operation, args, kwargs)

    def slot_method(self, owner: Value, raw: Any) -> Value:
        """Return a method of a builtin type bound to an object."""
        return slot_method(self, owner, raw)

    def initialise_lazy(self, module: NNModuleValue, args: Args, kwargs: Kwargs) -> None:
        """Initialise a module that waits for its first input; the frame is traced anew then."""
        if module.obj is not None and lazy_modules.is_waiting(module.obj):
            lazy_modules.initialise(self, module.obj, args, kwargs)

    def global_hooks(self) -> bool:
        """Say whether hooks for all modules are installed."""
        module = torch.nn.modules.module
        held = [getattr(module, name) for name in GLOBAL_HOOKS]
        for hooks_of_all in held:
            self.definitions.count(hooks_of_all)
        return any(held)

    # -- where -----------------------------------------------------------------------------
    def places(self) -> list[StackFrame]:
        """Return the user's stack at the instruction at work."""
        return self.top.places() if self.top is not None else []


def _chain(source: Source) -> list[Source]:
    found: list[Source] = []
    step: Source | None = source
    while step is not None:
        found.append(step)
        step = step.parent
    return found


__all__ = [
    "Tracer",
    "class_checks",
    "copies",
    "flex",
    "higher_order",
    "hooks",
    "iteration",
    "looping",
    "override_handlers",
    "pure",
    "pytrees",
    "signatures",
    "transforms",
]  # fmt: skip
