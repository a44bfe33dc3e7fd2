"""Models trained for 50 steps, compiled and eager, from the same seeds: the same at each step.

Optimizers here are SGD with momentum, or Adam with an ``eps`` near the size of the gradients. With
Adam's own 1e-8 a parameter whose gradient is rounding noise moves by the whole learning rate in the
direction of that noise, and two runs that differ in the last bit anywhere soon differ in all.
"""

from __future__ import annotations

import copy
from types import SimpleNamespace

import gpt
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tc

STEPS = 50
CLASSES = 4


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 16, 2, dropout=0.2, batch_first=True)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


class DroppingGpt(nn.Module):
    """The demo GPT, which has no dropout of its own, with some after each block."""

    def __init__(self):
        super().__init__()
        self.model = gpt.GPT(32, 4, 2)
        for i, block in enumerate(self.model.blocks):
            self.model.blocks[i] = nn.Sequential(block, nn.Dropout(0.1))

    def forward(self, tokens):
        return self.model(tokens)


def mlp():
    return nn.Sequential(
        nn.Linear(16, 64), nn.GELU(), nn.Dropout(0.2), nn.Linear(64, 64), nn.LayerNorm(64),
        nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, CLASSES),
    )  # fmt: skip


def cnn(activation=nn.ReLU, pool=nn.MaxPool2d):
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), activation(), pool(2),
        nn.Dropout2d(0.1), nn.Conv2d(8, 16, 3, bias=False), nn.BatchNorm2d(16), activation(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(16, CLASSES),
    )  # fmt: skip


def smooth_cnn():
    """Return one without kinks: where rounding puts a value on the other side, runs part."""
    return cnn(nn.SiLU, nn.AvgPool2d)


def classified(*shape):
    """Return a maker of batches of noise with random classes."""
    return lambda: (torch.randn(shape), torch.randint(0, CLASSES, shape[:1]))


def sequences(vocabulary, *shape):
    """Return a maker of batches of tokens, each with the tokens to predict."""
    return lambda: (torch.randint(vocabulary, shape), torch.randint(vocabulary, shape))


def classify(model, x, y):
    return F.cross_entropy(model(x), y)


def count_tokens(model, x, y):
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


MODELS = {
    "mlp": (mlp, classified(16, 16), classify),
    "cnn": (cnn, classified(8, 3, 12, 12), classify),
    "smooth_cnn": (smooth_cnn, classified(8, 3, 12, 12), classify),
    "lstm": (Lstm, classified(8, 6, 8), classify),
    "gpt": (DroppingGpt, sequences(gpt.BYTES, 2, 24), count_tokens),
}


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3, eps=1e-2)


def setting(name):
    """Return a model, its batches and its loss, the same at each call."""
    make, batch, loss = MODELS[name]
    torch.manual_seed(0)
    model = make()
    return SimpleNamespace(model=model, batches=[batch() for _ in range(STEPS)], loss=loss)


def train(model, batches, step, optimizer, update=None):
    """Train; return the loss of each step and the gradients of the first."""
    torch.manual_seed(5)
    losses, first = [], None
    for x, y in batches:
        loss = step(model, x, y)
        loss.backward()
        first = first or {name: p.grad.clone() for name, p in model.named_parameters()}
        (update or optimizer.step)()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses), first


def drift(given, optimizer):
    """Return how far eager's losses come to lie from its own when each weight is an ulp off."""
    runs = []
    for ulps in (0, 1):
        model = copy.deepcopy(given.model)
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1 + ulps * torch.finfo(p.dtype).eps)
        runs.append(train(model, given.batches, given.loss, optimizer(model))[0])
    return (runs[0] - runs[1]).abs().cummax(0)[0]


def check(eager, actual, drifted):
    """Compare two trainings, and see that both ran to the end.

    Losses differ by no more than the dtype's tolerance, or what an ulp in the weights does.
    """
    (want, wanted), (got, gradients) = eager, actual
    assert want.isfinite().all() and want.unique().numel() > STEPS // 2
    rtol, atol = TOLERANCE[want.dtype]
    assert ((got - want).abs() <= torch.maximum(atol + rtol * want.abs(), 4 * drifted)).all()
    # One scale for all: a bias before a batch norm has a gradient that cancels to rounding noise.
    eps = torch.finfo(want.dtype).eps
    noise = 16 * eps * max(float(gradient.abs().max()) for gradient in wanted.values())
    for name, gradient in wanted.items():
        close = torch.isclose(gradients[name], gradient, rtol=256 * eps, atol=noise)
        assert close.all(), name


TOLERANCE = {torch.float64: (1e-7, 1e-7), torch.float32: (1.3e-6, 1e-5)}


