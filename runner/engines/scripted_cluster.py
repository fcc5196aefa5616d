"""A script played by actors all over a Ray cluster: placement, losses and sandboxes without a GPU.

The script stays in the driver, so that a turn whose actor is lost is played by another and the results are
those of the same script on one machine; what an actor does is wait and answer, on its own node.
"""

import asyncio
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass

import anyio
from typing_extensions import override

from runner.artifacts.progress import FetchListener, SilentListener
from runner.cluster.placement import Share
from runner.engines.base import (
    Completion,
    GenerationRequest,
    GenerationTiming,
    Prompt,
    RequestRefusedError,
)
from runner.engines.dispatch import Dispatcher
from runner.engines.pool import EnginePool
from runner.engines.replica import Replica
from runner.engines.reports import ReplicaStats
from runner.engines.scripted import REFUSAL, ScriptedEngine, ScriptedTurn
from runner.engines.vllm.admission import Admission
from runner.engines.vllm.berths import Berths
from runner.engines.vllm.ray_runtime import RayRuntime
from runner.engines.vllm.replica import ReplicaSettings, StartLocks, VllmReplica
from runner.engines.vllm.wire import Device, EngineConfig, EngineFacts, Foreign, Generated, Placement
from runner.protocol.prompt import Message

ENGINES_A_NODE = 2
"""Enough to see engines share a node; each takes a CPU of it."""
SLOTS = 64
START_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class PlayCall:
    """A turn to play: the answer, and after how many seconds."""

    answer: Generated
    seconds: float


class PlayerActor:
    """Answers as `EngineActor` does, with what it is told to. Nothing here is called in the driver."""

    def __init__(self, config: EngineConfig) -> None:
        """A script needs nothing of the settings."""
        self._config = config
        self._running = 0
        self._stopped = asyncio.Event()

    async def place(self) -> Placement:
        """Tell where this actor runs."""
        import ray  # noqa: PLC0415 - only where Ray is

        return Placement(node=ray.get_runtime_context().get_node_id(), pid=os.getpid(), gpu_ids=())

    async def start(self) -> EngineFacts:
        """There is nothing to make ready."""
        import ray  # noqa: PLC0415 - only where Ray is

        self._stopped = asyncio.Event()
        return EngineFacts(platform.python_version(), "", "", "", ray.__version__, "script", None)

    async def generate(self, call: PlayCall) -> Generated:
        """Wait and answer."""
        self._running += 1
        try:
            await asyncio.sleep(call.seconds)
        finally:
            self._running -= 1
        return call.answer

    async def wait_dead(self) -> str:
        """Return why, once it was stopped; nothing else ends it but its process."""
        await self._stopped.wait()
        return "it was stopped"

    async def stats(self) -> ReplicaStats:
        """Tell how it is used."""
        return ReplicaStats(running=self._running, waiting=0)

    async def stop(self) -> None:
        """End."""
        self._stopped.set()


class ScriptedReplica(VllmReplica):
    """The driver's side of a player."""

    actor_class = PlayerActor
    turn_of: Callable[[GenerationRequest], ScriptedTurn]
    """Tells what to play; set by whoever has the script."""

    @override
    def _call(self, request: GenerationRequest) -> Foreign:
        turn = self.turn_of(request)
        completion = turn.completion
        if completion is None:
            raise RequestRefusedError(REFUSAL)
        answer = Generated(
            text=completion.text,
            prompt_tokens=completion.prompt_tokens,
            completion_tokens=completion.completion_tokens,
            finish_reason=completion.finish_reason,
            cached_tokens=None,
            timing=GenerationTiming(decode_s=turn.seconds),
        )
        return PlayCall(answer, turn.seconds)


