"""Cases are reduced in the order in which the reductions pay; the oracle here needs no compiler."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from minifier_scripts import chain

from tc.minifier.answer import Answer
from tc.minifier.case import Case
from tc.minifier.identity import Identity
from tc.minifier.oracle import Oracle
from tc.minifier.reduce import Reduction

WRONG = Identity("wrong")


class Words(Oracle):
    """Fails where a case holds v7 and goes forward, or v2 and goes backward."""

    def ask(self, case: Case) -> Answer:
        names = {step.name for step in case.steps}
        forward, backward = "v7" in names, "v2" in names and case.backward
        detail = {"forward": True} if forward else {}
        return Answer("wrong", WRONG, "wrong", detail) if forward or backward else Answer("ok")

    def learn(self, case: Case) -> Case:
        return case


@pytest.mark.parametrize("is_forward", [True, False])
def test_what_goes_wrong_forward_is_not_reduced_to_another_op_backward(is_forward: bool) -> None:
    server: Any = Path()
    oracle = Words(server=server, target=WRONG)
    case = dataclasses.replace(chain(9), backward=True)
    if not is_forward:
        case = case.keep(["v1", "v2", "v3"])
    answer = oracle.judge(case)
    reduction = Reduction(oracle, case)
    reduction.forward_first(answer)
    asked = oracle.asked
    left = reduction.run()
    assert [step.name for step in left.steps] == (["v7"] if is_forward else ["v2"])
    assert left.backward is not is_forward
    assert asked == 1 + is_forward
