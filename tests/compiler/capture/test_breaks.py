"""Graph breaks at every place: what runs around them is what eager runs, and they are counted."""

# ruff: noqa: PLW0603
from __future__ import annotations

import contextlib
import logging
import random
import time

import pytest
import torch
from capture_harness import Programs, check, two_tensors

import tc
from tc import trace
from tc.compiler import frames
from tc.compiler.capture import breaks
from tc.compiler.errors import BackendError, Unsupported

program = Programs()
total = 0
store: dict = {}


class Thing:
    def __init__(self, v):
        self.v = v

    def step(self, t):
        self.v += 1
        out = t * self.v
        print(end="")
        self.v += 1
        return out + self.v


class Enter:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, *exc):
        self.log.append(exc[0].__name__ if exc[0] else "out")
        return exc[0] is KeyError


class Choosing:
    @property
    def way(self):
        print(end="")
        return torch.sub


@contextlib.contextmanager
def scope(log):
    log.append("enter")
    try:
        yield 3
    finally:
        log.append("exit")


@program(graphs=2, breaks=1)
def at_top(x, y):
    a = x + 1
    print(end="")
    return a * y


@program(graphs=3, breaks=2)
def twice(x, y):
    a = x + 1
    print(end="")
    b = a * y
    time.time()
    return b - a


@program(graphs=2, breaks=1)
def in_an_expression(x, y):
    return [x + 1, (y * 2, str(print(end="")), x - y)]


@program(graphs=2, breaks=1)
def in_a_call_argument(x, y):
    return torch.add(x * 2, y - 1 + (0 if print(end="") else 1), alpha=2)


@program(graphs=2, breaks=2)  # the second is the property's own
def where_a_method_is_loaded(x, y):
    return x + 1, Choosing().way(x, y, alpha=2)


@program(graphs=2, breaks=1)
def data_dependent_branch(x, y):
    z = x.sum()
    if z > 1000:
        return y
    return z + y


@program(graphs=2, breaks=1)
def data_dependent_and(x, y):
    z = x + y
    return z.sum() > -1000 and z * 2


@program(graphs=2, breaks=1)
def data_dependent_while(x, y):
    x = x.abs() + 1
    while x.sum() < 0:
        x = x * 2
    return x + y


@program(graphs=2, breaks=1)
def item(x, y):
    n = x.argmax().item()
    return y * n, n


@program(graphs=2, breaks=1)
def tolist(x, y):
    rows = (x + 1).tolist()
    return y * rows[0][0], rows


@program(graphs=2, breaks=1)
def with_no_grad(x, y):
    a = x + 1
    with torch.no_grad():
        b = a * 2
        print(end="")
        c = b + y
    return c, torch.is_grad_enabled()


@program(make=lambda: (two_tensors()[0].requires_grad_(), two_tensors()[1]))
def grad_through_a_break(x, y):
    a = x * y
    with torch.no_grad():
        print(end="")
        b = a * 2
    print(end="")
    return a.sin() + b


@program(breaks=1)
def in_own_context(x, y):
    log = []
    with Enter(log) as e:
        a = x + 1
        print(end="")
        b = a * len(e.log)
    return b + y, log


@program()
def in_generator_context(x, y):
    log = []
    with scope(log) as n:
        a = x + n
        print(end="")
        b = a * 2
    return b + y, log


@program()
def raise_in_context_after_a_break(x, y):
    log = []
    with Enter(log):
        a = x + 1
        print(end="")
        log.append(a)
        raise KeyError("k")
    return a + y, log


@program(breaks=1)
def in_try(x, y):
    a = x + 1
    try:
        print(end="")
        b = a * 2
        int("zz")
    except ValueError:
        b = a * 3
    return b + y


@program(breaks=1)
def raising_instruction_in_try(x, y):
    a = x + 1
    try:
        int("zz" if x.sum().item() > -1e9 else "1")
    except ValueError:
        a = a * 3
    return a + y


@program()
def in_except(x, y):
    a = x + 1
    try:
        int("zz")
    except ValueError as e:
        print(end="")
        a = a * 3
        text = str(e)
    return a + y, text


@program()
def in_finally(x, y):
    a = x + 1
    try:
        b = a * 2
    finally:
        print(end="")
        a = a + 5
    return a + b


@program()
def raising_function(x, y):
    a = x + 1
    raise ValueError(f"no {a.shape[0]}")


@program()
def raising_after_a_mutation(x, y):
    store["k"] = x + 1
    x.add_(1)
    raise KeyError("gone")


@program()
def in_loop(x, y):
    for i in range(3):
        x = x + i
        print(end="")
    return x * y


@program()
def in_while(x, y):
    n = 0
    while n < 3:
        n += int((x * 0).sum().item()) + 1
        y = y * n
    return y, n


