"""What cannot be proven right is refused with a reason, when tracing or when called."""

from __future__ import annotations

import pytest
import torch
from aot_harness import captured, check, interpreted, trace
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

import tc
from tc.compiler import aot
from tc.compiler.aot.inference import inference
from tc.compiler.aot.wrap import overlap
from tc.compiler.core.gate import Gate


def refused(function, *args):
    with torch.no_grad(), pytest.raises(aot.Fallback) as caught:
        trace(function, args)
    assert str(caught.value) == f"This graph runs uncompiled, because {caught.value.reason}."
    return caught.value.reason


M = torch.arange(16.0).view(4, 4)


def test_resized_input():
    assert "in place" in refused(lambda x: x.resize_(2, 2) + 1, M.clone())


def test_opaque_method():
    gm = fx.symbolic_trace(lambda x: x.requires_grad_() * 2)
    with pytest.raises(aot.Fallback, match=r"calls \.requires_grad_\(\)"):
        inference(gm, [FakeTensorMode().from_tensor(M)], Gate())


def test_transposed_input():
    assert "in place" in refused(lambda x: x.t_() + 1, M.clone())


def test_data_dependent_size():
    assert "tensor's values" in refused(lambda x: x.nonzero(), M)
    assert "tensor's values" in refused(lambda x: x[x > 2], M)


def test_data_dependent_number():
    assert "tensor's values" in refused(lambda x: x * x.sum().item(), M)


def test_draws_into_memory_that_is_not_contiguous():
    assert "not contiguous" in refused(lambda x: torch.empty_like(x.t()).uniform_() + x, M)


def test_sparse_tensors():
    assert "sparse_coo" in refused(lambda x: x.to_sparse(), M)


def test_view_as_another_type():
    assert "another type" in refused(lambda x: x.view(torch.int32), M)


def test_own_generator():
    graph = fx.Graph()
    generator = graph.get_attr("generator")
    graph.output((graph.call_function(torch.rand, (4,), {"generator": generator}),))
    gm = fx.GraphModule({"generator": torch.Generator()}, graph)
    with pytest.raises(aot.Fallback, match="random generator"):
        inference(gm, [], Gate())


def test_inputs_known_to_share_memory():
    mode = FakeTensorMode()
    x = mode.from_tensor(M)
    gm = captured(lambda a, b: (a.add_(1), b * 2), (M, M.clone()))
    with torch.no_grad(), mode:
        row = x[0]
    with torch.no_grad(), pytest.raises(aot.Fallback, match="share memory"):
        inference(gm, [x, row.expand(4, 4)], Gate())
    with torch.no_grad(), pytest.raises(aot.Fallback, match="share memory"):
        inference(gm, [x, x], Gate())


def test_real_tensors_are_no_examples():
    gm = captured(lambda a: a + 1, (M,))
    with pytest.raises(aot.Fallback, match="not a plain tensor"):
        inference(gm, [M], Gate())


def test_mutated_inputs_that_share_memory_when_called():
    def function(a, b):
        a.add_(1)
        return b * 2

    with torch.no_grad():
        graph = trace(function, (M, M.clone()))
        run = aot.wrap(graph, interpreted(graph))
        for pick in (
            lambda x: (x, x),
            lambda x: (x, x.t()),
            lambda x: (x, x.view(-1).flip(0).view(4, 4)),
        ):
            got, eager = M.clone(), M.clone()
            (result,) = run(*pick(got))
            assert torch.equal(result, function(*pick(eager))) and torch.equal(got, eager)


@pytest.mark.parametrize(
    ("written", "others", "expected"),
    [
        (lambda x: (x[:2],), lambda x: (x[2:],), False),
        (lambda x: (x[:3],), lambda x: (x[2:],), True),
        (lambda x: (x[2:],), lambda x: (x[:3],), True),
        (lambda x: (x[1:2],), lambda x: (x,), True),
        (lambda x: (x,), lambda x: (x[1:2],), True),
        (lambda x: (x[0], x[1]), lambda x: (x[2], x[2:]), False),
        (lambda x: (x[0], x[0]), lambda x: (), True),
        (lambda x: (x[:, 0],), lambda x: (x[:, 1],), True),  # interleaved: taken for overlapping
        (lambda x: (x[4:],), lambda x: (x,), False),
        (lambda x: (torch.ones(3),), lambda x: (x, x, x.t()), False),
    ],
)
def test_overlap(written, others, expected):
    assert overlap(written(M), others(M)) is expected


