"""Tensors of one number as an index: eager reads the number and takes the view there."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tc
from tc import trace


def _assign(x: torch.Tensor, at: Any, value: Any) -> torch.Tensor:
    x[at] = value
    return x + 1


#: programs of a square tensor and two indices
PROGRAMS: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]] = {
    "row": lambda x, i, j: x[i],
    "column": lambda x, i, j: x[:, i] * 2,
    "element": lambda x, i, j: x[i, j],
    "behind an ellipsis": lambda x, i, j: x[..., i],
    "with a slice": lambda x, i, j: x[i, 1:],
    "with None": lambda x, i, j: x[None, i],
    "with None behind": lambda x, i, j: x[i, None, 1:],
    "with a number": lambda x, i, j: x[None, 1, i],
    "with all": lambda x, i, j: x.unsqueeze(0)[0, ..., None, i],
    "twice": lambda x, i, j: x[i][j],
    "of int32": lambda x, i, j: x[i.int()],
    "computed": lambda x, i, j: x[x.sum(1).argmax()] + x[j],
    "beyond the end": lambda x, i, j: x[i + 100],
    "a mask": lambda x, i, j: x[i.bool()],
    "several": lambda x, i, j: torch.cat([x[k] for k in (i, j)]).softmax(0),
    "written to": lambda x, i, j: x[i].mul_(3),
    "assigned": lambda x, i, j: _assign(x, i, 7.0),
    "assigned a row": lambda x, i, j: _assign(x, (slice(None), j), x[:, i] * 2),
    "assigned another type": lambda x, i, j: _assign(x, i, torch.arange(x.size(1))),
    "made inside": lambda x, i, j: x[torch.tensor(1)] + x[:, torch.tensor(-1)] + x[j],
    "made inside, assigned": lambda x, i, j: _assign(x, (torch.tensor(1), j), 7.0),
    "made inside and changed": lambda x, i, j: x[torch.tensor(2).sub_(1)],
    "made inside, beyond the end": lambda x, i, j: x[torch.tensor(100)],
    "mapped": lambda x, i, j: torch.vmap(lambda row: row[i])(x),
}
#: those that are one graph
REFUSED = "made inside, beyond the end"
WHOLE = [name for name in PROGRAMS if name not in ("a mask", "mapped", REFUSED)]


def seen(fn: Callable[..., Any], x: torch.Tensor, i: int, j: int, grad: bool) -> Any:
    leaf = x.clone().requires_grad_(grad)
    own = leaf * 1 if grad else leaf
    try:
        result = fn(own, torch.tensor(i), torch.tensor(j))
    except (IndexError, RuntimeError) as error:
        return type(error)
    if grad:
        result.sum().backward()
    views = result.stride(), result.storage_offset()
    return result.detach(), own.detach(), views, leaf.grad if grad else torch.zeros(())


@pytest.mark.sample(4)
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager(name: str, grad: bool, dynamic: bool | None) -> None:
    compiled = tc.compile(PROGRAMS[name], dynamic=dynamic)
    for size in (4, 4, 6):
        x, i, j = torch.randn(size, size), random.randrange(-size, size), random.randrange(size)
        with trace.capture_events() as found:
            got = seen(compiled, x, i, j, grad)
        broke = any(isinstance(one, trace.GraphBreak) for one in found)
        assert not broke or name not in WHOLE
        want = seen(PROGRAMS[name], x, i, j, grad)
        if isinstance(want, type):
            assert got is want
            continue
        assert got[2] == want[2]
        for one, other in zip((*got[:2], got[3]), (*want[:2], want[3]), strict=True):
            torch.testing.assert_close(one, other)


def test_another_number_is_no_other_compile() -> None:
    compiles: list[int] = []

    def counted(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        compiles.append(len(inputs))
        return graph

    compiled, x = tc.compile(PROGRAMS["row"], fullgraph=True, backend=counted), torch.randn(5, 3)
    for i in (0, 4, -2):
        assert torch.equal(compiled(x, torch.tensor(i), None), x[i])
    assert len(compiles) == 1
