"""The file format of saved compiles: written, and verified before anything in it is looked at.

A file is a zip archive, which people can open, whose comment ends in a digest of all bytes before
it: SHA-256, or HMAC-SHA-256 under a key. Reading checks the digest first, then the list of contents
(`Manifest`), then each part as it is taken. Nothing is unpickled, and no path of a file is used as
one. Whoever can write a file with a valid digest can put code in it: see docs/saving.md.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from tc.compiler.errors import SavedFileError

T = TypeVar("T")
FORMAT = 1
#: the comment of the archive, before the digest in hexadecimal digits
PLAIN, KEYED = b"tc-saved-1 sha256 ", b"tc-saved-1 hmac   "
DIGITS = 64
TAIL = len(PLAIN) + DIGITS
MANIFEST = "manifest.json"
#: bytes that a file, and all that it unpacks to, may have
LARGEST = 4 << 30
#: the date of all parts: equal contents make equal files
DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class SavedGraph:
    """A graph.

    Attributes:
        key: `Key.portable`.
        parts: what it depends on, by name.
        place: of the user's function that it is of, for people.
        entry: part that holds its entry in the cache; events: part that traces copy; "" for none.
        wrapper: part with its Python, for people.
    """

    key: str
    parts: dict[str, str]
    place: str
    entry: str
    events: str
    wrapper: str


@dataclass(frozen=True)
class SavedLibrary:
    """Kernels that were built together.

    Attributes:
        key: see `carried.key_of`.
        source: part that holds their C.
        code: level of a CPU, or "any" -> part that holds the shared library.
    """

    key: str
    source: str
    code: dict[str, str]


@dataclass(frozen=True)
class Manifest:
    """The list of contents.

    Attributes:
        function: what was saved, as ``module:name``.
        needs: what has to be the same where it is loaded, by name.
        files: source file of the user's -> SHA-256 of it.
    """

    format: int
    function: str
    needs: dict[str, str]
    files: dict[str, str]
    graphs: tuple[SavedGraph, ...]
    libraries: tuple[SavedLibrary, ...]


@dataclass(frozen=True)
class SavedFile:
    """A verified file.

    Attributes:
        parts: name -> content.
        sha256: of the whole file.
    """

    manifest: Manifest
    parts: Mapping[str, bytes]
    sha256: str


def packed(manifest: Manifest, parts: Mapping[str, bytes], key: bytes | None = None) -> bytes:
    """Return a file.

    Args:
        key: a secret without which no valid file can be made.
    """
    _check_key(key)
    listed = json.dumps(asdict(manifest), indent=1, sort_keys=True).encode()
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {MANIFEST: listed, **parts}.items():
            archive.writestr(zipfile.ZipInfo(name, DATE), content, zipfile.ZIP_DEFLATED)
        archive.comment = (PLAIN if key is None else KEYED) + b"0" * DIGITS
    body = target.getvalue()[:-DIGITS]
    return body + _digest(body, key)


def opened(content: bytes, key: bytes | None = None, sha256: str | None = None) -> SavedFile:
    """Return what a file holds.

    Args:
        key: the secret it has to be made with.
        sha256: what the SHA-256 of the whole file has to be.

    Raises:
        SavedFileError: it is not such a file, damaged, or not by somebody who has the key.
    """
    _check_key(key)
    if len(content) > LARGEST:
        raise SavedFileError(f"it has more than {LARGEST >> 30} GiB: tc writes no such file")
    if not isinstance(content, bytes) or not isinstance(sha256, str | None):
        raise SavedFileError("what it holds is given as bytes, and its SHA-256 as text")
    found = hashlib.sha256(content).hexdigest()
    if sha256 is not None and not hmac.compare_digest(found, sha256.strip().lower()):
        raise SavedFileError(f"its SHA-256 is {found}, and not the one that was asked for")
    mark, body = content[-TAIL:-DIGITS], content[:-DIGITS]
    if mark not in (PLAIN, KEYED):
        raise SavedFileError("it was not written by tc.save, or its end is missing")
    if mark == PLAIN and key is not None:
        raise SavedFileError("it was saved without a key, and a key is asked for")
    if mark == KEYED and key is None:
        raise SavedFileError("it was saved with a key: pass the same one as key=")
    if not hmac.compare_digest(content[-DIGITS:], _digest(body, key)):
        why = "it is damaged" if key is None else "it is damaged, or was saved with another key"
        raise SavedFileError(f"{why}: its digest does not fit its content")
    with _refusing():
        parts = dict(_parts(content))
        return SavedFile(_manifest(json.loads(parts[MANIFEST]), parts), parts, found)


def _check_key(key: bytes | None) -> None:
    if key is not None and not (isinstance(key, bytes) and key):
        raise SavedFileError("a key is at least one byte, given as bytes")


def _digest(body: bytes, key: bytes | None) -> bytes:
    made = hashlib.sha256(body) if key is None else hmac.new(key, body, "sha256")
    return made.hexdigest().encode()


@contextmanager
def _refusing() -> Iterator[None]:
    """Turn whatever the reading of a malformed archive raises into one sentence."""
    try:
        yield
    except SavedFileError:
        raise
    except Exception as error:
        raise SavedFileError(
            f"its content is malformed ({type(error).__name__}: {error})"
        ) from error


def _parts(content: bytes) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        listed = archive.infolist()
        if sum(part.file_size for part in listed) > LARGEST:
            raise SavedFileError("its content unpacks to more than tc writes")
        if len({part.filename for part in listed}) != len(listed):
            raise SavedFileError("two of its parts have the same name")
        for part in listed:
            yield part.filename, archive.read(part)


def _manifest(plain: Any, parts: Mapping[str, bytes]) -> Manifest:
    made = _checked(Manifest, plain)
    if made.format != FORMAT:
        raise SavedFileError(f"it has format {made.format}, and this version of tc reads {FORMAT}")
    for library in made.libraries:
        for name in (library.source, *library.code.values()):
            _ = parts[name]
    for graph in made.graphs:
        for name in (graph.entry, graph.wrapper, *([graph.events] if graph.events else [])):
            _ = parts[name]
    return made


def _checked(kind: Callable[..., T], plain: Any) -> T:
    """Return a dataclass of JSON, whose fields are what they are said to be."""
    wanted: Any = kind
    types = {field.name: str(field.type) for field in fields(wanted)}
    if not isinstance(plain, dict) or set(plain) != set(types):
        raise SavedFileError(f"its list of contents has no {wanted.__name__} of this format")
    return kind(**{name: _value(types[name], plain[name], name) for name in types})


def _value(kind: str, plain: Any, name: str) -> Any:
    rows: dict[str, type] = {"SavedGraph": SavedGraph, "SavedLibrary": SavedLibrary}
    if kind.startswith("tuple["):
        row = rows[kind.removeprefix("tuple[").partition(",")[0]]
        if isinstance(plain, list):
            return tuple(_checked(row, item) for item in plain)
    elif kind == "dict[str, str]":
        if isinstance(plain, dict) and all(isinstance(value, str) for value in plain.values()):
            return plain
    elif type(plain) is {"int": int, "str": str}[kind]:
        return plain
    raise SavedFileError(f"its list of contents has a malformed {name!r}")
