"""Decides which calls of a compiled graph are compared with eager, and what a difference leads to.

In: a compiled graph. Out: a callable in its place. A call that is not chosen costs one count and
one comparison of integers; where the sentinel is off there is nothing in the graph's place.
"""

from __future__ import annotations

import itertools
import random
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch.utils._pytree import tree_leaves

from tc import trace
from tc.compiler.capture import hook
from tc.compiler.core.settings import share_of
from tc.compiler.errors import SentinelError
from tc.compiler.options import Config
from tc.compiler.sentinel import blame, repro
from tc.compiler.sentinel.check import REPEATS, Backward, Call, Written, guard_difference
from tc.compiler.sentinel.copies import Skipped, require_comparable, unseen
from tc.compiler.sentinel.counts import COUNTS
from tc.compiler.sentinel.graph import Graph
from tc.compiler.sentinel.rounding import Difference
from tc.compiler.sentinel.stages import first_wrong
from tc.trace import cells

NEVER = sys.maxsize
#: reason of a call that is not compared because of an error in the sentinel itself
INTERNAL = "internal error of the sentinel: {}"


@dataclass(frozen=True)
class Setting:
    """What is compared, and what a difference leads to; fixed when a graph is compiled.

    Attributes:
        period: one call in so many, on average.
        action: ``report``; ``eager``: run the graph by eager from then on; ``raise``.
        memory: bytes that copies of the inputs of a call may take.
        bisect: start `tc-bisect` on what is found.
        check: what else is compared: ``stages``, or ``kernels`` one by one.
    """

    period: int
    action: str = "report"
    memory: int = 4 << 30
    bisect: bool = True
    check: str = ""


def setting_of(config: Config) -> Setting | None:
    """Return what the settings of the process ask for; None: nothing."""
    period, check, action = period_of(config.sentinel), config.check, config.sentinel_action
    if check:
        period, action = 1, "raise" if action == "report" else action
    if not period:
        return None
    return Setting(period, action, config.sentinel_memory, config.sentinel_bisect, check)


def sentinel_setting(
    config: Config, rate: float | str | None, action: str | None
) -> Setting | None:
    """Return what the settings of the process ask for, with another rate or action if given.

    Raises:
        OptionError: a setting has a value that it cannot take.
    """
    changes = {"sentinel": rate, "sentinel_action": action}
    given: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
    return setting_of(replace(config, **given))


def period_of(rate: float | str) -> int:
    """Return of how many calls one is compared; 0: none is.

    Args:
        rate: share of calls that `Config` has checked, 1/1000; as text also ``1/1000``.
    """
    share = share_of(rate)
    return round(1 / share) if share else 0


def watched(
    compiled: Callable[..., Any], graph: Graph, setting: Setting
) -> tuple[Callable[..., Any], Watch]:
    """Return what runs a compiled graph and compares some of its calls."""
    watch = Watch(compiled, graph, setting)
    count = itertools.count(1).__next__  # one step of the interpreter: no call is lost or doubled

    def call(*args: Any) -> Any:
        number = count()
        if number < watch.due:
            return compiled(*args)
        return watch.chosen(number, args)

    return hook.never_trace(call), watch


