"""Going on with a run that stopped: what it lacks, whether this is still the same run, and where it goes on.

A journal is continued under its lock, behind its last whole line. A trajectory that has its score is never
run again; one that was cut starts at its first turn, with its seeds; one that was given up has all its
attempts again.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from runner.chain import chain_of, follows
from runner.errors import InfrastructureError, UserError
from runner.events import CutRecord, EndReason, Event, ResumeRecord, RunEnded, RunResumed, RunStarted
from runner.fingerprint import Difference, Differences, compare_engines, compare_plans, compare_sandboxes
from runner.journal import JOURNAL_NAME, JournalError, JournalWriter, read_lines, read_run
from runner.logs import LOG_NAME
from runner.plan import Plan
from runner.results.traces import TRACE_DIR
from runner.run_records import dataset_records, protocol_record
from runner.state import RunState
from runner.trajectory import Job

_MOST_NAMED = 20
"""Differences that a refusal names; another data set differs in every row."""
_ASIDE = re.compile(r"\..+\.[a-z0-9_]{8}")
"""What a kill leaves of a file that was being written (`atomic.py`)."""


@dataclass
class Resumption:
    """A run that goes on: its journal locked, its state as far as it got."""

    run_dir: Path
    state: RunState
    journal: JournalWriter
    _harmless: list[Difference] = field(default_factory=list)

    @property
    def started(self) -> RunStarted:
        """The run's first event."""
        if self.state.started is None:
            raise JournalError(f"{self.journal.path}: the run never started")
        return self.state.started

    @property
    def is_done(self) -> bool:
        """Whether no trajectory lacks its score: then only the end and the results may be missing."""
        return not self.state.missing()

    def jobs(self, plan: Plan) -> list[Job]:
        """Return exactly the plan's jobs that have no score, in the plan's order."""
        missing = set(self.state.missing())
        return [job for job in plan.jobs if job.key in missing]

    def check_plan(self, plan: Plan) -> None:
        """Raise `UserError` with a diff for a plan that would make another run."""
        self._take(compare_plan(self.started, plan))

    def check_sandbox(self, identity: Mapping[str, str]) -> None:
        """Raise `UserError` with a diff for another sandbox."""
        self._take(compare_sandboxes(self.started.sandbox, identity))

    def resumed(self, now: RunStarted) -> RunResumed:
        """Return the event with which the run goes on; `now` is what it would start with today.

        Raises `UserError` with a diff for another engine.
        """
        started, provenance = self.started, now.provenance
        self._take(
            compare_engines(
                started.engine,
                now.engine,
                None if started.provenance is None else started.provenance.artifacts,
                None if provenance is None else provenance.artifacts,
            )
        )
        if started.recount != now.recount:
            self._harmless.append(Difference("Recount", started.recount, now.recount))
        # What the results are made of stands in the first event, and is here once more.
        same = {"run_id", "samples", "datasets", "comparison", "profile", "overrides", "protocol", "command"}
        values = {
            name: getattr(started if name in same else now, name)
            for name in RunStarted.model_fields
            if name not in {"type", "at"}
        }
        return RunResumed(**values, resumed=self._record())

    def begin(self) -> None:
        """Put aside what the new part would write over, and remove what a kill left half-written.

        Raises `InfrastructureError` where that is not possible.
        """
        part = len(self.state.parts)
        log, kept = self.run_dir / LOG_NAME, self.run_dir / f"runner.part{part}.log"
        try:
            if log.exists() and log.stat().st_size:
                log.rename(kept)
        except OSError as error:
            raise InfrastructureError(f"cannot rename {log}: {error.strerror or error}") from error
        remove_asides(self.run_dir)

    def ending(self) -> list[Event]:
        """Return what the journal of a run lacks that has all its scores: nothing, or an end."""
        if self.state.end_reason is EndReason.COMPLETE:
            return []
        return [self.resumed(self.started), RunEnded(reason=EndReason.COMPLETE)]

    def _record(self) -> ResumeRecord:
        state = self.state
        cut = tuple(
            CutRecord(dataset=key.dataset, problem_id=key.problem_id, sample=key.sample, turns=len(one.turns))
            for key, one in sorted(state.trajectories.items())
            if one.terminated is None and one.unfinished is None
        )
        return ResumeRecord(
            part=len(state.parts) + 1,
            missing=len(state.missing()),
            cut=cut,
            given_up=sum(one.unfinished is not None for one in state.trajectories.values()),
            torn_bytes=self.journal.torn_bytes,
            differs=tuple(str(one) for one in self._harmless),
        )

    def _take(self, found: Differences) -> None:
        if found.refused:
            raise UserError(
                f"{self.run_dir} cannot go on: it began with something else than is here now\n"
                + "\n".join(diff_lines(found.refused)),
                remedy="restore what is named, or start a new run",
            )
        self._harmless += found.harmless


@contextmanager
def open_resumption(run_dir: Path) -> Iterator[Resumption]:
    """Lock a run's journal and read it; nothing is written yet.

    Raises `UserError` where there is no run, or another process is at it, and `JournalError` with file and
    line for a journal that is damaged.
    """
    path = run_dir / JOURNAL_NAME
    if not path.is_file():
        raise UserError(f"{run_dir} has no {JOURNAL_NAME}", remedy="name a run's directory: results/RUN")
    with JournalWriter(path) as journal:
        try:
            check_chain(path)
            state = read_run(path)[0]
        except JournalError as error:
            raise JournalError(
                error.message,
                remedy="a run goes on from a journal that is whole: restore the file, or start a new run",
            ) from error
        yield Resumption(run_dir, state, journal)


def compare_plan(started: RunStarted, plan: Plan) -> Differences:
    """Hold a plan against a run's first event."""
    return compare_plans(
        started,
        profile=plan.profile.model_dump(mode="json"),
        datasets=dataset_records(plan),
        protocol=protocol_record(plan),
        comparison=plan.comparison,
    )


def diff_lines(differences: Sequence[Difference]) -> list[str]:
    """Return a line a difference, and how many more there are."""
    lines = [f"  {one}" for one in differences[:_MOST_NAMED]]
    more = len(differences) - len(lines)
    return [*lines, f"  and {more} more"] if more else lines


def check_chain(path: Path) -> None:
    """Raise `JournalError` for the first line that is not the one that was written."""
    before = ""
    for number, raw in read_lines(path):
        chain = chain_of(raw)
        if (chain or before) and not follows(before, raw):
            raise JournalError(f"{path}:{number}: the line is not the one that was written there")
        before = chain or before


def remove_asides(run_dir: Path) -> None:
    """Remove what a kill left of derived files; they are written again."""
    for directory in (run_dir, run_dir / TRACE_DIR):
        with suppress(OSError):  # they are in nobody's way but the eye's
            for path in directory.iterdir():
                if _ASIDE.fullmatch(path.name) and path.is_file():
                    path.unlink()
