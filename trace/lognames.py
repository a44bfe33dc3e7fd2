"""The names of TORCH_LOGS: in goes one that is no topic of TC_LOGS, out comes what to use."""

from __future__ import annotations

# Other names of TORCH_LOGS for what is a topic here, or several.
SAME_AS = {
    "aot": "aot_graphs",
    "aot_joint_graph": "aot_graphs",
    "autotuning_inputs": "autotuning",
    "benchmarking": "autotuning",
    "caching": "cache",
    "cudagraphs": "perf_hints",
    "ddp_graphs": "graph_code",
    "dynamo": "graph_breaks,recompiles",
    "graph": "graph_code",
    "graph_code_verbose": "graph_code",
    "graph_sizes": "graph_code",
    "inductor": "fusion,perf_hints,schedule",
    "inductor_metrics": "runtime",
    "ir_post_fusion": "schedule",
    "loop_ordering": "schedule",
    "loop_tiling": "schedule",
    "node_runtime_estimation": "runtime",
    "post_grad_graphs": "aot_graphs",
    "pre_grad_graphs": "graph_code",
    "recompiles_verbose": "+recompiles",
    "sym_node": "dynamic",
    "trace_shape_events": "dynamic",
    "verbose_guards": "+guards",
}
# Names of TORCH_LOGS for what tc does where PyTorch captures, so that PyTorch itself is silent.
OF_BACKEND = frozenset(
    {
        "aot_graphs", "aot_joint_graph", "autotuning", "autotuning_inputs", "benchmarking",
        "cudagraphs", "fusion", "inductor_metrics", "ir_post_fusion", "kernel_code",
        "loop_ordering", "loop_tiling", "node_runtime_estimation", "output_code", "perf_hints",
        "post_grad_graphs", "schedule",
    }
)  # fmt: skip
# Names of TORCH_LOGS for parts of PyTorch that work under tc as they do without it.
OF_TORCH = frozenset(
    {
        "autograd", "c10d", "custom_format_test_artifact", "ddp", "distributed", "dtensor",
        "export", "fake_tensor", "fsdp", "native_dsl",
        "native_dsl_compile", "not_implemented", "onnx",
        "onnx_diagnostics", "pp", "torch",
    }
)  # fmt: skip
# Names of TORCH_LOGS for what tc does not have, or keeps elsewhere -> what to use.
_TRACE = "TC_TRACE=FOLDER records what there is of it, and tc-report shows it"
_FOLDER = 'options={"trace.enabled": True} leaves it in a folder'
_NOTHING = "tc has no such step"
_CHAIN = "TC_LOGS=+graph_breaks shows the calls that lead to a break"
_PARTITION = "TC_LOGS=partition reports what forward keeps and backward computes again"
INSTEAD = {
    "annotation": _TRACE,
    "aot_graphs_effects": "TC_LOGS=aot_graphs shows the graphs with their writes",
    "async_compile": "TC_LOGS=summary reports the seconds that compiles take",
    "auto_chunker": _NOTHING,
    "bytecode": _TRACE,
    "compiled_autograd": _PARTITION,
    "compiled_autograd_verbose": _PARTITION,
    "compute_dependencies": "TC_LOGS=schedule reports the order of kernels",
    "cudagraph_static_inputs": _TRACE,
    "flex_gemm": _NOTHING,
    "graph_region_expansion": _NOTHING,
    "hierarchical_compile": _NOTHING,
    "incremental": "TC_LOGS=autotuning reports what is timed",
    "ir_pre_fusion": _FOLDER,
    "overlap": _NOTHING,
    "overlap_scheduling": _NOTHING,
    "partitioned_scatter": _NOTHING,
    "side_effects": _TRACE,
    "trace_bytecode": _CHAIN,
    "trace_call": _CHAIN,
    "trace_source": _CHAIN,
}


def instead_of(name: str) -> str | None:
    """Return what to use in place of a name that TORCH_LOGS has, and TC_LOGS has no topic for.

    A name with a dot is that of a module, whose logger TORCH_LOGS sets. ``modules`` is the argument
    of `torch._logging.set_logs` for these.
    """
    if name == "modules":
        return "which is about the loggers of modules; use torch._logging.set_logs(modules=...)"
    if "." in name:
        return f"which is about the logger of a module; use TORCH_LOGS={name}"
    if name in OF_TORCH:
        return f"which is about PyTorch itself; use TORCH_LOGS={name}"
    return f"as TORCH_LOGS has; {INSTEAD[name]}" if name in INSTEAD else None
