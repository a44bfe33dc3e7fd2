"""What a user names on the command line, as the text of one script and the folder it belongs to.

A script, a module (``-m package``), a notebook, a test of pytest's: each becomes a script, so that
all that follows knows only scripts.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tc.minifier.console import Usage, existing_script
from tc.minifier.mirror import Mirror
from tc.minifier.passes import rendering
from tc.trace.commands import Command, Tool, command

#: a line of a notebook that IPython reads: a magic, a command of the shell, a question
MAGIC: Final = re.compile(
    r"""^(?P<indent>\s*)
    (?:(?P<target>[\w.\[\], ]+?)\s*=\s*(?=[%!]))?
    (?:%(?P<name>\w+)(?P<rest>.*) | [%!?].* | \w[\w.]*\?{1,2})$""",
    re.VERBOSE,
)
RUNS_CODE: Final = ("time", "timeit", "prun", "memit")  # magics that run the rest of the line
MADE: Final = "script"  # folder of the file that is made of a text
OPTION: Final = re.compile(r"\s*-(?:[nrplsTD]\s*\S+|\w+)(?=\s)")
HARMLESS: Final = tuple(f"%%{name}" for name in (*RUNS_CODE, "capture"))  # the cell is Python
#: what a notebook has without a definition, and a script has not
OF_NOTEBOOKS: Final = {
    "display": "display = print\n",
    "get_ipython": """\
class Shell:
    def __getattr__(self, name):
        return lambda *arguments, **options: None


get_ipython = Shell
""",
}
#: before the text of a test, so that pytest alone runs that text, as it does otherwise
PYTEST: Final = """\
if __name__ == "__main__":
    import sys
    import types

    import pytest

    class File(types.SimpleNamespace):
        __hash__ = object.__hash__

    class Raised:
        error = None

        def pytest_exception_interact(self, call):
            self.error = call.excinfo.value

    sys.path += [{cwd!r}]
    raised = Raised()
    options = ["-q", "-x", "-p", "no:cacheprovider"{more}]
    code = pytest.main([__file__ + {node!r}, *options], plugins=[raised{plugins}])
    if raised.error is None and code in (4, 5):
        raise SystemExit("pytest finds no such test")
    if raised.error is not None:
        raise raised.error
    raise SystemExit(int(code))
"""
#: an object whose attributes are what a file defines
OF_FILE: Final = "File(**__import__('runpy').run_path({!r}))"
CONFTEST: Final = "conftest.py"
#: files in which pytest looks for settings, and the heading of these in each
INI: Final = {
    "pytest.ini": "", ".pytest.ini": "", "pyproject.toml": "[tool.pytest",
    "tox.ini": "[pytest]", "setup.cfg": "[tool:pytest]",
}  # fmt: skip


@dataclass(frozen=True)
class Subject:
    """A program to reduce.

    Attributes:
        label: as the user named it.
        text: a script that does the same.
        home: where it finds its modules.
        file: the file that holds just this text; None: there is none.
        beside: the folder of the file that the text is from, where that is not its home.
        module: the label is ``-m`` and the name of a module.
    """

    label: str
    text: str
    home: Path
    arguments: tuple[str, ...] = ()
    file: Path | None = None
    module: bool = False
    beside: Path | None = None
    places: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of a file of the text."""
        if self.file is not None:
            return self.file.name
        stem = re.sub(r"\W+", "_", Path(self.label).stem).strip("_")
        return f"{stem or 'script'}.py"

    @property
    def folder(self) -> Path:
        """The folder of the file that the text is from."""
        return (self.beside or self.home).resolve()

    def command(self, tool: Tool, *options: str) -> Command:
        """Return the command that runs a tool on this program, with the program's arguments."""
        named = ("-m", self.label.removeprefix("-m ")) if self.module else (self.label,)
        rest = ("--", *self.arguments) if self.arguments else ()
        return command(tool, *options, *named, *rest)

    def script(self, folder: Path) -> Path:
        """Return a file that holds the text, made in a folder if there is none."""
        if self.file is not None:
            return self.file
        path = Mirror(folder / MADE, self.folder, self.name).ready() / self.name
        path.write_text(self.text, encoding="utf-8")
        return path

    def named(self, text: str, folder: Path) -> str:
        """Return a text with the user's places for lines of the file that `script` has made."""
        if self.file is not None:
            return text
        made = {folder / MADE, (folder / MADE).resolve()}
        folders = "|".join(re.escape(f"{one}{os.sep}") for one in made)
        lines = rf"(?<![\w.{re.escape(os.sep)}-])(?:{folders})?{re.escape(self.name)}:(\d+)"
        return re.sub(lines, self._place, text)

    def _place(self, found: re.Match[str]) -> str:
        number = int(found[1]) - 1
        place = self.places[number] if number < len(self.places) else ""
        return place or f"{self.label}:{found[1]}"


