"""What the benches of tc-minify and tc-bisect read out of other programs' text."""

from __future__ import annotations

import blame
import minify
import pytest

REPRO = """
class Repro(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()

    def forward(self, add, mul):
        tanh = torch.ops.aten.tanh.default(add);  add = None
        mul_1 = torch.ops.aten.mul.Tensor(tanh, mul);  tanh = mul = None
        return (mul_1,)

def load_args(reader):
    buf0 = reader.storage(None, 2048)
"""


def test_nodes_of_a_printed_graph() -> None:
    assert minify.graph_size(REPRO) == 5


@pytest.mark.parametrize(
    "name, words",
    [("aten.silu_backward", ["F.silu"]), ("aten._log_softmax_backward_data", ["F.log_softmax"])],
)
def test_lines_of_gradients_are_those_of_the_op(name: str, words: list[str]) -> None:
    lines = blame.MLP.splitlines()
    found = [
        lines[int(place.partition(":")[2]) - 1]
        for place in blame.lines_of_backward(name, blame.MLP)
    ]
    assert found and all(word in line for line in found for word in words)


def test_kernels_are_the_same_whatever_their_number() -> None:
    assert blame.base("kernel.k3_mean_neg") == blame.base("kernel.k0_mean_neg")
    assert blame.base("kernel.k3_mean_neg") != blame.base("kernel.k3_mean")
