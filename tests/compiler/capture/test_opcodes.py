"""Every opcode of every supported Python has a handler or a row that says why it has none."""

import dis
import json
import subprocess
from pathlib import Path

import pytest

from tc.compiler.capture.bytecode.dialects import RUNNING
from tc.compiler.capture.bytecode.opcode_table import ALL_ROWS
from tc.compiler.capture.opcodes import OPCODES, refused

#: pseudo-instructions of the compiler that never reach a code object
PSEUDO = {
    "SETUP_FINALLY", "SETUP_CLEANUP", "SETUP_WITH", "POP_BLOCK", "JUMP_NO_INTERRUPT",
    "LOAD_METHOD", "LOAD_SUPER_METHOD", "LOAD_ZERO_SUPER_METHOD", "LOAD_ZERO_SUPER_ATTR",
    "STORE_FAST_MAYBE_NULL",
}  # fmt: skip
PYENV = Path.home() / ".pyenv" / "versions"


def handled(version: tuple[int, int]) -> set[str]:
    return {
        name for name, since, until in ALL_ROWS
        if since <= version and (until is None or version <= until)
    }  # fmt: skip


def names_of(version: tuple[int, int]) -> list[str]:
    if version == RUNNING:
        return list(dis.opmap)
    found = sorted(PYENV.glob(f"{version[0]}.{version[1]}.*/bin/python"))
    if not found:
        pytest.skip(f"no Python {version} here")
    text = subprocess.check_output(
        [found[0], "-c", "import dis, json; print(json.dumps(list(dis.opmap)))"], text=True
    )
    return list(json.loads(text))


@pytest.mark.parametrize("version", [(3, 11), (3, 12), (3, 13)], ids=str)
def test_every_opcode_has_a_row(version: tuple[int, int]) -> None:
    known = handled(version) | (PSEUDO if version > (3, 11) else set())
    missing = [
        name for name in names_of(version)
        if name not in known and not name.startswith("INSTRUMENTED_")
    ]  # fmt: skip
    assert missing == []


def test_one_handler_an_opcode_and_version() -> None:
    for version in [(3, 11), (3, 12), (3, 13)]:
        names = [
            name for name, since, until in ALL_ROWS
            if since <= version and (until is None or version <= until)
        ]  # fmt: skip
        assert len(names) == len(set(names))


@pytest.mark.parametrize("name", [n for n in refused.REFUSED if n in OPCODES])
def test_refused_opcodes_say_what_they_belong_to(name: str) -> None:
    assert refused.REFUSED[name]
