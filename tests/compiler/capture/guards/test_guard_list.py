"""Guards: every kind passes on the same and fails on the changed, in C++, Python and text."""

import contextlib
import enum
import math
import types
import weakref
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field

import pytest
import torch
from torch import nn
from torch._functorch.eager_transforms import grad_increment_nesting
from torch._functorch.vmap import vmap_increment_nesting
from torch.utils._python_dispatch import TorchDispatchMode

from tc.compiler.capture import hook
from tc.compiler.capture.guards import guard_list
from tc.compiler.capture.guards.definitions import Definitions
from tc.compiler.capture.guards.guard_list import PROCESS, GuardList, Predicate, TensorSpec
from tc.compiler.capture.guards.rows import GUARDS, NAMES, Answer
from tc.compiler.core.levels import dispatch_modes
from tc.compiler.core.sources import (
    AttrSource,
    CallSource,
    DictSource,
    GlobalSource,
    ItemSource,
    LocalSource,
    TypeSource,
)
from tc.compiler.errors import StageError

A, B = LocalSource("a"), LocalSource("b")


def frame(a, b=None):
    """Stand in for the code of a compiled frame."""


def build(wanted, a, b=None, globals=None):
    return guard_list.build(
        wanted, None, frame.__code__, {"a": a, "b": b}, globals or {"__builtins__": {}}, "0/0"
    )


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Plain:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class SubDict(dict):
    pass


class Mode(torch.overrides.TorchFunctionMode):
    pass


def closure(n):
    return lambda: n


def f1():
    return 1


def f2():
    return 2


@contextlib.contextmanager
def setting(set_to, new, old):
    set_to(new)
    try:
        yield
    finally:
        set_to(old)


T = torch.ones(2, 3)
KEEP = [Plain()]


@dataclass
class Example:
    """A guard on local ``a`` (and ``b``), values that pass and values that fail.

    A state in which it fails is a context, or an exception being handled.
    """

    kind: str
    a: object
    fails: list = field(default_factory=list)
    value: object = ...
    passes: list = field(default_factory=list)
    b: object = None
    source: object = A
    states: list = field(default_factory=list)


@contextlib.contextmanager
def setting_attribute(owner, name, value):
    missing = object()
    before = vars(owner).get(name, missing)
    setattr(owner, name, value)
    try:
        yield
    finally:
        delattr(owner, name) if before is missing else setattr(owner, name, before)


DEFINED = Definitions(classes={Plain: None}, modules={0: (vars(math), {"sqrt": None})})