class Watch:
    """One compiled graph under the sentinel.

    Attributes:
        due: number of the next call that is compared; the first call of a graph always is.
    """

    def __init__(self, compiled: Callable[..., Any], graph: Graph, setting: Setting) -> None:
        self.compiled = compiled
        self.graph = graph
        self.setting = setting
        self.due = 1
        self._replaced = False
        self._found = False
        self._lock = threading.Lock()
        self._random = random.Random()  # its own: the program's numbers stay what they are

    def chosen(self, number: int, args: tuple[Any, ...]) -> Any:
        """Run a call whose number is due, unless another thread has just taken that turn."""
        with self._lock:
            if self._replaced:
                run = self.graph.eager
            elif number < self.due:
                run = self.compiled
            else:
                if self.setting.period > 1:  # else every call is due, in whatever order they come
                    self.due = number + self._random.randint(1, 2 * self.setting.period - 1)
                run = None
        if run is not None:
            return run(*args)
        return self._checked(number, args, sys._getframe(2))

    def _checked(self, number: int, args: tuple[Any, ...], caller: Any) -> Any:
        graph = self.graph
        try:
            with unseen():
                require_comparable(args, self.setting.memory)
                call = Call.before(graph, args)
            guard = guard_difference(graph.module, args)
            if guard is None and (refused := graph.refused_guard(caller)):
                guard = Difference(
                    "guard", f"a guard accepted inputs that it must reject: {refused}"
                )
        except Exception as error:
            _skip(error)
            return self.compiled(*args)
        finally:
            del caller  # its frame would keep itself alive
        if guard is not None and self.setting.action == "raise":
            self._report(call, guard, number)
        result = self.compiled(*args)
        try:
            with unseen():
                self._compare(call, result, args, number, guard)
        except SentinelError:
            raise
        except Exception as error:
            _skip(error)
        return result

    def _compare(
        self, call: Call, result: Any, args: Sequence[Any], number: int, guard: Difference | None
    ) -> None:
        difference = first_wrong(call, self.graph) or call.difference(result, args) or guard
        COUNTS.add("compared")
        if difference is not None:
            self._report(call, difference, number)
            return
        backward = Backward.of(result, args)
        if backward is not None:
            call.written = Written.since(tree_leaves(result), args, call)
            self._compare_gradients(call, backward, number)

    def _compare_gradients(self, call: Call, backward: Backward, number: int) -> None:
        """Compare the gradients of the first backward of a call, when it has run."""
        waiting = [call]
        node, backward.node = backward.node, None  # the hook must not keep its node alive

        def compare(gradients: Any, tangents: Any) -> None:
            if not waiting:
                return
            call = waiting.pop()
            try:
                with unseen():
                    difference = backward.difference(call, gradients, tangents)
                COUNTS.add("compared backward")
                if difference is not None:
                    self._report(call, difference, number, backward, tangents)
            except SentinelError:
                raise
            except Exception as error:
                _skip(error)

        node.register_hook(compare)

    # -- a difference --------------------------------------------------------------------------
    def _report(
        self, call: Call, difference: Difference, number: int, backward: Backward | None = None,
        tangents: Sequence[Any] = (),
    ) -> None:  # fmt: skip
        """Report a difference, once a graph, and do what was asked for then."""
        action, graph = self.setting.action, self.graph
        with self._lock:
            first, self._found = not self._found, True
            self._replaced |= action == "eager"
            if action == "report":
                self.due = NEVER
        if action == "raise" and not first:
            raise SentinelError("sentinel", difference.message)
        if not first:
            return
        COUNTS.add("findings")
        if backward is None and difference.kind != "guard":
            times = f"{call.repeats(self.compiled)} of {REPEATS}"
            difference = replace(difference, detail={**difference.detail, "repeats": times})
        folder, why = None, ""
        try:
            folder = repro.write(graph, call, difference, number, backward, tangents)
        except (repro.Unwritable, OSError) as error:
            why = str(error)
        script = str(folder / repro.SCRIPT) if folder is not None else ""
        bisects = folder is not None and graph.compile_call != "" and self.setting.bisect
        self._emit(difference, number, backward is not None, folder, why)
        text = self._sentence(difference, number, backward is not None, script, why)
        trace.warn(text)
        if bisects and folder is not None:
            blame.blame(graph, folder)
        if action == "raise":
            raise SentinelError("sentinel", text)

    @trace.reports(trace.nothing)
    def _emit(
        self, difference: Difference, number: int, gradients: bool, folder: Path | None, why: str
    ) -> None:
        graph = self.graph
        graph.emit(
            trace.SentinelDifference(
                kind=difference.kind,
                message=difference.message,
                gradients=gradients,
                function=graph.place.name,
                file=graph.place.file,
                line=graph.place.line,
                lines=tuple(graph.lines()),
                call=number,
                repeats=str(difference.detail.get("repeats", "")),
                step=str(difference.detail.get("step", "")),
                repro=str(folder / repro.SCRIPT) if folder is not None else "",
                no_repro=why,
                command=blame.command(folder) if folder is not None else "",
                action=self.setting.action,
            )
        )

    def _sentence(
        self, difference: Difference, number: int, gradients: bool, script: str, why: str
    ) -> str:
        place = self.graph.place
        what = "gradients differ" if gradients else "results differ"
        what = (
            "the compiled code must not be used for this call"
            if difference.kind == "guard"
            else what
        )
        step = difference.detail.get("step")
        at = f" after {step}" if step else ""
        then = {"eager": "; the graph runs in eager from now on"}.get(self.setting.action, "")
        where = f"; repro: {script}" if script else f"; no repro: {why}"
        return (
            f"sentinel: call {number} of the graph of {place.name} "
            f"({cells.place(place.file, place.line)}), {what} "
            f"from eager{at}: {difference.message}{then}{where}"
        ).replace("call from eager", "call")


def _skip(error: Exception) -> None:
    """Count a call that was not compared; what goes wrong in the sentinel never ends a program."""
    COUNTS.skip(str(error) if isinstance(error, Skipped) else INTERNAL.format(type(error).__name__))
