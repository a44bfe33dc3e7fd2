"""Files of notebook cells and their lines, as the editor of the notebook names them."""

from __future__ import annotations

import linecache
import sys
from types import ModuleType, SimpleNamespace

import pytest
from support import succeed

from tc.trace.cells import in_cell, place, source_in_cell, typed_line

CELL = "/tmp/ipykernel_7/2658693589.py"
TYPED = "\n \na = !echo \\\n  hello\ndef g(x):\n    return 1 / x"
RAN = "a = get_ipython().getoutput('echo    hello')\ndef g(x):\n    return 1 / x"


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """An IPython that has run one cell, its third."""
    names = {CELL: 3}

    def format_code_name(name: str) -> tuple[str, str] | None:
        return ("Cell", f"In[{names[name]}]") if name in names else None

    made = SimpleNamespace(
        compile=SimpleNamespace(format_code_name=format_code_name),
        history_manager=SimpleNamespace(input_hist_raw=["", "", "", TYPED]),
    )
    module = ModuleType("IPython")
    module.get_ipython = lambda: made  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", module)
    rows = [f"{row}\n" for row in RAN.splitlines()]
    monkeypatch.setitem(linecache.cache, CELL, (len(RAN), None, rows, CELL))
    return made


@pytest.mark.parametrize(("line", "typed"), [(2, 5), (3, 6), (0, 0)])
def test_lines_are_those_of_the_editor(shell: SimpleNamespace, line: int, typed: int) -> None:
    assert typed_line(CELL, line) == typed
    assert in_cell(CELL, line) == (f"In [3], line {typed}" if line else "In [3]")
    assert source_in_cell(CELL, line).strip() == ["", "", "def g(x):", "return 1 / x"][line]


def test_a_cell_as_it_ran_keeps_its_lines(shell: SimpleNamespace) -> None:
    shell.history_manager.input_hist_raw[3] = RAN
    assert place(CELL, 2) == "In [3], line 2"


def test_a_shell_of_another_make_is_no_trouble(shell: SimpleNamespace) -> None:
    del shell.compile, shell.history_manager
    assert in_cell(CELL, 2) == "cell 2658693589, line 2"
    assert in_cell("<ipython-input-7-0a1b2c>", 2) == "In [7], line 2"


def test_other_files_are_no_cells(shell: SimpleNamespace) -> None:
    assert place("/home/me/model.py", 6) == "/home/me/model.py:6"
    assert not source_in_cell(__file__, 1)


def test_cells_of_another_process_are_distinguished() -> None:
    assert in_cell(CELL, 2) == "cell 2658693589, line 2"
    assert in_cell(r"C:\Temp\ipykernel_7\26.py", 2) == "cell 26, line 2"
    assert in_cell("<ipython-input-7-0a1b2c>", 2) == "In [7], line 2"


def test_nothing_loads_ipython_or_jinja2() -> None:
    said = succeed(
        "-c",
        "import sys\nfrom tc.trace import cells, notebook\nfrom tc.trace.findings import Where\n"
        "print(Where('a.py', 2).short)\n"
        "print([name for name in ('IPython', 'jinja2', 'torch') if name in sys.modules])",
    )
    assert said == "a.py:2\n[]\n"
