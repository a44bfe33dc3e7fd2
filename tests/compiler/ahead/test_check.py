"""Lines that ask something of sizes are found, no others are claimed, and wrong code is noticed."""

from __future__ import annotations

import inspect
import re

import pytest
import torch
from shape_programs import LINES, PROGRAMS, branch

import tc
from tc.compiler import frames
from tc.compiler.capture import hook

#: the others are slow
FAST = ("branch", "parity", "same_length", "unrolled", "softmax", "inside_helper")


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    monkeypatch.setenv("TC_CACHE_DIR", str(tmp_path))
    tc.reset()


def marked(function):
    """The lines of a function that are marked, and their kinds."""
    home = type(function) if isinstance(function, torch.nn.Module) else function
    lines, first = inspect.getsourcelines(home)
    found = ((first + n, re.search(r"# asks: (\w+)", line)) for n, line in enumerate(lines))
    return {line: mark[1] for line, mark in found if mark}


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "name",
    [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in PROGRAMS],
)
def test_lines_are_found_and_no_others(name):
    function, inputs = PROGRAMS[name]
    found = tc.check_shapes(function, inputs, runs=2)
    expected = marked(LINES.get(name, function))
    assert {cause.line: cause.kind for cause in found.causes} == expected
    assert not found.wrong and not found.unexplained and not found.failed
    assert all(any(fix.works for fix in cause.fixes) for cause in found.causes)
    assert found.ok is (not expected)


def test_fixes_are_code_and_the_result_shows_itself():
    found = tc.check_shapes(branch, "x=2..64,16 w=16,4", runs=1)
    (cause,) = found.causes
    assert cause.asks == "x.shape[0] > 10" and cause.source.startswith("if x.shape[0] > 10")
    assert cause.fixes[0].code == "tc.mark_dynamic(x, 0, min=11, max=64)"
    assert [str(code) for code in found.codes] == ["x.shape[0]=11..64", "x.shape[0]=2..10"]
    assert "(verified)" in str(found) and "mark_dynamic" in found._repr_html_()
    assert found.runs[1] >= 4  # both ends of both codes, with gradients


def test_no_code_and_no_memory_of_it_stays():
    tc.check_shapes(branch, "x=2..12,16 w=16,4", runs=1)
    assert not hook.cache_entries(branch.__code__)
    run, before = tc.compile(branch), tc.counters["frames"]["total"]
    run(torch.ones(12, 16), torch.ones(16, 4))
    with tc.config.patch(error_on_recompile=True):
        run(torch.ones(12, 16), torch.ones(16, 4))
    assert tc.counters["frames"]["total"] == before + 1


def test_wrong_code_is_noticed(monkeypatch):
    """Planted: compiled code is off for one size of the range, in value or gradient."""
    install = frames.untraced

    def planted(compiled):
        def run(*args):
            found = install(compiled)(*args)
            late = any(torch.is_tensor(one) and one.shape[:1] == (9,) for one in args)
            return tuple(one * 1.01 for one in found) if late else found

        return install(run)

    monkeypatch.setattr(frames, "untraced", planted)
    found = tc.check_shapes(lambda x: x.sin().cumsum(0), "x=2..9,3", runs=1)
    assert [text.partition(":")[0] for text in found.wrong] == ["x.shape[0]=9"]
    assert not found.ok and "wrong" in str(found)


def test_sizes_at_which_the_function_raises_are_distinguished_from_failures():
    def function(x):
        return x.view(-1, 4).sum(1)

    found = tc.check_shapes(function, "x=4..12", runs=1)
    assert not found.wrong and not found.failed
    assert "invalid for input of size" in found.raised[0]
    served = {str(code) for code in found.codes}
    assert served == {"x.shape[0]=8|12", "x.shape[0]=4"}  # one row has code of its own


def test_state_is_put_back():
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    before = {name: one.clone() for name, one in module.state_dict().items()}
    state = torch.get_rng_state()
    found = tc.check_shapes(module, "input=2..8,3", runs=1)
    assert found.ok, found
    assert all(torch.equal(one, before[name]) for name, one in module.state_dict().items())
    assert all(one.grad is None for one in module.parameters())
    assert torch.equal(torch.get_rng_state(), state)


def test_ranges_are_required():
    with pytest.raises(tc.exc.OptionError, match="holds none"):
        tc.check_shapes(branch, "x=4,16 w=16,4")
    with pytest.raises(tc.exc.OptionError, match="several"):
        tc.check_shapes(branch, "x=2..4|6..8,16 w=16,4")


REFUSING = {
    "view": (lambda x: x.view(4, -1) + 1, "x=1..64"),
    "two sizes": (lambda x, y: x + y, "x=2..8 y=2..8"),
    "named sizes": (lambda x: x[:, :4] + x, "x=2..3,1..24"),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", REFUSING)
def test_sizes_at_which_eager_raises_are_named_as_such(name):
    function, inputs = REFUSING[name]
    found = tc.check_shapes(function, inputs, runs=2)
    assert not found.remains and not found.wrong and found.raised, str(found)
    served = {tuple(sizes.values()) for code in found.codes for sizes in code.sizes}
    for shapes in served:  # what has code runs
        function(*made(name, shapes))
    refused = {tuple(map(int, re.findall(r"=(\d+)", one)))
               for text in found.raised for one in text.partition(": ")[0].split("; ")}  # fmt: skip
    assert refused and not refused & served
    for shapes in refused:
        with pytest.raises(RuntimeError):
            function(*made(name, shapes))


def made(name, sizes):
    return map(torch.ones, sizes) if name == "two sizes" else (torch.ones(*sizes),)
