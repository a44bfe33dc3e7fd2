"""Prints the artifact of each stage for one small function, and puts them into ARCHITECTURE.md.

    python bench/artifacts.py            # print them
    python bench/artifacts.py --write    # replace the blocks of ARCHITECTURE.md

The function is compiled in this process with empty caches. The passes of `compiler.pipeline` and
the translation of the frame are wrapped, so the stages' own artifacts are printed.
"""

from __future__ import annotations

import argparse
import contextlib
import dis
import io
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from types import CodeType
from typing import Any

import torch

import tc
from tc.compiler import frames, pipeline
from tc.trace import capture_events
from tc.trace.events import AtenGraph, Guards, OutputGraph

ARCHITECTURE = Path(__file__).resolve().parent.parent / "ARCHITECTURE.md"
WIDTH = 100
#: one block each, in the order of the stages; no `python`, which ruff would format again
STAGES = {
    "captured graph": "text",
    "guards": "text",
    "residual code": "text",
    "ATen graph": "text",
    "loop graph": "text",
    "plan": "text",
    "wrapper": "text",
    "kernels": "c",
}


def f(x: Any, w: Any) -> Any:
    return torch.relu(x @ w).sum(-1)


def collected() -> dict[str, str]:
    """Compile `f` once and return the text of each stage's artifact."""
    torch.set_num_threads(1)
    made: dict[str, Any] = {}

    def kept(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            made.setdefault(name, result)
            return result

        return wrapped

    pipeline.PASSES = tuple(replace(one, run=kept(one.name, one.run)) for one in pipeline.PASSES)
    frames.translate = kept("capture", frames.translate)
    with capture_events() as events:
        tc.compile(f)(torch.randn(64, 128), torch.randn(128, 32))
    program = made["codegen"][0]
    return {
        "captured graph": events.of(OutputGraph)[0].code,
        "guards": events.of(Guards)[0].text,
        "residual code": disassembled(made["capture"].code),
        "ATen graph": events.of(AtenGraph)[0].code,
        "loop graph": str(made["loops.lower"]),
        "plan": str(made["schedule"]),
        "wrapper": program.wrapper_source,
        "kernels": program.c_source,
    }


def disassembled(code: CodeType) -> str:
    """Return the bytecode without offsets and caches, which differ between runs."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        dis.dis(code)
    return re.sub(r"(?m)^[ \d>]*?\d+ (?=[A-Z_]{3})", "", out.getvalue())


def trimmed(name: str, text: str) -> str:
    """Cut what is long, and say so by an ellipsis."""
    if name == "kernels":  # helper functions stand before the first kernel
        text = "…\n" + text[text.index("/* aten") :]
    text = text.replace(f"{Path(__file__).resolve()}", "artifacts.py")
    text = re.sub(r"0x[0-9a-f]{6,}", "0x…", text)
    lines = (line.rstrip() for line in text.strip().splitlines())
    short = [line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…" for line in lines]
    return re.sub(r"\n{2,}", "\n", "\n".join(short))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="replace the blocks in the document")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TC_CACHE_DIR"] = folder
        texts = {name: trimmed(name, text) for name, text in collected().items()}
    document = ARCHITECTURE.read_text()
    for name, language in STAGES.items():
        block = f"<!-- artifact: {name} -->\n```{language}\n{texts[name]}\n```"
        if not asked.write:
            print(block, end="\n\n")
            continue
        pattern = rf"(?s)<!-- artifact: {name} -->\n```.*?\n```"
        document, count = re.subn(pattern, lambda _, block=block: block, document)
        assert count == 1, f"ARCHITECTURE.md has {count} blocks for: {name}"
    if asked.write:
        ARCHITECTURE.write_text(document)


if __name__ == "__main__":
    main()
