"""Identity: numbers, names and reasons in; compile ids, cause ids and the rank out."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Final

from tc.trace.places import file_name

_COMPILE_ID = re.compile(r"\[?(\d+)/(\d+)(?:_(\d+))?\]?")
_RESUME_NAME = re.compile(r"^((?:.+\.)?)torch_dynamo_resume_in_(.+)_at_\d+$")
#: what differs from run to run; which dimension of a tensor is meant does not
_VOLATILE = re.compile(r"(\.(?:shape|stride)[\[(]\d+)|0x[0-9a-fA-F]+|\d+")


@dataclass(frozen=True, order=True)
class CompileId:
    """One compile: the n-th of a frame, and how often its analysis started over.

    Attributes:
        frame: number of the frame in this process.
        compile: number of the compile of that frame; above 0 there were others before it,
            with code or without.
        attempt: number of the analysis within the compile.
    """

    frame: int
    compile: int
    attempt: int = 0

    def __str__(self) -> str:
        again = f"_{self.attempt}" if self.attempt else ""
        return f"{self.frame}/{self.compile}{again}"

    @property
    def bracket(self) -> str:
        """The form people see, ``[0/1]``."""
        return f"[{self}]"

    @classmethod
    def parse(cls, text: str) -> CompileId:
        """Read ``0/1``, ``0/1_2`` or ``[0/1]``.

        Raises:
            ValueError: the text is no compile id.
        """
        match = _COMPILE_ID.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is no compile id; one looks like 0/1 or 0/1_2")
        frame, number, attempt = match.groups()
        return cls(int(frame), int(number), int(attempt or 0))


class Numbering:
    """Keeps compiles apart that share an id: a reset of the compiler counts frames from 0 again.

    What is written of an id belongs to the newest compile of it. After the first reset that one
    is called ``2~0/1``, after the second ``3~0/1``.
    """

    def __init__(self) -> None:
        self._turn: dict[int, int] = {}  # process -> resets + 1
        self._begun: dict[int, set[str]] = {}  # process -> ids begun since the last reset
        self._names: dict[tuple[int, str], str] = {}

    def begin(self, pid: int, written: str) -> None:
        """Note that a compile of an id begins; one that began before means a reset."""
        begun = self._begun.setdefault(pid, set())
        if written in begun:
            self._turn[pid] = self._turn.get(pid, 1) + 1
            begun.clear()
        self.announce(pid, written)
        begun.add(written)

    def announce(self, pid: int, written: str) -> None:
        """Note that a compile of an id is about to begin, if none has since the last reset."""
        if pid in self._turn and written not in self._begun[pid]:
            self._names[pid, written] = f"{self._turn[pid]}~{written}"

    def name(self, pid: int, written: str) -> str:
        """Return the id of the newest compile that is written so."""
        return self._names.get((pid, written), written)

    def copy(self) -> Numbering:
        """Return an independent copy."""
        return deepcopy(self)


def resets_before(name: str) -> int:
    """Return how many resets came before the compile of an id, as `Numbering` gives them."""
    turn = name.rpartition("~")[0]
    return int(turn) - 1 if turn.isdecimal() else 0


def plain_function(name: str) -> str:
    """Return the user's name of a function: resume functions get the name they continue."""
    while match := _RESUME_NAME.match(name):
        name = "".join(match.groups())
    return name


_RESUMED_IN: Final = re.compile(r"\btorch_dynamo_resume_in_(\w+?)_at_(\d+)\b")
_PASSED_ON: Final = re.compile(r"___stack\d+")


def in_users_words(text: str) -> str:
    """Return a sentence without the names that compilers give to resumed functions."""
    if "_resume_in_" not in text and "___" not in text:
        return text
    text = _RESUMED_IN.sub(r"\1 (resumed at \2)", text)
    return _PASSED_ON.sub("a value from before the break", text)