class DriverReplica(Replica):
    """Plays in the driver, where no node has a CPU to spare: a script needs none."""

    def __init__(self, turn_of: Callable[[GenerationRequest], ScriptedTurn]) -> None:
        """`turn_of` tells what to play."""
        super().__init__("scripted", SLOTS)
        self._turn_of = turn_of

    @override
    async def start(self) -> None:
        return

    @override
    async def close(self) -> None:
        return

    @override
    async def generate(self, request: GenerationRequest) -> Completion:
        turn = self._turn_of(request)
        await anyio.sleep(turn.seconds)
        if turn.completion is None:
            raise RequestRefusedError(REFUSAL)
        return turn.completion

    @override
    async def wait_lost(self) -> str:
        await anyio.sleep_forever()
        return ""

    @override
    async def stats(self) -> ReplicaStats:
        return ReplicaStats()


class ScriptedClusterEngine(EnginePool):
    """Plays a script with actors, up to `ENGINES_A_NODE` a node, and more with every node that joins."""

    def __init__(self, scripted: ScriptedEngine) -> None:
        """Nothing is started."""
        super().__init__((), dispatcher=Dispatcher((), prefix_caching=False))
        self._scripted = scripted
        self._runtime = RayRuntime()
        self._locks = StartLocks()
        self._berths: Berths | None = None
        self._listener: FetchListener = SilentListener()
        self._count = 0
        self._turns: dict[tuple[object, ...], ScriptedTurn] = {}

    @override
    def show_nodes_to(self, listener: FetchListener) -> None:
        """Tell `listener` which nodes are refused and lost."""
        self._listener = listener

    @override
    async def prepare(self) -> None:
        await self._scripted.start()
        await self._runtime.start()
        admission = Admission(self._runtime, None, self._listener)
        share = Share(0.0, berths_a_node=ENGINES_A_NODE)
        self._berths = berths = Berths(self._runtime, admission, share, tell=self._listener.note)
        await berths.open()
        self._grow()
        berths.place([f"engine{index}" for index in range(self._count)])
        if self._count == 0:
            self._listener.note("no node of the cluster has a free CPU for the script: the driver plays it")
            self.add(DriverReplica(self._turn))

    def _grow(self) -> None:
        if self._berths is None:
            return
        while self._count < self._berths.capacity():
            self._add_replica(f"engine{self._count}")
            self._count += 1

    def _add_replica(self, name: str) -> None:
        config = EngineConfig(
            model="",
            device=Device.CPU,
            dtype="",
            context_tokens=0,
            max_num_seqs=SLOTS,
            seed=0,
            log_path="",
        )
        placing = ReplicaSettings(gpu_fraction=0.0, start_timeout_s=START_TIMEOUT_S)
        one = ScriptedReplica(
            name, config, placing, runtime=self._runtime, locks=self._locks, berths=self._berths
        )
        one.turn_of = self._turn
        self.add(one)

    @override
    async def tend(self) -> None:
        if self._berths is not None:
            await self._berths.follow(self._grow)

    @override
    async def release(self) -> None:
        if self._berths is not None:
            await self._berths.close()
        await self._runtime.stop()

    @override
    async def render(self, messages: tuple[Message, ...]) -> Prompt:
        return await self._scripted.render(messages)

    @override
    async def generate(self, request: GenerationRequest) -> Completion:
        # Taken once, however many actors are lost while they play it.
        place = _place_of(request)
        self._turns[place] = self._scripted.take(request)
        try:
            return await super().generate(request)
        finally:
            del self._turns[place]

    def _turn(self, request: GenerationRequest) -> ScriptedTurn:
        return self._turns[_place_of(request)]

    @override
    def identity(self) -> dict[str, object]:
        berths = self._berths
        nodes = {} if berths is None else {"engines": berths.nodes, "refused": berths.refused}
        return {**self._scripted.identity(), "engines": self._count, "nodes": nodes}

    @override
    def deviations(self) -> tuple[str, ...]:
        return self._scripted.deviations()


def _place_of(request: GenerationRequest) -> tuple[object, ...]:
    # A refused turn is asked for twice, with another seed.
    return (request.key, request.attempt, request.turn, request.seed)
