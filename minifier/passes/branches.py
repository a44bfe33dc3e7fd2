"""Reduces inside the branches of `torch.cond`: one branch in its place, or shorter branches."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tc.minifier.case import Case, Step

Fails = Callable[[Case], bool]
COND = re.compile(r"torch\.cond\(\$\d+, (\w+), (\w+), [(\[](.*?),?[)\]]\)$")


@dataclass(frozen=True)
class Body:
    """A branch: what it takes, what it computes, what it returns."""

    name: str
    arguments: tuple[str, ...]
    lines: tuple[tuple[str, ast.expr], ...]
    returned: tuple[ast.expr, ...]

    def text(self) -> str:
        """The branch as a Python function."""
        lines = [f"    {name} = {ast.unparse(value)}" for name, value in self.lines]
        returned = ast.unparse(ast.Tuple(list(self.returned), ast.Load()))
        head = f"def {self.name}({', '.join(self.arguments)}):"
        return "\n".join([head, *lines, f"    return {returned}"])


def body_of(text: str) -> Body | None:
    """Return a branch that is one plain function, else None."""
    parsed = ast.parse(text).body
    if len(parsed) != 1 or not isinstance(parsed[0], ast.FunctionDef):
        return None
    function, lines = parsed[0], []
    *statements, last = function.body
    for statement in statements:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                lines.append((name, value))
            case _:
                return None
    if not isinstance(last, ast.Return) or not isinstance(last.value, ast.Tuple):
        return None
    arguments = tuple(argument.arg for argument in function.args.args)
    return Body(function.name, arguments, tuple(lines), tuple(last.value.elts))


def inline(case: Case, fails: Fails) -> Iterator[Case]:
    """Put the calls of one branch in place of a `torch.cond`."""
    for step in case.steps:
        for helper in step.helpers:
            inlined = _inlined(case, step, helper)
            if inlined is not None and fails(inlined):
                yield inlined
                return


def _inlined(case: Case, step: Step, helper: str) -> Case | None:
    found, body = COND.search(step.form), body_of(helper)
    if found is None or body is None or body.name not in found.group(1, 2):
        return None
    slots = [part.strip() for part in found[3].split(",") if part.strip()]
    if len(slots) != len(body.arguments) or not all(s.startswith("$") for s in slots):
        return None
    known = {
        name: step.refs[int(slot[1:])] for name, slot in zip(body.arguments, slots, strict=True)
    }
    inner: list[Step] = []
    for name, value in body.lines:
        form, refs = _form(value, known)
        known[name] = f"{step.name}_{body.name}_{name}"
        inner.append(Step(known[name], form, refs, where=step.where))
    results = [known.get(ast.unparse(value), "") for value in body.returned]
    return _replaced(case, step, inner, results)


def _form(value: ast.expr, known: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Return an expression as the form of a step, and what it refers to."""
    refs: list[str] = []
    text = ast.unparse(value)

    def slot(found: re.Match[str]) -> str:
        ref = known[found[0]]
        if ref not in refs:
            refs.append(ref)
        return f"${refs.index(ref)}"

    names = {part.id for part in ast.walk(value) if isinstance(part, ast.Name)} & set(known)
    if names:
        pattern = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
        text = re.sub(rf"(?<![\w.])({pattern})(?![\w=])", slot, text)
    return text, tuple(refs)


def _replaced(case: Case, step: Step, inner: list[Step], results: list[str]) -> Case | None:
    """Return the case with steps in place of one that returned a tuple."""
    steps: list[Step] = []
    renamed: dict[str, str] = {}
    for one in case.steps:
        item = re.fullmatch(r"\$0\[(\d+)\]", one.form)
        if one.name == step.name:
            steps += inner
        elif item and one.refs == (step.name,):
            renamed[one.name] = results[int(item[1])]
        else:
            refs = tuple(renamed.get(ref, ref) for ref in one.refs)
            steps.append(dataclasses.replace(one, refs=refs))
    if "" in renamed.values() or any(step.name in one.refs for one in steps):
        return None
    ends = tuple(dict.fromkeys(renamed.get(name, name) for name in case.outputs))
    made = {one.name for one in steps}
    outputs = tuple(name for name in ends if name in made) or (steps[-1].name,)
    return dataclasses.replace(case, steps=tuple(steps), outputs=outputs)


def shorten(case: Case, fails: Fails) -> Iterator[Case]:
    """Leave calls out of branches: their arguments replace their results."""
    for place in range(len(case.steps)):
        for number in range(len(case.steps[place].helpers)):
            line = 0
            while True:
                body = body_of(case.steps[place].helpers[number])
                if body is None or line >= len(body.lines):
                    break
                smaller = _shorter(case, place, number, body, line)
                if smaller is not None and fails(smaller):
                    case = smaller
                    yield case
                else:
                    line += 1


def _shorter(case: Case, place: int, number: int, body: Body, line: int) -> Case | None:
    name, value = body.lines[line]
    known = {*body.arguments, *(other for other, _ in body.lines[:line])}
    used = [part for part in ast.walk(value) if isinstance(part, ast.Name) and part.id in known]
    if not used:
        return None
    swap = _Rename(name, used[0].id)
    lines = tuple(
        (other, swap.visit(ast.parse(ast.unparse(text), mode="eval").body))
        for at, (other, text) in enumerate(body.lines)
        if at != line
    )
    returned = tuple(
        swap.visit(ast.parse(ast.unparse(text), mode="eval").body) for text in body.returned
    )
    shorter = dataclasses.replace(body, lines=lines, returned=returned).text()
    step = case.steps[place]
    helpers = (*step.helpers[:number], shorter, *step.helpers[number + 1 :])
    step = dataclasses.replace(step, helpers=helpers)
    return dataclasses.replace(case, steps=(*case.steps[:place], step, *case.steps[place + 1 :]))


class _Rename(ast.NodeTransformer):
    def __init__(self, old: str, new: str) -> None:
        self.old, self.new = old, new

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.new, node.ctx) if node.id == self.old else node
