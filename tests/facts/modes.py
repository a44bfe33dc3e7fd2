"""Facts about modes and settings of torch, of the thread and of the process."""

from __future__ import annotations

from fact_world import Family

modes = Family("modes")


def _enter(name: str, expression: str, context: str, setup: str = "") -> None:
    """Add a fact about a context in which ``f(x)`` is called."""
    modes(name, f"{setup}\ndef f(x):\n    return {expression}\nargs = t(1),", f"enter({context})")


def _set(name: str, expression: str, change: str, undo: str, setup: str = "") -> None:
    """Add a fact about a setting that ``f(x)`` reads or is computed under."""
    change = f"defer(lambda: {undo})\n{change}"
    modes(name, f"{setup}\ndef f(x):\n    return {expression}\nargs = t(1),", change)


_W = "w = torch.ones(3, requires_grad=True)"
_enter("no_grad", "x * w", "torch.no_grad()", _W)
_enter("no_grad_read", "x * (1 if torch.is_grad_enabled() else 2)", "torch.no_grad()")
_enter("enable_grad", "x * w", "torch.enable_grad()", _W + "\nenter(torch.no_grad())")
_enter("inference_mode", "x * w", "torch.inference_mode()", _W)
_enter(
    "inference_mode_read",
    "x * (1 if torch.is_inference_mode_enabled() else 2)",
    "torch.inference_mode()",
)
_enter(
    "dispatch_modes_counted",
    "x * (1 + torch._C._len_torch_dispatch_stack())",
    "torch.utils._python_dispatch.TorchDispatchMode()",
)
_enter("inference_mode_result", "(x + 1).is_inference()", "torch.inference_mode()")
_enter("autocast", "x @ x.t()", "torch.autocast('cpu', dtype=torch.bfloat16)")
_enter(
    "autocast_dtype",
    "x @ x.t()",
    "torch.autocast('cpu', dtype=torch.float16)",
    "enter(torch.autocast('cpu', dtype=torch.bfloat16))",
)
_enter(
    "autocast_off",
    "x @ x.t()",
    "torch.autocast('cpu', enabled=False)",
    "enter(torch.autocast('cpu', dtype=torch.bfloat16))",
)
_enter(
    "autocast_read",
    "x * (1 if torch.is_autocast_enabled('cpu') else 2)",
    "torch.autocast('cpu', dtype=torch.bfloat16)",
)
for _name, _read in {
    "read": "x * (1 if torch.get_autocast_dtype('cpu') == torch.bfloat16 else 2)",
    "read_of_cpu": "x * (1 if torch.get_autocast_cpu_dtype() == torch.bfloat16 else 2)",
    "read_of_gpu": "x * (1 if torch.get_autocast_gpu_dtype() == torch.float16 else 2)",
    "of_a_block": "cast(x)",
}.items():
    _device, _other, _usual = (
        ("cuda", "bfloat16", "float16") if "gpu" in _name else ("cpu", "float16", "bfloat16")
    )
    _set(
        f"autocast_dtype_while_off_{_name}",
        _read,
        f"torch.set_autocast_dtype('{_device}', torch.{_other})",
        f"torch.set_autocast_dtype('{_device}', torch.{_usual})",
        "def cast(x):\n    with torch.autocast('cpu'):\n        return x @ x.t()",
    )
