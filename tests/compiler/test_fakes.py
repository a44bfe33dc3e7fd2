"""Fake tensors, and what compiled code returns, lie in memory as eager's results do."""

from __future__ import annotations

import logging
import random

import pytest
import sympy
import torch
import torch.nn.functional as F
from support import crossed
from torch._subclasses.fake_tensor import FakeTensorMode

import tc
from tc.compiler.core.fakes import EagerLayouts

CALLS = {
    "roll": lambda x: x.roll(1, 1),
    "roll two": lambda x: x.roll((1, 2), (0, -1)),
    "roll all": lambda x: x.roll(3),
    "roll none": lambda x: x.roll(0, 0),
    "roll round": lambda x: x.roll((1, x.shape[1]), (0, 1)),
    "unfold": lambda x: F.unfold(x, 1) if x.dim() == 4 else x + 1,
    "floor_divide": lambda x: x // 2,
    "floor_divide row": lambda x: x // x[(0,) * (x.dim() - 1)].abs().add(1),
    "floor_divide copy": lambda x: x // (x.contiguous() + 9),
    "div floor": lambda x: torch.div(x, x.contiguous() + 9, rounding_mode="floor"),
    "copysign": lambda x: torch.copysign(x, x.contiguous()),
    "angle": lambda x: torch.complex(x, -x).angle(),
    "logsigmoid": lambda x: F.logsigmoid(x),
    "rrelu": lambda x: F.rrelu(x),
    "binary_cross_entropy": lambda x: F.binary_cross_entropy(
        x.sigmoid(), torch.ones(x.shape), reduction="none"
    ),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "ldexp": lambda x: torch.ldexp(x, x[(0,) * (x.dim() - 2)].contiguous()),
    "nll_loss": lambda x: (
        F.nll_loss(x, x[:, 0].gt(0).long(), reduction="none") if x.dim() == 4 else x + 1
    ),
    "reflect": lambda x: F.pad(x, (1,) * 6, mode="reflect") if x.dim() == 4 else x + 1,
    "replicate": lambda x: F.pad(x, (1,) * 6, mode="replicate") if x.dim() == 4 else x + 1,
    "channel_shuffle": lambda x: F.channel_shuffle(x, 2) if x.dim() == 4 else x + 1,
    "max_unpool2d": lambda x: (
        F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2) if x.dim() == 4 else x + 1
    ),
}
INPUTS = {
    "transposed": lambda: torch.randn(6, 4).t(),
    "permuted": lambda: torch.randn(5, 6, 4).permute(2, 0, 1),
    "reversed": lambda: torch.randn(5, 4, 6).transpose(0, 2),
    "channels last": lambda: torch.randn(2, 4, 6, 8).to(memory_format=torch.channels_last),
    "last first": lambda: torch.randn(8, 4, 6, 2).transpose(0, 3),
    "with gaps": lambda: torch.randn(2, 4, 6, 8, 2)[..., 0],
}


def steps(tensor):
    return [s for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1]


@pytest.mark.sample(27)
@pytest.mark.parametrize("layout", INPUTS)
@pytest.mark.parametrize("name", CALLS)
def test_fakes_are_laid_out_as_results(name, layout):
    torch.manual_seed(0)
    call, x = CALLS[name], INPUTS[layout]()
    mode = EagerLayouts()
    with mode:
        fake = call(mode.from_tensor(x))
    assert steps(fake) == steps(call(x))


