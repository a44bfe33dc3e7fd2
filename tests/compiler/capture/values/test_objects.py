"""What an instance holds itself, under names that its class answers as well."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch

import tc


class Plain:
    v: Any


class Tenfold:
    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, name)
        return value * 10 if name == "v" else value


class Counted:
    @property
    def v(self) -> Any:
        return self.__dict__.get("v", 1) + 100

    @v.setter
    def v(self, value: Any) -> None:
        self.__dict__["v"] = value


class Scaled(torch.nn.Module):
    @property
    def k(self) -> Any:
        return vars(self)["k"] * 2

    @k.setter
    def k(self, value: Any) -> None:
        vars(self)["k"] = value

    def forward(self, x: Any) -> Any:
        return x * self.k


plain, tenfold, counted, scaled = Plain(), Tenfold(), Counted(), Scaled()
X = torch.ones(2)


def reading(x: Any) -> Any:
    held = vars(plain).get("v"), vars(tenfold)["v"]
    return x * 1, held, getattr(plain, "v", 1), tenfold.v, counted.v, scaled(x), scaled.k


def writing(x: Any) -> Any:
    tenfold.v = tenfold.v + 1
    counted.v = counted.v + 1
    scaled.k = scaled.k + 1
    vars(counted)["v"] += 5
    return x + counted.v + scaled.k + tenfold.v


def start(v: int) -> None:
    plain.v = tenfold.v = counted.v = scaled.k = v


def test_what_the_class_hides_is_read_from_the_instance() -> None:
    compiled = tc.compile(reading, backend="eager")
    start(3)
    assert str(compiled(X)) == str(reading(X))
    Plain.v = property(lambda self: 7)
    try:
        for step in range(3):
            assert str(compiled(X)) == str(reading(X))
            vars(plain)["v"] = tenfold.v = scaled.k = 13 + step
            counted.v += 1
            assert str(compiled(X)) == str(reading(X))
    finally:
        del Plain.v


def test_what_the_class_hides_is_written_to_the_instance() -> None:
    def outcome(f: Any, v: int) -> str:
        start(v)
        return str((f(X), vars(counted), vars(tenfold), vars(scaled)["k"]))

    compiled = tc.compile(writing, backend="eager")
    for v in (1, 2, 3):
        assert outcome(compiled, v) == outcome(writing, v)


class Meta(type):
    def __call__(cls, *args: Any) -> Any:
        return super().__call__(*args)


class Made(metaclass=Meta):
    def __init__(self, v: Any) -> None:
        self.v = v


class Single(type):
    made: ClassVar[dict[type, Any]] = {}

    def __call__(cls, *args: Any) -> Any:
        if cls not in cls.made:
            cls.made[cls] = super().__call__(*args)
        return cls.made[cls]


class Only(metaclass=Single):
    def __init__(self) -> None:
        self.n = 0


def counting(x: Any) -> Any:
    Only().n += 1
    return x + Only().n


def test_classes_that_are_called_in_their_own_way() -> None:
    torch.testing.assert_close(tc.compile(lambda x: Made(x).v + 1, backend="eager")(X), X + 1)
    compiled = tc.compile(counting, backend="eager")
    for n in (1, 2, 3):
        torch.testing.assert_close(compiled(X), X + n)


CODE_WITHOUT_A_MODULE = """
class Sized:
    def __init__(self, n): self.n = n
    def __len__(self): return self.n

class Checks(type):
    def __instancecheck__(cls, other): return other == 3

class Checked(metaclass=Checks):
    pass

class Net(torch.nn.Module):
    def forward(self, x): return x + isinstance(3, Checked)

class Descent(torch.optim.SGD):
    def step(self, closure=None):
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    p.add_(p.grad, alpha=-group["lr"])

class Failed(Exception):
    pass

def decorated(function):
    def call(*args): return function(*args)
    return call

@torch._dynamo.disable
def outside(x): return x + 1

@decorated
def program(x):
    try:
        raise Failed("text")
    except Failed as error:
        text = str(error)
    return outside(x + len(Sized(3)) + isinstance(3, Checked)) + Net()(x), text