_enter(
    "autocast_dtype_read",
    "x * (1 if torch.get_autocast_dtype('cpu') == torch.bfloat16 else 2)",
    "torch.autocast('cpu', dtype=torch.float16)",
    "enter(torch.autocast('cpu', dtype=torch.bfloat16))",
)
_enter(
    "autocast_cache_read",
    "x * (1 if torch.is_autocast_cache_enabled() else 2)",
    "torch.autocast('cpu', dtype=torch.bfloat16, cache_enabled=False)",
)
_enter("default_device", "torch.ones(3)", "torch.device('meta')")
_enter(
    "default_device_read",
    "x * (1 if torch.get_default_device().type == 'cpu' else 2)",
    "torch.device('meta')",
)
_enter(
    "function_mode",
    "torch.sin(x)",
    "Mode()",
    """
class Mode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out * 9 if func is torch.sin else out
""",
)
_enter(
    "function_mode_on_method",
    "x.sin()",
    "Mode()",
    """
class Mode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return torch.cos(out) if func is torch.Tensor.sin else out
""",
)
_enter(
    "dispatch_mode",
    "torch.sin(x)",
    "Mode()",
    """
class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.sin.default:
            return torch.ops.aten.cos.default(*args)
        return func(*args, **(kwargs or {}))
""",
)
_enter(
    "saved_tensor_hooks",
    "g(x)",
    "torch.autograd.graph.saved_tensors_hooks(lambda v: v * 3, lambda v: v)",
    """
def g(x):
    y = x.clone().requires_grad_()
    (y * y).sum().backward()
    return y.grad
""",
)
_enter(
    "anomaly_read",
    "x * (1 if torch.is_anomaly_enabled() else 2)",
    "torch.autograd.set_detect_anomaly(True)",
)
_enter(
    "multithreading_read",
    "x * (1 if torch.autograd.is_multithreading_enabled() else 2)".replace(
        "torch.autograd.is", "torch._C._is"
    ),
    "torch.autograd.set_multithreading_enabled(False)",
)
_enter(
    "sdp_kernel",
    "x * (1 if torch.backends.cuda.math_sdp_enabled() else 2)",
    "torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION)",
    "import torch.nn.attention",
)
_enter(
    "profiler_read",
    "x * (1 if torch.autograd._profiler_enabled() else 2)",
    "torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])",
    "import torch.profiler",
)
_set(
    "default_dtype",
    "torch.ones(3) * 2",
    "torch.set_default_dtype(torch.float64)",
    "torch.set_default_dtype(torch.float32)",
)
_set(
    "default_dtype_of_scalars",
    "torch.tensor(1.5) * torch.arange(3)",
    "torch.set_default_dtype(torch.float64)",
    "torch.set_default_dtype(torch.float32)",
)
_set(
    "default_dtype_of_division",
    "torch.arange(3) / 2",
    "torch.set_default_dtype(torch.float64)",
    "torch.set_default_dtype(torch.float32)",
)
_set(
    "default_dtype_read",
    "x * (1 if torch.get_default_dtype() == torch.float32 else 2)",
    "torch.set_default_dtype(torch.float64)",
    "torch.set_default_dtype(torch.float32)",
)
_set(
    "default_device_set",
    "torch.ones(3)",
    "torch.set_default_device('meta')",
    "torch.set_default_device(None)",
)
_set(
    "deterministic_read",
    "x * (1 if torch.are_deterministic_algorithms_enabled() else 2)",
    "torch.use_deterministic_algorithms(True)",
    "torch.use_deterministic_algorithms(False)",
)
_set(
    "deterministic_warn_read",
    "x * (1 if torch.is_deterministic_algorithms_warn_only_enabled() else 2)",
    "torch.use_deterministic_algorithms(True, warn_only=True)",
    "torch.use_deterministic_algorithms(False)",
)
_set(
    "deterministic_debug_read",
    "x * (1 + torch.get_deterministic_debug_mode())",
    "torch.set_deterministic_debug_mode(1)",
    "torch.set_deterministic_debug_mode(0)",
)
_set(
    "threads_read",
    "x * torch.get_num_threads()",
    "torch.set_num_threads(before + 1)",
    "torch.set_num_threads(before)",
    "before = torch.get_num_threads()",
)
_set(
    "matmul_precision_read",
    "x * (1 if torch.get_float32_matmul_precision() == 'highest' else 2)",
    "torch.set_float32_matmul_precision('high')",
    "torch.set_float32_matmul_precision('highest')",
)
_set(
    "deterministic_empty",
    "x * (1 if torch.utils.deterministic.fill_uninitialized_memory else 2)",
    "torch.utils.deterministic.fill_uninitialized_memory = False",
    "setattr(torch.utils.deterministic, 'fill_uninitialized_memory', True)",
    "import torch.utils.deterministic",
)
for _name, _path in (
    ("cudnn_enabled", "torch.backends.cudnn.enabled"),
    ("cudnn_benchmark", "torch.backends.cudnn.benchmark"),
    ("cudnn_deterministic", "torch.backends.cudnn.deterministic"),
    ("cudnn_tf32", "torch.backends.cudnn.allow_tf32"),
    ("matmul_tf32", "torch.backends.cuda.matmul.allow_tf32"),
    ("reduced_precision", "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction"),
    ("mkldnn_enabled", "torch.backends.mkldnn.enabled"),
    ("mkldnn_deterministic", "torch.backends.mkldnn.deterministic"),
    ("opt_einsum", "torch.backends.opt_einsum.enabled"),
):  # fmt: skip
    _owner, _, _attribute = _path.rpartition(".")
    _set(
        f"{_name}_read",
        f"x * (1 if {_path} else 2)",
        f"{_path} = not before",
        f"setattr({_owner}, {_attribute!r}, before)",
        f"before = {_path}",
    )
