"""The name of an artifact goes in; what to call it, and the stage it belongs to, come out."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

STAGES: Final = ("capture", "graph passes", "code", "cache", "metrics", "other")

# The first row that matches the whole name wins; `{}` takes its group.
_ROWS: Final = tuple(
    (re.compile(pattern), label, stage)
    for pattern, label, stage in (
        (r"dynamo_start", "where it was called from", "capture"),
        (r"described_inputs", "input tensors", "capture"),
        (r"recompile_reasons", "why it recompiled", "capture"),
        (r"dynamo_graph_break_reason", "graph break", "capture"),
        (r"dynamo_output_graph", "captured graph", "capture"),
        (r"dynamo_cpp_guards_str", "guards", "capture"),
        (r"dynamo_guards", "guards (list)", "capture"),
        (r"dynamo_error", "error of the compiler", "capture"),
        (r"dynamo_side_effects", "side effects", "capture"),
        (r".*_(ORIGINAL|MODIFIED)_BYTECODE", "bytecode, {}", "capture"),
        (r"create_symbol", "a size became symbolic", "capture"),
        (r"create_unbacked_symbol", "a size from tensor data", "capture"),
        (r"guard_added(?:_fast)?", "a guard on sizes was added", "capture"),
        (r"symbolic_shape_specialization", "a symbolic size became a constant", "capture"),
        (r"compiled_autograd_graph.*", "compiled autograd graph", "capture"),
        (r"tc_graph_break", "graph break, as data", "capture"),
        (r"tc_recompile", "recompile, as data", "capture"),
        (r"tc_recompile_limit", "recompile limit", "capture"),
        (r"tc_frame_skipped", "function skipped", "capture"),
        (r"tc_error", "error of the compiler", "capture"),
        (r"tc_guards", "guards, as data", "capture"),
        (r"before_pre_grad_graph", "before the pre-grad passes", "graph passes"),
        (r"after_pre_grad_graph", "after the pre-grad passes", "graph passes"),
        (r"before_joint_graph", "before the joint-graph passes", "graph passes"),
        (r"after_joint_graph", "after the joint-graph passes", "graph passes"),
        (r"aot_(joint|forward|backward|inference)_graph", "ATen graph: {}", "graph passes"),
        (r"before_post_grad_graph", "before the post-grad passes", "graph passes"),
        (r"inductor_post_grad_graph", "after the post-grad passes", "graph passes"),
        (r"inductor_pre_grad_graph", "pre-grad graph", "graph passes"),
        (r"aot_forward_graph_fw_metadata", "facts about inputs and outputs", "graph passes"),
        (r"optimize_ddp_split_.*", "split for DDP", "graph passes"),
        (r"tc_pass", "passes of a stage", "graph passes"),
        (r"tc_partition", "what backward is given, and why", "graph passes"),
        (r"tc_plan", "plan of kernels and buffers", "code"),
        (r"tc_graph_runs_eagerly", "why the graph runs eagerly", "code"),
        (r"tc_fusion", "what was fused", "code"),
        (r"tc_cudagraph", "launches replayed as one", "code"),
        (r"tc_autotune", "ways timed on the machine", "code"),
        (r"tc_kernels", "kernels", "code"),
        (r"tc_source", "your functions, and the lines gone through", "capture"),
        (r"tc_provenance", "from your lines to kernels", "code"),
        (r"inductor_output_code", "generated code", "code"),
        (r"fx_graph_runnable", "graph as a program to run", "code"),
        (r"compiled_function_(forward|backward)", "wrapper: {}", "code"),
        (r"compiled_fn_wrapper", "wrapper", "code"),
        (r"runtime_wrapper_orchestration", "wrapper: order of calls", "code"),
        (r"backward_(prologue|epilogue)", "backward {}", "code"),
        (r"graph_dump|dump_file", "dumped file", "code"),
        (r"inductor_collective_schedule", "order of collectives", "code"),
        (r"inductor_runtime_and_tensor_meta", "estimated run times, shapes", "code"),
        (r"graph_execution", "order in which graphs ran", "other"),
        (r"exported_program", "exported program", "graph passes"),
        (r"(?:aotautograd|fx_graph)_cache_(hit|miss|bypass)", "cache {}", "cache"),
        (r"tc_cache", "cache", "cache"),
        (r"compilation_metrics(?:_runtime)?", "metrics", "metrics"),
        (r"bwd_compilation_metrics(?:_runtime)?", "metrics of the backward", "metrics"),
        (r"tc_counters", "counters", "metrics"),
        (r"(?:torch|tc)_version", "versions", "metrics"),
        (r"torch\._functorch\.config", "settings of functorch", "metrics"),
    )
)


@cache
def label(name: str) -> tuple[str, str]:
    """Return (what to call it, stage)."""
    for pattern, words, stage in _ROWS:
        match = pattern.fullmatch(name)
        if match:
            group = next((g for g in match.groups() if g), "") if match.groups() else ""
            return words.replace("{}", group.lower()), stage
    return name.replace("_", " "), "other"
