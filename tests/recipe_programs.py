"""Each recipe of `tc.trace.recipes`, made to a program: the text before, the text after.

Run as a script it runs all of them under one compiler, in one process, and prints as JSON what
each printed: ``python tests/recipe_programs.py FOLDER`` with FINDINGS_SIDE and a trace folder set.
"""

from __future__ import annotations

import contextlib
import io
import json
import linecache
import os
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "bench"))

from findings_programs import HEADER, PROGRAMS

from tc.trace import recipes
from tc.trace.recipes import Recipe


@dataclass(frozen=True)
class Demo:
    """A recipe, the program it is made to, and the edits (old text, new text) that it asks for."""

    recipe: Recipe
    program: str
    edits: tuple[tuple[str, str], ...]
    sides: tuple[str, ...] = ("torch", "tc")

    @property
    def name(self) -> str:
        """A name for files: of the recipe and the program."""
        names = {id(value): key for key, value in vars(recipes).items()}
        return f"{names[id(self.recipe)].lower()}__{self.program}"

    @property
    def before(self) -> str:
        return HEADER + PROGRAMS[self.program].text

    @property
    def after(self) -> str:
        text = self.before
        for old, new in self.edits:
            assert old in text, f"{self.name}: {old!r} is not in the program"
            text = text.replace(old, new)
        return text


def _demo(recipe: Recipe, program: str, *edits: tuple[str, str], sides: str = "torch tc") -> Demo:
    return Demo(recipe, program, edits, tuple(sides.split()))


