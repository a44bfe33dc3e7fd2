"""The tools where they cannot be tried: without what macOS and Windows lack, and in poor locales.

A child process hides the modules and functions that the other system does not have, once the
standard library has loaded its own parts, and names that system in `sys.platform`.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from real_traces import unpacked
from support import python

from tc.tlparse.sarif import sarif
from tc.trace.findings import diagnose
from tc.trace.ids import cause_id
from tc.trace.places import file_name
from tc.trace.session import load

POSIX_MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty")
POSIX_CALLS = (
    "fork", "forkpty", "geteuid", "getegid", "getuid", "getgid", "getpgid", "killpg", "mkfifo",
    "openpty", "O_CLOEXEC", "sched_getaffinity", "setsid", "uname", "wait4", "writev", "pread",
)  # fmt: skip
LACKS = {"win32": (POSIX_MODULES, POSIX_CALLS), "darwin": ((), ("sched_getaffinity",))}

ELSEWHERE = """
import asyncio, concurrent.futures.process, locale, multiprocessing, multiprocessing.spawn
import multiprocessing.popen_spawn_posix, multiprocessing.resource_tracker, os, selectors, sys
import tempfile, threading, traceback, webbrowser

SYSTEM, MODULES, CALLS = {system!r}, {modules!r}, {calls!r}

class Missing:
    def find_spec(self, name, *rest):
        if name in MODULES or name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
for name in MODULES:
    sys.modules.pop(name, None)
for name in CALLS:
    if name not in ("fork", "writev", "pread", "O_CLOEXEC"):  # the standard library calls these
        delattr(os, name)
multiprocessing.set_start_method("spawn")
sys.platform = SYSTEM
"""
NO_FORK = """
def fork():
    raise AttributeError("module 'os' has no attribute 'fork'")

os.fork = fork
"""


def elsewhere(system: str, program: str, **variables: str) -> tuple[int, str, str]:
    """Run a program as on another system; return its exit code, stdout and stderr."""
    modules, calls = LACKS[system]
    text = ELSEWHERE.format(system=system, modules=modules, calls=calls)
    no_fork = NO_FORK if "fork" in calls else ""
    done = python("-c", text + no_fork + program, variables=variables)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.sample(2)
@pytest.mark.parametrize("system", LACKS)
@pytest.mark.parametrize(
    "arguments",
    [
        "'summary', trace",
        "'summary', trace, '--jobs', '1', '--json'",
        "trace, '-o', str(out / 'r.html')",
        "trace, '-o', str(out / 's.html'), '--split'",
        "'check', trace, '--max-graph-breaks', '9', '--format', 'junit'",
        "'diff', trace, trace",
        "trace, '-o', str(out / 'm.html'), '--redact=paths,names'",
    ],
)
def test_the_report(system: str, arguments: str, tmp_path: Path) -> None:
    code, out, error = elsewhere(
        system,
        f"""
from pathlib import Path
trace, out = {str(unpacked() / "graph_break")!r}, Path({str(tmp_path)!r})
from tc.tlparse.__main__ import main
sys.exit(main([{arguments}]))
""",
    )
    assert code == 0 and out, error


@pytest.mark.sample(1)
@pytest.mark.parametrize("system", LACKS)
def test_the_explorer(system: str) -> None:
    program = f"""
from tc.tui.app import TraceApp
from tc.tui.feed import Feed

async def look():
    app = TraceApp(Feed({str(unpacked() / "recompile")!r}))
    async with app.run_test(size=(100, 30)) as pilot:
        while app.background.busy:
            await pilot.pause(0.05)
        await pilot.press("2", "enter")
        await pilot.pause()
        print("\\n".join(s.text for s in app.screen._compositor.render_strips()))

