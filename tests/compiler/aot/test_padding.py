"""Padding by a tensor's own elements, in every mode and number of dimensions, against eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import tc
from tc.trace import capture_events


def event_of(item: object) -> object:
    """Return the event of what was captured."""
    return getattr(item, "event", item)


#: image sizes -> pads of them
CASES = {
    (7,): [(0, 0), (3, 2), (0, 4), (6, 6)],
    (5, 6): [(1, 2, 3, 4), (0, 0, 2, 0), (0, 3, 0, 0), (5, 5, 4, 4)],
    (3, 4, 5): [(1, 2, 0, 3, 2, 1), (0, 0, 0, 0, 2, 2)],
}
MODES = ("circular", "reflect", "replicate")


@pytest.mark.sample(2)
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sizes", CASES)
def test_padding_equals_eager(
    sizes: tuple[int, ...], mode: str, dynamic: bool | None, drawn: Any
) -> None:
    x = torch.randn(2, 3, *sizes)
    for pads in drawn(CASES[sizes], 2):

        def program(x: torch.Tensor, pads: tuple[int, ...] = pads) -> torch.Tensor:
            return F.pad(x + 1, pads, mode=mode) * 2

        try:
            want = program(x)
        except RuntimeError:
            continue  # eager refuses reflections that are longer than the image
        torch.testing.assert_close(tc.compile(program, dynamic=dynamic)(x), want, rtol=0, atol=0)


@pytest.mark.sample(2)
@pytest.mark.parametrize("mode", MODES)
def test_gradients_of_padding_equal_eager(mode: str) -> None:
    results = []
    for compiled in (False, True):
        x = torch.arange(60.0).view(1, 2, 5, 6).requires_grad_()
        program = lambda x: (F.pad(x, (1, 2, 3, 4), mode=mode) ** 2).sum()  # noqa: E731
        (tc.compile(program) if compiled else program)(x).backward()
        results.append(x.grad)
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("mode", MODES)
def test_padding_of_an_image_is_one_kernel(mode: str) -> None:
    with capture_events() as events, tc.config.patch(fx_graph_cache=False):
        tc.compile(lambda x: F.pad(x, (2, 2, 2, 2), mode=mode))(torch.randn(1, 2, 8, 8))
    (code,) = (e.code for e in map(event_of, events) if type(e).__name__ == "OutputCode")
    assert code.count("\nvoid k") == 1
    assert "arange" not in code


@pytest.mark.sample(2)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.int64, torch.bool])
def test_padding_of_layouts_and_types_equals_eager(mode: str, dtype: torch.dtype) -> None:
    wide = torch.randint(0, 2 if dtype is torch.bool else 9, (2, 3, 9, 11)).to(dtype)
    program = lambda x: F.pad(x, (3, 1, 2, 4), mode=mode)  # noqa: E731
    for x in (wide[:, :, 1:-2, 2:-1], wide.to(memory_format=torch.channels_last), wide.mT):
        try:
            want = program(x)
        except RuntimeError:
            return  # eager has no kernel for the type
        found = tc.compile(program)(x)
        assert found.stride() == want.stride()
        torch.testing.assert_close(found, want, rtol=0, atol=0)
