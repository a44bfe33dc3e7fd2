"""Results of calls on fake tensors, remembered by the call: equal layers make equal calls.

What shape functions and `refusals` say of a call follows from its operator, from what `_facts` says
of its tensors, from which of these are one tensor or share memory, from its other arguments, and
from `_surroundings`. All of that is the key; a call with anything else in it is not remembered: an
operator that writes or that is not torch's own, sizes that are symbols, tensors with known values
or of other classes. PyTorch's own memory of such calls finds the result of one operator inside of a
call; it costs several times as much, and corrections of layouts are not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, NamedTuple
from weakref import ref

import torch
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorMode,
    in_kernel_invocation_manager,
)

from tc.compiler.core.frozen_graph import OWN_NAMESPACES
from tc.compiler.core.memory import storage_id

Key = tuple[Any, ...]

#: arguments that a key may contain as they are
PLAIN = frozenset([
    *(int, float, bool, complex, str, type(None)),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
])  # fmt: skip
#: asks for the device of a tensor
DEVICE_OF = torch.ops.prim.device.default
#: ops whose results follow from values, not from shapes
OF_VALUES = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)


class NotRemembered(Exception):
    """A call has an argument or a result that no key or entry can describe."""


class Fresh(NamedTuple):
    """A result: a new tensor, in new memory or in that of an argument."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: torch.device
    memory_of: int | None


class Same(NamedTuple):
    """A result that is an argument itself."""

    argument: int


class Effects(NamedTuple):
    """What a call did besides computing its result; nothing, for most.

    Attributes:
        written: the arguments whose memory was written to. Calls arrive here below autograd, so
            that no version is counted inside of them.
        once: see `RememberingMode.runs_once`.
    """

    written: tuple[int, ...]
    once: bool


