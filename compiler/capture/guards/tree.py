"""Builds the C++ guard tree of one compiled frame: a manager (tree node) for each source.

The only file that touches `torch._C._dynamo.guards`. Facts about it:

* The first node of a process makes C++ import `torch._dynamo` for an enum. The enum matters only
  for nodes given a live dict as example; all nodes here are made without example.
* A node checks its own guards in order, then its children. A child whose value cannot be reached
  (no such attribute, key, index, or a base of another type) fails; errors raised by the access are
  dropped. Two guards break that rule and are never installed alone: LENGTH leaves an error set on
  objects without ``len``, and mapping-keys reads invalid memory unless it gets a mapping proxy.
* Equality is ``type(a) is type(b) and (a is b or a == b)``, so it takes ``-0.0`` for ``0.0`` and
  ``(True,)`` for ``(1,)``.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

import torch
from torch._C._dynamo import eval_frame as _frames
from torch._C._dynamo import guards as _c

from tc.compiler.core.sources import (
    AttrSource,
    CallSource,
    DictSource,
    GlobalSource,
    ItemSource,
    LocalSource,
    LocalsSource,
    Scope,
    Source,
    TypeSource,
)

Manager = Any
"""A node of the tree (``GuardManager`` of C++)."""

GlobalStateGuard = _c.GlobalStateGuard


class GuardTree:
    """Builds managers for sources, one a source, sharing prefixes."""

    def __init__(self, code: CodeType, scope: Scope) -> None:
        self.root = _c.RootGuardManager()
        self._scope = scope
        self._slots = {
            name: i for i, name in enumerate(_frames.code_framelocals_names(code))
        }
        self._managers: dict[str, Manager] = {}

    @classmethod
    def below(cls, base: Source, tree: GuardTree) -> GuardTree:
        """Return a tree whose root checks the value of ``base`` instead of a frame's locals."""
        made = cls.__new__(cls)
        made.root = _c.RootGuardManager()
        made._scope, made._slots = tree._scope, {}
        made._managers = {base.name: made.root}
        return made

    @classmethod
    def of_items(cls, sources: Sequence[Source], tree: GuardTree) -> GuardTree:
        """Return a tree whose root checks a tuple: the values of the sources in their order."""
        made = cls.below(LocalSource("items"), tree)
        made._managers = {
            source.name: child(made.root, "tuple_getitem", source.name, key=i)
            for i, source in enumerate(sources)
        }
        return made

    def value(self, source: Source) -> Any:
        """Return the value of a source in the frame that the tree is built for."""
        return source.evaluate(self._scope)

    def manager(self, source: Source) -> Manager:
        """Return the node whose guards check the value of ``source``."""
        name = source.name
        if not name:
            return self.root
        found = self._managers.get(name)
        if found is None:
            found = self._managers[name] = _REACH[type(source)](self, source)
        return found

    def guard(
        self, where: Source | Manager, kind: str, text: str, *arguments: Any
    ) -> None:
        """Install a guard on a node.

        Args:
            where: a source, or a manager that `child` or `manager` returned.
            kind: the middle of the C++ name, ``type_match`` for ``add_type_match_guard``.
            text: the guard as torch prints it in the report of a failed check.
            arguments: the C++ guard's arguments before its text.
        """
        manager = self.manager(where) if isinstance(where, Source) else where
        getattr(manager, f"add_{kind}_guard")(*arguments, [text], *_STACK)

    def test(
        self, where: Source | Manager, text: str, check: Callable[[Any], bool]
    ) -> None:
        """Install a Python function as a guard; an exception counts as a failure."""
        self.guard(where, "lambda", text, check)

    def tensor(self, source: Source, text: str, spec: Any, keys: Any) -> None:
        """Install the tensor guard; see `tc.compiler.capture.guards.facts.TensorSpec`."""
        value = self.value(source)
        size, stride = list(spec.size), list(spec.stride)
        arguments = (
            value,
            size,
            stride,
            source.name,
            [text],
            *_STACK,
            type(value),
            keys,
        )
        self.manager(source).add_tensor_match_guard(*arguments)

    def aliases(self, a: Source, b: Source, text: str) -> None:
        """Require that two sources are the same object."""
        _c.install_object_aliasing_guard(
            self.manager(a), self.manager(b), [text], *_STACK
        )

    def no_aliases(self, sources: Sequence[Source], text: str) -> None:
        """Require that several sources are distinct objects, of any type."""
        managers = [self.manager(source) for source in sources]
        names = [source.name for source in sources]
        _c.install_no_tensor_aliasing_guard(managers, names, [text], *_STACK)

    def last(self, text: str, check: Callable[[dict[str, Any]], bool]) -> None:
        """Install a Python function over the frame's locals that runs after all other guards."""
        root: Manager = self.root  # torch's stub has the wrong type for the function
        root.add_epilogue_lambda_guard(check, [text], *_STACK)


def child(manager: Manager, way: str, name: str, **key: Any) -> Manager:
    """Return the child node that the C++ method ``{way}_manager`` of ``manager`` makes."""
    make = getattr(manager, f"{way}_manager")
    return make(**key, source=name, example_value=None, guard_manager_enum=None)


