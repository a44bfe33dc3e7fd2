"""Traced graphs do what eager does: values, layouts, identity, aliasing and writes to inputs."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from aot_harness import check, fake
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._pytree import tree_leaves

import tc
from tc.compiler.aot.inference import inference
from tc.compiler.core.gate import Gate


def t(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def in_place(x):
    x.add_(1)
    return x


def in_place_and_view(x, y):
    x.mul_(y)
    return x[0], x, x.t(), x + 1


def write_through_view(x):
    x[0].add_(1)
    x[:, 1:3].mul_(2)
    return x.sum()


def write_through_two_views(x):
    a, b = x[:2], x.t()
    a.add_(1)
    b.mul_(3)
    return a + 1, b + 1


def write_to_intermediate(x):
    y = x + 1
    y[0] = 5
    y[1:, 0].zero_()
    return y, y.sum()


def write_after_read(x):
    before = x.exp()
    x.zero_()
    return before, x + 1


def write_twice(x):
    y = x * 2
    x.copy_(y)
    x.add_(y)
    return y


def views_of_intermediate(x):
    y = x + 1
    return y[0], y, y.view(-1), y.t()


def view_of_hidden_base(x):
    y = x * 2
    return y[:, 0], y[1]


def strided_output(x):
    return (x + 1)[:, 0], (x * 2).expand(3, *x.shape), (x - 1).t()


def in_place_transpose(x):
    y = x + 1
    y.t_()
    return y * 2


def duplicated(x):
    y = x + 1
    return y, y, x, x


def equal_but_distinct(x):
    return x + 1, x + 1, x.clone(), x.clone()


def out_argument(x):
    y = torch.empty_like(x)
    torch.add(x, 1, out=y)
    return y


def copy_into_intermediate(x, y):
    z = torch.zeros(4, 4)
    z[1:3].copy_(x[:2])
    z.t().add_(y)
    return z


def masked_write(x):
    y = x.clone()
    y[y > 0] = 0.5
    y.masked_fill_(x < -1, 7.0)
    return y


def index_put(x):
    y = x.clone()
    y.index_put_((torch.tensor([0, 2]),), torch.tensor(1.5))
    y[:, torch.tensor([1, 1])] += 1
    return y


def list_of_views(x):
    a, b = (x + 1).chunk(2)
    a.mul_(2)
    return a, b


def unbound(x):
    a, b, c, d = x.unbind(0)
    a.add_(b)
    return c * d


def transposed_write(x):
    y = x.t()
    y.add_(1)
    return y


def dtype_change(x):
    return x.to(torch.float64), x.long(), (x > 0), x.half().float()


def constants(x):
    return x + torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.arange(4) * 2, torch.ones(2, 2)


def returned_constant(x):
    return torch.tensor([1.0, 2.0]), x.sum()


def passes_through(x, y):
    return y, None, 3, x, True, 2.5


def dropout(x):
    return F.dropout(x, 0.5, training=True), torch.rand(3), torch.randn_like(x)


def dropouts(x):
    return (
        F.dropout(x.t(), 0.3),
        F.dropout(x.bfloat16(), 0.2),
        F.dropout(x, 1.0),
        F.dropout2d(x.view(1, 2, 2, 4)),
    )


def dropout_off(x):
    y = x + 1
    return F.dropout(x, 0.5, training=False), F.dropout(y, 0.5, False).add_(1), y, F.dropout(y, 0.0)


def dead_random(x):
    torch.rand(5)
    return torch.rand(3) + x[0, :3]


def bernoulli_in_place(x):
    y = torch.empty_like(x).bernoulli_(0.3)
    return x * y


def block(x, w, b):
    h = F.layer_norm(x, (4,), w[0], b)
    h = F.gelu(F.linear(h, w, b)).softmax(-1)
    return h, F.silu(h).mean(0), torch.logsumexp(h, 1), h.var(1), h.std()


def losses(x, y):
    return F.mse_loss(x, y), F.smooth_l1_loss(x, y), F.cross_entropy(x, torch.tensor([0, 1, 2, 3]))


def batch_norm(x, mean, var):
    return F.batch_norm(x, mean, var, training=False)


def batch_norm_training(x, mean, var):
    return F.batch_norm(x, mean, var, training=True)


def activations(x):
    return F.hardswish(x), F.elu(x), F.mish(x), F.softplus(x), F.glu(x), F.leaky_relu(x), F.celu(x)


def attention(x):
    q = x.view(1, 1, 4, 4)
    return F.scaled_dot_product_attention(q, q, q, is_causal=True)


def conv_pool(x):
    y = F.conv2d(x.view(1, 1, 4, 4), torch.ones(2, 1, 3, 3), padding=1)
    return F.max_pool2d(F.relu_(y), 2)


def shapes(x):
    return (
        torch.stack([x, x]),
        torch.roll(x, 1, 0),
        x.triu(),
        F.pad(x, (1, 1)),
        torch.cat([x, x], 1),
    )


def add_where(x, y):
    return torch.where(x > y, x, y), torch.lerp(x, y, 0.3), torch.addcmul(x, x, y, value=2)


def no_output(x):
    x.add_(1)
    return ()


def einsum_topk(x):
    values, indices = x.topk(2, dim=1)
    return torch.einsum("ij,kj->ik", x, x), values, indices, x.sort()[1]


M = t(4, 4)
PROGRAMS = [
    (in_place, (M,)),
    (in_place, (t(3, 5).t(),)),
    (in_place, (t(6, 6)[::2, 1:4],)),
    (in_place_and_view, (M, t(4))),
    (write_through_view, (M,)),
    (write_through_two_views, (M,)),
    (write_to_intermediate, (M,)),
    (write_after_read, (M,)),
    (write_twice, (M,)),
    (views_of_intermediate, (M,)),
    (view_of_hidden_base, (M,)),
    (strided_output, (M,)),
    (in_place_transpose, (t(3, 4),)),
    (duplicated, (M,)),
    (equal_but_distinct, (M,)),
    (out_argument, (M,)),
    (copy_into_intermediate, (M, t(4))),
    (masked_write, (M,)),
    (index_put, (M,)),
    (list_of_views, (M,)),
    (unbound, (M,)),
    (transposed_write, (t(2, 3),)),
    (dtype_change, (M,)),
    (constants, (M,)),
    (returned_constant, (M,)),
    (passes_through, (M, t(2))),
    (dropout, (M,)),
    (dropouts, (M,)),
    (dropout_off, (M,)),
    (dead_random, (M,)),
    (bernoulli_in_place, (M,)),
    (block, (M, M + 1, t(4))),
    (losses, (M, M + 1)),
    (batch_norm, (M, t(4), t(4).abs())),
    (batch_norm_training, (M, t(4), t(4).abs())),
    (activations, (M,)),
    (attention, (M,)),
    (conv_pool, (M,)),
    (shapes, (M,)),
    (add_where, (M, M.flip(0))),
    (no_output, (M,)),
    (einsum_topk, (M,)),
]


@pytest.mark.sample(14)
@pytest.mark.parametrize(
    ("function", "args"), PROGRAMS, ids=[f"{i}-{f.__name__}" for i, (f, _) in enumerate(PROGRAMS)]
)
def test_static(function, args):
    check(function, args)


@pytest.mark.sample(14)
@pytest.mark.parametrize(
    ("function", "args"), PROGRAMS, ids=[f"{i}-{f.__name__}" for i, (f, _) in enumerate(PROGRAMS)]
)
def test_without_optional_steps(function, args):
    graph = check(function, args, gate=Gate(refuse_from={"aot": 1}))
    assert not any(
        op in dict(graph.decomposed) for op in ("aten.mse_loss.default", "aten.std.correction")
    )


def sizes(x):
    return x.view(-1), x.reshape(x.shape[1], -1), x.sum() / x.shape[0], x.shape[0] + 1


def size_math(x):
    n = x.shape[0]
    return x[: n // 2], x.new_zeros(n * 2 + 1, n % 3 + 1), x * n, x / torch.sym_float(n), n


def dynamic_alias(x):
    y = x * 2
    return y[1:], y, x[1:], x.t()


def dynamic_write(x):
    x[1:].add_(1)
    return x.t()


def dynamic_cat(x, y):
    return torch.cat([x, y]).softmax(0), F.pad(x, (0, 1)), torch.arange(x.shape[0])


DYNAMIC = [sizes, dynamic_alias, dynamic_write, dynamic_cat, in_place, shapes]


@pytest.mark.sample(3)
@pytest.mark.parametrize("function", DYNAMIC, ids=lambda f: f.__name__)
def test_dynamic(function):
    count = function.__code__.co_argcount
    first = tuple(t(4, 6) for _ in range(count))
    others = [tuple(t(n, m) for _ in range(count)) for n, m in ((8, 6), (10, 2), (2, 3))]
    graph = check(function, first, others, dynamic=True)
    assert "s" in str(graph).split("in[0]")[1].split("\n")[0], "the input was specialised"


def test_dynamic_size_arithmetic():
    graph = check(size_math, (t(7, 3),), [(t(8, 3),), (t(12, 5),)], dynamic=True)
    assert "floordiv" in str(graph)


def test_symbolic_tracing_adds_no_symbols():
    mode = FakeTensorMode(shape_env=ShapeEnv())
    x = fake(mode, t(5, 7), True)
    before = set(mode.shape_env.var_to_range)
    with torch.no_grad():
        inference(fx.symbolic_trace(block_like), [x], Gate())
    assert set(mode.shape_env.var_to_range) == before
    assert not mode.shape_env.guards


def block_like(x):
    return F.gelu(x).softmax(-1) * x.sigmoid()


def made_under_another_default_dtype(x):
    torch.set_default_dtype(torch.float64)
    made = torch.ones(3), torch.arange(3.0), torch.rand(2), torch.tensor(1.5), x.to(torch.float64)
    torch.set_default_dtype(torch.float32)
    return *made, torch.zeros(2), x * 2


def converted_under_another_default_dtype(x):
    torch.set_default_dtype(torch.float64)
    made = torch.arange(3) / 2, x.long().sin(), x.sum()
    torch.set_default_dtype(torch.float32)
    return made


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize(
    "program", [made_under_another_default_dtype, converted_under_another_default_dtype]
)
def test_ops_have_the_default_dtype_that_the_program_set(program, backend):
    tc.reset()
    x = torch.ones(3, device="cpu")
    wanted, found = program(x), tc.compile(program, backend=backend)(x)
    assert [value.dtype for value in found] == [value.dtype for value in wanted]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_constant_that_is_returned_beside_what_was_computed_before_it(backend):
    def program(x):
        y = torch.arange(3)
        return torch.tensor([1.0, 2.0], device="meta"), y, torch.tensor([3.0, 4.0]), x + 1

    for _ in range(2):
        found, wanted = (f(torch.ones(2)) for f in (tc.compile(program, backend=backend), program))
        assert [t.device for t in found] == [t.device for t in wanted]
        torch.testing.assert_close(found[1:], wanted[1:])


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_an_expanded_result_has_the_strides_of_eager(backend):
    for program in (
        lambda x: torch.func.grad(lambda t: t.sum() * 2)(x),
        lambda x: torch.func.grad(lambda t: t.t().sum())(x),
        lambda x: x.sum().expand(4, 3),
        lambda x: x.sum(0).expand(4, 3),
        lambda x: (x.sum(0).expand(4, 3), x.sum(0).expand(2, 3)),
    ):
        calls = program, tc.compile(program, backend=backend)
        wanted, got = (tree_leaves(call(torch.ones(4, 3))) for call in calls)
        for one, other in zip(wanted, got, strict=True):
            assert torch.equal(one, other) and one.stride() == other.stride()


def _written_scan(x, y):
    y.lerp_(x, 0.5)
    return y.sort(1)[0], y.clone(), y.cumsum(0), torch.cat([y, y], 1), y.exp()


def _written_product(x, y):
    v = y.clone()
    v.copy_(x)
    v.addmm_(x.t()[:1, :1], x[:, :4])
    return (v,)


def _written_places(x, y):
    v = y.clone()
    v.scatter_(1, torch.zeros(1, 1, dtype=torch.int64), 2.0)
    v.index_add_(0, torch.tensor([0]), x)
    return v.masked_fill_(v > 0, 1), v.sort(0)[0]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("function", [_written_scan, _written_product, _written_places])
def test_what_was_written_keeps_its_strides_in_dimensions_of_size_one(function, backend):
    def given():
        return torch.ones(1, 4), torch.ones(4, 1).t()

    expected = [one.stride() for one in function(*given())]
    compiled = tc.compile(function, backend=backend)
    assert [one.stride() for one in compiled(*given())] == expected
