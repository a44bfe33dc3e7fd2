"""Modules, notebooks and tests become scripts; what is none of these ends in one sentence."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tc.minifier.console import Usage
from tc.minifier.mirror import Mirror
from tc.minifier.passes import modules
from tc.minifier.subject import after_head, subject_of


def ran(text: str, home: Path) -> subprocess.CompletedProcess[str]:
    path = home / "made_script.py"
    path.write_text(text)
    return subprocess.run(
        [sys.executable, str(path)], cwd=home, capture_output=True, text=True, timeout=60
    )


def test_a_package_becomes_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "other.py").write_text("from . import third\nvalue = third.value + 1\n")
    (package / "third.py").write_text("value = 1\n")
    (package / "__main__.py").write_text(
        '"""Says so."""\nfrom __future__ import annotations\n'
        "from .other import value\nprint(value)\n"
    )
    monkeypatch.chdir(tmp_path)
    subject = subject_of("pkg", (), module=True)
    assert ran(subject.text, tmp_path).stdout == "2\n"
    (package / "__main__.py").write_text("print(1)\nfrom . import third\n")
    assert ran(subject_of("pkg", (), module=True).text, tmp_path).stdout == "1\n"
    with pytest.raises(Usage, match="no module nowhere"):
        subject_of("nowhere", (), module=True)


def test_a_notebook_becomes_a_script(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# about"]},
        {
            "cell_type": "code",
            "source": ["%matplotlib inline\n", "x = 7 % 4\n", "if x:\n", "    !ls\n"],
        },
        {"cell_type": "code", "source": "%%bash\nrm -r /\n"},
        {"cell_type": "code", "source": "%%time\nprint(f'{x:02d}')\nx?"},
    ]
    path = tmp_path / "notes.ipynb"
    path.write_text(json.dumps({"cells": cells, "nbformat": 4}))
    assert ran(subject_of(str(path), ()).text, tmp_path).stdout == "03\n"
    path.write_text("{}")
    with pytest.raises(Usage, match="is no notebook"):
        subject_of(str(path), ())


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "cell, printed",
    [
        ("files = !ls\nprint(files)", "[]"),
        ("%time y = 3\nprint(y)", "3"),
        ("t = %timeit -n 5 -o 2 + 1\nprint(t)", "3"),
        ("a.b, c[0] = %who\nprint(1)", None),
        ("x, = %time (7,)\nprint(x)", "7"),
        ("found = %who_ls\nprint(found)", "None"),
        ("!pip install \\\n  torch \\\n  'numpy<2'\nprint(1)", "1"),
        ("!echo it's (not closed\nprint(1)", "1"),
        ("if True:\n    %time y = 2\nprint(y)", "2"),
        ("?print\nprint?\nprint??\nprint(1)", "1"),
        ("s = '''\n%time\n!ls\n'''\n%cd /tmp\nprint(len(s.split()))", "2"),
        ("\n\n%%time\nprint(1)\n%matplotlib inline", "1"),
        ("x = 5 \\\n  %3\n!ls\nprint(x)", "2"),
        ("display(4)", "4"),
        ("get_ipython().run_line_magic('cd', '/')\nprint(1)", "1"),
        ("'''About.'''\ndisplay(2)", "2"),
    ],
)
def test_what_only_notebooks_have_is_read(cell: str, printed: str | None, tmp_path: Path) -> None:
    path = tmp_path / "notes.ipynb"
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": cell}]}))
    text = subject_of(str(path), ()).text
    assert printed is None or ran(text, tmp_path).stdout == f"{printed}\n"


PLACED = """\
{head}import os
x = 1
raise KeyError(x)
"""


@pytest.mark.parametrize(
    "named, place",
    [
        ("-m sub.program", "sub/program.py:5"),
        ("program.py::test_a", "program.py:5"),
        ("notes.ipynb", "notes.ipynb, cell 2, line 6"),
    ],
)
def test_lines_are_named_as_the_user_finds_them(
    named: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PLACED.format(head='"""About\fit."""\nfrom __future__ import annotations\n')
    (tmp_path / "sub").mkdir()
    for name in ("program.py", "sub/program.py"):
        (tmp_path / name).write_text(text)
    cells = ["%%bash\nls", "\n%%time\n" + PLACED.format(head="!ls\n"), "display(x)"]
    rows = [{"cell_type": "code", "source": cell} for cell in cells]
    (tmp_path / "notes.ipynb").write_text(json.dumps({"cells": rows}))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "work").mkdir()
    subject = subject_of(named.removeprefix("-m "), (), module=named.startswith("-m"))
    path = subject.script(tmp_path / "work")
    lines = path.read_text().split("\n")
    number = lines.index("raise KeyError(x)") + 1
    for file in (path, path.name):
        assert subject.named(f"in {file}:{number}", tmp_path / "work") == f"in {tmp_path / place}"
    elsewhere = f"in {tmp_path / 'x' / path.name}:{number} or a-{path.name}:{number}"
    assert subject.named(elsewhere, tmp_path / "work") == elsewhere


@pytest.fixture
def no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep installed plugins out of the processes of pytest that scripts are."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def test_a_test_becomes_a_script_that_raises_what_it_raises(
    tmp_path: Path, no_plugins: None
) -> None:
    (tmp_path / "conftest.py").write_text(
        "import pytest\n@pytest.fixture\ndef three():\n    return 3\n"
    )
    path = tmp_path / "test_it.py"
    path.write_text(
        "import pytest\n\n@pytest.mark.parametrize('n', [1, 2])\ndef test_a(n, three):\n"
        "    if n == 2:\n        raise KeyError(f'n{n + three}')\n"
    )
    done = ran(subject_of(f"{path}::test_a[2]", ()).text, tmp_path)
    assert done.returncode == 1 and "KeyError: 'n5'" in done.stderr
    assert ran(subject_of(f"{path}::test_a[1]", ()).text, tmp_path).returncode == 0
    assert "finds no such test" in ran(subject_of(f"{path}::test_b", ()).text, tmp_path).stderr


@pytest.mark.parametrize("package", [False, True])
def test_a_test_finds_what_pytest_finds_around_its_folder(
    package: bool, tmp_path: Path, no_plugins: None
) -> None:
    tests, source = tmp_path / "tests", tmp_path / "src"
    for folder in (tests, source):
        folder.mkdir()
    (tmp_path / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\npythonpath = ["src"]\naddopts = "--no-such-option"\n'
    )
    (source / "found.py").write_text("three = 3\n")
    fixture = "import pytest\n@pytest.fixture\ndef {0}():\n    return '{0}'\n"
    (tmp_path / "conftest.py").write_text(fixture.format("above"))
    (tests / "conftest.py").write_text(fixture.format("beside"))
    helper = "from .helper import four" if package else "four = 4"
    if package:
        (tests / "__init__.py").write_text("")
        (tests / "helper.py").write_text("four = 4\n")
    path = tests / "test_it.py"
    path.write_text(
        f'"""Doc."""\nfrom __future__ import annotations\n{helper}\nfrom found import three\n'
        "def test_a(above, beside):\n    raise KeyError(f'{above} {beside} {three} {four}')\n"
    )
    subject = subject_of(f"{path}::test_a", ())
    assert subject.folder == tests and subject.home == (tmp_path if package else tests)
    mirror = Mirror(tmp_path / "beside", subject.folder, subject.name)
    made = mirror.ready() / subject.name
    made.write_text(subject.text)
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(subject.home)!r});"
         f"import runpy; runpy.run_path({str(made)!r}, run_name='__main__')"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert "KeyError: 'above beside 3 4'" in done.stderr, done.stderr + done.stdout


READS = """\
from pathlib import Path
def test_a():
    Path(__file__).with_name("made.txt").write_text("a file of a run")
    assert Path(__file__).with_name("rows.csv").read_text() == "1,2"
    import helper
