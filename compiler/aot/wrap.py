"""Makes the wrapper of a compiled graph: a function from the user's inputs to the user's outputs.

It is Python source, generated for each graph, so that steps which a graph does not need cost
nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from tc.compiler.aot.artifact import (
    AotGraph,
    Constant,
    Contract,
    Dim,
    Fresh,
    Output,
    SameInput,
    SameOutput,
    View,
)
from tc.compiler.aot.layouts import extent
from tc.compiler.core.wrapper_inlining import wrapper_body

Compiled = Callable[[list[Any]], tuple[Any, ...]]


def wrap(graph: AotGraph, compiled: Compiled) -> Callable[..., list[Any]]:
    """Return a function from the captured graph's inputs to its outputs.

    Args:
        graph: has the plan of the outputs, the inputs that are written to, and the graph to run
            if inputs share memory with one that is written to.
        compiled: runs the graph; takes a list, which it may empty.
    """
    return wrap_contract(graph.contract, compiled, graph.eager)


def wrap_contract(
    contract: Contract, compiled: Compiled, eager: Callable[..., Any] | None
) -> Callable[..., list[Any]]:
    """Do as `wrap`, with only the contract of the graph; ``eager`` runs in its place."""
    names: dict[str, Any] = {"__name__": __name__, "compiled": compiled, "torch": torch}
    source = wrapper_source(contract, eager, names)
    function: Callable[..., list[Any]] | None = _with_lines(contract, source, compiled, names)
    if function is None:
        exec(compile(source, "<tc runtime wrapper>", "exec"), names)
        function = names["wrapper"]
    function.__doc__ = source
    return function


def _with_lines(
    contract: Contract, source: str, compiled: Compiled, names: dict[str, Any]
) -> Callable[..., list[Any]] | None:
    """Inline the lines of the compiled function into the wrapper (wrapper inlining).

    This is done if they are few and the wrapper ends in the call.
    """
    lines = wrapper_body(compiled)
    direct = contract.fresh and not contract.autocast
    if lines is None or not direct or len(lines.arguments) != len(contract.tensors):
        return None
    own = {*names, *(f"a{i}" for i in range(len(contract.tensors)))}
    if own & lines.names() - {"torch"}:
        return None
    tree = ast.parse(source)
    for node in ast.walk(tree):  # the file that tracebacks name is the compiled function's
        if isinstance(node, ast.stmt | ast.expr | ast.arg):
            node.lineno = node.end_lineno = lines.line
    [wrapper] = tree.body
    assert isinstance(wrapper, ast.FunctionDef)
    given = "".join(f"a{i}, " for i in range(len(lines.arguments)))
    bound = ast.parse(f"{''.join(f'{name}, ' for name in lines.arguments)} = {given}").body
    result = ast.Return(ast.List(list(lines.results), ast.Load()))
    call = wrapper.body.pop()
    if lines.otherwise is not None:
        wrapper.body.append(ast.If(lines.otherwise, [call], []))
    wrapper.body += [*bound, *lines.steps, result]
    space = {**compiled.__globals__, **names}
    code = compile(ast.fix_missing_locations(tree), compiled.__code__.co_filename, "exec")
    exec(code, space)
    function: Callable[..., list[Any]] = space["wrapper"]
    return function


def wrap_backward(
    outputs: tuple[Output, ...], compiled: Compiled
) -> Callable[[list[Any]], list[Any]]:
    """Return a function that takes a list of backward's inputs, which it empties, to its outputs.

    Nothing here keeps an input alive that is not returned, so that each can be freed after its last
    use.
    """
    same = {out.index for out in outputs if isinstance(out, SameInput)}
    lines = [f"a{i} = args[{i}]" for i in sorted(same)]
    names: dict[str, Any] = {"compiled": compiled}
    lines += ["out = compiled(args)", *_results(outputs, names)]
    body = "".join(f"    {line}\n" for line in lines)
    exec(compile(f"def wrapper(args):\n{body}", "<tc backward wrapper>", "exec"), names)
    function: Callable[[list[Any]], list[Any]] = names["wrapper"]
    return function


def wrapper_source(graph: Contract, eager: Callable[..., Any] | None, names: dict[str, Any]) -> str:
    """Return the wrapper's source, and add the values that it refers to by name to ``names``."""
    args = "".join(f"a{i}, " for i in range(len(graph.tensors)))
    lines = [f"def wrapper({args}):"]
    body = []
    if eager is not None:
        names["eager"] = eager
        body = _modes_check(args, names) + _overlap_check(graph, args, names)
    call = f"compiled([{args}])"
    if graph.autocast:
        body += _without_autocast(graph.autocast, call)
        call = "out"
    if graph.fresh:
        body.append(f"return list({call})")
    else:
        if call != "out":
            body.append(f"out = {call}")
        body += [f"a{i}.copy_(out[{place}])" for i, place in graph.rewritten]
        body += _results(graph.outputs, names)
    lines += [f"    {line}" for line in body]
    return "\n".join(lines) + "\n"


