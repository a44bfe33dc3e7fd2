"""Errors: which classes they are, and how a graph break shows the calls that led to it."""

from __future__ import annotations

import linecache
import textwrap
import traceback
import warnings

import pytest
import torch

import tc
from tc import trace
from tc.compiler import errors
from tc.compiler.aot import Fallback, inference
from tc.compiler.capture.opcodes import OPCODES
from tc.compiler.errors import StageError, TcError, Unsupported, VerifyError

X = torch.ones(2)


def own_errors():
    return [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, TcError)
    ]


# -- classes ---------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", own_errors(), ids=lambda kind: kind.__name__)
def test_all_errors_are_runtime_errors(kind):
    assert issubclass(kind, RuntimeError)


def test_programs_catch_a_graph_break_as_a_runtime_error():
    with pytest.raises(RuntimeError, match="TC104"):
        tc.compile(lambda x: (x + 1, print())[0], backend="eager", fullgraph=True)(X)


@pytest.mark.parametrize("error", [VerifyError("broken"), Unsupported("no"), Fallback("why")])
def test_handlers_of_torchs_errors_let_those_of_tc_through(monkeypatch, error):
    def failing(*args):
        raise error

    monkeypatch.setattr(inference, "run_watched", failing)
    with pytest.raises(type(error)) as raised:
        inference.run_functional(None, failing, [], writes=True)
    assert raised.value is error


# -- chains of calls -------------------------------------------------------------------------
@pytest.fixture
def chain_of(tmp_path):
    """Return what an error says of ``f`` in a file of the given source."""

    def error_of(source, *args, error=Unsupported):
        file = tmp_path / "m.py"
        file.write_text(textwrap.dedent(source).lstrip(), encoding="utf-8")
        found = {"torch": torch, "tc": tc, "__name__": "m"}
        exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), found)
        tc.reset()
        with pytest.raises(error) as raised:
            tc.compile(found["f"], backend="eager", fullgraph=True)(*args or (X,))
        text = str(raised.value).replace(f"{tmp_path}/", "")
        return text.partition("\n")[2].partition("\n  why: ")[0] + "\n"

    return error_of


def test_one_frame_stays_compact(chain_of):
    assert chain_of("""
        def f(x):
            y = x + 1; print("a")
            return y
        """) == (
        "  at m.py:2 in f\n"
        '    y = x + 1; print("a")\n'
        "               ^^^^^^^^^^\n"
    )  # fmt: skip


def test_all_calls_are_reported_outermost_first(chain_of):
    assert chain_of("""
        def deep(x):
            print("a")
            return x
        class Doubled:
            def __init__(self, x):
                self.x = x
            def __add__(self, other):
                return 1 * deep(self.x)
        def f(x):
            return -(Doubled(x) + 1)
        """) == (
        "  at m.py:2 in deep\n"
        "  calls, outermost first:\n"
        '    File "m.py", line 10, in f\n'
        "      return -(Doubled(x) + 1)\n"
        "               ^^^^^^^^^^^^^^\n"
        '    File "m.py", line 8, in __add__\n'
        "      return 1 * deep(self.x)\n"
        "                 ^^^^^^^^^^^^\n"
        '    File "m.py", line 2, in deep\n'
        '      print("a")\n'
    )


def test_wide_characters_tabs_and_calls_of_several_lines(chain_of):
    assert chain_of("""
        def deep(x, *more):
            return (x, print())[0]
        def middle(x):
            größe = "日本語",\tdeep(x)
            return größe[1]
        def f(x):
            y = 1, middle(
                x,
            )
            return y[1]
        """) == (
        "  at m.py:2 in deep\n"
        "  calls, outermost first:\n"
        '    File "m.py", line 7, in f\n'
        "      y = 1, middle(\n"
        "             ^^^^^^^\n"
        '    File "m.py", line 4, in middle\n'
        '      größe = "日本語", deep(x)\n'
        "                        ^^^^^^^\n"
        '    File "m.py", line 2, in deep\n'
        "      return (x, print())[0]\n"
        "                 ^^^^^^^\n"
    )


def test_generators_are_in_the_chain(chain_of):
    text = chain_of("""
        def deep(x):
            print("a")
            return x
        def each(x):
            for _ in range(2):
                yield deep(x)
        def f(x):
            return sum(y for y in each(x))
        """)
    assert [line.split(" in ")[1] for line in text.splitlines() if "File" in line] == [
        "f", "<genexpr>", "each", "deep",
    ]  # fmt: skip


