"""Entry point: commands, and what an error becomes on the terminal."""

import sys
import traceback
from typing import Annotated

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
    profiles,
    report,
    sandbox,
    verify,
    watch,
)
from runner.cli.output import errors, prepare_streams
from runner.errors import ExitCode, RecountError
from sandbox import SandboxError, SandboxPrerequisiteError

EPILOG = "Start with `recount eval demo`: real sandboxes, no GPU, under a minute."

app = typer.Typer(
    name="recount",
    help="Reproduces a published agentic score, its model-written bash in locked-down sandboxes.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(conformance.app, name="conformance")
app.add_typer(sandbox.app, name="sandbox")
app.add_typer(verify.app, name="verify")
app.command("broker", epilog=broker.EPILOG)(broker.broker)
app.command("compare", epilog=compare.EPILOG)(compare.compare)
app.command("doctor", epilog=doctor.EPILOG)(doctor.doctor)
app.command("eval", epilog=evaluate.EPILOG)(evaluate.evaluate)
app.command("export", epilog=export.EPILOG)(export.export)
app.command("fetch", epilog=fetch.EPILOG)(fetch.fetch_command)
app.command("report", epilog=report.EPILOG)(report.report)
app.command("profiles", epilog=profiles.EPILOG)(profiles.profiles)
app.command("watch", epilog=watch.EPILOG)(watch.watch)


def _print_version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"recount {__version__}\n")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Carry the options that stand before a command."""
    del version  # its callback has acted already


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
        sys.exit(error.exit_code)
    except SandboxPrerequisiteError as error:
        errors(error.message, error.remedy)
        sys.exit(ExitCode.BAD_INPUT)
    except SandboxError as error:
        errors(error.message, error.remedy)
        sys.exit(ExitCode.INFRASTRUCTURE)
    except KeyboardInterrupt:
        errors("interrupted")
        sys.exit(ExitCode.INTERRUPTED)
    except Exception:  # noqa: BLE001 - the last line of defence
        errors(
            f"a fault of Recount itself\n{traceback.format_exc()}", "please report it with the lines above"
        )
        sys.exit(ExitCode.INFRASTRUCTURE)
    sys.exit(code)
