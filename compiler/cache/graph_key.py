"""The key of a compiled graph on disk: all that the result depends on, part by part.

In: a captured graph, its fake inputs and the settings. Out: a `Key`, or `Uncached` with the reason.
What is not known to be covered is refused: a miss costs a compile, a wrong hit a wrong result.
"""

from __future__ import annotations

import builtins
import functools
import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._C._functorch import peek_interpreter_stack
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.node import _get_qualified_name

from tc.compiler.core import levels
from tc.compiler.core.conditions import Sizes, sizes_of, text_of
from tc.compiler.core.frozen_graph import OWN_NAMESPACES
from tc.compiler.core.memory import REPLACED, storage_id
from tc.compiler.core.modes import SETS_MODES
from tc.compiler.runtime.build import cpu_identity
from tc.compiler.runtime.tuned import gpu_identity

#: the folder of the compiler
ROOT = Path(__file__).parents[1]
#: packages whose functions are identified by name: their versions, or tc's code, are in the key
KNOWN_PACKAGES = ("torch", "operator", "_operator", "math", "builtins", "tc")
#: bytes of a constant that may be part of a key
SMALL = 1 << 16
#: kinds of devices whose tensors a key distinguishes
DEVICES = ("cpu", "cuda")
#: variables that say where things go, not what is made
ELSEWHERE = (
    "TC_CACHE_DIR",
    "TC_CACHE_KEY",
    "TC_CPU_LEVEL",
    "TC_FORCE_DISABLE_CACHES",
    "TC_FX_GRAPH_CACHE",
    "TC_TRACE",
    "TC_LOGS",
    "TC_LOGS_OUT",
    "TC_LOGS_FORMAT",
)
#: parts of a key that decide how fast a program is or what traces say, and no result
OF_MACHINE = ("lines", "traced", "threads", "kernel threads", "machine", "compiler")
#: types whose repr is all there is to a value
PRINTED = (
    type(None), bool, int, str, bytes, complex, torch.dtype, torch.device, torch.layout,
    torch.memory_format, type(Ellipsis), range, torch.Size,
)  # fmt: skip


class Uncached(Exception):
    """A graph is not looked for on disk, and not kept there; the message says why."""


@dataclass(frozen=True)
class Key:
    """What a compiled graph depends on.

    Attributes:
        parts: name -> text or hash, for the trace.
        sizes: what its entry's conditions are asked of; None where all sizes are numbers.
    """

    parts: Mapping[str, str]
    sizes: Sizes | None = field(default=None, compare=False)

    @functools.cached_property
    def digest(self) -> str:
        """The name of the entry."""
        return _hash("\0".join(f"{name}={part}" for name, part in self.parts.items()))

    def of_backward(self) -> Key:
        """Return the key of backward's entry, as of now.

        Backward is compiled under every condition on sizes that forward was compiled under: it
        may hold their numbers where forward's own entry states them as conditions.
        """
        parts = {**self.parts, "kind": "training, backward"}
        if self.sizes is None:
            return Key(parts)
        sizes = Sizes(self.sizes.env)
        return Key({**parts, "sizes": _hash(sizes.known)}, sizes)

    def without(self, tangents: tuple[int, ...]) -> Key:
        """Return the key of a backward's entry for calls where some tangents are undefined."""
        if not tangents:
            return self
        kind = f"{self.parts['kind']}, without {', '.join(map(str, tangents))}"
        return Key({**self.parts, "kind": kind}, self.sizes)

    @functools.cached_property
    def carried_parts(self) -> dict[str, str]:
        """The parts that have to be the same on another machine."""
        return {name: part for name, part in self.parts.items() if name not in OF_MACHINE}

    @functools.cached_property
    def portable(self) -> str:
        """The name of the entry in a file that other machines load."""
        return _hash("\0".join(f"{name}={part}" for name, part in self.carried_parts.items()))


