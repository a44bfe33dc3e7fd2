"""A program forked from a process that has torch loaded does what it does in a new process."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support import python
from warm import fits

PROGRAMS = {
    "an error": ("-c", "def f(): 1 / 0\nf()"),
    "a message": ("-c", "import sys; print('out'); sys.exit('no')"),
    "a code": ("-c", "raise SystemExit(7)"),
    "a signal": ("-c", "import os; os.kill(os.getpid(), 9)"),
    "a module": ("-m", "tc.minifier", "no_such_script.py"),
    "no module": ("-m", "tc.no_such_module"),
    "its end": ("-c", "import atexit, threading; atexit.register(print, 'end')\n"
                      "threading.Thread(target=lambda: print('thread')).start()"),
    "what it sees": ("-c", "import os, sys; print(sys.argv, sys.path[:2], os.getcwd(), __name__,"
                           " sorted(globals()), sorted(os.environ), sys.stdin.read())", "a", "-b"),
    "fresh tc": ("-c", "import sys; print([m for m in sys.modules if m.startswith('tc')])"),
}  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_child_ends_as_a_new_process(name: str, tmp_path: Path) -> None:
    given = {"cwd": tmp_path, "variables": {"A_VARIABLE_OF_A_TEST": "1"}}
    cold, warm = (python(*PROGRAMS[name], warm=warm, **given) for warm in (False, True))
    assert (warm.returncode, warm.stdout, warm.stderr) == (
        cold.returncode, cold.stdout, cold.stderr
    )  # fmt: skip


def test_a_script_finds_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("value = 3\n")
    (tmp_path / "sitecustomize.py").write_text("print('at the start')\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, neighbour\nprint(neighbour.value, __file__, 'torch' in sys.modules)"
    )
    done = python(str(script), warm=True, variables={"PYTHONPATH": str(tmp_path)})
    assert done.stdout == f"at the start\n3 {script} True\n", done.stderr


def test_a_child_that_does_not_end_is_killed() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        python("-c", "while True: pass", warm=True, timeout=0.5)
    assert python("-c", "print(1)", warm=True).stdout == "1\n"


def test_what_is_read_at_the_start_needs_a_new_process() -> None:
    base = {"PYTHONPATH": "a", "OMP_NUM_THREADS": "1", "HOME": "h"}
    assert fits(("-c", ""), {**base, "PYTHONPATH": "b", "HOME": "i", "TC_TRACE": "t"}, base)
    assert fits(("script.py",), base, base)
    assert not fits(("-X", "importtime", "-m", "tc"), base, base)
    for name in ("PYTHONHASHSEED", "OMP_NUM_THREADS", "TORCH_LOGS", "LC_ALL"):
        assert not fits(("-c", ""), {**base, name: "2"}, base)
