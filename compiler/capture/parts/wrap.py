"""Wraps live Python objects: makes their values, and guards what these assume."""

from __future__ import annotations

import collections
import contextlib
import contextvars
import functools
import threading
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor

from tc.compiler.capture import breaks
from tc.compiler.capture.dynamism import ADDRESS
from tc.compiler.capture.guards.facts import is_heap_type
from tc.compiler.capture.guards.guard_list import Predicate, TensorSpec
from tc.compiler.capture.hook import original_of
from tc.compiler.capture.number_ranges import LARGEST_FLOAT, bits_of_symbol
from tc.compiler.capture.shapes import free_size, free_stride
from tc.compiler.capture.torch_api import (
    collectives,
    torch_compiler,
    torch_functions,
    wrappers,
)
from tc.compiler.capture.torch_api.annotated import AnnotatedValue, annotation_of
from tc.compiler.capture.values import (
    array_folds,
    context_vars,
    deferred_calls,
    dict_objects,
    library,
    list_objects,
    number_objects,
    proxies,
    random_numbers,
    records,
    set_objects,
    triton_kernels,
)
from tc.compiler.capture.values.array_calls import numpy_name
from tc.compiler.capture.values.base import Lazy, OpaqueValue, Slot, Value
from tc.compiler.capture.values.builtins import BuiltinValue
from tc.compiler.capture.values.const import BY_IDENTITY, ConstValue, is_constant_object
from tc.compiler.capture.values.containers import ListValue
from tc.compiler.capture.values.deques import DequeValue
from tc.compiler.capture.values.dicts import DICT_KINDS, DictValue
from tc.compiler.capture.values.functions import (
    FunctionWrapperValue,
    MethodValue,
    wrap_function,
)
from tc.compiler.capture.values.iteration import GETTERS, wrap_getter
from tc.compiler.capture.values.iterators import (
    RANGE_ITERATORS,
    SEQUENCE_ITERATORS,
    wrap_iterator,
)
from tc.compiler.capture.values.known_arrays import is_array, wrap_array
from tc.compiler.capture.values.lookup import (
    MISSING,
    field_names,
    has_opaque_metaclass,
    is_found_by_name,
    is_struct_sequence,
    type_lookup,
    users_slot,
)
from tc.compiler.capture.values.nn_modules import NNModuleValue
from tc.compiler.capture.values.numpy_functions import NumpyFunctionValue
from tc.compiler.capture.values.objects import (
    ClassValue,
    ObjectValue,
    PythonModuleValue,
)
from tc.compiler.capture.values.partials import wrap_partial
from tc.compiler.capture.values.reflection import (
    DESCRIPTORS,
    is_generic,
    wrap_descriptor,
    wrap_generic,
)
from tc.compiler.capture.values.sets import SetValue, set_of
from tc.compiler.capture.values.slices import SliceValue
from tc.compiler.capture.values.subclasses import (
    FAKED,
    is_wrapper,
    own_attribute,
    tensor_value,
)
from tc.compiler.capture.values.tensor import SymValue, TensorValue
from tc.compiler.capture.values.tuple_objects import tuple_of
from tc.compiler.core.sources import (
    AttrSource,
    CallSource,
    ItemSource,
    LocalSource,
    Source,
    instance_dict,
)
from tc.compiler.errors import ConstraintViolationError

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter

Wrapper = Callable[["Interpreter", Any, Source], Value]
#: types of functions in C that may be bound to an object
BOUND_BUILTINS = (types.BuiltinFunctionType, types.MethodWrapperType)
BUILTIN_TYPES = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
)
#: types of set items that are compared by identity: they live as long as the program
_LASTING = (*BUILTIN_TYPES, type, types.FunctionType, types.ModuleType)


def wrap_object(t: Interpreter, obj: Any, source: Source) -> Value:
    """Return the value of an object, made by the first row that accepts it, and guard its type.

    Comparisons, and everything else that needs only the type of an object, rely on that guard.
    """
    if any(map(has_opaque_metaclass, (type(obj), obj))):
        raise breaks.SkipFrame(
            f"{source.pretty} is of a class with a metaclass of its own"
        )
    t.guards.definitions.meet(obj)
    if users_slot(type(obj), "__getattribute__") is not MISSING:
        # The other rows ask for attributes, and so do the checks of ``isinstance``.
        value = _asked_for_nothing(t, obj, source)
    elif _names_its_class(obj):
        value = _wrapped(t, obj, source)
    else:
        raise breaks.SkipFrame(f"{source.pretty} does not say what its class is")
    if not t.guards.recorded.fixes_type(source):
        t.guards.add("TYPE", source, type(obj))
    return value


