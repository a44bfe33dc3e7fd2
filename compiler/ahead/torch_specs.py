"""Shape specs of torch (``torch.fx.experimental.dynamic_spec``, since 2.13) as specs of tc."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tc.compiler.ahead.specs import Choice, Derived, Range, Size, Spec, TensorInput, like
from tc.compiler.errors import OptionError


def from_torch(shapes_spec: Any, inputs: Any, names: Sequence[str]) -> Spec:
    """Return the spec that torch's says, whose static dimensions are those of example inputs.

    Args:
        shapes_spec: a ``ShapesSpec``, a ``ParamsSpec``, or a dict: parameter -> its spec.
        inputs: examples, by position as a tuple or by name as a dict; None: no dimension needs one.
        names: the parameters of the function, for inputs by position.

    Raises:
        OptionError: a part of it cannot be followed.
    """
    try:
        from torch.fx.experimental.dynamic_spec import ParamsSpec, ShapesSpec
    except ImportError:
        raise OptionError(f"shapes_spec needs torch 2.13, this is {torch.__version__}") from None
    try:
        whole = shapes_spec if isinstance(shapes_spec, ShapesSpec) else ShapesSpec(shapes_spec)
    except (TypeError, ValueError) as error:
        raise OptionError(f"shapes_spec cannot be read: {error}") from None
    params = whole._params if whole._params is not None else ParamsSpec()
    given = inputs if isinstance(inputs, dict) else _by_name(inputs, names)
    translated = _Translated()
    found: dict[str, Any] = dict(given)
    named = dict(params._named_args) | dict(params._varkw or {})
    for name, spec in named.items():
        found[name] = translated.value(spec, given.get(name), name)
    args: list[Any] = []
    if params._varargs is not None:
        positional = list(inputs)[len(names) :] if isinstance(inputs, tuple) else []
        positional += [None] * (len(params._varargs) - len(positional))
        for number, (spec, example) in enumerate(zip(params._varargs, positional, strict=False)):
            args.append(translated.value(spec, example, f"*args[{number}]"))
        args = [found.pop(name) for name in names if name in found] + args
    conditions = tuple(translated.formula(one.node.expr) for one in whole._assumptions)
    return Spec(tuple(args), found, translated.variables, conditions)


def _by_name(inputs: Any, names: Sequence[str]) -> dict[str, Any]:
    given = () if inputs is None else inputs if isinstance(inputs, tuple) else (inputs,)
    return dict(zip(names, given, strict=False))


class _Translated:
    """Variables found so far."""

    def __init__(self) -> None:
        self.variables: dict[str, tuple[Choice, ...]] = {}
        self._names: dict[Any, str] = {}

    def value(self, spec: Any, example: Any, place: str) -> Any:
        """Return the input for one spec."""
        from torch.fx.experimental.dynamic_spec import DictSpec, SeqSpec, TensorSpec

        if isinstance(spec, TensorSpec):
            return self._tensor(spec, example, place)
        if isinstance(spec, DictSpec):
            held = dict(example or {})
            made = {k: self.value(v, held.get(k), f"{place}[{k!r}]") for k, v in spec.items()}
            return held | made
        if isinstance(spec, SeqSpec):
            values = list(example or [])
            values += [None] * (len(spec) - len(values))
            for number, one in enumerate(spec._entries):
                values[number] = self.value(one, values[number], f"{place}[{number}]")
            return tuple(values) if isinstance(example, tuple) else values
        if spec is None:
            if example is None:
                raise OptionError(f"shapes_spec leaves {place} open: give an example of it")
            return example
        if isinstance(spec, int) and not isinstance(spec, bool):
            return spec
        raise OptionError(
            f"{place}: tc precompiles for tensors, lists and dicts of them, and plain values; "
            f"{type(spec).__name__} is none of these (a number is given as its value)"
        )

    def _tensor(self, spec: Any, example: Any, place: str) -> TensorInput:
        if example is not None and (
            not isinstance(example, torch.Tensor) or example.dim() != len(spec)
        ):
            raise OptionError(f"{place}: the example is no tensor of {len(spec)} dimensions")
        dims: list[Size] = []
        for number, dim in enumerate(spec):
            if dim is None:
                if example is None:
                    raise OptionError(
                        f"shapes_spec leaves dimension {number} of {place} open: write its size, "
                        "or give an example input"
                    )
                dim = example.shape[number]
            dims.append(int(dim) if type(dim) is int else self.size(dim))
        if example is None:
            return TensorInput(tuple(dims), torch.get_default_dtype())
        return like(example, dims)

    def size(self, dim: Any) -> Size:
        """Return a symbolic size: the name of a variable, or what is computed of some."""
        from torch.fx.experimental.dynamic_spec import IntVar

        if isinstance(dim, IntVar):
            return self._variable(dim)
        expression = dim.node.expr
        needs = {str(symbol): symbol for symbol in expression.free_symbols}
        names = {text: self._variable(symbol) for text, symbol in needs.items()}
        text = str(expression)
        for shown, name in names.items():
            text = text.replace(shown, name)
        return Derived(text, frozenset(names.values()), self.formula(expression))

    def formula(self, expression: Any) -> _Formula:
        """Return an expression over variables as a function of their sizes."""
        symbols = sorted(expression.free_symbols, key=str)
        return _Formula(expression, tuple((self._variable(one), one) for one in symbols))

    def _variable(self, variable: Any) -> str:
        """Return the name of a variable; of two with one name the second gets its number."""
        symbol = getattr(variable, "sympy_sym", variable)
        if symbol not in self._names:
            short = str(symbol).partition("#")[0]
            self._names[symbol] = str(symbol) if short in self.variables else short
            low, high = getattr(variable, "min", None), getattr(variable, "max", None)
            if symbol is variable:
                low, high = _bounds(symbol)
            self.variables[self._names[symbol]] = (Range(max(0, low or 0), high),)
        return self._names[symbol]


def _bounds(symbol: Any) -> tuple[int, int | None]:
    """Return the range of a variable that is only known by its symbol."""
    from torch.fx.experimental import dynamic_spec

    found = dynamic_spec._get_spec_shape_env().var_to_range[symbol]
    upper = int(found.upper) if found.upper.is_Integer else None
    return (int(found.lower) if found.lower.is_Integer else 0), upper


@dataclass(frozen=True)
class _Formula:
    """An expression of torch over variables: their sizes in, its value out."""

    expression: Any
    symbols: tuple[tuple[str, Any], ...]

    def __call__(self, sizes: Mapping[str, int]) -> int:
        value = self.expression.subs({symbol: sizes[name] for name, symbol in self.symbols})
        return int(bool(value)) if value.is_Boolean else int(value)
