"""Graphs name what they call, also where Python has a word of the same spelling."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import tc


def by_name(x: torch.Tensor) -> torch.Tensor:
    return x.random_(**{"from": 2, "to": 9}) + x.uniform_(to=3, **{"from": 1})


def by_place(x: torch.Tensor) -> torch.Tensor:
    return x.random_(2, 9) * 2


@pytest.mark.parametrize("function", [by_name, by_place])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "tc"])
def test_arguments_and_overloads_named_from_can_be_written(
    function: Callable[[torch.Tensor], torch.Tensor], backend: str
) -> None:
    results = []
    for run in (function, tc.compile(function, backend=backend, fullgraph=True)):
        torch.manual_seed(0)
        x = torch.zeros(5)
        results.append((run(x), x))
    torch.testing.assert_close(results[0], results[1])
