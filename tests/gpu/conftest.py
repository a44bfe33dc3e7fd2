"""Tests of a GPU run where torch sees one, and Triton compiles: ``make test-gpu`` sees to that."""

from __future__ import annotations

import os

import pytest
import torch


@pytest.fixture(autouse=True)
def _needs_a_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU here")
    if os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("Triton interprets here: make test-gpu")
