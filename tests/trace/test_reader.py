"""The reader: lossless on real logs, undeterred by broken ones."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_traces import unpacked

from tc.trace import reader
from tc.trace.reader import Defects, Record, Source, Unreadable, find_logs, read_records

TRACES = unpacked()

HEAD = "V1120 09:14:22.968000 11679 torch/_dynamo/x.py:5098] "
ROWS = {  # log: records, interned strings, chromium events, metrics (shared/traces/README.md)
    "backend_crash/dedicated_log_torch_trace_iybmv_fa.log": (24, 2, 14, 1),
    "dynamic/dedicated_log_torch_trace_ghr3c5z8.log": (719, 46, 555, 5),
    "graph_break/dedicated_log_torch_trace_wz954tm5.log": (571, 3, 462, 5),
    "recompile/dedicated_log_torch_trace_d_8n7sxa.log": (916, 2, 760, 7),
    "simple/dedicated_log_torch_trace_2fn19w8u.log": (151, 2, 124, 1),
    "train/dedicated_log_torch_trace_my1d0x1o.log": (245, 5, 195, 1),
    "transformer/dedicated_log_torch_trace_4d7q_qxe.log": (583, 5, 331, 2),
    "two_rank/dedicated_log_torch_trace_rank_0_l99xu3hv.log": (155, 6, 126, 1),
    "two_rank/dedicated_log_torch_trace_rank_1_rjns6_09.log": (285, 19, 219, 2),
}


def read(path: Path) -> tuple[list[Record], dict[str, int]]:
    defects = Defects()
    source = Source(path)
    records = list(read_records(source, 0, defects))
    source.close()
    return records, defects.counts


def read_bytes(tmp_path: Path, content: bytes) -> tuple[list[Record], dict[str, int]]:
    path = tmp_path / "x.log"
    path.write_bytes(content)
    return read(path)


def record(payload: str | bytes | None = None, head: str = HEAD, **envelope: object) -> bytes:
    raw = payload.encode() if isinstance(payload, str) else payload
    if raw is not None:
        envelope.setdefault("has_payload", hashlib.md5(raw).hexdigest())
    text = (head + json.dumps(envelope)).encode() + b"\n"
    if raw is not None:
        text += b"".join(b"\t" + line + b"\n" for line in raw.split(b"\n"))
    return text


def artifact(payload: str | bytes, **more: object) -> bytes:
    return record(payload, artifact={"name": "a", "encoding": "string"}, **more)


@pytest.mark.parametrize("name", ROWS)
def test_counts_of_real_logs_are_exact(name: str) -> None:
    records, defects = read(TRACES / name)
    events = [one.event for one in records]
    counts = tuple(
        events.count(event) for event in ("str", "chromium_event", "compilation_metrics")
    )
    assert (len(records), *counts) == ROWS[name]
    assert defects == {}


def test_every_payload_byte_is_kept() -> None:
    path = TRACES / "graph_break/dedicated_log_torch_trace_wz954tm5.log"
    rebuilt = b""
    for line in path.read_bytes().split(b"\n")[:-1]:
        rebuilt += line[1:] + b"\n" if line.startswith(b"\t") else b""
    records, _ = read(path)
    assert b"".join(one.payload + b"\n" for one in records if one.payload is not None) == rebuilt


@pytest.mark.parametrize(
    "payload",
    ["", "one", "two\nlines", "trailing\n", "\n", "a\n\nb", "\tindented\n\t\tmore", "é ☃"],
)
def test_payloads_come_back_as_written(tmp_path: Path, payload: str) -> None:
    (one,), defects = read_bytes(tmp_path, artifact(payload))
    assert (one.text(), defects) == (payload, {})


@pytest.mark.parametrize("odd", ["\r", "\x0c", "\x0b", "\x85", "\u2028", "\x1c"])
def test_odd_line_ends_do_not_split_a_payload(tmp_path: Path, odd: str) -> None:
    payload = f"before{odd}after\nnext"
    (one,), defects = read_bytes(tmp_path, artifact(payload))
    assert (one.text(), defects) == (payload, {})


def test_a_payload_that_holds_crlf_keeps_it(tmp_path: Path) -> None:
    (one,), defects = read_bytes(tmp_path, artifact("a\r\nb\r"))
    assert (one.text(), defects) == ("a\r\nb\r", {})


def test_a_log_saved_with_crlf_reads_the_same(tmp_path: Path) -> None:
    content = (artifact("a\nb") + record(str=["f.py", 1])).replace(b"\n", b"\r\n")
    records, defects = read_bytes(tmp_path, content)
    assert [one.payload for one in records] == [b"a\nb", None]
    assert defects == {}


@pytest.mark.parametrize("prefix", ["[rank0]: ", "12:00 host | "])
def test_prefixes_of_log_collectors(tmp_path: Path, prefix: str) -> None:
    plain = artifact("a\nb") + record(str=["f.py", 1])
    marked = b"".join(prefix.encode() + line + b"\n" for line in plain.split(b"\n")[:-1])
    records, defects = read_bytes(tmp_path, marked)
    assert [one.event for one in records] == ["artifact", "str"]
    assert records[0].payload == b"a\nb"
    assert defects == {}


def test_blank_lines_between_records_are_nothing(tmp_path: Path) -> None:
    content = b"\n\n" + artifact("a") + b"\n\n" + record(str=["f.py", 1]) + b"\n"
    records, defects = read_bytes(tmp_path, content)
    assert (len(records), records[0].payload, defects) == (2, b"a", {})


def test_blank_lines_inside_a_payload_are_skipped_and_reported(tmp_path: Path) -> None:
    content = artifact("a\nb").replace(b"\ta\n", b"\ta\n\n")
    records, defects = read_bytes(tmp_path, content + record(str=["f.py", 1]))
    assert (records[0].payload, len(records), defects) == (b"a\nb", 2, {})
    content = artifact("a\n\nb").replace(b"\t\n", b"\n")  # the TAB of an empty line was lost
    assert read_bytes(tmp_path, content + record(str=["f.py", 1]))[1] == {"payload_md5": 1}


@pytest.mark.parametrize(
    ("content", "kinds"),
    [
        (b"what is this\n" + artifact("a"), {"no_header": 1}),
        (HEAD.encode() + b'{"artifact": {\n' + artifact("a"), {"bad_json": 1}),
        (HEAD.encode() + b"[1, 2]\n" + artifact("a"), {"bad_json": 1}),
        (artifact("a", has_payload="0" * 32) + artifact("a"), {"payload_md5": 1}),
        (artifact("a", has_payload="no hex") + artifact("a"), {"payload_md5": 1}),
        (artifact("a", has_payload=7) + artifact("a"), {"payload_md5": 1}),
        (artifact("a\nb")[:-2], {"truncated": 1}),
        (artifact("a") + HEAD.encode() + b'{"artif', {"truncated": 1}),
        (b"\tlost\n\tlost\n" + artifact("a"), {"orphan_payload": 2}),
        (record(str=["f", 1]) + b"\tlost\n", {"orphan_payload": 1}),
        (artifact(b"caf\xe9") + artifact("a"), {"bad_utf8": 1}),
        (HEAD.encode() + b'{"artifact": "\xff"}\n' + artifact("a"), {"bad_utf8": 1}),
        (record() + artifact("a"), {"no_event": 1}),
        (record(a=1, b=2) + artifact("a"), {"many_events": 1}),
        (b"\x00\x01\x02" * 99, {"no_header": 1}),
    ],
)
def test_damage_is_counted_once_and_is_not_fatal(
    tmp_path: Path, content: bytes, kinds: dict[str, int]
) -> None:
    records, defects = read_bytes(tmp_path, content)
    assert defects == kinds
    if content.endswith(artifact("a")):
        assert records[-1].payload == b"a"


def test_places_name_the_line(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(artifact("a\nb") + b"junk\n" + artifact("a") + b"junk\n")
    defects = Defects()
    list(read_records(Source(path), 0, defects))
    assert defects.places == {"no_header": ["x.log:4", "x.log:7"]}


def test_numbers_that_are_not_finite_are_missing(tmp_path: Path) -> None:
    metrics = b'{"a": NaN, "b": -Infinity, "c": 1e400, "d": 1e308}'
    content = HEAD.encode() + b'{"compilation_metrics": ' + metrics + b"}\n"
    (one,), defects = read_bytes(tmp_path, content)
    assert one.value == {"a": None, "b": None, "c": None, "d": 1e308}
    assert defects == {"bad_number": 3}


def test_a_huge_process_id_is_no_reason_to_stop(tmp_path: Path) -> None:
    pid = "9" * 200
    (one,), defects = read_bytes(tmp_path, artifact("a", head=HEAD.replace("11679", pid)))
    assert (one.pid, defects) == (int(pid), {})


def test_deeply_nested_json_is_damage(tmp_path: Path) -> None:
    content = HEAD.encode() + b'{"a": ' + b"[" * 100_000 + b"\n" + artifact("a")
    records, defects = read_bytes(tmp_path, content)
    assert (len(records), defects) == (1, {"bad_json": 1})


def test_packed_logs(tmp_path: Path) -> None:
    path = tmp_path / "x.log.gz"
    path.write_bytes(gzip.compress(artifact("a")))
    assert read(path)[0][0].payload == b"a"
    zstandard = pytest.importorskip("zstandard")
    path = tmp_path / "x.log.zst"
    path.write_bytes(zstandard.compress(artifact("b")))
    assert read(path)[0][0].payload == b"b"


@pytest.mark.parametrize(
    ("name", "pack"), [("x.log.gz", bytes), ("x.log.zst", bytes), ("x.log", gzip.compress)]
)
def test_a_log_is_packed_as_its_first_bytes_say(
    tmp_path: Path, name: str, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / name
    path.write_bytes(pack(artifact("a")))
    assert read(path)[0][0].payload == b"a"


@pytest.mark.parametrize("name", ["x.log.gz", "x.log.zst"])
def test_a_packed_log_that_is_none_is_unreadable(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"not packed at all")
    with pytest.raises(Unreadable, match=name):
        Source(tmp_path / name)


def test_a_truncated_archive_gives_what_it_has(tmp_path: Path) -> None:
    content = b"".join(artifact(os.urandom(60).hex()) for _ in range(2000))
    path = tmp_path / "x.log.gz"
    path.write_bytes(gzip.compress(content)[:60_000])
    assert len(read(path)[0]) > 100


def bomb(path: Path, size: int) -> None:
    """Write a file that unpacks to a log of nothing but zeros."""
    name, zeros = "dedicated_log_torch_trace_a.log", bytes(size)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name, zeros)
    elif path.name.endswith(".tar.gz"):
        with tarfile.open(path, "w:gz") as tar:
            member = tarfile.TarInfo(name)
            member.size = size
            tar.addfile(member, io.BytesIO(zeros))
    else:
        packed = gzip if path.suffix == ".gz" else pytest.importorskip("zstandard")
        path.write_bytes(packed.compress(zeros))


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["x.log.gz", "x.log.zst", "x.tar.gz", "x.zip"])
def test_what_unpacks_to_far_more_than_a_trace_is_refused_early(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []

    class Spool(io.BytesIO):
        def write(self, data: Any) -> int:
            written.append(len(data))
            return super().write(data)

    monkeypatch.setattr(reader, "_MOST_UNPACKED", 1 << 20)
    monkeypatch.setattr(reader.tempfile, "TemporaryFile", Spool)
    bomb(tmp_path / name, 64 << 20)
    most = max(1 << 20, 150 * (tmp_path / name).stat().st_size)
    with pytest.raises(Unreadable, match=r"unpack to more than .*; unpack it to a file"):
        for log in find_logs(tmp_path / name):
            Source(log)
    assert sum(written) < most + (1 << 18) < 64 << 20


def test_what_has_no_record_at_its_start_is_refused_before_it_is_long(tmp_path: Path) -> None:
    bomb(tmp_path / "x.log.gz", 32 << 20)
    with pytest.raises(Unreadable, match=r"unpack to more than 16.*no record of a trace"):
        Source(find_logs(tmp_path / "x.log.gz")[0])
    record = b"V1122 10:00:00.000000 1 a.py:1] {}\n"
    log = tmp_path / "y.log.gz"
    log.write_bytes(gzip.compress(bytes(1 << 20) + record + b"\t" + bytes(20 << 20)))
    Source(find_logs(log)[0])


def test_a_folder_without_logs_says_so(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(Unreadable, match="no trace log"):
        find_logs(tmp_path)


def test_a_folder_prefers_dedicated_logs(tmp_path: Path) -> None:
    for name in ("train.log", "dedicated_log_torch_trace_x.log"):
        (tmp_path / name).write_bytes(artifact("a"))
    assert [Path(one).name for one in find_logs(tmp_path)] == ["dedicated_log_torch_trace_x.log"]


LINES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([HEAD.encode(), artifact("a")[:-1], record(str=["f", 1])[:-1], b"\tx", b""]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(LINES, max_size=12))
def test_no_input_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, lines: list) -> None:  # type: ignore[type-arg]
    path = tmp_path_factory.mktemp("fuzz") / "x.log"
    path.write_bytes(b"\n".join(lines))
    try:
        read(path)
    except Unreadable:  # in one sentence, where it begins as a packed log does
        assert path.read_bytes().startswith(tuple(reader._MAGIC))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(max_size=60), max_size=6))
def test_written_payloads_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, payloads: list[str]
) -> None:
    encoded = [text.encode("utf-8", "replace") for text in payloads]
    path = tmp_path_factory.mktemp("fuzz") / "x.log"
    path.write_bytes(b"".join(map(artifact, encoded)))
    records, defects = read(path)
    assert ([one.payload for one in records], defects) == (encoded, {})
