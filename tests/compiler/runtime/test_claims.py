"""Turns among processes: one makes an entry, the others wait, and nobody waits for the dead."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support import ROOT, python

import tc
from tc.compiler.runtime import claims
from tc.compiler.runtime.claims import turn
from tc.compiler.runtime.places import Folder, Memory, Place


@pytest.fixture(params=["folder", "memory"])
def place(request, tmp_path) -> Place:
    return Folder(tmp_path) if request.param == "folder" else Memory()


def nothing() -> None:
    return None


def claimed(place: Place) -> claims.Claim:
    found, claim = turn(place, "name", nothing)
    assert found is None and claim is not None
    return claim


def left_by(place: Place, owner: str, generation: int = 0) -> None:
    """Leave a claim as another process would."""
    place.create(claims._file("name", generation), owner.encode())


def test_the_first_one_makes_it_and_leaves_nothing(place):
    claimed(place).release()
    assert place.files("tmp") == []
    claimed(place).release()


def test_what_was_made_between_the_look_and_the_claim_is_found(place):
    assert turn(place, "name", lambda: "made") == ("made", None)
    assert place.files("tmp") == []


def test_others_wait_until_it_is_made(place):
    claim, made, found = claimed(place), [], []
    waiting = threading.Event()

    def look():
        waiting.set()
        return made[0] if made else None

    thread = threading.Thread(target=lambda: found.append(turn(place, "name", look)))
    thread.start()
    assert waiting.wait(10)
    made.append("entry")
    thread.join(10)
    assert found == [("entry", None)]
    claim.release()


def test_where_nothing_was_made_the_others_make_it_at_once(place):
    claim, found = claimed(place), []
    waiting = threading.Event()

    def waits():
        made, late = turn(place, "name", waiting.set)
        assert late is None or late.release() is None  # it came after the release
        found.append(made)

    threads = [threading.Thread(target=waits) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert waiting.wait(10)
    claim.release()
    for thread in threads:
        thread.join(10)
    assert found == [None] * 3
    assert place.files("tmp") == []


def test_a_process_that_keeps_others_waiting_does_not_wait(place):
    claim = claimed(place)
    _, other = turn(place, "another name", nothing)
    assert other is not None
    assert turn(place, "name", nothing) == (None, None)
    other.release()
    claim.release()


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_the_claim_of_a_process_that_died_is_taken_over_and_removed(place):
    left_by(place, f"{claims._machine()} {dead_process()} 12345 000000000000\n")
    left_by(place, f"{claims._machine()} {dead_process()} 12345 000000000000\n", 1)
    claim = claimed(place)
    assert len(place.files("tmp")) == 3
    claim.release()
    assert place.files("tmp") == []


def test_a_number_that_another_process_has_now_is_no_life(place):
    left_by(place, f"{claims._machine()} {os.getpid()} 12345 000000000000\n")
    claimed(place).release()


def test_a_claim_of_this_process_that_could_not_be_removed_is_none(place):
    left_by(place, claims._owner(0).decode())
    claimed(place).release()


@pytest.mark.sample(4)
@pytest.mark.parametrize("owner", ["another 1 1 000000000000\n", "", "\xff", "a b c d", "1 2 3"])
def test_a_claim_that_does_not_change_is_taken_over(place, owner, monkeypatch):
    monkeypatch.setattr(claims, "SILENCE", 0.05)
    left_by(place, owner)
    claimed(place).release()


def test_nobody_waits_longer_than_asked(place):
    left_by(place, "another 1 1 000000000000\n")
    with tc.config.patch(cache_wait=0.05):
        assert turn(place, "name", nothing) == (None, None)
    with tc.config.patch(cache_wait=0):
        assert turn(place, "other name", nothing) == (None, None)
    assert turn(None, "name", nothing) == (None, None)


def test_an_owner_shows_that_it_lives(place, monkeypatch):
    monkeypatch.setattr(claims, "BEAT", 0.005)
    claim = claimed(place)
    file = claims._file("name", 0)
    first = place.read(file)
    while place.read(file) == first:
        time.sleep(0.005)
    assert len(place.read(file)) == len(first)
    claim.release()
    assert place.files("tmp") == []


def test_a_fork_lets_its_parents_claim_alone(tmp_path):
    place = Folder(tmp_path)
    claim = claimed(place)
    child = os.fork()
    if child == 0:
        claim.release()
        os._exit(0)
    os.waitpid(child, 0)
    assert len(place.files("tmp")) == 1
    claim.release()


HOLDER = """
import sys, time
from pathlib import Path
from tc.compiler.runtime import claims
from tc.compiler.runtime.places import Folder
found, claim = claims.turn(Folder(Path(sys.argv[1])), "name", lambda: None)
print("claimed" if claim else "none", flush=True)
sys.stdin.read()
"""


@pytest.mark.sample(1)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_owner_is_found_out_though_nobody_waited_for_it(tmp_path, number):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "claimed\n"
    process.send_signal(number)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now
    claimed(Folder(tmp_path)).release()
    process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--kill",), ("--address", "file://{}/shared")])
def test_many_processes_on_one_cache(tmp_path: Path, more):
    given = [argument.format(tmp_path) for argument in more]
    done = python("bench/shared_cache.py", "--processes", "6", "--rounds", "1", *given, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["failures"] == 0 and last["compiled_again"] <= last["kills"]
