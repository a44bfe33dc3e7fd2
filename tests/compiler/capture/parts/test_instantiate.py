"""Objects that traced code makes: the constructors of one type of elements each."""

from __future__ import annotations

import abc
import collections.abc  # noqa: F401
import typing

import numpy as np
import pytest
import torch

import tc

KINDS = [
    torch.Tensor,
    torch.FloatTensor, torch.DoubleTensor, torch.HalfTensor, torch.BFloat16Tensor, torch.LongTensor,
    torch.IntTensor, torch.ShortTensor, torch.CharTensor, torch.ByteTensor, torch.BoolTensor,
]  # fmt: skip
MADE = {
    "numbers": lambda kind, x: kind([1, 0, 1]),
    "rows": lambda kind, x: kind([[1, 0], [0, 1]]),
    "sizes": lambda kind, x: kind(2, 3).zero_(),
    "a shape": lambda kind, x: kind(x.shape).fill_(1),
    "a number of the shape": lambda kind, x: kind([x.shape[0], 1]),
    "numbers of an array": lambda kind, x: kind([*np.arange(3)]),
    "numbers of tensors": lambda kind, x: kind([x.sum().long(), x[0].bool(), 2]),
    "nothing": lambda kind, x: kind(),
    "the shape of a number": lambda kind, x: kind(x.sum().shape).fill_(1),
    "sizes of a shape": lambda kind, x: kind(torch.Size([2, 2])).fill_(1),
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("made", MADE)
def test_constructors_of_one_type_are_captured(kind, made):
    def program(x):
        return MADE[made](kind, x), x + 1

    tc.reset()
    compiled = tc.compile(program, fullgraph=True)
    for size in (3, 4, 5):
        found, wanted = compiled(torch.ones(size)), program(torch.ones(size))
        assert found[0].dtype == wanted[0].dtype
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("kind", [torch.int64, torch.bool, torch.float32], ids=str)
def test_whole_numbers_are_not_made_of_fractions(kind):
    def program(x):
        return torch.tensor([x.sum(), 1], dtype=kind)

    x = torch.tensor([1.5, 2])
    if kind is torch.float32:
        torch.testing.assert_close(tc.compile(program)(x), program(x))
        return
    for function in (program, tc.compile(program)):
        with pytest.raises(TypeError):
            function(x)


class Abstract(abc.ABC):
    v = 3

    @abc.abstractmethod
    def m(self): ...

    @property
    @abc.abstractmethod
    def p(self): ...


class OwnNew(Abstract):
    def __new__(cls, *args):
        return super().__new__(cls)


class AbstractModule(torch.nn.Module, abc.ABC):
    @abc.abstractmethod
    def m(self): ...


class AbstractList(list, abc.ABC):
    @abc.abstractmethod
    def m(self): ...


class Named(typing.Protocol):
    def m(self):
        return 4


class OfProtocol(Named):
    def __init__(self, v=2):
        self.v = v


class Sized(type):
    def __len__(cls):
        return 3


class OfMetaclass(metaclass=Sized):
    v = 2


class After(type):
    def __call__(cls, *args):
        made = super().__call__(*args)
        made.v = 2 * getattr(made, "v", 1)
        return made


class ByType(type):
    def __call__(cls, *args):
        return type.__call__(cls, *args)


class InTwoSteps(type):
    def __call__(cls, *args):
        made = cls.__new__(cls)
        made.__init__(*args)
        return made


class Other(type):
    def __call__(cls, *args):
        return len(args)


class Refuses(type):
    def __call__(cls, *args):
        raise TypeError("no")


def of(metaclass, *bases):
    def start(self, v=3):
        self.v = v

    return metaclass("Made", bases, {"__init__": start})


MadeAfter, MadeByType, MadeInSteps = map(of, (After, ByType, InTwoSteps))
MadeOther, MadeNever = map(of, (Other, Refuses))
ModuleAfter = After("ModuleAfter", (torch.nn.Module,), {})
ErrorAfter = After("ErrorAfter", (Exception,), {})
CALLS = [
    *("Abstract()", "Abstract(1, a=2)", "OwnNew(1)", "object.__new__(Abstract)"),
    *("AbstractModule()", "len(AbstractList([1]))", "collections.abc.Mapping()"),
    *("Named()", "OfProtocol(4).m() + OfProtocol().v", "isinstance(OfProtocol(), Named)"),
    *("OfMetaclass().v * len(OfMetaclass)", "MadeAfter(5).v", "MadeByType(5).v", "MadeByType().v"),
    *("MadeInSteps(5).v", "MadeOther(1, 2)", "MadeNever()", "ModuleAfter().v", "ErrorAfter('a').v"),
]


@pytest.mark.parametrize("call", CALLS)
def test_classes_are_called_as_their_metaclasses_say(call):
    space = dict(globals())
    exec(
        "def f(x):\n"
        "    try:\n"
        f"        return x * 2, {call}\n"
        "    except TypeError as error:\n"
        "        return x * 3, str(error)\n",
        space,
    )
    f, x = space["f"], torch.ones(2)
    assert tc.compile(f, fullgraph=True, backend="eager")(x)[1] == f(x)[1]


def test_a_class_may_become_abstract_and_the_reverse():
    class Changing(Abstract):
        pass

    def f(x):
        try:
            return x * Changing().v
        except TypeError:
            return x * 2

    compiled, x = tc.compile(f, backend="eager"), torch.ones(2)
    abstract = Changing.__abstractmethods__
    for methods in (abstract, frozenset(), abstract):
        Changing.__abstractmethods__ = methods
        assert compiled(x).equal(f(x))


@pytest.mark.parametrize("kind", [ExceptionGroup, BaseExceptionGroup])
def test_groups_of_exceptions_are_made_and_refused_as_by_python(kind):
    given = [
        (), ("a",), ("a", 3), ("a", []), ("a", [3]), (3, [ValueError()]), ("a", [ValueError()], 4),
        ("a", [KeyboardInterrupt()]), ("a", (ValueError(1), TypeError(2))),
    ]  # fmt: skip

    def program(x):
        found = []
        for args in given:
            try:
                found.append(repr(kind(*args)))
            except (TypeError, ValueError) as error:
                found.append(str(error))
        try:
            raised_again()
        except ExceptionGroup as group:
            found.append(repr(group))
        return x + 1, found

    def raised_again():
        try:
            raise ValueError(42)
        except* ValueError:
            raise

    tc.reset()
    assert tc.compile(program, backend="eager")(torch.ones(1))[1] == program(torch.ones(1))[1]


OVERRIDES = {
    "nothing": "pass",
    "a constructor": "def __new__(cls, items=(), k=0): return super().__new__(cls, items)",
    "an initialiser": "def __init__(self, items=(), k=0): self.k = k",
    "a constructor that forwards it": "def __new__(cls, items=(), k=0): "
    "return super().__new__(cls, items, k=k)",
}


@pytest.mark.parametrize("base", ["tuple", "list", "set", "frozenset", "dict"])
@pytest.mark.parametrize("override", OVERRIDES)
def test_keywords_of_classes_that_derive_from_containers(base, override):
    scope: dict = {}
    exec(f"class Derived({base}):\n    {OVERRIDES[override]}", scope)
    derived = scope["Derived"]

    def program(x):
        found = []
        for make in (lambda: derived(k=3), lambda: derived((), k=3), lambda: derived((), ())):
            try:
                made = make()
                found.append((type(made).__name__, len(made), vars(made)))
            except TypeError as error:
                found.append(str(error))
        return x + 1, found

    tc.reset()
    assert tc.compile(program, backend="eager")(torch.ones(1))[1] == program(torch.ones(1))[1]
