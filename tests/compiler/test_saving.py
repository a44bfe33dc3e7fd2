"""Files of compiled code: what they hold, how they are verified, and how they run without gcc."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from support import python

import tc
from tc.compiler.cache import saved
from tc.compiler.cache.saved import Manifest, SavedGraph, SavedLibrary
from tc.compiler.errors import OptionError, SavedFileError
from tc.compiler.runtime import carried

HERE = "cannot be loaded: "


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TC_FORCE_DISABLE_CACHES", raising=False)
    monkeypatch.setattr(carried, "_PROCESS", carried._Process())
    with tc.config.patch(fx_graph_cache=True):
        tc.reset()
        yield


def function(x, w):
    return torch.tanh(x @ w).cumsum(0)


X, W = torch.randn(4, 4), torch.randn(4, 4, requires_grad=True)


def trains(run):
    result = run(X, W)
    [gradient] = torch.autograd.grad(result.sum(), W)
    return result, gradient


MADE: list[bytes] = []


@pytest.fixture
def file(tmp_path) -> Path:
    """A file of a function and its gradient; whatever made it is forgotten."""
    path = tmp_path / "saved.tc"
    if not MADE:
        compiled = tc.compile(function)
        trains(compiled)
        found = tc.save(path, compiled)
        assert found.left_out == () and len(found.graphs) == 2
        MADE.append(path.read_bytes())
        assert found.sha256 == hashlib.sha256(MADE[0]).hexdigest()
    path.write_bytes(MADE[0])
    forget(tmp_path)
    return path


def forget(tmp_path: Path) -> None:
    """Forget what is compiled, as another process on another machine would not know it."""
    tc.reset()
    carried._PROCESS = carried._Process()
    os.environ["TC_CACHE_DIR"] = str(tmp_path / "another cache")


def compiles(events) -> int:
    return sum(e.name == "codegen" and e.ph == "B" for e in events if isinstance(e, tc.trace.Span))


def no_compiler(monkeypatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")


# -- what is carried -------------------------------------------------------------------------------
@pytest.mark.sample(2)
@pytest.mark.parametrize("level", ["", "x86-64", "avx2", "avx512"])
def test_a_saved_function_compiles_nothing_and_needs_no_compiler(file, monkeypatch, level, caplog):
    if level and level not in carried.levels():
        pytest.skip("this CPU lacks it")
    monkeypatch.setenv("TC_CPU_LEVEL", level)
    no_compiler(monkeypatch)
    with tc.trace.capture_events() as events:
        found = trains(tc.load(file, function))
    torch.testing.assert_close(found, trains(function))
    assert compiles(events) == 0 and not caplog.records
    assert carried.levels()[-1:] in ((level,), carried.levels()[-1:] if not level else ())


def test_what_the_file_lacks_is_compiled_and_said(file, monkeypatch, caplog):
    loaded = tc.load(file, function)
    torch.testing.assert_close(loaded(X.double(), W.double()), function(X.double(), W.double()))
    assert "most similar one differs in" in caplog.text and "inputs" in caplog.text


def test_functions_of_which_the_file_has_nothing_are_compiled_without_a_word(file, caplog):
    tc.load(file, function)
    torch.testing.assert_close(tc.compile(lambda x: x.sin())(X), X.sin())
    assert not caplog.records


def test_the_function_is_imported_where_none_is_given(file, monkeypatch):
    module = type(sys)("user_module")
    module.function = function
    monkeypatch.setitem(sys.modules, "user_module", module)
    monkeypatch.setattr(function, "__module__", "user_module")
    content = saved.opened(file.read_bytes())
    made = Manifest(**{**vars(content.manifest), "function": "user_module:function"})
    parts = {name: part for name, part in content.parts.items() if name != saved.MANIFEST}
    file.write_bytes(saved.packed(made, parts))
    no_compiler(monkeypatch)
    torch.testing.assert_close(trains(tc.load(file)), trains(function))
    for name in ("user_module:missing", "no_module:f", "", "user_module:torch.Tensor"):
        made = Manifest(**{**vars(content.manifest), "function": name})
        file.write_bytes(saved.packed(made, parts))
        with pytest.raises(SavedFileError, match=r"pass the live function"):
            tc.load(file)


def test_what_was_loaded_can_be_saved_again(file, tmp_path, monkeypatch):
    trains(tc.load(file, function))
    again = tmp_path / "again.tc"
    tc.save(again, function)
    forget(tmp_path)
    no_compiler(monkeypatch)
    torch.testing.assert_close(trains(tc.load(again, function)), trains(function))


def test_torchs_names(tmp_path, monkeypatch):
    assert tc.save_cache_artifacts() is None
    compiled = tc.compile(function)
    trains(compiled)
    content, info = tc.save_cache_artifacts()
    forget(tmp_path)
    no_compiler(monkeypatch)
    assert tc.load_cache_artifacts(content).graphs == info.graphs
    torch.testing.assert_close(trains(tc.compile(function)), trains(function))
    with pytest.raises(SavedFileError, match="damaged"):
        tc.load_cache_artifacts(content[:50] + b"?" + content[51:])


def test_kernels_of_graphs_that_are_not_saved_stay_out(tmp_path):
    with tc.config.patch(fx_graph_cache=False):
        tc.compile(lambda x: x.sin() * 3)(torch.randn(5))
    trains(tc.compile(function))
    found = tc.save(tmp_path / "x.tc", function)
    sources, graphs = carried.noted()
    of_graphs = [source for source in sources if source.of_graph]
    assert len(of_graphs) == len(graphs) + 1 and len(found.graphs) == len(graphs)
    with zipfile.ZipFile(tmp_path / "x.tc") as archive:
        saved = [archive.read(n).decode() for n in archive.namelist() if n.endswith(".c")]
    assert sum(source.text in saved for source in of_graphs) == len(graphs)


def test_nothing_to_save(tmp_path):
    with pytest.raises(SavedFileError, match="call the compiled function first"):
        tc.save(tmp_path / "x.tc", tc.compile(function))
    trains(tc.compile(function))
    with pytest.raises(SavedFileError, match="cannot be written"):
        tc.save(tmp_path / "missing" / "x.tc", function)


def test_the_source_of_all_code_is_there_for_people(file):
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        manifest = json.loads(archive.read("manifest.json"))
        for library in manifest["libraries"]:
            assert b"(" in archive.read(library["source"])
        for graph in manifest["graphs"]:
            assert b"def call(args)" in archive.read(graph["wrapper"])
    assert any(name.endswith(".avx2.so") for name in names) or not carried.levels()
    assert str(Path(__file__)) in manifest["files"]


# -- what it was made for --------------------------------------------------------------------------
@pytest.mark.sample(2)
@pytest.mark.parametrize("part", ["tc", "torch", "Python", "system"])
def test_what_does_not_fit_is_named_and_compiled(file, part, caplog):
    content = saved.opened(file.read_bytes())
    needs = {**content.manifest.needs, part: "other 1.0"}
    made = Manifest(**{**vars(content.manifest), "needs": needs})
    parts = {name: body for name, body in content.parts.items() if name != saved.MANIFEST}
    file.write_bytes(saved.packed(made, parts))
    with tc.trace.capture_events() as events:
        torch.testing.assert_close(trains(tc.load(file, function)), trains(function))
    assert compiles(events) == 2
    assert "everything is compiled here" in caplog.text
    assert ("another version of tc" if part == "tc" else f"{part} other 1.0") in caplog.text


def test_a_changed_file_of_the_users_is_named(file, caplog):
    content = saved.opened(file.read_bytes())
    made = Manifest(**{**vars(content.manifest), "files": {__file__: "0" * 64, "/gone.py": "1"}})
    parts = {name: body for name, body in content.parts.items() if name != saved.MANIFEST}
    file.write_bytes(saved.packed(made, parts))
    tc.load(file, function)
    assert f"{__file__} changed since" in caplog.text and "gone" not in caplog.text


def test_code_that_does_not_load_here_is_compiled(file, caplog):
    content = saved.opened(file.read_bytes())
    parts = {
        name: b"\x7fELF no library" if name.endswith(".so") else body
        for name, body in content.parts.items() if name != saved.MANIFEST
    }  # fmt: skip
    file.write_bytes(saved.packed(content.manifest, parts))
    torch.testing.assert_close(trains(tc.load(file, function)), trains(function))
    assert "does not load here" in caplog.text


@pytest.mark.parametrize("level", ["avx1024", "AVX2"])
def test_levels_that_do_not_exist(file, level, monkeypatch):
    monkeypatch.setenv("TC_CPU_LEVEL", level)
    with pytest.raises(OptionError, match="it can be x86-64, avx2, avx512"):
        tc.load(file, function)


def test_a_level_that_this_cpu_lacks(monkeypatch):
    monkeypatch.setattr(carried, "_level_here", lambda: "x86-64")
    monkeypatch.setenv("TC_CPU_LEVEL", "avx2")
    with pytest.raises(OptionError, match="this CPU has x86-64"):
        carried.level()


# -- damage ----------------------------------------------------------------------------------------
def small() -> bytes:
    """A file of the same form, without a compile."""
    graph = SavedGraph("k" * 64, {"graph": "x"}, "f", "graphs/k.json", "", "graphs/k.py")
    library = SavedLibrary("l" * 40, "kernels/l.c", {"any": "kernels/l.any.so"})
    parts = {
        "graphs/k.json": b'{"class": "Kept"}', "graphs/k.py": b"def call(args): pass",
        "kernels/l.c": b"void f(void) {}", "kernels/l.any.so": b"\x7fELF" * 100,
    }  # fmt: skip
    made = Manifest(saved.FORMAT, "a:f", {"torch": "2"}, {"a.py": "0"}, (graph,), (library,))
    return saved.packed(made, parts)


def mutated(content: bytes, rng: random.Random) -> bytes:
    """Change bytes, cut, repeat, swap or extend a file at random."""
    body = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 4, 40])):
        at = rng.randrange(len(body))
        much = rng.choice([1, 2, 7, 300])
        match rng.randrange(5):
            case 0:
                body[at] ^= 1 << rng.randrange(8)
            case 1:
                del body[at : at + much]
            case 2:
                body[at:at] = rng.randbytes(much)
            case 3:
                body[at:at] = body[at : at + much]
            case _:
                body[at : at + much] = bytes(len(body[at : at + much]))
        if not body:
            break
    return bytes(body)


@pytest.fixture
def nothing_runs(monkeypatch):
    """Fail if anything of a file is mapped, run or taken."""
    for owner, name in ((carried, "install"), (saved, "_parts")):
        monkeypatch.setattr(owner, name, lambda *a, **k: pytest.fail("content was used"))


def test_damaged_files_are_refused_before_they_are_looked_at(tmp_path, nothing_runs):
    content, rng, path = small(), random.Random(0), tmp_path / "x.tc"
    seen = 0
    while seen < 500:
        damaged = mutated(content, rng)
        if damaged == content:
            continue
        seen += 1
        path.write_bytes(damaged)
        with pytest.raises(SavedFileError, match=HERE) as caught:
            tc.load(path, function)
        assert len(str(caught.value).splitlines()) == 1


def sealed_again(content: bytes) -> bytes:
    body = content[:-64]
    return body + hashlib.sha256(body).hexdigest().encode()


def test_malformed_files_with_a_right_digest_are_refused_in_a_sentence():
    content, rng = small(), random.Random(1)
    refused = 0
    for _ in range(500):
        body = mutated(content[: -saved.TAIL], rng) + content[-saved.TAIL :]
        try:
            found = saved.opened(sealed_again(body))
        except SavedFileError as error:
            refused += 1
            assert str(error)
        else:  # what changed is of no meaning to a zip archive, or of one part alone
            assert isinstance(found.manifest, Manifest)
    assert refused > 250


MALFORMED = {
    "format": 2, "function": None, "needs": {"torch": 1}, "files": [], "graphs": {},
    "libraries": [1],
}  # fmt: skip


@pytest.mark.parametrize("name", [*MALFORMED, "missing", "more", "part"])
def test_lists_of_contents_that_are_none(name):
    found = saved.opened(small())
    plain = json.loads(found.parts[saved.MANIFEST])
    if name == "missing":
        del plain["files"]
    elif name == "more":
        plain["command"] = "rm"
    elif name == "part":
        plain["libraries"][0]["source"] = "../../etc/passwd"
    else:
        plain[name] = MALFORMED[name]
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for part, body in {**found.parts, saved.MANIFEST: json.dumps(plain)}.items():
            archive.writestr(part, body)
        archive.comment = saved.PLAIN + b"0" * 64
    with pytest.raises(SavedFileError):
        saved.opened(sealed_again(target.getvalue()))


def test_an_archive_that_unpacks_to_too_much_is_not_unpacked(monkeypatch):
    content = small()
    monkeypatch.setattr(saved, "LARGEST", 100)
    with pytest.raises(SavedFileError, match="more than"):
        saved.opened(content)
    monkeypatch.setattr(saved, "LARGEST", 100_000)
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb", bytes(1 << 20))
        archive.comment = saved.PLAIN + b"0" * 64
    with pytest.raises(SavedFileError, match="unpacks to more"):
        saved.opened(sealed_again(target.getvalue()))


# -- who made it -----------------------------------------------------------------------------------
def test_a_key_and_a_digest_decide_what_is_loaded(file, tmp_path):
    content = file.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    tc.load(file, function, sha256=digest.upper())
    with pytest.raises(SavedFileError, match="not the one that was asked for"):
        tc.load(file, function, sha256="0" * 64)
    with pytest.raises(SavedFileError, match="saved without a key"):
        tc.load(file, function, key=b"secret")
    trains(tc.compile(function))
    tc.save(file, function, key=b"secret")
    tc.load(file, function, key=b"secret")
    with pytest.raises(SavedFileError, match="pass the same one"):
        tc.load(file, function)
    with pytest.raises(SavedFileError, match="another key"):
        tc.load(file, function, key=b"guess")
    forged = file.read_bytes()
    file.write_bytes(forged[:30] + b"?" + forged[31:])
    with pytest.raises(SavedFileError, match="damaged"):
        tc.load(file, function, key=b"secret")
    for none in (b"", "secret"):
        with pytest.raises(SavedFileError, match="at least one byte"):
            tc.load(file, function, key=none)
        with pytest.raises(SavedFileError, match="at least one byte"):
            tc.save(file, function, key=none)
    with pytest.raises(SavedFileError, match="cannot be read"):
        tc.load(tmp_path / "missing", function)


PROGRAM = """
import sys, torch, tc
torch.set_num_threads(1)
def f(x, w):
    return torch.tanh(x @ w).cumsum(0)
x, w = torch.ones(4, 4), torch.ones(4, 4, requires_grad=True)
run = tc.compile(f) if sys.argv[1] == "save" else tc.load(sys.argv[2], f)
y = run(x, w)
torch.testing.assert_close(y, f(x, w))
y.sum().backward()
if sys.argv[1] == "save":
    tc.save(sys.argv[2], run)
"""


@pytest.mark.slow
def test_another_process_without_a_compiler_on_its_path(tmp_path):
    for what in ("save", "load"):
        (tmp_path / what).mkdir()
        (tmp_path / what / "program.py").write_text(PROGRAM)
        variables = {"TC_CACHE_DIR": str(tmp_path / what / "cache")}
        if what == "load":
            variables["PATH"] = str(tmp_path / "nothing")
        done = python(
            str(tmp_path / what / "program.py"), what, str(tmp_path / "x.tc"), variables=variables
        )
        assert (done.returncode, done.stderr) == (0, "")
    assert not list((tmp_path / "load" / "cache").glob("lib/*/*"))
