"""Options of the tools: what is wrong with them, in one sentence each."""

from __future__ import annotations

import pytest

from tc.trace.arguments import Parser, seconds, whole_number


def parsed(*arguments: str) -> object:
    parser = Parser(prog="x", add_help=False, allow_abbrev=False)
    parser.add_argument("trace", metavar="TRACE")
    parser.add_argument("-o", "--output")
    parser.add_argument("--most", type=whole_number(0))
    parser.add_argument("--port", type=whole_number(1, 9))
    parser.add_argument("--time", type=seconds)
    return parser.parse_args(arguments)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "TRACE is missing"),
        (("-o", "x"), "TRACE is missing"),
        (("-ox",), "TRACE is missing"),
        (("--nope",), "unrecognized arguments: --nope"),
        (("--nope=1", "-x", "--most", "3"), "unrecognized arguments: --nope=1 -x"),
        (("a", "--nope"), "unrecognized arguments: --nope"),
        (("a", "--most", "-1"), "argument --most: a whole number from 0 on is needed, not '-1'"),
        (("a", "--most", "1.5"), "argument --most: a whole number from 0 on is needed, not '1.5'"),
        (("a", "--port", "10"), "argument --port: a whole number from 1 to 9 is needed, not '10'"),
        (("a", "--time", "0"), "a number of seconds above zero is needed, not '0'"),
        (("a", "--time", "nan"), "a number of seconds above zero is needed, not 'nan'"),
        (("a", "--time", "x"), "a number of seconds above zero is needed, not 'x'"),
    ],
)
def test_what_is_wrong(arguments: tuple[str, ...], text: str) -> None:
    with pytest.raises(ValueError) as found:
        parsed(*arguments)
    assert text in str(found.value) and "\n" not in str(found.value)


def test_what_is_right() -> None:
    options = vars(parsed("-", "--most", "0", "--port", "9", "--time", "1.5", "-o", "x"))
    assert options == {"trace": "-", "output": "x", "most": 0, "port": 9, "time": 1.5}  # type: ignore[comparison-overlap]
