"""Gradients of gradients of compiled functions, held against eager's."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import grad
from torch.autograd.functional import hessian, hvp, jacobian
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import tc
from tc import trace


def leaf(*shape, seed=0):
    generator = torch.Generator().manual_seed(sum(shape) + seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)


class HalfTheGradient(torch.autograd.Function):
    """Its backward is not its derivative, which shows in every order."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * 1.5 * x * x


class OnceOnly(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        return gradient * 3 * ctx.saved_tensors[0] ** 2


def without_gradients(x):
    with torch.no_grad():
        return x.exp()


def halves(x):
    z = x.exp().view(2, -1)
    return z[0], z[1]


def writes_inside(x):
    z = x * 2
    z[0] = x[1].sin()
    z.mul_(3)
    return z.cos() * x


PROGRAMS = {
    "sin": (lambda x: x.sin(), [(3,)]),
    "output kept": (lambda x: x.exp(), [(3,)]),
    "linear": (lambda x, y: x + 2 * y, [(3,), (3,)]),
    "mask": (lambda x: x.relu(), [(5,)]),
    "mlp": (lambda x, w, b: torch.tanh(x @ w + b) @ w, [(5, 4), (4, 4), (4,)]),
    "softmax": (lambda x: x.softmax(-1)[..., 0] * x.exp()[..., 1], [(3, 4)]),
    "detached": (lambda x, y: x.detach().exp() * y + x * x * y.detach(), [(3,), (3,)]),
    "same but detached": (
        lambda x, w: (x.exp().detach() * w, (x.exp() * w).square()), [(3,), (3,)]),
    "several outputs": (lambda x, y: (x * y, x.cosh().detach(), x.sin() * y), [(3,), (3,)]),
    "own backward": (lambda x: HalfTheGradient.apply(x) * x, [(3,)]),
    "norm": (lambda x, w: F.layer_norm(x, (4,), w, w), [(3, 4), (4,)]),
    "batch norm": (lambda x, w: F.batch_norm(x, None, None, w, w, True), [(6, 4), (4,)]),
    "convolution": (lambda x, k: F.conv2d(x, k).sigmoid(), [(1, 2, 5, 5), (2, 2, 3, 3)]),
    "dropout": (lambda x: F.dropout(x.exp(), 0.5) * x, [(30,)]),
    "random": (lambda x: (x + torch.rand_like(x)).exp() * torch.randn(30), [(30,)]),
    "views": (lambda x: (x.exp().view(2, 3)[0], x.exp().view(3, 2).t()), [(6,)]),
    "views of one value": (halves, [(6,)]),
    "views of the input": (lambda x: (x[1:], x, x * x), [(6,)]),
    "writes inside": (writes_inside, [(6,)]),
    "embedding": (lambda w: F.embedding(torch.tensor([0, 1, 1]), w).pow(3), [(4, 3)]),
    "index": (lambda x: x[torch.tensor([0, 2])] * x[1], [(4,)]),
    "no_grad inside": (lambda x: x * without_gradients(x) * x, [(4,)]),
    "max": (lambda x: x.max(-1)[0] * x.amax(-1), [(3, 4)]),
    "scans": (lambda x: x.cumsum(0) * x.prod(), [(4,)]),
    "cross entropy": (lambda x: F.cross_entropy(x, torch.tensor([0, 1, 2])), [(3, 4)]),
    "linear algebra": (lambda x: x.norm(dim=-1) * torch.linalg.inv(x)[0], [(4, 4)]),
    "checkpoint": (
        lambda x: checkpoint(lambda y: y.exp().sin(), x, use_reentrant=False) * x, [(4,)]),
}  # fmt: skip


def weighted(tensors):
    """Return a number in which no two elements count alike."""
    weights = (torch.linspace(0.5, 1.5, t.numel(), dtype=t.dtype).view_as(t) for t in tensors)
    return sum((t * weight).sum() for t, weight in zip(tensors, weights, strict=True))


def derivatives(f, inputs, orders=3):
    """Return what a function returns, and gradients of gradients of it up to the third order."""
    torch.manual_seed(1)
    outputs = f(*inputs)
    outputs = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
    found = [t.detach() for t in outputs]
    value = weighted([t for t in outputs if t.requires_grad])
    for _ in range(orders):
        if not value.requires_grad:
            break
        gradients = grad(value, inputs, create_graph=True, allow_unused=True)
        found += [torch.zeros_like(x) if g is None else g.detach()
                  for g, x in zip(gradients, inputs, strict=True)]  # fmt: skip
        gradients = [g for g in gradients if g is not None]
        value = weighted(gradients) + sum((g * g).sum() for g in gradients)
    return found


def padded(found, want):
    """Return derivatives with zeros where only the other side has them: those of a constant."""
    longer = max(found, want, key=len)
    return [*found, *map(torch.zeros_like, longer[len(found) :])]


def assert_same(got, want):
    got, want = padded(got, want), padded(want, got)
    torch.testing.assert_close(got, want)


@pytest.mark.sample(3)
@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_three_orders_are_as_in_eager(name, dynamic):
    fn, shapes = PROGRAMS[name]
    inputs = [leaf(*shape, seed=i) for i, shape in enumerate(shapes)]
    compiled = tc.compile(fn, dynamic=dynamic, backend="aot_eager")
    assert_same(derivatives(compiled, inputs), derivatives(fn, inputs))
    inner = [leaf(*shape, seed=i + 9) for i, shape in enumerate(shapes)]
    assert_same(
        derivatives(lambda *a: compiled(*[t * 0.5 for t in a]), inner),
        derivatives(lambda *a: fn(*[t * 0.5 for t in a]), inner),
    )


def test_derivatives_are_those_of_finite_differences():
    compiled = tc.compile(lambda x, w: torch.tanh(x @ w).softmax(-1))
    inputs = (leaf(3, 3), leaf(3, 3, seed=1))
    assert torch.autograd.gradcheck(compiled, inputs)
    assert torch.autograd.gradgradcheck(compiled, inputs)


# -- programs of users: each returns tensors --------------------------------------------------
def gradient_penalty(c):
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.LeakyReLU(0.2, inplace=True), torch.nn.Linear(8, 1)
    ).double()
    compiled, x = c(net), leaf(3, 4)
    (g,) = grad(compiled(x).sum(), x, create_graph=True)
    (g.norm(dim=1) - 1).square().mean().backward()
    return [p.grad for p in net.parameters() if p.grad is not None]


