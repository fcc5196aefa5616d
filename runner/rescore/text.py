"""What scoring again found, for a terminal: scorers side by side, and every trajectory that differs."""

from collections.abc import Iterable, Mapping, Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from runner.clean import clean_text
from runner.rescore.files import SCORES_DIR, dataset_scores
from runner.rescore.model import Grade, Rescored, Rescoring

RECORDED = "recorded"
MOST_LISTED = 100
_NAME_CHARS = 60
_ANSWER_CHARS = 40


def side_by_side(rescorings: Sequence[Rescoring]) -> Table:
    """Return a table with the run's own score and every scorer's, for each data set."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("data set", no_wrap=True)
    table.add_column("scorer", no_wrap=True)
    for header in ("scored", "mean", "± same", "± new", "differs", "failed"):
        table.add_column(header, justify="right", no_wrap=True)
    for name in dict.fromkeys(row.key.dataset for one in rescorings for row in one.rows):
        first = [row for row in rescorings[0].rows if row.key.dataset == name]
        recorded = [Rescored(row.key, row.answer, row.gold, row.recorded, _recorded(row)) for row in first]
        table.add_row(*_cells(name, RECORDED, recorded))
        for one in rescorings:
            table.add_row(*_cells("", one.scorer.value, [row for row in one.rows if row.key.dataset == name]))
    return table


def listed(rescoring: Rescoring) -> Iterable[RenderableType]:
    """Yield what the scorer scores otherwise, and what it failed on, a line each."""
    name = rescoring.scorer.value
    if rescoring.differences:
        yield Text(f"{name} differs from the recorded score for {len(rescoring.differences)}", style="bold")
        yield _table(rescoring.differences, failures=False)
    else:
        yield Text(f"{name} agrees with every recorded score that it has one for")
    if rescoring.failures:
        counts = ", ".join(f"{kind} {count}" for kind, count in sorted(rescoring.failure_counts.items()))
        yield Text(f"{name} failed on {len(rescoring.failures)} ({counts}): no score", style="bold red")
        yield _table(rescoring.failures, failures=True)
    if max(len(rescoring.differences), len(rescoring.failures)) > MOST_LISTED:
        yield Text(f"all of them are in {SCORES_DIR}/{name}.json", style="dim")
    if rescoring.unfinished:
        yield Text(f"{rescoring.unfinished} trajectories are unfinished and have no score", style="yellow")


def _recorded(row: Rescored) -> Grade:
    return Grade(row.recorded, RECORDED)


def _cells(dataset: str, scorer: str, rows: list[Rescored]) -> list[Text]:
    figures: Mapping[str, float | None] = dataset_scores(rows)
    failed = int(figures["failed"] or 0)
    return [
        Text(_plain(dataset, _NAME_CHARS)),
        Text(scorer),
        Text(f"{figures['scored']}/{figures['trajectories']}"),
        Text(_number(figures["mean"])),
        Text(_number(figures["standard_error_same_problems"])),
        Text(_number(figures["standard_error_new_problems"])),
        Text("" if scorer == RECORDED else str(figures["differs"])),
        Text(str(failed) if failed else "", style="bold red"),
    ]


def _table(rows: Sequence[Rescored], *, failures: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("trajectory", no_wrap=True)
    table.add_column("answer", overflow="fold")
    table.add_column("gold", overflow="fold")
    table.add_column("scores", justify="right", no_wrap=True)
    table.add_column("why" if failures else "read as", overflow="fold")
    for row in rows[:MOST_LISTED]:
        grade = row.grade
        why = f"{grade.method.removeprefix('scorer failed: ')} {grade.detail}" if failures else _read_as(row)
        new = "none" if grade.score is None else f"{grade.score:g}"
        table.add_row(
            Text(_plain(f"{row.key.dataset}/{row.key.problem_id}:{row.key.sample}", _NAME_CHARS)),
            Text(_plain(row.answer or "", _ANSWER_CHARS)),
            Text(_plain(row.gold, _ANSWER_CHARS)),
            Text(f"{row.recorded:g} -> {new}"),
            Text(_plain(why, 2 * _ANSWER_CHARS)),
        )
    return table


def _read_as(row: Rescored) -> str:
    if row.grade.read_gold is None:
        return row.grade.method
    return f"{row.grade.read_answer or 'nothing'} = {row.grade.read_gold}"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"


def _plain(text: str, limit_chars: int) -> str:
    return clean_text(text, keep_lines=False, limit_chars=limit_chars)
