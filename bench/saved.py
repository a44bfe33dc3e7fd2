"""Saved models loaded where there is no C compiler: what compiles, and seconds to the first result.

    python bench/saved.py --levels x86-64,avx2,avx512

Each model is saved by one process and loaded by others, each with an empty cache and a PATH with
nothing on it. They run the same steps and compare them with eager's. Seconds are those after
``import torch`` and of the model, from `import tc` to the end of the first step; CPU seconds are
those of the process. The last line is a JSON object; the
exit status is 1 where a graph was compiled or a process failed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = """
import json, sys, time
import torch
import zoo_operators  # before torchvision is imported
torch.set_num_threads(1)
torch.manual_seed(0)

def gpt():
    from transformers import GPT2Config, GPT2LMHeadModel
    model = GPT2LMHeadModel(GPT2Config(n_layer=4, n_embd=128, n_head=4, vocab_size=1000)).eval()
    x = torch.randint(0, 1000, (2, 32))
    return model, lambda run: run(x, use_cache=False).logits

def bert():
    from transformers import BertConfig, BertForMaskedLM
    model = BertForMaskedLM(BertConfig(num_hidden_layers=4, hidden_size=128, num_attention_heads=4,
                                       intermediate_size=512, vocab_size=1000)).train()
    x = torch.randint(0, 1000, (2, 32))
    def step(run):
        torch.manual_seed(1)
        model.zero_grad()
        loss = run(x, labels=x).loss
        loss.backward()
        return [loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
    return model, step

def resnet():
    from torchvision.models import resnet18
    model = resnet18().eval()
    x = torch.randn(2, 3, 64, 64)
    return model, lambda run: run(x)

what, name, path = sys.argv[1:]
model, step = {"gpt": gpt, "bert": bert, "resnet": resnet}[name]()
with torch.set_grad_enabled(name == "bert"):
    expected = step(model)
    begun, used = time.perf_counter(), time.process_time()
    import tc
    if what == "save":
        run = tc.compile(model)
        found = step(run)
        seconds, used = time.perf_counter() - begun, time.process_time() - used
        tc.save(path, run)
        compiled = None
    else:
        run = tc.load(path, model)
        found = step(run)
        seconds, used = time.perf_counter() - begun, time.process_time() - used
        tc.reset()
        with tc.trace.capture_events() as events:
            step(run)
        compiled = sum(e.name == "codegen" and e.ph == "B" for e in events
                       if isinstance(e, tc.trace.Span))
torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
print(json.dumps({"seconds": round(seconds, 3), "cpu": round(used, 3), "compiled": compiled}))
"""


def run(what: str, model: str, path: Path, level: str = "") -> dict[str, float]:
    """Run a process that saves or loads a model; raises RuntimeError with what it wrote."""
    with tempfile.TemporaryDirectory(prefix="tc-bench-") as folder:
        variables = {
            **os.environ, "TC_CACHE_DIR": f"{folder}/cache",
            "PYTHONPATH": f"{ROOT}:{ROOT / 'bench'}", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        if what == "load":
            variables |= {"PATH": f"{folder}/nothing", "TC_CPU_LEVEL": level}
        command = [sys.executable, "-c", PROGRAM, what, model, str(path)]
        done = subprocess.run(command, env=variables, capture_output=True, text=True)
        if done.returncode:
            said = [line[:400] for line in done.stderr.splitlines() if line.startswith("tc: ")]
            raise RuntimeError("\n".join([*said, done.stderr[-1500:]]))
        if what == "load" and "tc: " in done.stderr:
            print(done.stderr)
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found


def main() -> int:
    """Save and load the models."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="gpt,bert,resnet")
    parser.add_argument("--levels", default="x86-64,avx2,avx512")
    asked = parser.parse_args()
    wrong, rows = 0, {}
    for model in asked.models.split(","):
        with tempfile.TemporaryDirectory(prefix="tc-bench-") as folder:
            path = Path(folder) / "model.tc"
            try:
                cold = run("save", model, path)
                loaded = {level: run("load", model, path, level) for level in
                          asked.levels.split(",")}  # fmt: skip
            except RuntimeError as error:
                print(f"{model}: {error}")
                wrong += 1
                continue
            wrong += sum(bool(row["compiled"]) for row in loaded.values())
            rows[model] = {level: row["cpu"] for level, row in loaded.items()}
            print(f"{model}: {path.stat().st_size >> 10} KiB, cold {cold['seconds']} s, {loaded}")
    print(json.dumps({"wrong": wrong, "cpu_seconds": rows}))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
