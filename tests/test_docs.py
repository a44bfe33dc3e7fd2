"""What the documents say is true: examples break and do not break, lists are complete."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from house import PACKAGES
from support import ROOT, succeed

import tc
from tc.compiler.options import Config
from tc.trace import GraphBreak, capture_events
from tc.trace.logs import TOPICS

BREAKS = (ROOT / "docs/graph-breaks.md").read_text()
SECTIONS = dict(re.findall(r"(?ms)^## (TC\d+):(.*?)(?=^## |\Z)", BREAKS))


def example(code: str, number: int, folder: Path) -> Callable[[torch.Tensor], Any]:
    """The function `f` of one of the two examples of a section, as a module of its own."""
    text = re.findall(r"(?ms)^```python\n(.*?)^```", SECTIONS[code])[number]
    path = folder / f"{code.lower()}_{number}.py"
    path.write_text(f"import tc\nimport torch\n\n\n{text}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Callable[[torch.Tensor], Any] = module.f
    return function


@pytest.mark.parametrize("code", SECTIONS)
def test_example_breaks_as_reported_and_its_fix_does_not(code: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 8)
    for number, expected in enumerate(({code}, set())):
        tc.reset()
        function = example(code, number, tmp_path)
        with capture_events() as events:
            result = tc.compile(function, backend="eager")(x)
        torch.testing.assert_close(result, function(x))
        assert {event.code for event in events.of(GraphBreak)} == expected


def test_every_code_is_documented() -> None:
    source = "".join(
        path.read_text() for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))
    )
    codes = set(re.findall(r"\"(TC\d{3})\"", source))
    text = "".join(path.read_text() for path in sorted(ROOT.glob("docs/*.md")))
    text = re.sub(r"TC(\d+)\s+to\s+TC(\d+)", lambda span: spell_out(*map(int, span.groups())), text)
    assert len(codes) > 20
    assert not {code for code in codes if code not in text}


def spell_out(first: int, last: int) -> str:
    """`TC901 TC902 TC903` for `TC901 to TC903`."""
    return " ".join(f"TC{number}" for number in range(first, last + 1))


def test_every_topic_of_the_logs_is_documented() -> None:
    text = set(re.findall(r"(?m)^\| `([a-z_]+)` \|", (ROOT / "docs/logs.md").read_text()))
    assert text == set(TOPICS)


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("docs/**/*.md")) + sorted(ROOT.glob("*.md")), ids=str
)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text()):
        assert (path.parent / target).exists(), f"{path.name} links to {target}"


SITE = (ROOT / "mkdocs.yml").read_text()


def test_every_page_has_its_place_in_the_site() -> None:
    nav = set(re.findall(r"[\w/-]+\.md", SITE.partition("\nnav:\n")[2]))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    pages = {page for page in pages if not re.match(r"decisions/\d", page)}
    assert nav == pages | set(site_pages().PAGES.values())


def site_pages() -> Any:
    """The module that mkdocs loads: docs/pages.py."""
    spec = importlib.util.spec_from_file_location("pages", ROOT / "docs/pages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "link, here, page, rewritten",
    [
        ("[a](docs/logs.md#x)", "ARCHITECTURE.md", "inside/architecture.md", "[a](../logs.md#x)"),
        ("[a](CHANGELOG.md)", "CONTRIBUTING.md", "inside/contributing.md", "[a](changelog.md)"),
        ("[a](../SECURITY.md)", "docs/install.md", "install.md", "[a](inside/security.md)"),
        ("[a](tc-tui.md)", "docs/index.md", "index.md", "[a](tc-tui.md)"),
        ("[the licence](LICENSE)", "CONTRIBUTING.md", "inside/contributing.md", "the licence"),
        ("[a](#below) ![b](c.png)", "README.md", "x.md", "[a](#below) ![b](c.png)"),
        ("[a](https://example.com/b)", "README.md", "x.md", "[a](https://example.com/b)"),
    ],
)
def test_links_are_rewritten_to_where_pages_stand_on_the_site(
    link: str, here: str, page: str, rewritten: str
) -> None:
    assert site_pages().relinked(link, here, page) == rewritten


def test_a_link_to_a_program_becomes_the_program() -> None:
    shown = site_pages().with_programs("a\n\n[All of it](../../examples/gpt.py)\n\nb")
    assert (ROOT / "examples/gpt.py").read_text().rstrip() in shown
    inside = "see [it](../../examples/gpt.py)"
    assert site_pages().with_programs(inside) == inside


def test_every_public_name_is_in_the_reference() -> None:
    text = re.findall(r"(?m)^::: tc\.(\w+)$", (ROOT / "docs/reference/api.md").read_text())
    assert sorted(text) == sorted(set(tc.__all__) - {"__version__"})


def test_every_option_of_the_report_is_documented() -> None:
    text = (ROOT / "docs/tc-report.md").read_text()
    offered = re.findall(r"--[a-z][a-z-]+", succeed("-m", "tc.tlparse", "--help"))
    assert {option for option in offered if option not in text} <= {"--help", "--version"}


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "document",
    ["README.md", "docs/aot-backends.md", "docs/notebooks.md", "docs/torch-backend.md"],
)
def test_example_of_a_document_runs(document: str, tmp_path: Path) -> None:
    (program,) = re.findall(r"(?ms)^```python\n(.*?)^```", (ROOT / document).read_text())
    (tmp_path / "program.py").write_text(program)
    succeed(str(tmp_path / "program.py"), warm=True)


def test_every_option_setting_and_variable_is_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TC_FX_GRAPH_CACHE", raising=False)
    text = (ROOT / "docs/settings.md").read_text()
    known = {*tc.list_options(), *tc.list_mode_options(), *(f.name for f in fields(Config))}
    assert not {name for name in known if f"`{name}`" not in text}
    rows = re.findall(r"(?m)^\| `([^`]+)`(?: \(`\w+`\)|, `\w+`)* \| `?([\w.]+)`? \|", text)
    defaults = {f.name: getattr(Config(), f.name) for f in fields(Config)}
    for name, default in rows:
        if name in defaults and default != "empty":
            assert str(defaults[name]) == default, name
    source = "".join(
        path.read_text() for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))
    )
    variables = set(re.findall(r"environ(?:\.get\(|\[)\"(TC_\w+)\"", source))
    assert len(variables) > 5 and not {name for name in variables if name not in text}


ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
DECISIONS = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))


def files_of_the_map() -> dict[str, set[str]]:
    """Folder -> the Python files that its list in ARCHITECTURE.md names."""
    lists = re.findall(r"(?ms)^#### (\S+)\n(.*?)(?=^#|\Z)", ARCHITECTURE)
    return {folder: set(re.findall(r"`(\w+\.py)`", text)) for folder, text in lists}


@pytest.mark.parametrize(
    "folder",
    sorted(
        {p.parent.relative_to(ROOT).as_posix() for r in PACKAGES for p in (ROOT / r).rglob("*.py")}
    ),
)
def test_map_names_every_file_of_a_folder(folder: str) -> None:
    present = {path.name for path in (ROOT / folder).glob("*.py")} - {"__init__.py"}
    assert files_of_the_map().get(folder, set()) - {"__init__.py"} == present
    anchor = re.sub(r"[^\w-]", "", folder)
    assert f"[`{folder}/`](#{anchor})" in ARCHITECTURE, "the map has no row for the folder"


def test_every_path_of_the_map_exists() -> None:
    names = set(
        re.findall(
            r"`((?:tc|compiler|trace|tlparse|tui|minifier|tests|bench)/[\w./]*)`", ARCHITECTURE
        )
    )
    assert len(names) > 50
    assert not {name for name in names if not (ROOT / name).exists()}
    c_files = set(re.findall(r"`(\w+\.c)`", ARCHITECTURE))
    packages = ("compiler", "minifier")
    assert c_files == {path.name for package in packages for path in (ROOT / package).rglob("*.c")}


def test_way_of_a_frame_shows_each_stage() -> None:
    shown = re.findall(r"(?m)^<!-- artifact: (.+) -->\n```\w+\n(.+)$", ARCHITECTURE)
    script = (ROOT / "bench/artifacts.py").read_text()
    assert [name for name, _ in shown] == re.findall(r'(?m)^    "([\w ]+)": "\w+",$', script)
    assert not [name for name, first in shown if first.startswith("```")]


@cache
def ends_of_paths() -> frozenset[str]:
    """Return the ends of the paths of all files: `rows.py`, `guards/rows.py` and so on."""
    roots = [ROOT / name for name in (*PACKAGES, "bench", "tests")]
    paths = [path.parts for root in roots for path in root.rglob("*.*")]
    return frozenset("/".join(parts[at:]) for parts in paths for at in range(len(parts)))


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_decision_has_its_parts_and_is_listed(path: Path) -> None:
    text = path.read_text()
    assert re.findall(r"(?m)^#+ (.*)", text)[1:] == ["Context", "Decision", "Consequence"]
    assert f"]({path.name})" in (path.parent / "README.md").read_text()
    assert not {*re.findall(r"`([\w/]+\.(?:py|c|json))`", text)} - ends_of_paths()
