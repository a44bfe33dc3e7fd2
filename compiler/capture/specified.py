"""Sizes as the user specifies them for a compiled function: ``shapes_spec``.

In: a ``ShapesSpec`` of torch (``torch.fx.experimental.dynamic_spec``, since 2.13). Out: which
dimensions of an input are dynamic, and within which bounds; all others are constants, and nothing
becomes dynamic by itself but what a frame computed before a graph break. Variables that occur
twice, sizes computed of others, and assumptions are conditions: each is decided, and thereby
guarded, once all its variables are known.
"""

from __future__ import annotations

import dis
import functools
import inspect
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType
from typing import Any, TypeGuard

import torch

try:
    from torch.fx.experimental import dynamic_spec
except ImportError:  # before torch 2.13
    dynamic_spec = None  # type: ignore[assignment]

from tc.compiler.capture.bytecode.liveness import writes
from tc.compiler.capture.bytecode.resume_functions import is_resumed
from tc.compiler.capture.dynamism import Mark
from tc.compiler.capture.traceable import calling
from tc.compiler.core.sources import (
    AttrSource,
    DictSource,
    ItemSource,
    LocalSource,
    Source,
)
from tc.compiler.core.symbolic import SYMBOLIC, hint
from tc.compiler.errors import ConstraintViolationError, OptionError

