"""Facts about who is who: inputs, attributes and containers that coincide or come apart."""

from __future__ import annotations

from fact_world import Family

identity = Family("identity")

_PAIR = "x, y = t(1), t(2)\nargs = x, y"
identity("is", f"def f(a, b):\n    return a + (1 if a is b else b)\n{_PAIR}", "args = x, x")
identity(
    "is_comes_apart",
    "def f(a, b):\n    return a + (1 if a is b else b)\nx = t()\nargs = x, x",
    "args = x, t()",
)
identity("is_not", f"def f(a, b):\n    return a + b if a is not b else a\n{_PAIR}", "args = x, x")
identity(
    "id_equal", f"def f(a, b):\n    return a + (1 if id(a) == id(b) else b)\n{_PAIR}", "args = x, x"
)
identity(
    "id_in_set",
    f"def f(a, b):\n    return a + (1 if id(b) in {{id(a)}} else b)\n{_PAIR}",
    "args = x, x",
)
identity(
    "any_is", f"def f(a, b):\n    return a * any(a is q for q in [b]) + 1\n{_PAIR}", "args = x, x"
)
identity(
    "object_is",
    """
    class Box: pass
    def f(x, a, b):
        return x + (1 if a is b else 2)
    one, two = Box(), Box()
    args = t(), one, two
    """,
    "args = t(), one, one",
)
identity(
    "object_is_comes_apart",
    """
    class Box: pass
    def f(x, a, b):
        return x + (1 if a is b else 2)
    one = Box()
    args = t(), one, one
    """,
    "args = t(), one, Box()",
)
identity(
    "object_equal_by_default",
    """
    class Box: pass
    def f(x, a, b):
        return x + (1 if a == b else 2)
    one, two = Box(), Box()
    args = t(), one, two
    """,
    "args = t(), one, one",
)
identity(
    "object_in_list",
    """
    class Box: pass
    def f(x, a, boxes):
        return x + (1 if a in boxes else 2)
    one, two = Box(), Box()
    args = t(), one, [two]
    """,
    "args = t(), one, [one]",
)
identity(
    "object_in_set",
    """
    class Box: pass
    def f(x, a, boxes):
        return x + (1 if a in boxes else 2)
    one, two = Box(), Box()
    args = t(), one, {two}
    """,
    "args = t(), two, {two}",
)
identity(
    "attribute_is_input",
    """
    class Box: pass
    def f(x, box):
        return x + (1 if box.w is x else 2)
    box = Box(); x = t(); box.w = t(1)
    args = x, box
    """,
    "box.w = x",
)
identity(
    "attributes_coincide",
    """
    class Box: pass
    def f(x, box):
        return x + (1 if box.a is box.b else 2)
    box = Box(); box.a, box.b = t(1), t(2)
    args = t(), box
    """,
    "box.b = box.a",
)
identity(
    "item_is_input",
    """
    def f(x, d):
        return x + (1 if d["w"] is x else 2)
    x = t(); d = {"w": t(1)}
    args = x, d
    """,
    "d['w'] = x",
)
identity(
    "tuple_items_coincide",
    """
    def f(p):
        return p[0] + (1 if p[0] is p[1] else 2)
    x = t()
    args = ((x, t()),)
    """,
    "args = ((x, x),)",
)
for _kind, _make, _write in (
    ("lists", "[]", "a.append(1)"), ("dicts", "{}", "a[len(a)] = 1"), ("sets", "set()",
    "a.add(len(a))"),
    ("deques", "collections.deque()", "a.append(1)"),
):  # fmt: skip
    identity(
        f"{_kind}_coincide_and_are_written",
        f"""
        def f(x, a, b):
            {_write}
            return x + len(b)
        args = t(), {_make}, {_make}
        """,
        f"l = {_make}\nargs = t(), l, l",
    )
    identity(
        f"{_kind}_come_apart_and_are_written",
        f"""
        def f(x, a, b):
            {_write}
            return x + len(b)
        l = {_make}
        args = t(), l, l
        """,
        f"args = t(), {_make}, {_make}",
    )
