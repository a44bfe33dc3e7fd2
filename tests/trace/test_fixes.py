"""Advice in sentences goes in; ways with their marks come out."""

import pytest

from tc.compiler.capture.breaks import REASONS
from tc.trace.findings.advice import ROWS
from tc.trace.findings.model import Cause
from tc.trace.findings.remedies import remedy
from tc.trace.fixes import Fix, fix_of, fixes_of
from tc.trace.trials import FAILED, HELPED, NO_HELP, OTHERWISE, UNTRIED, Trial

MARKED = "tc.maybe_mark_dynamic(x, 0) before the first call"
SAFE = {
    "remove the call of graph_break()",
    "see the recompiles of this function for what keeps changing",
    "tc.config.capture_dynamic_output_shape_ops = True",
    "tc.config.capture_scalar_outputs = True, if the number only feeds tensors",
}


def test_of_all_advice_on_breaks_exactly_these_is_safe() -> None:
    """New advice is for review until somebody says here that it is safe."""
    got = [text for name in REASONS for text in REASONS[name].fix]
    theirs = [text for row in ROWS for text in row.fix]
    assert {text for text in (*got, *theirs) if fix_of(text).safe} == SAFE


@pytest.mark.parametrize(
    ("text", "kind", "safe"),
    [
        ("tc.maybe_mark_dynamic(x, 0)", "call", True),
        ("set TC_CACHE_DIR to a folder that outlives the run, or the container", "env", True),
        ("reproduce it with: tc-minify a.py", "call", True),
        ("write both sides as tensors: torch.where(condition, a, b)", "call", False),
        ("if all these compiles are wanted, raise the limit: tc.config.recompile_limit",
         "config", False),
        ("torch._dynamo.config.capture_dynamic_output_shape_ops = True", "config", False),
        ("move the call out of the compiled function", "rewrite", False),
        ("words of a newer version", "rewrite", False),
    ],
)  # fmt: skip
def test_kind_and_mark(text: str, kind: str, safe: bool) -> None:
    assert fix_of(text) == Fix(kind, text, safe)
    assert fix_of(text).mark == f"{'safe' if safe else 'review'}, unchecked"


def test_lines_of_a_patch_are_one_way_and_never_checked() -> None:
    ways = fixes_of(("- a", "+ tc.mark_dynamic(b)", "else", "+ d"), replayed=True)
    assert ways == (
        Fix("patch", "- a\n+ tc.mark_dynamic(b)"),
        Fix("rewrite", "else"),
        Fix("patch", "+ d"),
    )


def test_a_replay_checks_only_what_settles_the_input() -> None:
    size = Cause("x.shape[0]", "4", "5", "size")
    replayed = [way.replayed for way in fixes_of(remedy(size, "tc")[2], replayed=True)]
    assert replayed == [True, True, False]  # padding to few values still recompiles for each
    step = Cause("self.step", "0", "1", "constant")
    assert [way.verified for way in fixes_of(remedy(step, "tc")[2], replayed=True)] == [True]
    mode = Cause("mode", "'a'", "'b'", "constant")  # a string is no tensor: nothing settles it
    assert not any(way.replayed for way in fixes_of(remedy(mode, "tc")[2], replayed=True))
    assert not fix_of("keep n as a tensor, or move the update out", replayed=True).verified
    assert not fix_of("tc.maybe_mark_dynamic(x, 0)").verified


def test_as_plain_values() -> None:
    assert fix_of("tc.maybe_mark_dynamic(x, 0) before the first call", replayed=True).to_json() == {
        "kind": "call",
        "text": "tc.maybe_mark_dynamic(x, 0) before the first call",
        "safe": "yes",
        "verified": "yes",
        "checked": "guard replayed",
        "outcome": "",
        "told": "",
        "patch": "",
    }


def test_what_was_tried_counts_more_than_what_was_replayed() -> None:
    texts = ("pad x", "guard it", MARKED, "write it otherwise", "dynamic=True")
    trials = [
        Trial(("TC1-a",), "guard it", OTHERWISE, "breaks 2 → 1, OTHER RESULTS: 'a' is gone"),
        Trial(("TC1-a",), "pad x", NO_HELP, "breaks 2 → 2"),
        Trial(("TC1-a",), MARKED, UNTRIED, "not at hand"),
        Trial(("TC1-a",), "write it otherwise", FAILED, "it raises"),
        Trial(("TC1-a",), "dynamic=True", HELPED, "breaks 2 → 1", "- a\n+ b"),
    ]
    ways = fixes_of(texts, replayed=True, trials=trials)
    assert [(way.text, way.mark, way.verified) for way in ways] == [
        ("dynamic=True", "safe, ran with the edit: breaks 2 → 1", True),
        (MARKED, "safe, guard replayed", True),
        ("pad x", "review, ran with the edit: breaks 2 → 2", False),
        ("guard it", "review, ran with the edit: breaks 2 → 1, OTHER RESULTS: 'a' is gone", False),
        ("write it otherwise", "review, unchecked: it raises", False),
    ]
    assert ways[0].patch == "- a\n+ b"
    untried = fixes_of(texts[2:3], trials=trials)
    assert untried[0].mark == "safe, unchecked: not at hand"
