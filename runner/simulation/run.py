"""A whole run in virtual time: the real scheduler, trajectories and pool; engines and tools by a law."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType

import anyio
from anyio.abc import TaskGroup
from typing_extensions import Self, override

from runner.datasets import Problem
from runner.engines.base import Prompt, PromptTooLongError, Sampling
from runner.engines.dispatch import CostModel, Dispatcher
from runner.engines.pool import EnginePool, RestartPolicy
from runner.engines.reports import ReplicaSnapshot
from runner.events import Event, Terminated, TurnDone, Unfinished
from runner.groups import first_error_only
from runner.protocol.prompt import Message, ProtocolPack
from runner.scheduler import RetryPolicy, Scheduler
from runner.simulation.clock import run_in_virtual_time
from runner.simulation.replica import SimulatedReplica
from runner.simulation.workload import DATASET, Workload
from runner.trajectory import Job, Limits, Rules, TrajectoryRunner
from sandbox import ActionResult, Capacity, Sandbox, Usage, Workspace
from sandbox.types import EMPTY_STREAM

_SLEEP = re.compile(r"sleep ([0-9.e-]+)$")

_PACK = ProtocolPack.from_mapping(
    {
        "system_prompt": "",
        "user_prompt_template": "{question}",
        "observation_template": "{text}",
        "format_check_name": "format",
        "answer_before_bash_warning": "too early",
        "no_action_warning": "no action",
        "blocked_command_observation": "blocked",
        "unknown_action_template": "unknown {name}",
        "empty_command_observation": "empty",
        "stop": ["Observation:"],
    },
    "simulation",
)
_SAMPLING = Sampling(1.0, 1.0, 40, 0.0, 0.0, 1.0)
_ENDLESS_TOKENS = 1 << 40


@dataclass(frozen=True)
class Setup:
    """What the simulated machine is. `dispatcher` makes the policy under trial, ours by default."""

    engines: int = 8
    slots: int = 64
    in_flight: int | None = None
    """Trajectories at once; by default a quarter more than there are slots, since some run their tools."""
    prefix_caching: bool = False
    law: CostModel = field(default_factory=CostModel)
    dispatcher: Callable[[Sequence[int], bool], Dispatcher] | None = None
    kills: tuple[tuple[float, int], ...] = ()
    """Engines that are killed, as (seconds, index)."""


@dataclass(frozen=True)
class Simulated:
    """What a simulated run came to. Times in seconds."""

    wall_s: float
    ended: tuple[Terminated | Unfinished, ...]
    turns: tuple[TurnDone, ...]
    engines: tuple[ReplicaSnapshot, ...]

    @property
    def idle_share(self) -> float:
        """The share of engine time in which no turn was in an engine."""
        return 1.0 - sum(one.busy_s for one in self.engines) / (self.wall_s * len(self.engines))

    @property
    def mean_batch(self) -> float:
        """How many turns were in an engine on average while there were any."""
        return sum(one.batch_s for one in self.engines) / sum(one.busy_s for one in self.engines)

    @property
    def mean_queue_s(self) -> float:
        """How long a turn waited for a place in an engine."""
        return sum(one.queue_s or 0.0 for one in self.turns) / len(self.turns)


def simulate(workload: Workload, setup: Setup) -> Simulated:
    """Run a workload to its end in virtual time."""
    return run_in_virtual_time(_run, workload, setup)


async def _run(workload: Workload, setup: Setup) -> Simulated:
    replicas = [
        SimulatedReplica(
            f"engine-{index}", setup.slots, workload, setup.law, prefix_caching=setup.prefix_caching
        )
        for index in range(setup.engines)
    ]
    slots = [one.slots for one in replicas]
    dispatcher = (
        Dispatcher(slots, prefix_caching=setup.prefix_caching, model=setup.law)
        if setup.dispatcher is None
        else setup.dispatcher(slots, setup.prefix_caching)
    )
    events: list[Event] = []
    jobs = [
        Job(DATASET, Problem(str(index), index, str(index), "0"), 0, 0)
        for index in range(len(workload.trajectories))
    ]
    async with anyio.create_task_group() as tasks:
        with first_error_only():
            async with SimulatedPool(replicas, workload, dispatcher, tasks) as pool:
                for after_s, index in setup.kills:
                    tasks.start_soon(_kill_after, after_s, replicas[index])
                in_flight = setup.in_flight or setup.engines * setup.slots * 5 // 4
                trajectories = TrajectoryRunner(
                    simulation_rules(workload),
                    pool,
                    SleepingSandbox(),
                    generation=anyio.Semaphore(in_flight),
                    tools=anyio.Semaphore(in_flight),
                    emit=events.append,
                )
                scheduler = Scheduler(
                    trajectories, in_flight=in_flight, retry=RetryPolicy(), emit=events.append
                )
                await scheduler.run(jobs)
                wall_s = anyio.current_time()
                snapshot = await pool.snapshot()
        tasks.cancel_scope.cancel()
    return Simulated(
        wall_s=wall_s,
        ended=tuple(one for one in events if isinstance(one, Terminated | Unfinished)),
        turns=tuple(one for one in events if isinstance(one, TurnDone)),
        engines=snapshot.replicas,
    )


async def _kill_after(seconds: float, replica: SimulatedReplica) -> None:
    await anyio.sleep(seconds)
    replica.kill()


def simulation_rules(workload: Workload) -> Rules:
    """Return rules under which nothing but the workload ends a trajectory."""
    limits = Limits(
        max_turns=workload.most_turns,
        context_tokens=_ENDLESS_TOKENS,
        max_tokens_per_turn=1,
        tool_timeout_s=_ENDLESS_TOKENS,
        observation_limit_chars=1000,
    )
    return Rules(_PACK, limits, _SAMPLING)


class SimulatedPool(EnginePool):
    """The pool over simulated engines; a prompt is as long as the workload says."""

    def __init__(
        self,
        replicas: Sequence[SimulatedReplica],
        workload: Workload,
        dispatcher: Dispatcher,
        tasks: TaskGroup,
        policy: RestartPolicy | None = None,
    ) -> None:
        """`tasks` is where the engines work."""
        super().__init__(replicas, dispatcher=dispatcher, policy=policy)
        self._workload = workload
        self._replicas = replicas
        self._tasks = tasks

    @override
    async def prepare(self) -> None:
        for replica in self._replicas:
            replica.serve_in(self._tasks)

    @override
    async def release(self) -> None:
        return

    @override
    async def render(self, messages: tuple[Message, ...]) -> Prompt:
        problem_id = messages[1]["content"]
        turn = self._workload.turn(problem_id, (len(messages) - 2) // 2)
        if turn is None:
            # Of one turn only: no command came before its answer, which the protocol does not accept.
            raise PromptTooLongError("the workload has no further turn for this trajectory")
        return Prompt(messages, turn.prompt_tokens)

    @override
    def identity(self) -> dict[str, object]:
        return {"kind": "simulated"}

    @override
    def deviations(self) -> tuple[str, ...]:
        return ("the engines are simulated",)


class SleepingSandbox(Sandbox, Workspace):
    """Runs no command: `sleep S` takes S seconds of the loop's clock."""

    capture_bytes = 1 << 16

    @override
    async def open(self, workspace_id: str) -> Workspace:
        return self

    @override
    async def run(self, script: str | bytes, timeout_s: float) -> ActionResult:
        found = _SLEEP.search(script if isinstance(script, str) else script.decode())
        seconds = 0.0 if found is None else float(found.group(1))
        await anyio.sleep(seconds)
        return ActionResult(EMPTY_STREAM, EMPTY_STREAM, 0, False, (), Usage(seconds, None, None, None))

    @override
    async def close(self) -> None:
        return

    @override
    async def identity(self) -> dict[str, str]:
        return {"kind": "sleeping"}

    @override
    async def capacity(self) -> Capacity:
        return Capacity()

    @override
    async def __aenter__(self) -> Self:
        return self

    @override
    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        return
