"""A path whose logs may still be written goes in; a page that follows them comes out, over HTTP.

Only this machine is served. The page asks each second how the job stands; the trace is read again
only while somebody asks, so that a forgotten server costs nothing.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

from tc.tlparse.report import STYLES, Contents, static, template
from tc.tlparse.usage import Usage
from tc.trace.delivery import INTERRUPTED
from tc.trace.findings import diagnose
from tc.trace.growing import Growing
from tc.trace.reader import Unreadable
from tc.trace.writers import Job

HOST: Final = "127.0.0.1"
PORT: Final = 6116
_NAMES: Final = frozenset((HOST, "localhost"))
_PAUSE: Final = 0.5  # seconds between two looks at the trace
_REST: Final = 4  # reading may take one part in five of the time
_LONGEST: Final = 10.0  # seconds of rest, after the longest of looks
_FORGOTTEN: Final = 15.0  # seconds without a question after which nobody looks
_TIMEOUT: Final = 30.0  # seconds that a request may take to arrive
_WAITING: Final = "waiting"
_TYPES: Final = {"html": "text/html", "json": "application/json", "text": "text/plain"}


@dataclass(frozen=True)
class State:
    """What the trace held at one time: its number, its page."""

    version: int
    contents: Contents
    index: dict[str, Any]

    def close(self) -> None:
        """Let go of the logs; whoever still reads a text maps them again."""
        self.contents.diagnosis.session.close()


class Follower:
    """Reads a trace again when it grew; requests see the newest state and wait for none.

    Args:
        clock: seconds; only differences count.
    """

    def __init__(
        self, path: str, *, all_runs: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.path, self.clock = path, clock
        self.growing = Growing(path, all_runs)
        self.state: State | None = None
        self.job: Job | None = None
        self.trouble = ""
        self.asked = clock()
        self._took = 0.0
        self._stop = threading.Event()

    def run(self) -> None:
        """Look until `stop`."""
        while not self._stop.is_set():
            if self.clock() - self.asked < _FORGOTTEN:
                self.look()
            self._stop.wait(min(max(_PAUSE, _REST * self._took), _LONGEST))

    def stop(self) -> None:
        """End `run`."""
        self._stop.set()

    def look(self) -> None:
        """Read what is new, if there is something; what cannot be read leaves what was."""
        started = self.clock()
        try:
            if not self.growing.changed():
                self.job = self.growing.job()
                return
            contents = Contents(diagnose(self.growing.look()))
            version = self.state.version + 1 if self.state else 1
            index = contents.index(f"t/{version}", version)
        except Unreadable as error:
            self.trouble = str(error)
            return
        except Exception as error:  # whatever it is, the page stays
            self.trouble = f"internal error ({type(error).__name__}: {error}); please report it"
            return
        finally:
            self._took = self.clock() - started
        self.job = self.growing.job()
        before, self.state, self.trouble = self.state, State(version, contents, index), ""
        if before is not None:
            before.close()
        gc.collect()

    def status(self) -> dict[str, Any]:
        """Return how the job stands, for the page."""
        job = self.job
        words = str(job) if job else _WAITING
        state = job.state if job else _WAITING
        more = [words.removeprefix(state).lstrip(", "), self.trouble if job else ""]
        return {
            "version": self.state.version if self.state else 0,
            "state": state,
            "more": "; ".join(filter(None, more)),
        }

    def page(self) -> bytes:
        """Return the page of the newest state, or one that waits for it."""
        state = self.state
        if state is None:
            return _waiting(self.path, self.trouble)
        return b"".join(state.contents.page(state.index))

    def block(self, version: str, name: str) -> bytes | None:
        """Return a block of the newest state; None if another is asked for, or a log was cut."""
        state = self.state
        if state is None or version != str(state.version):
            return None
        if not all(source.whole for source in state.contents.diagnosis.session.sources):
            return None
        try:
            return state.contents.block(name)
        except (KeyError, ValueError, Unreadable):  # it was closed meanwhile, or is gone
            return None


def _waiting(path: str, trouble: str) -> bytes:
    page = template("waiting.html").render(
        path=path, trouble=trouble, styles="\n".join(static(name) for name in STYLES)
    )
    return page.encode("utf-8", "replace")


class Server(ThreadingHTTPServer):
    """Answers each request in a thread of its own, of which none is waited for."""

    daemon_threads = True

    def __init__(self, port: int, follower: Follower) -> None:
        self.follower = follower
        super().__init__((HOST, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a browser that goes away in the middle of a response."""