_COMPILED = "g = compile(f)"
_DYNAMIC = (_COMPILED, "g = compile(f, dynamic=True)")
R = recipes
DEMOS = (
    _demo(R.MARK, "size", (
        "    show(g(torch.ones(n, 2)))",
        "    x = torch.ones(n, 2)\n    maybe_mark_dynamic(x, 0)\n    show(g(x))")),
    _demo(R.DYNAMIC, "size", _DYNAMIC),
    _demo(R.DYNAMIC, "kv_dict", ("f = compile(step)", "f = compile(step, dynamic=True)")),
    _demo(R.DYNAMIC, "size_attribute", ("g = compile(m)", "g = compile(m, dynamic=True)")),
    _demo(R.PAD, "size", (
        "torch.ones(n, 2)", "torch.nn.functional.pad(torch.ones(n, 2), (0, 0, 0, 5 - n))")),
    _demo(R.MARK_MADE, "size_attribute", (
        "    m.table = torch.ones(n, 2)\n",
        "    m.table = torch.ones(n, 2)\n    maybe_mark_dynamic(m.table, 0)\n")),
    _demo(R.ALLOCATE, "kv_dict",
        ('def step(x, past):\n    past["k"] = torch.cat([past["k"], x], 1)\n'
         '    past["v"] = torch.cat([past["v"], x * 2], 1)\n',
         'def step(x, past, at):\n    past["k"].index_copy_(1, at, x)\n'
         '    past["v"].index_copy_(1, at, x * 2)\n'),
        ('past = {"k": torch.ones(1, 2, 4), "v": torch.ones(1, 2, 4)}',
         'past = {"k": torch.zeros(1, 8, 4), "v": torch.zeros(1, 8, 4)}\n'
         'past["k"][:, :2] = 1\npast["v"][:, :2] = 1'),
        ("f(torch.ones(1, 1, 4), past)", "f(torch.ones(1, 1, 4), past, torch.tensor([2 + i]))")),
    _demo(R.AT_LEAST_TWO, "kv_argument", ("torch.zeros(1, 1, 8)", "torch.zeros(1, 2, 8)")),
    _demo(R.COMPUTE, "number_in_text",
        ("def f(x, n):", "def f(x, size, n):"), ('len(f"{n:>4}" * n)', "size"),
        ("g(x, n)", 'g(x, torch.tensor(float(len(f"{n:>4}" * n))), n)'), sides="tc"),
    _demo(R.DYNAMIC_NUMBERS, "int_argument", _DYNAMIC),
    _demo(R.DYNAMIC_NUMBERS, "float_argument", _DYNAMIC),
    _demo(R.ZERO_D, "int_argument", ("g(x, n)", "g(x, torch.tensor(n))")),
    _demo(R.ZERO_D, "float_argument", ("g(x, lr)", "g(x, torch.tensor(lr))")),
    _demo(R.ZERO_D, "closure_number", ("    scale = 1\n", "    scale = torch.tensor(1)\n")),
    _demo(R.ZERO_D, "global_number", ("SCALE = 1\n", "SCALE = torch.tensor(1)\n"),
        ("    SCALE = n\n", "    SCALE = torch.tensor(n)\n")),
    _demo(R.ZERO_D, "function_identity", ("i=i", "i=torch.tensor(i)")),
    _demo(R.BUFFER, "int_attribute", (
        "self.step = 0", 'self.register_buffer("step", torch.tensor(0), persistent=False)')),
    _demo(R.BUFFER, "float_attribute",
        ("self.temperature = 1.0",
         'self.register_buffer("temperature", torch.tensor(1.0), persistent=False)'),
        ("m.temperature = t", "m.temperature = torch.tensor(t)")),
    _demo(R.UNSPEC_INT, "int_attribute", (
        "m = M()", "torch._dynamo.config.allow_unspec_int_on_nn_module = True\nm = M()"),
        sides="torch"),
    _demo(R.WHERE, "bool_argument",
        ("return x * 2 if flag else x + 1", "return torch.where(flag, x * 2, x + 1)"),
        ("g(x, flag)", "g(x, torch.tensor(flag))")),
    _demo(R.APART, "equal_sizes", (
        "w = torch.ones(6, 2)",
        "torch.fx.experimental._config.use_duck_shape = False\nw = torch.ones(6, 2)")),
    _demo(R.DYNAMIC_APART, "twin_size", _DYNAMIC, (
        "w = torch.ones(6, 2)",
        "torch.fx.experimental._config.use_duck_shape = False\nw = torch.ones(6, 2)")),
    _demo(R.TEST_OUTSIDE, "bool_reported",
        ("def f(x, verbose):\n    if verbose:\n        seen.append(x.shape[0])\n",
         "def f(x):\n"),
        ("    show(g(torch.ones(3), verbose), len(seen))",
         "    x = torch.ones(3)\n    if verbose:\n        seen.append(x.shape[0])\n"
         "    show(g(x), len(seen))")),
    _demo(R.SET_ALIKE, "attribute_later", (
        "one, other = Options(), Options()\n",
        "one, other = Options(), Options()\none.gain = 2.0\n")),
    _demo(R.BRANCHES, "string_argument",
        ('def act(x, mode):\n    if mode == "relu":\n        return torch.relu(x)\n'
         '    if mode == "tanh":\n        return torch.tanh(x)\n    return x.sigmoid()\n'
         "f = compile(act)",
         "def relu(x):\n    return torch.relu(x)\ndef tanh(x):\n    return torch.tanh(x)\n"
         "def sigmoid(x):\n    return x.sigmoid()\n"
         'of = {"relu": compile(relu), "tanh": compile(tanh), "sigmoid": compile(sigmoid)}'),
        ("f(x, mode)", "of[mode](x)")),
    _demo(R.BRANCHES, "enum_argument",
        ("def f(x, kind):\n    if kind is Kind.A:\n        return x + 1\n"
         "    return x * 2 if kind is Kind.B else x * 3\ng = compile(f)",
         "def a(x):\n    return x + 1\ndef b(x):\n    return x * 2\ndef c(x):\n    return x * 3\n"
         "of = {Kind.A: compile(a), Kind.B: compile(b), Kind.C: compile(c)}"),
        ("g(x, kind)", "of[kind](x)")),
    _demo(R.BRANCHES, "builtin_argument",
        ("def f(x, act):\n    return act(x) * 2\ng = compile(f)",
         "def a(x):\n    return torch.relu(x) * 2\ndef b(x):\n    return torch.sigmoid(x) * 2\n"
         "of = {torch.relu: compile(a), torch.sigmoid: compile(b)}"),
        ("g(x, act)", "of[act](x)")),
    _demo(R.NEUTRAL, "none_argument", ("show(g(x))", "show(g(x, torch.full((4,), 2.0)))")),
    _demo(R.BEFORE, "none_attribute", ("self.scale = None", "self.scale = torch.full((4,), 2.0)")),
    _demo(R.ONE_DTYPE, "dtype", (
        "torch.ones(4, dtype=dtype)", "torch.ones(4, dtype=dtype).to(torch.float32)")),
    _demo(R.ONE_NDIM, "rank", ("torch.ones(4, 1)", "torch.ones(4, 1).flatten()"),
        ("torch.ones(4, 1, 1)", "torch.ones(4, 1, 1).flatten()")),
    _demo(R.CONTIGUOUS, "stride", (".t()", ".t().contiguous()")),
    _demo(R.CONTIGUOUS_SET, "stride_attribute", (
        "m.table = table", "m.table = table.contiguous()")),
    _demo(R.CLONE, "stride_of_one", ("torch.ones(4, 9).t()[:1]",
        "torch.ones(4, 9).t()[:1].clone(memory_format=torch.contiguous_format)"),
        ("torch.ones(8, 4)[:1].t().contiguous().t()",
         "torch.ones(8, 4)[:1].clone(memory_format=torch.contiguous_format)")),
    _demo(R.CLONE_SET, "stride_of_one_attribute", ("whole[..., -4:]",
        "whole[..., -4:].clone(memory_format=torch.contiguous_format)")),
    _demo(R.DTYPE_SET, "dtype_attribute", (
        "torch.ones(3, dtype=dtype)", "torch.ones(3, dtype=dtype).to(torch.float32)")),
    _demo(R.DETACH_SET, "requires_grad_attribute", (
        "requires_grad=needed)", "requires_grad=needed).detach()")),
    _demo(R.RATE_TENSOR, "learning_rate", ("lr=0.1", "lr=torch.tensor(0.1)")),
    _demo(R.GROUPS_FIRST, "param_groups",
        ('    if n == 0:\n        opt.add_param_group({"params": [more]})\n', ""),
        ("step = compile(opt.step)",
         'opt.add_param_group({"params": [more]})\nstep = compile(opt.step)')),
    _demo(R.FILL_FIRST, "memo", (
        "f = compile(m)", 'm.mask("causal")\nf = compile(m)')),
    _demo(R.CALL_OUTSIDE, "scheduler", ("    plan.step()\n    return x * 2", "    return x * 2"),
        ("    show(g(torch.ones(3)))", "    plan.step()\n    show(g(torch.ones(3)))"), sides="tc"),
    _demo(R.ONE_DEVICE, "device", ("g(x).shape", 'g(torch.ones(4, device="cpu")).shape')),
    _demo(R.DETACH, "requires_grad", (
        "torch.ones(4, requires_grad=True)", "torch.ones(4, requires_grad=True).detach()")),
    _demo(R.NO_GRAD, "inference_mode", ("torch.inference_mode()", "torch.no_grad()")),
    _demo(R.PAD_LIST, "list_length", (
        "[torch.ones(4)] * n", "[torch.ones(4)] * n + [torch.zeros(4)] * (4 - n)")),
    _demo(R.STACK, "list_length",
        ("return sum(x * 2 for x in xs)", "return (xs * 2).sum(0)"),
        ("g([torch.ones(4)] * n)", "g(torch.stack([torch.ones(4)] * n))")),
    _demo(R.SAME_KEYS, "dict_keys", (
        '{"a": torch.ones(3)}', '{"a": torch.ones(3), "b": torch.zeros(3)}')),
    _demo(R.ONE_TYPE, "type_argument", ("g(x, 2))", "g(x, 2.0))")),
    _demo(R.HOOKS_FIRST, "hook_guarded",
        ("f = compile(m)",
         "m.register_forward_hook(lambda mod, args, out: out * 2)\nf = compile(m)"),
        ("    show(f(x).shape)\n    m.register_forward_hook(lambda mod, args, out: out * 2)\n",
         "    show(f(x).shape)\n"), sides="torch"),
    _demo(R.AROUND, "grad_mode", (
        "show(g(x))\nwith torch.no_grad():\n    show(g(x))",
        "with torch.no_grad():\n    show(g(x))\n    show(g(x))")),
    _demo(R.ONE_BACKEND, "backends",
        ("backend=backend()", "backend=one"), ("for n in", "one = backend()\nfor n in"),
        sides="torch"),
    _demo(R.SET_FIRST, "default_dtype",
        ("show(g(x))\ntorch.set_default_dtype(torch.float64)\nshow(g(x))",
         "torch.set_default_dtype(torch.float64)\nshow(g(x))\nshow(g(x))")),
    _demo(R.ASKED, "condition",
        ("def f(x):\n    if x.shape[0] > 5:\n        return x.sum() * 2\n    return x.sum() + 1\n"
         "g = compile(f, dynamic=True)",
         "def a(x):\n    return x.sum() * 2\ndef b(x):\n    return x.sum() + 1\n"
         "a, b = compile(a, dynamic=True), compile(b, dynamic=True)"),
        ("g(torch.ones(n))", "(a if n > 5 else b)(torch.ones(n))")),
    _demo(R.ARGUMENT, "position",
        ("def add(self, x):", "def add(self, x, at):"), ("self.rows[self.next] = x",
         "self.rows[at] = x"), ("f(torch.ones(2) * i)", "f(torch.ones(2) * i, ring.next)")),
    _demo(R.LEAST, "least_number",
        ("self.time, self.end = 0.25, 2.0", "self.time, self.end = torch.tensor(0.25), 2.0"),
        ("min(0.5, clock.end - clock.time)",
         "torch.minimum(torch.tensor(0.5), clock.end - clock.time)")),
    _demo(R.KEPT_OUTSIDE, "running_list",
        ("def f(scores, x):\n    base = sum(scores.seen) / max(1, len(scores.seen))\n",
         "def f(base, x):\n"),
        ("    scores.seen.append(2.0)\n", ""),
        ("    show(g(scores, torch.ones(3) * n))",
         "    base = torch.tensor(sum(scores.seen) / max(1, len(scores.seen)))\n"
         "    show(g(base, torch.ones(3) * n))\n    scores.seen.append(2.0)")),
    _demo(R.SELECT, "read_index", ("y[i]", "torch.index_select(y, 0, i)"), sides="torch"),
    _demo(R.CALLER, "library_behind_limit", ("len(mode)", "mode"),
        ('f(torch.ones(5, 2), "a" * n)', "f(torch.ones(5, 2), torch.tensor(n))"), sides="tc"),
    _demo(R.FREEZE_FIRST, "frozen_later",
        ("    if n == 1:\n        m.requires_grad_(False)\n", ""),
        ("f = compile(m)", "f = compile(m.requires_grad_(False))")),
    _demo(R.CAST_FIRST, "cast_later", ("    m.to(dtype)\n", "    pass\n"),
        ("f = compile(m)", "f = compile(m.double())"), ("x.to(dtype)", "x.double()")),
    _demo(R.APPEND_OUTSIDE, "appending",
        ("        self.seen.append(x.shape[0])\n        return x * 2",
         "        return x * 2, x.shape[0]"),
        ("    show(f(torch.ones(3)))",
         "    y, n = f(torch.ones(3))\n    log.seen.append(n)\n    show(y)"), sides="torch"),
    _demo(R.LOOP_OUTSIDE, "turns",
        ("def f(x):\n    for _ in range(DEPTH):\n        x = x * 2\n    return x",
         "def f(x):\n    return x * 2"),
        ("    show(g(torch.ones(3)))",
         "    x = torch.ones(3)\n    for _ in range(DEPTH):\n        x = g(x)\n    show(x)")),
    _demo(R.PAD_MULTIPLE, "multiple", ("g(torch.ones(n))",
        "g(torch.nn.functional.pad(torch.ones(n), (0, -n % 4)))")),
    _demo(R.SET_FIRST, "environment", (
        '    os.environ["FINDINGS_TWICE"] = "1"\n', "    pass\n"), ("g = compile(f)",
        'os.environ["FINDINGS_TWICE"] = "1"\ng = compile(f)'), sides="tc"),
    _demo(R.CLONED, "aliases", ("g((t, t))", "g((t, t.clone()))")),
    _demo(R.MEND_BREAK, "passed_on", ("x.sum().item()", "x.sum()")),
)  # fmt: skip

