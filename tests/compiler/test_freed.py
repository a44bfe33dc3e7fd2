"""What was compiled for a function ends with the function: programs may make them all the time."""

from __future__ import annotations

import gc
import textwrap
import weakref
from typing import Any

import pytest
import torch

import tc

pytestmark = pytest.mark.usefixtures("only_new_garbage")

PROGRAMS = {
    "graph": "return x + 1",
    "break": """
        y = x + 1
        tc.graph_break()
        return y * 2""",
    "break in a loop": """
        for _ in range(3):
            x = x * 2
            tc.graph_break()
        return x""",
    "break in a block": """
        with torch.no_grad():
            y = x + 1
            tc.graph_break()
        return y""",
    "break in a callee": """
        def inner(x):
            tc.graph_break()
            return x + 1
        return inner(x) * 2""",
    "number": "return x * x[0].item()",
    "no graph": "return 3",
    "closure": """
        def inner():
            return x + 1
        return inner()""",
    "generator": "return sum(x * k for k in range(3))",
    "error": """
        try:
            return x.view(7)
        except RuntimeError:
            return x * 2""",
    "global": "return x * held",
    "gradient": "return (x * held).sum()",
    "module": "return layer(x)",
    "backward": "(x * held).sum().backward()",
}


def code_of_a_call(body: str, **options: Any) -> weakref.ref[Any]:
    """Compile a new function, call it with two sizes, and drop it; return its code, weakly."""
    space: dict[str, Any] = {
        "torch": torch, "tc": tc, "held": torch.ones(1, requires_grad=True),
        "layer": torch.nn.BatchNorm1d(1),
    }  # fmt: skip
    exec("def f(x):\n" + textwrap.indent(textwrap.dedent(body).strip(), "    "), space)
    compiled = tc.compile(space["f"], **options)
    for size in (3, 4, 5):
        compiled(torch.ones(size, 1))
    code = weakref.ref(space["f"].__code__)
    space.clear()
    return code


@pytest.mark.sample(5)
@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_code_dies_with_its_function(name: str, backend: str) -> None:
    code = code_of_a_call(PROGRAMS[name], backend=backend)
    gc.collect()
    assert code() is None


def test_what_a_graph_holds_dies_with_the_function() -> None:
    space: dict[str, Any] = {"held": torch.ones(3)}
    exec("def f(x): return x * held", space)
    tc.compile(space["f"])(torch.ones(3))
    held = weakref.ref(space["held"])
    space.clear()
    gc.collect()
    assert held() is None


def test_reset_lets_functions_end_that_their_namespace_holds() -> None:
    # The guards hold the namespace, which holds the function: a cycle through C's entries.
    space: dict[str, Any] = {"held": torch.ones(3)}
    exec("def f(x): return x * held", space)
    tc.compile(space["f"], backend="eager")(torch.ones(3))
    held = weakref.ref(space["held"])
    del space
    tc.reset()
    gc.collect()  # frees the guards
    gc.collect()  # and what only they held
    assert held() is None
