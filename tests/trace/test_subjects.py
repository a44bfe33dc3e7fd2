"""What changed and where chooses the advice; a frame that was given up is no failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from tc.trace.compiles import Compile, Failure, Note
from tc.trace.findings.model import Cause
from tc.trace.findings.remedies import remedy
from tc.trace.session import _keep_failures


@pytest.mark.parametrize("order", [1, -1])
def test_a_frame_is_given_up_whichever_of_its_breaks_says_so(order: int) -> None:
    texts = ("Attempted to wrap sparse Tensor", "Skipping the function and falling back to eager.")
    notes = [Note("dynamo_graph_break_reason", text, 0, 0, "", "") for text in texts[::order]]
    one = Compile("2/0", 1, None, 0, notes=notes, failure=Failure("Unsupported", "sparse"))
    _keep_failures(one)
    assert one.failure is None and one.given_up is not None


@pytest.mark.parametrize(
    "source, old, new, kind, guard, first",
    [
        ("self.a.bias.requires_grad", "True", "False", "tensor", "failed on a parameter",
         "nothing to do: one graph for each choice"),
        ("list(fn._modules)", "3 keys", "", "constant", "", "nothing to do: a module"),
        ("where.stop", "3", "4", "constant", "", "pass where.stop as an argument"),
        ("batch.mask", "None", "a tensor", "constant", "", "give batch.mask a tensor"),
        ("os.environ['FAST']", "absent", "present", "constant", "", "set it once"),
        ("x.shape[1]", "2 <= x.shape[1] <= 16", "1", "shape", "", "nothing to do: sizes 0 and 1"),
        ("x.shape[0]", "(x.shape[0] % 4) == 0", "13", "shape", "", "pad x.shape[0] to a multiple"),
    ],
)  # fmt: skip
def test_advice_follows_type_and_place(
    source: str, old: str, new: str, kind: str, guard: str, first: str
) -> None:
    _, _, fixes = remedy(Cause(source, old, new, kind, guard), "tc", "f")
    assert fixes[0].startswith(first)


def test_keywords_that_a_wrapper_takes_are_those_of_each_call(tmp_path: Path) -> None:
    """The wrapper adds to them, and that makes no difference from call to call."""
    file = tmp_path / "m.py"
    file.write_text("def wrapped(**kwargs):\n    kwargs['mask'] = None\n    return f(**kwargs)\n")
    for name, first in (("kwargs", "give kwargs the same keys"), ("table", "pad table")):
        cause = Cause(f"len({name})", "6", "7", "length")
        title, _, fixes = remedy(cause, "torch", "wrapped", at=(str(file), 2))
        assert fixes[0].startswith(first), title


@pytest.mark.parametrize(
    "line, name, first",
    [
        ("return x.sum(axis, keepdim=True)", "axis", "nothing to do if it takes few values"),
        ("return vmap(f, in_dims=axis)(x)", "axis", "nothing to do if it takes few values"),
        ("return x * axis", "axis", "tc.compile(..., dynamic=True) makes numbers dynamic"),
    ],
)
def test_no_tensor_names_a_dimension(tmp_path: Path, line: str, name: str, first: str) -> None:
    file = tmp_path / "m.py"
    file.write_text(f"def f(x, axis):\n    {line}\n")
    cause = Cause(name, "2", "3", "constant")
    assert remedy(cause, "tc", "f", at=(str(file), 2))[2][0].startswith(first)
    small = Cause(name, "2", "1", "small")
    assert ("0-d" in "".join(remedy(small, "tc", "f", at=(str(file), 2))[2])) is False


def test_what_is_gone_through_item_by_item_has_no_edit_before_the_call(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text("def f(x, tree):\n    for kid in tree.kids:\n        x = x + f(x, kid)\n")
    cause = Cause("len(tree.kids)", "0", "1", "length", of_tensors=False)
    _, _, fixes = remedy(cause, "torch", "f", at=(str(file), 2))
    assert len(fixes) == 1 and fixes[0].startswith("nothing to do if it takes few values")


def test_what_torch_keeps_for_itself_is_set_nowhere_in_the_program() -> None:
    number = Cause("torch.nn.utils.parametrize._cache_enabled", "0", "1", "constant")
    assert "0-d" not in "".join(remedy(number, "tc", "forward")[2])
    keys = Cause("(140, 'weight') in torch.nn.utils.parametrize._cache", "absent", "present", "")
    title, _, fixes = remedy(keys, "torch", "forward")
    assert "140" not in title and fixes[0].startswith("torch.nn.utils.parametrize._cache is")


def test_hooks_are_those_of_a_module_that_is_named() -> None:
    cause = Cause("list(self.b._forward_pre_hooks)", "()", "(2,)", "constant")
    assert remedy(cause, "tc", "forward")[0] == "hooks of self.b were added or removed"
    unnamed = Cause("len(___stack0._forward_hooks)", "0", "1", "length")
    assert remedy(unnamed, "tc", "forward")[0] == "hooks of a module were added or removed"


@pytest.mark.parametrize(
    ("body", "first"),
    [
        (
            "if self.old is not None:\n        x = x + self.old\n    self.old = x",
            "nothing to do if",
        ),
        ("if self.old is None:\n        self.old = x * 0", "make self.old before the first call"),
        ("if self.old is not None:\n        x = x + self.old", "make self.old before"),
    ],
)
def test_what_the_last_call_left_has_no_value_before_the_first(
    tmp_path: Path, body: str, first: str
) -> None:
    file = tmp_path / "m.py"
    file.write_text(f"def f(self, x):\n    {body}\n    return x\n")
    cause = Cause("self.old", "None", "a tensor", "constant")
    assert remedy(cause, "tc", "f", at=(str(file), 2))[2][0].startswith(first)


def test_the_parameter_of_a_turn_is_no_other_module(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text("def step(params):\n    for p in params:\n        p.add_(1)\n")
    cause = Cause("p.shape[0]", "6", "4", "size", "torch.nn.parameter.Parameter")
    begins = str(file), 1
    made = remedy(cause, "tc", "torch_dynamo_resume_in_step_at_2", at=begins, begins=begins)
    assert made[2] == ("fix the graph break before it: then no value is passed across it",)
    passed = remedy(cause, "tc", "step", at=begins, begins=begins)
    assert passed[2][0].startswith("nothing to do: a module that is made of other parts")


def test_sizes_that_change_together_are_marked_together() -> None:
    cause = Cause("rays.a.shape[0]", "4", "6", "size")
    sizes = ["rays.a.shape[0]", "rays.b.shape[0]"]
    (marks,) = (one for one in remedy(cause, "tc", "f", sizes)[2] if "mark_dynamic" in one)
    assert "maybe_mark_dynamic(rays.a, 0), tc.maybe_mark_dynamic(rays.b, 0) where" in marks


@pytest.mark.parametrize(
    ("old", "new", "helps"),
    [("0", "1", True), ("4", "5", True), ("2", "1", False), ("0.0", "0.5", False)],
)
def test_the_setting_for_ints_of_modules_is_for_ints(old: str, new: str, helps: bool) -> None:
    fixes = remedy(Cause("self.n", old, new, "constant"), "torch", "forward")[2]
    assert any("allow_unspec_int" in one for one in fixes) is helps
