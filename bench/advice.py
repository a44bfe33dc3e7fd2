"""Programs as users write them: what each finding asks for, made, and what happened.

    python bench/advice.py                       all, under both compilers; a table in Markdown
    python bench/advice.py --side tc --keep FOLDER chat_sampler experts
    python bench/advice.py --write               all, and replace the tables of the page
    python bench/advice.py --write chat_sampler  one program, and replace its rows there

The files `advice_*.txt` hold the programs, and behind each the edits that its findings ask for: the
code of a finding, words of its place, title and advice, with ` & ` between them, and texts of the
program that are replaced. Findings that stand one above the other ask for one edit. A program runs
with a trace, and again with each edit. An edit did what its finding says if the finding is
gone, or was met less often, and the program prints the same. Where a compiler computed something
else than Python does before the edit, what it prints with the edit is held against Python's.

Findings of a program that have no edit are listed, too: those that ask for nothing, and those that
nobody has tried. A finding that an edit is for and that is not found is an error. Each run is a
fork of a process that has imported torch and its compiler already; caches are empty.

Exit code 1 if fewer than 95 of 100 edits did what they say, or one could not be made.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import difflib
import importlib
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from findings_programs import HEADER

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "findings-table.md"
MARK: Final = "<!-- table of bench/advice.py -->\n"
NEEDED: Final = 0.95
LIMIT: Final = 300.0
#: codes of findings about one run, or about what its machine did in it: no edit of a program
OF_RUNS: Final = ("TC30", "TC40", "TC31")
#: below the header of a program: nothing is compiled
_AS_PYTHON: Final = "compile = lambda f=None, **k: f if f is not None else lambda g: g\n"
_EDIT: Final = re.compile(r"^==== *(?P<head>[^\n]*)$\n(?P<body>.*?)(?=^====|\Z)", re.M | re.S)
_PAIR: Final = re.compile(r"^<<<<\n(.*?)^----\n(.*?)^>>>>$", re.M | re.S)


@dataclass(frozen=True)
class Edit:
    """What a finding asks for, as a change of the program.

    Attributes:
        code: of the finding; ``words``: of its place, title and advice, the last of the advice.
        sides: the compilers whose findings ask for it.
        pairs: texts and what takes their place.
    """

    code: str
    words: tuple[str, ...]
    sides: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]

    def made(self, text: str) -> str:
        """Return a program with it.

        Raises:
            ValueError: a text is not in the program once.
        """
        for old, new in self.pairs:
            if text.count(old) != 1:
                raise ValueError(f"{old!r} is in the program {text.count(old)} times")
            text = text.replace(old, new)
        return text


@dataclass(frozen=True)
class Program:
    """A program, and the edits that its findings ask for."""

    name: str
    text: str
    sides: tuple[str, ...]
    backend: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class Ran:
    """What a run left."""

    code: int
    output: str
    findings: tuple[Any, ...]
    text: str

    def line_of(self, finding: Any) -> str:
        """Return the line that a finding names, as the program has it."""
        rows = self.text.splitlines()
        at = finding.where.line - 1
        return (finding.where.text or (rows[at] if 0 <= at < len(rows) else "")).strip()


def programs() -> Iterator[Program]:
    """Read the programs: `#### NAME [sides=…] [backend=…]` begins each, `==== CODE | words` edits.

    Raises:
        ValueError: an edit cannot be made to its program.
    """
    files = sorted(Path(__file__).parent.glob("advice_*.txt"))
    whole = "\n".join(one.read_text("utf-8") for one in files)
    for part in whole.split("#### ")[1:]:
        head, _, rest = part.partition("\n")
        name, *words = head.split()
        said = dict(word.split("=") for word in words)
        sides = tuple(said.get("sides", "torch,tc").split(","))
        text, mark, edits = rest.partition("====")
        found = tuple(_edits(mark + edits, sides))
        text = HEADER + text
        for edit in found:
            edit.made(text)
        yield Program(name, text, sides, said.get("backend", ""), found)


def _edits(text: str, sides: tuple[str, ...]) -> Iterator[Edit]:
    heads = []
    for match in _EDIT.finditer(text):
        code, _, words = (one.strip() for one in match["head"].partition("|"))
        heads.append((code.split(), tuple(one.strip() for one in words.split("&"))))
        pairs = tuple((a.rstrip("\n"), b.rstrip("\n")) for a, b in _PAIR.findall(match["body"]))
        if pairs:
            for (code, *only), words in heads:
                yield Edit(code, words, tuple(only) or sides, pairs)
            heads.clear()


def run(program: Program, text: str, side: str, folder: Path) -> Ran:
    """Run the text of a program under a compiler, with a trace, in a folder of its own."""
    code = _run(program, text, side, folder)
    from tc.trace.findings import diagnose
    from tc.trace.session import load

    output = (folder / "output.txt").read_text("utf-8", "replace")
    found = diagnose(load(str(folder / "trace"))).findings
    return Ran(code, output, tuple(found), text)


def _run(program: Program, text: str, side: str, folder: Path) -> int:
    """Run the text of a program, and return its exit code."""
    (folder / "trace").mkdir(parents=True)
    (folder / f"{program.name}.py").write_text(text)
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        _child(program, side, folder)
    return _waited(child)


def _waited(child: int) -> int:
    """Return the exit code of a child, which is ended with its children if it takes too long."""
    ends = time.monotonic() + LIMIT
    try:
        while time.monotonic() < ends:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.05)
        return -signal.SIGKILL
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):  # all of it has ended
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _child(program: Program, side: str, folder: Path) -> None:
    """Run the program in this process, and end it."""
    for stream, name in ((1, "output.txt"), (2, "errors.txt")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT, 0o644), stream)
    backend = program.backend or {"torch": "eager", "tc": "tc"}[side]
    os.environ.update(
        FINDINGS_SIDE=side, FINDINGS_BACKEND=backend, TC_CACHE_DIR=str(folder / "cache"),
        TORCHINDUCTOR_CACHE_DIR=str(folder / "inductor"),
    )  # fmt: skip
    if side == "torch":
        os.environ["TORCH_TRACE"] = str(folder / "trace")
        import torch._logging._internal as logging

        logging.LOG_TRACE_HANDLER = None  # that of the process this one is a fork of
        logging._init_logs()
    else:
        from tc.trace import add_sink
        from tc.trace.writer import TraceWriter

        add_sink(TraceWriter(str(folder / "trace")))
    script, code = folder / f"{program.name}.py", 0
    os.chdir(folder)
    try:
        main = sys.modules["__main__"] = ModuleType("__main__")  # as compilers look it up
        main.__file__ = str(script)
        exec(compile(script.read_text(), str(script), "exec"), vars(main))
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


def _asks(finding: Any, edit: Edit) -> bool:
    said = " ".join((finding.where.short, finding.title, *finding.fix))
    return finding.code == edit.code and all(one in said for one in edit.words)


def judged(program: Program, side: str, folder: Path) -> Iterator[tuple[str, str, str, str]]:
    """Run a program and each of its edits; yield place, finding, edit, and what happened."""
    before = run(program, program.text, side, folder / "before")
    asked: list[str] = []
    runs: dict[str, Ran] = {}

    @cache
    def plain() -> str:
        text = program.text.replace(HEADER, HEADER + _AS_PYTHON)
        _run(program, text, side, folder / "plain")
        return (folder / "plain" / "output.txt").read_text("utf-8", "replace")

    for edit in (edit for edit in program.edits if side in edit.sides):
        asking = [one for one in before.findings if _asks(one, edit)]
        if not asking:
            yield "", f"{edit.code} {' & '.join(edit.words)}", "", "ERROR: no such finding"
            continue
        found = next((one for one in asking if one.id not in asked), asking[0])
        asked.append(found.id)
        text = edit.made(program.text)
        if text not in runs:
            runs[text] = run(program, text, side, folder / f"edit{len(runs)}")
        after = runs[text]
        happened = _happened(
            found, before, after, {line.strip() for line in program.text.splitlines()}, plain
        )
        advice = next((one for one in found.fix if edit.words[-1] in one), found.fix[0])
        edited = f"{advice}<br>{_diff(edit)}"
        yield found.where.short, f"{found.code} {found.title}", edited, happened
    for one in before.findings:
        if one.id not in asked:
            nothing = not one.fix or one.fix[0].startswith("nothing to do")
            of_run = one.code.startswith(OF_RUNS)
            why = "asks for nothing" if nothing else "about the run" if of_run else "not tried"
            yield one.where.short, f"{one.code} {one.title}", "; ".join(one.fix[:1]), why


def _happened(found: Any, before: Ran, after: Ran, kept: set[str], plain: Callable[[], str]) -> str:
    """Return what became of a finding; one at another line that was there before is another one.

    Args:
        plain: gives what the program prints if nothing is compiled.
    """
    from tc.tlparse.outputs import difference, same

    here = before.line_of(found)
    left = [one for one in after.findings if (one.code, one.reason) == (found.code, found.reason)
            and one.where.function == found.where.function
            and ((line := after.line_of(one)) in ("", here) or line not in kept)]  # fmt: skip
    count = sum(one.count for one in left)
    if after.code and not before.code:
        return f"FAILED: exit code {after.code}"
    differs = not before.code and not same(before.output, after.output)
    if differs and not same(plain(), after.output):
        return f"DIFFERS: {difference(before.output, after.output)}"
    if count >= found.count:
        return f"NO HELP: still met {count} times"
    new = {one.code for one in after.findings} - {one.code for one in before.findings}
    new = {code for code in new if not code.startswith(OF_RUNS)}
    also = f", but {', '.join(sorted(new))} is new" if new else ""
    also += ", and the results are those of Python, which they were not" if differs else ""
    return f"gone{also}" if not count else f"{found.count} → {count}{also}"


def _diff(edit: Edit) -> str:
    rows = []
    for old, new in edit.pairs:
        for row in difflib.ndiff(old.splitlines(), new.splitlines()):
            if row[0] in "+-":
                rows.append(f"`{row[0]} {row[2:].strip()}`")
    return "<br>".join(rows)


def _serve(chosen: Sequence[Program], side: str, place: Path) -> Iterator[tuple[str, ...]]:
    """Judge the programs of a side, with all that they import available."""
    import torch

    torch.set_num_threads(1)
    torch.compiler.reset()  # loads its compiler, which fake tensors of both need
    importlib.import_module("tc.compiler.api")
    for program in chosen:
        if side in program.sides:
            for row in judged(program, side, place / side / program.name):
                yield program.name, side, *row


def was_tried(row: Sequence[str]) -> bool:
    """Whether an edit was made for the finding of a row, or should have been."""
    return "<br>" in row[4] or row[5].startswith("ERROR")


def did_it(row: Sequence[str]) -> bool:
    """Whether the edit of a row did what its finding says."""
    return _is_good(row[5])


def _is_good(outcome: str) -> bool:
    return outcome.startswith("gone") or " → " in outcome


def _cell(text: str) -> str:
    """Return a text as a cell of a table; what is in brackets is no link there."""
    return text.replace("|", "\\|").replace("[", "\\[")


_CELLS: Final = re.compile(r"(?<!\\)\|")
_COUNTED: Final = ("asks for nothing", "about the run", "not tried")


def table(
    rows: Sequence[Sequence[str]], ran: Sequence[tuple[str, str]], page: str, order: Sequence[str]
) -> str:
    """Return the tables of the page: totals, the edits that were made, findings without one.

    Args:
        ran: programs and compilers that ran now, of which some have no finding.
        page: has the rows of the others.
        order: names of all programs.
    """
    edits: list[tuple[str, ...]] = [
        (program, side, f"{where}: {finding}", edit.partition("<br>")[0], happened)
        for program, side, where, finding, edit, happened in rows
        if happened not in _COUNTED
    ]
    without: list[tuple[str, ...]] = []
    for of in ran:
        outcomes = [row[5] for row in rows if (row[0], row[1]) == of]
        counts = (sum(map(outcomes.count, words)) for words in (_COUNTED[:2], _COUNTED[2:]))
        without.append((*of, *map(str, counts)))
    kept = [cells for cells in _rows_of(page) if (cells[0], cells[1]) not in ran]
    edits, without = (
        sorted(
            [cells for cells in kept if len(cells) == width]
            + [tuple(map(_cell, cells)) for cells in new],
            key=lambda cells: (cells[1] == "tc", order.index(cells[0])),
        )
        for width, new in ((5, edits), (4, without))
    )
    heads = (
        ("compiler", "programs", "findings with an edit that was made", "edits",
         "did what they say", "no help", "failed, or other results",
         "findings that ask for nothing", "not tried"),
        ("program", "compiler", "finding", "the edit it asks for", "what happened"),
        ("program", "compiler", "findings that ask for nothing", "not tried"),
    )  # fmt: skip
    totals = [_totals(side, edits, without) for side in ("torch", "tc")]
    bodies: list[list[tuple[str, ...]]] = [totals, edits, without]
    lines = [""]
    for head, body in zip(heads, bodies, strict=True):
        lines += [
            " | ".join(("", *cells, "")).strip() for cells in (head, ["---"] * len(head), *body)
        ]
        lines.append("")
    return "\n".join(lines)


def _rows_of(page: str) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a page's tables about a program under a compiler, as the page has them."""
    for line in page.splitlines():
        cells = tuple(cell.strip() for cell in _CELLS.split(line)[1:-1])
        if len(cells) > 1 and cells[1] in ("torch", "tc"):
            yield cells


