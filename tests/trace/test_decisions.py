"""What a function decides later by what a line reads leaves some ways out of a graph break."""

from __future__ import annotations

from pathlib import Path

import pytest

from tc.trace.branches import Does, is_tested
from tc.trace.breakfixes import FIXES, GRADIENTS_FIRST, fixes_at
from tc.trace.decisions import (
    acts,
    is_given_to_least,
    is_given_to_math,
    is_plain_class,
    is_read_back,
    other_readings,
)
from tc.trace.findings.advice import advise
from tc.trace.findings.model import Cause
from tc.trace.findings.remedies import remedy
from tc.trace.words import INDEX

KEEP = "keep the value as a 0-d tensor: arithmetic, comparisons and torch.where accept it"
MOVE = "move the conversion out of the compiled function"
SETTING = "torch._dynamo.config.capture_scalar_outputs = True, if the number only feeds tensors"
ROW = (SETTING, KEEP, MOVE)
OUTSIDE = FIXES[Does.COLLECTS][0]
CHOOSE = "keep it as a tensor, and choose with torch.where(condition, a, b)"
SLICE = "a mask in place of the slice: torch.arange(x.shape[0]) < k is as long as x, whatever k is"
LEAST = (
    "keep it as a tensor, with clamp, torch.minimum or torch.maximum in place of min() and max()"
)


def _file(folder: Path, body: str) -> str:
    file = folder / f"model{len(list(folder.iterdir()))}.py"  # each read once
    rows = "".join(f"    {row}\n" for row in body.split("\n"))
    file.write_text(f"def f(self, x):\n{rows}")
    return str(file)


@pytest.mark.parametrize(
    ("body", "ways"),
    [
        ("v = x.sum().item()\nreturn x * v", ROW),
        ("v = x.sum().item()\nif v > 3:\n    raise ValueError\nreturn x", (OUTSIDE, MOVE)),
        ("v = x.sum().item()\nif v > 3:\n    print(v)\n    x = x + 1\nreturn x",
         (OUTSIDE, MOVE)),
        ("v = x.sum().item()\nif v > 3:\n    x = x + 1\nreturn x", (CHOOSE, MOVE)),
        ("v = x.sum().item()\nreturn x * min(1.0, 2 / v)", (LEAST, MOVE)),
        ("v = min(1.0, 2 / x.sum().item())\nreturn x * v", (LEAST, MOVE)),
        ("v = max(0.0, x.sum().item())\nif v < 3:\n    x = x + 1\nreturn x * v", (CHOOSE, MOVE)),
        ("v = x.sum().item()\nreturn x if v is None else x * v", ROW),
        ("v = x.sum().item()\nreturn x * max([1, 2])", ROW),
        ("for k in range(3):\n    v = x.sum().item()\n    if v > 3:\n        break\nreturn x",
         FIXES[Does.LOOPS]),
        ("self.book[x > 0] = x[: int(x.sum())].mean(0)", (SLICE, MOVE)),
    ],
)  # fmt: skip
def test_a_number_that_is_read(tmp_path: Path, body: str, ways: tuple[str, ...]) -> None:
    line = 3 if body.startswith("for") else 2
    assert fixes_at("TC101", _file(tmp_path, body), line, "", ROW) == ways


def test_a_number_that_is_kept_in_a_list_and_compared_there(tmp_path: Path) -> None:
    """Kept as a tensor it breaks the loop at the comparison."""
    body = (
        "seen = []\nfor k in range(4):\n    seen.append(float(x.sum()))\n"
        "    if k and seen[-2] - seen[-1] < 1:\n        break\nreturn x"
    )
    assert fixes_at("TC101", _file(tmp_path, body), 4, "", ROW) == FIXES[Does.LOOPS]
    counted = body.replace("seen[-2] - seen[-1] < 1", "len(seen) > 3")
    assert fixes_at("TC101", _file(tmp_path, counted), 4, "", ROW) != OUTSIDE


@pytest.mark.parametrize(
    ("then", "ways"),
    [
        ("warn('skipped')", (OUTSIDE,)),
        ("x = x + 1", (CHOOSE,)),
    ],
)
def test_a_condition_that_is_tested_below(tmp_path: Path, then: str, ways: tuple[str, ...]) -> None:
    """`found = not torch.isfinite(norm)` breaks at `not`, and is tested in the next line."""
    file = _file(tmp_path, f"bad = not x.sum()\nif bad:\n    {then}\nreturn x")
    row = ("torch._dynamo.config.capture_scalar_outputs = True", "move the operator out")
    title = "an operator needs to look at tensor data"
    assert fixes_at("TC102", file, 2, "", row, title) == ways
    assert fixes_at("TC110", file, 2, "", row) == ways
    alone = _file(tmp_path, "bad = not x.sum()\nreturn x * bad")
    assert fixes_at("TC102", alone, 2, "", row, title) == row


