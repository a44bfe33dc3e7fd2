"""Decides which frames are left to Python, and which functions are not inlined."""

from __future__ import annotations

import gc
import inspect
import itertools
import os
import sys
import sysconfig
import types
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.autograd import forward_ad

from tc.compiler.capture import breaks, entries
from tc.compiler.capture.guards.facts import transforms
from tc.compiler.capture.torch_api.optimizers import IN_PYTHON, is_around_step
from tc.compiler.core.sources import instance_dict

if TYPE_CHECKING:
    from tc.compiler.capture.hook import Frame
    from tc.compiler.capture.values.functions import FunctionValue

#: calls without tensors of a package's function before the function is captured too
PASSED = 16
#: the number of members of a list, or attributes of an object, searched for tensors
MEMBERS = 32
#: attribute that marks a function as disabled; its value is whether callees are too
DISABLED = "_tc_disabled"
#: packages whose functions act on the outside world or on hidden state
OUTSIDE = frozenset(
    [
        "logging",
        "warnings",
        "threading",
        "subprocess",
        "multiprocessing",
        "os",
        "io",
        "random",
        "time",
        "socket",
        "select",
        "signal",
        "tempfile",
        "shutil",
        "pathlib",
        "asyncio",
        "queue",
        "pickle",
        "json",
        "csv",
        "sqlite3",
        "urllib",
        "http",
        "unittest",
        "pdb",
        "traceback",
        "linecache",
        "structlog",
        "ctypes",
        "gc",
        "weakref",
        "atexit",
        "pytest",
        "_pytest",
        "hypothesis",
    ]
)
#: functions of these packages that only read state that guards can check
READING = frozenset(
    (
        "os.getenv",
        "os._Environ.__getitem__",
        "os._createenviron.<locals>.encode",
        "os._createenviron.<locals>.decode",
        *(
            f"warnings.catch_warnings.{name}"
            for name in ("__init__", "__enter__", "__exit__")
        ),
        *(
            f"warnings.{name}"
            for name in ("simplefilter", "filterwarnings", "_add_filter")
        ),
        *(
            f"weakref.WeakKeyDictionary.{name}"
            for name in vars(weakref.WeakKeyDictionary)
        ),
        *(
            f"random.Random.{name}"
            for name in ("shuffle", "choice", "choices", "sample")
        ),
    )
)
#: torch packages whose own frames are the user's model code
MODEL_CODE = (
    "torch.nn.modules.",
    "torch.optim.",
    "torch.nn.functional",
    "torch.distributions.",
)
NOT_MODEL_CODE = ("torch.nn.modules.module",)
#: modules of torch._functorch that are Python over the calls that push and pop levels
TRANSFORMS = frozenset(
    f"torch._functorch.{name}"
    for name in ("apis", "vmap", "eager_transforms", "functional_call", "utils")
)
#: Python that torch's compiled autograd puts into its graphs, to be traced through
ENGINE_CODE = "torch._dynamo.external_utils"
TRACEABLE = "tc.compiler.capture.traceable"
#: modules of tc that are traced into
TRACED = (
    "tc.examples",
    TRACEABLE,
    "tc.compiler.frontend.modules",
    "tc.compiler.aot.autograd",
)
#: torch modules whose functions only wrap functions of the user
DECORATORS = ("torch.utils._contextlib",)
_STDLIB = tuple(
    path
    for name in ("stdlib", "platstdlib")
    if (path := sysconfig.get_paths().get(name))
)
#: how the names start of code without a file that is Python's, numpy's or tc's own. Other such
#: names (`<stdin>`, `<doctest …>`, `<attrs generated …>`) belong to programs.
_NOT_OF_THE_PROGRAM = ("<frozen ", "<__array_function__ internals>", "<tc ")
_GENERATOR = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def in_transform() -> bool:
    """Return whether a transform of torch.func or forward-mode AD is active.

    Their tensors belong to functorch levels: they carry derivatives that fake tensors do not show.
    """
    return torch._C._functorch.peek_interpreter_stack() is not None or in_forward_mode()


def in_forward_mode() -> bool:
    """Return whether forward-mode AD is active."""
    return forward_ad._current_level >= 0


def can_be_captured() -> bool:
    """Return whether code under the active transforms can be captured with fake tensors."""
    return not in_forward_mode() and all(
        level[0] in ("Vmap", "Grad") for level in transforms()
    )


def skip_reason(frame: Frame) -> tuple[str, bool] | None:
    """Return why a frame is left to Python, and whether to warn users; None: capture it."""
    module = str(frame.globals.get("__name__", ""))
    if (module == "tc" or module.startswith("tc.")) and module != TRACEABLE:
        return "a frame of tc itself", False
    package = module.partition(".")[0]
    if package in ("torch", "sympy", "numpy", "triton") and not _is_model_code(module):
        return f"a frame of {package} itself", False
    if is_around_step(frame.code, module):
        return "a frame of torch itself, around an optimizer's step", False
    if module in IN_PYTHON:
        return "a frame of an optimizer that branches on data", False
    if any(_is_kernels(value) for value in frame.locals.values()):
        return "a Triton kernel under its interpreter", False
    if not frame.code.co_flags & inspect.CO_OPTIMIZED:
        return "the body of a class or module", False
    filename = frame.code.co_filename
    if filename.startswith(_NOT_OF_THE_PROGRAM):
        return f"code from {filename}", False
    if filename.startswith(_STDLIB) and "site-packages" not in filename:
        return "a frame of Python's own library", False
    if frame.code.co_flags & _GENERATOR:
        is_coroutine = frame.code.co_flags & inspect.CO_COROUTINE
        what = "coroutine" if is_coroutine else "generator"
        return f"{frame.code.co_qualname} is a {what}", True
    if frame.code.co_name in ("<module>", "__del__"):
        return f"{frame.code.co_name} is run once", False
    if any(
        getattr(callback, "__code__", None) is frame.code for callback in gc.callbacks
    ):
        return "it is called by the garbage collector, at any time", False
    return None


