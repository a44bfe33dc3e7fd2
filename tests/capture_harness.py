"""Differential checks of capture: a program and its arguments in, compiled against eager."""

from __future__ import annotations

import copy
import enum
import functools
import types
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import tc
from tc import trace
from tc.compiler import api

ATOMS = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device, enum.Enum)
PLAIN = (type, set, frozenset, range, slice, torch.Tensor, np.ndarray, np.generic)
Make = Callable[[], tuple[Any, ...]]


def two_tensors() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the arguments that most programs take."""
    generator = torch.Generator().manual_seed(7)
    return torch.randn(3, 4, generator=generator), torch.randn(3, 4, generator=generator)


@dataclass
class Program:
    """A function to be run eagerly and compiled.

    Attributes:
        make: gives fresh arguments.
        graphs, breaks: how many there must be after the first call; None: not a promise.
        watched: names of module globals that it may change.
    """

    fn: Callable[..., Any]
    make: Make = two_tensors
    graphs: int | None = None
    breaks: int | None = None
    watched: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.fn.__name__


class Programs(list[Program]):
    """A list of programs, filled by its decorator."""

    def __call__(
        self,
        graphs: int | None = None,
        breaks: int | None = None,
        make: Make = two_tensors,
        watched: tuple[str, ...] = (),
        **options: Any,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def add(fn: Callable[..., Any]) -> Callable[..., Any]:
            self.append(Program(fn, make, graphs, breaks, watched, options))
            return fn

        return add


@dataclass
class Outcome:
    """All that can be seen of one call."""

    result: Any = None
    error: BaseException | None = None
    args: tuple[Any, ...] = ()
    watched: dict[str, Any] = field(default_factory=dict)
    grads: list[Any] = field(default_factory=list)
    grad_mode: bool = True

    def seen(self) -> Any:
        error = (type(self.error), str(self.error)) if self.error is not None else None
        return [self.result, error, list(self.args), self.watched, self.grads, self.grad_mode]


def run(fn: Callable[..., Any], program: Program) -> Outcome:
    """Call a function with fresh arguments, and note everything that can be seen after it."""
    space = program.fn.__globals__
    before = {name: copy.deepcopy(space[name]) for name in program.watched}
    torch.manual_seed(1)
    outcome = Outcome(args=program.make())
    torch.manual_seed(0)
    try:
        outcome.result = fn(*outcome.args)
    except Exception as error:
        outcome.error = error
    outcome.grad_mode = torch.is_grad_enabled()
    outcome.watched = {name: space[name] for name in program.watched}
    torch.set_grad_enabled(True)
    outcome.grads = gradients(outcome)
    space.update(before)
    return outcome


def gradients(outcome: Outcome) -> list[Any]:
    """Go backward through all results, and return the gradients of all tensors in the arguments."""
    inputs = [x for x in leaves(outcome.args) if isinstance(x, torch.Tensor) and x.requires_grad]
    results = [
        x for x in leaves(outcome.result)
        if isinstance(x, torch.Tensor) and x.grad_fn is not None
    ]  # fmt: skip
    if not inputs or not results:
        return []
    sum(x.double().square().sum() for x in results).backward()
    return [x.grad for x in inputs if x.is_leaf]


def check(program: Program) -> None:
    """Run a program eagerly and compiled (twice: capturing, then from the cache) and compare."""
    expected = [run(program.fn, program), run(program.fn, program)]
    tc.reset()
    compiled = tc.compile(program.fn, **{"backend": "eager", **program.options})
    with trace.capture_events() as events:
        first = run(compiled, program)
    reported = [f"{b.code} {b.title} (line {b.line})" for b in events.of(trace.GraphBreak)]
    reported += [f"skipped: {s.reason}" for s in events.of(trace.FrameSkipped)]
    stats = api.graph_stats()
    second = run(compiled, program)
    for number, (got, want) in enumerate(zip((first, second), expected, strict=True)):
        try:
            same(got.seen(), want.seen(), f"call {number + 1}")
        except AssertionError:
            if got.error is not None and want.error is None:
                raise got.error from None
            raise
    if program.graphs is not None:
        assert stats["graphs"] == program.graphs, (
            f"{stats}, expected {program.graphs} graphs; {reported}"
        )
    if program.breaks is not None:
        assert stats["graph_breaks"] == program.breaks, (
            f"{stats}, expected {program.breaks} breaks; {reported}"
        )


# -- comparing -------------------------------------------------------------------------------
def parts(value: Any) -> list[tuple[str, Any]]:
    """Return the parts of a compound value, each with how it is reached."""
    if isinstance(value, dict):
        plain = [(f"[{key!r}]", item) for key, item in value.items()]
        return [*plain, *[("key", k) for k in value if not isinstance(k, ATOMS)]]
    if isinstance(value, list | tuple | deque):
        return [(f"[{i}]", item) for i, item in enumerate(value)]
    if isinstance(value, (*ATOMS, *PLAIN)):
        return []
    if isinstance(value, types.FunctionType):
        return [("()", c.cell_contents) for c in value.__closure__ or () if _filled(c)]
    if isinstance(value, types.MethodType):
        return [("__self__", value.__self__)]
    if isinstance(value, functools.partial):
        return [("args", value.args), ("keywords", value.keywords)]
    if isinstance(value, torch.nn.Module):
        return [("state", dict(value.state_dict())), ("", _own(value))]
    return [("", _own(value))] if hasattr(value, "__dict__") else []


def _own(value: Any) -> dict[str, Any]:
    return {k: v for k, v in vars(value).items() if not k.startswith("_")}


def _filled(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def leaves(value: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """Yield everything inside a value, depth first, each object once."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return
    seen.add(id(value))
    yield value
    for _, part in parts(value):
        yield from leaves(part, seen)


