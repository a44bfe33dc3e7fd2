"""What is no function, file, key or number is refused by all that takes one, with one sentence."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import tc
from tc.compiler.errors import OptionError, SavedFileError

#: name -> a call with something in the place of a function; those that refuse None
TAKERS = {
    "compile": tc.compile,
    "save": lambda fn: tc.save("nothing.tc", fn),
    "load": lambda fn: tc.load("nothing.tc", fn),
    "precompile": lambda fn: tc.precompile(fn, "x=2"),
    "check_shapes": lambda fn: tc.check_shapes(fn, "x=2..4"),
    "explain": tc.explain,
    "compile_in_place": tc.compile_in_place,
    "disable": tc.disable,
    "run": tc.run,
    "allow_in_graph": tc.allow_in_graph,
    "disallow_in_graph": tc.disallow_in_graph,
    "forbid_in_graph": tc.forbid_in_graph,
    "nested_compile_region": tc.nested_compile_region,
    "nonstrict_trace": tc.nonstrict_trace,
    "assume_constant_result": tc.assume_constant_result,
    "wrap_numpy": tc.wrap_numpy,
    "on_graph": tc.on_graph,
    "register_backend": tc.register_backend,
    "aot_backend": tc.aot_backend,
    "backend": lambda fn: tc.compile(torch.neg, backend=fn),
    "set_default_backend": tc.set_default_backend,
}
#: those to which None, or nothing, means something else
WITHOUT = {"compile", "load", "disable", "run", "nested_compile_region", "register_backend",
           "backend", "set_default_backend"}  # fmt: skip
#: those that take names, too
NAMED = {"backend", "set_default_backend"}


def _kind(value):
    return type(value).__name__


@pytest.mark.parametrize("name", TAKERS)
@pytest.mark.parametrize("value", [3, None, "nowhere", [torch.sin], torch.ones(2)], ids=_kind)
def test_what_cannot_be_called_is_refused(name, value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    many = name.endswith("_in_graph") and isinstance(value, list)
    if (value is None and name in WITHOUT) or many:
        return
    with pytest.raises(OptionError) as refused:
        TAKERS[name](value)
    text = str(refused.value)
    assert "\n" not in text and "bug" not in text
    assert " takes " in text or name in NAMED
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda fn, file: tc.save(file, fn, key="text"), SavedFileError),
        (lambda fn, file: tc.load(file, fn, key="text"), SavedFileError),
        (lambda fn, file: tc.load(file, fn, sha256=3), SavedFileError),
        (lambda fn, file: tc.load_cache_artifacts("text"), SavedFileError),
        (lambda fn, file: tc.precompile(fn, "x=2", progress=3), OptionError),
        (lambda fn, file: tc.precompile(fn, "x=2", workers="x"), OptionError),
        (lambda fn, file: tc.check_shapes(fn, "x=2..4", runs="x"), OptionError),
        (lambda fn, file: tc.check_shapes(fn, "x=2..4", runs=-1), OptionError),
        (lambda fn, file: tc.check_shapes(fn, "x=2..4", seed="x"), OptionError),
    ],
)
def test_other_arguments(call, error, tmp_path):
    file = tmp_path / "x.tc"
    file.write_bytes(b"something")
    with pytest.raises(error) as refused:
        call(lambda x: x + 1, file)
    assert "\n" not in str(refused.value)


#: functions in C, which have no frame to capture, with what they get
IN_C = [
    (math.sin, 1.0), (math.sin, torch.ones(())), (math.sin, torch.ones(3)), (math.sin, "x"),
    (torch.sin, torch.ones(3)), (torch.sin, "x"), (torch.ops.aten.sin, torch.ones(3)),
    (torch.Tensor.sin, torch.ones(3)), (np.sin, np.ones(3)), (np.sin, 1.0), (np.mean, np.ones(3)),
    (len, torch.ones(3)), (len, np.ones(3)), (len, 3), (int, torch.ones(())), (list, torch.ones(3)),
    (str.upper, "x"), (str.upper, torch.ones(3)),
]  # fmt: skip


@pytest.mark.sample(5)
@pytest.mark.parametrize(("function", "value"), IN_C)
def test_functions_in_c_are_as_in_eager(function, value):
    tc.reset()
    compiled = tc.compile(function)
    try:
        expected = function(value)
    except Exception as error:
        with pytest.raises(type(error)):
            compiled(value)
        return
    found = compiled(value)
    assert type(found) is type(expected)
    assert str(found) == str(expected)
