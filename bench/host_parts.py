"""Parts of which `corpus.py` puts ordinary programs together."""

from __future__ import annotations

import textwrap

from hosts import PLAIN_PARTS

ROWS = "\n".join(
    ",".join(f"{0.25 + (7 * row + 3 * column) % 11 / 8:.3f}" for column in range(16))
    for row in range(24)
)
HEAD = '''\
"""{title}."""
from __future__ import annotations
import argparse, asyncio, copy, csv, functools, math
from dataclasses import dataclass, field
from pathlib import Path
import torch, tc
import torch.nn.functional as F
'''
#: modules of 16 columns; {op} is an expression of y, {varied} a statement that guards belong to
MODELS = {
    "blocks": """
class Block(torch.nn.Module):
    def __init__(self, width, names):
        super().__init__()
        self.lin, self.norm = torch.nn.Linear(width, width), torch.nn.LayerNorm(width)
        self.names, self.table = names, {"sin": torch.sin, "neg": torch.neg}

    def forward(self, x, *, last=False):
        y, z = x, self.norm(x)
        for name in [*self.names, "sin"]:
            if name in self.table:
                y = self.table[name](self.lin(z)) + 0.5
        options = {"scale": 2.0 if last else 1.0}
        if last:
            y = y.abs() + 0.1
            y = {op}
        return x + y * options["scale"]


class Net(torch.nn.Module):
    def __init__(self, record, depth=3):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block(16, record.tags) for _ in range(depth))
        self.mode, self.limit = "narrow", 3

    def forward(self, x):
        for number, block in enumerate(self.blocks):
            x = block(x, last=number == 1)
        y = x
        {varied}
        return y.square().mean(-1)
""",
    "perceptron": """
class Net(torch.nn.Module):
    def __init__(self, record, depth=2):
        super().__init__()
        self.a, self.b = torch.nn.Linear(16, 24), torch.nn.Linear(24, 24)
        self.c, self.norm = torch.nn.Linear(24, 8), torch.nn.LayerNorm(24)
        self.depth, self.mode, self.limit = depth, "narrow", 3

    def forward(self, x):
        h = self.norm(F.silu(self.a(x / 2)))
        for _ in range(self.depth):
            h = F.softplus(self.b(h)) / 1
        y = torch.sigmoid(h * 1) + 0.25
        y = {op}
        h = torch.where(h > 0.8, h, y)
        y = h / h.square().mean(-1, keepdim=True).sqrt()
        {varied}
        names, sizes = ["b", *"cd"], {"n": y.shape[0]}
        assert "b" in names and len(sizes) == 1
        return F.log_softmax(self.c(y), dim=-1)
""",
    "images": """
class Net(torch.nn.Module):
    def __init__(self, record, depth=2):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, depth * 2, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(depth * 2)
        self.out = torch.nn.Linear(depth * 2, 3)
        self.mode, self.limit = "narrow", 3

    def forward(self, x):
        images = x.reshape(-1, 1, 4, 4)
        parts = {"first": F.relu(self.norm(self.conv(images))), **{"second": images}}
        y = F.max_pool2d(parts["first"], 2) + F.avg_pool2d(parts["second"], 2)
        y = y.abs() + 0.2
        y = {op}
        {varied}
        first, *rest = y.flatten(2).mean(-1).unbind(1)
        return self.out(torch.stack([first, *rest], 1))
""",
    "attention": """
class Net(torch.nn.Module):
    def __init__(self, record, depth=2):
        super().__init__()
        self.into, self.out = torch.nn.Linear(16, 48), torch.nn.Linear(16, 16)
        self.heads, self.depth, self.mode, self.limit = 2, depth, "narrow", 3

    def forward(self, x):
        for _ in range(self.depth):
            q, k, v = self.into(x).view(x.shape[0], 3, self.heads, -1).unbind(1)
            scores = torch.einsum("nhd,mhd->hnm", q, k) / math.sqrt(q.shape[-1])
            scores = scores.masked_fill(torch.ones_like(scores).triu(1) > 0, -1e4)
            x = x + torch.einsum("hnm,mhd->nhd", scores.softmax(-1), v).reshape(x.shape)
        known = {"gelu": F.gelu, "silu": F.silu}
        y = known["gelu"](self.out(x)) if "gelu" in known else x
        y = y.abs() + 0.1
        y = {op}
        {varied}
        return torch.cat([y, *[x[:, :4]]], 1)
""",
    "recurrent": """
class Net(torch.nn.Module):
    def __init__(self, record, depth=2):
        super().__init__()
        self.gates, self.into = torch.nn.Linear(32, 32), torch.nn.Linear(16, 16)
        self.depth, self.mode, self.limit = depth, "narrow", 3

    def forward(self, x):
        h, trail = torch.zeros_like(x), []
        for _ in range(self.depth):
            keep, new = torch.sigmoid(self.gates(torch.cat([x, h], 1))).chunk(2, 1)
            h = keep * h + (1 - keep) * F.hardtanh(self.into(x) * new)
            trail += [h, *[]]
        y = torch.stack(trail).abs().amax(0) + 0.3
        y = {op}
        {varied}
        state = {"h": h, "y": y}
        return state["y"].cumsum(1) / 16 + state["h"] if "h" in state else y
""",
    "tokens": """
class Net(torch.nn.Module):
    def __init__(self, record, depth=2):
        super().__init__()
        self.table, self.place = torch.nn.Embedding(32, 8), torch.nn.Embedding(16, 8)
        self.mix, self.depth = torch.nn.Linear(8, 8), depth
        self.mode, self.limit = "narrow", 3

    def forward(self, x):
        ids = (x * 8).long().clamp(0, 31)
        mask = (ids > 3).unsqueeze(-1)
        h = self.table(ids) + self.place(torch.arange(ids.shape[1]))
        for _ in range(self.depth):
            h = h - self.mix(h) / 8
        y = (self.mix(h) * mask).sum(1) / mask.sum(1).clamp(min=1)
        y = y.abs() + 0.1
        y = {op}
        {varied}
        best, where = {"k": y.topk(3, dim=-1)}["k"]
        return y.gather(1, where.flip(-1)) - best * [*range(3)][2]
""",
}
DATA = {
    "made": """
def batches(args):
    for step in range(args.steps):
        yield torch.rand({rows}, 16) + 0.5
""",
    "loader": """
class Rows(torch.utils.data.Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        return torch.linspace(0.5, 1.5, 16).roll(number) * (1 + number / 7)


def batches(args):
    loader = torch.utils.data.DataLoader(Rows(24), batch_size=8, num_workers=args.workers)
    for step, rows in zip(range(args.steps), loader):
        yield rows[:{rows}]
""",
    "disk": """
def batches(args):
    with open(Path(__file__).with_name("rows.csv"), newline="") as file:
        rows = [[float(cell) for cell in row] for row in csv.reader(file)]
    for step in range(args.steps):
        yield torch.tensor(rows[step : step + {rows}])
""",
}
RUN = """
@logged("run")
def run(args, *rest):
    torch.manual_seed(args.seed)
    record = Record(args.name, tags=["neg", "none"])
    net = Net(record)
    model = tc.compile(net{options})
    total = 0.0
    for step, x in enumerate(batches(args)):
        {vary}
{body}
        print(f"step {step:03d}: {total:.3f} {'new' if step else 'first'!r}")
    return total


def main():
    parser = argparse.ArgumentParser(description=f"run {__name__}")
    parser.add_argument("--steps", type=int, default={steps})
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--name", default="none")
    args = parser.parse_args()
    print(Record(args.name).title, kind_of([1, 2, 3, 4]), asyncio.run(gathered(3)))
    result = run(args, *[1, 2])
    print(f"{result=}")


if __name__ == "__main__":
    main()
"""
CHECK = "torch.testing.assert_close({found}, {wanted}, rtol={rtol}, atol={rtol})"
INFERENCE = """\
with torch.no_grad():
    if (found := model(x)).numel() > 3:
        total += found.sum().item()
    {check}
"""
#: use -> (arguments of the compiler, rows of a batch, what is done with one)
USES = {
    "inference": ("", "4", INFERENCE),
    "sizes": (", dynamic=True", "4 + step", INFERENCE),
    "training": ("", "4", """\
known = list(net.parameters())
wanted = torch.autograd.grad(net(x).square().mean(), known)
found = torch.autograd.grad((loss := model(x).square().mean()), known)
{check}
with torch.no_grad():
    for parameter, gradient in zip(known, found):
        parameter -= 0.01 * gradient
total += loss.item()
"""),
    "autocast": ("", "4", """\
with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
    found = model(x)
    total += found.float().sum().item()
    {check}
"""),
}  # fmt: skip
NEW_GRAPHS = """\
with torch.no_grad():
    for depth in (2, 3, 4):
        other = tc.compile(Net(record, depth).eval())
        total += other(x).sum().item()
"""
#: what a host changes between two steps: the source in its guard -> a statement
VARY = {
    "L['self'].mode": 'net.mode = "wide" if step else "narrow"',
    "L['self'].limit": "net.limit = 3 - step",
    "G['LEVELS']['extra']": 'LEVELS["extra"] = step',
}
VARIED = """\
if self.mode == "wide":
    y = y * 0.5
if LEVELS["extra"] == 1:
    y = y + 0.25
y = y / self.limit
"""


