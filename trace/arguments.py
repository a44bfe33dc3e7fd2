"""Arguments of a command go in; options come out, or one sentence on what is wrong with them."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NoReturn

_REQUIRED = "the following arguments are required: "


class Parser(argparse.ArgumentParser):
    """A parser of one tool, whose errors are one sentence.

    Attributes:
        usage_error: what is raised of a command that is not understood.
    """

    usage_error: ClassVar[type[Exception]] = ValueError

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._given: Sequence[str] = ()

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as `argparse` does, with options wherever they are between other arguments."""
        return self.parse_intermixed_args(args, namespace)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as `argparse` does, and remember what was given."""
        self._given = tuple(args or ())
        return super().parse_known_args(args, namespace)

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Refuse an empty argument: it is what a shell makes of a variable that is not set."""
        if "" in arg_strings:
            name = "/".join(action.option_strings) or action.metavar or action.dest
            self.error(f"{name} is empty: name what it takes, or leave it out")
        return super()._get_values(action, arg_strings)

    def error(self, message: str) -> NoReturn:
        """Report a wrong argument; one that does not exist before one that is missing."""
        unknown = self._unknown() if message.startswith(_REQUIRED) else []
        if unknown:
            message = f"unrecognized arguments: {' '.join(unknown)}"
        elif message.startswith(_REQUIRED):
            message = f"{message.removeprefix(_REQUIRED)} is missing"
        raise self.usage_error(message)

    def _unknown(self) -> list[str]:
        """Return what looks like an option, and is none of this parser's."""
        return [
            one
            for one in self._given
            if one.startswith("-")
            and one not in ("-", "--")
            and one.partition("=")[0] not in self._option_string_actions
            and one[:2] not in self._option_string_actions
        ]


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """Return what reads an option that is a whole number, and says so of anything else."""
    words = f"a whole number from {least} {'on' if most is None else f'to {most}'}"

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least or (most is not None and number > most):
            raise argparse.ArgumentTypeError(f"{words} is needed, not {text!r}")
        return number

    return read


def seconds(text: str) -> float:
    """Read an option that is a time."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number > 0:
        raise argparse.ArgumentTypeError(f"a number of seconds above zero is needed, not {text!r}")
    return number
