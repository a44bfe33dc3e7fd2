"""Breaks inside inlined callees, loops and except blocks: the frame continues where it broke."""

from __future__ import annotations

import contextlib
import sys
import time
from types import FunctionType

import pytest
import torch
from capture_harness import Programs, check, two_tensors

import tc
from tc import trace
from tc.compiler import api

program = Programs()


class Block(torch.nn.Module):
    """A module that breaks in its forward."""

    def __init__(self, scale=2.0):
        super().__init__()
        self.scale = scale
        self.weight = torch.nn.Parameter(torch.full((4,), 0.5))

    def forward(self, x):
        x = x * self.scale
        print(end="")
        return x + self.weight


class Outer(Block):
    """Calls its parent's forward through super()."""

    def forward(self, x):
        y = super().forward(x + 1)
        return super().forward(y) * 2


class Wrapped:
    """An object with __call__."""

    def __call__(self, x):
        print(end="")
        return x - 1


def breaks_in_middle(t, by=2):
    u = t * by
    print(end="")
    return u + by


elsewhere = {"__builtins__": __builtins__, "__name__": "elsewhere", "factor": 3, "torch": torch}
exec("def far(t):\n    u = t * factor\n    time()\n    return u + factor\n", elsewhere)
elsewhere["time"] = time.time


@program(graphs=2, breaks=1)
def two_deep(x, y):
    def low(t):
        u = t * 2
        print(end="")
        return u + 1

    def mid(t):
        return low(t + 1) * 3

    return mid(x) + y


@program(graphs=2, breaks=1)
def keyword_arguments(x, y):
    a = breaks_in_middle(t=x, by=3)
    return a + breaks_in_middle.__defaults__[0] * y


@program(graphs=2, breaks=1)
def unpacked_arguments(x, y):
    return breaks_in_middle(*(x,), **{"by": 4}) + y


@program(graphs=2, breaks=1)
def other_globals(x, y):
    return elsewhere["far"](x) + y


@program(graphs=3, breaks=2)
def methods_and_super(x, y):
    return METHODS(x) + y


METHODS = Outer()


@program(graphs=2, breaks=1)
def object_with_call(x, y):
    return Wrapped()(x + 1) + y


@program(graphs=2, breaks=1)
def closures_of_the_callee(x, y):
    def inner(t):
        n = 1

        def bump():
            nonlocal n, x
            n += 1
            x = x + n

        bump()
        print(end="")
        bump()
        return t * n

    z = inner(y)
    return x, z


@program(graphs=3, breaks=2)
def tensor_branch_in_callee(x, y):
    def pick(t):
        u = t + 1
        if u.sum() > 0:
            return u * 2
        return u * 3

    return pick(x) + pick(y) * 0


@program(graphs=2, breaks=1)
def items_in_callee(x, y):
    def number(t):
        return int(t.argmax().item()) + 1

    return x * number(y)


@program()
def raises_in_callee(x, y):
    def inner(t):
        u = t * 2
        raise_it(u)
        return u

    try:
        y = inner(x)
    except ValueError as error:
        y = y * len(error.args)
    return y + 1


@tc.disable
def raise_it(t):
    raise ValueError(1, 2, 3)


@program()
def caught_two_frames_up(x, y):
    seen = []

    def low(t):
        seen.append(1)
        raise_it(t + 1)
        seen.append(2)

    def mid(t):
        try:
            low(t * 2)
        finally:
            seen.append(3)

    try:
        mid(x)
    except ValueError:
        x = x - 1
    return x + y, seen


@program()
def raised_after_the_break(x, y):
    def inner(t):
        print(end="")
        raise KeyError("late")

    try:
        inner(x)
    except KeyError as error:
        return x * 2, str(error)
    return y


@program()
def in_except_block(x, y):
    try:
        raise ValueError("a")
    except ValueError as error:
        z = x * 2
        print(end="")
        kept = sys.exc_info()[1] is error
        z = z + len(error.args)
    return z + y, kept, sys.exc_info()[0]


