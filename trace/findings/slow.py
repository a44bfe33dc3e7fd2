"""A session goes in; what made compiling slow, and could be avoided, comes out as events."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from typing import Final

from tc.trace.compiles import FRAMEWORK, Compile
from tc.trace.findings.codes import Code, Order
from tc.trace.findings.model import Event, Where, here
from tc.trace.findings.rows import Facts, finding
from tc.trace.ids import resets_before
from tc.trace.parsed import measured
from tc.trace.plaintext import plain_code
from tc.trace.session import Session
from tc.trace.timing import duration, phase_of
from tc.trace.unframed import AOT
from tc.trace.words import count

_GRAPH: Final = "dynamo_output_graph"
_LEAST: Final = 1.0  # seconds: less is not worth anybody's time
_SHARE: Final = 0.1  # of all compile time
_COLD: Final = 5.0  # seconds in compilers of C++ and Triton
_MOSTLY: Final = 0.5
_LARGE: Final = 200  # operations of a graph
_ITERATIONS: Final = 8  # how often a line must be in a graph to look like the body of a loop
_TUNING: Final = re.compile(r"autotun|benchmark", re.IGNORECASE)
_PLACE: Final = re.compile(r"# File: (.+?):(\d+)(?: in ([^,]+))?, code: (.*)$", re.MULTILINE)
#: a node of a printed graph, its name without the number that makes the name unique
_NODE: Final = re.compile(r"\s+(?P<name>[A-Za-z_]\w*?)(?:_\d+)?(?:: \"[^\"]*\")? = ")
_SET: Final = re.compile(r"environ\[['\"](?P<name>\w+_CACHE_DIR)['\"]\] = ['\"](?P<value>[^'\"]+)")
_HEAD: Final = 4096
_RESTART: Final = "dynamo_time_before_restart_s"


def _total(session: Session) -> float:
    return sum(one.seconds for one in session.compiles)


def _least(session: Session) -> float:
    """The seconds that something must have cost to be worth a finding."""
    return max(_LEAST, _SHARE * _total(session))


@finding(
    Code(
        "TC301",
        "capture started over, and what it had read was lost",
        "mend what made it start over",
    ),
    order=Order.TIME,
)
def started_over(facts: Facts) -> list[Event]:
    """Return each capture that started over: what it had done until then was lost."""
    found, least = [], _least(facts.session)
    for one in facts.session.compiles:
        lost = measured(one.metrics.get(_RESTART))
        if lost is None or lost < least or one.failure:
            continue
        reasons = one.metrics.get("restart_reasons")
        lines = [str(row).strip().partition("\n")[0] for row in reasons or () if str(row).strip()]
        if not lines:
            continue
        found.append(_event(
            one, "TC301", f"capture of {one.title} started over",
            f"what it had read until then was lost: {duration(lost)}; reason: {lines[0]}",
            ("mend what made it start over: the other findings of this function name the line",),
            lost, "started over",
        ))  # fmt: skip
    return found


@finding(
    Code(
        "TC306",
        "everything compiled was forgotten (`tc.reset()`), and compiled again",
        "call `reset()` once, outside of the loop or function that calls compiled code",
    ),
    order=Order.TIME,
)
def forgotten(facts: Facts) -> list[Event]:
    """Return the compiles that only repeat what a process had compiled before a reset.

    What the caches saved of it is not counted, the rest is lost in each of them.
    """
    session = facts.session
    known: dict[tuple[int, str, int, str], int] = {}
    again: dict[int, list[Compile]] = {}
    for one in session.compiles:
        what = (one.lane.index, one.file, one.line, one.function)
        turn = resets_before(one.id)
        if turn > known.setdefault(what, turn):
            again.setdefault(one.lane.index, []).append(one)
    found = []
    for lane, compiles in again.items():
        lost = sum(one.seconds for one in compiles)
        if lost < _least(session):
            continue
        times = len({resets_before(one.id) for one in compiles})
        first = compiles[0]
        found.append(_event(
            first, "TC306", f"all compiled code was forgotten {count(times, 'time')}",
            f"{count(len(compiles), 'compile', ',')} repeated what had been compiled before a call "
            f"of reset(); the first was that of {first.title}",
            ("call reset() once, outside of the loop or function that calls compiled code",),
            lost, "reset", _asked(session, lane),
        ))  # fmt: skip
    return found


def _asked(session: Session, lane: int) -> Where | None:
    """Return the user's line that most resets of a process came from; None if it is unknown."""
    often = Counter[Where]()
    for one in session.loose:
        if one.lane.index == lane:
            for note in one.noted("tc_reset"):
                file, line, function = (note.data.get(k) for k in ("file", "line", "function"))
                number = line if isinstance(line, int) else 0
                often[Where(str(file or ""), number, function=str(function or ""))] += 1
    return often.most_common(1)[0][0] if often else None


