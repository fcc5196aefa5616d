"""`recount eval`: run a profile."""

import re
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer
from rich.table import Table
from rich.text import Text

from runner.clean import clean_text
from runner.cli.completion import complete_policy, complete_profile, complete_run
from runner.cli.doctor import ask_about, model_of_environment
from runner.cli.fetch import DataOption, ManifestOption, ModelsOption
from runner.cli.output import line, log_of_no_run, out
from runner.cli.preparation import Fetching, Preparation, gather, plan_of
from runner.cli.resuming import (
    Asked,
    asked_again,
    find_resumable,
    find_unfinished,
    offer_lines,
    was_lenient,
    way_on,
)
from runner.cluster.choice import sandbox_of_run, use_cluster
from runner.doctor import Question
from runner.engines.base import Engine
from runner.engines.kind import EngineOptions, EngineSection
from runner.engines.registry import KINDS, kinds_in_words
from runner.engines.vllm.ray_runtime import leave_if_ray_hangs
from runner.errors import ExitCode, UserError
from runner.journal import read_journal
from runner.oversight import Oversight, doctor_of
from runner.patient import Patience
from runner.plan import Plan, build_engine, check_names
from runner.profile import load_profile
from runner.resources import bundled_profiles
from runner.results.summary import render_summary, summary_text
from runner.resume import Resumption, open_resumption
from runner.run import ENGINE_LOG_DIR, RunOutcome, check_new, new_run_id, run_prepared
from runner.views.activity import WatchedSandbox
from runner.views.choice import UI_VARIABLE, Ui
from runner.views.open import open_display
from sandbox import BrokerSandbox, DockerSandbox, Sandbox

EPILOG = """Examples:

  recount eval demo

  recount eval final4

  recount eval final4 --dry-run

  recount eval final4 --model checkpoints/mine --only dapo

  recount eval my-profile.toml --engine openai --model my-model --base-url http://gpu-node:8000/v1 --limit 10

  recount eval --resume final4-20261201-220501-3f9a

What a published profile needs is fetched first, each file checked by its hash: recount fetch --help.

Exit codes: 0 complete, 1 it differs from what is published (with --fail-if-differs), 2 bad input, 3 our \
infrastructure failed, 4 unfinished trajectories, 130 stopped."""

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def evaluate(  # noqa: PLR0913, PLR0917 - typer reads options from parameters
    profile: Annotated[
        str | None,
        typer.Argument(
            metavar="PROFILE",
            help="demo, cpu, interval25, final4, or a TOML file.",
            autocompletion=complete_profile,
        ),
    ] = None,
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
        str | None, typer.Option(help=f"{kinds_in_words()}, in the place of the profile's engine.")
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
        str | None,
        typer.Option(
            help="The sandbox policy, by name or file, without a broker.", autocompletion=complete_policy
        ),
    ] = None,
    broker: Annotated[
        Path | None,
        typer.Option(
            envvar="RECOUNT_BROKER", help="Socket of a sandbox broker; else the engine is used directly."
        ),
    ] = None,
    ray_address: Annotated[
        str | None,
        typer.Option(
            envvar="RAY_ADDRESS", metavar="HOST:PORT", help="Use this Ray cluster's engines and sandboxes."
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
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Go on with a run that stopped: its id or directory.",
            autocompletion=complete_run,
        ),
    ] = None,
    fail_if_differs: Annotated[
        bool,
        typer.Option("--fail-if-differs", help="Exit with 1 if the score differs from the published one."),
    ] = False,
    fetch: Annotated[
        bool, typer.Option("--fetch/--no-fetch", help="Fetch what is missing, or take what is here.")
    ] = True,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="DIR", help="Fetch from this directory; no network is used."),
    ] = None,
    revision: Annotated[
        str | None, typer.Option(help="Branch, tag or commit of the model repository.")
    ] = None,
    allow_unverified: Annotated[
        bool,
        typer.Option("--allow-unverified", help="Take files that are not the published ones; it is told."),
    ] = False,
    models: ModelsOption = Path("models"),
    data_dir: DataOption = Path("datasets"),
    manifest: ManifestOption = None,
    doctor: Annotated[
        bool, typer.Option("--doctor/--no-doctor", help="Examine this machine first, or just start.")
    ] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and touch nothing.")] = False,
) -> None:
    """Evaluate PROFILE: solve its problems, score them, and write results/RUN/."""
    use_cluster(ray_address)
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
    options = EngineOptions(
        model or (model_of_environment(profile, engine) if profile else None),
        tuple(base_url or ()),
        None if script is None else str(script.absolute()),
    )
    overrides |= _engine_overrides(engine, options)
    overrides["engine.engines"] = engines
    # Another revision is another checkpoint, whatever its name.
    overrides["engine.revision"] = revision
    given = Asked(
        profile or "",
        {setting: value for setting, value in overrides.items() if value is not None},
        _data_files(data or []),
        tuple(only or ()),
        limit,
    )
    with ExitStack() as held:
        resumption = None if resume is None else held.enter_context(_resumption(resume, results_dir, run_id))
        asked = _what_is_asked(given, resumption, run_id)
        check_names(load_profile(asked.profile, asked.overrides), (*asked.data, *asked.only))
        question = ask_about(
            asked.profile,
            overrides=asked.overrides,
            data=asked.data,
            broker=broker,
            results_dir=results_dir,
            models_dir=models,
            data_dir=data_dir,
            manifest=manifest,
        )
        lenient = allow_unverified or (resumption is not None and was_lenient(resumption.started))
        fetching = Fetching(source, lenient, network=fetch and not dry_run)
        if dry_run:
            _show_plan(asked, question, fetching, results_dir)
            return
        if resumption is None:
            _look_ahead(asked, question, fetching)
        outcome = _run(asked, question, fetching, resumption, ui, run_id, examines=doctor)
    line(f"results in {outcome.run_dir}")
    if outcome.exit_code is not ExitCode.OK:
        line(f"to go on with it: {way_on(outcome.run_dir)}")
    differs = fail_if_differs and outcome.exit_code is ExitCode.OK and outcome.differs
    code = ExitCode.CHECK_FAILED if differs else outcome.exit_code
    leave_if_ray_hangs(code)
    raise typer.Exit(code)


