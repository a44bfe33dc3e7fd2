"""Guards seen from outside: what makes a new graph, what does not, and that results stay right."""

# ruff: noqa: PLW0603
from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import tc
from tc import trace
from tc.compiler import api
from tc.compiler.capture import hook
from tc.compiler.options import config

scale = 2.0
names = ["a"]


class Settings:
    def __init__(self, n):
        self.n = n


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("shift", torch.ones(4))
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.Tanh()])
        self.table = {"k": 1}
        self.calls = 0

    def forward(self, x):
        self.calls += 0
        x = self.linear(x) + self.shift
        for layer in self.layers:
            x = layer(x)
        return x * self.table["k"]


def rows(n, m=4):
    return torch.randn(n, m)


def graphs_of(fn, calls, **options):
    """Return the number of graphs after each call, checking each against eager."""
    tc.reset()
    compiled = tc.compile(fn, backend="eager", **options)
    counts = []
    for args in calls:
        torch.testing.assert_close(compiled(*args), fn(*args))
        counts.append(api.graph_stats()["graphs"])
    return counts


def add_one(x):
    return x + 1


def times(x, n):
    return x * n


# -- what a graph rests on -------------------------------------------------------------------
@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([(rows(3),), (rows(3),)], [1, 1]),
        ([(rows(3),), (rows(3).double(),)], [1, 2]),
        ([(rows(3),), (torch.randn(3),)], [1, 2]),
        ([(rows(3),), (rows(4, 3).t(),)], [1, 2]),
        ([(rows(3),), (rows(3).requires_grad_(),)], [1, 2]),
        ([(rows(3),), (torch.nn.Parameter(rows(3)),)], [1, 2]),
        ([(2,), (2.0,)], None),
    ],
    ids=["same", "dtype", "rank", "strides", "requires_grad", "class", "python numbers"],
)
def test_tensors(calls, expected):
    counts = graphs_of(add_one, calls)
    assert expected is None or counts == expected


def test_constants():
    x = rows(2)
    assert graphs_of(times, [(x, 2.0), (x, 2.0), (x, 3.0)]) == [1, 1, 2]
    assert graphs_of(times, [(x, True), (x, False)]) == [1, 2]


def test_integers_become_dynamic():
    x = rows(2)
    assert graphs_of(times, [(x, 2), (x, 3), (x, 4), (x, 50)]) == [1, 2, 2, 2]


def test_sizes_become_dynamic():
    calls = [(rows(3),), (rows(4),), (rows(5),), (rows(60),)]
    assert graphs_of(add_one, calls) == [1, 2, 2, 2]