def key_of(
    gm: fx.GraphModule,
    examples: Sequence[Any],
    settings: Mapping[str, Any],
    with_lines: bool = False,
) -> Key:
    """Return the key of a graph.

    Args:
        gm: calls of functions and methods, no modules.
        examples: a fake tensor or plain number for each placeholder.
        settings: what else the result depends on, by name; printed.
        with_lines: what is kept shows the user's lines, so their texts count, too.

    Raises:
        Uncached, NotPlain: something in it has no text that identifies it in another process.
    """
    if peek_interpreter_stack() is not None:
        raise Uncached("it is compiled inside a transform of torch.func")
    graph, inputs = "\n".join(graph_lines(gm)), "\n".join(input_lines(examples))
    sizes = sizes_of(examples)
    return Key(
        {
            "graph": _hash(graph),
            "lines": _hash("\n".join(user_lines(gm, with_lines))),
            "inputs": _hash(inputs),
            **({"sizes": _hash(sizes.known)} if sizes is not None else {}),
            **{name: str(value) for name, value in settings.items()},
            "state": state(),
            "tc": own_code(),
            "torch": f"{torch.__version__} {torch.version.git_version}",
            "python": sys.version,
            "machine": _hash(cpu_identity()),
            **({"gpus": gpu_identity()} if _names_gpu(graph, inputs) else {}),
            "threads": str(torch.get_num_threads()),
            "compiler": os.environ.get("CC", ""),
            "environment": environment(),
        },
        sizes,
    )


def _names_gpu(*texts: str) -> bool:
    """Whether a tensor or an argument is of a GPU, or what is made without a device goes there."""
    return any("cuda" in text for text in (*texts, levels.name_of_default_device()))


# -- graphs --------------------------------------------------------------------------------------
def graph_lines(gm: fx.GraphModule) -> list[str]:
    """Return a text a node: everything that its result depends on.

    Raises:
        Uncached: a node has none.
    """
    # That it sets modes is what some of its nodes say.
    if marks := [name for name, value in gm.meta.items() if value is True and name != SETS_MODES]:
        raise Uncached(f"it is marked {', '.join(marks)}")
    return [_node_text(gm, node) for node in gm.graph.nodes]


def user_lines(gm: fx.GraphModule, with_text: bool = False) -> Iterator[str]:
    """Return the places of each node in the user's code, asked so with the text of the line."""
    for node in gm.graph.nodes:
        places = [*(node.meta.get("tc_origin") or ()), *chain(*node.meta.get("tc_also", ()))]
        yield ";".join(f"{place.file}:{place.line}:{place.name}" for place in places)
        if with_text:
            yield " ".join(str(place.loc) for place in places)
        body = attribute(gm, str(node.target)) if node.op == "get_attr" else None
        if isinstance(body, fx.GraphModule):
            yield from user_lines(body, with_text)


def _node_text(gm: fx.GraphModule, node: fx.Node) -> str:
    if node.op == "call_function":
        target = _function_name(node.target)
    elif node.op == "get_attr":
        target = f"{node.target} {_constant_text(gm, node)}"
    elif node.op == "call_module":
        raise Uncached("it calls a module as one operation")
    else:
        target = str(node.target)
    value = node.meta.get("val")
    known = "" if value is None else _values_text(value)
    known += str(node.meta.get(REPLACED, ""))
    return f"{node.name} {node.op} {target} {_text(node.args)} {_text(node.kwargs)} {known}"


@functools.cache
def _function_name(function: Any) -> str:
    """Return the name under which every process finds the same function."""
    if isinstance(function, OpOverload):
        if function.namespace not in OWN_NAMESPACES:
            raise Uncached(f"{function} is an operator of the user's")
        return str(function)
    try:
        name = _get_qualified_name(function)
    except Exception as error:
        raise Uncached(f"{function} has no name") from error
    if vars(builtins).get(name) is function:
        return name
    package, *path = name.split(".")
    found: Any = sys.modules.get(package)
    for part in path:
        found = getattr(found, part, None)
    if package not in KNOWN_PACKAGES or found is not function:
        raise Uncached(f"{name} is a function of the user's")
    return name


def _constant_text(gm: fx.GraphModule, node: fx.Node) -> str:
    value = attribute(gm, str(node.target))
    if isinstance(value, fx.GraphModule):  # the body of an operation: of a checkpoint for example
        if value.meta:
            raise Uncached(f"a body in it has {', '.join(value.meta)}")
        return _hash("\n".join(graph_lines(value)))
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.device.type not in DEVICES:
        raise Uncached(f"it holds a {type(value).__name__}")
    if value.layout is not torch.strided or value.requires_grad:
        raise Uncached("it holds a tensor that is not plain")
    if value.numel() * value.itemsize > SMALL:
        raise Uncached("it holds a large constant")
    return f"{_layout(value)} {hashlib.sha256(tensor_bytes(value)).hexdigest()}"