def _asked_for_nothing(t: Interpreter, obj: Any, source: Source) -> Value:
    """Return the value of an object whose class defines how its attributes are read."""
    if dict_objects.accepts(obj):
        return dict_objects.wrap_dict_object(t, obj, source)
    if list_objects.accepts(obj):
        return list_objects.wrap_list_object(t, obj, source)
    if set_objects.accepts(obj):
        return set_objects.wrap_set_object(t, obj, source)
    if _is_plain_object(obj):
        return _object(t, obj, source)
    return OpaqueValue(obj, source)


def _wrapped(t: Interpreter, obj: Any, source: Source) -> Value:
    for accepts, wrapper in ROWS:
        if accepts(obj):
            return wrapper(t, obj, source)
    return OpaqueValue(obj, source)


def _constant(t: Interpreter, obj: Any, source: Source) -> Value:
    bits = bits_of_symbol(obj) if type(obj) is int else None
    if bits is not None and t.values.number_is_dynamic(obj, source):
        symbol = t.shapes.symint(obj, source, bits)
        if t.sizes.specified is not None:
            t.sizes.specified.bind(source, symbol)
        t.guards.add("INTEGER", source, bits)
        return SymValue(None, symbol, source)
    if (
        type(obj) is float
        and obj
        and abs(obj) <= LARGEST_FLOAT
        and t.values.number_is_dynamic(obj, source)
    ):
        t.guards.add("TYPE", source, float)
        return SymValue(None, t.shapes.symfloat(obj, source), source)
    kind = "ID" if type(obj) in BY_IDENTITY else "EQUALS"
    t.guards.add("NONE" if obj is None else kind, source, obj)
    return ConstValue(obj, source)


def _tensor(t: Interpreter, obj: torch.Tensor, source: Source) -> TensorValue:
    dims, strides = t.sizes.dimensions(source, obj), t.sizes.strides(source, obj)
    demands = t.sizes.demands(source, obj)
    with t.state.as_at_entry():  # under a transform of torch.func
        try:
            fake = t.shapes.fake(obj, source, dims, demands=demands, strides=strides)
        except (breaks.GraphBreak, breaks.SkipFrame, ConstraintViolationError):
            raise
        except Exception as error:
            # a batch of torch.func, a view that autograd refuses to follow, a class of the user
            raise breaks.SkipFrame(
                f"{source.pretty} has no stand-in: {error}"
            ) from error
        if t.sizes.specified is not None:
            t.sizes.specified.bind(source, fake)
        spec = TensorSpec.of(obj, free_size(fake), free_stride(fake))
    t.guards.add("TENSOR", source, spec)
    if getattr(obj, ADDRESS, None) == "guarded":
        address = obj.data_ptr()
        t.guards.add(
            "CUSTOM", source, Predicate(f"{{}}.data_ptr() == {address}", _at(address))
        )
    value = tensor_value(None, fake, source, obj)
    t.values.tensors.append(value)
    t.output.known_by_example(value)
    return value


wrap_tensor = _tensor


def _at(address: int) -> Callable[[torch.Tensor], bool]:
    return lambda tensor: tensor.data_ptr() == address


def _array(t: Interpreter, obj: Any, source: Source) -> Value:
    found = wrap_array(t, obj, source)
    return found if found is not None else OpaqueValue(obj, source)


def _numpy_function(t: Interpreter, obj: Any, source: Source) -> Value:
    name = numpy_name(obj)
    assert name is not None
    t.guards.add("ID", source, obj)
    return NumpyFunctionValue(obj, name, source)


def _numpy_dtype(t: Interpreter, obj: Any, source: Source) -> Value:
    t.guards.add("ID", source, obj)
    return ConstValue(obj, source)


def _list(t: Interpreter, obj: Any, source: Source) -> Value:
    if type(obj) is collections.deque:
        t.guards.add("LENGTH", source, obj)
        t.guards.add("EQUALS", AttrSource(source, "maxlen"), obj.maxlen)
        return DequeValue(t.values.lazy_slots(obj, source), source, obj.maxlen)
    t.guards.add("TYPE", source, type(obj))

    def read() -> list[Slot]:
        # the LENGTH guard implies the type
        t.guards.recorded.drop("TYPE", source, type(obj))
        t.guards.add("LENGTH", source, obj)
        return t.values.lazy_slots(obj, source)

    return ListValue([], source, read)


