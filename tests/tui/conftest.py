"""A small trace as PyTorch writes it, always the same, and ways to drive the application on it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from textual import _wait, screen
from textual.pilot import Pilot

from tc.tui.app import TraceApp
from tc.tui.feed import Feed

#: seconds between two frames, and between two looks at whether the application is idle: as each
#: key waits for two looks, textual's own would be most of what some tests take
FRAME, LOOK = 1 / 250, 1 / 150

MODEL = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x, scale):
        self.step += 1
        return helper(x * self.step) * scale


def helper(x):
    y = x.sin()
    print("value", y.sum().item())
    return y.cos()
"""
KERNEL = """\
import torch
from torch._inductor.async_compile import AsyncCompile

# a comment
cpp_fused_sin_0 = async_compile.cpp_pybinding(['const float*', 'float*'], '''
extern "C" void kernel(const float* in_ptr0, float* out_ptr0)
{
    for (int64_t x0 = 0; x0 < 16; x0 += 1)
    {
        auto tmp0 = in_ptr0[x0];
        out_ptr0[x0] = std::sin(tmp0);
    }
}
''')

def call(args):
    arg0_1, = args
    buf0 = empty_strided_cpu((16, ), (1, ), torch.float32)
    cpp_fused_sin_0(arg0_1, buf0)
    return (buf0, )
"""
BREAK = """\
Graph break in user code at model.py:12
Graph Break Reason: Unsupported Tensor.item() call with capture_scalar_outputs=False
  Explanation: Dynamo does not support tracing `Tensor.item()` with config.capture_scalar_outputs=False.
  Developer debug context: call_method TensorVariable() item () {}

 For more details about this graph break, please visit: https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0124.html

User code traceback:
  File "model.py", line 7, in forward
    return helper(x * self.step) * scale
           ^^^^^^^^^^^^^^^^^^^^^
  File "model.py", line 12, in helper
    print("value", y.sum().item())
                   ^^^^^^^^^^^^^^
"""  # noqa: E501
GUARDS = """
TREE_GUARD_MANAGER:
+- RootGuardManager
| +- GuardManager: source=L['x'], accessed_by=FrameLocalsGuardAccessor(key='x', framelocals_idx=1)
| | +- TENSOR_MATCH: check_tensor(L['x'], Tensor, DispatchKeySet(CPU, AutogradCPU), torch.float32, device=None, requires_grad=False, size=[{size}], stride=[1])  # x
| +- GuardManager: source=L['self'], accessed_by=FrameLocalsGuardAccessor(key='self', framelocals_idx=0)
| | +- EQUALS_MATCH: L['self'].step == {step}  # self.step += 1  # model.py:6 in forward
"""  # noqa: E501


class Log:
    """Writes records in the format of TORCH_TRACE."""

    def __init__(self, rank: int | None = None) -> None:
        self.text = ""
        self.rank = rank
        self.seconds = 0.0

    def record(self, event: str, value: Any, payload: str | None = None, at: str = "") -> None:
        """Add one record of compile `at`."""
        self.seconds += 0.25
        envelope: dict[str, Any] = {event: value}
        if self.rank is not None:
            envelope["rank"] = self.rank
        if at:
            frame, _, number = at.partition("/")
            envelope |= {"frame_id": int(frame), "frame_compile_id": int(number), "attempt": 0}
        if payload is not None:
            envelope["has_payload"] = hashlib.md5(payload.encode()).hexdigest()
        minutes, seconds = divmod(self.seconds, 60)
        clock = f"09:{15 + int(minutes):02}:{seconds:09.6f}"
        self.text += f"V1120 {clock} 4711 torch/_dynamo/x.py:10] {json.dumps(envelope)}\n"
        if payload is not None:
            self.text += "".join(f"\t{row}\n" for row in payload.split("\n"))

    def artifact(self, name: str, payload: str, at: str = "", encoding: str = "string") -> None:
        """Add an artifact."""
        self.record("artifact", {"name": name, "encoding": encoding}, payload, at)

    def step(self, name: str, at: str, start: float, seconds: float) -> None:
        """Add a timed step."""
        event = {"name": name, "ph": "X", "ts": start * 1e6, "dur": seconds * 1e6, "tid": 0,
                 "args": {"compile_id": at}}  # fmt: skip
        self.record("chromium_event", {}, json.dumps(event), at)

    def compile(
        self, at: str, function: str, line: int, seconds: float, cache: str = "miss"
    ) -> None:
        """Add what every compile leaves behind."""
        self.record("dynamo_start", {"stack": [{"line": line, "name": function, "filename": 1}]},
                    None, at)  # fmt: skip
        start = self.seconds * 1000
        self.step("dynamo", at, start, seconds)
        self.step("inductor_codegen", at, start + 0.1 * seconds, 0.8 * seconds)
        self.step("compile_file", at, start + 0.3 * seconds, 0.5 * seconds)
        self.record("dynamo_output_graph", {"sizes": {}},
                    "class GraphModule(torch.nn.Module):\n    def forward(self, L_x_):\n"
                    "        sin = torch.sin(L_x_)\n        return (sin,)", at)  # fmt: skip
        key = json.dumps({"key": "fsin", "cache_state": cache})
        self.artifact(f"fx_graph_cache_{cache}", key, at, "json")
        self.record("inductor_output_code", {"filename": "/tmp/c.py"}, KERNEL, at)

    def metrics(self, at: str, function: str, line: int, **more: Any) -> None:
        """Add the metrics that end a compile."""
        value = {"co_name": function, "co_filename": "model.py", "co_firstlineno": line, **more}
        self.record("compilation_metrics", value, None, at)


