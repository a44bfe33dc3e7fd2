"""Handlers of builtin functions and types, one for each function."""

from __future__ import annotations

import collections
import inspect
import operator
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tc.compiler.capture import breaks
from tc.compiler.capture.bytecode.resume_functions import INNER, STACK_PREFIX
from tc.compiler.capture.values.base import (
    UNBOUND,
    Args,
    KnownObject,
    Kwargs,
    LambdaValue,
    Raised,
    Value,
)
from tc.compiler.capture.values.builtin_arguments import bound_arguments
from tc.compiler.capture.values.const import ConstMethod, ConstValue, is_constant_object
from tc.compiler.capture.values.containers import ListValue, TupleValue
from tc.compiler.capture.values.deques import DequeValue
from tc.compiler.capture.values.dicts import DICT_KINDS, DictValue
from tc.compiler.capture.values.exceptions import ExceptionValue
from tc.compiler.capture.values.functions import MethodValue
from tc.compiler.capture.values.lookup import MISSING, read_runs_python, type_lookup
from tc.compiler.capture.values.nn_modules import NNModuleValue
from tc.compiler.capture.values.number_objects import NumberObjectValue, base_of
from tc.compiler.capture.values.objects import Attributed, ClassValue, ObjectValue
from tc.compiler.capture.values.sets import set_from, set_of
from tc.compiler.capture.values.slices import SliceValue
from tc.compiler.capture.values.stand_ins import call_handler
from tc.compiler.capture.values.stored_objects import StoredObject
from tc.compiler.capture.values.super_calls import SuperValue
from tc.compiler.capture.values.tensor import SymValue, TensorValue
from tc.compiler.core.sources import AttrSource
from tc.compiler.core.symbolic import MATH
from tc.compiler.core.table import Table

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface

Handler = Callable[["Interpreter", Args, Kwargs], Value]
#: builtin functions and types by identity
BUILTINS: Table[int, Handler] = Table("builtins")
#: functions without side effects: folded when all arguments are constants
#: functions of state that the process may change: evaluated again at each call
ASKED_AGAIN = frozenset(map(id, (sys.getrecursionlimit,)))
PURE_MODULES = frozenset(
    ("math", "operator", "_operator", "cmath", "itertools", "_struct")
)
PURE = frozenset(
    id(f)
    for f in (
        abs,
        ascii,
        bin,
        chr,
        divmod,
        format,
        hash,
        hex,
        len,
        oct,
        ord,
        pow,
        repr,
        round,
        sum,
        min,
        max,
        sorted,
        callable,
        str.maketrans,
        sys.intern,
    )
)


def builtin(*functions: Any) -> Callable[[Handler], Handler]:
    """Register the handler of builtin functions."""

    def register(handler: Handler) -> Handler:
        for function in functions:
            BUILTINS.add(id(function), handler)
        return handler

    return register


#: home of the records that pybind11 binds its functions to, which their qualified names begin with
_PYBIND: Final = "pybind11_builtins"


