"""The page in a real browser: it opens, filters, finds and shows, asks for and runs nothing of others."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect
from support.markup import MARKUP, WELL_FORMED_MARKUP
from support.report_runs import Wanted, write_run

from runner.engines.base import TrajectoryKey
from runner.events import EndReason
from runner.report import write_report
from runner.run import write_results

WIDE = ViewportSize(width=1280, height=900)
NARROW = ViewportSize(width=400, height=800)
_SECONDS = 1000.0
LOST = TrajectoryKey("dapo", "dapo_004", 2)


@dataclass
class Opened:
    """A page that was opened, and what it did that it should not."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def watch(self) -> None:
        """Take down errors, dialogs, requests and further pages."""
        self.page.on(
            "console",
            lambda one: self.complaints.append(one.text) if one.type in {"error", "warning"} else None,
        )
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda one: self.complaints.append(f"dialog {one.message}"))
        self.page.on("popup", lambda one: self.complaints.append(f"page {one.url}"))
        self.page.on("request", lambda one: self.requests.append(one.url))


Open = Callable[..., Opened]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Open a file, and look at its end that nothing went wrong and nothing was asked for but the file."""
    opened: list[Opened] = []

    def open_it(path: Path, fragment: str = "", size: ViewportSize = WIDE, **context: Any) -> Opened:
        page = browser.new_context(viewport=size, **context).new_page()
        page.set_default_timeout(60 * _SECONDS)
        one = Opened(page)
        one.watch()
        opened.append(one)
        page.goto(path.as_uri() + fragment)
        if context.get("java_script_enabled", True):
            page.locator("html[data-ready]").wait_for(state="attached")
        return one

    yield open_it
    for one in opened:
        assert one.complaints == []
        assert {url.split("#")[0] for url in one.requests} <= {one.page.url.split("#")[0]}
        one.page.context.close()


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 130 problems with four samples each and varied outcomes, one of them without a score."""
    wanted = Wanted(lost=frozenset({LOST}), end=EndReason.INCOMPLETE)
    run_dir = write_run(tmp_path_factory.mktemp("runs") / "run", wanted)
    write_results(run_dir)
    return run_dir


