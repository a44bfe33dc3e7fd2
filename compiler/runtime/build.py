"""Builds C source as a shared library, in a cache that survives killed processes.

One call of the C compiler per source. A finished library carries a trailer with its own checksum,
so that whatever a crash, a full disk or another program left in the cache is recognised before it
is mapped, and built again. The folder is bounded (`bounded.py`).
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tc.compiler.core.machine import caches
from tc.compiler.core.once import once
from tc.compiler.errors import NoCompilerError, StageError
from tc.compiler.runtime import bounded

STAGE = "runtime.build"
#: C compilers that are looked for where `CC` names none, the first one first
DEFAULTS = ("gcc", "clang")
MAGIC = b"tc-library-1:"
TRAILER = len(MAGIC) + hashlib.sha256().digest_size
STALE_SECONDS = 24 * 3600

KERNEL_FLAGS = (
    "-O3",
    "-march=native",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
    "-fPIC",
    "-shared",
)


# A build for tests: kernels abort on out-of-bounds accesses and overflows.
SANITIZED_FLAGS = (
    "-O1",
    "-g",
    "-march=native",
    "-fno-math-errno",
    "-ffp-contract=off",
    "-fPIC",
    "-shared",
    "-fsanitize=address,undefined",
    # Integers wrap around as in eager; the processor defines float to integer conversion.
    "-fno-sanitize=signed-integer-overflow,shift,float-cast-overflow,float-divide-by-zero",
    "-fno-sanitize-recover=undefined",
)


@dataclass(frozen=True)
class Compiler:
    """A C compiler: the command, and an identification of its version."""

    command: tuple[str, ...]
    identity: str

    @property
    def is_clang(self) -> bool:
        """Whether the command is clang, whose OpenMP calls another runtime than torch's."""
        return "clang" in Path(self.command[-1]).name or "clang" in self.identity


def caches_disabled() -> bool:
    """Return whether the user asked that nothing be read from, or kept in, the cache."""
    return os.environ.get("TC_FORCE_DISABLE_CACHES") == "1"


def cache_dir() -> Path:
    """Return the cache's folder (``TC_CACHE_DIR``, else ``~/.cache/tc``), made if needed.

    With caches disabled, or if that folder is not writable, it is private to the process.
    """
    if caches_disabled():
        return _private_dir()
    chosen = os.environ.get("TC_CACHE_DIR")
    folder = Path(chosen) if chosen else Path.home() / ".cache" / "tc"
    try:
        (folder / "tmp").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if chosen:
            raise _cannot_write(folder, error) from error
        return _private_dir()
    return folder if os.access(folder / "tmp", os.W_OK) else _private_dir()


def _cannot_write(folder: Path, error: OSError) -> StageError:
    return StageError(
        STAGE,
        f"tc cannot write its cache to {folder} ({error.strerror}). "
        "Set TC_CACHE_DIR to a folder that can be written.",
    )


@once
def _private_dir() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="tc-")
    (Path(folder.name) / "tmp").mkdir()
    _KEEP_ALIVE.append(folder)
    return Path(folder.name)


_KEEP_ALIVE: list[tempfile.TemporaryDirectory[str]] = []  # removed when the process ends


def find_compiler() -> Compiler:
    """Return the compiler named by ``CC``, else gcc, else clang.

    Raises:
        NoCompilerError: the machine has none of these, and none was named.
        StageError: ``CC`` names none.
    """
    command = shlex.split(os.environ.get("CC", "")) or list(filter(shutil.which, DEFAULTS))[:1]
    if not command:
        raise NoCompilerError(
            STAGE,
            f"No C compiler: none of {', '.join(DEFAULTS)} is on PATH, and tc compiles its kernels "
            "with one. Install one, or set CC to another C compiler.",
        )
    found = [shutil.which(part) for part in command if not part.startswith("-")]
    if found[0] is None:
        raise StageError(
            STAGE,
            f"No C compiler: {command[0]!r} is not on PATH, and tc compiles its kernels with it. "
            "Set CC to a C compiler, or unset it for gcc or clang; "
            "tc.config.suppress_errors = True runs the function eagerly instead.",
        )
    # The binary's size and time identify its version: running it would cost a process.
    marks = []
    for path in filter(None, found):
        real = os.path.realpath(path)
        stat = os.stat(real)
        marks.append(f"{real}:{stat.st_size}:{stat.st_mtime_ns}")
    return Compiler(tuple(command), ";".join(marks))


@functools.cache
def cpu_identity() -> str:
    """Return what generated code depends on: the machine, its processor's features and caches."""
    text = f"{platform.machine()} {caches()}"
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            first = file.read(8192).split("\n\n")[0]
    except OSError:
        return f"{text} {platform.processor()}"
    wanted = ("vendor_id", "cpu family", "model", "flags", "Features", "CPU part")
    lines = [line for line in first.splitlines() if line.partition(":")[0].strip() in wanted]
    return "\n".join([text, *lines])