def files_of(model: str, data: str, use: str, layout: int, varies: str, op: str) -> dict[str, str]:
    """Return the files of a program, by name; the script comes first.

    Args:
        layout: how many modules stand beside the script: 0, 1 or 2.
        varies: a row of `VARY`, or nothing.
        op: the operation that some faults are about.
    """
    made = MODELS[model].replace("{op}", f"torch.{op}(y)")
    made = made.replace("{varied}", textwrap.indent(VARIED if varies else "pass", " " * 8).strip())
    if varies:
        made = '\nLEVELS = {"extra": 0}\n' + made
    options, rows, body = USES.get(use, ("", "4", NEW_GRAPHS))
    tolerance = "0.05" if use == "autocast" else "2e-3"
    wanted = "wanted" if use == "training" else "net(x)"
    found = "found"
    body = body.replace("{check}", CHECK.format(found=found, wanted=wanted, rtol=tolerance))
    main = RUN.replace("{options}", options).replace("{vary}", VARY.get(varies, "pass"))
    main = main.replace("{body}", textwrap.indent(body.rstrip(), " " * 8))
    main = main.replace("{steps}", "1" if use == "new graphs" else "2")
    source = DATA[data].replace("{rows}", rows)
    head = HEAD.replace("{title}", f"A program of {model} on rows from {data}: {use}")
    if layout == 0:
        return {"script.py": f"{head}{PLAIN_PARTS}\n{made}\n{source}\n{main}"}
    names = "from helpers import Record, Store, gathered, kind_of, logged\n"
    helpers = {"helpers.py": f"{head}{PLAIN_PARTS}"}
    if layout == 1:
        return {"script.py": f"{head}{names}{made}\n{source}\n{main}", **helpers}
    parts = {"model.py": f"{head}{made}\n{source}"}
    more = "from model import *\n"
    return {"script.py": f"{head}{names}{more}{main}", **parts, **helpers}
