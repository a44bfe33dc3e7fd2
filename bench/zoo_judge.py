"""One model of the zoo: trained a step and evaluated, at two sizes, against eager in float64.

A value is right if it is not further from the float64 one than a few times eager's own float32
result is. Where a model draws random numbers that depend on the type, or makes float32 tensors
itself, float64 is no judge; then float32 results are compared directly, and may differ by a few
times what eager's own move when parameters and inputs move by some roundings; so may results that
float64 finds wrong (sines of large numbers that the model makes in float32). A model whose float32
results depend on signs of what is near zero is compared in float64 as a whole, with the same
allowance.
"""

from __future__ import annotations

import copy
import random
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from typing import Any

import torch
from zoo_families import Family, NoSpecimen, Specimen

Row = dict[str, Any]
Seen = dict[str, torch.Tensor]
#: how much further from the truth than eager a compiled value may be, and how far at any rate
TIMES, ULPS = 8.0, 256.0
#: relative distance of float32 and float64 from which on float64 is taken to be no judge
UNRELATED = 1e-2
STEPS = (("train", 0), ("train", 1), ("eval", 0), ("eval", 1))


def tensors(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors in a result, with where they are."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif depth > 8:
        return
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from tensors(item, f"{path}.{key}", depth + 1)
    elif isinstance(value, list | tuple | set):
        for index, item in enumerate(value):
            yield from tensors(item, f"{path}[{index}]", depth + 1)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from tensors(getattr(value, field.name), f"{path}.{field.name}", depth + 1)
    elif is_plain_object(value):
        yield from tensors(dict(vars(value)), path, depth + 1)


def is_plain_object(value: Any) -> bool:
    """Return whether a value is an object of one of the libraries, with attributes: a cache."""
    library = type(value).__module__.partition(".")[0]
    if isinstance(value, torch.nn.Module) or not hasattr(value, "__dict__"):
        return False
    return library in ("transformers", "diffusers", "timm")


def as_double(value: Any) -> Any:
    """Return inputs with their floating tensors in float64."""
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value.clone()
    if isinstance(value, dict):
        return {key: as_double(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(as_double(item) for item in value)
    return copy.deepcopy(value)


def seed() -> None:
    """Put all generators of random numbers where each call starts."""
    torch.manual_seed(11)
    random.seed(11)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(11)


def step(
    model: torch.nn.Module, call: Callable[..., Any], inputs: dict[str, Any], mode: str
) -> dict[str, torch.Tensor]:
    """Run a step; return all that can be seen of it by name."""
    model.train(mode == "train")
    model.zero_grad(set_to_none=True)
    seed()
    with torch.set_grad_enabled(mode == "train"):
        leaves = {
            name: value.requires_grad_()
            for name, value in inputs.items()
            if mode == "train" and isinstance(value, torch.Tensor) and value.is_floating_point()
        }
        result = call(**inputs)
        found = dict(tensors(result, "result"))
        if mode == "train":
            losses = [
                (value * weights(value)).sum()
                for value in found.values()
                if value.requires_grad and value.is_floating_point()
            ]
            if losses:
                torch.stack([loss.double() for loss in losses]).sum().backward()
    seen = {name: value.detach() for name, value in found.items()}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            seen[f"grad of {name}"] = parameter.grad.detach()
    for name, value in leaves.items():
        if value.grad is not None:
            seen[f"grad of input {name}"] = value.grad.detach()
    for name, buffer in model.named_buffers():
        seen[f"buffer {name}"] = buffer.detach().clone()
    return seen


def weights(value: torch.Tensor) -> torch.Tensor:
    """Return fixed weights of a result in the loss."""
    places = torch.arange(value.numel(), dtype=value.dtype, device=value.device)
    return torch.cos(places).reshape(value.shape)


@dataclass
class Judge:
    """Compares what was seen of a step."""

    eager: dict[str, torch.Tensor]
    double: dict[str, torch.Tensor]
    moves: dict[str, float] = field(default_factory=dict)
    largest: float = 0.0

    def __post_init__(self) -> None:
        grads = [size(value) for key, value in self.eager.items() if key.startswith("grad")]
        self.largest = max(grads, default=0.0)

    def difference(self, compiled: dict[str, torch.Tensor]) -> str:
        """Describe the worst difference; empty where there is none."""
        if compiled.keys() != self.eager.keys():
            odd = sorted(compiled.keys() ^ self.eager.keys())
            return f"only one has {', '.join(odd[:4])} ({len(odd)})"
        for name, value in self.eager.items():
            got = compiled[name]
            if got.dtype != value.dtype or got.shape != value.shape:
                kinds = [f"{v.dtype} {tuple(v.shape)}" for v in (got, value)]
                return f"{name}: {kinds[0]}, not {kinds[1]}"
        ratios = {name: self.excess(name, compiled[name]) for name in self.eager}
        worst = max(ratios, key=lambda name: ratios[name], default=None)
        if worst is None or ratios[worst] <= 1:
            return ""
        count = sum(ratio > 1 for ratio in ratios.values())
        return f"{worst}: {ratios[worst]:.3g} times what is allowed ({count} of {len(ratios)})"

    def excess(self, name: str, got: torch.Tensor) -> float:
        """Return the error of a value over what is allowed."""
        eager, double = self.eager[name], self.double.get(name)
        if not eager.is_floating_point():
            if eager.is_complex():
                eager, got = torch.view_as_real(eager), torch.view_as_real(got)
            elif torch.equal(eager, got):
                return 0.0
            else:
                agreed = double is not None and torch.equal(double.to(eager.dtype), eager)
                return float("inf") if agreed else 0.5  # noise decides in eager as well
            double = None
        if not eager.numel():
            return 0.0
        scale = self.scale(name)
        least = ULPS * torch.finfo(eager.dtype).eps * scale
        own = float("inf")
        if double is not None and double.shape == eager.shape:
            own = distance(eager, double)
        if own <= UNRELATED * scale:
            return distance(got, double) / (TIMES * own + least)
        allowed = 1e-4 * scale + least + TIMES * self.moves.get(name, 0.0)
        return distance(got, eager) / allowed

    def scale(self, name: str) -> float:
        """Return how large a value is; small gradients count as part of large ones."""
        own = size(self.eager[name])
        if name.startswith("grad"):
            own = max(own, 1e-2 * self.largest)
        return own + 1e-30


def size(value: torch.Tensor) -> float:
    """Return the largest finite magnitude."""
    if not value.numel() or value.is_complex():
        return 1.0
    return float(value.nan_to_num(0, 0, 0).abs().max())


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the largest difference; infinite where only one is finite."""
    one, other = one.double(), other.double()
    if not torch.equal(torch.isfinite(one), torch.isfinite(other)):
        return float("inf")
    apart = (one - other).nan_to_num(0, 0, 0).abs()
    return float(apart.max()) if apart.numel() else 0.0


# -- a model under a compiler -------------------------------------------------------------------
def run(compiler: str, family: Family, request: Row) -> Row:
    """Build a model, run it under a compiler, and compare."""
    try:
        specimen = family.build(request["name"], request.get("recipe"))
        specimen = specimen.on(request.get("device", "cpu"))
    except NoSpecimen as error:
        return {"kind": "no specimen", "detail": str(error)[-600:]}
    start, counts = COMPILERS[compiler]
    eager_time, own_time, in_double = 0.0, 0.0, False
    model = copy.deepcopy(specimen.model)
    witness = Witness(specimen) if compiler == "tc" else None
    subject = copy.deepcopy(specimen.model)
    compiled = start(subject, request["backend"])
    found: Row = {"kind": "equal", "recipe": specimen.recipe}
    for mode, index in STEPS[: request.get("steps")]:
        began = time.perf_counter()
        try:
            eager = step(model, model, specimen.inputs(index), mode)
        except Exception as error:
            return {**found, "kind": "no specimen", "detail": f"{mode} {index} in eager: {error!r}"}
        eager_time += (spent := time.perf_counter() - began)
        began = time.perf_counter()
        try:
            seen = step(subject, compiled, specimen.inputs(index), mode)
        except Exception as error:
            found |= {"kind": "crash", **failure(error, f"{mode} {index}: ")}
            break
        own_time += time.perf_counter() - began - spent
        if witness is not None and (text := witness.judge(mode, index, eager).difference(seen)):
            in_float64 = witness.double is not None  # else the neighbours have judged already
            if in_float64 and not witness.by_neighbours(mode, index, eager).difference(seen):
                # Roundings of parameters and inputs move eager as far: sines of large numbers.
                found["detail"] = f"{mode} {index}: as near as eager's neighbours"
                continue
            in_double = in_double or equal_in_double(specimen, start, request)
            if in_double:
                # A sign of something near zero decides: float32 has no truth to compare with.
                found["detail"] = f"{mode} {index}: equal in float64 only"
                continue
            found |= {"kind": "differs", "detail": f"{mode} {index}: {text}"}
            break
    return {**found, **counts(), "seconds": round(own_time, 2)}


def equal_in_double(specimen: Specimen, start: Callable[..., Any], request: Row) -> bool:
    """Return whether all steps agree where model and inputs are float64, up to its rounding."""
    double = Specimen(
        copy.deepcopy(specimen.model).double(),
        lambda size: as_double(specimen.inputs(size)),
        specimen.recipe,
    )
    model, subject = (copy.deepcopy(double.model) for _ in range(2))
    compiled, neighbours = start(subject, request["backend"]), Neighbours(double)
    for mode, index in STEPS[: request.get("steps")]:
        try:
            wanted = step(model, model, double.inputs(index), mode)
        except Exception:
            return False  # the model itself makes float32 tensors
        seen = step(subject, compiled, double.inputs(index), mode)
        moves = neighbours.moves(mode, index, wanted)
        judge = Judge(wanted, {})
        if seen.keys() != wanted.keys() or any(
            value.is_floating_point()
            and distance(seen[name], value) > 1e-7 * judge.scale(name) + TIMES * moves[name]
            for name, value in wanted.items()
        ):
            return False
    return True


class Witness:
    """Judges a model's steps by eager in float64; where a model cannot, by its neighbours."""

    def __init__(self, specimen: Specimen) -> None:
        self.specimen = specimen
        self.double: torch.nn.Module | None = copy.deepcopy(specimen.model).double()

    @cached_property
    def neighbours(self) -> Neighbours:
        """Those of the model, made where float64 is no judge."""
        return Neighbours(self.specimen)

    def judge(self, mode: str, index: int, eager: Seen) -> Judge:
        """Return the judge of a step, from what eager showed of it."""
        if self.double is not None:
            try:
                inputs = as_double(self.specimen.inputs(index))
                return Judge(eager, step(self.double, self.double, inputs, mode))
            except Exception:
                self.double = None
        return self.by_neighbours(mode, index, eager)

    def by_neighbours(self, mode: str, index: int, eager: Seen) -> Judge:
        """Return the judge that knows how far eager moves by some roundings."""
        return Judge(eager, {}, self.neighbours.moves(mode, index, eager))


class Neighbours:
    """A model in eager with all its numbers a few roundings off: how far do its results move?

    A compiled model is off by some roundings as well, in every operation. Where a sign decides (a
    ReLU in front of a gradient) the results of both may jump.
    """

    SEEDS, ROUNDINGS = range(1, 7), 4

    def __init__(self, specimen: Specimen) -> None:
        self.specimen = specimen
        self.model = copy.deepcopy(specimen.model)
        # One model serves all: only what steps change in it (running statistics) is kept for each.
        first = [buffer.clone() for buffer in self.model.buffers()]
        self.buffers = dict.fromkeys(self.SEEDS, first)
        self.taken: set[tuple[str, int]] = set()

    def moves(self, mode: str, index: int, eager: Seen) -> dict[str, float]:
        """Return how far each result of a step moves at most."""
        for earlier in STEPS[: STEPS.index((mode, index))]:
            if earlier not in self.taken:  # what it leaves in buffers counts
                self.moves(*earlier, {})
        self.taken.add((mode, index))
        found = dict.fromkeys(eager, 0.0)
        for seed in self.SEEDS:
            self._become(seed)
            random_numbers = torch.Generator().manual_seed(seed)
            inputs = {
                name: self._off(value, random_numbers)
                for name, value in self.specimen.inputs(index).items()
            }
            seen = step(self.model, self.model, inputs, mode)
            self.buffers[seed] = [buffer.clone() for buffer in self.model.buffers()]
            for name, value in eager.items():
                if name in seen and seen[name].shape == value.shape:
                    found[name] = max(found[name], distance(seen[name], value))
        return found

    def _become(self, seed: int) -> None:
        """Give the model the parameters and buffers of one neighbour."""
        random_numbers = torch.Generator().manual_seed(-seed)
        pairs = zip(self.model.parameters(), self.specimen.model.parameters(), strict=True)
        with torch.no_grad():
            for parameter, original in pairs:
                parameter.copy_(self._off(original, random_numbers))
            for buffer, kept in zip(self.model.buffers(), self.buffers[seed], strict=True):
                buffer.copy_(kept)

    def _off(self, value: Any, random_numbers: torch.Generator) -> Any:
        """Return a tensor with its numbers moved by units of rounding, up or down at random."""
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        off = torch.randint(0, 2, value.shape, generator=random_numbers, dtype=value.dtype)
        off.mul_(2).sub_(1).mul_(self.ROUNDINGS * torch.finfo(value.dtype).eps).add_(1)
        return off.to(value.device).mul_(value)


def failure(error: Exception, where: str) -> Row:
    """Describe an error of a compiled call."""
    frames = traceback.extract_tb(error.__traceback__)
    last = f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else ""
    name = type(error).__name__
    text = re.sub(r"\s+", " ", str(error))
    clear = "StageError" not in [kind.__name__ for kind in type(error).__mro__]
    return {"detail": f"{where}{name} {last}: {text[:700]}", "clear": clear}


#: operations in all graphs that this process has captured
CAPTURED: Counter[str] = Counter()


def _count(compiler: str, graph: torch.fx.GraphModule) -> None:
    CAPTURED[compiler] += sum(node.op.startswith("call_") for node in graph.graph.nodes)


def _tc(model: torch.nn.Module, backend: str) -> Callable[..., Any]:
    import tc

    tc.on_graph(lambda graph: _count("tc", graph))
    compiled: Callable[..., Any] = tc.compile(model, backend=backend)
    return compiled


def _tc_counts() -> Row:
    from tc.compiler import api

    stats = api.graph_stats()
    reasons = dict(api.counters["graph_break"])
    counts = {"graphs": stats["graphs"], "breaks": stats["graph_breaks"]}
    return {**counts, "captured": CAPTURED["tc"], "reasons": reasons}


def _torch(model: torch.nn.Module, backend: str) -> Callable[..., Any]:
    def eager(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        _count("torch", graph)
        return graph.forward

    compiled: Callable[..., Any] = torch.compile(model, backend=eager)
    return compiled


def torch_counters() -> Any:
    """Return what torch.compile counts."""
    return sys.modules["torch._dynamo.utils"].counters


def _torch_counts() -> Row:
    counters = torch_counters()
    reasons = {key.split("\n")[0][:200]: n for key, n in counters["graph_break"].items()}
    breaks = sum(counters["graph_break"].values())
    counts = {"graphs": counters["stats"]["unique_graphs"], "breaks": breaks}
    return {**counts, "captured": CAPTURED["torch"], "reasons": reasons}


COMPILERS = {"tc": (_tc, _tc_counts), "torch": (_torch, _torch_counts)}
