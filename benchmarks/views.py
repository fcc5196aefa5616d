"""What the display costs: CPU of one core, and what it adds to a container's log.

    python benchmarks/views.py                                    # 128 running trajectories, 2 frames a s
    python benchmarks/views.py --running 1000 --turn-s 10

Events come as a run's do, in virtual time; drawing is real, and so is the time it takes. A log's bytes are
those of Docker's json-file driver, which writes an escape character in six.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from runner import __version__
from runner.engines.base import TrajectoryKey
from runner.engines.reports import ReplicaState
from runner.events import (
    ConcurrencyRecord,
    DatasetRecord,
    EngineSample,
    EngineStatsRecord,
    EngineUseRecord,
    ProblemRecord,
    RunStarted,
    Terminated,
    ToolRecord,
    TrajectoryStarted,
    TurnDone,
    TurnKind,
)
from runner.protocol.score import AnswerStatus, ScoreMethod, Termination
from runner.views.display import FRAME_INTERVAL_S
from runner.views.frames import FrameWriter
from runner.views.live_state import LiveState
from runner.views.panels import View
from runner.views.phases import Phase, PhaseState
from runner.views.screen import Size, compose

COMMANDS = (
    "python3 -c 'print(sum(i * i for i in range(10**6)))'",
    "python3 - <<'EOF'\nfrom sympy import *\nx = symbols('x')\nprint(solve(x**4 - 5*x**2 + 4))\nEOF",
    "cat > search.py <<'EOF'\nfrom itertools import product\nEOF\npython3 search.py",
)
TURNS = 20
TOOL_SHARE = 0.15
"""Of a turn's time, in its command."""
ENGINES = 8
GIB = 1 << 30


@dataclass(frozen=True)
class Measured:
    """One terminal. Times are process CPU; `log_bytes` are those of one hour."""

    terminal: str
    frames: int
    ms_a_frame: float
    largest_ms: float
    cpu_share: float
    bytes_a_frame: float
    log_mb_an_hour: float