for _kernel in ("flash", "mem_efficient", "math", "cudnn"):
    _set(
        f"sdp_{_kernel}_read",
        f"x * (1 if torch.backends.cuda.{_kernel}_sdp_enabled() else 2)",
        f"torch.backends.cuda.enable_{_kernel}_sdp(not before)",
        f"torch.backends.cuda.enable_{_kernel}_sdp(before)",
        f"before = torch.backends.cuda.{_kernel}_sdp_enabled()",
    )
_set(
    "flush_denormal",
    "x * 1e-38 * 1e-3 * 1e38 * 1e3",
    "torch.set_flush_denormal(True)",
    "torch.set_flush_denormal(False)",
)
_set(
    "rng_state",
    "g(x)",
    "torch.manual_seed(5)",
    "torch.manual_seed(0)",
    """
def g(x):
    s = torch.get_rng_state()
    y = x + torch.rand(3)
    torch.set_rng_state(s)
    return y
torch.manual_seed(0)
""",
)
_set(
    "initial_seed_read",
    "x * torch.initial_seed()",
    "torch.manual_seed(5)",
    "torch.manual_seed(1)",
    "torch.manual_seed(1)",
)
_set(
    "print_options",
    "x * len(str(torch.tensor(1.23456)))",
    "torch.set_printoptions(precision=2)",
    "torch.set_printoptions(profile='default')",
)
_set(
    "future_flag",
    "x * (1 if torch.__future__.get_overwrite_module_params_on_conversion() else 2)",
    "torch.__future__.set_overwrite_module_params_on_conversion(True)",
    "torch.__future__.set_overwrite_module_params_on_conversion(False)",
    "import torch.__future__",
)
_set(
    "sparse_invariants",
    "x * (1 if torch.sparse.check_sparse_tensor_invariants.is_enabled() else 2)",
    "torch.sparse.check_sparse_tensor_invariants.enable()",
    "torch.sparse.check_sparse_tensor_invariants.disable()",
)
_set(
    "warn_always",
    "x * (1 if torch.is_warn_always_enabled() else 2)",
    "torch.set_warn_always(True)",
    "torch.set_warn_always(False)",
)
_set(
    "numpy_error_state",
    "x * (1 if np.geterr()['divide'] == 'warn' else 2)",
    "np.seterr(divide='ignore')",
    "np.seterr(**before)",
    "before = np.geterr()",
)
_set(
    "gil_interval",
    "x * (1 if sys.getswitchinterval() < 0.1 else 2)",
    "sys.setswitchinterval(0.5)",
    "sys.setswitchinterval(before)",
    "before = sys.getswitchinterval()",
)
_set(
    "recursion_limit",
    "x * (1 if sys.getrecursionlimit() == before else 2)",
    "sys.setrecursionlimit(before + 100)",
    "sys.setrecursionlimit(before)",
    "before = sys.getrecursionlimit()",
)
_set("gc_enabled", "x * (1 if gc.isenabled() else 2)", "gc.disable()", "gc.enable()")
modes(
    "grad_mode_inside",
    f"""{_W}
def f(x, on):
    with torch.set_grad_enabled(on):
        return x * w
args = t(1), True
""",
    "args = t(1), False",
)
modes(
    "autocast_inside",
    """
    D = torch.bfloat16
    def f(x):
        with torch.autocast("cpu", dtype=D):
            return x @ x.t()
    args = t(1),
    """,
    "D = torch.float16",
)
modes(
    "context_object",
    """
    C = contextlib.nullcontext
    w = torch.ones(3, requires_grad=True)
    def f(x):
        with C():
            return x * w
    args = t(1),
    """,
    "C = torch.no_grad",
)
modes(
    "context_object_instance",
    """
    C = contextlib.nullcontext(2)
    def f(x):
        with C as k:
            return x * k
    args = t(1),
    """,
    "C = contextlib.nullcontext(5)",
)
modes(
    "forward_ad_level",
    """
    import torch.autograd.forward_ad as fwAD
    def f(x):
        y = x * 2
        tangent = fwAD.unpack_dual(y).tangent
        return y if tangent is None else tangent
    args = t(1),
    """,
    """
    enter(fwAD.dual_level())
    args = fwAD.make_dual(t(1), t(2)),
    """,
)
