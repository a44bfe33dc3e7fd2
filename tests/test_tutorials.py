"""What docs/tutorials/ say to do is done, in a copy of the repository, as it is written there.

Programs of the other pages of the site print what stands below them.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import make_examples
import pytest
from support import ROOT, own_cache, python

PAGES = sorted((ROOT / "docs/tutorials").glob("*.md"))
SITE = make_examples.pages()
WITH_COMMANDS = [path for path in SITE if "```console" in path.read_text("utf-8")]
# What differs from run to run and from machine to machine: times and rates, hashes, blanks.
VARYING = re.compile(
    r"(?:\d+m)?\d[\d.,]* ?(?:(?:ms|µs|s|GB/s|GFLOP/s)\b|%)|(?<=×)\d+|"
    r"\b[0-9a-f]{8,}\b|-[0-9a-f]{4}\b|(?<=line )\d+"
)
VERSIONS = re.compile(r"(tc|torch|Python) \d[\w.+]*")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Bytecode is copied with its source's time: what the page edits is compiled again, the rest is not.
LEFT_OUT = shutil.ignore_patterns(".*", "*.egg-info", "tc_trace*")


def edit(folder: Path, block: str) -> None:
    """Make the edit of a block: its first line names the file, the others are one hunk.

    Raises:
        ValueError: the lines that stay or go are not in the file exactly once.
    """
    head, _, hunk = block.partition("\n")
    lines = hunk.splitlines()
    old = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("+"))
    new = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("-"))
    path = folder / head.removeprefix("--- ")
    text = path.read_text("utf-8")
    if text.count(old) != 1:
        raise ValueError(f"{path.name} has these lines {text.count(old)} times:\n{old}")
    path.write_text(text.replace(old, new), "utf-8")


def commands(block: str) -> Iterator[str]:
    """The commands of a block: lines after a prompt."""
    for line in block.splitlines():
        assert line.startswith("$ "), line
        yield line.removeprefix("$ ")


def run(folder: Path, command: str) -> str:
    """Run a command in the copy, with the programs of the copy; it must succeed."""
    variables = {
        "PYTHONPATH": str(folder),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "TC_CACHE_DIR": str(folder / "cache"),
    }
    first, *rest = shlex.split(command)
    if first == "python":
        # Tests there set variables that triton reads when it is loaded.
        warm = "pytest" not in rest
        done = python(*rest, cwd=folder, variables=variables, timeout=600, warm=warm)
    else:
        done = subprocess.run(
            command, shell=True, cwd=folder, env={**os.environ, **variables},
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.mark.sample(1)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_tutorial_does_what_it_says(page: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(ROOT, copy, symlinks=True, ignore=LEFT_OUT)
    own_cache(copy / "cache")
    kinds = []
    for number, (kind, block) in enumerate(BLOCK.findall(page.read_text("utf-8"))):
        kinds.append(kind)
        if kind == "diff":
            edit(copy, block)
        elif kind == "python":
            program = copy / f"program_{number}.py"
            program.write_text(block, "utf-8")
            run(copy, f"python {program.name}")
        else:
            for command in commands(block):
                output = run(copy, command)
                assert "pytest" not in command or re.search(r"\b[1-9]\d* passed", output), output
    assert {"diff", "python", "console"} <= set(kinds)


def test_the_copy_is_what_runs(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    (copy / "tc").mkdir(parents=True)
    (copy / "tc/__init__.py").write_text("print('the copy')\n")
    assert run(copy, "python -c 'import tc'") == "the copy\n"


def test_an_edit_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\ny = 2\n")
    edit(tmp_path, "--- a.py\n x = 1\n-y = 2\n+y = 3\n")
    assert (tmp_path / "a.py").read_text() == "x = 1\ny = 3\n"
    with pytest.raises(ValueError, match="has these lines 0 times"):
        edit(tmp_path, "--- a.py\n z = 1\n+y = 3\n")


def steady(text: str) -> list[str]:
    """The lines of a page without what differs between two runs."""
    plain = VARYING.sub("#", VERSIONS.sub(r"\1 #", text))
    # Which rank finds what another has compiled is a race; of the time, the largest shares are
    # shown, which are others on another machine.
    plain = re.sub(r"(?m)(?<= ranks · )(.*)cache \d+ hit / \d+ miss", r"\1cache #", plain)
    plain = re.sub(r"(?m)^time: .*$", "time: #", plain)
    return [
        " · ".join(sorted(" ".join(part.split()) for part in line.split("·")))
        for line in plain.splitlines()
    ]


@pytest.fixture(scope="module")
def programs_of_the_site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[Path, str]:
    """The pages that this run has drawn, with what their programs print now."""
    name = test_programs_of_a_page_print_what_it_says.__name__
    pages = [
        item.callspec.params["page"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.originalname == name
    ]
    return make_examples.rewritten(pages, tmp_path_factory.mktemp("site"), commands=False)


@pytest.mark.sample(1)
@pytest.mark.parametrize("page", SITE, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_programs_of_a_page_print_what_it_says(
    page: Path, programs_of_the_site: dict[Path, str]
) -> None:
    assert steady(programs_of_the_site[page]) == steady(page.read_text("utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.stem)
def test_commands_of_a_page_print_what_it_says(page: Path, tmp_path: Path) -> None:
    (made,) = make_examples.rewritten([page], tmp_path).values()
    assert steady(made) == steady(page.read_text("utf-8"))


PAGE = """\
```python title="one.py"
print("one")
```

```text title="prints"
two
```

```python title="two.py"
raise ValueError("no")
```

```console
$ python one.py
$ python two.py 2>&1 | tail -1
```
"""


def test_a_page_gets_what_its_programs_print(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    (made,) = make_examples.rewritten([page], tmp_path / "run").values()
    assert '```text title="prints"\none\n```' in made
    assert "$ python one.py\none\n$ python two.py 2>&1 | tail -1\nValueError: no\n```" in made


def test_what_varies_is_not_compared_and_the_rest_is() -> None:
    assert steady("2.4 s · cache miss: graph 3257b707b252") == steady(
        "cache miss: graph aaaab707b252 · 31 s"
    )
    assert steady("tc 0.2.0, 4 breaks") == steady("tc 0.3.0, 4 breaks")
    assert steady("tc 0.2.0, 4 breaks") != steady("tc 0.2.0, 5 breaks")
    of_ranks = "tc 0.2.0 · 2 ranks · {} · cache {} hit / {} miss".format
    assert steady(of_ranks("3 compiles", 0, 3)) == steady(of_ranks("3 compiles", 1, 2))
    assert steady(of_ranks("3 compiles", 0, 3)) != steady(of_ranks("2 compiles", 0, 3))
    alone = "tc 0.2.0 · 1 process · cache {} hit / {} miss".format
    assert steady(alone(0, 3)) != steady(alone(1, 2))
