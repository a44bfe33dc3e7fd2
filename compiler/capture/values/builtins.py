"""Builtin functions and types: what a call of each does to values, one row a function."""

from __future__ import annotations

import builtins
import collections
import functools
import inspect
import itertools
import math
import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import (
    UNBOUND,
    Args,
    Exhausted,
    Kwargs,
    LambdaValue,
    NotConstant,
    Raised,
    Value,
)
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import (
    DequeValue,
    ListValue,
    SliceValue,
    StepIterator,
    TupleValue,
    sort_values,
)
from tc.compiler.capture.values.dicts import DictValue, set_of
from tc.compiler.capture.values.functions import MethodValue, PartialValue
from tc.compiler.capture.values.objects import (
    ClassValue,
    ExceptionValue,
    NNModuleValue,
    ObjectValue,
    PythonModuleValue,
    SuperValue,
)
from tc.compiler.capture.values.tensor import NodeValue, SymValue, TensorValue
from tc.compiler.core.sources import Source
from tc.compiler.core.table import Table

if TYPE_CHECKING:
    from tc.compiler.capture.residual import Residual
    from tc.compiler.capture.tracer import Tracer

Handler = Callable[["Tracer", Args, Kwargs], Value]
#: builtin functions and types by identity
BUILTINS: Table[int, Handler] = Table("builtins")
#: functions without side effects: folded when all arguments are constants
PURE_MODULES = frozenset(("math", "operator", "_operator", "cmath", "itertools", "_struct"))
PURE = frozenset(
    id(f)
    for f in (
        abs, ascii, bin, chr, divmod, format, hash, hex, len, oct, ord, pow, repr, round, sum, min,
        max, sorted, callable, str.maketrans,
    )
)  # fmt: skip


def builtin(*functions: Any) -> Callable[[Handler], Handler]:
    """Register the handler of builtin functions."""

    def register(handler: Handler) -> Handler:
        for function in functions:
            BUILTINS.add(id(function), handler)
        return handler

    return register


