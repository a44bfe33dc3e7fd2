"""Programs over torch captured whole: modes, metadata, views, writes, modules, gradients, numpy."""

# ruff: noqa: C416, RUF015
from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from capture_harness import Programs, check, two_tensors
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import tc

program = Programs()


def whole(**options):
    return program(graphs=1, breaks=0, **options)


# -- torch -----------------------------------------------------------------------------------
@whole()
def functional(x, y):
    return (
        F.softmax(x, -1), F.gelu(y), F.layer_norm(x, (4,)), torch.cat([x, y], dim=0), x.T @ y,
        torch.einsum("ij,kj->ik", x, y), F.dropout(x, 0.5, False), torch.stack((x, y)).sum(0),
        F.dropout(x, 0.5, True), torch.nn.functional.linear(x, y), x.new_zeros(2), torch.randn(2),
    )  # fmt: skip


@whole()
def several_results(x, y):
    v, i = x.max(dim=1)
    s = torch.sort(y)
    return v, i, s.values, x.topk(2)[0], x.split(2, dim=1), torch.unbind(y), s


@whole()
def metadata(x, y):
    return (
        x.shape, x.size(), x.size(1), x.dim(), x.dtype, x.device, x.numel(), x.is_contiguous(),
        x.stride(), len(x), x.requires_grad, x.ndim, x.is_floating_point(), x.shape[-1] * 2, x + 1,
        torch.is_tensor(x), isinstance(x, torch.Tensor), type(x), x.element_size(), x.T.stride(),
    )  # fmt: skip


@whole()
def in_place(x, y):
    z = x.clone()
    z.add_(y)
    z[0] = 1
    z += 2
    z[:, 1].mul_(3)
    return z


@whole()
def in_place_on_arguments(x, y):
    x.mul_(2)
    y[0] = x[1]
    x += y
    return x, y.sum()


@whole()
def views_out(x, y):
    return x[0], x.view(-1), x, x.t(), (x * 2)[1]


@whole(make=lambda: (lambda a: (a, a))(two_tensors()[0]))
def one_tensor_twice(x, y):
    x.add_(1)
    return y * 2, x is y


@whole()
def no_grad(x, y):
    with torch.no_grad():
        z = x * 2
        inside = torch.is_grad_enabled()
    return z, inside, torch.is_grad_enabled()


@torch.no_grad()
def undecided(a):
    return a * 2


@whole(make=lambda: (two_tensors()[0].requires_grad_(), two_tensors()[1]))
def grad_modes(x, y):
    a = undecided(x)
    with torch.no_grad():
        b = x + 1
        with torch.enable_grad():
            c = x * 3
    with torch.set_grad_enabled(False):
        d = x * 4
    return a, b, c, d, x * 5


@whole(make=lambda: tuple(t.requires_grad_() for t in two_tensors()))
def gradients(x, y):
    h = torch.tanh(x @ y.T)
    return (h * h.detach()).sum(), torch.sigmoid(x) * y


@whole(make=lambda: (two_tensors()[0].requires_grad_(), two_tensors()[1]))
def gradient_of_one(x, y):
    y.add_(1)
    return x * y, y


@whole()
def tensor_comparisons(x, y):
    return x > y, x == y, torch.where(x > 0, x, y), (x > 0).any(), x.isnan() & y.isnan(), ~(x > 0)


@whole()
def numbers_with_tensors(x, y):
    return 1 + x, 2 / x, 3 - x, x**2, 2**x, -x, x % 2, x // 0.5, abs(x), +x, 1.0 * x @ y.T


@whole()
def tensor_iteration(x, y):
    return sum(row * i for i, row in enumerate(x)), [r for r in y], list(x.unbind(1))[0]


@whole()
def constants_made(x, y):
    return x + torch.tensor([1.0, 2, 3, 4]), torch.arange(3), torch.zeros_like(y), torch.tensor(5)


