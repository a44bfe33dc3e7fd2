"""All events of `tc`: importing this module puts their rows into `EVENTS` and `KINDS`."""

from __future__ import annotations

from typing import Final

from tc.trace import events, run_events, source_events, stage_events
from tc.trace.events import EVENTS, Event, Fact

__all__ = ["EVENTS", "FILES", "Event", "Fact"]

FILES: Final = (events, run_events, source_events, stage_events)
