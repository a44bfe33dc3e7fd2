"""One failed guard goes in, as PyTorch prints it; the input that changed comes out."""

from __future__ import annotations

import re
from typing import Final

from tc.trace import guardtext, torchguards
from tc.trace.findings.model import Cause
from tc.trace.subjects import NOTHING, sort_of_value

_TENSOR: Final = re.compile(
    r"tensor '(?P<source>.+?)' (?P<what>size|stride) mismatch at index (?P<index>\d+)\. "
    r"expected (?P<old>\S+), actual (?P<new>-?\w+)"
)
_PROPERTY: Final = re.compile(
    r"tensor '(?P<source>.+?)' (?P<what>dtype|rank|requires_grad|dispatch key set|"
    r"Tensor device index) mismatch\. [Ee]xpected (?:device index to be )?(?:requires_grad=)?"
    r"(?P<old>.+?)(?:, (?:actual|got) (?P<new>.+?)(?: instead\.?)?)?$"
)
_GLOBAL: Final = re.compile(r"GLOBAL_STATE changed: (?P<what>\w+)")
_TYPE: Final = re.compile(
    r"expected type of '(?P<source>.+?)' to be a tensor type, ?' but found (?P<new>.+)$"
)
_CHECK_ID: Final = re.compile(r"___check_(?P<what>type|obj)_id\((?P<source>.+?), \d+\)")
_LENGTH: Final = re.compile(r"^(?:not )?len\((?P<source>.+?)\) == (?P<old>\d+)$")
_LENGTH_NOT: Final = re.compile(r"^len\((?P<source>.+?)\) != (?P<old>\d+)$")
_EQUAL: Final = re.compile(r"^(?P<source>[^=!<>%()]+(?:\[[^\]]*\])*) (?:==|is) (?P<old>[^=].*)$")
_EQUAL_ITEM: Final = re.compile(  # of a dict: `d[list(dict.keys(d))[0]] == 2`, or of what is in it
    r"^(?P<source>[^=]+\[list\(dict\.keys\([^=]+\][\w.]*) (?:==|is) (?P<old>[^=].*)$"
)
_SHAPE: Final = re.compile(r"(?P<source>[\w.\[\]']+?)\.(?:size\(\)|shape)\[(?P<index>\d+)\]")
_COMPARED: Final = re.compile(
    r"^(?P<source>[A-Za-z_][\w.\[\]'\"]*) (?:<|<=|>|>=|!=) -?[\d.]+$"
    r"|^-?[\d.]+ (?:<|<=|>|>=|!=) (?P<other>[A-Za-z_][\w.\[\]'\"]*)(?: <=? -?[\d.]+)?$"
)
#: `(n % 4) != 3`, `2*n == 10`: arithmetic on dynamic numbers, of which each side has its own graph
_CONDITION: Final = re.compile(
    r"^(?!not )(?P<left>[^<>=!]+) (?:<=?|>=?|==|!=) (?P<right>[^<>=!]+)$"
)
_SUBSCRIPTS: Final = re.compile(r"\[[^\]]*\]|(?<=\d)e-")  # no arithmetic, whatever is in there
_ARITHMETIC: Final = re.compile(
    r"[\w)] ?(?:[-+*/%]|//) ?[\w(]|\b(?:Mod|PythonMod|FloorDiv|Min|Max)\("
)
_OTHER: Final = re.compile(
    r"['\"]|\dj\b|\b(?!(?:Mod|PythonMod|FloorDiv|Min|Max|float)\()[A-Za-z_]\w*\("
)
#: a number that is read out of a tensor, which PyTorch needs for an index or a size
_READ: Final = re.compile(r"^(?P<source>[A-Za-z_][\w.\[\]'\"]*)\.item\(\) == (?P<old>-?[\d.e-]+)$")
_SPECIAL: Final = re.compile(r"^(?:not )?math\.is(?:nan|inf|finite)\((?P<source>.+)\)$")
_NAME: Final = re.compile(r"(?<![\w.'\"\]])[A-Za-z]\w*(?!\w*\()(?:\.\w+|\[[^\]]*\])*")
_GONE: Final = re.compile(r"Cache line invalidated because (?P<source>.+) got deallocated")
_EMPTY: Final = re.compile(r"^not (?P<source>[\w.\[\]'\"]+)$")
_RACED: Final = re.compile(r"Unexpected recompilation:")
COMMENT: Final = re.compile(r"\s+# (?P<comment>.*)$")
_OF_PARAMETER: Final = re.compile(r"\.? ?Guard failed on a parameter\b.*")
#: PyTorch's words
PHRASES: Final = (
    _TENSOR, _PROPERTY, _GLOBAL, _TYPE, _GONE, _RACED, *(f.pattern for f in torchguards.FORMS),
)  # fmt: skip


