"""Facts about objects and classes: attributes present and absent, classes that change."""

from __future__ import annotations

from fact_world import Family

classes = Family("classes")

_BOX = "class Box: pass\nclass Sub(Box): pass\nbox = Sub(); box.k = 1\nargs = t(1), box\n"


def _read(name: str, expression: str, change: str, setup: str = _BOX) -> None:
    """Add a fact about ``box``; the result is multiplied by an expression of it."""
    classes(name, f"{setup}\ndef f(x, box):\n    return x * ({expression}) + 1", change)


_read("attribute_set", "box.k", "box.k = 2")
_read("has_attribute_on_instance", "1 if hasattr(box, 'z') else 2", "box.z = 1")
_read("has_attribute_gone", "1 if hasattr(box, 'k') else 2", "del box.k")
_read("has_attribute_on_class", "1 if hasattr(box, 'z') else 2", "Sub.z = 1")
_read("has_attribute_on_base", "1 if hasattr(box, 'z') else 2", "Box.z = 1")
_read("has_property", "1 if hasattr(box, 'z') else 2", "Box.z = property(lambda self: 1)")
_read(
    "has_getattr_added", "1 if hasattr(box, 'z') else 2", "Box.__getattr__ = lambda self, name: 1"
)
_read("get_attribute_default", "getattr(box, 'z', 5)", "Box.z = 1")
_read(
    "get_attribute_default_getattr",
    "getattr(box, 'z', 5)",
    "Box.__getattr__ = lambda self, name: 1",
)
_read(
    "absent_raises",
    "absent(box)",
    "Box.z = 7",
    _BOX
    + """
def absent(box):
    try:
        return box.z
    except AttributeError:
        return 2
""",
)
_read("vars", "vars(box)['k']", "box.k = 2")
_read("vars_absent", "1 if 'z' in vars(box) else 2", "box.z = 2")
_read("vars_length", "len(vars(box))", "box.z = 2")
_read("dict", "box.__dict__['k']", "box.k = 2")
_read("dict_absent", "box.__dict__.get('z', 5)", "box.z = 2")
_read("instance_shadows_class", "box.z", "box.z = 5", _BOX + "Box.z = 3")
_read("instance_no_longer_shadows", "box.z", "del box.z", _BOX + "Box.z = 3; box.z = 5")
_read("class_attribute", "box.z", "Box.z = 5", _BOX + "Box.z = 3")
_read("subclass_shadows_base", "box.z", "Sub.z = 5", _BOX + "Box.z = 3")
_read("class_attribute_through_type", "type(box).z", "Sub.z = 5", _BOX + "Box.z = 3")
_read("data_descriptor_added", "box.k", "Box.k = property(lambda self: 5)")
_read(
    "property_replaced",
    "box.z",
    "Box.z = property(lambda self: 5)",
    _BOX + "Box.z = property(lambda self: 3)",
)
_read("property_becomes_value", "box.z", "Box.z = 5", _BOX + "Box.z = property(lambda self: 3)")
_read(
    "property_reads_attribute", "box.z", "box.k = 4", _BOX + "Box.z = property(lambda self: self.k)"
)
_read(
    "cached_property",
    "box.z",
    "box.z = 5",
    """
class Box:
    @functools.cached_property
    def z(self): return 3
box = Box()
args = t(1), box
""",
)
_read(
    "descriptor_state",
    "box.z",
    "d.v = 5",
    _BOX
    + """
class D:
    v = 3
    def __get__(self, instance, owner): return self.v
d = D()
Box.z = d
""",
)
_read(
    "descriptor_get_replaced",
    "box.z",
    "D.__get__ = lambda self, instance, owner: 5",
    _BOX
    + """
class D:
    def __get__(self, instance, owner): return 3
Box.z = D()
""",
)
_read(
    "getattr_replaced",
    "box.z",
    "Box.__getattr__ = lambda self, name: 5",
    _BOX + "Box.__getattr__ = lambda self, name: 3",
)
_read("getattr_shadowed", "box.z", "box.z = 5", _BOX + "Box.__getattr__ = lambda self, name: 3")
_read(
    "getattr_shadowed_by_class",
    "box.z",
    "Box.z = 5",
    _BOX + "Box.__getattr__ = lambda self, name: 3",
)
_read(
    "getattribute_added",
    "box.k",
    "Box.__getattribute__ = lambda s, n: 5 if n == 'k' else object.__getattribute__(s, n)",
)
_read(
    "setattr_added",
    "write(box)",
    "Box.__setattr__ = lambda self, name, v: object.__setattr__(self, name, v * 2)",
    _BOX + "def write(box):\n    box.q = 3\n    return box.q",
)
_read(
    "slots",
    "box.k",
    "box.k = 2",
    """
class Box:
    __slots__ = ("k", "z")
box = Box(); box.k = 1
args = t(1), box
""",
)
_read(
    "slots_unset",
    "1 if hasattr(box, 'z') else 2",
    "box.z = 2",
    """
class Box:
    __slots__ = ("k", "z")
box = Box(); box.k = 1
args = t(1), box
""",
)
_read(
    "slots_unset_default",
    "getattr(box, 'z', 7)",
    "box.z = 2",
    """
class Box:
    __slots__ = ("k", "z")
box = Box(); box.k = 1
args = t(1), box
""",
)
_read("class_reassigned", "box.z", "box.__class__ = Other", _BOX + "Box.z = 3\nclass Other: z = 5")
_read(
    "class_reassigned_isinstance",
    "1 if isinstance(box, Sub) else 2",
    "box.__class__ = Other",
    _BOX + "class Other: z = 5",
)
_read("type_is", "1 if type(box) is Sub else 2", "args = t(1), Box()")
_read("type_name", "len(type(box).__name__)", "Sub.__name__ = 'Different'")
_read("type_qualname", "len(type(box).__qualname__)", "Sub.__qualname__ = 'Different'")
_read(
    "bases_changed",
    "box.z",
    "Sub.__bases__ = (Other,)",
    _BOX + "Box.z = 3\nclass Other(Box): z = 5",
)
_read(
    "bases_changed_isinstance",
    "1 if isinstance(box, Other) else 2",
    "Sub.__bases__ = (Other,)",
    _BOX + "class Other(Box): z = 5",
)
_read(
    "mro_length",
    "len(type(box).__mro__)",
    "Sub.__bases__ = (Other,)",
    _BOX + "class Other(Box): z = 5",
)
_read(
    "super_of_changed_bases",
    "box.m()",
    "Sub2.__bases__ = (Other,)",
    """
class Base:
    def m(self): return 2
class Other(Base):
    def m(self): return 7
class Sub2(Base):
    def m(self): return super().m()
box = Sub2()
args = t(1), box
""",
)
_read(
    "super_method_replaced",
    "box.m()",
    "Base.m = lambda self: 7",
    """
class Base:
    def m(self): return 2
class Sub2(Base):
    def m(self): return super().m()
box = Sub2()
args = t(1), box
""",
)
_read(
    "abc_registered",
    "1 if isinstance(box, A) else 2",
    "A.register(Box)",
    "import abc\n" + _BOX + "class A(abc.ABC): pass",
)
_read(
    "abc_registered_subclass",
    "1 if issubclass(Box, A) else 2",
    "A.register(Box)",
    "import abc\n" + _BOX + "class A(abc.ABC): pass",
)
_read(
    "instance_check",
    "1 if isinstance(box, A) else 2",
    "Meta.__instancecheck__ = lambda cls, o: True",
    _BOX + "class Meta(type): pass\nclass A(metaclass=Meta): pass",
)
_read(
    "instance_check_state",
    "1 if isinstance(box, A) else 2",
    "Meta.answer = True",
    _BOX
    + """
class Meta(type):
    answer = False
    def __instancecheck__(cls, o): return Meta.answer
class A(metaclass=Meta): pass
""",
)
_read(
    "protocol",
    "1 if isinstance(box, P) else 2",
    "Box.close = lambda self: None",
    _BOX
    + """
@typing.runtime_checkable
class P(typing.Protocol):
    def close(self): ...
""",
)
_read(
    "metaclass_attribute",
    "Box.z",
    "Meta.z = 5",
    "class Meta(type): z = 3\nclass Box(metaclass=Meta): pass\nbox = Box()\nargs = t(1), box",
)
_read(
    "metaclass_attribute_absent",
    "1 if hasattr(Box, 'z') else 2",
    "Meta.z = 5",
    "class Meta(type): pass\nclass Box(metaclass=Meta): pass\nbox = Box()\nargs = t(1), box",
)
_read(
    "metaclass_shadowed",
    "Box.z",
    "Box.z = 5",
    "class Meta(type): z = 3\nclass Box(metaclass=Meta): pass\nbox = Box()\nargs = t(1), box",
)
_read(
    "metaclass_call",
    "Box().k",
    "Meta.__call__ = make",
    """
class Meta(type): pass
class Box(metaclass=Meta): k = 1
def make(cls):
    o = type.__call__(cls)
    o.k = 9
    return o
box = Box()
args = t(1), box
""",
)
_read(
    "new_replaced",
    "Box().k",
    "Box.__init__ = init",
    """
class Box:
    def __init__(self): self.k = 1
def init(self): self.k = 9
box = Box()
args = t(1), box
""",
)
_read(
    "init_added",
    "fresh().k",
    "Box.__init__ = init",
    """
class Box: k = 1
def init(self): self.k = 9
def fresh(): return Box()
box = Box()
args = t(1), box
""",
)
_read(
    "data_class_default",
    "P().a",
    "P.__init__.__defaults__ = (9,)",
    """
@dataclasses.dataclass
class P:
    a: int = 1
box = None
args = t(1), box
""",
)
_read(
    "global_class_replaced",
    "Box().k",
    "class Box: k = 9",
    "class Box: k = 1\nbox = None\nargs = t(1), box",
)
_read(
    "class_in_another_class",
    "Outer.Inner.k",
    "Outer.Inner.k = 9",
    """
class Outer:
    class Inner: k = 1
args = t(1), None
""",
)
_read("has_class_attribute", "1 if hasattr(Box, 'z') else 2", "Box.z = 1")
_read("class_dict_absent", "1 if 'z' in Box.__dict__ else 2", "Box.z = 1")
_read("class_vars", "vars(Box).get('z', 5)", "Box.z = 1")
_read(
    "annotations",
    "len(Box.__annotations__)",
    "Box.__annotations__['b'] = int",
    "class Box:\n    a: int = 1\nbox = Box()\nargs = t(1), box",
)
_read(
    "doc",
    "len(Box.__doc__)",
    "Box.__doc__ = 'four'",
    "class Box:\n    'doc'\nbox = Box()\nargs = t(1), box".replace("'doc'", "'documented'"),
)
_read(
    "subclasses",
    "len(Box.__subclasses__())",
    "class More(Box): pass\nKEPT.append(More)",  # else it lives until garbage is collected
    f"{_BOX}\nKEPT = []",
)
for _method, _call, _one, _two in (
    ("eq", "1 if box == 3 else 2", "lambda s, o: False", "lambda s, o: True"),
    ("ne", "1 if box != 3 else 2", "lambda s, o: False", "lambda s, o: True"),
    ("lt", "1 if box < 3 else 2", "lambda s, o: False", "lambda s, o: True"),
    ("hash", "hash(box) % 7", "lambda s: 1", "lambda s: 2"),
    ("len", "len(box)", "lambda s: 1", "lambda s: 2"),
    ("bool", "1 if box else 2", "lambda s: False", "lambda s: True"),
    ("contains", "1 if 3 in box else 2", "lambda s, o: False", "lambda s, o: True"),
    ("iter", "sum(box)", "lambda s: iter([1])", "lambda s: iter([2])"),
    ("getitem", "box[0]", "lambda s, i: 1", "lambda s, i: 2"),
    ("call", "box()", "lambda s: 1", "lambda s: 2"),
    ("add", "box + 1", "lambda s, o: 1", "lambda s, o: 2"),
    ("radd", "1 + box", "lambda s, o: 1", "lambda s, o: 2"),
    ("int", "int(box)", "lambda s: 1", "lambda s: 2"),
    ("float", "float(box)", "lambda s: 1.0", "lambda s: 2.0"),
    ("index", "[4, 5, 6][box]", "lambda s: 1", "lambda s: 2"),
    ("str", "len(str(box))", "lambda s: 'a'", "lambda s: 'bc'"),
    ("repr", "len(repr(box))", "lambda s: 'a'", "lambda s: 'bc'"),
    ("enter", "entered(box)", "lambda s: 1", "lambda s: 2"),
    ("neg", "-box", "lambda s: 1", "lambda s: 2"),
    ("matmul", "box @ 1", "lambda s, o: 1", "lambda s, o: 2"),
):  # fmt: skip
    _read(
        f"method_{_method}_replaced",
        _call,
        f"Box.__{_method}__ = {_two}",
        f"""
class Box:
    def __exit__(self, *error): return None
    def __enter__(self): return 0
Box.__{_method}__ = {_one}
def entered(box):
    with box as k:
        return k
box = Box()
args = t(1), box
""",
    )
