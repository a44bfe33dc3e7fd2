"""The wrapper of a compiled graph makes the outputs, and does nothing where that takes nothing."""

from __future__ import annotations

import ast
import functools
import timeit

import pytest
import torch
from aot_harness import captured, fake, interpreted, trace, trace_training
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._python_dispatch import TorchDispatchMode

from tc.compiler import aot
from tc.compiler.aot.inference import inference
from tc.compiler.aot.wrap import wrapper_source
from tc.compiler.core.gate import Gate
from tc.compiler.core.wrapper_inlining import remember

M = torch.arange(12.0).view(3, 4)


def source(function, *args):
    with torch.no_grad():
        graph = trace(function, args)
    return wrapper_source(graph.contract, graph.eager, {})


def test_nothing_to_do():
    assert source(lambda x, y: (x + y, x * y), M, M) == (
        "def wrapper(a0, a1, ):\n"
        "    if modes() and seen_by_mode() or forward_ad._current_level >= 0:\n"
        "        return list(eager(a0, a1, ))\n"
        "    return list(compiled([a0, a1, ]))\n"
    )


def compiled_of(text):
    """A compiled function as the runtime makes it, of names that a graph's inputs get."""
    space = {"torch": torch}
    tree = ast.parse(f"def call(args):\n    {text}\n")
    exec(compile(tree, "made.py", "exec"), space)
    remember(space["call"], tree)
    return space["call"]


ADD = "x, y = args\n    args.clear()\n    z = x + y\n    return (z,)"


def wrapped(compiled):
    with torch.no_grad():
        graph = trace(lambda x, y: x + y, (M, M))
    return aot.wrap(graph, compiled)


def test_few_lines_are_taken_over_in_place_of_a_call():
    run = wrapped(compiled_of(ADD))
    assert "compiled" not in run.__code__.co_names
    assert run.__code__.co_filename == "made.py"
    [z] = run(M, M)
    assert torch.equal(z, M + M)


@pytest.mark.parametrize("name", ["eager", "modes", "a1"])
def test_lines_that_use_a_name_of_the_wrapper_are_called(name):
    run = wrapped(compiled_of(ADD.replace("z", name)))
    assert "compiled" in run.__code__.co_names
    assert torch.equal(run(M, M)[0], M + M)


def test_a_function_around_the_compiled_one_is_called():
    compiled = compiled_of(ADD)

    @functools.wraps(compiled)
    def doubled(args):
        return tuple(2 * z for z in compiled(args))

    assert torch.equal(wrapped(doubled)(M, M)[0], 4 * M)


class Seen(TorchDispatchMode):
    """Collects the operations that it sees."""

    ops = ()

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        self.ops += (op,)
        return op(*args, **(kwargs or {}))


def test_a_mode_sees_each_operation_where_lines_are_taken_over():
    run = wrapped(compiled_of("x, y = args\n    args.clear()\n    return (x - y,)"))
    with Seen() as seen, torch.no_grad():
        [z] = run(M, M)
    assert torch.equal(z, M + M)
    assert seen.ops == (torch.ops.aten.add.Tensor,)
    assert torch.equal(run(M, M)[0], M - M)


def test_a_mode_that_ignores_compiled_graphs_leaves_them_at_work():
    class Ignores(Seen):
        @classmethod
        def ignore_compile_internals(cls):
            return True

    run = wrapped(compiled_of("x, y = args\n    args.clear()\n    return (x - y,)"))
    with Ignores() as seen, torch.no_grad():
        [z] = run(M, M)
    assert torch.equal(z, M - M) and seen.ops == (torch.ops.aten.sub.Tensor,)
    with Ignores(), Seen(), torch.no_grad():  # another mode sees all
        assert torch.equal(run(M, M)[0], M + M)


def test_outputs_of_all_kinds():
    text = source(lambda x: (x, x + 1, x[1], None, 3), M)
    assert "r0 = a0" in text and "r1 = out[0]" in text and "r3 = None" in text
    assert "r2 = a0.as_strided((4, ), (1, ), a0.storage_offset() + 4)" in text


def test_no_overlap_check_for_a_single_input():
    assert "overlap" not in source(lambda x: x.add_(1), M.clone())
    assert "overlap((a0, ), (a1, ))" in source(lambda x, y: x.add_(y), M.clone(), M)


def test_views_of_an_input_that_starts_elsewhere():
    with torch.no_grad():
        graph = trace(lambda x: (x[1:], x + 1), (M,))
    run = aot.wrap(graph, interpreted(graph))
    shifted = torch.arange(24.0).view(6, 4)[3:]
    assert torch.equal(run(shifted)[0], shifted[1:])


def test_symbolic_view_takes_sizes_of_the_call():
    mode = FakeTensorMode(shape_env=ShapeEnv())
    gm = fx.symbolic_trace(lambda x: (x[1:], x.t()))
    with torch.no_grad():
        graph = inference(gm, [fake(mode, M, True)], Gate())
    run = aot.wrap(graph, interpreted(graph))
    other = torch.rand(7, 5)
    assert torch.equal(run(other)[0], other[1:]) and torch.equal(run(other)[1], other.t())


def test_errors_pass_through():
    with torch.no_grad():
        graph = trace(lambda x: x + 1, (M,))

    def fails(args):
        raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError, match="out of luck"):
        aot.wrap(graph, fails)(M)


def test_autocast_is_back_on_after_an_error():
    with torch.no_grad(), torch.autocast("cpu"):
        graph = trace(lambda x: x @ x.t(), (M,))
        with pytest.raises(ZeroDivisionError):
            aot.wrap(graph, lambda args: 1 / 0)(M)
        assert torch.is_autocast_enabled("cpu")


def test_examples_of_parameters():
    weight = torch.nn.Parameter(torch.rand(4))
    gm = captured(lambda w: (w * 2,), (weight.detach(),))
    with torch.no_grad():
        graph = inference(gm, [FakeTensorMode().from_tensor(weight)], Gate())
    assert torch.equal(aot.wrap(graph, interpreted(graph))(weight)[0], weight * 2)


def test_overhead_is_printed(capsys):
    x, w = torch.rand(2), torch.rand(2, requires_grad=True)
    with torch.no_grad():
        plain = trace(lambda x, w: x * w, (x, w))
    graphs = trace_training(lambda x, w: x * w, (x, w))
    out = (x * 2,)
    cases = {
        "inference": aot.wrap(plain, lambda args: out),
        "training": aot.wrap_training(graphs, lambda args: (x.clone(),), lambda args: (x,)),
    }
    lines = [
        f"{name}: {min(timeit.repeat(lambda r=run: r(x, w), number=3000, repeat=3)) / 3e-3:.2f} us"
        for name, run in cases.items()
    ]
    with capsys.disabled():
        print("", *lines, sep="\n")
