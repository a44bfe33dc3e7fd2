"""`torch.compile(..., backend="tc")`: real PyTorch captures, tc compiles; the same as eager."""

from __future__ import annotations

import copy
import json
import sys
import warnings

import pytest
import torch
import torch.nn.functional as F
from support import ROOT, succeed
from torch import nn
from torch.utils.checkpoint import checkpoint

import tc
from tc import trace
from tc.compiler.backends.torch_compile import tc as backend

TINY = {"rtol": 1e-4, "atol": 1e-5}


def pytorch():
    """PyTorch's own capture, which these tests drive; `torch.compile` loads it."""
    torch.compile(lambda x: x, backend="eager")
    return sys.modules["torch._dynamo"]


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch.compiler.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def plain(*shape):
    return torch.randn(*shape)


def wants(*shape):
    return torch.randn(*shape, requires_grad=True)


def copies(args):
    return [
        arg.detach().clone().requires_grad_(arg.requires_grad)
        if isinstance(arg, torch.Tensor)
        else arg
        for arg in args
    ]


def gradients(result, args):
    """Run backward from all that wants it; return what the arguments get."""
    flat = result if isinstance(result, (tuple, list)) else [result]
    wanting = [t.sum() for t in flat if isinstance(t, torch.Tensor) and t.requires_grad]
    if wanting:
        sum(wanting).backward()
    return [arg.grad for arg in args if isinstance(arg, torch.Tensor)]


def call(function, args):
    """Return the result of a call, its arguments as it leaves them, and their gradients."""
    given = copies(args)
    torch.manual_seed(1)
    result = function(*given)
    left = [arg.detach().clone() if isinstance(arg, torch.Tensor) else arg for arg in given]
    return result, left, gradients(result, given)


def same(function, *calls, eager=(), **settings):
    """Compare compiled calls with eager: results, written inputs, gradients, random numbers.

    Returns the captured graphs; ``eager`` are parts of the reasons why some run uncompiled.
    """
    compiled = torch.compile(function, backend=backend, **settings)
    graphs = []
    stop = tc.on_graph(graphs.append)
    try:
        with trace.capture_events() as events:
            for args in calls:
                torch.testing.assert_close(call(compiled, args), call(function, args), **TINY)
    finally:
        stop()
    whys = [e.payload for e in events.of(trace.Artifact) if e.name == "tc_graph_runs_eagerly"]
    assert len(whys) == len(eager) and all(map(str.__contains__, whys, eager)), whys
    return graphs


