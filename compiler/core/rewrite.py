"""The rewrite engine: rules `(pattern, rewrite)` over any immutable tree, applied to a fixed point.

In: rules, a description of the tree (`Shape`) and a root. Out: the rewritten root. The engine, not
the rules, asks for leave, numbers each firing and reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

N = TypeVar("N")


@dataclass(frozen=True)
class Any_:
    """Matches any node, bound to a name; the same name twice must match the same node."""

    name: str
    when: Callable[[Any], bool] | None = None


@dataclass(frozen=True)
class Match:
    """Matches a node of one operation with the given operands, optionally bound to a name."""

    op: str
    operands: tuple[Match | Any_, ...]
    name: str | None = None


def match(op: str, *operands: Match | Any_, name: str | None = None) -> Match:
    """Spell a pattern as a call."""
    return Match(op, operands, name)


@dataclass(frozen=True)
class Rule:
    """One rewrite.

    Attributes:
        name: unique in its table; the gate is asked for ``<prefix>.<name>``.
        pattern: what it fires on; its names become arguments of ``rewrite``.
        rewrite: returns the new node, or None to leave the node alone.
        says: before → after, for people.
    """

    name: str
    pattern: Match
    rewrite: Callable[..., Any]
    says: str


@dataclass(frozen=True)
class Firing:
    """One application of a rule; the nodes print themselves."""

    number: int
    rule: str
    before: Any
    after: Any


@dataclass(frozen=True)
class Shape(Generic[N]):
    """How to walk a tree: a node's operation, its operands, and the same node over new operands."""

    op: Callable[[N], str]
    operands: Callable[[N], Sequence[N]]
    rebuild: Callable[[N, Sequence[N]], N]


class Rewriter(Generic[N]):
    """Applies rules bottom-up until none fires; remembers nodes across roots."""

    def __init__(
        self,
        rules: Iterable[Rule],
        shape: Shape[N],
        allow: Callable[[str], bool],
        observe: Callable[[Firing], None] | None = None,
    ) -> None:
        self._rules: dict[str, list[Rule]] = {}
        for rule in rules:
            self._rules.setdefault(rule.pattern.op, []).append(rule)
        self._shape = shape
        self._allow = allow
        self._observe = observe
        self._done: dict[N, N] = {}
        self.firings = 0

    def rewrite(self, root: N) -> N:
        """Return the root with all rules applied."""
        done, shape = self._done, self._shape
        stack: list[N] = [root]
        while stack:
            node = stack[-1]
            if node in done:
                stack.pop()
                continue
            operands = shape.operands(node)
            waiting = [operand for operand in operands if operand not in done]
            if waiting:
                stack.extend(waiting)
                continue
            stack.pop()
            settled = [done[operand] for operand in operands]
            same = all(a is b for a, b in zip(settled, operands, strict=True))
            rebuilt = node if same else shape.rebuild(node, settled)
            after = self._fire(rebuilt)
            if after is rebuilt:
                done[node] = done[rebuilt] = rebuilt
            else:
                done[node] = self.rewrite(after)
        return done[root]

    def _fire(self, node: N) -> N:
        for rule in self._rules.get(self._shape.op(node), ()):
            bound: dict[str, Any] = {}
            if not self._matches(rule.pattern, node, bound):
                continue
            after: N | None = rule.rewrite(**bound)
            if after is None or after is node or not self._allow(rule.name):
                continue
            self.firings += 1
            if self._observe is not None:
                self._observe(Firing(self.firings, rule.name, node, after))
            return after
        return node

    def _matches(self, pattern: Match | Any_, node: N, bound: dict[str, Any]) -> bool:
        name = pattern.name
        if name is not None:
            if name in bound:
                return bound[name] is node
            bound[name] = node
        if isinstance(pattern, Any_):
            return pattern.when is None or pattern.when(node)
        if self._shape.op(node) != pattern.op:
            return False
        operands = self._shape.operands(node)
        return len(operands) == len(pattern.operands) and all(
            self._matches(sub, operand, bound)
            for sub, operand in zip(pattern.operands, operands, strict=True)
        )
