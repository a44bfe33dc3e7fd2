"""Guards in torch's words name their input as guards of tc do."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tc.trace.findings.reasons import parse_reason
from tc.trace.findings.remedies import remedy
from tc.trace.torchguards import FORMS

SAID = {
    "dict contains": ("'q' in d", "absent", "present"),
    "set contains": ("3 in s", "absent", "present"),
    "attribute": ("o.scale", "present", "absent"),
    "marks of dimensions": ("marks on x", "", ""),
    "not None": ("bias", "something", "None"),
    "same object": ("y", "the same object as x", ""),
    "keys": ("list(d)", "['a', 'b']", ""),
    "a key in its place": ("list(d)", "'a'", ""),
    "a mark on dimensions": ("marks on a tensor", "", ""),
    "dict version": ("list(d)", "", "other keys or values"),
    "tuple iterator": ("len(it)", "3", ""),
    "other iterator": ("it", "(0, 4, 1)", ""),
    "nan": ("k", "nan", ""),
    "value of a subclass": ("level", "3", ""),
    "dual level": ("forward_ad level", "-1", ""),
    "saved tensors hooks": ("saved_tensors_hooks", "None", ""),
    "default device": ("default_device", "None", ""),
    "function modes": ("torch function modes", "", ""),
    "transforms": ("transforms around the call", "[('Vmap', 1, 'error')]", ""),
    "attribute of a class": ("type(o).gain", "1.0", ""),
    "attribute that is gone": ("fn[0].weight", "present", "absent"),
    "another type": ("type(tree)", "", "another object"),
    "current stream": ("current stream", "", ""),
    "current backend": ("backend", "", ""),
    "another backend": ("backend", "eager", "mine"),
    "state": ("state of torch", "", ""),
    "copy on write": ("x is copy on write", "False", ""),
    "script object": ("type(o)", "", "another object"),
    "subclass": ("type(x)", "", "another object"),
    "code of a function": ("type(f)", "", "another object"),
    "no alias": ("x", "a distinct object", "the same object as another input"),
}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_each_form_is_read(form) -> None:
    cause = parse_reason(f"{form.example}  # x = d  # a.py:3 in f")
    assert (cause.source, cause.old, cause.new) == SAID[form.name]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_no_title_is_in_the_words_of_the_compiler(form) -> None:
    title, why, _ = remedy(parse_reason(form.example), "torch", "f", [], ("a.py", 3))
    assert "___" not in title + why and "hasattr" not in title


@pytest.mark.parametrize(
    "guard, same",
    [
        ("___dict_contains('q', L['d'])", ("'q' in d", "present", "absent")),
        ("not ___dict_contains('k', L['o'].__dict__)", ("o.k", "absent", "present")),
        ("not ___dict_contains(('a', 1), L['d'])", ("('a', 1) in d", "absent", "present")),
        ("not hasattr(L['self'].m, 'k')", ("self.m.k", "absent", "present")),
        ("L['x'] is None", ("x", "None", "")),
        ("L['flag'] is True", ("flag", "True", "")),
        ("L['s'] == 'a is b'", ("s", "'a is b'", "")),
    ],
)
def test_near_forms_are_distinguished(guard: str, same: tuple[str, str, str]) -> None:
    cause = parse_reason(guard)
    assert (cause.source, cause.old, cause.new) == same


#: helpers that have no form here: type and identity have rows of their own, the rest is no guard
ELSEWHERE = {"___check_type_id", "___check_obj_id", "___make_guard_fn"}


def helpers_in(source: str) -> set[str]:
    """Return the helpers that torch's source writes into the text of guards."""
    found = re.findall(r"""f["'](?:not )?(___[a-z_]+)\(""", source)
    return set(found) - ELSEWHERE


def test_every_helper_that_torch_names_in_a_guard_has_a_form() -> None:
    spec = find_spec("torch")
    if spec is None or not spec.origin:
        pytest.skip("there is no torch")
    text = (Path(spec.origin).parent / "_dynamo" / "guards.py").read_text()
    written = helpers_in(text)
    assert len(written) >= 5
    forms = ("{}(L['x'], 1) == 2", "{}('x', L['x'])", "{}(L['x']) == 1", "{}() against {{}}")
    read = {one for one in written for form in forms
            if "___" not in parse_reason(form.format(one)).source}  # fmt: skip
    assert not written - read


def test_an_entry_without_a_backend_is_another_backend() -> None:
    text = (
        "BACKEND_MATCH failure: torch.compile detected different backend callables. Cached "
        "backend: None. New backend: _TorchCompileWrapper(compiler='tc', dynamic=None) (id=0x7f). "
        "If this is unexpected, wrap your backend in functools.partial"
    )
    cause = parse_reason(text)
    assert (cause.source, cause.old, cause.new) == ("backend", "None", "tc")
