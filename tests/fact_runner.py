"""Runs facts: calls, a change of what was read, calls again; eager in one world, compiled in
another. A fact is stale where compiled code still lives in the world before the change.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from fact_snapshot import differs, snapshot
from fact_world import Fact, World

Compile = Callable[[Any], Any]


@dataclass(frozen=True)
class Variant:
    """One way to run a fact.

    Attributes:
        warm: calls before the change; after sixty the fast path has taken over.
        thread: whether the change and the calls after it happen in another thread.
        inlined: whether the program is called by a function of another module, and that one is
            compiled.
        held: whether it gets its arguments out of globals, read in yet another module.
        reversed: whether the change is made before all calls, and undone between them. What is
            different and becomes the same is another fact than what was the same.
    """

    warm: int = 1
    thread: bool = False
    inlined: bool = False
    held: bool = False
    reversed: bool = False

    def __str__(self) -> str:
        words = [f"{self.warm} call{'s' * (self.warm > 1)}"]
        words += ["in a thread"] * self.thread + ["inlined"] * self.inlined
        words += ["held by globals"] * self.held + ["the change first"] * self.reversed
        return ", ".join(words)


DIRECT, INLINED, HELD = Variant(), Variant(inlined=True), Variant(held=True)
REVERSED = Variant(reversed=True)
VARIANTS = (
    DIRECT, REVERSED, INLINED, HELD, Variant(60), Variant(60, inlined=True),
    Variant(1, True), Variant(60, True), Variant(60, reversed=True),
    Variant(inlined=True, reversed=True),
)  # fmt: skip


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
    variant: str = ""
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.fact}: {self.status} ({self.variant}) {self.detail}".rstrip(" ()")


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
        if world.space.get("backward"):
            differentiate(result)
    except Exception as raised:
        args, error = (), raised
    kind = type(error).__name__ if error is not None else None
    state = [torch.is_grad_enabled(), str(torch.get_default_dtype())]
    data = [kind, *snapshot(list(args), result, world.watched(), state)]
    return Seen(data, error)


def differentiate(result: Any) -> None:
    """Run backward from the sum of all tensors of a result that have gradients."""
    sums = [
        (torch.view_as_real(leaf) if leaf.is_complex() else leaf).sum()
        for leaf in torch.utils._pytree.tree_leaves(result)
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad
    ]
    if sums:
        torch.autograd.backward(sums)


def quietly(world: World, fn: Callable[..., Any]) -> None:
    """Call a function as `call` does, and look at nothing."""
    with contextlib.suppress(Exception):
        fn(*world.arguments())


def history(fact: Fact, compile: Compile, variant: Variant = DIRECT) -> list[Seen]:
    """Return what calls saw: the last before the change, or its undoing, then two after it.

    Args:
        compile: makes the function that is called out of the world's program.
    """
    return contextvars.copy_context().run(_history, fact, compile, variant)


def _history(fact: Fact, compile: Compile, variant: Variant) -> list[Seen]:
    with ExitStack() as stack:
        world = stack.enter_context(World(fact.setup, fact.name))
        fn = _called(world, compile, variant, stack)
        seen: list[Seen] = []

        def first() -> None:
            if variant.reversed:
                world.change(fact.change)
            for _ in range(variant.warm - 1):
                quietly(world, fn)
            seen.append(call(world, fn))

        def rest() -> None:
            if variant.reversed:
                world.back()
            else:
                world.change(fact.change)
            seen.extend([call(world, fn), call(world, fn)])
            world.back()

        first()
        in_thread(rest) if variant.thread else rest()
    return seen


def _called(
    world: World, compile: Compile, variant: Variant, stack: ExitStack
) -> Callable[..., Any]:
    """Return what calls the world's program, compiled in the way of a variant."""
    if not (variant.inlined or variant.held):
        return compile(world.program)
    names = [f"a{k}" for k in range(len(world.arguments()))]
    call = f"return other.f({', '.join(names)})\nargs = ()"
    taken = "" if variant.held else ", ".join(names)
    caller = World(f"import {world.name} as other\ndef f({taken}):\n    {call}", "caller")
    stack.enter_context(caller)
    if not variant.held:
        return compile(caller.program)
    text = f"import {caller.name} as other\ndef f():\n    return other.f()\nargs = ()"
    compiled = compile(stack.enter_context(World(text, "caller")).program)

    def fn(*args: Any) -> Any:
        caller.space.update(zip(names, args, strict=True))
        return compiled()

    return fn


def in_thread(run: Callable[[], None]) -> None:
    """Run something in a thread of its own; its error is raised here."""
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            run()
        except BaseException as error:
            errors.append(error)

    worker = threading.Thread(target=guarded, name="worker")  # numbers differ from run to run
    worker.start()
    worker.join()
    if errors:
        raise errors[0]


def judge(
    fact: Fact,
    compile: Compile,
    reset: Callable[[], object],
    variants: Iterable[Variant] = VARIANTS,
) -> Verdict:
    """Return the first verdict on a fact that is not ``ok``, if there is one."""
    for variant in variants:
        status, detail = _judge(fact, compile, reset, variant)
        if status != "ok":
            return Verdict(fact.name, status, str(variant), detail)
    return Verdict(fact.name, "ok")


def _judge(
    fact: Fact, compile: Compile, reset: Callable[[], object], variant: Variant
) -> tuple[str, str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            want = history(fact, lambda program: program, variant)
        except Exception as error:
            return "invalid", repr(error)
        reset()
        got = history(fact, compile, variant)
    if variant == DIRECT and not differs(want[1].data[:3], want[0].data[:3]):
        return "vacuous", ""
    for number, (a, b) in enumerate(zip(got, want, strict=True)):
        detail = differs(a.data, b.data)
        if detail and a.error is not None and type(a.error) is not type(b.error):
            return "crash", a.failure
        if detail:
            return ("stale" if number else "wrong"), detail
    return "ok", ""