EXAMPLES = [
    Example("TYPE", 1, [True, 1.0, None, "1"], passes=[2]),
    Example("INTEGER", 1, [True, 1.0, None, 2**62, -(2**62) - 1, 10**30], value=62,
            passes=[2, 0, 2**62 - 1, -(2**62)]),
    Example("TYPE", Plain(), [1, Plain], passes=[Plain()]),
    Example("ID", torch, [nn, None, 3]),
    Example("ID", f1, [f2]),
    Example("ID", Plain, [int, Plain()]),
    Example("EQUALS", 1, [2, True, 1.0, None]),
    Example("EQUALS", True, [1, False, None]),
    Example("EQUALS", 0.0, [-0.0, 0, math.nan, "x"]),
    Example("EQUALS", -0.0, [0.0]),
    Example("EQUALS", 1.5, [1.25], passes=[3.0 / 2]),
    Example("EQUALS", math.nan, [1.0, None], passes=[float("nan")]),
    Example("EQUALS", math.inf, [-math.inf]),
    Example("EQUALS", 1 + 0j, [complex(1, -0.0), 1, 2 + 0j], passes=[1 + 0j]),
    Example("EQUALS", "abc", [b"abc", "abd", None]),
    Example("EQUALS", "it's {a}", ["its"]),
    Example("EQUALS", b"abc", ["abc"]),
    Example("EQUALS", None, [0, False]),
    Example("EQUALS", ..., [None]),
    Example("EQUALS", Colour.RED, [Colour.BLUE, 1]),
    Example("EQUALS", torch.float32, [torch.float64, "float32"]),
    Example("EQUALS", torch.device("cpu"), [torch.device("meta"), "cpu"]),
    Example("EQUALS", torch.Size([1, 2]), [(1, 2), torch.Size([2, 1])]),
    Example("EQUALS", torch.strided, [torch.sparse_coo]),
    Example("EQUALS", torch.contiguous_format, [torch.channels_last]),
    Example("EQUALS", (1, ("x", None)), [(True, ("x", None)), (1, ("y", None)), (1,), [1], 5]),
    Example("EQUALS", (), [(1,), None], passes=[()]),
    Example("EQUALS", (1,), [(1, 2)]),
    Example("EQUALS", (Colour.RED, 0.0), [(Colour.BLUE, 0.0), (Colour.RED, -0.0)]),
    Example("EQUALS", frozenset([1, 2.5]), [frozenset([True, 2.5]), {1, 2.5}, frozenset([1])]),
    Example("EQUALS", slice(1, None, 2), [slice(1, 3, 2), slice(True, None, 2)]),
    Example("EQUALS", range(3), [range(4), [0, 1, 2]]),
    Example("NONE", None, [0, False]),
    Example("NOT_NONE", 0, [None], passes=["x"]),
    Example("BOOL", True, [1, False]),
    Example("BOOL", False, [0, True, None]),
    Example("LENGTH", [1, 2], [[1], (1, 2), {1, 2}, 3], passes=[[3, 4]]),
    Example("LENGTH", (), [(1,), []]),
    Example("LENGTH", {1, 2}, [{1}, [1, 2]], passes=[{5, 6}]),
    Example("LENGTH", {"x": 1}, [{}, [1], 3], passes=[{"y": 2}]),
    Example("LENGTH", "abc", ["ab", b"abc"], passes=["xyz"]),
    Example("LENGTH", range(3), [range(2)], passes=[range(1, 4)]),
    Example("DICT_KEYS", {"x": 1, "y": 2}, [{"y": 2, "x": 1}, {"x": 1}, {}, 3], value=...,
            passes=[{"x": 5, "y": 6}]),
    Example("DICT_KEYS", {1: 1, Colour.RED: 2, f1: 3}, [{True: 1, Colour.RED: 2, f1: 3}]),
    Example("DICT_KEYS", OrderedDict(x=1), [OrderedDict(y=1)]),
    Example("DICT_KEYS", types.MappingProxyType({"x": 1}), [types.MappingProxyType({}), 3, [1]]),
    Example("DICT_LENGTH", {"x": 1}, [{}, [1], 3], passes=[{"y": 2}]),
    Example("ITEMS", {1, 2}, [{1.0, 2}, {True, 2}, {1}, {1, 3}], passes=[{2, 1}]),
    Example("CONTAINS", {"x": 1}, [{}, {"y": 1}], value="x", passes=[{"x": 2, "y": 3}]),
    Example("CONTAINS", {"x"}, [{"y"}], value="x"),
    Example("CONTAINS", SubDict(x=1), [SubDict()], value="x"),
    Example("CONTAINS", "xyz", ["abc"], value="x"),
    Example("NOT_CONTAINS", {"x": 1}, [{"y": 1}], value="y", passes=[{}]),
    Example("NOT_CONTAINS", {"x"}, [{"y"}], value="y"),
    Example("HASATTR", Plain(x=1), [Plain(), 3], value="x", passes=[Plain(x=None)]),
    Example("NO_ATTR", Plain(), [Plain(x=1)], value="x", passes=[3]),
    Example("TENSOR", T, [
        torch.ones(2, 4), torch.ones(3, 3), torch.ones(6), T.double(), T.t().contiguous().t(),
        T.to("meta"), T.clone().requires_grad_(), nn.Parameter(T), T.to_sparse(), 3, None,
        T.to(torch.complex64).conj(),
    ], passes=[torch.zeros(2, 3)]),
    Example("TENSOR", T, [torch.ones(2, 3).t(), torch.ones(3, 3)],
            value=TensorSpec.of(T, (2, None), (None, 1)), passes=[torch.ones(2, 7)]),
    Example("TENSOR", nn.Parameter(T), [T, nn.Parameter(T, requires_grad=False)]),
    Example("CALLABLE_CODE", closure(1), [f1, 3, Plain().__init__], passes=[closure(2)]),
    Example("WEAK_ALIVE", weakref.ref(KEEP[0]), [weakref.ref(Plain()), 3]),
    Example("DUPLICATE", T, [torch.ones(2, 3)], value=B, b=T),
    Example("NO_ALIASING", T, [KEEP], value=(B,), b=KEEP),
    Example("GLOBAL_STATE", 0, source=PROCESS, value=None, states=[
        torch.no_grad, lambda: torch.autocast("cpu"),
        lambda: setting(torch.set_default_dtype, torch.float64, torch.float32),
        lambda: setting(torch.use_deterministic_algorithms, True, False),
    ]),
    Example("DEFAULT_DEVICE", 0, source=PROCESS, value=None, states=[
        lambda: setting(torch.set_default_device, "meta", None),
    ]),
    Example("TORCH_FUNCTION_MODES", 0, source=PROCESS, value=None,
            states=[Mode, lambda: torch.device("meta")]),
    Example("TRANSFORMS", 0, source=PROCESS, value=None, states=[
        lambda: vmap_increment_nesting(2, "error"), grad_increment_nesting,
    ]),
    Example("MODE", 0, source=PROCESS, states=[
        lambda: setting(torch._C._set_sdp_use_math, False, True),
    ], value=("_get_math_sdp_enabled", True)),
    Example("DEFINITIONS", 0, source=PROCESS, value=DEFINED.watch((), None), states=[
        lambda: setting_attribute(Plain, "__len__", lambda self: 1),
        lambda: setting_attribute(math, "sqrt", math.floor),
    ]),
    Example("NO_ERROR", 0, source=PROCESS, value=None, states=[KeyError]),
    Example("CUSTOM", [1, 2], [[1, 2, 3], 3], value=Predicate("len({}) < 3", lambda v: len(v) < 3),
            passes=[[]]),
    Example("ANSWER", 0, source=PROCESS, value=Answer("dispatch_modes()", dispatch_modes, 0),
            states=[TorchDispatchMode]),
]  # fmt: skip


