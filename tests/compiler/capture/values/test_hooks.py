"""Hooks and gradients that traced code sets; functions and objects that are recorded whole."""

from __future__ import annotations

import pytest
import torch

import tc
from tc.compiler.frontend.modules import OptimizedModule


def leaf(n=3):
    return torch.ones(n, requires_grad=True)


def removed(x, y):
    handle = x.register_hook(lambda g: g * 2)
    kept = x.register_hook(lambda g: g * 3)
    handle.remove()
    handle.remove()
    return x, y * y, handle, handle, kept


def test_a_removed_hook_stays_removed_when_its_handle_is_returned():
    x = leaf()
    out, _, first, second, kept = tc.compile(removed, backend="eager", fullgraph=True)(x, leaf())
    assert first is second
    out.backward(torch.ones(3))
    assert torch.equal(x.grad, torch.full((3,), 3.0))
    kept.remove()
    x.grad = None
    (x * 1).sum().backward()
    assert torch.equal(x.grad, torch.ones(3))


def storing(x, y):
    x.grad = None
    empty = x.grad is None
    x.grad = y.detach() * 2
    x.note = 3
    return empty, x.grad + 1, x.note


def storing_before_a_break(x, y):
    x.grad = y.detach() * 2
    tc.graph_break()
    return x.grad + 1


def storing_the_wrong_shape(x, y):
    x.grad = torch.cat([y, y]).detach()
    return y + 1


@pytest.mark.parametrize("fn", [storing, storing_before_a_break])
def test_stores_to_grad(fn):
    a, b = leaf(), leaf()
    want = fn(a, b)
    x, y = leaf(), leaf()
    x.grad = torch.zeros(3)
    torch.testing.assert_close(tc.compile(fn, backend="eager")(x, y), want)
    torch.testing.assert_close(x.grad, a.grad)
    assert getattr(x, "note", None) == getattr(a, "note", None)


def test_a_gradient_that_does_not_fit_is_an_error():
    x, y = leaf(), leaf()
    with pytest.raises(RuntimeError):
        tc.compile(storing_the_wrong_shape, backend="eager")(x, y)


# -- what is recorded whole ------------------------------------------------------------------
class EngineOp:
    """Like the operations of torch's compiled autograd: an object that looks at requires_grad."""

    __name__ = "engine_op"

    def __init__(self):
        self.__module__ = "torch._dynamo.compiled_autograd.ops"

    def __call__(self, x):
        return [x.detach() * 2 if x.requires_grad else None]


engine_op = tc.allow_in_graph(EngineOp())


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_an_object_can_be_recorded_whole(backend):
    def store(x):
        x.grad = engine_op(x)[0]

    x = leaf()
    with torch.no_grad():
        tc.compile(store, backend=backend, fullgraph=True)(x)
    assert torch.equal(x.grad, torch.full((3,), 2.0))


def test_torchs_annotations_of_a_function_hold():
    def note(x):
        return x * 2

    torch.compiler.allow_in_graph(note)
    calls = []
    fn = tc.compile(lambda x: note(x) + 1, backend=lambda gm, _: calls.append(gm) or gm)
    x = torch.ones(3)
    torch.testing.assert_close(fn(x), x * 2 + 1)
    assert note in [node.target for node in calls[0].graph.nodes]


def test_a_compiled_module_may_be_made_from_any_compiler():
    module = torch.nn.Linear(2, 2)
    made = OptimizedModule(module, lambda call: lambda *args: call(*args) + 1)
    x = torch.ones(2)
    torch.testing.assert_close(made(x), module(x) + 1)


def written_to(x):
    y = x * 2
    y.register_hook(lambda g: g * 3 + 1)
    y.mul_(5)
    return y


def view_written_to_by_its_base(x):
    y = x * 2
    v = y[1:]
    v.register_hook(lambda g: g * 3 + 1)
    y.mul_(5)
    return y, v


def base_written_to_by_a_view(x):
    y = x * 2
    v = y[1:]
    y.register_hook(lambda g: g * 3 + 1)
    v.mul_(5)
    return y, v


def removed_after_a_write(x):
    y = x * 2
    handle = y.register_hook(lambda g: g * 3 + 1)
    y.mul_(5)
    handle.remove()
    y.register_hook(lambda g: g + 7)
    return y * y


def input_written_to(x):
    z = x * 1
    tc.graph_break()
    z.register_hook(lambda g: g * 3 + 1)
    z.mul_(5)
    return z + 1


def detached_in_place(x):
    y = x * 2
    y.register_hook(lambda g: g * 3 + 1)
    z = y + 1
    y.detach_()
    return z * 2 + y


def written_to_before(x):
    y = x * 2
    y.mul_(5)
    y.register_hook(lambda g: g * 3 + 1)
    return y


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize(
    "program",
    [
        *(written_to, view_written_to_by_its_base, base_written_to_by_a_view),
        *(removed_after_a_write, input_written_to, written_to_before, detached_in_place),
    ],
)
def test_a_hook_is_on_the_value_that_it_was_registered_for(program, backend):
    def gradient(function):
        x = leaf()
        made = function(x)
        for n, one in enumerate(made if isinstance(made, tuple) else (made,)):
            (one * (n + 2)).sum().backward(retain_graph=True)
        return x.grad

    tc.reset()
    assert torch.equal(gradient(tc.compile(program, backend=backend)), gradient(program))


def replaced(x):
    z = x * 3
    old = z.register_hook(lambda g: g * 5)
    tc.graph_break()
    old.remove()
    z.register_hook(lambda g: g * 2)
    return z


def replaced_in_another_order(x):
    z = x * 3
    old = z.register_hook(lambda g: g * 5)
    tc.graph_break()
    z.register_hook(lambda g: g * 2)
    old.remove()
    return z


def replaced_on_the_input(x):
    first = x.register_hook(lambda g: g * 5)
    tc.graph_break()
    second = x.register_hook(lambda g: g * 2)
    first.remove()
    x.register_hook(lambda g: g * 7)
    tc.graph_break()
    second.remove()
    return x * 3


@pytest.mark.parametrize("program", [replaced, replaced_in_another_order, replaced_on_the_input])
def test_a_hook_stays_where_an_older_one_is_removed(program):
    found = []
    for run in (program, tc.compile(program, backend="eager")):
        x = leaf()
        for _ in range(2):
            run(x).sum().backward()
            found.append(x.grad.tolist())
            x.grad = None
    assert found[:2] == found[2:]


class Failing(torch.nn.Module):
    def forward(self, x):
        if x.dim() > 1:
            raise RuntimeError("two dimensions")
        return x + 1


@pytest.mark.parametrize("of_all", [False, True])
def test_hooks_that_are_always_called(of_all):
    def run(compile):
        log = []
        module = Failing()
        register = torch.nn.modules.module.register_module_forward_hook
        register = register if of_all else module.register_forward_hook
        handles = [
            register(lambda m, i, o: log.append(o is None), always_call=True),
            register(lambda m, i, o: log.append("second")),
        ]

        def program(x):
            try:
                return module(x)
            except RuntimeError as error:
                log.append(str(error))
                return x

        compiled = compile(program)
        try:
            results = [compiled(torch.ones(n)).tolist() for n in ((2,), (2, 2), (3,), (1, 1))]
        finally:
            for handle in handles:
                handle.remove()
        return results, log

    assert run(lambda f: tc.compile(f, backend="eager")) == run(lambda f: f)
