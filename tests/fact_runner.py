"""Runs facts: calls, a change of what was read, calls again; eager in one world, compiled in
another. A fact is stale where compiled code still lives in the world before the change.
"""

from __future__ import annotations

import contextlib
import threading
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from fact_snapshot import differs, snapshot
from fact_world import Fact, World

#: calls before the change: the first is captured; after these many the fast path has taken over
WARM = (1, 60)
Compile = Callable[[Any], Any]


@dataclass(frozen=True)
class Verdict:
    """What became of a fact.

    Attributes:
        status: ``ok``; ``stale``: the calls after the change see the world before it; ``wrong``:
            calls before the change differ already; ``crash``: an error that eager does not have;
            ``vacuous``: the change changes nothing in eager either, so the fact tests nothing.
        detail: the first difference.
    """

    fact: str
    status: str
    warm: int = 0
    thread: bool = False
    detail: str = ""

    def __str__(self) -> str:
        where = f"after {self.warm} calls" + (", in another thread" if self.thread else "")
        return f"{self.fact}: {self.status} ({where}) {self.detail}".rstrip(" ()")


@dataclass
class Seen:
    """What one call did: its result, arguments and what the world watches, or its error."""

    data: list[Any]
    error: BaseException | None = None

    @property
    def failure(self) -> str:
        """Return the error in one line, with the innermost place of it."""
        assert self.error is not None
        place = traceback.extract_tb(self.error.__traceback__)[-1]
        text = str(self.error).strip().split("\n")[0]
        return f"{type(self.error).__name__}: {text[:200]} ({place.filename}:{place.lineno})"


def call(world: World, fn: Callable[..., Any]) -> Seen:
    """Call a function with the world's arguments, and write down what can be seen after it."""
    error: BaseException | None = None
    result = None
    try:
        args = world.arguments()
        result = fn(*args)
    except Exception as raised:
        args, error = (), raised
    kind = type(error).__name__ if error is not None else None
    state = [torch.is_grad_enabled(), str(torch.get_default_dtype())]
    data = [kind, *snapshot(list(args), result, world.space.get("watch"), state)]
    return Seen(data, error)


def quietly(world: World, fn: Callable[..., Any]) -> None:
    """Call a function as `call` does, and look at nothing."""
    with contextlib.suppress(Exception):
        fn(*world.arguments())


def history(fact: Fact, compile: Compile, warm: int, *, thread: bool) -> list[Seen]:
    """Return what calls saw: the last before the change, then two after it.

    Args:
        compile: makes the function that is called out of the world's program.
        thread: whether the change and the calls after it happen in another thread.
    """
    with World(fact.setup, fact.name) as world:
        fn = compile(world.program)
        for _ in range(warm - 1):
            quietly(world, fn)
        seen = [call(world, fn)]

        def rest() -> None:
            world.change(fact.change)
            seen.extend([call(world, fn), call(world, fn)])
            world.back()

        in_thread(rest) if thread else rest()
    return seen


def in_thread(run: Callable[[], None]) -> None:
    """Run something in a thread of its own; its error is raised here."""
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            run()
        except BaseException as error:
            errors.append(error)

    worker = threading.Thread(target=guarded)
    worker.start()
    worker.join()
    if errors:
        raise errors[0]


def judge(
    fact: Fact,
    compile: Compile,
    reset: Callable[[], object],
    warm: tuple[int, ...] = WARM,
    threads: tuple[bool, ...] = (False, True),
) -> Verdict:
    """Return the first verdict on a fact that is not ``ok``, if there is one."""
    for calls in warm:
        for thread in threads:
            verdict = _judge(fact, compile, reset, calls, thread)
            if verdict.status != "ok":
                return verdict
    return Verdict(fact.name, "ok")


def _judge(
    fact: Fact, compile: Compile, reset: Callable[[], object], warm: int, thread: bool
) -> Verdict:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            want = history(fact, lambda program: program, warm, thread=thread)
        except Exception as error:
            return Verdict(fact.name, "invalid", warm, thread, repr(error))
        reset()
        got = history(fact, compile, warm, thread=thread)
    if warm == 1 and not thread and not differs(want[1].data[:3], want[0].data[:3]):
        return Verdict(fact.name, "vacuous", warm, thread)
    for number, (a, b) in enumerate(zip(got, want, strict=True)):
        detail = differs(a.data, b.data)
        if not detail:
            continue
        if a.error is not None and type(a.error) is not type(b.error):
            return Verdict(fact.name, "crash", warm, thread, a.failure)
        return Verdict(fact.name, "stale" if number else "wrong", warm, thread, detail)
    return Verdict(fact.name, "ok", warm, thread)
