"""What a branch does decides which edits can take the break away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tc.trace.branches import (
    Does,
    is_appended_to,
    is_appended_to_in_module,
    is_filled,
    is_in_block,
    is_keywords,
    is_looped_over,
    is_made_before_break,
    is_made_when_missing,
    is_tested,
    is_with_header,
    only_reports,
    text_of,
    what_it_does,
)
from tc.trace.breakfixes import FIXES, fixes_at
from tc.trace.lines import line_of, lines_of
from tc.trace.naming import with_argument_named, with_cell_named
from tc.trace.positions import (
    is_exponent,
    is_spelled_out,
    is_stored,
    is_used_as_index,
    is_used_whole,
)

ROW = ("torch.where(condition, a, b)", "for an assertion: …", "tc.config.capture_scalar_outputs")


@pytest.mark.parametrize(
    ("body", "line", "does"),
    [
        ("if bad(x):\n    print(x)", 1, Does.REPORTS),
        ("if bad(x):\n    log.warning('bad')\nelse:\n    pass", 1, Does.REPORTS),
        ("if bad(x):\n    print(x)\n    x = x + 1", 1, Does.CHOOSES),
        ("if bad(x):\n    seen.append(x)", 1, Does.COLLECTS),
        ("if bad(x):\n    seen.append(x)\n    x = x + 1", 1, Does.CHOOSES),
        ("if bad(x):\n    raise ValueError", 1, Does.RAISES),
        ("assert bad(x), 'text'", 1, Does.RAISES),
        ("while bad(x):\n    x = x / 2", 1, Does.LOOPS),
        ("while True:\n    x = x / 2\n    if bad(x):\n        break", 3, Does.LOOPS),
        ("for k in range(9):\n    if bad(x):\n        break", 2, Does.LOOPS),
        ("for k in range(9):\n    if bad(x):\n        continue\n    x = x + k", 2, Does.CHOOSES),
        ("if bad(x):\n    return x, True\nreturn x, False", 1, Does.LEAVES),
        ("for k in range(9):\n    if bad(x):\n        return k", 2, Does.LOOPS),
        ("y = x if bad(x) else x + 1", 1, Does.CHOOSES),
        ("if (flag and\n        bad(x)):\n    print(x)", 2, Does.REPORTS),
        ("for k in range(2):\n    if flag:\n        if bad(x):\n            raise ValueError", 3,
         Does.RAISES),
        ("try:\n    if bad(x):\n        raise ValueError\nexcept ValueError:\n    x = x + 1", 2,
         Does.CATCHES),
        ("try:\n    if bad(x):\n        raise ZeroDivisionError('b')\n"
         "except (KeyError, ArithmeticError):\n    pass", 2, Does.CATCHES),
        ("try:\n    assert bad(x)\nexcept:\n    x = x + 1", 2, Does.CATCHES),
        ("try:\n    if bad(x):\n        raise ValueError\nexcept KeyError:\n    x = x + 1", 2,
         Does.RAISES),
        ("try:\n    if bad(x):\n        raise ValueError\nexcept ValueError:\n    raise", 2,
         Does.RAISES),
        ("try:\n    pass\nexcept ValueError:\n    if bad(x):\n        raise ValueError", 4,
         Does.RAISES),
        ("try:\n    def g(x):\n        assert bad(x)\nexcept:\n    pass", 3, Does.RAISES),
        ("y = bad(x)", 1, None),
        ("if flag:\n    y = bad(x)", 2, None),
    ],
)  # fmt: skip
def test_what_a_branch_does(tmp_path: Path, body: str, line: int, does: Does | None) -> None:
    file = tmp_path / "model.py"
    rows = "".join(f"    {row}\n" for row in body.split("\n"))
    file.write_text(f"def f(x, flag):\n{rows}")
    assert what_it_does(str(file), line + 1) is does
    found = fixes_at("TC110", str(file), line + 1, "", ROW)
    acts = "print" in body or "append" in body  # which no torch.where chooses
    chosen = FIXES[Does.COLLECTS] if acts else ROW[:1]
    expected = ROW if does is None else chosen if does is Does.CHOOSES else FIXES[does]
    assert found == expected


def test_an_input_is_tested_in_its_own_function_only(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(
        "@compile\n"
        "def f(x, scale, rate):\n"
        "    if self.last != 1 and scale > 0:\n"
        "        x = x * rate\n"
        "    return x\n"
        "def g(x, rate):\n"
        "    return x if rate else x + 1\n"
    )
    tested = {
        (name, line): is_tested(str(file), line, name)
        for name in ("scale", "rate", "self.last", "last")
        for line in (1, 4, 7)
    }
    assert {key for key, value in tested.items() if value} == {
        ("scale", 1), ("scale", 4), ("self.last", 1), ("self.last", 4), ("rate", 7),
    }  # fmt: skip
    assert not is_tested(str(tmp_path / "away.py"), 1, "scale")


def test_a_file_that_changed_or_is_away_says_nothing(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("if bad(x):\n    print(x)\n")
    assert what_it_does(str(file), 1, "if bad(x):") is Does.REPORTS
    assert what_it_does(str(file), 1, "if good(x):") is None
    assert what_it_does(str(tmp_path / "away.py"), 1) is None
    assert what_it_does(str(file), 7) is None
    assert fixes_at("TC104", str(file), 1, "", ROW) == ROW
    (tmp_path / "broken.py").write_text("if bad(x:\n")
    assert what_it_does(str(tmp_path / "broken.py"), 1) is None


MODEL = """\
class Ring:
    def add(self, x, at, n, scale):
        self.rows[at] = x
        y = x.new_zeros(n) * scale
        last = y[: self.next]
        return last

    def __len__(self):
        return self.next
