"""Tests of C files that several runs of the compiler share."""

from __future__ import annotations

import re
import subprocess

import pytest

from tc.compiler.core import parts


def function(number: int) -> str:
    return f"int f{number}(void) {{ return shared({number}); }}"


PRELUDE = "static inline int shared(int x) { return x + 1; }"


def defined(source: str, *arguments: str) -> list[int]:
    """Return the functions that are left of a file after the preprocessor."""
    command = ["gcc", "-E", "-P", "-x", "c", *arguments, "-"]
    text = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
    assert "shared(int x)" in text
    return [int(number) for number in re.findall(r"int f(\d+)", text)]


def test_a_short_file_is_one_part():
    source = parts.grouped(PRELUDE, map(function, range(3)))
    assert source == "\n".join([PRELUDE, *map(function, range(3))])
    assert parts.groups_of(source) == 1 and defined(source) == [0, 1, 2]


@pytest.mark.parametrize("count", (2, 3, 5))
def test_each_function_is_in_one_part(monkeypatch, count):
    monkeypatch.setattr(parts, "GROUP", 100)
    source = parts.grouped(PRELUDE, map(function, range(20)))
    assert parts.groups_of(source) > 5
    found = [defined(source, *parts.definitions(part, count)) for part in range(count)]
    assert all(found) and sorted(n for part in found for n in part) == list(range(20))
    assert defined(source) == list(range(20))
