"""What was read before a graph break stays what it was, whatever the code at the break replaces."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import tc

#: a place outside of the frame, and what code at the break does to it
PLACES = {
    "w.grad": "w.grad = torch.full((3,), 7.0)",
    "z.a": "z.a = None",
    "z.o": "z.o = 5",
    "z.o.a": "z.o.a = torch.zeros(2)",
    "z.l[0]": "z.l[0] = torch.zeros(2)",
    "z.d['k']": "z.d.clear()",
    "z.list": "z.list = [2]",
    "w.tag": "w.tag = torch.zeros(2)",
    "m.weight": "m.weight = torch.nn.Parameter(torch.zeros(1, 2))",
    "G": "globals().__setitem__('G', torch.zeros(2))",
}
#: how a program keeps what it has read until after the break
USES = {
    "local": "g = READ; brk(); return g",
    "in a list": "g = READ; kept = [g]; brk(); return kept",
    "argument of the break": "g = READ; brk(g); return g",
    "computed with": "g = READ; y = [g] * 2; brk(); return y, g",
    "cell, called": "g = READ; kept = lambda: g; brk(); return kept()",
    "below the call": "return READ, brk()",
    "appended after it": "kept = []; g = READ; brk(); kept.append(g); return kept",
    "in a callee": "\n  def inner():\n    g = READ; brk(); return g\n  return inner(), 1",
    "in a loop": "\n  for i in range(2):\n    g = READ; brk()\n  return g",
    "in a generator": "\n  def each():\n    yield READ; brk(); yield 3\n  return list(each())",
    "below a handler": (
        "\n  try:\n    g = READ; brk(); raise ValueError\n  except ValueError: pass\n  return g"
    ),
}


def _result(use: str, place: str, compiled: bool) -> str:
    w = torch.nn.Parameter(torch.ones(3))
    w.grad, w.tag = torch.ones(3), torch.ones(2)  # type: ignore[attr-defined]
    held = {"o": SimpleNamespace(a=torch.ones(2)), "l": [torch.ones(2)], "list": [1]}
    z = SimpleNamespace(a=torch.ones(2), d={"k": torch.ones(2)}, **held)
    module = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.ones_(module.weight)
    names: dict[str, Any] = {"torch": torch, "w": w, "z": z, "m": module, "G": torch.ones(2)}
    text = f"@torch._dynamo.disable\ndef brk(*args):\n  {PLACES[place]}\n"
    exec(f"{text}def program():\n  {USES[use].replace('READ', place)}\n", names)
    program = names["program"]
    try:
        return repr((tc.compile(program, backend="eager") if compiled else program)())
    except (AttributeError, KeyError, TypeError, IndexError) as error:
        return repr(error)


@pytest.mark.sample(19)
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("place", PLACES)
def test_what_was_read_before_a_break_is_kept(place: str, use: str) -> None:
    assert _result(use, place, compiled=True) == _result(use, place, compiled=False)


def test_gradients_that_were_read_survive_zero_grad() -> None:
    def step(w: torch.Tensor, x: torch.Tensor, optimizer: torch.optim.Optimizer) -> Any:
        (w * x).sum().backward()
        first = w.grad
        optimizer.zero_grad()
        (w * x * 2).sum().backward()
        second = w.grad
        optimizer.step()
        return first, second

    for compiled in (False, True):
        w = torch.nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([w], 0.1)
        run = tc.compile(step) if compiled else step
        for _ in range(3):
            optimizer.zero_grad()
            first, second = run(w, torch.arange(3.0), optimizer)
            assert torch.equal(first * 2, second)
