"""Breaks one step of `tc`: a rule, decomposition, lowering, pass, fusion, kernel or guard.

    TC_TEST_FAULT=tc-step:KIND:NAME    KIND one of rule decompose lower pass fuse kernel guard
    TC_TEST_FAULT=tc-step:list:        breaks nothing; notes every step there is

What a broken step makes is a quarter too large (integers: one more; truth values: the other). A
broken guard is not made.
Each firing is noted in the file TC_TEST_FAULT_LOG: the step's name, and the user's lines it works
for as far as the compiler's own notes show it; so is, under ``list``, each step by kind and name.
"""

import dataclasses
import functools
import json
import os
import sys

KIND, _, NAME = os.environ.get("TC_TEST_FAULT", "").removeprefix("tc-step:").partition(":")
LOG = os.environ.get("TC_TEST_FAULT_LOG", "")
NOTED = set()


def note(*facts):
    line = json.dumps(facts)
    if LOG and line not in NOTED:
        NOTED.add(line)
        with open(LOG, "a") as file:
            file.write(line + "\n")


def lines_of(origins):
    """The user's lines (``file:line``) of nodes of the loop IR or kernels."""
    return [origin.line.partition(" in ")[0] for origin in origins if origin.line]


def lines_now():
    """The lines of the node that a caller works on."""
    frame = sys._getframe(1)
    while frame is not None:
        for name in ("node", "n"):
            held = frame.f_locals.get(name)
            meta = getattr(held, "meta", None)
            if isinstance(meta, dict) and meta.get("tc_origin"):
                places = meta["tc_origin"]
                own = [p for p in places if "/torch/" not in p.file] or list(places)
                return [f"{own[-1].file}:{own[-1].line}"]
            if getattr(held, "origins", None):
                return lines_of(held.origins)
        frame = frame.f_back
    return []


def fired(step, lines):
    note("fired", step, lines)


# -- wrong values ------------------------------------------------------------------------------
def wrong_expression(value):
    from tc.compiler.loops.expr import Expr, constant

    if str(value.dtype) == "torch.bool":
        return Expr("not", (value,), value.dtype)
    if value.dtype.is_floating_point:
        return Expr("mul", (value, constant(1.25, value.dtype)), value.dtype)
    return Expr("add", (value, constant(1, value.dtype)), value.dtype)


def wrong_tensor(value):
    import torch

    if isinstance(value, (tuple, list)):
        return type(value)([wrong_tensor(value[0]), *value[1:]])
    if not isinstance(value, torch.Tensor):
        return value
    if value.dtype is torch.bool:
        return torch.logical_not(value)
    return value * 1.25 if value.is_floating_point() else value + 1


def wrong_cell(builder, value):
    from tc.compiler.loops.lower.builder import Tensor
    from tc.compiler.loops.ops import compute_dtype

    if isinstance(value, (tuple, list)):
        return type(value)([wrong_cell(builder, value[0]), *value[1:]])
    if not isinstance(value, Tensor):
        return value
    assert compute_dtype(value.dtype) is not None
    body = wrong_expression(builder.element(value))
    return builder.value(value.sizes, value.dtype, body, value.vars)


# -- tables ------------------------------------------------------------------------------------
def short(op):
    return str(op).removeprefix("aten.").removesuffix(".default")


def break_rules(module):
    def broken(rule):
        if rule.name != NAME:
            return rule

        def rewrite(**names):
            made = rule.rewrite(**names)
            if made is None:
                return None
            fired(f"loops.rule.{NAME}", lines_now())
            return wrong_expression(made)

        return dataclasses.replace(rule, rewrite=rewrite)

    module.RULES = tuple(map(broken, module.RULES))


def break_decomposition(module):
    rows = module.DECOMPOSITIONS._rows
    for op, (gate, real) in list(rows.items()):
        if gate == f"aot.decompose.{NAME}":

            def wrong(*args, real=real, gate=gate, **kwargs):
                fired(gate, lines_now())
                return wrong_tensor(real(*args, **kwargs))

            rows[op] = (gate, wrong)


def break_lowering(module):
    rows = sys.modules["tc.compiler.loops.lower.registry"].LOWERINGS._rows
    for op, real in list(rows.items()):
        if short(op) == NAME:

            def wrong(builder, call, real=real):
                fired(f"loops.lower.{NAME}", lines_of([builder.origin]))
                return wrong_cell(builder, real(builder, call))

            rows[op] = wrong


