"""Programs in which a class defines a special method in some way, and uses of such methods.

Each is built twice, for eager and for the compiled function: an outcome holds the result or the
type of the exception, what the methods have logged, and what the object holds afterwards.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import random
import re
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

X = torch.tensor([1.0, 2.0])
#: how programs write the tensor that a method is given, or another one
TENSOR = "tensor"

#: special method -> what it returns, by version
RESULTS: dict[str, Any] = {
    "__getattribute__": TENSOR, "__getattr__": TENSOR, "__call__": TENSOR, "__getitem__": TENSOR,
    "__enter__": TENSOR, "__missing__": TENSOR, "__next__": TENSOR, "__class_getitem__": TENSOR,
    "__get__": TENSOR, "__neg__": TENSOR, "__pos__": TENSOR, "__abs__": TENSOR,
    "__invert__": TENSOR, "__round__": TENSOR,
    "__setattr__": (None, 1), "__delattr__": (None, 1), "__setitem__": (None, 1),
    "__delitem__": (None, 1), "__set__": (None, 1), "__delete__": (None, 1),
    "__len__": (0, 3), "__bool__": (True, False), "__hash__": (5, 7), "__contains__": (True, 0),
    "__index__": (1, 2), "__int__": (4, 5), "__float__": (1.5, 2.5), "__complex__": (1j, 2j),
    "__trunc__": (4, 5), "__floor__": (4, 5), "__ceil__": (4, 5), "__length_hint__": (3, 4),
    "__format__": ("f1", "f2"), "__str__": ("s1", "s2"), "__repr__": ("r1", "r2"),
    "__bytes__": (b"1", b"2"), "__fspath__": ("p1", "p2"), "__dir__": (["a"], ["b"]),
    "__iter__": "iterator", "__reversed__": "iterator",
    "__exit__": (False, True), "__instancecheck__": (True, False),
    "__subclasscheck__": (True, False), "__set_name__": (None, 1), "__init_subclass__": (None, 1),
    "__init__": (None, None), "__new__": TENSOR, "__copy__": (3, 4), "__deepcopy__": (3, 4),
}  # fmt: skip
ARITHMETIC = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "matmul": "@", "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
}  # fmt: skip
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
#: special method -> expressions and statements (which set `r`) that use it on `o`
USES: dict[str, tuple[str, ...]] = {
    "__getattribute__": ("o.value", "getattr(o, 'absent', 5)", "o.__class__ is type(o)",
                         "isinstance(o, int)", "hasattr(o, 'absent')", "o.method(2)"),
    "__getattr__": ("o.absent", "getattr(o, 'absent', 5)", "hasattr(o, 'absent')", "o.value",
                    "o.prop", "o.absent + o.other"),
    "__setattr__": ("o.value = y; r = vars(o).get('value')", "setattr(o, 'late', 3)",
                    "o.value += 1"),
    "__delattr__": ("del o.value; r = 3", "delattr(o, 'value')", "del o.absent; r = 3"),
    "__call__": ("o(y)", "o(y, 2)", "callable(o)", "list(map(o, [y, y]))", "sorted([1, 2], key=o)"),
    "__len__": ("len(o)", "bool(o)", "1 if o else 2", "not o", "o or 3", "next(reversed(o), 7)"),
    "__bool__": ("bool(o)", "1 if o else 2", "not o", "o and 3", "any([o])",
                 "[1 for _ in 'a' if o]", "list(filter(None, [o])) == []"),
    "__hash__": ("hash(o)", "{o: 1}[o]", "len({o, 1})", "o in {1: 2}", "hash((o, 1))"),
    "__contains__": ("3 in o", "3 not in o", "operator.contains(o, 3)"),
    "__iter__": ("list(o)", "[a for a in o]", "tuple(o)", "sum(o)", "a, *b = o; r = b", "[*o]",
                 "3 in o", "dict(zip(o, 'abc'))", "next(iter(o))", "max(o)", "list(enumerate(o))",
                 "list(map(str, o))"),
    "__next__": ("next(o)", "next(o, 3)"),
    "__reversed__": ("list(reversed(o))",),
    "__getitem__": ("o[1]", "o['a']", "o[y]", "operator.getitem(o, 0)", "o[1:2]",
                    "'{0[1]}'.format(o)"),
    "__setitem__": ("o[0] = y; r = 1", "operator.setitem(o, 0, 2)", "o['a'] = 3"),
    "__delitem__": ("del o[0]; r = 1", "operator.delitem(o, 0)"),
    "__missing__": ("o['none']", "o.get('none')", "'none' in o"),
    "__enter__": ("with o as e: r = e",),
    "__exit__": ("with o: r = 1", "r = 1\n    with o: raise KeyError(3)",
                 "r = 1\n    with o: return y"),
    "__index__": ("[1, 2, 3, 4][o]", "operator.index(o)", "list(range(o))", "'ab' * o", "y[o]",
                  "int(o)", "float(o)", "hex(o)", "[1] * o", "torch.ones(o)", "round(2.345, o)"),
    "__int__": ("int(o)", "'%d' % o"),
    "__float__": ("float(o)", "'%f' % o", "math.sqrt(o)", "y * float(o)"),
    "__complex__": ("complex(o)",),
    "__trunc__": ("math.trunc(o)",),
    "__floor__": ("math.floor(o)",),
    "__ceil__": ("math.ceil(o)",),
    "__length_hint__": ("operator.length_hint(o)", "operator.length_hint(o, 4)"),
    "__format__": ("format(o)", "f'{o:x}'", "f'{o}'", "'{:3}'.format(o)"),
    "__str__": ("str(o)", "f'{o}'", "'%s' % o", "format(o)", "f'{o!s}'"),
    "__repr__": ("repr(o)", "str(o)", "f'{o!r}'", "ascii(o)", "'%r' % o", "str([o])", "f'{o}'"),
    "__bytes__": ("bytes(o)",),
    "__fspath__": ("os.fspath(o)", "os.path.join('a', o)"),
    "__dir__": ("dir(o)",),
    "__neg__": ("-o", "operator.neg(o)"),
    "__pos__": ("+o",),
    "__abs__": ("abs(o)",),
    "__invert__": ("~o", "operator.inv(o)"),
    "__round__": ("round(o)", "round(o, 2)"),
    "__class_getitem__": ("C[3]", "C[y]"),
    "__instancecheck__": ("isinstance(3, C)", "isinstance(o, C)", "isinstance(3, (str, C))"),
    "__subclasscheck__": ("issubclass(int, C)", "issubclass(int, (str, C))", "isinstance(3, C)"),
    "__init_subclass__": ("class D(C): pass\n    r = 1", "class D(C, key=2): pass\n    r = 2"),
    "__init__": ("C(); r = 1", "C(y); r = 1"),
    "__new__": ("type(C()).__name__", "type(C(y)).__name__"),
    "__copy__": ("type(copy.copy(o)).__name__",),
    "__deepcopy__": ("type(copy.deepcopy(o)).__name__",),
    # of descriptors: the object is in the class `Holder`
    "__get__": ("Holder().field", "Holder.field", "h.field"),
    "__set__": ("h.field = y; r = h.field", "setattr(h, 'field', 3)"),
    "__delete__": ("del h.field; r = 1",),
    "__set_name__": ("class D: field = o\n    r = 1",),
}  # fmt: skip
for _name, _sign in ARITHMETIC.items():
    RESULTS |= {f"__{_part}{_name}__": TENSOR for _part in ("", "r", "i")}
    USES[f"__{_name}__"] = (f"o {_sign} 3", f"o {_sign} y", f"o {_sign} o")
    USES[f"__r{_name}__"] = (f"3 {_sign} o", f"y {_sign} o", f"'a' {_sign} o", f"None {_sign} o")
    USES[f"__i{_name}__"] = (f"k = o; k {_sign}= y; r = k", f"k = o; k {_sign}= 3; r = k")
RESULTS |= {"__divmod__": TENSOR, "__rdivmod__": TENSOR}
USES |= {"__divmod__": ("divmod(o, 3)",), "__rdivmod__": ("divmod(3, o)",)}
USES["__pow__"] += ("pow(o, 2, 5)",)
for _name, _sign in COMPARISONS.items():
    RESULTS[f"__{_name}__"] = TENSOR
    uses = (f"o {_sign} 3", f"3 {_sign} o", f"o {_sign} y", f"o {_sign} o")
    USES[f"__{_name}__"] = uses
RESULTS["__eq__"], RESULTS["__lt__"] = (True, False), (True, False)
USES["__eq__"] += ("o != 3", "3 in [o]", "[1, o].index(3)", "[o] == [3]", "(1, o).count(3)",
                   "{'a': o} == {'a': 3}")  # fmt: skip
USES["__lt__"] += ("sorted([o, o])", "min(o, o)", "max([o, 3])", "[o] < [3]")
#: special method -> functions in C that a class may define it by
IN_C: dict[str, tuple[Any, ...]] = {
    "__getattribute__": (len, dict.get, dict.__getitem__),
    "__getattr__": (len, dict.__getitem__, str.upper, object.__getattribute__),
    "__setattr__": (dict.__setitem__, max),
    "__delattr__": (dict.__delitem__, len),
    "__call__": (torch.sin, dict.get, len, object.__getattribute__),
    "__getitem__": (object.__getattribute__, abs, torch.Tensor.sin, str),
    "__setitem__": (object.__setattr__, max),
    "__delitem__": (object.__delattr__, abs),
    "__contains__": (bool, abs, dict.__len__),
    "__len__": (int, object.__hash__, str.__len__, list.__len__),
    "__bool__": (bool, object.__hash__, list.__len__),
    "__eq__": (object.__ne__, bool, id, int.__gt__),
    "__ne__": (object.__eq__, bool, int.__gt__),
    "__lt__": (object.__eq__, bool, int.__gt__),
    "__hash__": (int, object.__sizeof__, str.__len__),
    "__iter__": (dict, list, list.__reversed__, dict.values, str.split),
    "__str__": (str, object.__repr__, int.__hash__),
    "__repr__": (str, object.__str__),
    "__format__": (str, object.__repr__, len),
    "__index__": (int, list.__len__, int.__neg__),
    "__int__": (int, list.__len__, float.__int__),
    "__float__": (float, int.__float__),
    "__exit__": (bool, object.__repr__),
    "__enter__": (int, object.__repr__, list.copy),
    "__reversed__": (list, list.__iter__),
    "__missing__": (len, str.upper, dict.__len__),
    "__new__": (object, int),
    "__init__": (dict.update, list.append, print),
    "__instancecheck__": (bool, type.__subclasscheck__),
}
GENERAL_IN_C = (len, torch.neg, object.__sizeof__, list.__len__, int.__neg__, str, functools.reduce)

#: bases whose objects get their contents after they are made
FILLED = (
    list, dict, set, collections.OrderedDict, collections.deque, collections.defaultdict,
    torch.nn.Module,
)  # fmt: skip
LOG: list[Any] = []


def method_of(name: str, version: int) -> Callable[..., Any]:
    """Return what a special method does, whichever arguments it is given."""
    result = RESULTS[name]

    def run(*args: Any) -> Any:
        LOG.append((name, version, len(args)))
        if result == TENSOR:
            last = args[-1] if args else None
            return (last if type(last) is torch.Tensor else X) * (version + 2)
        return iter([1, 2, 3][version:]) if result == "iterator" else result[version]

    run.__name__ = name
    return run


class Caller:
    """Something that can be called, and has a method that can."""

    def __init__(self, run: Callable[..., Any]) -> None:
        self.run = run

    def __call__(self, *args: Any) -> Any:
        return self.run(*args)

    def method(self, *args: Any) -> Any:
        return self.run("of another", *args)


class Descriptor:
    """A descriptor that gives a function."""

    def __init__(self, run: Callable[..., Any]) -> None:
        self.run = run

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        LOG.append(("got", instance is None))
        return self.run


def plain(run: Callable[..., Any]) -> Any:
    def method(self: Any, *args: Any) -> Any:
        return run(self, *args)

    return method


def generator(run: Callable[..., Any]) -> Any:
    def method(self: Any, *args: Any) -> Any:
        run(self, *args)
        yield 1
        yield 2

    return method


def above(run: Callable[..., Any]) -> Any:
    """Return a method that calls the one above it; `World.define` says where that is."""
    owner: Any = None
    name = run.__name__

    def method(self: Any, *args: Any) -> Any:
        run(self, *args)
        return getattr(super(owner, self), name)(*args)

    return method


#: how a class may define a method
WAYS: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "function": plain,
    "lambda": lambda run: lambda self, *args: run(self, *args),
    "keywords": lambda run: lambda self, *args, **named: run(self, *args, *named),
    "generator": generator,
    "super": above,
    "static": staticmethod,
    "class": classmethod,
    "partial": lambda run: functools.partial(run, "first"),
    "partialmethod": lambda run: functools.partialmethod(run, "first"),
    "bound": lambda run: Caller(run).method,
    "callable": Caller,
    "property": lambda run: property(lambda self: run),
    "descriptor": Descriptor,
    "class of property": lambda run: classmethod(property(lambda cls: run)),  # type: ignore[arg-type]
    "none": lambda run: None,
    "number": lambda run: 3,
    "in C": lambda run: run,
}
#: where the definition stands
PLACES = ("class", "mixin", "base", "set later", "metaclass", "instance")
Pair = collections.namedtuple("Pair", "first second")
BASES: dict[str, tuple[Any, ...]] = {
    "object": (object,), "slots": (object,), "dataclass": (object,), "int": (int, 3),
    "str": (str, "abc"), "list": (list, [1, 2, 3]), "dict": (dict, {"a": 1, 0: 2}),
    "tuple": (tuple, (1, 2, 3)), "float": (float, 2.5), "set": (set, {1, 3}),
    "module": (torch.nn.Module,), "exception": (ValueError, "text"), "enum": (enum.Enum,),
    "frozenset": (frozenset, {1, 3}), "bytes": (bytes, b"ab"), "complex": (complex, 1j),
    "ordered": (collections.OrderedDict, {"a": 1, 0: 2}), "deque": (collections.deque, [1, 2]),
    "default": (collections.defaultdict, int), "named": (Pair, 1, 2),
    "namespace": (types.SimpleNamespace,), "tensor": (torch.Tensor,),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A special method, its definition, and its use."""

    name: str
    way: str
    place: str
    kind: str
    use: str
    in_c: int
    inside: bool
    changes: bool

    def __str__(self) -> str:
        where = "inside" if self.inside else "given"
        return f"{self.name} {self.way} {self.place} {self.kind} {where} {self.changes}: {self.use}"


