"""Python functions of tc that traced code may call, and that are traced like user code."""

from __future__ import annotations

import dis
import functools
import math
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
import torch.utils.checkpoint
from torch.utils import _pytree as pytree

from tc.compiler.capture.bytecode.linetable import encode_locations
from tc.compiler.core.once import loaded
from tc.compiler.errors import CALL_OF


class _Strictness(threading.local):
    on: bool | None = None


_STRICTNESS = _Strictness()


def breaks_are_errors() -> bool | None:
    """Return whether graph breaks are errors in this thread; None if ``fullgraph`` decides.

    A block of `torch._dynamo.error_on_graph_break` around the call counts where none of tc does.
    """
    if _STRICTNESS.on is not None:
        return _STRICTNESS.on
    torchs = loaded("torch._dynamo.utils")
    return True if torchs is not None and torchs._get_error_on_graph_break() else None


def set_error_on_graph_break(on: bool | None) -> bool | None:
    """Set whether graph breaks are errors from here on; return what was set before."""
    before, _STRICTNESS.on = _STRICTNESS.on, on
    return before


class ErrorOnGraphBreak:
    """Context manager and decorator; see `tc.error_on_graph_break`."""

    def __init__(self, on: bool) -> None:
        self.on = on
        self.before: list[bool | None] = []

    def __enter__(self) -> None:
        self.before.append(set_error_on_graph_break(self.on))

    def __exit__(self, *raised: object) -> None:
        set_error_on_graph_break(self.before.pop())

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        on = self.on

        @functools.wraps(function)
        def strict(*args: Any, **kwargs: Any) -> Any:
            before = set_error_on_graph_break(on)
            try:
                return function(*args, **kwargs)
            finally:
                set_error_on_graph_break(before)

        return _named_after(function, strict)  # type: ignore[no-any-return]