def kernel_flags(compiler: Compiler) -> tuple[str, ...]:
    """Return the flags kernels are compiled with on this machine.

    ``TC_SANITIZE=1`` builds kernels with sanitizers (`SANITIZED_FLAGS`); the process has to load
    gcc's libasan first, as under ``make sanitize``.
    """
    flags = list(SANITIZED_FLAGS if os.environ.get("TC_SANITIZE") == "1" else KERNEL_FLAGS)
    if " avx512f" in cpu_identity() and not compiler.is_clang:
        flags.append("-mprefer-vector-width=512")
    # -Wp passes -fopenmp to the compiler proper but not to the linker: the GOMP_* symbols stay
    # undefined and bind to the OpenMP runtime that torch loaded, so there is never a second one.
    flags.append("-Wno-unknown-pragmas" if compiler.is_clang else "-Wp,-fopenmp")
    return tuple(flags)


def build_kernels(source: str) -> Path:
    """Compile the kernels of one graph, or find them in the cache."""
    compiler = find_compiler()
    return build(source, kernel_flags(compiler), ("-lm",), compiler=compiler)


def build(
    source: str,
    flags: tuple[str, ...],
    libraries: tuple[str, ...] = (),
    *,
    salt: str = "",
    compiler: Compiler | None = None,
) -> Path:
    """Return a shared library made of ``source``, from the cache if possible.

    Args:
        source: one C file that includes nothing outside the compiler's own search path.
        flags: flags before the source.
        libraries: linker arguments after it.
        salt: further dependencies of the library (a Python version, headers).
        compiler: by default `find_compiler`.

    Raises:
        StageError: no compiler, or it refuses the source.
    """
    compiler = compiler or find_compiler()
    key = key_of(compiler, source, *flags, *libraries, salt)
    folder = cache_dir() / "lib" / key[:2]
    library = folder / f"{key}.so"
    if intact(library):
        bounded.touch(library)
        return library
    folder.mkdir(parents=True, exist_ok=True)
    _compile(source, folder / f"{key}.c", library, compiler, flags, libraries)
    bounded.shrink(folder)
    return library


def key_of(compiler: Compiler, *parts: str) -> str:
    """Return the cache key of a compiler's output on this machine."""
    parts = (*parts, *compiler.command, compiler.identity, cpu_identity())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]


def intact(library: Path) -> bool:
    """Return whether a library exists and is byte for byte as the compiler wrote it."""
    try:
        content = library.read_bytes()
    except OSError:
        return False
    return unsealed(content) is not None


def sealed(content: bytes) -> bytes:
    """Return content with a trailer that detects truncation and corruption."""
    return content + _trailer(content)


def unsealed(content: bytes) -> bytes | None:
    """Return the content that `sealed` was given, None if it is damaged."""
    body = content[:-TRAILER]
    return body if body and content[-TRAILER:] == _trailer(body) else None


def _trailer(content: bytes) -> bytes:
    return MAGIC + hashlib.sha256(content).digest()


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file atomically: other processes see all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=cache_dir() / "tmp", suffix=path.suffix)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    os.replace(name, path)


def _compile(
    source: str,
    source_path: Path,
    library: Path,
    compiler: Compiler,
    flags: tuple[str, ...],
    libraries: tuple[str, ...],
) -> None:
    """Compile to a temporary file, seal it with a checksum, move it into its place."""
    temporary = cache_dir() / "tmp"
    try:
        _sweep(temporary)
        write_atomically(source_path, source.encode())
        handle, name = tempfile.mkstemp(dir=temporary, suffix=".so")
        os.close(handle)
    except OSError as error:
        raise _cannot_write(temporary.parent, error) from error
    command = [*compiler.command, *flags, str(source_path), "-o", name, *libraries]
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise _refused(compiler, source_path, run)
        content = Path(name).read_bytes()
        with open(name, "ab") as file:
            file.write(_trailer(content))
        os.replace(name, library)
    except OSError as error:
        raise StageError(
            STAGE,
            f"The C compiler {shlex.join(compiler.command)!r} could not be run ({error}). Install "
            "gcc or set CC to a C compiler; tc.config.suppress_errors = True runs eagerly instead.",
        ) from error
    finally:
        Path(name).unlink(missing_ok=True)


def _refused(compiler: Compiler, source: Path, run: subprocess.CompletedProcess[str]) -> StageError:
    """Return the error: the compiler's first message, the path of the source, and what to do."""
    lines = [line for line in run.stderr.splitlines() if "error" in line] or run.stderr.splitlines()
    said = lines[0].strip() if lines else f"exit status {run.returncode}"
    return StageError(
        STAGE,
        f"The C compiler {shlex.join(compiler.command)!r} failed on {source}: {said}. If it cannot "
        "compile any file, install gcc or set CC; otherwise this is a bug of tc worth reporting. "
        "tc.config.suppress_errors = True runs the function eagerly instead.",
    )


def _sweep(temporary: Path) -> None:
    """Remove old temporary files of processes that were killed."""
    limit = time.time() - STALE_SECONDS
    for entry in os.scandir(temporary):
        try:
            if entry.stat().st_mtime < limit:
                os.unlink(entry.path)
        except OSError:
            continue  # another process was faster
