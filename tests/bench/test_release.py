"""The checks of a release: a sound clone gets its tag, and each thing in the way is named."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import release
from support import ROOT

CHANGES = "# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2026-01-02\n\n- New.\n"
CITATION = 'title: tc\nversion: 1.2.0\ndate-released: "2026-01-02"\n'
PACKAGES = ("tc_compile-1.2.0.tar.gz", "tc_compile-1.2.0-py3-none-any.whl")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with one commit and its packages, in which nothing is in the way of a release."""
    texts = {
        "pyproject.toml": '[project]\nversion = "1.2.0"\n',
        "tc/__init__.py": '__version__ = "1.2.0"\n',
        "CHANGELOG.md": CHANGES,
        "CITATION.cff": CITATION,
        ".gitignore": "dist/\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    release.git(tmp_path, "init", "-q")
    release.git(tmp_path, "config", "user.email", "someone@example.com")
    release.git(tmp_path, "config", "user.name", "someone")
    commit(tmp_path)
    (tmp_path / "dist").mkdir()
    for name in PACKAGES:
        (tmp_path / "dist" / name).touch()
    return tmp_path


def commit(clone: Path) -> None:
    release.git(clone, "add", "-A")
    release.git(clone, "commit", "-qm", "x")


def test_nothing_in_the_way_is_said_and_no_tag_is_set(
    clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert release.main(["--root", str(clone)]) == 0
    assert "nothing is in the way; TAG=yes sets the tag v1.2.0" in capsys.readouterr().out
    assert release.git(clone, "tag") == ""


def test_the_tag_is_set_once(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert release.main(["--root", str(clone), "--tag"]) == 0
    assert release.git(clone, "rev-parse", "v1.2.0^{commit}") == release.git(
        clone, "rev-parse", "HEAD"
    )
    assert release.main(["--root", str(clone), "--tag"]) == 1
    assert "the tag v1.2.0 exists already: raise the version" in capsys.readouterr().err


WRONG = [
    ("tc/__init__.py", "1.2.0", "1.1.0", "tc/__init__.py names another version"),
    ("CHANGELOG.md", "[1.2.0]", "[1.3.0]", "CHANGELOG.md must begin with Unreleased, then 1.2.0"),
    ("CHANGELOG.md", "ed]\n", "ed]\n\n- More.\n", "CHANGELOG.md has lines under Unreleased"),
    ("CHANGELOG.md", " - 2026-01-02", "", "CHANGELOG.md has no date at 1.2.0"),
    ("CITATION.cff", "2026-01-02", "2026-01-01", "CITATION.cff has another version or date"),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize("name, old, new, why", WRONG, ids=[row[3] for row in WRONG])
def test_what_is_in_the_way_is_named(
    name: str, old: str, new: str, why: str, clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (clone / name).read_text()
    assert old in text
    (clone / name).write_text(text.replace(old, new))
    commit(clone)
    for package in PACKAGES:
        (clone / "dist" / package).touch()
    assert release.main(["--root", str(clone), "--tag"]) == 1
    assert why in capsys.readouterr().err
    assert release.git(clone, "tag") == ""


def test_the_tag_is_of_what_was_built(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (clone / "new.py").touch()
    (clone / "dist" / PACKAGES[0]).unlink()
    os.utime(clone / "dist" / PACKAGES[1], (0, 0))
    assert release.main(["--root", str(clone)]) == 1
    said = capsys.readouterr().err
    assert "files are changed or new: commit them (?? new.py, ...)" in said
    assert f"dist/{PACKAGES[0]} is not there: make packages" in said
    assert f"dist/{PACKAGES[1]} is older than the last commit" in said


def test_the_texts_of_this_repository_name_one_version() -> None:
    version = release.version_of(ROOT)
    said = [one for one in release.texts_in_the_way(ROOT) if "under Unreleased" not in one]
    assert said == []
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)


def test_the_hosted_workflow_runs_the_script_of_ci() -> None:
    text = (ROOT / ".github/workflows/ci.yml").read_text()
    assert "- run: bash .ci/run\n" in text
    done = subprocess.run(["bash", "-n", ".ci/run"], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0
    form = (ROOT / ".github/ISSUE_TEMPLATE/1-wrong.yml").read_text()
    assert "tc-minify --issue" in form
