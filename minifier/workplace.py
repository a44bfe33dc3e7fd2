"""Where a run of the tools happens: its own folder and caches, and a guardian that ends it.

The guardian is a small process that waits for the end of a pipe. However this process ends, by
itself, by a signal or killed, the guardian ends every process that was started below it and removes
the folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from types import TracebackType
from typing import Final

from tc.minifier.caches import CACHES, FIRST, caches_in
from tc.minifier.mirror import Mirror

MARK: Final = "TC_MINIFY_RUN"  # in the environment of every process below
GUARDIAN: Final = r"""
import os, shutil, signal, sys, time
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
mark, folder = sys.argv[1].encode(), sys.argv[2]
while os.read(0, 4096):
    pass
def marked():
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open("/proc/" + name + "/environ", "rb") as file:
                    if mark in file.read().split(b"\0"):
                        yield int(name)
            except OSError:
                pass
deadline = time.monotonic() + 10
while (found := list(marked())) and time.monotonic() < deadline:
    for pid in found:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    time.sleep(0.01)
shutil.rmtree(folder, ignore_errors=True)
"""


class Workplace:
    """A folder that is gone afterwards, throw-away caches in it, and no process left behind.

    Attributes:
        folder: for files of this run.
        own_caches: what the caches' variables were; a missing name was not set.
    """

    def __init__(self, tool: str, keep_caches: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"{tool}-"))
        self.mirrors: dict[str, Mirror] = {}
        self.before = dict(os.environ)
        self.own_caches = {name: self.before[name] for name in CACHES if name in self.before}
        self.keep_caches = keep_caches
        mark = f"{MARK}={uuid.uuid4().hex}"
        self.guardian = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", GUARDIAN, mark, str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.environ[MARK] = mark.partition("=")[2]
        temporary = self.folder / "tmp"
        temporary.mkdir()
        os.environ["TMPDIR"] = str(temporary)
        tempfile.tempdir = None  # it is read again
        if not keep_caches:
            os.environ.update(caches_in(self.folder / "cache"))
            os.environ[FIRST] = str(self.folder / "cache")

    def scratch(self, name: str) -> Path:
        """Return a folder that shows what is in the working directory.

        A program that reads its data there finds it, and what it writes is gone afterwards.
        """
        return self.shown(name, Path.cwd())

    def shown(self, name: str, folder: Path, without: str = "") -> Path:
        """Return a folder that shows what is in another one, but for one name."""
        mirror = self.mirrors.get(name)
        if mirror is None or (mirror.folder, mirror.without) != (folder, without):
            mirror = self.mirrors[name] = Mirror(self.folder / name, folder, without)
        return mirror.ready()

    def __enter__(self) -> Workplace:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all that was started here, and remove the folder."""
        for name in (MARK, FIRST, "TMPDIR", *CACHES):
            if name in self.before:
                os.environ[name] = self.before[name]
            else:
                os.environ.pop(name, None)
        tempfile.tempdir = None
        assert self.guardian.stdin is not None
        self.guardian.stdin.close()
        self.guardian.wait()
