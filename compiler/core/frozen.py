"""Values to JSON and back: numbers, text, containers, and dataclasses of a given table.

For what is kept on disk: unlike with pickle, reading an entry can make nothing but these.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any


class NotPlain(Exception):
    """A value has no form here."""


def dumps(value: Any) -> bytes:
    """Return a value as JSON.

    Raises:
        NotPlain: it holds something other than numbers, text, containers and dataclasses.
    """
    return json.dumps(_plain(value), separators=(",", ":")).encode()


def loads(content: bytes, classes: Iterable[type]) -> Any:
    """Return the value that `dumps` was given.

    Args:
        classes: the dataclasses that may be made.

    Raises:
        ValueError, KeyError, TypeError: it was not written by `dumps`, or with other classes.
    """
    return _value(json.loads(content), {cls.__name__: cls for cls in classes})


def _plain(value: Any) -> Any:
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return {"float": value.hex()}
    if type(value) is list:
        return [_plain(item) for item in value]
    if type(value) is tuple:
        return {"tuple": [_plain(item) for item in value]}
    if type(value) is dict:
        return {"dict": [[_plain(key), _plain(item)] for key, item in value.items()]}
    if is_dataclass(value) and not isinstance(value, type):
        held = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        return {"class": type(value).__name__, "fields": held}
    raise NotPlain(f"a {type(value).__name__} cannot be serialised")


def _value(plain: Any, classes: Mapping[str, type]) -> Any:
    if isinstance(plain, list):
        return [_value(item, classes) for item in plain]
    if not isinstance(plain, dict):
        return plain
    if "class" in plain:
        held = {name: _value(item, classes) for name, item in plain["fields"].items()}
        return classes[plain["class"]](**held)
    if "float" in plain:
        return float.fromhex(plain["float"])
    if "tuple" in plain:
        return tuple(_value(item, classes) for item in plain["tuple"])
    return {_value(key, classes): _value(item, classes) for key, item in plain["dict"]}
