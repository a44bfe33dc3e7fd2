"""Builds C source as a shared library, in a cache that survives killed processes.

One call of the C compiler per source (a long one: a call for each core, of a part), in a folder of
this process. A finished library is kept with a seal (`store`), so that whatever a crash, a full
disk or another program left in the cache is recognised before it is mapped, and built again.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tc.compiler.core.machine import caches, cores
from tc.compiler.core.parts import definitions, groups_of
from tc.compiler.errors import NoCompilerError, StageError
from tc.compiler.runtime import carried, claims, scratch
from tc.compiler.runtime.mapping import Library
from tc.compiler.runtime.places import TEMPORARY, Folder
from tc.compiler.runtime.store import name_of, sealed, store, unsealed

STAGE = "runtime.build"
#: C compilers that are looked for where `CC` names none, the first one first
DEFAULTS = ("gcc", "clang")
#: flags that make code for this machine alone
MACHINE_FLAGS = ("-march=", "-mprefer-vector-width=")
KERNEL_LIBRARIES = ("-lm",)
#: bytes that a folder for temporary files can take, if a failing compiler is not to blame it
SPACE = 16 << 20

KERNEL_FLAGS = (
    "-O3",
    "-march=native",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
    "-fPIC",
    "-shared",
)

#: what a compiler says that failed inside of itself, as gcc 12 does at vectors of int16 under a
#: mask, and flags under which it may not
OWN_FAULTS = ("internal compiler error", "bug report")
SIMPLER = ("-fno-tree-loop-vectorize", "-O1")

#: value of ``TC_DEBUG_INFO`` -> flags
DEBUG_FLAGS = {"1": ("-g",), "2": ("-g", "-Og")}

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
    "-fwrapv",
    # The processor defines float to integer conversion.
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


#: No gather instructions: gcc 12 uses them on CPUs where reads one by one take two thirds of the
#: time, as was measured on Zen 4; later versions avoid them on most.
NO_GATHERS = "-mtune-ctrl=^use_gather,^use_gather_2parts,^use_gather_4parts"


def kernel_flags(compiler: Compiler) -> tuple[str, ...]:
    """Return the flags kernels are compiled with on this machine.

    ``TC_SANITIZE=1`` builds kernels with sanitizers (`SANITIZED_FLAGS`); the process has to load
    gcc's libasan first, as under ``make sanitize``. ``TC_DEBUG_INFO=1`` adds line
    numbers, and ``2`` also leaves out what makes several statements one.
    """
    flags = list(SANITIZED_FLAGS if os.environ.get("TC_SANITIZE") == "1" else KERNEL_FLAGS)
    flags += DEBUG_FLAGS.get(os.environ.get("TC_DEBUG_INFO", ""), ())
    if " avx512f" in cpu_identity() and not compiler.is_clang:
        flags.append("-mprefer-vector-width=512")
    if platform.machine() == "x86_64" and not compiler.is_clang:
        flags.append(NO_GATHERS)
    # -Wp passes -fopenmp to the compiler proper but not to the linker: the GOMP_* symbols stay
    # undefined and bind to the OpenMP runtime that torch loaded, so there is never a second one.
    # clang knows no pragma for integers that wrap around (`core/c_helpers/prelude.h`).
    flags += ("-Wno-unknown-pragmas", "-fwrapv") if compiler.is_clang else ("-Wp,-fopenmp",)
    return tuple(flags)


def build_kernels(source: str, *, of_graph: bool = True) -> Library:
    """Compile the kernels of one graph, or find them in a file that was loaded, or in the cache.

    Args:
        of_graph: False for routines, which many graphs call.
    """
    carried.note_library(carried.Source(source, "", KERNEL_LIBRARIES, None, of_graph))
    found = carried.library(source)
    if found is not None:
        return found
    compiler = find_compiler()
    return _build(source, kernel_flags(compiler), KERNEL_LIBRARIES, "", compiler)


def build_for(source: str, level: str) -> Library:
    """Compile the kernels of one graph for a level of CPUs (a key of `carried.LEVELS`).

    Raises:
        StageError: no compiler, or it refuses the source.
    """
    compiler = find_compiler()
    flags = [flag for flag in kernel_flags(compiler) if not flag.startswith(MACHINE_FLAGS)]
    more = [flag for flag in carried.LEVELS[level][0] if flag.startswith("-march")]
    if not compiler.is_clang:
        more = list(carried.LEVELS[level][0])
    return _build(source, (*flags, *more), KERNEL_LIBRARIES, "", compiler)


def build(
    source: str,
    flags: tuple[str, ...],
    libraries: tuple[str, ...] = (),
    *,
    salt: str = "",
) -> Library:
    """Return a shared library made of ``source``, from a file or the cache if possible.

    Args:
        source: one C file that includes nothing outside the compiler's own search path.
        flags: flags before the source.
        libraries: linker arguments after it.
        salt: further dependencies of the library (a Python version, headers).

    Raises:
        StageError: no compiler, or it refuses the source.
    """
    carried.note_library(carried.Source(source, salt, libraries, flags))
    found = carried.library(source, salt)
    return found or _build(source, flags, libraries, salt, find_compiler())


def _build(
    source: str,
    flags: tuple[str, ...],
    libraries: tuple[str, ...],
    salt: str,
    compiler: Compiler,
) -> Library:
    """Return a shared library from the cache, else compiled.

    Of several processes that share a cache one calls the compiler, and the others wait for it.
    """
    key = key_of(compiler, source, *flags, *libraries, salt)
    kept = store()
    name = name_of("lib", key, ".so")

    def look() -> bytes | None:
        return kept.read(name, unsealed)

    content, claim = look(), None
    if content is None:
        content, claim = claims.turn(kept.place, name, look)
    try:
        if content is None:
            content = _compiled(source, key, compiler, flags, libraries)
            kept.write(name, sealed(content, name))
    finally:
        if claim is not None:
            claim.release()
    return Library(name, content, kept.path(name))


def key_of(compiler: Compiler, *parts: str) -> str:
    """Return the cache key of a compiler's output on this machine."""
    parts = (*parts, *compiler.command, compiler.identity, cpu_identity())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]


