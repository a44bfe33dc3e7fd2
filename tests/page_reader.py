"""HTML of notebooks goes in; its text, its elements and what is wrong with it come out."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = frozenset(("br", "hr", "img", "input", "link", "meta"))
EMBEDDED = frozenset(("script", "link", "img", "iframe", "object", "embed", "form", "base"))


class Page(HTMLParser):
    """A page that was read: elements with their attributes, and the text outside of `style`."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[str] = []
        self.faults: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        self.faults += [f"{tag} stays open" for tag in self._open]

    @property
    def text(self) -> str:
        """All text, with single spaces."""
        return " ".join(" ".join(self.said).split())

    def tags(self, name: str) -> list[dict[str, str | None]]:
        """Return the attributes of all elements of a name."""
        return [attributes for tag, attributes in self.elements if tag == name]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        if tag not in VOID:
            self._open.append(tag)
        if tag in EMBEDDED:
            self.faults.append(f"{tag} loads or runs something")
        self.faults += [
            f"{name} of {tag}"
            for name in attributes
            if name.startswith("on") or name in ("src", "href", "id")
        ]
        if tag == "th" and attributes.get("scope") not in ("row", "col"):
            self.faults.append("th without scope")

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.faults.append(f"{tag} is closed where another is open")

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.said.append(data)
        elif "url(" in data or "@import" in data:
            self.faults.append("style loads something")