@program()
def callee_in_except_block(x, y):
    def inner(t):
        print(end="")
        return t + 1, sys.exc_info()[0]

    try:
        raise ValueError("a")
    except ValueError:
        z, kind = inner(x)
    return z + y, kind


@program()
def bare_raise_behind_a_break(x, y):
    try:
        try:
            raise ValueError("a")
        except ValueError:
            y = y + 1
            print(end="")
            raise
    except ValueError as error:
        return x * 2, y, str(error)


@program()
def context_of_a_late_error(x, y):
    try:
        try:
            raise ValueError("a")
        except ValueError:
            y = y + 1
            print(end="")
            raise KeyError("b")  # noqa: B904
    except KeyError as error:
        return y, type(error.__context__)


@program()
def finally_behind_a_break(x, y):
    seen = []
    try:
        try:
            x = x + 1
            raise_it(x)
        finally:
            seen.append(x * 2)
            print(end="")
            seen.append(sys.exc_info()[0])
    except ValueError:
        seen.append(y)
    return seen


@program()
def loop(x, y):
    for i in range(6):
        x = x + i
        print(end="")
        x = x * 2
    return x * y


@program()
def loop_in_callee(x, y):
    def inner(t):
        total = t
        for name, scale in {"a": 1, "b": 2, "c": 3}.items():
            total = total * scale
            print(end="")
            total = total + len(name)
        return total

    return inner(x) + inner(y)


@program()
def loop_with_break_and_else(x, y):
    found = []
    for i in range(5):
        x = x + 1
        if x.sum() > 20:
            break
        found.append(i)
    else:
        x = x * 100
    return x, found


@program()
def comprehension(x, y):
    return [t * int((t * 0).sum().item() + 2) for t in (x, y)]


@program()
def dict_and_set_comprehension(x, y):
    a = {i: t * int((t * 0).sum().item() + 2) for i, t in enumerate((x, y))}
    return a, {int((t * 0).sum().item()) + 2 for t in (x, y)}


@program()
def loop_over_a_generator(x, y):
    def numbers():
        yield 1
        yield 2
        yield 3

    for n in numbers():
        x = x * n
        print(end="")
    return x


@program()
def with_blocks_in_callee(x, y):
    log = []

    @contextlib.contextmanager
    def noted(name):
        log.append(name)
        try:
            yield len(log)
        finally:
            log.append(f"/{name}")

    def inner(t):
        with torch.no_grad(), noted("a") as n:
            u = t * n
            print(end="")
            return u + n, torch.is_grad_enabled()

    with noted("b"):
        z = inner(x)
    return z, log, torch.is_grad_enabled()


@program()
def while_true(x, y):
    n = 0
    while True:
        x = x + 1
        n += int((x * 0).sum().item()) + 1
        if n == 4:
            return x, n


@program()
def mutations_of_the_callee(x, y):
    box = {"a": [x]}

    def inner(items):
        items.append(y * 2)
        print(end="")
        items[0] = items[0] + 1
        return len(items)

    n = inner(box["a"])
    return box, n


@program()
def recursion(x, y):
    def down(t, n):
        if n == 0:
            print(end="")
            return t
        return down(t + n, n - 1) * 2

    return down(x, 3) + y


@pytest.mark.sample(5)
@pytest.mark.parametrize("case", program, ids=lambda case: case.name)
def test_program(case):
    check(case)


def test_a_module_that_breaks_makes_two_graphs():
    model, x = Block(), torch.randn(3, 4)
    explained = tc.explain(lambda t: model(t).sin())(x)
    assert (explained.graph_count, explained.graph_break_count) == (2, 1)


def test_gradients_flow_through_a_nested_break():
    model = Outer()
    x = torch.randn(3, 4, requires_grad=True)
    want = torch.autograd.grad(model(x).sum(), [x, model.weight])
    got = torch.autograd.grad(tc.compile(model)(x).sum(), [x, model.weight])
    torch.testing.assert_close(got, want)


