"""Compiles that no frame asked for, work that nobody understands, and causes that are one."""

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch_log import IDS, START, artifact, torch_log

from tc.tlparse.summary import text
from tc.trace.findings.advice import ROWS
from tc.trace.findings.hints import first_of, remedies_in, without_fake
from tc.trace.findings.matching import Row, match
from tc.trace.recipes import TABLE
from tc.trace.words import alike, count, did_you_mean, distinct, file_size, grouped, plural

HERE = "/home/me/train.py"
TORCH = "/site-packages/torch/"


def stack(*frames: tuple[str, int, str]) -> list[dict[str, Any]]:
    return [{"filename": file, "line": line, "name": name, "loc": f"{name}()"}
            for file, line, name in frames]  # fmt: skip


EXPORTING = stack(
    (HERE, 7, "<module>"), (TORCH + "export/__init__.py", 171, "export"),
    (TORCH + "export/_trace.py", 99, "_export"), (HERE, 3, "forward"),
)  # fmt: skip
AOT = stack(
    (HERE, 9, "<module>"), (TORCH + "_inductor/__init__.py", 153, "aoti_compile_and_package"),
    (TORCH + "_inductor/compile_fx.py", 2104, "compile_fx_aot"),
)  # fmt: skip
MAKE_FX = stack((HERE, 11, "run"), (TORCH + "fx/experimental/proxy_tensor.py", 3060, "wrapped"))


def storage(frames: list[dict[str, Any]], number: int = 0) -> tuple[dict[str, Any], str | None]:
    return {"describe_storage": {"id": number, "size": 16}, "stack": frames}, None


def timed(name: str, phase: str, ts: float, **rest: Any) -> tuple[dict[str, Any], str]:
    event = {"name": name, "ph": phase, "ts": ts, "pid": 1, "tid": 1, "args": {}, **rest}
    return {"chromium_event": {}}, json.dumps(event)


def test_exports_and_ahead_of_time_compiles_are_compiles(tmp_path: Path) -> None:
    found = torch_log(
        tmp_path,
        storage(EXPORTING),
        storage(EXPORTING, 1),
        storage(EXPORTING),  # from the same line again
        timed("compile_fx_aot", "B", 1e6),
        ({"aot_inference_graph": {}, "stack": AOT}, "def forward(): ..."),
        timed("compile_fx_aot", "E", 3e6),
        timed("compile_fx_aot", "B", 4e6),
        ({"aot_inference_graph": {}, "stack": AOT}, "def forward(): ..."),
        timed("compile_fx_aot", "E", 4.5e6),
    )
    reported = [(one.id, one.title, one.home, one.seconds) for one in found.session.compiles]
    assert reported == [
        ("export0/0", "export", (HERE, 7), 0.0),
        ("export1/0", "export", (HERE, 7), 0.0),
        ("aot0/0", "AOTInductor compile", (HERE, 9), 2.0),
        ("aot1/0", "AOTInductor compile", (HERE, 9), 0.5),
    ]
    assert found.recompile_count == 0


def test_a_trace_that_ends_early_is_a_failure_without_a_frame(tmp_path: Path) -> None:
    asked = stack((TORCH + "fx/experimental/proxy_tensor.py", 1, "trace"), (HERE, 5, "f"))
    found = torch_log(
        tmp_path,
        storage(MAKE_FX),
        ({"create_unbacked_symbol": {"symbol": "u0", "user_stack": asked}, "stack": MAKE_FX}, None),
        ({"artifact": {"name": "make_fx_fail_partial", "encoding": "string"}, "stack": MAKE_FX},
         "def forward(self, x):\n    gt: Sym = item > 0\n    "),
    )  # fmt: skip
    (finding,) = found.findings
    assert (finding.code, finding.title) == ("TC900", "make_fx failed")
    assert (finding.where.file, finding.where.line) == (HERE, 5)
    assert "after the operation gt" in finding.why and "torch.cond" in finding.fix[0]


