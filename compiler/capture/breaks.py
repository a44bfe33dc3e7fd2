"""Graph breaks: the table of reasons why capture of a frame stops, in users' terms."""

from __future__ import annotations

import dis
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from tc.compiler.core.table import Table
from tc.compiler.errors import error_context, is_own
from tc.trace import StackFrame
from tc.trace.words import CALL_OUTSIDE, FROM_OUTSIDE

Result = TypeVar("Result")


@dataclass(frozen=True)
class Reason:
    """One kind of graph break.

    Attributes:
        code: stable, documented, greppable.
        title: what happened, in a few words; ``{}`` takes the detail.
        why: one sentence a PyTorch user understands.
        fix: what to change, best first; empty where no fix is known.
    """

    code: str
    title: str
    why: str
    fix: tuple[str, ...] = ()


REASONS: Table[str, Reason] = Table("graph break reasons")


def _row(name: str, code: str, title: str, why: str, *fix: str) -> Reason:
    return REASONS.add(name, Reason(code, title, why, fix))


TENSOR_ITEM = _row(
    "tensor-item",
    "TC101",
    "{} needs a Python value",
    "the number exists only after the kernels have run, so the graph has to end here",
    "keep the value as a tensor (arithmetic, comparisons and torch.where all accept 0-d tensors)",
    "tc.config.capture_scalar_outputs = True, if the number only feeds tensors",
    "move the conversion out of the compiled function",
)
TENSOR_INDEX = _row(
    "tensor-index",
    "TC101",
    "a tensor as an index: {} needs a Python value",
    "the number exists only after the kernels have run, so the graph has to end here",
    "gather in place of indexing, with a tensor of one element: x[i.reshape(1)][0]",
    "tc.config.capture_scalar_outputs = True, if the number only feeds tensors",
)
DYNAMIC_SHAPE = _row(
    "dynamic-output-shape",
    "TC102",
    "{} has a shape that depends on tensor data",
    "the size of the result is known only after the kernel has run",
    "use a masked form with a fixed shape (torch.where, a multiplied mask)",
    "tc.config.capture_dynamic_output_shape_ops = True",
)
NEEDS_DATA = _row(
    "data-dependent-result",
    "TC102",
    "{} reads tensor data to know its result",
    "the data is there only after the kernels have run",
    "move the call out of the compiled function",
)
BUILTIN_CALL = _row(
    "builtin-call",
    "TC104",
    "call of {} while tracing",
    "it acts on the outside world or on values that the tracer does not follow",
    "move the call out of the compiled function",
    "guard it, if only eager runs need it: `if not torch.compiler.is_compiling():`",
    "for print and loggers: tc.config.reorderable_logging_functions.add(print)",
)
LOGGER_CALL = _row(
    "logger-call",
    "TC104",
    "call of {} while tracing",
    "the message would have to be written before the values exist",
    "tc.config.ignore_logger_methods.add(it), and its calls are left out",
    "guard it, if only eager runs need it: `if not torch.compiler.is_compiling():`",
    "move the call out of the compiled function",
)
OUTSIDE_VALUE = _row(
    "outside-value",
    "TC104",
    "call of {} while tracing",
    "what it returns comes from outside of the program and differs from call to call",
    CALL_OUTSIDE,
)
USER_BREAK = _row(
    "explicit",
    "TC105",
    "graph_break() was called",
    "the program asks for a break at this line",
    "remove the call of graph_break()",
)
DISABLED_CALL = _row(
    "disabled-call",
    "TC106",
    "call of {}, which is marked disable",
    "a disabled function always runs in eager mode",
    "remove the disable mark, or call it outside of the compiled function",
)
LIBRARY_DISABLED = _row(
    "disabled-in-library",
    "TC106",
    "call of {}, which torch itself marks disable",
    "a disabled function always runs in eager mode",
    "call it outside of the compiled function",
)
DISALLOWED_CALL = _row(
    "disallowed-call",
    "TC115",
    "call of {}, which is marked disallow_in_graph",
    "such a function always runs between graphs, in eager mode",
    "remove the disallow_in_graph mark, or call it outside of the compiled function",
)
DATA_BRANCH = _row(
    "data-dependent-branch",
    "TC110",
    "branch depends on tensor data",
    "which way to go is known only after the kernels have run",
    "write both sides as tensors: torch.where(condition, a, b)",
    "torch.cond(condition, true_fn, false_fn, operands) where one side is expensive",
    "for an assertion: torch._assert_async(condition), which is part of the graph",
)
DATA_GUARD = _row(
    "data-dependent-size",
    "TC111",
    "a number that depends on tensor data has to be known: {}",
    "the tracer would have to know the data to continue",
    "torch._check() what is known of it, where it is a size",
    "read it outside of the compiled function, and pass it in",
)
DATA_NUMBER = _row(
    "data-dependent-number",
    "TC111",
    "the value of a number that depends on tensor data has to be known",
    "Python works with the number itself here, as the index of a list or the bound of a loop",
    "read it outside of the compiled function, and pass it in",
)
#: questions about numbers out of tensors
OF_DATA: Final = (DATA_GUARD, DATA_NUMBER)
BACKWARD = _row(
    "backward",
    "TC113",
    "Tensor.backward() inside of the compiled function",
    "the gradients are computed by autograd's own engine: what stands before and after the call "
    "is compiled, the call itself is not",
    "compile the function that gives the loss, and call backward() outside of it",
)
OPTIMIZER_STEP = _row(
    "optimizer-step",
    "TC116",
    "call of an optimizer's step()",
    "PyTorch asks for a break around it: the update is compiled as a graph of its own",
    "call step() outside of the compiled function; tc.compile(optimizer.step) compiles it as well",
)
UNSUPPORTED_CALL = _row(
    "unsupported-call",
    "TC120",
    "call of {} is not supported",
    "the tracer cannot look into it: it is not written in Python, or not a torch operation",
    "move the call out of the compiled function",
    "if it only computes with tensors, register it: torch.library.custom_op",
)
HANDLED_CALL = _row(
    "handled-call",
    "TC120",
    "call of {} whose error the program handles",
    "it may fail for the values it gets, and a graph runs as a whole, outside of the try block",
    "put the try block around the call of the compiled function",
    "check the values before, and call it outside of a try block",
)
UNSUPPORTED_ATTR = _row(
    "unsupported-attribute",
    "TC121",
    "attribute {} cannot be followed",
    "how it is looked up is not Python code that the tracer can read",
    "read it before the compiled function and pass it in",
)
UNSUPPORTED_STORE = _row(
    "unsupported-store",
    "TC122",
    "store to {} cannot be replayed",
    "a mutation is replayed after the graph has run, and this one has no replay",
    "return the new value and store it outside of the compiled function",
)
UNSUPPORTED_OP = _row(
    "unsupported-operation",
    "TC123",
    "{} is not supported",
    "the tracer has no rule for this operation on these values",
    "move the operation out of the compiled function, and pass in what it gives",
)
UNSUPPORTED_OPCODE = _row(
    "unsupported-opcode",
    "TC124",
    "bytecode {} is not supported",
    "the tracer does not interpret this Python construct yet",
    "rewrite the line in simpler Python",
)
OP_FAILED = _row(
    "operation-failed",
    "TC130",
    "{} raised while its output shapes were computed",
    "eager mode will most likely raise the same error when the line runs",
    "check shapes and dtypes of this operation",
)
RAISES = _row(
    "raises",
    "TC131",
    "the code raises {}",
    "an exception that leaves the compiled function is raised in eager mode",
    "return a flag in place of raising, or check before the compiled function",
)
GENERATOR = _row(
    "generator",
    "TC132",
    "{} is a generator or coroutine",
    "its frame is suspended and resumed, which compiled code cannot do",
    "return a list instead of yielding",
)
UNSUPPORTED_VALUE = _row(
    "unsupported-value",
    "TC133",
    "{} cannot be rebuilt after the graph",
    "the value was created while tracing, and the code after the graph cannot construct it",
    "make the object before the compiled function and pass it in",
)
LEAKED_BODY = _row(
    "leaked-body",
    "TC134",
    "{} leaves the body of a higher-order operation through a side effect",
    "a body may be run any number of times, so only what it returns can be used outside",
    "return the value from the body",
)
BODY_EFFECT = _row(
    "body-effect",
    "TC135",
    "the body of {} changes an object outside of it",
    "a body may be run any number of times or not at all, so its effects have no replay",
    "return the new value from the body and store it outside",
)

