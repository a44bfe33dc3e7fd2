"""Compile ids print and parse; cause ids last."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tc.trace import CompileId, cause_id, plain_function, process_rank
from tc.trace.ids import Numbering, changed_apart, leading_source

NUMBERS = st.integers(0, 10**6)


@given(NUMBERS, NUMBERS, NUMBERS)
def test_printed_id_is_read_back(frame: int, number: int, attempt: int) -> None:
    one = CompileId(frame, number, attempt)
    assert CompileId.parse(str(one)) == one == CompileId.parse(one.bracket)


def test_forms() -> None:
    assert str(CompileId(0, 1)) == "0/1"
    assert str(CompileId(0, 1, 2)) == "0/1_2"
    assert CompileId(3, 0).bracket == "[3/0]"


def test_order_is_that_of_compiling() -> None:
    ids = [CompileId(1, 0), CompileId(0, 10), CompileId(0, 2, 1), CompileId(0, 2)]
    assert list(map(str, sorted(ids))) == ["0/2", "0/2_1", "0/10", "1/0"]


@pytest.mark.parametrize("text", ["", "0", "a/b", "0/1/2", "-1/0", "0/1_"])
def test_garbage_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no compile id"):
        CompileId.parse(text)


def test_cause_id_survives_what_changes_between_runs() -> None:
    one = cause_id("TC110", "/a/model.py", "f", "size 4 at 0x7f00")
    assert one == cause_id(
        "TC110", "/b/c/model.py", "torch_dynamo_resume_in_f_at_9", "size 8 at 0x1"
    )
    assert one.startswith("TC110-")
    others = {
        cause_id("TC111", "model.py", "f", "size 4 at 0x7f00"),
        cause_id("TC110", "other.py", "f", "size 4 at 0x7f00"),
        cause_id("TC110", "model.py", "g", "size 4 at 0x7f00"),
        cause_id("TC110", "model.py", "f", "stride"),
    }
    assert one not in others and len(others) == 4


def test_cause_id_distinguishes_dimensions() -> None:
    """Another dimension is another cause: mending one must not make the other "still there"."""
    sources = ("x.shape[0]", "x.shape[1]", "x.shape[12]", "branch on x.shape[0]", "x.stride(1)")
    assert len({cause_id("TC201", "m.py", "f", source) for source in sources}) == len(sources)


def test_cause_id_takes_any_text() -> None:
    assert cause_id("TC1", "\ud800", "\udfff", "\x00")


def test_resume_names_of_methods_are_undone() -> None:
    inner = "Net.torch_dynamo_resume_in_torch_dynamo_resume_in_forward_at_3_at_9"
    assert plain_function(inner) == "Net.forward"


def test_resume_names_are_undone() -> None:
    inner = "torch_dynamo_resume_in_torch_dynamo_resume_in_f_at_3_at_9"
    assert plain_function(inner) == "f"
    assert plain_function("forward") == "forward"


def test_rank_comes_from_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.distributed", None)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setenv("RANK", "3")
    assert process_rank() is None
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert process_rank() == 3
    monkeypatch.setenv("RANK", "x")
    assert process_rank() is None


def test_rank_comes_from_a_running_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    class Distributed:
        ready = True

        def is_available(self) -> bool:
            return True

        def is_initialized(self) -> bool:
            return self.ready

        def get_rank(self) -> int:
            return 5

    distributed = Distributed()
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert process_rank() == 5
    distributed.ready = False
    assert process_rank() == 3


def test_import_is_light() -> None:
    program = """
import sys, time
began = time.process_time()
import tc.trace
print(time.process_time() - began)
tc.trace.process_rank()
heavy = ("torch", "structlog", "jinja2", "numpy", "logging", "hashlib")
print([name for name in heavy if name in sys.modules])
"""
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        for _ in range(3)
    ]
    seconds = min(float(run.stdout.split()[0]) for run in runs)
    assert runs[0].stdout.splitlines()[1] == "[]"
    assert seconds < 0.06  # 0.03 on an idle machine


def test_ids_that_begin_again_are_distinguished() -> None:
    ids = Numbering()
    ids.begin(7, "0/0")
    ids.begin(7, "1/0")
    ids.announce(7, "0/1")
    ids.begin(7, "0/1")
    assert [ids.name(7, one) for one in ("0/0", "0/1", "1/0")] == ["0/0", "0/1", "1/0"]
    ids.begin(7, "0/0")
    assert [ids.name(7, one) for one in ("0/0", "0/1", "1/0")] == ["2~0/0", "0/1", "1/0"]
    ids.announce(7, "0/1")
    assert ids.name(7, "0/1") == "2~0/1"
    ids.begin(7, "0/1")
    assert ids.name(7, "0/1") == "2~0/1", "announced, begun once"
    other = ids.copy()
    other.begin(7, "0/0")
    assert (ids.name(7, "0/0"), other.name(7, "0/0")) == ("2~0/0", "3~0/0")
    assert other.name(8, "0/0") == "0/0", "another process counts for itself"


@pytest.mark.parametrize(
    ("changed", "leads"),
    [
        ([("autocast_state", "{}", False), ("self.step", "3", False)], "self.step"),
        ([("flag", "True", False), ("list(extra)", "('k1',)", False)], "list(extra)"),
        ([("grad_mode", "False", False), ("w.requires_grad", "False", False)], "grad_mode"),
        ([("autocast_state", "{}", False), ("h.dtype", "bfloat16", False)], "autocast_state"),
        ([("x.dtype", "float64", False), ("x.stride[0]", "72", False)], "x.dtype"),
        ([("self.drop.training", "True", False), ("n", "5", True)], "self.drop.training"),
        ([("n", "5", True), ("flag", "True", False)], "flag"),
        ([("flag", "True", False)], "flag"),
        ([], "an input"),
    ],
)
def test_a_switch_leads_only_where_nothing_else_changed(
    changed: list[tuple[str, str, bool]], leads: str
) -> None:
    assert leading_source(changed) == leads


@pytest.mark.parametrize(
    ("sources", "changes"),
    [
        (["cache[0].shape[1]", "cache[1].shape[1]", "cache[12].shape[1]"], 1),
        (["x.dtype", "self.weight.dtype", "self.layers[3].bias.dtype"], 1),
        (["x.device", "self.weight.device", "x.shape[0]"], 2),
        (["x.dtype", "x.device", "type(self[0])"], 3),
        ([], 0),
    ],
)
def test_what_changes_together_counts_once(sources: list[str], changes: int) -> None:
    assert changed_apart(sources) == changes
