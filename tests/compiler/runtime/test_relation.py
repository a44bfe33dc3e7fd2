"""Conditions that C checks are true, false and raise where Python says so."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tc.compiler.core.relations import OPS, Read, program_of
from tc.compiler.runtime import relation
from tc.compiler.runtime.relation import make_relation

BINARY = ("+", "-", "*", "//", "%")
COMPARED = ("==", "!=", "<", "<=", ">", ">=")
FUNCTIONS = ("Max", "Min", "FloorDiv", "Mod", "PythonMod")
MEANINGS: dict[str, Any] = {
    "Max": max,
    "Min": min,
    "FloorDiv": lambda a, b: a // b,
    "Mod": lambda a, b: a % b,
    "PythonMod": lambda a, b: a % b,
}
READS: dict[str, Read] = {
    "v0": (0, "size"),
    "v1": (0, "stride"),
    "v2": (0, "offset"),
    "v3": (1, "number"),
    "v4": (2, "size"),
}
CALLS = ("p0.size()", "p0.stride()", "p0.storage_offset()", "p1", "p2.size()")


class Derived(torch.Tensor):
    """A tensor whose sizes only Python may read."""


def expression(draw: random.Random, depth: int) -> str:
    """Return a random number, as Python."""
    if depth == 0 or draw.random() < 0.2:
        items = [f"{name}[{item}]" for name in ("v0", "v1", "v4") for item in (0, 1)]
        constants = [str(n) for n in (0, 1, 2, 3, 7, -1, -3, 2**31, 2**62, 2**63)]
        return draw.choice([*items, "v2", "v3", *constants])
    one, other = expression(draw, depth - 1), expression(draw, depth - 1)
    match draw.randrange(4):
        case 0:
            return f"{draw.choice(FUNCTIONS)}({one}, {other})"
        case 1:
            return f"(-{one})"
        case _:
            return f"({one} {draw.choice(BINARY)} {other})"


def condition(draw: random.Random) -> str:
    """Return a random condition, as Python."""
    sides = [expression(draw, draw.randrange(3)) for _ in range(draw.choice((2, 2, 3)))]
    text = sides[0]
    for side in sides[1:]:
        text += f" {draw.choice(COMPARED)} {side}"
    match draw.randrange(6):
        case 0:
            return f"not ({text})"
        case 1:
            return f"(({text}) or ({condition(draw)}))"
        case _:
            return f"({text})"


def in_python(body: str) -> Callable[..., bool]:
    """Return the function of three values that a condition is."""
    lines = ["def check(p0, p1, p2):"]
    lines += [f"    v{i} = {call}" for i, call in enumerate(CALLS)]
    names = dict(MEANINGS)
    exec("\n".join([*lines, f"    return {body}"]), names)
    made: Callable[..., bool] = names["check"]
    return made


def outcome(check: Callable[..., bool], values: tuple[Any, ...]) -> Any:
    try:
        return bool(check(*values))
    except Exception as error:
        return type(error)


def tensors(draw: random.Random) -> list[torch.Tensor]:
    memory = torch.zeros(400)
    sizes, strides = [[draw.randrange(0, 5) for _ in range(2)] for _ in range(2)]
    view = memory.as_strided(sizes, strides, draw.randrange(0, 9))
    return [view, torch.nn.Parameter(torch.zeros(3, 5)), torch.zeros(2).as_subclass(Derived)]


@pytest.mark.parametrize("seed", range(40))
def test_c_agrees_with_python(seed: int) -> None:
    draw = random.Random(seed)
    decided = 0
    for _ in range(25):
        body = " and ".join(condition(draw) for _ in range(draw.randrange(1, 4)))
        check, program = in_python(body), program_of(body, READS)
        if program is None:
            continue
        asked = list[bool]()

        def otherwise(*values: Any, check: Any = check, asked: Any = asked) -> bool:
            asked.append(True)
            return bool(check(*values))

        made = make_relation(3, program, otherwise)
        for _ in range(6):
            first, second = draw.choices(tensors(draw), k=2)
            number = draw.choice([0, 1, 5, -4, 2**62, 2**70, True, 1.5])
            values = first, number, second
            assert outcome(made, values) == outcome(check, values), (body, values)
        decided += len(asked) < 6
    assert decided, "C decided none"


def test_what_is_not_arithmetic_of_whole_numbers_has_no_program() -> None:
    for body in ("v0[0] / 2 > 1", "v3 ** 2 == 4", "v0 == (1, 2)", "other(v3)", "v3 > 1.5", "w > 1"):
        assert program_of(body, READS) is None
    assert program_of(f"v3 == {2**63}", READS) is None
    assert program_of("v3[0] == 1", READS) is None


def test_programs_that_would_leave_their_bounds_are_refused() -> None:
    module = relation._module()
    if module is None:
        pytest.skip("no C compiler")
    number, constant, plus, holds = (OPS[op] for op in ("number", "constant", "+", "holds"))
    for program in (
        (plus, holds),
        (constant,),
        (constant, 1),
        (number, 1, holds),
        (number, -1, holds),
        (OPS["size"], 0, -1, holds),
        (999,),
        (constant, 1) * 65 + (plus,) * 64 + (holds,),
    ):
        with pytest.raises(ValueError, match="none"):
            module.Relation(1, program, bool)
    with pytest.raises(ValueError, match="too many"):
        module.Relation(65, (), bool)
    check = module.Relation(1, (number, 0, holds), bool)
    with pytest.raises(TypeError, match="1 values"):
        check(1, 2)


def test_without_the_extension_python_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(value: int) -> bool:
        return value == 3

    program = program_of("v0 == 3", {"v0": (0, "number")})
    assert program is not None
    assert make_relation(1, program, check) is not check or relation._module() is None
    monkeypatch.setattr(relation, "_module", lambda: None)
    assert make_relation(1, program, check) is check
