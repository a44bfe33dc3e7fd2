"""Captured graphs and explanations as notebooks show them."""

from __future__ import annotations

import copy
from typing import Any

import torch
from page_reader import Page

import tc
from tc.compiler.core.graphview import view_of


def double(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2


def broken(x: torch.Tensor) -> torch.Tensor:
    x = x + 1
    print("<b>")
    return x.sin()


def graphs_of(backend: str) -> list[Any]:
    tc.reset()
    graphs: list[Any] = []
    stop = tc.on_graph(graphs.append)
    try:
        tc.compile(double, backend=backend)(torch.ones(3))
    finally:
        stop()
    return graphs


def test_graphs_given_to_listeners_show_themselves() -> None:
    for backend in ("eager", "inductor"):
        (graph,) = graphs_of(backend)
        bundle = graph._repr_mimebundle_()
        page = Page(bundle["text/html"])
        assert not page.faults
        assert "2 operations over 1 input" in page.text
        assert "sin f32[3] l_x_.sin()" in page.text and "return x.sin() * 2" in page.text
        assert "sin = " not in page.text.partition("as Python")[0]
        assert "test_graphview.py:" in bundle["text/plain"]
        assert set(graph._repr_mimebundle_(include=["text/plain"])) == {"text/plain"}


def test_other_graphs_stay_as_they_are() -> None:
    (graph,) = graphs_of("eager")
    plain = torch.fx.symbolic_trace(double)
    assert not hasattr(plain, "_repr_mimebundle_")
    assert "_repr_mimebundle_" not in vars(graph)
    assert copy.deepcopy(graph)(torch.zeros(3))[0].sum() == 0


def test_a_long_graph_is_cut() -> None:
    graph = torch.fx.Graph()
    node = graph.placeholder("x")
    for _ in range(302):
        node = graph.call_function(torch.sin, (node,))
    graph.output(node)
    view = view_of(torch.fx.GraphModule({}, graph))
    assert view.values["left_out"] == 2 and len(view.values["rows"]) == 300


def test_an_explanation_shows_breaks_and_graphs() -> None:
    found = tc.explain(broken)(torch.ones(3))
    page = Page(found._repr_html_())
    assert not page.faults
    assert "graph breaks: 1" in page.text and 'print("<b>")' in page.text
    assert "graph 1: 1 operation over 1 input" in page.text
    assert page.tags("details") and len(page.tags("caption")) == 1
    bundle = found._repr_mimebundle_()
    assert bundle["text/plain"] == str(found)
    assert f"TC104 call of print() while tracing  {__file__}:" in str(found)
