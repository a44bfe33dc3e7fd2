"""A graph break goes in; the ways out of it that its line leaves come out.

The row of a break knows what the compiler found; which of its ways out can be taken depends on
what the program does with the value, and on which function it calls.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Container, Iterator, Sequence
from typing import Final

from tc.trace.branches import (
    LONGER,
    READING,
    REPORTING,
    Does,
    branch_at,
    branches_of,
    called_name,
    calls_at,
    does_of,
    function_at,
    is_in_try,
    is_with_header,
    reads,
    text_of,
    what_it_does,
)
from tc.trace.decisions import (
    AFTERWARDS,
    acts,
    assigned,
    bounds_slice,
    filters_items,
    is_compared_by_python,
    later_tests,
    takes_position,
)
from tc.trace.positions import COUNTING, is_used_as_index
from tc.trace.syntax import tree_of
from tc.trace.words import CALL_OUTSIDE, COMPILE_BELOW, INDEX, LIST_INSTEAD, RANDOM_OUTSIDE

_OUTSIDE: Final = (
    "return the condition with the results, and act on it after the call, outside of the compiled "
    "function"
)
#: codes of breaks at which a value of a tensor is asked for
ASKING: Final = ("TC101", "TC110")
#: code of breaks at which a number that was read out of a tensor is asked for later
_LATER: Final = "TC111"
#: what to do about a branch on tensor data, best first; where it chooses between values, the ways
#: out of the break's own row
FIXES: Final[dict[Does, tuple[str, ...]]] = {
    Does.REPORTS: (
        _OUTSIDE,
        "if only eager runs need it: if not torch.compiler.is_compiling() and …",
    ),
    Does.COLLECTS: (_OUTSIDE,),
    Does.RAISES: (
        "torch._assert_async(condition that has to hold), which is part of the graph",
        _OUTSIDE,
    ),
    Does.CATCHES: (
        "compute both results and choose: torch.where(condition, a, b), if they have one shape",
        "raise and catch outside of the compiled function, which returns the condition with the "
        "results",
    ),
    Does.LOOPS: (
        "a fixed number of turns, with torch.where(done, old, new) for what is done already",
        "loop outside of the compiled function, which does one turn",
    ),
    Does.LEAVES: (
        _OUTSIDE,
        "compute both results and choose: torch.where(condition, a, b), if they have one shape",
    ),
}


#: ways out that are no use where the number is asked for to go one way or the other
_OF_NUMBERS: Final = "capture_scalar_outputs"
#: where numbers are read out of what has a size of its own, the setting for sizes is an error
_NEEDS_NUMBERS: Final = re.compile(r"\.(?:tolist|item)\(\)")
_SHAPES_ALONE: Final = "config.capture_dynamic_output_shape_ops"
_AS_TENSOR: Final = "keep the value as a"
#: the length of a tensor is no tensor
_OF_LENGTH: Final = re.compile(r"\blen\(|\.(?:shape|size|numel)\b")
_USELESS: Final = (_OF_NUMBERS, "for an assertion")
_CHOSEN: Final = "keep it as a tensor, and choose with torch.where(condition, a, b)"
_LEAST: Final = (
    "keep it as a tensor, with clamp, torch.minimum or torch.maximum in place of min() and max()"
)
_MOVES: Final = "move the conversion"
_OF_LOGS: Final = "for print and loggers"
_REPORTS: Final = re.compile(r"\bp?print\b|\blog|\bwarn")
_GUARDED: Final = "guard it"
_REORDERS: Final = "config.reorderable_logging_functions"
_LEFT_OUT: Final = (
    "torch._dynamo.config.ignore_logging_functions.add(it), and its calls are left out"
)
_BEGINS_CALL: Final = re.compile(r"[\w.]+\(")


_RAISING: Final = re.compile(r"\b(?:raise|assert)\b")
_RAISES_ELSEWHERE: Final = (
    "if this line raises nothing without the compiler, the tracer cannot follow it: move it out of "
    "the compiled function"
)
_OF_ITERATOR: Final = re.compile(r"^iteration over .*\((?:generator|\w*iterator)\)")
_GENERATOR: Final = "torch._C.Generator"
#: functions of NumPy whose results are tensors while code is traced, and differ from call to call
_RANDOM_ARRAYS: Final = re.compile(r"\b(?:np|numpy)\.random\.")
#: where a function tries an operation, and does something else if that raises
ASK_FIRST: Final = (
    "ask whether it can be done (`if`, of shapes and dtypes) in place of catching what it raises"
)
#: code, title, reason and way out of a break in what a `with` statement calls, whoever wrote it
CONTEXT: Final = (
    "TC107",
    "a context manager the tracer does not follow",
    "what it does on enter and exit cannot be put into the graph",
    "enter the context outside of the compiled function",
)
_OF_BLOCK: Final = re.compile(r"\.__a?(?:enter|exit)__\b")
_OF_ARRAYS: Final = "ndarray."  # numbers of NumPy's arrays are read by NumPy
#: functions that no program can mark or register: those of torch and NumPy
_OF_LIBRARIES: Final = re.compile(r"^call of (?:np|numpy|torch|Tensor|ndarray|Generator)\.")
_REGISTERS: Final = re.compile(r"\bcustom_op\b")
#: functions of Python's own modules compute nothing with tensors
_OF_MODULE: Final = re.compile(r"^call of (\w+)\.\w")
_FOR_TENSORS: Final = re.compile(r"\bcustom_op\b|\ballow_in_graph\b")
#: a tensor becomes text: no number of it is needed, and no setting makes text a part of a graph
_MAKES_TEXT: Final = re.compile(r"^(?:format|str|repr)\(\) of ")
_GRADIENTS: Final = re.compile(r"\bautograd\.grad\(")
_OF_AUTOGRAD: Final = ("TC113", "TC120")
_FUNC_GRAD: Final = (
    "torch.func.grad(f)(x), or torch.func.grad_and_value, in place of torch.autograd.grad: it is a "
    "part of the graph"
)
_FUNCTIONAL: Final = re.compile(r"\bautograd\.functional\.(jacobian|hessian|vjp|jvp)\b")
_OF_FUNC: Final = (
    "torch.func.{} in place of torch.autograd.functional.{}: it is a part of the graph"
)
_SETS_GRADIENTS: Final = re.compile(r"^call of Tensor\.requires_grad_\b")
GRADIENTS_FIRST: Final = (
    "call requires_grad_() before the compiled function, on what is passed to it"
)
#: where Python's own code enters the lock of a `functools.cached_property`
_CACHED: Final = re.compile(r"[/\\]functools\.py$")
_CACHED_FIRST: Final = (
    "read the property before the compiled function: functools.cached_property keeps its value"
)
_LAZY: Final = re.compile(r"\blazy module\b")
_CALL_FIRST: Final = "call the module once before it is compiled: that makes its parameters"
#: code of torch's that runs the backward hooks of a module
_RUNS_HOOKS: Final = re.compile(
    r"[/\\]torch[/\\](?:nn[/\\]modules[/\\]_functions|utils[/\\]hooks)\.py$"
)
_OF_DATA: Final = (*ASKING, "TC102", "TC112")
#: what to do about operators whose results have a size that depends on data, by their names; rows
#: of breaks know of masks
_SIZED: Final = (
    (
        re.compile(r"\bbincount\b"),
        "count into a tensor of fixed size: torch.zeros(n, dtype=torch.long).index_add(0, index, "
        "torch.ones_like(index))",
    ),
    (
        re.compile(r"\brepeat_interleave\b"),
        "pass output_size=..., the size of the result, which then needs no data",
    ),
    (re.compile(r"\bunique(?:_consecutive)?\b"), "move the call out of the compiled function"),
)
#: recurrent layers over packed sequences ask for the lengths at each step of their way
_OF_PACKED: Final = re.compile(r"\bpack(?:ed)?_(?:padded_)?sequence\b")
_IN_RECURRENT: Final = re.compile(r"[/\\]torch[/\\]nn[/\\](?:modules|utils)[/\\]rnn\.py$")
_PACKED_APART: Final = (
    "put packing, the recurrent layer and unpacking into a function of their own, marked with "
    "torch.compiler.disable: the graph breaks once"
)
#: a number that chooses one of several modules is no part of a graph, whatever the settings
#: a list or a tuple asks for the number by which it is indexed
_OF_LIST: Final = re.compile(r"^index\(\) of a tensor\b")
_IN_CONTAINER: Final = re.compile(r"[/\\]torch[/\\]nn[/\\]modules[/\\]container\.py$")
_ALL_MODULES: Final = (
    "run all of them and choose, if they are few: torch.stack([one(x) for one in modules])"
    ".index_select(0, i.reshape(1))[0]"
)
#: an operator that has to know a number of a tensor, as PyTorch's row says it
_LOOKS_AT: Final = re.compile(r"^an operator needs to look at tensor data$")
#: advice about `x[i]`, which a slice cannot take
_OF_INDEX: Final = re.compile(r"^gather in place of indexing")
_SLICE: Final = (
    "a mask in place of the slice: torch.arange(x.shape[0]) < k is as long as x, whatever k is"
)
_OF_MASKS: Final = re.compile(r"^use a (?:form of fixed shape|masked form)")


def is_of_context(title: str, file: str, line: int, in_library: bool) -> bool:
    """Return whether a break is in a context manager that a `with` statement at a line enters.

    Args:
        in_library: the innermost frame is code of a library, which the line calls.
    """
    return (in_library or _OF_BLOCK.search(title) is not None) and is_with_header(file, line)


def is_of_iterator(title: str) -> bool:
    """Return whether a break is at the iteration over an iterator that the function was given."""
    return _OF_ITERATOR.search(title) is not None


def fixes_at(
    code: str, file: str, line: int, source: str, known: Sequence[str], title: str = "",
    within: str = "", callers: Sequence[tuple[str, int]] = (),
) -> tuple[str, ...]:  # fmt: skip
    """Return the ways out of a graph break.

    Args:
        code: of its cause.
        source: the line as the trace has it, to know whether the file is still the same.
        known: those for the cause, whatever is done with the answer.
        title: what the break is, where it names the function that was called.
        within: the file of the innermost frame.
        callers: files and lines of the calls that lead there.
    """
    text = text_of(file, line, source)
    known = _possible(code, title, text, known)
    if _LAZY.search(title):
        return (_CALL_FIRST,)
    if code == "TC130" and is_in_try(file, line):
        return (ASK_FIRST,)
    if alone := _whatever_is_done(code, title, text, within):
        return alone
    if functional := _FUNCTIONAL.search(text):
        name = functional[1]
        return (_OF_FUNC.format("jacrev" if name == "jacobian" else name, name), *known)
    if _SETS_GRADIENTS.search(title):
        return (GRADIENTS_FIRST,)
    if code == "TC131" and source.strip() and text and not _RAISING.search(text):
        return (_RAISES_ELSEWHERE, *known)
    if tests := _tests_of_length(file, line):
        known = tuple(one for one in known if _SHAPES_ALONE not in one)
        if Does.LOOPS in map(does_of, tests):
            known = (FIXES[Does.LOOPS][-1], *known)
    if code == "TC102":
        return _fixes_of_result(file, line, text, title, known)
    if any(_OF_INDEX.match(one) for one in known) and _is_slice(file, line):
        return tuple(_SLICE if _OF_INDEX.match(one) else one for one in known)
    numbers, asked = code == "TC101", code in (*ASKING, _LATER)
    if numbers and (ways := _by_its_place(file, line, title, within, known)):
        return ways
    if numbers and _is_size(file, line):
        known = tuple(one for one in known if not one.startswith(_AS_TENSOR))
    if numbers and (_OF_ARRAYS in title or _is_kept(file, line)):
        known = tuple(one for one in known if _OF_NUMBERS not in one)
    does = what_it_does(file, line, source, numbers) if asked else None
    if does is Does.RAISES and any(is_in_try(*at) for at in callers):
        does = Does.CATCHES
    if does is None and code == "TC110" and filters_items(file, line):
        return (_OUTSIDE,)
    if does is None:
        return _by_what_follows(file, line, known) if asked else tuple(known)
    if code == _LATER and does not in FIXES:
        rest = tuple(known[1:] or known)
        return rest if _OF_LENGTH.search(text) else (_CHOSEN, *rest)
    if does is Does.CHOOSES and (_chooses_counts(file, line) or _acts_at(file, line)):
        return (_OUTSIDE,)
    return FIXES.get(does) or tuple(one for one in known if not any(w in one for w in _USELESS))


def _whatever_is_done(code: str, title: str, text: str, within: str) -> tuple[str, ...]:
    """Return the only way out of a break at what can be done in one way; nothing of others."""
    of_data = code in _OF_DATA
    rows = (
        (_RUNS_HOOKS.search(within), COMPILE_BELOW),
        (is_of_iterator(title), LIST_INSTEAD),
        (_GENERATOR in title, RANDOM_OUTSIDE),
        (code == CONTEXT[0] and _CACHED.search(within), _CACHED_FIRST),
        (_OF_PACKED.search(f"{text} {title}"), _PACKED_APART),
        (of_data and _IN_RECURRENT.search(within), _PACKED_APART),
        (of_data and _RANDOM_ARRAYS.search(text), CALL_OUTSIDE),
    )
    return next(((way,) for holds, way in rows if holds), ())


def _fixes_of_result(
    file: str, line: int, text: str, title: str, known: Sequence[str]
) -> tuple[str, ...]:
    """Return the ways out of an operator whose result depends on data, its size or its value."""
    if _NEEDS_NUMBERS.search(text) and _is_position(file, line):
        known = tuple(one for one in known if _OF_NUMBERS not in one)
    if _LOOKS_AT.search(title) and later_tests(file, line):
        return _by_what_follows(file, line, known)
    if _LOOKS_AT.search(title) and _indexes(text):
        return INDEX, *(one for one in known if _OF_NUMBERS not in one)
    return _fixes_of_sizes(text, title, known, _becomes_numbers(file, line))


def _by_its_place(
    file: str, line: int, title: str, within: str, known: Sequence[str]
) -> tuple[str, ...]:
    """Return the ways out for a number that has to be one where it is read; nothing of others."""
    if bounds_slice(file, line):
        return _SLICE, *(one for one in known if one.startswith(_MOVES))
    of_tensor = any(_OF_INDEX.match(one) for one in known)
    if not of_tensor and (_OF_LIST.match(title) or takes_position(file, line)):
        return tuple(one for one in known if one.startswith(_MOVES))
    in_container = _IN_CONTAINER.search(within) is not None
    if not in_container and not _is_needed(file, line, title):
        return ()
    ways = (one for one in known if not one.startswith(_AS_TENSOR) and _OF_NUMBERS not in one)
    return (_ALL_MODULES, *ways) if in_container else tuple(ways)


def _acts_at(file: str, line: int) -> bool:
    branch = branch_at(file, line)
    return branch is not None and acts(branch, file, line)


def _by_what_follows(file: str, line: int, known: Sequence[str]) -> tuple[str, ...]:
    """Return the ways out in view of what the function decides later by what the line reads."""
    moves = [one for one in known if one.startswith(_MOVES)]
    tests = later_tests(file, line)
    does = {does_of(one) for one in tests}
    if not does:
        return (_LEAST, *moves) if is_compared_by_python(file, line) else tuple(known)
    if Does.LOOPS in does:
        return FIXES[Does.LOOPS]
    if does <= AFTERWARDS or any(acts(one[-1], file, line) for one in tests):
        return _OUTSIDE, *moves
    return _CHOSEN, *moves


def _is_needed(file: str, line: int, title: str) -> bool:
    """Whether what a line reads out of a tensor is used as a number, or as text, at once."""
    if _MAKES_TEXT.match(title):
        return True
    return _is_position(file, line) or _is_text(file, line) or _counts_turns(file, line)


def _possible(code: str, title: str, text: str, known: Sequence[str]) -> tuple[str, ...]:
    """Return the ways out without those that what is called, or how it is called, rules out."""
    left = tuple(known)
    if code == "TC104" and title and not _REPORTS.search(title):
        left = tuple(one for one in left if not one.startswith(_OF_LOGS))
    if code == "TC104" and not _is_call_alone(text):
        left = tuple(one for one in left if not one.startswith(_GUARDED))
    module = _OF_MODULE.search(title)
    if module and module[1] in sys.stdlib_module_names:
        left = tuple(one for one in left if not _FOR_TENSORS.search(one))
    if not _takes_text(text):
        left = tuple(_LEFT_OUT if _REORDERS in one else one for one in left)
    if _OF_LIBRARIES.search(title):
        left = tuple(one for one in left if not _REGISTERS.search(one))
    of_gradients = code in _OF_AUTOGRAD and _GRADIENTS.search(text)
    return (_FUNC_GRAD, *left) if of_gradients else left


def _indexes(text: str) -> bool:
    """Whether a line takes one item by a position that it computes, or that has a name."""
    tree = tree_of(text)
    items = [one.slice for one in ast.walk(tree) if isinstance(one, ast.Subscript)] if tree else []
    return any(isinstance(one, ast.Name | ast.Subscript | ast.Call) for one in items)


def _takes_text(text: str) -> bool:
    """Whether a call that reports something is given text and values alone.

    PyTorch calls such a function later, and no other: `warn(text, UserWarning)` has a class.
    """
    tree = tree_of(text)
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call)] if tree is not None else []
    return not any(
        isinstance(value, ast.Name | ast.Attribute) and ast.unparse(value).endswith("Warning")
        for one in calls
        for value in (*one.args, *(of.value for of in one.keywords))
    )


def _fixes_of_sizes(
    text: str, title: str, known: Sequence[str], numbers_follow: bool
) -> tuple[str, ...]:
    """Return the ways out of an operator whose result has a size that depends on data."""
    if _NEEDS_NUMBERS.search(text) or numbers_follow:
        known = [one for one in known if _SHAPES_ALONE not in one]
    special = next((say for pattern, say in _SIZED if pattern.search(f"{text} {title}")), "")
    return tuple(special if special and _OF_MASKS.match(one) else one for one in known)


def _is_call_alone(text: str) -> bool:
    """Whether a line does nothing with what it calls, so that it can be left out."""
    tree = tree_of(text)
    if tree is None:  # it has more lines, or is the header of a block
        return _BEGINS_CALL.match(text) is not None
    alone = tree.body[0] if tree.body else ast.Expr(ast.Constant(None))
    if not isinstance(alone, ast.Expr):
        return False
    return not isinstance(alone.value, ast.Call) or called_name(alone.value) not in LONGER


def _is_position(file: str, line: int) -> bool:
    """Whether a number that a line reads out of a tensor is an index, or the bound of a slice."""
    function = function_at(file, line)
    if function is None:
        return False
    nodes = list(ast.walk(function))
    names = assigned(nodes, line)
    slices = [one.slice for one in nodes if isinstance(one, ast.Subscript)]
    return any(reads(part, tuple(names)) for part in slices)


def _is_kept(file: str, line: int) -> bool:
    """Whether a number that a line reads out of a tensor is stored in an object, or in a list.

    The setting that keeps it in the graph is for numbers that only feed tensors.
    """
    function = function_at(file, line)
    for node in ast.walk(function) if function is not None else ():
        if not isinstance(node, ast.stmt | ast.Call):
            continue
        if not node.lineno <= line <= (node.end_lineno or line):
            continue
        stores = isinstance(node, ast.Assign) and isinstance(
            node.targets[0], ast.Attribute | ast.Subscript
        )
        appends = isinstance(node, ast.Call) and called_name(node) in LONGER
        if (stores or appends) and list(_readings(node, line)):
            return True
    return False


def _is_size(file: str, line: int) -> bool:
    """Whether a number that a line reads out of a tensor is a size, or counts something."""
    function = function_at(file, line)
    names = assigned(list(ast.walk(function)), line) if function is not None else ()
    counted = _has_reading(file, line, COUNTING)
    return counted or any(is_used_as_index(file, line, name) for name in names)


def _counts_turns(file: str, line: int) -> bool:
    """Whether a line takes as many turns as a number says that it reads out of a tensor."""
    return _has_reading(file, line, ("range",))


def _has_reading(file: str, line: int, of: Container[str]) -> bool:
    """Whether a call of one of these functions, at a line, is passed a number out of a tensor."""
    return any(
        list(_readings(value, line))
        for call in calls_at(file, line)
        if called_name(call) in of and call.lineno <= line <= (call.end_lineno or line)
        for value in (*call.args, *(one.value for one in call.keywords))
    )


def _chooses_counts(file: str, line: int) -> bool:
    """Whether all that a branch sets are attributes that the function counts or indexes with.

    Such a number is no tensor, which `torch.where` could choose.
    """
    branch = branch_at(file, line)
    rows = [*branch.body, *branch.orelse] if branch is not None else []
    targets = [
        row.targets[0] if isinstance(row, ast.Assign) else row.target
        for row in rows
        if isinstance(row, ast.Assign | ast.AugAssign)
    ]
    return len(targets) == len(rows) > 0 and all(
        isinstance(one, ast.Attribute) and is_used_as_index(file, line, ast.unparse(one))
        for one in targets
    )


def _tests_of_length(file: str, line: int) -> list[tuple[ast.AST, ...]]:
    """Return the branches at a line's function that go by how long the result of the line is."""
    function = function_at(file, line)
    nodes = list(ast.walk(function)) if function is not None else []
    return [
        parents
        for parents in (branches_of(function) if function is not None else ())
        for name in assigned(nodes, line)
        if reads(
            getattr(parents[-1], "test", parents[-1]),
            (f"len({name})", f"{name}.numel()", f"{name}.shape[0]", f"{name}.size(0)"),
        )
    ]


