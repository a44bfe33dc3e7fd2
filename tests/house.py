"""The rules of the codebase as functions: parsed files in, violations out.

`tests/test_house.py` runs them over the tree, and over small planted faults.
"""

from __future__ import annotations

import ast
import itertools
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

PACKAGES = ("compiler", "trace", "tlparse", "minifier", "tui")
FILE_LINES = 600
FUNCTION_LINES = 60
NESTING = 5

# Who may import whom.  The longest prefix that fits a module gives its row; a row names what the
# module may import of tc besides its own package.  `*` is all of the compiler.
CORE = ("tc.compiler.core", "tc.compiler.options", "tc.compiler.errors", "tc.trace")
LOOP_IR = tuple(f"tc.compiler.loops.{name}" for name in ("ir", "expr", "index", "ops", "scans"))
# What users set on their own functions and tensors, read by capture: disable, mark_dynamic, ...
MARKS = tuple(
    f"tc.compiler.capture.{name}"
    for name in (
        "dynamism", "guards.filter", "hook", "skips", "torch_api.annotated",
        "torch_api.opaque_call", "torch_api.torch_functions", "traceable",
    )
)  # fmt: skip
# The programming model: what users call besides `compile`.
MODEL = ("tc.compiler.frontend",)
LAYERS: dict[str, tuple[str, ...]] = {
    "tc": (
        "tc.compiler.core.garbage",
        "tc.compiler.api",
        "tc.compiler.ahead",
        "tc.compiler.errors",
        "tc.trace",
    ),
    "tc.trace": (),
    "tc.tlparse": ("tc.trace",),
    "tc.tui": ("tc.trace",),
    # Both distinguish an error from rounding by one rule.
    "tc.minifier": ("tc", "tc.trace", "tc.compiler.api", "tc.compiler.sentinel.rounding"),
    "tc.compiler": (),
    "tc.compiler.core": CORE,
    "tc.compiler.options": CORE,
    "tc.compiler.errors": CORE,
    "tc.compiler.capture": CORE,
    "tc.compiler.aot": CORE,
    "tc.compiler.freezing": (*CORE, "tc.compiler.capture"),
    "tc.compiler.names": CORE,
    "tc.compiler.sentinel": (
        *CORE,
        "tc.compiler.capture.hook",
        "tc.compiler.process",
        "tc.compiler.runtime.store",
        "tc.compiler.sentinel.rounding",
    ),
    "tc.compiler.sentinel.rounding": (),
    "tc.compiler.sentinel.torch_backend": (
        *CORE,
        "tc.compiler.backends.verify",
        "tc.compiler.capture.hook",
        "tc.compiler.sentinel",
    ),
    "tc.compiler.ranks": CORE,
    "tc.compiler.backends.cut": (
        *CORE,
        "tc.compiler.aot_dispatch",
        "tc.compiler.cache.graph_key",
        "tc.compiler.capture",
    ),
    "tc.compiler.process": (*CORE, "tc.compiler.names"),
    # What loops can read, and the routines of tc.
    "tc.compiler.library": (*CORE, "tc.compiler.loops", "tc.compiler.routines"),
    "tc.compiler.loops": (*CORE, "tc.compiler.routines"),
    "tc.compiler.schedule": (*CORE, *LOOP_IR),
    "tc.compiler.schedule.interpret": (
        *CORE,
        *LOOP_IR,
        "tc.compiler.loops.interpret",
        "tc.compiler.schedule.plan",
    ),
    "tc.compiler.codegen": (
        *CORE,
        *LOOP_IR,
        "tc.compiler.schedule.costs",
        "tc.compiler.schedule.plan",
        "tc.compiler.schedule.versions",
        "tc.compiler.routines",
    ),
    "tc.compiler.runtime": (*CORE, "tc.compiler.routines"),  # wrappers call them
    "tc.compiler.routines": (*CORE, "tc.compiler.runtime"),  # it builds their C
    # These two know all stages, and the interpreters of their artifacts.
    "tc.compiler.pipeline": ("tc.compiler", "tc.trace"),
    "tc.compiler.frames": ("tc.compiler", "tc.trace"),
    "tc.compiler.replay": (
        *CORE,
        *LOOP_IR,
        "tc.compiler.codegen",
        "tc.compiler.loops.interpret",
        "tc.compiler.runtime",
        "tc.compiler.schedule",
        "tc.compiler.sentinel.rounding",  # distinguishes an error of a kernel from rounding
    ),
    "tc.compiler.aot_dispatch": (
        *CORE,
        "tc.compiler.aot",
        "tc.compiler.cache",
        "tc.compiler.capture",
        "tc.compiler.deferred",
    ),
    "tc.compiler.backends": (*CORE, "tc.compiler.aot_dispatch", "tc.compiler.capture.hook"),
    "tc.compiler.backends.builtin": (*CORE, "tc.compiler.backends", "tc.compiler.pipeline"),
    # The second way in: PyTorch captures, and calls this in place of `frames`.
    "tc.compiler.backends.torch_compile": (
        *CORE,
        "tc.compiler.aot_dispatch",
        "tc.compiler.backends",
        "tc.compiler.capture.torch_api.modes",
        "tc.compiler.pipeline",
        "tc.compiler.process",
        "tc.compiler.ranks",
        "tc.compiler.telemetry",
    ),
    "tc.compiler.devices": (*CORE, "tc.compiler.runtime.triton"),
    "tc.compiler.cache": (
        *CORE,
        "tc.compiler.aot",
        "tc.compiler.capture.hook",
        "tc.compiler.runtime",
        "tc.compiler.telemetry.profile",
    ),
    "tc.compiler.deferred": (*CORE, "tc.compiler.capture.hook", "tc.compiler.telemetry.reporter"),
    # It reports what all of them do.
    "tc.compiler.telemetry": (*CORE, "tc.compiler.capture", "tc.compiler.runtime.tuned"),
    "tc.compiler.frontend": (*CORE, *MARKS, "tc.compiler.frames", "tc.compiler.process"),
    "tc.compiler.api": (
        *CORE,
        *MARKS,
        *MODEL,
        "tc.compiler.backends",
        "tc.compiler.frames",
        "tc.compiler.pipeline",
        "tc.compiler.process",
        "tc.compiler.cache.saving",
        "tc.compiler.capture.specified",
        "tc.compiler.ranks",
        "tc.compiler.sentinel",
        "tc.compiler.telemetry",
    ),
    # It calls what users call, and asks capture alone.
    "tc.compiler.ahead": (
        "tc",
        *CORE,
        *MARKS,
        *MODEL,
        "tc.compiler.api",
        "tc.compiler.backends.registry",
        "tc.compiler.capture",
        "tc.compiler.deferred",
        "tc.compiler.frames",
        "tc.compiler.process",
        "tc.compiler.runtime.store",
        "tc.compiler.sentinel",
    ),
    "tc.compiler.frontend.background": (
        *CORE,
        "tc.compiler.cache.graph_key",
        "tc.compiler.capture.hook",
        "tc.compiler.deferred",
        "tc.compiler.telemetry.reporter",
    ),
}
# Methods of strings and of `re` that change text or take it apart.
EDITING = frozenset((
    *("replace", "split", "rsplit", "splitlines", "strip", "lstrip", "rstrip", "partition"),
    *("rpartition", "removeprefix", "removesuffix", "translate", "sub", "subn"),
))  # fmt: skip
# Functions that make a tensor on the user's default device where no other is named.
FACTORIES = frozenset(f"torch.{name}" for name in (
    *("empty", "empty_permuted", "empty_strided", "empty_quantized", "zeros", "ones", "full"),
    *("tensor", "as_tensor", "asarray", "scalar_tensor", "nested_tensor", "arange", "range"),
    *("linspace", "logspace", "eye", "tril_indices", "triu_indices", "rand", "randn", "randint"),
    *("randperm", "bartlett_window", "blackman_window", "hamming_window", "hann_window"),
    *("kaiser_window", "fft.fftfreq", "fft.rfftfreq", "sparse_compressed_tensor"),
    *(f"sparse_{kind}_tensor" for kind in ("coo", "csr", "csc", "bsr", "bsc")),
))  # fmt: skip
# A C function whose body opens: type, name, parameters.
C_FUNCTION = re.compile(r"^[ \t]*\w[\w\s*]*[\s*]\w+\s*\([^;{}]*\)\s*\{", re.M)
STAGES = ("capture", "aot", "library", "loops", "schedule", "codegen", "runtime")
# What `tc` replaces, and what the viewers must start without.
REPLACED = (
    "torch._dynamo",
    "torch._inductor",
    "torch._functorch.aot_autograd",
    "torch._functorch.partitioners",
)
FACTORIES_LAST = {name.rpartition(".")[2] for name in FACTORIES}
REPLACED_LAST = {name.rpartition(".")[2] for name in REPLACED}
NO_TORCH = ("tc.trace", "tc.tlparse", "tc.tui")
IMPORTERS = {"import_module", "__import__", "find_spec", "resolve_name", "run_module"}


