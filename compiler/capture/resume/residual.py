"""Residual code: the Python part of a captured frame, around its graph.

In: a finished trace (the values that must exist, the graph's outputs, the effects). Out: bytecode
that calls the graph, rebuilds objects, replays side effects, and returns or resumes.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch

from tc.compiler.capture import breaks, hook
from tc.compiler.capture.bytecode.emitter import Emitter
from tc.compiler.capture.bytecode.instructions import (
    Handler,
    Instruction,
    parameters_of,
)
from tc.compiler.capture.guards.memo import MakeMemo, reads
from tc.compiler.capture.parts.repeatable import may_run_again
from tc.compiler.capture.resume import rerun
from tc.compiler.capture.torch_api import overrides
from tc.compiler.capture.traceable import set_error_on_graph_break
from tc.compiler.capture.values.base import NULL, IteratorValue, Lazy, Slot, Value
from tc.compiler.capture.values.const import LITERALS, ConstValue
from tc.compiler.capture.values.dicts import DictView
from tc.compiler.capture.values.functions import CellValue
from tc.compiler.capture.values.lookup import MISSING, replaced_slot, type_lookup
from tc.compiler.capture.values.objects import Attributed
from tc.compiler.capture.values.random_numbers import draw
from tc.compiler.capture.values.tensor import NodeValue
from tc.compiler.core.sources import (
    AttrSource,
    CallSource,
    DictSource,
    DrawnSource,
    GlobalSource,
    ItemSource,
    LocalSource,
    Scope,
    Source,
    TypeSource,
)

if TYPE_CHECKING:
    from tc.compiler.capture.tracer import Tracer

OUTPUTS = "___tc_outputs"


class Residual:
    """Builds the residual code of one trace.

    Attributes:
        e: the emitter.
        outputs: values that the graph returns, in order.
        globals: of the frame under capture.
    """

    def __init__(self, t: Tracer, code: CodeType) -> None:
        self.t = t
        self.code = code
        self.globals = t.frame.globals
        self.e = Emitter(t.top.current.positions if t.top is not None else None)
        self.outputs: list[NodeValue] = []
        self._output_index: dict[int, int] = {}
        self._uses: Counter[int] = Counter()
        self._counted: list[Value] = []  # alive for their ids
        self._made: dict[int, Value] = {}
        self._visited: set[int] = set()
        self._rebuilt: set[int] = set()
        self._temporaries: dict[int, str] = {}
        self._shared_sources: dict[str, str] = {}
        self._unbound: dict[str, str] = {}
        self._before_writes: list[Instruction] | None = None
        self._leaving: list[Instruction] = []
        self._names = 0
        self._cells = {*code.co_cellvars, *code.co_freevars}

    # -- what is needed --------------------------------------------------------------------
    def need(self, values: Iterable[Value]) -> None:
        """Register values that the code will push, and all their parts."""
        for value in values:
            self._need(value, ())

    def _need(self, value: Value, above: tuple[int, ...]) -> None:
        key = id(value)
        if value is NULL or (isinstance(value, ConstValue) and not value.undecided):
            return
        if key in above:
            raise breaks.GraphBreak(
                breaks.UNSUPPORTED_VALUE, f"{value.describe()}, which contains itself,"
            )
        self._uses[key] += 1
        self._counted.append(value)
        if self._uses[key] > 1 or value.source is not None:
            self._uses[key] += 0 if value.source is None else 1
            self._need_changes(value)
            return
        if isinstance(value, NodeValue):
            self._output_index[key] = len(self.outputs)
            self.outputs.append(value)
            if not value.reloadable or self.t.effects.attributes_of(value):
                self._made[key] = value
                self._need_changes(value)
            return
        self._made[key] = value
        for child in value.children(self.t):
            self._need(child, (*above, key))
        self._need_changes(value)

    def _need_changes(self, value: Value) -> None:
        if id(value) in self._visited:
            return
        self._visited.add(id(value))
        fresh = value.source is None or self.t.effects.was_changed(value)
        if isinstance(value, Attributed | NodeValue) or (
            isinstance(value, CellValue) and fresh
        ):
            self.need(self.t.effects.contents(value))

    def need_effects(self, at_break: bool) -> None:
        """Register all values that the replay of effects needs."""
        for owner in self.t.effects.roots(at_break):
            self.need(self.t.effects.contents(owner))
            self.need(owner.children(self.t))
        self.need(value for _, _, value in self.t.effects.global_stores())
        self.need(self.t.overrides.changes()[1])
        self.need(self.t.effects.demanded)
        # needed twice: it is made once and kept in a local
        self.need(self.t.effects.demanded)

    def reached(self, values: Iterable[Value]) -> dict[int, Value]:
        """Return the values made here that others hold, by id, with those that are given.

        The others need not be made: what dead locals hold lives as well.
        """
        found: dict[int, Value] = {}
        waiting = [*values]
        while waiting:
            value = waiting.pop()
            if value is NULL or value.source is not None or id(value) in found:
                continue
            found[id(value)] = value
            with contextlib.suppress(breaks.SkipFrame):  # it cannot be made
                waiting += value.children(self.t)
            waiting += self.t.effects.contents(value)
        return {key: value for key, value in found.items() if key in self._made}

    # -- the graph -------------------------------------------------------------------------
    def draw(self, numbers: Iterable[DrawnSource]) -> None:
        """Emit calls that draw random numbers, which are kept in locals."""
        for one in numbers:
            self.load_callable(draw)
            self.load_source(one.owner)
            self.load_object(one.call)
            self.e.call(2)
            self._shared_sources[one.name] = self.store_new()

    def call_graph(
        self,
        name: str,
        inputs: Iterable[Source],
        memo: MakeMemo | None,
        exits: Sequence[Value] = (),
    ) -> None:
        """Emit the call of the compiled graph; its outputs are kept in a local.

        Args:
            name: the global that holds the compiled graph.
            memo: constructor of objects that read many inputs at once.
            exits: what leaves the ``with`` blocks that were entered before this code began, the
                outermost first. If the graph raises, they are called, as Python would.
        """
        sources = list(inputs)
        if memo is not None:
            self._read_at_once(sources, memo)
        prefixes: Counter[str] = Counter()
        for source in sources:
            step = source.parent if source.name not in self._shared_sources else None
            while step is not None:
                prefixes[step.name] += 1
                step = step.parent
        for source in sources:
            self._share_prefix(source, prefixes)
        below = overrides.runner(self.t)
        if may_run_again(self.t.output, self.code):
            self.e.handler = self._handler(lambda: self._run_again(exits))
        elif exits:
            self.e.handler = self._handler(lambda: self._leave(exits))
        if below is not None:
            self.load_callable(below)
            self.e.load_global(name)
        else:
            self.e.load_global(name, call=True)
        for source in sources:
            self.load_source(source)
        self.e.call(len(sources) + (below is not None))
        self.e.handler = None
        if self.outputs:
            self.e.store_fast(OUTPUTS)
        else:
            self.e.pop_top()

    def _handler(self, emit: Callable[[], None]) -> Handler:
        """Return a handler, at the end of the code, for an error of the graph.

        Args:
            emit: emits its code, which begins with the error on top of the stack.
        """
        e = self.e
        before, e.instructions = e.instructions, []
        # the handler alone has its values
        known = dict(self._temporaries), set(self._rebuilt)
        label = e.label()
        e.place(label)
        emit()
        self._leaving, e.instructions = e.instructions, before
        self._temporaries, self._rebuilt = known
        return Handler(label, 0, False)

    def _leave(self, exits: Sequence[Value]) -> None:
        """Emit calls of what leaves ``with`` blocks, and raise the error again."""
        self.load_callable(rerun.leave_blocks)
        self.e.copy(3)  # the error
        for one in exits:
            self.push(one)
        self.e.call(1 + len(exits))
        self.e.pop_top()
        self.e.emit("RERAISE", 0)

    def _run_again(self, exits: Sequence[Value]) -> None:
        """Emit a run of the frame by Python, whose result is returned."""
        self.load_callable(rerun.run_again)
        self.e.copy(3)  # the error
        self.e.load_const(self.t.output.handled)
        for one in exits:
            self.push(one)
        self.e.build_tuple(len(exits))
        self.e.make_function(
            hook.uncaptured(self.code.replace()), self.code.co_freevars
        )
        parameters = parameters_of(self.code)
        for name in parameters:
            self.load_source(LocalSource(name))
        self.e.build_tuple(len(parameters))
        self.e.call(5)
        self.e.return_value()

    def _read_at_once(self, sources: list[Source], memo: MakeMemo) -> None:
        """Emit reads of all sources below one object by one call, into locals."""
        names = {source.pretty: obj for source, obj in self.t.values.aliases.items()}
        scope = Scope(self.t.frame.locals, {**self.globals, **names})
        for base, steps, at in list(reads(sources, scope)):
            read = memo(steps.rows(), None, tuple(at), None)
            self.load_callable(read)
            self.load_source(base)
            self.e.call(1)
            self.e.unpack_sequence(len(at))
            for source in at.values():
                self._shared_sources[source.name] = self.store_new()

    def restore_modes(self) -> None:
        """Emit calls that leave torch in the modes that traced code set."""
        for (write, args), _ in self.t.modes.changes():
            self._call_with(write, *args)
        if self.t.strict != self.t.strict_before:
            self._call_with(set_error_on_graph_break, self.t.strict)
        gone, new = self.t.overrides.changes()
        for mode in self.t.overrides.outer_modes[-gone:] if gone else ():
            assert mode.source is not None
            self.load_source(mode.source)  # which the stack no longer holds
            self._shared_sources[mode.source.name] = self.store_new()
        for _ in range(gone):
            self._call_with(torch._C._pop_torch_function_stack)
        for mode in new:
            self._call_with(torch._C._push_on_torch_function_stack, mode)

    def _call_with(self, function: Any, *args: Any) -> None:
        self.load_callable(function)
        for arg in args:
            if isinstance(arg, Value):
                self.push(arg)
            else:
                self.e.load_const(arg)
        self.e.call(len(args))
        self.e.pop_top()

    def _share_prefix(self, source: Source, prefixes: Counter[str]) -> None:
        base = source.parent if source.name not in self._shared_sources else None
        if base is None or isinstance(base, LocalSource | GlobalSource):
            return
        if prefixes[base.name] > 1 and base.name not in self._shared_sources:
            self._share_prefix(base, prefixes)
            self.load_source(base)
            self._shared_sources[base.name] = self.store_new()

    # -- values ----------------------------------------------------------------------------
    def make_all(self) -> None:
        """Make the registered values that are new, in locals, or later where they are used."""
        later = self._made_after_writes()
        for value in list(self._made.values()):
            reloaded = isinstance(value, NodeValue) and value.reloadable
            if reloaded or id(value) in self._rebuilt or id(value) in later:
                continue  # parts that nothing else uses were made with the whole
            self.push(value)
            if id(value) in self._temporaries:
                self.e.pop_top()
            else:
                self._temporaries[id(value)] = self.store_new()

    def release(self, needed: Iterable[Value]) -> None:
        """Emit deletions of the locals that hold new values, but for those that are needed.

        What the program dropped dies where the program's own instruction is done with it.
        """
        kept = self.reached(needed)
        for key in [key for key in self._temporaries if key not in kept]:
            self.e.delete_fast(self._temporaries.pop(key))

    def _made_after_writes(self) -> set[int]:
        """Return the ids of iterators over containers whose change follows, and what holds them.

        An iterator's place may lie beyond the end of a list that was not extended yet, and Python
        refuses to continue an iterator once its dict or set has another size.
        """
        later: set[int] = set()
        for key, value in self._made.items():
            if not isinstance(value, IteratorValue):
                continue
            parts = value.children(self.t)
            if any(map(self._is_changed, parts)):
                later.add(key)

        count = 0
        while len(later) > count:
            count = len(later)
            for key, value in self._made.items():
                parts = value.children(self.t)
                if any(id(part) in later for part in parts):
                    later.add(key)
        return later

    def _is_changed(self, container: Value) -> bool:
        """Return whether this code changes a container, or that of a view."""
        if isinstance(container, DictView):
            container = container.owner
        return container.source is not None and self.t.effects.was_changed(container)

    def _read_by_push(self, value: Value) -> Source | None:
        """Return the source that a push of a value reads, if it reads one."""
        literal = isinstance(value, ConstValue) and value.is_literal()
        own_cell = isinstance(value, CellValue) and value.root_name is not None
        made = id(value) in self._temporaries
        return None if made or own_cell or literal else value.source

    def push(self, value: Value) -> None:
        """Emit code that pushes a value."""
        source = self._read_by_push(value)
        temporary = self._temporaries.get(id(value))
        if source is not None:
            self.load_source(source)
        elif temporary is not None:
            self.e.load_fast(temporary)
        elif value is NULL:
            self.e.push_null()
        elif isinstance(value, CellValue) and value.root_name is not None:
            self.e.load_closure(value.root_name)
        elif isinstance(value, ConstValue) and value.is_literal():
            self.e.load_const(value.obj)
        else:
            value.rebuild(self)
            self._rebuilt.add(id(value))
            touched = self.t.effects.attributes_of(value) or isinstance(
                value, CellValue
            )
            reloaded = isinstance(value, NodeValue) and value.reloadable
            if (self._uses[id(value)] > 1 or touched) and not reloaded:
                self.e.copy(1)
                self._temporaries[id(value)] = self.store_new()

    def push_slots(self, slots: list[Slot]) -> None:
        """Push the items of a container."""
        for slot in slots:
            if isinstance(slot, Lazy):
                self.load_source(slot.source)
            else:
                self.push(slot)

    def load_output(self, value: NodeValue) -> None:
        """Push an output of the graph."""
        self.e.load_fast(OUTPUTS)
        self.e.load_const(self._output_index[id(value)])
        self.e.load_subscr()

    def load_object(self, obj: Any) -> None:
        """Push any Python object, through a generated global."""
        if type(obj) in LITERALS:
            self.e.load_const(obj)
            return
        if id(obj) in self.t.values.made_inside:
            raise breaks.TraceAgain(leave_classes=True)
        source = self.t.values.object_source(obj)
        self.load_source(source)

    def load_callable(self, obj: Any) -> None:
        """Push a Python object that will be called."""
        self.e.before_callable()
        self.load_object(obj)
        self.e.after_callable()

    def call_method(
        self,
        owner: Value,
        name: str,
        argument: Callable[[], None] | None = None,
        keep: bool = False,
    ) -> None:
        """Emit ``owner.name(argument)``."""
        self.push(owner)
        self.e.load_method(name)
        if argument is not None:
            argument()
        self.e.call(0 if argument is None else 1)
        if not keep:
            self.e.pop_top()

    def unbind(self, name: str) -> None:
        """Emit the deletion of a frame's local; its sources still find the old value."""
        source = LocalSource(name)
        self.load_source(source)
        self._unbound[source.name] = self.store_new()
        self.e.delete_fast(name)

    def bind(self, name: str, value: Value) -> None:
        """Emit a store to a frame's local; sources that read it still find the old value."""
        source = LocalSource(name)
        if name in self.t.frame.locals and source.name not in self._unbound:
            self.load_source(source)
            self._unbound[source.name] = self.store_new()
        self.push(value)
        self.e.store_fast(name)

    def keep(self, value: Value) -> None:
        """Emit a read of what a value's source holds now, for pushes after code that may change it.

        Nobody else stores to the frame's own locals, but for those in cells.
        """
        source = self._read_by_push(value)
        if (
            source is None
            or not self._can_change(source)
            or source.name in self._shared_sources
        ):
            return
        if self._before_writes is not None:
            self._read_before_writes(source, self._before_writes)
        else:
            self.load_source(source)
            self._shared_sources[source.name] = self.store_new()

    def store_new(self) -> str:
        """Pop the top into a new local and return its name."""
        self._names += 1
        name = f"___tc_{self._names}"
        self.e.store_fast(name)
        return name

    # -- sources ---------------------------------------------------------------------------
    def load_source(self, source: Source) -> None:
        """Emit code that pushes what a source held before the frame changed anything."""
        shared = self._shared_sources.get(source.name)
        if (
            shared is None
            and self._before_writes is not None
            and self._can_change(source)
        ):
            shared = self._read_before_writes(source, self._before_writes)
        if shared is not None:
            self.e.load_fast(shared)
        elif source.name in self._unbound:
            self.e.load_fast(self._unbound[source.name])
        else:
            self._read(source)

    def _can_change(self, source: Source) -> bool:
        """Return whether the effects may put something else where a source reads."""
        if isinstance(source, LocalSource):
            return source.local in self._cells
        return source not in self.t.values.aliases

    def _read_before_writes(self, source: Source, before: list[Instruction]) -> str:
        """Emit a read in front of the effects, and return the local that it is kept in."""
        e = self.e
        later = e.instructions, e.handler, self._unbound
        self._before_writes = None
        e.instructions, e.handler, self._unbound = before, None, {}
        self._read(source)
        self._shared_sources[source.name] = local = self.store_new()
        e.instructions, e.handler, self._unbound = later
        self._before_writes = before
        return local

    def _read(self, source: Source) -> None:
        match source:
            case LocalSource(local):
                if local in self._cells:
                    self.e.load_deref(local)
                else:
                    self.e.load_fast(local)
            case GlobalSource(name):
                self.e.load_global(name)
            case AttrSource(base, attr):
                self.load_source(base)
                self.e.load_attr(attr)
            case ItemSource(base, key):
                self.load_source(base)
                if type(key) in LITERALS:
                    self.e.load_const(key)
                else:
                    self.load_object(key)
                self.e.load_subscr()
            case DictSource(base):
                self.load_source(base)
                self.e.load_attr("__dict__")
            case TypeSource(base):
                self._call_on(type, base)
            case CallSource(base, function):
                self._call_on(function, base)
            case _:
                raise breaks.GraphBreak(breaks.UNSUPPORTED_VALUE, source.name)

    def _call_on(self, function: Any, base: Source) -> None:
        self.load_callable(function)
        self.load_source(base)
        self.e.call(1)

    # -- effects ---------------------------------------------------------------------------
    def replay_effects(self, at_break: bool) -> None:
        """Emit all changes to objects that existed before, and the attributes of new ones.

        What they, and all code after them, read from outside is read in front of the first of
        them: none of it can be what another effect has put there.
        """
        before = self.e.instructions
        self.e.instructions, self._before_writes = [], before
        self.t.effects.replay(self, self._made, at_break)
        if not self.e.instructions:
            self.e.instructions, self._before_writes = before, None

    def assemble(self) -> CodeType:
        """Return the code object."""
        if self._before_writes is not None:
            self.e.instructions[:0] = self._before_writes
            self._before_writes = None
        self.e.extend(self._leaving)
        return self.e.assemble(self.code)

    def replay_attribute(self, owner: Value, name: str, value: Value | None) -> None:
        """Emit ``owner.name = value``, or ``del``, bypassing a method that was traced already."""
        verb = "__delattr__" if value is None else "__setattr__"
        kind = owner.cls if isinstance(owner, Attributed) else object
        plain = type_lookup(object, verb)
        hidden = isinstance(type_lookup(kind, name), property)
        if hidden or replaced_slot(kind, verb) is not MISSING:
            self.load_callable(plain)
            self.push(owner)
            self.e.load_const(name)
            if value is not None:
                self.push(value)
            self.e.call(2 if value is None else 3)
            self.e.pop_top()
            return
        if value is None:
            self.push(owner)
            self.e.delete_attr(name)
            return
        self.push(value)
        self.push(owner)
        self.e.store_attr(name)

    def replay_global(self, space: dict[str, Any], name: str, value: Value) -> None:
        """Emit a store to a global."""
        self.push(value)
        if space is self.globals:
            self.e.store_global(name)
            return
        self.load_object(space)
        self.e.load_const(name)
        self.e.store_subscr()
