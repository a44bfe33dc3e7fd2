"""A backend that a script passes as a function: its text, so that a written graph can have it.

In: the function. Out: the name that it has in its module, and the statements that define it there;
no text where these would not mean the same in a file of their own.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tc.minifier.passes import rendering
from tc.minifier.setup_code import definition_of

#: variable of a process in which backends that the script passes as functions are replaced by eager
WITHOUT_OWN: Final = "TC_MINIFIER_WITHOUT_OWN_BACKENDS"


@dataclass(frozen=True)
class OwnBackend:
    """A backend of the script.

    Attributes:
        name: what it is called where it is defined.
        place: ``file:line`` of the function, if it is one.
        text: statements that define it; empty: they cannot be taken out of their module.
    """

    name: str
    place: str = ""
    text: str = ""

    @classmethod
    def of(cls, backend: Any, script: str) -> OwnBackend:
        """Return what is known of a backend.

        Args:
            script: text of the program that runs.
        """
        code = getattr(backend, "__code__", None)
        place = f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""
        home = getattr(backend, "__module__", None) or "__main__"
        names = [name for name, value in _names_in(home) if value is backend]
        if not names:
            return cls(getattr(backend, "__name__", type(backend).__name__), place)
        source = script if home == "__main__" else _source(home)
        return cls(names[0], place, definition_of(source, names[0]))


def _names_in(module: str) -> list[tuple[str, Any]]:
    found = sys.modules.get(module)
    return list(vars(found).items()) if found is not None else []


def _source(module: str) -> str:
    file = Path(getattr(sys.modules[module], "__file__", None) or "")
    if file.suffix != ".py" or not file.is_file():
        return ""
    return rendering.source_of(file)
