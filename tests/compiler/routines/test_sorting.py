"""Our sort is torch's, bit for bit: values, and places also where torch leaves their order open."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from support import succeed

from tc.compiler.errors import StageError
from tc.compiler.routines import row, sorting
from tc.compiler.runtime import routines

T = torch.Tensor
INF, NAN = float("inf"), float("nan")
SPECIAL = (NAN, -NAN, INF, -INF, 0.0, -0.0, 1e-40, -1e-40, 6e-8, -6e-8, 1.0, -1.0, 3e38, -3e38)
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
#: on both sides of where torch inserts, of where smaller ones are counted, and of a register
LENGTHS = (0, 1, 2, 7, 8, 9, 16, 17, 79, 80, 81, 255, 257, 513, 1000)
WAYS = tuple(itertools.product((False, True), repeat=2))


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def by_torch(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Shapes of what torch sorts for us."""
    asked: list[tuple[int, ...]] = []
    called = sorting._by_torch

    def noted(rows: T, descending: bool, stable: bool) -> sorting.Sorted:
        asked.append(tuple(rows.shape))
        return called(rows, descending, stable)

    monkeypatch.setattr(sorting, "_by_torch", noted)
    return asked


def check(source: T, dim: int = -1) -> None:
    before = source.clone()
    for descending, stable in WAYS:
        at = dim % max(source.dim(), 1)
        values, places = sorting.sort(source, at, descending, stable)
        wanted = torch.sort(source, dim=dim, descending=descending, stable=stable)
        assert torch.equal(places, wanted.indices), (descending, stable)
        bits = BITS[source.dtype.itemsize]
        assert torch.equal(values.view(bits), wanted.values.view(bits)), (descending, stable)
        assert values.dtype is source.dtype
    bits = BITS[source.dtype.itemsize]
    assert torch.equal(source.view(bits), before.view(bits))


def rows(kind: str, dtype: torch.dtype, *shape: int) -> T:
    if dtype is torch.int32:
        high = {"special": 2**31 - 1, "few": 3, "distinct": 2**20}[kind]
        found = torch.randint(-high, high, shape, dtype=dtype)
        found[found == high - 1] = -(2**31)
        return found
    if kind == "special":
        return torch.tensor(SPECIAL)[torch.randint(0, len(SPECIAL), shape)].to(dtype)
    plain = torch.randint(-3, 3, shape).float() if kind == "few" else torch.randn(shape)
    return plain.to(dtype)


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", ["special", "few", "distinct"])
@pytest.mark.parametrize("dtype", sorting.ROUTINE.functions)
def test_lengths_types_and_values(dtype: torch.dtype, kind: str) -> None:
    for length in LENGTHS:
        check(rows(kind, dtype, 5, length))


@pytest.mark.parametrize("dtype", sorting.ROUTINE.functions)
def test_all_values_of_a_type_in_order(dtype: torch.dtype) -> None:
    if dtype.itemsize == 2:
        every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)
    else:
        every = torch.randint(-(2**31), 2**31, (2**16,)).to(torch.int32).view(dtype)
    check(every[torch.randperm(len(every))])
    check(every[torch.randperm(len(every))].view(-1, 64))


@pytest.mark.parametrize("digit", range(4))
def test_one_element_differs_in_one_digit(digit: int) -> None:
    same = torch.full((201, 201), 1 << 8 * digit, dtype=torch.int32)
    check(same - torch.eye(201, dtype=torch.int32) * (1 << 8 * digit))


finite = st.floats(width=32, allow_nan=True, allow_subnormal=True)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_any_floats(data: st.DataObject) -> None:
    pool = data.draw(st.lists(st.sampled_from(SPECIAL) | finite, min_size=1, max_size=40))
    shape = [*data.draw(st.lists(st.integers(0, 5), max_size=2)), data.draw(st.integers(0, 200))]
    seed = data.draw(st.integers(0, 2**30))
    picked = torch.randint(0, len(pool), shape, generator=torch.Generator().manual_seed(seed))
    check(torch.tensor(pool)[picked], data.draw(st.integers(-len(shape), len(shape) - 1)))


@pytest.mark.parametrize(("source", "dim"), [
    (torch.randn(90, 20).t(), 1),
    (torch.randn(90, 20).t(), 0),
    (torch.randn(4, 90, 20), 1),
    (torch.randn(9, 200)[:, ::2], 1),
    (torch.randn(9, 200)[:, 3:150], 1),
    (torch.randn(1, 90).expand(7, 90), 1),
    (torch.randn(50), 0),
])  # fmt: skip
def test_layouts(source: T, dim: int) -> None:
    check(source, dim)


def test_only_rows_with_equal_elements_are_torchs(by_torch: list[tuple[int, ...]]) -> None:
    distinct = torch.stack([torch.randperm(99) for _ in range(128)]).float()
    check(distinct)
    assert not by_torch
    distinct[40:43, 7] = distinct[40:43, 90]
    check(distinct)
    assert by_torch == [(3, 99)] * 2  # stable sorts have none


def test_where_most_rows_hold_equal_elements_torch_sorts(by_torch: list[tuple[int, ...]]) -> None:
    crowded = torch.randint(0, 9, (128, 99)).float()
    crowded[-1] = torch.arange(99)
    check(crowded)
    assert by_torch == [(128, 99)] * 2
    by_torch.clear()
    check(torch.randn(2, sorting.CROWDED + 1))
    assert by_torch == [(2, sorting.CROWDED + 1)] * 2


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.uint8])
def test_other_types_are_torchs(dtype: torch.dtype, by_torch: list[tuple[int, ...]]) -> None:
    values, _ = sorting.sort(torch.tensor([[3, 1, 2]]).to(dtype), 1, False, True)
    assert values.tolist() == [[1, 2, 3]] and by_torch == [(1, 3)]


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(source: str, *, of_graph: bool) -> None:
        raise StageError("runtime.build", "no C compiler")

    monkeypatch.setattr(routines, "build_kernels", refuse)
    routines.open_routine.cache_clear()
    row.opened.cache_clear()
    yield
    routines.open_routine.cache_clear()
    row.opened.cache_clear()


def test_without_a_compiler_torch_sorts(no_compiler: None, by_torch: list[tuple[int, ...]]) -> None:
    check(torch.randn(5, 90))
    assert len(by_torch) == 4


THREADS = """
import torch
from tc.compiler.routines import sorting
from tc.compiler.runtime import routines
torch.set_num_threads(3)
for shape in ((701, 60), (5, 4001), (1, 90000), (2, 3000)):
    x = torch.randn(shape)
    x[:, ::7] = 0
    for stable in (False, True):
        wanted = torch.sort(x, dim=1, descending=True, stable=stable)
        assert all(map(torch.equal, sorting.sort(x, 1, True, stable), wanted))
"""


def test_threads_share_rows() -> None:
    succeed("-c", THREADS, warm=True)
