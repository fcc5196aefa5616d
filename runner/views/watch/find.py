"""Which run is meant: a directory, an id below the results directory, or the newest there is."""

from pathlib import Path

from runner.errors import UserError
from runner.journal import JOURNAL_NAME

_NAMED_RUNS = 5
"""How many runs an error names to choose from."""


def find_run(named: str | None, results_dir: Path) -> Path:
    """Return the journal's path of the run that is meant; it need not exist yet if its directory does.

    Raises `UserError` where there is no such run, with the newest ones to choose from.
    """
    if named is None:
        runs = newest_runs(results_dir)
        if not runs:
            raise UserError(
                f"no run below {results_dir}",
                remedy="start one with `recount eval demo`, or name a run's directory: `recount watch RUN`",
            )
        return runs[0] / JOURNAL_NAME
    for candidate in (Path(named), results_dir / named):
        journal = _journal_of(candidate)
        if journal is not None:
            return journal
    runs = newest_runs(results_dir)
    known = ", ".join(run.name for run in runs[:_NAMED_RUNS])
    raise UserError(
        f"no run {named!r}: neither a directory nor an id below {results_dir}",
        remedy=f"name one of: {known}" if known else "start one with `recount eval demo`",
    )


def newest_runs(results_dir: Path) -> list[Path]:
    """Return the directories below `results_dir` that hold a journal, the last written first."""
    found: list[tuple[float, Path]] = []
    try:
        for directory in results_dir.iterdir():
            try:
                found.append(((directory / JOURNAL_NAME).stat().st_mtime, directory))
            except OSError:
                continue  # no run, or one that is being removed
    except OSError:
        return []
    return [directory for _, directory in sorted(found, reverse=True)]


def _journal_of(candidate: Path) -> Path | None:
    try:
        if candidate.is_dir():
            return candidate / JOURNAL_NAME
        return candidate if candidate.is_file() else None
    except OSError:
        return None  # a name that the system refuses names nothing