UNREADABLE_SIZE = _row(
    "unreadable-size",
    "TC136",
    "the result depends on a size that cannot be read from any input",
    "compiled code must check at each call what it was compiled for, and cannot check this size",
    "pass a copy (x.clone()) instead of a view of a tensor subclass",
)
SEQUENCE_LENGTH = _row(
    "sequence-length",
    "TC137",
    "call of {} with a sequence whose length changes",
    "a graph unrolls the network, so it would be compiled once for each length",
    "nothing to do: ATen's own loop runs the network at every length, the rest is compiled",
    "pad the sequences to a few lengths and compile with dynamic=False, for one graph each",
)
LATE_READ = _row(
    "late-read",
    "TC138",
    "{}, which may be changed before gradients are computed",
    "backward is captured where the function is applied, and Python reads the object when it runs",
    "read what backward needs in forward, and keep the number or tensor on ctx",
)


def of_call(called: str) -> Reason:
    """Return the row for a call of a function that the tracer does not follow.

    Args:
        called: its qualified name, `random.Random.random`.
    """
    is_random = called.startswith("numpy.random.")
    outside = is_random or called.partition(".")[0] in FROM_OUTSIDE
    return OUTSIDE_VALUE if outside else BUILTIN_CALL


#: conversions that the user's line calls by another name: `int(x)`, an f-string, an index
_CONVERTED: Final = re.compile(
    r"^Tensor\.__(int|float|bool|complex|format|index)__\(\)$"
)


