"""Findings about compiles that failed, or that have no end."""

from __future__ import annotations

from pathlib import Path

import pytest
from tc_log import Compiler
from torch_log import IDS, START, artifact, torch_log

from tc.trace import events as ev


def test_a_compile_that_a_dead_program_left_is_a_finding(tmp_path: Path) -> None:
    """A compile that hung and was killed has no end, and no failure either."""
    compiler = Compiler(tmp_path).start()
    for at, step in enumerate(("entire_frame_compile", "loops.lower")):
        compiler.say(ev.Span(step, "B", 1e6 + at, 7, 7, {"compile_id": "0/0"}))
    (found,) = compiler.end().findings
    assert (found.code, found.title) == ("TC909", "f was never compiled to the end")
    assert "loops.lower" in found.why and found.where.line == 3


MARKED = "Constraints violated (L['x'].size()[0])! For more information, run with TORCH_LOGS.\n  - "


@pytest.mark.parametrize(
    "words",
    [
        "You marked L['x'].size()[0] as dynamic but your code specialized it to be a constant (4).",
        "Not all values of L['x'].size()[0] = L['x'].size()[0] in the specified range L['x'].size()"
        "[0] <= 8 satisfy the generated guard (L['x'].size()[0] % 2) == 0.",
    ],
)
def test_a_mark_that_the_code_does_not_allow(tmp_path: Path, words: str) -> None:
    metrics = {
        "co_name": "f",
        "fail_type": "ConstraintViolationError",
        "fail_reason": MARKED + words,
    }
    (found,) = torch_log(tmp_path, START, ({"compilation_metrics": metrics, **IDS}, None)).findings
    assert found.why == words
    assert found.fix[0].startswith("torch._dynamo.maybe_mark_dynamic(x, 0) in place of ")


def test_the_line_that_fullgraph_refuses_names_its_function(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text("def whole(x):\n    print(x)\n")
    metrics = {"co_name": "whole", "fail_type": "Unsupported", "fail_reason": "Failed to trace",
               "fail_user_frame_filename": str(file), "fail_user_frame_lineno": 2}  # fmt: skip
    (found,) = torch_log(tmp_path, START, ({"compilation_metrics": metrics, **IDS}, None)).findings
    assert found.where.short == "m.py:2 in whole"


@pytest.mark.parametrize(
    ("target", "first"),
    [("operator.getitem", "torch.index_select(x, 0, i)"), ("operator.mul", "read the number")],
)
def test_a_number_that_a_backend_asks_for_is_no_fault_of_it(
    tmp_path: Path, target: str, first: str
) -> None:
    reason = (
        "backend='aot_eager' raised:\nGuardOnDataDependentSymNode: Could not extract u0\n\n"
        f"While executing %a : [num_users=1] = call_function[target={target}](args = ())"
    )
    metrics = {"fail_type": "BackendCompilerFailed", "fail_reason": reason}
    (found,) = torch_log(tmp_path, START, ({"compilation_metrics": metrics, **IDS}, None)).findings
    assert found.fix[0].startswith(first) and not any("at fault" in way for way in found.fix)


@pytest.mark.parametrize(
    ("kind", "reason", "fix"),
    [
        ("AsPythonConstantNotImplementedError", "SymNodeVariable() is not a constant",
         "compute it before the call"),
        ("Unsupported", "Unsupported functorch tracing attempt\n  Explanation: x",
         "fix the graph break in the function that calls torch.func.vmap"),
    ],
)  # fmt: skip
def test_failures_that_another_place_causes(
    tmp_path: Path, kind: str, reason: str, fix: str
) -> None:
    metrics = {"fail_type": kind, "fail_reason": reason}
    error = 'from user code:\n  File "/home/me/m.py", line 4, in f\n    with autocast(enabled=n):\n'
    (found,) = torch_log(tmp_path, START, artifact(0, "dynamo_error", error),
                         ({"compilation_metrics": metrics, **IDS}, None)).findings  # fmt: skip
    assert found.fix[0].startswith(fix) and not any("fullgraph" in way for way in found.fix)
    assert (found.where.line, found.where.source) == (4, "with autocast(enabled=n):")


@pytest.mark.parametrize(
    ("text", "fixes"),
    [
        (
            "Failed to trace builtin operator\n  Explanation: Dynamo does not know how to trace "
            "builtin operator `open` with argument types ['str']\n  Hint: If you are attempting to "
            "call a logging function (e.g. `print`), you can try adding it to "
            "`torch._dynamo.config.reorderable_logging_functions`.\n gb0059",
            ("move the call out of the compiled function",),
        ),
        (
            "Unsupported method call\n  Explanation: Dynamo does not know how to trace method "
            "`__new__` of class `type`\n gb0156",
            ("replace the method by torch operations or plain Python",
             "move the call out of the compiled function"),
        ),
    ],
)  # fmt: skip
def test_what_fullgraph_refuses_has_the_ways_out_of_the_break(
    tmp_path: Path, text: str, fixes: tuple[str, ...]
) -> None:
    file = tmp_path / "m.py"
    file.write_text("def f(x):\n    with open(x) as g:\n        return g.read()\n")
    metrics = {
        "fail_type": "<class 'torch._dynamo.exc.Unsupported'>",
        "fail_reason": text,
        "fail_user_frame_filename": str(file),
        "fail_user_frame_lineno": 2,
    }
    log = START, ({"compilation_metrics": metrics, **IDS}, None)
    (tmp_path / "log").mkdir()
    (found,) = torch_log(tmp_path / "log", *log).findings
    assert found.fix[:-1] == fixes and found.fix[-1].startswith("fullgraph=True")


def test_a_coroutine_cannot_be_left_and_entered_again(tmp_path: Path) -> None:
    metrics = {"fail_type": "<class 'AssertionError'>",
               "fail_reason": "Cannot generate resume function for generator, coroutine, or async "
               "generator"}  # fmt: skip
    broke = "Graph break in user code at /home/me/m.py:4\nMissing bytecode handler gb0082"
    (found,) = torch_log(
        tmp_path,
        START,
        artifact(0, "dynamo_graph_break_reason", broke),
        ({"compilation_metrics": metrics, **IDS}, None),
    ).findings
    assert found.code == "TC900" and found.where.line == 4
    assert found.fix == (
        "compile the functions that it calls, which run without `await` and `yield`",
    )
