"""The graphs and generated programs of a compile go in; which of the user's lines became which
node and kernel comes out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any, Final

from tc.trace.compiles import FRAMEWORK, LIBRARY, Artifact, Compile
from tc.trace.parsed import parse_json, whole
from tc.trace.session import Session
from tc.trace.words import distinct

Place = tuple[str, int]

_FILE: Final = re.compile(
    r"#\s*File: (?P<file>.+?):(?P<line>\d+)(?: in (?P<fn>[^,]+))?, code: (?P<code>.*)$"
)
_NO_STACK: Final = re.compile(r"^\s*# No stacktrace found")
_NODE: Final = re.compile(r"^\s+(?P<name>[A-Za-z_]\w*)(?:\s*:[^=]+)?\s*= (?P<op>[\w.]+)")
_AT_END: Final = re.compile(r"  # (?P<file>[^#]+?):(?P<line>\d+)(?: in (?P<fn>[\w.<>]+))?\s*$")
_HANDLE: Final = re.compile(r"^\s*# \[Provenance debug handles\] (?P<keys>.+)$")
_SOURCES: Final = re.compile(
    r"^\s*# Topologically Sorted Source Nodes: \[(?P<nodes>[^\]]*)\], "
    r"Original ATen: \[(?P<ops>[^\]]*)\]"
)
_DEFINED: Final = re.compile(r"^(?P<name>\w+) = async_compile\.\w+\(")
_VOID: Final = re.compile(r"^(?:extern \"C\" )?void\s+(?P<name>\w+)\(")
_TC_COMMENT: Final = re.compile(
    r"^\s*(?:/\*|#|//) (?P<op>[\w.]+) \((?P<node>\w+)\) (?P<file>.+?):(?P<line>\d+)"
    r"(?: in (?P<fn>[\w.<>]+))?(?: \*/)?\s*$"
)
_CALL: Final = re.compile(r"^\s+(?:\w+ = )?(?P<name>[\w.]+)\(")
_STACK: Final = re.compile(
    r'^\s*File "(?P<file>.+)", line (?P<line>\d+), in (?P<fn>\S+)\n(?P<code>.*)$', re.MULTILINE
)
_POST: Final = ("inductor_post_grad_graph",)
_ATEN: Final = ("aot_inference_graph", "aot_forward_graph", "aot_backward_graph")
_CODE: Final = "inductor_output_code"
_MAPS: Final = "inductor_provenance_tracking_node_mappings"
_STACKS: Final = "inductor_provenance_tracking_kernel_stack_traces"
_NEVER_FUSED: Final = frozenset(
    (
        "permute", "transpose", "t", "view", "reshape", "_unsafe_view", "alias", "slice", "select",
        "squeeze", "unsqueeze", "mm", "addmm", "bmm", "baddbmm", "convolution", "getitem",
        "split", "split_with_sizes", "detach", "as_strided", "sym_size",
    )
)  # fmt: skip
_TEXT: Final = "tc_source"  # the user's functions that a compile went through
_REMEMBERED: Final = 1 << 12  # names of operators
_LEAST: Final = 3  # lines a comment may lie above the call it is about


@dataclass(slots=True)
class Node:
    """One node of a graph: its line in the text, and the user's line it comes from."""

    line: int
    name: str
    op: str
    place: Place | None


@dataclass(slots=True)
class Kernel:
    """One kernel call: its line ranges in the text (its definition too), sources and nodes."""

    name: str
    lines: list[tuple[int, int]]
    places: list[Place] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)


@dataclass(slots=True)
class View:
    """One graph beside the program generated from it; numbers are those of the artifacts."""

    name: str
    graph: int
    code: int
    nodes: list[Node]
    kernels: list[Kernel]


