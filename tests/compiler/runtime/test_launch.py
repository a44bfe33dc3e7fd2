"""Kernels are called with the right arguments, refuse wrong ones, and cost next to nothing."""

from __future__ import annotations

import ctypes
import gc
import itertools
import random
import sys
import threading
import time
import timeit
import weakref
from pathlib import Path

import pytest
import torch

from tc.compiler.runtime import extension, launch
from tc.compiler.runtime.build import build_kernels
from tc.compiler.runtime.launch import ctypes_kernel, make_kernel, share_openmp

MAKERS = pytest.mark.parametrize("maker", [make_kernel, ctypes_kernel])


def addresses(source: str, *names: str) -> list[int]:
    library = ctypes.CDLL(str(build_kernels(source)))
    found = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in names]
    return [address for address in found if address]


def recorder(name: str, signature: tuple[str, ...]) -> str:
    """C of a function that writes each of its arguments but the first into the first."""
    types = {"p": "void *", "i64": "long long", "f64": "double"}
    parameters = ", ".join(f"{types[kind]} a{i}" for i, kind in enumerate(signature))
    body = [f"out[{i}] = (double)(a{i});" for i, k in enumerate(signature) if k != "p"]
    body += [f"out[{i}] = *(double *)a{i};" for i, k in enumerate(signature) if k == "p" and i]
    return f"void {name}({parameters}) {{ double *out = a0; {' '.join(body)} }}\n"


def signatures() -> list[tuple[str, ...]]:
    rng = random.Random(0)
    found: list[tuple[str, ...]] = [("p",), ("p", "p"), ("p", "i64"), ("p", "f64")]
    for ints, doubles in itertools.product((1, 4, 5, 8, 9, 33, 95, 96, 300), (0, 1, 8, 9, 50)):
        rest = [rng.choice(["p", "i64"]) for _ in range(ints)] + ["f64"] * doubles
        rng.shuffle(rest)
        found.append(("p", *rest))
    return found


@MAKERS
def test_arguments_arrive(maker):
    cases = signatures()
    names = [f"k{i}" for i in range(len(cases))]
    source = "".join(recorder(n, s) for n, s in zip(names, cases, strict=True))
    for name, signature, address in zip(names, cases, addresses(source, *names), strict=True):
        kernel = maker(name, address, signature)
        out = torch.zeros(len(signature), dtype=torch.float64)
        values = [float(i) * 3 + 1 for i in range(len(signature))]
        args = [
            torch.tensor(v, dtype=torch.float64)
            if kind == "p"
            else (int(v) if kind == "i64" else v)
            for v, kind in zip(values, signature, strict=True)
        ]
        kernel(out, *args[1:])
        assert out.tolist()[1:] == values[1:], signature


@pytest.mark.sample(2)
@MAKERS
@pytest.mark.parametrize("release", [False, True])
def test_release_gil(maker, release):
    slow = "extern int usleep(unsigned); void slow(void *p) { usleep(150000); *(double *)p = 1; }"
    kernel = maker("slow", addresses(slow, "slow")[0], ("p",), release_gil=release)
    out, ticks = torch.zeros(1, dtype=torch.float64), []

    def tick():
        while not out.item():
            ticks.append(time.monotonic())
            time.sleep(0.005)

    thread = threading.Thread(target=tick)
    thread.start()
    start = time.monotonic()
    kernel(out)
    during = [t for t in ticks if start + 0.02 < t < start + 0.13]
    thread.join()
    assert bool(during) == release


def test_views_pass_their_own_pointer():
    kernel = make_kernel("k", addresses(recorder("k", ("p", "p")), "k")[0], ("p", "p"))
    out, base = torch.zeros(2, dtype=torch.float64), torch.arange(9, dtype=torch.float64)
    kernel(out, base[4:])
    assert out[1] == 4


def test_parameters_and_subclasses_are_tensors():
    class Sub(torch.Tensor):
        pass

    kernel = make_kernel("k", addresses(recorder("k", ("p", "p")), "k")[0], ("p", "p"))
    for value in (
        torch.nn.Parameter(torch.tensor(7.0).double()),
        torch.ones(1).double().as_subclass(Sub),
    ):
        out = torch.zeros(2, dtype=torch.float64)
        kernel(out, value)
        assert out[1] == value.item()