def text_holds(text, a, b):
    try:
        return bool(eval(text, {**NAMES, "L": {"a": a, "b": b}, "G": {"__builtins__": {}}}))
    except Exception:
        return False


def test_every_kind_has_an_example():
    assert {example.kind for example in EXAMPLES} == set(GUARDS)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: f"{e.kind}-{e.a!r:.12}")
def test_guard_passes_on_the_same_and_fails_on_the_changed(example):
    wanted = GuardList()
    value = example.a if example.value is ... else example.value
    wanted.add(example.kind, example.source, value, ("user.py", 7))
    checked = build(wanted, example.a, example.b)
    (guard,) = checked.guards

    def agree(a, expected):
        locals = {"a": a, "b": example.b}
        failures = checked.explain(locals, {"__builtins__": {}})
        verdicts = checked.check(locals), text_holds(guard.text, a, example.b), not failures
        assert verdicts == (expected, expected, expected), (a, guard.text, failures)
        for failure in failures:
            assert failure.old != failure.new
            assert failure.user_line == ("user.py", 7) and failure.text == guard.text
        return failures

    for a in [example.a, *example.passes]:
        assert agree(a, True) == []
    for a in example.fails:
        agree(a, False)
    for state in example.states:
        if state is KeyError:
            try:
                raise state
            except KeyError:
                agree(example.a, False)
        else:
            with state():
                agree(example.a, False)
    assert agree(example.a, True) == []
    assert example.fails or example.states


@pytest.mark.parametrize("kind", list(GUARDS))
def test_rows_say_what_they_are_about(kind):
    assert GUARDS[kind].about


