"""Facts about live values that guards store without keeping tensors or modules alive.

In: a live value. Out: its `ObjectRef`, `TensorSpec` or normalised constant. Each prints as a Python
expression over `NAMES`, and the functions there compare it with later values.
"""

from __future__ import annotations

import collections
import enum
import math
import re
import reprlib
import sys
import types
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, is_dataclass
from typing import Any

import torch
from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters

from tc.compiler.capture.array_memory import as_tensor
from tc.compiler.core.levels import KEYS_OF_MODES, dispatch_modes
from tc.compiler.core.modes import torch_mode
from tc.compiler.core.sources import Scope, Source, instance_dict
from tc.compiler.errors import StageError


@dataclass(frozen=True)
class Process(Source):
    """A source outside of the frame: the state of the process (grad mode, default device, ...)."""

    def _name(self) -> str:
        return ""

    def _pretty(self) -> str:
        return "global state"

    def _evaluate(self, scope: Scope) -> None:
        """Return None: guards on the process read its state themselves."""


PROCESS = Process()


@dataclass(frozen=True)
class ObjectRef:
    """A reference to an object by identity; weak if the object's type allows weak references."""

    id: int
    label: str
    get: Callable[[], Any] = field(compare=False, repr=False)

    @classmethod
    def of(cls, value: Any) -> ObjectRef:
        """Return the reference to a live object."""
        if isinstance(value, ObjectRef):
            return value
        try:
            get: Callable[[], Any] = weakref.ref(value)
        except TypeError:
            get = lambda: value  # noqa: E731
        return cls(id(value), label_of(value), get)

    @property
    def is_weak(self) -> bool:
        """Whether the object can die before this reference."""
        return isinstance(self.get, weakref.ref)

    def is_(self, value: Any) -> bool:
        """Return whether ``value`` is the object, and the object still lives."""
        return id(value) == self.id and self.get() is value

    def __str__(self) -> str:
        return f"the({self.id:#x}, {self.label!r})"


def the(id_: int, label: str) -> ObjectRef:
    """Return the reference to the object at an address, to evaluate printed guards."""
    return ObjectRef(id_, label, lambda: None)


def label_of(value: Any) -> str:
    """Return a readable label of an object: its kind and full name."""
    name = _named(value, "__qualname__") or _named(value, "__name__")
    if issubclass(type(value), enum.Enum):
        member = (instance_dict(value) or {}).get("_name_")  # not all have one
        return f"{type(value).__qualname__}.{member}"
    if not isinstance(name, str):
        return f"a {type(value).__qualname__}"
    module = _named(value, "__module__")
    full = (
        f"{module}.{name}" if isinstance(module, str) and module != "builtins" else name
    )
    return full if isinstance(value, type) else f"{type(value).__name__} {full}"


def _named(value: Any, name: str) -> Any:
    """Return one of an object's names, or None; no code of the program is asked for it."""
    kind = type(value)
    if issubclass(kind, type):
        with suppress(AttributeError):  # made where there is no `__name__`
            return vars(type)[name].__get__(value)
        return None
    asks = ("__getattr__", "__getattribute__") if is_heap_type(kind) else ()
    written = any(asked in vars(base) for asked in asks for base in kind.__mro__[:-1])
    if written or issubclass(kind, types.ModuleType):
        return (instance_dict(value) or {}).get(name)
    return getattr(value, name, None)


