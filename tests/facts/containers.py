"""Facts about containers: lengths, keys, orders, contents, what is missing."""

from __future__ import annotations

from fact_world import Family

containers = Family("containers")


def _argument(name: str, expression: str, before: str, after: str, setup: str = "") -> None:
    """Add a fact about an argument ``c``; the result is multiplied by an expression of it."""
    body = f"def f(x, c):\n    return x * ({expression}) + 1"
    containers(name, f"{setup}\n{body}\nargs = t(1), {before}", f"args = t(1), {after}")
    change = f"C = {after}"
    body = body.replace("f(x, c)", "f(x)").replace("(" + expression, "(" + _of_global(expression))
    containers(f"global_{name}", f"{setup}\nC = {before}\n{body}\nargs = t(1),", change)


def _of_global(expression: str) -> str:
    import re

    return re.sub(r"\bc\b", "C", expression)


_argument("list_length", "len(c)", "[1]", "[1, 2]")
_argument("list_item", "c[0]", "[1]", "[2]")
_argument("list_last", "c[-1]", "[1, 2]", "[1, 2, 3]")
_argument("list_sum", "sum(c)", "[1, 2]", "[1, 3]")
_argument("list_contains", "1 if 5 in c else 2", "[1, 2]", "[1, 5]")
_argument("list_empty", "1 if c else 2", "[]", "[1]")
_argument("list_equal", "1 if c == [1, 2] else 2", "[1, 3]", "[1, 2]")
_argument("list_type", "1 if type(c) is list else 2", "[1]", "(1,)")
_argument("list_index", "c.index(5) + 1", "[5, 1]", "[1, 5]")
_argument("list_count", "c.count(5)", "[5, 1]", "[5, 5]")
_argument("list_sorted", "sorted(c)[0]", "[3, 2]", "[3, 1]")
_argument("list_unpacked", "(lambda a, *b: len(b))(*c)", "[1, 2]", "[1, 2, 3]")
_argument("list_of_lists", "sum(len(i) for i in c)", "[[1], [2]]", "[[1], [2, 3]]")
_argument("list_of_tensors", "sum(c)", "[t(1), t(2)]", "[t(1), t(2), t(3)]")
_argument("tuple_length", "len(c)", "(1,)", "(1, 2)")
_argument("tuple_nested", "c[0][0]", "((1,),)", "((2,),)")
_argument("dict_item", "c['a']", "{'a': 1}", "{'a': 2}")
_argument("dict_get_missing", "c.get('b', 7)", "{'a': 1}", "{'a': 1, 'b': 2}")
_argument("dict_contains_missing", "1 if 'b' in c else 2", "{'a': 1}", "{'a': 1, 'b': 2}")
_argument("dict_key_gone", "1 if 'b' in c else 2", "{'a': 1, 'b': 2}", "{'a': 1}")
_argument("dict_length", "len(c)", "{'a': 1}", "{'a': 1, 'b': 2}")
_argument("dict_order", "next(iter(c.values()))", "{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}")
_argument("dict_keys", "1 if list(c) == ['a', 'b'] else 2", "{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}")
_argument("dict_int_keys", "c[1]", "{1: 2}", "{1: 3}")
_argument("dict_bool_key", "1 if True in c else 2", "{'a': 1}", "{1: 1}")
_argument("dict_tensor_value", "c['a']", "{'a': t(1)}", "{'a': t(2)}")
_argument("dict_items", "sum(v for k, v in c.items() if k != 'z')", "{'a': 1}", "{'a': 1, 'b': 3}")
_argument("dict_enum_key", "c[E.A]", "{E.A: 1}", "{E.A: 2}", "class E(enum.Enum): A = 1")
_argument("dict_none_key", "c.get(None, 5)", "{}", "{None: 2}")
_argument("dict_equal", "1 if c == {'a': 1} else 2", "{'a': 2}", "{'a': 1}")
_argument("dict_keyword", "(lambda **k: len(k))(**c)", "{'a': 1}", "{'a': 1, 'b': 2}")
_argument("dict_isdisjoint", "1 if c.keys() & {'b'} else 2", "{'a': 1}", "{'b': 1}")
_argument("set_contains", "1 if 5 in c else 2", "{1}", "{5}")
_argument("set_length", "len(c)", "{1}", "{1, 2}")
_argument("set_equal", "1 if c == {1} else 2", "{2}", "{1}")
_argument("set_subset", "1 if c <= {1, 2} else 2", "{1}", "{3}")
_argument("frozenset_contains", "1 if 5 in c else 2", "frozenset({1})", "frozenset({5})")
_argument(
    "ordered_order",
    "next(iter(c))",
    "O([(1, 0), (2, 0)])",
    "O([(2, 0), (1, 0)])",
    "O = collections.OrderedDict",
)
_argument(
    "ordered_moved",
    "next(iter(c))",
    "moved(2)",
    "moved(1)",
    """
def moved(key):
    d = collections.OrderedDict([(1, 0), (2, 0), (3, 0)])
    d.move_to_end(key, last=False)
    return d
""",
)
_argument(
    "ordered_missing", "c.get(3, 9)", "O([(1, 0)])", "O([(3, 0)])", "O = collections.OrderedDict"
)
_argument(
    "default_dict_factory",
    "c['missing']",
    "D(lambda: 2)",
    "D(lambda: 3)",
    "D = collections.defaultdict",
)
_argument(
    "default_dict_factory_type",
    "len(repr(c['missing']))",
    "D(int)",
    "D(float)",
    "D = collections.defaultdict",
)
_argument(
    "default_dict_gains_key", "c['k']", "D(int, a=1)", "D(int, k=5)", "D = collections.defaultdict"
)
_argument("counter", "c['a']", "C_('aab')", "C_('ab')", "C_ = collections.Counter")
_argument("counter_missing", "c['z']", "C_('aab')", "C_('z')", "C_ = collections.Counter")
_argument(
    "chain_map", "c['a']", "M({'a': 1}, {'a': 2})", "M({}, {'a': 2})", "M = collections.ChainMap"
)
_argument("deque_item", "c[0]", "Q([1, 2])", "Q([2, 2])", "Q = collections.deque")
_argument("deque_length", "len(c)", "Q([1, 2])", "Q([1, 2, 3])", "Q = collections.deque")
_argument("deque_maxlen", "c.maxlen", "Q([1], 2)", "Q([1], 3)", "Q = collections.deque")
_argument("named_tuple", "c.b", "P(1, 2)", "P(1, 3)", "P = collections.namedtuple('P', 'a b')")
_argument(
    "named_tuple_type",
    "1 if isinstance(c, P) else 2",
    "P(1, 2)",
    "(1, 2)",
    "P = collections.namedtuple('P', 'a b')",
)
_argument(
    "data_class",
    "c.b",
    "P(1, 2)",
    "P(1, 3)",
    "@dataclasses.dataclass\nclass P:\n    a: int\n    b: int",
)
_argument(
    "data_class_equal",
    "1 if c == P(1, 2) else 2",
    "P(1, 3)",
    "P(1, 2)",
    "@dataclasses.dataclass\nclass P:\n    a: int\n    b: int",
)
_argument(
    "frozen_data_class",
    "c.b",
    "P(1, 2)",
    "P(1, 3)",
    "@dataclasses.dataclass(frozen=True)\nclass P:\n    a: int\n    b: int",
)
_argument(
    "frozen_data_class_hash",
    "{P(1, 2): 5}.get(c, 7)",
    "P(1, 3)",
    "P(1, 2)",
    "@dataclasses.dataclass(frozen=True)\nclass P:\n    a: int\n    b: int",
)
_argument(
    "data_class_slots",
    "c.b",
    "P(1, 2)",
    "P(1, 3)",
    "@dataclasses.dataclass(slots=True)\nclass P:\n    a: int\n    b: int",
)
_argument("simple_namespace", "c.a", "N(a=1)", "N(a=2)", "N = types.SimpleNamespace")
_argument(
    "simple_namespace_absent",
    "1 if hasattr(c, 'b') else 2",
    "N(a=1)",
    "N(b=2)",
    "N = types.SimpleNamespace",
)
_argument("mapping_proxy", "c['a']", "N({'a': 1})", "N({'a': 2})", "N = types.MappingProxyType")
_argument(
    "mapping_proxy_missing",
    "1 if 'b' in c else 2",
    "N({'a': 1})",
    "N({'b': 2})",
    "N = types.MappingProxyType",
)
_argument(
    "list_subclass_attribute",
    "c.k",
    "L(1)",
    "L(2)",
    "class L(list):\n    def __init__(self, k):\n        self.k = k",
)
_argument(
    "dict_missing",
    "c['z']",
    "L(1)",
    "L(2)",
    "class L(dict):\n    def __init__(self, k):\n        self.k = k\n"
    "    def __missing__(self, key):\n        return self.k",
)
_argument("set_subclass", "sum(c)", "S([1])", "S([1, 2])", "class S(set): pass")
_argument("set_subclass_contains", "5 in c", "S([1])", "S([5])", "class S(set): pass")
_argument("frozenset_subclass", "len(c)", "S([1])", "S([1, 2])", "class S(frozenset): pass")
_argument(
    "defaultdict_subclass_factory",
    "c['z'] + 1",
    "S(int)",
    "S(lambda: 7)",
    "import collections\nclass S(collections.defaultdict): pass",
)
_argument("user_list", "len(c)", "U([1])", "U([1, 2])", "U = collections.UserList")
_argument("user_dict", "c['a']", "U({'a': 1})", "U({'a': 2})", "U = collections.UserDict")
_argument("array", "c[0]", "U('i', [1])", "U('i', [2])", "from array import array as U")
for _name, _make, _change in (
    ("list_appended", "[1]", "C.append(2)"), ("list_item_set", "[1, 2]", "C[1] = 7"),
    ("list_reversed", "[1, 2]", "C.reverse()"), ("list_cleared", "[1, 2]", "C.clear()"),
    ("dict_item_set", "{'a': 1}", "C['a'] = 4"), ("dict_item_added", "{'a': 1}", "C['b'] = 4"),
    ("dict_reordered", "{'a': 1, 'b': 2}", "C['a'] = C.pop('a')"),
    ("dict_item_gone", "{'a': 1, 'b': 2}", "del C['b']"), ("set_added", "{1}", "C.add(2)"),
    ("set_replaced", "{1}", "C.add(2); C.discard(1)"),
    ("deque_rotated", "collections.deque([1, 2])", "C.rotate(1)"),
    ("ordered_moved_in_place", "collections.OrderedDict(a=1, b=2)", "C.move_to_end('a')"),
    ("default_dict_factory_set", "collections.defaultdict(int)",
     "C.clear(); C.default_factory = lambda: 5"),
):  # fmt: skip
    _text = "sum((i + 1) * (v if isinstance(v, int) else ord(v)) for i, v in enumerate(C))"
    if "dict" in _name:
        _text = "sum((i + 1) * ord(k) * v for i, (k, v) in enumerate(C.items()))"
    if _name == "default_dict_factory_set":
        _text = "C['q']"
    containers(
        _name,
        f"""
C = {_make}
def f(x):
    return x * ({_text}) + 1
args = t(1),
""",
        _change,
    )
containers(
    "dict_values_change",
    """
    C = {'a': 1, 'b': 2}
    def f(x):
        return x * sum((i + 1) * v for i, v in enumerate(C.values()))
    args = t(1),
    """,
    "C['a'] = C.pop('a')",
)
