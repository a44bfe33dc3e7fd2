"""Variables of `contextvars`: reads are guarded, and final values are set after the graph."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Any

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import Args, KnownObject, Kwargs, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.deferred_calls import DeferredCall
from tc.compiler.core.sources import AttrSource, CallSource, Source

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface

#: method of a context variable -> the numbers of arguments that it accepts
ARITIES = {"get": (0, 1), "set": (1,), "reset": (1,)}


class ContextVarValue(KnownObject):
    """A `contextvars.ContextVar`.

    Attributes:
        content: its value; None if it has none or was not read yet.
    """

    noun = "a context variable"

    def __init__(self, obj: Any, source: Source) -> None:
        super().__init__(obj, source)
        self.content: Value | None = None
        self._looked = False

    def attr(self, t: Interpreter, name: str) -> Value:
        return (
            t.values.known(self.obj.name)
            if name == "name"
            else t.attributes.builtin_method(self, name)
        )

    def method(self, t: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        if kwargs or len(args) not in ARITIES.get(name, ()):
            self.cannot(breaks.UNSUPPORTED_CALL, f"ContextVar.{name}")
        if name == "get":
            return self._get(t, args)
        if name == "set":
            return self._set(t, args[0])
        return self._reset(t, args[0])

    def _look(self, t: Interpreter) -> Value | None:
        """Return its value, or None."""
        if not self._looked:
            self._looked = True
            assert self.source is not None
            held = CallSource(self.source, _held, "{}.get()")
            found = _held(self.obj)
            if found is NOTHING:
                t.guards.add("ID", held, found)
            else:
                self.content = t.values.wrap(found, held)
        return self.content

    def _get(self, t: Interpreter, args: Args) -> Value:
        found = self._look(t) or (args[0] if args else self._default(t))
        return (
            found if found is not None else t.python.raise_(LookupError, repr(self.obj))
        )

    def _default(self, t: Interpreter) -> Value | None:
        """Return the default of the variable, or None."""
        assert self.source is not None
        found = _default(self.obj)
        return (
            None
            if found is NOTHING
            else t.values.wrap(found, CallSource(self.source, _default, "{}'s default"))
        )

    def _set(self, t: Interpreter, value: Value) -> Value:
        token = TokenValue(self, value, self._look(t))
        self.content = value
        t.effects.demand(token)
        return token

    def _reset(self, t: Interpreter, token: Value) -> Value:
        if isinstance(token, TokenValue) and token.of is self:
            undone, before = t.effects.demanded[-1:] == [token], token.before
            if token.used:
                return t.python.raise_(
                    RuntimeError, f"{token.describe()} has already been used once"
                )
            token.used = True
        elif isinstance(token, SourcedToken) and token.obj.var is self.obj:
            undone, before = False, token.before(t)
        else:
            self.cannot(
                breaks.UNSUPPORTED_CALL,
                "ContextVar.reset() with the token of another variable",
            )
        self._look(t)
        self.content = before
        if isinstance(token, TokenValue) and undone:
            token.undone = True
            t.effects.withdraw(token)
        else:
            t.effects.demand(
                DeferredCall(contextvars.ContextVar.reset, [self, token], {})
            )
        return ConstValue(None)


class TokenValue(DeferredCall):
    """What ``ContextVar.set`` of traced code returns; making it sets the variable.

    Attributes:
        before: the earlier value of the variable, or None.
        used: whether the variable was reset with it.
        undone: whether nothing could read the variable before the reset: it need not be set.
    """

    noun = "a token of a context variable"

    def __init__(self, of: ContextVarValue, value: Value, before: Value | None) -> None:
        super().__init__(contextvars.ContextVar.set, [of, value], {})
        self.of, self.before = of, before
        self.used = self.undone = False

    def python_type(self) -> type:
        return contextvars.Token

    def rebuild(self, r: ResidualInterface) -> None:
        if self.undone:
            self.cannot(breaks.UNSUPPORTED_VALUE, "a token that was already used")
        super().rebuild(r)


class SourcedToken(KnownObject):
    """An existing token."""

    noun = TokenValue.noun

    def before(self, t: Interpreter) -> Value | None:
        """Return the value that the variable had before it was set, or None."""
        assert self.source is not None
        old, where = self.obj.old_value, AttrSource(self.source, "old_value")
        if old is contextvars.Token.MISSING:
            t.guards.add("ID", where, old)
            return None
        return t.values.wrap(old, where)


def wrap_context_var(t: Interpreter, obj: Any, source: Source) -> Value:
    """Return the value of an existing context variable."""
    t.guards.add("ID", source, obj)
    return ContextVarValue(obj, source)


def wrap_token(t: Interpreter, obj: Any, source: Source) -> Value:
    """Return the value of an existing token: each call has another token, of the same kind."""
    t.guards.add("TYPE", source, type(obj))
    t.guards.add("ID", AttrSource(source, "var"), obj.var)
    return SourcedToken(obj, source)


NOTHING = object()


def _held(variable: Any) -> Any:
    return variable.get(NOTHING)


def _default(variable: Any) -> Any:
    try:
        # in a context where nothing is set
        return contextvars.Context().run(variable.get)
    except LookupError:
        return NOTHING
