"""The checks of a release; with `--tag` the tag as well.

    python bench/release.py            what would be tagged, or what is in the way
    python bench/release.py --tag

Goes in: a clone with its packages in `dist/` (`make packages`). Comes out: the tag `v0.2.0` that
points to what was built, or one sentence for each thing that is in the way, and exit code 1.
Nothing is sent anywhere: pushing the tag and uploading the packages stay with the one who releases.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
_RELEASES: Final = re.compile(r"(?m)^## \[([^\]]+)\](?: - (\d{4}-\d{2}-\d{2}))?$")


def git(root: Path, *arguments: str) -> str:
    """Return what git prints."""
    done = subprocess.run(("git", *arguments), cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def version_of(root: Path) -> str:
    """Return the version that pyproject.toml has."""
    version: str = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    return version


def texts_in_the_way(root: Path) -> Iterator[str]:
    """Yield where the texts of the repository disagree about the version."""
    version = version_of(root)
    named = re.search(r'__version__ = "(.+)"', (root / "tc/__init__.py").read_text("utf-8"))
    if named is None or named[1] != version:
        yield f"tc/__init__.py names another version than {version}, that of pyproject.toml"
    changes = (root / "CHANGELOG.md").read_text("utf-8")
    releases = [(found[1], found[2], found.end()) for found in _RELEASES.finditer(changes)]
    if [name for name, _, _ in releases[:2]] != ["Unreleased", version]:
        yield f"CHANGELOG.md must begin with Unreleased, then {version}"
        return
    (_, _, start), (_, date, _) = releases[:2]
    if changes[start : changes.index("## [", start)].strip():
        yield f"CHANGELOG.md has lines under Unreleased: they belong to {version} or to a later one"
    if not date:
        yield f"CHANGELOG.md has no date at {version}: ## [{version}] - YYYY-MM-DD"
    citation = (root / "CITATION.cff").read_text("utf-8")
    if f"\nversion: {version}\n" not in citation or f'date-released: "{date}"' not in citation:
        yield f"CITATION.cff has another version or date than CHANGELOG.md ({version}, {date})"


def state_in_the_way(root: Path) -> Iterator[str]:
    """Yield what speaks against a tag at the commit that is checked out."""
    tag = f"v{version_of(root)}"
    if git(root, "tag", "--list", tag):
        yield f"the tag {tag} exists already: raise the version"
    if changed := git(root, "status", "--porcelain"):
        yield f"files are changed or new: commit them ({changed.splitlines()[0].strip()}, ...)"
    for name in (f"tc_compile-{version_of(root)}-py3-none-any.whl",
                 f"tc_compile-{version_of(root)}.tar.gz"):  # fmt: skip
        package = root / "dist" / name
        if not package.exists():
            yield f"dist/{name} is not there: make packages"
        elif package.stat().st_mtime < int(git(root, "log", "-1", "--format=%ct")):
            yield f"dist/{name} is older than the last commit: make packages"


def main(argv: Sequence[str] | None = None) -> int:
    """Check, and set the tag where that is asked for."""
    parser = argparse.ArgumentParser(prog="release.py")
    parser.add_argument("--tag", action="store_true", help="set the tag (default: only check)")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    root: Path = options.root
    found = [*texts_in_the_way(root), *state_in_the_way(root)]
    for sentence in found:
        print(f"release: {sentence}", file=sys.stderr)
    if found:
        return 1
    tag, commit = f"v{version_of(root)}", git(root, "rev-parse", "--short", "HEAD")
    if not options.tag:
        print(f"release: nothing is in the way; TAG=yes sets the tag {tag} at {commit}")
        return 0
    git(root, "tag", "--annotate", tag, "--message", f"tc {version_of(root)}")
    print(f"release: {tag} is at {commit}; push it, and upload dist/ with twine")
    return 0


if __name__ == "__main__":
    sys.exit(main())