def small_log(rank: int | None = None) -> str:
    """A break, two recompiles, a failed compile, a cache hit, an event nobody knows."""
    log = Log(rank)
    log.artifact("torch_version", '{"pytorch_version": "2.13.0+cpu"}', "", "json")
    log.record("str", ["model.py", 1])
    log.compile("0/0", "forward", 5, 34.9)
    log.artifact("dynamo_cpp_guards_str", GUARDS.format(size=4, step=1), "0/0")
    log.metrics("0/0", "forward", 5)
    log.artifact(
        "recompile_reasons", "0/0: self.step == 1  # self.step += 1  # model.py:6 in forward",
        "0/1", "json")  # fmt: skip
    log.compile("0/1", "forward", 5, 6.4)
    log.artifact("dynamo_cpp_guards_str", GUARDS.format(size=8, step=2), "0/1")
    log.metrics("0/1", "forward", 5)
    log.artifact(
        "recompile_reasons", '["0/1: self.step == 2  # self.step += 1  # model.py:6 in forward"]',
        "0/2", "json")  # fmt: skip
    log.compile("0/2", "forward", 5, 0.3, "hit")
    log.artifact("dynamo_cpp_guards_str", GUARDS.format(size=8, step=3), "0/2")
    log.metrics("0/2", "forward", 5)
    log.artifact("dynamo_graph_break_reason", BREAK, "1/0")
    log.compile("1/0", "helper", 10, 2.5)
    log.metrics("1/0", "helper", 10)
    log.compile("2/0", "torch_dynamo_resume_in_helper_at_12", 12, 1.2)
    log.metrics("2/0", "torch_dynamo_resume_in_helper_at_12", 12)
    log.record(
        "dynamo_start", {"stack": [{"line": 20, "name": "loss", "filename": 1}]}, None, "3/0"
    )
    log.metrics("3/0", "loss", 20, fail_type="BackendCompilerFailed",
                fail_reason="backend='mine' raised:\nRuntimeError: no such kernel",
                fail_user_frame_filename="model.py", fail_user_frame_lineno=20)  # fmt: skip
    log.record("brand_new_event", {"hello": "world"}, None, "0/0")
    return log.text


@pytest.fixture(scope="module", autouse=True)
def _fast(no_passes: None) -> Iterator[None]:
    """Draw and look often; an application makes enough objects for many passes of the collector."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(screen, "UPDATE_PERIOD", FRAME)
        patch.setattr(_wait, "SLEEP_GRANULARITY", LOOK)
        patch.setattr(_wait, "SLEEP_IDLE", LOOK / 20)
        yield


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one log and the model it is of; the current folder is the one around it."""
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "TC_EDITOR", "VISUAL", "EDITOR", "LC_ALL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLORTERM", "truecolor")
    (tmp_path / "model.py").write_text(MODEL)
    folder = tmp_path / "tc_trace"
    folder.mkdir()
    (folder / "dedicated_log_torch_trace_a.log").write_text(small_log())
    return folder


def make_app(path: str = "tc_trace", **options: Any) -> TraceApp:
    """The application over a folder, with a clock that stands still."""
    app = TraceApp(Feed(path, clock=lambda: 0.0), **options)
    app.ascii_only = False  # whatever the locale of the tests
    return app


async def settle(pilot: Pilot[int]) -> None:
    """Wait until everything that was begun is done."""
    background = cast(TraceApp, pilot.app).background
    await pilot.pause()
    while background.busy:
        await pilot.pause(0.01)
    await pilot.pause()


async def until(pilot: Pilot[int], holds: Callable[[], bool], seconds: float = 30) -> None:
    """Wait until something holds, as something in another thread."""
    async with asyncio.timeout(seconds):
        while not holds():
            await pilot.pause(0.02)


def screen_of(app: TraceApp) -> str:
    """What is on the screen, as text."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips)


@asynccontextmanager
async def opened(app: TraceApp, size: tuple[int, int]) -> AsyncIterator[Pilot[int]]:
    """Run the application without a terminal until the trace is read."""
    async with app.run_test(size=size) as pilot:
        if not app.following:
            await settle(pilot)
        yield pilot


Script = Callable[[Pilot[int], Callable[[], str]], Awaitable[None]]
Drive = Callable[..., None]


@pytest.fixture
def drive(trace: Path) -> Drive:
    """Run an async script against the application: `drive(script, size=…, **options)`."""

    def run(
        script: Script, *, size: tuple[int, int] = (120, 40), path: str = "tc_trace", **options: Any
    ) -> None:
        async def main() -> None:
            app = make_app(path, **options)
            async with opened(app, size) as pilot:
                await script(pilot, lambda: screen_of(app))

        asyncio.run(main())

    return run


class Tools:
    """What test modules need by name; they cannot import a conftest."""

    log = Log
    small_log = staticmethod(small_log)
    make_app = staticmethod(make_app)
    settle = staticmethod(settle)
    until = staticmethod(until)
    screen_of = staticmethod(screen_of)
    kernel = KERNEL


@pytest.fixture
def tools() -> type[Tools]:
    return Tools