#: what torch appends to the name of a variable, of which there may be two of one name
_NUMBER = re.compile(r"#\d+")
ARGUMENTS, KEYWORDS = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)
#: what runs the forward of a module
MODULE_CALLS = (torch.nn.Module._call_impl, torch.nn.Module._wrapped_call_impl)
Parameters = Mapping[str, inspect.Parameter]
# the dicts that modules keep attributes in
HOLDERS = {"_parameters", "_buffers", "_modules"}
CELL_STORES = ("STORE_DEREF", "DELETE_DEREF")


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
        if dynamic_spec is None:
            raise OptionError(
                f"shapes_spec needs torch 2.13, this is {torch.__version__}"
            )
        shapes, parameters = dynamic_spec.ShapesSpec, dynamic_spec.ParamsSpec
        try:
            whole = (
                shapes_spec if isinstance(shapes_spec, shapes) else shapes(shapes_spec)
            )
        except (TypeError, ValueError) as error:
            raise OptionError(f"shapes_spec cannot be read: {error}") from None
        params = whole._params or parameters()
        self.assumptions = tuple(one.node.expr for one in whole._assumptions)
        self._rest: dict[Any, Any] = {
            ARGUMENTS: params._varargs,
            KEYWORDS: params._varkw,
        }
        named = dict(params._named_args)
        self._places: dict[tuple[str, int], Named] = {}
        function, signature = _signature(target)
        chain = _chain(function)
        inner = _parameters(chain[-1]) if chain else signature or {}
        if chain or signature is not None:
            self._check(named, {**inner, **(signature or {})})
        # the frame that is captured where a target has none
        called: Any = calling(target)
        for one in (called, *chain):
            own = inner if chain and one is chain[-1] else _parameters(one)
            around = signature or {} if one is called else inner
            self._places[_place(one.__code__)] = Named(
                by_name=self._said_by(own, around, named),
                parameters=frozenset(own),
                stored=_stored(one.__code__),
            )

    def __reduce__(self) -> Any:
        """Refuse to be pickled: torch's specifications cannot be, nor the conditions on them."""
        raise pickle.PicklingError(
            "what was compiled with a shapes_spec cannot be pickled: pickle what it was made of, "
            "and compile that again"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Specification:
        return self  # nothing changes it

    def _check(self, named: Mapping[str, Any], found: Parameters) -> None:
        if unknown := named.keys() - found.keys():
            raise OptionError(
                f"shapes_spec names {', '.join(sorted(unknown))}, and the parameters are "
                f"{', '.join(found) or 'none'}"
            )
        kinds = {one.kind for one in found.values()}
        for kind, said in self._rest.items():
            if said is not None and kind not in kinds:
                sign = "*args" if kind is ARGUMENTS else "**kwargs"
                raise OptionError(
                    f"shapes_spec has {sign}, which the function does not take"
                )

    def _said_by(
        self,
        own: Parameters,
        inner: Parameters,
        named: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Return what is specified, under the names of the parameters of one function.

        The function is the one that the spec names, or a decorator's around it: that has
        parameters of its own, and takes the same arguments in the same order if it has ``*args``.
        """
        positions = [one.name for one in inner.values() if one.kind in POSITIONAL]
        in_order = [named.get(name) for name in positions] + list(
            self._rest[ARGUMENTS] or ()
        )
        by_key = {**named, **(self._rest[KEYWORDS] or {})}
        found: dict[str, Any] = {}
        in_order_too = any(one.kind is ARGUMENTS for one in own.values())
        for index, one in enumerate(own.values()):
            if one.kind is ARGUMENTS:
                found[one.name] = in_order[index:]
            elif one.kind is KEYWORDS:
                found[one.name] = {
                    k: said for k, said in by_key.items() if k not in own
                }
            elif in_order_too and one.name not in inner and index < len(in_order):
                found[one.name] = in_order[index]
            else:
                found[one.name] = by_key.get(one.name)
        return {name: said for name, said in found.items() if said is not None}

    def of_frame(self, code: CodeType) -> Specified | None:
        """Return what holds for one capture of a frame; None for another function's."""
        named = self._places.get(_place(code))
        return (
            None
            if named is None
            else Specified(self.assumptions, named, is_resumed(code))
        )


@dataclass(frozen=True)
class Named:
    """What is specified for the frames of one function.

    Attributes:
        by_name: parameter -> what is said of it.
        parameters: the names of all parameters.
        stored: the names of variables that the function assigns to.
    """

    by_name: Mapping[str, Any]
    parameters: frozenset[str]
    stored: frozenset[str]


def _signature(target: Any) -> tuple[Any, Parameters | None]:
    """Return the Python function that a target runs, and the parameters that a spec may name."""
    function = _with_forward(target)
    try:
        found: Parameters | None = inspect.signature(function).parameters
    except (TypeError, ValueError):
        found = None
    while isinstance(function, functools.partial):
        function = function.func
    if not isinstance(function, FunctionType | MethodType | type):
        function = type(function).__call__
    return function, found


def _with_forward(target: Any) -> Any:
    """Return a target with the forward of a module in place of what calls it."""
    if isinstance(target, functools.partial):
        return functools.partial(
            _with_forward(target.func), *target.args, **target.keywords
        )
    if isinstance(target, MethodType) and target.__func__ in MODULE_CALLS:
        target = target.__self__
    return target.forward if isinstance(target, torch.nn.Module) else target


def _chain(function: Any) -> list[FunctionType]:
    """Return the Python functions from a decorated one to the innermost."""
    passed: list[Any] = []
    innermost = inspect.unwrap(function, stop=passed.append)  # append never stops it
    found = []
    for one in (*passed, innermost):
        plain = one.__func__ if isinstance(one, MethodType) else one
        if isinstance(plain, FunctionType):
            found.append(plain)
    return found


def _parameters(function: FunctionType) -> Parameters:
    return inspect.signature(function, follow_wrapped=False).parameters


def _stored(code: CodeType) -> frozenset[str]:
    """Return the names of variables that a function, or one inside it, assigns to."""
    found: set[str] = set()
    for one in dis.get_instructions(code):
        found.update((one.argval,) if one.opname in CELL_STORES else writes(one))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _stored(constant)
    return frozenset(found)


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_filename, code.co_firstlineno


class Specified:
    """What is specified for one capture, and the variables that it knows by now."""

    def __init__(
        self, assumptions: tuple[Any, ...], named: Named, resumed: bool
    ) -> None:
        self._named, self._resumed = named, resumed
        self._fields: dict[Source, tuple[str, ...]] = {}
        self._replaced: set[Source] = set()
        self._known: dict[Any, Any] = {}
        self._waiting = [(one, str(one)) for one in assumptions]

    def note_fields(self, source: Source, names: tuple[str, ...]) -> None:
        """Note the names of the elements of an input that is a named tuple."""
        self._fields[source] = names

    def says(self, source: Source) -> bool:
        """Return whether anything is specified for an input."""
        return self._said(source) is not None

    def _said(self, source: Source) -> Any:
        """Return what is specified for an input; None for what is constant, or computed."""
        if self._is_computed(source):
            return None
        root = source.root
        if isinstance(root, LocalSource) and self._is_stored(root):
            return None
        return self._said_at(source)

    def _said_at(self, source: Source) -> Any:
        if isinstance(source, LocalSource):
            return self._named.by_name.get(source.local)
        if not isinstance(source, ItemSource | AttrSource):
            return None
        owner = _owner(source)
        if isinstance(source, ItemSource) and owner is not None:
            return _held(self._said_at(owner)).get(source.key)
        held = _held(self._said_at(source.base))
        if isinstance(source, AttrSource):
            return held.get(source.attr)
        if source.key in held:
            return held[source.key]
        fields = self._fields.get(source.base)
        if not fields:
            return None
        return held.get(fields[source.key])

    def _is_stored(self, root: LocalSource) -> bool:
        """Return whether a parameter may have another value where a frame is resumed."""
        return self._resumed and root.local in self._named.stored

    def _is_computed(self, source: Source) -> bool:
        """Return whether a frame that is resumed after a break gets it from the code before."""
        if source in self._replaced:
            return True
        root = source
        while isinstance(root, ItemSource) or _is_cell(root):
            root = root.base
        if not isinstance(root, LocalSource):
            return False
        if root.local not in self._named.parameters:
            return True
        return self._is_stored(root)

    def _is_replaced(self, source: Source) -> bool:
        """Return whether an input that is not as specified is no input of the call.

        Code before a break may have replaced what a container holds.
        """
        if self._resumed and not isinstance(source, LocalSource):
            self._replaced.add(source)
        return source in self._replaced

    def marks(self, source: Source, tensor: torch.Tensor) -> dict[int, Mark]:
        """Return the marks on the dimensions of an input.

        Raises:
            ConstraintViolationError: a dimension is not as specified.
        """
        said = self._said(source)
        wrong = None if said is None else _misfit(said, tensor)
        if wrong is not None and not self._is_replaced(source):
            raise _violated(source, *wrong)
        if said is None or wrong is not None:
            free = range(tensor.dim()) if self._is_computed(source) else ()
            return dict.fromkeys(free, Mark("maybe"))
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
            if not self._is_replaced(source):
                raise _violated(source, f"is {said}", number)
            said = None
        return isinstance(said, SYMBOLIC) or (
            self._is_computed(source) and number not in (0, 1)
        )

    def bind(self, source: Source, value: Any) -> None:
        """Note the sizes or the value of an input, and decide what can be decided with them.

        Raises:
            ConstraintViolationError: a condition does not hold.
        """
        said = self._said(source)
        if said is None:
            return
        sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
        for wanted, got in zip(
            (said,) if isinstance(said, SYMBOLIC) else said, sizes, strict=True
        ):
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
        ready = [
            row for row in self._waiting if row[0].free_symbols <= self._known.keys()
        ]
        self._waiting = [row for row in self._waiting if row not in ready]
        for condition, text in ready:
            if not _holds(condition, self._known):
                known = {str(s): hint(self._known[s]) for s in condition.free_symbols}
                values = ", ".join(
                    f"{name} is {value}" for name, value in sorted(known.items())
                )
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
    if isinstance(said, dynamic_spec.SeqSpec):
        said = said._entries
    if isinstance(said, list):
        return dict(enumerate(said))
    return (
        dict(said.items())
        if isinstance(said, dynamic_spec.DictSpec | dynamic_spec.ObjectSpec | dict)
        else {}
    )


def _misfit(said: Any, tensor: torch.Tensor) -> tuple[str, object] | None:
    """Return what is specified otherwise than a tensor is, and what the tensor has."""
    if not isinstance(said, dynamic_spec.TensorSpec | list | tuple):
        return f"is {_text(said)}", "a tensor"
    if len(said) != tensor.dim():
        return f"has {len(said)} dimensions", tensor.dim()
    for dim, (wanted, size) in enumerate(zip(said, tensor.shape, strict=True)):
        if isinstance(wanted, int) and wanted != size:
            return f"has size {wanted} in dimension {dim}", size
    return None


def _text(said: Any) -> str:
    text = str(said.node.expr) if isinstance(said, SYMBOLIC) else type(said).__name__
    return _NUMBER.sub("", text)


def _owner(source: Source) -> Source | None:
    """Return the object that has an item as an attribute, or as a parameter of a module."""
    holder = source.base if isinstance(source, ItemSource) else source
    if isinstance(holder, ItemSource) and holder.key in HOLDERS:
        holder = holder.base
    return holder.base if isinstance(holder, DictSource) else None


def _is_cell(source: Source) -> TypeGuard[AttrSource]:
    return isinstance(source, AttrSource) and source.attr in (
        "cell_contents",
        "__closure__",
    )


def _variable(name: str) -> Any:
    return dynamic_spec.IntVar(name)


def _violated(source: Source, wanted: str, found: object) -> ConstraintViolationError:
    return ConstraintViolationError(
        f"shapes_spec says that {source.pretty} {wanted}, but this call has {found}."
    )