class World:
    """The classes of a case, with the object that is used."""

    def __init__(self, case: Case) -> None:
        self.case = case
        base, *args = BASES[case.kind]
        body: dict[str, Any] = {
            "__module__": __name__,
            "method": lambda self, k: k + 1,
            "prop": property(lambda self: self.nothing_such),
        }
        if case.kind == "slots":
            body["__slots__"] = ("value",)
        defined = {case.name: self.definition(0)}
        bases: list[type] = [base]
        meta: type = type(base)
        if case.place == "mixin":
            bases.insert(0, type("Mixin", (), defined))
        elif case.place == "base":
            bases = (
                [type("Base", (base,), {**defined, **body})] if base is not enum.Enum else [base]
            )
        elif case.place == "metaclass":
            meta = type("Meta", (meta,), defined)
        elif case.place == "class":
            body |= defined
        made = self.class_of(meta, tuple(bases), body)
        self.cls = made
        if case.place == "set later" or (case.place == "base" and base is enum.Enum):
            type.__setattr__(made, case.name, self.definition(0))
        self.place_super()
        self.args = args
        self.obj = self.instance()
        self.holder = type("Holder", (), {"field": self.obj})
        self.change(0)

    def class_of(self, meta: type, bases: tuple[type, ...], body: dict[str, Any]) -> Any:
        if self.case.kind == "enum":
            space = meta.__prepare__("C", bases)  # type: ignore[attr-defined]
            for name, value in body.items():
                space[name] = value
            space["ONE"] = 1
            return meta("C", bases, space)
        made = meta("C", bases, body)
        if self.case.kind == "dataclass":
            type.__setattr__(made, "__annotations__", {"value": int})
            type.__setattr__(made, "value", 4)
            made = dataclasses.dataclass(eq=False)(made)
        return made

    def instance(self) -> Any:
        if self.case.kind == "enum":
            return self.cls._member_map_["ONE"]
        base: Any = BASES[self.case.kind][0]
        if base is torch.Tensor:
            made = torch.ones(2).as_subclass(self.cls)
        else:
            filled = base in FILLED
            made = base.__new__(self.cls, *(() if filled else self.args))
            if filled:
                base.__init__(made, *self.args)
        if base is torch.nn.Module:
            base.__setattr__(made, "value", X + 1)
        else:
            vars(base).get("__setattr__", object.__setattr__)(made, "value", X + 1)
        return made

    def definition(self, version: int) -> Any:
        case = self.case
        if case.way == "in C":
            rows = (*IN_C.get(case.name, ()), *GENERAL_IN_C)
            return rows[(case.in_c + version) % len(rows)]
        if case.way == "none" and version:
            return plain(method_of(case.name, 0))
        return WAYS[case.way](method_of(case.name, version))

    def owner(self) -> Any:
        """Return the class that has the definition."""
        of = type(self.cls) if self.case.place == "metaclass" else self.cls
        return next((one for one in type.mro(of) if self.case.name in vars(one)), None)

    def place_super(self) -> None:
        """Let a method that calls the one above it know in which class it is."""
        owner = self.owner()
        method = vars(owner)[self.case.name] if owner is not None else None
        method = getattr(method, "__func__", method)
        if self.case.way == "super" and isinstance(method, types.FunctionType):
            at = method.__code__.co_freevars.index("owner")
            method.__closure__[at].cell_contents = owner  # type: ignore[index]

    def change(self, version: int) -> None:
        """Replace the definition where it stands."""
        place, name = self.case.place, self.case.name
        if place == "instance":
            held = getattr(type(self.obj), "__dictoffset__", 0)
            if held:
                object.__getattribute__(self.obj, "__dict__")[name] = self.definition(version)
            return
        if not version:
            return
        type.__setattr__(self.owner(), name, self.definition(version))
        self.place_super()

    def program(self) -> Callable[[torch.Tensor], Any]:
        used = self.case.use
        if not re.search(r"\br = |^(with|del|class|k = )|^o(\.\w+|\[.*?\]) \+?= |^C\(", used):
            used = f"r = {used}"
        if not re.search(r"\br = ", used):
            used = f"{used}; r = 1"
        o = "    o = make()\n" if self.case.inside else ""
        if self.case.place == "metaclass" and self.case.name not in (
            "__instancecheck__",
            "__subclasscheck__",
        ):
            o = "    o = C\n"
        text = f"def program(x):\n{o}    y = x + 1\n    {used}\n    return y, r\n"
        space: dict[str, Any] = {
            name: __import__(name) for name in ("operator", "math", "os", "copy", "torch")
        }
        cls, args = self.cls, self.args
        space |= {
            "o": self.obj, "C": self.cls, "Holder": self.holder, "h": self.holder(),
            "make": lambda: cls(*args),
        }  # fmt: skip
        exec(text, space)
        found: Callable[[torch.Tensor], Any] = space["program"]
        return found