@dataclass(slots=True)
class CodeMap:
    """All views of a compile, and the user's lines as far as the trace quotes them.

    Attributes:
        captured: the nodes of the captured graph.
        coded, traced: the lines that hold code, and those that capture went through, if recorded.
    """

    captured: list[Node] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    quoted: dict[Place, tuple[str, str]] = field(default_factory=dict)
    coded: set[Place] = field(default_factory=set)
    traced: set[Place] = field(default_factory=set)

    @property
    def linked(self) -> bool:
        """Whether there is a kernel with a known origin."""
        return any(one.places or one.nodes for view in self.views for one in view.kernels)

    def __str__(self) -> str:
        rows = [f"{len(self.quoted)} lines of source"]
        for view in self.views:
            linked = sum(bool(kernel.nodes or kernel.places) for kernel in view.kernels)
            rows.append(
                f"{view.name}: {len(view.nodes)} nodes, {linked} of {len(view.kernels)} "
                "kernel calls linked"
            )
        return "\n".join(rows)

    def verify(self) -> None:
        """Check that every link leads somewhere.

        Raises:
            ValueError: a kernel names a node that is not there.
        """
        for view in self.views:
            for kernel in view.kernels:
                if any(not 0 <= node < len(view.nodes) for node in kernel.nodes):
                    raise ValueError(f"{view.name}: {kernel.name} names a node that is not there")

    def to_json(self) -> dict[str, Any]:
        """Return plain values; places are positions in `sources`.

        The user's files come first, then those of libraries, then torch's and Python's own; of
        each, the one that most nodes come from. A kernel's nodes are a position in `sets`: the
        thousand calls of a kernel have the same ones.
        """
        nodes = Counter(n.place[0] for view in self.views for n in view.nodes if n.place)
        files = sorted(
            {file for file, _ in self.quoted}, key=lambda file: (owner(file), -nodes[file], file)
        )
        places = sorted(self.quoted, key=lambda place: (files.index(place[0]), place[1]))
        at = {place: number for number, place in enumerate(places)}
        return {
            "files": [[file, owner(file)] for file in files],
            "sources": [[files.index(p[0]), p[1], *self.quoted[p]] for p in places],
            "views": [_view_to_json(view, at) for view in self.views],
        }


def _view_to_json(view: View, at: Mapping[Place, int]) -> dict[str, Any]:
    sets: dict[tuple[int, ...], int] = {}
    kernels = [
        [
            kernel.name,
            kernel.lines,
            [at[place] for place in kernel.places],
            sets.setdefault(tuple(kernel.nodes), len(sets)),
        ]
        for kernel in view.kernels
    ]
    return {
        "name": view.name,
        "graph": view.graph,
        "code": view.code,
        "nodes": [[n.line, at[n.place] if n.place else -1, n.name] for n in view.nodes],
        "sets": list(sets),
        "kernels": kernels,
    }


def owner(file: str) -> int:
    """Return whose file it is. 0: the user's; 1: a library's; 2: torch's or Python's own."""
    return bool(LIBRARY.search(file)) + bool(FRAMEWORK.search(file))


def code_map(session: Session, compiled: Compile) -> CodeMap:
    """Return what links source, graphs and kernels of a compile."""
    made = CodeMap()
    last = max((one.attempt for one in compiled.artifacts), default=0)
    mine = [one for one in compiled.artifacts if one.attempt == last]
    codes = [one for one in mine if one.name == _CODE]
    post = [one for one in mine if one.name in _POST]
    aten = [one for one in mine if one.name in _ATEN]
    captured = [one for one in mine if one.name == "dynamo_output_graph"]
    sources = _nodes(session.text(captured[-1]), made) if captured else []
    made.captured = sources
    for one in mine:
        if one.name == _TEXT:
            _quote_source(session.text(one), made)
    names = distinct([_name(aten, number, len(codes)) for number in range(len(codes))])
    for number, code in enumerate(codes):
        graphs = post if len(post) >= len(codes) else aten if len(aten) >= len(codes) else captured
        if number >= len(graphs):
            continue
        graph = graphs[number]
        until = codes[number + 1].number if number + 1 < len(codes) else len(compiled.artifacts)
        facts = _facts(session, [one for one in mine if code.number < one.number < until])
        nodes = _nodes(session.text(graph), made)
        kernels = _kernels(session.text(code), nodes, sources, facts, made)
        made.views.append(View(names[number], graph.number, code.number, nodes, kernels))
    return made


def _name(aten: Sequence[Artifact], number: int, many: int) -> str:
    if len(aten) == many:
        return aten[number].name.removeprefix("aot_").removesuffix("_graph")
    return "graph" if many == 1 else f"graph {number + 1}"


def _facts(session: Session, artifacts: Iterable[Artifact]) -> dict[str, Mapping[str, Any]]:
    """PyTorch's own maps, where it was asked to record them (INDUCTOR_PROVENANCE=1)."""
    facts: dict[str, Mapping[str, Any]] = {"nodes": {}, "stacks": {}}
    for one in artifacts:
        if one.name not in (_MAPS, _STACKS):
            continue
        try:
            data = parse_json(session.text(one))
        except ValueError:
            continue
        if one.name == _MAPS and isinstance(data, dict):
            found = data.get("cppCodeToPost")
            facts["nodes"] = found if isinstance(found, dict) else {}
        elif isinstance(data, dict):
            facts["stacks"] = data
    return facts