identity(
    "lists_read_after_alias_is_written",
    """
    def f(x, a, b):
        n = len(b)
        a.append(x)
        return x + n * 10 + len(b)
    args = t(), [], []
    """,
    "l = []\nargs = t(), l, l",
)
identity(
    "list_items_coincide",
    """
    def f(x, p):
        p[0].append(1)
        return x + len(p[1])
    args = t(), [[], []]
    """,
    "l = []\nargs = t(), [l, l]",
)
identity(
    "dict_values_coincide",
    """
    def f(x, d):
        d["a"].append(1)
        return x + len(d["b"])
    args = t(), {"a": [], "b": []}
    """,
    "l = []\nargs = t(), {'a': l, 'b': l}",
)
identity(
    "objects_coincide_and_are_written",
    """
    class Box: pass
    def f(x, a, b):
        a.k = 5
        return x * b.k
    one, two = Box(), Box(); one.k = two.k = 2
    args = t(), one, two
    """,
    "one.k = 2\nargs = t(), one, one",
)
identity(
    "objects_with_slots_coincide",
    """
    class Box: __slots__ = ("k",)
    def f(x, a, b):
        a.k = 5
        return x * b.k
    one, two = Box(), Box(); one.k = two.k = 2
    args = t(), one, two
    """,
    "one.k = 2\nargs = t(), one, one",
)
identity(
    "attribute_lists_coincide",
    """
    class Box: pass
    def f(x, a, b):
        a.l.append(1)
        return x + len(b.l)
    one, two = Box(), Box(); one.l, two.l = [], []
    args = t(), one, two
    """,
    "two.l = one.l = []",
)
identity(
    "object_in_object_coincides",
    """
    class Box: pass
    def f(x, a, b):
        a.k += 1
        return x + b.inner.k
    one, two = Box(), Box(); one.k = 0; two.inner = Box(); two.inner.k = 0
    args = t(), one, two
    """,
    "two.inner = one",
)
identity(
    "global_list_is_argument",
    """
    G = []
    def f(x, l):
        l.append(1)
        return x + len(G)
    args = t(), []
    """,
    "args = t(), G",
)
identity(
    "global_becomes_argument",
    """
    G = []
    L = []
    def f(x, l):
        l.append(1)
        return x + len(G)
    args = t(), L
    """,
    "G = L",
)
identity(
    "two_globals_coincide",
    """
    A, B = [], []
    def f(x):
        A.append(1)
        return x + len(B)
    args = t(),
    """,
    "B = A",
)
identity(
    "default_is_argument",
    """
    D = []
    def f(x, l, d=D):
        d.append(1)
        return x + len(l)
    args = t(), []
    """,
    "args = t(), D",
)
identity(
    "closure_is_argument",
    """
    C = []
    def make():
        cell = C
        def f(x, l):
            l.append(1)
            return x + len(cell)
        return f
    f = make()
    args = t(), []
    """,
    "args = t(), C",
)
identity(
    "cells_of_two_callees_coincide",
    """
    def make(l):
        def g(): l.append(1)
        def h(): return len(l)
        return g, h
    (g, _), (_, h) = make([]), make([])
    def f(x):
        g()
        return x + h()
    args = t(),
    """,
    "g, h = make([])",
)
identity(
    "instance_dict_is_argument",
    """
    class Box: pass
    box = Box(); box.k = 1
    def f(x, d):
        box.k = 7
        return x + d["k"]
    args = t(), {"k": 1}
    """,
    "box.k = 1\nargs = t(), vars(box)",
)
identity(
    "tensor_twice_written",
    """
    def f(a, b):
        a.add_(1)
        return b * 2
    args = t(), t()
    """,
    "x = t()\nargs = x, x",
)
identity(
    "tensor_attribute_is_argument_written",
    """
    class Box: pass
    def f(x, box):
        box.w.add_(1)
        return x * 2
    box = Box(); box.w = t(); x = t()
    args = x, box
    """,
    "box.w = x",
)
identity(
    "tensor_in_list_twice_written",
    """
    def f(l):
        l[0].mul_(2)
        return l[1] + 1
    args = [t(), t()],
    """,
    "x = t()\nargs = [x, x],",
)
identity(
    "views_of_one_memory_written",
    """
    def f(a, b):
        a.add_(1)
        return b * 2
    base = torch.zeros(4)
    args = base[:2], torch.zeros(2)
    """,
    "args = base[:2], base[1:3]",
)
identity(
    "data_pointers",
    """
    def f(a, b):
        return a + (1 if a.data_ptr() == b.data_ptr() else 2)
    args = t(), t(1)
    """,
    "x = t()\nargs = x, x.view(2, 3)",
)
identity(
    "storages",
    """
    def f(a, b):
        same = a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
        return a + (1 if same else 2)
    args = t(), t(1)
    """,
    "x = t()\nargs = x, x.view(2, 3)",
)
identity(
    "parameter_is_argument",
    """
    m = nn.Linear(2, 2)
    nn.init.ones_(m.weight); nn.init.ones_(m.bias)
    def f(x, w):
        return x + (1 if m.weight is w else 2)
    args = torch.ones(2), torch.ones(2, 2)
    """,
    "args = torch.ones(2), m.weight",
)
identity(
    "weights_tied",
    """
    a, b = nn.Linear(2, 2), nn.Linear(2, 2)
    def f(x):
        return x + (1 if a.weight is b.weight else 2)
    args = torch.ones(2),
    """,
    "b.weight = a.weight",
)
identity(
    "weights_untied",
    """
    a, b = nn.Linear(2, 2), nn.Linear(2, 2)
    b.weight = a.weight
    def f(x):
        return x + (1 if a.weight is b.weight else 2)
    args = torch.ones(2),
    """,
    "b.weight = nn.Parameter(torch.ones(2, 2))",
)
identity(
    "modules_coincide",
    """
    m = nn.Module(); m.a, m.b = nn.ReLU(), nn.ReLU()
    def f(x):
        return x + (1 if m.a is m.b else 2)
    args = t(),
    """,
    "m.b = m.a",
)
identity(
    "sentinel",
    """
    MISSING = object()
    def f(x, v):
        return x + (1 if v is MISSING else 2)
    args = t(), object()
    """,
    "args = t(), MISSING",
)
identity(
    "optional_tensors_coincide",
    """
    def f(x, a, b):
        return x + (1 if a is b else 2)
    y = t(3)
    args = t(), y, None
    """,
    "args = t(), y, y",
)
identity(
    "functions_coincide",
    """
    def g(x): return x + 1
    def h(x): return x + 2
    def f(x, a, b):
        return a(x) if a is b else b(a(x))
    args = t(), g, h
    """,
    "args = t(), g, g",
)
identity(
    "types_coincide",
    """
    class A: pass
    class B: pass
    def f(x, a, b):
        return x + (1 if type(a) is type(b) else 2)
    args = t(), A(), B()
    """,
    "args = t(), A(), A()",
)
identity(
    "method_of_the_same_object",
    """
    class A:
        def m(self): return self
    one, two = A(), A()
    def f(x, g, h):
        return x + (1 if g.__self__ is h.__self__ else 2)
    args = t(), one.m, two.m
    """,
    "args = t(), one.m, one.m",
)
identity(
    "iterator_twice",
    """
    def f(x, a, b):
        return x + next(a) * 10 + next(b)
    def args(): return t(), iter([1, 2, 3]), iter([1, 2, 3])
    """,
    """
    def args():
        i = iter([1, 2, 3])
        return t(), i, i
    """,
)
identity(
    "arrays_coincide_and_are_written",
    """
    def f(x, a, b):
        a[0] = 5
        return x + torch.from_numpy(b)
    args = torch.zeros(3), np.zeros(3), np.zeros(3)
    """,
    "z = np.zeros(3)\nargs = torch.zeros(3), z, z",
)
identity(
    "keyword_values_coincide",
    """
    def g(**kw):
        kw["a"].append(1)
        return len(kw["b"])
    def f(x, a, b):
        return x + g(a=a, b=b)
    args = t(), [], []
    """,
    "l = []\nargs = t(), l, l",
)
identity(
    "gradient_is_argument",
    """
    x = t().requires_grad_(); x.grad = t(1)
    def f(x, y):
        return y + (1 if x.grad is y else 2)
    args = x, t(1)
    """,
    "args = x, x.grad",
)
identity(
    "class_held_by_object",
    """
    class A: pass
    class B: pass
    class Box: pass
    box = Box(); box.cls = B
    def f(x):
        return x + (1 if box.cls is A else 2)
    args = t(),
    """,
    "box.cls = A",
)
identity(
    "object_held_twice_comes_apart",
    """
    class Box: pass
    class Pair: pass
    pair = Pair(); pair.a = pair.b = Box(); pair.a.k = 1
    def f(x):
        pair.a.k = 4
        return x * pair.b.k
    args = t(),
    """,
    "pair.b = Box(); pair.b.k = 9",
)
identity(
    "three_inputs_two_coincide",
    """
    def f(a, b, c):
        return a + (1 if a is b else 2) * (3 if b is c else 5) * (7 if a is c else 11)
    x, y, z = t(), t(), t()
    args = x, y, z
    """,
    "args = x, y, x",
)
identity(
    "list_in_list_of_itself",
    """
    def f(x, l):
        return x + (1 if l[0] is l else 2)
    a = [[1]]
    args = t(), a
    """,
    "a[0] = a",
)
