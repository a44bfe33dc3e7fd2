"""The printed guard tree of a compile goes in; what each input had to be comes out."""

from __future__ import annotations

import re
from typing import Final

_NODE: Final = re.compile(r"^[| ]*\+- ([A-Z_]+): (.*)$", re.MULTILINE)
_COMMENT: Final = re.compile(r"\s+# .*$")
_TENSOR: Final = re.compile(
    r"check_tensor\((?P<source>.+?), (?P<type>[\w.]+), DispatchKeySet\((?P<keys>[^)]*)\), "
    r"(?P<dtype>torch\.\w+), device=(?P<device>[^,]+), requires_grad=(?P<grad>\w+), "
    r"size=\[(?P<size>[^\]]*)\], stride=\[(?P<stride>[^\]]*)\]\)"
)
_EQUAL: Final = re.compile(r"^(?P<source>.+?) (?:==|is) (?P<value>[^=].*)$")
_TYPE: Final = re.compile(
    r"___check_(?:type|obj)_id\((?P<source>.+), \d+\)(?:, type=<class '(?P<type>[^']+)'>)?"
)
_GRAD: Final = re.compile(r'"grad_mode":(true|false)')

_ACCESS: Final = (
    (re.compile(r"\bL\['([^']+)'\]"), r"\1"),
    (re.compile(r"\bG\['([^']+)'\]"), r"\1"),
    (re.compile(r"\bL\[\"([^\"]+)\"\]"), r"\1"),
    (re.compile(r"\._(?:modules|parameters|buffers)\['([^']+)'\]"), r".\1"),
    (re.compile(r"\.__dict__\['([^']+)'\]"), r".\1"),
    (re.compile(r"\.size\(\)\[(\d+)\]"), r".shape[\1]"),
    (re.compile(r"\.__(?:closure__|defaults__|kwdefaults__)"), r""),
)


def readable(source: str) -> str:
    """Write a guard's source as the user would: `L['self'].step` -> `self.step`."""
    for pattern, plain in _ACCESS:
        source = pattern.sub(plain, source)
    return source.strip()


def values(tree: str) -> dict[str, str]:
    """Return source -> the value this compile holds it to; dynamic sizes read `dynamic`."""
    found: dict[str, str] = {}
    for kind, text in _NODE.findall(tree):
        text = _COMMENT.sub("", text)
        if kind == "TENSOR_MATCH":
            _add_tensor(text, found)
        elif kind == "GLOBAL_STATE":
            grad = _GRAD.search(text)
            if grad:
                found["grad mode"] = "on" if grad[1] == "true" else "off"
        elif kind in ("TYPE_MATCH", "ID_MATCH"):
            match = _TYPE.match(text)
            if match and kind == "TYPE_MATCH" and match["type"] != "torch.Tensor":
                found[f"type({readable(match['source'])})"] = str(match["type"])
        elif kind.endswith("_MATCH"):
            match = _EQUAL.match(text)
            if match:
                found[readable(match["source"])] = match["value"].strip()
    return found


def _add_tensor(text: str, found: dict[str, str]) -> None:
    match = _TENSOR.match(text)
    if match is None:
        return
    name = readable(match["source"])
    found[f"{name}.dtype"] = match["dtype"].removeprefix("torch.")
    found[f"{name}.requires_grad"] = match["grad"]
    found[f"{name}.device"] = "cpu" if match["device"] == "None" else f"cuda:{match['device']}"
    sizes = [size.strip() for size in match["size"].split(",") if size.strip()]
    found[f"{name}.ndim"] = str(len(sizes))
    for index, size in enumerate(sizes):
        found[f"{name}.shape[{index}]"] = "dynamic" if size == "None" else size
