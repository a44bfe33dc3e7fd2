"""The wheel holds the whole product, and what it installs works away from the checkout."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import house
import pytest
from support import ROOT, succeed

import tc

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PROJECT["tool"]["setuptools"]
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "*_cache", "__pycache__", "*.egg-info", "demo_out", "build", ".hypothesis"
)


def packaging(root: Path) -> Iterator[str]:
    """What pyproject.toml lists is what the folders hold, and the links of `tc/` lead to them."""
    listed, places = set(SETUPTOOLS["packages"]), SETUPTOOLS["package-dir"]
    folders = {"tc"}
    for package in house.PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            inner = path.parent.relative_to(root)
            folders.add(".".join(("tc", *inner.parts)))
            if not (path.parent / "__init__.py").exists():
                yield f"{inner.as_posix()} has no __init__.py"
        if (root / "tc" / package).resolve() != (root / package).resolve():
            yield f"tc/{package} is no link to ../{package}"
        if places.get(f"tc.{package}") != package:
            yield f"package-dir lacks tc.{package}"
    yield from (f"packages lacks {name!r}" for name in sorted(folders - listed))
    yield from (f"packages lists {name!r}: no such folder" for name in sorted(listed - folders))


def test_packages_are_the_folders() -> None:
    assert not list(packaging(ROOT))


def pip(*arguments: str) -> None:
    """Run pip without the network."""
    command = [sys.executable, "-m", "pip", "-qq", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the tree, so that the checkout stays clean."""
    place = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, place / "tree", symlinks=True, ignore=LEFT_OUT)
    pip("wheel", "--no-deps", "--no-build-isolation", "-w", str(place), str(place / "tree"))
    (built,) = place.glob("tc_compile-*.whl")
    return built


def test_wheel_holds_every_source_file(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    expected = {"tc/__init__.py", "tc/py.typed"}
    for package in house.PACKAGES:
        for path in (ROOT / package).rglob("*"):
            inside = path.relative_to(ROOT).as_posix()
            for_users = path.suffix != ".LICENSE" and path.name != "ruff.toml"
            if path.is_file() and "__pycache__" not in inside and for_users:
                expected.add(f"tc/{inside}")
    assert expected <= packed, sorted(expected - packed)
    extra = {name for name in packed - expected if ".dist-info/" not in name}
    assert not extra
    licences = {name.partition("/licenses/")[2] for name in packed} - {""}
    vendored = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tlparse").rglob("*.LICENSE")}
    assert vendored and licences == {"LICENSE", *vendored}


def test_installed_wheel_works_from_anywhere(wheel: Path, tmp_path: Path) -> None:
    pip("install", "--no-deps", "--no-compile", "--target", str(tmp_path / "site"), str(wheel))
    variables = {"PYTHONPATH": str(tmp_path / "site")}
    where = succeed("-c", "import tc; print(tc.__file__)", cwd=tmp_path, variables=variables)
    assert Path(where.strip()).is_relative_to(tmp_path)
    said = succeed("-m", "tc.tlparse", "--help", cwd=tmp_path, variables=variables)
    assert "tc-report" in said


def test_versions_agree() -> None:
    assert PROJECT["project"]["version"] == tc.__version__
    assert f"## [{tc.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_every_requirement_is_constrained() -> None:
    pinned = set(re.findall(r"(?m)^([a-z0-9-]+)==", (ROOT / "constraints.txt").read_text()))
    extras = PROJECT["project"]["optional-dependencies"].values()
    wanted = [*PROJECT["project"]["dependencies"], *(name for extra in extras for name in extra)]
    names = {re.split(r"[<>=!~\[; ]", name)[0].lower() for name in wanted}
    assert names <= pinned, sorted(names - pinned)


def test_scripts_lead_somewhere() -> None:
    program = ""
    for name, target in PROJECT["project"]["scripts"].items():
        module, _, function = target.partition(":")
        assert (ROOT / Path(*module.split(".")[1:])).with_suffix(".py").exists(), name
        program += f"from {module} import {function}; assert callable({function})\n"
    succeed("-c", program)


def test_make_help_lists_the_documented_targets() -> None:
    if not shutil.which("make"):
        pytest.skip("make is not installed")
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True).stdout
    documented = set(re.findall(r"(?m)(?:`|^    )make ([a-z-]+)", (ROOT / "README.md").read_text()))
    assert {"demo", "test"} <= documented
    assert documented <= set(re.findall(r"make ([a-z-]+)", listed))
