"""Operations that check indices raise what eager raises: the same type, or one derived from it."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import tc
from tc.compiler.errors import IndexOutOfRange

X = torch.arange(12.0).view(3, 4)


def one(value):
    return torch.tensor([[value]])


def classes(*values):
    return torch.tensor(values)


#: name -> (a function of X and indices, indices that X does not have)
OPERATIONS = {
    "x[i]": (lambda x, i: x[i], [classes(0, 3), classes(0, -4)]),
    "x[:, i]": (lambda x, i: x[:, i], [classes(4)]),
    "index_put": (lambda x, i: x.index_put((i,), torch.tensor(1.0)), [classes(3)]),
    "index_select": (lambda x, i: x.index_select(0, i), [classes(3), classes(-1)]),
    "index_add": (lambda x, i: x.index_add(0, i, torch.ones(1, 4)), [classes(3)]),
    "index_copy": (lambda x, i: x.index_copy(0, i, torch.ones(1, 4)), [classes(3)]),
    "index_fill": (lambda x, i: x.index_fill(0, i, 1.0), [classes(3)]),
    "index_reduce": (lambda x, i: x.index_reduce(0, i, torch.ones(1, 4), "prod"), [classes(3)]),
    "gather": (lambda x, i: x.gather(1, i), [one(4), one(-1)]),
    "take": (lambda x, i: x.take(i), [classes(12), classes(-13)]),
    "put": (lambda x, i: x.put(i, torch.ones(1)), [classes(12)]),
    "scatter": (lambda x, i: x.scatter(1, i, 1.0), [one(4), one(-1)]),
    "scatter of a tensor": (lambda x, i: x.scatter(1, i, torch.ones(1, 1)), [one(4)]),
    "scatter_add": (lambda x, i: x.scatter_add(1, i, torch.ones(1, 1)), [one(4)]),
    "scatter_reduce": (lambda x, i: x.scatter_reduce(1, i, torch.ones(1, 1), "sum"), [one(4)]),
    "embedding": (lambda x, i: F.embedding(i, x), [classes(3), classes(-1)]),
    "embedding_bag": (lambda x, i: F.embedding_bag(i, x), [one(3)]),
    "nll_loss": (lambda x, i: F.nll_loss(x, i), [classes(0, 1, 4), classes(0, 1, -1)]),
    "cross_entropy": (lambda x, i: F.cross_entropy(x, i), [classes(0, 1, 4), classes(0, 1, -1)]),
    "cross_entropy, smoothed": (
        lambda x, i: F.cross_entropy(x, i, label_smoothing=0.1), [classes(0, 1, 4)]
    ),
    "cross_entropy, weighed": (
        lambda x, i: F.cross_entropy(x, i, weight=torch.ones(4)), [classes(0, 1, 4)]
    ),
    "cross_entropy of images": (
        lambda x, i: F.cross_entropy(x.view(1, 3, 2, 2), i.view(1, 2, 2)), [classes(0, 1, 2, 3)]
    ),
    "multi_margin_loss": (lambda x, i: F.multi_margin_loss(x, i), [classes(0, 1, 4)]),
    "one_hot": (lambda x, i: F.one_hot(i, 3), [classes(3), classes(-1)]),
    "repeat_interleave": (lambda x, i: x.repeat_interleave(i, 0), [classes(1, -1, 1)]),
    "bincount": (lambda x, i: torch.bincount(i, minlength=4), [classes(-1)]),
    "max_unpool1d": (
        lambda x, i: F.max_unpool1d(x.view(1, 3, 4), i, 2), [torch.full((1, 3, 4), 99)]
    ),
}  # fmt: skip
CASES = [(name, place) for name, (_, given) in OPERATIONS.items() for place in range(len(given))]


def raised(function, *args):
    try:
        function(*args)
    except Exception as error:
        return error
    return None


@pytest.mark.sample(3)
@pytest.mark.parametrize(("name", "place"), CASES)
@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("gradients", [False, True])
def test_the_type_is_that_of_eager(name, place, fullgraph, gradients):
    tc.reset()
    function, indices = OPERATIONS[name]
    args = (X.clone().requires_grad_(gradients), indices[place])
    expected = raised(function, *args)
    assert isinstance(expected, IndexError | RuntimeError)
    found = raised(tc.compile(function, fullgraph=fullgraph), *args)
    if fullgraph and isinstance(found, tc.exc.Unsupported):
        assert name in ("repeat_interleave", "bincount"), "their results have sizes out of data"
        return
    assert isinstance(found, type(expected)), repr(found)


def test_compiled_code_raises_a_type_of_both_kinds():
    drawing = tc.compile(lambda x, i: x[i] + torch.rand(1), fullgraph=True)
    found = raised(drawing, X, classes(3))  # Python does not run it again
    assert type(found) is IndexOutOfRange
    assert issubclass(IndexOutOfRange, IndexError) and issubclass(IndexOutOfRange, RuntimeError)
