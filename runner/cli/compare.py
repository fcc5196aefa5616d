"""`recount compare`: runs held against the first, pair by pair."""

import json
from pathlib import Path
from typing import Annotated

import typer

from runner import __version__
from runner.atomic import write_text
from runner.clean import clean_text
from runner.cli.completion import complete_run
from runner.cli.output import line, out
from runner.cli.runs import run_directory
from runner.compare.model import RECORDED
from runner.compare.run import compare_runs, read_side
from runner.compare.text import comparison_lines
from runner.errors import UserError
from runner.rescore.registry import Scorer

EPILOG = """Examples:

  recount compare results/final4-20261202-101500-3f9a results/mine-20261203-091500-77b1

  recount compare base mine other --html comparison.html --json comparison.json

The first run is the baseline. Exit codes: 0, 2 no such run, or runs that cannot be paired."""

VERSION = 1


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN RUN...", help="Directories or ids of runs.", autocompletion=complete_run),
    ],
    scorer: Annotated[
        Scorer | None, typer.Option(help="Compare by these scores (see `recount report`), not the recorded.")
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Also write a page, self-contained.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write all figures.")] = None,
    results_dir: Annotated[
        Path, typer.Option("--out", envvar="RECOUNT_RESULTS", help="Where run directories are.")
    ] = Path("results"),
) -> None:
    """Compare RUNs with the first, paired by problem and sample: differences, tests, and what flipped."""
    if len(runs) < 2:
        raise UserError("one run alone", remedy="name two or more: `recount compare RUN RUN`")
    sides = [read_side(run_directory(one, results_dir), scorer) for one in runs]
    comparisons = compare_runs(sides)
    scored_by = RECORDED if scorer is None else scorer.value
    for index, one in enumerate(comparisons):
        if index:
            line("")
        for part in comparison_lines(one, several=len(comparisons) > 1):
            out.print(part)
    if json_file is not None:
        document = {
            "version": VERSION,
            "recount": __version__,
            "scored_by": scored_by,
            "comparisons": [one.as_document() for one in comparisons],
        }
        write_text(json_file, json.dumps(document, indent=1) + "\n")
        line(f"figures in {clean_text(str(json_file), keep_lines=False)}")
    if html is not None:
        from runner.compare.html import comparison_page  # noqa: PLC0415 - a template engine to import

        write_text(html, comparison_page(comparisons, scored_by))
        line(f"page in {clean_text(str(html), keep_lines=False)}")
