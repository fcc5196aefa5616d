"""`recount export`: a run in another form."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from runner.clean import clean_text
from runner.cli.output import line
from runner.hashing import sha256_file
from runner.results.bundle import default_bundle_path, write_bundle

EPILOG = """Examples:

  recount export results/final4-20261202-101500-3f9a --format bundle

  recount verify run final4-20261202-101500-3f9a.bundle.zip"""


class ExportFormat(str, Enum):
    """What a run can be exported as."""

    BUNDLE = "bundle"
    """One file with journal, results and summary, which `recount verify run` checks anywhere."""


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's directory.")],
    form: Annotated[ExportFormat, typer.Option("--format", help="The form.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="The file to write; else one beside the run's directory.")
    ] = None,
) -> None:
    """Write RUN in another form; the run itself is left as it is."""
    del form  # there is one
    path = out or default_bundle_path(run)
    write_bundle(run, path)
    line(f"{clean_text(str(path), keep_lines=False)}  SHA-256 {sha256_file(path)}")
