"""What a run is not is said on top: no end, no score, no verdict, no reproduction, failures of our own."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from support.events import began, continued, ended, paused, run_started, stalled, terminated
from support.report_page import Page, path_of
from support.report_runs import Wanted, write_run

from runner.engines.base import TrajectoryKey
from runner.events import EndReason, ResumeRecord, RunResumed
from runner.journal import JournalWriter, read_run
from runner.report import REPORT_NAME, write_report, write_report_if_possible
from runner.report.standing import notices
from runner.results.build import build_results
from runner.run import write_results
from runner.state import reduce_events

SMALL = {"dapo": 3, "aime": 2}


def page_of(tmp_path: Path, **wanted: Any) -> Page:
    """The page of a small run."""
    return Page.of(write_report(write_run(tmp_path / "run", Wanted(problems=SMALL, samples=2, **wanted))))


def test_a_run_without_an_end_is_no_complete_one(tmp_path: Path) -> None:
    text = page_of(tmp_path, end=None).text
    assert "The journal has no end: the run was killed, or is still at work." in text
    assert "end none" in text


def test_an_interrupted_run_says_so_and_what_is_missing(tmp_path: Path) -> None:
    stopped = frozenset({TrajectoryKey("dapo", "dapo_001", 1)})
    never = frozenset({TrajectoryKey("aime", "aime_001", 0), TrajectoryKey("aime", "aime_001", 1)})

    page = page_of(tmp_path, end=EndReason.INTERRUPTED, stopped=stopped, never=never)

    assert "The run was stopped before all of its trajectories had ended." in page.text
    assert "3 of 10 trajectories have no score. They are not counted as wrong" in page.text
    assert "aime: 2 without a score (2 never started)" in page.text
    outcomes = [row["outcome"] for row in page.index["rows"]]
    assert outcomes.count("not-started") == 2
    assert outcomes.count("unfinished") == 1


def test_a_failed_run_failed_on_our_own_side(tmp_path: Path) -> None:
    assert "The run failed: on our own side" in page_of(tmp_path, end=EndReason.FAILED).text


def test_a_failure_of_ours_has_no_score_and_its_cause_is_told(tmp_path: Path) -> None:
    lost = frozenset({TrajectoryKey("dapo", "dapo_000", 0)})

    page = page_of(tmp_path, end=EndReason.INCOMPLETE, lost=lost)

    row = page.index["rows"][0]
    assert "score" not in row
    assert row["outcome"] == "unfinished"
    assert row["cause"] == "SandboxError: the daemon did not answer"
    assert row["log"] == ["dockerd: no space"]
    assert page.turns(row)
    assert "dapo_000 sample 0: SandboxError: the daemon did not answer" in page.text
    assert "if all missing are wrong" in page.text
    assert "if all missing are right" in page.text


def test_a_run_that_nothing_is_published_for_has_no_verdict(tmp_path: Path) -> None:
    page = page_of(tmp_path, published=False)
    assert "No verdict" in page.text
    assert not [one for one in page.all("table") if one.attributes.get("id") == "comparison-table"]


def test_what_forbids_the_word_reproduction_stands_in_place_of_the_verdict(tmp_path: Path) -> None:
    changes = {"deviations": ("temperature is 0.2, the report's 1.0",), "notes": ("one file has no hash",)}

    page = page_of(tmp_path, changes=changes)

    words = [one.text.strip() for one in page.all("p") if "word" in one.attributes.get("class", "").split()]
    assert words == ["No reproduction"]
    assert "Not to be called a reproduction, because: temperature is 0.2, the report's 1.0" in page.text
    assert "one file has no hash" in page.text


def test_a_run_in_which_nothing_was_scored_has_no_mean(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    with JournalWriter(run_dir / "journal.jsonl", clock=lambda: 5.0) as journal:
        journal.append(run_started("p0", "p1", samples=2))

    page = Page.of(write_report(run_dir))

    assert "4 of 4 trajectories have no score" in page.text
    figures = {"/".join(path_of(one.attributes["data-of"])) for one in page.all("data")}
    assert "datasets/set/mean/planned" in figures
    assert not figures & {"datasets/set/mean/value", "datasets/set/summary/max@2", "datasets/set/pass_at_k/1"}


def test_a_run_that_went_on_says_so_and_that_the_pause_is_in_no_time(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    first = run_started("p0")
    resumed = RunResumed(
        **first.model_dump(exclude={"type", "at"}),
        resumed=ResumeRecord(part=2, missing=1, differs=("the host has another kernel",)),
    )
    times = iter([0.0, 10.0, 100.0, 110.0])
    with JournalWriter(run_dir / "journal.jsonl", clock=lambda: next(times)) as journal:
        for event in (first, ended(EndReason.INTERRUPTED), resumed, ended(EndReason.INTERRUPTED)):
            journal.append(event)

    text = Page.of(write_report(run_dir)).text

    assert "The run went on once after it had stopped; the 1:30 between are in no time on this page." in text
    assert "part 2: the host has another kernel" in text
    assert "at work 20 s" in text


def test_pauses_and_stalls_are_told_and_are_no_run_s_when_there_were_none() -> None:
    calm = [run_started("p0"), began(), terminated(), ended()]
    troubled = [*calm[:2], paused(), continued(90.0), stalled(), *calm[2:]]

    def told(events: list[Any]) -> str:
        state = reduce_events(events)
        return " ".join(one.text for one in notices(state, build_results(state)))

    assert "nothing began: once, 1:30 in all" in told(troubled)
    assert "Nothing moved for long, once; the files stall-*.txt" in told(troubled)
    assert "nothing began" not in told(calm)
    assert "Nothing moved" not in told(calm)


def test_results_are_written_also_if_the_page_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run_dir = write_run(tmp_path / "run", Wanted(problems=SMALL, samples=1))

    def fails(*_: object) -> str:
        raise RuntimeError("a template is broken")

    monkeypatch.setattr("runner.report.write.render_report", fails)
    with caplog.at_level(logging.WARNING):
        outcome = write_results(run_dir)

    assert outcome.reason is EndReason.COMPLETE
    assert json.loads((run_dir / "evaluation_results.json").read_text(encoding="utf-8"))["complete"]
    assert not (run_dir / REPORT_NAME).exists()
    assert "report.html was not written" in caplog.text
    assert "a template is broken" in caplog.text


def test_a_disk_that_refuses_the_page_is_told_and_no_more(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path / "run", Wanted(problems=SMALL, samples=1))
    state, facts = read_run(run_dir / "journal.jsonl")
    (run_dir / REPORT_NAME).mkdir()
    assert not write_report_if_possible(run_dir, state, build_results(state, facts))
