"""Damaged logs by the thousand: always a report, every damage counted once and shown in it."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from event_samples import SAMPLES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from real_traces import unpacked

import tc.trace as trace
from tc.tlparse.__main__ import main
from tc.trace import CompileId
from tc.trace.writer import TraceWriter

Log = list[bytes]  # its records: a header line, and the payload lines behind it
Damage = Callable[[Log, int, random.Random], dict[str, int]]
NAME = "dedicated_log_torch_trace_a.log"
REAL = ("graph_break", "recompile", "dynamic", "train", "transformer", "backend_crash")
LARGEST, MOST_SPANS = 3000, 4


@cache
def miniatures() -> tuple[Log, ...]:
    """Small logs with real records of each kind; the last one is of tc's own events."""
    made = []
    for name in REAL:
        text = next((unpacked() / f"{name}").glob("*.log")).read_bytes()
        kept: Log = []
        seen: Counter[bytes] = Counter()
        for one in re.split(rb"(?m)^(?=V\d{4} )", text)[1:]:
            kind = re.findall(rb'\] \{"(\w+)": (?:\{"name": "(\w+))?', one)[0]
            seen[b"".join(kind)] += 1
            if kind[0] == b"str" or (len(one) < LARGEST and seen[b"".join(kind)] <= MOST_SPANS):
                kept.append(one)
        made.append(kept)
    return tuple(made)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Log, ...]:
    writer = TraceWriter(str(tmp_path_factory.mktemp("tc")))
    trace.add_sink(writer)
    try:
        for number, event in enumerate(SAMPLES):
            with trace.compiling(CompileId(number // 12, 0)):
                trace.emit(event)
    finally:
        trace.remove_sink(writer)
        writer.close()
    assert writer.path is not None
    got = re.split(rb"(?m)^(?=V\d{4} )", Path(writer.path).read_bytes())[1:]
    return (*miniatures(), got)


def payload_rows(record: bytes) -> int:
    return record.count(b"\n") - 1


def with_payload(log: Log, dice: random.Random) -> int | None:
    fitting = [n for n, one in enumerate(log[:-1]) if payload_rows(one) > 0 and one[:1] == b"V"]
    return dice.choice(fitting) if fitting else None


# Each damages one record of the log and says what a reader has to count for it.


def flip_a_letter(log: Log, at: int, dice: random.Random) -> dict[str, int]:
    head, _, body = log[at].partition(b"\n")
    letters = [n for n, byte in enumerate(body) if chr(byte).isalnum() and byte < 128]
    if not letters:
        return {}
    n = dice.choice(letters)
    log[at] = head + b"\n" + body[:n] + (b"~" if body[n] != 126 else b"!") + body[n + 1 :]
    return {"payload_md5": 1}


def lose_the_payload(log: Log, at: int, dice: random.Random) -> dict[str, int]:
    log[at] = log[at].partition(b"\n")[0] + b"\n"
    return {"payload_missing": 1}


def lose_the_digest(log: Log, at: int, dice: random.Random) -> dict[str, int]:
    rows = payload_rows(log[at])
    log[at] = re.sub(rb', "has_payload": "\w+"', b"", log[at], count=1)
    return {"orphan_payload": rows}


def break_the_json(log: Log, at: int, dice: random.Random) -> dict[str, int]:
    head, newline, body = log[at].partition(b"\n")
    log[at] = head[: -dice.randrange(1, 9)] + newline + body
    return {"bad_json": 1}


def break_the_header(log: Log, at: int, dice: random.Random) -> dict[str, int]:
    rows = payload_rows(log[at])
    log[at] = b"?" + log[at][2:]
    return {"no_header": 1, **({"orphan_payload": rows} if rows else {})}


def mix_in_output(log: Log, at: int, dice: random.Random) -> dict[str, int]:
    log[at] += b"some other output\n"
    return {"no_header": 1}


def no_utf8(log: Log, at: int, dice: random.Random) -> dict[str, int]:
    head, _, body = log[at].partition(b"\n")
    text = b"\xff" + body[1:-1].replace(b"\n\t", b"\n")
    digest = hashlib.md5(text).hexdigest().encode()
    head = re.sub(rb'"has_payload": "\w+"', b'"has_payload": "' + digest + b'"', head)
    log[at] = head + b"\n\t" + text.replace(b"\n", b"\n\t") + b"\n"
    return {"bad_utf8": 1}


def cut_the_end(log: Log, at: int, dice: random.Random) -> dict[str, int]:
    last = log[-1]
    start = last.index(b"] ") + 3
    log[-1] = last[: dice.randrange(start, len(last) - 3)]
    return {"truncated": 1}


DAMAGES: tuple[Damage, ...] = (
    flip_a_letter, lose_the_payload, lose_the_digest, break_the_json, break_the_header,
    mix_in_output, no_utf8, cut_the_end,
)  # fmt: skip


def report_of(folder: Path, content: bytes) -> dict[str, int] | None:
    """Write a log, make its report, and return the damage that the page shows."""
    log, target = folder / NAME, folder / "report.html"
    log.write_bytes(content)
    target.unlink(missing_ok=True)
    code = main([str(log), "-o", str(target)])
    assert sorted(one.name for one in folder.iterdir()) == sorted(
        [NAME, "report.html"] if code == 0 else [NAME]
    )
    if code:
        assert code == 3  # one sentence: nothing in it can be read
        return None
    text = target.read_text("utf-8")
    assert text.rstrip().endswith("</html>")
    found = re.search(r'<script type="application/json" id="index">(.*?)</script>', text, re.S)
    assert found
    return {kind: n for kind, n, _ in json.loads(found[1])["raw"]["defects"]}


def damaged(log: Log, dice: random.Random) -> tuple[bytes, Counter[str]]:
    made, expected = list(log), Counter[str]()
    ways = dice.sample(DAMAGES, dice.randrange(1, 5))
    for way in sorted(ways, key=DAMAGES.index):
        at = with_payload(made, dice) if way is not cut_the_end else 0
        if at is None or made[at] != log[at]:  # one damage a record
            continue
        expected.update(way(made, at, dice))
    return b"".join(made), expected


def noise(log: Log, dice: random.Random) -> bytes:
    content = bytearray(b"".join(log))
    for _ in range(dice.choice((1, 1, 2, 5, 30))):
        at = dice.randrange(len(content) or 1)
        what = dice.randrange(4)
        if what == 0:
            content[at : at + 1] = bytes((dice.randrange(256),))
        elif what == 1:
            del content[at : at + dice.choice((1, 3, 80, 3000))]
        elif what == 2:
            content[at:at] = dice.choice(
                (b"\n", b"\t", b"\0", b"\r\n", b'"', b"}", b"\xc3", b"NaN")
            )
        else:
            start = dice.randrange(len(content) or 1)
            content[at:at] = content[start : start + dice.choice((5, 200, 4000))]
    return bytes(content)


def check(folder: Path, logs: tuple[Log, ...], dice: random.Random) -> None:
    log = dice.choice(logs)
    content, expected = damaged(log, dice)
    found = report_of(folder, content)
    assert found is not None
    assert {kind: n for kind, n in found.items() if kind != "unknown_string"} == dict(expected)
    report_of(folder, noise(log, dice))


def test_whole_logs_have_no_damage(
    tmp_path: Path, logs: tuple[Log, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    for log in logs:
        assert report_of(tmp_path, b"".join(log)) == {}


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(dice=st.randoms(use_true_random=False))
def test_damage_is_counted_once_and_shown(
    tmp_path: Path, logs: tuple[Log, ...], capsys: pytest.CaptureFixture[str], dice: random.Random
) -> None:
    check(tmp_path, logs, dice)
    capsys.readouterr()


@pytest.mark.slow
@settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(dice=st.randoms(use_true_random=False))
def test_twenty_thousand_damaged_files(
    tmp_path: Path, logs: tuple[Log, ...], capsys: pytest.CaptureFixture[str], dice: random.Random
) -> None:
    check(tmp_path, logs, dice)  # two files each: a damage that is known, and random bytes
    capsys.readouterr()
