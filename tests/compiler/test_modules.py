"""Compiled modules, methods and functions: used as what they were made of."""

from __future__ import annotations

import copy
import functools
import pickle
import threading

import pytest
import torch

import tc


class Count:
    """A backend that counts its graphs and their operations."""

    def __init__(self):
        self.graphs = self.ops = 0

    def __call__(self, gm, example_inputs):
        self.graphs += 1
        self.ops += sum(node.op.startswith("call") for node in gm.graph.nodes)
        return gm.forward


@pytest.fixture(autouse=True)
def fresh():
    tc.reset()


@pytest.fixture
def count():
    return Count()


def ones():
    return torch.ones(3)


def test_methods_of_all_kinds(count):
    class Thing:
        k = 2

        @tc.compile(backend=count)
        def plain(self, x):
            return x * self.k

        @tc.compile(backend=count)
        @staticmethod
        def static(x):
            return x * 3

        @tc.compile(backend=count)
        @classmethod
        def of_class(cls, x):
            return x * cls.k

    for method in (Thing().plain, Thing().static, Thing.static, Thing().of_class, Thing.of_class):
        assert method(ones())[0].item() in (2, 3)
    assert count.graphs == 3
    bound = tc.compile(Thing().plain, backend=count)
    assert bound(ones())[0].item() == 2


def test_compiled_in_compiled_is_one_graph(count):
    inner = tc.compile(lambda x: x.cos(), backend=count)
    layer = tc.compile(torch.nn.Linear(3, 3), backend=count)

    @tc.compile(backend=count, fullgraph=True)
    def outer(x):
        return layer(inner(x.sin())) + 1

    torch.testing.assert_close(outer(ones()), layer._orig_mod(ones().sin().cos()) + 1)
    assert (count.graphs, count.ops) == (1, 4)


def test_another_compiled_function_in_its_place_is_noticed(count):
    cell = [tc.compile(lambda x: x + 1, backend=count)]

    @tc.compile(backend=count, fullgraph=True)
    def outer(x):
        return cell[0](x)

    assert outer(ones())[0] == 2
    cell[0] = tc.compile(lambda x: x + 2, backend=count)
    assert outer(ones())[0] == 3


def test_wrappers_around_a_compiled_function_are_not_skipped(count):
    import functools

    inner = tc.compile(lambda x: x + 1, backend=count)

    @functools.wraps(inner)
    def twice(x):
        return inner(inner(x))

    assert tc.compile(twice, backend=count)(ones())[0] == 3
    assert tc.compile(lambda x: twice(x), backend=count, fullgraph=True)(ones())[0] == 3


def test_in_place(count):
    net = torch.nn.Linear(3, 3)
    expected = net(ones())
    tc.compile_in_place(net, backend=count)
    torch.testing.assert_close(net(ones()), expected)
    assert count.graphs == 1 and type(net) is torch.nn.Linear


def test_module_copies_pickles_and_states(count):
    net = tc.compile(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh()), backend="eager")
    expected = net(ones())
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert isinstance(other, tc.OptimizedModule)
        torch.testing.assert_close(other(ones()), expected)
        assert other[0].weight is not net[0].weight
    assert list(net.state_dict()) == [f"_orig_mod.{name}" for name in ("0.weight", "0.bias")]
    twin = copy.deepcopy(net)
    with torch.no_grad():
        net[0].weight.zero_()
    twin.load_state_dict(net.state_dict())
    assert not twin[0].weight.any()


