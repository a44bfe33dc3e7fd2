"""Every way through the application, key by key and click by click."""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from tc.trace.findings import Diagnosis
from tc.tui.feed import Feed

See = Callable[[], str]


def test_first_screen_says_what_is_wrong_why_and_what_to_do(drive: Any) -> None:
    async def script(pilot: Pilot[int], see: See) -> None:
        await pilot.press("j")
        shown = see()
        assert "self.step is a constant in the graph" in shown
        assert "model.py:6 in forward" in shown
        assert "why" in shown and "fix" in shown
        assert "next  tc-report show TC201-" in shown
        assert "6 │         self.step += 1" in shown  # from the file, with its neighbours
        assert "7 │         return helper" in shown

    drive(script)


def test_caret_under_the_part_that_breaks(drive: Any) -> None:
    async def script(pilot: Pilot[int], see: See) -> None:
        await pilot.press("j", "j")
        rows = see().split("\n")
        at = next(n for n, row in enumerate(rows) if "y.sum().item()" in row and "12 │" in row)
        assert rows[at].index("y.sum().item()") == rows[at + 1].index("^" * len("y.sum().item()"))

    drive(script)


def test_from_a_finding_to_the_compile_and_back(drive: Any) -> None:
    async def script(pilot: Pilot[int], see: See) -> None:
        await pilot.press("j", "enter", "j", "enter")  # finding, its second occurrence, in
        assert "[0/2] forward" in see()
        assert "recompile_reasons" in see()
        await pilot.press("escape")
        assert "seen in" in see()
        await pilot.press("escape", "escape", "escape")
        assert pilot.app.is_running
        assert "q quits" in see()

    drive(script)


def test_ledger_marks_what_changed_and_leads_to_the_compile(drive: Any) -> None:
    async def script(pilot: Pilot[int], see: See) -> None:
        await pilot.press("2", "l")
        rows = see().split("\n")
        assert "self.step" in next(row for row in rows if "time  cache" in row)
        second = next(row for row in rows if "[0/1]" in row)
        assert "2 ◂" in second and "8 ◂" in second
        third = next(row for row in rows if "[0/2]" in row)
        assert "3 ◂" in third and "8 ◂" not in third and "hit" in third
        await pilot.press("j", "enter")
        assert "[0/1] forward" in see()

    drive(script)


def test_artifacts_are_shown_searched_and_compared_between_compiles(drive: Any) -> None:
    async def script(pilot: Pilot[int], see: See) -> None:
        await pilot.press("3", "j", "j", "j", "l")
        assert "inductor_output_code" in see() and "cpp_fused_sin_0" in see()
        await pilot.press("slash", *"tmp0", "enter")
        assert "/tmp0: 1 of 2" in see()
        await pilot.press("n")
        assert "/tmp0: 2 of 2" in see()
        await pilot.press("n", "N", "N")
        assert "/tmp0: 1 of 2" in see()
        await pilot.press("slash", *"nowhere", "enter")
        assert "nowhere is not in this text" in see()
        await pilot.press("right_square_bracket")
        assert "[0/1] inductor_output_code" in see()  # the same stage of the next compile
        await pilot.press("left_square_bracket", "left_square_bracket")
        assert "first compile" in see()

    drive(script)


def test_search_with_a_wrong_expression_says_so(drive: Any) -> None:
    async def script(pilot: Pilot[int], see: See) -> None:
        await pilot.press("3", "l", "slash", *"r/(/", "enter")
        assert "not a regular expression" in see()

    drive(script)


def test_filter_while_typing_and_out_again(drive: Any) -> None:
    async def script(pilot: Pilot[int], see: See) -> None:
        await pilot.press("slash", *"item")
        assert "TC101" in see() and "TC900" not in see()
        await pilot.press("enter")
        assert "TC900" not in see() and "/ item" in see()
        await pilot.press("escape")
        assert "TC900" in see()
        await pilot.press("slash", *"!TC", "enter")
        assert "nothing matches /!TC" in see()
        await pilot.press("slash", "escape")
        assert "TC900" in see()

    drive(script)


def test_where_the_time_went(drive: Any) -> None:
    async def script(pilot: Pilot[int], see: See) -> None:
        await pilot.press("4")
        shown = see()
        assert "by phase, 45.3 s in all" in shown and "build" in shown
        assert "compile_file" in shown
        await pilot.press("j", "j", "j")
        assert "forward" in see() and "model.py:5" in see()
        await pilot.press("l", "enter")
        assert "[0/0] forward" in see()

    drive(script)


