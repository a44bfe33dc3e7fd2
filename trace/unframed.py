"""Records that name no frame go in; the export or ahead-of-time compile they are of comes out.

`torch.export`, AOTInductor and `make_fx` compile what no frame asked for, so their records carry
the Python stack in place of a frame's number. The innermost line of the user's on it, and the
function of torch that it called, say whose work they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Final

from tc.trace.compiles import FRAMEWORK
from tc.trace.reader import Record

AOT: Final = "aot"
EXPORT: Final = "export"
SPECIALIZED: Final = "symbolic_shape_specialization"
TRACE: Final = "make_fx"
#: The timed step that is one ahead-of-time compile.
AOT_STEP: Final = "compile_fx_aot"
FAILED: Final = "make_fx_fail_partial"
_ROWS: Final = (
    (AOT, re.compile(r"[/\\]compile_fx\.py$"), re.compile(r"^compile_fx_aot$")),
    (AOT, re.compile(r"[/\\]_inductor[/\\]__init__\.py$"), re.compile(r"^_?aoti?_compile")),
    (EXPORT, re.compile(r"[/\\]torch[/\\]export[/\\]"), re.compile(r"")),
    (TRACE, re.compile(r"[/\\]proxy_tensor\.py$"), re.compile(r"^(?:wrapped|trace)$")),
)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the user's that compiled something outside of any frame."""

    kind: str
    file: str
    line: int
    function: str
    code: str

    @property
    def title(self) -> str:
        """What was called, as a person would name it."""
        return {AOT: "AOTInductor compile", EXPORT: "export", TRACE: "make_fx"}[self.kind]


@dataclass(slots=True)
class Unframed:
    """Numbers the calls of one log in the order of their records."""

    _number: dict[tuple[int, str], int] = field(default_factory=dict)
    _open: dict[tuple[int, str], Call | None] = field(default_factory=dict)  # None: not yet known
    _begun: set[tuple[int, str]] = field(default_factory=set)

    def copy(self) -> Unframed:
        """Return an independent copy."""
        return Unframed(copy(self._number), copy(self._open), copy(self._begun))

    def of(self, record: Record, strings: Mapping[int, str]) -> tuple[str, Call] | None:
        """Return the id of the call that a record belongs to, None if it is of no such call."""
        call = call_of(record.context.get("stack"), strings)
        if call is None:
            return None
        key = record.pid, call.kind
        first_storage = record.event == "describe_storage" and record.value.get("id") == 0
        again = first_storage and key in self._begun and call.kind != AOT
        if again or key not in self._open or self._open[key] not in (None, call):
            self._next(key)
        self._open[key] = call
        if first_storage:
            self._begun.add(key)
        name = self._name(key)
        if record.event == "artifact" and record.value.get("name") == FAILED:
            self.end(record.pid, call.kind)
        return name, call

    def timed(self, pid: int, phase: str) -> str:
        """Return the id of the ahead-of-time compile that a timed step is of; its end closes it."""
        key = pid, AOT
        if key not in self._open:
            self._next(key)
            self._open[key] = None
        name = self._name(key)
        if phase in ("X", "E"):
            self.end(pid, AOT)
        return name

    def end(self, pid: int, kind: str) -> None:
        """Note that a call is over: what comes next is another one."""
        self._open.pop((pid, kind), None)
        self._begun.discard((pid, kind))

    def _next(self, key: tuple[int, str]) -> None:
        self._number[key] = self._number.get(key, -1) + 1
        self._begun.discard(key)

    def _name(self, key: tuple[int, str]) -> str:
        return f"{key[1]}{self._number[key]}/0"


def call_of(stack: Any, strings: Mapping[int, str]) -> Call | None:
    """Return the call that a stack, outermost frame first, is inside of."""
    if not isinstance(stack, list):
        return None
    frames = [one for one in stack if isinstance(one, dict)]
    names = [_file(one, strings) for one in frames]
    kind = next((kind for kind, file, function in _ROWS
                 if any(file.search(name) and function.search(str(one.get("name")))
                        for name, one in zip(names, frames, strict=True))), "")  # fmt: skip
    mine = [n for n, name in enumerate(names) if name and not FRAMEWORK.search(name)]
    if not kind or not mine:
        return None
    # The user's own functions are called back while exporting: the call is the line before torch.
    called = next((n for n in mine if n + 1 not in mine), mine[-1])
    frame = frames[called]
    line = frame.get("line")
    return Call(kind, names[called], line if isinstance(line, int) else 0,
                str(frame.get("name") or ""), str(frame.get("loc") or ""))  # fmt: skip


def frames_in(value: Mapping[str, Any]) -> Any:
    """Return the frames of a record of an export: the user's, or all that there were."""
    return value.get("user_stack") or value.get("stack")


def _file(frame: Mapping[str, Any], strings: Mapping[int, str]) -> str:
    number = frame.get("filename")
    return strings.get(number, "") if isinstance(number, int) else str(number or "")
