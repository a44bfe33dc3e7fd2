"""Sizes as the user specifies them for a compiled function: ``shapes_spec``.

In: a ``ShapesSpec`` of torch (``torch.fx.experimental.dynamic_spec``, since 2.13). Out: which
dimensions of an input are dynamic, and within which bounds; all others are constants, and nothing
becomes dynamic by itself but what a frame computed before a graph break. Variables that occur
twice, sizes computed of others, and assumptions are conditions: each is decided, and thereby
guarded, once all its variables are known.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch

from tc.compiler.capture.dynamism import Mark
from tc.compiler.core.sources import AttrSource, ItemSource, LocalSource, Source
from tc.compiler.core.symbolic import SYMBOLIC, hint
from tc.compiler.errors import ConstraintViolationError, OptionError

#: what torch appends to the name of a variable, of which there may be two of one name
_NUMBER = re.compile(r"#\d+")
ARGUMENTS, KEYWORDS = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD


class Specification:
    """What a call of `tc.compile` says of the inputs of its function, by parameter."""

    def __init__(self, shapes_spec: Any, target: Any) -> None:
        """Read a spec.

        Args:
            shapes_spec: a ``ShapesSpec``, a ``ParamsSpec``, or a dict: parameter -> its spec.
            target: the function or module that is compiled.

        Raises:
            OptionError: it is none, or names a parameter that the function does not have.
        """
        try:
            from torch.fx.experimental.dynamic_spec import ParamsSpec, ShapesSpec
        except ImportError:
            raise OptionError(
                f"shapes_spec needs torch 2.13, this is {torch.__version__}"
            ) from None
        try:
            whole = shapes_spec if isinstance(shapes_spec, ShapesSpec) else ShapesSpec(shapes_spec)
        except (TypeError, ValueError) as error:
            raise OptionError(f"shapes_spec cannot be read: {error}") from None
        params = whole._params or ParamsSpec()
        self.assumptions = tuple(one.node.expr for one in whole._assumptions)
        self.by_name: dict[str, Any] = dict(params._named_args)
        function = target.forward if isinstance(target, torch.nn.Module) else target
        function = inspect.unwrap(function)
        self._code: CodeType | None = None
        if isinstance(function, FunctionType | MethodType):
            self._code = function.__code__
        self.parameters: frozenset[str] | None = None
        self._name_the_rest(function, {ARGUMENTS: params._varargs, KEYWORDS: params._varkw})

    def _name_the_rest(self, function: Any, rest: Mapping[Any, Any]) -> None:
        """Add what is said of ``*args`` and ``**kwargs`` under the names of these parameters."""
        try:
            found = inspect.signature(function).parameters
        except (TypeError, ValueError):
            return
        self.parameters = frozenset(found)
        if unknown := self.by_name.keys() - found.keys():
            raise OptionError(
                f"shapes_spec names {', '.join(sorted(unknown))}, and the parameters are "
                f"{', '.join(found) or 'none'}"
            )
        for kind, said in rest.items():
            names = [one.name for one in found.values() if one.kind is kind]
            if said is not None and not names:
                sign = "*args" if kind is ARGUMENTS else "**kwargs"
                raise OptionError(f"shapes_spec has {sign}, which the function does not take")
            self.by_name.update((name, said) for name in names if said is not None)

    def of_frame(self, code: CodeType) -> Specified | None:
        """Return what holds for one capture of a frame; None for another function's."""
        own = self._code
        if own is not None and _place(code) != _place(own):
            return None
        return Specified(self)


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_filename, code.co_firstlineno


