"""torch.func transforms: levels in the graph, on both backends; leaks, breaks, trees, wrappers."""

from __future__ import annotations

import functools
from collections import OrderedDict

import pytest
import torch
from torch._C import _functorch
from torch.utils import _pytree as pytree

import tc
from tc.compiler import aot_dispatch as aot_backend
from tc.compiler import api
from tc.compiler.core import levels

net = torch.nn.Linear(4, 2)
seen: list[torch.Tensor] = []
notes: list[int] = []


def mapped(x, y):
    shift = x[0] + 1
    return torch.func.vmap(lambda a, b: (a * b).sum() + shift)(x, y)


def mapped_along(x, y):
    dims = {"in_dims": (1, None), "out_dims": 1}
    chunks = torch.vmap(lambda a: a.sum() * y, chunk_size=2)(x)
    return torch.vmap(lambda a, s: a + s, **dims)(x, 3.0), chunks


def mapped_tree(x, y):
    def f(pair, *, scale):
        return {"sum": pair["a"] + pair["b"][0], "both": [pair["a"] * scale, pair["b"][0]]}

    return torch.vmap(f)({"a": x, "b": (y,)}, scale=2)


def gradient(x, y):
    return torch.func.grad(lambda a: (a.sin() * y).sum())(x)


def gradient_of_tree(x, y):
    return torch.func.grad_and_value(lambda p: (p["a"] * p["b"]).sum())({"a": x, "b": y})


def gradient_with_extras(x, y):
    return torch.func.grad(lambda a, b: ((a * b).sum(), b), argnums=(0, 1), has_aux=True)(x, y)


def nested(x, y):
    return torch.vmap(torch.func.grad(torch.func.grad(lambda a: a.sin())))(x[0])


def per_sample(x, y):
    def loss(p, a):
        return torch.func.functional_call(net, p, (a,)).sum()

    return torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(dict(net.named_parameters()), x)


def forward_mode(x, y):
    return torch.func.jvp(lambda a: (a.sin(), a * 2), (x,), (y,))


def without_forward_mode(x, y):
    with torch.autograd.forward_ad._set_fwd_grad_enabled(False):
        return torch.func.jvp(torch.sin, (x,), (y,))


def pullback(x, y):
    out, back = torch.func.vjp(lambda a: (a.sin(), a * y), x)
    return out, back((y, x))


def jacobians(x, y):
    a = x[0]
    f, g = torch.sin, lambda v: (v**3).sum()
    return torch.func.jacrev(f)(a), torch.func.jacfwd(f)(a), torch.func.hessian(g)(a)


def writing_inside(x, y):
    def f(a):
        b = a.clone()
        b[0] = 5
        b.add_(1)
        return b, b[1:], b.view(2, 2)

    return torch.vmap(f)(x)


def writing_to_argument(x, y):
    z = y.detach().clone()
    torch.vmap(lambda a: a.mul_(2))(z)
    return z + y


def under_no_grad(x, y):
    with torch.no_grad():
        return torch.func.grad(lambda a: (a * y).sum())(x) + x


def partial_and_builtin(x, y):
    return torch.vmap(torch.mul)(x, y), torch.vmap(functools.partial(torch.add, alpha=2))(x, y)


PROGRAMS = [
    mapped, mapped_along, mapped_tree, gradient, gradient_of_tree, gradient_with_extras, nested,
    per_sample, forward_mode, without_forward_mode, pullback, jacobians, writing_inside,
    writing_to_argument, under_no_grad, partial_and_builtin,
]  # fmt: skip


def wanting(tree):
    leaves = pytree.tree_leaves(tree)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]


