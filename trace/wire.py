"""Records of the wire format, and JSON that every reader accepts."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

#: what UTF-8 cannot hold is spelled out
UTF8 = ("utf-8", "backslashreplace")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_DEEPEST = 20


class Payload(NamedTuple):
    """A text as files hold it.

    Attributes:
        digest: MD5 of the text in UTF-8, in hexadecimal digits.
        lines: the text in UTF-8, with a tab before each line but the first.
    """

    digest: str
    lines: bytes | memoryview

    @classmethod
    def of(cls, text: str) -> Payload:
        """Return a text as files hold it."""
        encoded = text.encode(*UTF8)
        digest = _md5()(encoded, usedforsecurity=False).hexdigest()
        return cls(digest, encoded.replace(b"\n", b"\n\t"))

    @property
    def text(self) -> str:
        """The text, as a reader finds it."""
        return bytes(self.lines).replace(b"\n\t", b"\n").decode()


@cache
def _md5() -> Callable[..., Any]:
    from hashlib import md5  # here, because few processes need it

    return md5


class RawJson(str):
    """A value as JSON, which is written as it is."""


class Record(NamedTuple):
    """One record of the wire format.

    Attributes:
        key: name of the event, the one key that is not context.
        metadata: its value; may hold `StackFrame`s, whose file names the writer interns, or be
            `RawJson`.
        payload: text that follows the record, or None.
        in_compile: whether the current compile id belongs to it.
    """

    key: str
    metadata: object
    payload: str | Payload | None = None
    in_compile: bool = True


def safe_repr(value: object) -> str:
    """Return ``repr(value)``, or the name of its type when its repr raises."""
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__name__}>"


def plain(value: object) -> Any:
    """Encode what JSON has no form for: a dataclass as an object, other things as their repr."""
    if is_dataclass(value) and not isinstance(value, type):
        return {name: getattr(value, name) for name in _field_names(type(value))}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=safe_repr)
    return safe_repr(value)


@cache
def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(item.name for item in fields(kind))


#: What JSON has no form for fails. So does a value that holds itself, by the depth of recursion:
#: to look for one takes a third of the time.
strict_encoder = partial(json.JSONEncoder, allow_nan=False, check_circular=False)
#: made once: making an encoder takes longer than most values
_ENCODER = strict_encoder(default=plain)


def to_json(value: object, encoder: json.JSONEncoder = _ENCODER) -> str:
    """Return one line of strict ASCII JSON: no NaN, no lone surrogates, no failure."""
    if type(value) is RawJson:
        return value
    try:
        text = encoder.encode(value)
    except (TypeError, ValueError, RecursionError):
        value = _strict(value, encoder.default)
        text = json.dumps(value, allow_nan=False)
    if "\\ud" not in text:
        return text
    unescaped = json.dumps(json.loads(text), ensure_ascii=False)
    return json.dumps(json.loads(_LONE_SURROGATE.sub("\ufffd", unescaped)))


#: a text that comes again and again (a stage, a key) as JSON
quoted = lru_cache(1 << 12)(to_json)


#: what JSON writes as it is, but for the newline
_AS_IT_IS = bytes(sorted({*range(0x20, 0x7F), 0x0A} - {*b'"\\'}))


def texts_json(texts: Iterable[str]) -> str:
    """Return texts as a JSON list; fast where, as mostly, none has to be escaped."""
    listed = list(texts)
    joined = "\n".join(listed)
    escaped = joined.encode(*UTF8).translate(None, _AS_IT_IS)
    if escaped or not listed or joined.count("\n") != len(listed) - 1:
        return to_json(listed)
    return f'["{joined}"]'.replace("\n", '", "')


def _strict(value: object, default: Callable[[object], Any], depth: int = 0) -> Any:
    """Copy a value into what strict JSON can hold; too deep (or circular) parts become text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth > _DEEPEST:
        return f"<{type(value).__name__}>"
    if isinstance(value, dict):
        return {_key(key): _strict(item, default, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item, default, depth + 1) for item in value]
    return _strict(default(value), default, depth + 1)


def _key(key: object) -> str:
    return key if isinstance(key, str) else safe_repr(key)
