"""`recount doctor`: whether a run would have what it needs, in seconds, and what to do where not."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer
from rich.table import Table
from rich.text import Text

from runner.artifacts.settings import FetchSettings
from runner.clean import clean_text
from runner.cli.completion import complete_profile
from runner.cli.fetch import DataOption, ManifestOption, ModelsOption, manifest_of_run
from runner.cli.output import line, out
from runner.doctor import Question, Report, State, examine
from runner.engines.vllm.kind import KIND as VLLM
from runner.engines.vllm.kind import MODEL_VARIABLE, VllmEngineSettings
from runner.plan import policy_of
from runner.profile import find_profile, load_profile

EPILOG = """Examples:

  recount doctor

  recount doctor demo

  recount doctor final4 --broker /run/recount/broker.sock --json

Exit codes: 0 a run can start (there may be warnings), 2 something has to be mended first."""

DEFAULT_PROFILE = "interval25"
STYLES = {
    State.OK: "green",
    State.WARNING: "yellow",
    State.FAILED: "bold red",
    State.SKIPPED: "dim",
}


def doctor(  # noqa: PLR0913, PLR0917 - typer reads options from parameters
    profile: Annotated[
        str,
        typer.Argument(
            metavar="[PROFILE]",
            envvar="RECOUNT_PROFILE",
            help="demo, cpu, interval25, final4, or a file.",
            autocompletion=complete_profile,
        ),
    ] = DEFAULT_PROFILE,
    model: Annotated[
        str | None,
        typer.Option(help="vllm: a checkpoint's directory or Hugging Face id (also RECOUNT_MODEL)."),
    ] = None,
    engines: Annotated[int | None, typer.Option(min=1, help="vllm: copies of the checkpoint.")] = None,
    context_tokens: Annotated[int | None, typer.Option(min=1, help="Context length in tokens.")] = None,
    policy: Annotated[
        str | None, typer.Option(help="The sandbox policy, by name or file, without a broker.")
    ] = None,
    broker: Annotated[
        Path | None,
        typer.Option(
            envvar="RECOUNT_BROKER",
            readable=False,  # a socket that is not for this user is a finding, not a wrong option
            help="Socket of a sandbox broker; else the engine is used directly.",
        ),
    ] = None,
    results_dir: Annotated[
        Path, typer.Option("--out", envvar="RECOUNT_RESULTS", help="Where run directories go.")
    ] = Path("results"),
    models: ModelsOption = Path("models"),
    data: DataOption = Path("datasets"),
    manifest: ManifestOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False,
) -> None:
    """Examine this machine for PROFILE: sandbox, GPUs, versions, files, answers; nothing is kept."""
    overrides: dict[str, Any] = {
        "engine.model": model or model_of_environment(profile),
        "engine.engines": engines,
        "limits.context_tokens": context_tokens,
        "sandbox.policy": policy,
    }
    question = ask_about(
        profile,
        overrides={setting: value for setting, value in overrides.items() if value is not None},
        broker=broker,
        results_dir=results_dir,
        models_dir=models,
        data_dir=data,
        manifest=manifest,
    )
    report = anyio.run(examine, question)
    if as_json:
        line(json.dumps(report.document(), indent=2))
    else:
        show(report)
    raise typer.Exit(report.exit_code)


def ask_about(
    profile: str,
    *,
    overrides: Mapping[str, Any],
    broker: Path | None,
    results_dir: Path,
    models_dir: Path,
    data_dir: Path,
    manifest: str | None,
    data: Mapping[str, Path] | None = None,
) -> Question:
    """Return the question that a run with these settings asks; raise `UserError` for a wrong profile."""
    loaded = load_profile(profile, overrides)
    path = find_profile(profile)
    return Question(
        profile=loaded,
        profile_path=path,
        policy=policy_of(loaded, path),
        fetching=FetchSettings.from_environment(),
        broker=broker,
        results_dir=results_dir,
        models_dir=models_dir,
        data_dir=data_dir,
        manifest=manifest_of_run(loaded, manifest),
        overrides=overrides,
        data=data or {},
    )


def model_of_environment(profile: str, engine: str | None = None) -> str | None:
    """Return RECOUNT_MODEL where the run serves a checkpoint itself and the profile names another.

    `engine` is the kind that was chosen in the place of the profile's.
    """
    named = os.environ.get(MODEL_VARIABLE)
    if not named or engine not in {None, VLLM.name}:
        return None
    own = load_profile(profile).engine
    if engine == VLLM.name:
        return named
    return named if isinstance(own, VllmEngineSettings) and own.model != named else None


def show(report: Report) -> None:
    """Print the report as a table, each remedy below what it is for."""
    table = Table(box=None, pad_edge=False)
    table.add_column("check", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("seen", overflow="fold")
    table.add_column("s", justify="right", no_wrap=True)
    for check in report.checks:
        seen = Text(clean_text(check.detail, keep_lines=False))
        if check.remedy:
            seen.append(f"\nremedy: {clean_text(check.remedy, keep_lines=False)}", style="bold")
        style = STYLES[check.state]
        table.add_row(check.name, Text(check.state.value, style=style), seen, f"{check.seconds:.1f}")
    out.print(table)
    line(
        f"{report.profile}: {report.summary}" + ("" if report.holds else "; mend what failed, then try again")
    )
