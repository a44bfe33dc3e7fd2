"""A byte-level GPT: learns a text file from nothing, then writes on under a compiler.

    python examples/gpt.py                      # under tc
    python examples/gpt.py --compiler torch     # the same under torch.compile
    TC_LOGS=graph_breaks,recompiles python examples/gpt.py

Nothing here is arranged for the compiler. Two habits of real code show in what it reports: the
context grows by a byte each step, so the second step brings another shape (a recompile, after which
the length is dynamic); and `Writer.forward` looks at a number of its own midway (a graph
break, since that number exists only after the first kernels have run).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parent.parent
BYTES = 256  # the vocabulary: every byte is a token
CONTEXT = 256
WIDTH = 128
HEADS = 4
LAYERS = 4


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        query, key, value = (
            part.view(shape).transpose(1, 2) for part in self.query_key_value(x).chunk(3, dim=-1)
        )
        y = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(x)


class GPT(nn.Module):
    def __init__(self, width: int = WIDTH, heads: int = HEADS, layers: int = LAYERS) -> None:
        super().__init__()
        self.embedding = nn.Embedding(BYTES, width)
        self.position = nn.Parameter(torch.randn(CONTEXT, width) * 0.1)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, BYTES, bias=False)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.head.weight = self.embedding.weight  # tied: a byte reads as it is written

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) + self.position[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Writer(nn.Module):
    """Logits of the next byte; where the model is unsure, sharpened so that it does not babble."""

    def __init__(self, model: GPT, unsure: float = 0.5, temperature: float = 0.6) -> None:
        super().__init__()
        self.model = model
        self.unsure = unsure
        self.temperature = temperature

    def forward(self, tokens: Tensor) -> Tensor:
        logits = self.model(tokens)[0, -1]
        confidence = logits.softmax(dim=-1).max()
        if confidence < self.unsure:
            logits = logits / self.temperature
        return logits


@dataclass
class Result:
    """What `write` did: the text of both, and the seconds of each step of both."""

    compiled_text: bytes
    eager_text: bytes
    compiled_s: list[float]
    eager_s: list[float]

    def speedup(self) -> float:
        """Eager over compiled, medians of the steps after the last compile."""
        half = len(self.eager_s) // 2
        return median(self.eager_s[half:]) / median(self.compiled_s[half:])


def read_bytes(paths: list[Path]) -> Tensor:
    """The files as one tensor of byte values."""
    data = b"\n".join(path.read_bytes() for path in paths)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).long()


def train(model: GPT, data: Tensor, steps: int, *, batch: int = 4, length: int = 128) -> float:
    """Train for a few steps, eagerly; return the last loss in bits a byte."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=max(steps, 1))
    loss = torch.tensor(float("nan"))
    for _ in range(steps):
        starts = torch.randint(len(data) - length - 1, (batch,)).tolist()
        piece = torch.stack([data[start : start + length + 1] for start in starts])
        logits = model(piece[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), piece[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return loss.item() / torch.tensor(2.0).log().item()


def draw(logits: Tensor, generator: torch.Generator) -> Tensor:
    """Draw the next byte, as a tensor of shape (1, 1)."""
    return torch.multinomial(logits.softmax(dim=-1), 1, generator=generator)[None]


@torch.no_grad()
def write(
    eager: Callable[[Tensor], Tensor],
    compiled: Callable[[Tensor], Tensor],
    prompt: Tensor,
    count: int,
) -> Result:
    """Write `count` bytes with each of both, step by step, and check that they agree."""
    mine, theirs = prompt, prompt
    my_dice = torch.Generator().manual_seed(1)
    their_dice = torch.Generator().manual_seed(1)
    compiled_s, eager_s = [], []
    for _ in range(count):
        start = time.perf_counter()
        logits = compiled(mine)
        middle = time.perf_counter()
        expected = eager(theirs)
        eager_s.append(time.perf_counter() - middle)
        compiled_s.append(middle - start)
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
        mine = torch.cat([mine, draw(logits, my_dice)], dim=1)
        theirs = torch.cat([theirs, draw(expected, their_dice)], dim=1)
    written = [bytes(text[0, prompt.shape[1] :].tolist()) for text in (mine, theirs)]
    return Result(written[0], written[1], compiled_s, eager_s)


def compiler(name: str) -> Callable[[nn.Module], Callable[[Tensor], Tensor]]:
    """`tc.compile`, `torch.compile`, or nothing."""
    if name == "tc":
        import tc

        return tc.compile
    return torch.compile if name == "torch" else lambda module: module


def main(arguments: list[str] | None = None) -> Result:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--compiler", choices=("tc", "torch", "eager"), default="tc")
    parser.add_argument("--steps", type=int, default=500, help="training steps (%(default)s)")
    parser.add_argument("--bytes", type=int, default=80, help="bytes to write (%(default)s)")
    # A model this small gains little from more threads, and loses much on a busy machine.
    parser.add_argument("--threads", type=int, default=1, help="(%(default)s)")
    parser.add_argument("--prompt", default="Redistributions of source code ")
    parser.add_argument("text", type=Path, nargs="*", help="files to learn (LICENSE)")
    options = parser.parse_args(arguments)

    prompt = torch.tensor([list(options.prompt.encode())])
    if not 0 < prompt.shape[1] <= CONTEXT - options.bytes:
        parser.error(f"prompt and --bytes together must fit the context of {CONTEXT} bytes")
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    data = read_bytes(options.text or [ROOT / "LICENSE"])
    model = GPT()
    start = time.perf_counter()
    bits = train(model, data, options.steps)
    took = time.perf_counter() - start
    size = sum(p.numel() for p in model.parameters()) / 1e6
    print(
        f"trained    {size:.2f} M parameters on {len(data)} bytes, {options.steps} steps", end=" "
    )
    print(f"in {took:.1f} s, to {bits:.2f} bits a byte")

    writer = Writer(model.eval())
    result = write(writer, compiler(options.compiler)(writer), prompt, options.bytes)
    if result.compiled_text != result.eager_text:
        raise AssertionError(f"compiled and eager wrote different texts: {result}")
    print(f"wrote      {options.prompt}|{result.compiled_text.decode(errors='replace')}")
    print(f"matches    eager, all {options.bytes} steps: logits within 1e-4, the same text")
    fastest = 1 / median(result.compiled_s[options.bytes // 2 :])
    print(f"speed      {fastest:.0f} bytes/s compiled, {result.speedup():.2f}x eager", end="; ")
    print(f"first step {result.compiled_s[0]:.1f} s, second {result.compiled_s[1]:.1f} s")
    return result


if __name__ == "__main__":
    main()
