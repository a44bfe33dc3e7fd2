"""What a user names on the command line, as the text of one script and the folder it belongs to.

A script, a module (``-m package``), a notebook, a test of pytest's: each becomes a script, so that
all that follows knows only scripts.
"""

from __future__ import annotations

import ast
import importlib.util
import json
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
PYTEST: Final = """

if __name__ == "__main__":
    import pytest

    class Raised:
        error = None

        def pytest_exception_interact(self, call):
            self.error = call.excinfo.value

    raised = Raised()
    options = ["-q", "-x", "-p", "no:cacheprovider"{more}]
    code = pytest.main([__file__ + {node!r}, *options], plugins=[raised])
    if raised.error is not None:
        raise raised.error
    raise SystemExit(int(code))
"""


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
        path = Mirror(folder / "script", self.folder, self.name).ready() / self.name
        path.write_text(self.text, encoding="utf-8")
        return path


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
        return Subject(name, checked(notebook_text(name, content_of(path)), name), home, rest)
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
    text = in_package(text, package)
    return Subject(f"-m {name}", text, home, arguments, module=True, beside=path.parent)


def in_package(text: str, package: str) -> str:
    """Return a script whose relative imports begin at a package."""
    return after_head(text, f"__package__ = {package!r}") if package else text


def after_head(text: str, line: str) -> str:
    """Return a script with a line before all but what has to be first."""
    body = ast.parse(text).body
    first = body[:1] if ast.get_docstring(ast.Module(body, []), clean=False) is not None else []
    future = [n for n in body if isinstance(n, ast.ImportFrom) and n.module == "__future__"]
    head: list[ast.stmt] = [*first, *future]
    place = max((node.end_lineno or 0 for node in head), default=0)
    lines = text.splitlines()
    lines.insert(place, line)
    return "\n".join(lines) + "\n"


# -- notebooks ---------------------------------------------------------------------------------
def notebook_text(name: str, content: bytes) -> str:
    """Return the code cells of a notebook as a script; magics and shell commands are left out.

    Raises:
        Usage: it is no notebook.
    """
    try:
        cells = json.loads(content)["cells"]
        found = [cell_text(cell) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError):
        raise Usage(f"{name} is no notebook") from None
    text = "\n".join(found)
    tree = rendering.parsed(text)
    needed = rendering.unbound(tree) if tree is not None else set()
    head = "".join(row for name, row in OF_NOTEBOOKS.items() if name in needed)
    return after_head(text, head.rstrip("\n")) if head else text


def cell_text(cell: dict[str, Any]) -> str:
    """Return a cell's Python."""
    source = cell["source"]
    text = "".join(source) if isinstance(source, list) else str(source)
    lines = text.lstrip("\n").splitlines()
    if lines and lines[0].startswith("%%"):
        if not lines[0].startswith(HARMLESS):
            return ""
        lines = lines[1:]
    return "\n".join(plain_lines(lines)) + "\n"


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
    home = path.resolve().parent
    more = ', "-p", "conftest"' if (home / "conftest.py").exists() else ""
    text = program_in(path, name)
    driver = PYTEST.replace("{node!r}", repr(f"::{inner}")).replace("{more}", more)
    return Subject(node, text.rstrip("\n") + driver, home, arguments)
