"""Writes a case as a file that fails by itself: imports, one function, inputs, the compile call."""

from __future__ import annotations

import platform
from pathlib import Path

from tc import __version__
from tc.minifier.answer import Answer
from tc.minifier.case import Case
from tc.minifier.identity import ACCEPTS
from tc.minifier.issue import version

BACKWARD = """
def run(g):
    xs = [x.detach().clone().requires_grad_(x.requires_grad) for x in ({arguments},)]
    out = g(*xs)
    {loss}.backward()
    return out, [x.grad for x in xs]
"""
LOSS = "out.sin().sum()"
LOSSES = "sum(o.sin().sum() for o in out if o.requires_grad)"


def full_text(case: Case, answer: Answer, tolerance: float | None = None) -> str:
    """Return the whole file.

    Args:
        tolerance: compare no looser than this; None takes those of `assert_close`.
    """
    case_lines = case.program().splitlines()
    lines = [*header(case, answer), *case_lines, *_backward(case), "",
             *_ending(case, answer, tolerance)]  # fmt: skip
    text = "\n".join(lines) + "\n"
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text


def _backward(case: Case) -> list[str]:
    if not case.backward:
        return []
    loss = LOSS if len(case.outputs) == 1 else LOSSES
    return BACKWARD.format(arguments=", ".join(case.arguments), loss=loss).splitlines()


def body(case: Case, answer: Answer) -> list[str]:
    """Return all but the imports of a case's program, as lines."""
    return [*case.function(), *case.makers(), *_backward(case), *_ending(case, answer, None)]


def header(case: Case, answer: Answer) -> list[str]:
    """What fails, and the user's lines it comes from."""
    lines = title(answer)
    places = dict.fromkeys(step.where for step in case.steps if step.where)
    for where in list(places)[:3]:
        place, _, text = where.partition("\t")
        lines.append(f"# from {Path(place).name}: {text}"[:100])
    return [*lines, *made_by()]


def title(answer: Answer) -> list[str]:
    """What fails, as a comment."""
    return [f"# {line}" for line in _wrapped(f"{answer.kind}: {answer.message}")]


def made_by(runs: str | None = None) -> list[str]:
    """The versions a file was made with, as a comment.

    Args:
        runs: what runs the program, where that is not the Python of this process.
    """
    found = versions() if runs is None else runs
    return [", ".join(filter(None, (f"# tc {__version__}", found)))]


def versions() -> str:
    """Return the versions of torch and of the Python that run this process."""
    torch = version("torch").partition("+")[0]
    return f"{f'torch {torch}, ' if torch else ''}Python {platform.python_version()}"


def _wrapped(text: str) -> list[str]:
    words = " ".join(text.split())
    return [words[:97] + "…"] if len(words) > 98 else [words]


def _ending(case: Case, answer: Answer, tolerance: float | None) -> list[str]:
    written = any(step.mutates for step in case.steps)
    names = case.arguments
    arguments = ", ".join(f"{name}.clone()" if written else name for name in names)
    numbers = {case.names()[item.name] for item in case.inputs if item.fill == "number"}
    if written:
        arguments = ", ".join(name if name in numbers else f"{name}.clone()" for name in names)
    compiled, eager = f"{case.call}({arguments})", f"f({arguments})"
    if case.backward:
        compiled, eager = f"run({case.call})", "run(f)"
    if answer.kind == "accepts" and answer.identity is not None:
        name = answer.identity.types[-1]
        return [compiled, "try:", f"    {eager}", f"except {name} as error:",
                f"    raise AssertionError({ACCEPTS!r}) from error"]  # fmt: skip
    if answer.kind not in ("wrong", "nan"):
        return [compiled]
    options = ", equal_nan=True" if answer.kind == "nan" else ""
    if tolerance is not None:
        options += f", rtol=0, atol={tolerance:.1g}"
    return [f"torch.testing.assert_close({compiled}, {eager}{options})"]


def with_data(text: str, file: str) -> str:
    """Return the text of a file that reads recorded values from another file beside it."""
    lines = text.splitlines()
    place = max(n for n, line in enumerate(lines) if line.startswith(("import ", "from ")))
    taken = "    return DATA[key][tuple(slice(n) for n in shape)]"
    lines[place + 1 : place + 1] = [
        f'DATA = torch.load(__file__.rpartition("/")[0] + "/{file}")', "",
        "def recorded(key, shape=()):", taken,
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def is_of_minifier(path: Path) -> bool:
    """Whether the minifier of any version wrote a file."""
    return path.exists() and "\n# tc " in path.read_text(encoding="utf-8", errors="replace")
