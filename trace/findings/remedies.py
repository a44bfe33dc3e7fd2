"""The cause of a recompile goes in; a title, the reason in plain words, and fixes come out."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from tc.trace.findings.model import Cause

Words = tuple[str, str, tuple[str, ...]]
_SHAPE: Final = re.compile(r"^(?P<name>.+)\.shape\[(?P<index>\d+)\]$")


def remedy(cause: Cause, producer: str) -> Words:
    """Return (title, why, fixes); `producer` says whose functions the fixes name."""
    if handed_on(cause.source):
        return _handed_on(cause)
    api = "tc" if producer == "tc" else "torch._dynamo"
    make = "tc.compile" if producer == "tc" else "torch.compile"
    for kind, words in _ROWS:
        if cause.kind == kind:
            return words(cause, api, make)
    return (
        f"{cause.source or 'an input'} changed",
        "a check that the compiled code relies on failed",
        (),
    )


def handed_on(source: str) -> bool:
    """Whether an input is a value that the code before a graph break leaves to what follows it."""
    return source.startswith("___")  # no name of a user's


def _handed_on(cause: Cause) -> Words:
    change = f" (was {cause.old}, then {cause.new})" if cause.new else ""
    return (
        "a value from before a graph break changes",
        f"what follows the break is compiled for what the code before it left behind{change}",
        ("mend the graph break before it: then nothing has to be handed on",),
    )


def _size(cause: Cause, api: str, make: str) -> Words:
    match = _SHAPE.match(cause.source)
    name, index = (match["name"], match["index"]) if match else (cause.source, "0")
    fixes = (
        f"{api}.mark_dynamic({name}, {index}) before the first call",
        f"{make}(..., dynamic=True) makes all sizes dynamic",
        f"pad or batch so that {cause.source} takes few values",
    )
    if cause.now_dynamic:
        why = (
            f"the first compile was made for {cause.source} = {cause.old}; the new one is "
            "dynamic, so later sizes reuse it: marking it saves this one compile"
        )
    else:
        why = f"the graph was compiled for {cause.source} = {cause.old} only"
    return f"{cause.source} changes", why, fixes


def _constant(cause: Cause, api: str, make: str) -> Words:
    attribute = "." in cause.source and "(" not in cause.source
    fixes: tuple[str, ...]
    if attribute:
        owner, _, name = cause.source.rpartition(".")
        fixes = (
            f"make {cause.source} a tensor, e.g. {owner}.register_buffer({name!r}, ...)",
            "update it outside of the compiled function",
        )
        if producer_is_torch(api):
            fixes += (
                "torch._dynamo.config.allow_unspec_int_on_nn_module = True, for ints of modules",
            )
    elif cause.old in ("True", "False"):
        fixes = (
            "one graph for each value is often right: two values cost two compiles, once",
            f"to have one graph: pass {cause.source} as a tensor and choose with torch.where",
        )
    else:
        fixes = (
            f"pass {cause.source} as a tensor: torch.tensor(...)",
            f"keep the number of values {cause.source} takes small",
        )
    return (
        f"{cause.source} is a constant in the graph",
        f"{cause.source} is a Python value, so its value is built into the compiled code"
        + (f" (was {cause.old}, then {cause.new})" if cause.new else ""),
        fixes,
    )


def producer_is_torch(api: str) -> bool:
    """Whether the fixes may name PyTorch's own switches."""
    return api != "tc"


def _tensor(cause: Cause, api: str, make: str) -> Words:
    name, _, what = cause.source.rpartition(".")
    what = what.partition("[")[0]
    fixes = {
        "dtype": (f"convert {name} to one dtype before the call",),
        "requires_grad": (
            f"call with one setting of {name}.requires_grad, or wrap evaluation in torch.no_grad()",
        ),
        "device": (f"keep {name} on one device, or compile a function for each device",),
        "ndim": (f"bring {name} to one number of dimensions before the call: unsqueeze, flatten",),
        "stride": (f"call {name}.contiguous() before the call",),
    }.get(what, (f"pass {name} in one form",))
    return (
        f"{cause.source} changes",
        f"kernels are generated for one {what or 'form'} of {name}",
        fixes,
    )


def _global(cause: Cause, api: str, make: str) -> Words:
    return (
        f"{cause.source} was switched",
        "forward-only and differentiable code are different programs, so each mode compiles once",
        (
            "expected once per mode (train and eval); nothing to do",
            "if it repeats: enter torch.no_grad() or autocast once, around all calls",
        ),
    )


def _type(cause: Cause, api: str, make: str) -> Words:
    return (
        f"{cause.source} changes",
        "the compiled code was made for this very type or object",
        (
            "pass the same kind of object each time",
            "create functions and modules once, outside of the loop that calls the compiled code",
        ),
    )


def _shape(cause: Cause, api: str, make: str) -> Words:
    fixes = (
        f"the code asks whether {cause.old}: take the test out of the compiled function",
        "or round the size up, so that the answer is always the same",
    )
    return (
        f"a branch on {cause.source} took the other side",
        f"the compiled code holds only where {cause.old}",
        fixes,
    )


def _length(cause: Cause, api: str, make: str) -> Words:
    return (
        f"{cause.source} changes",
        "a loop over it is unrolled, so each length is its own graph",
        ("pad to one length, or stack the elements into one tensor",),
    )


def _raced(cause: Cause, api: str, make: str) -> Words:
    return (
        "compiled again although its checks hold",
        "by the time the compiler looked at them, the checks of an earlier compile held: another "
        "thread had compiled it meanwhile, or a check depends on the moment",
        (
            "call the compiled function once before the threads start",
            "compile in one thread at a time: a lock around the first call",
        ),
    )


_ROWS: Final[tuple[tuple[str, Callable[[Cause, str, str], Words]], ...]] = (
    ("size", _size),
    ("constant", _constant),
    ("tensor", _tensor),
    ("global", _global),
    ("type", _type),
    ("shape", _shape),
    ("length", _length),
    ("raced", _raced),
)
