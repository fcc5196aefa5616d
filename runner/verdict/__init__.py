"""The verdict: a run's scores against published ones. Pure functions, but for the reading of two files."""

from runner.verdict.expectation import Expectation, Outlook, expect
from runner.verdict.judge import POOLED, judge
from runner.verdict.model import (
    Comparison,
    Judgement,
    Reach,
    RunScores,
    SolvedAtLeastOnce,
    Verdict,
    VerdictSettings,
    Word,
)
from runner.verdict.published import (
    DEFAULT_PUBLISHED,
    Figures,
    Published,
    Report,
    load_published,
    published_names,
    published_of,
)
from runner.verdict.rows import PublishedRows, read_published_rows
from runner.verdict.text import expectation_lines, headline, verdict_lines

__all__ = [
    "DEFAULT_PUBLISHED",
    "POOLED",
    "Comparison",
    "Expectation",
    "Figures",
    "Judgement",
    "Outlook",
    "Published",
    "PublishedRows",
    "Reach",
    "Report",
    "RunScores",
    "SolvedAtLeastOnce",
    "Verdict",
    "VerdictSettings",
    "Word",
    "expect",
    "expectation_lines",
    "headline",
    "judge",
    "load_published",
    "published_names",
    "published_of",
    "read_published_rows",
    "verdict_lines",
]
