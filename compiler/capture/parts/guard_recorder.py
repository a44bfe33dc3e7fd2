"""Records the guards of a trace: the facts about sources that its result depends on."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tc.compiler.capture.guards.definitions import (
    Definitions,
    is_changeable,
    is_definition,
)
from tc.compiler.capture.guards.facts import is_library
from tc.compiler.capture.guards.guard_list import GuardList
from tc.compiler.capture.parts import reads
from tc.compiler.capture.parts.identity import Identities
from tc.compiler.capture.values.base import Value
from tc.compiler.capture.values.const import is_constant_object
from tc.compiler.capture.values.dicts import DictValue
from tc.compiler.capture.values.objects import Attributed
from tc.compiler.capture.values.tensor import TensorValue
from tc.compiler.core.sources import (
    DictSource,
    Source,
    instance_dict,
)

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter


class GuardRecorder:
    """Records guards while a frame is traced.

    Attributes:
        recorded: the guards so far.
        definitions: classes, modules and functions that the result depends on.
        identities: the objects that it assumes to be distinct.
        looked_up: lookups of names in modules, which the guard on definitions covers.
        guarded_by_code: ids of functions that are guarded by their code, so that another function
            with the same code, which a caller makes at each call, passes as well.
        aliasing_matters: whether traced code wrote to tensors.
        gradients_matter: whether traced code switched gradients on.
    """

    def __init__(self, t: Interpreter) -> None:
        self.t = t
        self.recorded = GuardList()
        self.definitions = Definitions()
        self.identities = Identities()
        self.looked_up: set[Source] = set()
        self.guarded_by_code: set[int] = set()
        self.aliasing_matters = False
        self.gradients_matter = False

    def add(self, kind: str, source: Source, value: Any = None) -> None:
        """Guard a fact about a source; global aliases that tc itself made need no guard."""
        if self._is_held(kind, source, value):
            return
        if kind == "EQUALS_SET":
            self.recorded.add("LENGTH", source, set(value))
            for item in sorted(value, key=repr):  # a refusal then names the item
                self.recorded.add("CONTAINS", source, item, self.t.user_line())
            self.recorded.add("ITEMS", source, value, self.t.user_line())
            return
        self.recorded.add(kind, source, value, self.t.user_line())

    def identity(self, source: Source, obj: Any) -> None:
        """Guard which object is found at a source, even one that something else already guards."""
        self.recorded.add("ID", source, obj, self.t.user_line())

    def _is_held(self, kind: str, source: Source, value: Any) -> bool:
        """Return whether a fact about the value of a source needs no guard of its own.

        The guard on definitions covers the classes, functions and modules that modules define, and
        the types of their data, except of objects whose ``__class__`` can be set. Only tc binds the
        names that it makes, and the deeper contents of a library are assumed to stay the same.
        """
        if kind not in ("ID", "TYPE", "CALLABLE_CODE"):
            return False
        fixed = not is_changeable(value) if kind == "TYPE" else is_definition(value)
        if source in self.looked_up and fixed:
            return True
        if source.root not in self.t.values.aliases:
            return False
        if source.parent is None:
            return fixed or kind != "TYPE"
        owner = self.t.values.aliases[source.root]
        if isinstance(owner, types.ModuleType):
            return is_library(owner.__name__)
        return is_library(
            (owner if isinstance(owner, type) else type(owner)).__module__
        )

    def tensor_property(
        self, tensor: TensorValue, name: str, method: bool = False
    ) -> None:
        """Guard an attribute, or a method's result, that the TENSOR guard does not cover."""
        # With gradients off, the TENSOR guard assumes that no tensor requires any.
        held = (
            self.t.state.grad_before
            if name == "requires_grad"
            else name in reads.OF_TENSOR_GUARD
        )
        if not held:
            reads.guard_property(self.t, tensor, name, name if method else None)

    def ask_process_again(
        self, function: Callable[[], Any], name: str, answer: Any
    ) -> None:
        """Guard the result of a function without arguments that reads the state of the process."""
        reads.ask_process_again(self.t, function, name, [], {}, answer)

    def keys(self, value: DictValue) -> None:
        """Guard on all keys of a dict."""
        assert value.source is not None
        self.add("DICT_KEYS", value.source, value.obj)

    def contains(self, value: DictValue, key: Value, there: bool) -> None:
        """Guard on a key being in a dict or not."""
        assert value.source is not None
        if not is_constant_object(key.constant() if key.is_constant() else object()):
            value.whole(self.t)
            return
        self.add("CONTAINS" if there else "NOT_CONTAINS", value.source, key.constant())

    def absent(self, owner: Attributed, name: str) -> None:
        """Guard that an object's instance dictionary lacks an attribute."""
        assert owner.source is not None
        if instance_dict(owner.obj) is not None:
            self.add("NOT_CONTAINS", DictSource(owner.source), name)

    def same(self, obj: Any, source: Source, first: Source | None) -> None:
        """Guard that a source leads to an object seen before, where no guard fixes its identity."""
        if first is None:
            if is_definition(obj):
                self.add("ID", source, obj)
        elif first != source:
            same = is_definition(obj) or self._is_held("ID", first, obj)
            self.add("ID" if same else "DUPLICATE", source, obj if same else first)

    def look_up(self, namespace: dict[str, Any], name: str, source: Source) -> None:
        """Let the guard on definitions cover a name of a module; record the lookup."""
        self.definitions.look_up(namespace, name)
        self.looked_up.add(source)
