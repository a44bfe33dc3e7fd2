"""An event is one row: every reader knows one that a test adds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import make_events
import pytest
from event_samples import example
from tc_log import Compiler

from tc import trace
from tc.tlparse.report import render
from tc.trace import EVENTS, run_events
from tc.trace.events import Fact
from tc.trace.kinds import KINDS, STAGES, Kind, add_kind, kind_of, label

NAME = "tc_planted"


@pytest.fixture(autouse=True)
def _scratch() -> Iterator[None]:
    """Give the registries back as they were."""
    registries: tuple[dict[str, Any], ...] = (EVENTS, KINDS)
    before = [dict(one) for one in registries]
    yield
    for one, rows in zip(registries, before, strict=True):
        one.clear()
        one.update(rows)


def add(*, kept: bool = False, loose: bool = False) -> type[Fact]:
    """The one place: a class with its row."""

    @dataclass(frozen=True)
    class Planted(Fact, wire=Kind(NAME, "what a test planted", "cache", kept=kept, loose=loose)):
        """What a test reports."""

        where: str
        often: int

    return Planted


def test_a_new_event_is_known_to_every_reader(tmp_path: Path) -> None:
    event = example(add(kept=True))
    assert label(NAME) == ("what a test planted", "cache")
    found = Compiler(tmp_path).start().say(event).end()
    (compiled,) = found.session.compiles
    assert [note.data for note in compiled.noted(NAME)] == [{"where": "text", "often": 7}]
    page = b"".join(render(found)).decode()
    assert f'"{NAME}"' in page and '"what a test planted"' in page
    table = make_events.with_table(make_events.PAGE.read_text("utf-8"))
    assert f"| `{NAME}` | cache | what a test planted |\n" in table


def test_a_new_event_survives_with_the_graph_that_is_kept_on_disk() -> None:
    event = example(add())
    (again,) = trace.unpacked(trace.packed([event]))
    assert again.original == event


def test_a_new_event_is_a_public_name_of_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = add()
    kind.__module__ = run_events.__name__
    monkeypatch.setattr(run_events, "Planted", kind, raising=False)
    found = trace.Planted  # type: ignore[attr-defined]
    monkeypatch.delattr(trace, "Planted")  # it is remembered there
    assert found is kind
    with pytest.raises(AttributeError, match="no attribute 'Mapping'"):
        trace.Mapping  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("loose", [False, True])
def test_whether_an_event_may_stand_outside_of_a_compile_is_part_of_its_row(
    loose: bool, tmp_path: Path
) -> None:
    event = example(add(loose=loose))
    log = Compiler(tmp_path).start()
    log.writer.write(trace.Stamped(event, None, 10**18, __file__, 1))
    assert [one.code for one in log.end().findings] == ([] if loose else ["TC908"])


def test_a_name_has_one_row_and_a_stage_that_there_is() -> None:
    add()
    with pytest.raises(ValueError, match="'tc_planted' has a row already"):
        add()
    with pytest.raises(ValueError, match="of no stage 'nowhere'"):
        add_kind(Kind("tc_other", stage="nowhere"))


def test_each_name_that_tc_records_has_a_label() -> None:
    assert not [one for one in KINDS.values() if one.name.startswith("tc_") and not one.label]
    assert {one.stage for one in KINDS.values()} <= set(STAGES)
    assert not {name for name in EVENTS if name not in KINDS}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("f_MODIFIED_BYTECODE", ("bytecode, modified", "capture")),
        ("fx_graph_cache_hit", ("cache hit", "cache")),
        ("aot_joint_graph", ("ATen graph: joint", "graph passes")),
        ("never_heard_of", ("never heard of", "other")),
    ],
)
def test_names_of_a_family_share_a_label(name: str, words: tuple[str, str]) -> None:
    assert label(name) == words


def test_what_nobody_knows_is_not_kept() -> None:
    unknown = kind_of("never_heard_of")
    assert not (unknown.kept or unknown.record or unknown.loose)


def test_every_text_that_the_compiler_records_has_a_row() -> None:
    root = Path(__file__).resolve().parents[2]
    sources = [path.read_text("utf-8") for path in (root / "compiler").rglob("*.py")]
    named = {name for text in sources for name in re.findall(r'Artifact\(\s*"(\w+)"', text)}
    assert len(named) > 2
    assert named <= KINDS.keys()


def test_the_table_of_names_is_made_of_the_rows() -> None:
    page = make_events.PAGE.read_text("utf-8")
    assert page == make_events.with_table(page), "run python tests/make_events.py"
