"""Every name of torch.compiler in traced code: results and gradients of eager, in one graph."""

from __future__ import annotations

from operator import attrgetter

import numpy as np
import pytest
import torch
from torch._higher_order_ops import InvokeQuant, foreach_map

import tc

BREAKS = tc.exc.Unsupported


@torch.compiler.nested_compile_region
def region(x, scale=1.0):
    return x.sin() * scale


@torch.compiler.nested_compile_region(max_reuse_entries=2)
def region_of_regions(x, *rest, **named):
    return region(x, **named) + sum(rest)


class Region(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    @torch.compiler.nested_compile_region
    def forward(self, x):
        return self.linear(x)


@torch.compiler.wrap_numpy
def squares(a, power=2):
    return np.sum(a**power)


@torch.compiler.allow_in_graph
def whole(x):
    return x.cos() + x


@torch.compiler.assume_constant_result
def five():
    return 5


@torch.compiler.disable
def disabled(x):
    return x.sin()


@torch.compiler.disable(recursive=False)
def disabled_alone(x):
    return x.sin()


def answers_of_torch(x):
    known = torch.compiler.is_compiling(), torch.compiler.is_dynamo_compiling()
    return x * 2 if all(known) and not torch.compiler.is_exporting() else x * 3


def after(call):
    """Return a function that calls another one, whose result it does not use, and computes."""

    def f(x):
        call()
        return x.sin()

    return f


module = Region()
torch_module = torch.compile(torch.nn.Linear(4, 4), backend="eager")
torch_function = torch.compile(lambda y: y.sin() * 3, backend="eager", fullgraph=True)
quant = InvokeQuant()

#: name -> (a function, whether torch breaks its graph)
NAMES = {
    "nested_compile_region": (lambda x: region(x, scale=3.0) + region(x), False),
    "nested_compile_region, nested": (lambda x: region_of_regions(region(x), 1, scale=2), False),
    "nested_compile_region, itself": (region, False),
    "nested_compile_region, made inside": (
        lambda x: torch.compiler.nested_compile_region(lambda y: y.sin())(x), False
    ),
    "nested_compile_region, a method": (lambda x: module(x) + 1, False),
    "compile": (lambda x: torch_function(x) + 1, False),
    "compile, a module": (lambda x: torch_module(x) + 1, False),
    "compile, made inside": (lambda x: torch.compile(lambda y: y.cos())(x), False),
    "compile, as a decorator inside": (
        lambda x: torch.compile(backend="eager")(lambda y: y.cos())(x), False
    ),
    "compiler.compile, made inside": (lambda x: torch.compiler.compile(region)(x), False),
    "tc.compile, made inside": (lambda x: tc.compile(region)(x), False),
    "allow_in_graph": (lambda x: whole(x) + 1, False),
    "assume_constant_result": (lambda x: x + five(), False),
    "disable": (lambda x: disabled(x) + 1, True),
    "disable(recursive=False)": (lambda x: disabled_alone(x) + 1, True),
    "list_backends": (after(lambda: torch.compiler.list_backends()), True),
    "get_default_backend": (after(lambda: torch.compiler.get_default_backend()), True),
    "set_default_backend": (after(lambda: torch.compiler.set_default_backend("inductor")), True),
    "reset": (after(lambda: torch.compiler.reset()), True),
    "foreach_map": (lambda x: foreach_map(torch.add, [x, x * 2], 3)[1], False),
    "invoke_quant": (lambda x: quant(lambda y: y.sin(), x), False),
    "print": (after(lambda: torch._higher_order_ops.print("a {}", 3)), False),
}  # fmt: skip
#: what eager has no answer to, or another one -> the answer of compiled code
IN_EAGER = {
    "foreach_map": lambda x: x * 2 + 3,
    "compile, made inside": torch.cos,
    "compile, as a decorator inside": torch.cos,
    "compiler.compile, made inside": torch.sin,
    "tc.compile, made inside": torch.sin,
}
#: names that are asked or set around compiled code, or that `test_like_torch` and others hold
AROUND = {
    "config", "load_compiled_function", "set_enable_guard_collectives", "save_cache_artifacts",
    "load_cache_artifacts", "precompile", "PrecompileError",
}  # fmt: skip
ELSEWHERE = {"is_compiling", "is_dynamo_compiling", "is_exporting", "wrap_numpy", "set_stance",
             "substitute_in_graph", "cudagraph_mark_step_begin", "nonstrict_trace",
             "cudagraph_mark_warmup_incomplete"}  # fmt: skip


def outcome(fn):
    x = torch.linspace(-1, 1, 4, requires_grad=True)
    result = fn(x)
    (gradient,) = torch.autograd.grad(result.sum(), x)
    return result, gradient


def test_every_name_is_held_against_torch():
    tested = {name.partition(",")[0].partition("(")[0] for name in NAMES}
    guards = {name for name in torch.compiler.__all__ if name.endswith("_unsafe")}
    assert set(torch.compiler.__all__) <= tested | AROUND | ELSEWHERE | guards


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", NAMES)
def test_results_and_gradients_in_one_graph(name):
    tc.reset()
    fn, breaks = NAMES[name]
    if breaks:
        with pytest.raises(BREAKS):
            tc.compile(fn, fullgraph=True)(torch.ones(4))
        tc.reset()
    compiled = tc.compile(fn, fullgraph=not breaks)
    torch.testing.assert_close(outcome(compiled), outcome(IN_EAGER.get(name, fn)))


def test_arrays_have_gradients_as_under_torch_compile():
    tc.reset()
    expected = outcome(lambda x: (x**4).sum())
    found = outcome(tc.compile(lambda x: squares(x, power=4), fullgraph=True))
    torch.testing.assert_close(found, expected, check_dtype=False)
    torch.testing.assert_close(
        outcome(tc.compile(squares, fullgraph=True)), outcome(lambda x: (x**2).sum())
    )
    with pytest.raises(RuntimeError, match="numpy"):
        outcome(squares)


def test_what_code_asks():
    tc.reset()
    x = torch.ones(2)
    assert torch.equal(tc.compile(answers_of_torch, fullgraph=True)(x), x * 2)
    assert torch.equal(answers_of_torch(x), x * 3)


@pytest.mark.parametrize("ask", [tc.is_compiling, tc.is_dynamo_compiling])
def test_code_under_torch_compile_is_compiled(ask):
    torch.compiler.reset()

    def f(x):
        return x * 2 if ask() else x * 3

    x = torch.ones(2)
    assert torch.equal(f(x), x * 3)
    assert torch.equal(tc.compile(f, fullgraph=True)(x), x * 2)
    assert torch.equal(torch.compile(f, backend="tc", fullgraph=True)(x), x * 2)


def test_a_decorator_that_copies_the_marks_of_torch_compile():
    import functools

    @functools.wraps(torch_function)
    def more(x):
        return torch_function(x) + 10

    compiled = tc.compile(lambda x: more(x), fullgraph=True)
    torch.testing.assert_close(outcome(compiled), outcome(more))


def test_another_compiled_function_is_another_function():
    functions = [torch.compile(torch_function), torch.compile(lambda y: y.cos())]
    compiled = tc.compile(lambda f, x: f(x), fullgraph=True)
    x = torch.ones(3)
    torch.testing.assert_close(compiled(functions[0], x), x.sin() * 3)
    torch.testing.assert_close(compiled(functions[1], x), x.cos())


def test_the_stance_of_torch_is_refused_in_compiled_code():
    tc.reset()

    @torch.compiler.set_stance("force_eager")
    def under_a_stance(x):
        return x.exp()

    with pytest.raises((RuntimeError, AssertionError)):
        torch.compile(lambda x: under_a_stance(x) + 1, backend="eager")(torch.ones(2))
    with pytest.raises(RuntimeError):
        tc.compile(lambda x: under_a_stance(x) + 1)(torch.ones(2))


error_on_graph_break_of_torch = attrgetter("_dynamo.error_on_graph_break")(torch)


def breaking(x):
    y = x + 1
    print(end="")
    return y * 2


def block(on):
    def in_block(x):
        with error_on_graph_break_of_torch(on):
            x = breaking(x)
        return x.sin()

    return in_block


def by_keyword(x):
    with error_on_graph_break_of_torch(error_on_graph_break=True):
        x = x.cos()
    return breaking(x)  # outside of the block


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: block(True), True),
        (lambda: block(False), False),
        (lambda: by_keyword, False),
        (lambda: error_on_graph_break_of_torch(True)(breaking), True),
        (lambda: error_on_graph_break_of_torch(False)(breaking), False),
    ],
    ids=["block", "allowed", "before", "decorator", "decorator that allows"],
)
@pytest.mark.parametrize("fullgraph", [True, False])
def test_graph_breaks_as_errors_by_the_name_of_torch(make, error, fullgraph):
    """`error_on_graph_break` of torch does what it does under `torch.compile`."""
    tc.reset()
    torch.compiler.reset()
    function, x = make(), torch.ones(3)
    for compiled, refusal in (
        (tc.compile(function, fullgraph=fullgraph), BREAKS),
        (torch.compile(function, fullgraph=fullgraph, backend="eager"), Exception),
    ):
        if error or fullgraph:
            with pytest.raises(refusal, match="print"):
                compiled(x)
        else:
            torch.testing.assert_close(compiled(x), function(x))
    # Nothing is left set for what is compiled after it.
    torch.testing.assert_close(tc.compile(lambda x: breaking(x) + 1)(x), breaking(x) + 1)


