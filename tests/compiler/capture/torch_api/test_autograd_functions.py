"""autograd.Function in traced code: instances, too few gradients, functions recorded whole."""

from __future__ import annotations

import enum
import math
import warnings

import pytest
import torch
from torch.autograd import forward_ad

import tc


class Mode(enum.Enum):
    SIN = 0
    COS = 1


class Saving(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        result = x + x
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, grad):
        (result,) = ctx.saved_tensors
        return grad * math.sqrt(result.numel())


class Choosing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mode):
        ctx.mode = mode
        return x.sin() if mode is Mode.SIN else x.cos()

    @staticmethod
    def backward(ctx, grad):
        return grad * (2 if ctx.mode is Mode.SIN else 3), None


class TooFew(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mode):
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        return grad


@tc.allow_in_graph
class Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        tc.graph_break()
        ctx.size = x.size(0)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.size


class Forward(torch.autograd.Function):
    """Saves for derivatives forward too, and asks whether it can."""

    @staticmethod
    def forward(x, k):
        return torch.round(x * k) / k

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.k = inputs[1] if hasattr(ctx, "save_for_forward") else None
        ctx.save_for_forward(output)
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0] * ctx.k, None


def saved_for_forward(x):
    return Forward.apply(x, 2)


def through_an_instance(x):
    return Saving().apply(x) + Saving.apply(x)


def with_an_enum(x):
    return Choosing.apply(x, Mode.SIN) + Choosing.apply(x, Mode.COS)


def recorded_whole(x):
    return Whole.apply(x) + 1


def too_few(x):
    return TooFew.apply(x, Mode.SIN)


@pytest.mark.sample(3)
@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize(
    "fn", [through_an_instance, with_an_enum, recorded_whole, saved_for_forward]
)
def test_values_and_gradients(fn, backend):
    x = torch.randn(3, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        want, got = fn(x), tc.compile(fn, backend=backend, fullgraph=True)(x)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(*(torch.autograd.grad(r.sum(), x) for r in (got, want)))


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_too_few_gradients_are_an_error_of_backward(backend):
    x = torch.randn(3, requires_grad=True)
    got = tc.compile(too_few, backend=backend, fullgraph=True)(x)
    torch.testing.assert_close(got, x.sin())
    errors = []
    for result in (too_few(x), got):
        with pytest.raises(RuntimeError, match="incorrect number of gradients") as error:
            result.sum().backward()
        errors.append(str(error.value))
    assert errors[0] == errors[1]


def test_a_function_recorded_whole_is_one_node():
    graphs = []
    fn = tc.compile(recorded_whole, backend=lambda gm, _: graphs.append(gm) or gm, fullgraph=True)
    for _ in range(2):
        tc.reset()
        fn(torch.randn(3, requires_grad=True))
    names = [[n.name for n in graph.graph.nodes if n.op == "call_function"] for graph in graphs]
    assert names == [["whole_apply", "add"]] * 2


class Reading(torch.autograd.Function):
    """Its forward does what depends on properties of what it is given."""

    @staticmethod
    def forward(ctx, *args):
        ctx.mark_non_differentiable(*[arg for arg in args if not arg.requires_grad])
        leaves = sum(arg.is_leaf for arg in args)
        return tuple(arg * (2 + leaves) for arg in args)

    @staticmethod
    def backward(ctx, *gradients):
        return gradients


@pytest.mark.parametrize("wants", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("leaf", [True, False])
def test_forward_sees_the_tensors_it_was_given(wants, leaf):
    def f(x, y):
        return Reading.apply(*(a if leaf else a.clone() for a in (x, y)))

    args = [torch.ones(3, requires_grad=wanted) for wanted in wants]
    for got, wanted in zip(tc.compile(f, fullgraph=True)(*args), f(*args), strict=True):
        torch.testing.assert_close(got, wanted)
        assert got.requires_grad == wanted.requires_grad


def test_nodes_of_a_graph_that_runs_as_it_was_captured_have_the_name_of_their_function():
    x = torch.ones(3, requires_grad=True)
    got = tc.compile(lambda x: Saving.apply(x), backend="eager")(x)
    assert got.grad_fn.name() == "SavingBackward"
    assert tc.compile(lambda x: Reading.apply(x)[0].grad_fn.name(), backend="eager")(x) == (
        "ReadingBackward"
    )


def test_a_hook_on_a_module_inside_of_a_captured_backward():
    linear = torch.nn.Linear(3, 3)
    linear.register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 9,))

    def f(x):
        y = x.clone().requires_grad_()
        linear(y).sum().backward()
        return y.grad

    def tried(g):
        try:
            return g()
        except ZeroDivisionError:
            return None

    x = torch.ones(1, 3)
    compiled = tc.compile(lambda: tried(lambda: f(x)), backend="eager")
    for _ in range(2):
        torch.testing.assert_close(compiled(), f(x))