def _totals(
    side: str, edits: Sequence[tuple[str, ...]], without: Sequence[tuple[str, ...]]
) -> tuple[str, ...]:
    """Return the row of a compiler in the table of totals."""
    mine = [cells for cells in edits if cells[1] == side]
    rest = [cells for cells in without if cells[1] == side]
    outcomes = [cells[-1] for cells in mine]
    counts = (
        len({cells[0] for cells in (*mine, *rest)}),
        len({(cells[0], cells[2]) for cells in mine}),
        len(mine),
        sum(map(_is_good, outcomes)),
        sum(one.startswith("NO HELP") for one in outcomes),
        sum(one.startswith(("FAILED", "DIFFERS", "ERROR")) for one in outcomes),
        *(sum(int(cells[at]) for cells in rest) for at in (2, 3)),
    )
    return f"`{side}.compile`", *map(str, counts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="programs (all)")
    parser.add_argument("--side", choices=("torch", "tc"), help="one compiler (both)")
    parser.add_argument("--keep", help="leave programs and traces in this new folder")
    parser.add_argument(
        "--write",
        action="store_true",
        help=f"replace the rows of these programs in {PAGE.name}",
    )
    options = parser.parse_args()
    known = list(programs())
    chosen = [one for one in known if not options.names or one.name in options.names]
    rows: list[tuple[str, ...]] = []
    print("| program | compiler | where | finding | the edit it asks for | what happened |")
    print("| --- | --- | --- | --- | --- | --- |")
    # No TemporaryDirectory: each child that ends would remove it.
    place = Path(options.keep or tempfile.mkdtemp(prefix="tc-advice-"))
    try:
        for side in ("torch", "tc"):
            if options.side in (None, side):
                for row in _serve(chosen, side, place):
                    print("| " + " | ".join(map(_cell, row)) + " |", flush=True)
                    rows.append(row)
    finally:
        if not options.keep:
            shutil.rmtree(place, ignore_errors=True)
    tried = [row for row in rows if was_tried(row)]
    share = sum(map(did_it, tried)) / max(len(tried), 1)
    print(f"\n{sum(map(did_it, tried))} of {len(tried)} edits did what they say ({share:.0%})")
    if options.write:
        head, _, page = PAGE.read_text("utf-8").partition(MARK)
        order = [one.name for one in known]
        sides = [side for side in ("torch", "tc") if options.side in (None, side)]
        ran = [(one.name, side) for side in sides for one in chosen if side in one.sides]
        PAGE.write_text(head + MARK + table(rows, ran, page, order), "utf-8")
    sys.exit(share < NEEDED)


if __name__ == "__main__":
    main()
