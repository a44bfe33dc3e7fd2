"""One call, by eager and compiled, on random inputs: values, writes and gradients compared."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tc.compiler.capture import hook
from tc.compiler.sentinel import rounding
from tc.compiler.sentinel.copies import RandomState

#: what drawn numbers are, before they get a tensor's type: on the CPU, so that a seed is a value
DOUBLE: dict[str, Any] = {"dtype": torch.float64, "device": "cpu"}
Inputs = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Trial:
    """What a comparison found.

    Attributes:
        wrong: how the results differ; empty if they do not.
        raised: what eager raises; empty if it does not.
        backward: whether gradients were compared.
    """

    wrong: str = ""
    raised: str = ""
    backward: bool = False


def tried(eager: Any, compiled: Callable[..., Any], inputs: Inputs, seed: int) -> Trial:
    """Call a function both ways on the same values, and compare all that comes of it.

    Parameters, buffers and random state are as before afterwards; whatever else the function
    changes, it changes.

    Args:
        inputs: their tensors are filled, from ``seed``.
    """
    fill(inputs, seed)
    module = eager if isinstance(eager, torch.nn.Module) else None
    wanted = _wanted(module)

    def run(function: Callable[..., Any], given: Inputs, params: Sequence[Any]) -> list[Any]:
        with _as_before(module), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return _results(function, _copied(given), params, module, seed)

    try:
        with hook.off():
            theirs = run(eager, inputs, wanted)
    except Exception as error:
        return Trial(raised=_sentence(error))
    try:
        mine = run(compiled, inputs, wanted)
    except Exception as error:
        return Trial(f"compiled code raises {type(error).__name__}: {_first(error)}")

    def double() -> list[Any] | None:
        return _in_double(eager, inputs, seed)

    def moved(moving: int) -> list[Any]:
        with hook.off(), rounding.Perturbed(moving):
            return run(eager, inputs, wanted)

    _, difference = rounding.compare(rounding.Reference(theirs, double, moved), mine)
    gradients = any(isinstance(one, torch.Tensor) for one in theirs[-1:]) and bool(
        wanted or _leaves(inputs)
    )
    return Trial("" if difference is None else difference.message, backward=gradients)


def raised_by(eager: Any, inputs: Inputs, seed: int) -> str:
    """Return what a function raises on random values, without a compiler; empty if nothing."""
    fill(inputs, seed)
    module = eager if isinstance(eager, torch.nn.Module) else None
    try:
        with hook.off(), _as_before(module), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            _results(eager, _copied(inputs), _wanted(module), module, seed)
    except Exception as error:
        return _sentence(error)
    return ""


def fill(inputs: Inputs, seed: int) -> None:
    """Draw the values of tensors: normal floats, and integers 0 and 1, which index most things."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in _tensors(inputs):
            if tensor.is_floating_point() or tensor.is_complex():
                drawn = torch.randn(tensor.shape, generator=generator, **DOUBLE)
            else:
                drawn = torch.randint(0, 2, tensor.shape, generator=generator, device="cpu")
            tensor.copy_(drawn)


def _wanted(module: torch.nn.Module | None) -> list[Any]:
    return [] if module is None else [one for one in module.parameters() if one.requires_grad]


def _tensors(value: Any) -> list[torch.Tensor]:
    return [one for one in pytree.tree_leaves(value) if isinstance(one, torch.Tensor)]


def _leaves(inputs: Inputs) -> list[torch.Tensor]:
    return [one for one in _tensors(inputs) if one.requires_grad]


def _copied(inputs: Inputs) -> Inputs:
    made: dict[int, torch.Tensor] = {}

    def copied(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in made:
            twin = value.detach().clone().requires_grad_(value.requires_grad)
            twin.__dict__.update(value.__dict__)  # the marks on its dimensions
            made[id(value)] = twin
        return made[id(value)]

    found: Inputs = pytree.tree_map(copied, inputs)
    return found


def _results(
    function: Callable[..., Any], inputs: Inputs, params: Sequence[Any],
    module: torch.nn.Module | None, seed: int,
) -> list[Any]:  # fmt: skip
    """Return outputs, inputs after the call, buffers, and gradients of all that needs them."""
    args, kwargs = inputs
    leaves = _leaves(inputs)
    made = function(*args, **kwargs)
    values = [
        one for one in pytree.tree_leaves(made) if isinstance(one, torch.Tensor | int | float)
    ]
    outputs = [one for one in values if isinstance(one, torch.Tensor) and one.grad_fn is not None]
    found = [one.detach() if isinstance(one, torch.Tensor) else one for one in values]
    found += [one.detach() for one in _tensors(inputs)]
    found += [] if module is None else [one.detach().clone() for one in module.buffers()]
    wanted = [*leaves, *params]
    if outputs and wanted:
        generator = torch.Generator().manual_seed(seed)
        tangents = [
            torch.randn(one.shape, generator=generator, **DOUBLE).to(one) for one in outputs
        ]
        found += torch.autograd.grad(outputs, wanted, tangents, allow_unused=True)
    return found


@contextlib.contextmanager
def _as_before(module: torch.nn.Module | None) -> Iterator[None]:
    """Put parameters, buffers and random state back after a block."""
    of_python, of_torch = random.getstate(), RandomState.now(())
    state = [] if module is None else [*module.parameters(), *module.buffers()]
    kept = [one.detach().clone() for one in state]
    try:
        yield
    finally:
        with torch.no_grad():
            for one, before in zip(state, kept, strict=True):
                if not torch.equal(one, before):
                    one.copy_(before)
        random.setstate(of_python)
        of_torch.restore()


def _in_double(eager: Any, inputs: Inputs, seed: int) -> list[Any] | None:
    """Return the results in float64; None if it cannot run so."""
    try:
        module = copy.deepcopy(eager).double() if isinstance(eager, torch.nn.Module) else None
        wide = pytree.tree_map(rounding.widened, inputs)
        with hook.off(), rounding.InDouble(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return _results(
                eager if module is None else module, wide, _wanted(module), module, seed
            )
    except Exception:
        return None


def _sentence(error: BaseException) -> str:
    return f"{type(error).__name__}: {_first(error)}"


def _first(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "")
