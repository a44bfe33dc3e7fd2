"""Builds the C extension modules of this folder.

They are one library, built once for each machine. Parsing Python's headers is most of that work, so
a later need for another module costs nothing.
"""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
from contextlib import suppress
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import ModuleType

from tc.compiler.core.once import once
from tc.compiler.errors import StageError
from tc.compiler.runtime.build import build
from tc.compiler.runtime.mapping import Library

NAMES = (
    *("launch", "fast_path", "relation", "watch"),
    *(("memo",) if sys.version_info < (3, 13) else ()),
)
"""The modules; Python 3.13 removed the versions of dictionaries that memo reads."""


@once
def extension(name: str) -> ModuleType | None:
    """Return the module ``tc_{name}``, built once a machine, Python and compiler from ``{name}.c``.

    None if it cannot be built: no C compiler, no headers of Python, or an unsupported Python.
    """
    if name not in NAMES or not (_headers() / "Python.h").exists():
        return None
    try:
        library = built()
    except StageError:
        return None
    for path in library.paths():
        with suppress(ImportError):
            return _loaded(f"tc_{name}", path)
    return None


def built() -> Library:
    """Return the library of all modules.

    Raises:
        StageError: no C compiler.
    """
    source = "\n".join((Path(__file__).parent / f"{one}.c").read_text() for one in NAMES)
    salt = f"{sys.version} {sysconfig.get_config_var('SOABI')}"
    return build(source, ("-O2", "-fPIC", "-shared", f"-I{_headers()}"), salt=salt)


def _headers() -> Path:
    """Return the folder of Python's headers."""
    return Path(sysconfig.get_path("include"))


def _loaded(name: str, path: str) -> ModuleType:
    loader = ExtensionFileLoader(name, path)
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
