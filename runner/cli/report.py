"""`recount report`: a run as a page, and its answers scored again."""

from pathlib import Path
from typing import Annotated

import anyio
import typer
from rich.text import Text

from runner.clean import clean_text
from runner.cli.completion import complete_run
from runner.cli.output import line, out
from runner.cli.runs import run_directory
from runner.errors import ExitCode, UserError
from runner.journal import JOURNAL_NAME, is_being_written, read_run
from runner.rescore.files import read_scores, scores_by_name, write_scores
from runner.rescore.model import GradeLimits, Rescoring
from runner.rescore.registry import Scorer
from runner.rescore.run import rescore
from runner.rescore.text import listed, side_by_side
from runner.state import RunState

EPILOG = """Examples:

  recount report results/final4-20261202-101500-3f9a

  recount report final4-20261202-101500-3f9a --scorer exact --scorer math-verify

The journal and the results of the run stay as they are; scores go to scores/SCORER.json beside them.

Exit codes: 0, 2 no such run, or a scorer that is not installed, 3 a scorer failed on some answer: those \
have no score by it, and are listed."""


def report(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="A run's directory or id.", autocompletion=complete_run),
    ],
    scorers: Annotated[
        list[Scorer] | None, typer.Option("--scorer", help="Score all answers again (repeatable).")
    ] = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Seconds that a scorer may take for one answer.")
    ] = GradeLimits.wall_s,
    html: Annotated[bool, typer.Option("--html/--no-html", help="Write report.html.")] = True,
    results_dir: Annotated[
        Path, typer.Option("--out", envvar="RECOUNT_RESULTS", help="Where run directories are.")
    ] = Path("results"),
) -> None:
    """Write RUN's report.html; with --scorer, score its answers again first, without the model."""
    run_dir = run_directory(run, results_dir)
    journal = run_dir / JOURNAL_NAME
    state, facts = read_run(journal)
    rescored: list[Rescoring] = []
    if scorers:
        if is_being_written(journal):
            raise UserError(f"{run_dir} is at work", remedy="wait for its end")
        for scorer in dict.fromkeys(scorers):
            one = anyio.run(_rescore, state, scorer, GradeLimits(wall_s=timeout_s))
            run_id = "" if state.started is None else state.started.run_id
            write_scores(run_dir, run_id, facts, one)
            rescored.append(one)
    files, stale = read_scores(run_dir, facts)
    for note in stale:
        line(f"note: {clean_text(note, keep_lines=False)}")
    if files:
        out.print(side_by_side([file.rescoring for file in files.values()]))
    for one in rescored:
        for part in listed(one):
            out.print(part)
    if html:
        # Here, since a report's template takes a while to load.
        from runner.report import write_report  # noqa: PLC0415

        path = write_report(run_dir, scores=scores_by_name(files))
        line(f"report in {clean_text(str(path), keep_lines=False)}")
    failed = any(one.failures for one in rescored)
    raise typer.Exit(ExitCode.INFRASTRUCTURE if failed else ExitCode.OK)


async def _rescore(state: RunState, scorer: Scorer, limits: GradeLimits) -> Rescoring:
    with out.status(Text(f"scoring by {scorer.value}")) as status:

        def show(done: int, of: int) -> None:
            status.update(Text(f"scoring by {scorer.value}: {done} of {of} answers"))

        return await rescore(state, scorer, limits=limits, progress=show)