@whole(make=lambda: (*two_tensors(), torch.nn.Linear(4, 2)))
def module_called(x, y, m):
    return m(x), m.weight, m.in_features, [n for n, _ in m.named_parameters()]


# -- higher-order operations -----------------------------------------------------------------
class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, w):
        ctx.save_for_backward(x, w)
        ctx.scale = scale
        ctx.kept = x.sin()
        return ctx.kept * scale * w, x**3

    @staticmethod
    def backward(ctx, g, h):
        x, w = ctx.saved_tensors
        return g * x.cos() * ctx.scale * w + h * 3 * x**2, None, g * ctx.kept * ctx.scale


def requiring_grad():
    return tuple(t.requires_grad_() for t in two_tensors())


@whole(make=requiring_grad)
def autograd_function(x, y):
    a, b = Cube.apply(x * 2, 3.0, y)
    return (a + b).sum()


@whole()
def autograd_function_without_gradients(x, y):
    return Cube.apply(x, 2.0, y)


@whole()
def transforms(x, y):
    shift = x[0] + 1
    return (
        torch.func.vmap(lambda a, b: (a * b).sum() + shift)(x, y),
        torch.func.grad(lambda a: (a.sin() * y).sum())(x),
        torch.func.vmap(torch.func.grad(lambda a: a.sin().sum()))(x),
        torch.func.grad_and_value(lambda p: (p["a"] * p["b"]).sum())({"a": x, "b": y}),
        torch.func.jvp(torch.sin, (x,), (y,)),
        torch.func.jacrev(torch.sin)(x[0]), torch.func.hessian(lambda a: (a**3).sum())(x[0]),
        torch.vmap(torch.dot, in_dims=(1, 1))(x, y),
    )  # fmt: skip


@whole()
def pullback(x, y):
    out, back = torch.func.vjp(torch.sin, x)
    return out, back(y)


@whole()
def conditions(x, y):
    z = x + 1
    return torch.cond(x.sum() > 0, lambda a: a.sin() + z, lambda a: a.cos() * y, (x,))


@whole(make=requiring_grad)
def checkpointed(x, y):
    return checkpoint(lambda a: (a.sin() @ y.T).cos(), x, use_reentrant=False)


@whole(make=requiring_grad)
def checkpointed_without_random_state(x, y):
    body = torch.nn.Sequential(torch.nn.Tanh(), torch.nn.SiLU(), torch.nn.Tanh())
    return checkpoint_sequential(body, 2, x * y, use_reentrant=False, preserve_rng_state=False)


def doubled(g):
    return g * 2


@whole(make=lambda: (two_tensors()[0].requires_grad_(), 2.5))
def hooks_on_tensors(x, k):
    x.register_hook(lambda g: g * 3)
    y = x.sin()
    y.register_hook(doubled)
    z = y * x
    z.register_hook(lambda g: g * k)
    return z


# -- what reads its data in C++, and what only sorts tensors -----------------------------------
@whole(make=lambda: (torch.randn(2, 256), torch.hann_window(64)))
def spectrum_and_back(x, window):
    found = torch.stft(x, 64, 16, window=window, return_complex=True)
    return found.abs(), torch.istft(found, 64, 16, window=window)


def with_gradients():
    parameters = [torch.nn.Parameter(torch.ones(3, dtype=d)) for d in (torch.float, torch.double)]
    for parameter in parameters:
        parameter.grad = parameter.detach() * 3
    return (parameters,)


@whole(make=with_gradients)
def clipped(parameters):
    norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    return norm, [parameter.grad for parameter in parameters]


# -- numpy -----------------------------------------------------------------------------------
def array_and_tensor():
    return np.arange(6.0).reshape(2, 3), torch.ones(2, 3)


@whole(make=array_and_tensor)
def arrays(a, x):
    return (
        a + 1, np.sum(a), a.sum(axis=0), a.T, a.shape, a.ndim, a.size, np.sin(a) * 2,
        a[0], a[0, 1], 2 * a, 1 - a, a**2, a > 2, -a, isinstance(a, np.ndarray), type(a),
    )  # fmt: skip


