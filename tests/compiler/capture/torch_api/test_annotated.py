"""What users say of their functions and tensors, and what compiled code makes of it."""

from __future__ import annotations

import dataclasses
import functools
import operator
import sys

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

import tc
from tc import trace
from tc.compiler.capture.torch_api import annotated


class Count:
    """A backend that counts its graphs, and keeps the targets of their calls."""

    def __init__(self):
        self.graphs = 0
        self.targets = []

    def __call__(self, gm, example_inputs):
        self.graphs += 1
        self.targets += [n.target for n in gm.graph.nodes if n.op.startswith("call")]
        return gm.forward


@pytest.fixture(autouse=True)
def fresh():
    tc.reset()


@pytest.fixture
def count():
    return Count()


def check(fn, *args, backend="eager", **options):
    """Compare a compiled call with the eager one."""
    compiled = tc.compile(fn, backend=backend, **options)
    torch.testing.assert_close(compiled(*args), fn(*args))
    return compiled


def x():
    return torch.linspace(-1, 1, 4)


@dataclasses.dataclass
class Pair:
    first: torch.Tensor
    second: torch.Tensor
    scale: int = 1


pytree.register_pytree_node(
    Pair,
    lambda pair: ([pair.first, pair.second], pair.scale),
    lambda children, scale: Pair(*children, scale),
)


# -- recorded whole ------------------------------------------------------------------------------
def test_allowed_functions_are_one_node(count):
    @tc.allow_in_graph
    def opaque(x, k):
        torch.manual_seed  # noqa: B018 - something to look into
        return (x * k, {"sum": x.sum()})

    def f(x):
        product, rest = opaque(x.sin(), 3)
        return product + rest["sum"]

    check(f, x(), backend=count, fullgraph=True)
    assert opaque in count.targets and "sum" not in count.targets


def test_allowed_lists_and_what_is_no_function():
    def one(x):
        return x + 1

    def two(x):
        return x + 2

    assert tc.allow_in_graph([one, two]) == [one, two]
    check(lambda x: one(x) * two(x), x(), fullgraph=True)
    with pytest.raises(tc.exc.OptionError):
        tc.allow_in_graph(3)


def test_nonstrict_trace_takes_and_gives_trees(count):
    @tc.nonstrict_trace
    def mix(pair, named, *, k):
        tc.graph_break()
        out = Pair(pair.first * k, named["b"][0] + pair.second, pair.scale + 1)
        return {"pair": out, "list": [named["b"][0], 5]}

    def f(x):
        found = mix(Pair(x.sin(), x.cos(), 2), {"b": (x,)}, k=3)
        pair = found["pair"]
        return pair.first * pair.scale + pair.second + found["list"][0] * found["list"][1]

    check(f, x(), backend=count, fullgraph=True)
    p = x().requires_grad_()
    tc.compile(f, backend="eager", fullgraph=True)(p).sum().backward()
    q = x().requires_grad_()
    f(q).sum().backward()
    torch.testing.assert_close(p.grad, q.grad)

    class Unknown:
        pass

    with pytest.raises(tc.exc.Unsupported):
        tc.compile(lambda x: mix(Unknown(), {"b": [x]}, k=1), fullgraph=True)(x())


# -- between graphs, not at all, once ------------------------------------------------------------
def test_disallowed_functions_run_between_graphs(count, monkeypatch):
    monkeypatch.setattr(annotated, "_ANNOTATIONS", {**annotated._ANNOTATIONS})  # i1 is torch's

    def sub_copy(x):
        return x

    tc.disallow_in_graph(torch.special.i1)
    check(lambda x: torch.special.i1(x.sin()).cos(), x(), backend=count)
    assert count.graphs == 2
    with pytest.raises(tc.exc.OptionError, match=r"tc\.disable"):
        tc.disallow_in_graph(sub_copy)


def test_not_recursive_leaves_out_the_function_alone(count):
    def below(x):
        return x.sin()

    @tc.disable(recursive=False)
    def between(x):
        seen.append(tc.is_compiling())
        return below(x.sigmoid().cos())

    seen = []
    check(lambda x: between(x.tan()), x(), backend=count)
    assert seen == [False, False]
    assert count.targets == ["tan", "sin"]