class _Handler(BaseHTTPRequestHandler):
    timeout = _TIMEOUT
    server: Server
    server_version, sys_version = "tc-report", ""

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: the terminal is the user's."""

    def do_HEAD(self) -> None:
        """Answer without the body."""
        self.do_GET()

    def do_GET(self) -> None:
        """Answer a question of the page."""
        try:
            status, kind, body = self._answer()
        except Exception as error:
            status, kind = HTTPStatus.INTERNAL_SERVER_ERROR, "text"
            body = f"tc-report: internal error ({type(error).__name__}: {error})\n".encode()
        self.send_response(status)
        for name, value in (
            ("Content-Type", f"{_TYPES[kind]}; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Content-Security-Policy", "frame-ancestors 'none'"),
            ("Referrer-Policy", "no-referrer"),
        ):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _answer(self) -> tuple[HTTPStatus, str, bytes]:
        if not self._from_here():
            words = f"tc-report serves this machine only: open http://{HOST}:PORT/ or localhost\n"
            return HTTPStatus.FORBIDDEN, "text", words.encode()
        follower = self.server.follower
        follower.asked = follower.clock()
        parts = urlsplit(self.path).path.strip("/").split("/")
        match parts:
            case [""]:
                return HTTPStatus.OK, "html", follower.page()
            case ["state"]:
                return HTTPStatus.OK, "json", json.dumps(follower.status()).encode()
            case ["index"] if follower.state is not None:
                return HTTPStatus.OK, "json", json.dumps(follower.state.index).encode()
            case ["t", version, name]:
                block = follower.block(version, name)
                if block is not None:
                    return HTTPStatus.OK, "text", block
                return HTTPStatus.NO_CONTENT, "text", b""  # the trace has changed: ask again
        return HTTPStatus.NOT_FOUND, "text", b"tc-report: there is no such page; try /\n"

    def _from_here(self) -> bool:
        """Whether it was asked by the name of this machine, from a page that this server sent.

        A page of somebody else whose name is made to mean this machine has its own name here.
        """
        try:
            host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
        except ValueError:
            return False
        navigated = self.headers.get("Sec-Fetch-Mode", "navigate") == "navigate"
        site = self.headers.get("Sec-Fetch-Site", "none")
        return host in _NAMES and (navigated or site in ("none", "same-origin"))


def serve(path: str, *, port: int | None = None, all_runs: bool = False, show: bool = True) -> int:
    """Serve the page of a trace that may still grow, until Ctrl-C.

    Args:
        port: None takes the usual one, or any that is free.
        show: open the page in a browser, where there is a screen.

    Raises:
        Usage: the port is taken.
    """
    gc.enable()  # this program keeps running
    follower = Follower(path, all_runs=all_runs)
    server = opened(port, follower)
    url = f"http://{HOST}:{server.server_address[1]}/"
    reading = threading.Thread(target=follower.run, name="tc-report read", daemon=True)
    try:
        reading.start()
        print(f"tc-report: serving {path} at {url} (Ctrl-C ends it)", flush=True)
        if show:
            _show(url)
        server.serve_forever()
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        follower.stop()
        server.server_close()
    return INTERRUPTED


def opened(port: int | None, follower: Follower) -> Server:
    """Return a server at a port.

    Raises:
        Usage: the port is taken.
    """
    try:
        return Server(PORT if port is None else port, follower)
    except OSError as error:
        if port is None:
            return Server(0, follower)
        why = (error.strerror or str(error)).lower()
        raise Usage(f"cannot serve at port {port}: {why}; choose another one with --port") from None


def _show(url: str) -> None:
    """Open a browser; one that is a terminal's would take the terminal."""
    import webbrowser

    if sys.platform != "linux" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(url)
