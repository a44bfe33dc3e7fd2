"""Breaks a compiler on purpose, in every process that has this folder on PYTHONPATH.

    TC_TEST_FAULT=COMPILER:KIND:OP[+OP]    e.g. tc:wrong:tanh, torch:crash:relu+log1p

`wrong`, `nan`: the lowering computes a sine or a logarithm. `crash`: a stage raises (as a whole
in tc, in one lowering in PyTorch). `symbolic`: like `crash`, where a size is symbolic.
Of tc only: `capture`: frames with an instruction are refused. `opcode`: its handler raises.
`hang`: a lowering does not end. `die`, `flaky`, `third`: a stage dies, raises in 30 % of its runs,
or from the third graph with the op on. `gcc`: the C of a scalar op does not compile. `kernel`: that
C computes a sine. `fused`: a kernel that computes the op with others is wrong. `decomposition`: one
is. `segv`: the C of a scalar op reads an address that is nobody's.
With two ops the fault shows only in graphs that hold both; the second one goes wrong.
"""

import dataclasses
import importlib.abc
import importlib.util
import os
import sys

COMPILER, _, REST = os.environ.get("TC_TEST_FAULT", "").partition(":")
KIND, _, OPS = REST.partition(":")
NAMES = OPS.split("+")
CULPRIT = NAMES[-1]


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function once a module is loaded."""

    def __init__(self, module, action):
        self.module, self.action = module, action

    def find_spec(self, name, path=None, target=None):
        if name != self.module or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            self.action(module)

        spec.loader.exec_module = exec_module
        return spec


def op(name):
    import torch

    packet, _, overload = name.partition(".")  # of aten alone
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def plant(rows, state_of, is_symbolic):
    """Break a lowering table."""
    for name in NAMES[:-1]:
        rows[op(name)] = noting(name, rows[op(name)], state_of)
    rows[op(CULPRIT)] = bad(rows[op(CULPRIT)], rows, state_of, is_symbolic)


def noting(name, real, state_of):
    def lowering(*args, **kwargs):
        state_of(*args).setdefault("broken", set()).add(name)
        return real(*args, **kwargs)

    return lowering


def bad(real, rows, state_of, is_symbolic):
    instead = {"wrong": "sin", "nan": "log"}.get(KIND)

    def lowering(*args, **kwargs):
        seen = state_of(*args).setdefault("broken", set())
        if not set(NAMES[:-1]) <= seen or (KIND == "symbolic" and not is_symbolic(*args)):
            return real(*args, **kwargs)
        while KIND == "hang":
            pass
        if instead is None:
            raise RuntimeError(f"no room for {CULPRIT} in buf{len(seen) * 7}")
        return rows[op(instead)](*args, **kwargs)

    return lowering


def break_torch_lowering(module):
    def state_of(*args):
        return sys.modules["torch._inductor.virtualized"].V.graph.__dict__

    def is_symbolic(x, *rest):
        return any(getattr(size, "free_symbols", None) for size in x.get_size())

    plant(module.lowerings, state_of, is_symbolic)


def break_lowering(module):
    rows = sys.modules["tc.compiler.loops.lower.registry"].LOWERINGS._rows
    plant(rows, lambda builder, call: builder.__dict__, lambda builder, call: False)


def short(op):
    return str(op).removeprefix("aten.").removesuffix(".default")


def computed(kernel):
    return {short(origin.op) for origin in kernel.origins}


def break_stage(module):
    real = module.lower

    def lower(graph, *rest):
        import torch

        nodes = list(graph.graph.nodes)
        seen = {short(node.target) for node in nodes}
        sizes = [size for node in nodes for size in getattr(node.meta.get("val"), "shape", ())]
        symbolic = any(isinstance(size, torch.SymInt) for size in sizes)
        if set(NAMES) <= seen and (KIND == "crash" or symbolic):
            raise RuntimeError(f"no room for {CULPRIT} in buf{len(nodes)}")
        return real(graph, *rest)

    module.lower = lower


LOWERED = []  # graphs that this process and those it is a fork of have lowered


def break_process(module):
    """A stage dies, fails in 30 % of its runs, or in each from the third on."""
    real = module.lower

    def lower(graph, *rest):
        nodes = list(graph.graph.nodes)
        if KIND == "third":
            if any(short(node.target) == CULPRIT for node in nodes):
                LOWERED.append(graph)
            if len(LOWERED) >= 3:
                raise RuntimeError(f"no place left for {CULPRIT}")
        elif any(short(node.target) == CULPRIT for node in nodes):
            for node in nodes:
                if short(node.target) == CULPRIT:
                    misbehave(node)
        return real(graph, *rest)

    module.lower = lower


def misbehave(node):
    if KIND == "die":
        os.kill(os.getpid(), 11)
    if KIND == "flaky" and os.urandom(1)[0] < 77:
        raise RuntimeError(f"lost {CULPRIT}")


def break_fused(module):
    real = module.generate_kernel

    def generate_kernel(kernel, *rest):
        printed = real(kernel, *rest)
        if CULPRIT not in computed(kernel) or len(computed(kernel)) < 2:
            return printed
        source = printed.source.replace(f"tc_{CULPRIT}_f32(", "tc_sin_f32(")
        return dataclasses.replace(printed, source=source)

    module.generate_kernel = generate_kernel


def break_scalar(module):
    rows = module.SCALAR_OPS._rows
    wrong = {
        "kernel": rows["sin"].c,
        "segv": "(((const float*)64)[0] + ({0}))",
        "gcc": "no_such_function_{t}({0})",
    }[KIND]
    rows[CULPRIT] = dataclasses.replace(rows[CULPRIT], c=wrong)


def break_capture(module):
    """Frames with an instruction are not translated."""
    real = module.translate

    def translate(frame, *rest):
        import dis

        if any(found.opname == CULPRIT for found in dis.get_instructions(frame.code)):
            raise RuntimeError(f"no row for {CULPRIT} at {frame.code.co_firstlineno}")
        return real(frame, *rest)

    module.translate = translate


def break_opcode(module):
    """The handler of an instruction raises; it says whether the instruction is a library's."""
    rows = sys.modules["tc.compiler.capture.bytecode.opcode_table"].OPCODES._rows

    def handler(frame, instruction):
        whose = " of a library" if "/torch/" in frame.code.co_filename else ""
        raise RuntimeError(f"nothing on the stack of {len(frame.stack)}{whose}")

    rows[CULPRIT] = handler