@dataclass(frozen=True)
class TensorSpec:
    """The properties of a tensor that compiled code assumes.

    None in ``size`` or ``stride`` is free.

    Attributes:
        keys: the tensor's dispatch keys, as C++ takes them.
        key_names: those keys after the thread's included and excluded sets, as C++ compares them.
        requires_grad: False while grad mode is off, as C++ sees it.
    """

    cls: ObjectRef
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    size: tuple[int | None, ...]
    stride: tuple[int | None, ...]
    keys: Any = field(compare=False, repr=False)
    key_names: str

    @classmethod
    def of(
        cls,
        tensor: torch.Tensor,
        size: tuple[int | None, ...] | None = None,
        stride: tuple[int | None, ...] | None = None,
    ) -> TensorSpec:
        """Read a live tensor; ``size`` and ``stride``, if given, say which dimensions are free."""
        keys = torch._C._dispatch_keys(tensor)
        if dispatch_modes():  # of the program: while it compiles they are not in force
            keys = keys | KEYS_OF_MODES
        # so that no __torch_function__ of the user runs
        with torch._C.DisableTorchFunction():
            return cls(
                ObjectRef.of(type(tensor)),
                tensor.dtype,
                tensor.device,
                torch.is_grad_enabled() and tensor.requires_grad,
                tuple(torch.Tensor.size(tensor)) if size is None else size,
                _strides(tensor) if stride is None else stride,
                keys,
                key_names(keys),
            )

    def properties(self) -> dict[str, Any]:
        """Return the compared properties by the name under which a failure is reported."""
        return {
            "type({})": self.cls.label,
            "{}.dtype": self.dtype,
            "{}.device": self.device,
            "{}.requires_grad": self.requires_grad,
            "dispatch keys of {}": self.key_names,
            "{}.ndim": len(self.size),
            **{f"{{}}.shape[{i}]": n for i, n in enumerate(self.size)},
            **{f"{{}}.stride({i})": n for i, n in enumerate(self.stride)},
        }

    def differences(self, other: TensorSpec) -> list[tuple[str, Any, Any]]:
        """Return (property, own value, other value) for each property that differs."""
        mine, theirs = self.properties(), other.properties()
        if len(self.size) != len(other.size):
            mine = {name: value for name, value in mine.items() if "[" not in name}
            mine = {name: value for name, value in mine.items() if "stride" not in name}
        changed = [(name, old, theirs[name]) for name, old in mine.items()]
        return [
            (n, old, new) for n, old, new in changed if old is not None and old != new
        ]

    def __str__(self) -> str:
        size, stride = list(self.size), list(self.stride)
        return (
            f"{self.cls.label!r}, {self.dtype}, {self.device!r}, "
            f"requires_grad={self.requires_grad}, size={size}, stride={stride}, "
            f"keys={self.key_names!r}"
        )


def _strides(tensor: torch.Tensor) -> tuple[int | None, ...]:
    if tensor.layout is torch.jagged:
        return (None,) * tensor.dim()
    if tensor.layout is not torch.strided:
        return ()
    return tuple(torch.Tensor.stride(tensor))


def key_names(keys: Any) -> str:
    """Return the names of dispatch keys after applying this thread's included and excluded sets."""
    keys = keys | torch._C._dispatch_tls_local_include_set()
    keys = keys - torch._C._dispatch_tls_local_exclude_set()
    return str(keys).removeprefix("DispatchKeySet(").removesuffix(")")


#: types of constants that guards compare by equality
BY_EQUALITY = (
    int,
    float,
    complex,
    bool,
    str,
    bytes,
    type(None),
    type(...),
    type(NotImplemented),
    range,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.finfo,
    torch.iinfo,
)


def constant(value: Any) -> Any:
    """Return a constant as guards store it: enum members by identity, tuples item by item.

    Raises:
        StageError: the value is of a type that is not compared by value.
    """
    kind = type(value)
    if isinstance(value, enum.Enum | ObjectRef):
        return ObjectRef.of(value)
    if kind in BY_EQUALITY or kind is slice:
        return value
    if kind in (tuple, frozenset):
        return kind(map(constant, value))
    if kind is torch.Size:
        return value
    raise StageError(
        "capture.guards", f"no EQUALS guard for values of type {kind.__qualname__}"
    )


