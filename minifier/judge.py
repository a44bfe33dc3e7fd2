"""Judges results: eager's and a compiler's in, the difference that is no rounding out.

Rounding is measured, not assumed: the same program runs in float64, and on inputs moved by one
unit in the last place. What differs by more than those do is wrong.
"""

from __future__ import annotations

import dataclasses
import re
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from tc.compiler import api
from tc.compiler.sentinel import rounding
from tc.compiler.sentinel.rounding import same_layout, same_random_numbers
from tc.minifier import identity
from tc.minifier.identity import Identity

Program = Callable[..., Any]
ERROR_TEXT = 8000  # characters of an error that are kept
USER_LINES = "from user code"  # what torch's compiler heads the user's lines with


@dataclass(frozen=True)
class Outcome:
    """How a program fared.

    Attributes:
        kind: ``ok``, ``crash``, ``wrong``, ``nan``, ``accepts`` (eager raises, and compiled code
            does not), ``random``, ``invalid`` (both raise), ``timeout``, ``died``.
        identity: equal for two failures that are the same; None if nothing failed.
        message: one sentence for people.
        detail: numbers behind it.
    """

    kind: str
    identity: Identity | None = None
    message: str = ""
    detail: dict[str, Any] | None = None

    @property
    def failed(self) -> bool:
        """Whether the compiler is to blame for something."""
        return self.identity is not None

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        found = self.identity.as_json() if self.identity else None
        return {**vars(self), "identity": found}


# -- crashes -----------------------------------------------------------------------------------
def crash(error: BaseException) -> Outcome:
    """Return the outcome of an exception that the compiler or its code raised."""
    cause = list(identity.causes(error))[-1]
    found = identity.of_exception(error)
    first = identity.message_of(cause)
    return Outcome(
        "crash", found, f"{type(cause).__name__} in {found.stage}: {first[:200]}",
        {"stage": found.stage, "type": type(cause).__name__, **captured_at(error),
         "text": "\n".join(map(identity.text_of, (error, cause)))[:ERROR_TEXT]},
    )  # fmt: skip


def script_error(error: BaseException) -> Outcome:
    """Return the outcome of an exception that left a script, and not from a graph."""
    if isinstance(error, SystemExit):
        says = identity.message_of(error)[:200]
        by_number = isinstance(error.code, int)
        text = f"exit code {says}" if by_number else f"the words: {says}"
        return Outcome("exit", identity.of_exception(error), f"the script ends with {text}",
                       {"printed": by_number})  # fmt: skip
    found = crash(error)
    of_compiler = type(error).__module__.startswith(("tc.", "torch._dynamo"))
    first = identity.message_of(error)[:200]
    text = found.message if of_compiler else f"{type(error).__name__}: {first}"
    return dataclasses.replace(found, kind="outside" if of_compiler else "script", message=text)


def captured_at(error: BaseException) -> dict[str, Any]:
    """Return where capture was when it failed: ``opcode``, ``callee``, ``line``, ``code``."""
    found = api.error_context(error)
    if found is not None:
        place = found.place
        line = f"{place.file}:{place.line}\t{place.loc or ''}"
        return {"opcode": found.opcode, "callee": found.callee, "line": line, "code": found.code}
    places = re.findall(
        r'File "(.+)", line (\d+), in .+\n +(.+)', identity.text_of(error).partition(USER_LINES)[2]
    )
    if not places:
        return {}
    file, number, text = places[-1]
    names = [
        (PurePath(frame.filename).stem, frame.name)
        for one in (error, list(identity.causes(error))[-1])
        for frame in traceback.extract_tb(one.__traceback__)
        if "_dynamo" in PurePath(frame.filename).parts
        and ("variables" in PurePath(frame.filename).parts or frame.name.isupper())
    ]
    opcode = next((name for _, name in reversed(names) if name.isupper()), "")
    callee = ".".join(names[-1]) if names else ""
    return {"opcode": opcode, "callee": callee, "line": f"{file}:{number}\t{text}",
            "code": "a graph break" if type(error).__name__ == "Unsupported" else ""}  # fmt: skip


