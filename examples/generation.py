"""A language model that learns a few sentences and writes them, with a cache of keys and values.

    TC_LOGS=recompiles python examples/generation.py
    TC_LOGS=recompiles python examples/generation.py --cured

Finding: the cache, a module, counts its tokens in a Python number, `self.length += 1`. An integer
of a module is a constant of the graph, so each token is a recompile (TC201), until the recompile
limit leaves the rest of the text to eager (TC209).
Cure: count in a tensor, write with `index_copy_`, and mask what is not filled yet.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tc

TEXT = "the cat sat on the mat while the dog lay by the door and the rain fell on the roof ."
WORDS = TEXT.split()
VOCABULARY = sorted(set(WORDS))
WIDTH, HEADS, LAYERS, LIMIT = 64, 4, 2, 48

# What a layer asks for its queries: (batch, HEADS, length, WIDTH // HEADS) each, and so the result.
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def causal(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attend to all earlier tokens: what training does, which sees whole sentences."""
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


class Cache(nn.Module):
    """Attends to the tokens so far, one token at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = nn.Buffer(torch.zeros(1, HEADS, LIMIT, WIDTH // HEADS))
        self.values = nn.Buffer(torch.zeros_like(self.keys))
        self.length = 0

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        self.keys[:, :, self.length : self.length + 1] = key
        self.values[:, :, self.length : self.length + 1] = value
        self.length += 1
        keys, values = self.keys[:, :, : self.length], self.values[:, :, : self.length]
        return F.scaled_dot_product_attention(query, keys, values)


class CuredCache(nn.Module):
    """The same with its length in a tensor: every token takes the same graph."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = nn.Buffer(torch.zeros(1, HEADS, LIMIT, WIDTH // HEADS))
        self.values = nn.Buffer(torch.zeros_like(self.keys))
        self.length = nn.Buffer(torch.zeros(1, dtype=torch.long))

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        self.keys.index_copy_(2, self.length, key)
        self.values.index_copy_(2, self.length, value)
        filled = torch.arange(LIMIT) <= self.length
        self.length += 1
        return F.scaled_dot_product_attention(query, self.keys, self.values, attn_mask=filled[None])


class Layer(nn.Module):
    """Attention and a perceptron, both added to what comes in."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor, attend: Attention) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for part in self.query_key_value(self.first(x)).chunk(3, dim=-1)
        )
        x = x + attend(query, key, value).transpose(1, 2).flatten(2)
        return x + self.mlp(self.second(x))


class Model(nn.Module):
    """Logits of the next word: (batch, length, words)."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(VOCABULARY), WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, len(VOCABULARY))

    def forward(self, tokens: Tensor, attends: Sequence[Attention]) -> Tensor:
        x = self.embedding(tokens)
        for layer, attend in zip(self.layers, attends, strict=True):
            x = layer(x, attend)
        return self.head(x)


def train(steps: int) -> Model:
    """Return a model that has learned to repeat the text."""
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    text = torch.tensor([[VOCABULARY.index(word) for word in WORDS * 2]])
    for _ in range(steps):
        logits = model(text[:, :-1], [causal] * LAYERS)
        loss = F.cross_entropy(logits[0], text[0, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


@torch.no_grad()
def write(model: Callable[..., Tensor], cache: type[Cache] | type[CuredCache], count: int) -> str:
    """Write `count` words after "the", the likeliest one each time."""
    caches = [cache() for _ in range(LAYERS)]
    token = torch.tensor([[VOCABULARY.index("the")]])
    words = ["the"]
    for _ in range(count):
        token = model(token, caches)[:, -1:].argmax(-1)
        words.append(VOCABULARY[token.item()])
    return " ".join(words)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cured", action="store_true", help="with one graph for all tokens")
    parser.add_argument("--steps", type=int, default=150, help="training steps (%(default)s)")
    parser.add_argument("--words", type=int, default=20, help="words to write (%(default)s)")
    options = parser.parse_args(arguments)
    if options.steps < 1:
        parser.error("--steps must be 1 or more")
    if not 0 < options.words < LIMIT:
        parser.error(f"--words must be from 1 to {LIMIT - 1}: the cache holds {LIMIT} tokens")
    torch.set_num_threads(1)

    model = train(options.steps).eval()
    cache = CuredCache if options.cured else Cache
    text = write(tc.compile(model), cache, options.words)
    if text != write(model, cache, options.words):
        raise AssertionError(f"compiled and eager wrote different texts; compiled: {text}")
    print(f"wrote     {text}")
    print("matches   eager, word by word")


if __name__ == "__main__":
    main()
