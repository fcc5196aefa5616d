"""An engine that decodes by a law: batched steps, prefill that stops the batch, a block-wise prefix cache."""

from dataclasses import dataclass

import anyio
from anyio.abc import TaskGroup
from typing_extensions import override

from runner.engines.base import (
    Completion,
    GenerationRequest,
    GenerationTiming,
    RequestRefusedError,
    TrajectoryKey,
)
from runner.engines.dispatch import CostModel
from runner.engines.replica import Replica, ReplicaLostError
from runner.engines.reports import ReplicaStats
from runner.simulation.law import steps_s, steps_within
from runner.simulation.workload import Workload


@dataclass(eq=False)
class _Sequence:
    """A turn in the batch or before it."""

    key: TrajectoryKey
    context_tokens: int
    output_tokens: int
    done: anyio.Event
    left: int = 0
    arrived_s: float = 0.0
    prefilled_s: float = 0.0
    cached_tokens: int = 0


class SimulatedReplica(Replica):
    """Follows `law` in the loop's time; what a turn says is what the workload holds for it."""

    def __init__(
        self, name: str, slots: int, workload: Workload, law: CostModel, *, prefix_caching: bool
    ) -> None:
        """`prefix_caching` keeps every prefix it has seen, for ever."""
        super().__init__(name, slots)
        self._workload = workload
        self._law = law
        self._prefix_caching = prefix_caching
        self._seen: dict[TrajectoryKey, int] = {}
        self._waiting: list[_Sequence] = []
        self._batch: list[_Sequence] = []
        self._arrival = anyio.Event()
        self._lost = anyio.Event()
        self._life = anyio.CancelScope()
        self._tasks: TaskGroup | None = None

    def serve_in(self, tasks: TaskGroup) -> None:
        """Name the task group in which the engine works; before `start`."""
        self._tasks = tasks

    @override
    async def start(self) -> None:
        if self._tasks is None:
            raise RuntimeError("serve_in comes first")
        self._lost = anyio.Event()
        self._life = anyio.CancelScope()
        self._seen.clear()
        self._tasks.start_soon(self._work, self._life)

    @override
    async def close(self) -> None:
        self.kill()

    def kill(self) -> None:
        """Die, as an engine does that is killed: its batch and cache are gone."""
        self._lost.set()
        # What works for this life must not wake in the next.
        self._life.cancel()
        for sequence in (*self._waiting, *self._batch):
            sequence.done.set()
        self._waiting.clear()
        self._batch.clear()

    @override
    async def wait_lost(self) -> str:
        await self._lost.wait()
        return f"{self.name} was killed"

    @override
    async def stats(self) -> ReplicaStats:
        return ReplicaStats(running=len(self._batch), waiting=len(self._waiting))

    @override
    async def generate(self, request: GenerationRequest) -> Completion:
        if self._lost.is_set():
            raise ReplicaLostError(f"{self.name} is dead")
        turn = self._workload.turn(request.key.problem_id, request.turn)
        if turn is None:
            raise RequestRefusedError("IndexError: the workload has no such turn")
        sequence = _Sequence(
            key=request.key,
            context_tokens=turn.prompt_tokens,
            output_tokens=turn.output_tokens,
            done=anyio.Event(),
            left=turn.output_tokens,
            arrived_s=anyio.current_time(),
        )
        self._waiting.append(sequence)
        self._arrival.set()
        try:
            await sequence.done.wait()
        finally:
            for place in (self._waiting, self._batch):
                if sequence in place:
                    place.remove(sequence)
        if sequence.left:
            raise ReplicaLostError(f"{self.name} died")
        return Completion(
            text=turn.text,
            prompt_tokens=turn.prompt_tokens,
            completion_tokens=turn.output_tokens,
            finish_reason="stop",
            engine=self.name,
            cached_tokens=sequence.cached_tokens if self._prefix_caching else None,
            timing=GenerationTiming(
                prefill_s=sequence.prefilled_s - sequence.arrived_s,
                decode_s=anyio.current_time() - sequence.prefilled_s,
            ),
        )

    async def _work(self, life: anyio.CancelScope) -> None:
        """Prefill what arrived, decode until something arrives or ends, for as long as it lives."""
        with life:
            while True:
                self._arrival = anyio.Event()
                if self._waiting:
                    await self._prefill()
                elif self._batch:
                    await self._decode()
                else:
                    await self._arrival.wait()

    async def _prefill(self) -> None:
        arrived, self._waiting = self._waiting, []
        self._batch += arrived
        tokens = 0
        for sequence in arrived:
            sequence.cached_tokens = self._cached_tokens(sequence)
            tokens += sequence.context_tokens - sequence.cached_tokens
        await anyio.sleep(tokens / self._law.prefill_tokens_per_s)
        for sequence in arrived:
            sequence.prefilled_s = anyio.current_time()

    def _cached_tokens(self, sequence: _Sequence) -> int:
        seen = min(self._seen.get(sequence.key, 0), sequence.context_tokens)
        return self._law.whole_blocks(seen)

    async def _decode(self) -> None:
        batch = len(self._batch)
        context = sum(one.context_tokens + one.output_tokens - one.left for one in self._batch)
        began = anyio.current_time()
        steps = min(one.left for one in self._batch)
        until_first_ends_s = steps_s(self._law, steps, batch, context)
        with anyio.move_on_after(until_first_ends_s) as scope:
            await self._arrival.wait()
        if not scope.cancelled_caught:
            # What arrives waits for the end of the step that is going on.
            passed_s = anyio.current_time() - began
            steps = min(steps, steps_within(self._law, passed_s, batch, context))
            await anyio.sleep(max(0.0, steps_s(self._law, steps, batch, context) - passed_s))
        for one in tuple(self._batch):
            one.left -= steps
            if one.left == 0:
                self._batch.remove(one)
                if self._prefix_caching:
                    self._seen[one.key] = one.context_tokens + one.output_tokens
                one.done.set()
