"""`recount sandbox`: look at the lock-down, check it, attack it, try a command in it, clean up after it."""

import contextlib
import importlib
import json
import os
import sys
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import anyio
import anyio.to_thread
import typer
from rich.text import Text

from runner.clean import clean_text
from runner.cli import sandbox_build
from runner.cli.completion import complete_policy
from runner.cli.output import err, line, out
from runner.cli.sandbox_views import (
    attacks_table,
    checks_table,
    columns,
    one_line,
    pass_on,
    shell_code,
    shown_setting,
    write_outcomes,
)
from runner.errors import ExitCode, UserError
from sandbox import ActionResult, DockerSandbox, Policy, SandboxPrerequisiteError
from sandbox.admission import Admission, admit
from sandbox.attack import DEFAULT_TIMEOUT_S, Outcome, attack_bench, read_attacks
from sandbox.attack_rules import Attack, Verdict
from sandbox.checks import check as run_checks
from sandbox.engine import LABEL_RUN, translated
from sandbox.policy import GIB, MIB, bundled_policies, load_policy
from sandbox.preflight import connect
from sandbox.reaper import sweep

EPILOG = """Examples:

  recount sandbox run 'id; python3 -c "print(2**100)"'

  recount sandbox check                  every control, tried in real containers

  recount sandbox policy report          every setting and its SHA-256

The image is built once: `recount sandbox build`."""
EPILOG_POLICY = """Examples:

  recount sandbox policy

  recount sandbox policy report --json

  recount sandbox policy my-policy.toml"""
EPILOG_CHECK = """Examples:

  recount sandbox check

  recount sandbox check --policy report --runtime runsc

Exit codes: 0 all hold, 1 one does not or could not be asked, 2 no engine, image or policy."""
EPILOG_ATTACK = """Examples:

  recount sandbox attack attacks.jsonl

  recount sandbox attack attacks.jsonl --only fork-bomb --json outcomes.json

A line: {"id": "fork-bomb", "command": ":(){ :|:& };:", "expect": "limit"}

Exit codes: 0 no breach, 1 a breach, 2 the file, the engine or the policy."""
EPILOG_RUN = """Examples:

  recount sandbox run 'id; ls /sys/class/net'

  recount sandbox run 'python3 -c "import sympy; print(sympy.factorint(2**67 - 1))"' --timeout 20

  recount sandbox run 'curl example.org' --policy report"""
EPILOG_SHELL = """Examples:

  recount sandbox shell

  printf 'echo a > f\\ncat f\\n' | recount sandbox shell --policy report"""
EPILOG_CLEAN = """Examples:

  recount sandbox clean

  recount sandbox clean --run demo-20261202-101500-3f9a"""

app = typer.Typer(
    help="Look at the sandbox's lock-down, check it, attack it, try commands in it.",
    epilog=EPILOG,
    no_args_is_help=True,
)

DEFAULT_POLICY = "demo"
SHELL_TIMEOUT_S = 60.0
RUN_CAPTURE_BYTES = 4 * MIB
PROMPT = "sandbox> "
PROBE_TIMEOUT_S = 10.0

PolicyName = Annotated[
    str,
    typer.Option(
        "--policy",
        help="A bundled policy's name (demo, report) or a TOML file.",
        autocompletion=complete_policy,
    ),
]
Runtime = Annotated[
    str | None, typer.Option("--runtime", help="Override the policy's runtime, e.g. runsc (gVisor).")
]


app.command("build", epilog=sandbox_build.EPILOG)(sandbox_build.build)