"""


def test_code_that_was_executed_without_a_module_compiles():
    names = {"torch": torch}
    exec(CODE_WITHOUT_A_MODULE, names)
    assert names["program"].__module__ is None
    x = torch.ones(2)
    assert repr(tc.compile(names["program"])(x)) == repr(names["program"](x))
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    tc.compile(names["Descent"]([weight], lr=0.5).step)()
    assert weight.tolist() == [0.5, 0.5]


ASKED: list[str] = []


class Asked:
    """Records which attributes it is asked for that it does not have."""

    def __init__(self, held: torch.Tensor) -> None:
        self.held = held

    def __getattr__(self, name: str) -> Any:
        ASKED.append(name)
        raise AttributeError(name)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.held + x


class AskedList(list):
    __getattr__ = Asked.__getattr__


class AskedModule(torch.nn.Module):
    def __getattr__(self, name: str) -> Any:
        ASKED.append(name)
        return super().__getattr__(name)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def test_no_object_is_asked_for_what_the_program_does_not_read():
    def called(given, x):
        return given(x) * 2, [given], type(given).__name__, callable(given)

    def measured(given, x):
        return x + len(given), given

    x = torch.ones(2)
    for function, given in ((called, Asked(x)), (called, AskedModule()), (measured, AskedList())):
        tc.reset()  # the reason of a recompile is found by asking
        compiled = tc.compile(function)
        for _ in range(3):
            ASKED.clear()
            compiled(given, x)
            assert not ASKED


class Lookup(dict):
    """Has its items as attributes, by the methods of dict itself."""

    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__


class Appending(list):
    __getattr__ = functools.partial("{}?".format)
    __setattr__ = staticmethod(lambda name, value: None)


KEPT = Lookup(a=1, gone=2)


def made_empty(x: torch.Tensor) -> Any:
    made = Lookup()
    made.size, made.x = x.shape[0], x
    del made.size
    return made.x * 2, dict(made), vars(made)


def made_with_items(x: torch.Tensor) -> Any:
    made = Lookup(a=1, b=2)
    made.a = x
    del made.b
    object.__setattr__(made, "c", 3)
    return x + 1, dict(made), vars(made)


def kept(x: torch.Tensor) -> Any:
    KEPT.a += 1
    KEPT.new = x.shape[0]
    KEPT.gone = 1
    del KEPT.gone
    return x * KEPT.a, dict(KEPT), vars(KEPT)


def other_callables(x: torch.Tensor) -> Any:
    made = Appending()
    made.name = 1
    return x + 1, made.absent, vars(made)


class Falling:
    """Falls back for a property that lacks something."""

    @property
    def half(self) -> Any:
        return self.whole / 2

    def __getattr__(self, name: str) -> Any:
        if name == "half":
            return "no half"
        raise AttributeError(name)


def properties_fall_back(x: torch.Tensor) -> Any:
    made = Falling()
    before = made.half
    made.whole = x
    return made.half, before, hasattr(made, "third")


def test_a_property_that_raises_leads_to_getattr() -> None:
    x = torch.ones(3)
    want = properties_fall_back(x)
    assert repr(tc.compile(properties_fall_back, fullgraph=True)(x)) == repr(want)


@pytest.mark.sample(2)
@pytest.mark.parametrize("program", [made_empty, made_with_items, kept, other_callables])
def test_slots_for_attributes_are_defined_by_any_callable(program: Callable[..., Any]) -> None:
    def run(f: Callable[..., Any]) -> list[str]:
        KEPT.clear()
        KEPT.update(a=1)
        return [repr(f(torch.ones(size))) for size in (2, 3, 4)] + [repr(KEPT)]

    tc.reset()
    assert run(tc.compile(program)) == run(program)


class Named:
    @classmethod
    @property
    def title(cls) -> str:
        return cls.__name__.lower()


@pytest.mark.parametrize("owner", [Named, Named()], ids=["class", "instance"])
def test_class_methods_of_properties(owner: Any) -> None:
    def program(x: torch.Tensor) -> Any:
        return x + 1, str(owner.title)

    want, got = program(torch.ones(2)), tc.compile(program)(torch.ones(2))
    assert repr(got).split(" at ")[0] == repr(want).split(" at ")[0]


class Watching:
    """Notes each attribute that is read."""

    seen: ClassVar[list[str]] = []
    reads: ClassVar[int] = 0

    def __getattribute__(self, name: str) -> Any:
        Watching.reads += 1
        Watching.seen.append(name)
        return object.__getattribute__(self, name)


WATCHING = Watching()


def reads_and_counts(x: torch.Tensor) -> Any:
    return x + WATCHING.v, Watching.reads


def writes(x: torch.Tensor) -> Any:
    WATCHING.v = x.shape[0]
    WATCHING.other = 1
    return x * WATCHING.v


@pytest.mark.parametrize("program", [reads_and_counts, writes])
def test_reads_that_the_program_notes_are_its_own(program: Callable[..., Any]) -> None:
    def run(f: Callable[..., Any]) -> list[str]:
        Watching.reads = 0
        Watching.seen.clear()
        object.__setattr__(WATCHING, "v", 3)
        found = [repr(f(torch.ones(size))) for size in (2, 3, 4)]
        return [*found, repr((Watching.seen, Watching.reads))]

    tc.reset()
    assert run(tc.compile(program)) == run(program)


class Positive:
    """Checks what is stored; what is read is the object's own."""

    def __set_name__(self, owner, name):
        self.name = name

    def __set__(self, obj, value):
        if value <= 0:
            raise ValueError(self.name)
        obj.__dict__[self.name] = value


