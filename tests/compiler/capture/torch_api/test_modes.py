"""Modes of torch that traced code sets: the same values, and the same modes afterwards."""

from __future__ import annotations

import contextlib
import sys

import pytest
import torch
from capture_harness import Programs, check, two_tensors
from torch.nn.attention import SDPBackend, sdpa_kernel

import tc
from tc.compiler import api

program = Programs()
weight = torch.randn(4, 4, requires_grad=True)


def square():
    generator = torch.Generator().manual_seed(5)
    return torch.randn(4, 4, generator=generator), torch.randn(4, 4, generator=generator)


@program(make=square, graphs=1, breaks=0)
def autocast(x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = x @ y
        with torch.autocast("cpu", enabled=False):
            plain = x @ y
    return z, plain, x @ y, torch.is_autocast_enabled("cpu")


@program(make=square, graphs=2, breaks=1)
def break_under_autocast(x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = x @ y
        print(end="")
        return z, x @ y, torch.is_autocast_enabled("cpu")


@program(make=square, graphs=1, breaks=0)
def autocast_as_decorator(x, y):
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def product(a, b):
        return a @ b

    return product(x, y)


@program(graphs=1, breaks=0)
def default_dtype(x, y):
    torch.set_default_dtype(torch.float64)
    try:
        return torch.ones(4) + x, torch.get_default_dtype()
    finally:
        torch.set_default_dtype(torch.float32)


@program(graphs=1, breaks=0)
def deterministic(x, y):
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    inside = torch.is_deterministic_algorithms_warn_only_enabled()
    z = x + y
    torch.use_deterministic_algorithms(before)
    return z, before, inside


@program(make=square, graphs=1, breaks=0)
def attention_backends(x, y):
    q = x.view(1, 1, 4, 4)
    with sdpa_kernel(SDPBackend.MATH):
        return torch.nn.functional.scaled_dot_product_attention(q, q, q)


@program(graphs=1, breaks=0)
def matmul_precision(x, y):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    z = x + y, torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(before)
    return z


@program(graphs=1, breaks=0)
def inference(x, y):
    with torch.inference_mode():
        z = x + 1
        inside = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    return z * 2, inside, torch.is_inference_mode_enabled()


@program(breaks=2)
def break_under_inference(x, y):
    with torch.inference_mode():
        z = x + 1
        print(end="")
        z = z * 2
        inside = torch.is_inference_mode_enabled()
    return z, inside, torch.is_inference_mode_enabled(), torch.is_grad_enabled()


@program(graphs=1, breaks=0)
def named_region(x, y):
    with torch.autograd.profiler.record_function("a region"):
        return x + y


@program(graphs=1, breaks=0)
def suppressed(x, y):
    with contextlib.suppress(ValueError, KeyError):
        x = x + 1
        raise ValueError
    return x


@program(graphs=1, breaks=0)
def exception_that_is_handled(x, y):
    before = sys.exception()
    try:
        raise ValueError("one")
    except ValueError as error:
        inside = sys.exception() is error, str(sys.exception())
    return x + y, before, inside, sys.exception()


@program(graphs=1, breaks=0)
def exit_stack(x, y):
    log = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.callback(log.append, 1)
        z = x + y
        inside = torch.is_grad_enabled()
    return z, inside, log, torch.is_grad_enabled()


@program(graphs=1, breaks=0)
def error_being_handled(x, y):
    outside = sys.exc_info()
    try:
        raise ValueError("a")
    except ValueError as error:
        return x + y, sys.exc_info()[1] is error, sys.exc_info()[0], outside


@program(graphs=1, breaks=0)
def attributes_of_tensors(x, y):
    x.scale = 3
    x.other = y + 1
    z = x + 1
    z.made = "here"
    z.part = z * 2
    return z * x.scale + x.other, z, getattr(z, "nothing", None)


@program(graphs=1, breaks=0)
def gradients_cleared(x, y):
    x.grad = None
    return x + y, x.grad


@pytest.mark.sample(4)
@pytest.mark.parametrize("case", program, ids=lambda case: case.name)
def test_program(case):
    check(case)
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    assert not torch.is_autocast_enabled("cpu")


def test_attributes_stay_on_the_tensors():
    x, y = two_tensors()
    z = tc.compile(attributes_of_tensors, backend="eager")(x, y)[1]
    assert (x.scale, z.made) == (3, "here")
    torch.testing.assert_close([x.other, z.part], [y + 1, (x + 1) * 2])


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_training_under_autocast(backend):
    def loss(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ weight
        return y.float().sum()

    tc.reset()
    x = torch.randn(3, 4)
    want = torch.autograd.grad(loss(x), weight)
    got = torch.autograd.grad(tc.compile(loss, backend=backend, fullgraph=True)(x), weight)
    torch.testing.assert_close(got, want)


def test_tensors_made_in_inference_mode_are_of_its_kind():
    def made(x):
        with torch.inference_mode():
            return x + 1

    tc.reset()
    assert tc.compile(made, backend="eager")(torch.ones(2)).is_inference()


def test_traced_code_may_ask_whether_a_tensor_was_made_in_inference_mode():
    def asked(x):
        with torch.inference_mode():
            z = x + 1
        return z.is_inference(), x.is_inference()

    assert tc.compile(asked, backend="eager")(torch.ones(2)) == (True, False)


def test_a_mode_left_changed_is_guarded_and_left():
    def flip(x):
        torch.backends.cuda.enable_math_sdp(not torch.backends.cuda.math_sdp_enabled())
        return x + 1

    tc.reset()
    compiled = tc.compile(flip, backend="eager", fullgraph=True)
    before = torch.backends.cuda.math_sdp_enabled()
    try:
        for turn in range(4):
            compiled(torch.ones(2))
            assert torch.backends.cuda.math_sdp_enabled() is (before if turn % 2 else not before)
        assert api.graph_stats()["graphs"] == 2
    finally:
        torch.backends.cuda.enable_math_sdp(before)


def test_an_error_of_a_caller_is_not_taken_for_none():
    def handled(x):
        return x + 1, sys.exc_info()[0]

    tc.reset()
    compiled = tc.compile(handled, backend="eager")
    assert compiled(torch.ones(1))[1] is None
    try:
        raise KeyError
    except KeyError:
        assert compiled(torch.ones(1))[1] is KeyError


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_gradients_switched_on_inside_reach_the_caller(backend):
    def scaled(x):
        with torch.enable_grad():
            return x * 2

    tc.reset()
    x = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        got = tc.compile(scaled, backend=backend)(x)
    got.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 2.0]


def test_torchs_newer_switches_of_precision(monkeypatch):
    def product(x):
        return x @ x

    def asking(x):
        return x @ x, torch.get_float32_matmul_precision()

    tc.reset()
    monkeypatch.setattr(torch.backends.mkldnn.matmul, "fp32_precision", "bf16")
    x = torch.eye(4)
    assert torch.equal(tc.compile(product, fullgraph=True)(x), x)
    assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"
    with pytest.raises(RuntimeError, match="matmul precision"):  # as in eager
        tc.compile(asking)(x)

    def setting(x):
        torch.set_float32_matmul_precision("highest")
        return x @ x

    assert torch.equal(tc.compile(setting)(x), x)
    assert torch.backends.mkldnn.matmul.fp32_precision == "ieee"


def test_attention_asks_for_dispatch_modes_without_a_break():
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    run = tc.compile(layer, backend="eager", fullgraph=True)
    with torch.no_grad():
        assert torch.equal(run(x), layer(x))


def test_the_search_for_anomalies_is_a_guarded_fact():
    def searching(x):
        nan = torch.is_anomaly_check_nan_enabled()
        return x + 1 if torch.is_anomaly_enabled() and nan else x - (2 if nan else 3)

    run, x = tc.compile(searching, fullgraph=True), torch.zeros(2)
    for _ in range(2):
        assert torch.equal(run(x), searching(x))
        for nan in (True, False):
            with pytest.warns(UserWarning, match="Anomaly"), torch.autograd.detect_anomaly(nan):
                assert torch.equal(run(x), searching(x))


def doubling():
    return torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, lambda saved: saved * 2)


@contextlib.contextmanager
def region():
    with doubling():
        yield


class Region:
    def __enter__(self):
        self.hooks = doubling()
        self.hooks.__enter__()

    def __exit__(self, *error):
        return self.hooks.__exit__(*error)


def under_hooks(x):
    with doubling():
        return x.sin() * x


def under_a_region(x):
    y = x.exp()
    with region():
        z = y.sin() * x
    return z.cos()


def under_own_region(x):
    with Region():
        z = x.sin() * x
    return z.cos()


def under_a_stack(x):
    with contextlib.ExitStack() as stack:
        stack.enter_context(doubling())
        z = x.sin() * x
    return z * x


def calls_under_hooks(x):
    return under_hooks(x.exp()).cos() * x.cos()


def middle(x):
    return under_hooks(x.cos()) * 2


def calls_two_deep(x):
    return middle(x).sin() * 3


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "function",
    [
        under_hooks,
        under_a_region,
        under_own_region,
        under_a_stack,
        calls_under_hooks,
        calls_two_deep,
    ],
)
def test_hooks_on_saved_tensors_get_what_eager_saves(function):
    gradients = []
    for compiled in (function, tc.compile(function)):
        x = torch.tensor([0.3, 0.4], dtype=torch.float64, requires_grad=True)
        compiled(x).sum().backward()
        gradients.append(x.grad)
    torch.testing.assert_close(gradients[1], gradients[0])


