"""Keys of the user's: what a file may say, what is refused, and that the keys then work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import python
from textual.pilot import Pilot

from tc.tui.keymap import WrongKeys, default_file, read_table, remapped
from tc.tui.keys import KEYS, Table

See = Callable[[], str]


def test_keys_of_the_user_work_and_are_shown(drive: Any) -> None:
    table = remapped({"quit": ["X", "ctrl+x"], "help": "f5", "down": "e", "tab_2": "@"}, "k.toml")

    async def script(pilot: Pilot[int], see: See) -> None:
        rows = pilot.app.view.list  # type: ignore[attr-defined]
        before = rows.cursor
        await pilot.press("j")
        assert rows.cursor == before  # no longer bound
        await pilot.press("e")
        assert rows.cursor == before + 1
        assert "F5 keys" in see() and "X ^x quit" in see() and "@ Functions" in see()
        await pilot.press("at")
        assert pilot.app.view.id == "functions"  # type: ignore[attr-defined]
        await pilot.press("f5")
        assert "@       functions" in see() and "Esc closes" in see()
        await pilot.press("G")
        assert "X ^x" in see()
        await pilot.press("f5")
        assert "Esc closes" not in see()
        await pilot.press("escape")
        assert "X quits" in see()
        await pilot.press("q")
        assert pilot.app.is_running
        await pilot.press("X")
        assert pilot.app.return_code == 0

    drive(script, keys=table)


def test_the_prompt_is_left_with_escape_even_where_another_key_goes_out(drive: Any) -> None:
    async def script(pilot: Pilot[int], see: See) -> None:
        await pilot.press("slash", "z", "escape")
        assert not pilot.app.query_one("#prompt").has_class("-open")

    drive(script, keys=remapped({"out": "z"}, "k.toml"))


def test_two_actions_may_change_keys() -> None:
    table = remapped({"top": "n", "next_hit": ["g", "home"]}, "k.toml")
    assert (table.of("top"), table.of("next_hit")) == ("n", "g Home")


WRONG = [
    ("[keys\n", "is not TOML"),
    ("\udcff", "is not text in UTF-8"),
    ("quit = 'x'\n", "below a line [keys]"),
    ("keys = 3\n", "below a line [keys]"),
    ("[keys]\nqiut = 'x'\n", "there is no action qiut (did you mean quit)"),
    ("[keys]\nquit = 'j'\n", "j would be both down and quit"),
    ("[keys]\nquit = 'x'\ntop = ['x']\n", "x would be both top and quit"),
    ("[keys]\nquit = ''\n", "there is no key ''"),
    ("[keys]\nquit = 'ctl+x'\n", "there is no key 'ctl+x'"),
    ("[keys]\nquit = 'x,y'\n", "there is no key 'x,y'"),
    ("[keys]\nquit = []\n", "is to be a key"),
    ("[keys]\nquit = 7\n", "is to be a key"),
    ("[keys]\ntheme = 'ctrl+q'\n", "ctrl+q always quits"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_what_cannot_be_is_refused_in_a_sentence(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "tui.toml"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(WrongKeys) as refused:
        read_table(str(file), {})
    assert words in str(refused.value) and str(file) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_no_file_is_needed_but_one_that_is_named_must_be_there(tmp_path: Path) -> None:
    assert read_table("", {"XDG_CONFIG_HOME": str(tmp_path)}) == Table(KEYS)
    with pytest.raises(WrongKeys, match="No such file"):
        read_table(str(tmp_path / "none.toml"), {})
    with pytest.raises(WrongKeys, match="Is a directory"):
        read_table(str(tmp_path), {})
    assert default_file({"XDG_CONFIG_HOME": "relative"}).is_absolute()  # as XDG has it


def test_wrong_keys_are_wrong_usage(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "settings" / "tc").mkdir(parents=True)  # a folder tc would hide the package
    (tmp_path / "settings" / "tc" / "tui.toml").write_text("[keys]\nquit = 'j'\n")
    done = python(
        "-m",
        "tc.tui",
        "tc_trace",
        cwd=tmp_path,
        variables={"XDG_CONFIG_HOME": str(tmp_path / "settings")},
    )
    assert done.returncode == 2 and done.stdout == ""
    assert "j would be both down and quit" in done.stderr and done.stderr.count("\n") == 1
