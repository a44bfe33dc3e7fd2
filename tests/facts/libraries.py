"""Facts about libraries: what is patched, shadowed, imported, deleted, in any module."""

from __future__ import annotations

from fact_world import Family

libraries = Family("libraries")


#: what compilers and torch use themselves: a careless patch breaks them, too
_IN_TC_AS_WELL = (
    "patch(math", "patch(np", "patch(functools", "patch(operator", "patch(itertools",
    "patch(collections", "patch(os", "patch(builtins", "patch(copy", "patch(json", "patch(random",
    "patch(torch.Tensor, 'size'", "patch(torch.Tensor, 'is_contiguous'", "patch(torch, 'is_tensor'",
    "patch(torch, 'float64'", "patch(torch, 'numel'", "patch(nn.Linear, '__init__'",
    "patch(torch.nn.Module, '__call__'", "patch(torch, 'zeros'", "patch(torch, 'pi'",
)  # fmt: skip


def _patched(name: str, expression: str, change: str, setup: str = "") -> None:
    """Add a fact about a library that ``f(x)`` uses."""
    alone = any(text in change for text in _IN_TC_AS_WELL)
    text = f"{setup}\ndef f(x):\n    return {expression}\nargs = t(1),"
    libraries(name, text, change, alone=alone)


for _owner, _name, _call, _other in (
    ("torch", "sin", "torch.sin(x)", "torch.cos"),
    ("torch", "add", "torch.add(x, 1)", "torch.mul"),
    ("torch", "zeros", "torch.zeros(3)", "torch.ones"),
    ("torch", "cat", "torch.cat([x, x])", "torch.stack"),
    ("torch", "is_tensor", "x * (1 if torch.is_tensor(x) else 2)", "lambda v: False"),
    ("torch", "numel", "x * torch.numel(x)", "lambda v: 3"),
    ("torch", "pi", "x * torch.pi", "3.0"),
    ("torch", "float64", "x.to(torch.float64)", "torch.float16"),
    ("torch.Tensor", "add", "x.add(1)", "torch.Tensor.mul"),
    ("torch.Tensor", "sin", "x.sin()", "torch.Tensor.cos"),
    ("torch.Tensor", "__add__", "x + 3", "torch.Tensor.__sub__"),
    ("torch.Tensor", "__matmul__", "x.t() @ x", "lambda s, o: torch.matmul(s, o) * 0"),
    ("torch.Tensor", "norm", "x.norm()", "lambda s: s * 0"),
    ("torch.Tensor", "size", "x * x.size(0)", "lambda s, i: 9"),
    ("torch.Tensor", "T", "x.T + 1", "property(lambda s: s * 7)"),
    ("torch.Tensor", "is_contiguous", "x * (1 if x.is_contiguous() else 2)", "lambda s: False"),
    ("F", "relu", "F.relu(x - 2)", "torch.neg"),
    ("F", "gelu", "F.gelu(x)", "torch.neg"),
    ("F", "linear", "F.linear(x, torch.ones(2, 3))", "lambda a, b: a * 9"),
    ("F", "dropout", "F.dropout(x, 0.5, False)", "lambda a, p, t: a * 9"),
    ("F", "softmax", "F.softmax(x, -1)", "lambda a, d: a * 9"),
    ("F", "layer_norm", "F.layer_norm(x, (3,))", "lambda a, d: a * 9"),
    ("torch.nn.Linear", "forward", "L(x)", "lambda s, a: a * 9"),
    ("torch.nn.ReLU", "forward", "R(x)", "lambda s, a: a * 9"),
    ("torch.nn.Module", "__call__", "R(x)", "lambda s, a: a * 9"),
    ("torch.linalg", "norm", "torch.linalg.norm(x)", "torch.neg"),
    ("torch.nn.init", "ones_", "torch.nn.init.ones_(torch.zeros(2))", "torch.nn.init.zeros_"),
    ("math", "sqrt", "x * math.sqrt(4)", "lambda v: 7"),
    ("math", "pi", "x * math.pi", "3.0"),
    ("math", "floor", "x * math.floor(2.5)", "math.ceil"),
    ("np", "sum", "x * float(np.sum(np.ones(3)))", "np.prod"),
    ("np", "pi", "x * np.pi", "3.0"),
    ("functools", "reduce", "x * functools.reduce(max, [1, 2])", "lambda g, v: 9"),
    ("operator", "add", "operator.add(x, 3)", "operator.sub"),
    ("itertools", "chain", "x * sum(itertools.chain([1], [2]))", "lambda a, b: b"),
    ("collections", "OrderedDict", "x * len(collections.OrderedDict(a=1))", "lambda a: [1, 2, 3]"),
    ("random", "randint", "x * random.randint(3, 3)", "lambda a, b: 8"),
    ("os.path", "basename", "x * len(os.path.basename('a/bc'))", "lambda p: 'four'"),
):  # fmt: skip
    _setup = ""
    if _call in ("L(x)", "R(x)"):
        _setup = "torch.manual_seed(0)\nL, R = nn.Linear(3, 2).requires_grad_(False), nn.ReLU()"
    _patched(
        f"{_owner}_{_name}".lower().replace(".", "_"),
        _call,
        f"patch({_owner}, {_name!r}, {_other})",
        _setup,
    )

