"""Every edit that a recompile asks for can be made, and does what it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from recipe_programs import BY_CHANCE, DEMOS, NOTHING_TO_DO, Demo

from tc.trace.findings import Diagnosis, diagnose
from tc.trace.findings.model import Finding
from tc.trace.findings.reasons import parse_reason
from tc.trace.findings.remedies import subject_about
from tc.trace.recipes import (
    MARK,
    TABLE,
    Kind,
    Place,
    Subject,
    advice,
    recipe_of,
    recipes,
)
from tc.trace.session import load
from tc.trace.subjects import subject_of

ROOT = Path(__file__).resolve().parents[2]
ALL = {one.text: one for row in TABLE.values() for one in row}


def test_every_kind_in_every_place_has_a_row() -> None:
    for kind, place in product(Kind, Place):
        assert isinstance(recipes(kind, place), tuple)


def test_every_recipe_is_made_to_a_program_or_asks_for_nothing() -> None:
    shown = {demo.recipe.text for demo in DEMOS}
    exempt = {one.text for one in (*NOTHING_TO_DO, *BY_CHANCE)}
    assert shown | exempt == set(ALL)
    assert not shown & exempt
    assert all(one.text.startswith("nothing to do") for one in NOTHING_TO_DO)


@pytest.mark.parametrize("producer", ["tc", "torch"])
def test_a_sentence_is_known_by_its_recipe(producer: str) -> None:
    for kind, place in product(Kind, Place):
        subject = Subject(kind, place, "self.a['b'].shape[1]", "self.a['b']", "3", "4", "1")
        row = [one for one in recipes(kind, place) if one.producer in ("", producer)]
        texts = advice(subject, producer)
        assert [recipe_of(text) for text in texts] == row
        assert not any("{" in text for text in texts)
    assert recipe_of("words of a newer version") is None


@pytest.mark.parametrize(
    ("source", "old", "new", "kind", "guard", "is_kind", "place"),
    [
        ("x.shape[0]", "3", "4", "size", "", Kind.SIZE, Place.LOCAL),
        ("x.shape[0]", "1", "4", "size", "", Kind.ONE, Place.LOCAL),
        ("past['k'].shape[1]", "3", "4", "size", "", Kind.GROWS, Place.FIELD),
        ("past['k'].shape[1]", "4", "3", "size", "", Kind.SIZE, Place.FIELD),
        ("past['k'].shape[1]", "4", "9", "size", "", Kind.SIZE, Place.FIELD),
        ("self.param_groups[0]['lr']", "0.1", "0.05", "constant", "", Kind.LEARNING_RATE,
         Place.ITEM),
        ("t", "(float(t) / 2.0) == 1.5", "2", "shape", "", Kind.HELD_NUMBER, Place.LOCAL),
        ("a value from before the break[0].shape[1]", "7", "8", "size", "", Kind.ACROSS_BREAK,
         Place.FIELD),
        ("mode", "'a'", "'b'", "constant", "", Kind.STRING, Place.LOCAL),
        ("n", "2", "-3", "constant", "", Kind.NUMBER, Place.LOCAL),
        ("lr", "0.1", "1e-05", "constant", "", Kind.NUMBER, Place.LOCAL),
        ("flag", "True", "False", "constant", "", Kind.BOOL, Place.LOCAL),
        ("SCALE", "1", "2", "constant", "G['SCALE'] == 1", Kind.ONE_NUMBER, Place.GLOBAL),
        ("f.__closure__[0].cell_contents", "3", "2", "constant", "", Kind.NUMBER, Place.CLOSURE),
        ("fn.__defaults__[0]", "1", "2", "constant", "", Kind.ONE_NUMBER, Place.DEFAULT),
        ("<dictcomp>.n", "0", "1", "constant", "", Kind.ACROSS_BREAK, Place.ATTRIBUTE),
        ("best", "2", "3", "read", "", Kind.READ, Place.LOCAL),
        ("mask", "None", "a tensor", "constant", "", Kind.NONE, Place.LOCAL),
        ("kind", "Kind.A", "<Kind.B: 2>", "constant", "", Kind.CONSTANT, Place.LOCAL),
        ("kind", "", "another object", "type", "___check_obj_id(kind, 1)", Kind.OBJECT,
         Place.LOCAL),
        ("x.stride[0]", "4", "1", "tensor", "", Kind.STRIDE, Place.LOCAL),
        ("x.stride[0]", "4", "1", "tensor", "check_tensor(x, size=[1, 4], stride=[4, 1])",
         Kind.STRIDE_OF_ONE, Place.LOCAL),
        ("x.stride[1]", "4", "1", "tensor", "check_tensor(x, size=[1, 4], stride=[4, 1])",
         Kind.STRIDE, Place.LOCAL),
        ("x.dtype", "float32", "int64", "tensor", "", Kind.DTYPE, Place.LOCAL),
        ("dispatch keys of x", "CPU, ADInplaceOrView", "CPU", "tensor", "", Kind.INFERENCE,
         Place.LOCAL),
        ("dispatch keys of x", "CPU", "CPU, AutocastCPU", "tensor", "", Kind.AUTOCAST,
         Place.PROCESS),
        ("dispatch keys of x", "CPU", "CPU, Python", "tensor", "", Kind.KEYS_OF_TENSOR,
         Place.LOCAL),
        ("type(layer.bias)", "Tensor", "<class 'NoneType'>", "type", "layer._parameters['bias']",
         Kind.STRUCTURE, Place.MODULE),
        ("len(xs)", "2", "3", "length", "", Kind.LENGTH, Place.LOCAL),
        ("list(batch)", "('a',)", "('a', 'b')", "constant", "", Kind.KEYS, Place.LOCAL),
        ("m.training", "True", "False", "constant", "", Kind.TRAINING, Place.FIELD),
        ("grad_mode", "", "", "global", "", Kind.GRAD_MODE, Place.PROCESS),
        ("backend", "eager", "mine", "global", "", Kind.BACKEND, Place.PROCESS),
        ("num_threads", "1", "2", "global", "", Kind.STATE, Place.PROCESS),
        ("___stack0", "1", "2", "constant", "", Kind.ACROSS_BREAK, Place.LOCAL),
        ("x.shape[0]", "2 <= x.shape[0]", "1", "shape", "", Kind.ONE, Place.LOCAL),
        ("x.shape[1]", "x.shape[1] == 7", "6", "shape", "", Kind.HELD, Place.LOCAL),
        ("k", "k == 2", "3", "shape", "", Kind.HELD_NUMBER, Place.LOCAL),
        ("x.shape[1]", "x.shape[1] == y.shape[0]", "", "shape", "", Kind.EQUAL, Place.FIELD),
        ("scale", "scale == 0.0027", "0.003", "shape", "", Kind.HELD_NUMBER, Place.LOCAL),
        ("clip", "(1.0 + clip) == 1.18", "0.1", "shape", "", Kind.HELD_NUMBER, Place.LOCAL),
        ("self.index", "-1 <= self.index <= 2", "", "shape", "", Kind.RANGE, Place.ATTRIBUTE),
        ("x.shape[0]", "2 <= x.shape[0] <= 5", "", "shape", "", Kind.CONDITION, Place.FIELD),
        ("mask", "a tensor", "None", "constant", "", Kind.GONE, Place.LOCAL),
        ("flag", "None", "True", "constant", "", Kind.NO_TENSOR, Place.LOCAL),
        ("past", "None", "((Tensor float32[1], Tensor float32[1]),)", "constant", "",
         Kind.NO_TENSOR, Place.LOCAL),
        ("type(p.grad)", "Tensor", "<class 'NoneType'>", "type", "", Kind.GONE, Place.FIELD),
        ("p.a", "the same object as p.b", "a tensor", "type", "", Kind.ALIASED, Place.FIELD),
        ("m", "the same object as ___stack1", "a distinct object", "", "", Kind.ACROSS_BREAK,
         Place.LOCAL),
        ("list(dict.keys(extra))[0]", "'u'", "'v'", "constant", "", Kind.KEYS, Place.LOCAL),
        ("3 in self.masks", "absent", "present", "constant", "", Kind.KEYS, Place.ATTRIBUTE),
        ("len(___stack0)", "2", "3", "length", "", Kind.ACROSS_BREAK, Place.LOCAL),
        ("'a' in ___stack1.history", "absent", "present", "constant", "", Kind.ACROSS_BREAK,
         Place.ATTRIBUTE),
        ("len(vars(___stack1)['_forward_hooks'])", "0", "1", "length", "", Kind.HOOKS_PASSED,
         Place.LOCAL),
        ("self[0]._forward_hooks[0].__closure__[1].cell_contents.calls", "2", "3", "constant", "",
         Kind.NUMBER, Place.CLOSURE),
        ("len(self[0]._forward_hooks[0].__closure__[1].cell_contents.means)", "2", "3", "length",
         "len(self._modules['0']._forward_hooks[0].__closure__[1].cell_contents.means) == 2",
         Kind.LENGTH, Place.CLOSURE),
        ("list(fn[0]._forward_hooks)", "1 keys", "2 keys", "constant", "", Kind.HOOKS,
         Place.FIELD),
        ("len(self.param_groups)", "1", "2", "length", "", Kind.GROUPS, Place.FIELD),
        ("self.param_groups[0]['weight_decay']", "0.1", "0.2", "constant", "", Kind.SETTING,
         Place.ITEM),
        ("scaler._scale", "None", "a tensor", "made", "", Kind.MADE, Place.FIELD),
        ("args[2]", "None", "a tensor", "constant", "", Kind.NONE, Place.LOCAL),
        ("self.dtype", "torch.bfloat16", "torch.float16", "constant", "", Kind.CONSTANT,
         Place.ATTRIBUTE),
        ("x.dtype", "float32", "float64", "tensor", "", Kind.DTYPE, Place.LOCAL),
        ("m.stride[0]", "2 <= m.stride[0]", "0", "shape", "", Kind.STRIDE, Place.LOCAL),
        ("o.gain", "absent", "present", "constant", "", Kind.ATTACHED, Place.FIELD),
        ("tuple(dict.keys(counts))", "(1,)", "(1, 2)", "constant", "", Kind.KEYS, Place.LOCAL),
        ("act", "function m.act", "builtin_function_or_method torch.tanh", "constant", "",
         Kind.OBJECT, Place.LOCAL),
        ("state", "None", "(Tensor float32[2], Tensor float32[2])", "constant", "", Kind.NONE,
         Place.LOCAL),
        ("type(gen)", "torch._C.Generator", "NoneType", "type", "", Kind.NO_TENSOR, Place.LOCAL),
        ("torch function modes", "[]", "['m.Mode']", "global", "", Kind.SURROUNDINGS,
         Place.PROCESS),
        ("layer.bias.shape[0]", "8", "2", "size",
         "tensor 'layer._parameters['bias']' size mismatch", Kind.STRUCTURE, Place.MODULE),
    ],
)  # fmt: skip
def test_what_changed_and_where(
    source: str, old: str, new: str, kind: str, guard: str, is_kind: Kind, place: Place
) -> None:
    subject = subject_of(source, old, new, kind, guard)
    assert (subject.kind, subject.place) == (is_kind, place)


def test_what_a_break_passed_on_cannot_be_marked_from_outside() -> None:
    cut = "torch_dynamo_resume_in_forward_at_12"
    subject = subject_of("s.shape[0]", "3", "4", "size", "", cut)
    assert subject.place is Place.AFTER_BREAK
    assert not [text for text in advice(subject, "tc") if "mark_dynamic" in text]
    held = subject_of("self.step", "0", "2", "constant", "", cut)
    assert held.place is Place.MODULE
    mode = subject_of("n", "2", "3", "constant", "", cut)
    assert advice(mode, "tc") == advice(subject_of("n", "2", "3", "constant"), "tc")


@pytest.mark.parametrize(
    ("text", "source", "kind"),
    [
        ("not L['history']", "len(history)", Kind.LENGTH),
        ("not len(L['xs']) == 2", "len(xs)", Kind.LENGTH),
        ("Cache line invalidated because L['___stack0'] got deallocated", "___stack0",
         Kind.ACROSS_BREAK),
        ("Cache line invalidated because L['model'] got deallocated", "model", Kind.OBJECT),
    ],
)  # fmt: skip
def test_words_of_guards_of_pytorch(text: str, source: str, kind: Kind) -> None:
    cause = parse_reason(text)
    assert (cause.source, subject_about(cause).kind) == (source, kind)


def test_what_the_function_made_itself_is_no_input_to_edit() -> None:
    subject = Subject(Kind.SIZE, Place.LOCAL, "ratio.shape[0]", "ratio", "3", "4")
    assert advice(subject, "tc", made=True) == (
        "tc.compile(..., dynamic=True) makes all sizes dynamic",
        "fix the graph break before it: then no value is passed across it",
    )
    switched = Subject(Kind.GRAD_MODE, Place.PROCESS, "grad_mode", "grad_mode", "", "")
    assert advice(switched, "tc", made=True) == advice(switched, "tc")


def test_sizes_that_change_together_are_marked_together() -> None:
    marked = ("x", "0"), ("y", "1")
    subject = Subject(Kind.SIZE, Place.LOCAL, "x.shape[0]", "x", "3", "4", "0", marked)
    text = advice(subject, "tc")[0]
    assert text == "tc.maybe_mark_dynamic(x, 0), tc.maybe_mark_dynamic(y, 1) before the first call"
    assert recipe_of(text) is MARK


def test_an_attribute_is_a_buffer_only_inside_of_a_module() -> None:
    for function, text in (("M.forward", "register_buffer('n'"), ("M.run", "where it is set")):
        subject = subject_of("self.n", "1", "2", "constant", "", function)
        assert text in advice(subject, "tc")[0]


# ------------------------------------------------------------------- made to programs, and run


def _ran(folder: Path, side: str) -> tuple[dict[str, str], Diagnosis]:
    logs = folder / "logs"
    logs.mkdir()
    environment = {
        **os.environ,
        "FINDINGS_SIDE": side,
        "OMP_NUM_THREADS": "1",
        "TORCH_TRACE" if side == "torch" else "TC_TRACE": str(logs),
    }
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/recipe_programs.py"), str(folder)],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1]), diagnose(load(logs))


@pytest.fixture(scope="module")
def runs(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, tuple[dict[str, str], Diagnosis]]:
    return {side: _ran(tmp_path_factory.mktemp(side), side) for side in ("torch", "tc")}


#: the break that a recompile follows from, where it is known
_NAMED = re.compile(r"it, TC\d+-[\w.]+:")


def _asking(diagnosis: Diagnosis, file: str, recipe: str) -> list[Finding]:
    """The findings of a program that ask for the edit."""
    return [
        one
        for one in diagnosis.findings
        if Path(one.where.file).name == file
        and any(
            (found := recipe_of(_NAMED.sub("it:", text))) and found.text == recipe
            for text in one.fix
        )
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("demo", "side"),
    [pytest.param(one, side, id=f"{one.name}-{side}") for one in DEMOS for side in one.sides],
)
def test_the_edit_can_be_made_and_does_what_it_says(
    runs: dict[str, tuple[dict[str, str], Diagnosis]], demo: Demo, side: str
) -> None:
    said, diagnosis = runs[side]
    asked = _asking(diagnosis, f"{demo.name}.before.py", demo.recipe.text)
    assert asked, f"nothing asks for it; found: {_titles(diagnosis, demo)}"
    assert said[f"{demo.name}.after"] == said[f"{demo.name}.before"]  # the same results
    left = _asking(diagnosis, f"{demo.name}.after.py", demo.recipe.text)
    if demo.recipe.settles:
        assert not {one.reason for one in asked} & {one.reason for one in left}
    else:
        assert sum(one.count for one in left) < sum(one.count for one in asked)


def _titles(diagnosis: Diagnosis, demo: Demo) -> list[tuple[str, str, tuple[str, ...]]]:
    return [
        (Path(one.where.file).name, one.title, one.fix)
        for one in diagnosis.findings
        if demo.name in one.where.file
    ]