def test_a_log_of_unread_work_is_never_green(tmp_path: Path) -> None:
    found = torch_log(
        tmp_path,
        ({"artifact": {"name": "of_the_future", "encoding": "string"}}, "x" * 2000),
        timed("new_compiler", "B", 1e6),
        timed("new_compiler", "E", 61e6),
    )
    (finding,) = found.findings
    assert finding.code == "TC908"
    assert "1m00s of work belong to no known compile: new_compiler" in finding.why
    assert "1 record (2.0 kB) of no known kind: of_the_future" in finding.why
    assert "nothing needs attention" not in text(found, "x")


@pytest.mark.parametrize(
    ("version", "instead"),
    [("torch_version", "TC_TRACE=DIR records those of tc.compile"),
     ("tc_version", "TORCH_TRACE=DIR records those of torch.compile")],
)  # fmt: skip
def test_a_log_without_any_compile_is_never_green(
    tmp_path: Path, version: str, instead: str
) -> None:
    found = torch_log(tmp_path, ({"artifact": {"name": version, "encoding": "json"}}, "{}"))
    (finding,) = found.findings
    assert (finding.code, finding.title) == ("TC910", f"no compile was recorded: {instead}")
    assert "nothing needs attention" not in text(found, "x")


def test_a_break_that_gives_up_the_function_is_one_cause(tmp_path: Path) -> None:
    broke = "Graph break in user code at /home/me/train.py:4\nGraph Break Reason: Tensor.item()\n"
    metrics = {
        "co_name": "f",
        "co_filename": HERE,
        "co_firstlineno": 2,
        "fail_type": "Unsupported",
        "fail_reason": "graph break in loop\nSkipping the frame and falling back to eager",
    }
    rows = [START, artifact(0, "dynamo_graph_break_reason", broke),
            ({"compilation_metrics": metrics, **IDS}, None)]  # fmt: skip
    found = torch_log(tmp_path, *rows)
    (finding,) = found.findings
    assert finding.code == "TC109" and "0-d tensor" in " ".join(finding.fix)
    assert (len(found.breaks), found.break_causes) == (1, 1)


# ----------------------------------------------------------------------------------- remedies


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("unsupported operator: mine.twice.default",
         "register its fake kernel: @torch.library.register_fake('mine::twice')"),
        ("UnsupportedOperatorException: mine.twice.default",
         "register its fake kernel: @torch.library.register_fake('mine::twice')"),
        ("Please specify via CC environment variable.",
         "set CC to a compiler, as the message asks"),
        ("  Hint: Set `torch._dynamo.config.capture_scalar_outputs = True` to include it.",
         "torch._dynamo.config.capture_scalar_outputs = True"),
        ("  Hint: Remove the `torch._dynamo.graph_break()` call.",
         "remove the call of graph_break()"),
    ],
)  # fmt: skip
def test_the_remedy_that_the_compiler_names_comes_first(words: str, first: str) -> None:
    known = ("torch._dynamo.config.capture_scalar_outputs = True",
             "remove the call of graph_break()", "write it otherwise")  # fmt: skip
    reported = first_of(words, known)
    assert reported[0] == first
    assert reported[-1] == "write it otherwise"


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("Set `torch._dynamo.trace_autograd_ops=True`.",  # as torch 2.13 has it
         "torch._dynamo.config.trace_autograd_ops = True"),
        ("Change `torch._dynamo.config.trace_numpy` to `True`.",
         "torch._dynamo.config.trace_numpy = True"),
        ("Set `torch._dynamo.config.allow_rnn=True` to enable experimental support.",
         "torch._dynamo.config.allow_rnn = True, to enable experimental support"),
        ("Set `torch._dynamo.config.trace_numpy` to `True` to trace numpy functions",
         "torch._dynamo.config.trace_numpy = True, to trace numpy functions"),
    ],
)  # fmt: skip
def test_a_setting_that_a_hint_names_is_an_assignment_that_works(words: str, remedy: str) -> None:
    assert remedies_in(f"  Hint: {words}") == (remedy,)


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        # what the compiler does, then what to do
        ("Some operations are not supported by torch.compile yet. Consider using torch.zeros.",
         ("consider using torch.zeros",)),
        ("If it is meant, try setting torch._dynamo.config.a = True. This is slower.",
         ("if it is meant, try setting torch._dynamo.config.a = True",)),
        # nothing to do
        ("torch.compile may lose the result (e.g. `map()`) of a call. This happens to others too.",
         ()),
        # one sentence stays as it is
        ("torch.compiler.set_stance(...) is for this", ("torch.compiler.set_stance(...) is for "
                                                        "this",)),
    ],
)  # fmt: skip
def test_of_a_hint_the_sentence_that_advises_something_is_kept(
    words: str, remedy: tuple[str, ...]
) -> None:
    assert remedies_in(f"  Hint: {words}") == remedy


