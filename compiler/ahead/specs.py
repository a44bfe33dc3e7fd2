"""What users say of the inputs of a function: texts, specs of torch or live inputs in; `Spec` out.

A spec holds inputs whose sizes are variables, and what each variable may be: sizes, which compiled
code takes for constants, and ranges, which it takes for symbols.
"""

from __future__ import annotations

import ast
import itertools
import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch.utils import _pytree as pytree

from tc.compiler.capture.dynamism import MARKS, Mark, marks_of
from tc.compiler.errors import OptionError

#: a size of a case: a number, or the name of a variable, or a function of variables
Size: TypeAlias = "int | str | Derived"
#: sizes looked at in a range without an end, beyond its start
OPEN_END = 512
#: combinations of sizes that are looked at for one spec
LOOKS = 512
NAME = re.compile(r"[A-Za-z_]\w*")
_TENSOR = re.compile(
    r"(?P<name>[A-Za-z_]\w*)=(?P<dims>[^:@!\s]*)(:(?P<dtype>\w+))?(@(?P<device>[\w:]+))?(?P<grad>!grad)?"
)
_RANGE = re.compile(r"(?P<low>\d+)\.\.(?P<high>\d*)(/(?P<step>\d+))?")


@dataclass(frozen=True)
class Range:
    """Sizes from ``low`` to ``high``, both included, ``step`` apart; no end if ``high`` is None."""

    low: int
    high: int | None = None
    step: int = 1

    def __post_init__(self) -> None:
        if self.low < 0 or self.step < 1 or (self.high is not None and self.high < self.low):
            raise OptionError(f"{self} is no range of sizes: write low..high, or low..high/step")

    def __contains__(self, size: object) -> bool:
        if not isinstance(size, int) or size < self.low or (size - self.low) % self.step:
            return False
        return self.high is None or size <= self.high

    @property
    def last(self) -> int:
        """The largest size that is looked at."""
        high = self.low + OPEN_END if self.high is None else self.high
        return high - (high - self.low) % self.step

    def looks(self, count: int = 64) -> list[int]:
        """Return sizes of the range: all if there are few, else its ends and some between."""
        sizes = range(self.low, self.last + 1, self.step)
        if len(sizes) <= count:
            return list(sizes)
        near = {*sizes[:4], *sizes[-4:]}
        powers = (1 << bit for bit in range(64))
        near |= {n for power in powers for n in (power, power + 1) if n in sizes}
        drawn = random.Random(0).sample(sizes, max(0, count - len(near)))
        return sorted(near | set(drawn))

    def __str__(self) -> str:
        end = "" if self.high is None else self.high
        return f"{self.low}..{end}" + (f"/{self.step}" if self.step > 1 else "")


Choice: TypeAlias = int | Range
#: variable -> what it is in one case
Case: TypeAlias = Mapping[str, Choice]


