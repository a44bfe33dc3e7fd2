"""`tc` without torch: the viewers work, and all else says what is missing in one sentence."""

from __future__ import annotations

from support import python

WITHOUT = """
import sys

class NoTorch:
    def find_spec(self, name, *rest):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoTorch())
"""


def test_compile_without_torch_is_one_sentence() -> None:
    done = python("-c", f"{WITHOUT}import tc\ntc.compile")
    last = done.stderr.splitlines()[-1]
    assert "torch is not installed: pip install torch" in last


def test_the_report_needs_no_torch() -> None:
    done = python("-c", f"{WITHOUT}from tc.tlparse.__main__ import main\nmain(['--version'])")
    assert not done.returncode, done.stderr