def literal(value: Any) -> str:
    """Print a constant of `constant` as an expression over `NAMES`."""
    if isinstance(value, ObjectRef):
        return str(value)
    if type(value) is tuple:
        return "(" + "".join(f"{literal(item)}, " for item in value).rstrip(" ") + ")"
    if type(value) is frozenset:
        return f"frozenset([{', '.join(sorted(map(literal, value)))}])"
    if type(value) is complex:  # its repr loses the sign of zeros
        return f"complex({value.real!r}, {value.imag!r})"
    return repr(value)


def same(value: Any, expected: Any) -> bool:
    """Return whether a value equals the constant, also in type and in the sign of zero."""
    kind = type(expected)
    if isinstance(expected, ObjectRef):
        return id(value) == expected.id
    if type(value) is not kind:
        return False
    if kind in (tuple, frozenset) and len(value) != len(expected):
        return False
    if kind is float:
        return _same_float(value, expected)
    if kind is complex:
        real = _same_float(value.real, expected.real)
        return real and _same_float(value.imag, expected.imag)
    if kind is tuple:
        return all(map(same, value, expected))
    if kind is frozenset:
        return all(any(same(item, other) for item in value) for other in expected)
    if kind is slice:
        own = (expected.start, expected.stop, expected.step)
        return same((value.start, value.stop, value.step), own)
    return bool(value == expected)


def _same_float(a: float, b: float) -> bool:
    if math.isnan(b):
        return math.isnan(a)
    return a == b and math.copysign(1.0, a) == math.copysign(1.0, b)


def keys_of(value: Any) -> tuple[Any, ...]:
    """Return the keys of a mapping in order, ignoring an overridden ``keys`` of a dict subclass."""
    if isinstance(value, collections.OrderedDict):  # its order is not the dict's
        return tuple(collections.OrderedDict.keys(value))
    return tuple(dict.keys(value)) if isinstance(value, dict) else tuple(value.keys())


def same_keys(value: Any, expected: tuple[Any, ...]) -> bool:
    """Return whether a mapping has these keys in this order."""
    return isinstance(value, Mapping) and same(keys_of(value), expected)


def is_type(value: Any, expected: ObjectRef) -> bool:
    """Return whether a value is of exactly that type."""
    return id(type(value)) == expected.id


#: the lengths of containers, past the methods of their classes
LENGTHS: dict[type, Callable[[Any], int]] = {
    base: base.__len__ for base in (tuple, list, dict, set, frozenset)
}


def length_of(value: Any) -> int:
    """Return how many items a container has; no method of the program is called."""
    for base, length in LENGTHS.items():
        if issubclass(type(value), base):
            return length(value)
    return len(value)


def counts_itself(cls: type) -> bool:
    """Return whether a class of containers defines its own length."""
    for base in cls.__mro__:
        if "__len__" in vars(base):
            return is_heap_type(base)
    return False


def has_length(value: Any, length: int, kind: ObjectRef | None = None) -> bool:
    """Return whether a value has this length and, if a kind is given, exactly that type."""
    if kind is not None and not is_type(value, kind):
        return False
    try:
        return bool(length_of(value) == length)
    except TypeError:
        return False


def has_code(value: Any, expected: ObjectRef) -> bool:
    """Return whether a value is a Python function with that code object."""
    return id(getattr(value, "__code__", None)) == expected.id


def check_tensor(value: Any, cls: str, dtype: Any, device: Any, **rest: Any) -> bool:
    """Return whether a value is a tensor with these properties."""
    if not isinstance(value, torch.Tensor):
        return False
    now = TensorSpec.of(value)
    owner = ObjectRef(0, cls, lambda: None)
    size, stride = tuple(rest["size"]), tuple(rest["stride"])
    grad, keys = rest["requires_grad"], rest["keys"]
    return not TensorSpec(
        owner, dtype, device, grad, size, stride, None, keys
    ).differences(now)


def no_aliases(*values: Any) -> bool:
    """Return whether no two values are one object."""
    return len(set(map(id, values))) == len(values)