@dataclass(frozen=True)
class Derived:
    """A size that is computed from variables."""

    text: str
    needs: frozenset[str]
    compute: Callable[[Mapping[str, int]], int] = field(compare=False)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class TensorInput:
    """A tensor that is made for a case, with memory that nobody has written.

    Attributes:
        example: the tensor that it is like; None: it is made by dtype and device.
    """

    dims: tuple[Size, ...]
    dtype: torch.dtype
    device: str = "cpu"
    requires_grad: bool = False
    example: torch.Tensor | None = field(default=None, compare=False)

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return its shape for sizes of the variables."""
        return tuple(_size_of(dim, sizes) for dim in self.dims)

    def make(self, sizes: Mapping[str, int], case: Case) -> torch.Tensor:
        """Return the tensor; dimensions that are ranges in the case are marked as dynamic."""
        shape = self.shape(sizes)
        stride = () if self.example is None else self.example.stride()
        order = sorted(range(len(shape)), key=lambda d: -stride[d] if stride else d)
        try:
            made = torch.empty_permuted(shape, order, dtype=self.dtype, device=self.device)
        except (RuntimeError, AssertionError, TypeError) as error:  # memory, device, size
            text = _first_line(error)
            raise OptionError(f"a tensor of sizes {shape} cannot be made: {text}") from None
        made.requires_grad_(self.requires_grad)
        setattr(made, MARKS, {d: _mark(dim, case) for d, dim in enumerate(self.dims)})
        return made


@dataclass(frozen=True)
class Spec:
    """Inputs of a function, by position and by name, with variables for sizes.

    Attributes:
        args, kwargs: values; `TensorInput` is replaced by a tensor wherever it stands in them.
        variables: name -> what it may be.
        conditions: what the sizes of a case have to fulfil.
        names: of the first inputs by position.
    """

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, tuple[Choice, ...]] = field(default_factory=dict)
    conditions: tuple[Callable[[Mapping[str, int]], object], ...] = ()
    names: tuple[str, ...] = ()

    def cases(self) -> list[Case]:
        """Return all combinations of what the variables may be."""
        combined = itertools.product(*self.variables.values())
        return [dict(zip(self.variables, chosen, strict=True)) for chosen in combined]

    def looks(self, case: Case) -> list[dict[str, int]]:
        """Return sizes of the variables of a case: all, or its corners and some between."""
        each = [
            choice.looks() if isinstance(choice, Range) else [choice] for choice in case.values()
        ]
        if math.prod(map(len, each)) <= LOOKS:
            found = list(itertools.product(*each))
        else:
            corners = itertools.product(*({one[0], one[-1]} for one in each))
            draw = random.Random(0)
            found = list(itertools.islice(corners, LOOKS // 2))
            found += [tuple(map(draw.choice, each)) for _ in range(LOOKS // 2)]
        named = (dict(zip(case, sizes, strict=True)) for sizes in dict.fromkeys(found))
        return [sizes for sizes in named if self.allows(sizes)]

    def allows(self, sizes: Mapping[str, int]) -> bool:
        """Return whether sizes fulfil the conditions, and make no dimension negative."""
        if not all(condition(sizes) for condition in self.conditions):
            return False
        return all(min(one.shape(sizes), default=0) >= 0 for one in self.tensors())

    def tensors(self) -> Iterator[TensorInput]:
        """Yield the tensors that are made."""
        for leaf in pytree.tree_leaves((self.args, dict(self.kwargs))):
            if isinstance(leaf, TensorInput):
                yield leaf

    @contextmanager
    def inputs(
        self, sizes: Mapping[str, int], case: Case
    ) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        """Make the inputs; live tensors among them are marked as static for the block."""
        made: dict[int, Any] = {}
        live: list[tuple[torch.Tensor, Any]] = []

        def value(leaf: Any) -> Any:
            if isinstance(leaf, TensorInput):  # one tensor where it stands twice
                return made.setdefault(id(leaf), leaf.make(sizes, case))
            if isinstance(leaf, torch.Tensor):
                live.append((leaf, getattr(leaf, MARKS, None)))
            return leaf

        try:
            given = pytree.tree_map(value, (self.args, dict(self.kwargs)))
            for tensor, _ in live:
                static = dict.fromkeys(range(tensor.dim()), Mark("static"))
                setattr(tensor, MARKS, static | marks_of(tensor))
            yield given
        finally:
            for tensor, marks in reversed(live):
                if marks is not None:
                    setattr(tensor, MARKS, marks)
                elif hasattr(tensor, MARKS):
                    delattr(tensor, MARKS)

    def text(self, case: Case) -> str:
        """Return the inputs of a case in few words."""
        names = [*self.names, *map(str, range(len(self.names), len(self.args)))]
        named = [*zip(names, self.args, strict=False), *self.kwargs.items()]
        return " ".join(f"{name}={_shown(value, case)}" for name, value in named) or "no inputs"


def parsed(text: str, known: Mapping[str, tuple[Choice, ...]]) -> Spec:
    """Return the spec of a text: ``x=B,128:int64 mask=B:bool n:=3``.

    A dimension is a size, a range ``1..64``, several of both ``8|16|32..64``, or the name of a
    variable; behind it may stand ``:dtype``, ``@device`` and ``!grad``. ``name:=value`` is a plain
    value in Python's notation, several with ``|``.

    Raises:
        OptionError: it cannot be read.
    """
    kwargs: dict[str, Any] = {}
    variables: dict[str, tuple[Choice, ...]] = {}
    for part in text.split():
        name, _, rest = part.partition(":=")
        if rest and NAME.fullmatch(name):
            value = _literal(name, rest)
            kwargs[name] = value
            continue
        found = _TENSOR.fullmatch(part)
        if found is None:
            raise OptionError(
                f"{part!r} names no input: write name=SIZE,SIZE:dtype, or name:=value"
            )
        if found["name"] in kwargs:
            raise OptionError(f"{found['name']} is given twice in {text!r}")
        dims = [
            _dim(dim, f"{found['name']}.shape[{number}]", known, variables)
            for number, dim in enumerate(_split(found["dims"]))
        ]
        dtype, grad = _dtype(found["dtype"]), bool(found["grad"])
        if grad and not (dtype.is_floating_point or dtype.is_complex):
            raise OptionError(f"{found['name']} is of {dtype}, which has no gradients")
        kwargs[found["name"]] = TensorInput(tuple(dims), dtype, _device(found["device"]), grad)
    return Spec((), kwargs, variables)


def _split(dims: str) -> list[str]:
    """Return the texts of dimensions; one comma may end them, as in a tuple of one."""
    plain = dims.strip("()").removesuffix(",")
    return plain.split(",") if plain else []


def _dim(
    text: str, place: str, known: Mapping[str, tuple[Choice, ...]],
    variables: dict[str, tuple[Choice, ...]],
) -> Size:  # fmt: skip
    if text.isdecimal():
        return int(text)
    if text in known:
        variables[text] = known[text]
        return text
    found: list[Choice] = []
    for one in text.split("|"):
        if NAME.fullmatch(one) and one not in known:
            raise OptionError(f"{place} is {one}, and nothing says what {one} may be (sizes)")
        found += known.get(one) or _choice(place, one)
    variables[place] = tuple(found)
    return place


def choices_of(name: str, value: Any) -> tuple[Choice, ...]:
    """Return what a variable may be: of a text ``8|16|32..64``, a number, a range, or several.

    Raises:
        OptionError: it is none of these.
    """
    if isinstance(value, str):
        return tuple(itertools.chain.from_iterable(_choice(name, one) for one in value.split("|")))
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return (value,)
    if isinstance(value, Range):
        return (value,)
    if isinstance(value, range) and value.step > 0 and len(value):
        return (Range(value[0], value[-1], value.step),)
    if isinstance(value, list | tuple) and value:
        return tuple(itertools.chain.from_iterable(choices_of(name, one) for one in value))
    raise OptionError(f"{name} is a size, a range or several of them, not {value!r}")


def _choice(name: str, text: str) -> tuple[Choice, ...]:
    if text.isdecimal():
        return (int(text),)
    found = _RANGE.fullmatch(text)
    if found is None:
        raise OptionError(
            f"{name} cannot be {text!r}: write a size (8), or a range (1..64, 8..64/8)"
        )
    high = int(found["high"]) if found["high"] else None
    return (Range(int(found["low"]), high, int(found["step"] or 1)),)


def _literal(name: str, text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise OptionError(f"{name}:={text} is no value in Python's notation") from None


def _dtype(text: str | None) -> torch.dtype:
    if text is None:
        return torch.get_default_dtype()
    found = getattr(torch, text, None)
    if not isinstance(found, torch.dtype):
        raise OptionError(f"torch has no dtype {text!r}")
    return found


def _device(text: str | None) -> str:
    """Return the name of a device that tensors can be made on.

    Raises:
        OptionError: there is none of that name, or torch cannot use it here.
    """
    try:
        device = torch.device(text or "cpu")
    except RuntimeError:
        raise OptionError(f"torch has no device {text!r}") from None
    try:
        torch.empty(0, device=device)
    except Exception as error:  # of many types: torch without it, no driver, no such number
        raise OptionError(
            f"torch cannot use the device {text!r} here: {_first_line(error)}"
        ) from None
    return str(device)


def _first_line(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0]
    return text.rstrip(".") or type(error).__name__


def like(tensor: torch.Tensor, dims: Iterable[Size]) -> TensorInput:
    """Return an input like a live tensor, with other sizes."""
    grad = tensor.requires_grad
    return TensorInput(tuple(dims), tensor.dtype, str(tensor.device), grad, tensor.detach())


def _size_of(dim: Size, sizes: Mapping[str, int]) -> int:
    if isinstance(dim, Derived):
        return dim.compute(sizes)
    return sizes[dim] if isinstance(dim, str) else dim


def is_range(dim: Size, case: Case) -> bool:
    """Return whether a dimension is a symbol in a case."""
    if isinstance(dim, Derived):
        return any(isinstance(case[name], Range) for name in dim.needs)
    return isinstance(dim, str) and isinstance(case[dim], Range)


def _mark(dim: Size, case: Case) -> Mark:
    return Mark("maybe" if is_range(dim, case) else "static")


def _shown(value: Any, case: Case) -> str:
    if isinstance(value, TensorInput):
        dims = (str(case.get(dim, dim)) if isinstance(dim, str) else str(dim) for dim in value.dims)
        kind = "" if value.dtype == torch.float32 else f":{str(value.dtype).removeprefix('torch.')}"
        return f"({','.join(dims)}){kind}"
    if isinstance(value, torch.Tensor):
        return f"({','.join(map(str, value.shape))})"
    text = repr(value)
    return text if len(text) <= 24 else type(value).__name__
