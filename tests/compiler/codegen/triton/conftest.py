"""Kernels under Triton's interpreter: chosen before triton is first imported, else skipped."""

from __future__ import annotations

import pytest


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops write at computed places by atomic operations, as they do on a GPU."""
    from tc.compiler.loops.lower import scatter

    monkeypatch.setattr(scatter, "in_any_order", lambda device: True)


@pytest.fixture(scope="session")
def interpreter() -> None:
    """Triton's interpreter, completed; skips where triton is missing or was loaded to compile."""
    triton = pytest.importorskip("triton", reason="triton is not installed")
    from triton_harness import complete_interpreter

    if not triton.knobs.runtime.interpret:
        pytest.skip("triton compiles in this process (TRITON_INTERPRET=0)")
    complete_interpreter()
