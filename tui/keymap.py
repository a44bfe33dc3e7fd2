"""A TOML file of the user's goes in; the table of keys with those keys in place comes out.

Names of actions are the ids of `tc.tui.keys`; names of keys are Textual's, or one character.
"""

from __future__ import annotations

import tomllib
import unicodedata
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from textual.keys import KEY_NAME_REPLACEMENTS, Keys

from tc.trace.words import did_you_mean
from tc.tui.keys import KEYS, Table

_MODIFIERS: Final = {"ctrl", "shift", "alt", "super", "hyper", "meta"}
_ALWAYS_QUITS: Final = "ctrl+q"  # Textual's own, before all others
_SIGNS: Final = {"up": "↑", "down": "↓", "left": "←", "right": "→", "escape": "Esc",
                 "enter": "Enter", "tab": "Tab", "space": "Space", "pageup": "PgUp",
                 "pagedown": "PgDn"}  # fmt: skip


class WrongKeys(Exception):
    """A file of keys cannot be used; the text is one sentence that says why."""


def default_file(environment: Mapping[str, str]) -> Path:
    """Return where keys are looked for if no file is named."""
    home = environment.get("XDG_CONFIG_HOME") or ""
    base = Path(home) if Path(home).is_absolute() else Path("~/.config").expanduser()
    return base / "tc" / "tui.toml"


def read_table(file: str, environment: Mapping[str, str]) -> Table:
    """Return the keys as a file has them: the one named, else the usual one if it is there.

    Raises:
        WrongKeys: the file cannot be read, or what it says cannot be done.
    """
    try:
        path = Path(file) if file else default_file(environment)
        if not file and not path.exists():
            return Table(KEYS)
        content = tomllib.loads(path.read_bytes().decode("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise WrongKeys(f"{path} is not TOML: {error}") from error
    except UnicodeDecodeError as error:
        raise WrongKeys(f"{path} is not text in UTF-8") from error
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise WrongKeys(f"cannot read the keys of {file or 'the user'}: {reason}") from error
    rows = content.get("keys", {})
    other = next((name for name in content if name != "keys"), "")
    if other or not isinstance(rows, dict):
        raise WrongKeys(f"{path}: keys stand below a line [keys], and nothing else does"
                        + (f" ({other} does not belong there)" if other else ""))  # fmt: skip
    return remapped(rows, str(path))


def remapped(rows: Mapping[str, object], file: str) -> Table:
    """Return the table of keys with other keys for some actions.

    Raises:
        WrongKeys: there is no such action or key, or one key would have two actions.
    """
    known = {key.id: key for key in KEYS}
    for name, value in rows.items():
        if name not in known:
            near = did_you_mean(name, known)
            hint = f"did you mean {near}" if near else f"ids are {', '.join(known)}"
            raise WrongKeys(f"{file}: there is no action {name} ({hint})")
        keys = _keys(name, value, file)
        known[name] = replace(
            known[name], keys=",".join(keys), shown=" ".join(shown(key) for key in keys)
        )
    owner: dict[str, str] = {}
    for one in known.values():
        for key in one.keys.split(","):
            if key in owner:
                raise WrongKeys(
                    f"{file}: {shown(key)} would be both {owner[key]} and {one.id}; "
                    "give one of them another key"
                )
            owner[key] = one.id
    return Table(tuple(known.values()), frozenset(rows))


def _keys(name: str, value: object, file: str) -> list[str]:
    keys = [value] if isinstance(value, str) else value
    if not isinstance(keys, list) or not keys or not all(isinstance(key, str) for key in keys):
        raise WrongKeys(f'{file}: {name} is to be a key, as "x", or a list of keys')
    found = []
    for key in keys:
        plain = _named(key.strip() or key)
        if not plain:
            raise WrongKeys(
                f"{file}: {name}: there is no key {key!r} (keys are as x, X, ?, f5, ctrl+x, escape)"
            )
        if plain == _ALWAYS_QUITS and name != "quit":
            raise WrongKeys(f"{file}: {name}: ctrl+q always quits and cannot be given away")
        if plain not in found:
            found.append(plain)
    return found


def _named(key: str) -> str:
    """Return Textual's name of a key; empty if there is no such key."""
    if len(key) == 1:
        return _of_character(key)
    *modifiers, last = key.split("+")
    if not set(modifiers) <= _MODIFIERS or not last:
        return ""
    last = _of_character(last) if len(last) == 1 else last
    punctuation = {_of_character(chr(code)) for code in range(33, 127)}
    if last not in punctuation | {str(one.value) for one in Keys}:
        return ""
    return "+".join([*modifiers, last])


def _of_character(character: str) -> str:
    if character.isalnum():
        return character
    try:
        name = unicodedata.name(character).lower().replace("-", "_").replace(" ", "_")
    except ValueError:
        return ""
    return KEY_NAME_REPLACEMENTS.get(name, name)


def shown(key: str) -> str:
    """Return a key as people read it: `^x`, `?`, `Esc`."""
    *modifiers, last = key.split("+")
    signs = {_of_character(chr(code)): chr(code) for code in range(33, 127)}
    last = _SIGNS.get(last) or signs.get(last) or (last.capitalize() if len(last) > 1 else last)
    lead = "".join("^" if one == "ctrl" else "⇧" if one == "shift" else f"{one}+"
                   for one in modifiers)  # fmt: skip
    return lead + last
