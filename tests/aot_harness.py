"""Captures small programs, traces them with `tc.compiler.aot` and compares them with eager."""

from __future__ import annotations

from contextlib import contextmanager

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.fx.node import map_aggregate
from torch.overrides import TorchFunctionMode

import tc
from tc.compiler import aot
from tc.compiler.aot.inference import inference
from tc.compiler.aot.training import training
from tc.compiler.core.gate import Gate


@contextmanager
def default_dtype(dtype):
    """Set torch's default dtype in a block."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class Capture(TorchFunctionMode):
    """Records the torch functions and methods a program calls, as the capture stage does."""

    def __init__(self):
        super().__init__()
        self.graph, self.nodes, self.kept = fx.Graph(), {}, []

    def node_of(self, value):
        if isinstance(value, torch.Tensor):
            return self.nodes[id(value)]
        return value

    def remember(self, value, node):
        self.nodes.setdefault(id(value), node)
        self.kept.append(value)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") == "__get__" and not isinstance(result, torch.Tensor):
            return result
        args, kwargs = map_aggregate((args, kwargs or {}), self.node_of)
        node = self.graph.create_node("call_function", func, args, kwargs, func.__name__)
        if isinstance(result, torch.Tensor):
            self.remember(result, node)
        elif isinstance(result, (tuple, list)):
            for i, item in enumerate(result):
                if isinstance(item, torch.Tensor):
                    self.remember(
                        item, self.graph.call_function(__import__("operator").getitem, (node, i))
                    )
        return result


def captured(function, args):
    """Return a program as a graph of torch-level calls; sizes become constants."""
    capture = Capture()
    args = copies(args)
    for i, arg in enumerate(args):
        capture.remember(arg, capture.graph.placeholder(f"in{i}"))
    with capture:
        result = function(*args)
    result = list(result) if isinstance(result, (tuple, list)) else [result]
    capture.graph.output(tuple(map(capture.node_of, result)))
    return fx.GraphModule({}, capture.graph)


def trace(function, args, *, dynamic=False, gate=None):
    """Capture, then trace; returns the artifact."""
    gm = fx.symbolic_trace(function) if dynamic else captured(function, args)
    mode = FakeTensorMode(shape_env=ShapeEnv() if dynamic else None)
    return inference(gm, [fake(mode, arg, dynamic) for arg in args], gate or Gate())


def fake(mode, arg, dynamic):
    if not isinstance(arg, torch.Tensor):
        return arg
    if not dynamic:
        return mode.from_tensor(arg, static_shapes=True)
    sizes = [DimDynamic.DYNAMIC if size > 1 else DimDynamic.STATIC for size in arg.shape]
    return mode.from_tensor(arg, symbolic_context=StatelessSymbolicContext(dynamic_sizes=sizes))


def interpreted(graph):
    """Stand in for the compiled graph; refuses to return memory it was given."""
    graph.verify()

    def compiled(args):
        given = {t.untyped_storage()._cdata for t in args if isinstance(t, torch.Tensor)}
        results = tuple(graph.module(*args))
        tensors = [t for t in results if isinstance(t, torch.Tensor)]
        stored = [t.untyped_storage()._cdata for t in tensors]
        # A real backend materialises each output; views inside the graph are its own business.
        return tuple(
            fresh_copy(t)
            if isinstance(t, torch.Tensor)
            and (
                t.untyped_storage()._cdata in given or stored.count(t.untyped_storage()._cdata) > 1
            )
            else t
            for t in results
        )

    return compiled


def fresh_copy(tensor):
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor)


def relations(values):
    """Who is whom and who shares memory with whom, over inputs and outputs."""
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    return [
        (a is b, a.untyped_storage()._cdata == b.untyped_storage()._cdata)
        for a in tensors
        for b in tensors
    ]


def copies(args):
    """Copy arguments, keeping strides."""
    return [fresh_copy(arg) if isinstance(arg, torch.Tensor) else arg for arg in args]


def check(function, args, run_args=None, *, dynamic=False, gate=None):
    """Compare the traced function with eager; returns the artifact."""
    with torch.no_grad():
        graph = trace(function, args, dynamic=dynamic, gate=gate)
        runs = aot.wrap(graph, interpreted(graph))
        for given in [args, *(run_args or [])]:
            eager_args, our_args = copies(given), copies(given)
            torch.manual_seed(0)
            expected = function(*eager_args)
            torch.manual_seed(0)
            got = runs(*our_args)
            expected = list(expected) if isinstance(expected, (tuple, list)) else [expected]
            compare([*eager_args, *expected], [*our_args, *got])
            for values in ([*eager_args, *expected], [*our_args, *got]):
                write_to_all(values)  # what is written later is seen by aliases
            compare([*eager_args, *expected], [*our_args, *got])
    return graph


def strides(tensor):
    """Return the strides that matter."""
    return (
        [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]
        if tensor.numel()
        else []
    )


def write_to_all(values):
    """Write to each floating-point tensor that does not overlap itself."""
    for i, value in enumerate(values):
        if (
            isinstance(value, torch.Tensor)
            and value.is_floating_point()
            and 0 not in strides(value)
        ):
            value.mul_(i + 2)


def compare(expected, actual):
    assert len(expected) == len(actual)
    for want, got in zip(expected, actual, strict=True):
        assert type(want) is type(got)
        if isinstance(want, torch.Tensor):
            torch.testing.assert_close(got, want, equal_nan=True)
            assert strides(got) == strides(want)
        else:
            assert want == got
    assert relations(expected) == relations(actual)


def trace_training(function, args, *, dynamic=False, gate=None):
    """Capture, then trace with gradients; returns the artifact."""
    plain = [arg.detach() if isinstance(arg, torch.Tensor) else arg for arg in args]
    gm = fx.symbolic_trace(function) if dynamic else captured(function, plain)
    mode = FakeTensorMode(shape_env=ShapeEnv() if dynamic else None)
    graphs = training(gm, [fake(mode, arg, dynamic) for arg in args], gate or Gate())
    graphs.verify()
    return graphs


def training_of(function, *args, gate=None, **options):
    """Capture as `tc.compile` does, then trace with gradients; returns the artifact."""
    found = []

    def backend(gm, examples):
        fakes = [node.meta["example_value"] for node in gm.graph.find_nodes(op="placeholder")]
        found.append(training(gm, fakes, gate or Gate()))
        return gm.forward

    tc.compile(function, backend=backend, fullgraph=True, **options)(*args)
    (graphs,) = found
    graphs.verify()
    return graphs


def with_grad(arg):
    """Copy an argument as a leaf that requires grad if the argument does."""
    if not isinstance(arg, torch.Tensor):
        return arg
    return fresh_copy(arg.detach()).requires_grad_(arg.requires_grad)


def check_training(function, args, run_args=None, *, dynamic=False, gate=None, seed=0):
    """Compare outputs, gradients and writes of the traced function with eager's."""
    graphs = trace_training(function, args, dynamic=dynamic, gate=gate)
    backward = interpreted(graphs.backward) if graphs.backward else None
    run = aot.wrap_training(graphs, interpreted(graphs.forward), backward)
    for given in [args, *(run_args or [])]:
        eager_args, our_args = [with_grad(a) for a in given], [with_grad(a) for a in given]
        torch.manual_seed(seed)
        expected = function(*eager_args)
        torch.manual_seed(seed)
        actual = run(*our_args)
        expected = list(expected) if isinstance(expected, (tuple, list)) else [expected]
        compare([*eager_args, *expected], [*our_args, *actual])
        flags = [
            [getattr(v, "requires_grad", None) for v in values] for values in (expected, actual)
        ]
        assert flags[0] == flags[1]
        for count in (len(actual), 1):
            wanted = gradients(eager_args, expected[:count])
            for got, want in zip(gradients(our_args, actual[:count]), wanted, strict=True):
                torch.testing.assert_close(got, want)
    return graphs


def gradients(args, outputs):
    """Return the gradients of a weighted sum of the outputs."""
    leaves = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
    total, generator = None, torch.Generator().manual_seed(3)
    for out in outputs:
        if isinstance(out, torch.Tensor) and out.requires_grad:
            weights = torch.randn(out.shape, generator=generator, dtype=torch.float64)
            term = (out * weights.to(out.dtype)).sum()
            total = term if total is None else total + term.to(total.dtype)
    if total is None or not leaves:
        return []
    return list(torch.autograd.grad(total, leaves, retain_graph=True, allow_unused=True))