"""


@pytest.mark.parametrize(
    ("line", "name", "indexes"),
    [(2, "at", True), (2, "n", True), (2, "scale", False), (5, "ring.next", True),
     (9, "ring.next", True), (2, "x", False)],
)  # fmt: skip
def test_numbers_that_index_or_count(tmp_path: Path, line: int, name: str, indexes: bool) -> None:
    file = tmp_path / "ring.py"
    file.write_text(MODEL)
    assert is_used_as_index(str(file), line, name) is indexes


CELLS = """\
def make(name, decay):
    history, count = [], 0
    def scaled(x):
        nonlocal count
        count += 1
        history.append(x)
        return decay ** len(history)
    return scaled, lambda x: x * decay
"""


@pytest.mark.parametrize(
    ("line", "source", "named"),
    [
        (5, "parts[0].__closure__[0].cell_contents", "count"),
        (6, "len(parts[0].__closure__[2].cell_contents)", "len(history)"),
        (7, "f.__closure__[1].cell_contents.real", "decay.real"),
        (6, "list(f.hooks.values())[0].__closure__[2].cell_contents[0]", "history[0]"),
        (5, "f.__closure__[7].cell_contents", "f.__closure__[7].cell_contents"),
        (8, "f.__closure__[0].cell_contents", "f.__closure__[0].cell_contents"),
        (5, "x.shape[0]", "x.shape[0]"),
    ],
)
def test_a_cell_has_the_name_of_its_variable(
    tmp_path: Path, line: int, source: str, named: str
) -> None:
    file = tmp_path / "make.py"
    file.write_text(CELLS)
    assert with_cell_named(str(file), line, source) == named
    assert with_cell_named(str(tmp_path / "none.py"), line, source) == source


CALLS = """def train(net, loss_of, x, y, batch, **more):
    loss = net(x, mask=y).square().mean()
    loss = loss_of(net(x, y), y)
    loss = loss_of(y, net(x))
    print("a", net(*batch, **more))
    net(x.to("cpu"), batch.words)
    loss = net(
        batch.words,
        y,
    )