@pytest.fixture(scope="module")
def results(run_dir: Path) -> dict[str, Any]:
    """Its results."""
    found: dict[str, Any] = json.loads((run_dir / "evaluation_results.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture
def report(run_dir: Path) -> Path:
    """Its page."""
    return run_dir / "report.html"


def shown(page: Page) -> int:
    """How many trajectories the list says it found."""
    return int((page.locator("#found").text_content() or "").split()[0].replace(",", ""))


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_no_part_of_the_page_is_wider_than_the_window(
    open_page: Open, report: Path, size: ViewportSize
) -> None:
    page = open_page(report, size=size).page
    width = "document.documentElement.scrollWidth"
    assert page.evaluate(width) == size["width"]
    page.locator("#rows tbody a").first.click()
    page.locator(".turn").first.wait_for()
    assert page.evaluate(width) == size["width"]


def test_the_verdict_is_the_first_thing_and_what_is_missing_the_second(
    open_page: Open, report: Path, results: dict[str, Any]
) -> None:
    page = open_page(report).page
    word = results["verdict"]["word"] or "no verdict"
    expect(page.locator("main h2").first).to_have_text("Verdict")
    expect(page.locator(".word")).to_have_text(word.capitalize())
    expect(page.locator(".notice.grave")).to_contain_text("1 of 520 trajectories have no score")


def test_all_trajectories_are_listed_at_first(open_page: Open, report: Path) -> None:
    page = open_page(report).page
    assert shown(page) == 520
    expect(page.locator("#rows tbody tr")).to_have_count(100)
    page.get_by_role("button", name="Show more, 420 left").click()
    expect(page.locator("#rows tbody tr")).to_have_count(200)


def test_filters_find_as_many_as_the_results_count(
    open_page: Open, report: Path, results: dict[str, Any]
) -> None:
    page = open_page(report).page
    records = {name: one["trajectories"] for name, one in results["datasets"].items()}
    page.get_by_role("combobox", name="Data set", exact=True).select_option("aime")
    assert shown(page) == results["datasets"]["aime"]["mean"]["planned"]
    page.get_by_role("combobox", name="Outcome", exact=True).select_option("right")
    assert shown(page) == sum(row["score"] for row in records["aime"])
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("#found")).to_have_text("520 trajectories")
    page.get_by_role("combobox", name="Ended by", exact=True).select_option("max_turns")
    reasons = [
        one["summary"]["termination_reasons"].get("max_turns", 0) for one in results["datasets"].values()
    ]
    assert shown(page) == sum(reasons)
    page.get_by_role("combobox", name="Sample", exact=True).select_option("1")
    assert shown(page) == len(
        [
            row
            for rows in records.values()
            for row in rows
            if row["termination_reason"] == "max_turns" and row["sample_index"] == 1
        ]
    )


def test_the_count_of_a_termination_leads_to_its_trajectories(
    open_page: Open, report: Path, results: dict[str, Any]
) -> None:
    page = open_page(report).page
    page.locator("#ends a").nth(2).click()
    counts = results["datasets"]["dapo"]["summary"]["termination_reasons"]
    expect(page.locator("#found")).to_have_text(f"{counts['max_turns']} of 520 trajectories")
    assert page.get_by_role("combobox", name="Ended by", exact=True).input_value() == "max_turns"


def test_searching_looks_through_every_turn(open_page: Open, report: Path, results: dict[str, Any]) -> None:
    page = open_page(report).page
    page.get_by_role("searchbox", name="Search", exact=True).fill("No module named 'sympy'")
    expected = [
        row
        for one in results["datasets"].values()
        for row in one["trajectories"]
        if any("No module named 'sympy'" in step["observation"] for step in row["react_steps"])
    ]
    expect(page.locator("#found")).to_have_text(f"{len(expected)} of 520 trajectories")
    page.locator("#rows tbody a").first.click()
    expect(page.locator(".turn mark").first).to_have_text("No module named 'sympy'")


def test_commands_are_filtered_by_what_they_ran_into(
    open_page: Open, report: Path, results: dict[str, Any]
) -> None:
    page = open_page(report).page
    page.get_by_role("combobox", name="Commands", exact=True).select_option("limited")
    expect(page.locator("#found")).not_to_contain_text("searching")
    assert (
        0
        < shown(page)
        <= sum(count for one in results["datasets"].values() for count in one["tools"]["limits"].values())
    )


def test_a_filtered_list_can_be_linked(open_page: Open, report: Path) -> None:
    page = open_page(report, "#list?dataset=1&outcome=wrong&q=count+pairs").page
    assert page.get_by_role("searchbox", name="Search", exact=True).input_value() == "count pairs"
    assert page.get_by_role("combobox", name="Outcome", exact=True).input_value() == "wrong"
    assert 0 < shown(page) < 120
    expect(page.get_by_role("search", name="Trajectories")).to_be_in_viewport()


def test_a_trajectory_opens_from_the_list_with_all_its_turns_and_closes_again(
    open_page: Open, report: Path, results: dict[str, Any]
) -> None:
    page = open_page(report).page
    record = results["datasets"]["dapo"]["trajectories"][1]
    page.get_by_role("link", name="dapo_000, sample 1").first.click()
    view = page.locator("#trajectory")
    expect(view.get_by_role("heading", level=2)).to_have_text("dapo_000, sample 1")
    expect(view.locator(".turn")).to_have_count(len(record["turn_seeds"]))
    expect(view.locator("pre.assistant").last).to_have_text(record["completion"])
    facts = view.locator(".facts-list").text_content() or ""
    assert f"score{record['score']:g}" in facts
    assert f"answer{record['prediction']}" in facts
    assert f"tokens generated{record['generated_tokens']:,}" in facts
    expect(page.locator("#overview")).to_be_hidden()
    page.go_back()
    expect(page.locator("#overview")).to_be_visible()
    expect(view).to_be_hidden()


def test_one_comes_back_to_where_one_was(open_page: Open, report: Path) -> None:
    page = open_page(report).page
    page.get_by_role("button", name="Show more, 420 left").click()
    link = page.locator("#rows tbody a").nth(150)
    link.click()
    top = page.locator("#trajectory h2")
    expect(top).to_be_in_viewport()
    page.get_by_role("link", name="Back to the run").click()
    expect(link).to_be_in_viewport()
    expect(link).to_be_focused()


def test_who_opens_a_trajectory_while_typing_finds_the_searched_list_again(
    open_page: Open, report: Path
) -> None:
    page = open_page(report).page
    page.evaluate(
        """() => {
          const search = document.getElementById("filter-q");
          search.value = "sympy";
          search.dispatchEvent(new Event("input", { bubbles: true }));
          document.querySelector("#rows tbody a").click();
        }"""
    )
    expect(page.locator("#trajectory h2")).to_have_text("dapo_000, sample 0")
    page.wait_for_timeout(_SECONDS / 2)
    assert page.url.endswith("#t/dapo/dapo_000/0")
    page.get_by_role("link", name="Back to the run").click()
    expect(page.locator("#found")).to_contain_text(" of 520 trajectories")
    assert page.url.endswith("#list?q=sympy")


def test_a_search_that_no_turn_holds_hides_no_turn(open_page: Open, report: Path) -> None:
    page = open_page(report, "#list?q=divisors%3F").page
    page.locator("#rows tbody a").first.click()
    expect(page.locator("pre.question mark")).to_have_text("divisors?")
    assert page.locator(".turn").count() > 1


def test_a_trajectory_and_a_turn_of_it_can_be_linked(open_page: Open, report: Path) -> None:
    page = open_page(report, "#t/aime/aime_003/2/2").page
    expect(page.get_by_role("heading", level=2)).to_have_text("aime_003, sample 2")
    expect(page.locator("#turn-2")).to_be_in_viewport()
    assert page.title().startswith("aime_003, sample 2")


def test_a_link_to_no_trajectory_says_so(open_page: Open, report: Path) -> None:
    page = open_page(report, "#t/aime/nothing/7").page
    expect(page.locator("#found")).to_have_text("There is no such trajectory in this run.")
    expect(page.locator("#overview")).to_be_visible()


def test_turns_of_a_trajectory_are_found_and_filtered(open_page: Open, report: Path) -> None:
    page = open_page(report, "#list?order=turns").page
    page.locator("#rows tbody a").first.click()
    turns = page.locator(".turn")
    expect(turns).to_have_count(50)
    page.get_by_role("combobox", name="Show", exact=True).select_option("format_check")
    expect(page.locator(".turn.action")).to_have_count(0)
    page.get_by_role("combobox", name="Show", exact=True).select_option("")
    page.get_by_label("Find in turns").fill("no such words anywhere")
    expect(turns).to_have_count(0)
    expect(page.locator("#trajectory [role=status]")).to_have_text("0 of 50 turns")


def test_one_can_go_on_to_the_next_trajectory_of_the_filtered_list(open_page: Open, report: Path) -> None:
    page = open_page(report, "#list?outcome=limit").page
    second = page.locator("#rows tbody a").nth(1).text_content()
    page.locator("#rows tbody a").first.click()
    page.get_by_role("link", name="Next").click()
    expect(page.locator("#trajectory h2")).to_have_text(second or "")
    page.get_by_role("link", name="Back to the run").click()
    assert page.get_by_role("combobox", name="Outcome", exact=True).input_value() == "limit"


def test_the_map_is_walked_by_arrow_keys_and_opens_a_trajectory(open_page: Open, report: Path) -> None:
    page = open_page(report).page
    page.locator(".map").first.locator("a").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#trajectory h2")).to_have_text("dapo_001, sample 1")


def test_the_map_is_ordered_by_how_often_a_problem_was_solved(open_page: Open, report: Path) -> None:
    page = open_page(report).page
    rights = "[...document.querySelector('.map').children].map((one) => Number(one.dataset.right))"
    before = page.evaluate(rights)
    page.get_by_role("button", name="Order by how often solved").click()
    assert page.evaluate(rights) == sorted(before, reverse=True) != before
    page.get_by_role("button", name="Order by how often solved").click()
    assert page.evaluate(rights) == before


def test_a_trajectory_without_a_score_has_none_and_says_why(open_page: Open, report: Path) -> None:
    page = open_page(report, f"#t/{LOST.dataset}/{LOST.problem_id}/{LOST.sample}").page
    facts = page.locator("#trajectory .facts-list")
    expect(facts).to_contain_text("scorenone")
    expect(page.locator("#trajectory .notice")).to_contain_text("SandboxError: the daemon did not answer")
    expect(page.locator("#trajectory pre.log")).to_have_text("dockerd: no space")


def test_it_is_dark_where_the_reader_s_screen_is(open_page: Open, report: Path) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    light = open_page(report, color_scheme="light").page.evaluate(background)
    dark = open_page(report, color_scheme="dark").page.evaluate(background)
    assert light == "rgb(255, 255, 255)"
    assert dark == "rgb(16, 20, 26)"


def test_nothing_on_the_page_moves_by_itself(open_page: Open, report: Path) -> None:
    page = open_page(report).page
    assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
    assert page.evaluate("document.getAnimations().length") == 0


def test_without_scripts_the_figures_are_there_and_what_is_missing_is_said(
    open_page: Open, report: Path, results: dict[str, Any]
) -> None:
    page = open_page(report, java_script_enabled=False).page
    expect(page.locator("noscript p")).to_contain_text("need JavaScript")
    expect(page.locator("#score-table")).to_contain_text(
        f"{results['datasets']['dapo']['mean']['value']:.4f}"
    )
    expect(page.locator("#filters")).to_be_hidden()


def test_pictures_controls_and_headings_have_names_and_order(open_page: Open, report: Path) -> None:
    page = open_page(report).page
    assert page.locator("svg:not([aria-label])").count() == 0
    unnamed = "[...document.querySelectorAll('input, select')].filter((one) => !one.labels.length).length"
    assert page.evaluate(unnamed) == 0
    levels = page.evaluate(
        "[...document.querySelectorAll('h1,h2,h3,h4')].map((one) => Number(one.tagName[1]))"
    )
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    for role in ("banner", "main", "navigation", "contentinfo", "search"):
        assert page.get_by_role(role).count() >= 1  # type: ignore[arg-type]


def test_scorers_that_differ_are_found_and_stand_side_by_side(open_page: Open, tmp_path: Path) -> None:
    run_dir = write_run(tmp_path / "run", Wanted(problems={"dapo": 2}, samples=1))
    scores = {("dapo", "dapo_000", 0): 0.25, ("dapo", "dapo_001", 0): None}
    page = open_page(write_report(run_dir, scores={"math-verify": scores})).page
    expect(page.locator("#scorer-table")).to_contain_text("0.2500 of 1, 1 without a score")
    page.get_by_role("combobox", name="Scorers", exact=True).select_option("differ")
    expect(page.locator("#found")).to_have_text("2 trajectories")
    page.locator("#rows tbody a").first.click()
    expect(page.locator(".facts-list")).to_contain_text("score by math-verify0.2500")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run in which every text and every id is hostile."""
    ids = "".join(WELL_FORMED_MARKUP.split())
    wanted = Wanted(problems={"dapo": 3, "aime": 1}, samples=2, text=WELL_FORMED_MARKUP, ids=ids, end=None)
    return write_report(write_run(tmp_path_factory.mktemp("runs") / "run", wanted))


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_nothing_that_a_model_wrote_runs_or_hides_or_leaves(
    open_page: Open, hostile: Path, size: ViewportSize
) -> None:
    page = open_page(hostile, size=size).page
    assert page.evaluate("document.documentElement.scrollWidth") == size["width"]
    page.get_by_role("searchbox", name="Search", exact=True).fill(MARKUP["script"])
    expect(page).to_have_url(re.compile("#list[?]q="))
    expect(page.locator("#found")).to_have_text("8 trajectories")
    for number in range(8):
        page.locator("#rows tbody a").nth(number).click()
        expect(page.locator(".turn pre.assistant").first).to_contain_text(MARKUP["end of a script"])
        page.mouse.move(200, 400)
        page.get_by_role("link", name="Back to the run").click()
    assert page.evaluate("window.owned") is None
    outside = (
        "[...document.querySelectorAll('[href], [src]')].map((one) => one.getAttribute('href') ?? one.src)"
    )
    assert all(one.startswith(("#", "data:,")) for one in page.evaluate(outside))
    foreign = (
        "document.querySelectorAll('img, iframe, object, embed, base, [style], [onload], [onerror]').length"
    )
    assert page.evaluate(foreign) == 0


def test_what_escaping_might_miss_the_policy_of_the_page_refuses(browser: Browser, report: Path) -> None:
    page = browser.new_context().new_page()
    page.goto(report.as_uri())
    page.locator("html[data-ready]").wait_for(state="attached")
    refused = page.evaluate(
        """async () => {
          const refused = [];
          addEventListener("securitypolicyviolation", (event) => refused.push(event.effectiveDirective));
          const script = document.createElement("script");
          try { script.textContent = "window.owned = 1"; } catch { refused.push("text of a script"); }
          try { document.body.innerHTML = "<b>x</b>"; } catch { refused.push("markup"); }
          const title = document.querySelector("h1");
          try { title.setAttribute("onclick", "window.owned = 2"); } catch { refused.push("handler"); }
          title.click();
          document.body.append(Object.assign(document.createElement("img"), { src: "http://127.0.0.1:9/x" }));
          try { await fetch("http://127.0.0.1:9/"); } catch { refused.push("fetch"); }
          await new Promise((done) => setTimeout(done, 200));
          return [window.owned ?? null, ...new Set(refused)];
        }"""
    )
    assert refused[0] is None
    assert set(refused) >= {"text of a script", "markup", "handler", "fetch", "img-src", "connect-src"}
    page.context.close()