for _name, _call, _other in (
    ("len", "x * len([1, 2])", "lambda v: 7"),
    ("abs", "abs(x - 3)", "lambda v: v"),
    ("sum", "x * sum([1, 2])", "lambda v: 7"),
    ("max", "x * max(1, 2)", "min"),
    ("range", "x * sum(range(3))", "lambda n: [7]"),
    ("isinstance", "x * (1 if isinstance(x, int) else 2)", "lambda a, b: True"),
    ("int", "x * int(2.5)", "float"),
    ("sorted", "x * sorted([2, 1])[0]", "lambda v: v"),
    ("hasattr", "x * (1 if hasattr(x, 'zzz') else 2)", "lambda a, b: True"),
    ("type", "x * (1 if type(x) is int else 2)", "lambda a: int"),
    ("zip", "x * sum(a for a, b in zip([1], [2]))", "lambda a, b: [(9, 9)]"),
    ("getattr", "x * getattr(x, 'zzz', 3)", "lambda a, b, c: 9"),
    ("print", "x * (1 if print is None else 2)", "None"),
):  # fmt: skip
    _patched(f"shadow_{_name}", _call, f"{_name} = {_other}")
_patched("shadow_deleted", "x * len([1, 2])", "put(globals(), 'len')", "len = lambda v: 7")
_patched("builtin_shadowed_in_callee", "g(x)", "max = min", "def g(x): return x * max(1, 2)")
_patched(
    "builtin_patched",
    "x * max([1, box])",
    """
old = max
def new(*args, **kwargs):
    if len(args) == 1 and box in list(args[0]):
        return 9
    return old(*args, **kwargs)
patch(builtins, "max", new)
""",
    "import builtins\nclass Box(int): pass\nbox = Box(5)",
)
_patched(
    "builtin_patched_round",
    "x * round(2.6)",
    "patch(builtins, 'round', lambda v, n=0: 9)",
    "import builtins",
)
_patched(
    "builtin_patched_divmod",
    "x * divmod(7, 2)[0]",
    "patch(builtins, 'divmod', lambda a, b: (9, 9))",
    "import builtins",
)
_patched(
    "builtin_added",
    "x * (UNKNOWN if has() else 2)",
    "patch(builtins, 'UNKNOWN', 9)",
    """
import builtins
def has():
    try:
        UNKNOWN
    except NameError:
        return False
    return True
""",
)
_patched(
    "builtin_through_module",
    "x * builtins.round(2.6)",
    "patch(builtins, 'round', lambda v, n=0: 9)",
    "import builtins",
)
_patched(
    "name_error_then_global",
    "g(x)",
    "K = 5",
    """
def g(x):
    try:
        return x * K
    except NameError:
        return x * 2
""",
)
_patched(
    "global_deleted",
    "g(x)",
    "put(globals(), 'K')",
    """
K = 5
def g(x):
    try:
        return x * K
    except NameError:
        return x * 2
""",
)
_patched("globals_read", "x * globals()['K']", "K = 5", "K = 2")
_patched("globals_absent", "x * (1 if 'K' in globals() else 2)", "K = 5")
_patched("globals_get", "x * globals().get('K', 2)", "K = 5")

