"""A trace goes in; a copy comes out that keeps structure, operators and times, and no secrets.

What differs in the trace differs in the copy: each line, literal, folder and name has a number of
its own. Causes of a run differ by what their lines and values say, so that a copy in
which these were all alike would have other causes.
"""

from __future__ import annotations

import builtins
import hashlib
import json
import keyword
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from tc.trace.compiles import GIVEN_UP, LIBRARY
from tc.trace.findings.advice import ROWS
from tc.trace.findings.breaks import PHRASES as BREAKS
from tc.trace.findings.reasons import PHRASES as RECOMPILES
from tc.trace.parsed import parse_json
from tc.trace.part import TOO_OFTEN
from tc.trace.reader import (
    TRACE_PREFIX,
    Defects,
    Record,
    Source,
    find_logs,
    read_records,
)
from tc.trace.runs import rank_in_name
from tc.trace.words import HIDDEN, REDACTED

KINDS: Final = ("source", "paths", "names")
_RENAMED: Final = re.compile(r"\bname\d+\b")
_MOVED: Final = re.compile(r"^(/folder\d+(?:/site-packages)?)([/\\])")
_PATH: Final = re.compile(r"(?<![\w.:])/[\w.+@~-]+(?:/[\w.+@~-]+)+|\b[A-Za-z]:\\[^\s\"':*?<>|]+")
_LIBRARY: Final = re.compile(r"^.*[/\\](?:(?:site|dist)-packages|lib)[/\\](?=torch|python\d)")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_]\w*")
_OPERATORS: Final = re.compile(r"\b(?:torch|aten|prims|inductor|extern_kernels)(?:\.\w+)+")
_GUARDED: Final = re.compile(r"\b[LG]\[['\"](\w+)['\"]\]((?:\.[\w.]+|\[['\"]\w+['\"]\])*)")
_QUOTED_CODE: Final = re.compile(r"(, code: )(.*)$", re.MULTILINE)
_COMMENT: Final = re.compile(r"# (?!File:)(.*?)(\s+# \S+:\d+ in \S+)")
_FRAME: Final = re.compile(
    r'^(?P<head>\s*File "(?P<file>[^"\n]+)", line \d+, in (?P<fn>\S+)\n)'
    r"(?P<code>[^\n]*)(?P<carets>\n[ ^~]+(?=\n|\Z))?",
    re.MULTILINE,
)
_CLASS: Final = re.compile(
    r"(?:<class |, )['\"](?!torch\.|builtins\.)([A-Za-z_]\w*(?:\.\w+)+)['\"]"
)
_LITERAL: Final = re.compile(r"((?:==|!=|\bis|\bin) )(['\"])((?:(?!\2).)*)\2")
_SOURCE_KEYS: Final = frozenset(("loc", "source_line", "text"))
_NAMED_KEYS: Final = frozenset(
    ("sizes", "preToPost", "postToPre", "cppCodeToPost", "postToCppCode")
)  # dicts with keys from the program
_SHORT: Final = 2  # names of one or two letters reveal nothing

# Words that compilers write themselves: a variable of that name keeps it.
_WORDS: Final = frozenset(
    (
        "self", "cls", "torch", "nn", "functional", "F", "tc", "np", "math", "forward", "graph",
        "code", "user", "reason", "size", "stride", "shape", "dtype", "device", "tensor", "index",
        "expected", "actual", "mismatch", "input", "output", "inputs", "outputs", "kernel", "line",
        "kernels", "call", "args", "weight", "bias", "parameters", "modules", "buffers", "file",
        "data", "dependent", "branch", "jump", "break", "compile", "name", "value", "values",
        "type", "state", "stage", "step", "dim", "start", "stop", "end", "cache", "main", "print",
    )
)  # fmt: skip


def _phrases() -> set[str]:
    """Return the words by which the report knows what a message of PyTorch is about."""
    read = (*BREAKS, *RECOMPILES, GIVEN_UP, *(row.pattern for row in ROWS))
    texts = [TOO_OFTEN, *(pattern.pattern for pattern in read)]
    return {word for text in texts for word in re.findall(r"[A-Za-z_]{3,}", text)}


