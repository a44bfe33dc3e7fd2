"""A fake mode remembers the results of its calls: by everything that a result depends on."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from aot_harness import default_dtype
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from tc.compiler.core.fake_results import _facts
from tc.compiler.core.fakes import EagerLayouts
from tc.compiler.core.memory import storage_id

aten = torch.ops.aten


def x(*shape, **options):
    return torch.empty(*(shape or (4, 6)), **options)


def conjugated():
    return x(dtype=torch.complex64).conj()


#: fact -> calls that differ in it: an op and what makes its arguments
CALLS = {
    "shape": [(aten.relu.default, lambda: [x(4, 6)]), (aten.relu.default, lambda: [x(6, 4)])],
    "stride": [
        (aten.relu.default, lambda: [x(4, 6)]),
        (aten.relu.default, lambda: [x(6, 4).t()]),
    ],
    "offset": [
        (aten.view.default, lambda: [x(8, 6)[:4], [24]]),
        (aten.view.default, lambda: [x(8, 6)[4:], [24]]),
    ],
    "dtype": [
        (aten.add.Tensor, lambda: [x(), x()]),
        (aten.add.Tensor, lambda: [x(), x(dtype=torch.float64)]),
        (aten.add.Tensor, lambda: [x(dtype=torch.int32), x(dtype=torch.bfloat16)]),
    ],
    "rank of the other operand": [
        (aten.add.Tensor, lambda: [x(dtype=torch.bfloat16), x(1)]),
        (aten.add.Tensor, lambda: [x(dtype=torch.bfloat16), torch.empty(())]),
    ],
    "type of a number": [
        (aten.mul.Tensor, lambda: [x(dtype=torch.int64), 1]),
        (aten.mul.Tensor, lambda: [x(dtype=torch.int64), 1.0]),
        (aten.mul.Tensor, lambda: [x(dtype=torch.int64), True]),
    ],
    "number": [(aten.slice.Tensor, lambda n=n: [x(), 0, n]) for n in (0, 1, 2, 9)],
    "list": [(aten.view.default, lambda s=s: [x(), s]) for s in ([24], [2, 12], [4, 6])],
    "keyword": [
        (aten.sum.dim_IntList, lambda d=d: ([x(), [0]], {"dtype": d}))
        for d in (None, torch.float64, torch.int64)
    ],
    "name of a keyword": [
        (aten._to_copy.default, lambda o=o: ([x()], o))
        for o in ({"dtype": torch.float64}, {"memory_format": torch.contiguous_format}, {})
    ],
    "conjugate": [
        (aten.mul.Tensor, lambda: [conjugated(), 2]),
        (aten.mul.Tensor, lambda: [conjugated().resolve_conj(), 2]),
        (aten.alias.default, lambda: [conjugated()]),
        (aten.alias.default, lambda: [conjugated().resolve_conj()]),
    ],
    "what is a view": [
        (aten.contiguous.default, lambda: [x()]),
        (aten.contiguous.default, lambda: [x(6, 4).t()]),
        (aten.expand.default, lambda: [x(4, 1), [4, 6]]),
        (aten.expand.default, lambda: [x(4, 6), [4, 6]]),
    ],
    "several results": [
        (aten.split.Tensor, lambda n=n, dim=dim: [x(), n, dim]) for dim in (0, 1) for n in (2, 3)
    ]
    + [(aten.var_mean.correction, lambda d=d: [x(), [d]]) for d in (0, 1)],
    "results that are missing": [
        (
            aten.convolution_backward.default,
            lambda mask=mask: [
                *(x(2, 3, 8, 8), x(2, 3, 8, 8), x(3, 3, 1, 1)),
                *([3], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, mask),
            ],
        )
        for mask in ([True, True, True], [False, True, False], [True, False, True])
    ],
    "size of the storage": [
        (aten.as_strided.default, lambda: [x(8, 6)[:4], [4, 6], [6, 1]]),
        (aten.as_strided.default, lambda: [x(4, 6), [4, 6], [6, 1]]),
    ],
}


def given(make):
    made = make()
    return made if isinstance(made, tuple) else (made, {})


def described(result, arguments):
    """Everything that is to be equal of a result: facts, and which memory it is in."""
    if isinstance(result, (list, tuple)):
        return type(result), [described(each, arguments) for each in result]
    if not isinstance(result, FakeTensor):
        return type(result), result
    tensors = [one for one in arguments if isinstance(one, FakeTensor)]
    same = [one is result for one in tensors]
    memory = [storage_id(one) == storage_id(result) for one in tensors]
    return _facts(result), same, memory


def called(mode, op, make):
    with mode:
        arguments, options = given(make)
        return described(op(*arguments, **options), arguments)


@pytest.mark.sample(8)
@pytest.mark.parametrize("asking", [False, True])
@pytest.mark.parametrize("fact", CALLS)
def test_calls_that_differ_in_one_fact_have_results_of_their_own(fact, asking):
    wanted = [called(EagerLayouts(), op, make) for op, make in CALLS[fact]]
    shared = EagerLayouts()
    with shared.asking_eager() if asking else nullcontext():
        for _ in range(2):
            assert [called(shared, op, make) for op, make in CALLS[fact]] == wanted


@pytest.mark.parametrize("fact", sorted(CALLS.keys() - {"conjugate"}))  # never remembered
def test_an_equal_call_is_not_made_twice(fact, monkeypatch):
    mode, made = EagerLayouts(), []
    real = EagerLayouts._run

    def run(self, call, func, *rest):
        made.append(func)
        return real(self, call, func, *rest)

    for op, make in CALLS[fact]:
        called(mode, op, make)
    monkeypatch.setattr(EagerLayouts, "_run", run)
    for op, make in CALLS[fact]:
        called(mode, op, make)
    assert not made


def surrounding(kind):
    return {
        "default dtype": default_dtype(torch.float64),
        "inference mode": torch.inference_mode(),
        "no gradients": torch.no_grad(),
    }[kind]


@pytest.mark.parametrize("kind", ["default dtype", "inference mode", "no gradients"])
@pytest.mark.parametrize(
    "call",
    [
        lambda x: aten.mul.Tensor(x, 1.5),
        lambda x: aten.arange.default(3.0),
        lambda x: aten.full.default([2], 1.5),
        lambda x: aten.view.default(x, [24]),
        lambda x: aten.detach.default(x),
    ],
)
def test_results_depend_on_modes(kind, call):
    def facts(mode):
        with mode:
            made = call(torch.empty(4, 6, dtype=torch.int64))
        return _facts(made)

    def inside(mode):
        with mode:
            integers = torch.empty(4, 6, dtype=torch.int64)
            with surrounding(kind):
                return _facts(call(integers))

    wanted = facts(EagerLayouts()), inside(EagerLayouts())
    mode = EagerLayouts()
    for _ in range(2):
        assert (facts(mode), inside(mode)) == wanted


def test_only_the_last_mode_remembers():
    one, other = EagerLayouts(), EagerLayouts()
    called(one, aten.relu.default, lambda: [x()])
    assert one._results()
    called(other, aten.relu.default, lambda: [x()])
    assert other._results() and not one._results()


def test_aliasing_of_arguments_is_a_fact():
    """Two arguments in one memory are another call than two arguments in two."""
    mode = EagerLayouts()
    with mode:
        one, other = x(), x()
        for pair in ((one, other), (one, one), (one, one.view(4, 6)), (other, one)):
            result = aten.view_as.default(*pair)
            assert storage_id(result) == storage_id(pair[0])
            (again,) = aten.broadcast_tensors.default([pair[0]])
            assert storage_id(again) == storage_id(pair[0])
            first, second = aten.broadcast_tensors.default([*pair])
            assert storage_id(first) == storage_id(pair[0])
            assert storage_id(second) == storage_id(pair[1])


def test_each_new_result_has_memory_of_its_own():
    mode = EagerLayouts()
    with mode:
        one = x()
        made = [aten.relu.default(one) for _ in range(4)]
        views = [aten.t.default(each) for each in made]
    assert len({storage_id(each) for each in made}) == 4
    assert [*map(storage_id, views)] == [*map(storage_id, made)]


def test_writes_are_run_and_noted_each_time():
    mode = EagerLayouts()
    with mode:
        targets = [x() for _ in range(3)]
        for target in targets:
            assert aten.add_.Tensor(target, 1) is target
    assert mode.written == set(map(storage_id, targets))


def test_draws_are_noted_where_the_result_is_remembered():
    mode = EagerLayouts()
    with mode:
        for _ in range(2):
            mode.runs_once = False
            aten.bernoulli.p(x(), 0.5)
            assert mode.runs_once


def test_effects_inside_of_a_call_are_noted_each_time():
    """In inference mode a batch normalisation comes whole: it writes to its running statistics."""
    mode = EagerLayouts()
    with torch.inference_mode(), mode:
        for _ in range(2):
            statistics = [torch.empty(3), torch.empty(3)]
            mode.written.clear()
            aten.batch_norm.default(
                x(2, 3, 4), None, None, *statistics, True, 0.1, 1e-5, False
            )  # fmt: skip
            assert mode.written.issuperset(map(storage_id, statistics))
            mode.runs_once = False
            aten.dropout.default(x(), 0.5, True)
            assert mode.runs_once


def test_effects_of_a_remembered_call_are_those_of_the_call(monkeypatch):
    """The memory that is written, without the call being made again."""
    mode, made, found = EagerLayouts(), [], []
    real = EagerLayouts._run
    monkeypatch.setattr(EagerLayouts, "_run", lambda *a: made.append(a[2]) or real(*a))
    with mode:
        for _ in range(2):
            mode.written.clear()
            arguments = [x(2, 3, 4), None, None, torch.empty(3), torch.empty(3)]
            results = aten.native_batch_norm.default(*arguments, True, 0.1, 1e-5)
            tensors = [one for one in arguments if one is not None]
            written = [storage_id(one) in mode.written for one in tensors]
            found.append((described(results, arguments), written))
            made.append("end")
    assert found[0] == found[1] and found[0][1] == [False, True, True]
    assert made[-2:] == ["end", "end"]


def test_what_eager_refuses_is_refused_each_time():
    mode = EagerLayouts()
    with mode, mode.asking_eager():
        for _ in range(2):
            with pytest.raises(RuntimeError):
                aten.add.Tensor(x(4, 6), x(5, 6))


def test_sizes_that_are_symbols_and_known_values_are_not_remembered():
    mode = EagerLayouts(shape_env=ShapeEnv())
    fake = mode.from_tensor(torch.randn(5, 7), static_shapes=False)
    number = mode.from_tensor(torch.tensor(3))
    with mode:
        before = len(mode._results())
        made = aten.relu.default(fake)
        assert len(mode._results()) == before
        element = aten.select.int(aten.select.int(made, 0, 0), 0, 0)
        assert element.bool().shape == ()  # its own size is plain, that of its memory is not
        aten.relu.default(number)
        tripled = aten.mul.Tensor(torch.tensor(3), 3)
        assert tripled.item() == 9
        assert aten.mul.Tensor(torch.tensor(2), 3).item() == 6
