"""Attributes that a program gives to objects of every kind: read, absent, set inside, changed."""

from __future__ import annotations

import collections
import enum
import functools
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tc


class Mode(enum.Enum):
    ONE = 1


def plain() -> None:
    """Do nothing."""


def subclass(base: type, *args: Any) -> Any:
    """Return an instance of a subclass, which has a ``__dict__``."""
    return type(f"Own{base.__name__}", (base,), {})(*args)


MAKERS: dict[str, Callable[[], Any]] = {
    "OrderedDict": lambda: collections.OrderedDict(a=1),
    "Counter": lambda: collections.Counter("ab"),
    "ChainMap": lambda: collections.ChainMap({}),
    "partial": lambda: functools.partial(plain),
    "function": lambda: types.FunctionType(plain.__code__, {}),
    "cached function": lambda: functools.lru_cache(None)(plain),
    "class": lambda: type("Class", (), {}),
    "instance": lambda: subclass(object),
    "module": lambda: types.ModuleType("made"),
    "enum": lambda: Mode.ONE,
    "exception": lambda: ValueError("text"),
    "namespace": types.SimpleNamespace,
    "thread local": threading.local,
    "own list": lambda: subclass(list, [1]),
    "own dict": lambda: subclass(dict, {"a": 1}),
    "own set": lambda: subclass(set, [1]),
    "own tuple": lambda: subclass(tuple, (1,)),
    "own int": lambda: subclass(int, 3),
    "own str": lambda: subclass(str, "text"),
    "own deque": lambda: subclass(collections.deque, [1]),
    "own OrderedDict": lambda: subclass(collections.OrderedDict),
    "own array": lambda: np.ones(2).view(type("OwnArray", (np.ndarray,), {})),
    "tensor": lambda: torch.ones(2),
    "parameter": lambda: torch.nn.Parameter(torch.ones(2)),
    "nn module": lambda: torch.nn.Linear(1, 1),
    "state dict": lambda: torch.nn.Linear(1, 1).state_dict(),
    "distribution": lambda: torch.distributions.Normal(0.0, 1.0),
}
PROGRAMS = {
    "read": "return x + o.tag",
    "ask": "return x + getattr(o, 'tag', 100), hasattr(o, 'tag'), getattr(o, 'late', 7)",
    "set": "o.tag = 5; o.late = x.shape[0]; return x + o.tag, o.late, hasattr(o, 'late')",
}


def outcomes(wrap: Callable[[Any], Any], make: Callable[[], Any], text: str) -> list[Any]:
    obj = make()
    names: dict[str, Any] = {"o": obj}
    exec(f"def program(x):\n    {text}\n", names)
    program = wrap(names["program"])
    found = []
    try:
        for name, value in (("tag", 1), ("tag", 2), ("late", 3), ("tag", 4)):
            setattr(obj, name, value)
            found.append((str(program(torch.ones(2))), obj.tag, getattr(obj, "late", None)))
    finally:
        for name in ("tag", "late"):
            if hasattr(obj, name):
                delattr(obj, name)
    return found


@pytest.mark.sample(14)
@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("kind", MAKERS)
def test_attributes_are_as_in_eager(kind: str, text: str) -> None:
    want = outcomes(lambda program: program, MAKERS[kind], text)
    assert (
        outcomes(lambda program: tc.compile(program, backend="eager"), MAKERS[kind], text) == want
    )


def test_attributes_of_an_ordered_dict_made_inside() -> None:
    def program(x: torch.Tensor) -> Any:
        made = collections.OrderedDict(a=x)
        made.tag = 3
        return made, made.tag, hasattr(made, "tag"), getattr(made, "other", 5)

    made, *rest = tc.compile(program, backend="eager", fullgraph=True)(torch.ones(2))
    assert made.tag == 3
    assert rest == [3, True, 5]


def test_a_state_dict_is_made_and_loaded_inside() -> None:
    module = torch.nn.Linear(2, 2)

    def program(x: torch.Tensor) -> Any:
        state = module.state_dict()
        return x + state["weight"], list(state), dict(state._metadata)

    found = tc.compile(program, backend="eager", fullgraph=True)(torch.ones(2))
    assert str(found) == str(program(torch.ones(2)))


def test_bytes_of_a_tensor() -> None:
    def program(x: torch.Tensor) -> Any:
        return x * 2, x.nbytes, x.half().nbytes, x[:, :1].expand(-1, 7).nbytes

    compiled = tc.compile(program, backend="eager", fullgraph=True)
    for rows in (2, 5, 9):
        x = torch.ones(rows, 3)
        assert compiled(x)[1:] == program(x)[1:]