#: forward, backward, further arguments: what is not a tensor has a gradient of None
RESULTS = (
    (lambda ctx, x: (x * 3, "text", 5), lambda ctx, g, *rest: g * len(rest), ()),
    (lambda ctx, x: (x * 3, None), lambda ctx, *gs: gs[0] * len(gs), ()),
    (lambda ctx, x, d: (x * 3, "s"), lambda ctx, *gs: (gs[0] * len(gs), None), ({"a": 3},)),
    (lambda ctx, x: (x * 3, None, x * 4), lambda ctx, a, b, c: a * 2 + c * 5 + (b is None), ()),
    (lambda ctx, x: (x * 3, (x, 2)), lambda ctx, a, b: a * 2 + (b is None), ()),
    (lambda ctx, x: (x * 3, [x]), lambda ctx, a, b: a * 2 + (b is None), ()),
    (lambda ctx, x: (x * 3, torch.arange(2)), lambda ctx, a, b: a * 2, ()),
    (lambda ctx, x: [x * 3, x * 2], lambda ctx, *gs: gs[0], ()),
)


@pytest.mark.sample(3)
@pytest.mark.parametrize("place", range(len(RESULTS)))
def test_backward_gets_a_gradient_of_each_result(place):
    forward, backward, more = RESULTS[place]
    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    function = type("Function", (torch.autograd.Function,), members)

    def program(x):
        return function.apply(x, *more)[0]

    found = []
    for call in (program, tc.compile(program, backend="eager"), tc.compile(program)):
        x = torch.ones(2, requires_grad=True)
        y = call(x)
        if y.requires_grad:
            y.sum().backward()
        found.append((y.tolist(), y.requires_grad, x.grad is not None and x.grad.tolist()))
    assert found[0] == found[1] == found[2]


class Unfilled(torch.autograd.Function):
    """Asks for None in place of gradients that are not there; a single one always is."""

    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        return None if grad is None else grad * 2 * ctx.saved_tensors[0]


class UnfilledPair(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, one, other):
        return (5 if one is None else one * 2) + (100 if other is None else other * 3)


@pytest.mark.sample(2)
@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize(("function", "whole"), [(Unfilled, True), (UnfilledPair, False)])
def test_gradients_that_are_not_there(function, whole, backend):
    def program(x):
        made = function.apply(x)
        return (made if whole else made[0]).sin().sum()

    x = torch.randn(4, requires_grad=True)
    compiled = tc.compile(program, fullgraph=whole, backend=backend)
    grads = [torch.autograd.grad(call(x), x)[0] for call in (program, compiled)]
    torch.testing.assert_close(*grads)


class OwnRules(torch.autograd.Function):
    """A function whose rules for tangents and batches are other than its methods'."""

    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.cos()

    @staticmethod
    def jvp(ctx, tangent):
        (x,) = ctx.saved_tensors
        return tangent * x.cos() * 5

    @staticmethod
    def vmap(info, in_dims, x):
        return x * 100, 0


class NoRules(OwnRules):
    jvp = torch.autograd.Function.jvp
    vmap = torch.autograd.Function.vmap


class RuleOfMethods(NoRules):
    generate_vmap_rule = True


def with_levels(function, x):
    with forward_ad.dual_level():
        made = function.apply(forward_ad.make_dual(x, x * 2))
        return forward_ad.unpack_dual(made).tangent


TRANSFORMED = {
    "jvp": lambda function, x: torch.func.jvp(function.apply, (x,), (x,)),
    "jacfwd": lambda function, x: torch.func.jacfwd(function.apply)(x),
    "dual_level": with_levels,
    "vmap": lambda function, x: torch.vmap(function.apply)(x),
    "vmap_of_a_closure": lambda function, x: torch.vmap(lambda y: function.apply(x) + y)(x),
    "vmap_of_jvp": lambda function, x: torch.vmap(
        lambda y: torch.func.jvp(function.apply, (y,), (y,))
    )(x),
    "grad": lambda function, x: torch.func.grad(lambda y: function.apply(y).sum())(x),
    "no_tangent": lambda function, x: torch.func.jvp(lambda y: y + function.apply(x), (x,), (x,)),
}


