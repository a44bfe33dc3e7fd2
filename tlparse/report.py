"""A diagnosis goes in; one HTML file that works offline, by itself, comes out."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final

import jinja2

from tc import __version__
from tc.tlparse import ranksdata, rundata, summary
from tc.tlparse.coverage import coverage
from tc.tlparse.kept import Kept, kept
from tc.tlparse.settings import settings
from tc.trace.cachekeys import Miss, lookups
from tc.trace.compiles import Artifact, Compile, Lane, by_function, calls_to_json, graphs_of
from tc.trace.findings import Diagnosis
from tc.trace.findings.ledger import ledger
from tc.trace.findings.model import Recompile
from tc.trace.ids import in_users_words
from tc.trace.kinds import STAGES, kind_of, label
from tc.trace.layers import layers, named
from tc.trace.provenance import CodeMap, code_map
from tc.trace.session import Session, given_up
from tc.trace.timing import PHASES, phase_of
from tc.trace.words import distinct

_SCRIPTS: Final = (
    "dom.js", "data.js", "parts.js", "code.js", "overview.js", "finding.js",
    "function.js", "compile.js", "textdiff.js", "codepage.js", "passes.js", "graph.js",
    "sourcepage.js", "timepage.js", "runpage.js", "ranks.js", "caches.js", "raw.js", "search.js",
    "words.js", "live.js", "app.js",
)  # fmt: skip
_LAYOUT: Final = ("vendor/dagre.min.js", "layout.js")  # for a worker of the page
STYLES: Final = ("base.css", "parts.css")
_POLICY: Final = "script-src 'unsafe-inline'"
_POLICY_SERVED: Final = "script-src 'unsafe-inline'; connect-src 'self'"
_POLICY_SPLIT: Final = "script-src 'unsafe-inline' 'self' file:"
_SEAM: Final = "<!--blocks-->"
_TOP_STEPS: Final = 30
_MOST_LOOKUPS: Final = 2000
_MOST_SEEN: Final = 200
_MOST_LOGS: Final = 200
_SMALL: Final = 30_000_000  # bytes of logs: below, a small page counts for more than time
_FEW: Final = 16  # logs
_LEVEL_OF_SMALL: Final = 9
_LEVEL: Final = 1  # a third of the time that 6 takes, for a quarter more bytes
_STAGE: Final = re.compile(r'^\s*{"graph": "(\w+)", "stage": "(\w+)"')
_HEAD: Final = 200  # bytes in which the first keys of an artifact stand
_METRICS: Final = (
    "guard_count", "graph_op_count", "graph_node_count", "graph_input_count", "cache_size",
    "num_graph_breaks", "dynamo_time_before_restart_s", "guard_latency_us", "param_count",
)  # fmt: skip


def render(diagnosis: Diagnosis, folder: str = "") -> Iterator[bytes]:
    """Return the report in pieces; the same diagnosis gives the same bytes.

    Args:
        folder: where the texts of the artifacts lie, if not in the page: see `split_blocks`.
    """
    contents = Contents(diagnosis)
    index = contents.index(folder)
    if folder:
        return contents.page(index, _POLICY_SPLIT)
    return contents.page(index, _POLICY, contents.blocks())


class Contents:
    """What the page of a diagnosis holds: its index, and the texts of each compile, packed."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        self.diagnosis = diagnosis
        self.shown = kept(diagnosis)
        self.codes = [code_map(diagnosis.session, one) for one in self.shown.compiles]

    def index(self, folder: str = "", live: int = 0) -> dict[str, Any]:
        """Return all but the texts.

        Args:
            folder: where the texts are, if not in the page.
            live: the number of this state of a trace that may grow, 0 of a page in a file.
        """
        groups = list(by_function(self.diagnosis.session.compiles).values())
        names = _function_names(self.diagnosis.session, groups)
        index = _index(self.diagnosis, groups, names, self.shown, self.codes)
        return {**index, "folder": folder, "live": live}

    def page(
        self,
        index: object,
        policy: str = _POLICY_SERVED,
        blocks: Iterable[tuple[str, bytes]] = (),
    ) -> Iterator[bytes]:
        """Yield the page, with these blocks in it."""
        name = self.diagnosis.session.name
        page = template("report.html").render(
            title=f"tc report: {name}",
            styles="\n".join(static(name) for name in STYLES),
            scripts="\n".join(static(name) for name in _SCRIPTS),
            early=static("early.js"),
            index=_script_safe(index),
            policy=policy,
            served=policy == _POLICY_SERVED,
            summary=summary.text(self.diagnosis, name),
            version=__version__,
        )
        head, _, tail = page.partition(_SEAM)
        yield head.encode("utf-8", "replace")
        layout = "\n".join(static(name) for name in _LAYOUT).encode()
        yield _in_page("layout", _packed([layout], _LEVEL_OF_SMALL))
        for block, packed in blocks:
            yield _in_page(block, packed)
        yield tail.encode("utf-8", "replace")

    def blocks(self) -> Iterator[tuple[str, bytes]]:
        """Yield what belongs to each compile; the page unpacks it when it is looked at."""
        for number, code in enumerate(self.codes):
            for name in (f"block-{number}", *([f"code-{number}"] if code.linked else [])):
                yield name, self.block(name)

    def block(self, name: str) -> bytes:
        """Return one of these, packed.

        Raises:
            KeyError: there is none of that name.
        """
        kind, _, digits = name.partition("-")
        number = int(digits) if digits.isdecimal() else len(self.codes)
        if number >= len(self.codes) or kind not in ("block", "code"):
            raise KeyError(name)
        session = self.diagnosis.session
        if kind == "block":
            artifacts = self.shown.compiles[number].artifacts
            return _packed([session.bytes_of(one) for one in artifacts], self._level)
        return _packed([_compact(self.codes[number].to_json()).encode()], self._level)

    @property
    def _level(self) -> int:
        sources = self.diagnosis.session.sources
        small = len(sources) < _FEW and sum(map(len, sources)) < _SMALL
        return _LEVEL_OF_SMALL if small else _LEVEL


