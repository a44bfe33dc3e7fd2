"""Processes that need the same thing at once: one makes it, and the others wait for it.

A claim is a small file beside the entries. Who creates it makes the entry; who finds it looks for
the entry again and again. Nothing depends on it: an entry is right whoever makes it, and made
twice costs time alone. So nobody waits for ever: not for a process that has died (on this machine
it is asked after, on others its claim stops changing), not for more than `Config.cache_wait`
seconds for one that lives and says so, and not where this process itself keeps others waiting.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TypeVar

from tc.compiler.options import config
from tc.compiler.runtime.places import TEMPORARY, Place

T = TypeVar("T")
#: seconds after which an owner shows that it lives, and after which one that does not is given up
BEAT, SILENCE = 2.0, 20.0
#: seconds between looks: the first ones, and the longest; over a network
PAUSE, LONG_PAUSE, DISTANT_PAUSE = 0.01, 0.2, 0.5


class _Holding(threading.local):
    """How many claims a thread holds."""

    count = 0


_HOLDING = _Holding()
#: files of the claims that this process holds; one of its own that is not here could not be removed
_HELD: list[str] = []
os.register_at_fork(after_in_child=_HELD.clear)


class Claim:
    """The right to make something, until `release`."""

    def __init__(self, place: Place, name: str, generation: int) -> None:
        self._place, self._name, self._generation = place, name, generation
        self._process, self._over = os.getpid(), threading.Event()
        self._thread = threading.Thread(target=self._beat, name="tc-claim", daemon=True)
        self._thread.start()
        _HOLDING.count += 1

    def release(self) -> None:
        """Let the others continue: with what was made, or by making it themselves."""
        if self._over.is_set() or self._process != os.getpid():
            return
        self._over.set()
        _HOLDING.count -= 1
        _HELD.remove(_file(self._name, self._generation))
        self._thread.join()
        for generation in range(self._generation, -1, -1):
            with suppress(OSError):
                self._place.remove(_file(self._name, generation))

    def _beat(self) -> None:
        beats = 0
        while not self._over.wait(BEAT):
            beats += 1
            try:
                self._place.rewrite(_file(self._name, self._generation), _owner(beats))
            except FileNotFoundError:
                return
            except OSError:
                continue


def turn(
    place: Place | None,
    name: str,
    look: Callable[[], T | None],
    waiting: AbstractContextManager[object] | None = None,
) -> tuple[T | None, Claim | None]:
    """Return what others have made meanwhile, or a claim to make it; neither: make it without one.

    Args:
        place: where the entry is looked for; None: nobody else looks there.
        name: of the entry.
        look: returns what was made, None if there is nothing yet.
        waiting: entered while another process is waited for.
    """
    if place is None or config.cache_wait <= 0:
        return None, None
    queue = _Queue(place, name)
    try:
        if queue.is_first():  # mostly nobody else wants it
            return queue.after_claiming(look)
        with waiting or nullcontext():
            return queue.wait(look)
    except OSError:  # no claims can be made there
        return None, None


class _Queue:
    """One process among those that want an entry.

    A claim whose owner died is not removed, which two might do at once and one of them too late:
    the next owner creates the file of the next generation, which only one can.
    """

    def __init__(self, place: Place, name: str) -> None:
        self.place, self.name = place, name
        self.generation = 0
        self.ends = time.monotonic() + config.cache_wait
        self.seen: tuple[bytes, float] = b"", 0.0

    def wait(self, look: Callable[[], T | None]) -> tuple[T | None, Claim | None]:
        pause = DISTANT_PAUSE if self.place.distant else PAUSE
        while True:
            # Who has waited for an owner that made nothing does not let others wait in turn.
            if not self.seen[0] and self.is_first():
                return self.after_claiming(look)
            try:
                owner = self.place.read(_file(self.name, self.generation))
            except FileNotFoundError:  # it was released
                return look(), None
            if self._is_dead(owner):
                self.generation += 1
                self.seen = b"", 0.0
                continue
            found = look()
            if found is not None or _HOLDING.count or time.monotonic() > self.ends:
                return found, None
            time.sleep(pause)
            pause = min(1.5 * pause, max(pause, LONG_PAUSE))

    def is_first(self) -> bool:
        """Create the claim of this generation, if nobody has."""
        file, created = _file(self.name, self.generation), False
        _HELD.append(file)
        try:
            created = self.place.create(file, _owner(0))
        finally:
            if not created:
                _HELD.remove(file)
        return created

    def after_claiming(self, look: Callable[[], T | None]) -> tuple[T | None, Claim | None]:
        """Look again: the last owner may have ended between the last look and the claim."""
        claim = Claim(self.place, self.name, self.generation)
        try:
            found = look()
        except BaseException:
            claim.release()
            raise
        if found is None:
            return None, claim
        claim.release()
        return found, None

    def _is_dead(self, owner: bytes) -> bool:
        now = time.monotonic()
        owner = owner or b"?"  # created, and not written yet
        if owner != self.seen[0]:
            self.seen = owner, now
        try:
            machine, process, started, _ = owner.decode().split()
            if machine == _machine() and (
                _started(int(process)) != started
                or (int(process) == os.getpid() and _file(self.name, self.generation) not in _HELD)
            ):
                return True
        except ValueError:  # half written, or not by tc
            pass
        return now - self.seen[1] > SILENCE


def _file(name: str, generation: int) -> str:
    digest = hashlib.sha256(name.encode()).hexdigest()[:40]
    return f"{TEMPORARY}/{digest}.claim{generation}"


def _owner(beats: int) -> bytes:
    """Return the content of a claim of this process, of the same length at each beat."""
    process = os.getpid()
    return f"{_machine()} {process} {_started(process)} {beats:012}\n".encode()


@functools.cache
def _machine() -> str:
    """Return what names the machine, and on it those processes whose numbers mean the same."""
    parts = [platform.node()]
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        parts.append(file.read().strip())
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _started(process: int) -> str:
    """Return when a process of this machine was started; "-" if it has ended."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            state, *fields = file.read().rpartition(b")")[2].split()
        return "-" if state in (b"Z", b"X") else fields[18].decode()
    except OSError:
        pass
    if os.path.exists("/proc/self/stat"):
        return "-"
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return "-"
    except OSError:
        pass
    return "?"