def break_pass(module):
    """The pass also leaves out the last addition or product of the graph."""

    def broken(real):
        if real.__name__ != NAME:
            return real

        @functools.wraps(real)
        def wrong(graph):
            real(graph)
            for node in reversed(list(graph.nodes)):
                name = short(node.target)
                first = node.args[0] if node.args else None
                shape = getattr(getattr(first, "meta", {}).get("val"), "shape", None)
                if name in ("add.Tensor", "mul.Tensor") and shape == node.meta["val"].shape:
                    fired(f"aot.{NAME}", lines_now())
                    node.replace_all_uses_with(first)
                    graph.erase_node(node)
                    return

        return wrong

    module.PASSES = tuple(map(broken, module.PASSES))


def pair_of(group, node):
    """The last op of a node, and of the last member of the group it joins."""
    mine, theirs = list(node.origins), list(group.members[-1].node.origins)
    return f"{short(mine[-1].op)}+{short(theirs[-1].op)}" if mine and theirs else ""


def break_fusion(module):
    real = module.combined

    def combined(group, node):
        made, reason = real(group, node)
        if made is None or pair_of(group, node) != NAME:
            if made is not None and KIND == "list":
                note("fuse", pair_of(group, node))
            return made, reason
        members = [origin for member in group.members for origin in member.node.origins]
        fired("schedule.fuse", lines_of([*node.origins, *members]))
        changed = dataclasses.replace(node, body=wrong_expression(node.body))
        made, _ = real(group, changed)
        return made, reason

    module.combined = combined


def computed(kernel):
    return "+".join(sorted({short(origin.op) for origin in kernel.origins}))


def break_kernel(module):
    real = module.print_kernel

    def print_kernel(kernel, *rest):
        if KIND == "list":
            note("kernel", computed(kernel))
        if computed(kernel) != NAME:
            return real(kernel, *rest)
        fired(f"kernel.{kernel.name}", lines_of(kernel.origins))
        stored = [s for s in kernel.statements() if hasattr(s, "buffer")]
        changed = dataclasses.replace(stored[-1], value=wrong_expression(stored[-1].value))
        sections = tuple(
            dataclasses.replace(
                section,
                statements=tuple(changed if s is stored[-1] else s for s in section.statements),
            )
            for section in kernel.sections
        )
        return real(dataclasses.replace(kernel, sections=sections), *rest)

    module.print_kernel = print_kernel


def guard_of(kind, source):
    return f"{kind} {source.name}"


def break_guard(module):
    real = module.GuardList.add

    def add(self, kind, source, *rest, **more):
        found = guard_of(kind, source)
        if KIND == "list":
            note("guard", found)
        elif found == NAME:
            fired("capture.guard", [])
            return module.Guard(kind, source, None, None)  # made, and kept nowhere
        return real(self, kind, source, *rest, **more)

    module.GuardList.add = add


def list_steps(module):
    real = module.Gate.allow

    def allow(self, kind, *about):
        for prefix, name in (
            ("loops.rule.", "rule"), ("aot.decompose.", "decompose"), ("loops.lower.", "lower"),
        ):  # fmt: skip
            if kind.startswith(prefix):
                note(name, kind.removeprefix(prefix))
        if kind in ("aot.fold_transposes", "aot.share_common_subexpressions"):
            note("pass", kind.removeprefix("aot."))
        return real(self, kind, *about)

    module.Gate.allow = allow


PLACES = {
    "rule": ("tc.compiler.loops.rules", break_rules),
    "decompose": ("tc.compiler.aot.decompositions", break_decomposition),
    "lower": ("tc.compiler.loops.lower", break_lowering),
    "pass": ("tc.compiler.aot.passes", break_pass),
    "fuse": ("tc.compiler.schedule.fuse", break_fusion),
    "kernel": ("tc.compiler.codegen.stage", break_kernel),
    "guard": ("tc.compiler.capture.guards.guard_list", break_guard),
}
LISTED = (PLACES["fuse"], PLACES["kernel"], PLACES["guard"], ("tc.compiler.core.gate", list_steps))
PLANTED = LISTED if KIND == "list" else (PLACES[KIND],)