def test_forbidden_functions_raise_in_compiled_code_only():
    @tc.forbid_in_graph
    def outside():
        return 1

    assert outside() == 1
    with pytest.raises(tc.exc.ForbiddenCall, match=r"outside\(\).*test_annotated"):
        tc.compile(lambda x: x + outside(), backend="eager")(x())
    with pytest.raises(AssertionError, match="mark_dynamic"):
        tc.compile(lambda x: tc.mark_dynamic(x, 0), backend="eager")(x())


def test_constant_results_are_worked_out_once(count):
    calls = []

    @tc.assume_constant_result
    def table(n, names):
        calls.append(n)
        return torch.full((4,), float(n)) if names == ("a",) else [n, n + 1]

    def f(x, names):
        found = table(3, names)
        return x + found if isinstance(found, torch.Tensor) else x * found[1]

    for names in (("a",), ("b",)):
        compiled = tc.compile(f, backend=count, fullgraph=True)
        for _ in range(3):
            torch.testing.assert_close(
                compiled(x(), names), x() + 3 if names[0] == "a" else x() * 4
            )
    assert calls == [3, 3]


class TestSubstitutes:
    def test_traced_in_place_of_the_original(self):
        calls = []

        @tc.substitute_in_graph(operator.indexOf)
        def index_of(a, b, /):
            calls.append(1)
            for index, item in enumerate(a):
                if item == b:
                    return index
            raise ValueError("not there")

        def f(x):
            return x + operator.indexOf([1, 2, 3], 3)

        check(f, x(), fullgraph=True)
        check(lambda x: x + index_of([1, 2, 3], 2), x(), fullgraph=True)
        assert index_of([4, 5], 5) == 1
        with pytest.raises(ValueError, match="already has a substitute"):
            tc.substitute_in_graph(operator.indexOf)(index_of)

    def test_folded_where_it_can_be(self):
        calls = []

        def original(a):
            calls.append("original")
            return a + 1

        @tc.substitute_in_graph(original, can_constant_fold_through=True)
        def twin(a):
            return a + 1

        tc.compile(lambda x: x + original(1), backend="eager", fullgraph=True)(x())
        assert calls == ["original"]
        check(lambda x: original(x) * 2, x(), fullgraph=True)

    def test_refused(self):
        with pytest.raises(TypeError, match="function"):
            tc.substitute_in_graph(3)
        with pytest.raises(TypeError, match="other parameters"):
            tc.substitute_in_graph(operator.countOf)(lambda a: 1)
        with pytest.raises(TypeError):
            tc.substitute_in_graph(operator.countOf)(3)


# -- numpy ---------------------------------------------------------------------------------------
def test_numpy_functions_over_tensors():
    def total(a, pair):
        return np.sum(a * a) + pair["b"], [np.cos(a)]

    wrapped = tc.wrap_numpy(total)
    args = x(), {"b": x()}
    for fn in (wrapped, tc.compile(wrapped, backend="eager", fullgraph=True)):
        first, (second,) = fn(*args)
        torch.testing.assert_close(first, (x() * x()).sum() + x())
        torch.testing.assert_close(second, x().cos())
    p = x().requires_grad_()
    tc.compile(tc.wrap_numpy(lambda a: np.sum(a * a)), backend="eager", fullgraph=True)(
        p
    ).backward()
    torch.testing.assert_close(p.grad, 2 * x())


