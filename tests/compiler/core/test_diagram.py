"""Pictures of graphs: boxes do not overlap, edges lead down, the text is XML."""

from __future__ import annotations

import random
from xml.etree import ElementTree

import pytest

from tc.compiler.core.diagram import HEIGHT, Box, svg

SVG = "{http://www.w3.org/2000/svg}"


def drawn(boxes, edges):
    root = ElementTree.fromstring(svg(boxes, edges, "a < b"))
    found = {}
    for group in root.iter(f"{SVG}g"):
        (rect,) = group.findall(f"{SVG}rect")
        (text,) = group.findall(f"{SVG}text")
        x, y, width = (float(rect.get(name, "0")) for name in ("x", "y", "width"))
        found[text.text] = (x, y, width)
    return root, found


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs(seed):
    dice = random.Random(seed)
    names = [f"n{number}" + "x" * dice.randrange(30) for number in range(dice.randrange(1, 40))]
    edges = [
        (names[a], names[b])
        for b in range(len(names))
        for a in dice.sample(range(b), min(b, dice.randrange(3)))
    ]
    root, found = drawn([Box(name, name) for name in names], edges)
    assert found.keys() == set(names)
    assert len(root.findall(f"{SVG}path")) == len(set(edges))
    assert all(found[b][1] - found[a][1] >= HEIGHT for a, b in edges)
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    for name, (x, y, wide) in found.items():
        assert x >= 0 and x + wide <= width and y + HEIGHT <= height
        for other, (x2, y2, wide2) in found.items():
            assert other == name or y2 != y or x2 >= x + wide or x >= x2 + wide2


def test_signs_of_xml_are_text_and_long_labels_are_cut():
    _, found = drawn([Box("a", "x < y & z"), Box("b", "w" * 200)], [("a", "b"), ("a", "c")])
    assert "x < y & z" in found and any(name.endswith("…") for name in found)


def test_nothing():
    root, found = drawn([], [])
    assert not found and root.tag == f"{SVG}svg"