def same(got: Any, want: Any, path: str) -> None:
    """Assert that two values agree in types, contents, and in which objects are the same one."""
    _same(got, want, path, {}, {})


def _same(got: Any, want: Any, path: str, actual: dict[int, Any], theirs: dict[int, Any]) -> None:
    assert type(got) is type(want), f"{path}: {type(got)} is not {type(want)} ({got!r}, {want!r})"
    if isinstance(want, (*ATOMS, type)):
        equal = got == want or (got != got and want != want)
        assert equal, f"{path}: {got!r} is not {want!r}"
        return
    if not isinstance(want, tuple):
        label = (actual.get(id(got)) or ("", None))[0], (theirs.get(id(want)) or ("", None))[0]
        assert label[0] == label[1], f"{path}: is the object at {label[0]!r}, not at {label[1]!r}"
        if label[0]:
            return
        actual[id(got)], theirs[id(want)] = (path, got), (path, want)
    if isinstance(want, torch.Tensor):
        _same_tensor(got, want, path, actual, theirs)
    elif isinstance(want, np.ndarray | np.generic):
        np.testing.assert_allclose(got, want, rtol=1e-5, err_msg=path)
        assert got.dtype == want.dtype, f"{path}: {got.dtype}, not {want.dtype}"
    elif isinstance(want, set | frozenset | range | slice):
        assert got == want, f"{path}: {got!r} is not {want!r}"
    mine, other = parts(got), parts(want)
    names = [n for n, _ in mine], [n for n, _ in other]
    assert names[0] == names[1], f"{path}: has {names[0]}, not {names[1]}"
    for (name, a), (_, b) in zip(mine, other, strict=True):
        _same(a, b, path + name, actual, theirs)


def _same_tensor(
    got: torch.Tensor, want: torch.Tensor, path: str, actual: dict[int, Any], theirs: dict[int, Any]
) -> None:
    torch.testing.assert_close(got, want, equal_nan=True, msg=lambda m: f"{path}: {m}")
    assert got.requires_grad == want.requires_grad, f"{path}: requires_grad={got.requires_grad}"
    assert got.is_leaf == want.is_leaf, f"{path}: is_leaf={got.is_leaf}"
    assert got.stride() == want.stride(), f"{path}: strides {got.stride()}, not {want.stride()}"
    if got.numel():
        a, b = -got.untyped_storage().data_ptr(), -want.untyped_storage().data_ptr()
        first = actual.setdefault(a, (path, got))[0], theirs.setdefault(b, (path, want))[0]
        assert first[0] == first[1], f"{path}: shares memory with {first[0]}, not with {first[1]}"
