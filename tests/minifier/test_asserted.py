"""A failed assertion of a script is judged by the script itself, run in float64."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tc.minifier.identity import ROUNDING, Identity
from tc.minifier.oracle import ScriptOracle, Server

#: values of a program in float32; the second draws its numbers in place, so that a run in float64
#: draws others
SOURCES = {
    "drawn": "x = torch.randn(4096) + 3",
    "drawn in place": "x = torch.nn.Linear(64, 64)(torch.ones(64, 64)).detach().flatten() + 3",
    "made of integers": "x = (torch.arange(4096) / 7).sin() + 3",
}
SCRIPT = """
import torch
torch.manual_seed(0)
{source}
torch.testing.assert_close(x, x)
eager = x.sum(0)
total = torch.zeros(())
for part in x.flip(0).split(64):
    total = total + part.cumsum(0)[-1]
torch.testing.assert_close({compiled}, eager, rtol=0, atol=0)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    served = Server(tmp_path_factory.mktemp("server"))
    yield served
    served.close()


def oracle_in(folder: Path, server: Server) -> ScriptOracle:
    """Return an oracle for scripts of a folder."""
    return ScriptOracle(
        server=server, place=lambda: folder, path=lambda: folder / "script.py", home=folder
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    "compiled, kind", [("total", ROUNDING), ("total * 1.001", "wrong"), ("total + 9.0", "wrong")]
)
def test_rounding_is_no_wrong_result(
    source: str, compiled: str, kind: str, server: Server, tmp_path: Path
) -> None:
    oracle = oracle_in(tmp_path, server)
    answer = oracle.ask(SCRIPT.format(source=SOURCES[source], compiled=compiled))
    assert answer.identity == Identity(kind), answer


def test_a_difference_by_rounding_is_not_like_a_wrong_result(
    server: Server, tmp_path: Path
) -> None:
    text = SCRIPT.format(source=SOURCES["drawn"], compiled="total")
    oracle = oracle_in(tmp_path, server)
    oracle.akin = Identity("wrong")
    assert not oracle.fails(text)
    assert oracle.fails(text.replace("total, eager", "total * 1.001, eager"))


def test_a_process_of_its_own_knows_no_rounding() -> None:
    assert Identity(ROUNDING).unjudged == Identity("wrong")
    assert Identity("nan").unjudged == Identity("nan")
