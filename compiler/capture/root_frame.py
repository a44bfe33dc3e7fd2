"""The frame under capture, whose locals become values when they are first read."""

from __future__ import annotations

from collections.abc import Set

from tc.compiler.capture import hook
from tc.compiler.capture.frame import Frame
from tc.compiler.capture.tracer import Tracer
from tc.compiler.capture.values.base import OpaqueValue, Value
from tc.compiler.capture.values.functions import CellValue
from tc.compiler.core.sources import LocalSource


class RootFrame(Frame):
    """The frame under capture: its locals are wrapped when they are first read."""

    def __init__(self, t: Tracer, frame: hook.Frame) -> None:
        code = frame.code
        cells = self._cells(t, frame)
        super().__init__(t, code, {}, cells, frame.globals, None)
        self.unread = {n: obj for n, obj in frame.locals.items() if n not in cells}

    @staticmethod
    def _cells(t: Tracer, frame: hook.Frame) -> dict[str, CellValue]:
        cells: dict[str, CellValue] = {}
        for name in frame.code.co_cellvars:
            cells[name] = CellValue(root_name=name)
            if name in frame.locals:
                cells[name].content = t.values.wrap(
                    frame.locals[name], LocalSource(name)
                )
        for name, cell in zip(frame.code.co_freevars, frame.closure, strict=True):
            cells[name] = CellValue(
                obj=cell, source=LocalSource(name, True), root_name=name
            )
            t.values.own_cell(cell, cells[name])
        return cells

    def is_bound(self, name: str) -> bool:
        """Return whether a local has a value, read or not."""
        return name in self.unread or super().is_bound(name)

    def bound(self, names: Set[str]) -> dict[str, Value]:
        """Return those of the given locals that have a value.

        Unread ones are passed on unwrapped.
        """
        found: dict[str, Value] = {}
        for name in names & self.unread.keys():
            found[name] = OpaqueValue(self.unread[name], LocalSource(name))
        return found | super().bound(names)

    def local(self, name: str) -> Value:
        """Return a local, wrapping an argument when it is first read.

        What was stored in its place is no argument: once that is deleted, there is none.
        """
        if name in self.unread:
            obj = self.unread.pop(name)
            if name not in self.locals:
                self.locals[name] = self.t.values.wrap(obj, LocalSource(name))
        return super().local(name)
