"""Reduces a script as Python text, where no graph exists: the statements it needs remain.

In: a script and an oracle. Out: the smallest script that fails alike. Hierarchical delta debugging
(Misherghi and Su, 2006): blocks from the outside inwards, then edits made from Python's grammar.
Every candidate passes `rendering.rendered`. A text that Python cannot print is reduced by lines.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tc.minifier.passes import edits, inlining, rendering

Fails = Callable[[str], bool]
Report = Callable[[str], None]

#: all edits, in the order in which they pay
TABLE: Final[tuple[edits.Edits, ...]] = (
    edits.unwrapped,
    inlining.function_bodies,
    edits.unnamed,
    edits.fewer_parameters,
    edits.fewer_items,
    edits.fewer_options,
    inlining.function_values,
    inlining.properties,
    inlining.loops_over_parts,
    inlining.statements_of_tests,
    inlining.next_values,
    edits.inlined,
    edits.hoisted,
    edits.constants,
    inlining.own_objects,
    inlining.values_of_classes,
    edits.not_async,
    edits.small_values,
)


def reduced(text: str, fails: Fails, report: Report) -> str:
    """Return the smallest script found; ``report`` is given each that is smaller than the last.

    The text itself has to fail; a printed text that does not fail alike, because its comments or
    its line numbers matter, is not used.
    """
    made = rendering.normal_form(text)
    if made is None or (made != text and not fails(made)):
        fewer = by_lines(text, fails, report)
        return reduced(fewer, fails, report) if len(fewer) < len(text) else text
    if made != text:
        report(made)
    reducer = _Reducer(made, fails, report)
    reducer.run()
    return reducer.text


def by_lines(text: str, fails: Fails, report: Report) -> str:
    """Leave out ever smaller runs of lines, as long as Python compiles the rest."""
    lines = text.splitlines()
    size = len(lines)
    while size:
        start = 0
        while start < len(lines):
            fewer = lines[:start] + lines[start + size :]
            candidate = "\n".join(fewer) + "\n"
            if rendering.is_program(candidate) and fails(candidate):
                lines = fewer
                report(candidate)
            else:
                start += size
        size //= 2
    return "\n".join(lines) + "\n" if lines != text.splitlines() else text


@dataclass
class _Reducer:
    text: str
    fails: Fails
    report: Report

    def run(self) -> None:
        before = ""
        while self.text != before:
            before = self.text
            self._statements()
            for made in TABLE:
                self._edits(made)

    def _take(self, tree: ast.Module) -> bool:
        """Continue with a tree if it fails alike and is no longer than the last."""
        text = rendering.rendered(tree)
        if text is None or text == self.text or len(text) > len(self.text) or not self.fails(text):
            return False
        self.text = text
        self.report(text)
        return True

    def _statements(self) -> None:
        """Leave out ever smaller runs of statements, block by block."""
        place = 0
        while place < len(found := edits.blocks(ast.parse(self.text))):
            size = len(found[place])
            while size:
                self._runs(place, size)
                size //= 2
            place += 1

    def _runs(self, place: int, size: int) -> None:
        """Leave out runs of so many statements, the last first: uses go before what they use.

        Where a name would be read that nothing binds any more, no run is spent.
        """
        found = edits.blocks(ast.parse(self.text))
        end = len(found[place]) if place < len(found) else 0
        while end > 0:
            tree = ast.parse(self.text)
            found = edits.blocks(tree)
            if place >= len(found):
                return
            block = found[place]
            before = rendering.unbound(tree)
            del block[max(end - size, 0) : end]
            if not block:
                block.append(ast.Pass())
            if rendering.unbound(tree) <= before:
                self._take(tree)
            end -= size

    def _edits(self, made: edits.Edits) -> None:
        """Make one edit at a time; each is tried on a tree of its own."""
        place = 0
        while True:
            tree = ast.parse(self.text)
            for number, _ in enumerate(made(tree)):
                if number == place:
                    break
            else:
                return
            if not self._take(tree):
                place += 1