def _anomalies():
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def searching(x):
    found = [_anomalies()]
    with torch.autograd.detect_anomaly(check_nan=False):
        found.append(_anomalies())
        y = x + 1
        with torch.autograd.detect_anomaly():
            found.append(_anomalies())
            tc.graph_break()
            found.append(_anomalies())
        found.append(_anomalies())
    return y * 2, [*found, _anomalies()]


def searching_from_now_on(x):
    torch.set_anomaly_enabled(True, False)
    y = x + 1
    tc.graph_break()
    return y, _anomalies()


def searching_in_backward(x):
    with torch.autograd.set_detect_anomaly(True):
        try:
            ((x * 0).log().sum() * 0).backward()
        except RuntimeError as error:
            return x + 1, str(error), _anomalies()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("program", [searching, searching_from_now_on, searching_in_backward])
def test_traced_code_may_search_for_anomalies(program, before):
    found = []
    for run in (program, tc.compile(program), tc.compile(program, backend="eager")):
        for _ in range(2):
            torch.set_anomaly_enabled(before)
            try:
                y, *rest = run(torch.ones(2, requires_grad=True))
                found.append((y.tolist(), rest, _anomalies()))
            finally:
                torch.set_anomaly_enabled(False)
    assert all(one == found[0] for one in found)
