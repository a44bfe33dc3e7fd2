"""The compiler's own words go in; the remedy that they name comes out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from tc.trace.guardtext import readable

_HINT: Final = re.compile(r"^\s*(?:Hint|HINT): (?P<hint>\S.*)$", re.MULTILINE)
# A hint is a remedy where it names something to write or to set, not where it says to look again.
_CONCRETE: Final = re.compile(r"\btorch\.|\bconfig\.|\bTORCH|register|\bexport [A-Z]|\bset [A-Z]")
_EMPTY: Final = re.compile(
    # what to look into, or what else it may be
    r"^Note: |https?://\S+ for how to fix|report an issue|dont_skip_tracing|third-party"
    r"|double check that your code|seems like it should",
    re.IGNORECASE,
)
#: between the sentences of a hint, and what a sentence that advises something says
_SENTENCES: Final = re.compile(r"(?<=[\w)])(?<!e\.g)(?<!i\.e)\. +(?=\S)")
_ADVISES: Final = re.compile(
    r"(?:^|, )(?:use|try|consider|move|set|avoid|please|call|remove|register|make|ensure)\b",
    re.IGNORECASE,
)
#: hints that say at length what a remedy of a few words says
_IN_SHORT: Final = (
    (
        re.compile(r"making the code branchless"),
        "compute both sides and choose: torch.where(condition, a, b)",
    ),
    (
        re.compile(r"^Remove the torch\.compiler\.disable call"),
        "remove the mark if the function can be traced after all",
    ),
    (
        re.compile(r"attempting to call a logging function"),
        "torch._dynamo.config.reorderable_logging_functions.add(it), if it only reports something",
    ),
)
_MEANT: Final = re.compile(r"\bconfig\.(\w+)|\b(\w+)\(\)|\btorch\.(cond|where)\b")
_MOST: Final = 3
#: why an operator without a fake kernel cannot be compiled
NO_FAKE: Final = "the compiler cannot know the shape of its result without running it"


def library_name(op: str) -> str:
    """`mylib.foo.default` -> `mylib::foo`."""
    head, _, rest = op.removesuffix(".default").partition(".")
    return f"{head}::{rest}" if rest else op


def _fake(match: re.Match[str]) -> str:
    return f"register its fake kernel: @torch.library.register_fake({library_name(match['op'])!r})"


def _perhaps_fake(match: re.Match[str]) -> str:
    return f"if it has none, {_fake(match)}"


def _variable(match: re.Match[str]) -> str:
    return f"set {match['name']} to a compiler, as the message asks"


def _marked(match: re.Match[str]) -> str:
    of = f"mark_dynamic({readable(match['of'])}, {match['index']})"
    return f"torch._dynamo.maybe_{of} in place of torch._dynamo.{of}, which asks for all sizes"


_ROWS: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...]] = (
    (re.compile(r"(?:unsupported operator:|UnsupportedOperatorException:) (?P<op>[\w.]+)"), _fake),
    (re.compile(r"There was no fake impl registered for <CustomOpDef\((?P<op>[\w:.]+)\)>"), _fake),
    (re.compile(r"no fake impl(?:ementation)? (?:registered )?for (?P<op>[\w:.]+\w)"), _fake),
    (re.compile(r": (?P<op>[\w.]+) is no operator of torch's"), _perhaps_fake),
    (re.compile(r"specify via (?P<name>[A-Z_]+) environment variable"), _variable),
    (re.compile(r"[Ss]et (?P<name>CC|CXX) "), _variable),
    (
        re.compile(
            r"(?:You marked|Not all values of) (?P<of>\S+)\.size\(\)\[(?P<index>\d+)\]"
            r"(?: as dynamic but|[^\n]* satisfy the generated guard)"
        ),
        _marked,
    ),
)  # fmt: skip


def remedies_in(text: str) -> tuple[str, ...]:
    """Return the remedies that a message names, most specific first; none where it names none."""
    found = [say(match) for pattern, say in _ROWS if (match := pattern.search(text))]
    hints = (" ".join(one["hint"].replace("`", "").split()) for one in _HINT.finditer(text))
    hints = (one for one in hints if _CONCRETE.search(one) and not _EMPTY.search(one))
    found += [_plain(short) for one in hints if (short := _one_sentence(one))][:_MOST]
    return tuple(dict.fromkeys(found))


def _one_sentence(hint: str) -> str:
    """Return what a hint advises in one sentence; empty if none of its sentences advises anything.

    The others say what the compiler does, or why.
    """
    for pattern, short in _IN_SHORT:
        if pattern.search(hint):
            return short
    sentences = _SENTENCES.split(hint.rstrip(". "))
    if len(sentences) == 1:
        return hint
    advising = [one for one in sentences if _ADVISES.search(one)]
    concrete = [one for one in advising if _CONCRETE.search(one)]
    return next(iter((*concrete, *advising)), "")


def without_fake(text: str) -> str:
    """Return the operator that a message says has no fake kernel, empty if it says so of none."""
    match = next((found for pattern, say in _ROWS if say is _fake
                  if (found := pattern.search(text))), None)  # fmt: skip
    return library_name(match["op"]) if match else ""


def first_of(text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """Return the remedies in a message, then the others that we know.

    One that sets or calls the same as one that we know is that one.
    """
    named = []
    for one in remedies_in(text):
        alike = [mine for mine in known if _means(one) & _means(mine)]
        # tc's form of the same remedy can be tried by a tool, the message's form cannot
        named += alike or [one]
    return tuple(dict.fromkeys((*named, *known)))


def _means(text: str) -> set[str]:
    """What a remedy sets, or which call or function of torch's it is about."""
    return {next(filter(None, groups)) for groups in _MEANT.findall(text)}


#: settings that a hint names; some leave out the `config` that they are made in
_SETTING: Final = re.compile(
    r"^(?:(?:try )?set(?:ting)?|change) torch\._dynamo\.(?:config\.)?(?P<name>\w+)(?: ?= ?| to )"
    r"(?P<value>True|False|\d+)\b(?P<why> to .+)?",
    re.IGNORECASE,
)


def _plain(hint: str) -> str:
    """A hint as a fix: it begins small, and ends without a full stop; settings are assigned."""
    hint = hint.rstrip(".")
    if setting := _SETTING.match(hint):
        why = f",{setting['why']}" if setting["why"] else ""
        return f"torch._dynamo.config.{setting['name']} = {setting['value']}{why}"
    return hint[:1].lower() + hint[1:] if hint[1:2].islower() else hint


def named_in(
    reason: str, rows: Iterable[tuple[str, tuple[str, ...]]], known: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Return the remedies of the first row whose words are in a reason; else those given."""
    return next((fix for words, fix in rows if words in reason), known)