test_a()
"""


@pytest.mark.sample(3)
@pytest.mark.parametrize("named", ["program.py", "sub/program.py", "sub/program.py::test_a",
                                   "-m sub", "-m sub.program", "sub/notes.ipynb"])  # fmt: skip
def test_what_lies_beside_the_file_is_found_from_its_text(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_plugins: None
) -> None:
    user, own = tmp_path / "user", tmp_path / "own"
    for folder in (user, user / "sub"):
        folder.mkdir()
        (folder / "rows.csv").write_text("1,2")
        (folder / "helper.py").write_text("")
        for name in ("program.py", "__main__.py"):
            (folder / name).write_text(READS)
    cell = READS.replace("__file__", "'any'").replace('.with_name("made.txt")', "")
    cell = cell.replace("assert", "assert True or").replace(".write_text", ".exists() and print")
    notes = {"cells": [{"cell_type": "code", "source": cell}]}
    (user / "sub" / "notes.ipynb").write_text(json.dumps(notes))
    before = sorted(user.rglob("*"))
    monkeypatch.chdir(user)
    own.mkdir()
    is_module = named.startswith("-m ")
    subject = subject_of(named.removeprefix("-m "), (), is_module)
    mirror = Mirror(own / "beside", subject.folder, subject.name)
    for _ in range(2):  # what a run has left is seen in none of the user's folders
        path = mirror.ready() / subject.name
        path.write_text(subject.text)
        done = subprocess.run(
            [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(subject.home)!r});"
             f"import runpy; runpy.run_path({str(path)!r}, run_name='__main__')"],
            capture_output=True, text=True, cwd=own,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr + done.stdout
    assert sorted(user.rglob("*")) == before
    if subject.file is None:
        assert subject.script(own).parent.joinpath("rows.csv").read_text() == "1,2"


@pytest.mark.parametrize(
    "name, content, text",
    [
        ("a.py", b"def f(:\n", "a.py:1 is no Python program"),
        ("a.py", b"return 1\n", "is no Python program"),
        ("a.py", b"\xff\xfe\x00", "is not a text"),
        ("a.py", b"x = 1\0", "is no Python program"),
        ("a.ipynb", b"[1]", "is no notebook"),
        ("a.ipynb", b'{"cells": [{"cell_type": "code", "source": "def"}]}', "is no Python"),
        ("a.ipynb", b'{"cells": [3]}', "is no notebook"),
    ],
)
def test_what_is_no_program_ends_in_one_sentence(
    name: str, content: bytes, text: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(Usage, match=text):
        subject_of(str(tmp_path / name), ())


def test_a_line_goes_behind_what_has_to_be_first() -> None:
    text = '"""Doc."""\nfrom __future__ import annotations\nimport os\n'
    lines = after_head(text, "x = 1").splitlines()
    assert lines.index("x = 1") == 2
    assert after_head("import os\n", "x = 1").startswith("x = 1\n")


@pytest.mark.parametrize("name", ["plain.py", "two words/ünï's.py"])
def test_a_command_has_the_programs_arguments(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("x = 1\n")
    subject = subject_of(str(path), ["--faulty", "a b"])
    words = shlex.split(str(subject.command("tc-minify")))
    assert words == ["tc-minify", str(path), "--", "--faulty", "a b"]
    assert shlex.split(str(subject_of(str(path), []).command("tc-minify", "--json"))) == [
        "tc-minify", "--json", str(path),
    ]  # fmt: skip


def test_a_command_names_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "program.py").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    subject = subject_of("program", ["1"], module=True)
    assert str(subject.command("tc-bisect")) == "tc-bisect -m program -- 1"


LATIN = "# -*- coding: latin-1 -*-\nname = 'é'\nassert len(name) > 1, 'short'\n"


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    "content",
    [
        LATIN.encode("latin-1"),
        LATIN.replace("latin-1", "utf-8").encode("utf-8-sig"),
        LATIN.split("\n", 1)[1].encode("utf-8-sig"),
        LATIN.replace("\n", "\r\n").encode("latin-1"),
        f"#!/usr/bin/python\n{LATIN}".encode("latin-1"),
        LATIN.replace("latin-1", "koi8-r").replace("é", "и").encode("koi8-r"),
    ],
)
@pytest.mark.parametrize("named", ["script.py", "-m", "script.py::test_a", "neighbour"])
def test_a_program_in_another_encoding_means_what_python_reads(
    content: bytes, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "script.py"
    path.write_bytes(content)
    if named == "neighbour":
        text = modules.inlined("import script\n", tmp_path, lambda text: True, lambda text: None)
    else:
        text = subject_of("script" if named == "-m" else named, (), named == "-m").text
        text = text.replace('__name__ == "__main__"', "False")  # pytest is not asked
    found = ran(text, tmp_path)
    assert "AssertionError: short" in found.stderr, found.stderr


@pytest.mark.parametrize("content", [b"\xff\xfe", b"# coding: no-such\n", b"x = 1\n\n\n'\xe9'\n"])
def test_what_python_cannot_decode_is_no_program(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_bytes(content)
    with pytest.raises(Usage, match="is not a text"):
        subject_of(str(path), ())
    path = path.with_suffix(".ipynb")
    path.write_bytes(content)
    with pytest.raises(Usage, match="is no notebook"):
        subject_of(str(path), ())
