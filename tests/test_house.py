"""The codebase keeps its own rules: who imports whom, sizes, docstrings, packaging, fast starts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import house
import pytest
from house import File, Violation
from support import ROOT, python, succeed

# "file:function" or "file" -> why it may break a size rule.  Stale entries fail.
REASONED: dict[str, str] = {
    "compiler/codegen/stage.py:_function": "a user's line in a comment must not end the comment",
    "compiler/codegen/triton/tuning.py:named": "names sizes in the key of an answer, no code",
}

TC = ("tc", *house.PACKAGES)
ALL = (*TC, "tests", "examples", "bench")


@cache
def parsed(path: Path) -> File:
    """A parsed file of the repository; the rules share its tree."""
    return File.of(path.relative_to(ROOT).as_posix(), path.read_text())


@pytest.fixture(scope="module", autouse=True)
def _trees_are_let_go(no_passes: None) -> Iterator[None]:
    yield
    parsed.cache_clear()


def files(*folders: str) -> list[File]:
    """The parsed Python files of some folders, each once (links are not followed)."""
    return [
        parsed(path)
        for folder in folders
        for path in sorted((ROOT / folder).glob("*.py" if folder == "tc" else "**/*.py"))
    ]


def excused(violation: Violation) -> str:
    """The entry of REASONED that covers a violation, if there is one."""
    keys = (violation.file, f"{violation.file}:{violation.detail.split()[0]}")
    return next((key for key in keys if key in REASONED), "")


RULES: list[tuple[Callable[[Iterable[File]], Iterator[Violation]], tuple[str, ...]]] = [
    (house.layering, TC),
    (house.cycles, TC),
    (house.replaced_imports, ALL),
    (house.torch_free, TC),
    (house.relative_imports, ALL),
    (house.docstrings, ALL),
    (house.sizes, ALL),
    (house.printed_code, TC),
    (house.printed_commands, TC),
    (house.code_by_identity, TC),
    (house.tensors_name_their_device, TC),
    (house.c_in_c_files, TC),
]


@pytest.mark.parametrize("rule, folders", RULES, ids=lambda value: getattr(value, "__name__", ""))
def test_rule_holds(
    rule: Callable[[Iterable[File]], Iterator[Violation]], folders: tuple[str, ...]
) -> None:
    broken = [violation for violation in rule(files(*folders)) if not excused(violation)]
    if broken:
        pytest.fail("\n".join(map(str, broken)), pytrace=False)


SIZED = (house.sizes, house.printed_code, house.c_in_c_files)


def test_every_exception_is_still_needed() -> None:
    tree = files(*ALL)
    found = [violation for rule in SIZED for violation in rule(tree)]
    used = {excused(violation) for violation in found}
    assert set(REASONED) <= used


TEXTS = (".py", ".md", ".txt", ".js", ".css", ".html", ".c", ".h", ".toml", ".yml", ".yaml")
#: history, other people's files, and the rule itself
OTHER_WORDS = (
    "CHANGELOG.md",
    "docs/decisions/",
    "shared/",
    "tlparse/static/vendor/",
    "tests/house.py",
)


def test_the_words_are_those_of_the_field() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    paths = [one for one in tracked.stdout.splitlines() if not one.startswith(OTHER_WORDS)]
    places = [(path, ROOT / path) for path in paths if path.endswith(TEXTS)]
    texts = [(path, place.read_text()) for path, place in places if place.is_file()]
    broken = list(house.vocabulary(texts))
    if broken:
        pytest.fail("\n".join(map(str, broken)), pytrace=False)


@pytest.mark.parametrize(
    "text, words",
    [("the graph is to" + "ld", 1), ("_do" + "or = 1", 1), ("a pass of ou" + "rs", 1), ("hours", 0),
     ("it go" + "es on", 1), ("file.tell()", 0), ("is outdoors", 0), ("x = retell", 0)],
)  # fmt: skip
def test_private_words_are_found(text: str, words: int) -> None:
    assert len(list(house.vocabulary([("a.py", text)]))) == words


def test_table_of_factories_has_all_of_torchs() -> None:
    from torch.utils._device import _device_constructors

    names = {function.__name__ for function in _device_constructors()}
    assert {f"torch.{name.replace('fft_', 'fft.')}" for name in names} <= house.FACTORIES


def test_layer_table_knows_every_stage() -> None:
    for stage in house.STAGES:
        assert f"tc.compiler.{stage}" in house.LAYERS
    files_of_compiler = [file for file in files("compiler") if file.path.count("/") == 1]
    for file in files_of_compiler:
        assert file.module in house.LAYERS, f"{file.path} has no row in house.LAYERS"


# Planted faults: each rule finds its own.

DEEP = "def f(x):\n" + "".join("    " * n + "if x:\n" for n in range(1, 7)) + "    " * 7 + "pass\n"
CHAIN = "def f(x):\n    if x:\n        pass\n" + "    elif x:\n        pass\n" * 9
FAULTS = [
    (house.layering, {"trace/ids.py": "import tc.tlparse\n"}),
    (house.layering, {"trace/ids.py": "def f():\n    from tc.compiler import api\n"}),
    (house.layering, {"tlparse/a.py": "from importlib import import_module as i\n"
                      "import importlib\nimportlib.import_module('tc.compiler.api')\n"}),
    (house.code_by_identity, {"compiler/a.py": "@functools.lru_cache(9)\n"
                              "def f(code: CodeType) -> int:\n    return 1\n"}),
    (house.code_by_identity, {"compiler/a.py": "found: dict[types.CodeType, int] = {}\n"}),
    (house.layering, {"compiler/aot/a.py": "from tc.compiler.capture import guards\n"}),
    (house.layering, {"compiler/runtime/a.py": "from tc.compiler.codegen.cpp import emit\n"}),
    (house.layering, {"compiler/codegen/a.py": "from tc.compiler.loops.lower import lower\n"}),
    (house.layering, {"compiler/aot/a.py": "from ..capture import guards\n"}),
    (house.cycles, {"trace/a.py": "import tc.trace.b\n", "trace/b.py": "import tc.trace.a\n"}),
    (house.cycles, {"trace/a.py": "from tc.trace import b\n",
                    "trace/b.py": "def f():\n    from tc.trace import a\n"}),
    (house.replaced_imports, {"compiler/a.py": "import torch._dynamo.utils\n"}),
    (house.replaced_imports, {"compiler/a.py": "from torch import _inductor\n"}),
    (house.replaced_imports, {"compiler/a.py": "from torch._functorch import aot_autograd\n"}),
    (house.replaced_imports, {"compiler/a.py": "import torch\ntorch._dynamo.reset()\n"}),
    (house.replaced_imports, {"compiler/a.py": "import_module('torch._inductor.config')\n"}),
    (house.torch_free, {"trace/a.py": "from torch import Tensor\n"}),
    (house.torch_free, {"tlparse/a.py": "def f():\n    import torch.fx\n"}),
    (house.relative_imports, {"trace/a.py": "from . import b\n"}),
    (house.relative_imports, {"compiler/a.py": "from trace import ids\n"}),
    (house.docstrings, {"trace/a.py": "x = 1\n"}),
    (house.sizes, {"trace/a.py": "x = 1\n" * 601}),
    (house.sizes, {"trace/a.py": "def f():\n" + "    pass\n" * 60}),
    (house.sizes, {"trace/a.py": DEEP}),
    (house.printed_code, {"compiler/codegen/a.py": "x = f'{s}'.replace(', ', '), ', 1)\n"}),
    (house.printed_code, {"compiler/codegen/a.py": "import re\nx = re.sub('a', 'b', s)\n"}),
    (house.tensors_name_their_device, {"compiler/a.py": "x = torch.zeros(3)\n"}),
    (house.c_in_c_files, {"compiler/a.py": "x = 'float tc_f(float x) { return x; }'\n"}),
    (house.printed_commands, {"tui/a.py": "x = f'tc-tui {trace} --goto {name}'\n"}),
    (house.printed_commands, {"tui/a.py": "x = f'more: tc-report show --json {name}'\n"}),
    (house.c_in_c_files, {"compiler/a.py": "x = f'static {t}* f(int a) {{\\n  g(); }}'\n"}),
]  # fmt: skip
CLEAN = [
    (house.layering, {"tlparse/a.py": "from tc.trace import ids\n"}),
    (house.layering, {"compiler/frames.py": "from tc.compiler.capture import hook\n"}),
    (house.layering, {"compiler/schedule/a.py": "from tc.compiler.loops.ir import Buffer\n"}),
    (house.cycles, {"trace/a.py": "from typing import TYPE_CHECKING\n"
                    "if TYPE_CHECKING:\n    import tc.trace.b\n",
                    "trace/b.py": "import tc.trace.a\n"}),
    (house.replaced_imports, {"compiler/a.py": "import torch\ntorch._C._dynamo.eval_frame\n"}),
    (house.torch_free, {"compiler/a.py": "import torch\n"}),
    (house.relative_imports, {"trace/a.py": "from tc.trace import b\nimport traceback\n"}),
    (house.docstrings, {"trace/a.py": "'''What it is.'''\n"}),
    (house.sizes, {"trace/a.py": CHAIN}),
    (house.printed_code, {"compiler/codegen/a.py": "x = replace(kernel, name='k')\n"}),
    (house.printed_code, {"trace/a.py": "x = s.strip()\n"}),
    (house.printed_commands, {"tui/a.py": "x = f'tc-report: no code {code}'\n"
                              "y = f'tc-tui {__version__}'\n"}),
    (house.tensors_name_their_device, {"compiler/a.py": "x = torch.zeros(3, **kind)\n"}),
    (house.c_in_c_files, {"compiler/a.py": "x = f'for ({t} i = 0; i < n; i++) {{'\n"}),
    (house.c_in_c_files, {"compiler/a.py": "x = f'({names}) {{{body}}}'\n"}),
]  # fmt: skip


@pytest.mark.parametrize("rule, texts", FAULTS)
def test_rule_finds_planted_fault(
    rule: Callable[[Iterable[File]], Iterator[Violation]], texts: dict[str, str]
) -> None:
    assert list(rule(File.of(path, text) for path, text in texts.items()))


@pytest.mark.parametrize("rule, texts", CLEAN)
def test_rule_leaves_clean_code_alone(
    rule: Callable[[Iterable[File]], Iterator[Violation]], texts: dict[str, str]
) -> None:
    assert not list(rule(File.of(path, text) for path, text in texts.items()))


# Fast starts: what a person's first keystroke loads.

LOADED = (
    "import sys; {run}; print(*sorted(n for n in sys.modules if n.startswith(('torch', 'tc'))))"
)


def test_import_of_tc_loads_neither_torch_nor_the_compiler() -> None:
    loaded = succeed("-c", LOADED.format(run="import tc")).split()
    assert loaded == ["tc"]


def test_names_of_tc_are_listed_without_loading_anything() -> None:
    loaded = succeed("-c", LOADED.format(run="import tc; dir(tc); tc.__version__")).split()
    assert loaded == ["tc"]


def test_help_of_the_report_loads_no_torch() -> None:
    done = python("-X", "importtime", "-m", "tc.tlparse", "--help")
    assert done.returncode == 0 and "tc-report" in done.stdout, done.stderr[-2000:]
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "tc.tlparse" in loaded
    heavy = ("torch", "numpy", "tc.compiler")
    assert not [name for name in loaded if any(house.within(name, other) for other in heavy)]


def test_the_test_environment_is_a_supported_one() -> None:
    assert (3, 11) <= sys.version_info < (3, 14)
