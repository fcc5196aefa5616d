"""What the driver itself costs: CPU a turn, memory, and how late the event loop gets.

    python benchmarks/driver.py                                        # 5,000 in flight, one scripted engine
    python benchmarks/driver.py --through pool --slots 64 --turn-s 1   # most turns wait for a place

Scheduler, trajectories, journal and state are a run's, and time is real. The engine replays texts of
a realistic length and the sandbox runs nothing, so that what is left is ours.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import anyio
from measure import percentile, resident_bytes
from rich.console import Console
from rich.table import Table
from typing_extensions import override

from runner import __version__
from runner.datasets import Problem
from runner.engines.base import Completion, Engine, GenerationRequest, Prompt, Sampling
from runner.engines.dispatch import Dispatcher
from runner.engines.pool import EnginePool
from runner.engines.replica import Replica
from runner.engines.reports import ReplicaStats
from runner.engines.scripted import Script, ScriptedEngine
from runner.events import ConcurrencyRecord, DatasetRecord, Event, ProblemRecord, RunStarted, TurnDone
from runner.journal import JOURNAL_NAME, JournalWriter
from runner.protocol.prompt import Message, ProtocolPack
from runner.scheduler import RetryPolicy, Scheduler
from runner.simulation.run import SleepingSandbox
from runner.state import RunState
from runner.trajectory import Job, Limits, Rules, TrajectoryRunner
from sandbox import ActionResult, CapturedStream, Usage
from sandbox.types import EMPTY_STREAM

DATASET = "scripted"
COMPLETION_CHARS = 2800
"""700 tokens, the median of a turn."""
OBSERVATION_CHARS = 200
QUESTION_CHARS = 600
TICK_S = 0.01

_PACK = ProtocolPack.from_mapping(
    {
        # As long as the report's two prompts, which are not part of this repository.
        "system_prompt": "Work with the shell, step by step. " * 40,
        "user_prompt_template": "{question}\nShow your work.",
        "observation_template": "<{name}>\n{text}",
        "format_check_name": "format",
        "answer_before_bash_warning": "compute first",
        "no_action_warning": "neither action nor answer",
        "blocked_command_observation": "not allowed",
        "unknown_action_template": "no action {name}",
        "empty_command_observation": "nothing to run",
        "stop": ["Observation:"],
    },
    "benchmark",
)
_RULES = Rules(
    _PACK,
    Limits(
        max_turns=50,
        context_tokens=1 << 20,
        max_tokens_per_turn=4096,
        tool_timeout_s=20.0,
        observation_limit_chars=4000,
    ),
    Sampling(0.7, 0.8, 20, 0.0, 1.5, 1.0),
)


@dataclass(frozen=True)
class Load:
    """`trajectories` at once, of `least_turns` to `most_turns` turns that take `turn_s` on average."""

    trajectories: int
    least_turns: int
    most_turns: int
    turn_s: float
    through: str
    replicas: int
    slots: int


@dataclass(frozen=True)
class Cost:
    """What was measured. `script_bytes` of the memory are the texts that a model would have written later."""

    turns: int
    wall_s: float
    cpu_s: float
    peak_bytes: int
    script_bytes: int
    journal_bytes: int
    lag_p50_s: float
    lag_p99_s: float
    lag_max_s: float

    @property
    def cpu_a_turn_s(self) -> float:
        """CPU time of this process a turn."""
        return self.cpu_s / self.turns


def write_script(load: Load, jobs: Sequence[Job]) -> Script:
    """Make up completions: reasoning, an action, and at last an answer."""
    draw = random.Random(1)  # noqa: S311 - a benchmark's load
    words = ("the", "sum", "over", "all", "roots", "is", "bounded", "so", r"$x_{n+1} = \frac{1}{2}$", "mod 7")

    def text(last: bool) -> str:
        chars = round(COMPLETION_CHARS * draw.lognormvariate(0.0, 0.5))
        reasoning = " ".join(draw.choices(words, k=chars // 4))[:chars]
        if last:
            return f"{reasoning}\nFinal answer: \\boxed{{42}}"
        command = f"python3 - <<'EOF'\nprint(sum(range({draw.randrange(10**6)})))\nEOF"
        return f"{reasoning}\nAction: {json.dumps({'name': 'bash', 'arguments': {'command': command}})}"

    def completions() -> tuple[str, ...]:
        count = draw.randint(load.least_turns, load.most_turns)
        return tuple(text(last=number == count - 1) for number in range(count))

    return Script({job.key: completions() for job in jobs})


class IdleSandbox(SleepingSandbox):
    """Answers every command at once with as much text as commands write."""

    _result = ActionResult(
        CapturedStream(b"7" * OBSERVATION_CHARS, b"", OBSERVATION_CHARS, None),
        EMPTY_STREAM,
        0,
        False,
        (),
        Usage(0.1, 0.05, 0.0, 1 << 23),
    )

    @override
    async def run(self, script: str | bytes, timeout_s: float) -> ActionResult:
        return self._result


class ScriptedReplica(Replica):
    """A replica that costs nothing of its own: it asks a scripted engine."""

    def __init__(self, name: str, slots: int, engine: ScriptedEngine) -> None:
        """All replicas may share `engine`."""
        super().__init__(name, slots)
        self._engine = engine

    @override
    async def start(self) -> None:
        return

    @override
    async def close(self) -> None:
        return

    @override
    async def generate(self, request: GenerationRequest) -> Completion:
        return await self._engine.generate(request)

    @override
    async def wait_lost(self) -> str:
        await anyio.sleep_forever()
        return ""

    @override
    async def stats(self) -> ReplicaStats:
        return ReplicaStats()


class ScriptedPool(EnginePool):
    """The pool over scripted replicas."""

    def __init__(self, engine: ScriptedEngine, replicas: int, slots: int) -> None:
        """`slots` are those of each replica."""
        super().__init__(
            [ScriptedReplica(f"engine-{index}", slots, engine) for index in range(replicas)],
            dispatcher=Dispatcher([slots] * replicas, prefix_caching=True),
        )
        self._engine = engine

    @override
    async def prepare(self) -> None:
        await self._engine.start()

    @override
    async def release(self) -> None:
        return

    @override
    async def render(self, messages: tuple[Message, ...]) -> Prompt:
        return await self._engine.render(messages)

    @override
    def identity(self) -> dict[str, object]:
        return {"kind": "scripted pool"}

    @override
    def deviations(self) -> tuple[str, ...]:
        return ("the model is a script",)


async def measure(load: Load, directory: Path) -> Cost:
    """Run the load once."""
    question = "How many ways are there? " * (QUESTION_CHARS // 25)
    jobs = [
        Job(DATASET, Problem(f"p{index}", index, question, "42"), 0, 1000)
        for index in range(load.trajectories)
    ]
    before_bytes = resident_bytes()
    script = write_script(load, jobs)
    script_bytes = resident_bytes() - before_bytes
    scripted = ScriptedEngine(
        script, context_tokens=1 << 20, tokens_per_s=COMPLETION_CHARS / load.turn_s if load.turn_s else None
    )
    engine: Engine = ScriptedPool(scripted, load.replicas, load.slots) if load.through == "pool" else scripted
    state = RunState()
    turns = 0
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    path = directory / JOURNAL_NAME
    with JournalWriter(path) as journal:

        def emit(event: Event) -> None:
            nonlocal turns
            turns += isinstance(event, TurnDone)
            state.apply(journal.append(event))  # type: ignore[arg-type] # every event is one of them

        emit(_run_started(load, jobs))
        async with engine, _ticking() as lags_s:
            trajectories = TrajectoryRunner(
                _RULES,
                engine,
                IdleSandbox(),
                generation=anyio.Semaphore(load.trajectories),
                tools=anyio.Semaphore(load.trajectories),
                emit=emit,
            )
            scheduler = Scheduler(trajectories, in_flight=load.trajectories, retry=RetryPolicy(), emit=emit)
            await scheduler.run(jobs)
    return Cost(
        turns=turns,
        wall_s=time.perf_counter() - began_s,
        cpu_s=time.process_time() - began_cpu_s,
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        script_bytes=script_bytes,
        journal_bytes=path.stat().st_size,
        lag_p50_s=percentile(lags_s, 50),
        lag_p99_s=percentile(lags_s, 99),
        lag_max_s=max(lags_s),
    )


@asynccontextmanager
async def _ticking() -> AsyncIterator[list[float]]:
    """Measure how much later than asked for a sleeper wakes, for as long as this is entered."""
    lags_s: list[float] = []

    async def tick() -> None:
        while True:
            asked_s = time.perf_counter() + TICK_S
            await anyio.sleep(TICK_S)
            lags_s.append(time.perf_counter() - asked_s)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        yield lags_s
        tasks.cancel_scope.cancel()


def _run_started(load: Load, jobs: Sequence[Job]) -> RunStarted:
    problems = tuple(
        ProblemRecord(
            id=job.problem.id,
            row_index=job.problem.row_index,
            question=job.problem.question,
            answer=job.problem.answer,
        )
        for job in jobs
    )
    count = load.trajectories
    return RunStarted(
        run_id="benchmark",
        recount=__version__,
        profile={},
        samples=1,
        datasets=(DatasetRecord(name=DATASET, path="", sha256="", base_seed=1000, problems=problems),),
        protocol={},
        engine={"kind": load.through},
        sandbox={"kind": "idle"},
        concurrency=ConcurrencyRecord(trajectories=count, generations=count, tools=count),
    )


def table(load: Load, cost: Cost) -> Table:
    """Show what was measured."""
    waiting = f", {load.replicas} x {load.slots} places" if load.through == "pool" else ""
    shown = Table(
        title=f"{load.trajectories} trajectories in flight through {load.through}{waiting},"
        f" {load.turn_s:g} s a turn",
        title_justify="left",
    )
    for column in ("turns", "wall s", "CPU ms/turn", "peak MB", "of it script", "journal MB"):
        shown.add_column(column, justify="right")
    for column in ("lag p50 ms", "p99", "max"):
        shown.add_column(column, justify="right")
    shown.add_row(
        str(cost.turns),
        f"{cost.wall_s:.0f}",
        f"{cost.cpu_a_turn_s * 1000:.2f}",
        *(f"{size / 1e6:.0f}" for size in (cost.peak_bytes, cost.script_bytes, cost.journal_bytes)),
        *(f"{lag_s * 1000:.1f}" for lag_s in (cost.lag_p50_s, cost.lag_p99_s, cost.lag_max_s)),
    )
    return shown


def _arguments() -> tuple[Load, argparse.Namespace]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trajectories", type=int, default=5000, help="at once")
    parser.add_argument("--turns", default="6-10", help="of a trajectory, LEAST-MOST")
    parser.add_argument("--turn-s", type=float, default=20.0, help="seconds a completion takes on average")
    parser.add_argument("--through", choices=("engine", "pool"), default="engine")
    parser.add_argument("--replicas", type=int, default=8, help="of the pool")
    parser.add_argument("--slots", type=int, default=5000, help="of each replica")
    parser.add_argument("--dir", type=Path, help="where the journal is written for the while")
    parser.add_argument("--json", type=Path, help="write everything here too")
    asked = parser.parse_args()
    least, _, most = asked.turns.partition("-")
    if not (least.isdigit() and most.isdigit() and 1 <= int(least) <= int(most)):
        parser.error(f"--turns {asked.turns}: not of the form 6-10")
    if min(asked.trajectories, asked.replicas, asked.slots) < 1 or asked.turn_s < 0:
        parser.error("counts are at least 1, and times not negative")
    load = Load(
        asked.trajectories, int(least), int(most), asked.turn_s, asked.through, asked.replicas, asked.slots
    )
    return load, asked


def main() -> int:
    """Measure, show, and write."""
    load, asked = _arguments()
    with tempfile.TemporaryDirectory(dir=asked.dir) as directory:
        cost = anyio.run(measure, load, Path(directory))
    Console().print(table(load, cost))
    if asked.json is not None:
        document: dict[str, Any] = {"load": asdict(load), "cost": asdict(cost)}
        asked.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