@program()
def in_nested_loop_with_state(x, y):
    out = []
    for i in range(2):
        for name, t in {"a": x, "b": y}.items():
            out.append((name, t * i))
            if t.sum() > 1e9:
                break
    return out


@program()
def in_comprehension(x, y):
    return [t * int(t.sum().item() * 0 + 2) for t in (x, y)]


@program(graphs=3, breaks=2)
def in_callee_twice(x, y):
    def inner(t):
        u = t * 2
        print(end="")
        return u + 1

    a = inner(x)
    return inner(a) + y


@program()
def in_callee_of_callee(x, y):
    def low(t):
        print(end="")
        return t + 1

    def mid(t):
        return low(t * 2) * 3

    return mid(x) + y


@program(make=lambda: (*two_tensors(), Thing(1)))
def in_method_with_state(x, y, thing):
    a = thing.step(x)
    thing.v *= 2
    return a + thing.step(y), thing


@program()
def cells(x, y):
    k = x + 1

    def f():
        return k * 2

    print(end="")
    k = k + y
    return f()


@program()
def cell_stored_before_and_after(x, y):
    n = 1

    def bump():
        nonlocal n
        n += 1

    bump()
    print(end="")
    bump()
    return x * n, n


@program(watched=("total", "store"))
def globals_before_and_after(x, y):
    global total
    total += 1
    store["a"] = x + total
    print(end="")
    total += 1
    store["b"] = store["a"] + total
    return y * total


@program(make=lambda: (*two_tensors(), Thing(1), [1]))
def stores_before_and_after(x, y, thing, items):
    thing.v = x * 2
    items.append(thing.v)
    print(end="")
    thing.w = items[-1] + y
    items[0] = thing
    return items, thing.w


@program(make=lambda: (*two_tensors(), [0]))
def order_of_effects(x, y, items):
    items.append(1)
    seen = list(items)
    print(end="")
    items.append(2)
    return x + len(items), seen


@program(make=lambda: (lambda a: (a, a, [a]))(two_tensors()[0]))
def aliases_survive(x, y, items):
    z = x.view(-1)
    print(end="")
    z.add_(1)
    items.append(z)
    return x, y, z, items


@program()
def unbound_locals(x, y):
    if x.shape[0] == 3:
        a = x + 1
    else:
        b = y  # noqa: F841
    print(end="")
    return a * 2


@program()
def iterator_over_a_break(x, y):
    it = iter([x, y, x])
    a = next(it)
    print(end="")
    return a + next(it), list(it)


@program()
def generator_over_a_break(x, y):
    def g():
        yield x + 1
        yield y + 1

    it = g()
    a = next(it)
    print(end="")
    return a + next(it)


@program()
def functions_over_a_break(x, y):
    def f(a, b=3, *, c=4):
        return a + b * c + x

    print(end="")
    return f(y), f(y, c=1), f.__name__, f.__defaults__


@program()
def a_function_without_cells_over_a_break(x, y):
    def f(a):
        return a + 1

    print(end="")
    return f(y), f.__closure__, f.__defaults__, f.__kwdefaults__


@program()
def values_on_the_stack(x, y):
    return {"a": x + 1, "b": [y, print(end="")], **{"c": x * 2}}, f"{x.shape}{print(end='')}"


@program()
def method_call_with_break(x, y):
    return x.add(y * (2 if print(end="") is None else 3)).mul(2)


@program(graphs=2, breaks=1)
def explicit(x, y):
    a = x + 1
    tc.graph_break()
    return a + y


@tc.disable
def disabled(t):
    return t * 2


@program(graphs=2, breaks=1)
def disabled_function(x, y):
    return disabled(x + 1) + y


@program()
def del_after(x, y):
    a = x + 1
    b = y + 1
    del a
    print(end="")
    return b


@pytest.mark.sample(8)
@pytest.mark.parametrize("case", program, ids=lambda case: case.name)
def test_program(case):
    check(case)


# -- what is reported ------------------------------------------------------------------------
def test_break_names_the_users_line():
    with trace.capture_events() as events:
        tc.reset()
        tc.compile(item, backend="eager")(*two_tensors())
    (reported,) = events.of(trace.GraphBreak)
    assert reported.code == "TC101"
    assert reported.source_line.strip() == "n = x.argmax().item()"
    assert reported.function == "item" and reported.fix


def test_fullgraph_raises_at_the_first_break():
    with pytest.raises(Unsupported, match="TC104 graph break under fullgraph=True") as caught:
        tc.compile(at_top, backend="eager", fullgraph=True)(*two_tensors())
    assert 'print(end="")' in str(caught.value)