def test_no_remedy_of_the_installed_torch_has_two_sentences() -> None:
    found = find_spec("torch")
    assert found is not None and found.origin is not None
    rows = json.loads(
        (Path(found.origin).parent / "_dynamo" / "graph_break_registry.json").read_text()
    )
    hints = [hint for found in rows.values() for row in found for hint in row["Hints"]]
    named = [remedy for hint in hints for remedy in remedies_in(f"Hint: {hint}")]
    assert len(named) > 20
    assert [one for one in named if re.search(r"(?<!e\.g)(?<!i\.e)\. +[A-Z]", one)] == []


def test_settings_that_hints_of_the_installed_torch_name_exist() -> None:
    found = find_spec("torch")
    assert found is not None and found.origin is not None
    folder = Path(found.origin).parent / "_dynamo"
    settings = set(re.findall(r"^(\w+)(?::.*)? = ", (folder / "config.py").read_text(), re.M))
    rows = json.loads((folder / "graph_break_registry.json").read_text())
    hints = [hint for found in rows.values() for row in found for hint in row["Hints"]]
    named = [match[1] for hint in hints for remedy in remedies_in(f"Hint: {hint}")
             if (match := re.match(r"torch\._dynamo\.config\.(\w+) = ", remedy))]  # fmt: skip
    assert len(named) > 5
    assert set(named) <= settings
    texts = [fix for row in ROWS for fix in row.fix]
    texts += [one.text for row in TABLE.values() for one in row]
    of_rows = re.findall(r"\btorch\._dynamo\.config\.(\w+)", "\n".join(texts))
    assert len(of_rows) > 5
    assert set(of_rows) <= settings


def test_hints_without_a_remedy_are_none() -> None:
    assert remedies_in("Hint: Please report an issue to PyTorch.") == ()
    assert remedies_in("Hint: see https://docs.google.com/x for how to fix") == ()
    assert without_fake("some other words") == ""


# ----------------------------------------------------------------------------------- identity


def row(name: str, line: int, source: str, near: tuple[str, str] = ("", "")) -> Row:
    return Row(name, 1, line, source, near)


def test_a_break_that_is_added_above_does_not_take_the_name_of_another() -> None:
    before = [row("TC104-1dc1", 5, 'print("b")')]
    now = [row("TC104-1dc1.aa", 3, 'print("a, and more")'), row("TC104-1dc1.bb", 6, 'print("b")')]
    reported = match(before, now)
    assert [one.line for one in reported.new] == [3]
    assert [(a.line, b.line) for a, b in reported.moved] == [(5, 6)]
    assert not reported.gone


def test_equal_lines_are_distinguished_by_their_neighbours() -> None:
    before = [row("TC104-1dc1", 5, "log(x)", ("y = 1", "z = 2"))]
    now = [row("TC104-1dc1.aa", 3, "log(x)", ("a", "b")),
           row("TC104-1dc1.aa.2", 6, "log(x)", ("y = 1", "z = 2"))]  # fmt: skip
    assert [one.line for one in match(before, now).new] == [3]


