"""What a finding advises goes in as sentences; ways to fix it, each marked, come out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tc.trace.recipes import recipe_of
from tc.trace.trials import FAILED, HELPED, NO_HELP, OTHERWISE, UNTRIED, Trial


@dataclass(frozen=True, slots=True)
class Fix:
    """One way to fix a finding.

    Attributes:
        kind: patch, call (of a function of the compiler or of PyTorch), config, env or rewrite.
        text: a sentence, or the lines of a patch.
        safe: what the program computes, in which order it acts on the world, and what a call
            costs stay as they are; else a person has to review it.
        replayed: the recorded guards were replayed without the input it settles, and there were
            fewer recompiles: a prediction, no run.
        ran: the program was run again with it, and there were fewer breaks or recompiles.
        outcome: what a run with it gave, or why there was none; empty where nobody asked for one.
        patch: lines of the user's source that such a run had: `- old`, `+ new`.
    """

    kind: str
    text: str
    safe: bool = False
    replayed: bool = False
    ran: bool = False
    outcome: str = ""
    patch: str = ""

    @property
    def mark(self) -> str:
        """`review, unchecked`: what a reader has to know before taking it."""
        checked = self.outcome or (REPLAYED if self.replayed else UNCHECKED)
        return f"{'safe' if self.safe else 'review'}, {checked}"

    @property
    def verified(self) -> bool:
        """Whether anything but words speaks for it: a run with it, or a replay without it."""
        return self.ran or self.replayed

    def to_json(self) -> dict[str, str]:
        """Return the way as plain values."""
        safe = "yes" if self.safe else "review"
        verified = "yes" if self.verified else "no"
        checked = "ran with the edit" if self.ran else REPLAYED if self.replayed else ""
        return {"kind": self.kind, "text": self.text, "safe": safe, "verified": verified,
                "checked": checked, "outcome": self.outcome, "patch": self.patch,
                "told": self.outcome}  # fmt: skip  # the name that reports had before for `outcome`

    def tried(self, trial: Trial | None) -> Fix:
        """Return it with what a run of the program with it gave."""
        if trial is None or (trial.state == UNTRIED and self.replayed):
            return self
        return replace(self, replayed=False, ran=trial.state == HELPED, outcome=trial.mark,
                       patch=trial.patch)  # fmt: skip


def _row(kind: str, safe: bool, pattern: str) -> tuple[str, bool, re.Pattern[str]]:
    return kind, safe, re.compile(pattern)


_ORDER: Final = (HELPED, UNTRIED, NO_HELP, OTHERWISE, FAILED)
NO_FIX: Final = "no edit is known"
NOTHING_TO_DO: Final = "nothing to do"
REPLAYED: Final = "guard replayed"
UNCHECKED: Final = "unchecked"
_PATCH: Final = ("- ", "+ ")
_ROWS: Final = (
    _row("call", True, r"mark_dynamic\b|dynamic=True|\bmark them static,"),
    # of PyTorch, they can end the program: the backend may need the number, or the size
    _row("config", True, r"\btc\.config\.(?:capture_scalar_outputs"
         r"|capture_dynamic_output_shape_ops)\b|\bconfig\.allow_unspec_int_on_nn_module\b"),
    _row("config", False, r"\bconfig\.\w|^set \S*config\["),
    _row("env", True, r"^set \S+ to a folder|^keep \S+_CACHE_DIR = |^check that a working C\+\+"),
    _row("call", True, r"^reproduce it with:|^report the error|^trace again|^give tc-report"
         r"|^see the recompiles|nothing to do$|^nothing to do if |save_cache_artifacts\(\)"
         r"|with tc\.disable\b"),
    _row("rewrite", True, r"^remove the call of graph_break\(\)$|^one graph for each value is"),
    _row("call", False, r"\btorch\.(?:cond|where|_check|_assert_async|library|compiler)\b"),
)  # fmt: skip
"""The first row found in a sentence gives its kind and whether it is safe; else it is reviewed."""


def fix_of(text: str, replayed: bool = False) -> Fix:
    """Return one way with its marks; `replayed`: without the input, a replay recompiled less."""
    if text.startswith(_PATCH):
        return Fix("patch", text)
    recipe = recipe_of(text)
    if recipe is not None:  # what changed between two compiles
        return Fix(recipe.kind, text, recipe.safe, replayed and recipe.settles)
    for kind, safe, pattern in _ROWS:
        if pattern.search(text):
            return Fix(kind, text, safe)
    return Fix("rewrite", text)


def fixes_of(
    texts: Iterable[str], replayed: bool = False, trials: Iterable[Trial] = ()
) -> tuple[Fix, ...]:
    """Return the ways in order; lines that start with `- ` or `+ ` in a row are one patch.

    Those that helped when they were tried come first, those that did not come last; one with which
    the program printed something else did not help, whatever it saved.
    """
    known: Mapping[str, Trial] = {one.text: one for one in trials}
    ways: list[Fix] = []
    for text in texts:
        if text.startswith(_PATCH) and ways and ways[-1].kind == "patch":
            ways[-1] = Fix("patch", f"{ways[-1].text}\n{text}")
        else:
            ways.append(fix_of(text, replayed))
    if not known:
        return tuple(ways)
    order = {way.text: _ORDER.index(known[way.text].state) for way in ways if way.text in known}
    ways.sort(key=lambda way: order.get(way.text, _ORDER.index(UNTRIED)))
    return tuple(way.tried(known.get(way.text)) for way in ways)