"""


@pytest.mark.parametrize(
    ("line", "source", "named"),
    [
        (2, "args[0].shape[1]", "x.shape[1]"),
        (2, "kwargs['mask']", "y"),
        (2, "args[1]", "args[1]"),  # nothing is passed there
        (3, "args[1] == 5", "y == 5"),
        (3, "args[0]", "args[0]"),  # of two calls
        (4, "args[0].ndim", "args[0].ndim"),
        (5, "args[0]", "args[0]"),  # what is unpacked has no name
        (5, "kwargs['mask']", "kwargs['mask']"),
        (6, "args[0].shape[0]", "args[0].shape[0]"),  # no name, but a value that the line makes
        (6, "args[1].shape[0]", "batch.words.shape[0]"),
        (8, "args[1]", "y"),
        (2, "self.args[0]", "self.args[0]"),
    ],
)
def test_an_argument_of_a_wrapper_has_the_name_that_the_call_passes(
    tmp_path: Path, line: int, source: str, named: str
) -> None:
    file = tmp_path / "train.py"
    file.write_text(CALLS)
    assert with_argument_named(str(file), line, source) == named
    assert with_argument_named(str(tmp_path / "none.py"), line, source) == source


@pytest.mark.parametrize(
    ("name", "made"),
    [("y", True), ("last.shape[0]", True), ("forward.x", True), ("__call__.x", True),
     ("x", False), ("self.rows", False), ("at", False)],
)  # fmt: skip
def test_what_a_function_makes_itself(tmp_path: Path, name: str, made: bool) -> None:
    file = tmp_path / "ring.py"
    file.write_text(MODEL)
    resumed = "torch_dynamo_resume_in_f_at_3"
    assert is_made_before_break(resumed, str(file), 2, name) is made
    assert not is_made_before_break(resumed, str(tmp_path / "none.py"), 2, name)
    assert not is_made_before_break("f", str(file), 2, name)


def test_a_number_read_beside_a_test_is_no_branch(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("def f(x):\n    n = int(x.max()) if x.numel() else 0\n    return x * n\n")
    assert fixes_at("TC101", str(file), 2, "", ROW) == ROW
    file = tmp_path / "other.py"
    file.write_text("def f(x):\n    y = 1 if int(x.max()) > 2 else 0\n    return x * y\n")
    assert fixes_at("TC101", str(file), 2, "", ROW) == ROW[:1]


def test_a_number_that_is_an_index_stays_no_tensor(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("def f(x, y):\n    n = int(x.sum())\n    return y[: n + 1]\n")
    ways = "keep the value as a tensor", "tc.config.capture_scalar_outputs = True", "move it out"
    assert fixes_at("TC101", str(file), 2, "", ways) == ways[2:]


def test_sizes_of_data_that_are_read_as_numbers_need_more_than_the_setting_for_sizes() -> None:
    ways = "torch._dynamo.config.capture_dynamic_output_shape_ops = True", "another way"
    assert fixes_at("TC102", "", 0, "for kind in label.unique().tolist():", ways) == ways[1:]
    assert fixes_at("TC102", "", 0, "kept = x[mask]", ways) == ways


@pytest.mark.parametrize(
    ("body", "spells"),
    [
        ("return x + len(f'layer {self.index}')", True),
        ("return x * TABLE[str(self.index)]", True),
        ("return x * TABLE['layer %d' % self.index]", True),
        ("return x * TABLE['layer {}'.format(self.index)]", True),
        ("return x * self.index", False),
        ("return x + len(f'layer {self.other}') * self.index", False),
        ("if x is None:\n        raise ValueError(f'layer {self.index}')\n    return x", False),
        ("assert x.ndim == 2, f'layer {self.index}'\n    return x", False),
        ("print(f'layer {self.index}')\n    return x", False),
        ("return x % self.index", False),
    ],
)
def test_text_made_of_a_number_needs_the_number(tmp_path: Path, body: str, spells: bool) -> None:
    file = tmp_path / "m.py"
    file.write_text(f"def forward(self, x):\n    {body}\n")
    assert is_spelled_out(str(file), 1, "self.index") is spells


MEMO = """class M:
    def mask(self, n):
        if n not in self.masks:
            self.masks[n] = n
        return self.masks[n]
    def forward(self, x, rows):
        self.mask(x.shape[1])
        if x.shape[-1] < 3:
            return x.size(0)
        return len(x), rows[0]