@pytest.mark.sample(3)
@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_values_and_gradients(fn, backend, monkeypatch):
    tc.reset()
    refused = []
    monkeypatch.setattr(
        aot_backend, "run_eagerly", lambda gm, why: refused.append(why) or gm.forward
    )
    torch.manual_seed(0)
    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    a, b = (t.detach().clone().requires_grad_() for t in (x, y))
    want = fn(x, y)
    got = tc.compile(fn, backend=backend, fullgraph=True)(a, b)
    torch.testing.assert_close(got, want)
    assert api.graph_stats()["graphs"] == 1
    wanted, found = wanting(want), wanting(got)
    assert len(wanted) == len(found)
    if wanted:
        grads = [
            torch.autograd.grad(sum((t * t).sum() for t in outs), ins, allow_unused=True)
            for outs, ins in ((wanted, (x, y)), (found, (a, b)))
        ]
        torch.testing.assert_close(grads[1], grads[0])
    torch.testing.assert_close((a, b), (x, y))
    assert not refused
    assert levels.depth() == 0


def test_levels_are_nodes_of_the_graph():
    graphs = []
    fn = tc.compile(mapped, backend=lambda gm, _: graphs.append(gm) or gm)
    fn(torch.randn(3, 4), torch.randn(3, 4))
    names = [getattr(node.target, "__name__", "") for node in graphs[0].graph.nodes]
    assert names.index("_vmap_increment_nesting") < names.index("_vmap_decrement_nesting")
    assert names.count("_add_batch_dim") == 2


def appending(x):
    def f(a):
        notes.append(1)
        return a * 2

    return torch.vmap(f)(x) + torch.func.grad(lambda a: f(a).sum())(x)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_side_effects_happen_as_in_python(backend):
    notes.clear()
    x = torch.randn(3)
    got = tc.compile(appending, backend=backend, fullgraph=True)(x)
    assert notes == [1, 1]
    torch.testing.assert_close(got, appending(x))


def leaking(x):
    def f(a):
        seen.append(a.sin())
        return seen[-1] * 2

    return torch.vmap(f)(x)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_tensor_that_leaves_its_level_is_as_dead_as_in_eager(backend):
    seen.clear()
    x = torch.randn(3, 4)
    want = leaking(x)
    torch.testing.assert_close(tc.compile(leaking, backend=backend)(x), want)
    assert [_functorch.is_batchedtensor(one) for one in seen] == [True, True]
    torch.testing.assert_close(*map(_functorch.get_unwrapped, seen))


def breaking(x):
    def f(a):
        tc.graph_break()
        return a.sin().sum()

    return torch.func.grad(f)(x + 1)


def test_a_break_inside_leaves_the_whole_transform_to_python():
    tc.reset()
    x = torch.randn(3)
    torch.testing.assert_close(tc.compile(breaking, backend="aot_eager")(x), breaking(x))
    stats = api.graph_stats()
    assert (stats["graphs"], stats["graph_breaks"]) == (1, 1)
    assert levels.depth() == 0


def choosing(x):
    def f(a):
        if a.dim() < 2:
            tc.graph_break()
            return a.sin()
        return a.cos()

    return torch.vmap(f)(x)


def test_the_shape_seen_inside_decides():
    tc.reset()
    fn = tc.compile(choosing, backend="aot_eager")
    for shape, graphs in (((2, 3), 0), ((2, 3, 4), 1)):
        x = torch.randn(shape)
        torch.testing.assert_close(fn(x), choosing(x))
        assert api.graph_stats()["graphs"] == graphs


def sizes_differ(x):
    return torch.vmap(torch.add)(x, x[:1])


def test_errors_are_those_of_torch():
    x = torch.randn(3, 4)
    with pytest.raises(ValueError, match="same size in the mapped dimension") as want:
        sizes_differ(x)
    with pytest.raises(ValueError, match="same size in the mapped dimension") as got:
        tc.compile(sizes_differ, backend="eager")(x)
    assert str(got.value) == str(want.value)


def caught(x):
    try:
        return torch.vmap(lambda a, b: a + b)(x, x[:1])
    except ValueError:
        return torch.vmap(lambda a: a * 2)(x)


def test_errors_can_be_caught_in_the_graph():
    x = torch.randn(3, 4)
    got = tc.compile(caught, backend="eager", fullgraph=True)(x)
    torch.testing.assert_close(got, x * 2)
    assert levels.depth() == 0


