"""Results of a run: rows in the order of the data set, and what commands ran into."""

from typing import Any

from support.events import began, ended, retried, run_started, terminated, turn, unfinished

from runner.events import AnyEvent, EndReason, ToolRecord
from runner.protocol.score import AnswerStatus, ScoreMethod, Termination
from runner.results.build import build_results
from runner.results.summary import summary_text
from runner.state import reduce_events


def dataset(*events: AnyEvent) -> dict[str, Any]:
    found: dict[str, Any] = build_results(reduce_events(events))["datasets"]["set"]
    return found


def tool(exit_code: int | None, *limits: str, timed_out: bool = False, wall_s: float = 1.0) -> ToolRecord:
    return ToolRecord(
        exit_code=exit_code,
        timed_out=timed_out,
        limits=limits,
        wall_s=wall_s,
        cpu_s=None,
        throttled_s=None,
        peak_memory_bytes=None,
        stdout_bytes=0,
        stderr_bytes=0,
    )


def test_rows_stand_in_the_data_set_s_order_and_by_sample_however_they_ended() -> None:
    events: list[AnyEvent] = [run_started("z", "a", samples=2)]
    for problem_id, row, sample in (("a", 1, 1), ("z", 0, 1), ("a", 1, 0), ("z", 0, 0)):
        events += [
            began(problem_id, row=row, sample=sample),
            terminated(problem_id, sample=sample),
        ]

    assert [one["key"] for one in dataset(*events)["trajectories"]] == [
        *("z:sample00", "z:sample01", "a:sample00", "a:sample01")
    ]


def test_what_is_unfinished_is_told_with_its_cause_and_in_no_figure() -> None:
    found = dataset(
        run_started("p0", "p1", "p2"),
        began(),
        terminated(),
        began("p1", row=1),
        turn(problem_id="p1"),
        unfinished("p1", cause="dead"),
    )

    assert found["unfinished"] == [
        {"task_id": "p1", "sample_index": 0, "attempts": 1, "turns_done": 1, "cause": "dead"}
    ]
    assert (found["not_started"], found["summary"]["count"], found["summary"]["error_count"]) == (1, 1, 0)
    assert found["tokens"] == {"generated": 2, "largest_context": 5}


def test_a_summary_tells_terminations_methods_answers_samples_errors_and_retries() -> None:
    refused: dict[str, Any] = {
        "termination": Termination.REQUEST_ERROR,
        "score_method": ScoreMethod.REQUEST_ERROR,
        "answer_status": AnswerStatus.MISSING_FINAL_ANSWER,
    }
    events: list[AnyEvent] = [
        run_started(samples=2),
        began(),
        retried(),
        began(attempt=2),
        terminated(),
        began(sample=1),
        turn(sample=1, tool=tool(None, "time", timed_out=True)),
        terminated(sample=1, score=0.0, **refused),
        ended(EndReason.COMPLETE),
    ]

    shown = summary_text(build_results(reduce_events(events)))

    assert [" ".join(line.split()) for line in shown.splitlines() if line and line[0].isalpha()][2:11] == [
        "terminations final_answer 1, request_error 1",
        "score methods exact_fallback 1, request_error 1",
        "answers answered 1, missing_final_answer 1",
        "by sample 0: 1.0000 1: 0.0000",
        "pass@k 1: 0.5000 2: 1.0000",
        "errors 1 context or request",
        "actions 1 run, 0 with a non-zero exit code, 1 timed out, limits hit: time 1",
        "tokens 4 generated, largest context 5",
        "retries 1 after failures of our own",
    ]
