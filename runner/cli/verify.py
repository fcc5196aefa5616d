"""`recount verify`: hash everything again and name every difference."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import anyio
import typer

from runner.artifacts import Manifest, Store, VerifyReport, verify_artifacts, verify_checkpoint
from runner.artifacts.load import Loaded, available_bytes, check_memory, load_checkpoint
from runner.artifacts.progress import FetchListener
from runner.clean import clean_text
from runner.cli.completion import complete_run
from runner.cli.fetch import DataOption, ManifestOption, ModelsOption, required_manifest
from runner.cli.fetch_views import fetch_listener
from runner.cli.output import line, out
from runner.cli.runs import run_directory
from runner.errors import ExitCode, InterruptedRunError
from runner.journal import JOURNAL_NAME
from runner.paths import is_file
from runner.results.bundle import check_bundle
from runner.results.check import check_run
from runner.signals import watch_signals

EPILOG = """Examples:

  recount verify run results/final4-20261202-101500-3f9a       every number derived again from its journal

  recount verify artifacts                                      every fetched file hashed again

  recount verify checkpoint models/mine                         a checkpoint, wherever it came from

Exit codes: 0 all of it holds, 1 something differs and is named, 2 it is not there."""
EPILOG_ARTIFACTS = """Examples:

  recount verify artifacts

  recount verify artifacts --profile interval25 --models /srv/models

Exit codes: 0 all is as published, 1 a file differs, 2 something is missing: recount fetch PROFILE."""
EPILOG_CHECKPOINT = """Examples:

  recount verify checkpoint models/zz1358m--Qwen3.5-4B-MATH-ReAct-Agentic-ESOpt

  recount verify checkpoint DIR --load       takes about 10 GiB of memory, and no GPU

Exit codes: 0 it is the published one, 1 it differs, 2 no such directory."""
EPILOG_RUN = """Examples:

  recount verify run results/final4-20261202-101500-3f9a

  recount export final4-20261202-101500-3f9a --format bundle

  recount verify run results/final4-20261202-101500-3f9a.bundle.zip

Exit codes: 0 the run holds, 1 something differs and is named, 2 no such run."""

app = typer.Typer(
    help="Verify what lies on this disk; exit code 1 if anything differs.",
    epilog=EPILOG,
    no_args_is_help=True,
)

ProfileOption = Annotated[str, typer.Option(help="The profile whose files these are.")]


@app.command("artifacts", epilog=EPILOG_ARTIFACTS)
def artifacts(
    profile: ProfileOption = "final4",
    models: ModelsOption = Path("models"),
    data: DataOption = Path("datasets"),
    manifest: ManifestOption = None,
) -> None:
    """Hash all fetched files again: checkpoint, data sets, protocol, the report's rows."""
    chosen = required_manifest(profile, manifest)
    store = Store(chosen, models, data)
    report = _watched(lambda listener: verify_artifacts(chosen, store, listener))
    _finish(_print(report))


@app.command("checkpoint", epilog=EPILOG_CHECKPOINT)
def checkpoint(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The checkpoint's directory.")],
    load: Annotated[
        bool, typer.Option("--load", help="Also load it with transformers on the CPU, and count it.")
    ] = False,
    profile: ProfileOption = "final4",
    manifest: ManifestOption = None,
) -> None:
    """Hash a checkpoint's files, wherever they came from, and check index, headers and lineage."""
    chosen = required_manifest(profile, manifest)
    if load:
        check_memory(directory, available=available_bytes())
    holds = _print(_watched(lambda listener: verify_checkpoint(chosen, directory, listener)))
    if load:
        holds = _print_loaded(load_checkpoint(directory), chosen) and holds
    _finish(holds)


@app.command("run", epilog=EPILOG_RUN)
def run(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A run's directory or id, or a bundle of it.", autocompletion=complete_run
        ),
    ],
    results_dir: Annotated[
        Path, typer.Option("--out", envvar="RECOUNT_RESULTS", help="Where run directories are.")
    ] = Path("results"),
) -> None:
    """Derive everything of a run from its journal once more, and name what does not agree.

    Needs no network, and for a bundle nothing but the bundle.
    """
    bundle = Path(run)
    is_bundle = is_file(bundle) and bundle.name != JOURNAL_NAME
    report = check_bundle(bundle) if is_bundle else check_run(run_directory(run, results_dir))
    for what, said in report.checked:
        line(f"ok         {clean_text(f'{what}: {said}', keep_lines=False)}")
    for note in report.notes:
        line(f"note       {clean_text(note, keep_lines=False)}")
    for place, what in report.differences:
        line(f"DIFFERS    {clean_text(f'{place}: {what}', keep_lines=False)}")
    line("the run holds" if report.holds else f"{len(report.differences)} differences")
    _finish(report.holds)


def _watched(verify: Callable[[FetchListener], Awaitable[VerifyReport]]) -> VerifyReport:
    async def run() -> list[VerifyReport]:
        done: list[VerifyReport] = []
        async with watch_signals() as stop:
            with stop.guard(), fetch_listener(out, line) as listener:
                done.append(await verify(listener))
        return done

    done = anyio.run(run)
    if not done:
        raise InterruptedRunError("stopped before everything was verified")
    return done[0]


def _print(report: VerifyReport) -> bool:
    for name in report.verified:
        line(f"ok         {clean_text(name, keep_lines=False)}  {report.sha256[name]}")
    for name in report.unpinned:
        line(f"unpinned   {clean_text(name, keep_lines=False)}  {report.sha256[name]}")
    for note in report.notes:
        line(f"note       {clean_text(note, keep_lines=False)}")
    for difference in report.differences:
        line(f"DIFFERS    {clean_text(difference, keep_lines=True)}")
    line(
        f"{len(report.verified)} verified, {len(report.unpinned)} without a published hash,"
        f" {len(report.differences)} differences"
    )
    return report.holds


def _print_loaded(loaded: Loaded, manifest: Manifest) -> bool:
    line(f"loaded     {loaded.model_class}, {loaded.dtype}, {loaded.parameters:,} parameters")
    differences = (
        [f"{len(loaded.missing)} tensors are missing: {', '.join(loaded.missing[:3])}"]
        if loaded.missing
        else []
    )
    if loaded.unexpected:
        shown = ", ".join(loaded.unexpected[:3])
        differences.append(f"{len(loaded.unexpected)} tensors are not the model's: {shown}")
    if manifest.weights is not None and manifest.weights.parameters != loaded.parameters:
        differences.append(f"the card tells of {manifest.weights.parameters:,} parameters")
    for difference in differences:
        line(f"DIFFERS    {clean_text(difference, keep_lines=False)}")
    return not differences


def _finish(holds: bool) -> None:
    raise typer.Exit(ExitCode.OK if holds else ExitCode.CHECK_FAILED)
