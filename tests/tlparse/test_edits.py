"""A source and a line go in; the edited source, or why there is none, comes out."""

import ast

import pytest

from tc.tlparse import edits
from tc.tlparse.edits import Edit, NoEdit, Place, Source, Splice

HEAD = "import torch\n"


def edited(edit: Edit, text: str, line: int = 2, name: str = "") -> str:
    data = (HEAD + text).encode()
    new = edits.apply(data, edit(Source(data), Place(line, name))).decode()
    ast.parse(new)
    return new.removeprefix(HEAD)


IF_RETURNS = "def f(x):\n    if x.any():\n        return x * 2\n    return x - 1\n"
IF_ELSE = "def f(x):\n    if not x:\n        return 1\n    else:\n        return 2\n"
CALLED = "def g():\n    pass\ng()\n"
INIT = "class M:\n  def __init__(self):\n    self.step = {}\n  def g(self):\n    return self.step\n"


@pytest.mark.parametrize(
    ("edit", "line", "before", "after"),
    [
        (edits.without_call, 3, "def f():\n    tc.graph_break()\n", "def f():\n    pass\n"),
        (edits.guarded, 2, "print(\n    1)\n",
         "if not torch.compiler.is_compiling(): print(\n    1)\n"),
        (edits.without_item, 2, 'print("ü", y.sum().item(), x.item())\n',
         'print("ü", y.sum(), x)\n'),
        (edits.asynchronous, 2, "assert (x > 0).all(), 'no'\n",
         "torch._assert_async((x > 0).all(), 'no')\n"),
        (edits.chosen_by_where, 3, IF_RETURNS,
         "def f(x):\n    return torch.where(x.any(), x * 2, x - 1)\n"),
        (edits.chosen_by_cond, 3, IF_RETURNS,
         "def f(x):\n    return torch.cond(x.any(), lambda: x * 2, lambda: x - 1)\n"),
        (edits.chosen_by_where, 3, IF_ELSE,
         "def f(x):\n    return torch.where(torch.logical_not(x), 1, 2)\n"),
        (edits.chosen_by_where, 2, "if c:\n    y = 1\nelse:\n    y = 2\n",
         "y = torch.where(c, 1, 2)\n"),
        (edits.chosen_by_where, 2, "if c:\n    y = 1\nz\n", "y = torch.where(c, 1, y)\nz\n"),
        (edits.chosen_by_where, 2, "y = f(1 if c else 2)\n", "y = f(torch.where(c, 1, 2))\n"),
        (edits.without_mark, 5, f"@tc.disable\n{CALLED}", f"\n{CALLED}"),
        (edits.without_mark, 5, f"@torch.compiler.disable(recursive=False)\n{CALLED}",
         f"\n{CALLED}"),
    ],
)  # fmt: skip
def test_an_edit(edit: Edit, line: int, before: str, after: str) -> None:
    assert edited(edit, before, line) == after


@pytest.mark.parametrize("value", ["0", "-1.5", "True"])
def test_a_number_of_a_module_becomes_a_buffer(value: str) -> None:
    after = edited(edits.as_buffer, INIT.format(value), 6, "step")
    buffer = f'self.register_buffer("step", torch.tensor({value}), persistent=False)'
    assert after == INIT.format("@").replace("self.step = @", buffer)


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (edits.without_call, "y = graph_break()\n"),
        (edits.guarded, "y = print()\n"),
        (edits.without_item, "y = x.tolist()\n"),
        (edits.asynchronous, "if x: pass\n"),
        (edits.chosen_by_where, "while x: pass\n"),
        (edits.chosen_by_where, "if x:\n    y = 1\n    z = 1\n"),
        (edits.chosen_by_where, "if x:\n    y = 1\nelse:\n    z = 1\n"),
        (edits.chosen_by_where, "y = (1, 2) if x else (3, 4)\n"),
        (edits.chosen_by_where, "if x:\n    y[0] = 1\n"),
        (edits.without_mark, "g()\n"),
        (edits.as_buffer, "self.step = 0\n"),
        (edits.as_buffer, INIT.format("len(x)")),
    ],
)
def test_what_a_machine_cannot_write(edit: Edit, text: str) -> None:
    with pytest.raises(NoEdit):
        edited(edit, text, name="step")


def test_the_second_of_several_branches_is_left_alone() -> None:
    with pytest.raises(NoEdit, match="one of several"):
        edited(edits.chosen_by_where, "if a:\n    y = 1\nelif b:\n    y = 2\n", 4)


def test_a_file_that_has_no_torch_or_cannot_be_parsed() -> None:
    for text in ("import torch.nn as nn\nassert x\n", "from torch import cond\nassert x\n"):
        with pytest.raises(NoEdit, match="import torch"):
            edits.asynchronous(Source(text.encode()), Place(2))
    with pytest.raises(NoEdit, match="parsed"):
        Source(b"def (:\n")


def test_edits_that_overlap() -> None:
    a, b, inside = Splice(0, 3, "x"), Splice(3, 5, "y"), Splice(1, 2, "z")
    assert not edits.overlap([b, a])
    assert edits.overlap([a, inside])
    assert edits.apply(b"abcde", [a, b]) == b"xy"