@dataclass(frozen=True)
class Violation:
    """One broken rule at one place."""

    file: str
    line: int
    rule: str
    detail: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}: {self.detail}"


@dataclass(frozen=True)
class Import:
    """One import of a file: the dotted target, and whether it runs (not only for type checkers)."""

    target: str
    line: int
    runs: bool = True
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class File:
    """One parsed Python file."""

    path: str
    module: str
    text: str
    tree: ast.Module = field(repr=False, compare=False)

    @classmethod
    def of(cls, path: str, text: str) -> File:
        """Parse a file; ``path`` is relative to the root."""
        parts = Path(path).with_suffix("").parts
        if parts[0] in PACKAGES:
            parts = ("tc", *parts)
        if parts[-1] == "__init__":
            parts = parts[:-1]
        return cls(path, ".".join(parts), text, ast.parse(text, path))

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of the tree."""
        return tuple(ast.walk(self.tree))

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        """All imports, those inside functions and those by name string included."""
        return tuple(self._imports())

    def _imports(self) -> Iterator[Import]:
        guarded = {
            id(child)
            for node in (self.nodes if "TYPE_CHECKING" in self.text else ())
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
            for statement in node.body
            for child in ast.walk(statement)
        }
        for node in self.nodes:
            runs = id(node) not in guarded
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(alias.name, node.lineno, runs)
            elif isinstance(node, ast.ImportFrom):
                names = tuple(alias.name for alias in node.names)
                yield Import(_target(self, node), node.lineno, runs, names)
            elif isinstance(node, ast.Call) and _called(node) in IMPORTERS:
                for text in _strings(node):
                    yield Import(text, node.lineno, runs)


def _target(file: File, node: ast.ImportFrom) -> str:
    """The dotted name after ``from``; a relative one is resolved, so that no dot hides a break."""
    if not node.level:
        return node.module or ""
    package = file.module if file.path.endswith("__init__.py") else file.module.rpartition(".")[0]
    for _ in range(node.level - 1):
        package = package.rpartition(".")[0]
    return f"{package}.{node.module}" if node.module else package


def _called(node: ast.Call) -> str:
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _strings(node: ast.Call) -> Iterator[str]:
    """The text of a call's arguments, in f-strings and sums too."""
    for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
        for part in ast.walk(argument):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.value