# -- graph breaks as errors ----------------------------------------------------------------------
class TestErrorOnGraphBreak:
    def test_in_blocks(self, count):
        def f(x, strict):
            x = x.sin()
            with tc.error_on_graph_break(False):
                tc.graph_break()
                x = x.cos()
            if strict:
                with tc.error_on_graph_break(True):
                    tc.graph_break()
            tc.graph_break()
            return x + 1

        check(f, x(), False, backend=count)
        assert count.graphs == 3
        with pytest.raises(tc.exc.Unsupported, match=r"error_on_graph_break\(True\)"):
            tc.compile(f, backend="eager")(x(), True)
        check(f, x(), False)  # the error left no trace

    def test_around_a_block_that_lets_breaks_pass(self, count):
        def f(x):
            with tc.error_on_graph_break(True):
                x = x.sin()
                with tc.error_on_graph_break(False):
                    tc.graph_break()
                    x = x.cos()
            tc.graph_break()
            return x + 1

        check(f, x(), backend=count)
        assert count.graphs == 3

    def test_as_decorator_of_compiled_and_of_called_functions(self):
        @tc.error_on_graph_break(True)
        def strict(x):
            tc.graph_break()
            return x + 1

        for fn in (strict, lambda x: strict(x.sin())):
            with pytest.raises(tc.exc.Unsupported):
                tc.compile(fn, backend="eager")(x())

        @tc.error_on_graph_break(False)
        def lenient(x):
            tc.graph_break()
            return x + 1

        def outer(x):
            with tc.error_on_graph_break(True):
                return lenient(x.sin())

        check(outer, x())
        with pytest.raises(tc.exc.Unsupported, match="fullgraph=True"):
            tc.compile(outer, backend="eager", fullgraph=True)(x())


def test_skip_frame_and_the_word_of_a_break(count):
    def f(x):
        x = x + 1
        tc.skip_frame("for a reason")
        return x

    def g(x):
        x = x + 1
        tc.graph_break("for another")
        return x

    with trace.capture_events() as events:
        check(f, x(), backend=count)
        assert count.graphs == 0
        check(g, x(), backend=count)
    assert "for another" in str(events.of(trace.GraphBreak)[0])


# -- dimensions ----------------------------------------------------------------------------------
class TestDimensions:
    def graphs(self, fn, mark, sizes, count):
        compiled = tc.compile(fn, backend=count)
        for n in sizes:
            t = torch.ones(n, 5)
            mark(t)
            torch.testing.assert_close(compiled(t), fn(t))
        return count.graphs

    def test_dynamic_from_the_first_compile_on(self, count):
        assert self.graphs(lambda t: t * 2, lambda t: tc.mark_dynamic(t, 0), (4, 7, 9), count) == 1

    def test_dynamic_must_not_become_a_constant(self):
        def fixed(t):
            return t.view(4, 5) * 2

        t = torch.ones(4, 5)
        tc.mark_dynamic(t, 0)
        with pytest.raises(tc.exc.ConstraintViolationError, match="maybe_mark_dynamic") as found:
            tc.compile(fixed, backend="eager")(t)
        from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

        assert isinstance(found.value, ConstraintViolationError)
        with tc.config.patch(allow_ignore_mark_dynamic=True):
            check(fixed, t)
        weak = torch.ones(4, 5)
        tc.maybe_mark_dynamic(weak, 0)
        check(fixed, weak)
        one = torch.ones(1, 5)
        tc.mark_dynamic(one, 0)
        check(lambda t: t + 1, one)  # 0 and 1 have code of their own

    def test_a_weak_mark_shares_its_symbol_with_no_equal_size(self, count):
        def scaled(t):
            return (t * 2 + 1).sum(1)

        for sizes in ((12, 12), (12, 20), (7, 9)):
            t = torch.randn(*sizes)
            tc.maybe_mark_dynamic(t, [0, 1])
            assert torch.equal(tc.compile(scaled, backend=count)(t), scaled(t))
        assert count.graphs == 1

    def test_bounds(self, count):
        def f(t):
            return t * 2 if t.shape[0] < 20 else t * 3

        def g(t):
            return t * 2 if t.shape[0] < 5 else t * 3

        def mark(t):
            tc.mark_dynamic(t, 0, min=2, max=10)

        assert self.graphs(f, mark, (4, 7, 9), count) == 1
        t = torch.ones(4, 5)
        mark(t)
        with pytest.raises(tc.exc.ConstraintViolationError):
            tc.compile(g, backend="eager")(t)
        outside = torch.ones(12, 5)
        mark(outside)
        with pytest.raises(tc.exc.ConstraintViolationError):
            tc.compile(lambda t: t + 1, backend="eager")(outside)

    def test_static_goes_under_dynamic_and_over_the_rest(self, count):
        def static(t):
            tc.mark_static(t)

        def both(t):
            tc.mark_dynamic(t, 0)
            tc.mark_static(t)

        assert self.graphs(lambda t: t * 2, static, (4, 7, 9), count) == 3
        assert self.graphs(lambda t: t * 3, both, (4, 7, 9), count) == 4

    def test_marks_made_through_torch_are_seen(self, count):
        def mark(t):
            t._dynamo_dynamic_indices = {0}  # what torch's own function leaves behind

        assert self.graphs(lambda t: t * 2, mark, (4, 7, 9), count) == 1

    def test_refused(self):
        for mark in (tc.mark_dynamic, tc.maybe_mark_dynamic, tc.mark_static, tc.mark_unbacked):
            with pytest.raises(tc.exc.OptionError, match="2 dimensions"):
                mark(torch.ones(4, 5), 2)
        with pytest.raises(tc.exc.OptionError):
            tc.mark_static(3)
        with pytest.raises(tc.exc.OptionError):
            tc.mark_static_address(3)
        assert tc.mark_static(torch.nn.Linear) is torch.nn.Linear

    def test_addresses(self, count):
        weight = torch.ones(4)
        tc.mark_static_address(weight, guard=True)
        f = tc.compile(lambda x, w: x + w, backend=count)
        f(x(), weight)
        f(x(), weight)
        assert count.graphs == 1
        f(x(), torch.ones(4))
        assert count.graphs == 2


