"""A served page: what a client gets while a job writes, and when it ends."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest

from tc.tlparse import serve
from tc.tlparse.__main__ import main

HEAD = "V1120 09:14:22.968000 7 torch/x.py:1] "
IDS = '"frame_id": {0}, "frame_compile_id": 0, "attempt": 0'
START = (
    HEAD + '{{"dynamo_start": {{"stack": [{{"line": 3, "name": "f{0}", "filename": "m.py"}}]}}, '
    + IDS + "}}\n" + HEAD
    + '{{"artifact": {{"name": "dynamo_output_graph", "encoding": "string"}}, '
    + IDS + f', "has_payload": "{md5(b"a graph").hexdigest()}"' + "}}\n\ta graph\n"
)  # fmt: skip
END = HEAD + '{{"compilation_metrics": {{"co_name": "f{0}"}}, ' + IDS + "}}\n"


def begun(number: int) -> bytes:
    return START.format(number).encode()


def whole(number: int) -> bytes:
    return (START + END).format(number).encode()


class Client:
    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, path: str, **headers: str) -> tuple[int, bytes]:
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        line.request("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})
        answer = line.getresponse()
        body = answer.read()
        line.close()
        assert b"Traceback" not in body
        return answer.status, body

    def state(self) -> dict[str, Any]:
        report = json.loads(self.get("/state")[1])
        assert isinstance(report, dict)
        return report

    def until(self, holds: Callable[[dict[str, Any]], object], seconds: float = 20) -> Any:
        end = time.monotonic() + seconds
        while not holds(report := self.state()):
            assert time.monotonic() < end, report
            time.sleep(0.05)
        return report


@pytest.fixture
def follow(looks_often: None) -> Iterator[Callable[[Path], Client]]:
    stops: list[Callable[[], None]] = []

    def start(path: Path) -> Client:
        follower = serve.Follower(str(path))
        server = serve.opened(0, follower)
        for job, often in ((follower.run, ()), (server.serve_forever, (0.02,))):
            threading.Thread(target=job, args=often, daemon=True).start()
        stops.extend((follower.stop, server.shutdown, server.server_close))
        return Client(server.server_address[1])

    yield start
    for stop in stops:
        stop()


def log_in(folder: Path, name: str = "a") -> Path:
    folder.mkdir(exist_ok=True)
    return folder / f"dedicated_log_torch_trace_{name}.log"


def index_of(client: Client) -> dict[str, Any]:
    report = json.loads(client.get("/index")[1])
    assert isinstance(report, dict)
    return report


def test_it_waits_for_a_trace_then_follows_it(follow: Any, tmp_path: Path) -> None:
    client = follow(tmp_path / "tr")
    status, page = client.get("/")
    assert status == 200 and b"Waiting for a trace" in page and b"http-equiv=" in page
    assert client.get("/index")[0] == 404
    with log_in(tmp_path / "tr").open("wb", buffering=0) as log:
        log.write(whole(0) + begun(1)[:-9])
        report = client.until(lambda report: report["version"])
        assert report["state"] == "running" and "compiling f1 [1/0]" in report["more"]
        assert b"connect-src 'self'" in client.get("/")[1]
        first = index_of(client)
        assert [one["slug"] for one in first["compiles"]] == ["0/0", "1/0"]
        assert not first["raw"]["defects"]  # half a record is not damage while somebody writes
        status, block = client.get(f"/{first['folder']}/block-0")
        assert status == 200 and block == serve_block(tmp_path / "tr", 0)
        log.write(begun(1)[-9:] + END.format(1).encode())
        client.until(lambda report: report["version"] > first["live"])
        assert client.get(f"/{first['folder']}/block-0")[0] == 204  # of a state that is gone
    report = client.until(lambda report: report["state"] != "running")
    assert report["state"] == "ended" and "s ago" in report["more"]


def serve_block(path: Path, number: int) -> bytes:
    from tc.tlparse.report import Contents
    from tc.trace.findings import diagnose
    from tc.trace.session import load

    return Contents(diagnose(load(path))).block(f"block-{number}")


def test_a_job_that_is_killed_is_cut_off(follow: Any, tmp_path: Path) -> None:
    client = follow(tmp_path)
    code = "import sys, time; f = open(sys.argv[1], 'ab', 0); f.write(sys.argv[2].encode()); "
    job = subprocess.Popen(
        [sys.executable, "-c", code + "time.sleep(99)", str(log_in(tmp_path)), begun(0).decode()]
    )
    client.until(lambda report: report["state"] == "running")
    job.kill()
    job.wait()
    report = client.until(lambda report: report["state"] != "running")
    assert report["state"] == "cut off" and report["more"].startswith("while compiling f0 [0/0]")


def test_logs_that_go_come_and_shrink_leave_the_last_page(follow: Any, tmp_path: Path) -> None:
    log = log_in(tmp_path)
    log.write_bytes(whole(0))
    client = follow(tmp_path)
    client.until(lambda reported: reported["version"] == 1)
    log.unlink()
    assert "no trace log in" in client.until(lambda reported: ";" in reported["more"])["more"]
    assert client.get("/")[0] == 200 and client.get("/t/1/block-0")[0] in (200, 204)
    log.write_bytes(whole(1) + whole(2))
    client.until(lambda reported: reported["version"] == 2)
    assert len(index_of(client)["compiles"]) == 2
    os.truncate(log, 10)  # in place, below what is mapped
    client.get("/t/2/block-1")
    log_in(tmp_path, "rank_1_b").write_bytes(whole(3))
    client.until(lambda reported: reported["version"] > 2)
    assert client.get("/")[0] == 200


def test_damage_does_not_stop_it(follow: Any, tmp_path: Path) -> None:
    log_in(tmp_path).write_bytes(
        whole(0) + b"noise\n\xff\xfe\n" + HEAD.encode() + b'{"x": \n' + whole(1)
    )
    client = follow(tmp_path)
    client.until(lambda reported: reported["version"])
    assert index_of(client)["totals"]["defects"] > 0


def test_an_internal_error_is_a_sentence(
    follow: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_in(tmp_path)
    log.write_bytes(whole(0))
    client = follow(tmp_path)
    client.until(lambda reported: reported["version"] == 1)

    def broken(*_: object) -> None:
        raise RuntimeError("odd")

    monkeypatch.setattr(serve, "diagnose", broken)
    with log.open("ab") as file:
        file.write(whole(1))
    assert "please report it" in client.until(lambda reported: ";" in reported["more"])["more"]
    monkeypatch.setattr(serve.Follower, "page", broken)
    assert client.get("/") == (500, b"tc-report: internal error (RuntimeError: odd)\n")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:9"}, 200),  # as an SSH tunnel from another port has it
        ({"Host": "rebound.example:6116"}, 403),
        ({"Host": "127.0.0.1.example"}, 403),
        ({"Host": "[:"}, 403),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"}, 403),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}, 200),
        ({"Sec_Fetch_Site": "same-origin", "Sec_Fetch_Mode": "cors"}, 200),
    ],
)
def test_only_this_machine_is_served(
    follow: Any, tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    assert follow(tmp_path).get("/state", **headers)[0] == status


@pytest.mark.parametrize(
    "path", ["/x", "/t/1", "/t/1/block-9", "/t/1/../../etc/passwd", "/t/x/code--1"]
)
def test_there_is_nothing_else(follow: Any, tmp_path: Path, path: str) -> None:
    log_in(tmp_path).write_bytes(whole(0))
    client = follow(tmp_path)
    client.until(lambda reported: reported["version"])
    assert client.get(path)[0] in (204, 404)


def test_nobody_asks_nobody_looks(tmp_path: Path) -> None:
    now, looks = [0.0], 0
    follower = serve.Follower(str(tmp_path), clock=lambda: now[0])

    def look() -> None:
        nonlocal looks
        looks += 1
        now[0] += 10
        if looks > 5:
            follower.stop()

    follower.look = look  # type: ignore[method-assign]
    job = threading.Thread(target=follower.run, daemon=True)
    job.start()
    job.join(1.5)  # three looks at most
    assert looks == 2


def test_a_port_that_is_taken_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["serve", str(tmp_path), "--no-open", "--port", str(port)]) == 2
    words = capsys.readouterr().err
    assert words.startswith(f"tc-report: cannot serve at port {port}: address already in use;")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["serve", "-"], "stdin cannot be read again"),
        (["serve", "x", "--port", "70000"], "a whole number from 0 to 65535 is needed"),
        (["serve"], "TRACE"),
    ],
)
def test_wrong_usage(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert words in capsys.readouterr().err


def test_ctrl_c_ends_it_cleanly(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "tc.tlparse",
        "serve",
        str(tmp_path),
        "--no-open",
        "--port",
        "0",
    ]
    job = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert job.stdout is not None
    line = job.stdout.readline()
    assert line.startswith(f"tc-report: serving {tmp_path} at http://127.0.0.1:")
    client = Client(int(line.split("127.0.0.1:")[1].split("/")[0]))
    assert client.state()["state"] == "waiting"
    job.send_signal(signal.SIGINT)
    out, err = job.communicate(timeout=20)
    assert (job.returncode, out, err) == (130, "", "")
