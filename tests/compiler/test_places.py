"""Places in messages are the user's; functions have the names under which programs call them."""

from __future__ import annotations

import builtins
import itertools
import math
import random
import time

import numpy as np
import pytest
import torch
from torch._higher_order_ops import foreach_map
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint

import tc
from tc import trace
from tc.compiler import errors
from tc.compiler.capture import traceable

X = torch.ones(4)


def opens(x, *rest):
    open("/dev/null").close()
    return x


class Opens(torch.nn.Module):
    def forward(self, x):
        return opens(x)


opens_arrays = tc.wrap_numpy(opens)
opens_torchs_arrays = torch.compiler.wrap_numpy(opens)
compiled_module = tc.compile(Opens())
attend = torch.ones(1, 1, 4, 4)

#: a break with functions of tc between the user's, or above or below them -> (function, arguments)
PROGRAMS = {
    "a function in C": (print, (X,)),
    "another one": (builtins.open, (X,)),
    "numbers": (math.sin, (X,)),
    "wrap_numpy": (tc.wrap_numpy(opens), (X,)),
    "wrap_numpy inside": (lambda x: opens_arrays(x), (X,)),
    "torch's wrap_numpy": (lambda x: opens_torchs_arrays(x), (X,)),
    "error_on_graph_break": (tc.error_on_graph_break(True)(opens), (X,)),
    "checkpoint": (lambda x: checkpoint(opens, x, use_reentrant=False), (X,)),
    "checkpoint itself": (checkpoint, (opens, X, 1)),
    "a compiled module": (lambda x: compiled_module(x), (X,)),
    "groupby": (lambda x: [opens(k) for k, _ in itertools.groupby([1, 1, 2], opens)], (X,)),
    "foreach_map": (lambda x: foreach_map(opens, [x]), (X,)),
    "flex_attention": (lambda q: flex_attention(q, q, q, score_mod=opens), (attend,)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_place_is_in_tc(name):
    tc.reset()
    function, args = PROGRAMS[name]
    with trace.capture_events() as events, pytest.raises(tc.exc.Unsupported) as raised:
        tc.compile(function, fullgraph=True)(*args)
    assert traceable.__file__ not in str(raised.value)
    assert "/tc/compiler/" not in str(raised.value)
    (found,) = events.of(trace.GraphBreak)
    assert found.stack and not any("/tc/compiler/" in place.file for place in found.stack)
    if len(found.stack) > 1:
        assert not any(errors.is_own(place.file) for place in found.stack)
    if name in ("wrap_numpy", "error_on_graph_break", "foreach_map"):
        assert (found.function, found.source_line.strip()) == (
            "opens", 'open("/dev/null").close()'
        )  # fmt: skip


def test_columns_are_those_of_the_users_line():
    def f(x):
        return 1 + len([k for k, _ in itertools.groupby([x, x])])

    with trace.capture_events() as events:
        tc.compile(f)(X[0])
    for found in events.of(trace.GraphBreak):
        assert found.col is None or found.col < len(found.source_line)


@pytest.mark.parametrize("recursive", [True, False])
def test_a_disabled_function_runs_as_it_is(recursive):
    graphs = []
    stop = tc.on_graph(graphs.append)
    disabled = torch.compiler.disable(lambda x: x.sin(), recursive=recursive)
    torch.testing.assert_close(tc.compile(disabled, fullgraph=True)(X), X.sin())
    assert torch.equal(tc.compile(tc.disable(torch.sin), fullgraph=True)(X), X.sin())
    stop()
    assert not graphs or not recursive


# -- names -----------------------------------------------------------------------------------------
@tc.allow_in_graph
def asks(x):
    return x + 1 if x.sum() > 0 else x - 1


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: asks(x), "asks()"),
        (lambda x: x.item(), "Tensor.item()"),
        (lambda x: x + 1 if x.equal(x + 1) else x, "Tensor.equal()"),
        (lambda x: x + 1 if torch.equal(x, x + 1) else x, "torch.equal()"),
        (lambda x: torch.ops.aten._local_scalar_dense(x), "torch.ops.aten._local_scalar_dense()"),
        (lambda x: f"{x.sum():.2f}", "format() of a tensor"),
        (lambda x: x * int(x), "int() of a tensor"),
        (lambda x: x * float(x.sum()), "float() of a tensor"),
        (lambda x: [x, x + 1][x.int()], "index() of a tensor"),
        (lambda x: str(x), "str() of a tensor"),
        (lambda x: math.sin(x), "float() of a tensor"),
        (lambda x: x.tolist(), "Tensor.tolist()"),
    ],
)
def test_what_needs_a_python_value_has_its_name(function, name):
    tc.reset()
    with trace.capture_events() as events:
        tc.compile(function)(torch.ones(1))
    titles = [found.title for found in events.of(trace.GraphBreak)]
    assert f"{name} needs a Python value" in titles


@pytest.mark.parametrize(
    ("function", "called", "fix"),
    [
        (lambda x: x * np.random.rand(), "numpy.random.rand()", "call it outside"),
        (lambda x: x * random.choice([1.0, 2.0]), "Random.choice()", "call it outside"),
        (lambda x: x if random.random() < 2 else -x, "Random.random()", "call it outside"),
        (lambda x: x.repeat(4).unfold(0, random.randint(1, 2), 1), "Random.randint()",
         "call it outside"),
        (lambda x: x * time.time(), "time.time()", "call it outside"),
        # bound by pybind11 to a record of its own, whose type is no part of the name
        (lambda x: x if torch._C._accelerator_getAccelerator() else x + 1,
         "torch._C._accelerator_getAccelerator()", "move the call out"),
    ],
)  # fmt: skip
def test_what_a_call_returns_from_outside_is_passed_in(function, called, fix):
    tc.reset()
    with trace.capture_events() as events:
        tc.compile(function)(torch.ones(2))
    (found,) = [one for one in events.of(trace.GraphBreak) if one.code == "TC104"]
    assert called in found.title and found.fix[0].startswith(fix)
