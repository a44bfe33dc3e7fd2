"""A `ShapeEnv` that notes every question on sizes, and keeps symbols whatever the answers are.

Capture continues with a number where code needs one size, and asks no further about that
dimension. To find all the lines that need it, answers here teach nothing: the symbol is asked
again.
"""

from __future__ import annotations

import functools
from typing import Any

from tc.compiler.core import ahead


@functools.cache
def asking(base: Any) -> Any:
    """Return a subclass of the environment class of `shapes` that notes questions."""

    class AskingShapeEnv(base):  # type: ignore[misc]
        def evaluate_sym_node(self, sym_node: Any, *args: Any, **kwargs: Any) -> Any:
            answer = super().evaluate_sym_node(sym_node, *args, **kwargs)
            noted, on_guard = ahead.noted(), self._on_guard()
            if (
                noted is not None
                and on_guard is not None
                and sym_node.expr.free_symbols
            ):
                sources = {
                    str(symbol): found[0].name
                    for symbol, found in self.var_to_sources.items()
                    if found and symbol in sym_node.expr.free_symbols
                }
                line = on_guard.__self__._user_line()
                noted.questions.append(
                    ahead.Question(sym_node.expr, answer, sources, line)
                )
            return answer

        def _set_replacement(self, a: Any, tgt: Any, msg: str) -> None:
            # a symbol of data represents what it is equal to
            if a not in self.var_to_sources:
                super()._set_replacement(a, tgt, msg)

        def _refine_ranges(self, expr: Any) -> None:
            """Learn nothing of a range."""

    return AskingShapeEnv
