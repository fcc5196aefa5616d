"""Reading our Markdown pages: their links, their anchors, and the commands that they show."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("*.md", "docs/*.md", "benchmarks/*.md", "datasets/*.md")

_FENCE = re.compile(r"^ *(`{3,})(\w*)\s*$")
_LINK = re.compile(r"\]\(<?([^)\s>]+)>?\)")
_HTML_LINK = re.compile(r"(?:href|src|srcset)=\"([^\"\s]+)\"")
_HEADING = re.compile(r"^#{1,6} +(.*?) *#*$")
_ID = re.compile(r"<a (?:id|name)=\"([^\"]+)\"")
_SPAN = re.compile(r"`([^`\n]+)`")
_ASSIGNMENT = re.compile(r"[A-Z][A-Z0-9_]*=.*")


def pages() -> list[Path]:
    """All pages of ours, sorted."""
    return sorted(path for pattern in PAGES for path in ROOT.glob(pattern))


@dataclass(frozen=True)
class Page:
    """A page taken apart: prose lines with their numbers, and the lines of its code blocks with theirs."""

    prose: tuple[tuple[int, str], ...]
    code: tuple[tuple[int, str, str], ...]
    """Number, the block's language, the line; one that ends in a backslash is joined with the next."""

    @classmethod
    def read(cls, text: str) -> "Page":
        """Take a page's text apart."""
        prose: list[tuple[int, str]] = []
        code: list[tuple[int, str, str]] = []
        fence, language, held = "", "", ""
        for number, line in enumerate(text.splitlines(), start=1):
            mark = _FENCE.match(line)
            if mark and not fence:
                fence, language = mark[1], mark[2]
            elif fence and line.strip() == fence:
                fence = ""
            elif not fence:
                prose.append((number, line))
            elif line.endswith("\\"):
                held += line[:-1] + " "
            else:
                code.append((number, language, held + line))
                held = ""
        return cls(tuple(prose), tuple(code))

    def links(self) -> Iterator[tuple[int, str]]:
        """Where the page's links and pictures lead, as written."""
        for number, line in self.prose:
            plain = _SPAN.sub("", line)
            for target in (*_LINK.findall(plain), *_HTML_LINK.findall(plain)):
                yield number, target

    def anchors(self) -> set[str]:
        """What a `#` on this page may name, by GitHub's rule for headings."""
        found: set[str] = set()
        for _, line in self.prose:
            found.update(_ID.findall(line))
            heading = _HEADING.match(line)
            if heading is None:
                continue
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).replace("`", "").strip().lower()
            slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
            number = 0
            while (once := slug if number == 0 else f"{slug}-{number}") in found:
                number += 1
            found.add(once)
        return found

    def commands(self) -> Iterator[tuple[int, list[str], bool]]:
        """Each command that the page shows, its words, and whether it stands whole in a block of shell."""
        for number, language, line in self.code:
            if language in ("sh", "bash", "console"):
                for words in _commands(line.removeprefix("$ ")):
                    yield number, words, True
        for number, line in self.prose:
            for span in _SPAN.findall(line):
                for words in _commands(span):
                    yield number, words, False


def _commands(line: str) -> Iterator[list[str]]:
    """The words of each command of a line, without variables set before it."""
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="&;|<>")
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:
        return
    command: list[str] = []
    redirected = False
    for word in [*words, ";"]:
        if redirected or set(word) <= set("<>"):
            redirected = not redirected
        elif set(word) <= set("&;|"):
            while command and _ASSIGNMENT.fullmatch(command[0]):
                del command[0]
            if command:
                yield command
            command = []
        else:
            command.append(word)
