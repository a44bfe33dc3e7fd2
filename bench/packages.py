"""The wheel and the source archive: built, checked, and installed where nothing else is.

    python bench/packages.py                                  into dist/, installed with this Python
    python bench/packages.py --python python3.12 --python python3.13
    python bench/packages.py --with-torch                     the demo too, by an installed wheel

Goes in: a clone. Comes out: `dist/`, or one sentence that names the check that failed and exit code
1. The archive must hold every file of the clone, the wheel is built from the archive, and each of
the two is installed into environments of its own, from the index that pip is set up with. There
the four commands run away from the checkout: without torch, and with it where that is asked for.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from real_traces import unpacked

ROOT: Final = Path(__file__).resolve().parent.parent
COMMANDS: Final = ("tc-report", "tc-tui", "tc-minify", "tc-bisect")
#: what the build adds to the files of a clone
_ADDED: Final = ("PKG-INFO", "setup.cfg", "tc_compile.egg-info/")
_SENTENCE: Final = "torch is not installed"
# A trace written and read without torch.
_WRITE: Final = """
from tc.trace.events import FrameStart, Metrics, Stamped
from tc.trace.ids import CompileId
from tc.trace.places import StackFrame
from tc.trace.writer import TraceWriter

writer = TraceWriter("tc_trace")
for event in (
    FrameStart((StackFrame("model.py", 3, "forward", "def forward(self, x):"),)),
    Metrics(compile_id="0/0", co_name="forward", co_filename="model.py"),
):
    writer.write(Stamped(event, CompileId(0, 0), 10**18, "model.py", 1))
