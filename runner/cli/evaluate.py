"""`recount eval`: run a profile."""

import os
import re
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer
from rich.table import Table
from rich.text import Text

from runner.clean import clean_text
from runner.cli.output import line, log_of_no_run, out
from runner.engines.base import Engine
from runner.engines.vllm.engine import VllmEngine
from runner.errors import UserError
from runner.plan import Plan, build_engine, make_plan
from runner.profile import EngineSettings, VllmEngineSettings, load_profile
from runner.results.summary import render_summary, summary_text
from runner.run import RunOutcome, new_run_id, run_plan
from runner.views.activity import WatchedSandbox
from runner.views.choice import UI_VARIABLE, Ui
from runner.views.open import RunDisplay, open_display
from sandbox import BrokerSandbox, DockerSandbox, Sandbox

EPILOG = """Examples:

  recount eval demo

  recount eval final4 --model checkpoints/mine --pack pack.json --data dapo=dapo_test.jsonl --only dapo

  recount eval final4 --dry-run --pack pack.json --data dapo=dapo_test.jsonl --data aime=aime_2026.jsonl

  recount eval my-profile.toml --engine openai --model my-model --base-url http://gpu-node:8000/v1 --limit 10

Exit codes: 0 complete, 2 bad input, 3 our infrastructure failed, 4 unfinished trajectories, 130 stopped."""

VLLM = "vllm"
MODEL_VARIABLE = "RECOUNT_MODEL"
"""Names the checkpoint for profiles that serve one; a container has it where a command line has --model."""

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def evaluate(  # noqa: PLR0913, PLR0917 - typer reads options from parameters
    profile: Annotated[
        str, typer.Argument(metavar="PROFILE", help="demo, cpu, interval25, final4, or a TOML file.")
    ],
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only the first N problems of each data set.")
    ] = None,
    samples: Annotated[int | None, typer.Option(min=1, help="Samples a problem.")] = None,
    max_turns: Annotated[int | None, typer.Option(min=1, help="Turns a trajectory may take.")] = None,
    context_tokens: Annotated[int | None, typer.Option(min=1, help="Context length in tokens.")] = None,
    tool_timeout: Annotated[float | None, typer.Option(min=0.001, help="Seconds a command may take.")] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="Only this data set (repeatable).")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option("--data", metavar="NAME=FILE", help="Another file for a data set (repeatable)."),
    ] = None,
    pack: Annotated[Path | None, typer.Option(help="The protocol pack to use.")] = None,
    engine: Annotated[
        str | None, typer.Option(help="vllm, openai or scripted, in the place of the profile's engine.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="vllm: a checkpoint's directory or Hugging Face id (also RECOUNT_MODEL);"
            " openai: the model's name at the server."
        ),
    ] = None,
    engines: Annotated[
        int | None, typer.Option(min=1, help="vllm: copies of the checkpoint; changes no result.")
    ] = None,
    base_url: Annotated[
        list[str] | None, typer.Option("--base-url", help="openai: http://HOST:PORT/v1 (repeatable).")
    ] = None,
    script: Annotated[Path | None, typer.Option(help="scripted: the file of completions.")] = None,
    in_flight: Annotated[
        int | None, typer.Option(min=1, help="Trajectories, and generations, at once.")
    ] = None,
    tools: Annotated[int | None, typer.Option(min=1, help="Commands at once.")] = None,
    policy: Annotated[
        str | None, typer.Option(help="The sandbox policy, by name or file, without a broker.")
    ] = None,
    broker: Annotated[
        Path | None,
        typer.Option(
            envvar="RECOUNT_BROKER", help="Socket of a sandbox broker; else the engine is used directly."
        ),
    ] = None,
    results_dir: Annotated[
        Path, typer.Option("--out", envvar="RECOUNT_RESULTS", help="Where run directories go.")
    ] = Path("results"),
    run_id: Annotated[str | None, typer.Option(help="Name of the run and its directory.")] = None,
    ui: Annotated[
        Ui,
        typer.Option(
            "--ui",
            envvar=UI_VARIABLE,
            help="frames redraw a terminal, lines suit logs, off shows the end alone.",
        ),
    ] = Ui.AUTO,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and touch nothing.")] = False,
) -> None:
    """Evaluate PROFILE: solve its problems, score them, and write results/RUN/."""
    if run_id is not None and not _RUN_ID.fullmatch(run_id):
        raise UserError(
            f"--run-id {run_id!r} is no name", remedy="use letters, digits, dot, dash and underscore"
        )
    overrides: dict[str, Any] = {
        "samples": samples,
        "limits.max_turns": max_turns,
        "limits.context_tokens": context_tokens,
        "limits.tool_timeout_s": tool_timeout,
        "pack": None if pack is None else str(pack.absolute()),
        "concurrency.trajectories": in_flight,
        "concurrency.generations": in_flight,
        "concurrency.tools": tools,
        "sandbox.policy": policy,
    }
    overrides |= _engine_overrides(engine, model or _model_of_environment(profile, engine), base_url, script)
    overrides["engine.engines"] = engines
    plan = make_plan(
        profile,
        overrides={setting: value for setting, value in overrides.items() if value is not None},
        data=_data_files(data or []),
        only=tuple(only or ()),
        limit=limit,
    )
    engine_of_plan = build_engine(plan)
    if dry_run:
        out.print(_plan_table(plan, engine_of_plan, results_dir))
        for expected in plan.expectation_lines():
            line(expected)
        return
    name = run_id or new_run_id(plan.profile.name)
    with open_display(
        ui, run_id=name, title=name, results_dir=results_dir, write_line=line, write_error=log_of_no_run
    ) as display:
        outcome = anyio.run(_run, plan, engine_of_plan, broker, results_dir, display)
    if display.ui is Ui.FRAMES:
        out.print(render_summary(outcome.results))
    else:
        # A log is read later, and by programs: no colours, whatever it is written to.
        for row in summary_text(outcome.results).splitlines():
            line(row)
    line(f"results in {outcome.run_dir}")
    raise typer.Exit(outcome.exit_code)


