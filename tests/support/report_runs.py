"""Journals of whole runs for the page: as long as final4, of varied outcomes, the same every time.

Nothing runs here: events are laid out over time and written in its order. Texts are our own.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.engines.base import TrajectoryKey
from runner.engines.reports import ReplicaState
from runner.events import (
    ComparisonRecord,
    ConcurrencyRecord,
    DatasetRecord,
    EndReason,
    EngineDown,
    EngineSample,
    EngineStatsRecord,
    EngineUp,
    EngineUseRecord,
    Event,
    InfrastructureRetry,
    ProblemRecord,
    RowsRecord,
    RunEnded,
    RunStarted,
    Terminated,
    ToolRecord,
    TrajectoryStarted,
    TurnDone,
    TurnKind,
    Unfinished,
)
from runner.journal import JOURNAL_NAME, JournalWriter
from runner.protocol.score import AnswerStatus, ScoreMethod, Termination

BEGAN_AT = 1_790_000_000.0
PROBLEMS = {"dapo": 100, "aime": 30}
ENGINES = tuple(f"engine-{index}" for index in range(4))
_IN_FLIGHT = 64
_SAMPLE_EVERY_S = 10.0
_SENTENCE = (
    "sum over the divisors of n so that the remainder modulo seven vanishes and we check each case then"
    " count pairs with equal parity using a short program which prints every candidate below the bound"
)
_WORDS = _SENTENCE.split()


@dataclass
class Wanted:
    """What a run should be like."""

    problems: Mapping[str, int] = field(default_factory=lambda: dict(PROBLEMS))
    samples: int = 4
    words_a_turn: int = 60
    end: EndReason | None = EndReason.COMPLETE
    lost: frozenset[TrajectoryKey] = frozenset()
    """Given up: our own side failed for good."""
    stopped: frozenset[TrajectoryKey] = frozenset()
    """Under way when the run ended."""
    never: frozenset[TrajectoryKey] = frozenset()
    published: bool = True
    text: str = ""
    """Stands in every question, completion, command, observation, prediction and cause."""
    ids: str = ""
    """Stands in every problem's id."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Of the first event."""

    def problem_ids(self, dataset: str) -> list[str]:
        """The ids of a data set."""
        return [f"{dataset}_{row:03d}{self.ids}" for row in range(self.problems[dataset])]


def write_run(run_dir: Path, wanted: Wanted | None = None) -> Path:
    """Write the journal of such a run; return its directory."""
    wanted = wanted or Wanted()
    run_dir.mkdir(parents=True, exist_ok=True)
    moments = _Laid(wanted).events()
    times = iter([at for at, _ in moments])
    with JournalWriter(run_dir / JOURNAL_NAME, clock=lambda: next(times)) as journal:
        for _, event in moments:
            journal.append(event)
    return run_dir


