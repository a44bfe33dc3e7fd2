"""Objects of classes that derive from a container written in C.

They have attributes as any object has. Their items lie in a storage, which is the value of a
container of the class that they derive from, so that each operation of that container is known
once; the methods that a class replaces are asked before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tc.compiler.capture.values.base import Args, Kwargs, LambdaValue, Value
from tc.compiler.capture.values.lookup import inherits, methods_of
from tc.compiler.capture.values.objects import ObjectValue
from tc.compiler.core.sources import Source

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter


class StoredObject(ObjectValue):
    """An instance of a subclass of a container written in C.

    Attributes:
        bases: the containers that its class may derive from, the most derived first.
        storage: its items.
    """

    bases: ClassVar[tuple[type, ...]]
    storage: Any

    def __init__(
        self,
        cls: type,
        obj: Any = None,
        source: Source | None = None,
    ) -> None:
        super().__init__(cls, obj, source)
        self.base = self.base_of(cls)

    @classmethod
    def base_of(cls, kind: type) -> type:
        """Return the container that a class derives from."""
        return next(one for one in cls.bases if issubclass(kind, one))

    def container(self) -> Value:
        return self.storage  # type: ignore[no-any-return]

    def leaves(self, name: str) -> bool:
        """Return whether its class leaves ``operator.<name>`` to what it derives from."""
        return inherits(self.cls, self.base, methods_of(name))

    def base_method(self, name: str) -> Value:
        """Return the method that the container itself has under a name, bound to the items."""

        def run(
            t: Interpreter,
            args: Args,
            kwargs: Kwargs,
        ) -> Value:
            return self.call_base(t, name, args, kwargs)

        return LambdaValue(run, f"{self.cls.__name__}.{name}")

    def call_base(
        self,
        t: Interpreter,
        name: str,
        args: Args,
        kwargs: Kwargs,
    ) -> Value:
        """Call a method of the container on the items; others of its kind give theirs."""
        found = t.attributes.builtin_method(self.storage, name)
        alike = [a.container() if isinstance(a, type(self)) else a for a in args]
        found = found.call(t, alike, kwargs)
        return self if found is self.storage else found

    def children(self, t: Interpreter) -> list[Value]:
        return self.storage.children(t)  # type: ignore[no-any-return]


def items_for(name: str, side: Value) -> Value:
    """Return the items of an object whose class leaves ``operator.<name>`` to its container."""
    leaves = isinstance(side, StoredObject) and side.leaves(name)
    return side.container() if leaves else side
