"""Judges a failed `torch.testing.assert_close` of a script: rounding, or a wrong result.

In: a script whose assertion failed, and its values, which its process left in a file. The script is
run eagerly in float64, and then eagerly with each operation moved by one unit in the last place, up
to the same assertion; its values there say what rounding explains.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import torch

from tc.compiler.sentinel import rounding
from tc.minifier.identity import leaves

FILE: Final = "asserted.pt"  # of the assertion that failed
#: how the script runs again, in this order; the next is asked where those before explain too little
WAYS: Final[dict[str, Callable[[], contextlib.AbstractContextManager[Any]]]] = {
    "double": rounding.InDouble,
    "moved": lambda: rounding.Perturbed(1),
}


class _Reached(BaseException):
    """Ends a program at the assertion that is looked for."""


@contextlib.contextmanager
def _patched(instead: Callable[..., Any]) -> Iterator[None]:
    """Call this in place of `assert_close`, which is given as its first argument."""
    real = torch.testing.assert_close
    torch.testing.assert_close = functools.wraps(real)(functools.partial(instead, real))
    try:
        yield
    finally:
        torch.testing.assert_close = real


@contextlib.contextmanager
def kept(folder: Path) -> Iterator[None]:
    """Count a program's assertions, and leave the values of one that fails in a file."""
    (folder / FILE).unlink(missing_ok=True)
    number = 0

    def counting(real: Callable[..., Any], actual: Any, expected: Any, **options: Any) -> Any:
        nonlocal number
        number += 1
        try:
            return real(actual, expected, **options)
        except AssertionError:
            torch.save(
                {"number": number, "actual": _plain(actual), "expected": _plain(expected)},
                folder / FILE,
            )
            raise

    with _patched(counting):
        yield


def has_failed(folder: Path) -> bool:
    """Return whether an assertion of the last program failed."""
    return (folder / FILE).exists()


def is_rounding(folder: Path, way: str, run: Callable[[], Any]) -> bool:
    """Run the script again in one way; returns whether rounding explains what its assertion found.

    Args:
        run: runs the script eagerly.
    """
    known = torch.load(folder / FILE, weights_only=True)
    _save_reference(folder, way, _values_at(known["number"], way, run))
    double, moved = (_load_reference(folder, one, known["expected"]) for one in WAYS)
    seeds = ((1,),) if moved is not None else ()
    reference = rounding.Reference(
        known["expected"], lambda: double, lambda seed: moved or [], seeds
    )
    _, differs = rounding.compare(reference, known["actual"])
    return differs is None


def _values_at(number: int, way: str, run: Callable[[], Any]) -> list[Any] | None:
    """Return what eager has at the assertion of this number; None: it does not come there."""
    reached = 0
    values: list[Any] | None = None

    def counting(real: Callable[..., Any], actual: Any, expected: Any, **options: Any) -> None:
        nonlocal reached, values
        reached += 1
        if reached == number:
            values = _plain(expected)
            raise _Reached

    with _patched(counting), contextlib.suppress(Exception, _Reached), WAYS[way]():
        run()
    return values


def _plain(value: Any) -> list[Any]:
    """Return the leaves of what is compared, without gradients."""
    return [v.detach().cpu() if isinstance(v, torch.Tensor) else v for v in leaves(value)]


def _save_reference(folder: Path, way: str, values: list[Any] | None) -> None:
    path = folder / f"asserted-{way}.pt"
    for later in list(WAYS)[list(WAYS).index(way) :]:
        (folder / f"asserted-{later}.pt").unlink(missing_ok=True)
    if values is not None:
        torch.save(values, path)


def _load_reference(folder: Path, way: str, known: list[Any]) -> list[Any] | None:
    """Return the values of a run, unless it was on other numbers than the one that is judged.

    A run in float64 draws other numbers where a program fills a tensor in place.
    """
    path = folder / f"asserted-{way}.pt"
    if not path.exists():
        return None
    values: list[Any] = torch.load(path, weights_only=True)
    return values if rounding.are_close(known, values) else None