# -- values, gradients, modes ----------------------------------------------------------------
def autocast_inside(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ w
    return torch.relu(y) + 1


def no_grad_inside(x, w):
    with torch.no_grad():
        y = x @ w
    return (y + x @ w).sin()


def inference_inside(x, w):
    with torch.inference_mode():
        y = x @ x
    return y + 1


def breaks(x, w):
    y = (x @ w).sin()
    opaque()
    return y.cos()


@torch.compiler.disable
def opaque():
    """Something that PyTorch does not capture."""


PROGRAMS = {
    "fused": lambda x, w: torch.relu(x @ w).sum(-1),
    "softmax": lambda x, w: F.softmax(x @ w, -1),
    "dropout": lambda x, w: F.dropout(x @ w, 0.5),
    "random": lambda x, w: x @ w + torch.rand(4) + torch.randn_like(x),
    "attention": lambda x, w: F.scaled_dot_product_attention(x[None], w[None], x[None]),
    "constants": lambda x, w: (x * w + torch.tensor([1.0, 2.0, 3.0, 4.0]), None, 3, x.shape[0]),
    "custom gradients": lambda x, w: Tripled.apply(x @ w) * 2,
    "checkpoint": lambda x, w: checkpoint(
        lambda a, b: F.dropout(torch.sin(a @ b), 0.5) @ b, x, w, use_reentrant=False
    ),
    "region": lambda x, w: region(region(x, w), w),
    "region in a checkpoint": lambda x, w: checkpoint(region, x, w, use_reentrant=False),
    "autocast": autocast_inside,
    "no_grad": no_grad_inside,
    "inference mode": inference_inside,
    "graph break": breaks,
}


class Tripled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x.cos() * 3


@torch.compiler.nested_compile_region
def region(x, w):
    return torch.relu(x @ w)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("make", [plain, wants])
def test_programs_give_the_same(name, make):
    if name == "inference mode" and make is wants:
        pytest.skip("eager keeps no inference tensor for backward")
    calls = [(make(4, 4), make(4, 4)) for _ in range(2)]
    assert same(PROGRAMS[name], *calls)


def test_gradients_of_some_inputs_and_of_none():
    calls = [(plain(4, 4), plain(4, 4)), (plain(4, 4), wants(4, 4)), (wants(4, 4), plain(4, 4))]
    assert len(same(lambda x, w: (x @ w).tanh(), *calls)) == 3


def test_modes_around_the_call():
    def f(x, w):
        return torch.relu(x @ w)

    for mode in (
        torch.no_grad(),
        torch.inference_mode(),
        torch.autocast("cpu", dtype=torch.bfloat16),
        torch.device("cpu"),
    ):
        torch.compiler.reset()
        with mode:
            assert same(f, (wants(4, 4), wants(4, 4)))


@pytest.mark.parametrize("made", [backend, tc.aot_backend(lambda gm, inputs: gm.forward)])
def test_the_grad_mode_that_a_function_leaves(made):
    def f(x, on):
        y = x * 2
        torch.set_grad_enabled(on)
        return y, x * 3

    compiled = torch.compile(f, backend=made)
    try:
        for before, after in ((True, False), (False, True), (True, True), (True, False)):
            torch.set_grad_enabled(before)
            with trace.capture_events() as events:
                first, second = compiled(wants(3), after)
            assert torch.is_grad_enabled() is after
            names = [artifact.name for artifact in events.of(trace.Artifact)]
            assert ("tc_graph_runs_eagerly" in names) is (after and not before)
            assert (first.requires_grad, second.requires_grad) == (before, after)
    finally:
        torch.set_grad_enabled(True)


def test_dispatch_modes_see_what_they_see_in_eager():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counting(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            Counting.seen += 1
            return function(*args, **(kwargs or {}))

    compiled = torch.compile(lambda x: x.sin().cos(), backend=backend)
    with Counting():
        compiled(plain(3))
    assert Counting.seen >= 2


def sines(a):
    return a.sin().sum()


@pytest.mark.sample(2)
@pytest.mark.parametrize("make", [plain, wants])
@pytest.mark.parametrize(
    "f",
    [
        lambda x: torch.func.grad(sines)(x),
        lambda x: torch.vmap(torch.func.grad(sines))(x),
        lambda x: torch.func.hessian(sines)(x[0]),
        lambda x: torch.func.jacfwd(torch.sin)(x[0]),
        lambda x: torch.func.grad(lambda a: (a * x.detach()).sum())(x),
    ],
)
def test_functions_of_torch_func(f, make):
    torch.compiler.reset()
    assert same(f, (make(4, 3),))


def test_a_backend_made_by_aot_backend_under_torch_compile():
    seen = []

    def compiler(gm, example_inputs):
        seen.append(gm)
        return gm.forward

    made = tc.aot_backend(compiler)
    x, w = plain(4, 4), wants(4, 4)
    torch.testing.assert_close(
        torch.compile(lambda a: torch.func.grad(lambda b: b.sin().sum())(a), backend=made)(x),
        x.cos(),
    )
    compiled = torch.compile(lambda a, b: (a.add_(1), torch.relu(a @ b))[1], backend=made)
    torch.testing.assert_close(compiled(x.clone(), w), torch.relu((x + 1) @ w))
    compiled(x, w).sum().backward()
    assert len(seen) == 3 and w.grad is not None


def test_gradients_of_gradients():
    x = wants(4)

    def twice(f, x):
        (first,) = torch.autograd.grad((f(x).sin() * x).sum(), x, create_graph=True)
        return torch.autograd.grad(first.sum(), x)[0]

    compiled = torch.compile(torch.tanh, backend=backend)
    torch.testing.assert_close(twice(compiled, x), twice(torch.tanh, x))


def test_compiled_autograd():
    model, x = nn.Linear(4, 4), plain(3, 4)
    compiled = torch.compile(model, backend=backend)
    model(x).sin().sum().backward()
    want = [p.grad.clone() for p in model.parameters()]
    for name in ("eager", backend):
        model.zero_grad()
        with pytorch().compiled_autograd._enable(torch.compile(backend=name)):
            compiled(x).sin().sum().backward()
        torch.testing.assert_close([p.grad for p in model.parameters()], want)


# -- memory ----------------------------------------------------------------------------------
def writes(x, y):
    x.mul_(2)
    x[1:].add_(y[1:])
    return x - y


def aliases(x, y):
    z = x * 2
    return z, z.view(-1), z, x, x[0], y.t()


@pytest.mark.parametrize("make", [plain, wants])
def test_outputs_that_alias_inputs_and_each_other(make):
    assert same(aliases, (make(4, 3), make(4, 3)))
    x = make(4, 3)
    out = torch.compile(aliases, backend=backend)(x, x)
    assert out[2] is out[0] and out[3] is x
    assert out[1].data_ptr() == out[0].data_ptr() and out[4].data_ptr() == x.data_ptr()


def test_written_inputs():
    assert same(writes, (plain(4, 3), plain(4, 3)))
    assert same(lambda x, y: (x.mul_(2), (x * y).sum())[1], (plain(4), wants(4)))


def test_written_inputs_that_share_memory():
    def f(x, y):
        x.add_(1)
        return y * 2

    compiled = torch.compile(f, backend=backend)
    for cut in (
        lambda base: (base[:4], base[4:]),
        lambda base: (base[:4], base[2:6]),
        lambda base: (base[:4], base[:4]),
    ):
        got, theirs = torch.arange(8.0), torch.arange(8.0)
        have, want = compiled(*cut(got)), f(*cut(theirs))
        torch.testing.assert_close([have, got], [want, theirs])


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.norm(x) * self.calls


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.inner.register_forward_hook(lambda module, args, result: result * 2)

    def forward(self, x):
        return self.inner(x.sin())


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x).relu())


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 4, sparse=True)

    def forward(self, x):
        return self.table(x.long().clamp(0, 9)).sin()


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", [Counts, Hooked, Tied, Sparse])
@pytest.mark.parametrize("inlined", [True, False])
def test_modules_train_to_the_same(kind, inlined):
    theirs = kind()
    got = copy.deepcopy(theirs)
    with pytorch().config.patch(inline_inbuilt_nn_modules=inlined):
        compiled = torch.compile(got, backend=backend)
        steps = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (theirs, got)]
        for _ in range(3):
            x = plain(5, 4)
            torch.testing.assert_close(compiled(x), theirs(x))
            compiled(x).sum().backward()
            theirs(x).sum().backward()
            for step in steps:
                step.step()
                step.zero_grad()
    torch.testing.assert_close(got.state_dict(), theirs.state_dict())