def _resumption(resume: str, results_dir: Path, run_id: str | None) -> AbstractContextManager[Resumption]:
    if run_id is not None:
        raise UserError("--run-id names a new run, --resume an old one", remedy="leave one of them out")
    return open_resumption(find_resumable(resume, results_dir))


def _what_is_asked(given: Asked, resumption: Resumption | None, run_id: str | None) -> Asked:
    """Return what to run: what is given, behind what a run that goes on was asked for."""
    if run_id is not None and not _RUN_ID.fullmatch(run_id):
        raise UserError(
            f"--run-id {run_id!r} is no name", remedy="use letters, digits, dot, dash and underscore"
        )
    if resumption is not None:
        return asked_again(resumption.started, given)
    if not given.profile:
        raise UserError(
            "which profile?",
            remedy=f"name one of {', '.join(bundled_profiles())} (see recount profiles), or a TOML file",
        )
    return given


def _look_ahead(asked: Asked, question: Question, fetching: Fetching) -> None:
    """Tell what is wrong with the plan before anything opens, where no fetch comes first; and of a run like
    this one that stopped."""
    store = question.store
    if store is not None and store.missing(question.groups):
        return
    here = replace(fetching, source=None, network=False)
    try:
        artifacts = anyio.run(partial(gather, question, here, touch=False))
    except UserError:
        return  # of a file that is not the right one; the fetch puts it aside and brings another
    plan = plan_of(asked, artifacts)
    for offered in offer_lines(find_unfinished(question.results_dir, plan)):
        line(offered)


def _show_plan(asked: Asked, question: Question, fetching: Fetching, results_dir: Path) -> None:
    plan = plan_of(asked, anyio.run(partial(gather, question, fetching, touch=False)))
    out.print(_plan_table(plan, build_engine(plan), results_dir))
    for expected in plan.expectation_lines():
        line(expected)


def _run(
    asked: Asked,
    question: Question,
    fetching: Fetching,
    resumption: Resumption | None,
    ui: Ui,
    run_id: str | None,
    *,
    examines: bool,
) -> RunOutcome:
    """Run it and show it, from the sandbox's opening to the summary."""
    results_dir = question.results_dir
    name = run_id or new_run_id(question.profile.name)
    if resumption is not None:
        name, results_dir = resumption.run_dir.name, resumption.run_dir.parent
    run_dir = results_dir / name
    if resumption is None:
        check_new(run_dir)
    with open_display(
        ui, run_id=name, title=name, results_dir=results_dir, write_line=line, write_error=log_of_no_run
    ) as display:
        if resumption is not None:
            display.catch_up(read_journal(resumption.journal.path))
        preparation = Preparation(
            asked, question, fetching, display, examines=examines, engine_logs=run_dir / ENGINE_LOG_DIR
        )

        async def run() -> RunOutcome:
            here: Sandbox = (
                DockerSandbox(question.policy, run_id=name)
                if question.broker is None
                else BrokerSandbox(question.broker, name)
            )
            sandbox = sandbox_of_run(here, name, display.note)
            return await run_prepared(
                preparation,
                WatchedSandbox(sandbox, display.note_command),
                run_id=name,
                results_dir=results_dir,
                listener=display,
                stopping=display.stopping,
                resumption=resumption,
                patience=Patience(tell=display.note),
                oversight=Oversight(examine=doctor_of(fetching.applied(question)), tell=display.note),
            )

        outcome = anyio.run(run)
    if display.ui is Ui.FRAMES:
        out.print(render_summary(outcome.results))
    else:
        # A log is read later, and by programs: no colours, whatever it is written to.
        for row in summary_text(outcome.results).splitlines():
            line(row)
    return outcome


def _data_files(written: list[str]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for one in written:
        name, separator, file = one.partition("=")
        if not separator or not name or not file:
            raise UserError(
                f"--data {one!r} is not NAME=FILE", remedy="write for example --data aime=aime.jsonl"
            )
        if name in files:
            raise UserError(f"--data {name} is given twice", remedy="leave one of them out")
        files[name] = Path(file)
    return files


def _engine_overrides(engine: str | None, options: EngineOptions) -> dict[str, Any]:
    if engine is None:
        return {f"engine.{name}": value for name, value in options.given.items()}
    if engine not in KINDS:
        raise UserError(f"no engine {engine!r}", remedy=f"name {kinds_in_words()}")
    return {"engine": KINDS[engine].section(options)}


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
        *([("engines here", "\n".join(engine.planned))] if engine.planned else []),
        ("at once", " ".join(f"{name}={value}" for name, value in profile.concurrency.model_dump().items())),
        ("sandbox", f"policy {plan.policy.name}\nSHA-256 {plan.policy.digest()}"),
        ("overrides", "\n".join(f"{name} = {value}" for name, value in plan.overrides.items()) or "none"),
        ("results", f"below {results_dir}"),
    ]
    for name, value in rows:
        table.add_row(name, Text(clean_text(value, keep_lines=True)))
    return table


def _engine_text(engine: EngineSection) -> str:
    return " ".join(f"{name}={value}" for name, value in engine.model_dump().items() if value is not None)
