"""Under torch's profilers each step of a compiled graph is an event: kernel, user's line, compile.

Read back from the exported chrome trace, as its users read it.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import profile

import tc
from tc.compiler.core.wrapper_inlining import wrapper_body
from tc.compiler.runtime.annotated import MOST_LINES, PROFILER, short_places, watched

HERE = Path(__file__).name


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    tc.reset()
    yield
    tc.reset()


@pytest.fixture
def events_of(tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Run a function under the profiler; returns the events of its exported trace in order."""

    def run(function: Callable[[], Any], **settings: Any) -> list[dict[str, Any]]:
        with profile(**settings) as profiled:
            function()
        profiled.export_chrome_trace(str(tmp_path / "trace.json"))
        events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        return [event for event in events if event.get("cat") == "cpu_op"]

    return run


def chain(x: torch.Tensor) -> torch.Tensor:
    s = torch.linalg.inv(x)
    return torch.relu(s + 1).softmax(-1)


FIRST = chain.__code__.co_firstlineno


def inside(one: dict[str, Any], other: dict[str, Any]) -> bool:
    ends = other["ts"] + other["dur"]
    return bool(other["ts"] <= one["ts"] and one["ts"] + one["dur"] <= ends)


def test_kernels_and_calls_have_name_line_and_compile(events_of: Any) -> None:
    compiled, x = tc.compile(chain), torch.rand(40, 40) + torch.eye(40)
    want = compiled(x)
    got = []
    events = {e["name"]: e for e in events_of(lambda: got.append(compiled(x)))}
    assert torch.equal(got[0], want)
    (call,) = [name for name in events if name.startswith("aten.linalg_inv")]
    (kernel,) = [name for name in events if name.startswith("k0_")]
    assert call.endswith(f" {HERE}:{FIRST + 1} [0/0]")
    assert kernel.endswith(f" {HERE}:{FIRST + 2} [0/0]") and "softmax" in kernel
    whole = events["tc 0/0 inference graph"]
    assert inside(whole, events["tc 0/0 chain"])
    assert inside(events[call], whole) and inside(events[kernel], whole)
    assert inside(events["aten::linalg_inv_ex"], events[call])


def test_what_is_recorded_with_shapes(events_of: Any) -> None:
    compiled, x = tc.compile(chain), torch.rand(40, 40) + torch.eye(40)
    compiled(x)
    events = events_of(lambda: compiled(x), record_shapes=True)
    (kernel,) = [e["args"] for e in events if e["name"].startswith("k0_")]
    assert kernel["user_lines"] == f"{__file__}:{FIRST + 2}"
    assert kernel["compile_id"] == "0/0"
    assert kernel["tc_step"].startswith("k0_")
    assert kernel["Input Dims"][0] == [40, 40]


def test_training_has_events_in_both_directions(events_of: Any) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU())
    x = torch.randn(4, 8)
    compiled = tc.compile(model)

    def step() -> list[torch.Tensor]:
        model.zero_grad()
        compiled(x).sum().backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    want = step()
    got: list[Any] = []
    events = events_of(lambda: got.extend(step()))
    assert all(torch.equal(one, other) for one, other in zip(got, want, strict=True))
    for kind in ("forward", "backward"):
        (whole,) = [e for e in events if e["name"] == f"tc 0/0 {kind} graph"]
        steps = [e for e in events if e["name"].endswith("[0/0]") and inside(e, whole)]
        assert steps and all(".py:" in e["name"] for e in steps), kind


def test_what_makes_the_events_is_hardly_seen_in_recorded_stacks(tmp_path: Path) -> None:
    """The first step under a profiler makes a copy of the wrapper: no work of the user's."""
    compiled, x = tc.compile(chain), torch.rand(40, 40) + torch.eye(40)
    compiled(x)
    with profile(with_stack=True) as profiled:
        compiled(x)
    profiled.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert any(e["name"].startswith("k0_") for e in events)
    assert sum(e.get("cat") == "python_function" for e in events) < 600


def test_programs_under_torch_compile_have_them_too(events_of: Any) -> None:
    compiled, x = torch.compile(chain, backend="tc"), torch.rand(40, 40) + torch.eye(40)
    compiled(x)
    names = [e["name"] for e in events_of(lambda: compiled(x))]
    (region,) = [n for n in names if n.startswith("Torch-Compiled Region")]
    compile_id = region.split()[-1]
    assert any(n.startswith("k0_") and n.endswith(f"[{compile_id}]") for n in names)


def test_a_graph_found_on_disk_has_them(
    events_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TC_CACHE_DIR", str(tmp_path / "cache"))
    x = torch.rand(40, 40) + torch.eye(40)
    tc.compile(chain)(x)
    tc.reset()
    compiled = tc.compile(chain)
    compiled(x)
    names = [e["name"] for e in events_of(lambda: compiled(x))]
    assert any(n.startswith("k0_") and n.endswith(f"{HERE}:{FIRST + 2} [0/0]") for n in names)


def test_a_compile_under_the_profiler(events_of: Any) -> None:
    compiled, x = tc.compile(chain), torch.rand(40, 40) + torch.eye(40)
    names = [e["name"] for e in events_of(lambda: compiled(x))]
    assert any(n.startswith("k0_") for n in names)
    assert torch.allclose(compiled(x), chain(x))


def test_all_stops_with_the_profiler(events_of: Any) -> None:
    compiled, x = tc.compile(chain), torch.rand(40, 40) + torch.eye(40)
    compiled(x)
    events_of(lambda: compiled(x))
    with torch.autograd.profiler.record_function("unseen"):
        assert torch.allclose(compiled(x), chain(x))
    again = events_of(lambda: None)
    assert not any(e["name"].startswith("k0_") for e in again)


def test_errors_of_a_step_pass_through(events_of: Any) -> None:
    @tc.compile
    def pick(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x[i] + 1

    x = torch.randn(5)
    pick(x, torch.tensor([1, 2]))

    def fail() -> None:
        with pytest.raises(IndexError):
            pick(x, torch.tensor([1, 7]))

    names = [e["name"] for e in events_of(fail)]
    assert any(n.startswith("k0_") for n in names)


def test_lines_of_a_wrapper_stay_where_they_are() -> None:
    source = "import math\n\n\ndef call(args):\n    x, = args\n    return (x,)\n"
    before, after = source.splitlines(), watched(source).splitlines()
    assert len(before) == len(after) and before[4:] == after[4:]
    assert PROFILER in after[3]
    ast.parse(watched(source))


def test_short_wrappers_are_still_taken_apart() -> None:
    found = []

    def backend(gm: Any, examples: Any) -> Any:
        found.append(tc.compiler.pipeline.inductor(gm, examples))
        return found[-1]

    x = torch.randn(3)
    tc.compile(lambda x: x + 1, backend=backend)(x)
    assert wrapper_body(found[0]) is None  # the lines are in it, not one call away
    assert PROFILER in found[0].__code__.co_names


def test_names_give_a_few_lines() -> None:
    assert short_places(["/a/b.py:3", "/a/b.py:5", "/c/d.py:1"]) == "b.py:3,5 d.py:1"
    assert short_places([f"/b.py:{i}" for i in range(9)]).endswith(f"{MOST_LINES - 1},…")
    assert short_places([]) == ""
