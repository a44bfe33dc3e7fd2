"""Attention on the CPU: where `routines/attention.py` takes the place of ATen's routine."""

from __future__ import annotations

from tc.compiler.library.editor import Editor, fake
from tc.compiler.loops.lower.registry import ROUTINE
from tc.compiler.routines import attention


def attend(editor: Editor) -> None:
    """Have the routine compute attention where it does so faster."""
    if not attention.ROUTINE.runs_here:
        return
    for node in editor.graph.find_nodes(op="call_function", target=attention.FLASH):
        query, key, value, *options = node.args
        mask = fake(node.kwargs.get("attn_mask"))
        drops = bool(options and options[0])
        reason = attention.refusal(fake(query), fake(key), fake(value), mask, drops)
        if editor.decide("attention", [node], not reason, reason or "tc's routine is faster"):
            needs_sums = any(user.args[1] == 1 and user.users for user in node.users)
            with_sums, alone = attention.ROUTINE.calls
            node.meta[ROUTINE] = with_sums if needs_sums else alone
