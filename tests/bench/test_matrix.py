"""The matrix bench reads results as the harness does, and says what it lacks."""

from __future__ import annotations

import json

import matrix
import pytest

SCORE = """
import json
def read(path):
    return {json.loads(line)["test"]: json.loads(line) for line in open(path)}
def verdict(result, entry, min_ops):
    return False, result["outcome"] == "pass" and result.get("ops", 0) >= min_ops * entry["ops"]
"""


@pytest.fixture
def harness(tmp_path):
    (tmp_path / "score.py").write_text(SCORE)
    kinds = {"a": "null_fail", "b": "null_fail", "c": "capture", "d": "capture"}
    tests = {name: {"kind": kind, "scored": True, "ops": 4} for name, kind in kinds.items()}
    tests["e"] = {"kind": "capture", "scored": False, "ops": 4}
    (tmp_path / "scored_set.json").write_text(json.dumps({"tests": tests}))
    return tmp_path


def results(folder, **outcomes):
    path = folder / "results.jsonl"
    rows = [{"test": t, "outcome": o, "ops": ops} for t, (o, ops) in outcomes.items()]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_shares_count_scored_tests_by_kind(harness):
    path = results(
        harness, a=("pass", 4), b=("crash", 0), c=("pass", 4), d=("pass", 1), e=("fail", 0)
    )
    assert matrix.shares(path, harness) == {"null_fail": 50.0, "capture": 50.0, "crash": 25.0}


def test_no_scored_result_is_an_error(harness):
    with pytest.raises(ValueError, match="no result of a scored test"):
        matrix.shares(results(harness, e=("pass", 4)), harness)


def test_a_missing_harness_is_one_sentence(tmp_path, capsys):
    assert matrix.main(["--python", "python3", "--harness", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