class Redactor:
    """Replaces what must not be shared, the same thing by the same name everywhere."""

    def __init__(self, kinds: Iterable[str]) -> None:
        self.kinds = frozenset(kinds)
        self._known: set[str] = set()
        self._found: dict[str, None] = {}
        self._names: dict[str, str] = {}
        self._folders: dict[str, str] = {}
        self._lines: set[str] = set()
        self._hidden: dict[str, int] = {}
        self._pattern: re.Pattern[str] | None = None

    # --- first pass: what there is to hide ------------------------------------------------------

    def learn(self, record: Record) -> None:
        """Take in the names and source lines of one record."""
        value = _payload_of(record)
        if isinstance(value, str):
            self._learn_text(value)
        else:
            self._learn_value(value)
        if record.event == "str":
            self._learn_file(str(record.value[0]) if isinstance(record.value, list) else "")
        self._learn_value(record.value)

    def _learn_value(self, value: Any) -> None:
        if isinstance(value, str):
            inner = _inner(value)
            if inner is None:
                self._learn_text(value)
            else:
                self._learn_value(inner)
        elif isinstance(value, list):
            for item in value:
                self._learn_value(item)
        elif isinstance(value, dict):
            for key, item in value.items():
                if key in _SOURCE_KEYS and isinstance(item, str):
                    self._learn_code(item)
                elif key in ("function", "co_name") or (key == "name" and "filename" in value):
                    self._learn_code(str(item), line=False)
                elif key in ("file", "co_filename"):
                    self._learn_file(str(item))
                else:
                    self._learn_value(item)

    def _learn_text(self, text: str) -> None:
        for match in _OPERATORS.finditer(text):
            self._known.update(match[0].split("."))
        for match in _GUARDED.finditer(text):
            self._learn_code(f"{match[1]} {match[2]}", line=False)
        for match in _CLASS.finditer(text):
            self._learn_code(match[1], line=False)
        for match in _FRAME.finditer(text):
            if not _LIBRARY.match(match["file"]):
                self._learn_file(match["file"])
                self._learn_code(match["code"])
                self._learn_code(match["fn"], line=False)
        for row in text.split("\n") if ", code: " in text else ():
            head, found, code = row.partition(", code: ")
            if found and not _LIBRARY.search(head.partition("File: ")[2]):
                self._learn_file(head.partition("File: ")[2].partition(":")[0])
                self._learn_code(code)

    def _learn_code(self, code: str, *, line: bool = True) -> None:
        if line and len(code.strip()) > _SHORT:
            self._lines.add(code.strip())
        for name in _IDENTIFIER.findall(code):
            self._found.setdefault(name)

    def _learn_file(self, path: str) -> None:
        if path and not _LIBRARY.match(path):
            stem = path.replace("\\", "/").rpartition("/")[2].partition(".")[0]
            self._found.setdefault(stem)

    def settle(self) -> None:
        """Choose the new names, once everything was learnt."""
        keep = self._known | _WORDS | _phrases() | set(keyword.kwlist) | set(dir(builtins))
        for name in self._found:
            if name not in keep and len(name) > _SHORT and not name.startswith("torch_dynamo"):
                self._names[name] = f"name{len(self._names) + 1}"
        if self._names and "names" in self.kinds:
            # longest first, so that the whole of `query_key` goes before `query`
            listed = "|".join(sorted(map(re.escape, self._names), key=len, reverse=True))
            self._pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{listed})(?![A-Za-z0-9])")

    # --- second pass ----------------------------------------------------------------------------

    def text(self, text: str) -> str:
        """Return a text without what is to be hidden."""
        if "source" in self.kinds:
            text = _QUOTED_CODE.sub(lambda m: f"{m[1]}{self._hide(m[2])}", text)
            text = _FRAME.sub(lambda m: f"{m['head']}    {self._hide(m['code'])}", text)
            text = _COMMENT.sub(lambda m: f"# {self._hide(m[1])}{m[2]}", text)
            rows = text.split("\n")
            text = "\n".join(self._hide(r) if r.strip() in self._lines else r for r in rows)
        if "paths" in self.kinds:
            text = _PATH.sub(self._path, text)
        if "names" in self.kinds:
            text = _LITERAL.sub(lambda m: f"{m[1]}{m[2]}{self._hide(m[3])}{m[2]}", text)
            if self._pattern is not None:
                text = self._pattern.sub(lambda match: self._names[match[0]], text)
        return text

    def _path(self, match: re.Match[str]) -> str:
        path = match[0]
        library = _LIBRARY.match(path)
        if library:
            return path[library.end() :]
        folder, slash, name = path.replace("\\", "/").rpartition("/")
        packages = "/site-packages" if LIBRARY.search(path) else ""  # whose code it is, stays
        known = self._folders.setdefault(folder, f"/folder{len(self._folders) + 1}{packages}")
        return f"{known}{slash}{name}"

    def _hide(self, text: str) -> str:
        """Return what is written in place of a line or a literal, the same for the same."""
        text = text.strip()
        if not text or REDACTED.fullmatch(text):
            return text
        return f"{HIDDEN}{self._hidden.setdefault(text, len(self._hidden) + 1)}"

    def original(self, text: str) -> str:
        """Return the path, name or line that something in the copy is written in place of."""
        lines, names, folders = (
            {new: old for old, new in table.items()}
            for table in (self._hidden, self._names, self._folders)
        )
        text = REDACTED.sub(lambda m: lines.get(int(m[1]), m[0]), text)
        if "names" in self.kinds:
            text = _RENAMED.sub(lambda m: names.get(m[0], m[0]), text)
        return _MOVED.sub(lambda m: f"{folders.get(m[1], m[1])}{m[2]}", text)

    def value(self, value: Any, key: str = "") -> Any:
        """Return plain values without what is to be hidden."""
        if isinstance(value, str):
            if "source" in self.kinds and key in _SOURCE_KEYS and value:
                return self._hide(value)
            if "source" in self.kinds and key == "fix" and value.startswith(("- ", "+ ")):
                return f"{value[:2]}{self._hide(value[2:])}"
            if "names" in self.kinds and key in ("old", "new") and value.startswith(("'", '"')):
                return f"'{self._hide(value[1:-1])}'"
            inner = _inner(value)
            return self.text(value) if inner is None else json.dumps(self.value(inner))
        if isinstance(value, list):
            return [self.value(item, key) for item in value]
        if isinstance(value, dict):
            rename = self.text if key in _NAMED_KEYS else str
            return {rename(name): self.value(item, name) for name, item in value.items()}
        return value


