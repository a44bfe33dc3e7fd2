"""Random programs about layouts: views, copies, reductions and writes over tensors of any strides.

A program is a list of Python lines over inputs whose sizes are expressions of two numbers, ``n``
and ``m``; it is drawn from a number (``draw``), so that a failing one is run again by it. Lines are
drawn while eager runs them at all sizes, so nearly all programs are valid at each of them; a few
end in a line that raises. `layout_check` compiles programs and compares them with eager.
"""

from __future__ import annotations

import contextlib
import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch._prims_common import is_non_overlapping_and_dense_or_false as dense

Sizes = tuple[int, int]
NUMBERS = (0, 1, 2, 3, 5, 7, 8, 11, 13, 16, 17, 23, 32, 37, 48, 64)
LARGEST, LARGEST_INPUT = 1 << 15, 1 << 20  # elements of a result, of an input
COARSE = ("bfloat16", "float16", "float32", "float64")
DTYPES = (
    *("float32",) * 14, *("float64",) * 2, *("int64",) * 3, "int32", "bool", "bfloat16", "float16",
    "uint8", "int8", "int16",
)  # fmt: skip
EXTENTS = ("n", "m", "n", "m", "n", "m", "n + 1", "2 * n", "m + 2", "3", "1", "4", "n * m")
LAYOUTS = ("plain", "plain", "transposed", "strided", "offset", "gapped", "expanded")


@dataclass(frozen=True)
class Given:
    """An input: its type, its sizes as expressions of ``n`` and ``m``, and how it lies."""

    dtype: str
    extents: tuple[str, ...]
    layout: str
    seed: int

    def make(self, sizes: Sizes) -> torch.Tensor:
        """The tensor at some sizes: small multiples of a half, whose sums are exact."""
        shape = [int(eval(e, {"n": sizes[0], "m": sizes[1]})) for e in self.extents]
        rng, place = torch.Generator().manual_seed(self.seed), torch.get_default_device()
        rank, made, order = len(shape), shape, list(range(len(shape)))
        if self.layout == "transposed":
            random.Random(self.seed).shuffle(order)
            made = [shape[d] for d in order]
        elif self.layout == "strided" and rank:
            made = [2 * extent for extent in shape]
        elif self.layout == "offset" and rank:
            made = [shape[0] + 2, *shape[1:]]
        elif self.layout == "gapped" and rank:
            made = [*shape[:-1], shape[-1] + 3]
        elif self.layout == "expanded" and rank:
            made = [1, *shape[1:]]
        dtype = getattr(torch, self.dtype)
        low, high = {"bool": (0, 2), "uint8": (0, 5)}.get(self.dtype, (-4, 5))
        values = torch.randint(low, high, made, generator=rng, device="cpu")
        tensor = (values / 2 if dtype.is_floating_point else values).to(place, dtype)
        if self.layout == "transposed":
            return tensor.permute([order.index(d) for d in range(rank)])
        if self.layout == "strided" and rank:
            return tensor[tuple(slice(None, None, 2) for _ in shape)]
        if self.layout == "offset" and rank:
            return tensor[2:]
        if self.layout == "gapped" and rank:
            return tensor[..., 1 : 1 + shape[-1]]
        return tensor.expand(shape) if self.layout == "expanded" and rank else tensor


@dataclass(frozen=True)
class Program:
    """Inputs, lines and what is returned.

    Attributes:
        raises: whether eager raises at some of the sizes it was drawn for.
        precision: the float type in which it rounds most.
    """

    seed: int
    inputs: tuple[Given, ...]
    lines: tuple[str, ...]
    returned: tuple[str, ...]
    raises: bool = False
    precision: str = "float64"

    def source(self, name: str = "program") -> str:
        """The function as text."""
        names = ", ".join(f"x{k}" for k in range(len(self.inputs)))
        body = "".join(f"    {line}\n" for line in self.lines)
        return f"def {name}({names}):\n{body}    return ({', '.join(self.returned)},)\n"

    def make(self, sizes: Sizes) -> list[torch.Tensor]:
        """Fresh inputs."""
        return [given.make(sizes) for given in self.inputs]

    def renamed(self, prefix: str) -> Program:
        """The same with other names, so that several programs can share a function."""
        return replace(
            self,
            lines=tuple(_prefixed(line, prefix) for line in self.lines),
            returned=tuple(_prefixed(name, prefix) for name in self.returned),
        )