def running_statistics(c):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Tanh())
    compiled, x = c(net.double()), leaf(5, 4)
    (g,) = grad(compiled(x).square().sum(), x, create_graph=True)
    g.square().sum().backward()
    return [*(p.grad for p in net.parameters()), *net.buffers()]


def steps_inside_of_steps(c):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    net.double()
    loss = c(lambda p, x: torch.func.functional_call(net, p, (x,)).square().mean())
    weights, x = dict(net.named_parameters()), leaf(3, 4).detach()
    for _ in range(3):
        gradients = grad(loss(weights, x), list(weights.values()), create_graph=True)
        weights = {
            name: w - 0.1 * g for (name, w), g in zip(weights.items(), gradients, strict=True)
        }
    loss(weights, x).backward()
    return [p.grad for p in net.parameters()]


def hessians(c):
    f, x = c(lambda x: (x.exp() * x).sum()), leaf(4)
    ones = torch.ones_like(x)
    many = jacobian(c(lambda x: x.sin() * x.sum()), x, create_graph=True, vectorize=True)
    return [hessian(f, x), hessian(f, x, vectorize=True), hvp(f, x, ones)[1], many]


def hessian_with_random_numbers(c):
    f, x = c(lambda x: (F.dropout(x.exp(), 0.5) * x).sum()), leaf(9)
    return [jacobian(lambda x: grad(f(x), x, create_graph=True)[0], x, vectorize=True)]


def inputs_computed_of_each_other(c):
    x = leaf(4)
    y = x.sin()
    (g,) = grad(c(lambda a, b: a * b.exp())(x, y).sum(), x, create_graph=True)
    (h,) = grad(g.sum(), x, create_graph=True)
    return [g, h, *grad(h.sum(), x)]


def one_tensor_twice(c):
    x = leaf(4)
    (g,) = grad(c(lambda a, b: a * b.exp())(x, x).sum(), x, create_graph=True)
    return [g, *grad(g.sum(), x)]


def a_chain(c):
    f, h, x = c(lambda x: x.exp()), c(lambda x: torch.sigmoid(x) * x), leaf(4)
    y = f(h(f(x * 2) * 0.1))
    (g,) = grad(y.sum(), x, create_graph=True)
    (k,) = grad((g * g).sum(), x, create_graph=True)
    return [y, g, k, *grad(k.sum(), x)]


def after_a_backward_that_kept_the_graph(c):
    x = leaf(4)
    y = c(lambda x: x.exp() * x)(x).sum()
    (g,) = grad(y, x, retain_graph=True)
    (h,) = grad(y, x, create_graph=True)
    return [g, h, *grad(h.sum(), x)]


def nothing_saved_and_gone_through_twice(c):
    x = leaf(4)
    y = c(lambda x: x + 1)(x)
    return [*grad(y.sum(), x), *grad(y.sum(), x, create_graph=True)]


def autocast(c):
    x, w = leaf(4, 4).detach().float().requires_grad_(), leaf(4, 4, seed=1).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = c(lambda x, w: (x @ w).tanh().float())(x, w)
    (g,) = grad(y.sum(), x, create_graph=True)
    return [g, *grad(g.pow(2).sum(), x)]