def test_threads_compile_on_their_own(count):
    g = tc.compile(lambda x: x * 2, backend=count)
    found = []
    threads = [threading.Thread(target=lambda: found.append(g(ones()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and all(torch.equal(x, ones() * 2) for x in found)


def test_disabled_module_class_and_block(count):
    layer = tc.disable(torch.nn.Linear(3, 3))
    g = tc.compile(lambda x: layer(x.sin()).cos(), backend=count)
    torch.testing.assert_close(g(ones()), layer._orig_mod(ones().sin()).cos())
    assert count.graphs == 2

    class Made:
        def __init__(self, x):
            self.x = x

    assert tc.disable(Made) is Made
    h = tc.compile(lambda x: Made(x).x + 1, backend=count)
    assert h(ones())[0] == 2
    before = count.graphs
    k = tc.compile(lambda f, x: f(x) + 1, backend=count)
    k(torch.sin, ones())
    assert count.graphs == before + 1

    def off(x):
        with tc.disable():
            return x + 1

    assert tc.compile(off, backend=count)(ones())[0] == 2


def test_run_uses_what_is_compiled_only(count):
    def f(x):
        return x + 1

    g = tc.compile(f, backend=count)
    g(ones())
    only = tc.run(g)
    assert only(ones())[0] == 2 and only(torch.ones(2, 2)).shape == (2, 2)
    assert count.graphs == 1


def test_run_in_compiled_code_is_a_plain_call(count):
    only = tc.run(lambda x: x.sin() * 10)
    inner = tc.compile(lambda x: only(x) + 1, backend=count, fullgraph=True)
    outer = tc.compile(lambda x: torch.relu(inner(x)), backend=count, fullgraph=True)
    torch.testing.assert_close(outer(ones()), torch.relu(ones().sin() * 10 + 1))
    assert (count.graphs, count.ops) == (1, 4)
    disabled = tc.disable(inner)
    assert tc.compile(lambda x: disabled(x + 1), backend=count)(ones()).shape == (3,)
    assert count.graphs == 2


def doubled(module, args, output):
    return output * 2


def test_hooks_on_a_module_compiled_by_torch_run_in_compiled_code():
    compiled = torch.compile(torch.nn.Linear(3, 3), backend="eager")
    outer = tc.compile(lambda x: compiled(x) + 1, fullgraph=True)
    expected = compiled._orig_mod(ones())
    torch.testing.assert_close(outer(ones()), expected + 1)
    handle = compiled.register_forward_hook(doubled)
    torch.testing.assert_close(outer(ones()), expected * 2 + 1)
    handle.remove()
    torch.testing.assert_close(outer(ones()), expected + 1)


def test_hooks_on_the_compiled_module_run_around_its_calls():
    compiled = tc.compile(torch.nn.Linear(3, 3))
    compiled.register_forward_hook(doubled)
    compiled.register_buffer("extra", ones())
    expected = compiled._orig_mod(ones()) * 2
    outer = tc.compile(lambda x: compiled(x) + 1, fullgraph=True)
    torch.testing.assert_close(outer(ones()), expected + 1)
    for one in (compiled, copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        torch.testing.assert_close(one(ones()), expected)
        assert list(one.state_dict()) == ["extra", "_orig_mod.weight", "_orig_mod.bias"]
    handle = compiled.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    changed = compiled._orig_mod(ones() + 1) * 2
    torch.testing.assert_close(compiled(ones()), changed)
    torch.testing.assert_close(outer(ones()), changed + 1)
    handle.remove()
    torch.testing.assert_close(outer(ones()), expected + 1)
    seen = []
    compiled.register_full_backward_hook(lambda module, given, got: seen.append(len(got)))
    compiled(ones().requires_grad_()).sum().backward()
    assert seen == [1]


class Doubling:
    """A mixin, as `fully_shard` puts one before the class of a module."""

    def doubled(self, x):
        return self(x) * 2


@pytest.mark.parametrize(
    "compile", [tc.compile, functools.partial(torch.compile, backend="eager")], ids=["tc", "torch"]
)
def test_what_the_class_answers_is_set_on_the_compiled_module(compile):
    """Other attributes are those of the module it was made of; both as torch's."""
    inner = torch.nn.Linear(3, 3)
    compiled = compile(inner)
    kind = type(compiled)
    compiled.__class__ = type("Mixed", (Doubling, kind), {})
    assert type(inner) is torch.nn.Linear
    torch.testing.assert_close(compiled.doubled(ones()), inner(ones()) * 2)
    compiled.extra_repr = lambda: "mine"
    assert "extra_repr" not in vars(inner)
    compiled.scale = 3
    assert inner.scale == 3
    compiled.forward = lambda x: x * 0
    assert "forward" not in vars(inner)
    torch.testing.assert_close(compiled(ones()), ones() * 0)
    outer = tc.compile(lambda x: compiled(x) + 1, fullgraph=True)
    torch.testing.assert_close(outer(ones()), ones())
    del compiled.scale
    assert not hasattr(inner, "scale")
    if compile is tc.compile:  # torch's has no other forward to come back to
        del compiled.forward
        torch.testing.assert_close(compiled(ones()), inner(ones()))


@pytest.mark.parametrize(
    "module", [torch.nn.Linear(1, 1), torch.nn.Sequential(), torch.nn.ModuleList()]
)
def test_a_compiled_module_is_as_true_as_the_module(module):
    assert bool(tc.compile(module)) == bool(module)


@pytest.mark.sample(2)
@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("train", [False, True])
def test_parameters_of_a_compiled_module_can_be_swapped(train, backend):
    module, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)

    def halves(x):  # the graph that breaks is captured twice
        y = module(x)
        tc.graph_break()
        return y * 2

    run = tc.compile(halves, backend=backend)
    x = torch.ones(4, 3)
    with torch.set_grad_enabled(train):
        run(x)
    torch.utils.swap_tensors(module.weight, other.weight)
    assert torch.allclose(run(x), halves(x))
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        module.double()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)
    assert torch.allclose(run(x.double()), halves(x.double()))


def test_modules_on_the_meta_device_train():
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.GELU()).to("meta")
    result = tc.compile(module)(torch.ones(4, 3, device="meta"))
    result.sum().backward()
    assert result.shape == (4, 2) and module[0].weight.grad.shape == (2, 3)
