"""A failed guard in torch's words goes in; the input it is about, as tc names it, comes out.

Each row is a form that torch writes guards in, apart from those of tensors and sizes, which
`tc.trace.findings.recompiles` reads. Both compilers thus have the same finding of one cause.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tc.trace.guardtext import readable

#: what a failed guard says: source, old value, new value, sort of input
Said = tuple[str, str, str, str]
_THERE: Final = ("absent", "present")


@dataclass(frozen=True, slots=True)
class Form:
    """One form of guards.

    Attributes:
        pattern: matches the whole guard, without its comment.
        read: makes of the match what it says.
        example: one such guard, as torch writes it.
    """

    name: str
    pattern: re.Pattern[str]
    read: Callable[[re.Match[str]], Said]
    example: str


def said(guard: str) -> Said | None:
    """Return what a failed guard says; None: it has none of these forms."""
    for form in FORMS:
        if match := form.pattern.fullmatch(guard):
            return form.read(match)
    return None


def _there(match: re.Match[str], source: str) -> Said:
    """Read a guard on whether something is there."""
    old, new = _THERE if match["no"] else reversed(_THERE)
    return source, old, new, "constant"


def _contains(match: re.Match[str]) -> Said:
    of = match["of"]
    if of.endswith(".__dict__") and match["key"][:1] in "'\"":  # an attribute, then
        return _there(match, f"{readable(of.removesuffix('.__dict__'))}.{match['key'][1:-1]}")
    return _there(match, f"{match['key']} in {readable(of)}")


def _attribute(match: re.Match[str]) -> Said:
    return _there(match, f"{readable(match['of'])}.{match['key']}")


def _something(match: re.Match[str]) -> Said:
    return readable(match["of"]), "something", "None", "constant"


def _same(match: re.Match[str]) -> Said:
    return readable(match["of"]), f"the same object as {readable(match['value'])}", "", "type"


def _value(match: re.Match[str]) -> Said:
    return readable(match["of"]), match["value"].strip(), "", "constant"


def _nan(match: re.Match[str]) -> Said:
    return readable(match["of"]), "nan", "", "constant"


def _length(match: re.Match[str]) -> Said:
    return f"len({readable(match['of'])})", match["value"], "", "length"


def _keys(match: re.Match[str]) -> Said:
    return f"list({readable(match['of'])})", match["value"], "", "constant"


def _changed(match: re.Match[str]) -> Said:
    return f"list({readable(match['of'])})", "", "other keys or values", "constant"


def _type(match: re.Match[str]) -> Said:
    return f"type({readable(match['of'])})", "", "another object", "type"


def _alone(match: re.Match[str]) -> Said:
    name = readable((match["of"] or "").strip()) or "an input"
    return name, "a distinct object", "the same object as another input", "type"


def _state(name: str) -> Callable[[re.Match[str]], Said]:
    def read(match: re.Match[str]) -> Said:
        value = match.groupdict().get("value") or ""
        return name, value.strip(), "", "global"

    return read


def _backends(match: re.Match[str]) -> Said:
    """Read a guard on the backend, by its name where it has one."""
    old, new = (
        named["name"] if (named := _NAME.search(match[side])) else match[side]
        for side in ("old", "new")
    )
    return "backend", old, new, "global"


_NAME: Final = re.compile(r"(?:compiler='|<function (?:\w+\.<locals>\.)?)(?P<name>\w+)")


def _form(name: str, pattern: str, read: Callable[[re.Match[str]], Said], example: str) -> Form:
    return Form(name, re.compile(pattern), read, example)


_OF: Final = r"(?P<of>[^\s()]+)"
_NOT: Final = r"(?P<no>not )?"
FORMS: Final = (
    _form("dict contains", rf"{_NOT}___dict_contains\((?P<key>.+), (?P<of>.+)\)", _contains,
          "not ___dict_contains('q', L['d'])"),
    _form("set contains", rf"{_NOT}set\.__contains__\((?P<of>[^,]+), (?P<key>.+)\)", _contains,
          "not set.__contains__(L['s'], 3)"),
    _form("attribute", rf"{_NOT}hasattr\((?P<of>.+), '(?P<key>\w+)'\)", _attribute,
          "hasattr(L['o'], 'scale')"),
    _form("marks of dimensions", r"\(\(getattr\((?P<of>.+?), '_dynamo.*|"
          r"hasattr\((?P<marked>.+?), '_dynamo\w+'\) == False",
          lambda m: (f"marks on {readable(m['of'] or m['marked'])}", "", "", "tensor"),
          "hasattr(L['x'], '_dynamo_dynamic_indices') == False"),
    _form("attribute of a class",
          r"dict\(type\((?P<of>.+?)\)\.__dict__\)\['(?P<key>\w+)'\] (?:==|is) (?P<value>.+)",
          lambda m: (f"type({readable(m['of'])}).{m['key']}", m["value"].strip(), "", "constant"),
          "dict(type(L['o']).__dict__)['gain'] == 1.0"),
    _form("attribute that is gone", r"KeyError on (?P<of>.+)",
          lambda m: (readable(m["of"]), "present", "absent", "constant"),
          "KeyError on L['fn']._modules['0'].__dict__['weight']"),
    _form("another type", r"TYPE_MISMATCH\((?P<of>.+)\)", _type, "TYPE_MISMATCH(L['tree'])"),
    _form("not None", rf"{_OF} is not None", _something, "L['bias'] is not None"),
    _form("same object",
          r"(?P<of>[LG]?\[?[\w.'\"\[\]]+) is (?P<value>[LG]\[.+|[a-z_]\w*(?:[.\[].*)?)",
          _same, "L['y'] is L['x']"),
    _form("keys", r"list\((?:dict\.keys\()?(?P<of>.+?)(?:\.keys\(\)|\))\)? == (?P<value>.+)", _keys,
          "list(dict.keys(L['d'])) == ['a', 'b']"),
    _form("a key in its place", r"list\((?:dict\.keys\()?(?P<of>[^()]+)\)*\[\d+\] == (?P<value>.+)",
          _keys, "list(dict.keys(L['d']))[0] == 'a'"),
    _form("a mark on dimensions", r"_has_dynamo_dim_marking is .*",
          lambda m: ("marks on a tensor", "", "", "tensor"),
          "_has_dynamo_dim_marking is present on runtime tensor but was absent at compile time"),
    _form("dict version", r"___dict_version\((?P<of>.+)\) == \d+", _changed,
          "___dict_version(L['d']) == 1204"),
    _form("tuple iterator", r"___tuple_iterator_len\((?P<of>.+)\) == (?P<value>\d+)", _length,
          "___tuple_iterator_len(L['it']) == 3"),
    _form("other iterator", r"___normalize_\w+_iter\((?P<of>.+)\) == (?P<value>.+)", _value,
          "___normalize_range_iter(L['it']) == (0, 4, 1)"),
    _form("nan", r"\(type\((?P<of>.+?)\) is \w+ and __\w+_isnan\(.+\)\)", _nan,
          "(type(L['k']) is float and __math_isnan(L['k']))"),
    _form("value of a subclass", r"(?:int|float|str|bool|complex)\((?P<of>.+?)\) == (?P<value>.+)",
          _value, "int(L['level']) == 3"),
    _form("dual level", r"torch\.autograd\.forward_ad\._current_level == (?P<value>.+)",
          _state("forward_ad level"), "torch.autograd.forward_ad._current_level == -1"),
    _form("transforms",
          r"torch\._functorch\.pyfunctorch\.compare_functorch_state\((?P<value>.*)\)",
          _state("transforms around the call"),
          "torch._functorch.pyfunctorch.compare_functorch_state([('Vmap', 1, 'error')])"),
    _form("saved tensors hooks", r".*top_saved_tensors_hooks ids == (?P<value>.+)",
          _state("saved_tensors_hooks"),
          "torch._functorch.aot_autograd.utils.top_saved_tensors_hooks ids == None"),
    _form("default device", r"utils_device\.CURRENT_DEVICE == (?P<value>.+)",
          _state("default_device"), "utils_device.CURRENT_DEVICE == None"),
    _form("function modes", r"___check_torch_function_mode_stack\(\)",
          _state("torch function modes"),
          "___check_torch_function_mode_stack()"),
    _form("current stream", r"___get_current_stream\(\) == .*", _state("current stream"),
          "___get_current_stream() == 3"),
    _form("current backend", r"___check_current_backend\(.*\)", _state("backend"),
          "___check_current_backend(12345)"),
    _form("another backend",
          r"BACKEND_MATCH failure: .*?Cached backend: (?P<old>.+?)(?: \(id=\w+\))?\. New "
          r"backend: (?P<new>.+?) \(id=.*", _backends,
          "BACKEND_MATCH failure: torch.compile detected different backend callables. Cached "
          "backend: _TorchCompileWrapper(compiler='eager', dynamic=None) (id=0x7f). New backend: "
          "<function mine at 0x7e> (id=0x7e). If this is unexpected, wrap your backend"),
    _form("state", r"___check_global_state\(\).*", _state("state of torch"),
          "___check_global_state()"),
    _form("copy on write", r"___cow_tensor_matches\((?P<of>.+), (?P<value>\w+)\).*",
          lambda m: (f"{readable(m['of'])} is copy on write", m["value"], "", "tensor"),
          "___cow_tensor_matches(L['x'], False)"),  # since torch 2.14
    _form("script object", r"___check_fake_script_type\((?P<of>.+?), \d+\).*", _type,
          "___check_fake_script_type(L['o'], 77), type=<class 'Q'>"),
    _form("subclass", r"___check_(?:metadata|opaque_guard_fn)_\w+\((?P<of>.*)\)", _type,
          "___check_metadata_140_c0(L['x'])"),
    _form("code of a function",
          r"\w+Accessor: Not an? \w+ on (?P<of>.+?)(?:\.__code__)?", _type,
          "CodeGuardAccessor: Not a function on L['f'].__code__"),
    _form("no alias",
          r"Duplicate tensor found where not expected! ?(?P<of>.*?)(?:should not alias.*)?",
          _alone,
          "Duplicate tensor found where not expected! L['x']should not alias to anything, but is "
          "aliased"),
)  # fmt: skip
