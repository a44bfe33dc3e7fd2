"""What a process makes once, and which modules it has imported."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path

import tc
from tc.compiler.core.once import loaded, once


def test_a_module_that_another_thread_still_imports_is_not_loaded(tmp_path: Path, monkeypatch):
    (tmp_path / "imported_slowly.py").write_text(
        "import threading\nbegun, end = threading.Event(), threading.Event()\n"
        "begun.set()\nend.wait()\nlast = 1\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert loaded("imported_slowly") is None
    importing = threading.Thread(target=lambda: __import__("imported_slowly"))
    importing.start()
    while not hasattr(sys.modules.get("imported_slowly"), "end"):
        pass
    module = sys.modules["imported_slowly"]
    try:
        assert loaded("imported_slowly") is None
    finally:
        module.end.set()
        importing.join()
    assert loaded("imported_slowly") is module
    assert loaded("imported_slowly").last == 1


def test_torchs_modules_are_looked_up_by_loaded_alone():
    looks = re.compile(r"""sys\.modules(?:\.get\(|\[)["']torch""")
    root = Path(tc.__file__).resolve().parent / "compiler"
    texts = {file.name: file.read_text("utf-8") for file in root.rglob("*.py")}
    assert len(texts) > 100 and looks.search('sys.modules.get("torch._dynamo.utils")')
    assert not [name for name, text in texts.items() if looks.search(text)]


def test_threads_that_ask_at_once_get_one_object():
    barrier, found = threading.Barrier(8), []
    make = once(lambda: object())

    def ask():
        barrier.wait()
        found.append(make())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(found) == 8 and len(set(map(id, found))) == 1