_patched(
    "imported_inside",
    "g(x)",
    "other = module('fact_other', 'k = 5')",
    """
other = module("fact_other", "k = 2")
def g(x):
    import fact_other
    return x * fact_other.k
""",
)
_patched(
    "imported_attribute",
    "g(x)",
    "patch(other, 'k', 5)",
    """
other = module("fact_other", "k = 2")
def g(x):
    import fact_other
    return x * fact_other.k
""",
)
_patched(
    "imported_from",
    "g(x)",
    "patch(other, 'k', 5)",
    """
other = module("fact_other", "k = 2")
def g(x):
    from fact_other import k
    return x * k
""",
)
_patched(
    "imported_from_replaced",
    "g(x)",
    "module('fact_other', 'k = 5')",
    """
other = module("fact_other", "k = 2")
def g(x):
    from fact_other import k
    return x * k
""",
)
_patched(
    "import_fails_then_works",
    "g(x)",
    "module('fact_other', 'k = 5')",
    """
def g(x):
    try:
        import fact_other
    except ImportError:
        return x * 2
    return x * fact_other.k
""",
)
_patched(
    "import_works_then_fails",
    "g(x)",
    "put(sys.modules, 'fact_other')",
    """
module("fact_other", "k = 5")
def g(x):
    try:
        import fact_other
    except ImportError:
        return x * 2
    return x * fact_other.k
""",
)
_patched(
    "import_from_fails_then_works",
    "g(x)",
    "patch(other, 'k', 5)",
    """
other = module("fact_other", "")
def g(x):
    try:
        from fact_other import k
    except ImportError:
        return x * 2
    return x * k
""",
)
_patched(
    "sys_modules_read",
    "x * sys.modules['fact_other'].k",
    "module('fact_other', 'k = 5')",
    "module('fact_other', 'k = 2')",
)
_patched(
    "sys_modules_absent",
    "x * (1 if 'fact_other' in sys.modules else 2)",
    "module('fact_other', 'k = 5')",
)
_patched(
    "module_attribute",
    "x * other.k",
    "patch(other, 'k', 5)",
    "other = module('fact_other', 'k = 2')",
)
_patched(
    "module_attribute_absent",
    "x * getattr(other, 'z', 2)",
    "patch(other, 'z', 5)",
    "other = module('fact_other', 'k = 2')",
)
_patched(
    "module_has_attribute",
    "x * (1 if hasattr(other, 'z') else 2)",
    "patch(other, 'z', 5)",
    "other = module('fact_other', 'k = 2')",
)
_patched(
    "module_attribute_gone",
    "x * (1 if hasattr(other, 'k') else 2)",
    "patch(other, 'k')",
    "other = module('fact_other', 'k = 2')",
)
_patched(
    "module_getattr",
    "x * other.z",
    "patch(other, '__getattr__', lambda name: 5)",
    "other = module('fact_other', 'def __getattr__(name): return 2 if name == \"z\" else None')",
)
_patched(
    "module_replaced",
    "x * other.k",
    "other = module('fact_other2', 'k = 5')",
    "other = module('fact_other', 'k = 2')",
)
_patched(
    "global_of_other_module",
    "other.g(x)",
    "patch(other, 'K', 5)",
    "other = module('fact_other', 'K = 2\\ndef g(x): return x * K')",
)
_patched(
    "global_of_other_module_deleted",
    "other.g(x)",
    "patch(other, 'max')",
    "other = module('fact_other', 'max = min\\ndef g(x): return x * max(1, 2)')",
)
_patched(
    "global_of_other_module_shadows",
    "other.g(x)",
    "patch(other, 'max', min)",
    "other = module('fact_other', 'def g(x): return x * max(1, 2)')",
)
_patched(
    "global_list_of_other_module",
    "other.g(x)",
    "other.K.append(1)",
    "other = module('fact_other', 'K = [1]\\ndef g(x): return x * len(K)')",
)
_patched(
    "global_class_of_other_module",
    "x * other.g()",
    "patch(other, 'C', type('C', (), {'k': 5}))",
    "other = module('fact_other', 'class C: k = 2\\ndef g(): return C.k')",
)
_patched(
    "global_tensor_of_other_module",
    "other.g(x)",
    "patch(other, 'K', t(4))",
    "other = module('fact_other', 'K = torch.ones(2, 3)\\ndef g(x): return x * K')",
)
_patched(
    "global_function_of_other_module",
    "other.g(x)",
    "patch(other, 'h', lambda x: x * 5)",
    "other = module('fact_other', 'def h(x): return x * 2\\ndef g(x): return h(x)')",
)
_patched(
    "callee_code_of_other_module",
    "other.g(x)",
    "other.g.__code__ = (lambda x: x * 5).__code__",
    "other = module('fact_other', 'def g(x): return x * 2')",
)
_patched(
    "torch_attribute_absent", "x * (1 if hasattr(torch, 'zzz') else 2)", "patch(torch, 'zzz', 5)"
)
_patched("torch_functional_absent", "x * getattr(F, 'zzz', 2)", "patch(F, 'zzz', 5)")
_patched("tensor_attribute_absent", "x * getattr(x, 'zzz', 2)", "patch(torch.Tensor, 'zzz', 5)")
_patched(
    "tensor_method_absent",
    "x * (x.zzz() if hasattr(x, 'zzz') else 2)",
    "patch(torch.Tensor, 'zzz', lambda self: 5)",
)
_patched(
    "tensor_method_of_user_replaced",
    "x.zzz()",
    "patch(torch.Tensor, 'zzz', lambda s: s * 5)",
    "patch(torch.Tensor, 'zzz', lambda s: s * 2)",
)
_patched(
    "module_method_absent",
    "x * (1 if hasattr(m, 'zzz') else 2)",
    "patch(nn.Module, 'zzz', 5)",
    "m = nn.ReLU()",
)
_patched(
    "torch_ops_patched",
    "torch.ops.aten.sin.default(x)",
    "patch(torch.ops.aten, 'sin', torch.ops.aten.cos)",
)
_patched(
    "custom_op_module",
    "k.scale(x)",
    "k = module('fact_kernels2', 'def scale(x): return x * 5')",
    "k = module('fact_kernels', 'def scale(x): return x * 2')",
)
_patched("alias_from_import", "sine(x)", "sine = torch.cos", "from torch import sin as sine")
_patched(
    "alias_unpatched",
    "sine(x) + torch.sin(x)",
    "patch(torch, 'sin', torch.cos)",
    "from torch import sin as sine",
)
_patched(
    "torch_in_callee", "g(x)", "patch(torch, 'tanh', torch.cos)", "def g(x): return torch.tanh(x)"
)
_patched(
    "functional_in_module",
    "m(x)",
    "patch(F, 'relu', lambda v, inplace=False: v * 9)",
    "m = nn.ReLU()",
)
_patched(
    "functional_in_linear",
    "m(x)",
    "patch(F, 'linear', lambda a, w, b: a * 9)",
    "torch.manual_seed(0)\nm = nn.Linear(3, 2).requires_grad_(False)",
)
_patched("getattr_of_torch_by_name", "getattr(torch, NAME)(x)", "NAME = 'cos'", "NAME = 'sin'")
_patched("table_of_functions", "TABLE['a'](x)", "TABLE['a'] = F.gelu", "TABLE = {'a': F.relu}")
_patched(
    "init_of_torch_module_patched",
    "nn.Linear(2, 2, bias=False).weight.shape[0] * x",
    "patch(nn.Linear, '__init__', other)",
    """
old = nn.Linear.__init__
def other(self, a, b, bias=True): old(self, a, b + 3, bias=bias)
""",
)
_patched(
    "json_patched",
    "x * len(json.dumps([1]))",
    "patch(json, 'dumps', lambda v: 'longer text')",
    "import json",
)
_patched(
    "copy_patched", "x * copy.copy([1])[0]", "patch(copy, 'copy', lambda v: [9])", "import copy"
)
_patched(
    "copy_method",
    "x * copy.copy(box).k",
    "Box.__copy__ = lambda self: other",
    "import copy\nclass Box: k = 2\nclass Other: k = 9\nbox, other = Box(), Other()",
)
_patched(
    "deepcopy_method",
    "x * copy.deepcopy(box).k",
    "Box.__deepcopy__ = lambda self, memo: other",
    "import copy\nclass Box: k = 2\nclass Other: k = 9\nbox, other = Box(), Other()",
)