# -- guards left out -----------------------------------------------------------------------------
class TestGuardFilter:
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)
            self.k = 1

        def forward(self, x):
            return self.linear(x) * self.k * SCALE

    def kinds(self, keep, count):
        """Return which kinds of guards a filter left, as pairs of kind and source."""
        left = []

        def spy(entries):
            wanted = keep(entries)
            left.extend(e for e, w in zip(entries, wanted, strict=True) if w)
            return wanted

        net = self.Net()
        compiled = tc.compile(net, backend=count, options={"guard_filter_fn": spy})
        torch.testing.assert_close(compiled(x()), net(x()))
        return net, compiled, left

    def test_entries_speak_the_words_of_torch(self, count):
        net, _, left = self.kinds(lambda es: [True] * len(es), count)
        types = {entry.guard_type for entry in left}
        assert {"TENSOR_MATCH", "CONSTANT_MATCH", "TYPE_MATCH", "GLOBAL_STATE"} <= types
        weight = next(e for e in left if e.value is net.linear.weight)
        assert weight.modules[-1] is net.linear and weight.has_value and not weight.is_global
        assert any(e.is_global and e.name == "G['SCALE']" for e in left)

    def test_what_a_filter_drops_is_not_checked(self, count):
        net, compiled, left = self.kinds(tc.skip_guard_on_all_nn_modules_unsafe, count)
        assert not any(entry.modules for entry in left)
        net.k = 7
        torch.testing.assert_close(compiled(x()), net(x()) / 7)  # unsafe, as its name says
        assert count.graphs == 1

    def test_ready_made_filters(self, count):
        net, compiled, left = self.kinds(tc.skip_guard_on_inbuilt_nn_modules_unsafe, count)
        assert not any(entry.modules and entry.modules[-1] is net.linear for entry in left)
        net.k = 3
        torch.testing.assert_close(compiled(x()), net(x()))
        _, _, left = self.kinds(tc.keep_tensor_guards_unsafe, count)
        assert [entry.kind for entry in left] == ["TENSOR"]
        _, _, left = self.kinds(tc.keep_portable_guards_unsafe, count)
        assert {entry.kind for entry in left} == {"TENSOR", "GLOBAL_STATE"}
        _, _, left = self.kinds(tc.skip_guard_on_globals_unsafe, count)
        assert left and not any(entry.is_global for entry in left)
        _, _, left = self.kinds(tc.skip_all_guards_unsafe, count)
        assert left == []

    def test_one_answer_a_guard(self):
        bad = tc.compile(
            lambda x: x + 1, backend="eager", options={"guard_filter_fn": lambda entries: [True]}
        )
        with pytest.raises(tc.exc.OptionError, match="guard_filter_fn"):
            bad(x())