for _method, _call, _two in (
    ("eq", "1 if box == 3 else 2", "lambda s, o: True"),
    ("bool", "1 if box else 2", "lambda s: False"),
    ("len", "1 if box else 2", "lambda s: 0"),
    ("hash", "1 if hash(box) == 7 else 2", "lambda s: 7"),
    ("str", "1 if str(box) == 'a' else 2", "lambda s: 'a'"),
    ("contains", "1 if 3 in box else 2", "lambda s, o: True"),
    ("add", "added(box)", "lambda s, o: 5"),
    ("call", "1 if callable(box) else 2", "lambda s: 5"),
    ("iter", "1 if hasattr(box, '__iter__') else 2", "lambda s: iter(())"),
):  # fmt: skip
    _read(
        f"method_{_method}_added",
        _call,
        f"Box.__{_method}__ = {_two}",
        """
class Box:
    def __getitem__(self, i):
        if i < 2: return i
        raise IndexError
def added(box):
    try:
        return box + 1
    except TypeError:
        return 2
box = Box()
args = t(1), box
""",
    )
_read(
    "reflected_wins_for_subclass",
    "one + box",
    "Sub.__radd__ = lambda s, o: 9",
    """
class Box:
    def __add__(self, o): return 1
    def __radd__(self, o): return 2
class Sub(Box): pass
one, box = Box(), Sub()
args = t(1), box
""",
)
_read(
    "enum_member_attribute",
    "E.A.tag",
    "E.A.tag = 7",
    "class E(enum.Enum): A = 1\nE.A.tag = 2\nargs = t(1), None",
)
_read(
    "enum_extended_method",
    "E.A.m()",
    "E.m = lambda self: 7",
    "class E(enum.Enum):\n    A = 1\n    def m(self): return 2\nargs = t(1), None",
)
_read(
    "nested_attribute",
    "box.inner.k",
    "box.inner.k = 5",
    _BOX + "box.inner = Box(); box.inner.k = 3",
)
_read(
    "nested_object_replaced",
    "box.inner.k",
    "box.inner = Box(); box.inner.k = 5",
    _BOX + "box.inner = Box(); box.inner.k = 3",
)
_read("dir", "1 if 'z' in dir(box) else 2", "box.z = 1")
_read(
    "match_class",
    "matched(box)",
    "box.k = 2",
    _BOX
    + """
def matched(b):
    match b:
        case Box(k=1): return 3
        case _: return 4
""",
)
_read(
    "match_args",
    "matched(box)",
    "Box.__match_args__ = ('z',)",
    """
class Box:
    __match_args__ = ("k",)
    k, z = 1, 2
def matched(b):
    match b:
        case Box(v): return v
box = Box()
args = t(1), box
""",
)
_read(
    "init_subclass",
    "derived()",
    "Box.__init_subclass__ = classmethod(lambda cls: setattr(cls, 'k', 7))",
    """
class Box: k = 1
def derived():
    class D(Box): pass
    return D.k
box = None
args = t(1), box
""",
)
