"""The example programs: each shows its finding, its cure leaves none, and all match eager."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import classifier
import ddp
import diffusion
import generation
import pytest
import reinforce
import torch
from support import ROOT, succeed

import tc
from tc.trace import FrameSkipped, GraphBreak, Recompile, capture_events
from tc.trace.findings import diagnose
from tc.trace.session import load

PROGRAMS = (classifier, diffusion, generation, reinforce)
#: arguments that make a program short: it compiles all that it compiles by default
SHORT = {
    classifier: ("--steps", "4"),
    diffusion: ("--steps", "2"),
    generation: ("--steps", "2", "--words", "3"),
    reinforce: ("--rounds", "2"),
}


def found(
    program: ModuleType, capsys: pytest.CaptureFixture[str], *cured: str
) -> tuple[set[str], int, set[str]]:
    """Run a program; return codes of its graph breaks, recompiles, and inputs that caused them."""
    tc.reset()
    threads = torch.get_num_threads()
    with capture_events() as events:
        program.main([*SHORT[program], *cured])
    torch.set_num_threads(threads)
    assert "matches   eager" in capsys.readouterr().out
    assert all(skipped.harmless for skipped in events.of(FrameSkipped))
    causes = {cause.source for event in events.of(Recompile) for cause in event.causes}
    return {event.code for event in events.of(GraphBreak)}, len(events.of(Recompile)), causes


def test_choice_by_a_mask_breaks(capsys: pytest.CaptureFixture[str]) -> None:
    assert found(classifier, capsys)[0] == {"TC102"}


def test_numbers_of_a_scheduler_break(capsys: pytest.CaptureFixture[str]) -> None:
    assert found(diffusion, capsys)[0] == {"TC101"}


def test_length_of_a_cache_recompiles(capsys: pytest.CaptureFixture[str]) -> None:
    lengths = {"attends[0].length", "attends[1].length"}
    assert found(generation, capsys) == (set(), 2, lengths)


def test_question_to_the_data_breaks(capsys: pytest.CaptureFixture[str]) -> None:
    assert "TC110" in found(reinforce, capsys)[0]


@pytest.mark.sample(1)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_cure_leaves_nothing(program: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert found(program, capsys, "--cured") == (set(), 0, set())


@pytest.mark.parametrize("program", (*PROGRAMS, ddp), ids=lambda program: program.__name__)
def test_too_few_steps_are_refused(program: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    option = {reinforce: "--rounds", ddp: "--epochs"}.get(program, "--steps")
    with pytest.raises(SystemExit) as ended:
        program.main([option, "0"])
    assert ended.value.code == 2
    assert f"{option} must be 1 or more" in capsys.readouterr().err


def test_words_have_to_fit_the_cache(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        generation.main(["--words", "48"])
    assert ended.value.code == 2
    assert "--words must be from 1 to 47" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("cured", [False, True])
def test_ranks_with_other_batches_diverge(cured: bool, tmp_path: Path) -> None:
    program = str(ROOT / "examples/ddp.py")
    arguments = ("--epochs", "1", *(["--cured"] if cured else []))
    said = succeed(program, *arguments, variables={"TC_TRACE": str(tmp_path)}, warm=True)
    assert "matches   all 2 ranks" in said
    codes = {finding.code for finding in diagnose(load(tmp_path)).findings}
    assert codes == (set() if cured else {"TC201", "TC601"})


@pytest.mark.slow
def test_examples_learn(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    _, losses = classifier.train(cured=True, steps=60, compiled=False)
    assert losses[-1] < losses[0] / 2
    rates = reinforce.train(reinforce.step_cured, 25, steps=100)
    assert rates[-1] < rates[0] / 5
    generation.main(["--cured"])
    assert f"wrote     the {generation.TEXT.partition(' ')[2]}" in capsys.readouterr().out
