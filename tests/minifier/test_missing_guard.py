"""The read that nothing guards is named, with the guard that it needs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx

from tc.compiler import api
from tc.minifier.call_watch import Space, Watch, rows_of
from tc.minifier.missing_guard import agree, branches, missing

SCALE = 2.0


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.deep = False
        self.options = {"power": 3}

    @property
    def loud(self) -> int:
        raise AssertionError("code of the user's is not run")

    def forward(self, x: torch.Tensor, n: int = 1) -> torch.Tensor:
        y = x * SCALE
        if self.deep:
            y = y**3
        return y + n


HERE = __file__
FIRST = Model.forward.__code__.co_firstlineno


def test_names_are_found_as_guards_spell_them() -> None:
    space = Space.of(Model(), (torch.ones(1),), {"n": 4})
    text = "z = self.options['power'] + SCALE + n + x + missing + self.loud"
    assert set(space._reads_of(text)) == {
        ("self.options['power']", "L['self'].options['power']", "3"),
        ("SCALE", "G['SCALE']", "2.0"), ("n", "L['n']", "4"),
    }  # fmt: skip
    assert list(space._reads_of("x[")) == []


def test_closures_are_seen() -> None:
    factor = 3

    def f(x: int) -> int:
        return x * factor

    assert ("factor", "L['factor']", "3") in set(Space.of(f, (1,), {})._reads_of("x * factor"))


def ran(rows: list[tuple[str, int]], model: Model | None = None, *args: Any) -> dict[str, Any]:
    """What a call ran, with lines counted from `Model.forward`."""
    watch = Watch()
    watch.begin(model or Model(), (torch.ones(1), *args), {})
    watch.add([(text, f"{HERE}:{FIRST + line}") for text, line in rows])
    return watch.as_json()


LIMIT = 2


class Plan:
    """Holds a number behind properties."""

    def __init__(self, kept: int) -> None:
        self._kept = kept

    @property
    def kept(self) -> int:
        """The number."""
        return self._kept

    @property
    def share(self) -> float:
        """A part of it."""
        return self.kept / LIMIT

    @property
    def endless(self) -> int:
        """Reads itself."""
        return self.endless + self._kept


def test_a_property_reads_what_its_code_reads() -> None:
    def f(x: torch.Tensor, plan: Plan) -> torch.Tensor:
        return x

    space = Space.of(f, (torch.ones(1), Plan(5)), {})
    kept = ("plan._kept", "L['plan']._kept", "5")
    assert list(space._reads_of("x * plan.kept")) == [kept]
    assert set(space._reads_of("if plan.share > 1:")) == {kept, ("LIMIT", "G['LIMIT']", "2")}
    assert set(space._reads_of("x * plan.endless")) == {kept}


def test_a_constant_that_changed() -> None:
    old = ran([("mul(x, 2.0)", 1), ("add(mul, 1)", 4)])
    found = missing(old, ran([("mul(x, 2.0)", 1), ("add(mul, 5)", 4)], None, 5))
    assert found is not None and found.line == f"{HERE}:{FIRST + 4}"
    assert found.reads == ("n = 5",) and found.guards == ("EQUALS on L['n']",)


def test_a_branch_that_is_not_taken_any_more() -> None:
    model = Model()
    model.deep = True
    old = ran([("mul(x, 2.0)", 1), ("add(mul, 1)", 4)])
    new = ran([("mul(x, 2.0)", 1), ("pow(mul, 3)", 3), ("add(pow, 1)", 4)], model)
    assert branches(f"{HERE}:{FIRST + 3}") == {(FIRST + 2, True)}
    found = missing(old, new)
    assert found is not None and found.line == f"{HERE}:{FIRST + 2}"
    assert found.guards == ("EQUALS on L['self'].deep",)


def test_what_a_line_reads_is_what_it_is_in_the_call() -> None:
    model, watch = Model(), Watch()
    model.deep = True
    watch.begin(model, (torch.ones(1),), {})
    watch.add([("pow(mul, 3)", f"{HERE}:{FIRST + 3}")])
    model.deep = False
    reads = watch.as_json()["reads"][f"{HERE}:{FIRST + 2}"]
    assert ("self.deep", "L['self'].deep", "True") in reads


@pytest.mark.parametrize("rows", [[], [("mul(x, 2.0)", 1)]])
def test_equal_graphs_say_nothing(rows: list[tuple[str, int]]) -> None:
    assert missing(ran(rows), ran(rows)) is None
    assert missing({}, {}) is None


def test_a_tensor_of_another_shape() -> None:
    graphs = []
    for size in (3, 4):
        gm = fx.symbolic_trace(lambda x: torch.sin(x))
        for node in gm.graph.nodes:
            node.meta["example_value"] = torch.ones(size)
        graphs.append({"rows": rows_of(gm)})
    found = missing(*graphs)
    assert found is not None and found.guards == ("TENSOR on x",)


@pytest.mark.parametrize(
    "old, new, same",
    [
        ("x: tensor torch.float32[s77, 4] [4, 1]", "x: tensor torch.float32[2, 4] [4, 1]", True),
        ("x: tensor torch.float32[s77, 4] [4, 1]", "x: tensor torch.float32[2, 5] [5, 1]", False),
        ("x: tensor torch.float32[s77]", "x: tensor torch.float64[2]", False),
        ("view(mul, (s77//2), 4)", "view(mul, 1, 4)", True),
        ("expand(x, 2*s0 + 2*s1)", "expand(x, 8)", True),
        ("sin(s1)", "cos(s1)", False),
        ("add(mul, 1)", "add(mul, 2)", False),
        ("x: tensor torch.float32[2, 4]", "x: tensor torch.float32[s77, 4]", False),
    ],
)
def test_symbolic_sizes_are_no_difference(old: str, new: str, same: bool) -> None:
    assert agree(old, new) == same


def test_code_with_symbolic_sizes_is_compared_with_code_without() -> None:
    def graph(dynamic: bool, function: Any = torch.sin) -> dict[str, Any]:
        found: list[Any] = []

        def keep(gm: fx.GraphModule, inputs: Any) -> Any:
            found.extend(rows_of(gm))
            return gm

        def f(x: torch.Tensor) -> torch.Tensor:
            return function(x.expand(2, -1, -1).reshape(-1, x.shape[1] * 2) * 2)

        api.compile(f, backend=keep, dynamic=dynamic)(torch.ones(1, 4, 6))
        return {"rows": found}

    assert missing(graph(True), graph(False)) is None
    found = missing(graph(True), graph(False, torch.cos))
    assert found is not None and (found.old, found.new) == ("sin(mul)", "cos(mul)")
