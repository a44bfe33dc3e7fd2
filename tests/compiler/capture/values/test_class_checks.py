"""`isinstance` of objects whose class decides how attributes are read."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch

import tc


class Other:
    pass


class Config:
    names: ClassVar = {"width": "d_model"}

    def __init__(self) -> None:
        self.d_model = 3

    def __getattribute__(self, key: str) -> Any:
        if key != "names" and key in super().__getattribute__("names"):
            key = super().__getattribute__("names")[key]
        return super().__getattribute__(key)


class Pretends(Config):
    def __getattribute__(self, key: str) -> Any:
        return Other if key == "__class__" else super().__getattribute__(key)


@pytest.mark.parametrize("kind", [Config, Pretends])
@pytest.mark.parametrize("inside", [False, True])
def test_the_object_is_asked_for_its_class_as_python_does(kind: type, inside: bool) -> None:
    def asks(x: torch.Tensor, config: Any) -> tuple[torch.Tensor, list[bool]]:
        config = kind() if inside else config
        found = [
            isinstance(config, Other), isinstance(config, Config), isinstance(config, (int, kind)),
            isinstance(config, (str, Other)), isinstance(config, object),
        ]  # fmt: skip
        return x * config.width, found

    x, config = torch.ones(2), kind()
    compiled = tc.compile(asks, fullgraph=True)
    for _ in range(2):
        expected, found = asks(x, config), compiled(x, config)
        assert torch.equal(found[0], expected[0]) and found[1] == expected[1]
