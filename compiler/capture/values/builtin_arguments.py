"""Which arguments builtins take: what Python refuses is not traced, and keywords find their place.

``inspect`` knows the signatures of most; the table has those of the others.
"""

from __future__ import annotations

import collections
import functools
import inspect
import itertools
import operator
import types
import weakref
from typing import TYPE_CHECKING, Any

from tc.compiler.capture.values.base import Args, Kwargs, Value

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter


#: parameters of builtins whose signatures Python does not know
PARAMETERS: dict[Any, str] = {
    getattr: "a, b, c=0, /",
    iter: "a, b=0, /",
    max: "a, /, *rest, key=0, default=0",
    min: "a, /, *rest, key=0, default=0",
    next: "a, b=0, /",
    vars: "a=0, /",
    dir: "a=0, /",
    bool: "a=0, /",
    classmethod: "a, /",
    staticmethod: "a, /",
    dict: "a=0, /, **rest",
    filter: "a, b, /",
    frozenset: "a=0, /",
    set: "a=0, /",
    int: "a=0, /, base=0",
    map: "a, b, /, *rest",
    range: "a, b=0, c=0, /",
    slice: "a, b=0, c=0, /",
    str: "object=0, encoding=0, errors=0",
    super: "a=0, b=0, /",
    type: "a, b=0, c=0, /, **rest",
    zip: "*rest, strict=0",
    weakref.ref: "a, b=0, /",
    types.MappingProxyType: "mapping",
    itertools.islice: "a, b, c=0, d=0, /",
    itertools.chain: "*rest",
    itertools.zip_longest: "*rest, fillvalue=0",
    itertools.product: "*rest, repeat=0",
    itertools.repeat: "object, times=0",
    operator.attrgetter: "a, /, *rest",
    operator.itemgetter: "a, /, *rest",
    operator.methodcaller: "a, /, *rest, **named",
    collections.deque: "iterable=0, maxlen=0",
    collections.defaultdict: "a=0, b=0, /, **rest",
    collections.OrderedDict: "a=0, /, **rest",
    functools.reduce: "a, b, c=0, /",
    functools.cmp_to_key: "mycmp",
    functools.partial: "a, /, *rest, **named",
}


@functools.cache
def signature_of(function: Any) -> inspect.Signature | None:
    """Return a builtin's signature, or None if neither Python nor the table has it."""
    parameters = PARAMETERS.get(function)
    if parameters is not None:
        return inspect.signature(eval(f"lambda {parameters}: None"))
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def bound_arguments(
    t: Interpreter, function: Any, args: Args, kwargs: Kwargs
) -> tuple[list[Value], dict[str, Value]]:
    """Return arguments with those in their places that were given by name and may have a place.

    Where a builtin takes no such arguments, Python's TypeError is raised into the traced code.
    """
    signature = signature_of(function)
    if signature is None:
        return list(args), dict(kwargs)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        # Python words the error: it checks the number and names of arguments before all else.
        t.python.fold(function, *(None for _ in args), **dict.fromkeys(kwargs))
        return list(args), dict(kwargs)
    return list(bound.args), bound.kwargs
