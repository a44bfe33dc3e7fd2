"""Objects that are found under several sources, where the program changes one of them."""

from __future__ import annotations

import array
import collections
import dataclasses
import types
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch

import tc


class Base:
    n = 0


class Derived(Base):
    pass


def by_type(x, owner, cls):
    type(owner).n = 5
    return x + Base.n


def by_class_attribute(x, owner, cls):
    owner.__class__.n += 2
    return x + Base.n + owner.n


def by_name(x, owner, cls):
    Base.n = 7
    return x + type(owner).n


def by_argument(x, owner, cls):
    type(owner).n = 6
    cls.n += 1
    return x + Base.n


@pytest.mark.parametrize("program", [by_type, by_class_attribute, by_name, by_argument])
def test_a_class_is_one_object_wherever_it_is_found(program):
    compiled, x = tc.compile(program, backend="eager"), torch.ones(2)
    for cls in (Base, Derived, Base):
        results = []
        for run in (program, compiled):
            Base.n = 0
            if "n" in vars(Derived):
                del Derived.n
            results.append(repr((run(x, Base(), cls), Base.n, Derived.n)))
        assert results[0] == results[1]
    Base.n = 0


def test_there_is_one_empty_tuple():
    def f(x, default=(), *rest):
        sizes = tuple(x.shape)[:0] is default, x.shape[:0] is default
        return (
            x + 1,
            tuple(rest[:0]) is default,
            rest is default,
            (x,)[1:] is rest,
            (x,) is (x,),
            sizes,
        )

    compiled = tc.compile(f, backend="eager", fullgraph=True)
    for rest in ((), ((),), ((1,),), ((), 1)):
        assert str(compiled(torch.ones(2), *rest)) == str(f(torch.ones(2), *rest))


# -- an object and its dictionary, both given --------------------------------------------------
class Holder:
    shared: ClassVar[dict[str, object]] = {}


class Sharing:
    def __init__(self):
        self.__dict__ = Holder.shared


class Dict(dict):
    pass


