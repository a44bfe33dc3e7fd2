"""The build cache: hits, broken files, kills, two processes, missing and broken compilers."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tc.compiler.core import parts
from tc.compiler.errors import NoCompilerError, StageError
from tc.compiler.runtime import bounded
from tc.compiler.runtime import build as build_module
from tc.compiler.runtime.build import (
    SIMPLER,
    build,
    build_kernels,
    find_compiler,
    kernel_flags,
    key_of,
)
from tc.compiler.runtime.mapping import Library
from tc.compiler.runtime.places import STALE_SECONDS
from tc.compiler.runtime.store import name_of, unsealed

ROOT = Path(__file__).resolve().parents[3]
SOURCE = "int answer(void) { return 42; }\n"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TC_FORCE_DISABLE_CACHES", raising=False)
    monkeypatch.delenv("CC", raising=False)
    return tmp_path / "cache"


def answer(library: Library) -> int:
    return library.open().answer()


def kept(library: Library) -> Path:
    """Return where a library lies in the cache."""
    assert library.path is not None
    return library.path


def intact(path: Path) -> bool:
    return unsealed(path.read_bytes(), name_of("lib", path.stem, ".so")) is not None


def script(text: str, cache: Path, *args: str) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TC_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", textwrap.dedent(text), *args]
    return subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_builds_once(monkeypatch):
    library = build_kernels(SOURCE)
    assert answer(library) == 42
    monkeypatch.setattr(build_module, "_compiled", lambda *a: pytest.fail("compiled again"))
    assert build_kernels(SOURCE) == library


def test_key_holds_source_flags_and_compiler(monkeypatch):
    flags = ("-shared", "-fPIC")
    names = {
        build(SOURCE, flags).name,
        build(SOURCE + " ", flags).name,
        build(SOURCE, (*flags, "-O1")).name,
        build(SOURCE, flags, salt="other").name,
    }
    monkeypatch.setattr(build_module, "cpu_identity", lambda: "another machine")
    names.add(build(SOURCE, flags).name)
    assert len(names) == 5


@pytest.mark.sample(3)
@pytest.mark.parametrize("damage", ["cut", "empty", "flip", "text", "of another name"])
def test_broken_library_is_built_again(damage):
    library = build_kernels(SOURCE)
    path = kept(library)
    content = path.read_bytes()
    broken = {
        "cut": content[:-100],
        "empty": b"",
        "flip": content[:500] + bytes([content[500] ^ 1]) + content[501:],
        "text": b"not a library",
        "of another name": kept(build_kernels(numbered(0))).read_bytes(),
    }[damage]
    path.unlink()
    path.write_bytes(broken)
    assert not intact(path)
    assert build_kernels(SOURCE) == library
    assert path.read_bytes() == content


def test_disabled_caches_leave_nothing(own_cache, monkeypatch):
    monkeypatch.setenv("TC_FORCE_DISABLE_CACHES", "1")
    assert answer(build_kernels(SOURCE)) == 42
    assert not own_cache.exists()


def test_stale_leavings_are_swept(own_cache):
    (own_cache / "tmp").mkdir(parents=True)
    old, young = own_cache / "tmp" / "old.so", own_cache / "tmp" / "young.so"
    for path in (old, young):
        path.write_bytes(b"")
    past = time.time() - STALE_SECONDS - 10
    os.utime(old, (past, past))
    build_kernels(SOURCE)
    assert not old.exists() and young.exists()


def test_a_gcc_that_does_not_know_a_tuning_flag_compiles_without_it(monkeypatch):
    monkeypatch.setattr(build_module, "NO_GATHERS", "-mtune-ctrl=^of_no_such_name")
    flags = (*kernel_flags(find_compiler()), "-mtune-ctrl=^of_no_such_name")
    assert answer(build(SOURCE, flags)) == 42


@pytest.mark.parametrize("needed", SIMPLER)
def test_a_compiler_that_fails_inside_of_itself_is_asked_for_simpler_code(
    tmp_path, monkeypatch, needed
):
    real = find_compiler().command[0]
    fails = tmp_path / "cc"
    fails.write_text(
        f"#!/bin/sh\n"
        f'case "$*" in *--version*|*{needed}*) exec {real} "$@";; esac\n'
        f'echo "internal compiler error: in extract_insn" >&2; exit 1\n'
    )
    fails.chmod(0o755)
    monkeypatch.setenv("CC", str(fails))
    assert answer(build_kernels(SOURCE)) == 42


def test_missing_compiler_is_one_sentence(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(StageError, match=r"'no-such-compiler' is not on PATH.*suppress_errors"):
        build_kernels(SOURCE)


def test_no_gcc_on_path(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NoCompilerError, match=r"none of gcc, clang is on PATH.*set CC"):
        build_kernels(SOURCE)


@pytest.mark.parametrize("name", ["gcc", "clang"])
def test_the_compiler_that_is_there_is_taken(name, tmp_path, monkeypatch):
    (tmp_path / name).symlink_to("/bin/true")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_compiler().command == (name,)


def test_broken_compiler_is_one_sentence(tmp_path, monkeypatch):
    fake = tmp_path / "cc"
    fake.write_text("#!/bin/sh\necho 'cc1: error: no more disk' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("CC", str(fake))
    with pytest.raises(StageError, match=r"failed on .*\.c: cc1: error: no more disk"):
        build_kernels(SOURCE)
    fake.write_bytes(b"\x7fELF nonsense")
    with pytest.raises(StageError, match="could not be run"):
        build_kernels(SOURCE)


def test_refused_source_names_the_file():
    with pytest.raises(StageError, match=r"\.c: .*error"):
        build_kernels("int f( {")


LONG = parts.grouped(
    "static inline int twice(int x) { return 2 * x; }",
    [f"int f{i}(void) {{ return twice({i}); }} /* {'-' * parts.GROUP} */" for i in range(5)],
)


@pytest.mark.parametrize("cores", (1, 2, 3, 16))
def test_parts_of_a_long_file_are_compiled_by_several_runs(monkeypatch, cores):
    monkeypatch.setattr(build_module, "cores", lambda: cores)
    runs, start = [], build_module._start
    monkeypatch.setattr(
        build_module,
        "_start",
        lambda command, folder: (runs.append(command), start(command, folder))[1],
    )
    opened = build_kernels(LONG).open()
    assert [opened[f"f{i}"]() for i in range(5)] == [0, 2, 4, 6, 8]
    assert len(runs) == (1 if cores == 1 else min(cores, 5) + 1)  # the last one links


def test_an_error_in_a_part_is_reported_and_leaves_no_file(monkeypatch, tmp_path):
    monkeypatch.setattr(build_module, "cores", lambda: 3)
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(build_module.scratch, "folders", lambda *more: iter([folder]))
    with pytest.raises(StageError, match=r"\.c: .*error"):
        build_kernels(LONG.replace("twice(3)", "twice("))
    assert list(folder.iterdir()) == []


def test_openmp_is_not_linked():
    library = build_kernels(
        "void f(float *x, int n) {\n#pragma omp parallel for\n"
        "for (int i = 0; i < n; i++) x[i] = 1; }"
    )
    content = library.content
    assert b"GOMP_parallel" in content and b"libgomp" not in content
    assert "-Wp,-fopenmp" in kernel_flags(find_compiler())


BUILD_LOOP = """
    import sys
    from tc.compiler.runtime.build import build_kernels
    print("ready", flush=True)
    for i in range(int(sys.argv[1])):
        build_kernels(f"int answer(void) {{ return {i}; }}")
    print("done")