def _becomes_numbers(file: str, line: int) -> bool:
    """Whether numbers are read out of what a line makes, or of what is made of that later on."""
    function = function_at(file, line)
    nodes = list(ast.walk(function)) if function is not None else []
    names = assigned(nodes, line)
    made = [one for one in nodes if isinstance(one, ast.Assign) and one.lineno > line]
    for one in sorted(made, key=lambda one: one.lineno):
        if reads(one.value, tuple(names)):
            names |= assigned(nodes, one.lineno)
    return any(
        isinstance(one, ast.Call)
        and isinstance(one.func, ast.Attribute)
        and one.func.attr in ("tolist", "item")
        and one.lineno > line
        and reads(one.func.value, tuple(names))
        for one in nodes
    )


def _is_slice(file: str, line: int) -> bool:
    """Whether what a line computes bounds of slices with is all that it indexes with."""
    function = function_at(file, line)
    parts = [
        part
        for one in (ast.walk(function) if function is not None else ())
        if isinstance(one, ast.Subscript) and one.lineno <= line <= (one.end_lineno or line)
        for part in (one.slice.elts if isinstance(one.slice, ast.Tuple) else [one.slice])
    ]
    computed = [one for one in parts if any(isinstance(n, ast.Name) for n in ast.walk(one))]
    return bool(computed) and all(isinstance(one, ast.Slice) for one in computed)


def _is_text(file: str, line: int) -> bool:
    """Whether the numbers that a line reads out of tensors are only written somewhere, as text."""
    function = function_at(file, line)
    found = list(_readings(function, line)) if function is not None else []
    return bool(found) and all(found)


def _readings(node: ast.AST, line: int, in_text: bool = False) -> Iterator[bool]:
    """Yield of each number that is read at a line whether it becomes text."""
    in_text = in_text or isinstance(node, ast.FormattedValue)
    if isinstance(node, ast.Call):
        in_text = in_text or called_name(node) in REPORTING
        if called_name(node) in READING and node.lineno <= line <= (node.end_lineno or line):
            yield in_text
    for child in ast.iter_child_nodes(node):
        yield from _readings(child, line, in_text)
