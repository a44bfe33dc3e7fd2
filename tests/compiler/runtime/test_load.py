"""A `Program` becomes a callable; its wrapper is a file that tracebacks show."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
import torch

from tc.compiler.core.artifacts import KernelSpec, Program
from tc.compiler.errors import StageError
from tc.compiler.runtime.load import load
from tc.compiler.runtime.memory import LARGE, empty_large, empty_strided_cpu

SOURCE = """
void k0(void *a, void *b, long long n, double c) {
    float *restrict x = a, *restrict y = b;
    for (long long i = 0; i < n; i++) y[i] = x[i] * c;
}
"""
WRAPPER = """
def call(args):
    x, n = args
    args.clear()
    y = empty_strided_cpu((n,), (1,), torch.float32)
    k0(x, y, n, 2.5)
    return (y, aten.add.Tensor(y, bias), n)
"""


def program(**changes):
    fields = {
        "c_source": SOURCE,
        "kernels": (KernelSpec("k0", ("p", "p", "i64", "f64")),),
        "wrapper_source": WRAPPER,
        "constants": (("bias", torch.tensor(1.0)),),
        **changes,
    }
    return Program(**fields)


@pytest.mark.parametrize("disabled", ["0", "1"])
def test_load_and_call(monkeypatch, disabled):
    monkeypatch.setenv("TC_FORCE_DISABLE_CACHES", disabled)
    call = load(program())
    x, args = torch.arange(5.0), [torch.arange(5.0), 5]
    y, z, n = call(args)
    assert torch.equal(y, x * 2.5) and torch.equal(z, x * 2.5 + 1) and n == 5 and args == []


def test_wrappers_are_opaque_to_torch_compile():
    """Compiled autograd reads what backward calls: a wrapper's module cannot be imported."""
    call = load(program())
    outer = torch.compile(lambda x: call([x + 1, 2])[0] * 2, backend="eager")
    x = torch.ones(2)
    torch.testing.assert_close(outer(x), torch.full((2,), 10.0))


def test_wrapper_without_kernels_needs_no_compiler(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    wrapper = "def call(args):\n    return (torch.neg(args[0]), device('cpu'), inf, math.pi)\n"
    call = load(program(c_source="", kernels=(), wrapper_source=wrapper))
    assert call([torch.ones(1)])[0].item() == -1


def test_wrapper_is_a_file_and_shows_in_tracebacks():
    call = load(program())
    path = Path(call.__code__.co_filename)
    assert path.read_text() == WRAPPER
    with pytest.raises(ValueError) as caught:
        call([1])
    shown = "".join(traceback.format_exception(caught.value))
    assert "x, n = args" in shown and str(path) in shown


def test_traceback_shows_wrapper_even_where_the_file_is_gone():
    call = load(program())
    Path(call.__code__.co_filename).unlink()
    with pytest.raises(ValueError) as caught:
        call([1])
    assert "x, n = args" in "".join(traceback.format_exception(caught.value))


def test_missing_kernel_is_one_sentence():
    with pytest.raises(StageError, match="cannot be opened"):
        load(program(kernels=(KernelSpec("k9", ("p",)),)))


def test_bad_wrapper_is_one_sentence():
    with pytest.raises(StageError, match="cannot be loaded"):
        load(program(wrapper_source="def call(args:\n"))
    with pytest.raises(StageError, match="cannot be loaded"):
        load(program(wrapper_source="x = 1\n"))


@pytest.mark.parametrize("allocate", [empty_strided_cpu, empty_large])
def test_allocation(allocate):
    for size, stride, dtype in (
        ((3, 4), (1, 3), torch.float32),
        ((), (), torch.int64),
        ((0, 5), (5, 1), torch.bfloat16),
        ((LARGE // 4 + 5,), (1,), torch.float32),
    ):
        tensor = allocate(size, stride, dtype)
        assert tuple(tensor.shape) == size and tensor.dtype == dtype
        assert tensor.stride() == stride
        tensor.zero_()