def break_decomposition(module):
    rows = module.DECOMPOSITIONS._rows
    gate, real = rows[op(CULPRIT)]
    rows[op(CULPRIT)] = (gate, lambda *args, **kwargs: real(*args, **kwargs) * 1.25)


FAULTS = {
    ("tc", "wrong"): ("tc.compiler.loops.lower", break_lowering),
    ("tc", "nan"): ("tc.compiler.loops.lower", break_lowering),
    ("tc", "crash"): ("tc.compiler.loops.lower.graph", break_stage),
    ("tc", "symbolic"): ("tc.compiler.loops.lower.graph", break_stage),
    **{
        ("tc", kind): ("tc.compiler.loops.lower.graph", break_process)
        for kind in ("die", "flaky", "third")
    },
    ("tc", "hang"): ("tc.compiler.loops.lower", break_lowering),
    ("tc", "fused"): ("tc.compiler.codegen.stage", break_fused),
    ("tc", "gcc"): ("tc.compiler.loops.ops", break_scalar),
    ("tc", "kernel"): ("tc.compiler.loops.ops", break_scalar),
    ("tc", "segv"): ("tc.compiler.loops.ops", break_scalar),
    ("tc", "capture"): ("tc.compiler.capture.translate", break_capture),
    ("tc", "opcode"): ("tc.compiler.capture.translate", break_opcode),
    ("tc", "decomposition"): ("tc.compiler.aot.decompositions", break_decomposition),
    **{
        ("torch", kind): ("torch._inductor.lowering", break_torch_lowering)
        for kind in ("wrong", "nan", "crash", "symbolic")
    },
}

if COMPILER == "tc-step":  # breaks one step of tc, see steps.py
    import steps

    sys.meta_path[:0] = [AfterImport(*place) for place in steps.PLANTED]
elif COMPILER:
    sys.meta_path.insert(0, AfterImport(*FAULTS[COMPILER, KIND]))
