"""The command line: exit codes, output, sentences."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from real_traces import unpacked

from tc.tlparse.__main__ import main

ROOT = Path(__file__).resolve().parents[2]
TRACES = unpacked()


def write_log(folder: Path, name: str = "a") -> Path:
    head = "V1120 09:14:22.968000 1 torch/x.py:1] "
    ids = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    text = (
        "Graph break in user code at /home/me/a.py:5\n"
        "Graph Break Reason: Data-dependent branching\n"
        'User code traceback:\n  File "/home/me/a.py", line 5, in f\n    if x.sum() > 0:'
    )
    records = [
        {"str": ["/home/me/a.py", 1]},
        {"dynamo_start": {"stack": [{"line": 3, "name": "f", "filename": 1}]}, **ids},
        {
            "artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"},
            **ids,
            "has_payload": hashlib.md5(text.encode()).hexdigest(),
        },
    ]
    path = folder / f"dedicated_log_torch_trace_{name}.log"
    lines = [head + json.dumps(one) + "\n" for one in records]
    path.write_text("".join(lines) + "".join(f"\t{row}\n" for row in text.split("\n")))
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_a_report_and_a_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_log(tmp_path)
    code, out, err = run(capsys, str(tmp_path))
    assert (code, err) == (0, "")
    assert "1 cause of graph breaks (1 event)" in out
    assert f"report: {tmp_path}/tc_report.html" in out
    assert (tmp_path / "tc_report.html").read_text().startswith("<!doctype html>")
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "dedicated_log_torch_trace_a.log",
        "tc_report.html",
    ]


def test_a_second_report_does_not_read_the_first(tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    write_log(tmp_path)
    first = run(capsys, str(tmp_path)), (tmp_path / "tc_report.html").read_bytes()
    second = run(capsys, str(tmp_path)), (tmp_path / "tc_report.html").read_bytes()
    assert first == second


def test_a_file_gets_its_report_beside_it(tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    path = write_log(tmp_path)
    assert run(capsys, str(path))[0] == 0
    assert (tmp_path / "tc_report.html").exists()


def test_another_place(tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    write_log(tmp_path)
    target = tmp_path / "out.html"
    code, out, _ = run(capsys, str(tmp_path), "-o", str(target), "--json")
    assert code == 0
    assert json.loads(out)["report"] == str(target)
    assert target.exists()
    code, _, err = run(capsys, str(tmp_path), "-o", str(tmp_path / "no/where.html"))
    assert code == 2
    assert "no such file" in err


def test_stdin(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    content = write_log(tmp_path).read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    code, out, _ = run(capsys, "summary", "-", "--json")
    assert (code, json.loads(out)["graph_breaks"]) == (0, 1)


@pytest.mark.parametrize(
    ("make", "code", "words"),
    [
        (lambda folder: str(folder / "missing"), 2, "does not exist"),
        (lambda folder: str(folder), 3, "no trace log"),
        (lambda folder: _file(folder, b""), 3, "is empty"),
        (lambda folder: _file(folder, b"garbage\n" * 9), 3, "no trace record"),
        (lambda folder: _file(folder, os.urandom(5000)), 3, "no trace record"),
        (lambda folder: _file(folder, b"not packed", "x.log.gz"), 3, "cannot read"),
    ],
)
@pytest.mark.parametrize("verb", [(), ("summary",), ("check",)])
def test_what_cannot_be_read_is_one_sentence(  # type: ignore[no-untyped-def]
    tmp_path: Path, capsys, make, code: int, words: str, verb: tuple[str, ...]
) -> None:
    got, out, err = run(capsys, *verb, make(tmp_path))
    assert (got, out) == (code, "")
    assert words in err
    assert err.count("\n") == 1
    assert not (tmp_path / "tc_report.html").exists()


def _file(folder: Path, content: bytes, name: str = "x.log") -> str:
    (folder / name).write_bytes(content)
    return str(folder / name)


@pytest.mark.parametrize(
    "arguments",
    [(), ("--wat",), ("check",), ("show",), ("a", "b"), ("check", "x", "--max-recompiles", "y")],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "tc-report --help" in err


def test_show(tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    write_log(tmp_path)
    code, out, _ = run(capsys, "summary", str(tmp_path), "--json")
    (finding,) = json.loads(out)["findings"]
    code, out, _ = run(capsys, "show", finding["id"], str(tmp_path))
    assert code == 0
    for part in (finding["id"], "a.py:5 in f", "if x.sum() > 0:", "torch.where", "[0/0]"):
        assert part in out
    code, out, _ = run(capsys, "show", "TC110", str(tmp_path), "--json")
    assert json.loads(out)["id"] == finding["id"]
    code, _, err = run(capsys, "show", str(tmp_path))
    assert code == 2 and "ID is missing" in err  # the trace stands in its place
    code, _, err = run(capsys, "show", "TC999-0000", str(tmp_path))
    assert code == 2
    assert finding["id"] in err


def test_check(tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    write_log(tmp_path)
    assert run(capsys, "check", str(tmp_path))[0] == 0
    assert run(capsys, "check", str(tmp_path), "--max-graph-breaks", "1")[0] == 0
    code, out, err = run(capsys, "check", str(tmp_path), "--max-graph-breaks", "0")
    assert code == 1
    assert "FAILED" in out
    assert "1 graph break, allowed 0" in err
    code, out, _ = run(capsys, "check", str(tmp_path), "--max-graph-breaks", "0", "--json")
    assert (code, json.loads(out)["ok"]) == (1, False)


def test_damage_is_reported_and_reported(tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    path = write_log(tmp_path)
    path.write_bytes(path.read_bytes()[:-4])
    code, out, err = run(capsys, "summary", str(tmp_path))
    assert code == 0
    assert "truncated 1" in err
    assert "TC901" in out


def test_ctrl_c_and_our_own_errors(tmp_path: Path, capsys, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    write_log(tmp_path)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def broken(*_: object, **__: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr("tc.trace.findings.diagnose", interrupted)
    assert run(capsys, str(tmp_path))[0] == 130
    monkeypatch.setattr("tc.trace.findings.diagnose", broken)
    code, _, err = run(capsys, str(tmp_path))
    assert (code, err.count("\n")) == (4, 1)
    crash = Path(err.strip().rpartition(" ")[2])
    assert "oops" in crash.read_text()
    crash.unlink()


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert len(out.splitlines()) <= 60
    assert out.index("examples:") < out.index("options:") < out.index("exit codes:")
    assert max(map(len, out.splitlines())) <= 100
    assert run(capsys, "--version")[1].startswith("tc-report ")


@pytest.mark.sample(1)
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_terminal_can_show_the_summary(tmp_path: Path, encoding: str) -> None:
    write_log(tmp_path)
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "tc.tlparse", "summary", str(tmp_path)],
        cwd=ROOT, env=environment, capture_output=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"TC110" in done.stdout


@pytest.mark.sample(1)
@pytest.mark.parametrize("arguments", ["['--help']", "['summary', PATH]", "[PATH]"])
def test_the_tool_never_loads_torch(tmp_path: Path, arguments: str) -> None:
    write_log(tmp_path)
    code = (
        f"import sys; PATH = {str(tmp_path)!r}; from tc.tlparse.__main__ import main; "
        f"main({arguments}); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_json_of_a_real_trace(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "summary", str(TRACES / "graph_break"), "--json")
    report = json.loads(out)
    known = {key: report[key] for key in ("schema", "records", "strings", "defects", "ranks",
             "compiles", "graph_breaks", "recompiles", "failures")}  # fmt: skip
    assert known == {
        "schema": 1, "records": 571, "strings": 3, "defects": {}, "ranks": 1,
        "compiles": 5, "graph_breaks": 3, "recompiles": 0, "failures": 0,
    }  # fmt: skip
    for finding in report["findings"]:
        assert {"code", "id", "where", "count", "fix", "why", "title"} <= finding.keys()


def test_the_summary_is_short(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "summary", str(TRACES / "recompile"))
    lines = out.splitlines()
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 100
    assert "6 recompiles" in out


def test_reports_go_through_links_and_pipes(tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    log = str(write_log(tmp_path))
    run(capsys, log, "-o", str(tmp_path / "plain.html"))
    whole = (tmp_path / "plain.html").read_bytes()
    (tmp_path / "real.html").write_text("old")
    (tmp_path / "link.html").symlink_to("real.html")
    assert run(capsys, log, "-o", str(tmp_path / "link.html"))[0] == 0
    assert (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "real.html").read_bytes() == whole
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    assert run(capsys, log, "-o", str(pipe))[0] == 0
    reader.join(30)
    assert got == [whole] and pipe.is_fifo()
    code, _, err = run(capsys, log, "-o", str(pipe), "--split")
    assert (code, err.count("\n")) == (2, 1) and "has to be a file" in err


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc here")
def test_a_report_on_stdout_is_all_that_is_there(tmp_path: Path) -> None:
    log, link = write_log(tmp_path), tmp_path / "out"
    link.symlink_to("/proc/self/fd/1")  # never an entry of /dev
    done = subprocess.run(
        [sys.executable, "-m", "tc.tlparse", str(log), "-o", str(link)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("<!doctype html>") and done.stdout.rstrip().endswith("</html>")
    assert "1 cause of graph breaks" in done.stderr
