"""torch functions: decides which become graph nodes and which are evaluated while tracing."""

from __future__ import annotations

import functools
import importlib
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from tc.compiler.capture import breaks
from tc.compiler.capture.torch_api.annotated import AnnotatedValue, annotation_of
from tc.compiler.capture.traceable import group_tensors, set_error_on_graph_break
from tc.compiler.capture.values import numbers
from tc.compiler.capture.values.array_calls import tensor_copy
from tc.compiler.capture.values.array_operands import COPY_OPTIONS, unboxed
from tc.compiler.capture.values.arrays import ArrayValue
from tc.compiler.capture.values.base import Args, KnownObject, Kwargs, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.functions import wrap_function
from tc.compiler.capture.values.handlers import BY_NAME, HANDLERS, Handler, handles
from tc.compiler.capture.values.tensor import NodeValue, SymValue, TensorValue
from tc.compiler.core.gpu import mark_warmup_incomplete
from tc.compiler.core.sources import Source

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface

#: functions with handlers that dispatch to ``__torch_function__`` first
OVERRIDABLE = frozenset(
    (torch.is_floating_point, torch.is_complex, torch.numel, torch.is_nonzero)
)

#: modules whose Python functions are recorded as one node
RECORDED = frozenset(("torch.functional", "torch.nn.functional"))
#: modules of builtins that are recorded
BUILTIN_HOMES = (
    "torch._C._nn",
    "torch._C._linalg",
    "torch._C._special",
    "torch._C._fft",
    "torch._C._sparse",
    "torch._VF",
)
REFUSED = frozenset(
    [
        "manual_seed",
        "seed",
        "initial_seed",
        "set_rng_state",
        "get_rng_state",
        "from_numpy",
        "frombuffer",
        "from_file",
        "set_default_device",
        "set_num_threads",
        "save",
        "load",
        "compile",
        "set_default_tensor_type",
    ]
)
#: mark on a graph that changes a state of torch while it runs
CHANGES_STATE = "tc_changes_state"