def hooks_of_saved_tensors(c):
    x = leaf(4, 4)
    with saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        y = c(lambda x: (x @ x.t()).exp())(x * 0.1)
    (g,) = grad(y.sum(), x, create_graph=True)
    return [g, *grad(g.sum(), x)]


def checkpoint_outside(c):
    x = leaf(4)
    y = checkpoint(c(lambda y: y.exp().sin()), x, use_reentrant=False) * x
    (g,) = grad(y.sum(), x, create_graph=True)
    return [g, *grad(g.sum(), x)]


def one_of_several_outputs(c):
    x, y = leaf(4), leaf(4, seed=1).detach()
    a, b, d = c(lambda x, y: (x * y, y.exp(), x.sin() * 2))(x, y)
    (g,) = grad(d.sum(), x, create_graph=True)
    return [a, b, d, g, *grad(g.sum(), x), *grad(a.sum(), x, create_graph=True)]


def accumulated_into_leaves(c):
    x = leaf(4)
    grad_of = c(lambda x: x.exp() * x)(x).sum()
    grad_of.backward(create_graph=True)
    g, x.grad = x.grad, None
    g.sum().backward()
    return [g, x.grad]


def written_by_the_call(c):
    x, kept = leaf(4), torch.zeros(4, dtype=torch.float64)

    def f(x, kept):
        kept.copy_(x.detach())
        return x.exp() * x

    y = c(f)(x, kept)
    (g,) = grad(y.sum(), x, create_graph=True)
    return [kept, g, *grad(g.sum(), x)]


def overwritten_input(c):
    def f(x):
        x.mul_(3)
        return x.sin()

    x = leaf(4)
    (g,) = grad(c(f)(x * x).sum(), x, create_graph=True)
    return [g, *grad((g * g).sum(), x)]


def input_scaled_in_place(c):
    def f(x, w):
        x.mul_(3)
        return x * w.exp()

    x, w = leaf(4), leaf(4, seed=1).detach()
    (g,) = grad(c(f)(x * x, w).sum(), x, create_graph=True)
    return [g, *grad((g * g).sum(), x)]


def overwritten_leaf(c):
    def f(x, w):
        y = (x * 2 + w.exp()).sin()
        with torch.no_grad():
            w.add_(1)
        return y

    x, w = leaf(4), leaf(4, seed=1)
    first = grad(c(f)(x, w).sum(), [x, w], create_graph=True)
    return [w.detach(), *first, *grad(sum(g.square().sum() for g in first), [x, w])]


def buffer_read_and_moved_on(c):
    def f(x, kept):
        y = (x * (kept.exp() + 1)).exp()
        kept.mul_(0.5).add_(x.detach())
        return y

    x, kept, found = leaf(4), leaf(4, seed=1).detach(), []
    compiled = c(f)
    for _ in range(2):
        y = compiled(x, kept)
        (g,) = grad(y.sum(), x, create_graph=True)
        kept.zero_()
        found += [g, *grad(g.sum(), x)]
    return found


def penalty_under_spectral_norm(c):
    torch.manual_seed(0)
    linear = torch.nn.Linear(4, 3).double()
    module = torch.nn.Sequential(
        torch.nn.utils.spectral_norm(linear), torch.nn.Tanh(), torch.nn.Linear(3, 1).double()
    )

    def step(real):
        inputs = (real * 2).requires_grad_()
        (g,) = grad(module(inputs).sum(), inputs, create_graph=True)
        return ((g.norm(2, dim=1) - 1) ** 2).mean() - module(real).mean()

    loss = c(step)(leaf(2, 4).detach())
    loss.backward()
    return [loss, linear.weight_u, *[p.grad for p in module.parameters()]]


def gradient_inside(c):
    def f(x):
        (g,) = grad((x.exp() * x).sum(), x, create_graph=True)
        return grad((g * g).sum(), x, create_graph=True)[0]

    x = leaf(4)
    h = c(f)(x)
    return [h, *grad(h.sum(), x)]


USES = [
    gradient_penalty, running_statistics, steps_inside_of_steps, hessians,
    hessian_with_random_numbers, inputs_computed_of_each_other, one_tensor_twice, a_chain,
    after_a_backward_that_kept_the_graph, nothing_saved_and_gone_through_twice, autocast,
    hooks_of_saved_tensors, checkpoint_outside, one_of_several_outputs, accumulated_into_leaves,
    written_by_the_call, overwritten_input, input_scaled_in_place, overwritten_leaf,
    buffer_read_and_moved_on, penalty_under_spectral_norm, gradient_inside,
]  # fmt: skip


