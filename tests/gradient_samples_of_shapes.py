"""Differentiable calls that read and write at places, and those of matrices and complex numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from gradient_makers import D, Maker, Row, index, on
from torch import linalg

m = Maker()
n, u, apart, c = m.n, m.u, m.apart, m.c


def indexing() -> dict[str, Row]:
    """Reading at indices."""
    x, at = n(4, 3), index(0, 2, 2)
    mask = torch.tensor([[True, False, True]])
    return {
        "index": on(lambda x: x[at], x),
        "index_pair": on(lambda x: x[at, index(1, 0, 1)], x),
        "index_negative": on(lambda x: x[index(-1, 0)], x),
        "index_mixed": on(lambda x: x[1:, [0, 2]], x),
        "index_broadcast": on(lambda x: x[at[:, None], index(0, 1)], x),
        "index_none": on(lambda x: x[:, None, at], x),
        "index_split": on(lambda x: x[at, :, at], n(3, 2, 3)),
        "index_select": on(torch.index_select, x, 1, at),
        "gather": on(torch.gather, x, 0, torch.tensor([[0, 1, 0], [3, 3, 3]])),
        "take": on(torch.take, x, index(0, 5, 5)),
        "take_along_dim": on(torch.take_along_dim, x, torch.tensor([[0, 0]]), 1),
        "select": on(lambda x: x[1] * x.select(1, -1)[:3], x),
        "slice": on(lambda x: (x[1:], x[::2, 1:], x[:, -2:]), x),
        "narrow": on(torch.narrow, x, 0, 1, 2),
        "where_mask": on(lambda x: torch.where(mask, x, x * x), x),
        "embedding": on(lambda w: F.embedding(index(0, 3, 3), w), x),
        "embedding_padded": on(lambda w: F.embedding(index(0, 3, 3), w, padding_idx=3), x),
        "embedding_scaled": on(
            lambda w: F.embedding(index(0, 3, 3), w, scale_grad_by_freq=True), x
        ),
        "embedding_bag": on(lambda w: F.embedding_bag(torch.tensor([[0, 3], [1, 1]]), w), x),
        "embedding_bag_sum": on(
            lambda w: F.embedding_bag(index(0, 3, 1), w, index(0, 2), mode="sum"), x
        ),
        "embedding_bag_max": on(
            lambda w: F.embedding_bag(torch.tensor([[0, 3], [1, 2]]), w, mode="max"), x
        ),
        "unbind": on(lambda x: (lambda a, b, *_: a * b)(*x.unbind(0)), x),
        "diagonal": on(lambda x: (x.diagonal(), x.diagonal(1)), x),
        "diag": on(torch.diag, n(3)),
        "diag_embed": on(torch.diag_embed, n(2, 2), 1),
        "tril": on(torch.tril, x, -1),
        "triu": on(torch.triu, x, 1),
        "combinations": on(torch.combinations, n(3)),
    }


def scatters() -> dict[str, Row]:
    """Writing at indices, into new tensors and in place."""
    x, y, at = n(4, 3), n(2, 3), index(0, 2)
    where = torch.tensor([[0, 1, 0], [3, 3, 3]])

    def written(x: Any, y: Any, write: Callable[[Any, Any], Any]) -> Any:
        z = x * 2
        write(z, y)
        return z

    def put(write: Callable[[Any, Any], Any]) -> Row:
        return (lambda x, y: written(x, y, write)), (x, y)

    return {
        "scatter": on(lambda x, y: x.scatter(0, torch.tensor([[0, 1, 0], [3, 2, 3]]), y), x, y),
        "scatter_number": on(lambda x: x.scatter(0, where, 2.0), x),
        "scatter_add": on(lambda x, y: x.scatter_add(0, where, y), x, y),
        "scatter_reduce_sum": on(lambda x, y: x.scatter_reduce(0, where, y, "sum"), x, y),
        "scatter_reduce_mean": on(lambda x, y: x.scatter_reduce(0, where, y, "mean"), x, y),
        "scatter_reduce_amax": on(lambda x, y: x.scatter_reduce(0, where, y, "amax"), x, y),
        "scatter_reduce_prod": on(
            lambda x, y: x.scatter_reduce(0, where, y, "prod", include_self=False), x, y
        ),
        "index_add": on(lambda x, y: x.index_add(0, at, y, alpha=0.5), x, y),
        "index_copy": on(lambda x, y: x.index_copy(0, at, y), x, y),
        "index_fill": on(lambda x: x.index_fill(1, at, 2.0), x),
        "index_fill_tensor": on(lambda x, v: x.index_fill(1, at, v), x, n()),
        "index_put": on(lambda x, y: x.index_put((at,), y), x, y),
        "index_put_add": on(lambda x, y: x.index_put((index(1, 1),), y, accumulate=True), x, y),
        "index_reduce": on(lambda x, y: x.index_reduce(0, at, y, "mean"), x, y),
        "put": on(lambda x, y: x.put(index(1, 5, 7), y[0]), x, y),
        "masked_scatter": on(
            lambda x, y: x.masked_scatter(torch.tensor([[True, False, True]]), y.repeat(2, 1)), x, y
        ),
        "slice_scatter": on(lambda x, y: x.slice_scatter(y, 0, 1, 3), x, y),
        "select_scatter": on(lambda x, y: x.select_scatter(y[0], 0, 1), x, y),
        "diagonal_scatter": on(lambda x, y: x.diagonal_scatter(y[0]), x, y),
        "as_strided_scatter": on(lambda x, y: x.as_strided_scatter(y, (2, 3), (3, 1), 3), x, y),
        "set_item": put(lambda z, y: z.__setitem__(0, y[0])),
        "set_index": put(lambda z, y: z.__setitem__(at, y)),
        "set_mask": put(lambda z, y: z.__setitem__(torch.arange(4) > 2, 3.0)),
        "set_column": put(lambda z, y: z[:, 1].copy_(y.flatten()[:4])),
        "add_into_view": put(lambda z, y: z.t()[:, 1:3].add_(y.t())),
        "mul_in_place": put(lambda z, y: z.mul_(y[0]).sub_(y[1])),
        "exp_in_place": put(lambda z, y: z[1:].exp_()),
        "masked_fill_in_place": put(lambda z, y: z.masked_fill_(z.detach() > 0, y[0, 0])),
        "fill_diagonal": put(lambda z, y: z.fill_diagonal_(0.0)),
        "zero_row": put(lambda z, y: z[1].zero_()),
        "addcmul_in_place": put(lambda z, y: z[:2].addcmul_(y, y)),
        "index_add_in_place": put(lambda z, y: z.index_add_(0, at, y)),
        "out": put(lambda z, y: z.copy_(torch.cat([y, y * 2]))),
    }


def shapes() -> dict[str, Row]:
    """Views, joins and copies in another order."""
    x, y = n(2, 3), n(2, 3)
    return {
        "reshape": on(lambda x: x.t().reshape(6) * torch.arange(6), x),
        "view": on(lambda x: x.view(3, 2)[1:] * 2, x),
        "permute": on(lambda x: x.permute(2, 0, 1).exp(), n(2, 1, 3)),
        "movedim": on(torch.movedim, n(2, 1, 3), 0, 2),
        "expand": on(lambda x: x.expand(2, 2, 3).exp(), x),
        "repeat": on(lambda x: x.repeat(2, 2), x),
        "tile": on(torch.tile, x, (2, 1)),
        "repeat_interleave": on(lambda x: x.repeat_interleave(2, 1), x),
        "flip": on(torch.flip, x, (0, 1)),
        "roll": on(torch.roll, x, (1, 2), (0, 1)),
        "rot90": on(torch.rot90, x),
        "squeeze": on(lambda x: x.unsqueeze(1).squeeze().squeeze(0), x),
        "cat": on(lambda x, y: torch.cat([x, y, x], 1), x, y),
        "stack": on(lambda x, y: torch.stack([x, y], -1), x, y),
        "hstack": on(lambda x, y: torch.hstack([x, y]), x, y),
        "chunk": on(lambda x: x.chunk(2, 1)[1] * 2, x),
        "split": on(lambda x: [a * 2 for a in x.split([1, 2], 1)], x),
        "tensor_split": on(lambda x: torch.tensor_split(x, 2, 1)[0], x),
        "unfold": on(lambda x: x.unfold(1, 2, 1).exp(), x),
        "as_strided": on(lambda x: x.as_strided((2, 2), (1, 2), 1).exp(), x),
        "as_strided_overlapping": on(lambda x: x.as_strided((2, 3), (1, 1)).exp(), x),
        "broadcast": on(lambda x, y: torch.broadcast_tensors(x, y[:1])[1] * x, x, y),
        "meshgrid": on(lambda x: torch.meshgrid(x[0], x[1], indexing="ij"), x),
        "flatten": on(lambda x: x.flatten() ** 2, x),
        "swap": on(lambda x: x.swapaxes(0, 1).contiguous(), x),
        "clone_channels_last": on(
            lambda x: x.contiguous(memory_format=torch.channels_last) * 2, n(1, 2, 2, 2)
        ),
        "pixel_shuffle": on(F.pixel_shuffle, n(1, 4, 2, 1), 2),
        "pixel_unshuffle": on(F.pixel_unshuffle, n(1, 1, 2, 4), 2),
        "channel_shuffle": on(F.channel_shuffle, n(1, 4, 2), 2),
        "detach": on(lambda x: x * x.detach(), x),
        "no_grad_part": on(lambda x: x / _amount(x), x),
        "to_same": on(lambda x: x.to(D).contiguous() + x.type_as(x), x),
    }


def _amount(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return x.abs().sum()


def padding() -> dict[str, Row]:
    """Padding in its modes, and resampling."""
    line, image = n(1, 2, 4), n(1, 1, 3, 4)
    grid = u(1, 2, 2, 2, low=-0.8, high=0.8)
    rows = {
        "constant": on(F.pad, image, (1, 2, 0, 1), value=0.5),
        "constant_crop": on(F.pad, image, (-1, 1)),
        "volume_reflect": on(F.pad, n(1, 1, 2, 2, 3), (1, 1, 1, 0, 1, 1), mode="reflect"),
        "volume_replicate": on(F.pad, n(1, 1, 2, 2, 2), (1, 0, 1, 0, 0, 1), mode="replicate"),
        "nearest": on(F.interpolate, line, scale_factor=2.0),
        "nearest_2d": on(F.interpolate, image, size=(5, 2)),
        "nearest_exact": on(F.interpolate, image, size=(5, 2), mode="nearest-exact"),
        "linear": on(F.interpolate, line, size=7, mode="linear"),
        "bilinear": on(F.interpolate, image, size=(5, 3), mode="bilinear"),
        "bilinear_corners": on(
            F.interpolate, image, size=(5, 3), mode="bilinear", align_corners=True
        ),
        "bilinear_smooth": on(F.interpolate, image, size=(2, 2), mode="bilinear", antialias=True),
        "bicubic": on(F.interpolate, image, scale_factor=1.5, mode="bicubic"),
        "trilinear": on(F.interpolate, n(1, 1, 2, 2, 2), size=(3, 2, 3), mode="trilinear"),
        "area": on(F.interpolate, image, size=(2, 2), mode="area"),
        "grid_sample": on(F.grid_sample, image, grid, align_corners=False),
        "grid_sample_border": on(
            F.grid_sample, image, grid, padding_mode="border", align_corners=True
        ),
        "affine_grid": on(F.affine_grid, n(1, 2, 3), (1, 1, 2, 2), align_corners=False),
    }
    for mode in ("reflect", "replicate", "circular"):
        rows[mode] = on(F.pad, line, (1, 2), mode=mode)
        rows[f"{mode}_2d"] = on(F.pad, image, (1, 2, 2, 0), mode=mode)
    return rows


def matrices() -> dict[str, Row]:
    """Linear algebra, of results without a free sign or phase."""
    a, b, s = m.regular(size=3), n(3, 2), m.spd(3)
    return {
        "inv": on(linalg.inv, a),
        "det": on(linalg.det, a),
        "slogdet": on(lambda a: linalg.slogdet(a)[1], a),
        "logdet": on(torch.logdet, s),
        "solve": on(linalg.solve, a, b),
        "solve_triangular": on(lambda a, b: linalg.solve_triangular(a, b, upper=False), a, b),
        "cholesky": on(lambda s: linalg.cholesky(s + s.mT), s),
        "cholesky_solve": on(lambda b, s: torch.cholesky_solve(b, linalg.cholesky(s + s.mT)), b, s),
        "eigvalsh": on(lambda s: linalg.eigvalsh(s + s.mT), s),
        "eigh": on(lambda s: (lambda v, q: q * v @ q.mT)(*linalg.eigh(s + s.mT)), s),
        "svdvals": on(linalg.svdvals, a),
        "svd": on(lambda a: (lambda u, s, v: u * s.exp() @ v)(*linalg.svd(a)), a),
        "qr": on(lambda a: linalg.qr(a)[1].abs(), a),
        "pinv": on(linalg.pinv, a),
        "lu": on(lambda a: linalg.lu(a)[1:], a),
        "matrix_exp": on(linalg.matrix_exp, a),
        "matrix_norm": on(linalg.matrix_norm, a),
        "nuclear": on(lambda a: linalg.matrix_norm(a, "nuc"), a),
        "norm_2": on(lambda a: linalg.matrix_norm(a, 2), a),
        "cond": on(linalg.cond, a),
        "lstsq": on(lambda a, b: linalg.lstsq(a, b)[0], a, b),
        "batched": on(linalg.inv, m.regular(2, size=2)),
    }


def transforms() -> dict[str, Row]:
    """Fourier transforms."""
    x, z = n(2, 4), c(2, 4)
    names = "fft ifft fft2 ifft2 fftn hfft"
    rows = {name: on(getattr(torch.fft, name), z) for name in names.split()}
    return rows | {
        "rfft": on(torch.fft.rfft, x),
        "rfft_odd": on(torch.fft.rfft, n(5), norm="ortho"),
        "irfft": on(torch.fft.irfft, z),
        "rfft2": on(torch.fft.rfft2, n(3, 4)),
        "fft_of_real": on(torch.fft.fft, x, n=6),
        "fftshift": on(torch.fft.fftshift, x),
        "round_trip": on(lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2, n=4), x),
        "stft": on(
            lambda x: torch.stft(
                x, 4, 2, window=torch.hann_window(4, dtype=D), return_complex=True
            ),
            n(8),
        ),
    }


def complexes() -> dict[str, Row]:
    """Complex numbers."""
    z, w, x = c(3, 2), c(3, 2), n(3, 2)
    return {
        "add": on(torch.add, z, x),
        "mul": on(torch.mul, z, w),
        "mul_real": on(torch.mul, x, z),
        "div": on(torch.div, z, w),
        "exp": on(torch.exp, z),
        "log": on(torch.log, z),
        "sin": on(torch.sin, z),
        "tanh": on(torch.tanh, z),
        "sqrt": on(torch.sqrt, z),
        "pow": on(lambda z: z**2 + z**3, z),
        "abs": on(torch.abs, z),
        "angle": on(torch.angle, z),
        "sgn": on(torch.sgn, z),
        "conj": on(lambda z: torch.conj(z) * z, z),
        "conj_physical": on(torch.conj_physical, z),
        "real": on(lambda z: z.real * 2, z),
        "imag": on(lambda z: z.imag * z.real, z),
        "complex": on(torch.complex, x, n(3, 2)),
        "polar": on(torch.polar, u(3), n(3)),
        "view_as_real": on(lambda z: torch.view_as_real(z) * 2, z),
        "view_as_complex": on(lambda x: torch.view_as_complex(x) ** 2, x),
        "mm": on(lambda z, w: z @ w.mH, z, w),
        "vdot": on(torch.vdot, z.detach()[:, 0].requires_grad_(), c(3)),
        "sum": on(torch.sum, z, 0),
        "mean": on(torch.mean, z),
        "prod": on(torch.prod, z, 0),
        "cumsum": on(torch.cumsum, z, 0),
        "norm": on(lambda z: linalg.vector_norm(z, dim=0), z),
        "where": on(lambda z, w: torch.where(z.real > 0, z, w), z, w),
        "index": on(lambda z: z[index(0, 2, 2)], z),
        "in_place": on(lambda z, w: (z * 2).mul_(w).sub_(z), z, w),
        "inv": on(linalg.inv, c(2, 2)),
        "var": on(torch.var, z),
    }


def recurrent() -> dict[str, Row]:
    """Recurrent cells and layers."""
    x, h, w, b = n(2, 3), n(2, 2), n(8, 3), n(8)
    u8, layer = n(8, 2), n(3, 2, 3)

    def lstm(x: Any, h: Any, w: Any, v: Any, b: Any) -> Any:
        state = (h[None], h[None] * 0.5)
        return torch.lstm(x, state, [w, v, b, b], True, 1, 0.0, False, False, False)

    def gru(x: Any, h: Any, w: Any, v: Any) -> Any:
        return torch.gru(x, h[None], [w[:6], v[:6]], False, 1, 0.0, False, False, False)

    def rnn(x: Any, h: Any, w: Any, v: Any) -> Any:
        return torch.rnn_tanh(x, h[None], [w[:2], v[:2]], False, 1, 0.0, False, False, False)

    return {
        "lstm_cell": on(
            lambda x, h, w, v, b: torch.lstm_cell(x, (h, h), w, v, b, b), x, h, w, u8, b
        ),
        "gru_cell": on(lambda x, h, w, v: torch.gru_cell(x, h, w[:6], v[:6]), x, h, w, u8),
        "rnn_cell": on(lambda x, h, w, v: torch.rnn_relu_cell(x, h, w[:2], v[:2]), x, h, w, u8),
        "lstm": on(lstm, layer, h, w, u8, b),
        "gru": on(gru, layer, h, w, u8),
        "rnn": on(rnn, layer, h, w, u8),
    }