def default_device() -> Any:
    """Return the device set by `torch.set_default_device` or ``with torch.device``, or None."""
    return torch.utils._device.CURRENT_DEVICE


def function_modes() -> list[Any]:
    """Return the active torch function modes, innermost last."""
    from torch.overrides import _get_current_function_mode_stack

    return list(_get_current_function_mode_stack())  # type: ignore[no-untyped-call]


def mode_types() -> list[str]:
    """Return the names of the types of the active torch function modes."""
    return [label_of(type(mode)) for mode in function_modes()]


def transforms() -> list[tuple[Any, ...]]:
    """Return the functorch levels that transforms have pushed, innermost last."""
    if torch._C._functorch.peek_interpreter_stack() is None:
        return []
    return [level.get_state() for level in retrieve_all_functorch_interpreters()]


def is_heap_type(cls: type) -> bool:
    """Return whether a class was made by a class statement, not in C."""
    return bool(cls.__flags__ & 1 << 9)  # Py_TPFLAGS_HEAPTYPE


#: PyTorch and Python's own library: their functions and methods are not guarded one by one
LIBRARIES = frozenset(("torch", *sys.stdlib_module_names))


def is_library(module: str | None) -> bool:
    """Return whether a module's functions and classes are assumed never to change.

    Code that was executed without a module (``exec`` with names of its own) has None.
    """
    return module is not None and module.partition(".")[0] in LIBRARIES


def fits_bits(value: Any, bits: int) -> bool:
    """Return whether a value is an integer, no bool, from -2**bits to 2**bits - 1."""
    return type(value) is int and -1 <= value >> bits <= 0


def handles_error() -> bool:
    """Return whether an exception is being handled on this thread."""
    return sys.exc_info()[1] is not None


def is_empty(cell: types.CellType) -> bool:
    """Return whether a closure cell holds nothing: its variable is unbound."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False


NAMES: dict[str, Any] = {
    function.__name__: function
    for function in (
        as_tensor,
        the,
        same,
        same_keys,
        is_type,
        has_length,
        has_code,
        check_tensor,
        no_aliases,
        default_device,
        mode_types,
        transforms,
        torch_mode,
        fits_bits,
        handles_error,
        is_empty,
    )
} | {
    "torch": torch,
    "device": torch.device,
    "nan": math.nan,
    "inf": math.inf,
}
"""What printed guards may name besides ``L`` and ``G``."""


def _writes_itself(cls: type) -> bool:
    """Return whether ``repr`` runs code that the program has written, which a message must not.

    Python generates that of data classes.
    """
    home = next(base for base in cls.__mro__ if "__repr__" in base.__dict__)
    written = vars(home)["__repr__"]
    if not isinstance(written, types.FunctionType) or is_dataclass(home):
        return False
    return not is_library(
        written.__module__
    )  # an enumeration has that of `Enum` in its own class


class _Short(reprlib.Repr):
    """Values in a few words, those inside of containers, too."""

    def repr1(self, x: Any, level: int) -> str:
        """Describe a value; reprlib calls it for every item."""
        if isinstance(x, torch.Tensor):
            with torch._C.DisableTorchFunction():
                dtype, shape = str(x.dtype).removeprefix("torch."), list(x.shape)
            return f"{type(x).__name__} {dtype}{shape}"
        if isinstance(x, type | types.ModuleType | torch.nn.Module) or callable(x):
            # of Python modules, `repr` asks a `__getattr__` for the file
            return label_of(x)
        if _writes_itself(type(x)):
            return f"<{type(x).__qualname__} object>"
        return _LINES.sub(" ", super().repr1(x, level))


_LINES = re.compile(r"\n\s*")  # of strings they are written as \\n
_short = _Short()
_short.maxother = _short.maxstring = 80


def brief(value: Any) -> str:
    """Describe a live value in a few words, on one line. Never raises."""
    try:
        return _short.repr(value)
    except Exception as error:
        return f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"
