"""`recount export`: a run in another form."""

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from runner.clean import clean_text
from runner.cli.completion import complete_run
from runner.cli.output import line
from runner.cli.runs import run_directory
from runner.errors import UserError
from runner.exports.distillation import write_distillation_traces
from runner.exports.files import beside
from runner.exports.rows import write_csv, write_jsonl
from runner.hashing import sha256_file
from runner.journal import JOURNAL_NAME, JournalFacts, is_being_written, read_run
from runner.rescore.files import read_scores, scores_by_name
from runner.results.bundle import default_bundle_path, write_bundle
from runner.state import RunState

EPILOG = """Examples:

  recount export results/final4-20261202-101500-3f9a --format bundle

  recount verify run results/final4-20261202-101500-3f9a.bundle.zip

  recount export final4-20261202-101500-3f9a --format inspect --out logs

  inspect view --log-dir logs

Exit codes: 0, 2 no such run, or a package that is not installed."""


class ExportFormat(str, Enum):
    """What a run can be exported as."""

    BUNDLE = "bundle"
    """One file with journal, results and summary, which `recount verify run` checks anywhere."""
    INSPECT = "inspect"
    """Logs of Inspect AI, one a data set, in a directory."""
    TRACES = "traces"
    """Markdown traces as the original's skill distillation reads them, in a directory."""
    JSONL = "jsonl"
    """A line a trajectory, with its turns."""
    CSV = "csv"
    """A line a trajectory, without its turns."""


_SUFFIXES = {
    ExportFormat.INSPECT: ".inspect",
    ExportFormat.TRACES: ".traces",
    ExportFormat.JSONL: ".jsonl",
    ExportFormat.CSV: ".csv",
}


def export(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="A run's directory or id.", autocompletion=complete_run),
    ],
    form: Annotated[ExportFormat, typer.Option("--format", help="The form.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The file or directory to write; else one beside the run's directory."),
    ] = None,
    results_dir: Annotated[
        Path, typer.Option("--results", envvar="RECOUNT_RESULTS", help="Where run directories are.")
    ] = Path("results"),
) -> None:
    """Write RUN in another form; the run itself is left as it is."""
    run_dir = run_directory(run, results_dir)
    if form is ExportFormat.BUNDLE:
        path = out or default_bundle_path(run_dir)
        write_bundle(run_dir, path)
        line(f"{_shown(path)}  SHA-256 {sha256_file(path)}")
        return
    journal = run_dir / JOURNAL_NAME
    state, facts = read_run(journal)
    if is_being_written(journal):
        raise UserError(f"{run_dir} is at work", remedy="wait for its end")
    line(_WRITERS[form](run_dir, state, facts, out or beside(run_dir, _SUFFIXES[form])))


def _jsonl(_run_dir: Path, state: RunState, _facts: JournalFacts, path: Path) -> str:
    write_jsonl(state, path)
    return f"{_shown(path)}  {_count(state)}"


def _csv(_run_dir: Path, state: RunState, _facts: JournalFacts, path: Path) -> str:
    write_csv(state, path)
    return f"{_shown(path)}  {_count(state)}"


def _traces(_run_dir: Path, state: RunState, _facts: JournalFacts, path: Path) -> str:
    written = write_distillation_traces(state, path)
    unfinished = len(state.trajectories) - written
    left_out = f", {unfinished} unfinished left out" if unfinished else ""
    return f"{_shown(path)}  {written} traces{left_out}{_not_begun(state)}"


def _inspect(run_dir: Path, state: RunState, facts: JournalFacts, path: Path) -> str:
    # Here: the library takes seconds to import.
    from runner.exports.inspect_log import write_inspect_logs  # noqa: PLC0415

    files, stale = read_scores(run_dir, facts)
    for note in stale:
        line(f"note: {clean_text(note, keep_lines=False)}")
    logs = write_inspect_logs(state, path, scores=scores_by_name(files))
    return f"{_shown(path)}  {len(logs)} logs{_not_begun(state)}: inspect view --log-dir {_shown(path)}"


def _count(state: RunState) -> str:
    return f"{len(state.trajectories)} trajectories{_not_begun(state)}"


def _not_begun(state: RunState) -> str:
    """Say what of a run that stopped early is in no export."""
    missing = len(state.planned()) - len(state.trajectories)
    return f", {missing} of the run never began" if missing else ""


_Writer = Callable[[Path, RunState, JournalFacts, Path], str]
_WRITERS: dict[ExportFormat, _Writer] = {
    ExportFormat.JSONL: _jsonl,
    ExportFormat.CSV: _csv,
    ExportFormat.TRACES: _traces,
    ExportFormat.INSPECT: _inspect,
}


def _shown(path: Path) -> str:
    return clean_text(str(path), keep_lines=False)