def subject_of(name: str, arguments: Sequence[str], module: bool = False) -> Subject:
    """Return what is named on the command line as a script.

    Raises:
        Usage: there is no such thing, or it is no Python.
    """
    rest = tuple(arguments)
    if module:
        return of_module(name, rest)
    if "::" in name:
        return of_test(name, rest)
    path = existing_script(name)
    home = path.resolve().parent
    if path.suffix == ".ipynb":
        text, places = of_notebook(name, content_of(path))
        named = tuple(place and f"{path.resolve()}, {place}" for place in places)
        return Subject(name, checked(text, name), home, rest, places=named)
    return Subject(name, program_in(path, name), home, rest, path)


def content_of(path: Path) -> bytes:
    """Return what is in a file.

    Raises:
        Usage: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise Usage(f"{path} cannot be read: {error.strerror}") from None


def program_in(path: Path, name: str) -> str:
    """Return the program in a file.

    Raises:
        Usage: there is none.
    """
    try:
        text = rendering.decoded(content_of(path))
    except (SyntaxError, UnicodeDecodeError):
        raise Usage(f"{name} is not a text") from None
    return checked(text, name)


def checked(text: str, name: str) -> str:
    """Return a text that Python compiles.

    Raises:
        Usage: it does not.
    """
    try:
        compile(text, name, "exec", dont_inherit=True)
    except rendering.REFUSALS as error:
        line = getattr(error, "lineno", None)
        where = f"{name}:{line}" if line else name
        raise Usage(f"{where} is no Python program: {getattr(error, 'msg', error)}") from None
    return text


# -- modules -----------------------------------------------------------------------------------
def of_module(name: str, arguments: tuple[str, ...]) -> Subject:
    """Return what ``python -m NAME`` runs."""
    home = Path.cwd()
    base = home.joinpath(*name.split("."))
    package = name
    path = base / "__main__.py"
    if not path.is_file():
        path, package = base.with_suffix(".py"), name.rpartition(".")[0]
    if not path.is_file():
        raise Usage(f"there is no module {name} below {home}")
    text = program_in(path, str(path))
    places = lines_of(path, text)
    if package:  # its relative imports begin there
        places.insert(end_of_head(text), "")
        text = after_head(text, f"__package__ = {package!r}")
    return Subject(f"-m {name}", text, home, arguments, module=True, beside=path.parent,
                   places=tuple(places))  # fmt: skip


def lines_of(path: Path, text: str) -> list[str]:
    """Return the places of the lines of a file."""
    return [f"{path.resolve()}:{number}" for number in range(1, text.count("\n") + 2)]


def after_head(text: str, lines: str) -> str:
    """Return a script with lines before all but what has to be first."""
    made = text.removesuffix("\n").split("\n")
    made.insert(end_of_head(text), lines)
    return "\n".join(made) + "\n"


def end_of_head(text: str) -> int:
    """Return how many lines of a script have to be first."""
    body = ast.parse(text).body
    first = body[:1] if ast.get_docstring(ast.Module(body, []), clean=False) is not None else []
    future = [n for n in body if isinstance(n, ast.ImportFrom) and n.module == "__future__"]
    head: list[ast.stmt] = [*first, *future]
    return max((node.end_lineno or 0 for node in head), default=0)


# -- notebooks ---------------------------------------------------------------------------------
def of_notebook(name: str, content: bytes) -> tuple[str, list[str]]:
    """Return the code cells of a notebook as a script, and the places of its lines.

    Magics and shell commands are left out.

    Raises:
        Usage: it is no notebook.
    """
    try:
        cells = json.loads(content)["cells"]
        found = [cell_lines(cell) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError):
        raise Usage(f"{name} is no notebook") from None
    text = "\n".join(line for lines, _ in found for line in [*lines, ""])
    places = [
        f"cell {cell}, line {first + number}" if number < len(lines) else ""
        for cell, (lines, first) in enumerate(found, 1)
        for number in range(len(lines) + 1)
    ]
    tree = rendering.parsed(text)
    needed = rendering.unbound(tree) if tree is not None else set()
    head = "".join(row for name, row in OF_NOTEBOOKS.items() if name in needed).rstrip("\n")
    if head:
        place = end_of_head(text)
        places[place:place] = [""] * (head.count("\n") + 1)
        text = after_head(text, head)
    return text, places


def cell_lines(cell: dict[str, Any]) -> tuple[list[str], int]:
    """Return the lines of a cell's Python, and the number of the first of them in the cell."""
    source = cell["source"]
    text = "".join(source) if isinstance(source, list) else str(source)
    lines = text.replace("\r\n", "\n").split("\n")
    first = next((number for number, line in enumerate(lines) if line), len(lines))
    lines = lines[first:]
    if lines and lines[0].startswith("%%"):
        if not lines[0].startswith(HARMLESS):
            return [], 1
        lines, first = lines[1:], first + 1
    return plain_lines(lines), first + 1


