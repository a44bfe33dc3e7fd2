"""Fast paths: calls past the frame hook, exactly as long as the guards of compiled code hold."""

from __future__ import annotations

import gc
import shutil
import weakref

import pytest
import torch
from torch.overrides import TorchFunctionMode

import tc
from tc.compiler.capture.guards import fast_path as fast_path_module
from tc.compiler.process import PROCESS

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

scale = 2
shift = torch.ones(4)


def fast_path_of(compiled):
    (found,) = [
        cell.cell_contents
        for cell in compiled.__closure__
        if type(cell.cell_contents).__name__ == "FastPath"
    ]
    return found


def opened(fn, *args, calls=40, **options):
    """Compile a function and call it until its fast path is open."""
    compiled = tc.compile(fn, **options)
    for _ in range(calls):
        compiled(*args)
    fast_path = fast_path_of(compiled)
    assert fast_path.entries == 1
    return compiled, fast_path


def passed(compiled, *args):
    """Call a compiled function; return whether its fast path took the call."""
    fast_path = fast_path_of(compiled)
    before = fast_path.misses
    result = compiled(*args)
    return result, fast_path.misses == before and fast_path.entries > 0


def affine(x, k):
    return x * k * scale + shift


@pytest.fixture(autouse=True)
def fresh():
    tc.reset()
    yield
    tc.reset()


def x(*shape, **options):
    return torch.arange(12.0, **options).reshape(shape or (3, 4))


def test_a_fast_path_is_installed_after_some_calls_and_gives_eager_results():
    compiled = tc.compile(affine)
    fast_path = fast_path_of(compiled)
    assert compiled(x(), 3).equal(affine(x(), 3)) and fast_path.entries == 0
    for _ in range(40):
        assert compiled(x(), 3).equal(affine(x(), 3))
    assert fast_path.entries == 1
    found, through = passed(compiled, x() + 1, 3)
    assert through and found.equal(affine(x() + 1, 3))


def test_what_runs_behind_the_fast_path_is_the_compiled_code():
    graphs, runs = [], []

    def backend(gm, inputs):
        graphs.append(gm)

        def run(*args):
            runs.append(1)
            return gm(*args)

        return run

    compiled, _ = opened(affine, x(), 3, backend=backend)
    runs.clear()
    _, through = passed(compiled, x(), 3)
    assert through and len(graphs) == 1 and len(runs) == 1


