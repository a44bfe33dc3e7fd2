"""Backends by name: functions ``(gm, example_inputs) -> callable``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from torch import fx

from tc.compiler.core.once import loaded
from tc.compiler.core.settings import nearest, require_callable
from tc.compiler.core.table import Table
from tc.compiler.errors import OptionError

Backend = Callable[..., Callable[..., Any]]
DEBUG = ("debug",)
#: entry points by which packages give `torch.compile` a backend
TORCH_BACKENDS = "torch_dynamo_backends"


@dataclass(frozen=True)
class Row:
    """A backend.

    Attributes:
        tags: by which `list_backends` leaves it out.
        fixed_sizes: it is another package's, which may trace its graphs on example inputs, so that
            sizes become constants: it gets graphs of fixed sizes.
    """

    compile: Backend
    tags: tuple[str, ...] = ()
    fixed_sizes: bool = False


BACKENDS: Table[str, Row] = Table("backends")
#: names of backends of other packages -> what makes them right under tc's capture
ADAPTERS: Table[str, Callable[[Backend], Backend]] = Table("adapters of backends")
#: names that are backends of `torch.compile` alone -> what to use here
ELSEWHERE: Table[str, str] = Table("backends that are elsewhere")


def register_backend(
    compiler_fn: Backend | None = None, name: str | None = None, tags: Sequence[str] = ()
) -> Any:
    """Register a backend; usable as a plain call or as a decorator.

    Args:
        compiler_fn: takes a graph module and example inputs, returns a callable.
        name: how `tc.compile` calls it; the function's own name if omitted.
        tags: what kind of backend it is ("debug", "experimental"), for `list_backends`.

    Raises:
        ValueError: the name is taken.
    """
    if compiler_fn is None:
        return lambda function: register_backend(function, name, tags)
    require_callable("tc.register_backend", compiler_fn, "a function")
    name = name or compiler_fn.__name__
    if name in BACKENDS and _is_of_torch(compiler_fn):
        return compiler_fn  # where tc stands in for torch.compile, torch's own come here too
    BACKENDS.add(name, Row(compiler_fn, tuple(tags)))
    return compiler_fn


def _is_of_torch(compiler_fn: Backend) -> bool:
    module = getattr(compiler_fn, "__module__", None) or ""
    return module.partition(".")[0] == "torch"


def lookup_backend(backend: str | Backend) -> Backend:
    """Return a backend by name; a callable is returned as it is.

    Raises:
        OptionError: there is none of that name.
    """
    if not isinstance(backend, str):
        require_callable("the argument 'backend'", backend, "a name or a function")
        return backend
    found = BACKENDS.get(backend)
    if found is not None:
        return found.compile
    installed = installed_backends()
    if backend not in installed:
        if (registered := _of_program(backend)) is not None:
            return registered
        if (instead := ELSEWHERE.get(backend)) is not None:
            raise OptionError(f"tc.compile has no backend {backend!r}: {instead}")
        known = [*BACKENDS, *installed]
        raise OptionError(
            f"there is no backend {backend!r}{nearest(backend, known)}; "
            "tc.list_backends(None) returns all of them"
        )
    try:
        loaded: Backend = installed[backend].load()
    except Exception as error:
        raise OptionError(
            f"the backend {backend!r} of {installed[backend].value} does not load: "
            f"{type(error).__name__}: {error}"
        ) from error
    adapt = ADAPTERS.get(backend)
    row = Row(adapt(loaded) if adapt is not None else loaded, fixed_sizes=True)
    BACKENDS.add(backend, row)
    return row.compile


def has_fixed_sizes(backend: str | Backend) -> bool:
    """Return whether a backend that was looked up is to get graphs of fixed sizes."""
    row = BACKENDS.get(backend) if isinstance(backend, str) else None
    return row is not None and row.fixed_sizes


def list_backends(exclude_tags: Sequence[str] | None = ("debug", "experimental")) -> list[str]:
    """Return the names of the backends without these tags, sorted; None: of all."""
    excluded = set(exclude_tags or ())
    named = {name for name, row in BACKENDS.rows() if not excluded & set(row.tags)}
    return sorted(named | installed_backends().keys() - set(BACKENDS))


def installed_backends() -> dict[str, EntryPoint]:
    """Return the backends of other packages, under the names by which `torch.compile` knows them.

    Left out is tc itself: here it is the default backend.
    """
    found = entry_points(group=TORCH_BACKENDS)
    return {point.name: point for point in found if not point.value.startswith("tc.")}


def _of_program(name: str) -> Backend | None:
    """Return a backend that the program has registered with PyTorch, None if there is none.

    PyTorch's registry is only looked at where the program has loaded it.
    """
    registry = loaded("torch._dynamo.backends.registry")
    found = None if registry is None else registry._COMPILER_FNS.get(name)
    return None if found is None or _is_of_torch(found) else found


def eager(gm: fx.GraphModule, example_inputs: Any, **ignored: Any) -> Callable[..., Any]:
    """Run the captured graph as it is."""
    return gm.forward


def name_of(backend: str | Backend) -> str:
    """Return what to call a backend in logs."""
    if isinstance(backend, str):
        return backend
    return getattr(backend, "__name__", None) or re.sub(r"\W", "_", type(backend).__name__)


register_backend(eager, "eager", DEBUG)