def _tuple(t: Interpreter, obj: Any, source: Source) -> Value:
    t.guards.add("LENGTH", source, obj)
    if t.sizes.specified is not None:
        t.sizes.specified.note_fields(source, field_names(type(obj)))
    slots = t.values.lazy_slots(tuple.__iter__(obj), source)
    if type_lookup(type(obj), "__getitem__") is not tuple.__getitem__:
        slots = [
            Lazy(item, _plain_item(source, i))
            for i, item in enumerate(tuple.__iter__(obj))
        ]
    return tuple_of(slots, type(obj), source, obj)


def _plain_item(source: Source, index: int) -> Source:
    item = functools.partial(_tuple_item, index)
    return CallSource(source, item, f"tuple.__getitem__({{}}, {index})")


def _tuple_item(index: int, items: tuple[Any, ...]) -> Any:
    return tuple.__getitem__(items, index)


def _dict(t: Interpreter, obj: Any, source: Source) -> Value:
    t.guards.add("TYPE", source, type(obj))
    entries: dict[Any, tuple[Slot, Slot]] = {}
    for index, (key, value) in enumerate(obj.items()):
        if is_constant_object(key):
            held: Slot = ConstValue(key)
            token: Any = key
            item: Source = ItemSource(source, key)
        else:
            key_source = CallSource(
                source, functools.partial(_nth_key, index), f"list({{}})[{index}]"
            )
            held_value = t.values.wrap(key, key_source)
            try:
                held, token = held_value, t.python.key(held_value)
            except breaks.GraphBreak:
                return OpaqueValue(obj, source)  # its keys cannot be compared here
            item = CallSource(
                source,
                functools.partial(_nth_value, index),
                f"list({{}}.values())[{index}]",
            )
        entries[token] = (held, Lazy(value, item))
    factory = None
    if isinstance(obj, collections.defaultdict) and obj.default_factory is not None:
        factory = t.values.wrap(
            obj.default_factory, AttrSource(source, "default_factory")
        )
    return DictValue(entries, source, kind=type(obj), factory=factory, obj=obj)


def _nth_key(index: int, mapping: Any) -> Any:
    return list(mapping)[index]


def _nth_value(index: int, mapping: Any) -> Any:
    return list(mapping.values())[index]


def _set(t: Interpreter, obj: Any, source: Source) -> Value:
    if all(is_constant_object(item) for item in obj):
        t.guards.add("EQUALS_SET", source, obj)
        return SetValue({item: ConstValue(item) for item in obj}, source, original=obj)
    if not all(map(_is_lasting, obj)):
        return OpaqueValue(obj, source)
    t.guards.add("TYPE", source, type(obj))
    t.guards.add("ITEMS", source, obj)
    made = set_of(t, (t.values.known(item) for item in obj), type(obj))
    made.source, made.original, made.table = source, obj, None
    return made


def _is_lasting(item: Any) -> bool:
    """Return whether an item of a set is a constant, of `_LASTING`, or a weak reference."""
    alive = type(item) is weakref.ref and item() is not None
    return alive or isinstance(item, _LASTING) or is_constant_object(item)


def _function(t: Interpreter, obj: types.FunctionType, source: Source) -> Value:
    special = torch_functions.classify(obj)
    if special is not None:
        t.guards.add("ID", source, obj)
        return special(obj, source)
    new_each_time = obj.__closure__ or isinstance(source, LocalSource)
    if (
        new_each_time
        and original_of(obj) is None
        and source.root not in t.values.aliases
    ):
        t.guards.add("CALLABLE_CODE", source, obj)
        t.guards.guarded_by_code.add(id(obj))
    else:
        t.guards.add("ID", source, obj)
    return wrap_function(t, obj, source)


def _builtin(t: Interpreter, obj: Any, source: Source) -> Value:
    if _new_each_read(obj) and torch_functions.classify(obj) is None:
        return _bound_builtin(t, obj, source)
    if not _new_each_read(obj):
        t.guards.add("ID", source, obj)
    special = torch_functions.classify(obj)
    if special is not None:
        return special(obj, source)
    return BuiltinValue(obj, source)


def _bound_builtin(t: Interpreter, obj: Any, source: Source) -> Value:
    """Wrap a method in C that is bound to an object: by the object, and the method's name."""
    t.guards.add("TYPE", source, type(obj))
    t.guards.add("EQUALS", AttrSource(source, "__name__"), obj.__name__)
    if is_heap_type(type(obj.__self__)):  # `super()` finds one that its class replaces
        found = is_found_by_name(obj)
        check = Predicate(
            f"is_found_by_name({{}}) is {found}",
            lambda obj: is_found_by_name(obj) is found,
        )
        t.guards.add("CUSTOM", source, check)
        if not found:
            return OpaqueValue(obj, source)
    owner = t.values.wrap(obj.__self__, AttrSource(source, "__self__"))
    if not isinstance(owner, OpaqueValue) and not isinstance(obj.__self__, type):
        # a call of it would break, not its wrapping
        with contextlib.suppress(breaks.GraphBreak):
            return owner.attr(t, obj.__name__)
    return BuiltinValue(obj, source)


