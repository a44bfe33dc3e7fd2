"""Pages of the site that stand in the root of the repository: mkdocs calls this as it builds.

ARCHITECTURE.md, CONTRIBUTING.md and others become pages under `inside/`, with links that fit there;
links of other pages to them are rewritten, too. So each text stands once, and is read on both.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: file of the root -> page of the site
PAGES = {
    "ARCHITECTURE.md": "inside/architecture.md",
    "CHANGELOG.md": "inside/changelog.md",
    "CONTRIBUTING.md": "inside/contributing.md",
    "SECURITY.md": "inside/security.md",
}
#: a paragraph that is nothing but a link to a program of examples/ becomes the program
PROGRAM = re.compile(r"(?m)^\[[^\]]*\]\((?:\.\./)+(examples/\w+\.py)\)$")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|#)([^)#\s]+)(#[^)]*)?\)")


def relinked(text: str, here: str, page: str) -> str:
    """Return a page with links that hold on the site.

    Args:
        here: where the text stands in the repository, `docs/learn/index.md`.
        page: the page it becomes, from the root of the site.
    """

    def rewritten(found: re.Match[str]) -> str:
        shown, target, anchor = found[1], found[2], found[3] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
        if path in PAGES:
            place = PAGES[path]
        elif path.startswith("docs/"):
            place = path.removeprefix("docs/")
        else:
            return shown  # a file of the repository that is no page: its name has to do
        return f"[{shown}]({posixpath.relpath(place, posixpath.dirname(page) or '.')}{anchor})"

    return LINK.sub(rewritten, text)


def with_programs(text: str) -> str:
    """Return a page with the programs that it links to, below a heading of their own."""

    def shown(found: re.Match[str]) -> str:
        program = (ROOT / found[1]).read_text("utf-8").rstrip()
        return f'## The whole program\n\n```python title="{found[1]}"\n{program}\n```'

    return PROGRAM.sub(shown, text)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that do not stand in docs/."""
    from mkdocs.structure.files import File  # tests read this module without mkdocs

    for name, page in PAGES.items():
        text = relinked((ROOT / name).read_text("utf-8"), name, page)
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite the links of a page of docs/ that lead out of it."""
    name = page.file.src_uri
    if name in PAGES.values():
        return markdown
    return relinked(with_programs(markdown), f"docs/{name}", name)
