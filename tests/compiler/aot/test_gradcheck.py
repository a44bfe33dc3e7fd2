"""Gradients of compiled code are the derivatives of what it computes, and eager's own.

By default half of the operations of `gradient_samples`, which each run draws, are compared with
eager, a few in one function; `slow` takes all, one by one, and adds differences (`gradcheck`),
other layouts, sizes that are symbols, and lower precision.
"""

from __future__ import annotations

import itertools
import random

import pytest
import torch
import torch.nn.functional as F
from gradient_samples import FAMILIES, NOT_DERIVATIVES

import tc
from tc import trace

# Rows of which a part runs eagerly: what they do depends on numbers out of tensors.
BROKEN = {"gaussian", "ctc", "lstsq", "index_fill_tensor", "cov", "corrcoef"}
EAGER = {"combinations"}  # its sizes rest on data
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    return FAMILIES[request.param]()


def flat(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def compiled(name, fn, **options):
    return tc.compile(fn, fullgraph=name not in BROKEN, **options)


def outputs_and_gradients(fn, args, expanded=False):
    """Return what a function returns, and its gradients for random ones of its outputs."""
    outputs = flat(fn(*args))
    wanted = [out for out in outputs if out.requires_grad]
    generator = torch.Generator().manual_seed(3)
    given = [
        torch.randn([] if expanded else out.shape, dtype=torch.float64, generator=generator)
        .to(out.dtype)
        .expand(out.shape)
        for out in wanted
    ]
    leaves = [arg for arg in args if isinstance(arg, torch.Tensor) and arg.requires_grad]
    return outputs, torch.autograd.grad(wanted, leaves, given, allow_unused=True)


def same(name, fn, args, options=None, expanded=False, **tolerance):
    """Compare outputs and gradients of a compiled function with eager's."""
    want, wanted = outputs_and_gradients(fn, args, expanded)
    got, gradients = outputs_and_gradients(compiled(name, fn, **(options or {})), args, expanded)
    torch.testing.assert_close(got, want, equal_nan=True, **tolerance, msg=about(name))
    assert [v.requires_grad for v in got] == [v.requires_grad for v in want], name
    for actual, theirs in zip(gradients, wanted, strict=True):
        if theirs is None:
            assert actual is None or not actual.any(), name
        else:
            torch.testing.assert_close(
                actual, theirs, equal_nan=True, **tolerance, msg=about(f"gradient of {name}")
            )


def about(name):
    return lambda message: f"{name}: {message}"


TOGETHER = 6


def in_one(rows):
    """Return one function that does what several do, and its arguments."""
    counts = [len(args) for _, args in rows]

    def function(*args):
        rest = iter(args)
        parts = [list(itertools.islice(rest, count)) for count in counts]
        return [out for (fn, _), part in zip(rows, parts, strict=True) for out in flat(fn(*part))]

    return function, [arg for _, args in rows for arg in args]


@pytest.mark.sample(1)
def test_as_eager(family):
    alone = BROKEN | EAGER
    rows = random.SystemRandom().sample([*family.items()], (len(family) + 1) // 2)
    groups = [[row] for row in rows if row[0] in alone]
    rest = [row for row in rows if row[0] not in alone]
    groups += [rest[i : i + TOGETHER] for i in range(0, len(rest), TOGETHER)]
    with trace.capture_events() as events:
        for group in groups:
            tc.reset()
            names = ", ".join(name for name, _ in group)
            same(names, *in_one([row for _, row in group]))
    eager = [e.payload for e in events.of(trace.Artifact) if e.name == "tc_graph_runs_eagerly"]
    assert len(eager) == len(EAGER & {name for name, _ in rows}), eager


@pytest.mark.slow
def test_one_by_one_as_eager(family):
    with trace.capture_events() as events:
        for name, (fn, args) in family.items():
            tc.reset()
            same(name, fn, args)
    eager = [e.payload for e in events.of(trace.Artifact) if e.name == "tc_graph_runs_eagerly"]
    assert len(eager) == len(EAGER & set(family)), eager


@pytest.mark.slow
def test_derivatives(family):
    for name, (fn, args) in family.items():
        tc.reset()
        if name not in NOT_DERIVATIVES:
            assert torch.autograd.gradcheck(compiled(name, fn), args, atol=1e-5, rtol=1e-3), name


@pytest.mark.slow
@pytest.mark.parametrize("expanded", [False, True])
def test_other_layouts(family, expanded):
    """Inputs are transposed in memory, or lie apart in something larger."""
    for name, (fn, args) in family.items():
        if name not in ("as_strided_scatter", "view_as_complex"):  # eager refuses
            tc.reset()
            same(name, fn, [laid_out(arg, i) for i, arg in enumerate(args)], expanded=expanded)


def test_output_in_the_middle_of_other_memory():
    """Its gradient comes contiguous, as the output is made, not strided as its argument is."""
    x = torch.randn(4, 6, dtype=torch.float64)[:, ::2].requires_grad_()
    same("slice_scatter", lambda x: x.slice_scatter(torch.ones(2, 3), 0, 1, 3) * x, (x,))


KEEPS_GAPS = {
    "slice": lambda x, y: x.slice_scatter(y, 0, 1, 3),
    "select": lambda x, y: x.select_scatter(y[0], 0, 1),
    "diagonal": lambda x, y: x.diagonal_scatter(y[0], 0),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("name", KEEPS_GAPS)
def test_gradient_of_an_output_with_gaps(name, transposed, dynamic):
    """An output keeps the gaps of its argument; the gradient that comes has none."""
    x = torch.randn(4, 3, 2, dtype=torch.float64)[..., 0]
    x = (x.t().contiguous().t()[:, :2] if transposed else x).requires_grad_()
    y = torch.randn(2, x.shape[1], dtype=torch.float64).requires_grad_()
    tc.reset()
    same(name, KEEPS_GAPS[name], (x, y), {"dynamic": dynamic})


def laid_out(arg, i):
    """Return a copy of a tensor that is not contiguous."""
    if not isinstance(arg, torch.Tensor) or arg.dim() == 0:
        return arg
    if i % 2 and arg.dim() > 1:
        copy = arg.detach().transpose(0, -1).contiguous().transpose(0, -1)
    else:
        copy = arg.detach().repeat_interleave(2, -1)[..., ::2]
    return copy.requires_grad_(arg.requires_grad)


@pytest.mark.slow
def test_symbolic_sizes(family):
    for name, (fn, args) in family.items():
        tc.reset()
        same(name, fn, args, {"dynamic": True})


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, 1])
def test_gradients_of_some(family, at):
    """Only one of the inputs requires grad."""
    for name, (fn, args) in family.items():
        wanting = [i for i, arg in enumerate(args) if wants_grad(arg)]
        if len(wanting) > at:
            tc.reset()
            some = [a.detach() if wants_grad(a) else a for a in args]
            some[wanting[-1 - at]].requires_grad_()
            same(name, fn, some)


def wants_grad(arg):
    return isinstance(arg, torch.Tensor) and arg.requires_grad


CHANGING = {
    "pad": lambda x, k: F.pad(x, (k, 0), value=0.5),
    "crop": lambda x, k: F.pad(x, (-k, k)),
    "circular": lambda x, k: F.pad(x, (k, 0), mode="circular"),
    "size": lambda x, k: F.interpolate(x, size=k + 1),
    "bilinear": lambda x, k: F.interpolate(x[None], size=(k + 1, k + 2), mode="bilinear"),
    "roll": lambda x, k: x.roll(k, 1),
    "quantile": lambda x, k: x[:, :, : k + 1].quantile(0.3, 2) * k,
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", CHANGING)
def test_a_number_that_changes(name):
    """It is a symbol from the second value on; backward knows it by the symbol alone."""
    fn = CHANGING[name]
    run = tc.compile(fn, fullgraph=True)
    for k in (1, 2, 3):
        x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
        torch.testing.assert_close(
            *(outputs_and_gradients(f, (x, k)) for f in (run, fn)), equal_nan=True
        )


def test_masked_scatter_that_broadcasts():
    x, values = (torch.randn(shape, dtype=torch.float64) for shape in ((3,), (2, 3)))
    mask = torch.tensor([[True, False, True], [False, True, False]])
    same("masked_scatter", lambda x, y: x.masked_scatter(mask, y), (x.requires_grad_(), values))


def test_dropout_that_does_nothing_returns_its_argument():
    run = tc.compile(lambda x: F.dropout(x, 0.5, False), dynamic=True)
    x = torch.randn(3, 2)
    assert run(x) is x


NEGATIVE = {
    "slice": lambda x, k: x[k:] * 2,
    "roll": lambda x, k: x.roll(k, 1),
    "pad": lambda x, k: F.pad(x, (k, 0)),
    "pad_end": lambda x, k: F.pad(x, (0, k), value=1.0),
    "narrow": lambda x, k: x.narrow(0, k, 1) * 2,
    "quotient": lambda x, k: x.sum() * (k // 3) + k % 3,
    "compare": lambda x, k: torch.where(torch.arange(6) < k, x, -x),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", NEGATIVE)
def test_a_number_that_becomes_negative(name):
    fn = NEGATIVE[name]
    run = tc.compile(fn, fullgraph=True)
    for k in (1, 2, -1, -3, 0):
        x = torch.randn(6, 6, dtype=torch.float64, requires_grad=True)
        torch.testing.assert_close(*(outputs_and_gradients(f, (x, k)) for f in (run, fn)))
