"""Facts about what is called: functions, methods, partials, wrappers and what they hold."""

from __future__ import annotations

from fact_world import Family

callables = Family("callables")


def _call(name: str, setup: str, change: str, expression: str = "g(x)") -> None:
    """Add a fact about a callee ``g`` of a global scope."""
    callables(name, f"{setup}\ndef f(x):\n    return {expression} + 1\nargs = t(1),", change)


_G = "def g(x): return x * 2\ndef h(x): return x * 5\n"
_call("code_replaced", _G, "g.__code__ = h.__code__")
_call("global_replaced", _G, "g = h")
_call("defaults_replaced", "def g(x, k=2): return x * k", "g.__defaults__ = (5,)")
_call("defaults_removed", "def g(x, k=2): return x * k\n", "g.__defaults__ = None")
_call("default_contents", "def g(x, k=[2]): return x * k[0]", "g.__defaults__[0][0] = 5")
_call("keyword_defaults_replaced", "def g(x, *, k=2): return x * k", "g.__kwdefaults__ = {'k': 5}")
_call("keyword_default_item", "def g(x, *, k=2): return x * k", "g.__kwdefaults__['k'] = 5")
_call(
    "closure_cell",
    "def make(k):\n    def g(x): return x * k\n    return g\ng = make(2)",
    "g.__closure__[0].cell_contents = 5",
)
_call(
    "closure_list",
    "L = [2]\ndef make(k):\n    def g(x): return x * k[0]\n    return g\ng = make(L)",
    "L[0] = 5",
)
_call(
    "closure_other_function",
    "def make(k):\n    def g(x): return x * k\n    return g\ng = make(2)",
    "g = make(5)",
)
_call(
    "closure_emptied",
    """
def make(k):
    def g(x):
        try:
            return x * k
        except NameError:
            return x * 7
    def empty():
        nonlocal k
        del k
    return g, empty
g, empty = make(2)
""",
    "empty()",
)
_call(
    "nonlocal_counter",
    """
def make():
    n = 0
    def g(x):
        nonlocal n
        n += 1
        return x * n
    def jump():
        nonlocal n
        n = 100
    return g, jump
g, jump = make()
""",
    "jump()",
)
_call("function_attribute", "def g(x): return x * g.k\ng.k = 2", "g.k = 5")
_call("function_attribute_absent", "def g(x): return x * getattr(g, 'k', 2)", "g.k = 5")
_call("function_name", "def g(x): return x * len(g.__name__)", "g.__name__ = 'longer'")
_call("function_doc", "def g(x): return x * (1 if g.__doc__ else 2)", "g.__doc__ = 'text'")
_call(
    "function_annotations",
    "def g(x): return x * (len(g.__annotations__) + 1)",
    "g.__annotations__['x'] = int",
)
_call(
    "wrapped_attribute",
    "def g(x): return x * 2\ndef h(x): return x * 5\n@functools.wraps(g)\ndef w(x): return g(x)",
    "w.__wrapped__ = h",
    "w.__wrapped__(x)",
)
_call(
    "wrapper_calls_wrapped",
    """
def deco(fn):
    @functools.wraps(fn)
    def inner(x): return inner.__wrapped__(x) * 2
    return inner
@deco
def g(x): return x
""",
    "g.__wrapped__ = lambda x: x * 9",
)
_call("lambda_in_dict", "d = {'g': lambda x: x * 2}", "d['g'] = lambda x: x * 5", "d['g'](x)")
_call("lambda_in_list", "d = [lambda x: x * 2]", "d[0] = lambda x: x * 5", "d[0](x)")
_call(
    "lambda_appended",
    "d = [lambda x: x * 2]",
    "d.append(lambda x: x * 5)",
    "functools.reduce(lambda a, g: g(a), d, x)",
)
_call(
    "function_in_attribute",
    "class B: pass\nb = B(); b.g = lambda x: x * 2",
    "b.g = lambda x: x * 5",
    "b.g(x)",
)
_call(
    "code_of_function_in_attribute",
    "class B: pass\nb = B(); b.g = lambda x: x * 2",
    "b.g.__code__ = (lambda x: x * 5).__code__",
    "b.g(x)",
)
_B = (
    "class B:\n    k = 2\n    def m(self, x): return x * 2\n"
    "    def n(self, x): return x * 5\nb = B()\n"
)
_call("method_of_class_replaced", _B, "B.m = lambda self, x: x * 5", "b.m(x)")
_call("method_code_replaced", _B, "B.m.__code__ = B.n.__code__", "b.m(x)")
_call("method_on_instance", _B, "b.m = lambda x: x * 5", "b.m(x)")
_call("method_of_instance_removed", _B + "b.m = lambda x: x * 5", "del b.m", "b.m(x)")
_call(
    "method_in_subclass_added",
    _B + "class C(B): pass\nb = C()",
    "C.m = lambda self, x: x * 5",
    "b.m(x)",
)
_call(
    "bound_method_of_other_object",
    "class B:\n    def __init__(self, k): self.k = k\n"
    "    def m(self, x): return x * self.k\ng = B(2).m",
    "g = B(5).m",
)
_call("bound_method_becomes_function", _B + "g = b.m", "g = lambda x: x * 5")
_S = (
    "class B:\n    @staticmethod\n    def s(x): return x * 2\n    @classmethod\n"
    "    def c(cls, x): return x * cls.k\n    k = 2\nb = B()\n"
)
_call("static_method_replaced", _S, "B.s = staticmethod(lambda x: x * 5)", "b.s(x)")
_call("static_method_becomes_method", _S, "B.s = lambda self, x: x * 5", "b.s(x)")
_call("class_method_replaced", _S, "B.c = classmethod(lambda cls, x: x * 5)", "b.c(x)")
_call("class_method_reads_class", _S, "B.k = 5", "B.c(x)")
_call("class_method_in_subclass", _S + "class C(B): pass\nb = C()", "C.k = 5", "b.c(x)")
_call(
    "partial_argument",
    "def h(k, x): return x * k\ng = functools.partial(h, 2)",
    "g = functools.partial(h, 5)",
)
_call(
    "partial_function",
    "def h(k, x): return x * k\ndef i(k, x): return x + k\ng = functools.partial(h, 2)",
    "g = functools.partial(i, 2)",
)
_call(
    "partial_keyword",
    "def h(x, k): return x * k\ng = functools.partial(h, k=2)",
    "g.keywords['k'] = 5",
)
_call(
    "partial_state",
    "def h(x, k): return x * k\ng = functools.partial(h, k=2)",
    "g.__setstate__((h, (), {'k': 5}, None))",
)
_call(
    "partial_list", "L = [2]\ndef h(l, x): return x * l[0]\ng = functools.partial(h, L)", "L[0] = 5"
)
_call(
    "partial_method",
    "class B:\n    def m(self, k, x): return x * k\n    p = functools.partialmethod(m, 2)\nb = B()",
    "B.p = functools.partialmethod(B.m, 5)",
    "b.p(x)",
)
_call(
    "callable_object",
    "class B:\n    def __call__(self, x): return x * 2\ng = B()",
    "B.__call__ = lambda self, x: x * 5",
)
_call(
    "callable_object_state",
    "class B:\n    k = 2\n    def __call__(self, x): return x * self.k\ng = B()",
    "g.k = 5",
)
_call(
    "lru_cache",
    "K = 2\n@functools.lru_cache\ndef n(): return K\ndef g(x): return x * n()",
    "K = 5; n.cache_clear(); defer(n.cache_clear)",
)
_call(
    "lru_cache_replaced",
    "@functools.lru_cache\ndef n(): return 2\ndef g(x): return x * n()",
    "@functools.lru_cache\ndef n(): return 5",
)
_call(
    "lru_cache_argument",
    "@functools.lru_cache\ndef n(k): return k\nK = 2\ndef g(x): return x * n(K)",
    "K = 5",
)
_call(
    "single_dispatch_registered",
    """
@functools.singledispatch
def n(k): return 2
def g(x): return x * n(1)
""",
    "n.register(int, lambda k: 5)",
)
_call(
    "exec_made",
    "space = {}\nexec('def g(x): return x * K', space)\nspace['K'] = 2\ng = space['g']",
    "space['K'] = 5",
)
_call(
    "exec_made_builtins",
    """
space = {'__builtins__': {'len': lambda v: 2}}
exec('def g(x): return x * len("abc")', space)
g = space['g']
""",
    "space['__builtins__']['len'] = lambda v: 5",
)
_call(
    "function_type_made",
    "g = types.FunctionType((lambda x: x * K).__code__, {'K': 2})",
    "g.__globals__['K'] = 5",
)
_call(
    "generator_function",
    "K = 2\ndef n():\n    yield K\n    yield K + 1\ndef g(x): return x * sum(n())",
    "K = 5",
)
_call(
    "generator_code",
    "def n():\n    yield 2\ndef n2():\n    yield 5\ndef g(x): return x * sum(n())",
    "n.__code__ = n2.__code__",
)
_call(
    "generator_closure",
    "def make(k):\n    def n():\n        yield k\n    return n\nn = make(2)\n"
    "def g(x): return x * sum(n())",
    "n.__closure__[0].cell_contents = 5",
)
_call(
    "generator_half_consumed",
    """
def n():
    yield 2
    yield 5
    yield 11
def g(x): return x * next(it)
it = iter(list(range(1000)))
""",
    "it = iter([500, 600, 700])",
)
_call("iterator_of_list_changed", "L = [1, 2, 3]\ndef g(x): return x * sum(iter(L))", "L.append(4)")
_call(
    "coroutine",
    "K = 2\nasync def n(): return K\ndef g(x):\n    c = n()\n    try:\n"
    "        c.send(None)\n    except StopIteration as e:\n        return x * e.value",
    "K = 5",
)
_call(
    "context_manager_function",
    """
K = 2
@contextlib.contextmanager
def n():
    yield K
def g(x):
    with n() as k:
        return x * k
""",
    "K = 5",
)
_call(
    "decorator_global",
    "def deco(fn): return lambda x: fn(x) * K\nK = 2\n@deco\ndef g(x): return x",
    "K = 5",
)
_call(
    "callee_of_callee",
    "def i(x): return x * 2\ndef j(x): return x * 5\ndef h(x): return i(x)\ndef g(x): return h(x)",
    "i.__code__ = j.__code__",
)
_call(
    "global_of_callee_of_callee",
    "K = 2\ndef i(x): return x * K\ndef h(x): return i(x)\ndef g(x): return h(x)",
    "K = 5",
)
_call(
    "class_with_new",
    "class B:\n    def __new__(cls): return 2\ndef g(x): return x * B()",
    "B.__new__ = staticmethod(lambda cls: 5)",
)
_call("operator_object", "g = operator.itemgetter(0)", "g = operator.itemgetter(1)", "g(x)")
_call(
    "attribute_getter",
    "class B: a, b = 2, 5\ng = operator.attrgetter('a')",
    "g = operator.attrgetter('b')",
    "x * g(B)",
)
_call("method_caller", "g = operator.methodcaller('mul', 2)", "g = operator.methodcaller('mul', 5)")
_call("method_wrapper", "g = (2).__mul__", "g = (5).__mul__", "x * g(1)")
_call("builtin_method_of_object", "L = [2]\ng = L.__len__", "L.append(3)", "x * g()")
_call(
    "function_as_argument_default",
    "def h(x): return x * 2\ndef i(x): return x * 5\ndef g(x, fn=h): return fn(x)",
    "g.__defaults__ = (i,)",
)
_call(
    "recursion", "def g(x, n=2): return x if n == 0 else g(x * 2, n - 1)", "g.__defaults__ = (4,)"
)
_call(
    "closure_of_own_frame",
    "K = 2\ndef g(x):\n    def inner(): return x * K\n    return inner()",
    "K = 5",
)
_call("comprehension_global", "K = 2\ndef g(x): return x * sum([K for _ in range(3)])", "K = 5")
_call(
    "map_of_global",
    "K = 2\ndef n(v): return v * K\ndef g(x): return x * sum(map(n, [1, 2]))",
    "K = 5",
)
_call("sort_key", "K = 1\ndef g(x): return x * sorted([1, 2], key=lambda v: v * K)[0]", "K = -1")
_call("type_called", "T = int\ndef g(x): return x * T(2.5)", "T = float")
callables(
    "own_defaults_of_compiled",
    """
    def f(x, k=2): return x * k
    args = t(1),
    """,
    "f.__defaults__ = (5,)",
)
callables(
    "own_keyword_defaults",
    """
    def f(x, *, k=2): return x * k
    args = t(1),
    """,
    "f.__kwdefaults__['k'] = 5",
)
callables(
    "own_code",
    """
    def f(x): return x * 2
    def h(x): return x * 5
    args = t(1),
    """,
    "f.__code__ = h.__code__",
)
callables(
    "own_closure",
    """
    def make():
        k = 2
        def f(x): return x * k
        return f
    f = make()
    args = t(1),
    """,
    "f.__closure__[0].cell_contents = 5",
)
callables(
    "own_default_mutable",
    """
    def f(x, acc=[]):
        acc.append(1)
        return x * len(acc)
    args = t(1),
    """,
    "f.__defaults__[0].extend([1] * 10)",
)
callables(
    "argument_function_code",
    """
    def g(x): return x * 2
    def f(x, g): return g(x)
    args = t(1), g
    """,
    "g.__code__ = (lambda x: x * 5).__code__",
)
callables(
    "argument_function",
    """
    def f(x, g): return g(x)
    args = t(1), torch.sin
    """,
    "args = t(1), torch.cos",
)
callables(
    "argument_method",
    """
    class B:
        def __init__(self, k): self.k = k
        def m(self, x): return x * self.k
    def f(x, g): return g(x)
    args = t(1), B(2).m
    """,
    "args = t(1), B(5).m",
)
callables(
    "argument_partial",
    """
    def h(x, k): return x * k
    def f(x, g): return g(x)
    args = t(1), functools.partial(h, k=2)
    """,
    "args = t(1), functools.partial(h, k=5)",
)
callables(
    "argument_generator",
    """
    def n(k):
        yield k
        yield k + 1
    def f(x, g): return x * next(g)
    def args(): return t(1), n(2)
    """,
    """
    def args():
        g = n(2)
        next(g)
        return t(1), g
    """,
)
callables(
    "argument_iterator",
    """
    def f(x, g): return x * next(g)
    def args(): return t(1), iter([2, 5])
    """,
    """
    def args():
        g = iter([2, 5])
        next(g)
        return t(1), g
    """,
)
for _name, _make in (("zip", "zip([1, 2, 3], [4, 5, 6])"), ("enumerate", "enumerate([4, 5, 6])"),
                     ("map", "map(lambda v: (v, v), [4, 5, 6])"), ("reversed",
                     "zip(reversed([1, 2]))"),
                     ("count", "zip(itertools.count(3))"), ("chain",
                     "zip(itertools.chain([1], [2, 3]))"),
                     ("cycle", "zip(itertools.cycle([1, 2, 3]))"),
                     ("islice", "zip(itertools.islice([1, 2, 3], 2))"),
                     ("dict_iterator", "iter({1: 2, 3: 4}.items())")):  # fmt: skip
    callables(
        f"argument_{_name}",
        f"""
        def f(x, g): return x * next(g)[0]
        def make(): return {_make}
        def args(): return t(1), make()
        """,
        """
        def args():
            g = make()
            next(g)
            return t(1), g
        """,
    )
callables(
    "argument_generator_arguments",
    """
    def n(k):
        yield k
    def f(x, g): return x * next(g)
    def args(): return t(1), n(2)
    """,
    "def args(): return t(1), n(5)",
)
