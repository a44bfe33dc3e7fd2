"""The rows of events go in; the table of names in docs/trace-events.md comes out.

Run it after a change of a row: ``python tests/make_events.py``.
"""

from __future__ import annotations

import re
from pathlib import Path

from tc.trace.all_events import EVENTS
from tc.trace.kinds import KINDS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "trace-events.md"
HEAD = "| artifact | stage | the report calls it |\n| --- | --- | --- |\n"
TABLE = re.compile(re.escape(HEAD) + r"(?:\| .*\n)+")


def with_table(page: str) -> str:
    """Return the text of the page, its table made of the rows.

    Raises:
        ValueError: the page has no such table.
    """
    names = sorted(name for name in KINDS if name.startswith("tc_"))
    rows = [
        f"| `{name}`{'' if name in EVENTS else ' (text)'} | {KINDS[name].stage} "
        f"| {KINDS[name].label} |\n"
        for name in names
    ]
    made, number = TABLE.subn(lambda _: HEAD + "".join(rows), page)
    if number != 1:
        raise ValueError(f"{PAGE.name} has {number} tables of names")
    return made


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text("utf-8")), "utf-8")
