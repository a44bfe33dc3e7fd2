"""The body of a printed C function, checked line by line before gcc compiles it.

In: lines, declarations and blocks, from the writers of all kinds of kernels. Out: text in which
each name is declared in an enclosing scope before it is used, each helper exists and gets its
number of arguments, and brackets and blocks close; anything else is a `StageError` that names the
kernel, the line and where the kernel comes from.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence

from tc.compiler.core.c_helpers import helpers
from tc.compiler.errors import StageError

STAGE = "codegen"
#: words of C that kernels are made of
WORDS = frozenset(
    (
        *("const", "long", "int", "short", "signed", "unsigned", "char", "float", "double", "void"),
        *("if", "else", "for", "return", "break", "continue", "__attribute__", "aligned"),
    )
)
#: words of the pragmas before loops
PRAGMA_WORDS = WORDS | frozenset(
    (
        *(
            "pragma",
            "omp",
            "GCC",
            "simd",
            "parallel",
            "collapse",
            "num_threads",
            "schedule",
            "static",
        ),
        *("reduction", "max", "min", "unroll"),
    )
)
# Names (not suffixes of numbers, nor members), brackets, commas, and strings.
_TOKENS = re.compile(r'(?<![\w.])[A-Za-z_]\w*|\(\)|[(){}\[\],]|"[^"]*"')
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def call(name: str, *arguments: str) -> str:
    """Spell a call of its function and arguments."""
    return f"{name}({', '.join(arguments)})"


def between(start: str, stop: str) -> str:
    """Spell the length of a range whose ends are C; the start may be a sum."""
    return (
        f"{stop} - {start}" if start.isidentifier() or start.isdecimal() else f"{stop} - ({start})"
    )


@functools.cache
def arity(name: str) -> int | None:
    """Return the number of a helper's arguments; None if there is no such helper."""
    helper = helpers().get(name)
    if helper is None:
        return None
    signature = re.search(rf"\b{name}\(([^)]*)\)", helper.text)
    assert signature is not None, name
    inside = signature[1]
    return 0 if inside in ("", "void") else inside.count(",") + 1


