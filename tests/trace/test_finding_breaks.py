"""Graph breaks in PyTorch's words, and what there is to do about them."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch_log import IDS, START, torch_log


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
