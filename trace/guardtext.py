"""The printed guard tree of a compile goes in; what each input had to be comes out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

# Both forms: a node of torch's guard tree, a row of tc's guards.
_NODE: Final = re.compile(r"^(?:[| ]*\+- )?([A-Z_]+): (.*)$", re.MULTILINE)
_COMMENT: Final = re.compile(r"\s+# .*$")
_TENSOR: Final = re.compile(
    r"check_tensor\((?P<source>.+?), (?P<type>'?[\w.]+'?), (?:DispatchKeySet\([^)]*\), )?"
    r"(?P<dtype>torch\.\w+), (?:device=(?P<index>[^,]+)|device\((?P<device>[^)]*)\)), "
    r"requires_grad=(?P<grad>\w+), size=\[(?P<size>[^\]]*)\], stride=\[(?P<stride>[^\]]*)\]"
)
_EQUAL: Final = re.compile(r"^(?P<source>.+?) (?:==|is) (?P<value>[^=].*)$")
_SAME: Final = re.compile(r"^same\((?P<source>.+?), (?P<value>.+)\)$")
_LENGTH: Final = re.compile(
    r"has_length\((?P<source>.+), (?P<value>\d+)(?:, the\(.*?\))?\)|len\((?P<of>.+)\) == (?P<n>\d+)"
)
_TYPE: Final = re.compile(
    r"___check_(?:type|obj)_id\((?P<source>.+), \d+\)(?:, type=<class '(?P<type>[^']+)'>)?"
    r"|is_type\((?P<of>.+?), the\(\w+, '(?P<name>[^']+)'\)\)"
)
_MODE: Final = re.compile(
    r"""["'](?P<name>\w+)["']: ?(?P<value>\{[^}]*\}|\[[^\]]*\]|[^,}]+)""", re.DOTALL
)
_DEVICE: Final = re.compile(
    r"(?:default_device\(\)|utils_device\.CURRENT_DEVICE) == (?P<value>.+)$"
)
#: in tc's rows, the user's line of the guards that follow; a size that is held to a number
_HEADING: Final = re.compile(r"^# (?P<file>.+):(?P<line>\d+)$")
_SIZE_IS: Final = re.compile(r"^SHAPE: (?P<source>[^=!<>]+?) == \d+$")
_KEYS: Final = re.compile(r"^same_keys\((?P<source>.+?), (?P<value>\(.*\))\)$")
A_TENSOR: Final = "a tensor"
_DTYPES: Final = {"5": "float16", "6": "float32", "7": "float64", "15": "bfloat16"}  # c10's numbers
PARAMETER: Final = " is a parameter"
_KEYED: Final = re.compile(r"^(.+?)\[list\(dict\.keys\(\1\)\)(\[\d+\])\]")
_REMEMBERED: Final = 1 << 14  # sources; compiles of one function guard on the same ones
_CONSTANTS: Final = frozenset(("EQUALS", "NONE", "BOOL"))

