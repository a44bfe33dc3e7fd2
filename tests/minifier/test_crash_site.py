"""The statement at which generated code dies is found by its line."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tc.minifier import crash_site
from tc.minifier.crash_site import BUILT, site_in, watch

KERNEL = """\
static float helper(const float *p) { return p[0]; }

/* aten.relu.default (relu) case.py:7 in f */
/* aten.sin.default (sin) case.py:8 */
void k0_relu_sin(const float* in0, float* out0) {
  const float v0 = in0[0];
  out0[0] = v0 + 1.0f;
}
"""


@pytest.mark.skipif(
    not (shutil.which("cc") and shutil.which("addr2line")), reason="no C compiler or no binutils"
)
def test_the_statement_of_a_crash(tmp_path: Path) -> None:
    (tmp_path / BUILT).mkdir()
    source = tmp_path / BUILT / "kernel.c"
    source.write_text(KERNEL)
    library = source.with_suffix(".so")
    flags = ["-g", "-Og", "-fPIC", "-shared"]
    subprocess.run(["cc", *flags, str(source), "-o", str(library)], check=True)
    pid = os.fork()
    if pid == 0:
        try:
            assert watch(tmp_path, "2")
            held = (ctypes.c_float * 1)()
            ctypes.CDLL(str(library)).k0_relu_sin(held, ctypes.c_void_p(64))
        finally:
            os._exit(3)
    _, status = os.waitpid(pid, 0)
    assert os.WTERMSIG(status) == signal.SIGSEGV
    site = site_in(tmp_path)
    assert site is not None and site.kernel == "k0_relu_sin" and site.file == "kernel.c"
    assert (site.line, site.text) == (7, "out0[0] = v0 + 1.0f;")
    assert site.lines == ("case.py:7", "case.py:8")


def test_a_stack_without_generated_code(tmp_path: Path) -> None:
    assert site_in(tmp_path) is None
    (tmp_path / crash_site.STACK).write_text("/lib/libc.so.6\t1234\tabort\n")
    assert site_in(tmp_path) is None
