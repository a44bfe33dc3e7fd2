"""What was done while compiled code ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tc.trace.events import Fact
from tc.trace.kinds import Kind


@dataclass(frozen=True)
class CudaGraph(Fact, wire=Kind("tc_cudagraph", "launches replayed as one", "code", kept=True)):
    """The launches of a graph's program were recorded to be replayed as one, or were not.

    Attributes:
        action: ``recorded``, ``recorded anew``, or ``refused``: it launches one by one.
        cause: of a refusal: ``mutation`` (it writes to an input that moves), ``dynamic`` (too
            many sets of sizes, or sizes that depend on values), ``elsewhere`` (tensors on another
            device), ``synchronises``, ``alias``, ``overlap``, ``unrecordable``; ``held``: results
            of an earlier call were in use.
        why: one sentence.
        graph: ``inference``, ``forward`` or ``backward``.
    """

    action: str
    cause: str
    why: str
    graph: str = ""


@dataclass(frozen=True)
class SentinelDifference(
    Fact, wire=Kind("tc_sentinel", "a call that differs from eager", "code", kept=True)
):
    """A call of a compiled graph did something else than eager, by more than rounding.

    Attributes:
        kind: ``wrong``; ``nan``: a NaN or infinity in place of a number, or the reverse; ``guard``:
            the graph was called with what it was not compiled for.
        message: what differs.
        gradients: whether it is the backward that differs.
        function, file, line: the function that the graph is of.
        lines: the user's lines that it is made of, ``file:line``.
        call: number of the call of that graph.
        repeats: how many of three more calls differed as well; empty where none were made.
        step: the stage or kernel that differs, where each is compared.
        repro: script that shows it; empty if there is none, and ``no_repro`` says why.
        command: names the guilty step.
        action: ``report``, ``eager`` or ``raise``.
    """

    kind: str
    message: str
    gradients: bool
    function: str
    file: str
    line: int
    lines: tuple[str, ...] = ()
    call: int = 1
    repeats: str = ""
    step: str = ""
    repro: str = ""
    no_repro: str = ""
    command: str = ""
    action: str = "report"


@dataclass(frozen=True)
class SentinelVerdict(
    Fact, wire=Kind("tc_sentinel_verdict", "the guilty step of such a call", "code", kept=True)
):
    """What `tc-bisect` found on the repro of a `SentinelDifference`.

    Attributes:
        verdict: ``bug``, ``no bug`` or ``inconclusive``.
        title: the verdict in one sentence.
        step: e.g. ``loops.lower.tanh``; ``works_if``: the setting that was right when tried.
        lines: the user's lines that are needed, ``file:line``.
    """

    repro: str
    verdict: str
    title: str
    stage: str = ""
    step: str = ""
    lines: tuple[str, ...] = ()
    works_if: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class SentinelRan(
    Fact, wire=Kind("tc_sentinel_run", "calls compared with eager", "metrics", loose=True)
):
    """Calls that the sentinel has compared in this process; a later record replaces an earlier one.

    Attributes:
        compared: calls; ``backward``: of these, those whose gradients were compared as well.
        differences: graphs that were found to differ.
        skipped: reason -> calls that were not compared.
    """

    compared: int
    backward: int
    differences: int
    skipped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Reset(
    Fact, wire=Kind("tc_reset", "all compiled code forgotten", "other", kept=True, loose=True)
):
    """All that was compiled in this process is forgotten, because the program asked for it.

    Attributes:
        function, file, line: the user's line that asked.
    """

    function: str
    file: str
    line: int


@dataclass(frozen=True)
class RanksApart(
    Fact, wire=Kind("tc_ranks", "ranks of the job apart", "other", kept=True, loose=True)
):
    """Ranks of a running job went different ways, or one waits long for another.

    Attributes:
        kind: ``diverged``: both can never meet; ``waits``: the other one is late so far.
        rank: which reports; ``other``: which it does not meet.
        message: one sentence.
        what: the collective; ``file``, ``line``, ``function``: the user's line that issues it.
        other_file, other_line, other_function: where the other rank is, if known.
        cause: the first compile decision that differs, as a sentence; empty: all are the same.
    """

    kind: str
    rank: int
    other: int
    message: str
    what: str
    file: str = ""
    line: int = 0
    function: str = ""
    other_file: str = ""
    other_line: int = 0
    other_function: str = ""
    cause: str = ""


@dataclass(frozen=True)
class Region:
    """A compiled graph, or a function that is not compiled, at run time in this process so far.

    Attributes:
        compile: id of the compile that made it.
        how: ``compiled``; ``operations``: eagerly, one by one; ``python``: the function itself,
            which was skipped or compiled too often. That is counted from Python 3.12 on.
        calls: of the graph, which are the hits of its entry in the cache of its function; where it
            runs in Python, of the function.
        sampled: calls of which the time was taken; ``seconds`` of these together. Of GPU graphs
            that is the time to launch.
    """

    compile: str
    function: str
    file: str
    line: int
    how: str
    calls: int
    sampled: int
    seconds: float


@dataclass(frozen=True)
class RegionsRan(Fact, wire=Kind("tc_run", "calls of compiled graphs", "metrics", loose=True)):
    """Calls of compiled graphs since the process began; a later record replaces an earlier one.

    Attributes:
        regions: those called most first.
        left_out: graphs called that are not reported, because there are too many.
    """

    regions: tuple[Region, ...]
    left_out: int = 0


@dataclass(frozen=True)
class StepTime:
    """One line of a generated wrapper at run time: a kernel, or a call of a library.

    Attributes:
        line: of the wrapper's source, from 1; 0: what the wrapper itself does in Python, together.
        name: of the kernel or of the call.
        places: the user's lines (``file:line``) that it computes.
        seconds: that it takes in a call of the program, the lower quartile of those measured.
        moved, operations: bytes and floating-point operations of the last call measured, by the
            plan's formulas; -1 where these say nothing.
        copies: it computes nothing: it only writes values in another order, or to another place.
        fresh: bytes of memory that the system gave and cleared for it: page faults while it ran,
            each of the usual size of a page, or results so large that they are mapped in each call.
        busy: the seconds without those in which its thread had to wait for a processor.
    """

    line: int
    name: str
    places: tuple[str, ...]
    seconds: float
    moved: int
    operations: int
    copies: bool = False
    fresh: int = 0
    busy: float = 0.0


@dataclass(frozen=True)
class Gap:
    """What passed in a thread between the end of one program and the start of the next.

    It holds guards, dispatch, autograd's own work, and the user's Python; compiling is left out.

    Attributes:
        after: the compile whose program ran before; ``graph`` which one of it.
        times: how often this program came after that one; ``seconds`` between them, together. Both
            are extrapolated from the calls that were timed to all of them.
        usual: lower quartile of the seconds of the newest; 0 unknown.
    """

    after: str
    graph: str
    times: int
    seconds: float
    usual: float = 0.0


@dataclass(frozen=True)
class ProgramTime:
    """A generated program at run time in this process so far.

    Attributes:
        compile: id of the compile that made it.
        function, file, line: whose graph it is of.
        graph: ``inference``, ``forward`` or ``backward``.
        calls: of the program; ``seconds`` of all of them together, extrapolated from those timed.
        sampled: calls in which each step was measured.
        usual: lower quartile of the seconds of the newest calls: what a call takes where memory is
            warm, libraries are open and other processes are not in its way; 0 unknown.
        guards: seconds that one check of the guards takes, measured when they were made;
            ``checked`` is their number. 0 for a backward, and where they were not measured.
        whole: usual seconds of a call of the compiled graph, with all that is around its program:
            checks of inputs, views, writes, autograd; 0 for a backward and where unknown.
        eager: seconds of the captured graph when eager runs it, and ``instead`` those of the
            compiled graph in the same calls, of both the lower quartile; 0 where nobody asked for
            that (``tc.config.profile_eager``).
        handed: tensors that a call is given; 0 where no call was measured step by step.
    """

    compile: str
    function: str
    file: str
    line: int
    graph: str
    calls: int
    seconds: float
    sampled: int
    steps: tuple[StepTime, ...]
    gaps: tuple[Gap, ...]
    usual: float = 0.0
    guards: float = 0.0
    checked: int = 0
    whole: float = 0.0
    eager: float = 0.0
    instead: float = 0.0
    handed: int = 0


@dataclass(frozen=True)
class Profile(Fact, wire=Kind("tc_profile", "where the time goes", "metrics", loose=True)):
    """Where the time of compiled code goes; a later record replaces an earlier one.

    Attributes:
        programs: those that took most time first.
        left_out: programs that are not in the record, because there are too many.
        bandwidth: bytes a second that this machine's memory gives, measured; 0 unknown.
        arithmetic: operations a second that a product of matrices reaches on it, measured.
    """

    programs: tuple[ProgramTime, ...]
    left_out: int = 0
    bandwidth: float = 0.0
    arithmetic: float = 0.0
