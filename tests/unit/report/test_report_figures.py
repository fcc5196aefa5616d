"""Every number on the page is one of `evaluation_results.json`, or follows from the journal as it does."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.report_page import Page, path_of
from support.report_runs import Wanted, write_run

from runner.report import write_report
from runner.report.figures import Kind, resolve, written
from runner.run import write_results


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 130 problems and four samples each, with its results."""
    run_dir = write_run(tmp_path_factory.mktemp("runs") / "run")
    write_results(run_dir)
    return run_dir


@pytest.fixture(scope="module")
def page(run_dir: Path) -> Page:
    """Its page."""
    return Page.of(run_dir / "report.html")


@pytest.fixture(scope="module")
def results(run_dir: Path) -> dict[str, Any]:
    """Its results as they lie on the disk."""
    found: dict[str, Any] = json.loads((run_dir / "evaluation_results.json").read_text(encoding="utf-8"))
    return found


def test_each_figure_is_the_one_that_stands_at_its_place_in_the_results(
    page: Page, results: dict[str, Any]
) -> None:
    figures = [one for one in page.all("data") if "data-of" in one.attributes]
    assert len(figures) > 200
    for figure in figures:
        path = path_of(figure.attributes["data-of"])
        value = resolve(results, path)
        shown = figure.attributes["value"]
        assert shown == ("" if value is None else repr(value)), path


def test_each_figure_reads_as_its_value_is_written(page: Page) -> None:
    readings = {
        (one.attributes["value"], one.text)
        for one in page.all("data")
        if one.attributes.get("value") and one.attributes["data-of"].startswith("#/datasets")
    }
    for value, shown in readings:
        number = json.loads(value)
        assert shown in {written(number, kind.value) for kind in Kind if kind is not Kind.MOMENT}


@pytest.mark.parametrize(
    "place",
    [
        "verdict/pooled/comparison/run_mean",
        "verdict/pooled/comparison/published_mean",
        "verdict/datasets/aime/comparison/interval/0",
        "verdict/datasets/dapo/comparison/p_adjusted",
        "verdict/datasets/dapo/solved_at_least_once/0/run",
        "datasets/dapo/mean/value",
        "datasets/dapo/mean/same_problems/standard_error",
        "datasets/aime/mean/new_problems/interval/1",
        "datasets/aime/mean/scored",
        "datasets/aime/summary/max@4",
        "datasets/aime/pass_at_k/3",
        "datasets/dapo/summary/by_sample/2/mean_score",
        "datasets/dapo/summary/termination_reasons/max_turns",
        "datasets/dapo/tools/timed_out",
        "datasets/dapo/tools/limits/memory",
        "datasets/dapo/tools/missing_modules/sympy",
        "datasets/dapo/tokens/generated",
        "engines/run/idle_share",
        "engines/run/mean_batch",
        "engines/by_engine/engine-2/losses",
        "engines/trajectories/generation_share",
        "cost/completion_tokens_per_right_answer",
        "timings/wall_s",
        "journal/events",
    ],
)
def test_the_page_shows_this_figure(page: Page, place: str) -> None:
    shown = {"/".join(path_of(one.attributes["data-of"])) for one in page.all("data")}
    assert place in shown


def test_the_list_has_the_record_of_every_trajectory(page: Page, results: dict[str, Any]) -> None:
    index = page.index
    rows = {
        (index["datasets"][row["dataset"]]["name"], row["problem"], row["sample"]): row
        for row in index["rows"]
    }
    assert len(rows) == 520
    for name, dataset in results["datasets"].items():
        for record in dataset["trajectories"]:
            row = rows[(name, record["row_index"], record["sample_index"])]
            fields = ("score", "prediction", "generated_tokens", "max_context_tokens", "elapsed_s", "seed")
            mine = ("score", "prediction", "tokens", "context", "seconds", "seed")
            assert [row[one] for one in mine] == [record[one] for one in fields]
            assert row["termination"] == record["termination_reason"]
            assert row["method"] == record["score_method"]
            turns = page.turns(row)
            assert turns[-1]["assistant"] == record["completion"]
            seen = [turn["observation"] for turn in turns if "observation" in turn]
            assert seen == [step["observation"] for step in record["react_steps"]]


def test_the_map_has_a_cell_for_every_trajectory_and_right_ones_make_up_the_mean(
    page: Page, results: dict[str, Any]
) -> None:
    cells = page.all("a", class_="cell right")
    scored = [row for one in results["datasets"].values() for row in one["trajectories"]]
    assert len(cells) == sum(row["score"] for row in scored)
    all_cells = [one for one in page.elements if one.attributes.get("class", "").startswith("cell ")]
    assert len([one for one in all_cells if one.tag == "a"]) == 520


def test_the_same_journal_gives_the_same_page(run_dir: Path) -> None:
    before = (run_dir / "report.html").read_bytes()
    assert write_report(run_dir).read_bytes() == before


def test_the_page_of_a_run_of_130_by_4_is_small(run_dir: Path) -> None:
    assert (run_dir / "report.html").stat().st_size < 10_000_000


def test_scores_of_other_scorers_stand_beside_the_run_s_own(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path / "run", Wanted(problems={"dapo": 2}, samples=2))
    scores = {("dapo", "dapo_000", 0): 0.5, ("dapo", "dapo_000", 1): None, ("dapo", "dapo_001", 0): 1.0}

    page = Page.of(write_report(run_dir, scores={"math-verify": scores}))

    assert page.index["scorers"] == ["math-verify"]
    assert [row["scores"] for row in page.index["rows"]] == [[0.5], [None], [1.0], [None]]
    assert "math-verify 0.7500 of 2, 1 without a score" in page.text
