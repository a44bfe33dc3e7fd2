"""What tools find goes in; the same as a notebook shows it, HTML and plain text, comes out.

In JupyterLab, VS Code, Colab and whatever else asks objects for `_repr_mimebundle_` or
`_repr_html_`. Nothing is loaded before one of them is called.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from importlib import import_module, resources
from typing import Any, NamedTuple


class View(NamedTuple):
    """What a notebook shows of an object.

    Attributes:
        macro: the part of `notebook.html` that prints it.
        text: the same as plain text.
        values: what the macro gets.
    """

    macro: str
    text: str
    values: Mapping[str, Any]


class Shown:
    """Base of what shows itself in notebooks: it says how in `as_view`."""

    __slots__ = ()

    def as_view(self) -> View:
        """Return what a notebook shows."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return html_of(self.as_view())

    def _repr_mimebundle_(
        self, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> dict[str, str]:
        return bundle_of(self.as_view(), include, exclude)


def bundle_of(
    view: View, include: Collection[str] | None = None, exclude: Collection[str] | None = None
) -> dict[str, str]:
    """Return a view by MIME type.

    Args:
        include: the types that are wanted, all if empty.
        exclude: those that are not.
    """
    makers = {"text/plain": lambda: view.text, "text/html": lambda: html_of(view)}
    wanted = [kind for kind in makers if not include or kind in include]
    return {kind: makers[kind]() for kind in wanted if kind not in (exclude or ())}


def html_of(view: View) -> str:
    """Return a view as HTML that needs nothing else; all text of the user's is escaped."""
    return str(getattr(_template().module, "page")(view.macro, view.values)).strip()  # noqa: B009


@cache
def _template() -> Any:
    jinja2 = import_module("jinja2")  # here, because few processes show anything in a notebook
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    text = (resources.files("tc.trace") / "notebook.html").read_text("utf-8")
    return environment.from_string(text)


class Item(NamedTuple):
    """One cause of trouble, in the words of a table.

    Attributes:
        rows: its description: label and text.
        fixes: ways to fix it: text, and how much of it is checked.
        stack: the lines that led there: place and source.
    """

    code: str
    title: str
    place: str
    source: str
    rows: tuple[tuple[str, str], ...]
    fixes: tuple[tuple[str, str], ...] = ()
    stack: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def of(
        code: str, title: str, place: str, source: str | None, *,
        rows: Iterable[tuple[str, str]] = (), fixes: Iterable[tuple[str, str]] = (),
        stack: Iterable[tuple[str, str | None]] = (),
    ) -> Item:  # fmt: skip
        """Return an item without the rows that would be empty, and without indentation."""
        lines = tuple((spot, (text or "").strip()) for spot, text in stack)
        filled = tuple((label, text) for label, text in rows if text)
        return Item(code, title, place, (source or "").strip(), filled, tuple(fixes), lines)
