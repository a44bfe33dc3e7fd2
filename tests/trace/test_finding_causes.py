"""Events of one cause go in: what the finding made of them says, and what it is called."""

from __future__ import annotations

import itertools
from pathlib import Path

from tc_log import Compiler

from tc.trace import events as ev
from tc.trace.findings.matching import Row, match
from tc.trace.findings.model import Finding
from tc.trace.ids import CompileId


def sizes(*values: str, of: str = "x.shape[0]") -> list[ev.Recompile]:
    """Return recompiles of a size that takes these values one after the other."""
    causes = [ev.RecompileCause(of, f"{of} == {old}", old, new, "a size", "", new != "1")
              for old, new in itertools.pairwise(values)]  # fmt: skip
    return [ev.Recompile("f", "m.py", 3, CompileId(0, 0), (one,)) for one in causes]


def findings(folder: Path, *recompiles: ev.Recompile) -> tuple[Finding, ...]:
    folder.mkdir()
    compiler = Compiler(folder).start()
    for number, event in enumerate(recompiles, 1):
        compiler.say(event, number).start(number)
    return tuple(compiler.end().findings)


def test_nothing_to_do_is_said_only_where_it_holds_for_each_recompile(tmp_path: Path) -> None:
    """Of sizes 3, 1 and 3, 5 the first compile is due, and the second can be saved."""
    (due,) = findings(tmp_path / "due", *sizes("3", "1"))
    assert due.fix[0].startswith("nothing to do")
    (both,) = findings(tmp_path / "both", *sizes("3", "1"), *sizes("3", "5"))
    assert both.count == 2
    assert both.fix[0] == "tc.compile(..., dynamic=True) makes all sizes dynamic"


def test_inputs_that_differ_by_a_number_keep_their_names(tmp_path: Path) -> None:
    """What is left after the other was mended is not taken for the other."""
    one, other = (sizes("3", "5", of=f"pair[{n}].shape[0]")[0] for n in range(2))
    before = findings(tmp_path / "before", one, other)
    (left,) = findings(tmp_path / "after", other)
    assert len({found.id for found in (*before, left)}) == 3
    reported = match([Row.of(found) for found in before], [Row.of(left)])
    assert [found.title for found in reported.gone] == ["pair[0].shape[0] changes"]
    assert [old.title for old, _ in reported.same] == [left.title] and not reported.new