class Net(nn.Module):
    scale = 2

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.blocks = nn.ModuleList([nn.Linear(3, 3), nn.ReLU()])
        self.named = nn.ModuleDict({"one": nn.Linear(3, 3)})
        self.sequence = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        self.register_buffer("table", torch.ones(3))
        self.number = 4

    @property
    def double(self):
        return self.number * 2


class Odd(Net):
    def __getattr__(self, name):
        return "odd" if name == "odd" else super().__getattr__(name)


ATTRIBUTES = [
    (AttrSource(A, "number"), lambda m: setattr(m, "number", 5)),
    (AttrSource(A, "scale"), lambda m: setattr(m, "scale", 5)),
    (AttrSource(A, "double"), lambda m: setattr(m, "number", 5)),
    (AttrSource(A, "training"), lambda m: m.eval()),
    (AttrSource(AttrSource(A, "layer"), "in_features"),
     lambda m: setattr(m, "layer", nn.Linear(4, 3))),
    (AttrSource(AttrSource(A, "table"), "ndim"), lambda m: setattr(m, "table", torch.ones(3, 3))),
    (AttrSource(ItemSource(AttrSource(A, "blocks"), 0), "in_features"),
     lambda m: m.blocks.__setitem__(0, nn.Linear(4, 3))),
    (AttrSource(ItemSource(AttrSource(A, "named"), "one"), "in_features"),
     lambda m: m.named.__setitem__("one", nn.Linear(4, 3))),
    (AttrSource(ItemSource(AttrSource(A, "sequence"), 0), "in_features"),
     lambda m: m.sequence.__setitem__(0, nn.Linear(4, 3))),
    (ItemSource(DictSource(A), "number"), lambda m: setattr(m, "number", 5)),
    (AttrSource(AttrSource(AttrSource(A, "layer"), "weight"), "requires_grad"),
     lambda m: m.layer.weight.requires_grad_(False)),
]  # fmt: skip


@pytest.mark.parametrize("make", [Net, Odd])
@pytest.mark.parametrize("source,change", ATTRIBUTES, ids=lambda v: getattr(v, "name", ""))
def test_module_attributes_are_reached_and_watched(make, source, change):
    module = make()
    wanted = GuardList()
    value = source.evaluate(guard_list.Scope({"a": module}, {}))
    wanted.add("EQUALS", source, value)
    checked = build(wanted, module)
    change(module)
    assert not checked.check({"a": module, "b": None})
    (failure,) = checked.explain({"a": module, "b": None}, {})
    assert failure.old == repr(value) and failure.source == source.pretty


def test_instance_attribute_hides_parameter():
    module = Net()
    wanted = GuardList()
    wanted.add("TENSOR", AttrSource(AttrSource(A, "layer"), "weight"), module.layer.weight)
    checked = build(wanted, module)
    module.layer.__dict__["weight"] = 3
    assert not checked.check({"a": module, "b": None})


def test_getattr_of_the_user_is_asked():
    module = Odd()
    wanted = GuardList()
    wanted.add("EQUALS", AttrSource(A, "odd"), "odd")
    assert build(wanted, module).check({"a": Odd(), "b": None})


Pair = namedtuple("Pair", "x y")

