"""Runs a plan: directory, journal, engine, sandbox, scheduler, results. The order of ends matters here.

Whatever happens after the journal has begun, it ends with `run_ended` (but for a kill), the sandbox is
emptied, and the results of what was done are written.
"""

import os
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from runner import __version__
from runner.atomic import write_text
from runner.breaker import Breaker
from runner.engine_log import engine_log
from runner.engines.base import Engine
from runner.errors import ExitCode, InterruptedRunError, JournalWriteError, RecountError, UserError
from runner.events import (
    ConcurrencyRecord,
    EndReason,
    Event,
    Fault,
    ProvenanceRecord,
    RunEnded,
    RunStarted,
    Unfinished,
)
from runner.groups import first_error_only
from runner.journal import JOURNAL_NAME, JournalWriter, read_run, read_state
from runner.logs import LOG_NAME, TAIL_LINES
from runner.observe import MOST_BYTES_A_CHAR
from runner.oversight import Oversight
from runner.patient import Patience, PatientJournal
from runner.plan import Plan
from runner.profile import ConcurrencySettings
from runner.provenance import Probes, gather_provenance
from runner.report import write_report_if_possible
from runner.results.build import build_results, end_reason
from runner.results.files import RESULTS_NAME, SUMMARY_NAME, results_text
from runner.results.summary import summary_text
from runner.results.traces import write_traces
from runner.resume import Resumption, remove_asides
from runner.run_records import command_record, dataset_records, protocol_record
from runner.scheduler import RetryPolicy, Scheduler, describe_cause
from runner.signals import Stop, watch_signals
from runner.stall import StallWatch
from runner.state import RunState
from runner.trajectory import Job, TrajectoryRunner
from runner.waiting import Waiting
from sandbox import Capacity, Sandbox, SandboxError

_LOG_BYTES = 8192
_LOG_LINE_CHARS = 300
"""Each trajectory that is given up carries the log's last lines, and all of them may be."""

ENGINE_LOG_DIR = "engines"
"""Below a run's directory. Of a run that did not begin it is what stays: it says why."""

Listener = Callable[[Event], None]
Prepare = Callable[[Sandbox], Awaitable[tuple[Plan, Engine]]]
"""Makes the plan and its engine, not started, with the sandbox open: fetching takes hours, and a broker that
nobody connects to leaves."""


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended and where its files are."""

    run_dir: Path
    state: RunState
    results: dict[str, Any]
    reason: EndReason

    @property
    def exit_code(self) -> ExitCode:
        """What the process should exit with."""
        return {
            EndReason.COMPLETE: ExitCode.OK,
            EndReason.INCOMPLETE: ExitCode.INCOMPLETE,
            EndReason.INTERRUPTED: ExitCode.INTERRUPTED,
            EndReason.FAILED: ExitCode.INFRASTRUCTURE,
        }[self.reason]

    @property
    def verdict_word(self) -> str | None:
        """The verdict's word; None for a run that is no reproduction, or that nothing is published for."""
        verdict = self.results["verdict"]
        return None if verdict is None else verdict["word"]

    @property
    def differs(self) -> bool:
        """Whether the numbers differ from the published, pooled or in any data set; also of a run that is no
        reproduction."""
        verdict = self.results["verdict"]
        return verdict is not None and bool(verdict["differs"])


def new_run_id(profile_name: str) -> str:
    """Return a run id that sorts by time and is unique: `demo-20261201-220501-3f9a`."""
    return f"{profile_name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"


def check_new(run_dir: Path) -> None:
    """Raise `UserError` for a directory that holds something. Engines write their logs there before a run."""
    if run_dir.is_dir() and {one.name for one in run_dir.iterdir()} <= {ENGINE_LOG_DIR}:
        return
    if run_dir.exists():
        raise UserError(f"{run_dir} exists already", remedy="name another --run-id")


def make_run_dir(results_dir: Path, run_id: str) -> Path:
    """Create the run's directory; raise `UserError` where that is not possible."""
    run_dir = results_dir / run_id
    try:
        check_new(run_dir)
        run_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot create {run_dir}: {error.strerror or error}", remedy="name a writable --out"
        ) from error
    return run_dir


