"""Which NumPy arrays share memory in compiled code: those that share it in eager."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tc

VIEWS = {
    "b[::-1]": lambda b: b[::-1], "b[:, ::-1]": lambda b: b[:, ::-1], "b[::2]": lambda b: b[::2],
    "flip": np.flip, "rot90": np.rot90, "flipud": np.flipud, "fliplr": np.fliplr,
    "T": lambda b: b.T, "reshape": lambda b: b.reshape(-1), "T.reshape": lambda b: b.T.reshape(-1),
    "ravel": lambda b: b.ravel(), "T.ravel": lambda b: b.T.ravel(), "np.ravel": np.ravel,
    "transpose": lambda b: b.transpose(1, 0), "swapaxes": lambda b: b.swapaxes(0, 1),
    "squeeze": lambda b: b[None].squeeze(), "diagonal": lambda b: b.diagonal(), "diag": np.diag,
    "broadcast_to": lambda b: np.broadcast_to(b, (2, 3, 4)), "real": lambda b: b.real,
    "np.real": np.real, "view": lambda b: b.view(np.int64), "flatten": lambda b: b.flatten(),
    "astype": lambda b: b.astype(np.float64), "copy": lambda b: b.copy(), "array": np.array,
    "asarray": np.asarray, "ascontiguousarray": np.ascontiguousarray, "positive": lambda b: +b,
    "conj": lambda b: b.conj(), "abs": abs, "round": lambda b: b.round(),
    "clip": lambda b: b.clip(-100, 100), "list": lambda b: b[[0, 1]], "mask": lambda b: b[b > -1],
    "element": lambda b: b[0, 0], "row": lambda b: b[0], "twice": lambda b: b[0][1],
    "expand_dims": lambda b: np.expand_dims(b, 0), "atleast_2d": np.atleast_2d,
    "split": lambda b: np.split(b, 3), "roll": lambda b: np.roll(b, 1), "triu": np.triu,
    "ellipsis": lambda b: b[...], "rows": list, "elements": lambda b: list(b[0]),
    "concatenate": lambda b: np.concatenate([b]), "nan_to_num": np.nan_to_num, "max": np.max,
    "moveaxis": lambda b: np.moveaxis(b, 0, 1), "column": lambda b: b[-1::-1, 0],
}  # fmt: skip


def _shown(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_shown(one) for one in value]
    return type(value).__name__, value.dtype, value.tolist()


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list | tuple) else value


def _written(view: Any, where: str) -> Any:
    def program(x):
        base = np.arange(12.0).reshape(3, 4)
        found = view(base)
        if where == "the array":
            base += 1
        elif where == "an item":
            base[0] = 7.0
        elif where == "the result":
            one = _first(found)
            one += 1
        return x + 1, found, base

    return program


def _outcome(program: Any, where: str) -> Any:
    try:
        _, found, base = program(torch.ones(2))
        seen = [_shown(found), _shown(base)]
        if where == "afterwards":
            one = _first(found)
            if isinstance(one, np.ndarray) and one.flags.writeable and one.ndim < 3:
                one[...] = 50.0
            seen.append(_shown(base))
            base[...] = 3.0
            seen.append(_shown(found))
        return seen
    except ValueError as error:  # the array is read-only
        return str(error)


@pytest.mark.sample(30)
@pytest.mark.parametrize("where", ["the array", "an item", "the result", "afterwards"])
@pytest.mark.parametrize("name", VIEWS)
def test_writes_are_seen_where_eager_sees_them(name, where):
    program = _written(VIEWS[name], where)
    compiled = tc.compile(program, backend="eager")
    assert _outcome(compiled, where) == _outcome(program, where)


def test_scalars_are_copies():
    def program(x, a):
        first, rows = a[0], list(a)
        first += 5
        a[0] = 9
        return x + 1, first, rows, a

    compiled = tc.compile(program)
    for a in (np.array([1, 2]), np.array([1.5, 2.5])):
        assert _shown(compiled(torch.ones(2), a.copy())[1:]) == _shown(
            program(torch.ones(2), a.copy())[1:]
        )


@pytest.mark.parametrize("name", ["b[::-1]", "flip", "T", "T.ravel", "flatten", "row", "astype"])
def test_large_arrays_share_memory_alike(name):
    def program(x):
        base = np.arange(90_000.0).reshape(300, 300)
        found = VIEWS[name](base)
        base += 1
        return x + 1, found

    compiled = tc.compile(program, backend="eager")
    assert np.array_equal(compiled(torch.ones(2))[1], program(torch.ones(2))[1])


WRITES = {
    "an item": "a[0] = 7", "in place": "a += 1", "a view": "v = a[1:]; v[0] = 9",
    "sort": "a.sort()", "fill": "a.fill(3)", "out": "np.add(a, 1, out=a)",
    "copyto": "np.copyto(a, 5.0)", "mask": "a[a > 0] = 4", "transposed": "a.T[0] = 4",
    "a copy": "b = a + 1; b[0] = 5",
}  # fmt: skip


@pytest.mark.sample(5)
@pytest.mark.parametrize("text", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("order", [(True, False, True), (False, True, False)])
def test_arrays_that_are_read_only_are_not_written(text: str, order: tuple[bool, ...]) -> None:
    names: dict[str, Any] = {"np": np}
    exec(f"def program(x, a):\n    {text}\n    return x + 1, a\n", names)
    found = []
    for call in (names["program"], tc.compile(names["program"], backend="eager")):
        for writeable in order:
            array = np.array([2.0, 1.0])
            array.flags.writeable = writeable
            try:
                seen = call(torch.ones(2), array)[1]
                found.append((seen.tolist(), seen.flags.writeable))
            except ValueError as error:
                found.append((str(error), array.tolist()))
    assert found[:3] == found[3:]
