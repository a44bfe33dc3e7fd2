"""What the zoo's families have in common: a model with inputs of two sizes, found by trying."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.utils import _pytree as pytree

#: parameters that a model may have, and CPU seconds that finding one may take
PARAMETERS, SECONDS = 30_000_000, 10.0


class NoSpecimen(Exception):
    """A model that could not be built, or that fails in eager however it is called."""


@dataclass
class Specimen:
    """A model and what it is called with.

    Attributes:
        inputs: keyword arguments of a call at size 0 or 1; fresh at each call.
        recipe: how it was found, so that another process builds the same.
    """

    model: torch.nn.Module
    inputs: Callable[[int], dict[str, Any]]
    recipe: Any

    def on(self, device: str) -> Specimen:
        """Return the same on a device."""
        if device == "cpu":
            return self

        def moved(value: Any) -> Any:
            return value.to(device) if isinstance(value, torch.Tensor) else value

        def inputs(size: int) -> dict[str, Any]:
            return dict(pytree.tree_map(moved, self.inputs(size)))

        return Specimen(self.model.to(device), inputs, self.recipe)


class Family(Protocol):
    """Models of one library."""

    def names(self) -> list[str]:
        """Return the names of all models."""
        ...

    def build(self, name: str, recipe: Any) -> Specimen:
        """Return a model; `recipe` is that of an earlier one of this name, or None."""
        ...


def generator(seed: int = 3) -> torch.Generator:
    """Return a source of the same numbers at each call."""
    return torch.Generator().manual_seed(seed)


def numbers(*shape: int, seed: int = 3) -> torch.Tensor:
    """Return normal numbers."""
    return torch.randn(*shape, generator=generator(seed))


def integers(high: int, *shape: int, low: int = 0, seed: int = 3) -> torch.Tensor:
    """Return whole numbers."""
    return torch.randint(low, max(high, low + 1), shape, generator=generator(seed))


def perturbed(model: torch.nn.Module) -> torch.nn.Module:
    """Move all parameters a little: those that start as zero would hide what they multiply."""
    source = generator(5)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                noise = torch.randn(parameter.shape, generator=source)
                parameter.add_(0.02 * noise.to(parameter.dtype))
    return model.float()


def small_enough(make: Callable[[], torch.nn.Module], limit: int = PARAMETERS) -> bool:
    """Return whether a model has few parameters, without making them."""
    try:
        with torch.device("meta"):
            model = make()
    except (NotImplementedError, RuntimeError):
        return True  # it computes while it is made: see then
    return sum(parameter.numel() for parameter in model.parameters()) <= limit


def works(model: torch.nn.Module, inputs: Callable[[int], dict[str, Any]]) -> None:
    """Call a model as the judge will; raises what it raises."""
    for mode in (True, False):
        model.train(mode)
        for index in (1, 0):
            with torch.set_grad_enabled(mode):
                torch.manual_seed(0)
                model(**inputs(index))


def first_that_works(
    tries: Iterable[tuple[Any, Callable[[], tuple[Any, Callable[[int], dict[str, Any]]]]]],
    recipe: Any,
) -> Specimen:
    """Return the first specimen whose model can be made and called.

    Raises:
        NoSpecimen: there is none; with the errors that occurred.
    """
    end = time.process_time() + SECONDS
    errors: list[str] = []
    for named, make in tries:
        if recipe is not None and named != recipe:
            continue
        if time.process_time() > end:
            errors.append("out of time")
            break
        try:
            torch.manual_seed(0)
            model, inputs = make()
            works(model, inputs)
        except Exception as error:
            text = f"{type(error).__name__}: {str(error)[:200]}"
            if text not in errors:
                errors.append(text)
            continue
        return Specimen(model, inputs, named)
    raise NoSpecimen(" | ".join(errors[:8]))
