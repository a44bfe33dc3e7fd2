"""Frames that PyTorch gives up because of a graph break: skipped, and no failed compiles."""

from __future__ import annotations

from pathlib import Path

import pytest
from tc_log import Compiler
from torch_log import IDS, START, torch_log

from tc.trace import events as ev
from tc.trace.findings import Order
from tc.trace.ids import CompileId


def test_a_break_in_a_loop_is_no_use_of_fullgraph(tmp_path: Path) -> None:
    reason = (
        "Data-dependent branching\n*** While handling this graph break, another graph break "
        "occurred: ***\ngraph break in loop\n  Explanation: a graph break in a for/while loop. "
        "Skipping the frame and falling back to eager, as graph breaks in loops are not supported."
    )
    metrics = {
        "co_name": "f", "co_filename": "/home/me/m.py", "co_firstlineno": 3,
        "fail_type": "Unsupported", "fail_reason": reason,
        "fail_user_frame_filename": "/home/me/m.py", "fail_user_frame_lineno": 5,
    }  # fmt: skip
    found = torch_log(tmp_path, START, ({"compilation_metrics": metrics, **IDS}, None))
    (finding,) = found.findings
    assert (finding.code, finding.where.line) == ("TC109", 5)
    assert (len(found.failures), len(found.skips)) == (0, 1)
    assert found.status(found.session.compiles[0]) == "skipped"
    assert not any("fullgraph" in fix for fix in finding.fix)


