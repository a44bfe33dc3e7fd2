"""A role goes in; how it looks, in the dark and in the light, comes out.

Contrast of text is at least 4.5 to 1 on the background; colours of phases are those of Okabe and
Ito, so that nobody has to distinguish red from green; each status has a sign and a word as well.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from rich.style import Style
from textual.app import App
from textual.theme import Theme

from tc.trace.timing import PHASES

DARK: Final = Theme(
    name="tc-dark", dark=True, primary="#5fb0f2", secondary="#8fa1b3", accent="#e6a93c",
    foreground="#d7dde5", background="#12161b", surface="#12161b", panel="#1d242c",
    success="#57c28f", warning="#e6a93c", error="#f2726a",
    variables={"footer-background": "#1d242c", "border": "#3a4653", "scrollbar": "#3a4653",
               "scrollbar-background": "#171c22", "scrollbar-hover": "#5a6b7d",
               "scrollbar-active": "#5fb0f2", "scrollbar-corner-color": "#171c22",
               "scrollbar-background-hover": "#171c22", "scrollbar-background-active": "#171c22",
               "input-selection-background": "#5fb0f2 40%"},
)  # fmt: skip
LIGHT: Final = Theme(
    name="tc-light", dark=False, primary="#0b5fa5", secondary="#57606a", accent="#8a5a00",
    foreground="#1c2329", background="#fbfcfd", surface="#fbfcfd", panel="#e9edf1",
    success="#0b7047", warning="#8a5a00", error="#b3261e",
    variables={"footer-background": "#e9edf1", "border": "#b9c2cb", "scrollbar": "#b9c2cb",
               "scrollbar-background": "#f0f2f5", "scrollbar-hover": "#8b98a5",
               "scrollbar-active": "#0b5fa5", "scrollbar-corner-color": "#f0f2f5",
               "scrollbar-background-hover": "#f0f2f5", "scrollbar-background-active": "#f0f2f5",
               "input-selection-background": "#0b5fa5 40%"},
)  # fmt: skip

# role: (dark, light)
_ROLES: Final = {
    "": ("#d7dde5", "#1c2329"),
    "dim": ("#97a5b3", "#5a646e"),
    "head": ("bold #f2f5f8", "bold #0c1116"),
    "title": ("bold #5fb0f2", "bold #0b5fa5"),
    "error": ("#ff857c", "#b3261e"),
    "break": ("#e6a93c", "#8a5a00"),
    "recompile": ("#5fb0f2", "#0b5fa5"),
    "refused": ("#ff857c", "#b3261e"),
    "ok": ("#57c28f", "#0b7047"),
    "cached": ("#97a5b3", "#5a646e"),
    "skipped": ("#97a5b3", "#5a646e"),
    "damage": ("#e6a93c", "#8a5a00"),
    "mark": ("bold #e6a93c", "bold #8a5a00"),
    "code": ("#f2f5f8", "#0c1116"),
    "key": ("bold #5fb0f2", "bold #0b5fa5"),
    "tab": ("#97a5b3", "#5a646e"),
    "tab_here": ("bold #12161b on #5fb0f2", "bold #ffffff on #0b5fa5"),
    "live": ("bold #57c28f", "bold #0b7047"),
    "keyword": ("#c792ea", "#7a3ea8"),
    "string": ("#9fd18b", "#2f6f1f"),
    "number": ("#e6a93c", "#8a5a00"),
    "comment": ("italic #94a2b0", "italic #5f6a74"),
    "defined": ("#6fb7ff", "#0b5fa5"),
    "builtin": ("#5fc9c9", "#00696b"),
    "hit": ("#12161b on #c9a94a", "#0c1116 on #ffe08a"),
    "hit_here": ("bold #12161b on #ff9f43", "bold #0c1116 on #ffb454"),
    "cursor": ("on #1e374f", "on #dcebfa"),
    "cursor_away": ("on #20272f", "on #e9edf1"),
    "phase_capture": ("#56b4e9", "#0072b2"),
    "phase_graph_passes": ("#e69f00", "#b36b00"),
    "phase_lowering": ("#19b88a", "#007a59"),
    "phase_build": ("#e8763c", "#c24f00"),
    "phase_cache": ("#d98fb8", "#a34f82"),
    "phase_other": ("#93a1af", "#5a646e"),
}

# Roles whose background says something: where no colours are wanted, reverse video
# or a line below shows it.
_WITHOUT_COLOURS: Final = {
    "tab_here": "bold reverse", "cursor": "reverse", "cursor_away": "not reverse",
    "hit": "underline", "hit_here": "bold reverse",
}  # fmt: skip

# status: (sign, sign where only ASCII can be shown, word)
STATUS: Final = {
    "ok": ("✓", "*", "ok"),
    "break": ("↯", "!", "break"),
    "recompile": ("↻", "~", "recompile"),
    "error": ("✗", "x", "error"),
    "refused": ("✗", "x", "refused"),
    "cached": ("▢", "o", "cached"),
    "skipped": ("–", "-", "skipped"),
    "damage": ("⚠", "!", "damage"),
}
_ASCII: Final = str.maketrans({
    "✓": "*", "↯": "!", "↻": "~", "✗": "x", "▢": "o", "–": "-", "⚠": "!", "▸": ">", "◂": "<",
    "│": "|", "─": "-", "…": ".", "×": "x", "·": "-", "→": ">", "●": "o", "■": "#", "█": "#",
    "▓": "%", "▒": "+", "░": ".", "▏": "|", "▚": "x", "▞": "/", "↓": "v", "↑": "^", "←": "<",
    "⇧": "s", "≠": "#",
})  # fmt: skip
# One texture a phase: the bars can be distinguished without colours.
TEXTURE: Final = dict(zip(PHASES, "▚▓▒█░▞", strict=True))


def plain(text: str) -> str:
    """Replace what a terminal without Unicode cannot show; each sign stays one cell wide."""
    return text.translate(_ASCII)


@cache
def style(role: str, dark: bool, colours: bool = True) -> Style:
    """Return the look of a role; of a combination such as `mark+hit`, one over the other."""
    if "+" in role:
        below, _, above = role.rpartition("+")
        return style(below, dark, colours) + style(above, dark, colours)
    if not colours and role in _WITHOUT_COLOURS:
        return Style.parse(_WITHOUT_COLOURS[role])
    full = Style.parse(_ROLES[role][0 if dark else 1])
    return full if colours else full.without_color


def style_in(app: App[Any], role: str) -> Style:
    """Return the look of a role in an application: of its theme, or without colours."""
    return style(role, bool(app.current_theme.dark), not app.no_color)


def phase_role(phase: str) -> str:
    """Return the role that colours a phase."""
    return "phase_" + phase.replace(" ", "_")


def roles() -> dict[str, tuple[str, str]]:
    """Return every role with its looks, for the test of contrast."""
    return dict(_ROLES)
