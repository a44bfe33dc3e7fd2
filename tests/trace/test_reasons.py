"""Reasons of graph breaks and recompiles in PyTorch's words, older forms of them as well."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from torch_log import IDS, START, artifact, ids, start, torch_log

from tc.trace.findings.reasons import parse_reason
from tc.trace.guardtext import readable, values


def test_a_break_in_the_form_of_torch_2_5(tmp_path: Path) -> None:
    text = (
        "Graph break in user code at /home/me/a.py:5\n"
        "Reason: Unsupported: builtin: print [<class 'x'>] False\n"
        "User code traceback:\n"
        '  File "/home/me/a.py", line 5, in f\n    print(x)\n'
    )
    artifact = {"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}, **IDS}
    (finding,) = torch_log(tmp_path, START, (artifact, text)).findings
    assert (finding.code, finding.title) == ("TC104", "print() is called while tracing")
    assert finding.where.short == "a.py:5 in f"


def test_a_break_seen_only_as_a_restart_counts(tmp_path: Path) -> None:
    reason = "Failed to trace builtin operator\n  Explanation: Dynamo does not know `print`"
    metrics = {
        "compilation_metrics": {"co_name": "f", "restart_reasons": [reason, "new guards"]},
        **IDS,
    }
    assert len(torch_log(tmp_path, START, (metrics, None)).breaks) == 1


def test_an_unknown_reason_keeps_the_words_of_torch_and_says_no_fix(tmp_path: Path) -> None:
    text = (
        "Graph break in user code at a.py:5\nGraph Break Reason: Quantum foam\n"
        "  Explanation: The vacuum fluctuates.\n\n see gb/gb7777.html\n"
    )
    artifact = {"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}, **IDS}
    (finding,) = torch_log(tmp_path, START, (artifact, text)).findings
    assert (finding.code, finding.title, finding.fix) == ("TC199", "Quantum foam", ())
    assert (finding.why, finding.reference) == ("The vacuum fluctuates.", "GB7777")
    assert "no edit is known" in str(finding)


def test_a_reason_without_a_compile_is_the_limit(tmp_path: Path) -> None:
    reasons = {"artifact": {"name": "recompile_reasons", "encoding": "json"}, **IDS}
    reasons = {**reasons, "frame_compile_id": 8}
    found = torch_log(tmp_path, START, (reasons, "0/0: L['n'] == 3"))
    assert [one.code for one in found.findings] == ["TC209"]
    assert (found.recompile_count, len(found.session.compiles)) == (0, 1)


REASONS = [
    ("tensor 'x' size mismatch at index 0. expected 4, actual 5",
     'x.shape[0]', '4', '5', 'size'),
    ("tensor 'L['x']' size mismatch at index 1. expected 4, actual 5",
     'x.shape[1]', '4', '5', 'size'),
    ("tensor 'x' stride mismatch at index 0. expected 4, actual 1",
     'x.stride[0]', '4', '1', 'tensor'),
    ("tensor 'x' dtype mismatch. expected Float, actual Double",
     'x.dtype', 'float32', 'float64', 'tensor'),
    ("tensor 'x' rank mismatch. expected 2, actual 3",
     'x.ndim', '2', '3', 'tensor'),
    ("tensor 'x' requires_grad mismatch. expected requires_grad=0",
     'x.requires_grad', 'False', '', 'tensor'),
    ("tensor 'x' Tensor device index mismatch. Expected device index to be 0, got 1 instead.",
     'x.device', '0', '1', 'tensor'),
    ("tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU, A), "
     "actual DispatchKeySet(CPU)",
     'dispatch keys of x', 'DispatchKeySet(CPU, A)', 'DispatchKeySet(CPU)', 'tensor'),
    ('GLOBAL_STATE changed: grad_mode ',
     'grad_mode', '', '', 'global'),
    ("L['self'].step == 0  # self.step += 1  # a.py:3 in f",
     'self.step', '0', '', 'constant'),
    ('flag == True\nUser stack trace:',
     'flag', 'True', '', 'constant'),
    ("len(L['xs']) == 3",
     'len(xs)', '3', '', 'length'),
    ('(x.size()[0] % 4) == 0',
     'x.shape[0]', '(x.shape[0] % 4) == 0', '', 'shape'),
    ("(L['i'] % 4) != 3  # if i % 4 == 3:  # a.py:3 in f",
     'i', '(i % 4) != 3', '', 'shape'),
    ("2*L['self'].n == 10",
     'self.n', '2*self.n == 10', '', 'shape'),
    ("L['i']*L['j'] < 100",
     'i', 'i*j < 100', '', 'shape'),
    ("L['name'] == 'a+b - c'",
     'name', "'a+b - c'", '', 'constant'),
    ("L['eps'] == 1e-05",
     'eps', '1e-05', '', 'constant'),
    ("L['best'].item() == 2",
     'best', '2', '', 'read'),
    ("L['d']['a-b'] == -3",
     "d['a-b']", '-3', '', 'constant'),
    ("not math.isnan(L['f'])",
     'f', 'not math.isnan(f)', '', 'shape'),
    ("hasattr(L['x'], 'a') == 1 + 1",
     "hasattr(x, 'a') == 1 + 1", '', '', 'other'),
    ("___check_type_id(L['m'], 12345)",
     'type(m)', '', 'another object', 'type'),
    ("___check_obj_id(L['self']._modules['a'], 1)",
     'self.a', '', 'another object', 'type'),
    ('something new entirely',
     'something new entirely', '', '', 'other'),
]  # fmt: skip


@pytest.mark.parametrize(("text", "source", "old", "new", "kind"), REASONS)
def test_reasons_are_split(text: str, source: str, old: str, new: str, kind: str) -> None:
    cause = parse_reason(text)
    assert (cause.source, cause.old, cause.new, cause.kind) == (source, old, new, kind)


def test_sources_read_as_the_user_writes_them() -> None:
    assert readable("L['self']._modules['fc']._parameters['weight']") == "self.fc.weight"
    assert readable("L['x'].size()[0]") == "x.shape[0]"
    inner = "L['self'].net._modules['0']"
    assert readable(f"vars({inner})['_parameters']['weight'].ndim") == "self.net[0].weight.ndim"
    assert readable(f"vars(vars({inner})['_modules']['a'])['_modules']['b']") == "self.net[0].a.b"
    assert readable("G['np'].pi") == "np.pi"
    assert readable("G['__import___main__'].calls") == "calls"
    assert readable("G['__import_my_kit_dot_sub_dot_conf'].LIMIT") == "my_kit.sub.conf.LIMIT"


def test_the_nearest_compile_is_not_one_that_refused_something_else(tmp_path: Path) -> None:
    """What a dict has not is no value that guards hold, and makes a compile differ all the same."""
    rows: list[tuple[dict[str, Any], str | None]] = [start(0)]
    absent = "not ___dict_contains('a', G['__import_kit_dot_conf'].TABLE)"
    equal = "G['__import_kit_dot_conf'].TABLE['a'] == {}"
    held = [f"DICT_CONTAINS: {absent}", f"EQUALS_MATCH: {equal}", f"EQUALS_MATCH: {equal}"]
    refused = [[f"0/0: {absent}"], [f"0/1: {equal.format(1)}", f"0/0: {absent}"]]
    for number, guard in enumerate(held):
        if number:
            reasons = json.dumps(refused[number - 1])
            rows += [artifact(0, "recompile_reasons", reasons, number), start(0, number)]
        rows.append(({"dynamo_cpp_guards_str": {}, **ids(0, number)}, f"+- {guard.format(number)}"))
    found = torch_log(tmp_path, *rows)
    assert [(one.of, str(one.causes[0])) for one in found.recompiles] == [
        ("0/0", "'a' in kit.conf.TABLE: absent → present"),
        ("0/1", "kit.conf.TABLE['a']: 1 → 2"),
    ]


def test_a_layout_makes_a_compile_differ(tmp_path: Path) -> None:
    """Of float32, float64 and float32 that is transposed, the third is nearest to the first."""
    rows: list[tuple[dict[str, Any], str | None]] = [start(0)]
    tensor = ("+- TENSOR_MATCH: check_tensor(L['x'], Tensor, DispatchKeySet(CPU), torch.{}, "
              "device=None, requires_grad=False, size=[4, 4], stride=[{}])")  # fmt: skip
    kinds = (("float32", "4, 1"), ("float64", "4, 1"), ("float32", "None, None"))
    dtype = "tensor 'x' dtype mismatch. expected {}, actual {}"
    refused = [["0/0: " + dtype.format("Float", "Double")],
               ["0/1: " + dtype.format("Double", "Float"),
                "0/0: tensor 'x' stride mismatch at index 0. expected 4, actual 1"]]  # fmt: skip
    for number, kind in enumerate(kinds):
        if number:
            reasons = json.dumps(refused[number - 1])
            rows += [artifact(0, "recompile_reasons", reasons, number), start(0, number)]
        rows.append(({"dynamo_cpp_guards_str": {}, **ids(0, number)}, tensor.format(*kind)))
    found = torch_log(tmp_path, *rows)
    assert [(one.of, str(one.causes[0]), len(one.causes)) for one in found.recompiles] == [
        ("0/0", "x.dtype: float32 → float64", 1),
        ("0/0", "x.stride[0]: 4 → 1", 1),
    ]


@pytest.mark.parametrize(
    ("sizes", "strides", "layout"),
    [
        ("4, 8", "8, 1", "contiguous"),
        ("4, 8", "1, 4", "dimensions in order (1, 0)"),
        ("1, 8", "8, 1", "contiguous"),
        ("4, 4", "8, 1", "(8, 1)"),
        ("4, 4", "None, 1", "dynamic"),
        ("None, 8", "8, 1", ""),
        ("", "", ""),
    ],
)
def test_a_layout_is_named_without_sizes(sizes: str, strides: str, layout: str) -> None:
    tree = (
        "+- TENSOR_MATCH: check_tensor(L['x'], Tensor, DispatchKeySet(CPU), torch.float32, "
        f"device=None, requires_grad=False, size=[{sizes}], stride=[{strides}])"
    )
    assert values(tree).get("x.stride[0]", "") == layout


def test_an_item_of_a_class_derived_from_dict_is_named_as_it_is_read() -> None:
    assert readable("dict.__getitem__(L['c'], 'scale')") == "c['scale']"


def test_a_condition_on_a_stride_is_about_that_stride() -> None:
    cause = parse_reason("L['cache'].keys[0].stride()[1] != 16")
    assert (cause.source, cause.kind) == ("cache.keys[0].stride[1]", "shape")
    assert cause.old == "cache.keys[0].stride[1] != 16"