_ACCESS: Final = (
    (re.compile(r"\b[LG]\[(['\"])([^'\"]+)\1\]"), r"\2"),
    (re.compile(r"\b__import___main__\."), ""),  # torch's name of the module that has a global
    (re.compile(r"\b(__import_[\w.]*?)_dot_"), r"\1."),
    (re.compile(r"\b__import_(?![\w.]*_dot_)"), ""),
    (re.compile(r"\b(?:___from_numpy|as_tensor)\(([\w.\[\]'\"]+)\)(?=\.|$)"), r"\1"),  # an array
    (re.compile(r"(?<![\w.])fn\.__self__\."), "self."),  # a method that is compiled by itself
    (re.compile(r"\.__dict__\['(_modules|_parameters|_buffers)'\]"), r".\1"),
    (re.compile(r"\._(?:modules|parameters)\['(\d+)'\]"), r"[\1]"),  # as containers are read
    (re.compile(r"\._(?:modules|parameters|buffers)\['([^']+)'\]"), r".\1"),
    (re.compile(r"\.__dict__\['([^']+)'\]"), r".\1"),
    (re.compile(r"\bdict\(type\(([\w.\[\]'\"]+)\)\.__dict__\)\['(\w+)'\]"), r"type(\1).\2"),
    (re.compile(r"(?<=[\w\])])(?:\.f[gs]et)?\.__code__$"), ""),  # a function is what the user names
    (re.compile(r"\.size\(\)\[(\d+)\]"), r".shape[\1]"),
    (re.compile(r"\.stride\((?:(\d+)\)|\)\[(\d+)\])"), r".stride[\1\2]"),
    (re.compile(r"^'(\w+)' in vars\((.+)\)$"), r"\2.\1"),  # an attribute that may be absent
    (re.compile(r"\bb(['\"]\w+['\"]) in os\.environ\._data\b"), r"os.environ[\1]"),
    (re.compile(r"\bos\.environ\._data\[b(['\"]\w+['\"])\]"), r"os.environ[\1]"),
    # of an object of a class derived from dict
    (re.compile(r"\bdict\.__getitem__\(([\w.\[\]'\"]+), ('[^']*'|\"[^\"]*\"|-?\d+)\)"), r"\1[\2]"),
)
_NUMBERED: Final = re.compile(r"vars\(([\w.\[\]]+)\)\['_(?:modules|parameters)'\]\['(\d+)'\]")
_VARS: Final = re.compile(
    r"vars\(([\w.\[\]]+)\)\['(?:_modules|_parameters|_buffers)'\]\['([^']+)'\]"
)


@lru_cache(_REMEMBERED)
def readable(source: str) -> str:
    """Write a guard's source as the user would: `L['self'].step` -> `self.step`."""
    before = ""
    while source != before:  # what stands in parentheses has to be plain before what is around it
        before = source
        source = _VARS.sub(r"\1.\2", _NUMBERED.sub(r"\1[\2]", source))
        for pattern, plain in _ACCESS:
            source = pattern.sub(plain, source)
        source = _KEYED.sub(r"list(\1.values())\2", source)
    return source.strip()


_CONVERSION: Final = re.compile(r"\btorch\.sym_(float|int)\(")
_TWICE: Final = re.compile(r"\(\(([^()]*(?:\([^()]*\))?[^()]*)\)\)")
_AROUND_CALL: Final = re.compile(r"(?<![\w)])\((\w+\([^()]*\))\)")


def tidied(condition: str) -> str:
    """Write a condition on sizes as the user would: `((torch.sym_float(t))) == 2.0`."""
    before, condition = "", _CONVERSION.sub(r"\1(", condition)
    while condition != before:
        before = condition
        condition = _AROUND_CALL.sub(r"\1", _TWICE.sub(r"(\1)", condition))
    return condition


def values(tree: str) -> dict[str, str]:
    """Return source -> the value this compile holds it to; dynamic sizes read `dynamic`."""
    found: dict[str, str] = {}
    for kind, text in _NODE.findall(tree):
        text = _COMMENT.sub("", text)
        if kind in ("TENSOR_MATCH", "TENSOR"):
            _add_tensor(text, found)
        elif kind == "GLOBAL_STATE":
            modes = ((m["name"], _mode(m["value"])) for m in _MODE.finditer(text))
            found.update((name, mode_value(name, value)) for name, value in modes)
        elif kind == "DEFAULT_DEVICE":
            match = _DEVICE.search(text)
            if match:
                found["default device" if "()" in text else "default_device"] = match[
                    "value"
                ].strip()
        elif kind == "DICT_KEYS":
            match = _KEYS.match(text)
            if match:
                found[f"list({readable(match['source'])})"] = match["value"]
        elif kind in ("TYPE_MATCH", "TYPE"):
            match = _TYPE.search(text)
            name = match and (match["type"] or match["name"])
            if match and name and not name.startswith("torch.Tensor"):
                found[f"type({readable(match['source'] or match['of'])})"] = name
        elif kind == "LENGTH" or kind.startswith("LENGTH_"):
            match = _LENGTH.search(text)
            if match:
                found[f"len({readable(match['source'] or match['of'])})"] = (
                    match["value"] or match["n"]
                )
        elif kind in _CONSTANTS or (kind.endswith("_MATCH") and kind != "ID_MATCH"):
            match = _SAME.match(text) or _EQUAL.match(text)
            if match:
                found[readable(match["source"])] = match["value"].strip()
    return found


