"""Compares each stage of a graph's compile with eager: ``TC_CHECK=stages`` and ``kernels``."""

from __future__ import annotations

import torch
from torch.utils._pytree import tree_leaves

from tc.compiler.errors import KernelDiffers
from tc.compiler.sentinel.check import Call
from tc.compiler.sentinel.copies import RandomState, copied, unseen
from tc.compiler.sentinel.graph import Graph, Program
from tc.compiler.sentinel.rounding import Difference


def first_wrong(call: Call, graph: Graph) -> Difference | None:
    """Run a graph up to each of its stages on copies of a call's inputs, where that is asked for.

    The random state is left as the compiled call has set it.

    Returns:
        How the first stage that is wrong differs from eager; its name is in ``detail["step"]``.

    Raises:
        Skipped: a stage cannot be compared.
    """
    after = RandomState.now(call.inputs)
    call.draws = graph.may_draw and not call.random.is_now()
    for name, program in graph.stages.items():
        try:
            found = _forward(call, program) or _backward(call, program)
        except KernelDiffers as error:
            return Difference("wrong", str(error), "", {"step": f"kernel {error.stage}"})
        finally:
            call.leave(after)
        if found is not None:
            step = f"stage {name}"
            return Difference(found.kind, found.message, "", {**found.detail, "step": step})
    return None


def _forward(call: Call, program: Program) -> Difference | None:
    inputs = copied(call.inputs)
    call.rewind()
    with unseen(), torch.no_grad():
        result = program(*inputs)
    return call.difference(result, inputs)


def _backward(call: Call, program: Program) -> Difference | None:
    """Compare gradients for ones, each input's own."""
    places = [
        place
        for place, value in enumerate(call.inputs)
        if isinstance(value, torch.Tensor) and value.requires_grad
    ]
    if not torch.is_grad_enabled() or not places:
        return None
    inputs = copied(call.inputs)
    call.rewind()
    with unseen(), call.autocast.again():
        leaves = tree_leaves(program(*inputs))
        outputs = [
            place
            for place, value in enumerate(leaves)
            if isinstance(value, torch.Tensor) and value.requires_grad
        ]
        if not outputs:
            return None
        results = [leaves[place] for place in outputs]
        tangents = list(map(torch.ones_like, results))
        of = [inputs[place] for place in places]
        found = torch.autograd.grad(results, of, tangents, allow_unused=True)
    return call.gradient_difference(outputs, tangents, [[place] for place in places], found)
