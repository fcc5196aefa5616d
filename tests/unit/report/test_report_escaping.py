"""Nothing that a model, a server or a data set wrote becomes markup, script or an unseen character."""

import base64
import hashlib
import json
import re
import unicodedata
from pathlib import Path

import pytest
from support.hostile import HARMFUL_CATEGORIES, HOSTILE
from support.markup import ALL_MARKUP, MARKUP, WELL_FORMED_MARKUP
from support.report_page import Page
from support.report_runs import Wanted, write_run

from runner.engines.base import TrajectoryKey
from runner.events import EndReason
from runner.report import write_report

_OUR_TAGS = {
    *("html", "head", "meta", "title", "link", "style", "body", "a", "header", "p", "h1", "bdi", "span", "b"),
    *("data", "nav", "main", "div", "section", "h2", "h3", "ul", "li", "figure", "figcaption", "i", "svg"),
    *(
        "path",
        "rect",
        "line",
        "circle",
        "text",
        "table",
        "caption",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "small",
    ),
    *(
        "details",
        "summary",
        "pre",
        "button",
        "form",
        "label",
        "input",
        "select",
        "option",
        "noscript",
        "code",
    ),
    *("article", "footer", "script"),
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The page of a run whose every text is hostile."""
    wanted = Wanted(
        problems={"dapo": 3},
        samples=2,
        text=ALL_MARKUP.replace("\ud800", "").replace("\udfff", ""),
        ids="".join(WELL_FORMED_MARKUP.split()),
        lost=frozenset({TrajectoryKey("dapo", "dapo_000" + "".join(WELL_FORMED_MARKUP.split()), 0)}),
        end=EndReason.INCOMPLETE,
    )
    scores = {ALL_MARKUP: {("dapo", wanted.problem_ids("dapo")[0], 0): 1.0}}
    return Page.of(write_report(write_run(tmp_path_factory.mktemp("runs") / "run", wanted), scores=scores))


def test_the_page_has_no_element_that_is_not_ours(page: Page) -> None:
    assert {one.tag for one in page.elements} <= _OUR_TAGS


def test_no_attribute_is_a_handler_or_a_style(page: Page) -> None:
    names = {name for one in page.elements for name in one.attributes}
    assert not [
        name for name in names if name.startswith("on") or name in {"style", "srcdoc", "src", "action"}
    ]


def test_every_link_stays_in_the_page(page: Page) -> None:
    links = [one.attributes["href"] for one in page.elements if "href" in one.attributes]
    assert links
    assert all(link.startswith("#") or link == "data:," for link in links)


def test_our_scripts_are_the_only_ones_and_the_policy_names_the_one_that_runs(page: Page) -> None:
    scripts = page.all("script")
    running = [one for one in scripts if "type" not in one.attributes]
    assert len(running) == 1
    policy = page.all("meta", http_equiv="Content-Security-Policy")[0].attributes["content"]
    assert policy.startswith("default-src 'none'; ")
    for directive, element in (("script-src", running[0]), ("style-src", page.all("style")[0])):
        digest = base64.b64encode(hashlib.sha256(element.text.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy
    assert "unsafe" not in policy


def test_data_for_the_script_hold_nothing_that_could_end_them(page: Page) -> None:
    data = page.all("script", type="application/octet-stream")
    assert len(data) > 1
    assert all(re.fullmatch(r"[A-Za-z0-9+/=]+", one.text.strip()) for one in data)


def test_no_character_of_the_page_or_its_data_acts_on_what_stands_beside_it(page: Page) -> None:
    texts = [page.source, json.dumps(page.index, ensure_ascii=False)]
    texts += [json.dumps(page.turns(row), ensure_ascii=False) for row in page.index["rows"]]
    for text in texts:
        harmful = {one for one in text if unicodedata.category(one) in HARMFUL_CATEGORIES} - {"\n", "\ufffd"}
        assert not harmful


def test_the_text_is_there_to_be_read(page: Page) -> None:
    rows = page.index["rows"]
    turn = page.turns(rows[1])[0]
    for place in (
        turn["assistant"],
        turn["observation"],
        page.index["datasets"][0]["problems"][0]["question"],
    ):
        assert MARKUP["script"] in place
        assert MARKUP["end of a script"] in place
        assert "\ufffdgnp.exe\ufffd" in place
    assert "<script>" in rows[0]["cause"] or rows[0]["cause"].startswith("SandboxError")
    assert "<script>window.owned" in page.text


@pytest.mark.parametrize("name", [name for name in HOSTILE if "200 kB" not in name])
def test_what_harms_a_terminal_does_not_harm_a_page(tmp_path: Path, name: str) -> None:
    text = HOSTILE[name]
    well_formed = text.encode("utf-8", errors="replace").decode("utf-8")
    run_dir = write_run(tmp_path / "run", Wanted(problems={"dapo": 1}, samples=1, text=well_formed))

    page = Page.of(write_report(run_dir))

    assert {one.tag for one in page.elements} <= _OUR_TAGS
    shown = page.source + json.dumps([page.turns(row) for row in page.index["rows"]], ensure_ascii=False)
    assert not {one for one in shown if unicodedata.category(one) in HARMFUL_CATEGORIES} - {"\n", "\ufffd"}


def test_links_of_trajectories_are_ascii_and_different(page: Page) -> None:
    links = [row["link"] for row in page.index["rows"]]
    assert len(set(links)) == len(links)
    assert all(link.isascii() and not set(link) & set("<>\"' ") for link in links)