class WithoutEffect:
    """Context manager and decorator in the place of one of torch that means nothing here."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *raised: object) -> None:
        pass

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function


def error_on_graph_break(on: bool) -> ErrorOnGraphBreak:
    """Make graph breaks errors, or not, in a block or a function; ``fullgraph`` takes precedence.

    Args:
        on: True: `tc.exc.Unsupported` is raised at a break; False: breaks are allowed.

    Example:
        >>> import tc
        >>> @tc.error_on_graph_break(True)
        ... def f(x):
        ...     return x.sin()
    """
    return ErrorOnGraphBreak(on)


def over_tensors(function: Any, args: Any, kwargs: Any) -> Any:
    """Call a function of numpy arrays on tensors; traced code uses a handler instead."""
    args, kwargs = pytree.tree_map_only(torch.Tensor, _to_array, (args, kwargs))
    return pytree.tree_map_only(
        (np.ndarray, np.generic), torch.as_tensor, function(*args, **kwargs)
    )


def _to_array(tensor: torch.Tensor) -> Any:
    return tensor.numpy(force=True)


def numpy_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of tensors that calls one of arrays."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return over_tensors(function, args, kwargs)

    return _named_after(function, wrapper)  # type: ignore[no-any-return]


def over_rows(op: Callable[..., Any], *operands: Any, **kwargs: Any) -> Any:
    """Call a function for each row of lists; what is no list belongs to every row."""
    lists = [operand for operand in operands if isinstance(operand, list | tuple)]
    if not lists:
        return op(*operands, **kwargs)
    count = min(map(len, lists))
    columns = [
        one if isinstance(one, list | tuple) else [one] * count for one in operands
    ]
    return [op(*row, **kwargs) for row in zip(*columns, strict=False)]


def calling(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a Python function, which has a frame to capture, that calls another callable."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return _named_after(function, call)  # type: ignore[no-any-return]


def _named_after(function: Callable[..., Any], wrapper: Any) -> Any:
    """Return a wrapper with code of its own, to which compiled code belongs.

    Its name and place are those of what it calls, as no line of tc's means anything to users.
    """
    code, module = wrapper.__code__, wrapper.__module__
    # `functools.wraps` found a name to copy
    named = wrapper.__qualname__ != code.co_qualname
    name = wrapper.__qualname__ if named else type(function).__qualname__
    here = dis.Positions(1, 1, None, None)
    units = len(code.co_code) // 2
    wrapper.__code__ = code.replace(
        co_filename=f"{CALL_OF}{module}.{name}>" if module else f"{CALL_OF}{name}>",
        co_firstlineno=1,
        co_name=name.rpartition(".")[2],
        co_qualname=name,
        co_linetable=encode_locations([(here, units)], 1, merge=True),
    )
    return wrapper


def count_elements(counts: Any, elements: Any) -> None:
    """Count elements in a mapping, as `collections.Counter` does."""
    for element in elements:
        counts[element] = counts.get(element, 0) + 1


class _Ahead:
    """The lookahead of `groupby`: the next element, with its key."""

    def __init__(
        self, iterable: Iterable[Any], key: Callable[[Any], Any] | None
    ) -> None:
        self.rest = iter(iterable)
        self.key = key
        self.group = 0
        self.read()

    def read(self) -> None:
        """Advance to the next element."""
        self.over = True
        for element in self.rest:
            self.over = False
            self.element = element
            self.found = element if self.key is None else self.key(element)
            break

    def members(self, group: int, key: Any) -> Iterator[Any]:
        """Yield the elements of a group until a later group is requested."""
        while not self.over and self.group == group and self.found == key:
            yield self.element
            if self.group == group:
                self.read()


def groupby(
    iterable: Iterable[Any], key: Callable[[Any], Any] | None = None
) -> Iterator[tuple[Any, Iterator[Any]]]:
    """Yield runs of elements with equal keys, as `itertools.groupby` does."""
    ahead = _Ahead(iterable, key)
    while not ahead.over:
        found = ahead.found
        ahead.group += 1
        yield found, ahead.members(ahead.group, found)
        while not ahead.over and ahead.found == found:
            ahead.read()


def group_tensors(
    lists: list[list[Any]], with_indices: bool = False
) -> dict[tuple[torch.device, torch.dtype], tuple[list[list[Any]], list[int]]]:
    """Group lists of equal length by device and dtype of the first list's tensors, for optimizers.

    A list may be empty. With ``with_indices`` each group has the positions of its tensors.
    """
    groups: dict[
        tuple[torch.device, torch.dtype], tuple[list[list[Any]], list[int]]
    ] = {}
    for index, first in enumerate(lists[0]):
        key = (first.device, first.dtype)
        if key not in groups:
            groups[key] = ([[] for _ in lists], [])
        parted, indices = groups[key]
        for into, tensors in zip(parted, lists, strict=True):
            into.extend(tensors[index : index + 1])
        if with_indices:
            indices.append(index)
    return groups


# -- flex attention ----------------------------------------------------------------------------
#: the dimension of each level of vmap, innermost first, among batch, head, query and key position
AXES = (
    (None, None, None, 0),
    (None, None, 0, None),
    (None, 0, None, None),
    (0, None, None, None),
)


def of_all_positions(function: Callable[..., Any], scores: int) -> Callable[..., Any]:
    """Return a function of scores and four positions, vectorised over all positions."""
    for axes in AXES:
        function = torch.vmap(function, in_dims=(0,) * scores + axes)
    return function


def dense_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: Callable[..., torch.Tensor],
    block_mask: tuple[Any, ...],
    scale: float,
    kernel_options: dict[str, Any],
    score_mod_other_buffers: tuple[Any, ...] = (),
    mask_mod_other_buffers: tuple[Any, ...] = (),
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute attention of queries (B, Hq, L, E) to keys (B, Hkv, S, E) and values (B, Hkv, S, Ev).

    It has the parameters of the operation. Blocks of its mask only save work, so only the mask's
    function is used.

    Returns:
        The result (B, Hq, L, Ev); log2 of the sum of the exponentials of the scores, and the
        largest score divided by log 2, each (B, Hq, L).
    """
    batch, heads = query.shape[:2]
    groups = heads // key.shape[1]
    key = key.repeat_interleave(groups, 1).expand(batch, -1, -1, -1)
    value = value.repeat_interleave(groups, 1).expand(batch, -1, -1, -1)
    precise = torch.float64 if query.dtype == torch.float64 else torch.float32
    scores = query.to(precise) @ key.to(precise).transpose(-2, -1) * scale
    positions = [torch.arange(size, device=scores.device) for size in scores.shape]
    changed = of_all_positions(score_mod, 1)(
        scores, *positions, *score_mod_other_buffers
    )
    seen = of_all_positions(block_mask[-1], 0)(*positions, *mask_mod_other_buffers)
    changed = torch.where(seen, changed.to(precise), -math.inf)
    weights = torch._safe_softmax(changed, -1).to(query.dtype)
    sums, largest = changed.logsumexp(-1), changed.amax(-1)
    return weights @ value.to(query.dtype), sums / math.log(2), largest / math.log(2)


# -- collectives that write into tensors, by functional operations ---------------------------------
def _fits(same: bool, what: str) -> None:
    if not same:  # eager raises, or does what the functional form cannot
        raise RuntimeError(f"{what} of tensors that do not fit")