def test_log_shows_every_record_and_filters(drive: Any, tools: Any) -> None:
    async def script(pilot: Pilot[int], see: See) -> None:
        await pilot.press("5")
        await tools.settle(pilot)
        assert "5 Log 51" in see()
        await pilot.press("G")
        assert "brand_new_event" in see() and '"hello": "world"' in see()
        await pilot.press("slash", *"recompile_r", "enter")
        assert see().count("recompile_reasons") >= 2 and "chromium" not in see()
        assert "self.step == 1" in see()

    drive(script, size=(160, 40))


def test_palette_goes_to_a_function_and_to_a_compile(drive: Any, tools: Any) -> None:
    async def script(pilot: Pilot[int], see: See) -> None:
        await pilot.press("colon")
        await pilot.press(*"c 0/2")
        await tools.until(pilot, lambda: "c 0/2 forward" in see())
        await pilot.press("enter")
        await tools.until(pilot, lambda: "[0/2] forward" in see())

    drive(script)


def test_goto_from_the_command_line(drive: Any) -> None:
    async def to_compile(pilot: Pilot[int], see: See) -> None:
        assert "[0/1] forward" in see()

    async def to_function(pilot: Pilot[int], see: See) -> None:
        assert "model.py:10" in see() and "▸↯ helper" in see().replace("▸ ", "▸")

    async def to_finding(pilot: Pilot[int], see: See) -> None:
        assert "Tensor.item() needs a Python number" in see() and "TC101-" in see()

    async def to_nothing(pilot: Pilot[int], see: See) -> None:
        assert "no finding, compile or function 9/9" in see()

    drive(to_compile, goto="0/1")
    drive(to_function, goto="helper")
    drive(to_finding, goto="TC101")
    drive(to_nothing, goto="9/9")


def test_mouse_points_opens_and_changes_tabs(drive: Any) -> None:
    async def script(pilot: Pilot[int], see: See) -> None:
        await pilot.click(offset=(10, 5))
        assert "Tensor.item() needs a Python number" in see()
        at = see().split("\n")[1].index("Functions")
        await pilot.click(offset=(at, 1))
        await pilot.pause()
        assert "model.py:5" in see()
        hint = see().split("\n")[-1].index("keys")
        await pilot.click(offset=(hint, 39))
        await pilot.pause()
        assert "keys, signs, words" in see()
        await pilot.press("escape", "1")
        await pilot.pause()
        app: Any = pilot.app
        assert not app.view.deep
        hint = see().split("\n")[-1].index("open")
        await pilot.click(offset=(hint, 39))  # does what Enter does where the cursor is
        await pilot.pause()
        assert app.view.deep and app.focused is app.view.detail

    drive(script)


def test_one_pane_at_80_columns(drive: Any) -> None:
    async def script(pilot: Pilot[int], see: See) -> None:
        assert "why" not in see()
        await pilot.press("enter")
        assert "why" in see()
        await pilot.press("tab")
        assert "why" not in see() and "TC900" in see()
        await pilot.press("l", "h")
        assert "TC900" in see()

    drive(script, size=(80, 24))


