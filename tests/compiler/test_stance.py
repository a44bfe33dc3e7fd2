"""Stances: what compiled functions do in place of compiling, and that all ends with the block."""

from __future__ import annotations

import pytest
import torch

import tc


class Count:
    """A backend that counts its graphs."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, gm, example_inputs):
        self.graphs += 1
        return gm.forward


@pytest.fixture(autouse=True)
def fresh():
    tc.reset()
    yield
    assert tc.set_stance("default")._before.name == "default", "a test left a stance in force"


def f(x):
    return x.sin() + 1


def compiled(fn=f, **options):
    count = Count()
    return tc.compile(fn, backend=count, **options), count


def ones(*sizes):
    return torch.ones(*sizes)


def test_force_eager_compiles_nothing_and_leaves_compiled_code_alone():
    g, count = compiled()
    with tc.set_stance("force_eager"):
        torch.testing.assert_close(g(ones(3)), f(ones(3)))
    assert count.graphs == 0
    g(ones(3))
    seen = []

    def spy(x):
        seen.append(tc.is_compiling())
        return x + 1

    h, _ = compiled(spy)
    with tc.set_stance("force_eager"):
        h(ones(3))
    assert seen == [False] and count.graphs == 1


def test_eager_on_recompile_uses_what_there_is():
    g, count = compiled()
    g(ones(3))
    with tc.set_stance("eager_on_recompile"):
        for n in (3, 4, 5):
            torch.testing.assert_close(g(ones(n)), f(ones(n)))
    assert count.graphs == 1


def test_fail_on_recompile_lets_known_calls_and_plain_python_pass():
    g, count = compiled()
    g(ones(3))
    numbers, _ = compiled(lambda n: n + 1)
    with tc.set_stance("fail_on_recompile"):
        g(ones(3))
        assert numbers(1) == 2
        with pytest.raises(RuntimeError, match=r"f \(.*test_stance.py:\d+\).*fail_on_recompile"):
            g(ones(3, 3))
        with pytest.raises(tc.exc.RecompileError):
            compiled(lambda d: d["x"] + 1)[0]({"x": ones(2)})
    g(ones(3, 3))
    assert count.graphs == 2


def test_eager_then_compile_learns_sizes_from_the_first_run():
    def total(pair, k):
        return pair[0] * k + pair[1]["y"]

    g, count = compiled(total)
    with tc.set_stance("eager_then_compile"):
        for n in (3, 4, 5, 6):
            args = [ones(n), {"y": ones(n)}], n
            torch.testing.assert_close(g(*args), total(*args))
    assert count.graphs == 1  # sizes and number differed already when it was compiled


def test_eager_then_compile_learns_strides_from_the_first_run():
    g, count = compiled(lambda x: x * 2)
    with tc.set_stance("eager_then_compile"):
        for n in (5, 6, 7, 9):
            x = torch.randn(2, n, 4)[:, -1:]
            torch.testing.assert_close(g(x), x * 2)
    assert count.graphs == 1


def test_aot_eager_then_compile_compiles_again_after_the_first_run():
    g, count = compiled()
    with tc.set_stance("aot_eager_then_compile"):
        torch.testing.assert_close(g(ones(3)), f(ones(3)))
        assert count.graphs == 0
        for _ in range(2):
            torch.testing.assert_close(g(ones(3)), f(ones(3)))
    assert count.graphs == 1


def test_force_backend_has_compiled_code_of_its_own():
    g, own = compiled()
    forced = Count()
    with tc.set_stance(force_backend=forced):
        g(ones(3))
        g(ones(3))
    assert (own.graphs, forced.graphs) == (0, 1)
    g(ones(3))
    assert own.graphs == 1
    with pytest.raises(tc.exc.OptionError):
        tc.set_stance("force_eager", force_backend=forced)


def test_as_call_as_decorator_and_nested():
    g, count = compiled()

    @tc.set_stance("force_eager")
    def outer(x):
        return g(x)

    assert tc.set_stance("default")._before.name == "default"  # decorating changed nothing
    outer(ones(3))
    assert count.graphs == 0
    tc.set_stance("force_eager")
    g(ones(3))
    with tc.set_stance("default"):
        g(ones(3))
    assert count.graphs == 1
    g(ones(4))
    tc.set_stance("default")
    assert count.graphs == 1


def test_refused_names_and_places():
    with pytest.raises(tc.exc.OptionError, match="force_eager"):
        tc.set_stance("force_eagre")

    def inside(x):
        tc.graph_break()
        tc.set_stance("force_eager")
        return x

    with pytest.raises(AssertionError, match="set_stance"):
        compiled(inside)[0](ones(2))

    @tc.disable(recursive=False)
    def sneaky(x):
        return getattr(tc, "set_stance")("force_eager")  # noqa: B009

    with pytest.raises(RuntimeError, match="while a compiled function runs"):
        compiled(lambda x: sneaky(x + 1))[0](ones(2))


class TestFewGuards:
    """skip_guard_eval_unsafe: only guards that distinguished variants, and those on tensors."""

    def test_variants_are_distinguished(self):
        def h(x, flag, k):
            return x * k if flag else x + k

        g, count = compiled(h, dynamic=False)
        calls = [(ones(3), True, 2), (ones(3), False, 2), (ones(3), False, 3)]
        expected = [g(*call) for call in calls]
        with tc.set_stance(skip_guard_eval_unsafe=True):
            for call, result in zip(calls, expected, strict=True):
                torch.testing.assert_close(g(*call), result)
        assert count.graphs == 3

    def test_many_variants_are_distinguished(self):
        def h(x, flag, k):
            return x * k if flag else x + k

        g, _ = compiled(h, dynamic=False)
        with tc.config.patch(recompile_limit=100):
            calls = [(ones(3), bool(n % 3), n % 29) for n in range(58)]
            expected = [g(*call) for call in calls]
        with tc.set_stance(skip_guard_eval_unsafe=True):
            for call, result in zip(calls, expected, strict=True):
                torch.testing.assert_close(g(*call), result)

    def test_a_guard_that_never_failed_is_skipped_and_checked_again_after(self):
        class Box:
            k = 1

        def h(x):
            return x + Box.k

        g, count = compiled(h)
        g(ones(2))
        Box.k = 5
        with tc.set_stance(skip_guard_eval_unsafe=True):
            assert g(ones(2)).tolist() == [2.0, 2.0]  # unsafe, as its name says
        assert g(ones(2)).tolist() == [6.0, 6.0]
        assert count.graphs == 2

    def test_tensors_in_containers_are_still_checked(self):
        net = torch.nn.Linear(2, 2)
        g, _ = compiled(lambda d: net(d["x"]))
        g({"x": ones(2)})
        with tc.set_stance(skip_guard_eval_unsafe=True):
            g({"x": ones(2)})
            with pytest.raises(RuntimeError):
                g({"x": ones(3, 2)})
