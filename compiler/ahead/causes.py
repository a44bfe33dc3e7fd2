"""Why one graph does not serve all sizes: questions on sizes in; causes, with fixes, out."""

from __future__ import annotations

import functools
import itertools
import linecache
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tc.compiler.ahead.specs import Case, Range, Spec
from tc.compiler.core.ahead import Question

#: sizes that have code of their own whatever the code asks, because they broadcast
SPECIAL = (0, 1)
_LOCAL = re.compile(r"L\['(\w+)'\]")
_SIZE = re.compile(r"\.size\(\)\[(\d+)\]")
_TENSOR_SIZE = re.compile(r"(.+)\.shape\[(\d+)\]")

#: what a look at sizes finds: size of each variable, and of each size that is read
Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Fix:
    """A way to have one graph.

    Attributes:
        code: to write.
        spec: the inputs that it leaves; None: it changes the function, which is for people.
        works: whether the function was captured again for these inputs, and has no such cause.
    """

    code: str
    spec: Spec | None = field(default=None, compare=False)
    works: bool = False


@dataclass(frozen=True)
class Cause:
    """A line that asks something of sizes that is not so for all of them.

    Attributes:
        kind: ``constant``: the answer holds for one size; ``divisible``, ``related``: two sizes,
            ``range``.
        asks: the condition that holds in the graph, as Python.
        holds: how many of the sizes that were looked at fulfil it, ``of`` how many.
        without: one combination of sizes that does not.
    """

    kind: str
    file: str
    line: int
    asks: str
    holds: int
    of: int
    without: Sizes
    fixes: tuple[Fix, ...] = ()

    @property
    def source(self) -> str:
        """The line."""
        return linecache.getline(self.file, self.line).strip()

    @property
    def place(self) -> str:
        """Where it is."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Looked:
    """Sizes of one call.

    Attributes:
        sizes: of the variables.
        read: text of a size, as Python over ``L`` and ``G`` -> the size.
        code: the compile id of the code that serves it; None: it has none.
    """

    sizes: Sizes
    read: Mapping[str, int]
    code: str | None


def causes_of(
    questions: Iterable[Question], looked: Sequence[Looked], traced: Looked, spec: Spec, case: Case
) -> list[Cause]:
    """Return the lines because of which other code serves some sizes, in the order of the program.

    Args:
        looked: calls with sizes of the spec.
        traced: the one that the questions are of.
    """
    plain = [
        one for one in looked if all(n not in SPECIAL for n in one.sizes.values()) or one is traced
    ]
    found: dict[tuple[str, int], Cause] = {}
    made_numbers: set[str] = set()  # sizes that code has taken for numbers by now
    seen: set[tuple[Any, Any]] = set()
    for question in questions:
        condition = _condition(question)
        sources = set(question.sources.values())
        is_number = not _is_condition(question.expression)
        if question.line is None or (condition, question.line) in seen:
            continue
        seen.add((condition, question.line))
        follows = not is_number and sources <= made_numbers and _is_of_number(question, traced)
        made_numbers |= sources if is_number else set()
        if follows:
            continue
        holds = [one for one in plain if _holds(condition, question, one)]
        others = [one for one in plain if one not in holds and one.code != traced.code]
        if not others or len(holds) == len(plain):
            continue
        cause = Cause(
            _kind(condition, holds, question), *question.line, _text(condition, question),
            len(holds), len(plain), others[0].sizes,
        )  # fmt: skip
        before = found.get(question.line)
        if before is None or cause.holds < before.holds:
            fixes = tuple(_fixes(cause, holds, plain, question, spec, case))
            found[question.line] = replace(cause, fixes=fixes)
    return list(found.values())


def _is_condition(expression: Any) -> bool:
    return bool(getattr(expression, "is_Boolean", False) or expression.is_Relational)


def _condition(question: Question) -> Any:
    """Return what is true in the graph."""
    import sympy

    if not _is_condition(question.expression):
        return sympy.Eq(question.expression, question.answer, evaluate=False)
    return question.expression if question.answer else sympy.Not(question.expression)


def _is_of_number(question: Question, traced: Looked) -> bool:
    """Return whether a condition compares a size with the number that it had when traced.

    That number was made of the size before, on a line that is a cause itself.
    """
    values = {traced.read.get(text) for text in question.sources.values()}
    numbers = {int(n) for n in question.expression.atoms() if n.is_Integer}
    return bool(values & numbers)


def _holds(condition: Any, question: Question, looked: Looked) -> bool:
    given = tuple((name, looked.read.get(text)) for name, text in question.sources.items())
    return _evaluated(condition, given)


@functools.lru_cache(65536)
def _evaluated(condition: Any, given: tuple[tuple[str, int | None], ...]) -> bool:
    values = dict(given)
    symbols = {symbol: values.get(str(symbol)) for symbol in condition.free_symbols}
    if None in symbols.values():
        return True  # a size that no call shows
    try:
        return bool(condition.subs(symbols))
    except (ZeroDivisionError, TypeError, AssertionError):  # what it divides by is 0 there
        return False


def _kind(condition: Any, holds: Sequence[Looked], question: Question) -> str:
    from torch.utils._sympy.functions import Mod, PythonMod

    texts = list(question.sources.values())
    if len(texts) > 1:
        return "related"
    if len({one.read.get(texts[0]) for one in holds}) <= 1:
        return "constant"
    return "divisible" if condition.has(Mod, PythonMod) else "range"


def _text(condition: Any, question: Question) -> str:
    from torch.utils._sympy.printers import PythonPrinter

    text = PythonPrinter().doprint(condition)
    for name, source in question.sources.items():
        text = re.sub(rf"\b{re.escape(name)}\b", shown(source).replace("\\", r"\\"), text)
    return text


def shown(source: str) -> str:
    """Return a size as the user would write it: ``x.shape[0]``."""
    return _SIZE.sub(r".shape[\1]", _LOCAL.sub(r"\1", source))


def _fixes(
    cause: Cause, holds: Sequence[Looked], looked: Sequence[Looked], question: Question,
    spec: Spec, case: Case,
) -> Iterator[Fix]:  # fmt: skip
    """Yield ways to have one graph, those that leave the function as it is first."""
    named = {source: _variable_of(source, looked) for source in question.sources.values()}
    if cause.kind == "related":
        first, *others = (name for name in named.values() if name is not None)
        if len(others) == 1 and others[0] != first and cause.asks.count("==") == 1:
            same = dict(spec.variables) | {first: (case[first],), others[0]: (case[others[0]],)}
            tied = replace(
                spec, variables=same, conditions=(*spec.conditions, _Equal(first, others[0]))
            )
            yield Fix(f"give inputs whose {cause.asks}: one name for both sizes", tied)
        yield Fix(f"take the comparison of sizes out of the compiled function: {cause.source}")
        return
    (source, name), *_ = named.items()
    if name is None:
        yield Fix(f"take what depends on {shown(source)} out of the compiled function")
        return
    sizes = sorted({one.sizes[name] for one in holds})
    if cause.kind == "constant":
        yield Fix(_static(source), _narrowed(spec, case, name, sizes[0]))
        yield Fix(
            f"keep {shown(source)} a size: no int(), no loop of Python over it, no literal where "
            f"it is meant: {cause.source}"
        )
        return
    for part in _ranges(sizes, sorted({one.sizes[name] for one in looked}), cause.kind):
        yield Fix(_marked(source, part), _narrowed(spec, case, name, part))
    yield Fix(f"take the test out of the compiled function: {cause.source}")


@dataclass(frozen=True)
class _Equal:
    """Whether two variables have one size."""

    first: str
    second: str

    def __call__(self, sizes: Sizes) -> bool:
        return sizes[self.first] == sizes[self.second]


def _variable_of(source: str, looked: Sequence[Looked]) -> str | None:
    """Return the variable that a size is, in all calls."""
    for name in looked[0].sizes:
        if all(one.read.get(source) == one.sizes[name] for one in looked):
            return name
    return None


def _narrowed(spec: Spec, case: Case, name: str, choice: int | Range) -> Spec:
    chosen = {other: (case[other],) for other in case} | {name: (choice,)}
    return replace(spec, variables=chosen)


def _ranges(holds: Sequence[int], looked: Sequence[int], kind: str) -> Iterator[Range]:
    """Yield the runs of sizes for which a condition holds, longest first, and the runs between."""
    if kind == "divisible":
        steps = {b - a for a, b in itertools.pairwise(holds)}
        if len(steps) == 1:
            yield Range(holds[0], holds[-1], steps.pop())
        return
    inside = set(holds)
    runs: list[list[int]] = []
    for size in looked:
        if runs and (size in inside) == (runs[-1][-1] in inside):
            runs[-1].append(size)
        else:
            runs.append([size])
    for run in sorted(runs, key=len, reverse=True)[:2]:
        yield Range(run[0], run[-1])


def _static(source: str) -> str:
    tensor, dim = _parts(source)
    return f"tc.mark_static({tensor}, {dim})" if tensor else f"give {shown(source)} one value"


def _marked(source: str, part: Range) -> str:
    tensor, dim = _parts(source)
    step = f"  # and only multiples: {part}" if part.step > 1 else ""
    if not tensor:
        return f"keep {shown(source)} in {part}"
    return f"tc.mark_dynamic({tensor}, {dim}, min={part.low}, max={part.last}){step}"


def _parts(source: str) -> tuple[str, str]:
    found = _TENSOR_SIZE.fullmatch(shown(source))
    return (found[1], found[2]) if found else ("", "")