def test_an_item_is_selected_where_its_position_is_a_tensor() -> None:
    row = ("torch._dynamo.config.capture_scalar_outputs = True", "move the operator out")
    title = "an operator needs to look at tensor data"
    for line in ("return found[best]", "x = self.kept[self.steps[n + 1]]"):
        assert fixes_at("TC102", "", 0, line, row, title) == (INDEX, row[1])
    assert fixes_at("TC102", "", 0, "return x[0] * y[1:]", row, title) == row


def test_a_size_that_ends_a_loop(tmp_path: Path) -> None:
    body = "for k in range(3):\n    i = x.nonzero()\n    if i.numel() == 0:\n        break\n"
    found = fixes_at("TC102", _file(tmp_path, body + "return x"), 3, "", ("use a masked form",))
    assert found == (FIXES[Does.LOOPS][-1], "use a masked form")
    kept = _file(tmp_path, body.replace("i.numel() == 0", "k > 1") + "return x")
    assert fixes_at("TC102", kept, 3, "", ("use a masked form",)) == ("use a masked form",)


def test_other_lines_of_a_loop_that_lead_to_a_break(tmp_path: Path) -> None:
    body = (
        "y = x.item()\nfor k in range(3):\n    a = x.sum().item()\n    b = x * a\n"
        "    if k:\n        print(b)\n    c = b.tolist()\nreturn c"
    )
    file = _file(tmp_path, body)
    assert other_readings(file, 4) == [7, 8]
    assert other_readings(file, 2) == other_readings(str(tmp_path / "away.py"), 4) == []


def test_a_branch_that_steps_a_position_is_no_choice(tmp_path: Path) -> None:
    body = "n = 0\nwhile n < 3:\n    if x[n] > 0:\n        n += 2\n    else:\n        n += 1\n"
    file = _file(tmp_path, body + "return x")
    assert fixes_at("TC110", file, 4, "", ("torch.where(condition, a, b)",)) == (OUTSIDE,)
    other = _file(tmp_path, "if x.sum() > 0:\n    x += 2\nreturn x")
    assert fixes_at("TC110", other, 2, "", ("torch.where(condition, a, b)",)) == (
        "torch.where(condition, a, b)",
    )


