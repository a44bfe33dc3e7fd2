"""An input that the code holds to a number is one finding, at the line that needs the number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tc_log import Compiler
from torch_log import artifact, ids, start, torch_log

from tc.trace import events as ev
from tc.trace import guardtext
from tc.trace.ids import CompileId

MODEL = "/home/me/model.py"
SEEN, NEEDED = 5, 9  # the line where the size is first seen, and the one that needs its value
SOURCE = "L['x'].size()[0]"


def guards(value: int, place: tuple[str, int] | None) -> ev.Guards:
    return ev.Guards(["SHAPE"], [SOURCE], [f"{SOURCE} == {value}"], [place])


def again(number: int, kind: str, guard: str, line: int) -> ev.Recompile:
    cause = ev.RecompileCause(
        "x.shape[0]", guard, str(6 + number), str(7 + number), kind, True, MODEL, line
    )
    return ev.Recompile("f", MODEL, 3, CompileId(0, number - 1), (cause,))


@pytest.mark.parametrize("recompiles", [1, 3])
@pytest.mark.parametrize("named", [True, False], ids=["newer logs", "older logs"])
def test_recompiles_for_a_held_size_are_one_finding(
    tmp_path: Path, recompiles: int, named: bool
) -> None:
    """Without lines of guards on sizes, only a guard that failed has one."""
    log = Compiler(tmp_path).start()
    for number in range(1, recompiles + 1):
        if number == 1:
            said = again(1, "a fixed size", "check_tensor(L['x'], size=[7, 4])", SEEN)
        else:
            condition = f"x.shape[0] == {6 + number}"
            said = again(number, "a condition on sizes", condition, NEEDED)
        value = 7 + number
        created = ev.CreateSymbol("s0", str(value), f"VR[{value}, {value}]", SOURCE)
        log.say(said, number).start(number).say(created, number)
        log.say(guards(value, (MODEL, NEEDED) if named else None), number)
    (finding,) = [one for one in log.end().findings if one.code == "TC201"]
    assert finding.title == "x.shape[0] is held to one number"
    assert finding.count == recompiles
    assert finding.where.line == (NEEDED if named or recompiles > 1 else SEEN)


def test_lines_of_held_sizes_are_read_from_the_guards_below_them() -> None:
    text = "\n".join((
        "# /home/me/model.py:5", "TENSOR: check_tensor(L['x'])", "SHAPE: L['x'].size()[1] <= 8",
        "# /home/me/model.py:9", f"SHAPE: {SOURCE} == 8", "", "SHAPE: L['y'].size()[0] == 2",
    ))  # fmt: skip
    assert guardtext.sizes_held(text) == {"x.shape[0]": ("/home/me/model.py", 9)}


@pytest.mark.parametrize("where", ["the function", "a helper", "a library"])
def test_torch_says_where_a_symbol_became_a_constant(tmp_path: Path, where: str) -> None:
    """The line of the guard that failed is where the size was first seen."""
    deeper = {
        "the function": [],
        "a helper": [{"line": 40, "name": "g", "filename": MODEL}],
        "a library": [{"line": 9, "name": "h", "filename": "/x/torch/nn/functional.py"}],
    }
    stack = [{"line": NEEDED, "name": "f", "filename": MODEL, "loc": ""}, *deeper[where]]
    rows: list[Any] = [start(0)]
    for number in (1, 2, 3):
        reason = f"0/{number - 1}: tensor 'x' size mismatch at index 0. "
        reason += f"expected {number + 1}, actual {number + 2}"
        held = {"symbol": "s0", "sources": [SOURCE], "value": str(number + 2), "user_stack": stack}
        rows += [start(0, number), artifact(0, "recompile_reasons", reason, number)]
        rows.append(({"symbolic_shape_specialization": held, **ids(0, number)}, None))
        metrics = {"dynamo_config": '{"automatic_dynamic_shapes": true}'}
        rows.append(({"compilation_metrics": metrics, **ids(0, number)}, None))
        tree = "TENSOR_MATCH: check_tensor(L['x'], Tensor, DispatchKeySet(CPU), torch.float32, "
        tree += f"device=None, requires_grad=False, size=[{number + 2}, 4], stride=[4, 1])"
        rows.append(({"dynamo_cpp_guards_str": {}, **ids(0, number)}, tree))
    (finding,) = [one for one in torch_log(tmp_path, *rows).findings if one.code == "TC201"]
    assert finding.title == "x.shape[0] is held to one number"
    assert finding.where.line == (40 if where == "a helper" else NEEDED)


@pytest.mark.parametrize(
    ("kind", "advised"), [("dict", "compute what needs"), ("list", "pass self")]
)
def test_a_number_that_is_a_key_of_a_dict_is_needed_itself(
    tmp_path: Path, kind: str, advised: str
) -> None:
    """A list may be indexed by a dynamic number, a dict has no entry for one."""
    file = tmp_path / "model.py"
    file.write_text("def forward(self, x):\n    return x * self.rates[self.index]\n")
    cause = ev.RecompileCause(
        "self.index", "same(L['self'].index, 2)", "2", "3", "a constant in the graph", False,
        str(file), 2,
    )  # fmt: skip
    again = ev.Recompile("forward", str(file), 1, CompileId(0, 0), (cause,))
    typed = f"is_type(L['self'].__dict__['rates'], the(7, '{kind}'))"
    guards = ev.Guards(["TYPE"], ["L['self']"], [typed], [(str(file), 2)])
    log = Compiler(tmp_path).start().say(again, 1).start(1).say(guards, 1)
    (finding,) = [one for one in log.end().findings if one.code == "TC201"]
    assert finding.fix[0].startswith(advised)


@pytest.mark.parametrize(
    ("condition", "plain"),
    [
        ("(((torch.sym_float(t)) / 1.0)) == 2.0", "(float(t) / 1.0) == 2.0"),
        ("((a + b)) == 3", "(a + b) == 3"),
        ("(a + b) * (c + d) == 3", "(a + b) * (c + d) == 3"),
        ("1 <= t and t <= 5", "1 <= t and t <= 5"),
    ],
)
def test_conditions_read_as_a_program_writes_them(condition: str, plain: str) -> None:
    assert guardtext.tidied(condition) == plain
