"""What a custom op needs is found in a script."""

from __future__ import annotations

from tc.minifier.setup_code import setup_for

SCRIPT = """
import torch, tc
import numpy as np
import math as m
BIG = list(range(10))
SCALE = m.pi

@torch.library.custom_op("mine::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * SCALE

@twice.register_fake
def _(x):
    return torch.empty_like(x)

twice.register_kernel("cpu")(lambda x: x * SCALE)

lib = torch.library.Library("yours", "DEF")
lib.define("f(Tensor x) -> Tensor")

@torch.library.impl(lib, "f", "CPU")
def on_cpu(x):
    return x.clone()

torch.library.impl(lib, "f", "Meta")(torch.empty_like)

def main():
    return tc.compile(lambda x: twice(x) + BIG[0])

main()
print("mine::twice is done")
"""


def test_what_an_op_needs_is_taken() -> None:
    text = setup_for(SCRIPT, {"mine"})
    for part in ("custom_op('mine::twice'", "register_fake", "SCALE = m.pi", "import math as m"):
        assert part in text
    assert "twice.register_kernel('cpu')(lambda x: x * SCALE)" in text
    for part in ("BIG", "numpy", "yours", "def main", "main()", "import torch"):
        assert part not in text


def test_libraries_are_taken() -> None:
    text = setup_for(SCRIPT, {"yours"})
    assert text.splitlines() == [
        "lib = torch.library.Library('yours', 'DEF')",
        "lib.define('f(Tensor x) -> Tensor')",
        "@torch.library.impl(lib, 'f', 'CPU')",
        "def on_cpu(x):",
        "    return x.clone()",
        "torch.library.impl(lib, 'f', 'Meta')(torch.empty_like)",
    ]


def test_nothing_is_taken_where_nothing_is_asked() -> None:
    assert setup_for(SCRIPT, set()) == ""
    assert setup_for("def broken(", {"mine"}) == ""