def test_a_property_that_compares_tests_what_it_reads(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(
        "class Track:\n    @property\n    def stable(self):\n        return self.hits >= 3\n"
        "    def __len__(self):\n        return self.count\n"
        "    @property\n    def rate(self):\n        return self.misses / 2\n"
        "def f(track, x, last):\n    done = x.step + 1 >= last\n"
        "    y = 1 if done else 2\n"
        "    if track.stable and track.rate and len(track) < 8:\n        x = x + track.hits\n"
        "    return x\n"
    )
    names = ("track.hits", "track.misses", "track.count", "x.step", "last", "y")
    assert [one for one in names if is_tested(str(file), 13, one)] == [
        "track.hits", "track.count", "x.step", "last",
    ]  # fmt: skip


def test_a_list_that_is_read_as_well(tmp_path: Path) -> None:
    file = _file(tmp_path, "y = x - sum(self.seen)\nself.seen.append(2)\nreturn y")
    assert is_read_back(file, 2, "self.seen")
    other = tmp_path / "other.py"
    other.write_text("def f(self, x):\n    self.seen.append(2)\n    return x\n")
    assert not is_read_back(str(other), 2, "self.seen")


def test_a_number_that_min_is_given(tmp_path: Path) -> None:
    text = "return x.clamp(0, self.size) * min(self.limit, 2.0) + min(self.rows) + self.gain"
    file = _file(tmp_path, text)
    names = ("limit", "rows", "gain", "size")
    found = [one for one in names if is_given_to_least(file, 2, f"self.{one}")]
    assert found == ["limit", "size"]
    cause = Cause("self.size", "1.0", "2.0", "constant", now_dynamic=True)
    assert "torch.minimum" in remedy(cause, "torch", "__call__", at=(file, 2))[2][-1]


def test_a_number_that_math_is_given(tmp_path: Path) -> None:
    """`math.cos` reads the number out of a tensor."""
    file = _file(tmp_path, "return x * math.cos(self.step / 9) * torch.cos(self.angle)")
    assert is_given_to_math(file, 2, "self.step") and not is_given_to_math(file, 2, "self.angle")
    cause = Cause("self.step", "2", "3", "constant")
    fixes = remedy(cause, "tc", "M.forward", at=(file, 2))[2]
    assert fixes[0].startswith("compute what needs self.step as plain Python")
    other = remedy(Cause("self.angle", "2", "3", "constant"), "tc", "M.forward", at=(file, 2))[2]
    assert "register_buffer" in other[0]


def test_a_number_that_is_tested_and_indexes_is_taken_out(tmp_path: Path) -> None:
    file = _file(tmp_path, "if self.at > 3:\n    x = x + 1\nreturn x[self.at]")
    fixes = remedy(Cause("self.at", "2", "3", "constant"), "tc", "f", at=(file, 2))[2]
    assert fixes[-1].startswith("take self.at, and what the code does by it, out of")


def test_a_comprehension_that_leaves_items_out(tmp_path: Path) -> None:
    file = _file(tmp_path, "rows = [y for y in x if y > 0]\nreturn rows, [y + 1 for y in x]")
    assert fixes_at("TC110", file, 2, "", ("torch.where(condition, a, b)",)) == (OUTSIDE,)
    assert fixes_at("TC110", file, 3, "", ("torch.where(condition, a, b)",)) != (OUTSIDE,)


def test_a_list_is_indexed_by_a_number(tmp_path: Path) -> None:
    file = _file(
        tmp_path, "best = x.argmax()\nself.advance(WORDS[best])\nreturn WORDS[best.item()]"
    )
    title = "index() of a tensor needs a Python value"
    assert fixes_at("TC101", file, 3, "", ROW, title) == (MOVE,)
    assert fixes_at("TC101", file, 3, "", ROW, "Tensor.item() needs a Python number") == (MOVE,)


def test_a_class_that_is_no_module(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(
        "class Base(torch.nn.Module): pass\nclass Net(Base): pass\nclass Plain: pass\n"
        "class Deep(Plain): pass\nclass Far(library.Thing): pass\nclass Loop(Loop): pass\n"
    )
    names = ("Base", "Net", "Plain", "Deep", "Far", "Loop", "Unknown")
    plain = {name for name in names if is_plain_class(str(file), name)}
    assert plain - {"Loop"} == {"Plain", "Deep"}


def test_acts_are_what_no_tensor_can_choose(tmp_path: Path) -> None:
    import ast

    def branch(body: str) -> ast.AST:
        return ast.parse(f"if bad:\n    {body}").body[0]

    file = _file(tmp_path, "return x")
    done = {
        body: acts(branch(body), file, 1)
        for body in (
            "x = x + 1",
            "print(x)",
            "rows.append(x)",
            "raise ValueError",
            "del x",
            "n = 2",
        )
    }
    assert {body for body, act in done.items() if act} == {
        "print(x)", "rows.append(x)", "raise ValueError", "del x",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("line", "title", "within", "way"),
    [
        ("h = h * settings.factor", "a context manager the tracer does not follow",
         "/lib/python3.11/functools.py",
         "read the property before the compiled function: functools.cached_property keeps its "
         "value"),
        ("j = torch.autograd.functional.jacobian(f, x)", "call of Tensor.requires_grad_ is not", "",
         "torch.func.jacrev in place of torch.autograd.functional.jacobian: it is a part of the "
         "graph"),
        ("x.requires_grad_()", "call of Tensor.requires_grad_ is not supported", "",
         GRADIENTS_FIRST),
    ],
)  # fmt: skip
def test_ways_out_of_library_code(line: str, title: str, within: str, way: str) -> None:
    code = "TC107" if within else "TC120"
    assert fixes_at(code, "", 0, line, ("move it out",), title, within)[0] == way


def test_a_logger_that_is_given_a_class_cannot_be_called_later() -> None:
    known = ("torch._dynamo.config.reorderable_logging_functions.add(it), if it only reports",)
    left_out = "torch._dynamo.config.ignore_logging_functions.add(it), and its calls are left out"
    title = "call of warnings.warn that the tracer cannot look into"
    for call in ("warnings.warn('a', UserWarning)", "warn('a', category=FutureWarning)"):
        assert fixes_at("TC120", "", 0, call, known, title) == (left_out,)
    assert fixes_at("TC120", "", 0, "warnings.warn('a')", known, title) == known


@pytest.mark.parametrize(
    ("number", "words", "title"),
    [
        (125, "Unsupported Tensor.requires_grad_() call", "call of Tensor.requires_grad_"),
        (208, "torch.* op returned non-Tensor\n op: x; target: <built-in function isnan>",
         "call of isnan that returns no tensor"),
    ],
)  # fmt: skip
def test_breaks_of_pytorch_that_had_no_way_out(number: int, words: str, title: str) -> None:
    row, said = advise(number, words)
    assert (row.code, said) == ("TC120", title)
    assert row.fix