def within(name: str, prefix: str) -> bool:
    """Whether a dotted name is the prefix or lies below it."""
    return name == prefix or name.startswith(prefix + ".")


def row(module: str) -> str:
    """The row of the layer table that holds for a module."""
    return max((name for name in LAYERS if within(module, name)), key=len, default="")


def modules_named(found: Import, known: set[str]) -> set[str]:
    """The modules an import names: ``from tc.trace import ids`` names ``tc.trace.ids``."""
    if found.target == "tc" and found.names == ("__version__",):
        return set()  # the one thing of the public face that every package may read
    below = {f"{found.target}.{name}" for name in found.names} & known
    whole = set() if found.names and len(below) == len(found.names) else {found.target}
    return below | whole


def allows(row: str, name: str) -> bool:
    """Whether an entry of the layer table lets a name in; `tc` is the public face alone."""
    return name == row or (row != "tc" and within(name, row))


def layering(files: Iterable[File]) -> Iterator[Violation]:
    """A module imports only what its row of the layer table names."""
    files = list(files)
    known = {file.module for file in files}
    for file in files:
        mine = row(file.module)
        if not mine:
            continue
        for found in file.imports:
            for name in modules_named(found, known) if within(found.target, "tc") else ():
                inside = row(name) == mine
                if not inside and not any(allows(row, name) for row in LAYERS[mine]):
                    detail = f"{file.module} may not import {name} (row {mine!r} of LAYERS)"
                    yield Violation(file.path, found.line, "layering", detail)


def cycles(files: Iterable[File]) -> Iterator[Violation]:
    """No module imports itself through others, at import time or in a function."""
    files = list(files)
    known = {file.module for file in files}
    edges = {
        file.module: {
            name
            for found in file.imports
            if found.runs
            for name in modules_named(found, known) & known - {file.module}
        }
        for file in files
    }
    path_of = {file.module: file.path for file in files}
    for ring in components(edges):
        if len(ring) > 1:
            yield Violation(path_of[ring[0]], 1, "cycle", ", ".join(sorted(ring)))


