"""What a model of equal layers costs to compile, with its layers marked as regions and without.

    python bench/equal_layers.py --layers 48 --compilers tc,torch --models gpt,resnet,llama

CPU seconds of the first call (and of backward), for one layer and for all, by `tc.compile` and
`torch.compile`, each also with the layer's ``forward`` under `nested_compile_region`; then
milliseconds of a step. Each measurement has a process, and caches, of its own, after a small
compile there, so that imports are left out. Llama is transformers', where that is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODELS = ("gpt", "resnet", "llama")
PROGRAM = """
import json, resource, sys, time
import torch
import torch.nn.functional as F
from torch import nn

compiler, model, layers, marked, train = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
torch.set_num_threads(1)
torch.set_grad_enabled(bool(train))
torch.manual_seed(0)


class Attends(nn.Module):
    def __init__(self, width=128, heads=4):
        super().__init__()
        self.heads, self.before, self.after = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        qkv = self.qkv(self.before(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(*qkv, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.after(x))))


class Convolves(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm, self.last = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x):
        return F.relu(x + self.last(self.second(F.relu(self.norm(self.first(x))))))


class Stack(nn.Module):
    def __init__(self, first, layers, last):
        super().__init__()
        self.first, self.layers, self.last = first, nn.ModuleList(layers), last

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return self.last(x)


def region(layer):
    if marked:
        layer.forward = torch.compiler.nested_compile_region(layer.forward)


if model == "gpt":
    region(Attends)
    made = Stack(nn.Embedding(100, 128), [Attends() for _ in range(layers)], nn.Linear(128, 100))
    x = torch.randint(0, 100, (2, 64))
elif model == "resnet":
    region(Convolves)
    made = Stack(nn.Conv2d(3, 32, 3), [Convolves() for _ in range(layers)], nn.Flatten())
    x = torch.randn(2, 3, 18, 18)
else:
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    region(LlamaDecoderLayer)
    made = LlamaForCausalLM(LlamaConfig(
        vocab_size=100, hidden_size=128, intermediate_size=256, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, use_cache=False,
    ))
    x = torch.randint(0, 100, (2, 64))
made.train(bool(train))


def step(f):
    made.zero_grad()
    out = f(x)
    out = getattr(out, "logits", out)
    if train:
        out.square().mean().backward()
    return out


def seconds():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


if compiler == "tc":
    import tc
    compile = tc.compile
else:
    import torch._inductor.config
    torch._inductor.config.compile_threads = 1
    compile = torch.compile
warm = nn.Linear(4, 4)
compile(lambda x: warm(x).sin().sum())(torch.randn(2, 4))
wanted = step(made).detach()
f = compile(made)
begun = seconds()
got = step(f).detach()
cost = seconds() - begun
error = float((got - wanted).abs().max() / wanted.abs().max())
for _ in range(3):
    step(f)
times = []
for _ in range(40):
    at = time.perf_counter()
    step(f)
    times.append(time.perf_counter() - at)
print(json.dumps({"seconds": cost, "step": sorted(times)[8] * 1e3, "error": error}))
"""


def measured(compiler: str, model: str, layers: int, marked: bool, train: bool) -> dict[str, float]:
    """Return CPU seconds, milliseconds of a step and the relative difference from eager.

    Raises:
        RuntimeError: the program failed; the message is the end of what it said.
    """
    with tempfile.TemporaryDirectory(prefix="tc-layers-") as folder:
        program = Path(folder, "program.py")
        program.write_text(PROGRAM)
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "TC_CACHE_DIR": f"{folder}/tc",
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
        }
        asked = [compiler, model, str(layers), str(int(marked)), str(int(train))]
        command = [sys.executable, str(program), *asked]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().rpartition("\n")[2])
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, default=48, help="%(default)s")
    parser.add_argument("--compilers", default="tc", help="tc, torch; %(default)s")
    parser.add_argument("--models", default=",".join(MODELS), help="%(default)s")
    parser.add_argument("--out", type=Path, help="also write each measurement as a line of JSON")
    options = parser.parse_args()
    compilers, models = options.compilers.split(","), options.models.split(",")
    if not {*compilers} <= {"tc", "torch"} or not {*models} <= {*MODELS} or options.layers < 2:
        parser.error(
            f"--compilers takes tc and torch, --models {', '.join(MODELS)}, --layers from 2"
        )
    print(f"{'':32}{'CPU seconds of a compile':>26}{'step, ms':>12}{'error':>10}")
    stacks = ((1, False), (options.layers, False), (options.layers, True))
    for model, train, compiler, stack in product(models, (False, True), compilers, stacks):
        layers, marked = stack
        name = f"{model} {'training' if train else 'forward'} {compiler} {layers}"
        name += " marked" * marked
        try:
            row = measured(compiler, model, layers, marked, train)
        except RuntimeError as error:
            print(f"{name:40} failed: {error}", flush=True)
            continue
        numbers = f"{row['seconds']:18.2f}{row['step']:12.2f}{row['error']:10.1e}"
        print(f"{name:40}{numbers}", flush=True)
        if options.out is not None:
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"name": name, **row}) + "\n")


if __name__ == "__main__":
    main()
