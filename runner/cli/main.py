"""Entry point: commands, and what an error becomes on the terminal."""

import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from runner import __version__
from runner.cli import (
    broker,
    compare,
    conformance,
    doctor,
    evaluate,
    export,
    fetch,
    node,
    profiles,
    report,
    sandbox,
    verify,
    watch,
)
from runner.cli.completion import RESULTS_VARIABLE
from runner.cli.output import errors, line, prepare_streams
from runner.cli.start import start_lines
from runner.engines.vllm.ray_runtime import leave_if_ray_hangs
from runner.errors import ExitCode, RecountError
from sandbox import SandboxError, SandboxPrerequisiteError

EPILOG = """Examples:

  recount eval demo                a whole run, no GPU, half a minute

  recount doctor final4            what this machine lacks for it

  recount eval final4              the report's evaluation

  recount watch                    look into the newest run

  recount report RUN               its page; RUN is an id or a directory

Tab completes commands, options, profiles and runs after `recount --install-completion`.

Exit codes: 0 done, 1 a check that was asked for found differences, 2 something you can mend (the message \
says how), 3 our own side failed, 4 ended with unfinished trajectories, 130 stopped."""
RUNNING = "Run an evaluation"
LOOKING = "Look at a run"
CHECKING = "Sandbox and protocol"

app = typer.Typer(
    name="recount",
    help="Reproduces a published agentic score, its model-written bash in locked-down sandboxes.",
    epilog=EPILOG,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("eval", epilog=evaluate.EPILOG, rich_help_panel=RUNNING)(evaluate.evaluate)
app.command("doctor", epilog=doctor.EPILOG, rich_help_panel=RUNNING)(doctor.doctor)
app.command("fetch", epilog=fetch.EPILOG, rich_help_panel=RUNNING)(fetch.fetch_command)
app.command("profiles", epilog=profiles.EPILOG, rich_help_panel=RUNNING)(profiles.profiles)
app.command("watch", epilog=watch.EPILOG, rich_help_panel=LOOKING)(watch.watch)
app.command("report", epilog=report.EPILOG, rich_help_panel=LOOKING)(report.report)
app.command("compare", epilog=compare.EPILOG, rich_help_panel=LOOKING)(compare.compare)
app.command("export", epilog=export.EPILOG, rich_help_panel=LOOKING)(export.export)
app.add_typer(verify.app, name="verify", rich_help_panel=LOOKING)
app.add_typer(sandbox.app, name="sandbox", rich_help_panel=CHECKING)
app.command("broker", epilog=broker.EPILOG, rich_help_panel=CHECKING)(broker.broker)
app.command("node", epilog=node.EPILOG, rich_help_panel=CHECKING)(node.node)
app.add_typer(conformance.app, name="conformance", rich_help_panel=CHECKING)


def _print_version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"recount {__version__}\n")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Carry the options that stand before a command; without one, say where to begin."""
    del version  # its callback has acted already
    if context.invoked_subcommand is None:
        for one in start_lines(Path(os.environ.get(RESULTS_VARIABLE, "results"))):
            line(one)


def main() -> None:
    """Run the command line; every foreseen error is one message and a documented exit code.

    A fault of the program shows its traceback, cleaned: what it quotes may be a model's. It exits as a
    failure of ours, since 1 says that a check found differences.
    """
    prepare_streams()
    try:
        code = app(standalone_mode=True)
    except RecountError as error:
        errors(error.message, error.remedy)
        _leave(error.exit_code)
    except SandboxPrerequisiteError as error:
        errors(error.message, error.remedy)
        _leave(ExitCode.BAD_INPUT)
    except SandboxError as error:
        errors(error.message, error.remedy)
        _leave(ExitCode.INFRASTRUCTURE)
    except KeyboardInterrupt:
        errors("interrupted")
        _leave(ExitCode.INTERRUPTED)
    except Exception:  # noqa: BLE001 - the last line of defence
        errors(
            f"a fault of Recount itself\n{traceback.format_exc()}", "please report it with the lines above"
        )
        _leave(ExitCode.INFRASTRUCTURE)
    _leave(code)


def _leave(code: int) -> NoReturn:
    leave_if_ray_hangs(code)
    sys.exit(code)
