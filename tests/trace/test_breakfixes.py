"""The ways out of a graph break that its line leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tc.trace.branches import is_in_try
from tc.trace.breakfixes import _CHOSEN, ASK_FIRST, fixes_at, is_of_context
from tc.trace.words import CALL_OUTSIDE, COMPILE_BELOW, LIST_INSTEAD, RANDOM_OUTSIDE

OUT = "move the conversion out of the compiled function"
OF_NUMBERS = ("keep the value as a tensor", "tc.config.capture_scalar_outputs = True", OUT)
OF_SIZES = ("use a masked form with a fixed shape (torch.where, a multiplied mask)", "a setting")


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("TC102", "if np.random.rand() < self.epsilon:"),
        ("TC110", "if numpy.random.uniform() < 0.5:"),
        ("TC101", "n = np.random.randint(3, size=2)[0]"),
    ],
)
def test_random_arrays_are_made_outside(code: str, line: str) -> None:
    assert fixes_at(code, "", 0, line, OF_NUMBERS) == (CALL_OUTSIDE,)
    assert fixes_at(code, "", 0, line.replace("random", "linalg"), OF_NUMBERS) == OF_NUMBERS


def test_numbers_of_a_generator_are_made_outside() -> None:
    title = "call of randn with generator (torch._C.Generator) as an argument is not supported"
    known = ("move the call out of the compiled function",)
    assert fixes_at("TC120", "", 0, "x = f(y)", known, title) == (RANDOM_OUTSIDE,)
    assert fixes_at("TC120", "", 0, "x = f(y)", known, "call of f is not supported") == known


@pytest.mark.parametrize(
    ("line", "way"),
    [
        ("degree = torch.bincount(target, minlength=n)", "index_add"),
        ("x = x.repeat_interleave(counts, 0)", "output_size="),
        ("names = torch.unique(kinds)", "move the call out"),
        ("kept = x[mask]", "a masked form"),
    ],
)
def test_an_operator_whose_size_depends_on_data_has_its_own_way_out(line: str, way: str) -> None:
    found = fixes_at("TC102", "", 0, line, OF_SIZES)
    assert way in found[0] and found[1:] == OF_SIZES[1:]


@pytest.mark.parametrize(
    ("line", "is_text"),
    [
        ('print("norm", f"{norm.item():.2f}")', True),
        ("log.info('norm %s', norm.item())", True),
        ("text = f'{float(norm):.2f}'", True),
        ("y = y * norm.item()", False),
        ("print(norm.item()), y.add_(norm.item())", False),
    ],
)
def test_a_number_that_is_only_written_has_to_be_a_number(
    tmp_path: Path, line: str, is_text: bool
) -> None:
    file = tmp_path / "m.py"
    file.write_text(f"def f(x, y):\n    norm = x.norm()\n    {line}\n    return y\n")
    found = fixes_at("TC101", str(file), 3, "", OF_NUMBERS)
    assert found == ((OUT,) if is_text else OF_NUMBERS)


@pytest.mark.parametrize(
    ("code", "line", "within"),
    [
        ("TC102", "packed = pack_padded_sequence(x, lengths, batch_first=True)", "/home/me/m.py"),
        ("TC120", "packed = nn.utils.rnn.pack_padded_sequence(x, lengths)", "/home/me/m.py"),
        ("TC101", "y, _ = self.encoder(packed)", "/env/torch/nn/modules/rnn.py"),
        ("TC102", "y, n = unpack(y)", "/env/torch/nn/utils/rnn.py"),
    ],
)
def test_packed_sequences_are_kept_apart_whole(code: str, line: str, within: str) -> None:
    (way,) = fixes_at(code, "", 0, line, ("another way",), "a break", within)
    assert "a function of their own" in way
    assert fixes_at(code, "", 0, "y = self.other(x)", (), "a break", "/home/me/m.py") == ()


@pytest.mark.parametrize(
    ("line", "way"),
    [
        ("y = a if number == 3 else b", "torch.where"),
        ("seen[number] = 1", "where it is a size"),
    ],
)
def test_a_number_that_was_read_before_is_asked_for(line: str, way: str, tmp_path: Path) -> None:
    path = tmp_path / "asks.py"
    path.write_text(f"def f(x, a, b, seen):\n    number = x.item()\n    {line}\n    return a\n")
    known = ("torch._check() what is known of it, where it is a size", "read it outside")
    found = fixes_at("TC111", str(path), 3, line, known)
    assert way in found[0] and found[-1] == known[-1]


@pytest.mark.parametrize(
    ("line", "is_slice"),
    [("return x[:k]", True), ("return x[0, k:]", True), ("return x[k]", False),
     ("return x[k, :n]", False), ("return x[:3][k]", False)],
)  # fmt: skip
def test_a_slice_is_no_position(tmp_path: Path, line: str, is_slice: bool) -> None:
    file = tmp_path / "m.py"
    file.write_text(f"def f(x, k, n):\n    {line}\n")
    known = ("gather in place of indexing, with a tensor of one element", OUT)
    found = fixes_at("TC101", str(file), 2, line, known)
    assert (found[0].startswith("a mask in place of the slice"), found[1]) == (is_slice, OUT)


def test_a_number_that_chooses_a_module_is_no_part_of_a_graph() -> None:
    within = "/x/torch/nn/modules/container.py"
    found = fixes_at("TC101", "", 0, "y = self.experts[best[0]](x)", OF_NUMBERS, "", within)
    assert found[0].startswith("run all of them and choose") and found[1:] == (OUT,)


@pytest.mark.parametrize("test", ["len(rows)", "rows.numel() > 0", "rows.shape[0]", "done"])
def test_a_setting_that_the_next_line_refuses_is_no_way_out(tmp_path: Path, test: str) -> None:
    """How long the result is would be a symbol, which a branch cannot go by."""
    file = tmp_path / "m.py"
    file.write_text(f"def f(x, done):\n    rows = x.nonzero()\n    if {test}:\n        x = x + 1\n")
    setting = "torch._dynamo.config.capture_dynamic_output_shape_ops = True"
    found = fixes_at("TC102", str(file), 2, "rows = x.nonzero()", (setting, "another way"))
    assert found == ((setting, "another way") if test == "done" else ("another way",))


@pytest.mark.parametrize(
    ("what", "is_iterator"),
    [("batches (generator)", True), ("rows (list_iterator)", True), ("x (set)", False)],
)
def test_what_can_be_gone_through_once_is_passed_as_a_list(what: str, is_iterator: bool) -> None:
    found = fixes_at(
        "TC123", "", 0, "", ("another way",), f"iteration over {what} is not supported"
    )
    assert found == ((LIST_INSTEAD,) if is_iterator else ("another way",))


@pytest.mark.parametrize(
    ("line", "alone"),
    [("print(x)", True), ("log.info(", True), ("y = np.fft.rfft(x)", False), ("with lock:", False)],
)
def test_only_a_call_whose_result_nobody_needs_can_be_left_out(line: str, alone: bool) -> None:
    known = ("move the call out", "guard it with `if not torch.compiler.is_compiling():`")
    found = fixes_at("TC104", "", 0, line, known, "call of print() while tracing")
    assert found == (known if alone else known[:1])


def test_backward_hooks_are_torchs_own_code() -> None:
    within = "/x/site-packages/torch/nn/modules/_functions.py"
    assert fixes_at("TC122", "m.py", 3, "", ("return it",), "a store", within) == (COMPILE_BELOW,)


def test_a_lazy_module_is_called_first() -> None:
    title = "call of lazy module LazyLinear, after stores, is not supported"
    (fix,) = fixes_at("TC120", "m.py", 3, "", ("move the call out",), title)
    assert fix.startswith("call the module once")


@pytest.mark.parametrize(("line", "is_tried"), [(3, True), (5, False), (6, False)])
def test_what_is_tried_is_asked_for_first(tmp_path: Path, line: int, is_tried: bool) -> None:
    file = tmp_path / "m.py"
    file.write_text(
        "def f(x):\n    try:\n        y = x.view(3, 3)\n    except RuntimeError:\n"
        "        y = x.view(-1)\n    return y.view(2)\n"
    )
    fixes = fixes_at("TC130", str(file), line, "", ("check shapes",))
    assert fixes == ((ASK_FIRST,) if is_tried else ("check shapes",))
    assert is_in_try(str(file), line) is is_tried


@pytest.mark.parametrize(
    ("title", "in_library", "is_one"),
    [("call of lock.__exit__ is not supported", False, True), ("print()", False, False),
     ("call of time.perf_counter() while tracing", True, True)],
)  # fmt: skip
def test_a_break_in_what_a_with_statement_calls(
    tmp_path: Path, title: str, in_library: bool, is_one: bool
) -> None:
    file = tmp_path / "m.py"
    file.write_text("def f(x):\n    with lock:\n        return x * 2\n")
    assert is_of_context(title, str(file), 2, in_library) is is_one
    assert not is_of_context(title, str(file), 3, in_library)


@pytest.mark.parametrize(
    ("body", "gone"),
    [
        ("    self.best = x.min().item()", "capture_scalar_outputs"),
        ("    seen.append(float(x.sum()))", "capture_scalar_outputs"),
        ("    n = int(x.max())\n    y = torch.zeros(n)", "keep the value"),
        ("    x = x * x.max().item()", ""),
    ],
)
def test_what_a_number_is_for_rules_ways_out(tmp_path: Path, body: str, gone: str) -> None:
    """What is stored is for Python, and a size is no tensor."""
    file = tmp_path / "m.py"
    file.write_text(f"def f(self, x, seen):\n{body}\n    return x\n")
    found = fixes_at("TC101", str(file), 2, "", OF_NUMBERS)
    assert found == tuple(one for one in OF_NUMBERS if not gone or gone not in one)


def test_a_call_that_keeps_something_cannot_be_left_out() -> None:
    known = ("move the call out", "guard it: if not torch.compiler.is_compiling(): ...")
    for line, ways in (("events.append(dumps(1))", known[:1]), ("dumps(1)", known)):
        assert fixes_at("TC104", "", 0, line, known, "call of json.dumps() while tracing") == ways


def test_a_length_is_no_tensor(tmp_path: Path) -> None:
    known = ("torch._check() what is known of it", "read it outside")
    for test, ways in (("len(rows) == 0", known[1:]), ("rows > 0", (_CHOSEN, *known[1:]))):
        file = tmp_path / f"m{len(test)}.py"
        file.write_text(f"def f(x, rows):\n    if {test}:\n        x = x + 1\n    return x\n")
        assert fixes_at("TC111", str(file), 2, "", known) == ways


def test_functions_of_libraries_are_not_to_be_registered() -> None:
    known = ("move the call out", "register it: torch.library.custom_op")
    for name, ways in (("np.histogram", known[:1]), ("mine.count", known)):
        title = f"call of {name} is not supported"
        assert fixes_at("TC120", "", 0, "y = f(x)", known, title) == ways
    line = "(g,) = torch.autograd.grad(e, x)"
    assert fixes_at("TC120", "", 0, line, known[:1])[0].startswith("torch.func.grad(f)(x)")


@pytest.mark.parametrize(
    "title", ["format() of a tensor needs a Python value", "str() of a tensor"]
)
def test_text_of_a_tensor_is_made_outside(title: str) -> None:
    assert fixes_at("TC101", "", 0, "print(f'{x:.2f}')", OF_NUMBERS, title) == (OUT,)
    assert fixes_at("TC101", "", 0, "n = int(x)", OF_NUMBERS, "int() of a tensor") == OF_NUMBERS


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("for g in range(int(graph.max()) + 1):\n        pass", (OUT,)),
        ("y = torch.zeros(int(graph.max()) + 1, 3)", OF_NUMBERS[1:]),
        ("y = x * int(graph.max())", OF_NUMBERS),
    ],
)
def test_a_number_that_counts_at_once_is_no_tensor(
    tmp_path: Path, line: str, left: tuple[str, ...]
) -> None:
    path = tmp_path / "model.py"
    path.write_text(f"def f(graph, x):\n    {line}\n")
    source = line.partition("\n")[0]
    assert fixes_at("TC101", str(path), 2, source, OF_NUMBERS) == left


def test_what_a_caller_catches_is_not_asserted(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(
        "def check(x):\n    if x.max() > 1:\n        raise ValueError('over')\n"
        "def f(x):\n    try:\n        check(x)\n    except ValueError:\n        pass\n"
        "    check(x)\n"
    )
    line, known = "if x.max() > 1:", ("torch.where",)
    tried = fixes_at("TC110", str(path), 2, line, known, callers=[(str(path), 6)])
    assert not any("_assert_async" in one for one in tried) and "catch outside" in tried[1]
    plain = fixes_at("TC110", str(path), 2, line, known, callers=[(str(path), 9)])
    assert "_assert_async" in plain[0]


@pytest.mark.parametrize(
    ("body", "is_count"),
    [
        ("self.n = max(self.n - 1, 4)", True),
        ("self.n -= 1", True),
        ("self.y = x", False),
        ("x = x * 2", False),
        ("self.n, self.y = 3, x", False),
    ],
)
def test_a_count_that_a_branch_sets_is_set_outside(
    tmp_path: Path, body: str, is_count: bool
) -> None:
    path = tmp_path / "model.py"
    path.write_text(
        f"def f(self, x):\n    t = torch.linspace(0, 1, self.n)\n    if x.sum() > 0:\n"
        f"        {body}\n    return x * self.y + t\n"
    )
    found = fixes_at("TC110", str(path), 3, "if x.sum() > 0:", ("torch.where",))
    assert ("act on it after the call" in found[0]) is is_count


def test_functions_of_pythons_own_modules_are_not_to_be_registered() -> None:
    known = ("move the call out", "register it: torch.library.custom_op", "allow_in_graph(fn)")
    of = "call of {} that the tracer cannot look into"
    assert fixes_at("TC120", "", 0, "", known, of.format("heapq.heappop")) == known[:1]
    assert fixes_at("TC120", "", 0, "", known, of.format("mine.decode")) == known


@pytest.mark.parametrize(
    ("later", "refused"),
    [
        ("best = best[best != 0]\n    return [str(c) for c in best.tolist()]", True),
        ("return best.tolist()", True),
        ("return x.tolist(), best * 2", False),
    ],
)
def test_a_setting_for_sizes_is_refused_where_numbers_follow(
    tmp_path: Path, later: str, refused: bool
) -> None:
    path = tmp_path / "model.py"
    path.write_text(f"def f(x):\n    best = torch.unique_consecutive(x)\n    {later}\n")
    setting = "tc.config.capture_dynamic_output_shape_ops = True"
    line = "best = torch.unique_consecutive(x)"
    known = ("use a masked form with a fixed shape", setting)
    assert (setting not in fixes_at("TC102", str(path), 2, line, known)) is refused