def _prefixed(line: str, prefix: str) -> str:
    """A line whose variables (``x0``, ``t1``) have a prefix; nothing else looks like them."""
    words: list[str] = []
    for word in _WORDS.split(line):
        words.append(prefix + word if _VARIABLE.fullmatch(word) else word)
    return "".join(words)


_WORDS = re.compile(r"(\b[xt]\d+\b)")
_VARIABLE = re.compile(r"[xt]\d+")
NAMESPACE = {"torch": torch, "F": F}


@dataclass
class Value:
    """A tensor of a program at each of the sizes.

    Attributes:
        exact: whether no rounding was done, so that a choice made of it is the same everywhere.
    """

    name: str
    at: list[torch.Tensor]
    exact: bool = True

    @property
    def rank(self) -> int:
        return self.at[0].dim()

    @property
    def dtype(self) -> torch.dtype:
        return self.at[0].dtype

    @property
    def real(self) -> bool:
        return self.dtype.is_floating_point


@dataclass
class Draw:
    """A program being drawn; where it made gaps, nobody has written all of its memory."""

    rng: random.Random
    values: list[Value]
    lines: list[str] = field(default_factory=list)
    raises: bool = False
    gaps: bool = False

    def dim(self, v: Value) -> int:
        """A dimension, from the front or from the back."""
        d = self.rng.randrange(v.rank)
        return d - v.rank if self.rng.random() < 0.3 else d

    def one(self, *texts: str) -> str:
        return self.rng.choice(texts)

    def size(self, v: Value) -> str:
        """A size of a value, or a small number."""
        return f"{v.name}.size({self.dim(v)})" if v.rank and self.rng.random() < 0.6 else "3"

    def span(self, v: Value, d: int) -> str:
        """A slice of a dimension."""
        s = f"{v.name}.size({d})"
        return self.one(
            ":", ":", "1:", "2:", ":-1", "::2", "1::3", f": {s} // 2", f"{s} // 2 :", f"{s} % 3 :",
            "-3:", f": max({s} - 3, 1)", f": min({s}, 5)", f"{s} - 2 :", f"1 : {s} // 2 + 1 : 2",
            f"{s} // 3 : {s} - {s} // 4", "None", "0", "-1", "1:-1", f"({s} + 1) // 2 :",
        )  # fmt: skip


Maker = Callable[[Draw, Value], str | None]


def few(make: Maker) -> Maker:
    """A maker that takes a dimension into pieces: at most a dozen, as each costs tracing time."""
    return lambda d, v: (
        make(d, v) if all(extent <= 12 for t in v.at for extent in t.shape) else None
    )


def needs(rank: int, most: int = 6) -> Callable[[Maker], Maker]:
    """A maker for values of at least (and at most) some dimensions."""

    def wrap(make: Maker) -> Maker:
        return lambda d, v: make(d, v) if rank <= v.rank <= most else None

    return wrap


def _index(d: Draw, v: Value) -> str:
    return f"{v.name}[{', '.join(d.span(v, k) for k in range(d.rng.randint(1, v.rank)))}]"


def _permute(d: Draw, v: Value) -> str:
    order = list(range(v.rank))
    d.rng.shuffle(order)
    return f"{v.name}.permute({', '.join(map(str, order))})"


def _swapped(d: Draw, v: Value) -> str:
    """Another shape of as many elements."""
    sizes = [f"{v.name}.size({k})" for k in range(v.rank)]
    d.rng.shuffle(sizes)
    while len(sizes) > 1 and d.rng.random() < 0.4:
        sizes[:2] = [f"{sizes[0]} * {sizes[1]}"]
    if d.rng.random() < 0.2:
        sizes.insert(d.rng.randrange(len(sizes) + 1), "1")
    return f"{v.name}.{d.one('reshape', 'reshape', 'view')}({', '.join(sizes)})"


