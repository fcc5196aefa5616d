"""`recount watch`: look into a run, while it goes on or afterwards."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from runner.cli.completion import complete_run
from runner.errors import ExitCode, UserError
from runner.views.watch.find import find_run

EPILOG = """Examples:

  recount watch                                  the newest run

  recount watch demo-20261202-101500-3f9a

  docker compose exec eval recount watch         beside a run under `docker compose up eval`

It reads the journal and touches nothing: q and Ctrl-C end the viewer, never the run. Keys: press ?.

Exit codes: 0, 2 no such run or no terminal."""


def watch(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]",
            help="A run's directory or id; else the newest.",
            show_default=False,
            autocompletion=complete_run,
        ),
    ] = None,
    results_dir: Annotated[
        Path, typer.Option("--out", envvar="RECOUNT_RESULTS", help="Where run directories are.")
    ] = Path("results"),
) -> None:
    """Look at RUN live: all trajectories, engines, errors, and each trajectory turn by turn."""
    # Here, since only this command needs textual, which takes a while to load.
    from runner.views.watch.app import WatchApp  # noqa: PLC0415

    journal = find_run(run, results_dir)
    missing = _streams_without_terminal()
    if missing:
        raise UserError(
            f"the viewer needs a terminal, and {' and '.join(missing)} is none",
            remedy=f"start it in a terminal (`docker compose exec` without -T), or read {journal},"
            " and after the run summary.txt, evaluation_results.json and traces/ beside it",
        )
    WatchApp(journal).run()
    raise typer.Exit(ExitCode.OK)


def _streams_without_terminal() -> list[str]:
    """Return the streams that a viewer uses and that are no terminal; it draws on stderr."""
    streams = {"stdin": sys.stdin, "stdout": sys.stdout, "stderr": sys.stderr}
    return [name for name, stream in streams.items() if stream is None or not stream.isatty()]
