"""The table of decompositions: ATen op -> a function over simpler ops; the gate is asked for each.

Ops that the next stage lowers itself, or that a library computes faster (products, convolutions,
attention), have no row. Neither has any op that draws random numbers, to keep eager's stream.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._decomp import get_decompositions

from tc.compiler.aot.foreach import foreach_rows
from tc.compiler.aot.losses import (
    binary_cross_entropy,
    functional_multilabel_margin_loss,
    multilabel_margin_loss,
    nll_loss_backward,
)
from tc.compiler.aot.padding import pad
from tc.compiler.aot.recurrent import layered
from tc.compiler.aot.resampling import interpolate
from tc.compiler.aot.windows import col2im, im2col
from tc.compiler.core.composites import COMPOSITES
from tc.compiler.core.gate import Gate
from tc.compiler.core.table import Table

aten = torch.ops.aten

# Rows taken from torch's own table, by family.
FROM_TORCH = {
    "arithmetic": """addcdiv addcmul addr baddbmm dot vdot deg2rad rad2deg frac heaviside lerp
        logaddexp logaddexp2 mvlgamma nan_to_num rsub sgn sinc xlogy special_entr special_xlog1py
        special_log_ndtr floor_divide trace linalg_cross _euclidean_dist""",
    "activations": """celu elu elu_backward gelu_backward glu glu_backward hardshrink hardsigmoid
        hardsigmoid_backward hardswish hardswish_backward hardtanh_backward leaky_relu_backward
        logit logit_backward log_sigmoid_backward log_sigmoid_forward mish mish_backward
        _prelu_kernel _prelu_kernel_backward sigmoid_backward silu_backward softplus
        softplus_backward tanh_backward threshold threshold_backward
        _softmax_backward_data _log_softmax_backward_data _safe_softmax""",
    "normalisation": """_native_batch_norm_legit_functional _native_batch_norm_legit.no_stats
        native_batch_norm_backward
        native_group_norm native_group_norm_backward native_layer_norm_backward
        _fused_rms_norm _fused_rms_norm_backward _weight_norm_interface""",
    "losses": """binary_cross_entropy_backward
        binary_cross_entropy_with_logits huber_loss huber_loss_backward l1_loss mse_loss
        mse_loss_backward multi_margin_loss nll_loss_forward
        nll_loss2d_forward smooth_l1_loss smooth_l1_loss_backward
        soft_margin_loss soft_margin_loss_backward""",
    "reductions": """aminmax count_nonzero dist logsumexp nansum norm std std_mean""",
    "shapes": """channel_shuffle diag_embed pixel_shuffle pixel_unshuffle rot90 stack t
        expand_as narrow _reshape_alias squeeze.dim squeeze.default split.Tensor unsafe_split
        unsafe_split_with_sizes unbind block_diag select_backward slice_backward diagonal_backward
        unfold_backward""",
    "indexing": """masked_fill take isin isneginf isposinf
        _unsafe_masked_index _unsafe_masked_index_put_accumulate""",
    "creation": """eye fill new_empty new_full new_ones new_zeros ones_like
        zeros_like zeros ones empty_like""",
    "resampling": """upsample_linear1d upsample_bilinear2d upsample_trilinear3d
        affine_grid_generator""",
}

DECOMPOSITIONS: Table[Any, tuple[str, Callable[..., Any]]] = Table("decompositions")
#: replacements of rows of torch's table: op -> a function over simpler ops
Chosen = Mapping[Any, Callable[..., Any]]


#: always decomposed: the layout of the fake result differs from the real one's
ALWAYS: Chosen = get_decompositions([aten.native_dropout_backward])


def decomposition_of(
    op: Any, gate: Gate, chosen: Chosen | None = None, at: Callable[[], str] = str
) -> Any:
    """Return the decomposition of an op, or None to keep the op.

    Composite ops are always decomposed (they have no kernel of their own); rows of the table are
    optional steps named ``aot.decompose.<op>``. ``at`` is the user's line, for the gate.
    """
    if op in ALWAYS and not (chosen and op in chosen):
        return ALWAYS[op]
    row = DECOMPOSITIONS.get(op) if chosen is None else None
    if row is not None:
        return row[1] if gate.allow(row[0], at) else None
    if chosen and op in chosen:
        return chosen[op]
    return op.decompose if is_composite(op) else None


@functools.cache
def is_composite(op: torch._ops.OpOverload) -> bool:
    """Return whether an op is made of other ops, and has no kernel of its own."""
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    return not is_query(op) and op.has_kernel_for_dispatch_key(composite)


@functools.cache
def is_query(op: torch._ops.OpOverload) -> bool:
    """Return whether an op is a query of a tensor (``prim.device``, ``aten.size``)."""
    if op.namespace == "prim":
        return True
    try:
        op.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
    except RuntimeError:  # the dispatcher has no such op
        return True
    return False


def draws_random_numbers(op: Any) -> bool:
    """Return whether an op advances the state of a random generator."""
    return torch.Tag.nondeterministic_seeded in op.tags


def batch_norm_without_writes(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Any:
    """Replace batch normalisation by the overload whose schema declares its writes."""
    if not training:
        return aten._native_batch_norm_legit_no_training(x, weight, bias, mean, var, momentum, eps)
    if mean is None:
        return aten._native_batch_norm_legit.no_stats(x, weight, bias, True, momentum, eps)
    return aten._native_batch_norm_legit(x, weight, bias, mean, var, True, momentum, eps)


def batch_norm_inference(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
) -> Any:
    """Normalise with given statistics: one multiplication and one addition for each element."""
    wide = torch.promote_types(x.dtype, torch.float32)
    shape = [-1 if dim == 1 else 1 for dim in range(x.dim())]
    scale = (var.to(wide) + eps).rsqrt()
    if weight is not None:
        scale = scale * weight.to(wide)
    shift = -mean.to(wide) * scale
    if bias is not None:
        shift = shift + bias.to(wide)
    result = x.to(wide) * scale.view(shape) + shift.view(shape)
    return result.to(x.dtype), x.new_empty((0,)), x.new_empty((0,))


def batch_norm(
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Any:
    """Stand in for `torch.batch_norm`, above functionalisation, which must see its writes."""
    return batch_norm_without_writes(x, weight, bias, mean, var, training, momentum, eps)[0]


def functional_batch_norm(
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Stand in for `torch.nn.functional.batch_norm`."""
    if training:
        torch.nn.functional._verify_batch_size(input.size())  # type: ignore[attr-defined]
    return batch_norm(
        input, weight, bias, running_mean, running_var, training, momentum, eps, False
    )


