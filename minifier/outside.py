"""Verdicts where no graph goes wrong: capture itself fails, or what it makes around the graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tc.minifier import odds
from tc.minifier.console import agreeing
from tc.minifier.missing_guard import Missing, missing
from tc.minifier.oracle import Server
from tc.minifier.problem import REDUCIBLE, Problem, Run, recorded
from tc.minifier.verdict import BUG, INCONCLUSIVE, Verdict
from tc.trace.delivery import OK
from tc.trace.words import count as counted

ALL: Final = 1 << 30  # calls
#: bound on `by_chance` of what is blamed on the compiler; as that is looked at after each pair,
#: a script that fails by itself, at whatever rate, is blamed with a probability of 0.14 % at most
CHANCE: Final = 0.002
AGAIN: Final = 5  # runs that have to pass, where the failure seemed to show in every run
PAIRS: Final = 60  # runs of each kind to find that out


def without_graph(script: str, problem: Problem, looks: int = 1) -> Verdict | None:
    """Return the verdict on a run in which no graph went wrong, or none that can be written.

    Args:
        looks: how often the script was run.
    """
    facts = problem.facts
    if problem.kind in REDUCIBLE:
        if problem.case is not None:
            return None
        why = facts.get("unprintable")
        where = f"its graph cannot be written: {why}" if why else "while no graph was being checked"
        return Verdict(INCONCLUSIVE, f"{problem.message}; {where}")
    if problem.kind == "outside":
        return in_capture(problem)
    if problem.kind in ("script", "exit"):
        return Verdict(INCONCLUSIVE, f"{script} fails without the compiler: {problem.message}")
    if not facts.get("compiles"):
        return Verdict(INCONCLUSIVE, f"{script} never calls tc.compile or torch.compile")
    graphs, calls = facts.get("graphs", 0), facts.get("calls", 0)
    if not calls:
        return Verdict(
            INCONCLUSIVE, f"{script} compiles {counted(graphs, 'graph')} and calls none of them"
        )
    verdict = Verdict(
        OK, f"no bug: {agreeing(graphs)} with eager in {counted(calls, 'checked call')}"
    )
    verdict.add("rests on", odds.rests_on(looks), graphs=graphs, calls=calls, runs=looks)
    if facts.get("rounding"):
        differ = "differs" if facts["rounding"] == 1 else "differ"
        verdict.add(
            "rounding",
            f"{counted(facts['rounding'], 'call')} {differ} from eager by no more than eager "
            "itself differs from float64, or from inputs moved by one unit in the last place",
            rounding=facts["rounding"],
        )
    if facts.get("refused"):
        verdict.add(
            "refused",
            f"{counted(facts['refused'], 'call')} could not be judged: {facts['refusal']}",
            refused=facts["refused"],
        )
    if facts.get("random"):
        verdict.add(
            "random",
            f"{counted(facts['random'], 'call')} could not be judged: eager itself gives another "
            "result on each run (random numbers, or an op that is not deterministic)",
            random=facts["random"],
        )
        if facts["random"] == calls:
            verdict.code = INCONCLUSIVE
            verdict.title = "not the compiler: eager alone gives another result on each run"
    return verdict


def in_capture(problem: Problem) -> Verdict:
    """Return the verdict on a compiler that fails before there is a graph."""
    detail = problem.facts.get("detail") or {}
    step = " of ".join(filter(None, (detail.get("opcode"), detail.get("callee"))))
    if detail.get("code"):
        title = f"capture breaks the graph ({detail['code']}) where a break is an error"
    elif step:
        title = f"capture fails at {step}, before there is a graph"
    else:
        title = "the compiler fails while capturing, before there is a graph"
    verdict = Verdict(BUG, title)
    verdict.add("failure", problem.message, stage="capture", message=problem.message)
    if detail.get("line"):
        add_line(verdict, detail["line"])
    if step:
        verdict.add(
            "step", f"the handler of {step}", step=detail["opcode"], callee=detail["callee"]
        )
    for text in dict.fromkeys(str(detail.get("text", "")).splitlines()):
        label, found, rest = text.strip().partition(": ")
        if found and label in ("why", "fix"):
            verdict.add(label, rest)
    return verdict


def add_line(verdict: Verdict, line: str) -> None:
    """Name the user's line, given as ``file:line``, a tab, and its text."""
    where, _, text = line.partition("\t")
    verdict.add("your line", f"{where}   {text}", lines=[where])