def check_of_tensors(
    tensors: Sequence[torch.Tensor],
    sizes: list[list[int | None]],
    strides: list[list[int | None]],
) -> Callable[..., bool] | None:
    """Return a check without a tree: tensors have the properties of these, and are distinct.

    Args:
        sizes: sizes of each tensor; None is free.
        strides: strides of each tensor; None is free.

    Returns:
        None if this version of torch has no such check.
    """
    make: Any = getattr(_c, "TensorGuards", None)
    if make is None:
        return None
    check: Callable[..., bool] = make(
        *tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides
    ).check
    return check


def _takes_user_stack() -> bool:
    """Return whether guards take a user stack after their text, as they do since torch 2.12."""
    text = _c.GuardManager.add_none_match_guard.__doc__ or ""
    return "arg1" in text


_STACK: tuple[None, ...] = (None,) if _takes_user_stack() else ()


def _local(tree: GuardTree, source: LocalSource) -> Manager:
    slot = tree._slots[source.local]  # C++ opens cells itself
    return child(tree.root, "framelocals", source.name, key=(source.local, slot))


def _locals(tree: GuardTree, source: LocalsSource) -> Manager:
    return tree.root  # whose guards C++ gives a dict of the locals that are bound


def _global(tree: GuardTree, source: GlobalSource) -> Manager:
    table = tree._scope.globals
    found = tree._managers.get("G")
    if found is None:
        found = tree._managers["G"] = child(
            tree.root, "globals_dict", "G", f_globals=table
        )
    key = source.global_name
    if key not in table:
        # A global of that name would hide the builtin.
        found.add_dict_contains_guard(False, key, [f"{key!r} not in G"], *_STACK)
        found = child(found, "dict_getitem", "G['__builtins__']", key="__builtins__")
        if not isinstance(table["__builtins__"], dict):
            found = child(found, "get_generic_dict", "vars(G['__builtins__'])")
    return child(found, "dict_getitem", source.name, key=key)


def _attr(tree: GuardTree, source: AttrSource) -> Manager:
    base, attr = tree.manager(source.base), source.attr
    module = tree.value(source.base)
    if not isinstance(module, torch.nn.Module) or hasattr(type(module), attr):
        return child(base, "getattr", source.name, attr=attr)
    own = module.__dict__
    instance = child(base, "get_generic_dict", f"{source.base.name}.__dict__")
    if attr in own:
        return child(instance, "dict_getitem", source.name, key=attr)
    if type(module).__getattr__ is not torch.nn.Module.__getattr__:
        return child(base, "getattr", source.name, attr=attr)
    for table in ("_parameters", "_buffers", "_modules"):
        instance.add_dict_contains_guard(
            False, attr, [f"{attr!r} in instance"], *_STACK
        )
        if attr in own[table]:
            name = f"{source.base.name}.{table}"
            below = child(instance, "dict_getitem", name, key=table)
            return child(below, "dict_getitem", source.name, key=attr)
    return child(base, "getattr", source.name, attr=attr)


def _item(tree: GuardTree, source: ItemSource) -> Manager:
    base, key = tree.manager(source.base), source.key
    value = tree.value(source.base)
    kind = type(value)
    plain_index = type(key) is int and key >= 0
    if (
        isinstance(value, dict)
        and kind.__getitem__ is dict.__getitem__
        and key in value
    ):
        return child(base, "dict_getitem", source.name, key=key)
    if plain_index and isinstance(value, list) and kind.__getitem__ is list.__getitem__:
        return child(base, "list_getitem", source.name, key=key)
    if (
        plain_index
        and isinstance(value, tuple)
        and kind.__getitem__ is tuple.__getitem__
    ):
        return child(base, "tuple_getitem", source.name, key=key)
    if (kind is torch.nn.ModuleList and plain_index) or kind is torch.nn.ModuleDict:
        instance = child(base, "get_generic_dict", f"{source.base.name}.__dict__")
        table = child(
            instance, "dict_getitem", f"{source.base.name}._modules", key="_modules"
        )
        return child(table, "dict_getitem", source.name, key=str(key))
    return child(base, "getitem", source.name, key=key)


def _dict(tree: GuardTree, source: DictSource) -> Manager:
    base, owner = tree.manager(source.base), tree.value(source.base)
    has_dict = type(owner).__dictoffset__ != 0  # a threading.local has one a thread
    if issubclass(type(owner), type | types.ModuleType) or not has_dict:
        return child(base, "getattr", source.name, attr="__dict__")
    return child(base, "get_generic_dict", source.name)


def _type(tree: GuardTree, source: TypeSource) -> Manager:
    return child(tree.manager(source.base), "type", source.name)


def _call(tree: GuardTree, source: CallSource) -> Manager:
    base = tree.manager(source.base)
    return child(base, "lambda", source.name, python_lambda=source.function)


_REACH: dict[type[Source], Callable[[GuardTree, Any], Manager]] = {
    LocalSource: _local,
    LocalsSource: _locals,
    GlobalSource: _global,
    AttrSource: _attr,
    ItemSource: _item,
    DictSource: _dict,
    TypeSource: _type,
    CallSource: _call,
}
