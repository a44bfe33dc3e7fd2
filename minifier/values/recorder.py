"""Records what a program computes: of every value its line, its operation, and a summary.

    python -c BOOT recorder.py LOG HOW BY HOME SCRIPT [ARGUMENT ...]    (tc.minifier.identity.BOOT)

HOW is ``eager``, ``moved`` (eager, and the result of each operation moved by a unit in the last
place), or what the module BY does with compiled functions. Out: LOG, lines of JSON, packed with
gzip; one that was cut off can be read as far as it goes.

Only torch and numpy are needed here, so that any Python can record. A summary (`summary`) costs
three passes over a value and about 300 bytes of text; values never go to disk as a whole.
"""

from __future__ import annotations

import contextlib
import gzip
import importlib.abc
import importlib.util
import json
import linecache
import os
import platform
import runpy
import sys
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType
from typing import Any, Final

import numpy as np
import torch
from torch.autograd.graph import get_gradient_edge
from torch.overrides import TorchFunctionMode

#: what an event is about: a result, its gradient, what comes in, and a vector-Jacobian product:
#: the gradient that one call passes back to one of its arguments
VALUE, GRADIENT, INPUT, VJP = range(4)
SCHEMA: Final = 2  # of the file
LIMIT: Final = 200_000  # events of one log; what comes later is counted, no more
BLOCKS: Final = 8  # a value is summed in so many parts
SHOWN: Final = 6  # elements of a value that are kept as they are
NODES: Final = 10_000  # nodes of autograd that are looked at for one call
FLUSH: Final = 2.0  # seconds after which what was recorded is on disk
#: parts of torch in which a call belongs to the compiler or to autograd, and to no line of the user
INSIDE: Final = ("_dynamo", "_inductor", "_functorch", "autograd", "fx", "_higher_order_ops")
GETTERS: Final = ("T", "mT", "H", "mH", "real", "imag", "data")  # attributes that are operations
#: operations that leave values to chance, and one that hooks can see in place of a gradient
UNSET: Final = ("empty", "empty_like", "empty_strided", "new_empty", "resize_", "backward")
#: names that an operator has as a method, and the function of the operator
SAME: Final = {"truediv": "div", "matmul": "matmul", "rsub": "sub", "multiply": "mul",
               "subtract": "sub", "divide": "div", "negative": "neg"}  # fmt: skip


# -- summaries -----------------------------------------------------------------------------------
def summary(value: torch.Tensor) -> list[Any] | None:
    """Return type, shape, checksum, norm, projections, odd elements and first elements of a tensor.

    The projections are sums over blocks of elements with fixed random signs, in float64. For two
    tensors of a shape the squares of their differences add up to an estimate of the squared
    distance, after W. Johnson and J. Lindenstrauss (1984): exact where one element of a block
    differs, and unbiased where many do. Elements that are NaN or infinite count as zero in it.

    Returns:
        None for what has no elements to look at: fake, sparse, quantised tensors.
    """
    if value.layout is not torch.strided or value.is_quantized or value.device.type == "meta":
        return None
    try:
        plain = value.detach().resolve_conj().resolve_neg().cpu()
        if plain.is_complex():
            plain = torch.view_as_real(plain)
        flat = plain.reshape(-1).contiguous()
        check = zlib.crc32(flat.view(torch.uint8).numpy().data) if flat.numel() else 0
        wide = flat.to(torch.float64).numpy()
    except (RuntimeError, TypeError, NotImplementedError):  # tensors that only look like ones
        return None
    kind, shape = str(value.dtype).removeprefix("torch."), list(value.shape)
    finite = np.isfinite(wide)
    odd = int(wide.size - np.count_nonzero(finite))
    first = [float(number) for number in wide[:SHOWN]]
    if odd:
        wide = np.where(finite, wide, 0.0)
    if not wide.size:
        return [kind, shape, check, 0.0, [], odd, first]
    norm = float(np.sqrt(np.dot(wide, wide)))
    starts = np.unique(np.linspace(0, wide.size, BLOCKS, endpoint=False).astype(np.int64))
    sums = np.add.reduceat(wide * signs(wide.size), starts)
    return [kind, shape, check, norm, [float(one) for one in sums], odd, first]


