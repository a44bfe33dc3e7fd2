"""Python's random numbers: drawn before the graph, or while a frame is traced.

Of a generator that is older than the frame, residual code draws the numbers before the graph runs,
in the order of the program: they are inputs, of which a capture knows the type. A generator that
traced code made of a seed is one of the capture itself, and its numbers are constants.
"""

from __future__ import annotations

import functools
import inspect
import random
from collections.abc import Callable
from types import BuiltinMethodType, MethodType
from typing import TYPE_CHECKING, Any

import torch

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import (
    Args,
    KnownObject,
    Kwargs,
    LambdaValue,
    OpaqueValue,
    Value,
)
from tc.compiler.capture.values.handlers import handles
from tc.compiler.capture.values.tensor import SymValue, TensorValue
from tc.compiler.core.sources import AttrSource, DrawnSource, Source

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface

#: methods that draw one number from a generator, and change nothing else
DRAWS = frozenset(
    [
        "random",
        "uniform",
        "triangular",
        "randint",
        "randrange",
        "getrandbits",
        "gauss",
        "normalvariate",
        "lognormvariate",
        "expovariate",
        "vonmisesvariate",
        "gammavariate",
        "betavariate",
        "paretovariate",
        "weibullvariate",
        "binomialvariate",  # since Python 3.12
    ]
)
#: bits that a drawn integer may have
BITS = 62
DTYPES = {int: torch.int64, float: torch.float64}
#: types of seeds that are the same in each call
SEEDS = (int, float, str, bytes)


class GivenGenerator(OpaqueValue):
    """A generator that is older than the frame."""

    source: Source

    def attr(
        self,
        t: Interpreter,
        name: str,
    ) -> Value:
        if not _is_method_name(name):
            return super().attr(t, name)
        call = _draw if name in DRAWS else _refuse
        return _method(self, name, functools.partial(call, self, name))


class MadeGenerator(KnownObject):
    """A generator that traced code made of a seed; its state is known."""

    noun = "a random.Random"
    obj: random.Random

    def __init__(self, obj: random.Random) -> None:
        super().__init__(obj)
        self.creation_index = self.next_creation_index()

    def constant(self) -> Any:
        return super(KnownObject, self).constant()  # each call makes another one

    def truth(self, t: Interpreter) -> bool:
        return True

    def attr(
        self,
        t: Interpreter,
        name: str,
    ) -> Value:
        if not _is_method_name(name):
            return super().attr(t, name)
        return _method(self, name, functools.partial(self._call, name))

    def _call(
        self,
        name: str,
        t: Interpreter,
        args: Args,
        kwargs: Kwargs,
    ) -> Value:
        t.effects.changed(self)
        given = [*args, *kwargs.values()]
        function = inspect.getattr_static(random.Random, name)
        if inspect.isfunction(function) and not all(one.is_constant() for one in given):
            return t.inline_object(function, [self, *args], kwargs)
        plain = t.python.concrete_list(args)
        named = t.python.concrete_dict(kwargs)
        if name == "seed" and not (plain and isinstance(plain[0], SEEDS)):
            self.cannot(breaks.OUTSIDE_VALUE, "random.Random.seed()")
        return t.values.known(
            t.python.run_now(getattr(self.obj, name), *plain, **named)
        )

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_callable(_with_state)
        r.load_object(self.obj.getstate())
        r.e.call(1)


def _with_state(state: Any) -> random.Random:
    """Return a generator in a known state; for residual code."""
    made = random.Random(0)
    made.setstate(state)
    return made


@handles(random.Random)
def _make(
    t: Interpreter,
    args: Args,
    kwargs: Kwargs,
) -> Value:
    (seed,) = t.python.concrete_list([*args, *kwargs.values()]) or [None]
    if not isinstance(seed, SEEDS):
        raise breaks.GraphBreak(breaks.OUTSIDE_VALUE, "random.Random()")
    return MadeGenerator(t.python.run_now(random.Random, seed))


def _refuse(
    owner: GivenGenerator,
    name: str,
    t: Interpreter,
    args: Args,
    kwargs: Kwargs,
) -> Value:
    owner.cannot(breaks.of_call("random"), f"random.Random.{name}()")