def _compiled(
    source: str, key: str, compiler: Compiler, flags: tuple[str, ...], libraries: tuple[str, ...]
) -> bytes:
    """Return the library that the compiler makes of a source."""
    shown = store().write_text(name_of("lib", key, ".c"), source.encode())
    command = (*compiler.command, *flags)
    parts = min(groups_of(source), cores())
    why: Exception | None = None
    for folder in scratch.folders(*_own_folder()):
        path, library = folder / f"{key}.c", folder / f"{key}.out"
        objects = [folder / f"{key}.{part}.o" for part in range(parts)] if parts > 1 else []
        try:
            path.write_bytes(source.encode())
            run = _run_parts(command, path, objects, folder)
            if run is None:
                inputs = map(str, objects or [path])
                run = _run((*command, *inputs, "-o", str(library), *libraries), folder)
            if run.returncode == 0:
                return library.read_bytes()
            others = _flags_instead(flags, run.stderr)
            if others is not None:
                return _compiled(source, key, compiler, others, libraries)
            if _has_space(folder):
                raise _refused(compiler, path, shown, run)
        except OSError as error:
            why = error
        finally:
            for left in (path, library, *objects):
                with suppress(OSError):
                    left.unlink()
    raise StageError(
        STAGE,
        f"The C compiler {shlex.join(compiler.command)!r} needs a folder for temporary files, and "
        f"there is none that has space ({why}). Set TMPDIR to a folder that can be written; "
        "tc.config.suppress_errors = True runs the function eagerly instead.",
    )


def _flags_instead(flags: tuple[str, ...], said: str) -> tuple[str, ...] | None:
    """Return the flags to try after a failure that is the compiler's own, not the source's."""
    if NO_GATHERS in flags and "mtune-ctrl" in said:  # this gcc names it otherwise
        return tuple(flag for flag in flags if flag != NO_GATHERS)
    left = [flag for flag in SIMPLER if flag not in flags]
    if left and any(words in said for words in OWN_FAULTS):
        return (*flags, left[0])
    return None


def _own_folder() -> tuple[Path, ...]:
    """Return the folder of the cache: a place for temporary files, if no better one has space."""
    place = store().place
    return (place.path(TEMPORARY),) if isinstance(place, Folder) else ()


def _run(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the compiler, whose temporary files go to a folder.

    Raises:
        StageError: it cannot be run.
    """
    with _start(command, folder) as process:
        return _finished(process)


def _run_parts(
    command: Sequence[str], source: Path, objects: Sequence[Path], folder: Path
) -> subprocess.CompletedProcess[str] | None:
    """Compile the parts of a file at once; return the first run that failed, if any.

    Raises:
        StageError: the compiler cannot be run.
    """
    with ExitStack() as started:
        processes = [
            started.enter_context(
                _start(
                    (
                        *command,
                        *definitions(part, len(objects)),
                        "-c",
                        str(source),
                        "-o",
                        str(made),
                    ),
                    folder,
                )
            )
            for part, made in enumerate(objects)
        ]
        runs = [_finished(process) for process in processes]
        return next((run for run in runs if run.returncode), None)


@contextmanager
def _start(command: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Start the compiler, whose temporary files go to a folder; it ends with the block.

    Raises:
        StageError: it cannot be run.
    """
    surroundings = {**os.environ, "TMPDIR": str(folder)}
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=surroundings)
    except OSError as error:
        raise StageError(
            STAGE,
            f"The C compiler {command[0]!r} could not be run ({error}). Install "
            "gcc or set CC to a C compiler; tc.config.suppress_errors = True runs eagerly instead.",
        ) from error
    with process:
        try:
            yield process
        finally:
            process.terminate()  # nothing, where it has ended; gcc removes its temporary files


def _finished(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """Wait for the compiler, and return how it ended."""
    out, said = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, out, said)


def _has_space(folder: Path) -> bool:
    """Return whether a failure of the compiler is not the fault of the folder it worked in."""
    probe = folder / "probe"
    try:
        probe.write_bytes(bytes(SPACE))
    except OSError:
        return False
    finally:
        with suppress(OSError):
            probe.unlink()
    return True


def _refused(
    compiler: Compiler, source: Path, shown: Path | None, run: subprocess.CompletedProcess[str]
) -> StageError:
    """Return the error: the compiler's first message, the path of the source, and what to do."""
    lines = [line for line in run.stderr.splitlines() if "error" in line] or run.stderr.splitlines()
    said = lines[0].strip() if lines else f"exit status {run.returncode}"
    shown = shown or source
    return StageError(
        STAGE,
        f"The C compiler {shlex.join(compiler.command)!r} failed on {shown}: "
        f"{said.replace(str(source), str(shown))}. If it cannot "
        "compile any file, install gcc or set CC; otherwise this is a bug of tc worth reporting. "
        "tc.config.suppress_errors = True runs the function eagerly instead.",
    )
