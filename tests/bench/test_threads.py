"""The long runs over threads: a small one of each, in the slow suite."""

from __future__ import annotations

import json

import pytest
import tsan
from support import python

pytestmark = pytest.mark.slow


def test_random_calls_in_many_threads_agree_with_eager():
    done = python("bench/threads.py", "--here", "--calls", "4000", "--switch", "1e-6", timeout=900)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["calls"], found["wrong"]) == (4000, 0), found["first"]


@pytest.mark.skipif(tsan.library() is None, reason="gcc has no ThreadSanitizer here")
def test_no_races_in_the_c_of_tc():
    assert tsan.main(["--threads", "4", "--calls", "60"]) == 0
