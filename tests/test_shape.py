"""What was untangled stays so: no figure of the code's shape grows."""

from __future__ import annotations

import pytest
from house import File
from shape import (
    ROOT,
    figures,
    files,
    folder_imports,
    folders_in_cycles,
    largest_cycle,
    members,
)

#: as they are; lower one when it falls
LIMITS = {
    "modules in the largest cycle of imports": 11,
    "folders of capture in a cycle of imports": 0,
    "public members of Tracer": 34,
    "imports inside of functions": 13,
    "tokens a line in capture": 8.5,
    "lookups of attributes by name in capture": 211,
    "files with C in strings": 0,
    "loose files of the compiler": 12,
}
#: folders of capture, each of which imports only those before it
ORDER = ("bytecode", "guards", "values", "torch_api", "parts", "opcodes", "resume")


@pytest.fixture(scope="module")
def measured(no_passes: None) -> dict[str, float]:
    """All figures as they are now."""
    return figures()


@pytest.mark.parametrize("what", LIMITS)
def test_no_figure_grows(what: str, measured: dict[str, float]) -> None:
    assert measured[what] <= LIMITS[what], f"{what}: {measured[what]}, was {LIMITS[what]}"


@pytest.mark.parametrize("what", LIMITS)
def test_limits_are_those_measured(what: str, measured: dict[str, float]) -> None:
    assert measured[what] >= LIMITS[what] * 0.9, f"{what} is {measured[what]} now: lower its limit"


def test_every_figure_has_a_limit(measured: dict[str, float]) -> None:
    assert measured.keys() == LIMITS.keys()


def test_a_cycle_is_found_through_imports_for_type_checkers() -> None:
    texts = {
        "tc/a.py": "from tc import b",
        "tc/b.py": "if TYPE_CHECKING:\n    from tc.c import C",
        "tc/c.py": "def f():\n    import tc.a",
        "tc/d.py": "import tc.a",
    }
    modules = [File.of(path, text) for path, text in texts.items()]
    assert largest_cycle(modules) == ["tc.a", "tc.b", "tc.c"]


def test_folders_of_capture_import_only_those_before_them() -> None:
    edges = folder_imports(files(ROOT, "compiler/capture"), "tc.compiler.capture")
    for at, folder in enumerate(ORDER):
        assert not edges[folder] & {*ORDER[at:]}, folder
    assert {*ORDER} == {path.parent.name for path in ROOT.glob("compiler/capture/*/*.py")}


def test_a_cycle_of_folders_is_found_through_a_loose_module() -> None:
    texts = {
        "tc/p/__init__.py": "",
        "tc/p/a/one.py": "import tc.p.loose",
        "tc/p/loose.py": "if TYPE_CHECKING:\n    from tc.p.a import two",
        "tc/p/a/two.py": "import tc.p.b.one",
        "tc/p/b/one.py": "",
    }
    modules = [File.of(path, text) for path, text in texts.items()]
    assert folders_in_cycles(modules, "tc.p") == 1


def test_members_are_those_of_bases_as_well() -> None:
    text = "class A:\n x: int\n def f(self): self.y = 1\nclass B(A):\n def _g(self): self._z = 1"
    assert members([File.of("tc/a.py", text)], "B") == {"x", "y", "f"}
