"""A comparison of two runs goes in; one HTML page that works offline comes out."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, Final

import jinja2

from tc import __version__
from tc.tlparse import difftext
from tc.tlparse.compare import Comparison
from tc.tlparse.report import STYLES, static
from tc.tlparse.summary import headline
from tc.trace.findings import duration
from tc.trace.words import count

_GLYPHS: Final = {
    "identical": ("ok", "="),
    "differs": ("break", "≠"),
    "only in A": ("error", "−"),
    "only in B": ("recompile", "+"),
}


def render(comparison: Comparison, a: str, b: str) -> bytes:
    """Return the page; the same comparison gives the same bytes."""
    page = _template().render(
        title=f"tc report: {a} and {b}",
        version=__version__,
        styles="\n".join(static(name) for name in STYLES),
        early=static("early.js"),
        theme=static("theme.js"),
        verdict=difftext.verdict(comparison),
        sides=[("A", a, headline(comparison.a)), ("B", b, headline(comparison.b))],
        comparison=comparison,
        seconds=difftext.seconds(comparison),
        unpaired=difftext.unpaired(comparison) if comparison.unpaired else "",
        compared=difftext.ACROSS if comparison.across else difftext.STAGES,
        functions=[_function(one) for one in comparison.functions],
        widest=max((max(row[1:]) for row in comparison.phases), default=0.0),
        duration=duration,
        count=count,
    )
    return page.encode("utf-8", "replace")


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    text = (files("tc.tlparse") / "templates" / "diff.html").read_text("utf-8")
    return environment.from_string(text)


def _function(one: Any) -> dict[str, Any]:
    kind, glyph = _GLYPHS[one.state]
    return {
        "name": one.name,
        "kind": kind,
        "glyph": glyph,
        "state": one.state,
        "seconds": one.seconds,
        "compiles": [
            {
                "bracket": difftext.bracket(compiled),
                "state": compiled.state,
                "kind": _GLYPHS[compiled.state][0],
                "glyph": _GLYPHS[compiled.state][1],
                "sentence": difftext.sentence(compiled),
                "stages": [stage for stage in compiled.stages if stage.hunks],
                "misses": compiled.misses,
            }
            for compiled in one.compiles
        ],
    }
