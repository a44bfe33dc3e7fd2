"""Programs whose lines ask something of sizes, which is known beforehand: for `tc.check_shapes`.

A line that prevents one graph is marked with a comment ``# asks: KIND``; kinds as in
`tc.compiler.ahead.causes.Cause`. Programs without a mark have one graph for all sizes from 2 on.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F


def branch(x, w):
    y = x @ w
    if x.shape[0] > 10:  # asks: range
        y = y * 2
    return y.relu().sum()


def two_branches(x):
    if x.shape[0] < 8:  # asks: range
        x = x + 1
    y = x.sin()
    if x.shape[0] >= 40:  # asks: range
        y = y.cumsum(0)
    return y


def equals(x):
    if x.shape[0] == 16:  # asks: range
        return x.view(4, 4, -1).sum(1)
    return x * 3


def loop(x):
    total = x[:, 0]
    for i in range(x.shape[1]):  # asks: constant
        total = total + x[:, i]
    return total


def parity(x):
    if x.shape[0] % 2 == 0:  # asks: divisible
        return x * 2
    return x * 3


def same_length(x, y):
    if x.shape[0] == y.shape[0]:  # asks: related
        return x.sum() + y.sum()
    return x.sum() - y.sum()


def fits(x, table):
    if x.shape[1] > table.shape[0]:  # asks: related
        x = x[:, : table.shape[0]]
    return x.mean()


def helper(x):
    return x.reshape(-1) if x.shape[0] >= 20 else x.flatten().flip(0)  # asks: range


def inside_helper(x):
    return helper(x.exp()).sum()


class Positions(torch.nn.Module):
    """Learned positions, with a shortcut for one length."""

    def __init__(self):
        super().__init__()
        self.position = torch.nn.Embedding(64, 8)
        self.norm = torch.nn.LayerNorm(8)

    def forward(self, x):
        places = torch.arange(x.shape[1])
        if x.shape[1] == 64:  # asks: range
            places = places.flip(0)
        return self.norm(x + self.position(places))


class Padded(torch.nn.Module):
    """Pads to a multiple of eight, as kernels for windows do."""

    def forward(self, x):
        if x.shape[1] % 8 != 0:  # asks: divisible
            x = F.pad(x, (0, 0, 0, 8 - x.shape[1] % 8))
        return x.reshape(x.shape[0], -1, 8, x.shape[2]).mean(2)  # asks: range (of one window)


def unrolled(x):
    return torch.stack([row * i for i, row in enumerate(x.unbind(0))])  # asks: constant


def in_list(x):
    parts = [x]
    while len(parts) < x.shape[0]:  # asks: constant
        parts.append(parts[-1] * 0.5)
    return sum(part.sum() for part in parts)


# -- one graph for all sizes ------------------------------------------------------------------
def softmax(x):
    return torch.cat([x, x * 2], 0).softmax(0)


def average(x):
    return x.sum(0) / x.shape[0] + math.pi


def windows(x):
    return x.unfold(1, 2, 1).amax(-1) + x[:, 1:]


def number(x):
    n = int(x.shape[0])
    return x.sum(1) * torch.ones(n)


class Attention(torch.nn.Module):
    """Causal attention over any length."""

    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(16, 48)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, 4, 4).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)) / 2.0
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        return (scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v).transpose(1, 2).flatten(2)


#: name -> the function, inputs, and where its marked lines are, if not in itself
PROGRAMS = {
    "branch": (branch, "x=2..64,16 w=16,4"),
    "two_branches": (two_branches, "x=2..64,3"),
    "equals": (equals, "x=2..40,4"),
    "loop": (loop, "x=5,2..9"),
    "parity": (parity, "x=2..40,4"),
    "same_length": (same_length, "x=2..12,4 y=2..12,4"),
    "fits": (fits, "x=4,2..14 table=2..14"),
    "inside_helper": (inside_helper, "x=2..40,3"),
    "Positions": (Positions(), "x=2,2..64,8"),
    "Padded": (Padded(), "x=2,2..40,4"),
    "unrolled": (unrolled, "x=2..8,4"),
    "in_list": (in_list, "x=2..8,4"),
    "softmax": (softmax, "x=2..64,5"),
    "average": (average, "x=2..64,5"),
    "windows": (windows, "x=3,3..40"),
    "number": (number, "x=2..64,5"),
    "Attention": (Attention(), "x=2..6,2..40,16"),
}
LINES = {"inside_helper": helper}