def _result(tensor: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = torch.ops._c10d_functional.wait_tensor(tensor)
    return result


def all_reduce(tensor: torch.Tensor, op: str, name: str, ranks: int) -> None:
    """See `torch.distributed.all_reduce`; ``name`` is that of the group of so many ``ranks``."""
    tensor.copy_(_result(torch.ops._c10d_functional.all_reduce(tensor, op, name)))


def _gathered(tensor: torch.Tensor, name: str, ranks: int) -> torch.Tensor:
    flat = tensor.detach().reshape(-1)
    return _result(torch.ops._c10d_functional.all_gather_into_tensor(flat, ranks, name))


def all_gather_into(
    output_tensor: torch.Tensor, input_tensor: torch.Tensor, name: str, ranks: int
) -> None:
    """See `torch.distributed.all_gather_into_tensor`: one after the other, in memory."""
    _fits(output_tensor.dtype == input_tensor.dtype, "all_gather")
    output_tensor.copy_(_gathered(input_tensor, name, ranks).view(output_tensor.shape))


def all_gather(
    tensor_list: list[torch.Tensor], tensor: torch.Tensor, name: str, ranks: int
) -> None:
    """See `torch.distributed.all_gather`, of tensors of one size."""
    same = all(t.shape == tensor.shape and t.dtype == tensor.dtype for t in tensor_list)
    _fits(same and len(tensor_list) == ranks, "all_gather")
    gathered = _gathered(tensor, name, ranks).view(ranks, *tensor.shape)
    for number, target in enumerate(tensor_list):
        target.copy_(gathered[number])


def reduce_scatter_into(
    output: torch.Tensor, input: torch.Tensor, op: str, name: str, ranks: int
) -> None:
    """See `torch.distributed.reduce_scatter_tensor`: the ranks' parts lie one after the other."""
    _fits(output.dtype == input.dtype, "reduce_scatter")
    flat = input.detach().reshape(-1)
    part = torch.ops._c10d_functional.reduce_scatter_tensor(flat, op, ranks, name)
    output.copy_(_result(part).view(output.shape))


def all_to_all_into(
    output: torch.Tensor,
    input: torch.Tensor,
    name: str,
    ranks: int,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
) -> None:
    """See `torch.distributed.all_to_all_single`: parts along the first dimension."""
    sent = input_split_sizes or [input.shape[0] // ranks] * ranks
    got = output_split_sizes or [output.shape[0] // ranks] * ranks
    _fits(output.dtype == input.dtype and sum(sent) == input.shape[0], "all_to_all")
    _fits(
        sum(got) == output.shape[0] and output.shape[1:] == input.shape[1:],
        "all_to_all",
    )
    exchanged = torch.ops._c10d_functional.all_to_all_single(
        input.detach(), got, sent, name
    )
    output.copy_(_result(exchanged))


def checkpoint_without_gradients(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function as a reentrant checkpoint does where no argument requires a gradient.

    It is an autograd.Function of its arguments, so tensors that the function finds elsewhere, such
    as parameters, get no gradients either.
    """
    torch.utils.checkpoint.check_backward_validity(args)
    with torch.no_grad():
        return function(*args)


def substitute(
    pattern: Any,
    repl: Callable[[Any], Any],
    string: Any,
    count: int = 0,
) -> tuple[Any, int]:
    """Do what ``pattern.subn`` does with a function that is called with each match."""
    parts, end, done = [], 0, 0
    for match in pattern.finditer(string):
        if count and done == count:
            break
        parts.append(string[end : match.start()])
        found = repl(match)
        if found is not None:
            parts.append(found)
        end = match.end()
        done += 1
    parts.append(string[end:])
    return string[:0].join(parts), done


class Compared:
    """A key that ``functools.cmp_to_key`` makes: it is compared by a function."""

    def __init__(self, compare: Callable[[Any, Any], Any], obj: Any) -> None:
        self.compare = compare
        self.obj = obj

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, other: Any) -> Any:
        return self.compare(self.obj, other.obj) < 0

    def __gt__(self, other: Any) -> Any:
        return self.compare(self.obj, other.obj) > 0

    def __eq__(self, other: Any) -> Any:
        return self.compare(self.obj, other.obj) == 0

    def __le__(self, other: Any) -> Any:
        return self.compare(self.obj, other.obj) <= 0

    def __ge__(self, other: Any) -> Any:
        return self.compare(self.obj, other.obj) >= 0


def key_by_comparison(mycmp: Callable[[Any, Any], Any]) -> Any:
    """Do what ``functools.cmp_to_key`` does."""
    return functools.partial(Compared, mycmp)