def _nodes(text: str, made: CodeMap) -> list[Node]:
    """Read the nodes of a printed graph, each with the place its comment names."""
    nodes: list[Node] = []
    place: Place | None = None
    for number, row in enumerate(text.split("\n")):
        comment = _FILE.search(row)
        if _NO_STACK.search(row):
            place = None
        if comment:
            place = comment["file"], int(comment["line"])
            _quote(made, place, comment["code"], comment["fn"])
            continue
        match = _NODE.match(row)
        if match is None:
            continue
        behind = _AT_END.search(row)
        if behind:
            place = behind["file"].strip(), int(behind["line"])
            _quote(made, place, "", behind["fn"])
        elif not row.startswith("    "):  # tc's form names a place in each row, or has none
            place = None
        nodes.append(Node(number, match["name"], match["op"], place))
    return nodes


def _quote(made: CodeMap, place: Place, code: str | None, function: str | None) -> None:
    old = made.quoted.get(place, ("", ""))
    made.quoted[place] = (old[0] or (code or "").rstrip(), old[1] or (function or ""))


def _quote_source(text: str, made: CodeMap) -> None:
    """Take the user's functions that a compile went through, line by line."""
    try:
        functions = parse_json(text)["functions"]
        for one in sorted(functions, key=lambda one: whole(one["line"])):  # inner ones last
            file, first, name = str(one["file"]), whole(one["line"]), str(one["function"])
            for number, row in enumerate(str(one["text"]).rstrip("\n").split("\n")):
                made.quoted[file, first + number] = (row.rstrip(), name)
            made.coded.update((file, int(line)) for line in one["lines"])
            made.traced.update((file, int(line)) for line in one["traced"])
    except (ValueError, TypeError, KeyError):
        return


def source_lines(text: str) -> dict[Place, tuple[str, str]]:
    """Return (text, function) of the lines in a record of the functions a compile went through."""
    found = CodeMap()
    _quote_source(text, found)
    return {place: row for place, row in found.quoted.items() if row[0]}


@dataclass(slots=True)
class _Above:
    """What the comments above a row say of it."""

    start: int
    key: str = ""
    names: list[str] = field(default_factory=list)
    ops: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)


def _kernels(
    text: str,
    nodes: Sequence[Node],
    sources: Sequence[Node],
    facts: Mapping[str, Mapping[str, Any]],
    made: CodeMap,
) -> list[Kernel]:
    rows = text.split("\n")
    defined, comments = _definitions(rows, made)
    links = _Links(
        nodes,
        {node.name: number for number, node in enumerate(nodes)},
        {node.name: node.place for node in sources},
        facts,
        made,
    )
    kernels: list[Kernel] = []
    asked: list[_Above] = []
    above: _Above | None = None
    called = set()
    inside = {n for start, stop in defined.values() for n in range(start, stop + 1)}
    for number, row in enumerate(rows):
        if number in inside:
            above = None
            continue
        if _read_comment(row, made, above := above or _Above(number)):
            continue
        match = _CALL.match(row)
        name = match["name"].removesuffix(".run") if match else ""
        says = above if above.key or above.ops or above.nodes else None
        if match and (name in defined or (says and number - says.start <= _LEAST)):
            start = says.start if says else number
            lines = [(start, number), *([defined[name]] if name in defined else [])]
            called.add(name)
            mine = comments.get(name) or _Above(number)
            kernels.append(links.kernel(name, lines, says or mine, mine))
            asked.append(says or mine)
        above = None
    for name in sorted(defined.keys() - called):
        mine = comments[name]
        kernels.append(links.kernel(name, [defined[name]], mine, mine))
        asked.append(mine)
    _infer(kernels, asked, nodes)
    return kernels


def _definitions(
    rows: Sequence[str], made: CodeMap
) -> tuple[dict[str, tuple[int, int]], dict[str, _Above]]:
    """Find where each kernel is defined, the comments above it included."""
    found: dict[str, tuple[int, int]] = {}
    comments: dict[str, _Above] = {}
    above: _Above | None = None
    name, closing = "", ""
    for number, row in enumerate(rows):
        if name:
            if row.startswith(closing):
                found[name] = (found[name][0], number)
                name = ""
            continue
        if _read_comment(row, made, above := above or _Above(number)):
            continue
        python, c = _DEFINED.match(row), _VOID.match(row)
        match = python or c
        if match:
            name = match["name"]
            closing = "'''" if python else "}"
            found[name] = (above.start, number)
            comments[name] = above
        above = None
    return found, comments