writer.close()
"""


class Failed(Exception):
    """A check failed; the text says which, and what was seen."""


def run(*command: str | Path, cwd: Path, code: int = 0, says: str = "") -> str:
    """Run a command and return what it printed.

    Args:
        code: the exit code that it must have.
        says: what its output must hold.

    Raises:
        Failed: it has another exit code, or does not print that.
    """
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=1800,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    printed = done.stdout + done.stderr
    shown = " ".join(map(str, command))
    if done.returncode != code:
        raise Failed(f"{shown} exits {done.returncode}, not {code}:\n{printed[-3000:]}")
    if says not in printed:
        raise Failed(f"{shown} does not say {says!r}:\n{printed[-3000:]}")
    return printed


def files_of_clone(root: Path) -> Iterator[str]:
    """Yield the files of a clone that an archive can hold: those that git has or would take."""
    asked = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    listed = subprocess.run(asked, cwd=root, capture_output=True, text=True, check=True).stdout
    for name in sorted(set(listed.split("\0")) - {""}):
        path = root / name
        if path.is_file() and not path.is_symlink():
            yield name


def build(root: Path, target: Path, scratch: Path) -> tuple[Path, Path]:
    """Build the archive, and the wheel from it; return both.

    Raises:
        Failed: it cannot be built, or the archive is not what the clone is.
    """
    copy = scratch / "tree"
    files = list(files_of_clone(root))
    for name in files:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, copy / name)
    made = scratch / "dist"
    run(sys.executable, "-m", "build", "--outdir", made, copy, cwd=scratch)
    (archive,), (wheel,) = made.glob("*.tar.gz"), made.glob("*.whl")
    wrong = differences(archive, files)
    if wrong:
        raise Failed(f"{archive.name} is not the clone: {', '.join(wrong[:10])}")
    target.mkdir(exist_ok=True)
    for old in (*target.glob("tc_compile-*.whl"), *target.glob("tc_compile-*.tar.gz")):
        old.unlink()
    return (Path(shutil.copy2(archive, target)), Path(shutil.copy2(wheel, target)))


def differences(archive: Path, files: Sequence[str]) -> list[str]:
    """Return what an archive lacks (-) of these files, and what it holds besides (+)."""
    with tarfile.open(archive) as packed:
        held = {one.name.partition("/")[2] for one in packed.getmembers() if one.isfile()}
    held = {name for name in held if not name.startswith(_ADDED)}
    return [f"-{name}" for name in sorted(set(files) - held)] + [
        f"+{name}" for name in sorted(held - set(files))
    ]


def check(archive: Path, wheel: Path) -> None:
    """Let the tools of the trade look at both.

    Raises:
        Failed: they find a fault.
    """
    folder = wheel.parent
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, archive, cwd=folder)
    run(Path(sys.executable).with_name("check-wheel-contents"), wheel, cwd=folder)


def install(package: str, python: str, place: Path) -> Path:
    """Install a package into a fresh environment; return the folder of its programs."""
    run(python, "-m", "venv", place, cwd=place.parent)
    bin_folder = place / "bin"
    pip = (bin_folder / "python", "-m", "pip", "-q", "--disable-pip-version-check")
    run(*pip, "install", package, cwd=place.parent)
    run(*pip, "check", cwd=place.parent)
    return bin_folder


def without_torch(programs: Path, place: Path, traces: Path) -> None:
    """Run the four commands in an environment that has what a plain install brings.

    Raises:
        Failed: one does not do what it does with torch, or does not say that torch is missing.
    """
    python = programs / "python"
    run(python, "-c", "import torch", cwd=place, code=1, says="No module named 'torch'")
    run(python, "-c", "import tc; tc.compile", cwd=place, code=1, says=_SENTENCE)
    for command in COMMANDS:
        run(programs / command, "--help", cwd=place, says=command)
        run(programs / command, "--version", cwd=place)
    run(python, "-c", _WRITE, cwd=place)
    known = sorted(path for path in traces.glob("*") if path.is_dir())
    for trace in (place / "tc_trace", *known):
        page = place / f"{trace.name}.html"
        run(programs / "tc-report", trace, "-o", page, cwd=place)
        if "</html>" not in page.read_text("utf-8"):
            raise Failed(f"tc-report {trace} leaves half a page")
        run(programs / "tc-tui", trace, cwd=place)
    (place / "script.py").write_text("import torch\n", "utf-8")
    for command in ("tc-minify", "tc-bisect"):
        printed = run(programs / command, "script.py", cwd=place, code=2, says=_SENTENCE)
        if printed.count("\n") != 1:
            raise Failed(f"{command} without torch says more than one sentence:\n{printed}")


def with_torch(programs: Path, place: Path, archive: Path) -> None:
    """Run the demo as the archive has it, by the package that is installed.

    Raises:
        Failed: the demo fails, or runs from elsewhere.
    """
    with tarfile.open(archive) as packed:
        packed.extractall(place, filter="data")
    (demo,) = place.glob("tc_compile-*/examples/demo.py")
    python = programs / "python"
    home = run(python, "-c", "import tc; print(tc.__file__)", cwd=place)
    if not Path(home.strip()).is_relative_to(programs.parent):
        raise Failed(f"tc is taken from {home}")
    run(python, demo, "--out", "demo_out", cwd=place, says="eager, all 80 steps")


def main(argv: Sequence[str] | None = None) -> int:
    """Build, check and install; print a line for each step."""
    parser = argparse.ArgumentParser(prog="packages.py")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--python", action="append", default=[], help="also install with this one")
    parser.add_argument("--with-torch", action="store_true")
    options = parser.parse_args(argv)
    try:
        with tempfile.TemporaryDirectory(prefix="tc-packages-") as folder:
            scratch = Path(folder)
            archive, wheel = build(ROOT, options.out, scratch)
            check(archive, wheel)
            print(f"built and checked  {archive.name}, {wheel.name}")
            for number, python in enumerate((sys.executable, *options.python)):
                for package in (wheel, archive):
                    place = scratch / f"{number}-{package.suffix[1:]}"
                    place.mkdir()
                    programs = install(str(package), python, place / "venv")
                    without_torch(programs, place, unpacked())
                    print(f"installed and run  {package.name} with {python}, without torch")
                    if options.with_torch and package is wheel:
                        install(f"{package}[torch]", python, place / "venv")
                        with_torch(programs, place, archive)
                        print(f"installed and run  {package.name} with {python} and torch")
    except Failed as error:
        print(f"packages: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