# -- running -----------------------------------------------------------------------------------
def clones(inputs: Sequence[Any]) -> list[Any]:
    """Return inputs of their own: same layout, same need for gradients."""
    return [
        same_layout(value).requires_grad_(value.requires_grad)
        if isinstance(value, torch.Tensor)
        else value
        for value in inputs
    ]


@dataclass
class Ran:
    """A program that was run on inputs of its own.

    Attributes:
        inputs: what it was given; it may have written to them.
        outputs: the leaves of what it returned.
        results: outputs, then the inputs, which it may have written to (eager does not always say
            that it does); `add_gradients` adds those of its inputs.
    """

    inputs: list[Any]
    outputs: list[Any]
    results: list[Any]

    @classmethod
    def of(cls, program: Program, inputs: Sequence[Any]) -> Ran:
        """Run a program forward."""
        own = clones(inputs)
        outputs = [v for v in tree_leaves(program(*own)) if v is not None]
        plain = [v.detach() if isinstance(v, torch.Tensor) else v for v in outputs]
        return cls(own, outputs, plain + [v.detach() for v in own if isinstance(v, torch.Tensor)])

    def add_gradients(self) -> None:
        """Run backward, too."""
        loss = loss_of(self.outputs)
        if loss is not None:
            loss.backward()
        self.results = self.results + [
            v.grad for v in self.inputs if isinstance(v, torch.Tensor) and v.requires_grad
        ]


def run(program: Program, inputs: Sequence[Any], backward: bool) -> list[Any]:
    """Run a program on inputs of its own; returns outputs, inputs, and gradients."""
    ran = Ran.of(program, inputs)
    if backward:
        ran.add_gradients()
    return ran.results


def loss_of(outputs: Sequence[Any]) -> Any:
    """Return a number that depends on all outputs, with gradients that differ by element."""
    parts = [
        v.sin().sum()
        for v in outputs
        if isinstance(v, torch.Tensor) and v.requires_grad and v.is_floating_point()
    ]
    return sum(parts[1:], parts[0]) if parts else None


def in_double(program: Program, inputs: Sequence[Any], backward: bool) -> list[Any] | None:
    """Return the results in float64, or None if the program cannot run in it."""
    try:
        with rounding.InDouble():
            return run(program, list(map(rounding.widened, inputs)), backward)
    except Exception:
        return None


def jittered(program: Program, inputs: Sequence[Any], backward: bool, seed: int) -> list[Any]:
    """Return the results on inputs moved by about one unit in the last place."""
    generator = torch.Generator().manual_seed(seed)
    moved = [rounding.jittered(value, generator) for value in inputs]
    return run(program, moved, backward)


# -- comparing ---------------------------------------------------------------------------------
def compare(
    program: Program, inputs: Sequence[Any], backward: bool, eager: list[Any], compiled: list[Any]
) -> Outcome:
    """Judge whether compiled results differ from eager's by more than rounding."""

    def double() -> list[Any] | None:
        with same_random_numbers():
            return in_double(program, inputs, backward)

    def moved(seed: int) -> list[Any]:
        with same_random_numbers():
            return jittered(program, inputs, backward, seed)

    def nearby(seed: int) -> list[Any] | None:
        generator = torch.Generator().manual_seed(seed)
        with same_random_numbers():
            return in_double(program, [rounding.nearby(v, generator) for v in inputs], backward)

    reference = rounding.Reference(eager, double, moved, nearby=nearby)
    differs, found = rounding.compare(reference, compiled)
    if found is not None:
        kind = Identity(found.kind, found.aspect) if found.aspect else Identity(found.kind)
        return Outcome(found.kind, kind, found.message, found.detail or None)
    return Outcome("ok", message="differs from eager by no more than rounding does" * differs)


