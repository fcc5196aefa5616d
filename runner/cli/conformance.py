"""`recount conformance`: hold this implementation against golden vectors."""

import sys
import tempfile
from enum import Enum
from pathlib import Path
from typing import Annotated

import anyio
import typer

from runner.cli.output import line
from runner.conformance.functions import check_functions
from runner.conformance.report import Report
from runner.conformance.trajectories import check_trajectories
from runner.errors import ExitCode, UserError
from runner.paths import is_file
from runner.plan import read_pack
from runner.run import new_run_id
from sandbox import BrokerSandbox, DockerSandbox, HostSandbox, Sandbox
from sandbox.policy import load_policy

EPILOG_FUNCTIONS = """Examples:

  recount conformance functions function_vectors.jsonl

A line: {"function": "parse_action", "args": ["..."], "expected": null}

Exit codes: 0 all agree, 1 one differs, 2 the file cannot be read."""
EPILOG_TRAJECTORIES = """Examples:

  recount conformance trajectories trajectories.jsonl

  recount conformance trajectories trajectories.jsonl --protocol pack.json --policy report

Their commands run in sandboxes, or with --sandbox host and --i-trust-these-commands on this machine.

Exit codes: 0 all agree, 1 one differs, 2 a file cannot be read."""
EPILOG = """Examples:

  recount conformance functions function_vectors.jsonl

  recount conformance trajectories trajectories.jsonl --protocol pack.json"""

app = typer.Typer(
    help="Check the protocol against golden vectors; exit code 1 if one differs.",
    epilog=EPILOG,
    no_args_is_help=True,
)


class SandboxKind(str, Enum):
    """Where a trajectory's commands run."""

    DOCKER = "docker"
    HOST = "host"


@app.command("functions", epilog=EPILOG_FUNCTIONS)
def functions(
    file: Annotated[Path, typer.Argument(help="JSON lines of {function, args, expected}.")],
) -> None:
    """Check the protocol's text functions."""
    _finish(check_functions(file))


@app.command("trajectories", epilog=EPILOG_TRAJECTORIES)
def trajectories(
    file: Annotated[Path, typer.Argument(help="JSON lines of whole trajectories.")],
    protocol: Annotated[
        Path | None,
        typer.Option(help="The pack with the sentences they were made with; else protocol.json beside FILE."),
    ] = None,
    sandbox: Annotated[SandboxKind, typer.Option(help="Where their commands run.")] = SandboxKind.DOCKER,
    policy: Annotated[str, typer.Option(help="The sandbox policy, by name or file.")] = "report",
    broker: Annotated[
        Path | None, typer.Option(envvar="RECOUNT_BROKER", help="Socket of a sandbox broker to use instead.")
    ] = None,
    trust: Annotated[
        bool, typer.Option("--i-trust-these-commands", help="Allow --sandbox host: no isolation at all.")
    ] = False,
) -> None:
    """Replay whole trajectories, their bash commands run for real."""
    if sandbox is SandboxKind.HOST and not trust:
        raise UserError(
            "--sandbox host runs the file's commands on this machine without isolation",
            remedy="add --i-trust-these-commands if you have read them, or use --sandbox docker",
        )
    if not is_file(file):
        raise UserError(f"no file {file}", remedy="name a file of golden trajectories")
    pack = read_pack(protocol or file.parent / "protocol.json", option="--protocol")
    with tempfile.TemporaryDirectory(prefix="recount-conformance-") as scratch:
        box: Sandbox
        if sandbox is SandboxKind.HOST:
            box = HostSandbox(Path(scratch))
        elif broker is not None:
            box = BrokerSandbox(broker, new_run_id("conformance"))
        else:
            box = DockerSandbox(load_policy(policy), run_id=new_run_id("conformance"))
        report = anyio.run(check_trajectories, file, pack, box)
    _finish(report)


def _finish(report: Report) -> None:
    for text in report.lines():
        line(text)
    sys.stdout.flush()
    raise typer.Exit(ExitCode.OK if report.failed == 0 else ExitCode.CHECK_FAILED)
