"""Parts of random worlds that are lists of statements on tensors of unusual types and layouts.

The statements are the lines of `world_statements.txt`, with holes. A part draws some of them, puts
some into blocks, and has arguments whose size, memory and gradient change between its calls.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

from world_parts import Part

DTYPES = (
    "float32", "float32", "float32", "float32", "float64", "float64", "float16", "bfloat16",
    "int64", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64", "uint16",
)  # fmt: skip
#: the types of programs that are differentiated
FLOATS = ("float32", "float32", "float32", "float64", "bfloat16", "complex64")
SIZES = (0, 1, 1, 2, 2, 3, 3, 4, 5, 7)
SCALARS = (
    "2", "-3", "0", "1", "7", "-1", "True", "False", "0.5", "-1.5", "2.0", "-0.0", "1e10", "3e38",
    "float('inf')", "float('nan')", "2 ** 31", "255", "-129", "1j", "np.float32(2)",
    "np.float64(-1.5)", "np.int64(3)", "np.int8(-7)", "np.bool_(True)", "torch.tensor(2)",
    "torch.tensor(-1.5)", "torch.tensor(True)", "torch.tensor(3, dtype=torch.int8)", "n", "q",
    "torch.tensor([2.5], dtype=torch.float64)", "x.shape[0]", "-x.shape[-1]", "n * 2", "q / 2",
)  # fmt: skip
INDICES = (
    "0", "-1", "None", "...", ":", "::2", "1:", ":-1", "[0]", "[0, -1]", "n", "-n", "True",
    "torch.tensor(0)", "torch.tensor([0, 0])", "torch.tensor([[0], [-1]])", "mask", "mask[0]",
    "(slice(None), 0)", "(..., 0)", "(None, ..., None)", "([0, 0], [0, 0])", "(0, mask[0])",
    "(mask[:, 0], 0)", "(mask[:, 0], slice(1))", "(torch.tensor([0]), None, torch.tensor([0]))",
    "(slice(None), torch.tensor([0, 0]))", "x.shape[0] - 1", "(torch.tensor([True]), 0)",
    "torch.zeros(0, dtype=torch.long)", "np.int64(0)", "np.array([0, 0])", "slice(0, n)",
    "torch.tensor([0], dtype=torch.uint8)", "torch.tensor([0], dtype=torch.int32)", "q > 0",
)  # fmt: skip
#: blocks around some statements; BODY is their place
BLOCKS = (
    "with torch.no_grad():\n    BODY", "with torch.enable_grad():\n    BODY",
    "with torch.inference_mode():\n    BODY", "for _ in range(2):\n    BODY",
    "with torch.autocast('cpu', dtype=torch.bfloat16):\n    BODY", "if n > 1:\n    BODY",
    "try:\n    BODY\nexcept (RuntimeError, IndexError, TypeError, ValueError) as e:\n"
    "    seen.append(type(e).__name__)",
    "try:\n    BODY\nfinally:\n    seen.append('finally')", "if q > 0:\n    BODY",
    "with torch.set_grad_enabled(n > 2):\n    BODY", "if x.dim() > 1:\n    BODY",
    "with torch.random.fork_rng():\n    torch.manual_seed(n)\n    BODY",
    "def inner():\n    nonlocal x, y\n    BODY\ninner()", "while n > 1:\n    n -= 1\n    BODY",
    "for row in x:\n    BODY\n    break", "broken()\nBODY",
)  # fmt: skip
#: what may be the second argument beside the first, which is ``v``
ALIASES = ("v", "v[:1]", "v.T", "v[...]", "v.detach()", "v.reshape(-1)[:1]", "v[:, :1]")
HEAD = """
import tc
def broken(): tc.graph_break()
def make(dtype, shape, seed, odd=False):
    kind = getattr(torch, dtype)
    g = np.random.default_rng(seed)
    v = torch.from_numpy(g.integers(-6, 7, shape)).reshape(shape)
    if kind is torch.bool: return v > 0
    if odd and v.numel() and not kind.is_complex:
        if kind.is_floating_point:
            v = v.double()
            v.view(-1)[seed % v.numel()] = (math.nan, math.inf, -0.0, -math.inf)[seed % 4]
        else:
            v.view(-1)[seed % v.numel()] = (torch.iinfo(kind).max, torch.iinfo(kind).min)[seed % 2]
    v = v.to(kind)
    return v / 4 if kind.is_floating_point or kind.is_complex else v
def layout(v, kind):
    if kind == 1: return v.T.contiguous().T
    if kind == 2: return torch.cat([v.flatten(), v.flatten()])[v.numel():].view(v.shape)
    return torch.stack([v, v], -1)[..., 1]