@app.command("policy", epilog=EPILOG_POLICY)
def policy_command(
    name: Annotated[
        str,
        typer.Argument(help="A bundled policy's name or a TOML file.", autocompletion=complete_policy),
    ] = DEFAULT_POLICY,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show a whole policy, its SHA-256, and what it admits on this host."""
    policy = load_policy(name)
    admission, source = _admission(policy)
    if as_json:
        document = {
            "policy": policy.model_dump(mode="json"),
            "sha256": policy.digest(),
            "admission": asdict(admission) | {"host": source},
        }
        line(json.dumps(document, indent=2))
        return
    line(f"policy {policy.name}   sha256 {policy.digest()}")
    table = columns("setting", "value")
    for setting, value in policy.model_dump().items():
        table.add_row(setting, shown_setting(setting, value))
    out.print(table)
    line(f"on {source}: {admission.actions} commands and {admission.workspaces} workspaces at once")
    for note in admission.notes:
        line(f"  {note}")
    line(f"bundled policies: {', '.join(bundled_policies())}")


@app.command("check", epilog=EPILOG_CHECK)
def check(
    policy: PolicyName = DEFAULT_POLICY,
    runtime: Runtime = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False,
) -> None:
    """Try every control of the lock-down in real containers; exit code 1 if one does not hold."""
    found = anyio.run(run_checks, _policy(policy, runtime))
    failed = sum(not each.ok for each in found)
    if as_json:
        line(json.dumps([asdict(each) for each in found], indent=2))
    else:
        out.print(checks_table(found))
        line(f"{len(found)} controls, " + (f"{failed} of them do not hold" if failed else "all of them hold"))
    raise typer.Exit(ExitCode.CHECK_FAILED if failed else ExitCode.OK)


@app.command("attack", epilog=EPILOG_ATTACK)
def attack(
    file: Annotated[Path, typer.Argument(help="JSON lines of {id, command, expect}.")],
    policy: PolicyName = DEFAULT_POLICY,
    runtime: Runtime = None,
    only: Annotated[list[str] | None, typer.Option("--only", help="This id only; may be repeated.")] = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0.1, max=3600, help="Seconds that a command may take.")
    ] = DEFAULT_TIMEOUT_S,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write every outcome here.")] = None,
) -> None:
    """Run hostile commands and look at everything that must not suffer; exit code 1 on a breach."""
    attacks = read_attacks(file)
    if only:
        unknown = sorted(set(only) - {each.attack_id for each in attacks})
        if unknown:
            raise UserError(f"{file} holds no attack {', '.join(unknown)}", remedy="name ids of the file")
        attacks = tuple(each for each in attacks if each.attack_id in only)
    chosen = _policy(policy, runtime)
    outcomes = anyio.run(_run_attacks, attacks, chosen, timeout_s)
    out.print(attacks_table(outcomes))
    counts = {verdict: sum(each.verdict is verdict for each in outcomes) for verdict in Verdict}
    line(
        f"{len(outcomes)} attacks: {counts[Verdict.CONTAINED]} contained,"
        f" {counts[Verdict.LOOK]} for a person to look at, {counts[Verdict.BREACH]} breaches"
    )
    if json_path is not None:
        write_outcomes(json_path, outcomes, chosen, timeout_s)
    raise typer.Exit(ExitCode.CHECK_FAILED if counts[Verdict.BREACH] else ExitCode.OK)


@app.command("run", epilog=EPILOG_RUN)
def run(
    command: Annotated[str, typer.Argument(help="What bash runs in a fresh workspace.")],
    policy: PolicyName = DEFAULT_POLICY,
    runtime: Runtime = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0.1, max=3600, help="Seconds that it may take.")
    ] = DEFAULT_TIMEOUT_S,
) -> None:
    """Run one command. Output is passed on, cleaned if it goes to a terminal; limits are named on stderr.

    The exit code is the command's as a shell would give it: 128 + n for death by signal n, 124 for a
    command that was ended by its time-out or its output limit.
    """
    result = anyio.run(_run_once, _policy(policy, runtime), command, timeout_s)
    pass_on(result)
    raise typer.Exit(shell_code(result))


@app.command("shell", epilog=EPILOG_SHELL)
def shell(
    policy: PolicyName = DEFAULT_POLICY,
    runtime: Runtime = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0.1, max=3600, help="Seconds that a line may take.")
    ] = SHELL_TIMEOUT_S,
) -> None:
    """Look around in a sandbox as a model would: every line is one action in one workspace."""
    anyio.run(_shell, _policy(policy, runtime), timeout_s)


@app.command("clean", epilog=EPILOG_CLEAN)
def clean(
    run_id: Annotated[
        str | None, typer.Option("--run", help="Remove everything of this run, however young.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Even if the run of --run still runs.")] = False,
) -> None:
    """Remove what dead runs left on the engine, by label; what a live run uses is not touched."""
    if run_id is not None and not force and _is_live(run_id):
        raise UserError(
            f"the run {run_id} has running containers, so it lives: they end with their client",
            remedy="end the run, or add --force",
        )
    report = anyio.run(sweep, run_id)
    line(f"removed {report.containers} containers and {report.volumes} volumes")
    for failure in report.failures:
        err.print(Text(f"not removed: {clean_text(failure, keep_lines=False)}"))
    raise typer.Exit(ExitCode.INFRASTRUCTURE if report.failures else ExitCode.OK)


def _policy(name: str, runtime: str | None) -> Policy:
    policy = load_policy(name)
    return policy if runtime is None else policy.model_copy(update={"runtime": runtime})


def _admission(policy: Policy) -> tuple[Admission, str]:
    """By the engine's host where it answers: it need not be this machine."""
    try:
        api = connect(timeout_s=PROBE_TIMEOUT_S)
    except SandboxPrerequisiteError:
        pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        host_bytes, cores, source = (
            pages * page_bytes,
            os.cpu_count() or 1,
            "this machine (no engine answers)",
        )
    else:
        try:
            info = translated("asking the engine about itself", api.info)
        finally:
            api.close()
        host_bytes, cores, source = int(info["MemTotal"]), int(info["NCPU"]), "the engine's host"
    admission = admit(policy, host_bytes=host_bytes, cores=cores)
    return admission, f"{source} ({host_bytes / GIB:.1f} GiB, {cores} cores)"


async def _run_attacks(attacks: tuple[Attack, ...], policy: Policy, timeout_s: float) -> list[Outcome]:
    outcomes = []
    async with attack_bench(policy, timeout_s=timeout_s) as bench:
        for number, each in enumerate(attacks):
            outcome = await bench.run(number, each)
            outcomes.append(outcome)
            err.print(
                Text(f"[{number + 1}/{len(attacks)}] {one_line(each.attack_id)}: {outcome.verdict.value}")
            )
    return outcomes


async def _run_once(policy: Policy, command: str, timeout_s: float) -> ActionResult:
    # One command: nothing is started ahead, and much of its output is kept.
    policy = policy.model_copy(update={"prewarm": False, "capture_bytes": RUN_CAPTURE_BYTES})
    async with DockerSandbox(policy, _run_id("run")) as box:
        workspace = await box.open("run")
        try:
            return await workspace.run(command, timeout_s)
        except ValueError as error:
            raise UserError(str(error), remedy="a command holds no NUL byte") from error


async def _shell(policy: Policy, timeout_s: float) -> None:
    # Imported for what it does to `input`: editing and history. Some builds of Python lack it.
    with contextlib.suppress(ImportError):
        importlib.import_module("readline")
    async with DockerSandbox(policy, _run_id("shell")) as box:
        workspace = await box.open("shell")
        err.print(
            Text(
                f"policy {policy.name}. Every line runs in a fresh container: processes and variables go with"
                " it, files in /workspace, /tmp and ~ stay. Ctrl-D ends."
            )
        )
        while (typed := await anyio.to_thread.run_sync(_read_line, abandon_on_cancel=True)) is not None:
            if not typed.strip():
                continue
            try:
                pass_on(await workspace.run(typed, timeout_s))
            except ValueError as error:
                err.print(Text(str(error)))


def _read_line() -> str | None:
    try:
        return input(PROMPT if sys.stdin.isatty() else "")
    except EOFError:
        return None


def _is_live(run_id: str) -> bool:
    """Containers of a run whose client is gone have ended: their stdin went with it."""
    api = connect(timeout_s=PROBE_TIMEOUT_S)
    try:
        running = translated(
            "listing containers", lambda: api.containers(filters={"label": f"{LABEL_RUN}={run_id}"})
        )
    finally:
        api.close()
    return bool(running)


def _run_id(purpose: str) -> str:
    return f"{purpose}-{uuid.uuid4().hex[:12]}"
