"""A comparison for a terminal."""

from collections.abc import Callable, Iterable, Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from runner.clean import clean_text
from runner.compare.model import Difference, ErrorOfDifference, RunComparison, ScorePair

MOST_LISTED = 30
_NAME_CHARS = 60
_ANSWER_CHARS = 30
_SETTING_CHARS = 40


def comparison_lines(comparison: RunComparison, *, several: bool) -> Iterable[RenderableType]:
    """Yield a comparison; everything that came from files or models is cleaned."""
    yield Text(f"{plain(comparison.other.name)} against {plain(comparison.baseline.name)}", style="bold")
    for warning in comparison.warnings:
        yield Text(f"warning: {plain(warning, 300)}", style="yellow")
    yield _figures(comparison.shown)
    pooled = comparison.pooled
    if several:
        yield Text(f"permutation p after Holm over all runs: {p_text(comparison.pooled_p_adjusted)}")
    for name, pairs in (("gained", pooled.gained), ("lost", pooled.lost)):
        yield Text(f"{name}: {len(pairs)}", style="bold")
        if pairs:
            yield _flips(pairs[:MOST_LISTED], comparison)
        if len(pairs) > MOST_LISTED:
            yield Text(f"and {len(pairs) - MOST_LISTED} more: --html or --json has all of them", style="dim")
    if comparison.settings:
        yield _settings(comparison)


def points(value: float) -> str:
    """Return a difference in points, hundredths of the score."""
    return f"{100 * value:+.1f}"


def interval_text(error: ErrorOfDifference) -> str:
    """Return an interval in points."""
    if error.interval is None:
        return "not known"
    return f"{points(error.interval[0])} to {points(error.interval[1])}"


def p_text(p: float, *, is_exact: bool = True) -> str:
    """Return a p; one that was not gone through all assignments for is only so precise."""
    shown = f"{p:.4f}" if p >= 0.0001 else "< 0.0001"
    return shown if is_exact else f"~{shown}"


def plain(text: object, limit_chars: int = _NAME_CHARS) -> str:
    """Return text for one line, cleaned and cut."""
    return clean_text(str(text), keep_lines=False, limit_chars=limit_chars)


def _figures(differences: Sequence[Difference]) -> Table:
    """Return a column a data set, so that it fits a narrow terminal."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    for one in differences:
        table.add_column(Text(plain(one.name, 20)), justify="right")
    rows: dict[str, Callable[[Difference], str]] = {
        "problems, pairs": lambda one: f"{one.problems}, {one.pairs}",
        "baseline": lambda one: f"{one.baseline_mean:.4f}",
        "other": lambda one: f"{one.other_mean:.4f}",
        "difference, points": lambda one: points(one.difference),
        "95 %, same problems": lambda one: interval_text(one.same_problems),
        "95 %, new problems": lambda one: interval_text(one.new_problems),
        "problems better, worse": lambda one: f"{one.better}, {one.worse}",
        "trajectories gained, lost": lambda one: f"{len(one.gained)}, {len(one.lost)}",
        "sign test p": lambda one: p_text(one.sign_p),
        "permutation test p": lambda one: p_text(one.permutation_p, is_exact=one.permutation_is_exact),
    }
    for name, cell in rows.items():
        table.add_row(Text(name), *(Text(cell(one)) for one in differences))
    return table


def _flips(pairs: Sequence[ScorePair], comparison: RunComparison) -> Table:
    table = Table(box=None, show_header=True, pad_edge=False, padding=(0, 2, 0, 2), header_style="dim")
    for header in ("trajectory", "gold", "baseline answered", "other answered"):
        table.add_column(header, overflow="fold")
    for one in pairs:
        gold = comparison.baseline.state.problems(one.key.dataset)[one.key.problem_id].answer
        table.add_row(
            Text(plain(f"{one.key.dataset}/{one.key.problem_id}:{one.key.sample}")),
            Text(plain(gold, _ANSWER_CHARS)),
            Text(plain(comparison.baseline.prediction(one.key), _ANSWER_CHARS)),
            Text(plain(comparison.other.prediction(one.key), _ANSWER_CHARS)),
        )
    return table


def _settings(comparison: RunComparison) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2), header_style="dim")
    for header in ("what differs", "baseline", "other"):
        table.add_column(header, overflow="fold")
    for one in comparison.settings:
        table.add_row(
            Text(plain(one.name)),
            Text(plain(one.baseline, _SETTING_CHARS)),
            Text(plain(one.other, _SETTING_CHARS)),
        )
    return table