class _Laid:
    """Lays trajectories out over time, as many at once as there are places."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.random = random.Random(20270652)  # noqa: S311 - no secret, but the same every time
        self.found: list[tuple[float, int, Event]] = []
        self.spans: list[tuple[str, float, float]] = []

    def add(self, at: float, event: Event) -> None:
        self.found.append((round(at, 3), len(self.found), event))

    def events(self) -> list[tuple[float, Event]]:
        self.add(BEGAN_AT, _started(self.wanted))
        for name in ENGINES:
            self.add(BEGAN_AT + 0.001, EngineUp(name=name, start_s=41.5, starts=1))
        places = [BEGAN_AT + 0.01 * index for index in range(_IN_FLIGHT)]
        for key, row in self._keys():
            if key in self.wanted.never:
                continue
            index = places.index(min(places))
            places[index] = self._trajectory(key, row, places[index])
        end_at = max(at for at, _, _ in self.found)
        self._engines(end_at)
        if self.wanted.end is not None:
            self.add(end_at + 1.0, RunEnded(reason=self.wanted.end))
        return [(at, event) for at, _, event in sorted(self.found, key=lambda one: one[:2])]

    def _keys(self) -> Iterable[tuple[TrajectoryKey, int]]:
        for dataset in self.wanted.problems:
            for row, problem in enumerate(self.wanted.problem_ids(dataset)):
                for sample in range(self.wanted.samples):
                    yield TrajectoryKey(dataset, problem, sample), row

    def _words(self, count: int) -> str:
        words = " ".join(self.random.choice(_WORDS) for _ in range(count))
        return f"{words} {self.random.randrange(10**6)} {self.wanted.text}".strip()

    def _trajectory(self, key: TrajectoryKey, row: int, at: float) -> float:
        names = {"dataset": key.dataset, "problem_id": key.problem_id, "sample": key.sample}
        start = {"row_index": row, "seed": 20270652 + 1_000_003 * key.sample + row}
        began_at, attempt = at, 1
        self.add(at, TrajectoryStarted(**names, **start))
        if self.random.random() < 0.01 and key not in self.wanted.stopped:
            at += 7.0
            cause = f"EngineUnavailableError: the connection to engine-2 broke {self.wanted.text}".strip()
            self.add(at, InfrastructureRetry(**names, cause=cause))
            attempt, began_at = 2, at
            self.add(at + 0.001, TrajectoryStarted(**names, **start, attempt=2))
        hard = 0.15 + 0.75 * ((row * 37) % 100) / 100
        solved = self.random.random() > hard * 0.55
        chance = self.random.random()
        termination = Termination.FINAL_ANSWER
        if chance < 0.02:
            termination = Termination.MAX_TURNS
        elif chance < 0.027:
            termination = Termination.CONTEXT_LENGTH_EXCEEDED
        elif chance < 0.032:
            termination = Termination.REQUEST_ERROR
        turns = (
            50
            if termination is Termination.MAX_TURNS
            else 2 + int(self.random.expovariate(1 / (2 + 7 * hard)))
        )
        prompt = tokens = 400
        seeds = []
        for number in range(turns):
            last = number == turns - 1 and termination is Termination.FINAL_ANSWER
            done, completion = self._turn(names, number, at, prompt, attempt, last=last, solved=solved)
            seeds += list(done.seeds)
            at += done.generate_wait_s + done.generate_s + done.tool_wait_s + done.tool_s
            self.spans.append((done.engine, at - done.tool_s - done.generate_s, at - done.tool_s))
            self.add(at, done)
            tokens, prompt = tokens + completion, prompt + completion + 90
            if key in self.wanted.stopped:
                return at
        at += 0.02
        if key in self.wanted.lost:
            cause = f"SandboxError: the daemon did not answer {self.wanted.text}".strip()
            log = (f"dockerd: no space {self.wanted.text}".strip(),)
            self.add(at, Unfinished(**names, attempt=attempt, cause=cause, log=log))
            return at
        right = solved and termination is Termination.FINAL_ANSWER
        missing = termination is not Termination.FINAL_ANSWER
        method = ScoreMethod.EXACT_FALLBACK
        if missing:
            method = {
                Termination.MAX_TURNS: ScoreMethod.MISSING_FINAL_ANSWER,
                Termination.CONTEXT_LENGTH_EXCEEDED: ScoreMethod.CONTEXT_LENGTH_EXCEEDED,
            }.get(termination, ScoreMethod.REQUEST_ERROR)
        end = Terminated(
            **names,
            attempt=attempt,
            termination=termination,
            score=1.0 if right else 0.0,
            score_method=method,
            answer_status=AnswerStatus.MISSING_FINAL_ANSWER if missing else AnswerStatus.ANSWERED,
            prediction="" if missing else f"{42 if right else self.random.randrange(40)}{self.wanted.text}",
            used_bash=True,
            max_context_tokens=prompt,
            generated_tokens=tokens - 400,
            turn_seeds=tuple(seeds),
            react_error="HTTP 400: the prompt is refused"
            if termination is Termination.REQUEST_ERROR
            else None,
            elapsed_s=round(at - began_at, 3),
        )
        self.add(at, end)
        return at

    def _turn(
        self,
        names: dict[str, Any],
        number: int,
        at: float,
        prompt: int,
        attempt: int,
        *,
        last: bool,
        solved: bool,
    ) -> tuple[TurnDone, int]:
        said = self._words(max(int(self.random.lognormvariate(0, 0.6) * self.wanted.words_a_turn), 3))
        completion = len(said) // 4 + 20
        values: dict[str, Any] = {
            **names,
            "attempt": attempt,
            "turn": number,
            "seeds": (20270652 + 97 * number,),
            "engine": self.random.choice(ENGINES),
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "finish_reason": "stop",
            "generate_wait_s": 0.02,
            "generate_s": round(completion / 25, 3),
        }
        if last:
            text = f"{said}\nFinal answer: \\boxed{{{42 if solved else 17}}}"
            return TurnDone(**values, kind=TurnKind.FINAL_ANSWER, assistant=text), completion
        if self.random.random() < 0.04:
            note = f"compute first {self.wanted.text}".strip()
            return TurnDone(
                **values, kind=TurnKind.FORMAT_CHECK, assistant=said, observation=note
            ), completion
        command = f"python3 -c 'print(sum(range({number + 3})))' {self.wanted.text}".strip()
        observation, tool = self._tool(number)
        return (
            TurnDone(
                **values,
                kind=TurnKind.ACTION,
                assistant=f"{said}\nAction: bash",
                action={"name": "bash", "arguments": {"command": command}},
                observation=observation,
                tool=tool,
                tool_wait_s=0.01,
                tool_s=round(tool.wall_s + 0.09, 3),
            ),
            completion,
        )

    def _tool(self, number: int) -> tuple[str, ToolRecord]:
        chance, code, timed_out, limits = self.random.random(), 0, False, ()
        text = f"{sum(range(number + 3))}\n{self._words(12)}"
        wall_s = self.random.expovariate(4)
        if chance < 0.08:
            code, text = 1, f"Traceback (most recent call last):\n  ValueError: {self._words(6)}"
        elif chance < 0.10:
            code, text = 1, "ModuleNotFoundError: No module named 'sympy'"
        elif chance < 0.12:
            timed_out, wall_s, text, code = True, 20.0, f"[timeout] after 20 s {self.wanted.text}", -9
        elif chance < 0.13:
            code, limits, text = 137, ("memory",), f"Killed {self.wanted.text}"
        return text, ToolRecord(
            exit_code=None if timed_out else code,
            timed_out=timed_out,
            limits=limits,
            wall_s=round(wall_s, 3),
            cpu_s=round(wall_s * 0.6, 3),
            throttled_s=0.0,
            peak_memory_bytes=20_000_000 + self.random.randrange(10**8),
            stdout_bytes=len(text),
            stderr_bytes=0,
        )

    def _engines(self, end_at: float) -> None:
        """Add the samples of the pool, and the loss of one engine in the middle."""
        middle = BEGAN_AT + (end_at - BEGAN_AT) * 0.45
        cause = f"actor died {self.wanted.text}".strip()
        self.add(middle, EngineDown(name=ENGINES[2], cause=cause, requeued=9, given_up=False))
        self.add(middle + 35.0, EngineUp(name=ENGINES[2], start_s=35.0, starts=2))
        count = int((end_at - BEGAN_AT) // _SAMPLE_EVERY_S)
        for at in [*(BEGAN_AT + 0.002 + _SAMPLE_EVERY_S * index for index in range(count + 1)), end_at + 0.5]:
            uses = tuple(self._use(name, at, middle) for name in ENGINES)
            self.add(at, EngineSample(queued=3 if at < middle else 0, engines=uses))

    def _use(self, name: str, at: float, lost_at: float) -> EngineUseRecord:
        spans = sorted(
            (begin, min(end, at)) for engine, begin, end in self.spans if engine == name and begin < at
        )
        busy_s, reached = 0.0, BEGAN_AT
        for begin, end in spans:
            busy_s += max(end - max(begin, reached), 0.0)
            reached = max(reached, end)
        down_s = min(max(at - lost_at, 0.0), 35.0) if name == ENGINES[2] else 0.0
        running = sum(1 for engine, begin, end in self.spans if engine == name and begin <= at < end)
        stats = EngineStatsRecord(
            running=running,
            kv_cache_usage=min(running / 40, 1.0),
            gpu_utilization=min(running / 16, 1.0),
            prefix_cache_queries=1000 * len(spans),
            prefix_cache_hits=850 * len(spans),
            preemptions=0,
        )
        return EngineUseRecord(
            name=name,
            state=ReplicaState.SERVING,
            running=running,
            turns=len(spans),
            prompt_tokens=2000 * len(spans),
            completion_tokens=120 * len(spans),
            serving_s=max(at - BEGAN_AT - down_s, busy_s),
            busy_s=busy_s,
            batch_s=sum(end - begin for begin, end in spans),
            starts=2 if name == ENGINES[2] and at > lost_at + 35.0 else 1,
            stats=stats,
        )


def _started(wanted: Wanted) -> RunStarted:
    values: dict[str, Any] = {
        "run_id": "final4-20270101-101500-3f9a",
        "recount": "0.1.0",
        "profile": {"name": "final4", "samples": wanted.samples, "engine": {"kind": "openai"}},
        "samples": wanted.samples,
        "datasets": tuple(_dataset(wanted, name, number) for number, name in enumerate(wanted.problems)),
        "protocol": {"rules": "esopt-math-react", "pack": "pack.json", "pack_sha256": "3" * 64},
        "engine": {"kind": "vllm", "engines": len(ENGINES), "dtype": "bfloat16"},
        "sandbox": {"kind": "broker", "policy": "report", "policy_sha256": "4" * 64},
        "concurrency": ConcurrencyRecord(trajectories=_IN_FLIGHT, generations=64, tools=8),
        "comparison": _comparison(wanted) if wanted.published else None,
    }
    return RunStarted(**values | dict(wanted.changes))


def _dataset(wanted: Wanted, name: str, number: int) -> DatasetRecord:
    problems = tuple(
        ProblemRecord(
            id=one,
            row_index=row,
            question=f"How many numbers below {row + 10} have {row % 9} divisors? {wanted.text}".strip(),
            answer=f"42{wanted.text}",
        )
        for row, one in enumerate(wanted.problem_ids(name))
    )
    return DatasetRecord(
        name=name,
        path=f"{name}.jsonl",
        sha256=str(number) * 64,
        base_seed=20270652 + number,
        problems=problems,
    )


def _comparison(wanted: Wanted) -> ComparisonRecord:
    """Published figures and rows of our own: near what the run scores."""
    chance = random.Random(7)  # noqa: S311 - no secret, but the same every time
    scores = {
        name: {
            one: tuple(
                float(chance.random() > 0.55 * (0.15 + 0.75 * ((row * 37) % 100) / 100)) for _ in range(4)
            )
            for row, one in enumerate(wanted.problem_ids(name))
        }
        for name in wanted.problems
    }
    figures = {
        name: {
            "mean": sum(sum(one) for one in rows.values()) / (4 * len(rows)),
            "max_at_k": sum(max(one) for one in rows.values()) / len(rows),
        }
        for name, rows in scores.items()
    }
    return ComparisonRecord(
        source="made-up",
        sha256="5" * 64,
        published={
            "checkpoint": "mine/made-up",
            "problems": dict(wanted.problems),
            "reports": {"final4": {"samples": 4, "figures": figures}},
            "references": {"final4": ["final4"]},
            "rows_of": "final4",
        },
        margin=0.05,
        rows=RowsRecord(
            file="rows.json",
            sha256="6" * 64,
            report="final4",
            samples=4,
            scores=scores,
            places={name: f"{name}_eval" for name in wanted.problems},
        ),
    )
