"""What makes long pages readable: ends of names, search in texts, wide tables, kernels."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from report_reader import CHROMIUM, DRIVER, Reader
from torch_log import ids, start, torch_log

from tc.tlparse.report import render

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium and chromedriver"),
]
STATIC = Path(__file__).parents[2] / "tlparse" / "static"
LIBRARY = "/a/site-packages/models/attention.py"
GRAPH = f"""class GraphModule(torch.nn.Module):
    def forward(self, arg0_1):
        # File: {LIBRARY}:7 in attend, code: y = x.sin()
        sin: "f32[8]" = torch.ops.aten.sin.default(arg0_1)
        # File: /home/me/train.py:9 in step, code: return y.cos()
        cos: "f32[8]" = torch.ops.aten.cos.default(sin)
        return (cos,)
"""
CODE = """def call(args):
    # Topologically Sorted Source Nodes: [sin], Original ATen: [aten.sin]
    extern_kernels.sin(arg0_1)
    # Topologically Sorted Source Nodes: [cos], Original ATen: [aten.cos]
    extern_kernels.cos(buf0)
"""


def narrow(reader: Reader, width: int) -> None:
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    reader.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def test_names_keep_their_ends_and_differ(read: Callable[[str], Reader]) -> None:
    reader = read("simple")
    dice = random.Random(3)
    words = ["layers", "self_attn", "q_proj", "weight", "modules", "0", "11", "x"]
    names = ["_".join(dice.choices(words, k=dice.randrange(1, 14))) for _ in range(300)]
    names += [f"l_self_modules_layers_modules_{n}_parameters_weight_" for n in range(12)]
    source = (STATIC / "dom.js").read_text("utf-8")
    made = dict(
        reader.driver.execute_script(f"{source}; return [...endings(arguments[0], 30)];", names)
    )
    assert set(made) == set(names) and len(set(made.values())) == len(made)
    for name, shown in made.items():
        assert name.endswith(shown.removeprefix("…"))
        assert shown == name if len(name) <= 30 else shown.startswith("…") or shown == name


@pytest.mark.slow
def test_the_list_of_nodes_shows_the_ends_of_names(read: Callable[[str], Reader]) -> None:
    reader = read("transformer")
    reader.go("#/c/0/0/graph")
    reader.wait_for(".node b")
    rows = reader.all(".node")
    short = [row for row in rows if row.text.startswith("…")]
    assert short
    full = short[0].get_attribute("title").split()[0]
    assert full.endswith(short[0].text.split()[0].removeprefix("…"))
    reader.all(".nodes input")[0].send_keys(full)
    assert next(one for one in reader.all(".node") if one.is_displayed()) == short[0]


@pytest.mark.slow
def test_texts_are_searched_without_another_key(read: Callable[[str], Reader]) -> None:
    from selenium.webdriver.common.keys import Keys

    reader = read("recompile")
    reader.press("/")
    reader.wait_for("#search[open] input")
    reader.press("fused_sigmoid")
    reader.until(lambda: reader.all("#search .within"), "lines of texts")
    assert reader.texts("#search .within mark")[0].lower() == "fused_sigmoid"
    assert "artifact" in reader.texts("#search .hint")[0]
    reader.press(Keys.CONTROL + "a" + Keys.NULL, "no such thing")
    reader.until(lambda: "No artifact holds" in reader.texts("#search .hint")[0], "nothing")
    assert not reader.all("#search .within")
    reader.press(Keys.CONTROL + "a" + Keys.NULL, "fused_sigmoid")
    reader.until(lambda: reader.all("#search .within"), "lines again")
    reader.press(Keys.ENTER)
    reader.until(lambda: "/a/" in reader.route, "the artifact")


@pytest.mark.slow
def test_a_wide_table_says_what_lies_beyond(read: Callable[[str], Reader]) -> None:
    reader = read("recompile")
    try:
        narrow(reader, 500)
        reader.go("#/fn/f")
        reader.until(lambda: reader.all(".frame.more-right"), "a table that continues")
        box = reader.all(".frame.more-right .scroll")[0]
        beyond = reader.all(".frame.more-right .beyond")[0]
        assert beyond.text.endswith("→") and "column" in beyond.text
        assert box.get_attribute("tabindex") == "0" and box.get_attribute("aria-label")
        reader.driver.execute_script("arguments[0].scrollLeft = 9999", box)
        reader.until(lambda: beyond.text.startswith("←") and "→" not in beyond.text, "its end")
        narrow(reader, 2400)
        reader.until(lambda: not reader.all(".frame.more-right, .frame.more-left"), "space for all")
        assert not beyond.is_displayed() and not box.get_attribute("tabindex")
    finally:
        reader.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.slow
def test_code_begins_with_your_file_and_its_kernels(browser: Any, tmp_path: Path) -> None:
    graph = ({"inductor_post_grad_graph": {}, **ids(0)}, GRAPH)
    code = ({"inductor_output_code": {}, **ids(0)}, CODE)
    page = tmp_path / "report.html"
    page.write_bytes(b"".join(render(torch_log(tmp_path, start(0), graph, code))))
    reader = Reader(browser, page.as_uri())
    reader.go("#/c/0/0/code")
    reader.wait_for("[data-pane=source] .linked")
    assert reader.texts("[data-pane=source] .file") == ["train.py", "library: attention.py"]
    assert reader.texts("[data-pane=source] .line") == ["return y.cos()", "y = x.sin()"]
    assert reader.texts(".kernels tbody tr") == [
        "extern_kernels.sin attention.py:7 sin 2",
        "extern_kernels.cos train.py:9 cos 4",
    ]
    reader.all(".kernel")[1].click()
    assert reader.texts("[data-pane=source] .lit") == ["return y.cos()"]
    assert reader.texts(".status") == ["train.py:9 → cos → extern_kernels.cos"]


def test_a_forecast_is_shown_once_and_with_the_finding_it_is_about(
    read: Callable[[str], Reader],
) -> None:
    reader = read("recompile")
    shown = reader.texts(".savings")[0].removeprefix("Predicted: ").split(" · ")
    assert len(shown) == len(set(shown))
    cards = "return [...document.querySelectorAll('article, .card')].map((one) => one.innerText)"
    reported = [text for text in reader.driver.execute_script(cards) if "predicted: " in text]
    saved = [text.partition("predicted: ")[2].splitlines()[0] for text in reported]
    assert reported and len(set(saved)) > len(set(shown))