def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Stand in for `torch.nn.functional.dropout`: draws as eager does, saves a byte an element.

    Torch's own decomposition copies where eager returns its argument.
    """
    if inplace or not 0 <= p <= 1:
        return torch.nn.functional.dropout(input, p, training, inplace)
    if not training or p == 0:
        return input
    if p == 1:  # eager draws nothing
        return input * torch.zeros((), dtype=input.dtype, device=input.device)
    return aten.native_dropout(input, p, True)[0]


def softshrink(input: Any, lambd: float = 0.5) -> Any:
    """Stand in for `torch.nn.functional.softshrink`: rounds the result only, as eager does.

    Torch decomposes the op above functionalisation, and rounds each step to a 16-bit float.
    """
    x = input.to(torch.promote_types(input.dtype, torch.float32))
    inside = (x >= -lambd) & (x <= lambd)  # NaN is kept, and no gradient reaches what is inside
    return torch.where(inside, x.detach() * 0, x - x.sign() * lambd).to(input.dtype)


def index_fill(input: Any, dim: int, index: Any, value: Any) -> Any:
    """Write a value at indices, which count from the end where they are negative.

    Torch's own decomposition is an `index_copy`, which refuses these.
    """
    if input.dim() == 0:
        return index_fill(input.unsqueeze(0), dim, index, value).squeeze(0)
    dim %= input.dim()
    if 0 in (*input.shape[:dim], *input.shape[dim + 1 :]):  # eager checks no index
        return input.clone()
    if not isinstance(value, torch.Tensor):
        value = torch.full((), value, dtype=input.dtype, device=input.device)
    places = [None] * dim + [index.reshape(-1)]
    return aten.index_put.default(input, places, value.to(input.dtype))


OWN: dict[Any, Callable[..., Any]] = {
    aten.index_fill.int_Scalar: index_fill,
    aten.index_fill.int_Tensor: index_fill,
    aten.im2col.default: im2col,
    aten.col2im.default: col2im,
    aten.native_batch_norm.default: batch_norm_without_writes,
    aten._native_batch_norm_legit_no_training.default: batch_norm_inference,
    aten.binary_cross_entropy.default: binary_cross_entropy,
    aten.nll_loss_backward.default: nll_loss_backward,
    aten.nll_loss2d_backward.default: nll_loss_backward,
}

# Torch function -> the function that replaces it in a captured graph.
STAND_INS: Table[Any, Callable[..., Any]] = Table("stand-ins of torch functions")
STAND_INS.add(torch.batch_norm, batch_norm)
STAND_INS.add(torch.nn.functional.batch_norm, functional_batch_norm)
STAND_INS.add(torch.dropout, dropout)
STAND_INS.add(torch.nn.functional.dropout, dropout)
STAND_INS.add(torch.nn.functional.interpolate, interpolate)
STAND_INS.add(torch.nn.functional.pad, pad)
STAND_INS.add(torch.nn.functional.softshrink, softshrink)
STAND_INS.add(torch._C._nn.multilabel_margin_loss, multilabel_margin_loss)
STAND_INS.add(torch.nn.functional.multilabel_margin_loss, functional_multilabel_margin_loss)
for _function, _laid_out in COMPOSITES.items():
    STAND_INS.add(_function, _laid_out)
for _network in (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu):
    STAND_INS.add(_network, layered(_network, dropout))


def _packets(names: str) -> list[Any]:
    found: list[Any] = []
    for name in names.split():
        packet, _, overload = name.partition(".")
        op = getattr(aten, packet, None)  # ops that this version of torch lacks have no row
        if op is not None and overload:
            op = getattr(op, overload, None)
        if op is not None:
            found.append(op)
    return found


def not_of_bytes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Keep an op for bytes on a CPU, where ATen resamples with weights in fixed point."""

    @functools.wraps(function)
    def chosen(input: Any, *args: Any, **kwargs: Any) -> Any:
        is_kept = input.dtype is torch.uint8 and input.device.type == "cpu"
        return NotImplemented if is_kept else function(input, *args, **kwargs)

    return chosen


def _fill() -> None:
    packets = _packets(" ".join(FROM_TORCH.values()))  # torch scans its table
    for op, function in get_decompositions(packets).items():
        if not isinstance(op, torch._ops.OpOverload) or op in DECOMPOSITIONS:
            continue
        if op._schema.is_mutable or draws_random_numbers(op):
            continue
        if op is aten.upsample_bilinear2d.default:
            function = not_of_bytes(function)
        DECOMPOSITIONS.add(op, (f"aot.decompose.{str(op).removesuffix('.default')}", function))
    for op, function in (OWN | foreach_rows()).items():
        DECOMPOSITIONS.add(op, (f"aot.decompose.{str(op).removesuffix('.default')}", function))


_fill()