def _new_each_read(obj: Any) -> bool:
    """Return whether a builtin is a bound method, of which each read makes a new object."""
    owner = obj.__self__ if isinstance(obj, BOUND_BUILTINS) else None
    return owner is not None and not issubclass(type(owner), types.ModuleType)


def _method(t: Interpreter, obj: types.MethodType, source: Source) -> Value:
    owner = t.values.wrap(obj.__self__, AttrSource(source, "__self__"))
    function = t.values.wrap(obj.__func__, AttrSource(source, "__func__"))
    return MethodValue(owner, function, source)


def _function_wrapper(attribute: str) -> Wrapper:
    """Return what wraps objects whose calls are traced as those of the function in an attribute."""

    def wrap(t: Interpreter, obj: Any, source: Source) -> Value:
        if not hasattr(obj, attribute):
            return OpaqueValue(obj, source)
        function = t.values.wrap(getattr(obj, attribute), AttrSource(source, attribute))
        t.guards.add("TYPE", source, type(obj))
        return FunctionWrapperValue(obj, source, attribute, function)

    return wrap


def _class(t: Interpreter, obj: type, source: Source) -> Value:
    t.guards.add("ID", source, obj)
    return (
        ClassValue(obj, source)
        if annotation_of(obj) is None
        else AnnotatedValue(obj, source)
    )


def _python_module(t: Interpreter, obj: types.ModuleType, source: Source) -> Value:
    t.guards.add("ID", source, obj)
    return PythonModuleValue(obj, source)


def _nn_module(t: Interpreter, obj: torch.nn.Module, source: Source) -> Value:
    t.guards.add("TYPE", source, type(obj))
    return NNModuleValue(type(obj), obj, source)


def _object(t: Interpreter, obj: Any, source: Source) -> Value:
    if callable(obj) and annotation_of(obj) is not None:
        t.guards.add("ID", source, obj)
        return AnnotatedValue(obj, source)
    t.guards.add("TYPE", source, type(obj))
    return ObjectValue(type(obj), obj, source)


def _slice(t: Interpreter, obj: slice, source: Source) -> Value:
    names = ("start", "stop", "step")
    t.guards.add("TYPE", source, slice)
    return SliceValue(
        [t.values.wrap(getattr(obj, n), AttrSource(source, n)) for n in names]
    )


def _is_plain_tensor(obj: Any) -> bool:
    plain = type(obj) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
    return plain and _can_be_faked(obj)


def _can_be_faked(obj: torch.Tensor) -> bool:
    """Return whether a tensor has sizes and strides, and so has the one that it is a view of."""
    if obj.layout is not torch.strided or torch._is_functional_tensor(obj):
        return False
    if obj.is_nested or obj.is_quantized:
        return False
    return not (obj._is_view() and obj._base is not None and obj._base.is_nested)


def _fake_tensor(t: Interpreter, obj: FakeTensor, source: Source) -> Value:
    """Wrap a fake tensor of the user; results computed from it are fake too."""
    t.output.marks.add(FAKED)
    symbolic = frozenset(
        i for i, n in enumerate(obj.shape) if isinstance(n, torch.SymInt)
    )
    dims = t.sizes.dimensions(source, obj) | symbolic
    with t.state.as_at_entry():
        fake = t.shapes.fake(obj, source, dims)
        spec = TensorSpec.of(obj, free_size(fake), free_stride(fake))
    t.guards.add("TENSOR", source, spec)
    value = tensor_value(None, fake, source, obj)
    t.values.tensors.append(value)
    return value


def _is_derived_tensor(obj: Any) -> bool:
    """Return whether a tensor is of a subclass that only adds Python attributes and methods."""
    cls = type(obj)
    if not isinstance(obj, torch.Tensor) or cls.__torch_dispatch__ is not _NO_DISPATCH:
        return False
    if torch.nn.parameter.is_lazy(obj):
        return False  # it has no shape yet
    if any(own_attribute(cls, name) is not MISSING for name in READ):
        return False  # torch would read attributes that the class overrides
    return not is_wrapper(cls) and _can_be_faked(obj)


