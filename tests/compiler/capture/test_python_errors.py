"""Errors of Python's containers and builtins inside of compiled code: those that Python raises."""

from __future__ import annotations

import abc
import collections
import types
import typing
from functools import partial

import numpy as np
import pytest
import torch

import tc


class Abstract(abc.ABC):
    @abc.abstractmethod
    def method(self):
        """Do nothing."""


class Unaskable(type):
    def __subclasscheck__(cls, other):
        raise TypeError("not to be asked")


class Unasked(metaclass=Unaskable):
    def __init__(self, value):
        self.value = value


FAILING = """
[1, 2].index(5) | [1, 2].index('a') | [1, 2].remove(5) | [].pop() | [1].pop(5) | (1, 2).index(7)
[1, 2].index() | [1, 2].append() | [].append(1, 2) | [1].extend(a=1) | [1].extend(3)
[3, 1].sort(1) | [1].reverse(1) | [1].count() | [1, 2].insert('a', 1) | [1, 2].__setitem__(5, 1)
[1].__delitem__(9) | [0].index(1)
(1,).count() | (1,).index(1, 2) | [0, 1, 2].index(2, 0, 2) | [3, 1, 2].sort(key=lambda v: 1 / 0)
{}.pop('k') | {}['k'] | {}.popitem() | {1: 2}.get() | {1: 2}.pop() | {1: 2}.update(3) | {}.keys(1)
set().pop() | {1}.remove(2) | {1}.add() | {1}.update(3) | {1}.union(3) | {[]: 1} | {}[[]]
dict([(1,)]) | dict(1, 2) | dict(3) | list(3) | tuple(3) | set(3) | reversed(3) | sorted(3) | sum(3)
max([]) | min(()) | sum(['a']) | sorted([1, 'a']) | int('x') | float('y') | int([1]) | bool(1, 2)
next(iter([])) | [1, 2][5] | (1,)[3] | 'abc'[9] | 'abc'.index('z') | 'a' + 1 | [1] + (1,)
range(3)[5] | range(3).index(9) | range(1.5) | divmod(1, 0) | 1 // 0 | len(3) | None.foo | [].foo
deque([]).pop() | deque([]).popleft() | deque([1]).index(4) | deque([1]).remove(4) | iter(3)
[1] + (2,) | (1,) + [2] | deque([1]) + [2] | [1] * 2.5 | (1,) * 'a' | [1, 2][::0]
[1, 2][1.0] | (1,)[None]
deque([1, 2])[0:1] | deque([1])[5] | reversed({1}) | {1} - [2] | {1} < [1] | {1: 2} > 3 | object(3)
getattr(x, 3) | hasattr(x, 3) | setattr(x, 3, 1) | Abstract() | (lambda: 0)[0]
slice(1)[0] | partial(3)
defaultdict(5) | [1, 2].__delitem__(slice(None, None, 0)) | OSError(2, 'x').nope | Unasked(3).nope
"""
CALLS = [text.strip() for line in FAILING.strip().splitlines() for text in line.split("|")]
STATEMENTS = [
    "items = [1, 2, 3, 4]; items[::2] = [1]", "items = [1]; items['a'] = 2",
    "items = [1]; items[5] = 2", "items = [1]; del items[5]", "a, b = [1]", "a, b = (1, 2, 3)",
]  # fmt: skip


def catching(statement):
    """Return a function that catches what a statement raises and returns what it is."""
    space = {
        "deque": collections.deque, "defaultdict": collections.defaultdict, "partial": partial,
        "Abstract": Abstract, "Unasked": Unasked,
    }  # fmt: skip
    exec(
        f"def f(x):\n    try:\n        {statement}\n"
        "    except Exception as error:\n        return x + 1, type(error), str(error)\n",
        space,
    )
    return space["f"]


@pytest.mark.sample(25)
@pytest.mark.parametrize("statement", [*CALLS, *STATEMENTS])
def test_errors_are_pythons_and_can_be_caught(statement):
    function, x = catching(statement), torch.ones(2)
    (_, *want), (got, *error) = function(x), tc.compile(function, backend="eager")(x)
    assert error == want
    torch.testing.assert_close(got, x + 1)


def test_an_error_that_is_not_caught_is_raised():
    with pytest.raises(ValueError, match="not in list"):
        tc.compile(lambda x: [1, 2].index(5), backend="eager")(torch.ones(2))


def test_what_was_changed_before_the_error_stays_changed():
    def f(x, items):
        try:
            items.append(3)
            items[::2] = [x, x, x]
        except ValueError:
            return x + len(items)

    mine, theirs = [1, 2], [1, 2]
    got = tc.compile(f, backend="eager")(torch.ones(2), mine)
    torch.testing.assert_close(got, f(torch.ones(2), theirs))
    assert mine == theirs