def add_workaround(verdict: Verdict, calls: Calls) -> None:
    """See whether the script is right where nothing is compiled."""
    if calls.run(0).kind == "ok":
        text = "nothing is compiled: disable=True (tried: the script is right)"
        verdict.add("works if", text, workaround="disable")
    else:
        verdict.add("works if", "nothing that was tried helps", workaround=None)


# -- around the graphs -------------------------------------------------------------------------
@dataclass
class Tally:
    """How a script fares with many and with few calls compiled.

    Attributes:
        failed: runs with many that fail as the first did.
        runs: with many.
        few_failed: the same, with few.
        few_runs: with few; those that fail in another way count in neither.
        last: the last run with many that failed so.
    """

    failed: int = 0
    runs: int = 0
    few_failed: int = 0
    few_runs: int = 0
    last: Problem | None = None

    @property
    def always(self) -> bool:
        """Whether every run failed."""
        return self.failed == self.runs and self.few_failed == self.few_runs

    @property
    def is_decided(self) -> bool:
        """Whether it fails with few, too, or chance is no explanation of its not doing so."""
        sides = (self.failed, self.runs, self.few_failed, self.few_runs)
        return self.few_failed > 0 or odds.by_chance(*sides) <= CHANCE


@dataclass
class Calls:
    """Runs a script with only its first calls of compiled functions compiled.

    Attributes:
        looks: runs until one fails; more than one where the failure does not always show.
        seen: how often the script fails, in words; empty if always.
        tally: of runs with all calls and with none compiled.
    """

    server: Server
    what: Run
    report: Callable[[str], None]
    looks: int = 1
    seen: str = ""
    tally: Tally = field(default_factory=Tally)

    def compare(self, first: Problem, few: int, many: int) -> Tally:
        """Run it with few and with many compiled calls in turn, until it is known which fails."""
        tally = Tally()
        while not tally.is_decided and tally.runs < PAIRS:
            for count in (many, few):
                again = self.once(count)
                fails = is_alike(again, first)
                if again.kind != "ok" and not fails:
                    continue
                if count == many:
                    tally.runs += 1
                    tally.failed += fails
                    tally.last = again if fails else tally.last
                else:
                    tally.few_runs += 1
                    tally.few_failed += fails
            if tally.runs + tally.few_runs == 0:
                break  # it fails in other ways only
        return tally

    def run(self, count: int, fresh: bool = False) -> Problem:
        """Run it with so many compiled calls; the last may have to compile again."""
        for _ in range(self.looks):
            problem = self.once(count, fresh)
            if problem.kind != "ok":
                break
        return problem

    def once(self, count: int, fresh: bool = False) -> Problem:
        """Run it once; see `run`."""
        self.report(f"running    with {count if count < ALL else 'all'} calls compiled")
        return recorded(self.server, self.what, (count, fresh))

    def first_wrong(self, count: int) -> int:
        """Return the first call that must run compiled for the script to fail.

        A failure that does not always show may have missed a probe: the call before is tried more
        often in the end, and where it fails after all, the search continues below it.
        """
        high = count
        while True:
            low = 0  # with `low` compiled calls it is right, with `high` it fails
            while high - low > 1:
                middle = (low + high) // 2
                if self.run(middle).kind == "ok":
                    low = middle
                else:
                    high = middle
            self.looks = max(self.looks, AGAIN)
            if not low or self.run(low).kind == "ok":
                return high
            high = low