#: a part of a tensor: its strides follow the size of the whole, its own sizes do not
PARTS = {
    "columns": lambda n: rows(4, n)[:, :3],
    "one column": lambda n: rows(4, n)[:, :1],
    "last token": lambda n: torch.randn(2, n, 4)[:, -1:],
    "last token by heads": lambda n: torch.randn(1, n, 2, 4).transpose(1, 2)[:, :, -1:],
    "last columns": lambda n: rows(4, n)[:, n - 3 :],
    "each n-th": lambda n: rows(4, 3 * n)[:, ::n],
    "a solution": lambda n: torch.linalg.lstsq(rows(n, 2), rows(n, 2)).solution,
    "a corner in channels last": lambda n: torch.randn(2, 3, n, n).to(
        memory_format=torch.channels_last
    )[:, :, :2, :2],
}
#: programs that ask about the layout, or depend on it
LAYOUTS = {
    "sum": lambda x: (x * 2 + 1, x.sum(-1)),
    "in place": lambda x: x.clone(memory_format=torch.preserve_format).mul_(2).add_(x),
    "the input in place": lambda x: x.add_(1) * 2,
    "stride": lambda x: x * x.stride(0),
    "flat": lambda x: x.reshape(-1) * 2,
    "transposed": lambda x: x.mT @ x,
    "as strided": lambda x: x.as_strided((2, 1), (x.stride(0), 1)) * 2,
    "contiguous": lambda x: x + (2 if x.is_contiguous() else 1),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("part", PARTS)
def test_strides_become_dynamic(part):
    calls = [(PARTS[part](n),) for n in (5, 6, 7, 9, 30)]
    assert graphs_of(add_one, calls) == [1, 2, 2, 2, 2]
    assert graphs_of(add_one, calls, dynamic=False) == [1, 2, 3, 4, 5]


@pytest.mark.sample(4)
@pytest.mark.parametrize("backend", ["eager", "tc"])
@pytest.mark.parametrize("program", LAYOUTS)
def test_programs_of_dynamic_strides_are_eagers(program, backend):
    fn = LAYOUTS[program]
    compiled = tc.compile(fn, backend=backend)
    for part in ("columns", "last token"):
        for n in (5, 6, 7, 9, 3, 4):
            x = PARTS[part](n)
            y = x._base.clone().as_strided(x.shape, x.stride(), x.storage_offset())
            result, expected = compiled(y), fn(x)
            torch.testing.assert_close(result, expected)
            torch.testing.assert_close(y, x)
            for one, other in zip(_flat(result), _flat(expected), strict=True):
                assert one.stride() == other.stride()


def _flat(result):
    return result if isinstance(result, tuple) else (result,)


def test_sizes_zero_and_one_are_their_own():
    calls = [(rows(3),), (rows(4),), (rows(1),), (rows(0),), (rows(7),)]
    counts = graphs_of(add_one, calls)
    assert counts[1] == 2 and counts[-1] == counts[-2]


def test_dynamic_from_the_start_and_never():
    calls = [(rows(3),), (rows(4),), (rows(5),)]
    assert graphs_of(add_one, calls, dynamic=True) == [1, 1, 1]
    assert graphs_of(add_one, calls, dynamic=False) == [1, 2, 3]


def test_mark_dynamic_and_static():
    first = rows(3)
    tc.mark_dynamic(first, 0)
    assert graphs_of(add_one, [(first,), (rows(4),), (rows(9),)]) == [1, 1, 1]
    calls = []
    for n in (3, 4, 5):
        x = rows(n)
        tc.mark_static(x)
        calls.append((x,))
    assert graphs_of(add_one, calls) == [1, 2, 3]


def test_sizes_in_control_flow_and_arithmetic():
    def f(x):
        n, m = x.shape
        if n > 8:
            return x.reshape(n * m)[: n // 2] + n
        return x.view(-1, m * 1)[: max(n - 1, 1)] * (n / 2) + x.numel()

    counts = graphs_of(f, [(rows(n),) for n in (3, 4, 5, 9, 10, 20, 6)])
    assert counts == [1, 2, 2, 3, 3, 3, 3]


def test_size_used_as_a_number():
    def f(x):
        out = []
        for i in range(x.shape[0]):
            out.append(x[i] * i)
        return torch.stack(out)

    assert graphs_of(f, [(rows(n),) for n in (2, 3, 4, 3)])[-1] <= 4


def test_equal_sizes_that_differ_later():
    def f(x, y):
        return torch.cat([x, y]) + (1 if x.shape[0] == y.shape[0] else 2)

    graphs_of(f, [(rows(3), rows(3)), (rows(4), rows(4)), (rows(4), rows(5)), (rows(6), rows(7))])


def test_globals_and_their_contents():
    global scale

    def f(x):
        return x * scale + len(names)

    tc.reset()
    compiled = tc.compile(f, backend="eager")
    x = rows(2)
    try:
        assert torch.equal(compiled(x), f(x))
        scale = 3.0
        assert torch.equal(compiled(x), f(x))
        names.append("b")
        assert torch.equal(compiled(x), f(x))
    finally:
        scale = 2.0
        del names[1:]
    assert torch.equal(compiled(x), f(x))
    assert api.graph_stats()["graphs"] == 3


def test_closures_objects_and_containers():
    n = 1
    settings = Settings(4)
    extra = {"k": 1}
    order = [1, 2]

    def f(x):
        return x * n + settings.n + extra["k"] + order[0] + ("z" in extra)

    tc.reset()
    compiled = tc.compile(f, backend="eager")
    x = rows(2)

    def agrees():
        assert torch.equal(compiled(x), f(x))

    agrees()
    n = 2
    agrees()
    settings.n = 5
    agrees()
    extra["k"] = 9
    agrees()
    extra["z"] = 0
    agrees()
    order[0] = 100
    agrees()
    settings = Settings(7)
    agrees()


def test_attribute_that_appears():
    settings = Settings(1)

    def f(x):
        return x + getattr(settings, "late", 10) + (5 if hasattr(settings, "q") else 0)

    tc.reset()
    compiled = tc.compile(f, backend="eager")
    x = rows(2)
    for change in (
        lambda: 0,
        lambda: setattr(settings, "late", 3),
        lambda: setattr(settings, "q", 1),
    ):
        change()
        assert torch.equal(compiled(x), f(x))


def test_functions_and_classes():
    class A:
        def go(self, x):
            return x + 1

    class B(A):
        def go(self, x):
            return x + 2

    def f(x, thing, act):
        return act(thing.go(x))

    x = rows(2)
    calls = [(x, A(), torch.sin), (x, B(), torch.sin), (x, B(), torch.cos), (x, A(), lambda t: t)]
    assert graphs_of(f, calls) == [1, 2, 3, 4]


def test_method_replaced_on_the_class():
    class A:
        def go(self, x):
            return x + 1

    thing = A()

    def f(x):
        return thing.go(x)

    tc.reset()
    compiled = tc.compile(f, backend="eager")
    x = rows(2)
    assert torch.equal(compiled(x), x + 1)
    A.go = lambda self, x: x + 2
    assert torch.equal(compiled(x), x + 2)


def test_grad_mode_and_default_dtype():
    def f(x):
        return x * torch.ones(2, dtype=torch.get_default_dtype()), torch.is_grad_enabled()

    tc.reset()
    compiled = tc.compile(f, backend="eager")
    x = rows(3, 2)
    assert compiled(x)[1] is True
    with torch.no_grad():
        assert compiled(x)[1] is False
    torch.set_default_dtype(torch.float64)
    try:
        assert compiled(x)[0].dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert compiled(x)[0].dtype == torch.float32


def test_one_tensor_twice_after_two():
    def f(x, y):
        x.add_(1)
        return x * y

    tc.reset()
    compiled = tc.compile(f, backend="eager")
    for shared in (False, True, False):
        a, b = torch.ones(3), torch.ones(3)
        pair, want = ((a, a), (b, b)) if shared else ((a, a.clone()), (b, b.clone()))
        torch.testing.assert_close(compiled(*pair), f(*want))


# -- modules ---------------------------------------------------------------------------------
def test_module_state():
    net = Net()
    tc.reset()
    compiled = tc.compile(net, backend="eager")
    x = rows(3)

    def agrees():
        torch.testing.assert_close(compiled(x), net(x))

    agrees()
    agrees()
    assert api.graph_stats()["graphs"] == 1
    with torch.no_grad():
        net.linear.weight.mul_(2)
    agrees()
    assert api.graph_stats()["graphs"] == 1
    net.table["k"] = 4
    agrees()
    net.layers.append(torch.nn.ReLU())
    agrees()
    net.layers[1] = torch.nn.Sigmoid()
    agrees()
    net.shift = torch.zeros(4)
    agrees()
    net.linear = torch.nn.Linear(4, 4, bias=False)
    agrees()


def test_training_mode():
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(1.0))
    tc.reset()
    compiled = tc.compile(net, backend="eager")
    x = rows(3)
    assert compiled(x).abs().sum() == 0
    net.eval()
    torch.testing.assert_close(compiled(x), net(x))


def test_hooks():
    net = Net()
    seen = []
    tc.reset()
    compiled = tc.compile(net, backend="eager")
    x = rows(3)
    before = compiled(x)
    handle = net.linear.register_forward_hook(lambda m, args, out: (seen.append(1), out * 0)[1])
    torch.testing.assert_close(compiled(x), net(x))
    assert seen == [1, 1]
    handle.remove()
    torch.testing.assert_close(compiled(x), before)
    net.linear.register_forward_pre_hook(lambda m, args: (args[0] * 3,))
    torch.testing.assert_close(compiled(x), net(x))


def test_training_step():
    torch.manual_seed(0)
    mine, theirs = Net(), Net()
    theirs.load_state_dict(mine.state_dict())
    tc.reset()
    compiled = tc.compile(mine, backend="eager")
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (mine, theirs)]
    for _ in range(3):
        x = rows(5)
        for call, optimizer in zip((compiled, theirs), optimizers, strict=True):
            optimizer.zero_grad()
            call(x).square().mean().backward()
            optimizer.step()
    for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    assert api.graph_stats()["graphs"] == 1