keep = lambda x: seen.append(x)
def wrapped(*args, **kwargs):
    kwargs['mask'] = None
    return model(*args, **kwargs)
def collect(seen, x):
    seen.setdefault('y', []).clear()
    seen.setdefault('x', []).append(x)
    try:
        return x + 1
    finally:
        pass
"""


@pytest.mark.parametrize(
    ("asked", "line", "name", "answer"),
    [
        (is_filled, 7, "self.masks", True),  # by a method that the line calls
        (is_filled, 7, "m.masks", True),
        (is_filled, 7, "self.rows", False),
        (is_filled, 7, "rows", False),
        (is_tested, 7, "x.shape[1]", True),  # the last of the sizes may be this one
        (is_tested, 7, "rows.shape[1]", False),
        (is_appended_to, 11, "seen", True),
        (is_appended_to, 11, "x", False),
        (is_with_header, 7, "", False),
        (is_appended_to, 17, "seen['x']", True),
        (is_appended_to, 17, "seen['y']", False),
        (is_in_block, 17, "", False),
        (is_in_block, 19, "", True),
        (is_in_block, 11, "", True),  # no function whose source could be read
        (is_keywords, 13, "kwargs", True),  # each call passes its own, whatever is added to it
        (is_keywords, 13, "args", False),
        (is_keywords, 7, "rows", False),
    ],
)
def test_what_the_code_around_a_line_does(
    tmp_path: Path, asked: Callable[..., bool], line: int, name: str, answer: bool
) -> None:
    file = tmp_path / "memo.py"
    file.write_text(MEMO)
    given = (str(file), line, name) if name else (str(file), line)
    assert asked(*given) is answer


def test_the_header_of_a_with_statement_is_not_its_body(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text("def f(x):\n    with a(), b(\n        1\n    ):\n        x = c(x)\n")
    assert [is_with_header(str(file), line) for line in range(1, 6)] == [
        False, True, True, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "moves"),
    [
        ("raise ValueError(x)", False),
        ("assert x.ndim == 2", False),
        ("", False),
        ("y = x + (x.data_ptr() % 2)", True),
        ("y = raised(x)", True),
    ],
)
def test_an_exception_on_a_line_that_raises_none_may_be_the_tracers(
    source: str, moves: bool
) -> None:
    known = ("return a flag in place of raising",)
    fixes = fixes_at("TC131", "", 3, source, known)
    assert (fixes[0] != known[0]) is moves
    assert fixes[-1] == known[0]


def test_a_name_that_no_file_can_have_has_no_lines() -> None:
    assert text_of("a\0b.py", 3) == ""
    assert lines_of("a\0b.py") == [] and line_of(__file__, 0) == ""
    assert line_of(__file__, 1).startswith('"""')


NUMBERS = """\
@torch.library.custom_op("lab::smooth", mutates_args=())
def smooth(x: Tensor, k: int) -> Tensor: ...

def f(x, k, dim, chunk, at, scale):
    y = smooth(x, k) + torch.ops.lab.other(x, at)
    y = vmap(g, chunk_size=chunk)(y).softmax(dim)
    return plain(x, scale).softmax(x * scale)
"""


