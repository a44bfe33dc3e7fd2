"""Makes inputs plain: fewer of them, values that need no file, small shapes, common types."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator

from tc.minifier.case import Case, Input, contiguous

Fails = Callable[[Case], bool]
Change = Callable[[Input], Input]
SIZES = (1, 2, 3, 4, 8, 16, 32, 64)


def _changed(case: Case, change: Change, only: str = "") -> Case:
    inputs = [change(item) if not only or item.name == only else item for item in case.inputs]
    return dataclasses.replace(case, inputs=tuple(inputs))


def _all_or_each(case: Case, change: Change, fails: Fails) -> Iterator[Case]:
    """Change all inputs at once; where that does not do, one after another."""
    whole = _changed(case, change)
    if whole.inputs == case.inputs:
        return
    if fails(whole):
        yield whole
        return
    if len(case.inputs) < 2:
        return
    for item in case.inputs:
        smaller = _changed(case, change, item.name)
        if smaller.inputs != case.inputs and fails(smaller):
            case = smaller
            yield case


def made_values(case: Case, fails: Fails) -> Iterator[Case]:
    """Make values by `torch.randn` instead of taking the recorded ones."""

    def random(item: Input) -> Input:
        return dataclasses.replace(item, fill="randn") if item.fill == "recorded" else item

    def unit(item: Input) -> Input:
        return dataclasses.replace(item, fill="rand") if item.fill == "recorded" else item

    def ones(item: Input) -> Input:
        return dataclasses.replace(item, fill="ones") if item.fill == "recorded" else item

    for change in (random, unit, ones):
        for smaller in _all_or_each(case, change, fails):
            case = smaller
            yield case


def tiny(case: Case) -> Case:
    """Return the case on random vectors of one element: what most single ops go wrong on."""

    def one_element(item: Input) -> Input:
        if item.fill != "recorded" or not item.is_float:
            return item
        shape = (1,) if item.shape else ()
        return dataclasses.replace(item, fill="randn", shape=shape, stride=())

    return _changed(case, one_element)


def contiguous_layout(case: Case, fails: Fails) -> Iterator[Case]:
    """Lay inputs out contiguously."""
    change: Change = lambda item: dataclasses.replace(item, stride=())  # noqa: E731
    yield from _all_or_each(case, change, fails)


def _plain(item: Input) -> Input:
    return dataclasses.replace(item, requires_grad=False)


def forward_only(case: Case) -> Case:
    """Return the case without gradients."""
    return dataclasses.replace(_changed(case, _plain), backward=False)


def forward_alone(case: Case, fails: Fails) -> Iterator[Case]:
    """Compute no gradients."""
    forward = forward_only(case)
    if case.backward and fails(forward):
        yield forward


def no_gradients(case: Case, fails: Fails) -> Iterator[Case]:
    """Compute no gradients; else those of as few inputs as will do."""
    if not case.backward:
        return
    for forward in forward_alone(case, fails):
        yield forward
        return
    for item in case.inputs:
        smaller = _changed(case, _plain, item.name)
        left = any(row.requires_grad for row in smaller.inputs)
        if left and smaller.inputs != case.inputs and fails(smaller):
            case = smaller
            yield case


def merged(case: Case, fails: Fails) -> Iterator[Case]:
    """Pass one input twice instead of two that are alike."""
    for item in case.inputs[1:]:
        for other in case.inputs:
            if other.name == item.name or item.name not in {row.name for row in case.inputs}:
                break
            alike = (item.shape, item.dtype, item.stride, item.requires_grad, item.device) == (
                other.shape, other.dtype, other.stride, other.requires_grad, other.device
            )  # fmt: skip
            if alike and item.fill != "number" and other.fill != "number":
                smaller = case.without(item.name, other.name)
                if smaller.outputs and fails(smaller):
                    case = smaller
                    yield case
                    break


def common_types(case: Case, fails: Fails) -> Iterator[Case]:
    """Use float32 and int64."""

    def common(item: Input) -> Input:
        if item.fill == "number" or item.dtype in ("torch.bool", "torch.float32", "torch.int64"):
            return item
        integer = "int" in item.dtype
        if "complex" in item.dtype:
            return item
        return dataclasses.replace(item, dtype="torch.int64" if integer else "torch.float32")

    yield from _all_or_each(case, common, fails)


# -- shapes ------------------------------------------------------------------------------------
def smaller_shapes(case: Case, fails: Fails) -> Iterator[Case]:
    """Shrink sizes: all equal sizes of a case are one size, in its inputs and in its text."""
    sizes = sorted({n for item in case.inputs for n in item.shape if n > 1}, reverse=True)
    if not sizes:
        return
    for target in (1, 2):
        guess = case
        for size in sizes:
            guess = resized(guess, size, min(size, target))
        if guess != case and fails(guess):
            yield guess
            case = guess
            break
    else:
        distinct = case
        for place, size in enumerate(sorted(sizes)):
            distinct = resized(distinct, size, min(size, 2 + place))
        if distinct != case and fails(distinct):
            case = distinct
            yield case
    for size in sorted({n for item in case.inputs for n in item.shape if n > 2}, reverse=True):
        for target in (small for small in SIZES if small < size):
            smaller = resized(case, size, target)
            if smaller != case and fails(smaller):
                case = smaller
                yield case
                break
    yield from fewer_dimensions(case, fails)


def resized(case: Case, old: int, new: int) -> Case:
    """Return the case with one size replaced, wherever it is read as a number."""
    if old == new:
        return case

    def change(item: Input) -> Input:
        shape = tuple(new if n == old else n for n in item.shape)
        if shape == item.shape:
            if item.fill == "number" and item.text == str(old):
                return dataclasses.replace(item, text=str(new))
            return item
        return dataclasses.replace(item, shape=shape, stride=_strides(item, shape))

    pattern = re.compile(rf"(?<![\w.$]){old}(?![\w.])")
    steps = tuple(
        dataclasses.replace(step, form=pattern.sub(str(new), step.form)) if old > 3 else step
        for step in case.steps
    )
    return dataclasses.replace(_changed(case, change), steps=steps)


def _strides(item: Input, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of the same order for another shape."""
    if not item.stride:
        return ()
    order = sorted(range(len(shape)), key=lambda dim: (-item.stride[dim], dim))
    dense = contiguous(tuple(shape[dim] for dim in order))
    strides = [0] * len(shape)
    for dim, stride in zip(order, dense, strict=True):
        strides[dim] = stride if item.stride[dim] else 0
    return tuple(strides)


def fewer_dimensions(case: Case, fails: Fails) -> Iterator[Case]:
    """Leave out leading dimensions of size one, of all inputs alike."""

    def shorter(item: Input) -> Input:
        if item.fill == "recorded" or item.shape[:1] != (1,) or len(item.shape) < 2 or item.stride:
            return item
        return dataclasses.replace(item, shape=item.shape[1:])

    while True:
        smaller = _changed(case, shorter)
        if smaller.inputs == case.inputs or not fails(smaller):
            return
        case = smaller
        yield case
