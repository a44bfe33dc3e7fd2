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
