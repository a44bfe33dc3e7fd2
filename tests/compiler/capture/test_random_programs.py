"""Random Python over tensors: mutation, control flow, closures and breaks, against eager."""

# ruff: noqa: E501
from __future__ import annotations

import contextlib
import functools
import itertools
import textwrap

import pytest
import torch
from capture_harness import Program, check, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

TENSORS = ("x", "y", "a", "b")
NUMBERS = ("n", "m", "k")
QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


class Box:
    """What programs do with an object of a class: methods, properties, operators."""

    def __init__(self, v):
        self.v = v

    def bump(self, by):
        self.v = self.v + by
        return self.v

    @property
    def double(self):
        return self.v * 2

    @double.setter
    def double(self, value):
        self.v = value // 2

    def __add__(self, other):
        return Box(self.v + (other.v if isinstance(other, Box) else other))

    def __getitem__(self, key):
        if key > 2:
            raise IndexError(key)
        return self.v + key

    def __len__(self):
        return 3

    def __eq__(self, other):
        return isinstance(other, Box) and self.v == other.v

    def __getattr__(self, name):
        if name.startswith("late"):
            return len(name)
        raise AttributeError(name)

    def __call__(self, t, by=1, *rest, **named):
        return t * by + len(rest) + len(named)


class Trouble(Exception):
    """An exception of the programs' own."""


class Guarded:
    """A context manager that notes what happens, and swallows what it was made to swallow."""

    def __init__(self, log, swallows=()):
        self.log = log
        self.swallows = swallows

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, kind, error, trace):
        self.log.append(kind.__name__ if kind else "out")
        return kind is not None and issubclass(kind, self.swallows)


@contextlib.contextmanager
def noted(log, t):
    log.append("before")
    try:
        yield t + 1
    except ValueError as error:
        log.append(error.args)
    finally:
        log.append("after")


def counting(n, t):
    for i in range(n):
        got = yield t + i
        if got:
            t = t * got
    return n


NAMES = {
    "torch": torch, "contextlib": contextlib, "functools": functools, "itertools": itertools,
    "Box": Box, "Trouble": Trouble, "Guarded": Guarded, "noted": noted, "counting": counting,
}  # fmt: skip


def make_arguments():
    generator = torch.Generator().manual_seed(3)
    x, y = torch.randn(2, 3, generator=generator), torch.randn(2, 3, generator=generator)
    w = torch.randn(2, 3, generator=generator, requires_grad=True)
    return x, y, [x + 1, 2], {"p": y * 2, "q": 5}, Box(3), w