SCALE = 2.0


def test_allowed_functions_take_frozen_dataclasses():
    @dataclasses.dataclass(frozen=True)
    class Point:
        at: torch.Tensor
        k: int = 3

    @tc.allow_in_graph
    def scaled(point, by):
        return point.at * point.k + by

    check(lambda x: scaled(Point(x.sin()), x) + scaled(Point(x, 4), by=x), x(), fullgraph=True)


def test_run_as_decorator_compiles_nothing(count):
    g = tc.compile(lambda x: x + 1, backend=count)
    assert tc.run()(g)(x()).shape == (4,) and count.graphs == 0


def test_functions_called_while_their_module_is_imported_are_left_alone(tmp_path, monkeypatch):
    source = "import torch\ndef helper(x):\n    return x + 1\nVALUE = helper(torch.ones(1))\n"
    (tmp_path / "half_made.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    seen = []

    @functools.partial(tc.disable, recursive=False)
    def load():
        import half_made

        return half_made

    def function(x):
        made = load()
        return made.helper(x) + made.VALUE

    def backend(module, inputs):
        seen.append(hasattr(sys.modules.get("half_made"), "VALUE"))
        return module.forward

    assert tc.compile(function, backend=backend)(torch.ones(1)).item() == 4
    assert seen and all(seen)


# -- functions that torch calls leaf functions ---------------------------------------------------
leaf_function = getattr(operator.attrgetter("_dynamo.decorators")(torch), "leaf_function", None)
CALLS: list[float] = []


def leaf_programs():
    @leaf_function
    def signed(x, scale):
        CALLS.append(float(x.detach().sum()))
        if x.sum() > 0:
            return x.sin(), {"more": [x * scale]}
        return x.cos(), {"more": [x - scale]}

    @signed.register_fake
    def _(x, scale):
        return torch.empty_like(x), {"more": [torch.empty_like(x)]}

    @leaf_function(mutates_args={"total"})
    def counted(total, x):
        CALLS.append(float(total))
        total.add_(1)
        return x * 2

    @counted.register_fake
    def _(total, x):
        return torch.empty_like(x)

    total = torch.zeros(())

    def structures(x):
        first, rest = signed(x.exp() - 1, 2)
        return first * 2 + rest["more"][0]

    return {"structures": structures, "writes": lambda x: counted(total, x + 1) - total}


@pytest.mark.skipif(leaf_function is None, reason="this torch has no leaf functions")
@pytest.mark.parametrize("name", ["structures", "writes"])
def test_leaf_functions_run_as_python_at_each_call_of_one_graph(name):
    """They read values and have effects: tracing runs only what describes their results."""
    function, again = leaf_programs()[name], leaf_programs()[name]
    compiled = tc.compile(again, fullgraph=True)
    for sign in (1, -1, 1):
        results = []
        for called in (function, compiled):
            CALLS.clear()
            given = (x() + 2) * sign
            given.requires_grad_()
            result = called(given)
            result.sum().backward()
            results.append((result, given.grad, list(CALLS)))
        torch.testing.assert_close(results[1], results[0])


@pytest.mark.skipif(leaf_function is None, reason="this torch has no leaf functions")
def test_a_leaf_function_without_a_fake_is_refused_as_by_eager():
    @leaf_function
    def bare(x):
        return x

    with pytest.raises(tc.exc.Unsupported, match=r"bare, which has no register_fake"):
        tc.compile(lambda x: bare(x) + 1, fullgraph=True)(x())
    with pytest.raises(ValueError, match="requires a fake implementation"):
        tc.compile(lambda x: bare(x) + 1)(x())