def _in_page(name: str, packed: bytes) -> bytes:
    return b'<script type="text/plain" id="%s">%s</script>\n' % (name.encode(), packed)


def split_blocks(diagnosis: Diagnosis) -> Iterator[tuple[str, bytes]]:
    """Yield (file name, content) of scripts that the page loads when their text is looked at."""
    for name, packed in Contents(diagnosis).blocks():
        yield f"{name}.js", b'tcBlock("%s","%s");\n' % (name.encode(), packed)


@cache
def template(name: str) -> jinja2.Template:
    """Return a template of a page."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string((files("tc.tlparse") / "templates" / name).read_text("utf-8"))


def static(name: str) -> str:
    """Return a script or style sheet of the report."""
    return (files("tc.tlparse") / "static" / name).read_text("utf-8")


def _script_safe(value: object) -> str:
    """Write JSON that nothing in it can end: no `<`, no line that a parser could trip over."""
    return _compact(value).replace("<", "\\u003c")


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _packed(texts: Sequence[bytes], level: int) -> bytes:
    """Pack texts behind a line that holds their sizes: `[3,5]`, then eight bytes."""
    framed = b"".join((_compact([len(text) for text in texts]).encode(), b"\n", *texts))
    return base64.b64encode(gzip.compress(framed, level, mtime=0))


# ---------------------------------------------------------------------------------- the index


def _index(
    diagnosis: Diagnosis,
    groups: Sequence[Sequence[Compile]],
    names: Mapping[int, str],
    shown: Kept,
    codes: Sequence[CodeMap],
) -> dict[str, Any]:
    session = diagnosis.session
    phases = summary.phases_of(session.compiles)
    steps: Counter[str] = Counter()
    for compiled in session.compiles:
        steps.update(compiled.steps)
    kernels = {
        id(one): sum(len(view.kernels) for view in code.views)
        for one, code in zip(shown.compiles, codes, strict=True)
    }
    story = {id(one.compiled): one for one in diagnosis.recompiles}
    found: dict[str, list[str]] = {}
    for finding in diagnosis.findings:
        for slug in {seen.compile for seen in finding.occurrences}:
            found.setdefault(slug, []).append(finding.id)
    misses: dict[int, list[Miss]] = {}
    for miss in diagnosis.misses:
        misses.setdefault(id(miss.entry.compiled), []).append(miss)
    return {
        "schema": summary.SCHEMA,
        "name": session.name,
        "producer": session.producer,
        "headline": summary.headline(diagnosis),
        "version": summary.version_of(session),
        "time": session.first_time[:11],
        "otherRuns": session.other_runs,
        "totals": _totals(diagnosis, len(groups)),
        "phases": [[name, seconds] for name, seconds in phases.items()],
        "phaseOrder": list(PHASES),
        "steps": [[name, s, phase_of(name)] for name, s in steps.most_common(_TOP_STEPS)],
        "stages": list(STAGES),
        **_ranks(diagnosis, shown),
        **_caches(session, shown),
        "files": coverage(diagnosis, shown.compiles, codes),
        "together": diagnosis.together.to_json() if diagnosis.together else None,
        "findings": [_finding(one) for one in diagnosis.findings],
        "functions": [
            _function(diagnosis, names[id(compiles[0])], compiles, kernels, story)
            for compiles in groups
        ],
        "compiles": [
            {
                **_compile(diagnosis, number, compiled, names, story.get(id(compiled))),
                "findings": found.get(compiled.slug, []),
                "code": codes[number].linked,
                "misses": [_miss(one) for one in misses.get(id(compiled), ())],
            }
            for number, compiled in enumerate(shown.compiles)
        ],
        "running": rundata.running(diagnosis),
        "raw": _raw(session),
        "settings": settings(session, shown.compiles).to_json(),
        "environment": [[k, v] for k, v in sorted(session.environment.items())],
    }


def _totals(diagnosis: Diagnosis, functions: int) -> dict[str, Any]:
    session = diagnosis.session
    caches = Counter(compiled.cache for compiled in session.compiles)
    return {
        "compiles": len(session.compiles),
        "functions": functions,
        "frames": session.frames,
        "breaks": len(diagnosis.breaks),
        "recompiles": diagnosis.recompile_count,
        "failures": len(diagnosis.failures),
        "skipped": len(diagnosis.skips),
        "limits": len(diagnosis.limits),
        "seconds": sum(compiled.seconds for compiled in session.compiles),
        "slowest": _slowest(session),
        "hits": caches["hit"],
        "misses": caches["miss"],
        "defects": sum(session.defects.counts.values()),
    }


def _slowest(session: Session) -> list[Any]:
    """Return the process that compiled longest: its seconds and its name."""
    spent: defaultdict[Lane, float] = defaultdict(float)
    for one in session.compiles:
        spent[one.lane] += one.seconds
    most = max(spent, key=lambda lane: (spent[lane], -lane.index), default=None)
    return [spent[most], most.label] if most else [0.0, ""]


def _finding(finding: Any) -> dict[str, Any]:
    return {
        **finding.to_json(),
        "mark": finding.kind.mark,
        "order": finding.kind.order.name,
        "place": finding.where.short if finding.where.file else "",
        "reason": in_users_words(finding.reason),
        "behind": finding.behind.short if finding.behind else "",
        "evidence": finding.evidence,
        "stack": [
            {"file": w.file, "line": w.line, "function": w.function, "source": w.source}
            for w in finding.stack
        ],
        "occurrences": [
            {
                "compile": seen.compile,
                "lane": seen.lane,
                "time": seen.time,
                "record": seen.place,
                "artifact": seen.artifact,
                "detail": seen.detail,
            }
            for seen in finding.occurrences[:_MOST_SEEN]
        ],
    }


def _function_names(session: Session, groups: Iterable[Sequence[Compile]]) -> dict[int, str]:
    """Give each function the name its page is linked by: its title, made unique."""
    names: dict[int, str] = {}
    taken: Counter[str] = Counter()
    for compiles in groups:
        title = compiles[0].title
        taken[title] += 1
        name = title if taken[title] == 1 else f"{title} ({taken[title]})"
        names.update((id(one), name) for one in (*compiles, *given_up(session, compiles)))
    return names


def _function(
    diagnosis: Diagnosis,
    name: str,
    compiles: Sequence[Compile],
    kernels: Mapping[int, int],
    story: Mapping[int, Recompile],
) -> dict[str, Any]:
    file, line = compiles[0].home
    shown = [one for one in compiles if id(one) in kernels]
    mine = {id(compiled) for compiled in compiles}
    frames = {(compiled.lane, compiled.frame_id) for compiled in compiles}
    refused = [event.compiled for event in diagnosis.limits]
    states = [diagnosis.status(compiled) for compiled in compiles]
    order = ("error", "skipped", "break", "recompile", "cached", "ok")
    table = ledger(diagnosis.session, diagnosis.recompiles, shown)
    return {
        "name": name,
        "title": compiles[0].title,
        "file": file,
        "line": line,
        "compiles": [compiled.slug for compiled in shown],
        "compileCount": len(compiles),
        "phases": [[name, seconds] for name, seconds in summary.phases_of(compiles).items()],
        "seconds": sum(compiled.seconds for compiled in compiles),
        "breaks": sum(id(event.compiled) in mine for event in diagnosis.breaks),
        "recompiles": sum(id(one) in story and not story[id(one)].refused for one in compiles),
        "refused": any((c.lane, c.frame_id) in frames for c in refused),
        "status": next((state for state in order if state in states), "ok"),
        "graphs": graphs_of(compiles),
        "kernels": max((kernels.get(id(one), 0) for one in compiles), default=0),
        "hits": sum(compiled.cache == "hit" for compiled in compiles),
        "misses": sum(compiled.cache == "miss" for compiled in compiles),
        "calls": calls_to_json([*compiles, *given_up(diagnosis.session, compiles)]),
        "ledger": table.to_json() if table.recompiled else None,
    }


def _compile(
    diagnosis: Diagnosis,
    number: int,
    compiled: Compile,
    names: Mapping[int, str],
    story: Recompile | None,
) -> dict[str, Any]:
    file, line = compiled.home
    top = sorted(compiled.steps.items(), key=lambda row: (-row[1], row[0]))[:_TOP_STEPS]
    return {
        "slug": compiled.slug,
        "id": compiled.id,
        "lane": compiled.lane.label,
        "block": number,
        "real": compiled.started,
        "function": names.get(id(compiled), ""),
        "title": compiled.title if compiled.id != "-/-" else "outside of any compile",
        "file": file,
        "line": line,
        "status": diagnosis.status(compiled),
        "attempts": compiled.attempts,
        "seconds": compiled.seconds,
        "cache": compiled.cache,
        "calls": calls_to_json([compiled]),
        "phases": [[name, seconds] for name, seconds in compiled.phases.items()],
        "steps": [[name, seconds, phase_of(name)] for name, seconds in top],
        "metrics": [
            [name, compiled.metrics[name]]
            for name in _METRICS
            if isinstance(compiled.metrics.get(name), (int, float))
        ],
        "stack": [[frame.file, frame.line, frame.name, frame.code] for frame in compiled.frames],
        "of": story.of if story else "",
        "causes": [
            [c.source, c.old, c.new, c.now_dynamic, c.guard]
            for c in (story.causes if story else ())
        ],
        "reasons": [[of, text] for of, text in (story.reasons if story else ())],
        "artifacts": _artifacts(diagnosis.session, compiled.artifacts),
        "memory": rundata.memory(compiled),
    }


def _caches(session: Session, shown: Kept) -> dict[str, Any]:
    mine = {id(one) for one in shown.compiles}
    looks = lookups(session)
    totals = [[one.name, *one.counts, one.saved] for one in layers(session)]
    rows = [[one.compiled.slug, named(one), one.found, one.artifact, one.saved, one.why]
            for one in looks if id(one.compiled) in mine]  # fmt: skip
    return {"caches": totals, "lookups": rows[:_MOST_LOOKUPS]}


def _miss(miss: Miss) -> dict[str, Any]:
    return {
        "cache": miss.entry.cache.replace("_", " "),
        "artifact": miss.entry.artifact.number,
        "nearest": miss.nearest.compiled.slug,
        "sameGraph": miss.same_graph,
        "differing": miss.differing,
        "parts": miss.parts,
        "changes": [[change.name, change.old, change.new] for change in miss.changes],
    }


def _artifacts(session: Session, artifacts: Sequence[Artifact]) -> list[list[Any]]:
    """Return a row for each artifact; no two of one attempt have the same name."""
    by_attempt: defaultdict[int, list[Artifact]] = defaultdict(list)
    for one in artifacts:
        by_attempt[one.attempt].append(one)
    words = {
        one.number: name
        for some in by_attempt.values()
        for one, name in zip(some, distinct([_words(session, one) for one in some]), strict=True)
    }
    return [
        [one.number, one.name, words[one.number], STAGES.index(label(one.name)[1]), one.kind,
         one.attempt, one.note, one.size, one.place]
        for one in artifacts
    ]  # fmt: skip


def _words(session: Session, artifact: Artifact) -> str:
    """What an artifact is called, whatever stands beside it."""
    if artifact.name == "tc_pass" and (match := _STAGE.search(session.start_of(artifact, _HEAD))):
        return f"passes of {match[2]}, {match[1]} graph"
    return label(artifact.name)[0]


def _ranks(diagnosis: Diagnosis, shown: Kept) -> dict[str, Any]:
    return {
        "lanes": _lanes(diagnosis, shown),
        "laneCount": len(diagnosis.session.lanes),
        "ranks": ranksdata.as_json(diagnosis),
    }


def _lanes(diagnosis: Diagnosis, shown: Kept) -> list[dict[str, Any]]:
    mine: dict[int, list[Compile]] = {lane.index: [] for lane in shown.lanes}
    for one in diagnosis.session.compiles:
        if one.lane.index in mine:
            mine[one.lane.index].append(one)
    breaks = Counter(event.compiled.lane.index for event in diagnosis.breaks)
    again = Counter(one.compiled.lane.index for one in diagnosis.recompiles if not one.refused)
    failed = Counter(event.compiled.lane.index for event in diagnosis.failures)
    return [
        {
            "label": lane.label,
            "compiles": len(mine[lane.index]),
            "ids": sorted(one.id for one in mine[lane.index]),
            "breaks": breaks[lane.index],
            "recompiles": again[lane.index],
            "failures": failed[lane.index],
            "seconds": sum(one.seconds for one in mine[lane.index]),
        }
        for lane in shown.lanes
    ]


def _raw(session: Session) -> dict[str, Any]:
    return {
        "records": session.records,
        "strings": session.events["str"],
        "logs": len(session.sources),
        "sources": [[one.name, len(one)] for one in session.sources[:_MOST_LOGS]],
        "events": [[name, n, kind_of(name).record] for name, n in session.events.most_common()],
        "defects": [
            [kind, n, session.defects.places[kind]]
            for kind, n in sorted(session.defects.counts.items())
        ],
    }
