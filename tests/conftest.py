"""Each test session compiles into a cache of its own, and neither logs nor traces unasked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Before any test module imports tc: some of these are read once.
for _name in ("TC_LOGS", "TC_TRACE", "TC_BISECT", "TC_DISABLE", "TORCH_LOGS", "TORCH_TRACE"):
    os.environ.pop(_name, None)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    cache: Path = tmp_path_factory.mktemp("tc_cache")
    os.environ["TC_CACHE_DIR"] = str(cache)