def _expand(d: Draw, v: Value) -> str:
    at = d.rng.randint(0, v.rank)
    sizes = ["-1"] * v.rank
    sizes.insert(at, d.size(v))
    return f"{v.name}.unsqueeze({at}).expand({', '.join(sizes)})"


def _strided(d: Draw, v: Value) -> str:
    a = v.name
    if d.gaps or d.rng.random() < 0.7:
        a = f"{a}.contiguous()"
    n = f"{v.name}.numel()"
    return d.one(
        f"{a}.as_strided(({n} // 2, 2), (2, 1))",
        f"{a}.as_strided(({n} // 2, 2), (1, {n} // 2))",
        f"{a}.as_strided(({n} - 1, 2), (1, 1))",
        f"{a}.as_strided((2, {n} // 3), ({n} // 3, 2))",
        f"{a}.as_strided((({n} + 1) // 2,), (2,))",
        f"{a}.as_strided(({n} % 5 + 1, 3), (0, max({n} // 4, 1)))",
    )


VIEWS: tuple[Maker, ...] = (
    *(needs(1)(_index),) * 6,
    needs(2)(lambda d, v: f"{v.name}.transpose({d.dim(v)}, {d.dim(v)})"),
    needs(2)(_permute),
    needs(2)(_permute),
    *(needs(1)(_swapped),) * 3,
    needs(0, 4)(lambda d, v: f"{v.name}.unsqueeze({d.rng.randint(0, v.rank)})"),
    needs(1)(lambda d, v: f"{v.name}.squeeze({d.dim(v)})"),
    needs(1)(lambda d, v: f"{v.name}.flip({d.dim(v)})"),
    needs(2)(lambda d, v: f"{v.name}.flip({d.one('0, 1', '-1, 0', '1')})"),
    *(needs(0, 3)(_expand),) * 2,
    needs(1, 4)(
        lambda d, v: f"{v.name}.unfold({d.dim(v)}, {d.one('2', '3')}, {d.one('1', '2', '3')})"
    ),
    needs(1)(_strided),
    needs(0)(lambda d, v: f"{v.name}.{d.one('reshape(-1)', 'flatten()', 'view(-1)')}"),
    needs(2)(lambda d, v: f"{v.name}.flatten({d.rng.randint(0, v.rank - 2)}, -1)"),
    needs(1)(lambda d, v: f"{v.name}.reshape({d.one('-1, 2', '2, -1', '-1, 3', '1, -1')})"),
    needs(1)(lambda d, v: f"{v.name}.chunk({d.one('2', '3')}, {d.dim(v)})[{d.one('0', '-1')}]"),
    few(
        needs(1)(lambda d, v: f"{v.name}.split({d.one('2', '3')}, {d.dim(v)})[{d.one('0', '-1')}]")
    ),
    needs(1)(
        lambda d, v: (
            f"{v.name}.split({v.name}.size({(k := d.dim(v))}) // 2 + 1, {k})[{d.one('0', '-1')}]"
        )
    ),
    few(needs(1)(lambda d, v: f"{v.name}.unbind({d.dim(v)})[{d.one('0', '-1')}]")),
    needs(2)(lambda d, v: f"{v.name}.diagonal({d.one('0', '1', '-1')}, {d.one('0, 1', '-1, 0')})"),
    needs(2)(lambda d, v: f"{v.name}.{d.one('mT', 'T' if v.rank == 2 else 'mT')}"),
    needs(2)(lambda d, v: f"{v.name}.movedim({d.dim(v)}, {d.dim(v)})"),
    needs(1)(
        lambda d, v: (
            f"{v.name}.narrow({(k := d.dim(v))}, {d.one('0', '1')}, {v.name}.size({k}) // 2)"
        )
    ),
    needs(1)(
        lambda d, v: (
            f"{v.name}.select({(k := d.dim(v))}, {d.one('0', '-1', f'{v.name}.size({k}) // 2')})"
        )
    ),
    needs(4, 4)(lambda d, v: f"{v.name}.contiguous(memory_format=torch.channels_last)"),
    needs(1)(lambda d, v: f"{v.name}.unflatten({d.dim(v)}, {d.one('(2, -1)', '(-1, 1)')})"),
    needs(0)(lambda d, v: f"{v.name}.contiguous()"),
)


