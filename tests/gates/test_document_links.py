"""Links and pictures of the pages lead somewhere, and out of the repository to few hosts alone."""

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from support.markdown import ROOT, Page, pages

HOSTS = {"docs.github.com", "github.com", "huggingface.co", "keepachangelog.com"}
"""Where what we reproduce is published, how to report privately there, and the changelog's form."""
EXAMPLES = re.compile(r"127\.0\.0\.1|localhost|[A-Z-]+")
URL = re.compile(r"https?://[^\s`)>\"']+")


def faults(page: Path, text: str) -> list[str]:
    found = []
    read = Page.read(text)
    for number, target in read.links():
        if re.match(r"[a-z]+:", target):
            continue
        place, _, anchor = target.partition("#")
        path = (page.parent / place).resolve() if place else page
        if not path.exists():
            found.append(f"{number}: {target} does not exist")
        elif not path.is_relative_to(ROOT):
            found.append(f"{number}: {target} leaves the repository")
        elif anchor and path.suffix == ".md":
            there = read if path == page else Page.read(path.read_text(encoding="utf-8"))
            if anchor not in there.anchors():
                found.append(f"{number}: {target} names no heading")
    for url in URL.findall(text):
        host = urlsplit(url).hostname or ""
        if host not in HOSTS and not EXAMPLES.fullmatch(urlsplit(url).netloc.partition(":")[0]):
            found.append(f"{url}: {host} is none of {', '.join(sorted(HOSTS))}")
    return found


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert faults(page, page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[a](docs/nowhere.md)", "does not exist"),
        ("![a](docs/images/nothing.svg)", "does not exist"),
        ('<img src="docs/images/nothing.svg">', "does not exist"),
        ("[a](docs/results.md#nothing-here)", "names no heading"),
        ("[a](#not-here)\n# Here", "names no heading"),
        ("[a](../outside)", "does not exist"),
        ("[a](../)", "leaves the repository"),
        ("[a](https://example.com/x)", "is none of"),
        ("https://github.com.example.com/x", "is none of"),
    ],
)
def test_a_link_to_nowhere_is_found(text: str, fault: str) -> None:
    found = faults(ROOT / "README.md", text)
    assert len(found) == 1
    assert fault in found[0]


def test_anchors_are_what_github_makes_of_headings() -> None:
    text = (
        "# Exit codes\n## `evaluation_results.json`\n### What a mean may be off by\n# A: b, c/d\n# Exit codes"
    )
    assert Page.read(text).anchors() == {
        "exit-codes",
        "evaluation_resultsjson",
        "what-a-mean-may-be-off-by",
        "a-b-cd",
        "exit-codes-1",
    }


def test_every_page_and_picture_of_docs_can_be_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    left = [ROOT / "README.md"]
    while left:
        page = left.pop()
        if page in seen or not page.exists():
            continue
        seen.add(page)
        if page.suffix == ".md":
            for _, target in Page.read(page.read_text(encoding="utf-8")).links():
                if not re.match(r"[a-z]+:|#", target):
                    left.append((page.parent / target.partition("#")[0]).resolve())
    offered = {*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "images").iterdir()}
    assert {str(path.relative_to(ROOT)) for path in offered - seen} == set()