def indexing(x, index):
    return torch.vmap(lambda a: a.index_select(0, index))(x), torch.func.grad(torch.sum)(x)


def test_levels_are_popped_when_the_graph_raises():
    fn = tc.compile(indexing, backend="eager", fullgraph=True)
    x = torch.randn(3, 4)
    fn(x, torch.tensor([1]))
    with pytest.raises((IndexError, RuntimeError)):
        fn(x, torch.tensor([9]))
    assert levels.depth() == 0
    torch.testing.assert_close(fn(x, torch.tensor([0]))[0], x[:, :1])


def half_open(x):
    _functorch._vmap_increment_nesting(3, "error")
    y = _functorch._add_batch_dim(x, 0, 1)
    tc.graph_break()
    z = _functorch._remove_batch_dim(y * 2, 1, 3, 0)
    _functorch._vmap_decrement_nesting()
    return z


def test_a_break_between_push_and_pop_leaves_the_frame_to_python():
    x = torch.randn(3, 4)
    torch.testing.assert_close(tc.compile(half_open, backend="eager")(x), x * 2)
    assert levels.depth() == 0


@pytest.mark.parametrize("name", ["_parameters", "_buffers"])
def test_a_module_reads_what_was_put_into_its_tables(name):
    module = torch.nn.BatchNorm1d(4)
    key = {"_parameters": "weight", "_buffers": "running_mean"}[name]

    def swap(x):
        table = getattr(module, name)
        before = table[key]
        table[key] = before + 1
        out = getattr(module, key) * x
        del table[key]
        has = hasattr(module, key)
        table[key] = before
        return out, has

    x = torch.randn(4)
    want = swap(x)
    torch.testing.assert_close(tc.compile(swap, backend="eager", fullgraph=True)(x), want)


def decorated(x):
    def twice(f):
        @functools.wraps(f)
        def call(*args):
            return f(*args) * 2

        return call

    @twice
    def named(a):
        """Of the inner one."""
        return a + 1

    return named(x), named.__name__, named.__doc__, named.__wrapped__(x), named.__qualname__


def test_functools_wraps():
    x = torch.randn(3)
    got = tc.compile(decorated, backend="eager", fullgraph=True)(x)
    want = decorated(x)
    torch.testing.assert_close((got[0], got[3]), (want[0], want[3]))
    assert (got[1], got[2], got[4]) == (want[1], want[2], want[4])


def trees(x, y):
    tree = {"a": [x, (y, None)], "b": 2, "c": OrderedDict(k=x)}
    leaves, spec = pytree.tree_flatten(tree)
    doubled = pytree.tree_map(
        lambda leaf: leaf * 2 if isinstance(leaf, torch.Tensor) else leaf, tree
    )
    added = pytree.tree_map(torch.add, [x, {"k": y}], [y, {"k": x}])
    pairs = pytree.tree_map(lambda p: p[0], [(x, 1)], is_leaf=lambda n: isinstance(n, tuple))
    again = pytree.tree_unflatten(leaves, spec)
    same = spec == pytree.tree_structure(again)
    count = len(pytree.tree_leaves(again)), spec.num_leaves
    only = pytree.tree_map_only(torch.Tensor, torch.neg, [x, 1])
    return leaves[:3], doubled["a"], added, pairs, again["a"], same, count, only


def test_trees():
    x, y = torch.randn(3), torch.randn(3)
    got = tc.compile(trees, backend="eager", fullgraph=True)(x, y)
    torch.testing.assert_close(got, trees(x, y))


def mismatched(x):
    return pytree.tree_map(torch.add, [x, x], [x])


def structure(x):
    return pytree.tree_structure([x * 2, {"k": 1}]), x * 2


def test_tree_errors_and_specs_that_are_returned():
    x = torch.randn(3)
    with pytest.raises(ValueError, match="arity mismatch"):
        tc.compile(mismatched, backend="eager")(x)
    assert tc.compile(structure, backend="eager", fullgraph=True)(x)[0] == structure(x)[0]


