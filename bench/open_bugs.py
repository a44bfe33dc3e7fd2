"""Both tools on bugs of the installed torch that its users have reported, by number.

    python bench/open_bugs.py              # all: whether each shows here, and what the tools say
    python bench/open_bugs.py 197895       # one of them
    python bench/open_bugs.py --shows      # only whether they show, in one process a bug

Each is a program of its own words around what the report is about, so that there is something to
reduce. It counts if `tc-minify` verifies its result in every run and the operation is in it, and
if `tc-bisect` names the operation's line and a step or a stage. Reports of floor and remainder at
a step of the function (197895, 186875) are not among them: inputs moved by a unit in the last place
step there as well, so that both tools call them rounding; so they do where compiled code rounds
less often than eager (185337, ``x.half().float()``). Nor is 196467 (``torch.Tensor(size)``):
capture has another graph there, which agrees with itself.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from faultbench import run

HOST = """\
import argparse
import torch


class Mixer(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = torch.nn.Linear(width, width)
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, x, given):
        h = self.norm(torch.tanh(self.inner(x))) + x
        made = operation(*given)  # the report's
        return made, h.square().mean(-1)


def operation({names}):
    {body}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=8)
    options = parser.parse_args()
    torch.manual_seed(0)
    model = Mixer(options.width).eval()
    given = ({values},)
    with torch.no_grad():
        made, mean = torch.compile(model)(torch.randn(4, options.width), given)
    print(f"{{made=}} {{mean.sum()=}}")


if __name__ == "__main__":
    main()
"""


@dataclass(frozen=True)
class Report:
    """A bug of torch.

    Attributes:
        number: of the issue of pytorch/pytorch.
        kind: how the tools call it.
        operation: what a right result holds.
        names: parameters of the function.
        values: what is passed, as text.
    """

    number: int
    kind: str
    operation: str
    names: str
    body: str
    values: str

    @property
    def text(self) -> str:
        """The program."""
        return HOST.format(names=self.names, body=self.body, values=self.values)


REPORTS = (
    Report(193757, "accepts", "binary_cross_entropy", "t",
           "return torch.nn.functional.binary_cross_entropy(torch.ones_like(t), t)",
           "torch.ones(4, 4) * 1.5"),
    Report(185885, "accepts", "index_add", "x, i, s", "return torch.index_add(x, 0, i, s)",
           "torch.zeros(4, 3), torch.tensor([0, -1]), torch.ones(2, 3)"),
    Report(197807, "accepts", "logcumsumexp", "x", "return torch.logcumsumexp(x, 0)",
           "torch.tensor(0, dtype=torch.uint8)"),
    Report(195675, "accepts", "clamp", "x", "return torch.clamp(x, max=1e300)",
           "torch.randn(4)"),
    Report(198155, "accepts", "softmax", "x", "return torch.softmax(x, -1)",
           "torch.tensor([[1, -2, 3], [4, 0, -6]])"),
    Report(197554, "accepts", "ceil", "x", "return torch.ceil(x)",
           "torch.tensor([True, False, True])"),
    Report(183888, "raises", "abs_", "x", "return (x + x).unfold(1, 4, 2).abs_()",
           "torch.linspace(-3, 3, 7).reshape(1, 7)"),
    Report(188224, "raises", "cummin", "x", "return torch.cummin(x, -46)[0]", "torch.randn(0)"),
    Report(189518, "wrong", "cumsum", "x",
           "return torch.ones(x.shape, dtype=torch.bool).cumsum(1, dtype=torch.float16)",
           "torch.zeros(2, 4)"),
    Report(194558, "raises", "pad", "x, w",
           "return torch.mm(torch.nn.functional.pad(torch.relu(x), (0, -2, 0, 0)), w)",
           "torch.randn(2, 6), torch.randn(4, 3)"),
)  # fmt: skip


def shows(report: Report) -> tuple[bool, str]:
    """See whether compiled code differs from eager, by the tool's own comparison."""
    with tempfile.TemporaryDirectory(prefix="tc-bench-") as name:
        folder = Path(name)
        (folder / "script.py").write_text(report.text)
        done = run(["-m", "tc.minifier.bisect", "script.py", "--json"], folder)
    if not done.out.startswith("{"):
        return False, (done.err.splitlines() or ["no word"])[-1][:100]
    found = json.loads(done.out)
    line = report.text.splitlines().index(f"    {report.body}") + 1
    places = [place.rpartition(":")[2] for place in found.get("lines", ())]
    words = f"{found.get('stage', '-')}, {found.get('step') or 'no step'}"
    good = done.code == 1 and str(line) in places
    return good, f"{found['title'][:70]} [{words}; lines {' '.join(places)}] {done.cpu:.0f} CPU s"


def minified(report: Report) -> tuple[bool, str]:
    """Run tc-minify; returns whether its result counts, and what it is."""
    with tempfile.TemporaryDirectory(prefix="tc-bench-") as name:
        folder = Path(name)
        (folder / "script.py").write_text(report.text)
        done = run(["-m", "tc.minifier", "script.py", "--json"], folder)
        if not done.out.startswith("{"):
            return False, (done.err.splitlines() or ["no word"])[-1][:100]
        found = json.loads(done.out)
        text = (folder / "minified.py").read_text()
    good = found["verified"] == found["runs"] and report.operation in text
    why = f"{found['lines']} lines, {found['verified']} of {found['runs']}, {done.cpu:.0f} CPU s"
    return good, why


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("numbers", nargs="*", type=int)
    parser.add_argument("--shows", action="store_true", help="tc-bisect alone")
    options = parser.parse_args()
    chosen = [one for one in REPORTS if not options.numbers or one.number in options.numbers]
    both = 0
    for report in chosen:
        named, why = shows(report)
        print(f"{'ok ' if named else 'NOT'} #{report.number} tc-bisect: {why}", flush=True)
        if options.shows:
            both += named
            continue
        good, why = minified(report)
        print(f"{'ok ' if good else 'NOT'} #{report.number} tc-minify: {why}", flush=True)
        both += named and good
    print(f"right by {'tc-bisect' if options.shows else 'both tools'}: {both} of {len(chosen)}")


if __name__ == "__main__":
    main()