async def run_prepared(  # noqa: PLR0913 - each is another thing that a run is given
    prepare: Prepare,
    sandbox: Sandbox,
    *,
    run_id: str,
    results_dir: Path,
    listener: Listener,
    stopping: Callable[[str], None] | None = None,
    probes: Probes | None = None,
    resumption: Resumption | None = None,
    patience: Patience | None = None,
    oversight: Oversight | None = None,
) -> RunOutcome:
    """Prepare a plan, run all of its trajectories and write its results.

    Prerequisites (sandbox, what `prepare` checks, engine) are checked before a directory or journal exists,
    so that a run that could not start leaves nothing. A signal stops the run, a second one at once
    (`signals.py`); `stopping` is told which. `probes` tell where the run takes place, for its record.

    With a `resumption` that run goes on, in its own directory, with the trajectories that have no score; it
    raises `UserError` with a diff, and writes nothing, where the plan, the sandbox or the engine are not the
    run's. `patience` says how a full disk is waited for, and whom that is told; `oversight` the same of
    failures of our own side, and of a run in which nothing moves.
    """
    if resumption is not None and resumption.is_done:
        return _end_what_is_done(resumption, listener)
    run_dir: Path | None = None
    try:
        async with watch_signals() as stop:
            stop.listener = stopping
            # Both shield their own teardown, which so survives the signal that brings it about.
            with stop.guard():
                async with sandbox:
                    plan, engine = await prepare(sandbox)
                    identity = await sandbox.identity()
                    if resumption is not None:
                        # Before engines are started, which takes minutes.
                        resumption.check_plan(plan)
                        resumption.check_sandbox(identity)
                    async with engine:
                        _check_capture(plan, sandbox)
                        concurrency = _fit(plan.profile.concurrency, await sandbox.capacity())
                        provenance = await gather_provenance(identity, plan.artifacts, probes)
                        started = _run_started(plan, engine, identity, concurrency, run_id, provenance)
                        work = _Work(
                            plan, engine, sandbox, concurrency, stop, patience, oversight or Oversight()
                        )
                        if resumption is None:
                            run_dir = make_run_dir(results_dir, run_id)
                            with JournalWriter(run_dir / JOURNAL_NAME) as journal:
                                await _record(work, started, plan.jobs, journal, listener)
                        else:
                            resumed, run_dir = resumption.resumed(started), resumption.run_dir
                            resumption.begin()
                            jobs = resumption.jobs(plan)
                            await _record(work, resumed, jobs, resumption.journal, listener)
    except JournalWriteError:
        raise
    except Exception:
        if run_dir is not None:
            # What is raised already is the news; results can be derived from the journal later.
            with suppress(RecountError):
                write_results(run_dir)
        raise
    if run_dir is None:
        raise InterruptedRunError("stopped by a signal before the run began")
    return write_results(run_dir)


def _end_what_is_done(resumption: Resumption, listener: Listener) -> RunOutcome:
    """Give a run that has all its scores what it still lacks: an end, and results."""
    ending = resumption.ending()
    if ending:
        resumption.begin()
    for event in ending:
        listener(resumption.journal.append(event))
    remove_asides(resumption.run_dir)
    return write_results(resumption.run_dir)


@dataclass(frozen=True)
class _Work:
    """What the trajectories of a run, or of a part of it, are run with."""

    plan: Plan
    engine: Engine
    sandbox: Sandbox
    concurrency: ConcurrencyRecord
    stop: Stop
    patience: Patience | None
    oversight: Oversight


async def _record(
    work: _Work, started: RunStarted, jobs: Sequence[Job], journal: JournalWriter, listener: Listener
) -> None:
    """Write a run's journal from its first event, or the one with which it goes on, to its last."""
    stop = work.stop
    # A disk that is full already is said at once.
    listener(journal.append(started))
    patient = PatientJournal(journal, listener, patience=work.patience, hurried=lambda: bool(stop.received))
    async with patient.open():
        message = ""
        try:
            with stop.guard():
                await _run_jobs(work, jobs, patient, journal.path.parent / LOG_NAME)
        except JournalWriteError:
            raise
        except (RecountError, SandboxError) as error:
            reason, message = EndReason.FAILED, describe_cause(error)
        except Exception as error:
            patient.emit(RunEnded(reason=EndReason.FAILED, message=describe_cause(error)))
            raise
        else:
            # A signal ends the waiting, and the journal looks for room once more before it gives up.
            with stop.guard():
                await patient.room()
            state = read_state(journal.path)
            # A signal that came behind the last trajectory's end interrupted nothing.
            reason = end_reason(state) if state.all_tried else EndReason.INTERRUPTED
            message = stop.received
        patient.emit(RunEnded(reason=reason, message=message))
        with stop.guard():
            await patient.room()


