"""Small differentiable calls in float64 for each family of operations, for `gradcheck`.

A row is a function and its arguments, of which some require grad. Values stay away from kinks,
poles and ties, where a gradient is one of several.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from gradient_makers import NAN, D, Maker, Row, index, on
from gradient_samples_of_shapes import (
    complexes,
    indexing,
    matrices,
    padding,
    recurrent,
    scatters,
    shapes,
    transforms,
)
from torch import linalg

m = Maker()
n, u, apart, c = m.n, m.u, m.apart, m.c

POINTWISE = """
    abs neg sign exp exp2 expm1 sin cos tan atan sinh cosh tanh asinh erf erfc sigmoid square
    relu relu6 selu celu elu silu gelu mish softplus softsign logsigmoid hardswish hardsigmoid
    hardtanh hardshrink softshrink tanhshrink leaky_relu sinc nan_to_num deg2rad rad2deg frac
    floor ceil round trunc positive i0 logit lgamma digamma
"""
POSITIVE = "log log2 log10 log1p sqrt rsqrt reciprocal asin acos atanh erfinv logit lgamma"


def pointwise() -> dict[str, Row]:
    """Functions of one tensor and special ones of several, element by element."""
    rows: dict[str, Row] = {}
    for name in POINTWISE.split():
        fn = getattr(torch, name, None) or getattr(F, name)
        rows[name] = on(fn, u(3, 2) if name in ("logit", "lgamma", "digamma") else apart(3, 2))
    for name in POSITIVE.split():
        rows[f"{name}_positive"] = on(getattr(torch, name), u(3, 2))
    return rows | {
        "acosh": on(torch.acosh, u(4, low=1.5, high=3)),
        "gelu_tanh": on(F.gelu, n(3, 2), approximate="tanh"),
        "softplus_beta": on(F.softplus, n(4), beta=2.0, threshold=1.0),
        "threshold": on(F.threshold, apart(4), 0.1, 3.0),
        "prelu": on(F.prelu, apart(2, 3, 2), n(3)),
        "prelu_one": on(F.prelu, apart(2, 3), n(1)),
        "rrelu_eval": on(F.rrelu, apart(4), training=False),
        "glu": on(F.glu, n(2, 4), dim=-1),
        "glu_rows": on(F.glu, n(4, 3), dim=0),
        "polygamma": on(lambda x: torch.polygamma(1, x), u(3)),
        "mvlgamma": on(torch.mvlgamma, u(3, low=2.0, high=4.0), 2),
        "i0e": on(torch.special.i0e, u(3)),
        "i1": on(torch.special.i1, u(3)),
        "i1e": on(torch.special.i1e, u(3)),
        "entr": on(torch.special.entr, u(3)),
        "ndtr": on(torch.special.ndtr, n(3)),
        "ndtri": on(torch.special.ndtri, u(3)),
        "log_ndtr": on(torch.special.log_ndtr, n(3)),
        "erfcx": on(torch.special.erfcx, n(3)),
        "xlog1py": on(torch.special.xlog1py, n(3), u(3)),
        "xlogy": on(torch.xlogy, n(3), u(3)),
        "logaddexp": on(torch.logaddexp, n(3), n(3, 1)),
        "logaddexp2": on(torch.logaddexp2, n(3), n(3)),
        "atan2": on(torch.atan2, n(3), n(3)),
        "hypot": on(torch.hypot, n(3), n(3)),
        "copysign": on(torch.copysign, apart(3), apart(3)),
        "heaviside": on(lambda x: x * torch.heaviside(x.detach(), x.detach()), n(3)),
        "fmod": on(torch.fmod, apart(3), 0.37),
        "remainder": on(torch.remainder, apart(3), u(3, low=2.0, high=3.0)),
        "floor_divide": on(lambda x: x * torch.floor_divide(x.detach(), 0.37), apart(3)),
        "div_trunc": on(lambda x: x * torch.div(x, 0.37, rounding_mode="trunc"), apart(3)),
    }


def arithmetic() -> dict[str, Row]:
    """Operations on several tensors, element by element."""
    return {
        "add_alpha": on(torch.add, n(3, 2), n(2), alpha=0.3),
        "sub_alpha": on(torch.sub, n(2), n(3, 2), alpha=2),
        "rsub": on(torch.rsub, n(3), n(3), alpha=0.5),
        "mul": on(torch.mul, n(3, 1), n(2)),
        "div": on(torch.div, n(3, 1), u(2)),
        "pow": on(torch.pow, u(3, 1), n(2)),
        "pow_number": on(torch.pow, n(4), 3),
        "pow_zero": on(lambda x: x**0 + x**1 + x**2.0, n(4)),
        "number_pow": on(lambda x: 2.5**x, n(4)),
        "ldexp": on(torch.ldexp, n(3), index(1, 2, 3)),
        "addcmul": on(torch.addcmul, n(3), n(3), n(2, 1), value=0.4),
        "addcdiv": on(torch.addcdiv, n(3), n(3), u(2, 1), value=0.4),
        "lerp": on(torch.lerp, n(3), n(3), 0.3),
        "lerp_tensor": on(torch.lerp, n(3), n(3), u(2, 3)),
        "where": on(torch.where, torch.tensor([True, False, True]), n(3), n(2, 1)),
        "where_number": on(lambda x: torch.where(x > 0, x, 0.5), apart(4)),
        "maximum": on(torch.maximum, n(4), n(2, 4)),
        "minimum": on(torch.minimum, n(4), n(2, 4)),
        "fmax": on(torch.fmax, n(4), n(4)),
        "fmin": on(torch.fmin, n(4), n(4)),
        "maximum_of_ties": on(lambda x: torch.maximum(x, x * 1.0), n(4)),
        "clamp": on(torch.clamp, apart(6), -0.5, 0.6),
        "clamp_tensors": on(torch.clamp, apart(6), n(6) - 9, n(6) + 9),
        "clamp_min": on(torch.clamp_min, apart(4), 0.1),
        "clamp_max": on(torch.clamp_max, apart(4), n(1)),
        "masked_fill": on(torch.masked_fill, n(3), torch.tensor([True, False, True]), 2.0),
        "masked_fill_tensor": on(torch.masked_fill, n(3), torch.tensor([True, False, True]), n()),
        "nan_to_num_of_nan": on(lambda x: torch.nan_to_num(x * torch.tensor([NAN, 1.0])), u(2)),
        "to_float_and_back": on(lambda x: x.to(torch.complex128).real * 2, n(3)),
    }


def reductions() -> dict[str, Row]:
    """Many elements to one."""
    x = n(3, 4)
    return {
        "sum": on(torch.sum, x),
        "sum_dims": on(torch.sum, n(2, 3, 2), (0, 2), keepdim=True),
        "nansum": on(torch.nansum, x, 1),
        "mean": on(torch.mean, x, 1),
        "nanmean": on(torch.nanmean, x, 0),
        "prod": on(torch.prod, x, 1),
        "prod_all": on(torch.prod, u(4)),
        "prod_with_zero": on(lambda x: torch.prod(x * torch.tensor([0.0, 1, 2], dtype=D)), n(3)),
        "amax": on(torch.amax, x, (0, 1)),
        "amin": on(torch.amin, x, 1),
        "max": on(lambda x: x.max(), x),
        "min": on(lambda x: x.min(), x),
        "max_dim": on(lambda x: x.max(1)[0], x),
        "min_dim": on(lambda x: x.min(0)[0], x),
        "aminmax": on(lambda x: torch.aminmax(x, dim=1), x),
        "median": on(lambda x: x.median(), n(5)),
        "median_dim": on(lambda x: x.median(1)[0], x),
        "nanmedian": on(lambda x: x.nanmedian(1)[0], x),
        "mode": on(lambda x: x.mode(1)[0], x),
        "kthvalue": on(lambda x: x.kthvalue(2, 1)[0], x),
        "quantile": on(lambda x: x.quantile(0.3, 1), x),
        "std": on(torch.std, x, 1),
        "var": on(torch.var, x, 0, correction=0),
        "var_all": on(torch.var, x),
        "var_mean": on(torch.var_mean, x, 1),
        "std_mean": on(torch.std_mean, x, 1),
        "norm": on(torch.norm, x),
        "norm_p": on(lambda x: x.norm(3, 1), x),
        "vector_norm_1": on(lambda x: linalg.vector_norm(x, 1, 0), x),
        "vector_norm_inf": on(lambda x: linalg.vector_norm(x, math.inf, 1), x),
        "vector_norm_minus_inf": on(lambda x: linalg.vector_norm(x, -math.inf), x),
        "vector_norm_half": on(lambda x: linalg.vector_norm(x, 0.5, 1), x),
        "norm_at_zero": on(lambda x: (x - x.detach()).norm() + x, x),
        "logsumexp": on(torch.logsumexp, x, (0, 1)),
        "softmax": on(torch.softmax, x, 0),
        "log_softmax": on(torch.log_softmax, x, 1),
        "softmin": on(F.softmin, x, 1),
        "masked_softmax": on(
            lambda x: x.masked_fill(torch.eye(3, 4, dtype=torch.bool), -math.inf).softmax(1), x
        ),
        "trace": on(torch.trace, n(3, 3)),
        "dist": on(torch.dist, n(3), n(3)),
        "renorm": on(torch.renorm, n(3, 2), 2, 0, 1.0),
        "normalize": on(F.normalize, x, dim=1),
        "cosine_similarity": on(F.cosine_similarity, x, n(3, 4), dim=1),
        "pairwise_distance": on(F.pairwise_distance, x, n(3, 4)),
        "pdist": on(F.pdist, n(4, 2)),
        "cdist": on(torch.cdist, n(3, 2), n(2, 2)),
        "cdist_1": on(torch.cdist, n(3, 2), n(2, 2), 1.0),
        "cdist_many": on(torch.cdist, n(30, 2).detach(), n(2, 2)),
        "count_nonzero": on(lambda x: x * torch.count_nonzero(x), n(3)),
        "empty": on(lambda x: (x[:0].sum() + x.sum(), x[:0].prod() * x), n(3)),
    }


def scans() -> dict[str, Row]:
    """Prefix reductions and orders."""
    x = n(3, 4)
    return {
        "cumsum": on(torch.cumsum, x, 1),
        "cumprod": on(torch.cumprod, x, 0),
        "cumprod_with_zero": on(lambda x: torch.cumprod(x * x.detach().round(), 1), x),
        "cummax": on(lambda x: torch.cummax(x, 1)[0], x),
        "cummin": on(lambda x: torch.cummin(x, 0)[0], x),
        "logcumsumexp": on(torch.logcumsumexp, x, 1),
        "cumulative_trapezoid": on(torch.cumulative_trapezoid, x),
        "diff": on(torch.diff, x, 2),
        "sort": on(lambda x: x.sort(1, descending=True)[0], x),
        "sort_stable": on(lambda x: torch.sort(x, dim=0, stable=True)[0], x),
        "msort": on(torch.msort, x),
        "argsort": on(lambda x: x.gather(1, x.argsort(1)), x),
        "topk": on(lambda x: x.topk(2, 1)[0], x),
        "gradient": on(lambda x: torch.gradient(x)[0], n(5)),
        "trapezoid": on(torch.trapezoid, n(3, 4), dx=0.5),
        "cov": on(torch.cov, n(2, 4)),
        "corrcoef": on(torch.corrcoef, n(2, 4)),
        "unique_free": on(lambda x: x.flip(0).cumsum(0), x),
    }


def products() -> dict[str, Row]:
    """Products of matrices."""
    return {
        "mm": on(torch.mm, n(2, 3), n(3, 2)),
        "mm_transposed": on(lambda a, b: a.t() @ b.t(), n(3, 2), n(2, 3)),
        "bmm": on(torch.bmm, n(2, 2, 3), n(2, 3, 2)),
        "matmul_broadcast": on(torch.matmul, n(2, 1, 2, 3), n(2, 3, 2)),
        "matmul_vector": on(torch.matmul, n(2, 2, 3), n(3)),
        "vector_matmul": on(torch.matmul, n(3), n(3, 2)),
        "mv": on(torch.mv, n(2, 3), n(3)),
        "dot": on(torch.dot, n(3), n(3)),
        "vdot": on(torch.vdot, n(3), n(3)),
        "inner": on(torch.inner, n(2, 3), n(2, 3)),
        "outer": on(torch.outer, n(2), n(3)),
        "addmm": on(torch.addmm, n(2), n(2, 3), n(3, 2), beta=0.5, alpha=2),
        "addmv": on(torch.addmv, n(2), n(2, 3), n(3), beta=0.5),
        "addbmm": on(torch.addbmm, n(2, 2), n(2, 2, 3), n(2, 3, 2)),
        "baddbmm": on(torch.baddbmm, n(2, 2, 2), n(2, 2, 3), n(2, 3, 2), alpha=0.3),
        "addr": on(torch.addr, n(2, 3), n(2), n(3), beta=0.5, alpha=2),
        "addmm_beta_zero": on(torch.addmm, n(2), n(2, 3), n(3, 2), beta=0),
        "linear": on(F.linear, n(2, 2, 3), n(4, 3), n(4)),
        "bilinear": on(F.bilinear, n(2, 3), n(2, 2), n(4, 3, 2), n(4)),
        "einsum": on(lambda a, b: torch.einsum("bij,bkj->bik", a, b), n(2, 2, 3), n(2, 2, 3)),
        "einsum_trace": on(lambda a: torch.einsum("ii->i", a), n(3, 3)),
        "tensordot": on(torch.tensordot, n(2, 3), n(3, 2), 1),
        "kron": on(torch.kron, n(2, 2), n(1, 3)),
        "cross": on(linalg.cross, n(2, 3), n(2, 3)),
        "chain": on(lambda *a: linalg.multi_dot(a), n(2, 3), n(3, 2), n(2, 2)),
        "matrix_power": on(torch.matrix_power, n(2, 2), 3),
        "block_diag": on(torch.block_diag, n(2, 2), n(1, 2)),
        "cartesian": on(torch.cartesian_prod, n(2), n(2)),
    }


def convolutions() -> dict[str, Row]:
    """Convolutions."""
    return {
        "conv1d": on(F.conv1d, n(2, 2, 5), n(3, 2, 2), n(3), stride=2, padding=1),
        "conv2d": on(F.conv2d, n(1, 2, 4, 4), n(2, 2, 3, 3), n(2), padding=1),
        "conv2d_groups": on(F.conv2d, n(1, 2, 4, 3), n(4, 1, 2, 2), None, groups=2),
        "conv2d_dilated": on(F.conv2d, n(1, 1, 5, 5), n(1, 1, 2, 2), n(1), dilation=2),
        "conv2d_same": on(F.conv2d, n(1, 1, 4, 4), n(1, 1, 2, 3), padding="same"),
        "conv2d_unbatched": on(F.conv2d, n(2, 3, 3), n(1, 2, 2, 2)),
        "conv3d": on(F.conv3d, n(1, 1, 3, 3, 2), n(1, 1, 2, 2, 2), n(1)),
        "transposed1d": on(F.conv_transpose1d, n(1, 2, 3), n(2, 2, 2), n(2), stride=2),
        "transposed2d": on(
            F.conv_transpose2d, n(1, 2, 2, 2), n(2, 1, 3, 3), n(1), padding=1, output_padding=1,
            stride=2,
        ),
        "channels_last": on(
            lambda x, w: F.conv2d(x.contiguous(memory_format=torch.channels_last), w),
            n(1, 2, 3, 3), n(2, 2, 2, 2),
        ),
        "unfold": on(F.unfold, n(1, 2, 3, 3), 2),
        "fold": on(F.fold, n(1, 4, 4), (3, 3), 2),
    }  # fmt: skip


def pooling() -> dict[str, Row]:
    """Pooling."""
    return {
        "max1d": on(F.max_pool1d, apart(1, 2, 6), 2),
        "max2d": on(F.max_pool2d, apart(1, 2, 4, 4), 3, stride=2, padding=1),
        "max2d_indices": on(
            lambda x: F.max_pool2d(x, 2, return_indices=True)[0], apart(1, 1, 4, 4)
        ),
        "max3d": on(F.max_pool3d, apart(1, 1, 2, 4, 2), 2),
        "unpool": on(lambda x: F.max_unpool1d(x, torch.tensor([[[1, 3]]]), 2), n(1, 1, 2)),
        "avg1d": on(F.avg_pool1d, n(1, 2, 6), 2),
        "avg2d": on(F.avg_pool2d, n(1, 2, 4, 4), 2, stride=1),
        "avg2d_padded": on(F.avg_pool2d, n(1, 1, 4, 4), 3, padding=1, count_include_pad=False),
        "avg2d_divisor": on(F.avg_pool2d, n(1, 1, 5, 4), 2, ceil_mode=True, divisor_override=3),
        "avg3d": on(F.avg_pool3d, n(1, 1, 2, 4, 2), 2),
        "adaptive_avg1d": on(F.adaptive_avg_pool1d, n(1, 2, 5), 3),
        "adaptive_avg2d": on(F.adaptive_avg_pool2d, n(1, 2, 5, 4), (3, 2)),
        "adaptive_avg2d_one": on(F.adaptive_avg_pool2d, n(1, 2, 3, 3), 1),
        "adaptive_avg3d": on(F.adaptive_avg_pool3d, n(1, 1, 3, 4, 2), (2, 3, 1)),
        "adaptive_max1d": on(F.adaptive_max_pool1d, apart(1, 2, 5), 3),
        "adaptive_max2d": on(F.adaptive_max_pool2d, apart(1, 2, 5, 4), (3, 2)),
        "lp": on(F.lp_pool2d, u(1, 1, 4, 4), 2.0, 2),
        "fractional": on(
            lambda x: F.fractional_max_pool2d(
                x, 2, output_size=2, _random_samples=torch.full((1, 1, 2), 0.4, dtype=D)
            ),
            apart(1, 1, 4, 4),
        ),
    }


def attention() -> dict[str, Row]:
    """Attention in its forms."""
    q, k, v = n(1, 2, 3, 2), n(1, 2, 3, 2), n(1, 2, 3, 2)
    sdpa = F.scaled_dot_product_attention
    mask = torch.tensor([[True, False, False], [True, True, False], [False, True, True]])

    def heads(x: Any, w: Any, b: Any, o: Any) -> Any:
        return F.multi_head_attention_forward(
            x, x, x, 4, 2, w, b, None, None, False, 0.0, o, None, need_weights=True
        )[0]

    return {
        "plain": on(sdpa, q, k, v),
        "causal": on(sdpa, q, k, v, is_causal=True),
        "masked": on(sdpa, q, k, v, attn_mask=mask),
        "biased": on(lambda q, k, v, b: sdpa(q, k, v, attn_mask=b), q, k, v, n(1, 1, 3, 3)),
        "scaled": on(sdpa, q, k, v, scale=0.3),
        "grouped": on(sdpa, n(1, 4, 3, 2), k, v, enable_gqa=True),
        "by_hand": on(lambda q, k, v: (q @ k.mT * 0.5).softmax(-1) @ v, q, k, v),
        "heads": on(heads, n(3, 1, 4), n(12, 4), n(12), n(4, 4)),
    }


def norms() -> dict[str, Row]:
    """Normalisations."""
    x, w, b = n(3, 4, 2), n(4), n(4)
    mean, var = n(4).detach(), u(4).detach()
    return {
        "layer": on(F.layer_norm, n(3, 4), (4,), w, b),
        "layer_dims": on(F.layer_norm, x, (4, 2), n(4, 2), n(4, 2)),
        "layer_plain": on(F.layer_norm, x, (2,)),
        "layer_weight_only": on(lambda x, w: F.layer_norm(x, (4,), w), n(3, 4), w),
        "rms": on(F.rms_norm, n(3, 4), (4,), w),
        "rms_plain": on(F.rms_norm, x, (4, 2)),
        "group": on(F.group_norm, x, 2, w, b),
        "group_plain": on(F.group_norm, n(2, 4, 2, 2), 4),
        "batch": on(lambda x, w, b: F.batch_norm(x, None, None, w, b, True), x, w, b),
        "batch_plain": on(lambda x: F.batch_norm(x, None, None, training=True), n(4, 3)),
        "batch_eval": on(lambda x, w, b: F.batch_norm(x, mean, var, w, b), x, w, b),
        "batch_eval_plain": on(lambda x: F.batch_norm(x, mean, var), n(3, 4)),
        "batch_running": on(
            lambda x, w, b: F.batch_norm(x, mean.clone(), var.clone(), w, b, True), x, w, b
        ),
        "instance": on(lambda x, w, b: F.instance_norm(x, weight=w, bias=b), n(2, 4, 3), w, b),
        "local_response": on(F.local_response_norm, n(2, 4, 3), 3),
        "weight": on(lambda v, g: torch._weight_norm(v, g, 0), n(3, 4), n(3, 1)),
    }


def losses() -> dict[str, Row]:
    """Losses."""
    x, y, p, q = n(3, 4), n(3, 4), u(3, 4), u(3, 4)
    classes, signs = index(1, 0, 3), torch.tensor([1.0, -1.0, 1.0], dtype=D)
    image, image_classes = n(2, 3, 2), torch.tensor([[0, 2], [1, 1]])
    rows = {
        "mse": on(F.mse_loss, x, y),
        "mse_none": on(F.mse_loss, x, y, reduction="none"),
        "l1": on(F.l1_loss, x, y, reduction="sum"),
        "smooth_l1": on(F.smooth_l1_loss, x, y, beta=0.5),
        "huber": on(F.huber_loss, x, y, delta=0.5),
        "nll": on(lambda x: F.nll_loss(x, classes, p.detach()[0]), x),
        "nll_ignored": on(lambda x: F.nll_loss(x, classes, ignore_index=0), x),
        "nll_2d": on(lambda x: F.nll_loss(x[..., None], image_classes[..., None]), image),
        "cross_entropy": on(lambda x: F.cross_entropy(x, classes), x),
        "cross_entropy_smoothed": on(
            lambda x: F.cross_entropy(x, classes, p.detach()[0], label_smoothing=0.1), x
        ),
        "cross_entropy_ignored": on(
            lambda x: F.cross_entropy(x, index(1, -100, 3), reduction="sum"), x
        ),
        "cross_entropy_none": on(lambda x: F.cross_entropy(x, classes, reduction="none"), x),
        "cross_entropy_soft": on(F.cross_entropy, x, p),
        "cross_entropy_image": on(lambda x: F.cross_entropy(x, image_classes), image),
        "bce": on(F.binary_cross_entropy, p, q.detach()),
        "bce_logits": on(F.binary_cross_entropy_with_logits, x, q),
        "bce_weighted": on(
            lambda x, q: F.binary_cross_entropy_with_logits(
                x, q, weight=p.detach(), pos_weight=p.detach()[0]
            ),
            x, q,
        ),
        "kl": on(F.kl_div, x, q, reduction="batchmean"),
        "kl_log": on(F.kl_div, x, y, log_target=True),
        "poisson": on(F.poisson_nll_loss, x, p),
        "gaussian": on(F.gaussian_nll_loss, x, y, p),
        "soft_margin": on(lambda x: F.soft_margin_loss(x[:, 0], signs), x),
        "hinge": on(lambda x: F.hinge_embedding_loss(x[:, 0], signs), x),
        "margin_ranking": on(lambda x, y: F.margin_ranking_loss(x[:, 0], y[:, 0], signs), x, y),
        "multi_margin": on(lambda x: F.multi_margin_loss(x, classes), x),
        "multilabel_margin": on(
            lambda x: F.multilabel_margin_loss(x[0], index(2, 0, -1, 1)), x
        ),
        "multilabel_soft_margin": on(
            lambda x: F.multilabel_soft_margin_loss(x, (q.detach() > 0.5).to(D)), x
        ),
        "cosine_embedding": on(lambda x, y: F.cosine_embedding_loss(x, y, signs), x, y),
        "triplet": on(F.triplet_margin_loss, x, y, n(3, 4)),
        "ctc": on(
            lambda x: F.ctc_loss(
                x.log_softmax(-1), torch.tensor([[1, 2]]), index(4), index(2)
            ),
            n(4, 1, 3),
        ),
    }  # fmt: skip
    return rows


# Eager's own gradient is not the derivative of what is computed: on purpose, or by its mistake.
NOT_DERIVATIVES = {
    "nan_to_num_of_nan", "embedding_padded", "embedding_scaled", "as_strided_scatter", "detach",
    "no_grad_part",
}  # fmt: skip

FAMILIES: dict[str, Callable[[], dict[str, Row]]] = {
    "pointwise": pointwise,
    "arithmetic": arithmetic,
    "reductions": reductions,
    "scans": scans,
    "products": products,
    "convolutions": convolutions,
    "pooling": pooling,
    "attention": attention,
    "norms": norms,
    "losses": losses,
    "indexing": indexing,
    "scatters": scatters,
    "shapes": shapes,
    "padding": padding,
    "matrices": matrices,
    "transforms": transforms,
    "complexes": complexes,
    "recurrent": recurrent,
}