def _arange(d: Draw, v: Value, k: int) -> str:
    s = f"{v.name}.size({k})"
    return d.one(
        f"torch.arange({s})",
        f"torch.arange({s} - 1, -1, -1)",
        f"torch.arange({s} // 2) * 2",
        f"torch.arange(3) % {s}",
        f"-1 - torch.arange({s})",
        f"torch.arange(0, {s}, 2)",
    )


def _picked(d: Draw, v: Value) -> str:
    k = d.rng.randrange(v.rank)
    text = _arange(d, v, k)
    if text.startswith("-1") or d.rng.random() < 0.5:
        return f"{v.name}[{':, ' * k}{text}]"
    return f"{v.name}.index_select({k}, {text})"


def _gather(d: Draw, v: Value) -> str:
    k = d.rng.randrange(v.rank)
    shape = ["1"] * v.rank
    shape[k] = "-1"
    spot = f"(torch.arange({v.name}.size({k})) * 3 % {v.name}.size({k})).view({', '.join(shape)})"
    if d.rng.random() < 0.4:
        return f"torch.take_along_dim({v.name}, {spot}, {k})"
    if d.rng.random() < 0.5:
        return f"torch.zeros_like({v.name}).scatter_add({k}, {spot}.expand_as({v.name}), {v.name})"
    return f"{v.name}.gather({k}, {spot}.expand_as({v.name}))"


def _pad(d: Draw, v: Value) -> str:
    pairs = d.rng.randint(1, v.rank)
    widths = [d.one("0", "1", "2", "-1", "3", d.size(v)) for _ in range(2 * pairs)]
    value = "0" if v.dtype is torch.bool else d.one("0", "1", "-1" if v.real else "2")
    return f"F.pad({v.name}, ({', '.join(widths)}), value={value})"


def _reflected(d: Draw, v: Value) -> str:
    kind = d.one("reflect", "replicate", "circular")
    return f"F.pad({v.name}, ({d.one('0', '1', '2')}, {d.one('0', '1')}), mode='{kind}')"


def _cat(d: Draw, v: Value) -> str:
    k = d.dim(v)
    other = d.rng.choice([w for w in d.values if w.rank == v.rank] or [v]).name
    if d.rng.random() < 0.5:
        other = d.one(f"{v.name}.flip({k})", f"{v.name}.narrow({k}, 0, {v.name}.size({k}) // 2)")
    parts = [v.name, other, *([v.name] if d.rng.random() < 0.3 else [])]
    d.rng.shuffle(parts)
    return f"torch.cat([{', '.join(parts)}], {k})"


def _binary(d: Draw, v: Value) -> str:
    others = [w.name for w in d.values if w.dtype is v.dtype]
    other = d.rng.choice(others) if d.rng.random() < 0.7 else f"{v.name}.size(0)"
    if v.dtype is torch.bool:
        return f"{v.name} {d.one('&', '|', '^')} {d.rng.choice(others)}"
    return f"{v.name} {d.one('+', '+', '-', '*')} {other}"


def _outer(d: Draw, v: Value) -> str:
    if v.rank == 1 and v.dtype is not torch.bool:
        return f"{v.name}[:, None] {d.one('+', '-', '*')} {v.name}[None, :]"
    return f"{v.name} & {v.name}.flip(0)" if v.dtype is torch.bool else f"{v.name} - {v.name}.mT"


def _matmul(d: Draw, v: Value) -> str | None:
    if not v.real:
        return None
    a = v.name
    return d.one(
        f"{a} @ {a}.mT",
        f"{a}.mT @ {a}",
        f"{a} @ {a}.mT.contiguous()",
        f"{a}[..., :1] * {a}.mT[..., :1, :]",
        f"F.linear({a}, {a}.reshape(-1, {a}.size(-1)))",
    )