def test_a_break_in_a_loop_names_the_lines_behind_it(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text(
        "def f(x):\n    for k in range(3):\n        a = x.item()\n        x = x + a\n"
        "        print(x)\n    return x\n"
    )
    log = Compiler(tmp_path / "logs").start(name="f")
    broke = ev.GraphBreak("TC101", "item()", "why", str(file), 3, "f", fix=("keep it",),
                          stack=(ev.StackFrame(str(file), 3, "f", ""),))  # fmt: skip
    said = "item(), in a loop; its callees are captured separately"
    log.say(broke).say(ev.FrameSkipped("f", str(file), 1, said))
    (found,) = [one for one in log.end().findings if one.code == "TC190"]
    assert found.why.endswith("line 5 reads a value, or reports something, in the loop as well")


def test_a_break_in_a_block_is_no_use_of_fullgraph(tmp_path: Path) -> None:
    metrics = {
        "co_name": "f", "co_filename": "/home/me/m.py", "co_firstlineno": 3,
        "fail_type": "Unsupported", "fail_reason": "Unsupported Tensor.item() call",
        "fail_user_frame_filename": "/home/me/m.py", "fail_user_frame_lineno": 5,
    }  # fmt: skip
    broke = (
        "Graph break in user code at /home/me/m.py:5\nGraph Break Reason: Failed to handle graph "
        "break gracefully. Skipping the function and falling back to eager. Graph break "
        "encountered:\n\nUnsupported Tensor.item() call\n"
    )
    note = {"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}, **IDS}
    found = torch_log(
        tmp_path, START, (note, broke), ({"compilation_metrics": metrics, **IDS}, None)
    )
    (finding,) = [one for one in found.findings if one.code == "TC109"]
    assert (finding.where.line, len(found.failures), len(found.breaks)) == (5, 0, 1)
    assert finding.title == "f runs in Python: it breaks where it cannot be entered again"
    assert not any("fullgraph" in fix for one in found.findings for fix in one.fix)


def test_what_comes_from_outside_is_called_outside(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text("def f(x):\n    n = random.randint(2, 4)\n    return x * n\n")
    metrics = {
        "co_name": "f", "co_filename": str(file), "co_firstlineno": 1,
        "fail_type": "Unsupported", "fail_reason": "Unsupported python_type() call",
        "fail_user_frame_filename": str(file), "fail_user_frame_lineno": 2,
    }  # fmt: skip
    note = {"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}, **IDS}
    broke = (
        f"Graph break in user code at {file}:2\nGraph Break Reason: Failed to handle graph break "
        "gracefully. Skipping the function and falling back to eager. Graph break encountered:\n\n"
        "Unsupported python_type() call\n"
    )
    logs = tmp_path / "logs"
    logs.mkdir()
    found = torch_log(logs, START, (note, broke), ({"compilation_metrics": metrics, **IDS}, None))
    (finding,) = [one for one in found.findings if one.code == "TC109"]
    assert finding.fix[0].startswith("call it outside of the compiled function")


def test_a_comprehension_is_compiled_by_itself_because_its_function_runs_in_python(
    tmp_path: Path,
) -> None:
    metrics = {
        "co_name": "<listcomp>", "co_filename": "/home/me/m.py", "co_firstlineno": 3,
        "fail_type": "Unsupported", "fail_reason": "Missing tp_iternext\n  Explanation: Dynamo",
        "fail_user_frame_filename": "/home/me/m.py", "fail_user_frame_lineno": 5,
    }  # fmt: skip
    broke = (
        "Graph break in user code at /home/me/m.py:5\nGraph Break Reason: Failed to handle graph "
        "break gracefully. Skipping the function and falling back to eager. Graph break "
        "encountered:\n\nMissing tp_iternext\n"
    )
    note = {"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}, **IDS}
    found = torch_log(
        tmp_path, START, (note, broke), ({"compilation_metrics": metrics, **IDS}, None)
    )
    (finding,) = [one for one in found.findings if one.code == "TC109"]
    assert finding.fix == (
        "fix what makes its caller run in Python (see the findings of the caller): then this is a "
        "part of the caller's graph",
    )


def test_what_gives_a_function_up_is_the_break_inside(tmp_path: Path) -> None:
    reason = (
        "BUILD_STRING type error\n  Explanation: Format string part type is not correct.\n\n"
        " For more details: https://x/gb/gb0021.html\n"
    )
    metrics = {
        "co_name": "f", "co_filename": "/home/me/m.py", "co_firstlineno": 3,
        "fail_type": "Unsupported", "fail_reason": reason,
        "fail_user_frame_filename": "/home/me/m.py", "fail_user_frame_lineno": 5,
    }  # fmt: skip
    for unknown in (False, True):
        inner = reason if not unknown else reason.replace("0021", "7777").replace("BUILD_", "NEW_")
        broke = (
            "Graph break in user code at /home/me/m.py:5\nGraph Break Reason: Failed to handle "
            "graph break gracefully. Skipping the function and falling back to eager. Graph break "
            f"encountered:\n\n{inner}\n"
        )
        note = {"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}, **IDS}
        folder = tmp_path / str(unknown)
        folder.mkdir()
        rows = ({"compilation_metrics": {**metrics, "fail_reason": inner}, **IDS}, None)
        (finding,) = torch_log(folder, START, (note, broke), rows).findings
        assert "gracefully" not in finding.why
        assert ("NEW_STRING" if unknown else "text is made") in finding.why
        assert unknown or finding.fix[0] == "make the text outside of the compiled function"


@pytest.mark.parametrize("noted", [True, False])
def test_a_raised_exception_is_no_block(tmp_path: Path, noted: bool) -> None:
    reason = (
        "Observed exception\n  Explanation: Dynamo found no exception handler.\n\n"
        "  Developer debug context: raised exception RuntimeError('mine')\n\n"
        " For more details: https://x/gb/gb0088.html\n"
    )
    metrics = {
        "co_name": "f", "co_filename": "/home/me/m.py", "co_firstlineno": 3,
        "fail_type": "Unsupported", "fail_reason": reason,
        "fail_user_frame_filename": "/home/me/m.py", "fail_user_frame_lineno": 5,
    }  # fmt: skip
    given_up = "Skipping the function and falling back to eager. Graph break encountered:\n\n"
    if not noted:
        metrics["fail_reason"] = given_up + reason
    broke = (
        "Graph break in user code at /home/me/m.py:5\nGraph Break Reason: Failed to handle graph "
        f"break gracefully. {given_up}{reason}\n"
    )
    note = {"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}, **IDS}
    rows = [(note, broke)] if noted else []
    found = torch_log(tmp_path, START, *rows, ({"compilation_metrics": metrics, **IDS}, None))
    (finding,) = found.findings
    assert (finding.code, finding.where.line) == ("TC131", 5)
    assert "the code raises RuntimeError" in f"{finding.title} {finding.why}"
    assert "f runs in Python" in f"{finding.title} {finding.why}"
    assert not any("block" in text for text in (finding.why, *finding.fix))
    assert (len(found.failures), len(found.skips)) == (0, 1)


def test_failed_compiles_are_those_that_are_shown_as_such(tmp_path: Path) -> None:
    found = (
        Compiler(tmp_path)
        .start()
        .say(ev.CompileError("codegen", "KeyError", "no 'sin'", "/home/me/model.py", 4, ""))
        .end()
    )
    shown = [one for one in found.findings if one.kind.order is Order.FAILURES]
    assert len(found.failures) == sum(one.count for one in shown) == 1


MODEL = "/home/me/model.py"
IN_LOOP = "x[mask] has a shape that depends on tensor data"


def test_a_function_of_tc_that_runs_in_python_asks_for_what_its_break_asks_for(
    tmp_path: Path,
) -> None:
    frame = ev.StackFrame(MODEL, 5, "f", "x = x[m]")
    broke = ev.GraphBreak("TC102", IN_LOOP, "why", MODEL, 5, "f", fix=("use a mask",),
                          stack=(frame,))  # fmt: skip
    skipped = ev.FrameSkipped(
        "f", MODEL, 3, f"{IN_LOOP}, in a loop; its callees are captured separately"
    )
    found = Compiler(tmp_path).start().say(broke).say(skipped).end()
    (finding,) = [one for one in found.findings if one.code in ("TC102", "TC190")]
    assert (finding.code, finding.where.line) == ("TC190", 5)  # one cause, at the line that breaks
    assert finding.fix[:2] == (
        "use a mask",
        "move the body of the loop to a function of its own, so that only it breaks",
    )


@pytest.mark.parametrize(
    ("source", "old", "new", "apart"),
    [
        ("self.mode", "'sum'", "'mean'", True),
        ("mode", "'sum'", "'mean'", False),  # an argument: what the caller passes
        ("self.scale", "2.0", "3.0", False),  # a number may be a tensor
        ("x.dtype", "float32", "int64", True),  # tables of words, and layers: one for each
    ],
)
def test_settings_of_modules_differ_because_their_caller_runs_in_python(
    tmp_path: Path, source: str, old: str, new: str, apart: bool
) -> None:
    log = Compiler(tmp_path).start(name="forward_all")
    log.say(
        ev.FrameSkipped(
            "forward_all", MODEL, 3, "x, in a loop; its callees are captured separately"
        )
    )
    stack = (ev.StackFrame(MODEL, 3, "forward_all", ""), ev.StackFrame(MODEL, 9, "forward", ""))
    log.say(ev.FrameStart(stack), 0, 1)
    kind = "dtype" if source.endswith("dtype") else "a constant in the graph"
    cause = ev.RecompileCause(source, f"{source} == {old}", old, new, kind)
    again = ev.Recompile("forward", MODEL, 9, CompileId(1, 0), (cause,))
    log.say(again, 1, 1).say(ev.FrameStart(stack), 1, 1)
    (finding,) = [one for one in log.end().findings if one.code == "TC201"]
    assert finding.fix[0].startswith("fix what makes its caller run in Python") is apart


@pytest.mark.parametrize(
    ("value", "plain"),
    [("<Act.GELU: 'gelu'>", "Act.GELU"), ("<function f at 0x1>", "<function f at 0x1>"),
     ("torch.float32", "float32")],
)  # fmt: skip
def test_values_read_as_a_program_writes_them(tmp_path: Path, value: str, plain: str) -> None:
    cause = ev.RecompileCause("kind", "kind", "Act.RELU", value, "a constant in the graph")
    log = Compiler(tmp_path).start().say(ev.Recompile("f", MODEL, 3, CompileId(0, 0), (cause,)), 1)
    (finding,) = [one for one in log.start(1).end().findings if one.code == "TC201"]
    assert f"(was Act.RELU, then {plain})" in finding.why


@pytest.mark.parametrize("by_itself", [True, False])
def test_a_step_that_is_compiled_by_itself_needs_no_other_place(
    tmp_path: Path, by_itself: bool
) -> None:
    """A compiled function that calls it could call it outside."""
    stack = (
        ev.StackFrame(MODEL, 3, "train", "def train():"),
        ev.StackFrame("/v/lib/python3.11/site-packages/torch/optim/optimizer.py", 9, "wrapper", ""),
    )
    log = Compiler(tmp_path)
    if not by_itself:
        log.say(ev.FrameStart(stack[:1]))
    broke = ev.GraphBreak("TC116", "step()", "why", MODEL, 3, "train", fix=("call it outside",),
                          stack=stack)  # fmt: skip
    log.say(ev.FrameStart(stack), 0, 1).say(broke, 0, 1)
    (finding,) = [one for one in log.end().findings if one.code == "TC116"]
    assert finding.fix[0].startswith("nothing to do" if by_itself else "call it outside")
