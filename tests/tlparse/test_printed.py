"""What tc-report prints to be run next can be run: commands, ids, names of places."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
from real_traces import unpacked

from tc.tlparse.__main__ import main


def size(folder: Path) -> int:
    return sum(one.stat().st_size for one in folder.rglob("*"))


TRACES = sorted(filter(Path.is_dir, unpacked().iterdir()), key=size)
COMMAND = re.compile(r"(?:more: |^ {4})(tc-report .+)$", re.MULTILINE)
PLACES = ["plain", "two words", "it's ünï 1"]


@pytest.fixture
def trace(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A trace with several findings, in a folder whose name a shell takes apart."""
    place = tmp_path / request.param
    place.symlink_to(next(one for one in TRACES if several(one)))
    return place


@cache
def several(trace: Path) -> bool:
    code, out, _ = said("summary", str(trace))
    return code == 0 and out.count(" ×") > 1


def said(*arguments: str) -> tuple[int, str, str]:
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    texts = [(stream.flush(), stream.buffer.getvalue())[1].decode() for stream in (out, err)]
    return code, texts[0], texts[1]


@pytest.mark.sample(2)
@pytest.mark.parametrize("trace", PLACES, indirect=True)
@pytest.mark.parametrize(
    "ask",
    [
        ["summary"],
        ["summary", "--format", "brief"],
        ["summary", "--redact=names"],
        ["summary", "--redact=source,paths,names"],
        ["show", "TC"],
        ["show", "TC", "--redact=source,paths,names"],
    ],
    ids=" ".join,
)
def test_printed_commands_run(trace: Path, ask: list[str]) -> None:
    code, out, _ = said(*ask, str(trace))
    assert code == 0
    found = [shlex.split(one) for one in COMMAND.findall(out)]
    found = [words for words in found if "COMMAND" not in words and "tc_after" not in words]
    assert found or "brief" in ask
    for tool, *words in found:
        assert tool == "tc-report"
        code, shown, err = said(*words)
        assert code == 0 and shown, (words, err)
        if words[0] == "show":
            assert shown.startswith(words[1])


def test_one_name_of_several_findings_names_the_others() -> None:
    trace = next(one for one in TRACES if several(one))
    whole = re.findall(r"^ *\d+  (TC\S+) ×", said("summary", str(trace))[1], re.MULTILINE)
    out = said("show", "TC", str(trace))[1]
    assert all(name in out for name in whole)
    assert "is the start of" not in said("show", whole[0], str(trace))[1]


@pytest.mark.parametrize(
    "arguments",
    [
        ["TRACE", "--redact="],
        ["TRACE", "--redact", ""],
        ["summary", ""],
        ["summary", "TRACE", "--format="],
        ["summary", "TRACE", "--jobs="],
        ["show", ""],
        ["show", "TC", "TRACE", "--redact="],
        ["show", "TC", ""],
        ["check", "TRACE", "--baseline="],
        ["check", "TRACE", "--absent", ""],
        ["diff", "TRACE", ""],
        ["diff", "TRACE", "TRACE", "--html="],
        ["run", "-o", "", "--", "true"],
        ["run", "--trace=", "--", "true"],
        ["run", "--", ""],
        ["explain", ""],
    ],
    ids=" ".join,
)
def test_an_empty_argument_is_refused(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = said(*(str(TRACES[0]) if one == "TRACE" else one for one in arguments))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and ("is empty" in err or "name the program" in err), err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments, option",
    [
        (["TRACE", "-o", "FOLDER"], "-o"),
        (["check", "TRACE", "--write-baseline", "FOLDER"], "--write-baseline"),
        (["diff", "TRACE", "TRACE", "--html", "FOLDER"], "--html"),
    ],
)
def test_advice_names_an_option_of_the_command(
    arguments: list[str], option: str, tmp_path: Path
) -> None:
    names = {"TRACE": str(TRACES[0]), "FOLDER": str(tmp_path)}
    code, _, err = said(*(names.get(one, one) for one in arguments))
    assert code == 2 and f"choose another place with {option} FILE" in err


def test_a_baseline_that_is_a_folder_is_not_to_be_written(tmp_path: Path) -> None:
    for path, advised in ((tmp_path, False), (tmp_path / "a b.json", True)):
        code, _, err = said("check", str(TRACES[0]), "--baseline", str(path))
        assert code == 2
        assert (f"--write-baseline {shlex.quote(str(path))} writes one" in err) == advised


def test_some_codes_are_not_said_to_be_all() -> None:
    assert "such as these" in said("explain", "TC999")[2]
    assert "such as these" not in said("explain", "XX1")[2]
