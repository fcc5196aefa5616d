"""Real vLLM engines without a GPU: lock-step against our scheduler, the same turns, in one run.

    RECOUNT_TEST_MODEL=DIR .venv-engines/bin/python benchmarks/engines.py

Every turn has a length and every command a time, drawn once; the model writes what it likes, greedily and up
to that length. What is compared is who waits for whom. How much there is to win depends on the drawing, above
all on its longest trajectory, so several are served, and the sums compared; what the longest one takes alone
is the least that any order can reach.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import anyio
from rich.console import Console
from rich.table import Table
from typing_extensions import override

from runner.datasets import Problem
from runner.engines.base import Completion, Engine, GenerationRequest, Prompt, Sampling, TrajectoryKey
from runner.engines.vllm.engine import VllmEngine
from runner.engines.vllm.settings import VllmSettings
from runner.engines.vllm.wire import Device
from runner.events import Event, Terminated
from runner.protocol.prompt import Message
from runner.scheduler import RetryPolicy, Scheduler
from runner.simulation.run import SleepingSandbox, simulation_rules
from runner.simulation.workload import Workload, WorkloadTrajectory, WorkloadTurn
from runner.trajectory import Job, TrajectoryRunner

CHUNK = 16
SAMPLING = Sampling(0.0, 1.0, -1, 0.0, 0.0, 1.0)
CONTEXT_TOKENS = 2048
WORDS = "Count the ways in which a row of coins can be laid so that no two heads lie beside each other. "


def draw(trajectories: int, seed: int) -> Workload:
    """Draw trajectories of the report's shape, at a size that two cores can serve."""
    dice = random.Random(seed)  # noqa: S311 - a benchmark's load

    def one() -> WorkloadTrajectory:
        count = min(12, max(1, round(3 * dice.lognormvariate(0, 0.8))))
        turns = tuple(
            WorkloadTurn(
                output_tokens=min(160, max(8, round(40 * dice.lognormvariate(0, 0.8)))),
                tool_s=min(3.0, 0.25 * dice.lognormvariate(0, 1.0)) if turn < count - 1 else None,
                observation_tokens=20,
            )
            for turn in range(count)
        )
        return WorkloadTrajectory(prompt_tokens=80, turns=turns)

    return Workload([one() for _ in range(trajectories)])