@pytest.mark.sample(1)
@pytest.mark.parametrize("layout", INPUTS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_results_of_compiled_code_are_laid_out_as_eagers(dynamic, layout):
    torch.manual_seed(0)

    def all_calls(x):
        return [call(x) for call in CALLS.values()]

    x = INPUTS[layout]()
    wanted, found = all_calls(x), tc.compile(all_calls, dynamic=dynamic)(x)
    for want, got in zip(wanted, found, strict=True):
        assert steps(got) == steps(want)
        torch.testing.assert_close(got, want)


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
def test_results_of_one_graph_of_all_layouts_are_laid_out_as_eagers(dynamic):
    torch.manual_seed(0)

    def all_calls(*inputs):
        return [call(x) for x in inputs for call in CALLS.values()]

    inputs = [make() for make in INPUTS.values()]
    wanted, found = all_calls(*inputs), tc.compile(all_calls, dynamic=dynamic)(*inputs)
    for want, got in zip(wanted, found, strict=True):
        assert steps(got) == steps(want)
        torch.testing.assert_close(got, want)


def test_a_program_without_tensors_is_laid_out_as_eagers():
    def fn():
        made = torch.ones(2, 4, 6, 8).to(memory_format=torch.channels_last)
        return [made.roll(1, 1), made // made.contiguous()]

    for want, got in zip(fn(), tc.compile(fn)(), strict=True):
        assert got.stride() == want.stride()


def of_shape(*shape):
    """Return a contiguous tensor behind an offset of its storage."""
    count = torch.Size(shape).numel()
    return torch.arange(count + 3, dtype=torch.float32)[3:].view(shape)


#: name -> a view by the sizes of its input (n, 6, m, 4)
VIEWS = {
    "flat": lambda x: x.view(-1),
    "windows": lambda x: x.view(x.shape[0], 2, 3, x.shape[2], 2, 2),
    "windows of symbols": lambda x: x.view(-1, 6, x.shape[2] // 2, 2, 4),
    "merged": lambda x: x.view(x.shape[0] * 6, x.shape[2] * 4),
    "of nested windows": lambda x: x.view(-1, x.shape[2] // 2, 48).view(x.shape[0], -1, 4, 12),
    "with ones": lambda x: x.view(1, x.shape[0], 1, -1, 1),
    "the same": lambda x: x.view(x.shape),
    "across": lambda x: x.view(3, -1, 8),
}
#: what is viewed: contiguous or not
PLACES = {
    "new": lambda x: x,
    "odd strides of ones": lambda x: x[..., :1].as_strided([*x.shape[:3], 1], x.stride()),
    "cut": lambda x: torch.cat([x, x])[: x.shape[0]],
    "transposed": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", VIEWS)
def test_views_of_symbolic_sizes_are_laid_out_as_eagers(name, place):
    def see(x):
        y = VIEWS[name](x)
        return y + 0, y.shape, y.stride(), y.storage_offset(), y.data_ptr() == x.data_ptr()

    compiled = tc.compile(lambda x: see(PLACES[place](x))[:4], dynamic=True, backend="eager")
    for n, m in ((2, 4), (3, 6), (1, 8), (0, 4)):
        x = of_shape(n, 6, m, 4)
        try:
            wanted = see(PLACES[place](x))[:4]
        except RuntimeError:
            with pytest.raises(RuntimeError, match=r"invalid for input|not compatible|ambiguous"):
                compiled(x)
            continue
        found = compiled(x)
        assert torch.equal(found[0], wanted[0]) and found[1:] == wanted[1:], (n, m)


def test_views_of_windows_add_one_guard_and_simplify_no_quotients(monkeypatch):
    simplified = []
    monkeypatch.setattr(
        sympy, "simplify", lambda e, old=sympy.simplify: simplified.append(e) or old(e)
    )

    def windows(x):
        x = F.pad(x, (0, 0, 0, 3 - x.shape[2] % 3, 0, 3 - x.shape[1] % 3))
        return x.view(x.shape[0], x.shape[1] // 3, 3, x.shape[2] // 3, 3, 11) * 2

    compiled = tc.compile(windows, dynamic=True, backend="eager", fullgraph=True)
    compiled(torch.randn(4, 8, 7, 11))
    with tc.set_stance("fail_on_recompile"):
        for n, h, w in ((5, 4, 12), (3, 5, 10), (7, 20, 4)):
            x = torch.randn(n, h, w, 11)
            assert torch.equal(compiled(x), windows(x))
    assert not simplified


BEFORE_DROPOUT = {
    **CALLS,
    "batch_norm with weights": lambda x: F.batch_norm(
        x, torch.zeros(x.shape[1]), torch.ones(x.shape[1]), torch.ones(x.shape[1]), training=True
    ),
    "batch_norm in inference": lambda x: F.batch_norm(
        x, torch.zeros(x.shape[1]), torch.ones(x.shape[1])
    ),
    "instance_norm": lambda x: F.instance_norm(x) if x.dim() > 2 else x + 1,
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "group_norm": lambda x: F.group_norm(x.contiguous(), 1),
    "softmax": lambda x: x.softmax(1),
    "gelu": F.gelu,
    "hardswish": F.hardswish,
    "glu": lambda x: F.glu(torch.cat([x, x]), 0),
    "logsumexp": lambda x: x.logsumexp(0),
    "cumsum": lambda x: x.cumsum(1),
    "cat": lambda x: torch.cat([x, x.contiguous()]),
    "where": lambda x: torch.where(x > 0, x, x.contiguous()),
    "lerp": lambda x: torch.lerp(x, x.contiguous(), 0.3),
    "clamp": lambda x: x.clamp(-1, 1),
    "aminmax": lambda x: x.aminmax(dim=1)[1],
}


@pytest.mark.sample(1)
@crossed(layout=INPUTS, grad=[False, True])
def test_masks_of_dropout_are_eagers_whatever_was_computed_before(layout, grad):
    """Numbers are drawn in the order of memory: decompositions must keep an op's layout."""
    x = INPUTS[layout]().requires_grad_(grad)

    def dropped(x):
        return [F.dropout(call(x).sigmoid() + 1, 0.5) == 0 for call in BEFORE_DROPOUT.values()]

    torch.manual_seed(5)
    want = dropped(x)
    torch.manual_seed(5)
    got = tc.compile(dropped)(x)
    differ = [name for name, a, b in zip(BEFORE_DROPOUT, got, want, strict=True) if (a != b).any()]
    assert not differ


#: views of any tensor, and calls of two tensors whose kernels sort dimensions
OF_NARROW = {
    "the same": lambda x, y: x.view(x.shape),
    "as another": lambda x, y: x.view_as(y),
    "one size left out": lambda x, y: x.reshape(-1, *x.shape[1:]) if x.numel() else x,
    "one more behind": lambda x, y: x.reshape(*x.shape, 1),
    "one more before": lambda x, y: x.reshape(1, *x.shape),
    "heaviside": torch.heaviside,
    "xlogy": torch.special.xlogy,
    "logical_xor": torch.logical_xor,
    "where": lambda x, y: torch.where(x[:1] > 0, x, y) if x.dim() else x,
    "clone": lambda x, y: x.clone(),
    "tril": lambda x, y: x.tril() if x.dim() > 1 else x,
    "prelu": lambda x, y: F.prelu(x, torch.ones(x.shape[1])) if x.dim() > 1 else x,
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", OF_NARROW)
def test_odd_strides_of_ones_and_of_no_elements_are_eagers(name):
    dice = random.Random(name)

    def odd(shape):
        return torch.zeros(3000).as_strided(shape, dice.choices([1, 2, 4, 7, 12, 20], k=len(shape)))

    for _ in range(60):
        shape = dice.choices([0, 1, 1, 2, 3], k=dice.randint(1, 4))
        x, y = odd(shape), odd(shape)
        mode = EagerLayouts()
        with mode:
            found = OF_NARROW[name](mode.from_tensor(x), mode.from_tensor(y))
        assert found.stride() == OF_NARROW[name](x, y).stride(), (shape, x.stride(), y.stride())


def odd_indices(dice, shape):
    """Draw index tensors for some dimensions: broadcast, transposed, with sizes of 1; None else."""
    sizes = dice.choices([1, 1, 2, 3], k=dice.randint(1, 2))
    found = [None] * len(shape)
    for dim in dice.sample(range(len(shape)), dice.randint(1, len(shape))):
        of_index = [size if dice.random() < 0.7 else 1 for size in sizes[dice.randrange(2) :]]
        index = torch.randint(0, shape[dim], of_index or [1])
        if index.dim() == 2 and dice.random() < 0.4:
            index = torch.randint(0, shape[dim], of_index[::-1]).t()
        found[dim] = index
    return found


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(8))
def test_elements_chosen_by_indices_are_laid_out_as_eagers(seed):
    """Kernels iterate over the tensor and its indices, whose strides take part in the order."""
    dice = random.Random(seed)
    for _ in range(60):
        shape = dice.choices([1, 1, 2, 3, 4], k=dice.randint(1, 5))
        steps = dice.choices([0, 1, 2, 5, 7, 12, 48], k=len(shape))
        x, indices = torch.zeros(3000).as_strided(shape, steps), odd_indices(dice, shape)
        mode = EagerLayouts()
        with mode:
            faked = [index if index is None else mode.from_tensor(index) for index in indices]
            found = torch.ops.aten.index.Tensor(mode.from_tensor(x), faked)
        want = torch.ops.aten.index.Tensor(x, indices)
        seen = [index if index is None else (index.shape, index.stride()) for index in indices]
        assert found.stride() == want.stride(), (shape, steps, seen)


NARROW = {
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "batch_norm of statistics": lambda x: F.batch_norm(
        x, x.new_zeros(x.shape[1]), x.new_ones(x.shape[1])
    ),
    "group_norm": lambda x: F.group_norm(x, 1),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "bilinear": lambda x: F.interpolate(x, size=(3, 5), mode="bilinear"),
    "antialias": lambda x: F.interpolate(x, size=(1, 1), mode="bilinear", antialias=True),
    "bicubic": lambda x: F.interpolate(x, size=(3, 5), mode="bicubic"),
    "exact": lambda x: F.interpolate(x, size=(1, 1), mode="nearest-exact"),
    "average": lambda x: F.adaptive_avg_pool2d(x, 2),
}
#: which torch decomposes by Python code, where a tensor of one channel is of either form
IN_PYTHON = ("bilinear", "bicubic")
IMAGES = [
    (2, 1, 4, 4),
    (1, 2, 3, 1),
    (2, 3, 1, 1),
    (1, 3, 4, 4),
    (1, 1, 4, 4),
    (2, 1, 1, 4),
    (1, 3, 1, 1),
]


@pytest.mark.sample(4)
@pytest.mark.parametrize("layout", ["contiguous", "channels last", "rows first"])
@pytest.mark.parametrize("name", NARROW)
def test_images_of_one_channel_or_pixel_are_laid_out_as_eagers(name, layout):
    call = NARROW[name]
    compiled = tc.compile(call, backend="aot_eager")
    for shape in IMAGES:
        if name == "batch_norm" and shape[0] * shape[2] * shape[3] == 1:
            continue  # it refuses one value per channel
        x = torch.randn(shape)
        if layout == "channels last":
            x = x.to(memory_format=torch.channels_last)
        elif layout == "rows first":
            x = x.transpose(1, 2).contiguous().transpose(1, 2)
        mode = EagerLayouts()
        with mode:
            fake = call(torch.empty_strided(x.shape, x.stride()))
        expected = call(x).stride()
        assert fake.stride() == expected
        if name not in IN_PYTHON:
            assert compiled(x).stride() == expected


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["nearest", "batch_norm", "group_norm"])
def test_generated_code_lays_images_of_one_channel_out_as_eager(name):
    x = torch.randn(2, 1, 4, 4).to(memory_format=torch.channels_last)
    assert tc.compile(NARROW[name])(x).stride() == NARROW[name](x).stride()


ROW_MAJOR = {
    "power of a number": lambda x: 2**x,
    "float_power of a number": lambda x: torch.float_power(2, x),
    "isin": lambda x: torch.isin(x, torch.arange(3.0)),
    "isin of a number": lambda x: torch.isin(x, 1.0),
    "normal": lambda x: torch.normal(x, x.abs()),
    "normal around a number": lambda x: torch.normal(1.0, x.abs()),
    "one_hot": lambda x: F.one_hot(x.long().abs(), 5),
    "max_pool1d": lambda x: F.max_pool1d(x, 2),
    "max_pool1d with indices": lambda x: F.max_pool1d(x, 2, return_indices=True)[0],
}


@pytest.mark.sample(9)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", ROW_MAJOR)
def test_programs_may_view_what_eager_makes_row_major(name, backend, grad):
    def call(x):
        made = ROW_MAJOR[name](x.transpose(1, 2))
        return made, made.view(-1) if made.is_contiguous() else made.reshape(-1)

    x = torch.randn(2, 6, 3, requires_grad=grad)
    found = []
    for function in (call, tc.compile(call, backend=backend)):
        torch.manual_seed(0)
        found.append(function(x))
    for one, other in zip(*found, strict=True):
        assert one.stride() == other.stride()
        torch.testing.assert_close(one, other)


def test_what_shape_functions_raise_is_not_logged_while_capturing(caplog, monkeypatch):
    def refused(x):
        try:
            return F.softshrink(x, -1.0)
        except RuntimeError:
            return x + 1

    logger = logging.getLogger(FakeTensorMode.__module__)
    monkeypatch.setattr(logger, "handlers", [caplog.handler])
    x = torch.ones(3)
    assert torch.equal(tc.compile(refused)(x), x + 1)
    assert not caplog.records
    with FakeTensorMode() as mode, pytest.raises(RuntimeError):
        F.softshrink(mode.from_tensor(x), -1.0)
    assert caplog.records  # of another mode