def test_checkpoints_go_both_ways():
    model = nn.Linear(3, 3)
    compiled = torch.compile(model, backend=backend)
    compiled(plain(2, 3))
    assert set(compiled.state_dict()) == {f"_orig_mod.{name}" for name in model.state_dict()}
    other = nn.Linear(3, 3)
    torch.compile(other, backend=backend).load_state_dict(compiled.state_dict())
    torch.testing.assert_close(other.state_dict(), model.state_dict())
    tc.compile(other).load_state_dict(compiled.state_dict())


# -- sizes -----------------------------------------------------------------------------------
SIZED = {
    "products": (lambda x: torch.relu(x @ x.t()).sum(-1), [(3, 8), (4, 8), (9, 8)]),
    "sizes as values": (lambda x: (x * x.shape[0], x.shape[0] * 2, x.shape[0] ** 0.5),
                        [(3, 2), (4, 2), (7, 2)]),
    "views": (lambda x: x.view(x.shape[0] // 2, -1).cumsum(0), [(4, 3), (6, 3), (8, 3)]),
    "images": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
               [(1, 3, 4, 4), (1, 3, 5, 5), (1, 3, 6, 6)]),
}  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", SIZED)
@pytest.mark.parametrize("make", [plain, wants])
def test_dynamic_sizes_compile_once(name, make):
    function, shapes = SIZED[name]
    assert len(same(function, *[(make(*shape),) for shape in shapes], dynamic=True)) == 1


def test_a_size_becomes_dynamic_when_it_changes():
    assert len(same(lambda x: x.sin() + x.shape[0], *[(plain(k, 2),) for k in (3, 4, 5, 6)])) == 2


def test_a_guard_of_the_backend_is_kept_by_pytorch():
    """What lowering decides about a symbolic size has to recompile where it no longer holds."""
    graphs = same(lambda x, y: x + y, (plain(4), plain(4)), (plain(5), plain(1)), (plain(6),) * 2)
    assert graphs
    sized = same(lambda x: x.sum(0), *[(plain(k, 3),) for k in (3, 0, 1, 5)])
    assert len(sized) >= 2


def test_backward_adds_no_guards_after_pytorch_has_made_them():
    environments = []

    def note(gm):
        for node in gm.graph.find_nodes(op="placeholder"):
            if isinstance(node.meta["example_value"], torch.Tensor):
                environments.append(node.meta["example_value"].fake_mode.shape_env)

    stop = tc.on_graph(note)
    try:
        same(lambda x: F.max_pool2d(x, 2).flatten(1).logsumexp(1),
             *[(wants(k, 3, 2 * k, 2 * k),) for k in (8, 9)], dynamic=True)  # fmt: skip
    finally:
        stop()
    assert environments and {env.counter["ignored_backward_guard"] for env in environments} == {0}


def test_numbers_as_inputs():
    assert len(same(lambda x, n: x * n + n, *[(wants(3), n) for n in (2, 3, 4, 5)])) == 2
    torch.compiler.reset()
    assert len(same(lambda x, n: x * n + n, *[(wants(3), n) for n in (0.5, 1.5, 2.5)])) == 2


def test_numbers_out_of_data():
    with pytorch().config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        assert len(same(lambda x: x * x.sum().item(), (plain(4),), (plain(4),))) == 1
        torch.compiler.reset()
        assert len(same(lambda x: x[x > 0] * 2, (plain(8),), (plain(8),))) == 1


# -- what is not compiled --------------------------------------------------------------------
def test_what_is_not_compiled_runs_eagerly_and_says_why():
    def choose(x):
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    assert same(choose, (wants(4),), eager=["the operator cond takes functions as arguments"])
    torch.compiler.reset()
    assert same(
        lambda x, y: (setattr(x, "data", y), x * 2)[1], (plain(4), plain(4)),
        eager=["storage of an input are changed in place"],
    )  # fmt: skip


def test_tensor_subclasses_run():
    from torch.testing._internal.two_tensor import TwoTensor

    compiled = torch.compile(lambda x: (x * 2).sin(), backend=backend)
    x = TwoTensor(plain(3), plain(3))
    out = compiled(x)
    torch.testing.assert_close(out.b, (x.b * 2).sin())


def test_an_error_at_run_time_leaves_no_mode_behind():
    def f(x, i):
        with torch.no_grad():
            y = x.sin()
        return y[i]

    with pytest.raises(IndexError):
        torch.compile(f, backend=backend)(plain(3), torch.tensor([7]))
    assert torch.is_grad_enabled()


# -- settings --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "settings",
    [{"mode": mode} for mode in tc.list_mode_options()] + [{"options": {"max_autotune": True}}],
)
def test_modes_and_options(settings):
    assert same(lambda x: (x @ x).relu(), (plain(8, 8),), **settings)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mode": "fast"}, "there is no mode 'fast'"),
        ({"options": {"max_autotun": True}}, "did you mean 'max_autotune'?"),
    ],
)
def test_unknown_settings_are_refused(settings, said):
    with pytest.raises(pytorch().exc.BackendCompilerFailed) as raised:
        torch.compile(torch.sin, backend=backend, **settings)(plain(3))
    assert said in str(raised.value)


