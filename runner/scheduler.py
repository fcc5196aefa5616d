"""All trajectories of a run: who starts when, and what happens when our own side fails.

Every (data set, problem, sample) is one job. A bounded number is in flight; generation and tools have
permits of their own (held by `TrajectoryRunner`, never both at once). Data sets are interleaved, so that
the tail of one is filled with the other's work.
"""

import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

import anyio
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    wait_exponential,
    wait_random,
)

from runner.datasets import Dataset
from runner.engines.base import ScriptExhaustedError
from runner.errors import InfrastructureError
from runner.events import Event, InfrastructureRetry, Unfinished
from runner.trajectory import Job, TrajectoryRunner
from sandbox import SandboxInfrastructureError

_MOST_CAUSES = 8
_CAUSE_CHARS = 2000


@dataclass(frozen=True)
class RetryPolicy:
    """How often a trajectory starts again when our side failed, and how long it waits before (seconds)."""

    attempts: int = 3
    wait_s: float = 1.0
    wait_cap_s: float = 30.0


def plan_jobs(datasets: Sequence[Dataset], samples: int) -> list[Job]:
    """Return every job, sample by sample, the data sets interleaved problem by problem."""
    jobs: list[Job] = []
    for sample in range(samples):
        columns = [
            [Job(one.name, problem, sample, one.base_seed) for problem in one.problems] for one in datasets
        ]
        rows = zip_longest(*columns)
        jobs += [job for job in chain.from_iterable(rows) if job is not None]
    return jobs


def _is_ours(error: BaseException) -> bool:
    return isinstance(error, InfrastructureError | SandboxInfrastructureError)


def _may_be_retried(error: BaseException) -> bool:
    return _is_ours(error) and not isinstance(error, ScriptExhaustedError)


class Scheduler:
    """Runs jobs to their ends; every job ends scored or unfinished, whatever fails."""

    def __init__(
        self,
        runner: TrajectoryRunner,
        *,
        in_flight: int,
        retry: RetryPolicy,
        emit: Callable[[Event], object],
    ) -> None:
        """`in_flight` bounds the trajectories that run at once."""
        self._runner = runner
        self._in_flight = in_flight
        self._retry = retry
        self._emit = emit

    async def run(self, jobs: Iterable[Job]) -> None:
        """Run all jobs. Failures of ours end as `unfinished` events, not as exceptions.

        What does raise is a fault of the program or of the journal's disk, and ends the run.
        """
        waiting = deque(jobs)
        async with anyio.create_task_group() as workers:
            for _ in range(min(self._in_flight, len(waiting))):
                workers.start_soon(self._work, waiting)

    async def _work(self, waiting: deque[Job]) -> None:
        while waiting:
            await self._finish(waiting.popleft())

    async def _finish(self, job: Job) -> None:
        retry = self._retry

        def note_retry(state: RetryCallState) -> None:
            cause = state.outcome.exception() if state.outcome is not None else None
            self._emit(
                InfrastructureRetry(
                    dataset=job.dataset,
                    problem_id=job.problem.id,
                    sample=job.sample,
                    attempt=state.attempt_number,
                    cause=describe_cause(cause),
                )
            )

        attempt_number = 1
        try:
            async for attempt in AsyncRetrying(
                retry=retry_if_exception(_may_be_retried),
                stop=stop_after_attempt(retry.attempts),
                wait=wait_exponential(multiplier=retry.wait_s, max=retry.wait_cap_s)
                + wait_random(0, retry.wait_s),
                before_sleep=note_retry,
                sleep=anyio.sleep,
                reraise=True,
            ):
                with attempt:
                    attempt_number = attempt.retry_state.attempt_number
                    await self._runner.run(job, attempt_number)
        except (InfrastructureError, SandboxInfrastructureError) as error:
            self._emit(
                Unfinished(
                    dataset=job.dataset,
                    problem_id=job.problem.id,
                    sample=job.sample,
                    attempt=attempt_number,
                    cause=describe_cause(error),
                )
            )


def describe_cause(error: BaseException | None) -> str:
    """Return an error and what it came from, without stack; bounded, since servers word some of it."""
    lines: list[str] = []
    while error is not None and len(lines) < _MOST_CAUSES:
        line = "".join(traceback.format_exception_only(type(error), error)).strip()
        lines.append(line[:_CAUSE_CHARS])
        error = error.__cause__
    return "\n".join(lines)