def _with_gaps(d: Draw, v: Value) -> str:
    """The same elements in memory of which some is nobody's, in rows or in columns."""
    d.gaps = True
    rows = [f"{v.name}.size({k})" for k in range(v.rank)]
    if d.rng.random() < 0.5:
        steps = [" * ".join(["2", *rows[k + 1 :]]) for k in range(v.rank)]
    else:
        steps = [
            " * ".join([d.one("1", "3"), *(f"({n} + 1)" for n in rows[:k])]) for k in range(v.rank)
        ]
        steps[0] = "1"
    place = f"({', '.join(rows)},), ({', '.join(steps)},)"
    own = f"{v.name}.new_empty_strided({place})"
    make = d.one(f"torch.empty_strided({place}, dtype={v.name}.dtype)", own)
    return f"{make}.copy_({v.name})"


MAKES: tuple[Maker, ...] = (
    needs(1, 3)(_with_gaps),
    *(needs(1)(_binary),) * 5,
    needs(1, 2)(_outer),
    needs(1)(_cat),
    needs(1)(_cat),
    needs(0, 3)(
        lambda d, v: (
            f"torch.stack([{v.name}, {v.name} + {v.name}], {d.rng.randint(0, v.rank)})"
            if v.dtype is not torch.bool
            else None
        )
    ),
    needs(1)(_pad),
    needs(1)(_pad),
    needs(2, 3)(lambda d, v: _reflected(d, v) if v.real else None),
    needs(1, 3)(
        lambda d, v: f"{v.name}.repeat({', '.join(d.one('1', '2', '3') for _ in range(v.rank))})"
    ),
    needs(1)(lambda d, v: f"{v.name}.repeat_interleave({d.one('2', '3')}, {d.dim(v)})"),
    needs(1)(lambda d, v: f"{v.name}.roll({d.one('1', '-1', '2', '5')}, {d.dim(v)})"),
    needs(2)(lambda d, v: f"{v.name}.{d.one('tril', 'triu')}({d.one('0', '1', '-1')})"),
    needs(1)(_picked),
    needs(1)(_picked),
    needs(1)(_gather),
    needs(2, 3)(_matmul),
    needs(0)(lambda d, v: f"{v.name}.clone()"),
    needs(0)(lambda d, v: f"{v.name}.to(torch.{d.one('float32', 'float64', 'int64', 'bool')})"),
    needs(0)(lambda d, v: None if v.dtype is torch.bool else f"{v.name} * 2 + 1"),
    needs(0)(lambda d, v: None if v.dtype is torch.bool else f"{v.name}.abs()"),
    needs(0)(lambda d, v: f"F.relu({v.name})" if v.real else None),
    needs(1)(lambda d, v: f"torch.where({v.name} > 0, {v.name}, {v.name}.flip(0))"),
    needs(1)(lambda d, v: f"{v.name}.masked_fill({v.name} > 0, 0)"),
    needs(1)(
        lambda d, v: (
            f"{v.name} + torch.arange({v.name}.size(-1)).to({v.name}.dtype)" if v.real else None
        )
    ),
    needs(1)(lambda d, v: f"{v.name} / {v.name}.size({d.dim(v)})" if v.real else None),
)
# What rounds: a choice made of it may differ from eager's for a reason.
ROUNDING = ("mean", "var", "std", "var_mean", "softmax", "logsumexp", "norm", "prod")
# What turns small differences into large ones.
CHOOSING = (" > ", "torch.int64", "bool", "count_nonzero", ".any(", ".all(")


