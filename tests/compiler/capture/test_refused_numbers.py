"""What Python asks of special methods that numbers lack is its own TypeError inside of a `try`."""

from __future__ import annotations

import pytest
import torch

import tc


def _delegating(v):
    def items():
        yield from v

    return list(items())


EXPRESSIONS = (
    "len(v)", "iter(v)", "reversed(v)", "next(v)", "1 in v", "v[0]", "v[0:1]", "v()", "list(v)",
    "set(v)", "sorted(v)", "sum(v)", "max(v)", "any(v)", "enumerate(v)", "zip(v)", "dict(v)",
    "[*v]", "{**v}", "vars(v)", "isinstance(1, v)", "''.join(v)", "v.foo", "setattr(v, 'a', 1)",
    "operator.setitem(v, 0, 1)", "operator.delitem(v, 0)", "iter(v, 1)", "float.hex('a')",
    "delegating(v)", "int.__add__(None, v)",
)  # fmt: skip
STATEMENTS = (
    "v[0] = 1", "del v[0]", "v[0] += 1", "for a in v: pass", "a, b = v", "a, *b = v", "v.a = 1",
    "a, *b = ()", "a, *b, c = [v]", "a, b = [v]", "with v: pass", "raise v",
    "raise KeyError from v",
)  # fmt: skip
PROGRAM = """
def program(x, v):
    try:
        {}
    except Exception as error:
        return x - 1, type(error).__name__, str(error)
    return x + 1
"""


@pytest.mark.sample(10)
@pytest.mark.parametrize("statement", EXPRESSIONS + STATEMENTS)
def test_a_number_is_refused_where_python_refuses_it(statement):
    import operator

    names = {"operator": operator, "delegating": _delegating}
    exec(PROGRAM.format(statement), names)
    program = names["program"]
    for values in ((1, 2), (1.5, 2.5)):
        compiled = tc.compile(program, backend="eager")
        for value in values:
            assert repr(compiled(torch.ones(2), value)) == repr(program(torch.ones(2), value))
        tc.reset()


def test_a_callee_enters_what_is_no_context():
    def enter(v):
        with v:
            return 1

    class OnlyEnters:
        def __enter__(self):
            return self

    def program(x, v):
        try:
            return x + enter(v)
        except TypeError as error:
            return x - 1, str(error)

    compiled = tc.compile(program, backend="eager")
    for value in (1, 2, OnlyEnters()):
        assert repr(compiled(torch.ones(2), value)) == repr(program(torch.ones(2), value))