def test_a_frame_left_to_python_is_an_error_under_fullgraph(monkeypatch):
    def skip(*args, **kwargs):
        raise breaks.SkipFrame("it cannot be followed")

    tc.reset()
    monkeypatch.setattr(frames, "translate", skip)
    assert torch.equal(tc.compile(at_top, backend="eager")(*two_tensors()), at_top(*two_tensors()))
    tc.reset()
    with pytest.raises(Unsupported, match="it cannot be followed"):
        tc.compile(at_top, backend="eager", fullgraph=True)(*two_tensors())


def test_fullgraph_of_a_whole_graph_is_silent():
    f = tc.compile(lambda x: x.sin() + 1, backend="eager", fullgraph=True)
    x = torch.ones(2)
    assert torch.equal(f(x), x.sin() + 1)


def test_an_operation_that_reads_addresses_runs_on_real_tensors_only():
    addresses = []

    def reading(x):
        addresses.append(x.data_ptr())
        return x.clone()

    with torch.library._scoped_library("tc_addresses", "FRAGMENT") as library:
        library.define("reading(Tensor x) -> Tensor")
        library.impl("reading", reading, "CompositeImplicitAutograd")

        def f(x):
            return torch.ops.tc_addresses.reading(x) * 2

        x = torch.ones(2)
        assert torch.equal(tc.compile(f, backend="eager")(x), x * 2)
        assert addresses == [x.data_ptr()]
        with pytest.raises(tc.exc.TorchRuntimeError, match="data pointer"):
            tc.compile(f, backend="eager", fullgraph=True)(x)


LINEAR = torch.nn.Linear(2, 2)


@torch.compiler.disable
def left_by_torch(x):
    return x + 1


@pytest.mark.parametrize(
    ("function", "code"),
    [
        (lambda x: LINEAR(x).sum().backward(), "TC113"),
        (left_by_torch, "TC106"),
        (torch.optim.SGD(LINEAR.parameters()).zero_grad, "TC106"),
    ],
    ids=["backward", "disabled", "zero_grad"],
)
def test_breaks_asked_for_in_torchs_own_words(function, code):
    with pytest.raises(Unsupported, match=code):
        tc.compile(lambda x: function(x), backend="eager", fullgraph=True)(torch.ones(2, 2))


@pytest.mark.slow
def test_a_recursion_that_has_no_end_is_pythons_error():
    def down(x, n):
        if n == 0:
            print(end="")
            return x
        return down(x + 1, n - 1) + 1

    compiled = tc.compile(down, backend="eager")
    x = torch.zeros(2)
    assert torch.equal(compiled(x, 3), down(x, 3))
    with pytest.raises(RecursionError):
        compiled(x, 100_000)
    assert torch.equal(compiled(x, 4), down(x, 4))
    assert torch.equal(compiled(x, 500), x + 1000)


def test_a_recursion_without_end_in_a_backend_is_a_failed_compile():
    def backend(gm, inputs):
        raise RecursionError("too deep")

    with pytest.raises(BackendError, match="too deep"):
        tc.compile(lambda x: x + 1, backend=backend)(torch.ones(2))


def test_a_call_of_a_logger_breaks_by_its_own_reason(monkeypatch):
    log = logging.getLogger(__name__)

    def f(x):
        log.info("seen %s", x.sum())
        return x * 2

    with trace.capture_events() as found:
        tc.compile(f)(torch.ones(2))
    (broke,) = [one for one in found if isinstance(one, trace.GraphBreak)]
    assert broke.code == "TC104" and broke.title == "call of Logger.info while tracing"
    assert broke.fix[0].startswith("tc.config.ignore_logger_methods.add(it)")
    monkeypatch.setattr(tc.config, "ignore_logger_methods", {log.info})
    tc.reset()
    with trace.capture_events() as found:
        tc.compile(f)(torch.ones(2))
    assert not any(isinstance(one, trace.GraphBreak) for one in found)


@pytest.mark.parametrize(
    ("called", "code", "fix"),
    [
        (lambda x: x * random.choice([2, 3]), "TC104", "call it outside of the compiled function"),
        (lambda x: x * min(time.perf_counter(), 1.0), "TC104", "call it outside"),
        (lambda x: x[x.long()[0, 0], [0, 1]], "TC101", "gather in place of indexing"),
        (lambda x: x * [2, 3][x.long()[0].tolist()[1]], "TC111", "read it outside"),
    ],
)  # fmt: skip
def test_advice_follows_what_is_called(called, code, fix):
    with trace.capture_events() as found:
        tc.compile(called)(torch.zeros(2, 2))
    broke = [one for one in found if isinstance(one, trace.GraphBreak)]
    assert broke and broke[0].code == code and broke[0].fix[0].startswith(fix)
    assert not any("is_compiling" in text for text in broke[0].fix)
