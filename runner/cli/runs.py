"""Which run a command line means: a directory, a journal in one, or the id of a run below `--out`."""

from pathlib import Path

from runner.errors import UserError
from runner.journal import JOURNAL_NAME
from runner.views.watch.find import newest_runs

_NAMED_RUNS = 5
"""How many runs an error names to choose from."""


def run_directory(named: str, results_dir: Path) -> Path:
    """Return the directory of the run that is meant; raise `UserError` where there is none."""
    for candidate in (Path(named), results_dir / named):
        directory = candidate.parent if candidate.name == JOURNAL_NAME else candidate
        try:
            if (directory / JOURNAL_NAME).is_file():
                return directory
        except (OSError, ValueError):
            continue  # a name that no file can have
    known = ", ".join(run.name for run in newest_runs(results_dir)[:_NAMED_RUNS])
    raise UserError(
        f"no run {named}: neither a directory with a {JOURNAL_NAME} nor an id below {results_dir}",
        remedy=f"name a run's directory, or one of {known}"
        if known
        else "name a run's directory: results/RUN; `recount eval demo` makes one",
    )
