"""The script of `make packages`: what it builds is complete, and its checks find what is wrong."""

from __future__ import annotations

import importlib.util
import io
import sys
import tarfile
from pathlib import Path

import packages
import pytest
from support import ROOT


def archive(path: Path, names: list[str]) -> Path:
    """An archive of a source distribution with empty files of these names."""
    with tarfile.open(path, "w:gz") as packed:
        for name in names:
            packed.addfile(tarfile.TarInfo(f"tc_compile-0/{name}"), io.BytesIO())
    return path


def test_an_archive_is_held_against_the_clone(tmp_path: Path) -> None:
    whole = archive(tmp_path / "a.tar.gz", ["README.md", "PKG-INFO", "tc_compile.egg-info/x"])
    assert packages.differences(whole, ["README.md"]) == []
    assert packages.differences(whole, ["README.md", "docs/a.md"]) == ["-docs/a.md"]
    assert packages.differences(whole, []) == ["+README.md"]


def test_the_files_of_a_clone_leave_links_out() -> None:
    names = set(packages.files_of_clone(ROOT))
    assert {"tests/support.py", "docs/logs.md", "CHANGELOG.md", "tc/py.typed"} <= names
    assert not {name for name in names if name.startswith(("tc/compiler", ".venv"))}


@pytest.mark.parametrize(
    "command, how, why",
    [
        (("-c", "raise SystemExit(3)"), {}, "exits 3, not 0"),
        (("-c", "print('no')"), {"says": "yes"}, "does not say 'yes'"),
        (("-c", ""), {"code": 2}, "exits 0, not 2"),
    ],
)
def test_a_command_that_does_something_else_fails_the_check(
    command: tuple[str, ...], how: dict[str, object], why: str, tmp_path: Path
) -> None:
    with pytest.raises(packages.Failed, match=why):
        packages.run(sys.executable, *command, cwd=tmp_path, **how)  # type: ignore[arg-type]


@pytest.mark.slow
def test_both_packages_install_and_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for needed in ("build", "twine", "check_wheel_contents"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed (make packages installs it)")
    code = packages.main(["--out", str(tmp_path / "dist")])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    assert printed.out.count("installed and run") == 2