def test_autocast_is_recorded_and_not_applied_twice():
    def function(x):
        with torch.autocast("cpu", enabled=False):
            full = x @ x
        return x @ x, full

    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        graph = trace(lambda x: x @ x, (M,))
        assert graph.autocast == ("cpu",) and "bf16[4, 4] = aten.mm" in str(graph)
        run = aot.wrap(graph, lambda args: (torch.is_autocast_enabled("cpu"),))
        assert run(M) == [False]
        assert torch.is_autocast_enabled("cpu")
        assert torch.equal(aot.wrap(graph, interpreted(graph))(M)[0], M @ M)


def test_inference_mode():
    with torch.inference_mode():
        check(lambda x: (x.add_(1), torch.nn.functional.linear(x, x).softmax(0)), (M.clone(),))


def test_decompositions_that_refuse_what_eager_takes():
    def function(x):
        return torch.nn.functional.batch_norm(x, None, None, training=True)

    x = torch.zeros(0, requires_grad=True)
    out = tc.compile(function)(x)
    assert out.shape == (0,) and torch.autograd.grad(out.sum(), x)[0].shape == (0,)


@pytest.mark.parametrize("backend", ["aot_eager", "aot_eager_decomp_partition", "inductor"])
def test_dropout_of_what_is_laid_out_otherwise(backend):
    w = torch.randn(4, 4, requires_grad=True)
    x = torch.randn(6, 4, requires_grad=True)

    def function(x):
        return torch.dropout((x.reshape(2, 3, 4) * w[0]).transpose(0, 1), 0.5, True)

    def gradients(run):
        torch.manual_seed(0)
        return torch.autograd.grad(run(x).sin().sum(), [x, w])

    torch.testing.assert_close(
        gradients(tc.compile(function, backend=backend)), gradients(function)
    )


def test_an_operation_that_returns_one_tensor_twice():
    with torch.library._scoped_library("tc_tests_twice", "FRAGMENT") as library:
        library.define("twice(Tensor a) -> (Tensor, Tensor)")

        def twice(a):
            result = a + 1
            return result, result

        library.impl("twice", twice, "CPU")
        library.impl("twice", twice, "Meta")

        def function(x):
            b, c = torch.ops.tc_tests_twice.twice(x)
            return b.mul_(c), c + 1, b is c

        graphs = []

        def backend(module, inputs):
            graphs.append([node.name for node in module.graph.nodes if "getitem" in node.name])
            return module.forward

        x = torch.ones(3)
        for compiled in (tc.compile(function), tc.compile(function, backend=backend)):
            torch.testing.assert_close(compiled(x)[:2], function(x)[:2])
            assert compiled(x)[2] is True
        assert len(graphs[0]) == 2


RESHAPED = {
    "squeeze": lambda x: (x.squeeze_(), x + 1)[1],
    "squeeze one": lambda x: (x.squeeze_(0), x.shape)[0] * 2,
    "twice": lambda x: (x.t_(), x.unsqueeze_(0), x + 1)[2],
    "chained": lambda x: x.transpose_(0, 1).unsqueeze_(0) + 1,
    "axes": lambda x: (x.swapaxes_(0, 1), x.squeeze_(), x.add_(1))[2],
    "positions": lambda x: (x.as_strided_((3, 1), (1, 3)), x.add_(1))[1],
    "history": lambda x: x.detach_() * 2,
}


@pytest.mark.parametrize("name", RESHAPED)
def test_inputs_that_are_reshaped_in_place_are_reshaped(name):
    function = RESHAPED[name]
    compiled = tc.compile(function)
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            for _ in range(2):
                given, same = (torch.arange(3.0).view(1, 3).requires_grad_(grad) * 1 for _ in "ab")
                torch.testing.assert_close(compiled(given), function(same))
                assert given.shape == same.shape and given.stride() == same.stride()
                assert given.requires_grad is same.requires_grad


def test_what_a_decomposition_refuses_and_the_op_takes_stays_the_op():
    x = torch.tensor([1 + 2j, complex("nan"), 3])
    run = tc.compile(lambda x: torch.nan_to_num(x) + 1)
    torch.testing.assert_close(run(x), torch.nan_to_num(x) + 1)


@pytest.mark.parametrize("name", ["bitwise_not", "bitwise_and", "bitwise_left_shift", "gcd"])
def test_numbers_that_no_kernel_takes_are_refused_by_the_op(name):
    op = getattr(torch, name)
    arguments = [torch.ones(3)] * (1 if name == "bitwise_not" else 2)
    with pytest.raises(NotImplementedError, match="not implemented for 'Float'"):
        tc.compile(lambda *given: op(*given) + 1)(*arguments)