CONTAINERS = [
    ([1, 2], ItemSource(A, 1), [1, 3]),
    ([1, 2], ItemSource(A, -1), [1, 3]),
    ((1, 2), ItemSource(A, 1), (1, 3)),
    (Pair(1, 2), ItemSource(A, 1), Pair(1, 3)),
    (Pair(1, 2), AttrSource(A, "y"), Pair(1, 3)),
    ({"x": 1}, ItemSource(A, "x"), {"x": 2}),
    ({"x": 1}, ItemSource(A, "x"), {}),
    (OrderedDict(x=1), ItemSource(A, "x"), OrderedDict(x=2)),
    (types.MappingProxyType({"x": 1}), ItemSource(A, "x"), types.MappingProxyType({"x": 2})),
    ("ab", ItemSource(A, 1), "ac"),
    ([1, 2, 3], CallSource(A, len, "len({})"), [1]),
    (Plain(x=1), AttrSource(A, "x"), Plain(x=2)),
    (Plain(x=1), ItemSource(DictSource(A), "x"), Plain(x=2)),
    (Net(), AttrSource(TypeSource(A), "scale"), Plain()),
    (closure(1), AttrSource(ItemSource(AttrSource(A, "__closure__"), 0), "cell_contents"),
     closure(2)),
    (torch, AttrSource(AttrSource(A, "version"), "debug"), nn),
    (torch, ItemSource(DictSource(A), "__name__"), nn),
    ({"x": [{"y": (1, 2)}]}, ItemSource(ItemSource(ItemSource(ItemSource(A, "x"), 0), "y"), 1),
     {"x": [{"y": (1, 3)}]}),
]  # fmt: skip


@pytest.mark.parametrize("value,source,changed", CONTAINERS, ids=lambda v: getattr(v, "name", ""))
def test_sources_are_reached(value, source, changed):
    wanted = GuardList()
    wanted.add("EQUALS", source, source.evaluate(guard_list.Scope({"a": value}, {})))
    checked = build(wanted, value)
    assert checked.check({"a": value, "b": None})
    assert not checked.check({"a": changed, "b": None})
    assert not checked.check({"a": None, "b": None})
    for broken in (changed, None):
        (failure,) = checked.explain({"a": broken, "b": None}, {})
        assert failure.source == source.pretty


@pytest.mark.parametrize("builtins", [{"len": len}, types.SimpleNamespace], ids=["dict", "module"])
def test_globals_and_builtins(builtins):
    if not isinstance(builtins, dict):
        builtins = types.ModuleType("builtins")
        builtins.len = len
    scope = {"n": 3, "__builtins__": builtins}
    wanted = GuardList()
    wanted.add("EQUALS", GlobalSource("n"), 3)
    wanted.add("ID", GlobalSource("len"), len)
    checked = build(wanted, 1, globals=scope)
    locals = {"a": 1, "b": None}
    assert checked.check(locals)
    scope["n"] = 4
    assert not checked.check(locals)
    assert [str(f) for f in checked.explain(locals, scope)] == ["n: 3 -> 4"]
    scope["n"] = 3
    scope["len"] = max
    assert not checked.check(locals), "a global hides the builtin"
    assert [f.source for f in checked.explain(locals, scope)] == ["len"]


def test_cells_and_free_variables_are_reached_through_the_hook():
    n = 1
    offered = []

    def outer(a):
        b = a  # a cell of this frame

        def inner():
            return b + n

        return inner()

    def callback(frame, cache, state):
        if frame.code.co_name != "outer":
            return hook.Skip("not this one")
        offered.append(dict(frame.locals))
        wanted = GuardList()
        wanted.add("EQUALS", LocalSource("n", cell=True), frame.locals["n"])
        wanted.add("EQUALS", LocalSource("a"), frame.locals["a"])
        checked = guard_list.build(wanted, None, frame.code, frame.locals, frame.globals, "0/0")
        return hook.Compiled(frame.code, checked, "0/0")

    run = hook.wrap(outer, callback)
    assert [run(1), run(1)] == [2, 2] and len(offered) == 1
    n = 5
    assert [run(1), run(1)] == [6, 6] and len(offered) == 2
    n = 1
    assert run(1) == 2 and len(offered) == 2