def _read_comment(row: str, made: CodeMap, above: _Above) -> bool:
    """Take what a comment says; False if the row is no comment that says anything."""
    if row.lstrip()[:1] not in ("#", "/"):
        return False
    if match := _HANDLE.match(row):
        above.key = match["keys"].split(",")[0].strip()
    elif match := _SOURCES.match(row):
        above.names = [name.strip() for name in match["nodes"].split(",") if name.strip()]
        above.ops = [op.strip() for op in match["ops"].split(",") if op.strip()]
    elif match := _TC_COMMENT.match(row):
        place = match["file"], int(match["line"])
        _quote(made, place, "", match["fn"])
        above.places.append(place)
        above.nodes.append(match["node"])
    else:
        return False
    return True


@dataclass(slots=True)
class _Links:
    """What kernels are joined with: the nodes of their graph, those captured, PyTorch's maps.

    Attributes:
        numbers: name of a node -> its position.
        sources: name of a captured node -> the user's line it comes from.
    """

    nodes: Sequence[Node]
    numbers: Mapping[str, int]
    sources: Mapping[str, Place | None]
    facts: Mapping[str, Mapping[str, Any]]
    made: CodeMap

    def kernel(
        self, name: str, lines: list[tuple[int, int]], says: _Above, defined: _Above
    ) -> Kernel:
        """Join a kernel with nodes and places: by PyTorch's maps, else by what comments say."""
        listed = self.facts["nodes"].get(says.key) if says.key else None
        names = {str(one) for one in listed} if isinstance(listed, list) else set()
        names.update(says.nodes or defined.nodes)
        places = list(dict.fromkeys((*says.places, *defined.places)))
        stacks = self.facts["stacks"].get(says.key) if says.key else None
        for stack in stacks if isinstance(stacks, list) else ():
            frames = list(_STACK.finditer(str(stack)))
            if frames:
                inner = frames[-1]
                place = inner["file"], int(inner["line"])
                _quote(self.made, place, inner["code"].strip(), inner["fn"])
                places.append(place)
        if not places:
            places = [at for one in says.names if (at := self.sources.get(one))]
        wanted = sorted(self.numbers[one] for one in names if one in self.numbers)
        places += [at for n in wanted if (at := self.nodes[n].place)]
        return Kernel(name, lines, list(dict.fromkeys(places)), wanted)


def _infer(kernels: Sequence[Kernel], asked: Sequence[_Above], nodes: Sequence[Node]) -> None:
    """Give kernels that nothing names nodes for the nodes that fit and that no other kernel has.

    Ready-made operators run in the order of their nodes, so the first that is free is meant.
    """
    taken = {node for kernel in kernels for node in kernel.nodes}
    pairs = [pair for pair in zip(kernels, asked, strict=True) if not pair[0].nodes]
    for kernel, says in pairs:
        if len(kernel.lines) == 1 and says.ops:
            fitting = (
                number
                for number, node in enumerate(nodes)
                if number not in taken
                and _is(node.op, says.ops[-1])
                and (not kernel.places or node.place in kernel.places)
            )
            kernel.nodes = list(islice(fitting, 1))
            taken.update(kernel.nodes)
    written = [kernel for kernel, _ in pairs if len(kernel.lines) > 1]
    for kernel in written:
        free = [n for n in range(len(nodes)) if n not in taken and _may_be_fused(nodes[n])]
        if kernel.places:
            kernel.nodes = [n for n in free if nodes[n].place in kernel.places]
        elif len(written) == 1:
            kernel.nodes = free
        else:
            words = kernel.name.split("_")
            kernel.nodes = [n for n in free if _base(nodes[n].op) in words]
        taken.update(kernel.nodes)
    for kernel in kernels:
        found = [place for n in kernel.nodes if (place := nodes[n].place)]
        kernel.places = list(dict.fromkeys((*kernel.places, *found)))


def _may_be_fused(node: Node) -> bool:
    """Whether a node computes something in a loop: no view, no ready-made kernel."""
    return _base(node.op) not in _NEVER_FUSED


def _is(op: str, asked: str) -> bool:
    """Whether `torch.ops.aten.mm.default` is `aten.mm`."""
    plain = op.removeprefix("torch.ops.")
    return plain == asked or plain.startswith(f"{asked}.")


@lru_cache(_REMEMBERED)
def _base(op: str) -> str:
    """`torch.ops.aten.mm.default` -> `mm`."""
    return op.removeprefix("torch.ops.").removeprefix("aten.").partition(".")[0]
