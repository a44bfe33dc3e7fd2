"""The C of helpers stands in files: each is C by itself, and named once."""

from __future__ import annotations

import ctypes
import math
import subprocess
from pathlib import Path

import pytest
import torch

from tc.compiler.cache import graph_key
from tc.compiler.core import parts
from tc.compiler.core.c_helpers import FOLDER, Helpers, helpers, helpers_for
from tc.compiler.errors import StageError
from tc.compiler.runtime import build
from tc.compiler.runtime.build import find_compiler, kernel_flags
from tc.compiler.runtime.routines import source_of

COMPILER = Path(graph_key.ROOT)


def check(source: str, *flags: str) -> str:
    """What the C compiler says of a source."""
    compiler = find_compiler()
    command = [*compiler.command, *kernel_flags(compiler), *flags, "-fsyntax-only", "-xc", "-"]
    run = subprocess.run(
        [*command, "-Werror=implicit-function-declaration"],
        input=source, capture_output=True, text=True,
    )  # fmt: skip
    return run.stderr if run.returncode else ""


@pytest.mark.sample(15)
@pytest.mark.parametrize("name", sorted(helpers().names()))
def test_helper_compiles_with_what_it_needs_alone(name: str) -> None:
    assert not check(helpers_for([name]))


def test_all_helpers_compile_together_for_any_processor() -> None:
    source = helpers_for(helpers().names())
    assert not check(source)
    assert not check(source, "-U__FMA__", "-U__AVX512F__", "-U__AVX512DQ__")


def test_parts_of_a_file_with_all_helpers_are_linked(monkeypatch) -> None:
    """Each part has its own copy of the helpers, those with names outside of the file included."""
    monkeypatch.setattr(parts, "GROUP", 1)
    monkeypatch.setattr(build, "cores", lambda: 2)
    calls = ["tc_fmod_f32(7, x)", "tc_sin_f32(x)", "(float)tc_cos_f64(x)", "tc_floordiv_f32(9, x)"]
    bodies = [f"float f{k}(float x) {{ return {call}; }}" for k, call in enumerate(calls)]
    source = parts.grouped(helpers_for(helpers().names()), bodies)
    assert parts.groups_of(source) == 4
    opened = build.build_kernels(source).open()
    for k, wanted in enumerate((1.0, math.sin(2), math.cos(2), 4.0)):
        function = opened[f"f{k}"]
        function.argtypes, function.restype = [ctypes.c_float], ctypes.c_float
        assert function(2.0) == pytest.approx(wanted, rel=1e-6)


def test_every_comment_that_introduces_a_helper_is_found() -> None:
    text = "".join(path.read_text() for path in FOLDER.glob("*.h"))
    assert "helper:" not in "".join(helpers().source([name]) for name in helpers().names())
    assert text.count("helper:") > 90


def test_placeholders_are_filled_in() -> None:
    made = Helpers(
        ["""#define BITS 8
/* helper: tc_shl_TAG
   for: TAG BITS = i64 64,
      u8 8
   with: tc_wide_TAG */
TYPE tc_shl_TAG(TYPE a) { return tc_wide_TAG(a, BITS); }
"""]
    )  # fmt: skip
    assert list(made.names()) == ["tc_shl_i64", "tc_shl_u8"]
    wanted = "unsigned char tc_shl_u8(unsigned char a) { return tc_wide_u8(a, 8); }\n"
    assert made.source(["tc_shl_u8"]) == wanted


def test_needed_helpers_come_first_and_once() -> None:
    files = [
        "/* helper: tc_b */\nint tc_b(void) { return tc_a() + tc_a(); }\n",
        "/* helper: tc_a */\nint tc_a(void) { return 1; }\n",
    ]
    text = Helpers(files).source(["tc_b", "tc_a"])
    assert text == "int tc_a(void) { return 1; }\nint tc_b(void) { return tc_a() + tc_a(); }\n"


def test_two_helpers_of_one_name_are_refused() -> None:
    with pytest.raises(StageError, match="Two C helpers are named 'tc_a'"):
        Helpers(["/* helper: tc_a */\nint a;\n"] * 2)


def test_missing_helpers_are_refused() -> None:
    made = Helpers(["/* helper: tc_a */\nint tc_a(void) { return tc_b(); }\n"])
    with pytest.raises(StageError, match="'tc_a' needs 'tc_b', which is no helper"):
        made.get("tc_a")
    with pytest.raises(StageError, match="There is no C helper 'tc_c'"):
        made.source(["tc_c"])


def test_routines_hold_the_helpers_they_name() -> None:
    source = source_of(COMPILER / "routines/attention.c")
    assert "TC_INLINE float tc_exp_f32(float x) {" in source
    assert "helpers:" not in source


def test_exponential_and_transpose_exist_once() -> None:
    files = [path for path in COMPILER.rglob("*") if path.suffix in (".py", ".c", ".h")]
    for piece in ("0.0027687211986631155f", "0, 16, 1, 17, 2, 18"):
        holding = [path for path in files if piece in path.read_text()]
        assert len(holding) == 1 and holding[0].suffix == ".h"


def test_key_of_graphs_covers_all_files_of_the_compiler() -> None:
    files = set(graph_key.own_files())
    assert {FOLDER / "exponentials.h", COMPILER / "codegen/stage.py"} <= files
    assert COMPILER / "routines/attention.c" in files


#: a row is copied, another is chosen from two memories, kept, and reduced; then the kept is read
KEPT = """
void kept(const float* restrict a, const float* restrict b, float* restrict copied,
          float* restrict out) {
  for (long long p = 0; p < 128; p++) {
    float row[LENGTH];
    float best = -__builtin_inff();
    int unknown = 0;
    #pragma omp simd reduction(max:best) reduction(|:unknown)
    for (long long r = 0; r < LENGTH; r++) {
      copied[LENGTH * p + r] = b[256 * p + r + 60000];
      const float value = CHOSEN ? a[4 * p + r] : b[256 * p + r + 32764];
      row[r] = value;
      best = value > best ? value : best;
      unknown |= value != value;
    }
    const float most = unknown ? __builtin_nanf("") : best;
    #pragma omp simd
    for (long long r = 0; r < LENGTH; r++)
      out[LENGTH * p + r] = row[r] - most;
  }
}
"""


@pytest.mark.parametrize("length", [64, 100, 256, 260])
@pytest.mark.parametrize("chosen", ["r < 4", "r >= 4", "(r & 1) == 0", "b[256 * p + r] < 0"])
def test_stores_of_a_loop_that_copies_chooses_and_reduces_are_kept(
    chosen: str, length: int
) -> None:
    source = helpers_for(["tc_prelude"])
    source += KEPT.replace("LENGTH", str(length)).replace("CHOSEN", f"({chosen})")
    a, b = torch.randn(4096), torch.randn(98304)
    copied, out = torch.full((2, 128, length), math.nan)
    kept = ctypes.CDLL(str(build.build_kernels(source))).kept
    kept(*(ctypes.c_void_p(one.data_ptr()) for one in (a, b, copied, out)))
    p, r = torch.arange(128)[:, None], torch.arange(length)
    choices = {
        "r < 4": r < 4,
        "r >= 4": r >= 4,
        "(r & 1) == 0": r % 2 == 0,
        "b[256 * p + r] < 0": b[256 * p + r] < 0,
    }
    value = torch.where(choices[chosen], a[4 * p + r], b[256 * p + r + 32764])
    assert torch.equal(copied, b[256 * p + r + 60000])
    assert torch.equal(out, value - value.amax(1, keepdim=True))