class GraphBreak(Exception):
    """Control flow: capture breaks the graph at the current instruction.

    Attributes:
        reason: a row of REASONS.
        detail: fills the ``{}`` of the title.
        note: further detail, for example the text of an error of torch.
        places: the user's stack at the break, set by the innermost frame.
        positions: line and column range of the expression at the break.
        frame: the innermost frame at the break; None if the break came before any frame.
        mark: of the graph before the break, which then runs in another way; else empty.
    """

    frame: object = None
    mark: str = ""
    places: tuple[StackFrame, ...] = ()
    positions: dis.Positions | None = None

    def __init__(self, reason: Reason, detail: str = "", note: str = "") -> None:
        self.reason = reason
        self.detail = detail
        self.note = note
        super().__init__(self.title)

    @property
    def title(self) -> str:
        """The reason's title with its detail filled in."""
        return self.reason.title.format(
            _CONVERTED.sub(r"\1() of a tensor", self.detail)
        )


class FrameCountBreak(GraphBreak):
    """A break at a call that needs the frame it is in: it counts frames, or objects die with it."""


class Aftermath(GraphBreak):
    """A consequence of an earlier break (a loop that repeats, an error): not reported to users."""


class TraceAgain(Exception):
    """Control flow: the frame is traced again: inputs changed for good, or it assumed too much.

    Attributes:
        leave_classes: whether the next attempt leaves class statements to Python.
        assume: whether it may assume that no branch on data is taken that only raises.
        owners: adds to what `values.owners` has from the start.
    """

    def __init__(
        self,
        leave_classes: bool = False,
        assume: bool = True,
        owners: Mapping[int, Any] | None = None,
    ) -> None:
        super().__init__()
        self.leave_classes = leave_classes
        self.assume = assume
        self.owners = owners or {}


class SkipFrame(Exception):
    """Control flow: this frame is not captured; Python runs it unchanged.

    Attributes:
        fix: what the user can change so that the frame is captured.
        harmless: whether skipping the frame costs no speed, so that no warning is due.
        idle: whether all of it was traced, callees too, and does no tensor operation.
    """

    def __init__(
        self, why: str, fix: str = "", harmless: bool = False, idle: bool = False
    ) -> None:
        super().__init__(why)
        self.fix = fix
        self.harmless = harmless or idle
        self.idle = idle


def forget_frames(error: BaseException) -> None:
    """Drop the tracebacks of an error that is kept, and of those of the trace behind it.

    They would keep the trace alive, and with it the frames of the program that called it. What the
    program itself is handling while it is traced keeps its own.
    """
    behind: BaseException | None = error
    while behind is not None and behind.__traceback__ is not None:
        if not is_own(behind.__traceback__.tb_frame.f_code.co_filename):
            return
        behind.__traceback__ = None
        behind = behind.__cause__ or behind.__context__


def call_handler(name: str, handler: Callable[..., Result], *given: Any) -> Result:
    """Call a handler.

    Args:
        name: of the function in whose place it is called.

    Raises:
        GraphBreak: it fails, as for operands that the function refuses: Python makes the call,
            and raises what the program may expect.
    """
    try:
        return handler(*given)
    except Exception as error:
        of_python = type(error).__module__ == "builtins"
        if not of_python or isinstance(error, RecursionError) or error_context(error):
            raise
        note = f"{type(error).__name__}: {error}"
        raise GraphBreak(OP_FAILED, name, note) from error
