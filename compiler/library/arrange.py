"""The passes of this stage, in order: ATen graph to equal ATen graph, in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import fx

from tc.compiler.core.artifacts import Decision
from tc.compiler.core.gate import Gate
from tc.compiler.core.tune import Tuner
from tc.compiler.library.attention import attend
from tc.compiler.library.dropout import draw_numbers
from tc.compiler.library.editor import Editor
from tc.compiler.library.fold import fold_scales
from tc.compiler.library.freeze import drop_unread_constants, freeze, lay_out_constants
from tc.compiler.library.layouts import keep_channels_last, train_channels_last
from tc.compiler.library.prepack import pack_kernels
from tc.compiler.library.products import add_bias_later, merge_slices, transpose_matrices
from tc.compiler.library.routines import choose_routines
from tc.compiler.library.rows import compute_few_rows, compute_tiny

PASSES: tuple[Callable[[Editor], None], ...] = (
    fold_scales,
    merge_slices,
    transpose_matrices,
    compute_few_rows,
    compute_tiny,
    add_bias_later,
    draw_numbers,
    keep_channels_last,
    lay_out_constants,
    pack_kernels,
    choose_routines,
    attend,
)


def arrange_joint(
    module: fx.GraphModule, gate: Gate, tuner: Tuner | None = None, on_gpu: Tuner | None = None
) -> None:
    """Rearrange a graph of a function and its gradients before it is cut in two.

    What backward keeps of forward has then the layout in which both compute.

    Args:
        module: as in `arrange`; changed in place.
        gate: asked before each change, as ``library.<kind>``.
        tuner, on_gpu: measure what is fastest on this machine, and on the graph's GPU; None:
            nothing is timed.
    """
    with gate.watching("library.train_channels_last", module.graph, "joint"):
        train_channels_last(Editor(module.graph, gate, tuner, on_gpu))
    module.graph.lint()


def arrange(
    module: fx.GraphModule,
    gate: Gate,
    frozen: Mapping[str, torch.Tensor] | None = None,
    tuner: Tuner | None = None,
    on_gpu: Tuner | None = None,
) -> tuple[Decision, ...]:
    """Rearrange what libraries compute in a functional ATen graph.

    Args:
        module: ATen calls with fake values in ``meta["val"]``; changed in place.
        gate: asked before each change, as ``library.<kind>``.
        frozen: inputs that are constants, see `freeze`.
        tuner, on_gpu: as in `arrange_joint`.

    Returns:
        What was done, and what was not and why.
    """
    folded: tuple[Decision, ...] = ()
    if frozen:
        with gate.watching("library.freeze", module.graph):
            folded = freeze(module, frozen, gate)
    editor = Editor(module.graph, gate, tuner, on_gpu)
    for graph_pass in PASSES:
        with gate.watching(f"library.{graph_pass.__name__}", module.graph):
            graph_pass(editor)
    drop_unread_constants(module)
    module.graph.lint()
    return (*folded, *editor.decisions)
