"""Backends made of compilers of ATen graphs: what these are given, and what comes of it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensor

import tc
from tc import trace

aten = torch.ops.aten
BACKENDS = pytest.mark.parametrize("backend", ["aot_eager", "aot_eager_decomp_partition"])


@pytest.fixture(autouse=True)
def fresh():
    tc.reset()


def run_as_it_is(gm):
    return gm.forward


def boxed(gm):
    """Compile to a function of one list, which it empties."""

    def call(args):
        given = list(args)
        args.clear()
        return gm(*given)

    call._boxed_call = True
    return call


class Seen:
    """A compiler that keeps what it gets."""

    def __init__(self, finish=run_as_it_is):
        self.graphs, self.inputs, self.finish = [], [], finish

    def __call__(self, gm, example_inputs):
        self.graphs.append(list(gm.graph.nodes))
        self.inputs.append(example_inputs)
        return self.finish(gm)

    @property
    def targets(self):
        return [n.target for nodes in self.graphs for n in nodes if n.op == "call_function"]


def made(finish=run_as_it_is, **settings):
    compilers = Seen(finish), Seen(finish), Seen(finish)
    return (tc.aot_backend(*compilers, **settings), *compilers)


def t(*shape, grad=False):
    generator = torch.Generator().manual_seed(len(shape) + sum(shape))
    return torch.randn(*shape, generator=generator).requires_grad_(grad)


def trained(function, args, backend=None):
    """Return outputs, inputs as they are afterwards, and gradients."""
    args = [a.detach().clone().requires_grad_(a.requires_grad) for a in args]
    if backend is not None:
        function = tc.compile(function, backend=backend, fullgraph=True)
    torch.manual_seed(0)
    out = function(*args)
    out.sum().backward()
    return [out, *args, *[a.grad for a in args]]


def layer(x, w):
    return F.gelu(F.linear(x, w)).softmax(-1) * x.shape[0]


def writes(x, state):
    y = x.t() * state.clone() + state
    state.mul_(2).add_(1)
    return y.relu()


def swaps(x, state):
    one, other = state[0].clone(), state[1].clone()
    state[0], state[1] = other, one
    return (x * state.clone()).exp()


def reads_what_it_writes(x, state):
    state.copy_(state.t().clone())
    return x @ state.sin()


def views(x, w):
    return (x.view(-1) * w.view(-1)).view(2, 3) + w.reshape(2, 3)


def dropped(x, w):
    return F.dropout(x @ w.t(), 0.5) + F.dropout(x[:, :3], 0.2)


def normalised(x, state):
    return F.batch_norm(x, state[0], state[1], training=True) * x


SQUARE = t(3, 3, grad=True), t(3, 3)
BOTH = t(3, 3, grad=True), t(3, 3, grad=True)
PROGRAMS = [
    (layer, BOTH),
    (writes, SQUARE),
    (swaps, SQUARE),
    (reads_what_it_writes, SQUARE),
    (views, (t(3, 2, grad=True), t(3, 2, grad=True))),
    (dropped, BOTH),
    (normalised, (t(3, 3, grad=True), t(2, 3))),
]


@pytest.mark.sample(6)
@BACKENDS
@pytest.mark.parametrize(("function", "args"), PROGRAMS, ids=[f.__name__ for f, _ in PROGRAMS])
def test_training_as_eager(function, args, backend):
    with trace.capture_events() as events:
        actual = trained(function, args, backend)
    for got, want in zip(actual, trained(function, args), strict=True):
        torch.testing.assert_close(got, want)
    kinds = [event.kind for event in events.of(trace.AtenGraph)]
    assert kinds == ["joint", "forward", "backward"]


@pytest.mark.sample(5)
@pytest.mark.parametrize("finish", [run_as_it_is, boxed])
@pytest.mark.parametrize(("function", "args"), PROGRAMS, ids=[f.__name__ for f, _ in PROGRAMS])
def test_compilers_get_functional_graphs_with_values(function, args, finish):
    backend, *compilers = made(finish)
    actual = trained(function, args, backend)
    for got, want in zip(actual, trained(function, args), strict=True):
        torch.testing.assert_close(got, want)
    assert [len(compiler.graphs) for compiler in compilers] == [1, 1, 0]
    for compiler in compilers[:2]:
        places = [node for node in compiler.graphs[0] if node.op == "placeholder"]
        assert [node.meta["val"] for node in places] == compiler.inputs[0]
        assert all(isinstance(value, FakeTensor) for value in compiler.inputs[0])
        assert not any(target._schema.is_mutable for target in ops(compiler))


def ops(compiler):
    return [op for op in compiler.targets if isinstance(op, torch._ops.OpOverload)]


def test_inference_has_a_compiler_of_its_own():
    backend, forward, backward, inference = made()
    f = tc.compile(writes, backend=backend)
    state, same = t(3, 3), t(3, 3)
    with torch.no_grad():
        torch.testing.assert_close(f(SQUARE[0], state), writes(SQUARE[0], same))
    torch.testing.assert_close(state, same)
    f(t(3, 3), state)  # nothing wants gradients
    assert (len(forward.graphs), len(backward.graphs), len(inference.graphs)) == (0, 0, 2)


def test_one_compiler_serves_for_all():
    only = Seen()
    trained(layer, BOTH, tc.aot_backend(only))
    assert len(only.graphs) == 2


def test_results_share_no_memory():
    """What a graph returns are values of its own, where ATen would give views."""

    def f(x):
        y = x.sin()
        return x.view(-1).expand(1, 9).contiguous(), y.view(9).clone().view(3, 3), y

    def separate(gm):
        def call(*args):
            results = gm(*args)
            stored = [r.untyped_storage()._cdata for r in (*results, *args)]
            assert len(set(stored)) == len(stored)
            return results

        return call

    backend, *_ = made(separate)
    for got, want in zip(tc.compile(f, backend=backend)(t(3, 3)), f(t(3, 3)), strict=True):
        torch.testing.assert_close(got, want)
    trained(lambda x, y: x.view(-1) + y.view(-1), BOTH, backend)


def test_decompositions_are_what_was_asked_for():
    calls = []

    def simpler_gelu(x, approximate="none"):
        calls.append(approximate)
        return x * 0.5 * (1 + torch.erf(x * 0.5**0.5))

    found = {}
    for name, chosen in {
        "none": None,
        "own": {aten.gelu.default: simpler_gelu},
        "all": True,
    }.items():
        backend, forward, backward, _ = made(decompositions=chosen)
        actual = trained(layer, BOTH, backend)
        for got, want in zip(actual, trained(layer, BOTH), strict=True):
            torch.testing.assert_close(got, want)
        found[name] = set(forward.targets) | set(backward.targets)
    assert {aten.gelu.default, aten.gelu_backward.default} <= found["none"]
    assert calls and aten.gelu.default not in found["own"] and aten.erf.default in found["own"]
    assert aten._softmax_backward_data.default in found["own"]
    assert aten.gelu_backward.default not in found["all"]
    assert aten._softmax_backward_data.default not in found["all"]


def test_partition_keeps_or_computes_again():
    def f(x):
        return x.sin().cos().exp()

    kept = {}
    for partition in ("default", "min_cut"):
        backend, _, backward, _ = made(partition=partition)
        trained(f, (t(3, 3, grad=True),), backend)
        kept[partition] = len(backward.inputs[0])
        assert (aten.exp.default in backward.targets) == (partition == "min_cut")
    assert kept == {"default": 4, "min_cut": 2}


def test_sizes_that_change_reach_the_compilers_as_symbols():
    backend, forward, *_ = made()
    f = tc.compile(layer, backend=backend, dynamic=True)
    for n in (5, 4, 7):
        torch.testing.assert_close(f(t(n, 3, grad=True), BOTH[1]), layer(t(n, 3), BOTH[1]))
    assert len(forward.graphs) == 1
    sizes = [i for i in forward.inputs[0] if isinstance(i, torch.SymInt)]
    assert sizes or any(isinstance(s, torch.SymInt) for i in forward.inputs[0] for s in i.shape)


def test_graphs_that_only_eager_runs_right_reach_no_compiler():
    def f(x):
        y = x * 2
        y.register_hook(lambda gradient: gradient * 10)
        return y.sin()

    backend, forward, *_ = made()
    with trace.capture_events() as events:
        got = trained(f, (t(3, grad=True),), backend)
    torch.testing.assert_close(got, trained(f, (t(3, grad=True),)))
    assert not forward.graphs
    assert "tc_graph_runs_eagerly" in [event.name for event in events.of(trace.Artifact)]


def test_a_graph_with_parameters_and_real_inputs():
    """As called by hand, without capture."""
    model = torch.nn.Linear(3, 2)
    gm = torch.fx.symbolic_trace(model)
    backend, forward, _, inference = made()
    x = t(4, 3)
    backend(gm, [x])(x)[0].sum().backward()
    assert model.weight.grad is not None and not forward.graphs
    run = torch.fx.symbolic_trace(lambda x: (x.sin() * 2,))
    torch.testing.assert_close(backend(run, [x])(x), [x.sin() * 2])
    assert len(inference.graphs) == 1


@pytest.mark.parametrize(
    ("finish", "message"),
    [
        (lambda gm: 3, "fw_compiler returned int, not a callable"),
        (lambda gm: lambda *args: gm(*args)[0], "what fw_compiler compiled returned"),
        (lambda gm: lambda *args: gm(*args)[1:], "returned 1 results, not a tuple or list of 2"),
    ],
)
def test_wrong_answers_of_a_compiler_are_reported(finish, message):
    backend = tc.aot_backend(Seen(finish), Seen())
    with pytest.raises(tc.exc.BackendCompilerFailed, match=message):
        trained(lambda x: x.sin(), (t(3, grad=True),), backend)


def test_unknown_partition():
    with pytest.raises(tc.exc.OptionError, match="did you mean 'min_cut'"):
        tc.aot_backend(Seen(), partition="mincut")


def test_a_compiler_is_not_captured_itself():
    @tc.compile(backend="eager")
    def inner(x):
        return x + 1

    def compiler(gm, example_inputs):
        torch.ones(2) + 1
        return lambda *args: [inner(value) - 1 for value in gm(*args)]

    with trace.capture_events() as events:
        trained(lambda x: x.sin(), (t(3, grad=True),), tc.aot_backend(compiler))
    assert {event.stack[-1].name for event in events.of(trace.FrameStart)} == {"<lambda>", "inner"}


def test_a_detached_input_beside_a_write_with_gradients_on_is_compiled() -> None:
    """The second observation, where inputs require gradients, raises; the first one stands."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.detach()
        with torch.enable_grad():
            x.add_(1)
        return y, x * 2

    x, other = torch.ones(3), torch.ones(3)
    with torch.no_grad(), trace.capture_events() as events:
        found = tc.compile(function, fullgraph=True)(x)
        torch.testing.assert_close(found, function(other))
    assert torch.equal(x, other)
    assert "tc_graph_runs_eagerly" not in {one.name for one in events.of(trace.Artifact)}


def test_hooks_of_all_modules_are_not_called_on_graphs():
    tc.reset()
    module = torch.nn.Linear(3, 3, device="cpu")
    compiled = tc.compile(module, backend="aot_eager")
    x = torch.ones(2, 3, device="cpu")
    compiled(x)
    register = torch.nn.modules.module.register_module_forward_hook
    hook = register(lambda module, args, result: result * 2)
    try:
        torch.testing.assert_close(compiled(x), module(x))
    finally:
        hook.remove()