def is_resumed(name: str) -> bool:
    """Return whether a function's name is that of a resume function."""
    return _RESUME_NAME.match(name) is not None


def resume_names(function: str, frames: Iterable[tuple[str, int]], known: str = "") -> set[str]:
    """Return the names of the resume functions of a break in one of the frames.

    Args:
        function: the one that was being compiled.
        frames: (function, line) of the user's stack; those of other functions do not count.
        known: a name that the trace records.
    """
    mine = plain_function(function)
    names = {known} if known else set()
    for name, line in frames:
        if plain_function(name) == mine:
            names.add(f"torch_dynamo_resume_in_{mine}_at_{line}")
    return names


def cause_id(code: str, file: str, function: str, reason: str) -> str:
    """Return the lasting name of a cause, e.g. ``TC110-7f3a``.

    It does not change with line numbers, addresses, compile ids, ranks or the folder of the
    checkout, so that two runs can be compared by it.
    """
    parts = (code, file_name(file), plain_function(function),
             _VOLATILE.sub(lambda number: number[1] or "#", reason))  # fmt: skip
    return f"{code}-{digest(chr(0).join(parts))[:4]}"


def digest(text: str) -> str:
    """Return hexadecimal digits that distinguish a text from others."""
    import hashlib  # here, because few processes need it and it costs as much as this package

    return hashlib.md5(text.encode("utf-8", "backslashreplace"), usedforsecurity=False).hexdigest()


#: modes of torch, as guards name them
MODES: Final = (
    "grad_mode", "autocast_state", "autocast", "default_dtype", "default_device", "default device",
    "deterministic_algorithms", "deterministic_algorithms_warn_only", "torch_function",
    "torch_function_all_disabled", "allow_tf32", "allow_fp16_reduce", "allow_bf16_reduce",
    "num_threads",
)  # fmt: skip
_DIGITS: Final = re.compile(r"\d+")
_FOLLOW_MODES: Final = (".dtype", ".device")


#: properties of tensors that a conversion of a whole model changes
_CONVERTED = ("dtype", "device")


def changed_apart(sources: Iterable[str]) -> int:
    """Return how many inputs changed, where those that change together count once.

    The tensors of a cache that grows are one change, and so is a model that is converted to
    another dtype or moved to another device. By it, a recompile is compared with the earlier
    compile that it differs from least.
    """
    ends = ((source, source.rpartition(".")[2]) for source in sources)
    return len({end if end in _CONVERTED else _DIGITS.sub("#", source) for source, end in ends})


def free_inputs(changed: Sequence[tuple[str, str]]) -> list[bool]:
    """Return which inputs that changed together, (source, new value), are no switches.

    A switch is a mode, a flag, or a property of tensors that follows a mode that changed as well.
    It takes a few values, and each compiles once: what changed beside it makes every call compile.
    """
    followed = any(source in MODES for source, _ in changed)
    return [
        not (
            new in ("True", "False")
            or source in MODES
            or "dispatch keys" in source
            or (followed and source.endswith(_FOLLOW_MODES))
        )
        for source, new in changed
    ]


def leading_source(causes: Iterable[tuple[str, str, bool]]) -> str:
    """Return the input that a recompile is reported under; causes are (source, new value, dynamic).

    The first that will change again: not one that is dynamic from now on, and not a switch if
    something else changed with it. The terminal knows only this recompile, so the rule looks at no
    other: both surfaces give a cause one id.
    """
    listed = list(causes)
    staying = [one for one in listed if not one[2]] or listed
    are_free = free_inputs([one[:2] for one in staying])
    free = [one for one, is_free in zip(staying, are_free, strict=True) if is_free] or staying
    return free[0][0] if free else "an input"


def process_rank() -> int | None:
    """Return the rank of this process in a distributed job, or None; never imports torch."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    rank = os.environ.get("RANK", "")
    if "WORLD_SIZE" in os.environ and rank.isdecimal():
        return int(rank)
    return None
