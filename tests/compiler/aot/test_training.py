"""Traced forward and backward give eager's outputs, gradients, writes and errors."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from aot_harness import check_training, interpreted, trace_training
from torch._subclasses.fake_tensor import FakeTensorMode

import tc
from tc.compiler import aot
from tc.compiler.aot.training import _tangents
from tc.compiler.core.gate import Gate


def p(*shape, dtype=torch.float32):
    """Return a parameter."""
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))
    return values.to(dtype).requires_grad_()


def x(*shape):
    return p(*shape).detach()


def mlp(x, w1, b1, w2):
    return F.linear(F.gelu(F.linear(x, w1, b1)), w2).mean()


def norms(x, w, b):
    h = F.layer_norm(x, (4,), w, b)
    h = F.group_norm(h.view(2, 2, 4), 2)
    return F.rms_norm(h, (4,)).sum(), h


def batch_norm(x, w, b, mean, var):
    return F.batch_norm(x, mean, var, w, b, training=True).relu()


def batch_norm_eval(x, w, b, mean, var):
    return F.batch_norm(x, mean, var, w, b, training=False).relu()


def conv_bn(x, k, mean, var):
    h = F.conv2d(x, k, padding=1)
    h = F.batch_norm(h, mean, var, training=True)
    return F.max_pool2d(F.relu_(h), 2).flatten(1).mean(1)


def attention(x, w):
    q, k, v = F.linear(x, w).view(1, 4, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(4, 8)


def own_attention(q, k, v):
    scores = (q @ k.transpose(-1, -2) / 2).masked_fill(torch.ones(4, 4).triu(1) > 0, -1e9)
    return scores.softmax(-1) @ v


def embedding(ids, table, w):
    return F.cross_entropy(F.linear(F.embedding(ids, table), w), ids)


def dropout(x, w):
    return (
        F.dropout(x @ w, 0.4),
        F.dropout(x, 0.1).sum(),
        F.dropout(w, training=False),
        F.dropout(x.t()),
    )


def views_out(x):
    y = x * 2
    return y[0], y, y.t(), y.view(-1)


def views_of_input(x, y):
    return x[0], x.t(), y[1:], (x + y), x.detach()


def input_returned(x, y):
    return x, y, x * y


def in_place_on_intermediate(x, y):
    z = x * y
    z.add_(1).relu_()
    w = z * 2
    w[0] = 0.0
    w[1:].add_(y[1:])
    return w, w.sum(), z


def in_place_chain(x):
    y = x.clone()
    row = y[1]
    row.sub_(x[0])
    y.t().mul_(2)
    return y * row


def buffer_written(x, count, buffer):
    count.add_(1)
    buffer.mul_(0.9).add_(0.1 * x.detach().mean(0))
    return x * 2 + buffer


def written_after_use(x, buffer):
    y = x * buffer.clone() + buffer
    buffer.zero_()
    return y


def partly_detached(x, y):
    with torch.no_grad():
        scale = (x * y).abs().amax()
    return x / scale, y.detach() * x, (x * y).detach(), (x > 0), x.argmax(1)


def unused_input(x, y, z):
    return x * 2, z + 1


def same_gradient(x, y):
    return x + y


def constant_gradient(x, y):
    return x.sum() + y.mean(), torch.ones(3)


def selects(x, index):
    return x.index_select(0, index), x[index], x.gather(1, index[:, None]), x.topk(2)[0]


def reductions(x):
    return (
        x.amax(0),
        x.max(1)[0],
        x.var(0),
        x.std(),
        x.norm(),
        x.logsumexp(1),
        x.prod(),
        x.cumsum(0),
    )


def joins(x, y):
    a, b = torch.cat([x, y]).chunk(2, 1)
    return torch.stack([a, b]), torch.where(x > y, x, y), F.pad(x, (1, 1)), torch.roll(y, 1, 0)


def losses(x, y):
    target = torch.tensor([0, 1, 2, 3])
    return (
        F.mse_loss(x, y),
        F.smooth_l1_loss(x, y),
        F.nll_loss(x.log_softmax(1), target),
        F.binary_cross_entropy_with_logits(x, y.detach().sigmoid()),
        F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"),
    )


def activations(x):
    return F.silu(x), F.hardswish(x), F.elu(x), F.mish(x), F.softplus(x), F.glu(x), F.leaky_relu(x)


def strided(x):
    return (x * 2).t(), (x + 1)[:, ::2], x.t().exp()


def no_gradients(x, y):
    return x.detach() + 1, (y > 0).long()


def mixed_dtypes(x, y):
    return (x.to(torch.float64) * 2).to(torch.bfloat16).float() * y


def expanded(x, b):
    return x * b.expand(4, 4) + b[:, None]


def einsum(x, y):
    return torch.einsum("ij,kj->ik", x, y), torch.bmm(x[None], y[None]), torch.outer(x[0], y[0])


M = p(4, 4)
PROGRAMS = [
    (mlp, (x(3, 4), p(8, 4), p(8), p(2, 8))),
    (mlp, (p(3, 4), p(8, 4), p(8).detach(), p(2, 8))),
    (norms, (p(4, 4), p(4), p(4))),
    (batch_norm, (p(5, 4), p(4), p(4), x(4), x(4).abs())),
    (batch_norm_eval, (p(5, 4), p(4), p(4), x(4), x(4).abs())),
    (conv_bn, (x(2, 3, 4, 4), p(2, 3, 3, 3), x(2), x(2).abs())),
    (attention, (x(4, 8), p(24, 8))),
    (own_attention, (p(2, 4, 4), p(2, 4, 4), p(2, 4, 4))),
    (embedding, (torch.tensor([1, 0, 3, 3]), p(5, 4), p(5, 4))),
    (dropout, (p(4, 4), p(4, 4))),
    (views_out, (M,)),
    (views_of_input, (M, x(4, 4))),
    (input_returned, (M, x(4, 4))),
    (in_place_on_intermediate, (M, p(4, 4))),
    (in_place_chain, (M,)),
    (buffer_written, (M, torch.tensor(3), x(4))),
    (written_after_use, (M, x(4))),
    (partly_detached, (M, p(4, 4))),
    (unused_input, (M, p(3), x(2))),
    (same_gradient, (M, p(4, 4))),
    (constant_gradient, (M, p(3))),
    (selects, (M, torch.tensor([0, 2, 2, 1]))),
    (reductions, (M,)),
    (joins, (M, p(4, 4))),
    (losses, (M, p(4, 4))),
    (activations, (M,)),
    (strided, (M,)),
    (no_gradients, (M, p(3))),
    (mixed_dtypes, (M, p(4, 4))),
    (expanded, (M, p(4))),
    (einsum, (M, p(4, 4))),
]
NAMES = [f"{i}-{f.__name__}" for i, (f, _) in enumerate(PROGRAMS)]


@pytest.mark.sample(5)
@pytest.mark.parametrize(("function", "args"), PROGRAMS, ids=NAMES)
def test_gradients(function, args):
    check_training(function, args)


@pytest.mark.sample(7)
@pytest.mark.parametrize(("function", "args"), PROGRAMS, ids=NAMES)
def test_without_optional_steps(function, args):
    graphs = check_training(function, args, gate=Gate({"aot": 1}))
    if graphs.partition is not None:
        assert not graphs.partition.recomputed


def test_no_gradients_needed():
    graphs = trace_training(no_gradients, (M, p(3)))
    assert graphs.backward is None and graphs.forward.kind == "inference"


@pytest.mark.sample(3)
@pytest.mark.parametrize("function", [mlp, norms, own_attention, reductions, activations])
def test_gradcheck(function):
    args = next(args for f, args in PROGRAMS if f is function)
    args = tuple(a.detach().double().requires_grad_(a.requires_grad) for a in args)
    graphs = trace_training(function, args)
    run = aot.wrap_training(graphs, interpreted(graphs.forward), interpreted(graphs.backward))
    assert torch.autograd.gradcheck(lambda *a: tuple(run(*a)), args)


def dynamic_mlp(x, w):
    h = F.gelu(x @ w).softmax(-1)
    return h.sum(0), h * x.shape[0], torch.cat([h, h])[1:]


@pytest.mark.sample(2)
@pytest.mark.parametrize("function", [dynamic_mlp, joins, same_gradient, views_of_input])
def test_dynamic(function):
    if function is dynamic_mlp:
        shapes = [((n, 4), (4, 6)) for n in (3, 5, 2)]
    else:
        shapes = [((4, 6), (4, 6)), ((8, 2), (8, 2))]
    first, *others = [tuple(p(*s) for s in pair) for pair in shapes]
    if function is joins:
        others = []
    graphs = check_training(function, first, others, dynamic=True)
    assert "s" in str(graphs.forward).split("in[0]")[1].split("\n")[0], "specialised"


def compiled(function, *args):
    graphs = trace_training(function, args)
    return aot.wrap_training(graphs, interpreted(graphs.forward), interpreted(graphs.backward))


def test_backward_twice():
    w = p(4, 4)
    run = compiled(lambda w: (w * w).exp(), w)
    (out,) = run(w)
    out.sum().backward(retain_graph=True)
    once = w.grad.clone()
    out.sum().backward()
    torch.testing.assert_close(w.grad, 2 * once)
    with pytest.raises(RuntimeError, match="second time"):
        out.sum().backward()


def test_gradients_have_gradients():
    w, found = p(4, 4), []
    for out in (*compiled(lambda w: (w * w).exp(), w)(w), (w * w).exp()):
        (first,) = torch.autograd.grad(out.sum(), w, create_graph=True)
        found += torch.autograd.grad(first.sum(), w)
    torch.testing.assert_close(*found)


def test_write_that_autograd_refuses_stays_an_error_of_eager():
    with pytest.raises(aot.Fallback, match="modified by an inplace operation"):
        trace_training(lambda x, b: (x * b, b.zero_())[0], (M, x(4)))


def test_saved_tensor_written_to_is_an_error():
    w = p(4, 4)
    (out,) = compiled(lambda w: w.exp() @ w, w)(w)
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@pytest.mark.parametrize("make", ["expanded", "transposed", "contiguous"])
def test_gradient_layouts(make):
    w = p(4, 6)
    (out,) = compiled(lambda w: w.sin() * w, w)(w)
    gradient = {
        "expanded": torch.tensor(2.0).expand(4, 6),
        "transposed": x(6, 4).t(),
        "contiguous": x(4, 6),
    }[make]
    (got,) = torch.autograd.grad(out, w, gradient)
    torch.testing.assert_close(got, gradient * (w.cos() * w + w.sin()))


def test_autocast():
    def function(x, w):
        return (x @ w).float().softmax(0)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        graphs = trace_training(function, (x(4, 4), M))
        assert "bf16[4, 4] = aten.mm" in str(graphs.forward)
        run = aot.wrap_training(graphs, interpreted(graphs.forward), interpreted(graphs.backward))
        (got,), eager = run(x(4, 4), M), function(x(4, 4), M)
    torch.testing.assert_close(got, eager)
    weights = x(4, 4)
    got, eager = (torch.autograd.grad(out, M, weights)[0] for out in (got, eager))
    torch.testing.assert_close(got, eager)


@pytest.mark.parametrize(
    ("function", "args", "reason"),
    [
        (lambda w: w.mul_(2) + 1, (p(3),), "leaf"),
    ],
)
def test_refused(function, args, reason):
    with pytest.raises(aot.Fallback, match=reason):
        trace_training(function, args)


def test_forward_names_backward_ops():
    graphs = trace_training(mlp, PROGRAMS[0][1])
    backward = graphs.backward.module.graph
    named = [n for n in backward.nodes if n.op == "call_function" and "tc_backward" in n.meta]
    assert named
    assert {n.meta["tc_from"] for n in named} >= {"linear", "gelu", "mean"}


def test_random_draws_are_never_done_twice():
    graphs = trace_training(dropout, (p(4, 4), p(4, 4)))
    assert "aten.native_dropout" in str(graphs.forward)
    assert "aten.native_dropout" not in str(graphs.backward)


def test_partition_is_explained():
    graphs = trace_training(mlp, PROGRAMS[0][1])
    text = str(graphs.partition)
    assert (
        "keep addmm: f32[3, 8] (extra, 96 bytes), aten.addmm.default must not be recomputed" in text
    )
    assert "again gelu: f32[3, 8] = aten.gelu (96 bytes), cheap" in text


class Noted(torch.autograd.Function):
    """The identity, which notes that backward went through it."""

    @staticmethod
    def forward(ctx, value, notes):
        ctx.notes = notes
        return value * 1

    @staticmethod
    def backward(ctx, gradient):
        ctx.notes.append("backward")
        return gradient, None


UNCONNECTED = {
    "detached": lambda made, w: w * made.detach().sum(),
    "compared": lambda made, w: torch.where(made > 0, w, 0.0),
    "position": lambda made, w: w * made.argmax(),
    "no gradients": lambda made, w: w * torch.no_grad()(torch.sigmoid)(made),
    "zeros": lambda made, w: torch.zeros_like(made) + w,
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", UNCONNECTED)
def test_backward_does_not_run_through_inputs_without_gradients(name):
    notes: list[str] = []
    w = p(3)
    made = Noted.apply(p(3) + 1, notes)
    tc.compile(UNCONNECTED[name])(made, w).sum().backward()
    assert not notes and w.grad is not None


def test_a_loss_is_returned_after_its_backward():
    w = p(3)

    def step(given):
        loss = (w * given).square().sum()
        loss.backward()
        return loss.detach(), (w * given).square().sum()

    loss, again = tc.compile(step)(torch.ones(3))
    again.backward()  # was: through the graph of the first loss, a second time
    torch.testing.assert_close(w.grad, 4 * w.detach())
    torch.testing.assert_close(loss, again.detach())


MADE = {
    "ones": lambda given: torch.ones(3, requires_grad=True),
    "zeros_like": lambda given: torch.zeros_like(given, requires_grad=True),
    "tensor": lambda given: torch.tensor([1.0, 2.0, 3.0], requires_grad=True),
    "new_zeros": lambda given: given.new_zeros(3, requires_grad=True),
}


@pytest.mark.parametrize("name", MADE)
def test_tensors_made_inside_may_require_gradients(name):
    def returned(given):
        leaf = MADE[name](given)
        return leaf, leaf * given

    def within(given):
        leaf = MADE[name](given)
        (leaf * given).sum().backward()
        return leaf.grad

    leaf, product = tc.compile(returned)(torch.ones(3) * 2)
    product.sum().backward()
    torch.testing.assert_close(leaf.grad, torch.ones(3) * 2)
    torch.testing.assert_close(tc.compile(within)(torch.ones(3) * 2), torch.ones(3) * 2)


@pytest.mark.sample(1)
@pytest.mark.parametrize("norm", [torch.nn.LayerNorm(4), torch.nn.BatchNorm1d(4).eval()])
@pytest.mark.parametrize("dynamic", [False, None])
def test_batches_without_rows_have_gradients(norm, dynamic):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), norm, torch.nn.GELU(), torch.nn.Linear(4, 2))
    compiled = tc.compile(model, dynamic=dynamic)
    for rows in (0, 2):
        given = torch.ones(rows, 3).requires_grad_()
        compiled(given).sum().backward()
        assert given.grad is not None and given.grad.shape == given.shape


def test_tangents_are_on_the_device_of_their_outputs():
    with FakeTensorMode() as mode:  # no GPU is needed for these, but one is to record gradients
        whole = torch.empty(3, 4, device="cuda")
        part = torch.empty_strided((3, 2), (4, 2), device="cuda")
    observed = SimpleNamespace(fake_mode=mode, results=SimpleNamespace(returned=[whole, part]))
    recorder = SimpleNamespace(placeholder=lambda name, value, **how: None)
    tangents = _tangents(recorder, observed, (0, 1))
    assert [str(tangent.device) for tangent in tangents] == ["cuda:0"] * 2
    assert [tangent.stride() for tangent in tangents] == [(4, 1), (2, 1)]


@pytest.mark.sample(3)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "view",
    [
        lambda y: y.unsqueeze(0).transpose(0, 1),
        lambda y: y.unsqueeze(2).permute(2, 1, 0),
        lambda y: y[:, :1].t(),
        lambda y: y[1:2],
        lambda y: y.as_strided((1, 3), (7, 5)),
    ],
)
def test_views_of_saved_values_have_eagers_strides(view, dynamic):
    def function(x):
        return view(x.tanh())

    given = p(3, 5)
    expected = function(given)
    for backend in ("aot_eager", "inductor"):
        found = tc.compile(function, backend=backend, dynamic=dynamic)(given)
        assert found.stride() == expected.stride()
        found.mul_(2)  # is a tensor of its own


def test_graphs_of_more_values_than_python_takes_before_a_star():
    """Forward returns, and saves for backward, a value for each input."""
    count = 300

    def f(values):
        return [value.sin() * value.exp() for value in values]

    def gradients(g):
        values = [torch.full((2,), i / count, requires_grad=True) for i in range(count)]
        outputs = g(values)
        torch.stack(outputs).sum().backward()
        return [*outputs, *(value.grad for value in values)]

    for got, eagers in zip(gradients(tc.compile(f)), gradients(f), strict=True):
        torch.testing.assert_close(got, eagers)