class Scaling(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("b", torch.ones(2))
        self.a = 1

    def forward(self, x):
        return x * self.b * self.a


def with_attributes(made):
    made.a = 1
    return made, vars(made)


def sharing():
    Holder.shared = {"a": 1}
    made = Sharing(), Sharing()
    return made[0], vars(made[1])


def function():
    def made(x):
        return x

    return with_attributes(made)


OWNERS = {
    "object": lambda: with_attributes(Holder()),
    "dict": lambda: with_attributes(Dict()),
    "exception": lambda: with_attributes(ValueError()),
    "namespace": lambda: with_attributes(types.SimpleNamespace()),
    "module": lambda: with_attributes(Scaling()),
    "python module": lambda: with_attributes(types.ModuleType("made")),
    "tensor": lambda: with_attributes(torch.ones(2)),
    "function": function,
    "sharing": sharing,
}


def writes_items(owner, held, x):
    held["a"] = 5
    held["c"] = x
    return owner.a * x, sorted(held)[:1], hasattr(owner, "c")


def writes_attributes(owner, held, x):
    owner.a = 5
    return held["a"] * x


def deletes(owner, held, x):
    held.pop("a")
    return getattr(owner, "a", 3) * x


def clears(owner, held, x):
    held.clear()
    return hasattr(owner, "a"), x + 1


def compares(owner, held, x):
    return owner.__dict__ is held, owner.a * x


def reads(owner, held, x):
    return owner.a * x, held["a"] + x


def breaks_between(owner, held, x):
    y = x + 1
    print(end="")
    held["a"] = 6
    return owner.a * y


PROGRAMS = (writes_items, writes_attributes, deletes, clears, compares, reads, breaks_between)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("kind", OWNERS)
def test_an_object_and_its_dictionary(kind, program):
    if kind == "module" and program in (deletes, clears):
        return  # a module without its attributes has none that hold them
    tc.reset()
    compiled = tc.compile(program, backend="eager")
    for same in (False, True, True, False, True):
        results = []
        for call in (program, compiled):
            owner, held = OWNERS[kind]()
            held = held if same else {"a": 1}
            results.append((str(call(owner, held, torch.ones(2))), owner.__dict__.get("a"), held))
        (got, now, items), (want, after, others) = results[1], results[0]
        assert (got, now, sorted(items)) == (want, after, sorted(others)), same


def writes_buffer(model, table, x):
    table["b"] = x * 7
    return model(x)


def stores_buffer(model, table, x):
    model.b = x * 7
    return table["b"] + model.b


def compares_tables(model, table, x):
    return model._buffers is table, model(x)


@pytest.mark.parametrize("program", [writes_buffer, stores_buffer, compares_tables])
def test_a_module_and_its_table(program):
    tc.reset()
    compiled = tc.compile(program, backend="eager")
    for same in (False, True, True, False, True):
        results = []
        for call in (program, compiled):
            model = Scaling()
            table = model._buffers if same else {"b": torch.ones(2)}
            results.append((str(call(model, table, torch.ones(2))), str(model.b), str(table)))
        assert results[0] == results[1], same


def test_objects_with_one_dictionary_beside_another_that_is_changed():
    def program(first, second, held, x):
        held["a"] = 5
        return first.a * x, second.a + x

    def make(kind):
        Holder.shared = {"a": 1}
        first, second, other = Sharing(), Sharing(), Holder()
        if kind == "apart":
            second.__dict__ = {"a": 1}
        held = {"first": vars(first), "second": vars(second), "apart": vars(second)}
        return first, second, held.get(kind, vars(other))

    tc.reset()
    compiled = tc.compile(program, backend="eager")
    for kind in ("none", "first", "none", "apart", "second", "none", "apart"):
        want, got = program(*make(kind), torch.ones(2)), compiled(*make(kind), torch.ones(2))
        assert str(got) == str(want), kind


def test_an_object_behind_its_dictionary_is_found_by_later_attempts():
    def program(first, second, x):
        first["n"] = x
        y = x + 1
        print(end="")
        second["m"] = y
        return holders[0].n + holders[1].m, holders[0].a

    def make():
        holders[:] = [Holder(), Holder()]
        holders[0].a = 2
        return vars(holders[0]), vars(holders[1])

    holders: list[Holder] = []
    tc.reset()
    compiled = tc.compile(program, backend="eager")
    for _ in range(3):
        want = program(*make(), torch.ones(2))
        got = compiled(*make(), torch.ones(2))
        assert str(got) == str(want)
        assert sorted(vars(holders[0])) == ["a", "n"]


box = Holder()


@pytest.mark.parametrize("order", [(True, False, True), (False, True, False)])
def test_a_dictionary_in_a_cell_is_met_before_its_object(order):
    def of_a_global(held, owner, x):
        def inner():
            box.a = 7
            return x + held["a"]

        return inner()

    def of_another_cell(held, owner, x):
        def inner():
            held["a"] = 5
            return owner.a * x, vars(owner) is held

        return inner()

    for program in (of_a_global, of_another_cell):
        tc.reset()
        compiled = tc.compile(program, backend="eager")
        for same in order:
            results = []
            for call in (program, compiled):
                box.a = 1
                results.append(str(call(vars(box) if same else {"a": 1}, box, torch.ones(2))))
            assert results[0] == results[1], same


# -- two functions and one cell ---------------------------------------------------------------
def counting():
    n, numbers = 1, [1]

    def count(k=1):
        nonlocal n
        n += k
        numbers.append(n)
        return n

    def now():
        return n

    def all_numbers():
        return numbers

    return count, now, all_numbers


def reads_then_writes(count, now, numbers, x):
    before = now()
    count(3)
    return (now() + before) * x


def appends(count, now, numbers, x):
    numbers().append(9)
    count()
    return numbers()[-1] * x, now()


def counts_around_a_break(count, now, numbers, x):
    count()
    y = x * now()
    print(end="")
    count()
    return y + now(), len(numbers())


def stores_contents(count, now, numbers, x):
    now.__closure__[0].cell_contents = 7
    return now() * x, count()


CELLS = (reads_then_writes, appends, counts_around_a_break, stores_contents)


@pytest.mark.parametrize("order", ["sasas", "asaas"])
@pytest.mark.parametrize("program", CELLS)
def test_functions_that_share_a_cell_or_not(program, order):
    def make(kind):
        first, second = counting(), counting()
        return first[0], *(first if kind == "s" else second)[1:]

    tc.reset()
    compiled = tc.compile(program, backend="eager")
    for kind in order:
        wanted, args = make(kind), make(kind)
        for _ in range(2):
            want = program(*wanted, torch.ones(2)), wanted[0](), wanted[1]()
            assert str((compiled(*args, torch.ones(2)), args[0](), args[1]())) == str(want), kind


def test_a_cell_of_the_frame_itself_may_be_shared_in_a_later_call():
    def make():
        n = 1

        def count():
            nonlocal n
            n += 3
            return n

        def program(count, x):
            before = n
            count()
            return (n + before) * x

        return program, count

    def run(compiled, kind):
        (first, own), (_, other) = make(), make()
        return str((tc.compile(first, backend="eager") if compiled else first)(
            own if kind == "own" else other, torch.ones(2)))  # fmt: skip

    tc.reset()
    for kind in ("other", "own", "other", "own"):
        assert run(True, kind) == run(False, kind), kind


class Items(list):
    pass


class Called(list):
    def __call__(self):
        return len(self)


class Keys(dict):
    pass


class Asked(dict):
    __getattr__ = dict.get
    __setattr__ = dict.__setitem__


class Default(collections.defaultdict):
    pass


class Members(set):
    def add(self, item):
        super().add(item)
        self.n = len(self)


class Slotted:
    __slots__ = ("k",)

    def __init__(self):
        self.k = 1


@dataclasses.dataclass
class Record:
    k: int = 1
    rows: list = dataclasses.field(default_factory=lambda: [1])


def stored(name: str, value: object) -> Callable[[Any], object]:
    return lambda a: setattr(a, name, value)


#: what changes an object, and what is read of it, or of another one
CHANGES: dict[str, tuple[Callable[[Any], object], Callable[[Any], Any]]] = {
    "attribute": (stored("k", 5), lambda b: b.k),
    "new attribute": (stored("new", 3), lambda b: getattr(b, "new", 1)),
    "its dictionary": (stored("k", 5), lambda b: vars(b)["k"]),
    "through its dictionary": (lambda a: vars(a).update(k=9), lambda b: b.k),
    "rows": (lambda a: a.rows.append(2), lambda b: len(b.rows)),
    "append": (lambda a: a.append(7), len),
    "extend": (lambda a: a.extend([7, 8]), len),
    "pop": (lambda a: a.pop(), len),
    "clear": (lambda a: a.clear(), len),
    "item": (lambda a: a.__setitem__(0, 7), lambda b: int(b[0])),
    "entry": (lambda a: a.__setitem__("a", 7), lambda b: b["a"]),
    "new entry": (lambda a: a.__setitem__("z", 7), len),
    "update": (lambda a: a.update({"y": 1}), len),
    "add": (lambda a: a.add(7), len),
    "args": (stored("args", (1, 2, 3)), lambda b: len(b.args)),
    "next": (next, lambda b: next(b)),
    "module": (lambda a: a.append(torch.nn.Identity()), len),
}  # fmt: skip
LIST = "append extend pop clear item"
DICT = "entry new_entry update clear"
OBJECT = "attribute new_attribute its_dictionary through_its_dictionary"
KINDS: dict[str, tuple[Callable[[], Any], str]] = {
    "list": (lambda: [1], LIST),
    "list object": (lambda: Items([1]), LIST + " new_attribute"),
    "called list": (lambda: Called([1]), LIST + " new_attribute"),
    "user list": (lambda: collections.UserList([1]), LIST),
    "deque": (lambda: collections.deque([1]), LIST),
    "dict": (lambda: {"a": 1}, DICT),
    "dict object": (lambda: Keys(a=1), DICT + " new_attribute"),
    "asked dict": (lambda: Asked(a=1), DICT),
    "ordered": (lambda: collections.OrderedDict(a=1), DICT + " new_attribute"),
    "default": (lambda: Default(int, a=1), "entry new_entry update new_attribute"),
    "counter": (lambda: collections.Counter(a=1), DICT),
    "user dict": (lambda: collections.UserDict(a=1), DICT),
    "chain": (lambda: collections.ChainMap({"a": 1}), "entry new_entry clear"),
    "set": (lambda: {1}, "add pop clear"),
    "set object": (lambda: Members([1]), "add pop clear new_attribute"),
    "array": (lambda: array.array("i", [1]), "append item"),
    "bytes": (lambda: bytearray(b"a"), "append item clear"),
    "slots": (Slotted, "attribute"),
    "record": (Record, OBJECT + " rows"),
    "namespace": (lambda: types.SimpleNamespace(k=1), OBJECT),
    "error": (lambda: ValueError(1), "args new_attribute"),
    "modules": (lambda: torch.nn.ModuleList([torch.nn.Identity()]), "module"),
    "function": (lambda: lambda: 0, "new_attribute"),
    "class": (lambda: type("K", (), {"k": 1}), "attribute new_attribute"),
    "iterator": (lambda: iter([1, 2, 3]), "next"),
    "generator": (lambda: (i for i in range(9)), "next"),
}
CASES = [(kind, what) for kind, (_, names) in KINDS.items() for what in names.split()]


@pytest.mark.sample(30)
@pytest.mark.parametrize(("kind", "what"), CASES)
def test_what_is_changed_may_be_what_is_read(kind: str, what: str) -> None:
    """Code compiled for two objects is not run for one that is given twice, nor the reverse."""
    make = KINDS[kind][0]
    change, read = CHANGES[what.replace("_", " ")]

    def direct(x, a, b):
        change(a)
        return x + read(b)

    def read_before(x, a, b):
        y = x * read(b)
        change(a)
        return y + read(b)

    def nested(x, a, b):
        change(a[0])
        return x + read(b["k"])

    def outcome(run, program, is_same):
        a = make()
        b = a if is_same else make()
        given = ([a], {"k": b}) if program is nested else (a, b)
        return run(torch.ones(1), *given).tolist()

    for program in (direct, read_before, nested):
        for order in ((False, True, False, True), (True, False, True, False)):
            tc.reset()
            compiled = tc.compile(program, backend="eager")
            for is_same in order:
                want = outcome(program, program, is_same)
                assert outcome(compiled, program, is_same) == want, (program.__name__, order)


def test_identity_of_texts_and_numbers_of_objects_that_the_frame_made():
    def program(x):
        name = "xyzpdq"
        other = name[:3] + name[3:]
        same = (name is other, name is not other, other == name)
        one, two = {1}, {1}
        numbers = []
        for each in (one, two):
            numbers.append(id(each))
            print(end="")
        return x + 1, same, numbers[0] == numbers[1]

    tc.reset()
    assert tc.compile(program, backend="eager")(torch.ones(1))[1:] == program(torch.ones(1))[1:]


def test_iterators_over_ranges_longer_than_memory():
    def program(x):
        steps = iter(range(0, 1 << 70, 2))
        return x + next(steps), next(steps), next(iter(range(3, 1 << 62)))

    tc.reset()
    found = tc.compile(program, backend="eager", fullgraph=True)(torch.ones(1))
    assert found == program(torch.ones(1))