class Specified:
    """What is specified for one capture, and the variables that it knows by now."""

    def __init__(self, specification: Specification) -> None:
        self.by_name, self._parameters = specification.by_name, specification.parameters
        self._known: dict[Any, Any] = {}
        self._waiting = [(one, str(one)) for one in specification.assumptions]

    def _said(self, source: Source) -> Any:
        """Return what is specified for an input; None for what is constant."""
        steps: list[Any] = []
        while isinstance(source, ItemSource | AttrSource):
            steps.append(source.key if isinstance(source, ItemSource) else source.attr)
            source = source.base
        said = self.by_name.get(source.local) if isinstance(source, LocalSource) else None
        for step in reversed(steps):
            said = _held(said).get(step)
        return said

    def _is_computed(self, source: Source) -> bool:
        """Whether a frame that is resumed after a break gets it from the code before the break."""
        while isinstance(source, ItemSource):
            source = source.base
        known = self._parameters
        return isinstance(source, LocalSource) and known is not None and source.local not in known

    def marks(self, source: Source, tensor: torch.Tensor) -> dict[int, Mark]:
        """Return the marks on the dimensions of an input.

        Raises:
            ConstraintViolationError: a dimension is not as specified.
        """
        said = self._said(source)
        if said is None:
            free = range(tensor.dim()) if self._is_computed(source) else ()
            return dict.fromkeys(free, Mark("maybe"))
        if len(said) != tensor.dim():
            raise _violated(source, f"has {len(said)} dimensions", tensor.dim())
        for dim, (wanted, size) in enumerate(zip(said, tensor.shape, strict=True)):
            if isinstance(wanted, int) and wanted != size:
                raise _violated(source, f"has size {wanted} in dimension {dim}", size)
        return {  # sizes 0 and 1 are compiled apart
            dim: Mark("dynamic" if tensor.shape[dim] > 1 else "maybe")
            for dim, wanted in enumerate(said)
            if isinstance(wanted, SYMBOLIC)
        }

    def number(self, source: Source, number: float) -> bool:
        """Return whether a number gets a symbol.

        Raises:
            ConstraintViolationError: it is not as specified.
        """
        said = self._said(source)
        if isinstance(said, int) and said != number:
            raise _violated(source, f"is {said}", number)
        return isinstance(said, SYMBOLIC) or (self._is_computed(source) and number not in (0, 1))

    def bind(self, source: Source, value: Any) -> None:
        """Note the sizes or the value of an input, and decide what can be decided with them.

        Raises:
            ConstraintViolationError: a condition does not hold.
        """
        said = self._said(source)
        if said is None:
            return
        sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
        for wanted, got in zip((said,) if isinstance(said, SYMBOLIC) else said, sizes, strict=True):
            if not isinstance(wanted, SYMBOLIC):
                continue
            formula = wanted.node.expr
            if formula.is_Symbol and formula not in self._known:
                self._known[formula] = got
                self._wait_for_bounds(wanted)
            else:
                size = _variable(f"size of {source.pretty}")
                self._known[size.node.expr] = got
                text = f"{formula} in {source.pretty}"
                self._waiting.append(((wanted == size).node.expr, text))
        self._decide()

    def _wait_for_bounds(self, variable: Any) -> None:
        bounds = [] if variable.min is None else [variable >= variable.min]
        bounds += [] if variable.max is None else [variable <= variable.max]
        self._waiting += [(bound.node.expr, str(bound.node.expr)) for bound in bounds]

    def _decide(self) -> None:
        ready = [row for row in self._waiting if row[0].free_symbols <= self._known.keys()]
        self._waiting = [row for row in self._waiting if row not in ready]
        for condition, text in ready:
            if not _holds(condition, self._known):
                known = {str(s): hint(self._known[s]) for s in condition.free_symbols}
                values = ", ".join(f"{name} is {value}" for name, value in sorted(known.items()))
                message = f"shapes_spec asks for {text}, but {values}."
                raise ConstraintViolationError(_NUMBER.sub("", message))


def _holds(condition: Any, known: Mapping[Any, Any]) -> bool:
    """Decide a condition; the shape environment keeps one of symbols as a guard."""
    found = condition.subs(
        {
            name: value.node.expr if isinstance(value, SYMBOLIC) else value
            for name, value in known.items()
        }
    )
    if not found.free_symbols:
        return bool(found)
    symbol = next(value for value in known.values() if isinstance(value, SYMBOLIC))
    return bool(symbol.node.shape_env.evaluate_expr(found))


def _held(said: Any) -> Mapping[Any, Any]:
    """Return what is said of the parts of an input, by index, key or attribute."""
    from torch.fx.experimental.dynamic_spec import DictSpec, ObjectSpec, SeqSpec

    if isinstance(said, SeqSpec):
        said = said._entries
    if isinstance(said, list):
        return dict(enumerate(said))
    return dict(said.items()) if isinstance(said, DictSpec | ObjectSpec | dict) else {}


def _variable(name: str) -> Any:
    from torch.fx.experimental.dynamic_spec import IntVar

    return IntVar(name)


def _violated(source: Source, wanted: str, found: object) -> ConstraintViolationError:
    return ConstraintViolationError(
        f"shapes_spec says that {source.pretty} {wanted}, but this call has {found}."
    )
