"""Commands for users are quoted as a whole."""

from __future__ import annotations

import shlex

import pytest

from tc.trace.commands import command

WORDS = ["plain", "two words", "ünï çode", "it's", 'a "b"', "$HOME", "a;b", "*", "", "-x", "a\nb"]


@pytest.mark.parametrize("word", WORDS)
def test_each_word_stays_one(word: str) -> None:
    made = command("tc-report", "show", word).plus(word, "end")
    assert shlex.split(str(made)) == ["tc-report", "show", word, word, "end"]