async def _run_jobs(work: _Work, jobs: Sequence[Job], journal: PatientJournal, log: Path) -> None:
    """Run the scheduler until every job has ended, or something fails that no retry can mend."""

    oversight, waiting = work.oversight, Waiting()

    def emit(event: Event) -> None:
        if isinstance(event, Unfinished):
            event = event.model_copy(update={"log": last_lines(log)})
        stall.heard(event)
        journal.emit(event)

    def revive(fault: Fault) -> None:
        if fault is Fault.ENGINE:
            work.engine.revive()

    stall = StallWatch(
        log.parent, work.engine, work.sandbox, waiting, policy=oversight.stall, emit=emit, tell=oversight.tell
    )
    breaker = Breaker(
        oversight.breaker,
        emit=emit,
        tell=oversight.tell,
        examine=None if oversight.examine is None else partial(oversight.examine, work.sandbox),
        revive=revive,
    )
    concurrency = work.concurrency
    trajectories = TrajectoryRunner(
        work.plan.rules,
        work.engine,
        work.sandbox,
        generation=journal.gated(anyio.Semaphore(concurrency.generations)),
        tools=anyio.Semaphore(concurrency.tools),
        emit=emit,
        waiting=waiting,
    )
    retry = RetryPolicy(**work.plan.profile.retry.model_dump())
    scheduler = Scheduler(
        trajectories,
        in_flight=concurrency.trajectories,
        retry=retry,
        emit=emit,
        breaker=breaker,
        waiting=waiting,
    )
    with first_error_only():
        async with engine_log(work.engine, emit), stall.open():
            await scheduler.run(jobs)


def last_lines(log: Path) -> tuple[str, ...]:
    """Return the last lines of a run's log, cut to what a reader needs; none where there is no log."""
    try:
        with log.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _LOG_BYTES, 0))
            text = file.read(_LOG_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return ()
    return tuple(line[:_LOG_LINE_CHARS] for line in text.splitlines()[-TAIL_LINES:])


def _check_capture(plan: Plan, sandbox: Sandbox) -> None:
    """Truncation is exact only if the sandbox keeps as much of either end as an observation can show."""
    shown_chars = plan.profile.limits.observation_limit_chars // 2
    needed_bytes = shown_chars * MOST_BYTES_A_CHAR
    if sandbox.capture_bytes < needed_bytes:
        raise UserError(
            f"limits.observation_limit_chars needs {needed_bytes} bytes of either end of an output,"
            f" the sandbox's policy keeps {sandbox.capture_bytes}",
            remedy="raise the policy's capture_bytes, or lower the limit",
        )


def _fit(wanted: ConcurrencySettings, capacity: Capacity) -> ConcurrencyRecord:
    """Lower what a profile wants at once to what the sandbox's host can take, and keep why.

    A trajectory needs one workspace at most, so as many in flight as there may be workspaces never wait for
    one.
    """
    return ConcurrencyRecord(
        trajectories=_least(wanted.trajectories, capacity.workspaces_at_once),
        generations=wanted.generations,
        tools=_least(wanted.tools, capacity.actions_at_once),
        notes=capacity.notes,
    )


def _least(wanted: int, possible: int | None) -> int:
    return wanted if possible is None else min(wanted, possible)


def _policy_deviation(plan: Plan, identity: dict[str, str]) -> tuple[str, ...]:
    """A broker has a policy of its own, and it need not be the profile's."""
    found = identity.get("policy_sha256")
    if found is None or found == plan.policy.digest():
        return ()
    return (f"the sandbox's policy is {identity.get('policy')}, not the profile's {plan.policy.name}",)


def _run_started(
    plan: Plan,
    engine: Engine,
    sandbox: dict[str, str],
    concurrency: ConcurrencyRecord,
    run_id: str,
    provenance: ProvenanceRecord,
) -> RunStarted:
    return RunStarted(
        run_id=run_id,
        recount=__version__,
        profile=plan.profile.model_dump(mode="json"),
        overrides=tuple(f"{setting}={value}" for setting, value in plan.overrides.items()),
        samples=plan.profile.samples,
        datasets=dataset_records(plan),
        protocol=protocol_record(plan),
        engine=engine.identity(),
        sandbox=dict(sandbox),
        concurrency=concurrency,
        deviations=(*engine.deviations(), *plan.deviations, *_policy_deviation(plan, sandbox)),
        notes=plan.notes,
        comparison=plan.comparison,
        provenance=provenance,
        command=command_record(plan),
    )


def write_results(run_dir: Path) -> RunOutcome:
    """Derive everything of a run from its journal and write it beside it."""
    state, journal = read_run(run_dir / JOURNAL_NAME)
    results = build_results(state, journal)
    write_text(run_dir / RESULTS_NAME, results_text(results))
    write_text(run_dir / SUMMARY_NAME, summary_text(results))
    write_traces(state, run_dir)
    write_report_if_possible(run_dir, state, results)
    return RunOutcome(run_dir, state, results, state.end_reason or EndReason.INCOMPLETE)