def _reduced(d: Draw, v: Value) -> str | None:
    name = d.one("sum", "sum", "mean", "amax", "amin", "argmax", "argmin", "any", "all", "prod",
                 "var", "max", "min", "softmax", "log_softmax", "cumsum", "logsumexp", "norm",
                 "std", "cummax", "sort", "aminmax", "median", "count_nonzero", "cumprod",
                 "nansum", "var_mean", "topk")  # fmt: skip
    k, keep = d.dim(v), d.one("", ", keepdim=True")
    choice = name in ("argmax", "argmin", "cummax", "sort", "median", "topk")
    if (choice and not v.exact) or (v.dtype is torch.bool and name not in ("sum", "any", "all")):
        return None
    if name in ("prod", "cumprod") and v.dtype.itemsize == 2:
        return None  # eager's overflows on the way, in half precision; kernels continue in single
    if not v.real and name in (*ROUNDING, "log_softmax", "nansum") and name != "prod":
        return None
    if name in ("softmax", "log_softmax", "cumsum", "cumprod"):
        return f"{v.name}.{name}({k})"
    if name in ("sort", "median") and not dense(v.at[0]):
        return None  # wrong in torch 2.13: sort in memory with gaps, median of an expanded tensor
    if name in ("max", "min", "median"):
        # which of equal elements is the median, eager itself decides otherwise in other memory
        pick = d.one("[0]", "[1]") if v.exact and name != "median" else "[0]"
        return f"{v.name}.{name}()" if d.rng.random() < 0.4 else f"{v.name}.{name}({k}{keep}){pick}"
    if name in ("cummax", "sort"):
        return f"{v.name}.{name}({k})[0]"
    if name == "topk":
        return f"{v.name}.topk(1, {k})[0]"
    if name == "aminmax":
        return f"{v.name}.aminmax(dim={k}{keep})[{d.one('0', '1')}]"
    if name == "var_mean":
        return f"torch.var_mean({v.name}, {k}{keep})[{d.one('0', '1')}]"
    if name == "count_nonzero":
        return f"{v.name}.count_nonzero({k})"
    if d.rng.random() < 0.25 and name not in ("logsumexp",):
        return f"{v.name}.{name}()"
    if v.rank > 1 and d.rng.random() < 0.3 and name not in ("argmax", "argmin", "prod"):
        dims = d.rng.sample(range(v.rank), 2)
        return f"{v.name}.{name}(dim={dims}{keep})"
    return f"{v.name}.{name}(dim={k}{keep})"


def _written(d: Draw, v: Value) -> str | None:
    """A write through a view; where operands overlap it in part, eager mostly refuses."""
    if v.dtype is torch.bool:
        return None
    view = d.rng.choice(VIEWS)(d, v)
    refused = (".flip", ".contiguous", ".reshape", ".flatten")
    if torch.get_default_device().type != "cpu":  # threads race for elements that are there twice
        refused += (".unfold", ".as_strided")
    if view is None or any(word in view for word in refused):
        view = f"{v.name}[{d.span(v, 0)}]" if v.rank else v.name
    other = f"{d.rng.choice(d.values).name}.clone()"
    writes = (".add_(1)", ".mul_(2)", ".zero_()", ".copy_(torch.ones(()))", ".neg_()")
    return view + d.one(*writes, f".copy_({other})", f".add_({other})")


def run(text: str, values: dict[str, torch.Tensor]) -> Any:
    """Evaluate or execute one line."""
    if " = " in text.partition("(")[0]:
        exec(text, {**NAMESPACE}, values)
        return None
    return eval(text, {**NAMESPACE}, values)


def _try(d: Draw, text: str) -> tuple[list[Any], int]:
    """A line at all sizes: the results, None where it raised, and how often it did."""
    results, raised = [], 0
    for k in range(len(d.values[0].at)):
        try:
            results.append(run(text, {v.name: v.at[k] for v in d.values}))
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
            results.append(None)
            raised += 1
    return results, raised


def _inputs(rng: random.Random, sizes: Sequence[Sizes]) -> tuple[Given, ...]:
    given, largest = [], dict(zip("nm", map(max, *sizes), strict=True))
    for _ in range(rng.choice((1, 1, 2, 2, 3))):
        rank = rng.choice((0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4))
        extents = [rng.choice(EXTENTS) for _ in range(rank)]
        while math.prod(most := [eval(e, largest) for e in extents]) > LARGEST_INPUT:
            extents[most.index(max(most))] = "2"
        layout, seed = rng.choice(LAYOUTS), rng.getrandbits(30)
        given.append(Given(rng.choice(DTYPES), tuple(extents), layout, seed))
    if len(given) > 1 and rng.random() < 0.6:
        given[1] = replace(given[0], seed=given[1].seed, layout=given[1].layout)
    return tuple(given)