NUMBERS = int | float


def unions(x):
    kinds = int | float | None
    return (
        x + 1,
        isinstance(3, kinds),
        isinstance(3.0, NUMBERS),
        isinstance("a", kinds | str),
        isinstance(x, int | str),
    )


def test_unions_of_types():
    x = torch.randn(3)
    assert tc.compile(unions, backend="eager", fullgraph=True)(x)[1:] == unions(x)[1:]


def test_code_made_outside_of_a_transform_is_not_run_inside():
    fn = tc.compile(mapped, backend="eager")
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    want = mapped(x, y)
    torch.testing.assert_close(fn(x, y), want)
    got = torch.vmap(lambda a: a + fn(x, y).sum(), randomness="same")(torch.zeros(2))
    torch.testing.assert_close(got, want.sum().expand(2))


# -- compiled functions inside of transforms that run eagerly --------------------------------
def to_be_mapped(x):
    return torch.vmap(lambda a: a.sin())(x) + x.cos().sum()


def summed(f):
    return torch.func.grad(lambda x: f(x).sum())


TRANSFORMED = [
    (torch.vmap, 1), (torch.vmap, 1), (functools.partial(torch.vmap, randomness="same"), 2),
    (lambda f: torch.vmap(torch.vmap(f)), 3), (summed, 4), (lambda f: torch.vmap(summed(f)), 5),
    (lambda f: torch.vmap(lambda a: f(a[1:])), 6), (lambda f: f, 7), (torch.vmap, 7),
    (lambda f: lambda x: torch.func.jvp(f, (x,), (x,)), 7),
]  # fmt: skip


def test_code_is_compiled_once_for_each_stack_of_transforms():
    tc.reset()
    compiled = tc.compile(to_be_mapped, backend="eager", dynamic=False)
    x = torch.randn(3, 3, 4, 5)
    for transform, graphs in TRANSFORMED:
        torch.testing.assert_close(transform(compiled)(x), transform(to_be_mapped)(x))
        assert api.graph_stats()["graphs"] == graphs
        assert levels.depth() == 0


def calling(x):
    return torch.vmap(lambda a: a.cos())(x).sum()


@pytest.mark.parametrize("transform", [torch.vmap, torch.func.grad])
def test_other_backends_take_no_tensors_of_a_transform(transform):
    x = torch.randn(3, 4)
    got = transform(tc.compile(calling, backend="aot_eager"))(
        x[0] if transform is not torch.vmap else x
    )
    want = transform(calling)(x[0] if transform is not torch.vmap else x)
    torch.testing.assert_close(got, want)
    with pytest.raises(tc.exc.Unsupported, match="inside a transform"):
        transform(tc.compile(calling, backend="aot_eager", fullgraph=True))(x)


def test_a_compiled_backward_inside_a_transform_does_as_eager():
    def pulled(function):
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        y = function(x)
        out, pull = torch.func.vjp(lambda v: torch.autograd.grad(y, x, v), x)
        return out, pull((torch.ones(2),))

    def square(x):
        return x**2

    torch.testing.assert_close(pulled(tc.compile(square)), pulled(square))


DIRECT = [torch.vmap(torch.sin), torch.func.grad(lambda a: a.sin().sum())]


@pytest.mark.parametrize("fn", DIRECT, ids=["vmap", "grad"])
def test_functions_of_torch_can_be_compiled_themselves(fn):
    tc.reset()
    x = torch.randn(3, 4)
    compiled = tc.compile(fn, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), fn(x))
    assert api.graph_stats()["graphs"] == 1


def test_each_of_them_has_code_of_its_own():
    tc.reset()
    x = torch.randn(3)
    for count in range(1, 12):  # more than the limit of recompiles
        fn = tc.compile(torch.vmap(lambda a, k=count: a * k), backend="eager", fullgraph=True)
        torch.testing.assert_close(fn(x), x * count)
        assert api.graph_stats()["graphs"] == count