def sizes_held(tree: str) -> dict[str, tuple[str, int]]:
    """Return the sizes that a compile of tc holds to a number -> the user's line that needs it."""
    found: dict[str, tuple[str, int]] = {}
    place = ("", 0)
    for row in tree.splitlines():
        if heading := _HEADING.match(row):
            file, line = heading.groups()
            place = file, int(line)
        elif not row:
            place = ("", 0)
        elif (match := _SIZE_IS.match(row)) and place[0]:
            found.setdefault(readable(match["source"]), place)
    return found


def mode_value(name: str, value: str) -> str:
    """Return what a mode of torch's is set to, as a program writes it: guards number dtypes."""
    return _DTYPES.get(value, value) if name == "default_dtype" else value


def _mode(value: str) -> str:
    """Torch writes modes as JSON, tc as Python: `true` and `True` are one value."""
    return {"true": "True", "false": "False"}.get(value.strip(), value.strip())


def held(tree: str, symbols: Mapping[str, str]) -> dict[str, str]:
    """Return the same, where sizes that are symbols read `dynamic (5)`, after their first value."""
    found = values(tree)
    for source, value in symbols.items():
        name = readable(source)
        if found.get(name, "dynamic") == "dynamic":
            found[name] = f"dynamic ({value})"
    return found


def _add_tensor(text: str, found: dict[str, str]) -> None:
    match = _TENSOR.match(text)
    if match is None:
        return
    name = readable(match["source"])
    found[name] = A_TENSOR  # against a compile that found None there, or a number
    if "Parameter" in match["type"]:
        found[f"{name}{PARAMETER}"] = "True"
    found[f"{name}.dtype"] = match["dtype"].removeprefix("torch.")
    found[f"{name}.requires_grad"] = match["grad"]
    found[f"{name}.device"] = _device(match["index"], match["device"])
    sizes = [size.strip() for size in match["size"].split(",") if size.strip()]
    found[f"{name}.ndim"] = str(len(sizes))
    for index, size in enumerate(sizes):
        found[f"{name}.shape[{index}]"] = "dynamic" if size == "None" else size
    strides = [stride.strip() for stride in match["stride"].split(",") if stride.strip()]
    if layout := _layout(sizes, strides):
        found[f"{name}.stride[0]"] = layout


def _layout(sizes: Sequence[str], strides: Sequence[str]) -> str:
    """Return how the elements of a tensor lie, in words that hold for other sizes as well.

    Empty where sizes are dynamic, or too little is known of it.
    """
    if not sizes or len(sizes) != len(strides) or not all(map(str.isdigit, sizes)):
        return ""
    if not all(map(str.isdigit, strides)):
        return "dynamic"
    order = sorted(range(len(sizes)), key=lambda one: (-int(strides[one]), one))
    dense, elements = [0] * len(sizes), 1
    for one in reversed(order):
        dense[one], elements = elements, elements * int(sizes[one])
    if dense != list(map(int, strides)):
        return f"({', '.join(strides)})"
    return "contiguous" if order == sorted(order) else f"dimensions in order {tuple(order)}"


def _device(index: str | None, device: str | None) -> str:
    """Torch's tree names the index alone, tc's rows the whole device."""
    if device is not None:
        kind, _, number = device.replace("type=", "").replace("index=", "").partition(", ")
        return kind.strip("'\"") + (f":{number}" if number else "")
    return "cpu" if index in (None, "None") else f"cuda:{index}"
