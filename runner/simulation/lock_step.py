"""The baseline: trajectories dealt out beforehand, in chunks whose turns begin and end together.

Trajectories are dealt out to the engines round robin by index. An engine takes them in chunks: all that are
left of a chunk generate their next turn, then their tools run, then the next turn; the next chunk begins
when the last of this one has ended. It is written from that description, and uses nothing of the scheduler
it is compared with but the engine's law.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio

from runner.engines.base import GenerationRequest, Prompt, Sampling, TrajectoryKey
from runner.engines.dispatch import CostModel
from runner.simulation.clock import run_in_virtual_time
from runner.simulation.replica import SimulatedReplica
from runner.simulation.workload import DATASET, TurnToDo, Workload

_SAMPLING = Sampling(1.0, 1.0, 40, 0.0, 0.0, 1.0)


@dataclass(frozen=True)
class LockStep:
    """How it is run; `parallel_tools` runs the tools of a chunk at once instead of one after another."""

    engines: int = 8
    chunk: int = 16
    parallel_tools: bool = False
    prefix_caching: bool = False
    law: CostModel = field(default_factory=CostModel)


@dataclass(frozen=True)
class LockStepRun:
    """What it came to. `batch_s` is the integral of generating turns over time, over all engines."""

    wall_s: float
    engines: int
    busy_s: float
    batch_s: float

    @property
    def idle_share(self) -> float:
        """The share of engine time in which no turn was in an engine."""
        return 1.0 - self.busy_s / (self.wall_s * self.engines)

    @property
    def mean_batch(self) -> float:
        """How many turns were in an engine on average while there were any."""
        return self.batch_s / self.busy_s


@dataclass
class _Use:
    busy_s: float = 0.0
    batch_s: float = 0.0


def lock_step(workload: Workload, setup: LockStep) -> LockStepRun:
    """Run a workload to its end in virtual time."""
    return run_in_virtual_time(_run, workload, setup)


async def _run(workload: Workload, setup: LockStep) -> LockStepRun:
    use = _Use()
    replicas = [
        SimulatedReplica(
            f"engine-{index}", setup.chunk, workload, setup.law, prefix_caching=setup.prefix_caching
        )
        for index in range(setup.engines)
    ]
    async with anyio.create_task_group() as engines:
        async with anyio.create_task_group() as hands:
            for index, replica in enumerate(replicas):
                replica.serve_in(engines)
                await replica.start()
                dealt = range(index, len(workload.trajectories), setup.engines)
                hands.start_soon(_work_off, replica, workload, dealt, setup, use)
        wall_s = anyio.current_time()
        engines.cancel_scope.cancel()
    return LockStepRun(wall_s, setup.engines, use.busy_s, use.batch_s)


async def _work_off(
    replica: SimulatedReplica, workload: Workload, dealt: Sequence[int], setup: LockStep, use: _Use
) -> None:
    for first in range(0, len(dealt), setup.chunk):
        active = list(dealt[first : first + setup.chunk])
        number = 0
        while active:
            await _generate_all(replica, workload, active, number, use)
            turns = [workload.unrolled[index] for index in active]
            await _run_tools([one[number] for one in turns], parallel=setup.parallel_tools)
            number += 1
            active = [index for index in active if number < len(workload.unrolled[index])]


async def _generate_all(
    replica: SimulatedReplica, workload: Workload, active: Sequence[int], number: int, use: _Use
) -> None:
    began = anyio.current_time()

    async def generate(index: int) -> None:
        turn = workload.unrolled[index][number]
        await replica.generate(
            GenerationRequest(
                key=TrajectoryKey(DATASET, str(index), 0),
                attempt=1,
                turn=number,
                prompt=Prompt((), turn.prompt_tokens),
                sampling=_SAMPLING,
                seed=0,
                max_tokens=turn.output_tokens,
                stop=(),
            )
        )
        use.batch_s += anyio.current_time() - began

    async with anyio.create_task_group() as turns:
        for index in active:
            turns.start_soon(generate, index)
    use.busy_s += anyio.current_time() - began


async def _run_tools(turns: Sequence[TurnToDo], *, parallel: bool) -> None:
    seconds = [turn.tool_s for turn in turns]
    await anyio.sleep(max(seconds) if parallel else sum(seconds))
