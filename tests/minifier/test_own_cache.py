"""A failure that comes out of the user's own cache is named as that, with its entry."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from faultbench import environment, written
from minifier_scripts import SMALL
from support import python

from tc.minifier.own_cache import needed, own_caches


@pytest.mark.parametrize("culprits", [{3}, {0}, {31}, {4, 17}])
def test_the_fewest_entries_that_it_needs(culprits: set[int]) -> None:
    files = [Path(str(number)) for number in range(32)]
    random.Random(0).shuffle(files)
    found = needed(files, lambda kept: culprits <= {int(str(path)) for path in kept})
    assert {int(str(path)) for path in found} == culprits


def test_only_folders_that_hold_something_are_caches(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("1")
    (tmp_path / "empty").mkdir()
    found = own_caches({
        "TC_CACHE_DIR": str(tmp_path / "empty"), "TRITON_CACHE_DIR": str(tmp_path / "full"),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "none"),
    })  # fmt: skip
    assert found == {"TRITON_CACHE_DIR": tmp_path / "full"}


@pytest.mark.slow
def test_a_wrong_entry_is_named(tmp_path: Path) -> None:
    """A broken compiler fills the cache; the sound one then finds its program there."""
    written(tmp_path, SMALL)
    broken = environment("tc:kernel:tanh", tmp_path)
    assert python("script.py", cwd=tmp_path, variables=broken).returncode == 0
    sound = {**environment("", tmp_path), "TC_CACHE_DIR": str(tmp_path / "cache")}
    done = python("-m", "tc.minifier", "script.py", cwd=tmp_path, variables=sound, timeout=900)
    if "does not fail" in done.stderr:
        pytest.skip("the compiler looked the entry up under another key")
    assert done.returncode == 1
    assert "fails only with your cache" in done.stderr, done.stderr
    assert re.search(r"the wrong entry is (graph|lib|wrapper)/", done.stderr), done.stderr
