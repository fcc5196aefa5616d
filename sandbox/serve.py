"""The broker from its start to its end: checked before it serves, and ended in order."""

from __future__ import annotations

import logging
import os
import secrets
import signal
from pathlib import Path

import anyio
import anyio.to_thread

from sandbox.admission import Admission, admit
from sandbox.broker import create_app
from sandbox.errors import SandboxError
from sandbox.http_server import Server, http_server
from sandbox.leases import STOP_TIMEOUT_S, Broker
from sandbox.listening import listening
from sandbox.policy import Policy
from sandbox.preflight import connect, inspect_engine
from sandbox.reaper import SweepReport, sweep_engine

IDLE_CHECK_S = 0.2
SWEEP_INTERVAL_S = 30.0

log = logging.getLogger("recount.broker")


async def serve(
    policy: Policy,
    path: Path,
    *,
    idle_s: float | None = None,
    first_client_s: float | None = None,
    host_bytes: int | None = None,
) -> None:
    """Serve until a signal comes, or nobody came for `first_client_s`, or after the last lease for `idle_s`.

    Checks and sweeps first; raises `SandboxPrerequisiteError` for what the user can mend. Ends in order:
    leases are closed, and with them everything that they opened. `host_bytes` replaces the host's memory.
    """
    with listening(path) as server_socket:
        broker = Broker(policy, await anyio.to_thread.run_sync(lambda: _prepare(policy, host_bytes)))
        server = http_server(create_app(broker))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stop_at_signal, broker)
            tasks.start_soon(_stop_when_idle, broker, idle_s, first_client_s)
            tasks.start_soon(_stop_server, broker, server)
            tasks.start_soon(_sweep_now_and_then, broker)
            log.info("serving policy %s on %s", policy.name, path)
            await server.serve(sockets=[server_socket])
            tasks.cancel_scope.cancel()
    log.info("ended")


def _prepare(policy: Policy, host_bytes: int | None) -> Admission:
    """Check the policy against the engine, sweep, and see what the host can take. Blocking."""
    run_id = f"broker-{secrets.token_hex(4)}"
    api = connect(timeout_s=policy.start_timeout_s)
    try:
        facts = inspect_engine(api, policy, run_id)
        _log_sweep(sweep_engine(api, run_id))
    finally:
        api.close()
    admission = admit(policy, host_bytes=host_bytes or facts.host_bytes, cores=facts.cores)
    log.info("at once: %d commands, %d workspaces", admission.actions, admission.workspaces)
    for note in admission.notes:
        log.warning("%s", note)
    return admission


def _log_sweep(report: SweepReport) -> None:
    if report.containers or report.volumes:
        log.info("swept %d containers and %d volumes", report.containers, report.volumes)
    for failure in report.failures:
        log.warning("not removed: %s", failure)


async def _sweep_now_and_then(broker: Broker) -> None:
    """Take what dies after the start: containers of a killed broker, or of a run without one."""
    while True:
        await anyio.sleep(SWEEP_INTERVAL_S)
        try:
            _log_sweep(await broker.sweep())
        except SandboxError as error:
            log.warning("no sweep: %s", error)


async def _stop_at_signal(broker: Broker) -> None:
    """Stop at the first signal; the second ends the process where it stands, and its containers with it."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for received in signals:
            log.info("%s: ending", signal.Signals(received).name)
            if broker.stopping.is_set():
                os._exit(128 + received)
            broker.stopping.set()


async def _stop_when_idle(broker: Broker, idle_s: float | None, first_client_s: float | None) -> None:
    started = anyio.current_time()
    while True:
        await anyio.sleep(IDLE_CHECK_S)
        since, limit = broker.last_lease_ended_at, idle_s
        if since is None:
            since, limit = started, first_client_s
        if not broker.leases and limit is not None and anyio.current_time() - since >= limit:
            log.info("no run for %g s: ending", limit)
            broker.stopping.set()
            return


async def _stop_server(broker: Broker, server: Server) -> None:
    """Let the leases end before the server does: their clients get answers, and nothing is left."""
    await broker.stopping.wait()
    with anyio.move_on_after(STOP_TIMEOUT_S):
        await broker.all_ended()
    server.should_exit = True