class Block:
    """Lines of a function's body, and the names that the next line may use.

    Attributes:
        lines: the printed lines.
        depth: the number of open blocks, that of the function included.
        marked: how many loops are to follow that a pragma is about: nothing stands before them.
    """

    def __init__(self, function: str, names: Iterable[str]) -> None:
        """Start the body of ``function``, whose parameters are ``names``."""
        self.function = function
        self.lines: list[str] = []
        self._scopes: list[set[str]] = [set(names)]
        self.known = dict.fromkeys(self._scopes[0], 1)
        self.helpers: dict[str, None] = {}
        self.marked = 0

    @property
    def depth(self) -> int:
        """How many blocks are open."""
        return len(self._scopes)

    def emit(self, line: str) -> None:
        """Add a line."""
        self._check(line)
        self.lines.append("  " * len(self._scopes) + line)

    def declare(
        self, kind: str, name: str, value: str = "", *, length: str = "", note: str = ""
    ) -> None:
        """Declare a variable in the innermost block.

        Args:
            kind: its C type.
            name: its name.
            value: its initial value; none if empty.
            length: the length of an array, in brackets.
            note: attributes.
        """
        start = f" = {value}" if value else ""
        self._check(f"{length}{note}{start}")
        self._add(name)
        self.lines.append(f"{'  ' * len(self._scopes)}{kind} {name}{length}{note}{start};")

    def open(self, head: str, names: Sequence[str] = (), braces: bool = True) -> None:
        """Start a block; ``names`` are declared in its head."""
        depth = len(self._scopes)
        self._scopes.append(set())
        for name in names:
            self._add(name)
        self._check(head)
        self.lines.append("  " * depth + " ".join(filter(None, (head, "{" if braces else ""))))

    def count(
        self,
        name: str,
        start: str,
        stop: str,
        step: str = "",
        *,
        kind: str = "long long",
        only_while: str = "",
        braces: bool = True,
    ) -> None:
        """Open a loop over numbers from ``start`` to before ``stop``, while a condition holds."""
        self.before_loop()
        self.marked = max(self.marked - 1, 0)
        each = f"{name} += {step}" if step else f"{name}++"
        until = f"{name} < {stop}{f' && {only_while}' if only_while else ''}"
        self.open(f"for ({kind} {name} = {start}; {until}; {each})", (name,), braces)

    def before_loop(self) -> None:
        """Add what comes before a loop, and before its pragmas."""

    def pragma(self, text: str, loops: int = 1) -> None:
        """Print a pragma for the next loop, or for so many nested loops."""
        self.before_loop()
        self.emit(f"#pragma {text}")
        self.marked = loops

    def each(self, name: str, start: str, stop: str, step: str, line: str) -> None:
        """Add a loop over one line, which needs no braces."""
        depth = len(self._scopes)
        self.count(name, start, stop, step, braces=False)
        self.emit(line)
        self._leave()
        assert len(self._scopes) == depth

    def close(self, count: int = 1) -> None:
        """End blocks."""
        for _ in range(count):
            self._leave()
            self.lines.append("  " * len(self._scopes) + "}")

    def otherwise(self) -> None:
        """End a block and start that of its ``else``."""
        self._leave()
        self.lines.append("  " * len(self._scopes) + "} else {")
        self._scopes.append(set())

    def text(self) -> str:
        """Return all lines, once every block is closed."""
        if len(self._scopes) != 1:
            self._fail(f"{len(self._scopes) - 1} blocks are open at its end", "")
        return "".join(f"{line}\n" for line in self.lines)

    def has(self, name: str) -> bool:
        """Return whether a name may be used in the next line."""
        return name in self.known

    # ------------------------------------------------------------ checks

    def _add(self, name: str) -> None:
        scope = self._scopes[-1]
        if name in scope:
            self._fail(f"{name!r} is declared twice in a block", "")
        scope.add(name)
        self.known[name] = self.known.get(name, 0) + 1

    def _leave(self) -> None:
        if len(self._scopes) == 1:
            self._fail("it closes a block more than it opens", "")
        for name in self._scopes.pop():
            self.known[name] -= 1
            if not self.known[name]:
                del self.known[name]

    def _check(self, line: str) -> None:
        """Raise for a line with unknown names, wrong calls of helpers, or open brackets."""
        words = PRAGMA_WORDS if line.startswith("#") else WORDS
        known = self.known
        waiting: list[tuple[str, str, int]] = []  # closing bracket, helper, commas
        called = ""
        for token in _TOKENS.findall(line):
            if token in _CLOSING:
                waiting.append((_CLOSING[token], called, 0))
                called = ""
            elif token in ")]}":
                if not waiting or waiting[-1][0] != token:
                    self._fail(f"{token!r} closes nothing", line)
                _, helper, commas = waiting.pop()
                if helper:
                    self._called(helper, commas + 1, line)
            elif token == ",":
                if waiting:
                    closing, helper, commas = waiting[-1]
                    waiting[-1] = closing, helper, commas + 1
            elif token == "()":
                self._called(called, 0, line)
                called = ""
            elif token in known or token in words or token[0] == '"' or token[:10] == "__builtin_":
                continue
            elif token[:3] == "tc_":
                called = token
            else:
                self._fail(f"{token!r} is used where it is not declared", line)
        if waiting:
            self._fail(f"no {waiting[-1][0]!r} follows", line)

    def _called(self, helper: str, given: int, line: str) -> None:
        if not helper:
            return
        wanted = arity(helper)
        if wanted is None:
            self._fail(f"there is no helper {helper!r}", line)
        if wanted != given:
            self._fail(f"{helper!r} takes {wanted} arguments, not {given}", line)
        self.helpers[helper] = None

    def _fail(self, what: str, line: str) -> None:
        place = f", in the line `{line}`" if line else ""
        text = f"The C printed for {self.function} is wrong: {what}{place}."
        raise StageError(STAGE, text) from ValueError(what)  # whatever it was made of
