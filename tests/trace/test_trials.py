"""What came of fixes that were tried is kept beside a trace, and read from there."""

import json
from pathlib import Path

from tc.trace.trials import FILE, HELPED, Trial, read_trials, write_trials

TRIAL = Trial(("TC104-d293",), "move the print", HELPED, "breaks 4 → 2", "- print(x)")


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write_trials(tmp_path, [TRIAL])
    assert read_trials(tmp_path) == (TRIAL,)


def test_a_file_from_before_outcome_had_its_name_is_read(tmp_path: Path) -> None:
    write_trials(tmp_path, [TRIAL])
    content = json.loads((tmp_path / FILE).read_text("utf-8"))
    (row,) = content["trials"]
    assert row["told"] == row.pop("outcome") == "breaks 4 → 2"
    (tmp_path / FILE).write_text(json.dumps(content), "utf-8")
    assert read_trials(tmp_path) == (TRIAL,)
    del row["told"]
    (tmp_path / FILE).write_text(json.dumps(content), "utf-8")
    assert read_trials(tmp_path) == ()