@pytest.mark.sample(8)
@pytest.mark.parametrize("wants", [False, True])
@pytest.mark.parametrize("transform", TRANSFORMED)
@pytest.mark.parametrize("function", [OwnRules, NoRules, RuleOfMethods])
def test_rules_of_a_function_under_transforms(function, transform, wants):
    def program(x):
        return TRANSFORMED[transform](function, x)

    def result(call):
        try:
            return call(torch.linspace(0, 1, 3, requires_grad=wants))
        except (RuntimeError, NotImplementedError) as error:
            return type(error)

    for _ in range(2):  # the second call begins outside of all levels, too
        found, expected = result(tc.compile(program, backend="eager")), result(program)
        if isinstance(expected, type):
            assert found is expected
        else:
            torch.testing.assert_close(found, expected)


class Through(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.exp(), x

    @staticmethod
    def backward(ctx, grad, other):
        return grad + other


@pytest.mark.parametrize("wants", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_an_argument_that_forward_returns(grad, wants):
    def program(x):
        with torch.set_grad_enabled(grad):
            through = Through.apply(x)[1]
        return through, through is x, through._is_view()

    x = torch.ones(2, requires_grad=wants)
    (made, *found), (other, *expected) = tc.compile(program, backend="eager")(x), program(x)
    assert found == expected
    assert made.requires_grad == other.requires_grad
    assert made.data_ptr() == x.data_ptr()


def size_of_argument(x):
    return x.sum(), x.shape[0]


def size_of_its_own(x):
    return torch.cat([x, x, x[:1]]).shape[0] * 2, x.exp()


def sizes_in_a_nest(x):
    return x.sin(), x.shape, [x.shape[0] + 1], None


def number_between_tensors(x):
    return x.sin(), len(x), x.sum()


@pytest.mark.sample(5)
@pytest.mark.parametrize("wants", [False, True])
@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize(
    "forward", [size_of_argument, size_of_its_own, sizes_in_a_nest, number_between_tensors]
)
def test_sizes_that_forward_returns_may_be_dynamic(forward, backend, wants):
    class Sized(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, *grads):
            tensors = [grad for grad in grads if grad is not None]
            return ctx.saved_tensors[0] * sum(grad.sum() for grad in tensors) * len(grads)

    def program(x):
        first, second = Sized.apply(x), Sized.apply(x * 2)
        sizes = [item for item in first if isinstance(item, int)]
        return first, second, x * sum(sizes)

    tc.reset()
    compiled = tc.compile(program, backend=backend, fullgraph=True)
    for length in (3, 5, 6):
        results = []
        for call in (compiled, program):
            x = torch.linspace(0, 1, length, requires_grad=wants)
            made = call(x)
            if wants:
                tensors = [i for one in made[:2] for i in one if isinstance(i, torch.Tensor)]
                sum(tensor.sum() for tensor in [*tensors, made[2]]).backward()
            results.append((made, x.grad))
        torch.testing.assert_close(*results)


def _mixed(casts: torch.dtype | None, inside: str) -> type[torch.autograd.Function]:
    """Return a function under `torch.amp.custom_fwd` whose methods set autocast themselves."""

    class Mixed(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu", cast_inputs=casts)
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            if inside == "left on":
                torch.set_autocast_enabled("cpu", True)
                return a @ b
            with torch.autocast("cpu", torch.bfloat16, enabled=inside == "on"):
                return a.relu() @ b

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            return g @ b.t().to(g.dtype), a.t().to(g.dtype) @ g

    return Mixed


@pytest.mark.sample(3)
@pytest.mark.parametrize("inside", ["on", "off", "left on"])
@pytest.mark.parametrize("casts", [None, torch.float32])
@pytest.mark.parametrize("around", [False, True])
def test_bodies_may_set_autocast_if_they_set_it_back(around, casts, inside):
    function = _mixed(casts, inside)

    def program(a, b):
        with torch.autocast("cpu", torch.bfloat16, enabled=around):
            return function.apply(a.sin(), b) * 2, a @ b

    found = []
    tc.reset()
    with tc.trace.capture_events() as events:
        for run in (program, tc.compile(program)):
            torch.manual_seed(0)
            leaves = [torch.randn(n, m, requires_grad=True) for n, m in ((2, 3), (3, 2))]
            results = run(*leaves)
            sum(r.float().square().sum() for r in results).backward()
            found.append([*results, *(leaf.grad for leaf in leaves)])
            found.append(torch.is_autocast_enabled("cpu"))
            torch.set_autocast_enabled("cpu", False)
    assert found[1] == found[3]
    for wanted, got in zip(found[0], found[2], strict=True):
        assert wanted.dtype == got.dtype
        torch.testing.assert_close(got, wanted, rtol=2e-2, atol=2e-2)
    assert bool(events.of(tc.trace.GraphBreak)) == (inside == "left on" and not around)