def test_a_block_of_torch_around_a_call_makes_graph_breaks_errors():
    tc.reset()
    with error_on_graph_break_of_torch(True), pytest.raises(BREAKS, match="print"):
        tc.compile(breaking)(torch.ones(3))
    tc.reset()
    with error_on_graph_break_of_torch(True), tc.error_on_graph_break(False):
        tc.compile(breaking)(torch.ones(3))


def test_a_block_of_torch_is_in_one_graph():
    def sines(x):
        with error_on_graph_break_of_torch(True):
            return x.sin() + 1

    x = torch.ones(3)
    torch.testing.assert_close(tc.compile(sines, fullgraph=True)(x), sines(x))


DECORATORS = attrgetter("_dynamo.decorators")(torch)


def in_block(make):
    def with_block(x):
        with make():
            x = x.sin() + 1
        return x * 2

    return with_block


def around(decorate):
    inner = decorate(lambda x: x.cos() + 1)
    return lambda x: inner(x) * 2


#: what changes how Dynamo traces, or how Inductor replays, and no result
WITHOUT_EFFECT = {
    "patch_dynamo_config": lambda: DECORATORS.patch_dynamo_config(capture_scalar_outputs=True),
    "override_cudagraphs": lambda: DECORATORS.override_cudagraphs(fwd=False),
    "dont_skip_tracing": lambda: DECORATORS.dont_skip_tracing(),
    "disable_nested_graph_breaks": lambda: DECORATORS.disable_nested_graph_breaks(),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", [name for name in WITHOUT_EFFECT if hasattr(DECORATORS, name)])
def test_decorators_of_dynamo_that_change_no_result(name):
    make, x = WITHOUT_EFFECT[name], torch.ones(3)
    programs = [in_block(make), around(make()), around(lambda function: make()(function))]
    if name in ("dont_skip_tracing", "disable_nested_graph_breaks"):
        programs.append(around(getattr(DECORATORS, name)))
        programs.append(lambda x: getattr(DECORATORS, name)(region)(x) + 1)
    for program in programs:
        torch.testing.assert_close(tc.compile(program, fullgraph=True)(x), program(x))

    def breaking_block(x):
        with make():
            x = breaking(x)
        return x.sin()

    torch.testing.assert_close(tc.compile(breaking_block)(x), breaking_block(x))
