"""A recompile that only follows from a graph break stands behind the break, and names it."""

from __future__ import annotations

from pathlib import Path

from torch_log import artifact, ids, torch_log

FILE = "/home/me/model.py"
BREAK = f"""Graph break in user code at {FILE}:7
Graph Break Reason: Unsupported Tensor.item() call
  Explanation: Dynamo does not support tracing `Tensor.item()`

  Developer debug context: call_method TensorVariable() item () {{}}

 For more details: https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0124.html

User code traceback:
  File "{FILE}", line 7, in f
    n = x.sum().item()
"""


def _resumed(number: int) -> tuple[dict[str, object], None]:
    name = "torch_dynamo_resume_in_f_at_7"
    frame = {"line": 3, "name": name, "filename": FILE}
    return {"dynamo_start": {"stack": [frame]}, **ids(1, number)}, None


def test_the_break_comes_first_and_is_named(tmp_path: Path) -> None:
    first = {"line": 3, "name": "f", "filename": FILE}
    reason = "1/0: ___stack0 == 2  # return x * n  # model.py:8 in f"
    found = torch_log(
        tmp_path,
        ({"dynamo_start": {"stack": [first]}, **ids(0)}, None),
        artifact(0, "dynamo_graph_break_reason", BREAK),
        _resumed(0),
        _resumed(1),
        artifact(1, "recompile_reasons", reason, 1),
    ).findings
    assert [one.code for one in found] == ["TC101", "TC201"]
    broke, again = found
    assert again.fix == (
        f"fix the graph break before it, {broke.id}: then no value is passed across it",
    )


def test_a_break_of_another_function_is_not_named(tmp_path: Path) -> None:
    other = {"line": 3, "name": "g", "filename": FILE}
    found = torch_log(
        tmp_path,
        ({"dynamo_start": {"stack": [other]}, **ids(0)}, None),
        artifact(0, "dynamo_graph_break_reason", BREAK.replace("in f", "in g")),
        _resumed(0),
        _resumed(1),
        artifact(1, "recompile_reasons", "1/0: ___stack0 == 2", 1),
    ).findings
    (again,) = (one for one in found if one.code == "TC201")
    assert again.fix == ("fix the graph break before it: then no value is passed across it",)


def test_a_break_in_a_callee_is_named_where_the_callee_goes_on(tmp_path: Path) -> None:
    """What is compiled behind it is the rest of the callee, by itself."""
    outer = {"line": 12, "name": "outer", "filename": FILE}
    head = "User code traceback:\n"
    text = BREAK.replace(head, f'{head}  File "{FILE}", line 13, in outer\n    f(x)\n')
    found = torch_log(
        tmp_path,
        ({"dynamo_start": {"stack": [outer]}, **ids(0)}, None),
        artifact(0, "dynamo_graph_break_reason", text),
        _resumed(0),
        _resumed(1),
        artifact(1, "recompile_reasons", "1/0: ___stack0 == 2", 1),
    ).findings
    broke = next(one for one in found if one.code == "TC101")
    (again,) = (one for one in found if one.code == "TC201")
    assert f"before it, {broke.id}:" in again.fix[0]


def test_a_method_that_a_break_passed_on_follows_from_it(tmp_path: Path) -> None:
    """`total.add_(bincount(x))`: the break is at `bincount`, and `add_` is called after it."""
    first = {"line": 3, "name": "f", "filename": FILE}
    method = BREAK.replace("Unsupported Tensor.item() call", "Attempted to call function marked as "
                           "skipped").replace("Tensor.item()`", "the builtin "
                           "`<unknown module>.Tensor.add_.`").replace("0124", "0007")  # fmt: skip
    found = torch_log(
        tmp_path,
        ({"dynamo_start": {"stack": [first]}, **ids(0)}, None),
        artifact(0, "dynamo_graph_break_reason", BREAK),
        _resumed(0),
        artifact(1, "dynamo_graph_break_reason", method),
    ).findings
    broke, follows = found
    assert (broke.code, follows.code) == ("TC101", "TC120")
    assert follows.fix == (
        f"fix the graph break before it, {broke.id}: then no value is passed across it",
    )


def test_all_breaks_of_a_callee_are_named(tmp_path: Path) -> None:
    """A function continues behind its call of one that breaks at two lines."""
    outer = {"line": 12, "name": "outer", "filename": FILE}
    inner = {"line": 3, "name": "f", "filename": FILE}
    head = "User code traceback:\n"
    text = BREAK.replace(head, f'{head}  File "{FILE}", line 13, in outer\n    f(x)\n')
    second = (
        text.replace("line 7", "line 8").replace(":7", ":8").replace("n = x.sum()", "m = x.max()")
    )
    name = {"line": 12, "name": "torch_dynamo_resume_in_outer_at_13", "filename": FILE}
    rows = [({"dynamo_start": {"stack": [name]}, **ids(3, n)}, None) for n in range(2)]
    found = torch_log(
        tmp_path,
        ({"dynamo_start": {"stack": [outer]}, **ids(0)}, None),
        artifact(0, "dynamo_graph_break_reason", text),
        ({"dynamo_start": {"stack": [outer, inner]}, **ids(1)}, None),
        artifact(1, "dynamo_graph_break_reason", second),
        *rows,
        artifact(3, "recompile_reasons", "3/0: ___stack0 == 2", 1),
    ).findings
    first, other = (one.id for one in found if one.code == "TC101")
    (again,) = (one for one in found if one.code == "TC201")
    assert again.fix == (
        f"fix the graph break before it, {first} and {other}: then no value is passed across it",
    )


def test_a_variable_passes_all_breaks_since_it_was_set(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(
        "import torch\ndef f(x):\n    a = x.sum().item()\n    n = x.shape[0]\n"
        "    b = x.max().item()\n    c = x.min().item()\n    return x * n * a * b * c\n"
    )
    frame = {"line": 2, "name": "f", "filename": str(file)}
    rows = []
    for number, line in enumerate((3, 5, 6)):
        name = f"torch_dynamo_resume_in_f_at_{line}"
        text = BREAK.replace(FILE, str(file)).replace(":7", f":{line}")
        text = text.replace("line 7", f"line {line}").replace("x.sum()", f"x.{line}()")
        rows += [({"dynamo_start": {"stack": [frame]}, **ids(number)}, None),
                 artifact(number, "dynamo_graph_break_reason", text)]  # fmt: skip
        frame = {"line": 2, "name": name, "filename": str(file)}
    rows += [({"dynamo_start": {"stack": [frame]}, **ids(9, n)}, None) for n in range(2)]
    logs = tmp_path / "logs"
    logs.mkdir()
    reason = "9/0: n == 2  # return x  # model.py:7 in f"
    found = torch_log(logs, *rows, artifact(9, "recompile_reasons", reason, 1)).findings
    breaks = {one.where.line: one.id for one in found if one.code == "TC101"}
    (again,) = (one for one in found if one.code == "TC201")
    assert f"before it, {breaks[6]} and {breaks[5]}:" in again.fix[-1]
