"""The user's modules are put into the script, where it fails alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from tc.minifier.passes import modules, rendering


def home(folder: Path) -> Path:
    (folder / "pkg").mkdir()
    (folder / "pkg" / "__init__.py").write_text("from .deep import depth\n")
    (folder / "pkg" / "deep.py").write_text("from .. import base\ndepth = base.SIZE * 2\n")
    (folder / "base.py").write_text(
        '"""Doc."""\nfrom __future__ import annotations\nimport math\nSIZE = int(math.pi)\n'
        "def area(x):\n    return x * SIZE\nif __name__ == '__main__':\n    print('main')\n"
    )
    return folder


@pytest.mark.parametrize(
    "text",
    [
        "import base\nfound = base.area(2)\n",
        "import base as b\nfound = b.area(2)\n",
        "from base import area as a, SIZE\nfound = a(2) + SIZE - SIZE\n",
        "import math, base\nfound = base.area(2) + math.floor(0.5)\n",
        "def f():\n    import base\n    return base.area(2)\nfound = f()\n",
    ],
)
def test_an_import_becomes_what_it_brings(text: str, tmp_path: Path) -> None:
    def fails(candidate: str) -> bool:
        names: dict[str, object] = {}
        exec(candidate, names)
        return names["found"] == 6

    left = modules.inlined(text, home(tmp_path), fails, lambda one: None)
    assert modules.neighbours(left, tmp_path) == []
    assert fails(left) and "print('main')" not in left


def test_packages_go_too(tmp_path: Path) -> None:
    text = "import pkg.deep\nfound = pkg.deep.depth\n"
    left = modules.inlined(text, home(tmp_path), rendering.is_program, lambda one: None)
    assert "depth = " in left


def test_what_does_not_fail_alike_is_left(tmp_path: Path) -> None:
    text = "import base\nfound = base\n"
    assert modules.inlined(text, home(tmp_path), lambda one: False, lambda one: None) == text
    assert modules.neighbours(text, tmp_path) == ["base"]
