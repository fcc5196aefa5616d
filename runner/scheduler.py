"""All trajectories of a run: who starts when, and what happens when our own side fails.

Every (data set, problem, sample) is one job. A bounded number is in flight; generation and tools have
permits of their own (held by `TrajectoryRunner`, never both at once). Data sets are interleaved, so that
the tail of one is filled with the other's work.
"""

import random
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, count, zip_longest

import anyio

from runner.breaker import Breaker, fault_of
from runner.datasets import Dataset
from runner.engines.base import ScriptExhaustedError
from runner.errors import InfrastructureError
from runner.events import Event, InfrastructureRetry, Unfinished
from runner.trajectory import Job, TrajectoryRunner
from runner.waiting import Waiting
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


def _may_be_retried(error: BaseException) -> bool:
    return not isinstance(error, ScriptExhaustedError)


class Scheduler:
    """Runs jobs to their ends; every job ends scored or unfinished, whatever fails."""

    def __init__(
        self,
        runner: TrajectoryRunner,
        *,
        in_flight: int,
        retry: RetryPolicy,
        emit: Callable[[Event], object],
        breaker: Breaker | None = None,
        waiting: Waiting | None = None,
    ) -> None:
        """`in_flight` bounds the trajectories that run at once; `breaker` says when none may begin."""
        self._runner = runner
        self._in_flight = in_flight
        self._retry = retry
        self._emit = emit
        self._breaker = breaker or Breaker()
        self._waiting = waiting or Waiting()
        runner.worked = self._breaker.succeeded

    async def run(self, jobs: Iterable[Job]) -> None:
        """Run all jobs. Failures of ours end as `unfinished` events, not as exceptions.

        What does raise is a fault of the program or of the journal's disk, or a failure that stayed for so
        long that going on makes no sense (`PausedTooLongError`); it ends the run.
        """
        waiting = deque(jobs)
        async with anyio.create_task_group() as watching:
            watching.start_soon(self._breaker.watch)
            async with anyio.create_task_group() as workers:
                for _ in range(min(self._in_flight, len(waiting))):
                    workers.start_soon(self._work, waiting)
            watching.cancel_scope.cancel()

    async def _work(self, waiting: deque[Job]) -> None:
        while waiting:
            job = waiting.popleft()
            await self._finish(job)
            self._breaker.done(job.key)

    async def _finish(self, job: Job) -> None:
        """Make attempts until one ends. What fails while the run is paused uses none up."""
        for attempt in count(1):
            with self._waiting.on(job.key, "the run's pause to end"):
                await self._breaker.admit(job.key)
            failed = await self._attempt(job, attempt)
            if failed is None:
                return
            cause = describe_cause(failed)
            used_up = self._breaker.failed(fault_of(failed), job.key, cause)
            # Told of the failure first: a probe that ended without one has shown nothing.
            self._breaker.ended(job.key)
            last = used_up >= self._retry.attempts or not _may_be_retried(failed)
            kind = Unfinished if last else InfrastructureRetry
            self._emit(
                kind(
                    dataset=job.dataset,
                    problem_id=job.problem.id,
                    sample=job.sample,
                    attempt=attempt,
                    cause=cause,
                )
            )
            if last:
                return
            if used_up:
                with self._waiting.on(job.key, "its next attempt"):
                    await anyio.sleep(self._pause_s(used_up))

    async def _attempt(self, job: Job, attempt: int) -> Exception | None:
        """Make one attempt; return what failed on our side, or None where it came to its end."""
        try:
            await self._runner.run(job, attempt)
        except (InfrastructureError, SandboxInfrastructureError) as error:
            return error
        self._breaker.ended(job.key)
        return None

    def _pause_s(self, failures: int) -> float:
        retry = self._retry
        jitter_s = random.uniform(0, retry.wait_s)  # noqa: S311 - no secret
        return min(retry.wait_s * 2.0 ** (failures - 1), retry.wait_cap_s) + jitter_s


def describe_cause(error: BaseException | None) -> str:
    """Return an error and what it came from, without stack; bounded, since servers word some of it."""
    lines: list[str] = []
    while error is not None and len(lines) < _MOST_CAUSES:
        line = "".join(traceback.format_exception_only(type(error), error)).strip()
        lines.append(line[:_CAUSE_CHARS])
        error = error.__cause__
    return "\n".join(lines)