def test_editor_at_the_line(drive: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []
    monkeypatch.setenv("EDITOR", "vim -R")

    def run(command: list[str], **_: object) -> None:
        ran.append(command)
        if command[-1].endswith(".py") and "tc-tui-" in command[-1]:
            assert "cpp_fused" in Path(command[-1]).read_text()

    monkeypatch.setattr(subprocess, "run", run)

    async def script(pilot: Pilot[int], see: See) -> None:
        monkeypatch.setattr(pilot.app, "suspend", nullcontext)
        await pilot.press("o")
        assert "model.py" not in ran  # line 20 is in no file of 13 lines, yet the file is there
        await pilot.press("j", "o")
        assert ran[-1] == ["vim", "-R", "+6", "model.py"]
        await pilot.press("3", "j", "j", "j", "l", "slash", *"tmp0", "enter", "o")
        assert ran[-1][:3] == ["vim", "-R", "+10"]
        Path("model.py").unlink()
        await pilot.press("1", "o")
        assert "model.py is not on this machine" in see()

    drive(script)


def test_copy_of_what_the_cursor_is_on(drive: Any) -> None:
    async def script(pilot: Pilot[int], see: See) -> None:
        await pilot.press("j", "y")
        assert pilot.app.clipboard.startswith("TC201-") and "copied TC201-" in see()
        await pilot.press("Y")
        assert pilot.app.clipboard.startswith("tc-report show TC201-")
        assert pilot.app.clipboard.endswith(" tc_trace")
        await pilot.press("2", "y")
        assert "[0/1]" in pilot.app.clipboard and "◂" in pilot.app.clipboard
        await pilot.press("3", "j", "j", "j", "y")
        assert pilot.app.clipboard.startswith("import torch")
        await pilot.press("4", "y", "5")
        assert "compile_file" in pilot.app.clipboard

    drive(script)


def test_every_screen_has_a_command(drive: Any, tools: Any) -> None:
    async def script(pilot: Pilot[int], see: See) -> None:
        async def command(*keys: str) -> str:
            await pilot.press(*keys)
            await tools.settle(pilot)
            await pilot.press("Y")
            copied = pilot.app.clipboard
            assert f"copied: {copied}" in see()
            return copied

        assert (await command("j")).startswith("tc-report show TC201-")
        assert await command("2") == "tc-tui tc_trace --goto forward"
        assert await command("j", "j") == "tc-tui tc_trace --goto 'helper (resumed at 12)'"
        assert await command("3") == "tc-tui tc_trace --goto 0/0"
        assert await command("4") == "tc-report summary tc_trace"
        assert await command("j", "j", "j", "j") == "tc-tui tc_trace --goto helper"
        log = "tc_trace/dedicated_log_torch_trace_a.log"
        assert await command("5") == f"sed -n '1,2p' {log}"
        shown = subprocess.run(["sh", "-c", pilot.app.clipboard], capture_output=True, text=True)
        assert [row[:1] for row in shown.stdout.splitlines()] == ["V", "\t"]

    drive(script, size=(160, 40))


def test_nothing_to_act_on_has_a_command_as_well(drive: Any, trace: Path, tools: Any) -> None:
    log = tools.log()
    log.compile("0/0", "f", 1, 1.0)
    log.metrics("0/0", "f", 1)
    (trace / "dedicated_log_torch_trace_a.log").write_text(log.text)

    async def script(pilot: Pilot[int], see: See) -> None:
        await pilot.press("slash", *"zzz", "enter", "Y")
        assert pilot.app.clipboard == "tc-report summary tc_trace"

    drive(script)


@pytest.mark.sample(2)
@pytest.mark.parametrize("columns", [80, 100, 120, 200])
def test_every_finding_says_where(drive: Any, columns: int) -> None:
    async def script(pilot: Pilot[int], see: See) -> None:
        rows = [row for row in see().split("\n") if "TC201" in row or "TC101" in row]
        assert "model.py:6" in rows[0] and "model.py:12" in rows[1]

    drive(script, size=(columns, 30))


def test_no_colours_at_all(drive: Any, monkeypatch: pytest.MonkeyPatch, tools: Any) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def script(pilot: Pilot[int], see: See) -> None:
        for keys in ((), ("2", "l"), ("3", "l", "slash", "x", "enter"), ("4",), ("5",), ("slash",)):
            await pilot.press(*keys)
            await tools.settle(pilot)
            strips = pilot.app.screen._compositor.render_strips()
            styles = [piece.style for strip in strips for piece in strip if piece.style]
            painted = {str(style) for style in styles
                       for colour in (style.color, style.bgcolor)
                       if colour is not None and not colour.is_default}  # fmt: skip
            assert not painted
            assert any(style.reverse for style in styles)  # the tab one is on

    drive(script)


def test_theme_and_help(drive: Any) -> None:
    async def script(pilot: Pilot[int], see: See) -> None:
        assert pilot.app.current_theme.dark
        await pilot.press("T")
        assert not pilot.app.current_theme.dark
        await pilot.press("question_mark")
        assert "one level out; never quits" in see()
        await pilot.press("escape")
        assert "one level out" not in see()

    drive(script)


def test_the_left_pane_is_made_wider_and_stays_so(drive: Any) -> None:
    async def script(pilot: Pilot[int], see: See) -> None:
        view = pilot.app.view  # type: ignore[attr-defined]
        before = view.list.outer_size.width
        await pilot.press("greater_than_sign", "greater_than_sign")
        await pilot.pause()
        wider = view.list.outer_size.width
        assert wider == before + 12  # of 120
        await pilot.press("3", "1")
        assert view.list.outer_size.width == wider
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert view.list.outer_size.width == 80 and not view.detail.display
        await pilot.press("less_than_sign")
        assert "one pane at a time" in see()
        await pilot.resize_terminal(120, 40)
        await pilot.pause()
        assert view.list.outer_size.width == wider
        await pilot.press(*["less_than_sign"] * 30)
        await pilot.pause()
        assert view.list.outer_size.width == 18  # 15 % is left of it

    drive(script)


def test_q_asks_where_a_job_is_followed(drive: Any) -> None:
    async def script(pilot: Pilot[int], see: See) -> None:
        await pilot.press("q")
        assert pilot.app.is_running and "q again to quit" in see()
        await pilot.press("q")
        await pilot.pause()
        assert not pilot.app.is_running

    drive(script, follow=True)


def test_nobody_waits_for_a_long_trace_to_leave(
    trace: Path, tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = threading.Event()

    def read(self: Feed) -> Diagnosis:
        reading.set()
        threading.Event().wait(60)
        raise AssertionError

    monkeypatch.setattr(Feed, "read", read)

    async def main() -> None:
        app = tools.make_app()
        async with app.run_test(size=(80, 24)) as pilot:
            await tools.until(pilot, reading.is_set)
            assert "reading 17.4 kB" in tools.screen_of(app)
            await pilot.press("j", "l", "2", "3", "5", "r", "y", "n", "q")

    started = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - started < 30


def test_an_internal_error_in_a_thread_is_not_lost(
    trace: Path, tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(self: Feed) -> Diagnosis:
        raise ZeroDivisionError("in tc")

    monkeypatch.setattr(Feed, "read", read)

    async def main() -> None:
        async with tools.make_app().run_test() as pilot:
            await tools.until(pilot, lambda: not pilot.app.is_running)

    with pytest.raises(ZeroDivisionError, match="in tc"):
        asyncio.run(main())


def test_q_quits(drive: Any) -> None:
    async def script(pilot: Pilot[int], see: See) -> None:
        await pilot.press("q")
        await pilot.pause()
        assert not pilot.app.is_running

    drive(script)


def test_ranks_one_by_one(drive: Any, trace: Path, tools: Any) -> None:
    for rank in (0, 1):
        name = f"dedicated_log_torch_trace_rank_{rank}_a.log"
        (trace / name).write_text(tools.small_log(rank))
    (trace / "dedicated_log_torch_trace_a.log").unlink()

    async def script(pilot: Pilot[int], see: See) -> None:
        assert "all 2 ranks" in see()
        await pilot.press("2", "l")
        assert "[1:0/2]" in see()
        await pilot.press("r", "r")
        assert "rank 1 of 2" in see()
        await pilot.press("r")
        assert "all 2 ranks" in see()

    drive(script)


def test_garbage_leaves_with_a_sentence(drive: Any, trace: Path, tools: Any) -> None:
    (trace / "dedicated_log_torch_trace_a.log").write_text("what is this\n" * 50)

    async def script(pilot: Pilot[int], see: See) -> None:
        app: Any = pilot.app
        await tools.until(pilot, lambda: not app.is_running)
        assert app.return_code == 3
        assert "has no trace record" in app.last_words

    drive(script)


def test_a_log_that_was_cut_is_shown_with_a_warning(drive: Any, trace: Path) -> None:
    log = trace / "dedicated_log_torch_trace_a.log"
    log.write_text(log.read_text()[:-40])

    async def script(pilot: Pilot[int], see: See) -> None:
        assert "the trace: the trace was cut off" in see().replace("…", "") or "TC901" in see()

    drive(script)


def test_hostile_text_does_not_steer_the_terminal(drive: Any, trace: Path, tools: Any) -> None:
    log = tools.log()
    log.record("str", ["model.py", 1])
    log.compile("0/0", "evil\x1b[31m\u202ename", 5, 1.0)
    log.metrics("0/0", "evil\x1b[31m\u202ename", 5)
    log.artifact("dynamo_cpp_guards_str", "\x1b]0;title\x07" + "y" * 200_000, "0/0")
    (trace / "dedicated_log_torch_trace_a.log").write_text(log.text)

    async def script(pilot: Pilot[int], see: See) -> None:
        for key in ("2", "l", "3", "G", "l", "4", "5"):
            await pilot.press(key)
            assert "\x1b" not in see() and "\u202e" not in see() and "\x07" not in see()

    drive(script)


@pytest.mark.parametrize("size", [(80, 1), (80, 3), (1, 24)])
def test_the_palette_in_a_terminal_without_room_for_it(drive: Any, size: tuple[int, int]) -> None:
    async def script(pilot: Pilot[int], see: See) -> None:
        await pilot.press("colon", "f", "i")
        await pilot.pause(0.3)
        await pilot.press("pagedown", "pageup", "down", "end", "escape", "escape", "2")
        assert pilot.app.is_running

    drive(script, size=size)