def judge(
    program: Program,
    compiled: Callable[[], Program],
    inputs: Sequence[Any],
    backward: bool,
    accepts: bool = True,
    draws_as_eager: bool = False,
) -> Outcome:
    """Run a program eagerly and compiled; return what goes wrong.

    Backward runs, and is compiled, only where forward is right.

    Args:
        accepts: where eager raises, see whether compiled code does.
        draws_as_eager: compiled code draws the random numbers that eager draws, so that a program
            with random numbers can be judged.
    """
    eager, outcome = _attempt(lambda: Ran.of(program, inputs), eager=True)
    if eager is None:
        return refused(outcome, program, compiled, inputs) if accepts else outcome
    result, outcome = _attempt(lambda: Ran.of(compiled(), inputs))
    if result is None:
        return in_forward(outcome)
    outcome = _verdict(program, inputs, False, eager.results, result.results, draws_as_eager)
    if outcome.failed:
        return in_forward(outcome)
    if not backward or outcome.kind == "random":
        return outcome
    done, outcome = _attempt(eager.add_gradients, eager=True)
    if done is None:
        return outcome
    done, outcome = _attempt(result.add_gradients)
    if done is None:
        return outcome
    return _verdict(program, inputs, True, eager.results, result.results, draws_as_eager)


def draws_as_eager(call: str) -> bool:
    """Whether what a call compiles draws eager's random numbers: tc does, unless set otherwise."""
    asked = call.startswith("tc.") and "backend=" not in call and "fallback_random" not in call
    return asked and api.config.fallback_random


def refused(
    outcome: Outcome, program: Program, compiled: Callable[[], Program], inputs: Sequence[Any]
) -> Outcome:
    """Return the outcome of a program that eager does not run: compiled code must not either.

    Gradients are left out: copies of inputs are leaves, to which eager does not let it write.
    """
    plain = [v.detach() if isinstance(v, torch.Tensor) else v for v in inputs]
    with torch.no_grad():
        eager, again = _attempt(lambda: Ran.of(program, plain), eager=True)
        if eager is not None or again.message != outcome.message:
            return outcome
        result, _ = _attempt(lambda: Ran.of(compiled(), plain))
    if result is None:
        return outcome
    name = str((outcome.detail or {}).get("type", ""))
    text = f"{outcome.message}; compiled code returns a result"
    return Outcome("accepts", Identity("accepts", types=(name,)), text, {"forward": True})


def in_forward(outcome: Outcome) -> Outcome:
    """Note that it went wrong before backward ran."""
    return dataclasses.replace(outcome, detail={**(outcome.detail or {}), "forward": True})


def refusal_of(error: BaseException) -> str:
    """Return in one sentence what eager raises."""
    return f"eager raises {type(error).__name__}: {identity.message_of(error)[:200]}"


def is_refusal(outcome: Outcome, error: BaseException) -> bool:
    """Return whether compiled code raises what eager raises, as an outcome knows it."""
    text = refusal_of(list(identity.causes(error))[-1])
    return outcome.kind == "invalid" and identity.normalised(outcome.message) == (
        identity.normalised(text)
    )


def _attempt(work: Callable[[], Any], eager: bool = False) -> tuple[Any, Outcome]:
    """Do work that may raise; returns what it made (True for nothing) or None, and the outcome."""
    try:
        with same_random_numbers():
            made = work()
    except Exception as error:
        if not eager:
            return None, crash(error)
        name = type(error).__name__
        return None, Outcome("invalid", message=refusal_of(error), detail={"type": name})
    return True if made is None else made, Outcome("ok")


def _verdict(
    program: Program,
    inputs: Sequence[Any],
    backward: bool,
    eager: list[Any],
    result: list[Any],
    draws_as_eager: bool,
) -> Outcome:
    """Compare results; what differs because eager itself does is no fault."""
    outcome = compare(program, inputs, backward, eager, result)
    differs = outcome.kind in ("wrong", "nan") or bool(outcome.message)
    if differs and is_random(program, inputs, backward, eager, not draws_as_eager):
        return Outcome("random", message="eager itself gives other results on each run")
    return outcome


def is_random(
    program: Program, inputs: Sequence[Any], backward: bool, eager: list[Any], reseeded: bool = True
) -> bool:
    """Whether eager's results depend on the random state, or on nothing that stays the same.

    Args:
        reseeded: whether to draw other numbers; else only the latter is looked at.
    """
    with same_random_numbers():
        if reseeded:
            torch.manual_seed(12345)
        again = run(program, inputs, backward)
    return not rounding.are_close(eager, again)