#: Recipes that ask for no edit: the answer is that there is nothing to do.
NOTHING_TO_DO = (
    R.SURROUNDED,
    R.SMALL,
    R.FEW,
    R.SIDES,
    R.BOTH_GRADS,
    R.STRUCTURES,
    R.MODES,
    R.TRAIN_EVAL,
    R.ONE_OR_TWO,
    R.CASTS,
    R.BACKENDS,
    R.DYNAMIC_NOW,
    R.RANGES,
    R.WITHOUT,
    R.LEARNING,
    R.CASTED,
    R.OTHER_GROUPS,
    R.SMALL_NUMBERS,
)
#: Recipes for what depends on the moment, so that no run can be made to show it.
BY_CHANCE = (R.WARM_UP, R.LOCK)


_SETTINGS_AGAIN = """
torch._dynamo.config.allow_unspec_int_on_nn_module = False
torch._dynamo.config.skip_nnmodule_hook_guards = True
torch.fx.experimental._config.use_duck_shape = True
"""


def run_all(folder: Path, side: str) -> dict[str, str]:
    """Run every demonstration of a side; return what each printed, or the error it ended with."""
    said = {}
    for demo in DEMOS:
        for when, text in (("before", demo.before), ("after", demo.after)):
            if side in demo.sides:
                file = folder / f"{demo.name}.{when}.py"
                file.write_text(text)
                said[file.stem] = _run(file, text)
    return said


def _run(file: Path, text: str) -> str:
    import torch

    output = io.StringIO()
    linecache.checkcache(str(file))
    with contextlib.redirect_stdout(output):
        try:
            exec(compile(text, str(file), "exec"), {"__name__": "__main__"})
        except Exception as error:
            print(f"{type(error).__name__}: {error}")
    torch.set_default_dtype(torch.float32)
    exec(_SETTINGS_AGAIN, {"torch": torch})  # a program of torch.compile's users, as the others are
    torch.compiler.reset()
    return output.getvalue()


if __name__ == "__main__":
    print(json.dumps(run_all(Path(sys.argv[1]), os.environ["FINDINGS_SIDE"])))