def test_a_long_loop_neither_deepens_the_stack_nor_compiles_each_turn():
    def many(x, n):
        for _ in range(n):
            x = x + 1
            print(end="")
        return x

    tc.reset()
    compiled = tc.compile(many, backend="eager")
    x = torch.zeros(2)
    compiled(x, 5)
    with trace.capture_events() as events:
        assert compiled(x, 3000).tolist() == [3000.0, 3000.0]
    assert len(events.of(trace.GraphBreak)) <= 8


def test_the_iterations_of_a_loop_share_their_code():
    def each(x, items):
        for scale in items:
            x = x * scale
            print(end="")
            x = x + 1
        return x

    tc.reset()
    compiled = tc.compile(each, backend="eager", dynamic=False)
    items = [torch.full((2,), float(n)) for n in range(12)]
    with trace.capture_events() as events:
        got = compiled(torch.ones(2), items)
    assert torch.equal(got, each(torch.ones(2), items))
    assert len(events.of(trace.GraphBreak)) <= 3


def test_an_iterator_kept_over_a_break_is_followed():
    def kept(x, items):
        it = iter(items)
        first = next(it)
        print(end="")
        return x * first, list(it)

    tc.reset()
    compiled = tc.compile(kept, backend="eager")
    for _ in range(2):
        product, rest = compiled(torch.ones(2), [3, 4, 5])
        assert product.tolist() == [3.0, 3.0] and rest == [4, 5]


def test_the_iterations_of_a_loop_are_no_breaks_of_their_own():
    tc.reset()
    with trace.capture_events() as events:
        tc.compile(loop, backend="eager")(*two_tensors())
    assert {reported.code for reported in events.of(trace.GraphBreak)} == {"TC104"}
    assert not [s for s in events.of(trace.FrameSkipped) if "loop" in s.reason]


def test_an_error_behind_a_nested_break_names_the_callees_line():
    def inner(t):
        print(end="")
        return t @ torch.ones(7)

    tc.reset()
    with pytest.raises(RuntimeError) as caught:
        tc.compile(lambda x: inner(x) + 1, backend="eager")(torch.ones(2, 3))
    lines = {entry.lineno for entry in caught.traceback}
    assert inner.__code__.co_firstlineno + 1 in lines  # pytest counts from 0


def test_functions_made_again_share_what_was_compiled():
    def apply(f, x):
        return f(x) + 1

    tc.reset()
    compiled = tc.compile(apply, backend="eager")
    for _ in range(3):
        compiled(lambda t: t * 2, torch.ones(2))
    assert api.graph_stats()["graphs"] == 1


def test_a_function_of_other_code_is_compiled_again():
    def apply(f, x):
        return f(x) + 1

    tc.reset()
    compiled = tc.compile(apply, backend="eager")
    double = FunctionType((lambda t: t * 2).__code__, {})
    assert compiled(double, torch.ones(2)).tolist() == [3.0, 3.0]
    assert compiled(lambda t: t * 5, torch.ones(2)).tolist() == [6.0, 6.0]


def _names_of_caller():
    return sorted(name for name in sys._getframe(1).f_locals if not name.startswith("___"))


def _reads_locals_by_vars(x):
    z = x.shape[0]
    print(end="")
    del x
    return torch.ones(z), "{z}".format(**vars()), dir(), sorted(locals())


def _evaluates(x):
    z = x + 3  # noqa: F841
    w = 5  # noqa: F841
    exec("assert w == 5")
    return x + 1, eval("z * w")


def _reads_own_frame(x, w=3):
    w = x.dim() + 4
    return x + sys._getframe().f_locals["w"], w


def _is_read_by_its_callee(x):
    z, w = 5, 2
    del w
    return x + z, _names_of_caller()


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "f", [_reads_locals_by_vars, _evaluates, _reads_own_frame, _is_read_by_its_callee]
)
def test_code_that_looks_at_the_frame_sees_the_locals_of_eager(f):
    compiled = tc.compile(f)
    for size in (2, 3, 4):
        assert repr(compiled(torch.ones(size))) == repr(f(torch.ones(size)))