def draw(seed: int, sizes: Sequence[Sizes], may_raise: bool = False) -> Program:
    """The program of a number, for calls with some sizes.

    Args:
        seed: of the program.
        sizes: ``n`` and ``m`` of each call.
        may_raise: whether a line may raise at some of the sizes; it is the last one then.
    """
    rng = random.Random(seed)
    inputs = _inputs(rng, sizes)
    d = Draw(rng, [Value(f"x{k}", [g.make(s) for s in sizes]) for k, g in enumerate(inputs)])
    wanted = rng.randint(2, 6)
    for _ in range(60):
        if len(d.lines) >= wanted or d.raises:
            break
        _add_line(d, may_raise)
    names = [v.name for v in d.values]
    made = names[len(inputs) :] or names
    returned = [made[-1] if not d.raises else names[0]]
    returned += rng.sample(names, min(len(names), rng.randint(0, 2)))
    types = {str(v.dtype) for v in d.values}
    precision = next((name for name in COARSE if f"torch.{name}" in types), "float64")
    returned = list(dict.fromkeys(returned))
    return Program(seed, inputs, tuple(d.lines), tuple(returned), d.raises, precision)


def _add_line(d: Draw, may_raise: bool) -> None:
    """Draw a line, and keep it if it is valid at all sizes, or may raise at some."""
    v = d.values[-1] if d.rng.random() < 0.6 else d.rng.choice(d.values)
    kind = d.rng.choice("vvvvvmmmmrrw")
    if kind == "w":
        text = _written(d, v)
    elif kind == "r":
        text = _reduced(d, v) if v.rank else None
    else:
        text = d.rng.choice(VIEWS if kind == "v" else MAKES)(d, v)
    if text is None or (not v.exact and any(c in text for c in CHOOSING)):
        return
    before = [[t.clone() for t in w.at] for w in d.values] if kind == "w" else []
    results, raised = _try(d, text)
    if raised:
        _restore(d, before)
        if may_raise and d.rng.random() < 0.3:
            d.raises = True
            d.lines.append(text if kind == "w" else f"t{len(d.lines)} = {text}")
        return
    if not all(isinstance(r, torch.Tensor) and r.numel() <= LARGEST for r in results):
        _restore(d, before)
        return
    if kind == "w":
        exact = all(x.exact for x in d.values)
        for w in d.values:
            w.exact = exact
        d.lines.append(text)
        return
    name = f"t{len(d.lines)}"
    d.lines.append(f"{name} = {text}")
    rounds = any(f"{r}(" in text for r in ROUNDING) or " / " in text
    rounds |= results[0].dtype in (torch.bfloat16, torch.float16)
    others = all(w.exact for w in d.values if re.search(rf"\b{w.name}\b", text))
    d.values.append(Value(name, results, not rounds and others))


def _restore(d: Draw, before: list[list[torch.Tensor]]) -> None:
    """Undo a write that some of the sizes refused."""
    with torch.no_grad():
        for value, kept in zip(d.values, before, strict=False):
            for tensor, old in zip(value.at, kept, strict=True):
                if not torch.equal(tensor, old):
                    with contextlib.suppress(RuntimeError):  # overlapping memory
                        tensor.copy_(old)


def draw_sizes(rng: random.Random) -> list[Sizes]:
    """Sizes of two or three calls; the first ones are seldom zero or one."""
    sizes = []
    for k in range(rng.choice((2, 3))):
        pool = NUMBERS[2:] if (k == 0 and rng.random() < 0.9) or rng.random() < 0.6 else NUMBERS
        sizes.append((rng.choice(pool), rng.choice(pool)))
    return sizes
