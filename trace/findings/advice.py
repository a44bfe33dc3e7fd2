"""A graph break in PyTorch's words goes in; its code, and fixes in plain words, come out."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Final

from tc.trace.breakfixes import CONTEXT as IN_BREAKS
from tc.trace.breakfixes import GRADIENTS_FIRST
from tc.trace.compiles import LIBRARY
from tc.trace.words import (
    CALL_OUTSIDE,
    COMPILE_BELOW,
    FROM_OUTSIDE,
    INDEX,
    LIST_INSTEAD,
    RANDOM_OUTSIDE,
)


@dataclass(frozen=True, slots=True)
class Advice:
    """The advice for one kind of break.

    Attributes:
        ids: PyTorch's ids of it (`GB0170` is 170).
        pattern: found in the text of breaks that carry no id; its group 1 fills `{}`.
        code: of the finding, the same as `tc` itself uses for this cause.
    """

    ids: tuple[int, ...]
    pattern: re.Pattern[str]
    code: str
    title: str
    why: str
    fix: tuple[str, ...] = ()


def _row(ids: tuple[int, ...], pattern: str, code: str, title: str, why: str, *fix: str) -> Advice:
    return Advice(ids, re.compile(pattern), code, title, why, fix)


#: what to do about a break in a loop
OWN_BODY: Final = "move the body of the loop to a function of its own, so that only it breaks"
ROWS: Final = (
    _row(
        (170, 35, 360, 34),
        r"[Dd]ata-dependent (?:branching|jump|assert)|generic_jump",
        "TC110",
        "branch depends on tensor data",
        "which way to go is known only after the kernels have run, so the graph has to end here",
        "compute both sides and choose: torch.where(condition, a, b)",
        "where one side is expensive: torch.cond(condition, true_fn, false_fn, operands)",
        "for an assertion: torch._assert_async(condition), which is part of the graph",
    ),
    _row(
        (109,),
        r"Tensor\.(tolist)\(\) with non-integer",
        "TC101",
        "Tensor.{}() needs a Python number",
        "the number exists only after the kernels have run, so the graph has to end here",
        "keep the value as a 0-d tensor: arithmetic, comparisons and torch.where accept it",
        "move the conversion out of the compiled function",
    ),
    _row(
        (124,),
        r"Tensor\.(item|tolist)|call_method item|_local_scalar_dense",
        "TC101",
        "Tensor.{}() needs a Python number",
        "the number exists only after the kernels have run, so the graph has to end here",
        "keep the value as a 0-d tensor: arithmetic, comparisons and torch.where accept it",
        "move the conversion out of the compiled function",
        "torch._dynamo.config.capture_scalar_outputs = True, if the number only feeds tensors",
    ),
    _row(
        (55,),
        r"Failed to convert args/kwargs to proxy",
        "TC123",
        "an argument of an operation cannot be put into the graph",
        "a graph holds tensors, numbers and the like, and what is passed here is none of them",
        "move the operation out of the compiled function, and pass in what it gives",
    ),
    _row(
        (219,),
        r"Backend compiler `\w+` failed with|GuardOnDataDependent",
        "TC111",
        "the backend needs a number that depends on data",
        "it asked for the number of a tensor, which exists only after the kernels have run, so "
        "that the graph was not compiled at all",
        "read the number outside of the compiled function, and pass it as an argument",
    ),
    _row(
        (36, 37, 246),
        r"Dynamic shape operator|(nonzero|masked_select|unique)",
        "TC102",
        "the shape of a result depends on tensor data",
        "how large the result is, is known only after the kernel has run",
        "use a form of fixed shape: torch.where or a multiplied mask in place of x[mask]",
        "torch._dynamo.config.capture_dynamic_output_shape_ops = True",
    ),
    _row(
        (33,),
        r"Data dependent operator",
        "TC102",
        "an operator needs to look at tensor data",
        "its result depends on numbers that exist only after the kernels have run",
        "torch._dynamo.config.capture_scalar_outputs = True, if the result only feeds tensors",
        "move the operator out of the compiled function",
    ),
    _row(
        (59,),
        r"builtin operator `(\w+)`|builtin:? (?!operator\b)(\w+)",
        "TC104",
        "{}() is called while tracing",
        "it acts on the outside world, or on values the tracer does not follow",
        "move the call out of the compiled function",
        "guard it, if only eager runs need it: if not torch.compiler.is_compiling(): ...",
        "for print and loggers: torch._dynamo.config.reorderable_logging_functions.add(print)",
    ),
    _row(
        (291, 296),
        r"[Ll]ogging\.Logger|logger",
        "TC104",
        "a logger is called while tracing",
        "the message would have to be written before the values exist",
        "torch._dynamo.config.ignore_logging_functions.add(it), and its calls are left out",
        "guard it, if only eager runs need it: if not torch.compiler.is_compiling(): ...",
    ),
    _row(
        (25, 269, 4636),
        r"torch\._dynamo\.(?:graph_break|step_unsupported)|graph_break\(\)",
        "TC105",
        "the program asks for a break here",
        "torch._dynamo.graph_break() ends the graph by request",
        "remove the call of graph_break()",
    ),
    _row(
        (98, 99),
        r"\A[\s\S]*?Skip (?:calling|inlining) function `?<function ([\w.<>]+)(?: at|>)"
        r"|torch\.compiler\.disable|disable\(\)",
        "TC106",
        "call of {} that is marked torch.compiler.disable",
        "a disabled function always runs in eager mode, so the graph ends before it",
        "remove the mark if the function can be traced after all",
        "call it outside of the compiled function",
    ),
    _row(
        (7, 8, 9, 147, 148, 177),
        r"\A[\s\S]*?(?:that the function `([\w.<>]+)` in file"
        r"|the (?:Python )?builtin `(?:<[\w ]+>\.)?(\w[\w.]*\w)\.?`)"
        r"|skipp(?:ed|ing)|SkipFunction|not implemented in [Pp]ython|[Uu]nsupported function call",
        "TC120",
        "call of {} that the tracer cannot look into",
        "it is not written in Python, or is defined in a module that is never traced",
        "move the call out of the compiled function",
        "if it is pure tensor code, register it: torch.library.custom_op",
        "torch.compiler.allow_in_graph(fn), if fn only calls torch operations",
    ),
    _row(
        (125,),
        r"Unsupported Tensor\.requires_grad_\(\) call",
        "TC120",
        "call of Tensor.requires_grad_",
        "which tensors need gradients is settled before the graph runs",
        GRADIENTS_FIRST,
    ),
    _row(
        (208,),
        r"torch\.\* op returned non-Tensor[\s\S]*?target: <built-in function (\w+)>",
        "TC120",
        "call of {} that returns no tensor",
        "a graph holds tensors, and what this function returns is a plain value",
        "move the call out of the compiled function",
        "in place of a function of Python's, one of torch's, whose result is a tensor",
    ),
    _row(
        (156, 6270, 117),
        r"[Uu]nsupported method call|call_method (\w+)",
        "TC120",
        "a method is called that the tracer has no rule for",
        "the tracer does not know what the method does to the values it follows",
        "replace the method by torch operations or plain Python",
        "move the call out of the compiled function",
    ),
    _row(
        (142, 66, 262, 263, 221),
        r"context manager",
        *IN_BREAKS,
    ),
    _row(
        (65,),
        r"[Gg]raph break in inlined function",
        "TC108",
        "a called function breaks the graph",
        "the call was traced into, and something inside cannot be",
        "fix the break inside the called function, or call it outside of the compiled one",
    ),
    _row(
        (7000,),
        r"graph break in loop|for/while loop",
        "TC109",
        "a break inside a loop gives up the whole function",
        "the graph would have to be left and entered again on each turn, so the function runs "
        "in Python",
        "fix the break in the loop's body",
        OWN_BODY,
    ),
    _row(
        (64, 87, 90, 112, 4315, 81),
        r"[Ff]ake [Tt]ensor|fake tensor call|FakeTensor",
        "TC130",
        "an operation raised while its output shapes were computed",
        "it refused these shapes, dtypes or devices, or has no rule for the shape of its result",
        "check shapes, dtypes and devices of this operation",
        "for a custom operator: register_fake() declares its output shape",
    ),
    _row(
        (88, 89, 57, 111, 50, 51),
        r"[Oo]bserved exception(?:[\s\S]*?raised exception (?:ExceptionVariable\(<class ')?(\w+))?"
        r"|raise[sd]? ",
        "TC131",
        "the code raises {}",
        "an exception that leaves the compiled function is raised in eager mode",
        "return a flag in place of raising, or check before the compiled function",
    ),
    _row(
        (3, 114, 120, 253, 118, 2549),
        r"[Gg]enerator",
        "TC132",
        "a generator cannot be captured",
        "its frame is suspended and resumed, which compiled code cannot do",
        "build a list in place of yielding",
    ),
    _row(
        (92, 93, 274, 199, 1297),
        r"[Rr]econstruct",
        "TC133",
        "a value cannot be rebuilt after the graph",
        "it was made while tracing and has no form that the code around the graph can construct",
        "make the object before the compiled function and pass it in",
    ),
    _row(
        (39,),
        r"recompile limit|cache_size_limit",
        "TC209",
        "compiled too often: the limit is reached",
        "from now on new inputs of this function run in Python",
        "see the recompiles of this function for what keeps changing",
    ),
    _row(
        (105, 231, 250, 294, 158),
        r"numpy|ndarray",
        "TC112",
        "NumPy code the tracer cannot turn into torch",
        "this use of NumPy has no torch counterpart, or tracing of NumPy is off",
        "write it with torch operations",
        "torch._dynamo.config.trace_numpy = True, if it was switched off",
    ),
    _row(
        (123, 29, 9186, 7054, 442),
        r"backward\(\)|autograd\.grad",
        "TC113",
        "backward() inside the compiled function",
        "the gradient computation is compiled on its own, after the function returns",
        "call backward() outside of the compiled function",
    ),
    _row(
        (83,),
        r"[Mm]odule-level backwards? hooks",
        "TC113",
        "a backward hook of a module inside the compiled function",
        "the hook is called between the steps of the backward pass, which is compiled on its own",
        "torch._dynamo.config.compiled_autograd = True",
        COMPILE_BELOW,
    ),
    _row(
        (14,),
        r"\b(RNN|GRU|LSTM)\b",
        "TC114",
        "an RNN, GRU or LSTM module",
        "its cuDNN form cannot be traced, so it runs in eager mode",
        "torch._dynamo.config.allow_rnn = True, or compile the layers around it",
    ),
    _row(
        (82, 79, 75, 200, 6604),
        r"[Mm]issing (?:bytecode|CALL_INTRINSIC|BUILD)",
        "TC124",
        "a Python construct the tracer does not interpret",
        "the bytecode of this line has no rule in the tracer",
        "rewrite the line in simpler Python",
    ),
    _row(
        (21,),
        r"BUILD_STRING",
        "TC124",
        "text is made of a number that is dynamic",
        "the text differs from call to call, and a graph holds none; torch.compile made the number "
        "dynamic when it changed",
        "make the text outside of the compiled function",
        "torch.compile(..., dynamic=False), if the number takes few values: each has its own graph",
    ),
    _row(
        (31, 211, 256, 161, 153),
        r"__getattr(?:ibute)?__|nn\.Module attribute",
        "TC121",
        "an attribute cannot be followed",
        "how it is looked up is not Python code that the tracer can read",
        "read it before the compiled function and pass it in",
    ),
)  # fmt: skip

#: the row of a graph that a backend could not compile: nothing of its function is compiled then
REFUSED: Final = next(row for row in ROWS if row.code == "TC111")
#: where PyTorch says that a break is
PLACE: Final = re.compile(r"Graph [Bb]reak in user code at (.+):(\d+)\s*$", re.MULTILINE)
#: what to do about a break where the general way out of its kind is none: the first that is found
#: in the compiler's words
INSTEAD: Final = (
    (
        re.compile(r"missing tp_iter[\s\S]*UserDefinedObjectVariable\(\w*(?:iterator|generator)\)"),
        LIST_INSTEAD,
    ),
    (
        re.compile(r"(?:_local_scalar_dense|GuardOnDataDependent)[\s\S]*target=operator\.getitem\]"),
        INDEX,
    ),
    (
        re.compile(r"Failed to convert args/kwargs to proxy[\s\S]*\(Generator\)"),
        RANDOM_OUTSIDE,
    ),
    (
        re.compile(
            r"the function `(?:manual_seed|seed|initial_seed|[gs]et_rng_state)` in file "
            r"`[^`]*[/\\]torch[/\\]"
        ),
        CALL_OUTSIDE,
    ),
    (
        re.compile(rf"builtin `[^`]*\b(?:{'|'.join(FROM_OUTSIDE)})\.[\w.]+`"),
        CALL_OUTSIDE,
    ),
    (
        re.compile(r"\bDistributedDataParallel\b|nn[/\\]parallel[/\\]distributed\.py"),
        "compile the module inside of it: DistributedDataParallel(torch.compile(module))",
    ),
)  # fmt: skip


OPTIMIZER_STEP: Final = _row(
    (),
    r"the function `\w+\.step` in file `[^`]*[/\\]torch[/\\]optim[/\\]"
    r"|^Graph [Bb]reak in user code at .*[/\\]torch[/\\]optim[/\\]\w+\.py:\d+\n"
    r"[\s\S]*?graph_break\(\)",
    "TC116",
    "call of an optimizer's step()",
    "PyTorch asks for a break around it: the update is compiled as a graph of its own",
    "call step() outside of the compiled function; torch.compile(optimizer.step) compiles it as "
    "well",
)
#: a break that the code of a library asks for, which its users cannot take out
OF_LIBRARY: Final = _row(
    (),
    r"(?!)",
    "TC105",
    "a library asks for a break here",
    "torch._dynamo.graph_break() in the library's code ends the graph by request",
    "move the call out of the compiled function",
)
#: the row of context managers, also for what a library does when the user's line enters one
CONTEXT: Final = next(row for row in ROWS if row.code == IN_BREAKS[0])
OTHER: Final = Advice(
    (),
    re.compile(r"(?!)"),
    "TC199",
    "graph break",
    "the compiler found something that it cannot trace",
)


# What a title names where the compiler's words do not name it.
_UNNAMED: Final = {
    "TC101": "item", "TC104": "a builtin", "TC106": "a function", "TC120": "a function",
    "TC131": "an exception",
}  # fmt: skip
_GB: Final = re.compile(r"\bgb(\d{4})\b", re.IGNORECASE)


def _in_library(text: str) -> bool:
    place = PLACE.search(text)
    return place is not None and LIBRARY.search(place[1]) is not None


def gb_id(text: str) -> int | None:
    """Return the first of PyTorch's ids that a text names."""
    match = _GB.search(text)
    return int(match[1]) if match else None


def row_of(number: int | None, text: str) -> Advice | None:
    """Return the row for a break: that of its id, or where it has none, that of its words."""
    if number is not None:
        return next((row for row in ROWS if number in row.ids), None)
    return next((row for row in ROWS if row.pattern.search(text)), None)


#: `_heapq.heappop`, which a program imports from `heapq`
_OF_ACCELERATOR: Final = re.compile(r"^_(?=([a-z]\w*)\.)")


def _as_imported(found: re.Match[str]) -> str:
    return "" if found[1] in sys.stdlib_module_names else found[0]


def advise(number: int | None, text: str) -> tuple[Advice, str]:
    """Return the row for a break and its title, with the detail filled in."""
    row = OPTIMIZER_STEP if OPTIMIZER_STEP.pattern.search(text) else row_of(number, text)
    if row is not None and row.code == OF_LIBRARY.code and _in_library(text):
        row = OF_LIBRARY
    if row is None:
        return OTHER, OTHER.title
    match = row.pattern.search(text)
    detail = next((group for group in match.groups() if group), "") if match else ""
    detail = _OF_ACCELERATOR.sub(_as_imported, detail)
    return row, row.title.replace("{}", detail or _UNNAMED.get(row.code, ""))
