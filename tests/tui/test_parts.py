"""The parts that know no terminal: lines, filters, highlighting, excerpts, feeds, facts, keys."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.color import Color

from tc.tlparse.report import render
from tc.trace.compiles import Artifact, Calls
from tc.trace.findings import Where, diagnose
from tc.trace.findings.ledger import ledger
from tc.trace.reader import Span
from tc.trace.session import load
from tc.tui import look
from tc.tui.columns import Cells, Columns
from tc.tui.facts import Model, bar, size_of, steps_of
from tc.tui.feed import HEAD, Feed
from tc.tui.filters import matcher, search
from tc.tui.highlight import Highlighter, regions
from tc.tui.keys import KEYS, Table
from tc.tui.lines import Line, clean, cut, left, line, right, tail, wrap
from tc.tui.source import editor, excerpt
from tc.tui.views.compile import OneCompile, laid_out
from tc.tui.views.functions import calls_words
from tc.tui.views.log import Entries, Entry
from tc.tui.widgets.bars import fitted
from tc.tui.widgets.body import Numbered, overlay
from tc.tui.widgets.help import help_lines

WORDS = st.text(st.characters(exclude_categories=("Cs",)), max_size=60)


# ------------------------------------------------------------------------------ lines


@given(WORDS, st.integers(1, 40))
def test_cut_and_padded_text_has_the_width(text: str, width: int) -> None:
    assert cell_len(cut(text, width)) <= width
    assert cell_len(left(text, width)) == width == cell_len(right(text, width))
    assert len(tail(text, width)) <= width


@given(WORDS, st.integers(12, 60))
def test_wrapped_lines_fit_and_lose_no_word(text: str, width: int) -> None:
    rows = wrap(text, width, head=line("why "))
    assert all(row.width <= max(width, 12) for row in rows)
    kept = "".join(str(row) for row in rows).replace(" ", "")[3:]
    parts = text.replace("\r\n", "\n").split("\n")
    assert kept == "".join("".join(clean(part).split()) for part in parts)


def test_control_characters_are_shown_not_obeyed() -> None:
    assert clean("a\x1b[31m\tb\u202ec") == "a␛[31m  b\ufffdc"


CELLS = st.builds(
    Cells, WORDS, WORDS, st.integers(1, 10**6).map("×{}".format),
    st.sampled_from(("", "0.1 ms", "10.00 s", "59m59s", "2777h46m")),
)  # fmt: skip


def touching(row: Line) -> list[tuple[str, str]]:
    """Neighbours without a space between them."""
    texts = [text for text, _ in row.pieces]
    return [(a, b) for a, b in pairwise(texts) if not a.endswith(" ") and not b.startswith(" ")]


@given(st.lists(CELLS, min_size=1, max_size=5), st.integers(60, 200))
def test_columns_line_up_and_never_touch(cells: list[Cells], width: int) -> None:
    columns = Columns.of(cells)
    rows = [columns.draw(line("  x "), one, width) for one in cells]
    assert all(row.width == width and not touching(row) for row in rows)
    for row, one in zip(rows, cells, strict=True):
        assert " ".join(str(row).split()).endswith(f"{one.times} {one.spent}".rstrip())


@pytest.mark.parametrize("width", [40, 55, 80])
def test_rows_of_extreme_values_do_not_run_together(width: int) -> None:
    where = Span(0, 0, 12_345_000_000)
    record = Entry(0, 1, "1120 09:15:00.250000", "x", "e" * 99, "n" * 99, "12345/6789", None, {},
                   where)  # fmt: skip
    entries = Entries(True)
    entries.add([record], lambda words: True)
    assert not touching(entries.line(0, width))
    artifact = Artifact(1234, "n" * 99, "text", 9, "a.log:1", span=where)
    assert not touching(OneCompile(id="compile")._row(artifact, True, width))


# ------------------------------------------------------------------------------ filters


@pytest.mark.parametrize(
    ("query", "text", "found"),
    [
        ("", "anything", True), ("step", "self.Step", True), ("Step", "self.step", False),
        ("!step", "self.step", False), ("!step", "x", True), ("~slfp", "self.step", True),
        ("~pfls", "self.step", False), ("r/^TC2\\d\\d/", "TC201 x", True), ("a.b", "aXb", False),
    ],
)  # fmt: skip
def test_filter(query: str, text: str, found: bool) -> None:
    assert matcher(query)(text) is found


def test_a_wrong_expression_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="not a regular expression"):
        matcher("r/[/")
    with pytest.raises(ValueError, match="not a regular expression"):
        search("r/*/")
    assert search("") is None


# ------------------------------------------------------------------------------ highlighting


def test_kernels_inside_of_strings_are_read_in_their_own_language(tools: Any) -> None:
    rows = tools.kernel.split("\n")
    start = rows.index('extern "C" void kernel(const float* in_ptr0, float* out_ptr0)')
    found = [(one.start, one.lexer) for one in regions(rows, "python")]
    end = rows.index("''')")
    assert found == [(0, "python"), (start, "cpp"), (end, "string"), (end + 1, "python")]
    paint = Highlighter(rows, "python")
    assert ("float", "keyword") in paint.line(start).pieces
    assert ("def", "keyword") in paint.line(rows.index("def call(args):")).pieces


def test_a_string_on_one_line_and_a_comment_open_no_region() -> None:
    assert len(regions(["x = '''one'''", "# it's '''", "y = 2"], "python")) == 1


@settings(deadline=None)
@given(st.lists(st.text(max_size=30).map(lambda t: t.replace("\n", "")), max_size=250),
       st.sampled_from(["python", "cpp", "json", "text", "klingon"]))  # fmt: skip
def test_highlighting_changes_no_text(rows: list[str], kind: str) -> None:
    paint = Highlighter(rows, kind)
    for index, row in enumerate(rows):
        assert str(paint.line(index)) == clean(row)


def test_only_what_is_seen_is_lexed(monkeypatch: pytest.MonkeyPatch) -> None:
    paint = Highlighter(["x = 1"] * 1_000_000, "python")
    lexed: list[int] = []
    whole = paint._lex
    monkeypatch.setattr(paint, "_lex", lambda a, b: lexed.append(b - a) or whole(a, b))
    paint.line(500_000)
    paint.line(500_001)
    assert lexed == [100]


@given(st.lists(st.tuples(st.text("ab", min_size=1, max_size=5), st.sampled_from("xy"))),
       st.lists(st.integers(0, 20), max_size=6, unique=True))  # fmt: skip
def test_overlay_keeps_the_text(pieces: list[tuple[str, str]], cuts: list[int]) -> None:
    row = line(*pieces)
    cuts = sorted(c for c in cuts if c <= len(str(row)))
    spans = [(a, b, "hit") for a, b in zip(cuts[::2], cuts[1::2], strict=False)]
    over = overlay(row, spans)
    assert str(over) == str(row)
    marked = "".join(text for text, role in over.pieces if role.endswith("hit"))
    assert marked == "".join(str(row)[a:b] for a, b, _ in spans)


def test_search_finds_every_place() -> None:
    text = Numbered("aa b\nno\nb aa aa", "text")
    text.find(search("aa"))
    assert text.hits == [(0, 0, 2), (2, 2, 4), (2, 5, 7)]


def test_json_is_laid_out_and_other_text_left_alone() -> None:
    assert laid_out('{"a": [1, 2]}', "text")[0].count("\n") > 3
    assert laid_out("{ not json", "text") == ("{ not json", "text")
    assert laid_out("class A: ...", "python") == ("class A: ...", "python")


# ------------------------------------------------------------------------------ source


def test_excerpt_of_a_file_that_changed_says_so(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text("a = 1\nb = 2\n")
    same = excerpt(Where(str(file), 2, source="b = 2"))
    assert [str(row) for row in same] == ["     1 │ a = 1", "▸    2 │ b = 2"]
    other = excerpt(Where(str(file), 2, 0, 1, source="c = 3"))
    assert "c = 3" in str(other[0]) and "changed since" in str(other[-1])
    assert excerpt(Where("nowhere.py", 3)) == []


@pytest.mark.parametrize(
    ("named", "command"),
    [
        ("vim", ["vim", "+7", "m.py"]), ("code -w", ["code", "-w", "--goto", "m.py:7"]),
        ("hx", ["hx", "m.py:7"]), ("", ["vi", "+7", "m.py"]),
    ],
)  # fmt: skip
def test_editor_command(named: str, command: list[str]) -> None:
    assert editor("m.py", 7, {"EDITOR": named}) == command


# ------------------------------------------------------------------------------ facts


def test_functions_statuses_and_ledger(trace: Path) -> None:
    model = Model(diagnose(load(trace)))
    named = {one.title: one for one in model.functions}
    assert {name: one.status for name, one in named.items()} == {
        "forward": "recompile", "helper": "break", "helper (resumed at 12)": "ok", "loss": "error",
    }  # fmt: skip
    assert model.functions[0].title == "forward"  # cost most
    assert model.diagnosis is not None
    for compiled in model.compiles:  # the same words as the report's
        assert model.statuses[id(compiled)] == model.diagnosis.status(compiled)
    table = ledger(model.diagnosis.session, model.diagnosis.recompiles, named["forward"].compiles)
    page = b"".join(render(model.diagnosis)).decode()
    index = re.search(r'<script type="application/json" id="index">(.*?)</script>', page, re.S)
    assert index is not None
    reported = [one["ledger"] for one in json.loads(index[1])["functions"]]
    assert [one for one in reported if one] == [table.to_json()]  # the report shows the same one
    assert table.columns == ("self.step", "x.shape[0]")
    assert [entry.changed for entry in table.entries] == [
        (False, False), (True, True), (True, False),
    ]  # fmt: skip
    assert [entry.cells[0] for entry in table.entries] == ["1", "2", "3"]


def test_steps_add_up_to_the_time_of_the_compile(trace: Path) -> None:
    model = Model(diagnose(load(trace)))
    assert sum(s for _, s in steps_of(model.compiles)) == pytest.approx(model.seconds)
    assert model.seconds == pytest.approx(45.3)


@given(st.dictionaries(st.text(), st.floats(0, 100), max_size=8), st.integers(0, 90))
def test_a_bar_is_as_long_as_its_share(shares: dict[str, float], width: int) -> None:
    whole = sum(shares.values())
    cells = bar(shares, width, whole)
    assert sum(n for _, n in cells) == (width if whole > 0 else 0)
    assert all(n > 0 for _, n in cells)


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 B"), (999, "999 B"), (2345, "2.3 kB"), (104_000_000, "104 MB")]
)
def test_size(count: int, words: str) -> None:
    assert size_of(count) == words


# ------------------------------------------------------------------------------ feed


def test_a_glimpse_of_a_long_trace_is_its_beginning(trace: Path, tools: Any) -> None:
    feed = Feed("tc_trace")
    assert feed.glimpse() is None  # short: read at once
    log = trace / "dedicated_log_torch_trace_a.log"
    filler = tools.log()
    filler.artifact("big", "x" * (2 * HEAD), "9/0")
    log.write_text(log.read_text() + filler.text)
    seen = feed.glimpse()
    assert seen is not None
    assert len(seen.session.compiles) == 6
    assert not seen.session.defects.counts  # it was cut where a record ends


def test_a_feed_knows_when_it_grew(trace: Path) -> None:
    feed = Feed("tc_trace")
    feed.read()
    assert not feed.changed()
    (trace / "dedicated_log_torch_trace_b.log").write_text("")
    assert feed.changed()


def test_a_feed_reads_again_only_what_is_new(trace: Path, tools: Any) -> None:
    feed = Feed("tc_trace")
    before = len(feed.read().session.compiles)
    log = trace / "dedicated_log_torch_trace_a.log"
    more = tools.log()
    more.compile("77/0", "another", 5, 0.5)
    with log.open("a") as file:
        file.write(more.text)
    assert len(feed.read().session.compiles) == before + 1
    assert feed.growing.bytes_read < len(more.text) + 2_000 < log.stat().st_size


# ------------------------------------------------------------------------------ keys and looks


def test_every_key_has_one_meaning_in_each_place_and_is_in_the_help() -> None:
    for place in ("app", "rows"):
        keys = [key for one in KEYS if one.place in ("app", place) for key in one.keys.split(",")]
        assert len(keys) == len(set(keys))
    assert len({one.id for one in KEYS}) == len(KEYS)
    reported = "\n".join(map(str, help_lines(Table())))
    assert all(one.words in reported for one in KEYS)


def test_hints_fit() -> None:
    hints = [("Enter", "open"), ("/", "filter"), ("?", "keys"), ("q", "quit")]
    assert fitted(hints, 200) == hints
    assert fitted(hints, 10) == hints[-2:]


def _luminance(color: Color) -> float:
    parts = [part / 255 for part in color.get_truecolor()]
    parts = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


@pytest.mark.parametrize("theme", [look.DARK, look.LIGHT], ids=["dark", "light"])
def test_contrast(theme: Any) -> None:
    """Text: 4.5 to 1, on the plain ground, on bars and under the cursor; bars of phases: 3 to 1."""
    grounds = {
        "background": Color.parse(theme.background), "panel": Color.parse(theme.panel),
        "cursor": look.style("cursor", theme.dark).bgcolor,
        "cursor_away": look.style("cursor_away", theme.dark).bgcolor,
    }  # fmt: skip
    weak = []
    for role in look.roles():
        style = look.style(role, theme.dark)
        if style.color is None:
            continue
        own = {"own": style.bgcolor} if style.bgcolor else grounds
        for name, ground in own.items():
            assert ground is not None
            high, low = sorted((_luminance(style.color), _luminance(ground)), reverse=True)
            ratio = (high + 0.05) / (low + 0.05)
            if ratio < (3 if role.startswith("phase") else 4.5):
                weak.append(f"{role} on {name}: {ratio:.1f}")
    assert not weak


def test_calls_in_words() -> None:
    assert calls_words(Calls(1, 0, 1, 0.002)) == "1 call · 2000 µs a call"
    assert calls_words(Calls(40, 7, 0, 0.0)) == "40 calls · 7 op by op"
