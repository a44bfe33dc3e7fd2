"""What eager refuses, compiled code refuses: it never returns a result in place of the error."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from support import crossed
from torch.nn import functional as F

import tc
from tc.compiler.core import refusals
from tc.compiler.errors import TcError

T = torch.Tensor
x = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
small = torch.ones(2, dtype=torch.int8)
long = torch.ones(2, dtype=torch.int64)
at = torch.tensor([0])
mask = torch.ones(2, dtype=torch.bool)

REFUSED: dict[str, Callable[[], Any]] = {
    # numbers that do not fit
    "fill": lambda: torch.zeros(3, dtype=torch.uint8).fill_(300),
    "fill float": lambda: torch.zeros(3).fill_(1e300),
    "full": lambda: torch.full((2,), 300, dtype=torch.uint8),
    "full_like": lambda: torch.full_like(small, 300),
    "new_full": lambda: small.new_full((2,), 300),
    "masked_fill": lambda: small.masked_fill(mask, 300),
    "where": lambda: torch.where(mask, small, 300),
    "clamp": lambda: small.clamp(max=300),
    "hardtanh": lambda: F.hardtanh(small, -300, 300),
    "pad": lambda: F.pad(small, (1, 1), value=300),
    "threshold": lambda: F.threshold(small, 1, 300),
    "index_fill": lambda: small.index_fill(0, at, 300),
    "scatter": lambda: small.scatter(0, at, 300),
    "fill_diagonal_": lambda: torch.zeros(2, 2, dtype=torch.int8).fill_diagonal_(300),
    # numbers out of an op's range
    "celu": lambda: F.celu(x, alpha=0),
    "smooth_l1_loss": lambda: F.smooth_l1_loss(x, x, beta=-1.0),
    "unfold of negative padding": lambda: F.unfold(torch.ones(1, 1, 5, 5), 2, padding=-1),
    "interpolate to nothing": lambda: F.interpolate(torch.ones(1, 1, 4), size=0),
    "interpolate by zero": lambda: F.interpolate(
        torch.ones(1, 1, 4, 4), scale_factor=0.0, mode="bicubic"
    ),
    "mvlgamma": lambda: torch.mvlgamma(x.abs() + 9, 0),
    # types
    "mul_ of integers by a float": lambda: long.clone().mul_(0.5),
    "mul_ of bools by an integer": lambda: mask.clone().mul_(2),
    "add_ of a complex number": lambda: torch.ones(2).add_(1j),
    "negative power": lambda: long**-1,
    "1 - bool": lambda: 1 - mask,
    "complex into complex128": lambda: torch.complex(
        x, x, out=torch.zeros(x.shape, dtype=torch.complex128)
    ),
    "positions into floats": lambda: torch.bucketize(x, x[0].sort()[0], out=torch.zeros(3, 4)),
    "positions into doubles": lambda: torch.bucketize(
        x, x[0].sort()[0], out=torch.zeros(3, 4, dtype=torch.float64)
    ),
    "index_add": lambda: torch.zeros(3).index_add(0, at, torch.ones(1, dtype=torch.float64)),
    "batch_norm": lambda: F.batch_norm(x, torch.zeros(4).double(), torch.ones(4).double()),
    "layer_norm": lambda: F.layer_norm(x, (4,), torch.ones(4).double()),
    "binary_cross_entropy": lambda: F.binary_cross_entropy(x.sigmoid(), x.sigmoid().double()),
    "cross_entropy": lambda: F.cross_entropy(x, torch.zeros(3, dtype=torch.int32)),
    "gelu": lambda: F.gelu(long),
    "glu": lambda: F.glu(long),
    "hardshrink": lambda: F.hardshrink(long),
    "silu": lambda: F.silu(long),
    "interpolate": lambda: F.interpolate(torch.ones(1, 1, 4, dtype=torch.int64), 8),
    "unfold": lambda: F.unfold(torch.ones(1, 1, 5, 5, dtype=torch.int64), 2),
    # shapes
    "softmax": lambda: x.softmax(4),
    "cummax": lambda: torch.tensor(1.0).cummax(5),
    "cummin": lambda: torch.tensor(1.0).cummin(-100),
    "slice_scatter": lambda: x.slice_scatter(torch.zeros(3, 3), 1, 3, 9),
    "softmin": lambda: F.softmin(x, 5),
    "index_put_": lambda: x.clone().index_put_((torch.tensor([0, 1]),), torch.zeros(3)),
    "setitem": lambda: x.clone().__setitem__(torch.tensor([0, 1]), torch.zeros(3)),
    "view": lambda: torch.zeros(3, 1, 1, 37)[..., 19:].view(18, 1, 3, 1),
    "clamp_max_": lambda: x[:, :1].clone().clamp_max_(x),
    # values
    "binary_cross_entropy of 9": lambda: F.binary_cross_entropy(x * 9, x.sigmoid()),
    "one_hot": lambda: F.one_hot(torch.tensor([5]), 3),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", REFUSED)
def test_a_call_that_eager_refuses_raises(name: str) -> None:
    call = REFUSED[name]
    with pytest.raises((RuntimeError, IndexError)):
        call()
    tc.reset()
    with pytest.raises((RuntimeError, IndexError)) as found:
        tc.compile(lambda: call())()
    assert not isinstance(found.value, TcError)


def clamp_to_columns(x: T, y: T) -> T:
    return x.clamp_max_(y)


def into(x: T, y: T) -> T:
    return torch.fmax(x, y, out=x)


@pytest.mark.parametrize("write", [clamp_to_columns, into])
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_a_write_that_eager_refuses_leaves_what_eager_leaves(write: Callable[[T, T], T]) -> None:
    given = torch.randn(5, 1)
    b = torch.randn(5, 5)
    left = []
    for function in (write, tc.compile(write)):
        a = given.clone()
        with pytest.raises(RuntimeError) as raised:
            function(a, b)
        left.append((a.shape, str(raised.value)))
    assert left[1] == left[0]
    if write is clamp_to_columns:
        assert torch.equal(a, given)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_a_result_given_as_an_input_is_resized_as_in_eager() -> None:
    b = torch.randn(5, 5)
    wanted, a = torch.empty(0), torch.empty(0)
    torch.add(b, b, out=wanted)
    assert torch.equal(tc.compile(lambda a, b: torch.add(b, b, out=a))(a, b), wanted)
    assert torch.equal(a, wanted)


@pytest.mark.parametrize("function", [torch.matmul, torch.mm])
def test_a_result_of_unknown_size_is_refused_for_its_type(function: Callable[..., T]) -> None:
    """Torch decomposes calls with symbols, and converts to the type of what is given."""
    compiled = tc.compile(lambda a, out: function(a, a, out=out), dynamic=True)
    a = torch.randn(3, 3)
    for kind in (torch.float32, torch.float64):
        out = torch.zeros(3, 3, dtype=kind)
        if kind is a.dtype:
            torch.testing.assert_close(compiled(a, out), a @ a)
            continue
        with pytest.raises(RuntimeError, match="Expected out tensor to have dtype"):
            compiled(a, out)


DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.int8, torch.int32, torch.int64, torch.uint8,
    torch.bool,
)  # fmt: skip
NUMBERS = (2, -1, 300, -70000, 0.5, True, 1e300, 2j)
DRAWN: dict[str, Callable[[T, T, Any], Any]] = {
    "add": lambda a, b, n: a + n,
    "add_": lambda a, b, n: a.add_(n),
    "sub_": lambda a, b, n: a.sub_(b),
    "rsub": lambda a, b, n: n - a,
    "mul_": lambda a, b, n: a.mul_(b),
    "div_": lambda a, b, n: a.div_(n),
    "pow": lambda a, b, n: a**n,
    "or": lambda a, b, n: a | b,
    "shift": lambda a, b, n: a << b,
    "neg": lambda a, b, n: -a,
    "clamp": lambda a, b, n: a.clamp(min=n),
    "maximum_": lambda a, b, n: torch.maximum(a, b),
    "where": lambda a, b, n: torch.where(b > 0, a, n),
    "lerp": lambda a, b, n: torch.lerp(a, b, 0.5),
    "addcmul": lambda a, b, n: torch.addcmul(a, a, b, value=n),
    "fill_": lambda a, b, n: a.fill_(n),
    "masked_fill": lambda a, b, n: a.masked_fill(b > 0, n),
    "index_add": lambda a, b, n: a.index_add(0, torch.tensor([0, 1, 0, 1]), b),
    "index_put": lambda a, b, n: a.index_put((torch.tensor([0, 1, 0, 1]),), b),
    "scatter_add": lambda a, b, n: a.scatter_add(0, torch.tensor([0, 1, 0, 1]), b),
    "gather": lambda a, b, n: a.gather(0, b.clamp(0, 1)),
    "cat": lambda a, b, n: torch.cat([a, b]),
    "matmul": lambda a, b, n: a @ b,
    "outer": lambda a, b, n: torch.outer(a, b),
    "mean": lambda a, b, n: a.mean(),
    "std": lambda a, b, n: a.std(),
    "cumsum_": lambda a, b, n: a.cumsum_(0),
    "softmax": lambda a, b, n: a.softmax(0),
    "gelu": lambda a, b, n: F.gelu(a),
    "elu": lambda a, b, n: F.elu(a, n),
    "softplus": lambda a, b, n: F.softplus(a),
    "prelu": lambda a, b, n: F.prelu(a, b[:1]),
    "mse_loss": lambda a, b, n: F.mse_loss(a, b),
    "smooth_l1": lambda a, b, n: F.smooth_l1_loss(a, b),
    "layer_norm": lambda a, b, n: F.layer_norm(a, (4,), b),
    "linear": lambda a, b, n: F.linear(a, b.view(1, 4)),
    "embedding": lambda a, b, n: F.embedding(a.clamp(0, 1), b.view(2, 2)),
    "conv1d": lambda a, b, n: F.conv1d(a.view(1, 1, 4), b.view(1, 1, 4)),
    "avg_pool": lambda a, b, n: F.avg_pool1d(a.view(1, 1, 4), 2),
    "pad": lambda a, b, n: F.pad(a, (1, 1), value=n),
    "atan2": lambda a, b, n: torch.atan2(a, b),
    "bitwise_not": lambda a, b, n: ~a,
    "fmod_": lambda a, b, n: a.fmod_(n),
    "copysign_": lambda a, b, n: a.copysign_(b),
    "heaviside": lambda a, b, n: torch.heaviside(a, b),
    "isin": lambda a, b, n: torch.isin(a, b),
    "bincount": lambda a, b, n: a.clamp(0, 1).bincount(),
    "searchsorted": lambda a, b, n: torch.searchsorted(a, b),
}  # fmt: skip


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as error:
        return error


def draw(seed: int) -> tuple[str, T, T, Any]:
    rng = random.Random(seed)
    a, b = (torch.tensor([1, 0, 1, 1]).to(rng.choice(DTYPES)) for _ in "ab")
    return rng.choice([*DRAWN]), a, b, rng.choice(NUMBERS)


def check_drawn(seed: int) -> None:
    name, a, b, number = draw(seed)

    def call(a: T, b: T) -> Any:
        return DRAWN[name](a, b, number)

    wanted = outcome(call, a.clone(), b.clone())
    tc.reset()
    found = outcome(tc.compile(call), a.clone(), b.clone())
    what = f"{name} of {a.dtype}, {b.dtype}, {number!r}"
    if isinstance(wanted, Exception):
        assert isinstance(found, Exception), f"{what}: eager raises {wanted!r}"
        assert not isinstance(found, TcError), f"{what}: {found!r}"
    else:
        assert not isinstance(found, Exception), f"{what}: {found!r}"
        torch.testing.assert_close(
            found, wanted, equal_nan=True, msg=lambda text: f"{what}: {text}"
        )


def test_calls_drawn_at_random_raise_exactly_where_eager_does(drawn: Any) -> None:
    for seed in drawn(range(7000, 7015), 6):
        check_drawn(seed)


@pytest.mark.slow
def test_many_calls_drawn_at_random() -> None:
    for seed in range(3000):
        check_drawn(seed)


#: calls on an image of two channels and as many dimensions as the number before them
OF_IMAGES: dict[str, tuple[int, Callable[[T], Any]]] = {
    **{
        f"interpolate {mode} {rank}": (
            rank,
            lambda x, mode=mode, rank=rank: F.interpolate(x, (3,) * rank, mode=mode),
        )
        for mode, ranks in {
            "nearest": (1, 2, 3), "nearest-exact": (1, 2, 3), "linear": (1,), "bilinear": (2,),
            "bicubic": (2,), "trilinear": (3,), "area": (1, 2, 3),
        }.items()
        for rank in ranks
    },
    "smooth bilinear": (
        2, lambda x: F.interpolate(x, (3, 3), mode="bilinear", antialias=True)
    ),
    "interpolate by 2": (2, lambda x: F.interpolate(x, scale_factor=2)),
    "interpolate without gradients": (
        2, torch.no_grad()(lambda x: F.interpolate(x, (3, 3), mode="bilinear"))
    ),
    "adaptive_avg_pool": (2, lambda x: F.adaptive_avg_pool2d(x, 2)),
    "adaptive_max_pool": (2, lambda x: F.adaptive_max_pool2d(x, 2)),
    "avg_pool": (3, lambda x: F.avg_pool3d(x, 2, padding=1)),
    "max_pool": (1, lambda x: F.max_pool1d(x, 2, padding=1)),
    "conv": (2, lambda x: F.conv2d(x, torch.ones(2, 2, 1, 1))),
    "conv_transpose": (1, lambda x: F.conv_transpose1d(x, torch.ones(2, 2, 2))),
    "reflect": (1, lambda x: F.pad(x, (1, 1), mode="reflect")),
    "replicate": (2, lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate")),
    "circular": (3, lambda x: F.pad(x, (1, 1) * 3, mode="circular")),
    "lp_pool": (2, lambda x: F.lp_pool2d(x, 2.0, 2)),
    "instance_norm": (2, lambda x: F.instance_norm(x)),
    "batch_norm": (
        2, lambda x: F.batch_norm(x, torch.zeros(2), torch.ones(2), training=True)
    ),
    "group_norm": (1, lambda x: F.group_norm(x, 2)),
    "grid_sample": (
        2, lambda x: F.grid_sample(x, torch.zeros(len(x), 3, 3, 2), align_corners=False)
    ),
    "unfold": (2, lambda x: F.unfold(x, 2, padding=1)),
    "pixel_unshuffle": (2, lambda x: F.pixel_unshuffle(x, 1)),
    "max": (2, lambda x: x.max()),
    "argmin": (1, lambda x: x.argmin(-1)),
    "median": (1, lambda x: x.median(-1)),
}  # fmt: skip
#: calls on a matrix with a vector of positions
AT_POSITIONS: dict[str, Callable[[T, T], Any]] = {
    "index_fill": lambda x, i: x.index_fill(0, i, 1.0),
    "index_copy": lambda x, i: x.index_copy(0, i, x.new_ones(len(i), x.shape[1])),
    "index_add": lambda x, i: x.index_add(0, i, x.new_ones(len(i), x.shape[1])),
    "index_select": lambda x, i: x.index_select(0, i),
    "rows": lambda x, i: x[i],
    "columns": lambda x, i: x[:, i],
    "index_put": lambda x, i: x.index_put((i,), x.new_ones(())),
    "index_put of both": lambda x, i: x.index_put((i, i), x.new_ones(()), accumulate=True),
    "take": lambda x, i: x.take(i),
    "put": lambda x, i: x.put(i, x.new_ones(len(i))),
    "gather": lambda x, i: x.gather(0, i[:, None].expand(len(i), x.shape[1])),
    "scatter": lambda x, i: x.scatter(0, i[:, None].expand(len(i), x.shape[1]), 1.0),
    "embedding": lambda x, i: F.embedding(i, x),
    "embedding_bag": lambda x, i: F.embedding_bag(i[None], x),
    "nll_loss": lambda x, i: F.nll_loss(x, i[:1].expand(len(x))),
    "cross_entropy": lambda x, i: F.cross_entropy(x, i[:1].expand(len(x))),
    "select_scatter": lambda x, i: x.select_scatter(x.new_ones(x.shape[1]), 0, 0),
}


def check_of_nothing(seed: int) -> None:
    """Compare a call on a tensor without elements with eager; one of 4,000."""
    rng = random.Random(seed)
    name = rng.choice([*OF_IMAGES, *AT_POSITIONS])
    operands: tuple[T, ...]
    if name in OF_IMAGES:
        rank, call = OF_IMAGES[name]
        shape = rng.choice([(1, 2), (0, 2), (1, 0)]) + tuple(
            rng.choice([0, 4]) for _ in range(rank)
        )
        operands = (torch.ones(shape),)
    else:
        call = AT_POSITIONS[name]
        shape = rng.choice([(0, 0), (0, 3), (3, 0), (0, 1), (1, 0)])
        operands = (torch.ones(shape), torch.tensor(rng.choice([[0], [5], [-1], [0, 1]])))
        if rng.random() < 0.2:
            operands = (operands[0], operands[1][:0])
    dynamic = rng.random() < 0.5
    wanted = outcome(call, *operands)
    tc.reset()
    found = outcome(tc.compile(lambda *given: call(*given), dynamic=dynamic), *operands)
    what = f"{name} of {shape} (seed {seed}, dynamic={dynamic})"
    assert isinstance(found, Exception) == isinstance(wanted, Exception), f"{what}: {found!r}"
    assert not isinstance(found, TcError), f"{what}: {found!r}"
    if not isinstance(wanted, Exception):
        torch.testing.assert_close(found, wanted, equal_nan=True, msg=lambda text: what + text)


def test_calls_on_tensors_without_elements_raise_exactly_where_eager_does(drawn: Any) -> None:
    for seed in drawn(range(8000, 8025), 10):
        check_of_nothing(seed)


@pytest.mark.slow
def test_many_calls_on_tensors_without_elements() -> None:
    for seed in range(4000):
        check_of_nothing(seed)


def test_usual_calls_are_not_tried() -> None:
    before = refusals._refused_or_tried.cache_info()
    tc.compile(lambda a: F.gelu(a @ a.T + 1).softmax(-1).sum(0))(torch.randn(4, 4))
    assert refusals._refused_or_tried.cache_info() == before


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float16])
def test_changing_floats_are_asked_about_as_floats(dtype):
    compiled = tc.compile(lambda x, s: x * s, backend="eager", fullgraph=True)
    for number in (0.5, 1.5, 2.5):
        x = torch.tensor([1, 0]).to(dtype)
        found, expected = compiled(x, number), x * number
        assert found.dtype == expected.dtype and torch.equal(found, expected)


BY_SETTING: dict[str, Callable[[], Any]] = {
    "arange": lambda: torch.arange(0, 1, 0.5),
    "full": lambda: torch.full((2,), 0.5),
    "mean of integers": lambda: torch.true_divide(long, 3),
    "sqrt of integers": lambda: long.sqrt() + small.sin(),
    "nonzero result": lambda: torch.ones(2, 2).index_put((at,), torch.ones(1, 2), accumulate=True),
    "kthvalue": lambda: torch.ones(3).cumsum(0).kthvalue(1)[0],
}


@pytest.mark.parametrize("name", BY_SETTING)
def test_settings_are_those_of_the_call(name: str) -> None:
    function = BY_SETTING[name]
    compiled = tc.compile(lambda: function(), backend="eager", fullgraph=True)
    try:
        for dtype in (torch.float32, torch.float64, torch.float16, torch.float32):
            torch.set_default_dtype(dtype)
            found, expected = compiled(), function()
            assert found.dtype == expected.dtype and torch.equal(found, expected)
    finally:
        torch.set_default_dtype(torch.float32)


REPEATED: dict[str, Callable[[T], Any]] = {
    "add_": lambda y: y.add_(1),
    "fill_": lambda y: y.fill_(2),
    "copy_": lambda y: y.copy_(torch.ones(3)),
    "item": lambda y: y.__setitem__(0, 1.0),
    "slice": lambda y: y.__setitem__(slice(None), torch.ones(3)),
    "clamp_": lambda y: y.clamp_(0, 1),
    "scatter_": lambda y: y.scatter_(0, torch.tensor([0]), 1.0),
    "masked_fill_": lambda y: y.masked_fill_(torch.tensor([True, False, True]), 1.0),
    "index_add_": lambda y: y.index_add_(0, torch.tensor([0]), torch.ones(1)),
    "out": lambda y: torch.add(torch.ones(3), 1, out=y),
    "lerp_": lambda y: y.lerp_(torch.ones(3), 0.5),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", REPEATED)
@pytest.mark.filterwarnings("ignore:Use of .* on expanded tensors is deprecated")
def test_a_handler_sees_a_refused_write_to_repeated_elements(name: str, dynamic: bool) -> None:
    def program(x: T) -> tuple[str, T]:
        made = x * 2
        repeated = made[:1].expand(3)
        try:
            REPEATED[name](repeated)
        except RuntimeError:
            return "refused", made
        return "written", made

    wanted, found = program(torch.ones(2)), tc.compile(program, dynamic=dynamic)(torch.ones(2))
    assert found[0] == wanted[0] and torch.equal(found[1], wanted[1])


def put_at(x: T, mask: T, values: T) -> T:
    return torch.ops.aten.index_put(x, [mask], values)


def stored_at(x: T, mask: T, values: T) -> T:
    y = x.clone()
    y[mask] = values
    return y


def stored_after_a_slice(x: T, mask: T, values: T) -> T:
    y = x.clone()
    y[:, mask[0]] = values[: int(mask[0].sum())]
    return y


def added_at(x: T, mask: T, values: T) -> T:
    return x.clone().index_put_([mask], values, accumulate=True)


def mask_of_bytes(x: T, mask: T, values: T) -> T:
    y = x.clone()
    y[mask.byte()] = values
    return y


@pytest.mark.sample(2)
@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "write", [put_at, stored_at, stored_after_a_slice, added_at, mask_of_bytes]
)
def test_how_many_elements_a_mask_selects_is_not_guessed(
    write: Callable[[T, T, T], T], dynamic: bool
) -> None:
    compiled = tc.compile(write, dynamic=dynamic, fullgraph=write is not stored_after_a_slice)
    for shape in ((2, 5), (3, 4), (0, 3), (2, 0)):
        if 0 in shape and write is stored_after_a_slice:
            continue
        x = torch.randn(shape)
        for mask in (x > 0, x > 9, x < 9):
            values = torch.arange(float(mask.sum()))
            assert torch.equal(compiled(x, mask, values), write(x, mask, values))
    x = torch.ones(2, 3)
    for call in (write, compiled) if write is not stored_after_a_slice else ():
        with pytest.raises(RuntimeError):
            call(x, x > 0, torch.ones(4))


def classes(x: T) -> T:
    return torch.zeros(x.shape[0], dtype=torch.int64)


OF_TYPES: dict[str, Callable[[T], T]] = {
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "nll_loss": lambda x: F.nll_loss(x, classes(x)),
    "multi_margin_loss": lambda x: F.multi_margin_loss(x, classes(x)),
    "multilabel_margin_loss": lambda x: F.multilabel_margin_loss(
        x, torch.zeros(x.shape, dtype=torch.int64)
    ),
    "max_pool1d": lambda x: F.max_pool1d(x, 2),
    "linear": lambda x: F.interpolate(x[None], 5, mode="linear"),
    "nearest": lambda x: F.interpolate(x[None, None], (5, 5)),
    "nearest-exact": lambda x: F.interpolate(x[None, None], (5, 5), mode="nearest-exact"),
    "bilinear": lambda x: F.interpolate(x[None, None], (5, 5), mode="bilinear"),
    "bicubic": lambda x: F.interpolate(x[None, None], scale_factor=1.5, mode="bicubic"),
    "trilinear": lambda x: F.interpolate(x[None, None, None], (3, 5, 5), mode="trilinear"),
}


@pytest.mark.sample(4)
@crossed(
    name=OF_TYPES,
    dtype=[torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool, torch.complex64],
    dynamic=[False, True],
)
def test_a_type_without_a_kernel_is_refused_for_all_kinds_of_sizes(
    name: str, dtype: torch.dtype, dynamic: bool
) -> None:
    call, x = OF_TYPES[name], (torch.ones(6, 4) * 2).to(dtype)
    wanted = outcome(call, x)
    found = outcome(tc.compile(lambda x: call(x), dynamic=dynamic), x)
    assert type(found) is type(wanted), (found, wanted)
    if isinstance(wanted, torch.Tensor):
        assert found.dtype is wanted.dtype
