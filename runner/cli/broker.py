"""`recount broker`: serve sandboxes to runs that must not hold the engine's socket."""

import logging
from pathlib import Path
from typing import Annotated

import anyio
import typer

from runner.groups import first_error_only
from sandbox.policy import bundled_policies, load_policy
from sandbox.serve import serve

EPILOG = """Examples:

  recount broker --socket /run/recount/broker.sock --policy report

  recount eval demo --broker /run/recount/broker.sock

  recount broker --policy demo --idle-exit 5     ends five seconds after its last run

Whoever may use the socket may have commands run under the policy, and nothing else: image, \
mounts, limits and security are the policy's. Give a run access with `--broker PATH` (or RECOUNT_BROKER).

Ends in order at SIGTERM and SIGINT: leases are closed, and nothing of theirs is left on the engine."""

DEFAULT_SOCKET = Path("/run/recount/broker.sock")


def broker(
    socket: Annotated[
        Path, typer.Option(envvar="RECOUNT_BROKER", help="Where to listen; its directory is made if needed.")
    ] = DEFAULT_SOCKET,
    policy: Annotated[
        str, typer.Option(help=f"{', '.join(bundled_policies())}, or a TOML file.", metavar="NAME_OR_FILE")
    ] = "report",
    idle_exit: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="End this long after the last run.")
    ] = None,
    first_client: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="End if no run comes for this long.")
    ] = None,
    host_memory_bytes: Annotated[
        int | None, typer.Option(min=1, hidden=True, help="Take this for the host's memory.")
    ] = None,
) -> None:
    """Serve sandboxes on a Unix socket, as the only one who holds the engine's."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    logging.getLogger("recount.broker").setLevel(logging.INFO)
    chosen = load_policy(policy)

    async def main() -> None:
        with first_error_only():
            await serve(
                chosen, socket, idle_s=idle_exit, first_client_s=first_client, host_bytes=host_memory_bytes
            )

    anyio.run(main)
