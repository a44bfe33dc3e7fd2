"""The generated statement at which a process dies: found by line numbers, in a process of its own.

The program is compiled again with debug information and run in a child that has `crash_site.c` as
its handler of deadly signals. The handler writes the stack; binutils' ``addr2line`` knows the line
of an instruction, and the generated source lies beside its library.
"""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_suffix(".c")
STACK: Final = "crash.stack"  # in the folder of a search
BUILT: Final = "crash.cache"
SECONDS: Final = 60
#: what generated C says above a kernel: an operation, and the line it comes from
ORIGIN: Final = re.compile(r"/\* .*?(\S+:\d+)(?: in \S+)? \*/")
#: values of ``TC_DEBUG_INFO``: statements one by one, and where that does not die, as optimised
LEVELS: Final = ("2", "1")


@dataclass(frozen=True)
class Site:
    """A statement of generated code.

    Attributes:
        kernel: the function it is in.
        file: name of the generated source.
        lines: of the program, that the kernel works for (``file:line``).
    """

    kernel: str
    file: str
    line: int
    text: str
    lines: tuple[str, ...]


# -- in the child ------------------------------------------------------------------------------
def watch(folder: Path, level: str) -> bool:
    """Note where this process dies from now on; returns False where that cannot be done.

    Kernels of this process know their lines, and lie in a folder that is still there later.
    """
    (folder / STACK).unlink(missing_ok=True)
    os.environ.update(TC_DEBUG_INFO=level, TC_CACHE_DIR=str(folder / BUILT),
                      TORCHINDUCTOR_CACHE_DIR=str(folder / BUILT))  # fmt: skip
    inductor = sys.modules.get("torch._inductor.config")
    if inductor is not None:  # it has read its variables already
        inductor.aot_inductor.debug_symbols = True
    library = folder / "crash_site.so"
    compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
    command = [*compiler, "-O1", "-fPIC", "-shared", str(SOURCE), "-o", str(library), "-ldl"]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
        watching: int = ctypes.CDLL(str(library)).watch_crashes(os.fsencode(folder / STACK))
    except (OSError, subprocess.SubprocessError):
        return False
    return watching == 0


# -- afterwards --------------------------------------------------------------------------------
def site_in(folder: Path) -> Site | None:
    """Return the innermost generated statement on the stack that a child has left."""
    path = folder / STACK
    if not path.exists():
        return None
    built = os.path.realpath(folder / BUILT) + os.sep
    for row in path.read_text(errors="replace").splitlines():
        file, offset, symbol = row.split("\t")
        if os.path.realpath(file).startswith(built):
            return _site(Path(file), int(offset, 16), symbol)
    return None


def _site(library: Path, offset: int, symbol: str) -> Site | None:
    command = ["addr2line", "-f", "-e", str(library), hex(offset)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.SubprocessError):
        return None
    function, _, place = done.stdout.partition("\n")
    file, _, rest = place.strip().rpartition(":")
    number = re.match(r"\d+", rest)
    source = next((one for one in (Path(file), library.with_suffix(".c")) if one.is_file()), None)
    if number is None or source is None or int(number[0]) == 0:
        return None
    lines = source.read_text(errors="replace").splitlines()
    line = int(number[0])
    if line > len(lines):
        return None
    kernel, start = _kernel_at(lines, line, symbol or function)
    return Site(kernel, source.name, line, lines[line - 1].strip(), tuple(_origins(lines, start)))


def _kernel_at(lines: list[str], line: int, symbol: str) -> tuple[str, int]:
    """Return the function that holds a line, and the line it begins at."""
    for number in range(line, 0, -1):
        found = re.match(r"(?:static |extern \"C\" +)*void (\w+)\(", lines[number - 1])
        if found:
            return found[1], number
    return symbol, line


def _origins(lines: list[str], start: int) -> list[str]:
    """Return the lines of the program that the comments above a function name."""
    found: list[str] = []
    for text in reversed(lines[: start - 1]):
        if not text.startswith("/*"):
            break
        found += ORIGIN.findall(text)
    return list(dict.fromkeys(reversed(found)))


def described(site: Site) -> Mapping[str, object]:
    """Return a site for scripts."""
    return {"kernel": site.kernel, "source": site.file, "source_line": site.line,
            "statement": site.text}  # fmt: skip
