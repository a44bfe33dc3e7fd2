"""Handlers of builtins that iterate, and of functools and itertools."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from tc.compiler.capture import breaks
from tc.compiler.capture.traceable import groupby
from tc.compiler.capture.values.base import Args, Exhausted, Kwargs, Slot, Value
from tc.compiler.capture.values.builtins import (
    BUILTINS,
    CLASS_METHODS,
    Handler,
    builtin,
)
from tc.compiler.capture.values.const import ConstValue, is_not_implemented
from tc.compiler.capture.values.containers import ListValue, TupleValue, sort_values
from tc.compiler.capture.values.deques import DequeValue
from tc.compiler.capture.values.iterators import (
    EnumerateIterator,
    FilterIterator,
    MapIterator,
    ReversedIterator,
    SentinelIterator,
    ZipIterator,
)
from tc.compiler.capture.values.itertools_iterators import (
    AccumulateIterator,
    ChainIterator,
    CompressIterator,
    CountIterator,
    CycleIterator,
    PairwiseIterator,
    RepeatIterator,
    SliceIterator,
    StarMapIterator,
    TeeIterator,
    TeeSource,
    WhileIterator,
    ZipLongestIterator,
)
from tc.compiler.capture.values.lookup import MISSING, full_name, has_any, type_lookup
from tc.compiler.capture.values.objects import ObjectValue
from tc.compiler.capture.values.tensor import SymValue, TensorValue
from tc.compiler.capture.values.tuple_objects import OwnTupleValue
from tc.compiler.core.sources import Source

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface


# -- iteration -------------------------------------------------------------------------------
@builtin(iter)
def _iter(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1:
        return args[0].iterate(t)
    is_callable = BUILTINS[id(callable)](t, [args[0]], {})
    if not is_callable.truth(t):
        t.python.raise_(TypeError, "iter(v, w): v must be callable")
    return SentinelIterator(args[0], args[1])


@builtin(next)
def _next(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    try:
        return args[0].advance(t)
    except Exhausted as end:
        if len(args) > 1:
            return args[1]
        end.as_raised(t)


@builtin(enumerate)
def _enumerate(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    source = args[0] if args else kwargs["iterable"]
    start = kwargs.get("start", args[1] if len(args) > 1 else ConstValue(0))
    return EnumerateIterator(source.iterate(t), t.python.concrete(start))


@builtin(zip)
def _zip(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    strict = "strict" in kwargs and kwargs["strict"].truth(t)
    return ZipIterator([a.iterate(t) for a in args], strict)


@builtin(map)
def _map(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    if len(args) < 2:
        t.python.raise_(TypeError, "map() must have at least two arguments.")
    return MapIterator(args[0], [a.iterate(t) for a in args[1:]])


for _filter_kind in (filter, itertools.filterfalse):
    BUILTINS.add(
        id(_filter_kind),
        lambda t, args, kwargs, kind=_filter_kind: FilterIterator(  # type: ignore[misc]
            kind, args[0], args[1].iterate(t)
        ),
    )


@builtin(reversed)
def _reversed(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    owner = args[0]
    kind = owner.python_type()
    if not has_any(kind, ("__reversed__", "__getitem__")):
        t.python.raise_(TypeError, f"'{full_name(kind)}' object is not reversible")
    if owner.own_special("__reversed__") is None:
        t.python.raise_(TypeError, f"'{full_name(kind)}' object is not reversible")
    if owner.has_own("__reversed__"):
        return owner.call_special(t, "__reversed__", [])
    if isinstance(owner, ObjectValue):
        if owner.dunder(t, "__reversed__") is not None:
            return owner.method(t, "__reversed__", [], {})
        if owner.dunder(t, "__len__") is None or owner.dunder(t, "__getitem__") is None:
            return t.python.raise_(
                TypeError, f"'{full_name(kind)}' object is not reversible"
            )
        return ReversedIterator(owner, t.python.concrete(owner.length(t)) - 1)
    if isinstance(owner, OwnTupleValue):
        return owner.reversed(t)
    if isinstance(owner, TensorValue):
        return (
            owner.method(t, "flip", [ConstValue(0)], {})
            if owner.example.dim()
            else owner
        )
    if isinstance(owner, ListValue) and not isinstance(owner, DequeValue):
        return ReversedIterator(owner, len(owner.slots) - 1)
    if owner.is_constant():
        t.python.fold(reversed, owner.constant())  # Python's own error
    return ListValue(list(reversed(owner.unpack(t)))).iterate(t)


@builtin(operator.length_hint)
def _length_hint(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    owner, default = args[0], args[1] if len(args) > 1 else ConstValue(0)
    if type_lookup(owner.python_type(), "__len__") is not MISSING:
        return owner.length(t)
    if not owner.has_own("__length_hint__"):
        if type_lookup(owner.python_type(), "__length_hint__") is MISSING:
            return default
        owner.cannot(breaks.UNSUPPORTED_CALL, f"length_hint() of {owner.describe()}")
    found = owner.call_special(t, "__length_hint__", [])
    if is_not_implemented(found):
        return default
    return t.python.slot_result(owner.python_type(), "__length_hint__", found)


@builtin(sorted)
def _sorted(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    items = args[0].unpack(t)
    ordered = sort_values(t, items, kwargs.get("key"), kwargs.get("reverse"))
    return ListValue(list(ordered))


@builtin(any)
def _any(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    return ConstValue(_search(t, args[0], True))


@builtin(all)
def _all(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    return ConstValue(not _search(t, args[0], False))


def _search(t: Interpreter, iterable: Value, wanted: bool) -> bool:
    iterator = iterable.iterate(t)
    while True:
        try:
            item = iterator.advance(t)
        except Exhausted:
            return False
        if item.truth(t) == wanted:
            return True


@builtin(sum)
def _sum(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    total = kwargs.get("start", args[1] if len(args) > 1 else ConstValue(0))
    for item in args[0].each(t):
        total = t.python.binary("add", total, item)
    return total


def _extreme(name: str) -> Handler:
    def find(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        function = max if name == "gt" else min
        if len(args) > 1 and "default" in kwargs:
            t.python.fold(function, 1, 2, default=None)  # Python's own error
        items = args[0].each(t) if len(args) == 1 else iter(args)
        best: Value | None = next(items, None)
        if best is None and "default" in kwargs:
            return kwargs["default"]
        if best is None:
            return t.python.folded(function, ())  # Python's own error
        key = kwargs.get("key")
        if key is None or t.python.is_none(key):
            return functools.reduce(lambda a, b: _better(t, name, a, b), items, best)
        best_key = key.call(t, [best], {})
        for item in items:
            item_key = key.call(t, [item], {})
            if t.python.binary(name, item_key, best_key).truth(t):
                best, best_key = item, item_key
        return best

    return find


def _better(t: Interpreter, name: str, best: Value, item: Value) -> Value:
    """Return the result of max or min of two values: a node if it depends on data or sizes."""
    symbolic = isinstance(best, SymValue) or isinstance(item, SymValue)
    # else the result's type varies
    if symbolic and best.python_type() is item.python_type():
        function = torch.sym_max if name == "gt" else torch.sym_min
        return t.output.call_on_numbers(function, [best, item])
    wins = t.python.binary(name, item, best)
    if isinstance(wins, TensorValue) and _one_number(best, item):
        return t.output.call_torch(torch.where, [wins, item, best], {})
    return item if wins.truth(t) else best


def _one_number(*values: Value) -> bool:
    """Return whether values are numbers, or one-element tensors, of one dtype."""
    tensors = [v.example for v in values if isinstance(v, TensorValue)]
    if not tensors:
        return False  # an object whose comparison gives a tensor
    first = tensors[0]
    alike = all(
        one.dtype == first.dtype and one.shape == first.shape for one in tensors
    )
    others = [v for v in values if not isinstance(v, TensorValue)]
    kinds = (int, float) if first.is_floating_point() else (int,)
    plain = all(isinstance(v, ConstValue) and type(v.obj) in kinds for v in others)
    return alike and first.dim() == 0 and plain


BUILTINS.add(id(max), _extreme("gt"))
BUILTINS.add(id(min), _extreme("lt"))


# -- functools, itertools ----------------------------------------------------------------------
@builtin(functools.reduce)
def _reduce(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    items = args[1].each(t)
    first = args[2] if len(args) > 2 else next(items, None)
    if first is None:
        return t.python.raise_(
            TypeError, "reduce() of empty iterable with no initial value"
        )
    function = args[0]
    return functools.reduce(lambda a, b: function.call(t, [a, b], {}), items, first)


def _materialised(function: Callable[..., Any]) -> Handler:
    """Run an itertools function over lists of values."""

    def run(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        lists = [
            t.python.concrete(a) if a.python_type() is int else a.unpack(t)
            for a in args
        ]
        named = t.python.concrete_dict(kwargs)
        made = t.python.fold(lambda: list(function(*lists, **named)))
        items = [TupleValue(list(m)) if isinstance(m, tuple) else m for m in made]
        return ListValue(list(items)).iterate(t)

    return run


for _function in (
    itertools.product,
    itertools.permutations,
    itertools.combinations,
    itertools.combinations_with_replacement,
):
    BUILTINS.add(id(_function), _materialised(_function))


@builtin(itertools.pairwise)
def _pairwise(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    return PairwiseIterator(args[0].iterate(t))


@builtin(itertools.tee)
def _tee(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    source, count = (
        args[0].iterate(t),
        int(t.python.concrete(args[1])) if args[1:] else 2,
    )
    first = (
        source if isinstance(source, TeeIterator) else TeeIterator(TeeSource(source))
    )
    copies: list[Slot] = [first]
    copies += [TeeIterator(first.shared, first.index) for _ in range(count - 1)]
    return TupleValue(copies[:count])


@builtin(itertools.groupby)
def _groupby(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    return t.inline_object(groupby, args, kwargs)


@builtin(itertools.chain)
def _chain(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    return ChainIterator(TupleValue(list(args)).iterate(t))


CLASS_METHODS["from_iterable"] = lambda t, cls, args, kwargs: ChainIterator(
    args[0].iterate(t)
)


@builtin(itertools.islice)
def _islice(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    bounds = slice(*t.python.concrete_list(args[1:]))
    step = 1 if bounds.step is None else bounds.step
    for bound in (bounds.start or 0, bounds.stop or 0, step - 1):
        if bound < 0:
            t.python.raise_(
                ValueError, "Indices for islice() must be None or an integer >= 0."
            )
    return SliceIterator(args[0].iterate(t), bounds.start or 0, bounds.stop, step)


@builtin(itertools.count)
def _count(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    given = dict(zip(("start", "step"), args, strict=False)) | kwargs
    start = given.get("start", ConstValue(0))
    step = given.get("step", ConstValue(1))
    return CountIterator(start, step)


@builtin(itertools.repeat)
def _repeat(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    times = kwargs.get("times", args[1] if len(args) > 1 else None)
    item = args[0] if args else kwargs["object"]
    return RepeatIterator(
        item, None if times is None else max(0, t.python.concrete(times))
    )


@builtin(itertools.cycle)
def _cycle(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    return CycleIterator(args[0].iterate(t))


@builtin(itertools.compress)
def _compress(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    data, selectors = [*args, *kwargs.values()]
    return CompressIterator(data.iterate(t), selectors.iterate(t))


@builtin(itertools.starmap)
def _starmap(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    return StarMapIterator(args[0], args[1].iterate(t))


for _while_kind in (itertools.takewhile, itertools.dropwhile):
    BUILTINS.add(
        id(_while_kind),
        lambda t, args, kwargs, kind=_while_kind: WhileIterator(  # type: ignore[misc]
            kind, args[0], args[1].iterate(t)
        ),
    )


@builtin(itertools.accumulate)
def _accumulate(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    function = kwargs.get("func", args[1] if len(args) > 1 else None)
    initial = kwargs.get("initial")
    given = [
        None if v is None or t.python.is_none(v) else v for v in (function, initial)
    ]
    return AccumulateIterator(args[0].iterate(t), *given)


@builtin(itertools.zip_longest)
def _zip_longest(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    fill = kwargs.get("fillvalue", ConstValue(None))
    return ZipLongestIterator([a.iterate(t) for a in args], fill)


# -- operator's makers of functions ------------------------------------------------------------
class GetterValue(Value):
    """An operator.itemgetter, attrgetter or methodcaller."""

    def __init__(
        self,
        kind: type,
        args: list[Value],
        kwargs: Kwargs,
        source: Source | None = None,
    ) -> None:
        self.kind = kind
        self.args = args
        self.kwargs = kwargs
        self.source = source

    def python_type(self) -> type:
        return self.kind

    def describe(self) -> str:
        return f"operator.{self.kind.__name__}"

    def call(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        owner = args[0]
        if self.kind is operator.methodcaller:
            name = t.python.concrete(self.args[0])
            return owner.method(t, name, self.args[1:], self.kwargs)
        found = [self._get(t, owner, arg) for arg in self.args]
        return found[0] if len(found) == 1 else TupleValue(list(found))

    def _get(self, t: Interpreter, owner: Value, key: Value) -> Value:
        if self.kind is operator.itemgetter:
            return owner.item(t, key)
        for name in t.python.concrete(key).split("."):
            owner = owner.attr(t, name)
        return owner

    def children(self, t: Interpreter) -> list[Value]:
        return [*self.args, *self.kwargs.values()]

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_callable(self.kind)
        r.push_slots(self.children(r.t))  # type: ignore[arg-type]
        r.e.call(len(self.args), tuple(self.kwargs))


GETTERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)


def _getter(kind: type) -> Handler:
    return lambda t, args, kwargs: GetterValue(kind, list(args), kwargs)


for _getter_kind in GETTERS:
    BUILTINS.add(id(_getter_kind), _getter(_getter_kind))


def wrap_getter(t: Interpreter, obj: Any, source: Source) -> Value:
    """Return the value of a real itemgetter, attrgetter or methodcaller."""
    t.guards.add("ID", source, obj)
    maker: Any
    maker, args, *_ = obj.__reduce__()
    kwargs: dict[str, Any] = {}
    if isinstance(maker, functools.partial):
        maker, kwargs = maker.func, maker.keywords
    known = {name: t.values.known(value) for name, value in kwargs.items()}
    return GetterValue(maker, [t.values.known(arg) for arg in args], known, source)