def is_being_imported(frame: Frame) -> bool:
    """Return whether a frame runs within an import: capture could need names that come later."""
    module = sys.modules.get(str(frame.globals.get("__name__", "")))
    if getattr(getattr(module, "__spec__", None), "_initializing", False):
        return True
    caller: types.FrameType | None = sys._getframe(1)
    if entries.was_entered(frame.code):
        return False
    while caller is not None:
        if caller.f_globals.get("__name__") == "importlib._bootstrap":
            return True
        if entries.was_entered(caller.f_code):
            return False  # it was called as a compiled function
        caller = caller.f_back
    return False


def runs_on_for_now(frame: Frame, state: dict[Any, Any]) -> bool:
    """Return whether a package's frame without tensors is left to Python for now.

    Much code of packages runs once (imports, look-ups, version checks) and is not worth a compile;
    code that is called again and again is.

    Args:
        state: the state of the code object, which counts the skipped calls.
    """
    passed = state.get("passed", 0)
    if passed >= PASSED or not is_packages_without_tensors(frame):
        return False
    state["passed"] = passed + 1
    return True


def is_packages_without_tensors(frame: Frame) -> bool:
    """Return whether a frame is a package's, and neither its locals nor its globals are torch's.

    What a program asked to compile counts as the program's own.
    """
    packages = f"{os.sep}site-packages{os.sep}" in frame.code.co_filename
    if not packages or entries.was_entered(frame.code):
        return False
    named = (frame.globals.get(name) for name in frame.code.co_names)
    return not any(map(_is_of_tensors, (*frame.locals.values(), *named)))


def _is_of_tensors(value: Any) -> bool:
    """Return whether a value is a tensor or array, directly contains one, or is torch's."""
    held: Iterable[Any] = ()
    if isinstance(value, list | tuple | set | frozenset):
        held = value
    elif isinstance(value, dict):
        held = value.values()
    elif not isinstance(value, type | types.ModuleType | types.FunctionType):
        held = (instance_dict(value) or {}).values()
    return any(map(_is_torchs, (value, *itertools.islice(held, MEMBERS))))


def _is_torchs(value: Any) -> bool:
    if isinstance(value, torch.Tensor | torch.nn.Module | np.ndarray):
        return True
    home = getattr(
        value, "__name__" if isinstance(value, types.ModuleType) else "__module__", None
    )
    return isinstance(home, str) and home.partition(".")[0] in ("torch", "numpy")


def stays_whole(module: str) -> bool:
    """Return whether a break inside a library's function is moved to the call of that function."""
    package = module.partition(".")[0]
    if package not in ("torch", "sympy", "numpy", "dataclasses") or _is_model_code(
        module
    ):
        return package == "tc"
    return module not in DECORATORS


def _is_kernels(value: object) -> bool:
    """Return whether a value is a tensor of Triton's language."""
    kind = type(value)
    return kind.__module__ == "triton.language.core" and kind.__name__ == "tensor"


def _is_model_code(module: str) -> bool:
    return module.startswith(MODEL_CODE) and not module.startswith(NOT_MODEL_CODE)


def inlined_only(function: Any) -> bool:
    """Return whether a callable has no frame to capture, but can be traced from a caller's.

    This holds for callables written in C, and for torch's own functions, whose frames are skipped.
    """
    if isinstance(function, types.MethodType | type):
        return False
    if not isinstance(function, types.FunctionType):
        function = type(function).__call__
    if not isinstance(function, types.FunctionType):
        return True
    module = str(function.__globals__.get("__name__", ""))
    of_torch = module.partition(".")[0] == "torch" and not _is_model_code(module)
    # the user's mark
    return of_torch and not vars(function).get("_torchdynamo_disable", False)


def _left_alone(function: types.FunctionType) -> breaks.Reason | None:
    """Return why a function that torch or the user marked is not traced; None for any other."""
    if getattr(function, DISABLED, None) is not None:
        return breaks.DISABLED_CALL
    if function.__code__.co_qualname == "_disable_dynamo.<locals>.inner":
        return breaks.LIBRARY_DISABLED
    return (
        breaks.DISABLED_CALL
        if getattr(function, "_torchdynamo_disable", False)
        else None
    )


def refuse_inlining(function: FunctionValue) -> None:
    """Break the graph at functions that must not be traced into."""
    obj: Any = function.obj
    reason = None if obj is None else _left_alone(obj)
    if reason is not None:
        raise breaks.GraphBreak(reason, function.name)
    module = str(function.module_globals.get("__name__", ""))
    if is_around_step(function.code, module):
        raise breaks.GraphBreak(breaks.OPTIMIZER_STEP)
    reads = f"{module}.{function.name}" in READING
    if module.partition(".")[0] in OUTSIDE and not reads:
        raise breaks.GraphBreak(breaks.of_call(module), f"{module}.{function.name}()")
    if module in TRANSFORMS or module == ENGINE_CODE:
        return
    if module.startswith(
        ("torch._dynamo", "torch._inductor", "torch._functorch", "torch.fx")
    ):
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, f"{module}.{function.name}")
    if module.startswith("tc.") and not module.startswith(TRACED):
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, f"{module}.{function.name}")
