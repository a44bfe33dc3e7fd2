"""One identity of a failure: what it is made of, and that a fresh process finds the same one."""

from __future__ import annotations

import dataclasses
import random
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import tc
from tc.minifier import identity, judge
from tc.minifier.fresh import Fresh, hang
from tc.minifier.identity import COMPILED, Identity, doing

#: program -> what it has to be known as
PROGRAMS: dict[str, Identity | None] = {
    "print(1)": None,
    "import sys; sys.exit(0)": None,
    "import sys; sys.exit(3)": Identity("exit", message="exit code 3"),
    "import os, sys; sys.exit(f'no 3.5 in {os.getcwd()}')": Identity(
        "exit", message="exit with no in PATH"
    ),
    "import os; os._exit(7)": Identity("exit", message="exit code 7"),
    "import os; os._exit(0)": None,
    "import sys; sys.stderr.close(); {}['a']": Identity(
        "raises", "compiled code", ("KeyError",), "'a'"
    ),
    "class Odd(Exception):\n    def __str__(self): return 1 / 0\nraise Odd()": Identity(
        "raises", "compiled code", ("Odd",)
    ),
    "import os; os.abort()": Identity("died", types=("SIGABRT",)),
    "raise ValueError('no buf12 in /a/b.py')": Identity(
        "raises", "compiled code", ("ValueError",), "no buf in PATH"
    ),
    "try:\n    {}['a']\nexcept KeyError as e:\n    raise RuntimeError('so') from e": Identity(
        "raises", "compiled code", ("RuntimeError", "KeyError"), "'a'"
    ),
    f"raise AssertionError({identity.ACCEPTS!r}) from IndexError(3)": Identity(
        "accepts", types=("IndexError",)
    ),
    "assert 1 == 2, 'merely an assertion'": Identity(
        "raises", "compiled code", ("AssertionError",), "merely an assertion"
    ),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_fresh_process_finds_the_identity(program: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(program)
    assert Fresh(60).run(path).identity == PROGRAMS[program]
    assert [one.name for one in tmp_path.iterdir()] == ["program.py"]


def test_a_hang_says_where(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text("def spin():\n    while True:\n        pass\nspin()\n")
    answer = Fresh(1).run(path)
    assert answer.identity == Identity("hangs")
    assert answer.message.endswith("program.py:3") or answer.message.endswith("program.py:2")


def failed(actual: object, expected: object) -> Identity:
    with pytest.raises(AssertionError) as caught:
        torch.testing.assert_close(actual, expected)
    return identity.of_exception(caught.value)


ONES = torch.ones(3)


@pytest.mark.parametrize(
    "actual, expected, found",
    [
        (ONES * 2, ONES, Identity("wrong")),
        (ONES / 0, ONES, Identity("nan")),
        (torch.ones(4), ONES, Identity("wrong", "shape")),
        (ONES.double(), ONES, Identity("wrong", "shape")),
        ([ONES], [ONES, ONES], Identity("wrong", "count")),
        ([ONES, ONES * 3], [ONES, ONES], Identity("wrong")),
        ((ONES, [ONES.log().log()]), (ONES, [ONES]), Identity("nan")),
    ],
)
def test_values_that_differ_are_known_as_the_judge_knows_them(
    actual: object, expected: object, found: Identity
) -> None:
    assert failed(actual, expected) == found
    flat = [list(identity.leaves(one)) for one in (actual, expected)]
    outcome = judge.compare(lambda: None, [], False, flat[1], flat[0]) if flat else None
    assert outcome is not None and outcome.identity == found


def test_an_assertion_of_the_users_is_no_wrong_value() -> None:
    with pytest.raises(AssertionError) as caught:
        assert torch.equal(ONES, ONES * 2), "Tensor-likes are not close!"
    assert identity.of_exception(caught.value).kind == "raises"


def test_every_part_counts_and_comes_back_from_json() -> None:
    one = Identity("raises", "loops", ("A", "B"), "no room", "tanh")
    assert Identity.of_json(one.as_json()) == one
    for field in dataclasses.fields(Identity):
        value = ("C",) if field.name == "types" else "else"
        assert dataclasses.replace(one, **{field.name: value}) != one


def test_numbers_and_paths_do_not_count() -> None:
    source = random.Random(0)
    texts = {
        identity.normalised(
            f"no room for buf{source.randrange(99)} at 0x{source.randrange(9**9):x}"
        )
        for _ in range(20)
    }
    assert len(texts) == 1


def test_a_recorder_between_compiler_and_script_does_not_count() -> None:
    inner = Identity("raises", "loops", ("RuntimeError",), "no room")
    outer = dataclasses.replace(inner, types=("BackendError", "RuntimeError"))
    assert inner.is_akin(outer) and inner != outer
    assert not inner.is_akin(dataclasses.replace(inner, message="no time"))
    assert Identity("nan").is_akin(Identity("wrong", "shape"))
    assert not Identity("wrong").is_akin(Identity("raises", types=("AssertionError",)))


@pytest.mark.parametrize(
    "file, part",
    [
        ("/a/tc/compiler/loops/lower/graph.py", "loops"),
        ("/a/compiler/driver.py", "driver"),
        ("/a/site-packages/torch/_inductor/graph.py", "inductor.graph"),
        ("/a/site-packages/torch/_dynamo/variables/base.py", "dynamo.variables"),
        ("/a/site-packages/torch/_functorch/_aot_autograd/x.py", "functorch._aot_autograd"),
        ("/a/site-packages/torch/compiler/__init__.py", ""),
        ("/a/site-packages/triton/compiler/compiler.py", ""),
        ("/a/train.py", ""),
    ],
)
def test_a_file_belongs_to_a_part_of_a_compiler(file: str, part: str) -> None:
    assert identity.part_of(file) == part


@pytest.mark.parametrize(
    ("part", "stage", "words"),
    [
        ("_dynamo/eval_frame.py", COMPILED, "hangs in compiled code, while running /me/m.py:2"),
        ("_dynamo/output_graph.py", "dynamo.output_graph",
         "hangs in dynamo.output_graph, while lowering /me/m.py:2"),
    ],
)  # fmt: skip
def test_what_calls_compiled_code_is_not_compiling(part: str, stage: str, words: str) -> None:
    """The innermost part of a compiler says whether a function of the user's hangs at run time."""
    names: dict[str, Any] = {"doing": doing, "sys": sys}
    users = "def users():\n    return doing(sys._getframe())\n"
    exec(compile(users, "/me/m.py", "exec"), names)
    exec(compile("found = users()\n", f"/v/site-packages/torch/{part}", "exec"), names)
    assert (names["found"]["stage"], hang(names["found"]).message) == (stage, words)


@pytest.mark.parametrize("gradient", [False, True])
def test_what_compiled_code_raises_is_of_no_stage(gradient: bool) -> None:
    x = torch.tensor([0.5]).requires_grad_(gradient)
    function = tc.compile(strict)
    function(x).sum().backward() if gradient else function(x)
    with pytest.raises(ValueError, match="too large") as caught:
        function(x * 4)
    assert identity.of_exception(caught.value).stage == COMPILED


@torch.library.custom_op("tc_minifier_identity::small", mutates_args=())
def small(x: torch.Tensor) -> torch.Tensor:
    if (x > 1).any():
        raise ValueError("too large")
    return x.clone()


@small.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


small.register_autograd(lambda ctx, grad: grad)


def strict(x: torch.Tensor) -> torch.Tensor:
    return small(x) * 2
