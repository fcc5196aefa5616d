"""The driver's side of one engine: makes its actor, asks it, watches it, and makes it again."""

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
from typing_extensions import override

from runner.cluster.silence import SILENCE_S, wait_silent
from runner.engines.base import (
    Completion,
    GenerationRequest,
    PromptTooLongError,
    RequestRefusedError,
)
from runner.engines.replica import Replica, ReplicaLostError, ReplicaStartError
from runner.engines.reports import ReplicaStats
from runner.engines.vllm.actor import EngineActor
from runner.engines.vllm.admission import pinned
from runner.engines.vllm.berths import Berths, Held
from runner.engines.vllm.log_tail import last_lines, log_file, user_error_of
from runner.engines.vllm.ray_runtime import RayRuntime
from runner.engines.vllm.wire import (
    EngineConfig,
    EngineFacts,
    Failure,
    FailureKind,
    Foreign,
    Generated,
    GenerationCall,
    Placement,
    pack_tokens,
)
from runner.groups import first_of

CONTROL_CALLS = 8
"""How many calls besides generations an actor takes at once: being watched, asked for figures, stopped."""
PLACE_TIMEOUT_S = 120.0
"""For Ray to start a worker process; a GPU that is free is found at once."""
ANSWER_TIMEOUT_S = 5.0
STOP_TIMEOUT_S = 2.0
"""For an engine to end by itself; its actor is killed anyway, and its core with it."""
KILL_TIMEOUT_S = 1.0
LOG_TIMEOUT_S = 15.0
"""For the last lines of a log on another node."""
_CPU_SHARE = 0.01
_LOGS = "recount-engines"
_CAUSE_CHARS = 300


@dataclass(frozen=True)
class ReplicaSettings:
    """How a replica is placed and how long it is waited for, in seconds."""

    gpu_fraction: float
    """Of one GPU; 0 for an engine without one."""
    start_timeout_s: float


class StartLocks:
    """One engine at a time starts on a GPU.

    vLLM measures the GPU's memory while it starts and fails where another engine takes or frees some then.
    """

    def __init__(self) -> None:
        """No lock is held."""
        self._locks: dict[tuple[str, str], anyio.Lock] = {}

    @asynccontextmanager
    async def held(self, placement: Placement) -> AsyncIterator[None]:
        """Hold the lock of the placement's GPU; without one there is nothing to hold."""
        if not placement.gpu_ids:
            yield
            return
        lock = self._locks.setdefault((placement.node, placement.gpu_ids[0]), anyio.Lock())
        async with lock:
            yield