# -- the limit and what is reported ----------------------------------------------------------
@pytest.mark.parametrize("after_threads", [False, True])
def test_limit_warns_once_and_runs_eagerly(caplog, after_threads):
    tc.reset()
    if after_threads:  # whose calls stop torch from putting the code used last first, for good
        hook._keep_order()
    compiled = tc.compile(times, backend="eager")
    x = rows(2)
    with config.patch(recompile_limit=3, specialize_float=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(6):
            assert torch.equal(compiled(x, i + 0.5), x * (i + 0.5))
    assert api.graph_stats()["graphs"] == 3
    reported = caplog.text
    assert reported.count("recompile_limit") == 1
    assert "n: 2.5 -> 3.5" in reported


def until_found(x):
    found = []
    for _ in range(30):
        x, stop = one_more(x, found)
        if stop:
            break
    return x * 2, found


def one_more(x, found):
    found.append(x)
    stop = False
    if torch.stack(found).eq(99).any():
        stop = True
    return x.sin() + 1, stop


def test_frames_below_one_at_the_limit_are_not_compiled_up_to_theirs(caplog):
    def outer(x):
        y, found = until_found(x)
        return y.cos() * y.sin(), found

    tc.reset()
    compiled = tc.compile(outer, backend="eager")
    for x in (rows(2), rows(2), rows(3)):
        got, listed = compiled(x)
        wanted, wanted_list = outer(x)
        torch.testing.assert_close(got, wanted)
        torch.testing.assert_close(listed, wanted_list)
    # The length of the list is what each frame of the stack would be compiled again for.
    limited = [line for line in caplog.text.splitlines() if "runs eagerly from now on" in line]
    assert [line.split("tc: ")[1].split(" (/")[0] for line in limited] == [
        f"{outer.__qualname__} (resumed at {outer.__code__.co_firstlineno + 1})", "one_more"
    ]  # fmt: skip


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def by_a_function(x, name):
    return Doubled.apply(x) + len(name)


def by_a_transform(x, name):
    return torch.func.vmap(lambda one: one * len(name))(x)


def by_a_gradient(x, name):
    return torch.func.grad(lambda one: (one * len(name)).sin().sum())(x)


@pytest.mark.parametrize("regions", [False, True])
@pytest.mark.parametrize("outer", [by_a_function, by_a_transform, by_a_gradient])
def test_a_strict_function_past_its_limit_runs_eagerly_with_all_it_calls(outer, regions):
    tc.reset()
    compiled = tc.compile(outer, backend="eager", fullgraph=True)
    if regions:  # code with regions of its own stays offered past the limit
        isolated = tc.compile(outer, backend="eager", isolate_recompiles=True)
        isolated(torch.ones(2), "first")
    x = torch.ones(2, requires_grad=True)
    with config.patch(recompile_limit=2):
        for name in ("a", "b", "c", "d", "c", "a"):
            torch.testing.assert_close(compiled(x, name), outer(x, name))


def test_locals_of_inner_frames_have_the_users_names():
    def function(x):
        y, found = until_found(x)
        return y + 1, found

    tc.reset()
    with trace.capture_events() as events:
        tc.compile(function, backend="eager")(rows(2))
    sources = {cause.source for event in events.of(trace.Recompile) for cause in event.causes}
    assert "len(until_found.found)" in sources
    assert not [source for source in sources if "___inner" in source]


def test_recompile_reports_source_and_both_values():
    tc.reset()
    compiled = tc.compile(times, backend="eager")
    x = rows(2)
    compiled(x, 1.5)
    with trace.capture_events() as events:
        compiled(x, 2.5)
    (reported,) = events.of(trace.Recompile)
    (cause,) = reported.causes
    assert (cause.source, cause.old, cause.new) == ("n", "1.5", "2.5")


def test_arrays_are_distinguished_by_themselves():
    def function(a, b):
        a[0] = b
        return a

    for _ in range(20):  # the tensors made to look at arrays may lie where others did
        tc.reset()
        compiled = tc.compile(function, backend="eager")
        for size in (2, 3, 4):
            found = compiled(np.zeros((size, size)), np.ones(size))
            assert (found[0] == 1).all() and (found[1:] == 0).all()
    both = np.arange(4.0).reshape(2, 2)
    compiled(both, both[1])
    assert both.tolist() == [[2, 3], [2, 3]]