def test_frames_of_libraries_are_in_the_chain_and_the_place_is_the_users(chain_of):
    text = chain_of("""
        class Reported(torch.nn.Module):
            def forward(self, x):
                print("a")
                return x
        model = torch.nn.Sequential(Reported())
        def f(x):
            return model(x) + 1
        """)
    assert text.startswith("  at m.py:3 in forward\n")
    assert "container.py" in text and "input = module(input)" in text


def test_recursion_and_long_chains_are_cut(chain_of):
    text = chain_of("""
        def down(x, n):
            return down(x, n - 1) if n else print()
        def f(x):
            return x + 1, down(x, 30)
        """)
    assert "    ... the frame above 27 more times ...\n" in text
    calls = "".join(f"def g{n}(x):\n    return g{n + 1}(x)\n" for n in range(1, 40))
    text = chain_of(f"{calls}def g40(x):\n    print()\ndef f(x):\n    return x + 1, g1(x)\n")
    assert "    ... 25 frames left out; TC_LOGS=+graph_breaks shows them ...\n" in text
    assert text.count("  File ") == 16 and "in f\n" in text and "in g40\n" in text


def test_what_the_program_raises_is_reported_where_it_does(chain_of):
    source = """
        def check(x):
            if x.shape[0] == 2:
                raise ValueError("bad")
            return x
        def again(x):
            try:
                return check(x)
            except ValueError:
                raise
        def f(x):
            with torch.no_grad():
                return again(x.sin())
        """
    assert chain_of(source) == (
        "  at m.py:3 in check\n"
        "  calls, outermost first:\n"
        '    File "m.py", line 12, in f\n'
        "      return again(x.sin())\n"
        "             ^^^^^^^^^^^^^^\n"
        '    File "m.py", line 7, in again\n'
        "      return check(x)\n"
        "             ^^^^^^^^\n"
        '    File "m.py", line 3, in check\n'
        '      raise ValueError("bad")\n'
    )


def test_an_exception_raised_again_further_in_is_reported_there(chain_of):
    text = chain_of("""
        def first(x):
            raise ValueError("bad")
        def second(error):
            raise error
        def f(x):
            try:
                first(x + 1)
            except ValueError as error:
                kept = error
            second(kept)
        """)
    assert text.startswith("  at m.py:4 in second\n")
    assert [line.split(" in ")[1] for line in text.splitlines() if "File" in line] == [
        "f", "second",
    ]  # fmt: skip


def inner(x):
    return x.sin()


def outer(x):
    return 1 + inner(x)


def test_a_failure_of_the_compiler_reports_the_calls(monkeypatch):
    handler = OPCODES.get("RETURN_VALUE")

    def failing(frame, one):
        if frame.code is outer.__code__:
            return handler(frame, one)
        raise ZeroDivisionError("no handler")

    monkeypatch.setitem(OPCODES._rows, "RETURN_VALUE", failing)
    tc.reset()
    with pytest.raises(StageError) as raised:
        tc.compile(outer, backend="eager")(X)
    lines = str(raised.value).splitlines()
    assert lines[2] == "  calls, outermost first:"
    assert lines[4:6] == ["      return 1 + inner(x)", "                 ^^^^^^^^"]


def test_the_event_of_a_break_carries_the_chain():
    def deep(x):
        print(end="")
        return x

    def f(x):
        return 1 + deep(x)

    tc.reset()
    with trace.capture_events() as events:
        tc.compile(f, backend="eager")(X)
    (event,) = events.of(trace.GraphBreak)
    parts = [(one.name, one.loc[one.col : one.end_col]) for one in event.stack]
    assert parts == [("f", "deep(x)"), ("deep", 'print(end="")')]


# -- what of them is shown ---------------------------------------------------------------------
def _with_backend_that_raises():
    def broken(module, inputs):
        raise KeyError("no kernel")

    tc.compile(lambda x: x + 1, backend=broken)(X)


def _over_the_limit():
    with tc.config.patch(error_on_recompile=True):
        compiled = tc.compile(lambda x: x + 1, backend="eager", dynamic=False)
        compiled(X), compiled(torch.ones(3))