@whole(make=array_and_tensor)
def arrays_and_tensors(a, x):
    b, c = x.numpy(), np.zeros((2, 3))
    c[0] = 5
    return (
        torch.from_numpy(a) + x, b * a, c, np.stack([a, b]), a.reshape(3, 2), np.array([1, 2, 3]),
        a.astype(np.float32), np.linalg.norm(a), np.float32(2.5) * x.sum(), a.mean(),
    )  # fmt: skip


@whole(make=array_and_tensor)
def arrays_changed(a, x):
    a[0] = 3
    a += 1
    return a


@pytest.mark.sample(6)
@pytest.mark.parametrize("case", program, ids=lambda case: case.name)
def test_program(case):
    check(case)


def test_quantized_tensors_break_where_they_are_made_and_pass_through():
    def quantized(x):
        return torch.quantize_per_tensor(x * 2, 0.1, 0, torch.qint8).dequantize() + 1

    def given(q, x):
        return q.dequantize() * x, q

    x = torch.linspace(-1, 1, 6)
    q = torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)
    for function, args in ((quantized, (x,)), (given, (q, x))):
        tc.reset()
        found, wanted = tc.compile(function)(*args), function(*args)
        torch.testing.assert_close(found, wanted)


PARTS_OF_SPARSE = {
    "coo values": lambda n: torch.eye(n).to_sparse().values(),
    "coo indices": lambda n: torch.eye(n).to_sparse().indices(),
    "csr values": lambda n: torch.eye(n).to_sparse_csr().values(),
    "csr columns": lambda n: torch.eye(n).to_sparse_csr().col_indices(),
    "bsr values": lambda n: torch.eye(2 * n).to_sparse_bsr((2, 2)).values(),
}


def added_in_place(part, other):
    other = other + 1
    part.add_(1)
    return part * 2, other


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("make", PARTS_OF_SPARSE.values(), ids=PARTS_OF_SPARSE)
def test_views_of_sparse_tensors_are_inputs(make, dynamic):
    compiled = tc.compile(added_in_place, dynamic=dynamic)
    for size in (4, 7, 5):
        found, expected = make(size), make(size)
        results = compiled(found, torch.ones(2)), added_in_place(expected, torch.ones(2))
        torch.testing.assert_close(*results)
        torch.testing.assert_close(found, expected)


PLACES = torch.tensor([[0, 1, 0], [1, 0, 1]])


def coalesced(x):
    sparse = torch.sparse_coo_tensor(PLACES, x, (2, 2))
    twice = sparse + sparse
    return twice.coalesce().values(), sparse.is_coalesced(), sparse._nnz()


def asked(sparse):
    return sparse.is_coalesced(), sparse._nnz()


def test_elements_of_sparse_tensors_are_those_of_eager():
    x = torch.arange(3.0)
    torch.testing.assert_close(tc.compile(coalesced)(x), coalesced(x))
    compiled = tc.compile(asked)
    for sparse in (torch.sparse_coo_tensor(PLACES, x, (2, 2)), torch.eye(2).to_sparse()):
        assert compiled(sparse) == asked(sparse)


class Overriding:
    def __radd__(self, other):
        return "reflected"

    def __torch_function__(self, function, kinds, args=(), kwargs=None):
        return function.__name__


def added(x, other):
    return x + other, 2 + other


def test_a_tensor_asks_its_operand_first():
    x = torch.ones(2)
    assert tc.compile(added)(x, Overriding()) == added(x, Overriding()) == ("add", "reflected")


def recorded(x):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warnings.warn("first", stacklevel=1)
        warnings.warn("second", stacklevel=1)
    return x + 1, len(found)


def test_recorded_warnings_are_counted():
    assert tc.compile(recorded)(torch.ones(1))[1] == 2
