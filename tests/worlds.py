"""Random worlds: a program made of parts, a sequence of calls, and between calls random changes.

The same steps run twice, in worlds built alike: with the program as it is, and compiled. After each
call all that can be seen of it is compared. A difference is made small by leaving out steps, parts
and calls for as long as there still is one.
"""

from __future__ import annotations

import contextvars
import random
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import world_parts
from fact_runner import Compile, Seen, call, in_thread, quietly
from fact_snapshot import differs
from fact_world import World
from world_parts import Part

#: a call goes past the frame hook after these many
PAST = 40
#: how the program calls a part: a text with the call in place of CALL, and the setup it needs
WAYS = (
    ("CALL", ""),
    ("CALL", ""),
    ("helper(lambda: CALL)", "def helper(g): return g()"),
    ("caller.run(lambda: CALL)",
    "class Caller:\n    def run(self, g): return g()\ncaller = Caller()"),
    ("[CALL for _ in range(2)]", ""),
    ("under(lambda: CALL)", "def under(g):\n    with torch.no_grad(): return g()"),
    ("tried(lambda: CALL)",
     "def tried(g):\n    try: return g()\n    except ZeroDivisionError: return None"),
    ("(CALL if on else None)", "on = True"),
    ("functools.partial(lambda: CALL)()", ""),
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One step: ``calls`` calls, or a change of a part (``part`` below zero: undo the last)."""

    calls: int = 0
    thread: bool = False
    part: int = 0
    change: str = ""

    def __str__(self) -> str:
        if self.calls:
            where = "  # in another thread" if self.thread else ""
            return f"f(*args)  # {self.calls} times{where}"
        return f"# part {self.part}:\n{self.change}" if self.part >= 0 else "# the last one undone"


@dataclass(frozen=True)
class Plan:
    """A world to be: its parts, how each is called, and the steps."""

    parts: tuple[Part, ...]
    ways: tuple[int, ...]
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        lines = []
        for number, (part, way) in enumerate(zip(self.parts, self.ways, strict=True)):
            lines += [f"# -- part {number} ({part.name}), called as {WAYS[way][0]}", part.setup]
        return "\n".join([*lines, "# -- steps", *map(str, self.steps)])


@dataclass(frozen=True)
class Difference:
    """Where compiled code and eager code came apart."""

    plan: Plan
    step: int
    detail: str

    def __str__(self) -> str:
        return f"{self.plan}\n# -- differs at step {self.step}: {self.detail}"


def draw(rng: random.Random, facts: Sequence[Part]) -> Plan:
    """Draw a world; facts and strategies are as likely as each other."""
    parts = [
        _one_of(rng, facts) if facts and rng.random() < 0.5
        else rng.choice(world_parts.STRATEGIES)(rng)
        for _ in range(rng.choice((1, 1, 2, 3)))
    ]  # fmt: skip
    ways = tuple(rng.randrange(len(WAYS)) for _ in parts)
    steps = [_call(rng)]
    for _ in range(rng.randint(1, 5)):
        for _ in range(rng.choice((1, 1, 1, 2))):
            number = rng.randrange(len(parts))
            change = Step(part=number, change=rng.choice(parts[number].changes))
            steps.append(Step(part=-1) if rng.random() < 0.2 else change)
        steps.append(_call(rng))
    return Plan(tuple(parts), ways, tuple(steps))


def _one_of(rng: random.Random, facts: Sequence[Part]) -> Part:
    """Draw a fact so that a new row leaves nearly all worlds of a seed as they were."""
    token = str(rng.random())
    return max(facts, key=lambda part: zlib.crc32((part.name + token).encode()))


def _call(rng: random.Random) -> Step:
    return Step(calls=rng.choice((1, 1, 2, PAST)), thread=rng.random() < 0.15)


class Composite:
    """The worlds of a plan's parts, and one for the program that calls them."""

    def __init__(self, plan: Plan) -> None:
        self._stack = ExitStack()
        self.worlds: list[World] = []
        self._order: list[int] = []
        try:
            for part in plan.parts:
                self.worlds.append(self._stack.enter_context(World(part.setup, "part")))
            self.main = self._stack.enter_context(World(self._program(plan), "main"))
            self.main.space["args"] = self._arguments
            self.main.space["watch"] = lambda: [world.watched() for world in self.worlds]
            self.main.space["backward"] = any(w.space.get("backward") for w in self.worlds)
        except BaseException:
            self._stack.close()
            raise

    def _program(self, plan: Plan) -> str:
        names, calls, setup = [], [], []
        for number, (world, way) in enumerate(zip(self.worlds, plan.ways, strict=True)):
            mine = [f"a{number}_{k}" for k in range(len(world.arguments()))]
            text, needs = WAYS[way]
            calls.append(text.replace("CALL", f"part{number}({', '.join(mine)})"))
            names += mine
            setup += [needs, f"import {world.name}", f"part{number} = {world.name}.f"]
        body = ", ".join(calls)
        return "\n".join([*setup, f"def f({', '.join(names)}):\n    return [{body}]", "args = ()"])

    def _arguments(self) -> tuple[Any, ...]:
        return tuple(a for world in self.worlds for a in world.arguments())

    def take(self, step: Step, fn: Callable[..., Any]) -> Iterator[Seen]:
        """Take one step; yield what its calls did."""
        if step.calls:
            seen: list[Seen] = []

            def run() -> None:
                seen.append(call(self.main, fn))
                for _ in range(step.calls - 2):
                    quietly(self.main, fn)
                if step.calls > 1:
                    seen.append(call(self.main, fn))

            in_thread(run) if step.thread else run()
            yield from seen
        elif step.part >= 0:
            self._order.append(step.part)
            try:
                self.worlds[step.part].change(step.change)
            except Exception as error:  # the same in both worlds, if they are alike
                yield Seen([type(error).__name__], error)
        elif self._order:
            self.worlds[self._order.pop()].back()

    def close(self) -> None:
        """Undo everything, the last change first."""
        while self._order:
            self.worlds[self._order.pop()].back()
        self._stack.close()


def history(plan: Plan, compile: Compile) -> list[list[Seen]]:
    """Return what the calls of each step did."""
    world = Composite(plan)
    try:
        fn = compile(world.main.program)
        return [list(world.take(step, fn)) for step in plan.steps]
    finally:
        world.close()


def compare(plan: Plan, compile: Compile, reset: Callable[[], object]) -> Difference | None:
    """Run a plan both ways; return the first difference."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = contextvars.copy_context().run(history, plan, lambda program: program)
        reset()
        got = contextvars.copy_context().run(history, plan, compile)
    for number, (actual, theirs) in enumerate(zip(got, want, strict=True)):
        for a, b in zip(actual, theirs, strict=True):
            if detail := differs(a.data, b.data):
                crashed = a.error is not None and type(a.error) is not type(b.error)
                return Difference(plan, number, a.failure if crashed else detail)
    return None


def smaller(plan: Plan) -> Iterator[Plan]:
    """Yield plans that are one thing smaller."""
    for number in range(len(plan.parts)):
        if len(plan.parts) > 1:
            steps = tuple(
                replace(s, part=s.part - (s.part > number))
                for s in plan.steps
                if s.calls or s.part != number
            )
            keep = [k for k in range(len(plan.parts)) if k != number]
            yield Plan(tuple(plan.parts[k] for k in keep), tuple(plan.ways[k] for k in keep), steps)
    for number, step in enumerate(plan.steps):
        rest = plan.steps[:number], plan.steps[number + 1 :]
        yield replace(plan, steps=rest[0] + rest[1])
        if step.calls > 1:
            yield replace(plan, steps=(*rest[0], replace(step, calls=1), *rest[1]))
        if step.thread:
            yield replace(plan, steps=(*rest[0], replace(step, thread=False), *rest[1]))
    for number, way in enumerate(plan.ways):
        if way:
            yield replace(plan, ways=(*plan.ways[:number], 0, *plan.ways[number + 1 :]))


def minimise(
    found: Difference, compile: Compile, reset: Callable[[], object], tries: int = 200
) -> Difference:
    """Return a difference of a smaller plan, as small as a number of tries makes it."""
    going = True
    while going:
        going = False
        for plan in smaller(found.plan):
            tries -= 1
            if tries < 0:
                return found
            if (less := compare(plan, compile, reset)) is not None:
                found, going = less, True
                break
    return found