class BuiltinValue(Value):
    """A function implemented in C."""

    noun = "a builtin function"

    def __init__(self, obj: Any, source: Source | None = None) -> None:
        self.obj = obj
        self.source = source

    def python_type(self) -> type:
        return type(self.obj)

    def constant(self) -> Any:
        return self.obj

    def describe(self) -> str:
        module = getattr(self.obj, "__module__", None) or ""
        name = getattr(self.obj, "__qualname__", getattr(self.obj, "__name__", repr(self.obj)))
        return f"{module}.{name}".removeprefix("builtins.").lstrip(".")

    def truth(self, t: Tracer) -> bool:
        return True

    def attr(self, t: Tracer, name: str) -> Value:
        return t.known(t.fold(getattr, self.obj, name))

    def call(self, t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        handler = BUILTINS.get(id(self.obj))
        if handler is not None:
            return handler(t, args, kwargs)
        module = getattr(self.obj, "__module__", None)
        name = getattr(self.obj, "__name__", "")
        if module in ("_operator", "operator") or id(self.obj) in OPERATORS:
            return _operator(t, OPERATORS.get(id(self.obj), name), args, kwargs)
        if isinstance(self.obj, types.MethodDescriptorType | types.WrapperDescriptorType):
            return args[0].method(t, name, args[1:], kwargs)
        if id(self.obj) in PURE or module in PURE_MODULES:
            return self._fold(t, args, kwargs)
        self.cannot(breaks.BUILTIN_CALL, f"{self.describe()}()")

    def _fold(self, t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if any(isinstance(a, TensorValue) for a in args):
            self.cannot(breaks.TENSOR_ITEM, "__float__()")
        plain = [t.concrete(a) for a in args]
        return t.known(
            t.fold(self.obj, *plain, **{k: t.concrete(v) for k, v in kwargs.items()})
        )

    def rebuild(self, r: Residual) -> None:
        r.load_object(self.obj)


OPERATORS = {
    id(getattr(operator, name)): name
    for name in dir(operator)
    if isinstance(getattr(operator, name), types.BuiltinFunctionType)
}


def _operator(t: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
    if name == "getitem":
        return args[0].item(t, args[1])
    if name == "setitem":
        args[0].set_item(t, args[1], args[2])
        return t.known(None)
    if name == "delitem":
        args[0].del_item(t, args[1])
        return t.known(None)
    if name == "contains":
        return t.contains(args[0], args[1])
    if name in ("is_", "is_not"):
        return ConstValue(t.identical(args[0], args[1]) == (name == "is_"))
    if name == "not_":
        return t.logical_not(args[0])
    if name == "truth":
        return ConstValue(args[0].truth(t))
    if name == "index":
        return args[0]
    if len(args) == 1:
        return t.unary(name, args[0])
    if len(args) == 2:
        return t.binary(name, args[0], args[1])
    raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, f"operator.{name}")


# -- types -----------------------------------------------------------------------------------
@builtin(isinstance)
def _isinstance(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    classes = t.classes(args[1])
    kind = args[0].python_type()
    real = getattr(args[0], "obj", None)
    if isinstance(args[0], TensorValue | ObjectValue) and real is not None:
        return t.known(t.fold(isinstance, real, classes))
    if isinstance(args[0], ConstValue):
        return t.known(t.fold(isinstance, args[0].obj, classes))
    flat = classes if isinstance(classes, tuple) else (classes,)
    if any(type(c).__instancecheck__ is not type.__instancecheck__ for c in flat):
        if isinstance(args[0], TensorValue):
            return t.known(t.fold(isinstance, args[0].example, classes))
    return t.known(t.fold(issubclass, kind, classes))


@builtin(issubclass)
def _issubclass(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.known(t.fold(issubclass, t.concrete(args[0]), t.classes(args[1])))


@builtin(type)
def _type(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1:
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, "type() with three arguments")
    return t.known(args[0].python_type())


@builtin(super)
def _super(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return SuperValue(t.concrete(args[0]), args[1])


@builtin(object)
def _object(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ObjectValue(object)


@builtin(object.__new__)
def _object_new(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    cls = t.concrete(args[0])
    if issubclass(cls, BaseException):
        return ExceptionValue(cls, list(args[1:]))
    return ObjectValue(cls)


@builtin(object.__init__)
def _object_init(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.known(None)


@builtin(callable)
def _callable(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = args[0]
    if isinstance(value, ObjectValue):
        return ConstValue(value.dunder(t, "__call__") is not None)
    plain = (ConstValue, NodeValue, ListValue, TupleValue, DictValue, PythonModuleValue)
    return ConstValue(not isinstance(value, plain))


@builtin(bool)
def _bool(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if args and isinstance(args[0], SymValue):
        return t.call_torch(operator.ne, [args[0], ConstValue(0)], {})
    return ConstValue(args[0].truth(t) if args else False)


def _number(kind: type) -> Handler:
    def convert(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if not args:
            return ConstValue(kind())
        value = args[0]
        if isinstance(value, TensorValue):
            value.cannot(breaks.TENSOR_ITEM, f"__{kind.__name__}__()")
        if isinstance(value, SymValue):
            if value.python_type() is kind:
                return value
            if kind is float:
                return t.call_torch(_symbolic_float, [value], {})
        if isinstance(value, ObjectValue):
            return value.method(t, f"__{kind.__name__}__", [], {})
        return t.known(t.fold(kind, *[t.concrete(a) for a in args]))

    return convert


def _symbolic_float(number: Any) -> Any:
    import torch

    return torch.sym_float(number)


BUILTINS.add(id(int), _number(int))
BUILTINS.add(id(float), _number(float))


def _text(function: Callable[[Any], str]) -> Handler:
    def convert(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        return t.convert_text(function, args[0]) if args else ConstValue("")

    return convert


for _converter in (str, repr, ascii):
    BUILTINS.add(id(_converter), _text(_converter))


# -- containers ------------------------------------------------------------------------------
@builtin(list)
def _list(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ListValue(list(args[0].unpack(t)) if args else [])


@builtin(tuple)
def _tuple(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return TupleValue(list(args[0].unpack(t)) if args else [])


@builtin(set)
def _set(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return set_of(t, args[0].unpack(t) if args else [])


@builtin(collections.deque)
def _deque(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if kwargs or len(args) > 1:
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, "deque() with maxlen")
    return DequeValue(list(args[0].unpack(t)) if args else [])


def _dict_of_kind(kind: type) -> Handler:
    def make(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        rest = list(args)
        made = DictValue({}, kind=kind)
        if kind is collections.defaultdict and rest:
            factory = rest.pop(0)
            made.factory = None if t.is_none(factory) else factory
        made.method(t, "update", rest, kwargs)
        return made

    return make


for _kind in (dict, collections.OrderedDict, collections.defaultdict):
    BUILTINS.add(id(_kind), _dict_of_kind(_kind))


@builtin(dict.fromkeys)
def _fromkeys(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = args[1] if len(args) > 1 else t.known(None)
    return t.dict_of((key, value) for key in args[0].unpack(t))


@builtin(slice)
def _slice(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    none: Value = ConstValue(None)
    bounds = [none, args[0], none] if len(args) == 1 else [*args, none][:3]
    return SliceValue(bounds)


@builtin(range)
def _range(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.known(t.fold(range, *[t.concrete(a) for a in args]))


@builtin(len)
def _len(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return args[0].length(t)


# -- iteration -------------------------------------------------------------------------------
@builtin(iter)
def _iter(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) > 1:
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, "iter() with a sentinel")
    return args[0].iterate(t)


@builtin(next)
def _next(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    try:
        return args[0].advance(t)
    except Exhausted:
        if len(args) > 1:
            return args[1]
        return t.raise_(StopIteration)


@builtin(enumerate)
def _enumerate(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    source = args[0].iterate(t)
    start = kwargs.get("start", args[1] if len(args) > 1 else ConstValue(0))
    count = itertools.count(t.concrete(start))

    def step() -> Value:
        item = source.advance(t)
        return TupleValue([ConstValue(next(count)), item])

    return StepIterator(step, enumerate)


@builtin(zip)
def _zip(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    sources = [a.iterate(t) for a in args]
    strict = "strict" in kwargs and kwargs["strict"].truth(t)

    def step() -> Value:
        if not sources:
            raise Exhausted
        items: list[Any] = []
        for index, source in enumerate(sources):
            try:
                items.append(source.advance(t))
            except Exhausted:
                if strict and index:
                    t.raise_(ValueError, f"zip() argument {index + 1} is shorter than argument 1")
                if strict:
                    _check_all_done(t, sources[1:])
                raise
        return TupleValue(items)

    return StepIterator(step, zip)


def _check_all_done(t: Tracer, sources: list[Value]) -> None:
    for index, source in enumerate(sources):
        try:
            source.advance(t)
        except Exhausted:
            continue
        t.raise_(ValueError, f"zip() argument {index + 2} is longer than argument 1")


@builtin(map)
def _map(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    sources = [a.iterate(t) for a in args[1:]]
    return StepIterator(lambda: args[0].call(t, [s.advance(t) for s in sources], {}), map)


@builtin(filter)
def _filter(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    source = args[1].iterate(t)

    def step() -> Value:
        while True:
            item = source.advance(t)
            kept = item if t.is_none(args[0]) else args[0].call(t, [item], {})
            if kept.truth(t):
                return item

    return StepIterator(step, filter)


@builtin(reversed)
def _reversed(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(args[0], ObjectValue) and args[0].dunder(t, "__reversed__") is not None:
        return args[0].method(t, "__reversed__", [], {})
    return ListValue(list(reversed(args[0].unpack(t)))).iterate(t)


@builtin(sorted)
def _sorted(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    ordered = sort_values(t, args[0].unpack(t), kwargs.get("key"), kwargs.get("reverse"))
    return ListValue(list(ordered))


@builtin(any)
def _any(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ConstValue(_search(t, args[0], True))


@builtin(all)
def _all(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ConstValue(not _search(t, args[0], False))


def _search(t: Tracer, iterable: Value, wanted: bool) -> bool:
    iterator = iterable.iterate(t)
    while True:
        try:
            item = iterator.advance(t)
        except Exhausted:
            return False
        if item.truth(t) == wanted:
            return True


@builtin(sum)
def _sum(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    total = kwargs.get("start", args[1] if len(args) > 1 else ConstValue(0))
    for item in args[0].unpack(t):
        total = t.binary("add", total, item)
    return total


def _extreme(name: str) -> Handler:
    def find(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        items = args[0].unpack(t) if len(args) == 1 else list(args)
        if not items:
            if "default" in kwargs:
                return kwargs["default"]
            return t.raise_(ValueError, f"{'max' if name == 'gt' else 'min'}() arg is empty")
        key = kwargs.get("key")
        best, best_key = items[0], None
        for item in items:
            item_key = item if key is None or t.is_none(key) else key.call(t, [item], {})
            if best_key is None:
                best, best_key = item, item_key
            elif isinstance(item_key, SymValue) or isinstance(best_key, SymValue):
                return _symbolic_extreme(t, name, items)
            elif t.binary(name, item_key, best_key).truth(t):
                best, best_key = item, item_key
        return best

    return find


def _symbolic_extreme(t: Tracer, name: str, items: list[Value]) -> Value:
    import torch

    function = torch.sym_max if name == "gt" else torch.sym_min
    return functools.reduce(lambda a, b: t.call_torch(function, [a, b], {}), items)


BUILTINS.add(id(max), _extreme("gt"))
BUILTINS.add(id(min), _extreme("lt"))


# -- attributes ------------------------------------------------------------------------------
@builtin(getattr)
def _getattr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    name = t.concrete(args[1])
    if len(args) == 2:
        return args[0].attr(t, name)
    try:
        return args[0].attr(t, name)
    except Raised as raised:
        if issubclass(raised.value.python_type(), AttributeError):
            return args[2]
        raise


@builtin(hasattr)
def _hasattr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    name = t.concrete(args[1])
    try:
        args[0].attr(t, name)
    except Raised as raised:
        if issubclass(raised.value.python_type(), AttributeError):
            if args[0].source is not None and isinstance(args[0], ObjectValue):
                t.guard("NO_ATTR", args[0].source, name)
            return ConstValue(False)
        raise
    return ConstValue(True)


@builtin(setattr)
def _setattr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    args[0].set_attr(t, t.concrete(args[1]), args[2])
    return t.known(None)


@builtin(object.__setattr__)
def _object_setattr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    owner = args[0]
    if not isinstance(owner, ObjectValue):
        raise breaks.GraphBreak(breaks.UNSUPPORTED_STORE, owner.describe())
    owner.generic_set_attr(t, t.concrete(args[1]), args[2])
    return t.known(None)


@builtin(object.__getattribute__)
def _object_getattribute(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    owner = args[0]
    if not isinstance(owner, ObjectValue):
        return owner.attr(t, t.concrete(args[1]))
    found = owner.find(t, t.concrete(args[1]))
    return found if found is not None else t.raise_(AttributeError, t.concrete(args[1]))


@builtin(delattr)
def _delattr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    args[0].del_attr(t, t.concrete(args[1]))
    return t.known(None)


@builtin(vars)
def _vars(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if not args:
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, "vars() without an argument")
    return args[0].attr(t, "__dict__")


@builtin(id)
def _id(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    obj = getattr(args[0], "obj", None)
    if obj is None or args[0].source is None:
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, "id() of a value made while tracing")
    t.guard("ID", args[0].source, obj)
    return ConstValue(id(obj))


# -- functools, itertools ----------------------------------------------------------------------
@builtin(functools.partial)
def _partial(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return PartialValue(args[0], list(args[1:]), kwargs)


@builtin(functools.reduce)
def _reduce(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    items = args[1].unpack(t)
    if len(args) > 2:
        items = [args[2], *items]
    if not items:
        return t.raise_(TypeError, "reduce() of empty iterable with no initial value")
    return functools.reduce(lambda a, b: args[0].call(t, [a, b], {}), items)


def _materialised(function: Callable[..., Any], *, plain: tuple[str, ...] = ()) -> Handler:
    """Run an itertools function over lists of values."""

    def run(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        lists = [t.concrete(a) if isinstance(a, ConstValue) else a.unpack(t) for a in args]
        named = {k: t.concrete(v) for k, v in kwargs.items()}
        made = t.fold(lambda: list(function(*lists, **named)))
        items = [TupleValue(list(m)) if isinstance(m, tuple) else m for m in made]
        return ListValue(list(items)).iterate(t)

    return run


for _function in (itertools.product, itertools.permutations, itertools.combinations):
    BUILTINS.add(id(_function), _materialised(_function))
BUILTINS.add(id(itertools.pairwise), _materialised(itertools.pairwise))


@builtin(itertools.chain)
def _chain(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _chained(t, iter(args))


def _chained(t: Tracer, sources: Any) -> Value:
    state: list[Value] = []

    def step() -> Value:
        while True:
            if not state:
                try:
                    state.append(next(sources).iterate(t))
                except StopIteration:
                    raise Exhausted from None
            try:
                return state[0].advance(t)
            except Exhausted:
                state.clear()

    return StepIterator(step, itertools.chain)


@builtin(itertools.islice)
def _islice(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    bounds = slice(*[t.concrete(a) for a in args[1:]])
    source = args[0].iterate(t)
    wanted = iter(range(bounds.start or 0, 1 << 62 if bounds.stop is None else bounds.stop,
                        bounds.step or 1))  # fmt: skip
    place = itertools.count()

    def step() -> Value:
        try:
            target = next(wanted)
        except StopIteration:
            raise Exhausted from None
        while True:
            item = source.advance(t)
            if next(place) == target:
                return item

    return StepIterator(step, itertools.islice)


@builtin(itertools.count)
def _count(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    numbers = itertools.count(*[t.concrete(a) for a in args])
    return StepIterator(lambda: ConstValue(next(numbers)), itertools.count, endless=True)


@builtin(itertools.repeat)
def _repeat(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) > 1:
        return ListValue([args[0]] * t.concrete(args[1])).iterate(t)
    return StepIterator(lambda: args[0], itertools.repeat, endless=True)


@builtin(itertools.accumulate)
def _accumulate(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    function = args[1] if len(args) > 1 else None
    totals: list[Value] = []
    for item in args[0].unpack(t):
        if not totals:
            totals.append(item)
        elif function is None:
            totals.append(t.binary("add", totals[-1], item))
        else:
            totals.append(function.call(t, [totals[-1], item], {}))
    return ListValue(list(totals)).iterate(t)


@builtin(itertools.zip_longest)
def _zip_longest(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    lists = [a.unpack(t) for a in args]
    fill = kwargs.get("fillvalue", ConstValue(None))
    rows = itertools.zip_longest(*lists, fillvalue=fill)
    return ListValue([TupleValue(list(row)) for row in rows]).iterate(t)


# -- numbers ---------------------------------------------------------------------------------
@builtin(math.sqrt)
def _sqrt(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    import torch

    if isinstance(args[0], SymValue):
        return t.call_torch(torch.sym_sqrt, list(args), {})
    if isinstance(args[0], TensorValue):
        args[0].cannot(breaks.TENSOR_ITEM, "__float__()")
    return t.known(t.fold(math.sqrt, t.concrete(args[0])))


@builtin(math.prod)
def _prod(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    total = kwargs.get("start", ConstValue(1))
    for item in args[0].unpack(t):
        total = t.binary("mul", total, item)
    return total


@builtin(divmod)
def _divmod(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return TupleValue([t.binary("floordiv", *args), t.binary("mod", *args)])


@builtin(abs)
def _abs(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.unary("abs", args[0])


@builtin(pow)
def _pow(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 3:
        return t.known(t.fold(pow, *[t.concrete(a) for a in args]))
    return t.binary("pow", args[0], args[1])


@builtin(round)
def _round(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(args[0], TensorValue):
        return args[0].method(t, "round", [], {})
    return t.known(t.fold(round, *[t.concrete(a) for a in args]))


@builtin(format)
def _format(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.format(args[0], t.concrete(args[1]) if len(args) > 1 else "")


@builtin(inspect.signature)
def _signature(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.known(t.fold(inspect.signature, t.concrete(args[0])))


def slot_method(t: Tracer, owner: Value, raw: Any) -> Value:
    """Return a method of a builtin type (``object.__init__`` …) bound to a value."""
    name = raw.__name__
    if name == "__init__" and raw is object.__init__:
        return LambdaValue(lambda t, args, kwargs: t.known(None), "object.__init__")
    if id(raw) in BUILTINS:
        return MethodValue(owner, BuiltinValue(raw))
    if isinstance(owner, ExceptionValue):
        return _exception_method(owner, name)
    if isinstance(owner, ObjectValue) and not isinstance(owner, NNModuleValue):
        generic = OBJECT_METHODS.get(name)
        if generic is not None:
            return LambdaValue(lambda t, args, kwargs: generic(t, owner, *args), f"object.{name}")
    raise breaks.GraphBreak(breaks.UNSUPPORTED_ATTR, f"{owner.describe()}.{name}")


def _exception_method(owner: ExceptionValue, name: str) -> Value:
    def run(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if name == "__init__":
            owner.args = list(args)
            return t.known(None)
        if name == "__str__":
            return ConstValue(owner.text())
        if name == "with_traceback":
            return owner
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, f"{owner.cls.__name__}.{name}")

    return LambdaValue(run, f"{owner.cls.__name__}.{name}")


OBJECT_METHODS: dict[str, Callable[..., Value]] = {
    "__eq__": lambda t, x, other: ConstValue(True if t.identical(x, other) else NotImplemented),
    "__ne__": lambda t, x, other: ConstValue(False if t.identical(x, other) else NotImplemented),
    "__setattr__": lambda t, x, name, v: _object_setattr(t, [x, name, v], {}),
    "__getattribute__": lambda t, x, name: _object_getattribute(t, [x, name], {}),
}

__all__ = [
    "BUILTINS",
    "UNBOUND",
    "BuiltinValue",
    "ClassValue",
    "NotConstant",
    "builtins",
    "slot_method",
]
