"""A warm process that runs a user's script and judges programs, each in a fork of its own.

    python -m tc.minifier.server FOLDER    (`tc.minifier.oracle.START` does it without garbage)

In: requests as JSON lines on stdin. Out: answers as JSON lines on stdout. The process has torch
and the compiler loaded and uses one thread only, so that a fork costs milliseconds; the child
takes as many threads as the user's run had. A child that hangs or dies is an answer too.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import gc
import json
import os
import random
import resource
import select
import signal
import sys
import time
import traceback
import types
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

import tc
from tc.compiler import api
from tc.compiler.sentinel.rounding import same_layout
from tc.minifier import (
    asserted,
    crash_site,
    fresh,
    graphs,
    identity,
    judge,
    runner,
    settings,
    torch_steps,
)
from tc.minifier.caches import caches_of_one_run
from tc.minifier.judge import Outcome
from tc.minifier.limits import TimeLimit

Request = dict[str, Any]
LITERAL = 16  # elements that are written as numbers
EMBEDDED = 64 << 10  # bytes that are written as base64
WARM_UP = 120  # seconds
POLL = 0.002  # seconds between looks at a child, where the system cannot wait for one
UNABLE = 70  # exit code of a child that cannot write its answer
PROGRAMS = ("script", "rerun")  # requests that run a whole program, which may end its process
THREADS = torch.get_num_threads()  # what a process has that does not ask for others


class CountingGate(api.Gate):
    """A gate that writes down what it was asked, in order: also where its process dies then.

    Args:
        path: a file for lines of JSON: the kind of a step, and the lines of the program
            (``file:line``) that it works for.
    """

    def __init__(self, refuse: dict[str, int], path: Path) -> None:
        super().__init__(dict(refuse))
        self.file = open(path, "w", buffering=1)  # noqa: SIM115 - as long as this process

    def allow(
        self,
        kind: str,
        at: str | Callable[[], str] = "",
        lines: Callable[[], Iterable[str]] = tuple,
    ) -> bool:
        """Ask the real gate."""
        row = (kind, list(dict.fromkeys(filter(None, lines()))))
        self.file.write(json.dumps(row) + "\n")
        return super().allow(kind, at, lines)


class Server:
    """Answers requests.

    Attributes:
        steps: file of the optional steps of a compiler, see `CountingGate`.
        folder: holds ``inputs.pt``, and a file for each program that was run for its values.
        recorded: tensors of the user's run by name.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.steps = folder / "steps.jsonl"
        self.recorded: dict[str, torch.Tensor] = {}
        self.actions: dict[str, Callable[[Request], dict[str, Any]]] = {
            "judge": self.judge,
            "backend": self.backend,
            "values": self.values,
            "text": self.text,
            "export": self.export,
            "stage": self.stage,
            "die": self.die,
            "rerun": self.rerun,
            "script": self.script,
            "record": self.record,
        }
        self.load("inputs.pt")

    def load(self, file: str) -> None:
        """Take in recorded tensors."""
        path = self.folder / file
        if path.exists():
            self.recorded.update(torch.load(path, mmap=True, weights_only=True, map_location="cpu"))

    def serve(self) -> None:
        """Answer until stdin ends."""
        answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # what programs print does not mix with the answers
        for line in sys.stdin:
            request: Request = json.loads(line)
            if request["do"] == "warm":
                warm(request["compiler"])
                answer: dict[str, Any] = {"kind": "ok"}
            else:
                stack = str(self.folder / "stack.json")
                self.steps.unlink(missing_ok=True)
                if request.get("eager"):  # each child would load torch's compiler to switch it off
                    torch.compiler.set_stance("default")
                answer = in_child(functools.partial(self._act, request), request, stack)
                if self.steps.exists():
                    answer["steps"] = [*map(json.loads, self.steps.read_text().splitlines())]
            for file in ("inputs.pt",) if request["do"] == "record" else answer.get("files", ()):
                self.load(file)
            answers.write(json.dumps({**answer, "id": request.get("id")}) + "\n")
            answers.flush()

    def _act(self, request: Request) -> dict[str, Any]:
        torch.set_num_threads(request.get("threads") or THREADS)
        return self.actions[request["do"]](request)

    # -- in the child --------------------------------------------------------------------------
    def namespace(self, program: str, **more: Any) -> dict[str, Any]:
        """Run a program's text; returns its names."""
        module = types.ModuleType("case")
        sys.modules["case"] = module  # compilers look functions up in their module
        names = vars(module)
        names.update(recorded=self.take, **more)
        exec(self.compiled(program), names)
        return names

    def compiled(self, program: str) -> Any:
        """Compile a program's text from a file, so that `inspect` and tracebacks find it."""
        path = self.folder / "case.py"
        path.write_text(program, encoding="utf-8")
        return compile(program, str(path), "exec")

    def take(self, key: str, shape: tuple[int, ...] = ()) -> torch.Tensor:
        """Return a recorded tensor, cropped to a shape."""
        held = self.recorded[key]
        if tuple(held.shape) != shape:
            return held[tuple(slice(0, size) for size in shape)].clone()
        return same_layout(held)

    def prepare(self, request: Request) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
        """Return a program's function, its inputs, and its names."""
        names = self.namespace(request["program"])
        return names["f"], [names[name] for name in request["arguments"]], names

    def judge(self, request: Request) -> dict[str, Any]:
        """Run a program eagerly and compiled."""
        program, inputs, names = self.prepare(request)
        with torch.set_grad_enabled(request["backward"]):
            outcome = judge.judge(
                program, lambda: eval(request["call"], names), inputs, request["backward"],
                accepts=request.get("accepts", True),
                draws_as_eager=judge.draws_as_eager(request["call"]),
            )  # fmt: skip
        return outcome.as_json()

    def stage(self, request: Request) -> dict[str, Any]:
        """Run a program compiled up to a stage, with some optional steps refused."""
        program, inputs, names = self.prepare(request)
        gate = CountingGate(request["refuse"], self.steps)
        names["replayed"] = api.replaying(request["stage"], gate)
        with torch.set_grad_enabled(request["backward"]):
            outcome = judge.judge(
                program, lambda: eval(request["call"], names), inputs, request["backward"],
                draws_as_eager=True,
            )  # fmt: skip
        return outcome.as_json()

    def die(self, request: Request) -> dict[str, Any]:
        """Run a program that dies, compiled up to a stage or whole; see `crash_site`."""
        crash_site.watch(self.folder, request["level"])
        return self.stage(request) if "stage" in request else self.judge(request)

    def backend(self, request: Request) -> dict[str, Any]:
        """Run a program compiled by torch, with some of its optional steps refused."""
        gate = CountingGate(request["refuse"], self.steps)
        torch_steps.plant(gate)
        return self.judge(request)

    def rerun(self, request: Request) -> dict[str, Any]:
        """Run a file as a program, in an empty folder."""
        os.chdir(request["folder"])
        sys.argv = [request["path"], *request.get("arguments", ())]
        if request.get("home"):
            sys.path.insert(0, request["home"])
        return run_script(request["path"]).as_json()

    def record(self, request: Request) -> dict[str, Any]:
        """Run the user's script; what goes wrong in it is recorded in files."""
        if torch.cuda.is_available():
            return {"kind": "refused"}  # a device is not to be shared by a fork
        log = os.open(self.folder / "script.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(request["cwd"])
        draw_as_a_new_process()
        limit = runner.Limit(*request["limit"]) if request.get("limit") else None
        status = runner.run_recorded(
            str(self.folder), request["script"], request["arguments"], limit, request.get("home"),
            request.get("sequence", False),
        )  # fmt: skip
        os._exit(status)

    def script(self, request: Request) -> dict[str, Any]:
        """Run a whole script, compiled or with compilers that do nothing.

        With a `way` it runs again, so that rounding explains what an assertion of it has found.
        """
        if request["eager"]:
            api.config.disable = True
            torch.compiler.set_stance("force_eager")
            os.environ |= settings.UNCOMPILED
        os.chdir(request["cwd"])
        draw_as_a_new_process()
        path = Path(request["path"])
        path.write_text(request["text"], encoding="utf-8")
        sys.argv = [str(path), *request["arguments"]]
        sys.path.insert(0, request["home"])
        if way := request.get("way"):
            explained = asserted.is_rounding(self.folder, way, lambda: run_script(str(path)))
            return {"kind": "ok", "rounding": explained}
        with asserted.kept(self.folder):
            ended = run_script(str(path)).as_json()
        return {**ended, "ways": list(asserted.WAYS) if asserted.has_failed(self.folder) else []}

    def values(self, request: Request) -> dict[str, Any]:
        """Run a program that keeps each value; store them, return what they were."""
        kept: dict[str, Any] = {}
        facts: dict[str, Any] = {}

        def keep(name: str, value: Any) -> None:
            facts[name] = graphs.fact_of(value)
            if facts[name].kind == "tensor":
                kept[name] = same_layout(value).cpu()

        names = self.namespace(request["program"], keep=keep)
        expected = (Exception,) if request.get("raises") else ()
        with torch.set_grad_enabled(request["backward"]), contextlib.suppress(*expected):
            names["f"](*(names[name] for name in request["arguments"]))
        file = f"values{len(list(self.folder.glob('values*.pt')))}.pt"
        torch.save(kept, self.folder / file)
        return {
            "kind": "ok",
            "files": [file],
            "facts": {name: vars(fact) for name, fact in facts.items()},
        }

    def text(self, request: Request) -> dict[str, Any]:
        """Return a recorded tensor as Python text."""
        value = self.take(request["key"], tuple(request["shape"]))
        option = "" if value.dtype == torch.float32 else f", dtype={value.dtype}"
        if value.numel() <= LITERAL:
            return {"kind": "ok", "text": f"torch.tensor({value.tolist()!r}{option})"}
        raw = zlib.compress(bytes(value.contiguous().view(-1).view(torch.uint8).tolist()), 9)
        if len(raw) > EMBEDDED:
            return {"kind": "large"}
        coded = base64.b64encode(raw).decode()
        unpacked = f'__import__("zlib").decompress(__import__("base64").b64decode("{coded}"))'
        made = f"torch.frombuffer(bytearray({unpacked}), dtype={value.dtype})"
        return {"kind": "ok", "text": f"{made}.reshape({tuple(value.shape)})"}

    def export(self, request: Request) -> dict[str, Any]:
        """Write recorded tensors to a file."""
        path = Path(request["path"])
        torch.save({key: self.take_whole(key) for key in request["keys"]}, f"{path}.part")
        Path(f"{path}.part").replace(path)
        return {"kind": "ok"}

    def take_whole(self, key: str) -> torch.Tensor:
        """Return a recorded tensor in a storage of its own."""
        return self.take(key, tuple(self.recorded[key].shape))


def run_script(path: str) -> Outcome:
    """Run a file as a program; returns how it ended."""
    with identity.as_process():
        error = identity.run_program(path)
        return judge.script_error(error) if error is not None else Outcome("ok")


# -- children ----------------------------------------------------------------------------------
def in_child(work: Callable[[], dict[str, Any]], request: Request, stack: str) -> dict[str, Any]:
    """Do work in a forked child with caches of its own; see `forked`."""
    with caches_of_one_run() as caches:

        def work_with_caches() -> dict[str, Any]:
            os.environ.update(caches)
            return work()

        return forked(work_with_caches, request, stack)


def draw_as_a_new_process() -> None:
    """Seed the generators that a new process seeds by chance; a fork has its parent's state."""
    random.seed()
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()


def forked(work: Callable[[], dict[str, Any]], request: Request, stack: str) -> dict[str, Any]:
    """Do work in a forked child with limits of time and memory; returns its answer.

    Args:
        stack: a file in which a child that does not end says what it is doing.
    """
    start = time.monotonic()
    for left in (stack, f"{stack}.c"):
        Path(left).unlink(missing_ok=True)
    answer = Path(stack).with_name("answer.json")
    answer.write_bytes(b"")
    pid = os.fork()
    if pid == 0:
        identity.watch(stack)
        _child(work, request, answer)
    signal.signal(signal.SIGUSR1, lambda number, frame: _kill(pid))
    limit = TimeLimit(float(request.get("seconds") or 120), start)
    late = False
    while not late and not has_ended(pid, limit.next_look):
        late = limit.has_passed(pid)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    hang = fresh.hang(doing(pid, stack)).as_json() if late else None
    if late:
        _kill(pid)
    _, status, usage = os.wait4(pid, 0)
    _kill_group(pid)
    found = {**hang, "status": None} if hang else _answer(answer.read_bytes(), status, request)
    found["cpu"] = usage.ru_utime + usage.ru_stime
    found["wall"] = time.monotonic() - start
    return found


def has_ended(pid: int, seconds: float) -> bool:
    """Wait for the end of a child, for so long at most; it is not reaped.

    A pipe would not do: programs close descriptors that they know nothing of, and what they leave
    running keeps them.
    """
    if hasattr(os, "pidfd_open"):
        with open(os.pidfd_open(pid)) as file:
            return bool(select.select([file], [], [], seconds)[0])
    deadline = time.monotonic() + seconds
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL)
    return True