"""


@pytest.mark.parametrize(
    "delays",
    [(0.08, 0.5), pytest.param((0.0, 0.02, 0.05, 0.08, 0.12, 0.2, 0.3), marks=pytest.mark.slow)],
)
def test_kills_at_any_time_leave_a_sound_cache(own_cache, delays):
    for delay in delays:
        process = script(BUILD_LOOP, own_cache, "1000")
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
    libraries = list(own_cache.glob("lib/*/*.so"))
    assert libraries and all(intact(library) for library in libraries)
    for i in range(len(libraries) + 2):
        assert answer(build_kernels(f"int answer(void) {{ return {i}; }}")) == i


@pytest.mark.slow
def test_two_processes_build_the_same(own_cache):
    processes = [script(BUILD_LOOP, own_cache, "6") for _ in range(3)]
    for process in processes:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0 and out == "ready\ndone\n", err
    libraries = list(own_cache.glob("lib/*/*.so"))
    assert len(libraries) == 6 and all(intact(library) for library in libraries)
    assert not list((own_cache / "tmp").iterdir())


def numbered(i: int) -> str:
    """Sources of the same size, whose libraries lie in any folder."""
    return f"int answer(void) {{ return 1{i:04}; }}\n"


def test_the_folder_is_bounded_and_what_was_used_stays(own_cache, monkeypatch):
    first = kept(build_kernels(SOURCE))
    compiler = find_compiler()
    parts = (*kernel_flags(compiler), "-lm", "")
    keys = ((i, key_of(compiler, numbered(i), *parts)) for i in range(10_000))
    same = [i for i, key in keys if key.startswith(first.parent.name)][:3]
    each = first.stat().st_size + 40
    monkeypatch.setattr(bounded, "LIMIT", int(3.5 * each) * bounded.FOLDERS)
    made = [kept(build_kernels(numbered(i))) for i in same[:2]]
    for age, library in enumerate((first, *made)):
        for path in (library, library.with_suffix(".c")):
            os.utime(path, (1000 + age, 1000 + age))
    assert kept(build_kernels(SOURCE)) == first  # used just now
    last = kept(build_kernels(numbered(same[2])))
    assert [p.exists() for p in (first, *made, last)] == [True, False, True, True]
    assert {p.stem for p in first.parent.iterdir()} == {p.stem for p in (first, made[1], last)}
    assert answer(build_kernels(numbered(same[0]))) == 10_000 + same[0]


def test_a_library_larger_than_the_bound_stays_while_it_is_young(monkeypatch):
    monkeypatch.setattr(bounded, "LIMIT", bounded.FOLDERS)
    assert answer(build_kernels(SOURCE)) == 42


def test_a_library_that_vanishes_before_it_is_opened_is_opened(own_cache):
    library = build_kernels(SOURCE)
    shutil.rmtree(own_cache)
    assert answer(library) == 42


SHRINKING = """
    import ctypes, sys
    from tc.compiler.runtime import bounded
    from tc.compiler.runtime.build import build_kernels
    bounded.LIMIT, bounded.YOUNG_SECONDS = 1, 0.2
    from tc.compiler.runtime.load import open_kernels
    from tc.compiler.core.artifacts import KernelSpec
    print("ready", flush=True)
    for i in range(int(sys.argv[1])):
        name = f"f{i % 5}"
        assert open_kernels(f"void {name}(void) {{}}", [KernelSpec(name, ())], {})
    print("done")
"""


@pytest.mark.slow
def test_processes_that_remove_each_others_libraries(own_cache):
    processes = [script(SHRINKING, own_cache, "12") for _ in range(2)]
    for process in processes:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0 and out == "ready\ndone\n", err