class Writer:
    """Writes one program; every choice is drawn, so that hypothesis can shrink it."""

    def __init__(self, draw):
        self.draw = draw
        self.depth = 0
        self.loops = 0
        self.names = 0
        self.looping = 0
        self.nested = 0

    def pick(self, *options):
        return self.draw(st.sampled_from(options))

    def some(self):
        return self.draw(st.booleans())

    def fresh(self, stem):
        self.names += 1
        return f"{stem}{self.names}"

    # -- expressions ---------------------------------------------------------------------------
    def tensor(self, depth=0):
        if depth > 1:
            return self.pick(*TENSORS)
        a, b = self.tensor(depth + 1), self.pick(*TENSORS)
        return self.pick(
            a, f"({a} + {b})", f"({a} * {self.number()})", f"torch.sin({a})", f"{a}.relu()",
            f"({a} - {b}).abs()", f"torch.where({a} > 0, {a}, {b})", f"{a}.t().t()", f"f({b}, 1)",
            f"torch.stack([{a}, {b}]).sum(0)", f"{a}.clone()", 'd["p"]', "(items[0] if items else x)",
            f"box({a}, 2)", f"box({a}, *[1, 2], k=3)", f"({a} if {self.condition()} else {b})",
            f"sum([{a}, {b}])", f"max([{a}, {b}], key=lambda t: t.shape[0])", f"torch.cat([{a}, {b}])[:2]",
            f"({a} * w)", f"(lambda t, s=m: t + s)({a})", f"[{a}, {b}][{self.pick('0', '-1', 'k % 2')}]",
            f"f(q={self.number()}, t={a})", f"(d.get('z', {a}) * 1)", f"next(iter([{a}]))",
            f"functools.reduce(lambda s, t: s + t, [{a}, {b}], 0)",
        )  # fmt: skip

    def number(self):
        return self.pick(
            *NUMBERS, "2", "len(items)", "x.shape[0]", "(n + 1)", "max(n, m)", "box.v", 'd["q"]',
            "(n if k else m)", "sum(j for j in range(3))", "len(d)", "box.double", "box[1]", "len(box)",
            "box.later", "(box + 1).v", "(n // 2 + m % 3)", "int(1.5 * m)", "len(f'{n}-{m:>3}')",
            "[n, m, k].index(m)", "(not n) + 1", "divmod(n, 3)[1]", "a.dim()", "y.size(-1)", "min(n, 4)",
            "(n, m)[k % 2]", "sum(1 for t in items if isinstance(t, int))", "len({n, m, k})", "(-n) ** 2 % 7",
        )  # fmt: skip

    def condition(self):
        return self.pick(
            f"{self.number()} > 2", "n == m", '"z" in d', "items", "not k", "isinstance(box.v, int)",
            f"{self.number()} % 2 == 0", "a is b", "k is not None", "0 < n < m",
            "n in (1, 2, 3)", "hasattr(box, 'extra')", "box == Box(3)", "any(i == n for i in (1, m))",
            "log and log[-1] == 'in'", "callable(f) and m", f"{self.pick(*TENSORS)}.sum() > 0",
            "isinstance(items[-1] if items else 0, torch.Tensor)", "a.shape == b.shape",
        )  # fmt: skip

    # -- statements ----------------------------------------------------------------------------
    def block(self):
        self.depth += 1
        count = self.draw(st.integers(1, 3))
        lines = [line for _ in range(count) for line in self.statement()]
        self.depth -= 1
        return [f"    {line}" for line in lines]

    def statement(self):
        if self.depth <= 2 and self.some():
            kinds = (
                self.branch, self.loop, self.attempt, self.closure, self.context, self.while_loop,
                self.generator, self.match, self.comprehension, self.made_class,
            )  # fmt: skip
            return self.pick(*kinds)()
        return [self.simple()]

    def simple(self):
        target, number = self.pick("a", "b"), self.pick(*NUMBERS)
        group = self.pick(self.stores, self.containers, self.changes, self.leaves)
        return group(target, number)

    def stores(self, target, number):
        return self.pick(
            f"{target} = {self.tensor()}",
            f"{number} = {self.number()}",
            f"{number} += 1",
            f"{target} += {self.tensor(1)}",
            f"a, b = b, {self.tensor(1)}",
            f"{number}, *rest = [{self.number()}, n, m]",
            f"{number} = int({target}.sum().item() > 0)",
            f"{number} = {target}.tolist()[0][0] > 0 and 1 or 2",
            f"{target} = b = {self.tensor(1)}",
            "n, m, k = m, k, n",
            f"{target} = (u := {self.tensor(1)}) + u",
            f"box += {self.number()}",
        )

    def containers(self, target, number):
        return self.pick(
            f"items.append({self.tensor(1)})",
            f"items[0] = {self.tensor(1)}",
            f"items[:1] = [{self.tensor(1)}, {number}]",
            "items = items + [n]",
            f"items.insert({number} % 2, {self.number()})",
            "items.reverse()",
            "other = items; other.append(m)",
            "del items[-1:]",
            f'd["z"] = {self.number()}',
            f'd["p"] = {self.tensor(1)}',
            "d.pop('z', None)",
            f"d.setdefault('s', []).append({self.number()})",
            f"d.update(r={self.tensor(1)}, q={number})",
            "d = {**d, 'c': n}",
            "d |= {'e': m}",
            f"log.extend([t * 2 for t in (a, b)][:{self.pick('1', '2')}])",
            "log.append(n)",
            "log += [sorted(k for k in d)]",
            "log.append((f'{n!r:>4}', str(m), type(box).__name__))",
            "log.append({**{'n': n}, 'a': a})",
            "log.append(list(zip([1, 2], (a, b), strict=False))[0])",
        )

    def changes(self, target, number):
        return self.pick(
            f"{target} = {target}.add_(1) * 1",
            f"x.mul_({self.number()})",
            f"x[0] = {number}",
            f"y[:, 0] += {self.number()}",
            f"view = x[0]; view.add_({number})",
            f"y.copy_({self.tensor(1)})",
            f"box.v = {self.number()}",
            "box.bump(1)",
            f"box.double = {self.number()}",
            f"box.extra = {self.tensor(1)}",
            "box.held = items",
            "vars(box).pop('extra', None)",
            "print(end='')",
            f"{target} = {target}.detach()",
            "other = {'box': box}; other['box'].bump(n)",
        )

    def leaves(self, target, number):
        """Statements after which the block must end."""
        jump = self.pick("break", "continue") if self.looping else "pass"
        return self.pick(
            f"if {self.condition()}: {jump}",
            f"if {self.condition()}: raise Trouble({self.number()})",
            f"if {self.condition()}: {self.result()}",
            f"assert {self.condition()}, 'asserted'",
            f"{target} = {self.tensor()}",
            f"if {self.condition()}: del spare",
            "log.append(spare)",
            f"spare = {self.number()}",
            "log.append(box[3])",
        )

    def result(self):
        if self.nested:
            return "pass"
        return f"return {self.pick('a, b', 'a', 'log, a', 'items', 'box, d')}, n, log, d, box"

    def branch(self):
        lines = [f"if {self.condition()}:", *self.block()]
        if self.some():
            lines += [f"elif {self.condition()}:", *self.block()]
        return [*lines, "else:", *self.block()] if self.some() else lines

    def in_loop(self, head):
        self.looping += 1
        lines = [head, *self.block()]
        self.looping -= 1
        return [*lines, "else:", *self.block()] if self.some() else lines

    def loop(self):
        name = self.fresh("i")
        over = self.pick(
            "range(2)", "[x, y]", "enumerate([1, 2])", "list(d)", "zip([1], [2])", "reversed([1, 2])",
            "sorted([n, m])", "box", "counting(2, a)", "(t for t in (a, b))", "map(f, [x, y])",
            "list(d.items())", "filter(None, [0, 1])", "itertools.chain([1], [2])", "{n: a}.values()",
        )  # fmt: skip
        return self.in_loop(f"for {name} in {over}:")

    def while_loop(self):
        name = self.fresh("c")
        lines = self.in_loop(f"while {name} < 2 and {self.condition()}:")
        return [f"{name} = 0", lines[0], f"    {name} += 1", *lines[1:]]

    def attempt(self):
        fault = self.pick(
            "raise ValueError(n)", "d['missing']", "int('q')", "items[99]", "pass", "raise Trouble(a)",
            "undefined_name", "box.absent", "a @ a", "next(iter([]))", "raise Trouble('x') from None",
        )  # fmt: skip
        caught = self.pick(
            "ValueError", "(KeyError, IndexError)", "Exception", "Trouble", "LookupError",
            "(NameError, AttributeError)", "RuntimeError",
        )  # fmt: skip
        lines = ["try:", *self.block(), f"    {fault}"]
        lines += [f"except {caught} as e:", *self.block(), "    log.append(type(e).__name__)"]
        if self.some():
            lines.append(
                f"    {self.pick('raise', 'raise Trouble(1) from e', 'log.append(len(e.args))')}"
            )
        if self.some():
            lines += ["else:", *self.block()]
        return [*lines, "finally:", *self.block()] if self.some() else lines

    def closure(self):
        call, over = self.fresh("g"), self.pick("n", "m")
        body = [f"    nonlocal {over}", f"    {over} = {over} + 1"] if self.some() else []
        if self.some():
            body += ["    if by > 1:", f"        return {call}(t + 1, by - 1)"]
        result = self.pick("n", "m", "1", "k", "len(rest)")
        target = self.pick("a", "b")
        rest = self.pick("", ", 1", ", by=3", ", 2, 3, 4")
        return [
            f"def {call}(t, by=2, *rest, **named):", *body, f"    return t * by + {result}",
            f"{target} = {call}({self.tensor(1)}{rest})",
        ]  # fmt: skip

    def generator(self):
        name, target = self.fresh("gen"), self.pick("a", "b")
        self.nested += 1
        looping, self.looping = self.looping, 0
        body = [f"    {line}" for _ in range(2) for line in [self.containers("a", "1")]]
        self.looping = looping
        self.nested -= 1
        body = [line for line in body if "=" not in line.split("(")[0].replace("==", "")]
        use = self.pick(
            f"{target} = sum({name}())", f"log.extend({name}())", f"{target} = next({name}())",
            f"first, *others = {name}()", f"{target} = max({name}(), key=lambda t: t.shape[0])",
            f"it = {name}(); next(it); {target} = it.send(2)", f"log.append(list({name}())[:1])",
        )  # fmt: skip
        kind = self.pick(f"yield {self.tensor(1)}", "got = yield a; yield a * (got or 1)",
                         f"yield from counting(2, {self.pick(*TENSORS)})")  # fmt: skip
        return [f"def {name}():", *body, "    yield b", f"    {kind}", use]

    def comprehension(self):
        return [
            self.pick(
                f"items = [t for t in items if not {self.condition()}]",
                f"log.append([i * n for i in range(3) if i != {self.number()}])",
                "d = {k: v for k, v in d.items() if k != 'z'}",
                "log.append({i % 2 for i in range(n % 5)})",
                f"a = sum(t * i for i, t in enumerate([a, {self.tensor(1)}]))",
                "log.append([[i + j for i in range(2)] for j in range(2)])",
                "log.append({str(i): a + i for i in range(2)})",
                "b = torch.stack([t for t in (a, b)]).mean(0)",
            )
        ]

    def match(self):
        return [
            f"match {self.pick('n', '(n, m)', 'd', 'items', 'box')}:",
            f"    case {self.pick('1', '[first, *_]', '{chr(113): found}'.replace('chr(113)', repr('q')), 'Box(v=3)', '(1, 2)')}:",
            *[f"    {line}" for line in self.block()],
            f"    case {self.pick('int()', 'Box()', '[_, _]', 'dict()')} if {self.condition()}:",
            *[f"    {line}" for line in self.block()],
        ]

    def made_class(self):
        name, target = self.fresh("Made"), self.pick("a", "b")
        return [
            f"class {name}(Box):",
            f"    scale = {self.pick('2', 'n', 'm + 1')}",
            "    def bump(self, by):",
            f"        return super().bump(by + {self.pick('1', 'self.scale', 'n')})",
            f"made = {name}({self.number()}); made.bump(2)",
            f"{target} = {target} * made.v; log.append((type(made).__name__, made.v, made.double))",
        ]

    def context(self):
        head = self.pick(
            f"with torch.set_grad_enabled({self.pick('True', 'False')}):",
            f"with Guarded(log, {self.pick('()', 'Trouble', '(ValueError, KeyError)', 'Exception')}):",
            "with Guarded(log) as held, torch.no_grad():",
            f"with noted(log, {self.tensor(1)}) as a:",
            "with contextlib.suppress(Trouble, IndexError):",
            "with contextlib.ExitStack() as stack:",
        )
        first = ["    stack.callback(log.append, 'exit')"] if "ExitStack" in head else []
        return [head, *first, *self.block()]

    def program(self):
        start = [
            "a, b = x + 1, y",
            "n, m, k, spare = 1, 2, 3, 4",
            "log = []",
            "def f(t, q=2): return t * q",
        ]
        body = [line for _ in range(self.draw(st.integers(1, 5))) for line in self.statement()]
        end = [f"return {self.pick('a, b', 'a', 'log, a')}, n, m, k, items, log, d, box"]
        return "def program(x, y, items, d, box, w):\n" + textwrap.indent(
            "\n".join([*start, *body, *end]), "    "
        )


@st.composite
def programs(draw):
    return Writer(draw).program()


def eager_can(program: Program) -> bool:
    """Return whether eager mode finds the gradients: not if their inputs were written over since."""
    try:
        run(program.fn, program)
    except RuntimeError:
        return False
    return True


def agrees(source: str) -> None:
    space = {**NAMES, "__name__": "random_program"}
    exec(compile(source, "<string>", "exec"), space)
    if not eager_can(Program(space["program"], make_arguments)):
        return
    try:
        check(Program(space["program"], make_arguments))
    except Exception as error:
        raise AssertionError(f"{error}\n\n{source}") from error


@settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=QUIET)
@given(programs())
def test_random_programs(source):
    agrees(source)


@pytest.mark.slow
@settings(max_examples=10_000, deadline=None, suppress_health_check=QUIET)
@given(programs())
def test_many_random_programs(source):
    agrees(source)