#: attributes that are read to make a fake of a tensor
READ = (
    "shape",
    "size",
    "stride",
    "storage_offset",
    "dtype",
    "device",
    "layout",
    "ndim",
    "dim",
    "requires_grad",
    "is_leaf",
    "numel",
    "data_ptr",
    "grad",
    "untyped_storage",
    "is_nested",
    "is_sparse",
)
_NO_DISPATCH = torch.Tensor.__torch_dispatch__


def _is_plain_object(obj: Any) -> bool:
    cls = type(obj)
    if cls in (threading.local, types.SimpleNamespace):
        return True
    if cls.__module__ == "builtins" or issubclass(
        cls, torch.Tensor | type | BaseException
    ):
        return False
    if cls.__module__.partition(".")[0] in OPAQUE_PACKAGES:
        return False
    bases = (dict, list, tuple, set, frozenset, str, bytes, int, float, complex)
    if issubclass(cls, bases) or not is_heap_type(cls):
        return False
    return instance_dict(obj) is not None or hasattr(cls, "__slots__")


def _names_its_class(obj: Any) -> bool:
    """Return whether an object says what its class is, which ``isinstance`` asks, here and in C."""
    try:
        return bool(obj.__class__)
    except Exception:  # what the program raises
        return False


OPAQUE_PACKAGES = frozenset(
    ("logging", "threading", "re", "io", "numpy", "random", "_thread")
)


def _kind(*kinds: type) -> Callable[[Any], bool]:
    return lambda obj: type(obj) in kinds


def _subclass(*kinds: type) -> Callable[[Any], bool]:
    """Return whether objects are in truth of some classes, whatever they say of themselves."""
    return lambda obj: issubclass(type(obj), kinds)


#: tried in order; the first row whose predicate accepts the object wraps it
ROWS: tuple[tuple[Callable[[Any], bool], Wrapper], ...] = (
    (is_constant_object, _constant),
    (library.is_unchanging, library.wrap_unchanging),
    (_is_plain_tensor, _tensor),
    (_is_derived_tensor, _tensor),
    (_kind(FakeTensor), _fake_tensor),
    (wrappers.accepts, wrappers.wrap_wrapper),
    (is_array, _array),
    (_subclass(np.dtype), _numpy_dtype),
    (lambda obj: numpy_name(obj) is not None, _numpy_function),
    (array_folds.is_foldable, array_folds.wrap_foldable),
    (_kind(list, collections.deque), _list),
    (_kind(tuple, torch.Size), _tuple),
    (lambda obj: issubclass(type(obj), tuple) and is_heap_type(type(obj)), _tuple),
    (lambda obj: is_struct_sequence(type(obj)), _tuple),
    (_kind(*DICT_KINDS), _dict),
    (dict_objects.accepts, dict_objects.wrap_dict_object),
    (list_objects.accepts, list_objects.wrap_list_object),
    (set_objects.accepts, set_objects.wrap_set_object),
    (number_objects.accepts, number_objects.wrap_number_object),
    (proxies.accepts, proxies.wrap_proxy),
    (_kind(set, frozenset), _set),
    (_kind(slice), _slice),
    (deferred_calls.is_reorderable, deferred_calls.wrap_reorderable),
    (_kind(*records.FIELDS), records.wrap_record),
    (_kind(weakref.ref), records.wrap_weak_reference),
    (_kind(contextvars.ContextVar), context_vars.wrap_context_var),
    (_kind(contextvars.Token), context_vars.wrap_token),
    (_kind(torch.jit.ScriptFunction), _function_wrapper("_torchdynamo_inline")),
    (is_generic, wrap_generic),
    (lambda obj: type(obj) in DESCRIPTORS, wrap_descriptor),
    (_kind(types.FunctionType), _function),
    (random_numbers.accepts, random_numbers.wrap_generator),
    (random_numbers.is_method, random_numbers.wrap_method),
    (_kind(types.MethodType), _method),
    (_kind(functools.partial), wrap_partial),
    (_kind(functools._lru_cache_wrapper), _function_wrapper("__wrapped__")),
    (_kind(*GETTERS), wrap_getter),
    (_kind(*RANGE_ITERATORS, *SEQUENCE_ITERATORS), wrap_iterator),
    (_subclass(*BUILTIN_TYPES), _builtin),
    (torch_functions.is_op, _builtin),
    (torch_functions.is_higher_order, _builtin),
    (_subclass(type), _class),
    (_subclass(types.ModuleType), _python_module),
    (_subclass(torch.nn.Module), _nn_module),
    (triton_kernels.is_kernel, triton_kernels.wrap_kernel),
    (collectives.is_group, collectives.wrap_group),
    (torch_compiler.is_context, torch_compiler.wrap_context),
    (_is_plain_object, _object),
)
