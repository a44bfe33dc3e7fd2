"""What was different and becomes the same: facts that an earlier trace saw the other way round."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

import tc
from tc.compiler.capture.guards.guard_list import FIX_TYPE
from tc.compiler.capture.guards.rows import GUARDS


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    tc.reset()
    return tc.compile(function, backend="eager")


def same(function: Callable[..., Any], *calls: tuple[Any, ...]) -> None:
    """Hold a compiled function against itself, in a sequence of calls."""
    call = compiled(function)
    for args in calls:
        got, want = call(*args), function(*args)
        assert torch.equal(got, want), args


X = torch.ones(2)


def test_kinds_that_fix_a_type_exist() -> None:
    assert set(GUARDS) >= FIX_TYPE


def test_an_object_that_capture_cannot_look_into_is_guarded_by_type() -> None:
    leaf = torch.ones(2, requires_grad=True)

    def has_history(x: torch.Tensor) -> torch.Tensor:
        return x.detach() * (1 if x.grad_fn is None else 2)

    same(has_history, (leaf * 1,), (leaf,), (leaf * 1,), (leaf,))


def test_a_thread_is_another_object_than_the_main_one() -> None:
    owner = threading.current_thread()

    def f(x: torch.Tensor) -> torch.Tensor:
        return x * (1 if threading.current_thread() is owner else 2)

    call, got = compiled(f), []
    thread = threading.Thread(target=lambda: got.append(call(X)))
    thread.start()
    thread.join()
    assert [value[0].item() for value in (*got, call(X))] == [2, 1]


def test_what_wraps_a_function_is_distinguished_from_a_cache_of_it() -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    cached = functools.lru_cache(double)

    @functools.wraps(double)
    def other(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    def f(x: torch.Tensor, g: Any) -> torch.Tensor:
        return g(x)

    same(f, (X, cached), (X, other), (X, cached))


def test_numbers_of_identity_follow_their_lists() -> None:
    held = [1]

    def equal(x: torch.Tensor, a: list[int], b: list[int]) -> torch.Tensor:
        return x * (1 if id(a) == id(b) else 2)

    def keys(x: torch.Tensor, a: list[int], b: list[int]) -> torch.Tensor:
        return x * len({id(a): 0, id(b): 1})

    saved = id(held)

    def known(x: torch.Tensor, a: list[int]) -> torch.Tensor:
        return x * (1 if id(a) == saved else 2)

    same(equal, (X, [1], [1]), (X, held, held), (X, [1], held))
    same(keys, (X, [1], [1]), (X, held, held), (X, [1], held))
    same(known, (X, [1]), (X, held), (X, [1]))


def test_functions_that_shared_a_cell_no_longer_do() -> None:
    def make(items: list[int]) -> tuple[Callable[[], None], Callable[[], int]]:
        return lambda: items.append(1), lambda: len(items)

    def f(x: torch.Tensor, put: Any, count: Any) -> torch.Tensor:
        put()
        return x * count()

    call, eager = compiled(f), f
    for shared in (True, False, True):
        results = []
        for function in (call, eager):
            put, count = make([])
            if not shared:
                _, count = make([])
            results.append(function(X, put, count))
        assert torch.equal(*results), shared


def test_a_graph_calls_the_function_that_the_program_held() -> None:
    relu, sin = F.relu, torch.sin

    def f(x: torch.Tensor) -> torch.Tensor:
        return relu(x) + sin(x)

    call, want = compiled(f), f(-X)
    for before in (True, False):
        if before:
            assert torch.equal(call(-X), want)
        else:
            tc.reset()
        F.relu, torch.sin = F.gelu, torch.cos
        try:
            assert torch.equal(call(-X), want)
        finally:
            F.relu, torch.sin = relu, sin


def test_arrays_stay_on_the_cpu_under_a_default_device() -> None:
    def f(array: Any) -> torch.Tensor:
        return torch.from_numpy(array) * 2

    call = compiled(f)
    with torch.device("meta"):
        assert call(np.ones(2)).tolist() == [2, 2]
    assert call(np.ones(2)).tolist() == [2, 2]


def test_a_function_in_a_cell_of_its_own_is_read() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if f.flag else x * 3  # type: ignore[attr-defined]

    call = compiled(f)
    for flag in (True, False, True):
        f.flag = flag  # type: ignore[attr-defined]
        assert torch.equal(call(X), f(X)), flag


def test_modes_do_not_see_what_is_done_with_arrays() -> None:
    seen = []

    class Mode(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    def f(array: Any) -> Any:
        array[0] = 5
        return array * 2 + np.float64(1)

    call, array = compiled(f), np.zeros(3)
    with Mode():
        result = call(array)
    assert array.tolist() == [5, 0, 0] and np.asarray(result).tolist() == [11, 1, 1]
    assert {func.__name__ for func in seen} <= {"numpy"}  # of the result, which leaves the graph
