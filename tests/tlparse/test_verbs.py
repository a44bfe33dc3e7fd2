"""Running a program with tracing on, and explaining a code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import make_codes
import pytest

from tc.tlparse.__main__ import main
from tc.tlparse.verbs import codes

TRACED = """
import json, os, sys
ids = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
start = {"dynamo_start": {"stack": [{"line": 3, "name": "f", "filename": -1}]}, **ids}
where = os.environ["TC_TRACE"]
assert where == os.environ["TORCH_TRACE"]
with open(where + "/dedicated_log_torch_trace_a.log", "w") as log:
    log.write("V1120 09:14:22.968000 1 torch/x.py:1] " + json.dumps(start) + chr(10))
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(TRACED)
    return "program.py"


def test_a_program_is_run_and_its_exit_code_kept(
    program: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--", sys.executable, program, "7"]) == 7
    assert "1 compile of 1 function" in capfd.readouterr().out
    assert (tmp_path / "tc_trace" / "tc_report.html").exists()
    assert main(["run", "-o", "x.html", "--json", "--", sys.executable, program, "0"]) == 0
    assert json.loads(capfd.readouterr().out)["trace"] == str(tmp_path / "tc_trace-2")
    assert (tmp_path / "x.html").exists()


def test_options_of_the_program_are_its_own(
    program: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--", sys.executable, "-c", "import sys; print(sys.argv)", "--help"]) == 0
    out, err = capfd.readouterr()
    assert out == "['-c', '--help']\n"
    assert "it compiled nothing" in err


def test_a_program_that_cannot_be_run(
    program: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--", "no-such-program"]) == 127
    assert main(["run", "--", str(tmp_path / program)]) == 126
    assert main(["run", "--", sys.executable, "-c", "import os; os.abort()"]) == 128 + 6
    assert main(["run"]) == 2
    assert main(["run", "--nothing", "--", "true"]) == 2
    assert main(["run", "python", "train.py"]) == 2
    assert "put -- before the program: tc-report run -- python train.py" in capfd.readouterr().err
    assert main(["run", "--trace", str(tmp_path), "--", "true"]) == 2
    assert "name a new folder" in capfd.readouterr().err


def test_the_file_of_codes_is_up_to_date() -> None:
    assert make_codes.TARGET.read_text("utf-8") == make_codes.text(), (
        "run python tests/make_codes.py"
    )
    assert make_codes.INDEX.read_text("utf-8") == make_codes.index()


def test_every_code_in_the_sources_is_explained() -> None:
    root = Path(__file__).resolve().parents[2]
    used = set()
    for folder in ("compiler", "trace"):
        for path in (root / folder).rglob("*.py"):
            used.update(make_codes.re.findall(r"[\"'](TC\d{3})[\"']", path.read_text("utf-8")))
    assert used <= codes().keys()
    for row in codes().values():
        assert row["title"]
        assert row["fix"] or row["instead"]


def test_a_code_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "tc110-7f3a"]) == 0
    out = capsys.readouterr().out
    assert "torch.where" in out
    assert "this breaks:" in out
    assert main(["explain", "TC402", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["code"] == "TC402"
    assert main(["explain", "TC9"]) == 2
    assert "TC901" in capsys.readouterr().err


def test_explaining_needs_no_torch() -> None:
    code = (
        "import sys; from tc.tlparse.__main__ import main; main(['explain', 'TC110']); "
        "sys.exit('torch' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(make_codes.ROOT)}
    assert os.spawnve(os.P_WAIT, sys.executable, [sys.executable, "-c", code], environment) == 0


def test_json_of_a_run_is_all_of_stdout(tmp_path: Path) -> None:
    code = "import os, shutil, sys; print('mine'); shutil.copy(sys.argv[1], os.environ['TC_TRACE'])"
    log = tmp_path / "dedicated_log_torch_trace_a.log"
    ids = '"frame_id": 0, "frame_compile_id": 0, "attempt": 0'
    log.write_text(f'V1120 09:14:22.968000 1 torch/x.py:1] {{"dynamo_start": {{}}, {ids}}}\n')
    command = [sys.executable, "-m", "tc.tlparse", "run", "--trace", str(tmp_path / "t")]
    done = subprocess.run(
        [*command, "--json", "--", sys.executable, "-c", code, str(log)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["trace"] == str(tmp_path / "t")
    assert done.stderr.startswith("mine\n")
