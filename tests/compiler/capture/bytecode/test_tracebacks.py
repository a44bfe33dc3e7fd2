"""Tracebacks of exceptions that compiled code raised and caught are Python's own."""

from __future__ import annotations

import logging
import sys
import traceback
from typing import Any

import pytest
import torch

import tc


class Exits:
    """A context that keeps what its exit method was given."""

    given: tuple[Any, ...] = ()

    def __enter__(self) -> Exits:
        return self

    def __exit__(self, *given: Any) -> bool:
        self.given = given
        return True


def fails(x: torch.Tensor) -> None:
    raise KeyError(x.dim())


def caught(x: torch.Tensor) -> Any:
    try:
        fails(x)
    except KeyError as error:
        kept = error
    return x + 1, kept


def of_a_with_block(x: torch.Tensor) -> Any:
    exits = Exits()
    with exits:
        fails(x)
    kept = exits.given[1]
    assert exits.given[2] is not None, "an exit method asks whether there was an error"
    return x + 1, kept


def of_an_older(x: torch.Tensor) -> Any:
    try:
        try:
            fails(x)
        except KeyError as error:
            raise RuntimeError("again").with_traceback(error.__traceback__) from None
    except RuntimeError as error:
        kept = error
    return x + 1, kept


def emptied(x: torch.Tensor) -> Any:
    try:
        fails(x)
    except KeyError as error:
        error.__traceback__ = None
        kept = error
    return x + 1, kept


def raised_by_python(x: torch.Tensor) -> Any:
    try:
        [x][3]
    except IndexError as error:
        kept = error
    return x + 1, kept


@pytest.mark.parametrize("f", [caught, of_a_with_block, of_an_older, emptied, raised_by_python])
def test_a_returned_exception_has_the_traceback_of_eager(f: Any) -> None:
    def lines(function: Any) -> list[str]:
        return traceback.format_exception(function(torch.ones(2))[1])

    want, got = lines(f), lines(tc.compile(f))
    assert got == want


def reads_exc_info(x: torch.Tensor) -> Any:
    try:
        fails(x)
    except KeyError:
        kind, _, at = sys.exc_info()
    assert at is not None
    return x + 1, kind, at.tb_lineno, at.tb_frame.f_code.co_name


def walks(x: torch.Tensor) -> Any:
    names = []
    try:
        fails(x)
    except KeyError as error:
        at = error.__traceback__
        while at is not None:
            names.append(at.tb_frame.f_code.co_name)
            at = at.tb_next
    return x + 1, names


def formats(x: torch.Tensor) -> Any:
    try:
        fails(x)
    except KeyError:
        text = traceback.format_exc()
    return x + 1, text


@pytest.mark.parametrize("f", [reads_exc_info, walks, formats])
def test_compiled_code_reads_the_traceback_of_eager(f: Any) -> None:
    x = torch.ones(2)
    assert repr(tc.compile(f)(x)) == repr(f(x))


def test_a_logged_exception_names_the_line_that_raised(caplog: pytest.LogCaptureFixture) -> None:
    def logs(x: torch.Tensor) -> torch.Tensor:
        try:
            fails(x)
        except KeyError:
            logging.getLogger("tests").exception("failed")
        return x + 1

    with caplog.at_level(logging.ERROR):
        tc.compile(logs)(torch.ones(2))
    assert "raise KeyError(x.dim())" in caplog.text
    assert "in fails" in caplog.text


def test_the_cause_of_a_raised_exception_has_its_traceback() -> None:
    def chains(x: torch.Tensor) -> None:
        try:
            fails(x)
        except KeyError as error:
            raise RuntimeError("wrapped") from error

    with pytest.raises(RuntimeError) as raised:
        tc.compile(chains)(torch.ones(2))
    cause = raised.value.__cause__
    assert cause is not None
    assert [at.name for at in traceback.extract_tb(cause.__traceback__)] == ["chains", "fails"]
    assert traceback.extract_tb(raised.value.__traceback__)[-1].name == "chains"


def leaves_finally(x: torch.Tensor) -> None:
    try:
        fails(x)
    finally:
        x = x + 1


def leaves_with(x: torch.Tensor) -> None:
    with torch.no_grad():
        fails(x)


def raises_again(x: torch.Tensor) -> None:
    try:
        fails(x)
    except KeyError:
        raise


def raises_another(x: torch.Tensor) -> None:
    try:
        fails(x)
    except KeyError as error:
        raise IndexError(2) from error


@pytest.mark.parametrize("f", [fails, leaves_finally, leaves_with, raises_again, raises_another])
def test_what_the_caller_handles_is_the_context(f: Any) -> None:
    def chain(function: Any) -> list[str]:
        names = []
        try:
            [][1]
        except IndexError:
            try:
                function(torch.ones(2))
            except (KeyError, IndexError) as raised:
                error: BaseException | None = raised
                while error is not None:
                    names.append(repr(error))
                    error = error.__context__
        return names

    compiled = tc.compile(f)
    assert chain(compiled) == chain(f)
    assert chain(compiled) == chain(f)
