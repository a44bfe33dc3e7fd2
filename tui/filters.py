"""What was typed after `/` goes in; a test of text comes out."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

HELP: Final = "words · !words leaves out · ~fzy · r/regex/"


def matcher(query: str) -> Callable[[str], bool]:
    """Return the test that a query describes; capitals count only if the query has some.

    `words` must occur, `!words` must not, `~wds` must occur in this order with gaps,
    `r/…/` is a regular expression.

    Raises:
        ValueError: the regular expression is wrong.
    """
    query = query.strip()
    if query.startswith("!") and len(query) > 1:
        inner = matcher(query[1:])
        return lambda text: not inner(text)
    if query.startswith("~") and len(query) > 1:
        return _pattern(".*?".join(re.escape(c) for c in query[1:] if not c.isspace()), query)
    if query.startswith("r/"):
        body = query[2:].removesuffix("/")
        return _pattern(body, body)
    return _pattern(re.escape(query), query) if query else lambda text: True


def search(query: str) -> re.Pattern[str] | None:
    """Return the pattern a search in a text looks for; None for an empty query.

    Raises:
        ValueError: the regular expression is wrong.
    """
    query = query.strip("\n")
    if not query:
        return None
    body = query[2:].removesuffix("/") if query.startswith("r/") else re.escape(query)
    return _compiled(body, query)


def _pattern(body: str, query: str) -> Callable[[str], bool]:
    found = _compiled(body, query).search
    return lambda text: found(text) is not None


def _compiled(body: str, query: str) -> re.Pattern[str]:
    flags = re.IGNORECASE if query == query.lower() else re.NOFLAG
    try:
        return re.compile(body, flags)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error.msg}") from error
