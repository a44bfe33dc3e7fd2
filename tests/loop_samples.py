"""Sample calls for each row of the lowering table, by ATen overload.

`samples(name)` returns ``(args, kwargs)`` pairs; a row without samples fails the test that asks.
"""

from __future__ import annotations

import math
from typing import Any

import torch

Sample = tuple[tuple[Any, ...], dict[str, Any]]
INF, NAN = math.inf, math.nan
FINITE = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 1e-42, -1e-42, 1e30, -1e30, 88.7, 3.7)
SPECIAL = (*FINITE, INF, -INF, NAN)


def f(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Floats, some of them special if there is space."""
    made = torch.randn(shape, dtype=torch.float64) * 2
    if made.numel() >= 32:
        made.view(-1)[: len(SPECIAL)] = torch.tensor(SPECIAL, dtype=torch.float64)
    return made.to(dtype)


def n(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Ordinary floats."""
    return torch.randn(shape, dtype=torch.float64).to(dtype)


def u(*shape: int) -> torch.Tensor:
    """Floats between 0 and 1."""
    return torch.rand(shape) * 0.98 + 0.01


def i(*shape: int, low: int = -9, high: int = 9, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Integers."""
    return torch.randint(low, high + 1, shape).to(dtype)


def nz(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Integers without zero."""
    made = torch.randint(1, 7, shape) * (torch.randint(0, 2, shape) * 2 - 1)
    return made.abs().to(dtype) if dtype is torch.uint8 else made.to(dtype)


def b(*shape: int) -> torch.Tensor:
    """Bools."""
    return torch.randint(0, 2, shape).bool()


def _call(*args: Any, **kwargs: Any) -> Sample:
    return args, kwargs


D, H, BF = torch.float64, torch.float16, torch.bfloat16
C = _call


def _last(image: torch.Tensor) -> torch.Tensor:
    return image.to(memory_format=torch.channels_last)


def _pool_gradient(image: torch.Tensor, *window: Any) -> Sample:
    values, places = torch.ops.aten.max_pool2d_with_indices(image, *window)
    return C(values.sin(), image, *window, places)


I32, I16, I8, U8 = torch.int32, torch.int16, torch.int8, torch.uint8


def unary() -> list[Sample]:
    """For ops on floats."""
    return [
        C(f(5, 7)),
        C(f(33, dtype=D)),
        C(n(6, 6, dtype=BF).t()),
        C(n(9, dtype=H)),
        C(i(5, low=1)),
    ]


def binary() -> list[Sample]:
    """For float arithmetic with broadcasting."""
    return [
        C(f(6, 7), f(7)),
        C(f(6, 7, dtype=D), f(6, 1)),
        C(n(4, 4).t(), n(4, 4)),
        C(n(3, dtype=BF), n(3, dtype=BF)),
    ]


def integers() -> list[Sample]:
    """For integer arithmetic, also by negatives."""
    return [
        C(i(6, 7), nz(7)),
        C(i(9, dtype=I32), nz(9, dtype=I32)),
        C(i(9, dtype=I8), nz(9, dtype=I8)),
        C(i(9, low=0, dtype=U8), nz(9, dtype=U8)),
    ]


def compared() -> list[Sample]:
    """For comparisons."""
    return [
        C(f(6, 7), f(6, 7)),
        C(i(9), i(9)),
        C(i(9), n(9)),
        C(n(9, dtype=D), n(9)),
        C(b(9), b(9)),
    ]


_UNARY = (
    "abs neg sign exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh "
    "cosh tanh asinh acosh atanh erf erfc lgamma reciprocal square relu sigmoid silu gelu isnan "
    "isinf signbit floor ceil trunc round frac hardsigmoid hardswish mish softplus elu leaky_relu "
    "hardtanh nan_to_num"
)
UNARY_FLOAT = _UNARY.split()


_FLOATS_ONLY = (
    "frac elu leaky_relu hardtanh hardsigmoid hardswish mish softplus silu gelu nan_to_num"
)


def samples(name: str) -> list[Sample]:
    """Sample calls of ``name``, spelled ``op.overload`` (``op.default``)."""
    torch.manual_seed(len(name))
    op, _, overload = name.partition(".")
    if op in UNARY_FLOAT and overload == "default":
        only_float = op in _FLOATS_ONLY.split()
        found = unary()
        if op == "gelu":  # eager makes inf * 1 a nan
            found[0] = C(n(5, 7))
        return found[:-1] if only_float else found
    made = _MADE.get(name)
    return made() if made is not None else []


_MADE: dict[str, Any] = {}


def _rows(names: str, make: Any) -> None:
    for name in names.split():
        _MADE[name] = make


_rows("rsub.Tensor", lambda: [*binary(), C(i(5), i(5), alpha=3)])
_rows(
    "add.Tensor sub.Tensor",
    lambda: [
        *binary(),
        C(f(6, 7), 2),
        C(i(6), 3),
        C(i(6), 1.5),
        C(n(5), n(5), alpha=0.5),
        C(i(5), i(5), alpha=3),
        C(i(5), torch.tensor(2.5)),
        C(n(5, dtype=BF), torch.tensor(2.5)),
    ],
)
_rows("add.Scalar sub.Scalar rsub.Scalar", lambda: [C(f(6, 7), 2), C(i(6), 3), C(n(6), 1.5, 2)])
_rows("mul.Tensor", lambda: [*binary(), *integers(), C(b(9), b(9)), C(f(40), 0.1), C(i(4), 2.5)])
_rows("mul.Scalar", lambda: [C(f(40), 0.1), C(i(9), 3)])
_rows("div.Tensor true_divide.Tensor", lambda: [*binary(), *integers(), C(f(40), 3)])
_rows("div.Scalar", lambda: [C(f(40), 3), C(i(5), 2)])
_rows(
    "div.Tensor_mode",
    lambda: [
        C(*args, rounding_mode=mode)
        for mode in ("floor", "trunc", None)
        for args, _ in [*integers(), C(n(9), n(9))]
    ],
)
_rows("div.Scalar_mode", lambda: [C(i(9), -4, rounding_mode=m) for m in ("floor", "trunc")])
_rows("floor_divide.default", lambda: [*integers(), C(n(9), n(9))])
_rows("floor_divide.Scalar", lambda: [C(i(9), -4)])
_rows(
    "remainder.Tensor fmod.Tensor",
    lambda: [*integers(), C(n(9), n(9)), C(n(9, dtype=D), n(9, dtype=D))],
)
_rows("remainder.Scalar fmod.Scalar", lambda: [C(i(9), -4), C(n(9), 0.7)])
_rows("remainder.Scalar_Tensor", lambda: [C(7, nz(9))])
_rows("maximum.default minimum.default", lambda: [*binary(), *integers(), C(b(9), b(9))])
_rows("fmax.default fmin.default", lambda: [*binary(), *integers(), C(b(9), b(9))])
_rows(
    "atan2.default hypot.default copysign.Tensor",
    lambda: [C(n(9), n(9)), C(n(9, dtype=D), n(9, dtype=D))],
)
_rows("copysign.Scalar", lambda: [C(n(9), -2.0)])
_rows("nextafter.default", lambda: [C(n(9), n(9)), C(n(9, dtype=D), n(9, dtype=D))])
_rows(
    "bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor", lambda: [*integers(), C(b(9), b(9))]
)
_rows(
    "bitwise_and.Scalar bitwise_or.Scalar bitwise_xor.Scalar", lambda: [C(i(9), 5), C(b(9), True)]
)
_rows(
    "bitwise_and.Scalar_Tensor bitwise_or.Scalar_Tensor bitwise_xor.Scalar_Tensor",
    lambda: [C(5, i(9))],
)
_SHIFT = lambda: [C(i(9), i(9, low=0, high=8)), C(i(9, dtype=I32), i(9, low=0, high=8, dtype=I32))]  # noqa: E731
_rows(
    "bitwise_left_shift.Tensor bitwise_right_shift.Tensor __lshift__.Tensor __rshift__.Tensor",
    _SHIFT,
)
_rows(
    "bitwise_left_shift.Tensor_Scalar bitwise_right_shift.Tensor_Scalar "
    "__lshift__.Scalar __rshift__.Scalar",
    lambda: [C(i(9), 3)],
)
_rows(
    "bitwise_left_shift.Scalar_Tensor bitwise_right_shift.Scalar_Tensor",
    lambda: [C(3, i(9, low=0))],
)
_rows("bitwise_not.default", lambda: [C(i(9)), C(b(9)), C(i(9, low=0, dtype=U8))])
_rows("eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor", compared)
_rows(
    "eq.Scalar ne.Scalar lt.Scalar le.Scalar gt.Scalar ge.Scalar",
    lambda: [C(f(40), 0.5), C(i(9), 2), C(i(9), 0.5), C(n(9, dtype=BF), 0.1), C(b(5), 1)],
)
_rows(
    "logical_and.default logical_or.default logical_xor.default",
    lambda: [C(b(9), b(9)), C(i(9), n(9))],
)
_rows("logical_not.default", lambda: [C(b(9)), C(i(9)), C(n(9))])
_rows(
    "pow.Tensor_Scalar",
    lambda: (
        [C(n(9), e) for e in (0, 1, 2, 3, 0.5, -0.5, -1, -2, 2.5, 4)]
        + [C(i(9), 3), C(i(9), 2.5), C(u(9), 1.7)]
    ),
)
_rows("pow.Tensor_Tensor", lambda: [C(u(40), f(40)), C(f(40), f(40)), C(u(9).double(), n(9))])
_rows("pow.Scalar", lambda: [C(2, n(9)), C(0.5, n(9))])
_rows(
    "where.self",
    lambda: [C(b(6, 1), n(6, 4), n(4)), C(b(6), i(6), n(6)), C(b(4), n(4, dtype=BF), n(4))],
)
_rows("where.ScalarSelf", lambda: [C(b(6), 1.5, n(6))])
_rows("where.ScalarOther", lambda: [C(b(6), n(6), 2)])
_rows("where.Scalar", lambda: [C(b(6), 1.5, 2.5)])
_rows("masked_fill.Scalar", lambda: [C(n(6, 4), b(6, 1), -INF), C(i(4), b(4), 3)])
_rows("masked_fill.Tensor", lambda: [C(n(6, 4), b(4), torch.tensor(2.0))])
_rows(
    "clamp.default", lambda: [C(f(40), -1, 1), C(i(9), 2), C(f(40), None, 0.5), C(f(40), 0.5, -0.5)]
)
_rows("clamp.Tensor", lambda: [C(f(40), n(40), n(40)), C(f(40), None, n(40)), C(f(6, 7), n(7))])
_rows("clamp_min.default clamp_max.default", lambda: [C(f(40), 0.5), C(i(9), 2)])
_rows("clamp_min.Tensor clamp_max.Tensor", lambda: [C(f(40), n(40))])
_rows(
    "addcmul.default addcdiv.default",
    lambda: [C(n(5, 4), n(4), n(5, 1)), C(n(5), n(5), n(5), value=0.3)],
)
_rows("lerp.Scalar", lambda: [C(n(9), n(9), 0.3), C(n(9), n(9), 0.8)])
_rows("lerp.Tensor", lambda: [C(n(9), n(9), u(9))])
_rows(
    "_to_copy.default",
    lambda: (
        [
            C(v, dtype=t)
            for v in (n(40) * 50, i(40), b(40), n(40, dtype=BF), n(40, dtype=D), n(40, dtype=H))
            for t in (torch.float32, D, BF, H, torch.int64, I32, torch.bool)
        ]
        + [C(n(4, 5).t())]
    ),
)
_rows(
    "clone.default lift_fresh_copy.default contiguous.default",
    lambda: [C(n(4, 5).t()), C(i(3)), C(b(4)), C(n(4, 5, dtype=BF))],
)
_rows("prims.copy_strided.default", lambda: [C(n(4, 5), (1, 4))])
_rows("copy.default", lambda: [C(n(4, 5), i(5)), C(i(4), n(4))])
_rows(
    "gelu_backward.default silu_backward.default",
    lambda: [C(n(9), n(9)), C(n(9, dtype=D), n(9, dtype=D))],
)
_rows("sigmoid_backward.default tanh_backward.default", lambda: [C(n(9), u(9))])
_rows("threshold_backward.default", lambda: [C(n(9), n(9), 0)])
_rows("logit.default", lambda: [C(u(9)), C(u(9), 0.1)])
_rows("native_dropout_backward.default", lambda: [C(n(9), b(9), 2.0)])
# views, each followed by an addition in the test
_rows(
    "view.default _unsafe_view.default reshape.default",
    lambda: [C(n(6, 4), [2, 12]), C(n(2, 3, 4), [6, 4]), C(n(24), [2, -1, 3])],
)
_rows("_reshape_alias.default", lambda: [C(n(6, 4), [2, 12], [12, 1])])
_rows("alias.default detach.default lift.default", lambda: [C(n(4, 5))])
_rows("permute.default", lambda: [C(n(2, 3, 4), [2, 0, 1]), C(n(2, 3), [-1, 0])])
_rows("transpose.int", lambda: [C(n(2, 3, 4), 0, -1)])
_rows("t.default", lambda: [C(n(2, 3)), C(n(3))])
_rows("expand.default", lambda: [C(n(3, 1), [3, 4]), C(n(4), [2, -1]), C(n(1), [2, 3, 4])])
_rows(
    "slice.Tensor",
    lambda: [
        C(n(6, 4), 0, 1, 5),
        C(n(6, 4), 1, -3, 99),
        C(n(9, 2), 0, 1, 9, 3),
        C(n(5), 0, -99, -1),
    ],
)
_rows("select.int", lambda: [C(n(3, 4), 0, 1), C(n(3, 4), -1, -2)])
_rows("squeeze.default", lambda: [C(n(1, 3, 1))])
_rows("squeeze.dim", lambda: [C(n(1, 3, 1), 0), C(n(1, 3), 1)])
_rows("squeeze.dims", lambda: [C(n(1, 3, 1), [0, -1])])
_rows("unsqueeze.default", lambda: [C(n(3, 4), 1), C(n(3), -1), C(n(3), 0)])
_rows("diagonal.default", lambda: [C(n(4, 5)), C(n(4, 5), 1), C(n(2, 4, 4), -1, 1, 2)])
_rows("unfold.default", lambda: [C(n(3, 9), 1, 3, 2)])
_rows("split.Tensor", lambda: [C(n(7, 2), 3), C(n(2, 6), 2, 1)])
_rows("split_with_sizes.default", lambda: [C(n(7, 2), [3, 4]), C(n(2, 6), [1, 5], -1)])
_rows("unbind.int", lambda: [C(n(3, 2)), C(n(3, 2), 1)])
_rows("as_strided.default", lambda: [C(n(12), [3, 2], [2, 1]), C(n(4, 5), [2, 2], [1, 5])])
_rows("view.dtype", lambda: [C(n(6), torch.int32), C(i(6), D)])
# reductions
_AXES = lambda: [(), (1,), (-1, True), (0,)]  # noqa: E731
_rows(
    "sum.default prod.default",
    lambda: [C(n(6, 7)), C(i(9)), C(b(9)), C(n(3, 3, dtype=BF)), C(n(4, 5).t())],
)
_rows(
    "sum.dim_IntList",
    lambda: [
        C(n(6, 7), [1]),
        C(n(6, 7), [0]),
        C(n(2, 3, 4), [0, 2], True),
        C(n(2, 3, 4), [1]),
        C(n(6, 7), [-1], dtype=D),
        C(n(5000, 3), [0]),
        C(n(3, 9000), [1]),
        C(n(6, 7), None),
        C(n(1, 7), [0]),
        C(b(4, 6), [1]),
        C(n(70, 300), [0]),
    ],
)
_rows("prod.dim_int", lambda: [C(n(6, 7), 1), C(n(6, 7), 0, True)])
_rows(
    "amax.default amin.default",
    lambda: [
        C(f(6, 7), [1]),
        C(f(6, 7), [0], True),
        C(i(6, 7), [1]),
        C(n(3, 4, 5), [0, 2]),
        C(b(4, 4), [0]),
        C(n(5000, 9), [0, 1]),
    ],
)
_rows("max.default min.default", lambda: [C(f(6, 7)), C(n(6, 7)), C(i(9))])
_rows("max.dim min.dim", lambda: [C(f(6, 7), 1), C(n(6, 70), 0, True), C(i(6, 7), -1)])
_rows(
    "argmax.default argmin.default",
    lambda: [C(n(6, 7)), C(f(6, 7), 1), C(n(6, 70), 0, True), C(i(6, 7), -1), C(torch.zeros(5))],
)
_rows("any.default all.default", lambda: [C(b(3, 4)), C(n(3)), C(i(3))])
_rows("any.dim all.dim", lambda: [C(b(3, 4), 1), C(n(3, 40), 0, True)])
_rows("any.dims all.dims", lambda: [C(b(3, 4, 2), [0, 1]), C(b(3, 4), None)])
_rows("mean.default", lambda: [C(n(6, 7)), C(n(6, 7, dtype=BF))])
_rows(
    "mean.dim",
    lambda: [
        C(n(6, 7), [1]),
        C(n(6, 7), [0], True),
        C(n(2, 3, 4), [0, 2]),
        C(i(6, 7), [1], dtype=D),
        C(n(6, 7), None),
    ],
)
_rows("var.default std.default", lambda: [C(n(6, 7)), C(n(6, 7), False)])
_rows("var.dim std.dim", lambda: [C(n(6, 7), [1]), C(n(6, 70), [0], False, True)])
_rows(
    "linalg_vector_norm.default",
    lambda: [
        C(n(6, 7)),
        C(n(6, 7), 1, [1]),
        C(n(2, 3, 4), math.inf, [0, 2], keepdim=True),
        C(n(6, 7).bfloat16(), 2, [0]),
        C(n(6, 7), 2, None, dtype=torch.float64),
    ],
)
_rows(
    "var.correction std.correction",
    lambda: [
        C(n(6, 7), [1]),
        C(n(6, 7), [0], correction=0),
        C(n(2, 3, 4), [0, 2], keepdim=True),
        C(n(6, 7)),
    ],
)
_rows("var_mean.default", lambda: [C(n(6, 7))])
_rows("var_mean.dim", lambda: [C(n(6, 7), [1])])
_rows("var_mean.correction", lambda: [C(n(6, 7), [1], correction=0, keepdim=True), C(n(6, 7), [0])])
_rows(
    "cumsum.default cumprod.default",
    lambda: [
        C(f(33, 17), 0),
        C(n(3, 5, 12), 1),
        C(n(5, 700), -1),
        C(n(12, 9, dtype=D), 0),
        C(n(40, 9, dtype=BF), 0),
        C(n(40, 9, dtype=H), 0),
        C(i(6, 9, dtype=I8), 0),
        C(i(6, 9), 0, dtype=I32),
        C(n(6, 9), 0, dtype=D),
        C(n(6, 9), 0, dtype=BF),
        C(b(6, 9), 0),
        C(n(4, 1, 3), 1),
        C(torch.tensor(3.0), 0),
        C(n(0, 9), 0),
    ],
)
_rows(
    "sort.default",
    lambda: [C(f(40, 90)), C(n(70, 6, 9), 0, True), C(n(300, 9), 1), C(u(4000))],
)
_rows(
    "sort.stable",
    lambda: [
        C(f(40, 90), stable=True),
        C(n(20, 300, dtype=BF), stable=True, descending=True),
        C(i(5, 90, 7, dtype=I32), stable=True, dim=1),
        C(n(3, 900, dtype=H), stable=True),
        C(n(3, 900), stable=False, dim=1),
    ],
)
_rows(
    "logcumsumexp.default",
    lambda: [
        C(f(33, 17), 0),
        C(torch.full((4, 9), -INF), 0),
        C(torch.full((4, 9), INF), 0),
        C(n(30, 9, dtype=D) * 100, 0),
        C(n(9, 9, dtype=BF), 0),
        C(n(1, 9), 0),
    ],
)
_rows(
    "cummax.default cummin.default",
    lambda: [
        C(f(33, 17), 0),
        C(n(3, 5, 12), 1),
        C(i(20, 9, low=0, high=3), 0),
        C(i(20, 9, low=0, high=3, dtype=U8), 0),
        C(b(6, 9), 0),
        C(n(40, 9, dtype=BF), 0),
        C(n(4, 1, 3), 1),
        C(torch.tensor(3.0), 0),
    ],
)
_rows(
    "_softmax.default _log_softmax.default",
    lambda: [
        C(n(6, 7), -1, False),
        C(n(6, 70), 0, False),
        C(n(2, 3, 4), 1, False),
        C(n(3, 5, dtype=D), 1, False),
        C(n(3, 9000), 1, False),
        C(torch.tensor([[1.0, -INF], [-INF, -INF]]), 1, False),
        C(n(4, 4, dtype=BF), 1, False),
    ],
)
_rows(
    "native_layer_norm.default",
    lambda: [
        C(n(2, 3, 8), [8], n(8), n(8), 1e-5),
        C(n(2, 3, 8), [3, 8], None, None, 1e-5),
        C(n(4, 8), [8], n(8), None, 1e-5),
        C(n(4, 8, dtype=BF), [8], n(8, dtype=BF), n(8, dtype=BF), 1e-5),
    ],
)
# creation
_rows(
    "full.default",
    lambda: [C([2, 3], 1.5), C([2], 3), C([2], True), C([], 2.0), C([3], 1, dtype=BF)],
)
_rows("full_like.default", lambda: [C(n(2, 3), 1.5), C(i(3), 2)])
_rows("new_full.default", lambda: [C(n(2, 3), [4], 1.5)])
_rows("scalar_tensor.default", lambda: [C(1.5), C(2, dtype=torch.int64), C(-INF)])
_rows("fill.Scalar", lambda: [C(n(2, 3), 1.5)])
_rows("fill.Tensor", lambda: [C(n(2, 3), torch.tensor(2.5))])
_rows("zeros.default ones.default", lambda: [C([2, 3]), C([2], dtype=torch.bool)])
_rows("zeros_like.default ones_like.default zero.default", lambda: [C(n(2, 3)), C(i(4))])
_rows("new_zeros.default new_ones.default", lambda: [C(n(2, 3), [4])])
_rows("arange.default", lambda: [C(5), C(5.0), C(7, dtype=torch.int32)])
_rows("arange.start", lambda: [C(2, 7), C(1.5, 4.0)])
_rows("arange.start_step", lambda: [C(2, 9, 3), C(0.0, 1.0, 0.1), C(9, 2, -2)])
_rows("eye.default", lambda: [C(4), C(3, dtype=torch.int64)])
_rows("eye.m", lambda: [C(4, 3)])
_rows("tril.default triu.default", lambda: [C(n(4, 5)), C(n(2, 4, 4), 1), C(f(7, 7), -1)])
# indexing
_rows(
    "cat.default",
    lambda: [
        C([n(2, 3), n(4, 3)]),
        C([n(2, 3), n(2, 1), n(2, 2)], 1),
        C([i(2), n(3)]),
        C([n(2, 3), n(0), n(1, 3)]),
        C([b(2), b(3)]),
    ],
)
_rows("stack.default", lambda: [C([n(2, 3), n(2, 3)]), C([n(2, 3), n(2, 3)], -1)])
_rows(
    "max_pool2d_with_indices.default",
    lambda: [
        C(n(1, 2, 6, 7), [2, 2]),
        C(n(2, 6, 7), [3, 3], [2, 2], [1, 1]),
        C(n(2, 6, 7), [2, 3], [1, 2], [1, 1], [1, 1], True),
    ],
)
_rows(
    "max_pool2d_with_indices_backward.default",
    lambda: [
        _pool_gradient(n(1, 2, 6, 7), [2, 2], [2, 2], [0, 0], [1, 1], False),
        _pool_gradient(_last(n(2, 8, 6, 7)), [3, 3], [2, 2], [1, 1], [1, 1], False),
        _pool_gradient(_last(n(2, 8, 7, 7)), [2, 3], [1, 2], [1, 1], [1, 1], True),
        _pool_gradient(_last(n(2, 8, 9, 9)), [2, 2], [1, 3], [0, 0], [2, 2], False),
    ],
)
_rows(
    "avg_pool2d.default",
    lambda: [
        C(n(1, 2, 6, 7), [2, 2]),
        C(n(2, 6, 7), [3, 3], [2, 2], [1, 1], False, False),
        C(n(2, 6, 7), [2, 3], [1, 1], [0, 0], False, True, 5),
    ],
)
_rows(
    "_adaptive_avg_pool2d.default adaptive_max_pool2d.default",
    lambda: [C(n(2, 5, 7), [3, 2]), C(_last(n(2, 8, 6, 4)), [9, 4]), C(n(1, 2, 4, 6), [2, 2])],
)
_rows(
    "_adaptive_avg_pool2d_backward.default",
    lambda: [C(n(2, 3, 2), n(2, 6, 8)), C(_last(n(1, 8, 2, 3)), _last(n(1, 8, 4, 3)))],
)
_rows(
    "constant_pad_nd.default",
    lambda: [
        C(n(3, 4), [1, 2]),
        C(n(3, 4), [0, 1, 2, 0], 5.0),
        C(n(3, 4), [-1, 1]),
        C(i(3), [1, 1], 7),
    ],
)
for _pad in ("reflection_pad{}d.default", "replication_pad{}d.default"):
    for _k in (1, 2, 3):
        _rows(_pad.format(_k), lambda k=_k: [C(n(2, *(5, 6, 4)[:k]), [1, 2, 0, 3, 2, 1][: 2 * k])])
_rows(
    "slice_scatter.default",
    lambda: [C(n(6, 4), n(2, 4), 0, 1, 3), C(n(6, 4), n(6, 2), 1, 0, 4, 2), C(n(5), n(2), 0, -2)],
)
_rows("select_scatter.default", lambda: [C(n(3, 4), n(4), 0, 1), C(n(3, 4), n(3), 1, -1)])
_rows(
    "repeat.default", lambda: [C(n(3, k), [2, 3, j]) for k, j in ((20, 1), (4, 1), (3, 9), (0, 2))]
)
_rows("flip.default", lambda: [C(n(3, 4), [0]), C(n(3, 4), [0, -1])])
_rows(
    "roll.default",
    lambda: [
        C(n(3, 4), [1], [0]),
        C(n(3, 4), [-1, 2], [0, 1]),
        C(n(2, 3, 5), [7, -3, 1], [2, 1, -1]),
        C(n(3, 4), [4, 3], [1, 0]),
        C(n(2, 1), [1], [1]),
        C(n(0, 3), [1], [1]),
    ],
)
_rows(
    "embedding.default",
    lambda: [
        C(n(9, 4), i(2, 3, low=0, high=8)),
        C(n(9, 4, dtype=BF), i(5, low=0, high=8, dtype=I32)),
    ],
)
_rows(
    "index_select.default",
    lambda: [C(n(5, 4), 0, i(3, low=0, high=4)), C(n(5, 4), 1, i(6, low=0, high=3))],
)
_rows(
    "gather.default",
    lambda: [C(n(5, 4), 1, i(5, 2, low=0, high=3)), C(n(5, 4), 0, i(2, 3, low=0, high=4))],
)
_rows(
    "index.Tensor _unsafe_index.Tensor",
    lambda: [
        C(n(5, 4), [i(3, low=-5, high=4)]),
        C(n(5, 4), [i(3, low=0, high=4), i(3, low=0, high=3)]),
        C(n(5, 4, 3), [None, i(2, 2, low=0, high=3)]),
        C(n(5, 4, 3), [i(2, 1, low=0, high=4), None, i(3, low=0, high=2)]),
    ],
)