def leaf(v): return v.requires_grad_()
buf, where, held = torch.zeros(2, 2), torch.zeros(0, dtype=torch.long), [torch.ones(2, 2)]
"""


def _tables() -> dict[str, tuple[str, ...]]:
    """Return the statements of each section of the file beside this one."""
    found: dict[str, list[str]] = {}
    for line in Path(__file__).with_suffix(".txt").read_text().splitlines():
        if line.startswith("["):
            statements = found.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            statements.append(line)
    return {name: tuple(lines) for name, lines in found.items()}


TABLES = _tables()


def statements(rng: random.Random) -> Part:
    """Draw a program of one to four statements, and changes of its arguments."""
    is_trained = rng.random() < 0.3
    kinds = [rng.choice(FLOATS if is_trained else DTYPES) for _ in "xy"]
    if rng.random() < 0.5:
        kinds[1] = kinds[0]
    lines = ["x, y = x * 1, y + 0"] if is_trained and rng.random() < 0.7 else []
    scalars = rng.choices(SCALARS, k=4)
    for number in range(rng.randint(1, 4)):
        lines += _statement(rng, number, scalars)
    body = "\n".join(lines).replace("\n", "\n    ")
    odd = rng.random() < 0.4
    args = [_arguments(rng, kinds, odd, is_trained) for _ in range(5)]
    setup = f"""{HEAD}
def f(x, y, n, q):
    seen, mask = [], x > 0 if x.dtype.is_floating_point else x == x
    {body}
    return seen
{args[0]}
backward = {is_trained}
watch = lambda: (buf, where, held, torch.rand(1).item())
"""
    return Part("statements", setup, tuple(args[1:]))


def _statement(rng: random.Random, number: int, scalars: Sequence[str]) -> list[str]:
    """Return one statement with what looks at its result; ``x`` may be that result from there."""
    table = rng.choice([*TABLES])
    text = _filled(rng, rng.choice(TABLES[table]), scalars)
    if table == "writes":
        target = text.split(".")[0].split("[")[0].split(" ")[0]
        body = f"{text}\nseen.append({target if target in ('x', 'y') else 'x'})"
    else:
        body = f"v{number} = {text}\nseen.append(v{number})"
    if rng.random() < 0.3:
        block = rng.choice(BLOCKS)
        line = next(line for line in block.split("\n") if "BODY" in line)
        return [block.replace("BODY", body.replace("\n", "\n" + line.partition("BODY")[0]))]
    if table != "writes" and rng.random() < 0.5:
        name = f"v{number}"
        return [body, f"if isinstance({name}, torch.Tensor) and {name}.dim() == 2: x = {name}"]
    return [body]


def _filled(rng: random.Random, text: str, scalars: Sequence[str]) -> str:
    """Fill the holes of a statement; numbers and indices are drawn at each place."""
    draw: dict[str, Callable[[], str]] = {
        "{i}": lambda: rng.choice(INDICES), "{s}": lambda: rng.choice(scalars),
        "{r}": lambda: rng.choice(scalars), "{a}": lambda: rng.choice("xy"),
        "{b}": lambda: rng.choice("xy"), "{d}": lambda: rng.choice(("0", "-1", "1")),
        "{t}": lambda: "torch." + rng.choice(DTYPES),
    }  # fmt: skip
    for hole, value in draw.items():
        while hole in text:
            text = text.replace(hole, value(), 1 if hole in ("{i}", "{s}") else -1)
    return text


def _arguments(rng: random.Random, kinds: Sequence[str], odd: bool, is_trained: bool) -> str:
    n, m = rng.choice(SIZES), rng.choice(SIZES)
    other = rng.choice([(n, m), (n, m), (m,), (n, 1), (1, m), (), (m, n)])
    x, y = (
        _tensor(rng, kind, shape, odd) for kind, shape in zip(kinds, ((n, m), other), strict=True)
    )
    if rng.random() < 0.2:
        y = rng.choice(ALIASES)
    if is_trained:
        x, y = f"leaf({x})", y if y.startswith("v") else f"leaf({y})"
    number, fraction = rng.choice((0, 1, 2, 3, 5)), rng.choice((0.5, -1.25, 2.0, 3.75, 0.0, -7.5))
    return f"args = lambda: (torch.manual_seed(3), (v := {x}, {y}, {number}, {fraction}))[1]"


def _tensor(rng: random.Random, kind: str, shape: tuple[int, ...], odd: bool) -> str:
    text = f"make({kind!r}, {shape}, {rng.randrange(50)}, {odd and rng.random() < 0.5})"
    if len(shape) == 2 and rng.random() < 0.3:
        return f"layout({text}, {rng.randint(1, 3)})"
    return text