MENDED_BY_THE_PROGRAM = {
    "a break": lambda: tc.compile(lambda x: (x + 1, print()), fullgraph=True)(X),
    "a marked size": lambda: tc.compile(lambda x: x + X, fullgraph=True)(_marked()),
    "a backend": _with_backend_that_raises,
    "a recompile": _over_the_limit,
}


def _marked():
    x = torch.ones(2)
    tc.mark_dynamic(x, 0)
    return x


@pytest.mark.parametrize("name", MENDED_BY_THE_PROGRAM)
def test_tracebacks_have_the_program_and_not_the_compiler(name):
    tc.reset()
    with pytest.raises(TcError) as caught:
        MENDED_BY_THE_PROGRAM[name]()
    shown = traceback.extract_tb(caught.value.__traceback__)
    assert shown and not [one.filename for one in shown if errors.is_own(one.filename)]
    cause = caught.value.__cause__
    assert caught.value.__suppress_context__
    assert (type(cause) is KeyError) == (name == "a backend")


def test_what_fails_inside_of_the_compiler_keeps_its_own_traceback(monkeypatch):
    def broken(*args, **kwargs):
        raise VerifyError("broken")

    monkeypatch.setitem(OPCODES._rows, "RETURN_VALUE", broken)
    tc.reset()
    with pytest.raises(VerifyError) as caught:
        tc.compile(lambda x: x + 1)(X)
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert any(one.name == "broken" for one in frames)


CELL = "<ipython-input-3-0a1b2c3d4e5f>"
IN_A_CELL = """
def inner(x):
    if x.sum() > 0:
        return x.sin()
    return x.cos()
def step(x, scale=1.0):
    return inner(x) * scale
def fine(x, n):
    return x * n
def marked(x):
    tc.graph_break()
    return x
"""


def test_every_message_names_the_cell(monkeypatch, caplog):
    """A function of a notebook: logs, warnings and errors say In [3], and no file name."""
    cell = {"tc": tc}
    exec(compile(IN_A_CELL, CELL, "exec"), cell)
    lines = [f"{line}\n" for line in IN_A_CELL.splitlines()]
    monkeypatch.setitem(linecache.cache, CELL, (len(IN_A_CELL), None, lines, CELL))
    tc.reset()
    said = []
    names = ("graph_breaks", "recompiles", "guards", "perf_hints", "dynamic")
    tc.set_logs(**dict.fromkeys(names, True))
    try:
        with caplog.at_level("DEBUG", logger="tc"):
            compiled = tc.compile(cell["step"], backend="eager")
            compiled(X), compiled(torch.ones(3)), compiled(torch.ones(4, 4))
            tc.set_logs()
            with tc.config.patch(recompile_limit=1):
                limited = tc.compile(cell["fine"], backend="eager", dynamic=False)
                with warnings.catch_warnings(record=True) as warned:
                    warnings.simplefilter("always")
                    limited(X, 2), limited(X, 3)
            said += [str(one.message) for one in warned]
    finally:
        tc.set_logs()
    said += [record.getMessage() for record in caplog.records]
    asked = {"a break": {"fullgraph": True}, "a backend": {"backend": lambda gm, inputs: 1}}
    for given in asked.values():
        tc.reset()
        with pytest.raises(TcError) as caught:
            tc.compile(cell["step"], **given)(X)
        said.append(str(caught.value))
    tc.reset()
    compiled = tc.compile(cell["fine"], backend="eager")
    compiled(X, 2)
    with tc.set_stance("fail_on_recompile"), pytest.raises(TcError) as caught:
        compiled(torch.ones(2, 2), 2)
    said.append(str(caught.value))
    text = "\n".join(said)
    assert "ipython-input" not in text
    for place in ("In [3], line 3 in inner", "called from In [3], line 7 in step"):
        assert place in " ".join(text.split()), text
    assert "fine (In [3], line 8) was compiled 1 times" in " ".join(text.split())
    assert "fine (In [3], line 8) would be compiled" in text


def test_code_of_libraries_is_no_place_of_the_users() -> None:
    import statistics

    files = (statistics.__file__, torch.nn.__file__, errors.__file__, "/x/site-packages/a/b.py")
    assert all(map(errors.in_library, files))
    assert not errors.in_library("/home/me/torch/train.py")