def _results(outputs: tuple[Output, ...], names: dict[str, Any]) -> list[str]:
    lines = [f"r{i} = {_expression(out, i, names)}" for i, out in enumerate(outputs)]
    return [*lines, f"return [{', '.join(f'r{i}' for i in range(len(outputs)))}]"]


def _expression(out: Output, position: int, names: dict[str, Any]) -> str:
    match out:
        case Fresh(index):
            return f"out[{index}]"
        case SameInput(index):
            return f"a{index}"
        case SameOutput(index):
            return f"r{index}"
        case Constant(value):
            if value is None or type(value) in (bool, int):
                return repr(value)
            names[f"c{position}"] = value
            return f"c{position}"
        case View(of, size, stride, offset, detached, is_view):
            base = f"a{of.index}" if isinstance(of, SameInput) else f"out[{of.index}]"
            start = f"{base}.storage_offset() + {_dim(offset)}"
            source = f"{base}.detach()" if detached else base
            end = "" if is_view else ".detach()"
            return f"{source}.as_strided({_dims(size)}, {_dims(stride)}, {start}){end}"


def _dim(dim: Dim) -> str:
    return f"out[{dim.index}]" if isinstance(dim, Fresh) else str(dim)


def _dims(dims: tuple[Dim, ...]) -> str:
    return f"({''.join(f'{_dim(dim)}, ' for dim in dims)})"


def _without_autocast(devices: tuple[str, ...], call: str) -> list[str]:
    """Emit a call with autocast off, as its casts are part of the graph already."""
    lines = [f"torch.set_autocast_enabled({device!r}, False)" for device in devices]
    lines += ["try:", f"    out = {call}", "finally:"]
    return lines + [f"    torch.set_autocast_enabled({device!r}, True)" for device in devices]


def _modes_check(args: str, names: dict[str, Any]) -> list[str]:
    """Emit a check that runs the captured graph under a dispatch mode or forward-mode AD."""
    names["modes"] = torch._C._len_torch_dispatch_stack
    names["seen_by_mode"] = seen_by_mode
    names["forward_ad"] = forward_ad
    test = "modes() and seen_by_mode() or forward_ad._current_level >= 0"
    return [f"if {test}:", f"    return list(eager({args}))"]


def seen_by_mode() -> bool:
    """Return whether a dispatch mode has to see each operation of the user.

    A mode with `ignore_compile_internals`, such as DebugMode, sees the operations that compiled
    graphs call instead.
    """
    modes = _get_current_dispatch_mode_stack()
    return not all(mode.ignore_compile_internals() for mode in modes)


def _overlap_check(graph: Contract, args: str, names: dict[str, Any]) -> list[str]:
    """Emit a check that runs the captured graph if a written input shares memory with another."""
    tensors = [i for i, is_tensor in enumerate(graph.tensors) if is_tensor]
    others = [i for i in tensors if i not in graph.written]
    if not graph.written or len(tensors) < 2:
        return []
    names["overlap"] = overlap

    def pick(indices: list[int] | tuple[int, ...]) -> str:
        return f"({''.join(f'a{i}, ' for i in indices)})"

    return [
        f"if overlap({pick(graph.written)}, {pick(others)}):",
        f"    return list(eager({args}))",
    ]


def overlap(written: tuple[torch.Tensor, ...], others: tuple[torch.Tensor, ...]) -> bool:
    """Return whether a written tensor may share memory with another tensor.

    Tensors whose memory interleaves without touching count as overlapping.
    """
    spans = [(*_span(tensor), True) for tensor in written]
    spans += [(*_span(tensor), False) for tensor in others]
    spans.sort()
    end_written = end_any = 0
    for start, end, is_written in spans:
        if start == end:
            continue
        if start < (end_any if is_written else end_written):
            return True
        end_any = max(end_any, end)
        if is_written:
            end_written = max(end_written, end)
    return False


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    start = tensor.data_ptr()
    count = tensor.numel() if tensor.is_contiguous() else extent(tensor)
    return start, start + count * tensor.itemsize