class Workload:
    """A run in virtual time: `running` trajectories that generate, act and end, and others that follow."""

    def __init__(self, running: int, turn_s: float, rng: random.Random) -> None:
        self.state = LiveState()
        self._rng, self._turn_s = rng, turn_s
        self._keys = self._names()
        problems = tuple(
            ProblemRecord(id=f"dapo-{row:05d}", row_index=row, question="?", answer=str(row))
            for row in range(5000)
        )
        self.state.apply(
            RunStarted(
                at=0.0,
                run_id="final4-20261202-014512-3f9a",
                recount=__version__,
                profile={"limits": {"max_turns": 50}},
                samples=4,
                datasets=tuple(
                    DatasetRecord(name=name, path="p", sha256="0" * 64, base_seed=1, problems=problems)
                    for name in ("dapo", "aime")
                ),
                protocol={},
                engine={},
                sandbox={},
                concurrency=ConcurrencyRecord(trajectories=running, generations=running, tools=running),
            )
        )
        self._next_at: dict[TrajectoryKey, float] = {}
        self._acts_at: dict[TrajectoryKey, float] = {}
        self._turns: dict[TrajectoryKey, int] = {}
        self._sampled_at = 0.0
        for _ in range(running):
            self._begin(0.0)

    def _names(self) -> Iterator[TrajectoryKey]:
        for row in range(10_000_000):
            yield TrajectoryKey("dapo" if row % 2 else "aime", f"dapo-{row // 2 % 5000:05d}", row // 10_000)

    def _begin(self, at: float) -> None:
        key = next(self._keys)
        started = TrajectoryStarted(
            at=at, dataset=key.dataset, problem_id=key.problem_id, sample=key.sample, row_index=0, seed=1
        )
        self.state.apply(started)
        self._turns[key] = 0
        self._plan(key, at)

    def _plan(self, key: TrajectoryKey, at: float) -> None:
        length_s = self._rng.expovariate(1 / self._turn_s)
        self._next_at[key] = at + length_s
        self._acts_at[key] = at + (1 - TOOL_SHARE) * length_s

    def advance(self, now: float) -> None:
        """Let everything happen that happens until `now`."""
        for key in [one for one, at in self._acts_at.items() if at <= now]:
            del self._acts_at[key]
            self.state.note_command(f"{key}:1", self._rng.choice(COMMANDS))
        for key, at in [item for item in self._next_at.items() if item[1] <= now]:
            self._turn(key, at)
        if now - self._sampled_at >= 10:
            self._sampled_at = now
            self._sample(now)

    def _turn(self, key: TrajectoryKey, at: float) -> None:
        number = self._turns[key]
        self.state.apply(
            TurnDone(
                at=at,
                dataset=key.dataset,
                problem_id=key.problem_id,
                sample=key.sample,
                turn=number,
                seeds=(1,),
                engine=f"engine-{self._rng.randrange(ENGINES)}",
                assistant="",
                prompt_tokens=900 * (number + 1),
                completion_tokens=self._rng.randint(100, 2000),
                finish_reason="stop",
                kind=TurnKind.ACTION,
                action={"name": "bash", "arguments": {"command": self._rng.choice(COMMANDS)}},
                observation="1",
                tool=ToolRecord(
                    exit_code=int(self._rng.random() < 0.1),
                    timed_out=False,
                    limits=("time",) if self._rng.random() < 0.02 else (),
                    wall_s=0.1,
                    cpu_s=0.1,
                    throttled_s=0.0,
                    peak_memory_bytes=1,
                    stdout_bytes=1,
                    stderr_bytes=0,
                ),
                generate_wait_s=0.0,
                generate_s=1.0,
                tool_s=self._rng.expovariate(5),
            )
        )
        self._turns[key] += 1
        if self._turns[key] < TURNS:
            self._plan(key, at)
            return
        for kept in (self._turns, self._next_at, self._acts_at):
            kept.pop(key, None)
        self.state.apply(
            Terminated(
                at=at,
                dataset=key.dataset,
                problem_id=key.problem_id,
                sample=key.sample,
                termination=Termination.FINAL_ANSWER,
                score=float(self._rng.random() < 0.7),
                score_method=ScoreMethod.EXACT_FALLBACK,
                answer_status=AnswerStatus.ANSWERED,
                prediction=str(self._rng.randrange(1000)),
                used_bash=True,
                max_context_tokens=1,
                generated_tokens=1,
                turn_seeds=(1,) * TURNS,
                elapsed_s=400.0,
            )
        )
        self._begin(at)

    def _sample(self, now: float) -> None:
        stats = EngineStatsRecord(
            kv_cache_usage=self._rng.random(),
            gpu_memory_used_bytes=int(self._rng.uniform(70, 76) * GIB),
            gpu_memory_total_bytes=80 * GIB,
            gpu_utilization=self._rng.uniform(0.9, 1.0),
        )
        self.state.apply(
            EngineSample(
                at=now,
                queued=self._rng.randrange(4),
                engines=tuple(
                    EngineUseRecord(
                        name=f"engine-{number}",
                        state=ReplicaState.SERVING,
                        running=self._rng.randrange(10, 20),
                        turns=1,
                        prompt_tokens=1,
                        completion_tokens=1,
                        serving_s=1.0,
                        busy_s=1.0,
                        batch_s=1.0,
                        starts=1,
                        stats=stats,
                    )
                    for number in range(ENGINES)
                ),
            )
        )


def logged_bytes(frame: bytes) -> int:
    """Return how long `frame` is in a json-file log."""
    line = frame.decode().replace("\n", "\r\n")
    entry = {"log": line, "stream": "stdout", "time": "2026-12-02T01:45:12.123456789Z"}
    return len(json.dumps(entry, separators=(",", ":"), ensure_ascii=False).encode()) + 1


def measure(terminal: str, size: Size | None, running: int, turn_s: float, frames: int) -> Measured:
    """Draw `frames` frames of a run and return what they took."""
    rng = random.Random(1)  # noqa: S311 - the same run for every terminal
    workload, writer = Workload(running, turn_s, rng), FrameWriter(color=True)
    spent: list[float] = []
    written = logged = drawn = 0
    warm_up = int(60 / FRAME_INTERVAL_S)
    for number in range(warm_up + frames):
        now = number * FRAME_INTERVAL_S
        workload.advance(now)
        if number < warm_up:
            continue
        view = View(
            state=workload.state,
            phase=PhaseState(Phase.RUNNING, 0.0),
            now=now,
            title="final4-20261202-014512-3f9a",
            journal="/results/final4-20261202-014512-3f9a/journal.jsonl",
            watch_hint="docker compose exec eval recount watch",
        )
        begun = time.process_time()
        frame = writer.frame(compose(view, size), size, now)
        spent.append(time.process_time() - begun)
        written += len(frame)
        drawn += bool(frame)
        logged += logged_bytes(frame) if frame else 0
    mean_s = sum(spent) / frames
    hour = 3600 / (frames * FRAME_INTERVAL_S)
    return Measured(
        terminal=terminal,
        frames=drawn,
        ms_a_frame=1000 * mean_s,
        largest_ms=1000 * max(spent),
        cpu_share=mean_s / FRAME_INTERVAL_S,
        bytes_a_frame=written / frames,
        log_mb_an_hour=logged * hour / 1e6,
    )


def main() -> None:
    """Measure, print a table, and write JSON if asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--running", type=int, default=128, help="trajectories at once")
    parser.add_argument("--turn-s", type=float, default=20.0, help="seconds a turn takes on average")
    parser.add_argument("--frames", type=int, default=600, help="frames a terminal")
    parser.add_argument("--json", type=Path, help="write what the table shows here")
    arguments = parser.parse_args()
    terminals = {
        "no size (compose up)": None,
        "80x24": Size(80, 24),
        "120x35": Size(120, 35),
        "200x60": Size(200, 60),
    }
    results = [
        measure(name, size, arguments.running, arguments.turn_s, arguments.frames)
        for name, size in terminals.items()
    ]
    table = Table(
        title=f"{arguments.running} running, {1 / FRAME_INTERVAL_S:g} frames a second", title_justify="left"
    )
    for head in ("terminal", "ms a frame", "largest", "of one core", "bytes a frame", "log MB an hour"):
        table.add_column(head, justify="left" if head == "terminal" else "right")
    for one in results:
        table.add_row(
            one.terminal,
            f"{one.ms_a_frame:.2f}",
            f"{one.largest_ms:.1f}",
            f"{100 * one.cpu_share:.2f} %",
            f"{one.bytes_a_frame:.0f}",
            f"{one.log_mb_an_hour:.1f}",
        )
    Console().print(table)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(one) for one in results], indent=1) + "\n")


if __name__ == "__main__":
    main()
