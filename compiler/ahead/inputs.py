"""Inputs as users give them: texts, live inputs, specs of torch in; a `Spec` out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tc.compiler.ahead.specs import (
    NAME,
    Choice,
    Range,
    Size,
    Spec,
    TensorInput,
    choices_of,
    like,
    parsed,
)
from tc.compiler.ahead.torch_specs import from_torch
from tc.compiler.capture.dynamism import marks_of
from tc.compiler.errors import OptionError


def spec_of(
    inputs: Any, shapes_spec: Any = None, sizes: Mapping[str, Any] | None = None,
    names: Sequence[str] | None = (),
) -> Spec:  # fmt: skip
    """Return the spec that users describe.

    Args:
        inputs: a text (see `parsed`), inputs by position as a tuple or by name as a dict, or one
            input; dimensions that `mark_dynamic` marked are ranges.
        shapes_spec: a ``ShapesSpec`` or ``ParamsSpec`` of torch, or a dict as those take it.
        sizes: name of a variable -> a text, a number, or several.
        names: the parameters that a call fills by position; None: they are not known.

    Raises:
        OptionError: it cannot be followed.
    """
    by_name = isinstance(inputs, str) or shapes_spec is not None
    known = {name: choices_of(name, value) for name, value in (sizes or {}).items()}
    if isinstance(inputs, str):
        if shapes_spec is not None:
            raise OptionError("give inputs as text or a shapes_spec, not both")
        found = parsed(inputs, known)
    elif shapes_spec is not None:
        found = from_torch(shapes_spec, inputs, names or ())
    else:
        found = live(inputs)
    read = set(NAME.findall(inputs)) if isinstance(inputs, str) else set()
    unused = set(known) - read
    if unused:
        raise OptionError(f"no dimension is called {', '.join(sorted(unused))}")
    return _positional(found, names) if by_name else found


def _positional(spec: Spec, names: Sequence[str] | None) -> Spec:
    """Return a spec by position, as most calls are: with ``*args`` this makes a difference."""
    kwargs = dict(spec.kwargs)
    args = list(spec.args)
    if not args:
        for name in tuple(kwargs) if names is None else names:
            if name not in kwargs:
                break
            args.append(kwargs.pop(name))
    known = tuple(name for name in spec.kwargs if name not in kwargs)
    return replace(spec, args=tuple(args), kwargs=kwargs, names=known)


def live(inputs: Any) -> Spec:
    """Return the spec of live inputs; dimensions that were marked as dynamic are ranges."""
    variables: dict[str, tuple[Choice, ...]] = {}
    seen: dict[int, TensorInput] = {}

    def value(path: Any, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or type(leaf) is not torch.Tensor:
            return leaf
        marks = {d: m for d, m in marks_of(leaf).items() if m.kind != "static"}
        if not marks:
            return leaf
        if id(leaf) not in seen:
            dims: list[Size] = list(leaf.shape)
            for d, mark in marks.items():
                dims[d] = f"{_place(path)}.shape[{d}]"
                low = 0 if mark.kind == "unbacked" else 2
                variables[str(dims[d])] = (Range(low if mark.low is None else mark.low, mark.high),)
            seen[id(leaf)] = like(leaf, dims)
        return seen[id(leaf)]

    args, kwargs = _by_form(inputs)
    args, kwargs = pytree.tree_map_with_path(value, (args, kwargs))
    return Spec(args, kwargs, variables)


def _by_form(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if inputs is None:
        return (), {}
    if isinstance(inputs, dict):
        return (), dict(inputs)
    return (tuple(inputs) if isinstance(inputs, tuple) else (inputs,)), {}


def _place(path: Sequence[Any]) -> str:
    """Return how an input is called: by its name, or its position."""
    part, first, *rest = path
    name = f"input {first.idx}" if getattr(part, "idx", 1) == 0 else str(first.key)
    return name + pytree.keystr(tuple(rest))
