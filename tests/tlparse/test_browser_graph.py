"""The drawing of a graph: the nodes and edges that its text has, for both compilers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from report_reader import CHROMIUM, DRIVER, Reader
from torch_log import artifact, ids, start, torch_log

from tc.tlparse.report import render

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium and chromedriver"),
]
STATIC = Path(__file__).parents[2] / "tlparse" / "static"
TORCH = """class GraphModule(torch.nn.Module):
    def forward(self, s77: "Sym(s77)", L_x_: "f32[s77][1]cpu"):
        l_x_ = L_x_

        # File: /home/user/m.py:8 in f, code: y = x.sin() + x
        sin: "f32[s77][1]cpu" = l_x_.sin()
        y: "f32[s77][1]cpu" = sin + l_x_;  sin = l_x_ = None

        # File: /home/user/m.py:9 in f, code: return torch.mul(y, 2)
        mul: "f32[s77][1]cpu" = torch.mul(y, 2);  y = None
        return (mul,)
"""
OF_TC = """backward graph
  in[0]  mul: f32[8]
  in[1]  tangent0: f32[8]
  mul_1: f32[8] = aten.mul.Tensor(mul, tangent0)  # /home/user/m.py:9 in f
  split: (f32[4], f32[4]) = aten.split.Tensor(mul_1, 4)  # /home/user/m.py:9
  part: f32[4] = getitem(split, 0)  # /home/user/m.py:9
  return [part, None]
"""


def read_graph(reader: Reader, text: str) -> list[list[Any]]:
    """Read a printed graph with the page's own reader: name, operation, uses, place, returned."""
    source = "\n".join((STATIC / name).read_text("utf-8") for name in ("dom.js", "graph.js"))
    rows = "[n.name, n.op, n.uses, n.place, n.returned]"
    script = f"{source}; return readGraph(arguments[0]).map((n) => {rows});"
    return list(reader.driver.execute_script(script, text))


def test_both_forms_of_graphs_are_read(read: Callable[[str], Reader]) -> None:
    reader = read("simple")
    assert read_graph(reader, TORCH) == [
        ["s77", "input", [], "", False],
        ["L_x_", "input", [], "", False],
        ["sin", "sin", ["L_x_"], "m.py:8", False],
        ["y", "+", ["sin", "L_x_"], "m.py:8", False],
        ["mul", "mul", ["y"], "m.py:9", True],
    ]
    assert read_graph(reader, OF_TC) == [
        ["mul", "input", [], "", False],
        ["tangent0", "input", [], "", False],
        ["mul_1", "mul.Tensor", ["mul", "tangent0"], "m.py:9", False],
        ["split", "split.Tensor", ["mul_1"], "m.py:9", False],
        ["part", "getitem", ["split"], "m.py:9", True],
    ]


def test_a_graph_is_drawn_and_walked_by_keyboard(read: Callable[[str], Reader]) -> None:
    from selenium.webdriver.common.keys import Keys

    reader = read("train")
    reader.go("#/c/0/0")
    reader.press("g")
    reader.until(lambda: reader.route == "#/c/0/0/graph", "the graph")
    reader.wait_for(".drawing .box")
    names = reader.texts(".node b")
    drawn = len(reader.all(".drawing .box:not(.input)"))
    assert drawn == sum(" input" not in text for text in reader.texts(".node"))
    assert len(reader.all(".drawing .edge")) >= drawn - 1
    reader.driver.execute_script("document.querySelector('.nodes input').focus()")
    reader.press(*names[-1], Keys.TAB)
    assert names[-1] in reader.texts("#chosen")[0]
    reader.until(lambda: len(reader.all(".drawing .box.lit")) == 1, "it in the drawing")
    reader.driver.execute_script("document.activeElement.blur()")
    reader.press("f")
    reader.until(lambda: reader.route.startswith("#/c/0/0/graph/"), "the next graph")
    reader.wait_for(".drawing .box")
    assert reader.texts(".node b") != names
    reader.press(Keys.ESCAPE)
    reader.until(lambda: reader.route == "#/c/0/0", "the compile")


def test_a_large_graph_is_drawn_around_the_chosen_node(read: Callable[[str], Reader]) -> None:
    reader = read("transformer")
    reader.go("#/c/0/0")
    reader.driver.find_element("link text", "The graph, drawn →").click()
    reader.wait_for(".drawing .box")
    joint = next(one for one in reader.all("a.way") if one.text == "ATen graph: joint")
    joint.click()
    reader.until(lambda: "around the chosen one" in reader.texts("#chosen")[0], "the joint graph")
    nodes = len(reader.all(".node"))
    assert nodes > 400
    for at in (nodes - 1, nodes // 2):
        reader.driver.execute_script("document.querySelectorAll('.node')[arguments[0]].click()", at)
        reader.until(lambda: len(reader.all(".drawing .box.lit")) == 1, "the chosen one")
        assert 10 < len(reader.all(".drawing .box:not(.input)")) <= 80


@pytest.mark.slow
def test_a_large_graph_is_folded_by_line(read: Callable[[str], Reader]) -> None:
    reader = read("simple")
    rows = [f"  n{n}: f32[8] = aten.sin(n{n - 1})  # /m.py:{n // 10}" for n in range(1, 400)]
    text = "\n".join(["forward graph", "  in[0]  n0: f32[8]", *rows, "  return [n399]"])
    source = "\n".join((STATIC / name).read_text("utf-8") for name in ("dom.js", "graph.js"))
    script = (
        f"{source}; return foldByLine(readGraph(arguments[0]), true).map((b) => [b.op, b.uses]);"
    )
    boxes = reader.driver.execute_script(script, text)
    assert boxes[0] == ["input", []]
    assert boxes[2] == ["m.py:1 · 10 nodes", ["n1"]]
    assert len(boxes) == 41


@pytest.mark.slow
def test_no_two_tabs_share_a_name(browser: Any, tmp_path: Path) -> None:
    graph = 'def forward(self, x):\n    sin: "f32[8]" = torch.ops.aten.sin.default(x)\n'
    code = "def call(args):\n    extern_kernels.sin(x)\n"
    records = [
        one
        for _ in range(2)
        for one in (({"aot_forward_graph": {}, **ids(0)}, graph),
                    ({"inductor_output_code": {}, **ids(0)}, code))
    ]  # fmt: skip
    broke = "Graph break in user code at /m/a.py:{0}\nGraph Break Reason: Tensor.item()\n"
    breaks = [artifact(n, "dynamo_graph_break_reason", broke.format(n)) for n in (1, 2)]
    page = tmp_path / "report.html"
    found = torch_log(tmp_path, start(0), *records, start(1), breaks[0], start(2), breaks[1])
    page.write_bytes(b"".join(render(found)))
    reader = Reader(browser, page.as_uri())
    routes = ["#/", "#/findings", "#/c/0/0", "#/c/0/0/a/2", "#/c/1/0"]
    routes += [f"#/f/{one.id}" for one in found.findings]
    routes += [f"#/c/0/0/a/{number}" for number in (1, 3, 4)]
    routes += [f"#/c/0/0/graph/{number}" for number in (1, 3)]
    titles = {}
    for route in routes:
        reader.go(route)
        titles.setdefault(reader.driver.title, []).append(route)
    assert [same for same in titles.values() if len(same) > 1] == []
    ends = f"{tmp_path.name} · {found.session.first_time[:11]} · tc report"
    assert all(title.endswith(ends) for title in titles)
    reader.wait_for("a.way")
    assert reader.texts("a.way") == ["ATen graph: forward 1", "ATen graph: forward 2"]