class BuiltinValue(KnownObject):
    """A function implemented in C."""

    noun = "a builtin function"

    def describe(self) -> str:
        module = getattr(self.obj, "__module__", None) or ""
        name = getattr(
            self.obj, "__qualname__", getattr(self.obj, "__name__", repr(self.obj))
        )
        if type(getattr(self.obj, "__self__", None)).__module__ == _PYBIND:
            name = self.obj.__name__
        return f"{module}.{name}".removeprefix("builtins.").lstrip(".")

    def truth(self, t: Interpreter) -> bool:
        return True

    def attr(self, t: Interpreter, name: str) -> Value:
        return t.python.folded(getattr, self.obj, name)

    def call(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        handler = BUILTINS.get(id(self.obj))
        if handler is not None:
            args, kwargs = bound_arguments(t, self.obj, args, kwargs)
            if id(self.obj) in PURE:
                return call_handler(t, self.obj, handler, args, kwargs)
            return handler(t, args, kwargs)
        module = getattr(self.obj, "__module__", None)
        name = getattr(self.obj, "__name__", "")
        owner = getattr(self.obj, "__self__", None)
        if owner is not None and is_constant_object(owner):
            return t.values.known(owner).method(t, name, args, kwargs)
        if isinstance(owner, type) and name != "__new__":
            special = CLASS_METHODS.get(name)
            if special is not None:
                return special(t, owner, *bound_arguments(t, self.obj, args, kwargs))
            # unlike `datetime.now` and `__subclasses__`
            if name not in PURE_CLASS_METHODS:
                self.cannot(breaks.of_call(self.describe()), f"{self.describe()}()")
            return self._fold(t, args, kwargs)
        if module in ("_operator", "operator") or id(self.obj) in OPERATORS:
            args, kwargs = bound_arguments(t, self.obj, args, kwargs)
            return _operator(t, OPERATORS.get(id(self.obj), name), args, kwargs)
        if isinstance(
            self.obj, types.MethodDescriptorType | types.WrapperDescriptorType
        ):
            if args and not issubclass(args[0].python_type(), self.obj.__objclass__):
                other = type(args[0].python_type().__name__, (), {})
                t.python.fold(self.obj, other())  # Python's own error
            overridden = type_lookup(args[0].python_type(), name) is not self.obj
            if overridden and isinstance(
                args[0], ObjectValue | TupleValue | NumberObjectValue
            ):
                method = slot_method(t, args[0], self.obj)
                return method.call(t, args[1:], kwargs)
            if overridden and isinstance(args[0], ConstValue):
                return self._fold(t, args, kwargs)
            return args[0].method(t, name, args[1:], kwargs)
        if id(self.obj) in ASKED_AGAIN:
            answer = self.obj(*map(t.python.concrete, args))
            t.guards.ask_process_again(self.obj, name, answer)
            return t.values.known(answer)
        if id(self.obj) in PURE or module in PURE_MODULES:
            return self._fold(t, args, kwargs)
        self.cannot(breaks.of_call(self.describe()), f"{self.describe()}()")

    def _fold(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        symbolic = MATH.get(self.obj)
        if symbolic is not None and len(args) == 1 and isinstance(args[0], SymValue):
            return t.output.call_torch(symbolic, args, {})
        if any(isinstance(a, TensorValue) for a in args):
            self.cannot(breaks.TENSOR_ITEM, "Tensor.__float__()")
        plain = t.python.concrete_list(args)
        return t.python.folded(self.obj, *plain, **t.python.concrete_dict(kwargs))

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_object(self.obj)


#: class methods in C that are pure functions of their arguments
PURE_CLASS_METHODS = frozenset(
    (
        "from_bytes",
        "fromhex",
        "maketrans",
        "mro",
        "__instancecheck__",
        "__subclasscheck__",
        "__subclasshook__",
        "__init_subclass__",
        "fromisoformat",
        "fromordinal",
    )
)
#: methods that C classes offer on the class itself, by name
CLASS_METHODS: dict[str, Callable[[Interpreter, type, Args, Kwargs], Value]] = {}
OPERATORS = {
    id(getattr(operator, name)): name
    for name in dir(operator)
    if isinstance(getattr(operator, name), types.BuiltinFunctionType)
}


def _operator(t: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
    if name == "getitem":
        return args[0].item(t, args[1])
    if name == "setitem":
        args[0].set_item(t, args[1], args[2])
        return ConstValue(None)
    if name == "delitem":
        args[0].del_item(t, args[1])
        return ConstValue(None)
    if name == "contains":
        return t.python.contains(args[0], args[1])
    if name in ("is_", "is_not"):
        return ConstValue(t.python.identical(args[0], args[1]) == (name == "is_"))
    if name == "not_":
        return t.python.logical_not(args[0])
    if name == "truth":
        return ConstValue(args[0].truth(t))
    if name == "index":
        return t.python.index(args[0])
    if len(args) == 1:
        return t.python.unary(name, args[0])
    if len(args) == 2:
        return t.python.binary(name, args[0], args[1])
    raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, f"operator.{name}")


# -- types -----------------------------------------------------------------------------------
@builtin(type)
def _type(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1:
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, "type() with three arguments")
    return t.values.known(args[0].python_type())


@builtin(super)
def _super(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 2 or t.python.is_none(args[1]):
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, "super() of no object")
    cls, owner = t.python.concrete(args[0]), args[1]
    if not isinstance(cls, type):
        t.python.fold(super, cls, None)  # Python's own error
    of_class = owner.obj.__mro__ if isinstance(owner, ClassValue) else ()
    if cls not in (*owner.python_type().__mro__, *of_class):
        text = "super(type, obj): obj must be an instance or subtype of type"
        t.python.raise_(TypeError, text)
    return SuperValue(cls, owner)


@builtin(object)
def _object(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    if args or kwargs:
        t.python.fold(object, None)  # Python's own error
    return ObjectValue(object)


@builtin(object.__new__)
def _object_new(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    if not args:
        t.python.fold(object.__new__)  # Python's own error
    cls = t.python.concrete(args[0])
    if issubclass(cls, BaseException):
        return ExceptionValue(cls, list(args[1:]))
    refuse_abstract(t, cls, args[1:], kwargs)
    return ObjectValue(cls)


def refuse_abstract(t: Interpreter, cls: type, args: Args, kwargs: Kwargs) -> None:
    """Raise what ``object.__new__`` raises for a class with abstract methods."""
    methods = vars(cls).get("__abstractmethods__")
    if methods is not None and id(cls) not in t.values.made_inside:
        owner = t.values.source_of(t.values.known(cls))
        t.values.wrap(frozenset(methods), AttrSource(owner, "__abstractmethods__"))
    if inspect.isabstract(cls):
        named = dict.fromkeys(kwargs)
        t.python.fold(object.__new__, cls, *map(_none, args), **named)


def _none(_: Value) -> None:
    """Return what takes the place of an argument that nothing reads."""


@builtin(vars(type)["__call__"])
def _type_call(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Make an object past the ``__call__`` of a metaclass."""
    cls = ClassValue(t.python.concrete(args[0]))
    cls.past_metaclass = True
    return cls.call(t, args[1:], kwargs)


@builtin(object.__init__)
def _object_init(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    kind = args[0].python_type()
    if len(args) > 1 or kwargs:  # which another `__new__` may take
        if type_lookup(kind, "__init__") is not object.__init__:
            text = "object.__init__() takes exactly one argument (the instance to initialize)"
            t.python.raise_(TypeError, text)
        if type_lookup(kind, "__new__") is object.__new__:
            t.python.raise_(TypeError, f"{kind.__name__}() takes no arguments")
    return ConstValue(None)


@builtin(callable)
def _callable(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    value = args[0]
    try:
        kind = value.python_type()
    except breaks.GraphBreak:  # a callable of the tracer's own
        return ConstValue(True)
    return ConstValue(type_lookup(kind, "__call__") is not MISSING)


# -- containers ------------------------------------------------------------------------------
@builtin(list)
def _list(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    return ListValue(list(args[0].unpack(t)) if args else [])


@builtin(tuple)
def _tuple(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    return TupleValue(list(args[0].unpack(t)) if args else [])


@builtin(set)
def _set(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    return set_from(t, args[0]) if args else set_of(t, [])


@builtin(frozenset)
def _frozenset(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    if args and args[0].python_type() is frozenset:
        return args[0]
    made = set_from(t, args[0], frozenset) if args else set_of(t, [], frozenset)
    return ConstValue(made.table) if all(map(is_constant_object, made.items)) else made


@builtin(collections.deque)
def _deque(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    limit = kwargs.get("maxlen", args[1] if len(args) > 1 else ConstValue(None))
    items = args[0] if args else kwargs.get("iterable")
    made = DequeValue([], maxlen=t.python.concrete(limit))
    if items:
        made.method(t, "extend", [items], {})
    return made


def _dict_of_kind(kind: type) -> Handler:
    def make(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        rest = list(args)
        made = DictValue({}, kind=kind)
        if kind is collections.defaultdict and rest:
            made.start(t, rest.pop(0))
        made.method(t, "update", rest, kwargs)
        return made

    return make


for _kind in (dict, collections.OrderedDict, collections.defaultdict):
    BUILTINS.add(id(_kind), _dict_of_kind(_kind))


def _fromkeys(t: Interpreter, cls: type, args: Args, kwargs: Kwargs) -> Value:
    value = args[1] if len(args) > 1 else kwargs.get("value", ConstValue(None))
    if cls not in DICT_KINDS:  # a subclass, which may define how items are stored
        filled = t.instantiate(ClassValue(cls), [], {})
        for key in args[0].each(t):
            filled.set_item(t, key, value)
        return filled
    made = t.values.dict_of((key, value) for key in args[0].each(t))
    made.kind = cls
    return made


CLASS_METHODS["fromkeys"] = _fromkeys


@builtin(slice)
def _slice(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    none: Value = ConstValue(None)
    if len(args) == 1:
        return SliceValue([none, args[0], none])
    return SliceValue([*args, none][:3])


@builtin(range)
def _range(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    return t.python.folded(range, *t.python.concrete_list(args))


@builtin(len)
def _len(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    return args[0].length(t)


# -- attributes ------------------------------------------------------------------------------
def _attribute_name(t: Interpreter, value: Value) -> str:
    name = t.python.concrete(value)
    if not isinstance(name, str):
        text = f"attribute name must be string, not '{type(name).__name__}'"
        return t.python.raise_(TypeError, text)
    return name


@builtin(getattr)
def _getattr(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    name = _attribute_name(t, args[1])
    if len(args) == 2:
        return args[0].attr(t, name)
    try:
        return args[0].attr(t, name)
    except Raised as raised:
        if issubclass(raised.value.python_type(), AttributeError):
            return args[2]
        raise


@builtin(hasattr)
def _hasattr(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    name = _attribute_name(t, args[1])
    try:
        args[0].attr(t, name)
    except breaks.GraphBreak as cause:
        if cause.reason is not breaks.UNSUPPORTED_ATTR:
            raise
        if args[0].obj is not None and read_runs_python(args[0].obj, name):
            raise
        if args[0].has_own("__getattr__", "__getattribute__"):
            raise
        return ConstValue(_has_unread(t, args[0], name))
    except Raised as raised:
        if issubclass(raised.value.python_type(), AttributeError):
            if args[0].source is not None and _is_absent(args[0], name):
                t.guards.add("NO_ATTR", args[0].source, name)
            return ConstValue(False)
        raise
    return ConstValue(True)


def _is_absent(owner: Value, name: str) -> bool:
    """Return whether an object itself lacks an attribute: no code says so, traced or not."""
    if not isinstance(owner, Attributed) or read_runs_python(owner.obj, name):
        return False
    return not hasattr(owner.obj, name)  # else traced code deleted it


def _has_unread(t: Interpreter, owner: Value, name: str) -> bool:
    """Return whether an attribute that cannot be read exists on the class or the real object."""
    obj = owner.obj
    if obj is None or owner.source is None:
        return type_lookup(owner.python_type(), name) is not MISSING
    there = hasattr(obj, name)
    t.guards.add("HASATTR" if there else "NO_ATTR", owner.source, name)
    return there


@builtin(setattr)
def _setattr(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    args[0].set_attr(t, _attribute_name(t, args[1]), args[2])
    return ConstValue(None)


@builtin(object.__setattr__)
def _object_setattr(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    owner = args[0]
    if not isinstance(owner, Attributed):
        raise breaks.GraphBreak(breaks.UNSUPPORTED_STORE, owner.describe())
    owner.generic_set_attr(t, _attribute_name(t, args[1]), args[2])
    return ConstValue(None)


@builtin(object.__delattr__)
def _object_delattr(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    owner = args[0]
    if not isinstance(owner, Attributed):
        raise breaks.GraphBreak(breaks.UNSUPPORTED_STORE, owner.describe())
    owner.generic_del_attr(t, _attribute_name(t, args[1]))
    return ConstValue(None)


@builtin(object.__getattribute__)
def _object_getattribute(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    owner = args[0]
    if not isinstance(owner, Attributed):
        return owner.attr(t, t.python.concrete(args[1]))
    found = owner.find(t, t.python.concrete(args[1]))
    return (
        found
        if found is not None
        else t.python.raise_(AttributeError, t.python.concrete(args[1]))
    )


@builtin(delattr)
def _delattr(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    args[0].del_attr(t, t.python.concrete(args[1]))
    return ConstValue(None)


@builtin(vars)
def _vars(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    if not args:
        return _locals(t, args, kwargs)
    try:
        return args[0].attr(t, "__dict__")
    except Raised as raised:
        if not issubclass(raised.value.python_type(), AttributeError):
            raise
        return t.python.raise_(
            TypeError, "vars() argument must have __dict__ attribute"
        )


def _user_locals(t: Interpreter) -> dict[str, Value]:
    frame = t.top
    assert frame is not None
    found: dict[str, Value] = {}
    for name in dict.fromkeys((*frame.code.co_varnames, *frame.cells)):
        if name in frame.cells:
            held = frame.cells[name].load(t)
            if held is not UNBOUND:
                found[name] = held
        elif frame.is_bound(name) and not name.startswith((STACK_PREFIX, INNER)):
            found[name] = frame.local(name)
    return found


@builtin(locals)
def _locals(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    return t.values.dict_of(_user_locals(t).items())


@builtin(dir)
def _dir(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    if args:
        raise breaks.GraphBreak(
            breaks.UNSUPPORTED_CALL, f"dir() of {args[0].describe()}"
        )
    return t.values.list_of(map(ConstValue, sorted(_user_locals(t))))


def slot_method(t: Interpreter, owner: Value, raw: Any) -> Value:
    """Return a method of a builtin type (``object.__init__`` …) bound to a value."""
    name = raw.__name__
    if name == "__init__" and raw is object.__init__:
        return MethodValue(owner, BuiltinValue(raw))
    if isinstance(owner, StoredObject) and raw.__objclass__ in owner.base.__mro__[:-1]:
        return owner.base_method(name)
    if isinstance(owner, NumberObjectValue) and raw.__objclass__ is base_of(owner.obj):
        return ConstMethod(ConstValue(owner.contents()), name)
    if id(raw) in BUILTINS:
        return MethodValue(owner, BuiltinValue(raw))
    if isinstance(owner, TupleValue) and raw.__objclass__ is tuple:
        return t.attributes.builtin_method(
            TupleValue(owner.slots), name
        )  # bypassing the class's own method
    if isinstance(owner, ExceptionValue) and raw.__objclass__ is not object:
        return _exception_method(owner, name)
    if isinstance(owner, TensorValue):
        return MethodValue(owner, t.values.known(raw))
    if isinstance(owner, Attributed) and not isinstance(owner, NNModuleValue):
        generic = OBJECT_METHODS.get(name)
        if generic is not None:
            return LambdaValue(
                lambda t, args, kwargs: generic(t, owner, *args), f"object.{name}"
            )
    raise breaks.GraphBreak(breaks.UNSUPPORTED_ATTR, f"{owner.describe()}.{name}")


def _exception_method(owner: ExceptionValue, name: str) -> Value:
    def run(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        if name == "__init__":
            owner.args = list(args)
            return ConstValue(None)
        if name in ("__str__", "__repr__") and not args:
            return owner.converted(str if name == "__str__" else repr)
        if name == "with_traceback":
            return owner
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, f"{owner.cls.__name__}.{name}")

    return LambdaValue(run, f"{owner.cls.__name__}.{name}")


OBJECT_METHODS: dict[str, Callable[..., Value]] = {
    "__eq__": lambda t, x, other: ConstValue(
        True if t.python.identical(x, other) else NotImplemented
    ),
    "__ne__": lambda t, x, other: ConstValue(
        False if t.python.identical(x, other) else NotImplemented
    ),
    "__setattr__": lambda t, x, name, v: _object_setattr(t, [x, name, v], {}),
    "__getattribute__": lambda t, x, name: _object_getattribute(t, [x, name], {}),
}
