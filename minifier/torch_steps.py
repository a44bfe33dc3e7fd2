"""Numbers the optional steps of torch.compile, and refuses them from one on.

In: a gate, in a process of its own that compiles one program. PyTorch's own switches (those of its
`CompilerBisector`: decompositions, passes, lowerings) and three more (rewrites of its pattern
matcher, fusions, common subexpressions) ask it for leave. One count goes over all of them in the
order in which they happen, so that one binary search finds the first that a failure needs.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from typing import Any, Final

from tc.compiler import api

#: PyTorch's names of its switches -> what a step is called
KINDS: Final = {
    "decomposition": "decomposition",
    "pre_grad_passes": "pre_grad",
    "joint_graph_passes": "joint_graph",
    "post_grad_passes": "post_grad",
    "lowerings": "lowering",
    "cudagraphs": "cudagraphs",
}
PATTERNS: Final = ("LoweringPatternEntry", "GraphPatternEntry", "ReplacementPatternEntry")


def plant(gate: api.Gate) -> None:
    """Let all steps of this process ask a gate."""
    inductor("config").force_disable_caches = True  # what was compiled by other steps is no answer
    bisector = inductor("compiler_bisector").CompilerBisector
    bisector.disable_subsystem = classmethod(functools.partial(_is_refused, gate))
    patterns = inductor("pattern_matcher")
    for name in PATTERNS:
        entry = getattr(patterns, name)
        entry.apply = _rewriting(gate, entry.apply)
    scheduler = inductor("scheduler").Scheduler
    scheduler.can_fuse = _fusing(gate, scheduler.can_fuse)
    functorch: Any = sys.modules["torch._functorch.config"]
    if functorch.cse:
        functorch.cse = gate.allow("cse")


def inductor(name: str) -> Any:
    """Return a module of torch.compile, which the warm process has loaded."""
    return sys.modules[f"torch._inductor.{name}"]


def _is_refused(
    gate: api.Gate, cls: type, backend: str, subsystem: str,
    debug_info: Callable[[], str] | None = None,
) -> bool:  # fmt: skip
    if subsystem not in KINDS:
        return False
    detail = plain(debug_info()) if debug_info else ""
    return not gate.allow(".".join(filter(None, (KINDS[subsystem], detail))))


def _rewriting(gate: api.Gate, real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def apply(entry: Any, match: Any, graph: Any, node: Any) -> Any:
        name = getattr(entry, "pattern_name", None) or getattr(entry, "handler", None)
        text = getattr(name, "__name__", None) or str(name or node.target)
        if gate.allow(f"rewrite.{plain(text)}"):
            return real(entry, match, graph, node)
        return None

    return apply


def _fusing(gate: api.Gate, real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def can_fuse(scheduler: Any, one: Any, other: Any, *args: Any, **kwargs: Any) -> Any:
        allowed = real(scheduler, one, other, *args, **kwargs)
        return allowed and gate.allow(f"fusion.{made(one)}+{made(other)}")

    return can_fuse


def made(node: Any) -> str:
    """Return the operations that a node of the scheduler computes."""
    names = [
        origin.name
        for part in node.get_nodes()
        for origin in getattr(getattr(part, "node", None), "origins", ())
    ]
    return "_".join(sorted(set(names))) or str(node.get_name())


def plain(text: str) -> str:
    """Return the name in a description of PyTorch's: ``aten.silu`` of an `OpOverload`."""
    found = re.search(r"op='([\w.]+)', overload='(\w+)'", text)
    if found:
        return found[1] + (f".{found[2]}" if found[2] != "default" else "")
    return re.sub(r"[^\w.]+", "_", text).strip("_")