def attribute(gm: fx.GraphModule, path: str) -> Any:
    """Return what a graph holds under a dotted path."""
    owner, _, name = path.rpartition(".")
    return getattr(gm.get_submodule(owner), name)


def tensor_bytes(value: torch.Tensor) -> bytes:
    """Return the elements of a tensor in memory, in the order of its indices."""
    flat = value.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy().tobytes())


def _text(value: Any) -> str:
    if isinstance(value, fx.Node):
        return f"%{value.name}"
    if isinstance(value, PRINTED):
        return repr(value)
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return text_of(value)
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}[{','.join(map(_text, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{_text(key)}:{_text(item)}' for key, item in value.items())}}}"
    if isinstance(value, slice):
        return f"slice({_text(value.start)},{_text(value.stop)},{_text(value.step)})"
    raise Uncached(f"an argument is a {type(value).__name__}")


def _values_text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(_values_text, value))}]"
    return _layout(value) if isinstance(value, torch.Tensor) else _text(value)


# -- inputs --------------------------------------------------------------------------------------
def input_lines(examples: Sequence[Any]) -> list[str]:
    """Return a text an input: layout, gradient, and with which earlier one it shares memory.

    Raises:
        Uncached: an input is no plain fake tensor.
    """
    memory: dict[int, int] = {}
    lines = []
    for i, value in enumerate(examples):
        if not isinstance(value, torch.Tensor):
            lines.append(_text(value))
            continue
        if type(value) is not FakeTensor:
            raise Uncached(f"an input is a {type(value).__name__}")
        layout = _layout(value)
        shared = memory.setdefault(storage_id(value), i)
        flags = (
            value.requires_grad, value.is_leaf, value._is_view(), value.is_inference(),
            value.is_conj(), value.is_neg(), value._is_zerotensor(),
            isinstance(value, torch.nn.Parameter), _text(value.untyped_storage().nbytes()), shared,
        )  # fmt: skip
        lines.append(f"{layout} {flags}")
    return lines


def _layout(value: torch.Tensor) -> str:
    if value.layout is not torch.strided or value.is_nested or value.is_quantized:
        raise Uncached(f"a tensor has layout {value.layout}")
    if value.device.type not in DEVICES:
        raise Uncached(f"a tensor is on {value.device}")
    numbers = tuple(value.shape), tuple(value.stride()), value.storage_offset()
    return f"{value.dtype} {_text(numbers)} {value.device}"


# -- surroundings --------------------------------------------------------------------------------
def state() -> str:
    """Return the switches of torch that decide which operations a call becomes."""
    cuda: Any = torch.backends.cuda
    mkldnn: Any = torch.backends.mkldnn
    filling: Any = torch.utils.deterministic
    autocast = [
        (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
        for device in ("cpu", "cuda")
    ]
    return repr(
        (
            torch.is_grad_enabled(), torch.is_inference_mode_enabled(), autocast,
            torch.is_autocast_cache_enabled(), torch.get_default_dtype(),
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            filling.fill_uninitialized_memory,
            cuda.matmul.fp32_precision, mkldnn.matmul.fp32_precision, mkldnn.conv.fp32_precision,
            mkldnn.enabled,
            cuda.flash_sdp_enabled(), cuda.math_sdp_enabled(),
            cuda.mem_efficient_sdp_enabled(), cuda.cudnn_sdp_enabled(),
            torch._C._get_sdp_priority_order(),
            levels.name_of_default_device(),
            torch.backends.opt_einsum.enabled, torch.backends.opt_einsum.strategy,
        )
    )  # fmt: skip


@functools.cache
def own_code() -> str:
    """Return a hash of the compiler's own source."""
    digest = hashlib.sha256()
    for path in own_files():
        digest.update(str(path.relative_to(ROOT)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def own_files() -> list[Path]:
    """Return the compiler's own files: Python, and the C that it pastes or builds."""
    return sorted(path for path in ROOT.rglob("*") if path.suffix in (".py", ".c", ".h"))


def environment() -> str:
    """Return variables that may change what is generated."""
    names = sorted(name for name in os.environ if name.startswith("TC_") and name not in ELSEWHERE)
    names.append("ATEN_CPU_CAPABILITY")
    return " ".join(f"{name}={os.environ[name]}" for name in names if name in os.environ)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