def plain_lines(lines: Sequence[str]) -> list[str]:
    """Return a cell's lines, with Python in place of those that are IPython's.

    Only lines at which Python stops are looked at: a line of a string may look the same.
    """
    made = list(lines)
    for _ in lines:
        stop = first_error("\n".join(made) + "\n")
        if stop is None or not stop < len(made) or not MAGIC.match(made[stop]):
            return made
        made[stop] = python_in(made[stop])
        while stop < len(made) - 1 and lines[stop].endswith("\\"):  # the shell's line continues
            stop += 1
            made[stop] = ""
    return made


def first_error(text: str) -> int | None:
    """Return the index of the line at which Python stops reading a text; None: it reads all."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        return (error.lineno or 1) - 1
    except rendering.REFUSALS:
        return None
    return None


def python_in(line: str) -> str:
    """Return a line of Python in place of IPython's: the code that a magic runs, or nothing."""
    found = MAGIC.match(line)
    assert found is not None
    target = f"{found['target']} = " if found["target"] else ""
    if found["name"] in RUNS_CODE:
        rest = f"{found['rest']} "
        while option := OPTION.match(rest):
            rest = rest[option.end() :]
        if rest.strip():
            return f"{found['indent']}{target}{rest.strip()}"
    empty = "None" if found["name"] else "[]"  # the shell gives lines
    return f"{found['indent']}{target}{empty}" if target else f"{found['indent']}pass"


# -- tests -------------------------------------------------------------------------------------
def of_test(node: str, arguments: tuple[str, ...]) -> Subject:
    """Return a script that runs one test and raises what it raises."""
    if importlib.util.find_spec("pytest") is None:
        raise Usage(f"{node} is a test, and pytest is not installed")
    name, _, inner = node.partition("::")
    path = existing_script(name)
    beside = path.resolve().parent
    home = next(one for one in (beside, *beside.parents) if not (one / "__init__.py").exists())
    text = program_in(path, name)
    driver = test_driver(f"::{inner}", beside, home)
    places = lines_of(path, text)
    first = end_of_head(text)
    places[first:first] = [""] * (driver.count("\n") + 1)
    return Subject(node, after_head(text, driver), home, arguments, places=tuple(places),
                   beside=beside)  # fmt: skip


def test_driver(inner: str, beside: Path, home: Path) -> str:
    """Return the lines that let pytest run a test of the file that they stand in.

    The file runs in a copy of its folder: what pytest finds above the folder is given to it. Its
    usual options are not, which may start other processes.

    Args:
        inner: what names the test in the file.
        beside: the folder of the file.
        home: where the packages begin that the folder belongs to.
    """
    settings = settings_of_pytest(beside)
    top = settings.parent if settings is not None else home
    folders = [one for one in (*reversed(beside.parents), beside) if one.is_relative_to(top)]
    options, plugins = [], ""
    for folder in folders:
        if not (folder / CONFTEST).exists():
            continue
        if folder.is_relative_to(home):
            name = ".".join((*folder.relative_to(home).parts, "conftest"))
            options += ["-p", name]
        else:
            plugins += f", {OF_FILE.format(str(folder / CONFTEST))}"
    if settings is not None:
        options += ["-c", str(settings), "-o", "addopts="]
    more = "".join(f", {json.dumps(one, ensure_ascii=False)}" for one in options)
    return (
        PYTEST.replace("{node!r}", repr(inner)).replace("{cwd!r}", repr(str(Path.cwd())))
        .replace("{more}", more).replace("{plugins}", plugins)
    )  # fmt: skip


def settings_of_pytest(folder: Path) -> Path | None:
    """Return the file that holds pytest's settings for tests in a folder, or none."""
    for place in (folder, *folder.parents):
        for name, heading in INI.items():
            path = place / name
            if path.is_file() and heading in path.read_text(encoding="utf-8", errors="replace"):
                return path
    return None
