"""A verdict and an expectation as plain lines for the summary and the terminal."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from runner.clean import clean_text
from runner.verdict.expectation import Expectation, Outlook
from runner.verdict.model import (
    Comparison,
    Judgement,
    Method,
    Point,
    SolvedAtLeastOnce,
    VarianceSource,
    Verdict,
    Word,
)
from runner.verdict.wording import p_text, points, reach_sentence, samples_text, signed_points

TEXT_WIDTH = 100
_INDENT = "  "
_SHOWN_CHARS = 300


def verdict_lines(verdict: Verdict) -> list[str]:
    """Return the verdict: headline, a table with one line a comparison, reasons, and what else is to be
    known."""
    lines = _wrapped([headline(verdict)], first="", rest=_INDENT)
    level = f"{verdict.settings.interval_level * 100:g} %"
    judgements = [*([] if verdict.pooled is None else [verdict.pooled]), *verdict.datasets]
    if not judgements:
        return lines
    lines += ["", *_table(_table_rows(judgements, level)), ""]
    for judgement in judgements:
        said = list(_sentences(judgement, verdict))
        lines += _wrapped([f"{_plain(judgement.name)}: {said[0]}"])
        lines += _wrapped(said[1:], first=_INDENT * 2, rest=_INDENT * 3)
    solved = [(one.name, figure) for one in judgements for figure in one.solved]
    if solved:
        lines += ["", "solved at least once (shown, decides nothing)", *_table(_solved_rows(solved, level))]
    notes = list(_notes(verdict, judgements))
    return lines + ([""] if notes else []) + _wrapped(notes)


def headline(verdict: Verdict) -> str:
    """Return the verdict in one sentence."""
    pooled = verdict.pooled
    numbers = ""
    if pooled is not None and pooled.if_wrong is not None and pooled.if_right is not None:
        numbers = (
            f"this run {_run_mean(pooled.if_wrong, pooled.if_right)},"
            f" published {pooled.if_wrong.published_mean:.4f}, {pooled.planned_problems} problems"
        )
    if verdict.forbidden:
        reasons = "; ".join(_plain(reason) for reason in verdict.forbidden)
        by_numbers = "" if pooled is None else f" (by the numbers alone: {pooled.word.value}; {numbers})"
        return f"no reproduction, because {reasons}{by_numbers}"
    if pooled is None:
        return "no verdict: nothing of this run can be held against a published score"
    return f"verdict: {pooled.word.value}: {numbers}"


def expectation_lines(expectation: Expectation) -> list[str]:
    """Return what a run will be able to tell, for before it starts."""
    outlooks = [*([] if expectation.pooled is None else [expectation.pooled]), *expectation.datasets]
    if not outlooks:
        return _wrapped(["no published score to compare with", *expectation.notes])
    drops = [difference for difference, _ in outlooks[0].power]
    rows = [
        (
            "",
            "problems",
            "samples",
            *(f"seen {points(drop)} points off" for drop in drops),
            "reproduced if equal",
        )
    ]
    rows += [_outlook_row(outlook) for outlook in outlooks]
    source = "published rows" if expectation.rows else "the published mean and max@k (assumed Beta)"
    return [
        "what this run will be able to tell",
        *_table(rows),
        "",
        *_wrapped(
            [
                *(outlook.sentence for outlook in outlooks),
                *expectation.notes,
                f"variance within problems from {source}",
            ]
        ),
    ]


def _outlook_row(outlook: Outlook) -> tuple[str, ...]:
    return (
        outlook.name,
        str(outlook.problems),
        f"{outlook.run_samples} against {outlook.published_samples}",
        *(f"{power:.2f}" for _, power in outlook.power),
        f"{outlook.reproduced_if_equal:.2f}",
    )


def _table_rows(judgements: Sequence[Judgement], level: str) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("", "published", "this run", "difference", f"{level} interval", "p", "")]
    for judgement in judgements:
        name = _plain(judgement.name)
        wrong, right = judgement.if_wrong, judgement.if_right
        if wrong is None or right is None:
            mean = _samples_mean(judgement.points)
            rows.append((name, mean, "", "", "", "", judgement.word.value))
            continue
        rows.append(
            (
                name,
                f"{wrong.published_mean:.4f} ±{wrong.published_standard_error:.4f}",
                _run_mean(wrong, right),
                _between_points(wrong.difference, right.difference),
                _interval(wrong, right),
                _p_cell(wrong, right),
                judgement.word.value,
            )
        )
    return rows


def _run_mean(wrong: Comparison, right: Comparison) -> str:
    mean = _between(wrong.run_mean, right.run_mean)
    return mean if wrong.run_mean != right.run_mean else f"{mean} ±{wrong.run_standard_error:.4f}"


def _interval(wrong: Comparison, right: Comparison) -> str:
    low = min(wrong.interval[0], right.interval[0])
    high = max(wrong.interval[1], right.interval[1])
    return f"{signed_points(low)} to {signed_points(high)}"


def _p_cell(wrong: Comparison, right: Comparison) -> str:
    return p_text(max(wrong.p_adjusted, right.p_adjusted)).removeprefix("p ").removeprefix("= ")


def _sentences(judgement: Judgement, verdict: Verdict) -> Iterator[str]:
    yield _plain(judgement.why)
    comparison = judgement.if_wrong
    if judgement.word is Word.CANNOT_TELL and judgement.reach is not None and comparison is not None:
        yield reach_sentence(
            judgement.reach, comparison.run_samples, comparison.published_samples, verdict.settings
        )
    if len(judgement.points) > 1:
        yield "published: " + ", ".join(_point(point) for point in judgement.points)
    yield from (_plain(note) for note in judgement.notes)


def _point(point: Point) -> str:
    return f"{point.report} {point.mean:.4f} ({samples_text(point.samples)})"


def _samples_mean(published: Sequence[Point]) -> str:
    if not published:
        return ""
    total = sum(point.samples for point in published)
    return f"{sum(point.samples * point.mean for point in published) / total:.4f}"


def _solved_rows(solved: Iterable[tuple[str, SolvedAtLeastOnce]], level: str) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("", "", "published", "this run", f"{level} of equal runs lie in")]
    for dataset, figure in solved:
        low, high = figure.interval
        rows.append(
            (
                _plain(dataset),
                figure.name,
                "" if figure.published is None else f"{figure.published:.4f}",
                f"{figure.run:.4f}",
                f"{low:.4f} to {high:.4f}"
                + (" (from this run alone)" if figure.interval_of != "this run" else ""),
            )
        )
    return rows


def _notes(verdict: Verdict, judgements: Sequence[Judgement]) -> Iterator[str]:
    comparisons = [one.if_wrong for one in judgements if one.if_wrong is not None]
    if comparisons:
        exact = all(one.method is Method.PERMUTATION for one in comparisons)
        how = Method.PERMUTATION.value if exact else Method.NORMAL.value
        rows = "with" if verdict.rows else "without"
        yield f"p: {how}, {rows} the published rows; of data sets after Holm"
        yield "±: standard error for fresh samples of the same problems"
        if any(VarianceSource.ASSUMED in (one.run_variance, one.published_variance) for one in comparisons):
            yield f"variance {VarianceSource.ASSUMED.value}"
    yield from (_plain(note) for note in verdict.notes)


def _between(wrong: float, right: float) -> str:
    return f"{wrong:.4f}" if wrong == right else f"{wrong:.4f} to {right:.4f}"


def _between_points(wrong: float, right: float) -> str:
    return signed_points(wrong) if wrong == right else f"{signed_points(wrong)} to {signed_points(right)}"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        _INDENT + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _wrapped(texts: Iterable[str], *, first: str = _INDENT, rest: str = _INDENT * 2) -> list[str]:
    return [
        line
        for text in texts
        for line in textwrap.wrap(
            text, TEXT_WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
        )
    ]


def _plain(text: str) -> str:
    return clean_text(text, keep_lines=False, limit_chars=_SHOWN_CHARS)