_CODE: Final = "inductor_output_code"  # what a compiler makes that keeps it, tc's as well
_CACHED: Final = "keep the caches on, so that the second compile of a graph is a hit"
_SEVERAL: Final = (
    "let one compiled function serve them all: compile it once, outside of the loop or the "
    "constructor that makes the copies",
    _CACHED,
)
_ONE_FUNCTION: Final = (
    "mend what has it compiled again (its other findings say what changed): the graph does not "
    "depend on that",
    _CACHED,
)


@finding(
    Code(
        "TC302",
        "the same graph was compiled several times",
        "compile it once, outside of the loop or constructor that makes the copies",
    ),
    order=Order.RUN,
)
def compiled_alike(facts: Facts) -> list[Event]:
    """Return the compiles that made a graph which another compile had made already."""
    session, found = facts.session, []
    least = _least(session)
    first: dict[str, Compile] = {}
    again: dict[str, list[Compile]] = {}
    for one in session.compiles:
        graphs = [a for a in one.artifacts if a.name == _GRAPH]
        if not graphs or one.cache == "hit":
            continue
        text = plain_code(session.text(graphs[-1]))
        key = hashlib.md5(text.encode("utf-8", "replace"), usedforsecurity=False).hexdigest()
        key = f"{one.lane.index} {key}"
        if first.setdefault(key, one) is not one:
            again.setdefault(key, []).append(one)
    for key, others in again.items():
        lost = sum(one.seconds for one in others)
        if lost < least:
            continue
        frames = {one.frame_id for one in (first[key], *others)}
        fix: tuple[str, ...] = _ONE_FUNCTION if len(frames) == 1 else _SEVERAL
        if not any(part.name == _CODE for part in others[0].artifacts):
            fix = tuple(way for way in fix if way != _CACHED)  # debug backends have no caches
        slugs = ", ".join(f"[{one.slug}]" for one in others[:5])
        found.append(_event(
            others[0], "TC302", f"the same graph was compiled {len(others) + 1} times",
            f"{slugs} made the graph that [{first[key].slug}] had made before",
            fix, lost, "same graph",
        ))  # fmt: skip
    return found


@finding(
    Code(
        "TC303",
        "a loop is unrolled into one large graph",
        "compile the body of the loop: the layer or function that each turn calls",
    ),
    order=Order.TIME,
)
def unrolled(facts: Facts) -> list[Event]:
    """Return the graphs that are large because they repeat the body of a loop."""
    session, found = facts.session, []
    least = _least(session)
    for one in session.compiles:
        nodes = one.metrics.get("graph_op_count") or one.metrics.get("graph_node_count")
        if one.seconds < least or not isinstance(nodes, int) or nodes < _LARGE:
            continue
        graphs = [a for a in one.artifacts if a.name == _GRAPH]
        text = session.text(graphs[-1]) if graphs else ""
        body = _repeated(text)
        if body is None:
            continue
        where, iterations, share = body
        found.append(_event(
            one, "TC303", f"a loop of {iterations} iterations is unrolled into one graph",
            f"{100 * share:.0f} % of its {nodes} operations come from lines that are in it "
            f"{iterations} times; the time to compile grows with each iteration",
            ("compile the body instead: the layer or function called in each iteration, so that "
             "all iterations share one small graph",),
            one.seconds * share, "unrolled", where,
        ))  # fmt: skip
    return found


def _repeated(text: str) -> tuple[Where, int, float] | None:
    """Return the first line of what looks like a loop's body, its iterations and its share.

    A place is printed where the line changes: the iterations of a body of one line follow each
    other under one place, and show by how often the line makes a node of each name.
    """
    places, nodes = [], Counter[tuple[str, int]]()
    names: dict[tuple[str, int], Counter[str]] = {}
    for row in text.splitlines():
        if place := _PLACE.search(row):
            places.append((place[1], int(place[2]), place[3] or "", place[4]))
        elif places and (node := _NODE.match(row)):
            at = places[-1][:2]
            nodes[at] += 1
            names.setdefault(at, Counter())[node["name"]] += 1
    many = Counter(one[:2] for one in places)
    for at, made in names.items():
        often = [n for n in made.values() if n >= _ITERATIONS]
        many[at] = max(many[at], min(often, default=0))
    # lines of one loop's body occur equally often, its calls of helpers several times as often
    iterations = Counter(n for n in many.values() if n >= _ITERATIONS)
    if not iterations or not nodes:
        return None
    share = sum(nodes[at] for at, n in many.items() if n >= _ITERATIONS) / nodes.total()
    if share < _MOSTLY:
        return None
    turns = max(iterations, key=lambda n: (iterations[n] * n, n))
    body = [p for p in places if many[p[:2]] == turns]
    mine = [p for p in body if not FRAMEWORK.search(p[0])]
    file, line, function, source = (mine or body)[0]
    return Where(file, line, function=function, source=source), turns, share


