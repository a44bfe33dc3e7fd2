"""An ATen graph goes in, as tc prints it; where its values become float64 comes out."""

from __future__ import annotations

import re
from typing import Final

Place = tuple[str, int]
_WIDE: Final = "f64"
_NARROW: Final = ("f32", "f16", "bf16")
_INPUT: Final = re.compile(r"^\s+in\[\d+\]\s+(?P<name>\w+): (?P<type>\w+)\[")
_NODE: Final = re.compile(
    r"^\s+(?P<name>\w+): (?P<type>\w+)\[[^\]]*\] = [\w.]+\((?P<rest>.*)\)"
    r"  # (?P<file>.+):(?P<line>\d+)$"
)
_NAME: Final = re.compile(r"\b[A-Za-z_]\w*\b")


def widened(graph: str) -> dict[Place, Place]:
    """Return the lines that make float64 out of it -> the line where narrower values became that.

    A line whose float64 was float64 in the inputs of the graph already is not in it.
    """
    types: dict[str, str] = {}
    since: dict[str, Place] = {}
    found: dict[Place, Place] = {}
    for row in graph.splitlines():
        if given := _INPUT.match(row):
            types[given["name"]] = given["type"]
        elif node := _NODE.match(row):
            place = node.group("file"), int(node.group("line"))
            used = [name for name in _NAME.findall(node["rest"]) if name in types]
            types[node["name"]] = node["type"]
            if node["type"] != _WIDE:
                continue
            began = next((since[name] for name in used if name in since), None)
            if began is None and any(types[name] in _NARROW for name in used):
                began = place
            if began is not None:
                since[node["name"]] = found[place] = began
    return found
