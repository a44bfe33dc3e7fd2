"""A process that has torch loaded, and forks for each program that a test runs.

Goes in: requests over a socket, each a JSON object with the descriptors of stdout and stderr. Comes
out: the id of the child that runs the program, then the code it ended with. Only torch, and what
of it each compile loads, is there already (1.5 s of processor time); a child imports `tc` as a new
process does. `support.python` asks one such process for programs that are said to need torch.

What a child shares with the next: the seed of hashes, and what torch read when it was loaded. A
test that is about other processes, or about what is loaded, starts a new one. A child's objects are
not taken apart at its end, unless its variables have TC_TEST_END=whole.
"""

from __future__ import annotations

import array
import atexit
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

Request = dict[str, Any]
#: read when a process or a library starts, so that a child of a warm process would not see them
EARLY = (
    "PYTHON",
    "OMP_",
    "KMP_",
    "GOMP_",
    "MKL_",
    "LD_",
    "MALLOC",
    "LANG",
    "LC_",
    "TORCH",
    "TRITON",
)
#: of those, what a child makes up for
LATE = ("PYTHONPATH",)
START = "import sys; sys.path.insert(0, {folder!r}); import warm; warm.main({descriptor})"


def fits(arguments: tuple[str, ...], environment: dict[str, str], base: dict[str, str]) -> bool:
    """Return whether a child of a warm process would see what a new one sees."""
    names = {name for name in {*environment, *base} if name.startswith(EARLY)} - {*LATE}
    same = all(environment.get(name) == base.get(name) for name in names)
    return same and (arguments[0] in ("-c", "-m") or not arguments[0].startswith("-"))


class Warm:
    """The warm process of this one, started when it is first asked for."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = threading.Lock()

    def _start(self, environment: dict[str, str]) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", START.format(
                    folder=str(Path(__file__).parent), descriptor=theirs.fileno())],
                pass_fds=[theirs.fileno()], env=environment,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip

    def run(
        self,
        arguments: tuple[str, ...],
        cwd: str,
        environment: dict[str, str],
        base: dict[str, str],
        timeout: float,
    ) -> tuple[int, bytes, bytes]:
        """Run a program in a child of the process; return its exit code, stdout and stderr.

        Args:
            base: the variables that the process is started with, if this is its first program.

        Raises:
            subprocess.TimeoutExpired: it took longer than `timeout` seconds, and was killed.
        """
        with self._turn, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            if self._socket is None:
                self._start(base)
            assert self._socket is not None
            request = {"arguments": arguments, "cwd": cwd, "environment": environment}
            streams = array.array("i", [out.fileno(), err.fileno()])
            text = json.dumps(request).encode()
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)]
            self._socket.sendmsg([len(text).to_bytes(8, "big")], rights)
            self._socket.sendall(text)
            code, late = self._ended(timeout)
            if late:
                raise subprocess.TimeoutExpired([sys.executable, *arguments], timeout)
            for stream in (out, err):
                stream.seek(0)
            return code, out.read(), err.read()

    def _ended(self, timeout: float) -> tuple[int, bool]:
        """Wait for the child; return its exit code, and whether it had to be killed."""
        assert self._socket is not None
        child = int.from_bytes(_exactly(self._socket, 8), "big")
        late = False
        self._socket.settimeout(timeout)
        try:
            answer = _exactly(self._socket, 8)
        except TimeoutError:
            late = True
            os.kill(child, signal.SIGKILL)
            self._socket.settimeout(None)
            answer = _exactly(self._socket, 8)
        self._socket.settimeout(None)
        return int.from_bytes(answer, "big", signed=True), late

    def close(self) -> None:
        """End the process."""
        if self._socket is not None and self._process is not None:
            self._socket.close()
            self._process.wait()
            self._socket = None


def _exactly(connection: socket.socket, count: int) -> bytes:
    """Return the next `count` bytes; fewer where the other side has ended.

    Raises:
        EOFError: it ended before the first.
    """
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(count - len(parts))
        if not part:
            raise EOFError("the warm process is gone")
        parts += part
    return bytes(parts)


def _serve(connection: socket.socket) -> Request:
    """Answer requests; in the child of each, return it."""
    while True:
        try:
            head, streams, _, _ = socket.recv_fds(connection, 8, 2)
            if not head:
                sys.exit(0)
            head += b"" if len(head) == 8 else _exactly(connection, 8 - len(head))
            request: Request = json.loads(_exactly(connection, int.from_bytes(head, "big")))
        except EOFError:
            sys.exit(0)
        child = os.fork()
        if child == 0:
            connection.close()
            for stream, target in zip(streams, (1, 2), strict=True):
                os.dup2(stream, target)
                os.close(stream)
            return request
        for stream in streams:
            os.close(stream)
        connection.sendall(child.to_bytes(8, "big"))
        _, status = os.waitpid(child, 0)
        connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(8, "big", signed=True))


def _become(request: Request, base_path: list[str]) -> tuple[str, list[str]]:
    """Take the variables, folder and paths of a new process; return what it runs, and how."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    kind, *rest = request["arguments"]
    own = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    first = str(Path(kind).resolve().parent) if kind not in ("-c", "-m") else ""
    if kind == "-m":
        first = os.getcwd()
    sys.path[:] = [first, *own, *base_path]
    sys.path_importer_cache.clear()
    sys.argv = [kind, *rest[1:]] if kind in ("-c", "-m") else [kind, *rest]
    sys.modules.pop("sitecustomize", None)
    for path in own:  # where it would have been found at the start
        if (Path(path) / "sitecustomize.py").exists():
            __import__("sitecustomize")
            break
    return kind, rest


def _run(kind: str, rest: list[str]) -> None:
    """Run a program as the main one."""
    main = sys.modules["__main__"]
    for name in set(vars(main)) - {"__name__", "__builtins__", "__annotations__", "__loader__"}:
        delattr(main, name)
    main.__dict__.update(__spec__=None, __package__=None, __doc__=None)
    if kind == "-m":
        runpy._run_module_as_main(rest[0])  # type: ignore[attr-defined]
        return
    if kind == "-c":
        exec(compile(rest[0], "<string>", "exec"), vars(main))
        return
    main.__dict__.update(__file__=kind, __cached__=None)
    exec(compile(Path(kind).read_bytes(), kind, "exec"), vars(main))


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Show an error as a new process does: without the frames that lead to the program."""
    trace = trace and trace.tb_next
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    traceback.print_exception(kind, error, trace)


def _end(code: int) -> None:
    """End as a process does, but leave torch's objects as they are: that takes most of a second."""
    if os.environ.get("TC_TEST_END") == "whole":
        sys.exit(code)
    threading._shutdown()  # type: ignore[attr-defined]  # threads that are no daemons end first
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)


def main(descriptor: int) -> None:
    """Load torch, then serve; a child returns once its program has."""
    # Sizes that are symbols need both; with the second comes most of torch._dynamo.
    import torch.fx.experimental.symbolic_shapes
    import torch.fx.experimental.validator  # noqa: F401

    early = (str(Path(__file__).parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep))
    base_path = [path for path in sys.path if path and path not in early]
    request = _serve(socket.socket(fileno=descriptor))
    sys.excepthook = _show
    kind, rest = _become(request, base_path)
    del sys.modules[__name__]
    try:
        _run(kind, rest)
        code = 0
    except SystemExit as stop:
        if not isinstance(stop.code, int | None):
            raise
        code = stop.code or 0
    _end(code)