class RememberingMode(FakeTensorMode):  # type: ignore[no-untyped-call]
    """torch's fake mode, with the results of the calls that it has seen.

    Attributes:
        written: ids of the storages that ops have written to.
        runs_once: whether an op was called that has other effects: it draws random numbers, or is
            not PyTorch's own.
    """

    _latest: ClassVar[tuple[Callable[[], Any], dict[Key, tuple[Any, Effects, Any]]]] = (
        lambda: None,
        {},
    )

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch wraps the dispatch, to disable a compiler that does not run

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.written: set[int] = set()
        self.runs_once = False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an op that reaches the mode; most ask for the device of a tensor."""
        if func is DEVICE_OF and type(args[0]) is FakeTensor:
            return args[0].device
        return self.dispatch(func, types, args, kwargs or {})

    def remembered(
        self,
        run: Callable[[], Any],
        func: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        asking: bool,
    ) -> Any:
        """Return the result of a call: made as it was for an equal one, or that of ``run()``.

        Args:
            asking: whether ``run`` asks if eager refuses the call.
        """
        if not self.cache_enabled or not _depends_on_shapes(func):
            return run()
        tensors: list[FakeTensor] = []
        try:
            given = (_described(self, args, tensors), _described(self, kwargs, tensors))
        except NotRemembered:
            return run()
        key = id(func), asking, _surroundings(), given, _shared(tensors)
        known = self._results()
        found = known.get(key)
        if found is not None:
            self._repeat(found[1], tensors)
            return _made(self, found[2], tensors)
        result, effects = self._watched(run, tensors)
        if effects is None:
            return result
        try:
            entry = _entry(self, result, tensors)
        except NotRemembered:
            return result
        known[key] = func, effects, entry  # the op stays alive, and its id its own
        return result

    def _results(self) -> dict[Key, tuple[Any, Effects, Any]]:
        """Return the calls of this mode; only the last mode has some.

        Captures come one after another, and a mode lives as long as the graph with its tensors.
        """
        mode, known = RememberingMode._latest
        if mode() is not self:
            known = {}
            RememberingMode._latest = ref(self), known
        return known

    def _watched(
        self, run: Callable[[], Any], tensors: list[FakeTensor]
    ) -> tuple[Any, Effects | None]:
        """Run a call; return its result and its effects, None if something else was written to."""
        written, once = self.written, self.runs_once
        self.written, self.runs_once = set(), False
        try:
            result = run()
            given = [*map(storage_id, tensors)]
            if not self.written <= {*given}:
                return result, None
            places = (at for at, memory in enumerate(given) if memory in self.written)
            return result, Effects(tuple(places), self.runs_once)
        finally:
            self.written |= written
            self.runs_once |= once

    def _repeat(self, effects: Effects, tensors: list[FakeTensor]) -> None:
        """Have the effects of a call again, on the arguments of an equal one."""
        self.written |= {storage_id(tensors[at]) for at in effects.written}
        self.runs_once |= effects.once


@cache
def _depends_on_shapes(func: Any) -> bool:
    if not isinstance(func, torch._ops.OpOverload) or func.namespace not in OWN_NAMESPACES:
        return False
    return not func._schema.is_mutable and not any(tag in func.tags for tag in OF_VALUES)


def _surroundings() -> Key:
    """Return what results depend on besides arguments."""
    return (
        torch.get_default_dtype(),
        torch._C._get_default_device(),
        torch.is_inference_mode_enabled(),
        torch.is_grad_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch._C._get_mkldnn_enabled(),  # which lays out results of convolutions
        torch._C._get_cudnn_enabled(),
    )


def _facts(tensor: FakeTensor) -> Key:
    """Return what results depend on of a tensor with memory and plain sizes."""
    return (
        tensor.shape,
        tensor.stride(),
        tensor.storage_offset(),
        tensor.dtype,
        tensor.fake_device,
        tensor.requires_grad,
        tensor.is_inference(),
        torch._C._dispatch_keys(tensor).raw_repr(),
        tensor.untyped_storage().nbytes(),
    )


def _described(mode: FakeTensorMode, value: Any, tensors: list[FakeTensor]) -> Key:
    """Return an argument as a part of a key, and add its tensors to the list."""
    kind = type(value)
    if kind in PLAIN:
        return kind, value
    if kind is FakeTensor:
        if value.fake_mode is not mode or value.constant is not None:
            raise NotRemembered
        if value._has_symbolic_sizes_strides or value.layout is not torch.strided:
            raise NotRemembered
        facts = _facts(value)
        if type(value.storage_offset()) is not int or type(facts[-1]) is not int:
            raise NotRemembered  # an element of memory whose size is a symbol
        tensors.append(value)
        return facts
    if isinstance(value, Mapping):
        return kind, tuple(value), *(_described(mode, each, tensors) for each in value.values())
    if isinstance(value, (list, tuple)):
        return kind, *(_described(mode, each, tensors) for each in value)
    raise NotRemembered


def _shared(tensors: list[FakeTensor]) -> Key:
    """Return for each tensor the first one that is the same, and the first one in its memory."""
    if len(tensors) < 2:
        return ()
    same, memory = [*map(id, tensors)], [*map(storage_id, tensors)]
    return *map(same.index, same), *map(memory.index, memory)


def _entry(mode: FakeTensorMode, result: Any, tensors: list[FakeTensor]) -> Any:
    """Return a description of a result, from which `_made` makes one that has the same facts."""
    if isinstance(result, (list, tuple)):
        if type(result) not in (list, tuple) or not _in_own_memory(result, tensors):
            raise NotRemembered
        return type(result)(_entry(mode, each, tensors) for each in result)
    if result is None:
        return None
    for at, tensor in enumerate(tensors):
        if result is tensor:
            return Same(at)
    if type(result) is not FakeTensor or result.requires_grad:
        raise NotRemembered
    facts = _described(mode, result, [])
    places = [at for at, one in enumerate(tensors) if storage_id(one) == storage_id(result)]
    device, memory_of = result.fake_device, places[0] if places else None
    shape, stride, offset = tuple(result.shape), result.stride(), int(result.storage_offset())
    entry = Fresh(shape, stride, offset, result.dtype, device, memory_of)
    if _facts(_made(mode, entry, tensors)) != facts:
        raise NotRemembered
    return entry


def _in_own_memory(results: Sequence[Any], tensors: list[FakeTensor]) -> bool:
    """Return whether no two results share memory, unless it is that of an argument."""
    given = set(map(storage_id, tensors))
    made = [storage_id(each) for each in results if isinstance(each, torch.Tensor)]
    own = [memory for memory in made if memory not in given]
    return len(set(own)) == len(own)


def _made(mode: FakeTensorMode, entry: Any, tensors: list[FakeTensor]) -> Any:
    if entry is None:
        return None
    if type(entry) is Fresh:
        shape, stride, offset, dtype, device, memory_of = entry
        with in_kernel_invocation_manager(mode):
            made = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
            if memory_of is not None:
                made.set_(tensors[memory_of].untyped_storage(), offset, shape, stride)
        return FakeTensor(mode, made, device)
    if type(entry) is Same:
        return tensors[entry.argument]
    return type(entry)(_made(mode, each, tensors) for each in entry)
