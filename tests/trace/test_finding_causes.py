"""Events of one cause go in: what the finding made of them says, and what it is called."""

from __future__ import annotations

import itertools
from pathlib import Path

from tc_log import Compiler

from tc.trace import events as ev
from tc.trace.compiles import Compile, Frame
from tc.trace.findings.apart import has_caller_in, other_than
from tc.trace.findings.changing import at_limit
from tc.trace.findings.matching import Row, match
from tc.trace.findings.model import Cause, Finding, Recompile
from tc.trace.ids import CompileId
from tc.trace.source_events import FunctionLines, SourceLines


def sizes(*values: str, of: str = "x.shape[0]") -> list[ev.Recompile]:
    """Return recompiles of a size that takes these values one after the other."""
    causes = [ev.RecompileCause(of, f"{of} == {old}", old, new, "a size", new != "1")
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


def constant(source: str, *values: str) -> list[ev.Recompile]:
    """Return recompiles of a number that takes these values one after the other."""
    causes = [ev.RecompileCause(source, f"same(L['{source}'], {old})", old, new, "a constant",
                                False) for old, new in itertools.pairwise(values)]  # fmt: skip
    return [ev.Recompile("f", "m.py", 3, CompileId(0, 0), (one,)) for one in causes]


def test_advice_names_a_value_of_the_sort_that_changes(tmp_path: Path) -> None:
    """None at first, then numbers: a tensor is made of a number."""
    found = findings(tmp_path / "log", *constant("chunk", "None", "2", "3"))
    fixes = [fix for one in found for fix in one.fix]
    assert "make chunk a 0-d tensor where it is set: torch.tensor(2)" in fixes
    assert not any("tensor(None)" in fix for fix in fixes)


def test_a_number_that_was_zero_is_not_held_by_the_code(tmp_path: Path) -> None:
    """0 is a constant of a graph; another number that a second compile finds fixed is held."""

    def again(folder: str, *changes: tuple[str, str]) -> str:
        causes = [ev.RecompileCause("seen", "", old, new, "a constant in the graph", True)
                  for old, new in changes]  # fmt: skip
        found = findings(tmp_path / folder, *(ev.Recompile("f", "m.py", 3, CompileId(0, 0), (one,))
                                              for one in causes))  # fmt: skip
        return found[-1].title

    assert again("zero", ("0", "5"), ("0", "6")) == "seen is 0 or 1 on some calls"
    assert again("held", ("1", "2"), ("2", "3")) == "seen is held to one number"


def test_what_is_dynamic_from_now_on_needs_no_edit(tmp_path: Path) -> None:
    """Nothing but an argument is made dynamic by a setting, and one compile is all that it cost."""
    cause = ev.RecompileCause("order[0]", "same(L['order'][0], 2)", "2", "3", "a constant", True)
    (found,) = findings(tmp_path / "log", ev.Recompile("f", "m.py", 3, CompileId(0, 0), (cause,)))
    assert found.fix[0].startswith("nothing to do: it is dynamic") and "at once" not in found.why


def test_dtypes_that_are_a_setting_have_names(tmp_path: Path) -> None:
    cause = ev.RecompileCause("default_dtype", "global_state()", "6", "7", "state of torch")
    (found,) = findings(tmp_path / "log", ev.Recompile("f", "m.py", 3, CompileId(0, 0), (cause,)))
    assert "was float32, then float64" in found.why


def test_equal_causes_are_distinguished_by_the_text_of_their_lines(tmp_path: Path) -> None:
    """By that, not by their order: a line that is added above changes no name."""
    text = "def f(x, n):\n    if n % 2:\n        x = x + 1\n    return x * 2 if n % 3 else x\n"

    def named(first: int) -> dict[str, str]:
        compiler = Compiler(tmp_path / f"{first}").start()
        source = FunctionLines("/home/me/m.py", "f", first, text, (), ())
        compiler.say(SourceLines((source,)))
        for number, (at, of) in enumerate(((1, 2), (3, 3)), 1):
            cause = ev.RecompileCause("n", f"(n % {of}) == 0", "2", "3", "a condition on sizes",
                                      False, "/home/me/m.py", first + at)  # fmt: skip
            event = ev.Recompile("f", "/home/me/m.py", first, CompileId(0, 0), (cause,))
            compiler.say(event, number).start(number)
        return {one.id: one.where.source.strip() for one in compiler.end().findings}

    before, after = named(3), named(13)
    assert before == after
    assert set(before.values()) == {"if n % 2:", "return x * 2 if n % 3 else x"}
    assert not any(name.count(".") > 1 for name in before)


def test_a_mode_that_was_switched_is_one_finding_however_many_callees(tmp_path: Path) -> None:
    """Callees that are compiled by themselves, and functions that continue after a break."""
    switched = ev.RecompileCause("grad_mode", "global_state()", "True", "False", "state of torch")
    compiler = Compiler(tmp_path)
    wrapped = ev.StackFrame("/x/torch/_dynamo/eval_frame.py", 9, "compile_wrapper", "")
    for number, at in enumerate((20, 22)):
        call = ev.StackFrame("/home/me/model.py", at, "<module>", "")
        for frame, name in enumerate(("forward", "inner", "torch_dynamo_resume_in_inner_at_7")):
            if number:
                event = ev.Recompile(name, "/home/me/model.py", 3, CompileId(frame, 0), (switched,))
                compiler.say(event, number, frame)
            own = ev.StackFrame("/home/me/model.py", 3 + frame, name, "")
            compiler.say(ev.FrameStart((call, wrapped, own)), number, frame)
    (found,) = compiler.end().findings
    assert (found.title, found.count) == ("grad_mode was switched", 3)
    assert found.where.short == "model.py:3 in forward"


def test_modes_that_programs_switch_one_after_the_other_are_no_one_call(tmp_path: Path) -> None:
    """One line runs them, and each begins with a reset of the compiler."""
    switched = ev.RecompileCause("grad_mode", "global_state()", "True", "False", "state of torch")
    compiler = Compiler(tmp_path)
    line = ev.StackFrame("/home/me/run.py", 9, "<module>", "")
    for name in ("one", "two"):
        own = ev.StackFrame(f"/home/me/{name}.py", 3, "f", "")
        compiler.say(ev.FrameStart((line, own)), 0, 0)
        event = ev.Recompile("f", f"/home/me/{name}.py", 3, CompileId(0, 0), (switched,))
        compiler.say(event, 1, 0)
        compiler.say(ev.FrameStart((line, own)), 1, 0)
    found = compiler.end().findings
    assert {(one.where.file, one.count) for one in found} == {
        ("/home/me/one.py", 1), ("/home/me/two.py", 1),
    }  # fmt: skip


def test_a_context_of_autograd_is_given_by_its_caller(tmp_path: Path) -> None:
    """`forward` of an autograd.Function is compiled by itself where `apply` runs in Python."""
    compiler = Compiler(tmp_path)
    event = ev.GraphBreak("TC122", "store to ctx.to_save cannot be replayed", "why",
                          "/home/me/m.py", 4, "forward", "", ("return the new value",))  # fmt: skip
    compiler.start().say(event, 0)
    (found,) = compiler.end().findings
    assert found.fix[0].startswith("fix what makes its caller run in Python")


def test_a_line_of_a_callee_is_named_with_the_callee(tmp_path: Path) -> None:
    """It is a part of the compiled function, but not where the line stands."""
    compiler = Compiler(tmp_path).start()
    text = "    def extend(self, x):\n        if 0 in self.store:\n            return x\n"
    source = FunctionLines("/home/me/m.py", "Cache.extend", 30, text, (), ())
    compiler.say(SourceLines((source,)))
    cause = ev.RecompileCause("n", "same(L['n'], 'a')", "'a'", "'b'", "a constant in the graph",
                              False, "/home/me/m.py", 31)  # fmt: skip
    compiler.say(ev.Recompile("Net.forward", "/home/me/m.py", 3, CompileId(0, 0), (cause,)), 1)
    (found,) = compiler.start(1).end().findings
    assert found.where.short == "m.py:31 in Cache.extend"


def test_what_a_library_calls_is_placed_in_the_function_that_called_the_library(
    tmp_path: Path,
) -> None:
    """One break, found again in the library's function that is then compiled by itself."""
    compiler = Compiler(tmp_path).start(0, 0, "forward")
    line = "return self.experts[best[0]](x)"
    library = ev.StackFrame("/x/site-packages/torch/nn/modules/container.py", 368, "index", "")
    mine = ev.StackFrame("/home/me/model.py", 3, "forward", line)
    for frame, stack in ((0, (mine, library)), (1, (library,))):
        if frame:
            compiler.say(ev.FrameStart((mine, library)), 0, frame)
        broke = ev.GraphBreak(
            code="TC101", title="index() of a tensor needs a Python value", why="",
            file=library.file, line=368, function="index", stack=stack,
        )  # fmt: skip
        compiler.say(broke, 0, frame)
    (found,) = compiler.end().findings
    assert (found.count, found.where.function, found.where.line) == (2, "forward", 3)


def test_another_break_in_what_a_library_calls_follows_from_the_line_that_called_it(
    tmp_path: Path,
) -> None:
    compiler = Compiler(tmp_path).start(0, 0, "forward")
    library = ev.StackFrame("/x/site-packages/torch/nn/modules/_functions.py", 315, "forward", "")
    mine = ev.StackFrame("/home/me/model.py", 3, "forward", "return self.down(x)")
    for frame, stack, title in ((0, (mine, library), "attribute"), (1, (library,), "store")):
        if frame:
            compiler.say(ev.FrameStart((mine, library)), 0, frame)
        broke = ev.GraphBreak(
            code="TC121", title=f"{title} cannot be followed", why="", file=library.file,
            line=315, function="forward", stack=stack,
        )  # fmt: skip
        compiler.say(broke, 0, frame)
    (found,) = compiler.end().findings
    assert found.title == "attribute cannot be followed"


def test_a_generator_that_is_passed_is_one_cause_with_the_loop_over_it(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path)
    call = ev.StackFrame("/home/me/m.py", 9, "<module>", "f(n for n in rows)")
    mine = ev.StackFrame("/home/me/m.py", 3, "f", "return sum(rows)")
    compiler.say(ev.FrameStart((call, mine)))
    broke = ev.GraphBreak(
        code="TC123", title="iteration over rows (generator) is not supported", why="",
        file=mine.file, line=3, function="f", stack=(mine,), fix=("pass a list",),
    )  # fmt: skip
    compiler.say(broke)
    skipped = ev.FrameSkipped("<genexpr>", call.file, 9, "<genexpr> is a generator")
    compiler.say(skipped, 0, 1)
    (found,) = compiler.end().findings
    assert (found.code, found.fix) == ("TC123", ("pass a list",))


def test_what_a_with_statement_calls_is_one_break_of_its_context(tmp_path: Path) -> None:
    """Entering and leaving it: nothing in the block can be moved out to help."""
    file = tmp_path / "m.py"
    file.write_text("def f(x):\n    with lock:\n        return x * 2\n")
    compiler = Compiler(tmp_path / "log").start()
    for name in ("__enter__", "__exit__"):
        broke = ev.GraphBreak(
            code="TC120", title=f"call of lock.{name} is not supported", why="", file=str(file),
            line=2, function="f", fix=("mark it with tc.disable",), source_line="    with lock:",
            stack=(ev.StackFrame(str(file), 2, "f", "with lock:"),),
        )  # fmt: skip
        compiler.say(broke)
    (found,) = compiler.end().findings
    assert (found.code, found.count) == ("TC107", 2)
    assert found.fix == ("enter the context outside of the compiled function",)


def test_values_passed_on_by_one_line_are_one_cause(tmp_path: Path) -> None:
    """Whichever of them changes: the break before it is what has to be fixed."""
    causes = [ev.RecompileCause(f"___stack{n}", "", "1", "2", "a constant in the graph", False,
                                "/home/me/m.py", 7) for n in range(2)]  # fmt: skip
    found = findings(tmp_path / "log", *(ev.Recompile("f", "m.py", 3, CompileId(0, 0), (one,))
                                         for one in causes))  # fmt: skip
    assert [(one.title, one.count) for one in found] == [
        ("a value from before a graph break changes", 2)
    ]


def test_an_attribute_that_is_set_to_another_value_is_reported_as_the_value(
    tmp_path: Path,
) -> None:
    there = ev.RecompileCause("'unit' in vars(x)", "", "absent", "present", "fixed keys")
    value = ev.RecompileCause("x.unit", "", "'m'", "'km'", "a constant in the graph")
    of = CompileId(0, 0)
    for name, causes, title in (
        ("both", (there, value), "x.unit is a constant in the graph"),
        ("one", (there,), "x.unit is set on some calls only"),
    ):
        (found,) = findings(tmp_path / name, ev.Recompile("f", "m.py", 3, of, causes))
        assert (found.title, found.reason) == (title, "x.unit")


def test_a_function_that_goes_on_behind_its_own_break_is_not_called_by_itself() -> None:
    mine = Compile("1/0", 1, None, 0, file="m.py", function="forward", line=3)
    one = Recompile(mine)
    namesake = Compile("0/0", 1, None, 0, file="m.py", function="forward", line=8)
    mine.frames = (Frame("m.py", 9, "forward"), Frame("m.py", 3, "forward"))
    assert not has_caller_in(one, other_than(mine, [mine]))
    assert not has_caller_in(Recompile(namesake), other_than(namesake, [mine]))
    assert has_caller_in(one, other_than(mine, [mine, namesake]))


def test_what_has_an_edit_at_the_limit() -> None:
    """Few values are no excuse there; what continues behind a break has no inputs without it."""
    few = ("nothing to do if it takes few values: each has a graph of its own, compiled once",)
    for name, kind, of_tensors, way in (
        ("torch_dynamo_resume_in_f_at_7", "length", True, "fix the graph break before it"),
        ("f", "length", False, "compute what needs len(seen) as plain Python"),
        ("f", "length", True, ""),
    ):
        one = Recompile(Compile("1/0", 1, None, 0, file="m.py", function=name, line=3))
        cause = Cause("len(seen)", "2", "3", kind, of_tensors=of_tensors)
        assert "".join(at_limit(few, one, cause)).startswith(way)
        assert bool(at_limit(few, one, cause)) is bool(way)
        assert at_limit(("pad it", *few), one, cause) == ("pad it",)