ARRAYS = {
    "methods": lambda a: (a.min(), a.max(), a.mean(), a.std(), a.min(axis=0), a.argmax(axis=1)),
    "functions": lambda a: (np.min(a), np.amin(a, axis=0), np.max(a, axis=1, keepdims=True)),
    "median": lambda a: (np.median(a), np.median(a, axis=0)),
    "percentile": lambda a: (np.percentile(a, 30.0), np.quantile(a, 0.3, axis=1)),
    "covariance": lambda a: (np.cov(a), np.corrcoef(a)),
    "histogram": lambda a: np.histogram(a.astype(np.int64)),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", ARRAYS)
def test_results_of_numpy_have_numpys_shape_and_type(name, dynamic):
    def f(x):
        return ARRAYS[name](x.numpy())

    x = torch.arange(12.0).reshape(3, 4).cos()
    got, want = tc.compile(f, backend="eager", dynamic=dynamic)(x), f(x)
    for one, other in zip(got, want, strict=True):
        assert type(one) is type(other)
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


class Named(typing.TypedDict):
    value: int


def kinds(x):
    made = Named(value=3)
    error = OSError(2, "text")
    one, two = (1,), (2,)
    joined = one + x.shape, x.shape + one, one + two
    return x + 1, type(made), made, type(error), [type(one) for one in joined]


def names_in_errors(x, owner):
    found = []
    for read in (lambda: not_there, lambda: owner.not_there, lambda: x.not_there):  # noqa: F821
        try:
            read()
        except (NameError, AttributeError) as error:
            found.append((error.name, getattr(error, "obj", None) is owner))
    return x + 1, found, ImportError("text", name="name").name


@pytest.mark.parametrize("arguments", [(kinds,), (names_in_errors, 3)])
def test_objects_are_those_that_python_makes(arguments):
    function, *rest = arguments
    x = torch.ones(2)
    assert str(tc.compile(function)(x, *rest)) == str(function(x, *rest))


def compared(x, pairs):
    return x + 1, pairs[0] < pairs[1], pairs[0] == pairs[1], pairs[0][0] is pairs[1][0]


@pytest.mark.parametrize("dynamic", [None, True])
def test_equal_dynamic_numbers_may_be_one_object(dynamic):
    compiled = tc.compile(compared, dynamic=dynamic)
    for pairs in ([(3, 1), (4, 2)], [(3, 1), (3, 2)], [(5, 2), (5, 1)], [(3, 1), (3, 1)]):
        assert str(compiled(torch.ones(1), pairs)) == str(compared(torch.ones(1), pairs))


def test_super_without_arguments_names_what_it_lacks():
    def attempt(method):
        try:
            return method()
        except RuntimeError as error:
            return str(error)

    class Lacking:
        def any_arguments(*args):
            return super()

        def no_arguments(self):
            def inner():
                return super()

            return inner()

        def deleted(self):
            del self
            return super()

        def deleted_from_cell(self):
            keep = lambda: self  # noqa: E731, F821
            del self
            return super(), keep

    def no_class(x):
        return super().x

    def f(x):
        one = Lacking()
        tried = one.any_arguments, one.no_arguments, one.deleted, one.deleted_from_cell
        return x + 1, [attempt(method) for method in tried], attempt(lambda: no_class(x))

    x = torch.ones(2)
    assert str(tc.compile(f, backend="eager")(x)) == str(f(x))


def handler_takes_the_name(x, e=1):
    try:
        raise TypeError("text")
    except TypeError as e:  # noqa: F841
        pass
    return x + 1 - e


def stored_and_deleted(x, e=1):
    e = 2
    del e
    x = x + 1
    try:
        return x - e  # noqa: F821
    except UnboundLocalError as error:
        return x, str(error)


def deleted_after_a_break(x, e=1):
    for e in range(2):
        x = x + e
    tc.graph_break()
    del e
    return x + 1, sorted(locals())


@pytest.mark.parametrize(
    "program", [handler_takes_the_name, stored_and_deleted, deleted_after_a_break]
)
def test_an_argument_does_not_come_back_when_what_took_its_name_is_deleted(program):
    results = []
    for run in (program, tc.compile(program, backend="eager")):
        try:
            results.append(str(run(torch.ones(2))))
        except UnboundLocalError as error:
            results.append(str(error))
    assert results[0] == results[1]


def test_messages_name_classes_of_c_with_their_modules():
    def f(x, owner):
        found = []
        del owner.held
        for one in (owner, types.SimpleNamespace(), collections.OrderedDict(), collections.deque()):
            try:
                one.held  # noqa: B018
            except AttributeError as error:
                found.append(str(error))
        try:
            del owner.held
        except AttributeError as error:
            found.append(str(error))
        return x + 1, found

    x, compiled = torch.ones(2), tc.compile(f, backend="eager", fullgraph=True)
    owners = types.SimpleNamespace(held=1), types.SimpleNamespace(held=1)
    assert str(compiled(x, owners[0])) == str(f(x, owners[1]))
