"""The guard over the ranks of a running job: a divergence is an error with its cause, not a hang.

In: ``config.rank_check``, a time limit in seconds. Out: `RanksDiverged` before the first collective
after a compile, where another rank has issued another one in its place; the end of the process
where a collective is under way already; a sentence where one has failed, since its peers have gone,
or where a rank only waits.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, NoReturn

import torch.distributed as dist

from tc import trace
from tc.compiler.errors import RanksDiverged
from tc.compiler.ranks import decisions
from tc.compiler.ranks.board import Board
from tc.compiler.ranks.collectives import Seen, observer, user_lines
from tc.compiler.ranks.positions import Collective, Difference, Position, difference

#: seconds between two looks at the board
TICK = 0.2
#: collectives of a group that are remembered
MOST_RECENT = 64
SAME = "they compiled the same, so the cause is outside of compiled functions"
FIX = "take the same way to collectives on every rank: docs/solve/ranks.md"


@dataclass
class _Group:
    """A process group as this rank knows it: its ranks, its last collectives, how many there were.

    `exact` is false where collectives came before the guard, so that the count may be off.
    """

    members: tuple[int, ...]
    count: int
    exact: bool
    recent: deque[Collective] = field(default_factory=lambda: deque(maxlen=MOST_RECENT))


@dataclass
class _Issued:
    collective: Collective
    work: Any
    since: float


class Guard:
    """The guard of one process.

    Attributes:
        limit: seconds that a rank waits for others before it says so.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.decisions = decisions.Decisions()
        self._lock = threading.Lock()
        self._job: Any = None  # the store of the job that is watched
        self._board: Board | None = None
        self._rank = 0
        self._groups: dict[str, _Group] = {}
        self._issued: list[_Issued] = []
        self._failed: list[Collective] = []
        self._compared = self._written = 0
        self._reported = self._ended = False
        self._noticed: set[tuple[str, int]] = set()

    # -- collectives ---------------------------------------------------------------------------
    def sees(self, seen: Seen) -> Callable[[Any], None] | None:
        """Compare ranks, if this one has compiled since its last collective.

        Returns:
            What is given the `Work` of the collective, or an exception that it raised.

        Raises:
            RanksDiverged: another rank went another way.
        """
        if not self.limit:
            return None
        self.follow_job()
        lines = user_lines(sys._getframe(2))
        file, line, _ = lines[0] if lines else ("", 0, "")
        functions = [function for _, _, function in lines]
        name = seen.group.group_name
        with self._lock:
            group = self._group(seen.group, name)
            collective = Collective(name, group.count, seen.what, file, line, functions)
            group.count += 1
            group.recent.append(collective)
        if self.decisions.count != self._compared:
            self._compared = self.decisions.count
            if group.exact:
                self._compare(collective, group.members)

        def after(outcome: Any) -> None:
            with self._lock:
                self._forget_ended()
                if isinstance(outcome, dist.DistError):
                    self._failed.append(collective)  # it was issued, and its peers are gone
                elif isinstance(outcome, BaseException):
                    if group.recent and group.recent[-1] is collective:
                        group.recent.pop()
                        group.count -= 1
                elif seen.polled and outcome is not None:
                    work = dist.Work.unbox(outcome)
                    self._issued.append(_Issued(collective, work, time.monotonic()))

        return after

    def _group(self, group: dist.ProcessGroup, name: str) -> _Group:
        known = self._groups.get(name)
        if known is None:
            try:
                before = int(group._get_sequence_number_for_group())  # type: ignore[attr-defined]
            except RuntimeError:
                before = -1
            members = tuple(dist.get_process_group_ranks(group))
            known = self._groups[name] = _Group(members, max(before, 0), before == 0)
        return known

    def _forget_ended(self) -> None:
        under_way = []
        for one in self._issued:
            if not one.work.is_completed():
                under_way.append(one)
                continue
            try:
                one.work.wait()  # it is over: raises what it failed with
            except RuntimeError:
                self._failed.append(one.collective)
        self._issued = under_way

    # -- the job -------------------------------------------------------------------------------
    def follow_job(self) -> None:
        """Watch the job that this process is in now; another one begins from nothing."""
        store = dist.distributed_c10d._get_default_store()
        with self._lock:
            if store is self._job:
                return
            self._job, self._rank = store, dist.get_rank()
            self._groups, self._issued, self._failed, self._noticed = {}, [], [], set()
            self._ended = False
            self._board = board = Board(store, self._rank)
        thread = threading.Thread(target=self._watch, args=(board,), name="tc ranks", daemon=True)
        thread.start()
        # At the end of the process, that of one of `multiprocessing` included.
        Finalize(None, self._say_ended, (board,), exitpriority=100)

    def _say_ended(self, board: Board) -> None:
        """Leave word that this rank has ended, and say why if collectives of it failed."""
        if board is not self._board or not (_store_outlives() or dist.is_initialized()):
            return
        self._ended = True
        try:
            self._write(board, self._position())
            self._explain(board)
        except RanksDiverged as error:
            trace.warn(str(error))
        except Exception:
            return  # the store is gone: the job has ended

    def _explain(self, board: Board) -> None:
        """Find out why collectives of a process that ends have not ended well.

        The process ends because one failed, most likely, and who waits for it hears of that before
        its `Work` says so. So what is under way counts as failed, until its end shows otherwise.
        """
        began, asked = time.monotonic(), 0
        while self.limit and not self._reported:
            left = self._open()
            if not left:
                return
            number = self._look(board, self._position(), left)
            asked = asked or number
            if time.monotonic() - began > self.limit:
                return self._blame_silent(board, asked)

    def _open(self) -> list[Collective]:
        """Return the collectives that have failed or are under way."""
        with self._lock:
            self._forget_ended()
            return [*self._failed, *(one.collective for one in self._issued)]

    def _blame_silent(self, board: Board, asked: int) -> None:
        """Report a rank that a failed collective needed, and that has not answered a question."""
        for one in self._failed:
            for rank in self._members()[one.group]:
                theirs = board.read(rank) or Position(rank)
                if rank == self._rank or theirs.ended or theirs.question >= asked:
                    continue
                doing = "no longer answers"
                doing += theirs.doing and f"; by its last word it {theirs.doing}"
                self._fail(board, self._position(), Difference(one, None, rank, doing))

    def _position(self, question: int = 0) -> Position:
        now = time.monotonic()
        with self._lock:
            self._forget_ended()
            return Position(
                self._rank,
                question,
                {name: list(group.recent) for name, group in self._groups.items()},
                [one.collective for one in self._issued if now - one.since > self.limit],
                [name for name, group in self._groups.items() if not group.exact],
                self._doing(),
                self._ended,
                decisions.digest(self.decisions.rows()),
            )

    def _doing(self) -> str:
        if self.decisions.compiling:
            return f"compiles {self.decisions.compiling}"
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        for file, line, function in user_lines(frame)[:1]:
            return f"is at {Path(file).name}:{line} in {function}"
        return "is in a library"

    def _write(self, board: Board, position: Position) -> None:
        if self._written != self.decisions.count:
            self._written = self.decisions.count
            board.write_decisions(decisions.to_bytes(self.decisions.rows()))
        board.write(position)

    # -- before the first collective after a compile -------------------------------------------
    def _compare(self, collective: Collective, members: Sequence[int]) -> None:
        """Wait until all ranks are known to come to a collective, at most for the time limit."""
        board = self._board
        assert board is not None
        others = [rank for rank in members if rank != self._rank]
        began, pause = time.monotonic(), 0.002
        try:
            self._write(board, self._position())
            while others and time.monotonic() - began < self.limit:
                others = [rank for rank in others if not self._meets(board, rank, collective)]
                if others and pause > TICK / 2:
                    board.ask()
                time.sleep(pause if others else 0)
                pause = min(pause * 1.5, TICK)
        except RanksDiverged:
            raise
        except RuntimeError:
            self._stop()  # the store is gone: the job ends

    def _meets(self, board: Board, rank: int, collective: Collective) -> bool:
        theirs = board.read(rank)
        if theirs is None:
            return False
        mine = self._position()
        found = difference(mine, theirs, self._members())
        if found is not None:
            self._fail(board, mine, found)
        return theirs.last(collective.group) >= collective.number

    def _members(self) -> dict[str, Sequence[int]]:
        with self._lock:
            return {name: group.members for name, group in self._groups.items()}

    # -- while collectives are under way -------------------------------------------------------
    def _watch(self, board: Board) -> None:
        """Answer questions, and look after collectives that do not end."""
        answered = 0
        while board is self._board:
            time.sleep(TICK)
            try:
                if not dist.is_initialized():
                    return self._leave(board)
                question = board.question()
                position = self._position(question)
                if question != answered:
                    self._write(board, position)
                    answered = question
                with self._lock:
                    failed = [] if self._reported or self._ended else list(self._failed)
                if (position.waiting or failed) and self.limit:
                    self._look(board, position, failed)
            except RanksDiverged as error:
                if position.waiting:
                    _end_process(error)
                trace.warn(str(error))  # the main thread hears of the failure as well
            except Exception:
                return  # the store is gone: the job ends

    def _leave(self, board: Board) -> None:
        """Record that the groups of this rank are gone, though its process may continue."""
        if board is self._board and _store_outlives():
            self._ended = True
            self._write(board, self._position())

    def _look(self, board: Board, mine: Position, failed: Sequence[Collective]) -> int:
        """Ask where the ranks are that a collective waits for, or of which one has failed.

        Returns:
            The number of the question.

        Raises:
            RanksDiverged: one of them will never come.
        """
        asked = board.ask()
        self._write(board, mine)
        time.sleep(2 * TICK)  # they answer
        stuck = replace(mine, waiting=[*mine.waiting, *failed])
        for one in stuck.waiting:
            late: list[Position] = []
            for rank in self._members()[one.group]:
                theirs = board.read(rank) if rank != self._rank else None
                if theirs is None:
                    continue
                found = difference(stuck, theirs, self._members())
                if found is not None and one in self._open():
                    self._fail(board, mine, found)
                if theirs.last(one.group) < one.number:
                    late.append(theirs)
            if late and one in mine.waiting and (one.group, one.number) not in self._noticed:
                self._noticed.add((one.group, one.number))
                self._notice(board, one, late)
        return asked

    def _notice(self, board: Board, one: Collective, late: Sequence[Position]) -> None:
        first = late[0]
        more = f" (and {len(late) - 1} more)" if len(late) > 1 else ""
        stuck = f", and waits in {first.waiting[0]}" if first.waiting else ""
        cause = self._cause(board, first.rank, one)
        message = (
            f"rank {self._rank} has waited {self.limit:g} s in {one} for rank {first.rank}{more}, "
            f"which {first.doing}{stuck}"
        )
        self._emit("waits", one, first.rank, None, message, cause)
        waits = min(set(self._members()[one.group]) - {late.rank for late in late})
        if self._rank == waits:
            trace.warn(f"{message}{'; what they compiled: ' + cause if cause else ''}")

    # -- reports -------------------------------------------------------------------------------
    def _fail(self, board: Board, mine: Position, found: Difference) -> NoReturn:
        own, other = found.own, found.other
        where = f"issued {other}" if other is not None else found.doing
        cause = self._cause(board, found.rank, own)
        known = cause and f"of what they compiled this differs first: {cause}"
        message = (
            f"ranks diverged: rank {self._rank} is at {own}, number {own.number} of group "
            f"{own.group!r}, where rank {found.rank} {where}; {known or SAME}"
        )
        if not self._reported:
            self._reported = True
            self._emit("diverged", own, found.rank, other, message, cause)
        with suppress(Exception):
            self._write(board, mine)
        raise RanksDiverged(f"{message}. {FIX[0].upper()}{FIX[1:]}")

    def _cause(self, board: Board, rank: int, at: Collective) -> str:
        try:
            theirs = decisions.of_bytes(board.read_decisions(rank))
        except (RuntimeError, ValueError):
            return ""
        mine = self.decisions.rows()
        return decisions.first_difference(mine, theirs, self._rank, rank, at.functions)

    @trace.reports(trace.nothing)
    def _emit(
        self, kind: str, own: Collective, rank: int, other: Collective | None, message: str,
        cause: str,
    ) -> None:  # fmt: skip
        place = (other.file, other.line, other.function) if other is not None else ("", 0, "")
        trace.emit(
            trace.RanksApart(
                kind, self._rank, rank, message, own.what, own.file, own.line, own.function,
                *place, cause,
            )
        )  # fmt: skip

    def _stop(self) -> None:
        self._board = None


def _store_outlives() -> bool:
    """Return whether the store is there when all ranks have ended: torchrun keeps it."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _end_process(error: RanksDiverged) -> None:
    """End a process whose main thread is in a collective that cannot end."""
    trace.warn(f"{error}. The process ends: its collective cannot")
    with suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(1)


_guards: list[Guard] = []


def guard_ranks(limit: float) -> None:
    """Guard the ranks of the job from now on, if a time limit is set; a new limit is taken over.

    Args:
        limit: seconds; 0 ends it.
    """
    if not _guards and limit and dist.is_available():
        _guards.append(Guard(limit))
        trace.add_sink(_guards[0].decisions)
        observer().listener = _guards[0].sees
    for guard in _guards:
        guard.limit = limit
        if limit and dist.is_initialized():
            guard.follow_job()