def parse_reason(text: str) -> Cause:
    """Split one failed guard, as PyTorch prints it, into input, old and new value."""
    head = text.strip().partition("\n")[0]
    guard = COMMENT.sub("", head).strip()
    if _RACED.match(guard):
        return Cause("the moment", "", "", "raced", guard)
    if match := _TENSOR.search(guard):
        name = guardtext.readable(match["source"])
        what = "shape" if match["what"] == "size" else "stride"
        kind = "size" if what == "shape" else "tensor"
        source = f"{name}.{what}[{match['index']}]"
        return Cause(source, match["old"], match["new"], kind, guard)
    if match := _PROPERTY.search(_OF_PARAMETER.sub("", guard)):
        what = _PROPERTIES.get(match["what"], match["what"])
        name = guardtext.readable(match["source"])
        source = f"dispatch keys of {name}" if what == _KEYS else f"{name}.{what}"
        old, new = (_word(match[side] or "", what) for side in ("old", "new"))
        return Cause(source, old, new, "tensor", guard)
    if match := _GONE.match(guard):
        return Cause(guardtext.readable(match["source"]), "", "another object", "type", guard)
    if found := torchguards.said(guard):
        return Cause(*found, guard)
    if match := _EMPTY.match(guard):
        return Cause(f"len({guardtext.readable(match['source'])})", "0", "", "length", guard)
    if match := _GLOBAL.search(guard):
        name = "autocast_state" if match["what"].startswith("autocast") else match["what"]
        return Cause(name, "", "", "global", guard)
    if match := _TYPE.search(guard):
        name, new = guardtext.readable(match["source"]), match["new"].strip()
        if new in NOTHING:
            return Cause(name, guardtext.A_TENSOR, "None", "constant", guard)
        return Cause(f"type({name})", "Tensor", new, "type", guard)
    if match := _CHECK_ID.search(guard):
        name = guardtext.readable(match["source"])
        what = f"type({name})" if match["what"] == "type" else name
        return Cause(what, "", "another object", "type", guard)
    if match := _LENGTH_NOT.match(guard):  # torch writes so of dicts
        source = guardtext.readable(match["source"])
        return Cause(f"list({source})", f"{match['old']} keys", "", "constant", guard)
    if match := _LENGTH.match(guard):
        return Cause(
            f"len({guardtext.readable(match['source'])})", match["old"], "", "length", guard
        )
    if not _SHAPE.search(guard) and (source := _asked_of(guard)):
        return Cause(source, guardtext.readable(guard), "", "shape", guard)
    if match := _READ.match(guard):
        return Cause(guardtext.readable(match["source"]), match["old"], "", "read", guard)
    if match := _EQUAL.match(guard) or _EQUAL_ITEM.match(guard):
        source = guardtext.readable(match["source"])
        return Cause(source, match["old"].strip(), "", sort_of_value(source), guard)
    if match := _SHAPE.search(guard):
        name = guardtext.readable(match["source"])
        return Cause(
            f"{name}.shape[{match['index']}]", guardtext.readable(guard), "", "shape", guard
        )
    plain = guardtext.readable(guard)
    if match := _COMPARED.match(plain):
        return Cause(match["source"] or match["other"], plain, "", "shape", guard)
    return Cause(plain[:80] or "unknown", "", "", "other", guard)


def _asked_of(guard: str) -> str:
    """Return the number that a guard computes with, the first of several; empty if it does not."""
    if special := _SPECIAL.match(guard):
        return guardtext.readable(special["source"])
    plain = _SUBSCRIPTS.sub("", guard)
    if not _CONDITION.match(plain) or not _ARITHMETIC.search(plain) or _OTHER.search(plain):
        return ""
    return next(iter(_NAME.findall(guardtext.readable(guard))), "")


_KEYS: Final = "dispatch keys"
_PROPERTIES: Final = {
    "rank": "ndim", "dispatch key set": _KEYS, "Tensor device index": "device",
}  # fmt: skip
_DTYPES: Final = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16",
    "Long": "int64", "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8",
    "Bool": "bool", "ComplexFloat": "complex64", "ComplexDouble": "complex128",
}  # fmt: skip


def _word(word: str, what: str) -> str:
    """A value as Python names it: `Float` is `float32`, requires_grad `1` is `True`."""
    word = word.strip()
    if what == "requires_grad":
        return {"0": "False", "1": "True"}.get(word, word)
    return _DTYPES.get(word, word)