@pytest.mark.parametrize(
    ("name", "is_number"),
    [("k", True), ("at", True), ("chunk", True), ("dim", True), ("scale", False)],
)
def test_numbers_that_a_schema_asks_for(tmp_path: Path, name: str, is_number: bool) -> None:
    file = tmp_path / "m.py"
    file.write_text(NUMBERS)
    assert is_used_as_index(str(file), 5, name) is is_number


def test_a_function_that_calls_itself_is_a_loop(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text("def f(x, n, scale):\n    return x if n == 0 else f(x * 2, n - 1, scale)\n")
    assert is_looped_over(str(file), 2, "n") and not is_looped_over(str(file), 2, "scale")


def test_a_list_of_another_module_is_made_longer_there(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/metrics.py").write_text("rows = []\ndef record(x):\n    rows.append(x)\n")
    file = tmp_path / "shop/layers.py"
    file.write_text("def forward(x):\n    return x\n")
    for name, appended in (("shop.metrics.rows", True), ("shop.metrics.names", False),
                           ("rows", False), ("shop.other.rows", False)):  # fmt: skip
        assert is_appended_to_in_module(str(file), name) is appended


@pytest.mark.parametrize(
    ("body", "reports"),
    [
        ("if self.seen % 2 == 0:\n        log.info('turn')", True),
        ("if self.seen > 3:\n        raise ValueError(self.seen)", True),
        ("if self.seen > 3:\n        x = x * 2", False),
        (
            "for h in beams:\n        if h.seen:\n            found.append(h); continue",
            True,
        ),
        ("x = x * 2 if self.seen else x", False),
        ("x = x * self.seen", False),
    ],
)
def test_a_test_that_only_reports_chooses_nothing(tmp_path: Path, body: str, reports: bool) -> None:
    file = tmp_path / "m.py"
    file.write_text(f"def f(self, x, beams, found):\n    {body}\n    return x\n")
    assert only_reports(str(file), 3 if "beams" in body else 2, "self.seen") is reports


@pytest.mark.parametrize(
    ("line", "whole"),
    [
        ("best = counts.most_common(1)[0][0]", True),
        ("best = sum(counts.values())", True),
        ("best = counts['a']", False),
        ("best = counts.get('a', 0)", False),
        ("best = 3", False),
    ],
)
def test_what_asks_a_container_for_all_of_it(tmp_path: Path, line: str, whole: bool) -> None:
    file = tmp_path / "m.py"
    file.write_text(f"def f(x, counts):\n    {line}\n    return x * best\n")
    assert is_used_whole(str(file), 2, "counts") is whole


def test_exponents_and_what_a_function_sets_itself(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text("def f(self, x):\n    self.table = x * (2 ** self.bits - 1)\n    return x\n")
    assert is_exponent(str(file), 2, "net.bits") and not is_exponent(str(file), 2, "x")
    assert is_stored(str(file), 2, "net.table") and not is_stored(str(file), 2, "net.bits")


def test_what_is_appended_outside_of_all_functions_is_outside_already(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    text = "def f(cloth):\n    return len(cloth.pinned)\ncloth.pinned.append(4)\n"
    path.write_text(text)
    assert not is_appended_to(str(path), 1, "cloth.pinned")
    inside = tmp_path / "other.py"
    inside.write_text(text + "def g(cloth):\n    cloth.pinned.append(5)\n")
    assert is_appended_to(str(inside), 1, "cloth.pinned")


def test_what_a_test_makes_may_be_there_before(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(
        "def f(self, x):\n    if self.table is None:\n        self.table = x\n    return x\n"
        "def g(self, x):\n    if self.old is not None:\n        x = x + self.old\n"
        "    self.old = x\n    return x\n"
    )
    assert is_made_when_missing(str(path), 1, "self.table")
    other = tmp_path / "other.py"
    other.write_text("def h(self, x):\n    self.m = x + (x if self.m is None else self.m)\n")
    assert is_made_when_missing(str(other), 1, "self.m")
    assert not is_made_when_missing(str(path), 5, "self.old")
