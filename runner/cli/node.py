"""`recount node`: make this machine a node of a Ray cluster, with the sandboxes of its broker."""

import os
import signal
from pathlib import Path
from typing import Annotated

import anyio
import typer

from runner.cli.output import line
from runner.cluster.joining import Asked, Ready, prepare, shown, wait_for_leases
from runner.cluster.start import DEFAULT_PORT, RayNode, ray_node
from runner.errors import ExitCode, InfrastructureError, UserError
from runner.groups import first_error_only

EPILOG = """Examples:

  recount node --head --node-address 10.0.0.1

  recount node --ray-address 10.0.0.1:6379

  recount eval final4 --ray-address 10.0.0.1:6379

Start `recount broker` first: its socket (--broker, or RECOUNT_BROKER) is what sandboxes of this machine are \
reached by, and it is never on the network. Without one a node holds engines only.

Ray's token keeps strangers out: RAY_AUTH_TOKEN, a file that RAY_AUTH_TOKEN_PATH names, or \
~/.ray/auth_token. The network has to be private all the same: docs/cluster.md.

Runs until SIGTERM or Ctrl-C, and leaves nothing behind. Exit codes: 0 stopped, 2 it may not join (the \
message says in what it differs), 3 Ray failed or the head was lost."""


def node(  # noqa: PLR0913, PLR0917 - typer reads options from parameters
    head: Annotated[bool, typer.Option("--head", help="Be the head: the first node of a cluster.")] = False,
    ray_address: Annotated[
        str | None,
        typer.Option(envvar="RAY_ADDRESS", metavar="HOST:PORT", help="The head of the cluster to join."),
    ] = None,
    node_address: Annotated[
        str | None,
        typer.Option(
            envvar="RECOUNT_NODE_ADDRESS",
            metavar="ADDRESS",
            help="This machine's address in the nodes' private network; else the one that faces the head.",
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=1024, max=65535, help="Of the head.")] = DEFAULT_PORT,
    broker: Annotated[
        Path | None, typer.Option(envvar="RECOUNT_BROKER", help="Socket of this machine's sandbox broker.")
    ] = None,
    slots: Annotated[
        int | None, typer.Option(min=1, help="Workspaces at once here, if fewer than the broker allows.")
    ] = None,
    cpus: Annotated[int | None, typer.Option(min=0, help="CPUs that Ray may use; else all.")] = None,
    gpus: Annotated[int | None, typer.Option(min=0, help="GPUs that Ray may use; else all.")] = None,
    temp_dir: Annotated[
        Path | None, typer.Option(help="Where Ray keeps its sockets and logs; else /tmp/ray. A short path.")
    ] = None,
    firewalled: Annotated[
        bool,
        typer.Option(
            "--firewalled",
            envvar="RECOUNT_FIREWALLED",
            help="This machine has a public address, and a firewall closes it to all but the nodes.",
        ),
    ] = False,
) -> None:
    """Join this machine to a cluster, or begin one."""
    if head:
        ray_address = None  # it is set for whoever evaluates here, too
    elif ray_address is None:
        raise UserError("which cluster?", remedy="name its head with --ray-address, or be one with --head")
    asked = Asked(ray_address, node_address, port, broker, slots, firewalled, cpus, gpus, temp_dir)
    with first_error_only():
        ended = anyio.run(_node, asked)
    raise typer.Exit(ended)


async def _node(asked: Asked) -> ExitCode:
    """Check, start, and stay until a signal comes or Ray ends."""
    ready: Ready | None = None
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_at_signal, scope)
            ready = await prepare(asked)
            for note in ready.notes:
                line(f"note: {note}")
            async with ray_node(ready.settings) as started:
                for one in shown(ready.settings, os.environ):
                    line(one)
                await _until_ended(started)
    if ready is not None and ready.settings.broker is not None:
        with anyio.CancelScope(shield=True):
            empty = await wait_for_leases(ready.settings.broker)
        line("left: nothing of this node is running" if empty else "left; the broker is still tidying up")
    return ExitCode.OK


async def _until_ended(started: RayNode) -> None:
    await started.ended.wait()
    raise InfrastructureError(
        f"Ray ended on this node; it said last:\n{started.tail}",
        remedy="see whether the head lives, then start this again",
    )


async def _cancel_at_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async for _ in signals:
            scope.cancel()
            return
