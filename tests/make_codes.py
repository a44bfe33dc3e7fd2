"""Codes of findings: rows and pages of docs/ go in, codes.json and the table of codes come out.

Run it after a change of either: ``python tests/make_codes.py``. It writes
``tlparse/static/codes.json``, the table of ``docs/tc-report.md`` out of the rows in
``trace/findings/``, and the list of all codes, ``docs/reference/findings.md``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tc.compiler.capture.breaks import REASONS
from tc.trace.findings import CODES
from tc.trace.findings.advice import ROWS

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "tlparse" / "static" / "codes.json"
PAGES = ("graph-breaks.md", "recompiles.md", "tc-report.md")
SECTION = re.compile(r"^## (TC\d{3}): (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"```python\n(.*?)\n```", re.DOTALL)
ROW = re.compile(r"^\| (TC\d{3}) \| (.+?) \| (.+?) \|$", re.MULTILINE)
TABLE_PAGE = "tc-report.md"
HEAD = "| code | cause | what to do |\n| --- | --- | --- |\n"
TABLE = re.compile(re.escape(HEAD) + r"(?:\| TC\d{3} \|.*\n)+")
INDEX = ROOT / "docs" / "reference" / "findings.md"
INDEX_HEAD = """\
# Findings

All that `tc-report`, `tc-tui` and `TC_LOGS` report has a code, which stays the same over versions,
runs and checkouts. A code leads to the page that explains it; `tc-report explain CODE` does so in a
terminal, with an example. `python tests/make_codes.py` makes this list of the rows that the tools
use.

"""
CHANGED = re.compile(
    r"^\| what changed \| what to do \|\n\|[- |]+\|\n((?:\|.*\|\n)+)", re.MULTILINE
)


def plain(text: str) -> str:
    """Return markdown as a terminal shows it."""
    return re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text).replace("`", "").replace("**", "").strip()


def empty(page: str, title: str) -> dict[str, Any]:
    """Return a row of which only the title is known."""
    return {"title": title, "text": "", "why": "", "fix": [], "breaks": "", "instead": "",
            "page": f"docs/{page}"}  # fmt: skip


def listed() -> list[tuple[str, str, str]]:
    """Return code, cause and remedy of the codes that `TABLE_PAGE` lists, in order."""
    return sorted(
        (kind.name, kind.cause, kind.remedy) for kind in CODES.values() if kind.page == TABLE_PAGE
    )


def from_pages() -> dict[str, dict[str, Any]]:
    """Return what the pages say of each code."""
    found: dict[str, dict[str, Any]] = {}
    for page in PAGES:
        text = (ROOT / "docs" / page).read_text("utf-8")
        for code, title, body in SECTION.findall(text):
            blocks = CODE.findall(body)
            row = found.setdefault(code, empty(page, plain(title)))
            row["text"] = plain(CODE.sub("", body))
            row["breaks"], row["instead"] = (*blocks, "", "")[:2]
        for code, title, fix in listed() if page == TABLE_PAGE else ROW.findall(text):
            row = found.setdefault(code, empty(page, plain(title)))
            row["fix"] = row["fix"] or [plain(fix)]
        for rows in CHANGED.findall(text):
            cells = [line.strip("| \n").split(" | ", 1) for line in rows.strip().split("\n")]
            found.setdefault("TC201", empty(page, CODES["TC201"].cause))
            found["TC201"]["fix"] = [f"{plain(what)} → {plain(fix)}" for what, fix in cells]
    return found


def codes() -> dict[str, dict[str, Any]]:
    """Return all codes, in order."""
    found = from_pages()
    listed = [(row.code, row.title, row.why, row.fix) for row in map(REASONS.__getitem__, REASONS)]
    for code, title, why, fix in (*listed, *((r.code, r.title, r.why, r.fix) for r in ROWS)):
        row = found.setdefault(code, empty("graph-breaks.md", title.replace("{}", "…")))
        row["why"] = row["why"] or why
        if len(row["fix"]) < 2:
            row["fix"] = list(fix) or row["fix"]
    return dict(sorted(found.items()))


def text() -> str:
    """Return the file."""
    return json.dumps(codes(), indent=1, ensure_ascii=False) + "\n"


def with_table(page: str) -> str:
    """Return the text of the page of codes, its table made of the rows.

    Raises:
        ValueError: the page has no such table.
    """
    rows = [f"| {' | '.join(row)} |\n" for row in listed()]
    made, number = TABLE.subn(lambda _: HEAD + "".join(rows), page)
    if number != 1:
        raise ValueError(f"{TABLE_PAGE} has {number} tables of codes")
    return made


def section_of(code: str, page: str) -> str:
    """Return the place where a page explains a code: its section, or else the page."""
    for found, title, _ in SECTION.findall((ROOT / page).read_text("utf-8")):
        if found == code:
            anchor = re.sub(r"[^\w -]", "", f"{code}: {title}").lower().replace(" ", "-")
            return f"{page}#{anchor}"
    return page


def index() -> str:
    """Return the page that lists all codes."""
    rows = []
    for code, row in codes().items():
        place = section_of(code, row["page"]).replace("docs/", "../")
        fix = row["fix"][0].replace("|", "\\|") if row["fix"] else ""
        rows.append(f"| [{code}]({place}) | {row['title']} | {fix} |\n")
    return INDEX_HEAD + HEAD + "".join(rows)


if __name__ == "__main__":
    PAGE = ROOT / "docs" / TABLE_PAGE
    PAGE.write_text(with_table(PAGE.read_text("utf-8")), "utf-8")
    TARGET.write_text(text(), "utf-8")
    INDEX.write_text(index(), "utf-8")