@pytest.mark.sample(1)
@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
def test_uses_are_as_in_eager(use):
    torch.manual_seed(3)
    want = use(lambda f: f)
    torch.manual_seed(3)
    torch.testing.assert_close(use(tc.compile), want)


# -- errors -----------------------------------------------------------------------------------
def once_differentiable(c):
    x = leaf(4)
    (g,) = grad(c(OnceOnly.apply)(x).sum(), x, create_graph=True)
    return grad(g.sum(), x)


def saved_and_written_to(c):
    x, w = leaf(4), leaf(4, seed=1)
    y = c(lambda x, w: (x * w).sin())(x, w)
    with torch.no_grad():
        w.add_(1)
    return grad(y.sum(), x, create_graph=True)


def freed(c):
    x = leaf(4)
    y = c(lambda x: x.exp() * x)(x).sum()
    grad(y, x)
    return grad(y, x, create_graph=True)


@pytest.mark.sample(1)
@pytest.mark.parametrize("use", [once_differentiable, saved_and_written_to, freed])
def test_errors_are_eagers(use):
    with pytest.raises(RuntimeError) as want:
        use(lambda f: f)
    with pytest.raises(RuntimeError) as got:
        use(tc.compile)
    assert str(got.value)[:40] == str(want.value)[:40]


def test_an_input_that_the_rerun_needs_and_that_was_written_to_is_an_error():
    x, b = leaf(4), leaf(4, seed=1)
    y = tc.compile(lambda x, b: ((x * 2 + b).sin() * b.detach()).exp())(x, b)
    with torch.no_grad():
        b.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        grad(y.sum(), x, create_graph=True)


def test_random_numbers_that_eager_would_not_draw_are_an_error():
    x = leaf(40)
    compiled = tc.compile(lambda x: F.dropout(x.exp()) * x, options={"fallback_random": False})
    with pytest.raises(RuntimeError, match="fallback_random=False"):
        grad(compiled(x).sum(), x, create_graph=True)


def test_the_generator_goes_on_as_if_nothing_had_been_drawn_again():
    x = leaf(9)
    y = tc.compile(lambda x: F.dropout(x.exp()) * x)(x).sum()
    before = torch.get_rng_state()
    grad(y, x, create_graph=True)
    assert torch.equal(torch.get_rng_state(), before)


# -- what it costs others ---------------------------------------------------------------------
@pytest.mark.usefixtures("only_new_garbage")
def test_what_is_kept_besides_is_freed_by_an_ordinary_backward():
    x, w = leaf(4), leaf(4, seed=1)
    s = x * 1
    memory = weakref.ref(s.untyped_storage())
    y = tc.compile(lambda s, w: ((s + 1) * w).sum())(s, w)
    y.backward()
    del s
    gc.collect()
    assert memory() is None


def test_a_graph_from_disk_has_second_derivatives(monkeypatch, tmp_path):
    monkeypatch.setenv("TC_CACHE_DIR", str(tmp_path))

    def f(x):
        return F.dropout(x.exp()) * x

    x = leaf(8)
    with tc.config.patch(fx_graph_cache=True), trace.capture_events() as found:
        for _ in range(2):
            tc.reset()
            compiled = tc.compile(f)
            compiled(x).sum().backward()  # an entry is complete once backward is compiled
            assert_same(derivatives(compiled, [x]), derivatives(f, [x]))
    assert [event.hit for event in found if isinstance(event, trace.Cache)] == [False, True]


class ReadsMovedStatistics(torch.nn.Module):
    """A normalisation whose running mean, as it is after the call, goes into the result."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3).double()

    def forward(self, x):
        return self.norm(x) * self.norm.running_mean


def second_order(f, module, x):
    (first,) = grad(f(x).sin().sum(), x, create_graph=True)
    return grad((first**2).sum(), [x, *module.parameters()])


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
@pytest.mark.parametrize("training", [True, False])
def test_statistics_of_a_normalisation_are_moved_on_and_not_in_the_way(backend, training):
    module = torch.nn.BatchNorm1d(3).double().train(training)
    other = copy.deepcopy(module)
    compiled, x = tc.compile(module, backend=backend), leaf(4, 3)
    for _ in range(2):
        got, theirs = second_order(compiled, module, x), second_order(other, other, x)
        torch.testing.assert_close(got, theirs)
    torch.testing.assert_close(dict(module.named_buffers()), dict(other.named_buffers()))


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_statistics_that_are_read_after_they_moved_are_those_of_the_call(backend):
    module = ReadsMovedStatistics()
    other = copy.deepcopy(module)
    compiled, x = tc.compile(module, backend=backend), leaf(4, 3)
    for _ in range(2):
        got, theirs = second_order(compiled, module, x), second_order(other, other, x)
        torch.testing.assert_close(got, theirs)
