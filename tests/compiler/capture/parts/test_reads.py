"""What calls of torch answer with plain values: the answers of now, whatever was asked before."""

from __future__ import annotations

import copy
import sys
import warnings

import pytest
import torch

import tc
from tc.compiler.capture.parts import reads

NAMES = sorted(name for name in dir(torch.Tensor) if name not in ("__class__", "__dict__"))


def fresh():
    return torch.ones(2, 3)


def leaf():
    return torch.ones(2, 3, requires_grad=True)


def kept():
    found = leaf() * 1
    found.retain_grad()
    return found


def written():
    found = torch.ones(2, 3)
    found.add_(0)
    return found


#: tensors that the guard on tensors cannot distinguish
ALIKE = {
    "plain": [
        fresh,
        lambda: torch.ones(4, 3)[1:3],
        lambda: torch.ones(6).view(2, 3),
        lambda: torch.ones(2, 2, 3).unbind(0)[1],
        lambda: fresh().share_memory_(),
        lambda: leaf().detach(),
        written,
    ],
    "with gradients": [
        leaf,
        lambda: leaf() * 1,
        kept,
        lambda: torch.ones(2, 2, 3, requires_grad=True).unbind(0)[1],
        lambda: torch.ones(4, 3, requires_grad=True)[2:],
    ],
}
PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.layout, tuple)
#: names whose answer is another each time, even of one tensor
RESTLESS = frozenset(("data_ptr", "__hash__", "__sizeof__", "__dir__", "__repr__", "_cdata"))


def answer(tensor, name, called):
    found = getattr(tensor, name)
    return found() if called else found


def plain_answers(tensor):
    """Names of tensors' attributes and methods without arguments that answer with plain values."""
    for name in NAMES:
        for called in (False, True):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = answer(tensor, name, called)
            except Exception:
                continue
            flat = found if isinstance(found, tuple) else (found,)
            if all(isinstance(one, PLAIN) for one in flat) and name not in RESTLESS:
                yield name, called


def cases():
    for kind, makers in ALIKE.items():
        for name, called in plain_answers(makers[0]()):
            if not name.endswith("_") or name.startswith("__"):
                yield pytest.param(kind, name, called, id=f"{name}{'()' * called}-{kind}")


@pytest.mark.sample(48)
@pytest.mark.parametrize(("kind", "name", "called"), cases())
def test_a_plain_answer_is_that_of_the_tensor_itself(kind, name, called):
    tc.reset()
    space: dict = {}
    exec(f"def f(x):\n    found = x.{name}{'()' * called}\n    return x * 1, found", space)
    f = space["f"]
    run = tc.compile(f, backend="eager")
    for make in (*ALIKE[kind], ALIKE[kind][0]):
        tensor = make()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                expected = f(tensor)[1]
            except Exception as error:
                with pytest.raises(type(error)):
                    run(tensor)
                continue
            assert repr(run(tensor)[1]) == repr(expected)


def test_an_answer_about_a_view_made_inside_follows_the_input():
    def f(x):
        y = x[1:]
        return y * 1, y.storage_offset(), y.is_leaf, y._is_view()

    run = tc.compile(f, backend="eager")
    for x in (torch.ones(3), torch.ones(5)[2:], torch.ones(4)[1:].detach()):
        assert run(x)[1:] == f(x)[1:]


def test_places_in_memory_count_from_the_offset_of_the_input():
    def f(x):
        return x.as_strided((2,), (1,), 1) * 1

    run = tc.compile(f, backend="eager")
    base = torch.arange(6.0)
    for x in (base[:3], base[1:4], base[2:5]):
        assert torch.equal(run(x), f(x))


def test_requires_grad_matters_where_gradients_are_turned_on_inside():
    def f(x):
        with torch.enable_grad():
            return x * 2

    run = tc.compile(f, backend="eager")
    with torch.no_grad():
        assert not run(torch.ones(2)).requires_grad
        assert run(torch.ones(2, requires_grad=True)).requires_grad
        assert not run(torch.ones(2)).requires_grad


def test_requires_grad_is_read_where_gradients_are_off():
    def f(x):
        return x + (1 if x.requires_grad else 2)

    run = tc.compile(f, backend="eager")
    with torch.no_grad():
        for grad in (False, True, False):
            x = torch.zeros(2, requires_grad=grad)
            assert torch.equal(run(x), f(x))


def test_what_the_process_answers_is_asked_again():
    def f(x):
        return x + sys.getrecursionlimit()

    run, before = tc.compile(f, backend="eager"), sys.getrecursionlimit()
    try:
        for limit in (before, before + 100, before):
            sys.setrecursionlimit(limit)
            assert run(torch.zeros(1)).item() == limit
    finally:
        sys.setrecursionlimit(before)