class VllmReplica(Replica):
    """One vLLM engine in a Ray actor."""

    actor_class: type = EngineActor
    """What runs in the actor; it answers as `EngineActor` does."""

    def __init__(
        self,
        name: str,
        config: EngineConfig,
        settings: ReplicaSettings,
        *,
        runtime: RayRuntime,
        locks: StartLocks,
        berths: Berths | None = None,
    ) -> None:
        """Nothing is started. `locks` are shared by all replicas of a run, and on a cluster `berths`.

        Without berths Ray finds a place by itself, on this machine.
        """
        super().__init__(name, config.max_num_seqs)
        self.config = config
        """May be changed as long as nothing is started."""
        self._settings = settings
        self._runtime = runtime
        self._locks = locks
        self._berths = berths
        self._held: Held | None = None
        self._actor: Foreign = None
        self._ids = itertools.count()
        self.facts: EngineFacts | None = None
        """Of the engine that came up last."""

    @property
    @override
    def node(self) -> str | None:
        return None if self._held is None else self._held.node.name

    @property
    @override
    def has_place(self) -> bool:
        return self._berths is None or self._berths.has(self.name)

    @override
    async def wait_place(self, waits: Callable[[], None]) -> None:
        if self._berths is not None:
            await self._berths.find(self.name, waits)

    @override
    async def start(self) -> None:
        actor, placement = await self._placed()
        async with self._locks.held(placement):
            try:
                with anyio.fail_after(self._settings.start_timeout_s):
                    reply = await self._answer(actor.start.remote())
            except BaseException as error:
                # Whatever state it is in now: a later start begins with another actor.
                with anyio.CancelScope(shield=True):
                    await self._kill()
                if isinstance(error, TimeoutError):
                    limit_s = self._settings.start_timeout_s
                    raise await self._start_error(f"did not come up within {limit_s:g} s") from error
                if isinstance(error, ReplicaLostError):
                    raise await self._start_error(f"died while starting: {error}") from error
                raise
        if isinstance(reply, Failure):
            await self._kill()
            # Memory short at a later start may be that of an engine still dying; at the first it is settings.
            mistake = user_error_of(await self._log(), reply.original) if self.facts is None else None
            raise mistake or await self._start_error(f"did not come up: {reply.original}")
        self.facts = reply

    async def _placed(self) -> tuple[Foreign, Placement]:
        """Return the actor that lives, else another, and where it is."""
        if self._actor is not None:
            actor = self._actor
            # Where its node is gone there is no answer, and another place by now.
            with suppress(ReplicaLostError, TimeoutError), anyio.fail_after(ANSWER_TIMEOUT_S):
                return actor, await self._answer(actor.place.remote())
            await self._kill()
        if self._berths is not None:
            self._held = await self._berths.hold(self.name)
        try:
            with anyio.fail_after(PLACE_TIMEOUT_S):
                self._actor = actor = await self._runtime.call(self._make_actor)
                return actor, await self._answer(actor.place.remote())
        except TimeoutError as error:
            await self._kill()
            share = self._settings.gpu_fraction
            raise ReplicaStartError(
                f"{self.name}: Ray found no place for it within {PLACE_TIMEOUT_S:.0f} s",
                remedy=f"it needs {share:g} of a GPU that nobody else holds" if share else None,
            ) from error
        except ReplicaLostError as error:
            await self._kill()
            raise await self._start_error(f"died while starting: {error}") from error

    def _make_actor(self) -> Foreign:
        ray = self._runtime.ray
        share, held = self._settings.gpu_fraction, self._held
        options: dict[str, Foreign] = {"num_gpus": share, "num_cpus": 0 if share else _CPU_SHARE}
        config = self.config
        if held is not None:
            strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
            options["scheduling_strategy"] = strategy(held.group, placement_group_bundle_index=0)
            config = self._config_on(held)
        return (
            ray.remote(self.actor_class)
            .options(
                max_concurrency=self.slots + CONTROL_CALLS, max_restarts=0, max_task_retries=0, **options
            )
            .remote(config)
        )

    def _config_on(self, held: Held) -> EngineConfig:
        """Return the engine's settings as its node needs them."""
        return replace(
            self.config,
            model=held.node.directory,
            cpu_threads=held.cpu_threads,
            log_path=self._log_path,
        )

    @property
    def _log_path(self) -> str:
        """Where the engine writes its log: the driver's directory is the driver's node's alone."""
        held, runtime = self._held, self._runtime
        if held is None or held.node.node.id == runtime.own_node:
            return self.config.log_path
        return f"{_LOGS}/{runtime.name}/{Path(self.config.log_path).name}"

    @override
    async def close(self) -> None:
        actor = self._actor
        if actor is not None and self.facts is not None:
            with suppress(ReplicaLostError), anyio.move_on_after(STOP_TIMEOUT_S):
                await self._answer(actor.stop.remote())
        await self._kill()
        if self._berths is not None:
            self._berths.give_back(self.name)

    async def _kill(self) -> None:
        """End the actor; its engine core ends with it (`plugin.py`)."""
        actor, self._actor = self._actor, None
        if actor is not None:
            with suppress(self._runtime.ray.exceptions.RayError), anyio.move_on_after(KILL_TIMEOUT_S):
                await self._runtime.call(self._runtime.ray.kill, actor, no_restart=True)

    @override
    async def generate(self, request: GenerationRequest) -> Completion:
        actor = self._running_actor()
        return self._completion(await self._answer(actor.generate.remote(self._call(request))))

    def _call(self, request: GenerationRequest) -> Foreign:
        """Return what the actor is asked."""
        token_ids = request.prompt.token_ids
        if token_ids is None:
            raise ValueError("a vLLM engine takes prompts as token ids; this one was rendered elsewhere")
        return GenerationCall(
            request_id=f"{self.name}-{next(self._ids)}",
            tokens=pack_tokens(token_ids),
            sampling=request.sampling,
            seed=request.seed,
            max_tokens=request.max_tokens,
            stop=request.stop,
        )

    def _completion(self, reply: Generated | Failure) -> Completion:
        if isinstance(reply, Failure):
            match reply.kind:
                case FailureKind.PROMPT_TOO_LONG:
                    raise PromptTooLongError(reply.original)
                case FailureKind.REFUSED:
                    raise RequestRefusedError(reply.original)
                case FailureKind.ENGINE:
                    raise ReplicaLostError(f"{self.name}: {reply.original}")
        return Completion(
            text=reply.text,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            finish_reason=reply.finish_reason,
            engine=self.name,
            cached_tokens=reply.cached_tokens,
            timing=reply.timing,
        )

    @override
    async def wait_lost(self) -> str:
        try:
            return f"{self.name}: {await first_of(self._dead, self._silent)}"
        except ReplicaLostError as error:
            return str(error)

    async def _dead(self) -> str:
        return str(await self._answer(self._running_actor().wait_dead.remote()))

    async def _silent(self) -> str:
        await wait_silent(lambda: self._answer(self._running_actor().place.remote()))
        return f"its actor said nothing for {SILENCE_S:g} s"

    @override
    async def stats(self) -> ReplicaStats:
        try:
            with anyio.fail_after(ANSWER_TIMEOUT_S):
                reply: ReplicaStats | Failure = await self._answer(self._running_actor().stats.remote())
        except TimeoutError as error:
            raise ReplicaLostError(f"{self.name} does not answer") from error
        if isinstance(reply, Failure):
            raise ReplicaLostError(f"{self.name}: {reply.original}")
        return reply

    def _running_actor(self) -> Foreign:
        if self._actor is None:
            raise ReplicaLostError(f"{self.name} is not started")
        return self._actor

    async def _answer(self, ref: Foreign) -> Foreign:
        """Wait for an actor's answer; whoever stops waiting cancels the call.

        Raises `ReplicaLostError` for whatever Ray itself has to say: the actor died, its node is gone, or it
        raised what no actor of ours raises.
        """
        ray, held = self._runtime.ray, self._held
        try:
            if held is None:
                return await ref
            if not held.gone:
                with held.while_there():
                    return await ref
        except ray.exceptions.RayError as error:
            raise ReplicaLostError(f"{self.name}: {_cause_of(error)}") from error
        except BaseException:
            with suppress(ray.exceptions.RayError):
                ray.cancel(ref)
            raise
        # Ray may not know it yet, and its actor may even answer: its place is another's by now.
        raise ReplicaLostError(f"{self.name}: its node {self.node} is gone")

    async def _log(self) -> str:
        """Return the last lines of the engine's log, from wherever it lies."""
        ray, held, path = self._runtime.ray, self._held, self._log_path
        if held is None or held.node.node.id == self._runtime.own_node:
            return last_lines(log_file(path))
        options = pinned(ray, held.node.node.id)
        text = "(its node is gone)"
        try:
            with anyio.fail_after(LOG_TIMEOUT_S), held.while_there():
                read = ray.remote(_last_lines_there).options(num_cpus=0, max_retries=0, **options).remote
                text = str(await read(path))
        except (TimeoutError, ray.exceptions.RayError) as error:
            return f"(cannot be read: {type(error).__name__})"
        return text

    async def _start_error(self, what: str) -> ReplicaStartError:
        where = self._log_path if self.node is None else f"{self._log_path} on {self.node}"
        return ReplicaStartError(f"{self.name} {what}\nlast lines of {where}:\n{await self._log()}")


def _last_lines_there(path: str) -> str:
    """Read a log on the node that it lies on."""
    return last_lines(log_file(path))


def _cause_of(error: Exception) -> str:
    """Word a Ray error in one line; its own text goes over many, with ids that say nothing here."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = next((line for line in lines if "exit type" in line.lower() or "detail" in line.lower()), None)
    text = f"{lines[0]} {told}" if told and lines and told != lines[0] else (lines or [""])[0]
    return f"{type(error).__name__}: {text}"[:_CAUSE_CHARS]