def _is_method_name(name: str) -> bool:
    """Return whether a generator has a method of a name, other than the special ones."""
    function = inspect.getattr_static(random.Random, name, None)
    return inspect.isroutine(function) and not name.startswith("__")


def _method(
    owner: Value,
    name: str,
    call: Callable[..., Value],
) -> Value:
    """Return a method of a generator, which residual code reads from the generator."""
    return LambdaValue(call, f"Random.{name}", lambda r: _read(r, owner, name), [owner])


def _read(
    r: ResidualInterface,
    owner: Value,
    name: str,
) -> None:
    """Push a method of a generator."""
    r.push(owner)
    r.e.load_attr(name)


def _draw(
    owner: GivenGenerator,
    name: str,
    t: Interpreter,
    args: Args,
    kwargs: Kwargs,
) -> Value:
    """Have residual code draw a number, which is read from an input of the graph.

    The input is a tensor, whose number has a symbol that no condition may depend on.
    """
    plain = t.python.concrete_list(args)
    named = t.python.concrete_dict(kwargs)
    # an error is that of the arguments, whatever the state
    sample = t.python.run_now(getattr(random.Random(0), name), *plain, **named)
    given = [*plain, *named.values()]
    if len(t.output.scopes) > 1 or not _fits(name, sample, given):
        raise breaks.GraphBreak(breaks.OUTSIDE_VALUE, f"random.Random.{name}()")
    dtype = DTYPES[type(sample)]
    number = torch.tensor(sample, dtype=dtype, device="cpu")
    call = (name, tuple(plain), tuple(named.items()), dtype)
    source = DrawnSource(len(t.output.drawn), owner.source, call, number)
    t.output.drawn.append(source)
    drawn = TensorValue(None, t.shapes.fake(number, source), source)
    with t.shapes.scalars_allowed():
        found = t.output.call_torch("item", [drawn], {}, method=True)
    assert isinstance(found, SymValue)
    for symbol in found.example.node.expr.free_symbols:
        t.shapes.drawn[symbol] = f"random.Random.{name}()"
    return found


def _fits(
    name: str,
    sample: Any,
    given: list[Any],
) -> bool:
    """Return whether each number that a call may draw fits into a tensor."""
    if type(sample) is float:
        return True
    if type(sample) is not int:
        return False
    bits = given if name == "getrandbits" else [abs(one).bit_length() for one in given]
    return all(one <= BITS for one in bits)


def draw(
    owner: random.Random,
    call: tuple[str, tuple[Any, ...], tuple[tuple[str, Any], ...], torch.dtype],
) -> torch.Tensor:
    """Draw a number into a tensor; for residual code."""
    name, args, kwargs, dtype = call
    number = getattr(owner, name)(*args, **dict(kwargs))
    with torch._C.DisableTorchFunction():  # which the program may have a mode for
        return torch.tensor(number, dtype=dtype, device="cpu")


# -- from Python -----------------------------------------------------------------------------
def accepts(obj: Any) -> bool:
    """Return whether an object is a generator of Python's own class."""
    return type(obj) is random.Random


def wrap_generator(
    t: Interpreter,
    obj: random.Random,
    source: Source,
) -> Value:
    """Return the value of a generator that is older than the frame."""
    t.guards.add("TYPE", source, random.Random)
    return GivenGenerator(obj, source)


def is_method(obj: Any) -> bool:
    """Return whether an object is a generator's own method, such as ``random.uniform``."""
    if type(obj) not in (MethodType, BuiltinMethodType) or not accepts(obj.__self__):
        return False
    function = inspect.getattr_static(random.Random, obj.__name__, None)
    return function is not None and getattr(obj, "__func__", function) is function


def wrap_method(
    t: Interpreter,
    obj: Any,
    source: Source,
) -> Value:
    """Return the value of a generator's method, by the generator and the function."""
    owner = t.values.wrap(obj.__self__, AttrSource(source, "__self__"))
    t.guards.add("TYPE", source, type(obj))
    if type(obj) is MethodType:
        t.guards.add("ID", AttrSource(source, "__func__"), obj.__func__)
    else:
        t.guards.add("EQUALS", AttrSource(source, "__name__"), obj.__name__)
    return owner.attr(t, obj.__name__)