def doing(pid: int, stack: str) -> dict[str, Any]:
    """Ask a child what it is doing; lines of files that the server has made mean nothing."""
    found = fresh.ask_process(pid, stack)
    if str(found.get("line")).startswith(str(Path(stack).parent)):
        found["line"] = ""
    return found


def _kill(child: int) -> None:
    """End a child with what it started; it may not have its group yet."""
    for end in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            end(child, signal.SIGKILL)


def _kill_group(child: int) -> None:
    """End what a child has started and left behind."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)


def _answer(answer: bytes, status: int, request: Request) -> dict[str, Any]:
    if answer and status == 0:
        found: dict[str, Any] = json.loads(answer)
        return found
    if request["do"] in PROGRAMS and os.WIFEXITED(status):
        return fresh.left_with(os.WEXITSTATUS(status)).as_json()
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    name = signal.Signals(number).name if number else f"exit code {os.WEXITSTATUS(status)}"
    died = identity.of_death(name).as_json()
    return {"kind": "died", "identity": died, "message": f"the process died: {name}",
            "status": os.waitstatus_to_exitcode(status)}  # fmt: skip


def _child(work: Callable[[], dict[str, Any]], request: Request, path: Path) -> None:
    try:
        path.write_text(json.dumps(_outcome(work, request)))
        os._exit(0)
    finally:  # not even a process without memory continues as the server that it is a fork of
        os._exit(UNABLE)


def _as_new_process(request: Request) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    os.setpgid(0, 0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # requests are not for programs to read
    sys.stdin = open(0)  # noqa: SIM115
    memory = int(request.get("memory") or 0)
    if memory:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        most = used + memory if hard == resource.RLIM_INFINITY else min(used + memory, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _outcome(work: Callable[[], dict[str, Any]], request: Request) -> dict[str, Any]:
    try:
        _as_new_process(request)
        return work()
    except BaseException as error:
        first = identity.message_of(error)
        return {"kind": "invalid", "identity": None,
                "message": f"{type(error).__name__}: {first[:300]}",
                "detail": {"traceback": traceback.format_exc()[-3000:]}}  # fmt: skip


def warm(compiler: str) -> None:
    """Load what every child needs; a compiler that hangs on x + 1 ends the process."""
    names: dict[str, Any] = {"__name__": "warm_up"}  # compilers leave functions of their own alone
    exec("def plus_one(x):\n    return x + 1\n", names)
    gc.disable()
    signal.alarm(WARM_UP)
    try:
        (tc.compile if compiler == "tc" else torch.compile)(names["plus_one"])(torch.ones(2))
        api.reset() if compiler == "tc" else torch.compiler.reset()
    except Exception as error:  # a compiler that fails on x + 1 is what is being looked for
        print(f"warm-up: {type(error).__name__}", file=sys.stderr)
    signal.alarm(0)
    gc.enable()
    gc.freeze()


def main() -> None:
    """Serve the folder named on the command line."""
    for number in (signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(1)
    Server(Path(sys.argv[1])).serve()


if __name__ == "__main__":
    main()
