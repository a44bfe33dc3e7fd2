"""A captured graph as an immutable value: cut anywhere, printed as a Python program of its own.

No torch here: values are known by the facts recorded when the graph was run.
"""

from __future__ import annotations

import dataclasses
import keyword
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

SLOT: Final = re.compile(r"\$(\d+)\b")
RESERVED: Final = {"torch", "tc", "f", "run", "math", "operator", "inf", "nan", "device"}

DEFAULT: Final = "torch.float32"  # the dtype of what names none, unless that is set otherwise
SET_DTYPE: Final = "torch.set_default_dtype("  # how the statement begins that does


@dataclass(frozen=True)
class Fact:
    """What a value was when the graph was run.

    Attributes:
        kind: ``tensor``, ``int``, ``float``, ``bool``, ``none``, or ``other`` for what cannot be
            an input of a graph (tuples of tensors, devices).
        text: a number as Python text.
        device: where it lay; empty for the CPU.
    """

    kind: str
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dtype: str = ""
    requires_grad: bool = False
    text: str = ""
    device: str = ""

    @property
    def can_be_input(self) -> bool:
        """Whether a graph that begins after this value can take it in."""
        return self.kind in ("tensor", "int", "float", "bool")


@dataclass(frozen=True)
class Input:
    """One argument of the program.

    Attributes:
        fill: ``recorded`` (the values of the user's run), ``randn``, ``rand``, ``ones``, ``text``
            (a tensor's values as Python text), or ``number``.
        key: name under which its values were recorded.
        stride: empty if contiguous.
        text: a number, or an expression that makes the tensor.
    """

    name: str
    fill: str
    key: str = ""
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dtype: str = "torch.float32"
    requires_grad: bool = False
    text: str = ""
    device: str = ""

    @classmethod
    def of(cls, name: str, fact: Fact) -> Input:
        """The input that represents a recorded value."""
        if fact.kind != "tensor":
            return cls(name, "number", name, text=fact.text)
        stride = () if fact.stride == contiguous(fact.shape) else fact.stride
        return cls(
            name, "recorded", name, fact.shape, stride, fact.dtype,
            requires_grad=fact.requires_grad, device=fact.device,
        )  # fmt: skip

    @property
    def is_float(self) -> bool:
        """Whether it holds real numbers."""
        return self.fill != "number" and "float" in self.dtype

    @property
    def numel(self) -> int:
        """How many elements it has."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    def expression(self, default: str = DEFAULT) -> str:
        """Python text that makes its value, where a dtype that is not named is a default one."""
        if self.fill == "number":
            return self.text
        text = self._values(default)
        return f"{text}.requires_grad_()" if self.requires_grad else text

    @property
    def _moved(self) -> str:
        return f".to({self.device!r})" if self.device else ""

    def _values(self, default: str) -> str:
        short = self.dtype if self.dtype != default else ""
        place = f", device={self.device!r}" if self.device else ""
        option = (f", dtype={short}" if short else "") + place
        shape, flat = self.shape, ""
        if self.stride:
            size = 1 + sum((n - 1) * s for n, s in zip(self.shape, self.stride, strict=True))
            flat = f".as_strided({self.shape}, {self.stride})"
            shape = (size,)
        sizes = ", ".join(map(str, shape)) or "()"
        if self.fill == "recorded":
            crop = f", {self.shape}" if self.shape else ""
            text, flat = f"recorded({self.key!r}{crop}){self._moved}", ""
        elif self.fill == "text":
            cast = "" if default == DEFAULT else f".to({self.dtype})"
            text, flat = f"{self.text}{cast}{self._moved}", ""
        elif self.fill == "ones":
            text = f"torch.ones({sizes}{option})"
        elif self.dtype == "torch.bool":
            text = f"torch.rand({sizes}{place}) > 0.5"
            text = f"({text})" if flat else text
        elif "float" in self.dtype or "complex" in self.dtype:
            text = f"torch.{'rand' if self.fill == 'rand' else 'randn'}({sizes}{option})"
        else:
            option = option if self.dtype != "torch.int64" else place
            text = f"torch.randint(0, 2, {shape}{option})"
        return text + flat


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


@dataclass(frozen=True)
class Step:
    """One call of the graph.

    Attributes:
        form: the call as Python text; ``$0``, ``$1`` are placeholders for `refs`.
        mutates: it writes to its first argument.
        statement: the form assigns to an item of its first argument, whose name it shares.
        where: the user's line, ``file:line``, and its text after a tab.
        helpers: source of functions the form names (branches of `torch.cond`).
    """

    name: str
    form: str
    refs: tuple[str, ...] = ()
    mutates: bool = False
    where: str = ""
    helpers: tuple[str, ...] = ()
    statement: bool = False

    def line(self, names: Mapping[str, str]) -> str:
        """The call as a statement, with values called by these names."""
        text = self.text(names)
        return text if self.statement else f"{names[self.name]} = {text}"

    def text(self, names: Mapping[str, str]) -> str:
        """The right-hand side, with values called by these names."""
        return SLOT.sub(lambda slot: names[self.refs[int(slot[1])]], self.form)

    def replaced(self, old: str, new: str) -> Step:
        """The same call on another value."""
        refs = tuple(new if ref == old else ref for ref in self.refs)
        return dataclasses.replace(self, refs=refs)


@dataclass(frozen=True)
class Call:
    """How the user compiles: ``tc`` or ``torch``, and the keyword arguments that matter."""

    compiler: str = "tc"
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        options = "".join(f", {name}={value}" for name, value in self.options)
        return f"{self.compiler}.compile(f{options})"


@dataclass(frozen=True)
class Case:
    """A program that a compiler gets wrong.

    Attributes:
        outputs: steps whose values are returned.
        facts: what each value was, by name.
        setup: statements the program needs before all else (custom ops).
        settings: statements that set what the user's script has set of its compilers.
        backward: gradients are computed too.
    """

    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    call: Call = Call()
    setup: str = ""
    settings: tuple[str, ...] = ()
    backward: bool = False
    facts: Mapping[str, Fact] = field(default_factory=dict, compare=False, repr=False)

    def with_facts(self, facts: Mapping[str, Fact]) -> Case:
        """The same case, knowing what its values were."""
        return dataclasses.replace(self, facts=dict(facts))

    # -- cutting -------------------------------------------------------------------------------
    def keep(self, names: Collection[str]) -> Case:
        """The case of these steps alone; values they take from others become inputs."""
        kept = self._closed(set(names))
        steps = tuple(step for step in self.steps if step.name in kept)
        used = {ref for step in steps for ref in step.refs}
        inputs = [item for item in self.inputs if item.name in used]
        known = {item.name for item in inputs} | kept
        inputs += [
            Input.of(step.name, self.facts[step.name])
            for step in self.steps
            if step.name in used and step.name not in known
        ]
        if not self.backward:
            inputs = [dataclasses.replace(item, requires_grad=False) for item in inputs]
        outputs = tuple(
            step.name
            for step in steps
            if self.is_tensor(step.name) and (step.name in self.outputs or step.name not in used)
        )
        return dataclasses.replace(self, inputs=tuple(inputs), steps=steps, outputs=outputs)

    def _closed(self, kept: set[str]) -> set[str]:
        """Add the producers of values that cannot be inputs."""
        makers = {step.name: step for step in self.steps}
        todo = list(kept)
        while todo:
            for ref in makers[todo.pop()].refs:
                if ref in makers and ref not in kept:
                    fact = self.facts.get(ref)
                    if fact is None or not fact.can_be_input:
                        kept.add(ref)
                        todo.append(ref)
        return kept

    def is_tensor(self, name: str) -> bool:
        """Whether a value is a tensor, as far as is known."""
        fact = self.facts.get(name)
        return fact is None or fact.kind == "tensor"

    def sinks_only(self) -> Case:
        """The case that returns only what no step uses."""
        used = {ref for step in self.steps for ref in step.refs}
        return dataclasses.replace(
            self, outputs=tuple(name for name in self.outputs if name not in used)
        )

    def without(self, name: str, instead: str) -> Case:
        """The case where another value takes the place of a step's or an input's."""
        steps = [step.replaced(name, instead) for step in self.steps if step.name != name]
        inputs = tuple(item for item in self.inputs if item.name != name)
        outputs = tuple(out for out in self.outputs if out != name)
        smaller = dataclasses.replace(self, inputs=inputs, steps=tuple(steps), outputs=outputs)
        return smaller.keep([step.name for step in steps]).with_inputs(inputs)

    def with_inputs(self, inputs: Iterable[Input]) -> Case:
        """The same steps on other inputs; those not used are left out."""
        used = {ref for step in self.steps for ref in step.refs}
        wanted = tuple(item for item in inputs if item.name in used)
        return dataclasses.replace(self, inputs=wanted)

    # -- printing ------------------------------------------------------------------------------
    def names(self) -> dict[str, str]:
        """Short names for its values, the same for equal programs."""
        given: dict[str, str] = {}
        taken = set(RESERVED)
        for number, item in enumerate(self.inputs):
            given[item.name] = "x" if len(self.inputs) == 1 else f"x{number}"
        taken |= set(given.values())
        for step in self.steps:
            if step.statement:
                given[step.name] = given[step.refs[0]]
                continue
            base = re.sub(r"_*\d*$", "", step.name.removeprefix("l_")) or "v"
            if keyword.iskeyword(base) or not base.isidentifier():
                base = "v"
            name, number = base, 1
            while name in taken:
                number += 1
                name = f"{base}_{number}"
            taken.add(name)
            given[step.name] = name
        return given

    def function(self) -> list[str]:
        """The function ``f``, and those it calls, as lines."""
        names = self.names()
        helpers = dict.fromkeys(text for step in self.steps for text in step.helpers)
        lines = [line for text in helpers for line in (*text.splitlines(), "")]
        lines.append(f"def f({', '.join(names[item.name] for item in self.inputs)}):")
        for place, step in enumerate(self.steps):
            last = place == len(self.steps) - 1
            if last and self.outputs == (step.name,):
                return [*lines, f"    return {step.text(names)}"]
            lines.append(f"    {step.line(names)}")
        outputs = ", ".join(names[name] for name in self.outputs)
        return [*lines, f"    return {outputs}" if outputs else "    return None"]

    def makers(self) -> list[str]:
        """The statements that make the inputs, as lines."""
        names = self.names()
        default = next((text[len(SET_DTYPE) : -1] for text in self.settings
                        if text.startswith(SET_DTYPE)), DEFAULT)  # fmt: skip
        lines = [f"{names[item.name]} = {item.expression(default)}" for item in self.inputs]
        if any(item.fill in ("randn", "rand") for item in self.inputs):
            lines.insert(0, "torch.manual_seed(0)")
        return lines

    def imports(self) -> list[str]:
        """The import statements of the program."""
        body = "\n".join([*self.function(), *self.makers(), self.setup])
        modules = ["torch"]
        if self.call.compiler == "tc" or any(text.startswith("tc.") for text in self.settings):
            modules.append("tc")
        modules += [name for name in ("math", "operator") if f"{name}." in body]
        special = [name for name in ("inf", "nan") if re.search(rf"\b{name}\b", body)]
        modules += {text.partition("config.")[0] + "config" for text in self.settings
                    if text.startswith("torch._")}  # fmt: skip
        lines = [f"import {name}" for name in sorted(modules)]
        return lines + ([f"from math import {', '.join(special)}"] if special else [])

    def program(self) -> str:
        """Everything but the compile call: imports, functions, inputs."""
        setup = ["", *self.settings] if self.settings else []
        setup += ["", self.setup] if self.setup else []
        return "\n".join([*self.imports(), *setup, "", *self.function(), "", *self.makers(), ""])

    def where(self, number: int) -> str:
        """Return the user's line of a line of `program`, as its step has it."""
        lines = self.program().splitlines()
        starts = [place for place, text in enumerate(lines, 1) if text.startswith("def f(")]
        place = number - starts[0] - 1 if starts else -1
        return self.steps[place].where if 0 <= place < len(self.steps) else ""

    @property
    def arguments(self) -> list[str]:
        """What the inputs are called in the program."""
        names = self.names()
        return [names[item.name] for item in self.inputs]

    @property
    def cost(self) -> tuple[int, int, int]:
        """What reduction makes smaller: steps, inputs, elements."""
        return (len(self.steps), len(self.inputs), sum(item.numel for item in self.inputs))


# -- on disk -----------------------------------------------------------------------------------
def to_json(case: Case) -> dict[str, Any]:
    """The case as plain data."""
    return dataclasses.asdict(case)


def from_json(data: Mapping[str, Any]) -> Case:
    """The case of `to_json`, after a round trip through JSON."""

    call = Call(data["call"]["compiler"], tuple((n, v) for n, v in data["call"]["options"]))
    return Case(
        inputs=tuple(Input(**_tuples(row)) for row in data["inputs"]),
        steps=tuple(Step(**_tuples(row)) for row in data["steps"]),
        outputs=tuple(data["outputs"]),
        call=call,
        setup=data["setup"],
        settings=tuple(data["settings"]),
        backward=data["backward"],
        facts={name: fact_from_json(row) for name, row in data["facts"].items()},
    )


def fact_from_json(row: Mapping[str, Any]) -> Fact:
    """The fact of `dataclasses.asdict`, after a round trip through JSON."""
    return Fact(**_tuples(row))


def _tuples(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(v) if isinstance(v, list) else v for name, v in row.items()}