@finding(
    Code(
        "TC304",
        "trying out kernels (max-autotune) took long",
        "keep the cache folder between runs",
    ),
    order=Order.TIME,
)
def tuned(facts: Facts) -> list[Event]:
    """Return the compiles that spent their time on trying out kernels."""
    found, least = [], _least(facts.session)
    for one in facts.session.compiles:
        spent = sum(s for name, s in one.steps.items() if _TUNING.search(name))
        if spent >= least:
            found.append(_event(
                one, "TC304", f"trying out kernels took {duration(spent)}",
                "max-autotune measures several kernels for each operation, on the first compile",
                ("keep the cache folder between runs: what was measured is not measured again",
                 "mode='default', where the kernels chosen are not faster in the end"),
                spent, "autotuning",
            ))  # fmt: skip
    return found


@finding(
    Code(
        "TC305",
        "the caches were empty: all kernels were built",
        "keep TC_CACHE_DIR (TORCHINDUCTOR_CACHE_DIR) between runs",
    ),
    order=Order.RUN,
)
def cold(facts: Facts) -> list[Event]:
    """Return a run whose time went to compilers of C++ and Triton: no cache had anything."""
    session = facts.session
    if any(one.cache == "hit" for one in session.compiles):
        return []
    spent = [(one, _building(one)) for one in session.compiles if not _is_ahead(one)]
    built = sum(seconds for _, seconds in spent)
    if built < _COLD or built < _MOSTLY * _total(session):
        return []
    tc = session.producer == "tc"
    folder = "TC_CACHE_DIR" if tc else "TORCHINDUCTOR_CACHE_DIR"
    place = _folder(session, folder)
    fixes = [
        f"keep {folder} = {place} between runs: it is set, and held nothing of this"
        if place
        else f"set {folder} to a folder that outlives the run, or the container: the next start "
        "then finds its kernels"
    ]
    if not tc:
        fixes.append("torch.compiler.save_cache_artifacts() and load_cache_artifacts() carry them "
                     "to other machines")  # fmt: skip
    most = max(spent, key=lambda row: row[1])[
        0
    ]  # a cause of the whole run: reported for one compile
    return [_event(
        most, "TC305", "the caches were empty: all kernels were built",
        f"{100 * built / _total(session):.0f} % of the compile time went to compilers of generated "
        f"code; it took longest for {most.title}",
        tuple(fixes), built, "cold",
    )]  # fmt: skip


@finding(
    Code(
        "TC308",
        "an ahead-of-time compile built its code: each one does, whatever the caches hold",
        "keep the package that it makes, and load that in later runs",
    ),
    order=Order.RUN,
)
def ahead(facts: Facts) -> list[Event]:
    """Return ahead-of-time compiles whose time went to the compiler of C++."""
    events = []
    for one in filter(_is_ahead, facts.session.compiles):
        built = _building(one)
        if built >= max(_COLD, _MOSTLY * one.seconds):
            why = (f"{100 * built / one.seconds:.0f} % of its time went to compilers of generated "
                   "code, which no cache keeps for it")  # fmt: skip
            fix = "keep the package that it makes, and load it in later runs: aoti_load_package()"
            events.append(_event(one, "TC308", f"{one.title} built all of its code", why, (fix,),
                                 built, "ahead"))  # fmt: skip
    return events


def _is_ahead(one: Compile) -> bool:
    return one.id.startswith(AOT)


def _folder(session: Session, variable: str) -> str:
    """Return what the variable of the cache folder was set to; empty where it was not."""
    for one in session.compiles:
        config = one.metrics.get("config")
        if isinstance(config, dict) and config.get(f"env.{variable}"):
            return str(config[f"env.{variable}"])
        for artifact in one.artifacts:
            if artifact.name == "fx_graph_runnable":  # it sets what was set
                match = _SET.search(session.start_of(artifact, _HEAD))
                if match and match["name"] == variable:
                    return match["value"]
    return ""


def _building(one: Compile) -> float:
    return sum(s for name, s in one.steps.items() if phase_of(name) == "build")


def _event(
    one: Compile,
    code: str,
    title: str,
    why: str,
    fix: tuple[str, ...],
    seconds: float,
    reason: str,
    where: Where | None = None,
) -> Event:
    note = next((a for a in one.artifacts if a.name == _GRAPH), None)
    return Event(
        code=code,
        title=title,
        why=why,
        fix=fix,
        where=where or here(one),
        reason=reason,
        compiled=one,
        place=note.place if note else "",
        artifact=note.number if note else -1,
        detail=duration(seconds),
        seconds=seconds,
    )
