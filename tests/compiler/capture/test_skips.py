"""Which frames are left to Python: those of installed packages that do not deal with tensors."""

from __future__ import annotations

import glob
import types
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint

import tc
from tc import trace
from tc.compiler.capture.skips import PASSED
from tc.compiler.frames import IDLE_TRIES

PACKAGE = """
import torch
import sys

def parse(text):
    return text.split("_")

def make(text):
    return torch.ones(len(text))

def total(holder):
    return holder.values.sum()

def show(text):
    print(text, end="")
    return len(text)
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "tc_some_package.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(folder)
    import tc_some_package

    yield tc_some_package
    del __import__("sys").modules["tc_some_package"]


OUTER: dict[str, Any] = {}
exec(compile("def outer(function, *args): return function(*args)", "<tc left>", "exec"), OUTER)


def captured(function, *args, calls=1):
    """Return how often a function that code left to Python calls is compiled, and the reports."""
    tc.reset()
    with trace.capture_events() as events:
        compiled = tc.compile(OUTER["outer"], backend="eager")
        for _ in range(calls):
            compiled(function, *args)
    return len(list(events.of(trace.FrameStart))), list(events.of(trace.FrameSkipped))


def test_what_deals_with_tensors_is_captured(package):
    assert captured(package.make, "ab") == (1, [])  # it names torch
    holder = types.SimpleNamespace(values=torch.ones(2))
    assert captured(package.total, holder) == (1, [])


def test_what_has_nothing_to_do_with_tensors_is_captured_when_it_is_called_often(package):
    assert captured(package.parse, "a_b", calls=PASSED) == (0, [])
    assert captured(package.parse, "a_b", calls=PASSED + 1)[0] > 0
    assert captured(lambda: ["a", "b"])[0] == 1  # the user's own, at once


def test_a_break_of_a_package_before_any_tensor_is_nobodys(package):
    with trace.capture_events() as events:
        compiled, reported = captured(package.show, "ab", calls=PASSED + 10)
    assert (compiled, [one.harmless for one in reported]) == (IDLE_TRIES, [True] * IDLE_TRIES)
    assert not list(events.of(trace.GraphBreak)) and not list(events.of(trace.Recompile))
    tc.reset()
    with pytest.raises(tc.exc.Unsupported, match="print"):  # but of who compiles it
        tc.compile(package.show, fullgraph=True)("ab")


def test_a_function_of_a_timed_cell_of_a_notebook_is_captured():
    cell: dict[str, Any] = {}
    exec(compile("def double(x): return x * 2", "<timed exec>", "exec"), cell)
    assert captured(cell["double"], torch.ones(2)) == (1, [])


def test_generators_of_pythons_own_library_are_not_spoken_of():
    assert captured(list, glob.iglob("*"))[1] == []


def test_a_function_of_torch_that_python_calls_is_captured_where_it_was_asked_for_alone():
    of_torch = torch.nn.functional.softmax
    code = of_torch.__code__.replace(co_name="like_softmax")  # which no other test has compiled
    softmax = types.FunctionType(code, of_torch.__globals__, argdefs=of_torch.__defaults__)
    x = torch.randn(3, 4)
    assert captured(softmax, x, -1) == (0, [])
    with trace.capture_events() as events:
        tc.compile(softmax, backend="eager")(x, -1)
    assert len(list(events.of(trace.FrameStart))) == 1


def _queries():
    return [torch.randn(1, 2, 8, 4) for _ in range(3)]


OF_TORCH = {
    "flex_attention": lambda: (flex_attention, *_queries()),
    "checkpoint": lambda: (checkpoint, torch.sin, torch.ones(2)),
    "einsum": lambda: (torch.einsum, "ij,ij->i", torch.ones(2, 2), torch.ones(2, 2)),
    "layer_norm": lambda: (torch.nn.functional.layer_norm, torch.ones(2, 3), (3,)),
    "vmap": lambda: (torch.func.vmap(torch.sin), torch.ones(3)),
    "orthogonal_": lambda: (torch.nn.init.zeros_, torch.ones(3)),
}


@pytest.mark.parametrize("name", OF_TORCH)
def test_a_function_of_torch_is_compiled_where_a_user_compiles_it(name):
    function, *args = OF_TORCH[name]()
    tc.reset()
    graphs = []
    run = tc.compile(function, backend=lambda gm, _: graphs.append(gm) or gm, fullgraph=True)
    torch.testing.assert_close(run(*args), function(*args))
    assert len(graphs) == 1


def test_what_runs_within_an_import_is_left_to_python(tmp_path, monkeypatch):
    (tmp_path / "tc_late.py").write_text("import builtins\nFOUND = builtins.tc_scale(3)\n")
    monkeypatch.syspath_prepend(tmp_path)

    def scale(number):
        return torch.ones(2) * number

    monkeypatch.setattr(__import__("builtins"), "tc_scale", scale, raising=False)
    tc.reset()
    with trace.capture_events() as events:
        run = tc.compile(OUTER["outer"], backend="eager")
        late = run(__import__, "tc_late")
        assert torch.equal(late.FOUND, torch.full((2,), 3.0))
        assert len(list(events.of(trace.FrameStart))) == 0
        run(scale, 3)
    assert len(list(events.of(trace.FrameStart))) == 1


def test_a_call_that_breaks_the_graph_is_not_broken_again_inside():
    def padded(x, amounts):
        return torch.nn.functional.pad(x * 2, amounts) + 1

    tc.reset()
    with trace.capture_events() as events:
        amounts = (torch.tensor(1), torch.tensor(2))
        assert tc.compile(padded, backend="eager")(torch.ones(3, 4), amounts).shape == (3, 7)
    [broken] = events.of(trace.GraphBreak)
    assert broken.file == __file__


@pytest.mark.parametrize(
    "name",
    ["<stdin>", "<console>", "<input>", "<doctest f[0]>", "<lambdifygenerated-1>", "<a template>"],
)
def test_code_without_a_file_is_compiled(name):
    tc.reset()
    names = {"torch": torch, "__name__": "__main__"}
    source = "def f(x):\n    y = x.sin()\n    print('between', end='')\n    return y + inner(x)\n"
    source += "def inner(x):\n    return x.cos()\n"
    exec(compile(source, name, "exec"), names)
    graphs = []
    compiled = tc.compile(
        names["f"], backend=lambda graph, _: graphs.append(graph) or graph.forward
    )
    x = torch.linspace(-1, 1, 5)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), x.sin() + x.cos())
    assert len(graphs) == 2


def names_of(items):
    return [name for name, _ in items]


def in_a_helper(x):
    return x, names_of({"a": 1, "b": 2}.items())


def in_a_comprehension(x):
    values = {"a": 1, "b": 2}
    return x, {value: name for name, value in values.items()}, [name * 2 for name in values]


def by_next(x):
    return x, (lambda iterator: next(iterator))(iter({"a": 1}.items()))


@pytest.mark.parametrize("program", [in_a_helper, in_a_comprehension, by_next])
def test_callees_of_what_does_no_tensor_operation_are_left_to_python_too(program):
    compiled, x = tc.compile(program, backend="eager", fullgraph=True), torch.ones(2)
    with trace.capture_events() as events:
        for _ in range(IDLE_TRIES + 2):
            assert compiled(x)[1:] == program(x)[1:]
    assert not list(events.of(trace.GraphBreak))
    assert len(list(events.of(trace.FrameStart))) == IDLE_TRIES


def test_a_function_that_asks_if_it_is_compiled_is_without_tensor_operations_too():
    seen = []

    def asked(x):
        seen.append(torch.compiler.is_compiling())
        return x

    x = torch.ones(2)
    compiled = tc.compile(asked, fullgraph=True)
    assert compiled(x) is x and compiled(x) is x
    assert seen == [True, True]
    assert asked(x) is x and seen[-1] is False