def shown(value: Any, depth: int = 0) -> Any:
    """Describe a result without calling methods of its class."""
    kind = type(value)
    if isinstance(value, torch.Tensor) and kind is torch.Tensor:
        return "tensor", value.tolist()
    if kind in (list, tuple) and depth < 4:
        return kind.__name__, [shown(one, depth + 1) for one in value]
    if kind is dict and depth < 4:
        return "dict", [(shown(k, depth + 1), shown(v, depth + 1)) for k, v in value.items()]
    if kind in (int, float, complex, str, bytes, bool, type(None), range):
        return kind.__name__, re.sub("0x[0-9a-f]+|-?[0-9]{9,}", "0x", repr(value))
    return kind.__name__


def held_by(obj: Any) -> Any:
    try:
        found = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        found = {}
    held = [(name, shown(one)) for name, one in found.items() if not callable(one)]
    for base in (list, dict, set):
        if issubclass(type(obj), base):
            return held, shown(list(base.__iter__(obj)))
    return held


def outcomes(case: Case, wrap: Callable[[Any], Any], messages: bool = False) -> list[Any]:
    """Return what two calls of a program do."""
    world = World(case)
    run = wrap(world.program())
    found = []
    for version in (0, int(case.changes)):
        if version:
            world.change(version)
        LOG.clear()
        try:
            result: Any = shown(run(X))
        except RecursionError:
            result = RecursionError
        except Exception as error:
            result = type(error).__name__, str(error) if messages else ""
        log = [*LOG] if case.name != "__hash__" else sorted(map(str, {*LOG}))
        found.append((result, log, held_by(world.obj)))
    return found


def cases(name: str, way: str, seed: object, count: int) -> Iterator[Case]:
    """Yield cases of a special method that is defined in one way."""
    draw = random.Random(f"{name} {way} {seed}")
    for _ in range(count):
        place = draw.choices(PLACES, (6, 2, 1, 2, 3, 1))[0]
        if name in ("__instancecheck__", "__subclasscheck__"):
            place = "metaclass"
        kind = draw.choices([*BASES], (8, 3, 2, *[2] * (len(BASES) - 3)))[0]
        # PyTorch asks tensors for attributes, here and in C, where their classes are made, too
        if kind == "tensor" and (place == "metaclass" or name.startswith("__getattr")):
            kind = "object"
        yield Case(
            name, way, place, kind, draw.choice(USES[name]), draw.randrange(8),
            draw.random() < 0.4 and kind != "enum", draw.random() < 0.5,
        )  # fmt: skip
