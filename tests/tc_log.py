"""Events of tc go in; a trace of them by tc's own writer, and what is found in it, come out."""

from __future__ import annotations

import time
from pathlib import Path

from tc.trace import events as ev
from tc.trace.findings import Diagnosis, diagnose
from tc.trace.ids import CompileId
from tc.trace.session import load
from tc.trace.writer import TraceWriter


class Compiler:
    """Writes a trace through tc's own writer."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.writer = folder, TraceWriter(str(folder))

    def say(self, event: ev.Event, number: int = 0, frame: int = 0) -> Compiler:
        stamped = ev.Stamped(event, CompileId(frame, number), time.time_ns(), __file__, 1)
        self.writer.write(stamped)
        return self

    def start(self, number: int = 0, frame: int = 0, name: str = "f") -> Compiler:
        stack = (ev.StackFrame("/home/me/model.py", 3, name, "def f(x):"),)
        return self.say(ev.FrameStart(stack), number, frame)

    def end(self) -> Diagnosis:
        self.writer.close()
        return diagnose(load(self.folder))
