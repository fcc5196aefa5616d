"""The page of a comparison: nothing that a model wrote is markup, and nothing leaves the page."""

import base64
import hashlib
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support.hostile import HOSTILE, harmful_in
from support.made_up import made_up_run

from runner.compare.run import compare_runs, read_side

pytest.importorskip("jinja2")
from runner.compare.html import comparison_page

MARKUP = [
    "<script>alert(1)</script>",
    "</pre></td></script><img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "javascript:alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "<!--",
    "&lt;b&gt;",
]


class _Page(HTMLParser):
    """What of a page is markup."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: dict[str, str | None] = {}
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.update(attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(tmp_path: Path, hostile: str) -> str:
    names = {"p0": ["42", hostile], "p1": [hostile, "42"]}
    one = made_up_run(tmp_path / "a", names, question=hostile.encode("utf-8", "replace").decode())
    other = made_up_run(
        tmp_path / "b",
        {"p0": [hostile, "42"], "p1": ["42", hostile]},
        question=hostile.encode("utf-8", "replace").decode(),
        engine={"kind": hostile},
    )
    return comparison_page(compare_runs([read_side(one), read_side(other)]), "recorded")


def plain_tags(tmp_path: Path) -> list[str]:
    return _Page(page_of(tmp_path / "plain", "nothing")).tags


@pytest.mark.parametrize("hostile", MARKUP)
def test_text_of_a_model_is_never_markup(tmp_path: Path, hostile: str) -> None:
    page = _Page(page_of(tmp_path, hostile))

    assert page.tags == plain_tags(tmp_path)
    assert not [name for name in page.attributes if name.startswith("on") or name in {"src", "href", "style"}]
    assert hostile in page.text


@pytest.mark.parametrize("hostile", [*HOSTILE.values()], ids=[*HOSTILE])
def test_control_and_bidi_characters_do_not_reach_the_page(tmp_path: Path, hostile: str) -> None:
    assert harmful_in(page_of(tmp_path, hostile)) == set()


def test_the_policy_allows_the_page_s_own_style_and_nothing_else(tmp_path: Path) -> None:
    page = page_of(tmp_path, "x")
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)

    assert policy.replace("&#39;", "'") == (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    assert "script" not in _Page(page).tags
    assert list(_addresses(page)) == []


def _addresses(page: str) -> Iterator[str]:
    yield from re.findall(r"(?:https?:)?//[a-z][^\s\"<]*|url\([^)]*\)|@import", page)
