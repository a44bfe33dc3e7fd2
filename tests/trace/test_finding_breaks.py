"""Graph breaks in PyTorch's words, and what there is to do about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch_log import IDS, START, artifact, ids, start, torch_log

from tc.trace.findings.advice import advise


@pytest.mark.parametrize(
    ("lines", "fix"),
    [
        (["Attempted to call function marked as skipped",
          "  Explanation: Dynamo does not know how to trace the builtin `time.perf_counter.`"],
         "call it outside of the compiled function"),
        (["Unsupported method call", "User code traceback:",
          '  File "/x/torch/nn/parallel/distributed.py", line 1711, in forward', "    self.log()"],
         "compile the module inside of it"),
        (["Attempted to call function marked as skipped", "  Explanation: Dynamo developers have "
          "marked that the function `Adam.step` in file `/x/torch/optim/adam.py` be skipped"],
         "call step() outside of the compiled function"),
    ],
)  # fmt: skip
def test_breaks_whose_general_way_out_is_none(tmp_path: Path, lines: list[str], fix: str) -> None:
    text = "\n".join(["Graph break in user code at /home/me/m.py:4", "Reason: x", *lines])
    record = {"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}, **IDS}
    (found,) = [one for one in torch_log(tmp_path, START, (record, text)).findings
                if one.code.startswith("TC1")]  # fmt: skip
    assert len(found.fix) == 1 and found.fix[0].startswith(fix)


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        ("Failed to convert args/kwargs to proxy\n  Developer debug context: call_function args: "
         "LazyVariableTracker(realized: UserDefinedObjectVariable(Generator))",
         "make the random numbers outside of the compiled function, and pass them in"),
        ("Failed to convert args/kwargs to proxy\n  Developer debug context: call_function args: x",
         "move the operation out of the compiled function, and pass in what it gives"),
        ("Data-dependent branching\n  Hint: For the common pattern `if c: x = f(x)` (e.g. clamping "
         "inf/nan values), consider making the code branchless by always applying the transform. "
         "Operations like torch.clamp are no-ops.\n  Hint: Use `torch.cond` to express it.",
         "compute both sides and choose: torch.where(condition, a, b)"),
    ],
)  # fmt: skip
def test_the_first_way_out_is_in_plain_words(tmp_path: Path, words: str, fix: str) -> None:
    text = f"Graph break in user code at /home/me/m.py:4\nReason: {words}\n"
    record = {"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}, **IDS}
    (found,) = [one for one in torch_log(tmp_path, START, (record, text)).findings
                if one.code.startswith("TC1")]  # fmt: skip
    assert found.fix[0] == fix and len(found.fix) == len(set(found.fix))
    assert max(map(len, found.fix)) < 120


def test_a_context_manager_of_a_library_that_breaks_is_to_be_entered_outside(
    tmp_path: Path,
) -> None:
    file = tmp_path / "m.py"
    file.write_text("def f(x):\n    with fork_rng():\n        x = noise(x)\n    return x\n")
    for line, code in ((2, "TC107"), (3, "TC104")):
        text = (
            f"Graph break in user code at /v/torch/random.py:7\nReason: builtin operator `get`\n\n"
            f'User code traceback:\n  File "{file}", line {line}, in f\n    fork_rng()\n'
            '  File "/v/lib/python3.11/site-packages/torch/random.py", line 7, in g\n    get()\n'
        )
        record = {"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}, **IDS}
        folder = tmp_path / str(line)
        folder.mkdir()
        (found,) = [one for one in torch_log(folder, START, (record, text)).findings
                    if one.code.startswith("TC1")]  # fmt: skip
        assert (found.code, found.where.line) == (code, line)
        outside = found.fix[0] == "enter the context outside of the compiled function"
        assert outside is (line == 2)


@pytest.mark.parametrize(
    ("file", "code", "fix"),
    [
        ("/v/lib/python3.11/site-packages/torch/optim/optimizer.py", "TC116", "call step() outs"),
        ("/v/lib/python3.11/site-packages/kit/train.py", "TC105", "move the call out of"),
        ("/home/me/m.py", "TC105", "remove the call of graph_break()"),
    ],
)
def test_a_break_in_a_library_is_not_the_users_to_remove(
    tmp_path: Path, file: str, code: str, fix: str
) -> None:
    text = (
        f"Graph break in user code at {file}:7\nReason: Call to `torch._dynamo.graph_break()`\n"
        "  Hint: Remove the `torch._dynamo.graph_break()` call.\n/gb/gb0025.html\n\n"
        'User code traceback:\n  File "/home/me/m.py", line 4, in f\n    step()\n'
        f'  File "{file}", line 7, in g\n    torch._dynamo.graph_break()\n'
    )
    record = {"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}, **IDS}
    (found,) = [one for one in torch_log(tmp_path, START, (record, text)).findings
                if one.code.startswith("TC1")]  # fmt: skip
    assert found.code == code and found.fix[0].startswith(fix)
    assert found.where.short.startswith("m.py:")


REFUSED = (
    "Backend compiler exception\n  Explanation: Backend compiler `aot_eager` failed with "
    "aten._local_scalar_dense.default\n\n    While executing %getitem : [num_users=1] = "
    "call_function[target=operator.getitem](args = (%table, %t), kwargs = {{}})\n"
    '    Original traceback:\n      File "/home/me/m.py", line {line}, in {name}\n'
    "        y = x * table[t]\n                ^^^^^^^^\n\n    Use tlparse.\n\n"
    " see /gb/gb0219.html\n"
)


def test_a_graph_that_a_backend_refused_is_placed_at_its_operation(tmp_path: Path) -> None:
    """PyTorch reports it twice, and again where capture starts over: that is one break.

    Two functions are two causes, though one line of the program calls both.
    """
    rows: list[tuple[dict[str, Any], str | None]] = []
    for number, name in enumerate("fg"):
        line = 5 + number
        words = REFUSED.format(line=line, name=name)
        text = f"Graph Break Reason: {words}\nUser code traceback:\n" + (
            '  File "/home/me/m.py", line 25, in <module>\n    try: print(fn(*a))\n'
        )
        error = f"WON'T CONVERT {name} /home/me/m.py line 3\naten._local_scalar_dense.default\n"
        given_up = "torch.compile is skipping the frame and falling back to eager"
        metrics = {"co_name": name, "co_filename": "/home/me/m.py", "co_firstlineno": 3,
                   "fail_type": "Unsupported", "fail_reason": f"{words}\n{given_up}"}  # fmt: skip
        rows.append(start(number, name=name))
        rows += [artifact(number, "dynamo_graph_break_reason", one) for one in (error, text) * 2]
        rows.append(({"compilation_metrics": metrics, **ids(number)}, None))
    found = torch_log(tmp_path, *rows)
    assert len(found.breaks) == 2
    assert sorted(one.where.short for one in found.findings) == ["m.py:5 in f", "m.py:6 in g"]
    for one in found.findings:
        assert one.title.endswith("runs in Python: the backend needs a number that depends on data")
        assert one.fix[0].startswith("torch.index_select(x, 0, i) in place of x[i]")
        assert "block" not in one.why


@pytest.mark.parametrize(("line", "in_block"), [(3, True), (4, False)])
def test_a_block_is_named_only_where_there_is_one(
    tmp_path: Path, line: int, in_block: bool
) -> None:
    file = tmp_path / "m.py"
    file.write_text("def f(x):\n    with a():\n        x = b(x)\n    return b(x)\n")
    metrics = {"co_name": "f", "co_filename": str(file), "co_firstlineno": 1,
               "fail_type": "Unsupported", "fail_user_frame_filename": str(file),
               "fail_user_frame_lineno": line, "fail_reason": "Read uninitialized cell\n"
               "torch.compile is skipping the frame and falling back to eager"}  # fmt: skip
    (found,) = torch_log(tmp_path, START, ({"compilation_metrics": metrics, **IDS}, None)).findings
    assert (found.code, found.where.line) == ("TC109", line)
    assert ("block" in found.why) is in_block
    assert ("move what breaks out of the block" in found.fix) is in_block


def test_a_frame_that_only_leads_to_a_break_is_not_at_fault(tmp_path: Path) -> None:
    """A module that is compiled inside of DistributedDataParallel breaks by itself."""
    text = (
        "Graph break in user code at /home/me/m.py:4\nReason: Attempted to call function marked as "
        'skipped\nUser code traceback:\n  File "/x/torch/nn/parallel/distributed.py", line 1711, '
        'in forward\n    self.module(x)\n  File "/home/me/m.py", line 4, in forward\n    print(x)\n'
    )
    record = artifact(0, "dynamo_graph_break_reason", text)
    (found,) = [one for one in torch_log(tmp_path, START, record).findings
                if one.code.startswith("TC1")]  # fmt: skip
    assert not any("compile the module inside" in fix for fix in found.fix)


@pytest.mark.parametrize(
    ("number", "text", "title"),
    [
        (98, "Skip calling `torch.compiler.disable()`d function\n  Explanation: Skip calling "
         "function `<function slow at 0x7ff3>` since it was wrapped",
         "call of slow that is marked torch.compiler.disable"),
        (99, "Skip inlining `torch.compiler.disable()`d function\n  Explanation: Skip inlining "
         "function <function Layer.helper at 0x7ff3> since it was wrapped",
         "call of Layer.helper that is marked torch.compiler.disable"),
        (98, "Skip calling `torch.compiler.disable()`d function",
         "call of a function that is marked torch.compiler.disable"),
        (7, "Explanation: Dynamo developers have intentionally marked that the function "
         "`get_rng_state` in file `/x/site-packages/torch/random.py` should not be traced.",
         "call of get_rng_state that the tracer cannot look into"),
        (7, "Explanation: Dynamo does not know how to trace the Python builtin `_warnings.warn`.",
         "call of warnings.warn that the tracer cannot look into"),
        (7, "Dynamo does not know how to trace the builtin `<unknown module>.Random.random.`",
         "call of Random.random that the tracer cannot look into"),
    ],
)  # fmt: skip
def test_a_break_names_the_function_that_it_is_about(number: int, text: str, title: str) -> None:
    assert advise(number, text)[1] == title
