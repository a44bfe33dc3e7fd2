"""Random Python over tensors: mutation, control flow, closures and breaks, against eager."""

# ruff: noqa: E501, RUF028
from __future__ import annotations

import textwrap

import pytest
import torch
from capture_harness import Program, check
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

TENSORS = ("x", "y", "a", "b")
NUMBERS = ("n", "m", "k")
QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


class Box:
    def __init__(self, v):
        self.v = v

    def bump(self, by):
        self.v = self.v + by
        return self.v


def make_arguments():
    generator = torch.Generator().manual_seed(3)
    x, y = torch.randn(2, 3, generator=generator), torch.randn(2, 3, generator=generator)
    return x, y, [x + 1, 2], {"p": y * 2, "q": 5}, Box(3)


class Writer:
    """Writes one program; every choice is drawn, so that hypothesis can shrink it."""

    def __init__(self, draw):
        self.draw = draw
        self.depth = 0
        self.loops = 0
        self.closures = 0

    def pick(self, *options):
        return self.draw(st.sampled_from(options))

    def tensor(self, depth=0):
        if depth > 1:
            return self.pick(*TENSORS)
        a, b = self.tensor(depth + 1), self.pick(*TENSORS)
        return self.pick(
            a, f"({a} + {b})", f"({a} * {self.number()})", f"torch.sin({a})", f"{a}.relu()",
            f"({a} - {b}).abs()", f"torch.where({a} > 0, {a}, {b})", f"{a}.t().t()", f"f({b}, 1)",
            f"torch.stack([{a}, {b}]).sum(0)", f"{a}.clone()", 'd["p"]', "(items[0] if items else x)",
        )  # fmt: skip

    def number(self):
        return self.pick(
            *NUMBERS, "2", "len(items)", "x.shape[0]", "(n + 1)", "max(n, m)", "box.v", 'd["q"]',
            "(n if k else m)", "sum(j for j in range(3))", "len(d)",
        )  # fmt: skip

    def condition(self):
        return self.pick(
            f"{self.number()} > 2", "n == m", '"z" in d', "items", "not k", "isinstance(box.v, int)",
            f"{self.number()} % 2 == 0", f"{self.tensor(1)}.sum() > 0", "a is b", "k is not None",
        )  # fmt: skip

    def block(self):
        self.depth += 1
        count = self.draw(st.integers(1, 3))
        lines = [line for _ in range(count) for line in self.statement()]
        self.depth -= 1
        return [f"    {line}" for line in lines]

    def statement(self):
        simple = self.depth > 2 or self.draw(st.booleans())
        if not simple:
            kinds = (self.branch, self.loop, self.attempt, self.closure, self.context)
            return self.pick(*kinds)()
        target, number = self.pick("a", "b"), self.pick(*NUMBERS)
        return [
            self.pick(
                f"{target} = {self.tensor()}",
                f"{number} = {self.number()}",
                f"{number} += 1",
                f"{target} += {self.tensor(1)}",
                f"{target} = {target}.add_(1) * 1",
                f"items.append({self.tensor(1)})",
                f"items[0] = {self.tensor(1)}",
                f'd["z"] = {self.number()}',
                f'd["p"] = {self.tensor(1)}',
                f"box.v = {self.number()}",
                "box.bump(1)",
                f"box.extra = {self.tensor(1)}",
                "print(end='')",
                "items = items + [n]",
                f"x.mul_({self.number()})",
                "log.append(n)",
                "d.pop('z', None)",
                f"a, b = b, {self.tensor(1)}",
                f"{number} = int(a.sum().item() > 0)",
                f"log.extend([t * 2 for t in (a, b)][:{self.pick('1', '2')}])",
            )  # fmt: skip
        ]

    def branch(self):
        lines = [f"if {self.condition()}:", *self.block()]
        return [*lines, "else:", *self.block()] if self.draw(st.booleans()) else lines

    def loop(self):
        self.loops += 1
        name = f"i{self.loops}"
        over = self.pick("range(2)", "[x, y]", "enumerate([1, 2])", "list(d)", "zip([1], [2])")
        lines = [f"for {name} in {over}:", *self.block()]
        if self.draw(st.booleans()):
            lines.append(f"    if {self.condition()}: {self.pick('break', 'continue')}")
        return lines

    def attempt(self):
        fault = self.pick("raise ValueError(n)", "d['missing']", "int('q')", "items[99]", "pass")
        lines = ["try:", *self.block(), f"    {fault}"]
        lines += [f"except {self.pick('ValueError', '(KeyError, IndexError)', 'Exception')} as e:"]
        lines += [*self.block(), "    log.append(type(e).__name__)"]
        return [*lines, "finally:", *self.block()] if self.draw(st.booleans()) else lines

    def closure(self):
        self.closures += 1
        body = [f"    nonlocal {self.pick('n', 'm')}", "    n_ = k"] if self.depth == 0 else []
        if body:
            name = body[0].split()[-1]
            body = [body[0], f"    {name} = {name} + 1"]
        call = f"g{self.closures}"
        return [
            f"def {call}(t, by=2):", *body, f"    return t * by + {self.pick('n', 'm', '1')}",
            f"{self.pick('a', 'b')} = {call}({self.tensor(1)})",
        ]  # fmt: skip

    def context(self):
        return [f"with torch.set_grad_enabled({self.pick('True', 'False')}):", *self.block()]

    def program(self):
        start = ["a, b = x + 1, y", "n, m, k = 1, 2, 3", "log = []", "def f(t, q=2): return t * q"]
        body = [line for _ in range(self.draw(st.integers(1, 5))) for line in self.statement()]
        end = [f"return {self.pick('a, b', 'a', 'log, a')}, n, m, k, items, log, d, box"]
        return "def program(x, y, items, d, box):\n" + textwrap.indent(
            "\n".join([*start, *body, *end]), "    "
        )


@st.composite
def programs(draw):
    return Writer(draw).program()


def agrees(source: str) -> None:
    space = {"torch": torch, "__name__": "random_program"}
    exec(compile(source, "<string>", "exec"), space)
    try:
        check(Program(space["program"], make_arguments))
    except Exception as error:
        raise AssertionError(f"{error}\n\n{source}") from error


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=QUIET)
@given(programs())
def test_random_programs(source):
    agrees(source)


@pytest.mark.slow
@settings(max_examples=10_000, deadline=None, suppress_health_check=QUIET)
@given(programs())
def test_many_random_programs(source):
    agrees(source)