def test_tensor_failures_name_the_property():
    wanted = GuardList()
    wanted.add("TENSOR", A, T)
    checked = build(wanted, T)

    def diff(value):
        return [str(f) for f in checked.explain({"a": value, "b": None}, {})]

    assert diff(torch.ones(2, 5)) == ["a.shape[1]: 3 -> 5"]
    assert diff(T.double()) == ["a.dtype: torch.float32 -> torch.float64"]
    assert diff(T.clone().requires_grad_()) == ["a.requires_grad: False -> True"]
    assert diff(torch.ones(2)) == ["a.ndim: 2 -> 1"]
    assert diff(torch.ones(3, 2).t()) == ["a.stride(0): 3 -> 1", "a.stride(1): 1 -> 2"]
    assert diff(T.half()[:, :2]) == [
        "a.dtype: torch.float32 -> torch.float16",
        "a.shape[1]: 3 -> 2",
    ]
    assert diff(None) == ["type(a): torch.Tensor -> NoneType"]
    assert diff(T.to("meta"))[0] == "a.device: cpu -> meta"


def test_explain_reports_all_failures_of_a_frame():
    wanted = GuardList()
    wanted.add("EQUALS", A, 1)
    wanted.add("ID", B, f1)
    wanted.add("GLOBAL_STATE", PROCESS)
    checked = build(wanted, 1, f1)
    with torch.no_grad():
        failures = checked.explain({"a": 2, "b": f2}, {})
    names = [f"function {f.__module__}.{f.__qualname__}" for f in (f1, f2)]
    assert [str(f) for f in failures] == [
        "a: 1 -> 2",
        f"b: {names[0]} -> {names[1]}",
        "grad_mode: True -> False",
    ]


def test_explain_never_raises():
    class Nasty:
        def __getattribute__(self, name):
            raise RuntimeError("no")

        def __repr__(self):
            raise RuntimeError("no")

        def __len__(self):
            raise RuntimeError("no")

        def __eq__(self, other):
            raise RuntimeError("no")

        __hash__ = None

    for example in EXAMPLES:
        if example.source is not A:
            continue
        wanted = GuardList()
        wanted.add(example.kind, A, example.a if example.value is ... else example.value)
        checked = build(wanted, example.a, example.b)
        for locals in ({"a": Nasty(), "b": example.b}, {}):
            assert isinstance(checked.explain(locals, {}), list)


def test_list_keeps_order_and_drops_repeats():
    wanted = GuardList()
    wanted.add("EQUALS", A, 1, ("first.py", 1))
    wanted.add("TYPE", A, 1)
    assert wanted.add("EQUALS", A, 1, ("second.py", 2)).user_line == ("first.py", 1)
    wanted.add("EQUALS", A, True)
    assert [g.kind for g in wanted] == ["EQUALS", "TYPE", "EQUALS"]
    twin = wanted.copy()
    twin.add("NONE", B)
    assert (len(wanted), len(twin)) == (3, 4)
    wanted.extend(twin)
    assert len(wanted) == 4 and str(wanted).splitlines()[0].endswith("# first.py:1")


@pytest.mark.parametrize("value", [[1], {"x": 1}, T, Plain(), torch.nn.ReLU(), (1).__add__])
def test_what_is_not_a_constant_gets_no_equals_guard(value):
    with pytest.raises(StageError, match="EQUALS"):
        GuardList().add("EQUALS", A, value)


def test_guards_must_hold_for_their_own_frame():
    wanted = GuardList()
    wanted.add("EQUALS", A, 1, ("user.py", 3))
    with pytest.raises(StageError, match=r"fails for the frame.*same\(L\['a'\], 1\).*a: 1 -> 2"):
        build(wanted, 2)


def test_a_guard_that_cannot_be_reached_is_named():
    wanted = GuardList()
    wanted.add("EQUALS", AttrSource(LocalSource("nowhere"), "x"), 1)
    with pytest.raises(StageError, match=r"cannot install guard EQUALS.*L\['nowhere'\]\.x"):
        build(wanted, 2)


def test_text_lists_all_guards():
    wanted = GuardList()
    wanted.add("TENSOR", A, T, ("model.py", 12))
    wanted.add("EQUALS", B, 3)
    lines = build(wanted, T, 3).text.splitlines()
    assert lines[0].startswith("TENSOR: check_tensor(L['a'], 'torch.Tensor', torch.float32, ")
    assert lines[0].endswith("  # model.py:12")
    assert lines[1] == "EQUALS: same(L['b'], 3)"
