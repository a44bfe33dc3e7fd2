"""One compile goes in; everything it left behind, to read and to search, comes out."""

from __future__ import annotations

import json
from functools import partial
from typing import ClassVar, Final

from tc.trace.commands import command
from tc.trace.compiles import Artifact, Compile
from tc.trace.parsed import parse_json
from tc.tui.facts import Model, size_of
from tc.tui.lines import Line, Row, left, line, right
from tc.tui.views.base import Place, View
from tc.tui.views.functions import compile_words
from tc.tui.widgets.body import Body
from tc.tui.widgets.rows import RowList

_SUFFIX: Final = {"python": ".py", "cpp": ".cpp", "json": ".json"}
_LAID_OUT: Final = 16 << 20  # JSON longer than this is shown as it is


class OneCompile(View):
    """The artifacts of a compile, in order; on the right the one under the cursor."""

    DEFAULT_CSS = """
    OneCompile .list { width: 34%; min-width: 38; max-width: 56; }
    """
    label: ClassVar = "Compile"

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.slug = ""
        self._read: tuple[int, str, int] | None = None

    def make_detail(self) -> RowList:
        return Body(classes="detail")

    @property
    def body(self) -> Body:
        """The right pane."""
        assert isinstance(self.detail, Body)
        return self.detail

    @property
    def compiled(self) -> Compile | None:
        """The compile shown."""
        return self.model.by_slug.get(self.slug)

    def update(self, model: Model) -> None:
        self.model = model
        if self.slug not in model.by_slug:
            self.slug = _first(model)
        self.fill(keep=True)

    def open(self, slug: str, artifact: int = -1) -> bool:
        """Show a compile, and one of its artifacts."""
        if slug not in self.model.by_slug:
            return False
        if slug != self.slug:
            name = self._artifact_name()
            self.slug = slug
            self.fill(keep=False)
            if artifact < 0 and name:  # the same stage as before, to compare
                self._point_at_name(name)
        if artifact >= 0:
            self.point_at(artifact)
        return True

    def step(self, step: int) -> str:
        """Go to the next or previous compile; return its name, or why there is none."""
        slugs = [one.slug for one in self.model.everything]
        if self.slug not in slugs:
            return "there is no compile yet"
        at = slugs.index(self.slug) + step
        if not 0 <= at < len(slugs):
            return "this is the last compile" if step > 0 else "this is the first compile"
        self.open(slugs[at])
        return ""

    def _artifact_name(self) -> str:
        one = self.artifact()
        return one.name if one else ""

    def _point_at_name(self, name: str) -> None:
        compiled = self.compiled
        for one in compiled.artifacts if compiled else ():
            if one.name == name:
                self.point_at(one.number)
                return

    def artifact(self) -> Artifact | None:
        """The artifact under the cursor."""
        compiled, number = self.compiled, self.list.key
        for one in compiled.artifacts if compiled else ():
            if one.number == number:
                return one
        return None

    def rows(self) -> list[Row]:
        compiled = self.compiled
        if compiled is None:
            return []
        several = compiled.attempts > 1
        return [
            Row(
                partial(self._row, one, several),
                one.number,
                f"{one.name} {one.kind} {one.note}",
            )
            for one in compiled.artifacts
        ]

    def _row(self, one: Artifact, several: bool, width: int) -> Line:
        size = size_of(one.size)
        attempt = f" attempt {one.attempt + 1} " if several else ""
        tail = line((attempt, "dim"), (" " + right(size, 7), "dim"), " ")
        head = line((right(str(one.number), 4), "dim"), "  ")
        return head + line((left(one.name, width - head.width - tail.width), "")) + tail

    def title(self) -> tuple[Line, Line]:
        compiled, one = self.compiled, self.artifact()
        if compiled is None:
            return Line(), Line()
        if one is None:
            return line(" ") + compile_words(self.model, compiled), Line()
        lines = f"{len(self.body.text)} lines"
        title = line((one.name, "head"), (f"  {lines} ", "dim"))
        if self.deep:
            return line((f" [{compiled.slug}] ", "title")) + title, line(
                (self.body.found + " ", "mark")
            )
        return line(" ") + compile_words(self.model, compiled), title

    def nothing(self) -> str:
        return "no compile in this trace" if self.compiled is None else "it left nothing behind"

    def count(self) -> str:
        return self.slug if self.model.diagnosis else ""

    def fill_detail(self, *, keep: bool = False) -> None:
        one, diagnosis = self.artifact(), self.model.diagnosis
        if one is None or diagnosis is None:
            self._read = None
            self.body.read("", "text")
            return
        this = (id(diagnosis), self.slug, one.number)
        if this == self._read:
            return
        text, kind = laid_out(diagnosis.session.text(one), one.kind)
        same = self._read is not None and self._read[1:] == this[1:]
        self._read = this
        self.body.read(text, kind, keep=same or keep)

    def place(self) -> Place | None:
        one, diagnosis = self.artifact(), self.model.diagnosis
        if self.deep and one is not None and diagnosis is not None:
            name = f"{self.slug.replace('/', '_').replace(':', '_')}_{one.number}_{one.name}"
            file = name + _SUFFIX.get(one.kind, ".txt")
            return Place(file, self.body.line_here, "\n".join(self.body.text.raw) + "\n")
        compiled = self.compiled
        return Place(*compiled.home) if compiled and compiled.home[0] else None

    def command(self) -> str:
        if self.compiled is None:
            return super().command()
        return str(command("tc-tui", self.trace_name, "--goto", self.slug))

    def copied(self) -> tuple[str, str]:
        one, diagnosis = self.artifact(), self.model.diagnosis
        if one is None or diagnosis is None:
            return "", ""
        return one.name, diagnosis.session.text(one)


def _first(model: Model) -> str:
    """What to show before anything was chosen: the compile that cost most."""
    compiles = model.compiles or model.everything
    return max(compiles, key=lambda one: one.seconds).slug if compiles else ""


def laid_out(text: str, kind: str) -> tuple[str, str]:
    """Lay JSON out, whatever it is called; leave other text alone."""
    if text[:1] not in ("{", "[") or len(text) > _LAID_OUT:
        return text, kind
    try:
        value = parse_json(text)
    except ValueError:
        return text, kind
    return json.dumps(value, indent=2, ensure_ascii=False), "json"
