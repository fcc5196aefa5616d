"""Reading a page as a browser would: its elements, its figures, and the data that its script unpacks."""

import base64
import gzip
import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from typing_extensions import override


@dataclass
class Element:
    """One element with its attributes and all text inside."""

    tag: str
    attributes: dict[str, str]
    text: str = ""


@dataclass
class Page(HTMLParser):
    """All elements of a page in order."""

    source: str
    elements: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Read it."""
        super().__init__(convert_charrefs=True)
        self._open: list[Element] = []
        self._read: dict[str, Any] = {}
        self.feed(self.source)
        self.close()

    @classmethod
    def of(cls, path: Path) -> "Page":
        """Read the page of a file."""
        return cls(path.read_text(encoding="utf-8"))

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.elements.append(element)
        if tag not in {"meta", "link", "input"}:
            self._open.append(element)

    @override
    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop().tag != tag:
            pass

    @override
    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.text += data

    def all(self, tag: str, **attributes: str) -> list[Element]:
        """Return the elements of a tag that have these attributes (`_` for `-`)."""
        wanted = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
        return [one for one in self.elements if one.tag == tag and wanted.items() <= one.attributes.items()]

    @property
    def text(self) -> str:
        """All text that is shown: without scripts and style."""
        body = next(one for one in self.elements if one.tag == "body")
        hidden = {one.text for one in self.elements if one.tag in {"script", "style"}}
        shown = body.text
        for one in sorted(hidden, key=len, reverse=True):
            shown = shown.replace(one, "")
        return " ".join(shown.split())

    @property
    def index(self) -> dict[str, Any]:
        """The list of trajectories."""
        found: dict[str, Any] = self._data("data-index")
        return found

    def turns(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        """The turns of a row of the index."""
        if "part" not in row:
            return []
        found: list[dict[str, Any]] = self._data(f"data-part-{row['part']}")[row["place"]]
        return found

    def _data(self, name: str) -> Any:
        if name not in self._read:
            text = next(one.text for one in self.elements if one.attributes.get("id") == name)
            self._read[name] = json.loads(gzip.decompress(base64.b64decode(text)))
        return self._read[name]


def path_of(pointer: str) -> list[str]:
    """Return the keys of a JSON pointer in its URI form."""
    parts = pointer.removeprefix("#/").split("/")
    return [unquote(one, errors="surrogatepass").replace("~1", "/").replace("~0", "~") for one in parts]
