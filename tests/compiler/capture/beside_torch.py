"""Run by `test_beside_torch`: one function, both compilers, their resets, in all orders."""

import itertools
import sys
import warnings

import torch

import tc

STEPS = ("tc", "torch", "reset tc", "reset torch", "tc other", "torch other")


def run(order):
    """Take the steps on one fresh function and compare each result with eager."""
    space = {}
    exec("def f(x, n):\n    y = x.sin() + n\n    return y * y.sum()\n", space)
    f = space["f"]
    twin = f.__code__.replace()
    mine = {"tc": tc.compile(f, backend="eager"), "torch": torch.compile(f, backend="eager")}
    for i, step in enumerate(order):
        if step.startswith("reset"):
            (tc.reset if step.endswith("tc") else torch.compiler.reset)()
            continue
        who, _, other = step.partition(" ")
        x = torch.randn(3 if not other else 4 + i)
        want = type(f)(twin, {})(x, i)
        torch.testing.assert_close(mine[who](x, i), want, msg=f"{order} at {step}")


def main(part, parts):
    orders = itertools.product(STEPS, repeat=4)
    for order in itertools.islice(orders, part, None, parts):
        if {"tc", "torch"} <= {step.split()[0] for step in order}:
            try:
                run(order)
            except Exception as error:
                print(order, type(error).__name__, error)
                raise


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    main(int(sys.argv[1]), int(sys.argv[2]))
    print("all orders agree")