asyncio.run(look())
from tc.tui.__main__ import main
sys.exit(main([{str(unpacked() / "recompile")!r}]))
"""
    headless = "textual.drivers.headless_driver:HeadlessDriver"  # its own for Windows needs Windows
    code, out, error = elsewhere(system, program, TEXTUAL_DRIVER=headless)
    assert code == 0 and out.count("TC201") > 1, error


POOR = {
    "the C locale": {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "LANG": "C"},
    "a Windows console": {"PYTHONIOENCODING": "cp1252"},
    "an old one": {"PYTHONIOENCODING": "cp437"},
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("variables", POOR.values(), ids=POOR)
@pytest.mark.parametrize("tool", ["tc.tlparse summary", "tc.tui"])
def test_poor_encodings(variables: dict[str, str], tool: str) -> None:
    module, *verb = tool.split()
    encoding = variables.get("PYTHONIOENCODING", "utf-8")
    trace = str(unpacked() / "graph_break")
    done = python("-m", module, *verb, trace, variables=variables, encoding=encoding)
    assert done.returncode == 0, done.stderr
    assert "graph break" in done.stdout.lower()


def test_a_page_written_in_the_c_locale_is_utf8(tmp_path: Path) -> None:
    trace = unpacked() / "graph_break"
    made = []
    for number, variables in enumerate(({}, POOR["the C locale"])):
        out = tmp_path / f"{number}.html"
        done = python("-m", "tc.tlparse", str(trace), "-o", str(out), variables=variables)
        assert done.returncode == 0, done.stderr
        made.append(out.read_bytes())
    assert made[0].decode("utf-8") == made[1].decode("utf-8")


def as_on_windows(log: str) -> str:
    """Return a log as PyTorch writes it on Windows: paths with a drive, lines that end in CR LF."""

    def text(value: str) -> str:
        return re.sub(
            r"/(?:home|opt)/[\w./-]+", lambda path: "C:" + path[0].replace("/", "\\"), value
        )

    def moved(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: moved(one) for key, one in value.items()}
        if isinstance(value, list):
            return [moved(one) for one in value]
        return text(value) if isinstance(value, str) else value

    rows = []
    for record in re.split(r"^(?=V)", log, flags=re.MULTILINE)[1:]:
        line, *payload = record.rstrip("\n").split("\n")
        head, brace, envelope = line.partition("{")
        fields = moved(json.loads(brace + envelope))
        if payload:
            held = "\n".join(row.removeprefix("\t") for row in payload)
            try:
                held = json.dumps(moved(json.loads(held)))
            except ValueError:
                held = text(held)
            fields["has_payload"] = hashlib.md5(held.encode()).hexdigest()
            payload = [f"\t{row}" for row in held.split("\n")]
        rows += [head + json.dumps(fields), *payload]
    return "".join(f"{row}\r\n" for row in rows)


@pytest.mark.parametrize("name", ["graph_break", "recompile", "two_rank"])
def test_a_log_from_windows_says_the_same(name: str, tmp_path: Path) -> None:
    for path in (unpacked() / name).glob("*.log"):
        (tmp_path / path.name).write_bytes(as_on_windows(path.read_text("utf-8")).encode())
    here, there = diagnose(load(unpacked() / name)), diagnose(load(tmp_path))
    assert [one.id for one in here.findings] == [one.id for one in there.findings]
    assert [one.where.short for one in here.findings] == [one.where.short for one in there.findings]
    assert all(one.where.file.startswith("C:\\home\\user\\") for one in there.findings)
    results = sarif(there)["runs"][0]["results"]
    assert all("file:///C:/home/user/" in json.dumps(result) for result in results)


def test_names_in_paths_of_any_system() -> None:
    assert file_name(r"C:\Users\me\model.py") == file_name("/home/me/model.py") == "model.py"
    assert file_name(r"src\model.py") == file_name(r"\\server\share\model.py") == "model.py"
    assert file_name("C:/work/model.py") == file_name("model.py") == "model.py"
    assert file_name("a/odd\\name.py") == "odd\\name.py"  # a name on Linux, in a folder
    assert file_name("") == "" and file_name("<string>") == "<string>"


def test_causes_have_the_same_names_on_all_systems() -> None:
    here = cause_id("TC110", "/home/me/model.py", "forward", "why")
    assert here == cause_id("TC110", r"C:\Users\me\model.py", "forward", "why")


NO_COMPILER = """
import torch, tc

def f(x):
    return torch.sin(x) * 2 + x

x = torch.randn(4, requires_grad=True)
for compiled in (tc.compile(f), tc.compile(f, dynamic=True), torch.compile(f, backend="tc")):
    torch.testing.assert_close(compiled(x), f(x))
    compiled(x).sum().backward()
"""


def test_without_a_c_compiler_all_runs_eagerly_after_one_sentence(tmp_path: Path) -> None:
    variables = {"PATH": str(tmp_path), "CC": "", "TC_CACHE_DIR": str(tmp_path)}
    done = python("-c", NO_COMPILER, variables=variables, warm=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("No C compiler: none of gcc, clang is on PATH") == 1
    assert len(done.stderr.strip().splitlines()) == 1