def _payload_of(record: Record) -> Any:
    """The payload as plain values if it is JSON, else as text."""
    text = record.text()
    inner = _inner(text)
    return text if inner is None else inner


def _inner(text: str) -> Any:
    """What a text holds if it is JSON, as some values within JSON are; else None."""
    if text[:1] + text[-1:] not in ("{}", "[]"):
        return None
    try:
        found = parse_json(text)
    except ValueError:
        return None
    return found if isinstance(found, (dict, list)) else None


def redact(path: str, kinds: Iterable[str], folder: Path) -> Redactor:
    """Write redacted copies of all logs of a trace into a folder; return who knows what was what.

    Only to choose among the fixes: see `tc.trace.branches.seen_through`.
    """
    sources = [Source(name) for name in find_logs(path)]
    redactor = Redactor(kinds)
    for index, source in enumerate(sources):
        for record in read_records(source, index, Defects()):
            redactor.learn(record)
    redactor.settle()
    for index, source in enumerate(sources):
        rank = rank_in_name(source.name)
        prefix = "" if rank is None else f"rank_{rank}_"
        target = folder / f"{TRACE_PREFIX}{prefix}{index:04}.log"
        with open(target, "w", encoding="utf-8", errors="replace", newline="\n") as log:
            for record in read_records(source, index, Defects()):
                log.write(_written(record, redactor))
        source.close()
    return redactor


def _written(record: Record, redactor: Redactor) -> str:
    """One record in the wire format."""
    value = record.value
    if isinstance(value, dict) and isinstance(value.get("name"), str) and record.span:
        rest = {key: item for key, item in value.items() if key != "name"}
        name = value["name"]  # says what the payload is, unless it is that of a resume function
        shown = redactor.text(name) if name.startswith("torch_dynamo_resume") else name
        value = {"name": shown, **redactor.value(rest)}
    else:
        value = redactor.value(value)
    context = redactor.value({k: v for k, v in record.context.items() if k != "has_payload"})
    envelope = {record.event: value, **context}
    rows = ""
    if record.payload is not None:
        payload = _payload_of(record)
        text = redactor.text(payload) if isinstance(payload, str) else ""
        if not isinstance(payload, str):
            text = json.dumps(redactor.value(payload))
        text = text.encode("utf-8", "replace").decode("utf-8")
        envelope["has_payload"] = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
        rows = "".join(f"\t{row}\n" for row in text.split("\n"))
    stamp = record.time.replace("-", "", 1)
    emitter = redactor.text(record.emitter)
    return f"V{stamp} {record.pid} {emitter}] {json.dumps(envelope)}\n{rows}"
