"""Examples of PyTorch's torch.compile tutorials and programming-model pages, under three entrances.

    python bench/tutorials.py            # prints the table of docs/tutorials-table.md
    python bench/tutorials.py --write    # and puts it there
    python bench/tutorials.py --only torch:tc --example cond

Each example is new, after the facts of its page: what it shows, and with which features. It
runs by eager, with `torch.compile` (PyTorch, backend "aot_eager"), `tc.compile` and
``torch.compile(backend="tc")``, an entrance a process. A row says whether results equal eager's,
and how many graphs, graph breaks and compiles beyond the first of a function there were.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import torch
import tutorials_dynamic  # noqa: F401 -- it adds examples
import tutorials_recipes  # noqa: F401 -- and it
import tutorials_tools  # noqa: F401 -- and it
from torch.utils._pytree import tree_leaves
from tutorials_examples import EXAMPLES, STATE

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "tutorials-table.md"
ENTRANCES: Final = ("torch", "tc", "torch:tc")
BEGIN: Final = "<!-- table of bench/tutorials.py -->\n"

Api = SimpleNamespace


def api_of(entrance: str) -> tuple[Callable[..., Any], Api]:
    """Return `compile` and the names beside it, of one entrance."""
    if entrance == "tc":
        import tc
        import tc.compiler.api

        names = {name: getattr(tc, name) for name in dir(tc) if not name.startswith("__")}
        names |= {"plain": tc.compile, "in_place": tc.compiler.api.compile_in_place}
        return tc.compile, Api(**names, compiled_backward=compiled_backward)
    torch.compiler.reset()  # loads it
    dynamo = sys.modules["torch._dynamo"]
    if entrance == "torch:tc":
        importlib.import_module("tc.compiler.api")
    names = {name: getattr(dynamo, name) for name in dir(dynamo) if not name.startswith("__")}
    names |= {name: getattr(torch.compiler, name) for name in torch.compiler.__all__}
    names |= {"config": dynamo.config, "counters": dynamo.utils.counters, "plain": torch.compile}
    backend = "tc" if entrance == "torch:tc" else "aot_eager"
    names |= {"set_logs": torch._logging.set_logs, "compiled_backward": compiled_backward}
    names["mark_unbacked"] = dynamo.decorators.mark_unbacked
    names["in_place"] = lambda layer: layer.compile(backend=backend)

    def compile(target: Any = None, **settings: Any) -> Any:
        return torch.compile(target, backend=backend, **settings)

    return compile, Api(**names)


def compiled_backward(compiler: Callable[..., Any]) -> contextlib.AbstractContextManager[Any]:
    """Have PyTorch's compiled autograd record each backward, and a compiler compile what it did."""
    torch.compiler.reset()  # loads it
    recorder: Any = sys.modules["torch._dynamo"].compiled_autograd
    return recorder._enable(compiler)


def by_eager(function: Callable[..., Any], api: Api) -> Any:
    """Return an example's results without a compiler."""

    def compile(target: Any = None, **settings: Any) -> Any:
        return (lambda one: one) if target is None else target

    STATE.eager = True
    try:
        plain = {
            "compiled_backward": lambda _: contextlib.nullcontext(),
            "plain": compile,
            "graph_break": lambda *_: None,
            "in_place": lambda layer: None,
        }
        return function(compile, Api(**{**vars(api), **plain}))
    finally:
        STATE.eager = False


def run(entrance: str, only: str) -> dict[str, dict[str, Any]]:
    """Run the examples under one entrance."""
    compile, api = api_of(entrance)
    found: dict[str, dict[str, Any]] = {}
    for name, (_, _, function) in EXAMPLES.items():
        if only and name != only:
            continue
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want = by_eager(function, api)
            api.reset()
            api.counters.clear()
            try:
                got = function(compile, api)
            except Exception as error:
                found[name] = {"result": f"{type(error).__name__}: {str(error)[:200]}"}
                continue
        stats = api.counters["stats"]
        found[name] = {
            "result": _compare(name, got, want),
            "graphs": int(stats.get("unique_graphs", 0)),
            "breaks": sum(api.counters["graph_break"].values()),
        }
    return found


def _compare(name: str, got: Any, want: Any) -> str:
    actual, theirs = tree_leaves(got), tree_leaves(want)
    if name == "own_backend":
        actual, theirs = actual[:1], theirs[:1]
    try:
        torch.testing.assert_close(actual, theirs)
    except AssertionError as error:
        return "differs: " + str(error).replace("\n", " ")[:120]
    return "equal"


def in_process(entrance: str, only: str) -> dict[str, dict[str, Any]]:
    """Run the examples under one entrance, in a process of its own."""
    command = [sys.executable, __file__, "--child", entrance, "--example", only]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{entrance}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    result: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return result


def table(found: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Return the table as Markdown: cells of `tc` that are as those of torch.compile say "same"."""
    rows = [
        '| page | example | `torch.compile` | `tc.compile` | `torch.compile(backend="tc")` |\n',
        "| --- | --- | --- | --- | --- |\n",
    ]
    for name, (page, shows, _) in EXAMPLES.items():
        if not any(name in one for one in found.values()):
            continue
        cells = [_cell(found[entrance].get(name)) for entrance in found]
        shown = [cells[0], *("same" if one == cells[0] else one for one in cells[1:])]
        rows.append(f"| {page} | {shows} (`{name}`) | {' | '.join(shown)} |\n")
    return "".join(rows)


def _cell(one: dict[str, Any] | None) -> str:
    if one is None:
        return ""
    if "graphs" not in one:
        return one["result"].replace("|", "/").replace("\n", " ")
    counts = f"{one['graphs']} graphs, {one['breaks']} breaks"
    return counts if one["result"] == "equal" else f"{one['result']}; {counts}".replace("|", "/")


def main() -> None:
    """Run, print, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", default=",".join(ENTRANCES))
    parser.add_argument("--example", default="")
    parser.add_argument("--child", default="")
    options = parser.parse_args()
    if options.child:
        print(json.dumps(run(options.child, options.example)))
        return
    found = {one: in_process(one, options.example) for one in options.only.split(",")}
    text = table(found)
    print(text)
    if options.write:
        head = PAGE.read_text().partition(BEGIN)[0]
        PAGE.write_text(head + BEGIN + text)


if __name__ == "__main__":
    main()