def around_graphs(problem: Problem, calls: Calls) -> Verdict | None:
    """Return the verdict on a script that fails although its graphs agree with eager.

    Eager runs in place of compiled calls from one on: the first that has to be compiled for the
    failure is to blame; where freshly compiled code is right, a guard accepted inputs that it
    must reject. A failure that does not always show may have missed the runs without the compiler
    by chance: so many of each kind are compared that this is as good as excluded.

    Returns:
        None if the compiler has no part in it.
    """
    tally = calls.tally = calls.compare(problem, 0, ALL)
    if tally.few_failed or not tally.runs:
        return None
    if not tally.is_decided:
        verdict = Verdict(INCONCLUSIVE, f"{problem.message}; chance may explain when it shows")
        add_runs(verdict, tally)
        return verdict
    again = tally.last
    assert again is not None
    count = int(again.facts.get("seen") or 0)
    if not count:
        return Verdict(INCONCLUSIVE, f"{problem.message}; without the compiler the script is right")
    if tally.failed < tally.runs:
        calls.looks = odds.runs_for(tally.failed / tally.runs)
        calls.seen = odds.summary(tally.failed, tally.runs)
    number = calls.first_wrong(count)
    wrong = calls.run(number)
    function, line = wrong.facts.get("last") or ("", "")
    fresh = calls.run(number, fresh=True) if number > 1 else wrong
    stale = fresh.kind == "ok"
    if stale:
        title = f"a guard of {function} lets call {number} pass, which needs code of its own"
    else:
        title = f"call {number}, of {function}, goes wrong around its graphs"
    verdict = Verdict(BUG, title)
    verdict.add("failure", problem.message, stage="capture", message=problem.message)
    add_runs(verdict, tally)
    if line:
        add_line(verdict, line)
    if wrong.facts.get("rounding") and not stale:
        verdict.code = INCONCLUSIVE
        verdict.title = (
            f"call {number}, of {function}, differs from eager by no more than rounding does; the "
            "script asks for more, or its fault is outside of the graphs"
        )
        return verdict
    add_step(verdict, stale, number, count)
    if stale and (read := missing(wrong.facts.get("ran") or {}, fresh.facts.get("ran") or {})):
        add_read(verdict, read)
    verdict.add(
        "works if", "that call runs eagerly: disable=True, or tc.disable (tried)",
        workaround="disable",
    )  # fmt: skip
    return verdict


def add_step(verdict: Verdict, stale: bool, number: int, count: int) -> None:
    """Name what goes wrong in a call: guards, or what was captured."""
    step = "guards" if stale else "capture"
    meaning = {
        "guards": "compiled code of an earlier call is used; compiled again, the call is right",
        "capture": "graphs do what was captured, and that is not what the function does: an "
        "operation that was written down wrongly, an effect, a result that is rebuilt",
    }
    verdict.add("step", f"{step}: {meaning[step]}", step=step, number=number, of=count)


def is_alike(again: Problem, first: Problem) -> bool:
    """Return whether a script fails as it did first, wherever the exception was raised."""
    if again.kind != first.kind or again.identity is None or first.identity is None:
        return again.kind == first.kind and again.kind != "ok"
    one, other = again.identity, first.identity
    return (one.types, one.message) == (other.types, other.message)


def add_runs(verdict: Verdict, tally: Tally) -> None:
    """Add to a verdict on a script how many runs it rests on."""
    text = (
        f"it {odds.summary(tally.failed, tally.runs)} compiled, and "
        f"{tally.few_failed} of {tally.few_runs} with nothing compiled"
    )
    if tally.failed and not tally.few_failed:
        sides = (tally.failed, tally.runs, tally.few_failed, tally.few_runs)
        text += f"; by chance with probability {odds.by_chance(*sides):.1%}"
    verdict.add("shows", text, runs=tally.runs + tally.few_runs)


def add_read(verdict: Verdict, read: Missing) -> None:
    """Name the read that no guard holds, and the guard."""
    verdict.add("read", f"{read.line}   {', '.join(read.reads) or 'not known which'}",
                read=read.line, reads=list(read.reads))  # fmt: skip
    for guard in read.guards:
        verdict.add("guard", f"{guard}: missing, or it lets too much pass")
    verdict.facts["guards"] = list(read.guards)
    verdict.add("it computes", read.old, computes=read.old)
    verdict.add("it has to", read.new, needs=read.new)