# -- the entry point and the logs ------------------------------------------------------------
LOGGED = """
import torch

assert "tc" in torch.compiler.list_backends()

def f(x, w):
    return torch.relu(x @ w).sum(-1)

x, w = torch.randn(5, 4), torch.randn(4, 4, requires_grad=True)
compiled = torch.compile(f, backend="tc")
torch.testing.assert_close(compiled(x, w), f(x, w))
compiled(x, w).sum().backward()
import tc
tc.compile(torch.sin)(x)
"""


@pytest.fixture
def installed(tmp_path):
    """A folder for the path of a process, with what pip would write of our entry points."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    place = tmp_path / "site"
    info = place / "tc_compile-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tc-compile\nVersion: 0.1.0\n")
    lines = []
    for group, rows in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in rows.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return place


@pytest.mark.slow
def test_the_entry_point_and_both_logs(installed, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(LOGGED)
    logs = {name: tmp_path / name for name in ("TORCH_TRACE", "TC_TRACE")}
    variables = {"PYTHONPATH": f"{installed}:{ROOT}", **{n: str(p) for n, p in logs.items()}}
    succeed(str(program), variables=variables)
    records = records_of(logs["TORCH_TRACE"])
    compiles = {(r["frame_id"], r["frame_compile_id"]) for r in records if "frame_id" in r}
    assert compiles == {(0, 0)}, "one compile of PyTorch's; tc.compile has its own log"
    artifacts = [r["artifact"]["name"] for r in records if "artifact" in r]
    assert {"tc_plan", "tc_fusion", "tc_partition"} <= set(artifacts)
    kinds = [next(iter(record)) for record in records]
    assert kinds.count("inductor_output_code") == 2  # forward and backward
    for kind in ("dynamo_start", "dynamo_output_graph", "compilation_metrics"):
        assert kinds.count(kind) == 1, "PyTorch's own record of it, not a second one of tc's"
    assert kinds.count("bwd_compilation_metrics") == 1
    stated = [r for r in records if next(iter(r)).startswith(("inductor", "aot", "bwd"))]
    assert all(r["frame_id"] == 0 and "stack" not in r for r in stated)
    got = [next(iter(record)) for record in records_of(logs["TC_TRACE"])]
    assert got.count("dynamo_start") == got.count("dynamo_output_graph") == 2


def records_of(folder):
    (log,) = folder.glob("*.log")
    lines = [line for line in log.read_text().splitlines() if line.startswith("V")]
    return [json.loads(line.split("] ", 1)[1]) for line in lines]


@pytest.mark.slow
def test_data_parallel_training_on_two_ranks():
    """PyTorch splits the graph at DDP's buckets, and gives tc each part."""
    out = succeed(str(ROOT / "tests/compiler/backends/ddp_program.py"), timeout=300)
    assert sorted(out.splitlines()) == ["rank 0: 2 graphs", "rank 1: 2 graphs"]


def test_modes_are_those_of_torch():
    with pytest.raises(RuntimeError, match="should be one of") as refused:
        torch.compile(torch.sin, mode="none of them")
    named = str(refused.value).partition("should be one of: ")[2]
    assert set(named.split(", ")) == set(tc.list_mode_options())
