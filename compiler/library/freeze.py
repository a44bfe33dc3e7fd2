"""Freezing: given values become constants, what follows from them alone is computed at once.

In: a functional ATen graph and values of some of its inputs. Out: the same graph, which does not
read these inputs. Constants are then laid out as the routines that take them read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from tc.compiler.core.artifacts import Decision
from tc.compiler.core.fakes import fake_mode_of
from tc.compiler.core.gate import Gate
from tc.compiler.library.editor import Editor, aten, fake, static_shape
from tc.compiler.library.products import FEW_ROWS, PRODUCTS
from tc.compiler.loops.lower.registry import made_of_loops

#: what the names of constants begin with
NAMED = "frozen_"


def freeze(
    module: fx.GraphModule, values: Mapping[str, torch.Tensor], gate: Gate
) -> tuple[Decision, ...]:
    """Replace inputs by their values, in place; inputs that are written to stay inputs.

    Args:
        module: ATen calls with fake values in ``meta["val"]``.
        values: input -> what it is.
        gate: asked before each fold.
    """
    editor = Editor(module.graph, gate)
    written = {n.args[0] for n in _calls(module, aten.copy_.default)}
    known: dict[fx.Node, torch.Tensor] = {}
    for node in list(module.graph.nodes):
        if node.op == "placeholder" and node.name in values and node not in written:
            known[node] = values[node.name].detach()
        elif _foldable(node, known):
            found = _computed(node, known)
            if found is not None and editor.decide("fold", [node], True, "of constants alone"):
                known[node] = found
    for node, held in known.items():
        if any(user not in known for user in node.users):
            made = add_constant(editor, node, held)
            node.replace_all_uses_with(made, delete_user_cb=lambda user: user not in known)
    for node in reversed(known):
        if node.op != "placeholder" and not node.users:
            module.graph.erase_node(node)
    return tuple(editor.decisions)


def _calls(module: fx.GraphModule, op: Any) -> list[fx.Node]:
    return list(module.graph.find_nodes(op="call_function", target=op))


def _foldable(node: fx.Node, known: Mapping[fx.Node, torch.Tensor]) -> bool:
    op = node.target
    if not isinstance(op, torch._ops.OpOverload) or op._schema.is_mutable:
        return False
    if torch.Tag.nondeterministic_seeded in op.tags or fake(node) is None:
        return False
    return bool(node.all_input_nodes) and all(used in known for used in node.all_input_nodes)


def _computed(node: fx.Node, known: Mapping[fx.Node, torch.Tensor]) -> torch.Tensor | None:
    """Return a call's value; None if it takes more memory than what it is made of."""
    promised = node.meta["val"]
    given = sum(known[used].numel() for used in node.all_input_nodes)
    if static_shape(node) is None or promised.numel() > given:
        return None
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda used: known[used])
    with torch.no_grad():
        found: torch.Tensor = node.target(*args, **kwargs)  # type: ignore[operator]
    same = found.shape == promised.shape and found.stride() == promised.stride()
    return found if same and found.dtype == promised.dtype else None


def add_constant(editor: Editor, like: fx.Node | None, held: torch.Tensor) -> fx.Node:
    """Add a constant to a graph.

    Args:
        editor: of a graph with an owning module, whose buffer the constant becomes.
        like: a node that it replaces, whose fake value and origin it shares; None: it is new.
        held: its value; where `like` is given, of that shape.
    """
    module = editor.graph.owning_module
    assert module is not None
    name = f"{NAMED}{sum(1 for _ in module.buffers(recurse=False))}"
    module.register_buffer(name, held, persistent=False)
    first = next(n for n in editor.graph.nodes if n.op not in ("placeholder", "get_attr"))
    with editor.graph.inserting_before(first):
        made = editor.graph.get_attr(name)
    if like is not None:
        made.meta.update(like.meta)
    else:
        mode = fake_mode_of([n.meta.get("val") for n in editor.graph.nodes])
        made.meta["val"] = mode.from_tensor(held)
    return made


def held_constant(node: Any) -> torch.Tensor | None:
    """Return the value of a constant; None for any other node or argument."""
    if not isinstance(node, fx.Node) or node.op != "get_attr" or "." in str(node.target):
        return None
    module = node.graph.owning_module
    held = getattr(module, str(node.target), None)
    return held if isinstance(held, torch.Tensor) and held.layout is torch.strided else None


def lay_out_constants(editor: Editor) -> None:
    """Copy constant matrices and kernels into the layout that is read fastest."""
    module = editor.graph.owning_module
    copies: dict[tuple[str, torch.memory_format], fx.Node] = {}
    for node in list(editor.graph.nodes):
        found = _wanted(node)
        if found is None or module is None:
            continue
        operand, layout = found
        name = str(operand.target)
        if (name, layout) not in copies:
            if not editor.decide("lay_out", [operand], True, f"{node.name} reads it as {layout}"):
                continue
            held = getattr(module, name).contiguous(memory_format=layout)
            made = add_constant(editor, operand, held)
            made.meta["val"] = operand.meta["val"].contiguous(memory_format=layout)
            copies[name, layout] = made
        node.replace_input_with(operand, copies[name, layout])


def drop_unread_constants(module: fx.GraphModule) -> None:
    """Remove constants that something else has taken the place of, and free their memory."""
    for node in list(module.graph.find_nodes(op="get_attr")):
        if not node.users:
            module.graph.erase_node(node)
    read = {str(node.target) for node in module.graph.find_nodes(op="get_attr")}
    for name, _ in list(module.named_buffers(recurse=False)):
        if name.startswith(NAMED) and name not in read:
            delattr(module, name)


def _wanted(node: fx.Node) -> tuple[fx.Node, torch.memory_format] | None:
    """Return the constant operand of a call that should lie otherwise, and how."""
    if node.target in PRODUCTS:
        matrix, shape = node.args[-1], static_shape(node)
        few = shape is not None and shape[0] <= FEW_ROWS and not made_of_loops(node)
        if few and held_constant(matrix) is not None and not fake(matrix).is_contiguous():  # type: ignore[union-attr]
            return matrix, torch.contiguous_format  # type: ignore[return-value]
    if node.target is aten.convolution.default and static_shape(node.args[0]) is not None:
        image, kernel = (fake(part) for part in node.args[:2])
        last = torch.channels_last
        if (
            image is None
            or kernel is None
            or image.dim() != 4
            or held_constant(node.args[1]) is None
        ):
            return None
        is_last = image.is_contiguous(memory_format=last) and not image.is_contiguous()
        if is_last and not kernel.is_contiguous(memory_format=last):
            return node.args[1], last  # type: ignore[return-value]
    return None
