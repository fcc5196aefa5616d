"""The report's summary of recorded rows."""

import json
from pathlib import Path

import pytest

from runner.protocol.score import SCORE_METHOD_PREFIX, AnswerStatus, ScoreMethod, Termination
from runner.results.aggregate import ScoredRow, report_summary

SUMMARY = Path(__file__).resolve().parents[3] / "shared" / "protocol" / "summary.json"


def test_the_summary_of_the_recorded_rows_is_the_recorded_one() -> None:
    if not SUMMARY.exists():
        pytest.skip("summary.json is not part of the repository and is not in ../shared/protocol")
    recorded = json.loads(SUMMARY.read_text(encoding="utf-8"))
    rows = [
        ScoredRow(
            problem_id=row["task_id"],
            sample=row["sample_index"],
            score=row["score"],
            score_method=ScoreMethod(row["score_method"].removeprefix(SCORE_METHOD_PREFIX)),
            termination=Termination(row["termination_reason"]),
            answer_status=AnswerStatus(row["answer_status"]),
        )
        for row in recorded["rows"]
    ]

    found = report_summary(rows, problems=recorded["items"], samples=recorded["samples"])

    assert len(rows) == 48
    assert found == recorded["expected"]
    assert list(found) == list(recorded["expected"])