def in_dtype(given, dtype):
    """Return a setting with weights and inputs in another dtype."""
    batches = [(x.to(dtype) if x.is_floating_point() else x, y) for x, y in given.batches]
    return SimpleNamespace(model=given.model.to(dtype), batches=batches, loss=given.loss)


def compare(given, optimizer=sgd):
    """Train eagerly and compiled."""
    eager, got = (
        train(model := copy.deepcopy(given.model), given.batches, step, optimizer(model))
        for step in (given.loss, tc.compile(given.loss, fullgraph=True))
    )
    check(eager, got, drift(given, optimizer))


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "name", ["mlp", "smooth_cnn", "lstm", pytest.param("gpt", marks=pytest.mark.slow)]
)
def test_losses_and_gradients_are_eagers(name):
    compare(setting(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_in_double(name):
    compare(in_dtype(setting(name), torch.float64))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "smooth_cnn", "lstm", "gpt"])
def test_with_adam(name):
    compare(setting(name), adam)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["mlp", "smooth_cnn"])
def test_whole_model_compiled(name):
    given = setting(name)
    models = [copy.deepcopy(given.model) for _ in range(2)]
    compiled = tc.compile(models[1], fullgraph=True)
    eager = train(models[0], given.batches, given.loss, sgd(models[0]))
    got = train(
        models[1], given.batches, lambda _, x, y: given.loss(compiled, x, y), sgd(models[1])
    )
    check(eager, got, drift(given, sgd))
    for name, buffer in models[0].named_buffers():
        torch.testing.assert_close(models[1].get_buffer(name), buffer)


@pytest.mark.sample(1)
@pytest.mark.parametrize("make", [sgd, adam])
def test_compiled_optimizer_step(make):
    given = setting("mlp")
    models = [copy.deepcopy(given.model) for _ in range(2)]
    eager = train(models[0], given.batches, given.loss, make(models[0]))
    optimizer = make(models[1])
    step, update = tc.compile(given.loss), tc.compile(lambda: optimizer.step())
    check(eager, train(models[1], given.batches, step, optimizer, update), drift(given, make))
    for p, q in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(q, p, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["mlp", pytest.param("gpt", marks=pytest.mark.slow)])
def test_autocast(name):
    given = setting(name)
    plain = given.loss

    def loss(model, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return plain(model, x, y)

    (want, gradients), (got, actual) = (
        train(model := copy.deepcopy(given.model), given.batches, step, sgd(model))
        for step in (loss, tc.compile(loss, fullgraph=True))
    )
    torch.testing.assert_close(got, want, rtol=1.6e-2, atol=1e-5)
    for key, gradient in gradients.items():
        assert (actual[key] - gradient).norm() <= 1.6e-2 * gradient.norm(), key


TOKENS = 64
COMMON = {
    "vocab_size": TOKENS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64, "max_position_embeddings": 32,
}  # fmt: skip
TRANSFORMERS = {
    "bert": ("BertConfig", "BertForMaskedLM", COMMON),
    "gpt2": (
        "GPT2Config", "GPT2LMHeadModel",
        {"vocab_size": TOKENS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32},
    ),
    "llama": ("LlamaConfig", "LlamaForCausalLM", {**COMMON, "attention_dropout": 0.1}),
    "t5": (
        "T5Config", "T5ForConditionalGeneration",
        {
            "vocab_size": TOKENS, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2,
            "num_heads": 4, "decoder_start_token_id": 0, "pad_token_id": 0,
        },
    ),
}  # fmt: skip


def prediction_loss(model, x, y):
    """Return the model's own loss; GPT-2's warns first, which breaks the graph."""
    if model.config.model_type == "gpt2":
        return F.cross_entropy(model(input_ids=x).logits.flatten(0, 1), y.flatten())
    return model(input_ids=x, labels=y).loss


def transformer(name):
    """Return the setting of a model of `transformers` with a small configuration."""
    transformers = pytest.importorskip("transformers")
    config, kind, options = TRANSFORMERS[name]
    torch.manual_seed(0)
    model = getattr(transformers, kind)(getattr(transformers, config)(**options)).train()
    batch = sequences(TOKENS, 2, 12)
    return SimpleNamespace(
        model=model, batches=[batch() for _ in range(STEPS)], loss=prediction_loss
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformers(name):
    compare(transformer(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "gpt2"])  # the others' norms compute in float32
def test_transformers_in_double(name):
    compare(in_dtype(transformer(name), torch.float64))


@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_whole_transformers(name):
    given = transformer(name)
    models = [copy.deepcopy(given.model) for _ in range(2)]
    compiled = tc.compile(models[1], fullgraph=True)
    eager = train(models[0], given.batches, prediction_loss, sgd(models[0]))
    got = train(
        models[1], given.batches, lambda _, x, y: prediction_loss(compiled, x, y), sgd(models[1])
    )
    check(eager, got, drift(given, sgd))
