"""One example of every event, for tests of writers and readers.

An event that has no example here gets one made of the types of its fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from tc.trace import (
    EVENTS,
    Artifact,
    AtenGraph,
    Autotune,
    Cache,
    CompileError,
    CompileId,
    Counters,
    CreateSymbol,
    CudaGraph,
    Edit,
    Event,
    Fired,
    FrameSkipped,
    FrameStart,
    FunctionLines,
    Fusion,
    Gap,
    GraphBreak,
    Guards,
    Kernel,
    Kernels,
    Metrics,
    OutputCode,
    OutputGraph,
    Partition,
    PassRan,
    Profile,
    ProgramTime,
    Provenance,
    Recompile,
    RecompileCause,
    RecompileLimit,
    Region,
    RegionsRan,
    Reset,
    SentinelDifference,
    SentinelRan,
    SentinelVerdict,
    SourceLines,
    Span,
    StackFrame,
    StageRan,
    Steps,
    StepTime,
)

FRAME = StackFrame("/home/user/model.py", 7, "forward", "y = x.sin()")
CAUSE = RecompileCause("self.step", "self.step == 0", "0", "1", "int attribute")
BREAK = GraphBreak(
    code="TC101",
    title="Tensor.item() needs a Python number",
    why="its value exists only after the kernel has run",
    file="/home/user/model.py",
    line=7,
    function="forward",
    detail="called on sum_1",
    fix=("- a\n+ b", "or do not"),
    end_line=7,
    col=4,
    end_col=11,
    source_line="    y = x.sum().item()",
    stack=(FRAME,),
    resume="torch_dynamo_resume_in_forward_at_7",
)

WRITTEN: tuple[Event, ...] = (
    FrameStart((FRAME,)),
    OutputGraph("graph():\n    return x\n", {"x": [3, 4]}),
    CreateSymbol("s0", "4", "[2, int_oo]", "x.shape[0]", (FRAME,), (FRAME,)),
    AtenGraph("inference", "graph 1"),
    AtenGraph("joint", "graph 2"),
    AtenGraph("forward", "graph 3"),
    AtenGraph("backward", "graph 4"),
    AtenGraph("post_grad", "graph 5"),
    OutputCode("import torch\n\ndef call(args):\n    return args\n", "/tmp/c/x.py"),
    Span("capture", "B", 1e15 + 0.5, 42, 43, {"compile_id": "0/0"}),
    Span("capture", "E", 1e15 + 9.5, 42, 43, {"compile_id": "0/0"}),
    Metrics(
        compile_id="0/0",
        co_name="forward",
        co_filename="/home/user/model.py",
        co_firstlineno=5,
        cache_size=0,
        accumulated_cache_size=0,
        guard_count=3,
        graph_op_count=2,
        graph_node_count=4,
        graph_input_count=1,
        start_time=1e9,
        entire_frame_compile_time_s=0.5,
        restart_reasons=("a graph break",),
        has_guarded_code=True,
        config={"mode": "default"},
        phases={"capture": 0.1},
    ),
    Metrics(compile_id="0/0", is_forward=False, inductor_compile_time_s=0.25),
    BREAK,
    Recompile("forward", "/home/user/model.py", 5, CompileId(0, 0), (CAUSE,)),
    RecompileLimit("forward", "/home/user/model.py", 5, 8, (CAUSE,)),
    FrameSkipped("generate", "/home/user/model.py", 20, "it is a generator", "return a list"),
    SourceLines(
        (FunctionLines("/home/user/model.py", "f", 3, "def f(x):\n    return x\n", (3, 4), (4,)),)
    ),
    Guards(["int"], ["self.step"], ["self.step == 0"], [("/home/user/model.py", 6)]),
    StageRan(
        "inference",
        "aot",
        1,
        5,
        (
            PassRan(
                "aot.drop_no_ops", 2, 2, False, True, 3, 2, (Edit(1, ("  a", "  b"), ("  c",)),)
            ),
            PassRan("aot.drop_dead_code", 5, 5, refused=True),
        ),
        (Steps("aot.decompose.aten.gelu", 1, 0, 1, 1, ("/home/user/model.py:7",)),),
        (Fired(4, "loops.rule.mul_one", "mul(x, 1)", "x", "buf0", "/home/user/model.py:7"),),
    ),
    Partition({"bytes": 96, "kept": [{"name": "mm", "line": "model.py:7"}], "again": []}),
    Fusion({"kernel": "k0", "nodes": ["buf0", "buf1"], "why": "same loops"}),
    Kernels((Kernel("k0", "void k0() {}", ("model.py:7",)),)),
    Provenance({"k0": ["model.py:7"]}),
    Autotune("mm (64, 64) @ (64, 64)", {"aten": 2e-5, "onednn": 1e-5}, "onednn"),
    CudaGraph("refused", "mutation", "it writes to an input that moves", "forward"),
    Cache(False, "abc", {"torch": "2.13", "graph": "def"}),
    Profile(
        (
            ProgramTime(
                "0/0",
                "forward",
                "/home/user/model.py",
                5,
                "forward",
                20,
                0.5,
                2,
                (
                    StepTime(9, "aten.mm.default", ("/home/user/model.py:7",), 0.02, 4096, 65536),
                    StepTime(0, "wrapper", (), 0.001, -1, -1),
                ),
                (Gap("0/0", "forward", 19, 0.25),),
            ),
        ),
        0,
        1.5e10,
        2.5e10,
    ),
    RegionsRan((Region("0/0", "forward", "/home/user/model.py", 5, "compiled", 20, 2, 0.5),)),
    SentinelDifference(
        "wrong",
        "output 0: compiled 2.0, eager 1.0",
        False,
        "forward",
        "/home/user/model.py",
        5,
        ("/home/user/model.py:7",),
        1200,
        "3 of 3",
        "",
        "/tmp/r/repro.py",
        "",
        "tc-bisect r.py",
    ),
    SentinelVerdict("/tmp/r/repro.py", "bug", "step 3 computes tanh wrong", "loops", "loops.x"),
    Reset("main", "train.py", 12),
    SentinelRan(12, 3, 1, {"an input is not a plain dense tensor": 2}),
    CompileError("loops.lower", "KeyError", "no lowering", "/home/user/model.py", 7, "python r.py"),
    Counters({"kernels": 3}),
    Artifact("notes", "free text"),
    Artifact("tc_plan", "k0: for p0 < 3"),
    Artifact("tc_graph_runs_eagerly", "a sparse tensor appears"),
    Artifact("facts", {"a": 1}, "json"),
)


_PLAIN: dict[Any, object] = {
    str: "text", int: 7, float: 0.5, bool: True, object: "anything", CompileId: CompileId(0, 0),
}  # fmt: skip


def example(kind: Any) -> Any:
    """Return a value of a type, which may be a dataclass, of the fields that have no default."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    if is_dataclass(kind) and isinstance(kind, type):
        types = get_type_hints(kind)
        needed = [f.name for f in fields(kind) if f.default is f.default_factory is MISSING]
        return kind(**{name: example(types[name]) for name in needed})
    inner = get_args(kind)
    if NoneType in inner:
        return None
    if get_origin(kind) is Mapping:
        return {"key": example(inner[1])}
    return (example(inner[0]),)


SAMPLES: tuple[Event, ...] = (
    *WRITTEN,
    *(
        example(kind)
        for kind in dict.fromkeys(EVENTS.values())
        if kind not in {type(event) for event in WRITTEN}
    ),
)