def components(edges: dict[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of a graph (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in edges[name]:
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = stack.index(name)
            found.append(stack[at:])
            del stack[at:]

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    try:
        for name in edges:
            if name not in index:
                visit(name)
    finally:
        sys.setrecursionlimit(limit)
    return found


def replaced_imports(files: Iterable[File]) -> Iterator[Violation]:
    """Nothing imports, names as attribute of torch, or loads by string what tc replaces."""
    for file in files:
        for found in file.imports:
            names = {found.target, *(f"{found.target}.{name}" for name in found.names)}
            for name in sorted(names):
                if any(within(name, banned) for banned in REPLACED):
                    yield Violation(file.path, found.line, "replaced", f"imports {name}")
        for node in file.nodes:
            if not isinstance(node, ast.Attribute) or node.attr not in REPLACED_LAST:
                continue
            if ast.unparse(node) in REPLACED:
                yield Violation(file.path, node.lineno, "replaced", f"loads {ast.unparse(node)}")


def torch_free(files: Iterable[File]) -> Iterator[Violation]:
    """The viewers and the trace name no torch, not even for type checkers."""
    for file in files:
        if any(within(file.module, package) for package in NO_TORCH):
            for found in file.imports:
                if within(found.target, "torch"):
                    yield Violation(file.path, found.line, "no torch", f"imports {found.target}")


def relative_imports(files: Iterable[File]) -> Iterator[Violation]:
    """Imports are absolute, and name `tc.<package>`, never the folder."""
    for file in files:
        for node in file.nodes:
            if isinstance(node, ast.ImportFrom) and node.level:
                yield Violation(file.path, node.lineno, "absolute imports", "relative import")
        for found in file.imports:
            if found.target.partition(".")[0] in PACKAGES and file.module.startswith("tc"):
                detail = f"import tc.{found.target}, not {found.target}"
                yield Violation(file.path, found.line, "absolute imports", detail)


def docstrings(files: Iterable[File]) -> Iterator[Violation]:
    """Each module opens with what it is."""
    for file in files:
        if file.text.strip() and not ast.get_docstring(file.tree):
            yield Violation(file.path, 1, "module docstring", "missing")


def sizes(files: Iterable[File]) -> Iterator[Violation]:
    """Files, functions and nesting stay small enough to be seen whole."""
    for file in files:
        lines = len(file.text.splitlines())
        if lines > FILE_LINES:
            yield Violation(file.path, 1, f"file of {FILE_LINES} lines", f"has {lines}")
        for function in file.nodes:
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            lines = (function.end_lineno or function.lineno) - function.lineno + 1
            if lines > FUNCTION_LINES:
                rule = f"function of {FUNCTION_LINES} lines"
                yield Violation(file.path, function.lineno, rule, f"{function.name} has {lines}")
            depth = nesting(function.body)
            if depth > NESTING:
                rule = f"nesting of {NESTING}"
                yield Violation(file.path, function.lineno, rule, f"{function.name} has {depth}")


def printed_code(files: Iterable[File]) -> Iterator[Violation]:
    """Code generators print code and never edit it: no methods that change or cut up text."""
    for file in files:
        if not file.path.startswith("compiler/codegen/"):
            continue
        functions = [n for n in file.nodes if isinstance(n, ast.FunctionDef)]
        for node in file.nodes:
            called = node.func if isinstance(node, ast.Call) else None
            if not isinstance(called, ast.Attribute) or called.attr not in EDITING:
                continue
            around = [f for f in functions if f.lineno <= node.lineno <= (f.end_lineno or 0)]
            name = max(around, key=lambda f: f.lineno).name if around else "module"
            detail = f"{name} calls .{called.attr}()"
            yield Violation(file.path, node.lineno, "code is printed, not edited", detail)


def code_by_identity(files: Iterable[File]) -> Iterator[Violation]:
    """Forbid caches and tables in which code objects of two files can be one key.

    Code objects are equal where name, text and first line are, whatever file and globals they have.
    """
    for file in files:
        for node in file.nodes if "CodeType" in file.text else ():
            if isinstance(node, ast.FunctionDef) and node.args.args:
                kind, kept = node.args.args[0].annotation, map(ast.unparse, node.decorator_list)
                is_code = kind is not None and ast.unparse(kind).endswith("CodeType")
                if is_code and any(re.search(r"\b(lru_cache|cache)\b", one) for one in kept):
                    yield Violation(file.path, node.lineno, "code_by_identity", node.name)
            elif isinstance(node, ast.AnnAssign):
                kind = ast.unparse(node.annotation)
                if re.search(r"(dict|Counter|set|KeyDictionary)\[(types\.)?CodeType", kind):
                    yield Violation(file.path, node.lineno, "code_by_identity", kind)


def tensors_name_their_device(files: Iterable[File]) -> Iterator[Violation]:
    """The compiler says where each tensor is made: without, that is up to the user's default.

    It would be the CPU in graphs of a GPU, and the GPU in what is measured or computed on the CPU.
    """
    for file in files:
        if not file.path.startswith("compiler/"):
            continue
        for node in file.nodes:
            if not isinstance(node, ast.Call) or _called(node) not in FACTORIES_LAST:
                continue
            name = ast.unparse(node.func)
            named = any(keyword.arg in ("device", None) for keyword in node.keywords)
            if name in FACTORIES and not named:
                yield Violation(file.path, node.lineno, "tensors name their device", name)


def c_in_c_files(files: Iterable[File]) -> Iterator[Violation]:
    """C functions stand in files of C; no string of the compiler holds the body of one."""
    for file in files:
        if not file.path.startswith("compiler/"):
            continue
        for node in file.nodes:
            if isinstance(node, ast.JoinedStr):
                texts = [v.value if isinstance(v, ast.Constant) else "_" for v in node.values]
                text = "".join(map(str, texts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            else:
                continue
            for found in C_FUNCTION.findall(text):
                yield Violation(file.path, node.lineno, "C stands in C files", found)


COMMAND = re.compile(r"(?<!# )\b(?:tc-(?:report|tui|minify|bisect|precompile)) (?:[\w.<>=-]+ )*$")


def printed_commands(files: Iterable[File]) -> Iterator[Violation]:
    """Commands that are printed are `tc.trace.commands.Command`, which quotes each word."""
    for file in files:
        for node in file.nodes:
            if not isinstance(node, ast.JoinedStr):
                continue
            for before, value in itertools.pairwise(node.values):
                if not isinstance(value, ast.FormattedValue) or not isinstance(
                    before, ast.Constant
                ):
                    continue
                text = ast.unparse(value.value)
                if COMMAND.search(str(before.value)) and not text.endswith("__version__"):
                    yield Violation(file.path, node.lineno, "commands are quoted", text)


def nesting(body: list[ast.stmt]) -> int:
    """How many blocks lie inside each other; ``elif`` is no deeper than its ``if``."""
    return max((_depth(statement) for statement in body), default=0)


def _depth(statement: ast.stmt) -> int:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return 0  # an inner function is counted by itself
    if isinstance(statement, ast.Match):
        return 1 + max(nesting(case.body) for case in statement.cases)
    blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
    blocks += [handler.body for handler in getattr(statement, "handlers", [])]
    if not any(blocks):
        return 0
    otherwise = blocks[1]
    chained = (
        len(otherwise) == 1 and isinstance(statement, ast.If) and isinstance(otherwise[0], ast.If)
    )
    if chained:
        blocks[1] = []
    depth = 1 + max(nesting(block) for block in blocks)
    return max(depth, _depth(otherwise[0])) if chained else depth


# Private words -> the words of the field.  A word that is ordinary English as well stands with
# what makes it private; file.tell(), keys of old reports and values on the wire are left out.
WORDS = {
    r"(?<!\.)tell|(?<!\")told|tells|telling": "emit, record, report, log; distinguish",
    r"ours|our own": "of tc, built-in",
    r"(?<!by the )doors?": "fast path, sink",
    r"(?<!recorded )anew|once more": "again",
    r"(?<!Clamps are )dear(?:er|est)?": "expensive",
    r"(?:go|goes|going|went) on": "continue",
    r"(?:hand|hands|handed) ?_?on": "pass, forward",
    r"(?:stand|stands|stood) for": "represent, replace, placeholder for",
    r"sooner|quicker|quickest|quickly": "earlier, faster",
    r"(?:let|lets) be|let pass": "skip, accept",
    r"births?|born": "creation",
    r"shown out": "removed",
    r"lies? (?:in memory )?(?:row by row|transposed)": "row-major, column-major",
    r"rules of the house": "rules of the codebase",
    r'"""(?:Say|Tell)': "Return, Report",
}
PRIVATE = re.compile(rf"(?<![A-Za-z])(?:{'|'.join(WORDS)})(?![a-z])", re.I)


def vocabulary(texts: Iterable[tuple[str, str]]) -> Iterator[Violation]:
    """Texts use the words of the field; ``texts`` are paths and what the files hold."""
    for path, text in texts:
        for found in PRIVATE.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            use = next(new for old, new in WORDS.items() if re.search(old, found[0], re.I))
            yield Violation(path, line, "plain words", f"{found[0]!r}: {use}")
