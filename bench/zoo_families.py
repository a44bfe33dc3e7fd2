"""The libraries whose models are in the zoo, loaded when asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from zoo_specimen import Family, NoSpecimen, Specimen

__all__ = ["FAMILIES", "Family", "NoSpecimen", "Specimen"]


def _from(module: str, name: str) -> Callable[[], Family]:
    def make() -> Family:
        family: Family = getattr(import_module(module), name)()
        return family

    return make


FAMILIES: dict[str, Callable[[], Family]] = {
    "transformers": _from("zoo_transformers", "Transformers"),
    "timm": _from("zoo_vision", "Timm"),
    "torchvision": _from("zoo_vision", "TorchVision"),
    "diffusers": _from("zoo_diffusers", "Diffusers"),
}
