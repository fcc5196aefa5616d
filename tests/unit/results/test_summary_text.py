"""The summary: what is missing is said, and nothing hostile gets through."""

import shlex
import unicodedata
from typing import Any

import pytest
from support.events import began, continued, ended, paused, retried, run_started, terminated, turn, unfinished

from runner.events import AnyEvent, EndReason
from runner.results.build import build_results
from runner.results.summary import TEXT_WIDTH, summary_text
from runner.state import reduce_events
from runner.views.lines import LinesView


def results(*events: AnyEvent) -> dict[str, Any]:
    return build_results(reduce_events(events))


def text(*events: AnyEvent) -> str:
    return summary_text(results(*events))


def test_a_complete_run_s_summary_shows_mean_and_standard_error() -> None:
    shown = text(
        run_started("p0", samples=2),
        began(),
        terminated(),
        began(sample=1),
        terminated(sample=1, score=0.0),
        ended(),
    )

    assert "2/2" in shown
    assert "0.5000±0.5000" in "".join(shown.split())
    assert "have no score" not in shown
    assert "complete after" in shown


def test_an_incomplete_run_s_summary_shows_between_what_the_mean_lies() -> None:
    shown = text(
        run_started("p0", "p1", "p2", "p3"),
        began("p0"),
        terminated("p0"),
        began("p1", row=1),
        terminated("p1", score=0.0),
        began("p2", row=2),
        unfinished("p2", cause="the daemon is gone"),
        ended(EndReason.INCOMPLETE),
    )

    assert "2 of 4 trajectories have no score (1 never started)" in shown
    assert "between 0.2500" in " ".join(shown.split())
    assert "and 0.7500" in " ".join(shown.split())
    assert "p2 sample 0: the daemon is gone" in shown
    assert "incomplete after" in shown


def test_a_run_without_any_score_shows_none_and_no_zero() -> None:
    found = results(run_started("p0"), began(), unfinished())["datasets"]["set"]
    shown = text(run_started("p0"), began(), unfinished())

    assert (found["mean"]["value"], found["mean"]["standard_error"]) == (None, None)
    assert (found["mean"]["if_missing_wrong"], found["mean"]["if_missing_right"]) == (0.0, 1.0)
    assert "none" in shown
    assert "killed after" in shown


def test_deviations_and_retries_are_shown() -> None:
    shown = text(
        run_started(deviations=("the model is a script",)),
        began(),
        retried(),
        began(attempt=2),
        terminated(),
        ended(),
    )

    assert "no reproduction: the model is a script" in shown
    assert "1 after failures of our own" in shown


HOSTILE = "\x1b]52;c;x\x07\x1b[2J[bold red]\u202e\r`" + "\u0301" * 100 + "x" * 500


def test_what_failures_of_our_own_side_held_up_is_told() -> None:
    troubled = text(run_started("p0"), began(), paused(), continued(90.0), terminated(), ended())

    assert "90.0 s of it paused by failures of our own side" in troubled
    assert "paused" not in text(run_started("p0"), began(), terminated(), ended())


@pytest.mark.parametrize("keep", [True, False])
def test_hostile_ids_and_causes_are_harmless(keep: bool) -> None:
    events: list[AnyEvent] = [
        run_started(HOSTILE, deviations=(HOSTILE,), run_id=HOSTILE),
        began(HOSTILE),
        *([turn(HOSTILE, problem_id=HOSTILE)] if keep else []),
        unfinished(HOSTILE, cause=HOSTILE),
        ended(EndReason.INCOMPLETE),
    ]

    shown = text(*events)

    assert "[bold red]" in shown
    harmful = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert {unicodedata.category(one) for one in shown.replace("\n", "")}.isdisjoint(harmful)
    assert max(len(line) for line in shown.split("\n")) <= TEXT_WIDTH + 100


def test_lines_tell_beginning_ends_and_retries() -> None:
    lines: list[str] = []
    view = LinesView(lines.append)

    for event in (
        run_started("p0", "p1"),
        began(),
        turn(),
        retried(cause="dead\nwire"),
        terminated(),
        began("p1"),
        unfinished("p1"),
        ended(EndReason.INCOMPLETE),
    ):
        view(event)

    assert lines == [
        "run=run datasets=set problems=2 samples=1",
        "retry trajectory=set/p0:sample00 attempt=1 cause=dead⏎wire",
        "done=1/2 trajectory=set/p0:sample00 score=1 termination=final_answer turns=1 s=0.5 mean=1.000",
        "unfinished trajectory=set/p1:sample00 attempts=3 cause=dead",
        "ended=incomplete",
    ]


def test_no_line_holds_more_than_a_line() -> None:
    lines: list[str] = []
    view = LinesView(lines.append)

    for event in (run_started(HOSTILE), began(HOSTILE), unfinished(HOSTILE, cause=HOSTILE * 100)):
        view(event)

    assert len(lines) == 2
    assert all(len(line) < 1000 and line.isprintable() for line in lines)


def test_an_id_cannot_pass_for_further_fields_of_a_line() -> None:
    lines: list[str] = []
    view = LinesView(lines.append)
    spoof = 'x score=1 termination="final_answer"'

    for event in (run_started(spoof), began(spoof), terminated(spoof, score=0.0)):
        view(event)

    assert lines[1].startswith('done=1/1 trajectory="set/x score=1 termination=')
    fields = dict(field.split("=", 1) for field in shlex.split(lines[1]))
    assert (fields["trajectory"], fields["score"]) == (f"set/{spoof}:sample00", "0")
