"""A broker whose commands run on this machine: `chaos_broker.py SOCKET DIRECTORY SWITCHES`.

The service is the real one: socket, HTTP, leases, permits. Only what a lease opens is a `HostSandbox` in a
throw-away directory, so that a schedule takes seconds; it fails by switches as an engine and its containers
do. For scripted commands alone.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import anyio
from typing_extensions import override

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]

from chaos_switches import Switch, Switches  # noqa: E402

from sandbox import (  # noqa: E402
    ActionResult,
    HostSandbox,
    Policy,
    SandboxInfrastructureError,
    Workspace,
    leases,
    serve,
)
from sandbox.admission import Admission  # noqa: E402
from sandbox.reaper import SweepReport  # noqa: E402

LOOK_S = 0.03
DAEMON_TIMEOUT_S = 3.0
AT_ONCE = 8


class SwitchedWorkspace(Workspace):
    """A host's workspace whose daemon and containers fail by switches."""

    def __init__(self, workspace: Workspace, switches: Switches) -> None:
        self._workspace = workspace
        self._switches = switches

    @override
    async def run(self, script: str | bytes, timeout_s: float) -> ActionResult:
        await daemon(self._switches)
        result = await self._workspace.run(script, timeout_s)
        if self._switches.is_on(Switch.CONTAINERS_DIE):
            # The command has run, and nobody will ever know how.
            raise SandboxInfrastructureError("a sandbox container was killed", command_started=True)
        return result

    @override
    async def close(self) -> None:
        await self._workspace.close()


async def daemon(switches: Switches) -> None:
    """Be what every call to an engine goes through."""
    if switches.is_on(Switch.DAEMON_DOWN):
        raise SandboxInfrastructureError("the Docker engine does not answer")
    with anyio.move_on_after(DAEMON_TIMEOUT_S) as patience:
        while switches.is_on(Switch.DAEMON_HANGS):  # noqa: ASYNC110 - a file tells
            await anyio.sleep(LOOK_S)
    if patience.cancelled_caught:
        raise SandboxInfrastructureError(f"the Docker engine did not answer within {DAEMON_TIMEOUT_S:g} s")


async def main(*given: str) -> None:
    """Serve until a signal comes."""
    socket, root, switches_dir = given
    switches = Switches(Path(switches_dir))

    class SwitchedSandbox(HostSandbox):
        """In the place of the sandbox that a lease opens."""

        def __init__(self, policy: Policy, run_id: str, **_: Any) -> None:
            super().__init__(Path(root) / run_id, capture_bytes=policy.capture_bytes)

        @override
        async def open(self, workspace_id: str) -> Workspace:
            await daemon(switches)
            return SwitchedWorkspace(await super().open(workspace_id), switches)

    async def nothing_to_sweep(_: leases.Broker) -> SweepReport:
        return SweepReport(0, 0, ())

    leases.DockerSandbox = SwitchedSandbox  # type: ignore[assignment, attr-defined] # what a lease opens
    leases.Broker.sweep = nothing_to_sweep  # type: ignore[assignment, method-assign]
    serve._prepare = lambda *_, **__: Admission(AT_ONCE, AT_ONCE * 4, ())
    await serve.serve(Policy(), Path(socket))


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    anyio.run(main, *sys.argv[1:])
