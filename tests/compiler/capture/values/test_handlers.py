"""Functions with handlers of their own, called with operands that they refuse; texts, settings."""

from __future__ import annotations

import copy
import types
from typing import Any

import pytest
import torch

import tc

#: calls in a ``try`` that eager refuses, or that have a default written out
CALLS = (
    "x.stride(dim=None)",
    "x.stride(7)",
    "x.stride('a')",
    "x.size(7)",
    "x.size('a')",
    "torch.is_tensor()",
    "torch.set_grad_enabled('a')",
    "torch.set_default_dtype(torch.int32)",
    "torch.use_deterministic_algorithms(1)",
    "torch.set_float32_matmul_precision('bad')",
    "torch.is_autocast_enabled(3)",
    "torch.Size(['a'])",
    "torch.finfo(torch.int32)",
    "torch.promote_types(1, 2)",
)


@pytest.mark.parametrize("call", CALLS)
def test_what_a_function_refuses_python_calls(call):
    names: dict[str, Any] = {"torch": torch}
    text = f"  try:\n    found = {call}\n  except Exception as error:\n    found = str(error)\n"
    exec(f"def program(x):\n{text}  return x + 1, found\n", names)
    program, x = names["program"], torch.ones(3, device="cpu")
    found, expected = tc.compile(program, backend="eager")(x), program(x)
    assert torch.equal(found[0], expected[0])
    assert found[1] == expected[1]


def test_named_tuples_of_torch_are_written_with_their_items():
    def program(x):
        return repr(x.max(0)), f"{torch.sort(x)}", x + 1

    x = torch.arange(3.0, device="cpu")
    assert tc.compile(program, backend="eager")(x)[:2] == program(x)[:2]


class Settings(types.ModuleType):
    """A module with a setting that code of its class stores."""

    @property
    def scale(self) -> Any:
        return self.stored

    @scale.setter
    def scale(self, value: Any) -> None:
        self.stored = value * 2


SETTINGS = Settings("settings")


def test_settings_of_modules_are_stored_by_their_descriptors():
    def program(x):
        backends = torch.backends
        before = backends.cudnn.benchmark, backends.mkldnn.enabled
        backends.cudnn.benchmark, backends.mkldnn.enabled = not before[0], False
        seen = backends.cudnn.benchmark, torch._C._get_cudnn_benchmark(), backends.mkldnn.enabled
        backends.cudnn.benchmark, backends.mkldnn.enabled = before
        SETTINGS.scale = x
        return seen, backends.cudnn.benchmark, SETTINGS.scale

    x = torch.ones(2, device="cpu")
    expected, compiled = program(x), tc.compile(program, backend="eager")
    for _ in range(2):
        found = compiled(x)
        assert found[:2] == expected[:2]
        assert torch.equal(found[2], expected[2])


def test_a_copy_of_a_tensor_has_its_gradient():
    def program(x):
        made = copy.deepcopy([x, x.grad])
        return made[0].grad is made[1], made[0].grad + 1

    x = torch.ones(2, device="cpu")
    x.grad = torch.ones(2, device="cpu")
    same, grad = tc.compile(program, backend="eager")(x)
    assert same
    assert grad.tolist() == [2, 2]


class Marked(torch.Tensor):
    """A subclass, instances of which parameters may be."""


class Holder(torch.nn.Module):
    def __init__(self, given: Any) -> None:
        super().__init__()
        self.made = torch.nn.Parameter(torch.ones(2, device="cpu").as_subclass(Marked))
        print(end="")
        self.given = given
        self.plain = torch.nn.Parameter(torch.ones(1, device="cpu"))


def test_parameters_of_tensor_subclasses_keep_their_class_and_are_registered():
    given = torch.nn.Parameter(torch.ones(2, device="cpu").as_subclass(Marked))

    def program(x):
        held = Holder(given)
        return held, -held.made, x + 1

    x = torch.ones(2, device="cpu")
    compiled, expected = tc.compile(program, backend="eager"), program(x)
    for _ in range(2):
        held, negated, _ = compiled(x)
        assert list(held.state_dict()) == list(expected[0].state_dict())
        assert type(held.made) is type(negated) is Marked