CHANGES = {
    "shape": lambda: (x(4, 3)[:, :1] * torch.ones(4), 3),
    "dtype": lambda: (x().double(), 3),
    "strides": lambda: (x(4, 3).t(), 3),
    "requires grad": lambda: (x().requires_grad_(), 3),
    "conjugate": lambda: (torch.ones(3, 4, dtype=torch.complex64).conj(), 3),
    "parameter": lambda: (torch.nn.Parameter(x(), requires_grad=False), 3),
    "another number": lambda: (x(), 4),
    "a float": lambda: (x(), 3.0),
    "a tensor for a number": lambda: (x(), torch.tensor(3)),
    "a bool": lambda: (x(), True),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("change", CHANGES)
def test_other_arguments_go_to_the_hook(change):
    compiled, _ = opened(affine, x(), 3)
    args = CHANGES[change]()
    found, through = passed(compiled, *args)
    assert not through
    assert found.equal(affine(*args)) and found.dtype is affine(*args).dtype


def test_true_is_no_one():
    compiled, _ = opened(affine, x(), 1)
    assert not passed(compiled, x(), True)[1]
    compiled, _ = opened(affine, x(), True)
    assert not passed(compiled, x(), 1)[1]


def test_names_defaults_and_wrong_arguments_go_to_the_hook():
    def f(x, k=3):
        return x + k

    compiled, _ = opened(f, x(), 3)
    assert compiled(x(), k=3).equal(x() + 3)
    assert not passed(compiled, x())[1]
    with pytest.raises(TypeError):
        compiled(x(), 3, 4)


@pytest.mark.parametrize(
    "name, value", [("scale", 5), ("shift", torch.zeros(4, 1)), ("scale", 2.0)]
)
def test_changed_globals_go_to_the_hook(monkeypatch, name, value):
    compiled, _ = opened(affine, x(4, 3)[:, :1] * torch.ones(4), 3)
    given = x(4, 3)[:, :1] * torch.ones(4)
    monkeypatch.setitem(globals(), name, value)
    found, through = passed(compiled, given, 3)
    assert not through and found.equal(affine(given, 3))


def test_changed_cells_go_to_the_hook():
    def made(k, w):
        def f(x):
            return x * k + w

        def to(new, other):
            nonlocal k, w
            k, w = new, other

        return f, to

    f, to = made(2, torch.ones(4))
    compiled, _ = opened(f, x())
    assert passed(compiled, x())[1]
    for new in ((3, torch.ones(4)), (2, torch.ones(4).double()), (2, torch.ones(1, 4))):
        to(*new)
        found, through = passed(compiled, x())
        assert not through and found.equal(f(x()))
    to(2, torch.zeros(4))
    found, through = passed(compiled, x())
    assert through and found.equal(x() * 2)


def test_other_code_of_the_function_itself_goes_to_the_hook():
    def f(x):
        return x + 1

    compiled, _ = opened(f, x())
    f.__code__ = (lambda x: x - 1).__code__
    found, through = passed(compiled, x())
    assert not through and found.equal(x() - 1)


class Doubling(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


MODES = {
    "no grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "device": lambda: torch.device("meta"),
    "function mode": Doubling,
    "profiler": torch.autograd.profiler.profile,
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("mode", MODES)
def test_modes_around_the_call_go_to_the_hook(mode):
    def f(x, w):
        return x @ w

    compiled, _ = opened(f, x(), x(4, 3))
    with MODES[mode]():
        found, through = passed(compiled, x(), x(4, 3)) if mode != "device" else (None, None)
        if mode == "device":
            with torch.device("cpu"):
                given = x(), x(4, 3)
            found, through = passed(compiled, *given)
        assert not through
        with torch.device("cpu"):
            assert found.equal(f(x(), x(4, 3)))
    assert passed(compiled, x(), x(4, 3))[1]


def test_determinism_set_later_goes_to_the_hook():
    compiled, _ = opened(affine, x(), 3)
    torch.use_deterministic_algorithms(True)
    try:
        assert not passed(compiled, x(), 3)[1]
    finally:
        torch.use_deterministic_algorithms(False)


def test_one_tensor_given_twice_goes_to_the_hook():
    def f(a, b):
        a.add_(1)
        return a * b

    compiled, _ = opened(f, x(), x())
    a = x()
    found, through = passed(compiled, a, a)
    assert not through and found.equal((x() + 1) * (x() + 1))


def test_writes_and_gradients_behind_the_fast_path():
    def f(x, w):
        w.add_(1)
        return (x * x).sum() * w.detach().sum()

    compiled, _ = opened(f, x().requires_grad_(), x())
    given, w = x().requires_grad_(), x()
    found, through = passed(compiled, given, w)
    found.backward()
    assert through and w.equal(x() + 1)
    assert torch.allclose(given.grad, 2 * x() * w.sum())


def test_each_of_several_shapes_has_an_entry():
    compiled = tc.compile(lambda x: x * 2, dynamic=False)
    shapes = [(12,), (3, 4), (2, 6)]
    for _ in range(100):
        for shape in shapes:
            compiled(x(*shape))
    assert fast_path_of(compiled).entries == 3
    assert all(passed(compiled, x(*shape))[1] for shape in shapes)


def test_a_fifth_entry_takes_the_place_of_the_first():
    compiled = tc.compile(lambda x: x * 2, dynamic=False)
    for shape in [(12,), (3, 4), (2, 6), (4, 3), (1, 12)]:
        for _ in range(600):
            compiled(x(*shape))
    assert fast_path_of(compiled).entries == 4
    assert not passed(compiled, x(12))[1] and passed(compiled, x(1, 12))[1]


def broken(x):
    print(end="")
    return x + 1


def growing(x):
    return x + x.shape[0]


@pytest.mark.parametrize("fn", [broken, lambda x, *rest: x + 1, lambda *, x=1: torch.ones(3) * x])
def test_no_fast_path_where_frames_may_run_or_arguments_vary(fn):
    compiled = tc.compile(fn)
    for _ in range(40):
        compiled(*([x()] if fn.__code__.co_argcount else []))
    assert fast_path_of(compiled).entries == 0


def test_the_gate_can_refuse_a_fast_path(monkeypatch):
    monkeypatch.setitem(PROCESS.gate.refuse_from, "capture.fast_path", 1)
    compiled = tc.compile(affine)
    for _ in range(40):
        assert compiled(x(), 3).equal(affine(x(), 3))
    assert fast_path_of(compiled).entries == 0


@pytest.mark.parametrize("count", [31, 32, 40])
def test_no_fast_path_for_more_values_than_it_holds(count):
    names = ", ".join(f"a{i}" for i in range(count))
    made = {}
    exec(f"def many({names}): return a0 + a{count - 1}", made)
    compiled, given = tc.compile(made["many"]), [x() for _ in range(count)]
    for _ in range(40):
        assert compiled(*given).equal(x() + x())
    assert fast_path_of(compiled).entries <= 1


def test_dynamic_sizes_are_related_on_the_fast_path():
    def joined(x, y, n):
        return torch.cat([x * n, y], 1) if x.shape[1] * 2 > y.shape[1] else x.sum(0)

    x, y = torch.randn(3, 4), torch.randn(3, 6)
    compiled, _ = opened(joined, x, y, 11, dynamic=True)
    for rows in (2, 3, 7):
        for left, right in ((4, 4), (6, 5), (9, 3)):
            args = torch.randn(rows, left), torch.randn(rows, right), rows + 20
            result, through = passed(compiled, *args)
            assert through and result.equal(joined(*args))
    for args in (
        (torch.randn(3, 2), torch.randn(3, 8), 11),  # another side of the condition
        (torch.randn(3, 4).t().contiguous().t(), y, 11),  # other strides
        (torch.randn(1, 4), torch.randn(1, 6), 11),  # a size that is one
        (x, y, 2.5),
    ):
        result, through = passed(compiled, *args)
        assert not through and result.equal(joined(*args))


def test_a_condition_of_sizes_that_raises_is_a_miss():
    def scaled(x, n):
        return x * (x.shape[0] % n)

    x = torch.randn(6, 4)
    compiled, _ = opened(scaled, x, 4, dynamic=True)
    result, through = passed(compiled, x, 5)
    assert through and result.equal(scaled(x, 5))
    with pytest.raises(ZeroDivisionError):
        compiled(x, 0)


def test_reset_removes_fast_paths():
    compiled, fast_path = opened(affine, x(), 3)
    tc.reset()
    assert fast_path.entries == 0
    found, through = passed(compiled, x(), 3)
    assert not through and found.equal(affine(x(), 3))


def test_stances_remove_fast_paths():
    compiled, _ = opened(affine, x(), 3)
    with tc.set_stance("force_eager"):
        before = fast_path_of(compiled).misses
        assert compiled(x(), 3).equal(affine(x(), 3))
        assert fast_path_of(compiled).misses == before  # not even asked
    assert passed(compiled, x(), 3)[1]


@pytest.mark.usefixtures("only_new_garbage")
def test_an_object_known_by_identity_that_dies_removes_the_fast_path():
    def f(x):
        return x + 1 if type(thing) is Kind else x - 1  # noqa: F821

    def rebuild():
        globals()["Kind"] = type("Kind", (), {})
        globals()["thing"] = globals()["Kind"]()

    rebuild()
    compiled, fast_path = opened(f, x())
    assert passed(compiled, x())[1]
    rebuild()
    gc.collect()
    assert fast_path.entries == 0
    found, through = passed(compiled, x())
    assert not through and found.equal(x() + 1)


@pytest.mark.usefixtures("only_new_garbage")
def test_a_compiled_function_is_collected_with_its_fast_path():
    def f(x):
        return x + 1

    compiled, fast_path = opened(f, x())
    gone = weakref.ref(fast_path), weakref.ref(f)
    del f, compiled, fast_path
    tc.reset()
    gc.collect()
    assert gone[0]() is None and gone[1]() is None


def test_errors_behind_the_fast_path_are_the_callers():
    def f(x, i):
        return x[i]

    compiled, _ = opened(f, x(), torch.tensor([1]))
    with pytest.raises(IndexError):
        compiled(x(), torch.tensor([7]))
    assert compiled(x(), torch.tensor([2])).equal(x()[[2]])


def test_harmless_steps_name_opcodes():
    import dis

    known = {name for name in fast_path_module.HARMLESS if name in dis.opmap}
    assert {"LOAD_GLOBAL", "LOAD_FAST", "RETURN_VALUE"} <= known
    assert not known & {"STORE_ATTR", "STORE_SUBSCR", "STORE_GLOBAL", "LOAD_ATTR", "IMPORT_NAME"}