class LoadEngine(Engine):
    """Lets a real engine write each turn to the drawn length, then says what the workload says."""

    def __init__(self, real: Engine, workload: Workload) -> None:
        self._real = real
        self._workload = workload

    def serving(self, workload: Workload) -> LoadEngine:
        """Return the same engine for other turns."""
        return LoadEngine(self._real, workload)

    @override
    async def start(self) -> None:
        return

    @override
    async def close(self) -> None:
        return

    @override
    async def render(self, messages: tuple[Message, ...]) -> Prompt:
        turn = (len(messages) - 2) // 2
        done = self._workload.trajectories[int(messages[1]["content"])].turns[:turn]
        tokens = 80 + sum(one.output_tokens + one.observation_tokens for one in done)
        text = f"Row {messages[1]['content']}. " + WORDS * (tokens // len(WORDS.split()) + 1)
        return await self._real.render(({"role": "user", "content": text},))

    @override
    async def generate(self, request: GenerationRequest) -> Completion:
        turn = self._workload.turn(request.key.problem_id, request.turn)
        if turn is None:
            return Completion("Final answer: 0", 0, 0, "stop", "none")
        wrote = await self._real.generate(replace(request, max_tokens=turn.output_tokens, sampling=SAMPLING))
        return replace(wrote, text=turn.text)

    @override
    def identity(self) -> dict[str, object]:
        return self._real.identity()

    @override
    def deviations(self) -> tuple[str, ...]:
        return ("the turns' texts are made up",)


@dataclass(frozen=True)
class Timing:
    """How long one way took, and how much was generated in it."""

    way: str
    wall_s: float
    turns: int
    tokens: int


async def lock_step(engine: LoadEngine, workload: Workload, *, parallel_tools: bool) -> Timing:
    """All of a chunk generate; then their tools run, one after another; a chunk ends with its last."""
    started = anyio.current_time()
    turns = tokens = 0
    everyone = list(range(len(workload.trajectories)))
    for first in range(0, len(everyone), CHUNK):
        active = everyone[first : first + CHUNK]
        number = 0
        while active:
            wrote: dict[int, Completion] = {}

            async def generate(
                index: int, number: int = number, wrote: dict[int, Completion] = wrote
            ) -> None:
                wrote[index] = await _turn(engine, index, number)

            async with anyio.create_task_group() as tasks:
                for index in active:
                    tasks.start_soon(generate, index)
            turns += len(wrote)
            tokens += sum(one.completion_tokens for one in wrote.values())
            active = [one for one in active if number + 1 < len(workload.trajectories[one].turns)]
            waits = [workload.trajectories[one].turns[number].tool_s or 0.0 for one in active]
            await anyio.sleep(max(waits, default=0.0) if parallel_tools else sum(waits))
            number += 1
    name = "lock-step, tools in parallel" if parallel_tools else "lock-step"
    return Timing(name, anyio.current_time() - started, turns, tokens)


async def _turn(engine: LoadEngine, index: int, number: int) -> Completion:
    filler: list[Message] = [{"role": "user", "content": ""}] * (2 * number)
    prompt = await engine.render(
        ({"role": "system", "content": ""}, {"role": "user", "content": str(index)}, *filler)
    )
    key = TrajectoryKey("workload", str(index), 0)
    return await engine.generate(GenerationRequest(key, 1, number, prompt, SAMPLING, 0, 1, ()))


async def ours(engine: LoadEngine, workload: Workload) -> Timing:
    """The run's own scheduler and trajectories."""
    events: list[Event] = []
    count = len(workload.trajectories)
    trajectories = TrajectoryRunner(
        simulation_rules(workload),
        engine,
        SleepingSandbox(),
        generation=anyio.Semaphore(count),
        tools=anyio.Semaphore(count),
        emit=events.append,
    )
    jobs = [Job("workload", Problem(str(one), one, str(one), "0"), 0, 0) for one in range(count)]
    started = anyio.current_time()
    scheduler = Scheduler(trajectories, in_flight=count, retry=RetryPolicy(), emit=events.append)
    await scheduler.run(jobs)
    wall_s = anyio.current_time() - started
    ends = [one for one in events if isinstance(one, Terminated)]
    if len(ends) != count:
        raise RuntimeError(f"{count - len(ends)} trajectories did not end")
    turns = sum(len(one.turns) for one in workload.trajectories)
    return Timing("ours", wall_s, turns, sum(one.generated_tokens for one in ends))


@dataclass(frozen=True)
class Drawing:
    """How long each way took for the trajectories that were drawn from one seed."""

    seed: int
    ways: tuple[Timing, ...]


async def longest_alone(engine: LoadEngine, workload: Workload) -> Timing:
    """Serve the trajectory with the most tokens and nothing beside it."""
    tokens = [sum(turn.output_tokens for turn in one.turns) for one in workload.trajectories]
    longest = workload.trajectories[tokens.index(max(tokens))]
    return replace(await ours(engine.serving(Workload([longest])), Workload([longest])), way="longest alone")


WAYS: tuple[Callable[[LoadEngine, Workload], Awaitable[Timing]], ...] = (
    partial(lock_step, parallel_tools=False),
    partial(lock_step, parallel_tools=True),
    ours,
    longest_alone,
)


async def measure(settings: VllmSettings, trajectories: int, seeds: list[int]) -> list[Drawing]:
    """Measure every way for every drawing, on one engine that stays up."""
    measured: list[Drawing] = []
    async with VllmEngine(settings) as real:
        for seed in seeds:
            workload = draw(trajectories, seed)
            engine = LoadEngine(real, workload)
            await _turn(engine, 0, 0)
            timings = []
            for way in WAYS:
                timings.append(await way(engine, workload))
                print(f"seed {seed}: {timings[-1].way} {timings[-1].wall_s:.1f} s", flush=True)
            measured.append(Drawing(seed, tuple(timings)))
    return measured


def table(measured: list[Drawing], title: str) -> Table:
    """Show each drawing, every way against lock-step of that drawing, and the sums."""
    shown = Table(title=title, title_justify="left")
    for column in ("seed", "way", "wall s", "of lock-step", "turns", "tokens/s"):
        shown.add_column(column, justify="left" if column == "way" else "right", no_wrap=True)
    sums = [
        Timing(
            ways[0].way,
            sum(one.wall_s for one in ways),
            sum(one.turns for one in ways),
            sum(one.tokens for one in ways),
        )
        for ways in zip(*(one.ways for one in measured), strict=True)
    ]
    for name, ways in [*((str(one.seed), one.ways) for one in measured), ("all", tuple(sums))]:
        for one in ways:
            ratio, rate = one.wall_s / ways[0].wall_s, one.tokens / one.wall_s
            shown.add_row(name, one.way, f"{one.wall_s:.1f}", f"{ratio:.2f}", str(one.turns), f"{rate:.0f}")
        shown.add_section()
    return shown


def main() -> None:
    """Read the command line, measure, show."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trajectories", type=int, default=24)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16"))
    parser.add_argument(
        "--prefix-cache",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether the engine keeps what it has read",
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    model = os.environ.get("RECOUNT_TEST_MODEL")
    if not model:
        sys.exit("name the directory of a small chat model: RECOUNT_TEST_MODEL=DIR")
    settings = VllmSettings(
        model=model,
        context_tokens=CONTEXT_TOKENS,
        device=Device.CPU,
        dtype=given.dtype,
        max_num_seqs=64,
        prefix_caching=given.prefix_cache,
    )
    measured = anyio.run(measure, settings, given.trajectories, given.seeds)
    cache = "with" if given.prefix_cache else "without"
    title = f"{given.trajectories} trajectories on one CPU engine, {given.dtype}, {cache} prefix cache"
    Console().print(table(measured, title))
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(one) for one in measured], indent=1))


if __name__ == "__main__":
    main()
