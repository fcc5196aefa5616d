"""Removal off the critical path: a queue with workers, retries, and a count of what waits.

It is a queue and not a call because the engine answers 409 for a volume whose last container is still being
removed, and because removing takes as long as starting. What stays after all attempts, the sweep by label
takes at the end of the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import anyio
import tenacity

from sandbox.engine import Engine, remove_container, remove_volume
from sandbox.errors import SandboxInfrastructureError

ATTEMPTS = 12
LONGEST_WAIT_S = 5.0
# What follows an action begins this long after it: the threads that call the engine would hold the
# interpreter, and the engine a core, while the answer is on its way to the caller (through a broker that was
# a third of an action's latency).
ANSWER_FIRST_S = 0.01
# An agent that has answered ends by itself. Removing its container then costs the engine 8 ms; killing it
# first, 60. Without thinking, waiting for that is 0.96 of the engine's own ceiling against 0.84.
LET_IT_END_S = 0.3


@dataclass(frozen=True)
class Removal:
    """Containers first, then the volumes they used."""

    containers: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    due_at: float = field(default_factory=lambda: anyio.current_time() + ANSWER_FIRST_S)
    """On the event loop's clock; the queue is worked off in order, so a later one waits for an earlier."""
    done: anyio.Event = field(default_factory=anyio.Event)


class Janitor:
    """Takes removals at once and works them off in as many tasks of `work` as its owner starts."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._send, self._receive = anyio.create_memory_object_stream[Removal](math.inf)
        self._pending = 0
        self._scopes: list[anyio.CancelScope] = []
        self._progress = anyio.Condition()
        self.given_up: list[str] = []

    def submit(self, removal: Removal) -> Removal:
        """Queue a removal; never waits, so that it can be called under cancellation."""
        self._pending += 1
        self._send.send_nowait(removal)
        return removal

    @property
    def pending(self) -> int:
        """Removals that are not done."""
        return self._pending

    async def at_most(self, pending: int) -> None:
        """Wait until no more removals than this are pending."""
        async with self._progress:
            while self._pending > pending:
                await self._progress.wait()

    async def work(self) -> None:
        """Work removals off until closed. Cancelling the owner's run is when removal is wanted most."""
        with anyio.CancelScope(shield=True) as scope:
            self._scopes.append(scope)
            async for removal in self._receive:
                await anyio.sleep(max(0.0, removal.due_at - anyio.current_time()))
                await self._remove(removal)
                removal.done.set()
                async with self._progress:
                    self._pending -= 1
                    self._progress.notify_all()

    def close(self) -> None:
        """Stop the workers; what is still pending stays for the sweep."""
        for scope in self._scopes:
            scope.cancel()
        self._send.close()
        self._receive.close()

    async def _remove(self, removal: Removal) -> None:
        api = self._engine.api
        for container_id in removal.containers:
            await self._retried(f"container {container_id}", partial(remove_container, api, container_id))
        for volume in removal.volumes:
            await self._retried(f"volume {volume}", partial(remove_volume, api, volume))

    async def _retried(self, name: str, remove: Callable[[], None]) -> None:
        retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(ATTEMPTS),
            wait=tenacity.wait_random_exponential(multiplier=0.1, max=LONGEST_WAIT_S),
            retry=tenacity.retry_if_exception_type(SandboxInfrastructureError),
            sleep=anyio.sleep,
            reraise=True,
        )
        try:
            await retrying(self._engine.remove, f"removing {name}", remove)
        except SandboxInfrastructureError as error:
            self.given_up.append(f"{name}: {error}")