class Scaled:
    scale = Positive()

    def __init__(self, scale):
        self.scale = scale


class ScaledModule(torch.nn.Module):
    scale = Positive()

    def __init__(self):
        super().__init__()
        self.scale = 4

    def forward(self, x):
        return x * self.scale


def changed_inside(x):
    made = Scaled(3)
    made.scale += 1
    try:
        made.scale = -1
    except ValueError as error:
        return x * made.scale, str(error), vars(made)


def never_set(x):
    return x + 1, type(Scaled.__new__(Scaled).scale).__name__


SCALED, SCALED_MODULE = Scaled(9), ScaledModule()


@pytest.mark.parametrize(
    "program",
    [lambda x: x * SCALED.scale, lambda x: SCALED_MODULE(x), changed_inside, never_set],
)
def test_a_descriptor_that_only_stores_hides_nothing(program):
    compiled = tc.compile(program, backend="eager")
    assert str(compiled(torch.ones(2))) == str(program(torch.ones(2)))


def test_a_descriptor_may_begin_to_take_precedence():
    class One:
        def __get__(self, obj, owner):
            return 1

    class Holds:
        one = One()

    held = Holds()
    held.one = 9
    compiled = tc.compile(lambda x: x * held.one, backend="eager")
    for name in ("", "__set__", "", "__delete__"):
        if name:
            setattr(One, name, lambda self, obj, *value: None)
        assert compiled(torch.ones(1)).tolist() == [held.one]
        if name:
            delattr(One, name)


def test_an_iterator_of_none_refuses():
    class Endless:
        __iter__ = None

        def __getitem__(self, at):
            return at

    def program(x):
        try:
            return list(Endless())
        except TypeError as error:
            return x + 1, str(error)

    assert str(tc.compile(program)(torch.ones(1))) == str(program(torch.ones(1)))


def test_whether_distributions_check_their_arguments_may_change():
    normal = torch.distributions.Normal
    compiled = tc.compile(lambda x: normal(x, -x).mean + 1, backend="eager")
    x, check = torch.ones(2), torch.distributions.Distribution.set_default_validate_args
    try:
        for checks in (False, True, False, True):
            check(checks)
            if checks:
                with pytest.raises(ValueError, match="scale"):
                    compiled(x)
            else:
                assert compiled(x).tolist() == [2.0, 2.0]
    finally:
        check(True)