async def _run(
    plan: Plan, engine: Engine, broker: Path | None, results_dir: Path, display: RunDisplay
) -> RunOutcome:
    run_id = display.run_id
    sandbox: Sandbox = (
        DockerSandbox(plan.policy, run_id=run_id) if broker is None else BrokerSandbox(broker, run_id)
    )
    engine.report_to(display.note_engine)
    return await run_plan(
        plan,
        engine,
        WatchedSandbox(sandbox, display.note_command),
        run_id=run_id,
        results_dir=results_dir,
        listener=display,
        stopping=display.stopping,
    )


def _data_files(written: list[str]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for one in written:
        name, separator, file = one.partition("=")
        if not separator or not name or not file:
            raise UserError(
                f"--data {one!r} is not NAME=FILE", remedy="write for example --data aime=aime.jsonl"
            )
        files[name] = Path(file)
    return files


def _model_of_environment(profile: str, engine: str | None) -> str | None:
    """Return RECOUNT_MODEL where the run serves a checkpoint itself and the profile names another."""
    named = os.environ.get(MODEL_VARIABLE)
    if not named or engine not in {None, VLLM}:
        return None
    own = load_profile(profile).engine
    if engine == VLLM:
        return named
    return named if isinstance(own, VllmEngineSettings) and own.model != named else None


def _engine_overrides(
    engine: str | None, model: str | None, base_urls: list[str] | None, script: Path | None
) -> dict[str, Any]:
    script_path = None if script is None else str(script.absolute())
    if engine is None:
        return {"engine.model": model, "engine.base_urls": base_urls or None, "engine.script": script_path}
    if engine == VLLM:
        if not model:
            raise UserError(
                "--engine vllm needs a checkpoint",
                remedy=f"add --model DIRECTORY_OR_ID, or set {MODEL_VARIABLE}",
            )
        return {"engine": {"kind": VLLM, "model": model}}
    if engine == "openai":
        if not model or not base_urls:
            raise UserError(
                "--engine openai needs a model and a server", remedy="add --model NAME --base-url URL"
            )
        return {"engine": {"kind": "openai", "model": model, "base_urls": base_urls}}
    if engine == "scripted":
        if script_path is None:
            raise UserError("--engine scripted needs a script", remedy="add --script FILE")
        return {"engine": {"kind": "scripted", "script": script_path}}
    raise UserError(f"no engine {engine!r}", remedy="name vllm, openai or scripted")


def _plan_table(plan: Plan, engine: Engine, results_dir: Path) -> Table:
    profile = plan.profile
    table = Table(
        title=f"Plan of {profile.name}: nothing was started",
        title_justify="left",
        show_header=False,
        box=None,
        pad_edge=False,
    )
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    rows = [("profile", f"{plan.profile_path}"), ("description", profile.description)]
    rows += [
        (
            f"data set {one.name}",
            f"{len(one.problems)} problems, base seed {one.base_seed}, {one.path}\nSHA-256 {one.sha256}",
        )
        for one in plan.datasets
    ]
    limits, sampling = profile.limits, profile.sampling
    rows += [
        ("trajectories", f"{len(plan.jobs)} ({profile.samples} a problem)"),
        ("protocol", f"{profile.protocol}, pack {plan.pack_path}\nSHA-256 {plan.pack_sha256}"),
        ("limits", " ".join(f"{name}={value}" for name, value in limits.model_dump().items())),
        ("sampling", " ".join(f"{name}={value}" for name, value in sampling.model_dump().items())),
        ("engine", _engine_text(profile.engine)),
        *_fitted(engine),
        ("at once", " ".join(f"{name}={value}" for name, value in profile.concurrency.model_dump().items())),
        ("sandbox", f"policy {plan.policy.name}\nSHA-256 {plan.policy.digest()}"),
        ("overrides", "\n".join(f"{name} = {value}" for name, value in plan.overrides.items()) or "none"),
        ("results", f"below {results_dir}"),
    ]
    for name, value in rows:
        table.add_row(name, Text(clean_text(value, keep_lines=True)))
    return table


def _fitted(engine: Engine) -> list[tuple[str, str]]:
    """Say what the profile's engines become on the GPUs that are here."""
    if not isinstance(engine, VllmEngine) or engine.fit is None:
        return []
    return [("engines here", "\n".join(engine.fit.lines))]


def _engine_text(engine: EngineSettings) -> str:
    return " ".join(f"{name}={value}" for name, value in engine.model_dump().items() if value is not None)