def test_compiled_code_lets_forward_mode_derivatives_through():
    from torch.autograd import forward_ad

    def f(x):
        return x * x

    run = tc.compile(f)
    run(torch.ones(2))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.full((2,), 3.0), torch.ones(2))
        assert forward_ad.unpack_dual(run(dual)).tangent.tolist() == [6.0, 6.0]


def test_tables_do_not_overlap():
    assert not reads.OF_TENSOR_GUARD & reads.OF_GLOBAL_STATE
    assert not reads.OF_MEMORY & (reads.OF_TENSOR_GUARD | reads.PURE | reads.OF_GLOBAL_STATE)


#: what traced code asks of tensors that it made, of inputs that could not answer it
OF_MADE_TENSORS = {
    "is_coalesced": lambda x: x.to_sparse().is_coalesced(),
    "sparse_dim": lambda x: (x * 1).to_sparse().sparse_dim(),
    "dense_dim": lambda x: x.to_sparse().dense_dim(),
    "nnz": lambda x: x.to_sparse()._nnz(),
    "output_nr": lambda x: x.unbind()[1].output_nr,
    "is_conj": lambda x: torch.complex(x, x).conj().is_conj(),
    "is_view": lambda x: x[1]._is_view(),
    "is_inference": lambda x: x.add(1).is_inference(),
    "nbytes": lambda x: x[:, :1].nbytes,
    "dim_order": lambda x: x.t().dim_order(),
    # lists of tensors, without any
    "unbind of no rows": lambda x: x[:0].unbind(),
    "unbind of no columns": lambda x: x[:, :0].unbind(1),
    "rows of none": lambda x: [row.sum() for row in x[3:]],
    "split of none": lambda x: x[:0].split([]),
    "split of none with sizes": lambda x: torch.split_with_sizes(x[:0], []),
}


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", OF_MADE_TENSORS)
@pytest.mark.parametrize("shape", [(3, 4), (3, 0)])
def test_what_is_asked_of_tensors_that_traced_code_made(name, shape):
    tc.reset()

    def asked(x, y):
        return OF_MADE_TENSORS[name](x), y + 1

    compiled = tc.compile(asked)
    for _ in range(2):
        given = torch.ones(shape), torch.ones(2)
        assert compiled(*given)[0] == asked(*given)[0]


def into_row(x, memory):
    torch.add(x, 1, out=memory[0])
    return memory * 2


def into_view_of_made(x, memory):
    made = memory * 1
    torch.add(x, 1, out=made.view(-1))
    return made * 2


def into_made(x, memory):
    made = torch.empty(0)
    torch.add(x, 1, out=made)
    return made * memory[0, 0]


@pytest.mark.sample(4)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("function", [into_row, into_view_of_made, into_made])
@pytest.mark.parametrize("shape", [(2,), (5, 3), (2, 2), (1, 4)])
def test_results_that_resize_what_they_are_written_to(function, shape):
    tc.reset()
    x = torch.arange(float(torch.Size(shape).numel())).view(shape)
    got, theirs = torch.zeros(2, 2), torch.zeros(2, 2)
    torch.testing.assert_close(tc.compile(function)(x, got), function(x, theirs))
    torch.testing.assert_close(got, theirs)


PARTS = {
    "rows": lambda x: [row + 1 for row in x],
    "unbind": lambda x: [*x.unbind()],
    "unbind of the function": lambda x: [*torch.unbind(x, 0)],
    "places": lambda x: [*x.unbind(0), len(x.unbind(0))],
}


@pytest.mark.parametrize("made", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 3])
@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_parts_of_a_tensor_without_rows_beside_one_that_has_some(parts, rows, made):
    def function(x, y):
        doubled = y * 2
        return [doubled, *parts(x * 1 if made else x)]

    compiled = tc.compile(function, backend="eager")
    for others in (1, 2):
        x, y = torch.randn(rows, 2, requires_grad=True), torch.randn(others, 2, requires_grad=True)
        torch.testing.assert_close(compiled(x, y), function(x, y))


def test_a_module_is_moved_to_where_it_is_without_a_break():
    def f(m, x):
        m.to(x.device).float().to(x)
        return m(x) * 2

    module, x = (
        torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)),
        torch.ones(3, 2),
    )
    held = [id(one) for one in module.parameters()]
    want = f(copy.deepcopy(module), x)
    got = tc.compile(f, backend="eager", fullgraph=True)(module, x)
    torch.testing.assert_close(got, want)
    assert [id(one) for one in module.parameters()] == held
    assert str(tc.compile(f, backend="eager")(module.double(), x)) == str(want)