def test_what_is_gone_and_what_is_another_kind() -> None:
    reported = match(
        [row("TC104-1dc1", 5, "a"), row("TC110-2222", 8, "b")], [row("TC110-2222", 8, "b")]
    )
    assert ([one.id for one in reported.gone], reported.new, reported.moved) == (
        ["TC104-1dc1"],
        (),
        (),
    )


def test_a_file_that_was_renamed_keeps_its_findings() -> None:
    """Its ids are others, since a file's name is a part of them; another file has findings yet."""

    def rows(file: str, shift: int, *ids: str) -> list[Row]:
        return [Row(f"TC104-{name}", 1, shift + n, f"print({n})", title="print() is called",
                    where=f"{file}:{shift + n} in f") for n, name in enumerate(ids)]  # fmt: skip

    other = rows("other.py", 50, "0000")
    before, now = rows("old.py", 10, "1111.aa", "1111.bb"), rows("new.py", 20, "2222.aa", "2222.bb")
    reported = match([*before, *other], [*now, *other])
    assert not reported.new and not reported.gone
    assert list(reported.moved) == list(zip(before, now, strict=True))
    added = rows("third.py", 1, "3333", "4444", "5555")  # no new name of a file that is there still
    assert match([*before, *other], [*before, *other, *added]).new == tuple(added)


def test_a_baseline_without_texts_goes_by_ids() -> None:
    before = [Row.read({"id": "TC1-aaaa"}), Row.read({"id": "TC1-aaaa.2"})]
    reported = match(before, [row("TC1-aaaa", 1, "x"), row("TC1-aaaa.2", 2, "y")])
    assert not reported.new and not reported.gone


# -------------------------------------------------------------------------------------- words


def test_plurals_are_made_in_one_way() -> None:
    assert [plural(noun) for noun in ("process", "fix", "branch", "entry", "key", "rank")] == [
        "processes", "fixes", "branches", "entries", "keys", "ranks"]  # fmt: skip
    assert (count(1, "process"), count(4, "process")) == ("1 process", "4 processes")
    assert count(12345, "call", ",") == "12,345 calls"


def test_a_wall_of_inputs_is_a_line() -> None:
    names = [f"cache[{n}].shape[1]" for n in range(8)]
    assert grouped(names) == "cache[*].shape[1] (8 inputs)"
    parts = ["self.conv1[1].training", "self.bn1.training", "self.training", "is_training"]
    assert grouped(parts) == "*.training (3 inputs), is_training"
    assert grouped(["past['k'].shape[1]", "past['v'].shape[1]", "x.shape[0]"]) == (
        "past[*].shape[1] (2 inputs), x.shape[0]")  # fmt: skip
    modes = ["grad_mode", *(f"self.{name}.requires_grad" for name in "abcde")]
    assert (
        grouped(modes) == "grad_mode, self.a.requires_grad, self.b.requires_grad and 3 more inputs"
    )
    assert alike(["keys[0]", "keys[1]", "values[0]", "x"]) == ["keys[*]", "values[0]", "x"]


def test_near_names_and_sizes() -> None:
    assert did_you_mean("summry", ("summary", "show")) == "summary"
    assert did_you_mean("zzz", ("summary", "show")) == ""
    assert [file_size(n) for n in (5, 1500, 3_200_000, 1_100_000_000)] == [
        "5 B", "1.5 kB", "3.2 MB", "1.1 GB"]  # fmt: skip


def test_names_that_stand_side_by_side_differ() -> None:
    assert distinct(["graph", "loss", "graph"]) == ["graph 1", "loss", "graph 2"]
    assert distinct(["a", "a", "a 1"]) == ["a 2", "a 3", "a 1"]
    assert distinct([]) == []


@given(st.lists(st.sampled_from(("a", "a 1", "a 1 1", "a 2", "b")), max_size=8))
def test_no_two_names_are_the_same(names: list[str]) -> None:
    found = distinct(names)
    assert len(set(found)) == len(found) == len(names)
    assert all(now.startswith(name) for now, name in zip(found, names, strict=True))
