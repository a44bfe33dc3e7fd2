"""Users' annotations of functions: recorded as one node, refused, replaced, or folded."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tc.compiler.capture import breaks
from tc.compiler.capture.torch_api.opaque_call import (
    apply_whole,
    call_tree,
    holds_objects,
    is_apply,
)
from tc.compiler.capture.torch_api.subgraphs import map_items
from tc.compiler.capture.traceable import over_tensors
from tc.compiler.capture.values.arrays import ArrayValue
from tc.compiler.capture.values.base import (
    Args,
    KnownObject,
    Kwargs,
    LambdaValue,
    NotConstant,
    Value,
)
from tc.compiler.capture.values.builtins import BUILTINS
from tc.compiler.capture.values.const import is_constant_object
from tc.compiler.capture.values.dicts import DictValue
from tc.compiler.capture.values.lookup import read_runs_python
from tc.compiler.capture.values.tensor import TensorValue
from tc.compiler.core.once import loaded
from tc.compiler.errors import ForbiddenCall

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface

Call = Callable[["Interpreter", Any, Args, Kwargs], Value]


@dataclass(frozen=True)
class Annotation:
    """The handling of an annotated function: `call` gets the tracer, the function and arguments."""

    name: str
    call: Call


_ANNOTATIONS: dict[int, tuple[Any, Annotation]] = {}


def annotate(function: Any, name: str, call: Call) -> None:
    """Set the handling of a function's calls in traced code.

    A later annotation replaces an earlier one.
    """
    key = id(function)

    def forget(_: Any, annotations: dict[int, Any] = _ANNOTATIONS) -> None:
        annotations.pop(key, None)

    try:
        held: Any = weakref.ref(function, forget)
    except TypeError:
        held = function  # the annotation keeps the function alive, as its id is the key
    _ANNOTATIONS[key] = held, Annotation(name, call)


def annotation_of(function: Any) -> Annotation | None:
    """Return a function's annotation, made here or for torch.compile."""
    found = _ANNOTATIONS.get(id(function))
    if found is not None:
        return found[1]
    rules = loaded("torch._dynamo.trace_rules")
    if rules is None or read_runs_python(function, "__module__"):
        return None  # PyTorch's rules read where it is defined
    if not rules.is_callable_allowed(function):
        return None
    return LEAF if id(function) in getattr(rules, "_leaf_function_ids", ()) else ALLOWED


class AnnotatedValue(KnownObject):
    """A function that users annotated."""

    noun = "an annotated function"

    def describe(self) -> str:
        return getattr(self.obj, "__qualname__", repr(self.obj))

    def truth(self, t: Interpreter) -> bool:
        return True

    def attr(self, t: Interpreter, name: str) -> Value:
        if isinstance(self.obj, type) and is_apply(self.obj, name):
            whole = apply_whole(self.obj)
            return LambdaValue(
                lambda t, args, kwargs: t.output.call_torch(whole, args, kwargs),
                whole.__name__,
            )
        return t.python.folded(getattr, self.obj, name)

    def call(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        annotation = annotation_of(self.obj)
        assert annotation is not None
        return annotation.call(t, self.obj, args, kwargs)

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_object(self.obj)


# -- annotations ---------------------------------------------------------------------------------
def _record(t: Interpreter, obj: Any, args: Args, kwargs: Kwargs) -> Value:
    known = BUILTINS.get(id(obj))  # a C++ class that the tracer handles by itself
    if known is not None:
        return known(t, args, kwargs)
    given = [*args, *kwargs.values()]
    in_parts = any(holds_objects(t, value) for value in given)
    return (
        call_tree(t, obj, args, kwargs)
        if in_parts
        else t.output.call_torch(obj, args, kwargs)
    )


ALLOWED = Annotation("allowed", _record)


def _record_leaf(t: Interpreter, obj: Any, args: Args, kwargs: Kwargs) -> Value:
    """Record a call of what `torch._dynamo.decorators.leaf_function` made."""
    fake = obj._torchdynamo_leaf_fake_fn
    if fake is None:
        raise breaks.GraphBreak(
            breaks.UNSUPPORTED_CALL, f"{_name(obj)}, which has no register_fake"
        )
    return call_tree(t, obj, args, kwargs, fake)


LEAF = Annotation("leaf", _record_leaf)


def allow(function: Any) -> None:
    """Record each call of a function as one node, without tracing into it."""
    annotate(function, ALLOWED.name, ALLOWED.call)


def disallow(function: Any) -> None:
    """Break the graph at calls of a function."""

    def refuse(t: Interpreter, obj: Any, args: Args, kwargs: Kwargs) -> Value:
        raise breaks.GraphBreak(breaks.DISALLOWED_CALL, _name(obj))

    annotate(function, "disallowed", refuse)


def forbid(function: Any) -> None:
    """Raise where a function is called in traced code."""

    def refuse(t: Interpreter, obj: Any, args: Args, kwargs: Kwargs) -> Value:
        place = t.user_line()
        where = f" ({place[0]}:{place[1]})" if place is not None else ""
        raise ForbiddenCall(
            f"{_name(obj)}() must not be called in compiled code{where}; call it earlier"
        )

    annotate(function, "forbidden", refuse)


def substitute(function: Any, replacement: Any, original: Any, pure: bool) -> None:
    """Trace another function in the place of one; a pure one is folded where it can be."""

    def inline(t: Interpreter, obj: Any, args: Args, kwargs: Kwargs) -> Value:
        if pure:
            try:
                plain = [a.constant() for a in args]
                named = {name: value.constant() for name, value in kwargs.items()}
            except NotConstant:
                pass
            else:
                return t.values.known(t.python.run_now(original, *plain, **named))
        return t.inline_object(replacement, args, kwargs)

    annotate(function, "substituted", inline)


def constant_result(t: Interpreter, obj: Any, args: Args, kwargs: Kwargs) -> Value:
    """Call a function now, and treat its result as a constant."""
    plain = [t.python.real_object(a) for a in args]
    named = {name: t.python.real_object(value) for name, value in kwargs.items()}
    found = t.python.run_now(obj, *plain, **named)
    return (
        t.values.known(found)
        if is_constant_object(found)
        else t.values.wrap_kept(found)
    )


def fix_result(function: Any) -> None:
    """Call a function while tracing, and treat its result as a constant from then on."""
    annotate(function, "constant", constant_result)


def _over_tensors(t: Interpreter, obj: Any, args: Args, kwargs: Kwargs) -> Value:
    """Call a function of arrays on tensors, which are converted to arrays and back."""

    def enter(value: Value) -> Value | None:
        return ArrayValue(value) if isinstance(value, TensorValue) else None

    def leave(value: Value) -> Value | None:
        return value.tensor if isinstance(value, ArrayValue) else None

    function, given, named = args
    arrays = [map_items(t, item, enter) for item in given.unpack(t)]
    keywords = map_items(t, named, enter)
    assert isinstance(keywords, DictValue)
    names = t.python.concrete_list(keywords.keys(t))
    converted = dict(zip(names, keywords.values(t), strict=True))
    found = function.call(t, arrays, converted)
    return map_items(t, found, leave)


annotate(over_tensors, "over tensors", _over_tensors)


def _name(obj: Any) -> str:
    return getattr(obj, "__name__", None) or repr(obj)