@MAKERS
def test_wrong_number_of_arguments(maker):
    kernel = maker("k", addresses(recorder("k", ("p", "i64")), "k")[0], ("p", "i64"))
    with pytest.raises(TypeError, match="kernel k takes 2 positional arguments, got 1"):
        kernel(torch.zeros(2))


def test_wrong_kinds_are_refused():
    kernel = make_kernel("k", addresses(recorder("k", ("p", "i64")), "k")[0], ("p", "i64"))
    with pytest.raises(TypeError, match="argument 0 must be a tensor, not int"):
        kernel(3, 3)
    with pytest.raises(TypeError):
        kernel(torch.zeros(2), 1.5)
    with pytest.raises(OverflowError):
        kernel(torch.zeros(2), 2**63)


@pytest.mark.skipif(launch.launcher() is None, reason="the launcher cannot be built here")
def test_all_extensions_are_one_library():
    """Reading Python's headers is most of the work of building one."""
    made = [extension.extension(name) for name in extension.NAMES]
    assert len({Path(module.__file__).name for module in made}) == 1  # of one content
    assert extension.extension("no_such_module") is None


def test_without_python_headers(monkeypatch, tmp_path):
    monkeypatch.setattr(extension.sysconfig, "get_path", lambda name: str(tmp_path))
    clear = (launch.launcher.cache_clear, extension.extension.cache_clear)
    for forget in clear:
        forget()
    try:
        assert launch.launcher() is None
        address = addresses(recorder("k", ("p", "i64")), "k")[0]
        kernel = make_kernel("k", address, ("p", "i64"))
        out = torch.zeros(2, dtype=torch.float64)
        kernel(out, 5)
        assert out[1] == 5
    finally:
        for forget in clear:
            forget()


def test_kernels_do_not_leak():
    address = addresses(recorder("k", ("p",)), "k")[0]
    name = "a name of its own"
    before = sys.getrefcount(name)
    for _ in range(100):
        make_kernel(name, address, ("p",))
    assert sys.getrefcount(name) == before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_one_openmp_runtime():
    share_openmp()
    source = """
    extern int omp_get_num_threads(void);
    void k(void *p) {
    #pragma omp parallel
        *(double *)p = omp_get_num_threads();
    }"""
    kernel = make_kernel("k", addresses(source, "k")[0], ("p",))
    out, threads = torch.zeros(1, dtype=torch.float64), torch.get_num_threads()
    try:
        for wanted in (1, 2):
            torch.set_num_threads(wanted)
            kernel(out)
            assert out.item() == wanted
    finally:
        torch.set_num_threads(threads)
    with open("/proc/self/maps") as maps:
        lines = [line.split()[-1] for line in maps if "libgomp" in line or "libiomp" in line]
    assert len(set(lines)) == 1


def test_overhead_is_printed(capsys):
    address = addresses("void k(void *a, void *b, void *c) {}", "k")[0]
    a, b, c = torch.zeros(1), torch.zeros(1), torch.zeros(1)
    lines = []
    for maker in (make_kernel, ctypes_kernel):
        kernel = maker("k", address, ("p", "p", "p"))
        took = min(timeit.repeat(lambda k=kernel: k(a, b, c), number=20000, repeat=5)) / 20000
        lines.append(f"{maker.__name__}: {took * 1e6:.3f} us a call with three tensors")
    with capsys.disabled():
        print("", *lines, sep="\n")


def test_offers_call_their_function_and_are_known_by_their_owner():
    make = launch.offer_type()
    if make is None:
        pytest.skip("the launcher cannot be built here")
    first, second = make(lambda *a, **k: (a, k), "owner"), make(print, "owner")
    assert first(1, b=2) == ((1,), {"b": 2})
    assert first == second and hash(first) == hash(second)
    assert first != make(print, "other") and first != "owner"
    assert first.owner == "owner"
    assert not hasattr(first, "_torchdynamo_orig_backend") and not hasattr(first, "else")


@pytest.mark.usefixtures("only_new_garbage")
def test_offers_die_with_the_cycles_they_are_in():
    make = launch.offer_type()
    if make is None:
        pytest.skip("the launcher cannot be built here")

    def cycle():
        def function():
            return held

        held = make(function, None)
        return weakref.ref(function)

    gone = cycle()
    gc.collect()
    assert gone() is None
