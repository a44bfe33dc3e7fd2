"""Facts about plain values: numbers, strings, members of enums, ranges, arrays, types."""

from __future__ import annotations

from fact_world import Family

values = Family("values")


def _argument(name: str, expression: str, before: str, after: str, setup: str = "") -> None:
    """Add a fact about an argument ``k``; the result is multiplied by an expression of it."""
    body = f"def f(x, k):\n    return x * ({expression}) + 1"
    values(name, f"{setup}\n{body}\nargs = t(1), {before}", f"args = t(1), {after}")


_argument("int", "k", "2", "3")
_argument("int_branch", "1 if k > 2 else 5", "2", "3")
_argument("big_int", "k % 7", "2 ** 70", "2 ** 70 + 1")
_argument("int_to_bool", "10 if k is True else k", "1", "True")
_argument("int_to_float", "1 if isinstance(k, int) else 2", "1", "1.0")
_argument("int_to_subclass", "1 if type(k) is int else 2", "1", "Int(1)", "class Int(int): pass")
_argument(
    "int_subclass_attribute",
    "k.tag",
    "a",
    "b",
    "class Int(int): pass\na, b = Int(1), Int(1); a.tag, b.tag = 1, 2",
)
_argument("float", "k", "2.0", "3.0")
_argument("float_branch", "1 if k > 2 else 5", "2.0", "3.0")
_argument("nan", "1 if k == k else 2", "1.0", "float('nan')")
_argument("minus_zero", "math.copysign(1.0, k)", "0.0", "-0.0")
_argument("infinity", "1 if math.isinf(k) else 2", "1.0", "float('inf')")
_argument("string", "1 if k == 'a' else 2", "'a'", "'b'")
_argument("string_length", "len(k)", "'a'", "'ab'")
_argument("bytes", "k[0]", "b'a'", "b'b'")
_argument("none", "1 if k is None else 2", "None", "0")
_argument("none_to_false", "1 if k is None else 2", "None", "False")
_argument("complex", "k.real", "1 + 2j", "3 + 2j")
_argument(
    "enum",
    "1 if k is Colour.A else 2",
    "Colour.A",
    "Colour.B",
    "class Colour(enum.Enum): A = 1; B = 2",
)
_argument("enum_value", "k.value", "Colour.A", "Colour.B", "class Colour(enum.Enum): A = 1; B = 2")
_argument(
    "flag",
    "1 if Colour.A in k else 2",
    "Colour.A",
    "Colour.B",
    "class Colour(enum.Flag): A = 1; B = 2",
)
_argument("int_enum", "k + 1", "Colour.A", "Colour.B", "class Colour(enum.IntEnum): A = 1; B = 2")
_argument("slice", "k.stop", "slice(0, 2)", "slice(0, 3)")
_argument("range", "len(k)", "range(2)", "range(3)")
_argument("range_sum", "sum(k)", "range(0, 4, 2)", "range(1, 5, 2)")
_argument("ellipsis", "1 if k is ... else 2", "...", "None")
_argument("not_implemented", "1 if k is NotImplemented else 2", "None", "NotImplemented")
_argument("torch_dtype", "1 if k is torch.float32 else 2", "torch.float32", "torch.float64")
_argument(
    "torch_device", "1 if k.type == 'cpu' else 2", "torch.device('cpu')", "torch.device('meta')"
)
_argument(
    "device_index", "1 if k.index is None else 2", "torch.device('cpu')", "torch.device('cpu', 0)"
)
_argument("torch_size", "k[0]", "torch.Size([2])", "torch.Size([3])")
_argument("size_or_tuple", "1 if isinstance(k, torch.Size) else 2", "torch.Size([2])", "(2,)")
_argument(
    "memory_format",
    "1 if k is torch.contiguous_format else 2",
    "torch.contiguous_format",
    "torch.channels_last",
)
_argument("type_object", "1 if k is int else 2", "int", "float")
_argument("type_subclass", "1 if issubclass(k, int) else 2", "bool", "float")
_argument("format", "1 if f'{k:.1f}' == '1.0' else 2", "1.01", "1.09")
_argument("repr", "len(repr(k))", "1", "100")
_argument("str_of_list", "len(str(k))", "[1]", "[1, 2]")
_argument("hash", "hash(k) % 7 + 1", "1", "2")
_argument("isinstance_union", "1 if isinstance(k, (int, str)) else 2", "1", "1.5")
_argument("callable", "1 if callable(k) else 2", "1", "abs")
_argument("numpy_scalar", "float(k)", "np.float32(2)", "np.float32(3)")
_argument(
    "numpy_dtype",
    "1 if k.dtype == np.float32 else 2",
    "np.ones(2, np.float32)",
    "np.ones(2, np.float64)",
)
_argument("numpy_shape", "k.shape[0]", "np.ones(2)", "np.ones(3)")
_argument(
    "numpy_contiguity",
    "1 if k.flags['C_CONTIGUOUS'] else 2",
    "np.ones((2, 2))",
    "np.ones((3, 2)).T",
)
_argument("numpy_strides", "k.strides[0]", "np.ones(4)[:2]", "np.ones(4)[::2]")
_argument("numpy_values", "torch.from_numpy(k).sum()", "np.ones(2)", "np.ones(2) * 3")
_argument("numpy_object", "k[0]", "np.array([1, None])", "np.array([2, None])")
_argument("numpy_dtype_object", "1 if k == np.float32 else 2", "np.dtype('f4')", "np.dtype('f8')")
_argument("numpy_integer", "int(k)", "np.int64(2)", "np.int64(3)")
_argument("numpy_bool", "1 if k else 2", "np.bool_(True)", "np.bool_(False)")
_argument("decimal", "float(k)", "D(1)", "D(2)", "from decimal import Decimal as D")
_argument("fraction", "float(k)", "D(1, 2)", "D(1, 3)", "from fractions import Fraction as D")
_argument("date", "k.year", "D(1999, 1, 1)", "D(2000, 1, 1)", "from datetime import date as D")
_argument("path", "len(k.name)", "D('a/b')", "D('a/bc')", "from pathlib import PurePath as D")
_argument("bytearray", "k[0]", "bytearray(b'a')", "bytearray(b'b')")
_argument("memoryview", "k[0]", "memoryview(b'a')", "memoryview(b'b')")
_argument("generic_alias", "1 if k == list[int] else 2", "list[int]", "list[str]")
_argument("code_flags", "k.co_argcount", "(lambda: 0).__code__", "(lambda a: 0).__code__")
_argument("string_subclass", "1 if k == 'a' else 2", "S('a')", "S('b')", "class S(str): pass")
_argument("tuple_subclass", "len(k)", "S((1,))", "S((1, 2))", "class S(tuple): pass")
_argument("slice_of_tensor", "x[k].sum()", "slice(0, 1)", "slice(1, 2)")
_argument("index_of_tensor", "x[k].sum()", "(0, 1)", "(1, 0)")
for _where, _bind in (("global", "K = {}"), ("attribute", "box.k = {}"), ("class", "Box.k = {}"),
                      ("item", "d['k'] = {}"), ("cell", "set_cell({})")):  # fmt: skip
    for _name, _before, _after, _expression in (
        ("int", "2", "3", "{}"), ("float", "2.5", "3.5", "{}"), ("string", "'a'", "'bc'",
        "len({})"),
        ("bool", "True", "False", "1 if {} else 2"), ("none", "None", "4",
        "1 if {} is None else 2"),
        ("type", "1", "1.5", "1 if isinstance({}, int) else 2"),
        ("tensor", "t(1)", "t(2)", "{}"), ("list", "[1]", "[1, 2]", "len({})"),
    ):  # fmt: skip
        _source = {"global": "K", "attribute": "box.k", "class": "box.k", "item": "d['k']",
                   "cell": "cell"}[_where]  # fmt: skip
        values(f"{_where}_{_name}", f"""
class Box: pass
box, d = Box(), {{}}
def make():
    cell = None
    def set_cell(v):
        nonlocal cell
        cell = v
    def f(x):
        return x * ({_expression.format(_source)}) + 1
    return f, set_cell
f, set_cell = make()
{_bind.format(_before)}
args = t(1),
""", _bind.format(_after))  # fmt: skip

# What is compared by identity, though it is data.
_argument("iinfo_of_numpy", "k.bits", "np.iinfo('int32')", "np.iinfo('int64')")
_argument("dtype_of_numpy", "k.itemsize", "np.dtype('float32')", "np.dtype('float64')")
_argument("finfo_of_torch", "1 if k.max > 1e100 else 2", "torch.finfo(torch.float32)",
          "torch.finfo(torch.float64)")  # fmt: skip
_argument("iinfo_of_torch", "k.bits", "torch.iinfo(torch.int32)", "torch.iinfo(torch.int64)")
_argument("code_object", "k.co_argcount", "(lambda: 1).__code__", "(lambda a, b: 1).__code__")
