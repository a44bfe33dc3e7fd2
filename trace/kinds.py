"""Names of records and artifacts: what readers call each, where it belongs, what they keep of it.

What is a type of event in `tc` has its row at its class (`class X(Event, wire=Kind(…))`); the names
that only PyTorch writes, and those of plain texts, have their rows here. The report, the readers of
logs, the findings and `docs/trace-events.md` read `KINDS`, which importing `tc.trace.all_events`
fills.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

STAGES: Final = ("capture", "graph passes", "code", "cache", "metrics", "other")


@dataclass(frozen=True, slots=True)
class Kind:
    """What readers know of a record or an artifact by its name.

    Attributes:
        name: as it stands in the log. Names that differ in an ending or a number share a row:
            that of `_FAMILIES` with a regular expression for the whole name.
        label: what the report calls it; ``{}`` takes the group of a regular expression. Empty:
            the name itself.
        stage: one of `STAGES`.
        kept: its content stays in memory, because findings are made of it.
        record: a record under its own name, not an artifact.
        loose: it is about no compile, so that it may stand outside of one.
        topic: the topic of ``TC_LOGS`` that prints a plain text of this name.
    """

    name: str
    label: str = ""
    stage: str = "other"
    kept: bool = False
    record: bool = False
    loose: bool = False
    topic: str = ""


KINDS: Final[dict[str, Kind]] = {}
"""Name -> row."""


def add_kind(kind: Kind) -> None:
    """Add a row.

    Raises:
        ValueError: the name has a row already, or there is no such stage.
    """
    if kind.name in KINDS:
        raise ValueError(f"events: {kind.name!r} has a row already")
    if kind.stage not in STAGES:
        raise ValueError(f"events: {kind.name!r} is of no stage {kind.stage!r}")
    KINDS[kind.name] = kind


_NONE: Final = Kind("")


def kind_of(name: str) -> Kind:
    """Return the row of a name; one that is empty for a name that no row is about."""
    return KINDS.get(name, _NONE)


def label(name: str) -> tuple[str, str]:
    """Return what a record or an artifact is called, and its stage."""
    if (kind := KINDS.get(name)) is not None:
        return kind.label or name.replace("_", " "), kind.stage
    for pattern, family in _FAMILIES:
        if match := pattern.fullmatch(name):
            group = next((one for one in match.groups() if one), "")
            return family.label.replace("{}", group.lower()), family.stage
    return name.replace("_", " "), "other"


for _kind in (
    # Plain texts of tc: artifacts without a type of event.
    Kind("tc_plan", "plan of kernels and buffers", "code", topic="schedule"),
    Kind("tc_graph_runs_eagerly", "the graph runs op by op", "code", True, topic="perf_hints"),
    Kind("tc_ddp_buckets", "split at DDP's buckets", "graph passes", topic="schedule"),
    Kind("tc_compile_regions", "where a graph was cut", "graph passes", topic="schedule"),
    Kind("tc_no_gpu_kernels", "no kernels for the GPU", "code", topic="perf_hints"),
    Kind("tc_graph_cache_bypass", "cache not asked", "cache", topic="cache"),
    Kind("tc_background", "compiled in the background", "code", topic="schedule"),
    Kind("tc_version", "versions", "metrics", loose=True),
    # What PyTorch writes: the texts of breaks and recompiles, which tc writes beside its own facts.
    Kind("dynamo_graph_break_reason", "graph break", "capture", kept=True),
    Kind("recompile_reasons", "why it recompiled", "capture", kept=True),
    Kind("dynamo_error", "error of the compiler", "capture", kept=True),
    Kind("compiled_autograd_compile_reasons", kept=True),
    Kind("make_fx_fail_partial", kept=True),
    Kind("dynamo_side_effects", "side effects", "capture"),
    Kind("described_inputs", "input tensors", "capture", loose=True),
    Kind("torch_version", "versions", "metrics", loose=True),
    Kind("torch._functorch.config", "settings of functorch", "metrics", loose=True),
    # Graphs and code.
    Kind("before_pre_grad_graph", "before the pre-grad passes", "graph passes"),
    Kind("after_pre_grad_graph", "after the pre-grad passes", "graph passes"),
    Kind("before_joint_graph", "before the joint-graph passes", "graph passes"),
    Kind("after_joint_graph", "after the joint-graph passes", "graph passes"),
    Kind("before_post_grad_graph", "before the post-grad passes", "graph passes"),
    Kind("inductor_pre_grad_graph", "pre-grad graph", "graph passes", record=True),
    Kind("aot_forward_graph_fw_metadata", "facts about inputs and outputs", "graph passes"),
    Kind("optimize_ddp_split_graph", "split for DDP", "graph passes", record=True),
    Kind("optimize_ddp_split_child", "split for DDP", "graph passes", record=True),
    Kind("exported_program", "exported program", "graph passes", record=True, loose=True),
    Kind("compiled_autograd_graph", "compiled autograd graph", "capture", record=True),
    Kind("fx_graph_runnable", "graph as a program to run", "code"),
    Kind("compiled_fn_wrapper", "wrapper", "code"),
    Kind("runtime_wrapper_orchestration", "wrapper: order of calls", "code"),
    Kind("inductor_collective_schedule", "order of collectives", "code"),
    Kind("inductor_runtime_and_tensor_meta", "estimated run times, shapes", "code"),
    Kind("graph_execution", "order in which graphs ran", loose=True),
    Kind("graph_dump", "dumped file", "code", record=True, loose=True),
    Kind("dump_file", "dumped file", "code", record=True, loose=True),
    # Sizes, guards and exports.
    Kind("dynamo_guards", "guards (list)", "capture", record=True),
    Kind("create_unbacked_symbol", "a size from tensor data", "capture", record=True, loose=True),
    Kind("guard_added", "a guard on sizes was added", "capture", True, record=True, loose=True),
    Kind("guard_added_fast", "a guard on sizes was added", "capture", record=True, loose=True),
    Kind("symbolic_shape_specialization", "a symbolic size became a constant", "capture",
         record=True, loose=True),
    Kind("missing_fake_kernel", kept=True, record=True, loose=True),
    Kind("mismatched_fake_kernel", kept=True, record=True, loose=True),
    Kind("propagate_real_tensors_provenance", kept=True, record=True, loose=True),
    Kind("propagate_real_tensors", record=True, loose=True),
    Kind("guard_on_data_dependent_error", record=True, loose=True),
    Kind("expression_created", record=True, loose=True),
    Kind("export", record=True, loose=True),
    # Numbers, and parts of other records.
    Kind("compilation_metrics_runtime", "metrics", "metrics", record=True, loose=True),
    Kind("bwd_compilation_metrics_runtime", "metrics of the backward", "metrics", record=True,
         loose=True),
    Kind("aot_autograd_backward_compilation_metrics", record=True),
    Kind("describe_storage", record=True),
    Kind("describe_tensor", record=True),
    Kind("describe_source", record=True),
    Kind("str", record=True),
    Kind("link", record=True, loose=True),
):  # fmt: skip
    add_kind(_kind)

_FAMILIES: Final = tuple(
    (re.compile(family.name), family)
    for family in (
        Kind(r".*_(ORIGINAL|MODIFIED)_BYTECODE", "bytecode, {}", "capture"),
        Kind(r"compiled_autograd_graph.*", "compiled autograd graph", "capture"),
        Kind(r"optimize_ddp_split_.*", "split for DDP", "graph passes"),
        Kind(r"compiled_function_(forward|backward)", "wrapper: {}", "code"),
        Kind(r"backward_(prologue|epilogue)", "backward {}", "code"),
        Kind(r"(?:aotautograd|fx_graph)_cache_(hit|miss|bypass)", "cache {}", "cache"),
    )
)
