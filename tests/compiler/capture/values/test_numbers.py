"""Python numbers out of tensors, tensors in the place of numbers, numpy scalars and arrays."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import tc
from tc import trace


def check(fn, *args, fullgraph=True, **options):
    """Compare a compiled call with the eager one: results with their types, and arguments."""
    tc.reset()
    twins = copy.deepcopy(args)
    found = tc.compile(fn, backend="eager", fullgraph=fullgraph, **options)(*args)
    expected = fn(*twins)
    assert kinds(found) == kinds(expected)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(args, twins)


def kinds(obj):
    if isinstance(obj, list | tuple):
        return [type(obj), *map(kinds, obj)]
    return type(obj), getattr(obj, "dtype", None)


def x():
    return torch.linspace(-1, 1, 4)


# -- numbers out of tensors ----------------------------------------------------------------------
@pytest.mark.parametrize(
    "tensor",
    [torch.tensor(42), torch.tensor([2, 1]), torch.arange(12).view(2, 3, 2), torch.zeros(0).int()],
    ids=lambda t: str(tuple(t.shape)),
)
def test_lists_of_integers_at_any_rank(tensor):
    check(lambda t: [t.tolist(), [t.tolist()]], tensor)


def test_lists_of_integers_hold_symbols_not_constants():
    graphs = []
    f = tc.compile(
        lambda t: [i * 4 for i in t.tolist()],
        backend=lambda gm, inputs: graphs.append(gm) or gm.forward,
        fullgraph=True,
    )
    assert f(torch.tensor([2, 1])) == [8, 4]
    assert f(torch.tensor([7, 9])) == [28, 36]
    assert len(graphs) == 1


def test_lists_of_floats_need_the_setting_or_fullgraph():
    def f(t):
        return [i + 1 for i in t.tolist()]

    given = torch.tensor([1.5, 2.5])
    check(f, given)
    for setting in (False, True):
        tc.reset()
        with tc.config.patch(capture_scalar_outputs=setting):
            assert tc.compile(f, backend="eager")(given) == f(given)
            assert tc.compiler.api.graph_stats()["graph_breaks"] == (0 if setting else 1)


def test_fullgraph_captures_what_depends_on_data():
    def f(t):
        return t[t > 0], torch.nonzero(t), t.sum().item() * torch.ones(2)

    given = torch.tensor([1.5, 0.0, 2.5])
    compiled = tc.compile(f, backend="eager", fullgraph=True)
    for one in (given, given[:2], given * 0):
        torch.testing.assert_close(compiled(one), f(one))


def test_tensors_made_of_constants_are_known():
    def f(t):
        one = torch.tensor(1)
        rest = torch.tensor([1, 2]).tolist()
        picked = [t, t + 1, t + 2][torch.as_tensor(2)]
        if torch.tensor([True]):
            picked = picked * rest[1]
        return picked + int(one) + float(torch.tensor(2.5)) + one.item()

    check(f, x())


def test_what_was_written_to_is_no_longer_known():
    def f(t):
        n = torch.tensor(1)
        n.add_(1)
        return t * 2 if n > 1 else t * 3

    check(f, x(), fullgraph=False)

    def g(t):
        n = torch.tensor(1)
        n.fill_(t.sum() > 5)
        return t + n

    check(g, x())


def test_a_condition_on_an_unknown_size_is_the_users_error():
    def f(t):
        n = t.item()
        torch._check(n >= 0)
        return torch.zeros(2) if n == 0 else torch.arange(0, n)

    with tc.config.patch(capture_scalar_outputs=True):
        with pytest.raises(tc.exc.UserError):
            check(f, torch.tensor(3))
        check(f, torch.tensor(3), fullgraph=False)


def test_an_assumption_on_a_number_of_several_steps_is_checked():
    def f(t, mean):
        mean = 0.9 * mean + 0.1 * t.square().mean().item()
        return t / (mean + 1e-3) ** 0.5, mean

    with tc.config.patch(capture_scalar_outputs=True):
        check(f, x(), 0.1)


# -- tensors in the place of numbers -------------------------------------------------------------
@pytest.mark.sample(4)
@pytest.mark.parametrize("name", ["addcmul", "addcdiv", "addcmul_", "addcdiv_"])
@pytest.mark.parametrize("factor", [torch.tensor(0.3), 2, None], ids=["tensor", "number", "none"])
def test_factors(name, factor):
    def method(a, b, c, value):
        named = {} if value is None else {"value": value}
        return getattr(a, name)(b, c, **named)

    def function(a, b, c, value):
        named = {} if value is None else {"value": value}
        return getattr(torch, name)(a, b, c, **named)

    args = x(), x() + 3, x() + 4, factor
    check(method, *args)
    if not name.endswith("_"):
        check(function, *args)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", ["add", "sub", "add_", "sub_"])
@pytest.mark.parametrize("alpha", [torch.tensor(-0.3), torch.tensor(2), 0.5], ids=str)
def test_alpha(name, alpha):
    check(lambda a, b, n: getattr(a, name)(b, alpha=n), x(), x() + 3, alpha)
    check(lambda a, b, n: getattr(a, name)(other=b, alpha=n), x(), x() + 3, alpha)
    if not name.endswith("_"):
        check(lambda a, b, n: getattr(torch, name)(a, b, alpha=n), x(), x() + 3, alpha)


@pytest.mark.parametrize(
    ("other", "alpha"),
    [
        (torch.arange(4), torch.tensor(0.5)),  # no float for integers
        (torch.ones(4), torch.tensor([0.5])),  # no number
        (torch.ones(4), torch.tensor(0.5, requires_grad=True)),
    ],
)
def test_an_alpha_that_torch_refuses(other, alpha):
    def f(a, b, n):
        return a.add(b, alpha=n)

    try:
        f(torch.arange(4), other, alpha)
    except (RuntimeError, TypeError) as error:
        with pytest.raises(type(error)):
            tc.compile(f)(torch.arange(4), other, alpha)
    else:
        check(f, torch.arange(4), other, alpha, fullgraph=False)


@pytest.mark.sample(2)
@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop])
def test_a_learning_rate_that_is_a_tensor_breaks_no_graph(make):
    def steps(compiled):
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 2)
        opt = make(net.parameters(), lr=torch.tensor(0.1))
        step = tc.compile(opt.step) if compiled else opt.step
        for n in range(3):
            net(torch.ones(2, 3) + n).square().sum().backward()
            step()
            opt.param_groups[0]["lr"].fill_(0.1 / (n + 2))
        return [p.detach() for p in net.parameters()]

    expected = steps(False)
    with trace.capture_events() as events:
        found = steps(True)
    torch.testing.assert_close(found, expected)
    assert {one.code for one in events.of(trace.GraphBreak)} <= {"TC116"}
    assert not events.of(trace.Recompile)


def test_foreach_with_a_tensor_for_a_number():
    def lerp(a, b, weight):
        torch._foreach_lerp_(a, b, weight)
        return a

    check(lerp, [x(), x()], [x() + 1, x() + 2], torch.tensor(0.5))
    check(lerp, [x(), x()], [x() + 1, x() + 2], 0.5)
    check(torch._foreach_pow, torch.tensor(0.8), [torch.tensor(3.4), torch.tensor(7.8)])
    check(lambda a: torch._foreach_pow(a, 2), [x(), x()])


@pytest.mark.parametrize("name", ["addcmul", "addcdiv", "addcmul_", "addcdiv_"])
def test_foreach_with_numbers_that_are_tensors_while_code_is_compiled(name):
    def scaled(a, b, c, step):
        number = step if torch.compiler.is_compiling() else step.item()
        result = getattr(torch, f"_foreach_{name}")(a, b, c, [0.3 / (number + 1), number * 2])
        return list(a if name.endswith("_") else result)

    check(scaled, [x(), x()], [x() + 1, x() + 2], [x() + 3, x() + 4], torch.tensor(2.0))
    each = getattr(torch, f"_foreach_{name}")
    check(lambda a, b: list(each(a, b, b, [0.5, 2.0]) or a), [x(), x()], [x() + 3, x() + 4])


@pytest.mark.parametrize(
    "items",
    [
        [torch.tensor(20)],
        [[torch.tensor(20), 1], [2, torch.tensor(2.5, dtype=torch.float64)]],
        [torch.tensor(False), True],
        [torch.tensor(1.5), 2],
        [torch.tensor(2, dtype=torch.int8), True],
    ],
    ids=str,
)
def test_tensors_of_lists_of_tensors(items):
    check(lambda items: torch.tensor(items), items)
    check(lambda items: torch.tensor(items, dtype=torch.float32), items)


def test_a_tensor_of_tensors_has_no_gradient_and_its_own_memory():
    def f(t):
        made = torch.tensor([t.sum(), 1.0])
        made.add_(1)
        return made, t * 2

    p = x().requires_grad_()
    made, _ = tc.compile(f, backend="eager", fullgraph=True)(p)
    assert not made.requires_grad


# -- numpy ---------------------------------------------------------------------------------------
def test_scalars_made_of_constants_are_numbers_to_torch_and_typed_to_numpy():
    check(lambda t: t.reshape(np.int_(2), -1) * np.float64(2), x())
    check(lambda t: (t + 1, np.float64(2) * np.float32(3), np.float32(1) / 3), x())
    check(lambda a: a * np.float64(2), np.ones(3, dtype=np.float32))
    check(lambda a: a * 2.0, np.ones(3, dtype=np.float32))
    check(lambda t: t + 1 if np.float32(2) > 1 else t, x())
    check(lambda t: t + np.float32(2.5).item() + int(np.int8(3)), x())


def test_limits_of_types():
    check(lambda t: t + np.finfo(np.float32).max + np.finfo("float64").eps, x())
    check(lambda t: t + np.iinfo(np.int16).max, x())
    check(lambda t, n: np.issubdtype(type(n), np.integer) + t, x(), 4)


def test_arrays_of_arrays():
    check(lambda a, b: np.array([a, b]), np.arange(3), np.arange(3) + 1)
    check(lambda a, b: np.array([[a, b], [b, a]]), np.float64(1), np.float64(2))
    mixed = np.ones(1, dtype=np.float32), np.ones(1, dtype=np.int32)
    check(lambda a, b: np.array([a, b]), *mixed, fullgraph=False)  # numpy says float64


def test_results_into_given_arrays():
    def f(a, out):
        found = np.sin(a, out=out)
        assert found is out
        return found + 1

    check(f, np.ones(3), np.zeros(3))

    def g(t):
        out = np.empty((5, 5))
        assert np.cos(np.arange(5), out=out) is out
        return out + t.numpy().sum()

    check(g, x())


def test_arrays_to_lists_and_from_tensors():
    check(lambda a: a.tolist(), np.arange(5))
    check(lambda t: t.numpy().size, x())
    check(lambda t: t.numpy(force=True), x())
    check(lambda t: t.numpy(force=True), torch.view_as_complex(torch.ones(2, 2)).conj())

    def shared(t):
        array = t.numpy()
        array += 1
        return t * 2

    check(shared, x())
    p = x().requires_grad_()
    forced = tc.compile(lambda t: t.numpy(force=True), backend="eager", fullgraph=True)(p)
    assert (forced == p.detach().numpy()).all()
    with pytest.raises(RuntimeError, match="requires grad"):
        tc.compile(lambda t: t.numpy(), backend="eager")(p)


# -- states of torch -----------------------------------------------------------------------------
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_determinism_changes_where_the_program_says(backend):
    seen = []

    @tc.allow_in_graph
    def look():
        seen.append(torch.are_deterministic_algorithms_enabled())

    def f(t):
        look()
        torch.use_deterministic_algorithms(False)
        look()
        return t + 1, torch.are_deterministic_algorithms_enabled()

    compiled = tc.compile(f, backend=backend, fullgraph=True)
    try:
        for _ in range(2):
            torch.use_deterministic_algorithms(True, warn_only=True)
            del seen[:]
            _, after = compiled(x())
            assert seen[-2:] == [True, False] and not after
            assert not torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


# -- what graphs take for granted of data --------------------------------------------------------
def split(t, sizes):
    first, second = t.split(sizes.tolist())
    return first.sum() + second.sum()


def fixed(t, n):
    k = n.item()
    torch._check(k == 3)
    return t + k


def found(t):
    places = torch.nonzero(t)
    torch._check(places.shape[0] == 3)
    return places + 1


def rows(t, n):
    k = n.item()
    return t.view(k, -1) + 1, torch.zeros(k)


@pytest.mark.sample(4)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize(
    ("fn", "good", "bad"),
    [
        (split, (x(), torch.tensor([3, 1])), (x(), torch.tensor([3, 2]))),
        (fixed, (x(), torch.tensor([3])), (x(), torch.tensor([4]))),
        (found, (torch.tensor([1, 0, 2, 3]),), (torch.tensor([1, 0, 0, 3]),)),
        (rows, (x(), torch.tensor(2)), (x(), torch.tensor(3))),
    ],
    ids=["split", "fixed", "found", "rows"],
)
def test_what_is_taken_for_granted_of_data_is_checked(fn, good, bad, backend):
    tc.reset()
    settings = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
    with tc.config.patch(settings):
        compiled = tc.compile(fn, backend=backend, fullgraph=True)
        torch.testing.assert_close(compiled(*good), fn(*good))
        with pytest.raises(RuntimeError):
            compiled(*bad)


def test_conditions_decided_without_a_guard():
    from torch.fx.experimental.symbolic_shapes import guard_or_false, statically_known_true

    def f(t):
        if guard_or_false(t.shape[0] == 4) and statically_known_true(t.shape[0] > 0):
            return t + 1
        return t + 2

    check(f, x())

    def g(n):
        k = n.item()
        return torch.ones(2) if guard_or_false(k == 3) else torch.zeros(2)

    with tc.config.patch(capture_scalar_outputs=True):
        compiled = tc.compile(g, backend="eager", fullgraph=True)
        assert not compiled(torch.tensor(3)).any()  # not known while tracing


def test_shapes_and_strides_of_arrays():
    check(lambda t: (t.numpy().strides, t.numpy().nbytes, t.numpy().shape), torch.ones(2, 3))
    check(lambda t: t.numpy().flags.writeable, torch.ones(2), fullgraph=False)
    check(lambda t: t.new(torch.ones(2, 3).size()).shape, x())
