"""Models of timm and torchvision for the zoo: real architectures, repeated blocks taken out."""

from __future__ import annotations

import functools
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch
import zoo_operators  # noqa: F401 - before torchvision is imported
from zoo_specimen import (
    NoSpecimen,
    Specimen,
    first_that_works,
    integers,
    numbers,
    perturbed,
)

Inputs = Callable[[int], dict[str, Any]]
#: what a whole model may have before blocks are taken out
LARGEST = 60_000_000


def shortened(model: torch.nn.Module, keep: int = 2) -> torch.nn.Module:
    """Take repeated blocks out: of a run of like ones in a `Sequential`, `keep` stay."""
    for module in list(model.modules()):
        if not isinstance(module, torch.nn.Sequential) or type(module).forward is not (
            torch.nn.Sequential.forward
        ):
            continue
        last, run = None, 0
        for name, child in list(module.named_children()):
            like = (type(child), shapes(child))
            run = run + 1 if like == last else 1
            last = like
            if run > keep and like[1]:
                del module._modules[name]
    return model


def shapes(module: torch.nn.Module) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of a module's parameters."""
    return tuple(tuple(parameter.shape) for parameter in module.parameters())


def image(batch: int, side: int, channels: int = 3, seed: int = 3) -> torch.Tensor:
    """Return images, nearly square."""
    return numbers(batch, channels, side, side, seed=seed)


def image_inputs(argument: str, sides: tuple[int, int]) -> Inputs:
    """Return inputs that are images of two sizes."""
    return lambda index: {argument: image(2 + index, sides[index])}


class Timm:
    """All models of timm."""

    def names(self) -> list[str]:
        """Return a small model or two of each architecture first, then all others."""
        import timm

        families: dict[str, list[str]] = defaultdict(list)
        for name in timm.list_models():
            families[timm.model_entrypoint(name).__module__].append(name)
        return [name for names in families.values() for name in names]

    def build(self, name: str, recipe: Any) -> Specimen:
        import timm

        with torch.device("meta"):
            try:
                count = sum(p.numel() for p in shortened(timm.create_model(name)).parameters())
            except (NotImplementedError, RuntimeError):
                count = 0
        if count > LARGEST:
            raise NoSpecimen(f"too large: {count:,} parameters")
        return first_that_works(self._tries(name), recipe)

    def _tries(self, name: str) -> Iterator[tuple[Any, Callable[[], tuple[Any, Inputs]]]]:
        import timm

        def make(side: int | None, sides: tuple[int, int], short: bool) -> tuple[Any, Inputs]:
            given = {"img_size": side} if side else {}
            model = timm.create_model(name, pretrained=False, num_classes=10, **given)
            model = shortened(model) if short else model
            argument = next(iter(inspect.signature(model.forward).parameters))
            return perturbed(model), image_inputs(argument, sides)

        config = timm.get_pretrained_cfg(name)
        own = config.input_size[-1] if config else 224
        for short in (True, False):
            for side, sides in [
                (None, (64, 96)), (64, (64, 64)), (96, (96, 96)), (112, (112, 112)),
                (128, (128, 128)), (None, (128, 160)), (None, (own, own)),
            ]:  # fmt: skip
                yield [side, list(sides), short], functools.partial(make, side, sides, short)


class TorchVision:
    """All models of torchvision but quantized ones."""

    def names(self) -> list[str]:
        """Return the names of all models."""
        import torchvision

        names: list[str] = torchvision.models.list_models()
        return [name for name in names if not name.startswith("quantized")]

    def build(self, name: str, recipe: Any) -> Specimen:
        return first_that_works(self._tries(name), recipe)

    def _tries(self, name: str) -> Iterator[tuple[Any, Callable[[], tuple[Any, Inputs]]]]:
        from torchvision import models

        builder = models.get_model_builder(name)
        kind = builder.__module__.split(".")[2]

        def make(given: dict[str, Any], shape: str, sides: tuple[int, int]) -> tuple[Any, Inputs]:
            if kind in ("detection", "segmentation"):
                given = {**given, "weights_backbone": None}
            model = builder(weights=None, **given)
            model = perturbed(shortened(model))
            argument = next(iter(inspect.signature(model.forward).parameters))
            return model, MAKERS[shape](argument, sides)

        small = {"min_size": 64, "max_size": 96}
        for shape in {
            "detection": ("detection",),
            "video": ("video",),
            "optical_flow": ("flow",),
        }.get(kind, ("image",)):
            for given, sides in [
                ({"image_size": 64}, (64, 64)), (small, (64, 64)), ({}, (64, 96)), ({}, (128, 160)),
                ({}, (224, 224)), ({}, (299, 299)),
            ]:  # fmt: skip
                if ("min_size" in given) != (kind == "detection"):
                    continue
                yield [given, shape, list(sides)], functools.partial(make, given, shape, sides)


def _video(argument: str, sides: tuple[int, int]) -> Inputs:
    return lambda index: {argument: numbers(1 + index, 3, 16, sides[index] * 2, sides[index] * 2)}


def _flow(argument: str, sides: tuple[int, int]) -> Inputs:
    side = (128, 128)
    return lambda index: {
        "image1": image(1 + index, side[index]),
        "image2": image(1 + index, side[index], seed=4),
        "num_flow_updates": 2,
    }


def _detection(argument: str, sides: tuple[int, int]) -> Inputs:
    def inputs(index: int) -> dict[str, Any]:
        count = 1 + index
        targets = [
            {
                "boxes": torch.tensor([[4.0, 4, 30, 30], [10, 12, 40, 50]]),
                "labels": integers(3, 2, low=1),
                "masks": torch.ones(2, sides[0], sides[0], dtype=torch.uint8),
                "keypoints": torch.ones(2, 17, 3),
            }
            for _ in range(count)
        ]
        return {"images": [image(1, sides[0])[0] for _ in range(count)], "targets": targets}

    return inputs


MAKERS: dict[str, Callable[[str, tuple[int, int]], Inputs]] = {
    "image": image_inputs,
    "video": _video,
    "flow": _flow,
    "detection": _detection,
}
