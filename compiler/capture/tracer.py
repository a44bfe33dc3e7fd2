"""The tracer of one frame: wraps objects, inlines calls, records guards, effects and the graph."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tc import trace
from tc.compiler.capture import breaks
from tc.compiler.capture.bytecode.continuation import trampoline
from tc.compiler.capture.bytecode.resume_functions import begins_with_break
from tc.compiler.capture.dynamism import DynamicSizes
from tc.compiler.capture.frame import Frame, Reached
from tc.compiler.capture.hook import ORIGINAL, original_of
from tc.compiler.capture.parts.class_attributes import ClassAttributes
from tc.compiler.capture.parts.guard_recorder import GuardRecorder
from tc.compiler.capture.parts.instantiate import instantiate
from tc.compiler.capture.parts.output_graph import OutputGraph
from tc.compiler.capture.parts.python_semantics import PythonSemantics
from tc.compiler.capture.parts.torch_state import TorchState
from tc.compiler.capture.parts.value_factory import ValueFactory
from tc.compiler.capture.shapes import Shapes
from tc.compiler.capture.skips import refuse_inlining
from tc.compiler.capture.torch_api import (
    lazy_modules,
    optimizers,
    overrides,
    torch_compiler,
)
from tc.compiler.capture.torch_api.annotated import constant_result
from tc.compiler.capture.torch_api.modes import Modes
from tc.compiler.capture.traceable import breaks_are_errors
from tc.compiler.capture.values.base import (
    UNBOUND,
    Args,
    HandlingValue,
    Kwargs,
    Value,
)
from tc.compiler.capture.values.effects import Effects
from tc.compiler.capture.values.functions import CellValue, FunctionValue
from tc.compiler.capture.values.generators import GeneratorValue, refuse_coroutine
from tc.compiler.capture.values.handlers import handler_of
from tc.compiler.capture.values.nn_modules import NNModuleValue
from tc.compiler.capture.values.objects import ClassValue, ObjectValue
from tc.compiler.capture.values.parameters import bind
from tc.compiler.core.sources import (
    AttrSource,
)
from tc.compiler.errors import in_library
from tc.trace.places import StackFrame

if TYPE_CHECKING:
    from tc.compiler.capture import hook
    from tc.compiler.capture.values.interfaces import Interpreter

#: maximum nesting of inlined calls; each needs about ten frames of the tracer
MAX_DEPTH = 80
#: attribute by which `torch.compiler.assume_constant_result` marks functions
MARKED_CONSTANT = "_dynamo_marked_constant"


class Tracer:
    """The state of one translation of one frame: it drives the frames, its parts do the rest.

    Attributes:
        output: the graph under construction.
        guards: records guards.
        values: makes the values of objects.
        attributes: looks up class attributes.
        python: operators, conversions and comparisons.
        state: the state of torch at the start of the frame.
        shapes: fake tensors and symbolic sizes.
        effects: the side effects of traced code.
        modes: global modes of torch as traced code sets them.
        overrides: the active ``__torch_function__`` overrides.
        top: the innermost running frame.
        handled: exceptions being handled, innermost last.
        strict: whether a graph break is an error here; None leaves it to ``fullgraph``.
        steps: instructions interpreted so far, in all frames.
        item_of_tensor: called first to index a tensor; None leaves it to torch.
        stop_at: the number of the instruction that ends the trace before it runs.
    """

    def __init__(self, frame: hook.Frame, sizes: DynamicSizes) -> None:
        self.frame = frame
        self.sizes = sizes
        self.shapes = Shapes(
            user_line=self.user_line,
            scalars=sizes.scalars,
            data_dependent=sizes.shapes,
            allow_non_fake_inputs=True,
        )
        self.modes = Modes()
        self.effects = Effects()
        self.state: TorchState = TorchState(self)
        self.output: OutputGraph = OutputGraph(self)
        self.guards: GuardRecorder = GuardRecorder(self)
        self.values: ValueFactory = ValueFactory(self)
        self.attributes: ClassAttributes = ClassAttributes(self)
        self.python: PythonSemantics = PythonSemantics(self)
        self.strict = self.strict_before = breaks_are_errors()
        self.top: Frame | None = None
        self.handled: list[HandlingValue] = []
        self.steps = 0
        self.walked: list[Frame] | None = [] if trace.enabled() else None
        self.stop_at: int | None = None
        self.leave_classes = False
        self.item_of_tensor: (
            Callable[[Interpreter, Value, Value], Value | None] | None
        ) = None
        self._tail_codes: tuple[types.CodeType, ...] = ()
        self.calling: Value | None = None
        self.overrides = overrides.Overrides.now(self)
        self.shapes.derived |= bool(self.overrides.outer_modes)

    def user_line(self) -> tuple[str, int] | None:
        """Return file and line of the current traced code, outside of libraries if possible."""
        frame = self.top
        if frame is None:
            return None
        while frame.parent is not None and in_library(frame.code.co_filename):
            frame = frame.parent
        place = frame.place()
        return place.file, place.line

    def names_bound_by(self, body: FunctionValue) -> dict[str, Value]:
        """Interpret the body of a class and return what it binds."""
        frame, caller = self._callee(body, {}), self.top
        try:
            frame.run()
        finally:
            self.top = caller
        return frame.locals

    def forget(self) -> None:
        """Drop all references: the frame's objects are in reference cycles with this tracer."""
        self.shapes.release_inputs()
        vars(self).clear()

    def count_step(self, f: Frame) -> int:
        """Count an instruction before it runs. Raises Reached at the instruction to stop at."""
        self.steps += 1
        if self.steps == self.stop_at:
            f.step_number = self.steps
            raise Reached(f)
        return self.steps

    def call(self, f: Frame, function: Value, args: Args, kwargs: Kwargs) -> Value:
        """Call a value from a frame."""
        if isinstance(function, ClassValue) and function.obj is super and not args:
            return self._zero_argument_super(f)
        if isinstance(function, FunctionValue) and function.obj is trampoline:
            function, args = args[0], args[1:]
            if isinstance(function, FunctionValue) and begins_with_break(function.code):
                raise breaks.Aftermath(breaks.UNSUPPORTED_CALL, function.name)
        self._tail_codes = function.tail_call_codes()
        self.calling = function
        return function.call(self, args, kwargs)

    def _zero_argument_super(self, f: Frame) -> Value:
        if not f.code.co_argcount:
            return self.python.raise_(RuntimeError, "super(): no arguments")
        first = f.code.co_varnames[0]
        held = first in f.cells or f.is_bound(first)
        owner = f.local(first) if held else UNBOUND
        if owner is UNBOUND:
            return self.python.raise_(RuntimeError, "super(): arg[0] deleted")
        if "__class__" not in f.cells:
            what = "super(): __class__ cell not found"
            return self.python.raise_(RuntimeError, what)
        cls = f.cells["__class__"].load(self)
        if cls is UNBOUND:
            return self.python.raise_(RuntimeError, "super(): empty __class__ cell")
        return self.values.known(super).call(self, [cls, owner], {})

    def inline(self, function: FunctionValue, args: Args, kwargs: Kwargs) -> Value:
        """Interpret a call of a Python function as part of this frame."""
        is_tail_call, self._tail_codes = function.code in self._tail_codes, ()
        handler = handler_of(function.obj) if function.obj is not None else None
        if handler is not None:
            return breaks.call_handler(function.describe(), handler, self, args, kwargs)
        inner = self._original(function)
        if inner is not None:  # a wrapped function: its original is inlined here
            self._tail_codes = inner.tail_call_codes() if is_tail_call else ()
            return inner.call(self, args, kwargs)
        plain = torch_compiler.arrays_function(function.obj) or optimizers.unpatched(
            function.obj
        )
        if plain is not function.obj:
            return self.inline_object(plain, args, kwargs)
        refuse_inlining(function)
        if function.obj is not None and vars(function.obj).get(MARKED_CONSTANT, False):
            return constant_result(self, function.obj, args, kwargs)
        return self.interpret(function, args, kwargs, is_tail_call)

    def interpret(
        self,
        function: FunctionValue,
        args: Args,
        kwargs: Kwargs,
        is_tail_call: bool = False,
    ) -> Value:
        """Interpret a call of a Python function, whatever handler there is for it."""
        refuse_coroutine(function.code)
        if (
            function.obj is not None
            and id(function.obj) not in self.guards.guarded_by_code
        ):
            self.guards.definitions.interpret(function.obj)
        if self.top is not None and self.top.depth > MAX_DEPTH:
            raise breaks.GraphBreak(
                breaks.UNSUPPORTED_CALL,
                f"{function.name} (calls nested {MAX_DEPTH} deep)",
            )
        frame = self._callee(function, bind(self, function, args, kwargs))
        if function.code.co_flags & inspect.CO_GENERATOR:
            return GeneratorValue(frame, function, args, kwargs)
        frame.is_tail_call = is_tail_call
        frame.leaves_out = isinstance(self.calling, NNModuleValue)
        caller = self.top
        try:
            return frame.run()
        finally:
            self.top = caller

    def _original(self, function: FunctionValue) -> Value | None:
        """Return the function that a compiled function was made of; None for other functions."""
        if original_of(function.obj) is not None:
            attribute = ORIGINAL
        elif torch_compiler.is_compiled_by_torch(function.obj):
            attribute = torch_compiler.COMPILED_FROM
        else:
            return None
        original = vars(function.obj)[attribute]
        if function.source is None:
            return self.values.wrap_kept(original)
        return self.values.wrap(original, AttrSource(function.source, attribute))

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

    def inline_object(
        self, obj: Any, args: Args, kwargs: Kwargs | None = None
    ) -> Value:
        """Interpret a call of a real Python function."""
        return self.values.known(obj).call(self, args, kwargs or {})

    def instantiate(self, cls: ClassValue, args: Args, kwargs: Kwargs) -> Value:
        """Call a class."""
        return instantiate(self, cls, args, kwargs)

    def intercept(
        self,
        operation: Callable[..., Any],
        args: Args,
        kwargs: Kwargs | None = None,
    ) -> Value | None:
        """Return the result of an operation's ``__torch_function__``.

        None if nothing overrides it.
        """
        return overrides.intercept(self, operation, args, kwargs)

    def initialise_lazy(self, module: ObjectValue, args: Args, kwargs: Kwargs) -> None:
        """Initialise a lazy module for its first input; the frame is then traced again."""
        if module.obj is not None and lazy_modules.is_waiting(module.obj):
            lazy_modules.initialise(self, module.obj, args, kwargs)

    def places(self) -> list[StackFrame]:
        """Return the user's stack at the current instruction."""
        return self.top.places() if self.top is not None else []
