"""Generated code names the user's files and functions, whatever characters these names have."""

from __future__ import annotations

import pytest
import torch

import tc
from tc.compiler.codegen.stage import _text
from tc.compiler.loops.ir import Origin

NAMES = (
    "<line\nraise X>", "*/ }", "ends in \\", "\r", "\u2028", "tab\t", "{x} %s",
    "/tmp/\udc80.py", "größe",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_one_line_of_a_comment(name: str) -> None:
    text = _text(Origin("mul", "aten.mul", f"{name}:3 in f"))
    assert len(text.splitlines()) == 1
    assert text.encode().decode() == text
    assert ("größe" in text) is ("größe" in name)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", NAMES)
def test_a_program_in_a_file_of_any_name(name: str) -> None:
    space: dict[str, object] = {}
    exec(compile("def f(x):\n    return x.sin() * 2\n", name, "exec"), space)
    x = torch.rand(3)
    torch.testing.assert_close(tc.compile(space["f"])(x), x.sin() * 2)


def test_names_that_utf8_does_not_hold() -> None:
    """A key of a dictionary may be any text; a compile hashes it among the names it watches."""
    key = "\ud800"

    def f(given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name + "\ud800": value * 2 for name, value in given.items() if name == "\ud800"}

    compiled = tc.compile(f, fullgraph=True)
    for size in (3, 4, 5):
        x = torch.rand(size)
        torch.testing.assert_close(compiled({key: x})[key + key], x * 2)