class TorchValue(KnownObject):
    """A torch function; a call of it becomes a node of the graph."""

    noun = "a torch function"

    def describe(self) -> str:
        return f"torch.{getattr(self.obj, '__name__', self.obj)}"

    def truth(self, t: Interpreter) -> bool:
        return True

    def attr(self, t: Interpreter, name: str) -> Value:
        return t.python.folded(getattr, self.obj, name)

    def call(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        name = getattr(self.obj, "__name__", "")
        if name in REFUSED:
            self.cannot(breaks.BUILTIN_CALL, f"torch.{name}()")
        try:
            return t.output.call_torch(self.obj, args, kwargs)
        except breaks.GraphBreak as cause:
            written_in_python = isinstance(self.obj, types.FunctionType)
            if not (
                cause.reason in (breaks.TENSOR_ITEM, *breaks.OF_DATA)
                and written_in_python
            ):
                raise
        # It looks at data, perhaps for no more than to check its arguments.
        return wrap_function(t, self.obj, self.source).call(t, args, kwargs)

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_object(self.obj)


class HandledValue(TorchValue):
    """A torch function with a handler of its own."""

    def call(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        if self.obj in OVERRIDABLE:
            found = t.intercept(self.obj, args, kwargs)
            if found is not None:
                return found
        return breaks.call_handler(
            self.describe(), HANDLERS[id(self.obj)], t, args, kwargs
        )


class TensorDescriptor(TorchValue):
    """An unbound method of Tensor (``torch.Tensor.add``)."""

    def call(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        owner = args[0]
        if not isinstance(owner, TensorValue):
            found = t.intercept(self.obj, args, kwargs)
            if found is not None:
                return found
            self.cannot(breaks.UNSUPPORTED_CALL, f"Tensor.{self.obj.__name__}")
        return owner.base_method(t, self.obj.__name__, args[1:], kwargs)


class TensorGetter(TorchValue):
    """The getter of an attribute of tensors (``torch.Tensor.ndim.__get__``)."""

    def describe(self) -> str:
        return f"torch.Tensor.{self.obj.__self__.__name__}.__get__"

    def call(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        name = self.obj.__self__.__name__
        if isinstance(args[0], TensorValue):
            return args[0].base_attr(t, name)
        return args[0].attr(t, name)


def is_op(obj: Any) -> bool:
    """Return whether an object is an operator of the torch.ops namespace."""
    return isinstance(obj, torch._ops.OpOverload | torch._ops.OpOverloadPacket)


def is_higher_order(obj: Any) -> bool:
    """Return whether an object is an operation that takes functions."""
    return isinstance(obj, torch._ops.HigherOrderOperator)


def _of_condition(name: str) -> Handler:
    """Return the handler of a function that evaluates a condition on sizes by a rule of its own."""

    def decide(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        function = getattr(importlib.import_module(SYMBOLIC_SHAPES), name)
        if isinstance(args[0], SymValue):
            return ConstValue(t.shapes.guarded(function, args[0].example))
        return ConstValue(function(args[0].truth(t)))

    return decide


SYMBOLIC_SHAPES = "torch.fx.experimental.symbolic_shapes"
for _name in (
    "guard_size_oblivious",
    "guard_or_false",
    "guard_or_true",
    "statically_known_true",
    "statically_known_false",
    "definitely_true",
    "definitely_false",
):
    BY_NAME.add(f"{SYMBOLIC_SHAPES}.{_name}", _of_condition(_name))


def _has_unknown_sizes(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    found = importlib.import_module(SYMBOLIC_SHAPES).has_free_unbacked_symbols
    return ConstValue(isinstance(args[0], NodeValue) and bool(found(args[0].example)))


BY_NAME.add(f"{SYMBOLIC_SHAPES}.has_free_unbacked_symbols", _has_unknown_sizes)


def _compiling(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    t.output.asks_if_compiling = True
    return ConstValue(not _has_always_called_hooks(t))


def _has_always_called_hooks(t: Interpreter) -> bool:
    """Return whether it is a module's ``_call_impl`` that asks, and has hooks with ``always_call``.

    Such hooks run even if forward raises. PyTorch leaves them out where the call is compiled.
    """
    frame = t.top
    if frame is None or frame.code is not torch.nn.Module._call_impl.__code__:
        return False
    of_all = torch.nn.modules.module._global_forward_hooks_always_called
    t.guards.definitions.count(of_all)
    own = frame.local("self").attr(t, "_forward_hooks_always_called")
    return bool(of_all) or own.truth(t)


BY_NAME.add("torch._dynamo.external_utils.is_compiling", _compiling)


def classify(obj: Any) -> Callable[[Any, Source | None], Value] | None:
    """Return how a torch function, or one that users marked, is wrapped; None: it is inlined."""
    if annotation_of(obj) is not None:
        return AnnotatedValue
    if id(obj) in HANDLERS:
        return HandledValue
    if is_op(obj):
        return TorchValue
    if isinstance(obj, types.MethodWrapperType):
        getter = obj.__name__ == "__get__" and _is_tensors(obj.__self__)
        return TensorGetter if getter else None
    module = getattr(obj, "__module__", None) or ""
    if isinstance(obj, types.FunctionType):
        if (
            module == "torch._tensor"
            and getattr(torch.Tensor, obj.__name__, None) is obj
        ):
            return TensorDescriptor
        return TorchValue if module in RECORDED and not _takes_callables(obj) else None
    if _is_tensors(obj):
        return TensorDescriptor
    if isinstance(obj, types.BuiltinFunctionType):
        home = getattr(obj, "__self__", None)
        if home is torch._C._VariableFunctions or module in BUILTIN_HOMES:
            return TorchValue
        if isinstance(home, types.ModuleType) and home.__name__ in BUILTIN_HOMES:
            return TorchValue
        if getattr(torch, obj.__name__, None) is obj and module in ("torch", ""):
            return TorchValue
    return None


def _is_tensors(obj: Any) -> bool:
    owner = getattr(obj, "__objclass__", None)
    return owner is not None and issubclass(owner, torch._C.TensorBase)


def _takes_callables(obj: types.FunctionType) -> bool:
    return obj.__name__ in (
        "triplet_margin_with_distance_loss",
        "boolean_dispatch",
        "fn",
    )


def _always(result: Any) -> Handler:
    return lambda t, args, kwargs: t.values.known(result)


def _find(path: str) -> Any:
    found: Any = torch
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


_C = torch._C
handles(
    torch.compiler.is_compiling,
    torch.compiler.is_dynamo_compiling,
    _find("_utils.is_compiling"),
)(_compiling)
handles(
    torch.compiler.is_exporting,
    _find("jit.is_scripting"),
    _find("jit.is_tracing"),
    torch._jit_internal.is_scripting,
    _C._is_tracing,
    torch.overrides.is_tensor_method_or_property,
    _find("fx._symbolic_trace.is_fx_tracing"),
    _find("fx._symbolic_trace.is_fx_symbolic_tracing"),
    torch.cuda.is_current_stream_capturing,
)(_always(False))
handles(_C._get_tracing_state, _C._log_api_usage_once)(_always(None))


def _fold_of(function: Any) -> Handler:
    def fold(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        plain = t.python.concrete_list(args)
        named = t.python.concrete_dict(kwargs)
        return t.python.folded(function, *plain, **named)

    return fold


for _name in (
    "is_grad_enabled",
    "is_autocast_enabled",
    "get_default_dtype",
    "is_autocast_cache_enabled",
    "promote_types",
    "can_cast",
    "result_type",
    "get_num_threads",
    "are_deterministic_algorithms_enabled",
    "is_deterministic_algorithms_warn_only_enabled",
    "finfo",
    "iinfo",
    "is_autocast_cpu_enabled",
    "backends.cuda.is_built",
    "cuda.is_available",
    "cuda.device_count",
    "backends.mps.is_available",
    "xpu.is_available",
    "broadcast_shapes",
    "_C._get_cudnn_enabled",
    "_C._is_any_autocast_enabled",
    "_C._is_autocast_available",
    "typename",
    "_C._get_default_device",
    "cuda.is_bf16_supported",
    "_C._functorch.maybe_current_level",
    "_C._is_fwd_grad_enabled",
    "_C._get_graph_exec_group",
    "autograd._is_checkpoint_valid",
    "_C._get_cublas_allow_tf32",
    "_C._are_functorch_transforms_active",
    "backends.mkldnn.is_available",
    "distributed.is_available",
    "_C._get_privateuse1_backend_name",
    "_C._get_accelerator",
    "backends.opt_einsum.is_available",
):
    if (_function := _find(_name)) is not None and _name != "result_type":
        handles(_function)(_fold_of(_function))


@handles(torch.is_tensor)
def _is_tensor(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    return ConstValue(isinstance(args[0], TensorValue))


def _as_method(name: str) -> Handler:
    def handler(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        rest = dict(kwargs)
        owner = args[0] if args else rest.pop("input")
        return owner.method(t, name, args[1:], rest)

    return handler


def _unless(handled: Callable[..., Value | None], function: Any) -> Handler:
    """Return a handler that records the call if another handler returns None."""

    def handler(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        found = handled(t, args, kwargs)
        return t.output.call_torch(function, args, kwargs) if found is None else found

    return handler


def _with_tensor_factor(
    t: Interpreter, args: Args, kwargs: Kwargs, name: str
) -> Value | None:
    factor = kwargs.get("value", kwargs.get("alpha"))
    if not isinstance(factor, TensorValue):
        return None
    if not args or "out" in kwargs:
        return None
    return args[0].method(t, name, args[1:], kwargs)


def _of_arrays(handler: Handler) -> Handler:
    """Return a handler of a function that makes a tensor, for which numpy scalars are arrays."""

    def handled(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        named = {key: unboxed(t, value) for key, value in kwargs.items()}
        return handler(t, [unboxed(t, arg) for arg in args], named)

    return handled


for _function, _handled in (
    (torch._foreach_lerp_, numbers.each_lerp),
    (torch._foreach_pow, numbers.each_pow),
    (torch._foreach_addcdiv, numbers.each_scaled("addcdiv")),
    (torch._foreach_addcdiv_, numbers.each_scaled("addcdiv_")),
    (torch._foreach_addcmul, numbers.each_scaled("addcmul")),
    (torch._foreach_addcmul_, numbers.each_scaled("addcmul_")),
    (torch.addcmul, functools.partial(_with_tensor_factor, name="addcmul")),
    (torch.addcdiv, functools.partial(_with_tensor_factor, name="addcdiv")),
    (torch.add, functools.partial(_with_tensor_factor, name="add")),
    (torch.sub, functools.partial(_with_tensor_factor, name="sub")),
):
    handles(_function)(_unless(_handled, _function))


_of_others = _of_arrays(numbers.making(torch.tensor))


@handles(torch.tensor)
def _tensor(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    named = {**dict(zip(("data",), args, strict=False)), **kwargs}
    data = named.pop("data", None)
    if not isinstance(data, ArrayValue) or set(named) - COPY_OPTIONS:
        return _of_others(t, args, kwargs)
    return t.output.call_torch(tensor_copy, [data.tensor], named)


for _function in (torch.as_tensor, torch.asarray):
    handles(_function)(_of_arrays(numbers.making(_function)))


for _function in OVERRIDABLE - {torch.is_nonzero}:
    handles(_function)(_as_method(_function.__name__))


@handles(torch.from_numpy)
def _from_numpy(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    if not isinstance(args[0], ArrayValue):
        raise breaks.GraphBreak(breaks.BUILTIN_CALL, "torch.from_numpy()")
    tensor = args[0].tensor
    return t.output.call_torch("view_as", [tensor, tensor], {}, method=True)


@handles(torch.is_nonzero)
def _is_nonzero(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    return ConstValue(args[0].truth(t))


@handles(torch.jit.annotate)
def _annotate(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    return args[1]


@handles(torch._assert)
def _assert(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    condition = args[0]
    if isinstance(condition, TensorValue):
        return t.output.call_torch(torch._assert, args, kwargs)
    if not condition.truth(t):
        t.python.raise_(AssertionError, *args[1:])
    return ConstValue(None)


def _check(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(args[0], SymValue):
        # the message may be a function
        return t.output.call_torch(torch._check, args[:1], {})
    if not args[0].truth(t):
        t.python.raise_(RuntimeError, "Expected cond to be True, but got False.")
    return ConstValue(None)


handles(torch._check)(_check)


@handles(torch._check_is_size)
def _check_is_size(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(args[0], SymValue):
        return t.output.call_torch(torch._check_is_size, args[:1], {})
    return ConstValue(None)


def graph_break(msg: str = "") -> None:
    """Break the graph here; does nothing outside of compiled code.

    Args:
        msg: reported as a note on the break.
    """


def is_compiling() -> bool:
    """Return whether the code is under capture, by tc or by PyTorch: False in other code."""
    return torch.compiler.is_compiling()


handles(is_compiling)(_compiling)


@handles(graph_break)
def _graph_break(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    given = t.python.concrete_list([*args, *kwargs.values()])
    text = "".join(str(one) for one in given)
    raise breaks.GraphBreak(breaks.USER_BREAK, note=text)


BY_NAME.add("torch._dynamo.decorators.graph_break", _graph_break)


def skip_frame(msg: str = "") -> None:
    """Leave the compiled frame that this is called in to Python; does nothing outside of one.

    Args:
        msg: reported as the reason.
    """


@handles(skip_frame)
def _skip_frame(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    reason = t.python.concrete_list([*args, *kwargs.values()])
    raise breaks.SkipFrame(": ".join(["skip_frame() was called", *map(str, reason)]))


def mark_step() -> None:
    """Mark the start of an iteration: does nothing, as tc keeps no memory for replayed graphs."""


handles(
    mark_step,
    mark_warmup_incomplete,
    torch.compiler.cudagraph_mark_step_begin,
    vars(torch.compiler).get("cudagraph_mark_warmup_incomplete"),  # since torch 2.14
)(_always(None))


@handles(torch._C._group_tensors_by_device_and_dtype)
def _group(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    return t.inline_object(group_tensors, args, kwargs)


@handles(set_error_on_graph_break)
def _set_error_on_graph_break(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    before = t.strict
    t.strict = t.python.concrete(args[0])
    return t.values.known(before)


def _make_module(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Trace ``Module.__init__`` where torch.compile has patched it to record each module."""
    patched: Any = torch.nn.Module.__init__
    original = dict(
        zip(patched.__code__.co_freevars, patched.__closure__, strict=True)
    )["init"]
    return t.inline_object(original.cell_contents, args, kwargs)


_TAGGING = "torch._dynamo.mutation_guard.install_generation_tagging_init.<locals>"
BY_NAME.add(f"{_TAGGING}.patched_init", _make_module)