def signs(count: int) -> Any:
    """Return so many numbers 1 and -1: the same ones in every process and version."""
    held = _SIGNS[0]
    if held.size < count:
        bits = np.frombuffer(_noise(2 * count), dtype=np.uint8) & 1
        held = _SIGNS[0] = bits.astype(np.float64) * 2 - 1
    return held[:count]


def _noise(count: int) -> bytes:
    """Return the same bytes always: a counter, mixed (splitmix64; G. Steele et al., 2014)."""
    state = np.arange(1, count // 8 + 2, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
    return bytes((state ^ (state >> np.uint64(31))).tobytes()[:count])


_SIGNS: Final = [np.zeros(0)]


# -- names ---------------------------------------------------------------------------------------
def operation(function: Any) -> str:
    """Return the name of what is called, equal for an operator, a method and a function."""
    name = str(getattr(function, "__name__", function))
    if name in ("__get__", "__set__"):
        return str(getattr(getattr(function, "__self__", None), "__name__", name))
    return plain_name(name)


def plain_name(name: str) -> str:
    """Return the function of an operator's method: ``add`` for ``__radd__``."""
    if not name.startswith("__"):
        return SAME.get(name, name)
    name = name.strip("_")
    if name[:1] == "i" and f"__{name[1:]}__" in dir(torch.Tensor) and name != "invert":
        return SAME.get(name[1:], name[1:]) + "_"
    if name[:1] == "r" and f"__{name[1:]}__" in dir(torch.Tensor) and name != "rshift":
        name = name[1:]
    return SAME.get(name, name)


class Places:
    """Numbers the lines of programs; a line is known by its text, and not by its number.

    Attributes:
        script: the program's own file, which has no name here: two versions of it compare.
    """

    def __init__(self, script: str, home: str) -> None:
        self.script = script
        self.home = home
        self.known: dict[tuple[str, int, str], int] = {}
        self.rows: list[dict[str, Any]] = []
        self._owners: dict[str, str] = {}  # by file

    def number(self, file: str, line: int, function: str) -> int:
        """Return the number of a line."""
        key = (file, line, function)
        if key not in self.known:
            self.known[key] = len(self.rows)
            lines = linecache.getlines(file)
            text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
            nth = sum(one.strip() == text for one in lines[: max(line - 1, 0)]) if text else line
            self.rows.append(
                {"file": self.label(file), "function": function, "text": text, "nth": nth,
                 "place": f"{os.path.basename(file)}:{line}"}
            )  # fmt: skip
        return self.known[key]

    def label(self, file: str) -> str:
        """Return what a file is called in every run: without the folders it happens to lie in."""
        if os.path.realpath(file) == os.path.realpath(self.script):
            return ""
        _, found, rest = file.rpartition("site-packages/")
        return rest if found else os.path.relpath(file, self.home).lstrip("./")

    def innermost(self) -> int | None:
        """Return the user's line that is running; None where something inside of torch is."""
        frame = sys._getframe(2)
        while frame is not None:
            owner = self.owner(frame.f_code)
            if owner == "user":
                return self.number(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
            if owner == "inside":
                return None
            frame = frame.f_back  # type: ignore[assignment]
        return None

    def owner(self, code: CodeType) -> str:
        """Return ``user``, ``library``, or ``inside`` for a compiler and autograd."""
        file = code.co_filename
        found = self._owners.get(file)
        if found is None:
            found = self._owners[file] = owner_of(file)
        return found


def owner_of(file: str) -> str:
    """Return whose a file is: ``user``, ``library``, or ``inside`` for a compiler and autograd."""
    file = os.path.realpath(file) if os.sep in file else file
    if file.startswith(TORCH):
        part = file[len(TORCH) :].partition(os.sep)[0]
        return "inside" if part.removesuffix(".py") in INSIDE else "library"
    if file.startswith(OWN) or "torchinductor" in file or file.startswith("<"):
        return "inside" if not file.startswith("<string") else "library"
    return "library" if file.startswith(STANDARD) and "site-packages" not in file else "user"


TORCH: Final = os.path.dirname(os.path.realpath(torch.__file__)) + os.sep
STANDARD: Final = os.path.dirname(os.path.realpath(os.__file__)) + os.sep
#: the tool's and its compiler's own files
OWN: Final = tuple(
    str(Path(__file__).resolve().parents[2] / folder) + os.sep
    for folder in ("minifier", "compiler")
)


# -- recording -----------------------------------------------------------------------------------
def tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in a nest of lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors(item)


class Log:
    """A file of events.

    Attributes:
        count: events so far.
        dropped: those that came after the limit.
    """

    def __init__(self, path: Path, facts: dict[str, Any], limit: int = LIMIT) -> None:
        self.file = gzip.open(path, "wt", compresslevel=1, encoding="utf-8")  # noqa: SIM115
        self.count = self.dropped = self.places = 0
        self.limit = limit
        self.began = self.flushed = time.monotonic()
        self._put({"schema": SCHEMA, **facts})

    def _put(self, row: Any) -> None:
        self.file.write(json.dumps(row, separators=(",", ":")) + "\n")

    def event(self, places: Places, row: Sequence[Any]) -> int:
        """Write an event; returns its number, -1 where there is no space left."""
        if self.count >= self.limit:
            self.dropped += 1
            return -1
        while self.places < len(places.rows):
            self._put(places.rows[self.places])
            self.places += 1
        self._put(row)
        self.count += 1
        now = time.monotonic()
        if now - self.flushed > FLUSH:
            self.file.flush()
            self.flushed = now
        return self.count - 1

    def note(self, text: str) -> None:
        """Write what the reader of the log has to know."""
        self._put({"note": text})

    def close(self, error: str) -> None:
        """Write the end."""
        seconds = round(time.monotonic() - self.began, 2)
        self._put({"end": self.count, "dropped": self.dropped, "seconds": seconds, "error": error})
        self.file.close()


class Recorder(TorchFunctionMode):
    """Records each call of a torch function on this thread, and the gradients of what it returns.

    Attributes:
        moved: moves each result by a unit in the last place, by random signs of this seed.
        made: id of a tensor -> the event it comes from, and the version of its memory then.
        watched: id of a leaf -> the leaf, for those whose gradient is recorded.
    """

    def __init__(self, log: Log, places: Places, moved: int | None = None) -> None:
        super().__init__()
        self.log = log
        self.places = places
        self.noise = None if moved is None else torch.Generator().manual_seed(moved)
        self.made: dict[int, tuple[Any, int, int]] = {}
        self.watched: dict[int, Any] = {}
        self.lock = threading.Lock()
        self.process = os.getpid()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        place = self.places.innermost() if os.getpid() == self.process else None
        name = operation(func)
        getter = getattr(func, "__name__", "") == "__get__"
        if place is None or (getter and name not in GETTERS):
            return func(*args, **kwargs)
        given = list(enumerate(tensors((args, kwargs))))
        target: list[torch.Tensor] = []
        if name.endswith(("_", "setitem")):
            target = list(tensors(list(args[:1]) or list(kwargs.values())[:1]))
        fresh = {id(one) for one in target if id(one) not in self.made}  # what it holds is not set

        def entering() -> list[int]:
            return [self.enter(one, place, f"{name}, argument {k}")
                    for k, one in given if id(one) not in fresh]  # fmt: skip

        enters = entering() if target else []
        edges = edges_of([one for _, one in given])
        made = func(*args, **kwargs)
        if self.noise is not None:
            made = self.nudged(made, args)
        results = list(tensors(made)) or target
        if name in UNSET or not results:
            return made
        enters = enters or entering()
        numbers = [self.result(result, place, name, part, enters)
                   for part, result in enumerate(results)]  # fmt: skip
        if not any(_shares(results[0], one) for _, one in given):  # views pass on what they get
            self.watch_products(results, edges, place, name, numbers[0])
        return made

    def enter(self, value: torch.Tensor, place: int, name: str) -> int:
        """Return the event that a tensor comes from; record one that comes from none."""
        if not value.numel():
            return -1
        known = self.made.get(id(value))
        if known is not None and known[0]() is value and known[2] == _version(value):
            number = known[1]
        else:
            number = self.event(INPUT, place, name, 0, value, ())
            self.keep(value, number)
        if value.requires_grad and value.is_leaf and torch.is_grad_enabled():
            watched = self.watched.get(id(value))
            if watched is None or watched() is not value:
                self.watched[id(value)] = weakref.ref(value)
                self.watch_gradient(value, place, name, 0, number)
        return number

    def result(self, value: torch.Tensor, place: int, name: str, part: int, enters: Any) -> int:
        """Record what a call has returned."""
        number = self.event(VALUE, place, name, part, value, enters)
        self.keep(value, number)
        if value.requires_grad and not value.is_leaf:
            self.watch_gradient(value, place, name, part, number)
        return number

    def watch_gradient(
        self, value: torch.Tensor, place: int, name: str, part: int, number: int
    ) -> None:
        """Record the gradient of a value when it is there; it belongs to the value's line."""

        def record(gradient: torch.Tensor) -> None:
            if isinstance(gradient, torch.Tensor):
                self.event(GRADIENT, place, name, part, gradient, (number,))

        if number >= 0:
            value.register_hook(record)  # type: ignore[no-untyped-call]

    def watch_products(
        self, results: Sequence[torch.Tensor], edges: dict[Any, list[int]], place: int, name: str,
        number: int,
    ) -> None:  # fmt: skip
        """Record what a call passes back to each argument; it belongs to the call's line."""
        if number < 0 or not edges:
            return
        for arguments, sources in products_of(results, edges):
            parts = [sources] if len(arguments) == 1 else [[source] for source in sources]
            if len(parts) != len(arguments):
                continue  # what belongs to which of equal arguments is not known
            for argument, terms in zip(arguments, parts, strict=True):
                then = partial(self.product, place, name, argument, number)
                total = Sum(len(terms), then)
                for node, index in terms:
                    node.register_hook(total.of(index))

    def product(
        self, place: int, name: str, argument: int, number: int, gradient: torch.Tensor
    ) -> None:
        """Record what a call has passed back to an argument."""
        self.event(VJP, place, name, argument, gradient, (number,))

    def keep(self, value: torch.Tensor, number: int) -> None:
        """Remember which event a tensor comes from, as long as it lives."""
        key = id(value)

        def forget(dead: Any) -> None:
            held = self.made.get(key)
            if held is not None and held[0] is dead:
                del self.made[key]

        self.made[key] = (weakref.ref(value, forget), number, _version(value))

    def event(
        self,
        kind: int,
        place: int,
        name: str,
        part: int,
        value: torch.Tensor,
        enters: Sequence[int],
    ) -> int:
        """Write an event; returns its number, -1 for what has no summary."""
        with self.lock, torch.no_grad():
            found = summary(value)
            if found is None:
                return -1
            return self.log.event(self.places, [kind, place, name, part, list(enters), *found])

    def unseen(self, place: int, name: str, part: int) -> None:
        """Write that there was a call whose result cannot be seen: it counts among its like."""
        with self.lock:
            self.log.event(self.places, [VALUE, place, name, part, [], "", [], 0, 0.0, [], 0, []])

    def nudged(self, made: Any, args: Any) -> Any:
        """Move what a call has computed by a unit in the last place."""
        if isinstance(made, tuple | list) and type(made) in (tuple, list):
            return type(made)(self.nudged(one, args) for one in made)
        if not isinstance(made, torch.Tensor) or not made.is_floating_point():
            return made
        if made._base is not None or (made.is_leaf and made.requires_grad) or not made.numel():
            return made
        if any(made is one or _shares(made, one) for one in tensors(args)):
            return made
        sign = torch.rand(made.shape, generator=self.noise).round() * 2 - 1
        factor = 1 + torch.finfo(made.dtype).eps * sign.to(torch.float64)
        return made * factor.to(made.device, made.dtype)


class Sum:
    """Adds what some nodes of autograd pass back, and hands the total on when all have.

    Attributes:
        count: how many there are.
    """

    def __init__(self, count: int, then: Callable[[torch.Tensor], None]) -> None:
        self.count = count
        self.then = then
        self.seen = 0
        self.total: torch.Tensor | None = None

    def of(self, index: int) -> Callable[[Sequence[Any], Any], None]:
        """Return a hook for a node that passes a term back as its result of this number."""

        def hook(passed: Sequence[Any], _: Any) -> None:
            term = passed[index] if index < len(passed) else None
            if isinstance(term, torch.Tensor):
                with torch.no_grad():
                    self.total = term if self.total is None else self.total + term
            self.seen += 1
            if self.seen == self.count:
                total, self.total, self.seen = self.total, None, 0
                if total is not None:
                    self.then(total)

        return hook


def edges_of(given: Sequence[torch.Tensor]) -> dict[Any, list[int]]:
    """Return where the gradients of arguments go: node and number there -> arguments."""
    found: dict[Any, list[int]] = {}
    if not torch.is_grad_enabled():
        return found
    for number, value in enumerate(given):
        if value.requires_grad:
            edge = get_gradient_edge(value)
            found.setdefault((edge.node, edge.output_nr), []).append(number)
    return found


def products_of(
    results: Sequence[torch.Tensor], edges: dict[Any, list[int]]
) -> Iterator[tuple[list[int], list[tuple[Any, int]]]]:
    """Yield, for the arguments of a call, the nodes that pass gradients back to them.

    A call may be several nodes of autograd; the search begins at its results and ends at its
    arguments.
    """
    found: dict[Any, list[tuple[Any, int]]] = {}
    heads = {node for node, _ in edges}
    stack = [one.grad_fn for one in results if one.grad_fn is not None]
    seen: set[Any] = set()
    while stack and len(seen) < NODES:
        node = stack.pop()
        if node in seen or node in heads:
            continue
        seen.add(node)
        for index, (after, number) in enumerate(node.next_functions):
            if (after, number) in edges:
                found.setdefault((after, number), []).append((node, index))
            elif after is not None:
                stack.append(after)
    for edge, sources in found.items():
        yield edges[edge], sources


def _version(value: torch.Tensor) -> int:
    return 0 if value.is_inference() else value._version


def _shares(one: torch.Tensor, other: torch.Tensor) -> bool:
    try:
        return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):
        return True


def facts(how: str) -> dict[str, Any]:
    """Return what distinguishes this run from others."""
    rank = os.environ.get("RANK", "")
    return {"how": how, "rank": rank, "torch": torch.__version__,
            "python": platform.python_version(), "executable": sys.executable}  # fmt: skip


class Eagerly(importlib.abc.MetaPathFinder):
    """Makes torch's compiler leave programs alone, should one load it: that takes a second."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return where the compiler lies, and how it is loaded; of other modules, nothing."""
        if name != "torch._dynamo":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.loader is not None
        load = spec.loader.exec_module

        def load_and_refuse(module: Any) -> None:
            load(module)
            module.set_stance("force_eager")

        spec.loader.exec_module = load_and_refuse  # type: ignore[method-assign]
        return spec


def main() -> None:
    """Record the script named on the command line."""
    path, how, by, home, script, *arguments = sys.argv[1:]
    log = Log(Path(path), facts(how))
    places = Places(script, home)
    recorder = Recorder(log, places, 1 if how == "moved" else None)
    sys.argv = [script, *arguments]
    sys.path[0] = home
    error = ""
    if by:
        importlib.import_module(by).install(recorder, how)
    else:
        os.environ["TC_DISABLE"] = "1"
        if "torch._dynamo" in sys.modules:
            torch.compiler.set_stance("force_eager")
        sys.meta_path.insert(0, Eagerly())
    try:
        with recorder:
            runpy.run_path(script, run_name="__main__")
    except SystemExit as stop:
        error = f"exit code {stop.code}" if stop.code not in (None, 0) else ""
    except BaseException as raised:
        error = f"{type(raised).__name__}: {first_line(raised)}"
    log.close(error)
    with contextlib.suppress(Exception):  # the script may have closed or replaced its streams
        sys.stdout.flush()
        if error:
            print(f"the script ended with {error}", file=sys.stderr)
    sys.exit(1 if error else 0)


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message; nothing, where its class cannot make one."""
    try:
        return next(iter(str(error).splitlines()), "")
    except Exception:
        return ""


if __name__ == "__main__":
    main()
